//! Writes sine, cosine and tangent of angles of any size, and the inverse functions, in double precision.

use super::super::emitter::Scalar;
use super::super::tables::DOUBLE;
use super::code::{Code, Function, Number};
use super::sums::{Sum, constant, exact_product, exact_sum, ordered_sum};
use super::tables::{ARC_OF_HALF, ARC_TAIL, HALF_PI, PI, QUARTER_PI, TWO_OVER_PI};

pub(super) static SIN: Function = Function {
    name: "sin",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let (angle, quadrant) = reduced(code, x[0]);
        let result = sine(angle, quadrant);
        let signed = x[0].is_signed().pick(-result, result);
        vec![nan_unless_finite(x[0], signed)]
    },
};

pub(super) static COS: Function = Function {
    name: "cos",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let (angle, quadrant) = reduced(code, x[0]);
        vec![nan_unless_finite(x[0], sine(angle, quadrant + 1))]
    },
};

pub(super) static TAN: Function = Function {
    name: "tan",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let (angle, quadrant) = reduced(code, x[0]);
        let (sine, cosine) = (near_sine(angle), near_cosine(angle));
        let is_odd = (quadrant & 1).ne(0);
        let above = Sum::pick(is_odd, -cosine, sine);
        let below = Sum::pick(is_odd, sine, cosine);
        let result = (above / below).value();
        let signed = x[0].is_signed().pick(-result, result);
        vec![nan_unless_finite(x[0], signed)]
    },
};

fn nan_unless_finite<'c>(x: Number<'c>, result: Number<'c>) -> Number<'c> {
    x.abs().lt(f64::INFINITY).not().pick(f64::NAN, result)
}

/// `sin(angle + quadrant * pi/2)`
fn sine<'c>(angle: Sum<'c>, quadrant: Number<'c>) -> Number<'c> {
    let (sine, cosine) = (near_sine(angle).value(), near_cosine(angle).value());
    let result = (quadrant & 1).ne(0).pick(cosine, sine);
    (quadrant & 2).ne(0).pick(-result, result)
}

/// The sine of an angle of at most `pi/4`.
pub(super) fn near_sine(angle: Sum<'_>) -> Sum<'_> {
    let square = angle.high * angle.high;
    let tail = angle.high * square * square.polynomial(DOUBLE.sin);
    let factor = square.fma(-0.5, 1.0);
    ordered_sum(angle.high, angle.low.fma(factor, tail))
}

/// The cosine of an angle of at most `pi/4`.
pub(super) fn near_cosine(angle: Sum<'_>) -> Sum<'_> {
    let square = angle.high * angle.high;
    // The last coefficient is -1/2, which is exact.
    let (_, others) = DOUBLE.cos.split_last().expect("invariant: the table has coefficients");
    let half = square * 0.5;
    let high = 1.0 - half;
    let rest = (1.0 - high) - half;
    let tail = (square * square).fma(square.polynomial(others), -(angle.high * angle.low));
    ordered_sum(high, rest + tail)
}

/// `|x|` as `quadrant * pi/2` more than an angle of at most `pi/4`. The number is an integer modulo 4.
fn reduced<'c>(code: &'c Code, x: Number<'c>) -> (Sum<'c>, Number<'c>) {
    let [high, low, quadrant] = code.call(&REDUCE, &[x]);
    (Sum { high, low }, quadrant)
}

static REDUCE: Function = Function {
    name: "lz.angle",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64, Scalar::F64, Scalar::I64],
    body: |code, x| {
        let magnitude = x[0].abs();
        let is_near = magnitude.lt(std::f64::consts::FRAC_PI_4);
        code.branch(is_near, || [magnitude, code.f64(0.0), code.i64(0)], || far_angle(code, magnitude))
            .to_vec()
    },
};

/// The method of Payne and Hanek (SIGNUM Newsletter 18, 1983): of the product with the bits of `2/pi`, only those count that are neither
/// multiples of 4 nor too small. 192 are kept; no double is so near to a multiple of `pi/2` that more than 62 of them are zero.
fn far_angle<'c>(code: &'c Code, x: Number<'c>) -> [Number<'c>; 3] {
    let bits = x.bits();
    let significand = (bits & ((1 << 52) - 1)) | (1 << 52);
    // `x` is `significand * 2^(exponent - 1075)`, and the first word of the table is before the point.
    let place = (bits >> 52) - 1013;
    let (word, shift) = (place >> 6, place & 63);
    let words = [0, 1, 2, 3].map(|i| code.load(&TWO_OVER_PI, word + i));
    let window = |i: usize| (words[i] << shift) | (words[i + 1].shift_down(1)).shift_down(63 - shift);

    let [first, second, third] = [window(0), window(1), window(2)];
    let p0 = significand * third;
    let (p1, carry) = add_with_carry(significand * second, high_product(significand, third));
    let p2 = significand * first + high_product(significand, second) + carry;

    let f2 = (p2 << 2) | p1.shift_down(62);
    let f1 = (p1 << 2) | p0.shift_down(62);
    let f0 = p0 << 2;
    // All ones where the fraction is above 1/2; the complement is the negation but for the last bit.
    let sign = f2 >> 63;
    let quadrant = p2.shift_down(62) - sign;
    let [f2, f1, f0] = [f2, f1, f0].map(|word| word ^ sign);
    let zeros = f2.leading_zeros() & 63;
    let high = (f2 << zeros) | f1.shift_down(1).shift_down(63 - zeros);
    let low = (f1 << zeros) | f0.shift_down(1).shift_down(63 - zeros);
    let fraction = Sum {
        high: high.shift_down(11).to_f64() * 2f64.powi(-53),
        low: ((high << 53) | low.shift_down(11)).unsigned_to_f64() * 2f64.powi(-117),
    };
    let fraction = fraction.times((code.i64(0) - zeros).power_of_two());
    let angle = fraction * constant(code, HALF_PI);
    let angle = Sum::pick(sign.ne(0), -angle, angle);
    [angle.high, angle.low, quadrant]
}

/// The upper half of the product of a number below 2^53 and a word.
fn high_product<'c>(a: Number<'c>, b: Number<'c>) -> Number<'c> {
    const LOW: i64 = 0xffff_ffff;
    let ([a0, a1], [b0, b1]) = ([a & LOW, a.shift_down(32)], [b & LOW, b.shift_down(32)]);
    let cross = a0 * b1;
    let middle = (a0 * b0).shift_down(32) + (cross & LOW) + a1 * b0;
    a1 * b1 + cross.shift_down(32) + middle.shift_down(32)
}

fn add_with_carry<'c>(a: Number<'c>, b: Number<'c>) -> (Number<'c>, Number<'c>) {
    let sum = a + b;
    (sum, sum.is_below(a).to_i64())
}

pub(super) static ATAN: Function = Function {
    name: "atan",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        // From there on it is a right angle to rounding.
        let magnitude = x[0].abs();
        let bounded = magnitude.gt(2f64.powi(100)).pick(2f64.powi(100), magnitude);
        let result = arc(code, Sum::of(code, bounded), Sum::of(code, code.f64(1.0)));
        vec![result.value().copysign(x[0])]
    },
};

pub(super) static ATAN2: Function = Function {
    name: "atan2",
    parameters: &[Scalar::F64, Scalar::F64],
    results: &[Scalar::F64],
    body: |code, arguments| {
        let (y, x) = (arguments[0], arguments[1]);
        let (rise, run) = (y.abs(), x.abs());
        let (is_high, is_wide) = (rise.eq(f64::INFINITY), run.eq(f64::INFINITY));
        let is_far = is_high | is_wide;
        let [zero, one] = [0.0, 1.0].map(|it| code.f64(it));
        let rise = is_far.pick(is_high.pick(one, zero), rise);
        let run = is_far.pick(is_wide.pick(one, zero), run);
        let longer = rise.gt(run).pick(rise, run);
        let run = longer.eq(0.0).pick(1.0, run);
        // Products of what is divided are to be exact.
        let factor = longer.lt(2f64.powi(-700)).pick(2f64.powi(200), one);
        let factor = longer.gt(2f64.powi(900)).pick(2f64.powi(-200), factor);
        let right = arc(code, Sum::of(code, rise * factor), Sum::of(code, run * factor));
        let left = constant(code, PI) - right;
        let result = x.is_signed().pick(left.value(), right.value());
        vec![x.is_unordered(y).pick(f64::NAN, result.copysign(y))]
    },
};

pub(super) static ASIN: Function = Function {
    name: "asin",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let result = arc(code, Sum::of(code, x[0].abs()), other_side(code, x[0]));
        vec![nan_beyond_1(x[0], result.value().copysign(x[0]))]
    },
};

pub(super) static ACOS: Function = Function {
    name: "acos",
    parameters: &[Scalar::F64],
    results: &[Scalar::F64],
    body: |code, x| {
        let right = arc(code, other_side(code, x[0]), Sum::of(code, x[0].abs()));
        let left = constant(code, PI) - right;
        let result = x[0].is_signed().pick(left.value(), right.value());
        vec![nan_beyond_1(x[0], result)]
    },
};

fn nan_beyond_1<'c>(x: Number<'c>, result: Number<'c>) -> Number<'c> {
    x.abs().gt(1.0).pick(f64::NAN, result)
}

/// `sqrt(1 - x^2)`
fn other_side<'c>(code: &'c Code, x: Number<'c>) -> Sum<'c> {
    let square = exact_product(x, x);
    let difference = exact_sum(code.f64(1.0), -square.high);
    ordered_sum(difference.high, difference.low - square.low).sqrt()
}

/// The angle in the first quadrant whose tangent is `rise / run`.
fn arc<'c>(code: &'c Code, rise: Sum<'c>, run: Sum<'c>) -> Sum<'c> {
    let [high, low] = code.call(&ARC, &[rise.high, rise.low, run.high, run.low]);
    Sum { high, low }
}

/// The tangent is brought to that of an angle between 0 and 45 degrees, and then near 0, by the difference from one of three angles.
static ARC: Function = Function {
    name: "lz.arc.of.ratio",
    parameters: &[Scalar::F64; 4],
    results: &[Scalar::F64; 2],
    body: |code, x| {
        let (rise, run) = (Sum { high: x[0], low: x[1] }, Sum { high: x[2], low: x[3] });
        let is_steep = rise.high.gt(run.high);
        let shorter = Sum::pick(is_steep, run, rise);
        let longer = Sum::pick(is_steep, rise, run);
        let is_flat = shorter.high.lt(longer.high * 0.4375);
        let is_middle = shorter.high.lt(longer.high * 0.6875);
        let from = is_flat.pick(0.0, is_middle.pick(0.5, code.f64(1.0)));
        let zero = constant(code, [0.0; 2]);
        let known = Sum::pick(is_middle, constant(code, ARC_OF_HALF), constant(code, QUARTER_PI));
        let known = Sum::pick(is_flat, zero, known);

        let tangent = (shorter - longer.times(from)) / (longer + shorter.times(from));
        let square = tangent.high * tangent.high;
        let tail = tangent.high * square * square.polynomial(ARC_TAIL);
        let sum = exact_sum(known.high, tangent.high);
        let low = sum.low + (known.low + tangent.low.fma(1.0 - square, tail));
        let angle = ordered_sum(sum.high, low);
        let angle = Sum::pick(is_steep, constant(code, HALF_PI) - angle, angle);
        vec![angle.high, angle.low]
    },
};
