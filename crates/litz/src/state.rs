//! Finds state that shares memory with other constants of a model.
//!
//! Each constant is a tensor of its own to graphs. PyTorch keeps one storage for tensors that share it, also in a file: what a
//! call writes to one of them, another shows. A model that needs this is refused.

use litz_import::Weight;
use litz_ir::graph::{Graph, Value};
use litz_ir::{Diag, Diags};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// A problem for each constant that the graph updates while it uses another one of the same memory. The graph is functional.
pub fn check_shared(graph: &Graph, weights: &BTreeMap<String, Weight>) -> Diags {
    let mut used: HashSet<Value> = graph.updates.iter().map(|(target, _)| *target).collect();
    used.extend(graph.updates.iter().map(|(_, new)| *new));
    for arg in graph.nodes.iter().flat_map(|node| &node.args).chain(&graph.outputs) {
        arg.each_value(&mut |value| {
            used.insert(value);
        });
    }
    let places: Vec<(Value, &str, Range<usize>)> = graph
        .consts
        .iter()
        .filter(|(value, _)| used.contains(value))
        .filter_map(|(value, name)| Some((*value, name.as_str(), weights.get(name)?.bytes()?)))
        .collect();
    let mut diags = Diags::new();
    for (value, name, place) in &places {
        if !graph.updates.iter().any(|(target, _)| target == value) {
            continue;
        }
        let meets = |(other, _, range): &&(Value, &str, Range<usize>)| {
            other != value && range.start < place.end && place.start < range.end
        };
        if let Some((_, other, _)) = places.iter().find(meets) {
            let message = format!("`{name}`, which calls write to, shares memory with `{other}`");
            let help = "let one buffer hold it, and make the other of it in `forward`";
            diags.push(Diag::new("shared-state", message).help(help));
        }
    }
    diags
}
