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

mod lanes;
mod product;

use crate::dtype::Dtype;
use crate::entity;
use crate::graph::contiguous_strides;
use crate::ids::Table;
use crate::loops::{self, Axis};
use crate::scalar::{ReduceOp, Scalar, ScalarOp};
use crate::target::{Level, Team};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::BTreeMap;

pub use lanes::LaneReduction;
pub use product::{Dot, Element, Matrix, MatrixProduct};

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
    /// So many blocks run all points, each one after another, instead of a block for each point.
    pub persistent: Option<u32>,
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
    pub space: Space,
    /// How units of its rows change places. It changes no result.
    pub swizzle: Option<Swizzle>,
}

/// Units of a row change places: a layout in which units below each other are in different banks.
///
/// Banks are 4 bytes wide, and 128 bytes have one of each: a line. Unit `u` of row `r` is where unit `u ^ (r mod m)` would be, with as
/// many units `m` as a line has, or a row that is shorter; rows of one line have one `r`. Units of 16 bytes are the modes of the
/// tensor memory accelerator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Swizzle {
    /// Elements of a unit.
    pub unit: u32,
    /// Elements of a row, a power of two or a multiple of a line.
    pub row: u32,
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

    /// Where an element is that would be at `at` without it.
    pub fn place(self, at: i64, bytes: usize) -> i64 {
        let Some(units) = self.units(bytes) else { return at };
        let (unit, row, bytes) = (i64::from(self.unit), i64::from(self.row), bytes as i64);
        let rows = (Self::LINE / (row * bytes)).max(1);
        at ^ (at / row / rows % units * unit)
    }
}

/// Where memory lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// A parameter only read. No two parameters of a kernel overlap unless both are only read.
    Read,
    /// A parameter written (and possibly read).
    Write,
    /// A parameter reused in place: it holds one buffer at first and another one in the end, and no element is written
    /// before all loads of what was there.
    Update,
    /// Registers of one grid point: constant extent; indices are constant once unrolled loops are.
    Register,
    /// Scratch memory of one grid point, contents undefined at its start.
    Scratch,
    /// Memory that the threads of one block share, contents undefined at its start.
    Shared,
    /// Memory that the blocks of a cluster share, of which each holds a part; contents undefined at the start of a grid point.
    Cluster,
    /// Memory that all threads of one grid point share, contents undefined at its start.
    Global,
}

/// A statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Stmt {
    /// A loop.
    Loop(Loop),
    /// `if` with both branches.
    If {
        /// All must hold.
        cond: Vec<Rel>,
        /// Taken when they do.
        then: Vec<Stmt>,
        /// Taken when not.
        other: Vec<Stmt>,
    },
    /// `%v: ty = op`.
    Let {
        /// Value defined.
        val: Val,
        /// How.
        op: Op,
    },
    /// `bind t = %v in n, check 0`: see [`crate::loops::InstOp::Bind`]; `check` indexes [`Kernel::checks`].
    Bind {
        /// Symbol defined.
        sym: Sym,
        /// An i64 value.
        value: Val,
        /// Exclusive upper bound.
        extent: Expr,
        /// Message index.
        check: u32,
    },
    /// `m[index] = %v`, or combining `m[index] sum= %v`, where all `guard`s hold.
    Store {
        /// Memory written.
        mem: Mem,
        /// Coordinates of the element.
        index: Vec<Expr>,
        /// Value, of the memory's type (loads and stores of half types convert: the value is of compute type).
        value: Val,
        /// How to combine with what is there.
        combine: Option<ReduceOp>,
        /// All must hold for the store to happen.
        guard: Vec<Rel>,
        /// True when other grid points may combine into the same element at once.
        atomic: bool,
    },
    /// `m[index] fma= %a, %b`, where all `guard`s hold: adds the product of two floats of the memory's type to what is
    /// there, and rounds once. The sums of one element are added in any order, as those of a combining store.
    MulAdd {
        /// Memory written.
        mem: Mem,
        /// Coordinates of the element.
        index: Vec<Expr>,
        /// What is multiplied.
        factors: [Val; 2],
        /// All must hold for the store to happen.
        guard: Vec<Rel>,
    },
    /// What lanes have combined, combined.
    Lanes(LaneReduction),
    /// A dot product.
    Dot(Dot),
    /// A product of matrices.
    MatrixProduct(MatrixProduct),
    /// `copy 2 x[i] if i < 7 to y[j]`: moves so many adjacent elements as they are, bit by bit. Indices count such runs in flat
    /// memory: the first element moved is `x[2*i]`.
    Copy {
        /// Elements moved.
        count: u32,
        /// The run that is read.
        from: Element,
        /// The loop along whose rows runs are loaded and transposed, as [`Op::Transposed`] loads elements.
        along: Option<Sym>,
        /// The run that is written, where its guards hold.
        to: Element,
        /// It goes on in the background, and is done when a [`Sync::Wait`] of the same thread says so. Until then nobody
        /// touches what is written.
        is_async: bool,
    },
    /// Orders what threads do.
    Sync(Sync),
    /// `prefetch m[index]` or `prefetch m[index] ahead 2048`, where all `guard`s hold: a hint that what is near the element,
    /// or so many elements after it, is read soon. It changes no result, and there need not be such an element. In a vector
    /// loop the first of the lanes that run at once speaks for all, and where several iterations of written-out loops mean
    /// the same element, the first of them.
    Prefetch {
        /// Memory that is read soon.
        mem: Mem,
        /// Coordinates.
        index: Vec<Expr>,
        /// Elements from there on, apart from the coordinates: those may be of an access, whose address serves both.
        ahead: u32,
        /// All must hold for the hint to be given.
        guard: Vec<Rel>,
    },
    /// `best[index], at[index] argmax= %v, position`: keeps the first largest (smallest) value and its position;
    /// NaN beats every number.
    ArgStore {
        /// True for argmax.
        max: bool,
        /// Best value so far.
        best: Mem,
        /// Position of the best value so far, i64.
        at: Mem,
        /// Coordinates of the element of both.
        index: Vec<Expr>,
        /// Candidate.
        value: Val,
        /// Its position.
        position: Expr,
    },
}

/// How threads wait for each other, or for their copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sync {
    /// `barrier warp`: all threads of one of these that is around have come here, and see what the others have stored before, ahead of
    /// what is behind it. `barrier grid` is for all threads of a grid point: of several blocks that no cluster holds together
    /// the last one that comes there goes on alone.
    Barrier(Level),
    /// `commit`: the copies in the background that were started since the last one are a group, even if there are none.
    Commit,
    /// `wait 2`: all groups but so many of the newest are done, as far as the thread that started them can see.
    Wait {
        /// Groups that may still be under way.
        newest: u32,
    },
    /// `await turn`: all threads of a block see what the blocks of earlier iterations of the chain around have stored before they
    /// passed the turn on.
    Await,
    /// `pass turn`: the next iteration's turn comes, when all threads of the block are here.
    Pass,
}

/// A loop: `var` takes 0, 1, ... `extent - 1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Loop {
    /// How it runs.
    pub kind: LoopKind,
    /// Index variable.
    pub var: Sym,
    /// Number of iterations.
    pub extent: Expr,
    /// Body.
    pub body: Vec<Stmt>,
}

/// How a loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LoopKind {
    /// One iteration after another.
    For,
    /// As `For`, written out; constant extent.
    Unroll,
    /// `lanes` iterations at once, the last ones masked; `copies` groups with accumulators of their own.
    Vector {
        /// Iterations at once.
        lanes: u32,
        /// Groups in flight; 1 for plain loops.
        copies: u32,
        /// Whether the instructions of groups in flight are interleaved, rather than one group after the other: the body is
        /// straight, and no iteration touches what another one stores.
        interleaved: bool,
        /// A variable for the number of the lane among all that are in flight: in whole rounds of all copies the number of
        /// the iteration modulo `lanes * copies`, in what is left, where the first copy runs alone, modulo `lanes`.
        lane: Option<Sym>,
    },
    /// As `For`, with the copies that it begins with made some iterations ahead: a pass makes them so, or fails.
    Pipeline {
        /// Buffers of what is copied.
        buffers: u32,
    },
    /// In parallel, each iteration by one unit of a level of the machine. Threads are ordered by barriers alone, of which one has to
    /// be between a store and another thread's access. Statements outside of such loops are run by every thread, but one of them
    /// makes the stores to memory other than registers.
    Level(Team),
    /// By blocks, one for each iteration, which run at the same time except between `await turn` and `pass turn`: there they run in
    /// the order of iterations.
    Chain,
    /// As `For`, iterations that an instruction takes together: a pass makes them a [`Dot`] or a [`MatrixProduct`], or fails.
    Mma,
}

/// What a `let` computes. Same meaning as the instruction of that name in [`crate::loops::InstOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Element of memory, or `other` where a guard fails. Half types are widened to f32 by the load.
    Load {
        /// Memory read.
        mem: Mem,
        /// Coordinates of the element.
        index: Vec<Expr>,
        /// All must hold for the load to happen.
        guard: Vec<Rel>,
        /// Result where a guard fails.
        other: Scalar,
    },
    /// `load m[index] transposed along u`: as `Load`, where it always happens, of memory that nothing writes. Elements are side by
    /// side along the written-out loop of `u`, which has as many iterations as the vector loop has lanes: all of them load
    /// a transpose block, whose rows are loaded whole and transposed.
    Transposed {
        /// Memory read.
        mem: Mem,
        /// Coordinates of the element.
        index: Vec<Expr>,
        /// Variable of the loop along the rows.
        along: Sym,
    },
    /// `lookup m[first] of 16 by %v`: of so many elements of a register array, a power of two, the one that the lowest bits of an
    /// i32 count from the first of them.
    Lookup {
        /// Memory read.
        mem: Mem,
        /// Coordinates of the first element.
        first: Vec<Expr>,
        /// Elements to choose from.
        count: u32,
        /// Which one.
        by: Val,
    },
    /// A literal.
    Const(Scalar),
    /// The value of an index expression, as i64.
    Index(Expr),
    /// Whether a relation holds.
    Cond(Rel),
    /// An operation on values.
    Call(ScalarOp, Vec<Val>),
    /// Conversion to the value's type.
    Cast(Val),
    /// Rounding of an f32 to the precision of a half type and back, where an intermediate must be rounded.
    Round(Dtype, Val),
    /// Reinterpretation of bits.
    Bitcast(Val),
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
            vals: Table::new(),
            body: Vec::new(),
            checks: Vec::new(),
        }
    }
    /// What runs a grid point: a block, unless loops say which block of several does what.
    pub fn top(&self) -> Level {
        let mut has_blocks = false;
        visit(&self.body, &mut |stmt| {
            let is_over_blocks = |inner: &Loop| inner.kind.level() == Some(Level::Block);
            has_blocks |= matches!(stmt, Stmt::Loop(inner) if is_over_blocks(inner));
        });
        if has_blocks { Level::Grid } else { Level::Block }
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
        self.mems.iter().filter(|(_, m)| m.space == Space::Scratch).map(move |(id, m)| {
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
                if self.mems.get(mem).is_none_or(|data| data.space != Space::Register) {
                    continue;
                }
                is_private.entry(mem).or_insert_with(|| {
                    let is_same = !index.iter().any(|at| at.has_sym(inner.var));
                    let mut is_write = |guard: &[Rel]| guard.is_empty() || is_inside(mem);
                    is_same && matches!(stmt, Stmt::Store { combine: None, guard, .. } if is_write(guard))
                });
            }
        });
        is_private.into_iter().filter_map(|(mem, is_private)| is_private.then_some(mem)).collect()
    }
}

impl LoopKind {
    /// Those that run its iterations, if it is over a level.
    pub fn team(self) -> Option<Team> {
        match self {
            LoopKind::Level(team) => Some(team),
            LoopKind::Chain => Some(Level::Block.into()),
            LoopKind::For
            | LoopKind::Unroll
            | LoopKind::Vector { .. }
            | LoopKind::Pipeline { .. }
            | LoopKind::Mma => None,
        }
    }

    /// The level that it is over, if there is one.
    pub fn level(self) -> Option<Level> {
        self.team().map(|team| team.level)
    }

    /// A vector loop of so many lanes, whose groups in flight run one after the other.
    pub fn vector(lanes: u32, copies: u32) -> LoopKind {
        LoopKind::Vector { lanes, copies, interleaved: false, lane: None }
    }
}

impl MemData {
    /// Memory of one dimension, whose elements are adjacent.
    pub fn flat(name: impl Into<String>, dtype: Dtype, extent: Expr, space: Space) -> MemData {
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
    pub fn dense(name: impl Into<String>, dtype: Dtype, sizes: Vec<Expr>, space: Space) -> MemData {
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

/// Calls `f` for every statement, outer ones first.
pub fn visit<'k>(stmts: &'k [Stmt], f: &mut impl FnMut(&'k Stmt)) {
    for stmt in stmts {
        f(stmt);
        for block in stmt.blocks() {
            visit(block, f);
        }
    }
}

/// Calls `f` for every statement, to be changed, inner ones first.
pub fn visit_mut(stmts: &mut [Stmt], f: &mut impl FnMut(&mut Stmt)) {
    for stmt in stmts {
        for block in stmt.blocks_mut() {
            visit_mut(block, f);
        }
        f(stmt);
    }
}

impl Stmt {
    /// The blocks of statements in it, in order.
    pub fn blocks(&self) -> [&[Stmt]; 2] {
        match self {
            Stmt::Loop(inner) => [&inner.body, &[]],
            Stmt::If { then, other, .. } => [then, other],
            Stmt::Let { .. }
            | Stmt::Bind { .. }
            | Stmt::Store { .. }
            | Stmt::MulAdd { .. }
            | Stmt::Sync(_)
            | Stmt::Dot(_)
            | Stmt::MatrixProduct(_)
            | Stmt::Copy { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Lanes(_)
            | Stmt::ArgStore { .. } => [&[], &[]],
        }
    }

    /// The blocks of statements in it, to be changed.
    pub fn blocks_mut(&mut self) -> Vec<&mut Vec<Stmt>> {
        match self {
            Stmt::Loop(inner) => vec![&mut inner.body],
            Stmt::If { then, other, .. } => vec![then, other],
            Stmt::Let { .. }
            | Stmt::Bind { .. }
            | Stmt::Store { .. }
            | Stmt::MulAdd { .. }
            | Stmt::Sync(_)
            | Stmt::Dot(_)
            | Stmt::MatrixProduct(_)
            | Stmt::Copy { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Lanes(_)
            | Stmt::ArgStore { .. } => Vec::new(),
        }
    }

    /// Values it uses itself; statements in it use others.
    pub fn values(&self) -> &[Val] {
        match self {
            Stmt::Let { op, .. } => op.operands(),
            Stmt::Bind { value, .. } | Stmt::Store { value, .. } | Stmt::ArgStore { value, .. } => {
                std::slice::from_ref(value)
            }
            Stmt::MulAdd { factors, .. } => factors,
            Stmt::Loop(_)
            | Stmt::If { .. }
            | Stmt::Dot(_)
            | Stmt::MatrixProduct(_)
            | Stmt::Lanes(_)
            | Stmt::Copy { .. }
            | Stmt::Sync(_)
            | Stmt::Prefetch { .. } => &[],
        }
    }

    /// Values it uses itself, to be changed.
    pub fn values_mut(&mut self) -> &mut [Val] {
        match self {
            Stmt::Let { op, .. } => op.operands_mut(),
            Stmt::Bind { value, .. } | Stmt::Store { value, .. } | Stmt::ArgStore { value, .. } => {
                std::slice::from_mut(value)
            }
            Stmt::MulAdd { factors, .. } => factors,
            Stmt::Loop(_)
            | Stmt::If { .. }
            | Stmt::Dot(_)
            | Stmt::MatrixProduct(_)
            | Stmt::Lanes(_)
            | Stmt::Copy { .. }
            | Stmt::Sync(_)
            | Stmt::Prefetch { .. } => &mut [],
        }
    }

    /// The memories that it loads from, with the coordinates; of a matrix, of lanes and of a table those of the first element. What it
    /// combines with is not among them.
    pub fn loaded(&self) -> impl Iterator<Item = (Mem, &[Expr])> {
        let mut loaded: Vec<(Mem, &[Expr])> = Vec::new();
        match self {
            Stmt::Let { op: Op::Load { mem, index, .. } | Op::Transposed { mem, index, .. }, .. }
            | Stmt::Let { op: Op::Lookup { mem, first: index, .. }, .. } => {
                loaded.push((*mem, index));
            }
            Stmt::Copy { from, .. } => loaded.push((from.mem, &from.index)),
            Stmt::Dot(dot) => loaded.extend(dot.terms.iter().flatten().map(|f| (f.mem, &f.index[..]))),
            Stmt::MatrixProduct(product) => {
                let operands = [&product.left, &product.right];
                loaded.extend(operands.map(|m| (m.mem, std::slice::from_ref(&m.first))));
            }
            Stmt::Lanes(LaneReduction { from, positions, first, .. }) => {
                let positions = positions.map(|[_, from]| from);
                loaded.extend([Some(*from), positions].into_iter().flatten().map(|mem| (mem, &first[..])));
            }
            Stmt::Loop(_)
            | Stmt::If { .. }
            | Stmt::Let { .. }
            | Stmt::Bind { .. }
            | Stmt::Store { .. }
            | Stmt::MulAdd { .. }
            | Stmt::Sync(_)
            | Stmt::Prefetch { .. }
            | Stmt::ArgStore { .. } => {}
        }
        loaded.into_iter()
    }

    /// The memories that it stores to, with the coordinates; of a matrix those of the first element.
    pub fn stored(&self) -> impl Iterator<Item = (Mem, &[Expr])> {
        let stored = match self {
            Stmt::Store { mem, index, .. }
            | Stmt::MulAdd { mem, index, .. }
            | Stmt::Dot(Dot { mem, index, .. })
            | Stmt::Copy { to: Element { mem, index, .. }, .. } => [Some((*mem, &index[..])), None],
            Stmt::MatrixProduct(MatrixProduct { sum, .. }) => {
                [Some((sum.mem, std::slice::from_ref(&sum.first))), None]
            }
            Stmt::ArgStore { best, at, index, .. } => [Some((*best, &index[..])), Some((*at, &index[..]))],
            Stmt::Lanes(LaneReduction { into, positions, index, .. }) => {
                [Some((*into, &index[..])), positions.map(|[into, _]| (into, &index[..]))]
            }
            Stmt::Loop(_)
            | Stmt::If { .. }
            | Stmt::Let { .. }
            | Stmt::Bind { .. }
            | Stmt::Sync(_)
            | Stmt::Prefetch { .. } => [None, None],
        };
        stored.into_iter().flatten()
    }

    /// The memories that it accesses, with the coordinates.
    pub fn accesses(&self) -> impl Iterator<Item = (Mem, &[Expr])> {
        self.loaded().chain(self.stored())
    }

    /// Calls `f` with each memory that it accesses and the coordinates there, to be changed; those of a matrix are of its first element.
    pub fn each_access_mut(&mut self, f: &mut impl FnMut(Mem, &mut [Expr])) {
        match self {
            Stmt::Let { op: Op::Load { mem, index, .. } | Op::Transposed { mem, index, .. }, .. }
            | Stmt::Let { op: Op::Lookup { mem, first: index, .. }, .. }
            | Stmt::Store { mem, index, .. }
            | Stmt::MulAdd { mem, index, .. }
            | Stmt::Prefetch { mem, index, .. } => f(*mem, index),
            Stmt::Lanes(LaneReduction { into, from, index, first, .. }) => {
                f(*into, index);
                f(*from, first);
            }
            Stmt::Dot(dot) => {
                f(dot.mem, &mut dot.index);
                dot.terms.iter_mut().flatten().for_each(|factor| f(factor.mem, &mut factor.index));
            }
            Stmt::MatrixProduct(product) => {
                let matrices = product.matrices_mut().into_iter();
                matrices.for_each(|m| f(m.mem, std::slice::from_mut(&mut m.first)));
            }
            Stmt::Copy { from, to, .. } => {
                [from, to].into_iter().for_each(|element| f(element.mem, &mut element.index));
            }
            Stmt::ArgStore { best, at, index, .. } => {
                debug_assert!(best != at, "invariant: values and positions are in memories of their own");
                f(*best, index);
            }
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Let { .. } | Stmt::Bind { .. } | Stmt::Sync(_) => {}
        }
    }

    /// Replaces variable `var` by `value` in every expression that it mentions itself.
    pub fn replace(&mut self, var: Sym, value: Expr) {
        let put = |e: &mut Expr| *e = e.replace(var, value);
        let put_rels = |rels: &mut [Rel]| {
            for rel in rels {
                put(&mut rel.lhs);
                put(&mut rel.rhs);
            }
        };
        self.each_access_mut(&mut |_, index| index.iter_mut().for_each(put));
        match self {
            Stmt::Loop(inner) => put(&mut inner.extent),
            Stmt::If { cond, .. } => put_rels(cond),
            Stmt::Let { op, .. } => match op {
                Op::Load { guard, .. } => put_rels(guard),
                Op::Index(value) => put(value),
                Op::Cond(rel) => put_rels(std::slice::from_mut(rel)),
                Op::Transposed { .. }
                | Op::Lookup { .. }
                | Op::Const(_)
                | Op::Call(..)
                | Op::Cast(_)
                | Op::Round(..)
                | Op::Bitcast(_) => {}
            },
            Stmt::Bind { extent, .. } => put(extent),
            Stmt::Store { guard, .. } | Stmt::MulAdd { guard, .. } | Stmt::Prefetch { guard, .. } => {
                put_rels(guard);
            }
            Stmt::Dot(dot) => dot.terms.iter_mut().flatten().for_each(|factor| put_rels(&mut factor.guard)),
            Stmt::Copy { from, to, .. } => [from, to].into_iter().for_each(|e| put_rels(&mut e.guard)),
            Stmt::MatrixProduct(product) => {
                product.matrices_mut().into_iter().for_each(|matrix| put(&mut matrix.step));
                product.over.iter_mut().for_each(|axis| put(&mut axis.extent));
                [&mut product.rows, &mut product.columns].into_iter().for_each(put);
            }
            Stmt::ArgStore { position, .. } => put(position),
            Stmt::Lanes(_) | Stmt::Sync(_) => {}
        }
    }

    /// The memories that it mentions, to be changed.
    pub fn mems_mut(&mut self) -> impl Iterator<Item = &mut Mem> {
        let mut mems: Vec<&mut Mem> = Vec::new();
        match self {
            Stmt::Let {
                op: Op::Load { mem, .. } | Op::Transposed { mem, .. } | Op::Lookup { mem, .. },
                ..
            }
            | Stmt::Store { mem, .. }
            | Stmt::MulAdd { mem, .. }
            | Stmt::Prefetch { mem, .. } => mems.push(mem),
            Stmt::Dot(dot) => {
                mems.push(&mut dot.mem);
                mems.extend(dot.terms.iter_mut().flatten().map(|factor| &mut factor.mem));
            }
            Stmt::MatrixProduct(product) => mems.extend(product.matrices_mut().map(|m| &mut m.mem)),
            Stmt::Copy { from, to, .. } => mems.extend([&mut from.mem, &mut to.mem]),
            Stmt::ArgStore { best, at, .. } => mems.extend([best, at]),
            Stmt::Lanes(LaneReduction { into, from, positions, .. }) => {
                mems.extend([into, from].into_iter().chain(positions.iter_mut().flatten()));
            }
            Stmt::Loop(_) | Stmt::If { .. } | Stmt::Let { .. } | Stmt::Bind { .. } | Stmt::Sync(_) => {}
        }
        mems.into_iter()
    }

    /// Expressions that it mentions itself, both sides of relations included.
    pub fn exprs(&self) -> Vec<Expr> {
        let sides = |rels: &[Rel]| -> Vec<Expr> { rels.iter().flat_map(|rel| [rel.lhs, rel.rhs]).collect() };
        let element = |element: &Element| [&element.index[..], &sides(&element.guard)].concat();
        match self {
            Stmt::Loop(inner) => vec![inner.extent],
            Stmt::Sync(_) => Vec::new(),
            Stmt::If { cond, .. } => sides(cond),
            Stmt::Let { op, .. } => match op {
                Op::Load { index, guard, .. } => [&index[..], &sides(guard)].concat(),
                Op::Transposed { index, .. } | Op::Lookup { first: index, .. } => index.clone(),
                Op::Index(value) => vec![*value],
                Op::Cond(rel) => vec![rel.lhs, rel.rhs],
                Op::Const(_) | Op::Call(..) | Op::Cast(_) | Op::Round(..) | Op::Bitcast(_) => Vec::new(),
            },
            Stmt::Bind { extent, .. } => vec![*extent],
            Stmt::Store { index, guard, .. }
            | Stmt::MulAdd { index, guard, .. }
            | Stmt::Prefetch { index, guard, .. } => [&index[..], &sides(guard)].concat(),
            Stmt::Dot(dot) => {
                let read = dot.terms.iter().flatten().flat_map(element);
                dot.index.iter().copied().chain(read).collect()
            }
            Stmt::Copy { from, to, .. } => [element(from), element(to)].concat(),
            Stmt::MatrixProduct(product) => {
                let places = product.matrices().into_iter().flat_map(|matrix| [matrix.first, matrix.step]);
                let extents = product.over.iter().map(|axis| axis.extent);
                places.chain([product.rows, product.columns]).chain(extents).collect()
            }
            Stmt::ArgStore { index, position, .. } => [&index[..], &[*position]].concat(),
            Stmt::Lanes(LaneReduction { index, first, .. }) => [&index[..], first].concat(),
        }
    }
}

impl Op {
    /// Values used, to be changed.
    pub fn operands_mut(&mut self) -> &mut [Val] {
        match self {
            Op::Load { .. } | Op::Transposed { .. } | Op::Const(_) | Op::Index(_) | Op::Cond(_) => &mut [],
            Op::Call(_, args) => args,
            Op::Lookup { by: v, .. } | Op::Cast(v) | Op::Round(_, v) | Op::Bitcast(v) => {
                std::slice::from_mut(v)
            }
        }
    }
    /// Values used.
    pub fn operands(&self) -> &[Val] {
        match self {
            Op::Load { .. } | Op::Transposed { .. } | Op::Const(_) | Op::Index(_) | Op::Cond(_) => &[],
            Op::Call(_, args) => args,
            Op::Lookup { by: v, .. } | Op::Cast(v) | Op::Round(_, v) | Op::Bitcast(v) => {
                std::slice::from_ref(v)
            }
        }
    }
}
