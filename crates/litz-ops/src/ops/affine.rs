//! Writes torchao's dequantisation with operators on the numbers that its integers stand for.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[decompose("torchao.dequantize_affine.default", |r| {
    r.args().of_types("input", &[Dtype::I8, Dtype::U8, Dtype::I16, Dtype::I32])?;
    let [x, scale] = ["input", "scale"].map(|name| r.args().tensor(name).map(|tensor| tensor.value));
    let (x, scale) = (x?, scale?);
    let dtype = r.args().dtype("output_dtype")?.unwrap_or(Dtype::F32);
    let (blocks, parameters) = blocks(r, x)?;
    let sizes = r.ty(x)?.sizes.to_vec();
    let x = convert(r, x, dtype)?;
    let mut x = reshape(r, x, blocks)?;
    if let Some(zero) = r.args().opt_tensor("zero_point")? {
        let zero = reshape(r, zero.value, parameters.clone())?;
        let zero = convert(r, zero, dtype)?;
        x = r.apply("aten.sub.Tensor", &[x, zero])?;
    }
    let scale = reshape(r, scale, parameters)?;
    let x = r.apply("aten.mul.Tensor", &[x, scale])?;
    let x = reshape(r, x, sizes)?;
    Ok(vec![convert(r, x, dtype)?])
})];

/// The sizes of a tensor whose dimensions are cut into blocks that share parameters, and those of a tensor of parameters: a
/// dimension of several blocks becomes two.
fn blocks(r: &Rewriter<'_>, x: Value) -> Result<(Vec<Expr>, Vec<Expr>), OpError> {
    let sizes = r.ty(x)?.sizes.to_vec();
    let lengths = r.args().literals_of("block_size", sizes.len())?;
    let (mut blocks, mut parameters) = (Vec::new(), Vec::new());
    for (&size, length) in sizes.iter().zip(lengths) {
        if length == 1 || size.as_int() == Some(length) {
            blocks.push(size);
            parameters.push(if length == 1 { size } else { Expr::one() });
            continue;
        }
        let count = size.as_int().filter(|size| length > 0 && size % length == 0).map(|size| size / length);
        let Some(count) = count else { return Err(r.args().bad("block_size", "divisors of the sizes")) };
        blocks.extend([Expr::int(count), Expr::int(length)]);
        parameters.extend([Expr::int(count), Expr::one()]);
    }
    Ok((blocks, parameters))
}

fn reshape(r: &mut Rewriter<'_>, x: Value, sizes: Vec<Expr>) -> Result<Value, OpError> {
    r.call("aten.reshape.default", [Arg::Value(x), Arg::ints(sizes)])
}

fn convert(r: &mut Rewriter<'_>, x: Value, dtype: Dtype) -> Result<Value, OpError> {
    if r.ty(x)?.dtype == dtype {
        return Ok(x);
    }
    r.call("aten._to_copy.default", [Arg::Value(x), Arg::Dtype(dtype)])
}
