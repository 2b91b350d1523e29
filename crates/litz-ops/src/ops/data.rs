//! Lowers operators whose results have sizes that data decides, and those that make numbers of elements.
//!
//! The size of such a result is a symbol that the model's file names: it gets its value when the program runs. So these operators
//! are never merged or left out: each gives its own symbol a value, and fails the call where that is outside of the range which the
//! user said the symbol has.

use crate::args::Args;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::broadcast;
use crate::lower::Lower;
use crate::ops::index::flattened;
use crate::traits::Complex;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, TensorType, Type, Value, contiguous_strides};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.item.default", item_type, item),
    lower("aten._local_scalar_dense.default", item_type, item),
    lower("aten.nonzero.default", nonzero_type, nonzero),
    decompose("aten.nonzero_numpy.default", |r| {
        let x = r.args().tensor("self")?.value;
        columns(r, x)
    })
    .complex(Complex::Rewritten),
    decompose("aten.nonzero_static.default", nonzero_static).complex(Complex::Rewritten),
    decompose("aten.where.default", |r| {
        let x = r.args().tensor("condition")?.value;
        columns(r, x)
    })
    .complex(Complex::Rewritten),
    decompose("aten.argwhere.default", |r| {
        let x = r.args().tensor("self")?.value;
        let ty = stated(r, 0)?;
        Ok(vec![r.stated("aten.nonzero.default", [Arg::Value(x)], ty)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.masked_select.default", masked_select).complex(Complex::Rewritten),
];

/// An element as a number of its kind.
fn item_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    cx.require(Rel::eq(x.numel(), 1), args.op())?;
    if x.dtype == Dtype::U64 {
        return Err(args.unsupported("a number that an i64 may not hold"));
    }
    Ok(vec![match args.stated(0) {
        Some(Type::Int(size)) if x.dtype.is_int() || x.dtype == Dtype::Bool => Type::Int(*size),
        Some(Type::Bool) if x.dtype == Dtype::Bool => Type::Bool,
        None if x.dtype == Dtype::Bool => Type::Bool,
        None if x.dtype.is_int() => return Err(args.unsupported("an integer that nothing uses")),
        Some(Type::Float) | None if x.dtype.is_float() => Type::Float,
        _ => return Err(args.invalid(format!("a number that is no {}", x.dtype))),
    }])
}

fn item(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let Some(ty) = args.stated(0) else { return Ok(()) };
    let dtype = ty.stored().dtype;
    let number = lw.temp("number", dtype, &[]);
    lw.nest(&[], |b, _| {
        let value = b.read_as(&x, &vec![Expr::zero(); x.rank()], dtype);
        b.store(&number, &[], value);
        Ok(())
    })?;
    match ty {
        Type::Int(size) => lw.size(*size, &number),
        Type::Float | Type::Bool | Type::Tensor(_) => {
            lw.set_result(args, 0, number);
            Ok(())
        }
    }
}

/// The size of a result along a dimension, as the file has it.
pub(crate) fn stated_size(args: &Args<'_>, dim: usize) -> Result<Expr, OpError> {
    let size = args.result(0).and_then(|ty| ty.sizes.get(dim).copied());
    size.ok_or_else(|| args.unsupported("a result whose size nothing names"))
}

/// A column for each dimension, behind each other as eager has them.
fn nonzero_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let count = stated_size(args, 0)?;
    cx.require(Rel::le(0, count), args.op())?;
    cx.require(Rel::le(count, x.numel()), args.op())?;
    let sizes = vec![count, Expr::int(x.rank() as i64)];
    Ok(vec![Type::Tensor(TensorType::strided(Dtype::I64, sizes, vec![Expr::one(), count]))])
}

fn nonzero(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let count = stated_size(args, 0)?;
    let places = lw.places(&x, count)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    if places.is_empty() {
        // A number has no coordinates: there are rows of no elements, all of which a nest without points writes.
        return lw.nest(&[count, Expr::zero()], |b, at| {
            let coordinate = b.index(Expr::zero(), Dtype::I64);
            b.store(&out, at, coordinate);
            Ok(())
        });
    }
    for (dim, places) in places.iter().enumerate() {
        lw.nest(&[count], |b, at| {
            let coordinate = b.load(places, at);
            b.store(&out, &[at[0], Expr::int(dim as i64)], coordinate);
            Ok(())
        })?;
    }
    Ok(())
}

/// The type of the `i`-th result as the file has it.
fn stated(r: &Rewriter<'_>, i: usize) -> Result<TensorType, OpError> {
    let ty = r.args().result(i).cloned();
    ty.ok_or_else(|| r.args().unsupported("a result whose size nothing names"))
}

/// `nonzero` as one vector for each dimension.
fn columns(r: &mut Rewriter<'_>, x: Value) -> Result<Vec<Value>, OpError> {
    let rank = r.ty(x)?.rank();
    // Any of them tells how many there are.
    let count = (0..rank).find_map(|i| Some(r.args().result(i)?.sizes[0]));
    let count = count.ok_or_else(|| r.args().unsupported("results that nothing uses"))?;
    let sizes = vec![count, Expr::int(rank as i64)];
    let ty = TensorType::strided(Dtype::I64, sizes, vec![Expr::one(), count]);
    let all = r.stated("aten.nonzero.default", [Arg::Value(x)], ty)?;
    let column = |dim: usize| {
        r.call("aten.select.int", [Arg::Value(all), Arg::Int(Expr::one()), Arg::Int(Expr::int(dim as i64))])
    };
    (0..rank).map(column).collect()
}

/// As many places as the caller asks for: the first ones, then rows of the fill value.
fn nonzero_static(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?.value;
    let (size, fill) = (r.args().int("size")?, r.args().get("fill_value").clone());
    let ty = r.ty(x)?;
    let int = |value: Expr| Arg::Int(value);
    if ty.rank() == 0 {
        let sizes = Arg::ints([size, Expr::zero()]);
        return Ok(vec![r.call("aten.zeros.default", [sizes, Arg::Dtype(Dtype::I64)])?]);
    }
    let flat = flattened(r, x)?;
    let holds = r.call("aten.ne.Scalar", [Arg::Value(flat), int(Expr::zero())])?;
    let before = r.call("aten.cumsum.default", [Arg::Value(holds), int(Expr::zero())])?;
    let at = r.call("aten.sub.Scalar", [Arg::Value(before), int(Expr::one())])?;
    let fits = r.call("aten.lt.Scalar", [Arg::Value(at), int(size)])?;
    let fits = r.apply("aten.logical_and.default", &[fits, holds])?;
    // What has no row goes to one behind the last.
    let row = r.call("aten.where.ScalarOther", [Arg::Value(fits), Arg::Value(at), int(size)])?;
    let rows = [Arg::ints([size + 1]), int(Expr::int(-1)), Arg::Dtype(Dtype::I64)];
    let none = r.call("aten.full.default", rows)?;
    let places = r.call("aten.arange.default", [int(ty.numel())])?;
    let to = [Arg::Value(none), int(Expr::zero()), Arg::Value(row), Arg::Value(places)];
    let found = r.call("aten.scatter.src", to)?;
    let part = [Arg::Value(found), int(Expr::zero()), int(Expr::zero()), int(size)];
    let found = r.call("aten.slice.Tensor", part)?;
    let is_there = r.call("aten.ge.Scalar", [Arg::Value(found), int(Expr::zero())])?;
    let column = |(&size, digit): (&Expr, Expr)| {
        let above = r.call("aten.floor_divide.Scalar", [Arg::Value(found), int(digit)])?;
        let coordinate = r.call("aten.remainder.Scalar", [Arg::Value(above), int(size.max(Expr::one()))])?;
        r.call("aten.where.ScalarOther", [Arg::Value(is_there), Arg::Value(coordinate), fill.clone()])
    };
    let columns = ty.sizes.iter().zip(contiguous_strides(&ty.sizes)).map(column);
    let columns = columns.map(|column| column.map(Arg::Value)).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![r.call("aten.stack.default", [Arg::List(columns), int(Expr::one())])?])
}

/// Elements of the operand where the mask holds, both broadcast.
fn masked_select(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.args().of_types("mask", &[Dtype::Bool])?;
    let (x, mask) = (r.args().tensor("self")?.value, r.args().tensor("mask")?.value);
    let ty = stated(r, 0)?;
    let shapes = [r.ty(x)?.sizes, r.ty(mask)?.sizes];
    let sizes = broadcast(&mut r.infer_cx(), &[&shapes[0], &shapes[1]], "aten.masked_select.default")?;
    let expanded = |r: &mut Rewriter<'_>, value| {
        let wide = r.call("aten.expand.default", [Arg::Value(value), Arg::ints(sizes.clone())])?;
        flattened(r, wide)
    };
    let (x, mask) = (expanded(r, x)?, expanded(r, mask)?);
    let index = Arg::List(vec![Arg::Value(mask)]);
    Ok(vec![r.stated("aten.index.Tensor", [Arg::Value(x), index], ty)?])
}
