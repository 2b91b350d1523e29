//! The text for other CPUs, which is not run here, and errors.

use litz_ir::kernel::{Act, Kernel, Stmt};
use litz_ir::target::GpuIsa;
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_llvm::Processor;
use litz_llvm::emit::{emit, emit_module};
use litz_llvm::llvm::assembly;
use litz_sym::Sym;

use crate::harness::*;

fn dot(lanes: u32) -> Kernel {
    let mut k = Build::new();
    let x = k.read("x", Dtype::F32, "768");
    let w = k.read("w", Dtype::F32, "768");
    let y = k.write("y", Dtype::F32, "1");
    k.vector("j", "768", [lanes, 4], |k| {
        let (a, b) = (k.load(x, "j"), k.load(w, "j"));
        let c = k.call(ScalarOp::Mul, &[a, b]);
        k.combine(y, "0", ReduceOp::Sum, c);
    });
    k.finish()
}

/// Lines of the text that contain `part`.
fn count(text: &str, part: &str) -> usize {
    text.lines().filter(|line| line.contains(part)).count()
}

#[test]
fn vectors_have_the_lanes_asked_for() {
    for (target, lanes, instruction) in [
        (Processor::avx512(), 16, "vfmadd231ps\t"),
        (Processor::avx2(), 8, "vfmadd231ps\t"),
        (Processor::aarch64(), 4, "fmla\tv"),
    ] {
        let ir = printed(&[dot(lanes)], &target);
        // 768 is a multiple of four groups: one loop, and neither single groups nor a tail.
        assert_eq!(count(&ir, &format!("load <{lanes} x float>")), 8, "{ir}");
        assert_eq!(count(&ir, &format!("@llvm.fma.v{lanes}f32")), 4);
        assert_eq!(count(&ir, "masked"), 0);
        assert_eq!(count(&ir, "fmul"), 0);
        assert!(ir.contains(&format!("\"prefer-vector-width\"=\"{}\"", target.vector_bits)));
        let text = assembly(&ir, &target).expect("compiles");
        assert_eq!(count(&text, instruction), 4, "{text}");
    }
}

#[test]
fn targets_without_fused_multiply_add_multiply_and_add() {
    let ir = printed(&[dot(4)], &Processor::baseline());
    assert_eq!((count(&ir, "fmul <4 x float>"), count(&ir, "llvm.fma")), (4, 0));
}

#[test]
fn loop_invariants_are_computed_outside() {
    let mut k = Build::new();
    k.size("s0", 1, 100);
    k.size("s1", 1, 100);
    let x = k.read("x", Dtype::F32, "s0*s1");
    let w = k.read("w", Dtype::F32, "s0");
    let y = k.write("y", Dtype::F32, "s0*s1");
    k.grid("i", "s0");
    k.vector("j", "s1", [16, 1], |k| {
        let a = k.load(x, "s1*i + j");
        let b = k.load(w, "i");
        let b = k.call(ScalarOp::Exp, &[b]);
        let c = k.call(ScalarOp::Mul, &[a, b]);
        k.store(y, "s1*i + j", c);
    });
    let ir = emit(&k.finish(), &Processor::avx512()).expect("emits").text;
    let loops: Vec<&str> = ir.split("\nb").filter(|block| block.contains("load <16 x float>")).collect();
    let [body] = loops[..] else { panic!("one block loads vectors: {ir}") };
    // One load, one product, one store; two addresses of which the row parts were computed before.
    assert_eq!((count(body, " load "), count(body, "fmul"), count(body, "store")), (1, 1, 1), "{body}");
    assert_eq!((count(body, "getelementptr"), count(body, " mul "), count(body, "exp")), (2, 0, 0), "{body}");
    assert!(body.lines().count() <= 12, "{body}");
}

#[test]
fn kernels_share_a_module() {
    let mut other = dot(16);
    other.name = "k1".into();
    let mut k = Build::new();
    let x = k.read("x", Dtype::F32, "100");
    let y = k.write("y", Dtype::F32, "100");
    k.vector("j", "100", [16, 1], |k| {
        let a = k.load(x, "j");
        let b = k.call(ScalarOp::Sin, &[a]);
        let c = k.call(ScalarOp::Sinh, &[b]);
        k.store(y, "j", c);
    });
    let mut third = k.finish();
    third.name = "k2".into();
    let mut fourth = third.clone();
    fourth.name = "k3".into();
    for target in [Processor::avx512(), Processor::avx2(), Processor::aarch64(), Processor::baseline()] {
        let kernels = [dot(16), other.clone(), third.clone(), fourth.clone()];
        let text = assembly(&printed(&kernels, &target), &target).expect("compiles");
        for name in ["k0:", "k1:", "k2:", "k3:"] {
            assert!(text.contains(name));
        }
    }
}

#[test]
fn errors_say_what_and_where() {
    let mut k = Build::new();
    let x = k.read("x", Dtype::C128, "8");
    k.load(x, "0");
    let error = emit(&k.finish(), &Processor::avx2()).expect_err("complex");
    assert_eq!(error.to_string(), "kernel @k0: unsupported: values of type c128");

    let mut k = Build::new();
    let y = k.write("y", Dtype::I64, "8");
    let v = k.define(Dtype::I64, litz_ir::kernel::Op::Index(e("q")));
    k.store(y, "0", v);
    let error = emit(&k.finish(), &Processor::avx2()).expect_err("unbound symbol");
    assert!(error.is_malformed && error.to_string().contains("symbol `q`"), "{error}");

    let mut k = Build::new();
    let y = k.write("y", Dtype::F32, "8");
    let r = k.register("r", Dtype::F32, "4");
    let v = k.load(r, "4");
    k.store(y, "0", v);
    let error = emit(&k.finish(), &Processor::avx2()).expect_err("out of bounds");
    assert!(error.is_malformed && error.to_string().contains("no element 4"), "{error}");
}

/// Loops around one another that multiply to more than a kernel may have, and one that alone does: no time or memory goes
/// into text that is too long.
#[test]
fn loops_written_out_too_often_are_refused() {
    for (outer, inner) in [("16384", "16384"), ("1", "1000000000000")] {
        let mut k = Build::new();
        let y = k.write("y", Dtype::F32, "8");
        let v = k.define(Dtype::F32, litz_ir::kernel::Op::Const(litz_ir::Scalar::Float(1.0)));
        k.unroll("i", outer, |k| k.unroll("j", inner, |k| k.store(y, "mod(i + j, 8)", v)));
        let error = emit(&k.finish(), &Processor::avx512()).expect_err("too long");
        let text = error.to_string();
        assert!(
            !error.is_malformed && text.contains("instructions, because loop j is written out"),
            "{text}"
        );
    }
}

#[test]
fn text_is_the_same_every_time() {
    let text = || printed(&[dot(16), dot(8)], &Processor::avx512());
    assert_eq!(text(), text());
}

/// Binds in scalar code use the stored check number.
#[test]
fn binds_store_their_number() {
    let mut k = Build::new();
    let index = k.read("index", Dtype::I64, "1");
    let at = k.load(index, "0");
    k.kernel.checks.push("out of range".into());
    k.push(Stmt::Act(Act::Bind { sym: Sym::new("t"), value: at, extent: e("10"), check: 6 }));
    let ir = emit(&k.finish(), &Processor::aarch64()).expect("emits").text;
    assert_eq!(count(&ir, "store atomic i64 7, ptr %status"), 1, "{ir}");
}

/// Two kernels of one module share what they call.
#[test]
fn gpus_get_definitions_of_the_functions_that_cpus_call() {
    let kernel = |name: &str, op| {
        let mut k = Build::new();
        let x = k.read("x", Dtype::F64, "64");
        let y = k.write("y", Dtype::F64, "64");
        let (a, b) = (k.load(x, "0"), k.load(x, "1"));
        let c = k.call(op, &[a, b][..if op == ScalarOp::Sin { 1 } else { 2 }]);
        k.store(y, "0", c);
        Kernel { name: name.into(), ..k.finish() }
    };
    let kernels = [kernel("k0", ScalarOp::Sin), kernel("k1", ScalarOp::Rem), kernel("k2", ScalarOp::Sin)];
    let target = Processor::gpu(GpuIsa::Sm80);
    let ir = emit_module(&kernels, &target).expect("emits");
    assert_eq!(
        (count(&ir, "declare"), count(&ir, "@sin(double %p0)"), count(&ir, "@fmod(double %p0")),
        (0, 1, 1),
        "{ir}"
    );
    assert!(!assembly(&ir, &target).expect("compiles").contains(".extern .func"));
}
