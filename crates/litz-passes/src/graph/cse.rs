//! Makes nodes with equal operators and arguments one.

use super::replace_values;
use litz_ir::Diags;
use litz_ir::graph::{Graph, Node};
use std::collections::HashMap;

/// Operators whose results differ from call to call.
const RANDOM: &[&str] =
    &["rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal", "uniform"];

/// Merges equal nodes; returns how many disappeared.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let mut first: HashMap<String, usize> = HashMap::new();
    let mut replaced = HashMap::new();
    let mut kept: Vec<Node> = Vec::with_capacity(graph.nodes.len());
    let before = graph.nodes.len();
    for mut node in std::mem::take(&mut graph.nodes) {
        node.args.iter_mut().for_each(|a| a.map_values(&mut |v| replaced.get(&v).copied().unwrap_or(v)));
        if is_random(&node) {
            kept.push(node);
            continue;
        }
        let key = format!("{:?}{:?}", node.op, node.args);
        match first.get(&key) {
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

/// Whether an operator's results differ from call to call.
pub fn is_random(node: &Node) -> bool {
    let name = node.op.as_str().split('.').nth(1).unwrap_or("");
    RANDOM.iter().any(|r| name.trim_start_matches("native_").starts_with(r)) || name.contains("dropout")
}
