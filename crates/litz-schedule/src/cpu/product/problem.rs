//! Gathers what decides on the kernel of a contraction: its reduced loops, the matrix instruction that suits, the bytes of operands.

use crate::axes::{order_axes, variable};
use crate::cost::{POINTS_PER_THREAD, points, shares_lines, size};
use crate::cpu::k_blocks::is_rounded_to_half;
use crate::cut::cut;
use crate::group::Group;
use crate::heuristics::Heuristics;
use crate::nest;
use litz_analysis::Contraction;
use litz_analysis::access::{Stride, accesses, stride};
use litz_analysis::contraction::{Columns, MIN_TERMS};
use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_ir::target::{Cpu, Instruction};
use litz_sym::{Expr, Sym};

/// Rows from which on a product of matrices pays: dot products in the lanes of vectors use what they load of the right
/// operand once for each row as well, but a matrix instruction takes as long for one row as for a few.
const MIN_MATRIX_ROWS: i64 = 4;

/// Points of a loop of the sum that is written out, if the right operand's load stays in place along it: the integers that a
/// byte holds are 8 at most.
const MOST_IN_PLACE: i64 = 8;

/// Columns below which a contraction is left to the generic loops. Three in a vector of 16 lanes are worth it: a convolution of 64
/// channels of 112x112 points to 3 took 1.4 ms as tiles on two threads of an Intel Xeon, 8.6 ms as sums of one point each.
const MIN_COLUMNS: i64 = 2;

/// Multiply-adds that a core has in flight: two begin at a time, and take four steps.
const CHAINS: i64 = 8;

/// Tiles of so many rows take as long to load the right operand's two vectors, from the second-level cache at best, as to
/// multiply them: adding up the sums of K blocks costs them nothing.
const FEW_ROWS: i64 = 4;

/// Terms below which a K block takes longer to begin than to add up.
const LEAST_K_BLOCK: i64 = 16;

/// The contraction that a nest is, if it is one that register tiles suit.
pub fn tiled_columns(loops: &Loops, nest: &Nest, target: &Cpu) -> Option<Columns> {
    if points(&loops.facts, &nest.reduced) < MIN_TERMS {
        return None;
    }
    let is_wide = |axis: &Axis| size(&loops.facts, axis.extent) >= MIN_COLUMNS;
    Contraction::by_operand(loops, nest, target.tile_columns(), &|dtype| target.mma(dtype), is_wide)
}

/// A product that is to be scheduled.
pub struct Problem<'a> {
    /// The program.
    pub loops: &'a Loops,
    /// The product's nest and what follows it.
    pub group: &'a Group,
    /// Which load is which operand, and the axis that vectors run along.
    pub columns: &'a Columns,
    /// The statement that packs the right operand, panel by panel.
    pub packed: Option<usize>,
    /// What it runs on.
    pub target: &'a Cpu,
    /// Thresholds.
    pub heuristics: &'a Heuristics,
    /// The product's nest.
    pub head: &'a Nest,
    /// The instruction that it takes, if not multiply-adds.
    pub unit: Option<Instruction>,
    /// Loops of the sum, outermost first.
    pub sum: Vec<Axis>,
    /// Points that the instruction takes together, inside of them.
    pub together: Option<Axis>,
    /// The loop inside of these along which the right operand's load stays in place, and what is made of it changes.
    pub in_place: Option<Axis>,
    /// Values of the reduced axes in these loops.
    pub bind: Vec<(Sym, Expr)>,
}

impl<'a> Problem<'a> {
    /// The product that the first member of a group is. The left operand is walked in the order of its memory.
    pub fn new(
        loops: &'a Loops,
        group: &'a Group,
        (columns, packed): (&'a Columns, Option<usize>),
        target: &'a Cpu,
        heuristics: &'a Heuristics,
    ) -> Problem<'a> {
        let head = nest(loops, group.members[0].stmt);
        let (sum, together, bind) = (Vec::new(), None, Vec::new());
        let (unit, in_place) = (None, None);
        let mut problem = Problem {
            loops,
            group,
            columns,
            packed,
            target,
            heuristics,
            head,
            unit,
            sum,
            together,
            in_place,
            bind,
        };
        let instruction = problem.instruction();
        problem.unit = instruction.map(|(unit, _)| unit);
        let mut axes = head.reduced.clone();
        let left = accesses(head).filter(|access| access.at == columns.contraction.lhs);
        let left: Vec<Expr> = left.map(|access| access.place(loops, head)).collect();
        order_axes(&mut axes, &left, &group.facts(&loops.facts));
        for (i, a) in axes.iter().enumerate() {
            let var = variable(loops, &format!("k{i}"));
            let mut axis = Axis { var, extent: a.extent };
            let mut value = Expr::sym(var);
            if let (Some((_, depth)), true) = (instruction, Some(a.var) == columns.grouped) {
                let (outside, inside, at) = cut(axis, depth, var, variable(loops, "kk"));
                (axis, value, problem.together) = (outside, at, Some(inside));
            }
            problem.bind.push((a.var, value));
            match problem.in_place {
                None if axes.len() > 1 && problem.is_in_place(a) => problem.in_place = Some(axis),
                _ => problem.sum.push(axis),
            }
        }
        problem
    }

    /// The matrix instruction that suits, and how many reduced points it is given at a time.
    fn instruction(&self) -> Option<(Instruction, i64)> {
        let Problem { loops, columns, head, .. } = self;
        let facts = &loops.facts;
        let depth = head.reduced.iter().find(|a| Some(a.var) == columns.grouped)?;
        let InstOp::Load { buf, index, guard, .. } = &head.body[columns.contraction.lhs].op else {
            return None;
        };
        let left = loops.place(head, *buf, index);
        let rows = points(facts, &columns.contraction.m);
        let is_regular = |row: &Axis| matches!(stride(left, row.var), Stride::Unit | Stride::Elements(_));
        let has_rows =
            guard.is_empty() && rows >= MIN_MATRIX_ROWS && columns.contraction.m.iter().all(is_regular);
        let is_short = self.terms() <= 2 * self.chain();
        let divides = |d: &i64| facts.simplify(depth.extent.modulo(*d)).is_zero();
        let of_type = |m: &&Instruction| columns.contraction.is_of(loops, head, m);
        let usable = |m: &&Instruction| m.rows == 1 || (has_rows && is_short);
        self.target.isa.mma().filter(of_type).filter(usable).find_map(|m| {
            let (most, group) = (i64::from(m.depth), i64::from(m.group));
            // At least half of what it can take.
            let mut depths = (1..=most / group).rev().map(|n| n * group).filter(|d| d * 2 >= most);
            depths.find(divides).map(|d| (*m, d))
        })
    }

    /// Whether the right operand's load is the same at all points of a short reduced axis. What it loads is widened to a number
    /// for each of these points, by operations that are known where the loop is written out.
    fn is_in_place(&self, axis: &Axis) -> bool {
        let is_short = axis.extent.as_int().is_some_and(|extent| extent <= MOST_IN_PLACE);
        let load = &self.head.body[self.columns.contraction.rhs].op;
        is_short && !self.columns.contraction.is_plain && !load.exprs().iter().any(|e| e.has_sym(axis.var))
    }

    /// The instruction, if it takes several rows at once.
    pub fn matrix(&self) -> Option<Instruction> {
        self.unit.filter(|unit| unit.rows > 1)
    }

    /// Terms of a sum.
    pub fn terms(&self) -> i64 {
        points(&self.loops.facts, &self.head.reduced)
    }

    /// Terms that may be added up one after another: all, where sums are of integers.
    pub fn chain(&self) -> i64 {
        match self.is_rounded() {
            _ if self.is_exact() => self.terms(),
            true => self.heuristics.partial_half,
            false => self.heuristics.partial_sum,
        }
    }

    /// Whether the order of terms makes no difference: sums of integers wrap around.
    fn is_exact(&self) -> bool {
        let mut sums = self.head.body.iter().filter(|inst| inst.op.is_reduction());
        sums.all(|sum| sum.ty.is_int())
    }

    /// The same for a tile of so many rows. The rounding error of a sum grows with the number of K blocks as with their length:
    /// where K blocks cost nothing, both are the root of the number of terms.
    pub fn chain_in(&self, rows: i64) -> i64 {
        match self.unit.is_none() && rows <= FEW_ROWS && !self.is_rounded() && !self.is_exact() {
            true => self.chain().min(self.terms().isqrt().max(LEAST_K_BLOCK)),
            false => self.chain(),
        }
    }

    /// Whether the results are rounded to a half type.
    pub fn is_rounded(&self) -> bool {
        is_rounded_to_half(self.loops, self.head)
    }

    /// Whether what follows the sums is written out for every vector of a tile.
    pub fn is_inlined(&self) -> bool {
        let length = |stmt: usize| nest(self.loops, stmt).body.len();
        let length: usize = self.group.members[1..].iter().map(|m| length(m.stmt)).sum();
        length <= self.heuristics.inline_epilogue
    }

    /// All columns, as a shared axis of the group.
    pub fn column(&self) -> Axis {
        outer_of(self.group, self.columns.column.var).expect("invariant: a product's axes are all shared")
    }

    /// Bytes of so many rows of the left operand. Rows of a convolution have most of their elements in common: it is no
    /// more than there is of the operand.
    pub fn left_bytes(&self, rows: i64) -> i64 {
        let (element, whole) = self.operand(self.columns.contraction.lhs);
        rows.saturating_mul(self.terms()).saturating_mul(element).min(whole)
    }

    /// Bytes of so many columns of the right operand.
    pub fn right_bytes(&self, columns: i64) -> i64 {
        columns.saturating_mul(self.terms()).saturating_mul(self.operand(self.columns.contraction.rhs).0)
    }

    /// Whether the columns of the right operand lie side by side, all of them.
    pub fn is_beside(&self) -> bool {
        let right = accesses(self.head).find(|access| access.at == self.columns.contraction.rhs);
        right.is_some_and(|right| {
            stride(right.place(self.loops, self.head), self.columns.column.var) == Stride::Unit
        })
    }

    /// Columns of a tile of `rows`, of which there are `tiles` along the rows: more than [`Cpu::tile_columns`] where few rows would
    /// leave the multiply-adds waiting for each other and take the right operand line by line, from a distance each time. The
    /// products of three rows of probabilities with 4096 rows of 64 values took 3.6 instead of 5.4 ms of twelve layers on two
    /// threads of an AMD EPYC (AVX2) with four vectors instead of two. Packed operands keep the width that they have.
    pub fn width(&self, rows: i64, tiles: i64) -> i64 {
        let &Problem { loops, group, target, .. } = self;
        let (least, lanes) = (i64::from(target.tile_columns()), i64::from(target.lanes()));
        let column = self.column();
        let Some(columns) = column.extent.as_int().filter(|_| self.is_beside() && self.unit.is_none()) else {
            return least;
        };
        let is_other = |axis: &&Axis| {
            let is_row = |m: &Axis| outer_of(group, m.var).is_some_and(|row| row.var == axis.var);
            axis.var != column.var && !self.columns.contraction.m.iter().any(is_row)
        };
        let others = points(&loops.facts, group.outer.iter().filter(is_other)).saturating_mul(tiles);
        let suits = |&width: &i64| {
            let vectors = width / lanes;
            // Accumulators, and either a row of vectors and a number of the left operand, or the other way round.
            let registers = rows * vectors + rows.min(vectors) + 1;
            let kernels = others.saturating_mul(columns / width);
            columns % width == 0
                && rows * (vectors / 2) < CHAINS
                && registers <= i64::from(target.isa.vector_registers())
                && kernels >= POINTS_PER_THREAD * i64::from(target.threads)
        };
        std::iter::successors(Some(2 * least), |width| Some(2 * width))
            .take_while(suits)
            .last()
            .unwrap_or(least)
    }

    /// Bytes of the right operand that a tile of so many columns takes at each point of the sum's loops.
    pub fn step_bytes(&self, columns: i64) -> i64 {
        let together = self.together.map_or(1, |axis| size(&self.loops.facts, axis.extent));
        columns * together * self.operand(self.columns.contraction.rhs).0
    }

    /// Whether neighbours along an axis of the group read elements of the left operand that are within a line of the cache.
    pub fn shares_lines(&self, axis: &Axis) -> bool {
        let InstOp::Load { buf, index, .. } = &self.head.body[self.columns.contraction.lhs].op else {
            return false;
        };
        let place = self.loops.place(self.head, *buf, index);
        let size = self.loops.bufs[*buf].dtype.size() as i64;
        let mut bound = self.group.members[0].bind.iter().filter(|bind| bind.1 == Expr::sym(axis.var));
        bound.any(|bind| shares_lines(stride(place, bind.0), size))
    }

    /// Bytes of an element of an operand, and of its whole buffer.
    fn operand(&self, load: usize) -> (i64, i64) {
        let InstOp::Load { buf, .. } = self.head.body[load].op else {
            unreachable!("invariant: operands of products are loads")
        };
        let data = &self.loops.bufs[buf];
        let element = data.dtype.size() as i64;
        let span = self.loops.facts.hint(data.span());
        (element, span.map_or(i64::MAX, |n| n.saturating_mul(element)))
    }
}

/// The variable of the group that a product's axis is bound to.
pub fn outer_of(group: &Group, axis: Sym) -> Option<Axis> {
    let value = group.members[0].bind.iter().find(|b| b.0 == axis)?.1;
    group.outer.iter().find(|o| Some(o.var) == value.as_sym()).copied()
}
