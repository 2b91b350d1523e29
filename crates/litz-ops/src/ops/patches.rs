//! Rearranges images: patches to columns and back, space to channels, shuffled channels.

use crate::args::Args;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, suggested_format};
use crate::lower::Lower;
use crate::ops::window::{Window, reduced_axes};
use litz_ir::graph::{TensorType, Type};
use litz_ir::{ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.im2col.default", columns_type, im2col),
    lower("aten.col2im.default", image_type, col2im),
    lower("aten.pixel_unshuffle.default", unshuffle_type, unshuffle),
    lower("aten.channel_shuffle.default", shuffle_type, shuffle),
];

/// The patches of an image of `sizes`, its height and width: how they lie, their size, their number.
struct Patches {
    windows: [Window; 2],
    kernel: [Expr; 2],
    counts: [Expr; 2],
}

fn patches(cx: &mut InferCx<'_>, args: &Args<'_>, sizes: &[Expr]) -> Result<Patches, OpError> {
    let (kernel, stride) = (args.literals_of("kernel_size", 2)?, args.literals_of("stride", 2)?);
    let (padding, dilation) = (args.literals_of("padding", 2)?, args.literals_of("dilation", 2)?);
    if [&kernel, &stride, &dilation].into_iter().flatten().any(|&i| i < 1) || padding.iter().any(|&p| p < 0) {
        return Err(args.invalid("kernel size, stride and dilation must be positive, padding not negative"));
    }
    let window = |d: usize| Window::new(stride[d], dilation[d], Expr::int(padding[d]));
    let (windows, kernel) = ([window(0), window(1)], [Expr::int(kernel[0]), Expr::int(kernel[1])]);
    let count = |d: usize, cx: &mut InferCx<'_>| windows[d].count(cx, args, sizes[d], kernel[d]);
    let counts = [count(0, cx)?, count(1, cx)?];
    Ok(Patches { windows, kernel, counts })
}

/// The operand's sizes without the batch, if it has one, and the batch.
fn unbatched<'a>(args: &Args<'a>, rank: usize) -> Result<(&'a [Expr], &'a [Expr]), OpError> {
    let x = args.tensor("self")?.ty;
    match x.rank().checked_sub(rank) {
        Some(lead @ (0 | 1)) => Ok(x.sizes.split_at(lead)),
        _ => Err(args.bad("self", &format!("{rank} or {} dimensions", rank + 1))),
    }
}

/// `[batch, channel * tap, patch]`
fn columns_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (batch, image) = unbatched(args, 3)?;
    let Patches { kernel, counts, .. } = patches(cx, args, &image[1..])?;
    let mut sizes = batch.to_vec();
    sizes.extend([image[0] * kernel[0] * kernel[1], counts[0] * counts[1]]);
    one(TensorType::contiguous(args.tensor("self")?.ty.dtype, sizes))
}

fn im2col(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let (batch, image) = unbatched(args, 3)?;
    let Patches { windows, kernel, counts } = patches(&mut lw.infer_cx(), args, &image[1..])?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let extents = [batch, &[image[0]], &kernel, &counts].concat();
    lw.nest(&extents, |b, at| {
        let (lead, at) = at.split_at(batch.len());
        let (channel, taps, patch) = (at[0], &at[1..3], &at[3..5]);
        let (mut coords, mut guard) = ([lead, &[channel]].concat(), Vec::new());
        for d in 0..2 {
            let (element, exists) = windows[d].source(patch[d], taps[d], image[1 + d]);
            coords.push(element);
            guard.extend(exists);
        }
        let v = b.load_if(&x, &coords, guard, Scalar::zero(x.dtype));
        let row = (channel * kernel[0] + taps[0]) * kernel[1] + taps[1];
        b.store(&out, &[lead, &[row, patch[0] * counts[1] + patch[1]]].concat(), v);
        Ok(())
    })
}

fn image_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (batch, columns) = unbatched(args, 2)?;
    let size = args.ints_of("output_size", 2)?;
    let Patches { kernel, counts, .. } = patches(cx, args, &size)?;
    let taps = kernel[0] * kernel[1];
    let patches = counts[0] * counts[1];
    let differs = |_| {
        args.invalid(format!(
            "expected columns of {taps} taps for each channel and {patches} patches, found {columns:?}"
        ))
    };
    cx.require(Rel::eq(columns[0].modulo(taps), 0), args.op()).map_err(differs)?;
    cx.require(Rel::eq(columns[1], patches), args.op()).map_err(differs)?;
    let sizes = [batch, &[cx.simplify(columns[0].floordiv(taps))], &size].concat();
    one(TensorType::contiguous(args.tensor("self")?.ty.dtype, sizes))
}

/// Each element is the sum of what the patches over it hold for it.
fn col2im(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let size = args.ints_of("output_size", 2)?;
    let Patches { windows, kernel, counts } = patches(&mut lw.infer_cx(), args, &size)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let (lead, place) = at.split_at(at.len() - 2);
        let (batch, channel) = lead.split_at(lead.len() - 1);
        let taps = reduced_axes(b, &kernel);
        let (mut patch, mut guard) = (Expr::zero(), Vec::new());
        for d in 0..2 {
            let (source, exists) = windows[d].spread_source(place[d], taps[d], counts[d]);
            patch = patch * counts[d] + source;
            guard.extend(exists);
        }
        let row = (channel[0] * kernel[0] + taps[0]) * kernel[1] + taps[1];
        let v = b.load_if(&x, &[batch, &[row, patch]].concat(), guard, Scalar::zero(x.dtype));
        let mut v = b.cast(v, x.dtype.compute());
        if kernel.iter().any(|k| !k.is_one()) {
            v = b.reduce(ReduceOp::Sum, v);
        }
        b.store(&out, at, v);
        Ok(())
    })
}

/// A result of other sizes that keeps channels last.
fn rearranged(cx: &InferCx<'_>, x: &TensorType, sizes: Vec<Expr>) -> Result<Vec<Type>, OpError> {
    let strides = format_strides(suggested_format(cx.facts, x), &sizes);
    one(TensorType::strided(x.dtype, sizes, strides))
}

fn unshuffle_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, factor) = (args.tensor("self")?.ty, args.literal("downscale_factor")?);
    let Some(lead) = x.rank().checked_sub(3) else {
        return Err(args.bad("self", "at least three dimensions"));
    };
    if factor < 1 {
        return Err(args.bad("downscale_factor", "a positive integer"));
    }
    let mut sizes = x.sizes[..lead].to_vec();
    sizes.push(x.sizes[lead] * factor * factor);
    for &size in &x.sizes[lead + 1..] {
        let uneven = |_| args.invalid(format!("{size} of {x} is no multiple of {factor}"));
        cx.require(Rel::eq(size.modulo(factor), 0), args.op()).map_err(uneven)?;
        sizes.push(cx.simplify(size.floordiv(factor)));
    }
    rearranged(cx, x, sizes)
}

fn unshuffle(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let factor = Expr::int(args.literal("downscale_factor")?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let lead = x.rank() - 3;
    let extents = [&x.sizes[..=lead], &[factor, factor], &out.sizes[lead + 1..]].concat();
    lw.nest(&extents, |b, at| {
        let (batch, at) = at.split_at(lead);
        let [channel, i, j, row, column] = [at[0], at[1], at[2], at[3], at[4]];
        let v = b.load(&x, &[batch, &[channel, row * factor + i, column * factor + j]].concat());
        b.store(&out, &[batch, &[(channel * factor + i) * factor + j, row, column]].concat(), v);
        Ok(())
    })
}

fn shuffle_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, groups) = (args.tensor("self")?.ty, args.literal("groups")?);
    if x.rank() < 3 || groups < 1 {
        return Err(args.invalid("expected at least three dimensions and one group"));
    }
    let uneven = |_| args.invalid(format!("the channels of {x} are not {groups} groups of equal size"));
    cx.require(Rel::eq(x.sizes[1].modulo(groups), 0), args.op()).map_err(uneven)?;
    rearranged(cx, x, x.sizes.clone())
}

/// Channel `i * groups + j` of the result is channel `i` of group `j`.
fn shuffle(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let groups = Expr::int(args.literal("groups")?);
    let width = lw.infer_cx().simplify(x.sizes[1].floordiv(groups));
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let extents = [&x.sizes[..1], &[width, groups], &x.sizes[2..]].concat();
    lw.nest(&extents, |b, at| {
        let (batch, i, j, rest) = (at[0], at[1], at[2], &at[3..]);
        let v = b.load(&x, &[&[batch, j * width + i], rest].concat());
        b.store(&out, &[&[batch, i * groups + j], rest].concat(), v);
        Ok(())
    })
}
