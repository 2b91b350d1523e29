//! Lowers the gradients of resizing: one dimension after the other, each element sums what its weights in the results made of it.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, same_sizes, suggested_format};
use crate::lower::Lower;
use crate::ops::curve::Curve;
use crate::ops::resize::{Axis, Pick, nearest_element, scales, taps};
use crate::view::ValueAccess;
use litz_ir::graph::{TensorType, Type, contiguous_strides};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.upsample_nearest1d_backward.default", types, |lw, args| spread(lw, args, FLOOR)),
    lower("aten.upsample_nearest2d_backward.default", types, |lw, args| spread(lw, args, FLOOR)),
    lower("aten.upsample_nearest3d_backward.default", types, |lw, args| spread(lw, args, FLOOR)),
    lower("aten._upsample_nearest_exact1d_backward.default", types, |lw, args| spread(lw, args, CENTRE)),
    lower("aten._upsample_nearest_exact2d_backward.default", types, |lw, args| spread(lw, args, CENTRE)),
    lower("aten._upsample_nearest_exact3d_backward.default", types, |lw, args| spread(lw, args, CENTRE)),
    lower("aten.upsample_linear1d_backward.default", types, |lw, args| spread(lw, args, LINEAR)),
    lower("aten.upsample_bilinear2d_backward.default", types, |lw, args| spread(lw, args, LINEAR)),
    lower("aten.upsample_trilinear3d_backward.default", types, |lw, args| spread(lw, args, LINEAR)),
    lower("aten.upsample_bicubic2d_backward.default", types, |lw, args| {
        spread(lw, args, Method::Blend(Curve::Cubic))
    }),
];

/// How results were made of elements.
#[derive(Clone, Copy)]
enum Method {
    Nearest(Pick),
    Blend(Curve),
}

const FLOOR: Method = Method::Nearest(Pick::Kept);
const CENTRE: Method = Method::Nearest(Pick::Centre);
const LINEAR: Method = Method::Blend(Curve::Linear);

/// The resized dimensions: all but the first two.
fn axes(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Axis>, OpError> {
    let (sizes, counts) = (args.ints("input_size")?, args.ints("output_size")?);
    let grad = args.tensor("grad_output")?.ty;
    let dims = (1..=3).find(|dims| args.op().contains(&format!("{dims}d_")));
    if dims != Some(counts.len()) || sizes.len() != counts.len() + 2 {
        return Err(args.bad("input_size", &format!("{} sizes", counts.len() + 2)));
    }
    same_sizes(cx, args, "argument `grad_output`", &grad.sizes, &[&sizes[..2], &counts].concat())?;
    let empty = |_| args.invalid(format!("expected elements, found sizes {sizes:?} and {counts:?}"));
    let extents = sizes[1..].iter().chain(&counts);
    extents.copied().try_for_each(|size| cx.require(Rel::ge(size, 1), args.op())).map_err(empty)?;
    let scales = scales(args, counts.len())?;
    let axis = |d: usize| Axis {
        size: sizes[2 + d],
        count: counts[d],
        scale: scales[d].filter(|&scale| scale > 0.0),
    };
    Ok((0..counts.len()).map(axis).collect())
}

/// In the gradient's format; of cubic interpolation and of nearest elements in three dimensions contiguous.
fn types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    axes(cx, args)?;
    let (sizes, grad) = (args.ints("input_size")?, args.tensor("grad_output")?.ty);
    if !grad.dtype.is_float() {
        return Err(args.unsupported(&format!("element type {}", grad.dtype)));
    }
    let strides =
        match args.op().contains("bicubic") || args.op().contains("3d") && !args.op().contains("linear") {
            true => contiguous_strides(&sizes),
            false => format_strides(suggested_format(cx.facts, grad), &sizes),
        };
    one(TensorType::strided(grad.dtype, sizes, strides))
}

fn spread(lw: &mut Lower<'_>, args: &Args<'_>, method: Method) -> Result<(), OpError> {
    let axes = axes(&mut lw.infer_cx(), args)?;
    let align_corners = args.flag("align_corners")?;
    let kept: &[i64] = match method {
        Method::Nearest(Pick::Kept) => &[1, 2],
        Method::Blend(_) if !align_corners => &[1],
        Method::Nearest(Pick::Floor | Pick::Centre) | Method::Blend(_) => &[],
    };
    axes.iter().try_for_each(|axis| axis.decides(&lw.infer_cx(), args, kept))?;
    let mut from = lw.access(args.tensor("grad_output")?)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    if matches!(method, Method::Blend(Curve::Cubic)) && axes.iter().all(|axis| axis.size == axis.count) {
        // As eager, whatever the scale, which the results themselves go by.
        return lw.nest(&out.sizes, |b, at| {
            let v = b.load(&from, at);
            b.store(&out, at, v);
            Ok(())
        });
    }
    let mut sizes = from.sizes.clone();
    for (d, axis) in axes.iter().enumerate().rev() {
        let weights = weights(lw, axis, method, align_corners, compute)?;
        sizes[2 + d] = axis.size;
        let to = if d == 0 { out.clone() } else { lw.temp("along", compute, &sizes) };
        lw.nest(&sizes, |b, at| {
            let result = b.reduced_axis(axis.count);
            let mut coords = at.to_vec();
            coords[2 + d] = result;
            let (v, weight) = (b.read_as(&from, &coords, compute), b.read(&weights, &[result, at[2 + d]]));
            let (zero, term) = (b.lit(v, 0.0), b.mul(v, weight));
            // NaN and infinities stay where elements had a part in results.
            let has_part = b.ne(weight, zero);
            let term = b.select(has_part, term, zero);
            let sum = b.reduce(ReduceOp::Sum, term);
            b.store(&to, at, sum);
            Ok(())
        })?;
        from = to;
    }
    Ok(())
}

/// The weight of each element in each result along one dimension, `[result, element]`.
fn weights(
    lw: &mut Lower<'_>,
    axis: &Axis,
    method: Method,
    align_corners: bool,
    compute: Dtype,
) -> Result<ValueAccess, OpError> {
    let weights = lw.temp("weights", compute, &[axis.count, axis.size]);
    lw.nest(&[axis.count, axis.size], |b, at| {
        let taps: Vec<(Expr, Val)> = match method {
            Method::Nearest(pick) => {
                let element = nearest_element(b, axis, at[0], pick);
                vec![(element, b.literal(Scalar::Float(1.0), compute))]
            }
            Method::Blend(curve) => taps(b, axis, at[0], align_corners, curve, compute),
        };
        let sum =
            taps.into_iter().fold(None, |sum, (element, weight)| Some(added(b, sum, element, at[1], weight)));
        let sum = sum.unwrap_or_else(|| b.literal(Scalar::Float(0.0), compute));
        b.store(&weights, at, sum);
        Ok(())
    })?;
    Ok(weights)
}

/// The sum and the weight of a tap, if it is this element.
fn added(b: &mut Body<'_>, sum: Option<Val>, element: Expr, at: Expr, weight: Val) -> Val {
    let (is_own, zero) = (b.cond(Rel::eq(element, at)), b.lit(weight, 0.0));
    let own = b.select(is_own, weight, zero);
    match sum {
        Some(sum) => b.add(sum, own),
        None => own,
    }
}
