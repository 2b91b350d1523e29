//! Lowers grid sampling: elements of an image at the positions that a grid of coordinates names, and such grids.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::not_negative;
use crate::lower::Lower;
use crate::ops::curve::{Curve, curve_weights};
use crate::view::ValueAccess;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.grid_sampler.default", sample_type, sample),
    lower("aten.grid_sampler_2d.default", sample_type, sample),
    lower("aten.grid_sampler_3d.default", sample_type, sample),
    lower("aten.affine_grid_generator.default", affine_type, affine),
];

/// How a place between elements is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Linear,
    Nearest,
    Cubic,
}

/// What lies outside of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// The arguments that are the same for all dimensions, and how many these are: eager mode has a kernel of vectors for two, and one of scalars for three,
/// which part ways where a coordinate is NaN, infinite, or far outside.
#[derive(Clone, Copy)]
struct Sampling {
    mode: Mode,
    outside: Outside,
    align_corners: bool,
    dims: usize,
}

/// An element to read along one dimension, whether it exists, and its weight; none means 1.
struct Tap {
    coord: Expr,
    exists: Val,
    weight: Option<Val>,
}

fn sampling(args: &Args<'_>, dims: usize) -> Result<Sampling, OpError> {
    let mode = match args.literal("interpolation_mode")? {
        0 => Mode::Linear,
        1 => Mode::Nearest,
        2 if dims == 2 => Mode::Cubic,
        2 => return Err(args.unsupported("bicubic interpolation in three dimensions")),
        other => return Err(args.unsupported(&format!("`interpolation_mode` {other}"))),
    };
    let outside = match args.literal("padding_mode")? {
        0 => Outside::Zeros,
        1 => Outside::Border,
        2 => Outside::Reflection,
        other => return Err(args.unsupported(&format!("`padding_mode` {other}"))),
    };
    Ok(Sampling { mode, outside, align_corners: args.flag("align_corners")?, dims })
}

fn sample_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (x, grid) = (args.tensor("input")?.ty, args.tensor("grid")?.ty);
    let rank = x.rank();
    if !matches!(rank, 4 | 5) || grid.rank() != rank || grid.dtype != x.dtype || !x.dtype.is_float() {
        return Err(
            args.invalid("expected an image and a grid of one rank, 4 or 5, and one floating-point type")
        );
    }
    sampling(args, rank - 2)?;
    let dims = rank as i64 - 2;
    let differs =
        |_| args.invalid(format!("a grid {grid} does not give {dims} coordinates in each image of {x}"));
    cx.require(Rel::eq(x.sizes[0], grid.sizes[0]), args.op()).map_err(differs)?;
    cx.require(Rel::eq(grid.sizes[rank - 1], dims), args.op()).map_err(differs)?;
    for &size in &x.sizes[2..] {
        cx.require(Rel::ge(size, 1), args.op()).map_err(differs)?;
    }
    let sizes = [&x.sizes[..2], &grid.sizes[1..rank - 1]].concat();
    one(TensorType::contiguous(x.dtype, sizes))
}

fn sample(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, grid) = (lw.access(args.tensor("input")?)?, lw.access(args.tensor("grid")?)?);
    let dims = x.rank() - 2;
    let sampling = sampling(args, dims)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let mut taps = Vec::with_capacity(dims);
        for d in 0..dims {
            // The grid's coordinates start with that of the last dimension.
            let place = [&at[..1], &at[2..], &[Expr::int((dims - 1 - d) as i64)]].concat();
            let place = b.read(&grid, &place);
            taps.push(sampling.taps(b, place, x.sizes[2 + d]));
        }
        let v = sampling.weighted_sum(b, &x, &at[..2], &taps);
        b.store(&out, at, v);
        Ok(())
    })
}

impl Sampling {
    /// The elements to read for a coordinate between -1 and 1.
    fn taps(self, b: &mut Body<'_>, place: Val, size: Expr) -> Vec<Tap> {
        let place = self.unnormalized(b, place, size);
        if self.mode == Mode::Cubic {
            let first = b.floor(place);
            let t = b.sub(place, first);
            let weights = curve_weights(b, t, Curve::Cubic);
            let tap = |(i, weight): (usize, Val)| {
                let step = b.lit(first, i as f64 - 1.0);
                let element = b.add(first, step);
                let element = self.brought_inside(b, element, size);
                tap(b, element, size, Some(weight))
            };
            return weights.into_iter().enumerate().map(tap).collect();
        }
        let place = self.brought_inside(b, place, size);
        if self.mode == Mode::Nearest {
            let element = b.op(ScalarOp::Round, &[place]);
            return vec![tap(b, element, size, None)];
        }
        linear_taps(b, place, size)
    }

    /// From -1 and 1 at the image's corners, or at the centres of the elements there, to a coordinate.
    fn unnormalized(self, b: &mut Body<'_>, place: Val, size: Expr) -> Val {
        let dtype = b.ty(place);
        let (one, two) = (b.lit(place, 1.0), b.lit(place, 2.0));
        let shifted = b.add(place, one);
        if self.align_corners {
            let (half, last) = (b.div(shifted, two), b.index(size - 1, dtype));
            return b.mul(half, last);
        }
        let size = b.index(size, dtype);
        let scaled = b.mul(shifted, size);
        let scaled = b.sub(scaled, one);
        b.div(scaled, two)
    }

    /// A coordinate moved into the image, as the mode says.
    fn brought_inside(self, b: &mut Body<'_>, place: Val, size: Expr) -> Val {
        let place = match self.outside {
            Outside::Zeros => return place,
            Outside::Border => place,
            Outside::Reflection => self.reflected(b, place, size),
        };
        // NaN is the first element in two dimensions, and the last one in three.
        let dtype = b.ty(place);
        let (zero, last) = (b.lit(place, 0.0), b.index(size - 1, dtype));
        let place = if self.dims == 2 {
            let is_above = b.gt(place, zero);
            b.select(is_above, place, zero)
        } else {
            let is_below = b.lt(place, zero);
            b.select(is_below, zero, place)
        };
        let is_below = b.lt(place, last);
        b.select(is_below, place, last)
    }

    /// Mirrored at the image's first and last element, or at their outer edges, as often as it takes.
    fn reflected(self, b: &mut Body<'_>, place: Val, size: Expr) -> Val {
        let dtype = b.ty(place);
        let (low, span) = if self.align_corners { (0.0, size - 1) } else { (-0.5, size) };
        if span.is_zero() {
            return b.lit(place, 0.0);
        }
        let low = b.lit(place, low);
        let distance = b.sub(place, low);
        let distance = b.abs(distance);
        let distance = if self.dims == 2 {
            // Within there and back, of which the nearer is right.
            let twice = b.index(span * 2, dtype);
            let turns = b.div(distance, twice);
            let turns = b.op(ScalarOp::Trunc, &[turns]);
            let turned = b.mul(turns, twice);
            let there = b.sub(distance, turned);
            let back = b.sub(twice, there);
            b.min(there, back)
        } else {
            let span = b.index(span, dtype);
            let extra = b.op(ScalarOp::Rem, &[distance, span]);
            let flips = b.div(distance, span);
            let flips = b.floor(flips);
            // More flips than an `i32` holds are an even number to eager mode.
            let flips = b.cast(flips, Dtype::I32);
            let (two, zero, rest) = (b.lit(flips, 2.0), b.lit(flips, 0.0), b.sub(span, extra));
            let odd = b.op(ScalarOp::Rem, &[flips, two]);
            let even = b.eq(odd, zero);
            b.select(even, extra, rest)
        };
        b.add(distance, low)
    }

    /// The sum over all combinations of taps, one of each dimension; the last dimension is summed first.
    fn weighted_sum(self, b: &mut Body<'_>, x: &ValueAccess, coords: &[Expr], taps: &[Vec<Tap>]) -> Val {
        let Some((along, rest)) = taps.split_first() else { return b.read(x, coords) };
        let zero = b.literal(litz_ir::Scalar::Float(0.0), x.dtype.compute());
        let weighted = |b: &mut Body<'_>, v: Val, weight: Option<Val>| match weight {
            Some(weight) => b.mul(v, weight),
            None => v,
        };
        let mut sum = None;
        for tap in along {
            let v = self.weighted_sum(b, x, &[coords, &[tap.coord]].concat(), rest);
            // A weight of NaN counts in two dimensions also where there is no element, and in three only where there is one.
            let v = if self.dims == 2 {
                let v = b.select(tap.exists, v, zero);
                weighted(b, v, tap.weight)
            } else {
                let v = weighted(b, v, tap.weight);
                b.select(tap.exists, v, zero)
            };
            sum = Some(match sum {
                Some(sum) => b.add(sum, v),
                None => v,
            });
        }
        sum.unwrap_or(zero)
    }
}

/// The elements before and behind a coordinate, and their weights.
fn linear_taps(b: &mut Body<'_>, place: Val, size: Expr) -> Vec<Tap> {
    let first = b.floor(place);
    let (t, one) = (b.sub(place, first), b.lit(place, 1.0));
    let (weights, second) = (curve_weights(b, t, Curve::Linear), b.add(first, one));
    vec![tap(b, first, size, Some(weights[0])), tap(b, second, size, Some(weights[1]))]
}

/// The value between four elements of a plane of an image, with zeros around it.
pub(crate) fn between(b: &mut Body<'_>, x: &ValueAccess, plane: &[Expr], places: [Val; 2]) -> Val {
    let sampling = Sampling { mode: Mode::Linear, outside: Outside::Zeros, align_corners: true, dims: 2 };
    let taps = [0, 1].map(|d| linear_taps(b, places[d], x.sizes[2 + d]));
    sampling.weighted_sum(b, x, plane, &taps)
}

/// A tap at a whole coordinate, which may be NaN or outside of the image.
fn tap(b: &mut Body<'_>, element: Val, size: Expr, weight: Option<Val>) -> Tap {
    let dtype = b.ty(element);
    let (zero, last) = (b.lit(element, 0.0), b.index(size - 1, dtype));
    let (above, below) = (b.ge(element, zero), b.le(element, last));
    let exists = b.and(above, below);
    let element = b.select(exists, element, zero);
    let element = b.cast(element, Dtype::I64);
    Tap { coord: b.bind(element, size), exists, weight }
}

// Affine grids.

fn affine_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (theta, size) = (args.tensor("theta")?.ty, args.ints("size")?);
    let dims = size.len().saturating_sub(2);
    let [batch, rows, columns] = theta.sizes.as_slice() else {
        return Err(args.bad("theta", "a batch of matrices"));
    };
    if !matches!(dims, 2 | 3) {
        return Err(args.bad("size", "the sizes of a batch of images"));
    }
    not_negative(cx, args, &size)?;
    let expected =
        [(*batch, size[0]), (*rows, Expr::int(dims as i64)), (*columns, Expr::int(dims as i64 + 1))];
    for (found, expected) in expected {
        let differs = |_| args.invalid(format!("matrices {theta} do not fit images of sizes {size:?}"));
        cx.require(Rel::eq(found, expected), args.op()).map_err(differs)?;
    }
    let sizes = [&size[..1], &size[2..], &[Expr::int(dims as i64)]].concat();
    one(TensorType::contiguous(theta.dtype, sizes))
}

/// `theta[n] @ [x, y, 1]`, with coordinates between -1 and 1.
fn affine(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let theta = lw.access(args.tensor("theta")?)?;
    let align_corners = args.flag("align_corners")?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let dims = out.rank() - 2;
    lw.nest(&out.sizes, |b, at| {
        let (batch, row) = (at[0], at[dims + 1]);
        let mut sum = b.read(&theta, &[batch, row, Expr::int(dims as i64)]);
        for d in 0..dims {
            let (size, i) = (out.sizes[1 + d], at[1 + d]);
            let dtype = b.ty(sum);
            let span = if align_corners { (size - 1).max(1) } else { size };
            let (place, span) = (b.index(i * 2 - size + 1, dtype), b.index(span, dtype));
            let place = b.div(place, span);
            let factor = b.read(&theta, &[batch, row, Expr::int((dims - 1 - d) as i64)]);
            let term = b.mul(factor, place);
            sum = b.add(sum, term);
        }
        b.store(&out, at, sum);
        Ok(())
    })
}
