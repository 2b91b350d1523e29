//! Lowers elementwise special functions: those made of other functions, and series for the rest.

use crate::body::{Body, Point};
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, pointwise};
use crate::error::OpError;
use crate::promote::Promote::{Common, Float};
use litz_ir::graph::{Arg, Value};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};
use std::f64::consts::{FRAC_1_SQRT_2, PI};
use std::ops::DerefMut;

/// Entries.
pub const OPS: &[OpDef] = &[
    pointwise("aten.sinc.default", Float, |p, v| {
        let (pi, zero, one) = (p.lit(v[0], PI), p.lit(v[0], 0.0), p.lit(v[0], 1.0));
        let angle = p.mul(v[0], pi);
        let sine = p.op(ScalarOp::Sin, &[angle]);
        let (quotient, origin) = (p.div(sine, angle), p.eq(v[0], zero));
        Ok(p.select(origin, one, quotient))
    }),
    pointwise("aten.deg2rad.default", Float, |p, v| Ok(times(p, v[0], PI / 180.0))),
    pointwise("aten.rad2deg.default", Float, |p, v| Ok(times(p, v[0], 180.0 / PI))),
    pointwise("aten.hypot.default", Common, |p, v| Ok(hypotenuse(p, v[0], v[1]))),
    pointwise("aten.heaviside.default", Common, |p, v| {
        let (zero, one) = (p.lit(v[0], 0.0), p.lit(v[0], 1.0));
        let (origin, positive) = (p.eq(v[0], zero), p.gt(v[0], zero));
        let step = p.select(positive, one, zero);
        Ok(p.select(origin, v[1], step))
    }),
    pointwise("aten.xlogy.Tensor", Float, |p, v| Ok(x_log_y(p, v[0], v[1]))),
    pointwise("aten.xlogy.Scalar_Self", Float, |p, v| Ok(x_log_y(p, v[0], v[1]))),
    pointwise("aten.xlogy.Scalar_Other", Float, |p, v| Ok(x_log_y(p, v[0], v[1]))),
    pointwise("aten.logaddexp.default", Common, |p, v| Ok(log_add_exp(p, v[0], v[1]))),
    pointwise("aten.round.decimals", Common, round_decimals),
    pointwise("aten.mvlgamma.default", Float, |p, v| {
        // p * (p - 1) / 4 * log(pi) + sum of lgamma(x - j / 2) for j below p
        let order = p.args.literal("p")?;
        if order < 1 {
            return Err(p.args.bad("p", "a positive integer"));
        }
        if order > MOST_TERMS {
            return Err(p.args.unsupported(&format!("an order above {MOST_TERMS}")));
        }
        let mut sum = p.lit(v[0], (order * (order - 1)) as f64 / 4.0 * PI.ln());
        for j in 0..order {
            let shift = p.lit(v[0], -0.5 * j as f64);
            let shifted = p.add(v[0], shift);
            let term = p.op(ScalarOp::Lgamma, &[shifted]);
            sum = p.add(sum, term);
        }
        Ok(sum)
    }),
    pointwise("aten.special_i0.default", Float, |p, v| Ok(in_f64(p, v[0], |p, x| bessel_i(p, x, 0, false)))),
    pointwise("aten.i0.default", Float, |p, v| Ok(in_f64(p, v[0], |p, x| bessel_i(p, x, 0, false)))),
    pointwise("aten.special_i0e.default", Float, |p, v| Ok(in_f64(p, v[0], |p, x| bessel_i(p, x, 0, true)))),
    pointwise("aten.special_i1.default", Float, |p, v| Ok(in_f64(p, v[0], |p, x| bessel_i(p, x, 1, false)))),
    pointwise("aten.special_i1e.default", Float, |p, v| Ok(in_f64(p, v[0], |p, x| bessel_i(p, x, 1, true)))),
    pointwise("aten.special_modified_bessel_i0.default", Float, |p, v| {
        Ok(in_f64(p, v[0], |p, x| bessel_i(p, x, 0, false)))
    }),
    pointwise("aten.special_modified_bessel_i1.default", Float, |p, v| {
        Ok(in_f64(p, v[0], |p, x| bessel_i(p, x, 1, false)))
    }),
    pointwise("aten.special_spherical_bessel_j0.default", Float, |p, v| {
        Ok(in_f64(p, v[0], spherical_bessel))
    }),
    pointwise("aten.special_entr.default", Float, |p, v| {
        // -x log x; 0 at 0, minus infinity below.
        let (zero, least, log) = (p.lit(v[0], 0.0), p.lit(v[0], f64::NEG_INFINITY), p.log(v[0]));
        let (product, none, below) = (p.mul(v[0], log), p.eq(v[0], zero), p.lt(v[0], zero));
        let entropy = p.neg(product);
        let entropy = p.select(none, zero, entropy);
        Ok(p.select(below, least, entropy))
    }),
    pointwise("aten.special_xlog1py.default", Float, |p, v| Ok(x_log1p_y(p, v[0], v[1]))),
    pointwise("aten.special_xlog1py.self_scalar", Float, |p, v| Ok(x_log1p_y(p, v[0], v[1]))),
    pointwise("aten.special_xlog1py.other_scalar", Float, |p, v| Ok(x_log1p_y(p, v[0], v[1]))),
    pointwise("aten.special_ndtr.default", Float, |p, v| Ok(in_f64(p, v[0], normal))),
    pointwise("aten.special_log_ndtr.default", Float, |p, v| Ok(in_f64(p, v[0], log_normal))),
    pointwise("aten.special_erfcx.default", Float, |p, v| Ok(in_f64(p, v[0], scaled_erfc))),
    decompose("aten.float_power.Tensor_Scalar", float_power),
    decompose("aten.float_power.Tensor_Tensor", float_power),
    pointwise("aten.ldexp.Tensor", Float, |p, v| {
        let exponent = p.cast(v[1], Dtype::F64);
        Ok(in_f64(p, v[0], |p, x| times_power_of_two(p, x, exponent)))
    }),
];

/// Terms of a sum that is written out.
const MOST_TERMS: i64 = 1 << 10;

fn times(p: &mut Point<'_, '_>, x: Val, by: f64) -> Val {
    let by = p.lit(x, by);
    p.mul(x, by)
}

/// `x * 2^exponent` in f64, also where that power is none: in three steps, none of which leaves the range of f64 if
/// neither `x` nor the result does.
fn times_power_of_two(p: &mut Body<'_>, x: Val, exponent: Val) -> Val {
    // From the smallest number to beyond the largest, and back.
    let (least, most) = (p.lit(exponent, -2200.0), p.lit(exponent, 2200.0));
    let exponent = p.max(exponent, least);
    let exponent = p.min(exponent, most);
    let third = p.lit(exponent, 1.0 / 3.0);
    let third = p.mul(exponent, third);
    let third = p.op(ScalarOp::Round, &[third]);
    let twice = p.add(third, third);
    let rest = p.sub(exponent, twice);
    [third, third, rest].into_iter().fold(x, |x, step| {
        let power = p.op(ScalarOp::Exp2, &[step]);
        p.mul(x, power)
    })
}

/// `larger * sqrt(1 + (smaller / larger)^2)` of the magnitudes, which does not overflow on the way.
fn hypotenuse(p: &mut Point<'_, '_>, a: Val, b: Val) -> Val {
    let (a, b) = (p.abs(a), p.abs(b));
    let (large, small, one, zero) = (p.max(a, b), p.min(a, b), p.lit(a, 1.0), p.lit(a, 0.0));
    let ratio = p.div(small, large);
    let square = p.mul(ratio, ratio);
    let sum = p.add(one, square);
    let root = p.sqrt(sum);
    let length = p.mul(large, root);
    // Of two zeros the ratio is no number; an infinity beats even NaN.
    let inf = p.lit(a, f64::INFINITY);
    let (both_zero, a_inf, b_inf) = (p.eq(large, zero), p.eq(a, inf), p.eq(b, inf));
    let infinite = p.or(a_inf, b_inf);
    let length = p.select(both_zero, zero, length);
    p.select(infinite, inf, length)
}

/// `x * log(y)`, 0 where x is 0, NaN where y is.
fn x_log_y(p: &mut Point<'_, '_>, x: Val, y: Val) -> Val {
    let log = p.log(y);
    x_times_log(p, x, y, log)
}

/// `x * log(1 + y)`, 0 where x is 0, NaN where y is.
fn x_log1p_y(p: &mut Point<'_, '_>, x: Val, y: Val) -> Val {
    let log = p.log1p(y);
    x_times_log(p, x, y, log)
}

fn x_times_log(p: &mut Point<'_, '_>, x: Val, y: Val, log: Val) -> Val {
    let zero = p.lit(x, 0.0);
    let (product, none, nan) = (p.mul(x, log), p.eq(x, zero), p.ne(y, y));
    let result = p.select(none, zero, product);
    p.select(nan, y, result)
}

/// `max + log1p(exp(-|a - b|))`; equal infinities are themselves.
fn log_add_exp(p: &mut Point<'_, '_>, a: Val, b: Val) -> Val {
    let (max, difference, inf) = (p.max(a, b), p.sub(a, b), p.lit(a, f64::INFINITY));
    let distance = p.abs(difference);
    let down = p.neg(distance);
    let e = p.exp(down);
    let (rest, size, equal) = (p.log1p(e), p.abs(a), p.eq(a, b));
    let (sum, infinite) = (p.add(max, rest), p.eq(size, inf));
    let same = p.and(equal, infinite);
    p.select(same, a, sum)
}

fn round_decimals(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let decimals = p.args.literal("decimals")?;
    if !p.dtype.is_float() {
        return Err(p.args.unsupported("decimals of integers"));
    }
    let power = p.lit(v[0], 10f64.powi(decimals.unsigned_abs().min(400) as i32));
    Ok(if decimals >= 0 {
        let scaled = p.mul(v[0], power);
        let whole = p.op(ScalarOp::Round, &[scaled]);
        p.div(whole, power)
    } else {
        let scaled = p.div(v[0], power);
        let whole = p.op(ScalarOp::Round, &[scaled]);
        p.mul(whole, power)
    })
}

/// A function evaluated in double precision, whose series lose a few bits.
pub(crate) fn in_f64<'a, B: DerefMut<Target = Body<'a>>>(
    p: &mut B,
    x: Val,
    f: impl FnOnce(&mut Body<'a>, Val) -> Val,
) -> Val {
    let dtype = p.ty(x);
    let x = p.cast(x, Dtype::F64);
    let y = f(p, x);
    p.cast(y, dtype)
}

/// `c0 + t * (c1 + t * (...))`
fn series(p: &mut Body<'_>, t: Val, coefficients: &[f64]) -> Val {
    let mut sum = p.lit(t, coefficients.last().copied().unwrap_or(0.0));
    for &c in coefficients.iter().rev().skip(1) {
        let (c, product) = (p.lit(t, c), p.mul(sum, t));
        sum = p.add(product, c);
    }
    sum
}

/// The second derivative of log gamma: recurrence by 6, then the asymptotic series in Bernoulli numbers; reflection
/// below a half. Steps and terms are as many as eager has, which leave an error of 4e-10.
pub(crate) fn trigamma(p: &mut Body<'_>, x: Val) -> Val {
    let (half, one, pi) = (p.lit(x, 0.5), p.lit(x, 1.0), p.lit(x, PI));
    let (low, mirrored) = (p.lt(x, half), p.sub(one, x));
    let mut y = p.select(low, mirrored, x);
    let mut sum = p.lit(x, 0.0);
    for _ in 0..6 {
        let square = p.mul(y, y);
        let term = p.div(one, square);
        sum = p.add(sum, term);
        y = p.add(y, one);
    }
    let inverse = p.div(one, y);
    let square = p.mul(inverse, inverse);
    // 1/y + 1/(2 y^2) + 1/(6 y^3) - 1/(30 y^5) + 1/(42 y^7)
    let tail = series(p, square, &[1.0, 1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0]);
    let (tail, middle) = (p.mul(tail, inverse), p.mul(square, half));
    let tail = p.add(tail, middle);
    let sum = p.add(sum, tail);
    // pi^2 / sin(pi x)^2 - trigamma(1 - x)
    let angle = p.mul(x, pi);
    let sine = p.op(ScalarOp::Sin, &[angle]);
    let ratio = p.div(pi, sine);
    let reflection = p.mul(ratio, ratio);
    let reflected = p.sub(reflection, sum);
    p.select(low, reflected, sum)
}

/// The modified Bessel function of the first kind of order 0 or 1, times `exp(-|x|)` where it is `scaled`: its power series
/// up to 20, its asymptotic series above. Errors are a few units in the last place of f64.
fn bessel_i(p: &mut Body<'_>, x: Val, order: usize, scaled: bool) -> Val {
    const TERMS: usize = 60;
    const TAIL: usize = 24;
    let (sign, x, limit) = (x, p.abs(x), p.lit(x, 20.0));
    // (x / 2)^order * sum of (x^2 / 4)^k / (k! (k + order)!)
    let near = p.min(x, limit);
    let (half, quarter) = (p.lit(x, 0.5), p.lit(x, 0.25));
    let square = p.mul(near, near);
    let z = p.mul(square, quarter);
    let mut powers = [1.0; TERMS];
    (1..TERMS).for_each(|k| powers[k] = powers[k - 1] / (k * (k + order)) as f64);
    let mut sum = series(p, z, &powers);
    if order == 1 {
        let first = p.mul(near, half);
        sum = p.mul(sum, first);
    }
    if scaled {
        let down = p.neg(near);
        let e = p.exp(down);
        sum = p.mul(sum, e);
    }
    // exp(x) / sqrt(2 pi x) * sum of ((1 - m) (9 - m) .. ((2 k - 1)^2 - m)) / (k! (8 x)^k), m = (2 order)^2
    let far = p.max(x, limit);
    let one = p.lit(x, 1.0);
    let inverse = p.div(one, far);
    let mut tail = [1.0; TAIL];
    let order_squared = (4 * order * order) as f64;
    (1..TAIL).for_each(|k| {
        let odd = (2 * k - 1) as f64;
        tail[k] = tail[k - 1] * (odd * odd - order_squared) / (8 * k) as f64;
    });
    let rest = series(p, inverse, &tail);
    let circle = p.lit(x, 2.0 * PI);
    let circle = p.mul(far, circle);
    let root = p.sqrt(circle);
    let mut scale = p.div(one, root);
    if !scaled {
        let e = p.exp(far);
        scale = p.div(e, root);
    }
    let far = p.mul(scale, rest);
    let is_far = p.gt(x, limit);
    let mut result = p.select(is_far, far, sum);
    if order == 1 {
        // An odd function.
        result = p.op(ScalarOp::Copysign, &[result, sign]);
    }
    let nan = p.ne(x, x);
    p.select(nan, x, result)
}

/// `sin(x) / x`, by its series below a half; 0 at infinity.
fn spherical_bessel(p: &mut Body<'_>, x: Val) -> Val {
    let (size, half) = (p.abs(x), p.lit(x, 0.5));
    let square = p.mul(x, x);
    let near = series(
        p,
        square,
        &[1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0],
    );
    let (sine, zero, inf) = (p.op(ScalarOp::Sin, &[x]), p.lit(x, 0.0), p.lit(x, f64::INFINITY));
    let far = p.div(sine, x);
    let (is_near, infinite) = (p.lt(size, half), p.eq(size, inf));
    let result = p.select(is_near, near, far);
    p.select(infinite, zero, result)
}

/// The normal distribution, `(1 + erf(x / sqrt(2))) / 2`: like eager's, it ends at 0 where that sum does.
fn normal(p: &mut Body<'_>, x: Val) -> Val {
    let (scale, half, one) = (p.lit(x, FRAC_1_SQRT_2), p.lit(x, 0.5), p.lit(x, 1.0));
    let t = p.mul(x, scale);
    let erf = p.erf(t);
    let sum = p.add(one, erf);
    p.mul(sum, half)
}

/// The logarithm of the normal distribution: `log(erfcx(t) / 2) - t^2` of `t = -x / sqrt(2)` below -1, above as it says.
fn log_normal(p: &mut Body<'_>, x: Val) -> Val {
    let (scale, half, limit) = (p.lit(x, FRAC_1_SQRT_2), p.lit(x, 0.5), p.lit(x, -1.0));
    let t = p.mul(x, scale);
    let rest = p.op(ScalarOp::Erfc, &[t]);
    let above = p.mul(rest, half);
    let above = p.neg(above);
    let near = p.log1p(above);
    let down = p.neg(t);
    let scaled = scaled_erfc(p, down);
    let scaled = p.mul(scaled, half);
    let (log, square) = (p.log(scaled), p.mul(t, t));
    let far = p.sub(log, square);
    let is_far = p.lt(x, limit);
    p.select(is_far, far, near)
}

/// `exp(x^2) * erfc(x)`: as it says below 5, above by the continued fraction
/// `1 / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + (3/2) / ..)))`.
fn scaled_erfc(p: &mut Body<'_>, x: Val) -> Val {
    const LEVELS: usize = 24;
    let limit = p.lit(x, 5.0);
    let near = p.min(x, limit);
    let square = p.mul(near, near);
    let (e, rest) = (p.exp(square), p.op(ScalarOp::Erfc, &[near]));
    let near = p.mul(e, rest);
    let far = p.max(x, limit);
    let mut fraction = far;
    for level in (1..=LEVELS).rev() {
        let step = p.lit(x, level as f64 / 2.0);
        let part = p.div(step, fraction);
        fraction = p.add(far, part);
    }
    let scale = p.lit(x, 1.0 / PI.sqrt());
    let far = p.div(scale, fraction);
    let is_far = p.gt(x, limit);
    p.select(is_far, far, near)
}

/// A power computed and returned in double precision.
fn float_power(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?.value;
    let (exponent, tensor) = (r.args().get("exponent").clone(), r.args().get("exponent").as_value());
    let x = r.call("aten._to_copy.default", [Arg::Value(x), Arg::Dtype(Dtype::F64)])?;
    let op = if tensor.is_some() { "aten.pow.Tensor_Tensor" } else { "aten.pow.Tensor_Scalar" };
    Ok(vec![r.call(op, [Arg::Value(x), exponent])?])
}
