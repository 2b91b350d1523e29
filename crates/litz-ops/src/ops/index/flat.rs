//! Writes operators on the elements of whole tensors, in order, with those that index.

use crate::decompose::Rewriter;
use crate::error::OpError;
use crate::layout::{broadcast, same_numel};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::{Expr, Rel};

/// A tensor as a vector.
pub(crate) fn flattened(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    r.call("aten.reshape.default", [Arg::Value(x), Arg::ints([Expr::int(-1)])])
}

/// Elements of `source` to the places in the flattened operand that `index` names.
pub(super) fn put(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, index, source) =
        (r.args().tensor("self")?.value, r.args().tensor("index")?.value, r.args().tensor("source")?.value);
    let sizes = r.ty(x)?.sizes;
    r.require(|cx, args| {
        args.of_types("index", &[Dtype::I64])?;
        args.of_types("source", &[args.tensor("self")?.ty.dtype])?;
        same_numel(cx, args, "source", &args.tensor("index")?.ty.sizes)
    })?;
    let accumulate = r.args().get("accumulate").clone();
    let (flat, index, source) = (flattened(r, x)?, flattened(r, index)?, flattened(r, source)?);
    let index = Arg::List(vec![Arg::Value(index)]);
    let new = r.call("aten.index_put.default", [Arg::Value(flat), index, Arg::Value(source), accumulate])?;
    Ok(vec![r.call("aten.reshape.default", [Arg::Value(new), Arg::ints(sizes)])?])
}

pub(super) fn take(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.args().of_types("index", &[Dtype::I64])?;
    let (x, index) = (r.args().tensor("self")?.value, r.args().tensor("index")?.value);
    let flat = flattened(r, x)?;
    Ok(vec![r.call("aten.index.Tensor", [Arg::Value(flat), Arg::List(vec![Arg::Value(index)])])?])
}

/// `gather` of operands that broadcast against each other but along the dimension, where indices wrap; without one, of
/// vectors, where they do not.
pub(super) fn take_along(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, index) = (r.args().tensor("self")?, r.args().tensor("indices")?);
    let (x, index, rank) = (x.value, index.value, x.ty.rank());
    r.args().of_types("indices", &[Dtype::I64])?;
    if !r.args().has("dim") {
        let (x, index) = (flattened(r, x)?, flattened(r, index)?);
        let args = [Arg::Value(x), Arg::Int(Expr::zero()), Arg::Value(index)];
        return Ok(vec![r.call("aten.gather.default", args)?]);
    }
    let at = r.args().dim("dim", rank)?;
    let (mut own, mut theirs) = (r.ty(x)?.sizes, r.ty(index)?.sizes);
    if theirs.len() != rank {
        return Err(r.args().invalid("expected operands of one rank"));
    }
    let (length, count) = (own[at], theirs[at]);
    (own[at], theirs[at]) = (Expr::one(), Expr::one());
    let mut sizes = broadcast(&mut r.infer_cx(), &[&own, &theirs], "aten.take_along_dim.default")?;
    let mut expanded = |v: Value, size: Expr| {
        sizes[at] = size;
        r.call("aten.expand.default", [Arg::Value(v), Arg::ints(sizes.clone())])
    };
    let (x, index) = (expanded(x, length)?, expanded(index, count)?);
    // Nothing wraps to an element where there are none.
    let index = match length.is_zero() {
        true => index,
        false => r.call("aten.remainder.Scalar", [Arg::Value(index), Arg::Int(length)])?,
    };
    let args = [Arg::Value(x), Arg::Int(Expr::int(at as i64)), Arg::Value(index)];
    Ok(vec![r.call("aten.gather.default", args)?])
}

/// Where the mask is set, the elements of `source` in order: a running sum of the mask says which comes next.
pub(super) fn masked_scatter(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.args().of_types("mask", &[Dtype::Bool])?;
    r.args().of_types("source", &[r.args().tensor("self")?.ty.dtype])?;
    let (x, mask, source) =
        (r.args().tensor("self")?.value, r.args().tensor("mask")?.value, r.args().tensor("source")?.value);
    let both =
        r.call_all("aten.broadcast_tensors.default", [Arg::List(vec![Arg::Value(x), Arg::Value(mask)])])?;
    let [Some(x), Some(mask)] = both[..] else {
        return Err(r.args().invalid("expected an operand and a mask"));
    };
    let sizes = r.ty(x)?.sizes;
    let flat = flattened(r, mask)?;
    let count = r.call("aten.cumsum.default", [Arg::Value(flat), Arg::Int(Expr::zero())])?;
    let mut source = flattened(r, source)?;
    let numel = r.ty(source)?.numel();
    let place = if r.infer_cx().known(Rel::le(1, numel)) == Some(true) {
        let place = r.call("aten.sub.Scalar", [Arg::Value(count), Arg::Int(Expr::one())])?;
        r.call("aten.clamp_min.default", [Arg::Value(place), Arg::Int(Expr::zero())])?
    } else {
        // What is not taken has to come from somewhere, even where there is nothing to take: from an element in front.
        let in_front = Arg::ints([Expr::one(), Expr::zero()]);
        source =
            r.call("aten.constant_pad_nd.default", [Arg::Value(source), in_front, Arg::Int(Expr::zero())])?;
        r.call("aten.mul.Tensor", [Arg::Value(count), Arg::Value(flat)])?
    };
    let taken = r.call("aten.index.Tensor", [Arg::Value(source), Arg::List(vec![Arg::Value(place)])])?;
    let taken = r.call("aten.reshape.default", [Arg::Value(taken), Arg::ints(sizes)])?;
    Ok(vec![r.apply("aten.where.self", &[mask, taken, x])?])
}
