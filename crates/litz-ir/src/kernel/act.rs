//! Defines acts: the statements of kernels that are no structure.
//!
//! Every walk over what kernels load, store, use and mention goes by [`Act::each_part`], which has an entry for each act. So
//! passes name the acts that they are about, and a new one costs its definition and that entry here, its text, its rules in the verifier,
//! its meaning in the reference device, and its code in a backend's emitter.

use litz_sym::{Expr, Rel, Sym};

use super::{
    BoxCopy, BoxDim, BoxPoints, Dot, Element, Filling, Fragment, FragmentLoad, FragmentProduct,
    LaneReduction, Matrix, MatrixProduct, Mem, Operand, Panels, PointDim, Ring, Rows, Val, Warps,
};
use crate::dtype::Dtype;
use crate::loops::Axis;
use crate::scalar::{ReduceOp, Scalar, ScalarOp};
use crate::target::Level;

/// What a statement does that has no statements in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Act {
    /// `%v: ty = op`.
    Let {
        /// Value defined.
        val: Val,
        /// How.
        op: Op,
    },
    /// `bind t = %v in n, check 0`: see [`crate::loops::InstOp::Bind`]; `check` indexes [`Kernel::checks`](super::Kernel::checks).
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
    /// An operand of a warp's instruction, loaded.
    FragmentLoad(FragmentLoad),
    /// A product of what a warp has loaded.
    FragmentProduct(FragmentProduct),
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
    /// A box of elements, copied by one thread.
    BoxCopy(BoxCopy),
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
    /// what is behind it.
    Barrier(Level),
    /// `barrier warps 0 to 7`: as that of a block, for these warps of it alone. The others go on.
    Warps(Warps),
    /// `barrier cluster`: as that of a block, for all blocks of a grid point, which are a cluster and run at the same time.
    Cluster,
    /// `elect last`: the blocks of a grid point come here one after another. The last one sees what all have stored, and goes on alone; the
    /// others are done.
    Elect,
    /// `commit`: the copies in the background that were started since the last one are a group, even if there are none.
    Commit,
    /// `wait 2`: all groups but so many of the newest are done, as far as the thread that started them can see.
    Wait {
        /// Groups that may still be under way.
        newest: u32,
    },
    /// `wait kernels`: the kernels in front of this one have ended, and what they stored is seen. Ahead of it a kernel that is there early touches nothing
    /// but constants and memory of its own. A kernel without one waits before it does anything.
    Kernels,
    /// `commit products`: the products that the threads of a warpgroup have begun since the last one are a group.
    CommitProducts,
    /// `wait products` or `wait products 1`: all products that the threads of a warpgroup have begun are done, or all groups of them but so many of the
    /// newest.
    Products {
        /// Groups that may still be under way.
        newest: u32,
    },
    /// `await turn`: all threads of a block see what the blocks of earlier iterations of the chain around have stored before they
    /// passed the turn on.
    Await,
    /// `pass turn`: the next iteration's turn comes, when all threads of the block are here.
    Pass,
    /// `acquire full ring 0 as b`: the warps that empty a ring wait until its next buffer is full, or those that fill it until that is
    /// empty, and see what was done ahead of the releases that made it so. In what follows in the same block of statements, `b` is the
    /// number of the buffer, for these warps.
    Acquire {
        /// The ring.
        ring: Ring,
        /// What is waited for.
        filling: Filling,
        /// The symbol that it defines, from 0 up to the number of buffers.
        buffer: Sym,
    },
    /// `release full ring 0`: of the warps that fill a ring, or of those that empty it, one more has done with the buffer that it acquired
    /// first and has not released. When all have, it is full or empty. It is full when the copies in the background are there, too, which
    /// the threads of these warps have started since they released one last.
    Release {
        /// The ring.
        ring: Ring,
        /// What the buffer becomes.
        filling: Filling,
    },
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

/// What an act does with elements of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// Reads them.
    Load,
    /// Writes them, or combines with them.
    Store,
    /// Hints that they are read soon.
    Hint,
}

/// Something that an act mentions.
#[derive(Debug)]
pub enum Part<'a> {
    /// An access: of a matrix, of lanes and of a table that of the first element.
    Access {
        /// What it does.
        touch: Touch,
        /// Memory accessed.
        mem: &'a Mem,
        /// Another memory that is accessed at the same coordinates.
        beside: Option<&'a Mem>,
        /// Coordinates.
        index: &'a [Expr],
        /// What must hold for it to happen.
        guard: &'a [Rel],
    },
    /// A value that it uses.
    Val(&'a Val),
    /// An expression that is no coordinate.
    Expr(&'a Expr),
    /// A relation that guards no access.
    Rel(&'a Rel),
}

/// Something that an act mentions, to be changed: see [`Part`].
#[derive(Debug)]
#[expect(missing_docs, reason = "they are those of `Part`")]
pub enum PartMut<'a> {
    Access {
        touch: Touch,
        mem: &'a mut Mem,
        beside: Option<&'a mut Mem>,
        index: &'a mut [Expr],
        guard: &'a mut [Rel],
    },
    Val(&'a mut Val),
    Expr(&'a mut Expr),
    Rel(&'a mut Rel),
}

/// Calls `$f` with every part of an operation: see [`each_part`].
macro_rules! each_part_of_op {
    ($op:expr, $f:ident, $Part:ident, $iter:ident) => {
        match $op {
            Op::Load { mem, index, guard, .. } => $f($Part::access(Touch::Load, mem, index, guard)),
            Op::Transposed { mem, index, .. } => $f($Part::always(Touch::Load, mem, None, index)),
            Op::Lookup { mem, first, by, .. } => {
                $f($Part::always(Touch::Load, mem, None, first));
                $f($Part::Val(by));
            }
            Op::Index(value) => $f($Part::Expr(value)),
            Op::Cond(rel) => $f($Part::Rel(rel)),
            Op::Call(_, args) => args.$iter().for_each(|value| $f($Part::Val(value))),
            Op::Cast(value) | Op::Round(_, value) | Op::Bitcast(value) => $f($Part::Val(value)),
            Op::Const(_) => {}
        }
    };
}

/// Calls `$f` with every part of an act, for shared and for mutable references: `$Part` is the type of the parts, `$one` makes a slice of
/// one element, and `$iter` iterates over a slice. This is the one place that says what acts consist of.
macro_rules! each_part {
    (fragment $fragment:ident, $touch:ident, $f:ident, $Part:ident, $one:path, $iter:ident) => {{
        let Fragment { mem, first, steps } = $fragment;
        $f($Part::always(Touch::$touch, mem, None, $one(first)));
        steps.$iter().for_each(|step| $f($Part::Expr(step)));
    }};
    (rows $rows:ident, $f:ident, $Part:ident, $one:path, $iter:ident) => {{
        let Rows { mem, first, panels, .. } = $rows;
        $f($Part::always(Touch::Load, mem, None, $one(first)));
        panels.$iter().for_each(|Panels { step, .. }| $f($Part::Expr(step)));
    }};
    ($act:expr, $f:ident, $Part:ident, $one:path, $iter:ident, $each:ident) => {
        match $act {
            Act::Let { op, .. } => op.$each(&mut *$f),
            Act::Bind { value, extent, .. } => {
                $f($Part::Val(value));
                $f($Part::Expr(extent));
            }
            Act::Store { mem, index, value, guard, .. } => {
                $f($Part::access(Touch::Store, mem, index, guard));
                $f($Part::Val(value));
            }
            Act::MulAdd { mem, index, factors, guard } => {
                $f($Part::access(Touch::Store, mem, index, guard));
                factors.$iter().for_each(|value| $f($Part::Val(value)));
            }
            Act::Lanes(LaneReduction { into, from, positions, index, first, .. }) => {
                let (at, places) = match positions {
                    Some([at, places]) => (Some(at), Some(places)),
                    None => (None, None),
                };
                $f($Part::always(Touch::Store, into, at, index));
                $f($Part::always(Touch::Load, from, places, first));
            }
            Act::Dot(Dot { mem, index, terms, .. }) => {
                $f($Part::always(Touch::Store, mem, None, index));
                for Element { mem, index, guard } in terms.$iter().flatten() {
                    $f($Part::access(Touch::Load, mem, index, guard));
                }
            }
            Act::MatrixProduct(MatrixProduct { sum, left, right, rows, columns, over, .. }) => {
                for (touch, matrix) in [(Touch::Store, sum), (Touch::Load, left), (Touch::Load, right)] {
                    let Matrix { mem, first, step } = matrix;
                    $f($Part::always(touch, mem, None, $one(first)));
                    $f($Part::Expr(step));
                }
                $f($Part::Expr(rows));
                $f($Part::Expr(columns));
                over.$iter().for_each(|Axis { extent, .. }| $f($Part::Expr(extent)));
            }
            Act::FragmentLoad(FragmentLoad { into, rows, .. }) => {
                each_part!(fragment into, Store, $f, $Part, $one, $iter);
                each_part!(rows rows, $f, $Part, $one, $iter);
            }
            Act::FragmentProduct(FragmentProduct { sum, left, right, .. }) => {
                each_part!(fragment sum, Store, $f, $Part, $one, $iter);
                for operand in [left, right] {
                    match operand {
                        Operand::Own(own) => each_part!(fragment own, Load, $f, $Part, $one, $iter),
                        Operand::Rows(rows) => each_part!(rows rows, $f, $Part, $one, $iter),
                    }
                }
            }
            Act::Copy { from, to, .. } => {
                for (touch, element) in [(Touch::Load, from), (Touch::Store, to)] {
                    let Element { mem, index, guard } = element;
                    $f($Part::access(touch, mem, index, guard));
                }
            }
            Act::BoxCopy(BoxCopy { from, origin, to, first, points, dims, rounds: _ }) => {
                $f($Part::always(Touch::Load, from, None, $one(origin)));
                $f($Part::always(Touch::Store, to, None, $one(first)));
                for BoxPoints { count: _, first, dims } in points.$iter() {
                    $f($Part::Expr(first));
                    for PointDim { count, by: _, step, corner: _, offset, end } in dims.$iter() {
                        [count, step, offset, end].into_iter().for_each(|at| $f($Part::Expr(at)));
                    }
                }
                for BoxDim { count: _, step, range } in dims.$iter() {
                    $f($Part::Expr(step));
                    range.$iter().flatten().for_each(|bound| $f($Part::Expr(bound)));
                }
            }
            Act::Sync(_) => {}
            Act::Prefetch { mem, index, guard, .. } => $f($Part::access(Touch::Hint, mem, index, guard)),
            Act::ArgStore { best, at, index, value, position, .. } => {
                $f($Part::always(Touch::Store, best, Some(at), index));
                $f($Part::Val(value));
                $f($Part::Expr(position));
            }
        }
    };
}

impl Act {
    /// Calls `f` with everything that it mentions.
    pub fn each_part<'a>(&'a self, f: &mut dyn FnMut(Part<'a>)) {
        each_part!(self, f, Part, std::slice::from_ref, iter, each_part);
    }

    /// Calls `f` with everything that it mentions, to be changed.
    pub fn each_part_mut<'a>(&'a mut self, f: &mut dyn FnMut(PartMut<'a>)) {
        each_part!(self, f, PartMut, std::slice::from_mut, iter_mut, each_part_mut);
    }
}

impl Op {
    /// Calls `f` with everything that it mentions.
    pub fn each_part<'a>(&'a self, f: &mut dyn FnMut(Part<'a>)) {
        each_part_of_op!(self, f, Part, iter);
    }

    /// Calls `f` with everything that it mentions, to be changed.
    pub fn each_part_mut<'a>(&'a mut self, f: &mut dyn FnMut(PartMut<'a>)) {
        each_part_of_op!(self, f, PartMut, iter_mut);
    }
}

impl<'a> Part<'a> {
    /// An access where all of `guard` hold.
    fn access(touch: Touch, mem: &'a Mem, index: &'a [Expr], guard: &'a [Rel]) -> Part<'a> {
        Part::Access { touch, mem, beside: None, index, guard }
    }

    /// An access that always happens.
    fn always(touch: Touch, mem: &'a Mem, beside: Option<&'a Mem>, index: &'a [Expr]) -> Part<'a> {
        Part::Access { touch, mem, beside, index, guard: &[] }
    }
}

impl<'a> PartMut<'a> {
    /// As [`Part::access`].
    fn access(touch: Touch, mem: &'a mut Mem, index: &'a mut [Expr], guard: &'a mut [Rel]) -> PartMut<'a> {
        PartMut::Access { touch, mem, beside: None, index, guard }
    }

    /// As [`Part::always`].
    fn always(
        touch: Touch,
        mem: &'a mut Mem,
        beside: Option<&'a mut Mem>,
        index: &'a mut [Expr],
    ) -> PartMut<'a> {
        PartMut::Access { touch, mem, beside, index, guard: &mut [] }
    }
}
