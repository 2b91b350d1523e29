//! Lowers reductions along dimensions and running combinations.

use crate::args::{Args, Tensor};
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::lower::Lower;
use crate::promote::real_of;
use crate::view::ValueAccess;
use litz_ir::dtype::Kind;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.sum.default", sum_type, |lw, args| fold(lw, args, ReduceOp::Sum)),
    lower("aten.sum.dim_IntList", sum_type, |lw, args| fold(lw, args, ReduceOp::Sum)),
    lower("aten.prod.default", sum_type, |lw, args| fold(lw, args, ReduceOp::Prod)),
    lower("aten.prod.dim_int", sum_type, |lw, args| fold(lw, args, ReduceOp::Prod)),
    lower("aten.mean.default", mean_type, mean),
    lower("aten.mean.dim", mean_type, mean),
    lower("aten.amax.default", limit_type, |lw, args| fold(lw, args, ReduceOp::Max)),
    lower("aten.amin.default", limit_type, |lw, args| fold(lw, args, ReduceOp::Min)),
    lower("aten.max.default", limit_type, |lw, args| fold(lw, args, ReduceOp::Max)),
    lower("aten.min.default", limit_type, |lw, args| fold(lw, args, ReduceOp::Min)),
    lower("aten.max.dim", extreme_type, |lw, args| extreme(lw, args, ReduceOp::Max)),
    lower("aten.min.dim", extreme_type, |lw, args| extreme(lw, args, ReduceOp::Min)),
    lower("aten.argmax.default", index_type, |lw, args| position(lw, args, true)),
    lower("aten.argmin.default", index_type, |lw, args| position(lw, args, false)),
    lower("aten.any.default", bool_type, |lw, args| fold(lw, args, ReduceOp::Any)),
    lower("aten.any.dim", bool_type, |lw, args| fold(lw, args, ReduceOp::Any)),
    lower("aten.any.dims", bool_type, |lw, args| fold(lw, args, ReduceOp::Any)),
    lower("aten.all.default", bool_type, |lw, args| fold(lw, args, ReduceOp::All)),
    lower("aten.all.dim", bool_type, |lw, args| fold(lw, args, ReduceOp::All)),
    lower("aten.all.dims", bool_type, |lw, args| fold(lw, args, ReduceOp::All)),
    lower("aten.var.default", variance_type, |lw, args| variance(lw, args, Spread::Var)),
    lower("aten.var.dim", variance_type, |lw, args| variance(lw, args, Spread::Var)),
    lower("aten.var.correction", variance_type, |lw, args| variance(lw, args, Spread::Var)),
    lower("aten.std.default", variance_type, |lw, args| variance(lw, args, Spread::Std)),
    lower("aten.std.dim", variance_type, |lw, args| variance(lw, args, Spread::Std)),
    lower("aten.std.correction", variance_type, |lw, args| variance(lw, args, Spread::Std)),
    lower("aten.var_mean.default", pair_type, |lw, args| variance(lw, args, Spread::Var)),
    lower("aten.var_mean.dim", pair_type, |lw, args| variance(lw, args, Spread::Var)),
    lower("aten.std_mean.default", pair_type, |lw, args| variance(lw, args, Spread::Std)),
    lower("aten.std_mean.dim", pair_type, |lw, args| variance(lw, args, Spread::Std)),
    lower("aten.var_mean.correction", pair_type, |lw, args| variance(lw, args, Spread::Var)),
    lower("aten.std_mean.correction", pair_type, |lw, args| variance(lw, args, Spread::Std)),
    lower("aten.linalg_vector_norm.default", norm_type, vector_norm),
    lower("aten.logsumexp.default", mean_type, logsumexp),
    lower("aten.cumsum.default", running_type, |lw, args| running(lw, args, ReduceOp::Sum)),
    lower("aten.cumprod.default", running_type, |lw, args| running(lw, args, ReduceOp::Prod)),
];

/// The dimensions that the arguments name; all when they name none.
fn reduced_dims(args: &Args<'_>, x: &TensorType) -> Result<Vec<usize>, OpError> {
    args.dims_or_all("dim", x.rank())
}

/// A contiguous result without the reduced dimensions, or with size 1 in their place.
fn reduced_type(args: &Args<'_>, dtype: Dtype) -> Result<TensorType, OpError> {
    let x = args.tensor("self")?.ty;
    let dims = reduced_dims(args, x)?;
    Ok(TensorType::contiguous(dtype, reduced_sizes(&x.sizes, &dims, args.flag("keepdim")?)))
}

fn reduced_sizes(sizes: &[Expr], dims: &[usize], keep: bool) -> Vec<Expr> {
    let size = |d: usize| if dims.contains(&d) { keep.then(Expr::one) } else { Some(sizes[d]) };
    (0..sizes.len()).filter_map(size).collect()
}

/// Sizes with 1 in place of the reduced dimensions.
pub(crate) fn kept_sizes(sizes: &[Expr], dims: &[usize]) -> Vec<Expr> {
    reduced_sizes(sizes, dims, true)
}

/// Coordinates of the operand: new reduced axes along `dims`, elsewhere the result's, which has dropped the reduced
/// dimensions or keeps them with size 1.
pub(crate) fn reduced_coords(b: &mut Body<'_>, sizes: &[Expr], dims: &[usize], at: &[Expr]) -> Vec<Expr> {
    let keeps = at.len() == sizes.len();
    let mut outer = at.iter();
    let mut coords = Vec::with_capacity(sizes.len());
    for (d, &size) in sizes.iter().enumerate() {
        if !dims.contains(&d) {
            coords.push(outer.next().copied().unwrap_or(Expr::zero()));
            continue;
        }
        if keeps {
            outer.next();
        }
        coords.push(b.reduced_axis(size));
    }
    coords
}

/// One nest that reduces `x` over `dims` into `out`: `f` makes the stored value from the element, in `dtype`.
pub(crate) fn reduce_into(
    lw: &mut Lower<'_>,
    x: &ValueAccess,
    dims: &[usize],
    out: &ValueAccess,
    dtype: Dtype,
    f: impl FnOnce(&mut Body<'_>, Val) -> Val,
) -> Result<(), OpError> {
    lw.nest(&out.sizes, |b, at| {
        let coords = reduced_coords(b, &x.sizes, dims, at);
        let v = b.read_as(x, &coords, dtype);
        let v = f(b, v);
        b.store(out, at, v);
        Ok(())
    })
}

/// Number of elements along dimensions.
pub(crate) fn count(sizes: &[Expr], dims: &[usize]) -> Expr {
    dims.iter().map(|&d| sizes[d]).product()
}

/// Divides by a number of elements.
pub(crate) fn divide_by_count(b: &mut Body<'_>, v: Val, n: Expr) -> Val {
    let dtype = b.ty(v);
    let n = b.index(n, dtype);
    b.div(v, n)
}

fn same_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    one(reduced_type(args, args.tensor("self")?.ty.dtype)?)
}

fn bool_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let dtype = if args.tensor("self")?.ty.dtype == Dtype::U8 { Dtype::U8 } else { Dtype::Bool };
    one(reduced_type(args, dtype)?)
}

/// What is largest or smallest of no elements nobody knows.
fn reduces_elements(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?.ty;
    let empty = |_| args.invalid(format!("expected elements along the reduced dimensions of {x}"));
    let mut dims = reduced_dims(args, x)?.into_iter();
    dims.try_for_each(|d| cx.require(Rel::ge(x.sizes[d], 1), args.op())).map_err(empty)
}

fn limit_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    reduces_elements(cx, args)?;
    same_type(cx, args)
}

fn index_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    reduces_elements(cx, args)?;
    one(reduced_type(args, Dtype::I64)?)
}

/// Sums of integers are i64.
fn sum_dtype(args: &Args<'_>, own: Dtype) -> Result<Dtype, OpError> {
    let widened = if own.is_int() || own == Dtype::Bool { Dtype::I64 } else { own };
    Ok(args.dtype("dtype")?.unwrap_or(widened))
}

fn sum_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    one(reduced_type(args, sum_dtype(args, args.tensor("self")?.ty.dtype)?)?)
}

fn mean_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let own = args.tensor("self")?.ty.dtype;
    let dtype = args.dtype("dtype")?.unwrap_or(own);
    let is_complex = dtype.kind() == Kind::Complex;
    let is_logarithm = args.op().contains("logsumexp");
    let dtype = if is_logarithm && !dtype.is_float() && !is_complex { Dtype::F32 } else { dtype };
    let takes_complex = is_logarithm || args.op().starts_with("aten.mean.");
    if !(dtype.is_float() || takes_complex && is_complex) {
        return Err(args.invalid(format!("the element type must be floating point, found {dtype}")));
    }
    one(reduced_type(args, dtype)?)
}

/// The norms of infinite order are extremes, which nothing has none of.
fn norm_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    if args.opt_float("ord")?.is_some_and(f64::is_infinite) {
        reduces_elements(cx, args)?;
    }
    let x = args.tensor("self")?.ty;
    if x.dtype.kind() == Kind::Complex {
        return Ok(vec![Type::Tensor(reduced_type(args, real_of(x.dtype))?)]);
    }
    mean_type(cx, args)
}

/// Of complex numbers the variance is real.
fn variance_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    match x.dtype.kind() {
        Kind::Complex => Ok(vec![Type::Tensor(reduced_type(args, real_of(x.dtype))?)]),
        _ => same_type(cx, args),
    }
}

fn extreme_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    reduces_elements(cx, args)?;
    let values = reduced_type(args, args.tensor("self")?.ty.dtype)?;
    let indices = reduced_type(args, Dtype::I64)?;
    Ok(vec![Type::Tensor(values), Type::Tensor(indices)])
}

fn pair_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    if !matches!(x.dtype.kind(), Kind::Float | Kind::Complex) {
        return Err(args.invalid(format!("expected floating-point elements, found {x}")));
    }
    Ok([variance_type(cx, args)?, same_type(cx, args)?].concat())
}

fn fold(lw: &mut Lower<'_>, args: &Args<'_>, op: ReduceOp) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dims = reduced_dims(args, x.ty)?;
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let dtype = match op {
        ReduceOp::Any | ReduceOp::All => Dtype::Bool,
        ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min | ReduceOp::Xor => out.dtype.compute(),
    };
    reduce_into(lw, &access, &dims, &out, dtype, |b, v| b.reduce(op, v))
}

fn mean(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dims = reduced_dims(args, x.ty)?;
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    mean_into(lw, &access, &dims, &out)
}

/// The mean over dimensions.
pub(crate) fn mean_into(
    lw: &mut Lower<'_>,
    x: &ValueAccess,
    dims: &[usize],
    out: &ValueAccess,
) -> Result<(), OpError> {
    let n = count(&x.sizes, dims);
    reduce_into(lw, x, dims, out, out.dtype.compute(), |b, v| {
        let sum = b.reduce(ReduceOp::Sum, v);
        divide_by_count(b, sum, n)
    })
}

/// Extreme and its first position along one dimension.
fn extreme(lw: &mut Lower<'_>, args: &Args<'_>, op: ReduceOp) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dims = reduced_dims(args, x.ty)?;
    let access = lw.access(x)?;
    let (values, indices) = (lw.result(args, 0), lw.result(args, 1));
    let Some(shape) = values.as_ref().or(indices.as_ref()) else { return Ok(()) };
    lw.nest(&shape.sizes, |b, at| {
        let coords = reduced_coords(b, &access.sizes, &dims, at);
        let v = b.read(&access, &coords);
        if let Some(values) = &values {
            let best = b.reduce(op, v);
            b.store(values, at, best);
        }
        if let Some(indices) = &indices {
            let best = b.arg_reduce(op == ReduceOp::Max, v);
            b.store(indices, at, best);
        }
        Ok(())
    })
}

fn position(lw: &mut Lower<'_>, args: &Args<'_>, max: bool) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dims = reduced_dims(args, x.ty)?;
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    reduce_into(lw, &access, &dims, &out, access.dtype.compute(), |b, v| b.arg_reduce(max, v))
}

/// Which measure of spread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spread {
    Var,
    Std,
}

/// Two passes: the mean, then the mean of squared distances. The second result, if any, is the mean. As in eager, sums
/// are more precise than the elements: f64 for f32.
fn variance(lw: &mut Lower<'_>, args: &Args<'_>, spread: Spread) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dims = reduced_dims(args, x.ty)?;
    let correction = match args.get("unbiased") {
        litz_ir::graph::Arg::Bool(unbiased) => f64::from(u8::from(*unbiased)),
        _ => args.opt_float("correction")?.unwrap_or(1.0),
    };
    let access = lw.access(x)?;
    let compute = if x.ty.dtype == Dtype::F32 { Dtype::F64 } else { x.ty.dtype.compute() };
    let mean = lw.temp("mean", compute, &kept_sizes(&access.sizes, &dims));
    mean_into(lw, &access, &dims, &mean)?;
    if let Some(out) = lw.result(args, 1) {
        copy_reduced(lw, &mean, &dims, &out)?;
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let n = count(&access.sizes, &dims);
    lw.nest(&out.sizes, |b, at| {
        let coords = reduced_coords(b, &access.sizes, &dims, at);
        let (v, m) = (b.read_as(&access, &coords, compute), b.read(&mean, &pinned(&coords, &dims)));
        let distance = b.sub(v, m);
        let square = b.mul(distance, distance);
        let sum = b.reduce(ReduceOp::Sum, square);
        let n = b.index(n, compute);
        let (correction, zero) = (b.lit(n, correction), b.lit(n, 0.0));
        let freedom = b.sub(n, correction);
        let freedom = b.max(freedom, zero);
        let var = b.div(sum, freedom);
        let result = if spread == Spread::Std { b.sqrt(var) } else { var };
        b.store(&out, at, result);
        Ok(())
    })
}

/// Coordinates with 0 along the reduced dimensions: those of a result that keeps them.
pub(crate) fn pinned(coords: &[Expr], dims: &[usize]) -> Vec<Expr> {
    (0..coords.len()).map(|d| if dims.contains(&d) { Expr::zero() } else { coords[d] }).collect()
}

/// Copies a value that keeps reduced dimensions to one that may not.
fn copy_reduced(
    lw: &mut Lower<'_>,
    kept: &ValueAccess,
    dims: &[usize],
    out: &ValueAccess,
) -> Result<(), OpError> {
    lw.nest(&out.sizes, |b, at| {
        let v = b.read(kept, &outer_coords(kept, dims, at));
        b.store(out, at, v);
        Ok(())
    })
}

fn vector_norm(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dims = reduced_dims(args, x.ty)?;
    let order = args.opt_float("ord")?.unwrap_or(2.0);
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    reduce_into(lw, &access, &dims, &out, out.dtype.compute(), |b, v| norm_of(b, v, order))
}

/// The norm of the elements along the reduced axes: `sum(|x|^p)^(1/p)` and its limits.
fn norm_of(b: &mut Body<'_>, v: Val, order: f64) -> Val {
    let size = b.abs(v);
    if order == f64::INFINITY {
        return b.reduce(ReduceOp::Max, size);
    }
    if order == f64::NEG_INFINITY {
        return b.reduce(ReduceOp::Min, size);
    }
    if order == 0.0 {
        let (zero, one) = (b.lit(v, 0.0), b.lit(v, 1.0));
        let counts = b.ne(v, zero);
        let term = b.select(counts, one, zero);
        return b.reduce(ReduceOp::Sum, term);
    }
    if order == 1.0 {
        return b.reduce(ReduceOp::Sum, size);
    }
    if order == 2.0 {
        let square = b.mul(v, v);
        let sum = b.reduce(ReduceOp::Sum, square);
        return b.sqrt(sum);
    }
    let (p, inverse) = (b.lit(v, order), b.lit(v, 1.0 / order));
    let term = b.op(ScalarOp::Pow, &[size, p]);
    let sum = b.reduce(ReduceOp::Sum, term);
    b.op(ScalarOp::Pow, &[sum, inverse])
}

/// `max + log(sum(exp(x - max)))`, the maximum taken as 0 where it is infinite.
fn logsumexp(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dims = reduced_dims(args, x.ty)?;
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    let max = lw.temp("max", compute, &kept_sizes(&access.sizes, &dims));
    reduce_into(lw, &access, &dims, &max, compute, |b, v| {
        let m = b.reduce(ReduceOp::Max, v);
        let (zero, inf, size) = (b.lit(m, 0.0), b.lit(m, f64::INFINITY), b.abs(m));
        let infinite = b.eq(size, inf);
        b.select(infinite, zero, m)
    })?;
    lw.nest(&out.sizes, |b, at| {
        let coords = reduced_coords(b, &access.sizes, &dims, at);
        let (v, m) = (b.read_as(&access, &coords, compute), b.read(&max, &pinned(&coords, &dims)));
        let shifted = b.sub(v, m);
        let e = b.exp(shifted);
        let sum = b.reduce(ReduceOp::Sum, e);
        let log = b.log(sum);
        let outer = b.read(&max, &outer_coords(&access, &dims, at));
        let result = b.add(log, outer);
        b.store(&out, at, result);
        Ok(())
    })
}

/// Coordinates of a value that keeps reduced dimensions, from those of a result that may drop them.
fn outer_coords(x: &ValueAccess, dims: &[usize], at: &[Expr]) -> Vec<Expr> {
    if at.len() == x.rank() {
        return at.to_vec();
    }
    let mut outer = at.iter();
    let coord = |d| if dims.contains(&d) { None } else { outer.next().copied() };
    (0..x.rank()).map(coord).map(|c| c.unwrap_or(Expr::zero())).collect()
}

fn running_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x: Tensor<'_> = args.tensor("self")?;
    args.dim("dim", x.ty.rank())?;
    one(TensorType::contiguous(sum_dtype(args, x.ty.dtype)?, x.ty.sizes.clone()))
}

/// Running values are one long chain of roundings: like PyTorch's, those of f32 are kept in f64.
fn running(lw: &mut Lower<'_>, args: &Args<'_>, op: ReduceOp) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dim = args.dim("dim", x.ty.rank())?;
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let dtype = if out.dtype == Dtype::F32 { Dtype::F64 } else { out.dtype.compute() };
    lw.nest(&out.sizes, |b, at| {
        let v = b.read_as(&access, at, dtype);
        let v = match at.get(dim) {
            Some(&axis) => b.scan(op, v, axis),
            None => v,
        };
        b.store(&out, at, v);
        Ok(())
    })
}
