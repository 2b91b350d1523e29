//! Hands shared memory from the warps that store to it to others that read it by rings, in a kernel whose warps have roles.
//!
//! ```text
//! unroll z in 2 { warp w in 1 from 8 { store to s }; warpgroup g in 2 { use s } }
//!   =>  unroll z in 2 {
//!         acquire empty ring 1 as f; warp w in 1 from 8 { store to s }; release full ring 1
//!         acquire full ring 1 as u; warpgroup g in 2 { use s }; release empty ring 1
//!       }
//! ```
//!
//! A barrier would do, but warps that copy ahead of others would wait there for those. So a kernel that has no ring has none behind this pass.
//! The ring has one buffer: what is stored next waits for those that read.

use super::Pass;
use litz_ir::Diag;
use litz_ir::ids::Id;
use litz_ir::kernel::{Act, Filling, Kernel, Mem, MemorySpace, RingData, Stmt, Sync, Warps, visit};
use litz_ir::target::{Level, Target};
use litz_sym::Sym;
use std::collections::{BTreeMap, HashSet};

/// The pass.
pub const PASS: Pass = Pass { name: "handover", run };

fn run(kernel: &mut Kernel, _: &Target) -> Result<(), Diag> {
    if kernel.rings.is_empty() {
        return Ok(());
    }
    let body = std::mem::take(&mut kernel.body);
    let mut accesses = vec![0; kernel.mems.len()];
    let mut buffers = HashSet::new();
    visit(&body, &mut |stmt| {
        stmt.accesses().for_each(|(mem, _)| accesses[mem.index()] += 1);
        if let Stmt::Act(Act::Sync(Sync::Acquire { buffer, .. })) = stmt {
            buffers.insert(*buffer);
        }
    });
    kernel.body = Handover { kernel, accesses, buffers }.block(body);
    Ok(())
}

struct Handover<'a> {
    kernel: &'a mut Kernel,
    /// How often each memory is accessed.
    accesses: Vec<usize>,
    /// The buffers of rings.
    buffers: HashSet<Sym>,
}

/// A memory that is stored to by some statements of a block, and read by others behind them.
struct Found {
    mem: Mem,
    stores: [usize; 2],
    loads: [usize; 2],
    ring: RingData,
}

impl Handover<'_> {
    /// A block of statements that all threads of a block run.
    fn block(&mut self, stmts: Vec<Stmt>) -> Vec<Stmt> {
        let mut stmts = stmts;
        for stmt in &mut stmts {
            let is_of_threads =
                matches!(stmt, Stmt::Loop(inner) if inner.kind.level().is_some_and(Level::has_threads));
            if !is_of_threads {
                for inner in stmt.blocks_mut() {
                    *inner = self.block(std::mem::take(inner));
                }
            }
        }
        let mems: Vec<Mem> = self.kernel.mems.ids().collect();
        let found: Vec<Found> = mems.into_iter().filter_map(|mem| self.found(&stmts, mem)).collect();
        // What stands ahead of a statement, and what behind it.
        let mut around: BTreeMap<usize, [Vec<Stmt>; 2]> = BTreeMap::new();
        for Found { mem, stores, loads, ring } in found {
            let ring = self.kernel.rings.push(ring);
            let acquire = |filling| {
                let buffer = self.buffer(mem, filling);
                Stmt::Act(Act::Sync(Sync::Acquire { ring, filling, buffer }))
            };
            let release = |filling| Stmt::Act(Act::Sync(Sync::Release { ring, filling }));
            let [ahead, _] = around.entry(stores[0]).or_default();
            ahead.push(acquire(Filling::Empty));
            let [_, behind] = around.entry(stores[1]).or_default();
            behind.push(release(Filling::Full));
            let [ahead, _] = around.entry(loads[0]).or_default();
            ahead.push(acquire(Filling::Full));
            let [_, behind] = around.entry(loads[1]).or_default();
            behind.push(release(Filling::Empty));
        }
        let mut out = Vec::with_capacity(stmts.len());
        for (at, stmt) in stmts.into_iter().enumerate() {
            let [ahead, behind] = around.remove(&at).unwrap_or_default();
            out.extend(ahead);
            out.push(stmt);
            out.extend(behind);
        }
        out
    }

    /// The name of the buffer of a memory's ring, for those that wait for it to be such.
    fn buffer(&self, mem: Mem, filling: Filling) -> Sym {
        let role = if filling == Filling::Empty { "filled" } else { "used" };
        Sym::new(&format!("{}_{role}", self.kernel.mems[mem].name))
    }

    /// The ring that hands a memory over among these statements.
    fn found(&self, stmts: &[Stmt], mem: Mem) -> Option<Found> {
        let is_handed_over = self.buffers.contains(&self.buffer(mem, Filling::Empty));
        if self.kernel.mems[mem].space != MemorySpace::Shared || is_handed_over {
            return None;
        }
        let (mut count, mut is_in_ring) = (0, false);
        let mut stores = Vec::new();
        let mut loads = Vec::new();
        for (at, stmt) in stmts.iter().enumerate() {
            visit(std::slice::from_ref(stmt), &mut |stmt| {
                let syms =
                    |index: &[litz_sym::Expr]| index.iter().flat_map(|at| at.syms()).collect::<Vec<Sym>>();
                let own = |access: &(Mem, &[litz_sym::Expr])| access.0 == mem;
                stmt.accesses().filter(own).for_each(|(_, index)| {
                    count += 1;
                    is_in_ring |= syms(index).iter().any(|sym| self.buffers.contains(sym));
                });
                stores.extend(stmt.stored().filter(own).map(|_| at));
                loads.extend(stmt.loaded().filter(own).map(|_| at));
            });
        }
        let is_all = count > 0 && count == self.accesses[mem.index()] && !is_in_ring;
        let range = |places: &[usize]| Some([*places.first()?, *places.last()?]);
        let (stores, loads) = (range(&stores)?, range(&loads)?);
        if !is_all || stores[1] >= loads[0] {
            return None;
        }
        let is_store = |stmt: &Stmt| stmt.stored().any(|access| access.0 == mem);
        let is_load = |stmt: &Stmt| stmt.loaded().any(|access| access.0 == mem);
        let fills = Warps::that_run(&stmts[stores[0]..=stores[1]], &is_store)?;
        let empties = Warps::that_run(&stmts[loads[0]..=loads[1]], &is_load)?;
        let ring = RingData { buffers: 1, fills, empties };
        (!fills.overlaps(empties)).then_some(Found { mem, stores, loads, ring })
    }
}
