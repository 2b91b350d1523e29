//! Computes Python's numbers that are known at run time only: what a model makes, by Python's arithmetic, of sizes and of the
//! numbers that `item` gives.
//!
//! Floats are of 64 bits, integers too. A call fails where Python's function raises an error: of a division by zero, or of a
//! result that is no number of its type.

use crate::args::Args;
use crate::body::Body;
use crate::def::{OpDef, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::lower::Lower;
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, Type};
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};

/// Entries.
pub const OPS: &[OpDef] = &[
    arithmetic("_operator.add", |lw, args| same(lw, args, ScalarOp::Add)),
    arithmetic("_operator.sub", |lw, args| same(lw, args, ScalarOp::Sub)),
    arithmetic("_operator.mul", |lw, args| same(lw, args, ScalarOp::Mul)),
    arithmetic("_operator.neg", |lw, args| same(lw, args, ScalarOp::Neg)),
    arithmetic("_operator.pos", |lw, args| compute(lw, args, Kind::Int, |_, x| x[0])),
    arithmetic("_operator.abs", |lw, args| same(lw, args, ScalarOp::Abs)),
    arithmetic("_operator.floordiv", |lw, args| quotient(lw, args, Kind::Int, ScalarOp::FloorDiv)),
    arithmetic("_operator.mod", |lw, args| quotient(lw, args, Kind::Int, ScalarOp::Mod)),
    arithmetic("_operator.pow", power),
    floats("_operator.truediv", |lw, args| quotient(lw, args, Kind::Float, ScalarOp::Div)),
    arithmetic("_operator.lshift", |lw, args| shift(lw, args, ScalarOp::Shl)),
    arithmetic("_operator.rshift", |lw, args| shift(lw, args, ScalarOp::Shr)),
    common("_operator.and_", |lw, args| chosen(lw, args, ScalarOp::And)),
    common("_operator.or_", |lw, args| chosen(lw, args, ScalarOp::Or)),
    common("_operator.xor", |lw, args| chosen(lw, args, ScalarOp::Xor)),
    truth("_operator.eq", |lw, args| same(lw, args, ScalarOp::Eq)),
    truth("_operator.ne", |lw, args| same(lw, args, ScalarOp::Ne)),
    truth("_operator.lt", |lw, args| same(lw, args, ScalarOp::Lt)),
    truth("_operator.le", |lw, args| same(lw, args, ScalarOp::Le)),
    truth("_operator.gt", |lw, args| same(lw, args, ScalarOp::Gt)),
    truth("_operator.ge", |lw, args| same(lw, args, ScalarOp::Ge)),
    truth("torch.sym_not", |lw, args| {
        compute(lw, args, Kind::Bool, |b, x| {
            let no = b.lit(x[0], 0.0);
            b.eq(x[0], no)
        })
    }),
    common("torch.sym_max", |lw, args| larger(lw, args, ScalarOp::Gt)),
    common("torch.sym_min", |lw, args| larger(lw, args, ScalarOp::Lt)),
    common("torch.sym_ite", if_else),
    floats("torch.sym_float", |lw, args| compute(lw, args, Kind::Float, |_, x| x[0])),
    floats("torch._sym_sqrt", |lw, args| of_float(lw, args, ScalarOp::Sqrt)),
    floats("torch._sym_cos", |lw, args| of_float(lw, args, ScalarOp::Cos)),
    floats("torch._sym_cosh", |lw, args| of_float(lw, args, ScalarOp::Cosh)),
    floats("torch._sym_sin", |lw, args| of_float(lw, args, ScalarOp::Sin)),
    floats("torch._sym_sinh", |lw, args| of_float(lw, args, ScalarOp::Sinh)),
    floats("torch._sym_tan", |lw, args| of_float(lw, args, ScalarOp::Tan)),
    floats("torch._sym_tanh", |lw, args| of_float(lw, args, ScalarOp::Tanh)),
    floats("torch._sym_asin", |lw, args| of_float(lw, args, ScalarOp::Asin)),
    floats("torch._sym_acos", |lw, args| of_float(lw, args, ScalarOp::Acos)),
    floats("torch._sym_atan", |lw, args| of_float(lw, args, ScalarOp::Atan)),
    floats("torch._sym_asinh", |lw, args| of_float(lw, args, ScalarOp::Asinh)),
    floats("torch._sym_exp", |lw, args| of_float(lw, args, ScalarOp::Exp)),
    floats("torch._sym_log", |lw, args| of_float(lw, args, ScalarOp::Log)),
    floats("torch._sym_log2", |lw, args| of_float(lw, args, ScalarOp::Log2)),
    integer("torch.sym_int", |lw, args| rounded(lw, args, ScalarOp::Trunc)),
    integer("math.trunc", |lw, args| rounded(lw, args, ScalarOp::Trunc)),
    integer("math.floor", |lw, args| rounded(lw, args, ScalarOp::Floor)),
    integer("math.ceil", |lw, args| rounded(lw, args, ScalarOp::Ceil)),
    lower(
        "builtins.round",
        |_, args| result(args, if args.has("ndigits") { Kind::Float } else { Kind::Int }),
        round,
    ),
];

/// Kinds of numbers; of two, the later one is what Python computes with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Bool,
    Int,
    Float,
}

type LowerFn = fn(&mut Lower<'_>, &Args<'_>) -> Result<(), OpError>;

/// Gives a number of the kind of its operands, an integer of truth values.
const fn arithmetic(name: &'static str, compute: LowerFn) -> OpDef {
    lower(name, |_, args| result(args, kind_of(args)?.max(Kind::Int)), compute)
}

/// Gives a number of the kind of its operands.
const fn common(name: &'static str, compute: LowerFn) -> OpDef {
    lower(name, |_, args| result(args, kind_of(args)?), compute)
}

const fn truth(name: &'static str, compute: LowerFn) -> OpDef {
    lower(name, |_, args| result(args, Kind::Bool), compute)
}

const fn integer(name: &'static str, compute: LowerFn) -> OpDef {
    lower(name, |_, args| result(args, Kind::Int), compute)
}

const fn floats(name: &'static str, compute: LowerFn) -> OpDef {
    lower(name, |_: &mut InferCx<'_>, args| result(args, Kind::Float), compute)
}

/// The result's type. An integer is called as the file says.
fn result(args: &Args<'_>, kind: Kind) -> Result<Vec<Type>, OpError> {
    Ok(vec![match (kind, args.stated(0)) {
        (Kind::Bool, _) => Type::Bool,
        (Kind::Float, _) => Type::Float,
        (Kind::Int, Some(Type::Int(size))) => Type::Int(*size),
        (Kind::Int, _) => return Err(args.unsupported("an integer that nothing uses")),
    }])
}

/// What Python computes with: the kind of all operands, but for a condition.
fn kind_of(args: &Args<'_>) -> Result<Kind, OpError> {
    let operands = args.node.args.iter().skip(usize::from(args.has("b") && args.has("t")));
    let kind = |arg: &Arg| match arg {
        Arg::Bool(_) => Ok(Kind::Bool),
        Arg::Int(_) => Ok(Kind::Int),
        Arg::Float(_) => Ok(Kind::Float),
        Arg::Value(value) => match args.type_of(*value) {
            Type::Bool => Ok(Kind::Bool),
            Type::Int(_) => Ok(Kind::Int),
            Type::Float => Ok(Kind::Float),
            Type::Tensor(_) => Err(args.invalid("expected a number, found a tensor")),
        },
        _ => Err(args.invalid("expected a number")),
    };
    operands.map(kind).try_fold(Kind::Bool, |all, kind| Ok(all.max(kind?)))
}

fn dtype_of(kind: Kind) -> Dtype {
    match kind {
        Kind::Bool => Dtype::Bool,
        Kind::Int => Dtype::I64,
        Kind::Float => Dtype::F64,
    }
}

/// Where the operands that are given are.
fn operands(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<Vec<ValueAccess>, OpError> {
    let given = args.node.args.iter().filter(|arg| !matches!(arg, Arg::None));
    given.map(|arg| lw.operand(arg)).collect()
}

/// A number made of the operands, which are read as a type.
fn number(
    lw: &mut Lower<'_>,
    operands: &[ValueAccess],
    read: Dtype,
    body: impl FnOnce(&mut Body<'_>, &[Val]) -> Val,
    gives: Dtype,
) -> Result<ValueAccess, OpError> {
    let number = lw.temp("number", gives, &[]);
    lw.nest(&[], |b, at| {
        let values: Vec<Val> = operands.iter().map(|operand| b.read_as(operand, at, read)).collect();
        let value = body(b, &values);
        b.store(&number, at, value);
        Ok(())
    })?;
    Ok(number)
}

/// Lets a call fail where something does not hold of the operands and the result.
fn require(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    operands: &[ValueAccess],
    what: &str,
    holds: impl FnOnce(&mut Body<'_>, &[Val]) -> Val,
) -> Result<(), OpError> {
    let read = operands.first().map_or(Dtype::F64, |operand| operand.dtype);
    let holds = number(lw, operands, read, holds, Dtype::Bool)?;
    let at = args.node.source().map_or_else(String::new, |source| format!(" ({source})"));
    lw.check(&holds, format!("{}: {what}{at}", args.op()));
    Ok(())
}

/// The result is that number.
fn give(lw: &mut Lower<'_>, args: &Args<'_>, number: ValueAccess) -> Result<(), OpError> {
    match args.stated(0) {
        Some(Type::Int(size)) => lw.size(*size, &number),
        Some(Type::Float | Type::Bool | Type::Tensor(_)) | None => {
            lw.set_result(args, 0, number);
            Ok(())
        }
    }
}

/// A number made of the operands, in their kind, or in another where that is none that Python computes with.
fn compute(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    least: Kind,
    body: impl FnOnce(&mut Body<'_>, &[Val]) -> Val,
) -> Result<(), OpError> {
    let read = dtype_of(kind_of(args)?.max(least));
    let gives = args.stated(0).map_or(read, |ty| ty.stored().dtype);
    let operands = operands(lw, args)?;
    let number = number(lw, &operands, read, body, gives)?;
    give(lw, args, number)
}

fn same(lw: &mut Lower<'_>, args: &Args<'_>, op: ScalarOp) -> Result<(), OpError> {
    compute(lw, args, Kind::Int, |b, x| b.op(op, x))
}

/// `&`, `|` and `^`: of truth values one, of integers their bits.
fn chosen(lw: &mut Lower<'_>, args: &Args<'_>, op: ScalarOp) -> Result<(), OpError> {
    if kind_of(args)? == Kind::Float {
        return Err(args.invalid("expected integers or truth values"));
    }
    compute(lw, args, Kind::Bool, |b, x| b.op(op, x))
}

fn shift(lw: &mut Lower<'_>, args: &Args<'_>, op: ScalarOp) -> Result<(), OpError> {
    if kind_of(args)? == Kind::Float {
        return Err(args.invalid("expected integers"));
    }
    let by = operands(lw, args)?.split_off(1);
    require(lw, args, &by, "shift by a negative number, or by more than 62", |b, x| {
        let (zero, bits) = (b.lit(x[0], 0.0), b.lit(x[0], 62.0));
        let (least, most) = (b.ge(x[0], zero), b.le(x[0], bits));
        b.and(least, most)
    })?;
    same(lw, args, op)
}

/// Both Python and PyTorch give the first where neither is larger; where one is NaN, the first as well.
fn larger(lw: &mut Lower<'_>, args: &Args<'_>, second: ScalarOp) -> Result<(), OpError> {
    compute(lw, args, Kind::Bool, |b, x| {
        let is_second = b.op(second, &[x[1], x[0]]);
        b.select(is_second, x[1], x[0])
    })
}

fn quotient(lw: &mut Lower<'_>, args: &Args<'_>, least: Kind, op: ScalarOp) -> Result<(), OpError> {
    let divisor = operands(lw, args)?.split_off(1);
    require(lw, args, &divisor, "division by zero", |b, x| {
        let zero = b.lit(x[0], 0.0);
        b.ne(x[0], zero)
    })?;
    compute(lw, args, least, |b, x| b.op(op, x))
}

/// Of floats, the result is finite where the operands are: anything else is an error in Python, or complex.
fn power(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let operands = operands(lw, args)?;
    if !matches!(args.stated(0), Some(Type::Float)) {
        let exponent = &operands[1..];
        require(lw, args, exponent, "a negative exponent of an integer", |b, x| {
            let zero = b.lit(x[0], 0.0);
            b.ge(x[0], zero)
        })?;
        return same(lw, args, ScalarOp::Pow);
    }
    let power = number(lw, &operands, Dtype::F64, |b, x| b.op(ScalarOp::Pow, x), Dtype::F64)?;
    require_finite(lw, args, &operands, &power)?;
    give(lw, args, power)
}

/// A function of a float that Python's `math` has: its result is finite where the operand is, else it is an error there.
fn of_float(lw: &mut Lower<'_>, args: &Args<'_>, op: ScalarOp) -> Result<(), OpError> {
    let operands = operands(lw, args)?;
    let value = number(lw, &operands, Dtype::F64, |b, x| b.op(op, x), Dtype::F64)?;
    require_finite(lw, args, &operands, &value)?;
    give(lw, args, value)
}

fn require_finite(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    operands: &[ValueAccess],
    result: &ValueAccess,
) -> Result<(), OpError> {
    let all = [std::slice::from_ref(result), operands].concat();
    require(lw, args, &all, "the result is no finite number", |b, x| {
        let mut is_finite = x.iter().map(|&x| {
            let difference = b.sub(x, x);
            b.eq(difference, difference)
        });
        let result = is_finite.next();
        let operands: Vec<Val> = is_finite.collect();
        let mut holds = result.expect("invariant: the result is the first");
        for operand in operands {
            let is_not = b.op(ScalarOp::Not, &[operand]);
            holds = b.or(holds, is_not);
        }
        holds
    })
}

/// An integer of a float.
fn rounded(lw: &mut Lower<'_>, args: &Args<'_>, op: ScalarOp) -> Result<(), OpError> {
    let operands = operands(lw, args)?;
    let rounded = number(lw, &operands, Dtype::F64, |b, x| b.op(op, x), Dtype::F64)?;
    require(lw, args, std::slice::from_ref(&rounded), "no integer of 64 bits", |b, x| {
        let (least, end) = (b.lit(x[0], -(2f64.powi(63))), b.lit(x[0], 2f64.powi(63)));
        let (from, to) = (b.ge(x[0], least), b.lt(x[0], end));
        b.and(from, to)
    })?;
    let whole = number(lw, &[rounded], Dtype::I64, |_, x| x[0], Dtype::I64)?;
    give(lw, args, whole)
}

/// The nearest integer, the even one of two, or the nearest number of so many decimal digits behind the point.
fn round(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    if !args.has("ndigits") {
        return rounded(lw, args, ScalarOp::Round);
    }
    let digits = args.int("ndigits")?.as_int().and_then(|digits| u8::try_from(digits).ok());
    // Larger powers of ten are no floats.
    let Some(digits) = digits.filter(|&digits| digits <= 22) else {
        return Err(args.unsupported("a number of digits that is negative, above 22, or computed"));
    };
    let scale = 10f64.powi(i32::from(digits));
    let number_arg = lw.operand(args.get("number"))?;
    // Of the product with the power, `high` is rounded and `low` what that leaves. Python decides by the exact product, which is what
    // both are together, and gives the float that is nearest to the decimal number, as a division of two exact floats does.
    let value = number(
        lw,
        &[number_arg],
        Dtype::F64,
        |b, x| {
            let (scale, half) = (b.lit(x[0], scale), b.lit(x[0], 0.5));
            let high = b.op(ScalarOp::Mul, &[x[0], scale]);
            let negated = b.op(ScalarOp::Neg, &[high]);
            let low = b.op(ScalarOp::Fma, &[x[0], scale, negated]);
            let whole = b.op(ScalarOp::Floor, &[high]);
            let rest = b.sub(high, whole);
            let (is_half, nearest) = (b.eq(rest, half), b.op(ScalarOp::Round, &[high]));
            let (zero, one) = (b.lit(x[0], 0.0), b.lit(x[0], 1.0));
            let (is_above, is_below) = (b.op(ScalarOp::Gt, &[low, zero]), b.lt(low, zero));
            let next = b.add(whole, one);
            let (up, down) = (b.and(is_half, is_above), b.and(is_half, is_below));
            let chosen = b.select(down, whole, nearest);
            let chosen = b.select(up, next, chosen);
            let quotient = b.op(ScalarOp::Div, &[chosen, scale]);
            // Zeros keep the sign.
            b.op(ScalarOp::Copysign, &[quotient, x[0]])
        },
        Dtype::F64,
    )?;
    require(lw, args, std::slice::from_ref(&value), "too large for so many digits", |b, x| {
        let (size, end) = (b.op(ScalarOp::Abs, &[x[0]]), b.lit(x[0], 2f64.powi(51) / scale));
        b.lt(size, end)
    })?;
    give(lw, args, value)
}

/// The second operand where the first holds, else the third.
fn if_else(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let operands = operands(lw, args)?;
    let dtype = dtype_of(kind_of(args)?);
    let value = lw.temp("number", dtype, &[]);
    lw.nest(&[], |b, at| {
        let holds = b.read_as(&operands[0], at, Dtype::Bool);
        let (then, other) = (b.read_as(&operands[1], at, dtype), b.read_as(&operands[2], at, dtype));
        let chosen = b.select(holds, then, other);
        b.store(&value, at, chosen);
        Ok(())
    })?;
    give(lw, args, value)
}
