//! Lowers elementwise special functions: those made of other functions, and series for the rest.

use crate::body::Point;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, pointwise};
use crate::error::OpError;
use crate::promote::Promote::{Common, Float};
use litz_ir::graph::{Arg, Value};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};
use std::f64::consts::PI;

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
    pointwise("aten.polygamma.default", Float, |p, v| match p.args.literal("n")? {
        0 => Ok(p.op(ScalarOp::Digamma, v)),
        1 => Ok(in_f64(p, v[0], trigamma)),
        _ => Err(p.args.unsupported("an order above 1")),
    }),
    pointwise("aten.special_i0.default", Float, |p, v| Ok(in_f64(p, v[0], bessel_i0))),
    pointwise("aten.i0.default", Float, |p, v| Ok(in_f64(p, v[0], bessel_i0))),
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
fn times_power_of_two(p: &mut Point<'_, '_>, x: Val, exponent: Val) -> Val {
    // From the smallest number to beyond the largest, and back.
    let exponent = super::pointwise::between(p, exponent, -2200.0, 2200.0);
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
    let (zero, log) = (p.lit(x, 0.0), p.log(y));
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
fn in_f64(p: &mut Point<'_, '_>, x: Val, f: impl FnOnce(&mut Point<'_, '_>, Val) -> Val) -> Val {
    let dtype = p.ty(x);
    let x = p.cast(x, Dtype::F64);
    let y = f(p, x);
    p.cast(y, dtype)
}

/// `c0 + t * (c1 + t * (...))`
fn series(p: &mut Point<'_, '_>, t: Val, coefficients: &[f64]) -> Val {
    let mut sum = p.lit(t, coefficients.last().copied().unwrap_or(0.0));
    for &c in coefficients.iter().rev().skip(1) {
        let (c, product) = (p.lit(t, c), p.mul(sum, t));
        sum = p.add(product, c);
    }
    sum
}

/// The second derivative of log gamma: recurrence by 6, then the asymptotic series in Bernoulli numbers; reflection
/// below a half. Steps and terms are as many as eager has, which leave an error of 4e-10.
fn trigamma(p: &mut Point<'_, '_>, x: Val) -> Val {
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

/// The modified Bessel function of order 0: its power series up to 20, its asymptotic series above.
fn bessel_i0(p: &mut Point<'_, '_>, x: Val) -> Val {
    const TERMS: usize = 60;
    const TAIL: usize = 24;
    let (x, limit) = (p.abs(x), p.lit(x, 20.0));
    // sum of (x^2 / 4)^k / k!^2
    let near = p.min(x, limit);
    let quarter = p.lit(x, 0.25);
    let square = p.mul(near, near);
    let z = p.mul(square, quarter);
    let mut powers = [1.0; TERMS];
    (1..TERMS).for_each(|k| powers[k] = powers[k - 1] / (k * k) as f64);
    let near = series(p, z, &powers);
    // exp(x) / sqrt(2 pi x) * sum of (1 * 9 * .. * (2 k - 1)^2) / (k! (8 x)^k)
    let far = p.max(x, limit);
    let one = p.lit(x, 1.0);
    let inverse = p.div(one, far);
    let mut tail = [1.0; TAIL];
    (1..TAIL).for_each(|k| tail[k] = tail[k - 1] * ((2 * k - 1) * (2 * k - 1)) as f64 / (8 * k) as f64);
    let sum = series(p, inverse, &tail);
    let circle = times(p, far, 2.0 * PI);
    let (e, root) = (p.exp(far), p.sqrt(circle));
    let scale = p.div(e, root);
    let far = p.mul(scale, sum);
    let is_far = p.gt(x, limit);
    p.select(is_far, far, near)
}

/// `exp(x^2) * erfc(x)`: as it says below 5, above by the continued fraction
/// `1 / sqrt(pi) / (x + (1/2) / (x + (2/2) / (x + (3/2) / ..)))`.
fn scaled_erfc(p: &mut Point<'_, '_>, x: Val) -> Val {
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
