//! Decomposes the gradients of operators that take some of the elements: zeros, and the gradient where those elements are.

use crate::args::POSITIONS;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::same_shape;
use crate::ops::terms::{float, int};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.embedding_dense_backward.default", |r| embedding_backward(r, "grad_output")),
    decompose("aten.embedding_backward.default", |r| {
        if r.args().flag("sparse")? {
            return Err(r.args().unsupported("a sparse gradient"));
        }
        embedding_backward(r, "grad")
    }),
    decompose("aten.select_backward.default", |r| {
        let zeros = zeros_like_operand(r, "grad_output", "input_sizes")?;
        put(r, "aten.select_scatter.default", zeros, "grad_output", &["dim", "index"])
    }),
    decompose("aten.slice_backward.default", |r| {
        let zeros = zeros_like_operand(r, "grad_output", "input_sizes")?;
        put(r, "aten.slice_scatter.default", zeros, "grad_output", &["dim", "start", "end", "step"])
    }),
    decompose("aten.diagonal_backward.default", |r| {
        let zeros = zeros_like_operand(r, "grad_output", "input_sizes")?;
        put(r, "aten.diagonal_scatter.default", zeros, "grad_output", &["offset", "dim1", "dim2"])
    }),
    decompose("aten.index_select_backward.default", |r| {
        let sizes = r.args().ints("self_sizes")?;
        let dtype = r.args().tensor("grad")?.ty.dtype;
        let zeros = r.filled(sizes, 0.0, dtype.compute())?;
        let (grad, index) = (r.wide("grad")?, r.args().get("index").clone());
        let args = [Arg::Value(zeros), r.args().get("dim").clone(), index, Arg::Value(grad)];
        let sum = r.call("aten.index_add.default", args)?;
        Ok(vec![r.convert(sum, dtype)?])
    }),
    decompose("aten.value_selecting_reduction_backward.default", value_selecting_backward),
    decompose("aten.trace_backward.default", |r| {
        let zeros = zeros_like_operand(r, "grad", "sizes")?;
        let sizes = r.ty(zeros)?.sizes;
        let [rows, columns] = sizes[..] else { return Err(r.args().bad("sizes", "two sizes")) };
        let grad = r.args().tensor("grad")?.value;
        let grad = r.call("aten.expand.default", [Arg::Value(grad), Arg::ints([rows.min(columns)])])?;
        Ok(vec![r.apply("aten.diagonal_scatter.default", &[zeros, grad])?])
    }),
    decompose("aten.masked_scatter_backward.default", masked_scatter_backward),
];

/// Zeros of the sizes that an argument gives and the type of a gradient.
fn zeros_like_operand(r: &mut Rewriter<'_>, grad: &str, sizes: &str) -> Result<Value, OpError> {
    let (sizes, dtype) = (r.args().ints(sizes)?, r.args().tensor(grad)?.ty.dtype);
    r.filled(sizes, 0.0, dtype)
}

/// The gradient in a view of zeros that these arguments choose.
fn put(
    r: &mut Rewriter<'_>,
    op: &str,
    zeros: Value,
    grad: &str,
    names: &[&str],
) -> Result<Vec<Value>, OpError> {
    let mut args = vec![Arg::Value(zeros), r.args().get(grad).clone()];
    args.extend(names.iter().map(|name| r.args().get(name).clone()));
    Ok(vec![r.call(op, args)?])
}

/// Each row of the gradient added to that of its index; none of those of the padding index. By frequency, a row is divided by how
/// many have its index.
fn embedding_backward(r: &mut Rewriter<'_>, grad: &str) -> Result<Vec<Value>, OpError> {
    let args = r.args();
    let (ty, index) = (args.tensor(grad)?.ty.clone(), args.tensor("indices")?);
    let (index, index_sizes) = (index.value, index.ty.sizes.clone());
    let (rows, padding) = (args.int("num_weights")?, args.literal("padding_idx")?);
    let by_frequency = args.flag("scale_grad_by_freq")?;
    let width = *ty.sizes.last().ok_or_else(|| args.bad(grad, "at least one dimension"))?;
    r.require(|cx, args| {
        args.of_types("indices", POSITIONS)?;
        same_shape(cx, args, grad, &[&index_sizes[..], &[width]].concat())
    })?;
    let compute = ty.dtype.compute();
    let mut values = r.wide(grad)?;
    if padding >= 0 {
        let is_padding = r.call("aten.eq.Scalar", [Arg::Value(index), int(padding)])?;
        let is_padding = r.call("aten.unsqueeze.default", [Arg::Value(is_padding), int(-1)])?;
        let args = [Arg::Value(values), Arg::Value(is_padding), float(0.0)];
        values = r.call("aten.masked_fill.Scalar", args)?;
    }
    let places = Arg::List(vec![Arg::Value(index)]);
    if by_frequency {
        let (none, ones) = (r.filled([rows], 0.0, compute)?, r.filled(index_sizes, 1.0, compute)?);
        let args = [Arg::Value(none), places.clone(), Arg::Value(ones), Arg::Bool(true)];
        let counts = r.call("aten.index_put.default", args)?;
        let counts = r.call("aten.index.Tensor", [Arg::Value(counts), places.clone()])?;
        let counts = r.call("aten.unsqueeze.default", [Arg::Value(counts), int(-1)])?;
        values = r.div(values, counts)?;
    }
    let zeros = r.filled([rows, width], 0.0, compute)?;
    let args = [Arg::Value(zeros), places, Arg::Value(values), Arg::Bool(true)];
    let sum = r.call("aten.index_put.default", args)?;
    Ok(vec![r.convert(sum, ty.dtype)?])
}

/// The gradient at the places along a dimension that a reduction took its results from.
fn value_selecting_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let zeros = zeros_like_operand(r, "grad", "sizes")?;
    let rank = r.ty(zeros)?.sizes.len();
    let dim = r.args().dim("dim", rank)?;
    let (mut grad, mut indices) = (r.args().tensor("grad")?.value, r.args().tensor("indices")?.value);
    if !r.args().flag("keepdim")? && rank > 0 {
        grad = r.call("aten.unsqueeze.default", [Arg::Value(grad), int(dim as i64)])?;
        indices = r.call("aten.unsqueeze.default", [Arg::Value(indices), int(dim as i64)])?;
    }
    let args = [Arg::Value(zeros), int(dim as i64), Arg::Value(indices), Arg::Value(grad)];
    Ok(vec![r.call("aten.scatter.src", args)?])
}

/// The gradients at the places of the mask, one behind the other from the first element on.
fn masked_scatter_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (grad, mask, sizes) =
        (r.args().tensor("grad_output")?, r.args().tensor("mask")?, r.args().ints("sizes")?);
    let (grad, ty, mask) = (grad.value, grad.ty.clone(), mask.value);
    r.require(|_, args| args.of_types("mask", &[Dtype::Bool]))?;
    let (all, count): (Expr, Expr) = (ty.numel(), sizes.iter().copied().product());
    let mask = r.call("aten.expand.default", [Arg::Value(mask), Arg::ints(ty.sizes.iter().copied())])?;
    let (grad, mask) = (r.reshape(grad, [all])?, r.reshape(mask, [all])?);
    let places = r.call("aten.cumsum.default", [Arg::Value(mask), int(0)])?;
    let places = r.call("aten.sub.Scalar", [Arg::Value(places), int(1)])?;
    // What the mask leaves out goes behind the last element.
    let places = r.call("aten.where.ScalarOther", [Arg::Value(mask), Arg::Value(places), Arg::Int(count)])?;
    let zeros = r.filled([count + 1], 0.0, ty.dtype)?;
    let args = [Arg::Value(zeros), int(0), Arg::Value(places), Arg::Value(grad)];
    let whole = r.call("aten.scatter.src", args)?;
    let own = r.slice(whole, 0, Expr::zero(), count)?;
    Ok(vec![r.reshape(own, sizes)?])
}
