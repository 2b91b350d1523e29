//! Lowers indexing by tensors: lookups, gathers, scatters.

mod flat;
mod replace;

use crate::args::{Args, Number, POSITIONS, Tensor};
use crate::body::Body;
use crate::def::{OpDef, decompose, inplace, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{
    at_most, broadcast, broadcasts_to, iterated_strides, preserved_strides, same_shape, same_sizes,
};
use crate::lower::Lower;
use crate::traits::Complex;
use crate::traits::Devices::Of;
use crate::traits::Layout;
use crate::view::ValueAccess;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::{Expr, Rel};

pub(crate) use flat::flattened;
use flat::{masked_scatter, put, take, take_along};
use replace::{
    diagonal_scatter, diagonal_scatter_type, select_scatter, select_scatter_type, slice_scatter,
    slice_scatter_type, strided_scatter, strided_scatter_type,
};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.embedding.default", embedding_type, embedding),
    // A mask decides how many elements there are: then complex ones are moved whole.
    lower("aten.index.Tensor", index_type, index).devices(Of("self")).complex(Complex::Lowered),
    lower("aten._unsafe_index.Tensor", index_type, index).devices(Of("self")).complex(Complex::Lowered),
    lower("aten.index_put.default", index_put_type, index_put).devices(Of("self")),
    lower("aten._unsafe_index_put.default", index_put_type, index_put).devices(Of("self")),
    lower("aten.index_select.default", index_select_type, index_select),
    lower("aten.gather.default", gather_type, gather),
    lower("aten.scatter.src", scatter_type, |lw, args| scatter(lw, args, None)),
    lower("aten.scatter.value", scatter_type, |lw, args| scatter(lw, args, None)),
    lower("aten.scatter_add.default", scatter_type, |lw, args| scatter(lw, args, Some(ReduceOp::Sum))),
    lower("aten.index_copy.default", index_along_type, |lw, args| index_along(lw, args, None)),
    lower("aten.index_add.default", index_along_type, |lw, args| index_along(lw, args, Some(ReduceOp::Sum))),
    lower("aten.slice_scatter.default", slice_scatter_type, slice_scatter).devices(Of("self")),
    lower("aten.select_scatter.default", select_scatter_type, select_scatter),
    lower("aten.diagonal_scatter.default", diagonal_scatter_type, diagonal_scatter),
    lower("aten.as_strided_scatter.default", strided_scatter_type, strided_scatter).layout(Layout::Reads),
    lower("aten.index_fill.int_Scalar", index_fill_type, index_fill),
    lower("aten.index_fill.int_Tensor", index_fill_type, index_fill),
    decompose("aten.put.default", put).complex(Complex::Rewritten),
    decompose("aten.take.default", take).complex(Complex::Rewritten),
    decompose("aten.take_along_dim.default", take_along).complex(Complex::Rewritten),
    decompose("aten.masked_scatter.default", masked_scatter).complex(Complex::Rewritten),
    inplace("aten.index_put_.default", "aten.index_put.default"),
    inplace("aten.index_copy_.default", "aten.index_copy.default"),
    inplace("aten.index_add_.default", "aten.index_add.default"),
    inplace("aten.index_fill_.int_Scalar", "aten.index_fill.int_Scalar"),
    inplace("aten.index_fill_.int_Tensor", "aten.index_fill.int_Tensor"),
    inplace("aten.put_.default", "aten.put.default"),
    inplace("aten.masked_scatter_.default", "aten.masked_scatter.default"),
    inplace("aten.scatter_.src", "aten.scatter.src"),
    inplace("aten.scatter_.value", "aten.scatter.value"),
    inplace("aten.scatter_add_.default", "aten.scatter_add.default"),
];

/// A fresh tensor with the type of `self`.
pub(crate) fn self_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    one(TensorType { strides: preserved_strides(cx.facts, x), ..x.clone() })
}

fn embedding_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (w, indices) = (args.tensor("weight")?.ty, args.tensor("indices")?.ty);
    args.of_types("indices", POSITIONS)?;
    if w.rank() != 2 {
        return Err(args.invalid(format!("expected a matrix as weight, found {w}")));
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
// when those dimensions are not neighbours. A mask counts as one index tensor for each of its dimensions, which are the places
// where it holds.

/// What indexes a dimension.
#[derive(Clone, Copy)]
enum Index<'a> {
    /// The positions in a tensor.
    At(Tensor<'a>),
    /// The coordinates along a dimension of a mask of the places where it holds, of which there are so many.
    Of(Tensor<'a>, usize, Expr),
}

impl Index<'_> {
    fn sizes(&self) -> Vec<Expr> {
        match self {
            Index::At(tensor) => tensor.ty.sizes.clone(),
            Index::Of(_, _, count) => vec![*count],
        }
    }

    fn strides(&self) -> Vec<Expr> {
        match self {
            Index::At(tensor) => tensor.ty.strides.clone(),
            // Eager's `nonzero` gives a matrix whose columns lie one behind the other.
            Index::Of(..) => vec![Expr::one()],
        }
    }
}

struct Indexing<'a> {
    indices: Vec<Option<Index<'a>>>,
    /// The broadcast shape of the index tensors.
    shape: Vec<Expr>,
    /// Position of `shape` in the result.
    at: usize,
    /// Sizes of the result.
    sizes: Vec<Expr>,
}

/// How `x` is indexed. `sized` gives the sizes of what is indexed, as far as they are known: there the number of places of masks
/// is found.
fn indexing<'a>(
    cx: &mut InferCx<'_>,
    args: &Args<'a>,
    x: &TensorType,
    sized: Option<&TensorType>,
) -> Result<Indexing<'a>, OpError> {
    let given = args.opt_tensors("indices")?;
    let masks = given.iter().flatten().filter(|index| is_mask(index)).map(|index| index.ty.rank());
    let dims = given.len() + masks.map(|rank| rank.wrapping_sub(1)).fold(0, usize::wrapping_add);
    if given.iter().flatten().any(|index| is_mask(index) && index.ty.rank() == 0) {
        return Err(args.unsupported("a mask without dimensions"));
    }
    if dims > x.rank() {
        return Err(args.bad("indices", &format!("at most {} indices", x.rank())));
    }
    let has_mask = given.iter().flatten().any(is_mask);
    let ranks = given.iter().flatten().map(|index| if is_mask(index) { 1 } else { index.ty.rank() });
    let rank = ranks.max().unwrap_or(0);
    let mut indexed = Vec::with_capacity(x.rank());
    for index in &given {
        let count = index.filter(is_mask).map_or(1, |mask| mask.ty.rank());
        indexed.extend(std::iter::repeat_n(index.is_some(), count));
    }
    indexed.resize(x.rank(), false);
    let dims: Vec<usize> = (0..x.rank()).filter(|&d| indexed[d]).collect();
    let adjacent = dims.windows(2).all(|w| w[1] == w[0] + 1);
    let at = if adjacent { dims.first().copied().unwrap_or(0) } else { 0 };
    let count = match has_mask {
        true => {
            // Sizes are compared from the last one on, as where tensors broadcast.
            let behind = (at..x.rank()).filter(|&d| !indexed[d]).count();
            let count = sized.and_then(|ty| ty.sizes.len().checked_sub(behind + 1).map(|d| ty.sizes[d]));
            let unknown = || args.unsupported("a mask that holds at as many places as nothing tells");
            count.filter(|count| !count.is_one() || rank == 1).ok_or_else(unknown)?
        }
        false => Expr::zero(),
    };
    let mut indices: Vec<Option<Index<'a>>> = Vec::with_capacity(x.rank());
    for index in given {
        match index {
            None => indices.push(None),
            Some(mask) if is_mask(&mask) => {
                for (d, &size) in mask.ty.sizes.iter().enumerate() {
                    cx.require(Rel::eq(size, x.sizes[indices.len()]), args.op())?;
                    indices.push(Some(Index::Of(mask, d, count)));
                }
            }
            Some(positions) => {
                if !POSITIONS.contains(&positions.ty.dtype) {
                    let found = positions.ty.dtype;
                    return Err(args.invalid(format!("expected indices, found elements of {found}")));
                }
                indices.push(Some(Index::At(positions)));
            }
        }
    }
    indices.resize(x.rank(), None);
    let shapes: Vec<Vec<Expr>> = indices.iter().flatten().map(Index::sizes).collect();
    let shapes: Vec<&[Expr]> = shapes.iter().map(Vec::as_slice).collect();
    let shape = broadcast(cx, &shapes, args.op())?;
    let others = (0..x.rank()).filter(|&d| indices[d].is_none()).map(|d| x.sizes[d]);
    let mut sizes: Vec<Expr> = others.collect();
    sizes.splice(at..at, shape.iter().copied());
    Ok(Indexing { indices, shape, at, sizes })
}

/// Bytes were truth values before there were any, and still are as indices.
fn is_mask(index: &Tensor<'_>) -> bool {
    matches!(index.ty.dtype, Dtype::Bool | Dtype::U8)
}

fn index_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let indexing = indexing(cx, args, x, args.result(0))?;
    for index in indexing.indices.iter().flatten() {
        if let Index::Of(mask, 0, count) = index {
            cx.require(Rel::le(*count, mask.ty.numel()), args.op())?;
        }
    }
    // Eager iterates over the operand, its indexed dimensions with stride 0, and the index tensors.
    let (at, rank) = (indexing.at, indexing.sizes.len());
    let others = (0..x.rank()).filter(|&d| indexing.indices[d].is_none()).map(|d| x.strides[d]);
    let mut own: Vec<Expr> = others.collect();
    own.splice(at..at, vec![Expr::zero(); indexing.shape.len()]);
    let mut operands = vec![own];
    for index in indexing.indices.iter().flatten() {
        let mut strides = vec![Expr::zero(); rank];
        let (sizes, own) = (index.sizes(), index.strides());
        let lead = at + indexing.shape.len() - sizes.len();
        for d in 0..sizes.len() {
            let expanded = sizes[d].is_one() && !indexing.sizes[lead + d].is_one();
            strides[lead + d] = if expanded { Expr::zero() } else { own[d] };
        }
        operands.push(strides);
    }
    let strides = iterated_strides(cx.facts, &operands, &indexing.sizes);
    one(TensorType::strided(x.dtype, indexing.sizes, strides))
}

/// Coordinates of the indexed operand, from those of the result.
fn indexed_coords(
    lw: &mut Lower<'_>,
    indexing: &Indexing<'_>,
    sizes: &[Expr],
) -> Result<impl Fn(&mut Body<'_>, &[Expr]) -> Vec<Expr> + use<>, OpError> {
    let mut accesses: Vec<Option<ValueAccess>> = Vec::with_capacity(indexing.indices.len());
    let mut places: Vec<ValueAccess> = Vec::new();
    for index in &indexing.indices {
        let access = match *index {
            None => None,
            Some(Index::At(tensor)) => Some(lw.access(tensor)?),
            Some(Index::Of(mask, d, count)) => {
                if d == 0 {
                    let mask = lw.access(mask)?;
                    places = lw.places(&mask, count)?;
                }
                Some(places[d].clone())
            }
        };
        accesses.push(access.map(|access| access.broadcast(&indexing.shape)));
    }
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
    let indexing = indexing(&mut lw.infer_cx(), args, x.ty, args.result(0))?;
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
pub(crate) fn copied_self(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<Option<ValueAccess>, OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let Some(out) = lw.result(args, 0) else { return Ok(None) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.load(&x, at);
        b.store(&out, at, v);
        Ok(())
    })?;
    Ok(Some(out))
}

/// Values broadcast to what the indices name.
fn index_put_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    match whole_mask(args)? {
        Some(mask) => {
            // The single value is converted, and goes to however many places the mask has.
            let masked = &x.sizes[..mask.ty.rank().min(x.rank())];
            same_sizes(cx, args, "argument `indices`", &mask.ty.sizes, masked)?;
            let mut sizes = vec![Expr::one()];
            sizes.extend(&x.sizes[masked.len()..]);
            // PyTorch fills with a single element, of whatever rank.
            if !args.tensor("values")?.ty.sizes.iter().all(|size| size.is_one()) {
                broadcasts_to(cx, args, "values", &sizes)?;
            }
        }
        None => {
            args.of_types("values", &[x.dtype])?;
            let sizes = indexing(cx, args, x, Some(args.tensor("values")?.ty))?.sizes;
            broadcasts_to(cx, args, "values", &sizes)?;
        }
    }
    self_type(cx, args)
}

fn index_put(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    if let Some(mask) = whole_mask(args)? {
        return put_masked(lw, args, mask);
    }
    let x = args.tensor("self")?;
    let combine = args.flag("accumulate")?.then_some(ReduceOp::Sum);
    let indexing = indexing(&mut lw.infer_cx(), args, x.ty, Some(args.tensor("values")?.ty))?;
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

/// The mask of `x[mask] = value`, or of `x[mask] += value`, with a value that is the same wherever a mask of leading dimensions holds, which needs no
/// scatter.
fn whole_mask<'a>(args: &Args<'a>) -> Result<Option<Tensor<'a>>, OpError> {
    let indices = args.opt_tensors("indices")?;
    let (x, values) = (args.tensor("self")?.ty, args.tensor("values")?.ty);
    let masked = indices.first().copied().flatten().map_or(0, |mask| mask.ty.rank());
    let apart = values.rank().saturating_sub(x.rank().saturating_sub(masked));
    let single = values.sizes[..apart].iter().all(|size| size.is_one());
    Ok(match indices[..] {
        [Some(mask)] if mask.ty.dtype == Dtype::Bool && single => Some(mask),
        _ => None,
    })
}

fn put_masked(lw: &mut Lower<'_>, args: &Args<'_>, mask: Tensor<'_>) -> Result<(), OpError> {
    let accumulates = args.flag("accumulate")?;
    let (x, mask, value) =
        (lw.access(args.tensor("self")?)?, lw.access(mask)?, lw.access(args.tensor("values")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let (keep, own) = (b.load(&mask, &at[..mask.rank()]), b.load(&x, at));
        let coordinate = |d: usize| match value.sizes[d].is_one() {
            true => Expr::zero(),
            false => at[at.len() + d - value.rank()],
        };
        let put = b.load(&value, &(0..value.rank()).map(coordinate).collect::<Vec<_>>());
        let put = b.cast(put, x.dtype);
        let put = match x.dtype {
            _ if !accumulates => put,
            Dtype::Bool => b.or(own, put),
            dtype => {
                let both = [own, put].map(|v| b.cast(v, dtype.compute()));
                let sum = b.op(ScalarOp::Add, &both);
                b.cast(sum, dtype)
            }
        };
        let v = b.select(keep, put, own);
        b.store(&out, at, v);
        Ok(())
    })
}

fn index_select_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let count = index_vector(args)?;
    let mut sizes = x.sizes.clone();
    match sizes.get_mut(args.dim("dim", x.rank())?) {
        Some(size) => *size = count,
        None => one_position(cx, args, count)?,
    }
    one(TensorType::contiguous(x.dtype, sizes))
}

/// A tensor of rank 0 has one position.
fn one_position(cx: &mut InferCx<'_>, args: &Args<'_>, count: Expr) -> Result<(), OpError> {
    let many = |_| args.invalid(format!("expected 1 position in a tensor of rank 0, found {count}"));
    cx.require(Rel::eq(count, 1), args.op()).map_err(many)
}

/// The number of elements of `index`, a vector of positions or a single one.
pub(crate) fn index_vector(args: &Args<'_>) -> Result<Expr, OpError> {
    args.of_types("index", POSITIONS)?;
    let index = args.tensor("index")?.ty;
    match index.rank() {
        0 | 1 => Ok(index.numel()),
        _ => Err(args.invalid(format!("expected a vector of positions, found sizes {:?}", index.sizes))),
    }
}

fn index_select(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    read_along(lw, args, listed_along)
}

fn gather_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    index_at_most(cx, args, x)?;
    one(TensorType::contiguous(x.dtype, args.tensor("index")?.ty.sizes.clone()))
}

/// `index` names positions along `dim` and is no larger than `x` along other dimensions.
fn index_at_most(cx: &mut InferCx<'_>, args: &Args<'_>, x: &TensorType) -> Result<(), OpError> {
    if !args.tensor("index")?.ty.numel().is_zero() {
        args.of_types("index", POSITIONS)?;
    }
    let along = args.dim("dim", x.rank())?;
    at_most(cx, args, "index", &x.sizes, Some(along))?;
    let index = args.tensor("index")?.ty;
    if index.rank().max(1) != x.rank().max(1) {
        // Without elements any rank will do.
        return Err(args.unsupported(&format!("an index of sizes {:?} into {:?}", index.sizes, x.sizes)));
    }
    Ok(())
}

fn gather(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    read_along(lw, args, bound_along)
}

/// Coordinates in a tensor of these sizes for a point, that along a dimension read from an index tensor.
type Coordinates = fn(&mut Body<'_>, &ValueAccess, &[Expr], &[Expr], usize) -> Vec<Expr>;

/// The element of `self` that `coordinates` gives for each point of the result.
fn read_along(lw: &mut Lower<'_>, args: &Args<'_>, coordinates: Coordinates) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let (x, index) = (lw.access(x)?, lw.access(args.tensor("index")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let coords = coordinates(b, &index, &x.sizes, at, along);
        let v = b.load(&x, &coords);
        b.store(&out, at, v);
        Ok(())
    })
}

/// The coordinates with the one along a dimension read from an index tensor. A tensor of rank 0 goes with a vector.
pub(crate) fn bound_along(
    b: &mut Body<'_>,
    index: &ValueAccess,
    sizes: &[Expr],
    at: &[Expr],
    along: usize,
) -> Vec<Expr> {
    let i = b.load(index, at);
    let bound = b.bind(i, sizes.get(along).copied().unwrap_or(Expr::one()));
    if sizes.len() < 2 {
        return vec![bound; sizes.len()];
    }
    let mut coords = at.to_vec();
    coords[along] = bound;
    coords
}

/// The coordinates with the one along a dimension read from a vector of indices, or from the only index.
pub(crate) fn listed_along(
    b: &mut Body<'_>,
    index: &ValueAccess,
    sizes: &[Expr],
    at: &[Expr],
    along: usize,
) -> Vec<Expr> {
    let mut coords = at.to_vec();
    if let Some(coord) = coords.get_mut(along) {
        let i = b.load(index, if index.rank() == 0 { &[] } else { &at[along..=along] });
        *coord = b.bind(i, sizes[along]);
    }
    coords
}

/// `index` is no larger than `src`, and than `self` along other dimensions than `dim`.
pub(crate) fn scatter_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    index_at_most(cx, args, x)?;
    args.of_types("src", &[x.dtype])?;
    if let Some(source) = args.opt_tensor("src")? {
        at_most(cx, args, "index", &source.ty.sizes, None)?;
    }
    self_type(cx, args)
}

/// The element of a source that goes with a point of the index: a source of rank 0 goes with a vector.
pub(crate) fn source_element(b: &mut Body<'_>, source: &ValueAccess, at: &[Expr]) -> Val {
    match (source.rank(), at) {
        (0, _) => b.load(source, &[]),
        (1, []) => b.load(source, &[Expr::zero()]),
        _ => b.load(source, at),
    }
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
            Some(source) => source_element(b, source, at),
            None => b.number(value, out.dtype),
        };
        b.store_combined(&out, &coords, v, combine);
        Ok(())
    })
}

/// `source` has as many slices along `dim` as `index` has elements, each of the size of a slice of `self`.
pub(crate) fn index_along_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let (along, count) = (args.dim("dim", x.rank())?, index_vector(args)?);
    args.of_types("source", &[x.dtype])?;
    let mut sizes = x.sizes.clone();
    match sizes.get_mut(along) {
        Some(size) => *size = count,
        None => one_position(cx, args, count)?,
    }
    if args.tensor("source")?.ty.rank() == 0 && sizes.len() == 1 {
        return Err(args.unsupported("a source without dimensions for a vector"));
    }
    same_shape(cx, args, "source", &sizes)?;
    self_type(cx, args)
}

/// Slices of `source` to the places along `dim` that a vector of indices names.
fn index_along(lw: &mut Lower<'_>, args: &Args<'_>, combine: Option<ReduceOp>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let (index, source) = (lw.access(args.tensor("index")?)?, lw.access(args.tensor("source")?)?);
    let alpha = args.opt_float("alpha")?.unwrap_or(1.0);
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    // As in PyTorch: what is added to a matrix of no elements is not looked at, to a row it is.
    if combine.is_some() && out.sizes.len() > 1 && out.sizes.iter().any(|size| size.is_zero()) {
        return Ok(());
    }
    lw.nest(&source.sizes, |b, at| {
        let coords = listed_along(b, &index, &out.sizes, at, along);
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

fn index_fill_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    args.of_types("index", &[Dtype::I64])?;
    index_vector(args)?;
    args.dim("dim", args.tensor("self")?.ty.rank())?;
    if let Ok(value) = args.tensor("value")
        && value.ty.rank() > 0
    {
        return Err(args.invalid(format!("expected a value of rank 0, found sizes {:?}", value.ty.sizes)));
    }
    self_type(cx, args)
}

fn index_fill(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let index = lw.access(args.tensor("index")?)?;
    let tensor = args.tensor("value").ok().map(|t| lw.access(t)).transpose()?;
    let number = if tensor.is_none() { args.number("value")? } else { Number::Bool(false) };
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    let mut sizes = out.sizes.clone();
    if let Some(size) = sizes.get_mut(along) {
        *size = index.sizes.iter().copied().product();
    }
    lw.nest(&sizes, |b, at| {
        let mut coords = at.to_vec();
        if let Some(coord) = coords.get_mut(along) {
            let i = b.load(&index, if index.rank() == 0 { &[] } else { &at[along..=along] });
            *coord = b.bind_wrapped(i, out.sizes[along]);
        }
        let v = match &tensor {
            Some(value) => b.load(value, &[]),
            None => b.number(number, out.dtype),
        };
        b.store(&out, &coords, v);
        Ok(())
    })
}
