//! Copies operands of a region's products to shared memory: by the threads of a block, or as boxes that a warp of its own has copied.

use super::problem::{Kind, Problem, Task, Unit, ceil_to};
use crate::gpu::stage::{Copying, LEAST_COPIED, Staged};
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf, InstOp};
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

/// What is loaded at the points of rows and columns in each iteration, as a bias or a mask is: boxes of it, if they can be copied. A lane has two neighbours of
/// each row, of which four lanes load 16 bytes from where they are, and wait for them in each iteration.
pub fn of_points(problem: &Problem<'_>) -> Vec<Operand> {
    let loads = |buf: Buf| {
        let bodies = problem.tasks().flat_map(|task| &task.nest.body);
        bodies.filter(|inst| matches!(&inst.op, InstOp::Load { buf: other, .. } if *other == buf)).count()
    };
    let found = problem.parts[1].iter().flat_map(|task| {
        let (columns, operands) = match task.kind {
            Kind::Points(columns) => (columns, &[][..]),
            Kind::Product { columns, ref operands, .. } => (columns, &operands[..]),
            Kind::Row | Kind::Reduction(_) => return Vec::new(),
        };
        let of_load = |op: &InstOp| {
            let InstOp::Load { buf, guard, .. } = op else { return None };
            let is_alone = guard.is_empty() && loads(*buf) == 1 && !is_passed_on(problem, *buf);
            let axes = ([problem.row, columns.axis], [problem.rows(), columns.padded()]);
            copied(problem, task, (op, 0), axes).filter(|found| is_alone && found.1)
        };
        let insts = task.nest.body.iter().enumerate().filter(|(at, _)| !operands.contains(at));
        insts.filter_map(|(_, inst)| of_load(&inst.op)).map(|found| found.0).collect()
    });
    found.filter(|operand| operand.panel(problem).is_some()).collect()
}

/// Whether a nest of the region stores to a buffer.
pub fn is_passed_on(problem: &Problem<'_>, buf: Buf) -> bool {
    problem.tasks().any(|task| problem.cx.deps.stmts[task.member.stmt].writes.contains(&buf))
}

/// What a product loads on one side, and whether it is something else in each iteration of the loop. None where it is loaded from where it is.
fn operand(problem: &Problem<'_>, task: &Task<'_>, (side, load): (usize, usize)) -> Option<(Operand, bool)> {
    let Kind::Product { columns, depth, by, .. } = task.kind else { return None };
    let along = if side == 0 { problem.row } else { columns.axis };
    let across = if side == 0 { problem.rows() } else { columns.padded() };
    let points = [across, ceil_to(depth.extent.as_int().unwrap_or(0), i64::from(by.depth))];
    copied(problem, task, (&task.nest.body[load].op, side), ([along, depth], points))
}

/// What a task loads along two axes, so many points of each at once, and whether it is something else in each iteration of the loop.
fn copied(
    problem: &Problem<'_>,
    task: &Task<'_>,
    (op, side): (&InstOp, usize),
    (axes, points): ([Axis; 2], [i64; 2]),
) -> Option<(Operand, bool)> {
    let cx = problem.cx;
    let InstOp::Load { buf, index, guard, .. } = op else { return None };
    let facts = task.nest.facts(&cx.loops.facts);
    let bind = |e: Expr| facts.simplify(substitute(substitute(e, &task.member.bind), &problem.values));
    let index: Vec<Expr> = index.iter().map(|&at| bind(at)).collect();
    let is_repeated = index.iter().any(|at| at.has_sym(problem.over.var));
    let mut staged = Staged::of(cx, (problem.group, task.member), *buf, index, axes)?;
    // Beyond the end of an axis that begins elsewhere there are elements of something else.
    let is_padded = |at: usize| {
        !facts.simplify(axes[at].extent.modulo(points[at])).is_zero() && !staged.begins_at_zero(at)
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
