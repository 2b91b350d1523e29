//! Lowers resizing of images of bytes as eager mode does it: by weights of 16 bits, along the last dimension and then along the one
//! before, with bytes in between.
//!
//! Weights are computed in f64, step by step as in eager mode's kernel, as the place of the last bit decides. As many bits are behind
//! their point as the largest weight of a dimension leaves.

use crate::body::Body;
use crate::error::OpError;
use crate::lower::Lower;
use crate::ops::curve::{Curve, cubic_far, cubic_near, reach};
use crate::view::ValueAccess;
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// One resized dimension.
pub(crate) struct Axis {
    /// Elements of the operand.
    pub(crate) size: Expr,
    /// Elements of the result.
    pub(crate) count: Expr,
    /// How many times larger the result is, where the caller says so.
    pub(crate) scale: Option<f64>,
    /// Elements of the operand for each of the result, as a fraction.
    pub(crate) ratio: (Expr, Expr),
}

/// Which elements a result is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Those next to its place.
    Next,
    /// All that it covers.
    Covered,
}

/// How elements are weighted.
#[derive(Clone, Copy)]
pub(crate) struct Weighting {
    pub(crate) curve: Curve,
    pub(crate) taken: Taken,
    pub(crate) align_corners: bool,
}

/// The most bits behind the point of a weight.
const MOST_BITS: i64 = 22;

/// Resizes the last two of four dimensions.
pub(crate) fn resize(
    lw: &mut Lower<'_>,
    x: &ValueAccess,
    [rows, columns]: [Axis; 2],
    weighting: Weighting,
    out: &ValueAccess,
) -> Result<(), OpError> {
    let mut sizes = x.sizes.clone();
    sizes[3] = columns.count;
    let wide = lw.temp("wide", Dtype::U8, &sizes);
    Filter::new(lw, &columns, weighting)?.apply(lw, x, 3, &wide)?;
    Filter::new(lw, &rows, weighting)?.apply(lw, &wide, 2, out)
}

/// What results along one dimension are made of.
struct Filter {
    /// The first element of each.
    first: ValueAccess,
    /// For each the weights of elements from its first on.
    weights: ValueAccess,
    /// How many bits of a weight are behind its point.
    bits: ValueAccess,
}

impl Filter {
    fn new(lw: &mut Lower<'_>, axis: &Axis, weighting: Weighting) -> Result<Filter, OpError> {
        let taps = weighting.taps(axis);
        let table = [axis.count, taps];
        let first = lw.temp("first", Dtype::I64, &table[..1]);
        lw.nest(&table[..1], |b, at| {
            let element = match weighting.taken {
                Taken::Next => weighting.neighbours(b, axis, at[0]).first,
                Taken::Covered => weighting.cover(b, axis, at[0]).first,
            };
            let (zero, last) = (b.lit(element, 0.0), b.index(axis.size - 1, Dtype::I64));
            let element = b.max(element, zero);
            let element = b.min(element, last);
            b.store(&first, at, element);
            Ok(())
        })?;
        let exact = lw.temp("exact", Dtype::F64, &table);
        let largest = lw.temp("largest", Dtype::F64, &[]);
        match weighting.taken {
            Taken::Next => {
                lw.nest(&table, |b, at| {
                    let [weight, _] = weighting.gathered(b, axis, at[0], at[1]);
                    b.store(&exact, at, weight);
                    Ok(())
                })?;
                lw.nest(&[], |b, _| {
                    let [at, tap] = table.map(|extent| b.reduced_axis(extent));
                    let [_, most] = weighting.gathered(b, axis, at, tap);
                    let most = b.reduce(ReduceOp::Max, most);
                    b.store(&largest, &[], most);
                    Ok(())
                })?;
            }
            Taken::Covered => {
                let total = lw.temp("total", Dtype::F64, &table[..1]);
                lw.nest(&table[..1], |b, at| {
                    let tap = b.reduced_axis(taps);
                    let weight = weighting.covered(b, axis, at[0], tap);
                    let sum = b.reduce(ReduceOp::Sum, weight);
                    b.store(&total, at, sum);
                    Ok(())
                })?;
                lw.nest(&table, |b, at| {
                    let (weight, total) =
                        (weighting.covered(b, axis, at[0], at[1]), b.load(&total, &at[..1]));
                    let zero = b.lit(total, 0.0);
                    let (share, is_empty) = (b.div(weight, total), b.eq(total, zero));
                    let share = b.select(is_empty, weight, share);
                    b.store(&exact, at, share);
                    Ok(())
                })?;
                lw.nest(&[], |b, _| {
                    let at = table.map(|extent| b.reduced_axis(extent));
                    let weight = b.load(&exact, &at);
                    let most = b.reduce(ReduceOp::Max, weight);
                    let zero = b.lit(most, 0.0);
                    let most = b.max(most, zero);
                    b.store(&largest, &[], most);
                    Ok(())
                })?;
            }
        }
        Filter::rounded(lw, first, &exact, &largest)
    }

    /// As many bits as the largest weight has room for in 16, one of which is its sign.
    fn rounded(
        lw: &mut Lower<'_>,
        first: ValueAccess,
        exact: &ValueAccess,
        largest: &ValueAccess,
    ) -> Result<Filter, OpError> {
        let (bits, unit) = (lw.temp("bits", Dtype::I32, &[]), lw.temp("unit", Dtype::F64, &[]));
        lw.nest(&[], |b, _| {
            let largest = b.load(largest, &[]);
            let (half, limit) = (b.lit(largest, 0.5), b.lit(largest, f64::from(1 << 15)));
            let mut count = b.literal(Scalar::Int(0), Dtype::I32);
            let mut scale = b.lit(largest, 1.0);
            for bit in 1..=MOST_BITS {
                let power = b.lit(largest, (1_i64 << bit) as f64);
                let scaled = b.mul(largest, power);
                let next = b.add(scaled, half);
                let fits = b.lt(next, limit);
                let (more, twice) = (b.cast(fits, Dtype::I32), b.select(fits, power, scale));
                (count, scale) = (b.add(count, more), twice);
            }
            b.store(&bits, &[], count);
            b.store(&unit, &[], scale);
            Ok(())
        })?;
        let weights = lw.temp("weights", Dtype::I32, &exact.sizes);
        lw.nest(&exact.sizes, |b, at| {
            let (weight, unit) = (b.load(exact, at), b.load(&unit, &[]));
            let scaled = b.mul(weight, unit);
            let (zero, half, back) = (b.lit(scaled, 0.0), b.lit(scaled, 0.5), b.lit(scaled, -0.5));
            let is_negative = b.lt(scaled, zero);
            let step = b.select(is_negative, back, half);
            let rounded = b.add(scaled, step);
            b.store(&weights, at, rounded);
            Ok(())
        })?;
        Ok(Filter { first, weights, bits })
    }

    fn apply(
        &self,
        lw: &mut Lower<'_>,
        x: &ValueAccess,
        dim: usize,
        out: &ValueAccess,
    ) -> Result<(), OpError> {
        let (taps, size) = (self.weights.sizes[1], x.sizes[dim]);
        lw.nest(&out.sizes, |b, at| {
            let first = b.load(&self.first, &at[dim..=dim]);
            let first = b.bind(first, size);
            let tap = b.reduced_axis(taps);
            let mut coords = at.to_vec();
            coords[dim] = first + tap;
            let guard = vec![Rel::lt(coords[dim], size)];
            let byte = b.load_if(x, &coords, guard, Scalar::Int(0));
            let (byte, weight) = (b.cast(byte, Dtype::I32), b.load(&self.weights, &[at[dim], tap]));
            let term = b.mul(byte, weight);
            let sum = b.reduce(ReduceOp::Sum, term);
            let (bits, one) = (b.load(&self.bits, &[]), b.lit(sum, 1.0));
            let below = b.sub(bits, one);
            let half = b.op(ScalarOp::Shl, &[one, below]);
            let sum = b.add(sum, half);
            let whole = b.op(ScalarOp::Shr, &[sum, bits]);
            let (least, most) = (b.lit(whole, 0.0), b.lit(whole, 255.0));
            let whole = b.max(whole, least);
            let whole = b.min(whole, most);
            b.store(out, at, whole);
            Ok(())
        })
    }
}

/// The elements that a result covers.
struct Cover {
    first: Val,
    count: Val,
    /// The result's centre.
    centre: Val,
    /// What distances from it are multiplied by.
    inverse: Val,
}

/// The elements next to a result's place.
struct Neighbours {
    /// The first, which may lie before the operand: then several count as the operand's first one.
    first: Val,
    /// How far the place is behind the nearest element before it.
    behind: Val,
}

impl Weighting {
    /// The most elements that a result is made of.
    fn taps(self, axis: &Axis) -> Expr {
        let reach = reach(self.curve);
        if self.taken == Taken::Next {
            return Expr::int(reach * 2);
        }
        let (num, den) = match self.align_corners {
            true => (axis.size - 1, (axis.count - 1).max(1)),
            false => axis.ratio,
        };
        // One more than is right, as f64 may find an end a little too far.
        (num.max(den) * reach).ceildiv(den) * 2 + 2
    }

    /// Elements of the operand for each of the result.
    fn scale(self, b: &mut Body<'_>, axis: &Axis) -> Val {
        let (size, count) = (axis.size, axis.count);
        if !self.align_corners {
            return match axis.scale {
                Some(scale) => b.literal(Scalar::Float(1.0 / scale), Dtype::F64),
                None => {
                    let (size, count) = (b.index(size, Dtype::F64), b.index(count, Dtype::F64));
                    b.div(size, count)
                }
            };
        }
        let (steps, places) = (b.index(size - 1, Dtype::F64), b.index((count - 1).max(1), Dtype::F64));
        let scale = b.div(steps, places);
        let (is_alone, zero) = (b.cond(Rel::le(count, 1)), b.lit(scale, 0.0));
        b.select(is_alone, zero, scale)
    }

    /// The elements that a result covers.
    fn cover(self, b: &mut Body<'_>, axis: &Axis, at: Expr) -> Cover {
        let scale = self.scale(b, axis);
        let (half, one) = (b.lit(scale, 0.5), b.lit(scale, 1.0));
        let (at, least) = (b.index(at, Dtype::F64), b.lit(scale, reach(self.curve) as f64));
        let middle = b.add(at, half);
        let centre = b.mul(scale, middle);
        let (is_coarse, wide, narrow) = (b.ge(scale, one), b.mul(least, scale), b.div(one, scale));
        let (support, inverse) = (b.select(is_coarse, wide, least), b.select(is_coarse, narrow, one));
        let edge = |b: &mut Body<'_>, op: ScalarOp| {
            let edge = b.op(op, &[centre, support]);
            let edge = b.add(edge, half);
            b.cast(edge, Dtype::I64)
        };
        let (first, end) = (edge(b, ScalarOp::Sub), edge(b, ScalarOp::Add));
        let (zero, size) = (b.lit(first, 0.0), b.index(axis.size, Dtype::I64));
        let (first, end) = (b.max(first, zero), b.min(end, size));
        let count = b.sub(end, first);
        let count = b.max(count, zero);
        // Not more than eager mode has room for.
        let most = b.op(ScalarOp::Ceil, &[support]);
        let most = b.cast(most, Dtype::I64);
        let twice = b.add(most, most);
        let unit = b.lit(twice, 1.0);
        let most = b.add(twice, unit);
        Cover { first, count: b.min(count, most), centre, inverse }
    }

    fn neighbours(self, b: &mut Body<'_>, axis: &Axis, at: Expr) -> Neighbours {
        let scale = self.scale(b, axis);
        let (half, one, zero) = (b.lit(scale, 0.5), b.lit(scale, 1.0), b.lit(scale, 0.0));
        let at = b.index(at, Dtype::F64);
        let real = if self.align_corners {
            b.mul(scale, at)
        } else {
            let middle = b.add(at, half);
            let place = b.mul(scale, middle);
            let place = b.sub(place, half);
            if self.curve == Curve::Linear { b.max(place, zero) } else { place }
        };
        let element = b.floor(real);
        let last = b.index(axis.size - 1, Dtype::F64);
        let element = b.min(element, last);
        let rest = b.sub(real, element);
        let rest = b.max(rest, zero);
        let behind = b.min(rest, one);
        let element = b.cast(element, Dtype::I64);
        let before = b.lit(element, (reach(self.curve) - 1) as f64);
        Neighbours { first: b.sub(element, before), behind }
    }

    /// The weight at a distance.
    fn weight(self, b: &mut Body<'_>, distance: Val) -> Val {
        let t = b.abs(distance);
        let (zero, one, two) = (b.lit(t, 0.0), b.lit(t, 1.0), b.lit(t, 2.0));
        let is_near = b.lt(t, one);
        if self.curve == Curve::Linear {
            let weight = b.sub(one, t);
            return b.select(is_near, weight, zero);
        }
        let bend = if self.taken == Taken::Covered { -0.5 } else { -0.75 };
        let (near, far, is_far) = (cubic_near(b, t, bend), cubic_far(b, t, bend), b.lt(t, two));
        let weight = b.select(is_far, far, zero);
        b.select(is_near, near, weight)
    }

    /// The weight of the `tap`-th element that a result covers, before weights are scaled to a sum of 1.
    fn covered(self, b: &mut Body<'_>, axis: &Axis, at: Expr, tap: Expr) -> Val {
        let Cover { first, count, centre, inverse } = self.cover(b, axis, at);
        let step = b.index(tap, Dtype::I64);
        let (element, is_taken) = (b.add(step, first), b.lt(step, count));
        let element = b.cast(element, Dtype::F64);
        let half = b.lit(element, 0.5);
        let distance = b.sub(element, centre);
        let distance = b.add(distance, half);
        let distance = b.mul(distance, inverse);
        let (weight, zero) = (self.weight(b, distance), b.lit(distance, 0.0));
        b.select(is_taken, weight, zero)
    }

    /// The weight of the `tap`-th element next to a result's place, added up of those of all that count as this one; and the largest sum on
    /// the way, which eager mode looks at.
    fn gathered(self, b: &mut Body<'_>, axis: &Axis, at: Expr, tap: Expr) -> [Val; 2] {
        let Neighbours { first, behind } = self.neighbours(b, axis, at);
        let reach = reach(self.curve);
        let tap = b.index(tap, Dtype::I64);
        let (start, last) = (b.lit(first, 0.0), b.index(axis.size - 1, Dtype::I64));
        let own = b.max(first, start);
        let (own, zero) = (b.add(own, tap), b.lit(behind, 0.0));
        let (mut sum, mut most) = (zero, zero);
        for j in 0..2 * reach {
            let step = b.lit(first, j as f64);
            let element = b.add(first, step);
            let element = b.max(element, start);
            let element = b.min(element, last);
            let from = b.lit(behind, (j + 1 - reach) as f64);
            let distance = b.sub(from, behind);
            let (weight, is_own) = (self.weight(b, distance), b.eq(element, own));
            let added = b.add(sum, weight);
            sum = b.select(is_own, added, sum);
            most = b.max(most, sum);
        }
        [sum, most]
    }
}
