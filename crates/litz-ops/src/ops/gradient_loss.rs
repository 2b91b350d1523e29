//! Lowers the gradients of losses, and the negative log likelihood that also returns the weight that it is a mean by.

use crate::args::Args;
use crate::body::Body;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{broadcasts_to, pointwise_strides, preserved_strides, same_shape};
use crate::lower::Lower;
use crate::ops::loss::{Reduction, class_dim, negative_log, reduction_of, targets_fit};
use litz_ir::Dtype;
use litz_ir::graph::{TensorType, Type, Value, contiguous_strides};
use litz_ir::loops::Val;
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.mse_loss_backward.default", contiguous, |lw, args| {
        of_distance(lw, args, |b, distance| {
            let two = b.lit(distance, 2.0);
            Ok(b.mul(two, distance))
        })
    }),
    lower("aten.smooth_l1_loss_backward.default", contiguous, |lw, args| {
        let beta = args.float("beta")?;
        of_distance(lw, args, |b, distance| {
            let near = match beta {
                0.0 => distance,
                _ => {
                    let beta = b.lit(distance, beta);
                    b.div(distance, beta)
                }
            };
            Ok(clipped(b, distance, beta, near, 1.0))
        })
    }),
    lower("aten.huber_loss_backward.default", contiguous, |lw, args| {
        let delta = args.float("delta")?;
        of_distance(lw, args, |b, distance| Ok(clipped(b, distance, delta, distance, delta)))
    }),
    lower("aten.binary_cross_entropy_backward.default", preserved, |lw, args| {
        of_pair(lw, args, |b, x, t| {
            // (x - t) / max(x * (1 - x), 1e-12), a number that eager has in f32.
            let (one, least) = (b.lit(x, 1.0), b.lit(x, f64::from(1e-12f32)));
            let (distance, rest) = (b.sub(x, t), b.sub(one, x));
            let product = b.mul(rest, x);
            let divisor = b.max(product, least);
            Ok(b.div(distance, divisor))
        })
    }),
    lower("aten.soft_margin_loss_backward.default", by_target, |lw, args| {
        of_pair(lw, args, |b, x, t| {
            // With z = exp(-t * x), -t * z / (1 + z).
            let (product, one) = (b.mul(t, x), b.lit(x, 1.0));
            let down = b.neg(product);
            let z = b.exp(down);
            let (divisor, scaled) = (b.add(z, one), b.mul(t, z));
            let share = b.div(scaled, divisor);
            Ok(b.neg(share))
        })
    }),
    decompose("aten.nll_loss_forward.default", nll_loss_forward),
    decompose("aten.nll_loss2d_forward.default", nll_loss_forward),
    lower("aten.nll_loss_backward.default", nll_loss_type, nll_loss_backward),
    lower("aten.nll_loss2d_backward.default", nll_loss_type, nll_loss_backward),
];

fn contiguous(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty.clone();
    operands_fit(cx, args, &x)?;
    one(TensorType { strides: contiguous_strides(&x.sizes), ..x })
}

fn preserved(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty.clone();
    operands_fit(cx, args, &x)?;
    one(TensorType { strides: preserved_strides(cx.facts, &x), ..x })
}

/// Strides are those of a product of target and prediction.
fn by_target(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, target) = (args.tensor("self")?, args.tensor("target")?);
    operands_fit(cx, args, x.ty)?;
    let strides = pointwise_strides(cx.facts, &[target, x], &x.ty.sizes);
    one(TensorType { strides, ..x.ty.clone() })
}

/// Targets and weights are as many as predictions, or one for several; and so are gradients, of which a reduced loss has one.
fn operands_fit(cx: &mut InferCx<'_>, args: &Args<'_>, x: &TensorType) -> Result<(), OpError> {
    if !x.dtype.is_float() {
        return Err(args.invalid(format!("expected floating-point elements, found {x}")));
    }
    args.of_one_type(&["grad_output", "self", "target"])?;
    reduction_of(args)?;
    ["grad_output", "target", "weight"].iter().try_for_each(|name| broadcasts_to(cx, args, name, &x.sizes))
}

/// The derivative by the distance of prediction and target, times the gradient.
fn of_distance(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    derivative: impl Fn(&mut Body<'_>, Val) -> Result<Val, OpError>,
) -> Result<(), OpError> {
    of_pair(lw, args, |b, x, t| {
        let distance = b.sub(x, t);
        derivative(b, distance)
    })
}

/// The derivative at a prediction and its target, times the gradient, and the weight if there is one; of a mean divided by the
/// number of predictions.
fn of_pair(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    derivative: impl Fn(&mut Body<'_>, Val, Val) -> Result<Val, OpError>,
) -> Result<(), OpError> {
    let is_mean = reduction_of(args)? == Reduction::Mean;
    let (x, target) = (lw.access(args.tensor("self")?)?, lw.access(args.tensor("target")?)?);
    let grad = lw.access(args.tensor("grad_output")?)?;
    let weight = args.opt_tensor("weight")?.map(|t| lw.access(t)).transpose()?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let (compute, sizes) = (x.dtype.compute(), x.sizes.clone());
    let count: Expr = sizes.iter().copied().product();
    lw.nest(&sizes, |b, at| {
        let (v, t) = (b.read(&x, at), b.read(&target.broadcast(&sizes), at));
        let slope = derivative(b, v, t)?;
        let g = b.read(&grad.broadcast(&sizes), at);
        let mut result = b.mul(slope, g);
        if let Some(weight) = &weight {
            let weight = b.read_as(&weight.broadcast(&sizes), at, compute);
            result = b.mul(result, weight);
        }
        if is_mean {
            let count = b.index(count, compute);
            result = b.div(result, count);
        }
        b.store(&out, at, result);
        Ok(())
    })
}

/// `near` between `-limit` and `limit`, else `slope` with the sign of the distance.
fn clipped(b: &mut Body<'_>, distance: Val, limit: f64, near: Val, slope: f64) -> Val {
    let (lo, hi) = (b.lit(distance, -limit), b.lit(distance, limit));
    let (down, up) = (b.lit(distance, -slope), b.lit(distance, slope));
    let (below, above) = (b.le(distance, lo), b.ge(distance, hi));
    let rest = b.select(above, up, near);
    b.select(below, down, rest)
}

/// The loss, and the sum of the weights of all targets, 0 of losses that are not reduced.
fn nll_loss_forward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.require(targets_fit)?;
    let x = r.args().tensor("self")?;
    let (logs, dtype, rank) = (x.value, x.ty.dtype, x.ty.rank());
    let loss = negative_log(r, logs)?;
    let total = match reduction_of(&r.args())? {
        Reduction::None if rank > 1 => r.filled([], 0.0, dtype)?,
        Reduction::None | Reduction::Mean | Reduction::Sum => r.apply("aten.sum.default", &[loss.weights])?,
    };
    Ok(vec![loss.loss, total])
}

fn nll_loss_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    targets_fit(cx, args)?;
    args.of_types("target", &[Dtype::I64, Dtype::U8])?;
    args.of_one_type(&["grad_output", "self", "total_weight"])?;
    args.of_types("weight", &[x.dtype])?;
    let of_each = reduction_of(args)? == Reduction::None && x.rank() > 1;
    if of_each {
        same_shape(cx, args, "grad_output", &args.tensor("target")?.ty.sizes)?;
    }
    for name in ["grad_output", "total_weight"] {
        let ty = args.tensor(name)?.ty;
        if (name == "total_weight" || !of_each) && ty.sizes.iter().any(|size| !size.is_one()) {
            return Err(args.bad(name, "one element"));
        }
    }
    one(TensorType::contiguous(x.dtype, x.sizes.clone()))
}

/// `-grad * weight` of the class that is the target, of a mean divided by the sum of weights; 0 of all others and of targets to
/// be ignored.
fn nll_loss_backward(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let reduction = reduction_of(args)?;
    let (x, target) = (args.tensor("self")?.ty, lw.access(args.tensor("target")?)?);
    let (dim, ignore) = (class_dim(x.rank()) as usize, args.int("ignore_index")?);
    let grad = lw.access(args.tensor("grad_output")?)?;
    let total = lw.access(args.tensor("total_weight")?)?;
    let weight = args.opt_tensor("weight")?.map(|t| lw.access(t)).transpose()?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    let of_each = reduction == Reduction::None && x.rank() > 1;
    lw.nest(&out.sizes, |b, at| {
        let mut place = at.to_vec();
        let class = place.remove(dim);
        place.resize(target.rank(), Expr::zero());
        let t = b.read_as(&target, &place, Dtype::I64);
        let (own, ignored) = (b.index(class, Dtype::I64), b.index(ignore, Dtype::I64));
        let (is_own, counts) = (b.eq(t, own), b.ne(t, ignored));
        let is_own = b.and(is_own, counts);
        if !of_each {
            place = vec![Expr::zero(); grad.rank()];
        }
        let g = b.read(&grad, &place);
        let mut v = b.neg(g);
        if let Some(weight) = &weight {
            let weight = b.read(weight, &[class]);
            v = b.mul(v, weight);
        }
        if reduction == Reduction::Mean {
            let total = b.read_as(&total, &vec![Expr::zero(); total.rank()], compute);
            v = b.div(v, total);
        }
        let zero = b.lit(v, 0.0);
        let v = b.select(is_own, v, zero);
        b.store(&out, at, v);
        Ok(())
    })
}
