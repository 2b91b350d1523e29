//! Defines the schedule IR: how the nests of a loops program run.
//!
//! The verifier of schedules, in `litz-analysis`, proves that a schedule covers every point once and that statements are
//! done with an element before a later one comes to it, whoever wrote the schedule.
//!
//! ```text
//! schedule @mlp of @mlp for cpu(isa=avx512, threads=2) {
//!   kernel k0 {
//!     parallel io in ceildiv(s0, 13), jo in 96 {
//!       register h
//!       if 13 <= s0 - 13*io {
//!         register accumulator of n0
//!         unroll ii in 13 { vector ji in 32 by 16 { n0.init [i = 13*io + ii, j = 32*jo + ji] } }
//!         for k in 768 {
//!           unroll ii in 13 { vector ji in 32 by 16 { n0.update [i = 13*io + ii, j = 32*jo + ji, k = k] } }
//!         }
//!         unroll ii in 13 {
//!           vector ji in 32 by 16 {
//!             n0.final [i = 13*io + ii, j = 32*jo + ji]
//!             n1 [i = 13*io + ii, j = 32*jo + ji]
//!           }
//!         }
//!       } else {
//!         for ii in s0 - 13*io {
//!           register accumulator of n0
//!           vector ji in 32 by 16 { n0.init [i = 13*io + ii, j = 32*jo + ji] }
//!           for k in 768 {
//!             vector ji in 32 by 16 { n0.update [i = 13*io + ii, j = 32*jo + ji, k = k] }
//!           }
//!           vector ji in 32 by 16 {
//!             n0.final [i = 13*io + ii, j = 32*jo + ji]
//!             n1 [i = 13*io + ii, j = 32*jo + ji]
//!           }
//!         }
//!       }
//!     }
//!   }
//!   extern e3
//!   reuse h as g
//!   pool p0 = 12288*s0 { h at 0 }
//!   pool y { t at 0 }
//! }
//! ```
//!
//! A schedule names no device: a kernel runs where the buffers are that its nests touch, which are all on one device, as are
//! those of a pool.
//!
//! Loops run from 0 to their extent, and a leaf runs at each of their iterations. A value past the end of an axis is no point of
//! the nest. So remainders are a choice that the text shows: a loop that ends early has an extent like `min(16, s0 - 16*io)`,
//! a tile that is often full has an `if` with one body for full tiles and one for the remainder, and a leaf that may come to
//! values past the end is `masked` and does nothing there. Each point of a nest is taken once; of the two bodies of an `if` only one runs.
//!
//! The reductions and scans of a nest have accumulators, which are memory of the kernel like its local buffers: declared
//! in a block of the tree, with one set for each time that the block runs. `n.init` puts the identity into
//! them, `n.update` combines points into the innermost ones that are declared around it, `n.merge` combines the innermost
//! ones with those declared next around, and `n.final` computes with the results. Of a leaf with `into p by 4096` all
//! points run for each block of 4096 elements of the buffer that it stores to, and store what is in block `p`.

use crate::loops::Axis;
use crate::target::{Instruction, Level, Persistent, Target, Team};
use litz_sym::{Expr, Rel, Sym};

/// A whole schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Name, without the `@`.
    pub name: String,
    /// The loops program it belongs to.
    pub of: String,
    /// The target that it was made for.
    pub target: Target,
    /// Schedules of the program's functions, in their order.
    pub functions: Vec<Schedule>,
    /// The kernels and calls in the order in which they run. Those `at load` come first.
    pub steps: Vec<ScheduleStep>,
    /// Buffers that reuse the memory of others in place.
    pub reuses: Vec<Reuse>,
    /// Memory shared by buffers whose lifetimes do not overlap.
    pub pools: Vec<Pool>,
}

/// One step of a schedule: it becomes a launch or a call of the program.
#[derive(Clone, PartialEq, Debug)]
pub enum ScheduleStep {
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
    /// Blocks run all points of the grid, each one after another, instead of a block for each point.
    pub persistent: Option<Persistent>,
    /// Registers of 32 bits that a thread has, at most: fewer than it might like to, so that more blocks run at the same time, or more than others
    /// have, which only copy.
    pub registers: Option<u32>,
    /// What a point of the grid runs.
    pub body: Vec<Tree>,
}

/// A node of the tree of loops that a kernel runs. The trees of a block run in order.
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
    /// One of two blocks.
    If {
        /// What decides which, in terms of the loop variables around.
        cond: Rel,
        /// Runs where it holds.
        then: Vec<Tree>,
        /// Runs where it does not.
        other: Vec<Tree>,
    },
    /// Declares memory for the rest of the block. Each run of the block begins with fresh memory.
    Local(Local),
    /// A nest, or part of one.
    Leaf(Leaf),
}

/// How a scheduled loop runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LoopKind {
    /// In order.
    For,
    /// Written out.
    Unroll,
    /// By the lanes of a vector, with `copies` vectors in flight.
    Vector {
        /// Elements per vector.
        lanes: u32,
        /// Vectors in flight.
        copies: u32,
    },
    /// In order, as a software pipeline: the copies that the body begins with are made some iterations ahead, in the background,
    /// into one of several buffers in rotation.
    Pipeline {
        /// Buffers of each copy, at least 2.
        buffers: u32,
    },
    /// In parallel, each iteration by one unit of a level of the machine. What follows the loop in the text runs when all iterations are
    /// done.
    Level(Team),
    /// By blocks, one for each iteration, which run at the same time as far as they can: an iteration waits for the results of
    /// earlier ones that it reads.
    Chain,
    /// By an instruction that computes all points at once: for a short reduced axis in a vector a dot product in each lane, for
    /// rows, columns and a reduced axis a product of small matrices.
    Mma,
}

/// Runs a nest, or a part of one, at each iteration of the loops around.
#[derive(Clone, PartialEq, Debug)]
pub struct Leaf {
    /// Nest name.
    pub nest: String,
    /// Which part of the nest runs here.
    pub part: Part,
    /// Value of each axis of the nest, in terms of the loop variables above.
    pub bind: Vec<(Sym, Expr)>,
    /// Whether values may be past the end of their axes. The leaf does nothing there.
    pub masked: bool,
    /// The block of the buffer that it stores to. `None`: all of it.
    pub block: Option<Block>,
    /// By what its points are done, if that is not left to the backend.
    pub by: Option<Means>,
}

/// What does the points of a leaf at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// One thread has a box of elements copied, in the background: those of the `for` loops around the leaf.
    Box,
    /// An instruction, in the `mma` loops around the leaf.
    Instruction(&'static Instruction),
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

/// The part of a nest that a leaf runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Runs all instructions of a nest that reduces nothing. If it scans, each point is combined with the accumulators around.
    Whole,
    /// Sets the accumulators of the innermost scope around to the identities of their operators.
    Init,
    /// Runs the instructions up to and including the reductions, which combine with the accumulators of the innermost scope
    /// around.
    Update,
    /// Combines the accumulators of the innermost scope around with those of the next scope out. The rounding error of a long
    /// sum that is added up by blocks grows with the number of blocks plus their length, not with the number of terms.
    Merge,
    /// Runs the instructions after the reductions, whose results are in the accumulators of the outermost scope, once per
    /// outer point.
    Final,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 5] = [Part::Whole, Part::Init, Part::Update, Part::Merge, Part::Final];

    /// The name in text: what follows the dot behind a nest's name.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Part::Whole => None,
            Part::Init => Some("init"),
            Part::Update => Some("update"),
            Part::Merge => Some("merge"),
            Part::Final => Some("final"),
        }
    }

    /// Whether instructions of the nest run. Otherwise only its accumulators are touched.
    pub fn runs_instructions(self) -> bool {
        match self {
            Part::Whole | Part::Update | Part::Final => true,
            Part::Init | Part::Merge => false,
        }
    }

    /// Whether the leaf takes the points of reduced axes, too.
    pub fn is_along_reduced(self) -> bool {
        match self {
            Part::Whole | Part::Update => true,
            Part::Init | Part::Merge | Part::Final => false,
        }
    }
}

/// Memory inside a kernel. It holds only the elements that one run of the block accesses in which it is declared.
#[derive(Clone, PartialEq, Debug)]
pub struct Local {
    /// What it holds.
    pub holds: Holds,
    /// The memory space.
    pub space: LocalSpace,
    /// How its elements are laid out there.
    pub layout: Layout,
}

/// What memory inside a kernel holds.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Holds {
    /// The buffer of that name, which no other kernel touches.
    Buffer(String),
    /// A copy of a buffer, which the rest of the block reads in place of the buffer. A leaf of its name makes it, whose axes
    /// `d0`, `d1` and so on are the dimensions of the buffer.
    Copy {
        /// Name of the copy.
        name: String,
        /// Name of the buffer, or of a copy that is declared around.
        of: String,
        /// The load that alone reads it. All loads of the buffer do where there is none.
        reader: Option<LoadOf>,
    },
    /// What the block stores to a buffer, on its way there: the nest that stores to the buffer stores here instead, and a leaf of its name,
    /// whose axes `d0`, `d1` and so on are the dimensions of the buffer, then stores it to the buffer, in another order or by other threads.
    Result {
        /// Name of the memory.
        name: String,
        /// Name of the buffer, which one nest outside of regions stores to, once.
        of: String,
    },
    /// The running values of the reductions and scans of the nest of that name: one element for each of its outer points
    /// in the block, and for an arg-reduction the position of the best value beside it.
    Accumulator(String),
}

/// A load of a nest.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct LoadOf {
    /// The nest.
    pub nest: String,
    /// Position of the load among its instructions.
    pub at: u32,
}

impl Local {
    /// The buffer that it holds; a copy is a buffer of its own, and so is a result on its way.
    pub fn buffer(&self) -> Option<&str> {
        match &self.holds {
            Holds::Buffer(name) | Holds::Copy { name, .. } | Holds::Result { name, .. } => Some(name),
            Holds::Accumulator(_) => None,
        }
    }

    /// The buffer that it holds a copy of.
    pub fn copied(&self) -> Option<&str> {
        match &self.holds {
            Holds::Copy { of, .. } => Some(of),
            Holds::Buffer(_) | Holds::Result { .. } | Holds::Accumulator(_) => None,
        }
    }

    /// The buffer that it holds a result of, on its way there.
    pub fn result(&self) -> Option<&str> {
        match &self.holds {
            Holds::Result { of, .. } => Some(of),
            Holds::Buffer(_) | Holds::Copy { .. } | Holds::Accumulator(_) => None,
        }
    }

    /// The load that alone reads the copy that it holds.
    pub fn reader(&self) -> Option<&LoadOf> {
        match &self.holds {
            Holds::Copy { reader, .. } => reader.as_ref(),
            Holds::Buffer(_) | Holds::Result { .. } | Holds::Accumulator(_) => None,
        }
    }

    /// The nest whose accumulators it holds.
    pub fn accumulates(&self) -> Option<&str> {
        match &self.holds {
            Holds::Accumulator(nest) => Some(nest),
            Holds::Buffer(_) | Holds::Copy { .. } | Holds::Result { .. } => None,
        }
    }

    /// The name of what it holds.
    pub fn name(&self) -> &str {
        match &self.holds {
            Holds::Buffer(name)
            | Holds::Copy { name, .. }
            | Holds::Result { name, .. }
            | Holds::Accumulator(name) => name,
        }
    }
}

/// How the elements of memory inside a kernel are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum Layout {
    /// Row after row.
    #[default]
    Dense,
    /// Rows of so many elements or more begin at odd multiples of that many, so that elements below each other are in different
    /// sets of a cache.
    Padded(u32),
    /// Of rows of constant length, units of so many bytes change places within a line of 128 bytes, each row in another way, so that
    /// those below each other are in different banks. See [`crate::kernel::Swizzle`].
    Swizzled {
        /// The bytes.
        unit: u32,
        /// Whether those of every other pair of rows are in different banks, too.
        pairs: bool,
    },
    /// So many columns of all rows, behind them as many more, and so on: panels, in whose rows units change places as in `Swizzled`
    /// memory.
    Panels {
        /// The bytes.
        unit: u32,
        /// Elements of a row of a panel.
        columns: u32,
    },
}

/// Where memory inside a kernel is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum LocalSpace {
    /// Registers.
    Register,
    /// Scratch memory of one thread.
    Scratch,
    /// Memory that the threads of a block share.
    Shared,
    /// Memory that the blocks of a cluster share, of which each holds a part.
    Cluster,
    /// Memory that all blocks of a grid point share.
    Global,
}

/// A buffer that reuses the memory of another in place, in the kernel that is the last to read the one and the first to write the
/// other: no element is written before all reads of its old contents are done.
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

impl ScheduleStep {
    /// Name of the kernel or of the extern statement.
    pub fn name(&self) -> &str {
        match self {
            ScheduleStep::Kernel(plan) => &plan.name,
            ScheduleStep::Extern { name, .. } => name,
        }
    }
    /// Whether it runs once, when the model's constants are loaded.
    pub fn at_load(&self) -> bool {
        match self {
            ScheduleStep::Kernel(plan) => plan.at_load,
            ScheduleStep::Extern { at_load, .. } => *at_load,
        }
    }
}

impl KernelPlan {
    /// One without a name, which is run by every call.
    pub fn new(grid: Vec<Axis>, grain: u64, body: Vec<Tree>) -> KernelPlan {
        KernelPlan {
            name: String::new(),
            at_load: false,
            grid,
            grain,
            persistent: None,
            registers: None,
            body,
        }
    }

    /// The nests whose instructions it runs, each once, in the order of their first leaves.
    pub fn nests(&self) -> Vec<&str> {
        let mut nests: Vec<&str> = Vec::new();
        let mut note = |leaf| {
            let Leaf { nest, part, .. }: &Leaf = leaf;
            if part.runs_instructions() && !nests.contains(&nest.as_str()) {
                nests.push(nest);
            }
        };
        self.body.iter().for_each(|tree| tree.each_leaf(&mut note));
        nests
    }

    /// Calls `nest` on every name of a nest in it, and `buf` on every name of a buffer or of a copy of one, to be changed.
    pub fn each_name_mut(&mut self, nest: &mut dyn FnMut(&mut String), buf: &mut dyn FnMut(&mut String)) {
        let mut visit = |tree: &mut Tree| match tree {
            Tree::Leaf(leaf) => nest(&mut leaf.nest),
            Tree::Local(local) => match &mut local.holds {
                Holds::Buffer(name) => buf(name),
                Holds::Copy { name, of, reader } => {
                    [name, of].into_iter().for_each(&mut *buf);
                    reader.iter_mut().for_each(|load| nest(&mut load.nest));
                }
                Holds::Result { name, of } => [name, of].into_iter().for_each(&mut *buf),
                Holds::Accumulator(name) => nest(name),
            },
            Tree::Loop { .. } | Tree::If { .. } => {}
        };
        self.body.iter_mut().for_each(|tree| tree.visit_mut(&mut visit));
    }

    /// The symbols that its grid, loops, conditions and leaves mention, in no order, some of them several times.
    pub fn syms(&self) -> Vec<Sym> {
        let mut syms: Vec<Sym> = self.grid.iter().flat_map(|axis| axis.extent.syms()).collect();
        let mut note = |e: Expr| syms.extend(e.syms());
        self.body.iter().for_each(|tree| {
            tree.visit(&mut |tree| match tree {
                Tree::Loop { axis, .. } => note(axis.extent),
                Tree::If { cond, .. } => [cond.lhs, cond.rhs].into_iter().for_each(&mut note),
                Tree::Leaf(leaf) => {
                    leaf.bind.iter().for_each(|bind| note(bind.1));
                    let block = leaf.block.iter().flat_map(|block| [block.number, block.width]);
                    block.for_each(&mut note);
                }
                Tree::Local(_) => {}
            });
        });
        syms
    }

    /// Memory that never leaves the kernel, in the order of declarations.
    pub fn locals(&self) -> Vec<&Local> {
        fn gather<'t>(trees: &'t [Tree], locals: &mut Vec<&'t Local>) {
            for tree in trees {
                if let Tree::Local(local) = tree {
                    locals.push(local);
                }
                tree.blocks().into_iter().for_each(|block| gather(block, locals));
            }
        }
        let mut locals = Vec::new();
        gather(&self.body, &mut locals);
        locals
    }

    /// Whether the buffer of that name never leaves the kernel.
    pub fn has_local(&self, buf: &str) -> bool {
        self.locals().iter().any(|local| local.buffer() == Some(buf))
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
}

impl Tree {
    /// The blocks in it, in order.
    pub fn blocks(&self) -> [&[Tree]; 2] {
        match self {
            Tree::Loop { body, .. } => [body, &[]],
            Tree::If { then, other, .. } => [then, other],
            Tree::Local(_) | Tree::Leaf(_) => [&[], &[]],
        }
    }

    /// The blocks in it, to be changed.
    pub fn blocks_mut(&mut self) -> Vec<&mut Vec<Tree>> {
        match self {
            Tree::Loop { body, .. } => vec![body],
            Tree::If { then, other, .. } => vec![then, other],
            Tree::Local(_) | Tree::Leaf(_) => Vec::new(),
        }
    }

    /// Calls `f` on it and on every tree below, outer ones first.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Tree)) {
        f(self);
        self.blocks().into_iter().flatten().for_each(|tree| tree.visit(f));
    }

    /// Calls `f` on it and on every tree below, to be changed, outer ones first.
    pub fn visit_mut(&mut self, f: &mut impl FnMut(&mut Tree)) {
        f(self);
        self.blocks_mut().into_iter().flatten().for_each(|tree| tree.visit_mut(f));
    }

    /// Calls `f` on every leaf below, in order.
    pub fn each_leaf<'a>(&'a self, f: &mut impl FnMut(&'a Leaf)) {
        self.visit(&mut |tree| {
            if let Tree::Leaf(leaf) = tree {
                f(leaf);
            }
        });
    }

    /// Replaces variable `var` by `value` in every expression of it and below.
    pub fn replace(&mut self, var: Sym, value: Expr) {
        let put = |e: &mut Expr| *e = e.replace(var, value);
        self.visit_mut(&mut |tree| match tree {
            Tree::Loop { axis, .. } => put(&mut axis.extent),
            Tree::If { cond, .. } => {
                put(&mut cond.lhs);
                put(&mut cond.rhs);
            }
            Tree::Local(_) => {}
            Tree::Leaf(leaf) => {
                leaf.bind.iter_mut().for_each(|bind| put(&mut bind.1));
                leaf.block.iter_mut().for_each(|Block { number, width }| {
                    put(number);
                    put(width);
                });
            }
        });
    }
}
