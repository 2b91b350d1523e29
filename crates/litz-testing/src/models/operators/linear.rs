//! Calls that sum products, and what stands around them: convolutions, pools, norms, attention.

use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

use super::float;
use crate::models::Fill;
use crate::models::writer::{Writer, int, ints, number, tensor};

/// A matrix of the type and rows of `a`, there already or an input.
pub(super) fn matrix(w: &mut Writer<'_, '_>, dtype: Dtype, sizes: Vec<Expr>) -> Option<Value> {
    if !w.choices.once_in(2) {
        let wanted = sizes.clone();
        if let Some(found) = w.find(|ty| ty.dtype == dtype && ty.sizes == wanted) {
            return Some(found);
        }
    }
    w.input(dtype, sizes, Fill::Small)
}

pub(super) fn product(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = match w.find(|ty| ty.dtype.is_float() && (2..=3).contains(&ty.rank())) {
        Some(found) => found,
        None => float(w, 2)?,
    };
    let ty = w.ty(a);
    let (dtype, shared) = (ty.dtype, *ty.sizes.last()?);
    let columns = w.extent();
    match (ty.rank(), w.choices.below(4)) {
        (2, 0) => {
            let b = matrix(w, dtype, vec![shared, columns])?;
            one!(w, "aten.mm.default", vec![tensor(a), tensor(b)])
        }
        (2, 1) => {
            let b = matrix(w, dtype, vec![shared, columns])?;
            let bias = w.input(dtype, vec![columns], Fill::Small)?;
            one!(w, "aten.addmm.default", vec![tensor(bias), tensor(a), tensor(b)])
        }
        (3, 0 | 1) => {
            let b = matrix(w, dtype, vec![ty.sizes[0], shared, columns])?;
            one!(w, "aten.bmm.default", vec![tensor(a), tensor(b)])
        }
        (_, 2) => {
            let b = matrix(w, dtype, vec![columns, shared])?;
            let bias = if w.choices.once_in(2) {
                tensor(w.input(dtype, vec![columns], Fill::Small)?)
            } else {
                Arg::None
            };
            one!(w, "aten.linear.default", vec![tensor(a), tensor(b), bias])
        }
        _ => {
            let b = matrix(w, dtype, vec![shared, columns])?;
            one!(w, "aten.matmul.default", vec![tensor(a), tensor(b)])
        }
    }
    .map(drop)
}

/// Convolutions and pools of an image.
pub(super) fn window(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = match w.find(|ty| ty.dtype.is_float() && ty.rank() == 4) {
        Some(found) => found,
        None => {
            let sizes = [w.choices.pick(&[1, 2]), w.choices.pick(&[4, 2, 1, 8, 3])].map(Expr::int);
            let image = w.sizes(2);
            let dtype = w.float();
            w.input(dtype, [&sizes[..], &image].concat(), Fill::Small)?
        }
    };
    let ty = w.ty(a);
    let kernel = [w.choices.pick(&[2, 3, 1]), w.choices.pick(&[3, 2, 1])];
    let stride = w.choices.pick(&[1, 2, 1, 3]);
    let padding = w.choices.pick(&[0, 1]);
    let a = tensor(a);
    match w.choices.below(6) {
        0 | 1 => {
            let channels = ty.sizes[1].as_int()?;
            let groups = if channels > 0 && channels % 2 == 0 && w.choices.once_in(3) {
                w.choices.pick(&[2, channels])
            } else {
                1
            };
            let outputs = groups * w.choices.pick(&[1, 4, 3, 2, 8]);
            let weight = [outputs, channels / groups, kernel[0], kernel[1]].map(Expr::int).to_vec();
            let weight = w.input(ty.dtype, weight, Fill::Small)?;
            let bias = if w.choices.once_in(2) {
                tensor(w.input(ty.dtype, vec![Expr::int(outputs)], Fill::Small)?)
            } else {
                Arg::None
            };
            let dilation = w.choices.pick(&[1, 1, 2]);
            let args = vec![
                a,
                tensor(weight),
                bias,
                ints(&[stride, stride]),
                ints(&[padding, padding]),
                ints(&[dilation, dilation]),
                int(groups),
            ];
            let y = one!(w, "aten.conv2d.default", args)?;
            if w.choices.once_in(3) {
                batch_norm(w, y)?;
            }
            Some(y)
        }
        2 => {
            let args =
                vec![a, ints(&kernel), ints(&[stride, stride]), ints(&[0, padding.min(kernel[1] / 2)])];
            one!(w, "aten.max_pool2d.default", args)
        }
        3 => {
            let args =
                vec![a, ints(&kernel), ints(&[stride, stride]), ints(&[0, padding.min(kernel[1] / 2)])];
            one!(w, "aten.avg_pool2d.default", args)
        }
        4 => one!(w, "aten.adaptive_avg_pool2d.default", vec![a, ints(&[w.choices.pick(&[1, 2, 3]), 2])]),
        _ => {
            let channels = ty.sizes[1].as_int()?;
            let weight = [channels, w.choices.pick(&[2, 1, 3]), kernel[0], kernel[1]].map(Expr::int).to_vec();
            let weight = w.input(ty.dtype, weight, Fill::Small)?;
            one!(
                w,
                "aten.conv_transpose2d.input",
                vec![a, tensor(weight), Arg::None, ints(&[stride, stride])]
            )
        }
    }
    .map(drop)
}

fn batch_norm(w: &mut Writer<'_, '_>, a: Value) -> Option<()> {
    let ty = w.ty(a);
    let channels = *ty.sizes.get(1)?;
    let mut of = |fill| w.input(ty.dtype, vec![channels], fill).map(tensor);
    let (weight, bias, mean, variance) =
        (of(Fill::Small)?, of(Fill::Small)?, of(Fill::Small)?, of(Fill::Positive)?);
    let args = vec![
        tensor(a),
        weight,
        bias,
        mean,
        variance,
        Arg::Bool(false),
        number(0.1),
        number(1e-5),
        Arg::Bool(false),
    ];
    one!(w, "aten.batch_norm.default", args).map(drop)
}

pub(super) fn norm(w: &mut Writer<'_, '_>) -> Option<()> {
    let a = float(w, 2)?;
    let ty = w.ty(a);
    let last = *ty.sizes.last()?;
    match w.choices.below(4) {
        0 => {
            let weight = w.input(ty.dtype, vec![last], Fill::Small)?;
            let bias = w.input(ty.dtype, vec![last], Fill::Small)?;
            let args = vec![tensor(a), Arg::ints([last]), tensor(weight), tensor(bias)];
            one!(w, "aten.layer_norm.default", args).map(drop)
        }
        1 => {
            let weight = w.input(ty.dtype, vec![last], Fill::Small)?;
            one!(w, "aten.rms_norm.default", vec![tensor(a), Arg::ints([last]), tensor(weight)]).map(drop)
        }
        2 => {
            let groups = if ty.sizes[1].as_int().is_some_and(|n| n % 2 == 0) { 2 } else { 1 };
            one!(w, "aten.group_norm.default", vec![tensor(a), int(groups)]).map(drop)
        }
        _ => batch_norm(w, a),
    }
}

pub(super) fn attention(w: &mut Writer<'_, '_>) -> Option<()> {
    let dtype = w.float();
    let (heads, rows, columns, width) =
        (Expr::int(w.choices.pick(&[2, 1])), w.extent(), w.extent(), Expr::int(w.choices.pick(&[4, 8, 5])));
    let query = w.input(dtype, vec![heads, rows, width], Fill::Small)?;
    let key = w.input(dtype, vec![heads, columns, width], Fill::Small)?;
    let value = w.input(dtype, vec![heads, columns, width], Fill::Small)?;
    let turned = one!(w, "aten.transpose.int", vec![tensor(key), int(1), int(2)])?;
    let scores = one!(w, "aten.bmm.default", vec![tensor(query), tensor(turned)])?;
    let scaled = one!(w, "aten.mul.Scalar", vec![tensor(scores), number(0.25)])?;
    let rows = one!(w, "aten.softmax.int", vec![tensor(scaled), int(-1)])?;
    one!(w, "aten.bmm.default", vec![tensor(rows), tensor(value)]).map(drop)
}
