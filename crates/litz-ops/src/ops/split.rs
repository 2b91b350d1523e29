//! Composes views that cut a tensor into a number of pieces or at given places, and those that only complex numbers need.

use crate::args::Args;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, identity, is_supported, view};
use crate::error::OpError;
use crate::infer::{InferCx, first_tensor};
use crate::ops::view::{Views, chunk, few_enough, pieces, reshape, split, split_with_sizes, swap_last};
use crate::traits::Complex;
use crate::traits::Holds::Always;
use crate::view::View;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, TensorType, Value};
use litz_ir::schema::Effect;
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    view("aten.tensor_split.sections", |cx, args| {
        let at = named_dim(args)?;
        into_sections(cx, args, at)
    }),
    view("aten.tensor_split.indices", |cx, args| {
        let at = named_dim(args)?;
        at_places(cx, args, at)
    }),
    decompose("aten.tensor_split.tensor_indices_or_sections", by_a_tensor).complex(Complex::Rewritten),
    view("aten.hsplit.int", |cx, args| into_equal(cx, args, HORIZONTAL)),
    view("aten.hsplit.array", |cx, args| {
        let at = dim_of(args, HORIZONTAL)?;
        at_places(cx, args, at)
    }),
    view("aten.vsplit.int", |cx, args| into_equal(cx, args, VERTICAL)),
    view("aten.vsplit.array", |cx, args| {
        let at = dim_of(args, VERTICAL)?;
        at_places(cx, args, at)
    }),
    view("aten.dsplit.int", |cx, args| into_equal(cx, args, DEEP)),
    view("aten.dsplit.array", |cx, args| {
        let at = dim_of(args, DEEP)?;
        at_places(cx, args, at)
    }),
    view("aten.unsafe_chunk.default", chunk).alias(Always).effect(Effect::None),
    view("aten.unsafe_split.Tensor", split).alias(Always),
    view("aten.unsafe_split_with_sizes.default", split_with_sizes).alias(Always),
    view("aten.atleast_1d.default", |cx, args| at_least(cx, args, 1)).alias(Always).effect(Effect::None),
    view("aten.atleast_2d.default", |cx, args| at_least(cx, args, 2)).alias(Always).effect(Effect::None),
    view("aten.atleast_3d.default", |cx, args| at_least(cx, args, 3)).alias(Always).effect(Effect::None),
    identity("aten.resolve_conj.default"),
    identity("aten.resolve_neg.default"),
    view("aten.positive.default", |_, args| match first_tensor(args)?.dtype {
        Dtype::Bool => Err(args.invalid("truth values have no sign")),
        _ => Ok(vec![View::identity(&first_tensor(args)?.sizes)]),
    }),
    view("aten.mH.default", adjoint),
    view("aten.adjoint.default", adjoint),
    view("aten.matrix_H.default", |cx, args| match first_tensor(args)?.rank() {
        0 => unchanged(cx, args),
        2 => adjoint(cx, args),
        _ => Err(args.invalid(format!("expected a matrix, found {}", first_tensor(args)?))),
    }),
];

/// Which dimension pieces follow each other along, by the rank from which on a tensor has it.
#[derive(Clone, Copy)]
struct Direction {
    dim: usize,
    least_rank: usize,
}

/// The second dimension, of a vector the only one.
const HORIZONTAL: Direction = Direction { dim: 1, least_rank: 1 };
const VERTICAL: Direction = Direction { dim: 0, least_rank: 2 };
const DEEP: Direction = Direction { dim: 2, least_rank: 3 };

fn dim_of(args: &Args<'_>, direction: Direction) -> Result<usize, OpError> {
    let ty = first_tensor(args)?;
    if ty.rank() < direction.least_rank {
        return Err(
            args.invalid(format!("expected at least {} dimensions, found {ty}", direction.least_rank))
        );
    }
    Ok(direction.dim.min(ty.rank() - 1))
}

/// The argument `dim` of a tensor that has dimensions.
fn named_dim(args: &Args<'_>) -> Result<usize, OpError> {
    let ty = first_tensor(args)?;
    match ty.rank() {
        0 => Err(args.invalid("a zero-dimensional tensor has no dimensions to cut")),
        rank => args.dim("dim", rank),
    }
}

/// As many pieces as `sections` says: those that come first are longer by 1 where the size is no multiple.
fn into_sections(cx: &mut InferCx<'_>, args: &Args<'_>, at: usize) -> Views {
    let (ty, sections) = (first_tensor(args)?, args.literal("sections")?);
    if sections < 1 {
        return Err(args.bad("sections", "a positive integer"));
    }
    few_enough(args, sections)?;
    let (least, longer) = (ty.sizes[at].floordiv(sections), ty.sizes[at].modulo(sections));
    let length = |i: i64| least + (longer - i).max(0).min(1);
    let lengths: Vec<Expr> = (0..sections).map(|i| cx.simplify(length(i))).collect();
    Ok(pieces(ty, at, &lengths))
}

/// As many pieces as a tensor without dimensions says, which is how many results there are. Places that a tensor holds would decide sizes.
fn by_a_tensor(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, dim) = (r.args().get("self").clone(), r.args().get("dim").clone());
    let sections = r.args().tensor("tensor_indices_or_sections")?;
    if sections.ty.rank() > 0 {
        return Err(r.args().unsupported("a split at places that a tensor holds"));
    }
    let (sections, count) = (sections.value, r.args().node.outputs.len() as i64);
    let agrees = r.call("aten.eq.Scalar", [Arg::Value(sections), Arg::Int(Expr::int(count))])?;
    let message = Arg::Str(format!("tensor_split: expected {count} pieces"));
    r.call_all("aten._assert_async.msg", [Arg::Value(agrees), message])?;
    let pieces = r.call_all("aten.tensor_split.sections", [x, Arg::Int(Expr::int(count)), dim])?;
    Ok(pieces.into_iter().flatten().collect())
}

/// As many pieces as `sections` says, all of one length.
fn into_equal(cx: &mut InferCx<'_>, args: &Args<'_>, direction: Direction) -> Views {
    let (ty, at, sections) = (first_tensor(args)?, dim_of(args, direction)?, args.literal("sections")?);
    if sections < 1 {
        return Err(args.bad("sections", "a positive integer"));
    }
    few_enough(args, sections)?;
    let size = ty.sizes[at];
    let uneven = |_| args.invalid(format!("{size} elements do not split into {sections} equal pieces"));
    cx.require(Rel::eq(size.modulo(sections), 0), args.op()).map_err(uneven)?;
    Ok(pieces(ty, at, &vec![cx.simplify(size.floordiv(sections)); sections as usize]))
}

/// The pieces between places, which are cut as Python cuts slices. Pieces may overlap, where places do not ascend.
fn at_places(cx: &mut InferCx<'_>, args: &Args<'_>, at: usize) -> Views {
    let (ty, places) = (first_tensor(args)?, args.ints("indices")?);
    let size = ty.sizes[at];
    few_enough(args, places.len() as i64 + 1)?;
    let place = |cx: &mut InferCx<'_>, place: Expr| {
        let from_front = if cx.known(Rel::lt(place, 0)) == Some(true) { place + size } else { place };
        cx.simplify(from_front.max(0).min(size))
    };
    let mut start = Expr::zero();
    let mut views = Vec::with_capacity(places.len() + 1);
    for end in places.into_iter().map(Some).chain([None]) {
        let end = match end {
            Some(end) => place(cx, end),
            None => size,
        };
        let length = cx.simplify((end - start).max(0));
        let mut view = View::identity(&ty.sizes);
        view.sizes[at] = length;
        view.coords[at] = start + view.coords[at];
        view.strides = Some(ty.strides.clone());
        views.push(view);
        start = end;
    }
    Ok(views)
}

/// The operand with at least that many dimensions: of a vector the second of three, of a matrix the first two.
fn at_least(cx: &mut InferCx<'_>, args: &Args<'_>, rank: usize) -> Views {
    let ty = first_tensor(args)?;
    match at_least_sizes(ty, rank) {
        Some(sizes) => reshape(cx, ty, sizes),
        None => Ok(vec![View::identity(&ty.sizes)]),
    }
}

/// The sizes of a tensor that is given at least that many dimensions, if it has fewer.
pub(crate) fn at_least_sizes(ty: &TensorType, rank: usize) -> Option<Vec<Expr>> {
    let one = Expr::one();
    match (rank, ty.sizes.as_slice()) {
        (_, sizes) if sizes.len() >= rank => None,
        (2, &[n]) => Some(vec![one, n]),
        (3, &[n]) => Some(vec![one, n, one]),
        (_, sizes) => Some(sizes.iter().copied().chain(vec![one; rank - sizes.len()]).collect()),
    }
}

/// The operand as it is.
fn unchanged(_: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    Ok(vec![View::identity(&real(args)?.sizes)])
}

fn adjoint(_: &mut InferCx<'_>, args: &Args<'_>) -> Views {
    real(args)?;
    swap_last(args)
}

/// The operand, whose elements are real.
fn real<'a>(args: &Args<'a>) -> Result<&'a TensorType, OpError> {
    let ty = first_tensor(args)?;
    if is_supported(ty.dtype) { Ok(ty) } else { Err(args.unsupported(&format!("element type {}", ty.dtype))) }
}
