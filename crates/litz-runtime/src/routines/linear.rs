//! Factorizes and solves batches of matrices, by `faer`, in f64 whatever the elements are.
//!
//! Buffers are batches of row-major matrices of f32 or f64. What factorizations return is laid out, and its signs and pivots
//! are chosen, as LAPACK has it: columns of Householder vectors below an upper triangle, unit diagonals left out, rows
//! exchanged one after another with the first of the largest elements.

use faer::linalg::solvers::{Eigen, Llt, PartialPivLu, Qr, SelfAdjointEigen, Svd};
use faer::traits::ComplexField;
use faer::{Mat, MatRef, Side, c64};
use litz_ir::Dtype;

use super::{Read, Routine, Write};
use crate::error::RunError;

mod ldl;

/// Every routine by name. Buffers have a leading dimension of the batch, whose size is the first integer.
///
/// | name | reads | writes | integers |
/// |---|---|---|---|
/// | `cholesky` | A `[n, n]`, its lower triangle | L `[n, n]`, i32 info | n |
/// | `eigen` | A `[n, n]`, its lower triangle | values `[n]` ascending, vectors `[n, n]` as columns | n |
/// | `eigen_general` | A `[n, n]` | real and imaginary parts of values `[n]`, and of vectors `[n, n]` as columns | n |
/// | `householder` | vectors `[m, k]`, scales `[t]` | the first n columns of their product `[m, n]` | m, k, t, n |
/// | `ldl` | A `[n, n]`, its lower triangle | L and D in one `[n, n]`, i32 pivots `[n]`, i32 info | n |
/// | `ldl_solve` | L and D `[n, n]`, pivots `[n]`, B `[n, k]` | X `[n, k]` with A X = B | n, k |
/// | `lu` | A `[m, n]` | L and U in one `[m, n]`, i32 pivots from 1 `[min(m, n)]`, i32 info | m, n |
/// | `lu_solve` | L and U `[n, n]`, pivots `[n]`, B `[n, k]` | X `[n, k]` with A X = B, or A^T X = B | n, k, transposed |
/// | `matrix_exp` | A `[n, n]` | its exponential `[n, n]` | n |
/// | `permutation` | i32 pivots `[k]` | i64 rows `[m]` that go to each place | m, k |
/// | `qr` | A `[m, n]` | vectors and R in one `[m, n]`, scales `[min(m, n)]` | m, n |
/// | `svd` | A `[m, n]` | U `[m, u]`, values `[min(m, n)]` descending, V `[n, v]` | m, n, u, v |
/// | `triangular` | A `[n, n]`, one triangle, B `[n, k]` | X `[n, k]` with A X = B | n, k, upper, unit diagonal |
///
/// `lu`, `lu_solve` and `triangular` also take matrices of complex numbers of two f32.
///
/// Infos are 0, or the position from 1 of the first pivot that is zero, of `cholesky` of the first that is not positive.
const ROUTINES: &[(&str, Routine)] = &[
    ("cholesky", |r, w, i| each(r, w, i, cholesky)),
    ("eigen", |r, w, i| each(r, w, i, eigen)),
    ("eigen_general", |r, w, i| each(r, w, i, eigen_general)),
    ("householder", |r, w, i| each(r, w, i, householder)),
    ("ldl", |r, w, i| each(r, w, i, ldl::factor)),
    ("ldl_solve", |r, w, i| each(r, w, i, ldl::solve)),
    ("lu", |r, w, i| each(r, w, i, of_numbers(r, lu::<f64>, lu::<c64>))),
    ("lu_solve", |r, w, i| each(r, w, i, of_numbers(r, lu_solve::<f64>, lu_solve::<c64>))),
    ("matrix_exp", |r, w, i| each(r, w, i, matrix_exp)),
    ("permutation", |r, w, i| each(r, w, i, permutation)),
    ("qr", |r, w, i| each(r, w, i, qr)),
    ("svd", |r, w, i| each(r, w, i, svd)),
    ("triangular", |r, w, i| each(r, w, i, of_numbers(r, triangular::<f64>, triangular::<c64>))),
];

/// The routine of that name.
pub(super) fn routine(name: &str) -> Option<Routine> {
    ROUTINES.iter().find(|(known, _)| *known == name).map(|(_, routine)| *routine)
}

/// What a routine does with one matrix of the batch: operands as numbers, the integers behind the size of the batch, and the
/// results as numbers.
/// A complex number is two of these, the real part first.
type One = fn(&[Vec<f64>], &[usize]) -> Result<Vec<Vec<f64>>, RunError>;

/// What is done with matrices of the type of the first operand.
fn of_numbers(reads: &[Read<'_>], real: One, complex: One) -> One {
    if reads.first().is_some_and(|read| read.dtype == Dtype::C64) { complex } else { real }
}

/// A type of elements that operands in f64 hold.
trait Number: ComplexField + Copy + Default + PartialEq {
    fn of(numbers: &[f64]) -> Vec<Self>;
    fn parts(self) -> impl Iterator<Item = f64>;
}

impl Number for f64 {
    fn of(numbers: &[f64]) -> Vec<f64> {
        numbers.to_vec()
    }
    fn parts(self) -> impl Iterator<Item = f64> {
        [self].into_iter()
    }
}

impl Number for c64 {
    fn of(numbers: &[f64]) -> Vec<c64> {
        let (pairs, _) = numbers.as_chunks();
        pairs.iter().map(|&[re, im]| c64::new(re, im)).collect()
    }
    fn parts(self) -> impl Iterator<Item = f64> {
        [self.re, self.im].into_iter()
    }
}

fn bug(what: &str) -> RunError {
    RunError::bug("call of a routine of linear algebra", what)
}

/// What LAPACK reports where an iteration does not end; matrices with elements that are no numbers are such.
fn no_convergence() -> RunError {
    RunError::AssertionFailed { message: String::new() }
}

fn each(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64], one: One) -> Result<(), RunError> {
    let sizes: Option<Vec<usize>> = ints.iter().map(|&i| usize::try_from(i).ok()).collect();
    let Some([batch, rest @ ..]) = sizes.as_deref() else {
        return Err(bug("expected sizes"));
    };
    let operands = reads.iter().map(|read| numbers(read).ok_or_else(|| bug("an operand of another type")));
    let operands = operands.collect::<Result<Vec<_>, _>>()?;
    if *batch > 0 && operands.iter().any(|numbers| numbers.len() % batch != 0) {
        return Err(bug("an operand that is no batch"));
    }
    for at in 0..*batch {
        let part = |numbers: &Vec<f64>| {
            let length = numbers.len() / batch;
            numbers[at * length..(at + 1) * length].to_vec()
        };
        let parts: Vec<Vec<f64>> = operands.iter().map(part).collect();
        let results = one(&parts, rest)?;
        if results.len() != writes.len() {
            return Err(bug("another number of results"));
        }
        for (write, result) in writes.iter_mut().zip(results) {
            store(write, at * result.len(), &result).ok_or_else(|| bug("a result that does not fit"))?;
        }
    }
    Ok(())
}

fn numbers(read: &Read<'_>) -> Option<Vec<f64>> {
    Some(match read.dtype {
        Dtype::F64 => bytemuck::try_cast_slice(read.bytes).ok()?.to_vec(),
        Dtype::F32 | Dtype::C64 => {
            bytemuck::try_cast_slice::<u8, f32>(read.bytes).ok()?.iter().copied().map(f64::from).collect()
        }
        Dtype::I32 => {
            bytemuck::try_cast_slice::<u8, i32>(read.bytes).ok()?.iter().copied().map(f64::from).collect()
        }
        _ => return None,
    })
}

fn store(write: &mut Write<'_>, at: usize, numbers: &[f64]) -> Option<()> {
    let places = at..at + numbers.len();
    macro_rules! as_type {
        ($ty:ty) => {{
            let to = bytemuck::try_cast_slice_mut::<u8, $ty>(write.bytes).ok()?.get_mut(places)?;
            to.iter_mut().zip(numbers).for_each(|(to, &number)| *to = number as $ty);
        }};
    }
    match write.dtype {
        Dtype::F64 => as_type!(f64),
        Dtype::F32 | Dtype::C64 => as_type!(f32),
        Dtype::I32 => as_type!(i32),
        Dtype::I64 => as_type!(i64),
        _ => return None,
    }
    Some(())
}

/// A row-major matrix, if there are so many elements.
fn matrix<T>(numbers: &[T], rows: usize, columns: usize) -> Result<MatRef<'_, T>, RunError> {
    if rows.checked_mul(columns) != Some(numbers.len()) {
        return Err(bug("an operand of another size"));
    }
    Ok(MatRef::from_row_major_slice(numbers, rows, columns))
}

/// The elements in row-major order.
fn rows<T: Number>(matrix: MatRef<'_, T>) -> Vec<f64> {
    let places = (0..matrix.nrows()).flat_map(|i| (0..matrix.ncols()).map(move |j| (i, j)));
    places.flat_map(|place| matrix[place].parts()).collect()
}

fn cholesky(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a], &[n]) = (operands, sizes) else { return Err(bug("expected a matrix and its size")) };
    let a = matrix(a, n, n)?;
    if let Ok(factor) = Llt::new(a, Side::Lower) {
        return Ok(vec![rows(factor.L()), vec![0.0]]);
    }
    // Where the factor ends is wanted, too: column by column up to the first pivot that is not positive.
    let mut l = Mat::<f64>::zeros(n, n);
    for j in 0..n {
        let pivot = a[(j, j)] - (0..j).map(|k| l[(j, k)] * l[(j, k)]).sum::<f64>();
        if pivot.is_nan() || pivot <= 0.0 {
            // LAPACK leaves the rest as it found it.
            for i in j..n {
                (j..=i).for_each(|k| l[(i, k)] = a[(i, k)]);
            }
            return Ok(vec![rows(l.as_ref()), vec![(j + 1) as f64]]);
        }
        l[(j, j)] = pivot.sqrt();
        for i in j + 1..n {
            let sum: f64 = (0..j).map(|k| l[(i, k)] * l[(j, k)]).sum();
            l[(i, j)] = (a[(i, j)] - sum) / l[(j, j)];
        }
    }
    Ok(vec![rows(l.as_ref()), vec![0.0]])
}

fn eigen(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a], &[n]) = (operands, sizes) else { return Err(bug("expected a matrix and its size")) };
    if n == 0 {
        // faer divides by the size.
        return Ok(vec![Vec::new(), Vec::new()]);
    }
    let found = SelfAdjointEigen::new(matrix(a, n, n)?, Side::Lower).map_err(|_| no_convergence())?;
    let values = found.S().column_vector();
    if (0..n).any(|i| values[i].is_nan()) {
        return Err(no_convergence());
    }
    Ok(vec![(0..n).map(|i| values[i]).collect(), rows(found.U())])
}

/// Vectors have length 1, and a largest element that is real, as LAPACK has them.
fn eigen_general(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a], &[n]) = (operands, sizes) else { return Err(bug("expected a matrix and its size")) };
    if a.iter().any(|x| !x.is_finite()) {
        return Err(no_convergence());
    }
    let found = Eigen::new_from_real(matrix(a, n, n)?).map_err(|_| no_convergence())?;
    let (values, vectors) = (found.S().column_vector(), found.U());
    let (mut re, mut im) = (vec![0.0; n * n], vec![0.0; n * n]);
    for j in 0..n {
        let size = |i: usize| vectors[(i, j)].re.hypot(vectors[(i, j)].im);
        let length = (0..n).map(|i| size(i) * size(i)).sum::<f64>().sqrt();
        let largest = (0..n).max_by(|&one, &other| size(one).total_cmp(&size(other))).unwrap_or(0);
        // Divided by the direction of the largest one; real vectors stay as they are.
        let turn = vectors[(largest, j)];
        let is_real = values[j].im == 0.0;
        let (cos, sin) =
            if is_real { (1.0, 0.0) } else { (turn.re / size(largest), turn.im / size(largest)) };
        for i in 0..n {
            let x = vectors[(i, j)];
            re[i * n + j] = (x.re * cos + x.im * sin) / length;
            im[i * n + j] = if is_real || i == largest { 0.0 } else { (x.im * cos - x.re * sin) / length };
        }
    }
    Ok(vec![(0..n).map(|i| values[i].re).collect(), (0..n).map(|i| values[i].im).collect(), re, im])
}

/// `(1 - t v v^T)` of each column `v` from its diagonal on, where it is 1, multiplied from the left to the right.
fn householder(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([vectors, scales], &[m, k, t, n]) = (operands, sizes) else {
        return Err(bug("expected vectors, scales and sizes"));
    };
    let vectors = matrix(vectors, m, k)?;
    if scales.len() != t || t > k || t > m || n > m {
        return Err(bug("expected at most as many scales as vectors, and as many columns as rows"));
    }
    let mut product = Mat::<f64>::identity(m, n);
    for i in (0..t).rev() {
        let entry = |row: usize| if row == i { 1.0 } else { vectors[(row, i)] };
        for column in 0..n {
            let along: f64 = (i..m).map(|row| entry(row) * product[(row, column)]).sum();
            (i..m).for_each(|row| product[(row, column)] -= scales[i] * along * entry(row));
        }
    }
    Ok(vec![rows(product.as_ref())])
}

fn lu<T: Number>(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a], &[m, n]) = (operands, sizes) else { return Err(bug("expected a matrix and its sizes")) };
    let a = T::of(a);
    let factors = PartialPivLu::new(matrix(&a, m, n)?);
    let (l, u, r) = (factors.L(), factors.U(), m.min(n));
    let both = |(i, j): (usize, usize)| if i > j { l[(i, j)] } else { u[(i, j)] };
    let places = (0..m).flat_map(|i| (0..n).map(move |j| (i, j)));
    let both: Vec<f64> = places.flat_map(|place| both(place).parts()).collect();
    // Which rows were exchanged follows from where each one went.
    let mut order: Vec<usize> = (0..m).collect();
    let mut pivots = Vec::with_capacity(r);
    for (i, &row) in factors.P().arrays().0.iter().enumerate().take(r) {
        let from = order.iter().position(|&other| other == row).unwrap_or(i);
        order.swap(i, from);
        pivots.push((from + 1) as f64);
    }
    let zero = (0..r).find(|&i| u[(i, i)] == T::default());
    Ok(vec![both, pivots, vec![zero.map_or(0.0, |i| (i + 1) as f64)]])
}

/// The rows that are at each place after exchanges.
fn exchanged(pivots: &[f64], m: usize) -> Result<Vec<usize>, RunError> {
    let mut order: Vec<usize> = (0..m).collect();
    for (i, &pivot) in pivots.iter().enumerate() {
        let from = pivot as usize;
        if i >= m || from == 0 || from > m {
            return Err(bug("a pivot that is no row"));
        }
        order.swap(i, from - 1);
    }
    Ok(order)
}

fn permutation(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([pivots], &[m, _]) = (operands, sizes) else { return Err(bug("expected pivots and sizes")) };
    Ok(vec![exchanged(pivots, m)?.into_iter().map(|row| row as f64).collect()])
}

fn lu_solve<T: Number>(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([factors, pivots, b], &[n, k, transposed]) = (operands, sizes) else {
        return Err(bug("expected factors, pivots, right sides and sizes"));
    };
    let (factors, b) = (T::of(factors), T::of(b));
    let (factors, b) = (matrix(&factors, n, n)?, matrix(&b, n, k)?);
    let order = exchanged(pivots, n)?;
    let mut x = Mat::<T>::zeros(n, k);
    if transposed == 0 {
        // L U X = P B
        (0..n).for_each(|i| (0..k).for_each(|j| x[(i, j)] = b[(order[i], j)]));
        factors.solve_unit_lower_triangular_in_place(x.as_mut());
        factors.solve_upper_triangular_in_place(x.as_mut());
        return Ok(vec![rows(x.as_ref())]);
    }
    // U^T L^T P X = B
    x.copy_from(b);
    factors.transpose().solve_lower_triangular_in_place(x.as_mut());
    factors.transpose().solve_unit_upper_triangular_in_place(x.as_mut());
    let mut result = Mat::<T>::zeros(n, k);
    (0..n).for_each(|i| (0..k).for_each(|j| result[(order[i], j)] = x[(i, j)]));
    Ok(vec![rows(result.as_ref())])
}

fn triangular<T: Number>(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a, b], &[n, k, upper, unit]) = (operands, sizes) else {
        return Err(bug("expected a matrix, right sides and sizes"));
    };
    let (a, b) = (T::of(a), T::of(b));
    let (a, mut x) = (matrix(&a, n, n)?, matrix(&b, n, k)?.to_owned());
    match (upper != 0, unit != 0) {
        (true, true) => a.solve_unit_upper_triangular_in_place(x.as_mut()),
        (true, false) => a.solve_upper_triangular_in_place(x.as_mut()),
        (false, true) => a.solve_unit_lower_triangular_in_place(x.as_mut()),
        (false, false) => a.solve_lower_triangular_in_place(x.as_mut()),
    }
    Ok(vec![rows(x.as_ref())])
}

fn qr(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a], &[m, n]) = (operands, sizes) else { return Err(bug("expected a matrix and its sizes")) };
    let found = Qr::new(matrix(a, m, n)?);
    let (vectors, r) = (found.Q_basis(), found.R());
    let both = |(i, j): (usize, usize)| if i > j { vectors[(i, j)] } else { r[(i, j)] };
    let both: Vec<f64> = (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(both).collect();
    // A reflection has `2 / |v|^2`; a vector of nothing but its 1 reflects nothing.
    let scale = |j: usize| {
        let rest: f64 = (j + 1..m).map(|i| vectors[(i, j)] * vectors[(i, j)]).sum();
        if rest == 0.0 { 0.0 } else { 2.0 / (1.0 + rest) }
    };
    Ok(vec![both, (0..m.min(n)).map(scale).collect()])
}

fn svd(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a], &[m, n, left, right]) = (operands, sizes) else {
        return Err(bug("expected a matrix and its sizes"));
    };
    let (a, r) = (matrix(a, m, n)?, m.min(n));
    if (left != r && left != m) || (right != r && right != n) {
        return Err(bug("expected all vectors, or one for each value"));
    }
    if r == 0 {
        // There are no values; what belongs to none is any basis.
        let basis = |size: usize, columns: usize| rows(Mat::<f64>::identity(size, columns).as_ref());
        return Ok(vec![basis(m, left), Vec::new(), basis(n, right)]);
    }
    let found = if left > r || right > r { Svd::new(a) } else { Svd::new_thin(a) };
    let found = found.map_err(|_| no_convergence())?;
    let values = found.S().column_vector();
    let values: Vec<f64> = (0..r).map(|i| values[i]).collect();
    if values.iter().any(|value| value.is_nan()) {
        return Err(no_convergence());
    }
    Ok(vec![rows(found.U().get(.., ..left)), values, rows(found.V().get(.., ..right))])
}

/// Taylor's series of 24 terms of a matrix halved until its norm is below 1, squared as often.
fn matrix_exp(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    /// `1 / 24!` is below the last place of 1.
    const TERMS: usize = 24;
    let ([a], &[n]) = (operands, sizes) else { return Err(bug("expected a matrix and its size")) };
    let a = matrix(a, n, n)?;
    let column = |j: usize| (0..n).map(|i| a[(i, j)].abs()).sum::<f64>();
    let norm = (0..n).map(column).fold(0.0, f64::max);
    if !norm.is_finite() || a.to_owned().col_iter().any(|c| c.iter().any(|x| !x.is_finite())) {
        return Ok(vec![vec![f64::NAN; n * n]]);
    }
    let halvings = if norm > 1.0 { norm.log2().ceil() as i32 } else { 0 };
    let small = a * faer::Scale(0.5f64.powi(halvings));
    let mut sum = Mat::<f64>::identity(n, n);
    for term in (1..=TERMS).rev() {
        sum = &small * &sum * faer::Scale(1.0 / term as f64);
        (0..n).for_each(|i| sum[(i, i)] += 1.0);
    }
    for _ in 0..halvings {
        sum = &sum * &sum;
    }
    Ok(vec![rows(sum.as_ref())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, operands: &[&[f64]], ints: &[i64], results: &[usize]) -> Vec<Vec<f64>> {
        let mut found: Vec<Vec<f64>> = results.iter().map(|&length| vec![f64::NAN; length]).collect();
        let reads: Vec<Read<'_>> = operands
            .iter()
            .map(|numbers| Read { bytes: bytemuck::cast_slice(numbers), dtype: Dtype::F64 })
            .collect();
        let mut writes: Vec<Write<'_>> = found
            .iter_mut()
            .map(|numbers| Write { bytes: bytemuck::cast_slice_mut(numbers), dtype: Dtype::F64 })
            .collect();
        // Pivots are numbers here.
        routine(name).expect("the routine is in the table")(&reads, &mut writes, ints).expect("it fits");
        found
    }

    fn close(found: &[f64], expected: &[f64]) {
        let is_close =
            |(found, expected): (&f64, &f64)| (found - expected).abs() < 1e-14 * expected.abs().max(1.0);
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(is_close),
            "expected {expected:?}, found {found:?}"
        );
    }

    #[test]
    fn a_positive_matrix_has_a_root() {
        let found = call("cholesky", &[&[4.0, 9.0, 2.0, 10.0]], &[1, 2], &[4, 1]);
        close(&found[0], &[2.0, 0.0, 1.0, 3.0]);
        close(&found[1], &[0.0]);
        let found = call("cholesky", &[&[1.0, 0.0, 2.0, 1.0]], &[1, 2], &[4, 1]);
        close(&found[1], &[2.0]);
    }

    #[test]
    fn rows_are_exchanged_and_solved() {
        let a = [1.0, 2.0, 4.0, 2.0];
        let found = call("lu", &[&a], &[1, 2, 2], &[4, 2, 1]);
        close(&found[0], &[4.0, 2.0, 0.25, 1.5]);
        close(&found[1], &[2.0, 2.0]);
        close(&found[2], &[0.0]);
        close(&call("permutation", &[&found[1]], &[1, 2, 2], &[2])[0], &[1.0, 0.0]);
        let x = call("lu_solve", &[&found[0], &found[1], &[5.0, 6.0]], &[1, 2, 1, 0], &[2]);
        close(&x[0], &[1.0 / 3.0, 7.0 / 3.0]);
        let x = call("lu_solve", &[&found[0], &found[1], &[5.0, 6.0]], &[1, 2, 1, 1], &[2]);
        close(&x[0], &[7.0 / 3.0, 2.0 / 3.0]);
        close(&call("lu", &[&[1.0, 2.0, 2.0, 4.0]], &[1, 2, 2], &[4, 2, 1])[2], &[2.0]);
    }

    #[test]
    fn complex_matrices_are_factorized_and_solved() {
        // [[i, 1], [2, i]] x = [1 + i, 2 + i] has the solution [1, 1].
        let (a, b) = ([0.0, 1.0, 1.0, 0.0, 2.0, 0.0, 0.0, 1.0_f32], [1.0, 1.0, 2.0, 1.0_f32]);
        let (mut factors, mut pivots, mut info) = ([f32::NAN; 8], [0_i32; 2], [-1_i32]);
        let a = Read { bytes: bytemuck::cast_slice(&a), dtype: Dtype::C64 };
        let mut writes = [
            Write { bytes: bytemuck::cast_slice_mut(&mut factors), dtype: Dtype::C64 },
            Write { bytes: bytemuck::cast_slice_mut(&mut pivots), dtype: Dtype::I32 },
            Write { bytes: bytemuck::cast_slice_mut(&mut info), dtype: Dtype::I32 },
        ];
        let lu = routine("lu").expect("it is in the table");
        lu(&[a], &mut writes, &[1, 2, 2]).expect("it fits");
        assert_eq!((pivots, info), ([2, 2], [0]));
        assert_eq!(factors, [2.0, 0.0, 0.0, 1.0, 0.0, 0.5, 1.5, 0.0]);
        let mut x = [f32::NAN; 4];
        let reads = [
            Read { bytes: bytemuck::cast_slice(&factors), dtype: Dtype::C64 },
            Read { bytes: bytemuck::cast_slice(&pivots), dtype: Dtype::I32 },
            Read { bytes: bytemuck::cast_slice(&b), dtype: Dtype::C64 },
        ];
        let mut writes = [Write { bytes: bytemuck::cast_slice_mut(&mut x), dtype: Dtype::C64 }];
        routine("lu_solve").expect("it is in the table")(&reads, &mut writes, &[1, 2, 1, 0])
            .expect("it fits");
        assert_eq!(x, [1.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn reflections_give_the_matrix_back() {
        let a = [3.0, 1.0, 4.0, 2.0, 0.0, 5.0];
        let found = call("qr", &[&a], &[1, 3, 2], &[6, 2]);
        let (r, scales) = (&found[0], &found[1]);
        close(&r[..1], &[-5.0]);
        let q = call("householder", &[r, scales], &[1, 3, 2, 2, 2], &[6]);
        let q = &q[0];
        let back: Vec<f64> =
            (0..3).flat_map(|i| [q[2 * i] * r[0], q[2 * i] * r[1] + q[2 * i + 1] * r[3]]).collect();
        close(&back, &a);
        // A column that is a multiple of the first unit vector is left alone, as LAPACK does.
        close(&call("qr", &[&[2.0, 0.0]], &[1, 2, 1], &[2, 1])[1], &[0.0]);
    }

    #[test]
    fn values_come_in_order() {
        let found = call("eigen", &[&[2.0, 9.0, 1.0, 2.0]], &[1, 2], &[2, 4]);
        close(&found[0], &[1.0, 3.0]);
        let a = [0.0, 2.0, 0.0, 3.0, 0.0, 0.0];
        let found = call("svd", &[&a], &[1, 2, 3, 2, 2], &[4, 2, 6]);
        close(&found[1], &[3.0, 2.0]);
        let found = call("svd", &[&a], &[1, 2, 3, 2, 3], &[4, 2, 9]);
        close(&[found[2][8].abs()], &[1.0]);
        assert!(call("eigen", &[&[]], &[1, 0], &[0, 0]).concat().is_empty());
        assert_eq!(call("svd", &[&[]], &[1, 2, 0, 2, 0], &[4, 0, 0])[0], [1.0, 0.0, 0.0, 1.0]);
        let found = call("eigen_general", &[&[0.0, 2.0, -2.0, 0.0]], &[1, 2], &[2, 2, 4, 4]);
        close(&found[0], &[0.0, 0.0]);
        close(&[found[1][0].abs(), found[1][0] + found[1][1]], &[2.0, 0.0]);
        let found = call("triangular", &[&[2.0, 0.0, 1.0, 4.0], &[2.0, 9.0]], &[1, 2, 1, 0, 0], &[2]);
        close(&found[0], &[1.0, 2.0]);
        let found = call("matrix_exp", &[&[0.0, 3.0, -3.0, 0.0]], &[1, 2], &[4]);
        close(&found[0], &[3f64.cos(), 3f64.sin(), -3f64.sin(), 3f64.cos()]);
    }

    #[test]
    fn indefinite_matrices_are_factorized_and_solved() {
        let a = [0.0, 9.0, 9.0, 1.0, 0.0, 9.0, 2.0, 4.0, 3.0];
        let found = call("ldl", &[&a], &[1, 3], &[9, 3, 1]);
        close(&found[1][..1], &[3.0]);
        close(&found[2], &[0.0]);
        let x = call("ldl_solve", &[&found[0], &found[1], &[8.0, 13.0, 19.0]], &[1, 3, 1], &[3]);
        close(&x[0], &[1.0, 2.0, 3.0]);
        // No element of the diagonal will do.
        let found = call("ldl", &[&[0.0, 9.0, 2.0, 0.0]], &[1, 2], &[4, 2, 1]);
        close(&found[1], &[-2.0, -2.0]);
        close(&call("ldl_solve", &[&found[0], &found[1], &[6.0, 10.0]], &[1, 2, 1], &[2])[0], &[5.0, 3.0]);
        close(&call("ldl", &[&[0.0]], &[1, 1], &[1, 1, 1])[2], &[1.0]);
    }

    #[test]
    fn routines_are_those_that_the_compiler_knows() {
        let own: Vec<&str> = ROUTINES.iter().map(|(name, _)| *name).collect();
        assert_eq!(own, litz_ir::loops::LINEAR);
    }
}
