//! Objects that LLVM makes of text, loaded by the runtime and called.

use std::sync::atomic::AtomicUsize;

use litz_llvm::llvm::{assembly, compile};
use litz_llvm::{Isa, Processor};
use litz_runtime::object::{LoadedObject, ObjectError};
use litz_runtime::symbols::c_library_symbol;

/// Calls, constants, a zeroed buffer, pointers in data, and symbols from outside.
const MODULE: &str = r#"
@table = private constant [4 x float] [float 1.0, float 2.0, float 4.0, float 8.0]
@counter = internal global i64 40
@zeros = internal global [1000 x i64] zeroinitializer
@pointers = internal global [2 x ptr] [ptr @table, ptr @helper]
@outside = external global i64
declare float @expf(float)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @helper(i64 %x) noinline {
  %r = mul i64 %x, 3
  ret i64 %r
}
define i64 @count() {
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  %z = load i64, ptr getelementptr ([1000 x i64], ptr @zeros, i64 0, i64 999)
  %sum = add i64 %new, %z
  ret i64 %sum
}
define i64 @through_pointer(i64 %x) {
  %f = load ptr, ptr getelementptr ([2 x ptr], ptr @pointers, i64 0, i64 1)
  %r = call i64 %f(i64 %x)
  %d = call i64 @helper(i64 %r)
  ret i64 %d
}
define float @lookup(i64 %i) {
  %t = load ptr, ptr @pointers
  %p = getelementptr float, ptr %t, i64 %i
  %v = load float, ptr %p
  ret float %v
}
define float @exponential(float %x) {
  %y = call float @expf(float %x)
  ret float %y
}
define void @clear(ptr %p, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  ret void
}
define i64 @read_outside() {
  %v = load i64, ptr @outside
  ret i64 %v
}
"#;

static OUTSIDE: AtomicUsize = AtomicUsize::new(77);

fn resolve(name: &str) -> Option<usize> {
    match name {
        "outside" => Some((&raw const OUTSIDE) as usize),
        _ => c_library_symbol(name),
    }
}

/// The function `name` of `object` as a value of the function pointer type asked for.
macro_rules! function {
    ($object:expr, $name:expr, $type:ty) => {{
        let address = $object.get($name).expect("the module defines it");
        // SAFETY: the module above defines the function with this signature.
        unsafe { std::mem::transmute::<*const u8, $type>(address) }
    }};
}

#[test]
fn loaded_code_runs() {
    for target in [Processor::host(), Processor::baseline()] {
        let bytes = compile(MODULE, &target).expect("compiles");
        let object = LoadedObject::load(&bytes, &resolve).expect("loads");
        let count = function!(object, "count", extern "C" fn() -> i64);
        assert_eq!((count(), count()), (41, 42));
        assert_eq!(function!(object, "through_pointer", extern "C" fn(i64) -> i64)(5), 45);
        assert_eq!(function!(object, "lookup", extern "C" fn(i64) -> f32)(3), 8.0);
        assert_eq!(function!(object, "exponential", extern "C" fn(f32) -> f32)(0.0), 1.0);
        let mut bytes = [1u8; 300];
        function!(object, "clear", extern "C" fn(*mut u8, usize))(bytes.as_mut_ptr(), 299);
        assert_eq!((bytes[298], bytes[299]), (0, 1));
        assert_eq!(function!(object, "read_outside", extern "C" fn() -> i64)(), 77);
        assert!(object.get("helper").is_none() && object.get("nothing").is_none());
        let mut names: Vec<_> = object.names().collect();
        names.sort_unstable();
        assert_eq!(names, ["clear", "count", "exponential", "lookup", "read_outside", "through_pointer"]);
    }
}

#[test]
fn code_is_not_writable_and_data_is_not_executable() {
    let object =
        LoadedObject::load(&compile(MODULE, &Processor::host()).expect("compiles"), &resolve).expect("loads");
    let code = object.get("count").expect("defined") as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("linux");
    let protection = maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let bounds = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        bounds.contains(&code).then(|| rest[..4].to_string())
    });
    assert_eq!(protection.as_deref(), Some("r-xp"));
    assert!(!maps.lines().any(|line| line.contains(" rwx")));
}

#[test]
fn missing_symbols_and_foreign_objects_are_errors() {
    let bytes = compile(MODULE, &Processor::host()).expect("compiles");
    let error = LoadedObject::load(&bytes, &|name| if name == "expf" { None } else { Some(1) })
        .expect_err("must fail");
    assert!(matches!(&error, ObjectError::UnknownSymbol(name) if name == "expf"), "{error}");
    let bytes = compile(MODULE, &Processor::aarch64()).expect("compiles");
    let error = LoadedObject::load(&bytes, &resolve).expect_err("must fail");
    assert!(matches!(error, ObjectError::WrongArchitecture(_)), "{error}");
    assert!(matches!(LoadedObject::load(b"", &resolve), Err(ObjectError::Malformed(_))));
}

/// Every byte of a small object in turn gets other values, and every prefix is tried: loading
/// succeeds or fails, and nothing else.
#[test]
fn damaged_objects_never_crash_the_loader() {
    let bytes = compile(MODULE, &Processor::host()).expect("compiles");
    let mut failures = 0;
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            failures += usize::from(LoadedObject::load(&damaged, &resolve).is_err());
        }
        assert!(LoadedObject::load(&bytes[..at], &resolve).is_err(), "prefix of {at} bytes");
    }
    assert!(failures > 100, "only {failures} damaged objects were rejected");
}

#[test]
fn parse_errors_carry_llvms_message_and_line() {
    let error = compile("define void @f() {\n  ret i32 0\n}\n", &Processor::host()).expect_err("must fail");
    assert_eq!(error.stage, "parse");
    assert!(error.message.contains(":2:") && error.message.contains("result type"), "{error}");
    let error = compile("define void @f() {\n  %x = nonsense\n}", &Processor::host()).expect_err("must fail");
    assert!(error.message.contains("expected instruction opcode"), "{error}");
    let mut target = Processor::host();
    target.triple = "z80-unknown-none".into();
    assert_eq!(compile("", &target).expect_err("must fail").stage, "target");
}

#[test]
fn targets_differ_in_the_code_they_give() {
    let ir = "define <16 x float> @f(<16 x float> %a, <16 x float> %b) {\n
        %m = call <16 x float> @llvm.fma.v16f32(<16 x float> %a, <16 x float> %b, <16 x float> %b)\n
        ret <16 x float> %m }\n declare <16 x float> @llvm.fma.v16f32(<16 x float>, <16 x float>, <16 x float>)";
    for (target, register) in [
        (Processor::avx512(), "zmm0"),
        (Processor::avx2(), "vfmadd213ps\t%ymm"),
        (Processor::baseline(), "fmaf"),
        (Processor::aarch64(), "fmla\tv"),
    ] {
        let text = assembly(ir, &target).expect("compiles");
        assert!(text.contains(register), "{:?}: {text}", target.isa);
    }
    assert!(Processor::avx512().has("avx512bw") && !Processor::avx2().has("avx512bw"));
    assert!(!Processor::avx512().has("prefer-256-bit"));
    let host = Processor::host();
    assert_eq!(host.vector_bits, host.isa.vector_bits());
    assert!(host.isa != Isa::Avx512 || host.has("avx512vl"));
}

#[test]
fn equal_text_gives_equal_bytes_on_many_threads() {
    let expected = compile(MODULE, &Processor::avx2()).expect("compiles");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(compile(MODULE, &Processor::avx2()).expect("compiles"), expected);
                }
            });
        }
    });
}
