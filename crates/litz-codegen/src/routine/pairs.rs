//! Makes pairs of elements: a key, whose order is that of the elements, and the position, by which equal ones are ordered.

use litz_ir::kernel::{Mem, MemorySpace, Val};
use litz_ir::{Dtype, ScalarOp};
use litz_sym::{Expr, Rel};

use super::writer::Writer;

/// The type of the positions of pairs.
pub(super) const POSITION: Dtype = Dtype::I32;

/// The last position, which no element has.
pub(super) const LAST_POSITION: i64 = i32::MAX as i64;

/// The most elements of a row whose positions are of that type, with room for those that fill the last block.
pub(super) const MOST_ELEMENTS: i64 = (1 << 31) - (1 << 20);

/// Which elements come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// The smallest.
    Ascending,
    /// The largest.
    Descending,
}

/// The type of keys of elements; none for types that have no order here.
pub(super) fn key_type(dtype: Dtype) -> Option<Dtype> {
    match dtype {
        Dtype::Bool | Dtype::U8 | Dtype::I8 | Dtype::U16 | Dtype::I16 | Dtype::I32 => Some(Dtype::I32),
        Dtype::F16 | Dtype::BF16 | Dtype::F32 => Some(Dtype::I32),
        Dtype::U32 | Dtype::I64 | Dtype::U64 | Dtype::F64 => Some(Dtype::I64),
        Dtype::F8E4M3 | Dtype::F8E5M2 | Dtype::C64 | Dtype::C128 => None,
    }
}

/// The largest key of a type, which elements may have as well.
fn last_key(key: Dtype) -> i64 {
    if key == Dtype::I32 { i32::MAX.into() } else { i64::MAX }
}

/// The key of an element of a type that has one: the smallest key comes first. NaN of either sign is above all numbers, zeros of both signs
/// are equal.
fn key(w: &mut Writer, value: Val, dtype: Dtype, direction: Direction) -> Val {
    let found = w.dtype(value);
    let ascending = match found {
        Dtype::F32 => float_key(w, value, Dtype::I32),
        Dtype::F64 => float_key(w, value, Dtype::I64),
        Dtype::U64 => {
            let bits = w.bitcast(Dtype::I64, value);
            let sign = w.int(Dtype::I64, i64::MIN);
            w.op(ScalarOp::Xor, [bits, sign])
        }
        Dtype::Bool
        | Dtype::U8
        | Dtype::I8
        | Dtype::U16
        | Dtype::I16
        | Dtype::I32
        | Dtype::U32
        | Dtype::I64
        | Dtype::F16
        | Dtype::BF16
        | Dtype::F8E4M3
        | Dtype::F8E5M2
        | Dtype::C64
        | Dtype::C128 => w.cast(key_type(dtype).expect("invariant: elements have keys"), value),
    };
    match direction {
        Direction::Ascending => ascending,
        Direction::Descending => w.op(ScalarOp::Not, [ascending]),
    }
}

/// The bits of a float as an integer of its order: those of negative numbers are in the opposite one, but for the sign.
fn float_key(w: &mut Writer, value: Val, bits: Dtype) -> Val {
    let last = last_key(bits);
    // -0.0 + 0.0 => 0.0
    let zero = w.int(w.dtype(value), 0);
    let number = w.op(ScalarOp::Add, [value, zero]);
    let own = w.bitcast(bits, number);
    let width = w.int(bits, 8 * bits.size() as i64 - 1);
    let (sign, magnitude) = (w.op(ScalarOp::Shr, [own, width]), w.int(bits, last));
    let flipped = w.op(ScalarOp::And, [sign, magnitude]);
    let ordered = w.op(ScalarOp::Xor, [own, flipped]);
    let is_nan = w.op(ScalarOp::Isnan, [value]);
    w.op(ScalarOp::Select, [is_nan, magnitude, ordered])
}

/// Pairs in memory: an array of keys and one of positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    pub(super) key: Mem,
    pub(super) at: Mem,
}

/// A pair as values.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) key: Val,
    pub(super) at: Val,
}

impl Pairs {
    /// Parameters of so many pairs.
    pub(super) fn param(
        w: &mut Writer,
        names: [&str; 2],
        key: Dtype,
        extent: Expr,
        space: MemorySpace,
    ) -> Pairs {
        let [key, at] =
            [(names[0], key), (names[1], POSITION)].map(|(name, ty)| w.param(name, ty, extent, space));
        Pairs { key, at }
    }

    /// Memory of the kernel for so many pairs.
    pub(super) fn local(
        w: &mut Writer,
        names: [&str; 2],
        key: Dtype,
        extent: i64,
        space: MemorySpace,
    ) -> Pairs {
        let [key, at] =
            [(names[0], key), (names[1], POSITION)].map(|(name, ty)| w.local(name, ty, extent, space));
        Pairs { key, at }
    }

    pub(super) fn load(self, w: &mut Writer, index: Expr) -> Pair {
        Pair { key: w.load(self.key, index, Vec::new()), at: w.load(self.at, index, Vec::new()) }
    }

    pub(super) fn store(self, w: &mut Writer, index: Expr, pair: Pair) {
        w.store(self.key, index, pair.key, Vec::new());
        w.store(self.at, index, pair.at, Vec::new());
    }
}

impl Pair {
    /// Whether it comes after another one.
    pub(super) fn is_after(self, w: &mut Writer, other: Pair) -> Val {
        let is_greater = w.op(ScalarOp::Gt, [self.key, other.key]);
        let is_equal = w.op(ScalarOp::Eq, [self.key, other.key]);
        let is_behind = w.op(ScalarOp::Gt, [self.at, other.at]);
        let is_later = w.op(ScalarOp::And, [is_equal, is_behind]);
        w.op(ScalarOp::Or, [is_greater, is_later])
    }

    /// `self` where `is_own`, else another one.
    pub(super) fn or(self, w: &mut Writer, is_own: Val, other: Pair) -> Pair {
        Pair {
            key: w.op(ScalarOp::Select, [is_own, self.key, other.key]),
            at: w.op(ScalarOp::Select, [is_own, self.at, other.at]),
        }
    }
}

/// Rows that kernels read pairs from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Elements of a buffer, whose positions are those in the row.
    Elements { mem: Mem, dtype: Dtype, direction: Direction },
    /// Pairs, of which equal ones lie in the order of their positions.
    Pairs(Pairs),
}

/// A row of a source: element `at` of it is where `first + at * step` is, for each `at` below `length`.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) source: Source,
    pub(super) first: Expr,
    pub(super) step: Expr,
    pub(super) length: Expr,
    pub(super) key: Dtype,
}

impl Row {
    /// Where an element is.
    pub(super) fn place(&self, at: Expr) -> Expr {
        self.first + at * self.step
    }

    /// The key of element `at`, with its place in the row. What may be behind the end has the largest key.
    pub(super) fn load(&self, w: &mut Writer, at: Expr, is_inside: bool) -> Pair {
        let inside = Rel::lt(at, self.length);
        let guard = if is_inside { Vec::new() } else { vec![inside] };
        let place = self.place(at);
        let mut found = match self.source {
            Source::Elements { mem, dtype, direction } => {
                let value = w.load(mem, place, guard);
                key(w, value, dtype, direction)
            }
            Source::Pairs(pairs) => w.load(pairs.key, place, guard),
        };
        if !is_inside {
            let (holds, last) = (w.holds(inside), w.int(self.key, last_key(self.key)));
            found = w.op(ScalarOp::Select, [holds, found, last]);
        }
        let number = w.index(at);
        Pair { key: found, at: w.cast(POSITION, number) }
    }
}

/// The largest key, at a place.
pub(super) fn last_pair(w: &mut Writer, key: Dtype, at: Expr) -> Pair {
    let number = w.index(at);
    Pair { key: w.int(key, last_key(key)), at: w.cast(POSITION, number) }
}
