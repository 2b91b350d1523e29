//! Lowers operators that count equal elements: distinct values, repetitions, histograms of integers.

use crate::args::Args;
use crate::body::Body;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::same_sizes;
use crate::lower::Lower;
use crate::ops::data::stated_size;
use crate::ops::index::flattened;
use crate::traits::Complex;
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, TensorType, Type, Value, contiguous_strides};
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten._unique2.default", unique_types, unique),
    lower("aten.unique_dim.default", unique_types, unique),
    lower("aten.unique_consecutive.default", unique_types, unique),
    lower("aten.repeat_interleave.Tensor", repeat_type, repeat),
    decompose("aten.repeat_interleave.self_Tensor", repeat_along).complex(Complex::Rewritten),
    lower("aten.bincount.default", histogram_type, histogram),
];

// Distinct values are the first elements of runs of equal ones, in a sorted vector or in the operand as it is. Where there is a
// dimension, what is distinct are slices along it, in the order of their elements.

/// The dimension whose slices are told apart, if there is one.
fn slices_along(args: &Args<'_>) -> Result<Option<usize>, OpError> {
    if !args.has("dim") {
        return Ok(None);
    }
    if args.op() == "aten.unique_consecutive.default" && args.literal("dim")? < 0 {
        // PyTorch states a type of another rank for it.
        return Err(args.unsupported("a dimension that is counted from the last one"));
    }
    args.dim("dim", args.tensor("self")?.ty.rank()).map(Some)
}

/// Values, for each element of the operand the position of its value, how often each value is there. What is not asked for is
/// empty, as it is in eager, which gives all three of slices.
fn unique_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let dim = slices_along(args)?;
    let count = distinct(args, dim)?;
    let most = dim.map_or(x.numel(), |d| x.sizes.get(d).copied().unwrap_or(Expr::one()));
    cx.require(Rel::le(0, count), args.op())?;
    cx.require(Rel::le(count, most), args.op())?;
    let tensor = |dtype, sizes| Type::Tensor(TensorType::contiguous(dtype, sizes));
    let Some(d) = dim else {
        let inverse = if args.flag("return_inverse")? { x.sizes.clone() } else { vec![Expr::zero()] };
        let counts = if args.flag("return_counts")? { count } else { Expr::zero() };
        return Ok(vec![
            tensor(x.dtype, vec![count]),
            tensor(Dtype::I64, inverse),
            tensor(Dtype::I64, vec![counts]),
        ]);
    };
    let mut sizes = x.sizes.clone();
    match sizes.get_mut(d) {
        Some(size) => *size = count,
        None => return Err(args.unsupported("an operand without dimensions")),
    }
    // PyTorch counts strides as if no size were 0, where it is not known.
    let at_least_one: Vec<Expr> = sizes.iter().map(|&size| size.max(Expr::one())).collect();
    let strides = contiguous_strides(&at_least_one);
    let values = match args.result(0) {
        Some(stated) if stated.strides == strides => TensorType::strided(x.dtype, sizes, strides),
        _ => TensorType::contiguous(x.dtype, sizes),
    };
    Ok(vec![Type::Tensor(values), tensor(Dtype::I64, vec![most]), tensor(Dtype::I64, vec![count])])
}

/// How many distinct values there are, as the file calls it.
fn distinct(args: &Args<'_>, dim: Option<usize>) -> Result<Expr, OpError> {
    let of_result = |i: usize, d: usize| args.result(i).and_then(|ty| ty.sizes.get(d).copied());
    let has_counts = dim.is_some() || args.flag("return_counts")?;
    let counts = if has_counts { of_result(2, 0) } else { None };
    let count = of_result(0, dim.unwrap_or(0)).or(counts);
    count.ok_or_else(|| args.unsupported("results whose size nothing names"))
}

/// What is told apart, along the first dimension: elements in row-major order, or slices along the dimension.
fn told_apart(lw: &mut Lower<'_>, args: &Args<'_>, dim: Option<usize>) -> Result<ValueAccess, OpError> {
    let x = args.tensor("self")?;
    let access = lw.access(x)?;
    let Some(d) = dim else {
        let to = lw.temp("vector", x.ty.dtype, &[x.ty.numel()]);
        let strides = contiguous_strides(&x.ty.sizes);
        lw.nest(&x.ty.sizes, |b, at| {
            let value = b.load(&access, at);
            let place = at.iter().zip(&strides).map(|(&at, &stride)| at * stride).sum();
            b.store(&to, &[place], value);
            Ok(())
        })?;
        return Ok(to);
    };
    let mut sizes = x.ty.sizes.clone();
    let along = sizes.remove(d);
    sizes.insert(0, along);
    let to = lw.temp("slices", x.ty.dtype, &sizes);
    lw.nest(&x.ty.sizes, |b, at| {
        let value = b.load(&access, at);
        b.store(&to, &slice_first(at, d), value);
        Ok(())
    })?;
    Ok(to)
}

/// Coordinates with that of dimension `d` before the others.
fn slice_first(at: &[Expr], d: usize) -> Vec<Expr> {
    [&at[d..=d], &at[..d], &at[d + 1..]].concat()
}

/// The results for runs of equal slices, which are sorted before unless only neighbours are compared. NaN differs from itself.
fn unique(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let dim = slices_along(args)?;
    let (slices, count) = (told_apart(lw, args, dim)?, distinct(args, dim)?);
    let (n, rest) = (slices.sizes[0], slices.sizes[1..].to_vec());
    let order = if args.op() == "aten.unique_consecutive.default" {
        None
    } else {
        let order = lw.temp("order", Dtype::I64, &[n]);
        match dim {
            Some(_) => {
                let width = rest.iter().copied().product();
                lw.call("sort_rows", &[&slices], &[&order], vec![n, width]);
            }
            None => {
                let sorted = lw.temp("sorted", slices.dtype, &[n]);
                let ints = vec![Expr::one(), n, Expr::one(), Expr::zero()];
                lw.call("sort", &[&slices], &[&sorted, &order], ints);
            }
        }
        Some(order)
    };
    // Which slice comes at a place in order, where that is inside.
    let ordered = |b: &mut Body<'_>, at: Expr, guard: Vec<Rel>| match &order {
        Some(order) => {
            let place = b.load_if(order, &[at], guard, Scalar::Int(0));
            b.bind(place, n)
        }
        None => at,
    };
    let begins = lw.temp("begins", Dtype::Bool, &[n]);
    lw.nest(&[n], |b, at| {
        let is_inner = vec![Rel::le(1, at[0])];
        let (own, before) = (ordered(b, at[0], Vec::new()), ordered(b, at[0] - 1, is_inner.clone()));
        let columns: Vec<Expr> = rest.iter().map(|&size| b.reduced_axis(size)).collect();
        let value = b.load(&slices, &[&[own], &columns[..]].concat());
        let zero = Scalar::zero(slices.dtype);
        let before = b.load_if(&slices, &[&[before], &columns[..]].concat(), is_inner, zero);
        let mut differs = b.ne(value, before);
        if !columns.is_empty() {
            differs = b.reduce(ReduceOp::Any, differs);
        }
        let is_first = b.cond(Rel::eq(at[0], 0));
        let begins_here = b.or(is_first, differs);
        b.store(&begins, at, begins_here);
        Ok(())
    })?;
    let places = lw.places(&begins, count)?.remove(0);
    if let Some(values) = lw.result(args, 0) {
        lw.nest(&values.sizes, |b, at| {
            let mut coords = slice_first(at, dim.unwrap_or(0));
            let place = b.load(&places, &coords[..1]);
            let place = b.bind(place, n);
            coords[0] = ordered(b, place, Vec::new());
            let value = b.load(&slices, &coords);
            b.store(&values, at, value);
            Ok(())
        })?;
    }
    if dim.is_some() || args.flag("return_inverse")? {
        inverse(lw, args, &begins, order.as_ref())?;
    } else {
        lw.nothing(args, 1)?;
    }
    if dim.is_some() || args.flag("return_counts")? {
        lengths(lw, args, &places, n)?;
    } else {
        lw.nothing(args, 2)?;
    }
    Ok(())
}

/// The run that each element, or slice, of the operand is in.
fn inverse(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    begins: &ValueAccess,
    order: Option<&ValueAccess>,
) -> Result<(), OpError> {
    let Some(inverse) = lw.result(args, 1) else { return Ok(()) };
    let n = begins.sizes[0];
    let rank = lw.temp("rank", Dtype::I64, &[n]);
    lw.nest(&[n], |b, at| {
        let begins_here = b.read_as(begins, at, Dtype::I64);
        let begun = b.scan(ReduceOp::Sum, begins_here, at[0]);
        let one = b.literal(Scalar::Int(1), Dtype::I64);
        let rank_here = b.sub(begun, one);
        b.store(&rank, at, rank_here);
        Ok(())
    })?;
    let strides = contiguous_strides(&inverse.sizes);
    let sizes = inverse.sizes.clone();
    match order {
        Some(order) => lw.nest(&[n], |b, at| {
            let (rank, place) = (b.load(&rank, at), b.load(order, at));
            let place = b.bind(place, n);
            let digit = |d: usize| place.floordiv(strides[d]).modulo(sizes[d]);
            b.store(&inverse, &(0..sizes.len()).map(digit).collect::<Vec<_>>(), rank);
            Ok(())
        }),
        None => lw.nest(&sizes, |b, at| {
            let place = at.iter().zip(&strides).map(|(&at, &stride)| at * stride).sum();
            let rank = b.load(&rank, &[place]);
            b.store(&inverse, at, rank);
            Ok(())
        }),
    }
}

/// How long each run is, of those that begin at `places`.
fn lengths(lw: &mut Lower<'_>, args: &Args<'_>, places: &ValueAccess, n: Expr) -> Result<(), OpError> {
    let (Some(lengths), count) = (lw.result(args, 2), places.sizes[0]) else { return Ok(()) };
    lw.nest(&[count], |b, at| {
        let here = b.load(places, at);
        let is_inner = Rel::lt(at[0] + 1, count);
        let next = b.load_if(places, &[at[0] + 1], vec![is_inner], Scalar::Int(0));
        let (end, has_next) = (b.index(n, Dtype::I64), b.cond(is_inner));
        let next = b.select(has_next, next, end);
        let length = b.sub(next, here);
        b.store(&lengths, at, length);
        Ok(())
    })
}

/// Positions, each as often as it says.
fn repeat_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let repeats = args.tensor("repeats")?.ty;
    args.of_types("repeats", &[Dtype::I64, Dtype::I32])?;
    if repeats.rank() != 1 {
        return Err(args.invalid(format!("expected a vector of repeats, found {repeats}")));
    }
    let total = stated_size(args, 0)?;
    cx.require(Rel::le(0, total), args.op())?;
    Ok(vec![Type::Tensor(TensorType::contiguous(repeats.dtype, vec![total]))])
}

/// Each position begins where the repeats before it end: the running number of beginnings says which one a place has.
fn repeat(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let repeats = lw.access(args.tensor("repeats")?)?;
    let (n, total) = (repeats.sizes[0], stated_size(args, 0)?);
    let (ends, sum) = (lw.temp("ends", Dtype::I64, &[n]), lw.temp("total", Dtype::I64, &[]));
    let positive = lw.temp("positive", Dtype::Bool, &[n]);
    lw.nest(&[n], |b, at| {
        let count = b.read_as(&repeats, at, Dtype::I64);
        let zero = b.literal(Scalar::Int(0), Dtype::I64);
        let holds = b.le(zero, count);
        b.store(&positive, at, holds);
        Ok(())
    })?;
    lw.check(&positive, format!("{}: repeats can not be negative", args.op()));
    lw.nest(&[n], |b, at| {
        let count = b.read_as(&repeats, at, Dtype::I64);
        let end = b.scan(ReduceOp::Sum, count, at[0]);
        b.store(&ends, at, end);
        Ok(())
    })?;
    lw.nest(&[], |b, _| {
        let at = b.reduced_axis(n);
        let count = b.read_as(&repeats, &[at], Dtype::I64);
        let all = b.reduce(ReduceOp::Sum, count);
        b.store(&sum, &[], all);
        Ok(())
    })?;
    lw.size(total, &sum)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let ended = lw.temp("ended", Dtype::I64, &[total + 1]);
    lw.nest(&[total + 1], |b, at| {
        let zero = b.literal(Scalar::Int(0), Dtype::I64);
        b.store(&ended, at, zero);
        Ok(())
    })?;
    lw.nest(&[n], |b, at| {
        let end = b.load(&ends, at);
        let end = b.bind(end, total + 1);
        let one = b.literal(Scalar::Int(1), Dtype::I64);
        b.store_combined(&ended, &[end], one, Some(ReduceOp::Sum));
        Ok(())
    })?;
    lw.nest(&[total], |b, at| {
        let ended_here = b.load(&ended, at);
        let position = b.scan(ReduceOp::Sum, ended_here, at[0]);
        let position = b.cast(position, out.dtype);
        b.store(&out, at, position);
        Ok(())
    })
}

/// Slices along a dimension, each as often as its number says; one number is for all.
fn repeat_along(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (mut x, mut repeats) = (r.args().tensor("self")?.value, r.args().tensor("repeats")?.value);
    let out = r.args().result(0).cloned();
    let out = out.ok_or_else(|| r.args().unsupported("a result whose size nothing names"))?;
    if !r.args().has("dim") {
        x = flattened(r, x)?;
    }
    let rank = r.ty(x)?.rank();
    let dim = if r.args().has("dim") { r.args().dim("dim", rank)? } else { 0 };
    if rank == 0 {
        return Err(r.args().unsupported("an operand without dimensions"));
    }
    let (size, dtype) = (r.ty(x)?.sizes[dim], r.ty(repeats)?.dtype);
    if r.ty(repeats)?.numel().is_one() {
        repeats = flattened(r, repeats)?;
        repeats = r.call("aten.expand.default", [Arg::Value(repeats), Arg::ints([size])])?;
    }
    let found = r.ty(repeats)?.sizes;
    r.require(|cx, args| same_sizes(cx, args, "argument `repeats`", &found, &[size]))?;
    let ty = TensorType::contiguous(dtype, vec![out.sizes[dim]]);
    let positions = r.stated("aten.repeat_interleave.Tensor", [Arg::Value(repeats)], ty)?;
    let dim = Arg::Int(Expr::int(dim as i64));
    Ok(vec![r.call("aten.index_select.default", [Arg::Value(x), dim, Arg::Value(positions)])?])
}

/// Counts, or sums of weights: of floats as they are, else of f64.
fn histogram_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    if x.rank() != 1 || !x.dtype.is_int() {
        return Err(args.invalid(format!("expected a vector of integers, found {x}")));
    }
    let dtype = match args.opt_tensor("weights")? {
        None => Dtype::I64,
        Some(weights) => {
            same_sizes(cx, args, "argument `weights`", &weights.ty.sizes, &x.sizes)?;
            if weights.ty.dtype == Dtype::F32 { Dtype::F32 } else { Dtype::F64 }
        }
    };
    let size = stated_size(args, 0)?;
    cx.require(Rel::le(0, size), args.op())?;
    Ok(vec![Type::Tensor(TensorType::contiguous(dtype, vec![size]))])
}

fn histogram(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, size) = (lw.access(args.tensor("self")?)?, stated_size(args, 0)?);
    let weights = args.opt_tensor("weights")?.map(|tensor| lw.access(tensor)).transpose()?;
    let (n, least) = (x.sizes[0], args.opt_int("minlength")?.unwrap_or(Expr::zero()));
    let bins = lw.temp("bins", Dtype::I64, &[]);
    lw.nest(&[], |b, _| {
        let at = b.reduced_axis(n);
        let value = b.read_as(&x, &[at], Dtype::I64);
        let one = b.literal(Scalar::Int(1), Dtype::I64);
        let needed = b.add(value, one);
        let needed = b.reduce(ReduceOp::Max, needed);
        let least = b.index(least, Dtype::I64);
        let needed = b.max(needed, least);
        b.store(&bins, &[], needed);
        Ok(())
    })?;
    lw.size(size, &bins)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&[size], |b, at| {
        let zero = b.literal(Scalar::Int(0), out.dtype);
        b.store(&out, at, zero);
        Ok(())
    })?;
    lw.nest(&[n], |b, at| {
        let bin = b.read_as(&x, at, Dtype::I64);
        let bin = b.bind(bin, size);
        let amount = match &weights {
            Some(weights) => b.read_as(weights, at, out.dtype),
            None => b.literal(Scalar::Int(1), out.dtype),
        };
        b.store_combined(&out, &[bin], amount, Some(ReduceOp::Sum));
        Ok(())
    })
}
