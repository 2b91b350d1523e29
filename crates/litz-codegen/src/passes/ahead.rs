//! Loads what a written-out loop reads of shared memory ahead of what it stores there, so that a thread waits for all of it at once.
//!
//! ```text
//! unroll p in 16 { %0 = load s[p]; sum[0] sum= %0; %1 = load sum[0]; r[p] = %1 }
//!   =>  unroll p in 16 { %0 = load s[p]; s_ahead[p] = %0 }
//!       unroll p in 16 { %1 = load s_ahead[p]; sum[0] sum= %1; %2 = load sum[0]; r[p] = %2 }
//! ```
//!
//! An assembler takes all shared memory for one, and a load that stands behind a store begins when that is done.

use super::Pass;
use litz_ir::kernel::{Act, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Stmt};
use litz_ir::target::Target;
use litz_ir::{Diag, Scalar};
use litz_sym::Expr;

/// The pass.
pub const PASS: Pass = Pass { name: "ahead", run };

/// Iterations of a loop: of fewer the waits are few, and of more there are too many registers.
const FEWEST: i64 = 8;
const MOST: i64 = 16;

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = block(kernel, body);
    Ok(())
}

/// The statements, with what is loaded ahead of loops.
fn block(kernel: &mut Kernel, stmts: Vec<Stmt>) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for mut stmt in stmts {
        if let Stmt::Loop(inner) = &mut stmt {
            out.extend(loads(kernel, inner).map(Stmt::Loop));
        }
        for inner in stmt.blocks_mut() {
            *inner = block(kernel, std::mem::take(inner));
        }
        out.push(stmt);
    }
    out
}

/// The loop that loads, taken out of one that stores.
fn loads(kernel: &mut Kernel, inner: &mut Loop) -> Option<Loop> {
    let extent = inner.extent.as_int().filter(|extent| (FEWEST..=MOST).contains(extent))?;
    let is_plain = |stmt: &Stmt| matches!(stmt, Stmt::Act(Act::Let { .. } | Act::Store { .. }));
    if inner.kind != KernelLoopKind::Unroll || !inner.body.iter().all(is_plain) {
        return None;
    }
    let is_shared = |kernel: &Kernel, mem: Mem| kernel.mems[mem].space == MemorySpace::Shared;
    let stored: Vec<Mem> = inner.body.iter().flat_map(Stmt::stored).map(|access| access.0).collect();
    if !stored.iter().any(|&mem| is_shared(kernel, mem)) {
        return None;
    }
    let mut body = Vec::new();
    for stmt in &mut inner.body {
        let Stmt::Act(Act::Let { val, op }) = stmt else { continue };
        let Op::Load { mem, .. } = *op else { continue };
        if stored.contains(&mem) || !is_shared(kernel, mem) {
            continue;
        }
        let dtype = kernel.vals[*val];
        let name = kernel.free_memory_name(&format!("{}_ahead", kernel.mems[mem].name));
        let ahead = kernel.mems.push(MemData::flat(name, dtype, Expr::int(extent), MemorySpace::Own));
        let index = vec![Expr::sym(inner.var)];
        let kept =
            Op::Load { mem: ahead, index: index.clone(), guard: Vec::new(), other: Scalar::zero(dtype) };
        let loaded = kernel.vals.push(dtype);
        body.push(Stmt::Act(Act::Let { val: loaded, op: std::mem::replace(op, kept) }));
        body.push(Stmt::Act(Act::Store {
            mem: ahead,
            index,
            value: loaded,
            combine: None,
            guard: Vec::new(),
            atomic: false,
        }));
    }
    (!body.is_empty()).then_some(Loop { body, ..*inner })
}
