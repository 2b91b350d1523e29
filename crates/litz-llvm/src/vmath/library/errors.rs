//! Writes the error function, its complement and its inverse in double precision.

use super::super::emitter::Scalar;
use super::code::{Code, Function, Number};
use super::powers::{exp_of, log_of};
use super::sums::exact_product;
use super::tables::{ERF_TAIL, ERFC_FACTOR};

pub(super) static ERF: Function = Function {
    name: "erf",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let magnitude = x[0].abs();
        let [result] = code.branch(
            magnitude.lt(1.0),
            || [near_erf(magnitude)],
            || [1.0 - code.call::<1>(&ERFC, &[magnitude])[0]],
        );
        vec![result.copysign(x[0])]
    },
};

/// The error function of a number in [0, 1].
fn near_erf(x: Number<'_>) -> Number<'_> {
    x.fma((x * x).polynomial(ERF_TAIL), x)
}

/// From here on it is 0.
const ERFC_LIMIT: f64 = 28.0;

/// Near 0 the complement of the error function, else `exp(-x^2) g(x) / (1 + 2x)`, where the variable of `g` is that of Shepherd and Laframboise (Mathematics of Computation 36, 1981).
pub(super) static ERFC: Function = Function {
    name: "erfc",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let magnitude = x[0].abs();
        let t = magnitude.gt(ERFC_LIMIT).pick(ERFC_LIMIT, magnitude);
        let (exp, n) = (-exact_product(t, t)).exp(code);
        let variable = (t - 4.0) / (t + 4.0);
        let factor = variable.polynomial(ERFC_FACTOR) / t.fma(2.0, 1.0);
        let right = exp.high.fma(factor, exp.low * factor).scaled(n);
        let right = magnitude.lt(0.5).pick(1.0 - near_erf(magnitude), right);
        let result = x[0].lt(0.0).pick(2.0 - right, right);
        vec![x[0].is_unordered(x[0]).pick(x[0], result)]
    },
};

/// The algorithm of the runtime's routine: rational starting points, then Newton steps on whichever of erf and erfc is not near 1.
pub(super) static ERFINV: Function = Function {
    name: "lz_erfinv_f64",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, y| {
        let magnitude = y[0].abs();
        let complement = 1.0 - magnitude;
        let is_near = magnitude.gt(0.7).not();
        let [first] = code.branch(
            is_near,
            || {
                let z = magnitude * magnitude;
                let above = z.polynomial(&[-0.140543331, 0.914624893, -1.645349621, 0.886226899]);
                let below = z.polynomial(&[0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0]);
                [magnitude * above / below]
            },
            || {
                let z = (-log_of(code, complement * 0.5)).sqrt();
                let above = z.polynomial(&[1.641345311, 3.429567803, -1.624906493, -1.970840454]);
                [above / z.polynomial(&[1.637067800, 3.543889200, 1.0])]
            },
        );
        let [_, found] = code.repeat(
            [code.i64(0), first],
            |[count, _]| count.lt(3),
            |[count, x]| [count + 1, x - newton(code, [x, magnitude, complement], is_near)],
        );
        let result = magnitude.eq(1.0).pick(f64::INFINITY, found).copysign(y[0]);
        vec![(magnitude.gt(1.0) | magnitude.is_unordered(magnitude)).pick(f64::NAN, result)]
    },
};

/// How far `x` is from the place where erf is `y` and erfc is `complement`.
fn newton<'c>(code: &'c Code, [x, y, complement]: [Number<'c>; 3], is_near: Number<'c>) -> Number<'c> {
    let [error] = code.branch(
        is_near,
        || [code.call::<1>(&ERF, &[x])[0] - y],
        || [complement - code.call::<1>(&ERFC, &[x])[0]],
    );
    let square = x * x;
    let bounded = square.gt(700.0).pick(700.0, square);
    error / (exp_of(code, -bounded) * std::f64::consts::FRAC_2_SQRT_PI)
}
