//! Writes layers of an encoder out that PyTorch has as one operator in evaluation mode.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use litz_ir::graph::{Arg, Float, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[decompose("aten._transformer_encoder_layer_fwd.default", layer)];

/// Attention of a sequence to itself and two linear layers, each with what it began with added, and a norm in front of each or behind it. (PyTorch,
/// `torch.nn.TransformerEncoderLayer`; ATen/native/transformers/transformer.cpp)
fn layer(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let args = r.args();
    if args.has("mask") {
        return Err(args.unsupported("a mask"));
    }
    let (source, norm_first) = (args.tensor("src")?.value, args.flag("norm_first")?);
    let mut x = source;
    if norm_first {
        x = norm(r, x, 1)?;
    }
    let attended = attended(r, x)?;
    let attended = r.apply("aten.add.Tensor", &[attended, source])?;
    let before = if norm_first { attended } else { norm(r, attended, 1)? };
    let mut x = if norm_first { norm(r, before, 2)? } else { before };
    let activation = if r.args().flag("use_gelu")? { "aten.gelu.default" } else { "aten.relu.default" };
    x = linear(r, x, ["ffn_weight_1", "ffn_bias_1"])?;
    x = r.apply(activation, &[x])?;
    x = linear(r, x, ["ffn_weight_2", "ffn_bias_2"])?;
    x = r.apply("aten.add.Tensor", &[x, before])?;
    Ok(vec![if norm_first { x } else { norm(r, x, 2)? }])
}

/// Attention of all heads: queries, keys and values are rows of one product.
fn attended(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    let args = r.args();
    let [batch, length, features] = args.tensor("src")?.ty.sizes[..] else {
        return Err(args.unsupported("a source of other than three dimensions"));
    };
    let (heads, size) = (args.int("num_heads")?, args.int("embed_dim")?);
    if features != size {
        return Err(args.invalid(format!("a source of {features} features, not {size}")));
    }
    let int = |e: Expr| Arg::Int(e);
    let rows = linear(r, x, ["qkv_weight", "qkv_bias"])?;
    let parts =
        r.call_all("aten.chunk.default", [Arg::Value(rows), int(Expr::int(3)), int(Expr::int(-1))])?;
    let mut of_heads = Vec::new();
    for part in parts.into_iter().flatten() {
        let part = r.reshape(part, [batch, length, heads, size.floordiv(heads)])?;
        let dims = [Expr::one(), Expr::int(2)].map(int);
        of_heads.push(r.call("aten.transpose.int", std::iter::once(Arg::Value(part)).chain(dims))?);
    }
    let attended = r.apply("aten.scaled_dot_product_attention.default", &of_heads)?;
    let dims = [Expr::one(), Expr::int(2)].map(int);
    let attended = r.call("aten.transpose.int", std::iter::once(Arg::Value(attended)).chain(dims))?;
    let attended = r.reshape(attended, [batch, length, features])?;
    linear(r, attended, ["proj_weight", "proj_bias"])
}

fn linear(r: &mut Rewriter<'_>, x: Value, names: [&str; 2]) -> Result<Value, OpError> {
    let [weight, bias] = names.map(|name| r.args().tensor(name).map(|tensor| tensor.value));
    r.apply("aten.linear.default", &[x, weight?, bias?])
}

/// The first or the second norm of a layer.
fn norm(r: &mut Rewriter<'_>, x: Value, number: u32) -> Result<Value, OpError> {
    let args = r.args();
    let of = |what: &str| args.tensor(&format!("norm_{what}_{number}"));
    let (weight, bias, eps) = (of("weight")?, of("bias")?, args.float("eps")?);
    let sizes = weight.ty.sizes.iter().map(|&size| Arg::Int(size)).collect();
    let (weight, bias) = (Arg::Value(weight.value), Arg::Value(bias.value));
    r.call("aten.layer_norm.default", [Arg::Value(x), Arg::List(sizes), weight, bias, Arg::Float(Float(eps))])
}
