//! Computes with unevaluated sums of two doubles, which hold about 106 bits, and their logarithms and exponentials.
//!
//! The building blocks are those of T. J. Dekker (Numerische Mathematik 18, 1971) with fused multiply-add.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::super::emitter::Scalar;
use super::code::{Code, Function, Number};
use super::tables::{EXP_TAIL, FIFTH, LN_2, LN_2_SHORT, LOG_TAIL, THIRD};

/// `high + low`, where `high` is the sum rounded.
#[derive(Clone, Copy)]
pub(super) struct Sum<'c> {
    pub(super) high: Number<'c>,
    pub(super) low: Number<'c>,
}

/// The sum of two numbers, exactly.
pub(super) fn exact_sum<'c>(a: Number<'c>, b: Number<'c>) -> Sum<'c> {
    let high = a + b;
    let other = high - a;
    Sum { high, low: (a - (high - other)) + (b - other) }
}

/// As [`exact_sum`] where `a` is 0 or not the smaller one.
pub(super) fn ordered_sum<'c>(a: Number<'c>, b: Number<'c>) -> Sum<'c> {
    let high = a + b;
    Sum { high, low: b - (high - a) }
}

/// The product of two numbers, exactly unless it overflows or its low part is denormal.
pub(super) fn exact_product<'c>(a: Number<'c>, b: Number<'c>) -> Sum<'c> {
    let high = a * b;
    Sum { high, low: a.fma(b, -high) }
}

/// A constant.
pub(super) fn constant(code: &Code, [high, low]: [f64; 2]) -> Sum<'_> {
    Sum { high: code.f64(high), low: code.f64(low) }
}

impl<'c> Sum<'c> {
    pub(super) fn of(code: &'c Code, high: Number<'c>) -> Sum<'c> {
        Sum { high, low: code.f64(0.0) }
    }

    /// The sum rounded.
    pub(super) fn value(self) -> Number<'c> {
        self.high + self.low
    }

    /// The square root; 0 of 0.
    pub(super) fn sqrt(self) -> Sum<'c> {
        let high = self.high.sqrt();
        let rest = (-high).fma(high, self.high) + self.low;
        let low = rest / (high + high);
        ordered_sum(high, high.eq(0.0).pick(0.0, low))
    }

    /// Both parts times a power of two.
    pub(super) fn times(self, power: Number<'c>) -> Sum<'c> {
        Sum { high: self.high * power, low: self.low * power }
    }

    /// One of two sums by a condition.
    pub(super) fn pick(condition: Number<'c>, yes: Sum<'c>, no: Sum<'c>) -> Sum<'c> {
        Sum { high: condition.pick(yes.high, no.high), low: condition.pick(yes.low, no.low) }
    }

    /// The logarithm of a positive finite sum, to about 2^-70 of its value.
    pub(super) fn log(self, code: &'c Code) -> Sum<'c> {
        let [high, low] = code.call(&LOG, &[self.high, self.low]);
        Sum { high, low }
    }

    /// `(e, n)` such that `exp(self) = e * 2^n` and `e` is near 1, to about 2^-60, of a sum in -1100..=1100.
    pub(super) fn exp(self, code: &'c Code) -> (Sum<'c>, Number<'c>) {
        let [high, low, n] = code.call(&EXP, &[self.high, self.low]);
        (Sum { high, low }, n)
    }
}

impl<'c> Add for Sum<'c> {
    type Output = Sum<'c>;
    fn add(self, other: Sum<'c>) -> Sum<'c> {
        let high = exact_sum(self.high, other.high);
        ordered_sum(high.high, high.low + (self.low + other.low))
    }
}

impl<'c> Neg for Sum<'c> {
    type Output = Sum<'c>;
    fn neg(self) -> Sum<'c> {
        Sum { high: -self.high, low: -self.low }
    }
}

impl<'c> Sub for Sum<'c> {
    type Output = Sum<'c>;
    fn sub(self, other: Sum<'c>) -> Sum<'c> {
        self + -other
    }
}

impl<'c> Mul for Sum<'c> {
    type Output = Sum<'c>;
    fn mul(self, other: Sum<'c>) -> Sum<'c> {
        let high = exact_product(self.high, other.high);
        let cross = self.high.fma(other.low, self.low * other.high);
        ordered_sum(high.high, high.low + cross)
    }
}

impl<'c> Mul<Number<'c>> for Sum<'c> {
    type Output = Sum<'c>;
    fn mul(self, other: Number<'c>) -> Sum<'c> {
        let high = exact_product(self.high, other);
        ordered_sum(high.high, self.low.fma(other, high.low))
    }
}

impl<'c> Div for Sum<'c> {
    type Output = Sum<'c>;
    fn div(self, other: Sum<'c>) -> Sum<'c> {
        let high = self.high / other.high;
        let rest = (-high).fma(other.high, self.high) + (-high).fma(other.low, self.low);
        ordered_sum(high, rest / other.high)
    }
}

/// Bits of the square root of 1/2: significands are brought to between it and its double.
const ROOT_HALF: i64 = 0x3fe6_a09e_667f_3bcd;

static LOG: Function = Function {
    name: "lz.log.of.sum",
    parameters: &[Scalar::F64, Scalar::F64],
    results: &[Scalar::F64, Scalar::F64],
    body: log,
};

/// `k ln(2) + 2 atanh(s)` where `s = (m-1) / (m+1)` of a significand `m`.
fn log<'c>(code: &'c Code, x: &[Number<'c>]) -> Vec<Number<'c>> {
    let x = Sum { high: x[0], low: x[1] };
    let is_small = x.high.lt(2f64.powi(-900));
    let x = Sum::pick(is_small, x.times(code.f64(2f64.powi(200))), x);
    let bits = x.high.bits();
    let k = (bits - ROOT_HALF) >> 52;
    let high = (bits - (k << 52)).as_float();
    let low = x.low.scaled(code.i64(0) - k);
    let below = exact_sum(high - 1.0, low);
    let above = exact_sum(code.f64(1.0), high);
    let above = ordered_sum(above.high, above.low + low);
    let s = below / above;
    let square = s * s;
    let tail = square.high * square.high.polynomial(LOG_TAIL);
    let fifth = constant(code, FIFTH);
    let inner = ordered_sum(fifth.high, tail + fifth.low);
    let inner = constant(code, THIRD) + square * inner;
    let half = s + s * (square * inner);
    let natural = half.times(code.f64(2.0));

    let k = k.to_f64() - is_small.pick(200.0, code.f64(0.0));
    let whole = exact_sum(k * LN_2_SHORT[0], natural.high);
    let sum = ordered_sum(whole.high, whole.low + k.fma(LN_2_SHORT[1], natural.low));
    vec![sum.high, sum.low]
}

static EXP: Function = Function {
    name: "lz.exp.of.sum",
    parameters: &[Scalar::F64, Scalar::F64],
    results: &[Scalar::F64, Scalar::F64, Scalar::I64],
    body: exp,
};

/// `1 + r + r^2/2 + ..` of `r = x - n ln(2)`, of which the first three terms are added exactly.
fn exp<'c>(code: &'c Code, x: &[Number<'c>]) -> Vec<Number<'c>> {
    let n = (x[0] * std::f64::consts::LOG2_E).round();
    let near = n.fma(-LN_2_SHORT[0], x[0]);
    let r = exact_sum(near, n.fma(-LN_2_SHORT[1], x[1]));
    let square = exact_product(r.high, r.high).times(code.f64(0.5));
    let first = ordered_sum(r.high, square.high);
    let cube = r.high * square.high * 2.0;
    let tail = cube.fma(r.high.polynomial(EXP_TAIL), r.low.fma(r.high, r.low) + square.low);
    let whole = ordered_sum(code.f64(1.0), first.high);
    let sum = ordered_sum(whole.high, whole.low + (first.low + tail));
    vec![sum.high, sum.low, n.to_i64()]
}

/// The natural logarithm of 2.
pub(super) fn ln_2(code: &Code) -> Sum<'_> {
    constant(code, LN_2)
}
