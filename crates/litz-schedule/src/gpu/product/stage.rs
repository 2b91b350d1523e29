//! Copies what a block reads of the operands to shared memory, ahead of the loop that sums.

use super::gather;
use super::problem::{Contracted, Problem, ROW_BYTES, Unit};
use crate::gpu::stage::{Copying, Staged, is_guarded_at_end};
use litz_analysis::access::substitute;
use litz_analysis::windows::Windows;
use litz_ir::loops::{Buf, InstOp, Nest};
use litz_ir::schedule::{Layout, LocalSpace, Tree};
use litz_ir::target::Gpu;
use litz_sym::{Expr, Sym};

/// Points of the largest tile along a side, by warps or threads, and by warpgroups.
const LARGEST_SIDES: [i64; 2] = [128, 256];

/// An operand of which a block reads its part from shared memory.
pub struct Operand {
    staged: Staged,
    /// The side of the tile that it goes along; its other dimension goes along the sum.
    pub side: usize,
    /// Elements that a thread copies at once.
    pub vector: i64,
    /// Loads that read it.
    pub loads: usize,
}

impl Operand {
    /// The operands of contractions that lie along a side and along the sum as they are. Several may read one.
    pub fn of(problem: &Problem<'_>) -> Vec<Operand> {
        let mut found: Vec<(Operand, &Nest, usize)> = Vec::new();
        for product in &problem.products {
            for load in product.operands {
                let op = &product.nest.body[load].op;
                let InstOp::Load { buf, index, guard, .. } = op else { continue };
                let operand = is_guarded_at_end(problem.cx.loops, op)
                    .then(|| operand(problem, product, *buf, index))
                    .flatten();
                let Some(mut operand) = operand else { continue };
                operand.staged.is_cut = !guard.is_empty();
                let is_same = |other: &&mut (Operand, &Nest, usize)| other.0.staged.is_same(&operand.staged);
                match found.iter_mut().find(is_same) {
                    Some(other) => {
                        other.0.loads += 1;
                        other.0.staged.is_cut |= operand.staged.is_cut;
                    }
                    None => found.push((operand, product.nest, load)),
                }
            }
        }
        let bufs: Vec<Buf> = found.iter().map(|found| found.0.staged.buf).collect();
        let is_again = |buf: Buf| bufs.iter().filter(|other| **other == buf).count() > 1;
        // Of a buffer that several operands are parts of each has a copy of its part, for one load.
        found.retain(|(operand, ..)| operand.loads == 1 || !is_again(operand.staged.buf));
        let named = found.into_iter().enumerate().map(|(number, (operand, nest, load))| {
            match is_again(operand.staged.buf) {
                true => {
                    Operand { staged: operand.staged.for_load(problem.cx, nest, load, number), ..operand }
                }
                false => operand,
            }
        });
        named.collect()
    }

    /// The buffer.
    pub fn buf(&self) -> Buf {
        self.staged.buf
    }

    /// What an axis of the nest that gathers it is, in terms of the kernel's axes.
    pub fn value(&self, axis: Sym) -> Option<Expr> {
        self.staged.value(axis)
    }

    /// The memory, of which rows may be read of every other pair at once: columns of the result are where `pairs`.
    pub fn local(&self, problem: &Problem<'_>, pairs: bool, points: [i64; 2]) -> Tree {
        match problem.unit {
            Unit::Warpgroup(_) if !self.is_along_sum(problem) => {
                let columns = ROW_BYTES / problem.operand_bytes();
                let layout = Layout::Panels { unit: Gpu::VECTOR_BYTES, columns: columns as u32 };
                self.staged.copy(problem.cx, LocalSpace::Shared, layout)
            }
            // Threads read neighbours along the side: from different banks, wherever they lie.
            Unit::Threads if !self.is_along_sum(problem) && problem.gathering(self.buf()).is_none() => {
                self.staged.copy(problem.cx, LocalSpace::Shared, Layout::Dense)
            }
            Unit::Warp(_) | Unit::Warpgroup(_) | Unit::Threads => {
                self.staged.local(problem.cx, Gpu::VECTOR_BYTES, pairs && self.side == 1, points)
            }
        }
    }

    /// Memory for what a thread has of it.
    pub fn in_registers(&self, problem: &Problem<'_>) -> Tree {
        self.staged.copy(problem.cx, LocalSpace::Register, Layout::Dense)
    }

    /// The copy of its element at these places along its side and the sum, of blocks of so many points.
    pub fn element(&self, problem: &Problem<'_>, places: [Expr; 2], points: [i64; 2]) -> Tree {
        self.staged.leaf(problem.cx, places, points)
    }

    /// Whether its neighbours in memory are along the sum.
    pub fn is_along_sum(&self, problem: &Problem<'_>) -> bool {
        self.staged.is_along(problem.cx, 1)
    }

    /// Whether data chooses it, and blocks of so many points along its side and the sum may go past an end: which elements are copied is not known
    /// ahead then, as nothing chooses those that are not there.
    pub fn is_chosen_late(&self, problem: &Problem<'_>, points: [i64; 2]) -> bool {
        let is_chosen = problem.gathering(self.buf()).is_some_and(gather::is_chosen);
        is_chosen && self.staged.is_masked(problem.cx, points)
    }

    /// Whether boxes of it may be copied whose rows an instruction of a warpgroup takes: they go along the sum, or are of elements of 16 bits, which
    /// are transposed. Of what a nest gathers they are cut out of where that is, and go past no end: what would be there, nobody knows.
    pub fn is_box(&self, problem: &Problem<'_>) -> bool {
        let data = &problem.cx.loops.bufs[self.staged.buf];
        let size = data.dtype.size() as i64;
        let is_last = |dim: usize| dim + 1 == data.sizes.len();
        let is_row = self.is_along_sum(problem)
            || size == 2 && is_last(self.staged.along[0]) && problem.points(self.side) * size >= ROW_BYTES;
        let facts = &problem.cx.loops.facts;
        let is_whole = |nest: &Nest| {
            gather::is_of_boxes(nest)
                && facts.divides(ROW_BYTES / size, problem.sides[self.side].extent)
                && facts.divides(problem.most_copied(problem.unit.depth()), problem.depth.extent)
        };
        problem.gathering(self.buf()).is_none_or(|nest| is_whole(nest) || self.is_of_windows(problem))
            && is_row
            && self.vector * size == i64::from(Gpu::VECTOR_BYTES)
            && data.sizes.len() <= Gpu::BOX_DIMS
    }

    /// Whether a nest gathers it from windows of which the hardware has boxes: past the last point there are zeros.
    pub fn is_of_windows(&self, problem: &Problem<'_>) -> bool {
        let neighbours = problem.most_copied(problem.unit.depth());
        let windows = problem.gathering(self.buf()).and_then(|nest| Windows::of(problem.cx.loops, nest));
        let facts = &problem.cx.loops.facts;
        windows.is_some_and(|windows| windows.are_boxes(facts, neighbours, problem.depth.extent))
    }

    /// Boxes of it, which one thread of a warp has copied: one whose rows go along the sum, or one for each panel of columns.
    pub fn boxed(&self, problem: &Problem<'_>, warp: u32, by: Copying) -> Tree {
        let columns = match self.is_along_sum(problem) {
            true => by.points[1],
            false => ROW_BYTES / problem.operand_bytes(),
        };
        self.staged.boxes(problem.cx, &|name| problem.name(name), (warp, columns), by)
    }

    /// The copies: neighbouring threads take what is side by side in memory.
    pub fn copies(&self, problem: &Problem<'_>, by: Copying) -> Tree {
        self.staged.copies(problem.cx, &|name| problem.name(name), self.vector, by)
    }
}

fn operand(problem: &Problem<'_>, product: &Contracted<'_>, buf: Buf, index: &[Expr]) -> Option<Operand> {
    let loops = problem.cx.loops;
    let facts = product.nest.facts(&loops.facts);
    let mut values: Vec<(Sym, Expr)> =
        product.member.bind.iter().map(|&(axis, value)| (axis, substitute(value, &problem.values))).collect();
    values.extend(product.reduced.iter().copied());
    let index: Vec<Expr> = index.iter().map(|&at| facts.simplify(substitute(at, &values))).collect();
    let is_there = |side: &usize| index.iter().any(|at| at.has_sym(problem.sides[*side].var));
    let side = [0, 1].into_iter().find(is_there)?;
    let staged = Staged::of(
        problem.cx,
        (problem.group, product.member),
        buf,
        index,
        [problem.sides[side], problem.depth],
    )?;
    // Windows that a tile goes past the end of are read where they are.
    let axes = [problem.sides[side], problem.depth];
    let largest = LARGEST_SIDES[usize::from(matches!(problem.unit, Unit::Warpgroup(_)))];
    let most = [largest, problem.most_copied(problem.unit.depth())];
    let is_cut = |at: usize| {
        let offset = staged.index[staged.along[at]].replace(axes[at].var, Expr::zero());
        let counted = problem.values.iter().filter(|value| value.1.has_sym(axes[at].var)).count();
        (!offset.is_zero() || counted > 1) && !facts.simplify(axes[at].extent.modulo(most[at])).is_zero()
    };
    if is_cut(0) || is_cut(1) {
        return None;
    }
    let vector = staged.vector(problem.cx, &facts)?;
    let Some(nest) = problem.gathering(buf) else {
        return Some(Operand { staged, side, vector, loads: 1 });
    };
    let staged = staged.made_by(nest)?;
    let vector = vector.min(gather::vector(problem.cx, nest, staged.unit(problem.cx)?)?);
    Some(Operand { staged, side, vector, loads: 1 })
}
