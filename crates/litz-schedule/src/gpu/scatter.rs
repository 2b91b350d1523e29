//! Plans kernels of scatters: nests of which several points may store to one element, so that these run in order.
//!
//! What they store to is divided into parts, one for each block of the grid, of which the threads take the columns: each walks all points in
//! order, and stores those that lie in its part. So every element gets what it gets in the order of the program, with the same bits however
//! many parts there are. To walk past a point takes about a fiftieth of the time that a sum in global memory takes.
//!
//! ```text
//! parallel p in 32 {
//!   thread r0_in in 64 { for o in n { add [i = o, j = r0_in] into p by 64*ceildiv(m, 32) } }
//! }
//! ```
//!
//! Where there are columns or batches for all threads, [`super::threads`] has a plan without parts. Sums and extremes of integers are the same
//! in any order: each point is a thread's, and elements are combined with at once.

use super::threads::{Threads, spread};
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
use litz_ir::ReduceOp;
use litz_ir::loops::{Axis, InstOp, Nest};
use litz_ir::schedule::{Block, KernelPlan, Leaf, Part, Tree};
use litz_ir::target::{Gpu, Target};
use litz_sym::{Expr, Rel, Sym};

/// Warps of a unit that walk at the same time: two for each that issues, so that one goes on where the other waits.
const WARPS: i64 = 8;

/// Batches that a thread walks through, at most: with more each is walked by threads of its own.
const BATCHES: i64 = 16;

/// A scatter whose destination is divided into so many parts of so many elements.
#[derive(Debug)]
struct Scatter {
    parts: i64,
    width: Expr,
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
fn parts(cx: &Cx<'_>, group: &Group) -> Option<Scatter> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let facts = &cx.loops.facts;
    let (own, Axes { batches, in_order, rows, step }) = axes_of(cx, group);
    let count = |axes: &[Merged]| points(facts, &axes.iter().map(|merged| merged.axis).collect::<Vec<_>>());
    let (batches, columns) = (count(&batches), count(&rows));
    let warps = i64::from(gpu.units) * WARPS;
    let lanes = i64::from(Gpu::LANES);
    if batches > BATCHES || batches * columns * 2 >= warps * lanes {
        return None;
    }
    let span = cx.loops.bufs[only_store(own)?].span();
    let positions = span.ceildiv(step);
    let most = size(facts, positions).min(count(&in_order).saturating_mul(batches));
    let parts = (warps / ceil_div(columns, lanes)).min(most);
    let width = facts.simplify(step * positions.ceildiv(parts.max(1)).max(1));
    // Rounded up, the last parts may have nothing.
    let parts = facts.simplify(span.ceildiv(width)).as_int().unwrap_or(parts);
    (parts >= 2 && facts.holds(&Rel::le(span, width * parts))).then_some(Scatter { parts, width })
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
        let (own, Axes { batches, in_order, rows, .. }) = axes_of(cx, group);
        let bind: Vec<(Sym, Expr)> =
            batches.iter().chain(&in_order).chain(&rows).flat_map(|merged| merged.parts.clone()).collect();
        let part = Axis { var: name("p"), extent: Expr::int(self.parts) };
        let block = Some(Block { number: Expr::sym(part.var), width: self.width });
        let leaf = Leaf { nest: own.name.clone(), part: Part::Whole, bind, masked: false, block, by: None };
        let walked: Vec<Axis> = batches.iter().chain(&in_order).map(|merged| merged.axis).collect();
        let mut body = nested(vec![Tree::Leaf(leaf)], &walked);
        let mut grid: Vec<Axis> = [part].into_iter().chain(rows.iter().map(|merged| merged.axis)).collect();
        if grid.len() > 1 {
            let mut lanes = grid.split_off(grid.len() - 1);
            spread(cx, &mut lanes, &mut body, &name);
            grid.extend(lanes);
        }
        let kernel = KernelPlan::new(grid, 1, body);
        Some(kernel.into())
    }
}
