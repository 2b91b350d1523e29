//! Reads the nests of a region as what warps do at rows of tiles.

use crate::context::Cx;
use crate::cost::size;
use crate::gpu::{Apart, passed_on};
use crate::group::{Group, Member, beside_axes};
use crate::join::own_axes;
use crate::nest;
use litz_analysis::Contraction;
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Nest};
use litz_ir::target::{Gpu, Instruction, Rounds, Target};
use litz_sym::{Expr, Sym};
use std::collections::BTreeSet;

/// Rows of an instruction.
pub const ROWS: i64 = 16;

/// Instructions below each other that a warp has, at most: what it loads from shared memory all of them take.
const TILES: i64 = 2;

/// Blocks of a unit at a time, from which on warps have several instructions below each other: fewer blocks have fewer warps that wait for
/// each other's results.
const BLOCKS: i64 = 2;

/// Warps of a block, at most. Each block reads all columns, and more of its rows share them.
const WARPS: i64 = 4;

/// Registers that a thread has for elements of tiles, at most: the rest is for what it computes.
const REGISTERS: i64 = 236;

/// As [`REGISTERS`], where it computes for several instructions below each other.
const REGISTERS_OF_TILES: i64 = 232;

/// Buffers in rotation of what is copied ahead.
pub const BUFFERS: u32 = 2;

/// What is to be planned.
#[derive(Clone)]
pub struct Problem<'a> {
    /// The context.
    pub cx: &'a Cx<'a>,
    /// The target.
    pub gpu: &'a Gpu,
    /// All nests, and the points that they share.
    pub group: &'a Group,
    /// The loop in order.
    pub over: Axis,
    /// What runs before it, in it and after it.
    pub parts: [Vec<Task<'a>>; 3],
    /// The axis of which each warp has sixteen rows.
    pub row: Axis,
    /// Shared axes besides.
    pub others: Vec<Axis>,
    /// The group's axes in terms of these.
    pub values: Vec<(Sym, Expr)>,
    /// Who takes the rows of a block.
    pub unit: Unit,
}

/// Who takes the rows of a block.
#[derive(Clone, Copy)]
pub enum Unit {
    /// Warps.
    Warps {
        /// How many.
        count: i64,
        /// Instructions below each other of a warp.
        tiles: i64,
    },
    /// So many warpgroups, for which another warp has boxes of operands copied.
    Warpgroups(i64),
}

/// A nest, and what warps do for it.
#[derive(Clone)]
pub struct Task<'a> {
    /// The nest as a member of the group.
    pub member: &'a Member,
    /// The nest.
    pub nest: &'a Nest,
    /// How its points are taken.
    pub kind: Kind,
}

/// How the points of a nest are taken.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Its points are rows.
    Row,
    /// It reduces columns of rows.
    Reduction(Columns),
    /// Its points are those of rows and columns.
    Points(Columns),
    /// It is a sum of products.
    Product {
        /// The columns of its result.
        columns: Columns,
        /// What it sums along.
        depth: Axis,
        /// The loads of the left operand, which has the rows, and of the right one.
        operands: [usize; 2],
        /// What sums.
        by: &'static Instruction,
    },
}

/// An axis that goes along the columns of tiles.
#[derive(Clone, Copy)]
pub struct Columns {
    /// The axis.
    pub axis: Axis,
    /// Its points.
    pub count: i64,
    /// Whether two instructions side by side take columns in pairs, so that a thread has four neighbours of each row.
    pub is_paired: bool,
}

impl Columns {
    /// Columns of tiles: whole instructions.
    pub fn padded(&self) -> i64 {
        ceil_to(self.count, if self.is_paired { 16 } else { 8 })
    }
}

impl<'a> Problem<'a> {
    /// The region that these nests are. None where they are something else than products by instructions and what goes on at rows.
    pub fn new(
        cx: &'a Cx<'a>,
        group: &'a Group,
        over: Axis,
        parts: &'a [Vec<Member>; 3],
    ) -> Option<Problem<'a>> {
        let Target::Gpu(gpu) = cx.target else { return None };
        let Apart { axes, values } = Apart::of(cx, group)?;
        let mut tasks = [Vec::new(), Vec::new(), Vec::new()];
        for (part, tasks) in parts.iter().zip(&mut tasks) {
            for member in part {
                tasks.push(task(cx, gpu, member)?);
            }
        }
        if !tasks[1].iter().any(|task| matches!(task.kind, Kind::Product { .. })) {
            return None;
        }
        let row = row_of(cx, &tasks, &values, &axes)?;
        let others = axes.into_iter().filter(|axis| axis.var != row.var).collect();
        let unit = Unit::Warps { count: 1, tiles: 1 };
        Some(Problem { cx, gpu, group, over, parts: tasks, row, others, values, unit })
    }

    /// It as one of warps, if their registers last.
    pub fn by_warps(mut self) -> Option<Problem<'a>> {
        pair_columns(self.cx, &mut self.parts);
        if self.registers() > REGISTERS {
            return None;
        }
        let count = |axis: &Axis| size(&self.cx.loops.facts, axis.extent);
        let rows = count(&self.row);
        let others: i64 = self.others.iter().map(count).product();
        let blocks = others * ceil_to(rows, WARPS * TILES * ROWS) / (WARPS * TILES * ROWS);
        let fits = self.registers_of_tiles() * TILES <= REGISTERS_OF_TILES;
        let is_worth = rows > ROWS && blocks >= BLOCKS * i64::from(self.gpu.units);
        let tiles = if fits && is_worth { TILES } else { 1 };
        let count = (1..=WARPS).find(|&warps| warps == WARPS || rows <= warps * tiles * ROWS).unwrap_or(1);
        self.unit = Unit::Warps { count, tiles };
        Some(self)
    }

    /// It, and the same by warps of other numbers, for whoever times them.
    pub fn of_other_warps(self) -> Vec<Problem<'a>> {
        let Unit::Warps { count, tiles } = self.unit else { return vec![self] };
        let fits = self.registers_of_tiles() * TILES <= REGISTERS_OF_TILES;
        let units = [(count, tiles), (count, 1 + TILES - tiles), (count / 2, tiles), (2 * count, tiles)];
        let units = units.into_iter().filter(|&(count, tiles)| count > 0 && (tiles == 1 || fits));
        units.map(|(count, tiles)| Problem { unit: Unit::Warps { count, tiles }, ..self.clone() }).collect()
    }

    /// Rows of a block.
    pub fn rows(&self) -> i64 {
        match self.unit {
            Unit::Warps { count, tiles } => count * tiles * ROWS,
            Unit::Warpgroups(count) => count * i64::from(Gpu::WARPGROUP_ROWS),
        }
    }

    /// Warps that take rows.
    pub fn warps(&self) -> i64 {
        match self.unit {
            Unit::Warps { count, .. } => count,
            Unit::Warpgroups(count) => count * i64::from(Gpu::WARPGROUP / Gpu::LANES),
        }
    }

    /// Instructions below each other of a warp.
    pub fn tiles(&self) -> i64 {
        if let Unit::Warps { tiles, .. } = self.unit { tiles } else { 1 }
    }

    /// All nests.
    pub fn tasks(&self) -> impl Iterator<Item = &Task<'a>> {
        self.parts.iter().flatten()
    }

    /// A variable that is no size and no axis of a member.
    pub fn name(&self, name: &str) -> Sym {
        beside_axes(self.cx.loops, self.group, name)
    }

    /// Whether nests before or after the loop touch a buffer.
    pub fn is_kept(&self, buf: Buf) -> bool {
        let is_repeated = |s: &usize| self.parts[1].iter().any(|task| task.member.stmt == *s);
        !self.cx.deps.users[buf].iter().all(is_repeated)
    }

    /// Registers of a thread for what is passed on, and for the sums of the product that has most.
    fn registers(&self) -> i64 {
        let passed: i64 = passed_on(self.cx, self.group).into_iter().map(|buf| self.registers_of(buf)).sum();
        let sums = self.tasks().filter(|task| matches!(task.kind, Kind::Product { .. }));
        passed + sums.map(|task| task.kind.of_thread()).max().unwrap_or(0)
    }

    /// As [`Problem::registers`], where what one nest passes on takes the registers of what it has read, and sums those of what they are
    /// added to.
    pub fn registers_of_tiles(&self) -> i64 {
        let (kept, passed): (Vec<Buf>, Vec<Buf>) =
            passed_on(self.cx, self.group).into_iter().partition(|&buf| self.is_kept(buf));
        let kept: i64 = kept.into_iter().map(|buf| self.registers_of(buf)).sum();
        kept + passed.into_iter().map(|buf| self.registers_of(buf)).max().unwrap_or(0)
    }

    /// Registers of a thread for its elements of a buffer, at the rows of an instruction.
    fn registers_of(&self, buf: Buf) -> i64 {
        let mut stored =
            self.tasks().filter(|task| self.cx.deps.stmts[task.member.stmt].writes.contains(&buf));
        let bytes = self.cx.loops.bufs[buf].dtype.size() as i64;
        stored.next().map_or(0, |task| (task.kind.of_thread() * bytes + 3) / 4)
    }
}

impl Kind {
    /// Its columns.
    pub fn columns(&self) -> Option<Columns> {
        match self {
            Kind::Row => None,
            Kind::Reduction(columns) | Kind::Points(columns) | Kind::Product { columns, .. } => {
                Some(*columns)
            }
        }
    }

    /// Elements of its result that a thread has.
    fn of_thread(&self) -> i64 {
        match self {
            Kind::Row | Kind::Reduction(_) => 2,
            Kind::Points(columns) | Kind::Product { columns, .. } => columns.padded() / 2,
        }
    }
}

/// What a nest is. None where it is nothing of a row's.
fn task<'a>(cx: &'a Cx<'a>, gpu: &Gpu, member: &'a Member) -> Option<Task<'a>> {
    let own = nest(cx.loops, member.stmt);
    if own.body.iter().any(|inst| matches!(inst.op, InstOp::Scan { .. })) {
        return None;
    }
    let is_long = |axis: &&Axis| !axis.extent.is_one();
    let mut along = own_axes(own, member).filter(is_long);
    let mut reduced = own.reduced.iter().filter(is_long);
    // Tiles have points.
    let count = |axis: &Axis| axis.extent.as_int().filter(|&count| count > 0);
    let columns = |axis: &Axis| Some(Columns { axis: *axis, count: count(axis)?, is_paired: false });
    let found = [along.next(), along.next(), reduced.next(), reduced.next()];
    let kind = match found {
        [None, None, None, None] => Kind::Row,
        [None, None, Some(axis), None] => Kind::Reduction(columns(axis)?),
        [Some(axis), None, None, None] => Kind::Points(columns(axis)?),
        [Some(axis), None, Some(depth), None] => {
            let (operands, by) = product(cx, gpu, own, *axis)?;
            count(depth)?;
            Kind::Product { columns: columns(axis)?, depth: *depth, operands, by }
        }
        _ => return None,
    };
    Some(Task { member, nest: own, kind })
}

/// The operands of a product with these columns, and the instruction of a warp that sums it.
fn product(cx: &Cx<'_>, gpu: &Gpu, own: &Nest, column: Axis) -> Option<([usize; 2], &'static Instruction)> {
    let both = Contraction::of(cx.loops, own)?;
    let is_right = |found: &&Contraction| {
        found.is_plain && found.n.iter().any(|axis| axis.var == column.var) && !found.m.is_empty()
    };
    let Contraction { lhs, rhs, .. } = *both.iter().find(is_right)?;
    let dtype = |at: usize| own.body[at].op.element().map(|(buf, _)| cx.loops.bufs[buf].dtype);
    let sums = own.body.iter().filter(|inst| inst.op.is_reduction()).map(|inst| inst.ty.compute()).next();
    let dtype = dtype(lhs).filter(|_| dtype(lhs) == dtype(rhs))?;
    let suits = |by: &&Instruction| i64::from(by.rows) == ROWS && by.columns == 8;
    let by = gpu.of_warp(dtype, sums?, Rounds::Never).filter(suits).max_by_key(|by| by.depth)?;
    Some(([lhs, rhs], by))
}

/// The longest shared axis that all left operands have, and no right one: heads that share keys are such an axis as well as positions.
fn row_of(cx: &Cx<'_>, tasks: &[Vec<Task<'_>>; 3], values: &[(Sym, Expr)], axes: &[Axis]) -> Option<Axis> {
    let has = |task: &Task<'_>, at: usize, axis: Sym| {
        let mentions = |e: Expr| substitute(substitute(e, &task.member.bind), values).has_sym(axis);
        let InstOp::Load { index, guard, .. } = &task.nest.body[at].op else { return false };
        index.iter().any(|&e| mentions(e)) || guard.iter().any(|rel| mentions(rel.lhs) || mentions(rel.rhs))
    };
    let is_row = |axis: &Axis| {
        tasks.iter().flatten().all(|task| match task.kind {
            Kind::Product { operands: [left, right], .. } => {
                has(task, left, axis.var) && !has(task, right, axis.var)
            }
            Kind::Row | Kind::Reduction(_) | Kind::Points(_) => true,
        })
    };
    let counts = |axis: &Axis| {
        let bound = |bind: &(Sym, Expr)| substitute(bind.1, values).has_sym(axis.var);
        tasks.iter().flatten().all(|task| task.member.bind.iter().any(bound))
    };
    let found = axes.iter().copied().filter(|axis| is_row(axis) && counts(axis));
    found.rev().max_by_key(|axis| size(&cx.loops.facts, axis.extent))
}

/// Lets columns be taken in pairs, unless a product sums along them where its left operand is in registers: instructions leave sums where
/// they take operands. Nor are they where a right operand has them side by side: lanes load eight neighbours together.
fn pair_columns(cx: &Cx<'_>, tasks: &mut [Vec<Task<'_>>; 3]) {
    let mut fixed: BTreeSet<(Buf, usize)> = BTreeSet::new();
    let written: BTreeSet<Buf> =
        tasks.iter().flatten().flat_map(|task| cx.deps.stmts[task.member.stmt].writes.clone()).collect();
    let places = |axis: Sym, body: &[Inst]| -> Vec<(Buf, usize)> {
        let of = |inst: &Inst| {
            let (buf, index) = inst.op.element().filter(|element| written.contains(&element.0))?;
            Some((buf, index.iter().position(|at| at.has_sym(axis))?))
        };
        body.iter().filter_map(of).collect()
    };
    for task in tasks.iter().flatten() {
        if let Kind::Product { columns, depth, operands: [left, right], .. } = task.kind {
            fixed.extend(places(depth.var, &task.nest.body[left..=left]));
            if has_side_by_side(cx, columns.axis, &task.nest.body[right].op) {
                fixed.extend(places(columns.axis.var, &task.nest.body));
            }
        }
    }
    // What a nest passes on lies as what it has read.
    loop {
        let mut more = fixed.clone();
        for task in tasks.iter().flatten() {
            let Some(columns) = task.kind.columns() else { continue };
            let own = places(columns.axis.var, &task.nest.body);
            if own.iter().any(|place| fixed.contains(place)) {
                more.extend(own);
            }
        }
        if more == fixed {
            break;
        }
        fixed = more;
    }
    for task in tasks.iter_mut().flatten() {
        let Some(columns) = task.kind.columns() else { continue };
        let own = places(columns.axis.var, &task.nest.body);
        let is_paired = columns.count % 16 == 0 && own.iter().all(|place| !fixed.contains(place));
        match &mut task.kind {
            Kind::Reduction(columns) | Kind::Points(columns) | Kind::Product { columns, .. } => {
                columns.is_paired = is_paired;
            }
            Kind::Row => {}
        }
    }
}

/// Whether elements that lie side by side are loaded along an axis, of two bytes, which lanes transpose as they load them together.
fn has_side_by_side(cx: &Cx<'_>, axis: Axis, op: &InstOp) -> bool {
    let InstOp::Load { buf, index, .. } = op else { return false };
    let data = &cx.loops.bufs[*buf];
    let mut dims = index.iter().zip(&data.strides);
    data.dtype.size() == 2 && dims.any(|(at, stride)| stride.is_one() && at.has_sym(axis.var))
}

/// The next multiple.
pub fn ceil_to(count: i64, of: i64) -> i64 {
    (count + of - 1) / of * of
}
