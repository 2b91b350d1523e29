//! Lowers Chebyshev polynomials by what defines them: cosines of multiples of an angle, hyperbolic ones outside of -1 and 1.
//!
//! With `x = cos(t)`, or `|x| = cosh(t)`, the polynomials of degree n are
//!
//! ```text
//! first  (T)  cos(n t)                            cosh(n t)
//! second (U)  sin((n + 1) t) / sin(t)             sinh((n + 1) t) / sinh(t)
//! third  (V)  cos((n + 1/2) t) / cos(t / 2)       cosh((n + 1/2) t) / cosh(t / 2)
//! fourth (W)  sin((n + 1/2) t) / sin(t / 2)       sinh((n + 1/2) t) / sinh(t / 2)
//! ```
//!
//! where a negative argument changes the sign of odd degrees, and exchanges V and W. Degrees lose their fraction, and
//! negative ones give 0, as in eager. All is computed in f64; the relative error grows with `n t`, by about one unit in its
//! last place.

use crate::body::{Body, Point};
use crate::def::{OpDef, pointwise};
use crate::promote::Promote::Float;
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};

/// Entries.
pub const OPS: &[OpDef] = &[
    pointwise("aten.special_chebyshev_polynomial_t.default", Float, |p, v| Ok(chebyshev(p, v, Kind::First))),
    pointwise("aten.special_chebyshev_polynomial_t.x_scalar", Float, |p, v| Ok(chebyshev(p, v, Kind::First))),
    pointwise("aten.special_chebyshev_polynomial_t.n_scalar", Float, |p, v| Ok(chebyshev(p, v, Kind::First))),
    pointwise("aten.special_chebyshev_polynomial_u.default", Float, |p, v| Ok(chebyshev(p, v, Kind::Second))),
    pointwise("aten.special_chebyshev_polynomial_u.x_scalar", Float, |p, v| {
        Ok(chebyshev(p, v, Kind::Second))
    }),
    pointwise("aten.special_chebyshev_polynomial_u.n_scalar", Float, |p, v| {
        Ok(chebyshev(p, v, Kind::Second))
    }),
    pointwise("aten.special_chebyshev_polynomial_v.default", Float, |p, v| Ok(chebyshev(p, v, Kind::Third))),
    pointwise("aten.special_chebyshev_polynomial_v.x_scalar", Float, |p, v| Ok(chebyshev(p, v, Kind::Third))),
    pointwise("aten.special_chebyshev_polynomial_v.n_scalar", Float, |p, v| Ok(chebyshev(p, v, Kind::Third))),
    pointwise("aten.special_chebyshev_polynomial_w.default", Float, |p, v| Ok(chebyshev(p, v, Kind::Fourth))),
    pointwise("aten.special_chebyshev_polynomial_w.x_scalar", Float, |p, v| {
        Ok(chebyshev(p, v, Kind::Fourth))
    }),
    pointwise("aten.special_chebyshev_polynomial_w.n_scalar", Float, |p, v| {
        Ok(chebyshev(p, v, Kind::Fourth))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_t.default", Float, |p, v| {
        Ok(shifted(p, v, Kind::First))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_t.x_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::First))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_t.n_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::First))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_u.default", Float, |p, v| {
        Ok(shifted(p, v, Kind::Second))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_u.x_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::Second))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_u.n_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::Second))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_v.default", Float, |p, v| {
        Ok(shifted(p, v, Kind::Third))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_v.x_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::Third))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_v.n_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::Third))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_w.default", Float, |p, v| {
        Ok(shifted(p, v, Kind::Fourth))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_w.x_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::Fourth))
    }),
    pointwise("aten.special_shifted_chebyshev_polynomial_w.n_scalar", Float, |p, v| {
        Ok(shifted(p, v, Kind::Fourth))
    }),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    First,
    Second,
    Third,
    Fourth,
}

fn chebyshev(p: &mut Point<'_, '_>, v: &[Val], kind: Kind) -> Val {
    let x = p.cast(v[0], Dtype::F64);
    degree_of(p, v, |b, n| polynomial(b, x, n, kind))
}

/// The polynomial of `2 x - 1`.
fn shifted(p: &mut Point<'_, '_>, v: &[Val], kind: Kind) -> Val {
    let x = p.cast(v[0], Dtype::F64);
    let (twice, one) = (p.add(x, x), p.lit(x, 1.0));
    let x = p.sub(twice, one);
    degree_of(p, v, |b, n| polynomial(b, x, n, kind))
}

/// The polynomial of the degree that the second operand has without its fraction; 0 for what is none.
fn degree_of(p: &mut Point<'_, '_>, v: &[Val], polynomial: impl FnOnce(&mut Body<'_>, Val) -> Val) -> Val {
    let dtype = p.ty(v[0]);
    let given = p.cast(v[1], Dtype::F64);
    let (zero, most) = (p.lit(given, 0.0), p.lit(given, 2f64.powi(63)));
    let n = p.op(ScalarOp::Trunc, &[given]);
    let (from_zero, below_most) = (p.ge(n, zero), p.lt(n, most));
    let is_degree = p.and(from_zero, below_most);
    let n = p.select(is_degree, n, zero);
    let value = polynomial(p, n);
    let value = p.select(is_degree, value, zero);
    p.cast(value, dtype)
}

fn polynomial(b: &mut Body<'_>, x: Val, n: Val, kind: Kind) -> Val {
    let (zero, one, half) = (b.lit(x, 0.0), b.lit(x, 1.0), b.lit(x, 0.5));
    let (size, negative) = (b.abs(x), b.lt(x, zero));
    let outside = b.gt(size, one);
    let inside = b.min(size, one);
    let angle = b.op(ScalarOp::Acos, &[inside]);
    let beyond = b.max(size, one);
    let rate = b.op(ScalarOp::Acosh, &[beyond]);
    let half_n = b.mul(n, half);
    let even_part = b.floor(half_n);
    let even = b.eq(half_n, even_part);
    // Both at |x|, whose sign is taken into account below.
    let value = |b: &mut Body<'_>, kind: Kind| {
        let (near, far) = (circular(b, angle, n, kind), hyperbolic(b, rate, n, kind));
        let value = b.select(outside, far, near);
        let at_one = match kind {
            Kind::First | Kind::Third => one,
            Kind::Second => b.add(n, one),
            Kind::Fourth => {
                let twice = b.add(n, n);
                b.add(twice, one)
            }
        };
        let is_one = b.eq(size, one);
        b.select(is_one, at_one, value)
    };
    let own = value(b, kind);
    let mirrored = match kind {
        Kind::First | Kind::Second => own,
        Kind::Third => value(b, Kind::Fourth),
        Kind::Fourth => value(b, Kind::Third),
    };
    let opposite = b.neg(mirrored);
    let mirrored = b.select(even, mirrored, opposite);
    let mut value = b.select(negative, mirrored, own);
    if matches!(kind, Kind::First | Kind::Second) {
        // Odd ones are exactly 0 at 0, where the cosine of a rounded multiple of a right angle is not.
        let (is_zero, is_odd) = (b.eq(size, zero), b.ne(half_n, even_part));
        let vanishes = b.and(is_zero, is_odd);
        value = b.select(vanishes, zero, value);
    }
    // Of degree 0 it is 1 of all numbers, even of none.
    let is_constant = b.eq(n, zero);
    let nan = b.ne(x, x);
    let value = b.select(nan, x, value);
    b.select(is_constant, one, value)
}

fn circular(b: &mut Body<'_>, angle: Val, n: Val, kind: Kind) -> Val {
    let half = b.lit(angle, 0.5);
    match kind {
        Kind::First => {
            let angle = b.mul(n, angle);
            b.op(ScalarOp::Cos, &[angle])
        }
        Kind::Second => {
            let next = b.mul(n, angle);
            let next = b.add(next, angle);
            let (above, below) = (b.op(ScalarOp::Sin, &[next]), b.op(ScalarOp::Sin, &[angle]));
            b.div(above, below)
        }
        Kind::Third | Kind::Fourth => {
            let op = if kind == Kind::Third { ScalarOp::Cos } else { ScalarOp::Sin };
            let (between, half_angle) = (b.add(n, half), b.mul(angle, half));
            let between = b.mul(between, angle);
            let (above, below) = (b.op(op, &[between]), b.op(op, &[half_angle]));
            b.div(above, below)
        }
    }
}

/// As `exp(n t)` times what is left, which does not overflow before the result does.
fn hyperbolic(b: &mut Body<'_>, rate: Val, n: Val, kind: Kind) -> Val {
    let (one, half, minus_two) = (b.lit(rate, 1.0), b.lit(rate, 0.5), b.lit(rate, -2.0));
    let growth = b.mul(n, rate);
    let growth = b.exp(growth);
    let down = |b: &mut Body<'_>, times: Val| {
        let product = b.mul(times, rate);
        b.mul(product, minus_two)
    };
    match kind {
        Kind::First => {
            let down = down(b, n);
            let e = b.exp(down);
            let sum = b.add(one, e);
            let rest = b.mul(sum, half);
            b.mul(growth, rest)
        }
        Kind::Second | Kind::Fourth => {
            let first = if kind == Kind::Second { one } else { half };
            let last = b.add(n, first);
            let (last, first) = (down(b, last), down(b, first));
            let (above, below) = (b.op(ScalarOp::Expm1, &[last]), b.op(ScalarOp::Expm1, &[first]));
            let ratio = b.div(above, below);
            b.mul(growth, ratio)
        }
        Kind::Third => {
            let last = b.add(n, half);
            let (last, first) = (down(b, last), down(b, half));
            let (above, below) = (b.exp(last), b.exp(first));
            let (above, below) = (b.add(one, above), b.add(one, below));
            let ratio = b.div(above, below);
            b.mul(growth, ratio)
        }
    }
}
