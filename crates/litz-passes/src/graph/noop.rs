//! Removes nodes that return their first argument unchanged.
//!
//! After functionalisation values are immutable, so a copy of a value is the value. What the caller sees stays apart:
//! a returned value that is an input's memory is copied when the graph is lowered.

use super::replace_values;
use litz_ir::Diags;
use litz_ir::graph::{Graph, Node, Value};
use litz_ops::{InferCx, Table};
use std::collections::HashMap;

/// Removes identities; returns how many.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::of(graph);
    let mut replaced: HashMap<Value, Value> = HashMap::new();
    let before = graph.nodes.len();
    for mut node in std::mem::take(&mut graph.nodes) {
        node.args.iter_mut().for_each(|a| a.map_values(&mut |v| replaced.get(&v).copied().unwrap_or(v)));
        match identity(graph, &table, &node) {
            Some((result, operand)) => drop(replaced.insert(result, operand)),
            None => graph.nodes.push(node),
        }
    }
    replace_values(graph, &replaced);
    Ok(before - graph.nodes.len())
}

/// The result and the operand it equals.
fn identity(graph: &mut Graph, table: &Table, node: &Node) -> Option<(Value, Value)> {
    let [Some(result)] = node.outputs.as_slice() else { return None };
    let operand = node.args.first()?.as_value()?;
    let same = graph.values[*result].ty == graph.values[operand].ty;
    let mut cx = InferCx { table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    (same && cx.is_identity(node)).then_some((*result, operand))
}
