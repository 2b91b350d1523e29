//! Decomposes losses: the distance between prediction and target, reduced to a mean or a sum.

use crate::args::Args;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{same_shape, vector_of};
use crate::traits::Complex;
use litz_ir::graph::{Arg, Float, TensorType, Value};
use litz_sym::Expr;
use std::f64::consts::PI;

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.mse_loss.default", |r| {
        let difference = difference(r)?;
        let square = r.apply("aten.mul.Tensor", &[difference, difference])?;
        reduced(r, square)
    }),
    decompose("aten.l1_loss.default", |r| {
        let distance = distance(r)?;
        reduced(r, distance)
    })
    .complex(Complex::Rewritten),
    decompose("aten.smooth_l1_loss.default", |r| {
        let beta = r.args().float("beta")?;
        let z = distance(r)?;
        if beta == 0.0 {
            return reduced(r, z);
        }
        let square = r.apply("aten.mul.Tensor", &[z, z])?;
        let near = r.scalar("aten.mul.Scalar", square, 0.5 / beta)?;
        let far = r.scalar("aten.sub.Scalar", z, 0.5 * beta)?;
        let close = r.scalar("aten.lt.Scalar", z, beta)?;
        let loss = r.apply("aten.where.self", &[close, near, far])?;
        reduced(r, loss)
    }),
    decompose("aten.huber_loss.default", |r| {
        let delta = r.args().float("delta")?;
        let z = distance(r)?;
        let square = r.apply("aten.mul.Tensor", &[z, z])?;
        let near = r.scalar("aten.mul.Scalar", square, 0.5)?;
        let far = r.scalar("aten.sub.Scalar", z, 0.5 * delta)?;
        let far = r.scalar("aten.mul.Scalar", far, delta)?;
        let close = r.scalar("aten.le.Scalar", z, delta)?;
        let loss = r.apply("aten.where.self", &[close, near, far])?;
        reduced(r, loss)
    }),
    decompose("aten.binary_cross_entropy.default", binary_cross_entropy),
    decompose("aten.binary_cross_entropy_with_logits.default", binary_cross_entropy_with_logits),
    decompose("aten.kl_div.default", |r| {
        let (x, t) = (r.args().tensor("self")?, r.args().tensor("target")?);
        if let Some(ty) = [x.ty, t.ty].into_iter().find(|ty| !ty.dtype.is_float()) {
            return Err(r.args().invalid(format!("expected floating-point elements, found {ty}")));
        }
        let (x, t) = (x.value, t.value);
        let loss = if r.args().flag("log_target")? {
            let (weight, gap) = (r.apply("aten.exp.default", &[t])?, r.apply("aten.sub.Tensor", &[t, x])?);
            r.apply("aten.mul.Tensor", &[weight, gap])?
        } else {
            let (own, cross) = (r.apply("aten.xlogy.Tensor", &[t, t])?, r.apply("aten.mul.Tensor", &[t, x])?);
            r.apply("aten.sub.Tensor", &[own, cross])?
        };
        reduced(r, loss)
    }),
    decompose("aten.hinge_embedding_loss.default", |r| {
        let (x, t, margin) =
            (r.args().tensor("self")?.value, r.args().tensor("target")?.value, r.args().float("margin")?);
        let gap = r.call("aten.rsub.Scalar", [Arg::Value(x), float(margin)])?;
        let gap = r.scalar("aten.clamp_min.default", gap, 0.0)?;
        let (far, near) = (r.scalar("aten.ne.Scalar", t, 1.0)?, r.scalar("aten.ne.Scalar", t, -1.0)?);
        let apart = r.call("aten.where.ScalarOther", [Arg::Value(far), Arg::Value(gap), float(0.0)])?;
        let together = r.call("aten.where.ScalarOther", [Arg::Value(near), Arg::Value(x), float(0.0)])?;
        let loss = r.apply("aten.add.Tensor", &[apart, together])?;
        reduced(r, loss)
    }),
    decompose("aten.margin_ranking_loss.default", |r| {
        let (a, b, t) = (
            r.args().tensor("input1")?.value,
            r.args().tensor("input2")?.value,
            r.args().tensor("target")?.value,
        );
        let margin = r.args().float("margin")?;
        let lead = r.apply("aten.sub.Tensor", &[b, a])?;
        let loss = r.apply("aten.mul.Tensor", &[t, lead])?;
        let loss = r.scalar("aten.add.Scalar", loss, margin)?;
        let loss = r.scalar("aten.clamp_min.default", loss, 0.0)?;
        reduced(r, loss)
    }),
    decompose("aten.soft_margin_loss.default", |r| {
        let (x, t) = (r.args().tensor("self")?.value, r.args().tensor("target")?.value);
        let product = r.apply("aten.mul.Tensor", &[x, t])?;
        let down = r.apply("aten.neg.default", &[product])?;
        let e = r.apply("aten.exp.default", &[down])?;
        let loss = r.apply("aten.log1p.default", &[e])?;
        reduced(r, loss)
    }),
    decompose("aten.poisson_nll_loss.default", poisson),
    decompose("aten.multi_margin_loss.default", multi_margin),
    decompose("aten.triplet_margin_loss.default", triplet_margin),
    decompose("aten.pairwise_distance.default", |r| {
        let (a, b) = (r.args().tensor("x1")?.value, r.args().tensor("x2")?.value);
        let (p, eps, keep) = (r.args().float("p")?, r.args().float("eps")?, r.args().flag("keepdim")?);
        Ok(vec![pair_distance(r, a, b, p, eps, keep)?])
    }),
    decompose("aten.cosine_similarity.default", cosine_similarity),
    decompose("aten.nll_loss_nd.default", nll_loss),
    decompose("aten.nll_loss.default", nll_loss),
    decompose("aten.nll_loss2d.default", nll_loss),
    decompose("aten.cross_entropy_loss.default", cross_entropy),
];

fn float(x: f64) -> Arg {
    Arg::Float(Float(x))
}

fn int(i: i64) -> Arg {
    Arg::Int(Expr::int(i))
}

/// How a loss is reduced: PyTorch's numbers 0, 1 and 2.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduction {
    None,
    Mean,
    Sum,
}

fn reduction(r: &Rewriter<'_>) -> Result<Reduction, OpError> {
    reduction_of(&r.args())
}

pub(crate) fn reduction_of(args: &Args<'_>) -> Result<Reduction, OpError> {
    match args.literal("reduction")? {
        0 => Ok(Reduction::None),
        1 => Ok(Reduction::Mean),
        2 => Ok(Reduction::Sum),
        // PyTorch takes any other number for 0.
        other => Err(args.unsupported(&format!("a reduction of {other}"))),
    }
}

/// The loss as the argument `reduction` says.
pub(crate) fn reduced(r: &mut Rewriter<'_>, loss: Value) -> Result<Vec<Value>, OpError> {
    Ok(vec![match reduction(r)? {
        Reduction::None => loss,
        Reduction::Mean => r.apply("aten.mean.default", &[loss])?,
        Reduction::Sum => r.apply("aten.sum.default", &[loss])?,
    }])
}

fn difference(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let (x, t) = (r.args().tensor("self")?.value, r.args().tensor("target")?.value);
    r.apply("aten.sub.Tensor", &[x, t])
}

fn distance(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let difference = difference(r)?;
    r.apply("aten.abs.default", &[difference])
}

fn weighted(r: &mut Rewriter<'_>, loss: Value) -> Result<Value, OpError> {
    match r.args().opt_tensor("weight")?.map(|t| t.value) {
        Some(weight) => r.apply("aten.mul.Tensor", &[loss, weight]),
        None => Ok(loss),
    }
}

/// `-(t * max(log(x), -100) + (1 - t) * max(log(1 - x), -100))` of elements from 0 to 1.
fn binary_cross_entropy(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, t) = (r.args().tensor("self")?.value, r.args().tensor("target")?.value);
    let within =
        |r: &mut Rewriter<'_>, x| r.call("litz.within.default", [Arg::Value(x), float(0.0), float(1.0)]);
    let (x, t) = (within(r, x)?, within(r, t)?);
    let down = r.apply("aten.neg.default", &[x])?;
    let (yes, no) = (r.apply("aten.log.default", &[x])?, r.apply("aten.log1p.default", &[down])?);
    let yes = r.scalar("aten.clamp_min.default", yes, -100.0)?;
    let no = r.scalar("aten.clamp_min.default", no, -100.0)?;
    // (t - 1) * no - t * yes
    let other = r.scalar("aten.sub.Scalar", t, 1.0)?;
    let (miss, hit) = (r.apply("aten.mul.Tensor", &[other, no])?, r.apply("aten.mul.Tensor", &[t, yes])?);
    let loss = r.apply("aten.sub.Tensor", &[miss, hit])?;
    let loss = weighted(r, loss)?;
    reduced(r, loss)
}

/// `(1 - t) * x - w * log_sigmoid(x)` with `w` of 1, or `(pos_weight - 1) * t + 1`.
fn binary_cross_entropy_with_logits(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, t) = (r.args().tensor("self")?.value, r.args().tensor("target")?.value);
    let mut log = r.apply("aten.log_sigmoid.default", &[x])?;
    if let Some(positive) = r.args().opt_tensor("pos_weight")?.map(|t| t.value) {
        let more = r.scalar("aten.sub.Scalar", positive, 1.0)?;
        let weight = r.apply("aten.mul.Tensor", &[more, t])?;
        let weight = r.scalar("aten.add.Scalar", weight, 1.0)?;
        log = r.apply("aten.mul.Tensor", &[log, weight])?;
    }
    let rest = r.call("aten.rsub.Scalar", [Arg::Value(t), float(1.0)])?;
    let miss = r.apply("aten.mul.Tensor", &[rest, x])?;
    let loss = r.apply("aten.sub.Tensor", &[miss, log])?;
    let loss = weighted(r, loss)?;
    reduced(r, loss)
}

/// `exp(x) - t * x`, or `x - t * log(x + eps)`, with Stirling's term when it is asked for.
fn poisson(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, t) = (r.args().tensor("input")?.value, r.args().tensor("target")?.value);
    let mut loss = if r.args().flag("log_input")? {
        let (e, product) = (r.apply("aten.exp.default", &[x])?, r.apply("aten.mul.Tensor", &[t, x])?);
        r.apply("aten.sub.Tensor", &[e, product])?
    } else {
        let eps = r.args().float("eps")?;
        let raised = r.scalar("aten.add.Scalar", x, eps)?;
        let log = r.apply("aten.log.default", &[raised])?;
        let product = r.apply("aten.mul.Tensor", &[t, log])?;
        r.apply("aten.sub.Tensor", &[x, product])?
    };
    if r.args().flag("full")? {
        // t * log(t) - t + log(2 pi t) / 2, for t above 1
        let log = r.apply("aten.log.default", &[t])?;
        let product = r.apply("aten.mul.Tensor", &[t, log])?;
        let main = r.apply("aten.sub.Tensor", &[product, t])?;
        let circle = r.scalar("aten.mul.Scalar", t, 2.0 * PI)?;
        let log = r.apply("aten.log.default", &[circle])?;
        let half = r.scalar("aten.mul.Scalar", log, 0.5)?;
        let term = r.apply("aten.add.Tensor", &[main, half])?;
        let small = r.scalar("aten.le.Scalar", t, 1.0)?;
        let term = r.call("aten.masked_fill.Scalar", [Arg::Value(term), Arg::Value(small), float(0.0)])?;
        loss = r.apply("aten.add.Tensor", &[loss, term])?;
    }
    reduced(r, loss)
}

/// The mean over classes `j` but the target's `y` of `max(0, margin - x[y] + x[j])^p`.
fn multi_margin(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, t) = (r.args().tensor("self")?, r.args().tensor("target")?);
    let (dtype, rank) = (x.ty.dtype, x.ty.rank());
    // A vector is a batch of one, and its target a number or a vector of one.
    let (batch, classes) = match x.ty.sizes[..] {
        [] => (Expr::one(), Expr::one()),
        [classes] => (Expr::one(), classes),
        [batch, classes] => (batch, classes),
        _ => return Err(r.args().invalid(format!("expected a vector or a matrix, found {}", x.ty))),
    };
    let (x, t, is_number) = (x.value, t.value, t.ty.rank() == 0);
    let (p, margin) = (r.args().literal("p")?, r.args().float("margin")?);
    if !matches!(p, 1 | 2) {
        return Err(r.args().bad("p", "1 or 2"));
    }
    r.require(|cx, args| {
        if rank == 2 {
            vector_of(cx, args, "target", batch)?;
        }
        vector_of(cx, args, "weight", classes)
    })?;
    let x = r.call("aten.reshape.default", [Arg::Value(x), Arg::ints([batch, classes])])?;
    let t = r.call("aten.reshape.default", [Arg::Value(t), Arg::ints([batch])])?;
    let column = r.call("aten.unsqueeze.default", [Arg::Value(t), int(1)])?;
    let own = r.call("aten.gather.default", [Arg::Value(x), int(1), Arg::Value(column)])?;
    let lead = r.apply("aten.sub.Tensor", &[x, own])?;
    let lead = r.scalar("aten.add.Scalar", lead, margin)?;
    let mut z = r.scalar("aten.clamp_min.default", lead, 0.0)?;
    if p == 2 {
        z = r.apply("aten.mul.Tensor", &[z, z])?;
    }
    if let Some(weight) = r.args().opt_tensor("weight")?.map(|t| t.value) {
        let weight = r.call("aten.index_select.default", [Arg::Value(weight), int(0), Arg::Value(t)])?;
        let weight = r.call("aten.unsqueeze.default", [Arg::Value(weight), int(1)])?;
        z = r.apply("aten.mul.Tensor", &[z, weight])?;
    }
    let range = r.call("aten.arange.default", [Arg::Int(classes)])?;
    let is_own = r.apply("aten.eq.Tensor", &[range, column])?;
    let z = r.call("aten.masked_fill.Scalar", [Arg::Value(z), Arg::Value(is_own), float(0.0)])?;
    let sum = r.call("aten.sum.dim_IntList", [Arg::Value(z), Arg::ints([Expr::one()])])?;
    let count = r.call("aten.scalar_tensor.default", [Arg::Int(classes), Arg::Dtype(dtype)])?;
    let mut loss = r.apply("aten.div.Tensor", &[sum, count])?;
    if is_number {
        loss = r.call("aten.squeeze.dim", [Arg::Value(loss), int(0)])?;
    }
    reduced(r, loss)
}

/// The norm of `a - b + eps` along the last dimension.
fn pair_distance(
    r: &mut Rewriter<'_>,
    a: Value,
    b: Value,
    p: f64,
    eps: f64,
    keep: bool,
) -> Result<Value, OpError> {
    let difference = r.apply("aten.sub.Tensor", &[a, b])?;
    let raised = r.scalar("aten.add.Scalar", difference, eps)?;
    let last = Arg::ints([Expr::int(-1)]);
    r.call("aten.linalg_vector_norm.default", [Arg::Value(raised), float(p), last, Arg::Bool(keep)])
}

fn triplet_margin(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let value = |name: &str| r.args().tensor(name).map(|t| t.value);
    let (anchor, positive, negative) = (value("anchor")?, value("positive")?, value("negative")?);
    let ranks = [anchor, positive, negative].map(|v| r.ty(v).map(|ty| ty.rank()));
    if ranks.iter().any(|rank| rank != &ranks[0]) {
        return Err(r.args().invalid("expected anchor, positive and negative of one rank"));
    }
    let (margin, p, eps) = (r.args().float("margin")?, r.args().float("p")?, r.args().float("eps")?);
    let near = pair_distance(r, anchor, positive, p, eps, false)?;
    let mut far = pair_distance(r, anchor, negative, p, eps, false)?;
    if r.args().flag("swap")? {
        let between = pair_distance(r, positive, negative, p, eps, false)?;
        far = r.apply("aten.minimum.default", &[far, between])?;
    }
    let gap = r.apply("aten.sub.Tensor", &[near, far])?;
    let loss = r.scalar("aten.add.Scalar", gap, margin)?;
    let loss = r.scalar("aten.clamp_min.default", loss, 0.0)?;
    reduced(r, loss)
}

/// `sum(a / max(|a|, eps) * b / max(|b|, eps))` along a dimension.
fn cosine_similarity(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (r.args().tensor("x1")?.value, r.args().tensor("x2")?.value);
    let (dim, eps) = (r.args().int("dim")?, r.args().float("eps")?);
    let broadcast =
        r.call_all("aten.broadcast_tensors.default", [Arg::List(vec![Arg::Value(a), Arg::Value(b)])])?;
    let mut unit = Vec::new();
    for x in broadcast.into_iter().flatten() {
        let args = [Arg::Value(x), float(2.0), Arg::ints([dim]), Arg::Bool(true)];
        let norm = r.call("aten.linalg_vector_norm.default", args)?;
        let norm = r.scalar("aten.clamp_min.default", norm, eps)?;
        unit.push(r.apply("aten.div.Tensor", &[x, norm])?);
    }
    let product = r.apply("aten.mul.Tensor", &unit)?;
    Ok(vec![r.call("aten.sum.dim_IntList", [Arg::Value(product), Arg::ints([dim])])?])
}

/// The dimension of classes: the second, or the only one.
pub(crate) fn class_dim(rank: usize) -> i64 {
    if rank < 2 { 0 } else { 1 }
}

/// Targets are as many as there are predictions, weights as many as classes.
pub(crate) fn targets_fit(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?.ty;
    let dim = class_dim(x.rank()) as usize;
    let Some(&classes) = x.sizes.get(dim) else {
        return Err(args.invalid("a zero-dimensional prediction has no classes"));
    };
    vector_of(cx, args, "weight", classes)?;
    let target = args.tensor("target")?.ty;
    if is_probability(target, x) {
        if args.has("ignore_index") && args.literal("ignore_index")? >= 0 {
            return Err(args.bad("ignore_index", "a negative integer where targets are probabilities"));
        }
        return same_shape(cx, args, "target", &x.sizes);
    }
    // One prediction has one target, with or without a dimension of it.
    if x.rank() == 1 && args.op() != "aten.cross_entropy_loss.default" && target.rank() == 1 {
        return vector_of(cx, args, "target", Expr::one());
    }
    let mut places = x.sizes.clone();
    places.remove(dim);
    same_shape(cx, args, "target", &places)
}

/// Whether a target gives each class a probability.
fn is_probability(target: &TensorType, x: &TensorType) -> bool {
    target.dtype.is_float() && target.rank() == x.rank()
}

fn nll_loss(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.require(targets_fit)?;
    let logs = r.args().tensor("self")?.value;
    Ok(vec![negative_log(r, logs)?.loss])
}

/// A loss by class, and what it is a mean of.
pub(crate) struct ClassLoss {
    /// The reduced loss.
    pub(crate) loss: Value,
    /// Targets to be ignored, as a mask.
    ignored: Value,
    /// The weight of each target, 0 of ignored ones.
    pub(crate) weights: Value,
}

/// `-logs[target]` times the target's weight, none of targets to be ignored; the mean is one by weight.
pub(crate) fn negative_log(r: &mut Rewriter<'_>, logs: Value) -> Result<ClassLoss, OpError> {
    let (target, ty) = (r.args().tensor("target")?.value, r.ty(logs)?);
    let ignore = r.args().int("ignore_index")?;
    let dim = class_dim(ty.rank());
    let ignored = r.call("aten.eq.Scalar", [Arg::Value(target), Arg::Int(ignore)])?;
    let safe = r.call("aten.masked_fill.Scalar", [Arg::Value(target), Arg::Value(ignored), int(0)])?;
    let index = r.call("aten.unsqueeze.default", [Arg::Value(safe), int(dim)])?;
    let picked = r.call("aten.gather.default", [Arg::Value(logs), int(dim), Arg::Value(index)])?;
    let picked = r.call("aten.squeeze.dim", [Arg::Value(picked), int(dim)])?;
    let losses = r.apply("aten.neg.default", &[picked])?;
    let weights = match r.args().opt_tensor("weight")?.map(|t| t.value) {
        Some(weight) => {
            r.call("aten.index.Tensor", [Arg::Value(weight), Arg::List(vec![Arg::Value(safe)])])?
        }
        None => r.call("aten.full_like.default", [Arg::Value(losses), float(1.0)])?,
    };
    let weights =
        r.call("aten.masked_fill.Scalar", [Arg::Value(weights), Arg::Value(ignored), float(0.0)])?;
    let losses = r.apply("aten.mul.Tensor", &[losses, weights])?;
    // An ignored class may be infinitely unlikely.
    let losses = r.call("aten.masked_fill.Scalar", [Arg::Value(losses), Arg::Value(ignored), float(0.0)])?;
    let loss = match reduction(r)? {
        Reduction::None => losses,
        Reduction::Sum => r.apply("aten.sum.default", &[losses])?,
        Reduction::Mean => mean_by(r, losses, weights)?,
    };
    Ok(ClassLoss { loss, ignored, weights })
}

fn mean_by(r: &mut Rewriter<'_>, losses: Value, weights: Value) -> Result<Value, OpError> {
    let (sum, total) = (r.apply("aten.sum.default", &[losses])?, r.apply("aten.sum.default", &[weights])?);
    r.apply("aten.div.Tensor", &[sum, total])
}

fn cross_entropy(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, target) = (r.args().tensor("self")?, r.args().tensor("target")?);
    let (value, rank, classes) = (x.value, x.ty.rank(), x.ty.sizes.clone());
    let probable = is_probability(target.ty, x.ty);
    r.require(targets_fit)?;
    let dim = class_dim(rank);
    let smoothing = r.args().float("label_smoothing")?;
    let logs = r.call("aten.log_softmax.int", [Arg::Value(value), int(dim)])?;
    let classes = classes.get(dim as usize).and_then(|e| e.as_int());
    let classes = classes.ok_or_else(|| r.args().unsupported("a symbolic number of classes"))? as f64;
    if probable {
        return by_probability(r, logs, smoothing, classes);
    }
    let hard = negative_log(r, logs)?;
    if smoothing == 0.0 {
        return Ok(vec![hard.loss]);
    }
    // What each class alone would cost, ignored targets free.
    let by_class = weighted_classes(r, logs)?;
    let sum = r.call("aten.sum.dim_IntList", [Arg::Value(by_class), Arg::ints([Expr::int(dim)])])?;
    let smooth = r.apply("aten.neg.default", &[sum])?;
    let smooth =
        r.call("aten.masked_fill.Scalar", [Arg::Value(smooth), Arg::Value(hard.ignored), float(0.0)])?;
    let smooth = match reduction(r)? {
        Reduction::None => smooth,
        Reduction::Sum => r.apply("aten.sum.default", &[smooth])?,
        Reduction::Mean => mean_by(r, smooth, hard.weights)?,
    };
    let hard = r.scalar("aten.mul.Scalar", hard.loss, 1.0 - smoothing)?;
    let smooth = r.scalar("aten.mul.Scalar", smooth, smoothing / classes)?;
    Ok(vec![r.apply("aten.add.Tensor", &[hard, smooth])?])
}

/// Logarithms of probabilities times the weights of their classes.
fn weighted_classes(r: &mut Rewriter<'_>, logs: Value) -> Result<Value, OpError> {
    let Some(weight) = r.args().opt_tensor("weight")? else { return Ok(logs) };
    let (weight, size) = (weight.value, weight.ty.numel());
    let rank = r.ty(logs)?.rank();
    let mut shape = vec![Expr::one(); rank];
    shape[class_dim(rank) as usize] = size;
    let weight = r.call("aten.reshape.default", [Arg::Value(weight), Arg::ints(shape)])?;
    r.apply("aten.mul.Tensor", &[logs, weight])
}

/// Cross entropy with a target that gives each class a probability. The mean is over all but classes.
fn by_probability(
    r: &mut Rewriter<'_>,
    logs: Value,
    smoothing: f64,
    classes: f64,
) -> Result<Vec<Value>, OpError> {
    let ty = r.ty(logs)?;
    let dim = class_dim(ty.rank());
    let mut target = r.args().tensor("target")?.value;
    if smoothing > 0.0 {
        target = r.scalar("aten.mul.Scalar", target, 1.0 - smoothing)?;
        target = r.scalar("aten.add.Scalar", target, smoothing / classes)?;
    }
    let by_class = weighted_classes(r, logs)?;
    let product = r.apply("aten.mul.Tensor", &[by_class, target])?;
    let sum = r.call("aten.sum.dim_IntList", [Arg::Value(product), Arg::ints([Expr::int(dim)])])?;
    let losses = r.apply("aten.neg.default", &[sum])?;
    reduced(r, losses)
}
