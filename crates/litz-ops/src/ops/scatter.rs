//! Lowers scatters that combine: elements sent to one position are summed, multiplied, averaged, or their extreme kept.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, inplace, lower};
use crate::error::OpError;
use crate::lower::Lower;
use crate::ops::index::{
    bound_along, copied_self, index_along_type, listed_along, scatter_type, source_element,
};
use crate::view::ValueAccess;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.scatter_reduce.two", scatter_type, scatter_reduce),
    lower("aten.scatter.reduce", scatter_type, scatter_reduce),
    lower("aten.index_reduce.default", index_along_type, index_reduce),
    inplace("aten.scatter_reduce_.two", "aten.scatter_reduce.two"),
    inplace("aten.scatter_.reduce", "aten.scatter.reduce"),
    inplace("aten.index_reduce_.default", "aten.index_reduce.default"),
];

/// How elements of one place become one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Combine {
    With(ReduceOp),
    Mean,
}

fn combine(args: &Args<'_>) -> Result<Combine, OpError> {
    match args.str("reduce")? {
        "sum" | "add" => Ok(Combine::With(ReduceOp::Sum)),
        "prod" | "multiply" => Ok(Combine::With(ReduceOp::Prod)),
        "amax" => Ok(Combine::With(ReduceOp::Max)),
        "amin" => Ok(Combine::With(ReduceOp::Min)),
        "mean" => Ok(Combine::Mean),
        _ => Err(args.bad("reduce", "sum, prod, mean, amax or amin")),
    }
}

/// What changes nothing when combined. Of the extremes it is what eager takes: an infinity or the type's limit.
fn neutral(combine: Combine, dtype: Dtype) -> Scalar {
    let limit = |max: bool| match dtype {
        Dtype::Bool => Scalar::Bool(max),
        _ if dtype.is_float() => Scalar::Float(if max { f64::INFINITY } else { f64::NEG_INFINITY }),
        _ if dtype.is_unsigned() => Scalar::Int(if max { (1 << (8 * dtype.size())) - 1 } else { 0 }),
        _ => {
            let top = i64::MAX >> (64 - 8 * dtype.size());
            Scalar::Int(if max { top } else { !top })
        }
    };
    match combine {
        Combine::With(ReduceOp::Max) => limit(false),
        Combine::With(ReduceOp::Min) => limit(true),
        Combine::With(ReduceOp::Prod) => Scalar::Int(1).to(dtype),
        Combine::Mean | Combine::With(ReduceOp::Sum | ReduceOp::Any | ReduceOp::All | ReduceOp::Xor) => {
            Scalar::zero(dtype)
        }
    }
}

/// Where an element of the source goes: the coordinates in the result.
type Target<'t> = &'t dyn Fn(&mut Body<'_>, &[Expr]) -> Vec<Expr>;

fn scatter_reduce(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?.ty;
    let along = args.dim("dim", x.rank())?;
    let (index, source) = (lw.access(args.tensor("index")?)?, lw.access(args.tensor("src")?)?);
    let sizes = index.sizes.clone();
    scatter(lw, args, &source, &sizes, &|b, at| bound_along(b, &index, &x.sizes, at, along))
}

fn index_reduce(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = args.tensor("self")?.ty;
    let along = args.dim("dim", x.rank())?;
    let (index, source) = (lw.access(args.tensor("index")?)?, lw.access(args.tensor("source")?)?);
    let sizes = source.sizes.clone();
    scatter(lw, args, &source, &sizes, &|b, at| listed_along(b, &index, &x.sizes, at, along))
}

/// Combines the part of `source` of these sizes into a copy of `self`. Places that are written forget their old
/// contents first when these shall not count.
fn scatter(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    source: &ValueAccess,
    sizes: &[Expr],
    target: Target<'_>,
) -> Result<(), OpError> {
    let combine = combine(args)?;
    // `scatter` with a reduction has no such argument and always counts them.
    let forgets = args.has("include_self") && !args.flag("include_self")?;
    let Some(out) = copied_self(lw, args)? else { return Ok(()) };
    if forgets {
        lw.nest(sizes, |b, at| {
            let coords = target(b, at);
            let v = b.literal(neutral(combine, out.dtype), out.dtype);
            b.store(&out, &coords, v);
            Ok(())
        })?;
    }
    let op = match combine {
        Combine::With(op) => op,
        Combine::Mean => ReduceOp::Sum,
    };
    lw.nest(sizes, |b, at| {
        let v = source_element(b, source, at);
        let coords = target(b, at);
        b.store_combined(&out, &coords, v, Some(op));
        Ok(())
    })?;
    if combine == Combine::Mean { divide_by_visits(lw, args, &out, sizes, target, !forgets) } else { Ok(()) }
}

/// Divides each place by how many elements it got; its old contents may be one of them.
fn divide_by_visits(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    sums: &ValueAccess,
    sizes: &[Expr],
    target: Target<'_>,
    counts_self: bool,
) -> Result<(), OpError> {
    let counts = lw.temp("count", Dtype::I64, &sums.sizes);
    lw.nest(&sums.sizes, |b, at| {
        let start = b.literal(Scalar::Int(i64::from(counts_self)), Dtype::I64);
        b.store(&counts, at, start);
        Ok(())
    })?;
    lw.nest(sizes, |b, at| {
        let coords = target(b, at);
        let one = b.literal(Scalar::Int(1), Dtype::I64);
        b.store_combined(&counts, &coords, one, Some(ReduceOp::Sum));
        Ok(())
    })?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&sums.sizes, |b, at| {
        let (sum, count) = (b.read(sums, at), b.load(&counts, at));
        let one = b.literal(Scalar::Int(1), Dtype::I64);
        let count = b.max(count, one);
        let count = b.cast(count, sums.dtype.compute());
        let mean =
            if sums.dtype.is_float() { b.div(sum, count) } else { b.op(ScalarOp::FloorDiv, &[sum, count]) };
        b.store(&out, at, mean);
        Ok(())
    })
}
