//! Indexing by tensors: lookups, gathers, scatters, sorts.

use crate::args::{Args, Number, Tensor};
use crate::body::Body;
use crate::def::{OpDef, inplace, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{broadcast, iterated_strides, preserved_strides};
use crate::lower::Lower;
use crate::view::{Access, View, dim};
use litz_ir::graph::{TensorType, Type, contiguous_strides};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.embedding.default", embedding_type, embedding),
    lower("aten.index.Tensor", index_type, index),
    lower("aten._unsafe_index.Tensor", index_type, index),
    lower("aten.index_put.default", self_type, index_put),
    lower("aten._unsafe_index_put.default", self_type, index_put),
    lower("aten.index_select.default", index_select_type, index_select),
    lower("aten.gather.default", gather_type, gather),
    lower("aten.scatter.src", self_type, |lw, args| scatter(lw, args, None)),
    lower("aten.scatter.value", self_type, |lw, args| scatter(lw, args, None)),
    lower("aten.scatter_add.default", self_type, |lw, args| scatter(lw, args, Some(ReduceOp::Sum))),
    lower("aten.index_copy.default", self_type, |lw, args| index_along(lw, args, None)),
    lower("aten.index_add.default", self_type, |lw, args| index_along(lw, args, Some(ReduceOp::Sum))),
    lower("aten.slice_scatter.default", self_type, slice_scatter),
    lower("aten.select_scatter.default", self_type, select_scatter),
    lower("aten.sort.default", sort_types, sort),
    lower("aten.sort.stable", sort_types, sort),
    lower("aten.topk.default", topk_types, topk),
    inplace("aten.index_put_.default", "aten.index_put.default"),
    inplace("aten.index_copy_.default", "aten.index_copy.default"),
    inplace("aten.index_add_.default", "aten.index_add.default"),
    inplace("aten.scatter_.src", "aten.scatter.src"),
    inplace("aten.scatter_.value", "aten.scatter.value"),
    inplace("aten.scatter_add_.default", "aten.scatter_add.default"),
];

/// A fresh tensor with the type of `self`.
fn self_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    one(TensorType { strides: preserved_strides(cx.facts, x), ..x.clone() })
}

fn embedding_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (w, indices) = (args.tensor("weight")?.ty, args.tensor("indices")?.ty);
    if w.rank() != 2 {
        return Err(args.invalid("expected a matrix as weight"));
    }
    one(TensorType::contiguous(w.dtype, [&indices.sizes[..], &w.sizes[1..]].concat()))
}

fn embedding(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (w, indices) = (lw.access(args.tensor("weight")?)?, lw.access(args.tensor("indices")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let (place, feature) = at.split_at(indices.rank());
        let row = b.load(&indices, place);
        let row = b.bind(row, w.sizes[0]);
        let v = b.load(&w, &[row, feature[0]]);
        b.store(&out, at, v);
        Ok(())
    })
}

// Advanced indexing: index tensors broadcast together and take the place of the dimensions they index, or the front
// when those dimensions are not neighbours.

struct Indexing<'a> {
    indices: Vec<Option<Tensor<'a>>>,
    /// The broadcast shape of the index tensors.
    shape: Vec<Expr>,
    /// Position of `shape` in the result.
    at: usize,
    /// Sizes of the result.
    sizes: Vec<Expr>,
}

fn indexing<'a>(cx: &mut InferCx<'_>, args: &Args<'a>, x: &TensorType) -> Result<Indexing<'a>, OpError> {
    let mut indices = args.opt_tensors("indices")?;
    if indices.len() > x.rank() {
        return Err(args.bad("indices", &format!("at most {} indices", x.rank())));
    }
    if indices.iter().flatten().any(|t| matches!(t.ty.dtype, Dtype::Bool | Dtype::U8)) {
        return Err(args.unsupported("an index of truth values, whose result size depends on data,"));
    }
    indices.resize(x.rank(), None);
    let shapes: Vec<&[Expr]> = indices.iter().flatten().map(|t| t.ty.sizes.as_slice()).collect();
    let shape = broadcast(cx, &shapes, args.op())?;
    let given: Vec<usize> = (0..x.rank()).filter(|&d| indices[d].is_some()).collect();
    let adjacent = given.windows(2).all(|w| w[1] == w[0] + 1);
    let at = if adjacent { given.first().copied().unwrap_or(0) } else { 0 };
    let others = (0..x.rank()).filter(|&d| indices[d].is_none()).map(|d| x.sizes[d]);
    let mut sizes: Vec<Expr> = others.collect();
    sizes.splice(at..at, shape.iter().copied());
    Ok(Indexing { indices, shape, at, sizes })
}

fn index_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let indexing = indexing(cx, args, x)?;
    // Eager iterates over the operand, its indexed dimensions with stride 0, and the index tensors.
    let (at, rank) = (indexing.at, indexing.sizes.len());
    let others = (0..x.rank()).filter(|&d| indexing.indices[d].is_none()).map(|d| x.strides[d]);
    let mut own: Vec<Expr> = others.collect();
    own.splice(at..at, vec![Expr::zero(); indexing.shape.len()]);
    let mut operands = vec![own];
    for index in indexing.indices.iter().flatten() {
        let mut strides = vec![Expr::zero(); rank];
        let lead = at + indexing.shape.len() - index.ty.rank();
        for d in 0..index.ty.rank() {
            let expanded = index.ty.sizes[d].is_one() && !indexing.sizes[lead + d].is_one();
            strides[lead + d] = if expanded { Expr::zero() } else { index.ty.strides[d] };
        }
        operands.push(strides);
    }
    let strides = iterated_strides(cx.facts, &operands, &indexing.sizes);
    one(TensorType { dtype: x.dtype, sizes: indexing.sizes, strides })
}

/// Coordinates of the indexed operand, from those of the result.
fn indexed_coords(
    lw: &Lower<'_>,
    indexing: &Indexing<'_>,
    sizes: &[Expr],
) -> Result<impl Fn(&mut Body<'_>, &[Expr]) -> Vec<Expr> + use<>, OpError> {
    let accesses: Vec<Option<Access>> = indexing
        .indices
        .iter()
        .map(|t| t.map(|t| Ok(lw.access(t)?.broadcast(&indexing.shape))).transpose())
        .collect::<Result<_, OpError>>()?;
    let (first, count, sizes) = (indexing.at, indexing.shape.len(), sizes.to_vec());
    Ok(move |b: &mut Body<'_>, at: &[Expr]| {
        let place = &at[first..first + count];
        let mut others = at[..first].iter().chain(&at[first + count..]);
        let mut coords = Vec::with_capacity(sizes.len());
        for (access, &size) in accesses.iter().zip(&sizes) {
            coords.push(match access {
                Some(access) => {
                    let i = b.load(access, place);
                    b.bind_wrapped(i, size)
                }
                None => others.next().copied().unwrap_or(Expr::zero()),
            });
        }
        coords
    })
}

fn index(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let indexing = indexing(&mut lw.infer_cx(), args, x.ty)?;
    let coords = indexed_coords(lw, &indexing, &x.ty.sizes)?;
    let x = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let coords = coords(b, at);
        let v = b.load(&x, &coords);
        b.store(&out, at, v);
        Ok(())
    })
}

/// The operand's contents in the result's buffer, for scatters to write into.
fn copied_self(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<Option<Access>, OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let Some(out) = lw.result(args, 0) else { return Ok(None) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.load(&x, at);
        b.store(&out, at, v);
        Ok(())
    })?;
    Ok(Some(out))
}

fn index_put(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    if let Some(mask) = whole_mask(args)? {
        return put_masked(lw, args, mask);
    }
    let x = args.tensor("self")?;
    let combine = args.flag("accumulate")?.then_some(ReduceOp::Sum);
    let indexing = indexing(&mut lw.infer_cx(), args, x.ty)?;
    let coords = indexed_coords(lw, &indexing, &x.ty.sizes)?;
    let values = lw.access(args.tensor("values")?)?.broadcast(&indexing.sizes);
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    lw.nest(&indexing.sizes, |b, at| {
        let v = b.load(&values, at);
        let coords = coords(b, at);
        b.store_combined(&out, &coords, v, combine);
        Ok(())
    })
}

/// The mask of `x[mask] = value` with one value and a mask of leading dimensions, which needs no scatter.
fn whole_mask<'a>(args: &Args<'a>) -> Result<Option<Tensor<'a>>, OpError> {
    let indices = args.opt_tensors("indices")?;
    let single = args.tensor("values")?.ty.numel().is_one() && !args.flag("accumulate")?;
    Ok(match indices[..] {
        [Some(mask)] if mask.ty.dtype == Dtype::Bool && single => Some(mask),
        _ => None,
    })
}

fn put_masked(lw: &mut Lower<'_>, args: &Args<'_>, mask: Tensor<'_>) -> Result<(), OpError> {
    let (x, mask, value) =
        (lw.access(args.tensor("self")?)?, lw.access(mask)?, lw.access(args.tensor("values")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let (keep, own) = (b.load(&mask, &at[..mask.rank()]), b.load(&x, at));
        let put = b.load(&value, &vec![Expr::zero(); value.rank()]);
        let put = b.cast(put, x.dtype);
        let v = b.select(keep, put, own);
        b.store(&out, at, v);
        Ok(())
    })
}

fn index_select_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, index) = (args.tensor("self")?.ty, args.tensor("index")?.ty);
    let mut sizes = x.sizes.clone();
    if let Some(size) = sizes.get_mut(args.dim("dim", x.rank())?) {
        *size = index.numel();
    }
    one(TensorType::contiguous(x.dtype, sizes))
}

fn index_select(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let (x, index) = (lw.access(x)?, lw.access(args.tensor("index")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let mut coords = at.to_vec();
        if let Some(coord) = coords.get_mut(along) {
            let i = b.load(&index, if index.rank() == 0 { &[] } else { &at[along..=along] });
            *coord = b.bind(i, x.sizes[along]);
        }
        let v = b.load(&x, &coords);
        b.store(&out, at, v);
        Ok(())
    })
}

fn gather_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let dtype = args.tensor("self")?.ty.dtype;
    one(TensorType::contiguous(dtype, args.tensor("index")?.ty.sizes.clone()))
}

fn gather(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let (x, index) = (lw.access(x)?, lw.access(args.tensor("index")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let coords = bound_along(b, &index, &x.sizes, at, along);
        let v = b.load(&x, &coords);
        b.store(&out, at, v);
        Ok(())
    })
}

/// The coordinates with the one along a dimension read from an index tensor.
fn bound_along(b: &mut Body<'_>, index: &Access, sizes: &[Expr], at: &[Expr], along: usize) -> Vec<Expr> {
    let mut coords = at.to_vec();
    if let Some(coord) = coords.get_mut(along) {
        let i = b.load(index, at);
        *coord = b.bind(i, sizes[along]);
    }
    coords
}

fn scatter(lw: &mut Lower<'_>, args: &Args<'_>, combine: Option<ReduceOp>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let index = lw.access(args.tensor("index")?)?;
    let source = args.opt_tensor("src")?.map(|t| lw.access(t)).transpose()?;
    let value = if source.is_none() { args.number("value")? } else { Number::Bool(false) };
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    lw.nest(&index.sizes, |b, at| {
        let coords = bound_along(b, &index, &out.sizes, at, along);
        let v: Val = match &source {
            Some(source) => b.load(source, at),
            None => b.number(value, out.dtype),
        };
        b.store_combined(&out, &coords, v, combine);
        Ok(())
    })
}

/// Slices of `source` to the places along `dim` that a vector of indices names.
fn index_along(lw: &mut Lower<'_>, args: &Args<'_>, combine: Option<ReduceOp>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let (index, source) = (lw.access(args.tensor("index")?)?, lw.access(args.tensor("source")?)?);
    let alpha = args.opt_float("alpha")?.unwrap_or(1.0);
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    lw.nest(&source.sizes, |b, at| {
        let mut coords = at.to_vec();
        if let Some(coord) = coords.get_mut(along) {
            let i = b.load(&index, if index.rank() == 0 { &[] } else { &at[along..=along] });
            *coord = b.bind(i, out.sizes[along]);
        }
        let mut v = b.load(&source, at);
        if alpha != 1.0 {
            v = b.cast(v, source.dtype.compute());
            let alpha = b.lit(v, alpha);
            v = b.mul(v, alpha);
        }
        b.store_combined(&out, &coords, v, combine);
        Ok(())
    })
}

fn slice_scatter(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let (start, len, step) = super::view::slice_range(&mut lw.infer_cx(), args, x.ty.sizes[along])?;
    let mut sizes = x.ty.sizes.clone();
    sizes[along] = len;
    let source = lw.access(args.tensor("src")?)?.broadcast(&sizes);
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    lw.nest(&sizes, |b, at| {
        let v = b.load(&source, at);
        let mut coords = at.to_vec();
        coords[along] = start + step * at[along];
        b.store(&out, &coords, v);
        Ok(())
    })
}

fn select_scatter(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let index = args.int("index")?;
    let negative = lw.infer_cx().known(Rel::lt(index, 0)) == Some(true);
    let index = if negative { index + x.ty.sizes[along] } else { index };
    let source = lw.access(args.tensor("src")?)?;
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    lw.nest(&source.sizes, |b, at| {
        let v = b.load(&source, at);
        let mut coords = at.to_vec();
        coords.insert(along, index);
        b.store(&out, &coords, v);
        Ok(())
    })
}

// Sorting is a routine of the runtime on rows: `sort` and `topk` take the rows of a contiguous matrix.

fn sort_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let strides = preserved_strides(cx.facts, x);
    let values = TensorType { strides, ..x.clone() };
    let indices = TensorType { dtype: Dtype::I64, ..values.clone() };
    Ok(vec![Type::Tensor(values), Type::Tensor(indices)])
}

fn topk_types(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let mut sizes = x.sizes.clone();
    if let Some(size) = sizes.get_mut(args.dim("dim", x.rank())?) {
        *size = args.int("k")?;
    }
    let strides = contiguous_strides(&sizes);
    let values = TensorType { dtype: x.dtype, sizes, strides };
    let indices = TensorType { dtype: Dtype::I64, ..values.clone() };
    Ok(vec![Type::Tensor(values), Type::Tensor(indices)])
}

/// `sort(x) -> values, indices` with integers `rows, columns, descending`; stable, NaN as the largest.
fn sort(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let descending = Expr::int(i64::from(args.flag("descending")?));
    on_rows(lw, args, "sort", |n| n, |_, rows, n| Ok(vec![rows, n, descending]))
}

/// `topk(x) -> values, indices` with integers `rows, columns, k, largest`; sorted, NaN as the largest.
fn topk(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let k = args.int("k")?;
    let largest = Expr::int(i64::from(args.flag("largest")?));
    on_rows(lw, args, "topk", |_| k, |_, rows, n| Ok(vec![rows, n, k, largest]))
}

/// Calls a routine on the rows along `dim`, which give rows of values and of positions.
fn on_rows(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    routine: &str,
    columns: impl Fn(Expr) -> Expr,
    ints: impl Fn(&Args<'_>, Expr, Expr) -> Result<Vec<Expr>, OpError>,
) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let rank = x.ty.rank();
    let along = args.dim("dim", rank)?;
    let access = lw.access(x)?;
    // The dimension moves to the end and back.
    let order: Vec<usize> = (0..rank).filter(|&d| d != along).chain((rank > 0).then_some(along)).collect();
    let mut to_rows = vec![Expr::zero(); rank];
    order.iter().enumerate().for_each(|(to, &from)| to_rows[from] = dim(to));
    let rows = lw.view(&access, &View::new(order.iter().map(|&d| x.ty.sizes[d]).collect(), to_rows));
    let source = lw.contiguous(&rows, "rows")?;
    let mut sizes = rows.sizes.clone();
    let n = sizes.last().copied().unwrap_or(Expr::one());
    if let Some(last) = sizes.last_mut() {
        *last = columns(n);
    }
    let (values, indices) = (lw.temp("values", x.ty.dtype, &sizes), lw.temp("indices", Dtype::I64, &sizes));
    let count = sizes.iter().rev().skip(1).product();
    let ints = ints(args, count, n)?;
    lw.call(routine, &[&source], &[&values, &indices], ints);
    let back: Vec<Expr> = order.iter().map(|&d| dim(d)).collect();
    let mut result_sizes = x.ty.sizes.clone();
    if let (Some(size), Some(&last)) = (result_sizes.get_mut(along), sizes.last()) {
        *size = last;
    }
    let view = View::new(result_sizes, back);
    let (values, indices) = (lw.view(&values, &view), lw.view(&indices, &view));
    lw.set_result(args, 0, values);
    lw.set_result(args, 1, indices);
    Ok(())
}
