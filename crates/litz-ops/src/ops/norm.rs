//! Lowers normalisation: layer, group, instance, batch and root-mean-square norms, and dropout at inference.

use crate::args::{Args, Tensor};
use crate::def::{OpDef, inplace, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{broadcasts_to, format_strides, same_shape, same_sizes, suggested_format, vector_of};
use crate::lower::Lower;
use crate::ops::reduce::{
    count, divide_by_count, kept_sizes, mean_into, pinned, reduce_into, reduced_coords,
};
use crate::ops::seeded::{self, Dropped};
use crate::traits::Holds::{self, Always, Never, When};
use crate::traits::{Role, Updates};
use crate::view::{ValueAccess, View, dim};
use litz_ir::graph::{TensorType, Type};
use litz_ir::schema::Effect;
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.layer_norm.default", |cx, args| layer_types(cx, args, 1), layer_norm),
    lower("aten.native_layer_norm.default", |cx, args| layer_types(cx, args, 3), layer_norm),
    lower("aten.rms_norm.default", |cx, args| layer_types(cx, args, 1), rms_norm),
    lower("aten.group_norm.default", |cx, args| group_types(cx, args, 1), group_norm),
    lower("aten.native_group_norm.default", |cx, args| group_types(cx, args, 3), group_norm),
    lower("aten.instance_norm.default", |cx, args| batch_types(cx, args, 1), instance_norm).updates(
        Updates {
            twin: "litz.instance_norm.default",
            args: RUNNING,
            when: When(|_, args| Ok(args.flag("use_input_stats")? && args.has("running_mean"))),
        },
    ),
    lower("aten.batch_norm.default", |cx, args| batch_types(cx, args, 1), batch_norm)
        .effect(Effect::None)
        .alias(Never)
        .role(Role::BatchNorm)
        .updates(IN_TRAINING),
    lower(
        "aten._native_batch_norm_legit_no_training.default",
        |cx, args| batch_types(cx, args, 3),
        batch_norm,
    )
    .role(Role::BatchNorm),
    lower("aten._native_batch_norm_legit.no_stats", |cx, args| batch_types(cx, args, 3), batch_norm),
    lower("aten._weight_norm.default", weight_norm_type, weight_norm),
    lower("aten.dropout.default", dropout_type, dropout)
        .random(IF_DROPPING)
        .seeded(|r| seeded::dropout(r, Dropped::Elements))
        .alias(Always)
        .effect(Effect::None),
    lower("aten.feature_dropout.default", dropout_type, dropout)
        .random(IF_DROPPING)
        .seeded(|r| seeded::dropout(r, Dropped::Channels))
        .alias(Always)
        .effect(Effect::None),
    lower("aten.alpha_dropout.default", dropout_type, dropout)
        .random(IF_DROPPING)
        .seeded(|r| seeded::alpha_dropout(r, Dropped::Elements))
        .alias(Always)
        .effect(Effect::None),
    inplace("aten.dropout_.default", "aten.dropout.default"),
];

/// The statistics that a norm moves towards those of its operand in training.
pub(crate) const RUNNING: &[&str] = &["running_mean", "running_var"];

/// What batch normalisation writes to, if it trains and keeps statistics.
pub(crate) const IN_TRAINING: Updates = Updates {
    twin: "aten._native_batch_norm_legit_functional.default",
    args: RUNNING,
    when: When(|_, args| Ok(args.flag("training")? && args.has("running_mean"))),
};

/// Scale and shift of a norm, each indexed by some of the coordinates.
struct Affine {
    weight: Option<ValueAccess>,
    bias: Option<ValueAccess>,
    /// The coordinates of weight and bias, from those of the normalised value.
    coords: fn(&[Expr], usize) -> Vec<Expr>,
}

/// Mean and inverse deviation over `dims`, computed as `compute` in two passes. The results keep the reduced dimensions.
fn moments(
    lw: &mut Lower<'_>,
    x: &ValueAccess,
    dims: &[usize],
    eps: f64,
    compute: Dtype,
) -> Result<(ValueAccess, ValueAccess), OpError> {
    let rows = kept_sizes(&x.sizes, dims);
    let mean = lw.temp("mean", compute, &rows);
    mean_into(lw, x, dims, &mean)?;
    let scale = lw.temp("rstd", compute, &rows);
    let n = count(&x.sizes, dims);
    lw.nest(&rows, |b, at| {
        let coords = reduced_coords(b, &x.sizes, dims, at);
        let (v, m) = (b.read_as(x, &coords, compute), b.read(&mean, at));
        let distance = b.sub(v, m);
        let square = b.mul(distance, distance);
        let sum = b.reduce(ReduceOp::Sum, square);
        let var = divide_by_count(b, sum, n);
        let eps = b.lit(var, eps);
        let var = b.add(var, eps);
        let inverse = b.op(ScalarOp::Rsqrt, &[var]);
        b.store(&scale, at, inverse);
        Ok(())
    })?;
    Ok((mean, scale))
}

/// `(x - mean) * scale * weight + bias` in the type of `scale`; no mean means 0.
fn apply(
    lw: &mut Lower<'_>,
    x: &ValueAccess,
    dims: &[usize],
    mean: Option<&ValueAccess>,
    scale: &ValueAccess,
    affine: &Affine,
    out: &ValueAccess,
) -> Result<(), OpError> {
    let compute = scale.dtype;
    lw.nest(&x.sizes, |b, at| {
        let mut v = b.read_as(x, at, compute);
        if let Some(mean) = mean {
            let mean = b.read(mean, &pinned(at, dims));
            v = b.sub(v, mean);
        }
        let scale = b.read(scale, &pinned(at, dims));
        v = b.mul(v, scale);
        if let Some(weight) = &affine.weight {
            let weight = b.read_as(weight, &(affine.coords)(at, weight.rank()), compute);
            v = b.mul(v, weight);
        }
        if let Some(bias) = &affine.bias {
            let bias = b.read_as(bias, &(affine.coords)(at, bias.rank()), compute);
            v = b.add(v, bias);
        }
        b.store(out, at, v);
        Ok(())
    })
}

fn opt_access(lw: &Lower<'_>, tensor: Option<Tensor<'_>>) -> Result<Option<ValueAccess>, OpError> {
    tensor.map(|t| lw.access(t)).transpose()
}

/// Copies a statistic to a result of the node with the same shape, when something uses it.
fn give(lw: &mut Lower<'_>, args: &Args<'_>, i: usize, from: &ValueAccess) -> Result<(), OpError> {
    let Some(out) = lw.result(args, i) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.read(from, at);
        b.store(&out, at, v);
        Ok(())
    })
}

// Layer norm.

fn normalized_dims(args: &Args<'_>, x: &TensorType) -> Result<Vec<usize>, OpError> {
    let normalized = args.ints("normalized_shape")?.len();
    let first =
        x.rank().checked_sub(normalized).ok_or_else(|| args.bad("normalized_shape", "fewer dimensions"))?;
    Ok((first..x.rank()).collect())
}

/// Statistics are f32 where parameters are f32 and the operand is not, else of the operand's type.
fn statistic_dtype(args: &Args<'_>, x: Dtype) -> Result<Dtype, OpError> {
    let params = [args.opt_tensor("weight")?, args.opt_tensor("bias")?];
    let mixed = params.iter().flatten().any(|p| p.ty.dtype != x);
    Ok(if mixed { Dtype::F32 } else { x })
}

fn layer_types(cx: &mut InferCx<'_>, args: &Args<'_>, results: usize) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("input")?.ty;
    let dims = normalized_dims(args, x)?;
    let normalized = args.ints("normalized_shape")?;
    if normalized.is_empty() {
        return Err(args.bad("normalized_shape", "at least one size"));
    }
    let last = &x.sizes[x.rank() - normalized.len()..];
    same_sizes(cx, args, "the last dimensions of `input`", last, &normalized)?;
    same_shape(cx, args, "weight", &normalized)?;
    same_shape(cx, args, "bias", &normalized)?;
    let rows = TensorType::contiguous(statistic_dtype(args, x.dtype)?, kept_sizes(&x.sizes, &dims));
    let out = TensorType::contiguous(x.dtype, x.sizes.clone());
    Ok([Type::Tensor(out), Type::Tensor(rows.clone()), Type::Tensor(rows)][..results].to_vec())
}

fn layer_affine(lw: &Lower<'_>, args: &Args<'_>) -> Result<Affine, OpError> {
    Ok(Affine {
        weight: opt_access(lw, args.opt_tensor("weight")?)?,
        bias: opt_access(lw, args.opt_tensor("bias")?)?,
        coords: |at, rank| at[at.len() - rank..].to_vec(),
    })
}

fn layer_norm(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("input")?;
    let dims = normalized_dims(args, x.ty)?;
    let affine = layer_affine(lw, args)?;
    let x = lw.access(x)?;
    let (mean, scale) = moments(lw, &x, &dims, args.float("eps")?, x.dtype.compute())?;
    give(lw, args, 1, &mean)?;
    give(lw, args, 2, &scale)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    apply(lw, &x, &dims, Some(&mean), &scale, &affine, &out)
}

fn rms_norm(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("input")?;
    let dims = normalized_dims(args, x.ty)?;
    let affine = layer_affine(lw, args)?;
    let eps = args.opt_float("eps")?.unwrap_or(x.ty.dtype.compute().epsilon());
    let x = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = x.dtype.compute();
    let scale = lw.temp("rstd", compute, &kept_sizes(&x.sizes, &dims));
    let n = count(&x.sizes, &dims);
    reduce_into(lw, &x, &dims, &scale, compute, |b, v| {
        let square = b.mul(v, v);
        let sum = b.reduce(ReduceOp::Sum, square);
        let mean = divide_by_count(b, sum, n);
        let eps = b.lit(mean, eps);
        let mean = b.add(mean, eps);
        b.op(ScalarOp::Rsqrt, &[mean])
    })?;
    apply(lw, &x, &dims, None, &scale, &affine, &out)
}

// Group norm: the operand seen as [batch, group, channel in group, rest...].

fn group_types(cx: &mut InferCx<'_>, args: &Args<'_>, results: usize) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("input")?.ty;
    channel_vectors(cx, args, x)?;
    let (channels, groups) = (x.sizes[1], groups(args)?);
    let uneven = |_| args.invalid(format!("{channels} channels are not {groups} groups of equal size"));
    for rel in [Rel::ge(groups, 1), Rel::eq(channels.modulo(groups), 0)] {
        cx.require(rel, args.op()).map_err(uneven)?;
    }
    counts_agree(cx, args, x)?;
    let strides = format_strides(suggested_format(cx.facts, x), &x.sizes);
    let out = TensorType { strides, ..x.clone() };
    let rows = TensorType::contiguous(statistic_dtype(args, x.dtype)?, vec![x.sizes[0], groups]);
    Ok([Type::Tensor(out), Type::Tensor(rows.clone()), Type::Tensor(rows)][..results].to_vec())
}

/// What `native_group_norm` is told of the operand: its batch, its channels, and the elements of each.
fn counts_agree(cx: &mut InferCx<'_>, args: &Args<'_>, x: &TensorType) -> Result<(), OpError> {
    if !args.has("HxW") {
        return Ok(());
    }
    let counts = [args.int("N")?, args.int("C")?, args.int("HxW")?];
    let own = [x.sizes[0], x.sizes[1], x.sizes[2..].iter().copied().product()];
    same_sizes(cx, args, "arguments `N`, `C`, `HxW`", &counts, &own)
}

/// Parameters and known statistics have one element for each channel, the second dimension.
fn channel_vectors(cx: &mut InferCx<'_>, args: &Args<'_>, x: &TensorType) -> Result<(), OpError> {
    let &[_, channels, ..] = x.sizes.as_slice() else {
        return Err(args.invalid(format!("expected at least two dimensions, found {x}")));
    };
    let names = ["weight", "bias", "running_mean", "running_var"];
    names.iter().try_for_each(|name| vector_of(cx, args, name, channels))
}

fn groups(args: &Args<'_>) -> Result<Expr, OpError> {
    if args.has("num_groups") { args.int("num_groups") } else { args.int("group") }
}

/// Splits dimension `at` into groups.
fn grouped(sizes: &[Expr], at: usize, groups: Expr) -> View {
    let within = sizes[at].floordiv(groups);
    let mut split = sizes.to_vec();
    split.splice(at..=at, [groups, within]);
    let coord = |d: usize| match d {
        _ if d < at => dim(d),
        _ if d == at => dim(at) * within + dim(at + 1),
        _ => dim(d + 1),
    };
    View::new(split, (0..sizes.len()).map(coord).collect())
}

fn group_norm(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("input")?;
    let groups = groups(args)?;
    normalize_groups(lw, args, x, groups, 2)
}

/// Norm over groups of channels and all that follows them; `statistics` more results may be asked for.
fn normalize_groups(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    x: Tensor<'_>,
    groups: Expr,
    statistics: usize,
) -> Result<(), OpError> {
    let access = lw.access(x)?;
    let view = grouped(&x.ty.sizes, 1, groups);
    let dims: Vec<usize> = (2..view.sizes.len()).collect();
    let access = lw.view(&access, &view);
    let param = |lw: &Lower<'_>, name: &str| -> Result<Option<ValueAccess>, OpError> {
        let param = opt_access(lw, args.opt_tensor(name)?)?;
        Ok(param.map(|p| lw.view(&p, &grouped(&p.sizes, 0, groups))))
    };
    let affine =
        Affine { weight: param(lw, "weight")?, bias: param(lw, "bias")?, coords: |at, _| at[1..3].to_vec() };
    let (mean, scale) = moments(lw, &access, &dims, args.float("eps")?, access.dtype.compute())?;
    if statistics == 2 {
        give_rows(lw, args, 1, &mean)?;
        give_rows(lw, args, 2, &scale)?;
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let out = lw.view(&out, &view);
    apply(lw, &access, &dims, Some(&mean), &scale, &affine, &out)
}

/// Copies statistics `[batch, group, 1, ...]` to a result `[batch, group]`.
fn give_rows(lw: &mut Lower<'_>, args: &Args<'_>, i: usize, from: &ValueAccess) -> Result<(), OpError> {
    let coords = (0..from.rank()).map(|d| if d < 2 { dim(d) } else { Expr::zero() }).collect();
    let rows = lw.view(from, &View::new(from.sizes[..2].to_vec(), coords));
    give(lw, args, i, &rows)
}

fn instance_norm(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    if !args.flag("use_input_stats")? {
        return batch_norm(lw, args);
    }
    let x = args.tensor("input")?;
    normalize_groups(lw, args, x, x.ty.sizes[1], 0)
}

// Batch norm: statistics of dimension 1.

fn batch_types(cx: &mut InferCx<'_>, args: &Args<'_>, results: usize) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("input")?.ty;
    channel_vectors(cx, args, x)?;
    let strides = format_strides(suggested_format(cx.facts, x), &x.sizes);
    let out = TensorType { strides, ..x.clone() };
    let channels = if uses_batch_statistics(args)? { x.sizes[1] } else { Expr::zero() };
    let rows = TensorType::contiguous(statistic_dtype(args, x.dtype)?, vec![channels]);
    Ok([Type::Tensor(out), Type::Tensor(rows.clone()), Type::Tensor(rows)][..results].to_vec())
}

fn uses_batch_statistics(args: &Args<'_>) -> Result<bool, OpError> {
    Ok(args.flag("training")? || args.op().ends_with(".no_stats"))
}

fn batch_norm(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("input")?)?;
    let eps = args.float("eps")?;
    let (weight, bias) =
        (opt_access(lw, args.opt_tensor("weight")?)?, opt_access(lw, args.opt_tensor("bias")?)?);
    if !uses_batch_statistics(args)? {
        return batch_norm_running(lw, args, &x, weight, bias, eps);
    }
    let dims: Vec<usize> = (0..x.rank()).filter(|&d| d != 1).collect();
    let affine = Affine { weight, bias, coords: |at, _| vec![at[1]] };
    // Mostly weights, standardised: an error of a filter's mean meets the sum of all that the filter sees.
    let is_wide = x.dtype == Dtype::F32 && args.op() == "aten.batch_norm.default";
    let compute = if is_wide { Dtype::F64 } else { x.dtype.compute() };
    let (mean, scale) = moments(lw, &x, &dims, eps, compute)?;
    give_channels(lw, args, 1, &mean)?;
    give_channels(lw, args, 2, &scale)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    apply(lw, &x, &dims, Some(&mean), &scale, &affine, &out)
}

/// Copies statistics `[1, channels, 1, ...]` to a result `[channels]`.
fn give_channels(lw: &mut Lower<'_>, args: &Args<'_>, i: usize, from: &ValueAccess) -> Result<(), OpError> {
    let coords = (0..from.rank()).map(|d| if d == 1 { dim(0) } else { Expr::zero() }).collect();
    let rows = lw.view(from, &View::new(vec![from.sizes[1]], coords));
    give(lw, args, i, &rows)
}

/// With known statistics the norm is `x * scale + shift`; both depend on parameters alone.
fn batch_norm_running(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    x: &ValueAccess,
    weight: Option<ValueAccess>,
    bias: Option<ValueAccess>,
    eps: f64,
) -> Result<(), OpError> {
    let mean = lw.access(args.tensor("running_mean")?)?;
    let var = lw.access(args.tensor("running_var")?)?;
    for i in 1..args.node.outputs.len() {
        lw.nothing(args, i)?;
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = x.dtype.compute();
    let channels = [x.sizes[1]];
    let scale = lw.temp("scale", compute, &channels);
    lw.nest(&channels, |b, at| {
        let var = b.read_as(&var, at, compute);
        let eps = b.lit(var, eps);
        let var = b.add(var, eps);
        let mut scale_value = b.op(ScalarOp::Rsqrt, &[var]);
        if let Some(weight) = &weight {
            let weight = b.read_as(weight, at, compute);
            scale_value = b.mul(scale_value, weight);
        }
        b.store(&scale, at, scale_value);
        Ok(())
    })?;
    let shift = lw.temp("shift", compute, &channels);
    lw.nest(&channels, |b, at| {
        let (mean, factor) = (b.read_as(&mean, at, compute), b.read(&scale, at));
        let product = b.mul(mean, factor);
        let shift_value = match &bias {
            Some(bias) => {
                let bias = b.read_as(bias, at, compute);
                b.sub(bias, product)
            }
            None => b.neg(product),
        };
        b.store(&shift, at, shift_value);
        Ok(())
    })?;
    lw.nest(&x.sizes, |b, at| {
        let (v, factor, term) = (b.read(x, at), b.read(&scale, &at[1..2]), b.read(&shift, &at[1..2]));
        let product = b.mul(v, factor);
        let result = b.add(product, term);
        b.store(&out, at, result);
        Ok(())
    })
}

// Weight norm: each slice along `dim` scaled to the length that `g` gives.

fn weight_norm_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    args.of_one_type(&["v", "g"])?;
    let v = args.tensor("v")?.ty;
    broadcasts_to(cx, args, "g", &kept_sizes(&v.sizes, &normed_dims(args, v)?))?;
    one(TensorType::contiguous(v.dtype, v.sizes.clone()))
}

/// All dimensions but the one that keeps a norm for each of its elements; -1 means one norm over everything.
fn normed_dims(args: &Args<'_>, v: &TensorType) -> Result<Vec<usize>, OpError> {
    let kept = if args.literal("dim")? == -1 { None } else { Some(args.dim("dim", v.rank())?) };
    Ok((0..v.rank()).filter(|&d| Some(d) != kept).collect())
}

fn weight_norm(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let v = args.tensor("v")?;
    let dims = normed_dims(args, v.ty)?;
    let (v, g) = (lw.access(v)?, lw.access(args.tensor("g")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = v.dtype.compute();
    let scale = lw.temp("scale", compute, &kept_sizes(&v.sizes, &dims));
    let g = g.broadcast(&scale.sizes);
    lw.nest(&scale.sizes, |b, at| {
        let coords = reduced_coords(b, &v.sizes, &dims, at);
        let x = b.read(&v, &coords);
        let square = b.mul(x, x);
        let sum = b.reduce(ReduceOp::Sum, square);
        let (length, wanted) = (b.sqrt(sum), b.read_as(&g, at, compute));
        let ratio = b.div(wanted, length);
        b.store(&scale, at, ratio);
        Ok(())
    })?;
    lw.nest(&v.sizes, |b, at| {
        let (x, ratio) = (b.read(&v, at), b.read(&scale, &pinned(at, &dims)));
        let scaled = b.mul(x, ratio);
        b.store(&out, at, scaled);
        Ok(())
    })
}

// Dropout at inference is the identity.

fn dropout_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    one(args.tensor("input")?.ty.clone())
}

/// Whether elements are dropped: in training only.
fn drops(args: &Args<'_>) -> Result<bool, OpError> {
    Ok(args.flag("train")? && args.float("p")? != 0.0)
}

const IF_DROPPING: Holds = Holds::When(|_, args| drops(args));

fn dropout(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    if drops(args)? {
        return Err(args.unsupported("training without a seed"));
    }
    let access = lw.access(args.tensor("input")?)?;
    lw.set_result(args, 0, access);
    Ok(())
}
