//! Lowers simulated quantisation: floats rounded to what an integer of few bits can represent.

use crate::args::Args;
use crate::body::{Body, Point};
use crate::def::{OpDef, lower, one, pointwise};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{preserved_strides, vector_of};
use crate::lower::Lower;
use crate::promote::Promote::Common;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};

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
];

/// The smallest and the largest level.
fn levels(args: &Args<'_>) -> Result<(f64, f64), OpError> {
    let (least, largest) = (args.float("quant_min")?, args.float("quant_max")?);
    if least > largest {
        return Err(args.invalid(format!("levels from {least} to {largest} are none")));
    }
    Ok((least, largest))
}

/// `(clamp(round(x / scale) + zero) - zero) * scale`, dividing as eager does, by multiplication with the inverse.
fn quantised(b: &mut Body<'_>, x: Val, scale: Val, zero: Val, range: (f64, f64)) -> Val {
    let (one, low, high) = (b.lit(x, 1.0), b.lit(x, range.0), b.lit(x, range.1));
    let inverse = b.div(one, scale);
    let scaled = b.mul(x, inverse);
    let whole = b.op(ScalarOp::Round, &[scaled]);
    let level = b.add(whole, zero);
    let level = b.max(level, low);
    let level = b.min(level, high);
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
        let (scale, zero) = (b.read_as(&scale, channel, compute), b.read_as(&zero, channel, compute));
        let v = quantised(b, v, scale, zero, range);
        b.store(&out, at, v);
        Ok(())
    })
}
