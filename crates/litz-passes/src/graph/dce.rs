//! Removes nodes whose results nobody uses. A node without results, such as an assertion, is there for its effect.

use litz_ir::Diags;
use litz_ir::graph::Graph;
use std::collections::HashSet;

/// Removes dead nodes; returns how many.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let mut live = HashSet::new();
    let mut mark = |v| {
        live.insert(v);
    };
    graph.outputs.iter().for_each(|a| a.each_value(&mut mark));
    live.extend(graph.updates.iter().map(|u| u.1));
    let mut keep = vec![false; graph.nodes.len()];
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        keep[i] = node.outputs.is_empty() || node.outputs.iter().flatten().any(|v| live.contains(v));
        if keep[i] {
            let mut mark = |v| {
                live.insert(v);
            };
            node.args.iter().for_each(|a| a.each_value(&mut mark));
        }
    }
    let before = graph.nodes.len();
    let mut kept = keep.into_iter();
    graph.nodes.retain(|_| kept.next().unwrap_or(true));
    for node in &mut graph.nodes {
        for output in &mut node.outputs {
            if output.is_some_and(|v| !live.contains(&v)) {
                *output = None;
            }
        }
    }
    Ok(before - graph.nodes.len())
}
