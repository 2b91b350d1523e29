//! Computes Bessel and Airy functions in double precision, by the formulas that ATen has.
//!
//! Up to 5 (2 for the modified ones) these are rational functions and Chebyshev series, above the amplitudes of the two
//! phases of an oscillation. They are Cephes's, but for what ATen leaves out: the leading 1 of denominators that Cephes implies.
//! So results are eager's to a few units in the last place, which are the functions' to as few for the modified ones, and to 1e-5
//! of the amplitude near 5 for `j0`, `j1`, `y0` and `y1` and near -2 for `airy_ai` (torch 2.15 against mpmath).

mod tables;

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_PI_4};

use super::special::polynomial;
use tables::*;

/// Squares of the first two zeros of J0 and of J1.
const J0_ZEROS: [f64; 2] = [5.783_185_962_946_785, 30.471_262_343_662_087];
const J1_ZEROS: [f64; 2] = [14.681_970_642_123_893, 49.218_456_321_694_6];

/// `numerator(x) / denominator(x)`
fn ratio(x: f64, numerator: &[f64], denominator: &[f64]) -> f64 {
    polynomial(x, numerator) / polynomial(x, denominator)
}

/// A series in Chebyshev polynomials of `x / 2`, the last coefficient halved.
fn chebyshev(x: f64, coefficients: &[f64]) -> f64 {
    let (mut before, mut last, mut sum) = (0.0, 0.0, 0.0);
    for coefficient in coefficients {
        (before, last) = (last, sum);
        sum = x * last - before + coefficient;
    }
    0.5 * (sum - before)
}

/// Amplitudes of the cosine and of the sine of a function of order 0 or 1 above 5.
fn amplitudes(x: f64, tables: [&[f64]; 4]) -> (f64, f64) {
    let z = (5.0 / x) * (5.0 / x);
    let [cosine, under_cosine, sine, under_sine] = tables;
    let scale = (FRAC_2_PI / x).sqrt();
    (scale * ratio(z, cosine, under_cosine), scale * 5.0 / x * ratio(z, sine, under_sine))
}

fn amplitudes_0(x: f64) -> (f64, f64) {
    amplitudes(x, [&COSINE0_NUMERATOR, &COSINE0_DENOMINATOR, &SINE0_NUMERATOR, &SINE0_DENOMINATOR])
}

fn amplitudes_1(x: f64) -> (f64, f64) {
    amplitudes(x, [&COSINE1_NUMERATOR, &COSINE1_DENOMINATOR, &SINE1_NUMERATOR, &SINE1_DENOMINATOR])
}

/// Sine and cosine of `x - pi / 4`: the difference itself would be rounded.
fn eighth_behind(x: f64) -> (f64, f64) {
    let (sine, cosine) = x.sin_cos();
    (FRAC_1_SQRT_2 * (sine - cosine), FRAC_1_SQRT_2 * (sine + cosine))
}

/// Sine and cosine of `x - 3 pi / 4`.
fn three_eighths_behind(x: f64) -> (f64, f64) {
    let (sine, cosine) = eighth_behind(x);
    (-cosine, sine)
}

/// The Bessel function of the first kind of order 0. No number at infinity, as in eager.
pub(super) fn j0(x: f64) -> f64 {
    let x = x.abs();
    if x <= 5.0 {
        let z = x * x;
        if x < 1e-5 {
            return 1.0 - z / 4.0;
        }
        return (z - J0_ZEROS[0]) * (z - J0_ZEROS[1]) * ratio(z, &J0_NUMERATOR, &J0_DENOMINATOR);
    }
    let ((p, q), (sine, cosine)) = (amplitudes_0(x), eighth_behind(x));
    p * cosine - q * sine
}

/// The Bessel function of the first kind of order 1.
pub(super) fn j1(x: f64) -> f64 {
    if x < 0.0 {
        return -j1(-x);
    }
    if x <= 5.0 {
        let z = x * x;
        return ratio(z, &J1_NUMERATOR, &J1_DENOMINATOR) * x * (z - J1_ZEROS[0]) * (z - J1_ZEROS[1]);
    }
    let ((p, q), (sine, cosine)) = (amplitudes_1(x), three_eighths_behind(x));
    p * cosine - q * sine
}

/// The Bessel function of the second kind of order 0.
pub(super) fn y0(x: f64) -> f64 {
    if x <= 0.0 {
        return if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    if x <= 5.0 {
        return ratio(x * x, &Y0_NUMERATOR, &Y0_DENOMINATOR) + FRAC_2_PI * x.ln() * j0(x);
    }
    let ((p, q), (sine, cosine)) = (amplitudes_0(x), eighth_behind(x));
    p * sine + q * cosine
}

/// The Bessel function of the second kind of order 1.
pub(super) fn y1(x: f64) -> f64 {
    if x <= 0.0 {
        return if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    if x <= 5.0 {
        let regular = x * ratio(x * x, &Y1_NUMERATOR, &Y1_DENOMINATOR);
        return regular + FRAC_2_PI * (j1(x) * x.ln() - 1.0 / x);
    }
    let ((p, q), (sine, cosine)) = (amplitudes_1(x), three_eighths_behind(x));
    p * sine + q * cosine
}

/// `sum of (x / 2)^(2 k + order) / (k! (k + order)!)`: the modified Bessel function of the first kind, for small arguments.
fn i_near(x: f64, order: u32) -> f64 {
    let z = x * x / 4.0;
    let mut term = if order == 0 { 1.0 } else { x / 2.0 };
    let (mut sum, mut k) = (term, 1.0);
    while term.abs() > f64::EPSILON / 4.0 * sum.abs() {
        term *= z / (k * (k + f64::from(order)));
        sum += term;
        k += 1.0;
    }
    sum
}

/// The modified Bessel function of the second kind of order 0, times `exp(x)`.
pub(super) fn scaled_k0(x: f64) -> f64 {
    if x <= 0.0 {
        return if x == 0.0 { f64::INFINITY } else { f64::NAN };
    }
    if x <= 2.0 {
        return (chebyshev(x * x - 2.0, &K0_NEAR) - (0.5 * x).ln() * i_near(x, 0)) * x.exp();
    }
    chebyshev(8.0 / x - 2.0, &K0_FAR) / x.sqrt()
}

/// The modified Bessel function of the second kind of order 1, times `exp(x)`.
pub(super) fn scaled_k1(x: f64) -> f64 {
    if x <= 0.0 {
        return if x == 0.0 { f64::INFINITY } else { f64::NAN };
    }
    if x <= 2.0 {
        return ((0.5 * x).ln() * i_near(x, 1) + chebyshev(x * x - 2.0, &K1_NEAR) / x) * x.exp();
    }
    chebyshev(8.0 / x - 2.0, &K1_FAR) / x.sqrt()
}

/// The modified Bessel function of the second kind of order 0.
pub(super) fn k0(x: f64) -> f64 {
    scaled_k0(x) * (-x).exp()
}

/// The modified Bessel function of the second kind of order 1.
pub(super) fn k1(x: f64) -> f64 {
    scaled_k1(x) * (-x).exp()
}

/// The Airy function Ai. No number at either infinity, as in eager.
pub(super) fn airy_ai(x: f64) -> f64 {
    /// `1 / sqrt(pi)`
    const SCALE: f64 = 0.564_189_583_547_756_3;
    if x.is_infinite() {
        return f64::NAN;
    }
    let zeta = 2.0 * x.abs() * x.abs().sqrt() / 3.0;
    if x < -2.09 {
        let z = 1.0 / zeta;
        let sine = 1.0 + z * z * ratio(z * z, &AIRY_SINE_NUMERATOR, &AIRY_SINE_DENOMINATOR);
        let cosine = z * ratio(z * z, &AIRY_COSINE_NUMERATOR, &AIRY_COSINE_DENOMINATOR);
        let angle = zeta + FRAC_PI_4;
        return SCALE / (-x).sqrt().sqrt() * (angle.sin() * sine - angle.cos() * cosine);
    }
    if x >= 2.09 {
        let decay = 2.0 * x.sqrt().sqrt() * zeta.exp();
        return SCALE * ratio(1.0 / zeta, &AIRY_NUMERATOR, &AIRY_DENOMINATOR) / decay;
    }
    // Ai(0) f - -Ai'(0) g, by their power series.
    let z = x * x * x;
    let (mut even, mut odd, mut f, mut g, mut k) = (1.0, x, 1.0, x, 1.0);
    for _ in 0..40 {
        even *= z / ((k + 1.0) * (k + 2.0));
        odd *= z / ((k + 2.0) * (k + 3.0));
        f += even;
        g += odd;
        k += 3.0;
    }
    0.355_028_053_887_817_2 * f - 0.258_819_403_792_806_8 * g
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of eager PyTorch in f64.
    #[test]
    fn functions_have_their_values() {
        let values: &[((&str, fn(f64) -> f64), f64, f64)] = &[
            (("j0", j0), 0.25, 0.9844359292958528),
            (("j0", j0), 2.5, -0.048383776468256645),
            (("j0", j0), -4.75, -0.255120834045417),
            (("j0", j0), 5.25, -0.09308124510790798),
            (("j0", j0), 100.5, 0.054436573814413754),
            (("j1", j1), 0.25, 0.12402597732272692),
            (("j1", j1), -2.5, -0.4970941024644698),
            (("j1", j1), 4.75, -0.2891868011361344),
            (("j1", j1), 5.25, -0.34501412621579314),
            (("j1", j1), 100.5, -0.05779112399693236),
            (("y0", y0), 0.25, -0.9315730249300588),
            (("y0", y0), 2.5, 0.49807035961592067),
            (("y0", y0), 4.75, -0.2612325098091049),
            (("y0", y0), 5.25, -0.3347771705249751),
            (("y0", y0), 100.5, -0.05806122757035561),
            (("y1", y1), 0.25, -2.7041052293152825),
            (("y1", y1), 2.5, 0.14591813796695813),
            (("y1", y1), 4.75, 0.22922560168370465),
            (("y1", y1), 5.25, 0.061860417324009744),
            (("y1", y1), 100.5, -0.05472610209468314),
            (("k0", k0), 0.25, 1.5415067512483027),
            (("k0", k0), 1.75, 0.1553798123866036),
            (("k0", k0), 2.25, 0.08404311197465812),
            (("k0", k0), 50.5, 2.0581563219943107e-23),
            (("k1", k1), 0.25, 3.747025974440712),
            (("k1", k1), 1.75, 0.195477453474393),
            (("k1", k1), 2.25, 0.10121630256832526),
            (("k1", k1), 50.5, 2.0784351654766325e-23),
            (("scaled_k0", scaled_k0), 0.25, 1.9793338485985683),
            (("scaled_k0", scaled_k0), 2.25, 0.7973788452810561),
            (("scaled_k0", scaled_k0), 1000.5, 0.0396184207064052),
            (("scaled_k1", scaled_k1), 0.25, 4.811276588171025),
            (("scaled_k1", scaled_k1), 2.25, 0.960313541101207),
            (("scaled_k1", scaled_k1), 1000.5, 0.03963821507468623),
            (("airy_ai", airy_ai), -20.5, -0.044625680397012334),
            (("airy_ai", airy_ai), -2.25, 0.06159980873926874),
            (("airy_ai", airy_ai), -1.5, 0.46425657774886947),
            (("airy_ai", airy_ai), 0.5, 0.23169360648083345),
            (("airy_ai", airy_ai), 1.75, 0.05056988080579481),
            (("airy_ai", airy_ai), 2.25, 0.023654658557747444),
            (("airy_ai", airy_ai), 12.5, 2.3968278260780472e-14),
        ];
        for &((name, function), x, expected) in values {
            let found = function(x);
            let error = (found - expected).abs() / expected.abs().max(0.05);
            assert!(error < 1e-14, "{name}({x}): expected {expected:e}, found {found:e}");
        }
    }

    #[test]
    fn edges_are_those_of_eager() {
        assert!(j0(f64::INFINITY).is_nan() && j1(f64::NAN).is_nan() && airy_ai(f64::NEG_INFINITY).is_nan());
        assert_eq!((y0(0.0), y1(0.0)), (f64::NEG_INFINITY, f64::NEG_INFINITY));
        assert_eq!((k0(0.0), scaled_k1(0.0)), (f64::INFINITY, f64::INFINITY));
        assert!(y0(-1.0).is_nan() && k1(-1.0).is_nan() && k0(f64::NAN).is_nan());
        assert_eq!((k0(1000.0), airy_ai(200.0)), (0.0, 0.0));
    }
}
