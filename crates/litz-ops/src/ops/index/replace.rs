//! Lowers copies of a tensor in which another one takes the place of a view.

use super::{copied_self, self_type};
use crate::args::Args;
use crate::def::ViewFn;
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{distinct_where, is_distinct, is_overlapping, same_shape};
use crate::lower::Lower;
use crate::ops::view;
use crate::view::ValueAccess;
use litz_ir::graph::{TensorType, Type};
use litz_sym::{Expr, Rel};

pub(super) fn slice_scatter_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    replaces_view(cx, args, view::slice)
}

pub(super) fn select_scatter_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    replaces_view(cx, args, view::select)
}

pub(super) fn diagonal_scatter_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    replaces_view(cx, args, view::diagonal)
}

/// `src` has the sizes of the view of `self` that it takes the place of.
fn replaces_view(cx: &mut InferCx<'_>, args: &Args<'_>, views: ViewFn) -> Result<Vec<Type>, OpError> {
    for part in views(cx, args)? {
        same_shape(cx, args, "src", &part.sizes)?;
    }
    without_shared_elements(cx, args)?;
    self_type(cx, args)
}

/// PyTorch writes to a copy that lies as the operand does: where elements share memory, others than those of the view change.
fn without_shared_elements(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?.ty;
    // The copy of what is expanded is not.
    let is_expanded = (0..x.rank()).any(|d| x.strides[d].is_zero() && !x.sizes[d].is_one());
    if is_expanded || is_distinct(cx.facts, x) {
        return Ok(());
    }
    let shared = || args.unsupported("an operand whose elements share memory");
    let conditions =
        distinct_where(cx.facts, x).filter(|_| !is_overlapping(cx.facts, x)).ok_or_else(shared)?;
    conditions.into_iter().try_for_each(|rel| cx.require(rel, args.op())).map_err(|_| shared())
}

pub(super) fn slice_scatter(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let along = args.dim("dim", x.ty.rank())?;
    let (start, len, step) = view::slice_range(&mut lw.infer_cx(), args, x.ty.sizes[along])?;
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

pub(super) fn select_scatter(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
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

pub(super) fn diagonal_scatter(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let source = lw.access(args.tensor("src")?)?;
    let views = view::diagonal(&mut lw.infer_cx(), args)?;
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    let Some(part) = views.first() else { return Ok(()) };
    let diagonal = lw.view(&out, part);
    put_whole(lw, &source, &diagonal)
}

pub(super) fn strided_scatter_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (sizes, strides) = (args.ints("size")?, args.ints("stride")?);
    same_shape(cx, args, "src", &sizes)?;
    if strides.len() != sizes.len() {
        return Err(args.invalid(format!("expected {} strides, found {}", sizes.len(), strides.len())));
    }
    let part = TensorType { sizes, strides, ..args.tensor("src")?.ty.clone() };
    if is_overlapping(cx.facts, &part) {
        // Which of several elements their common memory keeps is nobody's choice.
        return Err(args.invalid(format!("a part {part}, whose elements share memory")));
    }
    without_shared_elements(cx, args)?;
    self_type(cx, args)
}

/// `as_strided` of a copy of `self`, which must lie in memory as the copy does.
pub(super) fn strided_scatter(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let (source, offset) = (lw.access(args.tensor("src")?)?, args.opt_int("storage_offset")?);
    // An offset counts from the start of the storage, of which a view may hold a part only.
    let access = lw.access(x)?;
    let is_whole = lw.strides(&access).is_some_and(|(_, first)| first.is_zero());
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    if !out.is_strided_as(x.ty, lw.infer_cx().facts) || offset.is_some() && !is_whole {
        return Err(args.unsupported("an operand that is a part of its storage"));
    }
    let (sizes, strides) = (args.ints("size")?, args.ints("stride")?);
    let part = lw.strided(args, out.buf, (sizes, &strides), offset.unwrap_or(Expr::zero()))?;
    put_whole(lw, &source, &part)
}

/// Copies a value to a part of a buffer.
fn put_whole(lw: &mut Lower<'_>, source: &ValueAccess, part: &ValueAccess) -> Result<(), OpError> {
    let source = source.broadcast(&part.sizes);
    lw.nest(&part.sizes, |b, at| {
        let v = b.load(&source, at);
        b.store(part, at, v);
        Ok(())
    })
}
