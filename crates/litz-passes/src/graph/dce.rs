//! Removes nodes whose results nobody uses, except those that do more than give results.

use litz_ir::Diags;
use litz_ir::graph::Graph;
use litz_ops::{InferCx, Table, defines_sizes};
use std::collections::HashSet;

/// Removes dead nodes; returns how many.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::of(graph);
    let mut live = HashSet::new();
    let mut mark = |v| {
        live.insert(v);
    };
    graph.outputs.iter().for_each(|a| a.each_value(&mut mark));
    live.extend(graph.updates.iter().map(|u| u.1));
    let mut keep = vec![false; graph.nodes.len()];
    let mut cx =
        InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    for (i, node) in graph.nodes.iter().enumerate().rev() {
        // What mentions a size that the node finds need not use its result.
        let defines = defines_sizes(cx.values, node);
        keep[i] = defines || node.outputs.iter().flatten().any(|v| live.contains(v)) || !cx.is_pure(node);
        if defines {
            live.extend(node.outputs.iter().flatten());
        }
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
