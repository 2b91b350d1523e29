//! Decomposes operators that are a few others and nothing more: products, sums without NaN, joined and flipped tensors.

use crate::args::Args;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose, pointwise};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::ops::split::at_least_sizes;
use crate::ops::terms::{dims_arg, float, int};
use crate::promote::Promote::{Common, Compare, RealFloat};
use crate::traits::Complex;
use crate::traits::Holds::When;
use litz_ir::dtype::Kind;
use litz_ir::graph::{Arg, TensorType, Value};
use litz_ir::schema::Effect;
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::Expr;
use std::f64::consts::{LN_2, PI};

/// Entries.
pub const OPS: &[OpDef] = &[
    // Of each element.
    pointwise("aten.isposinf.default", Compare, |p, v| Ok(is_literal(p, v[0], f64::INFINITY))),
    pointwise("aten.isneginf.default", Compare, |p, v| Ok(is_literal(p, v[0], f64::NEG_INFINITY))),
    pointwise("aten.isreal.default", Compare, |p, _| Ok(p.literal(Scalar::Bool(true), Dtype::Bool))),
    pointwise("aten.angle.default", RealFloat, |p, v| {
        let (zero, pi) = (p.lit(v[0], 0.0), p.lit(v[0], PI));
        let (negative, nan) = (p.lt(v[0], zero), p.ne(v[0], v[0]));
        let angle = p.select(negative, pi, zero);
        Ok(p.select(nan, v[0], angle))
    }),
    pointwise("aten.logaddexp2.default", Common, |p, v| {
        // max + log2(1 + 2^-|a - b|); equal infinities are themselves.
        let (max, difference, inf) = (p.max(v[0], v[1]), p.sub(v[0], v[1]), p.lit(v[0], f64::INFINITY));
        let distance = p.abs(difference);
        let down = p.neg(distance);
        let power = p.op(ScalarOp::Exp2, &[down]);
        let (log, unit) = (p.log1p(power), p.lit(v[0], 1.0 / LN_2));
        let rest = p.mul(log, unit);
        let (sum, size, equal) = (p.add(max, rest), p.abs(v[0]), p.eq(v[0], v[1]));
        let infinite = p.eq(size, inf);
        let same = p.and(equal, infinite);
        Ok(p.select(same, v[0], sum))
    }),
    pointwise("aten.remainder.Scalar_Tensor", Common, |p, v| Ok(p.op(ScalarOp::Mod, v))),
    decompose("aten.isclose.default", is_close).complex(Complex::Rewritten),
    // Products.
    decompose("aten.outer.default", |r| {
        let product = outer(r, "self", "vec2")?;
        Ok(vec![product])
    })
    .complex(Complex::Rewritten),
    decompose("aten.ger.default", |r| {
        let product = outer(r, "self", "vec2")?;
        Ok(vec![product])
    })
    .complex(Complex::Rewritten),
    decompose("aten.inner.default", inner).complex(Complex::Rewritten),
    decompose("aten.addr.default", |r| {
        let product = outer(r, "vec1", "vec2")?;
        Ok(vec![added(r, product)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.addbmm.default", |r| {
        let (a, b) = (r.args().tensor("batch1")?.value, r.args().tensor("batch2")?.value);
        let products = r.apply("aten.bmm.default", &[a, b])?;
        let sum = r.call("aten.sum.dim_IntList", [Arg::Value(products), dims_arg(&[0])])?;
        Ok(vec![added(r, sum)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.linalg_vecdot.default", |r| {
        let (x, y) = (r.args().tensor("x")?.value, r.args().tensor("y")?.value);
        let dim = r.args().get("dim").clone();
        let product = r.mul(x, y)?;
        let dtype = Arg::Dtype(r.ty(product)?.dtype);
        let args = [Arg::Value(product), Arg::List(vec![dim]), Arg::Bool(false), dtype];
        Ok(vec![r.call("aten.sum.dim_IntList", args)?])
    }),
    decompose("aten.linalg_cross.default", |r| {
        let dim = r.args().literal("dim")?;
        cross(r, dim)
    })
    .complex(Complex::Rewritten),
    decompose("aten.cross.default", |r| {
        let dim = match r.args().has("dim") {
            true => r.args().literal("dim")?,
            false => first_of_three(&r.args())?,
        };
        cross(r, dim)
    })
    .complex(Complex::Rewritten),
    decompose("aten.bilinear.default", bilinear),
    decompose("aten.linalg_matrix_power.default", matrix_power).complex(Complex::Rewritten),
    decompose("aten.matrix_power.default", matrix_power),
    decompose("aten.linalg_multi_dot.default", |r| chain(r, "tensors")).complex(Complex::Rewritten),
    decompose("aten.chain_matmul.default", |r| chain(r, "matrices")),
    // Sums.
    decompose("aten.trace.default", |r| {
        let x = r.args().tensor("self")?;
        if x.ty.rank() != 2 {
            return Err(r.args().invalid(format!("expected a matrix, found {}", x.ty)));
        }
        let diagonal = r.apply("aten.diagonal.default", &[x.value])?;
        Ok(vec![r.apply("aten.sum.default", &[diagonal])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.count_nonzero.default", count_nonzero).complex(Complex::Rewritten),
    decompose("aten.count_nonzero.dim_IntList", count_nonzero).complex(Complex::Rewritten),
    decompose("aten.nansum.default", |r| Ok(vec![nan_sum(r)?])),
    decompose("aten.nanmean.default", |r| {
        let sum = nan_sum(r)?;
        let x = r.args().tensor("self")?.value;
        let nan = r.apply("aten.isnan.default", &[x])?;
        let number = r.apply("aten.logical_not.default", &[nan])?;
        let (dims, keep) = (r.args().get("dim").clone(), r.args().get("keepdim").clone());
        let count = r.call("aten.sum.dim_IntList", [Arg::Value(number), dims, keep])?;
        Ok(vec![r.div(sum, count)?])
    }),
    decompose("aten.sum_to_size.default", sum_to_size).complex(Complex::Rewritten).alias(When(keeps_sizes)),
    decompose("aten.cumulative_trapezoid.dx", |r| {
        let dx = r.args().float("dx")?;
        let sums = neighbours(r)?;
        let areas = r.scalar("aten.mul.Scalar", sums, dx / 2.0)?;
        Ok(vec![running_sum(r, areas)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.cumulative_trapezoid.x", |r| {
        let (x, y) = (r.args().tensor("x")?, r.args().tensor("y")?);
        let at = r.args().dim("dim", y.ty.rank())?;
        let mut x_value = x.value;
        if x.ty.rank() == 1 && y.ty.rank() != 1 {
            let mut sizes = vec![Expr::one(); y.ty.rank()];
            sizes[at] = x.ty.sizes[0];
            x_value = r.reshape(x_value, sizes)?;
        }
        let from_end = at as i64 - r.args().tensor("y")?.ty.rank() as i64;
        let steps = r.call("aten.diff.default", [Arg::Value(x_value), int(1), int(from_end)])?;
        let sums = neighbours(r)?;
        let areas = r.mul(steps, sums)?;
        let areas = r.scalar("aten.div.Scalar", areas, 2.0)?;
        Ok(vec![running_sum(r, areas)?])
    })
    .complex(Complex::Rewritten),
    // Elements put elsewhere.
    decompose("aten.fliplr.default", |r| flipped(r, 1)).complex(Complex::Rewritten),
    decompose("aten.flipud.default", |r| flipped(r, 0)).complex(Complex::Rewritten),
    decompose("aten.column_stack.default", |r| {
        let mut columns = Vec::new();
        let tensors: Vec<_> = r.args().tensors("tensors")?.iter().map(|t| (t.value, t.ty.clone())).collect();
        for (value, ty) in tensors {
            let column = if ty.rank() < 2 { r.reshape(value, [ty.numel(), Expr::one()])? } else { value };
            columns.push(Arg::Value(column));
        }
        Ok(vec![r.call("aten.cat.default", [Arg::List(columns), int(1)])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.cartesian_prod.default", |r| {
        let tensors = r.args().get("tensors").clone();
        if let Some([only]) = tensors.as_list() {
            return Ok(vec![r.call("aten.alias.default", [only.clone()])?]);
        }
        let grids = r.call_all("aten.meshgrid.default", [tensors])?;
        let mut columns = Vec::new();
        for grid in grids.into_iter().flatten() {
            columns.push(Arg::Value(r.reshape(grid, [Expr::int(-1)])?));
        }
        Ok(vec![r.call("aten.stack.default", [Arg::List(columns), int(1)])?])
    })
    .complex(Complex::Rewritten)
    .alias(When(|_, args| Ok(args.tensors("tensors")?.len() == 1)))
    .effect(Effect::None),
    decompose("aten.atleast_1d.Sequence", |r| each_at_least(r, 1)).complex(Complex::Rewritten),
    decompose("aten.atleast_2d.Sequence", |r| each_at_least(r, 2)).complex(Complex::Rewritten),
    decompose("aten.atleast_3d.Sequence", |r| each_at_least(r, 3)).complex(Complex::Rewritten),
    decompose("aten.diagflat.default", |r| {
        let (x, offset) = (r.args().tensor("self")?.value, r.args().get("offset").clone());
        let flat = r.reshape(x, [Expr::int(-1)])?;
        Ok(vec![r.call("aten.diag_embed.default", [Arg::Value(flat), offset])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.diag.default", |r| {
        let (x, offset) = (r.args().tensor("self")?, r.args().get("diagonal").clone());
        let op = match x.ty.rank() {
            1 => "aten.diag_embed.default",
            2 => "aten.diagonal_copy.default",
            _ => return Err(r.args().invalid(format!("expected a vector or a matrix, found {}", x.ty))),
        };
        Ok(vec![r.call(op, [Arg::Value(x.value), offset])?])
    })
    .complex(Complex::Rewritten),
];

fn is_literal(
    p: &mut crate::body::Point<'_, '_>,
    x: litz_ir::loops::Val,
    number: f64,
) -> litz_ir::loops::Val {
    if !p.dtype.is_float() {
        return p.literal(Scalar::Bool(false), Dtype::Bool);
    }
    let number = p.lit(x, number);
    p.eq(x, number)
}

/// `|a - b| <= atol + |rtol * b|`, or equal; infinities are close to themselves alone.
fn is_close(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.require(|_, args| args.of_one_type(&["self", "other"]))?;
    let (a, b) = (r.args().tensor("self")?.value, r.args().tensor("other")?.value);
    let (rtol, atol) = (r.args().float("rtol")?, r.args().float("atol")?);
    if rtol < 0.0 || atol < 0.0 {
        return Err(r.args().invalid("tolerances are not negative"));
    }
    let mut close = r.apply("aten.eq.Tensor", &[a, b])?;
    let is_float = r.ty(a)?.dtype.is_float();
    if r.args().flag("equal_nan")? && (is_float || r.ty(a)?.dtype.kind() == Kind::Complex) {
        let (a_nan, b_nan) = (r.apply("aten.isnan.default", &[a])?, r.apply("aten.isnan.default", &[b])?);
        let both = r.apply("aten.logical_and.default", &[a_nan, b_nan])?;
        close = r.apply("aten.logical_or.default", &[close, both])?;
    }
    if rtol == 0.0 && atol == 0.0 {
        return Ok(vec![close]);
    }
    let is_complex = r.ty(a)?.dtype.kind() == Kind::Complex;
    let numbers = if is_float || is_complex { b } else { r.convert(b, Dtype::F32)? };
    let share = r.scalar("aten.mul.Scalar", numbers, rtol)?;
    let share = r.apply("aten.abs.default", &[share])?;
    let allowed = r.scalar("aten.add.Scalar", share, atol)?;
    // Integers and truth values are compared as floating numbers.
    let own = if r.ty(a)?.dtype == Dtype::Bool { r.convert(a, Dtype::F32)? } else { a };
    let difference = r.sub(own, numbers)?;
    let distance = r.apply("aten.abs.default", &[difference])?;
    let finite = r.apply("aten.isfinite.default", &[distance])?;
    let near = r.apply("aten.le.Tensor", &[distance, allowed])?;
    let near = r.apply("aten.logical_and.default", &[near, finite])?;
    Ok(vec![r.apply("aten.logical_or.default", &[close, near])?])
}

/// `a[i] * b[j]` of two vectors.
fn outer(r: &mut Rewriter<'_>, a: &str, b: &str) -> Result<Value, OpError> {
    let (a, b) = (r.args().tensor(a)?, r.args().tensor(b)?);
    if a.ty.rank() != 1 || b.ty.rank() != 1 {
        return Err(r.args().invalid(format!("expected vectors, found {} and {}", a.ty, b.ty)));
    }
    let (a, b) = (a.value, b.value);
    let column = r.call("aten.unsqueeze.default", [Arg::Value(a), int(1)])?;
    r.mul(column, b)
}

/// `beta * self + alpha * product`; what a `beta` of 0 leaves out may be no number. Factors of integers lose their fractions, those of
/// truth values say whether there is a term.
fn added(r: &mut Rewriter<'_>, product: Value) -> Result<Value, OpError> {
    let x = r.args().tensor("self")?.value;
    let TensorType { sizes, dtype, .. } = r.ty(product)?;
    let x = r.call("aten.expand.default", [Arg::Value(x), Arg::ints(sizes.clone())])?;
    if dtype.kind() == Kind::Complex {
        let factors = ["beta", "alpha"].map(|name| r.args().get(name).clone());
        return crate::complex::weighted(r, [x, product], factors);
    }
    // What calls alone give may be 0.
    let (factor, share) = (r.args().float("alpha")?, r.args().float("beta")?);
    if dtype == Dtype::Bool {
        let kept = |r: &mut Rewriter<'_>, term: Value, factor: f64| match factor == 0.0 {
            true => r.filled(sizes.clone(), 0.0, dtype),
            false => Ok(term),
        };
        let (x, product) = (kept(r, x, share)?, kept(r, product, factor)?);
        return r.apply("aten.logical_or.default", &[x, product]);
    }
    let is_int = dtype.is_int();
    let (factor, share) = if is_int { (factor.trunc(), share.trunc()) } else { (factor, share) };
    let scaled = |r: &mut Rewriter<'_>, x: Value, factor: f64, name: &str| {
        let given = if is_int { int(factor as i64) } else { r.args().get(name).clone() };
        if factor == 1.0 { Ok(x) } else { r.call("aten.mul.Scalar", [Arg::Value(x), given]) }
    };
    let product = scaled(r, product, factor, "alpha")?;
    if share == 0.0 {
        return r.apply("aten.clone.default", &[product]);
    }
    let x = scaled(r, x, share, "beta")?;
    r.add(x, product)
}

/// Products summed over the last dimensions; with a number, the product.
fn inner(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (r.args().tensor("self")?, r.args().tensor("other")?);
    let (ranks, values) = ([a.ty.rank(), b.ty.rank()], [a.value, b.value]);
    if ranks.contains(&0) {
        return Ok(vec![r.mul(values[0], values[1])?]);
    }
    let last = |rank: usize| Arg::List(vec![int(rank as i64 - 1)]);
    let args = [Arg::Value(values[0]), Arg::Value(values[1]), last(ranks[0]), last(ranks[1])];
    Ok(vec![r.call("aten.tensordot.default", args)?])
}

/// The first dimension of three coordinates.
fn first_of_three(args: &Args<'_>) -> Result<i64, OpError> {
    let ty = args.tensor("self")?.ty;
    let found = ty.sizes.iter().position(|size| size.as_int() == Some(3));
    let found = found.ok_or_else(|| args.invalid(format!("expected a dimension of size 3, found {ty}")))?;
    Ok(found as i64 - ty.rank() as i64)
}

/// `a[i + 1] b[i + 2] - a[i + 2] b[i + 1]` of three coordinates, `i` counted around.
fn cross(r: &mut Rewriter<'_>, dim: i64) -> Result<Vec<Value>, OpError> {
    let (a, b) = (r.args().tensor("self")?, r.args().tensor("other")?);
    if a.ty.rank() != b.ty.rank() || a.ty.rank() == 0 {
        return Err(r.args().invalid(format!("expected vectors of equal rank, found {} and {}", a.ty, b.ty)));
    }
    for ty in [a.ty, b.ty] {
        let at = crate::args::wrap_dim(dim, ty.rank()).ok_or_else(|| r.args().bad("dim", "a dimension"))?;
        if ty.sizes[at].as_int() != Some(3) {
            return Err(r.args().invalid(format!("expected size 3 along dimension {dim}, found {ty}")));
        }
    }
    let (a, b) = (a.value, b.value);
    let mut turned = |x: Value, by: i64| {
        r.call("aten.roll.default", [Arg::Value(x), Arg::List(vec![int(-by)]), Arg::List(vec![int(dim)])])
    };
    let (a1, a2, b1, b2) = (turned(a, 1)?, turned(a, 2)?, turned(b, 1)?, turned(b, 2)?);
    let (left, right) = (r.mul(a1, b2)?, r.mul(a2, b1)?);
    Ok(vec![r.sub(left, right)?])
}

/// `x1[.., i] weight[k, i, j] x2[.., j] + bias[k]`, summed over `i` and `j`.
fn bilinear(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (r.args().tensor("input1")?.value, r.args().tensor("input2")?.value);
    let weight = r.args().tensor("weight")?;
    let bias = r.args().opt_tensor("bias")?.map(|bias| bias.value);
    let &[outputs, left, right] = weight.ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected weights of three dimensions, found {}", weight.ty)));
    };
    let weight = weight.value;
    let rows = r.permute(weight, &[1, 0, 2])?;
    let rows = r.reshape(rows, [left, outputs * right])?;
    let by_left = r.apply("aten.matmul.default", &[a, rows])?;
    let mut sizes = r.ty(by_left)?.sizes;
    sizes.pop();
    sizes.extend([outputs, right]);
    let by_left = r.reshape(by_left, sizes)?;
    let b = r.call("aten.unsqueeze.default", [Arg::Value(b), int(-1)])?;
    let product = r.apply("aten.matmul.default", &[by_left, b])?;
    let product = r.call("aten.squeeze.dim", [Arg::Value(product), int(-1)])?;
    Ok(vec![match bias {
        Some(bias) => r.add(product, bias)?,
        None => product,
    }])
}

/// Powers of a matrix are written out by squaring: more steps than an exponent of 62 bits takes there are not.
fn matrix_power(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, mut n) = (r.args().tensor("self")?, r.args().literal("n")?);
    let (mut square, ty) = (x.value, x.ty.clone());
    let [.., rows, columns] = ty.sizes[..] else {
        return Err(r.args().invalid(format!("expected matrices, found {ty}")));
    };
    r.require(|cx, args| {
        let differs = |_| args.invalid(format!("expected square matrices, found {ty}"));
        cx.require(litz_sym::Rel::eq(rows, columns), args.op()).map_err(differs)
    })?;
    if n < 0 {
        square = r.apply("aten.linalg_inv.default", &[square])?;
        n = n.saturating_neg();
    }
    if n == 0 {
        let eye = r.call("aten.eye.default", [Arg::Int(rows), Arg::Dtype(ty.dtype)])?;
        let eye = r.call("aten.expand.default", [Arg::Value(eye), Arg::ints(ty.sizes)])?;
        return Ok(vec![r.call("aten.clone.default", [Arg::Value(eye), super::order::CONTIGUOUS])?]);
    }
    let (mut left, mut power) = (n, None);
    loop {
        if left % 2 == 1 {
            power = Some(match power {
                Some(power) => r.apply("aten.matmul.default", &[power, square])?,
                None => square,
            });
        }
        left /= 2;
        if left == 0 {
            break;
        }
        square = r.apply("aten.matmul.default", &[square, square])?;
    }
    let power = power.ok_or_else(|| r.args().bad("n", "a positive integer"))?;
    Ok(vec![if n == 1 { r.apply("aten.clone.default", &[power])? } else { power }])
}

/// The product of matrices, of which the first and the last may be vectors.
fn chain(r: &mut Rewriter<'_>, name: &str) -> Result<Vec<Value>, OpError> {
    let factors: Vec<Value> = r.args().tensors(name)?.iter().map(|t| t.value).collect();
    let [first, rest @ ..] = factors.as_slice() else {
        return Err(r.args().bad(name, "at least one tensor"));
    };
    let mut product = *first;
    for &factor in rest {
        product = r.apply("aten.matmul.default", &[product, factor])?;
    }
    Ok(vec![product])
}

fn count_nonzero(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?.value;
    let dims = match r.args().get("dim") {
        Arg::None => Arg::List(Vec::new()),
        list @ Arg::List(_) => list.clone(),
        dim => Arg::List(vec![dim.clone()]),
    };
    let counts = r.convert(x, Dtype::Bool)?;
    Ok(vec![r.call("aten.sum.dim_IntList", [Arg::Value(counts), dims])?])
}

/// The sum of what is a number.
fn nan_sum(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let mut x = r.args().tensor("self")?.value;
    if r.ty(x)?.dtype.is_float() {
        let nan = r.apply("aten.isnan.default", &[x])?;
        x = r.call("aten.masked_fill.Scalar", [Arg::Value(x), Arg::Value(nan), float(0.0)])?;
    }
    let [dims, keep, dtype] = ["dim", "keepdim", "dtype"].map(|name| r.args().get(name).clone());
    r.call("aten.sum.dim_IntList", [Arg::Value(x), dims, keep, dtype])
}

/// Whether nothing is summed, so that the result is the operand.
fn keeps_sizes(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<bool, OpError> {
    let (x, sizes) = (args.tensor("self")?.ty, args.ints("size")?);
    let is_same = |(&a, &b): (&Expr, &Expr)| crate::layout::same(cx.facts, a, b);
    // Without dimensions it is a sum, whatever there is to add up.
    Ok(!sizes.is_empty() && x.sizes.len() == sizes.len() && x.sizes.iter().zip(&sizes).all(is_same))
}

/// The sum over all dimensions that broadcasting the result would add or extend.
fn sum_to_size(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, sizes) = (r.args().tensor("self")?, r.args().ints("size")?);
    let (mut sum, ty) = (x.value, x.ty.clone());
    if sizes.is_empty() {
        return Ok(vec![r.apply("aten.sum.default", &[sum])?]);
    }
    let Some(lead) = ty.rank().checked_sub(sizes.len()) else {
        return Err(r.args().invalid(format!("{ty} has fewer dimensions than {sizes:?}")));
    };
    let is_summed = |d: usize| d < lead || sizes[d - lead].is_one() && !ty.sizes[d].is_one();
    let summed: Vec<usize> = (0..ty.rank()).filter(|&d| is_summed(d)).collect();
    r.require(|cx, args| {
        for d in (0..ty.rank()).filter(|d| !summed.contains(d)) {
            let differs = |_| args.invalid(format!("{ty} does not sum to {sizes:?}"));
            cx.require(litz_sym::Rel::eq(ty.sizes[d], sizes[d - lead]), args.op()).map_err(differs)?;
        }
        Ok(())
    })?;
    if summed.is_empty() {
        return Ok(vec![r.apply("aten.alias.default", &[sum])?]);
    }
    // Integers and truth values add up as any sum of them does.
    let is_whole = matches!(ty.dtype.kind(), Kind::Int | Kind::Bool);
    let dtype = if is_whole { Dtype::I64 } else { ty.dtype };
    let args = [Arg::Value(sum), dims_arg(&summed), Arg::Bool(true), Arg::Dtype(dtype)];
    sum = r.call("aten.sum.dim_IntList", args)?;
    if lead > 0 {
        sum = r.reshape(sum, sizes)?;
    }
    Ok(vec![sum])
}

/// `y[i] + y[i + 1]` along the argument `dim`.
fn neighbours(r: &mut Rewriter<'_>) -> Result<Value, OpError> {
    let y = r.args().tensor("y")?;
    if y.ty.rank() == 0 {
        return Err(r.args().invalid("a zero-dimensional tensor has no neighbours"));
    }
    let (at, value) = (r.args().dim("dim", y.ty.rank())?, y.value);
    let size = y.ty.sizes[at];
    let (earlier, later) =
        (r.slice(value, at, Expr::zero(), size - 1)?, r.slice(value, at, Expr::one(), size)?);
    r.add(earlier, later)
}

fn running_sum(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    let dim = r.args().get("dim").clone();
    r.call("aten.cumsum.default", [Arg::Value(x), dim])
}

fn flipped(r: &mut Rewriter<'_>, dim: usize) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    if x.ty.rank() <= dim {
        return Err(r.args().invalid(format!("expected at least {} dimensions, found {}", dim + 1, x.ty)));
    }
    let value = x.value;
    Ok(vec![r.call("aten.flip.default", [Arg::Value(value), dims_arg(&[dim])])?])
}

fn each_at_least(r: &mut Rewriter<'_>, rank: usize) -> Result<Vec<Value>, OpError> {
    let tensors: Vec<_> = r.args().tensors("tensors")?.iter().map(|t| (t.value, t.ty.clone())).collect();
    let mut results = Vec::with_capacity(tensors.len());
    for (value, ty) in tensors {
        results.push(match at_least_sizes(&ty, rank) {
            Some(sizes) => r.reshape(value, sizes)?,
            None => r.apply("aten.alias.default", &[value])?,
        });
    }
    Ok(results)
}
