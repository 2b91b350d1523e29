//! Applies functions of one or two numbers to each element, those whose steps depend on the numbers: kernels have no such loops.

use bytemuck::Pod;
use litz_ir::Dtype;

use super::gamma::{gammainc, gammaincc, ndtri, zeta};
use super::{Read, Routine, Write, bessel};
use crate::error::RunError;

/// Every function by name. Each reads one or two buffers of f32 or f64 and writes one of the same type, and takes the
/// number of elements. All compute in f64, but for `gcd`, which is of i64.
///
/// `hermite_h`, `hermite_he`, `laguerre_l` and `legendre_p` read an argument and a degree, of which only the integer part
/// counts; a negative one gives 0.
const FUNCTIONS: &[(&str, Routine)] = &[
    ("airy_ai", |r, w, i| one(r, w, i, bessel::airy_ai)),
    ("bessel_j0", |r, w, i| one(r, w, i, bessel::j0)),
    ("bessel_j1", |r, w, i| one(r, w, i, bessel::j1)),
    ("bessel_k0", |r, w, i| one(r, w, i, bessel::k0)),
    ("bessel_k1", |r, w, i| one(r, w, i, bessel::k1)),
    ("bessel_scaled_k0", |r, w, i| one(r, w, i, bessel::scaled_k0)),
    ("bessel_scaled_k1", |r, w, i| one(r, w, i, bessel::scaled_k1)),
    ("bessel_y0", |r, w, i| one(r, w, i, bessel::y0)),
    ("bessel_y1", |r, w, i| one(r, w, i, bessel::y1)),
    ("gammainc", |r, w, i| two(r, w, i, |_, a, x| gammainc(a, x))),
    ("gammaincc", |r, w, i| two(r, w, i, |_, a, x| gammaincc(a, x))),
    ("gcd", gcd),
    ("hermite_h", |r, w, i| two(r, w, i, |dtype, x, n| hermite(dtype, x, n, 2.0))),
    ("hermite_he", |r, w, i| two(r, w, i, |dtype, x, n| hermite(dtype, x, n, 1.0))),
    ("laguerre_l", |r, w, i| two(r, w, i, |_, x, n| laguerre(x, n))),
    ("legendre_p", |r, w, i| two(r, w, i, |_, x, n| legendre(x, n))),
    ("ndtri", |r, w, i| one(r, w, i, ndtri)),
    ("zeta", |r, w, i| two(r, w, i, |_, x, q| zeta(x, q))),
];

/// The function of that name.
pub(super) fn routine(name: &str) -> Option<Routine> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, routine)| *routine)
}

fn one(
    reads: &[Read<'_>],
    writes: &mut [Write<'_>],
    ints: &[i64],
    function: impl Fn(f64) -> f64,
) -> Result<(), RunError> {
    apply(reads, writes, ints, |_, [x]| function(x))
}

fn two(
    reads: &[Read<'_>],
    writes: &mut [Write<'_>],
    ints: &[i64],
    function: impl Fn(Dtype, f64, f64) -> f64,
) -> Result<(), RunError> {
    apply(reads, writes, ints, |dtype, [a, b]| function(dtype, a, b))
}

fn apply<const N: usize>(
    reads: &[Read<'_>],
    writes: &mut [Write<'_>],
    ints: &[i64],
    function: impl Fn(Dtype, [f64; N]) -> f64,
) -> Result<(), RunError> {
    let (Ok(reads), [to], &[count]) = (<&[Read<'_>; N]>::try_from(reads), writes, ints) else {
        return Err(bug("expected the operands, a result and the number of elements"));
    };
    let dtype = to.dtype;
    if reads.iter().any(|read| read.dtype != dtype) {
        return Err(bug("expected operands of the result's type"));
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let function = |numbers: [f64; N]| function(dtype, numbers);
    match dtype {
        Dtype::F32 => each::<f32, N>(reads, to, count, |x| function(x.map(f64::from)) as f32),
        Dtype::F64 => each::<f64, N>(reads, to, count, function),
        _ => None,
    }
    .ok_or_else(|| bug("expected buffers of floating-point numbers that hold all elements"))
}

fn bug(what: &str) -> RunError {
    RunError::bug("call of an elementwise function", what)
}

/// The greatest common divisor by Euclid's algorithm, whose signs are those of the operands' remainders.
fn gcd(reads: &[Read<'_>], writes: &mut [Write<'_>], ints: &[i64]) -> Result<(), RunError> {
    let (Ok(reads), [to], &[count]) = (<&[Read<'_>; 2]>::try_from(reads), writes, ints) else {
        return Err(bug("expected two operands, a result and the number of elements"));
    };
    let divisor = |[mut a, mut b]: [i64; 2]| {
        while a != 0 {
            (a, b) = (b.wrapping_rem(a), a);
        }
        b
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let is_whole = to.dtype == Dtype::I64 && reads.iter().all(|read| read.dtype == Dtype::I64);
    let done = if is_whole { each::<i64, 2>(reads, to, count, divisor) } else { None };
    done.ok_or_else(|| bug("expected buffers of i64 that hold all elements"))
}

/// None where a buffer is too small.
fn each<T: Pod, const N: usize>(
    reads: &[Read<'_>; N],
    to: &mut Write<'_>,
    count: usize,
    function: impl Fn([T; N]) -> T,
) -> Option<()> {
    let mut operands = [&[] as &[T]; N];
    for (operand, read) in operands.iter_mut().zip(reads) {
        *operand = bytemuck::try_cast_slice(read.bytes).ok()?.get(..count)?;
    }
    let results = bytemuck::try_cast_slice_mut::<u8, T>(to.bytes).ok()?.get_mut(..count)?;
    for (at, result) in results.iter_mut().enumerate() {
        *result = function(operands.map(|operand| operand[at]));
    }
    Some(())
}

/// A degree as an integer; what is none of i64 counts as negative.
fn degree(n: f64) -> i64 {
    if n.abs() < 2f64.powi(63) { n as i64 } else { -1 }
}

/// Hermite polynomials: of a physicist with a factor of 2, of a probabilist with 1. Eager has none of a degree above 128 in
/// f32 and 512 in f64.
fn hermite(dtype: Dtype, x: f64, n: f64, factor: f64) -> f64 {
    let most = if dtype == Dtype::F32 { 128 } else { 512 };
    match degree(n) {
        n if n < 0 => 0.0,
        n if n > most => f64::NAN,
        n => recurrence(n, factor * x, |k, last, before| factor * (x * last - (k - 1.0) * before)),
    }
}

fn laguerre(x: f64, n: f64) -> f64 {
    match degree(n) {
        n if n < 0 => 0.0,
        _ if x == 0.0 => 1.0,
        n => recurrence(n, 1.0 - x, |k, last, before| ((2.0 * k - 1.0 - x) * last - (k - 1.0) * before) / k),
    }
}

fn legendre(x: f64, n: f64) -> f64 {
    match degree(n) {
        n if n < 0 => 0.0,
        n if x.abs() == 1.0 => {
            if n % 2 == 0 {
                1.0
            } else {
                x
            }
        }
        n => recurrence(n, x, |k, last, before| ((2.0 * k - 1.0) * x * last - (k - 1.0) * before) / k),
    }
}

/// The degree up to which polynomials are computed, step by step: eager mode goes on for hours.
const MOST_STEPS: i64 = 1 << 24;

/// The polynomial of degree `n` from those of degrees 0, which is 1, and 1: `step(k, last, before)` gives that of degree k.
/// What is no number stays so, and so is one of a degree above [`MOST_STEPS`].
fn recurrence(n: i64, first: f64, step: impl Fn(f64, f64, f64) -> f64) -> f64 {
    if n == 0 {
        return 1.0;
    }
    if n > MOST_STEPS {
        return f64::NAN;
    }
    let (mut before, mut last) = (1.0, first);
    for k in 2..=n {
        if last.is_nan() {
            break;
        }
        (before, last) = (last, step(k as f64, last, before));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, reads: &[&[f64]]) -> Vec<f64> {
        let mut result = vec![0.0; reads[0].len()];
        let operands: Vec<Read<'_>> =
            reads.iter().map(|read| Read { bytes: bytemuck::cast_slice(read), dtype: Dtype::F64 }).collect();
        let mut writes = [Write { bytes: bytemuck::cast_slice_mut(&mut result), dtype: Dtype::F64 }];
        let function = routine(name).expect("the function is in the table");
        function(&operands, &mut writes, &[reads[0].len() as i64]).expect("it fits");
        result
    }

    #[test]
    fn divisors_are_those_of_euclid() {
        let (a, b) = ([12i64, 0, 7, 0, i64::MIN], [18i64, 5, -21, 0, -1]);
        let mut result = [-9i64; 5];
        let reads = [&a, &b].map(|numbers| Read { bytes: bytemuck::cast_slice(numbers), dtype: Dtype::I64 });
        let mut writes = [Write { bytes: bytemuck::cast_slice_mut(&mut result), dtype: Dtype::I64 }];
        routine("gcd").expect("the function is in the table")(&reads, &mut writes, &[5]).expect("it fits");
        assert_eq!(result, [6, 5, 7, 0, -1]);
    }

    #[test]
    fn polynomials_have_their_values() {
        let degrees = [-1.0, 0.0, 1.0, 2.0, 3.75, f64::NAN];
        let x = [0.5; 6];
        assert_eq!(call("hermite_h", &[&x, &degrees]), [0.0, 1.0, 1.0, -1.0, -5.0, 0.0]);
        assert_eq!(call("hermite_he", &[&x, &degrees]), [0.0, 1.0, 0.5, -0.75, -1.375, 0.0]);
        assert_eq!(call("legendre_p", &[&x, &degrees]), [0.0, 1.0, 0.5, -0.125, -0.4375, 0.0]);
        assert_eq!(call("laguerre_l", &[&x, &degrees])[..4], [0.0, 1.0, 0.5, 0.125]);
        assert_eq!(call("legendre_p", &[&[-1.0, 1.0], &[3.0, 3.0]]), [-1.0, 1.0]);
        assert!(call("hermite_h", &[&[0.5], &[513.0]])[0].is_nan());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let function = routine("zeta").expect("the function is in the table");
        let bytes = [0; 8];
        let read = Read { bytes: &bytes, dtype: Dtype::F64 };
        let mut to = [0; 8];
        for (reads, dtype, count) in [
            (vec![read], Dtype::F64, 1),
            (vec![read, read], Dtype::F32, 1),
            (vec![read, read], Dtype::F64, 2),
            (vec![read, read], Dtype::F64, -1),
        ] {
            let mut writes = [Write { bytes: &mut to, dtype }];
            assert!(function(&reads, &mut writes, &[count]).is_err(), "{} {dtype} {count}", reads.len());
        }
    }

    #[test]
    fn functions_are_those_that_the_compiler_knows() {
        let known: Vec<&str> = litz_ir::loops::ELEMENTWISE.iter().map(|(name, _)| *name).collect();
        let own: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, own);
    }
}
