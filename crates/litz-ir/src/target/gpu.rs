//! Describes a GPU as a target.
//!
//! ```text
//! gpu(isa=sm90, units=132, shared=227K)
//! ```
//!
//! A point of a kernel's grid is a block: up to 1024 threads of one unit that share its memory. Threads run in warps of 32, and
//! four warps are a warpgroup.

use super::{Bytes, Instruction, Level, Memory, Rate, Rates, Width};
use crate::Dtype;
use litz_sym::Expr;
use std::fmt;

/// A GPU as a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gpu {
    /// The instruction set.
    pub isa: GpuIsa,
    /// Units that run blocks.
    pub units: u32,
    /// Bytes that the threads of one block may share.
    pub shared_bytes: i64,
    /// What all units together do in a second.
    pub rates: Rates,
}

/// An instruction set of a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum GpuIsa {
    /// NVIDIA, compute capability 8.0: products of 16 by 8 by 16 by a warp.
    Sm80,
    /// NVIDIA, compute capability 9.0: those of [`GpuIsa::Sm80`], and larger ones by a warpgroup.
    Sm90,
}

/// `mma.m16n8k16` of a warp: bf16 or f16 operands, sums in f32.
const fn mma(name: &'static str, dtype: Dtype) -> Instruction {
    Instruction { name, dtype, rows: 16, columns: 8, depth: 16, group: 2 }
}

/// `wgmma.m64nNk16` of a warpgroup: bf16 or f16 operands in shared memory, sums in f32, columns in eights.
const fn wgmma(name: &'static str, dtype: Dtype) -> Instruction {
    Instruction { name, dtype, rows: 64, columns: 256, depth: 16, group: 2 }
}

/// Products by a warpgroup, of bf16.
pub(super) const WGMMA_BF16: Instruction = wgmma("wgmma.m64k16.bf16", Dtype::BF16);
/// Products by a warpgroup, of f16.
pub(super) const WGMMA_F16: Instruction = wgmma("wgmma.m64k16.f16", Dtype::F16);
/// Products by a warp, of bf16.
pub(super) const MMA_BF16: Instruction = mma("mma.m16n8k16.bf16", Dtype::BF16);
/// Products by a warp, of f16.
pub(super) const MMA_F16: Instruction = mma("mma.m16n8k16.f16", Dtype::F16);

impl GpuIsa {
    /// Every instruction set.
    pub const ALL: [GpuIsa; 2] = [GpuIsa::Sm80, GpuIsa::Sm90];

    /// The name in a target's text.
    pub fn name(self) -> &'static str {
        match self {
            GpuIsa::Sm80 => "sm80",
            GpuIsa::Sm90 => "sm90",
        }
    }

    /// Bytes that the threads of one block may share, at most.
    pub const fn usual_shared_bytes(self) -> i64 {
        match self {
            GpuIsa::Sm80 => 163 << 10,
            GpuIsa::Sm90 => 227 << 10,
        }
    }

    /// Whether blocks run in clusters, which share memory.
    pub fn has_clusters(self) -> bool {
        match self {
            GpuIsa::Sm80 => false,
            GpuIsa::Sm90 => true,
        }
    }

    /// Instructions that sum products.
    pub fn instructions(self) -> &'static [Instruction] {
        match self {
            GpuIsa::Sm80 => &[MMA_BF16, MMA_F16],
            GpuIsa::Sm90 => &[MMA_BF16, MMA_F16, WGMMA_BF16, WGMMA_F16],
        }
    }
}

impl Gpu {
    /// Lanes of a warp.
    pub const LANES: u32 = 32;
    /// Threads of a warpgroup.
    pub const WARPGROUP: u32 = 128;
    /// Threads of a block, at most.
    pub const THREADS: u32 = 1024;
    /// Bytes that a thread loads or stores at once, at most.
    pub const VECTOR_BYTES: u32 = 16;
    /// Blocks of a cluster that every GPU with clusters runs.
    pub const CLUSTER: u32 = 8;
    /// Blocks of one launch, at most.
    pub const BLOCKS: u32 = i32::MAX as u32;
    /// 32-bit registers of a thread, at most.
    pub const REGISTERS: u32 = 255;

    /// Where the sums of an instruction are: row and column of the element that is at `place`, below 2 and 2, of those that a lane of a
    /// warp has of eight columns. (PTX ISA, fragments of `mma.m16n8k16` and `wgmma.m64nNk16`.)
    pub fn sum_of_thread([warp, lane]: [Expr; 2], place: [Expr; 2]) -> [Expr; 2] {
        let [row, column] = place;
        [warp * 16 + lane.floordiv(4) + row * 8, lane.modulo(4) * 2 + column]
    }

    /// The thread, of those that run an instruction, that has the sum of a row and a column: that of [`Gpu::sum_of_thread`].
    pub fn thread_of_sum(row: i64, column: i64) -> i64 {
        32 * (row / 16) + 4 * (row % 8) + column % 8 / 2
    }

    /// The instruction that one of these runs, which sums products of `rows`, `columns` and `depth` points.
    pub fn instruction(&self, level: Level, dtype: Dtype, shape: [i64; 3]) -> Option<&'static Instruction> {
        let [rows, columns, depth] = shape;
        let fits = |instruction: &&Instruction| {
            let is_wide = i64::from(instruction.columns) == columns
                || level == Level::Warpgroup && columns % 8 == 0 && columns <= i64::from(instruction.columns);
            let team = if instruction.rows == 64 { Level::Warpgroup } else { Level::Warp };
            let sizes = [i64::from(instruction.rows), i64::from(instruction.depth)];
            team == level && instruction.dtype == dtype && sizes == [rows, depth] && columns > 0 && is_wide
        };
        self.isa.instructions().iter().find(fits)
    }

    /// A GPU of which nothing more is known.
    pub const fn new(isa: GpuIsa, units: u32) -> Gpu {
        Gpu { isa, units, shared_bytes: isa.usual_shared_bytes(), rates: Rates::UNKNOWN }
    }

    /// What runs points at the same time, outermost first.
    pub(super) fn levels(&self) -> Vec<Width> {
        [
            (Level::Grid, self.units),
            (Level::Block, Gpu::BLOCKS),
            (Level::Warpgroup, Gpu::THREADS / Gpu::WARPGROUP),
            (Level::Warp, Gpu::THREADS / Gpu::LANES),
            (Level::Thread, Gpu::THREADS),
            (Level::Lane, Gpu::LANES),
        ]
        .map(|(level, count)| Width { level, count })
        .to_vec()
    }

    pub(super) fn memories(&self) -> Vec<Memory> {
        vec![Memory { name: "shared", bytes: self.shared_bytes }]
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu(isa={}, units={}", self.isa.name(), self.units)?;
        if self.shared_bytes != self.isa.usual_shared_bytes() {
            write!(f, ", shared={}", Bytes(self.shared_bytes))?;
        }
        self.rates.write(f)?;
        f.write_str(")")
    }
}

impl Rates {
    /// Writes those that are known, each behind a comma.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bandwidth != 0 {
            write!(f, ", bandwidth={}", Rate(self.bandwidth))?;
        }
        for (dtype, flops) in Rates::DTYPES.into_iter().zip(self.flops).filter(|rate| rate.1 != 0) {
            write!(f, ", flops.{dtype}={}", Rate(flops))?;
        }
        Ok(())
    }
}
