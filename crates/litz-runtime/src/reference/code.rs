//! Defines kernels as they are interpreted: symbols, memories and values are positions.

use litz_ir::Dtype;
use litz_ir::kernel::{Space, Swizzle, Sync};
use litz_ir::target::Team;

use super::scalar::ScalarFn;
use super::threads::Seen;
use crate::formula::{Formula, Relation};
use crate::number::Bits;

/// A kernel, resolved.
pub(super) struct Code {
    pub(super) grid: Vec<(usize, Formula)>,
    pub(super) body: Vec<Node>,
    pub(super) mems: Vec<Memory>,
    /// How many of `mems` are parameters.
    pub(super) params: usize,
    /// Number of symbols; the size symbols come first.
    pub(super) symbols: usize,
    pub(super) sizes: usize,
    pub(super) values: usize,
    /// There are loops over levels.
    pub(super) has_levels: bool,
}

/// A memory of the kernel.
pub(super) struct Memory {
    pub(super) name: String,
    pub(super) extent: Formula,
    pub(super) dtype: Dtype,
    pub(super) space: Space,
    pub(super) is_read_only: bool,
    /// Who sees what is stored there, of several threads. None where nothing is.
    pub(super) seen: Option<Seen>,
    /// How its units change places.
    pub swizzle: Option<Swizzle>,
}

/// Refers to an element of a memory.
pub(super) struct ElementRef {
    pub(super) mem: usize,
    /// Where it is, counted in elements.
    pub(super) index: Formula,
    /// Where the memory is not flat, each coordinate and the size of its dimension.
    pub(super) coordinates: Vec<(Formula, Formula)>,
    pub(super) dtype: Dtype,
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
    },
    /// A loop over a level.
    Level {
        team: Team,
        var: usize,
        extent: Formula,
        body: Vec<Node>,
    },
    /// A loop of rows, columns or reduced points that the instruction of a warp takes: the first, second and third of three.
    Instruction {
        side: usize,
        var: usize,
        extent: Formula,
        body: Vec<Node>,
    },
    Sync(Sync),
    If {
        cond: Vec<Relation>,
        then: Vec<Node>,
        other: Vec<Node>,
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
    /// A sum of f32 and the factors of products that are added to it, one after the other.
    Products {
        sum: ElementRef,
        terms: Vec<[Operand; 2]>,
        function: ScalarFn,
    },
    /// Sets an f32 to zero.
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
