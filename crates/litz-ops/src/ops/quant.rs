//! Lowers simulated quantisation: floats rounded to what an integer of few bits can represent, and which of them were in its range.

use crate::args::Args;
use crate::body::{Body, Point};
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower, one, pointwise};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{preserved_strides, vector_of};
use crate::lower::Lower;
use crate::promote::Promote::Common;
use litz_ir::graph::{Arg, TensorType, Type, Value};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    pointwise("aten.fake_quantize_per_tensor_affine.default", Common, |p, v| {
        let (scale, zero, range) = (p.args.float("scale")?, p.args.float("zero_point")?, levels(p.args)?);
        if zero < range.0 || zero > range.1 {
            return Err(p.args.bad("zero_point", &format!("a level from {} to {}", range.0, range.1)));
        }
        let (scale, zero) = (p.lit(v[0], scale), p.lit(v[0], zero));
        Ok(quantised(p, v[0], scale, zero, range))
    }),
    pointwise("aten.fake_quantize_per_tensor_affine.tensor_qparams", Common, |p: &mut Point<'_, '_>, v| {
        let range = levels(p.args)?;
        Ok(quantised(p, v[0], v[1], v[2], range))
    }),
    lower("aten.fake_quantize_per_channel_affine.default", by_channel_type, by_channel),
    decompose("aten.fake_quantize_per_tensor_affine_cachemask.default", |r| {
        let x = single(r, "self")?;
        let y = with_args(r, "aten.fake_quantize_per_tensor_affine.default", QUANTISED_BY)?;
        // Eager divides as f32.
        let inverse = f64::from(1.0 / r.args().float("scale")? as f32);
        let zero = r.args().float("zero_point")?;
        let level = r.scalar("aten.mul.Scalar", x, inverse)?;
        let level = r.apply("aten.round.default", &[level])?;
        let level = r.scalar("aten.add.Scalar", level, zero)?;
        Ok(vec![y, in_range(r, level)?])
    }),
    decompose("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default", |r| {
        let x = single(r, "self")?;
        let y = with_args(r, "aten.fake_quantize_per_tensor_affine.tensor_qparams", QUANTISED_BY)?;
        let [scale, zero, enabled] = ["scale", "zero_point", "fake_quant_enabled"]
            .map(|name| r.args().tensor(name).map(|tensor| tensor.value));
        let [scale, zero, enabled] = [scale?, zero?, enabled?]
            .map(|one| r.call("aten.reshape.default", [Arg::Value(one), Arg::ints(Vec::new())]));
        let level = level_of(r, x, scale?, zero?)?;
        let mask = in_range(r, level)?;
        let is_on = r.scalar("aten.ne.Scalar", enabled?, 0.0)?;
        let is_off = r.apply("aten.logical_not.default", &[is_on])?;
        let y = r.apply("aten.where.self", &[is_on, y, x])?;
        Ok(vec![y, r.apply("aten.logical_or.default", &[mask, is_off])?])
    }),
    decompose("aten.fake_quantize_per_channel_affine_cachemask.default", |r| {
        let x = single(r, "self")?;
        let by = ["self", "scale", "zero_point", "axis", "quant_min", "quant_max"];
        let y = with_args(r, "aten.fake_quantize_per_channel_affine.default", by)?;
        let rank = r.ty(x)?.rank();
        let axis = r.args().dim("axis", rank)?;
        let sizes = |at: usize| if at == axis { Expr::int(-1) } else { Expr::one() };
        let [scale, zero] = ["scale", "zero_point"].map(|name| -> Result<Value, OpError> {
            let vector = r.args().tensor(name)?.value;
            r.call("aten.reshape.default", [Arg::Value(vector), Arg::ints((0..rank).map(sizes))])
        });
        let level = level_of(r, x, scale?, zero?)?;
        Ok(vec![y, in_range(r, level)?])
    }),
    decompose("quantized_decomposed.fake_quant_per_channel.default", |r| {
        let x = single(r, "input")?;
        let [scales, zeros] = [("scales", Dtype::F32), ("zero_points", Dtype::I32)].map(|(name, dtype)| {
            let vector = r.args().tensor(name)?.value;
            r.call("aten._to_copy.default", [Arg::Value(vector), Arg::Dtype(dtype)])
        });
        let [axis, least, most] = ["axis", "quant_min", "quant_max"].map(|name| r.args().get(name).clone());
        let by = [Arg::Value(x), Arg::Value(scales?), Arg::Value(zeros?), axis, least, most];
        Ok(vec![r.call("aten.fake_quantize_per_channel_affine.default", by)?])
    }),
];

/// The arguments of simulated quantisation by one scale.
const QUANTISED_BY: [&str; 5] = ["self", "scale", "zero_point", "quant_min", "quant_max"];

/// A tensor of f32: of other types eager finds the range in other ways.
fn single(r: &Rewriter<'_>, name: &str) -> Result<Value, OpError> {
    r.args().of_types(name, &[Dtype::F32])?;
    Ok(r.args().tensor(name)?.value)
}

/// Another operator, applied to arguments of this one.
fn with_args<const N: usize>(r: &mut Rewriter<'_>, op: &str, names: [&str; N]) -> Result<Value, OpError> {
    let args = names.map(|name| r.args().get(name).clone());
    r.call(op, args)
}

/// `round(x / scale) + zero`, dividing as eager does.
fn level_of(r: &mut Rewriter<'_>, x: Value, scale: Value, zero: Value) -> Result<Value, OpError> {
    let inverse = r.apply("aten.reciprocal.default", &[scale])?;
    let level = r.apply("aten.mul.Tensor", &[x, inverse])?;
    let level = r.apply("aten.round.default", &[level])?;
    r.apply("aten.add.Tensor", &[level, zero])
}

/// Whether a level is one of those that there are.
fn in_range(r: &mut Rewriter<'_>, level: Value) -> Result<Value, OpError> {
    let (least, largest) = levels(&r.args())?;
    let ends = [r.scalar("aten.ge.Scalar", level, least)?, r.scalar("aten.le.Scalar", level, largest)?];
    r.apply("aten.logical_and.default", &ends)
}

/// The smallest and the largest level.
fn levels(args: &Args<'_>) -> Result<(f64, f64), OpError> {
    let (least, largest) = (args.float("quant_min")?, args.float("quant_max")?);
    if least > largest {
        return Err(args.invalid(format!("levels from {least} to {largest} are none")));
    }
    Ok((least, largest))
}

/// `(clamp(round(x / scale) + zero) - zero) * scale`
fn quantised(b: &mut Body<'_>, x: Val, scale: Val, zero: Val, range: (f64, f64)) -> Val {
    let level = level_at(b, x, scale, zero);
    let (low, high) = (b.lit(x, range.0), b.lit(x, range.1));
    // Of what is no number eager makes the least level.
    let is_above = b.gt(level, low);
    let level = b.select(is_above, level, low);
    let level = b.min(level, high);
    level_value(b, level, scale, zero)
}

/// The same by channels, where eager makes an integer of the level first: the least one of what none holds.
fn quantised_by_channel(b: &mut Body<'_>, x: Val, scale: Val, zero: Val, range: (f64, f64)) -> Val {
    let level = level_at(b, x, scale, zero);
    let (low, high, end) = (b.lit(x, range.0), b.lit(x, range.1), b.lit(x, 2f64.powi(63)));
    let (is_above, is_held) = (b.gt(level, low), b.lt(level, end));
    let is_level = b.and(is_above, is_held);
    let level = b.select(is_level, level, low);
    let level = b.min(level, high);
    level_value(b, level, scale, zero)
}

/// `round(x / scale) + zero`, dividing as eager does, by multiplication with the inverse.
fn level_at(b: &mut Body<'_>, x: Val, scale: Val, zero: Val) -> Val {
    let one = b.lit(x, 1.0);
    let inverse = b.div(one, scale);
    let scaled = b.mul(x, inverse);
    let whole = b.op(ScalarOp::Round, &[scaled]);
    b.add(whole, zero)
}

/// `(level - zero) * scale`
fn level_value(b: &mut Body<'_>, level: Val, scale: Val, zero: Val) -> Val {
    let steps = b.sub(level, zero);
    b.mul(steps, scale)
}

/// Scale and zero point are vectors along the axis.
fn by_channel_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let Some(&channels) = x.sizes.get(args.dim("axis", x.rank())?) else {
        return Err(args.invalid("a zero-dimensional tensor has no channels"));
    };
    if args.literal("axis")? < 0 {
        return Err(args.bad("axis", "a dimension counted from the front"));
    }
    args.of_types("scale", &[Dtype::F32, Dtype::BF16])?;
    args.of_types("zero_point", &[Dtype::I32, Dtype::F32, Dtype::F16])?;
    vector_of(cx, args, "scale", channels)?;
    vector_of(cx, args, "zero_point", channels)?;
    one(TensorType { strides: preserved_strides(cx.facts, x), ..x.clone() })
}

fn by_channel(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let (scale, zero) = (lw.access(args.tensor("scale")?)?, lw.access(args.tensor("zero_point")?)?);
    let (axis, range) = (args.dim("axis", x.rank())?, levels(args)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = x.dtype.compute();
    lw.nest(&out.sizes, |b, at| {
        let channel = &at[axis..=axis];
        let v = b.read(&x, at);
        if zero.dtype == Dtype::I32 {
            let level = b.load(&zero, channel);
            let (least, most) = (b.lit(level, range.0), b.lit(level, range.1));
            let (above, below) = (b.ge(level, least), b.le(level, most));
            let is_level = b.and(above, below);
            b.check_value(is_level);
        }
        let (scale, zero) = (b.read_as(&scale, channel, compute), b.read_as(&zero, channel, compute));
        let v = quantised_by_channel(b, v, scale, zero, range);
        b.store(&out, at, v);
        Ok(())
    })
}
