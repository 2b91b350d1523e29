//! Removes statements whose results nobody reads.

use super::Cx;
use litz_ir::loops::Loops;

/// Removes dead statements; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let before = loops.stmts.len();
    let mut live = loops.live_statements().into_iter();
    loops.stmts.retain(|_| live.next().unwrap_or(true));
    before - loops.stmts.len()
}
