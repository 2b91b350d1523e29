//! Defines the thresholds of the scheduler.

use litz_ir::target::Target;

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
    /// Vectors in flight in a loop that computes mathematical functions: chains of some 30 dependent instructions, of
    /// which an Intel core overlaps three. gelu of 128x1024 took 60 us with one and 46 us
    /// with four (Granite Rapids, one thread).
    pub function_copies: u32,
    /// Vectors in flight when columns are reduced row by row.
    pub column_vectors: u32,
    /// Instructions of an epilogue that are written out for every vector of a register tile; longer ones run as a loop
    /// over the tile, kept in scratch memory. A 28-fold gelu took 18 ms to compile where a loop takes 4.
    pub inline_epilogue: usize,
    /// Terms that an accumulator of a sum adds up one after another before it adds the result to the others; lanes and vectors in
    /// flight are accumulators of their own. Rounding errors of n terms
    /// in K blocks of b grow as sqrt(n*b + n*n/b). On an Intel Xeon a product of 128x768x768 takes 1 % longer with 96 than
    /// with 128, 2 to 3 % with 64, and errs 0.88 and 0.76 times as much. Tiles of few rows have shorter blocks.
    pub partial_sum: i64,
    /// The same for sums that are rounded to a half type: one after another, so many terms err by less than half of
    /// the unit in which a bf16 result is rounded.
    pub partial_half: i64,
    /// The least of these for sums of columns, which have no lanes to share the terms, and of rows that are shorter than a vector: as
    /// many as there are blocks of them are best, up to `partial_sum`.
    pub partial_column: i64,
    /// Whether kernels are merged that read the same data with their axes in another order, or with one axis for several.
    pub reorder_axes: ReorderAxes,
    /// Bytes that local buffers of one grid point may take, as a fraction of the second-level cache.
    pub local_fraction: i64,
    /// Small kernels that do not depend on each other and share a launch, at most; with 1 each has its own, with 0 as many as are best
    /// on the target (see [`Heuristics::most_together`]).
    pub launch_together: usize,
    /// Which of the plans that a family of GPU kernels has for its statements is taken, in the order in which it holds them to be fast: the first,
    /// 0, unless somebody times others. Where there are no so many, the first.
    pub choice: usize,
    /// Bytes by which the memory in use at once may grow for a byte that a call neither stores nor loads, where kernels become one.
    /// PyTorch's compiler takes the same number (`can_fusion_increase_peak_memory`), for its estimate of what lives longer. The launch
    /// that is saved as well is worth some, too.
    pub memory_growth: i64,
    /// Which buffers share memory.
    pub memory_pool: MemoryPool,
}

/// Which of the buffers that kernels leave to each other share memory. Modes are called as those of `memory_pool` of PyTorch's compiler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryPool {
    /// None: each has memory of its own until the call ends, and no kernel writes one over another. Whatever writes outside of its
    /// buffer, or reads one that is done with, meets nothing else there.
    None,
    /// Those that a call does not return, with each other.
    Intermediates,
    /// These also with results before they are written, and with inputs that the caller gives up, behind their last use.
    Combined,
}

/// Which kernels are merged that read the same data with their axes in another order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReorderAxes {
    /// None.
    Never,
    /// Those whose statements store neighbouring elements along the same loop.
    KeepingNeighbours,
    /// All. The data is read once, and some of the statements store elements that are far apart: `exp(x.t())` and `sin(x)` of
    /// 4096 x 2048 f32 took 31 ms in one kernel and 11 ms in two (two threads of an Intel Xeon, AVX-512).
    Always,
}

impl Heuristics {
    /// Small kernels that share a launch, at most: on a GPU each launch is about two microseconds in which little else happens, on a CPU what threads
    /// that are awake wait for hardly any.
    pub fn most_together(&self, target: &Target) -> usize {
        match (self.launch_together, target) {
            (0, Target::Cpu(_)) => 1,
            (0, Target::Gpu(_)) => 8,
            (most, _) => most,
        }
    }
}

impl Default for Heuristics {
    fn default() -> Self {
        Heuristics {
            chunk_ops: 16 * 1024,
            block: 4096,
            reduction_copies: 4,
            function_copies: 4,
            column_vectors: 4,
            inline_epilogue: 8,
            partial_sum: 96,
            partial_half: 16384,
            partial_column: 32,
            reorder_axes: ReorderAxes::KeepingNeighbours,
            local_fraction: 2,
            launch_together: 0,
            choice: 0,
            memory_growth: 32,
            memory_pool: MemoryPool::Combined,
        }
    }
}
