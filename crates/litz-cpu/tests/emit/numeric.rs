//! What scalar operations and conversions give, edge cases above all, on every instruction set.

use half::{bf16, f16};
use litz_ir::kernel::{Kernel, Op, Val};
use litz_ir::{Dtype, ScalarOp};

use crate::harness::*;

/// A scalar and a vector kernel for every x86 that this CPU can run.
fn every_way(inputs: &[Dtype], result: Dtype, op: &dyn Fn(&mut Build, &[Val]) -> Val) -> Vec<Compiled> {
    let kernels: [Kernel; 2] = [1, 16].map(|lanes| pointwise(inputs, result, lanes, op));
    kernels.iter().flat_map(Compiled::on_all).collect()
}

fn call(op: ScalarOp) -> impl Fn(&mut Build, &[Val]) -> Val {
    move |k, args| k.call(op, args)
}

/// All pairs.
fn pairs<T: Copy>(items: &[T]) -> (Vec<T>, Vec<T>) {
    items.iter().flat_map(|&a| items.iter().map(move |&b| (a, b))).unzip()
}

macro_rules! check_integer_operations {
    ($($name:ident: $ty:ty = $dtype:ident;)*) => {$(
        #[test]
        fn $name() {
            let floor = |a: $ty, b: $ty| {
                let (a, b) = (a as i128, b as i128);
                let quotient = a.div_euclid(b);
                // div_euclid rounds up for negative divisors.
                if b < 0 && a.rem_euclid(b) != 0 { quotient - 1 } else { quotient }
            };
            let power = |a: $ty, b: $ty| match b as i128 {
                exponent if exponent >= 0 => {
                    let (mut result, mut power, mut left) = (1 as $ty, a, exponent);
                    while left > 0 {
                        if left & 1 == 1 { result = result.wrapping_mul(power); }
                        power = power.wrapping_mul(power);
                        left >>= 1;
                    }
                    result
                }
                exponent => match a as i128 {
                    1 => 1,
                    -1 => if exponent % 2 == 0 { 1 } else { (0 as $ty).wrapping_sub(1) },
                    _ => 0,
                },
            };
            let shift = |a: $ty, b: $ty, left: bool| {
                let inside = (0..<$ty>::BITS as i128).contains(&(b as i128));
                match (inside, left) {
                    (true, true) => a << b,
                    (true, false) => a >> b,
                    (false, true) => 0,
                    #[allow(unused_comparisons)]
                    (false, false) => if a < 0 { (0 as $ty).wrapping_sub(1) } else { 0 },
                }
            };
            let operations: [(ScalarOp, &dyn Fn($ty, $ty) -> $ty); 15] = [
                (ScalarOp::Add, &|a, b| a.wrapping_add(b)),
                (ScalarOp::Sub, &|a, b| a.wrapping_sub(b)),
                (ScalarOp::Mul, &|a, b| a.wrapping_mul(b)),
                (ScalarOp::Div, &|a, b| if b == 0 { 0 } else { a.wrapping_div(b) }),
                (ScalarOp::Rem, &|a, b| if b == 0 { 0 } else { a.wrapping_rem(b) }),
                (ScalarOp::FloorDiv, &|a, b| if b == 0 { 0 } else { floor(a, b) as $ty }),
                (ScalarOp::Mod, &|a, b| if b == 0 { 0 } else { (a as i128 - floor(a, b) * b as i128) as $ty }),
                (ScalarOp::Max, &|a, b| a.max(b)),
                (ScalarOp::Min, &|a, b| a.min(b)),
                (ScalarOp::Pow, &power),
                (ScalarOp::And, &|a, b| a & b),
                (ScalarOp::Or, &|a, b| a | b),
                (ScalarOp::Xor, &|a, b| a ^ b),
                (ScalarOp::Shl, &|a, b| shift(a, b, true)),
                (ScalarOp::Shr, &|a, b| shift(a, b, false)),
            ];
            let extremes = [<$ty>::MIN, <$ty>::MIN + 1, <$ty>::MAX, <$ty>::MAX - 1];
            let small = [0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 63, 64, 100].map(|x| x as $ty);
            let negative = small.map(|x| (0 as $ty).wrapping_sub(x));
            let (mut x, mut y) = pairs(&[&extremes[..], &small, &negative].concat());
            for (op, expected) in operations {
                for kernel in every_way(&[Dtype::$dtype; 2], Dtype::$dtype, &call(op)) {
                    let mut z = vec![0 as $ty; x.len()];
                    kernel.run(&[z.len() as i64], &[param(&mut x), param(&mut y), param(&mut z)]);
                    for (at, &z) in z.iter().enumerate() {
                        assert_eq!(z, expected(x[at], y[at]), "{} {} {}", op.name(), x[at], y[at]);
                    }
                }
            }
            let comparisons: [(ScalarOp, &dyn Fn($ty, $ty) -> bool); 6] = [
                (ScalarOp::Eq, &|a, b| a == b),
                (ScalarOp::Ne, &|a, b| a != b),
                (ScalarOp::Lt, &|a, b| a < b),
                (ScalarOp::Le, &|a, b| a <= b),
                (ScalarOp::Gt, &|a, b| a > b),
                (ScalarOp::Ge, &|a, b| a >= b),
            ];
            for (op, expected) in comparisons {
                for kernel in every_way(&[Dtype::$dtype; 2], Dtype::Bool, &call(op)) {
                    let mut z = vec![7u8; x.len()];
                    kernel.run(&[z.len() as i64], &[param(&mut x), param(&mut y), param(&mut z)]);
                    for (at, &z) in z.iter().enumerate() {
                        assert_eq!(z, u8::from(expected(x[at], y[at])), "{} {} {}", op.name(), x[at], y[at]);
                    }
                }
            }
            let unary: [(ScalarOp, &dyn Fn($ty) -> $ty); 4] = [
                (ScalarOp::Neg, &|a| (0 as $ty).wrapping_sub(a)),
                #[allow(unused_comparisons)]
                (ScalarOp::Abs, &|a| if a < 0 { (0 as $ty).wrapping_sub(a) } else { a }),
                #[allow(unused_comparisons)]
                (ScalarOp::Sign, &|a| if a < 0 { (0 as $ty).wrapping_sub(1) } else { (a != 0) as $ty }),
                (ScalarOp::Not, &|a| !a),
            ];
            for (op, expected) in unary {
                for kernel in every_way(&[Dtype::$dtype], Dtype::$dtype, &call(op)) {
                    let mut z = vec![0 as $ty; x.len()];
                    kernel.run(&[z.len() as i64], &[param(&mut x), param(&mut z)]);
                    for (at, &z) in z.iter().enumerate() {
                        assert_eq!(z, expected(x[at]), "{} {}", op.name(), x[at]);
                    }
                }
            }
        }
    )*};
}

check_integer_operations! {
    operations_of_i8: i8 = I8;
    operations_of_u8: u8 = U8;
    operations_of_i16: i16 = I16;
    operations_of_i32: i32 = I32;
    operations_of_u32: u32 = U32;
    operations_of_i64: i64 = I64;
    operations_of_u64: u64 = U64;
}

#[test]
fn operations_of_bool() {
    let operations: [(ScalarOp, fn(bool, bool) -> bool); 12] = [
        (ScalarOp::Add, |a, b| a | b),
        (ScalarOp::Mul, |a, b| a & b),
        (ScalarOp::Max, |a, b| a | b),
        (ScalarOp::Min, |a, b| a & b),
        (ScalarOp::And, |a, b| a & b),
        (ScalarOp::Or, |a, b| a | b),
        (ScalarOp::Xor, |a, b| a ^ b),
        (ScalarOp::Eq, |a, b| a == b),
        (ScalarOp::Lt, |a, b| !a & b),
        (ScalarOp::Le, |a, b| !a | b),
        (ScalarOp::Gt, |a, b| a & !b),
        (ScalarOp::Ge, |a, b| a | !b),
    ];
    let (mut x, mut y) = pairs(&[0u8, 1]);
    for (op, expected) in operations {
        for kernel in every_way(&[Dtype::Bool; 2], Dtype::Bool, &call(op)) {
            let mut z = [9u8; 4];
            kernel.run(&[4], &[param(&mut x), param(&mut y), param(&mut z)]);
            let expected: Vec<u8> = (0..4).map(|at| u8::from(expected(x[at] == 1, y[at] == 1))).collect();
            assert_eq!(z[..], expected, "{}", op.name());
        }
    }
}

const FLOATS: [f32; 20] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3.0,
    -7.25,
    1e-20,
    -1e-40,
    1e10,
    -1e10,
    16777217.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
];

fn same(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

#[test]
fn operations_of_floats() {
    let remainder = |a: f32, b: f32| {
        let rest = a % b;
        if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
    };
    let floor_divide = |a: f32, b: f32| {
        if b == 0.0 {
            return a / b;
        }
        let rest = a % b;
        let mut quotient = (a - rest) / b;
        if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
            quotient -= 1.0;
        }
        if quotient == 0.0 {
            return 0f32.copysign(a / b);
        }
        let floor = quotient.floor();
        if quotient - floor > 0.5 { floor + 1.0 } else { floor }
    };
    let operations: [(ScalarOp, &dyn Fn(f32, f32) -> f32); 10] = [
        (ScalarOp::Add, &|a, b| a + b),
        (ScalarOp::Sub, &|a, b| a - b),
        (ScalarOp::Mul, &|a, b| a * b),
        (ScalarOp::Div, &|a, b| a / b),
        (ScalarOp::Rem, &|a, b| a % b),
        (ScalarOp::Mod, &remainder),
        (ScalarOp::FloorDiv, &floor_divide),
        (ScalarOp::Max, &|a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { a.max(b) }),
        (ScalarOp::Min, &|a, b| if a.is_nan() || b.is_nan() { f32::NAN } else { a.min(b) }),
        (ScalarOp::Copysign, &|a, b| a.copysign(b)),
    ];
    let (mut x, mut y) = pairs(&FLOATS);
    for (op, expected) in operations {
        for kernel in every_way(&[Dtype::F32; 2], Dtype::F32, &call(op)) {
            let mut z = vec![0.0f32; x.len()];
            kernel.run(&[z.len() as i64], &[param(&mut x), param(&mut y), param(&mut z)]);
            for (at, &z) in z.iter().enumerate() {
                let expected = expected(x[at], y[at]);
                assert!(same(z, expected), "{}({}, {}) = {z}, expected {expected}", op.name(), x[at], y[at]);
            }
        }
    }
    let comparisons: [(ScalarOp, fn(f32, f32) -> bool); 8] = [
        (ScalarOp::Eq, |a, b| a == b),
        (ScalarOp::Ne, |a, b| a != b),
        (ScalarOp::Lt, |a, b| a < b),
        (ScalarOp::Le, |a, b| a <= b),
        (ScalarOp::Gt, |a, b| a > b),
        (ScalarOp::Ge, |a, b| a >= b),
        (ScalarOp::Isnan, |a, _| a.is_nan()),
        (ScalarOp::Isinf, |a, _| a.is_infinite()),
    ];
    for (op, expected) in comparisons {
        let op_of = |k: &mut Build, args: &[Val]| k.call(op, &args[..op.arity()]);
        for kernel in every_way(&[Dtype::F32; 2], Dtype::Bool, &op_of) {
            let mut z = vec![7u8; x.len()];
            kernel.run(&[z.len() as i64], &[param(&mut x), param(&mut y), param(&mut z)]);
            for (at, &z) in z.iter().enumerate() {
                assert_eq!(z, u8::from(expected(x[at], y[at])), "{} {} {}", op.name(), x[at], y[at]);
            }
        }
    }
    let unary: [(ScalarOp, fn(f32) -> f32); 9] = [
        (ScalarOp::Neg, |a| -a),
        (ScalarOp::Abs, f32::abs),
        (ScalarOp::Sign, |a| {
            if a > 0.0 {
                1.0
            } else if a < 0.0 {
                -1.0
            } else {
                0.0
            }
        }),
        (ScalarOp::Sqrt, f32::sqrt),
        (ScalarOp::Floor, f32::floor),
        (ScalarOp::Ceil, f32::ceil),
        (ScalarOp::Round, f32::round_ties_even),
        (ScalarOp::Trunc, f32::trunc),
        (ScalarOp::Rsqrt, |a| 1.0 / a.sqrt()),
    ];
    for (op, expected) in unary {
        for kernel in every_way(&[Dtype::F32], Dtype::F32, &call(op)) {
            let mut z = vec![0.0f32; x.len()];
            kernel.run(&[z.len() as i64], &[param(&mut x), param(&mut z)]);
            for (at, &z) in z.iter().enumerate() {
                let expected = expected(x[at]);
                let is_close = same(z, expected) || (z - expected).abs() <= 2e-7 * expected.abs();
                assert!(is_close, "{}({}) = {z}, expected {expected}", op.name(), x[at]);
            }
        }
    }
}

/// Every function reaches code that computes it; accuracy is the business of the vector math.
#[test]
fn mathematical_functions() {
    let functions: [(ScalarOp, fn(f64) -> f64); 21] = [
        (ScalarOp::Exp, f64::exp),
        (ScalarOp::Exp2, f64::exp2),
        (ScalarOp::Expm1, f64::exp_m1),
        (ScalarOp::Log, f64::ln),
        (ScalarOp::Log2, f64::log2),
        (ScalarOp::Log10, f64::log10),
        (ScalarOp::Log1p, f64::ln_1p),
        (ScalarOp::Sin, f64::sin),
        (ScalarOp::Cos, f64::cos),
        (ScalarOp::Tan, f64::tan),
        (ScalarOp::Asin, f64::asin),
        (ScalarOp::Acos, f64::acos),
        (ScalarOp::Atan, f64::atan),
        (ScalarOp::Sinh, f64::sinh),
        (ScalarOp::Cosh, f64::cosh),
        (ScalarOp::Tanh, f64::tanh),
        (ScalarOp::Asinh, f64::asinh),
        (ScalarOp::Acosh, f64::acosh),
        (ScalarOp::Atanh, f64::atanh),
        (ScalarOp::Sqrt, f64::sqrt),
        (ScalarOp::Rsqrt, |x| 1.0 / x.sqrt()),
    ];
    for (op, expected) in functions {
        let mut x: Vec<f32> = (0..37).map(|i| i as f32 / 16.0 - 0.8).collect();
        let mut wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let expected: Vec<f32> = wide.iter().map(|&x| expected(x) as f32).collect();
        for lanes in [1, 8, 16] {
            let mut z = vec![0.0f32; 37];
            let kernel = Compiled::new(pointwise(&[Dtype::F32], Dtype::F32, lanes, &call(op)));
            kernel.run(&[37], &[param(&mut x), param(&mut z)]);
            assert_close(&z, &expected, 1e-6);
            let mut z = vec![0.0f64; 37];
            let kernel = Compiled::new(pointwise(&[Dtype::F64], Dtype::F64, lanes, &call(op)));
            kernel.run(&[37], &[param(&mut wide), param(&mut z)]);
            let z: Vec<f32> = z.iter().map(|&z| z as f32).collect();
            assert_close(&z, &expected, 1e-6);
        }
    }
}

/// Powers, with the special exponents, and a function that the runtime provides lane by lane.
#[test]
fn powers_and_routines() {
    for exponent in [-1.0, 0.5, 1.0, 2.0, 3.0, 2.37, -2.0] {
        let power = |k: &mut Build, args: &[Val]| {
            let exponent = k.float(exponent);
            k.call(ScalarOp::Pow, &[args[0], exponent])
        };
        for lanes in [1, 16] {
            let mut x: Vec<f32> = (1..40).map(|i| i as f32 / 8.0).collect();
            let mut z = vec![0.0f32; 39];
            Compiled::new(pointwise(&[Dtype::F32], Dtype::F32, lanes, &power))
                .run(&[39], &[param(&mut x), param(&mut z)]);
            let expected: Vec<f32> = x.iter().map(|&x| f64::from(x).powf(exponent) as f32).collect();
            assert_close(&z, &expected, 1e-6);
        }
    }
    let kernel = Compiled::new(pointwise(&[Dtype::F32; 2], Dtype::F32, 16, &call(ScalarOp::Nextafter)));
    let (mut x, mut y, mut z) = ([1.0f32; 20], [2.0f32; 20], [0.0f32; 20]);
    kernel.run(&[20], &[param(&mut x), param(&mut y), param(&mut z)]);
    assert_eq!(z, [1.0f32.next_up(); 20]);
}

fn converted<A: Clone, B: Clone>(from: Dtype, to: Dtype, x: &[A], zero: B) -> Vec<Vec<B>> {
    let compute = to.compute();
    let cast = |k: &mut Build, args: &[Val]| k.define(compute, Op::Cast(args[0]));
    let kernels = every_way(&[from], to, &cast);
    let run = |kernel: Compiled| {
        let (mut x, mut z) = (x.to_vec(), vec![zero.clone(); x.len()]);
        kernel.run(&[x.len() as i64], &[param(&mut x), param(&mut z)]);
        z
    };
    kernels.into_iter().map(run).collect()
}

macro_rules! check_casts {
    ($from:ty = $source:ident: $values:expr; $($to:ty = $target:ident: $cast:expr),*) => {$({
        let values: Vec<$from> = $values.to_vec();
        let cast: fn($from) -> $to = $cast;
        let expected: Vec<$to> = values.iter().map(|&x| cast(x)).collect();
        for found in converted(Dtype::$source, Dtype::$target, &values, 0 as $to) {
            assert_eq!(found, expected, "{values:?} from {} to {}", Dtype::$source, Dtype::$target);
        }
    })*};
}

#[test]
fn casts() {
    let floats =
        [0.0f32, -0.0, 0.5, 0.9, -0.9, 1.0, -1.0, 1.5, 2.5, -2.5, 100.0, -100.0, 127.4, 254.9, 65535.0, 3e4];
    check_casts!(f32 = F32: floats;
        i8 = I8: |x| x as i32 as i8, u8 = U8: |x| x as i32 as u8, i16 = I16: |x| x as i32 as i16,
        u16 = U16: |x| x as i32 as u16, i32 = I32: |x| x as i32, u32 = U32: |x| x as i64 as u32,
        i64 = I64: |x| x as i64, u64 = U64: |x| x as i64 as u64, f64 = F64: f64::from,
        u8 = Bool: |x| u8::from(x != 0.0));
    let big = [9.3e18f64, 1.8e19, 4e9, -4e9, 1.0, 9_223_372_036_854_775_808.0, 0.3, -5.7];
    check_casts!(f64 = F64: big; u64 = U64: |x| if x < 0.0 { x as i64 as u64 } else { x as u64 }, f32 = F32: |x| x as f32);
    check_casts!(i64 = I64: [0, 1, -1, i64::MIN, i64::MAX, 1 << 40, -300, 16777217];
        i8 = I8: |x| x as i8, u8 = U8: |x| x as u8, i32 = I32: |x| x as i32, u32 = U32: |x| x as u32,
        u64 = U64: |x| x as u64, f32 = F32: |x| x as f32, f64 = F64: |x| x as f64, u8 = Bool: |x| u8::from(x != 0));
    check_casts!(u64 = U64: [0, 1, u64::MAX, 1 << 63, 16777217];
        f32 = F32: |x| x as f32, f64 = F64: |x| x as f64, i64 = I64: |x| x as i64, i8 = I8: |x| x as i8);
    check_casts!(u8 = U8: [0, 1, 127, 128, 255];
        i8 = I8: |x| x as i8, i32 = I32: i32::from, u64 = U64: u64::from, f32 = F32: f32::from);
    check_casts!(i8 = I8: [0, 1, -1, -128, 127];
        u8 = U8: |x| x as u8, i64 = I64: i64::from, u32 = U32: |x| x as u32, f32 = F32: f32::from);
    check_casts!(u8 = Bool: [0, 1]; i32 = I32: i32::from, f32 = F32: f32::from, u8 = Bool: |x| x, i64 = I64: i64::from);
}

/// Floats that no integer of the type holds give something, and never a trap.
#[test]
fn casts_out_of_range_give_some_number() {
    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e30, -1e30];
    converted(Dtype::F32, Dtype::I32, &values, 0i32);
    converted(Dtype::F32, Dtype::I64, &values, 0i64);
    converted(Dtype::F32, Dtype::U64, &values, 0u64);
    let as_bool = converted(Dtype::F32, Dtype::Bool, &values, 9u8);
    assert!(as_bool.iter().flatten().all(|&x| x == 1));
}

fn hard_floats() -> Vec<f32> {
    let mut state = 1u32;
    let random = (0..3000).map(|_| {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        f32::from_bits(state)
    });
    let halves = (0..=u16::MAX).step_by(7).map(|bits| f16::from_bits(bits).to_f32());
    let ties = halves.flat_map(|x| [x, x * (1.0 + 1.0 / 2048.0), x.next_up(), x + x / 16.0]);
    ties.chain(random)
        .chain(FLOATS)
        .chain([65519.99, 65520.0, 464.0, 464.01, 479.9, 57344.0, 61440.0])
        .collect()
}

#[test]
fn halves_round_to_nearest_even() {
    let x = hard_floats();
    for found in converted(Dtype::F32, Dtype::F16, &x, 0u16) {
        for (x, bits) in x.iter().zip(found) {
            let (found, expected) = (f16::from_bits(bits), f16::from_f32(*x));
            assert!(
                found.to_bits() == expected.to_bits() || (found.is_nan() && x.is_nan()),
                "{x}: {found} {expected}"
            );
        }
    }
    for (at, found) in converted(Dtype::F32, Dtype::BF16, &x, 0u16).into_iter().enumerate() {
        for (x, bits) in x.iter().zip(found) {
            let (found, expected) = (bf16::from_bits(bits), bf16::from_f32(*x));
            let is_equal = found.to_bits() == expected.to_bits() || (found.is_nan() && x.is_nan());
            assert!(is_equal, "way {at}, {x}: {found} {expected}");
        }
    }
}

#[test]
fn halves_widen_exactly() {
    let all: Vec<u16> = (0..=u16::MAX).collect();
    for found in converted(Dtype::F16, Dtype::F32, &all, 0f32) {
        assert!(all.iter().zip(found).all(|(&bits, found)| same(found, f16::from_bits(bits).to_f32())));
    }
    for found in converted(Dtype::BF16, Dtype::F32, &all, 0f32) {
        assert!(all.iter().zip(found).all(|(&bits, found)| same(found, bf16::from_bits(bits).to_f32())));
    }
}

/// Value of an 8-bit float by its definition.
fn byte_float(bits: u8, mantissa_bits: i32, bias: i32, has_infinity: bool) -> f32 {
    let magnitude = i32::from(bits & 0x7f);
    let sign = if bits >= 0x80 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1));
    if has_infinity && exponent == 31 {
        return if mantissa == 0 { sign * f32::INFINITY } else { f32::NAN };
    }
    if !has_infinity && magnitude == 0x7f {
        return f32::NAN;
    }
    let fraction = mantissa as f32 / (1 << mantissa_bits) as f32;
    let (whole, exponent) = if exponent == 0 { (0.0, 1) } else { (1.0, exponent) };
    sign * (whole + fraction) * 2f32.powi(exponent - bias)
}

#[test]
fn bytes_of_float() {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    for (dtype, mantissa_bits, bias, largest) in
        [(Dtype::F8E4M3, 3, 7, 448.0), (Dtype::F8E5M2, 2, 15, 57344.0)]
    {
        let has_infinity = dtype == Dtype::F8E5M2;
        let value = |bits: u8| byte_float(bits, mantissa_bits, bias, has_infinity);
        for found in converted(dtype, Dtype::F32, &all, 0f32) {
            for (&bits, found) in all.iter().zip(found) {
                assert!(same(found, value(bits)), "{dtype} {bits:x}: {found}");
            }
        }
        let x = hard_floats();
        for found in converted(Dtype::F32, dtype, &x, 0u8) {
            for (&x, bits) in x.iter().zip(found) {
                let found = value(bits);
                assert_eq!(
                    found.is_sign_negative(),
                    x.is_sign_negative() && !found.is_nan() || found.is_sign_negative()
                );
                if x.is_nan() {
                    assert!(found.is_nan(), "{dtype} {x}: {found}");
                } else if x.abs() > largest {
                    // Half way between the largest number and what would follow it.
                    let expected = if has_infinity && x.abs() >= 61440.0 { f32::INFINITY } else { largest };
                    assert_eq!(found.abs(), expected, "{dtype} {x}");
                } else {
                    // No other value is nearer, and of two as near the even one is taken.
                    let distance = |bits: u8| (value(bits) - x).abs();
                    let nearest = all.iter().copied().filter(|&b| !value(b).is_nan());
                    let best = nearest.clone().map(distance).fold(f32::INFINITY, f32::min);
                    assert_eq!(distance(bits), best, "{dtype} {x}: {found}");
                    let ties = nearest.filter(|&b| distance(b) == best && value(b) != found).count();
                    assert!(ties == 0 || bits % 2 == 0, "{dtype} {x}: {found} is odd");
                }
            }
        }
    }
}

#[test]
fn rounding_and_bits() {
    let x = hard_floats();
    let round = |k: &mut Build, args: &[Val]| k.define(Dtype::F32, Op::Round(Dtype::F16, args[0]));
    for kernel in every_way(&[Dtype::F32], Dtype::F32, &round) {
        let (mut x, mut z) = (x.clone(), vec![0f32; x.len()]);
        kernel.run(&[x.len() as i64], &[param(&mut x), param(&mut z)]);
        assert!(x.iter().zip(z).all(|(&x, z)| same(z, f16::from_f32(x).to_f32())));
    }
    let bits = |k: &mut Build, args: &[Val]| k.define(Dtype::I32, Op::Bitcast(args[0]));
    for kernel in every_way(&[Dtype::F32], Dtype::I32, &bits) {
        let (mut x, mut z) = (x.clone(), vec![0i32; x.len()]);
        kernel.run(&[x.len() as i64], &[param(&mut x), param(&mut z)]);
        assert!(x.iter().zip(z).all(|(&x, z)| x.to_bits() == z as u32));
    }
}

/// Half types compute in f32 between load and store.
#[test]
fn halves_compute_in_single_precision() {
    let op = |k: &mut Build, args: &[Val]| {
        let sum = k.call(ScalarOp::Add, &[args[0], args[1]]);
        k.call(ScalarOp::Sub, &[sum, args[0]])
    };
    for kernel in every_way(&[Dtype::BF16; 2], Dtype::BF16, &op) {
        let mut x = [bf16::from_f32(256.0); 20];
        let mut y = [bf16::from_f32(0.5); 20];
        let mut z = [bf16::ZERO; 20];
        kernel.run(&[20], &[param(&mut x), param(&mut y), param(&mut z)]);
        assert_eq!(z, y);
    }
}

/// Of equal operands the first, as PyTorch's `relu` and `clamp` keep the sign of a zero; NaN in either place wins.
/// Expected values: PyTorch.
#[test]
fn extremes_of_zeros_and_nan() {
    let (nan, zero) = (f32::NAN, 0.0f32);
    let a = [-zero, zero, -zero, nan, 1.0, -1.0, nan, -zero];
    let b = [zero, -zero, -1.0, 1.0, nan, -zero, nan, -zero];
    let greater = [-zero, zero, -zero, nan, nan, -zero, nan, -zero];
    let smaller = [-zero, zero, -1.0, nan, nan, -1.0, nan, -zero];
    for lanes in [1, 8] {
        for (op, expected) in [(ScalarOp::Max, greater), (ScalarOp::Min, smaller)] {
            let mut k = Build::new();
            let x = k.read("x", Dtype::F32, "8");
            let y = k.read("y", Dtype::F32, "8");
            let z = k.write("z", Dtype::F32, "8");
            k.vector("j", "8", [lanes, 1], |k| {
                let (a, b) = (k.load(x, "j"), k.load(y, "j"));
                let c = k.call(op, &[a, b]);
                k.store(z, "j", c);
            });
            let (mut x, mut y, mut z) = (a, b, [7.0f32; 8]);
            Compiled::new(k.finish()).run(&[], &[param(&mut x), param(&mut y), param(&mut z)]);
            let key = |it: &f32| if it.is_nan() { u32::MAX } else { it.to_bits() };
            assert_eq!(z.each_ref().map(key), expected.each_ref().map(key), "{}, {lanes} lanes", op.name());
        }
    }
}
