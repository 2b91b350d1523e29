//! Plans pointwise kernels that read along one axis and store along another: blocks of 32 by 32 points, of short elements 64 by 64, of which each
//! buffer that is read across is copied to shared memory along its own rows first.
//!
//! Of 64 by 64 points a thread copies 4 bytes at once and stores two neighbours, where rows begin with such: it reads them of two rows of the copy. A
//! warp takes two lines of 16 pairs, so that it reads 16 rows, which the swizzle puts into different banks, and of each the two elements of a unit.
//!
//! ```text
//! parallel i_block in ceildiv(n, 32), j_block in ceildiv(m, 32) {
//!   shared x_tile = x swizzled 4
//!   thread t in 256 { unroll e in 4 { x_tile [d0 = 32*i_block + floordiv(t, 32) + 8*e, d1 = 32*j_block + mod(t, 32)] masked } }
//!   thread t in 256 { unroll e in 4 { turn [j = 32*j_block + floordiv(t, 32) + 8*e, i = 32*i_block + mod(t, 32)] masked } }
//! }
//! ```

use super::blocks::{Ends, divides, values_of};
use super::looped;
use super::stage::{Copying, LEAST_COPIED, Staged};
use super::turns::at_once;
use crate::context::Cx;
use crate::cost::{points, size};
use crate::draft::Planned;
use crate::group::Group;
use crate::join::own_axes;
use crate::nest;
use litz_analysis::access::{Stride, bound_places, stride, substitute};
use litz_ir::loops::{Axis, Buf, InstOp};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_ir::target::{Gpu, Level, Target};
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
    /// Neighbours that a thread stores at once.
    run: i64,
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
    let mut starts = vec![lane.extent];
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
                starts.extend(access.store.then(|| place.replace(lane.var, Expr::zero())));
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
            let copy = Staged::of(cx, (group, member), access.buf, index, [lane, axis]);
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
    let is_of = |run: i64| starts.iter().all(|at| facts.simplify(at.modulo(run)).is_zero());
    let run = Some(side / SIDE).filter(|&run| is_of(run)).unwrap_or(1);
    (fits(axis, side) && fits(lane, side)).then_some(Across { axis, staged, side, run })
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
    Across { axis, staged, side, run }: Across,
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
    let mut body = Vec::new();
    for copy in &staged {
        let unit = (cx.loops.bufs[copy.buf].dtype.size() as u32).max(LEAST_COPIED as u32);
        body.push(copy.local(cx, unit, false, [side, side]));
    }
    let facts = group.facts(&cx.loops.facts);
    let by = Copying { threads: THREADS, starts: [starts[1], starts[0]], points: [side, side] };
    for copy in &staged {
        let most = LEAST_COPIED / cx.loops.bufs[copy.buf].dtype.size() as i64;
        let vector = copy.vector(cx, &facts).map_or(1, |vector| vector.min(most).max(1));
        body.push(copy.copies(cx, name, vector, by));
    }
    // Threads that take the runs of a line, of which each may have several parts.
    let lanes = if run == 1 { side } else { i64::from(Gpu::LANES) / run };
    let (lines, parts) = (THREADS / lanes, side / (lanes * run));
    let [thread, turn, part, element] = ["t", "e", "part", "v"].map(name);
    let t = Expr::sym(thread);
    let slow = t.floordiv(lanes) + Expr::sym(turn) * lines;
    let mut fast = t.modulo(lanes) * run;
    if parts > 1 {
        fast = fast + Expr::sym(part) * (lanes * run);
    }
    if run > 1 {
        fast = fast + Expr::sym(element);
    }
    for (var, value) in [(axis.var, starts[0] + slow), (lane.var, starts[1] + fast)] {
        leaves.iter_mut().for_each(|tree| tree.replace(var, value));
    }
    let mut of_thread = super::registers(cx, group);
    match run {
        1 => of_thread.extend(leaves),
        _ => of_thread.push(looped(at_once(run), element, run, leaves)),
    }
    if parts > 1 {
        of_thread = vec![looped(LoopKind::Unroll, part, parts, of_thread)];
    }
    let turns = vec![looped(LoopKind::Unroll, turn, side / lines, of_thread)];
    body.push(looped(LoopKind::Level(Level::Thread.into()), thread, THREADS, turns));
    let kernel = KernelPlan::new(grid, 1, body);
    Planned { is_whole: true, ..Planned::from(kernel) }
}
