//! Decomposes the distances between the rows of two matrices, and their gradients.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::same_shape;
use crate::ops::terms::{float, int};
use litz_ir::graph::{Arg, Value};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.cdist.default", distances),
    decompose("aten._cdist_forward.default", distances),
    decompose("aten._cdist_backward.default", distances_backward),
];

/// `x1[.., i, :] - x2[.., j, :]`
fn differences(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    r.require(|_, args| args.of_one_type(&["x1", "x2"]))?;
    let (a, b) = (r.args().tensor("x1")?, r.args().tensor("x2")?);
    if a.ty.rank() < 2 || b.ty.rank() < 2 || !a.ty.dtype.is_float() || a.ty.dtype.compute() != a.ty.dtype {
        return Err(r
            .args()
            .invalid(format!("expected matrices of f32 or f64, found {} and {}", a.ty, b.ty)));
    }
    let (a, b) = (a.value, b.value);
    let a = r.call("aten.unsqueeze.default", [Arg::Value(a), int(-2)])?;
    let b = r.call("aten.unsqueeze.default", [Arg::Value(b), int(-3)])?;
    r.sub(a, b)
}

fn distances(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let p = order(r)?;
    let differences = differences(r)?;
    let args = [Arg::Value(differences), float(p), Arg::List(vec![int(-1)])];
    Ok(vec![r.call("aten.linalg_vector_norm.default", args)?])
}

fn order(r: &Rewriter<'_>) -> Result<f64, OpError> {
    let p = r.args().float("p")?;
    if p.is_nan() || p < 0.0 { Err(r.args().bad("p", "a number of at least 0")) } else { Ok(p) }
}

/// The sums over rows of `x2` of gradients times the derivatives of distances.
fn distances_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let p = order(r)?;
    let gaps = differences(r)?;
    let ty = r.args().tensor("x1")?.ty.clone();
    let sizes = r.ty(gaps)?.sizes;
    let lead = sizes.len() - 3;
    r.require(|cx, args| {
        args.of_one_type(&["x1", "grad_output", "cdist"])?;
        same_shape(cx, args, "grad_output", &sizes[..lead + 2])?;
        same_shape(cx, args, "cdist", &sizes[..lead + 2])?;
        // What was broadcast would have to be summed.
        same_shape(cx, args, "x1", &[&sizes[..=lead], &sizes[lead + 2..]].concat())
    })?;
    if p == 0.0 {
        return Ok(vec![r.filled(ty.sizes, 0.0, ty.dtype)?]);
    }
    let (grad, distance) = (r.args().tensor("grad_output")?.value, r.args().tensor("cdist")?.value);
    let grad = r.call("aten.unsqueeze.default", [Arg::Value(grad), int(-1)])?;
    let distance = r.call("aten.unsqueeze.default", [Arg::Value(distance), int(-1)])?;
    let signs = r.apply("aten.sign.default", &[gaps])?;
    let lengths = r.apply("aten.abs.default", &[gaps])?;
    let mut terms = r.mul(grad, signs)?;
    if p == f64::INFINITY {
        let is_largest = r.apply("aten.eq.Tensor", &[lengths, distance])?;
        terms = r.call("aten.where.ScalarOther", [Arg::Value(is_largest), Arg::Value(terms), float(0.0)])?;
    } else if p != 1.0 {
        // sign * (|gap| / distance)^(p - 1)
        let ratio = r.div(lengths, distance)?;
        let steep = r.scalar("aten.pow.Tensor_Scalar", ratio, p - 1.0)?;
        terms = r.mul(terms, steep)?;
        let is_equal = r.scalar("aten.eq.Scalar", gaps, 0.0)?;
        let args = [Arg::Value(terms), Arg::Value(is_equal), float(0.0)];
        terms = r.call("aten.masked_fill.Scalar", args)?;
    }
    let args = [Arg::Value(terms), Arg::List(vec![int(-2)])];
    Ok(vec![r.call("aten.sum.dim_IntList", args)?])
}
