//! Lowers what detectors do with regions of images: each is resampled to one size, and of those that overlap the best are kept.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::not_negative;
use crate::lower::Lower;
use crate::ops::data::stated_size;
use crate::view::Access;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("torchvision.nms.default", kept_type, keep),
    lower("torchvision.roi_align.default", align_type, align),
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

/// `[region, channel, row, column]`
fn align_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, regions) = (args.tensor("input")?.ty, args.tensor("rois")?.ty);
    let (&[_, channels, _, _], &[count, five]) = (&x.sizes[..], &regions.sizes[..]) else {
        return Err(args.invalid("expected a batch of images, and for each region an image and two corners"));
    };
    cx.require(Rel::eq(five, 5), args.op())?;
    args.of_types("rois", &[x.dtype])?;
    let (height, width) = (args.int("pooled_height")?, args.int("pooled_width")?);
    not_negative(cx, args, &[height, width])?;
    one(TensorType::contiguous(x.dtype, vec![count, channels, height, width]))
}

/// The mean of `sampling_ratio` by `sampling_ratio` points in each bin, read between pixels. Regions hold the number of
/// their image, then left, top, right and bottom.
fn align(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let samples = args.literal("sampling_ratio")?;
    // Both loops over samples are counted in one number.
    const MOST_SAMPLES: i64 = 1 << 20;
    if !(1..=MOST_SAMPLES).contains(&samples) {
        return Err(args.unsupported("a number of samples that depends on the regions"));
    }
    let (scale, aligned) = (args.float("spatial_scale")?, args.flag("aligned")?);
    let (x, regions) = (lw.access(args.tensor("input")?)?, lw.access(args.tensor("rois")?)?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = x.dtype.compute();
    lw.nest(&out.sizes, |b, at| {
        // A number just below 0 would be cut off to it.
        let image = b.read(&regions, &[at[0], Expr::zero()]);
        let zero = b.lit(image, 0.0);
        let is_image = b.ge(image, zero);
        b.check_value(is_image);
        let image = b.cast(image, Dtype::I64);
        let image = b.bind(image, x.sizes[0]);
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
        let v = between_pixels(b, &x, (image, at[1]), place[0], place[1]);
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
fn between_pixels(b: &mut Body<'_>, x: &Access, plane: (Expr, Expr), row: Val, column: Val) -> Val {
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
