//! Lets warpgroups sum large products, where they are faster than warps.

use super::problem::{Problem, ROW_BYTES, Unit};
use super::stage::Operand;
use super::tile::Tile;
use crate::cost::size;

/// A product of which warpgroups sum tiles, if they take no more time for it than who sums so far: their operands come ahead, and threads do
/// nothing for it. Behind it the same by the other ones, where both can.
pub fn if_faster(problem: Problem<'_>) -> (Problem<'_>, Option<Problem<'_>>) {
    let Some(larger) = by_warpgroups(&problem) else { return (problem, None) };
    let times = [&larger, &problem].map(|problem| Tile::best(problem, problem.unit, &|_| 0).1);
    if times[0] <= times[1] { (larger, Some(problem)) } else { (problem, Some(larger)) }
}

/// A product of warps as one of warpgroups, if there is an instruction for its types, and boxes of both operands can be copied.
fn by_warpgroups<'a>(problem: &Problem<'a>) -> Option<Problem<'a>> {
    let Unit::Warp(by) = problem.unit else { return None };
    let found = problem.gpu.of_warpgroup(by.dtype, by.sums, problem.products[0].nest.rounds)?;
    let is_large = problem.points(0) >= i64::from(found.rows) && problem.points(1) >= i64::from(by.columns);
    let is_deep = size(&problem.cx.loops.facts, problem.depth.extent) * problem.operand_bytes() >= ROW_BYTES;
    let larger = Problem { unit: Unit::Warpgroup(found), ..problem.clone() };
    let operands = Operand::of(&larger);
    let loads: usize = operands.iter().map(|operand| operand.loads).sum();
    let are_boxes =
        loads == 2 * larger.products.len() && operands.iter().all(|operand| operand.is_box(&larger));
    (is_large && is_deep && are_boxes).then_some(larger)
}
