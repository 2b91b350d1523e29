//! Bounds how far a right value may be from the interpreter's.
//!
//! Schedules and machine code may add up sums in any order, round a product and a sum once (fused multiply-add), and
//! compute mathematical functions with small errors. Each value therefore has a *doubt*: an absolute bound on the
//! difference between it and what any of these computes, infinite where every value is right. It is a forward error
//! analysis: the doubts of operands, through the operation's derivative or its ends, and its own rounding error. Values
//! of integer and truth types are either certain (0) or not (infinite): a comparison whose sides overlap, the position of
//! a maximum with a near rival.

use litz_ir::{Dtype, ReduceOp, ScalarOp};

use crate::number::{Bits, Number};
use crate::reference::scalar::function;

/// A value's bits and its doubt.
pub(super) type Doubted = (Bits, f64);

/// Units in the last place that functions may be off, each by itself: the largest bound that machine code states is 5.
const FUNCTION_ULPS: f64 = 6.0;

/// The largest relative error of one rounding; 0 for exact types.
fn unit(dtype: Dtype) -> f64 {
    dtype.epsilon() / 2.0
}

/// The largest finite value and the smallest normal one.
fn limits(dtype: Dtype) -> (f64, f64) {
    match dtype {
        Dtype::F16 => (65504.0, 2f64.powi(-14)),
        Dtype::BF16 => (f64::from(half::bf16::MAX.to_f32()), f64::from(f32::MIN_POSITIVE)),
        Dtype::F32 | Dtype::C64 => (f64::from(f32::MAX), f64::from(f32::MIN_POSITIVE)),
        Dtype::F8E4M3 => (448.0, 2f64.powi(-6)),
        Dtype::F8E5M2 => (57344.0, 2f64.powi(-14)),
        Dtype::F64
        | Dtype::C128
        | Dtype::Bool
        | Dtype::U8
        | Dtype::U16
        | Dtype::U32
        | Dtype::U64
        | Dtype::I8
        | Dtype::I16
        | Dtype::I32
        | Dtype::I64 => (f64::MAX, f64::MIN_POSITIVE),
    }
}

/// The doubt of a scalar operation's result; `dtype` is the type of its last operand.
pub(super) fn of_operation(op: ScalarOp, dtype: Dtype, args: &[Doubted], result: (Dtype, Bits)) -> f64 {
    let is_certain = args.iter().all(|arg| arg.1 == 0.0);
    if op == ScalarOp::Select {
        let [(condition, doubt), then, other] = *args else { return f64::INFINITY };
        return match (doubt == 0.0, condition != 0) {
            (true, true) => then.1,
            (true, false) => other.1,
            (false, _) => either(dtype, then, other),
        };
    }
    if dtype.is_float() {
        let value =
            |&(bits, doubt): &Doubted| Interval { value: Number::decode(dtype, bits).double(), doubt };
        let operand = |at: usize| args.get(at).map_or(Interval { value: 0.0, doubt: 0.0 }, value);
        let [a, b, c] = [operand(0), operand(1), operand(2)];
        return float(op, dtype, [a, b, c], Number::decode(result.0, result.1).double());
    }
    let is_certainly = |&(bits, doubt): &Doubted, wanted: bool| doubt == 0.0 && (bits != 0) == wanted;
    let is_decided = match op {
        ScalarOp::And | ScalarOp::Mul => args.iter().any(|arg| is_certainly(arg, false)),
        ScalarOp::Or => dtype == Dtype::Bool && args.iter().any(|arg| is_certainly(arg, true)),
        _ => false,
    };
    // Complex arithmetic is two roundings more than real.
    let is_exact = dtype.kind() != litz_ir::dtype::Kind::Complex;
    if (is_certain && is_exact) || is_decided { 0.0 } else { f64::INFINITY }
}

/// The doubt of a value that is one of two.
fn either(dtype: Dtype, a: Doubted, b: Doubted) -> f64 {
    if a == b {
        return a.1;
    }
    if !dtype.is_float() {
        return f64::INFINITY;
    }
    let value = |bits| Number::decode(dtype, bits).double();
    certain_or_all((value(a.0) - value(b.0)).abs() + a.1.max(b.1))
}

fn certain_or_all(doubt: f64) -> f64 {
    if doubt.is_nan() { f64::INFINITY } else { doubt }
}

/// A float and its doubt.
#[derive(Clone, Copy)]
struct Interval {
    value: f64,
    doubt: f64,
}

impl Interval {
    fn low(self) -> f64 {
        self.value - self.doubt
    }
    fn high(self) -> f64 {
        self.value + self.doubt
    }
    /// Whether its sign is open.
    fn may_be_zero(self) -> bool {
        self.doubt > 0.0 && self.value.abs() <= self.doubt
    }
}

fn float(op: ScalarOp, dtype: Dtype, args: [Interval; 3], result: f64) -> f64 {
    use ScalarOp::*;
    let [a, b, c] = args;
    let is_certain = args.iter().all(|arg| arg.doubt == 0.0);
    if args.iter().any(|arg| arg.doubt == f64::INFINITY) {
        return f64::INFINITY;
    }
    match op {
        Eq | Ne | Lt | Le | Gt | Ge => {
            let is_apart = (a.value - b.value).abs() > a.doubt + b.doubt;
            let is_nan = a.value.is_nan() || b.value.is_nan();
            return if is_certain || is_apart || is_nan { 0.0 } else { f64::INFINITY };
        }
        Isnan | Isinf => return 0.0,
        Neg | Abs => return a.doubt,
        Max | Min => {
            // Of two zeros with different signs it may be either, as processors have it, and of many it depends on the order.
            let are_zeros = a.value == 0.0 && b.value == 0.0;
            if is_certain && are_zeros && a.value.is_sign_negative() != b.value.is_sign_negative() {
                return f64::from_bits(1);
            }
            if is_certain || result.is_nan() {
                return 0.0;
            }
            let pick = |x: f64, y: f64| if op == Max { x.max(y) } else { x.min(y) };
            let (low, high) = (pick(a.low(), b.low()), pick(a.high(), b.high()));
            return certain_or_all((high - result).max(result - low).max(0.0));
        }
        Add | Sub | Mul | Fma | Div | FloorDiv | Mod | Rem | Pow | Atan2 | Copysign | Nextafter | Sign
        | Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Asin | Acos
        | Atan | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh | Erf | Erfc | Erfinv | Lgamma | Digamma
        | Floor | Ceil | Round | Trunc => {}
        And | Or | Xor | Not | Shl | Shr | Select => return f64::INFINITY,
    }
    // Whether a NaN is negative depends on how it came about.
    if op == Copysign && b.value.is_nan() {
        return f64::INFINITY;
    }
    let (largest, least) = limits(dtype);
    if !result.is_finite() {
        return not_finite(op, args, result);
    }
    // Below the smallest normal number the distance to the next one stays what it is there.
    let ulp = 2.0 * unit(dtype) * result.abs().max(least);
    // What is added in f64 is not known to be exact; of operands that are certain the result is.
    let own = |exact: f64| if exact == result && (is_certain || dtype != Dtype::F64) { 0.0 } else { ulp };
    // Dot products of bf16 take subnormal numbers for zeros, and give zeros instead of them.
    let is_subnormal = |x: f64| dtype == Dtype::F32 && x != 0.0 && x.abs() < least;
    let lost = if is_subnormal(a.value) || is_subnormal(b.value) { result.abs() } else { 0.0 };
    let product = || a.value.abs() * b.doubt + b.value.abs() * a.doubt + a.doubt * b.doubt + lost;
    let doubt = match op {
        Add => a.doubt + b.doubt + own(a.value + b.value),
        Sub => a.doubt + b.doubt + own(a.value - b.value),
        Mul => product() + if dtype == Dtype::F64 && result != 0.0 { ulp } else { own(a.value * b.value) },
        Fma => product() + c.doubt + 2.0 * unit(dtype) * (a.value * b.value).abs() + ulp,
        Div => quotient(a, b, result) + own_unless(is_certain, ulp),
        FloorDiv if !is_certain => steps(a, b, f64::floor),
        Mod | Rem if b.may_be_zero() => f64::INFINITY,
        Mod | Rem if !is_certain => {
            let round = if op == Mod { f64::floor } else { f64::trunc };
            let whole = round(a.value / b.value);
            let jump = if steps(a, b, round) > 0.0 { 2.0 * (b.value.abs() + b.doubt) } else { 0.0 };
            a.doubt + whole.abs() * b.doubt + jump + ulp
        }
        FloorDiv | Mod | Rem => 0.0,
        Copysign if b.may_be_zero() => 2.0 * a.value.abs() + a.doubt,
        Copysign => a.doubt,
        Nextafter if is_certain => 0.0,
        Nextafter => a.doubt + 2.0 * ulp,
        Floor | Ceil | Round | Trunc | Sign => ends(op, a, result),
        Sqrt => ends(op, a, result) + own_unless(is_certain, ulp),
        Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Asin | Acos | Atan | Sinh | Tanh
        | Asinh | Acosh | Atanh | Erf | Erfc | Erfinv => ends(op, a, result) + FUNCTION_ULPS * ulp + least,
        Cosh => ends(op, Interval { value: a.value.abs(), doubt: a.doubt }, result) + FUNCTION_ULPS * ulp,
        Sin | Cos => a.doubt.min(2.0) + FUNCTION_ULPS * ulp + least,
        // An extremum between the ends would be missed, and a pole.
        Tan | Lgamma | Digamma if a.doubt <= 1e-3 && !has_pole(op, a) => {
            // The reference itself is as far off as the function that machine code calls.
            let near_root = if op == Tan { 0.0 } else { 16.0 * unit(dtype) };
            2.0 * ends(op, a, result) + FUNCTION_ULPS * ulp + least + near_root
        }
        Tan | Lgamma | Digamma => f64::INFINITY,
        Pow => power(a, b, result) + FUNCTION_ULPS * ulp + least,
        Atan2 => angle(a, b) + FUNCTION_ULPS * ulp + least,
        Eq | Ne | Lt | Le | Gt | Ge | Isnan | Isinf | Neg | Abs | Max | Min | And | Or | Xor | Not | Shl
        | Shr | Select => f64::INFINITY,
    };
    let doubt = certain_or_all(doubt);
    if doubt > 0.0 && result.abs() + doubt > largest { f64::INFINITY } else { doubt }
}

/// Whether one of the values is a pole of `tan`, `lgamma` or `digamma`.
fn has_pole(op: ScalarOp, a: Interval) -> bool {
    let (low, high) = match op {
        ScalarOp::Tan => (a.low() / std::f64::consts::PI - 0.5, a.high() / std::f64::consts::PI - 0.5),
        _ => (a.low(), a.high().min(0.0)),
    };
    a.doubt > 0.0 && low.ceil() <= high.floor()
}

fn own_unless(is_certain: bool, ulp: f64) -> f64 {
    if is_certain { 0.0 } else { ulp }
}

/// Infinities and NaN are certain where they come from operands that are certain.
fn not_finite(op: ScalarOp, args: [Interval; 3], result: f64) -> f64 {
    let [a, b, _] = args;
    let is_certain = args.iter().all(|arg| arg.doubt == 0.0);
    let comes_from_finite = args.iter().all(|arg| arg.value.is_finite());
    match op {
        // A fused sum may bring a product back below the largest value, another order a sum.
        ScalarOp::Add | ScalarOp::Sub | ScalarOp::Mul | ScalarOp::Fma if comes_from_finite => f64::INFINITY,
        _ if is_certain => 0.0,
        ScalarOp::Add | ScalarOp::Sub => 0.0,
        ScalarOp::Mul | ScalarOp::Div if !comes_from_finite && !a.may_be_zero() && !b.may_be_zero() => 0.0,
        ScalarOp::Exp | ScalarOp::Exp2 | ScalarOp::Expm1 | ScalarOp::Log
            if result.is_infinite() && ends(op, a, result) == 0.0 =>
        {
            0.0
        }
        _ => f64::INFINITY,
    }
}

/// How far a function's values at the ends of the interval are from `result`; for functions that rise or fall throughout.
fn ends(op: ScalarOp, a: Interval, result: f64) -> f64 {
    if a.doubt == 0.0 {
        return 0.0;
    }
    let Some(function) = function(op, Dtype::F64) else { return f64::INFINITY };
    let at = |x: f64| f64::from_bits(function(Bits::from(x.to_bits()), 0, 0) as u64);
    // The middle beside the ends: `result` is rounded to a narrower type.
    let (low, middle, high) = (at(a.low()), at(a.value), at(a.high()));
    if [low, middle, high].iter().all(|&x| x == result) {
        return 0.0;
    }
    certain_or_all((low - middle).abs().max((high - middle).abs()))
}

fn quotient(a: Interval, b: Interval, result: f64) -> f64 {
    if a.doubt == 0.0 && b.doubt == 0.0 {
        return 0.0;
    }
    let room = b.value.abs() - b.doubt;
    if room <= 0.0 { f64::INFINITY } else { (a.doubt + result.abs() * b.doubt) / room }
}

/// How many whole numbers the quotient's ends are apart when rounded.
fn steps(a: Interval, b: Interval, round: fn(f64) -> f64) -> f64 {
    let value = a.value / b.value;
    let doubt = quotient(a, b, value) + f64::EPSILON * value.abs();
    certain_or_all(round(value + doubt) - round(value - doubt))
}

fn power(a: Interval, b: Interval, result: f64) -> f64 {
    if a.doubt == 0.0 && b.doubt == 0.0 {
        return 0.0;
    }
    let is_whole = b.doubt == 0.0 && b.value.fract() == 0.0;
    if a.low() <= 0.0 && !is_whole {
        return f64::INFINITY;
    }
    let mut corners =
        vec![a.low().powf(b.low()), a.low().powf(b.high()), a.high().powf(b.low()), a.high().powf(b.high())];
    if a.may_be_zero() {
        corners.push(0f64.powf(b.value));
    }
    let far = corners.into_iter().map(|corner| certain_or_all((corner - result).abs()));
    far.fold(0.0, f64::max)
}

fn angle(a: Interval, b: Interval) -> f64 {
    let doubt = a.doubt + b.doubt;
    if doubt == 0.0 {
        return 0.0;
    }
    let room = a.value.hypot(b.value) - doubt;
    let crosses = b.low() < 0.0 && a.may_be_zero();
    if room <= 0.0 || crosses { f64::INFINITY } else { doubt / room }
}

/// The doubt of a conversion's result.
pub(super) fn of_cast(from: Dtype, to: Dtype, (bits, doubt): Doubted) -> f64 {
    if doubt == 0.0 || from == to {
        return doubt;
    }
    if !from.is_float() || doubt == f64::INFINITY {
        return f64::INFINITY;
    }
    let value = Number::decode(from, bits).double();
    if to == Dtype::Bool {
        return if value.abs() <= doubt { f64::INFINITY } else { 0.0 };
    }
    if to.is_float() {
        let rounding =
            if unit(to) > unit(from) { 2.0 * unit(to) * value.abs() + limits(to).1 * unit(to) } else { 0.0 };
        let doubt = doubt + rounding;
        return if value.abs() + doubt > limits(to).0 { f64::INFINITY } else { doubt };
    }
    let whole = |x: f64| Number::Float(x).encode(to);
    if whole(value - doubt) == whole(value + doubt) && whole(value) == whole(value + doubt) {
        0.0
    } else {
        f64::INFINITY
    }
}

/// What the doubt of a total depends on.
#[derive(Clone, Copy, Default)]
pub(super) struct Running {
    /// Doubts that were added up, or that of the combination so far.
    doubt: f64,
    /// Sum of the magnitudes of finite terms.
    weight: f64,
    terms: f64,
    has_fractions: bool,
    /// Binary logarithms of the products of factors above 1, and of those below.
    above: f64,
    below: f64,
}

impl Running {
    /// Takes one more term into account; `before` and `after` are the totals of the interpreter.
    pub(super) fn add(&mut self, op: ReduceOp, dtype: Dtype, before: Bits, term: Doubted, after: Bits) {
        let is_sum = op == ReduceOp::Sum && dtype.is_float();
        if !is_sum {
            let args = [(before, self.doubt), term];
            self.doubt = of_operation(op.combine(), dtype, &args, (dtype, after));
            if op == ReduceOp::Prod && dtype.is_float() {
                self.multiply(dtype, term.0);
            }
            return;
        }
        let value = Number::decode(dtype, term.0).double();
        self.terms += 1.0;
        self.doubt += term.1;
        if value.is_finite() {
            self.weight += value.abs();
            self.has_fractions |= value.fract() != 0.0;
        }
    }

    /// Takes one more factor into account: the product of all may stay in range, or be zero, while that of some does not.
    fn multiply(&mut self, dtype: Dtype, factor: Bits) {
        // For what the factors before were rounded by.
        const MARGIN: f64 = 1e-3;
        let magnitude = Number::decode(dtype, factor).double().abs().log2();
        if magnitude.is_finite() {
            self.above += magnitude.max(0.0);
            self.below += magnitude.min(0.0);
        }
        let (largest, least) = limits(dtype);
        if self.above > largest.log2() - MARGIN || self.below < least.log2() + MARGIN {
            self.doubt = f64::INFINITY;
        }
    }

    /// The doubt of the total: each addition, in any order, rounds a number no larger than the sum of all magnitudes.
    pub(super) fn doubt(&self, op: ReduceOp, dtype: Dtype, total: Bits) -> f64 {
        if op != ReduceOp::Sum || !dtype.is_float() {
            return self.doubt;
        }
        let (largest, least) = limits(dtype);
        if self.weight + self.doubt > largest {
            return f64::INFINITY;
        }
        if !Number::decode(dtype, total).double().is_finite() {
            return certain_or_all(if self.doubt.is_finite() { 0.0 } else { f64::INFINITY });
        }
        let is_exact = !self.has_fractions && self.weight * unit(dtype) < 1.0;
        // Each may also be lost as too small, see `float`.
        let inexact = || self.terms * (2.0 * unit(dtype) * self.weight + least);
        certain_or_all(self.doubt + if is_exact { 0.0 } else { inexact() })
    }
}

/// The doubt of an element after a combining store, which may come in any order.
pub(super) fn of_combining_store(
    op: ReduceOp,
    dtype: Dtype,
    before: Doubted,
    term: Doubted,
    after: Bits,
) -> f64 {
    let doubt = of_operation(op.combine(), dtype, &[before, term], (dtype, after));
    if op != ReduceOp::Sum || !dtype.is_float() || doubt == 0.0 {
        return doubt;
    }
    let magnitude = |bits| Number::decode(dtype, bits).double().abs();
    certain_or_all(doubt + 2.0 * unit(dtype) * (magnitude(before.0) + magnitude(term.0)))
}

/// Rivals of the element that an arg reduction has found.
#[derive(Clone, Copy)]
pub(super) struct Rivals {
    doubt: f64,
    /// How near the nearest other element may come, upwards; for minima of the negated values.
    reach: f64,
}

impl Rivals {
    /// Those of the first element.
    pub(super) fn none(doubt: f64) -> Rivals {
        Rivals { doubt, reach: f64::NEG_INFINITY }
    }

    /// `other` came, and was or was not better than what was `found` before it.
    pub(super) fn meet(&mut self, max: bool, dtype: Dtype, found: Bits, other: Doubted, is_better: bool) {
        let height = |bits: Bits| {
            let value = Number::decode(dtype, bits).double();
            if max { value } else { -value }
        };
        // Equal elements without doubt are in order of their positions.
        let is_tie = height(found) == height(other.0) && self.doubt == 0.0 && other.1 == 0.0;
        let (loser, doubt) = if is_better { (found, self.doubt) } else { other };
        if !is_tie {
            let reach = height(loser) + doubt;
            self.reach = self.reach.max(if doubt == f64::INFINITY { f64::INFINITY } else { reach });
        }
        if is_better {
            self.doubt = other.1;
        }
    }

    /// The doubt of the position.
    pub(super) fn doubt(&self, max: bool, dtype: Dtype, found: Bits) -> f64 {
        let value = Number::decode(dtype, found).double();
        if value.is_nan() {
            return if self.reach == f64::INFINITY { f64::INFINITY } else { 0.0 };
        }
        let height = if max { value } else { -value };
        let is_clear = height - self.doubt > self.reach;
        let is_tied = self.doubt == 0.0 && height == self.reach;
        if is_clear || is_tied { 0.0 } else { f64::INFINITY }
    }
}
