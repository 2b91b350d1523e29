//! Plans kernels of regions, which are sequential loops over nests: the axes that all nests share become the grid, by M tiles where
//! there are contractions, and a sequential loop runs the nests that the region repeats.

use crate::axes::variable;
use crate::context::Cx;
use crate::cpu::cpu;
use crate::cpu::rows::{RowGrid, product_phase, rows};
use crate::draft::{Draft, Family, Planned, Traits};
use crate::group::{Group, Member, Phase};
use crate::join::{align_members, own_axes};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::access::substitute;
use litz_analysis::align::DomainMap;
use litz_ir::loops::{Axis, Loops, Nest, Span};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_sym::{Cmp, Expr, Rel, Sym};

/// A region, in phases as those of rows.
#[derive(Debug)]
struct Region {
    /// The loop in order.
    over: Axis,
    /// Once, before it.
    before: Vec<Phase>,
    /// In it.
    repeated: Vec<Phase>,
    /// Once, after it.
    after: Vec<Phase>,
}

impl Family for Region {
    fn traits(&self) -> Traits {
        // Regions are long, and may read in their next iteration what they write in this one.
        Traits { passes_on: true, shares_launch: false, overwrites: false }
    }

    fn closed(&self) -> Option<NoFuse> {
        Some(NoFuse::Recurrence)
    }

    fn plan(&self, cx: &Cx<'_>, group: &Group) -> Option<Planned> {
        Some(plan(cx, group, self).into())
    }
}

/// The kernel of a region.
pub fn form(cx: &Cx<'_>, region: &Span) -> Draft {
    let over = Axis { var: variable(cx.loops, region.over.var.name()), extent: region.over.extent };
    let is_repeated = |s: &usize| has_axis(nest(cx.loops, *s), region.over);
    let (repeated, once): (Vec<usize>, Vec<usize>) = region.stmts.clone().partition(is_repeated);
    // Nests of an iteration relate to each other; those that fill a buffer only relate to what reads it.
    let order: Vec<usize> = repeated.iter().chain(&once).copied().collect();
    let mut outer = Vec::new();
    for axis in own(nest(cx.loops, order[0]), region.over).filter(|axis| !cx.is_ordered(order[0], axis.var)) {
        cx.share(axis, &mut outer);
    }
    let members = loop {
        match bind(cx, &order, outer.clone(), (region.over, over)) {
            Ok(members) => break members,
            Err(narrowed) => outer = narrowed,
        }
    };
    let at = |first: usize, last: usize| -> Vec<&Member> {
        let mut part: Vec<&Member> = members.iter().filter(|m| (first..last).contains(&m.stmt)).collect();
        part.sort_by_key(|m| m.stmt);
        part
    };
    let (start, end) = (repeated[0], repeated[repeated.len() - 1] + 1);
    let parts = [at(region.stmts.start, start), at(start, end), at(end, region.stmts.end)];
    let phases_of = |with_products| parts.each_ref().map(|part| phases(cx, part, &outer, with_products));
    let mut all = phases_of(true);
    if rows(&outer, &all.concat()).is_empty() {
        all = phases_of(false);
    }
    let [before, repeated, after] = all;
    let mut members = members;
    members.sort_by_key(|m| m.stmt);
    Draft::new(Group { members, outer }, false, Region { over, before, repeated, after })
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

/// The nests of a part as phases: products by themselves, others together.
fn phases(cx: &Cx<'_>, part: &[&Member], outer: &[Axis], with_products: bool) -> Vec<Phase> {
    let mut phases: Vec<Phase> = Vec::new();
    for &member in part {
        let n = nest(cx.loops, member.stmt);
        let product = cx.contractions[member.stmt].as_ref().filter(|_| with_products);
        let product = product.filter(|p| own_axes(n, member).any(|a| a.var == p.column.var));
        match (product, phases.last_mut()) {
            (Some(product), _) => phases.push(product_phase(cx, outer, member.clone(), product)),
            (None, Some(last)) if last.columns.is_none() => last.group.members.push(member.clone()),
            (None, _) => {
                let group = Group { members: vec![member.clone()], outer: outer.to_vec() };
                phases.push(Phase { group, columns: None });
            }
        }
    }
    phases
}

/// Plans the kernel.
fn plan(cx: &Cx<'_>, group: &Group, region: &Region) -> KernelPlan {
    let (&Cx { loops, heuristics, .. }, target) = (cx, cpu(cx));
    let Region { over, before, repeated, after } = region;
    let all = [&before[..], repeated, after].concat();
    let has_products = all.iter().any(|phase| phase.columns.is_some());
    let rows = if has_products { rows(&group.outer, &all) } else { Vec::new() };
    let blocks = RowGrid::new(loops, group, rows, target);
    let trees = |phases, around: &[Axis]| blocks.trees(loops, phases, around, target, heuristics);
    let mut body = trees(before, &[]);
    let over = Axis { extent: end(loops, group, *over, &blocks), ..*over };
    let iteration = trees(repeated, &[over]);
    body.push(Tree::Loop { kind: LoopKind::For, axis: over, body: iteration });
    body.extend(trees(after, &[]));
    blocks.kernel(loops, group, body, target, heuristics)
}

/// How many iterations a block of rows takes: all, or those before the first one at which all of its rows are idle.
fn end(loops: &Loops, group: &Group, over: Axis, blocks: &RowGrid) -> Expr {
    let mut facts = loops.facts.clone();
    blocks.axes().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let rows: Vec<Sym> = blocks.inside().map(|axis| axis.var).collect();
    // The smallest n from which on `idle` holds for all rows.
    let first = |member: &Member| {
        let Rel { cmp, lhs, rhs } = nest(loops, member.stmt).idle?;
        let slack = rhs - lhs - if cmp == Cmp::Lt { 1 } else { 0 };
        let (factor, rest) = blocks.at(substitute(slack, &member.bind)).linear(over.var)?;
        let factor = factor.as_int().filter(|&factor| factor > 0)?;
        let first = facts.largest((-rest).ceildiv(factor), &rows);
        rows.iter().all(|&row| !first.has_sym(row)).then_some(first)
    };
    let is_repeated = |member: &&Member| member.bind.iter().any(|bind| bind.1 == Expr::sym(over.var));
    let mut ends = group.members.iter().filter(is_repeated).map(first);
    let Some(Some(end)) = ends.next() else { return over.extent };
    if !ends.all(|other| other == Some(end)) {
        return over.extent;
    }
    let known = |rel: Rel| facts.known(&rel).is_yes();
    let end = if known(Rel::le(0, end)) { end } else { end.max(Expr::zero()) };
    if known(Rel::le(end, over.extent)) { end } else { over.extent.min(end) }
}
