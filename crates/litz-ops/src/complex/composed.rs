//! Writes operators on complex numbers that look at more than one element, or at a part of each, with operators on their parts.

use super::by_parts::each_part;
use super::functions::{exp, log, narrowed, widened};
use super::{Found, is_nonzero, joined, operand, parts_of};
use crate::decompose::Rewriter;
use crate::def::DecomposeFn;
use crate::ops::terms::{float, int};
use litz_ir::dtype::Kind;
use litz_ir::graph::Arg;
use litz_sym::Expr;

/// Rules by operator.
pub(super) const RULES: &[(&str, DecomposeFn)] = &[
    ("aten.logsumexp.default", logsumexp),
    ("aten.softmax.int", of_real_part),
    ("aten.log_softmax.int", of_real_part),
    ("aten.nonzero.default", nonzero),
    ("aten.matrix_exp.default", exponential),
    ("aten.linalg_matrix_exp.default", exponential),
    ("aten.pad.default", padded),
];

/// By the largest real part, so that no exponential overflows; in f64.
fn logsumexp(r: &mut Rewriter<'_>) -> Found {
    let (dims, keep) = (r.args().get("dim").clone(), r.args().get("keepdim").clone());
    let z = operand(r, "self")?;
    let [mut re, im] = widened(r, z)?;
    let mut top = None;
    // Of nothing there is no largest one.
    if !r.ty(re)?.numel().is_zero() {
        let largest = r.call("aten.amax.default", [Arg::Value(re), dims.clone(), Arg::Bool(true)])?;
        let size = r.apply("aten.abs.default", &[largest])?;
        let is_endless = r.scalar("aten.eq.Scalar", size, f64::INFINITY)?;
        let filled = [Arg::Value(largest), Arg::Value(is_endless), float(0.0)];
        let largest = r.call("aten.masked_fill.Scalar", filled)?;
        re = r.sub(re, largest)?;
        // The only one along each dimension.
        top = Some(r.call("aten.sum.dim_IntList", [Arg::Value(largest), dims.clone(), keep.clone()])?);
    }
    let mut terms = exp(r, [re, im])?;
    for term in &mut terms {
        *term = r.call("aten.sum.dim_IntList", [Arg::Value(*term), dims.clone(), keep.clone()])?;
    }
    let [mut re, im] = log(r, terms)?;
    if let Some(top) = top {
        re = r.add(re, top)?;
    }
    narrowed(r, [re, im])
}

/// The operator on real parts, which is what becomes of complex numbers where the result is asked for in a real type.
fn of_real_part(r: &mut Rewriter<'_>) -> Found {
    let dtype = r.args().dtype("dtype")?.filter(|dtype| dtype.kind() != Kind::Complex);
    let dtype = dtype.ok_or_else(|| r.args().unsupported("a complex result"))?;
    let (name, mut args) = (r.args().op().to_owned(), r.args().node.args.clone());
    let [re, _] = operand(r, "self")?;
    args[0] = Arg::Value(r.convert(re, dtype)?);
    Ok(vec![r.call(&name, args)?])
}

fn nonzero(r: &mut Rewriter<'_>) -> Found {
    let ty = r.args().result(0).cloned();
    let ty = ty.ok_or_else(|| r.args().unsupported("a result whose size nothing names"))?;
    let z = operand(r, "self")?;
    let holds = is_nonzero(r, z)?;
    Ok(vec![r.stated("aten.nonzero.default", [Arg::Value(holds)], ty)?])
}

/// `A + iB` is to vectors of complex numbers what the matrix of blocks `A, -B` above `B, A` is to real ones of twice the length.
fn exponential(r: &mut Rewriter<'_>) -> Found {
    let x = r.args().tensor("self")?.value;
    let [re, im] = parts_of(r, x)?;
    let ty = r.ty(re)?;
    let &[.., rows, _] = ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected matrices, found {ty}")));
    };
    let opposite = r.apply("aten.neg.default", &[im])?;
    let mut beside = |blocks: [_; 2], dim: i64| {
        r.call("aten.cat.default", [Arg::List(blocks.map(Arg::Value).to_vec()), int(dim)])
    };
    let (above, below) = (beside([re, opposite], -1)?, beside([im, re], -1)?);
    let blocks = beside([above, below], -2)?;
    let found = r.apply("aten.linalg_matrix_exp.default", &[blocks])?;
    let last = ty.rank() - 1;
    let left = r.slice(found, last, Expr::zero(), rows)?;
    let parts = [r.slice(left, last - 1, Expr::zero(), rows)?, r.slice(left, last - 1, rows, rows * 2)?];
    joined(r, parts)
}

/// The number that is put around is real.
fn padded(r: &mut Rewriter<'_>) -> Found {
    let (name, at) = (r.args().op().to_owned(), r.schema().position("value"));
    let [re, mut im] = each_part(r)?;
    if let Some(value) = at.and_then(|at| im.get_mut(at))
        && *value != Arg::None
    {
        *value = float(0.0);
    }
    let parts = [r.call(&name, re)?, r.call(&name, im)?];
    joined(r, parts)
}
