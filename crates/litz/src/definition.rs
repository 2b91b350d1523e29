//! Makes the loops that define what a graph computes, which the interpreter of loops runs.

use crate::error::Error;
use litz_ir::graph::Graph;
use litz_ir::loops::Loops;
use litz_passes::graph::{GraphSettings, PASSES};

/// The passes without which a graph cannot be lowered.
pub const NEEDED: [&str; 3] = ["types", "functionalize", "decompose"];

/// The loops that define what a graph computes: no more passes than lowering needs. Types are among them: sizes that a
/// file states and that operators do not contradict are replaced by those that operators infer.
///
/// # Errors
/// When the graph uses something unsupported.
pub fn definition(graph: &Graph) -> Result<Loops, Error> {
    let mut graph = graph.clone();
    graph.tell_subgraphs();
    for pass in PASSES.iter().filter(|pass| NEEDED.contains(&pass.name)) {
        let run = &mut |graph: &mut Graph| (pass.run)(graph, &GraphSettings { freeze: false }).map(drop);
        graph.each(run).map_err(Error::of_diags)?;
    }
    litz_ops::lower(&graph).map_err(Error::of_diags)
}
