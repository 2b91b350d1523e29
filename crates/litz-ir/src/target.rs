//! Describes a target as data with a text form, which the compiler, its options, schedules, tests and fuzzers share.
//!
//! ```text
//! cpu(isa=avx512-amx, threads=7, l1=48K, l2=2M)
//! ```
//!
//! The word in front is the kind of machine, and says what is in the parentheses. Of a CPU, `isa` and `threads` have to be
//! given. Caches that are not are those of [`Cpu::USUAL_L1_BYTES`] and [`Cpu::USUAL_L2_BYTES`]; their sizes are numbers of
//! bytes, or of KiB (`48K`) or MiB (`2M`). What it does in a second is unknown unless it is given: `bandwidth=80G, flops.f32=1T`
//! are 80e9 bytes and 1e12 operations on f32. Of a GPU, `isa` and `units` have to be given; see [`Gpu`].

mod fragments;
mod gpu;
mod text;
mod tiles;
mod units;

pub use fragments::Side;
pub use gpu::{BlockNeeds, Gpu, GpuIsa, Unit};
pub use tiles::ThreadTile;

use crate::Dtype;

/// A machine that programs are compiled for, as far as decisions depend on it: one variant for each kind of machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// Threads that share memory, with vector registers.
    Cpu(Cpu),
    /// Units with many threads that run in lockstep, and a memory that a block of them shares.
    Gpu(Gpu),
}

/// A CPU as a target.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    /// The instruction set.
    pub isa: Isa,
    /// Threads a launch is spread over.
    pub threads: u32,
    /// Bytes of the cache a thread reads at register speed.
    pub l1_bytes: i64,
    /// Bytes of the cache of one core.
    pub l2_bytes: i64,
    /// What all threads together do in a second.
    pub rates: Rates,
}

/// What a machine does in a second at most; 0 where that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Rates {
    /// Bytes read from or written to main memory.
    pub bandwidth: u64,
    /// Operations on each of [`Rates::DTYPES`].
    flops: [u64; Rates::DTYPES.len()],
}

impl Rates {
    /// Types that machines have different rates for.
    pub const DTYPES: [Dtype; 5] = [Dtype::I8, Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64];

    /// Nothing is known.
    pub const UNKNOWN: Rates = Rates { bandwidth: 0, flops: [0; Rates::DTYPES.len()] };

    /// Operations on a type.
    pub fn flops(&self, dtype: Dtype) -> u64 {
        Rates::DTYPES.iter().position(|d| *d == dtype).map_or(0, |at| self.flops[at])
    }

    /// The same with so many operations on a type, one of [`Rates::DTYPES`].
    pub fn with_flops(mut self, dtype: Dtype, flops: u64) -> Rates {
        if let Some(at) = Rates::DTYPES.iter().position(|d| *d == dtype) {
            self.flops[at] = flops;
        }
        self
    }
}

/// A part of a machine, of which several run points of a loop at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Level {
    /// What runs a point of a kernel's grid: a thread of a CPU; on a GPU a block of threads, or several where a loop says so.
    Grid,
    /// Threads that share memory and meet at barriers.
    Block,
    /// Four warps that issue one instruction together.
    Warpgroup,
    /// Threads that run in lockstep.
    Warp,
    /// A thread of a block, or of a warpgroup where there is one around.
    Thread,
    /// A thread of a warp; on a CPU, one element of a vector of f32.
    Lane,
}

impl Level {
    /// Those that loops of schedules and kernels name.
    pub const LOOPS: [Level; 5] = [Level::Block, Level::Warpgroup, Level::Warp, Level::Thread, Level::Lane];

    /// The word of schedules and kernels for it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Grid => "grid",
            Level::Block => "block",
            Level::Warpgroup => "warpgroup",
            Level::Warp => "warp",
            Level::Thread => "thread",
            Level::Lane => "lane",
        }
    }

    /// Whether its threads are among several that one of it has.
    pub fn has_threads(self) -> bool {
        match self {
            Level::Grid | Level::Block | Level::Warpgroup | Level::Warp => true,
            Level::Thread | Level::Lane => false,
        }
    }

    /// Whether a loop over it may be in one over `outer`, [`Level::Grid`] being what is around all loops.
    pub fn is_within(self, outer: Level) -> bool {
        match outer {
            Level::Grid => matches!(self, Level::Block | Level::Warpgroup | Level::Warp | Level::Thread),
            Level::Block => matches!(self, Level::Warpgroup | Level::Warp | Level::Thread),
            Level::Warpgroup => matches!(self, Level::Warp | Level::Thread),
            Level::Warp => self == Level::Lane,
            Level::Thread | Level::Lane => false,
        }
    }
}

/// The units of a level that run the iterations of a loop: iteration `v` is run by the `each` units from number `from + each*v` on. Loops
/// over different teams are roles of specialized threads, which depend on each other through memory alone.
///
/// Units that run an iteration together do the same: each has private memory of its own, and the first one alone stores to memory that
/// others see. So the four lanes that have sums of one row of an instruction all have what follows from the row's maximum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Team {
    /// The level.
    pub level: Level,
    /// The first of them.
    pub from: u32,
    /// How many run each iteration.
    pub each: u32,
}

/// Blocks that run all points of a grid, each one after another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Persistent {
    /// How many blocks.
    pub blocks: u32,
    /// Teams of a block, each of as many threads as compute a point, 1 or 2. Of two each takes every other point: while one sums, the other stores.
    pub teams: u32,
}

impl Persistent {
    /// The most teams of a block.
    pub const MOST_TEAMS: u32 = 2;

    /// Blocks of one team.
    pub fn of(blocks: u32) -> Persistent {
        Persistent { blocks, teams: 1 }
    }
}

impl From<Level> for Team {
    fn from(level: Level) -> Team {
        Team { level, from: 0, each: 1 }
    }
}

/// How many of a level there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Width {
    /// The level.
    pub level: Level,
    /// How many there are in a block, of lanes in a warp or a vector, of blocks at once in the machine.
    pub count: u32,
}

/// A memory that is nearer than the main one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// The key of its size in a target's text, such as `l1`.
    pub name: &'static str,
    /// Its size.
    pub bytes: i64,
}

/// An instruction set of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Isa {
    /// x86-64 with SSE2 only.
    Sse2,
    /// x86-64-v3: AVX2 and FMA.
    Avx2,
    /// x86-64-v4: AVX-512 F, BW, CD, DQ and VL.
    Avx512,
    /// As [`Isa::Avx512`], with dot products of bytes (VNNI).
    Avx512Vnni,
    /// As [`Isa::Avx512Vnni`], with dot products of bf16.
    Avx512Bf16,
    /// As [`Isa::Avx512Bf16`], with products of bf16 matrices in tile registers.
    Avx512Amx,
    /// AArch64 with Advanced SIMD.
    Neon,
}

/// An instruction that adds a product of small matrices to accumulators. One row is a dot product in each lane of a vector,
/// and one reduced point as well is a multiplication and addition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Instruction {
    /// The name in texts.
    pub name: &'static str,
    /// Type of both operands' elements.
    pub dtype: Dtype,
    /// Type of the accumulators.
    pub sums: Dtype,
    /// Rows of the left operand and of the accumulators, at most.
    pub rows: u32,
    /// Columns of the right operand and of the accumulators, at most.
    pub columns: u32,
    /// Reduced points, at most.
    pub depth: u32,
    /// Neighbouring reduced points that are side by side in the right operand: it is laid out as
    /// `[depth / group, column, group]`. The same for all instructions of a type, which depths are multiples of.
    pub group: u32,
    /// Whether it is less exact than the type of its sums: it rounds operands first (f32 to tf32), or adds up in fewer bits (of floats of 8 bits
    /// about 14 of the mantissa, on compute capability 9.0: DeepSeek-V3 technical report, 3.3.2). It is used only where a schedule names it.
    pub rounds: bool,
}

/// How many products of a sum instructions may add up that are less exact than its type ([`Instruction::rounds`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Rounds {
    /// None.
    #[default]
    Never,
    /// So many, at most: sums of these are added up in the type of the sum.
    Parts(u32),
    /// All.
    Always,
}

impl Rounds {
    /// Whether an instruction is as exact as the sum's type, or may sum as many products as it takes at least.
    pub fn allow(self, by: &Instruction) -> bool {
        match self {
            Rounds::Never => !by.rounds,
            Rounds::Parts(terms) => !by.rounds || by.depth <= terms,
            Rounds::Always => true,
        }
    }
}

impl Instruction {
    /// The one that takes several reduced points at once and has that name, of all targets.
    pub fn mma(name: &str) -> Option<&'static Instruction> {
        let all = [&DOT_S8, &DOT_BF16, &TILE_BF16].into_iter().chain(&gpu::INSTRUCTIONS);
        all.into_iter().find(|instruction| instruction.name == name)
    }

    /// Rows, columns and reduced points that it takes.
    pub fn shape(&self) -> [i64; 3] {
        [self.rows, self.columns, self.depth].map(i64::from)
    }

    /// The threads that run it together: a warp, or a warpgroup. (Of instructions of a GPU.)
    pub fn threads(&self) -> u32 {
        if self.is_of_warpgroup() { Gpu::WARPGROUP } else { Gpu::LANES }
    }

    /// Whether a warpgroup runs it, on operands in shared memory.
    pub fn is_of_warpgroup(&self) -> bool {
        self.rows == Gpu::WARPGROUP_ROWS
    }

    /// Whether it takes several reduced points at once.
    pub fn is_mma(&self) -> bool {
        self.depth > 1
    }
}

/// The type of the sums of products of a type.
const fn sums_of(dtype: Dtype) -> Dtype {
    if matches!(dtype, Dtype::I8 | Dtype::U8) {
        return Dtype::I32;
    }
    if matches!(dtype, Dtype::F64) { Dtype::F64 } else { Dtype::F32 }
}

/// One of a CPU.
const fn cpu(name: &'static str, dtype: Dtype, [rows, columns, depth, group]: [u32; 4]) -> Instruction {
    Instruction { name, dtype, sums: sums_of(dtype), rows, columns, depth, group, rounds: false }
}

const fn fma(columns: u32) -> Instruction {
    cpu("fma", Dtype::F32, [1, columns, 1, 1])
}

/// `vpermps`: in each lane the element of a register that an index chooses.
const LOOKUP_16: Instruction = cpu("lookup.f32", Dtype::F32, [1, 16, 1, 1]);
const FMA_4: Instruction = fma(4);
const FMA_8: Instruction = fma(8);
const FMA_16: Instruction = fma(16);
/// `vdpbf16ps`: two terms of a sum in each of 16 lanes.
const DOT_BF16: Instruction = cpu("dot.bf16.2", Dtype::BF16, [1, 16, 2, 2]);
/// `vpdpbusd`: four terms of a sum in each of 16 lanes. It takes one operand without sign, which is made up for once for each
/// eight terms.
const DOT_S8: Instruction = cpu("dot.s8.8", Dtype::I8, [1, 16, 8, 4]);
/// `tdpbf16ps`: whole tile registers.
const TILE_BF16: Instruction = cpu("amx.tdpbf16ps", Dtype::BF16, [16, 16, 32, 2]);

impl Isa {
    /// Every instruction set.
    pub const ALL: [Isa; 7] =
        [Isa::Sse2, Isa::Avx2, Isa::Avx512, Isa::Avx512Vnni, Isa::Avx512Bf16, Isa::Avx512Amx, Isa::Neon];

    /// The name in a target's text.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Sse2 => "sse2",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Vnni => "avx512-vnni",
            Isa::Avx512Bf16 => "avx512-bf16",
            Isa::Avx512Amx => "avx512-amx",
            Isa::Neon => "neon",
        }
    }

    /// Bytes of a vector register.
    pub fn vector_bytes(self) -> u32 {
        match self {
            Isa::Sse2 | Isa::Neon => 16,
            Isa::Avx2 => 32,
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Avx512Amx => 64,
        }
    }

    /// Number of vector registers.
    pub fn vector_registers(self) -> u32 {
        match self {
            Isa::Sse2 | Isa::Avx2 => 16,
            Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Avx512Amx | Isa::Neon => 32,
        }
    }

    /// Instructions that sum products; of those for one type the one that does most first.
    pub fn instructions(self) -> &'static [Instruction] {
        match self {
            Isa::Sse2 => &[],
            Isa::Neon => &[FMA_4],
            Isa::Avx2 => &[FMA_8],
            Isa::Avx512 => &[FMA_16, LOOKUP_16],
            Isa::Avx512Vnni => &[DOT_S8, FMA_16, LOOKUP_16],
            Isa::Avx512Bf16 => &[DOT_BF16, DOT_S8, FMA_16, LOOKUP_16],
            Isa::Avx512Amx => &[TILE_BF16, DOT_BF16, DOT_S8, FMA_16, LOOKUP_16],
        }
    }

    /// Those that take several reduced points at once.
    pub fn mma(self) -> impl Iterator<Item = &'static Instruction> {
        self.instructions().iter().filter(|instruction| instruction.is_mma())
    }
}

/// Those for products of a type that take several reduced points at once, of the values as they are.
fn mma_of(all: &'static [Instruction], dtype: Dtype) -> impl Iterator<Item = &'static Instruction> {
    all.iter().filter(move |found| found.is_mma() && found.dtype == dtype && !found.rounds)
}

impl Target {
    /// The word in front of the text.
    pub fn kind(&self) -> &'static str {
        match self {
            Target::Cpu(_) => "cpu",
            Target::Gpu(_) => "gpu",
        }
    }

    /// Threads of the host that a launch is spread over.
    pub fn threads(&self) -> u32 {
        match self {
            Target::Cpu(cpu) => cpu.threads,
            Target::Gpu(_) => 1,
        }
    }

    /// What runs points at the same time, outermost first.
    pub fn levels(&self) -> Vec<Width> {
        match self {
            Target::Cpu(cpu) => [(Level::Grid, cpu.threads), (Level::Lane, cpu.lanes())]
                .map(|(level, count)| Width { level, count })
                .to_vec(),
            Target::Gpu(gpu) => gpu.levels(),
        }
    }

    /// How many of a level there are: see [`Width::count`]. 0 of one that the machine does not have.
    pub fn width(&self, level: Level) -> u32 {
        self.levels().into_iter().find(|width| width.level == level).map_or(0, |width| width.count)
    }

    /// The CPU, if it is one.
    pub fn cpu(&self) -> Option<&Cpu> {
        match self {
            Target::Cpu(cpu) => Some(cpu),
            Target::Gpu(_) => None,
        }
    }

    /// The GPU, if it is one.
    pub fn gpu(&self) -> Option<&Gpu> {
        match self {
            Target::Cpu(_) => None,
            Target::Gpu(gpu) => Some(gpu),
        }
    }

    /// Memories with their sizes, nearest first.
    pub fn memories(&self) -> Vec<Memory> {
        match self {
            Target::Cpu(cpu) => cpu.memories().to_vec(),
            Target::Gpu(gpu) => gpu.memories(),
        }
    }

    /// Elements of so many bytes that an array has in registers of one thread, at most.
    pub fn register_elements(&self, bytes: usize) -> i64 {
        match self {
            Target::Cpu(_) => Cpu::REGISTER_ELEMENTS,
            Target::Gpu(_) => i64::from(Gpu::REGISTERS) / (bytes.div_ceil(4).max(1) as i64),
        }
    }

    /// Instructions that sum products.
    pub fn instructions(&self) -> &'static [Instruction] {
        match self {
            Target::Cpu(cpu) => cpu.isa.instructions(),
            Target::Gpu(gpu) => gpu.isa.instructions(),
        }
    }

    /// The instruction of that name.
    pub fn instruction(&self, name: &str) -> Option<&'static Instruction> {
        self.instructions().iter().find(|instruction| instruction.name == name)
    }

    /// Columns of a product's register tile, which right operands are packed to. `None` where they are staged in the memory of a
    /// block, in whatever shape the schedule says.
    pub fn tile_columns(&self) -> Option<u32> {
        self.cpu().map(Cpu::tile_columns)
    }

    /// Bytes of the memory that is near to one of the grid and holds most: the cache of a core, what a block shares.
    pub fn near_bytes(&self) -> i64 {
        match self {
            Target::Cpu(cpu) => cpu.l2_bytes,
            Target::Gpu(gpu) => gpu.shared_bytes,
        }
    }

    /// The instruction that does most of those for products of a type that take several reduced points at once, if there are any.
    pub fn mma(&self, dtype: Dtype) -> Option<&'static Instruction> {
        mma_of(self.instructions(), dtype).next()
    }

    /// How many neighbouring reduced points the instructions for products of a type take together, if it has any: see
    /// [`Instruction::group`].
    pub fn group(&self, dtype: Dtype) -> Option<u32> {
        self.mma(dtype).map(|instruction| instruction.group)
    }

    /// Whether an instruction takes several rows of a left operand of that type at once.
    pub fn takes_rows(&self, dtype: Dtype) -> bool {
        mma_of(self.instructions(), dtype).any(|instruction| instruction.rows > 1)
    }

    /// Entries of a table of f32 that an instruction looks up, each lane of a vector one: as many as lanes.
    pub fn table_entries(&self) -> Option<u32> {
        self.instruction(LOOKUP_16.name).map(|lookup| lookup.columns)
    }

    /// What it does in a second.
    pub fn rates(&self) -> Rates {
        match self {
            Target::Cpu(cpu) => cpu.rates,
            Target::Gpu(gpu) => gpu.rates,
        }
    }
}

impl Cpu {
    /// First-level cache of a CPU of which nothing is known: the smaller one of current servers (AMD Zen 5).
    pub const USUAL_L1_BYTES: i64 = 32 << 10;
    /// Second-level cache of such a CPU.
    pub const USUAL_L2_BYTES: i64 = 1 << 20;

    /// Elements of an array in registers, at most: 32 vectors of 16 lanes, with room for element types narrower than 32 bits.
    pub const REGISTER_ELEMENTS: i64 = 1024;

    /// A CPU of which nothing more is known.
    pub fn new(isa: Isa, threads: u32) -> Cpu {
        let (l1_bytes, l2_bytes) = (Cpu::USUAL_L1_BYTES, Cpu::USUAL_L2_BYTES);
        Cpu { isa, threads, l1_bytes, l2_bytes, rates: Rates::default() }
    }

    /// Lanes of a vector of f32, the unit every vector loop counts in.
    pub fn lanes(&self) -> u32 {
        self.isa.vector_bytes() / 4
    }

    /// Columns of a product's register tile, and the width constant operands are packed to: two vectors.
    pub fn tile_columns(&self) -> u32 {
        2 * self.lanes()
    }

    /// Rows of a product's register tile at most: accumulators, the right operand's vectors and one broadcast of the left share the
    /// registers.
    pub fn tile_rows(&self) -> i64 {
        let vectors = i64::from(self.tile_columns() / self.lanes());
        ((i64::from(self.isa.vector_registers()) - vectors - 2) / vectors).max(1)
    }

    /// As [`Target::mma`].
    pub fn mma(&self, dtype: Dtype) -> Option<&'static Instruction> {
        Target::Cpu(*self).mma(dtype)
    }

    fn memories(&self) -> [Memory; 2] {
        [Memory { name: "l1", bytes: self.l1_bytes }, Memory { name: "l2", bytes: self.l2_bytes }]
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use litz_sym::Expr;

    #[test]
    fn instructions_of_gpus_are_those_of_their_shapes() {
        for isa in GpuIsa::ALL {
            let gpu = Gpu::new(isa, 1);
            let of = |level, dtype, shape| gpu.instruction(level, dtype, shape).map(|found| found.name);
            for by in isa.instructions() {
                assert_eq!(Instruction::mma(by.name), Some(by));
                let level = if by.rows == 64 { Level::Warpgroup } else { Level::Warp };
                let shape = [by.rows, by.columns, by.depth].map(i64::from);
                assert_eq!(of(level, by.dtype, shape), Some(by.name), "{}", isa.name());
                assert_eq!(by.depth % by.group, 0, "{}", by.name);
                let is_exact = !matches!(by.dtype, Dtype::F32 | Dtype::F8E4M3 | Dtype::F8E5M2);
                assert_eq!(by.rounds, !is_exact, "{}", by.name);
            }
            let (has_fp8, has_groups) = (isa != GpuIsa::Sm80, isa == GpuIsa::Sm90);
            let deep = [16, 8, 32];
            assert_eq!(of(Level::Warp, Dtype::F8E4M3, deep).is_some(), has_fp8);
            assert_eq!(of(Level::Warp, Dtype::I8, deep), Some("mma.m16n8k32.s8"));
            assert_eq!(of(Level::Warp, Dtype::F32, [16, 8, 4]), Some("mma.m16n8k4.tf32"));
            assert_eq!(of(Level::Warp, Dtype::F64, [16, 8, 4]).is_some(), isa >= GpuIsa::Sm90);
            for (columns, takes_bytes) in [(8, true), (24, true), (40, false), (48, true), (264, false)] {
                let wide = |dtype, depth| of(Level::Warpgroup, dtype, [64, columns, depth]).is_some();
                assert_eq!(wide(Dtype::I8, 32), has_groups && takes_bytes, "{columns}");
                assert_eq!(wide(Dtype::BF16, 16), has_groups && columns <= 256, "{columns}");
            }
            let target = Target::Gpu(gpu);
            assert_eq!((target.takes_rows(Dtype::F32), target.group(Dtype::F32)), (false, None));
            assert_eq!((target.takes_rows(Dtype::I8), target.group(Dtype::I8)), (true, Some(4)));
        }
    }

    #[test]
    fn units_run_so_many_blocks_as_have_room() {
        let gpu = Gpu::new(GpuIsa::Sm90, 132);
        let resident = |threads, registers, shared_bytes| {
            gpu.resident(BlockNeeds { threads, registers, shared_bytes }) / 132
        };
        assert_eq!(resident(32, 16, 0), 32, "blocks");
        assert_eq!(resident(1024, 32, 0), 2, "threads");
        assert_eq!(resident(256, 33, 0), 6, "registers, in eights");
        assert_eq!(resident(33, 255, 0), 4, "whole warps");
        assert_eq!(resident(128, 32, 113 << 10), 2, "shared bytes, and one KiB more");
        assert_eq!([resident(128, 32, 227 << 10), resident(128, 32, 228 << 10)], [1, 0]);
        assert_eq!(resident(1024, 65, 0), 0);
        assert_eq!([resident(288, 168, 0), resident(288, 176, 0)], [1, 0], "nine warps are three for a part");
        assert_eq!([gpu.registers_for(288), gpu.registers_for(256), gpu.registers_for(2048)], [168, 255, 32]);
    }

    #[test]
    fn warps_that_copy_leave_registers_to_those_that_compute() {
        let gpu = Gpu::new(GpuIsa::Sm90, 132);
        for (threads, registers, at_launch) in
            [(256, 232, 168), (384, 152, 128), (128, 248, 144), (896, 64, 64)]
        {
            assert_eq!(gpu.registers_beside_copies(threads), registers, "{threads}");
            assert_eq!(Gpu::registers_at_launch(threads as u32, registers), at_launch);
            let threads = threads + i64::from(Gpu::WARPGROUP);
            let needs = BlockNeeds { threads, registers: at_launch.into(), shared_bytes: 0 };
            assert!(gpu.resident(needs) >= 132, "{threads}");
        }
    }

    #[test]
    fn each_sum_of_an_instruction_has_its_lane() {
        for lane in 0..i64::from(Gpu::LANES) {
            for place in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                for (warp, block) in [(0, 0), (3, 0), (2, 5)] {
                    let sum = Gpu::sum_of_thread([warp, lane].map(Expr::int), place.map(Expr::int));
                    let [row, column] = sum.map(|at| at.as_int().expect("a number"));
                    let rows = 16 * warp..16 * (warp + 1);
                    assert!(rows.contains(&row) && (0..8).contains(&column), "{lane}: {row}, {column}");
                    assert_eq!(
                        Gpu::thread_of_sum(row, column + 8 * block),
                        32 * warp + lane,
                        "{row}, {column}"
                    );
                }
            }
        }
    }

    #[test]
    fn levels_are_in_each_other() {
        for level in Level::LOOPS {
            let around = [Level::Grid].into_iter().chain(Level::LOOPS);
            let around: Vec<Level> = around.filter(|outer| level.is_within(*outer)).collect();
            assert!(!around.is_empty() && around.iter().all(|outer| outer.has_threads()), "{level:?}");
        }
    }

    #[test]
    fn instructions_have_names_of_their_own_and_fit_the_lanes() {
        for isa in Isa::ALL {
            let cpu = Cpu::new(isa, 3);
            let target = Target::Cpu(cpu);
            for instruction in target.instructions() {
                assert_eq!(target.instruction(instruction.name), Some(instruction));
                assert_eq!(instruction.columns, cpu.lanes(), "{}", instruction.name);
                assert_eq!(instruction.depth % instruction.group, 0, "{}", instruction.name);
            }
            assert_eq!(target.instruction("fma").is_none(), isa == Isa::Sse2);
            let has = |instruction: &&Instruction| target.instructions().contains(instruction);
            let (dot, tile, bytes) = (has(&&DOT_BF16), has(&&TILE_BF16), has(&&DOT_S8));
            assert_eq!(target.group(Dtype::BF16), dot.then_some(2), "{}", isa.name());
            assert_eq!(target.group(Dtype::I8), bytes.then_some(4), "{}", isa.name());
            assert!(bytes || !dot, "{}: each has what those before it have", isa.name());
            assert_eq!((target.takes_rows(Dtype::BF16), target.group(Dtype::F32)), (tile, None));
            assert_eq!(target.table_entries(), has(&&LOOKUP_16).then_some(16));
            assert_eq!(
                [Level::Grid, Level::Lane, Level::Warp].map(|level| target.width(level)),
                [3, cpu.lanes(), 0]
            );
        }
        for mma in Isa::ALL.into_iter().flat_map(Isa::mma) {
            assert_eq!(Instruction::mma(mma.name), Some(mma));
        }
        assert_eq!(
            Isa::Avx512Amx.mma().map(|mma| mma.name).collect::<Vec<_>>(),
            ["amx.tdpbf16ps", "dot.bf16.2", "dot.s8.8"]
        );
    }
}
