//! Decides how a loops program runs: what shares a kernel, in which loops, where buffers live, in what order.
//!
//! Everything here decides and nothing does: the result is a [`Schedule`], which cannot change what is computed.
//! A target is known by its [`TargetInfo`] numbers alone.

#![forbid(unsafe_code)]

mod access;
mod deps;
mod fuse;
mod memory;
mod product;
mod tree;

use litz_ir::loops::{Loops, Stmt};
use litz_ir::schedule::{Local, LocalSpace, Schedule, Step};

pub use fuse::NoFuse;

/// What a target can do, as numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct TargetInfo {
    /// Name shown in the schedule: `cpu(isa=avx512, threads=2)`.
    pub name: String,
    /// Bytes of a vector register.
    pub vector_bytes: u32,
    /// Number of vector registers.
    pub vector_registers: u32,
    /// Threads a launch is spread over.
    pub threads: u32,
    /// Bytes of the cache a thread reads at register speed.
    pub l1_bytes: i64,
    /// Bytes of the cache of one core.
    pub l2_bytes: i64,
}

impl TargetInfo {
    /// Lanes of a vector of f32, the unit every vector loop counts in.
    pub fn lanes(&self) -> u32 {
        (self.vector_bytes / 4).max(1)
    }
    /// Columns of a product's register tile, and the width constant operands are packed to: two vectors.
    pub fn tile_columns(&self) -> u32 {
        2 * self.lanes()
    }
}

/// Thresholds, with where they come from.
#[derive(Clone, PartialEq, Debug)]
pub struct Heuristics {
    /// Scalar operations a chunk of a parallel loop has at least. Waking a thread costs about 0.3 us, in which one core
    /// of an AVX-512 machine does this many operations.
    pub chunk_ops: i64,
    /// Elements a pointwise kernel without outer loops takes at a time: 16 KiB of f32, half an L1 cache.
    pub block: i64,
    /// Vectors in flight in a reduction: hides the four-cycle latency of an addition.
    pub reduction_copies: u32,
    /// Vectors in flight when columns are reduced row by row.
    pub column_vectors: u32,
    /// Instructions of an epilogue that are written out for every vector of a register tile; longer ones run as a loop
    /// over the tile, kept in scratch memory. A 28-fold gelu took 18 ms to compile where a loop takes 4.
    pub inline_epilogue: usize,
    /// Terms that a product adds up one after another before it adds the result to the others: keeps the error of long
    /// sums within that of libraries that block the same way.
    pub partial_sum: i64,
    /// Bytes that local buffers of one grid point may take, as a fraction of the second-level cache.
    pub local_fraction: i64,
}

impl Default for Heuristics {
    fn default() -> Self {
        Heuristics {
            chunk_ops: 16 * 1024,
            block: 4096,
            reduction_copies: 4,
            column_vectors: 4,
            inline_epilogue: 8,
            partial_sum: 256,
            local_fraction: 2,
        }
    }
}

/// Whether a consumer joined the kernel of a producer, or why not.
#[derive(Clone, PartialEq, Debug)]
pub struct FusionNote {
    /// Statement that came first.
    pub producer: String,
    /// Statement that could have joined it.
    pub consumer: String,
    /// What was decided.
    pub verdict: Result<(), NoFuse>,
}

/// A schedule and how it came about.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The decision.
    pub schedule: Schedule,
    /// Every fusion considered.
    pub notes: Vec<FusionNote>,
}

/// Schedules `loops` for `target`.
pub fn schedule(loops: &Loops, target: &TargetInfo, heuristics: &Heuristics) -> Outcome {
    let stmts = deps::analyse(loops);
    let (groups, notes) = fuse::fuse(loops, &stmts, target, heuristics);
    let mut steps = Vec::new();
    let mut names = 0..;
    for group in groups.iter().filter(|g| g.at_load).chain(groups.iter().filter(|g| !g.at_load)) {
        if let fuse::GroupKind::Extern = group.kind {
            let name = loops.stmts[group.members[0].stmt].name().to_owned();
            steps.push(Step::Extern { name, at_load: group.at_load });
            continue;
        }
        let name = format!("k{}", names.next().unwrap_or(0));
        let mut plan = match &group.kind {
            fuse::GroupKind::Product(p) => product::plan(loops, group, p, target, heuristics),
            fuse::GroupKind::Loops | fuse::GroupKind::Extern => tree::plan(loops, group, target, heuristics),
        };
        plan.name = name;
        plan.at_load = group.at_load;
        plan.locals = locals(loops, &stmts, group);
        steps.push(Step::Kernel(plan));
    }
    let pools = memory::pools(loops, &steps);
    let schedule =
        Schedule { name: loops.name.clone(), of: loops.name.clone(), target: target.name.clone(), steps, pools };
    Outcome { schedule, notes }
}

/// Buffers that only this group's members touch.
fn locals(loops: &Loops, stmts: &[deps::StmtInfo], group: &fuse::Group) -> Vec<Local> {
    let inside = |s: usize| group.members.iter().any(|m| m.stmt == s);
    let mut locals = Vec::new();
    for member in &group.members {
        for buf in loops.stmts[member.stmt].writes() {
            let lives_on = deps::escapes(loops, buf);
            let elsewhere = stmts
                .iter()
                .enumerate()
                .any(|(s, info)| !inside(s) && (info.reads.contains(&buf) || info.writes.contains(&buf)));
            let name = &loops.bufs[buf].name;
            if !lives_on && !elsewhere && !locals.iter().any(|l: &Local| l.buf == *name) {
                locals.push(Local { buf: name.clone(), scope: None, space: LocalSpace::Scratch });
            }
        }
    }
    locals
}

/// The nest at that position; groups of nests hold nothing else.
fn nest(loops: &Loops, stmt: usize) -> &litz_ir::loops::Nest {
    match &loops.stmts[stmt] {
        Stmt::Nest(n) => n,
        Stmt::Extern(e) => unreachable!("invariant: {} is a call, not a nest", e.name),
    }
}
