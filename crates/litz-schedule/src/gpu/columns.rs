//! Plans kernels that reduce columns side by side: lanes take neighbouring columns, the warps of a block rows in turn, and what warps have is
//! merged in memory that they share.
//!
//! Of short elements a lane takes several columns at once, `4*l + v` for `v` in 4 (`litz_analysis::columns`): single ones would be too few
//! bytes under way. Where there are columns for all threads, each thread takes one by itself, as [`super::threads`] says.
//!
//! ```text
//! parallel column_block in ceildiv(m, 32) {
//!   shared accumulator of sum
//!   thread t in 32 { sum.init [j = 32*column_block + t] masked }
//!   warp w in 16 {
//!     lane l in 32 {
//!       register accumulator of sum
//!       sum.init [j = 32*column_block + l] masked
//!       for r in ceildiv(n, 128) { unroll u in 8 { sum.update [j = 32*column_block + l, i = 128*r + 16*u + w] masked } }
//!       sum.merge [j = 32*column_block + l] masked
//!     }
//!   }
//!   thread t in 32 { sum.final [j = 32*column_block + t] masked }
//! }
//! ```

use super::blocks::Ends;
use super::rows::is_in_order;
use super::turns::Turns;
use crate::axes::Merged;
use crate::context::Cx;
use crate::cost::{points, size};
use crate::cut::nested;
use crate::draft::{Draft, Family, Planned, Relation, Traits};
use crate::group::{Group, Member, beside_axes, shared_axes};
use crate::join::{align_members, join, overwrites, own_axes};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{accesses, substitute};
use litz_analysis::align::DomainMap;
use litz_analysis::columns::{self, column_of};
use litz_ir::loops::Axis;
use litz_ir::schedule::{Holds, KernelPlan, Layout, Leaf, Local, LocalSpace, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Level, Target};
use litz_sym::{Expr, Sym};

/// Warps of a block, at most.
const WARPS: i64 = 16;

/// Rows of a warp, at least: fewer would not be worth a meeting.
const ROWS: i64 = 4;

/// Turns of a warp that are written out.
const TURNS: i64 = 8;

/// Blocks that each unit has where lanes take several columns.
const BLOCKS: i64 = 2;

/// Columns that are reduced, the first member, and what follows at each.
#[derive(Debug)]
pub struct Columns;

/// Whether warps share the rows of what a nest reduces: its columns lie in memory side by side, and are too few to give every thread one.
pub fn reduces_columns(cx: &Cx<'_>, s: usize, group: &Group) -> bool {
    let Target::Gpu(gpu) = cx.target else { return false };
    let own = nest(cx.loops, s);
    let columns = points(&cx.loops.facts, &group.outer);
    let rows = points(&cx.loops.facts, &own.reduced);
    let is_scarce = columns < i64::from(gpu.units) * i64::from(gpu.unit.threads) / 2;
    own.reduces()
        && !is_in_order(cx, s)
        && is_scarce
        && rows >= 2 * ROWS
        && column_of(cx.loops, own).is_some()
}

impl Family for Columns {
    fn traits(&self) -> Traits {
        Traits { passes_on: false, shares_launch: false, overwrites: false }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        let group = &draft.group;
        if relation != Relation::Behind || overwrites(cx, group, s) {
            return Err(NoFuse::OtherPoints);
        }
        let mut map = DomainMap::default();
        align_members(cx, group, s, &group.outer, &mut map);
        let joined = join(cx, group, s, map, false)?;
        let own = nest(cx.loops, s);
        let is_same = joined.outer.len() == group.outer.len();
        let has_own = joined.members.last().is_some_and(|member| own_axes(own, member).next().is_some());
        match is_same && !has_own && !own.accumulates() {
            true => Ok(draft.with(joined)),
            false => Err(NoFuse::OtherPoints),
        }
    }

    fn is_dissolvable(&self) -> bool {
        true
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let kernel = plan(cx, group)?;
        Some(Planned { is_whole: true, ..Planned::from(kernel) })
    }
}

/// Whether a block of so many columns has whole turns of all but the outermost of the axes that one stands for: sums that threads share are a box of these
/// axes, which is as large as all of them where the block ends within one.
fn has_whole_digits(merged: &Merged, width: i64) -> bool {
    merged.parts.iter().all(|(_, value)| {
        let divisor = value.as_floordiv().map(|(_, divisor)| divisor);
        divisor.is_none_or(|divisor| divisor.as_int().is_some_and(|divisor| width % divisor == 0))
    })
}

fn plan(cx: &Cx<'_>, group: &Group) -> Option<KernelPlan> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let (loops, facts) = (cx.loops, &cx.loops.facts);
    let name = |name: &str| beside_axes(loops, group, name);
    let (first, head) = (&group.members[0], nest(loops, group.members[0].stmt));
    let column = column_of(loops, head)?;
    let lanes = i64::from(Gpu::LANES);
    let most = points(facts, &group.outer) / (lanes * BLOCKS * i64::from(gpu.units));
    let at_once = columns::at_once(loops, head, column, most);
    let width = lanes * at_once;
    let of_axis = |i: usize| name(&format!("g{i}"));
    let mut shared = shared_axes(loops, group, &group.facts(facts), &of_axis);
    if !shared.iter().all(|merged| has_whole_digits(merged, width)) {
        shared = (0..).zip(&group.outer).map(|(i, axis)| Merged::alone(*axis, of_axis(i))).collect();
    }
    let values: Vec<(Sym, Expr)> = shared.iter().flat_map(|merged| merged.parts.clone()).collect();
    let value = first.bind.iter().find(|bind| bind.0 == column.var)?.1;
    let value = substitute(value, &values);
    let mut grid: Vec<Axis> =
        shared.iter().map(|merged| merged.axis).filter(|axis| !axis.extent.is_one()).collect();
    // The axis that ends with the columns.
    let at = grid.iter().rposition(|axis| value.has_sym(axis.var))?;
    let bound = group.members.iter().flat_map(|member| &member.bind);
    let ends = Ends::of(grid[at], &grid, bound.map(|bind| substitute(bind.1, &values)));
    let along = grid.remove(at);
    // Vectors are whole: the last lanes end with the columns.
    let ends = if at_once > 1 { Ends::WithAxis } else { ends };
    let [block, thread, element, warp, turn, together] = ["column_block", "t", "v", "w", "r", "u"].map(name);
    let is_cut = along.extent.as_int().is_none_or(|extent| extent > width);
    let block_of = |columns: i64| if is_cut { Expr::sym(block) * columns } else { Expr::zero() };
    let runs = Axis { var: along.var, extent: along.extent.floordiv(at_once) };
    let threads = ends.points(along, block_of(width), width);
    let lanes = ends.points(runs, block_of(lanes), lanes);
    let of_thread = block_of(width) + Expr::sym(thread);
    let of_lane = match at_once {
        1 => of_thread,
        _ => block_of(width) + Expr::sym(thread) * at_once + Expr::sym(element),
    };
    grid.extend(is_cut.then(|| Axis { var: block, extent: along.extent.ceildiv(width) }));
    // The rows that warps take in turn are those of the reduced axis with the largest steps.
    let mut reduced = head.reduced.clone();
    let places: Vec<Expr> =
        accesses(head).filter(|access| !access.store).map(|access| access.place(loops, head)).collect();
    crate::axes::order_axes(&mut reduced, &places, facts);
    let rows = *reduced.iter().max_by_key(|axis| size(facts, axis.extent))?;
    let others: Vec<Axis> = reduced.iter().filter(|axis| axis.var != rows.var).copied().collect();
    let warps = (size(facts, rows.extent) / ROWS).clamp(1, WARPS);
    let turns = rows.extent.ceildiv(warps);
    let turns = match others.is_empty() {
        true => Turns::of(cx, turns, TURNS, [turn, together]),
        // Loops that have loops inside do one of their turns at a time.
        false => Turns::one_by_one(Axis { var: turn, extent: turns }),
    };
    // Of 64 columns that are all of an axis, floordiv(t, 64) is 0 for each thread.
    let within = |at: Expr| {
        let mut facts = facts.clone();
        let of_thread = if at.has_sym(element) { at_once } else { 1 };
        facts.declare_index(thread, Expr::int(width / of_thread));
        facts.declare_index(element, Expr::int(at_once));
        facts
    };
    let leaf = |member: &Member, part: Part, at: Expr| {
        let own = nest(loops, member.stmt);
        let own_facts = own.facts(facts);
        let within = own.facts(&within(at));
        let mut bind: Vec<(Sym, Expr)> = member
            .bind
            .iter()
            .map(|&(axis, value)| (axis, own_facts.simplify(substitute(value, &values))))
            .map(|(axis, value)| (axis, value.replace(along.var, at)))
            .map(|(axis, value)| (axis, if value.is_polynomial() { value } else { within.simplify(value) }))
            .collect();
        if part == Part::Update {
            bind.push((rows.var, turns.number * warps + Expr::sym(warp)));
            bind.extend(others.iter().map(|axis| (axis.var, Expr::sym(name(&format!("{}_in", axis.var))))));
        }
        Tree::Leaf(Leaf { nest: own.name.clone(), part, bind, masked: false, block: None, by: None })
    };
    let level = |level: Level, var: Sym, extent: Expr, body: Vec<Tree>| Tree::Loop {
        kind: LoopKind::Level(level.into()),
        axis: Axis { var, extent },
        body,
    };
    // What a lane does at each of its columns.
    let at_columns = |part: Part| {
        let body = vec![leaf(first, part, of_lane)];
        match at_once {
            1 => body,
            _ => vec![super::looped(super::turns::at_once(at_once), element, at_once, body)],
        }
    };
    let sums = |space| {
        let holds = Holds::Accumulator(head.name.clone());
        Tree::Local(Local { holds, space, layout: Layout::Dense })
    };
    let inner: Vec<Axis> = others
        .iter()
        .map(|axis| Axis { var: name(&format!("{}_in", axis.var)), extent: axis.extent })
        .collect();
    let mut lane = vec![sums(LocalSpace::Register)];
    lane.extend(at_columns(Part::Init));
    lane.extend(turns.around(nested(at_columns(Part::Update), &inner)));
    lane.extend(at_columns(Part::Merge));
    let mut last = vec![leaf(first, Part::Final, of_thread)];
    last.extend(group.members[1..].iter().map(|member| leaf(member, Part::Whole, of_thread)));
    let mut body = vec![sums(LocalSpace::Shared)];
    body.extend(super::registers(cx, group));
    body.push(level(Level::Thread, thread, threads, vec![leaf(first, Part::Init, of_thread)]));
    body.push(level(Level::Warp, warp, Expr::int(warps), vec![level(Level::Lane, thread, lanes, lane)]));
    body.push(level(Level::Thread, thread, threads, last));
    Some(KernelPlan::new(grid, 1, body))
}
