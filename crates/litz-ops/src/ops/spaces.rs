//! Decomposes evenly and exponentially spaced numbers between ends, of which either may be known at run time only.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::ops::terms::int;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.linspace.Tensor_Tensor", |r| Ok(vec![linear(r)?])),
    decompose("aten.linspace.Tensor_Scalar", |r| Ok(vec![linear(r)?])),
    decompose("aten.linspace.Scalar_Tensor", |r| Ok(vec![linear(r)?])),
    decompose("aten.logspace.default", exponential),
    decompose("aten.logspace.Tensor_Tensor", exponential),
    decompose("aten.logspace.Tensor_Scalar", exponential),
    decompose("aten.logspace.Scalar_Tensor", exponential),
];

/// The element type of the result.
fn dtype(r: &Rewriter<'_>) -> Result<Dtype, OpError> {
    let dtype = r.args().dtype("dtype")?.unwrap_or(Dtype::F32);
    let is_number = dtype.is_float() || dtype.is_int();
    if is_number { Ok(dtype) } else { Err(r.args().unsupported(&format!("steps in {dtype}"))) }
}

/// An end of the range in f64, as a tensor without dimensions. Of integers it loses its fraction before anything else.
fn end(r: &mut Rewriter<'_>, name: &str) -> Result<Value, OpError> {
    let (arg, dtype) = (r.args().get(name).clone(), dtype(r)?);
    let end = if r.args().tensor(name).is_err() {
        r.call("aten.scalar_tensor.default", [arg, Arg::Dtype(Dtype::F64)])?
    } else {
        let ty = r.args().tensor(name)?.ty.clone();
        if ty.rank() != 0 {
            return Err(r.args().invalid(format!("expected a number, found {ty}")));
        }
        r.call("aten._to_copy.default", [arg, Arg::Dtype(Dtype::F64)])?
    };
    if !dtype.is_int() {
        return Ok(end);
    }
    let whole = r.convert(end, dtype)?;
    r.convert(whole, Dtype::F64)
}

/// The numbers in f64: the first half counted from the start, the second from the end, so that both ends are exact.
fn steps(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let (start, end, count) = (end(r, "start")?, end(r, "end")?, r.args().literal("steps")?);
    if count < 0 {
        return Err(r.args().bad("steps", "a number that is not negative"));
    }
    let places = r.call("aten.arange.start", [int(0), int(count), Arg::Dtype(Dtype::F64)])?;
    if count < 2 {
        return r.call("aten.expand.default", [Arg::Value(start), Arg::ints([Expr::int(count)])]);
    }
    let range = r.sub(end, start)?;
    let step = r.scalar("aten.div.Scalar", range, (count - 1) as f64)?;
    let ahead = r.mul(places, step)?;
    let near = r.add(start, ahead)?;
    let left = r.call("aten.rsub.Scalar", [Arg::Value(places), int(count - 1)])?;
    let behind = r.mul(left, step)?;
    let far = r.sub(end, behind)?;
    let first_half = r.scalar("aten.lt.Scalar", places, (count / 2) as f64)?;
    r.apply("aten.where.self", &[first_half, near, far])
}

fn linear(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let (dtype, steps) = (dtype(r)?, steps(r)?);
    r.call("aten._to_copy.default", [Arg::Value(steps), Arg::Dtype(dtype)])
}

/// `base` to the power of evenly spaced numbers.
fn exponential(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (dtype, base, steps) = (dtype(r)?, r.args().get("base").clone(), steps(r)?);
    let powers = r.call("aten.pow.Scalar", [base, Arg::Value(steps)])?;
    Ok(vec![r.call("aten._to_copy.default", [Arg::Value(powers), Arg::Dtype(dtype)])?])
}
