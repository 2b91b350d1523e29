//! Joins statements to the points that a group shares, for all families.

use crate::context::Cx;
use crate::group::{Group, Member};
use crate::nest;
use crate::no_fuse::NoFuse;
use litz_analysis::align::{By, DomainMap, Shared, align_domains};
use litz_ir::loops::{Axis, Nest};
use litz_sym::{Expr, Sym};

/// A nest by itself: axes whose points must be taken in order are its own.
pub fn alone(cx: &Cx<'_>, s: usize) -> Group {
    let (mut bind, mut outer) = (Vec::new(), Vec::new());
    for axis in nest(cx.loops, s).axes.iter().filter(|a| !cx.is_ordered(s, a.var)) {
        bind.push(cx.share(axis, &mut outer));
    }
    Group { members: vec![Member { stmt: s, bind }], outer }
}

/// Outer axes of a nest that the shared points do not determine.
pub fn own_axes<'a>(nest: &'a Nest, member: &Member) -> impl Iterator<Item = &'a Axis> {
    nest.axes.iter().filter(|axis| member.is_own(axis))
}

/// Whether statement `s` stores to what a member reads.
pub fn overwrites(cx: &Cx<'_>, group: &Group, s: usize) -> bool {
    let writes = &cx.deps.stmts[s].writes;
    group.members.iter().any(|m| cx.deps.stmts[m.stmt].reads.iter().any(|buf| writes.contains(buf)))
}

/// Whether axes are as many and as long, in the same order.
pub fn same_extents(a: &[Axis], b: &[Axis]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.extent == b.extent)
}

/// The axes of statement `s` at the points of a member whose axes are as many, in the same order: what is no point of the group's stays its own.
pub fn bind_like(cx: &Cx<'_>, mate: &Member, s: usize) -> Vec<(Sym, Expr)> {
    let value = |theirs: &Axis| mate.bind.iter().find(|bind| bind.0 == theirs.var).map(|bind| bind.1);
    let pairs = nest(cx.loops, s).axes.iter().zip(&nest(cx.loops, mate.stmt).axes);
    pairs.filter_map(|(own, theirs)| Some((own.var, value(theirs)?))).collect()
}

/// Aligns the axes of statement `s` with those along which members of `group` store what it touches, and read what it stores, in the
/// loops `outer`.
pub fn align_members(cx: &Cx<'_>, group: &Group, s: usize, outer: &[Axis], map: &mut DomainMap) {
    let (consumer, info) = (nest(cx.loops, s), &cx.deps.stmts[s]);
    let facts = consumer.facts(&group.facts(&cx.loops.facts));
    let shared = Shared { loops: cx.loops, axes: outer, facts: &facts };
    for member in &group.members {
        let own = &cx.deps.stmts[member.stmt];
        let producer = (nest(cx.loops, member.stmt), &*member.bind);
        for &buf in own.writes.iter().filter(|b| info.reads.contains(b) || info.writes.contains(b)) {
            align_domains(shared, producer, (buf, By::Stores), consumer, map);
        }
        for &buf in own.reads.iter().filter(|b| info.writes.contains(b)) {
            align_domains(shared, producer, (buf, By::Overwritten), consumer, map);
        }
    }
}

/// The group with `s` added, its outer axes narrowed to those all members share.
///
/// # Errors
/// Where points of the statement would be taken in another order than it asks for, or the tiles of a product are not its points.
pub fn join(cx: &Cx<'_>, group: &Group, s: usize, map: DomainMap, is_product: bool) -> Result<Group, NoFuse> {
    let consumer = nest(cx.loops, s);
    let DomainMap { bind, dropped } = map.drop_unshared(&group.outer);
    if bind.iter().any(|(a, _)| cx.is_ordered(s, *a)) {
        return Err(NoFuse::OtherPoints);
    }
    let member = Member { stmt: s, bind };
    let has_own = consumer.all_axes().any(|axis| member.is_own(axis));
    if is_product && (has_own || !dropped.is_empty()) {
        return Err(NoFuse::NotAnEpilogue);
    }
    let mut joined = group.clone();
    joined.outer.retain(|a| !dropped.contains(&a.var));
    for member in &mut joined.members {
        member.bind.retain(|(_, e)| !dropped.iter().any(|d| e.has_sym(*d)));
    }
    joined.members.push(member);
    Ok(joined)
}
