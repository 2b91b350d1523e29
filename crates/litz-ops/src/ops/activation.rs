//! Lowers activations: elementwise functions of neural networks.

use crate::body::Point;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, inplace, pointwise};
use crate::error::OpError;
use crate::layout::vector_of;
use crate::ops::pointwise::between;
use crate::promote::Promote::{Common, Float};
use litz_ir::ScalarOp;
use litz_ir::graph::{Arg, Value};
use litz_ir::loops::Val;
use litz_sym::Expr;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

/// Entries.
pub const OPS: &[OpDef] = &[
    pointwise("aten.relu.default", Common, |p, v| Ok(relu(p, v[0]))),
    pointwise("aten.relu6.default", Common, |p, v| Ok(between(p, v[0], 0.0, 6.0))),
    pointwise("aten.hardtanh.default", Common, |p, v| {
        let (lo, hi) = (p.args.float("min_val")?, p.args.float("max_val")?);
        Ok(between(p, v[0], lo, hi))
    }),
    pointwise("aten.leaky_relu.default", Common, |p, v| {
        let slope = p.args.float("negative_slope")?;
        Ok(if_positive(p, v[0], |p, x| {
            let slope = p.lit(x, slope);
            p.mul(x, slope)
        }))
    }),
    decompose("aten.prelu.default", prelu),
    pointwise("aten._prelu_kernel.default", Common, |p, v| {
        let weight = v[1];
        Ok(if_positive(p, v[0], |p, x| p.mul(weight, x)))
    }),
    pointwise("aten.elu.default", Common, |p, v| {
        let (alpha, scale, slope) =
            (p.args.float("alpha")?, p.args.float("scale")?, p.args.float("input_scale")?);
        Ok(elu(p, v[0], alpha, scale, slope))
    }),
    pointwise("aten.celu.default", Common, |p, v| {
        let alpha = p.args.float("alpha")?;
        Ok(elu(p, v[0], alpha, 1.0, 1.0 / alpha))
    }),
    pointwise("aten.selu.default", Common, |p, v| Ok(elu(p, v[0], SELU_ALPHA, SELU_SCALE, 1.0))),
    pointwise("aten.gelu.default", Common, gelu),
    pointwise("aten.sigmoid.default", Float, |p, v| Ok(sigmoid(p, v[0]))),
    pointwise("aten.log_sigmoid.default", Common, |p, v| Ok(log_sigmoid(p, v[0]))),
    pointwise("aten.silu.default", Common, |p, v| {
        let s = sigmoid_divisor(p, v[0]);
        Ok(p.div(v[0], s))
    }),
    pointwise("aten.hardsigmoid.default", Common, |p, v| Ok(hard_gate(p, v[0]))),
    pointwise("aten.hardswish.default", Common, |p, v| {
        let (three, sixth) = (p.lit(v[0], 3.0), p.lit(v[0], 6.0));
        let shifted = p.add(v[0], three);
        let gate = between(p, shifted, 0.0, 6.0);
        let product = p.mul(v[0], gate);
        Ok(p.div(product, sixth))
    }),
    pointwise("aten.mish.default", Common, |p, v| {
        let e = p.exp(v[0]);
        let soft = p.log1p(e);
        let t = p.tanh(soft);
        Ok(p.mul(v[0], t))
    }),
    pointwise("aten.softplus.default", Common, softplus),
    pointwise("aten.hardshrink.default", Common, |p, v| {
        let lambda = p.args.float("lambd")?;
        let (lo, hi, zero) = (p.lit(v[0], -lambda), p.lit(v[0], lambda), p.lit(v[0], 0.0));
        let (above, below) = (p.ge(v[0], lo), p.le(v[0], hi));
        let inside = p.and(above, below);
        Ok(p.select(inside, zero, v[0]))
    }),
    pointwise("aten.softshrink.default", Common, |p, v| {
        let lambda = p.rounded(p.args.float("lambd")?);
        let (lambda, zero) = (p.lit(v[0], lambda), p.lit(v[0], 0.0));
        let (less, more, low) = (p.sub(v[0], lambda), p.add(v[0], lambda), p.neg(lambda));
        let (above, below) = (p.gt(v[0], lambda), p.lt(v[0], low));
        let otherwise = p.select(below, more, zero);
        let nan = p.ne(v[0], v[0]);
        let shrunk = p.select(above, less, otherwise);
        Ok(p.select(nan, v[0], shrunk))
    }),
    pointwise("aten.threshold.default", Common, |p, v| {
        let (threshold, value) = (p.args.float("threshold")?, p.args.float("value")?);
        let (threshold, value) = (p.lit(v[0], threshold), p.lit(v[0], value));
        let low = p.le(v[0], threshold);
        Ok(p.select(low, value, v[0]))
    }),
    inplace("aten.sigmoid_.default", "aten.sigmoid.default"),
    inplace("aten.relu_.default", "aten.relu.default"),
    inplace("aten.relu6_.default", "aten.relu6.default"),
    inplace("aten.silu_.default", "aten.silu.default"),
    inplace("aten.gelu_.default", "aten.gelu.default"),
    inplace("aten.elu_.default", "aten.elu.default"),
    inplace("aten.hardswish_.default", "aten.hardswish.default"),
    inplace("aten.hardsigmoid_.default", "aten.hardsigmoid.default"),
    inplace("aten.hardtanh_.default", "aten.hardtanh.default"),
    inplace("aten.leaky_relu_.default", "aten.leaky_relu.default"),
    inplace("aten.mish_.default", "aten.mish.default"),
];

fn relu(p: &mut Point<'_, '_>, x: Val) -> Val {
    let zero = p.lit(x, 0.0);
    p.max(x, zero)
}

/// `x` where it is above zero, else `f(x)`.
fn if_positive(p: &mut Point<'_, '_>, x: Val, f: impl FnOnce(&mut Point<'_, '_>, Val) -> Val) -> Val {
    let zero = p.lit(x, 0.0);
    let positive = p.gt(x, zero);
    let other = f(p, x);
    p.select(positive, x, other)
}

/// A slope for each channel, the second dimension, or one for all.
fn prelu(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, weight) = (r.args().tensor("self")?, r.args().tensor("weight")?);
    if weight.ty.rank() > 1 || weight.ty.dtype != x.ty.dtype {
        return Err(r
            .args()
            .invalid(format!("expected slopes for channels of {}, found {}", x.ty, weight.ty)));
    }
    if !weight.ty.numel().is_one() {
        let channels = x.ty.sizes.get(1).copied().unwrap_or(Expr::one());
        r.require(|cx, args| vector_of(cx, args, "weight", channels))?;
    }
    let (x, weight) = (r.args().tensor("self")?, r.args().tensor("weight")?);
    let (x, rank, weight, count) = (x.value, x.ty.rank(), weight.value, weight.ty.numel());
    let mut sizes = vec![Expr::one(); rank];
    if let Some(channels) = sizes.get_mut(1) {
        *channels = count;
    }
    let weight = r.call("aten.reshape.default", [Arg::Value(weight), Arg::ints(sizes)])?;
    Ok(vec![r.apply("aten._prelu_kernel.default", &[x, weight])?])
}

const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

/// `scale * x` above zero, `scale * alpha * (exp(slope * x) - 1)` elsewhere.
fn elu(p: &mut Point<'_, '_>, x: Val, alpha: f64, scale: f64, slope: f64) -> Val {
    let (zero, slope, below, above) =
        (p.lit(x, 0.0), p.lit(x, slope), p.lit(x, alpha * scale), p.lit(x, scale));
    let inner = p.mul(x, slope);
    let e = p.op(ScalarOp::Expm1, &[inner]);
    let (low, high) = (p.mul(e, below), p.mul(x, above));
    let negative = p.le(x, zero);
    p.select(negative, low, high)
}

/// `x * Phi(x)`, or its approximation by tanh.
fn gelu(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let x = v[0];
    let (half, one) = (p.lit(x, 0.5), p.lit(x, 1.0));
    let curve = match p.args.str("approximate")? {
        "none" => {
            let scale = p.lit(x, FRAC_1_SQRT_2);
            let scaled = p.mul(x, scale);
            p.erf(scaled)
        }
        "tanh" => {
            // sqrt(2 / pi) * (x + 0.044715 * x^3)
            let (beta, kappa) = (p.lit(x, SQRT_2 * FRAC_2_SQRT_PI * 0.5), p.lit(x, 0.044715));
            let square = p.mul(x, x);
            let cube = p.mul(square, x);
            let term = p.mul(kappa, cube);
            let inner = p.add(x, term);
            let inner = p.mul(beta, inner);
            p.tanh(inner)
        }
        _ => return Err(p.args.bad("approximate", "none or tanh")),
    };
    let (halved, weight) = (p.mul(half, x), p.add(one, curve));
    Ok(p.mul(halved, weight))
}

/// `1 + exp(-x)`.
fn sigmoid_divisor(p: &mut Point<'_, '_>, x: Val) -> Val {
    let (one, negative) = (p.lit(x, 1.0), p.neg(x));
    let e = p.exp(negative);
    p.add(one, e)
}

fn sigmoid(p: &mut Point<'_, '_>, x: Val) -> Val {
    let (one, divisor) = (p.lit(x, 1.0), sigmoid_divisor(p, x));
    p.div(one, divisor)
}

/// `min(x, 0) - log1p(exp(-|x|))`
fn log_sigmoid(p: &mut Point<'_, '_>, x: Val) -> Val {
    let (zero, magnitude) = (p.lit(x, 0.0), p.abs(x));
    let (low, negative) = (p.min(x, zero), p.neg(magnitude));
    let e = p.exp(negative);
    let rest = p.log1p(e);
    p.sub(low, rest)
}

/// `clamp(x + 3, 0, 6) / 6`
fn hard_gate(p: &mut Point<'_, '_>, x: Val) -> Val {
    let (three, six) = (p.lit(x, 3.0), p.lit(x, 6.0));
    let shifted = p.add(x, three);
    let gate = between(p, shifted, 0.0, 6.0);
    p.div(gate, six)
}

/// `log1p(exp(beta * x)) / beta`, `x` itself above the threshold.
fn softplus(p: &mut Point<'_, '_>, v: &[Val]) -> Result<Val, OpError> {
    let x = v[0];
    let (beta, threshold) = (p.args.float("beta")?, p.args.float("threshold")?);
    let (beta, threshold) = (p.lit(x, beta), p.lit(x, threshold));
    let scaled = p.mul(x, beta);
    let e = p.exp(scaled);
    let soft = p.log1p(e);
    let soft = p.div(soft, beta);
    let linear = p.gt(scaled, threshold);
    Ok(p.select(linear, x, soft))
}
