//! Lowers pooling: the largest element or the mean of each window.

use crate::args::{Args, Tensor};
use crate::body::Body;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, is_channels_last, not_negative, same_shape, suggested_format};
use crate::lower::Lower;
use crate::ops::window::reduced_axes;
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Type, Value, contiguous_strides};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.max_pool1d.default", |cx, args| types(cx, args, 1, 1), |lw, args| largest(lw, args, 1)),
    lower("aten.max_pool2d.default", |cx, args| types(cx, args, 2, 1), |lw, args| largest(lw, args, 2)),
    lower("aten.max_pool3d.default", |cx, args| types(cx, args, 3, 1), |lw, args| largest(lw, args, 3)),
    lower(
        "aten.max_pool1d_with_indices.default",
        |cx, args| types(cx, args, 1, 2),
        |lw, args| largest(lw, args, 1),
    ),
    lower(
        "aten.max_pool2d_with_indices.default",
        |cx, args| types(cx, args, 2, 2),
        |lw, args| largest(lw, args, 2),
    ),
    lower(
        "aten.max_pool3d_with_indices.default",
        |cx, args| types(cx, args, 3, 2),
        |lw, args| largest(lw, args, 3),
    ),
    lower(
        "aten.adaptive_max_pool1d.default",
        |cx, args| types(cx, args, 1, 2),
        |lw, args| largest(lw, args, 1),
    ),
    lower(
        "aten.adaptive_max_pool2d.default",
        |cx, args| types(cx, args, 2, 2),
        |lw, args| largest(lw, args, 2),
    ),
    lower(
        "aten.adaptive_max_pool3d.default",
        |cx, args| types(cx, args, 3, 2),
        |lw, args| largest(lw, args, 3),
    ),
    lower("aten.avg_pool1d.default", |cx, args| types(cx, args, 1, 1), |lw, args| mean(lw, args, 1)),
    lower("aten.avg_pool2d.default", |cx, args| types(cx, args, 2, 1), |lw, args| mean(lw, args, 2)),
    lower("aten.avg_pool3d.default", |cx, args| types(cx, args, 3, 1), |lw, args| mean(lw, args, 3)),
    lower("aten.adaptive_avg_pool1d.default", |cx, args| types(cx, args, 1, 1), |lw, args| mean(lw, args, 1)),
    lower("aten.adaptive_avg_pool2d.default", |cx, args| types(cx, args, 2, 1), |lw, args| mean(lw, args, 2)),
    lower("aten.adaptive_avg_pool3d.default", |cx, args| types(cx, args, 3, 1), |lw, args| mean(lw, args, 3)),
    lower(
        "aten._adaptive_avg_pool2d.default",
        |cx, args| types(cx, args, 2, 1),
        |lw, args| mean(lw, args, 2),
    ),
    lower(
        "aten._adaptive_avg_pool3d.default",
        |cx, args| types(cx, args, 3, 1),
        |lw, args| mean(lw, args, 3),
    ),
    decompose("aten.max_unpool2d.default", |r| unpool(r, 2)),
    decompose("aten.max_unpool3d.default", |r| unpool(r, 3)),
];

/// Each element back to where pooling found it, zeros elsewhere: a scatter into flattened images.
fn unpool(r: &mut Rewriter<'_>, dims: usize) -> Result<Vec<Value>, OpError> {
    r.require(|cx, args| {
        args.of_types("indices", &[Dtype::I64])?;
        same_shape(cx, args, "indices", &args.tensor("self")?.ty.sizes)
    })?;
    let (x, indices) = (r.args().tensor("self")?, r.args().tensor("indices")?.value);
    let (ty, x, size) = (x.ty.clone(), x.value, r.args().ints_of("output_size", dims)?);
    let lead = ty.rank().checked_sub(dims).filter(|lead| (1..=2).contains(lead));
    let strides = if r.args().has("stride") { r.args().literals_of("stride", dims)? } else { Vec::new() };
    if strides.iter().any(|&stride| stride < 1) {
        return Err(r.args().bad("stride", "positive integers"));
    }
    let lead =
        lead.ok_or_else(|| r.args().bad("self", &format!("{} or {} dimensions", dims + 1, dims + 2)))?;
    let with = |rest: &[Expr]| Arg::ints(ty.sizes[..lead].iter().chain(rest).copied());
    let flat = with(&[size.iter().copied().product()]);
    let zeros = r.call("aten.full.default", [flat, Arg::Int(Expr::zero()), Arg::Dtype(ty.dtype)])?;
    let mut flatten = |v| r.call("aten.reshape.default", [Arg::Value(v), with(&[Expr::int(-1)])]);
    let (x, indices) = (flatten(x)?, flatten(indices)?);
    let last = Arg::Int(Expr::int(lead as i64));
    let args = [Arg::Value(zeros), last, Arg::Value(indices), Arg::Value(x)];
    let filled = r.call("aten.scatter.src", args)?;
    let images = r.call("aten.reshape.default", [Arg::Value(filled), with(&size)])?;
    match suggested_format(r.infer_cx().facts, &ty) {
        MemoryFormat::ChannelsLast if dims == 2 => {
            let format = Arg::MemoryFormat(MemoryFormat::ChannelsLast);
            Ok(vec![r.call("aten.clone.default", [Arg::Value(images), format])?])
        }
        _ => Ok(vec![images]),
    }
}

/// The windows along one dimension.
pub(crate) struct Windows {
    /// Elements of the operand.
    pub(crate) size: Expr,
    /// Number of windows.
    pub(crate) count: Expr,
    pub(crate) spacing: WindowSpacing,
}

/// How windows are spaced: where each begins and ends.
pub(crate) enum WindowSpacing {
    /// Every `stride` elements, `kernel` taps `dilation` apart, starting at `-padding`.
    Regular { kernel: Expr, stride: Expr, padding: i64, dilation: i64, may_overhang: bool },
    /// Window `i` of `n` is the part `floor(i * size / n) .. ceil((i + 1) * size / n)`.
    Parts,
}

impl Windows {
    /// Number of taps; of parts, the most that one can have.
    fn taps(&self) -> Expr {
        match self.spacing {
            WindowSpacing::Regular { kernel, .. } => kernel,
            WindowSpacing::Parts => self.size.ceildiv(self.count) + 1,
        }
    }

    /// First element of window `at`; may be negative.
    fn start(&self, at: Expr) -> Expr {
        match self.spacing {
            WindowSpacing::Regular { stride, padding, .. } => at * stride - padding,
            WindowSpacing::Parts => (at * self.size).floordiv(self.count),
        }
    }

    /// One past the last element of window `at`, padding at the end included.
    fn end(&self, at: Expr) -> Expr {
        match self.spacing {
            WindowSpacing::Regular { kernel, padding, may_overhang, .. } => {
                let end = self.start(at) + kernel;
                if may_overhang { end.min(self.size + padding) } else { end }
            }
            WindowSpacing::Parts => ((at + 1) * self.size).ceildiv(self.count),
        }
    }

    /// The first element of window `at` that is in the operand.
    fn first(&self, at: Expr) -> Expr {
        let start = self.start(at);
        match self.spacing {
            WindowSpacing::Regular { padding: 0, .. } | WindowSpacing::Parts => start,
            WindowSpacing::Regular { dilation, .. } => start + (-start).ceildiv(dilation).max(0) * dilation,
        }
    }

    /// The element at a tap of window `at`, and what must hold for it to exist.
    fn element(&self, at: Expr, tap: Expr) -> (Expr, Vec<Rel>) {
        let start = self.start(at);
        match self.spacing {
            WindowSpacing::Regular { padding, dilation, may_overhang, .. } => {
                let element = start + tap * dilation;
                let before = (padding > 0).then(|| Rel::ge(element, 0));
                let after = (padding > 0 || may_overhang).then(|| Rel::lt(element, self.size));
                (element, before.into_iter().chain(after).collect())
            }
            WindowSpacing::Parts => (start + tap, vec![Rel::lt(start + tap, self.end(at))]),
        }
    }

    /// Number of elements that count in the mean of window `at`.
    pub(crate) fn elements(&self, at: Expr, include_padding: bool) -> Expr {
        match self.spacing {
            WindowSpacing::Regular { kernel, padding: 0, may_overhang: false, .. } => kernel,
            WindowSpacing::Regular { padding: 0, .. } | WindowSpacing::Parts => self.end(at) - self.start(at),
            WindowSpacing::Regular { .. } if include_padding => self.end(at) - self.start(at),
            WindowSpacing::Regular { .. } => self.end(at).min(self.size) - self.start(at).max(0),
        }
    }
}

/// The windows along the last `dims` dimensions.
pub(crate) fn windows(cx: &mut InferCx<'_>, args: &Args<'_>, dims: usize) -> Result<Vec<Windows>, OpError> {
    let x = operand(args, dims)?.ty;
    let sizes = &x.sizes[x.rank() - dims..];
    if args.has("output_size") {
        let counts = args.ints_of("output_size", dims)?;
        not_negative(cx, args, &counts)?;
        not_empty(cx, args, x, dims)?;
        if args.op().contains("adaptive_avg") && !x.dtype.is_float() {
            return Err(args.invalid(format!("expected floating-point elements, found {x}")));
        }
        return Ok(sizes.iter().zip(counts).map(|(&size, count)| parts(cx, size, count)).collect());
    }
    not_empty(cx, args, x, dims)?;
    let kernel = args.literals_of("kernel_size", dims)?;
    let has_stride = args.has("stride") && !args.ints("stride")?.is_empty();
    let stride = if has_stride { args.literals_of("stride", dims)? } else { kernel.clone() };
    let padding = args.literals_of("padding", dims)?;
    let dilation = if args.has("dilation") { args.literals_of("dilation", dims)? } else { vec![1; dims] };
    let may_overhang = args.flag("ceil_mode")?;
    let mut windows = Vec::with_capacity(dims);
    for d in 0..dims {
        if kernel[d] < 1 || stride[d] < 1 || dilation[d] < 1 {
            return Err(args.invalid("kernel size, stride and dilation must be positive"));
        }
        let reach = (kernel[d] - 1) * dilation[d] + 1;
        if padding[d] < 0 || padding[d] > reach / 2 {
            return Err(args.bad("padding", "at most half of the kernel size"));
        }
        let (size, padded) = (sizes[d], sizes[d] + 2 * padding[d]);
        let room = padded - reach;
        let count = if may_overhang {
            // The last window starts inside of the operand or of the padding before it.
            (room.ceildiv(stride[d]) + 1).min((size + padding[d]).ceildiv(stride[d]))
        } else {
            room.floordiv(stride[d]) + 1
        };
        let outside = |_| args.invalid(format!("a window of {reach} elements does not fit in {size} of {x}"));
        cx.require(Rel::ge(if may_overhang { count } else { room + 1 }, 1), args.op()).map_err(outside)?;
        if args.op().starts_with("aten.avg_pool3d") {
            // Of all pools, this one does not count the padding.
            cx.require(Rel::ge(size, reach), args.op()).map_err(outside)?;
        }
        let (kernel, stride) = (Expr::int(kernel[d]), Expr::int(stride[d]));
        let spacing = WindowSpacing::Regular {
            kernel,
            stride,
            padding: padding[d],
            dilation: dilation[d],
            may_overhang,
        };
        windows.push(Windows { size, count: cx.simplify(count), spacing });
    }
    Ok(windows)
}

/// Pooled dimensions have elements, and so do channels but those of adaptive means.
fn not_empty(cx: &mut InferCx<'_>, args: &Args<'_>, x: &TensorType, dims: usize) -> Result<(), OpError> {
    let empty = |_| args.invalid(format!("expected elements along all dimensions but the first, found {x}"));
    let has_channels = !args.op().contains("adaptive_avg");
    let inner = &x.sizes[x.rank() - dims - usize::from(has_channels)..];
    inner.iter().try_for_each(|&size| cx.require(Rel::ge(size, 1), args.op())).map_err(empty)
}

/// Windows that cut a dimension into parts: regular ones when the sizes divide.
pub(crate) fn parts(cx: &InferCx<'_>, size: Expr, count: Expr) -> Windows {
    let divides = !count.is_zero() && cx.known(Rel::eq(size.modulo(count), 0)) == Some(true);
    let width = if divides { cx.simplify(size.floordiv(count)) } else { Expr::one() };
    let regular =
        WindowSpacing::Regular { kernel: width, stride: width, padding: 0, dilation: 1, may_overhang: false };
    Windows { size, count, spacing: if divides || count.is_zero() { regular } else { WindowSpacing::Parts } }
}

pub(crate) fn operand<'a>(args: &Args<'a>, dims: usize) -> Result<Tensor<'a>, OpError> {
    let x = args.tensor("self")?;
    match x.ty.rank().checked_sub(dims) {
        Some(1 | 2) => Ok(x),
        _ => Err(args.bad("self", &format!("{} or {} dimensions", dims + 1, dims + 2))),
    }
}

/// One type for values and, of two results, one for indices.
fn types(cx: &mut InferCx<'_>, args: &Args<'_>, dims: usize, results: usize) -> Result<Vec<Type>, OpError> {
    let x = operand(args, dims)?.ty;
    let mut sizes = x.sizes[..x.rank() - dims].to_vec();
    sizes.extend(windows(cx, args, dims)?.iter().map(|w| w.count));
    let strides = strides(cx, args, x, &sizes, dims);
    let ty = |dtype| Type::Tensor(TensorType::strided(dtype, sizes.clone(), strides.clone()));
    Ok([ty(x.dtype), ty(Dtype::I64)][..results].to_vec())
}

/// PyTorch's choices: 2-d pools keep channels last, 1-d pools are 2-d ones of height 1 but for the plain maximum, of
/// the 3-d pools only maxima keep it, without a batch too, and means of everything.
fn strides(cx: &InferCx<'_>, args: &Args<'_>, x: &TensorType, sizes: &[Expr], dims: usize) -> Vec<Expr> {
    let batched = x.rank() == dims + 2;
    let follow = |ty: &TensorType, sizes: &[Expr]| format_strides(suggested_format(cx.facts, ty), sizes);
    let is_one = |sizes: &[Expr]| sizes[sizes.len() - dims..].iter().all(|s| s.is_one());
    match (dims, args.op()) {
        (1, op) if batched && op != "aten.max_pool1d.default" => {
            let mut strides = follow(&with_height(x), &with_height_sizes(sizes));
            strides.remove(2);
            strides
        }
        (2, _) if batched => follow(x, sizes),
        (3, op) if op.starts_with("aten.max_pool3d") && batched => follow(x, sizes),
        (3, op) if op.starts_with("aten.max_pool3d") && is_channels_last(&with_batch(x)) => {
            format_strides(MemoryFormat::ChannelsLast3d, &[&[Expr::one()], sizes].concat())[1..].to_vec()
        }
        (3, "aten.adaptive_avg_pool3d.default") if batched && is_one(sizes) => follow(x, sizes),
        _ => contiguous_strides(sizes),
    }
}

fn with_height_sizes(sizes: &[Expr]) -> Vec<Expr> {
    [&sizes[..2], &[Expr::one()], &sizes[2..]].concat()
}

/// `[batch, channel, length]` as an image of height 1.
fn with_height(x: &TensorType) -> TensorType {
    let mut strides = x.strides.clone();
    strides.insert(2, x.sizes[2] * x.strides[2]);
    TensorType { sizes: with_height_sizes(&x.sizes), strides, ..x.clone() }
}

/// A batch of one.
fn with_batch(x: &TensorType) -> TensorType {
    let (sizes, strides) = (&x.sizes, &x.strides);
    TensorType {
        sizes: [&[Expr::one()], sizes.as_slice()].concat(),
        strides: [&[sizes[0] * strides[0]], strides.as_slice()].concat(),
        ..x.clone()
    }
}

/// The element of `x` at the taps of the windows at `positions`, `other` where there is none.
fn element(
    b: &mut Body<'_>,
    x: &ValueAccess,
    windows: &[Windows],
    lead: &[Expr],
    positions: &[Expr],
    taps: &[Expr],
    op: ReduceOp,
) -> Val {
    let (mut coords, mut guard) = (lead.to_vec(), Vec::new());
    for (d, window) in windows.iter().enumerate() {
        let (element, exists) = window.element(positions[d], taps[d]);
        coords.push(element);
        guard.extend(exists);
    }
    let v = b.load_if(x, &coords, guard, op.identity(x.dtype));
    b.cast(v, x.dtype.compute())
}

/// The largest element of each window, NaN above all, and its place in the operand's spatial dimensions flattened.
fn largest(lw: &mut Lower<'_>, args: &Args<'_>, dims: usize) -> Result<(), OpError> {
    let x = lw.access(operand(args, dims)?)?;
    let windows = windows(&mut lw.infer_cx(), args, dims)?;
    let (values, indices) = (lw.result(args, 0), lw.result(args, 1));
    let Some(shape) = values.as_ref().or(indices.as_ref()) else { return Ok(()) };
    let extents: Vec<Expr> = windows.iter().map(Windows::taps).collect();
    let is_reduced = extents.iter().any(|e| !e.is_one());
    lw.nest(&shape.sizes, |b, at| {
        let (lead, positions) = at.split_at(at.len() - dims);
        let taps = reduced_axes(b, &extents);
        let v = element(b, &x, &windows, lead, positions, &taps, ReduceOp::Max);
        if let Some(values) = &values {
            let best = if is_reduced { b.reduce(ReduceOp::Max, v) } else { v };
            b.store(values, at, best);
        }
        if let Some(indices) = &indices {
            let tap = is_reduced.then(|| b.arg_reduce(true, v));
            let place = place_of_tap(b, &windows, &extents, positions, tap);
            b.store(indices, at, place);
        }
        Ok(())
    })
}

/// The flat place in the operand of the tap at position `tap` of all taps flattened.
fn place_of_tap(
    b: &mut Body<'_>,
    windows: &[Windows],
    extents: &[Expr],
    at: &[Expr],
    tap: Option<Val>,
) -> Val {
    let flat = |coord: fn(&Windows, Expr) -> Expr| {
        windows.iter().zip(at).fold(Expr::zero(), |sum, (w, &at)| sum * w.size + coord(w, at))
    };
    let first = b.index(flat(Windows::first), Dtype::I64);
    let Some(tap) = tap else { return first };
    let mut place = b.index(flat(Windows::start), Dtype::I64);
    let (mut rest, mut row) = (tap, Expr::one());
    for (d, window) in windows.iter().enumerate().rev() {
        let extent = b.index(extents[d], Dtype::I64);
        let along = if d == 0 { rest } else { b.op(ScalarOp::Rem, &[rest, extent]) };
        let step = match window.spacing {
            WindowSpacing::Regular { dilation, .. } => row * dilation,
            WindowSpacing::Parts => row,
        };
        let offset = if step.is_one() {
            along
        } else {
            let step = b.index(step, Dtype::I64);
            b.mul(along, step)
        };
        place = b.add(place, offset);
        rest = b.div(rest, extent);
        row = row * window.size;
    }
    // Tap 0 wins only when it is in the operand or nothing is above minus infinity; then the first element counts.
    let zero = b.lit(tap, 0.0);
    let is_first = b.eq(tap, zero);
    b.select(is_first, first, place)
}

/// The mean of each window.
fn mean(lw: &mut Lower<'_>, args: &Args<'_>, dims: usize) -> Result<(), OpError> {
    let x = lw.access(operand(args, dims)?)?;
    let windows = windows(&mut lw.infer_cx(), args, dims)?;
    let divisor = args.opt_int("divisor_override")?;
    if divisor.is_some_and(Expr::is_zero) {
        return Err(args.bad("divisor_override", "an integer other than 0"));
    }
    let include_padding = args.flag("count_include_pad")?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let extents: Vec<Expr> = windows.iter().map(Windows::taps).collect();
    lw.nest(&out.sizes, |b, at| {
        let (lead, positions) = at.split_at(at.len() - dims);
        let taps = reduced_axes(b, &extents);
        let mut v = element(b, &x, &windows, lead, positions, &taps, ReduceOp::Sum);
        if extents.iter().any(|e| !e.is_one()) {
            v = b.reduce(ReduceOp::Sum, v);
        }
        let elements =
            || windows.iter().zip(positions).map(|(w, &at)| w.elements(at, include_padding)).product();
        let dtype = b.ty(v);
        let divisor = b.index(divisor.unwrap_or_else(elements), dtype);
        let v = b.div(v, divisor);
        b.store(&out, at, v);
        Ok(())
    })
}
