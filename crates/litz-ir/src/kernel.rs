//! The kernel IR: a schedule applied. One self-contained loop tree, the single input of every backend.
//!
//! ```text
//! kernel @k0 from n0, n1 {
//!   read x: f32[768*s0]
//!   read wp: f32[2359296]
//!   write h: f32[3072*s0]
//!   size s0 in [2, 1024]
//!   grid io in ceildiv(s0, 13), jo in 96 grain 4
//!   register acc: f32[416]
//!   for k in 768 {
//!     unroll ii in 13 {
//!       vector ji in 32 by 16 {
//!         %0: f32 = load x[768*(13*io + ii) + k] if 13*io + ii < s0 else 0.0
//!         %1: f32 = load wp[24576*jo + 32*k + ji]
//!         %2: f32 = mul %0, %1
//!         acc[32*ii + ji] sum= %2
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! The body runs once for every point of the grid; points are independent and may run at once. Loops run in
//! order unless their kind says that order is free. Loop kinds never change results beyond the order in
//! which a `sum=` or `prod=` combines.

use crate::dtype::Dtype;
use crate::entity;
use crate::ids::Table;
use crate::loops::Axis;
use crate::scalar::{ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};

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
    /// Types of values, by id.
    pub vals: Table<Val, Dtype>,
    /// What each grid point does.
    pub body: Vec<Stmt>,
    /// What a failed `bind` means, by its index.
    pub checks: Vec<String>,
}

/// A piece of memory: a flat array of elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MemData {
    /// Text name, unique in the kernel.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Number of elements; constant for registers.
    pub extent: Expr,
    /// Where it lives.
    pub space: Space,
}

/// Where memory lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// A parameter only read. No two parameters of a kernel overlap unless both are only read.
    Read,
    /// A parameter written (and possibly read).
    Write,
    /// A parameter written over: it holds one buffer at first and another one in the end, and no element is written
    /// before all loads of what was there.
    Update,
    /// Registers of one grid point: constant extent; indices are constant once unrolled loops are.
    Register,
    /// Scratch memory of one grid point, contents undefined at its start.
    Scratch,
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
        /// Element.
        index: Expr,
        /// Value, of the memory's type (loads and stores of half types convert: the value is of compute type).
        value: Val,
        /// How to combine with what is there.
        combine: Option<ReduceOp>,
        /// All must hold for the store to happen.
        guard: Vec<Rel>,
        /// True when other grid points may combine into the same element at once.
        atomic: bool,
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
        /// Element of both.
        index: Expr,
        /// Candidate.
        value: Val,
        /// Its position.
        position: Expr,
    },
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
    },
    /// As `For`, iterations that a matrix instruction takes together: it adds their products to the accumulators, each
    /// product exact and each sum rounded to nearest, where numbers below the smallest normal one may count as zero.
    Mma,
}

/// What a `let` computes. Same meaning as the instruction of that name in [`crate::loops::InstOp`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Element of memory, or `other` where a guard fails. Half types are widened to f32 by the load.
    Load {
        /// Memory read.
        mem: Mem,
        /// Element.
        index: Expr,
        /// All must hold for the load to happen.
        guard: Vec<Rel>,
        /// Result where a guard fails.
        other: Scalar,
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
            vals: Table::new(),
            body: Vec::new(),
            checks: Vec::new(),
        }
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
            let bytes = (m.extent * m.dtype.size() as i64).ceildiv(64) * 64;
            let offset = next;
            next = next + bytes;
            (id, offset, bytes)
        })
    }
}

impl Op {
    /// Values used.
    pub fn operands(&self) -> &[Val] {
        match self {
            Op::Load { .. } | Op::Const(_) | Op::Index(_) | Op::Cond(_) => &[],
            Op::Call(_, args) => args,
            Op::Cast(v) | Op::Round(_, v) | Op::Bitcast(v) => std::slice::from_ref(v),
        }
    }
}
