//! Lets threads look for iterations that have something to do, many at once: the lanes of a warp together, or each thread for its own.
//!
//! ```text
//! thread t in 64 { for o in n { %0 = load at[o]; bind i = %0 in 8, check 0; if 4*p <= i, i < 4*p + 4 { y[64*i + t] sum= .. } } }
//!   =>  search o in n { %0 = load at[o]; bind i = %0 in 8, check 0; if 4*p <= i, i < 4*p + 4 { thread t in 64 { y[64*i + t] sum= .. } } }
//! ```
//!
//! Where these iterations are the same for all threads, their loop moves behind the branch. Each thread does what it did, in the order in which it did
//! it: nobody waits for others in such a loop.

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

/// Rewrites the outermost loops that can be searches.
fn block(kernel: &Kernel, stmts: &mut [Stmt]) {
    for stmt in stmts {
        match searched(kernel, stmt) {
            Some(found) => *stmt = found,
            None if is_entered(stmt) => stmt.blocks_mut().into_iter().for_each(|stmts| block(kernel, stmts)),
            None => {}
        }
    }
}

/// Whether there may be searches in a statement.
fn is_entered(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Loop(inner) => stays_around(inner.kind),
        Stmt::If { .. } => true,
        Stmt::Act(_) => false,
    }
}

/// Whether a search may be in a loop.
fn stays_around(kind: KernelLoopKind) -> bool {
    match kind {
        KernelLoopKind::Level(_) | KernelLoopKind::For | KernelLoopKind::Unroll => true,
        KernelLoopKind::Vector { .. }
        | KernelLoopKind::Pipeline { .. }
        | KernelLoopKind::Chain
        | KernelLoopKind::Search
        | KernelLoopKind::Mma { .. } => false,
    }
}

/// Loops of which each is all that is in the one before, with a search as the innermost loop in order: one of whole warps, if loops over threads
/// can be behind its branch, else one of threads.
fn searched<'a>(kernel: &Kernel, stmt: &'a Stmt) -> Option<Stmt> {
    let mut loops = Vec::new();
    let mut body = std::slice::from_ref(stmt);
    while let [Stmt::Loop(inner)] = body {
        loops.push(inner);
        body = &inner.body;
    }
    let at = loops.iter().rposition(|inner| inner.kind == KernelLoopKind::For)?;
    if !loops[..at].iter().all(|inner| stays_around(inner.kind)) {
        return None;
    }
    let is_of_lanes = |inner: &&Loop| matches!(inner.kind.level(), Some(Level::Thread | Level::Lane));
    let (of_lanes, of_warps) = loops[..at].iter().copied().partition(is_of_lanes);
    let searching = |around: Vec<&'a Loop>, mut behind: Vec<&'a Loop>| {
        behind.extend(&loops[at + 1..]);
        search_among(kernel, loops[at], (around, behind), body)
    };
    searching(of_warps, of_lanes).or_else(|| searching(loops[..at].to_vec(), Vec::new()))
}

/// A loop as a search with loops `around` it, and those `behind` its branch, which say nothing of whether that is taken. Data says so, of few
/// iterations: a branch by sizes and variables alone is taken by most.
fn search_among(
    kernel: &Kernel,
    searching: &Loop,
    (around, behind): (Vec<&Loop>, Vec<&Loop>),
    body: &[Stmt],
) -> Option<Stmt> {
    let [ahead @ .., Stmt::If { cond, then, other }] = body else { return None };
    let moved: Vec<Sym> = behind.iter().map(|inner| inner.var).collect();
    let extents = around.iter().chain([&searching]).map(|inner| inner.extent);
    let conditions = cond.iter().flat_map(|rel| [rel.lhs, rel.rhs]);
    let mut fixed = extents.chain(conditions).chain(ahead.iter().flat_map(Stmt::exprs));
    let chosen: Vec<Sym> = ahead.iter().flat_map(Stmt::defined).collect();
    let is_chosen = |e: Expr| chosen.iter().any(|&sym| e.has_sym(sym));
    let mut waits = false;
    visit(then, &mut |stmt| waits |= matches!(stmt, Stmt::Act(Act::Sync(_))));
    if waits
        || !other.is_empty()
        || !cond.iter().any(|rel| is_chosen(rel.lhs) || is_chosen(rel.rhs))
        || fixed.any(|e: Expr| moved.iter().any(|&var| e.has_sym(var)))
    {
        return None;
    }
    let wrapped = |body: Vec<Stmt>, inner: &&Loop| {
        vec![Stmt::Loop(Loop { kind: inner.kind, var: inner.var, extent: inner.extent, body })]
    };
    let then = behind.iter().rev().fold(then.clone(), wrapped);
    let branch = Stmt::If { cond: cond.clone(), then, other: Vec::new() };
    let body = [ahead, &[branch]].concat();
    let kind = KernelLoopKind::Search;
    let search = Loop { kind, var: searching.var, extent: searching.extent, body };
    if search::obstacle(kernel, &search).is_some() {
        return None;
    }
    around.iter().rev().fold(vec![Stmt::Loop(search)], wrapped).pop()
}
