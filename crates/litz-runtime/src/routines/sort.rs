//! A buffer to its elements in order along one dimension, and where they were.

use litz_ir::Dtype;

use super::{Read, Write};
use crate::error::RunError;
use crate::number::{Number, read, write};

/// Integers: outer, length, inner, descending.
pub(super) fn sort(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let &[outer, length, inner, descending] = ints else {
        return Err(bug("sort", format!("expected 4 integers, found {}", ints.len())));
    };
    Lines::new("sort", reads, writes, [outer, length, inner, length])?.select(writes, descending != 0);
    Ok(())
}

/// Integers: outer, length, inner, k, largest.
pub(super) fn topk(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let &[outer, length, inner, count, largest] = ints else {
        return Err(bug("topk", format!("expected 5 integers, found {}", ints.len())));
    };
    Lines::new("topk", reads, writes, [outer, length, inner, count])?.select(writes, largest != 0);
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

/// An element as it is compared, and its position along the line.
type Keyed = (i128, usize);

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
    fn select(&self, writes: &mut [Write<'_>], is_descending: bool) {
        let size = self.dtype.size();
        let mut line: Vec<Keyed> = Vec::with_capacity(self.length);
        let compare = |a: &Keyed, b: &Keyed| {
            let by_value = if is_descending { b.0.cmp(&a.0) } else { a.0.cmp(&b.0) };
            by_value.then(a.1.cmp(&b.1))
        };
        for (outer, inner) in
            (0..self.outer).flat_map(|outer| (0..self.inner).map(move |inner| (outer, inner)))
        {
            let source = |at: usize| ((outer * self.length + at) * self.inner + inner) * size;
            line.clear();
            line.extend((0..self.length).map(|at| (self.key(source(at)), at)));
            if self.count < self.length && self.count > 0 {
                line.select_nth_unstable_by(self.count - 1, compare);
            }
            line[..self.count].sort_unstable_by(compare);
            for (rank, &(_, at)) in line[..self.count].iter().enumerate() {
                let target = (outer * self.count + rank) * self.inner + inner;
                write(writes[0].bytes, target * size, size, read(self.bytes, source(at), size));
                write(writes[1].bytes, target * size_of::<i64>(), size_of::<i64>(), at as u128);
            }
        }
    }

    /// An integer in the order of the elements, NaN last. Both zeros are equal.
    fn key(&self, at: usize) -> i128 {
        match Number::decode(self.dtype, read(self.bytes, at, self.dtype.size())) {
            Number::Bool(value) => i128::from(value),
            Number::Int(value) => value,
            Number::Float(value) | Number::Complex(value, _) => float_key(value),
        }
    }
}

fn float_key(value: f64) -> i128 {
    if value.is_nan() {
        return i128::MAX;
    }
    let magnitude = i128::from(value.abs().to_bits());
    if value < 0.0 { -magnitude } else { magnitude }
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
