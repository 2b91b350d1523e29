//! The contract of single operators: how far each element may be from the reference, and which positions may differ.
//!
//! For every element, `|litz - ref| <= max(c ulp(dtype), 1.5 e) terms`. `terms` is the size of what the element is made
//! of: for a sum of products the sum of their absolute values, in general `|y|` and the sum of `|x dy/dx|` over the numbers
//! `x` that the operator is given (`benches/export_opinfo.py` finds it). Rounding errors are proportional to it in any
//! order of summation, however much the terms cancel; what is left out, counted twice or taken from elsewhere is not.
//! `e` is eager's largest `|eager - ref| / terms`: it is above `c ulp` for the few operators whose formula in PyTorch
//! loses digits on the way, such as `gelu` far below zero.

use super::Verdict;
use litz_ir::Dtype;
use litz_runtime::Tensor;

/// How many units in the last place of its terms an element may be off.
///
/// Of 1560 results in f32 that PyTorch's samples have, eager's are within 4 in all but 16. Narrower types are computed in
/// f32 and rounded at the end. In f64 eager is the reference itself, so that `e` does not show what a formula loses; most
/// of that is in the terms, which the exporter then measures in f32.
pub fn allowance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F16 | Dtype::BF16 | Dtype::F8E4M3 | Dtype::F8E5M2 => 2.0,
        Dtype::F64 | Dtype::C128 => 256.0,
        _ => 8.0,
    }
}

/// How much larger than what eager's error comes to in f64 that of the reference may be, as roundings differ.
const DOUBT: f64 = 4.0;

/// Relative difference of eager and the reference above which they do not compute the same thing: a result that jumps
/// (the nearest pixel, the bin of a histogram) or depends on the type (its largest number, its next number).
fn same(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 | Dtype::C128 => 1e-6,
        Dtype::F16 | Dtype::BF16 | Dtype::F8E4M3 | Dtype::F8E5M2 => 0.25,
        _ => 1e-2,
    }
}

/// Compares ours with eager's, the reference and its terms, element by element. Where eager and the reference do not
/// compute the same thing, either is right.
pub(super) fn compare(dtype: Dtype, [x, e, r, terms]: [&[f64]; 4], verdict: &mut Verdict) {
    let size = |at: usize| terms[at].max(smallest_normal(dtype));
    // Infinite where it is no number.
    let off = |from: f64, to: f64, size: f64| {
        let off = (from - to).abs() / size;
        if off.is_nan() { f64::INFINITY } else { off }
    };
    let eager_off = |at: usize| off(e[at], r[at], size(at));
    // The reference has the errors of eager's formula, in f64.
    let doubt = |at: usize| (e[at] - r[at]).abs() * (DOUBT * f64::EPSILON / dtype.epsilon());
    let finite: Vec<usize> = (0..x.len()).filter(|&at| x[at].is_finite() && e[at].is_finite()).collect();
    let agreeing = finite.iter().map(|&at| eager_off(at)).filter(|off| *off <= same(dtype));
    verdict.eager_error = agreeing.fold(0.0, f64::max);
    let ours_off = |at: usize| {
        let own = if (x[at] - r[at]).abs() <= doubt(at) { 0.0 } else { off(x[at], r[at], size(at)) };
        let like_eager = || off(x[at], e[at], e[at].abs().max(smallest_normal(dtype)));
        if eager_off(at) > same(dtype) { own.min(like_eager()) } else { own }
    };
    let worst =
        finite.into_iter().map(|at| (ours_off(at), at)).max_by(|one, other| one.0.total_cmp(&other.0));
    let Some((off, at)) = worst else { return };
    verdict.error = off;
    let allowed = f64::max(allowance(dtype) * dtype.epsilon(), 1.5 * verdict.eager_error);
    if off > allowed {
        verdict.broken = Some(format!(
            "element {at}: expected {:e}, or {:e} as eager has it, within {allowed:.3e} of its terms {:.3e}, found {:e}",
            r[at], e[at], terms[at], x[at]
        ));
    }
}

/// Below it, numbers are evenly spaced.
fn smallest_normal(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 | Dtype::C128 => f64::MIN_POSITIVE,
        Dtype::F16 => 2f64.powi(-14),
        Dtype::F8E4M3 => 2f64.powi(-6),
        Dtype::F8E5M2 => 2f64.powi(-14),
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// Why positions along the middle dimension of `indexed` are no answer, if eager's are: each must be of a value equal to
/// the one that eager's is of, and no two of a line the same.
pub(super) fn compare_positions(ours: &Tensor, eager: &Tensor, indexed: &Tensor) -> Option<String> {
    let [outer, count, inner] = *indexed.sizes() else { return Some("expected values of rank 3".to_owned()) };
    let (Some(ours), Some(eager)) = (ours.to_vec::<i64>(), eager.to_vec::<i64>()) else {
        return Some("expected positions of type i64".to_owned());
    };
    let values = indexed.to_f64();
    let lines = outer * inner;
    if lines == 0 || !ours.len().is_multiple_of(lines) {
        return (!ours.is_empty())
            .then(|| format!("expected positions in {lines} lines, found {}", ours.len()));
    }
    let length = ours.len() / lines;
    for (line, (o, i)) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).enumerate() {
        let mut taken = vec![false; count];
        for k in 0..length {
            let at = (o * length + k) * inner + i;
            let inside = |position: i64| usize::try_from(position).ok().filter(|position| *position < count);
            let (Some(position), Some(expected)) = (inside(ours[at]), inside(eager[at])) else {
                return Some(format!("line {line}: position {} is none of {count}", ours[at]));
            };
            let value = |position: usize| values[(o * count + position) * inner + i];
            let (found, wanted) = (value(position), value(expected));
            if found != wanted && !(found.is_nan() && wanted.is_nan()) {
                return Some(format!("line {line}: position {position} holds {found}, expected {wanted}"));
            }
            if std::mem::replace(&mut taken[position], true) {
                return Some(format!("line {line}: position {position} occurs twice"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Expected, compare};
    use super::*;

    /// Random numbers in [-1, 1) as f32 has them.
    struct Random(u64);

    impl Random {
        fn number(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            f64::from(((self.0 >> 40) as f32) / (1 << 23) as f32 - 1.0)
        }
    }

    /// A sum of products in f64: its value, its terms' size, and the products.
    fn sum_of_products(random: &mut Random, count: usize) -> (f64, f64, Vec<[f64; 2]>) {
        let pairs: Vec<[f64; 2]> = (0..count).map(|_| [random.number(), random.number()]).collect();
        let value: f64 = pairs.iter().map(|[a, b]| a * b).sum();
        let size: f64 = pairs.iter().map(|[a, b]| (a * b).abs()).sum();
        // As the exporter counts: the value, and each product once for each of its operands.
        (value, value.abs() + 2.0 * size, pairs)
    }

    fn one<T: litz_runtime::tensor::Element>(value: T) -> Tensor {
        Tensor::from_slice(&[1], &[value]).expect("lengths match")
    }

    fn is_kept(found: f32, value: f64, size: f64) -> bool {
        let (reference, terms) = (one(value), one(size));
        // Eager happens to be exact: its luck asks nothing more of others.
        let eager = one(value as f32);
        let expected = Expected { reference: Some(&reference), terms: Some(&terms), ..(&eager).into() };
        compare(&one(found), expected).broken.is_none()
    }

    /// The same in f64, where eager is the reference.
    fn is_kept_in_f64(found: f64, value: f64, size: f64) -> bool {
        let (reference, terms) = (one(value), one(size));
        let expected = Expected { reference: Some(&reference), terms: Some(&terms), ..(&reference).into() };
        compare(&one(found), expected).broken.is_none()
    }

    #[test]
    fn any_order_of_summation_is_right_also_where_terms_cancel() {
        let mut random = Random(1);
        for round in 0..200 {
            let (value, size, mut pairs) = sum_of_products(&mut random, 64);
            // The last term takes away almost all of the sum.
            pairs.push([(-value) as f32 as f64, 1.0]);
            let value: f64 = pairs.iter().map(|[a, b]| a * b).sum();
            let size = size + 2.0 * pairs[64][0].abs();
            let forwards: f32 = pairs.iter().map(|[a, b]| *a as f32 * *b as f32).sum();
            let backwards: f32 = pairs.iter().rev().map(|[a, b]| *a as f32 * *b as f32).sum();
            assert!(is_kept(forwards, value, size) && is_kept(backwards, value, size), "round {round}");
        }
    }

    #[test]
    fn dropped_and_misplaced_terms_are_found() {
        let mut random = Random(2);
        let (mut dropped, mut shifted, rounds) = (0, 0, 200);
        for _ in 0..rounds {
            let (value, size, pairs) = sum_of_products(&mut random, 64);
            let without: f64 = pairs[1..].iter().map(|[a, b]| a * b).sum();
            dropped += i32::from(!is_kept(without as f32, value, size));
            let mixed: f64 = (0..64).map(|at| pairs[at][0] * pairs[(at + 1) % 64][1]).sum();
            shifted += i32::from(!is_kept(mixed as f32, value, size));
            assert!(!is_kept_in_f64(without, value, size) && !is_kept_in_f64(mixed, value, size));
            let backwards: f64 = pairs.iter().rev().map(|[a, b]| a * b).sum();
            assert!(is_kept_in_f64(backwards, value, size));
        }
        // A term below the allowance is the one that cannot be missed: 8 * 1.2e-7 of about 32.
        assert!(dropped >= rounds - 2 && shifted == rounds, "{dropped} and {shifted} of {rounds}");
    }

    #[test]
    fn wrong_remainders_and_neighbouring_elements_are_found() {
        let mut random = Random(3);
        for _ in 0..200 {
            let (a, b) = (random.number() * 10.0, random.number().abs() + 0.1);
            let right = a - b * (a / b).floor();
            let terms = right.abs() + a.abs() + (b * (a / b).floor()).abs();
            assert!(is_kept(right as f32, right, terms));
            // The remainder of truncated division, and that of a quotient that is one off.
            let truncated = a - b * (a / b).trunc();
            assert_eq!(is_kept(truncated as f32, right, terms), a >= 0.0, "{a} {b}");
            assert!(!is_kept((right + b) as f32, right, terms));
        }
        // An index off by one reads a neighbour: of a pointwise function each element is its own term.
        for _ in 0..200 {
            let (mine, neighbour) = (random.number(), random.number());
            assert!(!is_kept(neighbour as f32, mine, 2.0 * mine.abs()), "{mine} {neighbour}");
        }
    }

    #[test]
    fn elements_do_not_hide_behind_others() {
        let reference = Tensor::from_slice(&[2], &[1e6f64, 1e-3]).expect("lengths match");
        let eager = Tensor::from_slice(&[2], &[1e6f32, 1e-3]).expect("lengths match");
        let ours = Tensor::from_slice(&[2], &[1e6f32, 2e-3]).expect("lengths match");
        let expected = Expected { reference: Some(&reference), ..(&eager).into() };
        assert!(compare(&ours, expected).broken.is_none());
        let expected = Expected { terms: Some(&reference), ..expected };
        let broken = compare(&ours, expected).broken.expect("one element is wrong");
        assert!(broken.starts_with("element 1: "), "{broken}");
    }

    #[test]
    fn the_reference_loses_digits_as_eager_does() {
        // The cosine of an odd multiple of a right angle.
        let (reference, eager) = (one(-4.286e-16f64), one(6.6e-7f32));
        let terms = one(4.286e-16f64);
        let expected = Expected { reference: Some(&reference), terms: Some(&terms), ..(&eager).into() };
        assert!(compare(&one(0f32), expected).broken.is_none());
        assert!(compare(&one(1e-10f32), expected).broken.is_some());
    }

    #[test]
    fn where_a_result_jumps_eager_and_the_reference_are_right() {
        // The largest number of the type, and the nearest of two pixels.
        let reference = Tensor::from_slice(&[3], &[f64::MAX, 2.0, 5.0]).expect("lengths match");
        let eager = Tensor::from_slice(&[3], &[f32::MAX, 7.0, 5.0]).expect("lengths match");
        let expected = Expected { reference: Some(&reference), terms: Some(&reference), ..(&eager).into() };
        for (ours, is_right) in [
            ([f32::MAX, 7.0, 5.0], true),
            ([f32::MAX, 2.0, 5.0], true),
            ([f32::MAX, 3.0, 5.0], false),
            ([f32::MAX / 2.0, 7.0, 5.0], false),
            ([f32::MAX, 7.0, 5.1], false),
        ] {
            let ours = Tensor::from_slice(&[3], &ours).expect("lengths match");
            assert_eq!(compare(&ours, expected).broken.is_none(), is_right, "{:?}", ours.to_f64());
        }
    }

    #[test]
    fn positions_of_equal_values_are_free_but_distinct() {
        let nan = f32::NAN;
        let values = Tensor::from_slice(&[1, 4, 2], &[1.0, 9.0, 3.0, nan, 3.0, 9.0, 2.0, nan]).expect("fits");
        let positions = |list: &[i64]| Tensor::from_slice(&[2, 2], list).expect("lengths match");
        let eager = positions(&[1, 1, 2, 3]);
        let broken = |list: &[i64]| {
            let expected = Expected { indexed: Some(&values), ..(&eager).into() };
            compare(&positions(list), expected).broken
        };
        assert_eq!(broken(&[1, 1, 2, 3]), None);
        assert_eq!(broken(&[2, 3, 1, 1]), None);
        assert!(broken(&[1, 1, 1, 3]).is_some_and(|why| why.contains("position 1 occurs twice")));
        assert!(broken(&[1, 1, 3, 3]).is_some_and(|why| why.contains("position 3 holds 2, expected 3")));
        assert!(broken(&[1, 0, 2, 3]).is_some_and(|why| why.contains("holds 9, expected NaN")));
        assert!(broken(&[1, 1, 2, 4]).is_some_and(|why| why.contains("position 4 is none of 4")));
        assert!(broken(&[-1, 1, 2, 3]).is_some_and(|why| why.contains("position -1 is none of 4")));
    }
}
