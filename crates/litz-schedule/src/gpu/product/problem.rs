//! Gathers what decides on the kernel of a contraction: the axes along the sides of its tiles, its sum, and who sums.

use super::gather;
use crate::axes::{merge_axes, order_axes};
use crate::context::Cx;
use crate::cost::{ceil_div, points, size};
use crate::gpu::Apart;
use crate::gpu::stage::is_guarded_at_end;
use crate::group::{Group, Member, beside_axes, is_stored_along};
use crate::nest;
use litz_analysis::Contraction;
use litz_analysis::access::{Stride, accesses, side_exprs, stride, substitute};
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest};
use litz_ir::schedule::{Leaf, Means, Part, Tree};
use litz_ir::target::{Gpu, Instruction, Rounds, Target};
use litz_sym::{Expr, Sym};
use std::collections::BTreeSet;

/// Points of each side of an instruction's tile, and of its sum, below which it would multiply zeros for the most part.
const LEAST_OF_INSTRUCTION: i64 = 8;

/// Rows from which on an instruction takes a product: for one row threads do better, each of which reads a column once.
const LEAST_ROWS: i64 = 2;

/// Points of each side from which on threads that take several of each side share what they load.
const LEAST_OF_THREADS: i64 = 16;

/// Rows of a product of few of which lanes share the sums, at most: each has registers for its sums, and for what a lane multiplies.
pub const MOST_ROWS_OF_FEW: i64 = 16;

/// Columns, and points of the sum, below which other kernels do as well.
const LEAST_COLUMNS_OF_FEW: i64 = 64;
const LEAST_TERMS_OF_FEW: i64 = 512;

/// Bytes of a row that warpgroups find in shared memory: eight units of 16 change places, as boxes put them.
pub const ROW_BYTES: i64 = 128;

/// Buffers in rotation of what is copied ahead.
pub const BUFFERS: u32 = 3;

/// Rows of both operands that the largest tile of warps takes.
const LARGEST_ROWS: i64 = 256;

/// Who sums the products of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// An instruction of a warp.
    Warp(&'static Instruction),
    /// An instruction of a warpgroup, whose operands a warp of its own has copied.
    Warpgroup(&'static Instruction),
    /// Threads, by multiply-adds.
    Threads,
}

impl Unit {
    /// Points of the sum that it takes at once.
    pub fn depth(self) -> i64 {
        match self {
            Unit::Warp(by) | Unit::Warpgroup(by) => i64::from(by.depth),
            Unit::Threads => 1,
        }
    }

    /// Rows and columns of the least that it sums.
    pub fn shape(self) -> [i64; 2] {
        match self {
            Unit::Warp(by) => [i64::from(by.rows), i64::from(by.columns)],
            // An instruction takes columns in eights.
            Unit::Warpgroup(by) => [i64::from(by.rows), 8],
            Unit::Threads => [1, 1],
        }
    }
}

/// A contraction of a kernel.
#[derive(Clone)]
pub struct Contracted<'a> {
    /// It as a member of the group.
    pub member: &'a Member,
    /// Its nest.
    pub nest: &'a Nest,
    /// Positions of the loads of the operands.
    pub operands: [usize; 2],
    /// Its reduced axes in terms of those of the sum.
    pub reduced: Vec<(Sym, Expr)>,
}

/// Contractions that are to be scheduled.
#[derive(Clone)]
pub struct Problem<'a> {
    /// The context.
    pub cx: &'a Cx<'a>,
    /// The contractions' nests and what follows them.
    pub group: &'a Group,
    /// The contractions, which have the same points and sum along the same axes.
    pub products: Vec<Contracted<'a>>,
    /// What it runs on.
    pub gpu: &'a Gpu,
    /// Who sums.
    pub unit: Unit,
    /// Axes along the rows and the columns of a tile.
    pub sides: [Axis; 2],
    /// How many operands there are along each.
    pub apart: [i64; 2],
    /// Axes of the result besides, outermost first.
    pub others: Vec<Axis>,
    /// The group's axes in terms of these.
    pub values: Vec<(Sym, Expr)>,
    /// The axis of the sum that a unit goes along.
    pub depth: Axis,
    /// Axes of the sum besides, outermost first.
    pub sum: Vec<Axis>,
    /// Nests that gather an operand each: a block has its part of it.
    pub gathered: Vec<&'a Nest>,
}

/// Points of a sum from which on warps that copy have a text of their own, and leave registers to the others, where a block has one tile: it takes a kernel
/// longer to begin, and nothing of the next one is there before it ends. On an H200 (bf16, 2048 rows) 768 columns of 3072 points take 18.8 us instead of
/// 27.7, 16.7 in tiles of 96 columns; MobileNetV3, whose sums have 16 to 960, 0.57 ms instead of 0.47 where all do. Of blocks that stay for several tiles
/// all have: ConvNeXt-T, whose sums of 96 to 384 are such, takes 1.36 ms instead of 1.39.
const LONG_SUM: i64 = 512;

impl Problem<'_> {
    /// Registers of a thread, where warpgroups of so many threads sum for long, or tile after tile, and warps behind them copy, which leave them theirs.
    pub fn registers(&self, threads: i64, stays: bool) -> Option<u32> {
        let along: Vec<Axis> = self.sum.iter().chain([&self.depth]).copied().collect();
        let is_long = stays || points(&self.cx.loops.facts, &along) >= LONG_SUM;
        let are_moved = is_long && matches!(self.unit, Unit::Warpgroup(_));
        are_moved.then(|| self.gpu.registers_beside_copies(threads))
    }

    /// Products that an instruction may sum before they are added up in the type of the sums; none where that is any number of them.
    pub fn terms_of_part(&self) -> Option<i64> {
        let parts = self.products.iter().filter_map(|product| match product.nest.rounds {
            Rounds::Parts(terms) => Some(i64::from(terms)),
            Rounds::Never | Rounds::Always => None,
        });
        let rounds = matches!(self.unit, Unit::Warp(by) | Unit::Warpgroup(by) if by.rounds);
        parts.min().filter(|_| rounds)
    }

    /// Registers of a sum.
    pub fn words_of_sum(&self) -> i64 {
        let sum = self.products[0].nest.body.iter().find(|inst| inst.op.is_reduction());
        sum.map_or(1, |sum| ceil_div(sum.ty.size() as i64, 4))
    }

    /// Bytes that the threads of a block may share.
    pub fn shared_bytes(&self) -> i64 {
        self.gpu.shared_bytes.min(self.gpu.unit.shared_bytes - Gpu::RESERVED_BYTES)
    }
}

/// Which load of a nest is which operand, if it is a contraction that tiles suit: with columns that are neighbours in the result, if these
/// are enough.
pub fn columns_of(cx: &Cx<'_>, nest: &Nest) -> Option<Columns> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let facts = &cx.loops.facts;
    if nest.all_axes().any(|axis| axis.extent.is_zero()) {
        return None;
    }
    let largest = |axes: &[Axis]| axes.iter().map(|axis| size(facts, axis.extent)).max().unwrap_or(0);
    let terms = points(facts, &nest.reduced);
    let suits = |columns: &Columns| {
        let Contraction { m, n, is_plain, .. } = &columns.contraction;
        let (rows, count) = (points(facts, m), largest(n));
        let is_enough = match unit_of(cx.loops, nest, columns, gpu) {
            Unit::Warp(_) | Unit::Warpgroup(_) => {
                rows >= LEAST_ROWS && count >= LEAST_OF_INSTRUCTION && terms >= LEAST_OF_INSTRUCTION
            }
            Unit::Threads => {
                [largest(m), count, terms].iter().all(|&points| points >= LEAST_OF_THREADS)
                    || is_of_few(cx.loops, nest, columns)
            }
        };
        *is_plain && is_enough
    };
    let all = Contraction::all_by_result(cx.loops, &without_ends(cx.loops, nest));
    all.into_iter().find(suits)
}

/// Whether a contraction has few rows, many columns, and operands that both lie along its sum.
fn is_of_few(loops: &Loops, nest: &Nest, Columns { contraction: of, column, .. }: &Columns) -> bool {
    let facts = &loops.facts;
    let rows = of.m.iter().map(|axis| axis.extent).fold(Expr::one(), |all, extent| all * extent);
    let is_along_sum = |at: &usize| {
        let InstOp::Load { buf, index, .. } = &nest.body[*at].op else { return false };
        let mut dims = index.iter().zip(&loops.bufs[*buf].strides);
        dims.any(|(at, step)| step.is_one() && nest.reduced.iter().any(|axis| at.has_sym(axis.var)))
    };
    rows.as_int().is_some_and(|rows| (LEAST_ROWS..=MOST_ROWS_OF_FEW).contains(&rows))
        && size(facts, column.extent) >= LEAST_COLUMNS_OF_FEW
        && points(facts, &nest.reduced) >= LEAST_TERMS_OF_FEW
        && [of.lhs, of.rhs].iter().all(is_along_sum)
}

/// The nest without guards at the ends of buffers. Who sums a slab of a contraction, the last of which may go past the end of the sum, copies
/// operands without.
fn without_ends(loops: &Loops, nest: &Nest) -> Nest {
    let mut nest = nest.clone();
    for inst in &mut nest.body {
        let is_at_end = is_guarded_at_end(loops, &inst.op);
        if let InstOp::Load { guard, .. } = &mut inst.op
            && is_at_end
        {
            guard.clear();
        }
    }
    nest
}

/// Who sums the products of a contraction: an instruction that takes its types, if there is one.
fn unit_of(loops: &Loops, nest: &Nest, columns: &Columns, gpu: &Gpu) -> Unit {
    let Contraction { lhs, rhs, .. } = columns.contraction;
    let [left, right] = [lhs, rhs].map(|at| nest.body[at].op.element().map(|(buf, _)| loops.bufs[buf].dtype));
    let sums = nest.body.iter().filter(|inst| inst.op.is_reduction()).map(|inst| inst.ty.compute()).next();
    let depth = nest.reduced.iter().map(|axis| size(&loops.facts, axis.extent)).max().unwrap_or(1);
    let types = left.filter(|_| left == right).zip(sums);
    let mut found: Vec<&Instruction> =
        types.into_iter().flat_map(|(dtype, sums)| gpu.of_warp(dtype, sums, nest.rounds)).collect();
    // Of those that are no deeper than the sum, the one that does most.
    found.sort_by_key(|by| {
        (i64::from(by.depth) > depth, std::cmp::Reverse(by.shape().iter().product::<i64>()))
    });
    found.first().map_or(Unit::Threads, |by| Unit::Warp(by))
}

impl<'a> Problem<'a> {
    /// The contraction that the first member of a group is, and others like it. None where no axis that all members share is one of rows, or
    /// of columns, or where others are not like the first.
    pub fn new(
        cx: &'a Cx<'a>,
        group: &'a Group,
        all: &[(usize, Columns)],
        gathered: Vec<&'a Nest>,
    ) -> Option<Problem<'a>> {
        let Target::Gpu(gpu) = cx.target else { return None };
        let (loops, facts) = (cx.loops, &cx.loops.facts);
        let (first, head) = (&group.members[0], nest(cx.loops, group.members[0].stmt));
        let columns = &all.first()?.1;
        let name = |name: &str| beside_axes(loops, group, name);
        let Apart { axes, values } = Apart::of(cx, group)?;
        // Whether a shared axis counts one of these of a member's nest.
        let counts = |member: &Member, axis: &Axis, own: &[Axis]| {
            own.iter().any(|own| {
                let value = member.bind.iter().find(|bind| bind.0 == own.var).map(|bind| bind.1);
                value.is_some_and(|value| substitute(value, &values).has_sym(axis.var))
            })
        };
        let is_row = |member: &Member, Contraction { m, n, .. }: &Contraction, axis: &Axis| {
            counts(member, axis, m) && !counts(member, axis, n)
        };
        let is_column = |member: &Member, Contraction { m, n, .. }: &Contraction, axis: &Axis| {
            counts(member, axis, n) && !counts(member, axis, m)
        };
        let Contraction { lhs, rhs, .. } = &columns.contraction;
        let column = axes
            .iter()
            .filter(|axis| is_column(first, &columns.contraction, axis))
            .max_by_key(|axis| (counts(first, axis, &[columns.column]), size(facts, axis.extent)))?;
        let row = axes
            .iter()
            .filter(|axis| is_row(first, &columns.contraction, axis))
            .max_by_key(|axis| size(facts, axis.extent))?;
        let others = axes.iter().filter(|axis| ![row.var, column.var].contains(&axis.var)).copied().collect();
        let (depth, sum, reduced) = sum_of(cx, head, [*lhs, *rhs], &name)?;
        let unit = unit_of(loops, head, columns, gpu);
        // Where there are few rows, they take the shorter side of an instruction.
        let is_flat = matches!(unit, Unit::Warp(by) if size(facts, row.extent) <= i64::from(by.columns));
        let sides = if is_flat { [*column, *row] } else { [*row, *column] };
        let mut products = Vec::new();
        for (stmt, of) in all {
            let member = group.members.iter().find(|member| member.stmt == *stmt)?;
            let own = nest(loops, *stmt);
            // Another one's axes are those of the first, by their places.
            let values = head.reduced.iter().zip(&own.reduced);
            let is_alike = own.reduced.len() == head.reduced.len()
                && values.clone().all(|(a, b)| a.extent == b.extent)
                && is_row(member, &of.contraction, row)
                && is_column(member, &of.contraction, column)
                && unit_of(loops, own, of, gpu) == unit;
            let value = |axis: &Axis| reduced.iter().find(|value| value.0 == axis.var).map(|value| value.1);
            let reduced = values.filter_map(|(of_first, axis)| Some((axis.var, value(of_first)?))).collect();
            let operands = [of.contraction.lhs, of.contraction.rhs];
            products.push(is_alike.then_some(Contracted { member, nest: own, operands, reduced })?);
        }
        let operands = |side: usize| {
            let load = |of: &Contracted<'_>| of.nest.body[of.operands[side]].op.element().map(|of| of.0);
            products.iter().map(load).collect::<BTreeSet<_>>().len() as i64
        };
        let apart = if is_flat { [operands(1), operands(0)] } else { [operands(0), operands(1)] };
        Some(Problem { cx, group, products, gpu, unit, sides, apart, others, values, depth, sum, gathered })
    }

    /// Whether data chooses the matrix that tiles of rows are multiplied by.
    pub fn is_chosen(&self) -> bool {
        self.gathered.iter().any(|nest| gather::is_chosen(nest))
    }

    /// The nest that gathers a buffer.
    pub fn gathering(&self, buf: Buf) -> Option<&'a Nest> {
        self.gathered.iter().copied().find(|nest| nest.writes().contains(&buf))
    }

    /// Whether there are points for tiles of who sums.
    pub fn has_tiles(&self) -> bool {
        match self.unit {
            Unit::Warp(_) | Unit::Warpgroup(_) => true,
            Unit::Threads => [0, 1].iter().all(|&side| self.points(side) >= LEAST_OF_THREADS),
        }
    }

    /// Whether neighbours along an axis are neighbours in all that members store.
    pub fn is_beside(&self, axis: Sym) -> bool {
        is_stored_along(self.cx.loops, self.group, &self.values, axis)
    }

    /// A variable that is no size and no axis of a member.
    pub fn name(&self, name: &str) -> Sym {
        beside_axes(self.cx.loops, self.group, name)
    }

    /// A leaf of a member, in terms of the sides and of the axes of the sum.
    pub fn leaf(&self, member: &Member, part: Part) -> Tree {
        let own = nest(self.cx.loops, member.stmt);
        let facts = own.facts(&self.cx.loops.facts);
        let value = |&(axis, value): &(Sym, Expr)| (axis, facts.simplify(substitute(value, &self.values)));
        let mut bind: Vec<(Sym, Expr)> = member.bind.iter().map(value).collect();
        let product = self.products.iter().find(|product| product.member.stmt == member.stmt);
        if part == Part::Update {
            bind.extend(product.into_iter().flat_map(|product| product.reduced.iter().copied()));
        }
        let by = match self.unit {
            Unit::Warp(by) | Unit::Warpgroup(by) if by.rounds && part == Part::Update => {
                Some(Means::Instruction(by))
            }
            Unit::Warp(_) | Unit::Warpgroup(_) | Unit::Threads => None,
        };
        Tree::Leaf(Leaf { nest: own.name.clone(), part, bind, masked: false, block: None, by })
    }

    /// Bytes of an element of the operands.
    pub fn operand_bytes(&self) -> i64 {
        let loads = self.products[0].nest.body.iter().filter(|inst| matches!(inst.op, InstOp::Load { .. }));
        let of_load =
            |inst: &Inst| inst.op.element().map(|(buf, _)| self.cx.loops.bufs[buf].dtype.size() as i64);
        loads.filter_map(of_load).max().unwrap_or(1)
    }

    /// Points along a side of the result.
    pub fn points(&self, side: usize) -> i64 {
        size(&self.cx.loops.facts, self.sides[side].extent)
    }

    /// Points of the sum that are copied at once, at most: 64 bytes of each row, of which an instruction takes a part, twice as many where a unit
    /// has room for two blocks so, or as many as threads go through between two meetings.
    pub fn most_copied(&self, at_once: i64) -> i64 {
        let most = match self.unit {
            Unit::Warp(_) => {
                let rows = 2 * i64::from(BUFFERS) * LARGEST_ROWS;
                let has_room = self.gpu.unit.shared_bytes >= rows * ROW_BYTES;
                let bytes = if has_room { ROW_BYTES } else { ROW_BYTES / 2 };
                (bytes / self.operand_bytes()).max(at_once)
            }
            Unit::Warpgroup(_) => ROW_BYTES / self.operand_bytes(),
            Unit::Threads => 16,
        };
        self.terms_of_part().map_or(most, |terms| most.min(terms))
    }
}

/// The axes of a nest's sum, merged where both operands walk several as one: that which a unit goes along, which is one of neighbours in
/// memory where there is any, the others, and the values of the nest's axes.
fn sum_of(
    cx: &Cx<'_>,
    head: &Nest,
    operands: [usize; 2],
    name: &dyn Fn(&str) -> Sym,
) -> Option<(Axis, Vec<Axis>, Vec<(Sym, Expr)>)> {
    let facts = head.facts(&cx.loops.facts);
    let loads = accesses(head).filter(|access| operands.contains(&access.at));
    let places: Vec<Expr> = loads.map(|access| facts.simplify(access.place(cx.loops, head))).collect();
    let (ones, mut axes): (Vec<Axis>, Vec<Axis>) = head.reduced.iter().partition(|axis| axis.extent.is_one());
    order_axes(&mut axes, &places, &facts);
    let merged = merge_axes(&axes, &places, &side_exprs(head), &|i| name(&format!("k{i}")));
    let mut values: Vec<(Sym, Expr)> = merged.iter().flat_map(|merged| merged.parts.clone()).collect();
    values.extend(ones.iter().map(|axis| (axis.var, Expr::zero())));
    let depth = merged.iter().max_by_key(|merged| {
        let beside = |place: &&Expr| {
            let place = facts.simplify(substitute(**place, &values));
            stride(place, merged.axis.var) == Stride::Unit
        };
        let extent = size(&cx.loops.facts, merged.axis.extent);
        (extent >= LEAST_OF_INSTRUCTION, places.iter().filter(beside).count(), extent)
    })?;
    let depth = depth.axis;
    let sum = merged.iter().map(|merged| merged.axis).filter(|axis| axis.var != depth.var).collect();
    Some((depth, sum, values))
}
