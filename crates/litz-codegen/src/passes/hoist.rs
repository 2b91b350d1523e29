//! Moves what says which elements are copied to shared memory out of the loops that copy, where it is the same for all of them.
//!
//! ```text
//! pipeline k in n by 3 { thread t in 32 { %0 = load of[b]; bind g = %0 in 4, check 0; %1 = load w[g, 32*k + t]; s[t] = %1 } }
//!   =>  %0 = load of[b]; bind g = %0 in 4, check 0
//!       pipeline k in n by 3 { thread t in 32 { %1 = load w[g, 32*k + t]; s[t] = %1 } }
//! ```
//!
//! What is left loads elements and stores them, which threads do several at once and in the background. Indices are loaded from what the kernel
//! does not store to, and loops that they are moved out of run at least once, so that nothing is checked that was not.

use super::Pass;
use litz_ir::Diag;
use litz_ir::ids::Id;
use litz_ir::kernel::{Act, Kernel, Loop, MemorySpace, Op, Stmt, Val, visit};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Sym};
use std::collections::HashSet;

/// The pass.
pub const PASS: Pass = Pass { name: "hoist", run };

/// Moves indices out of loops.
fn run(kernel: &mut Kernel, target: &Target) -> Result<(), Diag> {
    let Target::Gpu(_) = target else { return Ok(()) };
    let mut stored = vec![false; kernel.mems.len()];
    visit(&kernel.body, &mut |stmt| stmt.stored().for_each(|(mem, _)| stored[mem.index()] = true));
    let mut facts = kernel.facts.clone();
    kernel.grid.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    let body = std::mem::take(&mut kernel.body);
    kernel.body = Mover { kernel, stored }.block(body, &facts);
    Ok(())
}

struct Mover<'a> {
    kernel: &'a Kernel,
    /// For each memory, whether the kernel stores to it.
    stored: Vec<bool>,
}

impl Mover<'_> {
    /// The statements, with what leaves their loops ahead of these.
    fn block(&self, stmts: Vec<Stmt>, facts: &Facts) -> Vec<Stmt> {
        stmts
            .into_iter()
            .flat_map(|stmt| {
                let (mut out, stmt) = self.moved(stmt, facts);
                out.push(stmt);
                out
            })
            .collect()
    }

    /// What leaves a statement, and the rest of it.
    fn moved(&self, mut stmt: Stmt, facts: &Facts) -> (Vec<Stmt>, Stmt) {
        let Stmt::Loop(inner) = &mut stmt else {
            for block in stmt.blocks_mut() {
                *block = self.block(std::mem::take(block), facts);
            }
            return (Vec::new(), stmt);
        };
        let mut inside = facts.clone();
        inside.declare_index(inner.var, inner.extent);
        // Each statement, and whether it may leave: of a loop that copies what chooses, of another one what has left the loops in it.
        let body = std::mem::take(&mut inner.body);
        let body: Vec<(bool, Stmt)> = match self.chosen(&body) {
            Some(count) => body.into_iter().enumerate().map(|(at, stmt)| (at < count, stmt)).collect(),
            None => body
                .into_iter()
                .flat_map(|stmt| {
                    let (out, stmt) = self.moved(stmt, &inside);
                    out.into_iter().map(|stmt| (true, stmt)).chain([(false, stmt)])
                })
                .collect(),
        };
        let runs = facts.bounds(inner.extent).lo >= 1;
        let (mut out, mut kept) = (Vec::new(), Kept::of(inner));
        for (may_leave, stmt) in body {
            match runs && may_leave && self.is_loaded(&stmt) && !kept.is_needed(&stmt) {
                true => out.push(stmt),
                false => {
                    kept.note(&stmt);
                    inner.body.push(stmt);
                }
            }
        }
        (out, stmt)
    }

    /// How many statements choose what a body copies, where it does nothing else.
    fn chosen(&self, body: &[Stmt]) -> Option<usize> {
        let [before @ .., Stmt::Act(Act::Let { op: Op::Load { .. }, val }), Stmt::Act(last)] = body else {
            return None;
        };
        let Act::Store { mem, value, combine: None, atomic: false, .. } = last else { return None };
        let is_copy = val == value && self.kernel.mems[*mem].space == MemorySpace::Shared;
        let is_choice =
            |stmt: &Stmt| matches!(stmt, Stmt::Act(Act::Bind { .. } | Act::Let { op: Op::Load { .. }, .. }));
        (is_copy && before.iter().all(is_choice)).then_some(before.len())
    }

    /// Whether a statement is a check, or loads what the kernel does not store to, whatever is around.
    fn is_loaded(&self, stmt: &Stmt) -> bool {
        let Stmt::Act(Act::Let { op: Op::Load { mem, guard, .. }, .. }) = stmt else { return true };
        guard.is_empty() && !self.stored[mem.index()]
    }
}

/// What stays in a loop: its variable, and symbols and values that are defined there.
struct Kept {
    syms: HashSet<Sym>,
    vals: HashSet<Val>,
}

impl Kept {
    fn of(inner: &Loop) -> Kept {
        Kept { syms: HashSet::from([inner.var]), vals: HashSet::new() }
    }

    fn note(&mut self, stmt: &Stmt) {
        self.syms.extend(stmt.defined());
        if let Stmt::Act(Act::Let { val, .. }) = stmt {
            self.vals.insert(*val);
        }
    }

    /// Whether a statement needs anything that stays.
    fn is_needed(&self, stmt: &Stmt) -> bool {
        let mut needed = stmt.exprs().into_iter().flat_map(Expr::syms).any(|sym| self.syms.contains(&sym));
        stmt.each_value(&mut |val| needed |= self.vals.contains(&val));
        needed
    }
}
