//! Lists the passes on kernels, of which realization runs some, and each backend those that it names.
//!
//! A pass rewrites one kernel in place. It goes by what the target says in numbers, never by which backend asks, so that
//! a second backend inherits it, and the reference device runs what it says. A pass that has run changes nothing when it
//! runs again.

pub mod ahead;
pub mod beside;
mod boxes;
pub mod checked;
pub mod clamp;
pub mod clean;
pub mod contract;
pub mod copies;
pub mod demote;
pub mod edges;
pub mod flatten;
pub mod fragments;
pub mod handover;
pub mod hoist;
pub mod interleave;
pub mod late;
pub mod overlap;
mod pipeline;
pub mod prefetch;
mod preload;
pub mod reduce_lanes;
pub mod resume;
pub mod runs;
pub mod search;
pub mod sync;
pub mod tabulate;
pub mod teams;
pub mod tensorize;
pub mod transpose_loads;
pub mod under_way;
pub mod whole;

use litz_ir::Diag;
use litz_ir::kernel::Kernel;
use litz_ir::target::Target;

/// A rewrite of one kernel for a target.
#[derive(Clone, Copy)]
pub struct Pass {
    /// Name: of the file, the flag and the test folder, and under which it is timed, verified and dumped.
    pub name: &'static str,
    /// The rewrite. An error says why the kernel cannot have the form that the pass gives.
    pub run: fn(&mut Kernel, &Target) -> Result<(), Diag>,
}

/// Every pass.
pub const PASSES: &[Pass] = &[
    clean::PASS,
    flatten::PASS,
    demote::PASS,
    contract::PASS,
    tabulate::PASS,
    tensorize::PASS,
    hoist::PASS,
    copies::PASS,
    prefetch::PASS,
    pipeline::PASS,
    handover::PASS,
    clamp::PASS,
    ahead::PASS,
    beside::PASS,
    preload::PASS,
    runs::PASS,
    transpose_loads::PASS,
    reduce_lanes::PASS,
    interleave::PASS,
    sync::PASS,
    boxes::PASS,
    search::PASS,
    late::PASS,
    fragments::PASS,
    resume::PASS,
    overlap::PASS,
    under_way::PASS,
    edges::PASS,
    whole::PASS,
    teams::PASS,
    checked::PASS,
];

/// What realization ends with, in order: after it a kernel has no dead statements, flat memories and registers that have constant indices;
/// one of a GPU copies what threads have side by side at once, and ahead of pipelined loops, from inside of memories, and loads ahead of stores
/// and of loops that are fed, asks once for runs of elements, with barriers between threads, boxes where one of them copies, and warps that look for what is to be done.
pub fn realization(target: &Target) -> &'static [Pass] {
    const COMMON: [Pass; 3] = [clean::PASS, flatten::PASS, demote::PASS];
    const OF_GPU: [Pass; 15] = [
        COMMON[0],
        COMMON[1],
        COMMON[2],
        hoist::PASS,
        copies::PASS,
        pipeline::PASS,
        handover::PASS,
        clamp::PASS,
        ahead::PASS,
        beside::PASS,
        preload::PASS,
        runs::PASS,
        sync::PASS,
        boxes::PASS,
        search::PASS,
    ];
    match target {
        Target::Cpu(_) => &COMMON,
        Target::Gpu(_) => &OF_GPU,
    }
}

/// Runs passes in order.
///
/// # Errors
/// That of the first pass that fails.
pub fn run(kernel: &mut Kernel, passes: &[Pass], target: &Target) -> Result<(), Diag> {
    passes.iter().try_for_each(|pass| (pass.run)(kernel, target))
}
