//! Lowers reductions of segments: neighbours along a dimension, cut by lengths or by offsets, made one each.

use crate::args::{Args, POSITIONS};
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::same_sizes;
use crate::lower::Lower;
use crate::view::ValueAccess;
use litz_ir::graph::{TensorType, Type};
use litz_ir::{Dtype, ReduceOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[lower("aten.segment_reduce.default", segments_type, segments)];

/// The dimension that is cut, and for each of its lines how many segments there are.
fn cut(args: &Args<'_>) -> Result<(usize, Expr), OpError> {
    if args.has("indices") {
        return Err(args.unsupported("segments by indices"));
    }
    let x = args.tensor("data")?.ty;
    let at = args.dim("axis", x.rank())?;
    let (name, extra) = if args.has("offsets") { ("offsets", 1) } else { ("lengths", 0) };
    args.of_types(name, POSITIONS)?;
    let bounds = args.tensor(name)?.ty;
    match bounds.sizes.as_slice() {
        [.., last] if bounds.rank() == at + 1 && x.rank() > at => Ok((at, *last - extra)),
        _ => Err(args.invalid(format!("expected {name} of {} dimensions for {x}, found {bounds}", at + 1))),
    }
}

fn segments_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("data")?.ty;
    if !x.dtype.is_float() {
        return Err(args.invalid(format!("expected floating-point elements, found {x}")));
    }
    let (at, count) = cut(args)?;
    let name = if args.has("offsets") { "offsets" } else { "lengths" };
    let bounds = args.tensor(name)?.ty;
    same_sizes(cx, args, name, &bounds.sizes[..at], &x.sizes[..at])?;
    let mut sizes = x.sizes.clone();
    sizes[at] = count;
    one(TensorType::contiguous(x.dtype, sizes))
}

/// Where each segment starts and ends.
fn ends(lw: &mut Lower<'_>, args: &Args<'_>, count: Expr) -> Result<[ValueAccess; 2], OpError> {
    let by_offsets = args.has("offsets");
    let given = lw.access(args.tensor(if by_offsets { "offsets" } else { "lengths" })?)?;
    let last = given.rank() - 1;
    let mut sizes = given.sizes.clone();
    sizes[last] = count;
    let (starts, stops) = (lw.temp("starts", Dtype::I64, &sizes), lw.temp("stops", Dtype::I64, &sizes));
    let (whole, is_unchecked) = (args.tensor("data")?.ty.sizes[last], args.flag("unsafe")?);
    lw.nest(&sizes, |b, at| {
        let own = b.read_as(&given, at, Dtype::I64);
        let (start, stop) = if by_offsets {
            let mut next = at.to_vec();
            next[last] = next[last] + 1;
            (own, b.read_as(&given, &next, Dtype::I64))
        } else {
            let stop = b.scan(ReduceOp::Sum, own, at[last]);
            if !is_unchecked {
                // None is negative, and together they have as many elements as there are.
                let (zero, whole) = (b.lit(own, 0.0), b.index(whole, Dtype::I64));
                let (counts, ends) = (b.ge(own, zero), b.eq(stop, whole));
                let goes_on = b.cond(Rel::lt(at[last] + 1, count));
                let ends = b.or(goes_on, ends);
                let holds = b.and(counts, ends);
                b.check_value(holds);
            }
            (b.sub(stop, own), stop)
        };
        b.store(&starts, at, start);
        b.store(&stops, at, stop);
        Ok(())
    })?;
    Ok([starts, stops])
}

/// Elements of no segment give what changes nothing, or the argument `initial`; their mean is none.
fn segments(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (axis, count) = cut(args)?;
    let (reduce, initial) = (args.str("reduce")?, args.opt_float("initial")?);
    let (op, neutral) = match reduce {
        "sum" | "mean" => (ReduceOp::Sum, 0.0),
        "prod" => (ReduceOp::Prod, 1.0),
        "max" => (ReduceOp::Max, f64::NEG_INFINITY),
        "min" => (ReduceOp::Min, f64::INFINITY),
        _ => return Err(args.bad("reduce", "sum, mean, prod, max or min")),
    };
    let [starts, stops] = ends(lw, args, count)?;
    let x = lw.access(args.tensor("data")?)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let mut coords = at.to_vec();
        let place = b.reduced_axis(x.sizes[axis]);
        coords[axis] = place;
        let v = b.read(&x, &coords);
        let (start, stop) = (b.load(&starts, &at[..=axis]), b.load(&stops, &at[..=axis]));
        let place = b.index(place, Dtype::I64);
        let (after, before) = (b.ge(place, start), b.lt(place, stop));
        let (inside, none) = (b.and(after, before), b.lit(v, neutral));
        let v = b.select(inside, v, none);
        let mut result = b.reduce(op, v);
        if let Some(initial) = initial {
            let initial = b.lit(result, initial);
            result = match op {
                ReduceOp::Prod => b.mul(initial, result),
                ReduceOp::Max => b.max(initial, result),
                ReduceOp::Min => b.min(initial, result),
                ReduceOp::Sum | ReduceOp::Any | ReduceOp::All | ReduceOp::Xor => b.add(initial, result),
            };
        }
        if reduce == "mean" {
            let length = b.sub(stop, start);
            let dtype = b.ty(result);
            let length = b.cast(length, dtype);
            let mean = b.div(result, length);
            let (zero, nan) = (b.lit(mean, 0.0), b.lit(mean, f64::NAN));
            let is_empty = b.eq(length, zero);
            let nothing = if initial.is_some() { result } else { nan };
            result = b.select(is_empty, nothing, mean);
        }
        b.store(&out, at, result);
        Ok(())
    })
}
