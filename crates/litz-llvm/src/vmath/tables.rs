//! Lists what the algorithms of `functions` need to know of each floating-point format.
//!
//! Polynomials are minimax fits (Remez exchange in 60 digits, weighted to give relative error of the
//! function), highest power first, then rounded. Each comment gives the function, the interval and
//! the maximum relative error that the polynomial adds, before rounding.

use super::emitter::Scalar;

/// A floating-point format with the constants and polynomials that suit its precision.
pub(super) struct Format {
    pub(super) scalar: Scalar,
    /// The integer type of the same width.
    pub(super) bits: Scalar,
    /// Bits of a number.
    pub(super) width: u32,
    /// Explicit bits of the significand.
    pub(super) mantissa: u32,
    /// Adding and subtracting `1.5 * 2^mantissa` rounds to an integer, whose low bits the sum holds.
    pub(super) round: f64,
    pub(super) min_normal: f64,
    /// Bits of 2/3: significands are brought to [2/3, 4/3) before a logarithm is taken.
    pub(super) two_thirds: i64,
    /// Beyond these the exponential function is 0 and infinite, to rounding.
    pub(super) exp_range: [f64; 2],
    pub(super) exp2_range: [f64; 2],
    /// From here on `tanh` is 1, to rounding.
    pub(super) tanh_limit: f64,
    /// Constants as sums, each part rounded to the format.
    pub(super) ln_2: [f64; 2],
    pub(super) log10_2: [f64; 2],
    pub(super) half_pi: [f64; 3],
    /// Up to here `half_pi` is precise enough to reduce angles.
    pub(super) angle_limit: f64,
    /// `(exp(r) - 1 - r) / r^2`, |r| <= ln(2)/2.
    pub(super) exp: &'static [f64],
    /// `(2^r - 1) / r`, |r| <= 1/2.
    pub(super) exp2: &'static [f64],
    /// How `log(1 + f)` is computed, |f| <= 1/3.
    pub(super) log: LogTable,
    /// `(sin(r) - r) / r^3` of `r^2`, |r| <= pi/4.
    pub(super) sin: &'static [f64],
    /// `(cos(r) - 1) / r^2` of `r^2`, |r| <= pi/4, with the last coefficient fixed.
    pub(super) cos: &'static [f64],
    /// `(tanh(x) - x) / x^3` of `x^2`, |x| <= 5/8.
    pub(super) tanh: &'static [f64],
}

pub(super) enum LogTable {
    /// `(log(1 + f) - f + f^2/2) / f^3`: no division, but many terms.
    Direct(&'static [f64]),
    /// `(atanh(s) - s) / s^3` of `s^2`, `s = f / (2 + f)`.
    Quotient(&'static [f64]),
}

pub(super) const SINGLE: Format = Format {
    scalar: Scalar::F32,
    bits: Scalar::I32,
    width: 32,
    mantissa: 23,
    round: 12_582_912.0,
    min_normal: f32::MIN_POSITIVE as f64,
    two_thirds: 0x3f2a_aaab,
    exp_range: [-104.0, 89.0],
    exp2_range: [-151.0, 129.0],
    tanh_limit: 10.0,
    ln_2: [0.693_147_182_464_599_6, -1.904_654_212_125_933_6e-9],
    log10_2: [0.301_030_009_984_970_1, -1.432_098_883_924_482e-8],
    half_pi: [1.570_796_370_506_286_6, -4.371_138_828_673_793e-8, -1.715_124_510_005_881_9e-15],
    angle_limit: 1e4,
    // 2^-31.8
    exp: &[0.00019962338, 0.0013943216, 0.00833322, 0.041666325, 0.16666667, 0.5],
    // 2^-28.9
    exp2: &[0.00015353355, 0.0013398874, 0.009618437, 0.055503324, 0.24022648, std::f64::consts::LN_2],
    // 2^-27.7
    log: LogTable::Direct(&[
        -0.1289188,
        0.13984543,
        -0.12184211,
        0.1400585,
        -0.16680491,
        0.20010407,
        -0.24999797,
        0.33333215,
    ]),
    // 2^-28.0
    sin: &[-0.00019515224, 0.00833216, -0.16666655],
    // 2^-33.0
    cos: &[2.4433088e-05, -0.0013887315, 0.041666646, -0.5],
    // 2^-27.8
    tanh: &[-0.0057050237, 0.020639122, -0.053739727, 0.13331443, -0.3333328],
};

pub(super) const DOUBLE: Format = Format {
    scalar: Scalar::F64,
    bits: Scalar::I64,
    width: 64,
    mantissa: 52,
    round: 6_755_399_441_055_744.0,
    min_normal: f64::MIN_POSITIVE,
    two_thirds: 0x3fe5_5555_5555_5555,
    exp_range: [-746.0, 710.0],
    exp2_range: [-1076.0, 1025.0],
    tanh_limit: 20.0,
    ln_2: [std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17],
    log10_2: [std::f64::consts::LOG10_2, -2.803_728_127_785_170_4e-18],
    half_pi: [std::f64::consts::FRAC_PI_2, 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33],
    angle_limit: 1e5,
    // 2^-58.2
    exp: &[
        1.7355787220449563e-09,
        2.5106379853743e-08,
        2.756906365113208e-07,
        2.755725260273744e-06,
        2.4801573125099288e-05,
        0.00019841269877029173,
        0.0013888888896364665,
        0.008333333333325503,
        0.041666666666650594,
        0.1666666666666667,
        0.5000000000000001,
    ],
    // 2^-64.4
    exp2: &[
        2.5625372355527197e-11,
        4.456570398118231e-10,
        7.054974514547328e-09,
        1.017805194281015e-07,
        1.3215486594811744e-06,
        1.525273385431593e-05,
        0.00015403530393640844,
        0.0013333558146392693,
        0.00961812910762833,
        0.05550410866482169,
        0.24022650695910072,
        std::f64::consts::LN_2,
    ],
    // 2^-62.7
    log: LogTable::Quotient(&[
        0.06921710322730691,
        0.06586774063787547,
        0.07695557334669803,
        0.09090832901226892,
        0.11111112148764826,
        0.14285714277910042,
        0.20000000000028353,
        0.333333333333333,
    ]),
    // 2^-57.9
    sin: &[
        1.5896196808709068e-10,
        -2.505074720317812e-08,
        2.7557313617914327e-06,
        -0.00019841269829579832,
        0.008333333333322106,
        -0.1666666666666663,
    ],
    // 2^-64.0
    cos: &[
        -1.1358513647183972e-11,
        2.0875700409886573e-09,
        -2.7557314176191374e-07,
        2.4801587288841214e-05,
        -0.001388888888887304,
        0.041666666666666595,
        -0.5,
    ],
    // 2^-61.2
    tanh: &[
        6.042475829817241e-06,
        -3.0187238832897125e-05,
        9.15584314248035e-05,
        -0.00023701174233709528,
        0.0005894518037915431,
        -0.0014557259493636525,
        0.003592114000113793,
        -0.008863234312608109,
        0.021869488468717772,
        -0.05396825396605902,
        0.13333333333329744,
        -0.33333333333333315,
    ],
};

/// Double precision arithmetic whose results will be rounded to single precision: an error of 2^-32
/// does not show.
pub(super) const WIDE: Format = Format {
    // 2^-34.1
    exp: &[
        1.8971512073515025e-05,
        0.0001990049030369889,
        0.0013901263747206495,
        0.008333297038644244,
        0.04166659202958517,
        0.16666666722163048,
        0.5000000011226489,
    ],
    // 2^-40.2
    exp2: &[
        1.3178920579787328e-06,
        1.5309155582293693e-05,
        0.00015403825518046536,
        0.0013333454863045547,
        0.00961812861605765,
        0.05550410935263472,
        0.24022650698110806,
        0.6931471805482131,
    ],
    // 2^-42.2; `pow` multiplies the error by up to 2^7.
    log: LogTable::Quotient(&[
        0.10062938518881454,
        0.11067413151703917,
        0.14286596403467716,
        0.19999992262016006,
        0.33333333355329425,
    ]),
    ..DOUBLE
};

/// `-log(erfc(x)) / x - 1` of `-x`, 0 <= x <= 3.92: 2^-27.9 of `erf`.
pub(super) const ERF: &[f64] = &[
    -9.256207937e-06,
    -0.00011764073746,
    -0.00063283503368,
    -0.0016670247027,
    -0.00016039451832,
    0.019153063608,
    0.10277782999,
    -0.63661938207,
    0.1283791716,
];

/// From here on `erf` is 1 in single precision.
pub(super) const ERF_LIMIT: f64 = 3.92;

/// `exp(x^2) * erfc(x) * (1 + 2*x)` of `(x - ERFC_CENTRE) / (x + ERFC_CENTRE)`, 0 <= x <= 10.2: 2^-30.4.
/// The variable is that of Shepherd and Laframboise (Mathematics of Computation 36, 1981).
pub(super) const ERFC: &[f64] = &[
    -0.00019857057918457957,
    0.0005174192834018662,
    0.0018363079030035954,
    -0.009833745297415254,
    0.028305973239739306,
    -0.058683391041463695,
    0.09231509637269791,
    -0.10880411637823255,
    0.08227597733620169,
    0.003585403773176775,
    -0.1402405836945688,
    1.2375126309297042,
];

pub(super) const ERFC_CENTRE: f64 = 3.75;

/// From here on `erfc` is 0 in single precision.
pub(super) const ERFC_LIMIT: f64 = 10.2;

/// `(atan(x) - x) / x^3` of `x^2`, |x| <= 1: 2^-33.9.
pub(super) const ATAN: &[f64] = &[
    -0.0006979503907572242,
    0.00492631979478493,
    -0.016299364458603912,
    0.034475761881701796,
    -0.05451587442164298,
    0.07259433397652058,
    -0.08985437606363894,
    0.11094503402461578,
    -0.14284167209150814,
    0.1999992724344986,
    -0.3333333213379992,
];

/// Taylor series of odd functions without their first term, of `x^2`: for |x| <= 0.05 the next
/// term is below 2^-36 of the value.
pub(super) const SINH_SERIES: &[f64] = &[1.0 / 120.0, 1.0 / 6.0];
pub(super) const ASINH_SERIES: &[f64] = &[-15.0 / 336.0, 3.0 / 40.0, -1.0 / 6.0];
pub(super) const ATANH_SERIES: &[f64] = &[1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0];
pub(super) const SERIES_LIMIT: f64 = 0.05;
