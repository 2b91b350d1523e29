//! Puts the sizes of a call in the place of size symbols.

use super::smaller::map_ints;
use crate::case::Case;
use litz_ir::graph::{Graph, Type};
use litz_sym::{Expr, Sym};
use std::collections::HashMap;

/// The case with numbers instead of the symbols that its inputs give values to; none where there are none.
pub(super) fn with_numbers(case: &Case) -> Option<Case> {
    let sizes = case.sizes();
    if sizes.is_empty() {
        return None;
    }
    let mut graph = case.graph.clone();
    replace(&mut graph, &sizes);
    Some(Case { graph, ..case.clone() })
}

fn replace(graph: &mut Graph, sizes: &HashMap<Sym, i64>) {
    let replaced = |e: Expr| e.subst(&|sym| sizes.get(&sym).map(|&size| Expr::int(size)));
    for value in graph.values.values_mut() {
        match &mut value.ty {
            Type::Tensor(ty) => {
                ty.sizes.iter_mut().chain(&mut ty.strides).for_each(|size| *size = replaced(*size));
            }
            Type::Int(number) => *number = replaced(*number),
            Type::Float | Type::Bool => {}
        }
    }
    let args = graph.nodes.iter_mut().flat_map(|node| &mut node.args).chain(&mut graph.outputs);
    args.for_each(|arg| map_ints(arg, &replaced));
    graph.facts = graph.facts.only(|sym| !sizes.contains_key(&sym));
    graph.subgraphs.iter_mut().for_each(|subgraph| replace(subgraph, sizes));
}
