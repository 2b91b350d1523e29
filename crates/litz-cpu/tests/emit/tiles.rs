//! Register tiles.

use litz_ir::kernel::Kernel;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_llvm::Processor;
use litz_llvm::llvm::assembly;

use crate::harness::*;

/// `y = x w + bias` in tiles of `rows` by `columns`, the last rows guarded, with `w` in panels of `columns` columns.
fn product([rows, columns, lanes]: [u32; 3]) -> Kernel {
    let mut k = Build::new();
    k.size("s0", 1, 1000);
    let x = k.read("x", Dtype::F32, "40*s0");
    let w = k.read("w", Dtype::F32, "40*96");
    let bias = k.read("bias", Dtype::F32, "96");
    let y = k.write("y", Dtype::F32, "96*s0");
    let acc = k.register("acc", Dtype::F32, &(rows * columns).to_string());
    let row = format!("({rows}*io + ii)");
    let guard = format!("{row} < s0");
    let at = format!("{columns}*ii + ji");
    k.grid("jo", &(96 / columns).to_string());
    k.grid("io", &format!("ceildiv(s0, {rows})"));
    let each = |k: &mut Build, body: &mut dyn FnMut(&mut Build)| {
        let (rows, columns) = (rows.to_string(), columns.to_string());
        k.unroll("ii", &rows, |k| k.vector("ji", &columns, [lanes, 1], |k| body(k)));
    };
    each(&mut k, &mut |k| {
        let zero = k.float(0.0);
        k.store(acc, &at, zero);
    });
    k.each("k", "40", |k| {
        each(k, &mut |k| {
            let a = k.load_if(x, &format!("40*{row} + k"), &[&guard], Scalar::Float(0.0));
            let b = k.load(w, &format!("{}*jo + {columns}*k + ji", 40 * columns));
            let c = k.call(ScalarOp::Mul, &[a, b]);
            k.combine(acc, &at, ReduceOp::Sum, c);
        });
    });
    each(&mut k, &mut |k| {
        let a = k.load(acc, &at);
        let b = k.load(bias, &format!("{columns}*jo + ji"));
        let c = k.call(ScalarOp::Add, &[a, b]);
        k.store_if(y, &format!("96*{row} + {columns}*jo + ji"), c, &[&guard]);
    });
    k.finish()
}

/// Tiles that fill the registers of each instruction set.
const TILES: [[u32; 3]; 3] = [[13, 32, 16], [6, 16, 8], [8, 12, 4]];

#[test]
fn matrix_product_with_guarded_rows() {
    for tile in TILES {
        let columns = tile[1] as usize;
        let kernel = Compiled::new(product(tile));
        for m in [1usize, 12, 13, 14, 40] {
            let (mut x, mut w, mut bias) = (numbers(40 * m), numbers(40 * 96), numbers(96));
            let mut y = vec![0.0f32; 96 * m];
            kernel.run(&[m as i64], &[param(&mut x), param(&mut w), param(&mut bias), param(&mut y)]);
            let expected: Vec<f32> = (0..96 * m)
                .map(|at| {
                    let (i, j) = (at / 96, at % 96);
                    let panel = 40 * columns * (j / columns) + j % columns;
                    bias[j] + (0..40).map(|k| x[40 * i + k] * w[panel + columns * k]).sum::<f32>()
                })
                .collect();
            assert_close(&y, &expected, 1e-4);
        }
    }
}

/// The tile stays in registers: one multiply-add for each group, and no vector goes to the stack in the loop over k.
#[test]
fn tiles_do_not_spill() {
    let targets = [Processor::avx512(), Processor::avx2(), Processor::aarch64()];
    for (tile, target) in TILES.into_iter().zip(targets) {
        let ir = printed(&[product(tile)], &target);
        let text = assembly(&ir, &target).expect("compiles");
        let [rows, columns, lanes] = tile;
        let is_fused = |line: &&str| line.contains("vfmadd") || line.contains("fmla");
        assert_eq!(text.lines().filter(is_fused).count() as u32, rows * columns / lanes, "{text}");
        let is_spill = |line: &&str| {
            let is_vector =
                ["zmm", "ymm", "str\tq", "ldr\tq", "stp\tq", "ldp\tq"].iter().any(|name| line.contains(name));
            is_vector && ["(%rsp)", "[sp"].iter().any(|name| line.contains(name))
        };
        let first = text.lines().position(|line| is_fused(&line)).expect("counted");
        let last = text.lines().collect::<Vec<_>>().iter().rposition(is_fused).expect("counted");
        let inner: Vec<&str> = text.lines().take(last).skip(first).collect();
        assert!(!inner.iter().any(is_spill), "{text}");
    }
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

/// A tile whose last group of each row is partly unused.
#[test]
fn tiles_with_partial_groups() {
    let mut k = Build::new();
    let x = k.read("x", Dtype::F32, "3*30");
    let w = k.read("w", Dtype::F32, "30*20");
    let y = k.write("y", Dtype::F32, "3*20");
    let acc = k.register("acc", Dtype::F32, "96");
    let each = |k: &mut Build, body: &mut dyn FnMut(&mut Build)| {
        k.unroll("ii", "3", |k| k.vector("ji", "20", [16, 1], |k| body(k)));
    };
    each(&mut k, &mut |k| {
        let zero = k.float(0.0);
        k.store(acc, "32*ii + ji", zero);
    });
    k.each("k", "30", |k| {
        each(k, &mut |k| {
            let (a, b) = (k.load(x, "30*ii + k"), k.load(w, "20*k + ji"));
            let c = k.call(ScalarOp::Mul, &[a, b]);
            k.combine(acc, "32*ii + ji", ReduceOp::Sum, c);
        });
    });
    each(&mut k, &mut |k| {
        let a = k.load(acc, "32*ii + ji");
        k.store(y, "20*ii + ji", a);
    });
    let kernel = k.finish();
    let ir = printed(std::slice::from_ref(&kernel), &Processor::avx512());
    assert!(!ir.contains("alloca"), "{ir}");
    let (mut x, mut w, mut y) = (numbers(90), numbers(600), vec![0.0f32; 60]);
    Compiled::new(kernel).run(&[], &[param(&mut x), param(&mut w), param(&mut y)]);
    let expected: Vec<f32> =
        (0..60).map(|at| (0..30).map(|k| x[at / 20 * 30 + k] * w[20 * k + at % 20]).sum()).collect();
    assert_close(&y, &expected, 1e-5);
}
