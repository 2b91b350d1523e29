//! Computes the incomplete gamma functions, the Hurwitz zeta function and the inverse of the normal distribution in double precision.

use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

use super::special::double;

/// Most terms of a series or a fraction. About `6 sqrt(a)` are needed near `x = a`.
const MOST_TERMS: u32 = 1 << 20;

/// `x^a exp(-x) / gamma(a)`: for large `a`, where the three nearly cancel, by the distance of `x` from `a` and Stirling's series.
fn density(a: f64, x: f64) -> f64 {
    if a < 12.0 {
        return (a * x.ln() - x - double::lgamma(a)).exp();
    }
    let excess = (x - a) / a;
    // The first terms of Stirling's series: the next is below 1e-17 from 12 on.
    let z = 1.0 / (a * a);
    let terms = [-691.0 / 360_360.0, 1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0];
    let stirling = super::special::polynomial(z, &terms) / a;
    (a / (2.0 * PI)).sqrt() * (a * (excess.ln_1p() - excess) - stirling).exp()
}

/// The lower function by its power series.
fn lower_series(a: f64, x: f64) -> f64 {
    let scale = density(a, x);
    if scale == 0.0 {
        return 0.0;
    }
    let (mut term, mut sum, mut at) = (1.0, 1.0, a);
    for _ in 0..MOST_TERMS {
        at += 1.0;
        term *= x / at;
        sum += term;
        if term <= f64::EPSILON / 2.0 * sum {
            break;
        }
    }
    sum * scale / a
}

/// The upper function for small `x` and `a` (DLMF 8.7.3), which `1 - lower` would leave without digits.
fn upper_series(a: f64, x: f64) -> f64 {
    let (mut factor, mut sum) = (1.0, 0.0);
    for n in 1..MOST_TERMS {
        factor *= -x / f64::from(n);
        let term = factor / (a + f64::from(n));
        sum += term;
        if term.abs() <= f64::EPSILON / 2.0 * f64::abs(sum) {
            break;
        }
    }
    let log = x.ln();
    let first = -(a * log - double::lgamma(1.0 + a)).exp_m1();
    first - (a * log - double::lgamma(a)).exp() * sum
}

/// The upper function by its continued fraction (DLMF 8.9.2), evaluated by Lentz's method.
fn upper_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / if b == 0.0 { TINY } else { b };
    let mut fraction = d;
    for n in 1..MOST_TERMS {
        let n = f64::from(n);
        let numerator = n * (a - n);
        b += 2.0;
        d = numerator * d + b;
        c = b + numerator / c;
        d = 1.0 / if d == 0.0 { TINY } else { d };
        c = if c == 0.0 { TINY } else { c };
        fraction *= d * c;
        if (d * c - 1.0).abs() <= f64::EPSILON {
            break;
        }
    }
    density(a, x) * fraction
}

/// The regularized lower incomplete gamma function.
pub(super) fn gammainc(a: f64, x: f64) -> f64 {
    if let Some(upper) = at_the_edge(a, x) {
        return 1.0 - upper;
    }
    if x > 1.0 && x > a { 1.0 - upper_fraction(a, x) } else { lower_series(a, x) }
}

/// The regularized upper incomplete gamma function, by the formulas that SciPy chooses between.
pub(super) fn gammaincc(a: f64, x: f64) -> f64 {
    if let Some(upper) = at_the_edge(a, x) {
        return upper;
    }
    let is_small = match x {
        x if x > 1.1 => return if x < a { 1.0 - lower_series(a, x) } else { upper_fraction(a, x) },
        x if x <= 0.5 => -0.4 / x.ln() >= a,
        x => x * 1.1 >= a,
    };
    if is_small { upper_series(a, x) } else { 1.0 - lower_series(a, x) }
}

/// The upper function where an argument is zero, infinite or outside of what it is defined for.
fn at_the_edge(a: f64, x: f64) -> Option<f64> {
    if x.is_nan() || a.is_nan() || x < 0.0 || a < 0.0 {
        return Some(f64::NAN);
    }
    match (a, x) {
        (0.0, x) => Some(if x > 0.0 { 0.0 } else { f64::NAN }),
        (_, 0.0) => Some(1.0),
        (a, x) if a.is_infinite() => Some(if x.is_infinite() { f64::NAN } else { 1.0 }),
        (_, x) if x.is_infinite() => Some(0.0),
        _ => None,
    }
}

/// `sum of 1 / (q + k)^x`: some terms, then the Euler-Maclaurin formula, as Cephes and ATen have it.
pub(super) fn zeta(x: f64, q: f64) -> f64 {
    /// `(2 k)! / B(2 k)`
    const TERMS: [f64; 12] = [
        12.0,
        -720.0,
        30240.0,
        -1_209_600.0,
        47_900_160.0,
        -1_307_674_368_000.0 / 691.0,
        74_724_249_600.0,
        -10_670_622_842_880_000.0 / 3617.0,
        5_109_094_217_170_944_000.0 / 43867.0,
        -802_857_662_698_291_200_000.0 / 174_611.0,
        1.551_121_004_333_098_6e23 / 854_513.0,
        -1.693_824_136_731_743_7e27 / 236_364_091.0,
    ];
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x.is_nan() || q.is_nan() || x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        if x != x.floor() {
            return f64::NAN;
        }
    }
    let (mut sum, mut at, mut power) = (q.powf(-x), q, 0.0);
    let mut steps = 0;
    while steps < 9 || at <= 9.0 {
        steps += 1;
        at += 1.0;
        power = at.powf(-x);
        sum += power;
        if power.abs() < f64::EPSILON / 2.0 * sum.abs() {
            return sum;
        }
    }
    sum += power * at / (x - 1.0) - 0.5 * power;
    let (mut rising, mut k) = (1.0, 0.0);
    for divisor in TERMS {
        rising *= x + k;
        power /= at;
        let term = rising * power / divisor;
        sum += term;
        if (term / sum).abs() < f64::EPSILON / 2.0 {
            break;
        }
        rising *= x + k + 1.0;
        power /= at;
        k += 2.0;
    }
    sum
}

/// The inverse of the normal distribution: by the inverse error function, in the tails by Newton's method on logarithms.
pub(super) fn ndtri(y: f64) -> f64 {
    /// `exp(-2)`
    const TAIL: f64 = 0.135_335_283_236_612_7;
    if y == 0.0 || y == 1.0 {
        return if y == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    if y.is_nan() || !(0.0..1.0).contains(&y) {
        return f64::NAN;
    }
    if y > TAIL && y < 1.0 - TAIL {
        return SQRT_2 * double::erfinv(2.0 * y - 1.0);
    }
    let (tail, sign) = if y < 0.5 { (y, -1.0) } else { (1.0 - y, 1.0) };
    let far = (-2.0 * tail.ln()).sqrt();
    let mut x = far - (far.ln() + 0.5 * (2.0 * PI).ln()) / far;
    for _ in 0..6 {
        let above = 0.5 * double::erfc(x * FRAC_1_SQRT_2);
        let density = (-0.5 * x * x).exp() / (2.0 * PI).sqrt();
        x += above / density * (above / tail).ln();
    }
    sign * x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of mpmath with 40 digits.
    #[test]
    fn functions_have_their_values() {
        let values: &[((&str, fn(f64, f64) -> f64), f64, f64, f64)] = &[
            (("gammainc", gammainc), 0.5, 0.25, 0.5204998778130465),
            (("gammainc", gammainc), 2.5, 3.5, 0.7793596920632893),
            (("gammainc", gammainc), 0.001, 0.001, 0.9936876467088603),
            (("gammainc", gammainc), 0.75, 0.75, 0.651592519499689),
            (("gammainc", gammainc), 30.0, 25.0, 0.18210391597745512),
            (("gammainc", gammainc), 1000.0, 1010.0, 0.6276789447369947),
            (("gammainc", gammainc), 100000.5, 99900.25, 0.37597493027782997),
            (("gammainc", gammainc), 5.0, 40.0, 0.999999999999498),
            (("gammaincc", gammaincc), 0.5, 0.25, 0.4795001221869535),
            (("gammaincc", gammaincc), 2.5, 3.5, 0.2206403079367108),
            (("gammaincc", gammaincc), 0.001, 0.001, 0.00631235329113971),
            (("gammaincc", gammaincc), 0.75, 0.75, 0.348407480500311),
            (("gammaincc", gammaincc), 30.0, 25.0, 0.8178960840225449),
            (("gammaincc", gammaincc), 1000.0, 1010.0, 0.3723210552630053),
            (("gammaincc", gammaincc), 100000.5, 99900.25, 0.62402506972217),
            (("gammaincc", gammaincc), 5.0, 40.0, 5.020464318829134e-13),
            (("zeta", zeta), 2.0, 0.5, 4.934802200544679),
            (("zeta", zeta), 1.5, 3.0, 1.2588219580922146),
            (("zeta", zeta), 3.0, -1.25, -61.86068339183118),
            (("zeta", zeta), 20.0, 10.0, 1.181604775825168e-20),
            (("zeta", zeta), 2.5, 100.0, 0.0006716874994531716),
        ];
        for &((name, function), a, x, expected) in values {
            let found = function(a, x);
            let error = (found - expected).abs() / expected.abs();
            assert!(error < 1e-13, "{name}({a}, {x}): expected {expected:e}, found {found:e}");
        }
    }

    #[test]
    fn the_normal_distribution_is_inverted() {
        let values = [
            (1e-300, -37.0470962993612),
            (1e-10, -6.361340902404057),
            (0.125, -1.150349380376008),
            (0.1, -1.2815515655446004),
            (0.25, -0.6744897501960817),
            (0.5, 0.0),
            (0.9, 1.2815515655446006),
            (0.9999, 3.7190164854557084),
        ];
        for (y, expected) in values {
            let found: f64 = ndtri(y);
            assert!(
                (found - expected).abs() <= 1e-14 * expected.abs(),
                "ndtri({y:e}): expected {expected}, found {found}"
            );
        }
        assert_eq!((ndtri(0.0), ndtri(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(ndtri(-0.1).is_nan() && ndtri(1.1).is_nan() && ndtri(f64::NAN).is_nan());
    }

    #[test]
    fn edges_are_those_of_eager() {
        assert_eq!((gammainc(0.0, 1.0), gammaincc(0.0, 1.0)), (1.0, 0.0));
        assert_eq!((gammainc(1.0, 0.0), gammaincc(1.0, 0.0)), (0.0, 1.0));
        assert_eq!((gammainc(f64::INFINITY, 1.0), gammainc(1.0, f64::INFINITY)), (0.0, 1.0));
        assert!(gammainc(-1.0, 1.0).is_nan() && gammaincc(1.0, -1.0).is_nan() && gammainc(0.0, 0.0).is_nan());
        assert_eq!((zeta(1.0, 2.0), zeta(2.0, -3.0)), (f64::INFINITY, f64::INFINITY));
        assert!(zeta(0.5, 2.0).is_nan() && zeta(2.5, -0.5).is_nan() && zeta(f64::NAN, 2.0).is_nan());
    }
}
