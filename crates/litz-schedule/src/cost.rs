//! What a group costs, by hints: work, points that can run at once, bytes passed on.

use crate::fuse::Group;
use crate::nest;
use litz_analysis::Dependences;
use litz_analysis::access::{Step, accesses, step, substitute};
use litz_ir::loops::{Axis, Loops};
use litz_sym::{Expr, Facts};

/// Elements of a strip of columns that one kernel point takes.
const COLUMN_STRIP: i64 = 64;

/// A size for heuristics: at least 1, and 64 where nothing is known of it.
pub fn size(facts: &Facts, e: Expr) -> i64 {
    facts.hint(e).unwrap_or(64).max(1)
}

/// Parts of `part` that `n` needs, both positive.
pub fn ceil_div(n: i64, part: i64) -> i64 {
    (n + part - 1) / part
}

/// Points of several axes together.
pub fn points<'a>(facts: &Facts, axes: impl IntoIterator<Item = &'a Axis>) -> i64 {
    axes.into_iter().map(|a| size(facts, a.extent)).fold(1, i64::saturating_mul)
}

/// Shared points that can run at once. An axis that vectors run along counts in strips: where members have loops of
/// their own, a shared axis along which all of them store neighbouring elements.
pub fn parallel_points(loops: &Loops, group: &Group) -> i64 {
    let has_own_loops = group
        .members
        .iter()
        .any(|m| nest(loops, m.stmt).all_axes().any(|a| !m.bind.iter().any(|b| b.0 == a.var)));
    let is_contiguous = |axis: &Axis| {
        group.members.iter().all(|m| {
            let mut stores = accesses(loops, nest(loops, m.stmt)).into_iter().filter(|a| a.store);
            stores.all(|a| step(substitute(a.place, &m.bind), axis.var) == Step::Unit)
        })
    };
    let points = |axis: &Axis| {
        let n = size(&loops.facts, axis.extent);
        if has_own_loops && is_contiguous(axis) { (n / COLUMN_STRIP).max(1) } else { n }
    };
    group.outer.iter().map(points).fold(1, i64::saturating_mul)
}

/// Instructions executed by all members together.
pub fn work(loops: &Loops, group: &Group) -> i64 {
    let of = |stmt: usize| {
        let n = nest(loops, stmt);
        points(&loops.facts, n.all_axes()).saturating_mul(n.body.len() as i64)
    };
    group.members.iter().map(|m| of(m.stmt)).fold(0, i64::saturating_add)
}

/// Bytes that members pass to each other at one shared point.
pub fn footprint(loops: &Loops, deps: &Dependences, group: &Group) -> i64 {
    let mut bytes = 0i64;
    for member in &group.members {
        for &buf in &deps.stmts[member.stmt].writes {
            let is_passed = |s: usize| s != member.stmt && deps.stmts[s].reads.contains(&buf);
            if group.members.iter().any(|m| is_passed(m.stmt)) {
                let data = &loops.bufs[buf];
                let elements = loops.facts.hint(data.span()).unwrap_or(1 << 20);
                bytes = bytes.saturating_add(elements.saturating_mul(data.dtype.size() as i64));
            }
        }
    }
    bytes / points(&loops.facts, &group.outer)
}
