//! Decomposes what factorizations of matrices say: solutions, inverses, determinants, ranks, norms.

use crate::decompose::Rewriter;
use crate::def::{OpDef, decompose};
use crate::error::OpError;
use crate::ops::order::CONTIGUOUS;
use crate::ops::terms::{dims_arg, float, int};
use crate::promote::real_of;
use crate::traits::Complex;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, TensorType, Value};
use litz_sym::Expr;

/// Entries.
pub const OPS: &[OpDef] = &[
    // Solutions.
    decompose("aten.linalg_solve_ex.default", |r| {
        r.args().flag("check_errors").and_then(|checks| refuse_checks(r, checks))?;
        solve(r)
    })
    .complex(Complex::Rewritten),
    decompose("aten.linalg_solve.default", |r| Ok(vec![checked(r, solve)?])).complex(Complex::Rewritten),
    decompose("aten.linalg_inv_ex.default", |r| {
        r.args().flag("check_errors").and_then(|checks| refuse_checks(r, checks))?;
        invert(r)
    })
    .complex(Complex::Rewritten),
    decompose("aten.linalg_inv.default", |r| Ok(vec![checked(r, invert)?])).complex(Complex::Rewritten),
    decompose("aten.inverse.default", |r| Ok(vec![checked(r, invert)?])).complex(Complex::Rewritten),
    decompose("aten.lu_solve.default", |r| {
        let [b, factors, pivots] = ["self", "LU_data", "LU_pivots"].map(|name| r.args().get(name).clone());
        Ok(vec![r.call("aten.linalg_lu_solve.default", [factors, pivots, b])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.linalg_lu.default", |r| {
        let (a, pivot) = (r.args().get("A").clone(), r.args().get("pivot").clone());
        let factors = r.call_all("aten.linalg_lu_factor_ex.default", [a, pivot])?;
        let parts = [factors[0], factors[1]].into_iter().flatten().map(Arg::Value).collect::<Vec<_>>();
        Ok(r.call_all("aten.lu_unpack.default", parts)?.into_iter().flatten().collect())
    }),
    decompose("aten.triangular_solve.default", |r| {
        let (mut a, b) = (r.args().tensor("A")?.value, r.args().tensor("self")?.value);
        let (upper, transposed) = (r.args().flag("upper")?, r.args().flag("transpose")?);
        let unit = r.args().get("unitriangular").clone();
        let coefficients = a;
        if transposed {
            a = r.transpose(a, -2, -1)?;
        }
        let args = [Arg::Value(a), Arg::Value(b), Arg::Bool(upper != transposed), Arg::Bool(true), unit];
        let solution = r.call("aten.linalg_solve_triangular.default", args)?;
        let batch = batch_of(&r.ty(solution)?);
        let own = r.ty(coefficients)?;
        let sizes = [batch, own.sizes[own.rank() - 2..].to_vec()].concat();
        let copies = r.call("aten.expand.default", [Arg::Value(coefficients), Arg::ints(sizes)])?;
        Ok(vec![solution, by_columns(r, copies)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.cholesky_solve.default", |r| {
        let (b, factor, upper) =
            (r.args().tensor("self")?.value, r.args().tensor("input2")?.value, r.args().flag("upper")?);
        Ok(vec![solve_by_root(r, factor, b, upper)?])
    }),
    decompose("aten.cholesky_inverse.default", |r| {
        let (factor, upper) = (r.args().tensor("self")?, r.args().flag("upper")?);
        let (factor, ty) = (factor.value, factor.ty.clone());
        let eye = identity(r, &ty)?;
        Ok(vec![solve_by_root(r, factor, eye, upper)?])
    }),
    decompose("aten.linalg_tensorsolve.default", tensor_solve).complex(Complex::Rewritten),
    decompose("aten.linalg_tensorinv.default", tensor_inverse).complex(Complex::Rewritten),
    decompose("aten.cholesky.default", |r| {
        let (x, upper) = (r.args().get("self").clone(), r.args().get("upper").clone());
        Ok(vec![r.call("aten.linalg_cholesky.default", [x, upper])?])
    }),
    // Orthogonal factors.
    decompose("aten.qr.default", |r| {
        let mode = if r.args().flag("some")? { "reduced" } else { "complete" };
        let args = [r.args().get("self").clone(), Arg::Str(mode.to_owned())];
        Ok(r.call_all("aten.linalg_qr.default", args)?.into_iter().flatten().collect())
    }),
    decompose("aten.svd.default", |r| {
        let (x, is_full) = (r.args().tensor("self")?, !r.args().flag("some")?);
        let (x, ty) = (x.value, x.ty.clone());
        if r.args().flag("compute_uv")? {
            let found = r.call_all("aten.linalg_svd.default", [Arg::Value(x), Arg::Bool(is_full)])?;
            let [Some(left), Some(values), Some(right)] = found[..] else {
                return Err(OpError::missing("aten.linalg_svd.default"));
            };
            return Ok(vec![left, values, r.transpose(right, -2, -1)?]);
        }
        // Without vectors there are zeros in the place of all of them.
        let &[.., rows, columns] = ty.sizes.as_slice() else {
            return Err(r.args().invalid(format!("expected matrices, found {ty}")));
        };
        let values = r.apply("aten.linalg_svdvals.default", &[x])?;
        let zeros = |r: &mut Rewriter<'_>, size: Expr| {
            r.filled([batch_of(&ty), vec![size, size]].concat(), 0.0, ty.dtype)
        };
        let (left, right) = (zeros(r, rows)?, zeros(r, columns)?);
        Ok(vec![left, values, r.transpose(right, -2, -1)?])
    }),
    decompose("aten.linalg_qr.default", orthogonal),
    decompose("aten.ormqr.default", |r| {
        let (vectors, scales) = (r.args().tensor("self")?, r.args().get("input2").clone());
        let (ty, other) = (vectors.ty.clone(), r.args().tensor("input3")?.value);
        let vectors = with_columns(r, vectors.value, &ty)?;
        let mut q = r.call("aten.linalg_householder_product.default", [Arg::Value(vectors), scales])?;
        if r.args().flag("transpose")? {
            q = r.transpose(q, -2, -1)?;
        }
        let factors = if r.args().flag("left")? { [q, other] } else { [other, q] };
        let product = r.apply("aten.matmul.default", &factors)?;
        Ok(vec![by_columns(r, product)?])
    }),
    // Determinants.
    decompose("aten.linalg_det.default", |r| {
        let (factors, pivots) = factorized(r, "A")?;
        let diagonal = diagonal(r, factors)?;
        let product = r.call("aten.prod.dim_int", [Arg::Value(diagonal), int(-1)])?;
        let sign = parity(r, pivots, factors)?;
        Ok(vec![r.mul(product, sign)?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.det.default", |r| {
        let x = r.args().tensor("self")?.value;
        Ok(vec![r.apply("aten.linalg_det.default", &[x])?])
    })
    .complex(Complex::Rewritten),
    decompose("aten.linalg_slogdet.default", |r| logarithm_of_determinant(r, "A"))
        .complex(Complex::Rewritten),
    decompose("aten.slogdet.default", |r| logarithm_of_determinant(r, "self")).complex(Complex::Rewritten),
    decompose("aten.logdet.default", |r| {
        let [sign, log] = logarithm_of_determinant(r, "self")?[..] else {
            return Err(OpError::missing("aten.linalg_slogdet.default"));
        };
        let negative = r.scalar("aten.lt.Scalar", sign, 0.0)?;
        Ok(vec![r.call("aten.masked_fill.Scalar", [Arg::Value(log), Arg::Value(negative), float(f64::NAN)])?])
    }),
    // Singular values.
    decompose("aten.linalg_pinv.atol_rtol_tensor", |r| pseudoinverse(r, None)),
    decompose("aten.linalg_pinv.atol_rtol_float", |r| pseudoinverse(r, None)),
    decompose("aten.linalg_pinv.default", |r| {
        let rcond = r.args().float("rcond")?;
        pseudoinverse(r, Some(rcond))
    }),
    decompose("aten.pinverse.default", |r| {
        let rcond = r.args().float("rcond")?;
        pseudoinverse(r, Some(rcond))
    }),
    decompose("aten.linalg_matrix_rank.atol_rtol_tensor", |r| matrix_rank(r, "input")),
    decompose("aten.linalg_matrix_rank.atol_rtol_float", |r| matrix_rank(r, "self")),
    decompose("aten.linalg_polar.default", |r| {
        // U and H of U S V^T: U V^T, and V S V^T.
        let x = r.args().tensor("A")?.value;
        let [left, values, right] = singular(r, x)?;
        let turned = r.transpose(right, -2, -1)?;
        let scaled = scaled_columns(r, turned, values)?;
        Ok(vec![
            r.apply("aten.matmul.default", &[left, right])?,
            r.apply("aten.matmul.default", &[scaled, right])?,
        ])
    }),
    decompose("aten.linalg_matrix_sqrth.default", |r| {
        let x = r.args().tensor("self")?.value;
        let found = r.call_all("litz.eigh.default", [Arg::Value(x)])?;
        let [Some(values), Some(vectors)] = found[..] else {
            return Err(OpError::missing("litz.eigh.default"));
        };
        let roots = r.apply("aten.sqrt.default", &[values])?;
        let scaled = scaled_columns(r, vectors, roots)?;
        let turned = r.transpose(vectors, -2, -1)?;
        Ok(vec![r.apply("aten.matmul.default", &[scaled, turned])?])
    }),
];

fn refuse_checks(r: &Rewriter<'_>, checks: bool) -> Result<(), OpError> {
    if checks { Err(r.args().unsupported("a check for errors of what returns them")) } else { Ok(()) }
}

fn batch_of(ty: &TensorType) -> Vec<Expr> {
    ty.sizes[..ty.rank().saturating_sub(2)].to_vec()
}

/// The elements with columns together in memory.
fn by_columns(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    let turned = r.transpose(x, -2, -1)?;
    let turned = r.call("aten.clone.default", [Arg::Value(turned), CONTIGUOUS])?;
    r.transpose(turned, -2, -1)
}

/// A unit matrix for each of a batch.
fn identity(r: &mut Rewriter<'_>, ty: &TensorType) -> Result<Value, OpError> {
    let &[.., rows, _] = ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected matrices, found {ty}")));
    };
    let eye = r.call("aten.eye.default", [Arg::Int(rows), Arg::Dtype(ty.dtype)])?;
    let sizes = [batch_of(ty), vec![rows, rows]].concat();
    r.call("aten.expand.default", [Arg::Value(eye), Arg::ints(sizes)])
}

/// The first of two results, and a check that the second, which is an info of LAPACK, is 0.
fn checked(
    r: &mut Rewriter<'_>,
    of: fn(&mut Rewriter<'_>) -> Result<Vec<Value>, OpError>,
) -> Result<Value, OpError> {
    let [result, info] = of(r)?[..] else { return Err(OpError::missing("an info")) };
    let fine = r.call("aten.eq.Scalar", [Arg::Value(info), int(0)])?;
    let fine = r.apply("aten.all.default", &[fine])?;
    let message = format!("{}: the matrix is singular", r.args().op());
    r.call_all("aten._assert_async.msg", [Arg::Value(fine), Arg::Str(message)])?;
    Ok(result)
}

/// What solves `A X = B`, or `X A = B`, and the infos of the factorization. B is a vector where it has one dimension, or as
/// many as the batch of A.
fn solve(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b, left) = (r.args().tensor("A")?, r.args().tensor("B")?, r.args().flag("left")?);
    let (a, own, mut b, other) = (a.value, a.ty.clone(), b.value, b.ty.clone());
    let is_vector =
        other.rank() == 1 || own.rank() == other.rank() + 1 && own.sizes[..own.rank() - 1] == other.sizes[..];
    if is_vector {
        if !left {
            return Err(r.args().invalid("a vector stands on the right"));
        }
        b = r.call("aten.unsqueeze.default", [Arg::Value(b), int(-1)])?;
    }
    let factors = r.call_all("aten.linalg_lu_factor_ex.default", [Arg::Value(a)])?;
    let [Some(lu), Some(pivots), Some(info)] = factors[..] else {
        return Err(OpError::missing("aten.linalg_lu_factor_ex.default"));
    };
    let args = [Arg::Value(lu), Arg::Value(pivots), Arg::Value(b), Arg::Bool(left)];
    let mut solution = r.call("aten.linalg_lu_solve.default", args)?;
    if is_vector {
        solution = r.call("aten.squeeze.dim", [Arg::Value(solution), int(-1)])?;
        // As in eager, which takes a batch of vectors for a matrix here.
        if r.ty(solution)?.rank() > 1 {
            solution = by_columns(r, solution)?;
        }
    }
    Ok(vec![solution, info])
}

fn invert(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let a = r.args().tensor("A").or_else(|_| r.args().tensor("self"))?;
    let (a, ty) = (a.value, a.ty.clone());
    let eye = identity(r, &ty)?;
    let results = r.call_all("aten.linalg_solve_ex.default", [Arg::Value(a), Arg::Value(eye)])?;
    Ok(results.into_iter().flatten().collect())
}

/// What solves `L L^T X = B`, or `U^T U X = B`.
fn solve_by_root(r: &mut Rewriter<'_>, factor: Value, b: Value, upper: bool) -> Result<Value, OpError> {
    let turned = r.transpose(factor, -2, -1)?;
    let (lower, upper) = if upper { (turned, factor) } else { (factor, turned) };
    let first = [Arg::Value(lower), Arg::Value(b), Arg::Bool(false)];
    let half = r.call("aten.linalg_solve_triangular.default", first)?;
    let second = [Arg::Value(upper), Arg::Value(half), Arg::Bool(true)];
    r.call("aten.linalg_solve_triangular.default", second)
}

/// What a tensor is of the other: matrices of all dimensions that go into the sum.
fn tensor_solve(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, b) = (r.args().tensor("self")?, r.args().tensor("other")?);
    let (mut a, rank, b, other) = (a.value, a.ty.rank(), b.value, b.ty.clone());
    if r.args().has("dims") {
        let moved = r.args().dims("dims", rank)?;
        let order: Vec<usize> =
            (0..rank).filter(|d| !moved.contains(d)).chain(moved.iter().copied()).collect();
        a = r.permute(a, &order)?;
    }
    let ty = r.ty(a)?;
    let Some(unknowns) = ty.sizes.get(other.rank()..) else {
        return Err(r.args().invalid(format!("expected more dimensions than {other} has, found {ty}")));
    };
    let unknowns = unknowns.to_vec();
    let count: Expr = unknowns.iter().copied().product();
    let matrix = r.reshape(a, [other.numel(), count])?;
    let right = r.reshape(b, [Expr::int(-1)])?;
    let solution = r.apply("aten.linalg_solve.default", &[matrix, right])?;
    Ok(vec![r.reshape(solution, unknowns)?])
}

fn tensor_inverse(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (x, split) = (r.args().tensor("self")?, r.args().literal("ind")?);
    let (x, sizes) = (x.value, x.ty.sizes.clone());
    let split = usize::try_from(split).ok().filter(|&split| split > 0 && split <= sizes.len());
    let split = split.ok_or_else(|| r.args().bad("ind", "a number of dimensions"))?;
    let (rows, columns) = sizes.split_at(split);
    let count: Expr = columns.iter().copied().product();
    let matrix = r.reshape(x, [rows.iter().copied().product(), count])?;
    let inverse = r.apply("aten.linalg_inv.default", &[matrix])?;
    Ok(vec![r.reshape(inverse, [columns, rows].concat())?])
}

/// The columns of an operand that are vectors of reflections, and zeros up to as many columns as rows.
fn with_columns(r: &mut Rewriter<'_>, x: Value, ty: &TensorType) -> Result<Value, OpError> {
    let &[.., rows, columns] = ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected matrices, found {ty}")));
    };
    let padding = Arg::ints([Expr::zero(), rows - columns]);
    r.call("aten.constant_pad_nd.default", [Arg::Value(x), padding])
}

/// Q and R: thin, or with all columns of Q; or R alone.
fn orthogonal(r: &mut Rewriter<'_>) -> Result<Vec<Value>, OpError> {
    let (a, mode) = (r.args().tensor("A")?, r.args().str("mode")?.to_owned());
    let (a, ty) = (a.value, a.ty.clone());
    let &[.., rows, columns] = ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected matrices, found {ty}")));
    };
    let is_complete = match mode.as_str() {
        "" | "reduced" | "r" => false,
        "complete" => true,
        _ => return Err(r.args().bad("mode", "reduced, complete or r")),
    };
    let found = r.call_all("aten.geqrf.default", [Arg::Value(a)])?;
    let [Some(vectors), Some(scales)] = found[..] else { return Err(OpError::missing("aten.geqrf.default")) };
    let rank = r.infer_cx().simplify(rows.min(columns));
    let last = ty.rank() - 1;
    let height = if is_complete { rows } else { rank };
    let upper = r.slice(vectors, last - 1, Expr::zero(), height)?;
    let upper = r.apply("aten.triu.default", &[upper])?;
    let upper = by_columns(r, upper)?;
    if mode == "r" {
        return Ok(vec![r.nothing(ty.dtype)?, upper]);
    }
    let vectors = r.slice(vectors, last, Expr::zero(), rank)?;
    let vectors = if is_complete {
        let thin = r.ty(vectors)?;
        with_columns(r, vectors, &thin)?
    } else {
        vectors
    };
    let q = r.apply("aten.linalg_householder_product.default", &[vectors, scales])?;
    Ok(vec![q, upper])
}

/// Factors and pivots of an argument.
fn factorized(r: &mut Rewriter<'_>, name: &str) -> Result<(Value, Value), OpError> {
    let a = r.args().tensor(name)?;
    let ty = a.ty.clone();
    let value = a.value;
    r.require(|cx, args| {
        let [.., rows, columns] = ty.sizes[..] else {
            return Err(args.invalid(format!("expected matrices, found {ty}")));
        };
        let differs = |_| args.invalid(format!("expected square matrices, found {ty}"));
        cx.require(litz_sym::Rel::eq(rows, columns), args.op()).map_err(differs)
    })?;
    let found = r.call_all("aten.linalg_lu_factor_ex.default", [Arg::Value(value)])?;
    match found[..] {
        [Some(factors), Some(pivots), ..] => Ok((factors, pivots)),
        _ => Err(OpError::missing("aten.linalg_lu_factor_ex.default")),
    }
}

fn diagonal(r: &mut Rewriter<'_>, x: Value) -> Result<Value, OpError> {
    r.call("aten.diagonal.default", [Arg::Value(x), int(0), int(-2), int(-1)])
}

/// -1 where an odd number of rows was exchanged, else 1, in the type of the factors' parts.
fn parity(r: &mut Rewriter<'_>, pivots: Value, factors: Value) -> Result<Value, OpError> {
    let (ty, dtype) = (r.ty(pivots)?, real_of(r.ty(factors)?.dtype));
    let count = ty.sizes[ty.rank() - 1];
    let own = r.call("aten.arange.start", [int(1), Arg::Int(count + 1)])?;
    let exchanged = r.apply("aten.ne.Tensor", &[pivots, own])?;
    let exchanges = r.call("aten.sum.dim_IntList", [Arg::Value(exchanged), dims_arg(&[ty.rank() - 1])])?;
    let odd = r.call("aten.remainder.Scalar", [Arg::Value(exchanges), int(2)])?;
    let odd = r.convert(odd, dtype)?;
    let twice = r.scalar("aten.mul.Scalar", odd, -2.0)?;
    r.scalar("aten.add.Scalar", twice, 1.0)
}

/// The sign of the determinant, and the logarithm of its magnitude.
fn logarithm_of_determinant(r: &mut Rewriter<'_>, name: &str) -> Result<Vec<Value>, OpError> {
    let (factors, pivots) = factorized(r, name)?;
    let diagonal = diagonal(r, factors)?;
    let signs = r.apply("aten.sgn.default", &[diagonal])?;
    let signs = r.call("aten.prod.dim_int", [Arg::Value(signs), int(-1)])?;
    let parity = parity(r, pivots, factors)?;
    let sizes = r.apply("aten.abs.default", &[diagonal])?;
    let logs = r.apply("aten.log.default", &[sizes])?;
    let log = r.call("aten.sum.dim_IntList", [Arg::Value(logs), Arg::List(vec![int(-1)])])?;
    Ok(vec![r.mul(signs, parity)?, log])
}

fn singular(r: &mut Rewriter<'_>, x: Value) -> Result<[Value; 3], OpError> {
    match r.call_all("litz.svd.default", [Arg::Value(x)])?[..] {
        [Some(left), Some(values), Some(right)] => Ok([left, values, right]),
        _ => Err(OpError::missing("litz.svd.default")),
    }
}

/// Each column times its own number.
fn scaled_columns(r: &mut Rewriter<'_>, x: Value, numbers: Value) -> Result<Value, OpError> {
    let row = r.call("aten.unsqueeze.default", [Arg::Value(numbers), int(-2)])?;
    r.mul(x, row)
}

/// Whether matrices are known to have no elements, nor singular values.
fn is_empty(ty: &TensorType) -> bool {
    matches!(ty.sizes.as_slice(), [.., rows, columns] if rows.is_zero() || columns.is_zero())
}

/// Below which singular values count as 0: the larger of an absolute bound, and of one relative to the largest value. Without
/// either, the latter is the larger size times the distance of 1 from the next number.
fn bound(r: &mut Rewriter<'_>, ty: &TensorType, values: Value, rcond: Option<f64>) -> Result<Value, OpError> {
    let &[.., rows, columns] = ty.sizes.as_slice() else {
        return Err(r.args().invalid(format!("expected matrices, found {ty}")));
    };
    let eps = if ty.dtype == Dtype::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let tolerance = |r: &mut Rewriter<'_>, name: &str| -> Result<Option<Value>, OpError> {
        if !r.args().has(name) {
            return Ok(None);
        }
        let given = match r.args().tensor(name) {
            Ok(tensor) => tensor.value,
            Err(_) => {
                let number = r.args().float(name)?;
                r.filled([], number, ty.dtype)?
            }
        };
        Ok(Some(r.call("aten.unsqueeze.default", [Arg::Value(given), int(-1)])?))
    };
    let (atol, rtol) = match rcond {
        Some(rcond) => {
            let rcond = r.filled([Expr::one()], rcond, ty.dtype)?;
            (None, Some(rcond))
        }
        None => (tolerance(r, "atol")?, tolerance(r, "rtol")?),
    };
    let largest =
        r.call("aten.amax.default", [Arg::Value(values), Arg::List(vec![int(-1)]), Arg::Bool(true)])?;
    let size = r.infer_cx().simplify(rows.max(columns));
    let default = r.call("aten.scalar_tensor.default", [Arg::Int(size), Arg::Dtype(ty.dtype)])?;
    let default = r.scalar("aten.mul.Scalar", default, eps)?;
    // An absolute bound above 0 turns the default of the relative one off.
    let rtol = match (rtol, atol) {
        (Some(rtol), _) => rtol,
        (None, None) => default,
        (None, Some(atol)) => {
            let given = r.scalar("aten.gt.Scalar", atol, 0.0)?;
            let zero = r.apply("aten.zeros_like.default", &[default])?;
            r.apply("aten.where.self", &[given, zero, default])?
        }
    };
    let relative = r.mul(rtol, largest)?;
    match atol {
        Some(atol) => r.apply("aten.maximum.default", &[atol, relative]),
        None => Ok(relative),
    }
}

/// `V S^-1 U^T`, without the singular values that count as 0; of a symmetric matrix by its eigenvalues.
fn pseudoinverse(r: &mut Rewriter<'_>, rcond: Option<f64>) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor("self")?;
    let (x, ty) = (x.value, x.ty.clone());
    if is_empty(&ty) {
        let (mut sizes, rank) = (ty.sizes.clone(), ty.rank());
        sizes.swap(rank - 2, rank - 1);
        return Ok(vec![r.filled(sizes, 0.0, ty.dtype)?]);
    }
    let (left, values, right) = if r.args().flag("hermitian")? {
        let found = r.call_all("litz.eigh.default", [Arg::Value(x)])?;
        let [Some(values), Some(vectors)] = found[..] else {
            return Err(OpError::missing("litz.eigh.default"));
        };
        (vectors, values, r.transpose(vectors, -2, -1)?)
    } else {
        let [left, values, right] = singular(r, x)?;
        (left, values, right)
    };
    let sizes = r.apply("aten.abs.default", &[values])?;
    let bound = bound(r, &ty, sizes, rcond)?;
    let counts = r.apply("aten.gt.Tensor", &[sizes, bound])?;
    let inverse = r.apply("aten.reciprocal.default", &[values])?;
    let inverse = r.call("aten.where.ScalarOther", [Arg::Value(counts), Arg::Value(inverse), float(0.0)])?;
    let (right, left) = (r.transpose(right, -2, -1)?, r.transpose(left, -2, -1)?);
    let scaled = scaled_columns(r, right, inverse)?;
    Ok(vec![r.apply("aten.matmul.default", &[scaled, left])?])
}

/// How many singular values count.
fn matrix_rank(r: &mut Rewriter<'_>, name: &str) -> Result<Vec<Value>, OpError> {
    let x = r.args().tensor(name)?;
    let (x, ty) = (x.value, x.ty.clone());
    if is_empty(&ty) {
        return Ok(vec![r.filled(batch_of(&ty), 0.0, Dtype::I64)?]);
    }
    let values = if r.args().flag("hermitian")? {
        let values = r.apply("aten.linalg_eigvalsh.default", &[x])?;
        r.apply("aten.abs.default", &[values])?
    } else {
        r.apply("aten.linalg_svdvals.default", &[x])?
    };
    let bound = bound(r, &ty, values, None)?;
    let counts = r.apply("aten.gt.Tensor", &[values, bound])?;
    Ok(vec![r.call("aten.sum.dim_IntList", [Arg::Value(counts), Arg::List(vec![int(-1)])])?])
}
