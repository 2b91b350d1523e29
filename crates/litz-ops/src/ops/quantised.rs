//! Writes quantisation and dequantisation, and products of packed integers, with operators on the numbers that they stand for.
//!
//! A product takes in what makes numbers of its operand's integers, whoever wrote it down, so that nothing here needs a kernel.

use crate::args::Args;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::vector_of;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("quantized_decomposed.quantize_per_tensor.default", |r| {
        let scale = 1.0 / r.args().float("scale")?;
        let zero = r.args().float("zero_point")?;
        let x = single(r)?;
        let x = r.scalar("aten.mul.Scalar", x, scale)?;
        let x = r.apply("aten.round.default", &[x])?;
        let x = r.scalar("aten.add.Scalar", x, zero)?;
        clamped(r, x)
    }),
    decompose("quantized_decomposed.quantize_per_tensor.tensor", |r| {
        let (scale, zero) = (number(r, "scale", Dtype::F64)?, number(r, "zero_point", Dtype::F32)?);
        let x = single(r)?;
        let inverse = r.apply("aten.reciprocal.default", &[scale])?;
        let inverse = convert(r, inverse, Dtype::F32)?;
        let x = r.apply("aten.mul.Tensor", &[x, inverse])?;
        let x = r.apply("aten.round.default", &[x])?;
        let x = r.apply("aten.add.Tensor", &[x, zero])?;
        clamped(r, x)
    }),
    decompose("quantized_decomposed.quantize_per_channel.default", |r| {
        let [scales, zeros] = ["scales", "zero_points"].map(|name| by_channel(r, name));
        let x = single(r)?;
        let inverse = r.apply("aten.reciprocal.default", &[scales?])?;
        let x = r.apply("aten.mul.Tensor", &[x, inverse])?;
        let x = r.apply("aten.round.default", &[x])?;
        let x = r.apply("aten.add.Tensor", &[x, zeros?])?;
        clamped(r, x)
    }),
    decompose("quantized_decomposed.quantize_per_token.default", |r| {
        let [x, scales, zeros] = operands(r, ["input", "scales", "zero_points"])?;
        let inverse = r.apply("aten.reciprocal.default", &[scales])?;
        let x = r.apply("aten.mul.Tensor", &[x, inverse])?;
        let x = r.apply("aten.add.Tensor", &[x, zeros])?;
        let x = r.apply("aten.round.default", &[x])?;
        clamped(r, x)
    }),
    decompose("quantized_decomposed.quantize_per_channel_group.default", |r| {
        let [x, scales, zeros] = operands(r, ["input", "scales", "zero_points"])?;
        let (x, sizes) = grouped(r, x)?;
        let (scales, zeros) = (column(r, scales)?, column(r, zeros)?);
        let inverse = r.apply("aten.reciprocal.default", &[scales])?;
        let x = r.apply("aten.mul.Tensor", &[x, inverse])?;
        let x = r.apply("aten.add.Tensor", &[x, zeros])?;
        let x = r.apply("aten.round.default", &[x])?;
        let x = clamped(r, x)?[0];
        Ok(vec![reshape(r, x, sizes)?])
    }),
    decompose("quantized_decomposed.dequantize_per_tensor.default", |r| {
        let (scale, zero) = (r.args().float("scale")?, r.args().float("zero_point")?);
        let (x, dtype) = (r.args().tensor("input")?.value, result_type(r, "out_dtype")?);
        let x = convert(r, x, dtype)?;
        let x = r.scalar("aten.sub.Scalar", x, zero)?;
        Ok(vec![r.scalar("aten.mul.Scalar", x, scale)?])
    }),
    decompose("quantized_decomposed.dequantize_per_tensor.tensor", |r| {
        let (x, dtype) = (r.args().tensor("input")?.value, result_type(r, "out_dtype")?);
        if dtype != Dtype::F32 {
            return Err(r.args().unsupported("results of another type than f32"));
        }
        let (scale, zero) = (number(r, "scale", dtype)?, number(r, "zero_point", dtype)?);
        let x = convert(r, x, dtype)?;
        let x = r.apply("aten.sub.Tensor", &[x, zero])?;
        Ok(vec![r.apply("aten.mul.Tensor", &[x, scale])?])
    }),
    decompose("quantized_decomposed.dequantize_per_channel.default", |r| {
        let (mut x, dtype) = (r.args().tensor("input")?.value, result_type(r, "out_dtype")?);
        let scales = by_channel(r, "scales")?;
        if r.args().has("zero_points") {
            let zeros = by_channel(r, "zero_points")?;
            x = r.apply("aten.sub.Tensor", &[x, zeros])?;
        }
        let x = r.apply("aten.mul.Tensor", &[x, scales])?;
        Ok(vec![convert(r, x, dtype)?])
    }),
    decompose("quantized_decomposed.dequantize_per_token.default", |r| {
        let [x, scales, zeros] = operands(r, ["input", "scales", "zero_points"])?;
        let dtype = result_type(r, "output_dtype")?;
        let x = r.apply("aten.sub.Tensor", &[x, zeros])?;
        let x = r.apply("aten.mul.Tensor", &[x, scales])?;
        Ok(vec![convert(r, x, dtype)?])
    }),
    decompose("quantized_decomposed.dequantize_per_channel_group.default", |r| {
        let [x, scales] = operands(r, ["input", "scales"])?;
        let dtype = result_type(r, "output_dtype")?;
        let (mut x, sizes) = grouped(r, x)?;
        if r.args().has("zero_points") {
            let [zeros] = operands(r, ["zero_points"])?;
            let zeros = column(r, zeros)?;
            x = r.apply("aten.sub.Tensor", &[x, zeros])?;
        }
        let scales = column(r, scales)?;
        let x = r.apply("aten.mul.Tensor", &[x, scales])?;
        let x = reshape(r, x, sizes)?;
        Ok(vec![convert(r, x, dtype)?])
    }),
    decompose("quantized_decomposed.choose_qparams.tensor", |r| {
        let [low, high] = extremes(r, None)?;
        let (least, most) = levels(r)?;
        let range = r.apply("aten.sub.Tensor", &[high, low])?;
        let scale = r.scalar("aten.div.Scalar", range, most - least)?;
        let scale = at_least_eps(r, scale)?;
        let steps = r.apply("aten.div.Tensor", &[low, scale])?;
        let steps = r.apply("aten.round.default", &[steps])?;
        let zero = r.apply("aten.neg.default", &[steps])?;
        let zero = r.scalar("aten.add.Scalar", zero, least)?;
        let zero = clamp(r, zero, least, most)?;
        parameters(r, scale, zero)
    }),
    decompose("quantized_decomposed.choose_qparams_symmetric.tensor", |r| {
        let [low, high] = extremes(r, None)?;
        let (least, most) = levels(r)?;
        let low = r.apply("aten.neg.default", &[low])?;
        let largest = r.apply("aten.maximum.default", &[low, high])?;
        let scale = r.scalar("aten.div.Scalar", largest, (most - least) / 2.0)?;
        let scale = at_least_eps(r, scale)?;
        let middle = if r.args().dtype("dtype")? == Some(Dtype::U8) { 128.0 } else { 0.0 };
        let none = r.scalar("aten.mul.Scalar", scale, 0.0)?;
        let zero = r.scalar("aten.add.Scalar", none, middle)?;
        parameters(r, scale, zero)
    }),
    decompose("quantized_decomposed.choose_qparams_per_token_asymmetric.default", by_token),
    decompose("quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default", by_token),
    decompose("aten._weight_int8pack_mm.default", |r| {
        let [x, w, scales] = operands(r, ["self", "mat2", "scales"])?;
        let (dtype, columns) = (r.ty(x)?.dtype, r.ty(w)?.sizes.first().copied().unwrap_or_else(Expr::zero));
        r.args().of_types("self", &[Dtype::F32, Dtype::F16, Dtype::BF16])?;
        r.args().of_types("mat2", &[Dtype::I8])?;
        r.require(|cx, args| vector_of(cx, args, "scales", columns))?;
        // Sums are scaled before they are rounded.
        let y = product(r, x, w)?;
        let scales = convert(r, scales, Dtype::F32)?;
        let y = r.apply("aten.mul.Tensor", &[y, scales])?;
        Ok(vec![convert(r, y, dtype)?])
    }),
    decompose("aten._weight_int4pack_mm_for_cpu.default", |r| {
        let [x, packed, parameters] = operands(r, ["self", "mat2", "qScaleAndZeros"])?;
        r.args().of_types("self", &[Dtype::F32, Dtype::F16, Dtype::BF16])?;
        r.args().of_types("mat2", &[Dtype::U8])?;
        let group = r.args().literal("qGroupSize")?;
        let (dtype, [columns, half]) = (r.ty(x)?.dtype, extents(r, packed)?);
        let terms = 2 * half;
        if group < 1 || terms % group != 0 {
            return Err(r.args().bad("qGroupSize", "a divisor of the number of columns"));
        }
        let levels = unpacked(r, packed, columns, terms)?;
        let levels = reshape(r, levels, ints(&[columns, terms / group, group]))?;
        let levels = convert(r, levels, Dtype::F32)?;
        let levels = r.scalar("aten.sub.Scalar", levels, 8.0)?;
        // [group, column, scale or zero] to one of each for a column's group.
        let [scales, zeros] = [0, 1].map(|at| -> Result<Value, OpError> {
            let one = select(r, parameters, 2, at)?;
            let one = convert(r, one, Dtype::F32)?;
            let one = r.apply("aten.t.default", &[one])?;
            reshape(r, one, ints(&[columns, terms / group, 1]))
        });
        let w = r.apply("aten.mul.Tensor", &[levels, scales?])?;
        let w = r.apply("aten.add.Tensor", &[w, zeros?])?;
        let w = reshape(r, w, ints(&[columns, terms]))?;
        let y = product(r, x, w)?;
        Ok(vec![convert(r, y, dtype)?])
    }),
    decompose("aten._convert_weight_to_int4pack_for_cpu.default", |r| {
        let [levels] = operands(r, ["self"])?;
        let [columns, terms] = extents(r, levels)?;
        if terms % 2 != 0 || columns % 16 != 0 {
            return Err(r.args().invalid("expected an even number of columns, and rows in groups of 16"));
        }
        let levels = convert(r, levels, Dtype::U8)?;
        Ok(vec![packed(r, levels, columns, terms)?])
    }),
];

/// Rows of a weight that are packed together: a byte has a level of row `i` and of row `i + 32`, and the bytes of 32 such
/// pairs are side by side, as PyTorch packs them on processors with AVX-512.
const BLOCK: i64 = 64;

/// The levels of a packed weight: `[column, term]`.
fn unpacked(r: &mut Rewriter<'_>, packed: Value, columns: i64, terms: i64) -> Result<Value, OpError> {
    let blocks = columns / BLOCK;
    let mut parts = Vec::new();
    if blocks > 0 {
        let bytes = rows(r, packed, 0, blocks * BLOCK)?;
        let bytes = reshape(r, bytes, ints(&[blocks, terms, BLOCK / 2]))?;
        let both = halves(r, bytes, 1)?;
        let levels = permute(r, both, &[0, 1, 3, 2])?;
        parts.push(reshape(r, levels, ints(&[blocks * BLOCK, terms]))?);
    }
    // Of the last ones, two neighbours share a byte.
    let rest = columns - blocks * BLOCK;
    if rest > 0 {
        let bytes = rows(r, packed, blocks * BLOCK, columns)?;
        let bytes = reshape(r, bytes, ints(&[terms, rest / 2]))?;
        let both = halves(r, bytes, 2)?;
        let levels = reshape(r, both, ints(&[terms, rest]))?;
        parts.push(r.apply("aten.t.default", &[levels])?);
    }
    joined(r, &parts)
}

/// A weight `[column, term]` of levels, packed.
fn packed(r: &mut Rewriter<'_>, levels: Value, columns: i64, terms: i64) -> Result<Value, OpError> {
    let blocks = columns / BLOCK;
    let mut parts = Vec::new();
    if blocks > 0 {
        let block = rows(r, levels, 0, blocks * BLOCK)?;
        let block = reshape(r, block, ints(&[blocks, 2, BLOCK / 2, terms]))?;
        let block = permute(r, block, &[0, 1, 3, 2])?;
        let bytes = bytes(r, block, 1)?;
        parts.push(reshape(r, bytes, ints(&[blocks * BLOCK, terms / 2]))?);
    }
    let rest = columns - blocks * BLOCK;
    if rest > 0 {
        let last = rows(r, levels, blocks * BLOCK, columns)?;
        let last = r.apply("aten.t.default", &[last])?;
        let last = reshape(r, last, ints(&[terms, rest / 2, 2]))?;
        let bytes = bytes(r, last, 2)?;
        parts.push(reshape(r, bytes, ints(&[rest, terms / 2]))?);
    }
    joined(r, &parts)
}

/// The lower and the upper half of each byte, along another dimension.
fn halves(r: &mut Rewriter<'_>, bytes: Value, dim: i64) -> Result<Value, OpError> {
    let low = r.call("aten.__and__.Scalar", [Arg::Value(bytes), Arg::Int(Expr::int(15))])?;
    let high = r.call("aten.__rshift__.Scalar", [Arg::Value(bytes), Arg::Int(Expr::int(4))])?;
    r.call(
        "aten.stack.default",
        [Arg::List(vec![Arg::Value(low), Arg::Value(high)]), Arg::Int(Expr::int(dim))],
    )
}

/// The bytes whose halves lie along a dimension.
fn bytes(r: &mut Rewriter<'_>, halves: Value, dim: i64) -> Result<Value, OpError> {
    let [low, high] = [select(r, halves, dim, 0)?, select(r, halves, dim, 1)?];
    let high = r.call("aten.__lshift__.Scalar", [Arg::Value(high), Arg::Int(Expr::int(4))])?;
    r.apply("aten.__or__.Tensor", &[low, high])
}

fn joined(r: &mut Rewriter<'_>, parts: &[Value]) -> Result<Value, OpError> {
    match parts {
        [one] => Ok(*one),
        _ => {
            let parts = parts.iter().map(|&part| Arg::Value(part)).collect();
            r.call("aten.cat.default", [Arg::List(parts), Arg::Int(Expr::zero())])
        }
    }
}

/// `x @ w^T` in f32.
fn product(r: &mut Rewriter<'_>, x: Value, w: Value) -> Result<Value, OpError> {
    let [x, w] = [convert(r, x, Dtype::F32)?, convert(r, w, Dtype::F32)?];
    let w = r.apply("aten.t.default", &[w])?;
    r.apply("aten.mm.default", &[x, w])
}

/// The two extents of a matrix, as numbers.
fn extents(r: &Rewriter<'_>, x: Value) -> Result<[i64; 2], OpError> {
    match r.ty(x)?.sizes[..] {
        [a, b] => a.as_int().zip(b.as_int()).map(|(a, b)| [a, b]),
        _ => None,
    }
    .ok_or_else(|| r.args().unsupported("weights that are no matrix of known extents"))
}

/// Scale and zero point for each row, such that both ends of it, and zero, are levels.
fn by_token(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let [low, high] = extremes(r, Some(-1))?;
    let (least, most) = (-128.0, 127.0);
    let range = r.apply("aten.sub.Tensor", &[high, low])?;
    let scale = r.scalar("aten.div.Scalar", range, most - least)?;
    let scale = r.scalar("aten.clamp_min.default", scale, f64::from(f32::EPSILON))?;
    let [low, high] = [low, high].map(|end| r.apply("aten.div.Tensor", &[end, scale]));
    let (low, high) = (low?, high?);
    let errors = [r.scalar("aten.add.Scalar", low, least)?, r.scalar("aten.add.Scalar", high, most)?];
    let sum = r.apply("aten.add.Tensor", &errors)?;
    let is_from_low = r.scalar("aten.gt.Scalar", sum, 0.0)?;
    let mut from = Vec::new();
    for (end, level) in [(low, least), (high, most)] {
        let negative = r.apply("aten.neg.default", &[end])?;
        from.push(r.scalar("aten.add.Scalar", negative, level)?);
    }
    let zero = r.apply("aten.where.self", &[is_from_low, from[0], from[1]])?;
    let zero = clamp(r, zero, least, most)?;
    let zero = r.apply("aten.round.default", &[zero])?;
    Ok(vec![convert(r, scale, Dtype::F64)?, convert(r, zero, Dtype::I64)?])
}

/// The smallest and the largest of the elements, or of those along a dimension, and of zero.
fn extremes(r: &mut Rewriter<'_>, dim: Option<i64>) -> Result<[Value; 2], OpError> {
    let [x] = operands(r, ["input"])?;
    let dims: Vec<Expr> = dim.map(Expr::int).into_iter().collect();
    let ends = ["aten.amin.default", "aten.amax.default"]
        .map(|op| r.call(op, [Arg::Value(x), Arg::ints(dims.clone()), Arg::Bool(dim.is_some())]));
    let [low, high] = ends;
    let (low, high) = (low?, high?);
    Ok([r.scalar("aten.clamp_max.default", low, 0.0)?, r.scalar("aten.clamp_min.default", high, 0.0)?])
}

/// No less than the argument `eps`, which is rounded to f32.
fn at_least_eps(r: &mut Rewriter<'_>, scale: Value) -> Result<Value, OpError> {
    let eps = f64::from(r.args().float("eps")? as f32);
    let scale = convert(r, scale, Dtype::F32)?;
    r.scalar("aten.clamp_min.default", scale, eps)
}

/// Scale and zero point as vectors of one element.
fn parameters(r: &mut Rewriter<'_>, scale: Value, zero: Value) -> Result<Vec<Value>, OpError> {
    let mut vectors = Vec::new();
    for (value, dtype) in [(scale, Dtype::F64), (zero, Dtype::I64)] {
        let value = convert(r, value, dtype)?;
        vectors.push(reshape(r, value, ints(&[1]))?);
    }
    Ok(vectors)
}

/// The input, in f32 where it is of a half type.
fn single(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    r.args().of_types("input", &[Dtype::F32, Dtype::F16, Dtype::BF16])?;
    let x = r.args().tensor("input")?.value;
    convert(r, x, Dtype::F32)
}

/// Levels as integers of the type that is asked for.
fn clamped(r: &mut Rewriter<'_>, x: Value) -> Result<Vec<Value>, OpError> {
    let (least, most) = levels(r)?;
    let x = clamp(r, x, least, most)?;
    let dtype = r.args().dtype("dtype")?.ok_or_else(|| r.args().bad("dtype", "a type of integers"))?;
    Ok(vec![convert(r, x, dtype)?])
}

fn clamp(r: &mut Rewriter<'_>, x: Value, least: f64, most: f64) -> Result<Value, OpError> {
    let x = r.scalar("aten.clamp_min.default", x, least)?;
    r.scalar("aten.clamp_max.default", x, most)
}

/// The smallest and the largest level.
fn levels(r: &Rewriter<'_>) -> Result<(f64, f64), OpError> {
    Ok((r.args().float("quant_min")?, r.args().float("quant_max")?))
}

/// The type that an argument asks for, or f32.
fn result_type(r: &Rewriter<'_>, name: &str) -> Result<Dtype, OpError> {
    Ok(r.args().dtype(name)?.unwrap_or(Dtype::F32))
}

/// A tensor of one element as a number.
fn number(r: &mut Rewriter<'_>, name: &str, dtype: Dtype) -> Result<Value, OpError> {
    let x = r.args().tensor(name)?.value;
    let x = convert(r, x, dtype)?;
    reshape(r, x, Vec::new())
}

/// A vector along the argument `axis` of the input.
fn by_channel(r: &mut Rewriter<'_>, name: &str) -> Result<Value, OpError> {
    let (x, vector) = (r.args().tensor("input")?.ty.clone(), r.args().tensor(name)?.value);
    let axis = r.args().dim("axis", x.rank())?;
    let Some(&channels) = x.sizes.get(axis) else {
        return Err(r.args().invalid("a zero-dimensional tensor has no channels"));
    };
    let of = |cx: &mut crate::infer::InferCx<'_>, args: &Args<'_>| vector_of(cx, args, name, channels);
    r.require(of)?;
    let mut sizes = vec![Expr::one(); x.rank()];
    sizes[axis] = channels;
    reshape(r, vector, sizes)
}

/// A matrix as rows of a group each, and its sizes.
fn grouped(r: &mut Rewriter<'_>, x: Value) -> Result<(Value, Vec<Expr>), OpError> {
    let sizes = r.ty(x)?.sizes;
    let [_, length] = sizes[..] else { return Err(r.args().invalid("expected a matrix")) };
    let mut group = r.args().literal("group_size")?;
    if let Some(length) = length.as_int() {
        group = group.min(length);
    }
    if group < 1 {
        return Err(r.args().bad("group_size", "at least 1"));
    }
    Ok((reshape(r, x, ints(&[-1, group]))?, sizes.to_vec()))
}

/// A tensor as a column.
fn column(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    reshape(r, x, ints(&[-1, 1]))
}

fn rows(r: &mut Rewriter<'_>, x: Value, start: i64, end: i64) -> Result<Value, OpError> {
    let range = [0, start, end].map(|n| Arg::Int(Expr::int(n)));
    r.call("aten.slice.Tensor", [Arg::Value(x)].into_iter().chain(range))
}

fn select(r: &mut Rewriter<'_>, x: Value, dim: i64, at: i64) -> Result<Value, OpError> {
    r.call("aten.select.int", [Arg::Value(x), Arg::Int(Expr::int(dim)), Arg::Int(Expr::int(at))])
}

fn permute(r: &mut Rewriter<'_>, x: Value, order: &[i64]) -> Result<Value, OpError> {
    r.call("aten.permute.default", [Arg::Value(x), Arg::ints(ints(order))])
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

fn ints(numbers: &[i64]) -> Vec<Expr> {
    numbers.iter().map(|&n| Expr::int(n)).collect()
}

fn operands<const N: usize>(r: &Rewriter<'_>, names: [&str; N]) -> Result<[Value; N], OpError> {
    let mut values = Vec::with_capacity(N);
    for name in names {
        values.push(r.args().tensor(name)?.value);
    }
    values.try_into().map_err(|_| r.args().invalid("expected tensors"))
}
