//! Decomposes norms of matrices, and condition numbers, which are made of them.

use crate::args::wrap_dim;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::ops::terms::{dims_arg, float, int};
use litz_ir::graph::{Arg, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.linalg_matrix_norm.default", named_norm),
    decompose("aten.linalg_matrix_norm.str_ord", named_norm),
    decompose("aten.linalg_norm.default", any_norm),
    decompose("aten.linalg_norm.ord_str", any_norm),
    decompose("aten.nuclear_norm.default", |r| {
        let (x, keep) = (r.args().tensor("self")?.value, r.args().flag("keepdim")?);
        Ok(vec![norm(r, x, Order::Nuclear, [-2, -1], keep)?])
    }),
    decompose("aten.linalg_cond.default", |r| {
        let order = if r.args().has("p") { order(r, "p")? } else { Order::Number(2.0) };
        condition(r, order)
    }),
    decompose("aten.linalg_cond.p_str", |r| {
        let order = order(r, "p")?;
        condition(r, order)
    }),
];

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Frobenius,
    Nuclear,
    /// Of ±1 by columns, of ±2 by singular values, of infinities by rows.
    Number(f64),
}

fn order(r: &Rewriter<'_>, name: &str) -> Result<Order, OpError> {
    let args = r.args();
    match args.get(name) {
        Arg::Str(text) => match text.as_str() {
            "fro" => Ok(Order::Frobenius),
            "nuc" => Ok(Order::Nuclear),
            _ => Err(args.bad(name, "fro or nuc")),
        },
        _ => Ok(Order::Number(args.float(name)?)),
    }
}

/// The operand in the type that the norm is asked for in.
fn operand(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let x = r.args().tensor("self")?.value;
    match r.args().dtype("dtype")? {
        Some(dtype) => r.convert(x, dtype),
        None => Ok(x),
    }
}

fn named_norm(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (order, keep) = (order(r, "ord")?, r.args().flag("keepdim")?);
    let dims: Vec<i64> = r.args().ints("dim")?.iter().filter_map(|d| d.as_int()).collect();
    let &[rows, columns] = dims.as_slice() else { return Err(r.args().bad("dim", "two dimensions")) };
    let x = operand(r)?;
    Ok(vec![norm(r, x, order, [rows, columns], keep)?])
}

/// A norm of matrices where two dimensions are given, or an order and a matrix; of vectors otherwise.
fn any_norm(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let keep = r.args().flag("keepdim")?;
    let dims: Option<Vec<i64>> = match r.args().has("dim") {
        true => Some(r.args().ints("dim")?.iter().filter_map(|d| d.as_int()).collect()),
        false => None,
    };
    let x = operand(r)?;
    let is_matrix = match &dims {
        Some(dims) => dims.len() == 2,
        None => r.ty(x)?.rank() == 2,
    };
    if r.args().has("ord") && is_matrix {
        let order = order(r, "ord")?;
        let dims = match dims.as_deref() {
            Some(&[rows, columns]) => [rows, columns],
            _ => [-2, -1],
        };
        return Ok(vec![norm(r, x, order, dims, keep)?]);
    }
    let order = if r.args().has("ord") { r.args().float("ord")? } else { 2.0 };
    let dims = r.args().get("dim").clone();
    let args = [Arg::Value(x), float(order), dims, Arg::Bool(keep)];
    Ok(vec![r.call("aten.linalg_vector_norm.default", args)?])
}

fn norm(r: &mut Rewriter<'_>, x: Value, order: Order, dims: [i64; 2], keep: bool) -> Result<Value, OpError> {
    let ty = r.ty(x)?;
    let wrap = |dim: i64| wrap_dim(dim, ty.rank()).filter(|&d| d < ty.rank());
    let [Some(rows), Some(columns)] = dims.map(wrap) else {
        return Err(r.args().invalid(format!("expected matrices along {dims:?}, found {ty}")));
    };
    if rows == columns {
        return Err(r.args().bad("dim", "different dimensions"));
    }
    let both = dims_arg(&[rows, columns]);
    let reduce = |r: &mut Rewriter<'_>, op: &str, x: Value, dim: usize| {
        r.call(op, [Arg::Value(x), dims_arg(&[dim]), Arg::Bool(true)])
    };
    let extreme = |sign: f64| if sign > 0.0 { "aten.amax.default" } else { "aten.amin.default" };
    // As in eager, the largest of nothing is 0 here.
    if let Order::Number(order) = order
        && is_largest_of_none(order, ty.sizes[rows], ty.sizes[columns])
    {
        let reduced = |(d, &size): (usize, &Expr)| match d == rows || d == columns {
            true => keep.then(Expr::one),
            false => Some(size),
        };
        let sizes: Vec<Expr> = ty.sizes.iter().enumerate().filter_map(reduced).collect();
        return r.filled(sizes, 0.0, ty.dtype);
    }
    // Dimensions stay until the end.
    let kept = match order {
        Order::Frobenius => {
            let args = [Arg::Value(x), float(2.0), both.clone(), Arg::Bool(true)];
            r.call("aten.linalg_vector_norm.default", args)?
        }
        Order::Number(order) if order.abs() == 1.0 || order.is_infinite() => {
            let (summed, other) = if order.abs() == 1.0 { (rows, columns) } else { (columns, rows) };
            let sizes = r.apply("aten.abs.default", &[x])?;
            let sums = reduce(r, "aten.sum.dim_IntList", sizes, summed)?;
            reduce(r, extreme(order), sums, other)?
        }
        Order::Nuclear | Order::Number(2.0 | -2.0) => {
            let mut others: Vec<usize> = (0..ty.rank()).filter(|&d| d != rows && d != columns).collect();
            others.extend([rows, columns]);
            let turned = r.permute(x, &others)?;
            let values = r.apply("aten.linalg_svdvals.default", &[turned])?;
            let op = match order {
                Order::Number(order) => extreme(order),
                Order::Nuclear | Order::Frobenius => "aten.sum.dim_IntList",
            };
            let last = r.ty(values)?.rank() - 1;
            let mut norm = r.call(op, [Arg::Value(values), dims_arg(&[last]), Arg::Bool(false)])?;
            if !keep {
                return Ok(norm);
            }
            for dim in [rows.min(columns), rows.max(columns)] {
                norm = r.call("aten.unsqueeze.default", [Arg::Value(norm), int(dim as i64)])?;
            }
            return Ok(norm);
        }
        Order::Number(_) => return Err(r.args().bad("ord", "1, 2, inf, their opposites, fro or nuc")),
    };
    if keep { Ok(kept) } else { r.call("aten.squeeze.dims", [Arg::Value(kept), both]) }
}

/// Whether a norm of matrices of these sizes is the largest of no numbers.
fn is_largest_of_none(order: f64, rows: Expr, columns: Expr) -> bool {
    match order {
        1.0 => columns.is_zero(),
        2.0 => rows.is_zero() || columns.is_zero(),
        f64::INFINITY => rows.is_zero(),
        _ => false,
    }
}

/// The ratio of singular values, or the norm times that of the inverse; infinite where there is none.
fn condition(r: &mut Rewriter<'_>, order: Order) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (x, ty) = (x.value, x.ty.clone());
    if let [batch @ .., rows, columns] = ty.sizes.as_slice()
        && (rows.is_zero() || columns.is_zero())
    {
        return Ok(vec![r.filled(batch.iter().copied(), 0.0, ty.dtype)?]);
    }
    if let Order::Number(p) = order
        && p.abs() == 2.0
    {
        let values = r.apply("aten.linalg_svdvals.default", &[x])?;
        let last = r.ty(values)?.rank() - 1;
        let extreme = |r: &mut Rewriter<'_>, op: &str| r.call(op, [Arg::Value(values), dims_arg(&[last])]);
        let (high, low) = (extreme(r, "aten.amax.default")?, extreme(r, "aten.amin.default")?);
        return Ok(vec![if p > 0.0 { r.div(high, low)? } else { r.div(low, high)? }]);
    }
    let found = r.call_all("aten.linalg_inv_ex.default", [Arg::Value(x)])?;
    let [Some(inverse), Some(info)] = found[..] else {
        return Err(OpError::missing("aten.linalg_inv_ex.default"));
    };
    let (own, other) = (norm(r, x, order, [-2, -1], false)?, norm(r, inverse, order, [-2, -1], false)?);
    let product = r.mul(own, other)?;
    let singular = r.scalar("aten.gt.Scalar", info, 0.0)?;
    Ok(vec![r.call(
        "aten.masked_fill.Scalar",
        [Arg::Value(product), Arg::Value(singular), float(f64::INFINITY)],
    )?])
}
