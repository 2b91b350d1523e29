//! Checks the numeric contract: how far a result may be from PyTorch's.
//!
//! For every floating output, in 2-norms: |litz - ref| <= 1.5 |eager - ref| + ulp(dtype) |ref|, where `ref` was computed
//! in f64 and `eager` is PyTorch's result; NaN and infinities in the same places. Integers and truth values are
//! equal to eager's; where roundings decide them, so that eager's differ from those computed in f64, no more of litz's do.
//! Single operators, where the terms of each element are known, are held to the stricter rule of [`elements`].

pub mod elements;

use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_runtime::Tensor;

/// What comparing one output gave.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// |litz - ref| / |ref|, or against `eager` where there is no reference.
    pub error: f64,
    /// |eager - ref| / |ref|; 0 where there is no reference.
    pub eager_error: f64,
    /// Largest difference of two elements from eager's.
    pub largest: f64,
    /// Why the contract is broken, if it is.
    pub broken: Option<String>,
}

/// Relative difference allowed from eager's result where there is no reference: PyTorch's own tolerances for the type.
fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 | Dtype::C128 => 1e-7,
        Dtype::F16 => 1e-3,
        Dtype::BF16 => 1.6e-2,
        Dtype::F8E4M3 | Dtype::F8E5M2 => 0.25,
        _ => 2e-5,
    }
}

/// What an output is compared with.
#[derive(Clone, Copy)]
pub struct Expected<'a> {
    /// PyTorch's result.
    pub eager: &'a Tensor,
    /// The same computed in f64.
    pub reference: Option<&'a Tensor>,
    /// For each element of the reference, the size of the terms that it is made of: asks for [`elements`] instead of
    /// norms.
    pub terms: Option<&'a Tensor>,
    /// For positions that are free among equal values: what they are positions in, as `[outer, n, inner]` with
    /// positions along `n`.
    pub indexed: Option<&'a Tensor>,
}

impl<'a> From<&'a Tensor> for Expected<'a> {
    fn from(eager: &'a Tensor) -> Expected<'a> {
        Expected { eager, reference: None, terms: None, indexed: None }
    }
}

/// Compares `ours` with what is expected.
pub fn compare(ours: &Tensor, expected: Expected<'_>) -> Verdict {
    let Expected { eager, reference, terms, indexed } = expected;
    let mut verdict = Verdict { error: 0.0, eager_error: 0.0, largest: 0.0, broken: None };
    if ours.dtype() != eager.dtype() || ours.sizes() != eager.sizes() {
        let show = |t: &Tensor| format!("{}{:?}", t.dtype(), t.sizes());
        verdict.broken = Some(format!("expected {}, found {}", show(eager), show(ours)));
        return verdict;
    }
    if let Some(indexed) = indexed {
        verdict.broken = elements::compare_positions(ours, eager, indexed);
        return verdict;
    }
    let (x, e) = (ours.to_f64(), eager.to_f64());
    let difference = |a: &f64, b: &f64| if a == b || a.is_nan() && b.is_nan() { 0.0 } else { (a - b).abs() };
    verdict.largest =
        x.iter().zip(&e).map(|(a, b)| difference(a, b)).filter(|d| !d.is_nan()).fold(0.0, f64::max);
    if !matches!(eager.dtype().kind(), Kind::Float | Kind::Complex) {
        compare_exact(ours, eager, reference, &mut verdict);
        return verdict;
    }
    let special = x.iter().zip(&e).filter(|(a, b)| !same_class(**a, **b)).count();
    if special > 0 {
        verdict.broken = Some(format!("NaN or infinity in other places: {special} of {} elements", x.len()));
        return verdict;
    }
    let reference = reference.filter(|r| r.sizes() == eager.sizes()).map(Tensor::to_f64);
    let terms = terms.filter(|t| t.sizes() == eager.sizes()).map(Tensor::to_f64);
    match (reference, terms) {
        (Some(r), Some(terms)) => elements::compare(eager.dtype(), [&x, &e, &r, &terms], &mut verdict),
        (Some(r), None) => compare_norms(eager.dtype(), [&x, &e, &r], &mut verdict),
        (None, _) => {
            let norm = norm_of_finite(&e, |at| (e[at], 0.0));
            let off = norm_of_finite(&e, |at| (x[at], e[at]));
            verdict.error = off / norm.max(f64::MIN_POSITIVE);
            let allowed = tolerance(eager.dtype()) * norm + eager.dtype().epsilon() * f64::EPSILON;
            if off.is_nan() || off > allowed {
                verdict.broken = Some(format!("difference {off:.3e} from eager exceeds {allowed:.3e}"));
            }
        }
    }
    verdict
}

/// Integers and truth values. Roundings decide some, such as the order of things whose scores are nearly the same: eager's differ from the
/// reference there, and so many of ours may. Elements that eager has from the reference leave no room.
fn compare_exact(ours: &Tensor, eager: &Tensor, reference: Option<&Tensor>, verdict: &mut Verdict) {
    let is_same = |r: &&Tensor| r.dtype() == eager.dtype() && r.sizes() == eager.sizes();
    let (wrong, elements) = (different(ours, eager), eager.numel());
    if wrong == 0 {
        return;
    }
    let (off, allowed) = match reference.filter(is_same) {
        Some(reference) => (different(ours, reference), different(eager, reference)),
        None => (wrong, 0),
    };
    (verdict.error, verdict.eager_error) = (off as f64 / elements as f64, allowed as f64 / elements as f64);
    if off > allowed {
        verdict.broken = Some(format!("{wrong} of {elements} elements differ"));
    }
}

/// The model contract: `|x - r| <= 1.5 |e - r| + ulp |r|`.
fn compare_norms(dtype: Dtype, [x, e, r]: [&[f64]; 3], verdict: &mut Verdict) {
    let norm = norm_of_finite(e, |at| (r[at], 0.0));
    let ours_off = norm_of_finite(e, |at| (x[at], r[at]));
    let eager_off = norm_of_finite(e, |at| (e[at], r[at]));
    verdict.error = ours_off / norm.max(f64::MIN_POSITIVE);
    verdict.eager_error = eager_off / norm.max(f64::MIN_POSITIVE);
    let allowed = 1.5 * eager_off + dtype.epsilon() * norm;
    if ours_off.is_nan() || ours_off > allowed {
        verdict.broken = Some(format!("error {ours_off:.3e} exceeds {allowed:.3e}"));
    }
}

/// 2-norm of the difference of pairs, where both and eager's element are finite: others are compared by class.
fn norm_of_finite(eager: &[f64], pair: impl Fn(usize) -> (f64, f64)) -> f64 {
    let square = |at: usize| {
        let (a, b) = pair(at);
        if eager[at].is_finite() && a.is_finite() && b.is_finite() { (a - b) * (a - b) } else { 0.0 }
    };
    (0..eager.len()).map(square).sum::<f64>().sqrt()
}

/// How many elements differ in their bits.
fn different(ours: &Tensor, eager: &Tensor) -> usize {
    let (Ok(ours), Ok(eager)) = (ours.to_contiguous(), eager.to_contiguous()) else { return eager.numel() };
    let size = eager.dtype().size();
    ours.bytes().chunks(size).zip(eager.bytes().chunks(size)).filter(|(a, b)| a != b).count()
}

fn same_class(a: f64, b: f64) -> bool {
    a.is_nan() == b.is_nan() && (a.is_infinite() == b.is_infinite()) && (!a.is_infinite() || a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t(values: &[f32]) -> Tensor {
        Tensor::from_slice(&[values.len()], values).expect("lengths match")
    }

    #[test]
    fn errors_up_to_one_and_a_half_times_eagers_are_kept() {
        let reference = Tensor::from_slice(&[2], &[1.0f64, 2.0]).expect("lengths match");
        let eager = t(&[1.0001, 2.0]);
        let expected = Expected { reference: Some(&reference), ..Expected::from(&eager) };
        assert!(compare(&t(&[1.000149, 2.0]), expected).broken.is_none());
        assert!(compare(&t(&[1.000151, 2.0]), expected).broken.is_some());
    }

    #[test]
    fn special_values_must_be_in_the_same_places() {
        let eager = t(&[f32::NAN, f32::INFINITY, 1.0]);
        assert!(compare(&eager, (&eager).into()).broken.is_none());
        assert!(compare(&t(&[1.0, f32::INFINITY, 1.0]), (&eager).into()).broken.is_some());
        assert!(compare(&t(&[f32::NAN, f32::NEG_INFINITY, 1.0]), (&eager).into()).broken.is_some());
    }

    #[test]
    fn integers_and_shapes_are_equal_or_broken() {
        let a = Tensor::from_slice(&[2], &[1i64, 2]).expect("lengths match");
        let b = Tensor::from_slice(&[2], &[1i64, 3]).expect("lengths match");
        assert!(compare(&a, (&a).into()).broken.is_none());
        assert!(compare(&a, (&b).into()).broken.is_some());
        // Where eager differs from the reference, as many elements of ours may.
        let with = |ours: &Tensor, eager: &Tensor, reference: &Tensor| {
            compare(ours, Expected { reference: Some(reference), ..eager.into() }).broken.is_some()
        };
        let c = Tensor::from_slice(&[2], &[7i64, 3]).expect("lengths match");
        assert!(!with(&b, &a, &c) && !with(&b, &a, &b), "one element of ours, two or one of eager's");
        assert!(with(&b, &a, &a), "eager's are the reference's");
        let other = Tensor::from_slice(&[1, 2], &[1i64, 3]).expect("lengths match");
        assert!(with(&c, &a, &other), "a reference of other sizes is none");
        // These are one number as doubles.
        let large = |last: i64| Tensor::from_slice(&[1], &[(1i64 << 60) + last]).expect("lengths match");
        assert!(compare(&large(0), (&large(1)).into()).broken.is_some());
        assert!(compare(&t(&[1.0]), (&t(&[1.0, 2.0])).into()).broken.is_some());
    }
}
