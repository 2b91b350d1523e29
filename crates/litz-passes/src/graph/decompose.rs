//! Replaces operators that are defined by others.

use litz_ir::Diags;
use litz_ir::graph::Graph;

/// Runs the decompositions of the operator table; returns by how many nodes the graph grew.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let before = graph.nodes.len();
    litz_ops::decompose(graph)?;
    Ok(graph.nodes.len().abs_diff(before))
}
