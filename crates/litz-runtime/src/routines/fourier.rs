//! Transforms rows of numbers by Fourier's sums, by `rustfft` and `realfft`.
//!
//! A result is the sum over j of the row's element j times e to the power of -2 pi i j k / n, backward of 2 pi i j k / n. Rows are
//! of any length from 1. What is real is f32, what is complex c64.

use litz_ir::Dtype;
use num_complex::Complex;
use realfft::RealFftPlanner;
use rustfft::FftPlanner;

use super::{Read, Routine, Write};
use crate::error::RunError;

/// Every routine by name. Buffers are batches of rows; the first integer is the number of rows, the second, n, the length of
/// the longer ones, and the last says what results are divided by: 0 nothing, 1 the root of n, 2 n.
///
/// | name | reads | writes | integers |
/// |---|---|---|---|
/// | `fft` | c64 `[n]` | c64 `[n]` | rows, n, forward, divisor |
/// | `irfft` | c64 `[n / 2 + 1]`, the first half of numbers that are conjugate to those of the other | f32 `[n]`, backward | rows, n, divisor |
/// | `rfft` | f32 `[n]` | c64 `[kept]`, forward: the first `n / 2 + 1`, or all n | rows, n, kept, divisor |
const ROUTINES: &[(&str, Routine)] = &[("fft", fft), ("irfft", irfft), ("rfft", rfft)];

/// The routine of that name.
pub(super) fn routine(name: &str) -> Option<Routine> {
    ROUTINES.iter().find(|(known, _)| *known == name).map(|(_, routine)| *routine)
}

fn bug(what: &str) -> RunError {
    RunError::bug("call of a Fourier transform", what)
}

/// The number of elements of rows of this length.
fn elements(rows: i64, length: i64) -> Result<usize, RunError> {
    let count = rows.checked_mul(length).filter(|_| rows >= 0 && length >= 1);
    count
        .and_then(|count| usize::try_from(count).ok())
        .ok_or_else(|| bug("expected rows of at least one element"))
}

fn read<'a, T: bytemuck::AnyBitPattern>(
    read: &Read<'a>,
    dtype: Dtype,
    count: usize,
) -> Result<&'a [T], RunError> {
    let elements = (read.dtype == dtype).then(|| bytemuck::try_cast_slice(read.bytes).ok()).flatten();
    elements
        .filter(|elements: &&[T]| elements.len() == count)
        .ok_or_else(|| bug("an operand of another type or size"))
}

fn write<'a, T: bytemuck::Pod>(
    write: &'a mut Write<'_>,
    dtype: Dtype,
    count: usize,
) -> Result<&'a mut [T], RunError> {
    let elements = if write.dtype == dtype { bytemuck::try_cast_slice_mut(write.bytes).ok() } else { None };
    elements
        .filter(|elements: &&mut [T]| elements.len() == count)
        .ok_or_else(|| bug("a result of another type or size"))
}

/// What results are multiplied by, if they are.
fn factor(length: usize, divisor: i64) -> Result<Option<f32>, RunError> {
    match divisor {
        0 => Ok(None),
        1 => Ok(Some((1.0 / (length as f64).sqrt()) as f32)),
        2 => Ok(Some((1.0 / length as f64) as f32)),
        _ => Err(bug("expected a divisor")),
    }
}

fn fft(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let ([from], [to], &[rows, n, forward, divisor]) = (reads, writes, ints) else {
        return Err(bug("expected an operand, a result and four integers"));
    };
    let (count, length) = (elements(rows, n)?, elements(1, n)?);
    let from = read::<Complex<f32>>(from, Dtype::C64, count)?;
    let to = write::<Complex<f32>>(to, Dtype::C64, count)?;
    let factor = factor(length, divisor)?;
    if count == 0 {
        return Ok(());
    }
    let mut planner = FftPlanner::<f32>::new();
    let plan = if forward != 0 { planner.plan_fft_forward(length) } else { planner.plan_fft_inverse(length) };
    to.copy_from_slice(from);
    plan.process(to);
    if let Some(factor) = factor {
        to.iter_mut().for_each(|z| *z *= factor);
    }
    Ok(())
}

fn rfft(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let ([from], [to], &[rows, n, kept, divisor]) = (reads, writes, ints) else {
        return Err(bug("expected an operand, a result and four integers"));
    };
    let (length, half, kept_length) = (elements(1, n)?, elements(1, n / 2 + 1)?, elements(1, kept)?);
    if kept_length != half && kept_length != length {
        return Err(bug("expected half of the results or all"));
    }
    let count = elements(rows, n)?;
    let from = read::<f32>(from, Dtype::F32, count)?;
    let to = write::<Complex<f32>>(to, Dtype::C64, elements(rows, kept)?)?;
    let factor = factor(length, divisor)?;
    if count == 0 {
        return Ok(());
    }
    let plan = RealFftPlanner::<f32>::new().plan_fft_forward(length);
    let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
    for (from, to) in from.chunks_exact(length).zip(to.chunks_exact_mut(kept_length)) {
        row.copy_from_slice(from);
        let done = plan.process_with_scratch(&mut row, &mut to[..half], &mut scratch);
        done.map_err(|_| bug("a plan of another length"))?;
        if let Some(factor) = factor {
            to[..half].iter_mut().for_each(|z| *z *= factor);
        }
        (half..kept_length).for_each(|k| to[k] = to[length - k].conj());
    }
    Ok(())
}

fn irfft(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let ([from], [to], &[rows, n, divisor]) = (reads, writes, ints) else {
        return Err(bug("expected an operand, a result and three integers"));
    };
    let (length, half) = (elements(1, n)?, elements(1, n / 2 + 1)?);
    let from = read::<Complex<f32>>(from, Dtype::C64, elements(rows, n / 2 + 1)?)?;
    let to = write::<f32>(to, Dtype::F32, elements(rows, n)?)?;
    let factor = factor(length, divisor)?;
    if to.is_empty() {
        return Ok(());
    }
    let plan = RealFftPlanner::<f32>::new().plan_fft_inverse(length);
    let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
    for (from, to) in from.chunks_exact(half).zip(to.chunks_exact_mut(length)) {
        row.copy_from_slice(from);
        // Numbers that are conjugate to themselves are real; what is said otherwise does not count.
        row[0].im = 0.0;
        if length % 2 == 0 {
            row[half - 1].im = 0.0;
        }
        let done = plan.process_with_scratch(&mut row, to, &mut scratch);
        done.map_err(|_| bug("a plan of another length"))?;
        if let Some(factor) = factor {
            to.iter_mut().for_each(|x| *x *= factor);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: [usize; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64, 97, 360];
    const ROWS: usize = 3;

    /// The sum as it is written, in f64.
    fn sums(row: &[Complex<f64>], sign: f64) -> Vec<Complex<f64>> {
        let n = row.len();
        let turn = |jk: usize| Complex::cis(sign * std::f64::consts::TAU * (jk % n) as f64 / n as f64);
        (0..n).map(|k| row.iter().enumerate().map(|(j, z)| z * turn(j * k)).sum()).collect()
    }

    /// Numbers between -1 and 1 without a pattern.
    fn numbers(count: usize) -> Vec<f32> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn complex(count: usize) -> Vec<Complex<f32>> {
        numbers(2 * count).chunks(2).map(|pair| Complex::new(pair[0], pair[1])).collect()
    }

    fn wide(row: &[Complex<f32>]) -> Vec<Complex<f64>> {
        row.iter().map(|z| Complex::new(f64::from(z.re), f64::from(z.im))).collect()
    }

    fn call<T: bytemuck::Pod, U: bytemuck::Pod>(
        name: &str,
        from: (&[T], Dtype),
        to: (&mut [U], Dtype),
        ints: &[i64],
    ) -> Result<(), RunError> {
        let reads = [Read { bytes: bytemuck::cast_slice(from.0), dtype: from.1 }];
        let mut writes = [Write { bytes: bytemuck::cast_slice_mut(to.0), dtype: to.1 }];
        routine(name).expect("the routine is in the table")(&reads, &mut writes, ints)
    }

    fn divided(n: usize, divisor: i64) -> f64 {
        [1.0, (n as f64).sqrt(), n as f64][divisor as usize]
    }

    fn close(found: &[Complex<f64>], expected: &[Complex<f64>], divisor: f64, what: &str) {
        let tolerance = 2e-6 * (expected.len() as f64) / divisor;
        let pairs = found.iter().zip(expected).enumerate();
        assert_eq!(found.len(), expected.len(), "{what}");
        for (k, (found, expected)) in pairs {
            assert!(
                (found - expected / divisor).norm() <= tolerance,
                "{what}, {k}: expected {expected}, found {found}"
            );
        }
    }

    #[test]
    fn complex_rows_of_each_length() {
        for n in LENGTHS {
            let rows = complex(ROWS * n);
            for (forward, divisor) in [(0, 0), (0, 2), (1, 0), (1, 1)] {
                let mut found = vec![Complex::new(f32::NAN, f32::NAN); ROWS * n];
                call(
                    "fft",
                    (&rows, Dtype::C64),
                    (&mut found, Dtype::C64),
                    &[ROWS as i64, n as i64, forward, divisor],
                )
                .expect("it fits");
                for (row, found) in rows.chunks(n).zip(found.chunks(n)) {
                    let sign = if forward == 1 { -1.0 } else { 1.0 };
                    close(
                        &wide(found),
                        &sums(&wide(row), sign),
                        divided(n, divisor),
                        &format!("{n}, {forward}"),
                    );
                }
            }
        }
    }

    #[test]
    fn real_rows_of_each_length() {
        for n in LENGTHS {
            let rows = numbers(ROWS * n);
            for (kept, divisor) in [(n / 2 + 1, 0), (n, 1), (n, 2)] {
                let mut found = vec![Complex::new(f32::NAN, f32::NAN); ROWS * kept];
                call(
                    "rfft",
                    (&rows, Dtype::F32),
                    (&mut found, Dtype::C64),
                    &[ROWS as i64, n as i64, kept as i64, divisor],
                )
                .expect("it fits");
                for (row, found) in rows.chunks(n).zip(found.chunks(kept)) {
                    let row: Vec<_> = row.iter().map(|&x| Complex::new(f64::from(x), 0.0)).collect();
                    let mut found = wide(found);
                    let mut expected = sums(&row, -1.0);
                    expected.truncate(kept);
                    // One-sided results of length n have errors as of the whole row.
                    found.resize(n.max(kept), Complex::default());
                    expected.resize(n.max(kept), Complex::default());
                    close(&found, &expected, divided(n, divisor), &format!("{n}, {kept}"));
                }
            }
        }
    }

    #[test]
    fn real_results_of_each_length() {
        for n in LENGTHS {
            let half = n / 2 + 1;
            let rows = complex(ROWS * half);
            for divisor in 0..3 {
                let mut found = vec![f32::NAN; ROWS * n];
                call(
                    "irfft",
                    (&rows, Dtype::C64),
                    (&mut found, Dtype::F32),
                    &[ROWS as i64, n as i64, divisor],
                )
                .expect("it fits");
                for (row, found) in rows.chunks(half).zip(found.chunks(n)) {
                    let mut row = wide(row);
                    row[0].im = 0.0;
                    if n % 2 == 0 {
                        row[n / 2].im = 0.0;
                    }
                    let whole: Vec<_> =
                        (0..n).map(|k| if k < half { row[k] } else { row[n - k].conj() }).collect();
                    let found: Vec<_> = found.iter().map(|&x| Complex::new(f64::from(x), 0.0)).collect();
                    close(&found, &sums(&whole, 1.0), divided(n, divisor), &format!("{n}"));
                }
            }
        }
    }

    #[test]
    fn no_rows_and_rows_that_do_not_fit() {
        let (none, mut nothing) = (Vec::<Complex<f32>>::new(), Vec::<Complex<f32>>::new());
        let mut run = |ints: &[i64]| call("fft", (&none, Dtype::C64), (&mut nothing, Dtype::C64), ints);
        run(&[0, 5, 1, 1]).expect("there is nothing to do");
        for ints in [&[1, 5, 1, 0][..], &[0, 0, 1, 0], &[0, 5, 1, 3], &[-1, 5, 1, 0], &[0, 5, 1]] {
            run(ints).expect_err("it does not fit");
        }
    }

    #[test]
    fn routines_are_those_that_the_compiler_knows() {
        let own: Vec<&str> = ROUTINES.iter().map(|(name, _)| *name).collect();
        assert_eq!(own, litz_ir::loops::FOURIER);
    }
}
