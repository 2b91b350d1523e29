//! Decomposes losses by margins: of many labels, and of the cosines of pairs.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::{same_shape, vector_of};
use crate::ops::loss::reduced;
use crate::ops::terms::{dims_arg, float, int};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.cosine_embedding_loss.default", cosine_embedding),
    decompose("aten.multilabel_margin_loss.default", multilabel_margin),
];

/// `1 - cos` of pairs whose target is 1, `max(0, cos - margin)` of those with -1.
fn cosine_embedding(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    /// Keeps the product of lengths from 0, as in eager.
    const EPSILON: f64 = 1e-12;
    let (a, b, target) = (r.args().tensor("input1")?, r.args().tensor("input2")?, r.args().tensor("target")?);
    let dim = target.ty.rank();
    if target.ty.rank() > 1 || a.ty.rank() != dim + 1 || b.ty.rank() != dim + 1 {
        return Err(r.args().invalid(format!(
            "expected vectors and a number, or rows and a vector, found {}, {} and {}",
            a.ty, b.ty, target.ty
        )));
    }
    let (a, b, target, margin) = (a.value, b.value, target.value, r.args().float("margin")?);
    let product = |r: &mut Rewriter<'_>, a: Value, b: Value| {
        let product = r.mul(a, b)?;
        r.call("aten.sum.dim_IntList", [Arg::Value(product), dims_arg(&[dim])])
    };
    let (own, left, right) = (product(r, a, b)?, product(r, a, a)?, product(r, b, b)?);
    let left = r.scalar("aten.add.Scalar", left, EPSILON)?;
    let right = r.scalar("aten.add.Scalar", right, EPSILON)?;
    let squares = r.mul(left, right)?;
    let lengths = r.apply("aten.sqrt.default", &[squares])?;
    let cosine = r.div(own, lengths)?;
    let apart = r.call("aten.rsub.Scalar", [Arg::Value(cosine), int(1)])?;
    let excess = r.scalar("aten.sub.Scalar", cosine, margin)?;
    let excess = r.scalar("aten.clamp_min.default", excess, 0.0)?;
    let (same, different) =
        (r.scalar("aten.eq.Scalar", target, 1.0)?, r.scalar("aten.eq.Scalar", target, -1.0)?);
    let apart = r.call("aten.where.ScalarOther", [Arg::Value(same), Arg::Value(apart), float(0.0)])?;
    let excess = r.call("aten.where.ScalarOther", [Arg::Value(different), Arg::Value(excess), float(0.0)])?;
    let loss = r.add(apart, excess)?;
    reduced(r, loss)
}

/// For each label before the first negative one, and each class that is no label, what `1 - (x[label] - x[class])` is above
/// 0; their sum over the number of classes.
fn multilabel_margin(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, target) = (r.args().tensor("self")?, r.args().tensor("target")?);
    let (rank, sizes) = (x.ty.rank(), x.ty.sizes.clone());
    let (x, target) = (x.value, target.value);
    let &[.., classes] = sizes.as_slice() else {
        // There is no other class.
        let none = r.apply("aten.zeros_like.default", &[x])?;
        return Ok(vec![none]);
    };
    if rank > 2 {
        return Err(r.args().invalid(format!("expected a vector or rows, found {sizes:?}")));
    }
    r.args().of_types("target", &[Dtype::I64])?;
    r.require(|cx, args| match rank {
        1 => vector_of(cx, args, "target", classes),
        _ => same_shape(cx, args, "target", &sizes),
    })?;
    let last = rank - 1;
    let ends = r.call("aten.lt.Scalar", [Arg::Value(target), int(0)])?;
    let before = r.call("aten.cumsum.default", [Arg::Value(ends), int(-1)])?;
    let is_label = r.call("aten.eq.Scalar", [Arg::Value(before), int(0)])?;
    let no_label = r.apply("aten.logical_not.default", &[is_label])?;
    let labels = r.call("aten.masked_fill.Scalar", [Arg::Value(target), Arg::Value(no_label), int(0)])?;
    let own = r.call("aten.gather.default", [Arg::Value(x), int(-1), Arg::Value(labels)])?;
    let column = |r: &mut Rewriter<'_>, x: Value| r.call("aten.unsqueeze.default", [Arg::Value(x), int(-1)]);
    let (own, labels, is_label) = (column(r, own)?, column(r, labels)?, column(r, is_label)?);
    // Labels go along the dimension before the last, classes along the last.
    let range = r.call("aten.arange.default", [Arg::Int(classes)])?;
    let names = r.apply("aten.eq.Tensor", &[labels, range])?;
    let names = r.apply("aten.logical_and.default", &[names, is_label])?;
    let named = r.call("aten.any.dim", [Arg::Value(names), int(last as i64), Arg::Bool(true)])?;
    let unnamed = r.apply("aten.logical_not.default", &[named])?;
    let counts = r.apply("aten.logical_and.default", &[unnamed, is_label])?;
    let others = r.call("aten.unsqueeze.default", [Arg::Value(x), int(-2)])?;
    let lead = r.sub(own, others)?;
    let short = r.call("aten.rsub.Scalar", [Arg::Value(lead), int(1)])?;
    let short = r.scalar("aten.clamp_min.default", short, 0.0)?;
    let short = r.call("aten.where.ScalarOther", [Arg::Value(counts), Arg::Value(short), float(0.0)])?;
    let sum = r.call("aten.sum.dim_IntList", [Arg::Value(short), dims_arg(&[last, rank])])?;
    let dtype = r.ty(x)?.dtype;
    let count = r.call("aten.scalar_tensor.default", [Arg::Int(classes), Arg::Dtype(dtype)])?;
    let loss = r.div(sum, count)?;
    reduced(r, loss)
}
