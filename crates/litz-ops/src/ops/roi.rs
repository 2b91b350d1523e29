//! Lowers what detectors do with regions of images: each is resampled to one size, and of those that overlap the best are kept.
//!
//! Where the number of points in a bin is given, a nest reads them; where each region decides it, a routine of the runtime does.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::not_negative;
use crate::lower::Lower;
use crate::ops::data::stated_size;
use crate::view::ValueAccess;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("torchvision.nms.default", kept_type, keep),
    lower("torchvision.roi_align.default", align_type, |lw, args| align(lw, args, Channels::Same)),
    lower("torchvision.ps_roi_align.default", apart_types, |lw, args| {
        channels_of_bins(lw, args)?;
        align(lw, args, Channels::OfBin)
    }),
    lower("torchvision.roi_pool.default", pool_types, pool),
    lower("torchvision.ps_roi_pool.default", apart_types, |lw, args| {
        channels_of_bins(lw, args)?;
        let Some(out) = lw.result(args, 0) else { return Ok(()) };
        resample(lw, args, "ps_roi_pool", &[&out], &[])
    }),
];

/// Positions of the boxes that are kept. How many, data decides.
fn kept_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (boxes, scores) = (args.tensor("dets")?.ty, args.tensor("scores")?.ty);
    args.of_types("dets", &[Dtype::F32, Dtype::F64])?;
    args.of_types("scores", &[boxes.dtype])?;
    let (&[number, four], &[each]) = (&boxes.sizes[..], &scores.sizes[..]) else {
        return Err(args.invalid("expected two corners and a score for each box"));
    };
    cx.require(Rel::eq(four, 4), args.op())?;
    cx.require(Rel::eq(number, each), args.op())?;
    let count = stated_size(args, 0)?;
    cx.require(Rel::le(0, count), args.op())?;
    cx.require(Rel::le(count, number), args.op())?;
    one(TensorType::contiguous(Dtype::I64, vec![count]))
}

/// Boxes by score, of equals the first; then a routine goes through them, as what it drops depends on what it kept.
fn keep(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (boxes, scores) = (lw.access(args.tensor("dets")?)?, lw.access(args.tensor("scores")?)?);
    let (boxes, scores) = (lw.contiguous(&boxes, "boxes")?, lw.contiguous(&scores, "scores")?);
    let (number, count) = (scores.sizes[0], stated_size(args, 0)?);
    let (sorted, order) =
        (lw.temp("sorted", scores.dtype, &[number]), lw.temp("order", Dtype::I64, &[number]));
    lw.call("sort", &[&scores], &[&sorted, &order], vec![Expr::one(), number, Expr::one(), Expr::one()]);
    let threshold = lw.temp("threshold", Dtype::F64, &[]);
    lw.fill(&threshold, Scalar::Float(args.float("iou_threshold")?))?;
    let (kept, found) = (lw.temp("kept", Dtype::I64, &[number]), lw.temp("count", Dtype::I64, &[]));
    lw.call("nms", &[&boxes, &order, &threshold], &[&kept, &found], vec![number]);
    lw.count(count, &found, number)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&[count], |b, at| {
        let place = b.load(&kept, at);
        b.store(&out, at, place);
        Ok(())
    })
}

/// Which channel of an image a result is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Channels {
    /// The one of the result.
    Same,
    /// One for each result channel and bin.
    OfBin,
}

/// Sizes of the images, the number of regions, and rows and columns of bins.
fn regions<'a>(
    cx: &mut InferCx<'_>,
    args: &Args<'a>,
) -> Result<([Expr; 4], [Expr; 3], &'a TensorType), OpError> {
    let (x, regions) = (args.tensor("input")?.ty, args.tensor("rois")?.ty);
    let (&[batch, channels, height, width], &[count, five]) = (&x.sizes[..], &regions.sizes[..]) else {
        return Err(args.invalid("expected a batch of images, and for each region an image and two corners"));
    };
    cx.require(Rel::eq(five, 5), args.op())?;
    args.of_types("rois", &[x.dtype])?;
    let (rows, columns) = (args.int("pooled_height")?, args.int("pooled_width")?);
    not_negative(cx, args, &[rows, columns])?;
    Ok(([batch, channels, height, width], [count, rows, columns], x))
}

/// `[region, channel, row, column]`
fn align_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let ([_, channels, ..], [count, rows, columns], x) = regions(cx, args)?;
    one(TensorType::contiguous(x.dtype, vec![count, channels, rows, columns]))
}

/// The largest pixels, and where they are.
fn pool_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let ([_, channels, ..], [count, rows, columns], x) = regions(cx, args)?;
    let ty = |dtype| Type::Tensor(TensorType::contiguous(dtype, vec![count, channels, rows, columns]));
    Ok(vec![ty(x.dtype), ty(Dtype::I32)])
}

/// Means, and the channels that they are of.
fn apart_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let ([_, channels, ..], [count, rows, columns], x) = regions(cx, args)?;
    let bins = rows * columns;
    cx.require(Rel::ge(bins, 1), args.op())?;
    let differs = |_| args.invalid(format!("{channels} channels are not as many for each of {bins} bins"));
    cx.require(Rel::eq(channels.modulo(bins), 0), args.op()).map_err(differs)?;
    let kinds = cx.simplify(channels.floordiv(bins));
    let ty = |dtype| Type::Tensor(TensorType::contiguous(dtype, vec![count, kinds, rows, columns]));
    Ok(vec![ty(x.dtype), ty(Dtype::I32)])
}

fn channels_of_bins(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let Some(channels) = lw.result(args, 1) else { return Ok(()) };
    let (rows, columns) = (channels.sizes[2], channels.sizes[3]);
    lw.nest(&channels.sizes, |b, at| {
        let channel = b.index((at[1] * rows + at[2]) * columns + at[3], Dtype::I32);
        b.store(&channels, at, channel);
        Ok(())
    })
}

fn pool(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let Some(ty) = args.result(0).or(args.result(1)) else { return Ok(()) };
    let dtype = args.tensor("input")?.ty.dtype;
    let largest = lw.result(args, 0).unwrap_or_else(|| lw.temp("largest", dtype, &ty.sizes));
    let places = lw.result(args, 1).unwrap_or_else(|| lw.temp("places", Dtype::I32, &ty.sizes));
    resample(lw, args, "roi_pool", &[&largest, &places], &[])
}

/// The image of a region.
fn image_of(b: &mut Body<'_>, regions: &ValueAccess, region: Expr, images: Expr) -> Expr {
    let image = b.read(regions, &[region, Expr::zero()]);
    // A number just below 0 would be cut off to it.
    let zero = b.lit(image, 0.0);
    let is_image = b.ge(image, zero);
    b.check_value(is_image);
    let image = b.cast(image, Dtype::I64);
    b.bind(image, images)
}

/// What a routine of the runtime makes of regions.
fn resample(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    routine: &str,
    results: &[&ValueAccess],
    flags: &[bool],
) -> Result<(), OpError> {
    let (x, regions) = (lw.access(args.tensor("input")?)?, lw.access(args.tensor("rois")?)?);
    if !matches!(x.dtype, Dtype::F32 | Dtype::F64) {
        return Err(args.unsupported(&format!("regions of {} that decide what they see", x.dtype)));
    }
    let (x, regions) = (lw.contiguous(&x, "images")?, lw.contiguous(&regions, "regions")?);
    let images = lw.temp("numbers", Dtype::I64, &regions.sizes[..1]);
    lw.nest(&images.sizes, |b, at| {
        let image = image_of(b, &regions, at[0], x.sizes[0]);
        let image = b.index(image, Dtype::I64);
        b.store(&images, at, image);
        Ok(())
    })?;
    let scale = lw.temp("scale", Dtype::F64, &[]);
    lw.fill(&scale, Scalar::Float(args.float("spatial_scale")?))?;
    let flags = flags.iter().map(|&flag| Expr::int(flag.into()));
    let ints = x.sizes.iter().chain(&results[0].sizes).copied().chain(flags).collect();
    lw.call(routine, &[&x, &images, &regions, &scale], results, ints);
    Ok(())
}

/// The mean of `sampling_ratio` by `sampling_ratio` points in each bin, read between pixels. Regions hold the number of
/// their image, then left, top, right and bottom.
fn align(lw: &mut Lower<'_>, args: &Args<'_>, channels: Channels) -> Result<(), OpError> {
    let samples = args.literal("sampling_ratio")?;
    // Both loops over samples are counted in one number.
    const MOST_SAMPLES: i64 = 1 << 20;
    if samples > MOST_SAMPLES {
        return Err(args.unsupported(&format!("more than {MOST_SAMPLES} samples")));
    }
    // Bins of channels of their own are aligned.
    let aligned = channels == Channels::OfBin || args.flag("aligned")?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    if samples < 1 {
        return resample(lw, args, "roi_align", &[&out], &[aligned, channels == Channels::OfBin]);
    }
    let scale = args.float("spatial_scale")?;
    let (x, regions) = (lw.access(args.tensor("input")?)?, lw.access(args.tensor("rois")?)?);
    let compute = x.dtype.compute();
    lw.nest(&out.sizes, |b, at| {
        let image = image_of(b, &regions, at[0], x.sizes[0]);
        let mut place = Vec::new();
        // Columns 1 and 3 of a region bound its width, 2 and 4 its height.
        for (axis, side) in [(2, 2), (3, 1)] {
            let bounds = [side, side + 2].map(|column| {
                let bound = b.read_as(&regions, &[at[0], Expr::int(column)], compute);
                let factor = b.lit(bound, scale);
                let half = b.lit(bound, if aligned { 0.5 } else { 0.0 });
                let scaled = b.mul(bound, factor);
                b.sub(scaled, half)
            });
            let mut length = b.sub(bounds[1], bounds[0]);
            if !aligned {
                let one = b.lit(length, 1.0);
                length = b.max(length, one);
            }
            let step = b.reduced_axis(Expr::int(samples));
            place.push(sample(b, bounds[0], length, (at[axis], out.sizes[axis]), (step, samples)));
        }
        let channel = match channels {
            Channels::Same => at[1],
            Channels::OfBin => (at[1] * out.sizes[2] + at[2]) * out.sizes[3] + at[3],
        };
        let v = between_pixels(b, &x, (image, channel), place[0], place[1]);
        let sum = b.reduce(ReduceOp::Sum, v);
        let count = b.lit(sum, (samples * samples) as f64);
        let mean = b.div(sum, count);
        b.store(&out, at, mean);
        Ok(())
    })
}

/// Sample `step` of `samples` in bin `bin` of `bins` that divide a length.
fn sample(b: &mut Body<'_>, start: Val, length: Val, bin: (Expr, Expr), step: (Expr, i64)) -> Val {
    let dtype = b.ty(length);
    let (at, bins) = (b.index(bin.0, dtype), b.index(bin.1, dtype));
    let width = b.div(length, bins);
    let (index, half) = (b.index(step.0, dtype), b.lit(length, 0.5));
    let count = b.lit(length, step.1 as f64);
    let before = b.mul(at, width);
    let middle = b.add(index, half);
    let inside = b.mul(middle, width);
    let inside = b.div(inside, count);
    let begin = b.add(start, before);
    b.add(begin, inside)
}

/// The two pixels around a place along one axis and the weight of the second; whether the place counts at all.
struct Around {
    pixels: [Expr; 2],
    weight: Val,
    counts: Val,
}

/// Up to a pixel beyond the edge the edge counts, further out nothing.
fn around(b: &mut Body<'_>, place: Val, size: Expr) -> Around {
    let dtype = b.ty(place);
    let (zero, end, last) = (b.lit(place, 0.0), b.index(size, dtype), b.index(size - 1, dtype));
    let beyond = b.lit(place, -1.0);
    let (above, below) = (b.ge(place, beyond), b.le(place, end));
    let counts = b.and(above, below);
    let place = b.max(place, zero);
    let place = b.min(place, last);
    // A place that is no number counts as the first.
    let place = b.select(counts, place, zero);
    let low = b.floor(place);
    let weight = b.sub(place, low);
    let one = b.lit(place, 1.0);
    let next = b.add(low, one);
    let high = b.min(next, last);
    Around { pixels: [b.bind(low, size), b.bind(high, size)], weight, counts }
}

/// The value between four pixels of a channel of an image.
fn between_pixels(b: &mut Body<'_>, x: &ValueAccess, plane: (Expr, Expr), row: Val, column: Val) -> Val {
    let (rows, columns) = (around(b, row, x.sizes[2]), around(b, column, x.sizes[3]));
    let lines = rows.pixels.map(|r| {
        let pair = columns.pixels.map(|c| b.read(x, &[plane.0, plane.1, r, c]));
        mix(b, pair, columns.weight)
    });
    let v = mix(b, lines, rows.weight);
    let (inside, zero) = (b.and(rows.counts, columns.counts), b.lit(v, 0.0));
    b.select(inside, v, zero)
}

/// `a * (1 - weight) + b * weight`
fn mix(b: &mut Body<'_>, pair: [Val; 2], weight: Val) -> Val {
    let one = b.lit(weight, 1.0);
    let rest = b.sub(one, weight);
    let (near, far) = (b.mul(pair[0], rest), b.mul(pair[1], weight));
    b.add(near, far)
}
