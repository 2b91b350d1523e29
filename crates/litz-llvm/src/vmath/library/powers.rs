//! Writes powers, and hyperbolic functions and their inverses, in double precision.

use super::super::emitter::Scalar;
use super::code::{Code, Function, Number};
use super::sums::{Sum, exact_product, exact_sum, ln_2, ordered_sum};
use super::tables::SINH_TAIL;

/// A function of a double.
const fn unary(name: &'static str, body: for<'c> fn(&'c Code, &[Number<'c>]) -> Vec<Number<'c>>) -> Function {
    Function { name, parameters: &[Scalar::F64], results: &[Scalar::F64], body }
}

/// Exponents from here on give infinity or zero.
const FAR: f64 = 800.0;

/// `exp(y * log|x|)` with the sign and the exceptions of C's Annex F.
pub(super) static POW: Function = Function {
    name: "pow",
    parameters: &[Scalar::F64, Scalar::F64],
    results: &[Scalar::F64],
    body: |code, arguments| {
        let (x, y) = (arguments[0], arguments[1]);
        let (magnitude, height) = (x.abs(), y.abs());
        let log = Sum::of(code, magnitude).log(code);
        let product = exact_product(y, log.high);
        let exponent = ordered_sum(product.high, y.fma(log.low, product.low));
        let is_far = product.high.abs().gt(FAR);
        let exponent = Sum {
            high: is_far.pick(code.f64(FAR).copysign(product.high), exponent.high),
            low: is_far.pick(0.0, exponent.low),
        };
        let (significand, n) = exponent.exp(code);
        let finite = significand.value().scaled(n);

        let [zero, one, infinity] = [0.0, 1.0, f64::INFINITY].map(|it| code.f64(it));
        let grows = magnitude.gt(1.0).eq(y.gt(0.0));
        let limit = magnitude.eq(1.0).pick(one, grows.pick(infinity, zero));
        let is_limit = magnitude.eq(0.0) | magnitude.eq(f64::INFINITY) | height.eq(f64::INFINITY);
        let result = is_limit.pick(limit, finite);

        let is_big = height.ge(2f64.powi(53));
        let is_integer = is_big | y.trunc().eq(y);
        let half = y * 0.5;
        let is_odd = is_integer & is_big.not() & half.trunc().ne(half);
        let result = is_odd.pick(result.copysign(x), result);
        let is_invalid = x.lt(0.0) & x.gt(f64::NEG_INFINITY) & is_integer.not();
        let result = (is_invalid | x.is_unordered(y)).pick(f64::NAN, result);
        vec![(x.eq(1.0) | y.eq(0.0)).pick(one, result)]
    },
};

pub(super) static SINH: Function = unary("sinh", |code, x| {
    let magnitude = x[0].abs();
    let far = half_of_exponentials(code, magnitude, |a, b| a - b);
    let square = magnitude * magnitude;
    let near = (magnitude * square).fma(square.polynomial(SINH_TAIL), magnitude);
    let result = magnitude.lt(0.5).pick(near, far);
    vec![result.copysign(x[0])]
});

pub(super) static COSH: Function =
    unary("cosh", |code, x| vec![half_of_exponentials(code, x[0].abs(), |a, b| a + b)]);

/// Half the sum, or another combination, of `exp(x)` and `exp(-x)`.
fn half_of_exponentials<'c>(
    code: &'c Code,
    x: Number<'c>,
    combine: impl FnOnce(Sum<'c>, Sum<'c>) -> Sum<'c>,
) -> Number<'c> {
    let bounded = x.gt(FAR).pick(FAR, x);
    let (significand, n) = Sum::of(code, bounded).exp(code);
    let inverse = Sum::of(code, code.f64(1.0)) / significand;
    // Beyond, the inverse does not show; its exponent would have no bits.
    let is_far = n.gt(60);
    let factor = (code.i64(0) - n * 2).power_of_two();
    let inverse = inverse.times(is_far.pick(0.0, factor));
    let result = combine(significand, inverse).value().scaled(n - 1);
    x.is_unordered(x).pick(x, result)
}

/// Below this magnitude two terms of the series of an odd function besides the first are enough: the next is below 2^-72 of it.
const SERIES_LIMIT: f64 = 1.0 / 4096.0;

/// Above this magnitude `sqrt(x^2 + 1)` is `|x|` to rounding of what is computed of it.
const SQUARE_LIMIT: f64 = (1u64 << 30) as f64;

/// `x + x^3 (a + b x^2)` of small `x`, else what is given.
fn with_series<'c>(x: Number<'c>, [a, b]: [f64; 2], far: Number<'c>) -> Number<'c> {
    let square = x * x;
    let near = (x * square).fma(square.polynomial(&[b, a]), x);
    x.abs().lt(SERIES_LIMIT).pick(near, far).copysign(x)
}

/// `log(x + sqrt(x^2 + one))` of positive `x`.
fn area<'c>(code: &'c Code, x: Number<'c>, one: f64) -> Number<'c> {
    let is_far = x.gt(SQUARE_LIMIT);
    let square = exact_product(x, x);
    let sum = exact_sum(square.high, code.f64(one));
    let root = ordered_sum(sum.high, sum.low + square.low).sqrt();
    let inner = root + Sum::of(code, x);
    let log = Sum::pick(is_far, Sum::of(code, x), inner).log(code);
    let log = Sum::pick(is_far, log + ln_2(code), log).value();
    x.lt(f64::INFINITY).pick(log, x)
}

pub(super) static ASINH: Function = unary("asinh", |code, x| {
    let far = area(code, x[0].abs(), 1.0).copysign(x[0]);
    vec![with_series(x[0], [-1.0 / 6.0, 3.0 / 40.0], far)]
});

pub(super) static ACOSH: Function = unary("acosh", |code, x| {
    let result = area(code, x[0], -1.0);
    vec![x[0].lt(1.0).pick(f64::NAN, result)]
});

pub(super) static ATANH: Function = unary("atanh", |code, x| {
    let magnitude = x[0].abs();
    let one = code.f64(1.0);
    let quotient = exact_sum(one, magnitude) / exact_sum(one, -magnitude);
    let half = quotient.log(code).value() * 0.5;
    let far = magnitude.eq(1.0).pick(f64::INFINITY, half);
    let far = (magnitude.gt(1.0) | magnitude.is_unordered(magnitude)).pick(f64::NAN, far);
    vec![with_series(x[0], [1.0 / 3.0, 1.0 / 5.0], far.copysign(x[0]))]
});

/// The logarithm of a positive finite number, rounded.
pub(super) fn log_of<'c>(code: &'c Code, x: Number<'c>) -> Number<'c> {
    Sum::of(code, x).log(code).value()
}

/// `exp(x)` of an `x` of at most 800 in magnitude.
pub(super) fn exp_of<'c>(code: &'c Code, x: Number<'c>) -> Number<'c> {
    let (significand, n) = Sum::of(code, x).exp(code);
    significand.value().scaled(n)
}
