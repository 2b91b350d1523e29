//! Factorizes symmetric matrices that need not be positive as `L D L^T` with the pivots of Bunch and Kaufman, and solves with them.
//!
//! D has blocks of 1 and of 2 on its diagonal. Pivots are those of LAPACK's `sytrf` for lower triangles: from 1, negative for both
//! rows of a block of 2, of which the second was exchanged.

use faer::Mat;

use super::{bug, matrix, rows};
use crate::error::RunError;

/// How much smaller than the largest of its column a pivot may be: `(1 + sqrt(17)) / 8`, which bounds the growth of elements.
const THRESHOLD: f64 = 0.640_388_203_202_208_4;

/// The first of the places with the largest size, and that size.
fn largest(places: impl Iterator<Item = usize>, size: impl Fn(usize) -> f64) -> Option<(usize, f64)> {
    let sized = places.map(|at| (at, size(at)));
    sized.reduce(|best, next| if next.1 > best.1 { next } else { best })
}

fn swap(a: &mut Mat<f64>, one: (usize, usize), other: (usize, usize)) {
    (a[one], a[other]) = (a[other], a[one]);
}

/// Exchanges rows and columns `kk` and `kp` of the lower triangle of what is left of a matrix, `kk < kp`.
fn exchange(a: &mut Mat<f64>, kk: usize, kp: usize) {
    (kp + 1..a.nrows()).for_each(|i| swap(a, (i, kk), (i, kp)));
    (kk + 1..kp).for_each(|i| swap(a, (i, kk), (kp, i)));
    swap(a, (kk, kk), (kp, kp));
}

/// The row that the pivot comes from, and the width of its block; nothing where the column is zero.
fn pivot(a: &Mat<f64>, k: usize) -> Option<(usize, usize)> {
    let n = a.nrows();
    let own = a[(k, k)].abs();
    let (row, column) = largest(k + 1..n, |i| a[(i, k)].abs()).unwrap_or((k, 0.0));
    if own.max(column) == 0.0 || own.is_nan() {
        return None;
    }
    if own >= THRESHOLD * column {
        return Some((k, 1));
    }
    let left = largest(k..row, |j| a[(row, j)].abs()).map_or(0.0, |best| best.1);
    let below = largest(row + 1..n, |i| a[(i, row)].abs()).map_or(0.0, |best| best.1);
    let others = left.max(below);
    Some(if own >= THRESHOLD * column * (column / others) {
        (k, 1)
    } else if a[(row, row)].abs() >= THRESHOLD * others {
        (row, 1)
    } else {
        (row, 2)
    })
}

/// Routine `ldl`.
pub(super) fn factor(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([a], &[n]) = (operands, sizes) else { return Err(bug("expected a matrix and its size")) };
    let given = matrix(a, n, n)?;
    let mut a = Mat::from_fn(n, n, |i, j| if i >= j { given[(i, j)] } else { 0.0 });
    let (mut pivots, mut info, mut k) = (vec![0.0; n], 0, 0);
    while k < n {
        let Some((row, width)) = pivot(&a, k) else {
            info = if info == 0 { k + 1 } else { info };
            pivots[k] = (k + 1) as f64;
            k += 1;
            continue;
        };
        let last = k + width - 1;
        if row != last {
            exchange(&mut a, last, row);
            if width == 2 {
                swap(&mut a, (k + 1, k), (row, k));
            }
        }
        if width == 1 {
            let inverse = 1.0 / a[(k, k)];
            for j in k + 1..n {
                let by = inverse * a[(j, k)];
                (j..n).for_each(|i| a[(i, j)] -= a[(i, k)] * by);
            }
            (k + 1..n).for_each(|i| a[(i, k)] *= inverse);
            pivots[k] = (row + 1) as f64;
        } else {
            let between = a[(k + 1, k)];
            let (second, first) = (a[(k + 1, k + 1)] / between, a[(k, k)] / between);
            let scale = 1.0 / (second * first - 1.0) / between;
            for j in k + 2..n {
                let one = scale * (second * a[(j, k)] - a[(j, k + 1)]);
                let other = scale * (first * a[(j, k + 1)] - a[(j, k)]);
                (j..n).for_each(|i| a[(i, j)] -= a[(i, k)] * one + a[(i, k + 1)] * other);
                (a[(j, k)], a[(j, k + 1)]) = (one, other);
            }
            pivots[k..k + 2].fill(-((row + 1) as f64));
        }
        k += width;
    }
    Ok(vec![rows(a.as_ref()), pivots, vec![info as f64]])
}

/// Routine `ldl_solve`.
pub(super) fn solve(operands: &[Vec<f64>], sizes: &[usize]) -> Result<Vec<Vec<f64>>, RunError> {
    let ([factors, pivots, b], &[n, k]) = (operands, sizes) else {
        return Err(bug("expected factors, pivots, right sides and sizes"));
    };
    let (a, mut x) = (matrix(factors, n, n)?, matrix(b, n, k)?.to_owned());
    let swap_rows = |x: &mut Mat<f64>, one: usize, other: usize| {
        (0..k).for_each(|j| swap(x, (one, j), (other, j)));
    };
    // Blocks of D: where each begins, how wide it is, and the row that its last one was exchanged with.
    let (mut blocks, mut at) = (Vec::new(), 0);
    while at < n {
        let width = if pivots[at] < 0.0 { 2 } else { 1 };
        let row = pivots[at].abs() as usize;
        if row == 0 || row > n || at + width > n {
            return Err(bug("a pivot that is no row"));
        }
        blocks.push((at, width, row - 1));
        at += width;
    }
    for &(at, width, row) in &blocks {
        swap_rows(&mut x, at + width - 1, row);
        for (j, column) in (0..k).flat_map(|j| (at..at + width).map(move |column| (j, column))) {
            let by = x[(column, j)];
            (at + width..n).for_each(|i| x[(i, j)] -= a[(i, column)] * by);
        }
        for j in 0..k {
            if width == 1 {
                x[(at, j)] /= a[(at, at)];
                continue;
            }
            let between = a[(at + 1, at)];
            let (first, second) = (a[(at, at)] / between, a[(at + 1, at + 1)] / between);
            let (one, other) = (x[(at, j)] / between, x[(at + 1, j)] / between);
            let divisor = first * second - 1.0;
            x[(at, j)] = (second * one - other) / divisor;
            x[(at + 1, j)] = (first * other - one) / divisor;
        }
    }
    for &(at, width, row) in blocks.iter().rev() {
        for (j, column) in (0..k).flat_map(|j| (at..at + width).map(move |column| (j, column))) {
            let sum: f64 = (at + width..n).map(|i| a[(i, column)] * x[(i, j)]).sum();
            x[(column, j)] -= sum;
        }
        swap_rows(&mut x, at + width - 1, row);
    }
    Ok(vec![rows(x.as_ref())])
}
