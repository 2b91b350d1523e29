//! Lowers elementwise operators: arithmetic, functions of one number, comparison, logic, selection.

use crate::body::Point;
use crate::def::{OpDef, decompose, inplace, op, pointwise};
use crate::error::OpError;
use crate::promote::Promote::{Bounds, Common, Compare, Division, First, Float, Product, Real};
use litz_ir::graph::Arg;
use litz_ir::loops::Val;
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    // The operand, whose elements have to be from `low` to `high`: a NaN is not.
    pointwise("litz.within.default", Common, |p, v| {
        let (low, high) = (p.args.float("low")?, p.args.float("high")?);
        let (low, high) = (p.lit(v[0], low), p.lit(v[0], high));
        let (above, below) = (p.ge(v[0], low), p.le(v[0], high));
        let inside = p.and(above, below);
        p.check_value(inside);
        Ok(v[0])
    }),
    op("prims.div.default", Common, ScalarOp::Div),
    // Arithmetic.
    pointwise("aten.add.Tensor", Common, |p, v| scaled(p, v, plus)),
    pointwise("aten.add.Scalar", Common, |p, v| scaled(p, v, plus)),
    pointwise("aten.sub.Tensor", Common, |p, v| scaled(p, v, |p, a, b| p.sub(a, b))),
    pointwise("aten.sub.Scalar", Common, |p, v| scaled(p, v, |p, a, b| p.sub(a, b))),
    pointwise("aten.rsub.Tensor", Common, |p, v| scaled(p, &[v[1], v[0]], |p, a, b| p.sub(a, b))),
    pointwise("aten.rsub.Scalar", Common, |p, v| scaled(p, &[v[1], v[0]], |p, a, b| p.sub(a, b))),
    pointwise("aten.mul.Tensor", Product, |p, v| Ok(times(p, v[0], v[1]))),
    pointwise("aten.mul.Scalar", Product, |p, v| Ok(times(p, v[0], v[1]))),
    op("aten.div.Tensor", Division, ScalarOp::Div),
    op("aten.div.Scalar", Division, ScalarOp::Div),
    op("aten.true_divide.Tensor", Division, ScalarOp::Div),
    pointwise("aten.div.Tensor_mode", Division, divide_rounding),
    pointwise("aten.div.Scalar_mode", Division, divide_rounding),
    op("aten.floor_divide.default", Product, ScalarOp::FloorDiv),
    op("aten.floor_divide.Scalar", Product, ScalarOp::FloorDiv),
    op("aten.remainder.Tensor", Common, ScalarOp::Mod),
    op("aten.remainder.Scalar", Common, ScalarOp::Mod),
    op("aten.fmod.Tensor", Common, ScalarOp::Rem),
    op("aten.fmod.Scalar", Common, ScalarOp::Rem),
    pointwise("aten.pow.Tensor_Tensor", Common, |p, v| Ok(p.op(ScalarOp::Pow, v))),
    pointwise("aten.pow.Tensor_Scalar", Common, power),
    pointwise("aten.pow.Scalar", Common, |p, v| Ok(p.op(ScalarOp::Pow, v))),
    decompose("aten.square.default", |r| {
        // The exponent is a number of its own: it makes truth values integers.
        let x = r.args().tensor("self")?.value;
        Ok(vec![r.call("aten.pow.Tensor_Scalar", [Arg::Value(x), Arg::Int(Expr::int(2))])?])
    }),
    pointwise("aten.reciprocal.default", Float, |p, v| {
        let one = p.lit(v[0], 1.0);
        Ok(p.div(one, v[0]))
    }),
    pointwise("aten.addcmul.default", Common, |p, v| addc(p, v, ScalarOp::Mul)),
    pointwise("aten.addcdiv.default", Common, |p, v| addc(p, v, ScalarOp::Div)),
    pointwise("aten.lerp.Scalar", Common, |p, v| {
        p.args.of_one_type(&["self", "end"])?;
        let weight = p.args.float("weight")?;
        let w = p.lit(v[0], weight);
        Ok(lerp(p, v[0], v[1], w))
    }),
    pointwise("aten.lerp.Tensor", Common, |p, v| {
        p.args.of_one_type(&["self", "end", "weight"])?;
        Ok(lerp(p, v[0], v[1], v[2]))
    }),
    op("aten.neg.default", Common, ScalarOp::Neg),
    op("aten.abs.default", Real, ScalarOp::Abs),
    op("aten.sign.default", Common, ScalarOp::Sign),
    op("aten.sgn.default", Common, ScalarOp::Sign),
    op("aten.maximum.default", Common, ScalarOp::Max),
    op("aten.minimum.default", Common, ScalarOp::Min),
    op("aten.max.other", Common, ScalarOp::Max),
    op("aten.min.other", Common, ScalarOp::Min),
    pointwise("aten.fmax.default", Common, |p, v| Ok(ignoring_nan(p, v, ScalarOp::Max))),
    pointwise("aten.fmin.default", Common, |p, v| Ok(ignoring_nan(p, v, ScalarOp::Min))),
    pointwise("aten.clamp.default", Bounds, clamp),
    pointwise("aten.clamp.Tensor", Common, clamp),
    op("aten.clamp_min.default", Bounds, ScalarOp::Max),
    op("aten.clamp_min.Tensor", Common, ScalarOp::Max),
    op("aten.clamp_max.default", Bounds, ScalarOp::Min),
    op("aten.clamp_max.Tensor", Common, ScalarOp::Min),
    // Functions of one real number.
    op("aten.exp.default", Float, ScalarOp::Exp),
    op("aten.exp2.default", Float, ScalarOp::Exp2),
    op("aten.expm1.default", Float, ScalarOp::Expm1),
    op("aten.log.default", Float, ScalarOp::Log),
    op("aten.log2.default", Float, ScalarOp::Log2),
    op("aten.log10.default", Float, ScalarOp::Log10),
    op("aten.log1p.default", Float, ScalarOp::Log1p),
    op("aten.sqrt.default", Float, ScalarOp::Sqrt),
    op("aten.rsqrt.default", Float, ScalarOp::Rsqrt),
    op("aten.sin.default", Float, ScalarOp::Sin),
    op("aten.cos.default", Float, ScalarOp::Cos),
    op("aten.tan.default", Float, ScalarOp::Tan),
    op("aten.asin.default", Float, ScalarOp::Asin),
    op("aten.acos.default", Float, ScalarOp::Acos),
    op("aten.atan.default", Float, ScalarOp::Atan),
    op("aten.atan2.default", Float, ScalarOp::Atan2),
    op("aten.sinh.default", Float, ScalarOp::Sinh),
    op("aten.cosh.default", Float, ScalarOp::Cosh),
    op("aten.tanh.default", Float, ScalarOp::Tanh),
    op("aten.asinh.default", Float, ScalarOp::Asinh),
    op("aten.acosh.default", Float, ScalarOp::Acosh),
    op("aten.atanh.default", Float, ScalarOp::Atanh),
    op("aten.erf.default", Float, ScalarOp::Erf),
    op("aten.erfc.default", Float, ScalarOp::Erfc),
    op("aten.erfinv.default", Float, ScalarOp::Erfinv),
    op("aten.lgamma.default", Float, ScalarOp::Lgamma),
    op("aten.digamma.default", Float, ScalarOp::Digamma),
    op("aten.copysign.Tensor", Float, ScalarOp::Copysign),
    op("aten.copysign.Scalar", Float, ScalarOp::Copysign),
    op("aten.nextafter.default", Common, ScalarOp::Nextafter),
    pointwise("aten.floor.default", Common, |p, v| Ok(rounded(p, v[0], ScalarOp::Floor))),
    pointwise("aten.ceil.default", Common, |p, v| Ok(rounded(p, v[0], ScalarOp::Ceil))),
    pointwise("aten.round.default", Common, |p, v| Ok(rounded(p, v[0], ScalarOp::Round))),
    pointwise("aten.trunc.default", Common, |p, v| Ok(rounded(p, v[0], ScalarOp::Trunc))),
    pointwise("aten.fix.default", Common, |p, v| Ok(rounded(p, v[0], ScalarOp::Trunc))),
    pointwise("aten.frac.default", Common, |p, v| {
        let whole = p.op(ScalarOp::Trunc, v);
        Ok(p.sub(v[0], whole))
    }),
    // Comparison and logic.
    op("aten.eq.Tensor", Compare, ScalarOp::Eq),
    op("aten.eq.Scalar", Compare, ScalarOp::Eq),
    op("aten.ne.Tensor", Compare, ScalarOp::Ne),
    op("aten.ne.Scalar", Compare, ScalarOp::Ne),
    op("aten.lt.Tensor", Compare, ScalarOp::Lt),
    op("aten.lt.Scalar", Compare, ScalarOp::Lt),
    op("aten.le.Tensor", Compare, ScalarOp::Le),
    op("aten.le.Scalar", Compare, ScalarOp::Le),
    op("aten.gt.Tensor", Compare, ScalarOp::Gt),
    op("aten.gt.Scalar", Compare, ScalarOp::Gt),
    op("aten.ge.Tensor", Compare, ScalarOp::Ge),
    op("aten.ge.Scalar", Compare, ScalarOp::Ge),
    pointwise("aten.isnan.default", Compare, |p, v| float_test(p, v[0], ScalarOp::Isnan)),
    pointwise("aten.isinf.default", Compare, |p, v| float_test(p, v[0], ScalarOp::Isinf)),
    pointwise("aten.isfinite.default", Compare, |p, v| {
        let (nan, inf) = (float_test(p, v[0], ScalarOp::Isnan)?, float_test(p, v[0], ScalarOp::Isinf)?);
        let neither = p.or(nan, inf);
        Ok(p.not(neither))
    }),
    pointwise("aten.signbit.default", Compare, |p, v| {
        let (one, zero) = (p.lit(v[0], 1.0), p.lit(v[0], 0.0));
        let tested = if p.dtype.is_float() { p.op(ScalarOp::Copysign, &[one, v[0]]) } else { v[0] };
        Ok(p.lt(tested, zero))
    }),
    pointwise("aten.logical_and.default", Compare, |p, v| logical(p, v, ScalarOp::And)),
    pointwise("aten.logical_or.default", Compare, |p, v| logical(p, v, ScalarOp::Or)),
    pointwise("aten.logical_xor.default", Compare, |p, v| logical(p, v, ScalarOp::Xor)),
    pointwise("aten.logical_not.default", Compare, |p, v| {
        let truth = p.cast(v[0], Dtype::Bool);
        Ok(p.not(truth))
    }),
    op("aten.bitwise_and.Tensor", Common, ScalarOp::And),
    op("aten.bitwise_and.Scalar", Common, ScalarOp::And),
    op("aten.bitwise_or.Tensor", Common, ScalarOp::Or),
    op("aten.bitwise_or.Scalar", Common, ScalarOp::Or),
    op("aten.bitwise_xor.Tensor", Common, ScalarOp::Xor),
    op("aten.bitwise_xor.Scalar", Common, ScalarOp::Xor),
    op("aten.bitwise_not.default", Common, ScalarOp::Not),
    op("aten.bitwise_left_shift.Tensor", Common, ScalarOp::Shl),
    op("aten.bitwise_right_shift.Tensor", Common, ScalarOp::Shr),
    op("aten.__and__.Tensor", Common, ScalarOp::And),
    op("aten.__and__.Scalar", Common, ScalarOp::And),
    op("aten.__or__.Tensor", Common, ScalarOp::Or),
    op("aten.__or__.Scalar", Common, ScalarOp::Or),
    op("aten.__xor__.Tensor", Common, ScalarOp::Xor),
    op("aten.__xor__.Scalar", Common, ScalarOp::Xor),
    op("aten.__lshift__.Tensor", Common, ScalarOp::Shl),
    op("aten.__lshift__.Scalar", Common, ScalarOp::Shl),
    op("aten.__rshift__.Tensor", Common, ScalarOp::Shr),
    op("aten.__rshift__.Scalar", Common, ScalarOp::Shr),
    pointwise("aten.where.self", Common, where_),
    pointwise("aten.where.ScalarSelf", Common, where_),
    pointwise("aten.where.ScalarOther", Common, where_),
    pointwise("aten.where.Scalar", Common, where_),
    pointwise("aten.masked_fill.Scalar", First, masked_fill),
    pointwise("aten.masked_fill.Tensor", First, masked_fill),
    pointwise("aten.nan_to_num.default", Common, nan_to_num),
    pointwise("aten.logit.default", Float, |p, v| {
        let x = match p.args.opt_float("eps")? {
            // The limits are numbers of the element type. The lower one counts where it is above the upper one.
            Some(eps) => {
                let low = p.rounded(eps);
                let high = p.rounded(1.0 - low);
                let (low, high) = (p.lit(v[0], low), p.lit(v[0], high));
                let (is_low, cut) = (p.lt(v[0], low), p.min(v[0], high));
                p.select(is_low, low, cut)
            }
            None => v[0],
        };
        let one = p.lit(x, 1.0);
        let rest = p.sub(one, x);
        let odds = p.div(x, rest);
        Ok(p.log(odds))
    }),
    // In-place twins.
    inplace("aten.add_.Tensor", "aten.add.Tensor"),
    inplace("aten.add_.Scalar", "aten.add.Scalar"),
    inplace("aten.sub_.Tensor", "aten.sub.Tensor"),
    inplace("aten.sub_.Scalar", "aten.sub.Scalar"),
    inplace("aten.mul_.Tensor", "aten.mul.Tensor"),
    inplace("aten.mul_.Scalar", "aten.mul.Scalar"),
    inplace("aten.div_.Tensor", "aten.div.Tensor"),
    inplace("aten.div_.Scalar", "aten.div.Scalar"),
    inplace("aten.pow_.Scalar", "aten.pow.Tensor_Scalar"),
    inplace("aten.addcmul_.default", "aten.addcmul.default"),
    inplace("aten.addcdiv_.default", "aten.addcdiv.default"),
    inplace("aten.clamp_.default", "aten.clamp.default"),
    inplace("aten.clamp_min_.default", "aten.clamp_min.default"),
    inplace("aten.clamp_max_.default", "aten.clamp_max.default"),
    inplace("aten.neg_.default", "aten.neg.default"),
    inplace("aten.exp_.default", "aten.exp.default"),
    inplace("aten.sqrt_.default", "aten.sqrt.default"),
    inplace("aten.rsqrt_.default", "aten.rsqrt.default"),
    inplace("aten.tanh_.default", "aten.tanh.default"),
    inplace("aten.masked_fill_.Scalar", "aten.masked_fill.Scalar"),
    inplace("aten.masked_fill_.Tensor", "aten.masked_fill.Tensor"),
    inplace("aten.logical_and_.default", "aten.logical_and.default"),
    inplace("aten.logical_or_.default", "aten.logical_or.default"),
    inplace("aten.logical_not_.default", "aten.logical_not.default"),
    inplace("aten.bitwise_and_.Tensor", "aten.bitwise_and.Tensor"),
    inplace("aten.bitwise_or_.Tensor", "aten.bitwise_or.Tensor"),
];

/// `a + b`; of truth values, either.
fn plus(p: &mut Point<'_, '_>, a: Val, b: Val) -> Val {
    if p.dtype == Dtype::Bool { p.or(a, b) } else { p.add(a, b) }
}

/// `a * b`; of truth values, both.
fn times(p: &mut Point<'_, '_>, a: Val, b: Val) -> Val {
    if p.dtype == Dtype::Bool { p.and(a, b) } else { p.mul(a, b) }
}

/// `f(a, alpha * b)`.
fn scaled(
    p: &mut Point<'_, '_>,
    v: &[Val],
    f: impl Fn(&mut Point<'_, '_>, Val, Val) -> Val,
) -> Result<Val, OpError> {
    let alpha = p.rounded(p.args.float("alpha")?);
    let b = if alpha == 1.0 {
        v[1]
    } else {
        let alpha = p.lit(v[1], alpha);
        times(p, alpha, v[1])
    };
    Ok(f(p, v[0], b))
}

/// `self + value * (a op b)`.
fn addc(p: &mut Point<'_, '_>, v: &[Val], op: ScalarOp) -> Result<Val, OpError> {
    let value = p.args.float("value")?;
    // As eager: the factor goes to the first operand.
    let value = p.lit(v[1], value);
    let a = p.mul(value, v[1]);
    let term = p.op(op, &[a, v[2]]);
    Ok(p.add(v[0], term))
}

/// `a + w * (b - a)`, from the end for w of 0.5 and more, so that both ends are exact.
fn lerp(p: &mut Point<'_, '_>, a: Val, b: Val, w: Val) -> Val {
    let (half, one, difference, magnitude) = (p.lit(w, 0.5), p.lit(w, 1.0), p.sub(b, a), p.abs(w));
    let (step, rest) = (p.mul(w, difference), p.sub(one, w));
    let (near, back) = (p.add(a, step), p.mul(difference, rest));
    let far = p.sub(b, back);
    let first = p.lt(magnitude, half);
    p.select(first, near, far)
}

fn divide_rounding(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    match p.args.str("rounding_mode")? {
        "" => Ok(p.div(v[0], v[1])),
        "floor" => Ok(p.op(ScalarOp::FloorDiv, v)),
        "trunc" => {
            let quotient = p.div(v[0], v[1]);
            Ok(rounded(p, quotient, ScalarOp::Trunc))
        }
        _ => Err(p.args.bad("rounding_mode", "floor or trunc")),
    }
}

/// A power with the exponents that eager takes apart: 0.5, 2, 3, -0.5, -1, -2.
fn power(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let x = v[0];
    let late = p.args.late("exponent").is_some() || p.args.opt_float("exponent").is_err();
    if late && p.dtype.is_float() {
        // PyTorch looks at what the exponent is when it runs: where it is a half, roots of infinities and zeros have the sign of these.
        let (half, other) = (p.lit(v[1], 0.5), p.lit(v[1], -0.5));
        let (is_root, is_inverse) = (p.eq(v[1], half), p.eq(v[1], other));
        let (root, inverse, power) = (p.sqrt(x), p.op(ScalarOp::Rsqrt, &[x]), p.op(ScalarOp::Pow, v));
        let chosen = p.select(is_inverse, inverse, power);
        return Ok(p.select(is_root, root, chosen));
    }
    let exponent = p.args.opt_float("exponent")?.unwrap_or(f64::NAN);
    if !p.dtype.is_float() {
        if exponent < 0.0 {
            return Err(p.args.invalid("integers to negative powers are not integers"));
        }
        if exponent == 2.0 {
            return Ok(times(p, x, x));
        }
        return Ok(p.op(ScalarOp::Pow, v));
    }
    let one = p.lit(x, 1.0);
    Ok(match exponent {
        0.5 => p.sqrt(x),
        1.0 => x,
        2.0 => p.mul(x, x),
        3.0 => {
            let square = p.mul(x, x);
            p.mul(square, x)
        }
        -0.5 => p.op(ScalarOp::Rsqrt, &[x]),
        -1.0 => p.div(one, x),
        -2.0 => {
            let square = p.mul(x, x);
            p.div(one, square)
        }
        _ => p.op(ScalarOp::Pow, v),
    })
}

/// A rounding of floats; integers are whole already.
fn rounded(p: &mut Point<'_, '_>, x: Val, op: ScalarOp) -> Val {
    if p.ty(x).is_float() { p.op(op, &[x]) } else { x }
}

fn float_test(p: &mut Point<'_, '_>, x: Val, op: ScalarOp) -> Result<Val, OpError> {
    Ok(if p.dtype.is_float() { p.op(op, &[x]) } else { p.literal(Scalar::Bool(false), Dtype::Bool) })
}

fn logical(p: &mut Point<'_, '_>, v: &[Val], op: ScalarOp) -> Result<Val, OpError> {
    let (a, b) = (p.cast(v[0], Dtype::Bool), p.cast(v[1], Dtype::Bool));
    Ok(p.op(op, &[a, b]))
}

/// The extreme of two, NaN losing.
fn ignoring_nan(p: &mut Point<'_, '_>, v: &[Val], op: ScalarOp) -> Val {
    let extreme = p.op(op, v);
    if !p.dtype.is_float() {
        return extreme;
    }
    let (a_nan, b_nan) = (p.ne(v[0], v[0]), p.ne(v[1], v[1]));
    let unless_b = p.select(b_nan, v[0], extreme);
    p.select(a_nan, v[1], unless_b)
}

fn clamp(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let mut bounds = v[1..].iter();
    let mut x = v[0];
    if p.args.has("min")
        && let Some(&lo) = bounds.next()
    {
        x = p.max(x, lo);
    }
    if p.args.has("max")
        && let Some(&hi) = bounds.next()
    {
        x = p.min(x, hi);
    }
    Ok(x)
}

/// Clamped to literals. What is not negative has no need of a negative bound, which unsigned types with 64 bits take for a large one.
pub(crate) fn between(p: &mut Point<'_, '_>, x: Val, lo: f64, hi: f64) -> Val {
    let lo = if p.dtype == Dtype::U64 { lo.max(0.0) } else { lo };
    let (lo, hi) = (p.lit(x, lo), p.lit(x, hi));
    let raised = p.max(x, lo);
    p.min(raised, hi)
}

fn where_(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let condition = p.condition.ok_or_else(|| p.args.bad("condition", "a tensor"))?;
    Ok(p.select(condition, v[0], v[1]))
}

fn masked_fill(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let mask = p.condition.ok_or_else(|| p.args.bad("mask", "a tensor"))?;
    let value = match v.get(1) {
        Some(&value) => value,
        None => {
            let value = p.args.number("value")?;
            let dtype = p.dtype;
            p.number(value, dtype)
        }
    };
    Ok(p.select(mask, value, v[0]))
}

fn nan_to_num(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let x = v[0];
    if !p.dtype.is_float() {
        return Ok(x);
    }
    let stored = p.args.tensor("self")?.ty.dtype;
    let largest = largest_finite(stored);
    let nan = p.args.opt_float("nan")?.unwrap_or(0.0);
    let high = p.args.opt_float("posinf")?.unwrap_or(largest);
    let low = p.args.opt_float("neginf")?.unwrap_or(-largest);
    let (nan, high, low) = (p.lit(x, nan), p.lit(x, high), p.lit(x, low));
    let (inf, minus_inf) = (p.lit(x, f64::INFINITY), p.lit(x, f64::NEG_INFINITY));
    let (is_nan, is_high, is_low) = (p.ne(x, x), p.eq(x, inf), p.eq(x, minus_inf));
    let result = p.select(is_low, low, x);
    let result = p.select(is_high, high, result);
    Ok(p.select(is_nan, nan, result))
}

/// The largest finite value of a float type.
pub(crate) fn largest_finite(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 => 65504.0,
        Dtype::BF16 => f64::from(f32::from_bits(0x7f7f_0000)),
        Dtype::F8E4M3 => 448.0,
        Dtype::F8E5M2 => 57344.0,
        Dtype::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}
