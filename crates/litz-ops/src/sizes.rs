//! Puts every size of a graph in its simplest form under what is known of its symbols.
//!
//! A guard may make a size a number: with `s0 == 5`, `ceildiv(s0, 5)` is 1. Rules and later stages ask whether a size is
//! 1, and by then every one of them is told the same.

use litz_ir::graph::{Arg, Graph, Part, Type, Value};
use litz_sym::{Expr, Facts, Sym};
use std::borrow::Cow;
use std::collections::HashSet;

/// The graph with simplified sizes, as far as types and arguments give them; itself where no size is symbolic. A result that gives symbols
/// their values stays as it is, though facts may say what these are equal to: that is checked of the values.
pub(crate) fn simplified(graph: &Graph) -> Cow<'_, Graph> {
    if graph.facts.symbols().next().is_none() {
        return Cow::Borrowed(graph);
    }
    let facts = &graph.facts;
    let kept: Vec<(Value, Type)> =
        giving(graph).into_iter().map(|value| (value, graph.values[value].ty.clone())).collect();
    let mut graph = graph.clone();
    for value in graph.values.values_mut() {
        match &mut value.ty {
            Type::Tensor(ty) => ty.sizes.iter_mut().chain(&mut ty.strides).for_each(|e| simplify(e, facts)),
            Type::Int(e) => simplify(e, facts),
            Type::Float | Type::Bool => {}
        }
    }
    for (value, ty) in kept {
        graph.values[value].ty = ty;
    }
    let args = graph.nodes.iter_mut().flat_map(|node| &mut node.args).chain(&mut graph.outputs);
    args.for_each(|arg| simplify_arg(arg, facts));
    Cow::Owned(graph)
}

/// Results of nodes that are the first to have some symbol as an integer or a size.
fn giving(graph: &Graph) -> Vec<Value> {
    let mut given: HashSet<Sym> =
        graph.facts.symbols().filter(|&sym| graph.facts.range_of(sym).single().is_some()).collect();
    let inputs = graph.inputs.iter().chain(graph.consts.iter().map(|(value, _)| value));
    given.extend(
        inputs.flat_map(|&value| numbers_of(&graph.values[value].ty)).flat_map(|number| number.syms()),
    );
    let mut giving = Vec::new();
    for &value in graph.nodes.iter().flat_map(|node| &node.outputs).flatten() {
        let numbers = numbers_of(&graph.values[value].ty);
        if numbers.iter().filter_map(|number| number.as_sym()).any(|sym| !given.contains(&sym)) {
            giving.push(value);
        }
        given.extend(numbers.iter().flat_map(|number| number.syms()));
    }
    giving
}

/// The integer that a value is, or the sizes of a tensor.
fn numbers_of(ty: &Type) -> Vec<Expr> {
    match ty {
        Type::Tensor(ty) => ty.sizes.clone(),
        Type::Int(size) => vec![*size],
        Type::Float | Type::Bool => Vec::new(),
    }
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
        Arg::Part(Part { of: _, sizes, strides, offset }) => {
            sizes.iter_mut().chain(strides).chain([offset]).for_each(|e| simplify(e, facts));
        }
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
