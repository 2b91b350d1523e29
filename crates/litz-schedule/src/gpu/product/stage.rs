//! Copies what a block reads of the operands to shared memory, ahead of the loop that sums.

use super::problem::Problem;
use crate::gpu::stage::Staged;
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf, InstOp};
use litz_ir::schedule::{LoopKind, Tree};
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Sym};

/// Bytes that change places together: what a thread copies at once.
const UNIT_BYTES: u32 = Gpu::VECTOR_BYTES;

/// Points of the largest tile along a side.
const LARGEST_SIDE: i64 = 128;

/// An operand of which a block reads its part from shared memory.
pub struct Operand {
    staged: Staged,
    /// The side of the tile that it goes along; its other dimension goes along the sum.
    pub side: usize,
    /// Elements that a thread copies at once.
    pub vector: i64,
}

/// How a block copies an operand.
#[derive(Clone, Copy)]
pub struct Copying {
    /// Threads of the block.
    pub threads: i64,
    /// Where the block's part begins along a side, and along the sum.
    pub starts: [Expr; 2],
    /// Points of the block along these.
    pub points: [i64; 2],
}

impl Operand {
    /// The operands of a contraction that lie along a side and along the sum as they are.
    pub fn of(problem: &Problem<'_>) -> Vec<Operand> {
        let loads =
            problem.operands.map(|load| problem.head.body[load].op.element().map(|element| element.0));
        // Both would read the one copy of a buffer that both are of.
        if loads[0] == loads[1] {
            return Vec::new();
        }
        let staged = problem.operands.into_iter().filter_map(|load| {
            let InstOp::Load { buf, index, guard, .. } = &problem.head.body[load].op else { return None };
            guard.is_empty().then(|| operand(problem, *buf, index)).flatten()
        });
        staged.collect()
    }

    /// The memory.
    pub fn local(&self, problem: &Problem<'_>, points: [i64; 2]) -> Tree {
        self.staged.local(problem.cx, UNIT_BYTES, points)
    }

    /// The copies: neighbouring threads take what is side by side in memory.
    pub fn copies(&self, problem: &Problem<'_>, by: Copying) -> Tree {
        let Copying { threads, starts, points } = by;
        let data = &problem.cx.loops.bufs[self.staged.buf];
        let [t, e, v] = ["t", "e", "v"].map(|name| problem.name(name));
        let inner = usize::from(data.strides[self.staged.along[1]].is_one());
        let groups = points[inner] / self.vector;
        let all = points[1 - inner] * groups;
        let threads = threads.min(all);
        let turns = all / threads;
        let turn = if turns == 1 { Expr::zero() } else { Expr::sym(e) };
        let number = Expr::sym(t) + turn * threads;
        let element = if self.vector == 1 { Expr::zero() } else { Expr::sym(v) };
        let mut places = [Expr::zero(); 2];
        places[inner] = starts[inner] + number.modulo(groups) * self.vector + element;
        places[1 - inner] = starts[1 - inner] + number.floordiv(groups);
        let mut body = vec![self.staged.leaf(problem.cx, places, points)];
        let mut around = |kind, var, extent: i64| {
            let axis = Axis { var, extent: Expr::int(extent) };
            body = vec![Tree::Loop { kind, axis, body: std::mem::take(&mut body) }];
        };
        if self.vector > 1 {
            around(LoopKind::Vector { lanes: self.vector as u32, copies: 1 }, v, self.vector);
        }
        if turns > 1 {
            around(LoopKind::Unroll, e, turns);
        }
        around(LoopKind::Level(Level::Thread.into()), t, threads);
        body.remove(0)
    }
}

fn operand(problem: &Problem<'_>, buf: Buf, index: &[Expr]) -> Option<Operand> {
    let loops = problem.cx.loops;
    let (data, facts) = (&loops.bufs[buf], problem.head.facts(&loops.facts));
    let first = &problem.group.members[0];
    let mut values: Vec<(Sym, Expr)> =
        first.bind.iter().map(|&(axis, value)| (axis, substitute(value, &problem.values))).collect();
    values.extend(problem.reduced.iter().copied());
    let index: Vec<Expr> = index.iter().map(|&at| facts.simplify(substitute(at, &values))).collect();
    let is_there = |side: &usize| index.iter().any(|at| at.has_sym(problem.sides[*side].var));
    let side = [0, 1].into_iter().find(is_there)?;
    let staged = Staged::of(problem.cx, buf, index, [problem.sides[side], problem.depth])?;
    // Windows that a tile goes past the end of are read where they are.
    let axes = [problem.sides[side], problem.depth];
    let most = [LARGEST_SIDE, problem.most_copied(problem.unit.depth())];
    let is_cut = |at: usize| {
        let offset = staged.index[staged.along[at]].replace(axes[at].var, Expr::zero());
        let counted = problem.values.iter().filter(|value| value.1.has_sym(axes[at].var)).count();
        (!offset.is_zero() || counted > 1) && !facts.simplify(axes[at].extent.modulo(most[at])).is_zero()
    };
    if is_cut(0) || is_cut(1) {
        return None;
    }
    let unit = staged.along.into_iter().find(|&dim| data.strides[dim].is_one())?;
    // What is copied at once begins where so many bytes do, in every row.
    let start = axes
        .into_iter()
        .map(|axis| axis.var)
        .fold(staged.index[unit], |at, axis| at.replace(axis, Expr::zero()));
    let steps = data.strides.iter().enumerate().filter(|(dim, _)| *dim != unit).map(|(_, &step)| step);
    let starts: Vec<Expr> = steps.chain([start]).collect();
    let fits = |vector: &i64| starts.iter().all(|&start| facts.simplify(start.modulo(*vector)).is_zero());
    let most = i64::from(Gpu::VECTOR_BYTES) / data.dtype.size() as i64;
    let vector = std::iter::successors(Some(most), |n| Some(n / 2)).find(|n| *n <= 1 || fits(n))?.max(1);
    Some(Operand { staged, side, vector })
}
