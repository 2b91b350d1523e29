//! Tries the functions that GPUs have in the place of the C library's: compiled for this CPU, against the C library in extended precision
//! and against the runtime's routines.
#![cfg(target_arch = "x86_64")]

use std::collections::BTreeSet;

use litz_ir::target::GpuIsa;
use litz_llvm::llvm::{assembly, compile};
use litz_llvm::vmath::{self, library};
use litz_llvm::{Processor, emit};
use litz_runtime::object::LoadedObject;
use litz_runtime::routines::special;
use litz_runtime::symbols::c_library_symbol;

/// References that take and return `long double`, which only the code that LLVM makes here can call.
macro_rules! references {
    ($($symbol:ident),* $(,)?) => {
        unsafe extern "C" { $(fn $symbol();)* }

        fn symbol(name: &str) -> Option<usize> {
            match name {
                $(stringify!($symbol) => Some($symbol as *const () as usize),)*
                _ => c_library_symbol(name).or_else(|| special::symbol(name)),
            }
        }
    };
}

references! {
    sinl, cosl, tanl, asinl, acosl, atanl, atan2l, powl, sinhl, coshl, asinhl, acoshl, atanhl, erfl, erfcl, lgammal, fmodl, nextafter,
    nextafterf,
}

/// What a function is compared with.
#[derive(Clone, Copy, PartialEq)]
enum Reference {
    /// A function of C of `long double`.
    Extended(&'static str),
    /// A function of the same type.
    Same(&'static str),
}

struct Case {
    name: &'static str,
    reference: Reference,
    /// Bound of the error in units in the last place.
    bound: f64,
    /// Results below these, for negative and for other points, are compared as if they had this magnitude: near zeros of a function that
    /// are not numbers.
    least: [f64; 2],
}

const fn case(name: &'static str, extended: &'static str, bound: f64) -> Case {
    Case { name, reference: Reference::Extended(extended), bound, least: [0.0; 2] }
}

const CASES: &[Case] = &[
    case("fmodf", "fmodl", 0.0),
    case("fmod", "fmodl", 0.0),
    Case { name: "nextafterf", reference: Reference::Same("nextafterf"), bound: 0.0, least: [0.0; 2] },
    Case { name: "nextafter", reference: Reference::Same("nextafter"), bound: 0.0, least: [0.0; 2] },
    case("sinf", "sinl", 0.51),
    case("cosf", "cosl", 0.51),
    case("tanf", "tanl", 0.51),
    case("sin", "sinl", 0.9),
    case("cos", "cosl", 0.9),
    case("tan", "tanl", 1.1),
    case("asin", "asinl", 0.7),
    case("acos", "acosl", 0.7),
    case("atan", "atanl", 0.7),
    case("atan2", "atan2l", 0.75),
    case("pow", "powl", 0.76),
    case("sinh", "sinhl", 0.7),
    case("cosh", "coshl", 0.7),
    case("asinh", "asinhl", 0.7),
    case("acosh", "acoshl", 0.7),
    case("atanh", "atanhl", 0.7),
    case("erf", "erfl", 1.2),
    case("erfc", "erfcl", 3.5),
    Case { name: "lz_erfinv_f32", reference: Reference::Same("lz_erfinv_f32"), bound: 1.0, least: [0.0; 2] },
    Case { name: "lz_erfinv_f64", reference: Reference::Same("lz_erfinv_f64"), bound: 4.0, least: [0.0; 2] },
    Case { name: "lgammaf", reference: Reference::Extended("lgammal"), bound: 0.51, least: [1e-8, 0.0] },
    Case { name: "lgamma", reference: Reference::Extended("lgammal"), bound: 4.0, least: [0.1, 0.0] },
    Case {
        name: "lz_digamma_f32",
        reference: Reference::Same("lz_digamma_f32"),
        bound: 1.0,
        least: [1e-6; 2],
    },
    Case {
        name: "lz_digamma_f64",
        reference: Reference::Same("lz_digamma_f64"),
        bound: 4.0,
        least: [16.0, 1.0],
    },
];

/// Takes points and gives a function's results, those of the reference, and how far they are from each other, times [`UNIT`].
type Kernel = unsafe extern "C" fn(*const f64, *const f64, *mut [f64; 3], usize);

/// Differences are scaled so that those beside denormal numbers keep their bits.
const UNIT: f64 = (1u64 << 50) as f64;

fn is_single(name: &str) -> bool {
    name.ends_with("_f32") || matches!(name, "fmodf" | "nextafterf" | "sinf" | "cosf" | "tanf" | "lgammaf")
}

fn arity(name: &str) -> usize {
    if ["fmod", "nextafter", "pow", "atan2"].iter().any(|it| name.starts_with(it)) { 2 } else { 1 }
}

fn joined(texts: BTreeSet<String>) -> String {
    texts.into_iter().collect::<Vec<_>>().join("\n") + "\n"
}

/// Calls the function, and the reference by another name than the function's own.
fn kernel_ir(case: &Case) -> String {
    let ty = if is_single(case.name) { "float" } else { "double" };
    let list = |ty: &str, names: [&str; 2]| {
        names[..arity(case.name)].iter().map(|it| format!("{ty} {it}")).collect::<Vec<_>>().join(", ")
    };
    let types = |ty: &str| vec![ty; arity(case.name)].join(", ");
    let narrow = |name: &str| match ty {
        "float" => format!("  %{name}a = fptrunc double %{name} to float\n"),
        _ => format!("  %{name}a = fadd double %{name}, -0.0\n"),
    };
    let widen = |from: &str, to: &str| match ty {
        "float" => format!("  {to} = fpext float {from} to double\n"),
        _ => format!("  {to} = fadd double {from}, -0.0\n"),
    };
    let (declaration, reference) = match case.reference {
        Reference::Extended(name) => (
            format!("declare x86_fp80 @{name}({})", types("x86_fp80")),
            format!("  %l = call x86_fp80 @{name}({})\n", list("x86_fp80", ["%lx", "%ly"])),
        ),
        Reference::Same(_) => (
            format!("declare {ty} @reference({})", types(ty)),
            format!(
                "  %s = call {ty} @reference({})\n  %l = fpext {ty} %s to x86_fp80\n",
                list(ty, ["%xa", "%ya"])
            ),
        ),
    };
    let definition = joined(library::definition(case.name).expect("defined"));
    format!(
        "{definition}{declaration}
define void @kernel(ptr %px, ptr %py, ptr %pr, i64 %n) nounwind {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %qx = getelementptr double, ptr %px, i64 %i
  %qy = getelementptr double, ptr %py, i64 %i
  %x = load double, ptr %qx
  %y = load double, ptr %qy
{}{}  %lx = fpext double %x to x86_fp80
  %ly = fpext double %y to x86_fp80
  %r = call {ty} @{}({})
{}{reference}  %high = fptrunc x86_fp80 %l to double
  %lr = fpext double %w to x86_fp80
  %rest = fsub x86_fp80 %lr, %l
  %unit = fpext double {UNIT:e} to x86_fp80
  %scaled = fmul x86_fp80 %rest, %unit
  %low = fptrunc x86_fp80 %scaled to double
  %q0 = getelementptr [3 x double], ptr %pr, i64 %i
  %q1 = getelementptr double, ptr %q0, i64 1
  %q2 = getelementptr double, ptr %q0, i64 2
  store double %w, ptr %q0
  store double %high, ptr %q1
  store double %low, ptr %q2
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}}\n",
        narrow("x"),
        narrow("y"),
        case.name,
        list(ty, ["%xa", "%ya"]),
        widen("%r", "%w"),
    )
}

/// For each point the result, the reference's and their difference times [`UNIT`].
fn run(case: &Case, x: &[f64], y: &[f64]) -> Vec<[f64; 3]> {
    let ir = kernel_ir(case);
    let bytes =
        compile(&ir, &Processor::host()).unwrap_or_else(|error| panic!("{}: {error}\n{ir}", case.name));
    let resolve = |name: &str| match (name, case.reference) {
        ("reference", Reference::Same(name)) => symbol(name),
        _ => symbol(name),
    };
    let object = LoadedObject::load(&bytes, &resolve).expect("loads");
    let kernel = object.get("kernel").expect("defined");
    // SAFETY: the module defines its kernel with this signature.
    let kernel = unsafe { std::mem::transmute::<*const u8, Kernel>(kernel) };
    let mut results = vec![[0.0; 3]; x.len()];
    // SAFETY: the kernel reads so many elements of each operand and writes as many results.
    unsafe { kernel(x.as_ptr(), y.as_ptr(), results.as_mut_ptr(), x.len()) };
    results
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

/// Where functions have their features.
const SPECIAL: [f64; 26] = [
    0.0,
    1.0,
    f64::INFINITY,
    f64::NAN,
    f64::MIN_POSITIVE,
    5e-324,
    f64::MAX,
    f32::MAX as f64,
    f32::MIN_POSITIVE as f64,
    1e-45,
    0.5,
    1.5,
    2.0,
    2.5,
    3.0,
    4.0,
    10.0,
    1e22,
    9_007_199_254_740_991.0,
    9_007_199_254_740_993.0,
    1.0 - f64::EPSILON / 2.0,
    1.0 + f64::EPSILON,
    16_777_215.0,
    1e300,
    1e-300,
    // The multiple of a right angle that a double is nearest to.
    5.319_372_648_326_541e255,
];

/// Every exponent and both signs with the extreme and some random significands; then more where functions have their features.
fn points(random: &mut Random, single: bool) -> Vec<f64> {
    let mut points = Vec::new();
    let (mantissa, exponents) = if single { (23, 256) } else { (52, 2048u64) };
    let of_bits = |bits: u64| match single {
        true => f64::from(f32::from_bits(bits as u32)),
        false => f64::from_bits(bits),
    };
    let mask = (1u64 << mantissa) - 1;
    for top in 0..2 * exponents {
        let top = top << mantissa;
        points.extend([0, 1, mask, mask >> 1, 1 << (mantissa - 1)].map(|low| of_bits(top | low)));
        points.extend((0..100_000 / exponents).map(|_| of_bits(top | (random.bits() & mask))));
    }
    for limit in [1.0, 3.0, 12.0, 120.0, 760.0, 1e9] {
        points.extend((0..60_000).map(|_| random.within(limit)));
    }
    points.extend((0..40_000).map(|_| 1.0 + random.within(1.0).powi(9)));
    points.extend((0..20_000).map(|_| 2.0 + random.within(1.0).powi(9)));
    points.extend((0..20_000).map(|_| random.within(200.0).round() + random.within(1.0).powi(9)));
    points.extend((0..20_000).map(|n| f64::from(n - 10_000) * std::f64::consts::FRAC_PI_2));
    points.extend((0..1000).map(|n| std::f64::consts::FRAC_PI_2 * 2f64.powi(n)));
    points.extend((-2000..2000).map(|n| f64::from(n) * 0.5));
    if single {
        points.iter_mut().for_each(|it| *it = f64::from(*it as f32));
    }
    points
}

/// Points, and second operands: all pairs of special numbers, others of the points, small and near numbers, exponents of finite powers.
fn operands(random: &mut Random, single: bool) -> (Vec<f64>, Vec<f64>) {
    let points = points(random, single);
    let pick = |random: &mut Random, x: f64| match random.bits() % 9 {
        0 | 1 => points[random.bits() as usize % points.len()],
        2 => random.within(20.0).round(),
        3 => random.within(20.0).round() / 2.0,
        4 => random.within(4.0),
        5 => x * (1.0 + random.within(0.5)),
        6 => x * random.within(1.0).powi(5),
        _ => random.within(720.0) / x.abs().ln(),
    };
    let (mut x, mut y) = (points.clone(), Vec::new());
    y.extend(points.iter().map(|&x| pick(random, x)));
    let signed: Vec<f64> = SPECIAL.iter().flat_map(|&it| [it, -it]).collect();
    for &a in &signed {
        for &b in &signed {
            x.push(a);
            y.push(b);
        }
    }
    // Exact powers, and remainders of numbers far apart.
    for n in -40..40 {
        for power in -10..12 {
            x.push(f64::from(n));
            y.push(f64::from(power));
            x.push(f64::from(n).abs() * f64::from(n).abs());
            y.push(f64::from(power) * 0.5);
        }
    }
    if single {
        x.iter_mut().chain(&mut y).for_each(|it| *it = f64::from(*it as f32));
    }
    (x, y)
}

/// The error in units in the last place of the exact result; infinite when the kind or the sign is wrong.
fn error_in_ulp(single: bool, least: f64, [got, high, low]: [f64; 3]) -> f64 {
    if got.is_nan() || high.is_nan() {
        return if got.is_nan() && high.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got.is_sign_negative() != high.is_sign_negative() && low.abs() / UNIT >= least * f64::EPSILON {
        return f64::INFINITY;
    }
    // Infinity stands for the first number that the format no longer has.
    let beyond = 2f64.powi(128);
    let (got, high, low) = match single && (got.is_infinite() || high.abs() >= beyond) {
        true => {
            let (got, high) = (got.clamp(-beyond, beyond), high.clamp(-beyond, beyond));
            (got, high, (got - high) * UNIT)
        }
        false => (got, high, low),
    };
    if got.is_infinite() || high.is_infinite() {
        return if got == high { 0.0 } else { f64::INFINITY };
    }
    let (digits, minimum) = if single { (23, -126) } else { (52, -1022) };
    let exponent = |value: f64| (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    let exponent = exponent(high.abs().max(least)).max(minimum) - digits;
    // In two steps, since the unit of a denormal number has no inverse.
    low.abs() / 2f64.powi(exponent / 2) / 2f64.powi(exponent - exponent / 2) / UNIT
}

#[test]
fn functions_keep_their_bounds() {
    let mut random = Random(7);
    let both = [false, true].map(|single| operands(&mut random, single));
    let mut failures = Vec::new();
    for case in CASES {
        let single = is_single(case.name);
        let (x, y) = &both[usize::from(single)];
        let results = run(case, x, y);
        let least = |x: f64| case.least[usize::from(x >= 0.0)];
        let errors = x.iter().zip(&results).map(|(&x, &result)| error_in_ulp(single, least(x), result));
        let (at, worst) =
            errors.enumerate().fold((0, 0.0), |worst, it| if it.1 > worst.1 { it } else { worst });
        let [got, exact, _] = results[at];
        let line = format!(
            "{:14} {worst:8.3} ulp (bound {}) at ({:e}, {:e}): got {got:e}, exact {exact:e}",
            case.name, case.bound, x[at], y[at]
        );
        println!("{line}");
        if worst > case.bound {
            failures.push(line);
        }
    }
    assert!(failures.is_empty(), "errors beyond their bounds:\n{}", failures.join("\n"));
}

/// Annex F of C, of which the reference is no better a witness than the text.
#[test]
fn powers_have_their_exceptions() {
    let (infinity, nan) = (f64::INFINITY, f64::NAN);
    let expected = [
        (0.0, -3.0, infinity),
        (-0.0, -3.0, -infinity),
        (-0.0, -2.0, infinity),
        (-0.0, -infinity, infinity),
        (-0.0, 3.0, -0.0),
        (-0.0, 2.5, 0.0),
        (-1.0, infinity, 1.0),
        (-1.0, -infinity, 1.0),
        (1.0, nan, 1.0),
        (nan, 0.0, 1.0),
        (nan, -0.0, 1.0),
        (-8.0, 1.0 / 3.0, nan),
        (0.5, -infinity, infinity),
        (0.5, infinity, 0.0),
        (2.0, -infinity, 0.0),
        (-2.0, infinity, infinity),
        (-infinity, -3.0, -0.0),
        (-infinity, -2.5, 0.0),
        (-infinity, 3.0, -infinity),
        (-infinity, 2.5, infinity),
        (infinity, -0.5, 0.0),
        (infinity, 0.5, infinity),
        (-2.0, 9_007_199_254_740_993.0, infinity),
        (-1.0, 9_007_199_254_740_991.0, -1.0),
        (-1.0, 9_007_199_254_740_992.0, 1.0),
        (3.0, 4.0, 81.0),
        (10.0, 22.0, 1e22),
        (0.25, -1.5, 8.0),
    ];
    let (x, y): (Vec<f64>, Vec<f64>) = expected.iter().map(|it| (it.0, it.1)).unzip();
    let results = run(&case("pow", "powl", 0.0), &x, &y);
    for ((x, y, expected), [got, ..]) in expected.into_iter().zip(results) {
        let is_same = got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan();
        assert!(is_same, "pow({x}, {y}): {got}, not {expected}");
    }
}

/// Every function that code for CPUs may call.
fn called() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = vmath::externals().collect();
    names.extend(emit::externals().map(String::from));
    names.extend(["fmod", "fmodf"].map(String::from));
    names
}

#[test]
fn every_function_that_code_calls_is_defined() {
    let defined: BTreeSet<String> = library::names().map(String::from).collect();
    assert_eq!(defined, called());
    let tried: BTreeSet<String> = CASES.iter().map(|case| case.name.into()).collect();
    assert_eq!(defined, tried);
    assert_eq!(library::definition("system"), None);
}

/// A kernel that writes a function's results.
fn gpu_ir(name: &str) -> String {
    let (ty, bytes) = if is_single(name) { ("float", 4) } else { ("double", 8) };
    let arguments = [format!("{ty} %x"), format!("{ty} %y")][..arity(name)].join(", ");
    format!(
        "{}define ptx_kernel void @kernel(ptr addrspace(1) %px, ptr addrspace(1) %py, ptr addrspace(1) %pr, i32 %n) {{
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %width = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %before = mul i32 %block, %width
  %i = add i32 %before, %thread
  %is = icmp ult i32 %i, %n
  br i1 %is, label %one, label %end
one:
  %qx = getelementptr {ty}, ptr addrspace(1) %px, i32 %i
  %qy = getelementptr {ty}, ptr addrspace(1) %py, i32 %i
  %qr = getelementptr {ty}, ptr addrspace(1) %pr, i32 %i
  %x = load {ty}, ptr addrspace(1) %qx, align {bytes}
  %y = load {ty}, ptr addrspace(1) %qy, align {bytes}
  %r = call {ty} @{name}({arguments})
  store {ty} %r, ptr addrspace(1) %qr, align {bytes}
  br label %end
end:
  ret void
}}\n",
        joined(library::definition(name).expect("defined")),
    )
}

#[test]
fn every_function_compiles_for_gpus() {
    for name in library::names() {
        let text = assembly(&gpu_ir(name), &Processor::gpu(GpuIsa::Sm80))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!text.contains(".extern"), "{name} calls what is not there");
        // Without the rounding mode the driver may make one instruction of a product and a sum.
        let may_fuse = ["add", "sub", "mul"]
            .iter()
            .any(|op| text.contains(&format!("{op}.f64")) || text.contains(&format!("{op}.f32")));
        assert!(!may_fuse, "{name} has sums and products that may be fused");
        if let Ok(folder) = std::env::var("LITZ_PTX_FOLDER") {
            std::fs::write(format!("{folder}/{name}.ptx"), text).expect("writes");
        }
    }
}
