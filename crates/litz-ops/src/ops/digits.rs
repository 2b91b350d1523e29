//! Lowers operators on the digits of floating-point numbers, and matrices that have a vector along a diagonal.

use crate::args::Args;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::pointwise_strides;
use crate::lower::Lower;
use litz_ir::graph::{TensorType, Type};
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.frexp.Tensor", parts_types, parts),
    lower("aten.diag_embed.default", embedded_type, embedded),
];

/// A fraction of the operand's type, and an exponent of i32.
fn parts_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?;
    if !x.ty.dtype.is_float() {
        return Err(args.invalid(format!("expected floating-point elements, found {}", x.ty)));
    }
    let strides = pointwise_strides(cx.facts, &[x], &x.ty.sizes);
    let fraction = TensorType { strides, ..x.ty.clone() };
    let exponent = TensorType { dtype: Dtype::I32, ..fraction.clone() };
    Ok(vec![Type::Tensor(fraction), Type::Tensor(exponent)])
}

/// `x = fraction * 2^exponent` with a fraction from a half to 1, by the bits of the number. Zeros, infinities and NaN are
/// their own fractions.
fn parts(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let (fractions, exponents) = (lw.result(args, 0), lw.result(args, 1));
    let compute = x.dtype.compute();
    // Bits of the number, digits behind the point, the exponent of a half, and powers that lift what is not normal.
    let (bits, digits, half, lift) =
        if compute == Dtype::F64 { (Dtype::I64, 52, 1022_i64, 64) } else { (Dtype::I32, 23, 126, 32) };
    let mask = (1_i64 << (if compute == Dtype::F64 { 11 } else { 8 })) - 1;
    lw.nest(&x.sizes.clone(), |b, at| {
        let v = b.read_as(&x, at, compute);
        let (zero, inf, size) = (b.lit(v, 0.0), b.lit(v, f64::INFINITY), b.abs(v));
        let smallest =
            b.lit(v, if compute == Dtype::F64 { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) });
        let (is_small, factor) = (b.lt(size, smallest), b.lit(v, 2f64.powi(lift)));
        let lifted = b.mul(v, factor);
        let normal = b.select(is_small, lifted, v);
        let word = b.bitcast(normal, bits);
        let int = |b: &mut crate::body::Body<'_>, i: i64| b.literal(Scalar::Int(i), bits);
        let (shift, low, bias) = (int(b, digits), int(b, mask), int(b, half));
        let shifted = b.op(ScalarOp::Shr, &[word, shift]);
        let field = b.op(ScalarOp::And, &[shifted, low]);
        let exponent = b.sub(field, bias);
        let (down, none) = (int(b, i64::from(lift)), int(b, 0));
        let taken = b.select(is_small, down, none);
        let exponent = b.sub(exponent, taken);
        let (own, new) = (int(b, !(mask << digits)), int(b, half << digits));
        let kept = b.op(ScalarOp::And, &[word, own]);
        let word = b.op(ScalarOp::Or, &[kept, new]);
        let fraction = b.bitcast(word, compute);
        // Comparisons with NaN fail.
        let finite = b.lt(size, inf);
        let nonzero = b.gt(size, zero);
        let has_parts = b.and(finite, nonzero);
        if let Some(fractions) = &fractions {
            let fraction = b.select(has_parts, fraction, v);
            b.store(fractions, at, fraction);
        }
        if let Some(exponents) = &exponents {
            let exponent = b.select(has_parts, exponent, none);
            b.store(exponents, at, exponent);
        }
        Ok(())
    })
}

/// Where the vector's dimension goes: rank of the result, its two dimensions, and how far to the right and down it starts.
fn places(args: &Args<'_>) -> Result<(usize, [usize; 2], [i64; 2]), OpError> {
    let x = args.tensor("self")?.ty;
    let rank = x.rank() + 1;
    let (row, column, offset) = (args.dim("dim1", rank)?, args.dim("dim2", rank)?, args.literal("offset")?);
    if x.rank() == 0 || row == column {
        return Err(args.invalid(format!("expected two dimensions to put the last one of {x} across")));
    }
    Ok((rank, [row, column], [offset.max(0), (-offset).max(0)]))
}

fn embedded_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let (rank, [row, column], [right, down]) = places(args)?;
    let (Some(&length), mut others) = (x.sizes.last(), x.sizes[..x.rank() - 1].iter()) else {
        return Err(args.invalid("a number has no dimension to put across"));
    };
    let size = |d: usize| match d {
        d if d == row || d == column => Some(length + right + down),
        _ => others.next().copied(),
    };
    let sizes: Vec<Expr> = (0..rank).filter_map(size).collect();
    one(TensorType::contiguous(x.dtype, sizes))
}

/// The vector along a diagonal of zeros.
fn embedded(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let (_, [row, column], [right, down]) = places(args)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let mut coords: Vec<Expr> =
            (0..at.len()).filter(|&d| d != row && d != column).map(|d| at[d]).collect();
        let (i, j) = (at[row] - down, at[column] - right);
        coords.push(i);
        let v = b.load_if(&x, &coords, vec![Rel::eq(i, j), Rel::ge(i, 0)], Scalar::zero(x.dtype));
        b.store(&out, at, v);
        Ok(())
    })
}
