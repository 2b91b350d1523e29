//! Defines what each scalar operation means, as a function on bits for each element type.
//!
//! Floats compute in f64 and round once to their type; for `+ - * /` and `sqrt` of f32 that equals rounding the
//! exact result, since f64 has more than twice the digits. Types narrower than f32 round by way of f32, as they do
//! between load and store. Integers compute exactly and wrap.

use half::{bf16, f16};
use litz_ir::scalar::Signature;
use litz_ir::{Dtype, ScalarOp};

use crate::number::{Bits, Number};
use crate::routines::special::double;

/// Operands to result. Operands that an operation does not have are ignored.
pub(super) type ScalarFn = fn(Bits, Bits, Bits) -> Bits;

/// The meaning of `op` on operands of `dtype` (of `select`: on a bool and two of `dtype`); None where it has none.
pub(super) fn function(op: ScalarOp, dtype: Dtype) -> Option<ScalarFn> {
    if op == ScalarOp::Select {
        return Some(|condition, a, b| if condition != 0 { a } else { b });
    }
    match dtype {
        Dtype::Bool => bool_function(op),
        Dtype::U8 => integer_function::<u8>(op),
        Dtype::U16 => integer_function::<u16>(op),
        Dtype::U32 => integer_function::<u32>(op),
        Dtype::U64 => integer_function::<u64>(op),
        Dtype::I8 => integer_function::<i8>(op),
        Dtype::I16 => integer_function::<i16>(op),
        Dtype::I32 => integer_function::<i32>(op),
        Dtype::I64 => integer_function::<i64>(op),
        Dtype::F16 => float_function::<f16>(op),
        Dtype::BF16 => float_function::<bf16>(op),
        Dtype::F32 => float_function::<f32>(op),
        Dtype::F64 => float_function::<f64>(op),
        Dtype::F8E4M3 => float_function::<E4M3>(op),
        Dtype::F8E5M2 => float_function::<E5M2>(op),
        Dtype::C64 => complex_function::<C64>(op),
        Dtype::C128 => complex_function::<C128>(op),
    }
}

/// The meaning of `op` on operands of those types, if they fit it and its result has type `ty`; else the rule that is broken.
pub(super) fn operation(op: ScalarOp, operands: &[Dtype], ty: Dtype) -> Result<ScalarFn, String> {
    let name = op.name();
    let last = match operands.last() {
        Some(&last) if operands.len() == op.arity() => last,
        _ => return Err(format!("{name} has {} operands", operands.len())),
    };
    let (first, result) = match op.signature() {
        Signature::Same | Signature::Float | Signature::Bits => (last, last),
        Signature::Compare => (last, Dtype::Bool),
        Signature::Select => (Dtype::Bool, last),
    };
    for (at, &operand) in operands.iter().enumerate() {
        let expected = if at == 0 { first } else { last };
        if operand != expected {
            return Err(format!("expected operand {at} of {name} to be {expected}, found {operand}"));
        }
    }
    if ty != result {
        return Err(format!("{name} of {last} gives {result}, found {ty}"));
    }
    function(op, last).ok_or_else(|| format!("{name} has no meaning for {last}"))
}

/// Builds a [`ScalarFn`]: operands are read by `$read`, the result becomes bits by `$bits`.
macro_rules! function {
    ($read:expr, $bits:expr; $a:ident => $result:expr) => {
        |a, _, _| {
            let $a = $read(a);
            $bits($result)
        }
    };
    ($read:expr, $bits:expr; $a:ident, $b:ident => $result:expr) => {
        |a, b, _| {
            let ($a, $b) = ($read(a), $read(b));
            $bits($result)
        }
    };
    ($read:expr, $bits:expr; $a:ident, $b:ident, $c:ident => $result:expr) => {
        |a, b, c| {
            let ($a, $b, $c) = ($read(a), $read(b), $read(c));
            $bits($result)
        }
    };
}

fn truth(bits: Bits) -> bool {
    bits != 0
}

fn bool_function(op: ScalarOp) -> Option<ScalarFn> {
    macro_rules! logic {
        ($($x:ident),+ => $result:expr) => { function!(truth, Bits::from; $($x),+ => $result) };
    }
    use ScalarOp::*;
    Some(match op {
        Add | Max | Or => logic!(a, b => a | b),
        Mul | Min | And => logic!(a, b => a & b),
        Fma => logic!(a, b, c => (a & b) | c),
        Xor | Ne => logic!(a, b => a ^ b),
        Eq => logic!(a, b => a == b),
        Lt => logic!(a, b => !a & b),
        Le => logic!(a, b => a <= b),
        Gt => logic!(a, b => a & !b),
        Ge => logic!(a, b => a >= b),
        Not => logic!(a => !a),
        Abs | Sign => logic!(a => a),
        Isnan | Isinf => logic!(_a => false),
        Sub | Div | FloorDiv | Mod | Rem | Neg | Pow | Shl | Shr | Select => return None,
        Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Asin | Acos
        | Atan | Atan2 | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh | Erf | Erfc | Erfinv | Lgamma
        | Digamma | Floor | Ceil | Round | Trunc | Copysign | Nextafter => return None,
    })
}

/// An integer type: computes in i128, which holds every value of it exactly.
trait Integer {
    const WIDTH: i128;

    fn read(bits: Bits) -> i128;
    fn wrap(value: i128) -> Bits;
}

macro_rules! integers {
    ($($ty:ident as $unsigned:ident;)*) => {$(
        impl Integer for $ty {
            const WIDTH: i128 = $ty::BITS as i128;

            fn read(bits: Bits) -> i128 {
                i128::from(bits as $ty)
            }
            fn wrap(value: i128) -> Bits {
                Bits::from(value as $unsigned)
            }
        }
    )*};
}

integers! {
    u8 as u8;
    u16 as u16;
    u32 as u32;
    u64 as u64;
    i8 as u8;
    i16 as u16;
    i32 as u32;
    i64 as u64;
}

fn integer_function<T: Integer>(op: ScalarOp) -> Option<ScalarFn> {
    macro_rules! int {
        ($($x:ident),+ => $result:expr) => { function!(T::read, T::wrap; $($x),+ => $result) };
    }
    macro_rules! test {
        ($($x:ident),+ => $result:expr) => { function!(T::read, Bits::from; $($x),+ => $result) };
    }
    use ScalarOp::*;
    Some(match op {
        Add => int!(a, b => a + b),
        Sub => int!(a, b => a - b),
        // Two u64 overflow i128, but the low bits are right.
        Mul => int!(a, b => a.wrapping_mul(b)),
        Fma => int!(a, b, c => a.wrapping_mul(b).wrapping_add(c)),
        Div => int!(a, b => a.checked_div(b).unwrap_or(0)),
        FloorDiv => int!(a, b => if b == 0 { 0 } else { (a - floor_rest(a, b)) / b }),
        Mod => int!(a, b => if b == 0 { 0 } else { floor_rest(a, b) }),
        Rem => int!(a, b => a.checked_rem(b).unwrap_or(0)),
        Max => int!(a, b => a.max(b)),
        Min => int!(a, b => a.min(b)),
        Neg => int!(a => -a),
        Abs => int!(a => a.abs()),
        Sign => int!(a => a.signum()),
        Pow => int!(a, b => integer_power(a, b)),
        And => int!(a, b => a & b),
        Or => int!(a, b => a | b),
        Xor => int!(a, b => a ^ b),
        Not => int!(a => !a),
        Shl => int!(a, b => if (0..T::WIDTH).contains(&b) { a << b } else { 0 }),
        Shr => int!(a, b => if (0..T::WIDTH).contains(&b) { a >> b } else { a >> T::WIDTH }),
        Eq => test!(a, b => a == b),
        Ne => test!(a, b => a != b),
        Lt => test!(a, b => a < b),
        Le => test!(a, b => a <= b),
        Gt => test!(a, b => a > b),
        Ge => test!(a, b => a >= b),
        Isnan | Isinf => test!(_a => false),
        Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Asin | Acos
        | Atan | Atan2 | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh | Erf | Erfc | Erfinv | Lgamma
        | Digamma | Floor | Ceil | Round | Trunc | Copysign | Nextafter | Select => return None,
    })
}

/// Remainder with the divisor's sign; the divisor is not 0.
fn floor_rest(a: i128, b: i128) -> i128 {
    let rest = a % b;
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

/// Negative powers round towards zero, and those of 0 are 0, as `torch.pow` on integer tensors.
fn integer_power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 => 1 - 2 * (exponent & 1),
            _ => 0,
        };
    }
    let (mut power, mut square, mut left) = (1i128, base, exponent);
    while left > 0 {
        if left & 1 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left >>= 1;
    }
    power
}

/// A real floating-point type.
trait Float {
    const DTYPE: Dtype;

    fn read(bits: Bits) -> f64 {
        Number::decode(Self::DTYPE, bits).double()
    }
    fn bits(value: f64) -> Bits {
        Number::Float(value).encode(Self::DTYPE)
    }
    /// Rounded to the type.
    fn round(value: f64) -> f64 {
        Self::read(Self::bits(value))
    }
    /// `a * b + c`, rounded once.
    fn fma(a: f64, b: f64, c: f64) -> f64 {
        // Operands are f32 or narrower, except for f64 itself, which does not use this.
        f64::from((a as f32).mul_add(b as f32, c as f32))
    }
}

struct E4M3;
struct E5M2;

impl Float for f16 {
    const DTYPE: Dtype = Dtype::F16;
}
impl Float for bf16 {
    const DTYPE: Dtype = Dtype::BF16;
}
impl Float for E4M3 {
    const DTYPE: Dtype = Dtype::F8E4M3;
}
impl Float for E5M2 {
    const DTYPE: Dtype = Dtype::F8E5M2;
}
impl Float for f32 {
    const DTYPE: Dtype = Dtype::F32;
    fn read(bits: Bits) -> f64 {
        f64::from(f32::from_bits(bits as u32))
    }
    fn bits(value: f64) -> Bits {
        Bits::from((value as f32).to_bits())
    }
}
impl Float for f64 {
    const DTYPE: Dtype = Dtype::F64;
    fn fma(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
}

fn float_function<T: Float>(op: ScalarOp) -> Option<ScalarFn> {
    macro_rules! float {
        ($($x:ident),+ => $result:expr) => { function!(T::read, T::bits; $($x),+ => $result) };
    }
    macro_rules! test {
        ($($x:ident),+ => $result:expr) => { function!(T::read, Bits::from; $($x),+ => $result) };
    }
    macro_rules! special {
        ($name:ident $($x:ident),+) => { float!($($x),+ => double::$name($($x),+)) };
    }
    use ScalarOp::*;
    Some(match op {
        Add => float!(a, b => a + b),
        Sub => float!(a, b => a - b),
        Mul => float!(a, b => a * b),
        Div => float!(a, b => a / b),
        FloorDiv => float!(a, b => float_floor_quotient::<T>(a, b)),
        Mod => float!(a, b => float_floor_rest(a, b)),
        Rem => float!(a, b => a % b),
        Max => float!(a, b => if a.is_nan() || b <= a { a } else { b }),
        Min => float!(a, b => if a.is_nan() || b >= a { a } else { b }),
        Neg => float!(a => -a),
        Abs => float!(a => a.abs()),
        Sign => float!(a => f64::from(u8::from(a > 0.0)) - f64::from(u8::from(a < 0.0))),
        Fma => float!(a, b, c => T::fma(a, b, c)),
        Pow => special!(pow a, b),
        Sqrt => special!(sqrt a),
        Rsqrt => special!(rsqrt a),
        Exp => special!(exp a),
        Exp2 => special!(exp2 a),
        Expm1 => special!(expm1 a),
        Log => special!(log a),
        Log2 => special!(log2 a),
        Log10 => special!(log10 a),
        Log1p => special!(log1p a),
        Sin => special!(sin a),
        Cos => special!(cos a),
        Tan => special!(tan a),
        Asin => special!(asin a),
        Acos => special!(acos a),
        Atan => special!(atan a),
        Atan2 => special!(atan2 a, b),
        Sinh => special!(sinh a),
        Cosh => special!(cosh a),
        Tanh => special!(tanh a),
        Asinh => special!(asinh a),
        Acosh => special!(acosh a),
        Atanh => special!(atanh a),
        Erf => special!(erf a),
        Erfc => special!(erfc a),
        Erfinv => special!(erfinv a),
        Lgamma => special!(lgamma a),
        Digamma => special!(digamma a),
        Floor => float!(a => a.floor()),
        Ceil => float!(a => a.ceil()),
        Round => float!(a => a.round_ties_even()),
        Trunc => float!(a => a.trunc()),
        Copysign => float!(a, b => a.copysign(b)),
        Nextafter => |a, b, _| next_after::<T>(a, b),
        Eq => test!(a, b => a == b),
        Ne => test!(a, b => a != b),
        Lt => test!(a, b => a < b),
        Le => test!(a, b => a <= b),
        Gt => test!(a, b => a > b),
        Ge => test!(a, b => a >= b),
        Isnan => test!(a => a.is_nan()),
        Isinf => test!(a => a.is_infinite()),
        And | Or | Xor | Not | Shl | Shr | Select => return None,
    })
}

/// As c10's `div_floor_floating`, each step rounded to the type.
fn float_floor_quotient<T: Float>(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let rest = a % b;
    let mut quotient = T::round(T::round(a - rest) / b);
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
        quotient = T::round(quotient - 1.0);
    }
    if quotient == 0.0 {
        return 0f64.copysign(a / b);
    }
    let floor = quotient.floor();
    if quotient - floor > 0.5 { floor + 1.0 } else { floor }
}

/// Remainder with the divisor's sign, as `torch.remainder`.
fn float_floor_rest(a: f64, b: f64) -> f64 {
    let rest = a % b;
    if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
}

/// One step towards `to`: bits of floats of one sign are ordered like their magnitudes.
fn next_after<T: Float>(from: Bits, to: Bits) -> Bits {
    let (start, end) = (T::read(from), T::read(to));
    if start.is_nan() || end.is_nan() {
        return T::bits(f64::NAN);
    }
    if start == end {
        return to;
    }
    if start == 0.0 {
        let sign = 1 << (8 * T::DTYPE.size() - 1);
        return if end > 0.0 { 1 } else { sign | 1 };
    }
    if (end > start) == (start > 0.0) { from + 1 } else { from - 1 }
}

/// A complex type.
trait Complex {
    const DTYPE: Dtype;

    fn read(bits: Bits) -> (f64, f64) {
        match Number::decode(Self::DTYPE, bits) {
            Number::Complex(real, imaginary) => (real, imaginary),
            other => (other.double(), 0.0),
        }
    }
    fn bits((real, imaginary): (f64, f64)) -> Bits {
        Number::Complex(real, imaginary).encode(Self::DTYPE)
    }
}

struct C64;
struct C128;

impl Complex for C64 {
    const DTYPE: Dtype = Dtype::C64;
}
impl Complex for C128 {
    const DTYPE: Dtype = Dtype::C128;
}

fn complex_function<T: Complex>(op: ScalarOp) -> Option<ScalarFn> {
    macro_rules! complex {
        ($($x:ident),+ => $result:expr) => { function!(T::read, T::bits; $($x),+ => $result) };
    }
    macro_rules! test {
        ($($x:ident),+ => $result:expr) => { function!(T::read, Bits::from; $($x),+ => $result) };
    }
    fn product((a, b): (f64, f64), (c, d): (f64, f64)) -> (f64, f64) {
        (a * c - b * d, a * d + b * c)
    }
    use ScalarOp::*;
    Some(match op {
        Add => complex!(x, y => (x.0 + y.0, x.1 + y.1)),
        Sub => complex!(x, y => (x.0 - y.0, x.1 - y.1)),
        Mul => complex!(x, y => product(x, y)),
        Div => complex!(x, y => {
            let (norm, above) = (y.0 * y.0 + y.1 * y.1, product(x, (y.0, -y.1)));
            (above.0 / norm, above.1 / norm)
        }),
        Fma => complex!(x, y, z => {
            let (real, imaginary) = product(x, y);
            (real + z.0, imaginary + z.1)
        }),
        Neg => complex!(x => (-x.0, -x.1)),
        Eq => test!(x, y => x == y),
        Ne => test!(x, y => x != y),
        Isnan => test!(x => x.0.is_nan() || x.1.is_nan()),
        Isinf => test!(x => x.0.is_infinite() || x.1.is_infinite()),
        FloorDiv | Mod | Rem | Max | Min | Abs | Sign | Pow | Lt | Le | Gt | Ge | Select => return None,
        And | Or | Xor | Not | Shl | Shr => return None,
        Sqrt | Rsqrt | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Asin | Acos
        | Atan | Atan2 | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh | Erf | Erfc | Erfinv | Lgamma
        | Digamma | Floor | Ceil | Round | Trunc | Copysign | Nextafter => return None,
    })
}

#[cfg(test)]
#[path = "scalar_tests.rs"]
mod tests;
