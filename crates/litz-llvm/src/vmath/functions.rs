//! Holds the algorithms: each turns operands into the lines that compute a function of them, without branches.
//!
//! Those of the first part serve both precisions through [`Format`]. Those of the second part are of
//! single precision only and compute in double precision, which makes their errors invisible.

use super::emitter::{Emitter, Value};
use super::tables::*;

/// `x` as `n*ln2 + r`: the sum whose low bits are `n`, `n` and `r`.
fn reduced(e: &mut Emitter<'_>, format: &Format, x: &Value) -> (Value, Value, Value) {
    let round = e.float(format.scalar, format.round);
    let shifted = e.fma_const(x, std::f64::consts::LOG2_E, &round);
    let n = e.sub(&shifted, &round);
    let r = e.fma_const(&n, -format.ln_2[0], x);
    let r = e.fma_const(&n, -format.ln_2[1], &r);
    (shifted, n, r)
}

/// `exp(r) - 1`, |r| <= ln(2)/2.
fn exp_minus_1(e: &mut Emitter<'_>, format: &Format, r: &Value) -> Value {
    let q = e.polynomial(format.exp, r);
    let r2 = e.mul(r, r);
    e.fma(&r2, &q, r)
}

/// `exp(r)`, |r| <= ln(2)/2.
fn exp_of_reduced(e: &mut Emitter<'_>, format: &Format, r: &Value) -> Value {
    let q = e.polynomial(format.exp, r);
    let one = e.float(format.scalar, 1.0);
    let slope = e.fma(&q, r, &one);
    e.fma(&slope, r, &one)
}

/// `n` as an integer, from the sum that rounded to it.
fn rounded_to_int(e: &mut Emitter<'_>, format: &Format, shifted: &Value) -> Value {
    let bits = e.convert("bitcast", shifted, format.bits);
    let zero = e.int(format.bits, bits_of(format, format.round));
    e.binary("sub", &bits, &zero)
}

fn bits_of(format: &Format, value: f64) -> i64 {
    if format.width == 32 { i64::from((value as f32).to_bits()) } else { value.to_bits().cast_signed() }
}

/// `unit * 2^n` where `unit`, a power of two, and the result are normal; the high bits of `n` do not matter.
fn power_of_two(e: &mut Emitter<'_>, format: &Format, unit: f64, n: &Value) -> Value {
    let mantissa = e.int(format.bits, i64::from(format.mantissa));
    let exponent = e.binary("shl", n, &mantissa);
    let unit = e.int(format.bits, bits_of(format, unit));
    let bits = e.binary("add", &exponent, &unit);
    e.convert("bitcast", &bits, format.scalar)
}

/// `x * 2^n` for any `n` of `exp_range` and `x` near 1, rounding once; `shifted` is the sum whose low bits are `n`. Of
/// two factors the first gives an exact product, the second may give one that overflows or is denormal. NaN stays.
fn scale(e: &mut Emitter<'_>, format: &Format, x: &Value, n: &Value, shifted: &Value) -> Value {
    if let Some(result) = e.scalef(x, n) {
        return result;
    }
    let n = rounded_to_int(e, format, shifted);
    let one = e.int(format.bits, 1);
    let half = e.binary("ashr", &n, &one);
    let rest = e.binary("sub", &n, &half);
    let first = power_of_two(e, format, 1.0, &half);
    let second = power_of_two(e, format, 1.0, &rest);
    let x = e.mul(x, &first);
    e.mul(&x, &second)
}

pub(super) fn exp(e: &mut Emitter<'_>, format: &Format, x: &Value) -> Value {
    let clamped = e.clamp(x, format.exp_range[0], format.exp_range[1]);
    let (shifted, n, r) = reduced(e, format, &clamped);
    let mantissa = exp_of_reduced(e, format, &r);
    let mantissa = zero_below(e, format, x, format.exp_range[0], &mantissa);
    scale(e, format, &mantissa, &n, &shifted)
}

/// `value`, or 0 where `x` is below a limit: results too small for any number are not computed, as results that underflow
/// take an Intel Xeon ten times as long. Masked attention has many: its kernel took 234 instead of 82 ms.
fn zero_below(e: &mut Emitter<'_>, format: &Format, x: &Value, limit: f64, value: &Value) -> Value {
    let is_below = e.compare_const("olt", x, limit);
    let zero = e.float(format.scalar, 0.0);
    e.select(&is_below, &zero, value)
}

/// `exp` of an `x` whose result is a normal number.
fn exp_normal(e: &mut Emitter<'_>, format: &Format, x: &Value) -> Value {
    let (shifted, n, r) = reduced(e, format, x);
    let mantissa = exp_of_reduced(e, format, &r);
    if let Some(result) = e.scalef(&mantissa, &n) {
        return result;
    }
    let n = e.convert("bitcast", &shifted, format.bits);
    let factor = power_of_two(e, format, 1.0, &n);
    e.mul(&mantissa, &factor)
}

pub(super) fn exp2(e: &mut Emitter<'_>, format: &Format, x: &Value) -> Value {
    let clamped = e.clamp(x, format.exp2_range[0], format.exp2_range[1]);
    let round = e.float(format.scalar, format.round);
    let shifted = e.add(&clamped, &round);
    let n = e.sub(&shifted, &round);
    let r = e.sub(&clamped, &n);
    let q = e.polynomial(format.exp2, &r);
    let one = e.float(format.scalar, 1.0);
    let mantissa = e.fma(&r, &q, &one);
    let mantissa = zero_below(e, format, x, format.exp2_range[0], &mantissa);
    scale(e, format, &mantissa, &n, &shifted)
}

/// `2^n * (exp(r) - 1) + (2^n - 1)`, at half scale since `2^n` itself may overflow.
pub(super) fn expm1(e: &mut Emitter<'_>, format: &Format, x: &Value) -> Value {
    let lowest = -f64::from(format.mantissa) - 10.0;
    let clamped = e.clamp(x, lowest, format.exp_range[1]);
    let (shifted, n, r) = reduced(e, format, &clamped);
    let exp_minus_1 = exp_minus_1(e, format, &r);
    let bits = e.convert("bitcast", &shifted, format.bits);
    let scale = power_of_two(e, format, 0.5, &bits);
    let offset = e.add_const(&scale, -0.5);
    let sum = e.fma(&scale, &exp_minus_1, &offset);
    let doubled = e.add(&sum, &sum);
    // Without scaling there is nothing to lose by halving a denormal number.
    let is_near = e.compare_const("oeq", &n, 0.0);
    let result = e.select(&is_near, &exp_minus_1, &doubled);
    e.copysign(&result, x)
}

/// Which logarithm.
#[derive(Clone, Copy)]
pub(super) enum Base {
    E,
    Two,
    Ten,
}

pub(super) fn log(e: &mut Emitter<'_>, format: &Format, base: Base, x: &Value) -> Value {
    let is_denormal = e.compare_const("olt", x, format.min_normal);
    let scale = 2f64.powi(format.mantissa.cast_signed());
    let scaled = e.mul_const(x, scale);
    let scaled = e.select(&is_denormal, &scaled, x);
    let none = e.float(format.scalar, 0.0);
    let shift = e.replace_where(&is_denormal, -f64::from(format.mantissa), &none);
    let result = log_normal(e, format, base, &scaled, &shift);
    log_specials(e, x, 0.0, &result)
}

/// The logarithm of a positive normal number, `n` being added to its exponent.
fn log_normal(e: &mut Emitter<'_>, format: &Format, base: Base, x: &Value, n: &Value) -> Value {
    let exponent = exponent_of(e, format, x);
    let bits = e.convert("bitcast", x, format.bits);
    let bits = e.binary("sub", &bits, &exponent);
    let f = e.convert("bitcast", &bits, format.scalar);
    let f = e.add_const(&f, -1.0);
    let k = exponent_to_float(e, format, &exponent);
    let k = e.add(&k, n);
    log_of_parts(e, format, base, &k, &f)
}

/// The exponent bits `k << mantissa` for which `x / 2^k` is in [2/3, 4/3).
fn exponent_of(e: &mut Emitter<'_>, format: &Format, x: &Value) -> Value {
    let bits = e.convert("bitcast", x, format.bits);
    let two_thirds = e.int(format.bits, format.two_thirds);
    let above = e.binary("sub", &bits, &two_thirds);
    let mask = e.int(format.bits, -1 << format.mantissa);
    e.binary("and", &above, &mask)
}

/// `k` of `k << mantissa`, by way of the round constant, since AVX2 converts no 64-bit integers.
fn exponent_to_float(e: &mut Emitter<'_>, format: &Format, exponent: &Value) -> Value {
    let mantissa = e.int(format.bits, i64::from(format.mantissa));
    let k = e.binary("ashr", exponent, &mantissa);
    let zero = e.int(format.bits, bits_of(format, format.round));
    let bits = e.binary("add", &k, &zero);
    let shifted = e.convert("bitcast", &bits, format.scalar);
    e.add_const(&shifted, -format.round)
}

/// `log(2^k * (1 + f))`.
fn log_of_parts(e: &mut Emitter<'_>, format: &Format, base: Base, k: &Value, f: &Value) -> Value {
    let tail = log1p_tail(e, format, f);
    match base {
        Base::E => {
            let tail = e.fma_const(k, format.ln_2[1], &tail);
            let sum = e.add(f, &tail);
            e.fma_const(k, format.ln_2[0], &sum)
        }
        Base::Two => {
            let natural = e.add(f, &tail);
            e.fma_const(&natural, std::f64::consts::LOG2_E, k)
        }
        Base::Ten => {
            let natural = e.add(f, &tail);
            let low = e.mul_const(k, format.log10_2[1]);
            let sum = e.fma_const(&natural, std::f64::consts::LOG10_E, &low);
            e.fma_const(k, format.log10_2[0], &sum)
        }
    }
}

/// `log(1 + f) - f`, |f| <= 1/3.
fn log1p_tail(e: &mut Emitter<'_>, format: &Format, f: &Value) -> Value {
    let f2 = e.mul(f, f);
    match format.log {
        LogTable::Direct(coefficients) => {
            let q = e.polynomial(coefficients, f);
            let f3 = e.mul(&f2, f);
            let half = e.mul_const(&f2, -0.5);
            e.fma(&f3, &q, &half)
        }
        LogTable::Quotient(coefficients) => {
            // With s = f/(2+f): log(1+f) = 2*atanh(s) = f - (f²/2 - s*(f²/2 + 2*(atanh(s)/s - 1))).
            let denominator = e.add_const(f, 2.0);
            let s = e.div(f, &denominator);
            let s2 = e.mul(&s, &s);
            let q = e.polynomial(coefficients, &s2);
            let half = e.mul_const(&f2, 0.5);
            let twice = e.add(&s2, &s2);
            let inner = e.fma(&twice, &q, &half);
            let product = e.mul(&s, &inner);
            e.sub(&product, &half)
        }
    }
}

/// The logarithm where its argument, `x - zero`, is 0, negative, infinite or NaN.
fn log_specials(e: &mut Emitter<'_>, x: &Value, zero: f64, result: &Value) -> Value {
    let is_finite = e.compare_const("olt", x, f64::INFINITY);
    let result = e.select(&is_finite, result, x);
    let is_zero = e.compare_const("oeq", x, zero);
    let result = e.replace_where(&is_zero, f64::NEG_INFINITY, &result);
    let is_negative = e.compare_const("olt", x, zero);
    e.replace_where(&is_negative, f64::NAN, &result)
}

/// As `log` of `1 + x`, but what `1 + x` rounds away is kept: the significand is `x/2^k + (1/2^k - 1)`.
pub(super) fn log1p(e: &mut Emitter<'_>, format: &Format, x: &Value) -> Value {
    let sum = e.add_const(x, 1.0);
    let exponent = exponent_of(e, format, &sum);
    // 4/2^k is a normal number even where 1/2^k is not.
    let four = e.int(format.bits, bits_of(format, 4.0));
    let factor = e.binary("sub", &four, &exponent);
    let factor = e.convert("bitcast", &factor, format.scalar);
    let minus_1 = e.float(format.scalar, -1.0);
    let rest = e.fma_const(&factor, 0.25, &minus_1);
    let quarter = e.mul_const(x, 0.25);
    let f = e.fma(&quarter, &factor, &rest);
    // Where nothing is scaled, a quarter of a denormal number would lose bits.
    let zero = e.int(format.bits, 0);
    let is_near = e.compare("eq", &exponent, &zero);
    let f = e.select(&is_near, x, &f);
    let k = exponent_to_float(e, format, &exponent);
    let result = log_of_parts(e, format, Base::E, &k, &f);
    let result = e.copysign(&result, x);
    log_specials(e, x, -1.0, &result)
}

pub(super) fn tanh(e: &mut Emitter<'_>, format: &Format, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let square = e.mul(&magnitude, &magnitude);
    let near = odd_polynomial(e, format.tanh, &square, &magnitude);
    let bounded = e.at_most(&magnitude, format.tanh_limit);
    let twice = e.add(&bounded, &bounded);
    let exp = exp_normal(e, format, &twice);
    let denominator = e.add_const(&exp, 1.0);
    let two = e.float(format.scalar, 2.0);
    let quotient = e.div(&two, &denominator);
    let far = e.sub_from(1.0, &quotient);
    let is_near = e.compare_const("olt", &magnitude, 0.625);
    let result = e.select(&is_near, &near, &far);
    e.copysign(&result, x)
}

/// `x + x^3 * p(x^2)`.
fn odd_polynomial(e: &mut Emitter<'_>, coefficients: &[f64], square: &Value, x: &Value) -> Value {
    let q = e.polynomial(coefficients, square);
    let cube = e.mul(square, x);
    e.fma(&cube, &q, x)
}

pub(super) fn rsqrt(e: &mut Emitter<'_>, x: &Value) -> Value {
    let one = e.float(x.scalar, 1.0);
    let root = e.sqrt(x);
    e.div(&one, &root)
}

/// Which function of an angle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Angle {
    Sin,
    Cos,
    Tan,
}

/// For |x| up to `angle_limit`.
pub(super) fn angle(e: &mut Emitter<'_>, format: &Format, which: Angle, x: &Value) -> Value {
    let round = e.float(format.scalar, format.round);
    let shifted = e.fma_const(x, std::f64::consts::FRAC_2_PI, &round);
    let n = e.sub(&shifted, &round);
    let r = format.half_pi.iter().fold(x.clone(), |r, part| e.fma_const(&n, -part, &r));
    let quadrant = e.convert("bitcast", &shifted, format.bits);
    let r2 = e.mul(&r, &r);
    let sin = odd_polynomial(e, format.sin, &r2, &r);
    let cos = e.polynomial(format.cos, &r2);
    let one = e.float(format.scalar, 1.0);
    let cos = e.fma(&r2, &cos, &one);
    match which {
        Angle::Sin => {
            let result = quarter_turned(e, format, &quadrant, &sin, &cos);
            // The reduction makes +0 of -0.
            let zero = e.compare_const("oeq", x, 0.0);
            e.select(&zero, x, &result)
        }
        Angle::Cos => {
            let next = e.int(format.bits, 1);
            let quadrant = e.binary("add", &quadrant, &next);
            quarter_turned(e, format, &quadrant, &sin, &cos)
        }
        Angle::Tan => {
            let is_odd = bit_is_set(e, format, &quadrant, 1);
            let numerator = e.select(&is_odd, &cos, &sin);
            let minus_sin = e.mul_const(&sin, -1.0);
            let denominator = e.select(&is_odd, &minus_sin, &cos);
            let result = e.div(&numerator, &denominator);
            let zero = e.compare_const("oeq", x, 0.0);
            e.select(&zero, x, &result)
        }
    }
}

/// The sine of an angle that is `quadrant` quarter turns beyond the one given by its sine and cosine.
fn quarter_turned(e: &mut Emitter<'_>, format: &Format, quadrant: &Value, sin: &Value, cos: &Value) -> Value {
    let is_odd = bit_is_set(e, format, quadrant, 1);
    let result = e.select(&is_odd, cos, sin);
    let two = e.int(format.bits, 2);
    let half_turn = e.binary("and", quadrant, &two);
    let to_sign = e.int(format.bits, i64::from(format.width - 2));
    let sign = e.binary("shl", &half_turn, &to_sign);
    let bits = e.convert("bitcast", &result, format.bits);
    let bits = e.binary("xor", &bits, &sign);
    e.convert("bitcast", &bits, format.scalar)
}

fn bit_is_set(e: &mut Emitter<'_>, format: &Format, bits: &Value, bit: i64) -> Value {
    let mask = e.int(format.bits, bit);
    let masked = e.binary("and", bits, &mask);
    let zero = e.int(format.bits, 0);
    e.compare("ne", &masked, &zero)
}

/// Single precision only: `1 - exp(-t)`, where `-t = m + m*p(m)` for `m = -|x|`. Near 0 it is `t`, whose first term
/// rounds once, and nowhere does it cancel: `(1 - 2^n) - 2^n * (exp(r) - 1)`, both terms of one sign or the first 0.
pub(super) fn erf(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let m = e.neg(&magnitude);
    let m = e.at_least(&m, -ERF_LIMIT);
    let p = e.polynomial(ERF, &m);
    let exponent = e.fma(&p, &m, &m);
    // One part of ln(2) will do: what it lacks is seen only beside `2^n < 1`, which is beside 1.
    let round = e.float(x.scalar, SINGLE.round);
    let shifted = e.fma_const(&exponent, std::f64::consts::LOG2_E, &round);
    let n = e.sub(&shifted, &round);
    let r = e.fma_const(&n, -SINGLE.ln_2[0], &exponent);
    let rest = exp_minus_1(e, &SINGLE, &r);
    let one = e.float(x.scalar, 1.0);
    let scale = match e.scalef(&one, &n) {
        Some(scale) => scale,
        None => {
            let bits = e.convert("bitcast", &shifted, SINGLE.bits);
            power_of_two(e, &SINGLE, 1.0, &bits)
        }
    };
    let above = e.sub_from(1.0, &scale);
    let minus = e.neg(&scale);
    let result = e.fma(&minus, &rest, &above);
    e.copysign(&result, x)
}

// Of single precision numbers in double precision: none of the values below overflows or is denormal.

pub(super) fn erfc(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let t = e.at_most(&magnitude, ERFC_LIMIT);
    let below = e.add_const(&t, -ERFC_CENTRE);
    let above = e.add_const(&t, ERFC_CENTRE);
    let u = e.div(&below, &above);
    let p = e.polynomial(ERFC, &u);
    let minus = e.mul_const(&t, -1.0);
    let exponent = e.mul(&t, &minus);
    let exp = exp_normal(e, &WIDE, &exponent);
    let one = e.float(t.scalar, 1.0);
    let denominator = e.fma_const(&t, 2.0, &one);
    let product = e.mul(&p, &exp);
    let right = e.div(&product, &denominator);
    let left = e.sub_from(2.0, &right);
    let is_negative = e.compare_const("olt", x, 0.0);
    e.select(&is_negative, &left, &right)
}

pub(super) fn sinh(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let (exp, inverse) = exp_and_inverse(e, &magnitude);
    let difference = e.sub(&exp, &inverse);
    let far = e.mul_const(&difference, 0.5);
    odd_with_series(e, SINH_SERIES, x, &far)
}

pub(super) fn cosh(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let (exp, inverse) = exp_and_inverse(e, &magnitude);
    let sum = e.add(&exp, &inverse);
    e.mul_const(&sum, 0.5)
}

fn exp_and_inverse(e: &mut Emitter<'_>, magnitude: &Value) -> (Value, Value) {
    // Infinite in single precision long before.
    let bounded = e.at_most(magnitude, 200.0);
    let exp = exp_normal(e, &WIDE, &bounded);
    let one = e.float(exp.scalar, 1.0);
    let inverse = e.div(&one, &exp);
    (exp, inverse)
}

/// An odd function: near 0 by its series, elsewhere the magnitude given.
fn odd_with_series(e: &mut Emitter<'_>, series: &[f64], x: &Value, far: &Value) -> Value {
    let magnitude = e.abs(x);
    let square = e.mul(x, x);
    let near = odd_polynomial(e, series, &square, &magnitude);
    let is_near = e.compare_const("olt", &magnitude, SERIES_LIMIT);
    let result = e.select(&is_near, &near, far);
    e.copysign(&result, x)
}

/// The logarithm of a number that is 0 or normal.
fn log_wide(e: &mut Emitter<'_>, base: Base, x: &Value) -> Value {
    let none = e.float(x.scalar, 0.0);
    let result = log_normal(e, &WIDE, base, x, &none);
    log_specials(e, x, 0.0, &result)
}

pub(super) fn asinh(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let one = e.float(x.scalar, 1.0);
    let square = e.fma(x, x, &one);
    let root = e.sqrt(&square);
    let sum = e.add(&magnitude, &root);
    let far = log_wide(e, Base::E, &sum);
    odd_with_series(e, ASINH_SERIES, x, &far)
}

pub(super) fn acosh(e: &mut Emitter<'_>, x: &Value) -> Value {
    let minus_1 = e.float(x.scalar, -1.0);
    let square = e.fma(x, x, &minus_1);
    let root = e.sqrt(&square);
    let sum = e.add(x, &root);
    let result = log_wide(e, Base::E, &sum);
    let is_outside = e.compare_const("olt", x, 1.0);
    e.replace_where(&is_outside, f64::NAN, &result)
}

pub(super) fn atanh(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let above = e.add_const(&magnitude, 1.0);
    let below = e.sub_from(1.0, &magnitude);
    let quotient = e.div(&above, &below);
    let log = log_wide(e, Base::E, &quotient);
    let far = e.mul_const(&log, 0.5);
    odd_with_series(e, ATANH_SERIES, x, &far)
}

pub(super) fn atan(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let one = e.float(x.scalar, 1.0);
    let is_far = e.compare_const("ogt", &magnitude, 1.0);
    let inverse = e.div(&one, &magnitude);
    let t = e.select(&is_far, &inverse, &magnitude);
    let result = atan_of_fraction(e, &t, &is_far);
    e.copysign(&result, x)
}

/// `atan(t)` for `t` in [0, 1]; its complement to a right angle where `is_far`.
fn atan_of_fraction(e: &mut Emitter<'_>, t: &Value, is_far: &Value) -> Value {
    let square = e.mul(t, t);
    let near = odd_polynomial(e, ATAN, &square, t);
    let far = e.sub_from(std::f64::consts::FRAC_PI_2, &near);
    e.select(is_far, &far, &near)
}

pub(super) fn asin(e: &mut Emitter<'_>, x: &Value) -> Value {
    let below = e.sub_from(1.0, x);
    let above = e.add_const(x, 1.0);
    let product = e.mul(&below, &above);
    let cosine = e.sqrt(&product);
    let tangent = e.div(x, &cosine);
    atan(e, &tangent)
}

/// Twice the angle whose tangent is `sqrt((1-x) / (1+x))`.
pub(super) fn acos(e: &mut Emitter<'_>, x: &Value) -> Value {
    let below = e.sub_from(1.0, x);
    let above = e.add_const(x, 1.0);
    let quotient = e.div(&below, &above);
    let tangent = e.sqrt(&quotient);
    let half = atan(e, &tangent);
    e.add(&half, &half)
}

pub(super) fn atan2(e: &mut Emitter<'_>, y: &Value, x: &Value) -> Value {
    let (rise, run) = (e.abs(y), e.abs(x));
    let is_steep = e.compare("ogt", &rise, &run);
    let longer = e.select(&is_steep, &rise, &run);
    let shorter = e.select(&is_steep, &run, &rise);
    let t = e.div(&shorter, &longer);
    let is_origin = e.compare_const("oeq", &longer, 0.0);
    let t = e.replace_where(&is_origin, 0.0, &t);
    let is_corner = e.compare_const("oeq", &shorter, f64::INFINITY);
    let t = e.replace_where(&is_corner, 1.0, &t);
    let right = atan_of_fraction(e, &t, &is_steep);
    let left = e.sub_from(std::f64::consts::PI, &right);
    let is_left = sign_is_set(e, x);
    let result = e.select(&is_left, &left, &right);
    let result = e.copysign(&result, y);
    nan_where_unordered(e, x, y, &result)
}

fn sign_is_set(e: &mut Emitter<'_>, x: &Value) -> Value {
    let bits = e.convert("bitcast", x, DOUBLE.bits);
    let zero = e.int(DOUBLE.bits, 0);
    e.compare("slt", &bits, &zero)
}

fn nan_where_unordered(e: &mut Emitter<'_>, a: &Value, b: &Value, result: &Value) -> Value {
    let is_nan = e.compare("uno", a, b);
    e.replace_where(&is_nan, f64::NAN, result)
}

/// `2^(y * log2|x|)` with the sign and the exceptions of C's `pow`.
pub(super) fn pow(e: &mut Emitter<'_>, x: &Value, y: &Value) -> Value {
    let magnitude = e.abs(x);
    let log = log_wide(e, Base::Two, &magnitude);
    let exponent = e.mul(&log, y);
    // |x| is 1: also where y is infinite.
    let is_unit = e.compare_const("oeq", &log, 0.0);
    let exponent = e.replace_where(&is_unit, 0.0, &exponent);
    // 0 and infinite in single precision long before.
    let exponent = e.clamp(&exponent, -1000.0, 1000.0);
    let result = exp2(e, &WIDE, &exponent);

    // Single precision numbers from 2^24 on are even.
    let shifted = e.add_const(y, DOUBLE.round);
    let rounded = e.add_const(&shifted, -DOUBLE.round);
    let height = e.abs(y);
    let is_big = e.compare_const("oge", &height, 16_777_216.0);
    let is_round = e.compare("oeq", &rounded, y);
    let is_integer = e.binary("or", &is_big, &is_round);
    let bits = e.convert("bitcast", &shifted, DOUBLE.bits);
    let is_odd = bit_is_set(e, &DOUBLE, &bits, 1);
    let is_odd = e.binary("and", &is_odd, &is_round);
    let is_small = e.compare_const("olt", &height, 16_777_216.0);
    let is_odd = e.binary("and", &is_odd, &is_small);

    let signed = e.copysign(&result, x);
    let result = e.select(&is_odd, &signed, &result);
    let is_negative = e.compare_const("olt", x, 0.0);
    let is_finite = e.compare_const("ogt", x, f64::NEG_INFINITY);
    let is_negative = e.binary("and", &is_negative, &is_finite);
    let yes = e.int(super::emitter::Scalar::I1, 1);
    let is_fraction = e.binary("xor", &is_integer, &yes);
    let is_invalid = e.binary("and", &is_negative, &is_fraction);
    let result = e.replace_where(&is_invalid, f64::NAN, &result);
    let result = nan_where_unordered(e, x, y, &result);
    let is_one = e.compare_const("oeq", x, 1.0);
    let is_constant = e.compare_const("oeq", y, 0.0);
    let is_one = e.binary("or", &is_one, &is_constant);
    e.replace_where(&is_one, 1.0, &result)
}
