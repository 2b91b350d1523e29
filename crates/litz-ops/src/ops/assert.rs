//! Makes assertions, what a user or an exporter requires of sizes and values, guards or checks of the program.
//!
//! None is dropped. What is known while a model is compiled is decided then. Conditions on sizes become guards, which a
//! call checks before anything runs; conditions on computed values become checks, which end a call before it updates any
//! state.

use crate::args::Args;
use crate::def::{OpDef, inferred, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::lower::Lower;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Type};
use litz_ir::schema::Effect;
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten._assert_async.default", condition_type, check).effect(Effect::Asserts),
    lower("aten._assert_async.msg", condition_type, check).effect(Effect::Asserts),
    lower("aten._assert_scalar.default", hold, check_number).effect(Effect::Asserts),
    inferred("aten._assert_tensor_metadata.default", agree).effect(Effect::States),
    inferred("aten.sym_constrain_range.default", be_in_range).effect(Effect::Asserts),
    inferred("aten.sym_constrain_range_for_size.default", be_in_range).effect(Effect::Asserts),
];

/// What a failure is reported as: the user's message, and the source line.
fn report(args: &Args<'_>) -> Result<String, OpError> {
    let message = if args.has("assert_msg") { args.str("assert_msg")? } else { args.op() };
    Ok(match args.node.source() {
        Some(source) => format!("{message} ({source})"),
        None => message.to_owned(),
    })
}

/// The condition is a tensor of one element: PyTorch finds the truth of others ambiguous.
fn condition_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    cx.require(Rel::eq(args.tensor("self")?.ty.numel(), 1), args.op())?;
    Ok(Vec::new())
}

/// Any element that is not zero holds, NaN too.
fn check(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let condition = lw.access(args.tensor("self")?)?;
    let holds = lw.temp("holds", Dtype::Bool, &condition.sizes);
    let sizes = holds.sizes.clone();
    lw.nest(&sizes, |b, at| {
        let value = b.read_as(&condition, at, Dtype::Bool);
        b.store(&holds, at, value);
        Ok(())
    })?;
    lw.check(&holds, report(args)?);
    Ok(())
}

/// A number that is known at run time only is not zero; any other was compared before.
fn check_number(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let Arg::Value(value) = args.get("self") else { return Ok(()) };
    if !matches!(args.type_of(*value), Type::Float | Type::Bool) {
        return Ok(());
    }
    let number = lw.operand(args.get("self"))?;
    let holds = lw.temp("holds", Dtype::Bool, &[]);
    lw.nest(&[], |b, at| {
        let value = b.read_as(&number, at, Dtype::Bool);
        b.store(&holds, at, value);
        Ok(())
    })?;
    lw.check(&holds, report(args)?);
    Ok(())
}

/// A number that is not zero.
fn hold(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let is_true = match args.get("self") {
        Arg::Bool(value) => *value,
        Arg::Float(value) => value.0 != 0.0,
        Arg::Value(value) if matches!(cx.values[*value].ty, Type::Float | Type::Bool) => {
            return Ok(Vec::new());
        }
        _ => {
            cx.require(Rel::ne(args.int("self")?, 0), &report(args)?)?;
            true
        }
    };
    if is_true { Ok(Vec::new()) } else { Err(args.invalid(format!("never holds: {}", report(args)?))) }
}

fn be_in_range(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (size, min, max) = (args.int("size")?, args.opt_int("min")?, args.opt_int("max")?);
    let is_size = args.op() == "aten.sym_constrain_range_for_size.default";
    let min = if is_size { Some(min.unwrap_or(Expr::zero()).max(0)) } else { min };
    let who = report(args)?;
    min.map_or(Ok(()), |min| cx.require(Rel::le(min, size), &who))?;
    max.map_or(Ok(()), |max| cx.require(Rel::le(size, max), &who))?;
    Ok(Vec::new())
}

/// Element type, device and sizes. Strides of values that are not returned are Litz's own choice: the reader of files compares
/// these with what the file says.
fn agree(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let found = args.tensor("a")?.ty;
    if let Some(expected) = args.dtype("dtype")?.filter(|dtype| *dtype != found.dtype) {
        return Err(args.invalid(format!("expected {expected}, found {}", found.dtype)));
    }
    if let Some(expected) = args.device("device")?.filter(|device| *device != found.device) {
        return Err(args.invalid(format!("expected a tensor on {expected}, found {}", found.device)));
    }
    if args.has("size") {
        let expected = args.ints("size")?;
        if expected.len() != found.rank() {
            let (expected, found) = (expected.len(), found.rank());
            return Err(args.invalid(format!("expected {expected} dimensions, found {found}")));
        }
        let who = report(args)?;
        for (&expected, &size) in expected.iter().zip(&found.sizes) {
            cx.require(Rel::eq(size, expected), &who)?;
        }
    }
    Ok(Vec::new())
}
