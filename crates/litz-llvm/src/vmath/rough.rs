//! Writes functions of single precision by the approximations of a GPU: for results that are rounded to a half type.
//!
//! Relative errors are at most 2^-19, where `bf16` rounds to 2^-9 and `f16` to 2^-12. Results below the smallest normal number may be zero.
//! (PTX ISA: `ex2.approx`, `rcp.approx` and `rsqrt.approx` have relative errors of 2^-22 and less.)

use super::MathFn;
use super::emitter::{Emitter, Scalar, Value};

/// `log2(erfc(x)) / x`, 0 <= x <= 3: 2^-20 of `erf`. It stays negative above.
const ERFC: &[f64] = &[
    -0.0029961068648844957,
    0.02979728952050209,
    -0.14893697202205658,
    -0.9183765053749084,
    -1.6279082298278809,
];

/// Twice the inverse of the square root of pi, the slope of `erf` at 0.
const ERF_SLOPE: f64 = std::f64::consts::FRAC_2_SQRT_PI;

/// Below this a difference from 1 would lose too much, and two terms of a series do. The next one is 2^-19 of the result.
const NEAR: f64 = 0.0625;

/// The approximation of a function; none where there is none that is shorter.
pub(super) fn function(op: MathFn) -> Option<fn(&mut Emitter<'_>, &Value) -> Value> {
    match op {
        MathFn::Exp => Some(exp),
        MathFn::Exp2 => Some(exp2),
        MathFn::Erf => Some(erf),
        MathFn::Tanh => Some(tanh),
        MathFn::Rsqrt => Some(rsqrt),
        MathFn::Expm1
        | MathFn::Log
        | MathFn::Log2
        | MathFn::Log10
        | MathFn::Log1p
        | MathFn::Erfc
        | MathFn::Sin
        | MathFn::Cos
        | MathFn::Tan
        | MathFn::Pow
        | MathFn::Asin
        | MathFn::Acos
        | MathFn::Atan
        | MathFn::Atan2
        | MathFn::Sinh
        | MathFn::Cosh
        | MathFn::Asinh
        | MathFn::Acosh
        | MathFn::Atanh => None,
    }
}

/// An instruction of the chip on one number.
fn approximate(e: &mut Emitter<'_>, instruction: &str, x: &Value) -> Value {
    e.line(Scalar::F32, &format!("call float @llvm.nvvm.{instruction}.f(float {})", x.text))
}

fn exp2(e: &mut Emitter<'_>, x: &Value) -> Value {
    approximate(e, "ex2.approx.ftz", x)
}

fn exp(e: &mut Emitter<'_>, x: &Value) -> Value {
    let exponent = e.mul_const(x, std::f64::consts::LOG2_E);
    exp2(e, &exponent)
}

fn rsqrt(e: &mut Emitter<'_>, x: &Value) -> Value {
    approximate(e, "rsqrt.approx", x)
}

/// `1 - erfc(|x|)`, and near 0 the first terms of the series.
fn erf(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let p = e.polynomial(ERFC, &magnitude);
    let exponent = e.mul(&p, &magnitude);
    let below = exp2(e, &exponent);
    let far = e.sub_from(1.0, &below);
    let near = series(e, &magnitude, [ERF_SLOPE, -ERF_SLOPE / 3.0]);
    one_of(e, &magnitude, &near, &far, x)
}

/// `1 - 2/(exp(2|x|) + 1)`, and near 0 the first terms of the series.
fn tanh(e: &mut Emitter<'_>, x: &Value) -> Value {
    let magnitude = e.abs(x);
    let exponent = e.mul_const(&magnitude, 2.0 * std::f64::consts::LOG2_E);
    let above = exp2(e, &exponent);
    let denominator = e.add_const(&above, 1.0);
    let inverse = approximate(e, "rcp.approx.ftz", &denominator);
    let one = e.float(Scalar::F32, 1.0);
    let far = e.fma_const(&inverse, -2.0, &one);
    let near = series(e, &magnitude, [1.0, -1.0 / 3.0]);
    one_of(e, &magnitude, &near, &far, x)
}

/// `a*x + b*x^3`.
fn series(e: &mut Emitter<'_>, x: &Value, [a, b]: [f64; 2]) -> Value {
    let square = e.mul(x, x);
    let first = e.float(Scalar::F32, a);
    let factor = e.fma_const(&square, b, &first);
    e.mul(&factor, x)
}

fn one_of(e: &mut Emitter<'_>, magnitude: &Value, near: &Value, far: &Value, sign: &Value) -> Value {
    let is_near = e.compare_const("olt", magnitude, NEAR);
    let result = e.select(&is_near, near, far);
    e.copysign(&result, sign)
}
