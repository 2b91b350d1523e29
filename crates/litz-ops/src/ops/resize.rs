//! Resampling of images: nearest, bilinear, bicubic.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{format_strides, suggested_format};
use crate::lower::Lower;
use crate::view::Access;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, TensorType, Type};
use litz_ir::loops::Val;
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.upsample_nearest1d.vec", resize_type, nearest),
    lower("aten.upsample_nearest2d.vec", resize_type, nearest),
    lower("aten.upsample_nearest3d.vec", resize_type, nearest),
    lower("aten.upsample_nearest2d.default", resize_type, nearest),
    lower("aten.upsample_linear1d.vec", resize_type, |lw, args| interpolate(lw, args, Kernel::Linear)),
    lower("aten.upsample_bilinear2d.vec", resize_type, |lw, args| interpolate(lw, args, Kernel::Linear)),
    lower("aten.upsample_bilinear2d.default", resize_type, |lw, args| interpolate(lw, args, Kernel::Linear)),
    lower("aten.upsample_trilinear3d.vec", resize_type, |lw, args| interpolate(lw, args, Kernel::Linear)),
    lower("aten.upsample_bicubic2d.vec", resize_type, |lw, args| interpolate(lw, args, Kernel::Cubic)),
    lower("aten.upsample_bicubic2d.default", resize_type, |lw, args| interpolate(lw, args, Kernel::Cubic)),
];

/// The factors given for each dimension, if any.
fn factors(args: &Args<'_>, n: usize) -> Result<Vec<Option<f64>>, OpError> {
    if let Arg::List(items) = args.get("scale_factors") {
        let read = |a: &Arg| match a {
            Arg::Float(f) => Ok(Some(f.0)),
            Arg::Int(e) if e.as_int().is_some() => Ok(e.as_int().map(|i| i as f64)),
            _ => Err(args.bad("scale_factors", "numbers")),
        };
        return items.iter().map(read).collect();
    }
    ["scales_d", "scales_h", "scales_w"][3 - n..].iter().map(|name| args.opt_float(name)).collect()
}

fn resize_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = operand(args)?;
    let n = x.rank() - 2;
    let mut sizes = x.sizes[..2].to_vec();
    if args.has("output_size") {
        sizes.extend(args.ints_of("output_size", n)?);
    } else {
        for (&size, factor) in x.sizes[2..].iter().zip(factors(args, n)?) {
            let factor = factor.ok_or_else(|| args.bad("scale_factors", "a factor for each dimension"))?;
            sizes.push(match size.as_int() {
                Some(size) => Expr::int((size as f64 * factor).floor() as i64),
                None if factor.fract() == 0.0 => size * factor as i64,
                None => return Err(args.unsupported("a fractional factor of a symbolic size")),
            });
        }
    }
    let strides = format_strides(suggested_format(cx.facts, x), &sizes);
    one(TensorType { dtype: x.dtype, sizes, strides })
}

fn operand<'a>(args: &Args<'a>) -> Result<&'a TensorType, OpError> {
    let x = args.tensor("input").or_else(|_| args.tensor("self"))?.ty;
    if x.rank() < 3 {
        return Err(args.invalid("expected at least three dimensions"));
    }
    Ok(x)
}

/// Input rows for one output row, as a float of f32: the inverse factor, or the quotient of the sizes.
fn step(b: &mut Body<'_>, size: Expr, out: Expr, factor: Option<f64>, dtype: Dtype) -> Val {
    if let Some(factor) = factor.filter(|f| *f > 0.0) {
        return b.literal(litz_ir::Scalar::Float(1.0 / factor), dtype);
    }
    if let (Some(size), Some(out)) = (size.as_int(), out.as_int()) {
        return b.literal(litz_ir::Scalar::Float(size as f64 / out as f64), dtype);
    }
    let (size, out) = (b.index(size, dtype), b.index(out, dtype));
    b.div(size, out)
}

fn nearest(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("input").or_else(|_| args.tensor("self"))?)?;
    let factors = factors(args, x.rank() - 2)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let mut coords = at[..2].to_vec();
        for d in 2..x.rank() {
            coords.push(nearest_coord(b, at[d], x.sizes[d], out.sizes[d], factors[d - 2]));
        }
        let v = b.load(&x, &coords);
        b.store(&out, at, v);
        Ok(())
    })
}

/// `floor(i * step)`, at most the last; whole ratios need no arithmetic on floats.
fn nearest_coord(b: &mut Body<'_>, i: Expr, size: Expr, out: Expr, factor: Option<f64>) -> Expr {
    let whole = out.floordiv(size);
    if whole * size == out && factor.is_none_or(|f| whole.as_int().is_some_and(|w| w as f64 == f)) {
        return i.floordiv(whole);
    }
    let step = step(b, size, out, factor, Dtype::F32);
    let i = b.index(i, Dtype::F32);
    let place = b.mul(i, step);
    let place = b.floor(place);
    let (place, last) = (b.cast(place, Dtype::I64), b.index(size - 1, Dtype::I64));
    let place = b.min(place, last);
    b.bind(place, size)
}

/// Coordinates that an output row mixes along one dimension, with weights.
type Taps = Vec<(Expr, Val)>;

/// What mixes neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernel {
    /// Two taps; places before the first row count as the first row.
    Linear,
    /// Four taps.
    Cubic,
}

fn interpolate(lw: &mut Lower<'_>, args: &Args<'_>, kernel: Kernel) -> Result<(), OpError> {
    let x = lw.access(args.tensor("input").or_else(|_| args.tensor("self"))?)?;
    let factors = factors(args, x.rank() - 2)?;
    let aligned = args.flag("align_corners")?;
    let clamps = kernel == Kernel::Linear && !aligned;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = if x.dtype == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
    lw.nest(&out.sizes, |b, at| {
        let mut along = Vec::new();
        for d in 2..x.rank() {
            let place = place(b, at[d], x.sizes[d], out.sizes[d], factors[d - 2], aligned, compute);
            let zero = b.lit(place, 0.0);
            let place = if clamps { b.max(place, zero) } else { place };
            let floor = b.floor(place);
            let rest = b.sub(place, floor);
            along.push(match kernel {
                Kernel::Linear => linear_taps(b, floor, rest, x.sizes[d]),
                Kernel::Cubic => cubic_taps(b, floor, rest, x.sizes[d]),
            });
        }
        let mut coords = at[..2].to_vec();
        let v = mix(b, &x, &mut coords, &along, compute);
        b.store(&out, at, v);
        Ok(())
    })
}

/// The place of an output row between input rows.
fn place(
    b: &mut Body<'_>,
    i: Expr,
    size: Expr,
    out: Expr,
    factor: Option<f64>,
    aligned: bool,
    dtype: Dtype,
) -> Val {
    let row = b.index(i, dtype);
    if aligned {
        let step = if out.is_one() { b.lit(row, 0.0) } else { step(b, size - 1, out - 1, None, dtype) };
        return b.mul(row, step);
    }
    let (step, half) = (step(b, size, out, factor, dtype), b.lit(row, 0.5));
    let center = b.add(row, half);
    let scaled = b.mul(center, step);
    b.sub(scaled, half)
}

/// A row near the place, clamped into the input.
fn clamped(b: &mut Body<'_>, floor: Val, offset: i64, size: Expr) -> Expr {
    let row = b.cast(floor, Dtype::I64);
    let offset = b.lit(row, offset as f64);
    let (row, zero, last) = (b.add(row, offset), b.lit(row, 0.0), b.index(size - 1, Dtype::I64));
    let row = b.max(row, zero);
    let row = b.min(row, last);
    b.bind(row, size)
}

fn linear_taps(b: &mut Body<'_>, floor: Val, rest: Val, size: Expr) -> Taps {
    let one = b.lit(rest, 1.0);
    let near = b.sub(one, rest);
    vec![(clamped(b, floor, 0, size), near), (clamped(b, floor, 1, size), rest)]
}

/// Cubic convolution with A = -0.75.
fn cubic_taps(b: &mut Body<'_>, floor: Val, rest: Val, size: Expr) -> Taps {
    let one = b.lit(rest, 1.0);
    let back = b.sub(one, rest);
    let (before, after) = (b.add(rest, one), b.add(back, one));
    let weights = [cubic_far(b, before), cubic_near(b, rest), cubic_near(b, back), cubic_far(b, after)];
    weights.into_iter().zip(-1..).map(|(w, offset)| (clamped(b, floor, offset, size), w)).collect()
}

const CUBIC: f64 = -0.75;

/// `((A + 2) x - (A + 3)) x x + 1`, for distances up to 1.
fn cubic_near(b: &mut Body<'_>, x: Val) -> Val {
    let (p, q, one) = (b.lit(x, CUBIC + 2.0), b.lit(x, CUBIC + 3.0), b.lit(x, 1.0));
    let v = b.mul(p, x);
    let v = b.sub(v, q);
    let v = b.mul(v, x);
    let v = b.mul(v, x);
    b.add(v, one)
}

/// `((A x - 5A) x + 8A) x - 4A`, for distances from 1 to 2.
fn cubic_far(b: &mut Body<'_>, x: Val) -> Val {
    let coefficients = [CUBIC, -5.0 * CUBIC, 8.0 * CUBIC, -4.0 * CUBIC].map(|c| b.lit(x, c));
    let [first, rest @ ..] = coefficients;
    rest.into_iter().fold(first, |v, c| {
        let v = b.mul(v, x);
        b.add(v, c)
    })
}

/// The weighted sum over taps of the remaining dimensions.
fn mix(b: &mut Body<'_>, x: &Access, coords: &mut Vec<Expr>, along: &[Taps], compute: Dtype) -> Val {
    let [taps, rest @ ..] = along else { return b.read_as(x, coords, compute) };
    let mut sum = None;
    for &(coord, weight) in taps {
        coords.push(coord);
        let v = mix(b, x, coords, rest, compute);
        coords.pop();
        let term = b.mul(v, weight);
        sum = Some(sum.map_or(term, |s| b.add(s, term)));
    }
    sum.unwrap_or_else(|| b.literal(litz_ir::Scalar::Float(0.0), compute))
}
