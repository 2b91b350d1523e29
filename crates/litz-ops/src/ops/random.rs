//! Lowers operators that make random numbers of a seed: the same numbers for any order and any number of threads.
//!
//! Element `i` of stream `s` is what Philox 4x32 with ten rounds makes of the counter `(i, s)` with the seed as its key
//! (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011). Elements are counted in row-major order. Streams are
//! the operators of one program: two of the same stream give the same numbers.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::not_negative;
use crate::lower::Lower;
use litz_ir::graph::{TensorType, Type, contiguous_strides};
use litz_ir::loops::Val;
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("litz.uniform.default", types, |lw, args| fill(lw, args, uniform)),
    lower("litz.normal.default", types, |lw, args| fill(lw, args, normal)),
    lower("litz.integers.default", integer_types, |lw, args| {
        let (low, high) = (args.int("low")?, args.int("high")?);
        fill(lw, args, |b, dtype, words| integer(b, dtype, words, low, high))
    }),
];

/// Factors of the two products of a round.
const FACTORS: [i64; 2] = [0xD251_1F53, 0xCD9E_8D57];
/// What keys grow by from round to round.
const STEPS: [i64; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;
const LOW: i64 = 0xFFFF_FFFF;

fn types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let dtype = args.dtype("dtype")?.unwrap_or(Dtype::F32);
    if !matches!(dtype, Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64) {
        return Err(args.unsupported(&format!("random numbers of type {dtype}")));
    }
    filled_type(cx, args, dtype)
}

/// The type holds every integer from `low` on and below `high`, of which there is one at least.
fn integer_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let dtype = args.dtype("dtype")?.unwrap_or(Dtype::I64);
    let (low, high) = (args.int("low")?, args.int("high")?);
    let (least, most) = match dtype {
        Dtype::Bool => (0, 1),
        Dtype::U8 => (0, i64::from(u8::MAX)),
        Dtype::I8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        Dtype::I16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Dtype::I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        Dtype::I64 => (i64::MIN, i64::MAX),
        // Up to here floats have all integers.
        Dtype::BF16 => (-(1 << 8), 1 << 8),
        Dtype::F16 => (-(1 << 11), 1 << 11),
        Dtype::F32 => (-(1 << 24), 1 << 24),
        Dtype::F64 => (-(1 << 53), 1 << 53),
        _ => return Err(args.unsupported(&format!("random integers of type {dtype}"))),
    };
    let outside = |_| args.invalid(format!("no integers from {low} to below {high} of type {dtype}"));
    cx.require(Rel::lt(low, high), args.op()).map_err(outside)?;
    if least > i64::MIN {
        cx.require(Rel::ge(low, least), args.op()).map_err(outside)?;
        cx.require(Rel::le(high, most + 1), args.op()).map_err(outside)?;
    }
    filled_type(cx, args, dtype)
}

fn filled_type(cx: &mut InferCx<'_>, args: &Args<'_>, dtype: Dtype) -> Result<Vec<Type>, OpError> {
    let seed = args.tensor("seed")?.ty;
    if seed.dtype != Dtype::I64 || seed.rank() != 0 {
        return Err(args.bad("seed", "one number of type i64"));
    }
    let stream = args.literal("stream")?;
    if !(0..=LOW).contains(&stream) {
        return Err(args.bad("stream", "a number of 32 bits"));
    }
    let sizes = args.ints("size")?;
    not_negative(cx, args, &sizes)?;
    one(TensorType::contiguous(dtype, sizes))
}

/// Stores what `number` makes of the words of each element.
fn fill(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    number: impl FnOnce(&mut Body<'_>, Dtype, &[Val; 4]) -> Val,
) -> Result<(), OpError> {
    let (seed, stream) = (lw.access(args.tensor("seed")?)?, args.literal("stream")?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    let strides = contiguous_strides(&out.sizes);
    lw.nest(&out.sizes, |b, at| {
        let place = at.iter().zip(&strides).fold(Expr::zero(), |sum, (&at, &stride)| sum + at * stride);
        let seed = b.load(&seed, &[]);
        let seed = b.cast(seed, Dtype::U64);
        let place = b.index(place, Dtype::U64);
        let words = philox(b, seed, place, stream);
        let value = number(b, out.dtype, &words);
        b.store(&out, at, value);
        Ok(())
    })
}

/// Four words of 32 bits, each in one of 64.
fn philox(b: &mut Body<'_>, seed: Val, place: Val, stream: i64) -> [Val; 4] {
    let [low, half] = [LOW, 32].map(|number| b.literal(Scalar::Int(number), Dtype::U64));
    let word = |b: &mut Body<'_>, value: Val| b.op(ScalarOp::And, &[value, low]);
    let high = |b: &mut Body<'_>, value: Val| b.op(ScalarOp::Shr, &[value, half]);
    let stream = b.literal(Scalar::Int(stream), Dtype::U64);
    let zero = b.literal(Scalar::Int(0), Dtype::U64);
    let mut counter = [word(b, place), high(b, place), stream, zero];
    let mut key = [word(b, seed), high(b, seed)];
    for round in 0..ROUNDS {
        if round > 0 {
            for (key, step) in key.iter_mut().zip(STEPS) {
                let step = b.literal(Scalar::Int(step), Dtype::U64);
                let next = b.op(ScalarOp::Add, &[*key, step]);
                *key = word(b, next);
            }
        }
        let products = [(0, FACTORS[0]), (2, FACTORS[1])].map(|(at, factor)| {
            let factor = b.literal(Scalar::Int(factor), Dtype::U64);
            b.op(ScalarOp::Mul, &[counter[at], factor])
        });
        let [high0, high1] = products.map(|product| high(b, product));
        let [low0, low1] = products.map(|product| word(b, product));
        let mixed0 = b.op(ScalarOp::Xor, &[high1, counter[1]]);
        let mixed1 = b.op(ScalarOp::Xor, &[high0, counter[3]]);
        counter =
            [b.op(ScalarOp::Xor, &[mixed0, key[0]]), low1, b.op(ScalarOp::Xor, &[mixed1, key[1]]), low0];
    }
    counter
}

/// A number in [0, 1) of as many digits as the type has, so that none is rounded to 1.
fn uniform(b: &mut Body<'_>, dtype: Dtype, words: &[Val; 4]) -> Val {
    let digits = match dtype {
        Dtype::BF16 => 8,
        Dtype::F16 => 11,
        Dtype::F64 => 53,
        _ => 24,
    };
    let compute = dtype.compute();
    let value = fraction(b, compute, digits, [words[0], words[1]], 0);
    b.cast(value, dtype)
}

/// An integer from `low` on and below `high`: 64 random bits, taken modulo the number of integers. One is as likely as another but for their
/// number in 2^64.
fn integer(b: &mut Body<'_>, dtype: Dtype, words: &[Val; 4], low: Expr, high: Expr) -> Val {
    let half = b.literal(Scalar::Int(32), Dtype::U64);
    let upper = b.op(ScalarOp::Shl, &[words[0], half]);
    let bits = b.op(ScalarOp::Or, &[upper, words[1]]);
    // Wraps around where there are more than 2^63.
    let (low, high) = (b.index(low, Dtype::U64), b.index(high, Dtype::U64));
    let count = b.sub(high, low);
    let rest = b.op(ScalarOp::Rem, &[bits, count]);
    let value = b.add(low, rest);
    let value = b.cast(value, Dtype::I64);
    b.cast(value, dtype)
}

/// The method of Box and Muller, with one of its two numbers.
fn normal(b: &mut Body<'_>, dtype: Dtype, words: &[Val; 4]) -> Val {
    let compute = dtype.compute();
    let digits = if compute == Dtype::F64 { 53 } else { 24 };
    // In (0, 1], which has a logarithm.
    let radius = fraction(b, compute, digits, [words[0], words[1]], 1);
    let angle = fraction(b, compute, digits, [words[2], words[3]], 0);
    let log = b.op(ScalarOp::Log, &[radius]);
    let (minus_two, turn) = (b.lit(log, -2.0), b.lit(log, std::f64::consts::TAU));
    let square = b.op(ScalarOp::Mul, &[log, minus_two]);
    let length = b.op(ScalarOp::Sqrt, &[square]);
    let turned = b.op(ScalarOp::Mul, &[angle, turn]);
    let cosine = b.op(ScalarOp::Cos, &[turned]);
    let value = b.op(ScalarOp::Mul, &[length, cosine]);
    b.cast(value, dtype)
}

/// `(n + offset) / 2^digits` of an integer `n` of so many random digits.
fn fraction(b: &mut Body<'_>, compute: Dtype, digits: u32, words: [Val; 2], offset: i64) -> Val {
    let shift = |b: &mut Body<'_>, op: ScalarOp, value: Val, by: u32| {
        let by = b.literal(Scalar::Int(i64::from(by)), Dtype::U64);
        b.op(op, &[value, by])
    };
    let number = if digits > 32 {
        let upper = shift(b, ScalarOp::Shl, words[0], 32);
        let both = b.op(ScalarOp::Or, &[upper, words[1]]);
        shift(b, ScalarOp::Shr, both, 64 - digits)
    } else {
        shift(b, ScalarOp::Shr, words[0], 32 - digits)
    };
    let offset = b.literal(Scalar::Int(offset), Dtype::U64);
    let number = b.op(ScalarOp::Add, &[number, offset]);
    let number = b.cast(number, compute);
    let unit = b.lit(number, 0.5f64.powi(digits as i32));
    b.op(ScalarOp::Mul, &[number, unit])
}
