//! Puts every size of a graph in its simplest form under what is known of its symbols.
//!
//! A guard may make a size a number: with `s0 == 5`, `ceildiv(s0, 5)` is 1. Rules and later stages ask whether a size is
//! 1, and by then every one of them is told the same.

use litz_ir::graph::{Arg, Graph, Type};
use litz_sym::{Expr, Facts};
use std::borrow::Cow;

/// The graph with simplified sizes, as far as types and arguments give them; itself where no size is symbolic.
pub(crate) fn simplified(graph: &Graph) -> Cow<'_, Graph> {
    if graph.facts.symbols().next().is_none() {
        return Cow::Borrowed(graph);
    }
    let facts = &graph.facts;
    let mut graph = graph.clone();
    for value in graph.values.values_mut() {
        match &mut value.ty {
            Type::Tensor(ty) => ty.sizes.iter_mut().chain(&mut ty.strides).for_each(|e| simplify(e, facts)),
            Type::Int(e) => simplify(e, facts),
            Type::Float | Type::Bool => {}
        }
    }
    let args = graph.nodes.iter_mut().flat_map(|node| &mut node.args).chain(&mut graph.outputs);
    args.for_each(|arg| simplify_arg(arg, facts));
    Cow::Owned(graph)
}

fn simplify(e: &mut Expr, facts: &Facts) {
    if e.as_int().is_none() {
        *e = facts.simplify(*e);
    }
}

fn simplify_arg(arg: &mut Arg, facts: &Facts) {
    match arg {
        Arg::Int(e) => simplify(e, facts),
        Arg::List(list) => list.iter_mut().for_each(|arg| simplify_arg(arg, facts)),
        Arg::None
        | Arg::Value(_)
        | Arg::Float(_)
        | Arg::Bool(_)
        | Arg::Complex(..)
        | Arg::Str(_)
        | Arg::Dtype(_)
        | Arg::Device(_)
        | Arg::Strided
        | Arg::MemoryFormat(_)
        | Arg::Graph(_) => {}
    }
}
