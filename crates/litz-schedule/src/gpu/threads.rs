//! Kernels in which each thread takes points of its own, one after another: what nests reduce and scan, a thread does by itself.
//!
//! Neighbouring threads take neighbouring elements: the axis along which memory is contiguous goes to the threads of a block, or to the
//! lanes of warps that take a row each where it is short. It is the plan of what no other family takes.

use super::blocks::{THREADS, spread};
use super::runs::{Runs, by_runs};
use super::turns::at_once;
use super::{is_light, rows, transpose, windows};
use crate::context::Cx;
use crate::draft::{Draft, Family, Planned, Relation, Traits};
use crate::group::{Group, Member, beside_axes, is_stored_along, shared_axes};
use crate::in_order::trees_of;
use crate::join::{align_members, join, own_axes};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{Stride, bound_places, stride, substitute};
use litz_analysis::align::DomainMap;
use litz_ir::loops::Axis;
use litz_ir::schedule::{KernelPlan, LoopKind, Part, Tree};
use litz_ir::target::{Gpu, Target};
use litz_sym::{Expr, Sym};

/// Instructions of nests that the terms of a sum are written out to, at most: those of a window of seven by seven points, whose loads are
/// under way together.
const WRITTEN_OUT: i64 = 512;

/// Neighbours that a thread takes where windows overlap, those that are best first.
const NEIGHBOURS: [i64; 3] = [4, 7, 2];
/// Instructions of nests that they are written out to, at most: four windows of seven by seven points, which share most of their loads.
const MOST_NEIGHBOURS: i64 = 3 * WRITTEN_OUT;

/// Elements of a vector from which they are short, and what members have in all, at most, that is little: instructions, and buffers that they read.
const SHORT_ELEMENTS: i64 = 8;
const FEW_INSTS: usize = 12;
const FEW_READ: usize = 2;

/// Points of a thread of its own.
#[derive(Debug)]
pub struct Threads;

impl Family for Threads {
    fn traits(&self) -> Traits {
        Traits { passes_on: true, shares_launch: true, overwrites: true }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        let group = &draft.group;
        if relation != Relation::Behind {
            return Err(NoFuse::OtherShape);
        }
        if cx.contractions[s].is_some() {
            return Err(NoFuse::ProductConsumer);
        }
        if rows::rows_of_runs(cx, s).is_some() {
            return Err(NoFuse::OtherPoints);
        }
        let mut map = DomainMap::default();
        align_members(cx, group, s, &group.outer, &mut map);
        let joined = join(cx, group, s, map, false)?;
        // Who shares fewer points than it has would leave threads idle.
        let is_same = joined.outer.len() == group.outer.len();
        let has_own = |member: &Member| own_axes(nest(cx.loops, member.stmt), member).next().is_some();
        match is_same && !joined.members.iter().any(has_own) {
            true => Ok(draft.with(joined)),
            false => rows::take(cx, draft, s),
        }
    }

    fn is_dissolvable(&self) -> bool {
        true
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        let name = |name: &str| beside_axes(cx.loops, group, name);
        let shared = shared_axes(cx.loops, group, &group.facts(&cx.loops.facts), &|i| name(&format!("g{i}")));
        let values: Vec<(Sym, Expr)> = shared.iter().flat_map(|merged| merged.parts.clone()).collect();
        let mut grid: Vec<Axis> = shared.iter().map(|merged| merged.axis).collect();
        grid.retain(|axis| !axis.extent.is_one());
        if let Some(windows) = windows::plan(cx, group, &grid, &values, &name) {
            return Some(windows);
        }
        let mut body: Vec<Tree> =
            group.members.iter().flat_map(|member| points(cx, group, member, &values)).collect();
        // Neighbours in what is stored are a warp's, which may be those of an axis that has longer steps in what is read.
        let along = grid.iter().rposition(|axis| is_stored_along(cx.loops, group, &values, axis.var));
        let mut turned = grid.clone();
        if let Some(along) = along {
            turned[along..].rotate_left(1);
        }
        if let Some(across) = transpose::across(cx, group, (&turned, &body), &values) {
            return Some(transpose::plan(cx, group, across, (turned, body), &name));
        }
        let vector = vector_of(cx, group, &grid, &values).zip(grid.last().copied());
        let mut element = None;
        if let Some((count, lane)) = vector {
            let (run, inside) = by_runs(lane, (at_once(count), count), &mut body, &name);
            grid.pop();
            grid.push(run);
            element = Some(inside);
        } else if let Some((at, count)) = overlapping(cx, group, &grid, &values) {
            grid[at] = by_runs(grid[at], (LoopKind::Unroll, count), &mut body, &name).0;
        }
        let scope = spread(cx, &mut grid, &mut body, &name);
        let scope = element.or(scope);
        let registers = vector.and_then(|(count, _)| registers(cx, group, count));
        let kernel = KernelPlan { registers, ..KernelPlan::new(grid, 1, body) };
        Some(Planned { scope, ..Planned::from(kernel) })
    }
}

/// Registers of a thread, at most, with which a unit runs all threads that it may, where members compute little of few vectors of so many short
/// elements: an assembler that has no limit takes more, to compute more of the elements side by side, while memory waits.
fn registers(cx: &Cx<'_>, group: &Group, count: i64) -> Option<u32> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let nests = group.stmts().into_iter().map(|s| nest(cx.loops, s));
    let insts = nests.clone().map(|own| own.body.len()).sum::<usize>();
    let read = group.members.iter().flat_map(|member| &cx.deps.stmts[member.stmt].reads).count();
    let is_little = count >= SHORT_ELEMENTS && insts <= FEW_INSTS && read <= FEW_READ;
    let are_light = nests.clone().all(is_light);
    (is_little && are_light).then(|| gpu.registers_for(gpu.unit.threads.into()))
}

/// How many neighbours along the last axis a thread takes at once, so that it stores 16 bytes of the widest type, or half of that or less: where all that
/// members access has runs of so many, stores begin with one, and there are more than enough runs for all threads that units run, if these wait for
/// what they load. What begins elsewhere is loaded element by element, several of which are under way.
fn vector_of(cx: &Cx<'_>, group: &Group, grid: &[Axis], values: &[(Sym, Expr)]) -> Option<i64> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let mut facts = group.facts(&cx.loops.facts);
    grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let mut runs = Runs::by_digits(*grid.last()?);
    for member in &group.members {
        let own = nest(cx.loops, member.stmt);
        let facts = own.facts(&facts);
        let is_pointwise = !own.accumulates() && own_axes(own, member).next().is_none();
        // Stores of neighbours may meet.
        let may_meet = member.bind.iter().any(|bind| cx.is_ordered(member.stmt, bind.0));
        if !is_pointwise || may_meet {
            return None;
        }
        runs.note(cx, own, (&member.bind, values), &facts)?;
    }
    let points = crate::cost::points(&cx.loops.facts, &group.outer);
    let all_threads = i64::from(gpu.units) * i64::from(gpu.unit.threads);
    // Who loads nothing waits for nothing.
    let loads = |member: &Member| !cx.deps.stmts[member.stmt].reads.is_empty();
    let enough = if group.members.iter().any(loads) { all_threads } else { Gpu::LANES.into() };
    let counts = std::iter::successors(Some(runs.longest()), |&count| Some(count / 2));
    let mut counts = counts
        .take_while(|&count| count > 1)
        .filter(|&count| points / count >= enough && runs.are_of(count, &facts));
    counts.nth(cx.heuristics.choice)
}

/// The number of an axis of the grid along which windows of a sum overlap, and how many neighbours a thread takes there, which read much of the
/// same: of seven by seven points for four neighbours 70 elements of an image instead of 196, and each of the filter once.
fn overlapping(cx: &Cx<'_>, group: &Group, grid: &[Axis], values: &[(Sym, Expr)]) -> Option<(usize, i64)> {
    let Target::Gpu(gpu) = cx.target else { return None };
    let (first, others) = group.members.split_first()?;
    let own = nest(cx.loops, first.stmt);
    let is_pointwise = |member: &Member| !nest(cx.loops, member.stmt).accumulates();
    if !own.reduces() || own.scanned().next().is_some() || !others.iter().all(is_pointwise) {
        return None;
    }
    let facts = own.facts(&group.facts(&cx.loops.facts));
    let terms = own.reduced.iter().map(|axis| axis.extent.as_int()).product::<Option<i64>>()?;
    let step = |place: Expr, axis: Sym| match stride(place, axis) {
        Stride::Unit => Some(1),
        Stride::Elements(step) => step.as_int(),
        Stride::Zero | Stride::Irregular => None,
    };
    let overlaps = |axis: &Axis| {
        bound_places(cx.loops, own, &first.bind, &facts).iter().any(|(access, place)| {
            let place = facts.simplify(substitute(*place, values));
            let reaches = |inner: &Axis| {
                let (Some(far), Some(near)) = (step(place, axis.var), step(place, inner.var)) else {
                    return false;
                };
                inner.extent.as_int().is_some_and(|extent| near > 0 && far < near * extent)
            };
            !access.store && own.reduced.iter().any(reaches)
        })
    };
    let points = crate::cost::points(&cx.loops.facts, &group.outer);
    let suits = |axis: &Axis, count: i64| {
        axis.extent.as_int().is_some_and(|extent| extent % count == 0)
            && terms * count * own.body.len() as i64 <= MOST_NEIGHBOURS
            && points / count >= i64::from(gpu.units) * 2 * THREADS
    };
    // The last one is that of neighbouring threads.
    let (_, outer) = grid.split_last()?;
    let at = (0..outer.len()).rev().find(|&at| overlaps(&outer[at]))?;
    NEIGHBOURS.into_iter().find(|&count| suits(&outer[at], count)).map(|count| (at, count))
}

/// What a thread does of a member at a point that all share: its own axes in order, reduced ones innermost, and short sums of them written out.
pub fn points(cx: &Cx<'_>, group: &Group, member: &Member, values: &[(Sym, Expr)]) -> Vec<Tree> {
    let first = group.members.iter().map(|member| member.stmt).min().unwrap_or(0);
    let own = nest(cx.loops, member.stmt);
    let facts = own.facts(&cx.loops.facts);
    let shared: Vec<(Sym, Expr)> =
        member.bind.iter().map(|(axis, value)| (*axis, facts.simplify(substitute(*value, values)))).collect();
    let mut trees = trees_of(cx.loops, own, member.stmt - first, &shared);
    trees.iter_mut().for_each(|tree| {
        write_out(tree, WRITTEN_OUT / (own.body.len() as i64).max(1));
    });
    trees
}

/// Writes out loops of at most so many iterations in all, innermost first; gives the iterations, if all of the tree's are written out.
fn write_out(tree: &mut Tree, most: i64) -> Option<i64> {
    match tree {
        Tree::Loop { kind: kind @ LoopKind::For, axis, body } => {
            let mut inside = body.iter_mut().map(|tree| write_out(tree, most));
            let inside = inside.try_fold(0, |all: i64, one| Some(all + one?))?;
            let all = axis.extent.as_int()?.checked_mul(inside).filter(|all| (1..=most).contains(all))?;
            *kind = LoopKind::Unroll;
            Some(all)
        }
        Tree::Leaf(leaf) => matches!(leaf.part, Part::Init | Part::Update).then_some(1),
        Tree::Loop { .. } | Tree::If { .. } | Tree::Local(_) => None,
    }
}
