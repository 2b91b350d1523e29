//! Writes functions of complex numbers with functions of their parts, in f64: formulas lose digits that f32 does not have to spare.

use super::{Found, Pair, mul, operand, parts_of};
use crate::decompose::Rewriter;
use crate::def::DecomposeFn;
use crate::error::OpError;
use crate::ops::terms::{float, int};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;
use std::f64::consts::{FRAC_PI_2, LN_2, LN_10, PI};

/// Rules by operator.
pub(super) const RULES: &[(&str, DecomposeFn)] = &[
    ("aten.sqrt.default", |r| of(r, sqrt)),
    ("aten.rsqrt.default", |r| {
        of(r, |r, z| {
            let root = sqrt(r, z)?;
            reciprocal(r, root)
        })
    }),
    ("aten.tanh.default", |r| of(r, tanh)),
    ("aten.tan.default", |r| of(r, |r, z| turned(r, z, tanh))),
    ("aten.asinh.default", |r| of(r, asinh)),
    ("aten.asin.default", |r| of(r, |r, z| turned(r, z, asinh))),
    ("aten.acos.default", |r| {
        of(r, |r, z| {
            let [re, im] = turned(r, z, asinh)?;
            Ok([rest_of(r, re)?, negative(r, im)?])
        })
    }),
    ("aten.atanh.default", |r| of(r, atanh)),
    ("aten.atan.default", |r| of(r, |r, z| turned(r, z, atanh))),
    ("aten.acosh.default", |r| {
        of(r, |r, [re, im]| {
            let (above, below) = (plus(r, re, 1.0)?, plus(r, re, -1.0)?);
            let (above, below) = (sqrt(r, [above, im])?, sqrt(r, [below, im])?);
            let [a, b] = mul(r, above, below)?;
            let sum = [r.add(re, a)?, r.add(im, b)?];
            log(r, sum)
        })
    }),
    ("aten.log2.default", |r| of(r, |r, z| scaled_log(r, z, 1.0 / LN_2))),
    ("aten.log10.default", |r| of(r, |r, z| scaled_log(r, z, 1.0 / LN_10))),
    ("aten.log1p.default", |r| of(r, log1p)),
    ("aten.exp2.default", |r| {
        of(r, |r, [re, im]| {
            let z = [times(r, re, LN_2)?, times(r, im, LN_2)?];
            exp(r, z)
        })
    }),
    ("aten.expm1.default", |r| {
        of(r, |r, [re, im]| {
            // expm1(x) cos(y) - 2 sin(y / 2)^2
            let (size, cos) = (r.apply("aten.expm1.default", &[re])?, r.apply("aten.cos.default", &[im])?);
            let half = times(r, im, 0.5)?;
            let sin = r.apply("aten.sin.default", &[half])?;
            let (square, product) = (r.mul(sin, sin)?, r.mul(size, cos)?);
            let twice = times(r, square, 2.0)?;
            let [_, imaginary] = exp(r, [re, im])?;
            Ok([r.sub(product, twice)?, imaginary])
        })
    }),
    ("aten.silu.default", |r| {
        of(r, |r, z| {
            let opposite = [negative(r, z[0])?, negative(r, z[1])?];
            let [re, im] = exp(r, opposite)?;
            let divisor = [plus(r, re, 1.0)?, im];
            let share = reciprocal(r, divisor)?;
            mul(r, z, share)
        })
    }),
    ("aten.sinc.default", |r| {
        of(r, |r, [re, im]| {
            // sin(pi z) / (pi z), and 1 at 0.
            let [x, y] = [times(r, re, PI)?, times(r, im, PI)?];
            let [sin, cos] = [r.apply("aten.sin.default", &[x])?, r.apply("aten.cos.default", &[x])?];
            let [sinh, cosh] = [r.apply("aten.sinh.default", &[y])?, r.apply("aten.cosh.default", &[y])?];
            let above = [r.mul(sin, cosh)?, r.mul(cos, sinh)?];
            let below = reciprocal(r, [x, y])?;
            let [a, b] = mul(r, above, below)?;
            let size = norm(r, [x, y])?;
            let is_zero = r.scalar("aten.eq.Scalar", size, 0.0)?;
            let filled = |r: &mut Rewriter<'_>, part, with| {
                r.call("aten.masked_fill.Scalar", [Arg::Value(part), Arg::Value(is_zero), float(with)])
            };
            Ok([filled(r, a, 1.0)?, filled(r, b, 0.0)?])
        })
    }),
    ("aten.angle.default", |r| {
        let [re, im] = operand(r, "self")?;
        Ok(vec![r.apply("aten.atan2.default", &[im, re])?])
    }),
    ("aten.pow.Tensor_Tensor", |r| power(r, "self", "exponent")),
    ("aten.pow.Tensor_Scalar", |r| power(r, "self", "exponent")),
    ("aten.pow.Scalar", |r| power(r, "self", "exponent")),
    ("aten.float_power.Tensor_Scalar", |r| power(r, "self", "exponent")),
    ("aten.logaddexp.default", logaddexp),
    ("aten.prod.default", |r| {
        let z = operand(r, "self")?;
        let rank = r.ty(z[0])?.rank();
        let mut flat = z;
        for part in &mut flat {
            *part = r.reshape(*part, [Expr::int(-1)])?;
        }
        let flat =
            if rank == 0 { [r.reshape(z[0], [Expr::one()])?, r.reshape(z[1], [Expr::one()])?] } else { flat };
        let [re, im] = total_product(r, flat, 0)?;
        let parts = [r.reshape(re, [])?, r.reshape(im, [])?];
        narrowed(r, parts)
    }),
    ("aten.prod.dim_int", |r| {
        let z = operand(r, "self")?;
        let rank = r.ty(z[0])?.rank();
        let (at, keep) = (r.args().dim("dim", rank)?, r.args().flag("keepdim")?);
        if rank == 0 {
            return super::joined(r, z);
        }
        let mut parts = total_product(r, z, at)?;
        if !keep {
            for part in &mut parts {
                *part = r.call("aten.squeeze.dim", [Arg::Value(*part), int(at as i64)])?;
            }
        }
        narrowed(r, parts)
    }),
    ("aten.cumprod.default", |r| {
        let z = operand(r, "self")?;
        let ty = r.ty(z[0])?;
        let at = r.args().dim("dim", ty.rank())?;
        if ty.rank() == 0 {
            return super::joined(r, z);
        }
        let count = literal(r, ty.sizes[at])?;
        let (mut z, mut step) = (widened(r, z)?, 1);
        while step < count {
            let (head, before) = (cut(r, z, at, 0, step)?, cut(r, z, at, 0, count - step)?);
            let own = cut(r, z, at, step, count)?;
            let product = mul(r, own, before)?;
            z = [behind(r, head[0], product[0], at)?, behind(r, head[1], product[1], at)?];
            step *= 2;
        }
        narrowed(r, z)
    }),
    ("aten.var.default", |r| spread(r, "var", Spread::Square)),
    ("aten.var.dim", |r| spread(r, "var", Spread::Square)),
    ("aten.var.correction", |r| spread(r, "var", Spread::Square)),
    ("aten.std.default", |r| spread(r, "var", Spread::Root)),
    ("aten.std.dim", |r| spread(r, "var", Spread::Root)),
    ("aten.std.correction", |r| spread(r, "var", Spread::Root)),
    ("aten.var_mean.default", |r| spread(r, "var_mean", Spread::Square)),
    ("aten.var_mean.dim", |r| spread(r, "var_mean", Spread::Square)),
    ("aten.var_mean.correction", |r| spread(r, "var_mean", Spread::Square)),
    ("aten.std_mean.default", |r| spread(r, "var_mean", Spread::Root)),
    ("aten.std_mean.dim", |r| spread(r, "var_mean", Spread::Root)),
    ("aten.std_mean.correction", |r| spread(r, "var_mean", Spread::Root)),
];

pub(super) fn widened(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    Ok([r.convert(re, Dtype::F64)?, r.convert(im, Dtype::F64)?])
}

/// A complex tensor of parts in f64.
pub(super) fn narrowed(r: &mut Rewriter<'_>, [re, im]: Pair) -> Found {
    let parts = [r.convert(re, Dtype::F32)?, r.convert(im, Dtype::F32)?];
    super::joined(r, parts)
}

/// A function of the operand.
fn of(r: &mut Rewriter<'_>, function: fn(&mut Rewriter<'_>, Pair) -> Result<Pair, OpError>) -> Found {
    let z = operand(r, "self")?;
    let z = widened(r, z)?;
    let parts = function(r, z)?;
    narrowed(r, parts)
}

fn times(r: &mut Rewriter<'_>, x: Value, by: f64) -> Result<Value, OpError> {
    r.scalar("aten.mul.Scalar", x, by)
}

fn plus(r: &mut Rewriter<'_>, x: Value, what: f64) -> Result<Value, OpError> {
    r.scalar("aten.add.Scalar", x, what)
}

fn negative(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    r.apply("aten.neg.default", &[x])
}

/// A right angle less `x`.
fn rest_of(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    let opposite = negative(r, x)?;
    plus(r, opposite, FRAC_PI_2)
}

/// The square of the distance from zero.
fn norm(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Value, OpError> {
    let (a, b) = (r.mul(re, re)?, r.mul(im, im)?);
    r.add(a, b)
}

/// Of f32 no square overflows here.
fn reciprocal(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let size = norm(r, [re, im])?;
    let opposite = negative(r, im)?;
    Ok([r.div(re, size)?, r.div(opposite, size)?])
}

pub(super) fn exp(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let size = r.apply("aten.exp.default", &[re])?;
    let (cos, sin) = (r.apply("aten.cos.default", &[im])?, r.apply("aten.sin.default", &[im])?);
    Ok([r.mul(size, cos)?, r.mul(size, sin)?])
}

pub(super) fn log(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let size = r.apply("aten.hypot.default", &[re, im])?;
    Ok([r.apply("aten.log.default", &[size])?, r.apply("aten.atan2.default", &[im, re])?])
}

/// log(|1 + z|) is half the log1p of 2 x + x^2 + y^2.
fn log1p(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let (twice, squares) = (times(r, re, 2.0)?, norm(r, [re, im])?);
    let over = r.add(twice, squares)?;
    let size = r.apply("aten.log1p.default", &[over])?;
    let (size, next) = (times(r, size, 0.5)?, plus(r, re, 1.0)?);
    Ok([size, r.apply("aten.atan2.default", &[im, next])?])
}

/// `log1p(exp(b - a)) + a` where the real part of `a` is the larger one: the imaginary part follows that of `a`, beyond pi, too.
fn logaddexp(r: &mut Rewriter<'_>) -> Found {
    let (a, b) = (operand(r, "self")?, operand(r, "other")?);
    let (a, b) = (widened(r, a)?, widened(r, b)?);
    let is_less = r.apply("aten.lt.Tensor", &[a[0], b[0]])?;
    let (small, large) = (chosen(r, is_less, a, b)?, chosen(r, is_less, b, a)?);
    let below = [r.sub(small[0], large[0])?, r.sub(small[1], large[1])?];
    let share = exp(r, below)?;
    let [re, im] = log1p(r, share)?;
    let sum = [r.add(re, large[0])?, r.add(im, large[1])?];
    // Of real parts that are infinite alike the difference is no number.
    let (one, other) = (exp(r, small)?, exp(r, large)?);
    let total = [r.add(one[0], other[0])?, r.add(one[1], other[1])?];
    let total = log(r, total)?;
    let is_endless = r.scalar("aten.eq.Scalar", small[0], f64::INFINITY)?;
    let is_nothing = r.scalar("aten.eq.Scalar", large[0], f64::NEG_INFINITY)?;
    let found = chosen(r, is_endless, total, sum)?;
    let found = chosen(r, is_nothing, small, found)?;
    // What is no number in a part is none in both.
    let mut filled = found;
    for given in [a[0], a[1], b[0], b[1]] {
        let is_none = r.apply("aten.isnan.default", &[given])?;
        for part in &mut filled {
            *part =
                r.call("aten.masked_fill.Scalar", [Arg::Value(*part), Arg::Value(is_none), float(f64::NAN)])?;
        }
    }
    narrowed(r, filled)
}

/// Parts of `x` where something holds, else of `y`.
fn chosen(r: &mut Rewriter<'_>, holds: Value, x: Pair, y: Pair) -> Result<Pair, OpError> {
    let part = |r: &mut Rewriter<'_>, at: usize| r.apply("aten.where.self", &[holds, x[at], y[at]]);
    Ok([part(r, 0)?, part(r, 1)?])
}

fn scaled_log(r: &mut Rewriter<'_>, z: Pair, by: f64) -> Result<Pair, OpError> {
    let [re, im] = log(r, z)?;
    Ok([times(r, re, by)?, times(r, im, by)?])
}

/// The root whose real part is not negative; the imaginary part has the sign of that of the operand.
fn sqrt(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let size = r.apply("aten.hypot.default", &[re, im])?;
    let far = r.apply("aten.abs.default", &[re])?;
    let sum = r.add(size, far)?;
    let half = times(r, sum, 0.5)?;
    let large = r.apply("aten.sqrt.default", &[half])?;
    let (twice, height) = (times(r, large, 2.0)?, r.apply("aten.abs.default", &[im])?);
    let small = r.div(height, twice)?;
    let is_zero = r.scalar("aten.eq.Scalar", large, 0.0)?;
    let small = r.call("aten.masked_fill.Scalar", [Arg::Value(small), Arg::Value(is_zero), float(0.0)])?;
    let is_left = r.scalar("aten.lt.Scalar", re, 0.0)?;
    let real = r.apply("aten.where.self", &[is_left, small, large])?;
    let imaginary = r.apply("aten.where.self", &[is_left, large, small])?;
    Ok([real, r.apply("aten.copysign.Tensor", &[imaginary, im])?])
}

/// `-i f(i z)`, which is a circular function where `f` is a hyperbolic one.
fn turned(
    r: &mut Rewriter<'_>,
    [re, im]: Pair,
    function: fn(&mut Rewriter<'_>, Pair) -> Result<Pair, OpError>,
) -> Result<Pair, OpError> {
    let opposite = negative(r, im)?;
    let [a, b] = function(r, [opposite, re])?;
    Ok([b, negative(r, a)?])
}

/// `(sinh(2 x) + i sin(2 y)) / (cosh(2 x) + cos(2 y))`; beyond 100 the real part is 1 and the imaginary part below all of f32.
fn tanh(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let re = r.call("aten.clamp.default", [Arg::Value(re), float(-100.0), float(100.0)])?;
    let (x, y) = (times(r, re, 2.0)?, times(r, im, 2.0)?);
    let (sinh, cosh) = (r.apply("aten.sinh.default", &[x])?, r.apply("aten.cosh.default", &[x])?);
    let (sin, cos) = (r.apply("aten.sin.default", &[y])?, r.apply("aten.cos.default", &[y])?);
    let below = r.add(cosh, cos)?;
    Ok([r.div(sinh, below)?, r.div(sin, below)?])
}

/// `log(z + sqrt(z^2 + 1))` where the real part is not negative, else the opposite of that of the opposite.
fn asinh(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let is_left = r.scalar("aten.lt.Scalar", re, 0.0)?;
    let flipped = |r: &mut Rewriter<'_>, x: Value| {
        let opposite = negative(r, x)?;
        r.apply("aten.where.self", &[is_left, opposite, x])
    };
    let (x, y) = (flipped(r, re)?, flipped(r, im)?);
    let [a, b] = mul(r, [x, y], [x, y])?;
    let square = [plus(r, a, 1.0)?, b];
    let [a, b] = sqrt(r, square)?;
    let sum = [r.add(x, a)?, r.add(y, b)?];
    let [re, im] = log(r, sum)?;
    Ok([flipped(r, re)?, flipped(r, im)?])
}

/// `log1p(4 x / ((1 - x)^2 + y^2)) / 4`, and half the angle of `(1 - x) (1 + x) - y^2` and `2 y`.
fn atanh(r: &mut Rewriter<'_>, [re, im]: Pair) -> Result<Pair, OpError> {
    let opposite = negative(r, re)?;
    let (left, right) = (plus(r, opposite, 1.0)?, plus(r, re, 1.0)?);
    let (below, above) = (norm(r, [left, im])?, times(r, re, 4.0)?);
    let ratio = r.div(above, below)?;
    let real = r.apply("aten.log1p.default", &[ratio])?;
    let (product, square) = (r.mul(left, right)?, r.mul(im, im)?);
    let (x, y) = (r.sub(product, square)?, times(r, im, 2.0)?);
    let angle = r.apply("aten.atan2.default", &[y, x])?;
    Ok([times(r, real, 0.25)?, times(r, angle, 0.5)?])
}

/// `exp(w log(z))`. The literal power 0 of anything is 1; a power of 0 is 0 or infinite by the real part of the exponent.
fn power(r: &mut Rewriter<'_>, base: &str, exponent: &str) -> Found {
    let literal = r.args().opt_float(exponent).ok().flatten();
    if literal == Some(0.0) {
        let z = operand(r, base)?;
        let parts =
            [r.apply("aten.ones_like.default", &[z[0]])?, r.apply("aten.zeros_like.default", &[z[0]])?];
        return super::joined(r, parts);
    }
    if literal == Some(2.0) {
        let z = operand(r, base)?;
        let parts = mul(r, z, z)?;
        return super::joined(r, parts);
    }
    let (z, w) = (operand(r, base)?, operand(r, exponent)?);
    let (z, w) = (widened(r, z)?, widened(r, w)?);
    let logarithm = log(r, z)?;
    let product = mul(r, w, logarithm)?;
    let [re, im] = exp(r, product)?;
    let size = norm(r, z)?;
    let is_zero = r.scalar("aten.eq.Scalar", size, 0.0)?;
    let of_zero = |r: &mut Rewriter<'_>, part: Value, by: &str, with: f64| {
        let holds = r.scalar(by, w[0], 0.0)?;
        let holds = r.apply("aten.logical_and.default", &[holds, is_zero])?;
        r.call("aten.masked_fill.Scalar", [Arg::Value(part), Arg::Value(holds), float(with)])
    };
    let re = of_zero(r, re, "aten.gt.Scalar", 0.0)?;
    let re = of_zero(r, re, "aten.lt.Scalar", f64::INFINITY)?;
    let im = of_zero(r, im, "aten.gt.Scalar", 0.0)?;
    narrowed(r, [re, im])
}

/// A size that is known.
fn literal(r: &Rewriter<'_>, size: Expr) -> Result<i64, OpError> {
    size.as_int().ok_or_else(|| r.args().unsupported("a product of a symbolic number of complex numbers"))
}

fn cut(r: &mut Rewriter<'_>, z: Pair, at: usize, start: i64, end: i64) -> Result<Pair, OpError> {
    Ok([
        r.slice(z[0], at, Expr::int(start), Expr::int(end))?,
        r.slice(z[1], at, Expr::int(start), Expr::int(end))?,
    ])
}

fn behind(r: &mut Rewriter<'_>, head: Value, tail: Value, at: usize) -> Result<Value, OpError> {
    let both = Arg::List(vec![Arg::Value(head), Arg::Value(tail)]);
    r.call("aten.cat.default", [both, int(at as i64)])
}

/// The product along a dimension, which stays: halves are multiplied with each other. In f64.
fn total_product(r: &mut Rewriter<'_>, z: Pair, at: usize) -> Result<Pair, OpError> {
    let ty = r.ty(z[0])?;
    let (mut z, mut count) = (widened(r, z)?, literal(r, ty.sizes[at])?);
    if count == 0 {
        let mut sizes = ty.sizes.clone();
        sizes[at] = Expr::one();
        return Ok([r.filled(sizes.clone(), 1.0, Dtype::F64)?, r.filled(sizes, 0.0, Dtype::F64)?]);
    }
    while count > 1 {
        let half = count / 2;
        let (first, second) = (cut(r, z, at, 0, half)?, cut(r, z, at, half, 2 * half)?);
        let product = mul(r, first, second)?;
        z = if count % 2 == 0 {
            product
        } else {
            let rest = cut(r, z, at, count - 1, count)?;
            [behind(r, product[0], rest[0], at)?, behind(r, product[1], rest[1], at)?]
        };
        count = half + count % 2;
    }
    Ok(z)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    Square,
    Root,
}

/// The variance of complex numbers is the sum of those of their parts.
fn spread(r: &mut Rewriter<'_>, name: &str, spread: Spread) -> Found {
    let node = r.args().node;
    let (given, overload) = node.op.as_str().rsplit_once('.').unwrap_or((node.op.as_str(), "default"));
    let (op, has_mean, rest) =
        (format!("aten.{name}.{overload}"), given.ends_with("_mean"), node.args[1..].to_vec());
    let x = r.args().tensor("self")?.value;
    let z = parts_of(r, x)?;
    let mut found = Vec::new();
    for part in z {
        let args = [Arg::Value(part)].into_iter().chain(rest.clone());
        found.push(r.call_all(&op, args)?.into_iter().flatten().collect::<Vec<_>>());
    }
    let [re, im] = &found[..] else { return Err(r.args().invalid("expected parts")) };
    let (re, im) = (re.clone(), im.clone());
    let mut results = vec![r.add(re[0], im[0])?];
    if spread == Spread::Root {
        results[0] = r.apply("aten.sqrt.default", &[results[0]])?;
    }
    if has_mean {
        results.extend(super::joined(r, [re[1], im[1]])?);
    }
    Ok(results)
}
