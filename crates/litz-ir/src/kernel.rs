//! Defines the kernel IR: a schedule applied, one self-contained loop tree, the single input of every backend.
//!
//! ```text
//! kernel @k0 from n0, n1 {
//!   read x: f32[s0, 768]
//!   read wp: f32[96, 768, 32]
//!   write h: f32[s0, 3072]
//!   size s0 in [2, 1024]
//!   grid io in ceildiv(s0, 13), jo in 96 grain 4
//!   register acc: f32[13, 32]
//!   for k in 768 {
//!     unroll ii in 13 {
//!       vector ji in 32 by 16 {
//!         %0: f32 = load x[13*io + ii, k] if 13*io + ii < s0 else 0.0
//!         %1: f32 = load wp[jo, k, ji]
//!         %2: f32 = mul %0, %1
//!         acc[ii, ji] sum= %2
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! The body runs once for every point of the grid; points are independent and may run at once. Loops run in
//! order unless their kind says that order is free. Loop kinds never change results beyond the order in
//! which a `sum=` or `prod=` combines.
//!
//! An access names one coordinate for each dimension of its memory. Backends take flat memories, of one dimension
//! whose elements are adjacent; any kernel has an equal one of that form.

mod act;
mod box_copy;
mod early;
mod fragment;
mod lanes;
mod product;
mod ring;
mod roles;
mod shape;
mod stmt;

use crate::dtype::Dtype;
use crate::entity;
use crate::graph::contiguous_strides;
use crate::ids::Table;
use crate::loops::{self, Axis};
use crate::target::{Gpu, Level, Persistent};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::BTreeMap;

pub use act::{Act, Op, Part, PartMut, Sync, Touch};
pub use box_copy::{BoxCopy, BoxDim, BoxMap, BoxPoints, Cut, MapDim, PointDim, Windows};
pub use fragment::{Fragment, FragmentLoad, FragmentProduct, Operand, Panels, Rows};
pub use lanes::LaneReduction;
pub use product::{Dot, Element, Matrix, MatrixProduct};
pub use ring::{Filling, Ring, RingData, Warps, used_at_point};
pub use roles::Roles;
pub use shape::{Shape, threads_of};
pub use stmt::{KernelLoopKind, Loop, Stmt, visit, visit_mut};

entity!(
    /// Memory a kernel can touch: a parameter or a local.
    Mem,
    "m"
);
entity!(
    /// A scalar value of a kernel, defined by one `let`.
    Val,
    "%"
);

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Name, without the `@`.
    pub name: String,
    /// Nests it realises.
    pub from: Vec<String>,
    /// Ranges of the size symbols.
    pub facts: Facts,
    /// Size symbols passed at launch, in order.
    pub sizes: Vec<Sym>,
    /// Parameters in launch order, then locals.
    pub mems: Table<Mem, MemData>,
    /// How many of `mems` are parameters.
    pub params: usize,
    /// Independent points; outermost first. Empty: one point.
    pub grid: Vec<Axis>,
    /// Points one thread takes at a time, at least 1.
    pub grain: u64,
    /// Blocks run all points, each one after another, instead of a block for each point. Of several teams each has the text of the warps that compute
    /// for itself, with shared memory of its own, but that of rings: these feed one team after another.
    pub persistent: Option<Persistent>,
    /// Registers of 32 bits that a thread has, at most. Where [`Roles`] part the kernel, one that computes.
    pub registers: Option<u32>,
    /// Functions may be the approximations of the target, since what is stored is rounded to half types in the end.
    pub approximate: bool,
    /// Rings of buffers in shared memory.
    pub rings: Table<Ring, RingData>,
    /// Types of values, by id.
    pub vals: Table<Val, Dtype>,
    /// What each grid point does.
    pub body: Vec<Stmt>,
    /// What a failed `bind` means, by its index.
    pub checks: Vec<String>,
}

/// A piece of memory: a strided array of elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MemData {
    /// Text name, unique in the kernel.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Sizes of its dimensions; constant for registers.
    pub sizes: Vec<Expr>,
    /// Elements from one coordinate to the next, for each dimension.
    pub strides: Vec<Expr>,
    /// Where it lives.
    pub space: MemorySpace,
    /// How units of its rows change places. It changes no result.
    pub swizzle: Option<Swizzle>,
}

/// Units of a row change places: a layout in which units below each other are in different banks.
///
/// Banks are 4 bytes wide, and 128 bytes have one of each: a line. Unit `u` of row `r` is where unit `u ^ (r mod m)` would be, with as
/// many units `m` as a line has, or a row that is shorter; rows of one line have one `r`. Units of 16 bytes are the modes of the
/// tensor memory accelerator.
///
/// Eight lines below each other have the units of one column in different banks then, but not those of every other pair: lines 0, 1, 4,
/// 5, 8, 9, 12, 13 meet in fours. With `pairs` it is `r ^ (r div 4)` instead of `r`, which differs for both.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Swizzle {
    /// Elements of a unit.
    pub unit: u32,
    /// Elements of a row, a power of two or a multiple of a line.
    pub row: u32,
    /// Whether rows differ, too, of which every other pair is read at once.
    pub pairs: bool,
}

impl Swizzle {
    /// Bytes of a line.
    const LINE: i64 = 128;

    /// Units that change places, for elements of so many bytes; None where units and rows are of sizes for which that is no layout.
    pub fn units(self, bytes: usize) -> Option<i64> {
        let [unit, row, bytes] = [self.unit.into(), self.row.into(), i64::try_from(bytes).ok()?];
        if unit < 1 || row < 1 || !matches!(unit * bytes, 4 | 8 | 16) {
            return None;
        }
        let units = (Self::LINE / (unit * bytes)).min(row / unit);
        let is_regular = units > 0 && row % (units * unit) == 0;
        (is_regular && (units as u64).is_power_of_two()).then_some(units)
    }

    /// Whether boxes put elements of so many bytes so: units of 16 bytes change places in rows of at most 128.
    pub fn is_of_boxes(self, bytes: usize) -> bool {
        let [unit, row] = [self.unit, self.row].map(|count| i64::from(count) * bytes as i64);
        unit == i64::from(Gpu::VECTOR_BYTES) && row <= Gpu::BOX_ROW_BYTES && !self.pairs
    }

    /// Where an element is that would be at `at` without it.
    pub fn place(self, at: i64, bytes: usize) -> i64 {
        let Some(units) = self.units(bytes) else { return at };
        let (unit, row, bytes) = (i64::from(self.unit), i64::from(self.row), bytes as i64);
        let rows = (Self::LINE / (row * bytes)).max(1);
        let line = at / row / rows;
        let line = if self.pairs { line ^ (line / 4) } else { line };
        at ^ (line % units * unit)
    }
}

/// The blocks of threads that run one grid point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocks {
    /// One.
    One,
    /// Those of a cluster, which run at the same time and may meet.
    Cluster,
    /// Several of which one may be done before another begins: they meet once, where the last one goes on.
    Many,
}

/// Where memory lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemorySpace {
    /// A parameter only read. No two parameters of a kernel overlap unless both are only read.
    Read,
    /// A parameter only read, of which all contents were there before the first kernel of a call began: a constant of the model, or what the caller gives
    /// and no statement stores to.
    Constant,
    /// A number that a launch is given by value: a parameter of one element, only read.
    Number,
    /// A parameter written (and possibly read).
    Write,
    /// A parameter reused in place: it holds one buffer at first and another one in the end, and no element is written
    /// before all loads of what was there.
    Update,
    /// Registers of one grid point: constant extent; indices are constant once unrolled loops are.
    Register,
    /// Scratch memory of one grid point, contents undefined at its start.
    Scratch,
    /// Memory that each thread has of its own, contents undefined at the start of a grid point: registers where indices are constant once
    /// unrolled loops are. What all threads of a team store there, each stores to its own; what they load, all have alike.
    Own,
    /// Memory that the threads of one block share, contents undefined at its start.
    Shared,
    /// Memory that the blocks of a cluster share, of which each holds a part; contents undefined at the start of a grid point.
    Cluster,
    /// Memory that all threads of one grid point share, contents undefined at its start.
    Global,
}

impl MemorySpace {
    /// Every space.
    pub const ALL: [MemorySpace; 11] = [
        MemorySpace::Read,
        MemorySpace::Constant,
        MemorySpace::Number,
        MemorySpace::Write,
        MemorySpace::Update,
        MemorySpace::Register,
        MemorySpace::Scratch,
        MemorySpace::Own,
        MemorySpace::Shared,
        MemorySpace::Cluster,
        MemorySpace::Global,
    ];

    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            MemorySpace::Read => "read",
            MemorySpace::Constant => "constant",
            MemorySpace::Number => "number",
            MemorySpace::Write => "write",
            MemorySpace::Update => "update",
            MemorySpace::Register => "register",
            MemorySpace::Scratch => "scratch",
            MemorySpace::Own => "own",
            MemorySpace::Shared => "shared",
            MemorySpace::Cluster => "cluster",
            MemorySpace::Global => "global",
        }
    }

    /// Whether a thread sees there what another one of its grid point has stored.
    pub fn is_shared(self) -> bool {
        match self {
            MemorySpace::Write
            | MemorySpace::Update
            | MemorySpace::Shared
            | MemorySpace::Cluster
            | MemorySpace::Global => true,
            MemorySpace::Read
            | MemorySpace::Constant
            | MemorySpace::Number
            | MemorySpace::Register
            | MemorySpace::Scratch
            | MemorySpace::Own => false,
        }
    }

    /// Whether nothing is stored there.
    pub fn is_only_read(self) -> bool {
        matches!(self, MemorySpace::Read | MemorySpace::Constant | MemorySpace::Number)
    }

    /// Whether memory there belongs to the kernel rather than to its caller.
    pub fn is_local(self) -> bool {
        match self {
            MemorySpace::Read
            | MemorySpace::Constant
            | MemorySpace::Number
            | MemorySpace::Write
            | MemorySpace::Update => false,
            MemorySpace::Register
            | MemorySpace::Scratch
            | MemorySpace::Own
            | MemorySpace::Shared
            | MemorySpace::Cluster
            | MemorySpace::Global => true,
        }
    }
}

impl Kernel {
    /// An empty kernel.
    pub fn new(name: impl Into<String>) -> Kernel {
        Kernel {
            name: name.into(),
            from: Vec::new(),
            facts: Facts::new(),
            sizes: Vec::new(),
            mems: Table::new(),
            params: 0,
            grid: Vec::new(),
            grain: 1,
            persistent: None,
            registers: None,
            approximate: false,
            rings: Table::new(),
            vals: Table::new(),
            body: Vec::new(),
            checks: Vec::new(),
        }
    }
    /// The blocks that run a grid point: one, unless loops say which block of several does what.
    pub fn blocks(&self) -> Blocks {
        let mut has_blocks = false;
        visit(&self.body, &mut |stmt| {
            let is_over_blocks = |inner: &Loop| inner.kind.level() == Some(Level::Block);
            has_blocks |= matches!(stmt, Stmt::Loop(inner) if is_over_blocks(inner));
        });
        let is_cluster = || self.mems.values().any(|data| data.space == MemorySpace::Cluster);
        match has_blocks {
            false => Blocks::One,
            true if is_cluster() => Blocks::Cluster,
            true => Blocks::Many,
        }
    }
    /// `name`, or where a memory has it, with the first number behind it that none has.
    pub fn free_memory_name(&self, name: &str) -> String {
        let is_taken = |name: &str| self.mems.values().any(|mem| mem.name == name);
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        names.find(|name| !is_taken(name)).expect("invariant: there are more numbers than memories")
    }
    /// Number of grid points.
    pub fn points(&self) -> Expr {
        self.grid.iter().fold(Expr::one(), |n, a| n * a.extent)
    }
    /// Bytes of scratch one grid point needs, each local aligned to 64.
    pub fn scratch_bytes(&self) -> Expr {
        self.scratch().fold(Expr::zero(), |_, (_, offset, bytes)| offset + bytes)
    }
    /// Scratch locals with their byte offset (a multiple of 64) and rounded-up size.
    pub fn scratch(&self) -> impl Iterator<Item = (Mem, Expr, Expr)> {
        let mut next = Expr::zero();
        self.mems.iter().filter(|(_, m)| m.space == MemorySpace::Scratch).map(move |(id, m)| {
            let bytes = (m.span() * m.dtype.size() as i64).ceildiv(64) * 64;
            let offset = next;
            next = next + bytes;
            (id, offset, bytes)
        })
    }
    /// Registers of which each lane of a vector loop has its own: every iteration writes them before it reads them, at an
    /// index that is the same in every lane. Where that write has a condition, an iteration that leaves it out reads nothing: iterations
    /// are independent, and nothing but the loop may access them then.
    pub fn private_registers(&self, inner: &Loop) -> Vec<Mem> {
        let mut is_private: BTreeMap<Mem, bool> = BTreeMap::new();
        let mut inside: BTreeMap<Mem, usize> = BTreeMap::new();
        let count = |counts: &mut BTreeMap<Mem, usize>, stmt: &Stmt| {
            stmt.accesses().for_each(|(mem, _)| *counts.entry(mem).or_default() += 1);
        };
        visit(&inner.body, &mut |stmt| count(&mut inside, stmt));
        let mut everywhere: Option<BTreeMap<Mem, usize>> = None;
        let mut is_inside = |mem: Mem| {
            let everywhere = everywhere.get_or_insert_with(|| {
                let mut all = BTreeMap::new();
                visit(&self.body, &mut |stmt| count(&mut all, stmt));
                all
            });
            everywhere.get(&mem) == inside.get(&mem)
        };
        visit(&inner.body, &mut |stmt| {
            for (mem, index) in stmt.accesses() {
                if self.mems.get(mem).is_none_or(|data| data.space != MemorySpace::Register) {
                    continue;
                }
                is_private.entry(mem).or_insert_with(|| {
                    let is_same = !index.iter().any(|at| at.has_sym(inner.var));
                    let mut is_write = |guard: &[Rel]| guard.is_empty() || is_inside(mem);
                    is_same && matches!(stmt, Stmt::Act(Act::Store { combine: None, guard, .. }) if is_write(guard))
                });
            }
        });
        is_private.into_iter().filter_map(|(mem, is_private)| is_private.then_some(mem)).collect()
    }
}

impl MemData {
    /// Memory of one dimension, whose elements are adjacent.
    pub fn flat(name: impl Into<String>, dtype: Dtype, extent: Expr, space: MemorySpace) -> MemData {
        MemData {
            name: name.into(),
            dtype,
            sizes: vec![extent],
            strides: vec![Expr::one()],
            space,
            swizzle: None,
        }
    }

    /// Memory whose last dimension has adjacent elements, and every other one adjacent rows.
    pub fn dense(name: impl Into<String>, dtype: Dtype, sizes: Vec<Expr>, space: MemorySpace) -> MemData {
        let strides = contiguous_strides(&sizes);
        MemData { name: name.into(), dtype, sizes, strides, space, swizzle: None }
    }

    /// Elements from the first to the last; 0 where there are none.
    pub fn span(&self) -> Expr {
        loops::span(&self.sizes, &self.strides)
    }

    /// Where the element with these coordinates is, counted in elements from the first.
    pub fn place(&self, index: &[Expr]) -> Expr {
        index.iter().zip(&self.strides).map(|(&at, &stride)| at * stride).sum()
    }

    /// Whether it has one dimension, whose elements are adjacent.
    pub fn is_flat(&self) -> bool {
        matches!(self.strides[..], [stride] if stride.is_one())
    }
}

/// The index of an access of flat memory.
///
/// # Panics
/// When there is no coordinate.
pub fn position(index: &[Expr]) -> Expr {
    index[0]
}
