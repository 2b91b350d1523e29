//! Makes nodes with equal operators and arguments one.

use super::replace_values;
use litz_ir::Diags;
use litz_ir::graph::{Graph, Node, Value};
use litz_ops::{InferCx, Table};
use std::collections::HashMap;

/// Merges equal nodes; returns how many disappeared.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::of(graph);
    let mut first: HashMap<String, usize> = HashMap::new();
    let mut replaced = HashMap::new();
    let mut kept: Vec<Node> = Vec::with_capacity(graph.nodes.len());
    let before = graph.nodes.len();
    for mut node in std::mem::take(&mut graph.nodes) {
        node.args.iter_mut().for_each(|a| a.map_values(&mut |v| replaced.get(&v).copied().unwrap_or(v)));
        let mut cx =
            InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
        if !cx.is_pure(&node) {
            kept.push(node);
            continue;
        }
        let key = format!("{:?}{:?}{:?}", node.form, node.op, node.args);
        let ty = |value: &Option<Value>| value.map(|value| &graph.values[value].ty);
        let fits = |at: usize| {
            let mut pairs = node.outputs.iter().zip(&kept[at].outputs);
            pairs.all(|(a, b)| a.is_none() || b.is_none() || ty(a) == ty(b))
        };
        match first.get(&key) {
            // A value that was given another layout than its twin stays apart.
            Some(&at) if !fits(at) => kept.push(node),
            Some(&at) => {
                for (i, output) in node.outputs.iter().enumerate() {
                    let Some(old) = *output else { continue };
                    match kept[at].outputs[i] {
                        Some(new) => drop(replaced.insert(old, new)),
                        None => kept[at].outputs[i] = Some(old),
                    }
                }
            }
            None => {
                first.insert(key, kept.len());
                kept.push(node);
            }
        }
    }
    graph.nodes = kept;
    replace_values(graph, &replaced);
    Ok(before - graph.nodes.len())
}
