//! Decomposes the gradients of norms, and the batch norm of training, which returns running statistics.

use crate::args::Args;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{same_shape, same_sizes, suggested_format, vector_of};
use crate::ops::norm::{IN_TRAINING, RUNNING};
use crate::ops::reduce::kept_sizes;
use crate::ops::terms::{dims_arg, int};
use crate::traits::{Holds, Updates};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Value};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] =
    &[
        decompose("aten.native_layer_norm_backward.default", layer_norm_backward),
        decompose("aten.native_group_norm_backward.default", group_norm_backward),
        decompose("aten.native_batch_norm_backward.default", |r| {
            let train = r.args().flag("train")?;
            batch_norm_backward(r, train, "save_invstd")
        }),
        decompose("aten.batch_norm_backward.default", |r| {
            let train = r.args().flag("update")?;
            batch_norm_backward(r, train, "save_var")
        }),
        decompose("aten.native_batch_norm.default", |r| match r.args().flag("training")? {
            true if r.args().has("running_mean") => first_results(r, IN_TRAINING.twin),
            true => {
                let names = ["input", "weight", "bias", "training", "momentum", "eps"];
                let args = names.map(|name| r.args().get(name).clone());
                results(r, "aten._native_batch_norm_legit.no_stats", args)
            }
            false => batch_norm_evaluation(r),
        })
        .updates(IN_TRAINING),
        // What writes has its twin's results, but for the new contents.
        decompose("aten._native_batch_norm_legit.default", |r| first_results(r, IN_TRAINING.twin))
            .updates(Updates { when: Holds::Always, ..IN_TRAINING }),
        decompose("aten._batch_norm_with_update.default", |r| first_results(r, WITH_RESERVE))
            .updates(Updates { twin: WITH_RESERVE, args: RUNNING, when: Holds::Always }),
        decompose("litz.instance_norm.default", instance_norm_training),
        decompose("aten._native_batch_norm_legit_functional.default", |r| {
            if r.args().flag("training")? {
                return batch_norm_training(r);
            }
            let mut results = batch_norm_evaluation(r)?;
            results.extend([r.args().tensor("running_mean")?.value, r.args().tensor("running_var")?.value]);
            Ok(results)
        }),
        decompose("aten._batch_norm_with_update_functional.default", |r| {
            let mut results = batch_norm_training(r)?;
            let reserve = r.nothing(Dtype::U8)?;
            results.insert(3, reserve);
            Ok(results)
        }),
        decompose("aten._batch_norm_no_update.default", |r| {
            let mut results = batch_norm_evaluation(r)?;
            results.push(r.nothing(Dtype::U8)?);
            Ok(results)
        }),
    ];

/// What returns new running statistics, and room that another kernel would keep something in.
const WITH_RESERVE: &str = "aten._batch_norm_with_update_functional.default";

/// A norm and the gradient of its result, all in the compute type, statistics and weight so that they broadcast.
struct Norm {
    grad: Value,
    /// `(x - mean) * rstd`
    normalized: Value,
    rstd: Value,
    weight: Option<Value>,
    /// Dimensions that share statistics.
    dims: Vec<usize>,
}

impl Norm {
    fn new(
        r: &mut Rewriter<'_>,
        [grad, x, mean, rstd]: [Value; 4],
        weight: Option<Value>,
        dims: Vec<usize>,
    ) -> Result<Norm, OpError> {
        let compute = r.ty(x)?.dtype.compute();
        let (grad, x) = (r.convert(grad, compute)?, r.convert(x, compute)?);
        let (mean, rstd) = (r.convert(mean, compute)?, r.convert(rstd, compute)?);
        let weight = weight.map(|weight| r.convert(weight, compute)).transpose()?;
        let distance = r.sub(x, mean)?;
        let normalized = r.mul(distance, rstd)?;
        Ok(Norm { grad, normalized, rstd, weight, dims })
    }

    /// With `g = grad * weight`, `rstd * (g - mean(g) - normalized * mean(g * normalized))`.
    fn of_input(&self, r: &mut Rewriter<'_>) -> Result<Value, OpError> {
        let grad = r.mul_opt(self.grad, self.weight)?;
        let products = r.mul(grad, self.normalized)?;
        let (shift, slope) = (r.mean(grad, &self.dims)?, r.mean(products, &self.dims)?);
        let along = r.mul(self.normalized, slope)?;
        let rest = r.sub(grad, shift)?;
        let rest = r.sub(rest, along)?;
        r.mul(rest, self.rstd)
    }

    /// What [`Norm::of_input`] is where `count` elements share each statistic and the weight: the two sums are the gradients
    /// of weight and bias then, so that one pass over memory gives all four.
    fn of_channels(&self, r: &mut Rewriter<'_>, count: Expr) -> Result<Value, OpError> {
        let (shift, slope) = (self.of_bias(r, &self.dims)?, self.of_weight(r, &self.dims)?);
        let (shift, slope) = (divided_by(r, shift, count)?, divided_by(r, slope, count)?);
        let along = r.mul(self.normalized, slope)?;
        let rest = r.sub(self.grad, shift)?;
        let rest = r.sub(rest, along)?;
        let scale = r.mul_opt(self.rstd, self.weight)?;
        r.mul(rest, scale)
    }

    /// The sum of `grad * normalized` over dimensions.
    fn of_weight(&self, r: &mut Rewriter<'_>, dims: &[usize]) -> Result<Value, OpError> {
        let products = r.mul(self.grad, self.normalized)?;
        r.sum(products, dims)
    }

    /// The sum of the gradient over dimensions.
    fn of_bias(&self, r: &mut Rewriter<'_>, dims: &[usize]) -> Result<Value, OpError> {
        r.sum(self.grad, dims)
    }
}

/// The gradients of weight and bias have the type of the weight, else that of the statistics.
fn parameter_dtype(args: &Args<'_>, statistics: &str) -> Result<Dtype, OpError> {
    match args.opt_tensor("weight")? {
        Some(weight) => Ok(weight.ty.dtype),
        None => Ok(args.opt_tensor(statistics)?.map_or(args.tensor("input")?.ty.dtype, |t| t.ty.dtype)),
    }
}

/// The three gradients, those that nothing asked for without elements. `sizes` are the parameters', which `across` sums over.
fn gradients(
    r: &mut Rewriter<'_>,
    norm: &Norm,
    for_input: Option<Value>,
    (sizes, across): (&[Expr], &[usize]),
    dtype: Dtype,
) -> Result<Vec<Value>, OpError> {
    let [_, for_weight, for_bias] = r.asked()?;
    let x = r.args().tensor("input")?.ty.dtype;
    let mut results = vec![match for_input {
        Some(gradient) => gradient,
        None => r.nothing(x)?,
    }];
    for (asked, of) in [
        (for_weight, Norm::of_weight as fn(&Norm, &mut Rewriter<'_>, &[usize]) -> _),
        (for_bias, Norm::of_bias),
    ] {
        results.push(match asked {
            true => {
                let sum: Result<Value, OpError> = of(norm, r, across);
                let sum = r.reshape(sum?, sizes.iter().copied())?;
                r.convert(sum, dtype)?
            }
            false => r.nothing(x)?,
        });
    }
    Ok(results)
}

fn layer_norm_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (ty, normalized) = (r.args().tensor("input")?.ty.clone(), r.args().ints("normalized_shape")?);
    let first = ty.rank().checked_sub(normalized.len()).filter(|_| !normalized.is_empty());
    let first = first.ok_or_else(|| r.args().bad("normalized_shape", "some of the dimensions"))?;
    let dims: Vec<usize> = (first..ty.rank()).collect();
    r.require(|cx, args| {
        same_sizes(cx, args, "the last dimensions of `input`", &ty.sizes[first..], &normalized)?;
        same_shape(cx, args, "grad_out", &ty.sizes)?;
        args.of_types("grad_out", &[ty.dtype])?;
        let rows = kept_sizes(&ty.sizes, &dims);
        ["mean", "rstd"].iter().try_for_each(|name| same_shape(cx, args, name, &rows))?;
        ["weight", "bias"].iter().try_for_each(|name| same_shape(cx, args, name, &normalized))
    })?;
    let args = r.args();
    let operands = ["grad_out", "input", "mean", "rstd"].map(|name| args.tensor(name).map(|t| t.value));
    let [grad, x, mean, rstd] = operands;
    let (operands, weight) = ([grad?, x?, mean?, rstd?], args.opt_tensor("weight")?.map(|t| t.value));
    let dtype = parameter_dtype(&args, "mean")?;
    let [for_input, ..] = r.asked::<3>()?;
    let norm = Norm::new(r, operands, weight, dims)?;
    let for_input = match for_input {
        true => {
            let gradient = norm.of_input(r)?;
            let gradient = r.convert(gradient, ty.dtype)?;
            Some(r.in_format(gradient, MemoryFormat::Contiguous)?)
        }
        false => None,
    };
    let across: Vec<usize> = (0..first).collect();
    gradients(r, &norm, for_input, (&normalized, &across), dtype)
}

/// The operand seen as `[batch, group, channel in group, rest]`.
fn group_norm_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let ty = r.args().tensor("input")?.ty.clone();
    let (counts, groups) =
        ([r.args().int("N")?, r.args().int("C")?, r.args().int("HxW")?], r.args().literal("group")?);
    let [batch, channels, rest] = counts;
    if ty.rank() < 2 || groups < 1 {
        return Err(r.args().invalid(format!("expected groups of channels, found {groups} of {ty}")));
    }
    r.require(|cx, args| {
        let own = [ty.sizes[0], ty.sizes[1], ty.sizes[2..].iter().copied().product()];
        same_sizes(cx, args, "arguments `N`, `C`, `HxW`", &counts, &own)?;
        same_shape(cx, args, "grad_out", &ty.sizes)?;
        args.of_types("grad_out", &[ty.dtype])?;
        let uneven = |_| args.invalid(format!("{channels} channels are not {groups} groups of equal size"));
        cx.require(Rel::eq(channels.modulo(groups), 0), args.op()).map_err(uneven)?;
        let rows = [batch, Expr::int(groups)];
        ["mean", "rstd"].iter().try_for_each(|name| same_shape(cx, args, name, &rows))?;
        vector_of(cx, args, "weight", channels)
    })?;
    let args = r.args();
    let names = ["grad_out", "input", "mean", "rstd"].map(|name| args.tensor(name).map(|t| t.value));
    let [grad, x, mean, rstd] = names;
    let ([grad, x, mean, rstd], weight) =
        ([grad?, x?, mean?, rstd?], args.opt_tensor("weight")?.map(|t| t.value));
    let dtype = parameter_dtype(&args, "mean")?;
    let [for_input, ..] = r.asked::<3>()?;
    let (groups, within) = (Expr::int(groups), channels.floordiv(groups));
    let (one, whole) = (Expr::one(), [batch, groups, within, rest]);
    let (grad, x) = (r.reshape(grad, whole)?, r.reshape(x, whole)?);
    let rows = [batch, groups, one, one];
    let (mean, rstd) = (r.reshape(mean, rows)?, r.reshape(rstd, rows)?);
    let weight = weight.map(|weight| r.reshape(weight, [one, groups, within, one])).transpose()?;
    let norm = Norm::new(r, [grad, x, mean, rstd], weight, vec![2, 3])?;
    let for_input = match for_input {
        true => {
            let gradient = norm.of_input(r)?;
            let gradient = r.reshape(gradient, ty.sizes.iter().copied())?;
            Some(finished(r, gradient, &ty)?)
        }
        false => None,
    };
    gradients(r, &norm, for_input, (&[channels], &[0, 3]), dtype)
}

/// In the type and format of an operand.
fn finished(r: &mut Rewriter<'_>, x: Value, like: &TensorType) -> Result<Value, OpError> {
    let x = r.convert(x, like.dtype)?;
    let format = suggested_format(r.infer_cx().facts, like);
    r.in_format(x, format)
}

// Batch norm: statistics of dimension 1.

/// All dimensions but the one of channels, and the sizes with which a vector of them broadcasts.
fn channel_dims(ty: &TensorType) -> (Vec<usize>, Vec<Expr>) {
    let dims: Vec<usize> = (0..ty.rank()).filter(|&d| d != 1).collect();
    let sizes = kept_sizes(&ty.sizes, &dims);
    (dims, sizes)
}

/// How many elements dimensions hold.
fn elements(ty: &TensorType, dims: &[usize]) -> Expr {
    dims.iter().map(|&d| ty.sizes[d]).product()
}

/// Parameters and statistics have one element for each channel, as far as they are given and have elements.
fn channel_vectors(cx: &mut InferCx<'_>, args: &Args<'_>, names: &[&str]) -> Result<(), OpError> {
    let x = args.tensor("input")?.ty;
    let &[_, channels, ..] = x.sizes.as_slice() else {
        return Err(args.invalid(format!("expected at least two dimensions, found {x}")));
    };
    names.iter().try_for_each(|name| vector_of(cx, args, name, channels))
}

fn batch_norm_backward(r: &mut Rewriter<'_>, train: bool, inverse: &str) -> Result<Vec<Value>, OpError> {
    let ty = r.args().tensor("input")?.ty.clone();
    r.require(|cx, args| {
        same_shape(cx, args, "grad_out", &ty.sizes)?;
        args.of_types("grad_out", &[ty.dtype])?;
        let statistics = if train { ["save_mean", inverse] } else { ["running_mean", "running_var"] };
        channel_vectors(cx, args, &["weight", statistics[0], statistics[1]])
    })?;
    let args = r.args();
    let (grad, x) = (args.tensor("grad_out")?.value, args.tensor("input")?.value);
    let weight = args.opt_tensor("weight")?.map(|t| t.value);
    let dtype = parameter_dtype(&args, if train { "save_mean" } else { "running_mean" })?;
    let [for_input, ..] = r.asked::<3>()?;
    let (dims, shape) = channel_dims(&ty);
    let (mean, rstd) = if train {
        (r.args().tensor("save_mean")?.value, r.args().tensor(inverse)?.value)
    } else {
        let eps = r.args().float("eps")?;
        let var = r.args().tensor("running_var")?.value;
        let var = r.convert(var, ty.dtype.compute())?;
        let var = r.scalar("aten.add.Scalar", var, eps)?;
        (r.args().tensor("running_mean")?.value, r.apply("aten.rsqrt.default", &[var])?)
    };
    let mean = r.reshape(mean, shape.iter().copied())?;
    let rstd = r.reshape(rstd, shape.iter().copied())?;
    let weight = weight.map(|weight| r.reshape(weight, shape.iter().copied())).transpose()?;
    let norm = Norm::new(r, [grad, x, mean, rstd], weight, dims.clone())?;
    let for_input = match for_input {
        true if train => Some(norm.of_channels(r, elements(&ty, &dims))?),
        true => {
            let scale = r.mul_opt(norm.rstd, norm.weight)?;
            Some(r.mul(norm.grad, scale)?)
        }
        false => None,
    };
    let for_input = for_input.map(|gradient| finished(r, gradient, &ty)).transpose()?;
    gradients(r, &norm, for_input, (&[ty.sizes[1]], &dims), dtype)
}

/// The norm with known statistics.
fn batch_norm_evaluation(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let names = ["input", "weight", "bias", "running_mean", "running_var", "momentum", "eps"];
    let args = names.map(|name| r.args().get(name).clone());
    results(r, "aten._native_batch_norm_legit_no_training.default", args)
}

fn results(
    r: &mut Rewriter<'_>,
    op: &str,
    args: impl IntoIterator<Item = Arg>,
) -> Result<Vec<Value>, OpError> {
    let results = r.call_all(op, args)?;
    results.into_iter().map(|result| result.ok_or_else(|| OpError::missing(op))).collect()
}

/// As many of an operator's results as the node has, of the same arguments.
fn first_results(r: &mut Rewriter<'_>, op: &str) -> Result<Vec<Value>, OpError> {
    let (args, count) = (r.args().node.args.clone(), r.schema().returns.len());
    let mut results = results(r, op, args)?;
    results.truncate(count);
    Ok(results)
}

/// The norm of each image by itself: images stand among the channels of one, whose statistics are the mean of theirs.
fn instance_norm_training(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("input")?;
    let (x, ty) = (x.value, x.ty.clone());
    let &[images, channels, ref rest @ ..] = ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected images with channels, found {ty}")));
    };
    r.require(|cx, args| channel_vectors(cx, args, &["weight", "bias", "running_mean", "running_var"]))?;
    let mut args = vec![Arg::Value(r.reshape(x, [&[Expr::one(), images * channels], rest].concat())?)];
    for name in ["weight", "bias", "running_mean", "running_var"] {
        let param = r.args().opt_tensor(name)?.map(|param| param.value);
        let copies =
            param.map(|param| r.call("aten.repeat.default", [Arg::Value(param), Arg::ints([images])]));
        args.push(copies.transpose()?.map_or(Arg::None, Arg::Value));
    }
    args.extend([Arg::Bool(true), r.args().get("momentum").clone(), r.args().get("eps").clone()]);
    let [out, _, _, mean, var] = results(r, IN_TRAINING.twin, args)?[..] else {
        return Err(OpError::missing(IN_TRAINING.twin));
    };
    let mut results = vec![r.reshape(out, ty.sizes)?];
    for running in [mean, var] {
        let each = r.reshape(running, [images, channels])?;
        results.push(r.call("aten.mean.dim", [Arg::Value(each), dims_arg(&[0])])?);
    }
    Ok(results)
}

/// The norm with the statistics of its operand, these, and running ones moved towards them by the momentum; the variance
/// without bias.
fn batch_norm_training(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.require(|cx, args| channel_vectors(cx, args, &["weight", "bias", "running_mean", "running_var"]))?;
    let args = r.args();
    let x = args.tensor("input")?;
    let (x, ty, compute) = (x.value, x.ty.clone(), x.ty.dtype.compute());
    let (momentum, eps) = (args.float("momentum")?, args.float("eps")?);
    let params = ["weight", "bias", "running_mean", "running_var"].map(|name| args.opt_tensor(name));
    let mut mixed = false;
    for param in params {
        mixed |= param?.is_some_and(|param| param.ty.dtype != ty.dtype);
    }
    let statistic = if mixed { Dtype::F32 } else { ty.dtype };
    let (dims, shape) = channel_dims(&ty);
    let wide = r.convert(x, compute)?;
    let moments =
        r.call_all("aten.var_mean.correction", [Arg::Value(wide), dims_arg(&dims), int(0), Arg::Bool(true)])?;
    let [Some(var), Some(mean)] = moments[..] else {
        return Err(OpError::missing("aten.var_mean.correction"));
    };
    let raised = r.scalar("aten.add.Scalar", var, eps)?;
    let rstd = r.apply("aten.rsqrt.default", &[raised])?;
    let distance = r.sub(wide, mean)?;
    let mut out = r.mul(distance, rstd)?;
    for (name, op) in [("weight", "aten.mul.Tensor"), ("bias", "aten.add.Tensor")] {
        if let Some(param) = r.args().opt_tensor(name)?.map(|t| t.value) {
            let param = r.reshape(param, shape.iter().copied())?;
            let param = r.convert(param, compute)?;
            out = r.apply(op, &[out, param])?;
        }
    }
    let out = finished(r, out, &ty)?;
    let channels = ty.sizes[1];
    let mut results = vec![out];
    for kept in [mean, rstd] {
        let kept = r.reshape(kept, [channels])?;
        results.push(r.convert(kept, statistic)?);
    }
    let unbiased = without_bias(r, var, elements(&ty, &dims))?;
    for (name, own) in [("running_mean", mean), ("running_var", unbiased)] {
        let running = r.args().tensor(name)?;
        let (running, dtype) = (running.value, running.ty.dtype);
        let own = r.reshape(own, [channels])?;
        let own = r.scalar("aten.mul.Scalar", own, momentum)?;
        let before = r.convert(running, compute)?;
        let before = r.scalar("aten.mul.Scalar", before, 1.0 - momentum)?;
        let moved = r.add(own, before)?;
        results.push(r.convert(moved, dtype)?);
    }
    Ok(results)
}

/// `var * count / (count - 1)`
fn without_bias(r: &mut Rewriter<'_>, var: Value, count: Expr) -> Result<Value, OpError> {
    if let Some(count) = count.as_int() {
        return r.scalar("aten.mul.Scalar", var, count as f64 / (count - 1) as f64);
    }
    let dtype = r.ty(var)?.dtype;
    let (all, fewer) = (number(r, count, dtype)?, number(r, count - 1, dtype)?);
    let ratio = r.div(all, fewer)?;
    r.mul(var, ratio)
}

/// `x / count`
fn divided_by(r: &mut Rewriter<'_>, x: Value, count: Expr) -> Result<Value, OpError> {
    if let Some(count) = count.as_int() {
        return r.scalar("aten.div.Scalar", x, count as f64);
    }
    let dtype = r.ty(x)?.dtype;
    let count = number(r, count, dtype)?;
    r.div(x, count)
}

/// A tensor without dimensions.
fn number(r: &mut Rewriter<'_>, e: Expr, dtype: Dtype) -> Result<Value, OpError> {
    r.call("aten.scalar_tensor.default", [Arg::Int(e), Arg::Dtype(dtype)])
}
