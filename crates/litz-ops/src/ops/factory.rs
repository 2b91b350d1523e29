//! Lowers operators that make tensors: constants, ranges, triangles of other tensors.

use crate::args::{Args, Number};
use crate::def::{OpDef, inplace, lower, one};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::layout::{copy_strides, is_dense, not_negative, same_shape};
use crate::lower::Lower;
use crate::view::ValueAccess;
use litz_ir::graph::{Arg, TensorType, Type, contiguous_strides};
use litz_ir::{Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Rel};
use std::fmt::Display;

/// Entries.
pub const OPS: &[OpDef] = &[
    lower(
        "aten.full.default",
        |cx, args| sized(cx, args, None),
        |lw, args| fill_given(lw, args, "fill_value"),
    ),
    lower("aten.zeros.default", |cx, args| sized(cx, args, None), |lw, args| fill(lw, args, ZERO)),
    lower(
        "aten.ones.default",
        |cx, args| sized(cx, args, None),
        |lw, args| fill(lw, args, Number::Int(Expr::one())),
    ),
    lower("aten.empty.memory_format", |cx, args| sized(cx, args, None), unfilled),
    lower("aten.empty_permuted.default", permuted_type, unfilled),
    lower("aten.empty_strided.default", |cx, args| strided(cx, args, None), unfilled),
    lower("aten.new_empty_strided.default", |cx, args| strided(cx, args, own(args)?), unfilled),
    lower(
        "aten.new_full.default",
        |cx, args| sized(cx, args, own(args)?),
        |lw, args| fill_given(lw, args, "fill_value"),
    ),
    lower("aten.new_zeros.default", |cx, args| sized(cx, args, own(args)?), |lw, args| fill(lw, args, ZERO)),
    lower(
        "aten.new_ones.default",
        |cx, args| sized(cx, args, own(args)?),
        |lw, args| fill(lw, args, Number::Int(Expr::one())),
    ),
    lower("aten.new_empty.default", |cx, args| sized(cx, args, own(args)?), unfilled),
    lower("aten.full_like.default", like_type, |lw, args| fill_given(lw, args, "fill_value")),
    lower("aten.zeros_like.default", like_type, |lw, args| fill(lw, args, ZERO)),
    lower("aten.ones_like.default", like_type, |lw, args| fill(lw, args, Number::Int(Expr::one()))),
    lower("aten.empty_like.default", like_type, unfilled),
    lower("aten.fill.Scalar", like_type, |lw, args| fill_given(lw, args, "value")),
    lower("aten.fill.Tensor", fill_tensor_type, fill_tensor),
    lower("aten.zero.default", like_type, |lw, args| fill(lw, args, ZERO)),
    lower("aten.scalar_tensor.default", scalar_type, |lw, args| fill_given(lw, args, "s")),
    lower("aten.arange.default", arange_type, arange),
    lower("aten.arange.start", arange_type, arange),
    lower("aten.arange.start_step", arange_type, arange),
    lower("prims.iota.default", iota_type, iota),
    lower("aten.linspace.default", linspace_type, linspace),
    lower("aten.eye.default", eye_type, eye),
    lower("aten.eye.m", eye_type, eye),
    lower("aten.tril.default", triangle_type, |lw, args| triangle(lw, args, Side::Lower)),
    lower("aten.triu.default", triangle_type, |lw, args| triangle(lw, args, Side::Upper)),
    lower(
        "aten.tril_indices.default",
        |cx, args| triangle_indices_type(cx, args, Side::Lower),
        |lw, args| triangle_indices(lw, args, Side::Lower),
    ),
    lower(
        "aten.triu_indices.default",
        |cx, args| triangle_indices_type(cx, args, Side::Upper),
        |lw, args| triangle_indices(lw, args, Side::Upper),
    ),
    inplace("aten.fill_.Scalar", "aten.fill.Scalar"),
    inplace("aten.fill_.Tensor", "aten.fill.Tensor"),
    inplace("aten.zero_.default", "aten.zero.default"),
    inplace("aten.tril_.default", "aten.tril.default"),
    inplace("aten.triu_.default", "aten.triu.default"),
];

const ZERO: Number = Number::Bool(false);

/// The element type of `self`, what `new_*` take when no other is asked for.
fn own(args: &Args<'_>) -> Result<Option<Dtype>, OpError> {
    Ok(Some(args.tensor("self")?.ty.dtype))
}

/// A contiguous tensor of the size asked for; by default of the type of the fill value, or f32.
fn sized(cx: &mut InferCx<'_>, args: &Args<'_>, default: Option<Dtype>) -> Result<Vec<Type>, OpError> {
    let of_value = match args.late("fill_value") {
        Some((_, kind)) => Some(kind.dtype()),
        None if args.has("fill_value") => Some(args.number("fill_value")?.dtype()),
        None => None,
    };
    let dtype = args.dtype("dtype")?.or(default).or(of_value).unwrap_or(Dtype::F32);
    let sizes = args.ints("size")?;
    not_negative(cx, args, &sizes)?;
    one(TensorType::contiguous(dtype, sizes))
}

/// A tensor of the size and strides asked for, which leave no gaps.
fn strided(cx: &mut InferCx<'_>, args: &Args<'_>, default: Option<Dtype>) -> Result<Vec<Type>, OpError> {
    let (sizes, strides) = (args.ints("size")?, args.ints("stride")?);
    not_negative(cx, args, &sizes)?;
    if strides.len() != sizes.len() {
        return Err(args.bad("stride", "one stride for each size"));
    }
    let negative = |_| args.bad("stride", "strides of at least 0");
    strides.iter().try_for_each(|&stride| cx.require(Rel::ge(stride, 0), args.op()).map_err(negative))?;
    let dtype = args.dtype("dtype")?.or(default).unwrap_or(Dtype::F32);
    let ty = TensorType::strided(dtype, sizes, strides);
    let is_empty = ty.sizes.iter().any(|size| size.is_zero());
    if !is_empty && !is_dense(cx.facts, &ty) {
        return Err(args.unsupported(&format!("memory with gaps or shared elements, {:?}", ty.strides)));
    }
    one(ty)
}

fn permuted_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let sizes = args.ints("size")?;
    not_negative(cx, args, &sizes)?;
    let order = args.literals_of("physical_layout", sizes.len())?;
    if order.iter().enumerate().any(|(i, d)| order[..i].contains(d)) {
        return Err(args.bad("physical_layout", "a permutation of the dimensions"));
    }
    let mut strides = vec![Expr::one(); sizes.len()];
    let mut next = Expr::one();
    for &d in order.iter().rev() {
        let d = usize::try_from(d).ok().filter(|&d| d < sizes.len());
        let d = d.ok_or_else(|| args.bad("physical_layout", "a permutation of the dimensions"))?;
        strides[d] = next;
        next = next * sizes[d];
    }
    one(TensorType::strided(args.dtype("dtype")?.unwrap_or(Dtype::F32), sizes, strides))
}

fn like_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    let strides = copy_strides(cx.facts, x, args.memory_format("memory_format")?);
    one(TensorType { dtype: args.dtype("dtype")?.unwrap_or(x.dtype), strides, ..x.clone() })
}

/// The value is of rank 0.
fn fill_tensor_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    same_shape(cx, args, "value", &[])?;
    like_type(cx, args)
}

fn scalar_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    one(TensorType::contiguous(args.dtype("dtype")?.unwrap_or(Dtype::F32), Vec::new()))
}

fn fill(lw: &mut Lower<'_>, args: &Args<'_>, value: Number) -> Result<(), OpError> {
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.number(value, out.dtype);
        b.store(&out, at, v);
        Ok(())
    })
}

/// Memory that holds anything, for which zeros are as good as others: they cost nothing in kernels, which take them for constants. What an
/// operator of the host writes to is not filled.
fn unfilled(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let value = args.node.outputs.first().copied().flatten();
    if !value.is_some_and(|value| lw.is_written_by_host(value)) {
        return fill(lw, args, ZERO);
    }
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.call("fresh", &[], &[&out], Vec::new());
    Ok(())
}

/// Fills with the number of that name.
fn fill_given(lw: &mut Lower<'_>, args: &Args<'_>, name: &str) -> Result<(), OpError> {
    let Some((value, _)) = args.late(name) else { return fill(lw, args, args.number(name)?) };
    let value = lw.operand(&Arg::Value(value))?;
    fill_from(lw, args, &value)
}

fn fill_tensor(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let value = lw.access(args.tensor("value")?)?;
    fill_from(lw, args, &value)
}

fn fill_from(lw: &mut Lower<'_>, args: &Args<'_>, value: &ValueAccess) -> Result<(), OpError> {
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.load(value, &[]);
        b.store(&out, at, v);
        Ok(())
    })
}

/// Start, end and step; numbers that were not given are 0, none and 1.
fn range(args: &Args<'_>) -> Result<(Number, Number, Number), OpError> {
    let start = if args.has("start") { args.number("start")? } else { Number::Int(Expr::zero()) };
    let step = if args.has("step") { args.number("step")? } else { Number::Int(Expr::one()) };
    Ok((start, args.number("end")?, step))
}

fn arange_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (start, end, step) = range(args)?;
    let float = [start, end, step].iter().any(|n| matches!(n, Number::Float(_)));
    let backwards = |start: &dyn Display, end: &dyn Display| {
        args.invalid(format!("{end} does not follow {start} in the direction of the step"))
    };
    let len = match (start, end, step) {
        (Number::Int(start), Number::Int(end), Number::Int(step)) => {
            cx.require(Rel::ne(step, 0), args.op())?;
            let (distance, step) = match cx.known(Rel::gt(step, 0)) {
                Some(true) => (end - start, step),
                Some(false) => (start - end, -step),
                None => return Err(args.unsupported("a step of which nothing says whether it is positive")),
            };
            cx.require(Rel::ge(distance, 0), args.op()).map_err(|_| backwards(&start, &end))?;
            distance.ceildiv(step)
        }
        _ => {
            let (start, end, step) = (literal(args, start)?, literal(args, end)?, literal(args, step)?);
            let count = ((end - start) / step).ceil();
            if !count.is_finite() {
                return Err(args.invalid(format!("no range from {start} to {end} in steps of {step}")));
            }
            if (end - start) / step < 0.0 {
                return Err(backwards(&start, &end));
            }
            Expr::int(count as i64)
        }
    };
    let dtype = args.dtype("dtype")?.unwrap_or(if float { Dtype::F32 } else { Dtype::I64 });
    one(TensorType::contiguous(dtype, vec![cx.simplify(len)]))
}

fn literal(args: &Args<'_>, n: Number) -> Result<f64, OpError> {
    match n {
        Number::Float(f) => Ok(f),
        Number::Int(e) if e.as_int().is_some() => Ok(e.as_int().map_or(0.0, |i| i as f64)),
        Number::Int(_) | Number::Bool(_) | Number::Complex(..) => {
            Err(args.unsupported("a symbolic bound with a float step"))
        }
    }
}

fn arange(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (start, _, step) = range(args)?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let v = match (start, step) {
            (Number::Int(start), Number::Int(step)) => b.index(start + step * at[0], out.dtype),
            _ => {
                let compute = out.dtype.compute();
                let (start, step) = (b.number(start, compute), b.number(step, compute));
                let i = b.index(at[0], compute);
                let distance = b.mul(step, i);
                b.add(start, distance)
            }
        };
        b.store(&out, at, v);
        Ok(())
    })
}

/// `start + step * i` for `length` values of i.
fn iota_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let sizes = vec![args.int("length")?];
    not_negative(cx, args, &sizes)?;
    one(TensorType::contiguous(args.dtype("dtype")?.unwrap_or(Dtype::I64), sizes))
}

fn iota(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (start, step) = (args.int("start")?, args.int("step")?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let v = b.index(start + step * at[0], out.dtype);
        b.store(&out, at, v);
        Ok(())
    })
}

fn linspace_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let is_complex = ["start", "end"].iter().any(|end| matches!(args.get(end), Arg::Complex(..)));
    let own = if is_complex { Dtype::C64 } else { Dtype::F32 };
    let (dtype, sizes) = (args.dtype("dtype")?.unwrap_or(own), vec![args.int("steps")?]);
    not_negative(cx, args, &sizes)?;
    one(TensorType::contiguous(dtype, sizes))
}

/// The first half counts from the start, the second from the end, so that both ends are exact.
fn linspace(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (start, end, steps) = (args.float("start")?, args.float("end")?, args.literal("steps")?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    // Ends of integers lose their fractions, and the numbers between are found in f64.
    let is_whole = out.dtype.is_int();
    let (start, end) = if is_whole { (start.trunc(), end.trunc()) } else { (start, end) };
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    lw.nest(&out.sizes, |b, at| {
        let compute = if is_whole { Dtype::F64 } else { out.dtype.compute() };
        let i = b.index(at[0], compute);
        let left = b.index(Expr::int(steps - 1) - at[0], compute);
        let (start, end, step) = (b.lit(i, start), b.lit(i, end), b.lit(i, step));
        let (ahead, behind) = (b.mul(step, i), b.mul(step, left));
        let (near, far) = (b.add(start, ahead), b.sub(end, behind));
        let first_half = b.cond(Rel::lt(at[0], steps / 2));
        let v = b.select(first_half, near, far);
        let v = if steps == 1 { start } else { v };
        b.store(&out, at, v);
        Ok(())
    })
}

fn eye_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let rows = args.int("n")?;
    let sizes = vec![rows, args.opt_int("m")?.unwrap_or(rows)];
    not_negative(cx, args, &sizes)?;
    one(TensorType::contiguous(args.dtype("dtype")?.unwrap_or(Dtype::F32), sizes))
}

fn eye(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let diagonal = b.cond(Rel::eq(at[0], at[1]));
        b.store(&out, at, diagonal);
        Ok(())
    })
}

/// Which triangle of a matrix is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Lower,
    Upper,
}

fn triangle_type(_: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = args.tensor("self")?.ty;
    if x.rank() < 2 {
        return Err(args.invalid("expected at least two dimensions"));
    }
    one(TensorType { strides: contiguous_strides(&x.sizes), ..x.clone() })
}

fn triangle(lw: &mut Lower<'_>, args: &Args<'_>, side: Side) -> Result<(), OpError> {
    let x = lw.access(args.tensor("self")?)?;
    let diagonal = args.int("diagonal")?;
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let (row, column) = (at[at.len() - 2], at[at.len() - 1]);
        let inside = match side {
            Side::Lower => Rel::le(column, row + diagonal),
            Side::Upper => Rel::ge(column, row + diagonal),
        };
        let v = b.load_if(&x, at, vec![inside], Scalar::zero(x.dtype));
        b.store(&out, at, v);
        Ok(())
    })
}

/// The columns of a row of a triangle: the first, and one past the last.
fn triangle_row(side: Side, columns: Expr, offset: Expr, row: Expr) -> (Expr, Expr) {
    match side {
        Side::Lower => (Expr::zero(), (row + offset + 1).max(0).min(columns)),
        Side::Upper => ((row + offset).max(0).min(columns), columns),
    }
}

/// Rows are counted one by one; masks of attention are far below this.
const MOST_ROWS: i64 = 1 << 20;

fn triangle_indices_type(cx: &mut InferCx<'_>, args: &Args<'_>, side: Side) -> Result<Vec<Type>, OpError> {
    let (columns, offset) = (args.int("col")?, args.int("offset")?);
    not_negative(cx, args, &[args.int("row")?, columns])?;
    if args.literal("row")? > MOST_ROWS {
        return Err(args.unsupported(&format!("more than {MOST_ROWS} rows")));
    }
    let count = (0..args.literal("row")?).map(|row| {
        let (first, past) = triangle_row(side, columns, offset, Expr::int(row));
        past - first
    });
    let dtype = args.dtype("dtype")?.unwrap_or(Dtype::I64);
    one(TensorType::contiguous(dtype, vec![Expr::int(2), count.sum()]))
}

/// Rows and columns of the elements of a triangle, row by row. An element's row is the number of rows that end
/// before it; the columns before it are those of its row.
fn triangle_indices(lw: &mut Lower<'_>, args: &Args<'_>, side: Side) -> Result<(), OpError> {
    let (rows, columns, offset) = (args.int("row")?, args.int("col")?, args.int("offset")?);
    let Some(out) = lw.result(args, 0) else { return Ok(()) };
    // Where the elements of each row end.
    let ends = lw.temp("ends", Dtype::I64, &[rows]);
    lw.nest(&[rows], |b, at| {
        let (first, past) = triangle_row(side, columns, offset, at[0]);
        let count = b.index(past - first, Dtype::I64);
        let end = b.scan(ReduceOp::Sum, count, at[0]);
        b.store(&ends, at, end);
        Ok(())
    })?;
    let row = lw.temp("row", Dtype::I64, &out.sizes[1..]);
    lw.nest(&out.sizes[1..], |b, at| {
        let place = b.index(at[0], Dtype::I64);
        let r = b.reduced_axis(rows);
        let end = b.load(&ends, &[r]);
        let passed = b.le(end, place);
        let passed = b.cast(passed, Dtype::I64);
        let count = b.reduce(ReduceOp::Sum, passed);
        b.store(&row, at, count);
        Ok(())
    })?;
    lw.nest(&out.sizes[1..], |b, at| {
        let own = b.load(&row, at);
        b.store(&out, &[Expr::zero(), at[0]], own);
        let r = b.bind(own, rows);
        let (place, end) = (b.index(at[0], Dtype::I64), b.load(&ends, &[r]));
        let past = b.index(triangle_row(side, columns, offset, r).1, Dtype::I64);
        let left = b.sub(end, place);
        let column = b.sub(past, left);
        b.store(&out, &[Expr::one(), at[0]], column);
        Ok(())
    })
}
