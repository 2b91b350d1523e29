//! Removes nodes that return their first argument unchanged.
//!
//! After functionalisation values are immutable, so a copy of a value is the value. What the caller sees stays apart:
//! a returned value that is an input's memory is copied when the graph is lowered.

use super::replace_values;
use litz_ir::Diags;
use litz_ir::graph::{Arg, Graph, Node, Value};
use litz_ops::{Rule, Table};
use litz_sym::Expr;
use std::collections::HashMap;

/// Operators that are the identity when the result's type is the operand's. Reindexing operators are listed only where
/// equal types mean equal elements.
const IDENTITY_IF_SAME_TYPE: &[&str] = &[
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.to.dtype",
    "aten.to.device",
    "aten.to.dtype_layout",
    "aten.to.other",
    "aten._to_copy.default",
    "aten.type_as.default",
    "aten.slice.Tensor",
    "aten.expand.default",
    "aten.expand_as.default",
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.flatten.using_ints",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.constant_pad_nd.default",
];

/// Removes identities; returns how many.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::new();
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
fn identity(graph: &Graph, table: &Table, node: &Node) -> Option<(Value, Value)> {
    let [Some(result)] = node.outputs.as_slice() else { return None };
    let operand = node.args.first()?.as_value()?;
    let name = node.op.as_str();
    let drops = matches!(table.def(name)?.rule, Rule::Drop);
    let same = graph.values[*result].ty == graph.values[operand].ty;
    ((drops || IDENTITY_IF_SAME_TYPE.contains(&name)) && same && !shifts(node)).then_some((*result, operand))
}

/// Padding that takes away at one end what it adds at the other.
fn shifts(node: &Node) -> bool {
    let added = |pad: &Arg| !pad.as_int().is_some_and(Expr::is_zero);
    node.op.as_str() == "aten.constant_pad_nd.default"
        && node.args.get(1).and_then(Arg::as_list).is_none_or(|pads| pads.iter().any(added))
}
