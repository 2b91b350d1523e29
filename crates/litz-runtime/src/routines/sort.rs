//! Sorts a buffer along one dimension and says where its elements were.

use std::ops::Range;

use half::{bf16, f16};
use litz_ir::Dtype;

use super::{Read, Write};
use crate::error::RunError;
use crate::number::Number;

/// Integers: outer, length, inner, descending.
pub(super) fn sort(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let &[outer, length, inner, descending] = ints else {
        return Err(bug("sort", format!("expected 4 integers, found {}", ints.len())));
    };
    Lines::new("sort", reads, writes, [outer, length, inner, length])?.select(writes, descending != 0)
}

/// Integers: outer, length, inner, k, largest.
pub(super) fn topk(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let &[outer, length, inner, count, largest] = ints else {
        return Err(bug("topk", format!("expected 5 integers, found {}", ints.len())));
    };
    Lines::new("topk", reads, writes, [outer, length, inner, count])?.select(writes, largest != 0)
}

/// Integers: rows, elements of each. Rows are ordered by their elements, the first first.
pub(super) fn sort_rows(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let wrong = || {
        bug("sort_rows", "expected a buffer, its order, and how many rows of how many elements".to_owned())
    };
    let ([source], [order], &[rows, width]) = (reads, writes, ints) else { return Err(wrong()) };
    let sizes = usize::try_from(rows).ok().zip(usize::try_from(width).ok());
    let Some((rows, width)) = sizes else { return Err(wrong()) };
    let (size, (places, _)) = (source.dtype.size(), order.bytes.as_chunks_mut::<8>());
    let length = rows.saturating_mul(width).saturating_mul(size);
    let (Some(bytes), Some(places), Dtype::I64) =
        (source.bytes.get(..length), places.get_mut(..rows), order.dtype)
    else {
        return Err(wrong());
    };
    let key = |element: &[u8]| {
        let mut bits = [0; 16];
        bits[..size].copy_from_slice(element);
        match Number::decode(source.dtype, u128::from_le_bytes(bits)) {
            Number::Bool(bit) => Some(i128::from(bit)),
            Number::Int(number) => Some(number),
            Number::Float(number) => Some(i128::from(double_key(number))),
            Number::Complex(..) => None,
        }
    };
    let keys: Option<Vec<i128>> = bytes.chunks_exact(size).map(key).collect();
    let keys = keys.ok_or_else(|| bug("sort_rows", format!("{} has no order", source.dtype)))?;
    let row = |at: usize| &keys[at * width..(at + 1) * width];
    let mut sorted: Vec<usize> = (0..rows).collect();
    sorted.sort_by(|&one, &other| row(one).cmp(row(other)));
    places.iter_mut().zip(sorted).for_each(|(place, at)| *place = (at as i64).to_le_bytes());
    Ok(())
}

fn bug(routine: &str, what: String) -> RunError {
    RunError::bug(format!("call of {routine}"), what)
}

/// A buffer of shape `[outer, length, inner]`, of which the first `count` along the middle in order are wanted.
struct Lines<'a> {
    bytes: &'a [u8],
    dtype: Dtype,
    outer: usize,
    length: usize,
    inner: usize,
    count: usize,
}

/// Elements that are wanted below which the others are compared with the last of them, instead of being put around it.
const FEW: usize = 64;

/// Elements that are compared with the last of those wanted at once, in vectors: few of these are below it.
const BLOCK: usize = 128;

/// An element's key, in whose order it is wanted, and below it the position along the line, by which equal ones are.
trait Packed: Copy + Ord {
    type Key: Copy + Ord;

    fn new(key: Self::Key, position: usize) -> Self;
    fn key(self) -> Self::Key;
    fn position(self) -> usize;
}

impl Packed for u64 {
    type Key = u32;

    fn new(key: u32, position: usize) -> u64 {
        u64::from(key) << 32 | position as u64
    }

    fn key(self) -> u32 {
        (self >> 32) as u32
    }

    fn position(self) -> usize {
        self as u32 as usize
    }
}

impl Packed for u128 {
    type Key = u64;

    fn new(key: u64, position: usize) -> u128 {
        u128::from(key) << 64 | position as u128
    }

    fn key(self) -> u64 {
        (self >> 64) as u64
    }

    fn position(self) -> usize {
        self as u64 as usize
    }
}

impl Lines<'_> {
    fn new<'a>(
        routine: &str,
        reads: &[Read<'a>],
        writes: &[Write<'_>],
        shape: [i64; 4],
    ) -> Result<Lines<'a>, RunError> {
        let ([source], [values, positions]) = (reads, writes) else {
            let found =
                format!("expected 1 buffer read and 2 written, found {} and {}", reads.len(), writes.len());
            return Err(bug(routine, found));
        };
        let [outer, length, inner, count] = shape.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let dtype = source.dtype;
        let bytes = |length: usize, size: usize| {
            outer.saturating_mul(length).saturating_mul(inner).saturating_mul(size)
        };
        let is_sound = count <= length
            && values.dtype == dtype
            && positions.dtype == Dtype::I64
            && source.bytes.len() >= bytes(length, dtype.size())
            && values.bytes.len() >= bytes(count, dtype.size())
            && positions.bytes.len() >= bytes(count, size_of::<i64>());
        if !is_sound {
            return Err(bug(routine, format!("buffers do not fit the shape {shape:?} of {dtype}")));
        }
        Ok(Lines { bytes: source.bytes, dtype, outer, length, inner, count })
    }

    /// Writes the first elements of each line in order, with their positions.
    fn select(&self, writes: &mut [Write<'_>], is_descending: bool) -> Result<(), RunError> {
        let flip = u64::from(is_descending).wrapping_neg();
        match self.dtype {
            Dtype::Bool | Dtype::U8 => self.narrow(writes, flip, |[byte]: [u8; 1]| u32::from(byte)),
            Dtype::U16 => self.narrow(writes, flip, |bytes| u32::from(u16::from_le_bytes(bytes))),
            Dtype::U32 => self.narrow(writes, flip, u32::from_le_bytes),
            Dtype::U64 => self.wide(writes, flip, u64::from_le_bytes),
            Dtype::I8 => self.narrow(writes, flip, |bytes| signed_key(i8::from_le_bytes(bytes).into())),
            Dtype::I16 => self.narrow(writes, flip, |bytes| signed_key(i16::from_le_bytes(bytes).into())),
            Dtype::I32 => self.narrow(writes, flip, |bytes| signed_key(i32::from_le_bytes(bytes))),
            Dtype::I64 => self.wide(writes, flip, |bytes| u64::from_le_bytes(bytes) ^ 1 << 63),
            Dtype::F16 => self.narrow(writes, flip, |bytes| float_key(f16::from_le_bytes(bytes).to_f32())),
            Dtype::BF16 => self.narrow(writes, flip, |bytes| float_key(bf16::from_le_bytes(bytes).to_f32())),
            Dtype::F32 => self.narrow(writes, flip, |bytes| float_key(f32::from_le_bytes(bytes))),
            Dtype::F64 => self.wide(writes, flip, |bytes| double_key(f64::from_le_bytes(bytes))),
            Dtype::F8E4M3 | Dtype::F8E5M2 => {
                self.narrow(writes, flip, |[byte]: [u8; 1]| match Number::decode(self.dtype, byte.into()) {
                    Number::Float(value) => float_key(value as f32),
                    Number::Bool(_) | Number::Int(_) | Number::Complex(..) => {
                        unreachable!("invariant: both types are floats")
                    }
                })
            }
            Dtype::C64 | Dtype::C128 => {
                return Err(bug("sort", format!("{} has no order", self.dtype)));
            }
        }
        Ok(())
    }

    /// Of elements whose keys have 32 bits.
    fn narrow<const SIZE: usize>(
        &self,
        writes: &mut [Write<'_>],
        flip: u64,
        key: impl Fn([u8; SIZE]) -> u32,
    ) {
        if u32::try_from(self.length).is_err() {
            return self.wide(writes, flip, |bytes| key(bytes).into());
        }
        self.write::<SIZE, u64>(writes, &KeyOf(move |bytes: [u8; SIZE]| key(bytes) ^ flip as u32));
    }

    /// Of elements whose keys have 64 bits.
    fn wide<const SIZE: usize>(&self, writes: &mut [Write<'_>], flip: u64, key: impl Fn([u8; SIZE]) -> u64) {
        self.write::<SIZE, u128>(writes, &KeyOf(move |bytes: [u8; SIZE]| key(bytes) ^ flip));
    }

    fn write<const SIZE: usize, P: Packed>(&self, writes: &mut [Write<'_>], keys: &dyn Keys<P>) {
        let [values, positions] = writes else { unreachable!("invariant: two buffers are written") };
        let (source, _) = self.bytes.as_chunks::<SIZE>();
        let (values, _) = values.bytes.as_chunks_mut::<SIZE>();
        let (positions, _) = positions.bytes.as_chunks_mut::<8>();
        let (mut first, mut gathered) = (Vec::new(), Vec::new());
        for (outer, inner) in
            (0..self.outer).flat_map(|outer| (0..self.inner).map(move |inner| (outer, inner)))
        {
            let own = &source[outer * self.length * self.inner..][..self.length * self.inner];
            let line = if self.inner == 1 {
                own
            } else {
                gathered.clear();
                gathered.extend(own.iter().skip(inner).step_by(self.inner));
                &gathered[..]
            };
            let elements = Line { bytes: line.as_flattened(), length: self.length, size: SIZE };
            select(&mut first, &elements, keys, self.count);
            for (rank, at) in first.iter().map(|packed| packed.position()).enumerate() {
                let target = (outer * self.count + rank) * self.inner + inner;
                values[target] = line[at];
                positions[target] = (at as i64).to_le_bytes();
            }
        }
    }
}

/// What depends on the type of elements, and no more: all else is compiled once for each width of keys.
trait Keys<P: Packed> {
    /// Adds the elements of a line from position `from` on.
    fn pack(&self, elements: &[u8], from: usize, packed: &mut Vec<P>);
    /// Where the first block of elements begins that has one whose key is below that one.
    fn block_below(&self, elements: &[u8], last: P::Key) -> Option<usize>;
}

/// The key of an element of so many bytes.
struct KeyOf<const SIZE: usize, F>(F);

impl<const SIZE: usize, P: Packed, F: Fn([u8; SIZE]) -> P::Key> Keys<P> for KeyOf<SIZE, F> {
    fn pack(&self, elements: &[u8], from: usize, packed: &mut Vec<P>) {
        let (elements, _) = elements.as_chunks::<SIZE>();
        packed.extend(elements.iter().enumerate().map(|(at, &bytes)| P::new(self.0(bytes), from + at)));
    }

    fn block_below(&self, elements: &[u8], last: P::Key) -> Option<usize> {
        let (elements, _) = elements.as_chunks::<SIZE>();
        // Each block to its end, so that it takes vectors.
        let is_below =
            |block: &[[u8; SIZE]]| block.iter().fold(false, |any, &bytes| any | (self.0(bytes) < last));
        elements.chunks(BLOCK).position(is_below).map(|block| block * BLOCK)
    }
}

/// Elements of `size` bytes each.
struct Line<'a> {
    bytes: &'a [u8],
    length: usize,
    size: usize,
}

impl Line<'_> {
    fn run(&self, run: Range<usize>) -> &[u8] {
        &self.bytes[run.start * self.size..run.end * self.size]
    }
}

/// Makes `first` the `count` smallest of a line, in order.
fn select<P: Packed>(first: &mut Vec<P>, line: &Line<'_>, keys: &dyn Keys<P>, count: usize) {
    first.clear();
    if count == 0 {
        return;
    }
    if count > FEW || count == line.length {
        keys.pack(line.bytes, 0, first);
        if count < line.length {
            first.select_nth_unstable(count - 1);
            first.truncate(count);
        }
        first.sort_unstable();
        return;
    }
    keys.pack(line.run(0..count), 0, first);
    first.sort_unstable();
    let mut from = count;
    // Of equal keys the first wins, which is never one to come.
    while let Some(skipped) = keys.block_below(line.run(from..line.length), first[count - 1].key()) {
        from += skipped;
        let end = line.length.min(from + BLOCK);
        keys.pack(line.run(from..end), from, first);
        for at in count..first.len() {
            let next = first[at];
            if next < first[count - 1] {
                let rank = first[..count].partition_point(|&earlier| earlier < next);
                first.copy_within(rank..count - 1, rank + 1);
                first[rank] = next;
            }
        }
        first.truncate(count);
        from = end;
    }
}

fn signed_key(value: i32) -> u32 {
    value as u32 ^ 1 << 31
}

/// NaN last. Both zeros are equal. Bits of positive numbers are in their order, those of negative ones in the opposite.
fn float_key(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    let key = bits ^ ((bits as i32 >> 31) as u32 | 1 << 31);
    if value.is_nan() { u32::MAX } else { key }
}

/// As [`float_key`].
fn double_key(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    let key = bits ^ ((bits as i64 >> 63) as u64 | 1 << 63);
    if value.is_nan() { u64::MAX } else { key }
}

#[cfg(test)]
mod tests {
    use super::super::routine;
    use super::*;

    fn call<T: bytemuck::Pod>(
        name: &str,
        dtype: Dtype,
        x: &[T],
        count: usize,
        ints: &[i64],
    ) -> (Vec<T>, Vec<i64>) {
        let mut values = vec![T::zeroed(); count];
        let mut positions = vec![-1i64; count];
        let reads = [Read { bytes: bytemuck::cast_slice(x), dtype }];
        let mut writes = [
            Write { bytes: bytemuck::cast_slice_mut(&mut values), dtype },
            Write { bytes: bytemuck::cast_slice_mut(&mut positions), dtype: Dtype::I64 },
        ];
        routine(name).expect("the routine is known")(&reads, &mut writes, ints).expect("the call is sound");
        (values, positions)
    }

    #[test]
    fn sorting_is_stable_and_puts_nan_last() {
        let x = [2.0f32, f32::NAN, -1.0, 0.0, -0.0, f32::INFINITY, -1.0, f32::NEG_INFINITY];
        let (values, positions) = call("sort", Dtype::F32, &x, 8, &[1, 8, 1, 0]);
        assert_eq!(positions, [7, 2, 6, 3, 4, 0, 5, 1]);
        assert_eq!(values[..7], [f32::NEG_INFINITY, -1.0, -1.0, 0.0, -0.0, 2.0, f32::INFINITY]);
        assert!(values[7].is_nan());
        let (_, positions) = call("sort", Dtype::F32, &x, 8, &[1, 8, 1, 1]);
        assert_eq!(positions, [1, 5, 0, 3, 4, 2, 6, 7]);
    }

    #[test]
    fn inner_dimensions_stay_apart() {
        let x = [3i64, 30, 1, 10, 2, 20, -3, -30, -1, -10, -2, -20];
        let (values, positions) = call("sort", Dtype::I64, &x, 12, &[2, 3, 2, 0]);
        assert_eq!(values, [1, 10, 2, 20, 3, 30, -3, -30, -2, -20, -1, -10]);
        assert_eq!(positions, [1, 1, 2, 2, 0, 0, 0, 0, 2, 2, 1, 1]);
    }

    #[test]
    fn topk_gives_the_first_of_equals() {
        let x = [5u8, 9, 200, 9, 1];
        assert_eq!(call("topk", Dtype::U8, &x, 3, &[1, 5, 1, 3, 1]), (vec![200, 9, 9], vec![2, 1, 3]));
        assert_eq!(call("topk", Dtype::U8, &x, 2, &[1, 5, 1, 2, 0]), (vec![1, 5], vec![4, 0]));
        assert_eq!(call("topk", Dtype::U8, &x, 0, &[1, 5, 1, 0, 1]), (vec![], vec![]));
    }

    #[test]
    fn every_type_has_its_order() {
        let ordered = |dtype: Dtype, sorted: &[f64]| {
            let size = dtype.size();
            let bits = |value: &f64| Number::Float(*value).encode(dtype).to_le_bytes()[..size].to_vec();
            let x: Vec<u8> = sorted.iter().rev().flat_map(bits).collect();
            let n = sorted.len();
            let (mut values, mut positions) = (vec![0; n * size], vec![0; n * 8]);
            let mut writes =
                [Write { bytes: &mut values, dtype }, Write { bytes: &mut positions, dtype: Dtype::I64 }];
            sort(&[Read { bytes: &x, dtype }], &mut writes, &[1, n as i64, 1, 0]).expect("the call is sound");
            assert_eq!(values, sorted.iter().flat_map(bits).collect::<Vec<u8>>(), "{dtype}");
        };
        ordered(Dtype::Bool, &[0.0, 1.0]);
        for dtype in [Dtype::U8, Dtype::U16, Dtype::U32, Dtype::U64] {
            ordered(dtype, &[0.0, 1.0, 127.0, 200.0]);
        }
        for dtype in [Dtype::I8, Dtype::I16, Dtype::I32, Dtype::I64] {
            ordered(dtype, &[-128.0, -2.0, -1.0, 0.0, 1.0, 127.0]);
        }
        let floats = [f64::NEG_INFINITY, -400.0, -1.5, -0.125, 0.0, 0.125, 1.0, 1.5, 400.0, f64::INFINITY];
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32, Dtype::F64] {
            ordered(dtype, &floats);
        }
        for dtype in [Dtype::F8E4M3, Dtype::F8E5M2] {
            ordered(dtype, &[-16.0, -1.5, 0.0, 0.5, 1.0, 16.0]);
        }
    }

    #[test]
    fn rows_are_in_the_order_of_their_elements() {
        let order = |x: &[f32], rows: i64, width: i64| {
            let mut places = vec![-1i64; rows as usize];
            let mut writes = [Write { bytes: bytemuck::cast_slice_mut(&mut places), dtype: Dtype::I64 }];
            let reads = [Read { bytes: bytemuck::cast_slice(x), dtype: Dtype::F32 }];
            sort_rows(&reads, &mut writes, &[rows, width]).map(|()| places)
        };
        let x = [1.0, 2.0, -1.0, 5.0, 1.0, -2.0, 1.0, f32::NAN, -1.0, 5.0];
        assert_eq!(order(&x, 5, 2).expect("it fits"), [1, 4, 2, 0, 3]);
        assert_eq!(order(&[], 3, 0).expect("it fits"), [0, 1, 2]);
        assert!(order(&x, 6, 2).is_err());
    }

    #[test]
    fn few_and_many_of_a_line_are_the_first_of_all() {
        fn check<T: bytemuck::Pod + PartialEq + std::fmt::Debug>(dtype: Dtype, element: fn(i64) -> T) {
            let x: Vec<T> = (0..1000).map(|i| element(i * 7919 % 211)).collect();
            let all = call("sort", dtype, &x, 1000, &[1, 1000, 1, 1]);
            for count in [1, 10, FEW, FEW + 1, 999, 1000] {
                let first = call("topk", dtype, &x, count, &[1, 1000, 1, count as i64, 1]);
                assert_eq!(first, (all.0[..count].to_vec(), all.1[..count].to_vec()), "{count} of {dtype}");
            }
        }
        check(Dtype::U8, |number| number as u8);
        check(Dtype::I16, |number| number as i16 - 100);
        check(Dtype::F32, |number| number as f32 - 100.0);
        check(Dtype::F64, |number| number as f64 - 100.0);
    }

    #[test]
    fn nothing_to_sort() {
        assert_eq!(call::<i32>("sort", Dtype::I32, &[], 0, &[0, 4, 1, 0]).0, []);
        assert_eq!(call::<i32>("sort", Dtype::I32, &[], 0, &[2, 0, 3, 0]).0, []);
    }

    #[test]
    fn short_buffers_are_refused() {
        let error = sort(&[Read { bytes: &[0; 4], dtype: Dtype::I8 }], &mut [], &[1, 4, 1, 0])
            .expect_err("no outputs");
        assert!(matches!(error, RunError::Bug { .. }));
        let mut writes = [
            Write { bytes: &mut [0; 4], dtype: Dtype::I8 },
            Write { bytes: &mut [0; 31], dtype: Dtype::I64 },
        ];
        let error = sort(&[Read { bytes: &[0; 4], dtype: Dtype::I8 }], &mut writes, &[1, 4, 1, 0])
            .expect_err("short");
        assert_eq!(error.to_string(), "bug in call of sort: buffers do not fit the shape [1, 4, 1, 4] of i8");
    }
}
