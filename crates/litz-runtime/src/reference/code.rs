//! Defines kernels as they are interpreted: symbols, memories and values are positions.

use litz_ir::Dtype;
use litz_ir::ids::Table;
use litz_ir::kernel::{Filling, MemorySpace, Ring, RingData, Swizzle, Sync};
use litz_ir::target::{Level, Team};

use super::fragments::{LoadOfFragment, ProductOfFragments};
use super::scalar::ScalarFn;
use crate::formula::{Formula, Relation};
use crate::number::Bits;

/// A kernel, resolved.
pub(super) struct Code {
    pub(super) grid: Vec<(usize, Formula)>,
    pub(super) body: Vec<Node>,
    pub(super) mems: Vec<Memory>,
    pub(super) rings: Table<Ring, RingData>,
    /// How many of `mems` are parameters.
    pub(super) params: usize,
    /// Number of symbols; the size symbols come first.
    pub(super) symbols: usize,
    pub(super) sizes: usize,
    pub(super) values: usize,
    /// There are loops over levels.
    pub(super) has_levels: bool,
    /// There are loops over blocks.
    pub(super) has_blocks: bool,
    /// Blocks meet, or share memory: all of a grid point run at the same time.
    pub(super) has_clusters: bool,
    /// Threads have memory of their own.
    pub(super) has_own: bool,
    /// Threads wait for others in loops over levels of which those have other iterations: no order of iterations will do.
    pub(super) needs_units: bool,
}

/// A memory of the kernel.
pub(super) struct Memory {
    pub(super) name: String,
    pub(super) extent: Formula,
    pub(super) dtype: Dtype,
    pub(super) space: MemorySpace,
    pub(super) is_read_only: bool,
    /// Who sees what is stored there, of several threads. None where nothing is.
    pub(super) seen: Option<Seen>,
    /// How its units change places.
    pub swizzle: Option<Swizzle>,
}

impl Memory {
    /// Whether each thread has one.
    pub(super) fn is_own(&self) -> bool {
        self.space == MemorySpace::Own
    }
}

impl Node {
    /// Whether something in it may wait: for other threads, or for copies in the background.
    pub(super) fn waits(&self) -> bool {
        match self {
            Node::Loop { waits, .. } | Node::Level { waits, .. } | Node::If { waits, .. } => *waits,
            Node::Sync(sync) => *sync != Sync::Commit,
            Node::Acquire { .. } | Node::Release { .. } => true,
            _ => false,
        }
    }
}

/// All threads of which level meet; none where a thread waits for nobody else, or for some warps.
pub(super) fn meeting(sync: Sync) -> Option<Level> {
    match sync {
        Sync::Warps(_) | Sync::Acquire { .. } | Sync::Release { .. } => None,
        Sync::Barrier(level) => Some(level),
        Sync::Cluster => Some(Level::Grid),
        Sync::Elect | Sync::Await | Sync::Pass => Some(Level::Block),
        Sync::Commit | Sync::Wait { .. } | Sync::Kernels => None,
        Sync::CommitProducts | Sync::Products { .. } => None,
    }
}

/// Which threads see a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// All.
    All,
    /// Those of a block, each block its own.
    Block,
    /// Each its own.
    One,
}

/// Refers to an element of a memory.
pub(super) struct ElementRef {
    pub(super) mem: usize,
    /// Where it is, counted in elements.
    pub(super) index: Formula,
    /// Where the memory is not flat, each coordinate and the size of its dimension.
    pub(super) coordinates: Vec<(Formula, Formula)>,
    pub(super) dtype: Dtype,
    /// Data says which element it is.
    pub(super) is_chosen: bool,
}

/// An element that is multiplied as f32; zero where its guard fails.
pub(super) struct Operand {
    pub(super) place: ElementRef,
    pub(super) guard: Vec<Relation>,
}

/// A statement, resolved. Symbols and values are positions.
pub(super) enum Node {
    Loop {
        var: usize,
        lane: Option<Lane>,
        /// So many iterations are one act of a thread.
        width: u32,
        extent: Formula,
        body: Vec<Node>,
        /// Something in it may wait for other threads, here and below.
        waits: bool,
    },
    /// A loop over a level.
    Level {
        team: Team,
        var: usize,
        extent: Formula,
        body: Vec<Node>,
        waits: bool,
    },
    /// A loop of rows, columns or reduced points that the instruction of a warp takes: the first, second and third of three.
    Instruction {
        side: usize,
        var: usize,
        extent: Formula,
        body: Vec<Node>,
    },
    /// Threads wait for each other, or for their copies.
    Sync(Sync),
    /// Warps wait for the next buffer of a ring, whose number a symbol becomes.
    Acquire {
        ring: Ring,
        filling: Filling,
        symbol: usize,
    },
    /// Warps are done with a buffer of a ring.
    Release {
        ring: Ring,
        filling: Filling,
    },
    If {
        cond: Vec<Relation>,
        then: Vec<Node>,
        other: Vec<Node>,
        waits: bool,
    },
    Load {
        val: usize,
        ty: Dtype,
        place: ElementRef,
        guard: Vec<Relation>,
        other: Bits,
    },
    /// The element so many behind `place` as the lowest bits of a value say: those below `count`.
    Lookup {
        val: usize,
        place: ElementRef,
        count: u32,
        by: usize,
    },
    Const {
        val: usize,
        bits: Bits,
    },
    Index {
        val: usize,
        index: Formula,
    },
    Cond {
        val: usize,
        relation: Relation,
    },
    Call {
        val: usize,
        function: ScalarFn,
        args: [usize; 3],
    },
    /// Conversion through each type in turn.
    Cast {
        val: usize,
        arg: usize,
        types: Vec<Dtype>,
    },
    Copy {
        val: usize,
        arg: usize,
    },
    Bind {
        sym: usize,
        value: usize,
        extent: Formula,
        check: u32,
    },
    Store {
        place: ElementRef,
        value: usize,
        ty: Dtype,
        combine: Option<ScalarFn>,
        guard: Vec<Relation>,
        atomic: bool,
    },
    MulAdd {
        place: ElementRef,
        factors: [usize; 2],
        ty: Dtype,
        function: ScalarFn,
        guard: Vec<Relation>,
    },
    ArgStore {
        max: bool,
        best: ElementRef,
        at: usize,
        value: usize,
        ty: Dtype,
        position: Formula,
    },
    Lanes(Lanes),
    /// A sum, and the factors of products that are added to it in its type, one after the other.
    Products {
        sum: ElementRef,
        terms: Vec<[Operand; 2]>,
        function: ScalarFn,
    },
    /// A warp loads an operand of an instruction.
    LoadFragment(LoadOfFragment),
    /// An instruction of a warp.
    MultiplyFragments(ProductOfFragments),
    /// Sets an element to zero.
    Zero {
        place: ElementRef,
    },
    /// Moves the bits of an element, where all of `kept` holds.
    Move {
        from: Operand,
        to: ElementRef,
        kept: Vec<Relation>,
        is_async: bool,
    },
    /// A hint, of which nothing matters but that its index has a value.
    Prefetch {
        index: Formula,
        guard: Vec<Relation>,
    },
}

/// The number of a lane among those in flight.
pub(super) struct Lane {
    /// The symbol that it is given.
    pub(super) var: usize,
    /// Lanes of one copy.
    pub(super) lanes: i64,
    /// Lanes of all copies.
    pub(super) round: i64,
}

impl Lane {
    /// The lane of an iteration: what is left after the last whole round is up to the first copy.
    pub(super) fn of(&self, iteration: i64, extent: i64) -> i64 {
        let whole = extent - extent % self.round;
        iteration % if iteration < whole { self.round } else { self.lanes }
    }
}

/// A reduction of lanes, resolved. See `lanes.rs` for its meaning.
pub(super) struct Lanes {
    pub(super) into: ElementRef,
    /// The element of the first lane.
    pub(super) from: ElementRef,
    /// Memories of the position of the best value, and of those of the lanes.
    pub(super) positions: Option<[usize; 2]>,
    pub(super) ty: Dtype,
    pub(super) lanes: usize,
    pub(super) copies: usize,
    pub(super) combine: ScalarFn,
    /// Whether the best value is the largest.
    pub(super) max: bool,
    pub(super) atomic: bool,
}
