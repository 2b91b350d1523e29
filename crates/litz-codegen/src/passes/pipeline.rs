//! Starts the copies of a pipelined loop some iterations ahead, in the background.
//!
//! ```text
//! pipeline k in n by 3 { copy to s; use s }
//!   =>  for p in 2 { if p < n { copy of p to s[mod(p, 3)] async }; commit }
//!       for k in n { wait 1; if k + 2 < n { copy of k + 2 to s[mod(k + 2, 3)] async }; commit; use s[mod(k, 3)] }
//! ```
//!
//! Where the warps that copy are others than those that use what is copied, they run apart: a ring tells the ones which buffers are full,
//! and the others which are empty.
//!
//! ```text
//! pipeline k in n by 3 { warp w in 1 from 8 { copy to s }; warpgroup g in 2 { use s } }
//!   =>  for k in n {
//!         acquire empty ring 0 as f; warp w in 1 from 8 { copy to s[f] async }; release full ring 0
//!         acquire full ring 0 as u; warpgroup g in 2 { use s[u] }; release empty ring 0
//!       }
//! ```
//!
//! Copies ahead of the loop that it alone reads are part of the first group. What the loop begins with and stores to shared memory that nothing else touches, as it was loaded from what the loop does not store to, is copied ahead.
//! Without a ring every iteration commits one group of copies, an empty one at the end, so that the group of an iteration is done when all but the
//! newest `buffers - 2` are. The copies of a later iteration go to the buffer that the iteration before has read: they are
//! started behind the `wait`, so that one barrier serves both. A loop of fewer iterations than there are buffers has one for each, and all
//! copies ahead of it.

use super::Pass;
use litz_ir::ids::Id;
use litz_ir::kernel::{
    Act, Element, Filling, Kernel, KernelLoopKind, Loop, Mem, MemorySpace, Op, RingData, Stmt, Sync, Val,
    Warps, visit, visit_mut,
};
use litz_ir::target::Target;
use litz_ir::{Diag, Scalar};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashMap;

/// The pass.
pub const PASS: Pass = Pass { name: "pipeline", run };

/// Bytes that a thread copies in the background at once, at least.
const LEAST_BYTES: usize = 4;

/// Changes the loops.
///
/// # Errors
/// `no-pipeline`, where a loop begins with no copies, or its copies are of what it stores to.
fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    let body = std::mem::take(&mut kernel.body);
    let uses = uses(kernel, &body);
    kernel.body = block(kernel, &uses, body)?;
    Ok(())
}

/// How many statements access each memory.
fn uses(kernel: &Kernel, stmts: &[Stmt]) -> Vec<usize> {
    let mut uses = vec![0; kernel.mems.len()];
    visit(stmts, &mut |stmt| stmt.accesses().for_each(|(mem, _)| uses[mem.index()] += 1));
    uses
}

/// `uses` are those of all of the kernel.
fn block(kernel: &mut Kernel, uses: &[usize], stmts: Vec<Stmt>) -> Result<Vec<Stmt>, Diag> {
    let mut out = Vec::with_capacity(stmts.len());
    for mut stmt in stmts {
        for inner in stmt.blocks_mut() {
            *inner = block(kernel, uses, std::mem::take(inner))?;
        }
        if let Stmt::Loop(Loop { kind: KernelLoopKind::Pipeline { buffers }, var, extent, body }) = stmt {
            let loops = pipelined(kernel, uses, (var, extent, buffers), body)?;
            if loops.len() > 1 {
                copy_with_first(kernel, uses, &mut out, &loops);
            }
            out.extend(loops);
        } else {
            out.push(stmt);
        }
    }
    Ok(out)
}

/// Has copies ahead of loops run in the background, which these alone read: they are of the group of the first iteration.
fn copy_with_first(kernel: &Kernel, everywhere: &[usize], before: &mut [Stmt], loops: &[Stmt]) {
    let in_loops = uses(kernel, loops);
    let stored: Vec<bool> = kernel.mems.values().map(|data| !data.space.is_only_read()).collect();
    for stmt in before {
        let here = uses(kernel, std::slice::from_ref(stmt));
        let uses = here.iter().zip(&in_loops).zip(everywhere);
        let own: Vec<bool> = uses.map(|((here, there), all)| here + there == *all).collect();
        let copies = Copier { kernel, stored: &stored, own: &own, loads: HashMap::new() }.stmt(stmt);
        let mut is_wide = true;
        visit(copies.as_slice(), &mut |stmt| {
            if let Stmt::Act(Act::Copy { count, to, .. }) = stmt {
                is_wide &= *count as usize * kernel.mems[to.mem].dtype.size() >= LEAST_BYTES;
            }
        });
        if let Some(copies) = copies.filter(|_| is_wide) {
            *stmt = copies;
        }
    }
}

fn pipelined(
    kernel: &mut Kernel,
    everywhere: &[usize],
    (var, extent, buffers): (Sym, Expr, u32),
    mut body: Vec<Stmt>,
) -> Result<Vec<Stmt>, Diag> {
    let refused = |kernel: &Kernel, why: &str| {
        Diag::new("no-pipeline", format!("kernel @{}: loop {var}: {why}", kernel.name))
    };
    let mut stored = vec![false; kernel.mems.len()];
    visit(&body, &mut |stmt| stmt.stored().for_each(|(mem, _)| stored[mem.index()] = true));
    // What is read elsewhere has one buffer.
    let own: Vec<bool> = uses(kernel, &body).iter().zip(everywhere).map(|(here, all)| here == all).collect();
    let ahead: Vec<Stmt> = body
        .iter()
        .map_while(|stmt| Copier { kernel, stored: &stored, own: &own, loads: HashMap::new() }.stmt(stmt))
        .collect();
    if ahead.is_empty() {
        return Err(refused(
            kernel,
            "it begins with no copies, to shared memory of its own, of what it does not store to",
        ));
    }
    let rest = body.split_off(ahead.len());
    let mut copied: Vec<Mem> = Vec::new();
    visit(&ahead, &mut |stmt| copied.extend(stmt.stored().map(|access| access.0)));
    copied.sort_unstable();
    copied.dedup();
    let mut is_again = false;
    visit(&rest, &mut |stmt| is_again |= stmt.stored().any(|(mem, _)| copied.contains(&mem)));
    if is_again {
        return Err(refused(kernel, "it stores to what it copies"));
    }
    let mut most: HashMap<Mem, i64> = HashMap::new();
    visit(&ahead, &mut |stmt| {
        if let Stmt::Act(Act::Copy { count, to, .. }) = stmt {
            let most = most.entry(to.mem).or_insert(1);
            *most = (*most).max((*count).into());
        }
    });
    let uses_copies = |stmt: &Stmt| stmt.accesses().any(|(mem, _)| copied.contains(&mem));
    let ring = ring(&ahead, &rest, buffers, &uses_copies);
    let is_short = |count: &i64| ring.is_none() && *count < i64::from(buffers);
    let all_ahead = extent.as_int().filter(is_short).map(|count| count.max(1));
    let buffers = all_ahead.unwrap_or(i64::from(buffers));
    // Each buffer begins with a whole run.
    let span = |mem: Mem| {
        let most = most.get(&mem).copied().unwrap_or(1);
        kernel.mems[mem].span().ceildiv(most) * most
    };
    let spans: HashMap<Mem, Expr> = copied.iter().map(|&mem| (mem, span(mem))).collect();
    for (&mem, &span) in &spans {
        kernel.mems[mem].sizes = vec![span * buffers];
    }
    // The statements for an iteration, in a buffer.
    let of = |stmts: &[Stmt], iteration: Expr, buffer: Expr| {
        let mut stmts = stmts.to_vec();
        visit_mut(&mut stmts, &mut |stmt| {
            stmt.replace(var, iteration);
            let count = match stmt {
                Stmt::Act(Act::Copy { count, .. }) => i64::from(*count),
                Stmt::Act(_) | Stmt::Loop(_) | Stmt::If { .. } => 1,
            };
            stmt.each_access_mut(&mut |mem, index| {
                if let (Some(&span), [at]) = (spans.get(&mem), index) {
                    *at = *at + span.floordiv(count) * buffer;
                }
            });
        });
        stmts
    };
    if let Some(ring) = ring {
        let ring = kernel.rings.push(ring);
        let [filled, used] = ["filled", "used"].map(|role| Sym::new(&format!("{var}_{role}")));
        let acquire = |filling, buffer| Stmt::Act(Act::Sync(Sync::Acquire { ring, filling, buffer }));
        let release = |filling| Stmt::Act(Act::Sync(Sync::Release { ring, filling }));
        let uses = |stmt: &Stmt| Warps::that_run(std::slice::from_ref(stmt), &uses_copies).is_some();
        let first = rest.iter().position(uses).unwrap_or(0);
        let last = rest.iter().rposition(uses).unwrap_or(0);
        let iteration = Expr::sym(var);
        let mut body = vec![acquire(Filling::Empty, filled)];
        body.extend(of(&ahead, iteration, Expr::sym(filled)));
        body.push(release(Filling::Full));
        body.extend_from_slice(&rest[..first]);
        body.push(acquire(Filling::Full, used));
        body.extend(of(&rest[first..=last], iteration, Expr::sym(used)));
        body.push(release(Filling::Empty));
        body.extend_from_slice(&rest[last + 1..]);
        return Ok(vec![Stmt::Loop(Loop { kind: KernelLoopKind::For, var, extent, body })]);
    }
    let of = |stmts: &[Stmt], iteration: Expr| of(stmts, iteration, iteration.modulo(buffers));
    let distance = all_ahead.unwrap_or(buffers - 1);
    let first = Sym::new(&format!("{var}_ahead"));
    let mut start = of(&ahead, Expr::sym(first));
    // Where there are fewer iterations, the groups of those that are missing have no copies.
    if kernel.facts.bounds(extent).lo < distance {
        let is_one = Rel::lt(Expr::sym(first), extent);
        start = vec![Stmt::If { cond: vec![is_one], then: start, other: Vec::new() }];
    }
    let commit = || Stmt::Act(Act::Sync(Sync::Commit));
    start.push(commit());
    let start = Loop { kind: KernelLoopKind::For, var: first, extent: Expr::int(distance), body: start };
    let newest = u32::try_from(distance - 1).unwrap_or(0);
    let mut steady = vec![Stmt::Act(Act::Sync(Sync::Wait { newest }))];
    if all_ahead.is_none() {
        let next = Expr::sym(var) + distance;
        let copies = of(&ahead, next);
        steady.push(Stmt::If { cond: vec![Rel::lt(next, extent)], then: copies, other: Vec::new() });
    }
    // Where nothing is under way behind the wait, no group has to be counted.
    if newest > 0 || all_ahead.is_none() {
        steady.push(commit());
    }
    steady.extend(of(&rest, Expr::sym(var)));
    Ok(vec![Stmt::Loop(start), Stmt::Loop(Loop { kind: KernelLoopKind::For, var, extent, body: steady })])
}

/// The ring of a loop whose copies some warps make and others use.
fn ring(
    ahead: &[Stmt],
    rest: &[Stmt],
    buffers: u32,
    uses_copies: &dyn Fn(&Stmt) -> bool,
) -> Option<RingData> {
    let fills = Warps::that_run(ahead, &|_| true)?;
    let empties = Warps::that_run(rest, uses_copies)?;
    (!fills.overlaps(empties)).then_some(RingData { buffers, fills, empties })
}

/// Makes statements that load and store copies that run in the background.
struct Copier<'a> {
    kernel: &'a Kernel,
    /// For each memory, whether the loop stores to it.
    stored: &'a [bool],
    /// For each memory, whether the loop alone touches it.
    own: &'a [bool],
    loads: HashMap<Val, Element>,
}

impl Copier<'_> {
    /// The statement as copies. None where it does something else.
    fn stmt(&mut self, stmt: &Stmt) -> Option<Stmt> {
        match stmt {
            Stmt::Loop(inner) => Some(Stmt::Loop(Loop { body: self.block(&inner.body)?, ..inner.clone() })),
            Stmt::If { cond, then, other } => {
                Some(Stmt::If { cond: cond.clone(), then: self.block(then)?, other: self.block(other)? })
            }
            Stmt::Act(Act::Copy { count, from, along: None, to, is_async: false }) => {
                let is_ahead = !self.stored[from.mem.index()] && self.is_own(to.mem);
                let (count, from, to) = (*count, from.clone(), to.clone());
                let copy = Act::Copy { count, from, along: None, to, is_async: true };
                is_ahead.then_some(Stmt::Act(copy))
            }
            Stmt::Act(Act::BoxCopy(copy)) => {
                let is_ahead = !self.stored[copy.from.index()] && self.is_own(copy.to);
                is_ahead.then(|| stmt.clone())
            }
            Stmt::Act(_) => None,
        }
    }

    /// Whether a memory is shared, and the loop's alone.
    fn is_own(&self, mem: Mem) -> bool {
        self.kernel.mems[mem].space == MemorySpace::Shared && self.own[mem.index()]
    }

    fn block(&mut self, stmts: &[Stmt]) -> Option<Vec<Stmt>> {
        let mut out = Vec::new();
        for stmt in stmts {
            match stmt {
                Stmt::Act(Act::Let { val, op: Op::Load { mem, index, guard, other } }) => {
                    let is_zero = guard.is_empty() || *other == Scalar::zero(self.kernel.vals[*val]);
                    if self.stored[mem.index()] || !is_zero {
                        return None;
                    }
                    let element = Element { mem: *mem, index: index.clone(), guard: guard.clone() };
                    self.loads.insert(*val, element);
                }
                Stmt::Act(Act::Store { mem, index, value, combine: None, guard, atomic: false }) => {
                    let from = self.loads.get(value)?.clone();
                    let [source, target] = [from.mem, *mem].map(|mem| &self.kernel.mems[mem]);
                    if !self.is_own(*mem) || source.dtype != target.dtype {
                        return None;
                    }
                    let to = Element { mem: *mem, index: index.clone(), guard: guard.clone() };
                    out.push(Stmt::Act(Act::Copy { count: 1, from, along: None, to, is_async: true }));
                }
                Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => out.push(self.stmt(stmt)?),
            }
        }
        Some(out)
    }
}
