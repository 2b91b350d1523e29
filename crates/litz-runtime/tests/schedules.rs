//! Checks schedules that are written by hand on the reference device: whatever the loops, the numbers are those of the nests.

#![allow(missing_docs, reason = "a test")]

use litz_analysis::legality;
use litz_ir::{text, verify};
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::{RunError, Tensor};
use std::collections::HashMap;
use std::sync::Arc;

/// The loops program with that body under that schedule, everything verified.
#[track_caller]
fn build(body: &str, steps: &str) -> Executable {
    let loops =
        text::loops::parse(&format!("loops @t on cpu {{ {body} }}")).unwrap_or_else(|d| panic!("{}", d[0]));
    let diags = verify::loops::verify(&loops);
    assert!(diags.is_empty(), "{}", diags[0]);
    let schedule = format!("schedule @t of @t for cpu(isa=sse2, threads=1) {{ {steps} }}");
    let schedule = text::schedule::parse(&schedule).unwrap_or_else(|d| panic!("{}\n{schedule}", d[0]));
    let diags = legality::verify(&schedule, &loops);
    assert!(diags.is_empty(), "{}\n{schedule}", diags[0]);
    let realized = litz_codegen::realize(&loops, &schedule).unwrap_or_else(|d| panic!("{}", d[0]));
    for kernel in &realized.kernels {
        let diags = verify::kernel::verify(kernel);
        assert!(diags.is_empty(), "{}\n{kernel}", diags[0]);
    }
    let device = ReferenceDevice::new(&realized.kernels).unwrap_or_else(|e| panic!("{e}"));
    let (program, kernels) = (&realized.program, &realized.kernels);
    Executable::new(program, kernels, Arc::new(device), &HashMap::new()).unwrap_or_else(|e| panic!("{e}"))
}

/// Small whole numbers, so that sums are exact in any order.
fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7 + 3) % 11) as f32 - 5.0).collect()
}

fn tensor(sizes: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(sizes, values).expect("lengths match")
}

#[track_caller]
fn floats(executable: &Executable, inputs: &[Tensor]) -> Vec<f32> {
    let outputs = executable.run(inputs).unwrap_or_else(|e| panic!("{e}"));
    outputs[0].tensor().expect("a tensor").to_vec().expect("of f32")
}

/// Rows times columns of `x: [rows, 5]` and `w: [5, 6]`.
fn product(rows: usize, x: &[f32], w: &[f32]) -> Vec<f32> {
    let at = |i: usize, j: usize| (0..5).map(|k| x[5 * i + k] * w[6 * k + j]).sum();
    (0..rows).flat_map(|i| (0..6).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect()
}

fn product_nest(rows: &str) -> String {
    format!(
        "buf x: f32[{rows}, 5] = input buf w: f32[5, 6] = input buf y: f32[{rows}, 6]
         nest n0 from %y [i in {rows}, j in 6 | k in 5] {{
           %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2
           store y[i, j] = %3
         }}
         return y"
    )
}

/// Ways to run ten rows and six columns that tiles do not divide.
#[test]
fn static_tails() {
    let schedules = [
        "kernel k {
           parallel io in 3 {
             register accumulator of n0
             unroll ii in 4 {
               vector j in 6 by 4 { n0.init [i = 4*io + ii, j = j] masked }
             }
             for k in 5 {
               unroll ii in 4 {
                 vector j in 6 by 4 { n0.update [i = 4*io + ii, j = j, k = k] masked }
               }
             }
             unroll ii in 4 {
               vector j in 6 by 4 { n0.final [i = 4*io + ii, j = j] masked }
             }
           }
         }",
        "kernel k {
           parallel io in 4, jo in 2 {
             register accumulator of n0
             unroll ii in 3 {
               vector j in 4 by 4 { n0.init [i = 3*io + ii, j = 4*jo + j] masked }
             }
             for k in 5 {
               unroll ii in 3 {
                 vector j in 4 by 4 { n0.update [i = 3*io + ii, j = 4*jo + j, k = k] masked }
               }
             }
             unroll ii in 3 {
               vector j in 4 by 4 { n0.final [i = 3*io + ii, j = 4*jo + j] masked }
             }
           }
         }",
        "kernel k {
           register accumulator of n0
           for io in 2, jo in 2, ii in 7 {
             vector j in 4 by 4 {
               n0.init [i = 7*io + ii, j = 4*jo + j] masked
               for k in 5 { n0.update [i = 7*io + ii, j = 4*jo + j, k = k] masked }
               n0.final [i = 7*io + ii, j = 4*jo + j] masked
             }
           }
         }",
        // Blocks of two terms, the last of one.
        "kernel k {
           parallel io in 3 {
             scratch accumulator of n0
             unroll ii in 4 {
               vector j in 6 by 4 { n0.init [i = 4*io + ii, j = j] masked }
             }
             for kb in 3 {
               register accumulator of n0
               unroll ii in 4 {
                 vector j in 6 by 4 { n0.init [i = 4*io + ii, j = j] masked }
               }
               for ki in min(2, 5 - 2*kb) {
                 unroll ii in 4 {
                   vector j in 6 by 4 { n0.update [i = 4*io + ii, j = j, k = 2*kb + ki] masked }
                 }
               }
               unroll ii in 4 {
                 vector j in 6 by 4 { n0.merge [i = 4*io + ii, j = j] masked }
               }
             }
             unroll ii in 4 {
               vector j in 6 by 4 { n0.final [i = 4*io + ii, j = j] masked }
             }
           }
         }",
        // Rows and columns inside the reduction: one accumulator for each.
        "kernel k {
           scratch accumulator of n0
           for i in 10, j in 6 { n0.init [i = i, j = j] }
           for k in 5, i in 10 {
             vector j in 6 by 4 { n0.update [i = i, j = j, k = k] }
           }
           for i in 10, j in 6 { n0.final [i = i, j = j] }
         }",
        // The same by other loops, in which the last row comes first.
        "kernel k {
           scratch accumulator of n0
           for io in 5 {
             vector j in 6 by 4 {
               unroll ii in 2 { n0.init [i = 2*io + ii, j = j] }
             }
           }
           for k in 5, i in 10 {
             vector j in 6 by 4 { n0.update [i = i, j = j, k = k] }
           }
           for jo in 2, i in 10, ji in 3 { n0.final [i = i, j = 3*jo + ji] }
         }",
        "kernel k {
           parallel i in 10 {
             register accumulator of n0
             for j in 6 { n0.init [i = i, j = j] }
             for k in 5 {
               vector j in 6 by 4 { n0.update [i = i, j = j, k = k] }
             }
             for j in 6 { n0.final [i = i, j = j] }
           }
         }",
        // Copies of a vector loop along the reduced axis.
        "kernel k {
           parallel i in 10, j in 6 {
             register accumulator of n0
             n0.init [i = i, j = j]
             vector k in 5 by 2 copies 2 { n0.update [i = i, j = j, k = k] }
             n0.final [i = i, j = j]
           }
         }",
        "kernel k {
           parallel i in 10, j in 6 {
             register accumulator of n0
             n0.init [i = i, j = j]
             unroll k in 5 { n0.update [i = i, j = j, k = k] }
             n0.final [i = i, j = j]
           }
         }",
    ];
    let (x, w) = (numbers(50), numbers(30));
    let expected = product(10, &x, &w);
    for steps in schedules {
        let executable = build(&product_nest("10"), steps);
        assert_eq!(floats(&executable, &[tensor(&[10, 5], &x), tensor(&[5, 6], &w)]), expected, "{steps}");
    }
}

/// Rows known at run time: a last tile of every height, and none.
#[test]
fn dynamic_tails() {
    let schedules = [
        "kernel k {
           parallel io in ceildiv(s0, 4) {
             register accumulator of n0
             unroll ii in 4 {
               vector j in 6 by 4 { n0.init [i = 4*io + ii, j = j] masked }
             }
             for k in 5 {
               unroll ii in 4 {
                 vector j in 6 by 4 { n0.update [i = 4*io + ii, j = j, k = k] masked }
               }
             }
             unroll ii in 4 {
               vector j in 6 by 4 { n0.final [i = 4*io + ii, j = j] masked }
             }
           }
         }",
        // Lanes along the rows: the last ones are masked.
        "kernel k {
           parallel io in ceildiv(s0, 8), j in 6 {
             register accumulator of n0
             vector ii in 8 by 4 { n0.init [i = 8*io + ii, j = j] masked }
             for k in 5 {
               vector ii in 8 by 4 { n0.update [i = 8*io + ii, j = j, k = k] masked }
             }
             vector ii in 8 by 4 { n0.final [i = 8*io + ii, j = j] masked }
           }
         }",
        "kernel k {
           parallel io in ceildiv(s0, 8), j in 6 {
             register accumulator of n0
             vector ii in 8 by 4 {
               n0.init [i = 8*io + ii, j = j] masked
               for k in 5 { n0.update [i = 8*io + ii, j = j, k = k] masked }
               n0.final [i = 8*io + ii, j = j] masked
             }
           }
         }",
    ];
    let body = format!("sym s0 in [0, 64] {}", product_nest("s0"));
    for steps in schedules {
        let executable = build(&body, steps);
        for rows in [0, 1, 3, 4, 5, 8, 9, 17] {
            let (x, w) = (numbers(5 * rows), numbers(30));
            let found = floats(&executable, &[tensor(&[rows, 5], &x), tensor(&[5, 6], &w)]);
            assert_eq!(found, product(rows, &x, &w), "{rows} rows, {steps}");
        }
    }
}

/// Both parts of a joined row stay in the kernel, in one buffer.
#[test]
fn local_buffers_with_several_writers() {
    let body = "buf x: f32[3, 5] = input buf z: f32[3, 4] = input buf a: f32[3, 9] buf y: f32[3, 9]
        nest n0 from %a [i in 3, j in 5] { %0: f32 = load x[i, j] store a[i, j] = %0 }
        nest n1 from %a [i in 3, j in 4] { %0: f32 = load z[i, j] store a[i, j + 5] = %0 }
        nest n2 from %y [i in 3, j in 9] { %0: f32 = load a[i, -j + 8] store y[i, j] = %0 }
        return y";
    let (x, z) = (numbers(15), numbers(12));
    let row = |i: usize| x[5 * i..5 * i + 5].iter().chain(&z[4 * i..4 * i + 4]).rev().copied();
    let expected: Vec<f32> = (0..3).flat_map(row).collect();
    let rows = "vector a0 in 5 by 4 { n0 [i = i, j = a0] } vector a1 in 4 by 4 { n1 [i = i, j = a1] }
                vector a2 in 9 by 4 { n2 [i = i, j = a2] }";
    for steps in [
        format!("kernel k {{ parallel i in 3 {{ scratch a {rows} }} }}"),
        format!("kernel k {{ for i in 3 {{ scratch a {rows} }} }}"),
        format!("kernel k {{ scratch a for i in 3 {{ {rows} }} }}"),
        // Loops one after another may share a name.
        format!(
            "kernel k {{ parallel i in 3 {{ scratch a {} }} }}",
            rows.replace("a1", "a0").replace("a2", "a0")
        ),
    ] {
        let found = floats(&build(body, &steps), &[tensor(&[3, 5], &x), tensor(&[3, 4], &z)]);
        assert_eq!(found, expected, "{steps}");
    }
}

/// An index read past the end is no index: lanes that are masked check nothing. Those in range are checked.
#[test]
fn guarded_binds() {
    let body = "sym s0 in [0, 64] buf x: f32[7] = input buf t: i64[s0] = input buf y: f32[s0]
        nest n0 from %y [i in s0] { %0: i64 = load t[i] bind t0 = %0 in 7 %2: f32 = load x[t0] store y[i] = %2 }
        return y";
    let steps = "kernel k {
           parallel io in ceildiv(s0, 4) {
             vector ii in 4 by 4 { n0 [i = 4*io + ii] masked }
           }
         }";
    let executable = build(body, steps);
    let x = tensor(&[7], &[10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]);
    for n in [1, 4, 6] {
        let at: Vec<i64> = (0..n).map(|i| (i * 3 + 1) % 7).collect();
        let indices = Tensor::from_slice(&[n as usize], &at).expect("lengths match");
        let expected: Vec<f32> = at.iter().map(|&t| 10.0 + t as f32).collect();
        assert_eq!(floats(&executable, &[x.clone(), indices]), expected);
    }
    for wrong in [7i64, -1] {
        let indices = Tensor::from_slice(&[5], &[0, 1, 2, 3, wrong]).expect("lengths match");
        let error: RunError = executable.run(&[x.clone(), indices]).expect_err("there is no such element");
        assert!(error.to_string().contains("index of y is out of range"), "{error}");
    }
}

#[test]
fn scans() {
    let body = "buf x: f32[3, 7] = input buf y: f32[3, 7]
        nest n0 from %y [i in 3, j in 7] { %0: f32 = load x[i, j] %1: f32 = scan.sum %0 over j store y[i, j] = %1 }
        return y";
    let x = numbers(21);
    let running = |row: &[f32]| -> Vec<f32> {
        row.iter()
            .scan(0.0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect()
    };
    let expected: Vec<f32> = x.chunks(7).flat_map(running).collect();
    for steps in [
        "kernel k {
           parallel i in 3 {
             register accumulator of n0
             n0.init [i = i]
             for j in 7 { n0 [i = i, j = j] }
           }
         }",
        "kernel k {
           for i in 3 {
             register accumulator of n0
             n0.init [i = i]
             for j in 7 { n0 [i = i, j = j] }
           }
         }",
        // Rows side by side: one running value for each.
        "kernel k {
           register accumulator of n0
           vector i in 3 by 4 { n0.init [i = i] }
           for j in 7 {
             vector i in 3 by 4 { n0 [i = i, j = j] }
           }
         }",
        "kernel k {
           scratch accumulator of n0
           for r in 3 { n0.init [i = r] }
           for j in 7, i in 3 { n0 [i = i, j = j] }
         }",
    ] {
        assert_eq!(floats(&build(body, steps), &[tensor(&[3, 7], &x)]), expected, "{steps}");
    }
}

/// The first of equals wins, NaN beats all, and positions count over both reduced axes row by row.
#[test]
fn arg_reductions() {
    let body = |op: &str| {
        format!(
            "buf x: f32[4, 2, 3] = input buf y: i64[4]
             nest n0 from %y [i in 4 | p in 2, q in 3] {{
               %0: f32 = load x[i, p, q] %1: i64 = {op} %0 store y[i] = %1
             }}
             return y"
        )
    };
    let nan = f32::NAN;
    let x = [
        1.0, 5.0, 2.0, 5.0, 0.0, 0.0, // a tie
        nan, 9.0, nan, 0.0, 0.0, 0.0, // NaN first
        -1.0, -2.0, -3.0, -4.0, -5.0, -6.0, // all negative
        0.0, 0.0, 0.0, 0.0, 0.0, nan, // NaN last
    ];
    for (op, expected) in [("reduce.argmax", [1, 0, 0, 5]), ("reduce.argmin", [4, 0, 5, 5])] {
        for steps in [
            "kernel k {
           parallel i in 4 {
             register accumulator of n0
             n0.init [i = i]
             for p in 2, q in 3 { n0.update [i = i, p = p, q = q] }
             n0.final [i = i]
           }
         }",
            "kernel k {
           register accumulator of n0
           vector i in 4 by 4 { n0.init [i = i] }
           for p in 2, q in 3 {
             vector i in 4 by 4 { n0.update [i = i, p = p, q = q] }
           }
           vector i in 4 by 4 { n0.final [i = i] }
         }",
        ] {
            let executable = build(&body(op), steps);
            let outputs = executable.run(&[tensor(&[4, 2, 3], &x)]).unwrap_or_else(|e| panic!("{e}"));
            let found: Vec<i64> = outputs[0].tensor().expect("a tensor").to_vec().expect("of i64");
            assert_eq!(found, expected, "{op}, {steps}");
        }
    }
}
