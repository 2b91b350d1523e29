//! Copies operands of a region's products to shared memory: by the threads of a block, or as boxes that a warp of its own has copied.

use super::problem::{Kind, Problem, Task, Unit, ceil_to};
use crate::gpu::stage::{Copying, LEAST_COPIED, Staged};
use litz_analysis::access::substitute;
use litz_ir::loops::{Buf, InstOp};
use litz_ir::schedule::{Layout, LocalSpace, Tree};
use litz_ir::target::Gpu;
use litz_sym::Expr;

/// Bytes of a panel, at most: what a box, and an instruction of a warpgroup, takes side by side.
const PANELS: [i64; 3] = [128, 64, 32];

/// An operand that the block copies.
pub struct Operand {
    /// The copy.
    pub staged: Staged,
    /// Elements that a thread copies at once.
    vector: i64,
    /// Points along the two axes.
    points: [i64; 2],
    /// Which side it is: 0 the left one, whose rows are the block's.
    side: usize,
    /// Whether so much is copied at once that it can be in the background.
    pub is_wide: bool,
}

/// Operands that are copied before the loop, and in each of its iterations.
pub fn operands(problem: &Problem<'_>) -> [Vec<Operand>; 2] {
    let cx = problem.cx;
    let mut found = [Vec::new(), Vec::new()];
    // Of a buffer that several operands are of each has a copy of its part.
    let mut loads: Vec<Buf> = Vec::new();
    for task in &problem.parts[1] {
        if let Kind::Product { operands, .. } = task.kind {
            let of_load = |load: usize| task.nest.body[load].op.element().map(|element| element.0);
            loads.extend(operands.into_iter().filter_map(of_load));
        }
    }
    let mut number = 0;
    for task in &problem.parts[1] {
        let Kind::Product { operands, .. } = task.kind else { continue };
        for (side, load) in operands.into_iter().enumerate() {
            let InstOp::Load { buf, .. } = &task.nest.body[load].op else { continue };
            if is_passed_on(problem, *buf) {
                continue;
            }
            let Some((mut operand, is_repeated)) = operand(problem, task, (side, load)) else { continue };
            if loads.iter().filter(|other| *other == buf).count() > 1 {
                operand.staged = operand.staged.for_load(cx, task.nest, load, number);
                number += 1;
            }
            found[usize::from(is_repeated)].push(operand);
        }
    }
    found
}

/// Whether a nest of the region stores to a buffer.
pub fn is_passed_on(problem: &Problem<'_>, buf: Buf) -> bool {
    problem.tasks().any(|task| problem.cx.deps.stmts[task.member.stmt].writes.contains(&buf))
}

/// What a product loads on one side, and whether it is something else in each iteration of the loop. None where it is loaded from where it is.
fn operand(problem: &Problem<'_>, task: &Task<'_>, (side, load): (usize, usize)) -> Option<(Operand, bool)> {
    let cx = problem.cx;
    let Kind::Product { columns, depth, by, .. } = task.kind else { return None };
    let InstOp::Load { buf, index, guard, .. } = &task.nest.body[load].op else { return None };
    let facts = task.nest.facts(&cx.loops.facts);
    let bind = |e: Expr| facts.simplify(substitute(substitute(e, &task.member.bind), &problem.values));
    let index: Vec<Expr> = index.iter().map(|&at| bind(at)).collect();
    let is_repeated = index.iter().any(|at| at.has_sym(problem.over.var));
    let along = if side == 0 { problem.row } else { columns.axis };
    let across = if side == 0 { problem.rows() } else { columns.padded() };
    let points = [across, ceil_to(depth.extent.as_int().unwrap_or(0), i64::from(by.depth))];
    let mut staged = Staged::of(cx, (problem.group, task.member), *buf, index, [along, depth])?;
    // Beyond the end of an axis that begins elsewhere there are elements of something else.
    let is_padded = |at: usize| {
        let axis = [along, depth][at];
        !facts.simplify(axis.extent.modulo(points[at])).is_zero() && !staged.begins_at_zero(at)
    };
    let vector = staged.vector(cx, &facts).filter(|_| !is_padded(0) && !is_padded(1))?;
    staged.is_cut = !guard.is_empty();
    let is_wide = vector * cx.loops.bufs[*buf].dtype.size() as i64 >= LEAST_COPIED;
    Some((Operand { staged, vector, points, side, is_wide }, is_repeated))
}

impl Operand {
    /// Elements of a panel, if boxes of panels may be copied.
    pub fn panel(&self, problem: &Problem<'_>) -> Option<i64> {
        let cx = problem.cx;
        let row = self.points[usize::from(self.staged.is_along(cx, 1))];
        let size = cx.loops.bufs[self.staged.buf].dtype.size() as i64;
        let panel = PANELS.into_iter().map(|bytes| bytes / size).find(|columns| row % columns == 0);
        panel.filter(|_| self.staged.has_panels(cx, self.vector))
    }

    /// Bytes of the copy.
    pub fn bytes(&self, problem: &Problem<'_>) -> i64 {
        self.points.iter().product::<i64>() * problem.cx.loops.bufs[self.staged.buf].dtype.size() as i64
    }

    /// The memory.
    pub fn local(&self, problem: &Problem<'_>) -> Tree {
        let (cx, unit) = (problem.cx, Gpu::VECTOR_BYTES);
        match (problem.unit, self.panel(problem)) {
            (Unit::Warpgroups(_), Some(columns)) => {
                self.staged.copy(cx, LocalSpace::Shared, Layout::Panels { unit, columns: columns as u32 })
            }
            (Unit::Warpgroups(_) | Unit::Warps { .. }, _) => self.staged.local(cx, unit, false, self.points),
        }
    }

    /// The copies, where the rows of the block begin at `start`.
    pub fn copies(&self, problem: &Problem<'_>, start: Expr) -> Tree {
        let (cx, name) = (problem.cx, |name: &str| problem.name(name));
        let starts = [if self.side == 0 { start } else { Expr::zero() }, Expr::zero()];
        let threads = problem.warps() * i64::from(Gpu::LANES);
        let by = Copying { threads, starts, points: self.points };
        match (problem.unit, self.panel(problem)) {
            // The warp behind those that multiply.
            (Unit::Warpgroups(_), Some(columns)) => {
                self.staged.boxes(cx, &name, (problem.warps() as u32, columns), by)
            }
            (Unit::Warpgroups(_) | Unit::Warps { .. }, _) => self.staged.copies(cx, &name, self.vector, by),
        }
    }
}
