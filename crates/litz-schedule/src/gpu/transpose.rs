//! Plans pointwise kernels that read along one axis and store along another: blocks of 32 by 32 points, of short elements 64 by 64, of which each
//! buffer that is read across is copied to shared memory along its own rows first.
//!
//! ```text
//! parallel i_block in ceildiv(n, 32), j_block in ceildiv(m, 32) {
//!   shared x_tile = x swizzled 4
//!   thread t in 256 { unroll e in 4 { x_tile [d0 = 32*i_block + floordiv(t, 32) + 8*e, d1 = 32*j_block + mod(t, 32)] masked } }
//!   thread t in 256 { unroll e in 4 { turn [j = 32*j_block + floordiv(t, 32) + 8*e, i = 32*i_block + mod(t, 32)] masked } }
//! }
//! ```

use super::blocks::{Ends, divides, values_of};
use super::stage::Staged;
use crate::context::Cx;
use crate::cost::{points, size};
use crate::draft::Planned;
use crate::group::Group;
use crate::join::own_axes;
use crate::nest;
use litz_analysis::access::{Stride, bound_places, stride, substitute};
use litz_ir::loops::{Axis, Buf, InstOp};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_ir::target::{Level, Target};
use litz_sym::{Expr, Sym};

/// Points of a block along each axis: a warp's, and of elements of 16 bits twice as many, so that a row of a tile is a line of 128 bytes.
const SIDE: i64 = 32;
const WIDE_SIDE: i64 = 64;

/// Blocks that each unit has for tiles to be wide.
const WIDE_BLOCKS: i64 = 4;

/// Threads of a block.
const THREADS: i64 = 256;

/// What is read across.
pub struct Across {
    /// The axis that it lies along.
    axis: Axis,
    /// The copies.
    staged: Vec<Staged>,
    /// Points of a block along each axis.
    side: i64,
}

/// What members of a group read along another of the `grid`'s axes than the last one, if there is such an axis, and all of it can be copied to
/// shared memory. `body` runs at each point; `values` are the group's axes in terms of the grid's.
pub fn across(
    cx: &Cx<'_>,
    group: &Group,
    (grid, body): (&[Axis], &[Tree]),
    values: &[(Sym, Expr)],
) -> Option<Across> {
    let (&lane, others) = grid.split_last()?;
    let facts = group.facts(&cx.loops.facts);
    // Where there are no points nothing is known of what a leaf copies.
    if grid.iter().any(|axis| axis.extent.is_zero()) {
        return None;
    }
    let is_long = |axis: Axis| size(&cx.loops.facts, axis.extent) >= SIDE / 2;
    let (mut found, mut staged): (Option<Axis>, Vec<Staged>) = (None, Vec::new());
    let mut in_place: Vec<Buf> = Vec::new();
    for member in &group.members {
        let own = nest(cx.loops, member.stmt);
        if own.accumulates() || own_axes(own, member).next().is_some() {
            return None;
        }
        let facts = own.facts(&facts);
        for (access, place) in bound_places(cx.loops, own, &member.bind, &facts) {
            let place = facts.simplify(substitute(place, values));
            let is_across = |axis: &&Axis| stride(place, axis.var) == Stride::Unit;
            if matches!(stride(place, lane.var), Stride::Unit | Stride::Zero) {
                in_place.push(access.buf);
                continue;
            }
            let axis =
                others.iter().find(is_across).copied().filter(|axis| !access.store && is_long(*axis))?;
            if found.is_some_and(|found| found.var != axis.var) {
                return None;
            }
            found = Some(axis);
            let is_guarded =
                matches!(&own.body[access.at].op, InstOp::Load { guard, .. } if !guard.is_empty());
            let bound = |at: Expr| facts.simplify(substitute(substitute(at, &member.bind), values));
            let index = access.index.iter().map(|&at| bound(at)).collect();
            let copy = Staged::of(cx, access.buf, index, [lane, axis]);
            let copy = copy.filter(|copy| !is_guarded && copy.begins_at_zero(0) && copy.begins_at_zero(1))?;
            match staged.iter().find(|other| other.buf == copy.buf) {
                None => staged.push(copy),
                // A read of a buffer that has two copies could be of either.
                Some(other) if other.index != copy.index => return None,
                Some(_) => {}
            }
        }
    }
    // Where there is a copy of a buffer, all reads of it are of that.
    let is_both = staged.iter().any(|copy| in_place.contains(&copy.buf));
    let axis = found.filter(|_| is_long(lane) && !is_both)?;
    // A tile goes past the ends of both.
    let bound = values_of(body);
    let fits = |axis: Axis, side: i64| {
        divides(side, axis) || Ends::of(axis, grid, bound.iter().copied()) == Ends::LikeOthers
    };
    let is_wide = wants_wide(cx, grid, &staged) && [axis, lane].iter().all(|&axis| fits(axis, WIDE_SIDE));
    let side = if is_wide { WIDE_SIDE } else { SIDE };
    (fits(axis, side) && fits(lane, side)).then_some(Across { axis, staged, side })
}

/// Whether tiles are of short elements, and so many that there are enough of wide ones.
fn wants_wide(cx: &Cx<'_>, grid: &[Axis], staged: &[Staged]) -> bool {
    let Target::Gpu(gpu) = cx.target else { return false };
    let are_short = staged.iter().all(|copy| cx.loops.bufs[copy.buf].dtype.size() <= 2);
    are_short && points(&cx.loops.facts, grid) >= WIDE_SIDE * WIDE_SIDE * WIDE_BLOCKS * i64::from(gpu.units)
}

/// Plans the kernel: `leaves` run at each point of the `grid`.
pub fn plan(
    cx: &Cx<'_>,
    group: &Group,
    Across { axis, staged, side }: Across,
    (mut grid, mut leaves): (Vec<Axis>, Vec<Tree>),
    name: &dyn Fn(&str) -> Sym,
) -> Planned {
    let lane = grid.pop().unwrap_or(axis);
    grid.retain(|other| other.var != axis.var);
    let start = |axis: Axis, grid: &mut Vec<Axis>| {
        let block = name(&format!("{}_block", axis.var));
        grid.push(Axis { var: block, extent: axis.extent.ceildiv(side) });
        Expr::sym(block) * side
    };
    let starts = [start(axis, &mut grid), start(lane, &mut grid)];
    let [thread, turn] = ["t", "e"].map(name);
    let (t, e) = (Expr::sym(thread), Expr::sym(turn));
    let [slow, fast] = [t.floordiv(side) + e * (THREADS / side), t.modulo(side)];
    let of_threads = |body: Vec<Tree>| {
        let turns = Axis { var: turn, extent: Expr::int(side * side / THREADS) };
        let body = vec![Tree::Loop { kind: LoopKind::Unroll, axis: turns, body }];
        let axis = Axis { var: thread, extent: Expr::int(THREADS) };
        Tree::Loop { kind: LoopKind::Level(Level::Thread.into()), axis, body }
    };
    let mut body = Vec::new();
    for copy in &staged {
        let unit = (cx.loops.bufs[copy.buf].dtype.size() as u32).max(4);
        body.push(copy.local(cx, unit, false, [side, side]));
    }
    for copy in &staged {
        let places = [starts[1] + slow, starts[0] + fast];
        body.push(of_threads(vec![copy.leaf(cx, places, [side, side])]));
    }
    for (var, value) in [(axis.var, starts[0] + slow), (lane.var, starts[1] + fast)] {
        leaves.iter_mut().for_each(|tree| tree.replace(var, value));
    }
    let mut at_point = super::registers(cx, group);
    at_point.extend(leaves);
    body.push(of_threads(at_point));
    let kernel = KernelPlan::new(grid, 1, body);
    Planned { is_whole: true, ..Planned::from(kernel) }
}
