//! Checks scalar operations against tables of operands and results.

use super::*;
use ScalarOp::*;

/// Applies `op` to operands given as numbers, and gives the result as one.
fn apply(op: ScalarOp, dtype: Dtype, operands: &[Number]) -> Number {
    let function = function(op, dtype).unwrap_or_else(|| panic!("{} has no meaning for {dtype}", op.name()));
    let mut bits = operands.iter().map(|operand| operand.encode(dtype)).chain(std::iter::repeat(0));
    let mut next = || bits.next().expect("the iterator has no end");
    let result = if op.signature() == litz_ir::scalar::Signature::Compare { Dtype::Bool } else { dtype };
    Number::decode(result, function(next(), next(), next()))
}

fn float(op: ScalarOp, dtype: Dtype, operands: &[f64]) -> f64 {
    let operands: Vec<_> = operands.iter().map(|&operand| Number::Float(operand)).collect();
    apply(op, dtype, &operands).double()
}

fn int(op: ScalarOp, dtype: Dtype, operands: &[i128]) -> i128 {
    let operands: Vec<_> = operands.iter().map(|&operand| Number::Int(operand)).collect();
    match apply(op, dtype, &operands) {
        Number::Int(value) => value,
        other => panic!("expected an integer, found {other:?}"),
    }
}

/// Equal, or both NaN; zeros of different sign differ.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[test]
fn integers_of_every_width() {
    const I8: Dtype = Dtype::I8;
    const U8: Dtype = Dtype::U8;
    const I64: Dtype = Dtype::I64;
    const U64: Dtype = Dtype::U64;
    let (min, max) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let table: &[(ScalarOp, Dtype, &[i128], i128)] = &[
        (Add, I8, &[127, 1], -128),
        (Add, U8, &[255, 1], 0),
        (Sub, U8, &[0, 1], 255),
        (Sub, Dtype::U16, &[0, 1], 65535),
        (Mul, I64, &[max, 2], -2),
        (Mul, U64, &[i128::from(u64::MAX), i128::from(u64::MAX)], 1),
        (Fma, Dtype::I32, &[1 << 16, 1 << 16, 5], 5),
        (Div, Dtype::I32, &[-7, 2], -3),
        (Div, Dtype::I32, &[7, 0], 0),
        (Div, I64, &[min, -1], min),
        (FloorDiv, Dtype::I32, &[-7, 2], -4),
        (FloorDiv, Dtype::I32, &[7, -2], -4),
        (FloorDiv, Dtype::I32, &[-8, 2], -4),
        (FloorDiv, U8, &[200, 3], 66),
        (FloorDiv, I8, &[5, 0], 0),
        (Mod, Dtype::I16, &[-7, 3], 2),
        (Mod, Dtype::I16, &[7, -3], -2),
        (Mod, Dtype::I16, &[-6, 3], 0),
        (Mod, I64, &[7, 0], 0),
        (Mod, I64, &[min, -1], 0),
        (Rem, Dtype::I16, &[-7, 3], -1),
        (Rem, Dtype::I16, &[7, 0], 0),
        (Max, I8, &[-1, 1], 1),
        (Max, U8, &[255, 1], 255),
        (Min, U64, &[i128::from(u64::MAX), 1], 1),
        (Neg, I8, &[-128], -128),
        (Neg, U8, &[1], 255),
        (Abs, I64, &[min], min),
        (Abs, I8, &[-5], 5),
        (Sign, I64, &[-9], -1),
        (Sign, U8, &[0], 0),
        (Pow, Dtype::I32, &[3, 4], 81),
        (Pow, Dtype::I32, &[2, 32], 0),
        (Pow, I64, &[-2, 63], min),
        (Pow, I64, &[0, 0], 1),
        (Pow, I64, &[2, -1], 0),
        (Pow, I64, &[-1, -3], -1),
        (Pow, I64, &[-1, -4], 1),
        (Pow, I64, &[1, -9], 1),
        (And, U8, &[0b1100, 0b1010], 0b1000),
        (Or, I8, &[0b1100, 0b1010], 0b1110),
        (Xor, I8, &[-1, 1], -2),
        (Not, U8, &[0], 255),
        (Not, I64, &[0], -1),
        (Shl, U8, &[1, 7], 128),
        (Shl, U8, &[1, 8], 0),
        (Shl, I64, &[1, -1], 0),
        (Shl, Dtype::I32, &[1, 31], i32::MIN as i128),
        (Shr, I8, &[-128, 7], -1),
        (Shr, I8, &[-128, 100], -1),
        (Shr, I8, &[64, -1], 0),
        (Shr, U8, &[128, 7], 1),
        (Shr, U64, &[i128::from(u64::MAX), 64], 0),
    ];
    for &(op, dtype, operands, expected) in table {
        assert_eq!(int(op, dtype, operands), expected, "{} {dtype} {operands:?}", op.name());
    }
}

#[test]
fn floats_of_both_precisions() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let table: &[(ScalarOp, &[f64], f64)] = &[
        (Add, &[inf, -inf], nan),
        (Sub, &[1.0, 1.0], 0.0),
        (Mul, &[-0.0, 3.0], -0.0),
        (Div, &[1.0, -0.0], -inf),
        (Div, &[0.0, 0.0], nan),
        (FloorDiv, &[7.0, 2.0], 3.0),
        (FloorDiv, &[-7.0, 2.0], -4.0),
        (FloorDiv, &[-1.0, inf], -1.0),
        (FloorDiv, &[1.0, 0.0], inf),
        (FloorDiv, &[0.0, -2.0], -0.0),
        (FloorDiv, &[nan, 1.0], nan),
        (Mod, &[-7.0, 3.0], 2.0),
        (Mod, &[7.0, -3.0], -2.0),
        (Mod, &[6.0, -3.0], 0.0),
        (Mod, &[-1.0, inf], inf),
        (Mod, &[1.0, 0.0], nan),
        (Rem, &[-7.0, 3.0], -1.0),
        (Rem, &[5.0, inf], 5.0),
        (Max, &[nan, 1.0], nan),
        (Max, &[1.0, nan], nan),
        (Max, &[-inf, 1.0], 1.0),
        (Min, &[nan, 1.0], nan),
        (Min, &[1.0, nan], nan),
        (Min, &[2.0, 1.0], 1.0),
        (Neg, &[0.0], -0.0),
        (Abs, &[-0.0], 0.0),
        (Sign, &[nan], 0.0),
        (Sign, &[-3.5], -1.0),
        (Sign, &[-0.0], 0.0),
        (Pow, &[0.0, 0.0], 1.0),
        (Pow, &[-8.0, 1.0 / 3.0], nan),
        (Pow, &[-2.0, 3.0], -8.0),
        (Sqrt, &[-1.0], nan),
        (Rsqrt, &[0.0], inf),
        (Rsqrt, &[4.0], 0.5),
        (Exp, &[-inf], 0.0),
        (Exp2, &[10.0], 1024.0),
        (Expm1, &[0.0], 0.0),
        (Log, &[0.0], -inf),
        (Log, &[-1.0], nan),
        (Log2, &[8.0], 3.0),
        (Log10, &[1000.0], 3.0),
        (Log1p, &[-1.0], -inf),
        (Sin, &[inf], nan),
        (Cos, &[0.0], 1.0),
        (Tan, &[-0.0], -0.0),
        (Asin, &[2.0], nan),
        (Acos, &[1.0], 0.0),
        (Atan, &[0.0], 0.0),
        (Atan2, &[0.0, 1.0], 0.0),
        (Sinh, &[-inf], -inf),
        (Cosh, &[0.0], 1.0),
        (Tanh, &[inf], 1.0),
        (Asinh, &[-0.0], -0.0),
        (Acosh, &[1.0], 0.0),
        (Acosh, &[0.5], nan),
        (Atanh, &[1.0], inf),
        (Erf, &[-inf], -1.0),
        (Erfc, &[inf], 0.0),
        (Erfinv, &[1.0], inf),
        (Lgamma, &[2.0], 0.0),
        (Lgamma, &[0.0], inf),
        (Digamma, &[0.0], -inf),
        (Floor, &[-0.5], -1.0),
        (Ceil, &[-0.5], -0.0),
        (Round, &[0.5], 0.0),
        (Round, &[1.5], 2.0),
        (Round, &[-2.5], -2.0),
        (Trunc, &[-1.9], -1.0),
        (Copysign, &[3.0, -0.0], -3.0),
        (Copysign, &[nan, 1.0], nan),
        (Nextafter, &[nan, 1.0], nan),
        (Nextafter, &[0.0, -0.0], -0.0),
        (Nextafter, &[inf, inf], inf),
        (Eq, &[nan, nan], 0.0),
        (Ne, &[nan, nan], 1.0),
        (Eq, &[0.0, -0.0], 1.0),
        (Lt, &[1.0, nan], 0.0),
        (Le, &[1.0, 1.0], 1.0),
        (Gt, &[inf, 1.0], 1.0),
        (Ge, &[nan, 1.0], 0.0),
        (Isnan, &[nan], 1.0),
        (Isnan, &[inf], 0.0),
        (Isinf, &[-inf], 1.0),
        (Isinf, &[nan], 0.0),
    ];
    for dtype in [Dtype::F32, Dtype::F64] {
        for &(op, operands, expected) in table {
            let found = float(op, dtype, operands);
            assert!(
                same(found, expected),
                "{} {dtype} {operands:?}: expected {expected}, found {found}",
                op.name()
            );
        }
    }
}

/// Every unary function against the standard library of the same precision, to one unit in the last place.
#[test]
fn functions_agree_with_single_precision() {
    let table: &[(ScalarOp, fn(f32) -> f32)] = &[
        (Sqrt, f32::sqrt),
        (Exp, f32::exp),
        (Exp2, f32::exp2),
        (Expm1, f32::exp_m1),
        (Log, f32::ln),
        (Log2, f32::log2),
        (Log10, f32::log10),
        (Log1p, f32::ln_1p),
        (Sin, f32::sin),
        (Cos, f32::cos),
        (Tan, f32::tan),
        (Asin, f32::asin),
        (Acos, f32::acos),
        (Atan, f32::atan),
        (Sinh, f32::sinh),
        (Cosh, f32::cosh),
        (Tanh, f32::tanh),
        (Floor, f32::floor),
        (Ceil, f32::ceil),
        (Round, f32::round_ties_even),
        (Trunc, f32::trunc),
        (Abs, f32::abs),
    ];
    let inputs =
        [0.0, -0.0, 1e-30, 0.1, 0.5, -0.7, 1.0, -1.0, 2.5, -3.75, 20.0, 100.0, f32::INFINITY, f32::NAN];
    for &(op, expected) in table {
        for x in inputs {
            let (found, expected) = (float(op, Dtype::F32, &[f64::from(x)]), f64::from(expected(x)));
            let is_near = (found - expected).abs() <= f64::from(f32::EPSILON) * expected.abs();
            assert!(
                same(found, expected) || is_near,
                "{} {x}: expected {expected}, found {found}",
                op.name()
            );
        }
    }
}

#[test]
fn single_precision_rounds_once() {
    let cases =
        [(1.0f32, 3.0f32), (16_777_217.0, 1.0), (0.1, 0.2), (1e-38, 1e-5), (3e38, 1e38), (1.000_000_1, 7.0)];
    for (a, b) in cases {
        let (x, y) = (f64::from(a), f64::from(b));
        assert_eq!(float(Add, Dtype::F32, &[x, y]), f64::from(a + b));
        assert_eq!(float(Sub, Dtype::F32, &[x, y]), f64::from(a - b));
        assert_eq!(float(Mul, Dtype::F32, &[x, y]), f64::from(a * b));
        assert_eq!(float(Div, Dtype::F32, &[x, y]), f64::from(a / b));
        assert_eq!(float(Fma, Dtype::F32, &[x, y, -x * y]), f64::from(a.mul_add(b, (-x * y) as f32)));
    }
    // Rounding the exact 1 + 2^-24 + 2^-60 to f64 first would make it a tie.
    let (a, b) = (2f64.powi(-30), 2f64.powi(-30));
    assert_eq!(float(Fma, Dtype::F32, &[a, b, 1.0 + 2f64.powi(-23)]), 1.0 + 2f64.powi(-23));
    assert_eq!(
        float(Fma, Dtype::F64, &[1.0 + f64::EPSILON, 1.0 - f64::EPSILON, -1.0]),
        -f64::EPSILON * f64::EPSILON
    );
}

#[test]
fn narrow_types_compute_in_single_precision() {
    assert_eq!(float(Add, Dtype::F16, &[2048.0, 1.0]), 2048.0);
    assert_eq!(float(Mul, Dtype::F16, &[300.0, 300.0]), f64::INFINITY);
    assert_eq!(float(Add, Dtype::BF16, &[256.0, 1.0]), 256.0);
    assert_eq!(float(Mul, Dtype::F8E5M2, &[1.5, 1.5]), 2.0);
    assert_eq!(float(Nextafter, Dtype::BF16, &[1.0, 2.0]), 1.0078125);
    assert_eq!(float(Nextafter, Dtype::F16, &[0.0, -1.0]), -(2f64.powi(-24)));
    assert_eq!(float(Nextafter, Dtype::F32, &[1.0, 0.0]), f64::from(1.0f32.next_down()));
    assert_eq!(float(Nextafter, Dtype::F64, &[-1.0, 0.0]), (-1.0f64).next_up());
}

#[test]
fn truth_values() {
    let truth = |op, operands: &[bool]| {
        let operands: Vec<_> = operands.iter().map(|&operand| Number::Bool(operand)).collect();
        apply(op, Dtype::Bool, &operands)
    };
    for (op, table) in [
        (Add, [false, true, true, true]),
        (Or, [false, true, true, true]),
        (Max, [false, true, true, true]),
        (Mul, [false, false, false, true]),
        (And, [false, false, false, true]),
        (Min, [false, false, false, true]),
        (Xor, [false, true, true, false]),
        (Ne, [false, true, true, false]),
        (Eq, [true, false, false, true]),
        (Lt, [false, true, false, false]),
        (Le, [true, true, false, true]),
        (Gt, [false, false, true, false]),
        (Ge, [true, false, true, true]),
    ] {
        for (at, expected) in table.into_iter().enumerate() {
            let operands = [at & 2 != 0, at & 1 != 0];
            assert_eq!(truth(op, &operands), Number::Bool(expected), "{} {operands:?}", op.name());
        }
    }
    assert_eq!(truth(Not, &[false]), Number::Bool(true));
    assert!(function(Sub, Dtype::Bool).is_none() && function(Neg, Dtype::Bool).is_none());
}

#[test]
fn complex_numbers() {
    let (x, y) = (Number::Complex(1.0, 2.0), Number::Complex(3.0, -1.0));
    for dtype in [Dtype::C64, Dtype::C128] {
        assert_eq!(apply(Add, dtype, &[x, y]), Number::Complex(4.0, 1.0));
        assert_eq!(apply(Mul, dtype, &[x, y]), Number::Complex(5.0, 5.0));
        assert_eq!(apply(Div, dtype, &[Number::Complex(5.0, 5.0), y]), x);
        assert_eq!(apply(Neg, dtype, &[x]), Number::Complex(-1.0, -2.0));
        assert_eq!(apply(Eq, dtype, &[x, x]), Number::Bool(true));
        assert_eq!(apply(Ne, dtype, &[x, y]), Number::Bool(true));
    }
}

/// Which operations have a meaning for which family is fixed by their signatures.
#[test]
fn meanings_follow_signatures() {
    use litz_ir::dtype::Kind;
    use litz_ir::scalar::Signature;
    for &op in ScalarOp::ALL {
        for dtype in Dtype::ALL {
            let has_meaning = function(op, dtype).is_some();
            let expected = match (op.signature(), dtype.kind()) {
                (Signature::Select, _) => true,
                (Signature::Float, kind) => kind == Kind::Float,
                (Signature::Bits, Kind::Int) => true,
                (Signature::Bits, Kind::Bool) => !matches!(op, Shl | Shr),
                (Signature::Bits, Kind::Float | Kind::Complex) => false,
                (Signature::Same | Signature::Compare, Kind::Int | Kind::Float) => true,
                (Signature::Same, Kind::Bool) => !matches!(op, Sub | Div | FloorDiv | Mod | Rem | Neg | Pow),
                (Signature::Compare, Kind::Bool) => true,
                (Signature::Same, Kind::Complex) => matches!(op, Add | Sub | Mul | Div | Neg | Fma),
                (Signature::Compare, Kind::Complex) => matches!(op, Eq | Ne | Isnan | Isinf),
            };
            assert_eq!(has_meaning, expected, "{} {dtype}", op.name());
        }
    }
}

#[test]
fn operations_have_a_meaning_for_the_types_that_the_verifiers_take() {
    for &op in ScalarOp::ALL {
        for dtype in Dtype::ALL {
            assert_eq!(function(op, dtype).is_some(), op.is_defined_for(dtype), "{} of {dtype}", op.name());
        }
    }
}
