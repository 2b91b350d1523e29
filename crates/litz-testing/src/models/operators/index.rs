//! Calls that look elements up: gathers, scatters, sorts.

use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

use super::fresh;
use crate::models::Fill;
use crate::models::writer::{Writer, int, tensor};

/// An input of positions along a dimension of `size`.
fn positions(w: &mut Writer<'_, '_>, sizes: Vec<Expr>, size: Expr) -> Option<Value> {
    // Nothing can be taken from a dimension that may be empty.
    let dtype = if w.choices.once_in(6) { Dtype::I32 } else { Dtype::I64 };
    w.input(dtype, sizes, Fill::Index(size))
}

pub(super) fn gather(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = match w.find(|ty| ty.rank() >= 1) {
        Some(found) => found,
        None => fresh(w)?,
    };
    let ty = w.ty(a);
    if ty.rank() == 0 {
        return None;
    }
    let dim = w.choices.below(ty.rank());
    let a = tensor(a);
    match w.choices.below(5) {
        0 => {
            let sizes = w.sizes(1);
            let index = positions(w, sizes, ty.sizes[dim])?;
            one!(w, "aten.index_select.default", vec![a, int(dim as i64), tensor(index)])
        }
        1 => {
            let mut sizes = ty.sizes.clone();
            sizes[dim] = w.extent();
            let index = w.input(Dtype::I64, sizes, Fill::Index(ty.sizes[dim]))?;
            one!(w, "aten.gather.default", vec![a, int(dim as i64), tensor(index)])
        }
        2 => {
            let rank = 1 + w.choices.below(2);
            let sizes = w.sizes(rank);
            let index = positions(w, sizes, ty.sizes[0])?;
            one!(w, "aten.index.Tensor", vec![a, Arg::List(vec![tensor(index)])])
        }
        3 if ty.rank() == 2 => {
            let sizes = w.sizes(2);
            let index = positions(w, sizes, ty.sizes[0])?;
            one!(w, "aten.embedding.default", vec![a, tensor(index)])
        }
        _ => {
            let sizes = w.sizes(1);
            let first = positions(w, sizes.clone(), ty.sizes[0])?;
            let last = positions(w, sizes, *ty.sizes.get(1)?)?;
            one!(w, "aten.index.Tensor", vec![a, Arg::List(vec![tensor(first), tensor(last)])])
        }
    }
    .map(drop)
}

pub(super) fn scatter(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = match w.find(|ty| ty.rank() >= 1) {
        Some(found) => found,
        None => fresh(w)?,
    };
    let ty = w.ty(a);
    if ty.rank() == 0 {
        return None;
    }
    let dim = w.choices.below(ty.rank());
    let mut sizes = ty.sizes.clone();
    sizes[dim] = w.extent();
    let (at, along) = (int(dim as i64), ty.sizes[dim]);
    let a = tensor(a);
    match w.choices.below(7) {
        0 => {
            let index = w.input(Dtype::I64, sizes.clone(), Fill::Index(along))?;
            let source = w.input(ty.dtype, sizes, Fill::Small)?;
            one!(w, "aten.scatter_add.default", vec![a, at, tensor(index), tensor(source)])
        }
        1 => {
            let index = w.input(Dtype::I64, vec![sizes[dim]], Fill::Index(along))?;
            let source = w.input(ty.dtype, sizes, Fill::Small)?;
            one!(w, "aten.index_add.default", vec![a, at, tensor(index), tensor(source)])
        }
        2 => {
            // Repeated positions leave it open which value stays.
            let accumulate = w.choices.once_in(2);
            let extent = if accumulate { w.extent() } else { Expr::one() };
            let index = positions(w, vec![extent], ty.sizes[0])?;
            let values = [&[extent], &ty.sizes[1..]].concat();
            let values = w.input(ty.dtype, values, Fill::Small)?;
            let accumulate = Arg::Bool(accumulate);
            one!(
                w,
                "aten.index_put.default",
                vec![a, Arg::List(vec![tensor(index)]), tensor(values), accumulate]
            )
        }
        3 => {
            let index = w.input(Dtype::I64, sizes.clone(), Fill::Index(along))?;
            one!(w, "aten.scatter.value", vec![a, at, tensor(index), int(2)])
        }
        4 => {
            let index = w.input(Dtype::I64, sizes.clone(), Fill::Index(along))?;
            let source = w.input(ty.dtype, sizes, Fill::Small)?;
            let how = w.choices.pick(&["sum", "amax", "prod", "amin", "mean"]);
            call!(
                w,
                "aten.scatter_reduce.two",
                vec![a, at, tensor(index), tensor(source), Arg::Str(how.into())],
                &[("include_self", Arg::Bool(!w.choices.once_in(3))),]
            )
            .map(|values| values[0])
        }
        5 => {
            let index = w.input(Dtype::I64, vec![sizes[dim]], Fill::Index(along))?;
            one!(w, "aten.index_fill.int_Scalar", vec![a, at, tensor(index), int(3)])
        }
        _ => {
            // Repeated positions leave it open which value stays: one position.
            let mut sizes = ty.sizes.clone();
            sizes[dim] = Expr::one();
            let index = w.input(Dtype::I64, sizes.clone(), Fill::Index(along))?;
            let source = w.input(ty.dtype, sizes, Fill::Small)?;
            one!(w, "aten.scatter.src", vec![a, at, tensor(index), tensor(source)])
        }
    }
    .map(drop)
}

pub(super) fn sort(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = match w.find(|ty| ty.rank() >= 1 && ty.dtype != Dtype::Bool) {
        Some(found) => found,
        None => fresh(w)?,
    };
    let ty = w.ty(a);
    let (dim, is_descending) = (w.dim(&ty), Arg::Bool(w.choices.once_in(2)));
    match w.choices.below(3) {
        0 => call!(
            w,
            "aten.sort.stable",
            vec![tensor(a)],
            &[("stable", Arg::Bool(true)), ("dim", dim), ("descending", is_descending),]
        ),
        1 => {
            // The order of equal numbers is not promised: different ones, in a type that has enough of them.
            let wide = [Dtype::F64, Dtype::I64, Dtype::I32].into_iter().find(|&wide| wide == ty.dtype);
            let a = w.input(wide.unwrap_or(Dtype::F32), ty.sizes, Fill::Distinct)?;
            call!(
                w,
                "aten.topk.default",
                vec![tensor(a), int(w.choices.pick(&[1, 2, 3])), dim, is_descending],
                &[]
            )
        }
        _ => call!(
            w,
            "aten.argsort.stable",
            vec![tensor(a)],
            &[("stable", Arg::Bool(true)), ("dim", dim), ("descending", is_descending),]
        ),
    }
    .map(drop)
}
