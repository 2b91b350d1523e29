//! Decomposes statistics: norms, covariances, quantiles, medians and modes, histograms.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, inplace};
use crate::error::OpError;
use crate::ops::terms::{dims_arg, float, int};
use crate::traits::Complex;
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, Value};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.norm.Scalar", norm).complex(Complex::Rewritten),
    decompose("aten.norm.ScalarOpt_dim", norm).complex(Complex::Rewritten),
    decompose("aten.norm.ScalarOpt_dtype", norm).complex(Complex::Rewritten),
    decompose("aten.norm.ScalarOpt_dim_dtype", norm).complex(Complex::Rewritten),
    decompose("aten.dist.default", |r| {
        let (a, b) = (r.args().tensor("self")?.value, r.args().tensor("other")?.value);
        let (p, difference) = (r.args().get("p").clone(), r.sub(a, b)?);
        Ok(vec![r.call("aten.linalg_vector_norm.default", [Arg::Value(difference), p])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.pdist.default", pair_distances),
    decompose("aten._pdist_forward.default", pair_distances),
    decompose("aten.renorm.default", |r| {
        let x = r.args().tensor("self")?;
        let (ty, value) = (x.ty.clone(), x.value);
        let (at, p, most) =
            (r.args().dim("dim", ty.rank())?, r.args().get("p").clone(), r.args().float("maxnorm")?);
        let others: Vec<usize> = (0..ty.rank()).filter(|&d| d != at).collect();
        if others.is_empty() {
            return Err(r.args().invalid(format!("expected at least two dimensions, found {ty}")));
        }
        Ok(vec![shortened(r, value, p, &others, most, None)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.embedding_renorm.default", |r| {
        let (x, positions) = (r.args().tensor("self")?, r.args().tensor("indices")?.value);
        let (value, rows) = (x.value, x.ty.sizes.clone());
        let &[rows, _] = rows.as_slice() else {
            return Err(r.args().invalid(format!("expected a matrix, found {}", x.ty)));
        };
        let (p, most) = (r.args().get("norm_type").clone(), r.args().float("max_norm")?);
        let none = r.filled([rows], 0.0, Dtype::Bool)?;
        let positions = r.reshape(positions, [Expr::int(-1)])?;
        let yes =
            r.call("aten.full.default", [Arg::List(Vec::new()), Arg::Bool(true), Arg::Dtype(Dtype::Bool)])?;
        let used = r.call(
            "aten.index_put.default",
            [Arg::Value(none), Arg::List(vec![Arg::Value(positions)]), Arg::Value(yes)],
        )?;
        let used = r.call("aten.unsqueeze.default", [Arg::Value(used), int(1)])?;
        Ok(vec![shortened(r, value, p, &[1], most, Some(used))?])
    }),
    inplace("aten.embedding_renorm_.default", "aten.embedding_renorm.default"),
    decompose("aten.cov.default", |r| {
        let x = r.args().tensor("self")?.value;
        Ok(vec![covariance(r, x)?])
    }),
    decompose("aten.corrcoef.default", |r| {
        let x = r.args().tensor("self")?.value;
        let covariances = r.call("aten.cov.default", [Arg::Value(x)])?;
        if r.ty(covariances)?.rank() == 0 {
            return Ok(vec![r.div(covariances, covariances)?]);
        }
        let variances = r.apply("aten.diagonal.default", &[covariances])?;
        let deviations = r.apply("aten.sqrt.default", &[variances])?;
        let column = r.call("aten.unsqueeze.default", [Arg::Value(deviations), int(1)])?;
        let by_row = r.div(covariances, column)?;
        let by_both = r.div(by_row, deviations)?;
        Ok(vec![r.call("aten.clamp.default", [Arg::Value(by_both), float(-1.0), float(1.0)])?])
    }),
    decompose("aten.nanmedian.default", |r| {
        let x = r.args().tensor("self")?.value;
        let flat = r.reshape(x, [Expr::int(-1)])?;
        Ok(vec![nan_median(r, flat, 0, false)?[0]])
    }),
    decompose("aten.nanmedian.dim", |r| {
        let x = r.args().tensor("self")?;
        let (value, at, keep) = (x.value, r.args().dim("dim", x.ty.rank())?, r.args().flag("keepdim")?);
        nan_median(r, value, at, keep)
    }),
    decompose("aten.mode.default", mode),
    decompose("aten.quantile.default", |r| {
        let q = r.args().tensor("q")?.value;
        Ok(vec![quantile(r, q, false)?])
    }),
    decompose("aten.nanquantile.default", |r| {
        let q = r.args().tensor("q")?.value;
        Ok(vec![quantile(r, q, true)?])
    }),
    decompose("aten.nanquantile.scalar", |r| {
        let (q, dtype) = (r.args().float("q")?, r.args().tensor("self")?.ty.dtype);
        if !(0.0..=1.0).contains(&q) {
            return Err(r.args().invalid(format!("expected a fraction between 0 and 1, found {q}")));
        }
        let q = r.filled([], q, dtype)?;
        Ok(vec![quantile(r, q, true)?])
    }),
    decompose("aten.histogram.bin_ct", |r| {
        let x = r.args().tensor("self")?.value;
        let (bins, x) = (r.args().int("bins")?, r.reshape(x, [Expr::int(-1)])?);
        let edges = even_edges(r, x, bins, 0)?;
        let counts = counts_between(r, &[x], &[edges])?;
        Ok(vec![counts, edges])
    }),
    decompose("aten.histogram.bins_tensor", |r| {
        let (x, bins) = (r.args().tensor("self")?.value, r.args().tensor("bins")?.value);
        let x = r.reshape(x, [Expr::int(-1)])?;
        let counts = counts_between(r, &[x], &[bins])?;
        let edges = r.apply("aten.clone.default", &[bins])?;
        Ok(vec![counts, edges])
    }),
    decompose("aten.histogramdd.default", |r| {
        let (points, bins) = (coordinates(r)?, r.args().ints("bins")?);
        if bins.len() != points.len() {
            return Err(r.args().bad("bins", "a number of bins for each coordinate"));
        }
        even_counts(r, &points, &bins)
    }),
    decompose("aten.histogramdd.int_bins", |r| {
        let (points, bins) = (coordinates(r)?, r.args().int("bins")?);
        even_counts(r, &points, &vec![bins; points.len()])
    }),
    decompose("aten.histogramdd.TensorList_bins", |r| {
        let points = coordinates(r)?;
        let edges: Vec<Value> = r.args().tensors("bins")?.iter().map(|edges| edges.value).collect();
        if edges.len() != points.len() {
            return Err(r.args().bad("bins", "edges for each coordinate"));
        }
        let counts = counts_between(r, &points, &edges)?;
        let copies = edges.iter().map(|&edges| r.apply("aten.clone.default", &[edges]));
        [Ok(counts)].into_iter().chain(copies).collect()
    }),
];

/// A norm of the elements along dimensions, or of all; of order 2 where none is given.
fn norm(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    if !matches!(x.ty.dtype.kind(), Kind::Float | Kind::Complex) {
        return Err(r.args().invalid(format!("expected floating-point elements, found {}", x.ty)));
    }
    let value = x.value;
    let [p, dims, keep, dtype] = ["p", "dim", "keepdim", "dtype"].map(|name| r.args().get(name).clone());
    let p = if p == Arg::None { float(2.0) } else { p };
    let keep = if keep == Arg::None { Arg::Bool(false) } else { keep };
    Ok(vec![r.call("aten.linalg_vector_norm.default", [Arg::Value(value), p, dims, keep, dtype])?])
}

/// The distances of the rows of a matrix from those that come after each.
fn pair_distances(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let &[rows, _] = x.ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected a matrix, found {}", x.ty)));
    };
    let (value, p) = (x.value, r.args().get("p").clone());
    let places = r.call("aten.triu_indices.default", [Arg::Int(rows), Arg::Int(rows), int(1)])?;
    let mut ends = Vec::new();
    for end in 0..2 {
        let place = r.call("aten.select.int", [Arg::Value(places), int(0), int(end)])?;
        ends.push(r.call("aten.index_select.default", [Arg::Value(value), int(0), Arg::Value(place)])?);
    }
    let gaps = r.sub(ends[0], ends[1])?;
    Ok(vec![r.call("aten.linalg_vector_norm.default", [Arg::Value(gaps), p, dims_arg(&[1])])?])
}

/// The tensor with parts along `dims` scaled down that are longer than `most`; of those `chosen` alone, if given.
fn shortened(
    r: &mut Rewriter<'_>,
    x: Value,
    p: Arg,
    dims: &[usize],
    most: f64,
    chosen: Option<Value>,
) -> Result<Value, OpError> {
    let wide = r.widened(x)?;
    let args = [Arg::Value(wide), p, dims_arg(dims), Arg::Bool(true)];
    let lengths = r.call("aten.linalg_vector_norm.default", args)?;
    let mut is_long = r.scalar("aten.gt.Scalar", lengths, most)?;
    if let Some(chosen) = chosen {
        is_long = r.apply("aten.logical_and.default", &[is_long, chosen])?;
    }
    let divisor = r.scalar("aten.add.Scalar", lengths, 1e-7)?;
    let inverse = r.apply("aten.reciprocal.default", &[divisor])?;
    let factor = r.scalar("aten.mul.Scalar", inverse, most)?;
    let factor = r.call("aten.where.ScalarOther", [Arg::Value(is_long), Arg::Value(factor), float(1.0)])?;
    let factor = r.convert(factor, r.ty(x)?.dtype)?;
    r.mul(x, factor)
}

/// `sum of w (x - m) (x - m)^T` over the number of observations less the correction, `m` their mean by weight.
fn covariance(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    let ty = r.ty(x)?;
    if ty.rank() > 2 {
        return Err(r.args().invalid(format!("expected at most two dimensions, found {ty}")));
    }
    let mut rows = x;
    if !ty.dtype.is_float() {
        rows = r.convert(rows, Dtype::F32)?;
    }
    if ty.rank() < 2 {
        rows = r.reshape(rows, [Expr::one(), ty.numel()])?;
    }
    let sizes = r.ty(rows)?.sizes;
    let correction = r.args().float("correction")?;
    let frequencies = r.args().opt_tensor("fweights")?.map(|t| t.value);
    let importances = r.args().opt_tensor("aweights")?.map(|t| t.value);
    let dtype = r.ty(rows)?.dtype;
    let mut weights = None;
    for weight in [frequencies, importances].into_iter().flatten() {
        let weight = r.convert(weight, dtype)?;
        weights = Some(r.mul_opt(weight, weights)?);
    }
    let (mean, freedom) = match weights {
        None => {
            let count = r.call("aten.scalar_tensor.default", [Arg::Int(sizes[1]), Arg::Dtype(dtype)])?;
            (r.mean(rows, &[1])?, r.scalar("aten.sub.Scalar", count, correction)?)
        }
        Some(weights) => {
            let total = r.apply("aten.sum.default", &[weights])?;
            let weighted = r.mul(rows, weights)?;
            let sum = r.sum(weighted, &[1])?;
            let taken = match importances {
                Some(importances) => {
                    let importances = r.convert(importances, dtype)?;
                    let squares = r.mul(weights, importances)?;
                    let squares = r.apply("aten.sum.default", &[squares])?;
                    let share = r.scalar("aten.mul.Scalar", squares, correction)?;
                    let share = r.div(share, total)?;
                    r.sub(total, share)?
                }
                None => r.scalar("aten.sub.Scalar", total, correction)?,
            };
            (r.div(sum, total)?, taken)
        }
    };
    let freedom = r.scalar("aten.clamp_min.default", freedom, 0.0)?;
    let distances = r.sub(rows, mean)?;
    let weighted = r.mul_opt(distances, weights)?;
    let turned = r.transpose(weighted, 0, 1)?;
    let products = r.apply("aten.matmul.default", &[distances, turned])?;
    let covariances = r.div(products, freedom)?;
    r.apply("aten.squeeze.default", &[covariances])
}

/// Elements of sorted lines, their positions before, at places that keep the dimension.
fn picked(
    r: &mut Rewriter<'_>,
    sorted: &[Value],
    at: usize,
    places: Value,
    keep: bool,
) -> Result<Vec<Value>, OpError> {
    let dim = int(at as i64);
    let pick = |r: &mut Rewriter<'_>, from: Value| {
        let picked = r.call("aten.gather.default", [Arg::Value(from), dim.clone(), Arg::Value(places)])?;
        if keep { Ok(picked) } else { r.call("aten.squeeze.dim", [Arg::Value(picked), dim.clone()]) }
    };
    sorted.iter().map(|&from| pick(r, from)).collect()
}

/// Sorted elements along a dimension, and their positions; of a number, itself.
fn sorted(r: &mut Rewriter<'_>, x: Value, at: usize) -> Result<Vec<Value>, OpError> {
    Ok(r.call_all("aten.sort.default", [Arg::Value(x), int(at as i64)])?.into_iter().flatten().collect())
}

/// The lower of the two elements in the middle of those that are numbers.
fn nan_median(r: &mut Rewriter<'_>, x: Value, at: usize, keep: bool) -> Result<Vec<Value>, OpError> {
    let ty = r.ty(x)?;
    if ty.rank() == 0 {
        let zeros = r.call("aten.zeros_like.default", [Arg::Value(x), Arg::Dtype(Dtype::I64)])?;
        return Ok(vec![r.apply("aten.clone.default", &[x])?, zeros]);
    }
    if ty.sizes[at].is_zero() {
        return Err(r.args().unsupported("a median of no elements"));
    }
    let sorted = sorted(r, x, at)?;
    // Numbers come first.
    let nan = r.apply("aten.isnan.default", &[x])?;
    let number = r.apply("aten.logical_not.default", &[nan])?;
    let count = r.sum(number, &[at])?;
    let last = r.call("aten.sub.Scalar", [Arg::Value(count), int(1)])?;
    let last = r.call("aten.clamp_min.default", [Arg::Value(last), int(0)])?;
    let middle = r.call("aten.floor_divide.Scalar", [Arg::Value(last), int(2)])?;
    picked(r, &sorted, at, middle, keep)
}

/// The smallest of the most frequent elements, where it is for the last time. Each NaN counts as an element of its own, and they come last.
fn mode(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (value, rank, keep) = (x.value, x.ty.rank(), r.args().flag("keepdim")?);
    let at = r.args().dim("dim", rank)?;
    if rank == 0 {
        let zeros = r.call("aten.zeros_like.default", [Arg::Value(value), Arg::Dtype(Dtype::I64)])?;
        return Ok(vec![r.apply("aten.clone.default", &[value])?, zeros]);
    }
    if x.ty.sizes[at].is_zero() {
        return Err(r.args().invalid(format!("a dimension without elements has no mode: {}", x.ty)));
    }
    let sorted = sorted(r, value, at)?;
    let own = r.call("aten.unsqueeze.default", [Arg::Value(sorted[0]), int(at as i64 + 1)])?;
    let others = r.call("aten.unsqueeze.default", [Arg::Value(sorted[0]), int(at as i64)])?;
    let equal = r.apply("aten.eq.Tensor", &[own, others])?;
    let counts = r.call("aten.sum.dim_IntList", [Arg::Value(equal), dims_arg(&[at + 1])])?;
    let counts = r.call("aten.clamp_min.default", [Arg::Value(counts), int(1)])?;
    let best = r.call_all("aten.max.dim", [Arg::Value(counts), int(at as i64), Arg::Bool(true)])?;
    let [Some(count), Some(first)] = best[..] else {
        return Err(r.args().invalid("no most frequent element"));
    };
    let behind = r.apply("aten.add.Tensor", &[first, count])?;
    let last = r.call("aten.sub.Scalar", [Arg::Value(behind), int(1)])?;
    picked(r, &sorted, at, last, keep)
}

/// Elements of sorted lines, or between two, at fractions `q` of their length; of numbers alone where NaN is ignored, else NaN
/// where there is one.
fn quantile(r: &mut Rewriter<'_>, q: Value, ignores_nan: bool) -> Result<Value, OpError> {
    r.args().of_types("self", &[Dtype::F32, Dtype::F64])?;
    r.require(|_, args| {
        if args.has("q") && args.opt_tensor("q").is_ok() { args.of_one_type(&["self", "q"]) } else { Ok(()) }
    })?;
    let x = r.args().tensor("self")?;
    let (mut x, rank) = (x.value, x.ty.rank());
    let fractions = r.ty(q)?;
    if fractions.rank() > 1 {
        return Err(r.args().invalid(format!("expected a fraction or a vector of them, found {fractions}")));
    }
    let whole = !r.args().has("dim");
    let at = if whole { 0 } else { r.args().dim("dim", rank)? };
    if whole || rank == 0 {
        x = r.reshape(x, [Expr::int(-1)])?;
    } else {
        x = r.call("aten.movedim.int", [Arg::Value(x), int(at as i64), int(-1)])?;
    }
    let ty = r.ty(x)?;
    let last = ty.rank() - 1;
    if ty.numel().is_zero() {
        return Err(r.args().invalid(format!("expected elements, found {ty}")));
    }
    let sorted = sorted(r, x, last)?[0];
    let nan = r.apply("aten.isnan.default", &[x])?;
    // Fractions go along the last dimension.
    let q = r.reshape(q, [Expr::int(-1)])?;
    let most = if ignores_nan {
        let number = r.apply("aten.logical_not.default", &[nan])?;
        let count = r.sum(number, &[last])?;
        let count = r.convert(count, ty.dtype)?;
        let most = r.scalar("aten.sub.Scalar", count, 1.0)?;
        r.scalar("aten.clamp_min.default", most, 0.0)?
    } else {
        let count =
            r.call("aten.scalar_tensor.default", [Arg::Int(ty.sizes[last] - 1), Arg::Dtype(ty.dtype)])?;
        let mut sizes = ty.sizes.clone();
        sizes[last] = Expr::one();
        r.call("aten.expand.default", [Arg::Value(count), Arg::ints(sizes)])?
    };
    let places = r.mul(most, q)?;
    let element = |r: &mut Rewriter<'_>, rounding: &str| {
        let place = r.apply(rounding, &[places])?;
        let place = r.convert(place, Dtype::I64)?;
        r.call("aten.gather.default", [Arg::Value(sorted), int(last as i64), Arg::Value(place)])
    };
    let mode = r.args().str("interpolation")?.to_owned();
    let mut result = match mode.as_str() {
        "lower" => element(r, "aten.floor.default")?,
        "higher" => element(r, "aten.ceil.default")?,
        "nearest" => element(r, "aten.round.default")?,
        "" | "linear" | "midpoint" => {
            let (low, high) = (element(r, "aten.floor.default")?, element(r, "aten.ceil.default")?);
            let weight = if mode == "midpoint" {
                r.call("aten.full_like.default", [Arg::Value(places), float(0.5)])?
            } else {
                let whole = r.apply("aten.floor.default", &[places])?;
                r.sub(places, whole)?
            };
            r.apply("aten.lerp.Tensor", &[low, high, weight])?
        }
        _ => return Err(r.args().bad("interpolation", "linear, lower, higher, midpoint or nearest")),
    };
    if !ignores_nan {
        let any = r.call("aten.any.dim", [Arg::Value(nan), int(last as i64), Arg::Bool(true)])?;
        result = r.call("aten.masked_fill.Scalar", [Arg::Value(result), Arg::Value(any), float(f64::NAN)])?;
    }
    // Fractions come first, in the place of a single one is nothing.
    let keep = r.args().flag("keepdim")?;
    let mut kept: Vec<usize> = if whole { (0..rank).collect() } else { vec![at] };
    kept.retain(|_| keep && rank > 0);
    result = if fractions.rank() == 0 {
        r.call("aten.squeeze.dim", [Arg::Value(result), int(-1)])?
    } else {
        r.call("aten.movedim.int", [Arg::Value(result), int(-1), int(0)])?
    };
    for d in kept {
        let place = (d + fractions.rank()) as i64;
        result = r.call("aten.unsqueeze.default", [Arg::Value(result), int(place)])?;
    }
    Ok(result)
}

/// The coordinates of points, which are the rows of the operand, as a vector for each dimension.
fn coordinates(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (value, ty) = (x.value, x.ty.clone());
    let Some(count) = ty.sizes.last().and_then(|size| size.as_int()).filter(|_| ty.rank() > 1) else {
        return Err(r.args().unsupported("points of a number of coordinates that sizes decide"));
    };
    let rows: Expr = ty.sizes[..ty.rank() - 1].iter().copied().product();
    let rows = r.reshape(value, [rows, Expr::int(count)])?;
    (0..count).map(|d| r.call("aten.select.int", [Arg::Value(rows), int(1), int(d)])).collect()
}

/// Counts of points between edges of bins of one width, and the edges.
fn even_counts(r: &mut Rewriter<'_>, points: &[Value], bins: &[Expr]) -> Result<Vec<Value>, OpError> {
    let edges = (0..points.len()).map(|d| even_edges(r, points[d], bins[d], d));
    let edges = edges.collect::<Result<Vec<_>, _>>()?;
    let counts = counts_between(r, points, &edges)?;
    Ok([vec![counts], edges].concat())
}

/// Edges of bins of one width for the `d`-th coordinates: between the ends given, or the extremes; half a unit around equal ones.
fn even_edges(r: &mut Rewriter<'_>, x: Value, bins: Expr, d: usize) -> Result<Value, OpError> {
    let ty = r.ty(x)?;
    let dtype = ty.dtype;
    let args = |low: Arg, high: Arg| [low, high, Arg::Int(bins + 1), Arg::Dtype(dtype)];
    let ends = if r.args().has("range") {
        let range = r.args().get("range").as_list().map(<[Arg]>::to_vec).unwrap_or_default();
        let Some([Arg::Float(low), Arg::Float(high)]) = range.get(2 * d..2 * d + 2) else {
            return Err(r.args().bad("range", "two numbers for each dimension"));
        };
        Some((low.0, high.0))
    } else {
        ty.numel().is_zero().then_some((0.0, 0.0))
    };
    if let Some((low, high)) = ends {
        let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
        return r.call("aten.linspace.default", args(float(low), float(high)));
    }
    let (low, high) = (r.apply("aten.min.default", &[x])?, r.apply("aten.max.default", &[x])?);
    let range = r.sub(high, low)?;
    let is_finite = r.apply("aten.isfinite.default", &[range])?;
    let message = format!("{}: the range of the elements is not finite", r.args().op());
    r.call_all("aten._assert_async.msg", [Arg::Value(is_finite), Arg::Str(message)])?;
    let equal = r.apply("aten.eq.Tensor", &[low, high])?;
    let half = r.call("aten.mul.Scalar", [Arg::Value(equal), float(0.5)])?;
    let half = r.convert(half, dtype)?;
    let (low, high) = (r.sub(low, half)?, r.add(high, half)?);
    r.call("aten.linspace.Tensor_Tensor", args(Arg::Value(low), Arg::Value(high)))
}

/// How many points, or what sum of their weights, lie between neighbouring edges along each dimension: at a lower edge inside, at
/// an upper edge only of the last bin. A density adds up to 1 over space.
fn counts_between(r: &mut Rewriter<'_>, points: &[Value], edges: &[Value]) -> Result<Value, OpError> {
    r.args().of_types("self", &[Dtype::F32, Dtype::F64])?;
    let (rows, dtype) = (r.ty(points[0])?.numel(), r.ty(points[0])?.dtype);
    let mut bins = Vec::with_capacity(edges.len());
    let (mut place, mut inside) = (None, None);
    for (&x, &edges) in points.iter().zip(edges) {
        let ty = r.ty(edges)?;
        let &[count] = ty.sizes.as_slice() else {
            return Err(r.args().invalid(format!("expected a vector of edges, found {ty}")));
        };
        if ty.dtype != dtype {
            return Err(r.args().invalid(format!("expected edges of {dtype}, found {ty}")));
        }
        r.require(|cx, args| {
            let none = |_| args.invalid("expected at least one edge");
            cx.require(Rel::ge(count, 1), args.op()).map_err(none)
        })?;
        let (first, last) =
            (r.slice(edges, 0, Expr::zero(), Expr::one())?, r.slice(edges, 0, count - 1, count)?);
        let (above, below) =
            (r.apply("aten.ge.Tensor", &[x, first])?, r.apply("aten.le.Tensor", &[x, last])?);
        let own = r.apply("aten.logical_and.default", &[above, below])?;
        let passed = [Arg::Value(edges), Arg::Value(x), Arg::Bool(false), Arg::Bool(true)];
        let passed = r.call("aten.searchsorted.Tensor", passed)?;
        let bin = r.call("aten.sub.Scalar", [Arg::Value(passed), int(1)])?;
        let bin = r.call("aten.clamp_max.default", [Arg::Value(bin), Arg::Int(count - 2)])?;
        (place, inside) = match (place, inside) {
            (Some(place), Some(inside)) => {
                let before = r.call("aten.mul.Scalar", [Arg::Value(place), Arg::Int(count - 1)])?;
                (Some(r.add(before, bin)?), Some(r.apply("aten.logical_and.default", &[inside, own])?))
            }
            _ => (Some(bin), Some(own)),
        };
        bins.push(count - 1);
    }
    let (Some(place), Some(inside)) = (place, inside) else {
        return Err(r.args().invalid("expected points of at least one coordinate"));
    };
    // What is outside goes to a place behind the last bin.
    let total: Expr = bins.iter().copied().product();
    let place = r.call("aten.where.ScalarOther", [Arg::Value(inside), Arg::Value(place), Arg::Int(total)])?;
    let amounts = match r.args().opt_tensor("weight")?.map(|t| t.value) {
        Some(weights) => r.reshape(weights, [Expr::int(-1)])?,
        None => r.filled([rows], 1.0, dtype)?,
    };
    let none = r.filled([total + 1], 0.0, dtype)?;
    let counts = r.call(
        "aten.scatter_add.default",
        [Arg::Value(none), int(0), Arg::Value(place), Arg::Value(amounts)],
    )?;
    let counts = r.slice(counts, 0, Expr::zero(), total)?;
    let mut counts = r.reshape(counts, bins.clone())?;
    if !r.args().flag("density")? {
        return r.apply("aten.clone.default", &[counts]);
    }
    let sum = r.apply("aten.sum.default", &[counts])?;
    counts = r.div(counts, sum)?;
    for (d, &edges) in edges.iter().enumerate() {
        let count = bins[d] + 1;
        let (low, high) =
            (r.slice(edges, 0, Expr::zero(), count - 1)?, r.slice(edges, 0, Expr::one(), count)?);
        let widths = r.sub(high, low)?;
        let mut sizes = vec![Expr::one(); bins.len()];
        sizes[d] = bins[d];
        let widths = r.reshape(widths, sizes)?;
        counts = r.div(counts, widths)?;
    }
    Ok(counts)
}
