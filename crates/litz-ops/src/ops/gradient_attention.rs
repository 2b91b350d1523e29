//! Decomposes the gradient of scaled dot-product attention: weights again from scores and the logarithms of their sums, then
//! products of matrices.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::same_shape;
use crate::ops::attention;
use crate::ops::terms::{float, int};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Type, Value};

/// Entries.
pub const OPS: &[OpDef] =
    &[decompose("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", attention_backward)];

/// With weights `P = exp(scale * Q K' + mask - logsumexp)` and `dP = dO V'`, `dV = P' dO`, `dS = P * (dP - sum(dO * O))`,
/// `dQ = scale * dS K` and `dK = scale * dS' Q`. Eager rounds `P` and `dS` to the type of the operands before it multiplies them.
fn attention_backward(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    if r.args().opt_float("dropout_p")?.unwrap_or(0.0) != 0.0 {
        return Err(r.args().unsupported("dropout"));
    }
    r.require(|cx, args| {
        args.of_one_type(&["grad_out", "query", "key", "value", "out"])?;
        let types = attention::types(cx, args)?;
        for (names, ty) in [&["grad_out", "out"][..], &["logsumexp"]].into_iter().zip(&types) {
            match ty {
                Type::Tensor(ty) => {
                    names.iter().try_for_each(|name| same_shape(cx, args, name, &ty.sizes))?;
                }
                Type::Int(_) | Type::Float | Type::Bool => {}
            }
        }
        // What was broadcast would have to be summed.
        let batch = &args.tensor("query")?.ty.sizes[..2.min(args.tensor("query")?.ty.rank())];
        for name in ["key", "value"] {
            let sizes = &args.tensor(name)?.ty.sizes;
            let expected = [batch, sizes.get(2..).unwrap_or(&[])].concat();
            same_shape(cx, args, name, &expected)?;
        }
        Ok(())
    })?;
    let ty = r.args().tensor("query")?.ty.clone();
    if ty.rank() != 4 {
        return Err(r.args().bad("query", "4 dimensions"));
    }
    let scale = match (r.args().opt_float("scale")?, ty.sizes[3].as_int()) {
        (Some(scale), _) => scale,
        (None, Some(features)) => 1.0 / (features as f64).sqrt(),
        (None, None) => return Err(r.args().unsupported("a symbolic number of features")),
    };
    let [query, key, value] = [r.wide("query")?, r.wide("key")?, r.wide("value")?];
    let (grad, out) = (r.wide("grad_out")?, r.wide("out")?);
    let weights = weights(r, query, key, scale)?;
    let rounded = r.rounded(weights, ty.dtype)?;

    let turned = r.transpose(rounded, -2, -1)?;
    let for_value = r.apply("aten.matmul.default", &[turned, grad])?;
    let turned = r.transpose(value, -2, -1)?;
    let for_weights = r.apply("aten.matmul.default", &[grad, turned])?;
    let products = r.mul(grad, out)?;
    let common = r.sum(products, &[3])?;
    let distance = r.sub(for_weights, common)?;
    let for_scores = r.mul(weights, distance)?;
    let for_scores = r.rounded(for_scores, ty.dtype)?;
    let for_query = r.apply("aten.matmul.default", &[for_scores, key])?;
    let for_query = r.scalar("aten.mul.Scalar", for_query, scale)?;
    let turned = r.transpose(for_scores, -2, -1)?;
    let for_key = r.apply("aten.matmul.default", &[turned, query])?;
    let for_key = r.scalar("aten.mul.Scalar", for_key, scale)?;
    let mut results = Vec::new();
    for gradient in [for_query, for_key, for_value] {
        let gradient = r.convert(gradient, ty.dtype)?;
        // Eager's have the heads of a row together.
        results.push(r.stored_in_order(gradient, &[0, 2, 1, 3])?);
    }
    Ok(results)
}

/// The weights of values, as the call had them.
fn weights(r: &mut Rewriter<'_>, query: Value, key: Value, scale: f64) -> Result<Value, OpError> {
    let turned = r.transpose(key, -2, -1)?;
    let scores = r.apply("aten.matmul.default", &[query, turned])?;
    let mut scores = r.scalar("aten.mul.Scalar", scores, scale)?;
    if let Some(mask) = r.args().opt_tensor("attn_mask")? {
        let (mask, is_bool) = (mask.value, mask.ty.dtype == Dtype::Bool);
        scores = if is_bool {
            let args = [Arg::Value(mask), Arg::Value(scores), float(f64::NEG_INFINITY)];
            r.call("aten.where.ScalarOther", args)?
        } else {
            let mask = r.widened(mask)?;
            r.add(scores, mask)?
        };
    }
    let logs = r.args().tensor("logsumexp")?.value;
    let logs = r.call("aten.unsqueeze.default", [Arg::Value(logs), int(-1)])?;
    let distance = r.sub(scores, logs)?;
    let weights = r.apply("aten.exp.default", &[distance])?;
    if r.args().flag("is_causal")? {
        return r.call("aten.tril.default", [Arg::Value(weights)]);
    }
    Ok(weights)
}
