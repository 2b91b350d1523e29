//! Describes a GPU as a target.
//!
//! ```text
//! gpu(isa=sm90, units=132, shared=227K, unit.shared=228K, unit.registers=64K, unit.threads=2K, unit.blocks=32, l2=50M)
//! ```
//!
//! What is not given, and is left out where it is as usual, is that of the instruction set.
//!
//! A point of a kernel's grid is a block: up to 1024 threads of one unit that share its memory. Threads run in warps of 32, and
//! four warps are a warpgroup.

use super::units::Bytes;
use super::{Instruction, Level, Memory, Rates, Rounds, Width, sums_of};
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
    /// What the blocks that a unit runs at the same time have together.
    pub unit: Unit,
    /// Bytes of the cache that all units share.
    pub l2_bytes: i64,
    /// What all units together do in a second.
    pub rates: Rates,
}

/// What a unit has for the blocks that it runs at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unit {
    /// Bytes that blocks share among their threads, of which each block takes [`Gpu::RESERVED_BYTES`] more than it asks for.
    pub shared_bytes: i64,
    /// Registers of 32 bits.
    pub registers: u32,
    /// Threads, at most.
    pub threads: u32,
    /// Blocks, at most.
    pub blocks: u32,
}

/// What a block takes of its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockNeeds {
    /// Threads.
    pub threads: i64,
    /// Registers of each thread.
    pub registers: i64,
    /// Bytes that its threads share.
    pub shared_bytes: i64,
}

/// An instruction set of a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum GpuIsa {
    /// NVIDIA, compute capability 8.0: products of 16 by 8 by 16 by a warp.
    Sm80,
    /// NVIDIA, compute capability 8.9: those of [`GpuIsa::Sm80`], and of floats of 8 bits.
    Sm89,
    /// NVIDIA, compute capability 9.0: those of [`GpuIsa::Sm89`], and larger ones by a warpgroup.
    Sm90,
    /// NVIDIA, compute capability 10.0: the products by a warp of [`GpuIsa::Sm90`]. The language has none of its own, whose sums are in
    /// a memory of tensors.
    Sm100,
}

/// Parts of so many that have all of them together.
const fn div_up(all: i64, part: i64) -> i64 {
    (all + part - 1) / part
}

/// Warps that have so many threads, at least one.
const fn warps_of(threads: i64) -> i64 {
    div_up(if threads < 1 { 1 } else { threads }, Gpu::LANES as i64)
}

/// `mma.sync` of a warp. Neighbouring points of a row fill a register of 32 bits.
const fn mma(name: &'static str, dtype: Dtype, [rows, depth]: [u32; 2]) -> Instruction {
    let size = dtype.size() as u32;
    let group = if size < 4 { 4 / size } else { 1 };
    let rounds = matches!(dtype, Dtype::F32 | Dtype::F8E4M3 | Dtype::F8E5M2);
    Instruction { name, dtype, sums: sums_of(dtype), rows, columns: 8, depth, group, rounds }
}

/// `wgmma` of a warpgroup: columns in eights, 32 bytes of each row.
const fn wgmma(name: &'static str, dtype: Dtype) -> Instruction {
    Instruction { columns: 256, ..mma(name, dtype, [64, 32 / dtype.size() as u32]) }
}

/// Every instruction, of those for one type and one team the one that does most first. What an instruction set has is the start of it up to a
/// number, so that each has what those before it have. (PTX ISA 8.7, shapes of `mma` and `wgmma.mma_async`.)
pub(super) static INSTRUCTIONS: [Instruction; 23] = [
    mma("mma.m16n8k16.bf16", Dtype::BF16, [16, 16]),
    mma("mma.m16n8k8.bf16", Dtype::BF16, [16, 8]),
    mma("mma.m16n8k16.f16", Dtype::F16, [16, 16]),
    mma("mma.m16n8k8.f16", Dtype::F16, [16, 8]),
    mma("mma.m16n8k8.tf32", Dtype::F32, [16, 8]),
    mma("mma.m16n8k4.tf32", Dtype::F32, [16, 4]),
    mma("mma.m16n8k32.s8", Dtype::I8, [16, 32]),
    mma("mma.m16n8k16.s8", Dtype::I8, [16, 16]),
    mma("mma.m16n8k32.u8", Dtype::U8, [16, 32]),
    mma("mma.m16n8k16.u8", Dtype::U8, [16, 16]),
    mma("mma.m8n8k4.f64", Dtype::F64, [8, 4]),
    // From sm_89 on.
    mma("mma.m16n8k32.e4m3", Dtype::F8E4M3, [16, 32]),
    mma("mma.m16n8k32.e5m2", Dtype::F8E5M2, [16, 32]),
    // From sm_90 on.
    mma("mma.m16n8k16.f64", Dtype::F64, [16, 16]),
    mma("mma.m16n8k8.f64", Dtype::F64, [16, 8]),
    mma("mma.m16n8k4.f64", Dtype::F64, [16, 4]),
    // sm_90a alone.
    wgmma("wgmma.m64k16.bf16", Dtype::BF16),
    wgmma("wgmma.m64k16.f16", Dtype::F16),
    wgmma("wgmma.m64k8.tf32", Dtype::F32),
    wgmma("wgmma.m64k32.e4m3", Dtype::F8E4M3),
    wgmma("wgmma.m64k32.e5m2", Dtype::F8E5M2),
    wgmma("wgmma.m64k32.s8", Dtype::I8),
    wgmma("wgmma.m64k32.u8", Dtype::U8),
];

impl GpuIsa {
    /// Every instruction set.
    pub const ALL: [GpuIsa; 4] = [GpuIsa::Sm80, GpuIsa::Sm89, GpuIsa::Sm90, GpuIsa::Sm100];

    /// The name in a target's text.
    pub fn name(self) -> &'static str {
        match self {
            GpuIsa::Sm80 => "sm80",
            GpuIsa::Sm89 => "sm89",
            GpuIsa::Sm90 => "sm90",
            GpuIsa::Sm100 => "sm100",
        }
    }

    /// Bytes that the threads of one block may share, at most.
    pub const fn usual_shared_bytes(self) -> i64 {
        self.usual_unit().shared_bytes - Gpu::RESERVED_BYTES
    }

    /// What a unit has. (CUDA programming guide, technical specifications per compute capability.)
    pub const fn usual_unit(self) -> Unit {
        let (shared, threads, blocks) = match self {
            GpuIsa::Sm80 => (164, 2048, 32),
            GpuIsa::Sm89 => (100, 1536, 24),
            GpuIsa::Sm90 | GpuIsa::Sm100 => (228, 2048, 32),
        };
        Unit { shared_bytes: shared << 10, registers: 64 << 10, threads, blocks }
    }

    /// Bytes of the cache that all units share: of an A100, L40S, H100 and B200.
    pub const fn usual_l2_bytes(self) -> i64 {
        let megabytes = match self {
            GpuIsa::Sm80 => 40,
            GpuIsa::Sm89 => 96,
            GpuIsa::Sm90 => 50,
            GpuIsa::Sm100 => 126,
        };
        megabytes << 20
    }

    /// Whether blocks run in clusters, which share memory.
    pub fn has_clusters(self) -> bool {
        self.has_box()
    }

    /// Whether one thread has a box of elements copied between global and shared memory.
    pub fn has_box(self) -> bool {
        match self {
            GpuIsa::Sm80 | GpuIsa::Sm89 => false,
            GpuIsa::Sm90 | GpuIsa::Sm100 => true,
        }
    }

    /// Whether each thread has 4, 8 or 16 bytes copied from global to shared memory while it goes on.
    pub fn has_async_copy(self) -> bool {
        match self {
            GpuIsa::Sm80 | GpuIsa::Sm89 | GpuIsa::Sm90 | GpuIsa::Sm100 => true,
        }
    }

    /// Instructions that sum products.
    pub fn instructions(self) -> &'static [Instruction] {
        let count = match self {
            GpuIsa::Sm80 => 11,
            GpuIsa::Sm89 => 13,
            GpuIsa::Sm100 => 16,
            GpuIsa::Sm90 => INSTRUCTIONS.len(),
        };
        &INSTRUCTIONS[..count]
    }
}

impl Gpu {
    /// Lanes of a warp.
    pub const LANES: u32 = 32;
    /// Rows that an instruction of a warpgroup takes.
    pub const WARPGROUP_ROWS: u32 = 64;
    /// Threads of a warpgroup.
    pub const WARPGROUP: u32 = 128;
    /// Threads of a block, at most.
    pub const THREADS: u32 = 1024;
    /// Bytes that a thread loads or stores at once, at most.
    pub const VECTOR_BYTES: u32 = 16;
    /// Blocks of a cluster that every GPU with clusters runs.
    pub const CLUSTER: u32 = 8;
    /// Dimensions of a box that one thread has copied, at most.
    pub const BOX_DIMS: usize = 5;
    /// Elements of a box along a dimension, at most.
    pub const BOX_ELEMENTS: u32 = 256;
    /// Bytes of a row of a box whose units change places, at most.
    pub const BOX_ROW_BYTES: i64 = 128;
    /// Blocks of one launch, at most.
    pub const BLOCKS: u32 = i32::MAX as u32;
    /// 32-bit registers of a thread, at most.
    pub const REGISTERS: u32 = 255;
    /// Bytes of memory of its own that a thread has beside its registers, at most. (CUDA C++ Programming Guide, technical specifications.)
    pub const SCRATCH_BYTES: i64 = 512 << 10;

    /// Bytes of shared memory that a block takes beyond what its threads share.
    pub const RESERVED_BYTES: i64 = 1 << 10;
    /// Bytes that a unit loads in a clock from the cache that all units share.
    pub const LOADED_IN_CLOCK: i64 = 64;

    /// Registers are given to warps in so many for each thread.
    pub const REGISTER_STEP: i64 = 8;

    /// Parts of a unit, which have each a share of its registers and of the warps of a block.
    const PARTS: i64 = 4;
    /// Registers of a thread of warps that only have boxes copied, where those that compute have some of theirs.
    pub const COPYING_REGISTERS: u32 = 40;

    /// Registers of a thread, at most, with which a unit has enough of them for so many threads.
    pub fn registers_for(&self, threads: i64) -> u32 {
        let of_part = i64::from(self.unit.registers) / Gpu::PARTS;
        let warps = div_up(warps_of(threads), Gpu::PARTS);
        let registers = of_part / (warps * i64::from(Gpu::LANES)) / Gpu::REGISTER_STEP * Gpu::REGISTER_STEP;
        registers.clamp(0, i64::from(Gpu::REGISTERS)) as u32
    }

    /// Registers of a thread that computes, at most, where a unit has a block at a time, in which so many threads compute and a warpgroup behind them has
    /// boxes copied. That gives up all but [`Gpu::COPYING_REGISTERS`]: of 64 Ki registers 256 threads have 232 each, and
    /// not 168.
    pub fn registers_beside_copies(&self, threads: i64) -> u32 {
        let copying = i64::from(Gpu::WARPGROUP);
        let all = threads + copying;
        let left = i64::from(self.registers_for(all)) * all - i64::from(Gpu::COPYING_REGISTERS) * copying;
        let registers = left / threads.max(1) / Gpu::REGISTER_STEP * Gpu::REGISTER_STEP;
        registers.clamp(0, i64::from(Gpu::REGISTERS) / Gpu::REGISTER_STEP * Gpu::REGISTER_STEP) as u32
    }

    /// Registers that each thread of a block is launched with, of which so many threads are to have `registers` each, and a warpgroup behind them
    /// [`Gpu::COPYING_REGISTERS`].
    pub fn registers_at_launch(threads: u32, registers: u32) -> u32 {
        let wanted = threads * registers + Gpu::WARPGROUP * Gpu::COPYING_REGISTERS;
        wanted.div_ceil(threads + Gpu::WARPGROUP).next_multiple_of(Gpu::REGISTER_STEP as u32)
    }

    /// Blocks that all units run at the same time, of which each needs so much. 0 where a unit has no room for one. (CUDA's `cuda_occupancy.h` says
    /// how registers are shared out: the warps of a block go to the four parts of a unit, as evenly as they can.)
    pub fn resident(&self, needs: BlockNeeds) -> i64 {
        let Unit { shared_bytes, registers, threads, blocks } = self.unit;
        let lanes = i64::from(Gpu::LANES);
        let warps = warps_of(needs.threads);
        let of_thread = div_up(needs.registers.max(1), Gpu::REGISTER_STEP) * Gpu::REGISTER_STEP;
        let warps_of_part = i64::from(registers) / Gpu::PARTS / lanes.saturating_mul(of_thread);
        let has_room = div_up(warps, Gpu::PARTS) <= warps_of_part;
        let of_unit = [
            i64::from(blocks),
            i64::from(threads) / (warps * lanes),
            if has_room { warps_of_part * Gpu::PARTS / warps } else { 0 },
            shared_bytes / needs.shared_bytes.saturating_add(Gpu::RESERVED_BYTES),
        ];
        of_unit.into_iter().min().unwrap_or(0) * i64::from(self.units)
    }

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

    /// Products that a unit sums in a clock: by the instructions of warps 1024 of 16 bits, and as many bytes of other types, by those of
    /// warpgroups, which find both operands in shared memory, twice as many (989 TFLOP/s of an H100: 132 units at 1.83 GHz). For threads see
    /// [`ThreadTile`](super::ThreadTile).
    pub fn products_in_clock(by: &Instruction) -> i64 {
        let bytes = if by.is_of_warpgroup() { 4096 } else { 2048 };
        bytes / by.dtype.size() as i64
    }

    /// Instructions of a warp that sum products of these types as exactly as is wanted.
    pub fn of_warp(
        &self,
        dtype: Dtype,
        sums: Dtype,
        rounds: Rounds,
    ) -> impl Iterator<Item = &'static Instruction> {
        let is_it = move |by: &&Instruction| {
            !by.is_of_warpgroup() && rounds.allow(by) && (by.dtype, by.sums) == (dtype, sums)
        };
        self.isa.instructions().iter().filter(is_it)
    }

    /// The instruction that a warpgroup has for operands and sums of these types, as [`Gpu::of_warp`].
    pub fn of_warpgroup(&self, dtype: Dtype, sums: Dtype, rounds: Rounds) -> Option<&'static Instruction> {
        let is_it = |by: &&Instruction| {
            by.is_of_warpgroup() && rounds.allow(by) && (by.dtype, by.sums) == (dtype, sums)
        };
        self.isa.instructions().iter().find(is_it)
    }

    /// The instruction that one of these runs, which sums products of `rows`, `columns` and `depth` points.
    pub fn instruction(&self, level: Level, dtype: Dtype, shape: [i64; 3]) -> Option<&'static Instruction> {
        let [rows, columns, depth] = shape;
        let fits = |instruction: &&Instruction| {
            // Of bytes, an instruction takes more than 32 columns in sixteens.
            let step = if instruction.sums == Dtype::I32 && columns > 32 { 16 } else { 8 };
            let is_wide = i64::from(instruction.columns) == columns
                || level == Level::Warpgroup
                    && columns % step == 0
                    && columns <= i64::from(instruction.columns);
            let team = if instruction.rows == Gpu::WARPGROUP_ROWS { Level::Warpgroup } else { Level::Warp };
            let sizes = [i64::from(instruction.rows), i64::from(instruction.depth)];
            team == level && instruction.dtype == dtype && sizes == [rows, depth] && columns > 0 && is_wide
        };
        self.isa.instructions().iter().find(fits)
    }

    /// A GPU of which nothing more is known.
    pub const fn new(isa: GpuIsa, units: u32) -> Gpu {
        let (shared_bytes, unit) = (isa.usual_shared_bytes(), isa.usual_unit());
        Gpu { isa, units, shared_bytes, unit, l2_bytes: isa.usual_l2_bytes(), rates: Rates::UNKNOWN }
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

    /// Sizes that a target's text may say, by their keys.
    fn sizes(&self) -> [(&'static str, i64); 6] {
        let Unit { shared_bytes, registers, threads, blocks } = self.unit;
        [
            ("shared", self.shared_bytes),
            ("unit.shared", shared_bytes),
            ("unit.registers", i64::from(registers)),
            ("unit.threads", i64::from(threads)),
            ("unit.blocks", i64::from(blocks)),
            ("l2", self.l2_bytes),
        ]
    }

    pub(super) fn memories(&self) -> Vec<Memory> {
        vec![Memory { name: "shared", bytes: self.shared_bytes }, Memory { name: "l2", bytes: self.l2_bytes }]
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu(isa={}, units={}", self.isa.name(), self.units)?;
        let usual = Gpu::new(self.isa, self.units);
        for (own, usual) in self.sizes().into_iter().zip(usual.sizes()) {
            if own != usual {
                write!(f, ", {}={}", own.0, Bytes(own.1))?;
            }
        }
        self.rates.write(f)?;
        f.write_str(")")
    }
}
