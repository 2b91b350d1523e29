//! Defines the schedule IR: how the nests of a loops program run.
//!
//! The verifier of schedules, in `litz-analysis`, proves that a schedule covers every point once and that statements are
//! done with an element before a later one comes to it, whoever wrote the schedule.
//!
//! ```text
//! schedule @mlp of @mlp for cpu(isa=avx512, threads=2) {
//!   kernel k0 {
//!     parallel io in ceildiv(s0, 13), jo in 96 {
//!       tile ii in 13, ji in 32 by 16 {
//!         for k in 768 { n0.body [i = 13*io + ii, j = 32*jo + ji, k = k] }
//!         n0.tail [i = 13*io + ii, j = 32*jo + ji]
//!         n1 [i = 13*io + ii, j = 32*jo + ji]
//!       }
//!     }
//!     register h in jo
//!   }
//!   extern e3
//!   reuse h as g
//!   pool p0 = 12288*s0 { h at 0 }
//!   pool y { t at 0 }
//! }
//! ```
//!
//! Each nest's domain is covered exactly once. Of a leaf with `into p by 4096` all points run for each block of 4096
//! elements of the buffer that it stores to, and store what is in block `p`. A `tile` loop is sunk to the leaves below it: its points are in
//! flight together, so that a reduction inside keeps one accumulator per point.

use crate::loops::Axis;
use crate::target::Target;
use litz_sym::{Expr, Sym};

/// A whole schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Name, without the `@`.
    pub name: String,
    /// The loops program it belongs to.
    pub of: String,
    /// What it was made for.
    pub target: Target,
    /// What runs, in order. Those `at load` come first.
    pub steps: Vec<Step>,
    /// Buffers that are written over others.
    pub reuses: Vec<Reuse>,
    /// Memory shared by buffers whose lifetimes do not overlap.
    pub pools: Vec<Pool>,
}

/// One step.
#[derive(Clone, PartialEq, Debug)]
pub enum Step {
    /// A kernel launch.
    Kernel(KernelPlan),
    /// The extern statement of that name.
    Extern {
        /// Statement name.
        name: String,
        /// Run once, when the model's constants are loaded.
        at_load: bool,
    },
}

/// One kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelPlan {
    /// Name.
    pub name: String,
    /// Run once, when the model's constants are loaded.
    pub at_load: bool,
    /// Independent points; outermost first.
    pub grid: Vec<Axis>,
    /// Grid points one thread takes at a time.
    pub grain: u64,
    /// Loop tree below the grid.
    pub body: Vec<Tree>,
    /// Buffers that never leave the kernel.
    pub locals: Vec<Local>,
}

/// A loop or a leaf.
#[derive(Clone, PartialEq, Debug)]
pub enum Tree {
    /// A loop.
    Loop {
        /// How it runs.
        kind: LoopKind,
        /// Variable and extent.
        axis: Axis,
        /// Body.
        body: Vec<Tree>,
    },
    /// A nest, or part of one.
    Leaf(Leaf),
}

/// How a scheduled loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LoopKind {
    /// In order.
    For,
    /// In order, along a reduced axis. Each iteration reduces into accumulators of its own, which are combined with
    /// those of the whole at its end: rounding errors of a long sum grow with the number of parts and with their length,
    /// not with the product.
    Partial,
    /// Written out.
    Unroll,
    /// Lanes of a vector, `copies` vectors in flight.
    Vector {
        /// Elements per vector.
        lanes: u32,
        /// Vectors in flight.
        copies: u32,
    },
    /// Points in flight together, sunk to the leaves; written out.
    Tile,
    /// As `Tile`, in vectors of `lanes`.
    TileVector {
        /// Elements per vector.
        lanes: u32,
    },
    /// A GPU thread index.
    Thread,
    /// A GPU warp index.
    Warp,
    /// Points that a matrix instruction takes together, sunk to the leaves: a reduced axis of a few points below tiles
    /// is a dot product for each lane, with rows and columns it is a product of small matrices.
    Mma,
}

/// A nest placed in the tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Leaf {
    /// Nest name.
    pub nest: String,
    /// Which instructions.
    pub part: Part,
    /// Value of each axis of the nest, in terms of the loop variables above.
    pub bind: Vec<(Sym, Expr)>,
    /// The block of the buffer that it stores to. `None`: all of it.
    pub block: Option<Block>,
}

/// One of the blocks that a buffer is divided into. All points of the leaf run for each block, and store where the flat
/// index is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Which one, in terms of the loop variables above.
    pub number: Expr,
    /// Elements of a block.
    pub width: Expr,
}

/// Which instructions of a nest a leaf stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// All of a nest that reduces nothing.
    Whole,
    /// Up to and including the reductions.
    Body,
    /// After the reductions; runs once per outer point.
    Tail,
}

/// A buffer that lives inside a kernel, holding only what one iteration of its scope touches.
#[derive(Clone, PartialEq, Debug)]
pub struct Local {
    /// Buffer name.
    pub buf: String,
    /// Loop variable whose iterations each have their own; `None`: the grid point.
    pub scope: Option<Sym>,
    /// Where.
    pub space: LocalSpace,
}

/// Where a local buffer lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LocalSpace {
    /// Registers.
    Register,
    /// Scratch memory of one thread.
    Scratch,
    /// Memory shared by a GPU block.
    Shared,
}

/// A buffer that takes the memory of another one in the kernel that reads the one last and writes the other first: no
/// element is written before all that read what was there are done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reuse {
    /// The buffer that ends. Its memory, and place in a pool, is that of both.
    pub from: String,
    /// The buffer that begins.
    pub to: String,
}

/// One allocation that several buffers share.
#[derive(Clone, PartialEq, Debug)]
pub struct Pool {
    /// Name, or that of the buffer whose memory it is.
    pub name: String,
    /// Size. `None`: the memory of a buffer that is returned, until that is written.
    pub bytes: Option<Expr>,
    /// Buffers and their byte offsets.
    pub places: Vec<(String, Expr)>,
    /// Lives as long as the model (results of steps at load).
    pub at_load: bool,
}

impl Step {
    /// Name of the kernel or of the extern statement.
    pub fn name(&self) -> &str {
        match self {
            Step::Kernel(plan) => &plan.name,
            Step::Extern { name, .. } => name,
        }
    }
    /// Whether it runs once, when the model's constants are loaded.
    pub fn at_load(&self) -> bool {
        match self {
            Step::Kernel(plan) => plan.at_load,
            Step::Extern { at_load, .. } => *at_load,
        }
    }
}

impl Tree {
    /// Calls `f` on every leaf below, in order.
    pub fn each_leaf<'a>(&'a self, f: &mut impl FnMut(&'a Leaf)) {
        match self {
            Tree::Loop { body, .. } => body.iter().for_each(|t| t.each_leaf(f)),
            Tree::Leaf(leaf) => f(leaf),
        }
    }
}
