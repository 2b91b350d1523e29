//! Lowers the gradients of pooling: each element of the operand gathers from the windows that it is in.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, not_negative, same_shape, suggested_format};
use crate::lower::Lower;
use crate::ops::pool::{WindowSpacing, Windows, operand, parts, windows};
use crate::ops::window::reduced_axes;
use litz_ir::graph::{TensorType, Type, contiguous_strides};
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower(
        "aten.max_pool2d_with_indices_backward.default",
        |cx, args| types(cx, args, 2),
        |lw, args| largest(lw, args, 2),
    ),
    lower(
        "aten.max_pool3d_with_indices_backward.default",
        |cx, args| types(cx, args, 3),
        |lw, args| largest(lw, args, 3),
    ),
    lower(
        "aten.adaptive_max_pool2d_backward.default",
        |cx, args| types(cx, args, 2),
        |lw, args| largest(lw, args, 2),
    ),
    lower(
        "aten.adaptive_max_pool3d_backward.default",
        |cx, args| types(cx, args, 3),
        |lw, args| largest(lw, args, 3),
    ),
    lower("aten.avg_pool2d_backward.default", |cx, args| types(cx, args, 2), |lw, args| mean(lw, args, 2)),
    lower("aten.avg_pool3d_backward.default", |cx, args| types(cx, args, 3), |lw, args| mean(lw, args, 3)),
    lower(
        "aten._adaptive_avg_pool2d_backward.default",
        |cx, args| types(cx, args, 2),
        |lw, args| mean(lw, args, 2),
    ),
    lower(
        "aten._adaptive_avg_pool3d_backward.default",
        |cx, args| types(cx, args, 3),
        |lw, args| mean(lw, args, 3),
    ),
    lower("aten.unfold_backward.default", unfold_type, unfold),
];

/// The windows of the pool; adaptive ones have as many as the gradient has elements.
fn pool_windows(cx: &mut InferCx<'_>, args: &Args<'_>, dims: usize) -> Result<Vec<Windows>, OpError> {
    if !args.op().contains("adaptive") {
        return windows(cx, args, dims);
    }
    let (x, grad) = (operand(args, dims)?.ty, args.tensor("grad_output")?.ty);
    if grad.rank() != x.rank() {
        return Err(args.bad("grad_output", &format!("{} dimensions", x.rank())));
    }
    let lead = x.rank() - dims;
    let empty = |_| args.invalid(format!("expected elements along all pooled dimensions, found {x}"));
    x.sizes[lead..].iter().try_for_each(|&size| cx.require(Rel::ge(size, 1), args.op())).map_err(empty)?;
    not_negative(cx, args, &grad.sizes)?;
    Ok(x.sizes[lead..]
        .iter()
        .zip(&grad.sizes[lead..])
        .map(|(&size, &count)| parts(cx, size, count))
        .collect())
}

/// The operand's, in its format; of the gradients of means in three dimensions contiguous.
fn types(cx: &mut InferCx<'_>, args: &Args<'_>, dims: usize) -> Result<Vec<Type>, OpError> {
    let x = operand(args, dims)?.ty;
    let windows = pool_windows(cx, args, dims)?;
    let counts: Vec<Expr> =
        x.sizes[..x.rank() - dims].iter().copied().chain(windows.iter().map(|w| w.count)).collect();
    args.of_types("grad_output", &[x.dtype])?;
    same_shape(cx, args, "grad_output", &counts)?;
    args.of_types("indices", &[Dtype::I64])?;
    same_shape(cx, args, "indices", &counts)?;
    let keeps = dims == 2 || args.has("indices");
    let strides = match keeps {
        true => format_strides(suggested_format(cx.facts, x), &x.sizes),
        false => contiguous_strides(&x.sizes),
    };
    one(TensorType::strided(x.dtype, x.sizes.clone(), strides))
}

impl Windows {
    /// The most windows that an element is in.
    fn covering(&self) -> Expr {
        match self.spacing {
            WindowSpacing::Regular { kernel, stride, dilation, .. } => {
                ((kernel - 1) * dilation + 1).ceildiv(stride)
            }
            WindowSpacing::Parts => self.count.ceildiv(self.size) + 1,
        }
    }

    /// The `turn`-th of the windows that may have element `at`, in ascending order, and what must hold for it to. With a
    /// dilation, windows that step over it are among them.
    fn around(&self, at: Expr, turn: Expr) -> (Expr, Vec<Rel>) {
        match self.spacing {
            WindowSpacing::Regular { kernel, stride, padding, .. } => {
                let window = (at + padding).floordiv(stride) - (self.covering() - 1) + turn;
                let reaches = Rel::lt(at + padding - window * stride, kernel);
                let is_plain = self.spacing.is_undilated();
                let reaches = is_plain.then_some(reaches);
                (
                    window,
                    [Rel::ge(window, 0), Rel::lt(window, self.count)].into_iter().chain(reaches).collect(),
                )
            }
            WindowSpacing::Parts => {
                let window = (at * self.count).floordiv(self.size) + turn;
                let begins = Rel::lt(window, ((at + 1) * self.count).ceildiv(self.size));
                (window, vec![Rel::lt(window, self.count), begins])
            }
        }
    }
}

impl WindowSpacing {
    fn is_undilated(&self) -> bool {
        match self {
            WindowSpacing::Regular { dilation, .. } => *dilation == 1,
            WindowSpacing::Parts => true,
        }
    }
}

/// The coordinates of the windows around an element, one of each dimension by the reduced axes, and what must hold for them
/// to have it.
fn windows_around(
    b: &mut Body<'_>,
    windows: &[Windows],
    lead: &[Expr],
    places: &[Expr],
) -> (Vec<Expr>, Vec<Rel>) {
    let turns = reduced_axes(b, &windows.iter().map(Windows::covering).collect::<Vec<_>>());
    let (mut coords, mut guard) = (lead.to_vec(), Vec::new());
    for (d, window) in windows.iter().enumerate() {
        let (coord, exists) = window.around(places[d], turns[d]);
        coords.push(coord);
        guard.extend(exists);
    }
    (coords, guard)
}

/// The gradients of those windows that took their maximum from the element.
fn largest(lw: &mut Lower<'_>, args: &Args<'_>, dims: usize) -> Result<(), OpError> {
    let windows = pool_windows(&mut lw.infer_cx(), args, dims)?;
    let (grad, indices) = (lw.access(args.tensor("grad_output")?)?, lw.access(args.tensor("indices")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let (lead, places) = at.split_at(at.len() - dims);
        let (coords, guard) = windows_around(b, &windows, lead, places);
        let flat = windows.iter().zip(places).fold(Expr::zero(), |sum, (w, &place)| sum * w.size + place);
        let taken = b.load_if(&indices, &coords, guard.clone(), Scalar::Int(-1));
        let own = b.index(flat, Dtype::I64);
        let v = b.load_if(&grad, &coords, guard, Scalar::zero(grad.dtype));
        let v = b.cast(v, grad.dtype.compute());
        let (is_own, zero) = (b.eq(taken, own), b.lit(v, 0.0));
        let v = b.select(is_own, v, zero);
        let sum = b.reduce(ReduceOp::Sum, v);
        b.store(&out, at, sum);
        Ok(())
    })
}

/// The sum over windows of the element's share of their gradient.
fn mean(lw: &mut Lower<'_>, args: &Args<'_>, dims: usize) -> Result<(), OpError> {
    let windows = pool_windows(&mut lw.infer_cx(), args, dims)?;
    let grad = lw.access(args.tensor("grad_output")?)?;
    let divisor = args.opt_int("divisor_override")?;
    if divisor.is_some_and(Expr::is_zero) {
        return Err(args.bad("divisor_override", "an integer other than 0"));
    }
    let include_padding = args.flag("count_include_pad")?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = grad.dtype.compute();
    let shares = lw.temp("shares", compute, &grad.sizes);
    lw.nest(&grad.sizes, |b, at| {
        let elements = || {
            windows
                .iter()
                .zip(&at[at.len() - dims..])
                .map(|(w, &at)| w.elements(at, include_padding))
                .product()
        };
        let v = b.read(&grad, at);
        let divisor = b.index(divisor.unwrap_or_else(elements), compute);
        let share = b.div(v, divisor);
        b.store(&shares, at, share);
        Ok(())
    })?;
    lw.nest(&out.sizes, |b, at| {
        let (lead, places) = at.split_at(at.len() - dims);
        let (coords, guard) = windows_around(b, &windows, lead, places);
        let v = b.load_if(&shares, &coords, guard, Scalar::zero(compute));
        let sum = b.reduce(ReduceOp::Sum, v);
        b.store(&out, at, sum);
        Ok(())
    })
}

// Unfolding: windows of one dimension, whose elements are the last dimension of the gradient.

fn unfold_windows(args: &Args<'_>) -> Result<(Vec<Expr>, usize, Windows), OpError> {
    let sizes = args.ints("input_sizes")?;
    let dim = args.dim("dim", sizes.len())?;
    let (kernel, stride) = (args.literal("size")?, args.literal("step")?);
    if kernel < 1 || stride < 1 || sizes.is_empty() {
        return Err(args.unsupported(&format!("windows of {kernel} elements every {stride} of {sizes:?}")));
    }
    let size = sizes[dim];
    let (kernel, step) = (Expr::int(kernel), Expr::int(stride));
    let count = (size - kernel).floordiv(step) + 1;
    let spacing =
        WindowSpacing::Regular { kernel, stride: step, padding: 0, dilation: 1, may_overhang: false };
    Ok((sizes, dim, Windows { size, count, spacing }))
}

fn unfold_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (sizes, dim, windows) = unfold_windows(args)?;
    not_negative(cx, args, &sizes)?;
    let WindowSpacing::Regular { kernel, .. } = windows.spacing else {
        return Err(args.invalid("expected regular windows"));
    };
    let mut expected = [&sizes[..], &[kernel]].concat();
    expected[dim] = cx.simplify(windows.count);
    same_shape(cx, args, "grad_in", &expected)?;
    one(TensorType::contiguous(args.tensor("grad_in")?.ty.dtype, sizes))
}

fn unfold(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (_, dim, windows) = unfold_windows(args)?;
    let grad = lw.access(args.tensor("grad_in")?)?;
    let WindowSpacing::Regular { stride, .. } = windows.spacing else {
        return Err(args.invalid("expected regular windows"));
    };
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let turn = reduced_axes(b, &[windows.covering()])[0];
        let (window, guard) = windows.around(at[dim], turn);
        let mut coords = [at, &[at[dim] - window * stride]].concat();
        coords[dim] = window;
        let v = b.load_if(&grad, &coords, guard, Scalar::zero(grad.dtype));
        let v = b.cast(v, grad.dtype.compute());
        let sum = b.reduce(ReduceOp::Sum, v);
        b.store(&out, at, sum);
        Ok(())
    })
}
