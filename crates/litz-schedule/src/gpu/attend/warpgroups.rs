//! Lets warpgroups take the rows of a region, whose operands another warp has copied as boxes.

use super::operands::{Operand, is_passed_on, of_points, operands};
use super::problem::{BUFFERS, Kind, Problem, Task, Unit};
use crate::cost::{ceil_div, size};
use litz_analysis::online;
use litz_ir::loops::Axis;
use litz_ir::target::{Gpu, Rounds};

/// Registers that a thread has for elements of tiles, at most: the rest is for what it computes.
const REGISTERS: i64 = 180;

/// Warpgroups of a block, at most: one multiplies while another computes weights.
const WARPGROUPS: i64 = 2;

/// Buffers of an iteration's operands, at most.
const MOST_BUFFERS: i64 = 4;

/// Bytes that the barriers of rings take of what a block shares, at most, and what boxes are aligned to.
const BARRIERS: i64 = 1 << 10;

/// A region as one of warpgroups, where blocks are as large as these take, and boxes of all operands can be copied that no nest passes on.
pub fn by_warpgroups<'a>(problem: &Problem<'a>) -> Option<Problem<'a>> {
    let rows = size(&problem.cx.loops.facts, problem.row.extent);
    let units = Unit::Warpgroups(WARPGROUPS.min(ceil_div(rows, Gpu::WARPGROUP_ROWS.into())));
    let mut larger = Problem { unit: units, ..problem.clone() };
    let [before, repeated, after] = &mut larger.parts;
    if before.iter().chain(&*after).any(|task| matches!(task.kind, Kind::Product { .. })) {
        return None;
    }
    let is_wide = |task: &Task<'_>| match task.kind {
        Kind::Reduction(columns) => columns.count > online::WARP_WIDTH,
        Kind::Product { columns, .. } => columns.count > online::WARP_COLUMNS,
        Kind::Row | Kind::Points(_) => false,
    };
    if !repeated.iter().any(is_wide) {
        return None;
    }
    for task in repeated {
        let Kind::Product { columns, depth, by, .. } = &mut task.kind else { continue };
        let found = problem.gpu.of_warpgroup(by.dtype, by.sums, Rounds::Never)?;
        let is_whole = |axis: &Axis, of: i64| axis.extent.as_int().is_some_and(|count| count % of == 0);
        let fits = is_whole(&columns.axis, 8) && columns.count <= i64::from(found.columns);
        // What registers hold of a left operand are pairs.
        if !fits || !is_whole(depth, found.depth.into()) || by.dtype.size() != 2 {
            return None;
        }
        *by = found;
    }
    let operands = operands(&larger);
    let copied: usize = operands.iter().map(Vec::len).sum();
    let are_boxes = operands.iter().flatten().all(|operand| operand.panel(&larger).is_some());
    let suits = are_boxes
        && copied == loaded(&larger)
        && !operands[1].is_empty()
        && buffers(&larger) >= BUFFERS
        && larger.registers_of_tiles() <= REGISTERS;
    suits.then_some(larger)
}

/// What blocks copy at the points of rows and columns, if there is room for it beside the operands.
pub fn copied_points(problem: &Problem<'_>) -> Vec<Operand> {
    match problem.unit {
        Unit::Warps { .. } => Vec::new(),
        Unit::Warpgroups(_) => {
            let found = of_points(problem);
            if buffers_with(problem, &found) >= BUFFERS { found } else { Vec::new() }
        }
    }
}

/// Buffers of what an iteration has copied, as many as there is room for, but no more than are of use: the next boxes are asked for when both warpgroups are
/// done with a buffer, and take about as long as an iteration to be there.
pub fn buffers(problem: &Problem<'_>) -> u32 {
    buffers_with(problem, &copied_points(problem))
}

fn buffers_with(problem: &Problem<'_>, more: &[Operand]) -> u32 {
    let bytes = |operands: &[Operand]| operands.iter().map(|operand| operand.bytes(problem)).sum::<i64>();
    let [once, repeated] = operands(problem).map(|operands| bytes(&operands));
    let (room, repeated) = (problem.gpu.shared_bytes - BARRIERS - once, repeated + bytes(more));
    if repeated == 0 { 0 } else { (room / repeated).clamp(0, MOST_BUFFERS) as u32 }
}

/// Operands that products load and no nest passes on.
fn loaded(problem: &Problem<'_>) -> usize {
    let loads = problem.parts[1].iter().flat_map(|task| match task.kind {
        Kind::Product { operands, .. } => operands.map(|load| task.nest.body[load].op.element()).to_vec(),
        Kind::Row | Kind::Reduction(_) | Kind::Points(_) => Vec::new(),
    });
    loads.flatten().filter(|(buf, _)| !is_passed_on(problem, *buf)).count()
}
