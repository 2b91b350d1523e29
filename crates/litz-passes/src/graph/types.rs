//! Gives every computed value the type that its operator infers.
//!
//! A file says what types its values have. Indices are computed from types, so they must be what the operators make of
//! the inputs: element types and sizes that contradict them are an error, and strides are those that Litz infers.

use litz_ir::graph::{Graph, Node, TensorType, Type};
use litz_ir::{Diag, Diags};
use litz_ops::{InferCx, Rule, Table, infer};
use litz_sym::{Facts, Known, Rel};
use std::collections::HashSet;

/// Infers all types; returns how many were other than stated.
///
/// # Errors
/// Every value whose stated type contradicts its operator, and every operator that PyTorch would reject.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::of(graph);
    let mut diags = Diags::new();
    let mut changed = 0;
    // What a program says of values that nothing uses does not matter.
    let mut used = HashSet::new();
    let args = graph.nodes.iter().flat_map(|n| &n.args).chain(&graph.outputs);
    args.for_each(|a| {
        a.each_value(&mut |v| {
            used.insert(v);
        });
    });
    for node in &graph.nodes {
        let mut cx =
            InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
        let types = match infer(&mut cx, node) {
            Ok(types) => types,
            Err(error) => {
                diags.push(error.at(node, &graph.values));
                continue;
            }
        };
        for (value, ty) in node.outputs.iter().zip(types) {
            let (Some(value), Some(Type::Tensor(inferred))) = (*value, ty) else { continue };
            let data = &mut graph.values[value];
            match &data.ty {
                Type::Tensor(stated) if !used.contains(&value) || agree(stated, &inferred, &graph.facts) => {
                    changed += usize::from(*stated != inferred);
                    data.ty = Type::Tensor(inferred);
                }
                stated @ (Type::Tensor(_) | Type::Int(_) | Type::Float | Type::Bool) => {
                    let message = format!("%{}: expected {inferred}, found {stated}", data.name);
                    let diag = Diag::new("bad-program", format!("{}: {message}", node.op));
                    diags.push(match &node.source {
                        Some(source) => diag.source(source.to_string()),
                        None => diag,
                    });
                }
            }
        }
    }
    if !diags.is_empty() {
        return Err(diags);
    }
    // What inference has decided, such as an assertion about sizes, has nothing left to do.
    let is_decided = |node: &Node| {
        node.outputs.is_empty() && matches!(table.op_of(node).map(|op| op.def.rule), Some(Rule::Drop))
    };
    graph.nodes.retain(|node| !is_decided(node));
    Ok(changed)
}

/// Whether two types may be of one value: element types and devices are equal, and no size is known to differ.
fn agree(stated: &TensorType, inferred: &TensorType, facts: &Facts) -> bool {
    (stated.dtype, stated.device) == (inferred.dtype, inferred.device)
        && stated.rank() == inferred.rank()
        && stated.sizes.iter().zip(&inferred.sizes).all(|(&a, &b)| facts.known(&Rel::eq(a, b)) != Known::No)
}
