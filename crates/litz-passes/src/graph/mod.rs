//! Runs the rewrites of graphs in their order.

pub mod channels_last;
pub mod cse;
pub mod dce;
pub mod decompose;
pub mod fold_batch_norm;
pub mod functionalize;
pub mod noop;
pub mod place;
pub mod types;
pub mod verify;

use litz_ir::Diags;
use litz_ir::graph::{Graph, Value};
use std::collections::HashMap;
pub use verify::{Form, Verifier};

/// What rewrites of graphs go by.
#[derive(Clone, PartialEq, Debug)]
pub struct GraphSettings {
    /// Parameters never change: what depends on them alone may be computed when the model is loaded.
    pub freeze: bool,
}

impl Default for GraphSettings {
    fn default() -> Self {
        GraphSettings { freeze: true }
    }
}

/// A rewrite of graphs; says how many nodes it changed.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Name: of the file, the flag and the test folder.
    pub name: &'static str,
    /// The rewrite.
    pub run: fn(&mut Graph, &GraphSettings) -> Result<usize, Diags>,
    /// What is known of the graph from then on.
    pub form: Form,
}

/// Every rewrite, in the order they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "types", run: |graph, _| types::run(graph), form: Form::Typed },
    Pass { name: "functionalize", run: |graph, _| functionalize::run(graph), form: Form::Functional },
    placed("place", |graph, _| place::run(graph)),
    placed("fold_batch_norm", fold_batch_norm::run),
    placed("decompose", |graph, _| decompose::run(graph)),
    placed("noop", |graph, _| noop::run(graph)),
    placed("cse", |graph, _| cse::run(graph)),
    placed("dce", |graph, _| dce::run(graph)),
    placed("channels_last", |graph, _| channels_last::run(graph)),
];

/// A rewrite of a functional graph whose tensors are where kernels run.
const fn placed(name: &'static str, run: fn(&mut Graph, &GraphSettings) -> Result<usize, Diags>) -> Pass {
    Pass { name, run, form: Form::Placed }
}

/// Replaces values in node arguments, update contents and outputs. `with` has no chains.
pub fn replace_values(graph: &mut Graph, with: &HashMap<Value, Value>) {
    if with.is_empty() {
        return;
    }
    let mut current = |v: Value| with.get(&v).copied().unwrap_or(v);
    graph.nodes.iter_mut().flat_map(|n| &mut n.args).for_each(|a| a.map_values(&mut current));
    graph.updates.iter_mut().for_each(|u| u.1 = current(u.1));
    graph.outputs.iter_mut().for_each(|a| a.map_values(&mut current));
}
