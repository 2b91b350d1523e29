//! Describes how a kernel moves along one dimension, for convolutions and patches.

use crate::args::Args;
use crate::body::Body;
use crate::error::OpError;
use crate::infer::InferCx;
use litz_sym::{Expr, Rel};

/// How a kernel moves along one dimension.
pub struct Window {
    /// Elements from one result to the next.
    pub stride: i64,
    /// Elements from one tap to the next.
    pub dilation: i64,
    /// Zeros before the first element; of a transposed convolution, results left out there.
    pub before: Expr,
    /// The same after the last.
    pub after: Expr,
    /// Results that a transposed convolution adds at the end.
    pub extra: Expr,
}

/// Where the taps are that reach a result of a transposed convolution: the first, and then every stride-th. Results a stride
/// apart are reached by the same ones, and no others need be tried.
pub struct Phase {
    /// The tap.
    pub tap: Expr,
    /// The element that it spreads.
    pub source: Expr,
    /// What must hold for that to exist.
    pub guard: Vec<Rel>,
}

/// Neighbours, of as many results as a stride, that equally many taps reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phases {
    /// The first of them.
    pub first: i64,
    /// How many they are.
    pub count: i64,
    /// Taps that reach each.
    pub taps: i64,
}

impl Window {
    /// The same padding on both sides.
    pub fn new(stride: i64, dilation: i64, padding: Expr) -> Window {
        Window { stride, dilation, before: padding, after: padding, extra: Expr::zero() }
    }

    /// Number of results along a dimension of `size` with a weight of `kernel`.
    pub fn count(
        &self,
        cx: &mut InferCx<'_>,
        args: &Args<'_>,
        size: Expr,
        kernel: Expr,
    ) -> Result<Expr, OpError> {
        let room = size + self.before + self.after - (kernel - 1) * self.dilation - 1;
        let (dilation, padded) = (self.dilation, (self.before, self.after));
        let outside = |_| {
            let padded = format!("padded by {} and {}", padded.0, padded.1);
            args.invalid(format!(
                "a kernel of {kernel} taps {dilation} apart does not fit in {size} {padded}"
            ))
        };
        cx.require(Rel::ge(room, 0), args.op()).map_err(outside)?;
        Ok(cx.simplify(room.floordiv(self.stride) + 1))
    }

    /// The same of a transposed convolution.
    pub fn spread_count(
        &self,
        cx: &mut InferCx<'_>,
        args: &Args<'_>,
        size: Expr,
        kernel: Expr,
    ) -> Result<Expr, OpError> {
        let reach = (kernel - 1) * self.dilation;
        let count = (size - 1) * self.stride - self.before - self.after + reach + self.extra + 1;
        let empty = |_| args.invalid(format!("a kernel of {kernel} taps over {size} gives {count} results"));
        cx.require(Rel::ge(count, 1), args.op()).map_err(empty)?;
        Ok(cx.simplify(count))
    }

    /// The element of the operand under tap `k` of result `at`, and what must hold for it to exist.
    pub fn source(&self, at: Expr, k: Expr, size: Expr) -> (Expr, Vec<Rel>) {
        let position = at * self.stride + k * self.dilation - self.before;
        let mut guard = Vec::new();
        if !self.before.is_zero() {
            guard.push(Rel::ge(position, 0));
        }
        if !self.after.is_zero() {
            guard.push(Rel::lt(position, size));
        }
        (position, guard)
    }

    /// The element of the operand that a transposed convolution spreads to result `at` by tap `k`, and what must
    /// hold for it to exist.
    pub fn spread_source(&self, at: Expr, k: Expr, size: Expr) -> (Expr, Vec<Rel>) {
        let position = at + self.before - k * self.dilation;
        let mut guard = vec![Rel::ge(position, 0), Rel::lt(position, size * self.stride)];
        if self.stride > 1 {
            guard.push(Rel::eq(position.modulo(self.stride), 0));
        }
        (position.floordiv(self.stride), guard)
    }

    /// The results of a stride of a transposed convolution with a weight of `kernel` taps, in order, by the number of taps that
    /// reach them: of 4 taps a stride of 3 apart, two reach one of three results, and one each of the others. Nothing where all
    /// taps are to be tried, as where there is no stride.
    pub fn phases(&self, kernel: Expr) -> Vec<Phases> {
        let (Some(kernel), Some(before), true) =
            (kernel.as_int(), self.before.as_int(), self.stride > 1 && self.dilation == 1)
        else {
            return Vec::new();
        };
        // The first tap that reaches a result counts up from that of result 0, and begins at 0 again after the last one of a
        // stride; taps below `kernel` modulo the stride are one more than others. So at most three runs are alike, however long
        // the stride is.
        let stride = self.stride;
        let (shift, more) = (before.rem_euclid(stride), kernel.rem_euclid(stride));
        let first_tap = |at: i64| if at < stride - shift { at + shift } else { at - (stride - shift) };
        let result_of = |tap: i64| if tap >= shift { tap - shift } else { tap + (stride - shift) };
        let mut starts = [0, result_of(0), result_of(more)];
        starts.sort_unstable();
        let ends = [starts[1], starts[2], stride];
        let mut phases: Vec<Phases> = Vec::new();
        for (first, end) in starts.into_iter().zip(ends).filter(|(first, end)| first < end) {
            let taps = kernel.div_euclid(stride) + i64::from(first_tap(first) < more);
            match phases.last_mut().filter(|last| last.taps == taps) {
                Some(last) => last.count += end - first,
                None => phases.push(Phases { first, count: end - first, taps }),
            }
        }
        phases
    }

    /// Result `at` of the group `group` of results, and the `turn`-th tap that reaches it.
    pub fn phase(&self, group: Expr, at: Expr, turn: Expr, size: Expr) -> Phase {
        let shifted = at + self.before;
        let tap = turn * self.stride + shifted.modulo(self.stride);
        let source = group - turn + shifted.floordiv(self.stride);
        Phase { tap, source, guard: vec![Rel::ge(source, 0), Rel::lt(source, size)] }
    }
}

/// Reduced axes; an extent of 1 needs none, its coordinate is 0.
pub fn reduced_axes(b: &mut Body<'_>, extents: &[Expr]) -> Vec<Expr> {
    extents.iter().map(|&e| if e.is_one() { Expr::zero() } else { b.reduced_axis(e) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_are_counted_for_every_result_of_a_stride() {
        for (stride, before, kernel) in
            (2..7).flat_map(|s| (-3..9).flat_map(move |b| (0..12).map(move |k| (s, b, k))))
        {
            let window = Window::new(stride, 1, Expr::int(before));
            let phases = window.phases(Expr::int(kernel));
            let found: Vec<i64> =
                phases.iter().flat_map(|phase| (0..phase.count).map(|_| phase.taps)).collect();
            let reaches = |at: i64, tap: i64| (at + before - tap).rem_euclid(stride) == 0;
            let expected: Vec<i64> =
                (0..stride).map(|at| (0..kernel).filter(|&tap| reaches(at, tap)).count() as i64).collect();
            assert_eq!(found, expected, "stride {stride}, {before} before, {kernel} taps");
            let firsts: Vec<i64> = phases.iter().map(|phase| phase.first).collect();
            assert!(firsts.is_sorted() && phases.len() <= 3 && firsts.first() == Some(&0));
        }
    }

    #[test]
    fn the_longest_stride_has_few_phases() {
        let window = Window::new(i64::MAX, 1, Expr::int(5));
        let taps: Vec<(i64, i64)> =
            window.phases(Expr::int(3)).iter().map(|phase| (phase.count, phase.taps)).collect();
        assert_eq!(taps, [(i64::MAX - 5, 0), (3, 1), (2, 0)]);
    }
}
