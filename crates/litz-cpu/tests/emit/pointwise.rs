//! Pointwise kernels: tails, strides, guards, types.

use litz_ir::kernel::Op;
use litz_ir::{Dtype, Scalar, ScalarOp};

use crate::harness::*;

/// `y = exp(x) * x + 1` over a symbolic number of elements.
fn chain(lanes: u32, copies: u32) -> Compiled {
    let mut k = Build::new();
    k.size("s0", 0, 100_000);
    let x = k.read("x", Dtype::F32, "s0");
    let y = k.write("y", Dtype::F32, "s0");
    k.vector("j", "s0", [lanes, copies], |k| {
        let a = k.load(x, "j");
        let b = k.call(ScalarOp::Exp, &[a]);
        let one = k.float(1.0);
        let c = k.call(ScalarOp::Fma, &[a, b, one]);
        k.store(y, "j", c);
    });
    Compiled::new(k.finish())
}

#[test]
fn tails_of_every_length() {
    for (lanes, copies) in [(16, 1), (16, 4), (8, 2), (4, 1), (1, 1)] {
        let kernel = chain(lanes, copies);
        for n in [0, 1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 1000] {
            let mut x = numbers(n);
            let mut y = vec![7.0f32; n + 20];
            kernel.run(&[n as i64], &[param(&mut x), param(&mut y)]);
            let expected: Vec<f32> = x.iter().map(|&x| x.exp() * x + 1.0).collect();
            assert_close(&y[..n], &expected, 1e-5);
            assert!(y[n..].iter().all(|&y| y == 7.0), "{n} elements: written past the end");
        }
    }
}

#[test]
fn constant_extents() {
    for n in [0usize, 1, 15, 16, 17, 80, 1000] {
        let mut k = Build::new();
        let x = k.read("x", Dtype::F32, &n.to_string());
        let y = k.write("y", Dtype::F32, &n.to_string());
        k.vector("j", &n.to_string(), [16, 2], |k| {
            let a = k.load(x, "j");
            let b = k.call(ScalarOp::Abs, &[a]);
            k.store(y, "j", b);
        });
        let mut x = numbers(n);
        let mut y = vec![7.0f32; n + 20];
        Compiled::new(k.finish()).run(&[], &[param(&mut x), param(&mut y)]);
        assert!((0..n).all(|i| y[i] == x[i].abs()) && y[n..].iter().all(|&y| y == 7.0), "{n} elements");
    }
}

/// Row-major points in chunks of any size: the odometer.
#[test]
fn grids_in_chunks() {
    let mut k = Build::new();
    k.size("s0", 0, 100);
    k.size("s1", 0, 100);
    let y = k.write("y", Dtype::I64, "s0*s1*3");
    k.grid("a", "s0");
    k.grid("b", "s1");
    k.grid("c", "3");
    let v = k.define(Dtype::I64, Op::Index(e("10000*a + 100*b + c")));
    k.store(y, "3*s1*a + 3*b + c", v);
    let kernel = Compiled::new(k.finish());
    for (s0, s1) in [(0, 5), (5, 0), (1, 1), (4, 7)] {
        for chunk in [1, 2, 5, 1000] {
            let mut y = vec![-1i64; (s0 * s1 * 3) as usize];
            assert_eq!(kernel.run_chunks(&[s0, s1], &[param(&mut y)], chunk), 0);
            let expected =
                (0..s0).flat_map(|a| (0..s1).flat_map(move |b| (0..3).map(move |c| 10000 * a + 100 * b + c)));
            assert!(y.iter().copied().eq(expected), "{s0} by {s1} in {chunk}");
        }
    }
}

/// A transposed and reversed read, a broadcast, a row repeated by `mod`, and a strided write.
#[test]
fn strides_and_gathers() {
    let mut k = Build::new();
    k.size("s0", 1, 1000);
    let x = k.read("x", Dtype::F32, "40*s0");
    let row = k.read("row", Dtype::F32, "10");
    let y = k.write("y", Dtype::F32, "80*s0");
    k.grid("i", "40");
    k.vector("j", "s0", [16, 1], |k| {
        let a = k.load(x, "40*j + i");
        let b = k.load(x, "40*s0 - j - 1");
        let c = k.load(row, "mod(j, 10)");
        let d = k.load(x, "i");
        let ab = k.call(ScalarOp::Add, &[a, b]);
        let cd = k.call(ScalarOp::Mul, &[c, d]);
        let all = k.call(ScalarOp::Add, &[ab, cd]);
        k.store(y, "2*s0*i + 2*j", all);
    });
    let kernel = Compiled::new(k.finish());
    for s0 in [1usize, 16, 37] {
        let (mut x, mut row) = (numbers(40 * s0), numbers(10));
        let mut y = vec![0.0f32; 80 * s0];
        kernel.run(&[s0 as i64], &[param(&mut x), param(&mut row), param(&mut y)]);
        for i in 0..40 {
            for j in 0..s0 {
                let expected = x[40 * j + i] + x[40 * s0 - j - 1] + row[j % 10] * x[i];
                assert_close(&[y[2 * s0 * i + 2 * j], y[2 * s0 * i + 2 * j + 1]], &[expected, 0.0], 1e-6);
            }
        }
    }
}

/// Guards that do and do not vary, on loads and stores: a padded shift.
#[test]
fn guards() {
    let mut k = Build::new();
    k.size("s0", 0, 1000);
    let x = k.read("x", Dtype::F32, "s0");
    let y = k.write("y", Dtype::F32, "4*s0");
    k.grid("i", "4");
    k.vector("j", "s0", [16, 1], |k| {
        let a = k.load_if(x, "j + i - 2", &["2 <= i + j", "i + j < s0 + 2"], Scalar::Float(9.0));
        let b = k.load_if(x, "j", &["i < 2"], Scalar::Float(-1.0));
        let c = k.load_if(x, "i", &["i < s0", "i < 3"], Scalar::Int(0));
        let ab = k.call(ScalarOp::Add, &[a, b]);
        let abc = k.call(ScalarOp::Add, &[ab, c]);
        k.store_if(y, "s0*i + j", abc, &["j != 5", "i < 3"]);
    });
    let kernel = Compiled::new(k.finish());
    for n in [0usize, 1, 3, 16, 17, 50] {
        let mut x = numbers(n);
        let mut y = vec![7.0f32; 4 * n];
        kernel.run(&[n as i64], &[param(&mut x), param(&mut y)]);
        for i in 0..4 {
            for j in 0..n {
                let at = (i + j) as i64 - 2;
                let a = if at >= 0 && at < n as i64 { x[at as usize] } else { 9.0 };
                let b = if i < 2 { x[j] } else { -1.0 };
                let c = if i < n && i < 3 { x[i] } else { 0.0 };
                let expected = if j != 5 && i < 3 { a + b + c } else { 7.0 };
                assert_close(&[y[n * i + j]], &[expected], 1e-6);
            }
        }
    }
}

/// Branches that vary by lane and ones that do not; a register carried through both.
#[test]
fn branches() {
    let mut k = Build::new();
    let x = k.read("x", Dtype::F32, "50");
    let y = k.write("y", Dtype::F32, "200");
    let t = k.register("t", Dtype::F32, "1");
    k.grid("i", "4");
    k.vector("j", "50", [16, 2], |k| {
        let a = k.load(x, "j");
        k.store(t, "0", a);
        k.branch(
            "j < 20",
            |k| {
                let b = k.load(x, "j + 30");
                k.store(t, "0", b);
            },
            |k| k.store(y, "50*i + j", a),
        );
        k.branch(
            "i < 2",
            |k| {
                let b = k.load(t, "0");
                let c = k.call(ScalarOp::Neg, &[b]);
                k.store(t, "0", c);
            },
            |_| (),
        );
        k.branch(
            "j < 20",
            |k| {
                let b = k.load(t, "0");
                k.store(y, "50*i + j", b);
            },
            |_| (),
        );
    });
    let mut x = numbers(50);
    let mut y = vec![0.0f32; 200];
    Compiled::new(k.finish()).run(&[], &[param(&mut x), param(&mut y)]);
    for i in 0..4 {
        for j in 0..50 {
            let sign = if i < 2 { -1.0 } else { 1.0 };
            let expected = if j < 20 { sign * x[j + 30] } else { x[j] };
            assert_eq!(y[50 * i + j], expected, "{i} {j}");
        }
    }
}

/// Quotients and remainders of index expressions round down, whatever the signs, in scalar and in vector code.
#[test]
fn index_division() {
    let expressions = [
        "floordiv(j - 20, 3)",
        "mod(j - 20, 3)",
        "floordiv(j - 20, 8)",
        "mod(j - 20, 8)",
        "floordiv(j - 20, s0 - 25)",
        "mod(j - 20, s0 - 25)",
        "floordiv(j, 7) + mod(j, 7)*100",
        "mod(floordiv(j, 3)*j, 5)",
        "min(j, 11) - max(3*j - 40, s0)",
        "mod(j, s0)*j",
    ];
    for lanes in [1, 8, 16] {
        let mut k = Build::new();
        k.size("s0", 1, 100);
        let y = k.write("y", Dtype::I64, "400");
        k.vector("j", "40", [lanes, 1], |k| {
            for (at, text) in expressions.iter().enumerate() {
                let v = k.define(Dtype::I64, Op::Index(e(text)));
                k.store(y, &format!("j + {}", 40 * at), v);
            }
        });
        let kernel = Compiled::new(k.finish());
        for s0 in [1i64, 20, 24, 26, 60] {
            let mut y = vec![0i64; 400];
            kernel.run(&[s0], &[param(&mut y)]);
            for (at, text) in expressions.iter().enumerate() {
                for j in 0..40 {
                    let expected = e(text).eval(&|sym| Some(if sym.name() == "j" { j } else { s0 }));
                    assert_eq!(Some(y[40 * at + j as usize]), expected, "{text} at {j}, {s0}");
                }
            }
        }
    }
}

/// A row repeated along a flattened axis is read group by group, without gathers.
#[test]
fn rows_repeated_by_mod_are_contiguous() {
    let mut k = Build::new();
    k.size("s0", 1, 100);
    let x = k.read("x", Dtype::F32, "768*s0");
    let row = k.read("row", Dtype::F32, "768");
    let column = k.read("column", Dtype::F32, "s0");
    let y = k.write("y", Dtype::F32, "768*s0");
    k.vector("j", "768*s0", [16, 1], |k| {
        let a = k.load(x, "j");
        let b = k.load(row, "mod(j, 768)");
        let c = k.load(column, "floordiv(j, 768)");
        let ab = k.call(ScalarOp::Add, &[a, b]);
        let abc = k.call(ScalarOp::Mul, &[ab, c]);
        k.store(y, "j", abc);
    });
    let kernel = k.finish();
    let ir = litz_llvm::emit::emit(&kernel, &litz_llvm::Processor::avx512()).expect("emits").text;
    assert!(!ir.contains("gather") && !ir.contains("masked"), "{ir}");
    let (mut x, mut row, mut column) = (numbers(768 * 3), numbers(768), numbers(3));
    let mut y = vec![0.0f32; 768 * 3];
    let params = [param(&mut x), param(&mut row), param(&mut column), param(&mut y)];
    Compiled::new(kernel).run(&[3], &params);
    let expected: Vec<f32> = (0..768 * 3).map(|at| (x[at] + row[at % 768]) * column[at / 768]).collect();
    assert_close(&y, &expected, 0.0);
}

/// `y[u, v] = x[v, u]` of a square of lanes and what is left of another, elements of any size.
fn transposed<T: Copy + Default + PartialEq + std::fmt::Debug>(dtype: Dtype, element: impl Fn(usize) -> T) {
    for (lanes, rows) in [(16usize, 23usize), (8, 8), (4, 3), (8, 40)] {
        let mut k = Build::new();
        k.size("s0", 0, 100);
        let columns = lanes + 5;
        let x = k.read("x", dtype, &format!("{columns}*s0"));
        let y = k.write("y", dtype, &format!("{lanes}*s0"));
        k.vector("v", "s0", [lanes as u32, 1], |k| {
            k.unroll("u", &lanes.to_string(), |k| {
                let a = k.load(x, &format!("u + {columns}*v + 2"));
                k.store(y, "s0*u + v", a);
            });
        });
        let kernel = Compiled::new(k.finish());
        // Nothing past what the loops read: the last row ends with its last element.
        let mut x: Vec<T> = (0..columns * rows).map(&element).collect();
        let mut y = vec![T::default(); lanes * rows];
        kernel.run(&[rows as i64], &[param(&mut x), param(&mut y)]);
        let expected: Vec<T> = (0..lanes * rows).map(|n| x[n % rows * columns + n / rows + 2]).collect();
        assert_eq!(y, expected, "{dtype}, {lanes} lanes, {rows} rows");
    }
}

#[test]
fn rows_are_transposed_in_registers() {
    transposed(Dtype::F32, |n| n as f32);
    transposed(Dtype::F64, |n| n as f64);
    transposed(Dtype::I64, |n| n as i64);
    transposed(Dtype::I32, |n| n as i32);
    transposed(Dtype::I8, |n| n as i8);
    // 1, 1.0078125, ...: bits of numbers that a bf16 holds.
    transposed(Dtype::BF16, |n| 0x3f80 + (n % 100) as u16);
}

#[test]
fn coordinates_count_elements_of_strided_memory() {
    let text = "kernel @k0 { read x: f32[3, 4]{1, 3} read scale: f32[] write y: f32[3, 4]{8, 1} grid i in 3
      scratch row: f32[2, 2]{5, 1}
      for j in 4 { %0: f32 = load x[i, j] %1: f32 = load scale[] %2: f32 = mul %0, %1
        row[floordiv(j, 2), mod(j, 2)] = %2 }
      for j in 4 { %3: f32 = load row[floordiv(3 - j, 2), mod(3 - j, 2)] y[i, j] = %3 } }";
    let kernel = litz_ir::text::kernel::parse(text).expect("parses");
    assert_eq!(litz_ir::verify::kernel::verify(&kernel), []);
    for compiled in Compiled::on_all(&kernel) {
        let mut x: Vec<f32> = (0..12).map(|n| n as f32).collect();
        let (mut scale, mut y) = ([10.0f32], [-1.0f32; 20]);
        compiled.run(&[], &[param(&mut x), param(&mut scale), param(&mut y)]);
        let expected = |at: usize| match (at / 8, at % 8) {
            (i, j @ 0..4) => 10.0 * (i + 3 * (3 - j)) as f32,
            _ => -1.0,
        };
        assert_eq!(y, std::array::from_fn(expected));
    }
}
