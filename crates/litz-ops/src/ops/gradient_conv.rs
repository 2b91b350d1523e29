//! Decomposes the gradients of convolutions into convolutions: of operands by the transposed one, of weights by one whose batch
//! and channels have changed places.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::{same_shape, suggested_format};
use crate::ops::conv;
use crate::ops::terms::int;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Type, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[decompose("aten.convolution_backward.default", convolution_backward)];

/// A convolution and what its result was multiplied with.
struct Backward {
    grad: Value,
    input: Value,
    weight: Value,
    input_ty: TensorType,
    weight_ty: TensorType,
    stride: Vec<i64>,
    padding: Vec<Expr>,
    dilation: Vec<i64>,
    transposed: bool,
    groups: i64,
}

fn convolution_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.require(|cx, args| {
        args.of_one_type(&["grad_output", "input", "weight"])?;
        for ty in conv::result_type(cx, args)? {
            match ty {
                Type::Tensor(ty) => same_shape(cx, args, "grad_output", &ty.sizes)?,
                Type::Int(_) | Type::Float | Type::Bool => {}
            }
        }
        Ok(())
    })?;
    let [for_input, for_weight, for_bias] = r.asked()?;
    let args = r.args();
    let (grad, x, weight) = (args.tensor("grad_output")?, args.tensor("input")?, args.tensor("weight")?);
    let dims = weight.ty.rank() - 2;
    let conv = Backward {
        grad: grad.value,
        input: x.value,
        weight: weight.value,
        input_ty: x.ty.clone(),
        weight_ty: weight.ty.clone(),
        stride: args.literals_of("stride", dims)?,
        padding: args.ints_of("padding", dims)?,
        dilation: args.literals_of("dilation", dims)?,
        transposed: args.flag("transposed")?,
        groups: args.literal("groups")?,
    };
    let dtype = conv.input_ty.dtype;
    let format = result_format(r, &conv);
    let mut results = Vec::new();
    results.push(match for_input {
        true => {
            let gradient = of_input(r, &conv)?;
            r.in_format(gradient, format)?
        }
        false => r.nothing(dtype)?,
    });
    results.push(match for_weight {
        true => {
            let gradient = of_weight(r, &conv)?;
            r.in_format(gradient, format)?
        }
        false => r.nothing(dtype)?,
    });
    results.push(match for_bias {
        true => {
            let others = (0..dims + 2).filter(|&d| d != 1).map(|d| Expr::int(d as i64));
            r.call("aten.sum.dim_IntList", [Arg::Value(conv.grad), Arg::ints(others)])?
        }
        false => r.nothing(dtype)?,
    });
    Ok(results)
}

/// Channels last when operand or weight is, whatever the gradient's layout. PyTorch has no such kernel for f64 in three
/// dimensions.
fn result_format(r: &mut Rewriter<'_>, conv: &Backward) -> MemoryFormat {
    if conv.stride.len() == 3 && conv.input_ty.dtype == Dtype::F64 {
        return MemoryFormat::Contiguous;
    }
    let facts = r.infer_cx().facts;
    let mut formats = [&conv.input_ty, &conv.weight_ty].into_iter().map(|ty| suggested_format(facts, ty));
    formats.find(|&format| format != MemoryFormat::Contiguous).unwrap_or(MemoryFormat::Contiguous)
}

fn ints(items: &[i64]) -> Arg {
    Arg::ints(items.iter().map(|&i| Expr::int(i)))
}

/// The sums over all places that an element of the operand went to.
fn of_input(r: &mut Rewriter<'_>, conv: &Backward) -> Result<Value, OpError> {
    let dims = conv.stride.len();
    let grad_sizes = r.ty(conv.grad)?.sizes;
    let mut extra = Vec::new();
    for d in 0..dims {
        let (size, kernel) = (conv.input_ty.sizes[2 + d], conv.weight_ty.sizes[2 + d]);
        // Elements behind the last window got no weight.
        let reached = (grad_sizes[2 + d] - 1) * conv.stride[d] - conv.padding[d] * 2
            + (kernel - 1) * conv.dilation[d]
            + 1;
        let left = r.infer_cx().simplify(size - reached);
        let most = conv.stride[d] - 1;
        // What is too many is cut off below.
        extra.push(left.as_int().filter(|left| (0..=most).contains(left)).unwrap_or(most));
    }
    let extra = if conv.transposed { vec![0; dims] } else { extra };
    let args = [
        Arg::Value(conv.grad),
        Arg::Value(conv.weight),
        Arg::None,
        ints(&conv.stride),
        Arg::ints(conv.padding.iter().copied()),
        ints(&conv.dilation),
        Arg::Bool(!conv.transposed),
        ints(&extra),
        int(conv.groups),
    ];
    let gradient = r.call("aten.convolution.default", args)?;
    cut(r, gradient, &conv.input_ty.sizes)
}

/// The part of `x` that begins at its first element and has these spatial sizes.
fn cut(r: &mut Rewriter<'_>, mut x: Value, sizes: &[Expr]) -> Result<Value, OpError> {
    for (d, &size) in sizes.iter().enumerate().skip(2) {
        x = r.slice(x, d, Expr::zero(), size)?;
    }
    Ok(x)
}

/// `weight[o, i, k]` met `grad[n, o, p]` where the operand was `x[n, i, p * stride + k * dilation - padding]`: a convolution of
/// `x` with `grad`, where channels are its batch, the batch its channels, and stride and dilation have changed places. Of a
/// transposed convolution, operand and gradient have.
fn of_weight(r: &mut Rewriter<'_>, conv: &Backward) -> Result<Value, OpError> {
    let sizes = &conv.weight_ty.sizes;
    if conv.input_ty.sizes[0].is_zero() {
        return r.filled(sizes.iter().copied(), 0.0, conv.weight_ty.dtype);
    }
    let (spread, kernel) = if conv.transposed { (conv.grad, conv.input) } else { (conv.input, conv.grad) };
    let spread = by_group(r, spread, conv.groups)?;
    let kernel = r.transpose(kernel, 0, 1)?;
    let args = [
        Arg::Value(spread),
        Arg::Value(kernel),
        Arg::None,
        ints(&conv.dilation),
        Arg::ints(conv.padding.iter().copied()),
        ints(&conv.stride),
        Arg::Bool(false),
        ints(&vec![0; conv.stride.len()]),
        int(conv.groups),
    ];
    let gradient = r.call("aten.convolution.default", args)?;
    let gradient = r.transpose(gradient, 0, 1)?;
    // Where windows leave elements over, there is room for more taps.
    cut(r, gradient, sizes)
}

/// `[batch, group * channel, ..]` as `[channel, group * batch, ..]`.
fn by_group(r: &mut Rewriter<'_>, x: Value, groups: i64) -> Result<Value, OpError> {
    if groups == 1 {
        return r.transpose(x, 0, 1);
    }
    let sizes = r.ty(x)?.sizes;
    let (batch, within, spatial) = (sizes[0], sizes[1].floordiv(groups), &sizes[2..]);
    let split = [&[batch, Expr::int(groups), within], spatial].concat();
    let order: Vec<usize> = [2, 1, 0].into_iter().chain(3..split.len()).collect();
    let x = r.reshape(x, split)?;
    let x = r.permute(x, &order)?;
    r.reshape(x, [&[within, batch * groups], spatial].concat())
}
