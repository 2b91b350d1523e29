//! Finds the points that all nests of a region share, which is a sequential loop over nests, and how far the loop goes.

use crate::axes::variable;
use crate::context::Cx;
use crate::group::{Group, Member};
use crate::join::align_members;
use crate::nest;
use litz_analysis::access::substitute;
use litz_analysis::align::DomainMap;
use litz_ir::loops::{Axis, Loops, Nest, Span};
use litz_sym::{Cmp, Expr, Rel, Sym};

/// The nests of a region.
pub struct Shared {
    /// The loop in order.
    pub over: Axis,
    /// All nests, and the points that they share.
    pub group: Group,
    /// Those that run once before the loop, those in it, and those once after it.
    pub parts: [Vec<Member>; 3],
}

impl Shared {
    /// Those of a region.
    pub fn of(cx: &Cx<'_>, region: &Span) -> Shared {
        let over = Axis { var: variable(cx.loops, region.over.var.name()), extent: region.over.extent };
        let is_repeated = |s: &usize| has_axis(nest(cx.loops, *s), region.over);
        let (repeated, once): (Vec<usize>, Vec<usize>) = region.stmts.clone().partition(is_repeated);
        // Nests of an iteration relate to each other; those that fill a buffer only relate to what reads it.
        let order: Vec<usize> = repeated.iter().chain(&once).copied().collect();
        let mut outer = Vec::new();
        for axis in
            own(nest(cx.loops, order[0]), region.over).filter(|axis| !cx.is_ordered(order[0], axis.var))
        {
            cx.share(axis, &mut outer);
        }
        let mut members = loop {
            match bind(cx, &order, outer.clone(), (region.over, over)) {
                Ok(members) => break members,
                Err(narrowed) => outer = narrowed,
            }
        };
        members.sort_by_key(|member| member.stmt);
        let at = |first: usize, last: usize| -> Vec<Member> {
            members.iter().filter(|member| (first..last).contains(&member.stmt)).cloned().collect()
        };
        let (start, end) = (repeated[0], repeated[repeated.len() - 1] + 1);
        let parts = [at(region.stmts.start, start), at(start, end), at(end, region.stmts.end)];
        Shared { over, group: Group { members, outer }, parts }
    }
}

/// How many iterations a block of rows takes: all, or those before the first one at which all of its rows are idle. `axes` are those of the
/// kernel, with those of rows in a block, which are named again; `at` puts them for the points that members share.
pub fn end(
    loops: &Loops,
    group: &Group,
    over: Axis,
    (axes, rows): (&[Axis], &[Sym]),
    at: &dyn Fn(Expr) -> Expr,
) -> Expr {
    let mut facts = loops.facts.clone();
    axes.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    // The smallest n from which on `idle` holds for all rows.
    let first = |member: &Member| {
        let Rel { cmp, lhs, rhs } = nest(loops, member.stmt).idle?;
        let slack = rhs - lhs - if cmp == Cmp::Lt { 1 } else { 0 };
        let (factor, rest) = at(substitute(slack, &member.bind)).linear(over.var)?;
        let factor = factor.as_int().filter(|&factor| factor > 0)?;
        let first = facts.largest((-rest).ceildiv(factor), rows);
        rows.iter().all(|&row| !first.has_sym(row)).then_some(first)
    };
    let is_repeated = |member: &&Member| member.bind.iter().any(|bind| bind.1 == Expr::sym(over.var));
    let mut ends = group.members.iter().filter(is_repeated).map(first);
    let Some(Some(end)) = ends.next() else { return over.extent };
    if !ends.all(|other| other == Some(end)) {
        return over.extent;
    }
    let known = |rel: Rel| facts.holds(&rel);
    let end = if known(Rel::le(0, end)) { end } else { end.max(Expr::zero()) };
    if known(Rel::le(end, over.extent)) { end } else { over.extent.min(end) }
}

fn has_axis(nest: &Nest, over: Axis) -> bool {
    nest.axes.iter().any(|a| a.var == over.var)
}

fn own(nest: &Nest, over: Axis) -> impl Iterator<Item = &Axis> {
    nest.axes.iter().filter(move |a| a.var != over.var)
}

/// Binds every nest to the shared axes `outer`, or says which of these all can share at most. `over` is the axis of the
/// region, and the loop that counts it.
fn bind(
    cx: &Cx<'_>,
    order: &[usize],
    outer: Vec<Axis>,
    over: (Axis, Axis),
) -> Result<Vec<Member>, Vec<Axis>> {
    let mut group = Group { members: Vec::new(), outer };
    let narrowed = |group: &Group, dropped: &[Sym]| {
        group.outer.iter().filter(|a| !dropped.contains(&a.var)).copied().collect()
    };
    for &s in order {
        let mut map = DomainMap::default();
        if group.members.is_empty() {
            let axes = own(nest(cx.loops, s), over.0).filter(|axis| !cx.is_ordered(s, axis.var));
            let mut fresh = Vec::new();
            let pairs = axes.map(|a| cx.share(a, &mut fresh)).collect::<Vec<_>>();
            map.bind = pairs.into_iter().filter(|p| group.outer.iter().any(|o| p.1.has_sym(o.var))).collect();
        }
        align_members(cx, &group, s, &group.outer, &mut map);
        let is_ordered = |shared: &Axis| {
            map.bind.iter().any(|(axis, value)| value.has_sym(shared.var) && cx.is_ordered(s, *axis))
        };
        let ordered: Vec<Sym> = group.outer.iter().filter(|a| is_ordered(a)).map(|a| a.var).collect();
        map.dropped.extend(ordered);
        let DomainMap { bind, dropped } = map.drop_unshared(&group.outer);
        if !dropped.is_empty() {
            return Err(narrowed(&group, &dropped));
        }
        group.members.push(Member { stmt: s, bind });
    }
    // What is carried is read before it is written: every nest must agree with those behind it, too.
    for (at, &s) in order.iter().enumerate() {
        let mut others = group.clone();
        let member = others.members.remove(at);
        let mut map = DomainMap { bind: member.bind, dropped: Vec::new() };
        align_members(cx, &others, s, &group.outer, &mut map);
        let DomainMap { dropped, .. } = map.drop_unshared(&group.outer);
        if !dropped.is_empty() {
            return Err(narrowed(&group, &dropped));
        }
    }
    for member in &mut group.members {
        if has_axis(nest(cx.loops, member.stmt), over.0) {
            member.bind.push((over.0.var, Expr::sym(over.1.var)));
        }
    }
    Ok(group.members)
}
