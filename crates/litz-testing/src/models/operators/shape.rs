//! Calls that move elements: views, writes through them, joining, padding, resizing.

use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

use super::{any, fresh, matrix, partner};
use crate::models::writer::{Writer, int, ints, number, tensor};

/// One view of a tensor, by any of the operators.
fn view_of(w: &mut Writer<'_, '_>, a: Value) -> Option<Value> {
    let ty = w.ty(a);
    let rank = ty.rank() as i64;
    let dim = w.dim(&ty);
    Some(match w.choices.below(16) {
        0 => {
            let mut order: Vec<i64> = (0..rank).collect();
            for at in (1..order.len()).rev() {
                order.swap(at, w.choices.below(at + 1));
            }
            one!(w, "aten.permute.default", vec![tensor(a), ints(&order)])?
        }
        1 => {
            let (start, end) = w.choices.pick(&[(0, 2), (1, i64::MAX), (-3, -1), (0, -1), (2, 5)]);
            let step = w.choices.pick(&[1, 2, 1, 3]);
            one!(w, "aten.slice.Tensor", vec![tensor(a), dim, int(start), int(end), int(step)])?
        }
        2 => one!(w, "aten.select.int", vec![tensor(a), dim, int(w.choices.pick(&[0, -1, 1]))])?,
        3 => one!(
            w,
            "aten.unsqueeze.default",
            vec![tensor(a), int(w.choices.below(rank as usize + 1) as i64)]
        )?,
        4 => {
            let mut sizes = ty.sizes.clone();
            if let Some(at) = sizes.iter().position(|size| size.is_one()) {
                sizes[at] = w.extent();
            }
            if w.choices.once_in(2) {
                sizes.insert(0, w.extent());
            }
            one!(w, "aten.expand.default", vec![tensor(a), Arg::ints(sizes)])?
        }
        5 => one!(w, "aten.flatten.using_ints", vec![tensor(a), int(w.choices.below(2) as i64), int(-1)])?,
        6 => {
            let at = w.choices.below(2) as i64;
            one!(w, "aten.transpose.int", vec![tensor(a), int(at), int(-1)])?
        }
        7 => {
            // Some size as two factors.
            let at = (0..ty.rank()).find(|&at| ty.sizes[at].as_int().is_some_and(|n| n > 3 && n % 2 == 0))?;
            let mut sizes = ty.sizes.clone();
            sizes.insert(at + 1, sizes[at].floordiv(2));
            sizes[at] = Expr::int(2);
            let op = w.choices.pick(&["aten.view.default", "aten.reshape.default"]);
            one!(w, op, vec![tensor(a), Arg::ints(sizes)])?
        }
        8 => one!(w, "aten.reshape.default", vec![tensor(a), ints(&[-1])])?,
        9 => one!(w, "aten.squeeze.dim", vec![tensor(a), dim])?,
        10 => {
            let parts =
                call!(w, "aten.split.Tensor", vec![tensor(a), int(w.choices.pick(&[2, 1, 3])), dim], &[])?;
            parts[w.choices.below(parts.len())]
        }
        11 => {
            let parts = call!(w, "aten.unbind.int", vec![tensor(a), dim], &[])?;
            *parts.get(w.choices.below(parts.len().max(1)))?
        }
        12 => {
            let offset = w.choices.pick(&[0, 1, -1]);
            one!(w, "aten.diagonal.default", vec![tensor(a), int(offset), int(0), int(-1)])?
        }
        13 => one!(w, "aten.unfold.default", vec![tensor(a), dim, int(2), int(w.choices.pick(&[1, 2]))])?,
        14 => {
            let parts =
                call!(w, "aten.chunk.default", vec![tensor(a), int(w.choices.pick(&[2, 3])), dim], &[])?;
            parts[w.choices.below(parts.len())]
        }
        _ => one!(w, "aten.narrow.default", vec![tensor(a), dim, int(w.choices.pick(&[0, 1])), int(2)])?,
    })
}

pub(super) fn view(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    view_of(w, a)?;
    Some(())
}

/// A write through a chain of views of a copy or of an input; base and view are read afterwards.
pub(super) fn write_through(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    // What is written to a constant would be there in the next call.
    let is_input = !w.is_const(a) && w.choices.once_in(3);
    let base = if is_input { a } else { one!(w, "aten.clone.default", vec![tensor(a)])? };
    let mut seen = base;
    for _ in 0..w.choices.below(3) {
        seen = view_of(w, seen)?;
    }
    let ty = w.ty(seen);
    // What lies on top of itself cannot be written.
    if ty.sizes.iter().zip(&ty.strides).any(|(size, stride)| stride.is_zero() && !size.is_one()) {
        return None;
    }
    match w.choices.below(6) {
        0 => one!(w, "aten.add_.Scalar", vec![tensor(seen), int(1)]),
        1 => one!(w, "aten.mul_.Scalar", vec![tensor(seen), int(2)]),
        2 => one!(w, "aten.fill_.Scalar", vec![tensor(seen), int(3)]),
        3 => {
            let other = partner(w, &ty)?;
            one!(w, "aten.copy_.default", vec![tensor(seen), tensor(other)])
        }
        4 => one!(w, "aten.zero_.default", vec![tensor(seen)]),
        _ => {
            let other = partner(w, &ty)?;
            one!(w, "aten.add_.Tensor", vec![tensor(seen), tensor(other)])
        }
    }?;
    w.want(base);
    if w.choices.once_in(2) {
        one!(w, "aten.neg.default", vec![tensor(seen)]);
    }
    Some(())
}

pub(super) fn join(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let ty = w.ty(a);
    let dim = w.choices.below(ty.rank().max(1)) as i64;
    match w.choices.below(5) {
        0 => {
            let mut sizes = ty.sizes.clone();
            *sizes.get_mut(dim as usize)? = w.extent();
            let b = matrix(w, ty.dtype, sizes)?;
            let mut parts = vec![tensor(a), tensor(b)];
            if w.choices.once_in(3) {
                parts.push(tensor(a));
            }
            one!(w, "aten.cat.default", vec![Arg::List(parts), int(dim)])
        }
        1 => {
            let b = matrix(w, ty.dtype, ty.sizes.clone())?;
            one!(w, "aten.stack.default", vec![Arg::List(vec![tensor(a), tensor(b)]), int(dim)])
        }
        2 => one!(w, "aten.flip.default", vec![tensor(a), ints(&[dim])]),
        3 => {
            let shift = w.choices.pick(&[1, -1, 2, 5]);
            one!(w, "aten.roll.default", vec![tensor(a), ints(&[shift]), ints(&[dim])])
        }
        _ => {
            let repeats: Vec<i64> = (0..ty.rank()).map(|_| w.choices.pick(&[1, 2, 1, 3])).collect();
            one!(w, "aten.repeat.default", vec![tensor(a), ints(&repeats)])
        }
    }
    .map(drop)
}

pub(super) fn pad(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = match w.find(|ty| ty.rank() >= 1) {
        Some(found) => found,
        None => fresh(w)?,
    };
    let ty = w.ty(a);
    let (before, after) = (w.choices.pick(&[1, 0, 2, -1]), w.choices.pick(&[1, 2, 0]));
    if ty.rank() >= 2 && w.choices.once_in(4) {
        let mode = w.choices.pick(&["reflect", "replicate", "circular"]);
        let args = vec![tensor(a), ints(&[before.max(0), after]), Arg::Str(mode.into())];
        return one!(w, "aten.pad.default", args).map(drop);
    }
    let mut amounts = vec![before, after];
    if ty.rank() >= 2 && w.choices.once_in(2) {
        amounts.extend([after, before.max(0)]);
    }
    let value = if ty.dtype.is_float() { number(0.5) } else { int(1) };
    one!(w, "aten.constant_pad_nd.default", vec![tensor(a), ints(&amounts), value]).map(drop)
}

pub(super) fn resize(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = w.find(|ty| ty.dtype.is_float() && ty.rank() == 4)?;
    let sizes = ints(&[w.choices.pick(&[4, 3, 8]), w.choices.pick(&[6, 5, 2])]);
    match w.choices.below(3) {
        0 => one!(w, "aten.upsample_nearest2d.vec", vec![tensor(a), sizes, Arg::None]),
        1 => one!(
            w,
            "aten.upsample_bilinear2d.vec",
            vec![tensor(a), sizes, Arg::Bool(w.choices.once_in(2)), Arg::None]
        ),
        _ => one!(w, "aten.pixel_shuffle.default", vec![tensor(a), int(2)]),
    }
    .map(drop)
}

pub(super) fn factory(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = any(w)?;
    let ty = w.ty(a);
    match w.choices.below(4) {
        0 => one!(w, "aten.tril.default", vec![tensor(a), int(w.choices.pick(&[0, 1, -1]))]),
        1 => one!(w, "aten.triu.default", vec![tensor(a), int(w.choices.pick(&[0, 1, -1]))]),
        2 => {
            let size = *ty.sizes.last()?;
            call!(w, "aten.arange.default", vec![Arg::Int(size)], &[("dtype", Arg::Dtype(w.dtype()))])
                .map(|v| v[0])
        }
        _ => one!(w, "aten.ones_like.default", vec![tensor(a)]),
    }
    .map(drop)
}
