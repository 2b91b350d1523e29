//! Writes the logarithm of the gamma function and its derivative in double precision.

use super::super::emitter::Scalar;
use super::angles::{TAN, near_cosine, near_sine};
use super::code::{Code, Function, Number};
use super::powers::log_of;
use super::sums::{Sum, constant, exact_product, ordered_sum};
use super::tables::{DIGAMMA_SERIES, LGAMMA_NEAR_2, LOG_PI, PI, STIRLING, STIRLING_SERIES};

pub(super) static LGAMMA: Function = Function {
    name: "lgamma",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let x = x[0];
        let magnitude = x.abs();
        let is_regular = magnitude.lt(f64::INFINITY) & (x.gt(0.0) | x.trunc().ne(x));
        let [result] = code.branch(
            is_regular,
            || {
                let positive = of_positive(code, magnitude);
                code.branch(x.lt(0.0), || [reflected(code, magnitude, positive)], || [positive.value()])
            },
            // Infinite at poles and for infinities, else NaN.
            || [x.is_unordered(x).pick(x, code.f64(f64::INFINITY))],
        );
        vec![result]
    },
};

fn of_positive<'c>(code: &'c Code, x: Number<'c>) -> Sum<'c> {
    let [high, low] = code.call(&LGAMMA_OF_POSITIVE, &[x]);
    Sum { high, low }
}

/// `log(pi / (a sin(pi a))) - lgamma(a)` for a negative argument `-a`; near 0, where products would be denormal, `-log(a)`.
fn reflected<'c>(code: &'c Code, a: Number<'c>, positive: Sum<'c>) -> Number<'c> {
    let is_tiny = a.lt(2f64.powi(-60));
    let fraction = (a - a.round()).abs();
    let is_steep = fraction.gt(0.25);
    let turn = is_steep.pick(0.5 - fraction, fraction);
    let angle = constant(code, PI) * turn;
    let sine = Sum::pick(is_steep, near_cosine(angle), near_sine(angle));
    let product = Sum::pick(is_tiny, Sum::of(code, a), sine * a);
    let log = product.log(code);
    let result = constant(code, LOG_PI) - log - positive;
    is_tiny.pick(-log.value(), result.value())
}

static LGAMMA_OF_POSITIVE: Function = Function {
    name: "lz.lgamma.of.positive",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64; 2],
    body: |code, x| {
        let x = x[0];
        let [high, low] = code.branch(
            x.lt(10.0),
            || {
                let sum = by_recurrence(code, x);
                [sum.high, sum.low]
            },
            || {
                let sum = by_series(code, x);
                [sum.high, sum.low]
            },
        );
        vec![high, low]
    },
};

/// The polynomial around 2, which holds the zeros at 1 and 2, and the logarithm of the factors that lead there.
fn by_recurrence<'c>(code: &'c Code, x: Number<'c>) -> Sum<'c> {
    let one = Sum::of(code, code.f64(1.0));
    let [near, high, low] = code.repeat(
        [x, one.high, one.low],
        |[x, ..]| x.ge(2.5),
        |[x, high, low]| {
            let below = x - 1.0;
            let product = Sum { high, low } * below;
            [below, product.high, product.low]
        },
    );
    // Up to 1.5 the factors are divided out.
    let (is_first, is_second) = (x.lt(0.5), x.lt(1.5));
    let distance = is_first.pick(x, is_second.pick(x - 1.0, near - 2.0));
    let square = exact_product(x, x);
    let both = ordered_sum(x, square.high);
    let both = ordered_sum(both.high, both.low + square.low);
    let factors = Sum::pick(is_second, Sum::of(code, x), Sum { high, low });
    let factors = Sum::pick(is_first, both, factors);
    let log = factors.log(code);
    let log = Sum::pick(is_second, -log, log);
    exact_product(distance, distance.polynomial(LGAMMA_NEAR_2)) + log
}

/// Stirling's series.
fn by_series<'c>(code: &'c Code, x: Number<'c>) -> Sum<'c> {
    let log = Sum::of(code, x).log(code) - Sum::of(code, code.f64(1.0));
    let main = log * (x - 0.5);
    let inverse = 1.0 / x;
    let rest = inverse * (inverse * inverse).polynomial(STIRLING_SERIES);
    let sum = main + constant(code, STIRLING);
    let sum = ordered_sum(sum.high, sum.low + rest);
    let is_finite = main.high.lt(f64::INFINITY);
    let infinite = Sum::of(code, code.f64(f64::INFINITY));
    Sum::pick(is_finite, sum, infinite)
}

/// The algorithm of the runtime's routine: the recurrence up to 10, then the asymptotic series; reflection below 0.
pub(super) static DIGAMMA: Function = Function {
    name: "lz_digamma_f64",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let x = x[0];
        let is_negative = x.lt(0.0);
        let start = is_negative.pick(1.0 - x, x);
        let [at, below] = code.repeat(
            [start, code.f64(0.0)],
            |[at, _]| at.lt(10.0),
            |[at, below]| [at + 1.0, below - 1.0 / at],
        );
        let z = 1.0 / (at * at);
        let series = log_of(code, at) - 0.5 / at - z * z.polynomial(DIGAMMA_SERIES) + below;
        let positive = at.lt(f64::INFINITY).pick(series, at);
        let fraction = x - x.round();
        let [result] = code.branch(
            is_negative,
            || {
                let tangent = code.call::<1>(&TAN, &[fraction * std::f64::consts::PI])[0];
                let result = positive - std::f64::consts::PI / tangent;
                [fraction.ne(0.0).pick(result, code.f64(f64::NAN))]
            },
            || [positive],
        );
        let pole = code.f64(f64::INFINITY).copysign(-x);
        vec![x.eq(0.0).pick(pole, result)]
    },
};
