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
    pub fn usual_shared_bytes(self) -> i64 {
        match self {
            GpuIsa::Sm80 => 163 << 10,
            GpuIsa::Sm90 => 227 << 10,
        }
    }

    /// Instructions that sum products.
    pub fn instructions(self) -> &'static [Instruction] {
        match self {
            GpuIsa::Sm80 | GpuIsa::Sm90 => &[MMA_BF16, MMA_F16],
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
    /// 32-bit registers of a thread, at most.
    pub const REGISTERS: u32 = 255;

    /// Where the sums of a warp's instruction are: row and column of the element that is at `place`, below 2 and 2, among those of a
    /// lane. (PTX ISA, fragments of `mma.m16n8k16`.)
    pub fn sum_of_lane(lane: Expr, place: [Expr; 2]) -> [Expr; 2] {
        let [row, column] = place;
        [lane.floordiv(4) + row * 8, lane.modulo(4) * 2 + column]
    }

    /// The lane that has the sum of a row and a column: that of [`Gpu::sum_of_lane`].
    pub fn lane_of_sum(row: i64, column: i64) -> i64 {
        4 * (row % 8) + column / 2
    }

    /// A GPU of which nothing more is known.
    pub fn new(isa: GpuIsa, units: u32) -> Gpu {
        Gpu { isa, units, shared_bytes: isa.usual_shared_bytes(), rates: Rates::default() }
    }

    /// What runs points at the same time, outermost first.
    pub(super) fn levels(&self) -> Vec<Width> {
        [
            (Level::Block, self.units),
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
