//! Kernels of loops: pointwise nests, reductions and scans that share points.

mod plan;

use crate::context::Cx;
use crate::cost::parallel_points;
use crate::cpu::{cpu, pays};
use crate::draft::{Draft, Family, Planned, Recipe, Relation, Traits};
use crate::group::{Group, Member};
use crate::heuristics::ReorderAxes;
use crate::join::{self, bind_like, same_extents};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::{Stride, accesses, stride, substitute};
use litz_analysis::align::{By, DomainMap, Shared, align_domains};
use litz_ir::loops::{Axis, Nest};
use litz_sym::{Expr, Sym};

pub use plan::phase;

/// Loops.
#[derive(Debug)]
pub struct Loops;

impl Family for Loops {
    fn traits(&self) -> Traits {
        Traits { passes_on: true, shares_launch: true, overwrites: true }
    }

    fn take(&self, cx: &Cx<'_>, draft: &Draft, s: usize, relation: Relation) -> Result<Draft, NoFuse> {
        let group = &draft.group;
        if cx.contractions[s].is_some() {
            let is_overwriting = relation == Relation::Behind && join::overwrites(cx, group, s);
            return Err(if is_overwriting { NoFuse::OtherPoints } else { NoFuse::ProductConsumer });
        }
        let joined = match relation {
            Relation::Behind => pays::join_points(cx, group, s, false),
            Relation::Beside => beside(cx, group, s),
            Relation::Aligned => match beside(cx, group, s) {
                Err(why) if why.is_of_shape() => aligned(cx, group, s),
                verdict => verdict,
            },
        };
        joined.map(|joined| draft.with(joined))
    }

    fn is_dissolvable(&self) -> bool {
        true
    }

    fn recipe(&self) -> Option<Recipe<'_>> {
        Some(Recipe { columns: None, phases: &[] })
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan::plan(cx.loops, group, cpu(cx), cx.heuristics).into())
    }
}

/// The group with statement `s` beside its members, behind the last one that has the same points: no dependence.
fn beside(cx: &Cx<'_>, group: &Group, s: usize) -> Result<Group, NoFuse> {
    let n = nest(cx.loops, s);
    let is_alike = |m: &Member| {
        let other = nest(cx.loops, m.stmt);
        same_extents(&n.axes, &other.axes) && same_extents(&n.reduced, &other.reduced)
    };
    let last = group.members.len() - 1;
    let Some(at) = group.members.iter().rposition(is_alike) else {
        return Err(difference(nest(cx.loops, group.members[last].stmt), n));
    };
    let bind = bind_like(cx, &group.members[at], s);
    if bind.iter().any(|(a, _)| cx.is_ordered(s, *a)) {
        return Err(NoFuse::OtherShape);
    }
    let mut joined = group.clone();
    joined.members.insert(at + 1, Member { stmt: s, bind });
    // Those behind the other one may have taken points from both.
    if at < last && pays::is_less_parallel(cx, group, s, &joined, parallel_points(cx.loops, &joined)) {
        return Err(NoFuse::LessParallel);
    }
    Ok(joined)
}

/// The group with statement `s` beside its members, at the points where these read the same elements. The points that members
/// share stay as they are, and only a kernel whose members have loops of their own takes one that has.
fn aligned(cx: &Cx<'_>, group: &Group, s: usize) -> Result<Group, NoFuse> {
    let n = nest(cx.loops, s);
    let mut map = DomainMap::default();
    let facts = n.facts(&group.facts(&cx.loops.facts));
    let shared = Shared { loops: cx.loops, axes: &group.outer, facts: &facts };
    for member in &group.members {
        let reads = cx.deps.stmts[member.stmt].reads.iter();
        for &buf in reads.filter(|buf| cx.deps.stmts[s].reads.contains(buf)) {
            let other = nest(cx.loops, member.stmt);
            align_domains(shared, (other, &member.bind), (buf, By::Loads), n, &mut map);
        }
    }
    let differs = || difference(nest(cx.loops, group.members[group.members.len() - 1].stmt), n);
    let has_own = |member: &Member| nest(cx.loops, member.stmt).all_axes().any(|axis| member.is_own(axis));
    let is_row = group.members.iter().any(has_own);
    let joined = join::join(cx, group, s, map, false)?;
    let member = &joined.members[joined.members.len() - 1];
    let is_same = joined.outer.len() == group.outer.len() && !group.outer.is_empty();
    let along = |member: &Member| neighbours_along(cx, &joined, member);
    let keeps_neighbours = joined.members.iter().all(|other| along(other) == along(member));
    let is_wanted = keeps_neighbours || cx.heuristics.reorder_axes == ReorderAxes::Always;
    match is_same && is_wanted && (is_row || !has_own(member)) {
        true => Ok(joined),
        false => Err(differs()),
    }
}

/// The loop of a group along which a member stores neighbouring elements, if there is one.
fn neighbours_along(cx: &Cx<'_>, group: &Group, member: &Member) -> Option<Sym> {
    let own = nest(cx.loops, member.stmt);
    let stores = accesses(own).filter(|access| access.store);
    let places: Vec<Expr> =
        stores.map(|access| substitute(access.place(cx.loops, own), &member.bind)).collect();
    let is_unit = |axis: &&Axis| places.iter().all(|&place| stride(place, axis.var) == Stride::Unit);
    group.outer.iter().find(is_unit).map(|axis| axis.var)
}

/// How the points of nests differ that read the same buffer: by the first coordinate in which they do.
fn difference(one: &Nest, other: &Nest) -> NoFuse {
    let mut pairs = accesses(one).flat_map(|a| accesses(other).map(move |b| (a, b)));
    let Some((a, b)) = pairs.find(|(a, b)| a.buf == b.buf && !a.store && !b.store) else {
        return NoFuse::OtherShape;
    };
    let axes_in = |nest: &Nest, at: Expr| -> Vec<Axis> {
        nest.all_axes().filter(|axis| at.has_sym(axis.var)).copied().collect()
    };
    for (&at, &there) in a.index.iter().zip(b.index) {
        match (&*axes_in(one, at), &*axes_in(other, there)) {
            ([a], [b]) if a.extent != b.extent => return NoFuse::OtherSize,
            ([_], [_]) | ([], []) => {}
            ([_], [_, ..]) | ([_, ..], [_]) => return NoFuse::SplitAxis,
            _ => return NoFuse::OtherShape,
        }
    }
    match one.all_axes().count() == other.all_axes().count() {
        true => NoFuse::OrderOfAxes,
        false => NoFuse::Broadcast,
    }
}
