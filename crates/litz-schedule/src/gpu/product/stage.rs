//! Copies what a block reads of an operand to shared memory, ahead of the loop that sums.
//!
//! Copies have the dimensions of the operand: one of them goes along a side of the tile, and another one along the sum.

use super::problem::Problem;
use crate::axes::fresh;
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf, BufKind, InstOp};
use litz_ir::schedule::{Holds, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Level};
use litz_sym::{Expr, Sym};

/// Bytes that change places together, so that rows below each other are in different banks.
const UNIT_BYTES: u32 = 16;

/// An operand of which a block reads its part from shared memory.
pub struct Staged {
    buf: Buf,
    /// Name of the copy.
    name: String,
    /// The element, in terms of the axes of the result and of the sum.
    index: Vec<Expr>,
    /// The dimension along a side of the tile, and the one along the sum.
    along: [usize; 2],
    /// Which side.
    side: usize,
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

impl Staged {
    /// The operands of a contraction that lie along a side and along the sum as they are.
    pub fn of(problem: &Problem<'_>) -> Vec<Staged> {
        let operands = problem.operands.map(|load| {
            let InstOp::Load { buf, index, guard, .. } = &problem.head.body[load].op else { return None };
            guard.is_empty().then(|| staged(problem, *buf, index)).flatten()
        });
        // A read of a buffer that has two copies could be of either.
        match operands {
            [Some(left), Some(right)] if left.buf == right.buf => Vec::new(),
            operands => operands.into_iter().flatten().collect(),
        }
    }

    /// Which side of the tile it goes along.
    pub fn side(&self) -> usize {
        self.side
    }

    /// The memory.
    pub fn local(&self, problem: &Problem<'_>) -> Tree {
        let of = problem.cx.loops.bufs[self.buf].name.clone();
        let holds = Holds::Copy { name: self.name.clone(), of };
        Tree::Local(Local { holds, space: LocalSpace::Shared, layout: Layout::Swizzled(UNIT_BYTES) })
    }

    /// The copies: neighbouring threads take what is side by side in memory.
    pub fn copies(&self, problem: &Problem<'_>, by: Copying) -> Tree {
        let Copying { threads, starts, points } = by;
        let data = &problem.cx.loops.bufs[self.buf];
        let [t, e, v] = ["t", "e", "v"].map(|name| problem.name(name));
        let is_along_sum = data.strides[self.along[1]].is_one();
        let inner = usize::from(is_along_sum);
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
        let ends = [problem.sides[self.side], problem.depth];
        let is_whole = |at: usize| {
            let facts = &problem.cx.loops.facts;
            facts.simplify(ends[at].extent.modulo(points[at])).is_zero()
        };
        let values: Vec<(Sym, Expr)> = ends.iter().map(|axis| axis.var).zip(places).collect();
        let bind = self.index.iter().enumerate();
        let bind = bind.map(|(dim, &at)| (Sym::new(&format!("d{dim}")), substitute(at, &values))).collect();
        let masked = !(is_whole(0) && is_whole(1));
        let leaf = Leaf { nest: self.name.clone(), part: Part::Whole, bind, masked, block: None, by: None };
        let mut body = vec![Tree::Leaf(leaf)];
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

fn staged(problem: &Problem<'_>, buf: Buf, index: &[Expr]) -> Option<Staged> {
    let (loops, deps) = (problem.cx.loops, problem.cx.deps);
    // Of several contents nobody knew which one is copied.
    let writers = deps.users[buf].iter().filter(|&&user| deps.stmts[user].writes.contains(&buf)).count();
    if writers + usize::from(loops.bufs[buf].kind != BufKind::Temp) != 1 {
        return None;
    }
    let (data, facts) = (&loops.bufs[buf], problem.head.facts(&loops.facts));
    let first = &problem.group.members[0];
    let mut values: Vec<(Sym, Expr)> =
        first.bind.iter().map(|&(axis, value)| (axis, substitute(value, &problem.values))).collect();
    values.extend(problem.reduced.iter().copied());
    let index: Vec<Expr> = index.iter().map(|&at| facts.simplify(substitute(at, &values))).collect();
    // The one dimension that goes along an axis, step by step.
    let along = |axis: Axis| {
        let mut found = index.iter().enumerate().filter(|(_, at)| at.has_sym(axis.var));
        let (dim, at) = found.next().filter(|_| found.next().is_none())?;
        at.linear(axis.var).filter(|(step, _)| step.is_one()).map(|_| dim)
    };
    let is_there = |side: &usize| index.iter().any(|at| at.has_sym(problem.sides[*side].var));
    let side = [0, 1].into_iter().find(is_there)?;
    let along = [along(problem.sides[side])?, along(problem.depth)?];
    let unit = along.iter().position(|&dim| data.strides[dim].is_one())?;
    if along[0] == along[1] {
        return None;
    }
    // What is copied at once begins where so many bytes do, in every row.
    let size = data.dtype.size() as i64;
    let steps = data.strides.iter().enumerate().filter(|(dim, _)| *dim != along[unit]).map(|(_, &step)| step);
    let starts: Vec<Expr> = steps.chain([first_of(&index, along[unit], problem)]).collect();
    let fits = |vector: &i64| starts.iter().all(|&start| facts.simplify(start.modulo(*vector)).is_zero());
    let most = i64::from(Gpu::VECTOR_BYTES) / size;
    let vector = std::iter::successors(Some(most), |n| Some(n / 2)).find(|n| *n <= 1 || fits(n))?.max(1);
    let is_taken = |name: Sym| {
        loops.bufs.iter().any(|(_, data)| data.name == name.name()) || is_statement(problem, name)
    };
    let name = fresh(&format!("{}_tile", data.name), is_taken).name().to_owned();
    Some(Staged { buf, name, index, along, side, vector })
}

/// Where a dimension begins, without what goes along the tile.
fn first_of(index: &[Expr], dim: usize, problem: &Problem<'_>) -> Expr {
    let axes = [problem.sides[0].var, problem.sides[1].var, problem.depth.var];
    axes.into_iter().fold(index[dim], |at, axis| at.replace(axis, Expr::zero()))
}

fn is_statement(problem: &Problem<'_>, name: Sym) -> bool {
    problem.cx.loops.stmts.iter().any(|stmt| stmt.name() == name.name())
}
