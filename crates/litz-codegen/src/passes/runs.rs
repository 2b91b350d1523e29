//! Asks once for a run of elements what each of them asks, where rows begin within runs.
//!
//! ```text
//! unroll v in 8 { %0 = load s[8*t + v]; m[0] max= %0 if 0 <= 8*t + v - mod(g, 8), 8*t + v - mod(g, 8) < 50257 }
//!   =>  if mod(g, 8) - 8*t <= 0, 8*t - mod(g, 8) - 50249 <= 0 {
//!         vector v in 8 by 8 { %0 = load s[8*t + v]; run[v] = %0 }
//!         unroll v in 8 { %0 = load run[v]; m[0] max= %0 }
//!       } else {
//!         if 8*t - mod(g, 8) < 50257 { .. }
//!       }
//! ```
//!
//! So of a row the first run and the last one alone have masks, and what threads share is loaded by runs.

use super::Pass;
use super::edges::{everywhere, without};
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Stmt, position};
use litz_ir::target::{Gpu, Target};
use litz_sym::{Cmp, Expr, Facts, Rel};

/// The pass.
pub const PASS: Pass = Pass { name: "runs", run };

/// Gives loops over runs that may begin before a row a version that asks nothing.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(kernel, body, &facts);
    Ok(())
}

fn block(kernel: &mut Kernel, stmts: Vec<Stmt>, facts: &Facts) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for mut stmt in stmts {
        let mut inside = facts.clone();
        if let Stmt::Loop(inner) = &stmt {
            inside.declare_index(inner.var, inner.extent);
            if let Some(Asked { by_each, by_all, ends }) = asked(inner, &inside) {
                let whole = without(kernel, &stmt, &by_each);
                // What is no vector in part is elements.
                if let Stmt::Loop(inner) = &mut stmt {
                    inner.kind = KernelLoopKind::Unroll;
                }
                let then = loaded_at_once(kernel, whole, &inside);
                let other = if ends.is_empty() {
                    vec![stmt]
                } else {
                    vec![Stmt::If { cond: ends, then: vec![stmt], other: Vec::new() }]
                };
                out.push(Stmt::If { cond: by_all, then, other });
                continue;
            }
        }
        // What has both versions is not asked again.
        if matches!(&stmt, Stmt::If { cond, other, .. } if is_of_run(cond) && !other.is_empty()) {
            out.push(stmt);
            continue;
        }
        for inner in stmt.blocks_mut() {
            *inner = block(kernel, std::mem::take(inner), &inside);
        }
        out.push(stmt);
    }
    out
}

/// Whether conditions are such as this pass finds.
fn is_of_run(conds: &[Rel]) -> bool {
    !conds.is_empty() && conds.iter().all(|cond| cond.cmp == Cmp::Le && cond.rhs.is_zero())
}

/// Whether a relation asks if an element of a run is behind the beginning of its row, which is one of the first run's elements, not always the same. Windows of
/// images ask likewise, but begin anywhere, or always at the same element.
fn begins_before(rel: &Rel, inner: &Loop, facts: &Facts) -> bool {
    let (Some(count), Some((step, first))) = (inner.extent.as_int(), rel.rhs.linear(inner.var)) else {
        return false;
    };
    let moved = first.terms().filter(|(factor, _)| factor % count != 0).map(|(n, term)| term * n);
    let moved = moved.sum::<Expr>() + first.constant();
    let by = facts.bounds(moved);
    rel.cmp == Cmp::Le
        && rel.lhs.is_zero()
        && step.is_one()
        && moved.as_int().is_none()
        && -count < by.lo
        && by.hi <= 0
}

/// What a run asks.
struct Asked {
    /// For each of its elements.
    by_each: Vec<Rel>,
    /// What has to hold for that to hold for all.
    by_all: Vec<Rel>,
    /// What holds if a row has not ended before the first of them.
    ends: Vec<Rel>,
}

/// What the elements of a run ask. None where no run may begin before its row, and where there is more in it than values, loads and stores.
fn asked(inner: &Loop, facts: &Facts) -> Option<Asked> {
    let is_run = matches!(inner.kind, KernelLoopKind::Unroll | KernelLoopKind::Vector { .. });
    inner.extent.as_int().filter(|_| is_run)?;
    let (mut asked, mut stores): (Vec<Rel>, Vec<&Vec<Rel>>) = (Vec::new(), Vec::new());
    for stmt in &inner.body {
        match stmt {
            Stmt::Act(Act::Let { op: Op::Cond(rel), .. }) => asked.push(*rel),
            Stmt::Act(Act::Let { op: Op::Load { guard, .. }, .. }) => asked.extend(guard),
            Stmt::Act(Act::Store { guard, .. }) => {
                asked.extend(guard);
                stores.push(guard);
            }
            Stmt::Act(Act::Let { .. }) => {}
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => return None,
        }
    }
    asked.retain(|rel| [rel.lhs, rel.rhs].iter().any(|e| e.has_sym(inner.var)));
    asked.iter().any(|rel| begins_before(rel, inner, facts)).then_some(())?;
    let mut all = Vec::new();
    asked.retain(|rel| match everywhere(*rel, &[inner.var], facts) {
        Some(rel) => {
            all.push(rel);
            true
        }
        None => false,
    });
    // An end that the first element is past, which is the nearest to it, all are. Nothing is stored then.
    let is_end = |rel: &&Rel| {
        let steps = rel.lhs.linear(inner.var).is_some_and(|(step, _)| step.is_one());
        let are_stopped = stores.iter().all(|guard| guard.contains(rel));
        rel.cmp == Cmp::Lt && steps && !rel.rhs.has_sym(inner.var) && are_stopped
    };
    let ends = asked.iter().filter(is_end);
    let mut ends: Vec<Rel> =
        ends.map(|rel| Rel { lhs: rel.lhs.replace(inner.var, Expr::zero()), ..*rel }).collect();
    for rels in [&mut all, &mut ends] {
        rels.sort();
        rels.dedup();
    }
    (!all.is_empty()).then_some(Asked { by_each: asked, by_all: all, ends })
}

/// A loop over a whole run, with what it loads of memory that threads share as one vector ahead of it: one by one, elements of threads that have runs
/// are in the same banks.
fn loaded_at_once(kernel: &mut Kernel, whole: Stmt, facts: &Facts) -> Vec<Stmt> {
    let Stmt::Loop(mut inner) = whole else { return vec![whole] };
    let Some(count) = inner.extent.as_int().and_then(|count| u32::try_from(count).ok()) else {
        return vec![Stmt::Loop(inner)];
    };
    let mut out = Vec::new();
    let stored: Vec<Mem> = inner.body.iter().flat_map(Stmt::stored).map(|access| access.0).collect();
    let is_start = |e: Expr| facts.simplify(e.modulo(i64::from(count))).is_zero();
    for stmt in &mut inner.body {
        let Stmt::Act(Act::Let { val, op: Op::Load { mem, index, guard, other } }) = stmt else { continue };
        let data = &kernel.mems[*mem];
        let fits =
            usize::try_from(count).is_ok_and(|count| data.dtype.size() * count <= Gpu::VECTOR_BYTES as usize);
        let is_run =
            |at: Expr| at.linear(inner.var).is_some_and(|(step, first)| step.is_one() && is_start(first));
        let is_shared = data.space == MemorySpace::Shared && data.swizzle.is_none() && data.is_flat();
        let is_kept = is_shared && fits && guard.is_empty() && !stored.contains(mem);
        if !is_kept || !is_run(position(index)) {
            continue;
        }
        let (name, dtype) = (kernel.free_memory_name("run"), data.dtype);
        let run = kernel.mems.push(MemData::flat(name, dtype, inner.extent, MemorySpace::Own));
        let loaded = kernel.vals.push(kernel.vals[*val]);
        let (at, other) = (vec![Expr::sym(inner.var)], *other);
        let op =
            Op::Load { mem: *mem, index: std::mem::replace(index, at.clone()), guard: Vec::new(), other };
        *mem = run;
        let (combine, guard) = (None, Vec::new());
        let store = Act::Store { mem: run, index: at, value: loaded, combine, guard, atomic: false };
        let kind = KernelLoopKind::vector(count, 1);
        let body = vec![Stmt::Act(Act::Let { val: loaded, op }), Stmt::Act(store)];
        out.push(Stmt::Loop(Loop { var: inner.var, extent: inner.extent, kind, body }));
    }
    out.push(Stmt::Loop(inner));
    out
}
