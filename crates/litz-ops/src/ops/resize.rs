//! Lowers resizing: each result element is a weighted sum of the operand's elements around its position.
//!
//! Places are fractions of integers, so that the elements read are index expressions and not looked up at run time:
//! result `i` lies at `((2*i + 1) * n / m - 1) / 2` of the operand, or at `i * (n - 1) / (m - 1)` when corners are
//! aligned, where the ratio `n / m` is that of the sizes or what the scale factor says.

use crate::args::{Args, Tensor};
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, suggested_format};
use crate::lower::Lower;
use crate::ops::curve::{Curve, cubic_far, cubic_near, curve_weights, reach};
use crate::ops::resize_bytes::{self, Taken, Weighting};
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, MemoryFormat, TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.upsample_nearest1d.default", result_type, |lw, args| nearest(lw, args, Pick::Floor)),
    lower("aten.upsample_nearest1d.vec", result_type, |lw, args| nearest(lw, args, Pick::Floor)),
    lower("aten.upsample_nearest2d.default", result_type, |lw, args| nearest(lw, args, Pick::Kept)),
    lower("aten.upsample_nearest2d.vec", result_type, |lw, args| nearest(lw, args, Pick::Kept)),
    lower("aten.upsample_nearest3d.default", result_type, nearest_of_volumes),
    lower("aten.upsample_nearest3d.vec", result_type, nearest_of_volumes),
    lower("aten._upsample_nearest_exact1d.default", result_type, |lw, args| nearest(lw, args, Pick::Centre)),
    lower("aten._upsample_nearest_exact1d.vec", result_type, |lw, args| nearest(lw, args, Pick::Centre)),
    lower("aten._upsample_nearest_exact2d.default", result_type, |lw, args| nearest(lw, args, Pick::Centre)),
    lower("aten._upsample_nearest_exact2d.vec", result_type, |lw, args| nearest(lw, args, Pick::Centre)),
    lower("aten._upsample_nearest_exact3d.default", result_type, |lw, args| nearest(lw, args, Pick::Centre)),
    lower("aten._upsample_nearest_exact3d.vec", result_type, |lw, args| nearest(lw, args, Pick::Centre)),
    lower("aten.upsample_linear1d.default", result_type, |lw, args| blend(lw, args, Curve::Linear)),
    lower("aten.upsample_linear1d.vec", result_type, |lw, args| blend(lw, args, Curve::Linear)),
    lower("aten.upsample_bilinear2d.default", result_type, |lw, args| blend(lw, args, Curve::Linear)),
    lower("aten.upsample_bilinear2d.vec", result_type, |lw, args| blend(lw, args, Curve::Linear)),
    lower("aten.upsample_trilinear3d.default", result_type, |lw, args| blend(lw, args, Curve::Linear)),
    lower("aten.upsample_trilinear3d.vec", result_type, |lw, args| blend(lw, args, Curve::Linear)),
    lower("aten.upsample_bicubic2d.default", result_type, |lw, args| blend(lw, args, Curve::Cubic)),
    lower("aten.upsample_bicubic2d.vec", result_type, |lw, args| blend(lw, args, Curve::Cubic)),
    lower("aten._upsample_bilinear2d_aa.default", result_type, |lw, args| antialias(lw, args, Curve::Linear)),
    lower("aten._upsample_bilinear2d_aa.vec", result_type, |lw, args| antialias(lw, args, Curve::Linear)),
    lower("aten._upsample_bicubic2d_aa.default", result_type, |lw, args| antialias(lw, args, Curve::Cubic)),
    lower("aten._upsample_bicubic2d_aa.vec", result_type, |lw, args| antialias(lw, args, Curve::Cubic)),
];

/// Which element is nearest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The one that the result's first edge falls in.
    Floor,
    /// The same; but sizes that stay, or double, are left to integers, whatever the scale is.
    Kept,
    /// The one that the result's centre falls in.
    Centre,
}

/// One resized dimension.
pub(crate) struct Axis {
    /// Elements of the operand.
    pub(crate) size: Expr,
    /// Elements of the result.
    pub(crate) count: Expr,
    /// How many times larger the result is, where the caller says so.
    pub(crate) scale: Option<f64>,
}

/// An element read, by its coordinate, and its weight.
pub(crate) type Tap = (Expr, Val);

fn operand<'a>(args: &Args<'a>) -> Result<Tensor<'a>, OpError> {
    let x = args.tensor("self").or_else(|_| args.tensor("input"))?;
    // The operator's name has the number of spatial dimensions in it.
    let dims = (1..=3).find(|dims| args.op().contains(&format!("{dims}d")));
    match dims.map(|dims| dims + 2) {
        Some(rank) if rank == x.ty.rank() => Ok(x),
        Some(rank) => Err(args.invalid(format!("expected {rank} dimensions, found {}", x.ty))),
        None => Err(args.unsupported("a number of spatial dimensions that the name does not say")),
    }
}

/// The resized dimensions: all but the first two.
fn axes(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Axis>, OpError> {
    let sizes = &operand(args)?.ty.sizes[2..];
    let scales = scales(args, sizes.len())?;
    let counts = if args.has("output_size") {
        args.ints_of("output_size", sizes.len())?
    } else {
        let scaled = sizes.iter().zip(&scales).map(|(&size, &scale)| scaled_size(cx, args, size, scale));
        scaled.collect::<Result<_, _>>()?
    };
    let empty = |_| args.invalid(format!("expected elements, found sizes {sizes:?} to be made {counts:?}"));
    let channels = operand(args)?.ty.sizes.get(1);
    for &extent in sizes.iter().chain(&counts).chain(channels) {
        cx.require(Rel::ge(extent, 1), args.op()).map_err(empty)?;
    }
    let axis = |d: usize| Axis { size: sizes[d], count: counts[d], scale: scales[d].filter(|&s| s > 0.0) };
    Ok((0..sizes.len()).map(axis).collect())
}

/// Scale factors by dimension, from a list or from one argument for each.
pub(crate) fn scales(args: &Args<'_>, n: usize) -> Result<Vec<Option<f64>>, OpError> {
    if !args.has("scale_factors") {
        let names: &[&str] =
            if n == 1 { &["scales"] } else { &["scales_d", "scales_h", "scales_w"][3 - n..] };
        return names.iter().map(|name| args.opt_float(name)).collect();
    }
    let number = |arg: &Arg| match arg {
        Arg::Float(f) => Some(f.0),
        _ => arg.as_int().and_then(Expr::as_int).map(|i| i as f64),
    };
    let items = args.get("scale_factors").as_list().unwrap_or(&[]);
    let factors: Vec<Option<f64>> = items.iter().map(number).collect();
    if factors.len() != n || factors.contains(&None) {
        return Err(args.bad("scale_factors", &format!("{n} numbers")));
    }
    Ok(factors)
}

/// `floor(size * scale)`
fn scaled_size(cx: &InferCx<'_>, args: &Args<'_>, size: Expr, scale: Option<f64>) -> Result<Expr, OpError> {
    let Some(scale) = scale else { return Err(args.invalid("expected sizes or scale factors")) };
    match (size.as_int(), dyadic(scale)) {
        (Some(size), _) => Ok(Expr::int((size as f64 * scale) as i64)),
        (None, Some((num, den))) => Ok(cx.simplify((size * num).floordiv(den))),
        (None, None) => {
            Err(args.unsupported("a size known only at run time with a scale that is no binary fraction"))
        }
    }
}

/// A number as `num / den` with a small power of two below.
fn dyadic(x: f64) -> Option<(i64, i64)> {
    let fits = |den: &i64| (x * *den as f64).fract() == 0.0 && (x * *den as f64).abs() < (1i64 << 31) as f64;
    let den = (0..16).map(|bits| 1i64 << bits).find(fits)?;
    Some(((x * den as f64) as i64, den))
}

/// The simplest `num / den` that a positive number is the rounded value of, from its continued fraction; none where it takes a
/// million parts or more. What users write as 1.7 is 17/10, and eager means that, too.
fn fraction(x: f64) -> Option<(i64, i64)> {
    const MOST: i64 = 1 << 20;
    let ((mut before, mut num), (mut below, mut den)) = ((0i64, 1i64), (1i64, 0i64));
    let mut rest = x;
    while rest < MOST as f64 {
        let whole = rest.floor() as i64;
        (before, num) = (num, whole * num + before);
        (below, den) = (den, whole * den + below);
        if num.max(den) >= MOST {
            return None;
        }
        if num as f64 / den as f64 == x {
            return Some((num, den));
        }
        rest = 1.0 / (rest - whole as f64);
    }
    None
}

fn result_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = operand(args)?.ty;
    let mut sizes = x.sizes[..2].to_vec();
    sizes.extend(axes(cx, args)?.iter().map(|a| a.count));
    let strides = format_strides(suggested_format(cx.facts, x), &sizes);
    one(TensorType::strided(x.dtype, sizes, strides))
}

impl Axis {
    /// Elements of the operand for each of the result, as a fraction.
    fn ratio(&self) -> (Expr, Expr) {
        let (n, m) = (self.size, self.count);
        let Some(scale) = self.scale else { return reduced(n, m) };
        match fraction(scale) {
            Some((num, den)) if m * den == n * num => reduced(n, m),
            Some((num, den)) => (Expr::int(den), Expr::int(num)),
            None => {
                // More bits after the point than eager's f32 keeps, and few enough for images of four million rows.
                const ONE: i64 = 1 << 40;
                (Expr::int((ONE as f64 / scale).round() as i64), Expr::int(ONE))
            }
        }
    }

    /// Finds out whether the result is one of `factors` as large as the operand, where eager mode leaves a given scale out of account.
    ///
    /// # Errors
    /// Where only sizes at run time tell.
    pub(crate) fn decides(&self, cx: &InferCx<'_>, args: &Args<'_>, factors: &[i64]) -> Result<(), OpError> {
        let is_open = |&factor: &i64| {
            self.count != self.size * factor
                && cx.known(Rel::eq(self.count, self.size * factor)) != Some(false)
        };
        if self.scale.is_some() && factors.iter().any(is_open) {
            return Err(args.unsupported("a scale that counts for some sizes known only at run time"));
        }
        Ok(())
    }

    /// The place of result `at` as a fraction; negative before the centre of the first element.
    fn place(&self, at: Expr, align_corners: bool) -> (Expr, Expr) {
        if align_corners {
            return (at * (self.size - 1), (self.count - 1).max(1));
        }
        let (num, den) = self.ratio();
        ((at * 2 + 1) * num - den, den * 2)
    }
}

/// A fraction with common factors removed where one side divides the other.
fn reduced(n: Expr, m: Expr) -> (Expr, Expr) {
    let factor = |a: Expr, b: Expr| (2..=64).find(|&k| b * k == a);
    match (factor(n, m), factor(m, n)) {
        _ if n == m => (Expr::one(), Expr::one()),
        (Some(k), _) => (Expr::int(k), Expr::one()),
        (_, Some(k)) => (Expr::one(), Expr::int(k)),
        (None, None) => (n, m),
    }
}

// Nearest element.

/// Eager mode's kernel for channels that are adjacent differs from its kernel for others in the scales that it goes by.
fn nearest_of_volumes(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let format = suggested_format(lw.infer_cx().facts, operand(args)?.ty);
    nearest(lw, args, if format == MemoryFormat::ChannelsLast3d { Pick::Kept } else { Pick::Floor })
}

fn nearest(lw: &mut Lower<'_>, args: &Args<'_>, pick: Pick) -> Result<(), OpError> {
    let x = lw.access(operand(args)?)?;
    let axes = axes(&mut lw.infer_cx(), args)?;
    if pick == Pick::Kept {
        axes.iter().try_for_each(|axis| axis.decides(&lw.infer_cx(), args, &[1, 2]))?;
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let mut coords = at[..2].to_vec();
        for (axis, &at) in axes.iter().zip(&at[2..]) {
            coords.push(nearest_element(b, axis, at, pick));
        }
        let v = b.load(&x, &coords);
        b.store(&out, at, v);
        Ok(())
    })
}

/// `floor(at * ratio)`, or of `at + 0.5`. Eager multiplies in f32; where that rounds to another element for some
/// result, the element is computed like this at run time.
pub(crate) fn nearest_element(b: &mut Body<'_>, axis: &Axis, at: Expr, pick: Pick) -> Expr {
    // Eager leaves these to integers, whatever the scale.
    if pick == Pick::Kept && axis.count == axis.size {
        return at;
    }
    if pick == Pick::Kept && axis.count == axis.size * 2 {
        return at.floordiv(2);
    }
    let (num, den) = axis.ratio();
    let exact = match pick {
        Pick::Floor | Pick::Kept => (at * num).floordiv(den),
        Pick::Centre => ((at * 2 + 1) * num).floordiv(den * 2),
    };
    if axis.is_exact(num, den, pick) {
        return b.simplify(exact.min(axis.size - 1));
    }
    let ratio = match axis.scale {
        Some(scale) => b.literal(Scalar::Float(f64::from((1.0 / scale) as f32)), Dtype::F32),
        None => {
            let (n, m) = (b.index(axis.size, Dtype::F32), b.index(axis.count, Dtype::F32));
            b.div(n, m)
        }
    };
    let mut place = b.index(at, Dtype::F32);
    if pick == Pick::Centre {
        let half = b.lit(place, 0.5);
        place = b.add(place, half);
    }
    let place = b.mul(place, ratio);
    let element = b.floor(place);
    let element = b.cast(element, Dtype::I64);
    let last = b.index(axis.size - 1, Dtype::I64);
    let element = b.min(element, last);
    b.bind(element, axis.size)
}

impl Axis {
    /// Whether arithmetic in f32 finds the same elements as exact arithmetic. Sizes known only at run time are tried
    /// up to 16384, above any image.
    fn is_exact(&self, num: Expr, den: Expr, pick: Pick) -> bool {
        let (Some(num), Some(den)) = (num.as_int(), den.as_int()) else { return false };
        let ratio = match (self.scale, self.size.as_int(), self.count.as_int()) {
            (Some(scale), ..) => (1.0 / scale) as f32,
            (None, Some(n), Some(m)) => n as f32 / m as f32,
            (None, ..) => num as f32 / den as f32,
        };
        let agrees = |i: i64| match pick {
            Pick::Floor | Pick::Kept => (i as f32 * ratio).floor() as i64 == (i * num).div_euclid(den),
            Pick::Centre => {
                ((i as f32 + 0.5) * ratio).floor() as i64 == ((2 * i + 1) * num).div_euclid(2 * den)
            }
        };
        // More results than any image has are not worth the time: they compute their places.
        const MOST: i64 = 1 << 20;
        let count = self.count.as_int().unwrap_or(1 << 14);
        count <= MOST && (0..count).all(agrees)
    }
}

// Weighted neighbours.

fn blend(lw: &mut Lower<'_>, args: &Args<'_>, curve: Curve) -> Result<(), OpError> {
    let align_corners = args.flag("align_corners")?;
    if operand(args)?.ty.dtype == Dtype::U8 {
        return bytes(lw, args, Weighting { curve, taken: Taken::Next, align_corners });
    }
    let x = lw.access(float_operand(args)?)?;
    let axes = axes(&mut lw.infer_cx(), args)?;
    if curve == Curve::Linear && !align_corners {
        axes.iter().try_for_each(|axis| axis.decides(&lw.infer_cx(), args, &[1]))?;
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let taps: Vec<Vec<Tap>> = axes
            .iter()
            .zip(&at[2..])
            .map(|(axis, &at)| taps(b, axis, at, align_corners, curve, x.dtype.compute()))
            .collect();
        let v = weighted_sum(b, &x, &at[..2], &taps);
        b.store(&out, at, v);
        Ok(())
    })
}

/// Images of bytes, where they have two dimensions: eager mode has no kernel for others.
fn bytes(lw: &mut Lower<'_>, args: &Args<'_>, weighting: Weighting) -> Result<(), OpError> {
    let x = lw.access(operand(args)?)?;
    let axes = axes(&mut lw.infer_cx(), args)?;
    let [rows, columns] = axes.as_slice() else {
        return Err(args.unsupported("element type u8"));
    };
    for axis in &axes {
        // Eager mode's kernel for few channels leaves such a scale out of account, and the one for others does not.
        let stays =
            axis.count == axis.size || lw.infer_cx().known(Rel::eq(axis.count, axis.size)) != Some(false);
        if !weighting.align_corners && axis.scale.is_some_and(|scale| scale != 1.0) && stays {
            return Err(args.unsupported("a scale of bytes that may leave a size as it is"));
        }
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let axes = [rows, columns].map(|axis| {
        let &Axis { size, count, scale } = axis;
        resize_bytes::Axis { size, count, scale, ratio: axis.ratio() }
    });
    resize_bytes::resize(lw, &x, axes, weighting, &out)
}

fn float_operand<'a>(args: &Args<'a>) -> Result<Tensor<'a>, OpError> {
    let x = operand(args)?;
    if x.ty.dtype.is_float() { Ok(x) } else { Err(args.unsupported(&format!("element type {}", x.ty.dtype))) }
}

/// The neighbours of the place of result `at` along one dimension.
pub(crate) fn taps(
    b: &mut Body<'_>,
    axis: &Axis,
    at: Expr,
    align_corners: bool,
    curve: Curve,
    dtype: Dtype,
) -> Vec<Tap> {
    // As eager, whatever the scale.
    let stays = curve == Curve::Linear && axis.count == axis.size;
    let (num, den) = if stays { (at, Expr::one()) } else { axis.place(at, align_corners) };
    let num = if curve == Curve::Linear { num.max(0) } else { num };
    let first = b.simplify(num.floordiv(den));
    let rest = b.simplify(num.modulo(den));
    // Elements of weight 0 are read too: eager multiplies them, and NaN and infinities show.
    let (rest, den) = (b.index(rest, dtype), b.index(den, dtype));
    let t = b.div(rest, den);
    let weights = curve_weights(b, t, curve);
    let start = if curve == Curve::Linear { 0 } else { -1 };
    let clamped = |i: usize| (first + start + i as i64).max(0).min(axis.size - 1);
    let element = |i: usize| if stays { at } else { clamped(i) };
    weights.into_iter().enumerate().map(|(i, w)| (element(i), w)).collect()
}

/// The sum over all combinations of taps, one of each dimension; the last dimension is summed first.
fn weighted_sum(b: &mut Body<'_>, x: &ValueAccess, coords: &[Expr], taps: &[Vec<Tap>]) -> Val {
    let Some((along, rest)) = taps.split_first() else { return b.read(x, coords) };
    let mut sum = None;
    for &(coord, weight) in along {
        let mut v = weighted_sum(b, x, &[coords, &[coord]].concat(), rest);
        v = b.mul(v, weight);
        sum = Some(match sum {
            Some(sum) => b.add(sum, v),
            None => v,
        });
    }
    sum.unwrap_or_else(|| b.literal(Scalar::Float(0.0), x.dtype.compute()))
}

// Weighted means of all elements that a result covers.

/// Resizes the last dimension, then the one before it, each with a table of weights of its own.
fn antialias(lw: &mut Lower<'_>, args: &Args<'_>, curve: Curve) -> Result<(), OpError> {
    let align_corners = args.flag("align_corners")?;
    if operand(args)?.ty.dtype == Dtype::U8 {
        return bytes(lw, args, Weighting { curve, taken: Taken::Covered, align_corners });
    }
    let x = lw.access(float_operand(args)?)?;
    let axes = axes(&mut lw.infer_cx(), args)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let [rows, columns] = axes.as_slice() else {
        return Err(args.invalid("expected two spatial dimensions"));
    };
    let mut sizes = x.sizes.clone();
    sizes[3] = columns.count;
    let wide = lw.temp("wide", x.dtype.compute(), &sizes);
    let filter = Filter::new(lw, args, columns, align_corners, curve)?;
    filter.apply(lw, &x, 3, &wide)?;
    let filter = Filter::new(lw, args, rows, align_corners, curve)?;
    filter.apply(lw, &wide, 2, &out)
}

/// The elements that each result along one dimension takes in.
struct Filter<'a> {
    axis: &'a Axis,
    curve: Curve,
    /// Elements of the operand for each of the result, as a fraction, and the larger of both numbers.
    ratio: (Expr, Expr),
    stretch: Expr,
    /// The most elements that one result takes in.
    taps: Expr,
}

impl<'a> Filter<'a> {
    fn new(
        lw: &mut Lower<'_>,
        args: &Args<'_>,
        axis: &'a Axis,
        align_corners: bool,
        curve: Curve,
    ) -> Result<Filter<'a>, OpError> {
        let cx = lw.infer_cx();
        let (num, den) = match align_corners {
            // All of one element's centre is at the operand's beginning.
            true if axis.count.is_one() => (Expr::zero(), Expr::one()),
            true => (axis.size - 1, axis.count - 1),
            false => axis.ratio(),
        };
        if cx.known(Rel::ge(den, 1)) != Some(true) {
            return Err(args.unsupported("aligned corners of a dimension that may have size 1"));
        }
        let stretch = match cx.known(Rel::ge(num, den)) {
            Some(true) => num,
            Some(false) => den,
            None => num.max(den),
        };
        let taps = cx.simplify((stretch * (2 * reach(curve))).ceildiv(den) + 1);
        Ok(Filter { axis, curve, ratio: (num, den), stretch, taps })
    }

    /// The first element that result `at` takes in, or one past the last.
    fn edge(&self, at: Expr, sign: i64) -> Expr {
        let (num, den) = self.ratio;
        let centre = (at * 2 + 1) * num + den;
        (centre + self.stretch * (2 * reach(self.curve) * sign)).floordiv(den * 2).max(0).min(self.axis.size)
    }

    /// The weight of element `edge + tap`, before weights are scaled to a sum of 1.
    fn weight(&self, b: &mut Body<'_>, at: Expr, tap: Expr, dtype: Dtype) -> Val {
        let (num, den) = self.ratio;
        let element = self.edge(at, -1) + tap;
        let distance = element * den * 2 + den - (at * 2 + 1) * num;
        let (distance, unit) = (b.index(distance, dtype), b.index(self.stretch * 2, dtype));
        let t = b.div(distance, unit);
        let t = b.abs(t);
        let (zero, one) = (b.lit(t, 0.0), b.lit(t, 1.0));
        let inside = b.cond(Rel::lt(element, self.edge(at, 1)));
        let weight = match self.curve {
            Curve::Linear => {
                let weight = b.sub(one, t);
                b.max(weight, zero)
            }
            Curve::Cubic => {
                let (near, far, two) = (cubic_near(b, t, -0.5), cubic_far(b, t, -0.5), b.lit(t, 2.0));
                let (is_near, is_far) = (b.lt(t, one), b.lt(t, two));
                let weight = b.select(is_far, far, zero);
                b.select(is_near, near, weight)
            }
        };
        b.select(inside, weight, zero)
    }

    fn apply(
        &self,
        lw: &mut Lower<'_>,
        x: &ValueAccess,
        dim: usize,
        out: &ValueAccess,
    ) -> Result<(), OpError> {
        let compute = x.dtype.compute();
        let count = self.axis.count;
        let total = lw.temp("total", compute, &[count]);
        lw.nest(&[count], |b, at| {
            let tap = b.reduced_axis(self.taps);
            let weight = self.weight(b, at[0], tap, compute);
            let sum = b.reduce(ReduceOp::Sum, weight);
            b.store(&total, at, sum);
            Ok(())
        })?;
        let weights = lw.temp("weights", compute, &[count, self.taps]);
        lw.nest(&[count, self.taps], |b, at| {
            let (weight, total) = (self.weight(b, at[0], at[1], compute), b.read(&total, &at[..1]));
            let weight = b.op(ScalarOp::Div, &[weight, total]);
            b.store(&weights, at, weight);
            Ok(())
        })?;
        lw.nest(&out.sizes, |b, at| {
            let tap = b.reduced_axis(self.taps);
            let mut coords = at.to_vec();
            coords[dim] = self.edge(at[dim], -1) + tap;
            let guard = vec![Rel::lt(coords[dim], self.axis.size)];
            let v = b.load_if(x, &coords, guard, Scalar::Float(0.0));
            let (v, weight) = (b.cast(v, compute), b.read(&weights, &[at[dim], tap]));
            let term = b.mul(v, weight);
            let sum = b.reduce(ReduceOp::Sum, term);
            b.store(out, at, sum);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_factors_are_the_fractions_that_users_mean() {
        assert_eq!(fraction(1.7), Some((17, 10)));
        assert_eq!(fraction(0.6), Some((3, 5)));
        assert_eq!(fraction(2.0), Some((2, 1)));
        assert_eq!(fraction(1.0 / 3.0), Some((1, 3)));
        assert_eq!(fraction(224.0 / 225.0), Some((224, 225)));
        assert_eq!(fraction(std::f64::consts::PI), None);
        assert_eq!(fraction(f64::INFINITY), None);
        assert_eq!(fraction(1e-300), None);
    }
}
