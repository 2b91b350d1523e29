//! Counts the bytes that a call moves between a kernel and memory because a statement does not share the kernel.

use crate::cost::{points, size};
use litz_analysis::Dependences;
use litz_analysis::dependences::Statement;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt};
use litz_sym::Expr;

/// Bytes that a call would neither store nor load if statement `s` shared a kernel with `members`, by hints of sizes. Each
/// element counts once, however often it is read.
///
/// Of a buffer that a member passes to `s` these are the elements that `s` loads, and those that members store where nobody
/// else needs them. Where nothing is passed on, they are the elements that `s` loads of what a member loads, too. What
/// one of them does when the model is loaded costs a call nothing.
pub fn saved_bytes(loops: &Loops, deps: &Dependences, members: &[usize], s: usize) -> i64 {
    if deps.stmts[s].at_load || members.iter().any(|&m| deps.stmts[m].at_load) {
        return 0;
    }
    let among = |of: fn(&Statement) -> &Vec<Buf>, buf: &Buf| {
        members.iter().any(|&m| of(&deps.stmts[m]).contains(buf))
    };
    let reads = &deps.stmts[s].reads;
    let passed: Vec<Buf> = reads.iter().copied().filter(|buf| among(|info| &info.writes, buf)).collect();
    let bytes = |elements: i64, buf: Buf| elements.saturating_mul(loops.bufs[buf].dtype.size() as i64);
    if passed.is_empty() {
        let shared = reads.iter().filter(|buf| among(|info| &info.reads, buf));
        return shared.map(|&buf| bytes(touched(loops, s, buf, Use::Load), buf)).fold(0, i64::saturating_add);
    }
    let mut saved = 0i64;
    for buf in passed {
        saved = saved.saturating_add(bytes(touched(loops, s, buf, Use::Load), buf));
        let is_here = |user: &usize| *user == s || members.contains(user);
        if !deps.escapes[buf] && deps.users[buf].iter().all(is_here) {
            let stored =
                members.iter().map(|&m| touched(loops, m, buf, Use::Store)).fold(0, i64::saturating_add);
            saved = saved.saturating_add(bytes(stored.min(all(loops, buf)), buf));
        }
    }
    saved
}

#[derive(Clone, Copy, PartialEq)]
enum Use {
    Load,
    Store,
}

/// Elements of a buffer.
fn all(loops: &Loops, buf: Buf) -> i64 {
    size(&loops.facts, loops.bufs[buf].elements())
}

/// How many elements of a buffer a statement uses so: each access touches as many as the axes in its coordinates have points.
fn touched(loops: &Loops, s: usize, buf: Buf, how: Use) -> i64 {
    let all = all(loops, buf);
    let nest = match &loops.stmts[s] {
        Stmt::Nest(nest) => nest,
        Stmt::Extern(e) => {
            let is_used = match how {
                Use::Load => e.reads.contains(&buf),
                Use::Store => e.writes.contains(&buf),
            };
            return if is_used { all } else { 0 };
        }
        Stmt::Region(_) => return all,
    };
    let elements = |inst: &Inst| {
        let (accessed, index) = inst.op.element()?;
        let is_used = match (&inst.op, how) {
            (InstOp::Store { combine, .. }, Use::Load) => combine.is_some(),
            (InstOp::Store { .. }, Use::Store) => true,
            (_, how) => how == Use::Load,
        };
        (accessed == buf && is_used).then(|| points(&loops.facts, axes_of(nest, index)))
    };
    nest.body.iter().filter_map(elements).fold(0, i64::saturating_add).min(all)
}

/// The axes of a nest that coordinates depend on: all of them where data chooses one.
fn axes_of<'a>(nest: &'a Nest, index: &'a [Expr]) -> impl Iterator<Item = &'a Axis> {
    let is_chosen = nest
        .indices()
        .filter(|bound| nest.all_axes().all(|axis| axis.var != bound.var))
        .any(|bound| index.iter().any(|at| at.has_sym(bound.var)));
    nest.all_axes().filter(move |axis| is_chosen || index.iter().any(|at| at.has_sym(axis.var)))
}
