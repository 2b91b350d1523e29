//! Lowers softmax and its logarithm: the maximum, exponentials of distances from it, their sum, and shares of it.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::lower::Lower;
use crate::ops::reduce::{kept_sizes, pinned, reduce_into};
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ReduceOp};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.softmax.int", softmax_type, softmax),
    lower("aten._softmax.default", softmax_type, softmax),
    lower("aten._safe_softmax.default", softmax_type, safe_softmax),
    lower("aten.log_softmax.int", softmax_type, log_softmax),
    lower("aten._log_softmax.default", softmax_type, log_softmax),
];

fn softmax_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    args.dim("dim", x.rank())?;
    let dtype =
        if args.flag("half_to_float")? { Dtype::F32 } else { args.dtype("dtype")?.unwrap_or(x.dtype) };
    if !dtype.is_float() {
        return Err(args.invalid(format!("expected a floating-point element type, found {dtype}")));
    }
    one(TensorType::contiguous(dtype, x.sizes.clone()))
}

/// What a softmax gives where every element of a row is minus infinity.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum EmptyRow {
    /// NaN, as the formula says.
    Nan,
    /// 0: such a row is all masked.
    Zero,
}

fn softmax(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    softmax_of(lw, args, EmptyRow::Nan)
}

fn safe_softmax(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    softmax_of(lw, args, EmptyRow::Zero)
}

/// Softmax of an operand along a dimension; in the compute type of the result.
fn softmax_of(lw: &mut Lower<'_>, args: &Args<'_>, empty: EmptyRow) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dim = args.dim("dim", x.ty.rank())?;
    let x = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    let dims: &[usize] = if x.rank() == 0 { &[] } else { &[dim] };
    let rows = kept_sizes(&x.sizes, dims);
    let max = lw.temp("max", compute, &rows);
    reduce_into(lw, &x, dims, &max, compute, |b, v| {
        let max = b.reduce(ReduceOp::Max, v);
        largest(b, max, empty)
    })?;
    let exps = lw.temp("exp", compute, &x.sizes);
    lw.nest(&x.sizes, |b, at| {
        let (v, m) = (b.read_as(&x, at, compute), b.read(&max, &pinned(at, dims)));
        let shifted = b.sub(v, m);
        let e = b.exp(shifted);
        b.store(&exps, at, e);
        Ok(())
    })?;
    // One division for each row: a sum is at least the 1 that the maximum adds, so that its inverse is a normal number.
    let scale = lw.temp("scale", compute, &rows);
    reduce_into(lw, &exps, dims, &scale, compute, |b, v| {
        let sum = b.reduce(ReduceOp::Sum, v);
        let sum = total(b, sum, empty);
        let one = b.lit(sum, 1.0);
        b.div(one, sum)
    })?;
    lw.nest(&x.sizes, |b, at| {
        let (e, s) = (b.read(&exps, at), b.read(&scale, &pinned(at, dims)));
        let share = b.mul(e, s);
        b.store(&out, at, share);
        Ok(())
    })
}

/// What distances of a row's elements are measured from: its maximum, or where that is minus infinity 0, from which all are infinitely far.
pub(crate) fn largest(b: &mut Body<'_>, max: Val, empty: EmptyRow) -> Val {
    if empty == EmptyRow::Zero { replaced(b, max, f64::NEG_INFINITY, 0.0) } else { max }
}

/// What a row's exponentials are divided by: their sum, or where all are 0 anything else.
pub(crate) fn total(b: &mut Body<'_>, sum: Val, empty: EmptyRow) -> Val {
    if empty == EmptyRow::Zero { replaced(b, sum, 0.0, 1.0) } else { sum }
}

/// A value, or `to` in the place of `from`.
fn replaced(b: &mut Body<'_>, v: Val, from: f64, to: f64) -> Val {
    let (from, to) = (b.lit(v, from), b.lit(v, to));
    let matches = b.eq(v, from);
    b.select(matches, to, v)
}

/// `x - max - log(sum(exp(x - max)))`
fn log_softmax(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?;
    let dim = args.dim("dim", x.ty.rank())?;
    let access = lw.access(x)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let compute = out.dtype.compute();
    let dims: &[usize] = if access.rank() == 0 { &[] } else { &[dim] };
    let rows = kept_sizes(&access.sizes, dims);
    let max = lw.temp("max", compute, &rows);
    reduce_into(lw, &access, dims, &max, compute, |b, v| b.reduce(ReduceOp::Max, v))?;
    let shifted = lw.temp("shifted", compute, &access.sizes);
    lw.nest(&access.sizes, |b, at| {
        let (v, m) = (b.read_as(&access, at, compute), b.read(&max, &pinned(at, dims)));
        let distance = b.sub(v, m);
        b.store(&shifted, at, distance);
        Ok(())
    })?;
    let log = lw.temp("log", compute, &rows);
    reduce_into(lw, &shifted, dims, &log, compute, |b, v| {
        let e = b.exp(v);
        let sum = b.reduce(ReduceOp::Sum, e);
        b.log(sum)
    })?;
    lw.nest(&access.sizes, |b, at| {
        let (v, l) = (b.read(&shifted, at), b.read(&log, &pinned(at, dims)));
        let result = b.sub(v, l);
        b.store(&out, at, result);
        Ok(())
    })
}
