//! Lowers factorizations of matrices, and solutions of triangular systems, to routines of the runtime.
//!
//! Leading dimensions are a batch. Routines take row-major matrices; results have their columns together, as LAPACK's do.

use crate::args::{Args, Tensor};
use crate::def::{OpDef, lower};
use crate::error::OpError;
use crate::infer::InferCx;
use crate::lower::Lower;
use crate::ops::complex::of_parts;
use crate::promote::complex_of;
use crate::traits::Complex;
use crate::view::{ValueAccess, View, dim};
use litz_ir::graph::{TensorType, Type, contiguous_strides};
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Rel};

/// Entries.
pub const OPS: &[OpDef] = &[
    lower("aten.linalg_cholesky_ex.default", cholesky_types, cholesky),
    lower("aten.linalg_cholesky.default", cholesky_types, cholesky),
    lower("aten.linalg_lu_factor_ex.default", lu_types, lu).complex(Complex::Lowered),
    lower("aten.linalg_lu_factor.default", lu_types, lu).complex(Complex::Lowered),
    lower("aten._lu_with_info.default", lu_types, lu).complex(Complex::Lowered),
    lower("aten.linalg_lu_solve.default", lu_solve_types, lu_solve).complex(Complex::Lowered),
    lower("aten.lu_unpack.default", unpacked_types, unpack),
    lower("aten.linalg_solve_triangular.default", triangular_types, triangular).complex(Complex::Lowered),
    lower("aten.geqrf.default", qr_types, qr),
    lower("aten.linalg_householder_product.default", product_types, product),
    lower("aten.linalg_eigvalsh.default", eigen_types, eigen),
    lower("aten.linalg_svdvals.default", singular_types, singular_values),
    // The signs of vectors, and the order of complex values, are not LAPACK's. Only what does not depend on these is made of
    // what the operators of Litz's own give.
    lower("aten.linalg_svd.default", svd_types, svd).prefers_host(),
    lower("aten._linalg_svd.default", svd_types, svd).prefers_host(),
    lower("litz.svd.default", svd_types, svd),
    lower("aten.linalg_eigh.default", eigen_types, eigen).prefers_host(),
    lower("aten._linalg_eigh.default", eigen_types, eigen).prefers_host(),
    lower("litz.eigh.default", eigen_types, eigen),
    lower("aten.linalg_eig.default", general_types, general).complex(Complex::Lowered).prefers_host(),
    lower("aten.linalg_eigvals.default", general_types, general).complex(Complex::Lowered).prefers_host(),
    lower("aten._linalg_eigvals.default", general_types, general).complex(Complex::Lowered).prefers_host(),
    lower("aten.linalg_ldl_factor_ex.default", indefinite_types, indefinite),
    lower("aten.linalg_ldl_factor.default", indefinite_types, indefinite),
    lower("aten.linalg_ldl_solve.default", indefinite_solve_types, indefinite_solve),
    lower("aten.linalg_matrix_exp.default", same_type, matrix_exp),
    lower("aten.matrix_exp.default", same_type, matrix_exp),
];

/// A batch of matrices: sizes of the batch, rows and columns.
#[derive(Clone)]
pub(crate) struct Matrices {
    pub(crate) batch: Vec<Expr>,
    pub(crate) rows: Expr,
    pub(crate) columns: Expr,
    pub(crate) dtype: Dtype,
}

impl Matrices {
    /// Those of an argument, of f32 or f64.
    pub(crate) fn of(args: &Args<'_>, name: &str) -> Result<Matrices, OpError> {
        Matrices::of_type(args, args.tensor(name)?.ty)
    }

    pub(crate) fn of_type(args: &Args<'_>, ty: &TensorType) -> Result<Matrices, OpError> {
        Matrices::of_types(args, ty, &[Dtype::F32, Dtype::F64])
    }

    /// Those of an argument, which may be of complex numbers as well.
    fn of_any(args: &Args<'_>, name: &str) -> Result<Matrices, OpError> {
        Matrices::of_types(args, args.tensor(name)?.ty, &[Dtype::F32, Dtype::F64, Dtype::C64])
    }

    fn of_types(args: &Args<'_>, ty: &TensorType, allowed: &[Dtype]) -> Result<Matrices, OpError> {
        let [batch @ .., rows, columns] = ty.sizes.as_slice() else {
            return Err(args.invalid(format!("expected matrices, found {ty}")));
        };
        if !allowed.contains(&ty.dtype) {
            return Err(args.unsupported(&format!("matrices of {}", ty.dtype)));
        }
        Ok(Matrices { batch: batch.to_vec(), rows: *rows, columns: *columns, dtype: ty.dtype })
    }

    /// Requires as many rows as columns.
    fn square(self, cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Matrices, OpError> {
        let (rows, columns) = (self.rows, self.columns);
        let differs =
            |_| args.invalid(format!("expected square matrices, found {rows} rows and {columns} columns"));
        cx.require(Rel::eq(rows, columns), args.op()).map_err(differs)?;
        Ok(self)
    }

    /// The smaller of rows and columns.
    fn rank(&self, cx: &InferCx<'_>) -> Expr {
        cx.simplify(self.rows.min(self.columns))
    }

    fn with(&self, rest: &[Expr]) -> Vec<Expr> {
        [&self.batch, rest].concat()
    }

    fn count(&self) -> Expr {
        self.batch.iter().copied().product()
    }
}

/// A result whose columns are together in memory.
pub(crate) fn by_columns(dtype: Dtype, sizes: Vec<Expr>) -> Type {
    let mut strides = contiguous_strides(&sizes);
    if let ([.., rows, _], [.., row, column]) = (sizes.as_slice(), strides.as_mut_slice()) {
        (*row, *column) = (Expr::one(), *rows);
    }
    Type::Tensor(TensorType::strided(dtype, sizes, strides))
}

fn whole(dtype: Dtype, sizes: Vec<Expr>) -> Type {
    Type::Tensor(TensorType::contiguous(dtype, sizes))
}

/// The operand as row-major matrices.
fn packed(lw: &mut Lower<'_>, tensor: Tensor<'_>) -> Result<ValueAccess, OpError> {
    let access = lw.access(tensor)?;
    lw.contiguous(&access, "rows")
}

/// The last two dimensions of a value swapped.
fn turned(lw: &Lower<'_>, access: &ValueAccess) -> ValueAccess {
    let rank = access.rank();
    let (mut sizes, mut coords) = (access.sizes.clone(), (0..rank).map(dim).collect::<Vec<_>>());
    sizes.swap(rank - 2, rank - 1);
    coords.swap(rank - 2, rank - 1);
    lw.view(access, &View::new(sizes, coords))
}

/// Copies elements to a result that something uses: those that `keeps` says of row and column, else 0.
fn deliver(
    lw: &mut Lower<'_>,
    args: &Args<'_>,
    i: usize,
    from: &ValueAccess,
    keeps: impl Fn(Expr, Expr) -> Vec<Rel>,
) -> Result<(), OpError> {
    let Some(out) = lw.result(args, i) else { return Ok(()) };
    lw.nest(&out.sizes, |b, at| {
        let guard = match at {
            [.., row, column] => keeps(*row, *column),
            _ => Vec::new(),
        };
        let v = b.load_if(from, at, guard, Scalar::zero(from.dtype));
        b.store(&out, at, v);
        Ok(())
    })
}

fn all(_: Expr, _: Expr) -> Vec<Rel> {
    Vec::new()
}

/// A call fails with the message where the position of a pivot is not 0.
fn require_success(lw: &mut Lower<'_>, info: &ValueAccess, message: &str) -> Result<(), OpError> {
    let holds = lw.temp("holds", Dtype::Bool, &info.sizes);
    lw.nest(&info.sizes.clone(), |b, at| {
        let found = b.load(info, at);
        let zero = b.lit(found, 0.0);
        let is_zero = b.eq(found, zero);
        b.store(&holds, at, is_zero);
        Ok(())
    })?;
    lw.check(&holds, message.to_owned());
    Ok(())
}

/// Whether errors are to be found by the operator, not by its caller.
fn checks(args: &Args<'_>) -> Result<bool, OpError> {
    match args.op() {
        "aten.linalg_cholesky.default"
        | "aten.linalg_ldl_factor.default"
        | "aten.linalg_lu_factor.default" => Ok(true),
        _ => args.flag("check_errors"),
    }
}

fn cholesky_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "self")?.square(cx, args)?;
    let factor = by_columns(x.dtype, x.with(&[x.rows, x.columns]));
    let infos = args.op().ends_with("_ex.default").then(|| whole(Dtype::I32, x.batch));
    Ok([factor].into_iter().chain(infos).collect())
}

fn cholesky(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, upper) = (Matrices::of(args, "self")?, args.flag("upper")?);
    let access = lw.access(args.tensor("self")?)?;
    let access = if upper { turned(lw, &access) } else { access };
    let source = lw.contiguous(&access, "rows")?;
    let (factor, info) = (lw.temp("factor", x.dtype, &source.sizes), lw.temp("info", Dtype::I32, &x.batch));
    lw.call("cholesky", &[&source], &[&factor, &info], vec![x.count(), x.rows]);
    if checks(args)? {
        require_success(lw, &info, "linalg.cholesky: the matrix is not positive-definite")?;
    }
    let factor = if upper { turned(lw, &factor) } else { factor };
    deliver(lw, args, 0, &factor, all)?;
    lw.set_result(args, 1, info);
    Ok(())
}

fn lu_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let name = if args.has("A") { "A" } else { "self" };
    let x = Matrices::of_any(args, name)?;
    if !args.flag("pivot")? {
        return Err(args.unsupported("a factorization without pivots"));
    }
    let pivots = whole(Dtype::I32, x.with(&[x.rank(cx)]));
    let factors = by_columns(x.dtype, x.with(&[x.rows, x.columns]));
    let infos = (args.op() != "aten.linalg_lu_factor.default").then(|| whole(Dtype::I32, x.batch));
    Ok([factors, pivots].into_iter().chain(infos).collect())
}

fn lu(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let name = if args.has("A") { "A" } else { "self" };
    let (x, source) = (Matrices::of_any(args, name)?, packed(lw, args.tensor(name)?)?);
    let rank = x.rank(&lw.infer_cx());
    let factors = lw.temp("factors", x.dtype, &source.sizes);
    let (pivots, info) =
        (lw.temp("pivots", Dtype::I32, &x.with(&[rank])), lw.temp("info", Dtype::I32, &x.batch));
    lw.call("lu", &[&source], &[&factors, &pivots, &info], vec![x.count(), x.rows, x.columns]);
    if checks(args)? {
        require_success(
            lw,
            &info,
            "torch.linalg.lu_factor: a pivot is zero, and using it would divide by it",
        )?;
    }
    deliver(lw, args, 0, &factors, all)?;
    lw.set_result(args, 1, pivots);
    lw.set_result(args, 2, info);
    Ok(())
}

/// The right sides, which are as many as the factors are, with rows or columns of the factors' size.
fn lu_solve_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (factors, b) = (Matrices::of_any(args, "LU")?.square(cx, args)?, Matrices::of_any(args, "B")?);
    args.of_types("pivots", &[Dtype::I32])?;
    args.of_one_type(&["LU", "B"])?;
    crate::layout::same_shape(cx, args, "pivots", &factors.with(&[factors.rows]))?;
    let left = args.flag("left")?;
    let sizes = solved_sizes(cx, args, &factors, &b, left)?;
    Ok(vec![if left { by_columns(b.dtype, sizes) } else { whole(b.dtype, sizes) }])
}

/// Sizes of what solves a system: those of the right sides, for each of both batches.
fn solved_sizes(
    cx: &mut InferCx<'_>,
    args: &Args<'_>,
    a: &Matrices,
    b: &Matrices,
    left: bool,
) -> Result<Vec<Expr>, OpError> {
    let own = if left { b.rows } else { b.columns };
    let differs = |_| args.invalid(format!("expected right sides of {} rows, found {own}", a.rows));
    cx.require(Rel::eq(own, a.rows), args.op()).map_err(differs)?;
    let batch = crate::layout::broadcast(cx, &[&a.batch, &b.batch], args.op())?;
    Ok([batch, vec![b.rows, b.columns]].concat())
}

/// An operand for each element of the batch of the only result.
fn broadcast(lw: &Lower<'_>, args: &Args<'_>, name: &str, inner: usize) -> Result<ValueAccess, OpError> {
    let access = lw.access(args.tensor(name)?)?;
    let Some(result) = args.result(0) else { return Ok(access) };
    let batch = &result.sizes[..result.rank() - 2];
    Ok(access.broadcast(&[batch, &access.sizes[access.rank() - inner..]].concat()))
}

fn lu_solve(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, left, adjoint) = (Matrices::of_any(args, "LU")?, args.flag("left")?, args.flag("adjoint")?);
    if adjoint && x.dtype == Dtype::C64 {
        return Err(args.unsupported("the adjoint of a complex matrix"));
    }
    let (factors, pivots) = (broadcast(lw, args, "LU", 2)?, broadcast(lw, args, "pivots", 1)?);
    let (factors, pivots) = (lw.contiguous(&factors, "rows")?, lw.contiguous(&pivots, "places")?);
    let b = broadcast(lw, args, "B", 2)?;
    // X A = B is A^T X^T = B^T.
    let b = if left { b } else { turned(lw, &b) };
    let b = lw.contiguous(&b, "right")?;
    let sides = b.sizes[b.rank() - 1];
    let solution = lw.temp("solution", x.dtype, &b.sizes);
    let transposed = Expr::int(i64::from(left == adjoint));
    let count = b.sizes[..b.rank() - 2].iter().copied().product();
    let ints = vec![count, x.rows, sides, transposed];
    lw.call("lu_solve", &[&factors, &pivots, &b], &[&solution], ints);
    let solution = if left { solution } else { turned(lw, &solution) };
    deliver(lw, args, 0, &solution, all)
}

fn unpacked_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "LU_data")?;
    let (data, pivots) = (args.flag("unpack_data")?, args.flag("unpack_pivots")?);
    let rank = x.rank(cx);
    args.of_types("LU_pivots", &[Dtype::I32])?;
    if pivots {
        crate::layout::same_shape(cx, args, "LU_pivots", &x.with(&[rank]))?;
    }
    let sized = |wanted: bool, rows: Expr, columns: Expr| {
        whole(x.dtype, if wanted { x.with(&[rows, columns]) } else { vec![Expr::zero()] })
    };
    Ok(vec![sized(pivots, x.rows, x.rows), sized(data, x.rows, rank), sized(data, rank, x.columns)])
}

fn unpack(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = Matrices::of(args, "LU_data")?;
    let factors = lw.access(args.tensor("LU_data")?)?;
    if args.flag("unpack_pivots")? {
        let pivots = packed(lw, args.tensor("LU_pivots")?)?;
        let order = lw.temp("order", Dtype::I64, &x.with(&[x.rows]));
        let steps = pivots.sizes[pivots.rank() - 1];
        lw.call("permutation", &[&pivots], &[&order], vec![x.count(), x.rows, steps]);
        if let Some(out) = lw.result(args, 0) {
            lw.nest(&out.sizes, |b, at| {
                // Row i of L U is row order[i] of the matrix.
                let column = [&at[..at.len() - 2], &at[at.len() - 1..]].concat();
                let (place, row) = (b.load(&order, &column), b.index(at[at.len() - 2], Dtype::I64));
                let is_there = b.eq(place, row);
                b.store(&out, at, is_there);
                Ok(())
            })?;
        }
    } else {
        lw.nothing(args, 0)?;
    }
    if !args.flag("unpack_data")? {
        lw.nothing(args, 1)?;
        return lw.nothing(args, 2);
    }
    if let Some(out) = lw.result(args, 1) {
        lw.nest(&out.sizes, |b, at| {
            let (row, column) = (at[at.len() - 2], at[at.len() - 1]);
            let v = b.load_if(&factors, at, vec![Rel::gt(row, column)], Scalar::zero(x.dtype));
            let one = b.lit(v, 1.0);
            let is_diagonal = b.cond(Rel::eq(row, column));
            let v = b.select(is_diagonal, one, v);
            b.store(&out, at, v);
            Ok(())
        })?;
    }
    deliver(lw, args, 2, &factors, |row, column| vec![Rel::le(row, column)])
}

fn triangular_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (a, b) = (Matrices::of_any(args, "self")?.square(cx, args)?, Matrices::of_any(args, "B")?);
    args.of_one_type(&["self", "B"])?;
    let left = args.flag("left")?;
    Ok(vec![by_columns(b.dtype, solved_sizes(cx, args, &a, &b, left)?)])
}

fn triangular(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, left, upper) = (Matrices::of_any(args, "self")?, args.flag("left")?, args.flag("upper")?);
    let (a, b) = (broadcast(lw, args, "self", 2)?, broadcast(lw, args, "B", 2)?);
    // X A = B is A^T X^T = B^T.
    let (a, b) = if left { (a, b) } else { (turned(lw, &a), turned(lw, &b)) };
    let (a, b) = (lw.contiguous(&a, "rows")?, lw.contiguous(&b, "right")?);
    let sides = b.sizes[b.rank() - 1];
    let solution = lw.temp("solution", x.dtype, &b.sizes);
    let flags = [upper == left, args.flag("unitriangular")?].map(|flag| Expr::int(i64::from(flag)));
    let count = b.sizes[..b.rank() - 2].iter().copied().product();
    lw.call("triangular", &[&a, &b], &[&solution], [&[count, x.rows, sides][..], &flags].concat());
    let solution = if left { solution } else { turned(lw, &solution) };
    deliver(lw, args, 0, &solution, all)
}

fn qr_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "self")?;
    let scales = whole(x.dtype, x.with(&[x.rank(cx)]));
    Ok(vec![by_columns(x.dtype, x.with(&[x.rows, x.columns])), scales])
}

fn qr(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, source) = (Matrices::of(args, "self")?, packed(lw, args.tensor("self")?)?);
    let rank = x.rank(&lw.infer_cx());
    let (factors, scales) =
        (lw.temp("factors", x.dtype, &source.sizes), lw.temp("scales", x.dtype, &x.with(&[rank])));
    lw.call("qr", &[&source], &[&factors, &scales], vec![x.count(), x.rows, x.columns]);
    deliver(lw, args, 0, &factors, all)?;
    lw.set_result(args, 1, scales);
    Ok(())
}

/// As many columns as vectors, which are no more than rows; at least as many as scales.
fn product_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "input")?;
    args.of_one_type(&["input", "tau"])?;
    let tau = args.tensor("tau")?.ty;
    let Some(&scales) = tau.sizes.last() else {
        return Err(args.invalid(format!("expected a scale for each vector, found {tau}")));
    };
    crate::layout::same_shape(cx, args, "tau", &x.with(&[scales]))?;
    let outside =
        |_| args.invalid(format!("{scales} reflections of {} rows and {} columns", x.rows, x.columns));
    for rel in [Rel::le(scales, x.columns), Rel::le(x.columns, x.rows)] {
        cx.require(rel, args.op()).map_err(outside)?;
    }
    Ok(vec![by_columns(x.dtype, x.with(&[x.rows, x.columns]))])
}

fn product(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = Matrices::of(args, "input")?;
    let (vectors, scales) = (packed(lw, args.tensor("input")?)?, packed(lw, args.tensor("tau")?)?);
    let count = scales.sizes[scales.rank() - 1];
    let result = lw.temp("product", x.dtype, &vectors.sizes);
    let ints = vec![x.count(), x.rows, x.columns, count, x.columns];
    lw.call("householder", &[&vectors, &scales], &[&result], ints);
    deliver(lw, args, 0, &result, all)
}

/// The symmetric operand, as PyTorch's operators call it.
fn symmetric<'a>(args: &Args<'a>) -> Result<Tensor<'a>, OpError> {
    args.tensor(if args.has("A") { "A" } else { "self" })
}

/// Whether vectors of a symmetric matrix are not asked for, in whose place then is nothing.
fn leaves_vectors_out(args: &Args<'_>) -> Result<bool, OpError> {
    Ok(args.op() == "aten._linalg_eigh.default" && !args.flag("compute_v")?)
}

/// Values in ascending order, and vectors as columns.
fn eigen_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of_type(args, symmetric(args)?.ty)?.square(cx, args)?;
    let vectors = match args.op() {
        "aten.linalg_eigvalsh.default" => None,
        _ if leaves_vectors_out(args)? => Some(whole(x.dtype, vec![Expr::zero()])),
        _ => Some(by_columns(x.dtype, x.with(&[x.rows, x.columns]))),
    };
    Ok([whole(x.dtype, x.with(&[x.rows]))].into_iter().chain(vectors).collect())
}

fn eigen(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let operand = symmetric(args)?;
    let (x, access) = (Matrices::of_type(args, operand.ty)?, lw.access(operand)?);
    let access = match args.str("UPLO")? {
        "" | "L" | "l" => access,
        "U" | "u" => turned(lw, &access),
        _ => return Err(args.bad("UPLO", "L or U")),
    };
    let source = lw.contiguous(&access, "rows")?;
    let values = lw.temp("values", x.dtype, &x.with(&[x.rows]));
    let vectors = lw.temp("vectors", x.dtype, &source.sizes);
    lw.call("eigen", &[&source], &[&values, &vectors], vec![x.count(), x.rows]);
    lw.set_result(args, 0, values);
    if leaves_vectors_out(args)? {
        return lw.nothing(args, 1);
    }
    deliver(lw, args, 1, &vectors, all)
}

/// Complex values, and but for `eigvals` vectors as columns of length 1 whose largest element is real.
fn general_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "self")?.square(cx, args)?;
    let dtype = complex_of(x.dtype);
    let vectors =
        (args.op() == "aten.linalg_eig.default").then(|| by_columns(dtype, x.with(&[x.rows, x.columns])));
    Ok([whole(dtype, x.with(&[x.rows]))].into_iter().chain(vectors).collect())
}

fn general(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, source) = (Matrices::of(args, "self")?, packed(lw, args.tensor("self")?)?);
    let sizes = [x.with(&[x.rows]), source.sizes.clone()];
    let parts = sizes.map(|sizes| ["real", "imaginary"].map(|name| lw.temp(name, x.dtype, &sizes)));
    let writes: Vec<&ValueAccess> = parts.iter().flatten().collect();
    lw.call("eigen_general", &[&source], &writes, vec![x.count(), x.rows]);
    parts.iter().enumerate().try_for_each(|(i, parts)| of_parts(lw, args, i, parts))
}

/// L and D of `L D L^T` in one, with exchanges of rows and columns; D has blocks of 1 and of 2.
fn indefinite_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "self")?.square(cx, args)?;
    let factors = by_columns(x.dtype, x.with(&[x.rows, x.columns]));
    let pivots = whole(Dtype::I32, x.with(&[x.rows]));
    let infos = args.op().ends_with("_ex.default").then(|| whole(Dtype::I32, x.batch));
    Ok([factors, pivots].into_iter().chain(infos).collect())
}

fn indefinite(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, source) = (Matrices::of(args, "self")?, packed(lw, args.tensor("self")?)?);
    let factors = lw.temp("factors", x.dtype, &source.sizes);
    let (pivots, info) =
        (lw.temp("pivots", Dtype::I32, &x.with(&[x.rows])), lw.temp("info", Dtype::I32, &x.batch));
    lw.call("ldl", &[&source], &[&factors, &pivots, &info], vec![x.count(), x.rows]);
    if checks(args)? {
        require_success(lw, &info, "torch.linalg.ldl_factor: the matrix is singular")?;
    }
    deliver(lw, args, 0, &factors, all)?;
    lw.set_result(args, 1, pivots);
    lw.set_result(args, 2, info);
    Ok(())
}

fn indefinite_solve_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let (factors, b) = (Matrices::of(args, "LD")?.square(cx, args)?, Matrices::of(args, "B")?);
    args.of_types("pivots", &[Dtype::I32])?;
    args.of_one_type(&["LD", "B"])?;
    crate::layout::same_shape(cx, args, "pivots", &factors.with(&[factors.rows]))?;
    Ok(vec![by_columns(b.dtype, solved_sizes(cx, args, &factors, &b, true)?)])
}

fn indefinite_solve(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = Matrices::of(args, "LD")?;
    let (factors, pivots) = (broadcast(lw, args, "LD", 2)?, broadcast(lw, args, "pivots", 1)?);
    let (factors, pivots) = (lw.contiguous(&factors, "rows")?, lw.contiguous(&pivots, "places")?);
    let b = broadcast(lw, args, "B", 2)?;
    let b = lw.contiguous(&b, "right")?;
    let solution = lw.temp("solution", x.dtype, &b.sizes);
    let count = b.sizes[..b.rank() - 2].iter().copied().product();
    let ints = vec![count, x.rows, b.sizes[b.rank() - 1]];
    lw.call("ldl_solve", &[&factors, &pivots, &b], &[&solution], ints);
    deliver(lw, args, 0, &solution, all)
}

fn singular_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "A")?;
    Ok(vec![whole(x.dtype, x.with(&[x.rank(cx)]))])
}

/// How many columns there are of U and of V.
fn kept(cx: &InferCx<'_>, args: &Args<'_>, x: &Matrices) -> Result<[Expr; 2], OpError> {
    let rank = x.rank(cx);
    let is_full = args.has("full_matrices") && args.flag("full_matrices")?;
    Ok(if is_full { [x.rows, x.columns] } else { [rank, rank] })
}

/// U, the singular values and V of the operand.
fn factors(lw: &mut Lower<'_>, args: &Args<'_>, kept: [Expr; 2]) -> Result<[ValueAccess; 3], OpError> {
    let (x, source) = (Matrices::of(args, "A")?, packed(lw, args.tensor("A")?)?);
    let rank = x.rank(&lw.infer_cx());
    let left = lw.temp("left", x.dtype, &x.with(&[x.rows, kept[0]]));
    let values = lw.temp("values", x.dtype, &x.with(&[rank]));
    let right = lw.temp("right", x.dtype, &x.with(&[x.columns, kept[1]]));
    let ints = vec![x.count(), x.rows, x.columns, kept[0], kept[1]];
    lw.call("svd", &[&source], &[&left, &values, &right], ints);
    Ok([left, values, right])
}

fn singular_values(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let rank = Matrices::of(args, "A")?.rank(&lw.infer_cx());
    let [_, values, _] = factors(lw, args, [rank, rank])?;
    lw.set_result(args, 0, values);
    Ok(())
}

/// Whether singular vectors are asked for.
fn has_vectors(args: &Args<'_>) -> Result<bool, OpError> {
    Ok(!args.has("compute_uv") || args.flag("compute_uv")?)
}

/// U, S and the transpose of V.
fn svd_types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of(args, "A")?;
    let values = whole(x.dtype, x.with(&[x.rank(cx)]));
    if !has_vectors(args)? {
        let none = || whole(x.dtype, vec![Expr::zero()]);
        return Ok(vec![none(), values, none()]);
    }
    let [left, right] = kept(cx, args, &x)?;
    let (left, right) = (x.with(&[x.rows, left]), x.with(&[right, x.columns]));
    Ok(vec![by_columns(x.dtype, left), values, by_columns(x.dtype, right)])
}

fn svd(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let x = Matrices::of(args, "A")?;
    if !has_vectors(args)? {
        let rank = x.rank(&lw.infer_cx());
        let [_, values, _] = factors(lw, args, [rank, rank])?;
        lw.set_result(args, 1, values);
        lw.nothing(args, 0)?;
        return lw.nothing(args, 2);
    }
    let kept = kept(&lw.infer_cx(), args, &x)?;
    let [left, values, right] = factors(lw, args, kept)?;
    deliver(lw, args, 0, &left, all)?;
    lw.set_result(args, 1, values);
    let right = turned(lw, &right);
    deliver(lw, args, 2, &right, all)
}

fn same_type(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let x = Matrices::of_any(args, "self")?.square(cx, args)?;
    Ok(vec![whole(x.dtype, x.with(&[x.rows, x.columns]))])
}

fn matrix_exp(lw: &mut Lower<'_>, args: &Args<'_>) -> Result<(), OpError> {
    let (x, source) = (Matrices::of(args, "self")?, packed(lw, args.tensor("self")?)?);
    let result = lw.temp("exponential", x.dtype, &source.sizes);
    lw.call("matrix_exp", &[&source], &[&result], vec![x.count(), x.rows]);
    lw.set_result(args, 0, result);
    Ok(())
}
