//! Arrangements written with other operators: stacks along given dimensions, blocks, turns, tables of powers and pairs,
//! products of tensors.

use crate::args::wrap_dim;
use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::layout::{broadcast, not_negative};
use crate::traits::Complex;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Float, MemoryFormat, Value};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    decompose("aten.hstack.default", |r| {
        let parts = raised(r, 1)?;
        let vectors = parts.first().is_some_and(|&v| r.ty(v).is_ok_and(|ty| ty.rank() == 1));
        cat(r, parts, i64::from(!vectors))
    })
    .complex(Complex::Rewritten),
    decompose("aten.vstack.default", |r| {
        let parts = raised(r, 2)?;
        cat(r, parts, 0)
    })
    .complex(Complex::Rewritten),
    decompose("aten.dstack.default", |r| {
        let parts = raised(r, 3)?;
        cat(r, parts, 2)
    })
    .complex(Complex::Rewritten),
    decompose("aten.broadcast_tensors.default", broadcast_tensors).complex(Complex::Rewritten),
    decompose("aten.block_diag.default", block_diagonal).complex(Complex::Rewritten),
    decompose("aten.rot90.default", quarter_turns).complex(Complex::Rewritten),
    decompose("aten.glu.default", |r| {
        let halves = r.args().tensor("self")?;
        let (x, rank) = (halves.value, halves.ty.rank());
        let dim = r.args().dim("dim", rank)?;
        let Some(&size) = halves.ty.sizes.get(dim) else {
            return Err(r.args().invalid("a zero-dimensional tensor has no halves"));
        };
        r.require(|cx, args| {
            let odd = |_| args.invalid(format!("dimension {dim} of {size} has no halves"));
            cx.require(Rel::eq(size.modulo(2), 0), args.op()).map_err(odd)
        })?;
        let half = size.floordiv(2);
        let along = int(dim as i64);
        let piece = |start| [Arg::Value(x), along.clone(), Arg::Int(start), Arg::Int(half)];
        let own = r.call("aten.narrow.default", piece(Expr::zero()))?;
        let gate = r.call("aten.narrow.default", piece(half))?;
        let gate = r.apply("aten.sigmoid.default", &[gate])?;
        Ok(vec![r.apply("aten.mul.Tensor", &[own, gate])?])
    }),
    decompose("aten.vdot.default", |r| {
        let (a, b) = (r.args().tensor("self")?.value, r.args().tensor("other")?.value);
        Ok(vec![r.apply("aten.dot.default", &[a, b])?])
    }),
    decompose("aten.one_hot.default", one_hot),
    decompose("aten.isin.Tensor_Tensor", is_in),
    decompose("aten.vander.default", powers).complex(Complex::Rewritten),
    decompose("aten.combinations.default", combinations).complex(Complex::Rewritten),
    decompose("aten.kron.default", kronecker).complex(Complex::Rewritten),
    decompose("aten.tensordot.default", tensordot).complex(Complex::Rewritten),
    decompose("aten.trapz.dx", trapezoids).complex(Complex::Rewritten),
    decompose("aten.trapezoid.dx", trapezoids).complex(Complex::Rewritten),
    decompose("aten.trapz.x", trapezoids_between).complex(Complex::Rewritten),
    decompose("aten.trapezoid.x", trapezoids_between).complex(Complex::Rewritten),
];

fn int(i: i64) -> Arg {
    Arg::Int(Expr::int(i))
}

fn reshape(r: &mut Rewriter<'_>, x: Value, sizes: impl IntoIterator<Item = Expr>) -> Result<Value, OpError> {
    r.call("aten.reshape.default", [Arg::Value(x), Arg::ints(sizes)])
}

fn cat(r: &mut Rewriter<'_>, parts: Vec<Value>, dim: i64) -> Result<Vec<Value>, OpError> {
    let parts = Arg::List(parts.into_iter().map(Arg::Value).collect());
    Ok(vec![r.call("aten.cat.default", [parts, int(dim)])?])
}

fn tensors(r: &Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    Ok(r.args().tensors("tensors")?.iter().map(|t| t.value).collect())
}

/// The tensors with at least `rank` dimensions, as `atleast_1d`, `atleast_2d` and `atleast_3d`.
fn raised(r: &mut Rewriter<'_>, rank: usize) -> Result<Vec<Value>, OpError> {
    let mut parts = Vec::new();
    for x in tensors(r)? {
        let own = r.ty(x)?.sizes;
        let one = Expr::one();
        let sizes = match (own.as_slice(), rank) {
            ([], _) => vec![one; rank],
            (&[n], 2) => vec![one, n],
            (&[n], 3) => vec![one, n, one],
            (&[h, w], 3) => vec![h, w, one],
            _ => own.clone(),
        };
        parts.push(if sizes == own { x } else { reshape(r, x, sizes)? });
    }
    Ok(parts)
}

fn broadcast_tensors(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let parts = tensors(r)?;
    let shapes = parts.iter().map(|&v| Ok(r.ty(v)?.sizes)).collect::<Result<Vec<_>, OpError>>()?;
    let shapes: Vec<&[Expr]> = shapes.iter().map(Vec::as_slice).collect();
    let sizes = broadcast(&mut r.infer_cx(), &shapes, "aten.broadcast_tensors.default")?;
    let expand = |&x: &Value| r.call("aten.expand.default", [Arg::Value(x), Arg::ints(sizes.clone())]);
    parts.iter().map(expand).collect()
}

/// Matrices along the diagonal: each padded to the full width, one below the other.
fn block_diagonal(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let parts = raised(r, 2)?;
    if let Some(&x) = parts.iter().find(|&&x| r.ty(x).is_ok_and(|ty| ty.rank() != 2)) {
        return Err(r.args().invalid(format!("expected matrices, found {}", r.ty(x)?)));
    }
    let mut width = Expr::zero();
    for &x in &parts {
        width = width + *r.ty(x)?.sizes.last().unwrap_or(&Expr::one());
    }
    let (mut rows, mut before) = (Vec::new(), Expr::zero());
    for x in parts {
        let own = *r.ty(x)?.sizes.last().unwrap_or(&Expr::one());
        let pads = Arg::ints([before, width - before - own]);
        rows.push(r.call("aten.constant_pad_nd.default", [Arg::Value(x), pads])?);
        before = before + own;
    }
    cat(r, rows, 0)
}

/// Turns by quarters in the plane of two dimensions: a flip, a transposition, or both.
fn quarter_turns(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (x, rank) = (x.value, x.ty.rank());
    let dims = r.args().dims("dims", rank)?;
    let &[a, b] = dims.as_slice() else { return Err(r.args().bad("dims", "two dimensions")) };
    let turns = r.args().literal("k")?.rem_euclid(4);
    let flipped: &[usize] = match turns {
        0 => return Ok(vec![r.call("aten.clone.default", [Arg::Value(x), CONTIGUOUS])?]),
        1 => &[b],
        2 => &[a, b],
        _ => &[a],
    };
    let dims = Arg::ints(flipped.iter().map(|&d| Expr::int(d as i64)));
    let flipped = r.call("aten.flip.default", [Arg::Value(x), dims])?;
    if turns == 2 {
        return Ok(vec![flipped]);
    }
    Ok(vec![r.call("aten.transpose.int", [Arg::Value(flipped), int(a as i64), int(b as i64)])?])
}

const CONTIGUOUS: Arg = Arg::MemoryFormat(MemoryFormat::Contiguous);

fn one_hot(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    r.args().of_types("self", &[Dtype::I64])?;
    let (x, classes) = (r.args().tensor("self")?.value, r.args().int("num_classes")?);
    if classes.as_int().is_some_and(|n| n < 0) {
        return Err(r.args().unsupported("a number of classes that depends on data"));
    }
    let range = r.call("aten.arange.default", [Arg::Int(classes)])?;
    let column = r.call("aten.unsqueeze.default", [Arg::Value(x), int(-1)])?;
    let hot = r.apply("aten.eq.Tensor", &[column, range])?;
    let format = [Arg::Value(hot), Arg::Dtype(Dtype::I64)];
    Ok(vec![r.call("aten._to_copy.default", format)?])
}

/// Whether any of the test elements equals each element.
fn is_in(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, tests) = (r.args().tensor("elements")?.value, r.args().tensor("test_elements")?.value);
    let column = r.call("aten.unsqueeze.default", [Arg::Value(x), int(-1)])?;
    let tests = reshape(r, tests, [Expr::int(-1)])?;
    let equal = r.apply("aten.eq.Tensor", &[column, tests])?;
    let found = r.call("aten.any.dim", [Arg::Value(equal), int(-1)])?;
    if r.args().flag("invert")? {
        return Ok(vec![r.apply("aten.logical_not.default", &[found])?]);
    }
    Ok(vec![found])
}

/// `x[i]` to the powers `0 .. n`, descending unless asked otherwise.
fn powers(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("x")?;
    vector(r, "x")?;
    let (x, length) = (x.value, x.ty.numel());
    let n = r.args().opt_int("N")?.unwrap_or(length);
    r.require(|cx, args| not_negative(cx, args, &[n]))?;
    let increasing = r.args().flag("increasing")?;
    let exponents = if increasing {
        r.call("aten.arange.default", [Arg::Int(n)])?
    } else {
        r.call("aten.arange.start_step", [Arg::Int(n - 1), int(-1), int(-1)])?
    };
    let column = r.call("aten.unsqueeze.default", [Arg::Value(x), int(-1)])?;
    Ok(vec![r.apply("aten.pow.Tensor_Tensor", &[column, exponents])?])
}

/// The argument is a vector.
fn vector(r: &Rewriter<'_>, name: &str) -> Result<(), OpError> {
    let ty = r.args().tensor(name)?.ty.clone();
    if ty.rank() == 1 { Ok(()) } else { Err(r.args().invalid(format!("expected a vector, found {ty}"))) }
}

/// Rows of `r` elements in order of position: for each first, itself beside all rows of one less of those that follow.
fn combinations(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    vector(r, "self")?;
    let x = r.args().tensor("self")?;
    let (x, length, dtype) = (x.value, x.ty.numel(), x.ty.dtype);
    let (width, skip) = (r.args().literal("r")?, usize::from(!r.args().flag("with_replacement")?));
    let length = length.as_int().and_then(|length| usize::try_from(length).ok());
    let length = length.ok_or_else(|| r.args().unsupported("a symbolic number of elements"))?;
    if width < 0 {
        return Err(r.args().bad("r", "a number of elements"));
    }
    if width == 0 {
        return Ok(vec![r.nothing(dtype)?]);
    }
    let column = reshape(r, x, [Expr::int(length as i64), Expr::one()])?;
    if width == 1 {
        return Ok(vec![r.call("aten.clone.default", [Arg::Value(column), CONTIGUOUS])?]);
    }
    // Each element begins rows of its own.
    r.room_for(length)?;
    // How many rows begin at each position or behind it: they are the last ones.
    let mut rows = column;
    let mut counts: Vec<i64> = (0..=length as i64).rev().collect();
    for _ in 1..width {
        let (total, mut parts, mut begun) = (counts[0], Vec::new(), vec![0; length + 1]);
        for (first, begun) in begun.iter_mut().enumerate().take(length) {
            *begun = counts.get(first + skip).copied().unwrap_or(0);
            if *begun == 0 {
                continue;
            }
            let count = int(*begun);
            let start = int(total - *begun);
            let rest = r.call("aten.narrow.default", [Arg::Value(rows), int(0), start, count.clone()])?;
            let own =
                r.call("aten.narrow.default", [Arg::Value(column), int(0), int(first as i64), int(1)])?;
            let own = r.call("aten.expand.default", [Arg::Value(own), Arg::List(vec![count, int(1)])])?;
            parts.extend(cat(r, vec![own, rest], 1)?);
        }
        for first in (0..length).rev() {
            let sum = begun[first].checked_add(begun[first + 1]);
            begun[first] = sum.ok_or_else(|| r.args().unsupported("so many rows"))?;
        }
        counts = begun;
        if parts.is_empty() {
            return Ok(vec![r.filled([Expr::zero(), Expr::int(width)], 0.0, dtype)?]);
        }
        rows = cat(r, parts, 0)?[0];
    }
    Ok(vec![r.call("aten.clone.default", [Arg::Value(rows), CONTIGUOUS])?])
}

/// All products of an element of each: `[a0, 1, a1, 1, ..] * [1, b0, 1, b1, ..]`, joined in pairs.
fn kronecker(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (r.args().tensor("self")?.value, r.args().tensor("other")?.value);
    let (mut own, mut other) = (r.ty(a)?.sizes, r.ty(b)?.sizes);
    let rank = own.len().max(other.len());
    own.splice(0..0, vec![Expr::one(); rank - own.len()]);
    other.splice(0..0, vec![Expr::one(); rank - other.len()]);
    let a = reshape(r, a, own.iter().flat_map(|&n| [n, Expr::one()]))?;
    let b = reshape(r, b, other.iter().flat_map(|&n| [Expr::one(), n]))?;
    let product = r.apply("aten.mul.Tensor", &[a, b])?;
    Ok(vec![reshape(r, product, own.iter().zip(&other).map(|(&n, &m)| n * m))?])
}

/// The sum along a dimension, which stays.
fn summed(r: &mut Rewriter<'_>, x: Value, dim: usize) -> Result<Value, OpError> {
    let (dims, dtype) = (Arg::ints([Expr::int(dim as i64)]), r.ty(x)?.dtype);
    r.call("aten.sum.dim_IntList", [Arg::Value(x), dims, Arg::Bool(true), Arg::Dtype(dtype)])
}

/// A matrix product over the dimensions that are paired.
fn tensordot(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (r.args().tensor("self")?, r.args().tensor("other")?);
    let (mut a, mut own, mut b, mut other) = (a.value, a.ty.sizes.clone(), b.value, b.ty.sizes.clone());
    let (over_a, over_b) =
        (r.args().dims("dims_self", own.len())?, r.args().dims("dims_other", other.len())?);
    if over_a.len() != over_b.len() {
        return Err(r.args().invalid("expected as many dimensions of both"));
    }
    // A dimension that one operand has once goes with all of the other's: their sum.
    for (&d, &e) in over_a.iter().zip(&over_b) {
        match (own[d].is_one(), other[e].is_one()) {
            (true, false) => (b, other[e]) = (summed(r, b, e)?, Expr::one()),
            (false, true) => (a, own[d]) = (summed(r, a, d)?, Expr::one()),
            (true, true) | (false, false) => {
                let (left, right) = (own[d], other[e]);
                r.require(|cx, args| {
                    let differs =
                        |_| args.invalid(format!("paired dimensions are of sizes {left} and {right}"));
                    cx.require(Rel::eq(left, right), args.op()).map_err(differs)
                })?;
            }
        }
    }
    let free = |rank: usize, over: &[usize]| (0..rank).filter(|d| !over.contains(d)).collect::<Vec<_>>();
    let (free_a, free_b) = (free(own.len(), &over_a), free(other.len(), &over_b));
    let size = |sizes: &[Expr], dims: &[usize]| dims.iter().map(|&d| sizes[d]).product::<Expr>();
    let order = |dims: Vec<usize>| Arg::ints(dims.into_iter().map(|d| Expr::int(d as i64)));
    let left = r.call("aten.permute.default", [Arg::Value(a), order([&free_a[..], &over_a].concat())])?;
    let right = r.call("aten.permute.default", [Arg::Value(b), order([&over_b[..], &free_b].concat())])?;
    let left = reshape(r, left, [size(&own, &free_a), size(&own, &over_a)])?;
    let right = reshape(r, right, [size(&other, &over_b), size(&other, &free_b)])?;
    let product = r.apply("aten.mm.default", &[left, right])?;
    let sizes = free_a.iter().map(|&d| own[d]).chain(free_b.iter().map(|&d| other[d]));
    Ok(vec![reshape(r, product, sizes)?])
}

/// The area under a line: `dx` times the sum, the ends counting half.
fn trapezoids(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let y = r.args().tensor("y")?;
    let (y, sizes) = (y.value, y.ty.sizes.clone());
    let dim = wrap_dim(r.args().literal("dim")?, sizes.len()).filter(|&d| d < sizes.len());
    let at = dim.ok_or_else(|| r.args().bad("dim", "a dimension"))?;
    let (dx, along) = (r.args().float("dx")?, int(at as i64));
    let piece = |start: Expr| [Arg::Value(y), along.clone(), Arg::Int(start), Arg::Int(sizes[at] - 1)];
    let first = r.call("aten.narrow.default", piece(Expr::zero()))?;
    let second = r.call("aten.narrow.default", piece(Expr::one()))?;
    let both = r.apply("aten.add.Tensor", &[first, second])?;
    let sum = r.call("aten.sum.dim_IntList", [Arg::Value(both), Arg::List(vec![along.clone()])])?;
    Ok(vec![r.call("aten.mul.Scalar", [Arg::Value(sum), Arg::Float(Float(dx / 2.0))])?])
}

/// The area under a line with corners at `x`: each step times the mean of its ends.
fn trapezoids_between(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (y, x) = (r.args().tensor("y")?, r.args().tensor("x")?);
    let (sizes, own) = (y.ty.sizes.clone(), x.ty.sizes.clone());
    let (y, mut x) = (y.value, x.value);
    let dim = wrap_dim(r.args().literal("dim")?, sizes.len()).filter(|&d| d < sizes.len());
    let at = dim.ok_or_else(|| r.args().bad("dim", "a dimension"))?;
    if own.len() != 1 && own.len() != sizes.len() {
        return Err(r.args().unsupported("coordinates of another rank"));
    }
    // A vector goes along the dimension.
    if own.len() == 1 {
        let mut shape = vec![Expr::one(); sizes.len()];
        shape[at] = own[0];
        x = reshape(r, x, shape)?;
    }
    let along = int(at as i64);
    let ends = |r: &mut Rewriter<'_>, x: Value| {
        let size = r.ty(x)?.sizes[at];
        let piece = |start: Expr| [Arg::Value(x), along.clone(), Arg::Int(start), Arg::Int(size - 1)];
        let first = r.call("aten.narrow.default", piece(Expr::zero()))?;
        Ok((first, r.call("aten.narrow.default", piece(Expr::one()))?))
    };
    let ((x0, x1), (y0, y1)) = (ends(r, x)?, ends(r, y)?);
    let (width, height) = (r.apply("aten.sub.Tensor", &[x1, x0])?, r.apply("aten.add.Tensor", &[y0, y1])?);
    let areas = r.apply("aten.mul.Tensor", &[width, height])?;
    let sum = r.call("aten.sum.dim_IntList", [Arg::Value(areas), Arg::List(vec![along])])?;
    Ok(vec![r.scalar("aten.div.Scalar", sum, 2.0)?])
}
