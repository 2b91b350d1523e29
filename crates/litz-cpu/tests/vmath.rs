//! Vector math functions, compiled and run against the C library's extended precision.
#![cfg(target_arch = "x86_64")]

use std::ffi::c_void;

use litz_llvm::llvm::{assembly, compile};
use litz_llvm::vmath::{Elem, MathFn, ULP, define, inline, rough};
use litz_llvm::{Isa, Processor};
use litz_runtime::object::LoadedObject;
use litz_runtime::symbols::c_library_symbol;

/// The references take and return `long double`, which only the code that LLVM makes here can call.
macro_rules! references {
    ($($name:literal $symbol:ident),* $(,)?) => {
        unsafe extern "C" { $(fn $symbol();)* }

        fn reference_symbol(name: &str) -> Option<usize> {
            match name {
                $(concat!($name, "l") => Some($symbol as *const () as usize),)*
                _ => c_library_symbol(name),
            }
        }
    };
}

references! {
    "exp" expl, "exp2" exp2l, "expm1" expm1l, "log" logl, "log2" log2l, "log10" log10l, "log1p" log1pl,
    "tanh" tanhl, "erf" erfl, "erfc" erfcl, "sin" sinl, "cos" cosl, "tan" tanl, "pow" powl, "asin" asinl,
    "acos" acosl, "atan" atanl, "atan2" atan2l, "sinh" sinhl, "cosh" coshl, "asinh" asinhl, "acosh" acoshl,
    "atanh" atanhl,
}

/// `kernel(x, y, result, count)`, and for a reference `kernel(x, y, [high, low], count)`.
type Kernel = unsafe extern "C" fn(*const c_void, *const c_void, *mut c_void, usize);

struct Compiled {
    _object: LoadedObject,
    kernel: Kernel,
}

impl Compiled {
    fn new(ir: &str, target: &Processor) -> Compiled {
        let bytes = compile(ir, target).unwrap_or_else(|error| panic!("{error}\n{ir}"));
        let object = LoadedObject::load(&bytes, &reference_symbol).expect("loads");
        let kernel = object.get("kernel").expect("defined");
        // SAFETY: every module below defines its kernel with this signature.
        let kernel = unsafe { std::mem::transmute::<*const u8, Kernel>(kernel) };
        Compiled { _object: object, kernel }
    }

    /// `x` and `y` have equal lengths, a multiple of the lanes.
    fn run<T: Copy + Default>(&self, x: &[T], y: &[T], results_each: usize) -> Vec<T> {
        assert_eq!(x.len(), y.len());
        let mut results = vec![T::default(); x.len() * results_each];
        // SAFETY: the kernel reads `len` elements of each operand and writes as many results.
        unsafe { (self.kernel)(x.as_ptr().cast(), y.as_ptr().cast(), results.as_mut_ptr().cast(), x.len()) };
        results
    }
}

/// A loop over arrays: `step` elements at a time, `body` computing `%r` of type `result_ty` from `%x` and `%y`.
fn loop_ir(ty: &str, step: u32, element: &str, body: &str, result_ty: &str) -> String {
    format!(
        "define void @kernel(ptr %px, ptr %py, ptr %pr, i64 %n) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %qx = getelementptr {element}, ptr %px, i64 %i
  %qy = getelementptr {element}, ptr %py, i64 %i
  %qr = getelementptr {result_ty}, ptr %pr, i64 %i
  %x = load {ty}, ptr %qx, align 4
  %y = load {ty}, ptr %qy, align 4
{body}
  %next = add i64 %i, {step}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}\n"
    )
}

fn element(elem: Elem) -> &'static str {
    match elem {
        Elem::F32 => "float",
        Elem::F64 => "double",
    }
}

fn vector(elem: Elem, lanes: u32) -> String {
    if lanes == 1 { element(elem).into() } else { format!("<{lanes} x {}>", element(elem)) }
}

/// A kernel that calls the defined function.
fn function_ir(op: MathFn, elem: Elem, lanes: u32, isa: Isa) -> String {
    let (mut module, ty) = (String::new(), vector(elem, lanes));
    let name = define(op, elem, lanes, isa, &mut module);
    let once = module.len();
    assert_eq!(define(op, elem, lanes, isa, &mut module), name);
    assert_eq!(module.len(), once, "defined once");
    let operands = if op.arity() == 2 { format!("{ty} %x, {ty} %y") } else { format!("{ty} %x") };
    let body = format!("  %r = call fastcc {ty} {name}({operands})\n  store {ty} %r, ptr %qr, align 4");
    module + &loop_ir(&ty, lanes, element(elem), &body, element(elem))
}

/// A kernel that holds the instructions themselves, for functions that can be had so.
fn inline_ir(op: MathFn, elem: Elem, lanes: u32, isa: Isa) -> Option<String> {
    let (mut lines, mut count, ty) = (Vec::new(), 0, vector(elem, lanes));
    let mut fresh = || {
        count += 1;
        format!("%v{count}")
    };
    let result = inline(op, elem, lanes, isa, "%x", &mut fresh, &mut lines)?;
    let body = format!("{}  store {ty} {result}, ptr %qr, align 4", lines.concat());
    Some(loop_ir(&ty, lanes, element(elem), &body, element(elem)))
}

/// The low part of a reference result is given times this, so that it keeps its bits beside a denormal number.
const LOW_UNIT: f64 = (1u64 << 50) as f64;

/// Gives for each point the extended result as the sum `high + low / LOW_UNIT` of doubles.
fn reference_ir(op: MathFn) -> String {
    let call = match op {
        MathFn::Rsqrt => "  %s = call x86_fp80 @llvm.sqrt.f80(x86_fp80 %lx)
  %one = fpext double 1.0 to x86_fp80
  %l = fdiv x86_fp80 %one, %s"
            .to_string(),
        _ => {
            let operands = ["x86_fp80 %lx", "x86_fp80 %ly"][..op.arity()].join(", ");
            format!("  %l = call x86_fp80 @{}l({operands})", op.name())
        }
    };
    let body = format!(
        "  %lx = fpext double %x to x86_fp80
  %ly = fpext double %y to x86_fp80
{call}
  %high = fptrunc x86_fp80 %l to double
  %lhigh = fpext double %high to x86_fp80
  %rest = fsub x86_fp80 %l, %lhigh
  %unit = fpext double {LOW_UNIT:e} to x86_fp80
  %scaled = fmul x86_fp80 %rest, %unit
  %low = fptrunc x86_fp80 %scaled to double
  store double %high, ptr %qr
  %ql = getelementptr double, ptr %qr, i64 1
  store double %low, ptr %ql"
    );
    let parameters = vec!["x86_fp80"; op.arity()].join(", ");
    let declaration = match op {
        MathFn::Rsqrt => String::new(),
        _ => format!("declare x86_fp80 @{}l({parameters})\n", op.name()),
    };
    declaration + &loop_ir("double", 1, "double", &body, "[2 x double]")
}

/// Numbers in `0..2^64`, the same at every run (SplitMix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In [-limit, limit].
    fn within(&mut self, limit: f64) -> f64 {
        (self.bits() as f64 / u64::MAX as f64 * 2.0 - 1.0) * limit
    }
}

/// What differs between the formats that are tested.
trait Number: Copy + Default {
    const ELEM: Elem;
    const MANTISSA: u32;
    const EXPONENTS: u64;
    const MIN_EXPONENT: i32;
    fn of_bits(bits: u64) -> Self;
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Number for f32 {
    const ELEM: Elem = Elem::F32;
    const MANTISSA: u32 = 23;
    const EXPONENTS: u64 = 256;
    const MIN_EXPONENT: i32 = -126;
    fn of_bits(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }
    fn of(value: f64) -> f32 {
        value as f32
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Number for f64 {
    const ELEM: Elem = Elem::F64;
    const MANTISSA: u32 = 52;
    const EXPONENTS: u64 = 2048;
    const MIN_EXPONENT: i32 = -1022;
    fn of_bits(bits: u64) -> f64 {
        f64::from_bits(bits)
    }
    fn of(value: f64) -> f64 {
        value
    }
    fn wide(self) -> f64 {
        self
    }
}

/// Every exponent and both signs (so denormal numbers, infinities and NaNs, too) with the extreme and
/// some random significands; then more where functions have their features.
fn points<T: Number>(random: &mut Random) -> Vec<T> {
    let mut points = Vec::new();
    let mask = (1 << T::MANTISSA) - 1;
    let samples = 60_000 / T::EXPONENTS;
    for exponent in 0..T::EXPONENTS {
        for sign in 0..2 {
            let top = (sign * T::EXPONENTS + exponent) << T::MANTISSA;
            let extremes = [0, 1, mask, mask >> 1, 1 << (T::MANTISSA - 1)];
            points.extend(extremes.map(|low| T::of_bits(top | low)));
            points.extend((0..samples).map(|_| T::of_bits(top | (random.bits() & mask))));
        }
    }
    for limit in [2.0, 12.0, 120.0, 760.0, 1.2e4] {
        points.extend((0..20_000).map(|_| T::of(random.within(limit))));
    }
    // Around 1, where logarithms vanish, and around multiples of a right angle, where others do.
    points.extend((0..20_000).map(|_| T::of(1.0 + random.within(1.0).powi(9))));
    points.extend((0..6000).map(|n| T::of(f64::from(n - 3000) * std::f64::consts::FRAC_PI_2)));
    points.extend((-2000..2000).map(|n| T::of(f64::from(n) * 0.5)));
    points.resize(points.len().next_multiple_of(64), T::default());
    points
}

/// Second operands: for a part of the points one of the other points, for others small numbers,
/// halves and such as keep the power finite.
fn second_operands<T: Number>(points: &[T], random: &mut Random) -> Vec<T> {
    let pick = |random: &mut Random, x: &T| match random.bits() % 8 {
        0 | 1 => points[random.bits() as usize % points.len()],
        2 => T::of((random.within(20.0)).round()),
        3 => T::of((random.within(20.0)).round() / 2.0),
        4 => T::of(random.within(4.0)),
        5 => T::of(x.wide() * (1.0 + random.within(0.5))),
        _ => T::of(random.within(700.0) / x.wide().abs().ln()),
    };
    points.iter().map(|x| pick(random, x)).collect()
}

/// The error in units in the last place of the exact result `high + low / LOW_UNIT`; infinite when the
/// kind or the sign is wrong.
fn error_in_ulp<T: Number>(got: f64, high: f64, low: f64) -> f64 {
    if got.is_nan() || high.is_nan() {
        return if got.is_nan() && high.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got.is_sign_negative() != high.is_sign_negative() {
        return f64::INFINITY;
    }
    // Infinity, and all that rounds to it, stands for the first number that the format no longer has.
    let beyond = 2f64.powi(128);
    let is_single = T::ELEM == Elem::F32;
    let (got, high, low) = match is_single {
        true if high.abs() >= beyond => (got.clamp(-beyond, beyond), beyond.copysign(high), 0.0),
        true => (got.clamp(-beyond, beyond), high, low),
        false => (got, high, low),
    };
    if got.is_infinite() || high.is_infinite() {
        return if got == high { 0.0 } else { f64::INFINITY };
    }
    let exponent = exponent(high).max(T::MIN_EXPONENT) - T::MANTISSA as i32;
    let error = ((got - high) * LOW_UNIT - low).abs();
    // In two steps, since the unit of a denormal number has no inverse.
    error / 2f64.powi(exponent / 2) / 2f64.powi(exponent - exponent / 2) / LOW_UNIT
}

/// The exponent of a normal number; for others one that is low enough.
fn exponent(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

fn check_bounds<T: Number>(target: &Processor, lanes: u32) {
    let mut random = Random(1);
    let x = points::<T>(&mut random);
    let y = second_operands(&x, &mut random);
    let mut failures = Vec::new();
    for &(op, elem, bound) in ULP.iter().filter(|entry| entry.1 == T::ELEM) {
        let results = Compiled::new(&function_ir(op, elem, lanes, target.isa), target).run(&x, &y, 1);
        let wide = |points: &[T]| points.iter().map(|it| it.wide()).collect::<Vec<_>>();
        let reference = Compiled::new(&reference_ir(op), target);
        let exact = run_reference(&reference, &wide(&x), &wide(&y));
        let (mut worst, mut at) = (0.0, 0);
        for (index, result) in results.iter().enumerate() {
            let error = error_in_ulp::<T>(result.wide(), exact[index].0, exact[index].1);
            if error > worst {
                (worst, at) = (error, index);
            }
        }
        let (x, y, got) = (x[at].wide(), y[at].wide(), results[at].wide());
        let second = if op.arity() == 2 { format!(", {y:e}") } else { String::new() };
        let line = format!(
            "{:6} {elem:?} {worst:8.3} ulp (bound {bound}) at ({x:e}{second}): got {got:e}, exact {:e}",
            op.name(),
            exact[at].0
        );
        println!("{line}");
        if worst > bound {
            failures.push(line);
        }
    }
    assert!(failures.is_empty(), "errors beyond their bounds:\n{}", failures.join("\n"));
}

fn run_reference(reference: &Compiled, x: &[f64], y: &[f64]) -> Vec<(f64, f64)> {
    let sums = reference.run(x, y, 2);
    sums.chunks_exact(2).map(|sum| (sum[0], sum[1])).collect()
}

#[test]
fn single_precision_keeps_its_bounds() {
    check_bounds::<f32>(&Processor::host(), 16);
}

#[test]
fn double_precision_keeps_its_bounds() {
    check_bounds::<f64>(&Processor::host(), 8);
}

/// NaN is NaN of any kind; everything else is compared by its bits.
fn same<T: Number>(a: &[T], b: &[T]) -> bool {
    let key = |it: &T| if it.wide().is_nan() { u64::MAX } else { it.wide().to_bits() };
    a.len() == b.len() && a.iter().map(key).eq(b.iter().map(key))
}

fn check_same_everywhere<T: Number>() {
    let mut random = Random(2);
    let x: Vec<T> = points(&mut random).into_iter().step_by(16).collect();
    let x = &x[..x.len() / 64 * 64];
    let y = second_operands(x, &mut random);
    let host = Processor::host();
    let mut cases: Vec<_> = [1, 2, 4, 16].map(|lanes| (lanes, host.clone())).into();
    cases.extend([4, 16].map(|lanes| (lanes, Processor::baseline())));
    if matches!(host.isa, Isa::Avx2 | Isa::Avx512) {
        cases.extend([8, 16].map(|lanes| (lanes, Processor::avx2())));
    }
    for &(op, elem, _) in ULP.iter().filter(|entry| entry.1 == T::ELEM) {
        let expected = Compiled::new(&function_ir(op, elem, 8, host.isa), &host).run(x, &y, 1);
        for &(lanes, ref target) in &cases {
            let results = Compiled::new(&function_ir(op, elem, lanes, target.isa), target).run(x, &y, 1);
            assert!(same(&results, &expected), "{op:?} {elem:?}, {lanes} lanes, {:?}", target.isa);
            if let Some(ir) = inline_ir(op, elem, lanes, target.isa) {
                let results = Compiled::new(&ir, target).run(x, &y, 1);
                assert!(same(&results, &expected), "inline {op:?} {elem:?}, {lanes} lanes, {:?}", target.isa);
            }
        }
    }
}

#[test]
fn every_width_and_cpu_gives_the_same_bits() {
    check_same_everywhere::<f32>();
    check_same_everywhere::<f64>();
}

#[test]
fn every_function_compiles_for_every_target() {
    for target in [Processor::avx512(), Processor::avx2(), Processor::baseline(), Processor::aarch64()] {
        let mut module = String::new();
        for &(op, elem, _) in ULP {
            for lanes in [1, 2, 4, 8, 16] {
                define(op, elem, lanes, target.isa, &mut module);
            }
        }
        // Private functions that nobody calls would give no code.
        let module = module.replace("define private", "define");
        let text = assembly(&module, &target).expect("compiles");
        assert!(text.contains("lz.exp.v16f32"));
    }
}

#[test]
fn angles_beyond_reduction_are_those_of_the_c_library() {
    let x: Vec<f32> = (0..64).map(|n| if n % 3 == 0 { 1e5 * n as f32 + 7.0 } else { n as f32 }).collect();
    let host = Processor::host();
    let results = Compiled::new(&function_ir(MathFn::Sin, Elem::F32, 16, host.isa), &host).run(&x, &x, 1);
    for (x, result) in x.iter().zip(results) {
        let exact = f64::from(*x).sin();
        assert!(
            (f64::from(result) - exact).abs() <= exact.abs() * 1.2e-7,
            "sin({x}) = {result}, not {exact}"
        );
    }
}

/// What a GPU's instructions approximate, exactly.
const EXACT: &str = "
declare float @llvm.exp2.f32(float)
declare float @llvm.sqrt.f32(float)
define private float @ex2(float %x) { %r = call float @llvm.exp2.f32(float %x) ret float %r }
define private float @rcp(float %x) { %r = fdiv float 1.0, %x ret float %r }
define private float @rsqrt(float %x) { %s = call float @llvm.sqrt.f32(float %x) %r = fdiv float 1.0, %s ret float %r }
";

/// The approximations of GPUs, but for the errors of the instructions, which are smaller than 2^-21: formulas and coefficients.
#[test]
fn approximations_are_much_better_than_half_types() {
    let bounds: [(MathFn, fn(f64) -> f64, [f32; 2]); 5] = [
        (MathFn::Exp, f64::exp, [-20.0, 20.0]),
        (MathFn::Exp2, f64::exp2, [-30.0, 30.0]),
        (MathFn::Erf, |x| exact_erf(x), [-5.0, 5.0]),
        (MathFn::Tanh, f64::tanh, [-12.0, 12.0]),
        (MathFn::Rsqrt, |x| 1.0 / x.sqrt(), [1e-3, 1e6]),
    ];
    for (op, exact, [low, high]) in bounds {
        let (mut lines, mut count) = (Vec::new(), 0);
        let mut fresh = || {
            count += 1;
            format!("%t{count}")
        };
        let name = rough(op, "%x", &mut fresh, &mut lines).expect("there is an approximation");
        let body = format!("{}  store float {name}, ptr %qr, align 4", lines.concat());
        let body =
            body.replace("llvm.nvvm.ex2.approx.ftz.f", "ex2").replace("llvm.nvvm.rcp.approx.ftz.f", "rcp");
        let body = body.replace("llvm.nvvm.rsqrt.approx.f", "rsqrt");
        let ir = EXACT.to_owned() + &loop_ir("float", 1, "float", &body, "float");
        let steps = 100_000;
        let mut x: Vec<f32> = (0..steps).map(|at| low + (high - low) * at as f32 / steps as f32).collect();
        x.extend([1e-3, -1e-3, 1e-7, -1e-7, 0.0624, 0.0626].into_iter().filter(|x| *x >= low));
        let results = Compiled::new(&ir, &Processor::host()).run(&x, &x, 1);
        for (x, result) in x.iter().zip(results) {
            let expected = exact(f64::from(*x));
            let error = (f64::from(result) - expected).abs();
            assert!(
                error <= expected.abs() * 2f64.powi(-17),
                "{} of {x}: {result}, expected {expected}",
                op.name()
            );
        }
        let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0];
        let results = Compiled::new(&ir, &Processor::host()).run(&special, &special, 1);
        for (x, result) in special.iter().zip(results) {
            let expected = exact(f64::from(*x)) as f32;
            assert!(
                result == expected || result.is_nan() && expected.is_nan(),
                "{} of {x}: {result}",
                op.name()
            );
        }
    }
}

/// The error function, by its series and its continued fraction.
fn exact_erf(x: f64) -> f64 {
    let magnitude = x.abs();
    if magnitude.is_nan() || magnitude > 6.0 {
        return if magnitude.is_nan() { magnitude } else { x.signum() };
    }
    let (mut term, mut sum) = (magnitude, magnitude);
    for n in 1..200 {
        term *= -magnitude * magnitude / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    let value = if magnitude < 3.0 {
        std::f64::consts::FRAC_2_SQRT_PI * sum
    } else {
        let fraction = (1..120).rev().fold(magnitude, |rest, n| magnitude + f64::from(n) / 2.0 / rest);
        1.0 - (-magnitude * magnitude).exp() / fraction / std::f64::consts::PI.sqrt()
    };
    value * x.signum()
}
