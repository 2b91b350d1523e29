//! Lowers the gradients of activations, of softmax and of dropout: elementwise products of a derivative and the gradient of the
//! result.

use crate::args::Args;
use crate::body::Point;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower, pointwise};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{broadcasts_to, preserved_strides, same_shape};
use crate::lower::Lower;
use crate::ops::terms::int;
use crate::promote::Promote::{Common, Float};
use crate::traits::Holds;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Type, Value};
use litz_ir::loops::Val;
use litz_sym::{Expr, Rel};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

/// Entries.
pub const OPS: &[OpDef] = &[
    pointwise("aten.threshold_backward.default", Common, |p, v| {
        let threshold = p.args.float("threshold")?;
        let (threshold, zero) = (p.lit(v[1], threshold), p.lit(v[1], 0.0));
        let low = p.le(v[1], threshold);
        Ok(p.select(low, zero, v[0]))
    }),
    pointwise("aten.tanh_backward.default", Common, |p, v| {
        // 1 - y^2
        let (one, square) = (p.lit(v[0], 1.0), p.mul(v[1], v[1]));
        let slope = p.sub(one, square);
        Ok(p.mul(v[0], slope))
    }),
    pointwise("aten.sigmoid_backward.default", Common, |p, v| {
        // y * (1 - y)
        let one = p.lit(v[0], 1.0);
        let rest = p.sub(one, v[1]);
        let product = p.mul(v[0], rest);
        Ok(p.mul(product, v[1]))
    }),
    pointwise("aten.hardtanh_backward.default", Common, |p, v| {
        let (lo, hi) = (p.args.float("min_val")?, p.args.float("max_val")?);
        let (lo, hi, zero) = (p.lit(v[1], lo), p.lit(v[1], hi), p.lit(v[0], 0.0));
        let (above, below) = (p.gt(v[1], lo), p.lt(v[1], hi));
        let inside = p.and(above, below);
        Ok(p.select(inside, v[0], zero))
    }),
    pointwise("aten.hardsigmoid_backward.default", Common, |p, v| {
        // Eager has its sixth in f32, for f64 too.
        let sixth = p.lit(v[0], f64::from(1.0f32 / 6.0));
        let (lo, hi, zero) = (p.lit(v[1], -3.0), p.lit(v[1], 3.0), p.lit(v[0], 0.0));
        let (above, below) = (p.gt(v[1], lo), p.lt(v[1], hi));
        let inside = p.and(above, below);
        let slope = p.mul(v[0], sixth);
        Ok(p.select(inside, slope, zero))
    }),
    pointwise("aten.hardswish_backward.default", Common, |p, v| {
        // grad * (x / 3 + 1 / 2) between -3 and 3
        let (three, half, zero) = (p.lit(v[1], 3.0), p.lit(v[1], 0.5), p.lit(v[0], 0.0));
        let third = p.div(v[1], three);
        let slope = p.add(third, half);
        let inside = p.mul(v[0], slope);
        let lo = p.neg(three);
        let (below, above) = (p.le(v[1], lo), p.ge(v[1], three));
        let rest = p.select(above, v[0], inside);
        Ok(p.select(below, zero, rest))
    }),
    pointwise("aten.leaky_relu_backward.default", Common, |p, v| {
        let slope = p.args.float("negative_slope")?;
        Ok(leaky(p, v[0], v[1], slope))
    }),
    pointwise("aten.rrelu_with_noise_backward.default", Common, |p, v| {
        let (lower, upper) = (p.args.float("lower")?, p.args.float("upper")?);
        if p.args.flag("training")? && upper - lower > 1e-6 {
            return Ok(p.mul(v[0], v[2]));
        }
        Ok(leaky(p, v[0], v[1], (lower + upper) / 2.0))
    }),
    pointwise("aten.elu_backward.default", Common, elu_backward),
    pointwise("aten.softplus_backward.default", Common, |p, v| {
        // With z = exp(beta * x), grad * z / (z + 1), and grad itself above the threshold.
        let (beta, threshold) = (p.args.float("beta")?, p.args.float("threshold")?);
        let (beta, threshold, one) = (p.lit(v[1], beta), p.lit(v[1], threshold), p.lit(v[1], 1.0));
        let scaled = p.mul(v[1], beta);
        let linear = p.gt(scaled, threshold);
        let z = p.exp(scaled);
        let (product, divisor) = (p.mul(v[0], z), p.add(z, one));
        let curve = p.div(product, divisor);
        Ok(p.select(linear, v[0], curve))
    }),
    pointwise("aten.mish_backward.default", Common, |p, v| {
        // With t = tanh(log1p(exp(x))) and s = sigmoid(x), grad * (t + x * s * (1 - t^2)).
        let (x, one) = (v[1], p.lit(v[1], 1.0));
        let e = p.exp(x);
        let soft = p.log1p(e);
        let t = p.tanh(soft);
        let s = sigmoid(p, x);
        let square = p.mul(t, t);
        let (rest, xs) = (p.sub(one, square), p.mul(x, s));
        let term = p.mul(xs, rest);
        let slope = p.add(t, term);
        Ok(p.mul(v[0], slope))
    }),
    pointwise("aten.silu_backward.default", Common, |p, v| {
        // With s = sigmoid(x), grad * s * (1 + x * (1 - s)).
        let (x, one) = (v[1], p.lit(v[1], 1.0));
        let s = sigmoid(p, x);
        let rest = p.sub(one, s);
        let term = p.mul(x, rest);
        let (slope, product) = (p.add(one, term), p.mul(v[0], s));
        Ok(p.mul(product, slope))
    }),
    pointwise("aten.gelu_backward.default", Common, gelu_backward),
    pointwise("aten.logit_backward.default", Common, logit_backward),
    pointwise("aten.softshrink_backward.default", Common, |p, v| {
        let lambda = p.args.float("lambd")?;
        Ok(shrink_backward(p, v, lambda))
    }),
    pointwise("aten.hardshrink_backward.default", Common, |p, v| {
        let lambda = p.args.float("lambd")?;
        Ok(shrink_backward(p, v, lambda))
    }),
    lower("aten.log_sigmoid_forward.default", log_sigmoid_types, log_sigmoid_forward),
    pointwise("aten.log_sigmoid_backward.default", Common, |p, v| {
        // The buffer is z = exp(-|x|): grad * (1 - z / (1 + z)) below zero, grad * z / (1 + z) elsewhere.
        let (x, z, one, zero) = (v[1], v[2], p.lit(v[1], 1.0), p.lit(v[1], 0.0));
        let divisor = p.add(one, z);
        let share = p.div(z, divisor);
        let (rest, negative) = (p.sub(one, share), p.lt(x, zero));
        let slope = p.select(negative, rest, share);
        Ok(p.mul(v[0], slope))
    }),
    lower("aten._prelu_kernel_backward.default", prelu_types, prelu_backward),
    decompose("aten.glu_backward.default", glu_backward),
    decompose("aten._softmax_backward_data.default", |r| softmax_backward(r, Softmax::Shares)),
    decompose("aten._log_softmax_backward_data.default", |r| softmax_backward(r, Softmax::Logarithms)),
    pointwise("aten.native_dropout_backward.default", Float, |p, v| {
        let scale = p.rounded(p.args.float("scale")?);
        let kept = p.condition.ok_or_else(|| p.args.bad("mask", "a mask"))?;
        let (scale, zero) = (p.lit(v[0], scale), p.lit(v[0], 0.0));
        let factor = p.select(kept, scale, zero);
        Ok(p.mul(v[0], factor))
    }),
    decompose("aten.native_dropout.default", native_dropout)
        .random(Holds::When(|_, args| drops(args)))
        .seeded(crate::ops::seeded::native_dropout),
];

fn sigmoid(p: &mut Point<'_, '_>, x: Val) -> Val {
    let (one, negative) = (p.lit(x, 1.0), p.neg(x));
    let e = p.exp(negative);
    let divisor = p.add(one, e);
    p.div(one, divisor)
}

/// `grad` where `x` is above zero, `grad * slope` elsewhere.
fn leaky(p: &mut Point<'_, '_>, grad: Val, x: Val, slope: f64) -> Val {
    let (zero, slope) = (p.lit(x, 0.0), p.lit(x, slope));
    let (positive, low) = (p.gt(x, zero), p.mul(grad, slope));
    p.select(positive, grad, low)
}

/// Above zero `grad * scale`. Elsewhere `grad * slope` times `y + scale * alpha` of a result `y`, or
/// `scale * alpha * exp(slope * x)` of an operand `x`.
fn elu_backward(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let (alpha, scale, slope) =
        (p.args.float("alpha")?, p.args.float("scale")?, p.args.float("input_scale")?);
    let (grad, x) = (v[0], v[1]);
    let (below, above, slope, zero) =
        (p.lit(x, alpha * scale), p.lit(x, scale), p.lit(x, slope), p.lit(x, 0.0));
    let rate = if p.args.flag("is_result")? {
        p.add(x, below)
    } else {
        let scaled = p.mul(x, slope);
        let e = p.exp(scaled);
        p.mul(below, e)
    };
    let low = p.mul(grad, slope);
    let (low, high, positive) = (p.mul(low, rate), p.mul(grad, above), p.gt(x, zero));
    Ok(p.select(positive, high, low))
}

fn gelu_backward(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let (grad, x) = (v[0], v[1]);
    let (half, one) = (p.lit(x, 0.5), p.lit(x, 1.0));
    let square = p.mul(x, x);
    let slope = match p.args.str("approximate")? {
        "none" => {
            // Phi(x) + x * phi(x)
            let (scale, density) = (p.lit(x, FRAC_1_SQRT_2), p.lit(x, FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * 0.5));
            let scaled = p.mul(x, scale);
            let curve = p.erf(scaled);
            let curve = p.add(one, curve);
            let (share, halved) = (p.mul(half, curve), p.mul(half, square));
            let down = p.neg(halved);
            let e = p.exp(down);
            let e = p.mul(density, e);
            let term = p.mul(x, e);
            p.add(share, term)
        }
        "tanh" => {
            // With inner = sqrt(2 / pi) * (x + 0.044715 * x^3) and t = tanh(inner):
            // (1 + t) / 2 + x / 2 * (1 - t^2) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x^2)
            let (beta, kappa, triple) =
                (p.lit(x, SQRT_2 * FRAC_2_SQRT_PI * 0.5), p.lit(x, 0.044715), p.lit(x, 3.0 * 0.044715));
            let cube = p.mul(square, x);
            let bend = p.mul(kappa, cube);
            let inner = p.add(x, bend);
            let inner = p.mul(beta, inner);
            let t = p.tanh(inner);
            let raised = p.add(one, t);
            let (left, tt) = (p.mul(half, raised), p.mul(t, t));
            let (rest, grown) = (p.sub(one, tt), p.mul(triple, square));
            let steep = p.add(one, grown);
            let (steep, halved) = (p.mul(beta, steep), p.mul(half, x));
            let right = p.mul(halved, rest);
            let right = p.mul(right, steep);
            p.add(left, right)
        }
        _ => return Err(p.args.bad("approximate", "none or tanh")),
    };
    Ok(p.mul(grad, slope))
}

/// `grad / (x * (1 - x))` from `eps` to `1 - eps`; outside 0, or NaN without an `eps`.
fn logit_backward(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let (grad, x) = (v[0], v[1]);
    let eps = p.args.opt_float("eps")?.map(|eps| p.rounded(eps));
    let (lo, hi) = eps.map_or((0.0, 1.0), |eps| (eps, p.rounded(1.0 - eps)));
    let (lo, hi, one) = (p.lit(x, lo), p.lit(x, hi), p.lit(x, 1.0));
    let other = p.lit(x, if eps.is_some() { 0.0 } else { f64::NAN });
    let rest = p.sub(one, x);
    let product = p.mul(x, rest);
    let slope = p.div(grad, product);
    // At both ends the slope is positive, whatever the sign of a zero.
    let (zero, infinite) = (p.lit(x, 0.0), p.lit(x, f64::INFINITY));
    let (first, last, steep) = (p.eq(x, zero), p.eq(x, one), p.mul(grad, infinite));
    let at_end = p.or(first, last);
    let slope = p.select(at_end, steep, slope);
    let (below, above) = (p.lt(x, lo), p.gt(x, hi));
    let outside = p.or(below, above);
    Ok(p.select(outside, other, slope))
}

/// The gradient below `-lambda` and above `lambda`, else 0.
fn shrink_backward(p: &mut Point<'_, '_>, v: &[Val], lambda: f64) -> Val {
    let (lo, hi, zero) = (p.lit(v[1], -lambda), p.lit(v[1], lambda), p.lit(v[0], 0.0));
    let (below, above) = (p.lt(v[1], lo), p.gt(v[1], hi));
    let outside = p.or(below, above);
    p.select(outside, v[0], zero)
}

// Two results of one nest.

fn log_sigmoid_types(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    if !x.dtype.is_float() {
        return Err(args.invalid(format!("expected floating-point elements, found {x}")));
    }
    let ty = Type::Tensor(TensorType::contiguous(x.dtype, x.sizes.clone()));
    Ok(vec![ty.clone(), ty])
}

/// `min(x, 0) - log1p(z)` and `z = exp(-|x|)`.
fn log_sigmoid_forward(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let (out, buffer) = (lw.result(args, 0), lw.result(args, 1));
    lw.nest(&x.sizes, |b, at| {
        let v = b.read(&x, at);
        let (zero, size) = (b.lit(v, 0.0), b.abs(v));
        let (low, down) = (b.min(v, zero), b.neg(size));
        let z = b.exp(down);
        if let Some(out) = &out {
            let rest = b.log1p(z);
            let result = b.sub(low, rest);
            b.store(out, at, result);
        }
        if let Some(buffer) = &buffer {
            b.store(buffer, at, z);
        }
        Ok(())
    })
}

fn prelu_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    args.of_one_type(&["grad_output", "self", "weight"])?;
    let x = args.tensor("self")?.ty;
    same_shape(cx, args, "grad_output", &x.sizes)?;
    broadcasts_to(cx, args, "weight", &x.sizes)?;
    let strides = preserved_strides(cx.facts, x);
    let ty = Type::Tensor(TensorType { strides, ..x.clone() });
    Ok(vec![ty.clone(), ty])
}

/// Above zero `grad` and 0, elsewhere `weight * grad` and `x * grad`.
fn prelu_backward(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (grad, x) = (lw.access(args.tensor("grad_output")?)?, lw.access(args.tensor("self")?)?);
    let weight = lw.access(args.tensor("weight")?)?.broadcast(&x.sizes);
    let results = [lw.result(args, 0), lw.result(args, 1)];
    lw.nest(&x.sizes, |b, at| {
        let (g, v, w) = (b.read(&grad, at), b.read(&x, at), b.read(&weight, at));
        let zero = b.lit(v, 0.0);
        let positive = b.gt(v, zero);
        let (scaled, product) = (b.mul(w, g), b.mul(v, g));
        let pairs = [(g, scaled), (zero, product)];
        for (result, (above, below)) in results.iter().zip(pairs) {
            if let Some(result) = result {
                let value = b.select(positive, above, below);
                b.store(result, at, value);
            }
        }
        Ok(())
    })
}

/// With halves `a` and `b` and `s = sigmoid(b)`, `grad * s` and `grad * a * s * (1 - s)`.
fn glu_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let ty = r.args().tensor("self")?.ty.clone();
    let dim = r.args().dim("dim", ty.rank())?;
    let size = *ty.sizes.get(dim).ok_or_else(|| r.args().bad("self", "at least one dimension"))?;
    let half = size.floordiv(2);
    r.require(|cx, args| {
        let odd = |_| args.invalid(format!("expected an even size of dimension {dim}, found {ty}"));
        cx.require(Rel::eq(size.modulo(2), 0), args.op()).map_err(odd)?;
        let mut sizes = ty.sizes.clone();
        sizes[dim] = half;
        same_shape(cx, args, "grad_output", &sizes)?;
        args.of_one_type(&["grad_output", "self"])
    })?;
    let (grad, x) = (r.wide("grad_output")?, r.wide("self")?);
    let (a, b) = (r.slice(x, dim, Expr::zero(), half)?, r.slice(x, dim, half, size)?);
    let s = r.apply("aten.sigmoid.default", &[b])?;
    let first = r.mul(grad, s)?;
    let rest = r.call("aten.rsub.Scalar", [Arg::Value(s), int(1)])?;
    let slope = r.mul(rest, s)?;
    let slope = r.mul(slope, grad)?;
    let second = r.mul(slope, a)?;
    let halves = Arg::List(vec![Arg::Value(first), Arg::Value(second)]);
    let whole = r.call("aten.cat.default", [halves, int(dim as i64)])?;
    let whole = r.convert(whole, ty.dtype)?;
    Ok(vec![r.in_format(whole, MemoryFormat::Contiguous)?])
}

/// What a softmax returned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Softmax {
    Shares,
    Logarithms,
}

/// `y * (grad - sum(grad * y))` of shares `y`, `grad - exp(y) * sum(grad)` of their logarithms.
fn softmax_backward(r: &mut Rewriter<'_>, returned: Softmax) -> Result<Vec<Value>, OpError> {
    let ty = r.args().tensor("output")?.ty.clone();
    let dim = r.args().dim("dim", ty.rank())?;
    let dims: &[usize] = if ty.rank() == 0 { &[] } else { &[dim] };
    r.require(|cx, args| {
        args.of_one_type(&["grad_output", "output"])?;
        same_shape(cx, args, "grad_output", &ty.sizes)
    })?;
    let input = r.args().dtype("input_dtype")?.unwrap_or(ty.dtype);
    if input != ty.dtype {
        return Err(r.args().invalid(format!("a gradient of {input} of a softmax of {}", ty.dtype)));
    }
    let (grad, y) = (r.wide("grad_output")?, r.wide("output")?);
    let gradient = match returned {
        Softmax::Shares => {
            let products = r.mul(grad, y)?;
            let sum = r.sum(products, dims)?;
            let distance = r.sub(grad, sum)?;
            r.mul(distance, y)?
        }
        Softmax::Logarithms => {
            let (sum, shares) = (r.sum(grad, dims)?, r.apply("aten.exp.default", &[y])?);
            let term = r.mul(shares, sum)?;
            r.sub(grad, term)?
        }
    };
    let gradient = r.convert(gradient, ty.dtype)?;
    Ok(vec![r.in_format(gradient, MemoryFormat::Contiguous)?])
}

/// Whether elements are dropped: in training, which nothing given means too.
fn drops(args: &Args<'_>) -> Result<bool, OpError> {
    Ok((!args.has("train") || args.flag("train")?) && args.float("p")? != 0.0)
}

/// Without dropping, the operand and a mask that keeps all.
fn native_dropout(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    if drops(&r.args())? {
        return Err(r.args().unsupported("training without a seed"));
    }
    let x = r.args().tensor("input")?.value;
    let copy = r.call("aten.clone.default", [Arg::Value(x)])?;
    let kept = r.call("aten.ones_like.default", [Arg::Value(x), Arg::Dtype(Dtype::Bool)])?;
    Ok(vec![copy, kept])
}
