//! Lowers what makes complex numbers of their parts and takes them apart: all that kernels do with them but moving them.
//!
//! A complex number of two f32 is 64 bits, of which the lower half is the real part. Arithmetic is that of the parts
//! ([`crate::complex`]).

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, decompose, lower, one};
use crate::error::OpError;
use crate::infer::{InferCx, first_tensor};
use crate::layout::{broadcast, is_overlapping, pointwise_strides, preserved_strides};
use crate::lower::Lower;
use crate::promote::{complex_of, real_of};
use crate::traits::Complex;
use crate::traits::Holds::{Always, When};
use crate::view::ValueAccess;
use litz_ir::dtype::Kind;
use litz_ir::graph::{TensorType, Type};
use litz_ir::loops::Val;
use litz_ir::schema::Effect;
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.view_as_real.default", pairs_type, pairs).alias(When(always)).complex(Complex::Lowered),
    lower("aten.view_as_complex.default", of_pairs_type, of_pairs)
        .alias(When(always))
        .complex(Complex::Lowered),
    lower("aten.complex.default", of_parts_type, |lw, args| {
        let parts = [lw.access(args.tensor("real")?)?, lw.access(args.tensor("imag")?)?];
        of_parts(lw, args, 0, &parts)
    })
    .complex(Complex::Lowered),
    lower("aten.real.default", real_type, |lw, args| part(lw, args, Part::Real))
        .identity(Always)
        .alias(When(always))
        .complex(Complex::Lowered),
    lower("aten.imag.default", imaginary_type, |lw, args| part(lw, args, Part::Imaginary))
        .alias(When(always))
        .complex(Complex::Lowered),
    decompose("aten.polar.default", |r| {
        let (radius, angle) = (r.args().tensor("abs")?.value, r.args().tensor("angle")?.value);
        let (cos, sin) = (r.apply("aten.cos.default", &[angle])?, r.apply("aten.sin.default", &[angle])?);
        let parts =
            [r.apply("aten.mul.Tensor", &[radius, cos])?, r.apply("aten.mul.Tensor", &[radius, sin])?];
        Ok(vec![r.apply("aten.complex.default", &parts)?])
    })
    .complex(Complex::Rewritten),
    // Real numbers are their own conjugates.
    lower("aten._conj.default", same_type, real_itself).identity(When(is_real)).alias(When(always)),
    lower("aten.conj.default", same_type, real_itself).identity(When(is_real)).alias(When(always)),
    lower("aten._conj_physical.default", same_type, real_itself).identity(When(is_real)),
    lower("aten.conj_physical.default", same_type, real_itself)
        .identity(When(is_real))
        .alias(When(is_real))
        .effect(Effect::None),
];

/// A part of a complex number.
#[derive(Clone, Copy)]
enum Part {
    Real,
    Imaginary,
}

fn complex<'a>(args: &Args<'a>) -> Result<&'a TensorType, OpError> {
    match first_tensor(args)? {
        ty if ty.dtype.kind() == Kind::Complex => Ok(ty),
        ty => Err(args.invalid(format!("expected complex numbers, found {ty}"))),
    }
}

/// Results are in the operand's memory, which lowering reads anew.
fn always(_: &mut InferCx<'_>, _: &Args<'_>) -> Result<bool, OpError> {
    Ok(true)
}

fn is_real(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<bool, OpError> {
    Ok(first_tensor(args)?.dtype.kind() != Kind::Complex)
}

/// The type of a part of each number, where it is in memory.
fn part_type(ty: &TensorType) -> TensorType {
    let strides = ty.strides.iter().map(|&stride| stride * 2).collect();
    TensorType { dtype: real_of(ty.dtype), strides, ..ty.clone() }
}

/// Where elements of the operand share memory, new ones do not.
fn same_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let mut ty = first_tensor(args)?.clone();
    if ty.dtype.kind() == Kind::Complex && is_overlapping(cx.facts, &ty) {
        ty.strides = preserved_strides(cx.facts, &ty);
    }
    one(ty)
}

fn real_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let ty = first_tensor(args)?;
    one(if ty.dtype.kind() == Kind::Complex { part_type(ty) } else { ty.clone() })
}

fn imaginary_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    one(part_type(complex(args)?))
}

fn pairs_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let mut ty = part_type(complex(args)?);
    ty.sizes.push(Expr::int(2));
    ty.strides.push(Expr::one());
    one(ty)
}

/// Two numbers that lie side by side, at an even place, become one.
fn of_pairs_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let ty = first_tensor(args)?;
    let dtype = of_real(args, ty.dtype)?;
    let ([sizes @ .., pair], [strides @ .., step]) = (ty.sizes.as_slice(), ty.strides.as_slice()) else {
        return Err(args.invalid("a tensor without dimensions has no pairs"));
    };
    let refused =
        |_| args.invalid(format!("expected pairs that lie side by side at even places, found {ty}"));
    let even = strides.iter().map(|stride| Rel::eq(stride.modulo(2), 0));
    for rel in [Rel::eq(*pair, 2), Rel::eq(*step, 1)].into_iter().chain(even) {
        cx.require(rel, args.op()).map_err(refused)?;
    }
    let strides = strides.iter().map(|stride| cx.simplify(stride.floordiv(2))).collect();
    one(TensorType::strided(dtype, sizes.to_vec(), strides))
}

fn of_parts_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let parts = [args.tensor("real")?, args.tensor("imag")?];
    let [real, imag] = parts.map(|part| part.ty.dtype);
    if real != imag {
        return Err(args.invalid(format!("expected parts of one element type, found {real} and {imag}")));
    }
    let dtype = of_real(args, real)?;
    let sizes = broadcast(cx, &parts.map(|part| part.ty.sizes.as_slice()), args.op())?;
    let strides = pointwise_strides(cx.facts, &parts, &sizes);
    one(TensorType::strided(dtype, sizes, strides))
}

/// The complex type whose parts are of a type.
fn of_real(args: &Args<'_>, dtype: Dtype) -> Result<Dtype, OpError> {
    match dtype {
        Dtype::F32 | Dtype::F64 => Ok(complex_of(dtype)),
        Dtype::F16 => Err(args.unsupported("complex numbers of two f16")),
        _ => Err(args.invalid(format!("there are no complex numbers of {dtype}"))),
    }
}

/// What a number of two f32 has at a place of its 64 bits.
fn bits_from(b: &mut Body<'_>, number: Val, place: Expr) -> Val {
    let bits = b.bitcast(number, Dtype::U64);
    let bits = if place.is_zero() {
        bits
    } else {
        let by = b.index(place, Dtype::U64);
        b.op(ScalarOp::Shr, &[bits, by])
    };
    let half = b.cast(bits, Dtype::U32);
    b.bitcast(half, Dtype::F32)
}

/// The number whose parts these are.
fn number_of(b: &mut Body<'_>, parts: [Val; 2]) -> Val {
    let [low, high] = parts.map(|part| {
        let bits = b.bitcast(part, Dtype::U32);
        b.cast(bits, Dtype::U64)
    });
    let by = b.literal(Scalar::Int(32), Dtype::U64);
    let high = b.op(ScalarOp::Shl, &[high, by]);
    let bits = b.op(ScalarOp::Or, &[low, high]);
    b.bitcast(bits, Dtype::C64)
}

/// Registers hold numbers of two f32.
fn held(args: &Args<'_>, access: &ValueAccess) -> Result<(), OpError> {
    match access.dtype {
        Dtype::C64 | Dtype::F32 => Ok(()),
        dtype => Err(args.unsupported(&format!("element type {dtype}"))),
    }
}

fn part(lw: &mut Lower<'_>, args: &Args<'_>, part: Part) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    if x.dtype.kind() != Kind::Complex {
        lw.set_result(args, 0, x);
        return Ok(());
    }
    held(args, &x)?;
    let place = match part {
        Part::Real => Expr::zero(),
        Part::Imaginary => Expr::int(32),
    };
    let out = lw.temp("part", Dtype::F32, &x.sizes);
    lw.nest(&out.sizes, |b, at| {
        let number = b.load(&x, at);
        let found = bits_from(b, number, place);
        b.store(&out, at, found);
        Ok(())
    })?;
    lw.set_result(args, 0, out);
    Ok(())
}

fn pairs(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    held(args, &x)?;
    let sizes = [x.sizes.as_slice(), &[Expr::int(2)]].concat();
    let out = lw.temp("pairs", Dtype::F32, &sizes);
    lw.nest(&sizes, |b, at| {
        let number = b.load(&x, &at[..at.len() - 1]);
        let found = bits_from(b, number, at[at.len() - 1] * 32);
        b.store(&out, at, found);
        Ok(())
    })?;
    lw.set_result(args, 0, out);
    Ok(())
}

fn of_pairs(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    held(args, &x)?;
    let out = lw.temp("numbers", Dtype::C64, &x.sizes[..x.rank() - 1]);
    lw.nest(&out.sizes, |b, at| {
        let parts = [0, 1].map(|place| b.load(&x, &[at, &[Expr::int(place)]].concat()));
        let number = number_of(b, parts);
        b.store(&out, at, number);
        Ok(())
    })?;
    lw.set_result(args, 0, out);
    Ok(())
}

/// Makes a result of its parts, which are broadcast.
pub(crate) fn of_parts(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    i: usize,
    parts: &[ValueAccess; 2],
) -> Result<(), OpError> {
    let Some(out) = lw.result(args, i) else { return Ok(()) };
    parts.iter().try_for_each(|part| held(args, part))?;
    let sizes = out.sizes.clone();
    lw.nest(&sizes, |b, at| {
        let parts = [0, 1].map(|i: usize| b.load(&parts[i].broadcast(&sizes), at));
        let number = number_of(b, parts);
        b.store(&out, at, number);
        Ok(())
    })
}

/// The operand, whose elements are real: conjugating others has been written with their parts before.
fn real_itself(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    if x.dtype.kind() == Kind::Complex {
        return Err(args.unsupported(&format!("element type {}", x.dtype)));
    }
    lw.set_result(args, 0, x);
    Ok(())
}
