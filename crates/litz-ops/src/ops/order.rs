//! Lowers sorting and what follows from it: order statistics, searches in sorted boundaries, running extremes.

use crate::args::{Args, Operand};
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{preserved_strides, same_shape, same_sizes};
use crate::lower::Lower;
use crate::promote::{promote_types, result_type};
use litz_ir::graph::{Arg, Float, TensorType, Type, Value, contiguous_strides};
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.sort.default", sort_types, sort),
    lower("aten.sort.stable", sort_types, sort),
    lower("aten.topk.default", topk_types, topk),
    decompose("aten.argsort.default", argsort),
    decompose("aten.argsort.stable", argsort),
    decompose("aten.msort.default", |r| {
        let x = r.args().tensor("self")?.value;
        Ok(vec![r.call("aten.sort.default", [Arg::Value(x), Arg::Int(Expr::zero())])?])
    }),
    decompose("aten.kthvalue.default", |r| {
        let (k, dim) = (r.args().int("k")?, r.args().int("dim")?);
        let x = r.args().tensor("self")?.value;
        let keep = r.args().flag("keepdim")?;
        r.require(|cx, args| {
            let ty = args.tensor("self")?.ty;
            at_most_size(cx, args, ty, args.dim("dim", ty.rank())?, k, 1)
        })?;
        ranked(r, x, dim, k - 1, keep)
    }),
    decompose("aten.median.default", |r| {
        let x = r.args().tensor("self")?.value;
        let x = r.call("aten.reshape.default", [Arg::Value(x), Arg::ints([Expr::int(-1)])])?;
        Ok(vec![median(r, x, Expr::zero(), false)?[0]])
    }),
    decompose("aten.median.dim", |r| {
        let (x, dim) = (r.args().tensor("self")?.value, r.args().int("dim")?);
        let keep = r.args().flag("keepdim")?;
        median(r, x, dim, keep)
    }),
    decompose("aten.quantile.scalar", quantile),
    lower("aten.bucketize.Tensor", rank_type, |lw, args| ranks(lw, args, "boundaries")),
    lower("aten.searchsorted.Tensor", rank_type, |lw, args| ranks(lw, args, "sorted_sequence")),
    lower("aten.cummax.default", sort_types, |lw, args| running_extreme(lw, args, ReduceOp::Max)),
    lower("aten.cummin.default", sort_types, |lw, args| running_extreme(lw, args, ReduceOp::Min)),
    lower("aten.logcumsumexp.default", running_type, log_running_sum),
    decompose("aten.aminmax.default", |r| {
        let x = r.args().tensor("self")?.value;
        let dims =
            if r.args().has("dim") { Arg::ints([r.args().int("dim")?]) } else { Arg::List(Vec::new()) };
        let keep = r.args().get("keepdim").clone();
        let low = r.call("aten.amin.default", [Arg::Value(x), dims.clone(), keep.clone()])?;
        let high = r.call("aten.amax.default", [Arg::Value(x), dims, keep])?;
        Ok(vec![low, high])
    }),
];

// Sorting is a routine of the runtime on a contiguous buffer `[outer, length, inner]`, along the middle.

fn sort_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    args.dim("dim", x.rank())?;
    let strides = match args.op() {
        "aten.cummax.default" | "aten.cummin.default" => contiguous_strides(&x.sizes),
        _ => preserved_strides(cx.facts, x),
    };
    let values = TensorType { strides, ..x.clone() };
    let indices = TensorType { dtype: Dtype::I64, ..values.clone() };
    Ok(vec![Type::Tensor(values), Type::Tensor(indices)])
}

fn topk_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let mut sizes = x.sizes.clone();
    let (along, k) = (args.dim("dim", x.rank())?, args.int("k")?);
    at_most_size(cx, args, x, along, k, 0)?;
    if let Some(size) = sizes.get_mut(along) {
        *size = k;
    }
    let strides = contiguous_strides(&sizes);
    let values = TensorType::strided(x.dtype, sizes, strides);
    let indices = TensorType { dtype: Dtype::I64, ..values.clone() };
    Ok(vec![Type::Tensor(values), Type::Tensor(indices)])
}

/// `k` is from `least` to the number of elements along a dimension.
fn at_most_size(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    x: &TensorType,
    along: usize,
    k: Expr,
    least: i64,
) -> Result<(), OpError> {
    let size = x.sizes.get(along).copied().unwrap_or(Expr::one());
    let outside = |_| args.invalid(format!("{k} of {size} elements along dimension {along}"));
    cx.require(Rel::ge(k, least), args.op()).map_err(outside)?;
    cx.require(Rel::le(k, size), args.op()).map_err(outside)
}

/// `sort(x) -> values, indices` with integers `outer, length, inner, descending`; stable, NaN as the largest.
fn sort(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let descending = Expr::int(i64::from(args.flag("descending")?));
    along_dim(lw, args, "sort", None, &[descending])
}

/// `topk(x) -> values, indices` with integers `outer, length, inner, k, largest`; sorted, NaN as the largest.
fn topk(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let k = args.int("k")?;
    let largest = Expr::int(i64::from(args.flag("largest")?));
    along_dim(lw, args, "topk", Some(k), &[k, largest])
}

/// Calls a routine that orders along `dim` and keeps `count` elements, or all.
fn along_dim(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    routine: &str,
    count: Option<Expr>,
    rest: &[Expr],
) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let access = lw.access(x)?;
    let source = lw.contiguous(&access, "source")?;
    let mut sizes = x.ty.sizes.clone();
    let length = sizes.get(along).copied().unwrap_or(Expr::one());
    if let (Some(size), Some(count)) = (sizes.get_mut(along), count) {
        *size = count;
    }
    let (values, indices) = (lw.temp("values", x.ty.dtype, &sizes), lw.temp("indices", Dtype::I64, &sizes));
    let outer = sizes.iter().take(along).copied().product();
    let inner = sizes.iter().skip(along + 1).copied().product();
    lw.call(routine, &[&source], &[&values, &indices], [&[outer, length, inner], rest].concat());
    lw.set_result(args, 0, values);
    lw.set_result(args, 1, indices);
    Ok(())
}

fn argsort(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, dim) = (r.args().tensor("self")?.value, r.args().get("dim").clone());
    let descending = r.args().get("descending").clone();
    let results = r.call_all("aten.sort.default", [Arg::Value(x), dim, descending])?;
    Ok(results.into_iter().flatten().skip(1).collect())
}

/// The value of one rank along a dimension, counted from the smallest, and its position.
fn ranked(r: &mut Rewriter<'_>, x: Value, dim: Expr, rank: Expr, keep: bool) -> Result<Vec<Value>, OpError> {
    if r.ty(x)?.rank() == 0 {
        let zeros = r.call("aten.zeros_like.default", [Arg::Value(x), Arg::Dtype(Dtype::I64)])?;
        return Ok(vec![r.apply("aten.clone.default", &[x])?, zeros]);
    }
    let sorted = r.call_all("aten.sort.default", [Arg::Value(x), Arg::Int(dim)])?;
    let mut results = Vec::new();
    for value in sorted.into_iter().flatten() {
        let mut picked = r.call("aten.select.int", [Arg::Value(value), Arg::Int(dim), Arg::Int(rank)])?;
        if keep {
            picked = r.call("aten.unsqueeze.default", [Arg::Value(picked), Arg::Int(dim)])?;
        }
        results.push(r.call("aten.clone.default", [Arg::Value(picked), CONTIGUOUS])?);
    }
    Ok(results)
}

pub(crate) const CONTIGUOUS: Arg = Arg::MemoryFormat(litz_ir::graph::MemoryFormat::Contiguous);

/// The lower of the two elements in the middle; where there is a NaN, the first one.
fn median(r: &mut Rewriter<'_>, x: Value, dim: Expr, keep: bool) -> Result<Vec<Value>, OpError> {
    let ty = r.ty(x)?;
    let at = crate::args::wrap_dim(dim.as_int().unwrap_or(0), ty.rank()).unwrap_or(0);
    let length = ty.sizes.get(at).copied().unwrap_or(Expr::one());
    if length.is_zero() {
        // PyTorch gives NaN for the one, and refuses others.
        return Err(r.args().unsupported("a median of no elements"));
    }
    let middle = ranked(r, x, dim, (length - 1).floordiv(Expr::int(2)), keep)?;
    if !ty.dtype.is_float() || ty.rank() == 0 {
        return Ok(middle);
    }
    // Where there is a NaN, the largest flag is set, and its first position is that of the first NaN.
    let nan = r.apply("aten.isnan.default", &[x])?;
    let flags = r.call("aten._to_copy.default", [Arg::Value(nan), Arg::Dtype(Dtype::I64)])?;
    let args = [Arg::Value(flags), Arg::Int(dim), Arg::Bool(keep)];
    let worst = r.call_all("aten.max.dim", args)?;
    let [Some(any), Some(first)] = worst[..] else { return Ok(middle) };
    let any = r.call("aten._to_copy.default", [Arg::Value(any), Arg::Dtype(Dtype::Bool)])?;
    let value = r.call(
        "aten.masked_fill.Scalar",
        [Arg::Value(middle[0]), Arg::Value(any), Arg::Float(Float(f64::NAN))],
    )?;
    let position = r.apply("aten.where.self", &[any, first, middle[1]])?;
    Ok(vec![value, position])
}

/// An element of the sorted ones, or between two; NaN where there is one.
fn quantile(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.args().of_types("self", &[Dtype::F32, Dtype::F64])?;
    let (mut x, q) = (r.args().tensor("self")?.value, r.args().float("q")?);
    let whole = !r.args().has("dim");
    let rank = r.ty(x)?.rank();
    if whole {
        x = r.call("aten.reshape.default", [Arg::Value(x), Arg::ints([Expr::int(-1)])])?;
    }
    let at = if whole { 0 } else { r.args().dim("dim", rank)? };
    let (dim, ty) = (Expr::int(at as i64), r.ty(x)?);
    let length = ty.sizes.get(at).and_then(|n| n.as_int());
    let length = length.ok_or_else(|| r.args().unsupported("a symbolic number of elements"))?;
    let empty = |args: &Args<'_>| args.invalid(format!("expected elements, found {ty}"));
    r.require(|cx, args| {
        let mut sizes = ty.sizes.iter();
        sizes.try_for_each(|&n| cx.require(Rel::ge(n, 1), args.op()).map_err(|_| empty(args)))
    })?;
    if !(0.0..=1.0).contains(&q) {
        return Err(r.args().invalid(format!("expected a fraction between 0 and 1, found {q}")));
    }
    let place = q * (length - 1) as f64;
    let (low, weight) = match r.args().str("interpolation")? {
        "" | "linear" => (place.floor(), place.fract()),
        "lower" => (place.floor(), 0.0),
        "higher" => (place.ceil(), 0.0),
        "nearest" => (place.round_ties_even(), 0.0),
        "midpoint" => (place.floor(), if place.fract() > 0.0 { 0.5 } else { 0.0 }),
        _ => return Err(r.args().bad("interpolation", "linear, lower, higher, midpoint or nearest")),
    };
    let sorted = r.call("aten.sort.default", [Arg::Value(x), Arg::Int(dim)])?;
    let pick = |r: &mut Rewriter<'_>, i: i64| {
        r.call("aten.select.int", [Arg::Value(sorted), Arg::Int(dim), Arg::Int(Expr::int(i))])
    };
    let mut result = pick(r, low as i64)?;
    if weight > 0.0 {
        let high = pick(r, low as i64 + 1)?;
        let weight = Arg::Float(Float(weight));
        result = r.call("aten.lerp.Scalar", [Arg::Value(result), Arg::Value(high), weight])?;
    }
    let last = pick(r, length - 1)?;
    let nan = r.apply("aten.isnan.default", &[last])?;
    result = r.apply("aten.where.self", &[nan, last, result])?;
    if r.args().flag("keepdim")? {
        let kept: Vec<usize> = if whole { (0..rank).collect() } else { vec![at] };
        for d in kept {
            result = r.call("aten.unsqueeze.default", [Arg::Value(result), Arg::Int(Expr::int(d as i64))])?;
        }
    }
    Ok(vec![result])
}

/// Boundaries are a vector, or one for each row of elements.
fn rank_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let name = if args.has("boundaries") { "boundaries" } else { "sorted_sequence" };
    let bounds = args.tensor(name)?.ty;
    args.of_types("sorter", &[Dtype::I64])?;
    same_shape(cx, args, "sorter", &bounds.sizes)?;
    if name == "boundaries" && bounds.rank() != 1 {
        return Err(args.invalid(format!("expected a vector of boundaries, found {bounds}")));
    }
    if bounds.rank() != 1 || x.rank() == 0 {
        let rows = |ty: &TensorType| ty.sizes.split_last().map_or(Vec::new(), |(_, rows)| rows.to_vec());
        if bounds.rank() == 0 || bounds.rank() != x.rank().max(1) {
            return Err(args.invalid(format!("expected boundaries for each row of {x}, found {bounds}")));
        }
        same_sizes(cx, args, "rows of boundaries", &rows(bounds), &rows(x))?;
    }
    let dtype = if args.flag("out_int32")? { Dtype::I32 } else { Dtype::I64 };
    one(TensorType::contiguous(dtype, x.sizes.clone()))
}

/// Where each element belongs among boundaries: before equal ones, or with `right` behind them. It is found by halving, step by step as
/// eager mode does, so that boundaries that are not sorted and NaN among them give eager's places. Boundaries are a vector, or one for
/// each row of elements.
fn ranks(lw: &mut Lower<'_>, args: &Args<'_>, boundaries: &str) -> Result<(), OpError> {
    let right = match args.str("side")? {
        "" => args.flag("right")?,
        side => side == "right",
    };
    let (x, bounds) = (args.tensor("self")?, args.tensor(boundaries)?);
    let common = promote_types(x.ty.dtype, bounds.ty.dtype)
        .or(result_type(&[Operand::Tensor(x), Operand::Tensor(bounds)]))
        .ok_or_else(|| args.invalid("no common element type"))?
        .compute();
    let (x, bounds) = (lw.access(x)?, lw.access(bounds)?);
    let sorter = args.opt_tensor("sorter")?.map(|sorter| lw.access(sorter)).transpose()?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let Some(&length) = bounds.sizes.last() else { return Err(args.invalid("expected boundaries")) };
    let range = lw.loops.facts.bounds(length);
    // Each step halves what is left, and rounds down.
    let steps = i64::BITS - range.hi.max(0).leading_zeros();
    // Where there may be no boundaries the first one is not read.
    let extent = if range.lo >= 1 { length } else { length.max(1) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.read_as(&x, at, common);
        let lead = if bounds.rank() == 1 { &[] } else { &at[..at.len() - 1] };
        let (mut low, mut high) = (b.index(Expr::zero(), Dtype::I64), b.index(length, Dtype::I64));
        let [zero, one] = [0, 1].map(|number| b.literal(Scalar::Int(number), Dtype::I64));
        for _ in 0..steps {
            let is_open = b.lt(low, high);
            let rest = b.sub(high, low);
            let half = b.op(ScalarOp::Shr, &[rest, one]);
            let middle = b.add(low, half);
            let read = b.select(is_open, middle, zero);
            let mut step = b.bind(read, extent);
            if let Some(sorter) = &sorter {
                let sorted =
                    b.load_if(sorter, &[lead, &[step]].concat(), vec![Rel::lt(step, length)], Scalar::Int(0));
                step = b.bind(sorted, extent);
            }
            let bound =
                b.load_if(&bounds, &[lead, &[step]].concat(), vec![Rel::lt(step, length)], Scalar::Int(0));
            let bound = b.cast(bound, common);
            let stays = if right { b.gt(bound, v) } else { b.ge(bound, v) };
            let passed = b.not(stays);
            let passes = b.and(is_open, passed);
            let stays = b.and(is_open, stays);
            let next = b.add(middle, one);
            low = b.select(passes, next, low);
            high = b.select(stays, middle, high);
        }
        b.store(&out, at, low);
        Ok(())
    })
}

/// Running extremes, and of equal elements the last position; a NaN stays.
fn running_extreme(lw: &mut Lower<'_>, args: &Args<'_>, op: ReduceOp) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let access = lw.access(x)?;
    let values = match lw.result(args, 0) {
        Some(values) => values,
        None => lw.temp("values", x.ty.dtype, &x.ty.sizes),
    };
    lw.nest(&values.sizes, |b, at| {
        let v = b.read(&access, at);
        let v = at.get(along).map_or(v, |&axis| b.scan(op, v, axis));
        b.store(&values, at, v);
        Ok(())
    })?;
    let Some(indices) = lw.result(args, 1) else { return Ok(()) };
    lw.nest(&indices.sizes, |b, at| {
        let Some(&axis) = at.get(along) else {
            let zero = b.index(Expr::zero(), Dtype::I64);
            b.store(&indices, at, zero);
            return Ok(());
        };
        let (v, best) = (b.read(&access, at), b.read(&values, at));
        let (equal, nan) = (b.eq(v, best), b.ne(v, v));
        let leads = b.or(equal, nan);
        let (place, start) = (b.index(axis, Dtype::I64), b.index(Expr::zero(), Dtype::I64));
        let place = b.select(leads, place, start);
        let last = b.scan(ReduceOp::Max, place, axis);
        b.store(&indices, at, last);
        Ok(())
    })
}

fn running_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    args.dim("dim", x.rank())?;
    one(TensorType::contiguous(x.dtype, x.sizes.clone()))
}

/// `m + log(sum(exp(x - m)))` of the elements up to each, `m` the running maximum. Each sum starts anew, for it
/// is relative to a maximum of its own.
fn log_running_sum(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = x.ty.dtype.compute();
    let max = lw.temp("max", compute, &x.ty.sizes);
    lw.nest(&out.sizes, |b, at| {
        let v = b.read(&access, at);
        let m = at.get(along).map_or(v, |&axis| b.scan(ReduceOp::Max, v, axis));
        let (zero, inf, size) = (b.lit(m, 0.0), b.lit(m, f64::INFINITY), b.abs(m));
        let infinite = b.eq(size, inf);
        let m = b.select(infinite, zero, m);
        b.store(&max, at, m);
        Ok(())
    })?;
    lw.nest(&out.sizes, |b, at| {
        let m = b.read(&max, at);
        let mut coords = at.to_vec();
        let mut before = None;
        if let Some(coord) = coords.get_mut(along) {
            let step = b.reduced_axis(x.ty.sizes[along]);
            before = Some(b.cond(Rel::le(step, *coord)));
            *coord = step;
        }
        let v = b.read(&access, &coords);
        let shifted = b.sub(v, m);
        let mut e = b.exp(shifted);
        if let Some(before) = before {
            let zero = b.lit(e, 0.0);
            e = b.select(before, e, zero);
        }
        let sum = b.reduce(ReduceOp::Sum, e);
        let log = b.log(sum);
        let m = b.read(&max, at);
        let result = b.add(log, m);
        b.store(&out, at, result);
        Ok(())
    })
}
