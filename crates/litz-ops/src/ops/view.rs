//! Composes views: operators whose result is their operand's storage, read through another index function.

use crate::args::Args;
use crate::def::{OpDef, identity, inplace_view, lower, one, view};
use crate::error::OpError;
use crate::infer::{InferCx, first_tensor};
use crate::layout::{known, not_negative, same, view_strides};
use crate::lower::Lower;
use crate::traits::Holds::{Always, When};
use crate::traits::{Complex, Layout};
use crate::view::{View, dim};
use litz_ir::graph::{MemoryFormat, TensorType, Type, contiguous_strides};
use litz_sym::{Expr, Facts, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    identity("aten.alias.default"),
    identity("aten.detach.default"),
    identity("aten.detach_.default"),
    identity("aten.lift_fresh.default"),
    view("aten.permute.default", |_, args| {
        let ty = first_tensor(args)?;
        permute(args, ty, args.dims("dims", ty.rank())?)
    }),
    view("aten.transpose.int", |_, args| swap(args, "dim0", "dim1")),
    view("aten.swapaxes.default", |_, args| swap(args, "axis0", "axis1")),
    view("aten.swapdims.default", |_, args| swap(args, "dim0", "dim1")),
    view("aten.t.default", |_, args| {
        let ty = first_tensor(args)?;
        if ty.rank() > 2 {
            return Err(args.invalid(format!("expected at most two dimensions, found {ty}")));
        }
        permute(args, ty, (0..ty.rank()).rev().collect())
    }),
    view("aten.numpy_T.default", |_, args| {
        let ty = first_tensor(args)?;
        permute(args, ty, (0..ty.rank()).rev().collect())
    }),
    view("aten.mT.default", |_, args| swap_last(args)),
    view("aten.movedim.int", |_, args| movedim(args)),
    view("aten.movedim.intlist", |_, args| movedim(args)),
    view("aten.moveaxis.int", |_, args| movedim(args)),
    view("aten.moveaxis.intlist", |_, args| movedim(args)),
    view("aten.view.default", |cx, args| reshape_to(cx, args, args.ints("size")?)),
    view("aten.reshape.default", |cx, args| reshape_to(cx, args, args.ints("shape")?))
        .alias(When(is_viewable)),
    view("aten._unsafe_view.default", |cx, args| reshape_to(cx, args, args.ints("size")?)).alias(Always),
    view("aten.reshape_as.default", |cx, args| reshape_to(cx, args, args.tensor("other")?.ty.sizes.clone()))
        .alias(When(is_viewable)),
    view("aten.view_as.default", |cx, args| reshape_to(cx, args, args.tensor("other")?.ty.sizes.clone())),
    view("aten.flatten.using_ints", flatten).alias(When(is_viewable)),
    view("aten.ravel.default", |cx, args| reshape_to(cx, args, vec![Expr::int(-1)]))
        .alias(When(|_, args| Ok(first_tensor(args)?.is_contiguous()))),
    view("aten.unflatten.int", unflatten),
    view("aten.squeeze.default", |_, args| {
        let rank = first_tensor(args)?.rank();
        squeeze(args, &(0..rank).collect::<Vec<_>>())
    }),
    view("aten.squeeze.dim", |_, args| {
        let rank = first_tensor(args)?.rank();
        squeeze(args, &[args.dim("dim", rank)?])
    }),
    view("aten.squeeze.dims", |_, args| {
        let rank = first_tensor(args)?.rank();
        squeeze(args, &args.dims("dim", rank)?)
    }),
    view("aten.unsqueeze.default", |_, args| unsqueeze(args)),
    inplace_view("aten.t_.default", "aten.t.default"),
    inplace_view("aten.transpose_.default", "aten.transpose.int"),
    inplace_view("aten.swapaxes_.default", "aten.swapaxes.default"),
    inplace_view("aten.swapdims_.default", "aten.swapdims.default"),
    inplace_view("aten.squeeze_.default", "aten.squeeze.default"),
    inplace_view("aten.squeeze_.dim", "aten.squeeze.dim"),
    inplace_view("aten.squeeze_.dims", "aten.squeeze.dims"),
    inplace_view("aten.unsqueeze_.default", "aten.unsqueeze.default"),
    view("litz.resized.default", |cx, args| resized(cx, args, args.ints("size")?)),
    view("litz.resized_as.default", |cx, args| {
        resized(cx, args, args.tensor("the_template")?.ty.sizes.clone())
    }),
    inplace_view("aten.resize_.default", "litz.resized.default"),
    inplace_view("aten.resize_as_.default", "litz.resized_as.default"),
    view("aten.expand.default", |cx, args| expand(cx, args, args.ints("size")?)),
    view("aten.broadcast_to.default", |cx, args| expand(cx, args, args.ints("size")?)),
    view("aten.expand_as.default", |cx, args| expand(cx, args, args.tensor("other")?.ty.sizes.clone())),
    view("aten.slice.Tensor", slice).scatter("aten.slice_scatter.default"),
    view("aten.narrow.default", narrow),
    view("aten.select.int", select).scatter("aten.select_scatter.default"),
    view("aten.split.Tensor", split),
    view("aten.split_with_sizes.default", split_with_sizes),
    view("aten.split.sizes", split_with_sizes),
    view("aten.chunk.default", chunk),
    view("aten.unbind.int", unbind),
    view("aten.diagonal.default", diagonal).scatter("aten.diagonal_scatter.default"),
    view("aten.linalg_diagonal.default", diagonal),
    view("aten.unfold.default", unfold),
    lower("aten.as_strided.default", as_strided_type, as_strided)
        .layout(Layout::Reads)
        .complex(Complex::Lowered)
        .scatter("aten.as_strided_scatter.default"),
];

pub(crate) type Views = Result<Vec<View>, OpError>;

fn permute(args: &Args<'_>, ty: &TensorType, order: Vec<usize>) -> Views {
    if order.len() != ty.rank() {
        return Err(args.bad("dims", &format!("{} dimensions", ty.rank())));
    }
    let mut coords = vec![Expr::zero(); ty.rank()];
    order.iter().enumerate().for_each(|(to, &from)| coords[from] = dim(to));
    Ok(vec![View::new(order.iter().map(|&d| ty.sizes[d]).collect(), coords)])
}

fn swap(args: &Args<'_>, first: &str, second: &str) -> Views {
    let ty = first_tensor(args)?;
    let (a, b) = (args.dim(first, ty.rank())?, args.dim(second, ty.rank())?);
    let mut order: Vec<usize> = (0..ty.rank()).collect();
    if !order.is_empty() {
        order.swap(a, b);
    }
    permute(args, ty, order)
}

/// The last two dimensions swapped.
pub(crate) fn swap_last(args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let mut order: Vec<usize> = (0..ty.rank()).collect();
    let [.., a, b] = order.as_mut_slice() else {
        return Err(args.invalid(format!("expected at least two dimensions, found {ty}")));
    };
    std::mem::swap(a, b);
    permute(args, ty, order)
}

fn movedim(args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let (from, to) = (args.dims("source", ty.rank())?, args.dims("destination", ty.rank())?);
    if from.len() != to.len() {
        return Err(args.bad("destination", "as many dimensions as `source`"));
    }
    let mut others = (0..ty.rank()).filter(|d| !from.contains(d));
    let place = |d: usize| match to.iter().position(|&t| t == d) {
        Some(i) => Some(from[i]),
        None => others.next(),
    };
    permute(args, ty, (0..ty.rank()).filter_map(place).collect())
}

/// Whether strides can express the result; its elements are copied otherwise.
fn is_viewable(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<bool, OpError> {
    let ty = first_tensor(args)?;
    Ok(args.result(0).is_some_and(|result| view_strides(cx.facts, ty, &result.sizes).is_some()))
}

/// The operand seen with other sizes; one of them may be -1.
fn reshape_to(cx: &mut InferCx<'_>, args: &Args<'_>, sizes: Vec<Expr>) -> Views {
    let ty = first_tensor(args)?;
    let sizes = infer_size(cx, args, ty, sizes)?;
    reshape(cx, ty, sizes)
}

/// The operand seen with other sizes of equal product.
pub(crate) fn reshape(cx: &InferCx<'_>, ty: &TensorType, sizes: Vec<Expr>) -> Views {
    let strides = view_strides(cx.facts, ty, &sizes).unwrap_or_else(|| contiguous_strides(&sizes));
    let coords = reshape_coords(cx.facts, &ty.sizes, &sizes);
    Ok(vec![View { sizes, coords, strides: Some(strides), is_reshape: true }])
}

/// Replaces a -1 by what the number of elements leaves for it.
fn infer_size(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    ty: &TensorType,
    mut sizes: Vec<Expr>,
) -> Result<Vec<Expr>, OpError> {
    let numel = ty.numel();
    let open = |s: &Expr| s.as_int() == Some(-1);
    if let Some(at) = sizes.iter().position(open) {
        let rest: Expr = sizes.iter().filter(|s| !open(s)).product();
        if rest.is_zero() || sizes.iter().filter(|s| open(s)).count() > 1 {
            return Err(args.invalid("a size of -1 is ambiguous"));
        }
        sizes[at] = cx.simplify(numel.floordiv(rest));
    }
    not_negative(cx, args, &sizes)?;
    let total: Expr = sizes.iter().product();
    let differs = |_| {
        let from = &ty.sizes;
        args.invalid(format!("sizes {sizes:?} do not have as many elements as {from:?}"))
    };
    cx.require(Rel::eq(cx.simplify(total), cx.simplify(numel)), args.op()).map_err(differs)?;
    Ok(sizes)
}

/// The operand's coordinates in terms of the result's. Runs of dimensions with equal products are matched, so that
/// dimensions a reshape leaves alone keep simple coordinates.
fn reshape_coords(facts: &Facts, from: &[Expr], to: &[Expr]) -> Vec<Expr> {
    let mut coords = vec![Expr::zero(); from.len()];
    let wide = |sizes: &[Expr]| (0..sizes.len()).filter(|&d| !sizes[d].is_one()).collect::<Vec<_>>();
    let (from_dims, to_dims) = (wide(from), wide(to));
    let (mut f, mut t) = (0, 0);
    while f < from_dims.len() && t < to_dims.len() {
        let (first_f, first_t) = (f, t);
        let (mut a, mut b) = (from[from_dims[f]], to[to_dims[t]]);
        (f, t) = (f + 1, t + 1);
        while !same(facts, a, b) && (f < from_dims.len() || t < to_dims.len()) {
            let shorter = facts.holds(&Rel::lt(a, b));
            if f < from_dims.len() && (shorter || t == to_dims.len()) {
                a = a * from[from_dims[f]];
                f += 1;
            } else if t < to_dims.len() {
                b = b * to[to_dims[t]];
                t += 1;
            }
        }
        // The last group takes all that is left: a size symbol may turn out to be 1.
        if f == from_dims.len() || t == to_dims.len() {
            (f, t) = (from_dims.len(), to_dims.len());
        }
        let flat = to_dims[first_t..t].iter().fold(Expr::zero(), |sum, &d| sum * to[d] + dim(d));
        split_flat(flat, from, &from_dims[first_f..f], &mut coords);
    }
    coords
}

/// Coordinates of the dimensions `dims` from a row-major position in them.
fn split_flat(flat: Expr, sizes: &[Expr], dims: &[usize], coords: &mut [Expr]) {
    let mut inner = Expr::one();
    for (i, &d) in dims.iter().enumerate().rev() {
        let whole = flat.floordiv(inner);
        coords[d] = if i == 0 { whole } else { whole.modulo(sizes[d]) };
        inner = inner * sizes[d];
    }
}

/// The first elements of the operand's memory with other sizes. Memory behind the last one is none that anything wrote.
fn resized(cx: &mut InferCx<'_>, args: &Args<'_>, sizes: Vec<Expr>) -> Views {
    let ty = first_tensor(args)?;
    not_negative(cx, args, &sizes)?;
    if args.memory_format("memory_format")?.is_some_and(|format| format != MemoryFormat::Contiguous) {
        return Err(args.unsupported("another layout than that of rows"));
    }
    if sizes.len() == ty.rank() && sizes.iter().zip(&ty.sizes).all(|(&size, &own)| same(cx.facts, size, own))
    {
        return Ok(vec![View::identity(&ty.sizes)]);
    }
    let contiguous = contiguous_strides(&ty.sizes);
    let is_packed =
        (0..ty.rank()).all(|d| ty.sizes[d].is_one() || same(cx.facts, ty.strides[d], contiguous[d]));
    let (total, own): (Expr, Expr) = (sizes.iter().product(), ty.numel());
    if !is_packed || known(cx.facts, Rel::le(total, own)) != Some(true) {
        return Err(args.unsupported("memory that is larger, or lies otherwise, than the operand's elements"));
    }
    if same(cx.facts, total, own) {
        return reshape(cx, ty, sizes);
    }
    let strides = contiguous_strides(&sizes);
    let flat = strides.iter().enumerate().map(|(d, &stride)| dim(d) * stride).sum();
    let mut coords = vec![Expr::zero(); ty.rank()];
    split_flat(flat, &ty.sizes, &(0..ty.rank()).collect::<Vec<_>>(), &mut coords);
    Ok(vec![View { sizes, coords, strides: Some(strides), is_reshape: false }])
}

fn flatten(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let (start, end) = (args.dim("start_dim", ty.rank())?, args.dim("end_dim", ty.rank())?);
    if ty.rank() == 0 {
        return reshape(cx, ty, vec![Expr::one()]);
    }
    if start > end {
        return Err(args.invalid("start_dim comes after end_dim"));
    }
    let mut sizes = ty.sizes[..start].to_vec();
    sizes.push(ty.sizes[start..=end].iter().product());
    sizes.extend_from_slice(&ty.sizes[end + 1..]);
    reshape(cx, ty, sizes)
}

fn unflatten(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = args.dim("dim", ty.rank())?;
    let part = TensorType::contiguous(ty.dtype, vec![ty.sizes[at]]);
    let inner = args.ints("sizes")?;
    if inner.is_empty() || ty.rank() == 0 {
        return Err(args.invalid("expected a dimension and sizes to cut it into"));
    }
    let inner = infer_size(cx, args, &part, inner)?;
    let sizes = [&ty.sizes[..at], &inner, &ty.sizes[at + 1..]].concat();
    reshape(cx, ty, sizes)
}

/// Takes out dimensions of size 1 among `dims`.
fn squeeze(args: &Args<'_>, dims: &[usize]) -> Views {
    let ty = first_tensor(args)?;
    let kept: Vec<usize> = (0..ty.rank()).filter(|d| !(dims.contains(d) && ty.sizes[*d].is_one())).collect();
    let coord = |d| kept.iter().position(|&k| k == d).map_or(Expr::zero(), dim);
    Ok(vec![View::new(kept.iter().map(|&d| ty.sizes[d]).collect(), (0..ty.rank()).map(coord).collect())])
}

fn unsqueeze(args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = args.dim("dim", ty.rank() + 1)?;
    let (mut sizes, mut strides) = (ty.sizes.clone(), ty.strides.clone());
    let stride = if at < ty.rank() { ty.sizes[at] * ty.strides[at] } else { Expr::one() };
    sizes.insert(at, Expr::one());
    strides.insert(at, stride);
    let coords = (0..ty.rank()).map(|d| dim(if d < at { d } else { d + 1 })).collect();
    Ok(vec![View { sizes, coords, strides: Some(strides), is_reshape: false }])
}

fn expand(cx: &mut InferCx<'_>, args: &Args<'_>, mut sizes: Vec<Expr>) -> Views {
    let ty = first_tensor(args)?;
    let Some(lead) = sizes.len().checked_sub(ty.rank()) else {
        return Err(args.bad("size", &format!("at least {} sizes", ty.rank())));
    };
    let differs = |sizes: &[Expr]| args.invalid(format!("{:?} does not expand to {sizes:?}", ty.sizes));
    let mut coords = vec![Expr::zero(); ty.rank()];
    let mut strides = vec![Expr::zero(); sizes.len()];
    for d in (0..sizes.len()).rev() {
        let (own, stride) = match d.checked_sub(lead) {
            Some(from) => (ty.sizes[from], ty.strides[from]),
            None if d + 1 < sizes.len() => (Expr::one(), sizes[d + 1] * strides[d + 1]),
            None => (Expr::one(), Expr::one()),
        };
        if sizes[d].as_int() == Some(-1) && d >= lead {
            sizes[d] = own;
        }
        if own == sizes[d] || !own.is_one() {
            cx.require(Rel::eq(own, sizes[d]), args.op()).map_err(|_| differs(&sizes))?;
            strides[d] = stride;
            if d >= lead {
                coords[d - lead] = dim(d);
            }
        }
    }
    not_negative(cx, args, &sizes)?;
    Ok(vec![View { sizes, coords, strides: Some(strides), is_reshape: false }])
}

/// The operand with dimension `at` read at `start`, `start + step`, ... `len` times.
fn slice_view(ty: &TensorType, at: usize, start: Expr, step: Expr, len: Expr) -> View {
    let mut view = View::identity(&ty.sizes);
    view.sizes[at] = len;
    view.coords[at] = start + step * dim(at);
    view.strides =
        Some((0..ty.rank()).map(|d| if d == at { ty.strides[d] * step } else { ty.strides[d] }).collect());
    view
}

pub(crate) fn slice(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    if ty.rank() == 0 {
        return Err(args.invalid("a zero-dimensional tensor has no slices"));
    }
    let at = args.dim("dim", ty.rank())?;
    let (start, len, step) = slice_range(cx, args, ty.sizes[at])?;
    Ok(vec![slice_view(ty, at, start, step, len)])
}

/// Start, length and step of the arguments `start`, `end` and `step` on a dimension of that size, as Python clamps
/// them.
pub(crate) fn slice_range(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    size: Expr,
) -> Result<(Expr, Expr, Expr), OpError> {
    let step = if args.has("step") { args.int("step")? } else { Expr::one() };
    if cx.known(Rel::gt(step, 0)) != Some(true) {
        return Err(args.bad("step", "a positive integer"));
    }
    let start = match args.opt_int("start")? {
        Some(start) => clamp_index(cx, args, start, size)?,
        None => Expr::zero(),
    };
    let end = match args.opt_int("end")? {
        Some(end) if end.as_int() != Some(i64::MAX) => clamp_index(cx, args, end, size)?,
        _ => size,
    };
    let len = match cx.known(Rel::le(start, end)) {
        Some(true) => end - start,
        Some(false) => Expr::zero(),
        None => (end - start).max(0),
    };
    Ok((start, cx.simplify(len.ceildiv(step)), step))
}

/// An index counted from the front and clamped to `0..=size`.
fn clamp_index(cx: &mut InferCx<'_>, args: &Args<'_>, index: Expr, size: Expr) -> Result<Expr, OpError> {
    if cx.known(Rel::lt(index, 0)) == Some(true) {
        let index = index + size;
        return Ok(if cx.known(Rel::ge(index, 0)) == Some(true) { index } else { cx.simplify(index.max(0)) });
    }
    cx.require(Rel::ge(index, 0), args.op())?;
    Ok(match cx.known(Rel::le(index, size)) {
        Some(true) => index,
        Some(false) => size,
        None => cx.simplify(index.min(size)),
    })
}

fn narrow(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = dim_of(args, "dim", ty)?;
    let (size, given, length) = (ty.sizes[at], args.int("start")?, args.int("length")?);
    let start = if cx.known(Rel::lt(given, 0)) == Some(true) { given + size } else { given };
    let outside = |_| {
        args.invalid(format!(
            "a start of {given} and a length of {length} reach outside of dimension {at} of {size}"
        ))
    };
    for rel in [Rel::ge(start, 0), Rel::ge(length, 0), Rel::le(start + length, size)] {
        cx.require(rel, args.op()).map_err(outside)?;
    }
    Ok(vec![slice_view(ty, at, start, Expr::one(), length)])
}

/// A dimension of a tensor that has one.
fn dim_of(args: &Args<'_>, name: &str, ty: &TensorType) -> Result<usize, OpError> {
    match ty.rank() {
        0 => Err(args.invalid("a zero-dimensional tensor has no dimensions to cut")),
        rank => args.dim(name, rank),
    }
}

pub(crate) fn select(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    if ty.rank() == 0 {
        return Err(args.invalid("a zero-dimensional tensor has no elements to select"));
    }
    let at = args.dim("dim", ty.rank())?;
    let mut index = args.int("index")?;
    if cx.known(Rel::lt(index, 0)) == Some(true) {
        index = index + ty.sizes[at];
    }
    cx.require(Rel::ge(index, 0), args.op())?;
    cx.require(Rel::lt(index, ty.sizes[at]), args.op())?;
    Ok(vec![select_view(ty, at, index)])
}

/// The operand at one position of dimension `at`, which vanishes.
fn select_view(ty: &TensorType, at: usize, index: Expr) -> View {
    let (mut sizes, mut strides) = (ty.sizes.clone(), ty.strides.clone());
    sizes.remove(at);
    strides.remove(at);
    let coord = |d: usize| if d == at { index } else { dim(if d < at { d } else { d - 1 }) };
    View { sizes, coords: (0..ty.rank()).map(coord).collect(), strides: Some(strides), is_reshape: false }
}

/// Consecutive pieces of dimension `at`.
pub(crate) fn pieces(ty: &TensorType, at: usize, lengths: &[Expr]) -> Vec<View> {
    let mut start = Expr::zero();
    let piece = |&len: &Expr| {
        let view = slice_view(ty, at, start, Expr::one(), len);
        start = start + len;
        view
    };
    lengths.iter().map(piece).collect()
}

/// A file of a few bytes can ask for any number of results; no model has this many.
pub(crate) fn few_enough(args: &Args<'_>, results: i64) -> Result<(), OpError> {
    const MOST: i64 = 1 << 16;
    if results > MOST { Err(args.unsupported(&format!("more than {MOST} results"))) } else { Ok(()) }
}

/// Pieces of a given length, the last one shorter. How many there are must be a literal.
fn split_into(cx: &mut InferCx<'_>, args: &Args<'_>, ty: &TensorType, at: usize, piece: Expr) -> Views {
    let size = ty.sizes[at];
    let outside = |_| args.invalid(format!("dimension {at} of {size} does not split into pieces of {piece}"));
    if piece.is_zero() {
        cx.require(Rel::eq(size, 0), args.op()).map_err(outside)?;
        return Ok(vec![View::identity(&ty.sizes)]);
    }
    cx.require(Rel::ge(piece, 0), args.op()).map_err(outside)?;
    let count = match size.ceildiv(piece).as_int() {
        Some(count) => count.max(1),
        None => args.node.outputs.len() as i64,
    };
    if count == 0 {
        return Err(args.unsupported("a number of pieces that is not known"));
    }
    few_enough(args, count)?;
    let last = size - piece * (count - 1);
    for rel in [Rel::ge(last, 0), Rel::le(last, piece)] {
        cx.require(rel, args.op()).map_err(outside)?;
    }
    let mut lengths = vec![piece; count as usize - 1];
    lengths.push(last);
    Ok(pieces(ty, at, &lengths))
}

pub(crate) fn split(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = dim_of(args, "dim", ty)?;
    split_into(cx, args, ty, at, args.int("split_size")?)
}

pub(crate) fn chunk(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = dim_of(args, "dim", ty)?;
    let chunks = args.literal("chunks")?;
    if chunks < 1 {
        return Err(args.bad("chunks", "a positive integer"));
    }
    few_enough(args, chunks)?;
    if ty.sizes[at].is_zero() {
        return Ok(pieces(ty, at, &vec![Expr::zero(); chunks as usize]));
    }
    split_into(cx, args, ty, at, ty.sizes[at].ceildiv(chunks))
}

pub(crate) fn split_with_sizes(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = dim_of(args, "dim", ty)?;
    let name = if args.has("split_sizes") { "split_sizes" } else { "split_size" };
    let (lengths, size) = (args.ints(name)?, ty.sizes[at]);
    not_negative(cx, args, &lengths)?;
    let differs = |_| args.invalid(format!("dimension {at} of {size} does not split into {lengths:?}"));
    cx.require(Rel::eq(lengths.iter().sum::<Expr>(), size), args.op()).map_err(differs)?;
    Ok(pieces(ty, at, &lengths))
}

fn unbind(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = dim_of(args, "dim", ty)?;
    let count = ty.sizes[at].as_int().unwrap_or(args.node.outputs.len() as i64);
    cx.require(Rel::eq(ty.sizes[at], count), args.op())?;
    few_enough(args, count)?;
    Ok((0..count).map(|i| select_view(ty, at, Expr::int(i))).collect())
}

pub(crate) fn diagonal(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let offset = args.literal("offset")?;
    let (a, b) = (args.dim("dim1", ty.rank())?, args.dim("dim2", ty.rank())?);
    if a == b {
        return Err(args.invalid("dimensions must differ"));
    }
    let (down, right) = ((-offset).max(0), offset.max(0));
    let len = cx.simplify((ty.sizes[a] - down).min(ty.sizes[b] - right).max(0));
    let others: Vec<usize> = (0..ty.rank()).filter(|&d| d != a && d != b).collect();
    let last = others.len();
    let mut coords = vec![Expr::zero(); ty.rank()];
    others.iter().enumerate().for_each(|(to, &from)| coords[from] = dim(to));
    coords[a] = dim(last) + down;
    coords[b] = dim(last) + right;
    let mut sizes: Vec<Expr> = others.iter().map(|&d| ty.sizes[d]).collect();
    sizes.push(len);
    Ok(vec![View::new(sizes, coords)])
}

fn unfold(cx: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    let ty = first_tensor(args)?;
    let at = args.dim("dimension", ty.rank())?;
    let (size, step) = (args.int("size")?, args.int("step")?);
    let length = ty.sizes.get(at).copied().unwrap_or(Expr::one());
    let outside =
        |_| args.invalid(format!("windows of {size} every {step} do not fit in dimension {at} of {length}"));
    for rel in [Rel::ge(size, 0), Rel::le(size, length), Rel::ge(step, 1)] {
        cx.require(rel, args.op()).map_err(outside)?;
    }
    let mut view = View::identity(&ty.sizes);
    if ty.rank() == 0 {
        // A number is its own window.
        return reshape(cx, ty, vec![size]);
    }
    view.sizes[at] = cx.simplify((ty.sizes[at] - size).floordiv(step) + 1);
    view.sizes.push(size);
    view.coords[at] = step * dim(at) + dim(ty.rank());
    let mut strides = ty.strides.clone();
    strides.push(ty.strides[at]);
    strides[at] = ty.strides[at] * step;
    view.strides = Some(strides);
    Ok(vec![view])
}

fn as_strided_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let dtype = first_tensor(args)?.dtype;
    let (sizes, strides) = (args.ints("size")?, args.ints("stride")?);
    if sizes.len() != strides.len() {
        return Err(
            args.invalid(format!("expected one stride for each size, found {strides:?} for {sizes:?}"))
        );
    }
    for &e in sizes.iter().chain(&strides) {
        let negative = |_| args.invalid(format!("sizes {sizes:?} and strides {strides:?} are negative"));
        cx.require(Rel::ge(e, 0), args.op()).map_err(negative)?;
    }
    one(TensorType::strided(dtype, sizes, strides))
}

fn as_strided(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let (buf, first) = lw.storage(x)?;
    let offset = args.opt_int("storage_offset")?.unwrap_or(first);
    let (sizes, strides) = (args.ints("size")?, args.ints("stride")?);
    let access = lw.strided(args, buf, (sizes, &strides), offset)?;
    lw.set_result(args, 0, access);
    Ok(())
}
