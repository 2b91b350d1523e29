//! Leaves the products of an iteration under way until those of the next one have begun, so that a warpgroup multiplies while it waits for operands.
//!
//! ```text
//! for k in n {                                        load A(0), B(0) to a buffer
//!   load A(k), B(k) to a buffer                       warpgroup { S += A(0) B(0); commit products }
//!   warpgroup { S += A(k) B(k); wait products }       for k in n - 1 {
//!   release empty ring 0                         =>     load A(k + 1), B(k + 1) to a buffer
//! }                                                     warpgroup { S += A(k + 1) B(k + 1); commit products; wait products 1 }
//!                                                       release empty ring 0
//!                                                     }
//!                                                     warpgroup { wait products }
//!                                                     release empty ring 0
//! ```
//!
//! A buffer is released an iteration later, when the products that read it are done. Of a ring of two buffers none would be left to fill.
//!
//! So it is where one warpgroup multiplies at a time, and does nothing else in a step. Of two that do, one multiplies while the other one waits, and to leave the products of both under way
//! makes it slower (H200, bf16): 4096 x 4096 x 4096 takes 255 us by one at a time that waits, 202 by one that does not, 207 by two that do, and
//! 2048 x 3072 x 768 takes 15.6 us by two that wait, and 16.9 by two that do not.

use super::Pass;
use super::fragments::WAIT;
use super::overlap::{is_products, replaced, with_own_values};
use litz_ir::Diag;
use litz_ir::kernel::{
    Act, Filling, Kernel, KernelLoopKind, Loop, Ring, Stmt, Sync, Warps, visit, visit_mut,
};
use litz_ir::target::{Level, Target};
use litz_sym::{Expr, Sym};

/// The pass.
pub const PASS: Pass = Pass { name: "under_way", run };

/// Buffers of a ring from which on one may be released late.
const LEAST_BUFFERS: u32 = 3;

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if !kernel.rings.is_empty() {
        let body = std::mem::take(&mut kernel.body);
        kernel.body = replaced(kernel, body, &|kernel, inner, _| late(kernel, inner));
    }
    Ok(())
}

/// What a loop in order becomes that has a buffer of a ring filled in each iteration, multiplies by warpgroups, which do nothing else, and releases it.
fn late(kernel: &mut Kernel, inner: &Loop) -> Option<Vec<Stmt>> {
    let [fills @ .., Stmt::Loop(groups), release @ Stmt::Act(Act::Sync(sync))] = &inner.body[..] else {
        return None;
    };
    let Sync::Release { ring, filling: Filling::Empty } = *sync else { return None };
    let (last, products) = groups.body.split_last()?;
    let is_alone = !products.is_empty() && products.iter().all(is_products);
    let suits = inner.kind == KernelLoopKind::For
        && groups.kind.level() == Some(Level::Warpgroup)
        && groups.extent.is_one()
        && *last == WAIT
        && kernel.rings[ring].buffers >= LEAST_BUFFERS
        && are_copies(kernel, fills, ring);
    let iterations = inner.extent.as_int().filter(|&count| is_alone && suits && count > 1)?;
    let of_groups = |body: Vec<Stmt>| Stmt::Loop(Loop { body, ..groups.clone() });
    let commit = Stmt::Act(Act::Sync(Sync::CommitProducts));
    let begun = of_groups([products, std::slice::from_ref(&commit)].concat());
    let mut first = [fills, &[begun]].concat();
    named_apart(&mut first, inner.var);
    let mut out = with_own_values(kernel, first);
    let older = Stmt::Act(Act::Sync(Sync::Products { newest: 1 }));
    let mut body = [fills, &[of_groups([products, &[commit, older]].concat()), release.clone()]].concat();
    visit_mut(&mut body, &mut |stmt| stmt.replace(inner.var, Expr::sym(inner.var) + 1));
    out.push(Stmt::Loop(Loop { extent: Expr::int(iterations - 1), body, ..inner.clone() }));
    out.extend([of_groups(vec![WAIT]), release.clone()]);
    Some(out)
}

/// Whether statements acquire and release buffers of one ring, and else are of the warps that fill it: what others do ahead of their products may be to what
/// products read that are still under way.
fn are_copies(kernel: &Kernel, stmts: &[Stmt], ring: Ring) -> bool {
    stmts.iter().all(|stmt| match stmt {
        Stmt::Act(Act::Sync(Sync::Acquire { ring: other, .. } | Sync::Release { ring: other, .. })) => {
            *other == ring
        }
        Stmt::Loop(inner) => Warps::of(inner).is_some_and(|own| kernel.rings[ring].fills.contains(own)),
        Stmt::Act(_) | Stmt::If { .. } => false,
    })
}

/// Those of the first iteration, whose buffers have names of their own.
fn named_apart(stmts: &mut [Stmt], var: Sym) {
    let mut buffers = Vec::new();
    visit(stmts, &mut |stmt| {
        if let Stmt::Act(Act::Sync(Sync::Acquire { buffer, .. })) = stmt {
            buffers.push(*buffer);
        }
    });
    let named = |buffer: Sym| Sym::new(&format!("{buffer}_first"));
    visit_mut(stmts, &mut |stmt| {
        stmt.replace(var, Expr::zero());
        buffers.iter().for_each(|&buffer| stmt.replace(buffer, Expr::sym(named(buffer))));
        if let Stmt::Act(Act::Sync(Sync::Acquire { buffer, .. })) = stmt {
            *buffer = named(*buffer);
        }
    });
}
