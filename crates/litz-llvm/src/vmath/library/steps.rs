//! Writes the remainder of a division and the next number, which are exact, in both precisions.

use super::super::emitter::Scalar;
use super::super::tables::{DOUBLE, Format, SINGLE};
use super::code::{Code, Function, Number};

pub(super) static FMODF: Function = Function {
    name: "fmodf",
    parameters: &[Scalar::F32; 2],
    results: &[Scalar::F32],
    body: |code, x| vec![remainder(code, &SINGLE, x[0], x[1])],
};

pub(super) static FMOD: Function = Function {
    name: "fmod",
    parameters: &[Scalar::F64; 2],
    results: &[Scalar::F64],
    body: |code, x| vec![remainder(code, &DOUBLE, x[0], x[1])],
};

/// Subtracts multiples of the divisor times powers of two, of which each takes as many bits off the quotient as a number has.
///
/// A step's quotient has fewer bits than the significand; rounded it may be one too large, and the rest, which is exact, negative.
fn remainder<'c>(code: &'c Code, format: &Format, x: Number<'c>, y: Number<'c>) -> Number<'c> {
    let (rest, divisor) = (x.abs(), y.abs());
    let is_valid = rest.lt(f64::INFINITY) & divisor.gt(0.0);
    let rest = is_valid.pick(rest, x.constant(0.0));
    let divisor = is_valid.pick(divisor, x.constant(1.0));
    let height = exponent(format, divisor) + (i64::from(format.mantissa) - 1);
    let [rest] = code.repeat(
        [rest],
        |[rest]| rest.ge(divisor),
        |[rest]| {
            let places = exponent(format, rest) - height;
            let places = places.lt(0).pick(0, places);
            let half = places >> 1;
            let part = divisor * power(format, half) * power(format, places - half);
            let quotient = (rest / part).trunc();
            let left = (-quotient).fma(part, rest);
            [left.lt(0.0).pick(left + part, left)]
        },
    );
    is_valid.pick(rest.copysign(x), x.constant(f64::NAN))
}

/// The exponent of a positive number, with the format's bias.
fn exponent<'c>(format: &Format, x: Number<'c>) -> Number<'c> {
    let shift = i64::from(format.mantissa) + 1;
    let is_denormal = x.lt(format.min_normal);
    let normal = is_denormal.pick(x * 2f64.powi(format.mantissa.cast_signed() + 1), x);
    let field = normal.bits() >> i64::from(format.mantissa);
    is_denormal.pick(field - shift, field)
}

/// `2^n` of an integer that gives a normal number.
fn power<'c>(format: &Format, n: Number<'c>) -> Number<'c> {
    let bias = if format.width == 32 { 127 } else { 1023 };
    ((n + bias) << i64::from(format.mantissa)).as_float()
}

pub(super) static NEXTAFTERF: Function = Function {
    name: "nextafterf",
    parameters: &[Scalar::F32; 2],
    results: &[Scalar::F32],
    body: |_, x| vec![next_after(&SINGLE, x[0], x[1])],
};

pub(super) static NEXTAFTER: Function = Function {
    name: "nextafter",
    parameters: &[Scalar::F64; 2],
    results: &[Scalar::F64],
    body: |_, x| vec![next_after(&DOUBLE, x[0], x[1])],
};

/// The number next to `from` towards `to`: the bits without their sign count away from 0.
fn next_after<'c>(format: &Format, from: Number<'c>, to: Number<'c>) -> Number<'c> {
    let bits = from.bits();
    let grows = to.gt(from).eq(from.gt(0.0));
    let next = grows.pick(bits + 1, bits - 1).as_float();
    let least = 2f64.powi(if format.width == 32 { -149 } else { -1074 });
    let next = from.eq(0.0).pick(from.constant(least).copysign(to), next);
    let next = from.eq(to).pick(to, next);
    from.is_unordered(to).pick(f64::NAN, next)
}
