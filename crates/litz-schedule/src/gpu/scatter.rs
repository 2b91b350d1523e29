//! Plans kernels of scatters: nests of which several points may store to one element, so that these run in order.
//!
//! What they store to is divided into parts, one for each block of the grid, of which the threads take the columns: each walks all points in
//! order, and stores those that lie in its part. So every element gets what it gets in the order of the program, with the same bits however
//! many parts there are. Of the points of others the lanes of a warp find out 32 at a time that they are (the pass `search`); where
//! each column has a place of its own, each thread asks by itself.
//!
//! ```text
//! parallel p in 1188 {
//!   thread r0_run_in in 32 {
//!     for o in n {
//!       unroll q in 6 { vector v in 4 by 4 { add [i = o, j = 128*q + 4*r0_run_in + v] into p by 768*ceildiv(m, 1188) } }
//!     }
//!   }
//! }
//! ```
//!
//! Where threads of their own for all columns and batches are faster, [`super::threads`] has a plan without parts. Sums and extremes of integers
//! are the same in any order: each point is a thread's, and elements are combined with at once.

use super::blocks::spread;
use super::looped;
use super::runs::{Runs, by_runs};
use super::threads::Threads;
use super::turns::at_once;
use crate::axes::Merged;
use crate::context::Cx;
use crate::cost::{ceil_div, points, size};
use crate::cut::nested;
use crate::draft::{Draft, Family, Planned, Traits};
use crate::group::{Group, Member, beside_axes};
use crate::nest;
use crate::no_fuse::NoFuse;
use crate::scatter::{Axes, axes, is_scatter, only_store};
use litz_analysis::access::accesses;
use litz_analysis::parts::placing;
use litz_ir::ReduceOp;
use litz_ir::loops::{Axis, InstOp, Nest};
use litz_ir::schedule::{Block, KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Target};
use litz_sym::{Expr, Rel, Sym};

/// Cycles from the load of an element to the store of its sum, with nothing to do meanwhile: two accesses of memory of about 700 each.
const WAIT: i64 = 1500;

/// Instructions by which a warp finds out which of 32 points are in its part, where that is the same for all columns; and where it is not, so that each
/// lane has to ask of each.
const ASK: i64 = 20;
const ASK_ALONE: i64 = 32 * 12;

/// Instructions that a unit begins in a cycle.
const ISSUED: i64 = 4;

/// Warps of a unit that hide what each waits for, at least.
const BUSY: i64 = 8;

/// Runs of neighbours that a thread takes of a point, at most, so that fewer warps ask for it: what it loads of each, and of where that goes, is
/// under way at once, in 8 registers for a run of 16 bytes.
const MOST_RUNS: i64 = 8;

/// A scatter whose destination is divided into so many parts of so many elements.
#[derive(Debug)]
struct Scatter {
    parts: i64,
    width: Expr,
    /// Neighbouring columns that a thread takes at once, and how many such runs.
    run: i64,
    runs: i64,
}

/// The kernel of a scatter, unless points in order by threads of their own are all that there is to it.
pub fn form(cx: &Cx<'_>, s: usize) -> Option<Draft> {
    if !is_scatter(cx, s) {
        return None;
    }
    let at_load = cx.deps.stmts[s].at_load;
    if has_any_order(cx, nest(cx.loops, s)) {
        let (mut bind, mut outer) = (Vec::new(), Vec::new());
        for axis in &nest(cx.loops, s).axes {
            bind.push(cx.share(axis, &mut outer));
        }
        let group = Group { members: vec![Member { stmt: s, bind }], outer };
        return Some(Draft::new(group, at_load, Threads));
    }
    let group = Group::of(s);
    let family = parts(cx, &group)?;
    Some(Draft::new(group, at_load, family))
}

/// Whether the order of points does not show: their stores combine numbers that are exact, of sizes that memory combines by itself.
fn has_any_order(cx: &Cx<'_>, own: &Nest) -> bool {
    let Some(stored) = only_store(own) else { return false };
    let dtype = cx.loops.bufs[stored].dtype;
    let combines = |op: &InstOp| {
        matches!(op, InstOp::Store { combine: Some(ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min), .. })
    };
    let is_read = accesses(own).any(|access| !access.store && access.buf == stored);
    dtype.is_int() && dtype.size() >= 4 && !is_read && own.body.iter().any(|inst| combines(&inst.op))
}

/// The parts of what a scatter stores to, where it pays that there are some.
///
/// A warp asks for 32 points at a time whether they are in its part, and waits for those that are. With more parts all warps together ask
/// more often, and each waits for fewer points: both take the same time where the square of the number of parts is that of `even`.
fn parts(cx: &Cx<'_>, group: &Group) -> Option<Scatter> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let facts = &cx.loops.facts;
    let (own, axes) = axes_of(cx, group);
    let is_alone = chooses_by_column(own, &axes);
    let (run, ask) = if is_alone { (1, ASK_ALONE) } else { (run_of(cx, own, &axes), ASK) };
    let count = |axes: &[Merged]| points(facts, &axes.iter().map(|merged| merged.axis).collect::<Vec<_>>());
    let (batches, columns, walked) = (count(&axes.batches), count(&axes.rows), count(&axes.in_order));
    let (units, lanes) = (i64::from(gpu.units), i64::from(Gpu::LANES));
    let span = cx.loops.bufs[only_store(own)?].span();
    let positions = span.ceildiv(axes.step);
    let most = size(facts, positions).min(walked.saturating_mul(batches));
    let parts_of = |warps: i64| {
        let even = (units * ISSUED * lanes * WAIT / (ask * warps)).isqrt();
        // Blocks for all units alike, where there are that many.
        let even = if even > units { ceil_div(even, units) * units } else { even };
        even.min(most).max(1)
    };
    let warps_of = |runs: i64| ceil_div(columns, run * runs * lanes);
    let is_busy = |runs: i64| {
        let warps = warps_of(runs);
        batches.saturating_mul(parts_of(warps) * warps) >= units * BUSY
    };
    let runs = if is_alone { 1 } else { runs_of(&axes, run, &is_busy) };
    let warps = warps_of(runs);
    let parts = parts_of(warps);
    let by_parts = batches.saturating_mul(WAIT / parts + parts * warps * ask / (units * ISSUED * lanes));
    let by_threads = WAIT * ceil_div(batches * columns, units * i64::from(gpu.unit.threads));
    if by_parts >= by_threads {
        return None;
    }
    let width = facts.simplify(axes.step * positions.ceildiv(parts).max(1));
    // Rounded up, the last parts may have nothing.
    let parts = facts.simplify(span.ceildiv(width)).as_int().unwrap_or(parts);
    (parts >= 2 && facts.holds(&Rel::le(span, width * parts))).then_some(Scatter { parts, width, run, runs })
}

/// Whether the columns of one point may be stored to different places.
fn chooses_by_column(own: &Nest, axes: &Axes) -> bool {
    let columns: Vec<Sym> = axes.rows.iter().flat_map(|merged| &merged.parts).map(|part| part.0).collect();
    let placing = own.body.iter().zip(placing(own)).filter(|inst| inst.1);
    let mut mentioned = placing.flat_map(|inst| inst.0.op.exprs());
    mentioned.any(|e| columns.iter().any(|&column| e.has_sym(column)))
}

/// How many neighbouring columns a thread takes at once: as many as are 16 bytes, but that the lanes of a warp have some each.
fn run_of(cx: &Cx<'_>, own: &Nest, axes: &Axes) -> i64 {
    let Some(last) = axes.rows.last() else { return 1 };
    let mut facts = own.facts(&cx.loops.facts);
    facts.declare_index(last.axis.var, last.axis.extent);
    let mut runs = Runs::along(last.axis);
    if runs.note(cx, own, (&axes.bind(), &[]), &facts).is_none() {
        return 1;
    }
    let columns = size(&cx.loops.facts, last.axis.extent);
    let halved = std::iter::successors(Some(runs.longest()), |count| Some(count / 2));
    let mut counts = halved.take_while(|&count| count > 1);
    counts.find(|&count| columns >= count * i64::from(Gpu::LANES) && runs.are_of(count, &facts)).unwrap_or(1)
}

/// How many runs of so many columns a thread takes: as many as leave the fewest warps with which units are busy, and of these the fewest.
fn runs_of(axes: &Axes, run: i64, is_busy: &dyn Fn(i64) -> bool) -> i64 {
    let Some(all) = axes.rows.last().and_then(|last| last.axis.extent.as_int()) else { return 1 };
    let all = all / run;
    let suits = |&runs: &i64| runs == 1 || all % runs == 0 && is_busy(runs);
    let warps = |runs: &i64| ceil_div(all / runs, i64::from(Gpu::LANES));
    (1..=MOST_RUNS).filter(suits).min_by_key(warps).unwrap_or(1)
}

/// The nest of a group that is one, and its axes.
fn axes_of<'a>(cx: &Cx<'a>, group: &Group) -> (&'a Nest, Axes) {
    let s = group.members[0].stmt;
    let own = nest(cx.loops, s);
    (own, axes(cx.loops, own, &cx.deps.stmts[s].ordered, &|name| beside_axes(cx.loops, group, name)))
}

impl Family for Scatter {
    fn traits(&self) -> Traits {
        // What it stores to is in memory for others; parts are counted by the grid.
        Traits { passes_on: false, shares_launch: false, overwrites: true }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Scatter)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let name = |name: &str| beside_axes(cx.loops, group, name);
        let (own, axes) = axes_of(cx, group);
        let bind = axes.bind();
        let Axes { batches, in_order, rows, .. } = axes;
        let part = Axis { var: name("p"), extent: Expr::int(self.parts) };
        let block = Some(Block { number: Expr::sym(part.var), width: self.width });
        let leaf = Leaf { nest: own.name.clone(), part: Part::Whole, bind, masked: false, block, by: None };
        let walked: Vec<Axis> = batches.iter().chain(&in_order).map(|merged| merged.axis).collect();
        let mut body = vec![Tree::Leaf(leaf)];
        let mut rows: Vec<Axis> = rows.iter().map(|merged| merged.axis).collect();
        let mut lanes: Vec<Axis> = rows.pop().into_iter().collect();
        if self.run > 1 {
            lanes = lanes
                .into_iter()
                .map(|lane| by_runs(lane, (at_once(self.run), self.run), &mut body, &name).0)
                .collect();
        }
        if self.runs > 1 {
            lanes = lanes.into_iter().map(|lane| apart(lane, self.runs, name("q"), &mut body)).collect();
        }
        body = nested(body, &walked);
        spread(cx, &mut lanes, &mut body, &name);
        let grid = [part].into_iter().chain(rows).chain(lanes).collect();
        let kernel = KernelPlan::new(grid, 1, body);
        Some(kernel.into())
    }
}

/// Makes a thread take so many points of an axis, each as far from the next as there are threads: puts such a loop around `body`, and gives the axis
/// of threads.
fn apart(axis: Axis, count: i64, turn: Sym, body: &mut Vec<Tree>) -> Axis {
    let threads = axis.extent.floordiv(count);
    body.iter_mut().for_each(|tree| tree.replace(axis.var, threads * Expr::sym(turn) + Expr::sym(axis.var)));
    *body = vec![looped(LoopKind::Unroll, turn, count, std::mem::take(body))];
    Axis { extent: threads, ..axis }
}
