//! Lowers convolutions whose taps are moved by offsets that the model computes.

use crate::args::{Args, Tensor};
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::vector_of;
use crate::lower::Lower;
use crate::ops::grid::between;
use crate::ops::window::Window;
use litz_ir::ReduceOp;
use litz_ir::graph::{TensorType, Type};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[lower("torchvision.deform_conv2d.default", result_type, convolution)];

/// What the arguments say.
struct Deformed<'a> {
    x: Tensor<'a>,
    weight: Tensor<'a>,
    /// `[batch, 2 * group * tap, row, column]`: how far each tap is moved down and to the right.
    offset: Tensor<'a>,
    /// `[batch, group * tap, row, column]`: a factor for each tap.
    mask: Option<Tensor<'a>>,
    windows: [Window; 2],
    groups: i64,
    /// Groups of channels that are moved together.
    moved: i64,
}

impl<'a> Deformed<'a> {
    fn new(args: &Args<'a>) -> Result<Deformed<'a>, OpError> {
        let [x, weight, offset] = ["input", "weight", "offset"].map(|name| args.tensor(name));
        let (x, weight, offset) = (x?, weight?, offset?);
        let mask = if args.flag("use_mask")? { Some(args.tensor("mask")?) } else { None };
        let of_four = [Some(x), Some(weight), Some(offset), mask].into_iter().flatten();
        if of_four.into_iter().any(|t| t.ty.rank() != 4) || !x.ty.dtype.is_float() {
            return Err(args.invalid("expected images, weights, offsets and factors of four dimensions"));
        }
        for name in ["weight", "offset", "mask", "bias"] {
            args.of_types(name, &[x.ty.dtype])?;
        }
        let (groups, moved) = (args.literal("groups")?, args.literal("offset_groups")?);
        if groups < 1 || moved < 1 {
            return Err(args.invalid("expected one group or more"));
        }
        let window = |side: &str| {
            let [stride, dilation] =
                ["stride", "dilation"].map(|name| args.literal(&format!("{name}_{side}")));
            let (stride, dilation, padding) = (stride?, dilation?, args.literal(&format!("pad_{side}"))?);
            if stride < 1 || dilation < 1 || padding < 0 {
                return Err(args.invalid("stride and dilation must be positive, padding not negative"));
            }
            Ok(Window::new(stride, dilation, Expr::int(padding)))
        };
        Ok(Deformed { x, weight, offset, mask, windows: [window("h")?, window("w")?], groups, moved })
    }

    fn taps(&self) -> [Expr; 2] {
        [self.weight.ty.sizes[2], self.weight.ty.sizes[3]]
    }
}

fn result_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let conv = Deformed::new(args)?;
    let (x, weight, taps) = (conv.x.ty, conv.weight.ty, conv.taps());
    let mut sizes = vec![x.sizes[0], weight.sizes[0]];
    for ((window, &size), &taps) in conv.windows.iter().zip(&x.sizes[2..]).zip(&taps) {
        cx.require(Rel::ge(taps, 1), args.op())?;
        sizes.push(window.count(cx, args, size, taps)?);
    }
    let moved = taps[0] * taps[1] * conv.moved;
    let mut equal = vec![
        (x.sizes[1], weight.sizes[1] * conv.groups),
        (weight.sizes[0].modulo(conv.groups), Expr::zero()),
        (x.sizes[1].modulo(conv.moved), Expr::zero()),
    ];
    for (tensor, channels) in [(Some(conv.offset), moved * 2), (conv.mask, moved)] {
        let found = tensor.iter().flat_map(|t| &t.ty.sizes).copied();
        equal.extend(found.zip([sizes[0], channels, sizes[2], sizes[3]]));
    }
    for (found, expected) in equal {
        let differs = |_| args.invalid(format!("operands do not fit: expected {expected}, found {found}"));
        cx.require(Rel::eq(found, expected), args.op()).map_err(differs)?;
    }
    vector_of(cx, args, "bias", weight.sizes[0])?;
    one(TensorType::contiguous(x.dtype, sizes))
}

/// What the taps see, as columns, and the product of that with the weight.
fn convolution(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let conv = Deformed::new(args)?;
    let (x, weight, offset) = (lw.access(conv.x)?, lw.access(conv.weight)?, lw.access(conv.offset)?);
    let (mask, bias) = (conv.mask.map(|t| lw.access(t)).transpose()?, lw.access(args.tensor("bias")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    let [rows, columns] = conv.taps();
    let (batch, inputs, channels) = (out.sizes[0], weight.sizes[1], out.sizes[1].floordiv(conv.groups));
    let together = x.sizes[1].floordiv(conv.moved);
    let seen = lw.temp("seen", x.dtype, &[batch, x.sizes[1], rows, columns, out.sizes[2], out.sizes[3]]);
    lw.nest(&seen.sizes, |b, at| {
        let tap = (at[1].floordiv(together) * rows + at[2]) * columns + at[3];
        let mut is_outside = None;
        let places = [0, 1].map(|d| {
            let Window { stride, dilation, before, .. } = conv.windows[d];
            let place = b.index(at[4 + d] * stride - before + at[2 + d] * dilation, compute);
            let moved = b.read(&offset, &[at[0], tap * 2 + d as i64, at[4], at[5]]);
            let place = b.add(place, moved);
            let (first, end) = (b.lit(place, -1.0), b.index(x.sizes[2 + d], compute));
            let (before, behind) = (b.le(place, first), b.ge(place, end));
            let outside = b.or(before, behind);
            is_outside = Some(is_outside.map_or(outside, |other| b.or(other, outside)));
            place
        });
        let mut v = between(b, &x, &at[..2], places);
        if let Some(outside) = is_outside {
            let zero = b.lit(v, 0.0);
            v = b.select(outside, zero, v);
        }
        if let Some(mask) = &mask {
            let factor = b.read(mask, &[at[0], tap, at[4], at[5]]);
            v = b.mul(factor, v);
        }
        b.store(&seen, at, v);
        Ok(())
    })?;
    let sum = lw.temp("sum", compute, &out.sizes);
    let extents = [batch, Expr::int(conv.groups), channels, out.sizes[2], out.sizes[3]];
    lw.nest(&extents, |b, at| {
        let [input, row, column] = [inputs, rows, columns].map(|extent| b.reduced_axis(extent));
        let result = at[1] * channels + at[2];
        let u = b.read(&seen, &[at[0], at[1] * inputs + input, row, column, at[3], at[4]]);
        let v = b.read(&weight, &[result, input, row, column]);
        let term = b.mul(u, v);
        let total = b.reduce(ReduceOp::Sum, term);
        b.store(&sum, &[at[0], result, at[3], at[4]], total);
        Ok(())
    })?;
    lw.nest(&out.sizes, |b, at| {
        let (v, shift) = (b.load(&sum, at), b.read(&bias, &at[1..2]));
        let v = b.add(v, shift);
        b.store(&out, at, v);
        Ok(())
    })
}
