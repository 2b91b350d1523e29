//! Pooling: maxima and means over windows, fixed or adaptive.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, suggested_format};
use crate::lower::Lower;
use crate::view::Access;
use litz_ir::graph::{Arg, TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.max_pool1d.default", |cx, args| pool_types(cx, args, 1, 1), |lw, args| max_pool(lw, args, 1)),
    lower("aten.max_pool2d.default", |cx, args| pool_types(cx, args, 2, 1), |lw, args| max_pool(lw, args, 2)),
    lower("aten.max_pool3d.default", |cx, args| pool_types(cx, args, 3, 1), |lw, args| max_pool(lw, args, 3)),
    lower(
        "aten.max_pool2d_with_indices.default",
        |cx, args| pool_types(cx, args, 2, 2),
        |lw, args| max_pool(lw, args, 2),
    ),
    lower(
        "aten.max_pool3d_with_indices.default",
        |cx, args| pool_types(cx, args, 3, 2),
        |lw, args| max_pool(lw, args, 3),
    ),
    lower("aten.avg_pool1d.default", |cx, args| pool_types(cx, args, 1, 1), |lw, args| avg_pool(lw, args, 1)),
    lower("aten.avg_pool2d.default", |cx, args| pool_types(cx, args, 2, 1), |lw, args| avg_pool(lw, args, 2)),
    lower("aten.avg_pool3d.default", |cx, args| pool_types(cx, args, 3, 1), |lw, args| avg_pool(lw, args, 3)),
    lower(
        "aten.adaptive_avg_pool1d.default",
        |cx, args| adaptive_type(cx, args, 1),
        |lw, args| adaptive(lw, args, 1),
    ),
    lower(
        "aten.adaptive_avg_pool2d.default",
        |cx, args| adaptive_type(cx, args, 2),
        |lw, args| adaptive(lw, args, 2),
    ),
    lower(
        "aten._adaptive_avg_pool2d.default",
        |cx, args| adaptive_type(cx, args, 2),
        |lw, args| adaptive(lw, args, 2),
    ),
    lower(
        "aten.adaptive_avg_pool3d.default",
        |cx, args| adaptive_type(cx, args, 3),
        |lw, args| adaptive(lw, args, 3),
    ),
    lower(
        "aten._adaptive_avg_pool3d.default",
        |cx, args| adaptive_type(cx, args, 3),
        |lw, args| adaptive(lw, args, 3),
    ),
];

/// Windows along each pooled dimension.
struct Windows {
    kernel: Vec<Expr>,
    stride: Vec<Expr>,
    padding: Vec<Expr>,
    dilation: Vec<Expr>,
}

fn windows(args: &Args<'_>, n: usize) -> Result<Windows, OpError> {
    let kernel = args.ints_of("kernel_size", n)?;
    let stride = match args.get("stride") {
        Arg::None => kernel.clone(),
        Arg::List(items) if items.is_empty() => kernel.clone(),
        _ => args.ints_of("stride", n)?,
    };
    let dilation = if args.has("dilation") { args.ints_of("dilation", n)? } else { vec![Expr::one(); n] };
    Ok(Windows { kernel, stride, padding: args.ints_of("padding", n)?, dilation })
}

fn operand<'a>(args: &Args<'a>, n: usize) -> Result<&'a TensorType, OpError> {
    let x = args.tensor("self")?.ty;
    if x.rank() == n + 1 || x.rank() == n + 2 {
        return Ok(x);
    }
    Err(args.invalid(format!("expected {} or {} dimensions, found {}", n + 1, n + 2, x.rank())))
}

fn pool_types(cx: &mut InferCx<'_>, args: &Args<'_>, n: usize, results: usize) -> Result<Vec<Type>, OpError> {
    let x = operand(args, n)?;
    let w = windows(args, n)?;
    let lead = x.rank() - n;
    let mut sizes = x.sizes[..lead].to_vec();
    for d in 0..n {
        sizes.push(pooled_size(cx, args, &w, d, x.sizes[lead + d])?);
    }
    let strides = format_strides(suggested_format(cx.facts, x), &sizes);
    let out = TensorType { dtype: x.dtype, sizes, strides };
    let indices = TensorType { dtype: Dtype::I64, ..out.clone() };
    Ok([Type::Tensor(out), Type::Tensor(indices)][..results].to_vec())
}

/// Number of windows; with `ceil_mode` a last one may hang over, if it starts inside the input or the left padding.
fn pooled_size(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    w: &Windows,
    d: usize,
    size: Expr,
) -> Result<Expr, OpError> {
    let (stride, pad) = (w.stride[d], w.padding[d]);
    let room = size + pad * 2 - w.dilation[d] * (w.kernel[d] - 1) - 1;
    if !args.flag("ceil_mode")? {
        return Ok(cx.simplify(room.floordiv(stride) + 1));
    }
    let count = cx.simplify((room + stride - 1).floordiv(stride) + 1);
    match cx.known(Rel::ge((count - 1) * stride, size + pad)) {
        Some(true) => Ok(count - 1),
        Some(false) => Ok(count),
        None => Err(args.unsupported("ceil_mode with a size that is not known")),
    }
}

/// First coordinate of the window at `at`.
fn window_start(w: &Windows, d: usize, at: Expr) -> Expr {
    at * w.stride[d] - w.padding[d]
}

/// Reduced axes over the window, the coordinates in the operand, and what keeps them inside of it.
fn window(b: &mut Body<'_>, x: &Access, w: &Windows, at: &[Expr]) -> (Vec<Expr>, Vec<Rel>) {
    let lead = at.len() - w.kernel.len();
    let mut coords = at[..lead].to_vec();
    let mut guard = Vec::new();
    for d in 0..w.kernel.len() {
        let tap = b.reduced_axis(w.kernel[d]);
        let coord = window_start(w, d, at[lead + d]) + tap * w.dilation[d];
        guard.extend([Rel::ge(coord, 0), Rel::lt(coord, x.sizes[lead + d])]);
        coords.push(coord);
    }
    (coords, guard)
}

fn max_pool(lw: &mut Lower<'_>, args: &Args<'_>, n: usize) -> Result<(), OpError> {
    let w = windows(args, n)?;
    let x = lw.access(args.tensor("self")?)?;
    let (out, indices) = (lw.result(args, 0), lw.result(args, 1));
    let Some(shape) = out.as_ref().or(indices.as_ref()) else { return Ok(()) };
    lw.nest(&shape.sizes, |b, at| {
        let (coords, guard) = window(b, &x, &w, at);
        let v = b.load_if(&x, &coords, guard, ReduceOp::Max.identity(x.dtype));
        let v = b.cast(v, x.dtype.compute());
        if let Some(out) = &out {
            let max = b.reduce(ReduceOp::Max, v);
            b.store(out, at, max);
        }
        if let Some(indices) = &indices {
            let tap = b.arg_reduce(true, v);
            let place = position_in_plane(b, &x, &w, at, tap);
            b.store(indices, at, place);
        }
        Ok(())
    })
}

/// The row-major position in the pooled dimensions of the element at a row-major position in the window.
fn position_in_plane(b: &mut Body<'_>, x: &Access, w: &Windows, at: &[Expr], tap: Val) -> Val {
    let lead = at.len() - w.kernel.len();
    let mut inner = Expr::one();
    let mut plane = Expr::one();
    let mut place = b.literal(Scalar::Int(0), Dtype::I64);
    for d in (0..w.kernel.len()).rev() {
        let (inner_value, kernel) = (b.index(inner, Dtype::I64), b.index(w.kernel[d], Dtype::I64));
        let whole = b.op(ScalarOp::FloorDiv, &[tap, inner_value]);
        let own = b.op(ScalarOp::Mod, &[whole, kernel]);
        let dilation = b.index(w.dilation[d], Dtype::I64);
        let (offset, start) = (b.mul(own, dilation), b.index(window_start(w, d, at[lead + d]), Dtype::I64));
        let (coord, step) = (b.add(start, offset), b.index(plane, Dtype::I64));
        let term = b.mul(coord, step);
        place = b.add(place, term);
        inner = inner * w.kernel[d];
        plane = plane * x.sizes[lead + d];
    }
    place
}

fn avg_pool(lw: &mut Lower<'_>, args: &Args<'_>, n: usize) -> Result<(), OpError> {
    let w = windows(args, n)?;
    let x = lw.access(args.tensor("self")?)?;
    let (with_padding, divisor) = (args.flag("count_include_pad")?, args.opt_int("divisor_override")?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let lead = x.rank() - n;
    lw.nest(&out.sizes, |b, at| {
        let (coords, guard) = window(b, &x, &w, at);
        let v = b.load_if(&x, &coords, guard, Scalar::zero(x.dtype));
        let v = b.cast(v, x.dtype.compute());
        let sum = b.reduce(ReduceOp::Sum, v);
        let extent = |d: usize| {
            let (start, size) = (window_start(&w, d, at[lead + d]), x.sizes[lead + d]);
            let end = start + w.kernel[d];
            if with_padding { end.min(size + w.padding[d]) - start } else { end.min(size) - start.max(0) }
        };
        let count = divisor.unwrap_or_else(|| (0..n).map(extent).product());
        let compute = b.ty(sum);
        let count = b.index(count, compute);
        let mean = b.div(sum, count);
        b.store(&out, at, mean);
        Ok(())
    })
}

// Adaptive windows: output `i` of `m` averages input `floor(i*n/m)` up to `ceil((i+1)*n/m)`.

fn adaptive_type(cx: &mut InferCx<'_>, args: &Args<'_>, n: usize) -> Result<Vec<Type>, OpError> {
    let x = operand(args, n)?;
    let lead = x.rank() - n;
    let mut sizes = x.sizes[..lead].to_vec();
    sizes.extend(args.ints_of("output_size", n)?);
    let strides = format_strides(suggested_format(cx.facts, x), &sizes);
    one(TensorType { dtype: x.dtype, sizes, strides })
}

fn adaptive(lw: &mut Lower<'_>, args: &Args<'_>, n: usize) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let lead = x.rank() - n;
    lw.nest(&out.sizes, |b, at| {
        let (mut coords, mut guard, mut count) = (at[..lead].to_vec(), Vec::new(), Expr::one());
        for d in lead..x.rank() {
            let (size, parts, i) = (x.sizes[d], out.sizes[d], at[d]);
            let whole = size.floordiv(parts);
            if whole * parts == size {
                let tap = b.reduced_axis(whole);
                coords.push(i * whole + tap);
                count = count * whole;
                continue;
            }
            let (start, end) = ((i * size).floordiv(parts), ((i + 1) * size).ceildiv(parts));
            // No window is longer than this.
            let tap = b.reduced_axis(size.ceildiv(parts) + 1);
            coords.push(start + tap);
            guard.push(Rel::lt(start + tap, end));
            count = count * (end - start);
        }
        let v = b.load_if(&x, &coords, guard, Scalar::zero(x.dtype));
        let v = b.cast(v, x.dtype.compute());
        let sum = b.reduce(ReduceOp::Sum, v);
        let compute = b.ty(sum);
        let count = b.index(count, compute);
        let mean = b.div(sum, count);
        b.store(&out, at, mean);
        Ok(())
    })
}
