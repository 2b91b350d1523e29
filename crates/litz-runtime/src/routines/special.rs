//! Computes scalar functions beyond the standard library's in double precision, and lists all of them by name.

unsafe extern "C" {
    fn asinh(x: f64) -> f64;
    fn acosh(x: f64) -> f64;
    fn atanh(x: f64) -> f64;
    fn erf(x: f64) -> f64;
    fn erfc(x: f64) -> f64;
    fn lgamma_r(x: f64, sign: *mut i32) -> f64;
}

/// Calls a function of the C library.
macro_rules! c {
    ($name:ident($($x:expr),+)) => {
        // SAFETY: it takes any numbers; `lgamma_r` is given a place for the sign.
        unsafe { super::$name($($x),+) }
    };
}

/// Declares for each function `lz_name_f64` and `lz_name_f32`; the latter computes in f64 and rounds once.
macro_rules! functions {
    ($($name:ident($($x:ident),+) = $body:expr;)*) => {
        /// In double precision, by operation name.
        pub(crate) mod double {
            use super::*;
            $(
                pub(crate) fn $name($($x: f64),+) -> f64 {
                    $body
                }
            )*
        }

        mod exported_f64 {
            use super::double;
            $(
                pub(super) extern "C" fn $name($($x: f64),+) -> f64 {
                    double::$name($($x),+)
                }
            )*
        }

        mod exported_f32 {
            use super::double;
            $(
                pub(super) extern "C" fn $name($($x: f32),+) -> f32 {
                    double::$name($(f64::from($x)),+) as f32
                }
            )*
        }

        /// Address of a scalar function that compiled code may call: `lz_<op>_f32` and `lz_<op>_f64` for every
        /// function of [`NAMES`], besides `lz_nextafter_f32` and `lz_nextafter_f64`, also by their C names.
        pub fn symbol(name: &str) -> Option<usize> {
            match name {
                "lz_nextafter_f32" | "nextafterf" => Some(nextafter_f32 as *const () as usize),
                "lz_nextafter_f64" | "nextafter" => Some(nextafter_f64 as *const () as usize),
                $(
                    concat!("lz_", stringify!($name), "_f32") => Some(exported_f32::$name as *const () as usize),
                    concat!("lz_", stringify!($name), "_f64") => Some(exported_f64::$name as *const () as usize),
                )*
                _ => None,
            }
        }

        /// Functions that exist in both precisions, named as in the IR.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

functions! {
    sqrt(x) = x.sqrt();
    rsqrt(x) = 1.0 / x.sqrt();
    exp(x) = x.exp();
    exp2(x) = x.exp2();
    expm1(x) = x.exp_m1();
    log(x) = x.ln();
    log2(x) = x.log2();
    log10(x) = x.log10();
    log1p(x) = x.ln_1p();
    sin(x) = x.sin();
    cos(x) = x.cos();
    tan(x) = x.tan();
    asin(x) = x.asin();
    acos(x) = x.acos();
    atan(x) = x.atan();
    atan2(y, x) = y.atan2(x);
    sinh(x) = x.sinh();
    cosh(x) = x.cosh();
    tanh(x) = x.tanh();
    asinh(x) = c!(asinh(x));
    acosh(x) = c!(acosh(x));
    atanh(x) = c!(atanh(x));
    erf(x) = c!(erf(x));
    erfc(x) = c!(erfc(x));
    erfinv(x) = inverse_erf(x);
    lgamma(x) = c!(lgamma_r(x, &mut 0));
    digamma(x) = derivative_of_lgamma(x);
    pow(x, y) = x.powf(y);
    fmod(x, y) = x % y;
}

/// Rational starting points (as in ATen's `calc_erfinv`), then Newton steps on whichever of erf and erfc is not
/// near 1, so that the tails keep their precision.
fn inverse_erf(y: f64) -> f64 {
    const TWO_OVER_SQRT_PI: f64 = std::f64::consts::FRAC_2_SQRT_PI;
    let magnitude = y.abs();
    if magnitude.is_nan() || magnitude > 1.0 {
        return f64::NAN;
    }
    if magnitude == 1.0 {
        return f64::INFINITY.copysign(y);
    }
    let complement = 1.0 - magnitude;
    let mut x = if magnitude <= 0.7 {
        let z = magnitude * magnitude;
        let above = polynomial(z, &[-0.140543331, 0.914624893, -1.645349621, 0.886226899]);
        magnitude * above / polynomial(z, &[0.012229801, -0.329097515, 1.442710462, -2.118377725, 1.0])
    } else {
        let z = (-(complement / 2.0).ln()).sqrt();
        polynomial(z, &[1.641345311, 3.429567803, -1.624906493, -1.970840454])
            / polynomial(z, &[1.637067800, 3.543889200, 1.0])
    };
    for _ in 0..3 {
        let error = if magnitude <= 0.7 { double::erf(x) - magnitude } else { complement - double::erfc(x) };
        x -= error / (TWO_OVER_SQRT_PI * (-x * x).exp());
    }
    x.copysign(y)
}

/// Recurrence up to 10, then the asymptotic series in Bernoulli numbers; reflection below 0 (as ATen's
/// `calc_digamma`, which loses half of the places next to the poles on their right).
fn derivative_of_lgamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        // The distance to the nearest pole, which is exact: near one it makes all of the result.
        let fraction = x - x.round();
        if fraction == 0.0 || x == f64::NEG_INFINITY {
            return f64::NAN;
        }
        let pi = std::f64::consts::PI;
        return derivative_of_lgamma(1.0 - x) - pi / (pi * fraction).tan();
    }
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below -= 1.0 / x;
        x += 1.0;
    }
    const SERIES: [f64; 7] =
        [1.0 / 12.0, -691.0 / 32760.0, 1.0 / 132.0, -1.0 / 240.0, 1.0 / 252.0, -1.0 / 120.0, 1.0 / 12.0];
    let z = 1.0 / (x * x);
    x.ln() - 0.5 / x - z * polynomial(z, &SERIES) + below
}

/// Highest power first.
pub(super) fn polynomial(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

extern "C" fn nextafter_f32(from: f32, to: f32) -> f32 {
    if from.is_nan() || to.is_nan() {
        return f32::NAN;
    }
    if from == to {
        return to;
    }
    if to > from { from.next_up() } else { from.next_down() }
}

extern "C" fn nextafter_f64(from: f64, to: f64) -> f64 {
    if from.is_nan() || to.is_nan() {
        return f64::NAN;
    }
    if from == to {
        return to;
    }
    if to > from { from.next_up() } else { from.next_down() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        let error = (found - expected).abs();
        assert!(
            error <= 8.0 * f64::EPSILON * expected.abs().max(1e-300),
            "expected {expected}, found {found}"
        );
    }

    #[test]
    fn special_functions_have_their_values() {
        close(double::erfinv(0.5), 0.476_936_276_204_469_9);
        close(double::erfinv(-0.9), -1.163_087_153_676_674_2);
        close(double::erfinv(1e-10), 8.862_269_254_527_58e-11);
        close(double::erfinv(1.0 - f64::EPSILON), 5.805_018_683_193_453);
        close(double::digamma(1.0), -0.577_215_664_901_532_9);
        close(double::digamma(0.5), -1.963_510_026_021_423_5);
        // The sum of 2 and digamma(0.5), which nearly cancel.
        close(double::digamma(-0.5) + 2.0, 2.036_489_973_978_576_5);
        close(double::digamma(100.0), 4.600_161_852_738_087);
        // To the right of poles.
        close(double::digamma(-3.9999999), -9_999_998.510_247_813);
        close(double::digamma(-0.99999999), -99_999_999.074_739_71);
        close(double::digamma(-7.000001), 1_000_002.015_498_543_3);
        close(double::lgamma(0.5), 0.572_364_942_924_700_1);
        close(double::lgamma(-1.5), 0.860_047_015_376_481);
    }

    #[test]
    fn special_functions_at_the_edges() {
        assert_eq!(double::erfinv(1.0), f64::INFINITY);
        assert_eq!(double::erfinv(-1.0), f64::NEG_INFINITY);
        assert!(double::erfinv(1.5).is_nan() && double::erfinv(f64::NAN).is_nan());
        assert_eq!(double::erfinv(-0.0).to_bits(), (-0.0f64).to_bits());
        assert_eq!(double::digamma(0.0), f64::NEG_INFINITY);
        assert_eq!(double::digamma(-0.0), f64::INFINITY);
        assert_eq!(double::digamma(f64::INFINITY), f64::INFINITY);
        assert!(double::digamma(-3.0).is_nan() && double::digamma(f64::NAN).is_nan());
        assert_eq!(double::lgamma(-2.0), f64::INFINITY);
        assert_eq!(double::rsqrt(0.0), f64::INFINITY);
    }

    #[test]
    fn next_after_steps_one_place() {
        assert_eq!(nextafter_f32(0.0, -1.0), -f32::from_bits(1));
        assert_eq!(nextafter_f32(1.0, 2.0), 1.0 + f32::EPSILON);
        assert_eq!(nextafter_f64(f64::MAX, f64::INFINITY), f64::INFINITY);
        assert_eq!(nextafter_f64(0.0, -0.0).to_bits(), (-0.0f64).to_bits());
        assert!(nextafter_f32(1.0, f32::NAN).is_nan());
    }

    #[test]
    fn symbols_reach_the_functions_they_name() {
        let address = symbol("lz_erfinv_f32").expect("the function is in the table");
        // SAFETY: the symbol of that name has this type.
        let erfinv: extern "C" fn(f32) -> f32 = unsafe { std::mem::transmute(address) };
        assert_eq!(erfinv(0.5), 0.476_936_28);
        let address = symbol("lz_atan2_f64").expect("the function is in the table");
        // SAFETY: the symbol of that name has this type.
        let atan2: extern "C" fn(f64, f64) -> f64 = unsafe { std::mem::transmute(address) };
        assert_eq!(atan2(1.0, 0.0), std::f64::consts::FRAC_PI_2);
        assert_eq!(symbol("lz_system_f64"), None);
        assert!(NAMES.iter().all(|name| symbol(&format!("lz_{name}_f64")).is_some()));
    }
}
