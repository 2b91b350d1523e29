//! Register tiles.

use litz_cpu::emit::emit_module;
use litz_cpu::llvm::{CpuTarget, assembly};
use litz_ir::kernel::Kernel;
use litz_ir::{Dtype, ReduceOp, ScalarOp};

use crate::harness::*;

/// `y = x w + bias` in tiles of 13 by 32, the last rows guarded, with `w` in panels of 32 columns.
fn product() -> Kernel {
    let mut k = Build::new();
    k.size("s0", 1, 1000);
    let x = k.read("x", Dtype::F32, "40*s0");
    let w = k.read("w", Dtype::F32, "40*64");
    let bias = k.read("bias", Dtype::F32, "64");
    let y = k.write("y", Dtype::F32, "64*s0");
    let acc = k.register("acc", Dtype::F32, "416");
    k.grid("jo", "2");
    k.grid("io", "ceildiv(s0, 13)");
    let rows = |k: &mut Build, body: &mut dyn FnMut(&mut Build)| {
        k.unroll("ii", "13", |k| k.vector("ji", "32", [16, 1], |k| body(k)));
    };
    rows(&mut k, &mut |k| {
        let zero = k.float(0.0);
        k.store(acc, "32*ii + ji", zero);
    });
    k.each("k", "40", |k| {
        rows(k, &mut |k| {
            let a = k.load_if(x, "40*(13*io + ii) + k", &["13*io + ii < s0"], litz_ir::Scalar::Float(0.0));
            let b = k.load(w, "1280*jo + 32*k + ji");
            let c = k.call(ScalarOp::Mul, &[a, b]);
            k.combine(acc, "32*ii + ji", ReduceOp::Sum, c);
        });
    });
    rows(&mut k, &mut |k| {
        let a = k.load(acc, "32*ii + ji");
        let b = k.load(bias, "32*jo + ji");
        let c = k.call(ScalarOp::Add, &[a, b]);
        k.store_if(y, "64*(13*io + ii) + 32*jo + ji", c, &["13*io + ii < s0"]);
    });
    k.finish()
}

#[test]
fn matrix_product_with_guarded_rows() {
    let kernel = Compiled::new(product());
    for m in [1usize, 12, 13, 14, 40] {
        let (mut x, mut w, mut bias) = (numbers(40 * m), numbers(40 * 64), numbers(64));
        let mut y = vec![0.0f32; 64 * m];
        kernel.run(&[m as i64], &[param(&mut x), param(&mut w), param(&mut bias), param(&mut y)]);
        let expected: Vec<f32> = (0..64 * m)
            .map(|at| {
                let (i, j) = (at / 64, at % 64);
                let terms = (0..40).map(|k| x[40 * i + k] * w[1280 * (j / 32) + 32 * k + j % 32]);
                bias[j] + terms.sum::<f32>()
            })
            .collect();
        assert_close(&y, &expected, 1e-4);
    }
}

/// The tile stays in registers: the loop over k neither spills nor recomputes addresses.
#[test]
fn tiles_do_not_spill() {
    let ir = emit_module(&[product()], &CpuTarget::avx512()).expect("emits");
    let text = assembly(&ir, &CpuTarget::avx512()).expect("compiles");
    assert_eq!(text.matches("vfmadd").count(), 26, "{text}");
    assert!(!text.contains("(%rsp), %zmm") && !text.contains("zmm0, -"), "{text}");
}

/// Registers indexed at run time are memory: a running window of the last four inputs.
#[test]
fn registers_indexed_at_run_time() {
    let mut k = Build::new();
    let x = k.read("x", Dtype::F32, "30");
    let y = k.write("y", Dtype::F32, "30");
    let window = k.register("window", Dtype::F32, "4");
    k.each("q", "4", |k| {
        let zero = k.float(0.0);
        k.store(window, "q", zero);
    });
    k.each("i", "30", |k| {
        let a = k.load(x, "i");
        k.store(window, "mod(i, 4)", a);
        let first = k.load(window, "0");
        let second = k.load(window, "mod(i + 3, 4)");
        let sum = k.call(ScalarOp::Add, &[first, second]);
        k.store(y, "i", sum);
    });
    let mut x = numbers(30);
    let mut y = vec![0.0f32; 30];
    Compiled::new(k.finish()).run(&[], &[param(&mut x), param(&mut y)]);
    for i in 0..30 {
        let second = if i == 0 { 0.0 } else { x[i - 1] };
        assert_eq!(y[i], x[i / 4 * 4] + second, "{i}");
    }
}

/// Single elements of a register that is held as vectors, and one that loops carry while they change only a part.
#[test]
fn elements_of_vector_registers() {
    let mut k = Build::new();
    let y = k.write("y", Dtype::F32, "32");
    let r = k.register("r", Dtype::F32, "32");
    k.vector("j", "32", [16, 1], |k| {
        let a = k.define(Dtype::I64, litz_ir::kernel::Op::Index(e("j")));
        let a = k.define(Dtype::F32, litz_ir::kernel::Op::Cast(a));
        k.store(r, "j", a);
    });
    k.each("i", "10", |k| {
        let a = k.load(r, "3");
        let b = k.load(r, "20");
        let sum = k.call(ScalarOp::Add, &[a, b]);
        k.store(r, "3", sum);
    });
    k.vector("j", "32", [16, 1], |k| {
        let a = k.load(r, "j");
        k.store(y, "j", a);
    });
    let mut y = [0.0f32; 32];
    Compiled::new(k.finish()).run(&[], &[param(&mut y)]);
    let mut expected = std::array::from_fn(|i| i as f32);
    expected[3] += 200.0;
    assert_eq!(y, expected);
}
