//! Splits a loop in order of which the last iterations alone go past an end: those before them ask for nothing.
//!
//! ```text
//! thread t in 1024 { for c in 10 { unroll u in 5 { %0 = load x[5120*c + 1024*u + t] if 5120*c + 1024*u + t < 50257 else 0.0; .. } } }
//!   =>  thread t in 1024 {
//!         for c in 9 { unroll u in 5 { %0 = load x[5120*c + 1024*u + t]; .. } }
//!         for c in 1 { unroll u in 5 { %0 = load x[5120*c + 1024*u + t + 46080] if 5120*c + 1024*u + t + 46080 < 50257 else 0.0; .. } }
//!       }
//! ```
//!
//! So of a row that the threads of a block take in turns the last turn alone has masks. What holds has to do so in the same iterations for all
//! threads and blocks, which is known of lengths that are.

use super::Pass;
use super::edges::{everywhere, without};
use litz_ir::Diag;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Op, Stmt, visit, visit_mut};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Rel, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "whole", run };

/// Splits the loops of a kernel.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(kernel, body, &Around { facts, threads: Vec::new() });
    Ok(())
}

/// What is around statements: the variables of loops over threads, and what is known of all.
#[derive(Clone)]
struct Around {
    facts: Facts,
    threads: Vec<Sym>,
}

fn block(kernel: &mut Kernel, stmts: Vec<Stmt>, around: &Around) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for mut stmt in stmts {
        let mut inside = around.clone();
        if let Stmt::Loop(inner) = &stmt {
            if let Some(parts) = split(kernel, inner, around) {
                out.extend(parts);
                continue;
            }
            inside.facts.declare_index(inner.var, inner.extent);
            inside.threads.extend(inner.kind.level().map(|_| inner.var));
        }
        for inner in stmt.blocks_mut() {
            *inner = block(kernel, std::mem::take(inner), &inside);
        }
        out.push(stmt);
    }
    out
}

/// The iterations of a loop that are whole, without what they would ask, and the others. None where there are none of either.
fn split(kernel: &mut Kernel, inner: &Loop, around: &Around) -> Option<[Stmt; 2]> {
    let extent = inner.extent.as_int().filter(|_| inner.kind == KernelLoopKind::For)?;
    let mut facts = around.facts.clone();
    facts.declare_index(inner.var, inner.extent);
    let mut varying = around.threads.clone();
    let (mut asked, mut is_plain): (Vec<Rel>, bool) = (Vec::new(), true);
    visit(&inner.body, &mut |stmt| match stmt {
        Stmt::Loop(Loop { var, extent, kind, .. }) => {
            varying.push(*var);
            facts.declare_index(*var, *extent);
            is_plain &= matches!(kind, KernelLoopKind::Unroll | KernelLoopKind::Vector { .. });
        }
        Stmt::Act(Act::Let { op: Op::Cond(rel), .. }) => asked.push(*rel),
        Stmt::Act(
            Act::Let { op: Op::Load { guard, .. }, .. }
            | Act::Store { guard, .. }
            | Act::MulAdd { guard, .. },
        ) => asked.extend(guard),
        Stmt::Act(Act::Let { .. }) => {}
        Stmt::If { .. } | Stmt::Act(_) => is_plain = false,
    });
    let holds = |rel: &Rel| whole(*rel, inner.var, &varying, &facts);
    asked.retain(|rel| holds(rel).is_some_and(|whole| whole > 0));
    let whole = asked.iter().filter_map(holds).min().filter(|&whole| is_plain && whole < extent)?;
    let first = Loop { extent: Expr::int(whole), ..inner.clone() };
    let first = without(kernel, &Stmt::Loop(first), &asked);
    let mut rest = Loop { extent: Expr::int(extent - whole), ..inner.clone() };
    let later = Expr::sym(inner.var) + whole;
    visit_mut(&mut rest.body, &mut |stmt| stmt.replace(inner.var, later));
    Some([first, Stmt::Loop(rest)])
}

/// In how many of the first iterations of a loop a relation holds for all values of some variables. None where that depends on anything else.
fn whole(rel: Rel, var: Sym, varying: &[Sym], facts: &Facts) -> Option<i64> {
    let Rel { lhs, rhs, .. } = everywhere(rel, varying, facts)?;
    let (step, first) = (lhs - rhs).linear(var)?;
    let (step, first) = (step.as_int().filter(|&step| step > 0)?, first.as_int()?);
    // step*c + first <= 0
    Some(first.checked_neg()?.div_euclid(step).saturating_add(1).max(0))
}
