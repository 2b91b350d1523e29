//! Reductions: every operation, argument reductions, rows, scatters, atomics.

use litz_ir::kernel::{Act, Kernel, Op, Stmt};
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_llvm::Processor;
use litz_runtime::reference::{self, MemView};

use crate::harness::*;

/// `y[i] = reduce(op, x[i, :])` through a register.
fn rows(op: ReduceOp, dtype: Dtype, shape: [u32; 2]) -> Compiled {
    Compiled::new(rows_kernel(op, dtype, shape))
}

fn rows_kernel(op: ReduceOp, dtype: Dtype, shape: [u32; 2]) -> Kernel {
    let mut k = Build::new();
    k.size("s0", 0, 10_000);
    let x = k.read("x", dtype, "3*s0");
    let y = k.write("y", dtype, "3");
    let acc = k.register("acc", dtype.compute(), "1");
    k.grid("i", "3");
    let start = k.define(dtype.compute(), Op::Const(op.identity(dtype)));
    k.store(acc, "0", start);
    k.vector("j", "s0", shape, |k| {
        let a = k.load(x, "s0*i + j");
        k.combine(acc, "0", op, a);
    });
    let all = k.load(acc, "0");
    k.store(y, "i", all);
    k.finish()
}

/// Lanes and copies add up in one order, bit for bit, wherever they run.
#[test]
fn sums_of_lanes_are_those_of_the_reference_device() {
    for shape in SHAPES {
        let kernel = rows_kernel(ReduceOp::Sum, Dtype::F32, shape);
        let kernel = passed(&kernel, &Processor::host()).expect("the passes take it");
        let compiled = Compiled::new(kernel.clone());
        for n in LENGTHS {
            let (mut x, mut found, mut expected) = (numbers(3 * n), [0.0f32; 3], [0u8; 12]);
            let bytes: Vec<u8> = x.iter().flat_map(|value| value.to_ne_bytes()).collect();
            let mut args = [MemView::Read(&bytes), MemView::Write(&mut expected)];
            reference::run(&kernel, &mut args, &[n as i64]).expect("it runs");
            compiled.run(&[n as i64], &[param(&mut x), param(&mut found)]);
            let found: Vec<u8> = found.iter().flat_map(|value| value.to_ne_bytes()).collect();
            assert_eq!(found, expected, "{shape:?}, {n} elements");
        }
    }
}

/// What a lane combines is there when the loop reads it.
#[test]
fn sums_read_in_the_loop_that_adds_to_them() {
    let mut k = Build::new();
    let x = k.read("x", Dtype::F32, "3");
    let y = k.write("y", Dtype::F32, "3");
    let acc = k.scratch("acc", Dtype::F32, "1");
    let zero = k.float(0.0);
    k.store(acc, "0", zero);
    k.each("i", "3", |k| {
        k.vector("j", "1", [4, 1], |k| {
            let a = k.load(x, "i");
            k.combine(acc, "0", ReduceOp::Sum, a);
            let b = k.load(acc, "0");
            k.store(y, "i", b);
        });
    });
    let (mut x, mut y) = ([1.0f32, 2.0, 4.0], [0.0f32; 3]);
    Compiled::new(k.finish()).run(&[], &[param(&mut x), param(&mut y)]);
    assert_eq!(y, [1.0, 3.0, 7.0]);
}

const LENGTHS: [usize; 9] = [0, 1, 15, 16, 17, 64, 65, 100, 1000];
const SHAPES: [[u32; 2]; 4] = [[16, 1], [16, 4], [8, 3], [1, 1]];

#[test]
fn sums_and_products_of_floats() {
    for shape in SHAPES {
        let (sum, product) =
            (rows(ReduceOp::Sum, Dtype::F32, shape), rows(ReduceOp::Prod, Dtype::F32, shape));
        for n in LENGTHS {
            let mut x = numbers(3 * n);
            let mut y = [0.0f32; 3];
            sum.run(&[n as i64], &[param(&mut x), param(&mut y)]);
            let expected: Vec<f32> =
                (0..3).map(|i| x[i * n..][..n].iter().map(|&x| f64::from(x)).sum::<f64>() as f32).collect();
            assert_close(&y, &expected, 1e-4);
            let mut x: Vec<f32> = x.iter().map(|x| 1.0 + x / 100.0).collect();
            product.run(&[n as i64], &[param(&mut x), param(&mut y)]);
            let expected: Vec<f32> = (0..3)
                .map(|i| x[i * n..][..n].iter().map(|&x| f64::from(x)).product::<f64>() as f32)
                .collect();
            assert_close(&y, &expected, 1e-4);
        }
    }
}

#[test]
fn extremes_let_nan_win() {
    for shape in SHAPES {
        for (op, is_better) in [(ReduceOp::Max, f32::max as fn(f32, f32) -> f32), (ReduceOp::Min, f32::min)] {
            let kernel = rows(op, Dtype::F32, shape);
            for n in LENGTHS {
                for nan in [None, Some(0), Some(n / 2), Some(n.saturating_sub(1))] {
                    let mut x = numbers(3 * n);
                    if let Some(at) = nan.filter(|_| n > 0) {
                        x[n + at] = f32::NAN;
                    }
                    let mut y = [0.0f32; 3];
                    kernel.run(&[n as i64], &[param(&mut x), param(&mut y)]);
                    let identity = if op == ReduceOp::Max { f32::NEG_INFINITY } else { f32::INFINITY };
                    for i in 0..3 {
                        let row = &x[i * n..][..n];
                        let mut expected = row.iter().copied().fold(identity, is_better);
                        if row.iter().any(|x| x.is_nan()) {
                            expected = f32::NAN;
                        }
                        assert_eq!(
                            y[i].to_bits() & 0x7fff_ffff,
                            expected.to_bits() & 0x7fff_ffff,
                            "{n} {nan:?} {i}"
                        );
                    }
                }
            }
        }
    }
}

/// All reductions of one integer type against a fold of Rust's operations.
macro_rules! check_integers {
    ($($ty:ty = $dtype:ident),*) => {$({
        let folds: [(ReduceOp, $ty, fn($ty, $ty) -> $ty); 7] = [
            (ReduceOp::Sum, 0, <$ty>::wrapping_add),
            (ReduceOp::Prod, 1, <$ty>::wrapping_mul),
            (ReduceOp::Max, <$ty>::MIN, <$ty>::max),
            (ReduceOp::Min, <$ty>::MAX, <$ty>::min),
            (ReduceOp::Any, 0, |a, b| a | b),
            (ReduceOp::All, 1, |a, b| a & b),
            (ReduceOp::Xor, 0, |a, b| a ^ b),
        ];
        for (op, identity, fold) in folds {
            let kernel = rows(op, Dtype::$dtype, [16, 2]);
            for n in [0, 1, 16, 50, 100] {
                let mut x: Vec<$ty> = numbers(3 * n).iter().map(|x| (x * 1e9) as i64 as $ty | 1).collect();
                let mut y = [77 as $ty; 3];
                kernel.run(&[n as i64], &[param(&mut x), param(&mut y)]);
                for i in 0..3 {
                    let expected = x[i * n..][..n].iter().copied().fold(identity, fold);
                    assert_eq!(y[i], expected, "{} of {n} {}", op.name(), Dtype::$dtype);
                }
            }
        }
    })*};
}

#[test]
fn integers() {
    check_integers!(i8 = I8, u8 = U8, i16 = I16, u16 = U16, i32 = I32, u32 = U32, i64 = I64, u64 = U64);
}

#[test]
fn bools() {
    for (op, expected) in [(ReduceOp::Any, [true, false, true]), (ReduceOp::All, [false, false, true])] {
        let kernel = rows(op, Dtype::Bool, [16, 1]);
        let mut x = [vec![0u8; 35], vec![0; 35], vec![1; 35]].concat();
        x[30] = 1;
        let mut y = [9u8; 3];
        kernel.run(&[35], &[param(&mut x), param(&mut y)]);
        assert_eq!(y.map(|y| y == 1), expected);
        assert!(y.iter().all(|&y| y <= 1));
    }
}

fn arg_rows(max: bool, shape: [u32; 2], through_memory: bool) -> Compiled {
    let mut k = Build::new();
    k.size("s0", 1, 10_000);
    let x = k.read("x", Dtype::F32, "2*s0");
    let y = k.write("y", Dtype::F32, "2");
    let at = k.write("at", Dtype::I64, "2");
    let (best, place, index) = if through_memory {
        (y, at, "i")
    } else {
        (k.register("b", Dtype::F32, "1"), k.register("p", Dtype::I64, "1"), "0")
    };
    k.grid("i", "2");
    let op = if max { ReduceOp::Max } else { ReduceOp::Min };
    let start = k.define(Dtype::F32, Op::Const(op.identity(Dtype::F32)));
    let zero = k.define(Dtype::I64, Op::Const(Scalar::Int(0)));
    k.store(best, index, start);
    k.store(place, index, zero);
    k.vector("j", "s0", shape, |k| {
        let value = k.load(x, "s0*i + j");
        k.push(Stmt::Act(Act::ArgStore {
            max,
            best,
            at: place,
            index: vec![e(index)],
            value,
            position: e("j"),
        }));
    });
    if !through_memory {
        let (value, position) = (k.load(best, index), k.load(place, index));
        k.store(y, "i", value);
        k.store(at, "i", position);
    }
    Compiled::new(k.finish())
}

#[test]
fn argument_reductions_take_the_first_of_equals_and_nan() {
    for max in [true, false] {
        for (shape, through_memory) in SHAPES.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
            let kernel = arg_rows(max, shape, through_memory);
            let worst = if max { f32::NEG_INFINITY } else { f32::INFINITY };
            for n in [1usize, 2, 15, 16, 17, 40, 64, 100, 333] {
                let rows: [Vec<f32>; 5] = [
                    numbers(n),
                    numbers(n).iter().map(|x| x.round()).collect(),
                    vec![worst; n],
                    vec![1.0; n],
                    (0..n).map(|i| if i % 7 == 5 { f32::NAN } else { i as f32 }).collect(),
                ];
                for row in rows {
                    let mut x = [row.clone(), numbers(n)].concat();
                    let (mut y, mut at) = ([0.0f32; 2], [9i64; 2]);
                    kernel.run(&[n as i64], &[param(&mut x), param(&mut y), param(&mut at)]);
                    let beats = |a: f32, b: f32| if max { a > b } else { a < b };
                    let expected = (1..n).fold(0, |best, i| {
                        let is_better = beats(row[i], row[best]) || (row[i].is_nan() && !row[best].is_nan());
                        if is_better { i } else { best }
                    });
                    assert_eq!(at[0], expected as i64, "{n} {row:?}");
                    assert!(y[0] == row[expected] || row[expected].is_nan() && y[0].is_nan());
                }
            }
        }
    }
}

/// Three passes over a row: maximum, sum of exponentials, quotient.
#[test]
fn softmax() {
    let mut k = Build::new();
    k.size("s0", 1, 100);
    k.size("s1", 1, 10_000);
    let x = k.read("x", Dtype::F32, "s0*s1");
    let y = k.write("y", Dtype::F32, "s0*s1");
    let largest = k.register("largest", Dtype::F32, "1");
    let sum = k.register("sum", Dtype::F32, "1");
    let row = k.scratch("row", Dtype::F32, "s1");
    k.grid("i", "s0");
    let start = k.float(f64::NEG_INFINITY);
    k.store(largest, "0", start);
    k.vector("j", "s1", [16, 4], |k| {
        let a = k.load(x, "s1*i + j");
        k.combine(largest, "0", ReduceOp::Max, a);
    });
    let zero = k.float(0.0);
    k.store(sum, "0", zero);
    k.vector("j", "s1", [16, 2], |k| {
        let a = k.load(x, "s1*i + j");
        let m = k.load(largest, "0");
        let d = k.call(ScalarOp::Sub, &[a, m]);
        let exp = k.call(ScalarOp::Exp, &[d]);
        k.store(row, "j", exp);
        k.combine(sum, "0", ReduceOp::Sum, exp);
    });
    k.vector("j", "s1", [16, 1], |k| {
        let a = k.load(row, "j");
        let s = k.load(sum, "0");
        let q = k.call(ScalarOp::Div, &[a, s]);
        k.store(y, "s1*i + j", q);
    });
    let kernel = Compiled::new(k.finish());
    for n in [1usize, 7, 16, 100, 1000] {
        let mut x = numbers(3 * n);
        let mut y = vec![0.0f32; 3 * n];
        kernel.run(&[3, n as i64], &[param(&mut x), param(&mut y)]);
        for i in 0..3 {
            let row = &x[i * n..][..n];
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = row.iter().map(|x| f64::from(x - largest).exp()).sum();
            let expected: Vec<f32> =
                row.iter().map(|x| (f64::from(x - largest).exp() / sum) as f32).collect();
            assert_close(&y[i * n..][..n], &expected, 1e-6);
        }
    }
}

/// Mean and variance of rows of f64, with weights, through memory of the row.
#[test]
fn layer_norm() {
    let mut k = Build::new();
    let n = 100usize;
    k.size("s0", 1, 100);
    let x = k.read("x", Dtype::F64, "100*s0");
    let w = k.read("w", Dtype::F64, "100");
    let y = k.write("y", Dtype::F64, "100*s0");
    let stats = k.register("stats", Dtype::F64, "2");
    k.grid("i", "s0");
    k.unroll("q", "2", |k| {
        let zero = k.define(Dtype::F64, Op::Const(Scalar::Float(0.0)));
        k.store(stats, "q", zero);
    });
    k.vector("j", "100", [8, 2], |k| {
        let a = k.load(x, "100*i + j");
        let square = k.call(ScalarOp::Mul, &[a, a]);
        k.combine(stats, "0", ReduceOp::Sum, a);
        k.combine(stats, "1", ReduceOp::Sum, square);
    });
    k.vector("j", "100", [8, 1], |k| {
        let inverse = k.define(Dtype::F64, Op::Const(Scalar::Float(1.0 / n as f64)));
        let (sum, squares) = (k.load(stats, "0"), k.load(stats, "1"));
        let mean = k.call(ScalarOp::Mul, &[sum, inverse]);
        let second = k.call(ScalarOp::Mul, &[squares, inverse]);
        let square = k.call(ScalarOp::Mul, &[mean, mean]);
        let variance = k.call(ScalarOp::Sub, &[second, square]);
        let scale = k.call(ScalarOp::Rsqrt, &[variance]);
        let a = k.load(x, "100*i + j");
        let b = k.load(w, "j");
        let d = k.call(ScalarOp::Sub, &[a, mean]);
        let d = k.call(ScalarOp::Mul, &[d, scale]);
        let d = k.call(ScalarOp::Mul, &[d, b]);
        k.store(y, "100*i + j", d);
    });
    let kernel = Compiled::new(k.finish());
    let mut x: Vec<f64> = numbers(5 * n).iter().map(|&x| f64::from(x)).collect();
    let mut w: Vec<f64> = x[17..][..n].to_vec();
    let mut y = vec![0.0f64; 5 * n];
    kernel.run(&[5], &[param(&mut x), param(&mut w), param(&mut y)]);
    for i in 0..5 {
        let row = &x[i * n..][..n];
        let mean = row.iter().sum::<f64>() / n as f64;
        let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
        for j in 0..n {
            let expected = (row[j] - mean) / variance.sqrt() * w[j];
            assert!((y[i * n + j] - expected).abs() < 1e-11, "{i} {j}");
        }
    }
}

/// Sums down the columns: every lane has a register of its own, and an inner loop.
#[test]
fn columns() {
    let mut k = Build::new();
    k.size("s0", 0, 100);
    k.size("s1", 0, 100);
    let x = k.read("x", Dtype::F32, "s0*s1");
    let y = k.write("y", Dtype::F32, "s1");
    let acc = k.register("acc", Dtype::F32, "1");
    k.vector("j", "s1", [16, 2], |k| {
        let zero = k.float(0.0);
        k.store(acc, "0", zero);
        k.each("i", "s0", |k| {
            let a = k.load(x, "s1*i + j");
            k.combine(acc, "0", ReduceOp::Sum, a);
        });
        let all = k.load(acc, "0");
        k.store(y, "j", all);
    });
    let kernel = Compiled::new(k.finish());
    for (m, n) in [(0usize, 5usize), (1, 16), (7, 33), (20, 64)] {
        let mut x = numbers(m * n);
        let mut y = vec![5.0f32; n];
        kernel.run(&[m as i64, n as i64], &[param(&mut x), param(&mut y)]);
        let expected: Vec<f32> = (0..n).map(|j| (0..m).map(|i| x[i * n + j]).sum()).collect();
        assert_close(&y, &expected, 1e-5);
    }
}

/// The row of the largest element of each column: every lane searches on its own.
#[test]
fn argument_reductions_of_columns() {
    let mut k = Build::new();
    k.size("s0", 1, 100);
    let x = k.read("x", Dtype::F32, "6*s0");
    let y = k.write("y", Dtype::I64, "s0");
    let best = k.register("best", Dtype::F32, "1");
    let at = k.register("at", Dtype::I64, "1");
    k.vector("j", "s0", [8, 1], |k| {
        let start = k.float(f64::NEG_INFINITY);
        let zero = k.define(Dtype::I64, Op::Const(Scalar::Int(0)));
        k.store(best, "0", start);
        k.store(at, "0", zero);
        k.each("i", "6", |k| {
            let value = k.load(x, "s0*i + j");
            k.push(Stmt::Act(Act::ArgStore {
                max: true,
                best,
                at,
                index: vec![e("0")],
                value,
                position: e("i"),
            }));
        });
        let all = k.load(at, "0");
        k.store(y, "j", all);
    });
    let kernel = Compiled::new(k.finish());
    for n in [1usize, 8, 21] {
        let mut x: Vec<f32> = numbers(6 * n).iter().map(|x| x.round()).collect();
        x[n * 4] = f32::NAN;
        let mut y = vec![9i64; n];
        kernel.run(&[n as i64], &[param(&mut x), param(&mut y)]);
        for j in 0..n {
            let column: Vec<f32> = (0..6).map(|i| x[n * i + j]).collect();
            let is_better = |a: f32, b: f32| a > b || (a.is_nan() && !b.is_nan());
            let expected =
                (1..6).fold(0, |best, i| if is_better(column[i], column[best]) { i } else { best });
            assert_eq!(y[j], expected as i64, "{column:?}");
        }
    }
}

/// An accumulator in memory, over nested loops, with a guard that varies.
#[test]
fn accumulates_into_memory() {
    let mut k = Build::new();
    k.size("s0", 0, 100);
    let x = k.read("x", Dtype::F32, "s0*s0");
    let y = k.write("y", Dtype::F32, "1");
    k.each("i", "s0", |k| {
        k.vector("j", "s0", [8, 2], |k| {
            let value = k.load(x, "s0*i + j");
            k.push(Stmt::Act(Act::Store {
                mem: y,
                index: vec![e("0")],
                value,
                combine: Some(ReduceOp::Sum),
                guard: vec![rel("j <= i")],
                atomic: false,
            }));
        });
    });
    let kernel = Compiled::new(k.finish());
    for n in [0usize, 1, 9, 50] {
        let mut x = numbers(n * n);
        let mut y = [3.0f32];
        kernel.run(&[n as i64], &[param(&mut x), param(&mut y)]);
        let expected: f32 = 3.0 + (0..n).flat_map(|i| x[n * i..][..=i].iter()).sum::<f32>();
        assert_close(&y, &[expected], 1e-4);
    }
}

/// `y[index[j]] += x[j]` with many equal indices, plain and atomic, f32 and bf16.
#[test]
fn scatters_with_conflicts() {
    for atomic in [false, true] {
        for dtype in [Dtype::F32, Dtype::BF16] {
            let mut k = Build::new();
            k.size("s0", 0, 1000);
            let index = k.read("index", Dtype::I64, "s0");
            let x = k.read("x", Dtype::F32, "s0");
            let y = k.write("y", dtype, "5");
            k.kernel.checks.push("index out of range".into());
            k.vector("j", "s0", [16, 1], |k| {
                let at = k.load(index, "j");
                k.push(Stmt::Act(Act::Bind {
                    sym: litz_sym::Sym::new("t"),
                    value: at,
                    extent: e("5"),
                    check: 0,
                }));
                let value = k.load(x, "j");
                let combine = Some(ReduceOp::Sum);
                k.push(Stmt::Act(Act::Store {
                    mem: y,
                    index: vec![e("t")],
                    value,
                    combine,
                    guard: Vec::new(),
                    atomic,
                }));
            });
            let kernel = Compiled::new(k.finish());
            for n in [0usize, 5, 16, 100] {
                let mut index: Vec<i64> = (0..n as i64).map(|i| i * i % 5).collect();
                // Small integers: sums are exact in both types.
                let mut x: Vec<f32> = (0..n).map(|i| (i % 3) as f32).collect();
                let mut expected = [0.0f32; 5];
                (0..n).for_each(|i| expected[index[i] as usize] += x[i]);
                let mut wide = [0.0f32; 5];
                let mut narrow = [0u16; 5];
                let y = if dtype == Dtype::F32 { param(&mut wide) } else { param(&mut narrow) };
                kernel.run(&[n as i64], &[param(&mut index), param(&mut x), y]);
                if dtype == Dtype::BF16 {
                    wide = narrow.map(|bits| f32::from_bits(u32::from(bits) << 16));
                }
                assert_eq!(wide, expected, "{n} {dtype} {atomic}");
            }
        }
    }
}

/// A failed check is reported by its number and ends the call.
#[test]
fn binds_are_checked() {
    for lanes in [16, 1] {
        let mut k = Build::new();
        k.size("s0", 0, 1000);
        let index = k.read("index", Dtype::I64, "s0");
        let table = k.read("table", Dtype::F32, "50");
        let y = k.write("y", Dtype::F32, "s0");
        k.kernel.checks.extend(["first".to_string(), "second".to_string()]);
        k.vector("j", "s0", [lanes, 1], |k| {
            let at = k.load(index, "j");
            k.push(Stmt::Act(Act::Bind {
                sym: litz_sym::Sym::new("t"),
                value: at,
                extent: e("10"),
                check: 1,
            }));
            let value = k.load(table, "5*t + 3");
            k.store(y, "j", value);
        });
        let kernel = Compiled::new(k.finish());
        let mut table = numbers(50);
        for n in [1usize, 16, 21] {
            for (bad, status) in [(0, 0), (9, 0), (10, 2), (-1, 2), (i64::MAX, 2), (i64::MIN, 2)] {
                for place in [0, n - 1] {
                    let mut index: Vec<i64> = (0..n as i64).map(|i| i % 10).collect();
                    index[place] = bad;
                    let mut y = vec![0.0f32; n];
                    let params = [param(&mut index), param(&mut table), param(&mut y)];
                    assert_eq!(kernel.run_chunks(&[n as i64], &params, 1), status, "{n} {bad} {place}");
                    if status == 0 {
                        assert!((0..n).all(|j| y[j] == table[5 * index[j] as usize + 3]));
                    }
                }
            }
        }
    }
}

/// An index that does not change in a loop is loaded before it, but what it selects only behind the check.
#[test]
fn checked_loads_stay_behind_the_check() {
    let mut k = Build::new();
    let index = k.read("index", Dtype::I64, "1");
    let table = k.read("table", Dtype::F32, "10");
    let y = k.write("y", Dtype::F32, "4");
    k.kernel.checks.push("out of range".into());
    k.each("i", "4", |k| {
        let at = k.load(index, "0");
        k.push(Stmt::Act(Act::Bind { sym: litz_sym::Sym::new("t"), value: at, extent: e("10"), check: 0 }));
        let value = k.load(table, "t");
        k.store(y, "i", value);
    });
    let kernel = Compiled::new(k.finish());
    let (mut index, mut table, mut y) = ([7i64], numbers(10), [0.0f32; 4]);
    kernel.run(&[], &[param(&mut index), param(&mut table), param(&mut y)]);
    assert_eq!(y, [table[7]; 4]);
    index[0] = 1 << 50;
    assert_eq!(kernel.run_chunks(&[], &[param(&mut index), param(&mut table), param(&mut y)], 1), 1);
}

/// Lanes of different copies add to the same elements: no copy may read before the one before it has written.
#[test]
fn copies_that_meet_in_memory_keep_their_order() {
    let mut k = Build::new();
    let x = k.read("x", Dtype::F32, "256");
    let y = k.write("y", Dtype::F32, "3");
    k.vector("j", "256", [16, 4], |k| {
        let a = k.load(x, "j");
        k.combine(y, "mod(j, 3)", ReduceOp::Sum, a);
    });
    let kernel = Compiled::new(k.finish());
    let mut x: Vec<f32> = (0..256).map(|n| n as f32).collect();
    let mut y = vec![0.0f32; 3];
    kernel.run(&[], &[param(&mut x), param(&mut y)]);
    let sum = |rest: usize| x.iter().skip(rest).step_by(3).sum::<f32>();
    assert_eq!(y, [sum(0), sum(1), sum(2)]);
}
