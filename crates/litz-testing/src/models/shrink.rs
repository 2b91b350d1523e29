//! Makes a model that fails smaller, as long as it fails: fewer results, fewer operators, one call.

use std::collections::HashSet;

use litz_ir::graph::{Arg, Graph, Type, Value};

use super::{Fill, Model, give_sizes};

/// The smallest model found by leaving things out for which `fails` holds, as it does for `model`. Calls `fails` about
/// once for each operator and result, and again after each success.
pub fn shrink(model: &Model, fails: &mut dyn FnMut(&Model) -> bool) -> Model {
    let mut best = model.clone();
    while let Some(smaller) = candidates(&best).into_iter().find(|candidate| fails(candidate)) {
        best = smaller;
    }
    best
}

/// Models with one thing less, the largest steps first.
fn candidates(model: &Model) -> Vec<Model> {
    let mut all = Vec::new();
    if model.bindings.len() > 1 {
        all.extend(
            model.bindings.iter().map(|binding| Model { bindings: vec![binding.clone()], ..model.clone() }),
        );
    }
    if model.graph.outputs.len() > 1 {
        for at in 0..model.graph.outputs.len() {
            let mut graph = model.graph.clone();
            graph.outputs = vec![graph.outputs[at].clone()];
            all.push(with(model, graph));
        }
        for at in 0..model.graph.outputs.len() {
            let mut graph = model.graph.clone();
            graph.outputs.remove(at);
            all.push(with(model, graph));
        }
    }
    all.extend(without_last(model));
    for at in (0..model.graph.nodes.len()).rev() {
        all.extend(given(model, at));
        all.extend(left_out(model, at));
    }
    all
}

fn with(model: &Model, graph: Graph) -> Model {
    Model { graph: without_dead(graph), ..model.clone() }
}

/// Returns the operands of the last operator instead of its only result.
fn without_last(model: &Model) -> Option<Model> {
    let mut graph = model.graph.clone();
    let node = graph.nodes.pop()?;
    let mut operands = Vec::new();
    node.args.iter().for_each(|arg| arg.each_value(&mut |value| operands.push(Arg::Value(value))));
    let is_last = graph.outputs.len() == 1 && !operands.is_empty();
    graph.outputs = operands;
    is_last.then(|| with(model, graph))
}

/// The results of a node as inputs.
fn given(model: &Model, at: usize) -> Option<Model> {
    let mut graph = model.graph.clone();
    let node = graph.nodes.remove(at);
    let mut fills = model.fills.clone();
    for value in node.outputs.into_iter().flatten() {
        let Type::Tensor(_) = graph.values[value].ty else { return None };
        graph.inputs.push(value);
        fills.insert(value.0, Fill::Small);
    }
    Some(Model { graph: without_dead(graph), fills, ..model.clone() })
}

/// An operator of one type leaves its operand as it is.
fn left_out(model: &Model, at: usize) -> Option<Model> {
    let mut graph = model.graph.clone();
    let node = graph.nodes.remove(at);
    let [Some(result)] = node.outputs[..] else { return None };
    let operand = node.args.iter().find_map(|arg| {
        let value = arg.as_value()?;
        (graph.values[value].ty == graph.values[result].ty).then_some(value)
    })?;
    let mut replace = |value: Value| if value == result { operand } else { value };
    for node in &mut graph.nodes {
        node.args.iter_mut().for_each(|arg| arg.map_values(&mut replace));
    }
    graph.outputs.iter_mut().for_each(|arg| arg.map_values(&mut replace));
    Some(with(model, graph))
}

/// The graph without operators, inputs and constants that nothing needs.
fn without_dead(mut graph: Graph) -> Graph {
    let mut needed = HashSet::new();
    graph.outputs.iter().for_each(|arg| {
        arg.each_value(&mut |value| {
            needed.insert(value);
        })
    });
    // A write is needed with what it writes to: all views of one base hang together.
    let is_kept = |needed: &HashSet<Value>, node: &litz_ir::graph::Node| {
        super::writer::is_in_place(&node.op)
            || node.outputs.iter().flatten().any(|value| needed.contains(value))
    };
    for node in graph.nodes.iter().rev() {
        if is_kept(&needed, node) {
            node.args.iter().for_each(|arg| {
                arg.each_value(&mut |value| {
                    needed.insert(value);
                })
            });
        }
    }
    graph.nodes.retain(|node| is_kept(&needed, node));
    graph.inputs.retain(|value| needed.contains(value));
    graph.donated.retain(|value| needed.contains(value));
    graph.consts.retain(|(value, _)| needed.contains(value));
    give_sizes(&mut graph);
    graph
}
