//! Plans kernels of sums over windows that overlap, such as depthwise convolutions channels-last: a thread has some neighbours in memory and some along
//! the axis along which windows overlap. Of each row of its windows it loads every element once, and two of a half type at once.
//!
//! ```text
//! parallel i in 16, k in 14, l_run in 2 {
//!   thread j_run in 192 {
//!     register accumulator of conv
//!     unroll near in 7, v in 2 { conv.init [..] }
//!     unroll r1 in 7 {
//!       register x_row = x
//!       register w_row = w
//!       unroll q in 13 { vector v in 2 by 2 { x_row [.., d1 = 2*j_run + v, d2 = k + r1, d3 = 7*l_run + q] } }
//!       unroll q in 7 { vector v in 2 by 2 { w_row [.., d1 = r1, d2 = q, d3 = 2*j_run + v] } }
//!       unroll near in 7, r2 in 7, v in 2 { conv.update [..] }
//!     }
//!     unroll near in 7 { vector v in 2 by 2 { conv.final [..]; bias [..] } }
//!   }
//! }
//! ```
//!
//! With seven neighbours of two channels a thread has 686 multiply-adds for 140 loads, where one of two neighbours of one channel has 98 for 105.

use super::blocks::spread;
use super::runs::Runs;
use super::stage::name_beside;
use super::{looped, registers};
use crate::context::Cx;
use crate::cost::points;
use crate::draft::Planned;
use crate::group::{Group, Member};
use crate::nest;
use litz_analysis::access::substitute;
use litz_ir::loops::{Axis, Buf, InstOp, Nest};
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, LoadOf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::Target;
use litz_sym::{Expr, Sym};

/// Neighbours along the axis along which windows overlap, those that are best first.
const NEAR: [i64; 4] = [8, 7, 4, 2];

/// Multiply-adds that a thread's windows are written out to, at most.
const MOST_TERMS: i64 = 1024;

/// Threads of a unit that it takes to have as much under way as memory answers.
const ENOUGH_THREADS: i64 = 256;

/// Bytes that a thread loads at once, and elements, at least.
const BYTES: i64 = 4;
const LEAST_LANES: i64 = 2;

/// The kernel of a group that sums over windows, whose points are those of the grid. None of others, and where elements are guarded: these
/// nobody loads ahead.
pub fn plan(
    cx: &Cx<'_>,
    group: &Group,
    grid: &[Axis],
    values: &[(Sym, Expr)],
    name: &dyn Fn(&str) -> Sym,
) -> Option<Planned> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let (first, others) = group.members.split_first()?;
    let own = nest(cx.loops, first.stmt);
    let is_pointwise = |member: &Member| {
        let own = nest(cx.loops, member.stmt);
        !own.accumulates() && own.axes.iter().all(|axis| !member.is_own(axis))
    };
    if !own.reduces() || own.scanned().next().is_some() || !others.iter().all(is_pointwise) {
        return None;
    }
    let reduced: Vec<Axis> = own.reduced.iter().copied().filter(|axis| !axis.extent.is_one()).collect();
    let (row, outer) = reduced.split_last()?;
    let terms = own.reduced.iter().map(|axis| axis.extent.as_int()).product::<Option<i64>>()?;
    let (lane, _) = grid.split_last()?;
    let loads = loads(cx, group, own, (first, values))?;
    // The axis that goes along one dimension with the rows of windows.
    let is_along = |axis: &&Axis| {
        let has_both = |at: &Expr| at.has_sym(axis.var) && at.has_sym(row.var);
        axis.var != lane.var && loads.iter().any(|load| load.index.iter().any(has_both))
    };
    let along = grid.iter().position(|axis| is_along(&axis))?;
    let lanes = lanes(cx, group, *lane, values, &loads)?;
    let all = points(&cx.loops.facts, &group.outer);
    let suits = |near: &i64| {
        grid[along].extent.as_int().is_some_and(|extent| extent % near == 0)
            && near * lanes * terms <= MOST_TERMS
            && all / (near * lanes) >= i64::from(gpu.units) * ENOUGH_THREADS
    };
    let near = NEAR.into_iter().find(suits)?;
    let windows = Windows {
        cx,
        group,
        values,
        lane: (*lane, lanes, name("v")),
        along: (grid[along], near, name("near")),
        row: *row,
        inside: name("q"),
    };
    let mut copies = Vec::new();
    let mut loops = Vec::new();
    for load in &loads {
        let (copy, made) = windows.row_of(load)?;
        copies.push(copy);
        loops.push(made);
    }
    let mut of_row = copies;
    of_row.extend(loops);
    of_row.push(
        windows.at_points(vec![(row.var, row.extent.as_int()?)], vec![windows.leaf(first, Part::Update)]),
    );
    let of_row = outer.iter().rev().try_fold(of_row, |body, axis| {
        Some(vec![looped(LoopKind::Unroll, axis.var, axis.extent.as_int()?, body)])
    })?;
    let sums = Holds::Accumulator(own.name.clone());
    let mut body =
        vec![Tree::Local(Local { holds: sums, space: LocalSpace::Register, layout: Layout::Dense })];
    body.push(windows.at_points(Vec::new(), vec![windows.leaf(first, Part::Init)]));
    body.extend(of_row);
    let mut last = registers(cx, group);
    last.push(windows.leaf(first, Part::Final));
    last.extend(others.iter().map(|member| windows.leaf(member, Part::Whole)));
    let (_, near, of_near) = windows.along;
    body.push(looped(LoopKind::Unroll, of_near, near, vec![windows.beside(last)]));
    let mut grid = grid.to_vec();
    for (at, (axis, count, inside)) in [(along, windows.along), (grid.len() - 1, windows.lane)] {
        let run = name(&format!("{}_run", axis.var));
        let value = Expr::sym(run) * count + Expr::sym(inside);
        body.iter_mut().for_each(|tree| tree.replace(axis.var, value));
        grid[at] = Axis { var: run, extent: axis.extent.floordiv(count) };
    }
    spread(cx, &mut grid, &mut body, name);
    Some(Planned { is_whole: true, ..Planned::from(KernelPlan::new(grid, 1, body)) })
}

/// A load of what is summed.
struct Load {
    buf: Buf,
    /// Where it is among the instructions.
    at: usize,
    /// The element, in terms of the axes of the grid and of the sum.
    index: Vec<Expr>,
}

/// The loads of a nest that go along its sum. None where one is guarded, or of what the kernel stores, or two are of one buffer.
fn loads(
    cx: &Cx<'_>,
    group: &Group,
    own: &Nest,
    (member, values): (&Member, &[(Sym, Expr)]),
) -> Option<Vec<Load>> {
    let facts = own.facts(&group.facts(&cx.loops.facts));
    let here = |at: Expr| facts.simplify(substitute(substitute(at, &member.bind), values));
    let mut found: Vec<Load> = Vec::new();
    for (at, inst) in own.body.iter().enumerate() {
        let InstOp::Load { buf, index, guard, .. } = &inst.op else { continue };
        if !own.reduced.iter().any(|axis| index.iter().any(|at| at.has_sym(axis.var))) {
            continue;
        }
        let is_stored = group.members.iter().any(|member| cx.deps.stmts[member.stmt].writes.contains(buf));
        if !guard.is_empty() || is_stored || found.iter().any(|load| load.buf == *buf) {
            return None;
        }
        found.push(Load { buf: *buf, at, index: index.iter().map(|&at| here(at)).collect() });
    }
    // Axes of one term are no loops.
    let ones: Vec<(Sym, Expr)> =
        own.reduced.iter().filter(|axis| axis.extent.is_one()).map(|axis| (axis.var, Expr::zero())).collect();
    found.iter_mut().for_each(|load| load.index.iter_mut().for_each(|at| *at = substitute(*at, &ones)));
    Some(found)
}

/// How many neighbours along the last axis a thread takes: all members have runs of so many, whose stores begin with one.
fn lanes(cx: &Cx<'_>, group: &Group, lane: Axis, values: &[(Sym, Expr)], loads: &[Load]) -> Option<i64> {
    let mut facts = group.facts(&cx.loops.facts);
    facts.declare_index(lane.var, lane.extent);
    let mut runs = Runs::along(lane);
    for member in &group.members {
        let own = nest(cx.loops, member.stmt);
        runs.note(cx, own, (&member.bind, values), &own.facts(&facts))?;
    }
    let widest = loads.iter().map(|load| cx.loops.bufs[load.buf].dtype.size() as i64).max()?;
    let lanes = (BYTES / widest).max(LEAST_LANES);
    runs.are_of(lanes, &facts).then_some(lanes)
}

/// What a thread has of windows.
struct Windows<'a> {
    cx: &'a Cx<'a>,
    group: &'a Group,
    values: &'a [(Sym, Expr)],
    /// The axis of neighbours in memory, how many a thread has, and the variable that counts them.
    lane: (Axis, i64, Sym),
    /// The axis along which windows overlap, likewise.
    along: (Axis, i64, Sym),
    /// The axis of the sum that goes along rows of windows.
    row: Axis,
    /// The variable that counts the elements of a row that are loaded.
    inside: Sym,
}

impl Windows<'_> {
    /// A leaf of a member, at a point of the grid.
    fn leaf(&self, member: &Member, part: Part) -> Tree {
        let own = nest(self.cx.loops, member.stmt);
        let facts = own.facts(&self.group.facts(&self.cx.loops.facts));
        let value = |&(axis, value): &(Sym, Expr)| (axis, facts.simplify(substitute(value, self.values)));
        let mut bind: Vec<(Sym, Expr)> = member.bind.iter().map(value).collect();
        if part == Part::Update {
            let term = |axis: &Axis| if axis.extent.is_one() { Expr::zero() } else { Expr::sym(axis.var) };
            bind.extend(own.reduced.iter().map(|axis| (axis.var, term(axis))));
        }
        Tree::Leaf(Leaf { nest: own.name.clone(), part, bind, masked: false, block: None, by: None })
    }

    /// Loops over all points of a thread, and these inside, around neighbours in memory.
    fn at_points(&self, inside: Vec<(Sym, i64)>, body: Vec<Tree>) -> Tree {
        let ((_, near, of_near), (_, lanes, v)) = (self.along, self.lane);
        let loops = [vec![(of_near, near)], inside, vec![(v, lanes)]].concat();
        let around = |body, &(var, extent): &(Sym, i64)| vec![looped(LoopKind::Unroll, var, extent, body)];
        loops.iter().rev().fold(body, around).remove(0)
    }

    /// A loop over neighbours in memory at once.
    fn beside(&self, body: Vec<Tree>) -> Tree {
        let (_, lanes, v) = self.lane;
        looped(LoopKind::Vector { lanes: lanes as u32, copies: 1 }, v, lanes, body)
    }

    /// Memory for what a load reads in a row of all windows of a thread, and the loop that fills it. None where several dimensions go along the row, or
    /// much of it is between windows.
    fn row_of(&self, load: &Load) -> Option<(Tree, Tree)> {
        let (along, near, of_near) = self.along;
        let (row, of) = (self.row, &self.cx.loops.bufs[load.buf].name);
        // What the windows of a thread have of the axis begins with the first of them.
        let index = &load.index;
        let moves = |at: &Expr| at.has_sym(along.var) || at.has_sym(row.var);
        let mut dims = (0..index.len()).filter(|&dim| moves(&index[dim]));
        let dim = dims.next().filter(|_| dims.next().is_none())?;
        let step =
            |of: Sym| index[dim].linear(of).and_then(|(step, _)| step.as_int()).filter(|&step| step >= 0);
        let (near_step, row_step) = (step(along.var)?, step(row.var)?);
        let extent = row.extent.as_int()?;
        let count = near_step * (near - 1) + row_step * (extent - 1) + 1;
        if count > near * extent {
            return None;
        }
        let first = index[dim].replace(row.var, Expr::zero()) - Expr::sym(of_near) * near_step;
        let name = name_beside(self.cx.loops, &format!("{of}_row"));
        // What else reads the buffer finds it in memory.
        let own = nest(self.cx.loops, self.group.members[0].stmt);
        let reader = Some(LoadOf { nest: own.name.clone(), at: load.at as u32 });
        let holds = Holds::Copy { name: name.clone(), of: of.clone(), reader };
        let memory = Tree::Local(Local { holds, space: LocalSpace::Register, layout: Layout::Dense });
        let place = |(at, &value): (usize, &Expr)| {
            (Sym::new(&format!("d{at}")), if at == dim { first + Expr::sym(self.inside) } else { value })
        };
        let bind = index.iter().enumerate().map(place).collect();
        let leaf = Leaf { nest: name, part: Part::Whole, bind, masked: false, block: None, by: None };
        let (lane, ..) = self.lane;
        let is_beside = index.iter().any(|at| at.has_sym(lane.var));
        let body = vec![Tree::Leaf(leaf)];
        let body = if is_beside { vec![self.beside(body)] } else { body };
        Some((memory, looped(LoopKind::Unroll, self.inside, count, body)))
    }
}
