//! Lets the lanes of a warp look together for iterations that have something to do.
//!
//! ```text
//! thread t in 64 { for o in n { %0 = load at[o]; bind i = %0 in 8, check 0; if 4*p <= i, i < 4*p + 4 { y[64*i + t] sum= .. } } }
//!   =>  search o in n { %0 = load at[o]; bind i = %0 in 8, check 0; if 4*p <= i, i < 4*p + 4 { thread t in 64 { y[64*i + t] sum= .. } } }
//! ```
//!
//! Which iterations these are is the same for all threads, so that their loop moves behind the branch. Each thread does what it did, in the
//! order in which it did it: nobody waits for others in such a loop.

use super::Pass;
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Stmt, visit};
use litz_ir::target::{Level, Target};
use litz_ir::verify::search;
use litz_sym::{Expr, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "search", run };

/// Makes loops searches.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let Target::Gpu(_) = target else { return Ok(()) };
    let mut body = std::mem::take(&mut kernel.body);
    block(kernel, &mut body);
    kernel.body = body;
    Ok(())
}

/// Rewrites the outermost loops that can be searches, as far as lanes come to them together.
fn block(kernel: &Kernel, stmts: &mut [Stmt]) {
    for stmt in stmts {
        if let Some(found) = searched(kernel, stmt) {
            *stmt = found;
            continue;
        }
        let goes_on = |inner: &Loop| place(inner.kind) == Some(Place::Around);
        if !matches!(stmt, Stmt::Loop(inner) if !goes_on(inner)) {
            stmt.blocks_mut().into_iter().for_each(|stmts| block(kernel, stmts));
        }
    }
}

/// Where a loop is that was around the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It stays where it is.
    Around,
    /// Its iterations are of single lanes: it moves behind the branch.
    Behind,
}

/// Where a loop goes that is around the search; none where it can go nowhere.
fn place(kind: KernelLoopKind) -> Option<Place> {
    match kind {
        KernelLoopKind::Level(team) => Some(match team.level {
            Level::Thread | Level::Lane => Place::Behind,
            Level::Grid | Level::Block | Level::Warpgroup | Level::Warp => Place::Around,
        }),
        KernelLoopKind::For | KernelLoopKind::Unroll => Some(Place::Around),
        KernelLoopKind::Vector { .. }
        | KernelLoopKind::Pipeline { .. }
        | KernelLoopKind::Chain
        | KernelLoopKind::Search
        | KernelLoopKind::Mma => None,
    }
}

/// Loops of which each is all that is in the one before, with a search as the innermost loop in order.
fn searched(kernel: &Kernel, stmt: &Stmt) -> Option<Stmt> {
    let mut loops = Vec::new();
    let mut body = std::slice::from_ref(stmt);
    while let [Stmt::Loop(inner)] = body {
        loops.push(inner);
        body = &inner.body;
    }
    let [ahead @ .., Stmt::If { cond, then, other }] = body else { return None };
    let at = loops.iter().rposition(|inner| inner.kind == KernelLoopKind::For)?;
    let (mut around, mut behind) = (Vec::new(), Vec::new());
    for inner in &loops[..at] {
        match place(inner.kind)? {
            Place::Around => around.push(*inner),
            Place::Behind => behind.push(*inner),
        }
    }
    let searching = loops[at];
    behind.extend(&loops[at + 1..]);
    let moved: Vec<Sym> = behind.iter().map(|inner| inner.var).collect();
    let extents = around.iter().chain([&searching]).map(|inner| inner.extent);
    let conditions = cond.iter().flat_map(|rel| [rel.lhs, rel.rhs]);
    let mut fixed = extents.chain(conditions).chain(ahead.iter().flat_map(Stmt::exprs));
    let mut waits = false;
    visit(then, &mut |stmt| waits |= matches!(stmt, Stmt::Act(Act::Sync(_))));
    if waits || !other.is_empty() || fixed.any(|e: Expr| moved.iter().any(|&var| e.has_sym(var))) {
        return None;
    }
    let wrapped = |body: Vec<Stmt>, inner: &&Loop| {
        vec![Stmt::Loop(Loop { kind: inner.kind, var: inner.var, extent: inner.extent, body })]
    };
    let then = behind.iter().rev().fold(then.clone(), wrapped);
    let branch = Stmt::If { cond: cond.clone(), then, other: Vec::new() };
    let body = [ahead, &[branch]].concat();
    let search = Loop { kind: KernelLoopKind::Search, var: searching.var, extent: searching.extent, body };
    if search::obstacle(kernel, &search).is_some() {
        return None;
    }
    around.iter().rev().fold(vec![Stmt::Loop(search)], wrapped).pop()
}
