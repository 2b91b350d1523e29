//! Decomposes fractional pooling: the largest elements of windows whose places follow from a random number for each plane and axis.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::ops::terms::int;
use litz_ir::graph::{Arg, Value};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    // Numbers of two axes are given from the last one on, of three from the first one on.
    decompose("aten.fractional_max_pool2d.default", |r| pool(r, &[1, 0])),
    decompose("aten.fractional_max_pool3d.default", |r| pool(r, &[0, 1, 2])),
];

/// The largest element of each window, and its position in the plane; `columns` says which number is each axis's.
fn pool(r: &mut Rewriter<'_>, columns: &[usize]) -> Result<Vec<Value>, OpError> {
    let (x, kernel, sizes) =
        (r.args().tensor("self")?, r.args().ints("kernel_size")?, r.args().ints("output_size")?);
    let (value, ty, axes) = (x.value, x.ty.clone(), columns.len());
    r.args().of_types("self", &[Dtype::F32, Dtype::F64, Dtype::F16, Dtype::BF16])?;
    r.args().of_types("random_samples", &[ty.dtype])?;
    let samples = r.args().tensor("random_samples")?;
    let (numbers, given) = (samples.value, samples.ty.clone());
    if kernel.len() != axes || sizes.len() != axes || !(axes + 1..=axes + 2).contains(&ty.rank()) {
        return Err(r.args().invalid(format!("expected planes of {axes} dimensions, found {ty}")));
    }
    let (batch, plane) = ty.sizes.split_at(ty.rank() - axes);
    let planes: Expr = batch.iter().copied().product();
    let expected = [
        if batch.len() == 2 { batch[0] } else { Expr::one() },
        batch[batch.len() - 1],
        Expr::int(axes as i64),
    ];
    r.require(|cx, args| {
        crate::layout::same_sizes(cx, args, "argument `random_samples`", &given.sizes, &expected)?;
        for ((&size, &window), &count) in plane.iter().zip(&kernel).zip(&sizes) {
            let large = |_| args.invalid(format!("windows of {window} at {count} places of {size}"));
            for rel in [Rel::ge(window, 1), Rel::ge(count, 1), Rel::le(count + window - 1, size)] {
                cx.require(rel, args.op()).map_err(large)?;
            }
        }
        Ok(())
    })?;
    let numbers = r.reshape(numbers, [planes, Expr::int(axes as i64)])?;
    let mut flat: Option<Value> = None;
    for axis in 0..axes {
        let (size, window, count) = (plane[axis], kernel[axis], sizes[axis]);
        let column =
            r.slice(numbers, 1, Expr::int(columns[axis] as i64), Expr::int(columns[axis] as i64 + 1))?;
        let starts = starts(r, column, (size, window, count), ty.dtype)?;
        let starts = r.call("aten.unsqueeze.default", [Arg::Value(starts), int(-1)])?;
        let steps = r.call("aten.arange.default", [Arg::Int(window)])?;
        let places = r.add(starts, steps)?;
        let mut shape = vec![planes];
        shape.resize(1 + 2 * axis, Expr::one());
        let places = r.reshape(places, [shape, vec![count, window]].concat())?;
        flat = Some(match flat {
            None => places,
            Some(outer) => {
                let rows = r.call("aten.mul.Scalar", [Arg::Value(outer), Arg::Int(size)])?;
                let rows = r.call("aten.unsqueeze.default", [Arg::Value(rows), int(-1)])?;
                let rows = r.call("aten.unsqueeze.default", [Arg::Value(rows), int(-1)])?;
                r.add(rows, places)?
            }
        });
    }
    let Some(flat) = flat else { return Err(r.args().invalid("expected axes")) };
    let order: Vec<usize> =
        [0].into_iter().chain((0..axes).map(|a| 1 + 2 * a)).chain((0..axes).map(|a| 2 + 2 * a)).collect();
    let flat = r.permute(flat, &order)?;
    let (windows, inside): (Expr, Expr) = (sizes.iter().copied().product(), kernel.iter().copied().product());
    let flat = r.reshape(flat, [planes, windows * inside])?;
    let area: Expr = plane.iter().copied().product();
    let elements = r.reshape(value, [planes, area])?;
    let found = r.call("aten.gather.default", [Arg::Value(elements), int(1), Arg::Value(flat)])?;
    let found = r.reshape(found, [planes, windows, inside])?;
    let [Some(largest), Some(which)] =
        r.call_all("aten.max.dim", [Arg::Value(found), int(2), Arg::Bool(true)])?[..]
    else {
        return Err(OpError::missing("aten.max.dim"));
    };
    let flat = r.reshape(flat, [planes, windows, inside])?;
    let positions = r.call("aten.gather.default", [Arg::Value(flat), int(2), Arg::Value(which)])?;
    let shape = [batch, &sizes].concat();
    Ok(vec![r.reshape(largest, shape.clone())?, r.reshape(positions, shape)?])
}

/// Where windows begin along an axis, for each plane: evenly but for rounding, from a place that the number decides; the last one at
/// the end.
fn starts(
    r: &mut Rewriter<'_>,
    number: Value,
    (size, window, count): (Expr, Expr, Expr),
    dtype: Dtype,
) -> Result<Value, OpError> {
    let planes = r.ty(number)?.sizes[0];
    let end = r.call(
        "aten.full.default",
        [Arg::ints([planes, Expr::one()]), Arg::Int(size - window), Arg::Dtype(Dtype::I64)],
    )?;
    let (Some(room), Some(steps)) = ((size - window).as_int(), (count - 1).as_int()) else {
        return Err(r.args().unsupported("a symbolic size"));
    };
    if steps == 0 {
        return Ok(end);
    }
    // In the type of the elements, as eager mode's kernel has it.
    let rounded = |x: f64| Scalar::Float(x).rounded(dtype).as_f64();
    let stride = rounded(rounded(room as f64) / rounded(steps as f64));
    let at = r.call("aten.arange.default", [int(steps), Arg::Dtype(dtype)])?;
    let moved = r.add(number, at)?;
    let mut parts = [moved, number];
    for part in &mut parts {
        let scaled = r.scalar("aten.mul.Scalar", *part, stride)?;
        *part = r.convert(scaled, Dtype::I64)?;
    }
    let starts = r.sub(parts[0], parts[1])?;
    r.call("aten.cat.default", [Arg::List(vec![Arg::Value(starts), Arg::Value(end)]), int(1)])
}
