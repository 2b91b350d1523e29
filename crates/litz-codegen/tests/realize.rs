//! Schedules written by hand, to kernels whose text is the point, and schedules that do not fit.

#![allow(missing_docs, reason = "a test")]

use litz_codegen::{Realized, realize};
use litz_ir::{Diags, text, verify};
use std::fmt::Write;

/// Applies the steps to the loops program with that body.
fn try_realize(body: &str, steps: &str) -> Result<Realized, Diags> {
    let loops =
        text::loops::parse(&format!("loops @t on cpu {{ {body} }}")).unwrap_or_else(|d| panic!("{}", d[0]));
    let schedule = format!("schedule @t of @t for cpu(isa=sse2, threads=1) {{ {steps} }}");
    let schedule = text::schedule::parse(&schedule).unwrap_or_else(|d| panic!("{}\n{schedule}", d[0]));
    realize(&loops, &schedule)
}

#[track_caller]
fn realized(body: &str, steps: &str) -> Realized {
    let realized = try_realize(body, steps).unwrap_or_else(|d| panic!("{}", d[0]));
    for kernel in &realized.kernels {
        let diags = verify::kernel::verify(kernel);
        assert!(diags.is_empty(), "{}\n{kernel}", diags[0]);
    }
    let diags = verify::program::verify(&realized.program);
    assert!(diags.is_empty(), "{}\n{}", diags[0], realized.program);
    realized
}

/// The text of the only kernel.
#[track_caller]
fn check(body: &str, steps: &str, expected: &str) {
    let realized = realized(body, steps);
    let [kernel] = realized.kernels.as_slice() else { panic!("expected one kernel") };
    let found = kernel.to_string();
    let expected = expected.trim_matches('\n');
    assert_eq!(found.trim_end(), expected, "\nfound:\n{found}\nexpected:\n{expected}");
}

const PRODUCT: &str = "buf x: f32[10, 5] = input buf w: f32[5, 6] = const \"w\" buf y: f32[10, 6]
    nest n0 from %y [i in 10, j in 6 | k in 5] {
      %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2
      store y[i, j] = %3
    }
    return y";

const ROWS: &str = "sym s0 in [1, 64]
    buf x: f32[s0, 6] = input buf y: f32[s0, 6]
    nest n0 from %y [i in s0, j in 6] { %0: f32 = load x[i, j] %1: f32 = neg %0 store y[i, j] = %1 }
    return y";

/// The sums of a tile of so many rows.
fn tile(rows: u32) -> String {
    let points = |leaf: &str| format!("unroll ii in {rows} {{ vector j in 6 by 4 {{ {leaf} }} }}");
    let [init, update, end] = [
        points("n0.init [i = 4*io + ii, j = j]"),
        points("n0.update [i = 4*io + ii, j = j, k = k]"),
        points("n0.final [i = 4*io + ii, j = j]"),
    ];
    format!("register accumulator of n0 {init} for k in 5 {{ {update} }} {end}")
}

/// The last tile has a constant number of rows, and is known.
#[test]
fn static_remainder() {
    check(
        PRODUCT,
        &format!(
            "kernel k0 {{ parallel io in 3 {{ if 4 <= -4*io + 10 {{ {} }} else {{ {} }} }} }}",
            tile(4),
            tile(2)
        ),
        "
kernel @k0 from n0 {
  read x: f32[50]
  read w: f32[30]
  write y: f32[60]
  grid io in 3
  register n0_acc3: f32[32]
  register n0_acc3_1: f32[16]
  if 4 <= -4*io + 10 {
    unroll ii in 4 {
      vector j in 6 by 4 {
        %0: f32 = const 0.0
        n0_acc3[8*ii + j] = %0
      }
    }
    for k in 5 {
      unroll ii in 4 {
        vector j in 6 by 4 {
          %1: f32 = load x[5*ii + 20*io + k]
          %2: f32 = load w[j + 6*k]
          %3: f32 = mul %1, %2
          n0_acc3[8*ii + j] sum= %3
        }
      }
    }
    unroll ii in 4 {
      vector j in 6 by 4 {
        %4: f32 = load n0_acc3[8*ii + j]
        y[6*ii + 24*io + j] = %4
      }
    }
  } else {
    unroll ii in 2 {
      vector j in 6 by 4 {
        %5: f32 = const 0.0
        n0_acc3_1[8*ii + j] = %5
      }
    }
    for k in 5 {
      unroll ii in 2 {
        vector j in 6 by 4 {
          %6: f32 = load x[5*ii + k + 40]
          %7: f32 = load w[j + 6*k]
          %8: f32 = mul %6, %7
          n0_acc3_1[8*ii + j] sum= %8
        }
      }
    }
    unroll ii in 2 {
      vector j in 6 by 4 {
        %9: f32 = load n0_acc3_1[8*ii + j]
        y[6*ii + j + 48] = %9
      }
    }
  }
}
",
    );
}

/// How many rows the last tile has is known at run time: they run one by one.
#[test]
fn dynamic_remainder() {
    check(
        ROWS,
        "kernel k0 { parallel io in ceildiv(s0, 4) { if 4 <= -4*io + s0 {
           unroll ii in 4 { vector j in 6 by 4 { n0 [i = 4*io + ii, j = j] } }
         } else {
           for ii in -4*io + s0 { vector j in 6 by 4 { n0 [i = 4*io + ii, j = j] } }
         } } }",
        "
kernel @k0 from n0 {
  read x: f32[6*s0]
  write y: f32[6*s0]
  size s0 in [1, 64]
  grid io in ceildiv(s0, 4)
  if 4 <= -4*io + s0 {
    unroll ii in 4 {
      vector j in 6 by 4 {
        %0: f32 = load x[6*ii + 24*io + j]
        %1: f32 = neg %0
        y[6*ii + 24*io + j] = %1
      }
    }
  } else {
    for ii in -4*io + s0 {
      vector j in 6 by 4 {
        %2: f32 = load x[6*ii + 24*io + j]
        %3: f32 = neg %2
        y[6*ii + 24*io + j] = %3
      }
    }
  }
}
",
    );
}

/// Each block of a sum has an accumulator of its own, which is merged into that of the whole.
#[test]
fn blocks_of_a_sum() {
    check(
        "buf x: f32[10] = input buf y: f32[]
         nest n0 from %y [ | k in 10] { %0: f32 = load x[k] %1: f32 = reduce.sum %0 store y[] = %1 }
         return y",
        "kernel k0 {
           scratch accumulator of n0
           n0.init []
           for kb in 3 {
             register accumulator of n0
             n0.init []
             for ki in min(-4*kb + 10, 4) { n0.update [k = 4*kb + ki] }
             n0.merge []
           }
           n0.final []
         }",
        "
kernel @k0 from n0 {
  read x: f32[10]
  write y: f32[1]
  scratch n0_acc1: f32[1]
  register n0_acc1_1: f32[1]
  %0: f32 = const 0.0
  n0_acc1[0] = %0
  for kb in 3 {
    %1: f32 = const 0.0
    n0_acc1_1[0] = %1
    for ki in min(-4*kb + 10, 4) {
      %2: f32 = load x[4*kb + ki]
      n0_acc1_1[0] sum= %2
    }
    %3: f32 = load n0_acc1_1[0]
    n0_acc1[0] sum= %3
  }
  %4: f32 = load n0_acc1[0]
  y[0] = %4
}
",
    );
}

/// A local buffer holds what its own loops write, whatever other loops of that name do.
#[test]
fn local_buffers_are_no_larger_than_written() {
    let realized = realized(
        "buf x: f32[3, 5] = input buf a: f32[3, 5] buf y: f32[3, 5]
         nest n0 from %a [i in 3, j in 5] { %0: f32 = load x[i, j] %1: f32 = exp %0 store a[i, j] = %1 }
         nest n1 from %y [i in 3, j in 5] { %0: f32 = load a[i, 4 - j] store y[i, j] = %0 }
         return y",
        "kernel k { parallel i in 3 { scratch a for j in 5 { n0 [i = i, j = j] } for j in 5 { n1 [i = i, j = j] } } }",
    );
    let extents: Vec<_> = realized.kernels[0].mems.values().map(|m| (&*m.name, m.span().as_int())).collect();
    assert_eq!(extents, [("x", Some(15)), ("y", Some(15)), ("a", Some(5))]);
}

/// Buffers and names differ, the work does not.
#[test]
fn equal_layers_are_one_kernel() {
    let (mut bufs, mut nests, mut steps) =
        ("buf b0: f32[8] = input ".to_owned(), String::new(), String::new());
    for i in 0..12 {
        let next = i + 1;
        write!(bufs, "buf w{i}: f32[8] = const \"w{i}\" buf b{next}: f32[8] ").expect("strings take all");
        let body = format!(
            "%0: f32 = load b{i}[i] %1: f32 = load w{i}[i] %2: f32 = mul %0, %1 store b{next}[i] = %2"
        );
        write!(nests, "nest n{i} from %b{next} [i in 8] {{ {body} }} ").expect("strings take all");
        write!(steps, "kernel k{i} {{ vector v in 8 by 4 {{ n{i} [i = v] }} }} ").expect("strings take all");
    }
    let realized = realized(&format!("{bufs} {nests} return b12"), &steps);
    assert_eq!(realized.kernels.len(), 1);
    assert_eq!(realized.shared, [12]);
    let launches = realized.program.to_string().matches("launch @k0(").count();
    assert_eq!(launches, 12, "{}", realized.program);
}

/// One constant apart is another kernel.
#[test]
fn different_layers_are_kernels_of_their_own() {
    let nest = |i: u32, c: f32| {
        format!(
            "nest n{i} from %y{i} [i in 8] {{ %0: f32 = load x[i] %1: f32 = const {c:?} %2: f32 = mul %0, %1 store y{i}[i] = %2 }}"
        )
    };
    let body = format!(
        "buf x: f32[8] = input buf y0: f32[8] buf y1: f32[8] {} {} return y0, y1",
        nest(0, 2.0),
        nest(1, 3.0)
    );
    let step = |i: u32| format!("kernel k{i} {{ vector v in 8 by 4 {{ n{i} [i = v] }} }}");
    let realized = realized(&body, &format!("{} {}", step(0), step(1)));
    assert_eq!(realized.shared, [1, 1]);
}

#[test]
fn misfits() {
    let cases = [
        ("kernel k0 { n9 [] }", "no nest n9"),
        (
            "kernel k0 { register accumulator of n0 n0.init [i = 0, j = 0] for k in 5 { n0.update [i = 0, k = k] } }",
            "axis j is not bound",
        ),
        (
            "kernel k0 { register accumulator of n0 n0.init [i = 0, j = 0] for k in 5 { n0.update [i = 0, j = 0, q = k] } }",
            "axis k is not bound",
        ),
        ("kernel k0 { register accumulator of n0 n0.final [i = 0, j = 0] }", "combines before its init"),
        ("kernel k0 { n0.init [i = 0, j = 0] }", "n0 has no accumulators here"),
        (
            "kernel k0 { register accumulator of n0 n0.init [i = 0, j = 0] for k in 5 { n0.merge [] } }",
            "merges accumulators before their init",
        ),
        ("kernel k0 { scratch z }", "no buffer z"),
        ("extern e0", "no extern statement e0"),
    ];
    for (steps, expected) in cases {
        let diags = try_realize(PRODUCT, steps).expect_err(steps);
        assert_eq!(diags[0].slug, "schedule-misfit");
        assert!(diags[0].message.contains(expected), "expected {expected}, found {}", diags[0]);
    }
    let symbolic = try_realize(ROWS, "kernel k0 { unroll i in s0 { for j in 6 { n0 [i = i, j = j] } } }");
    let diags = symbolic.expect_err("a loop of any length");
    assert!(diags[0].message.contains("constant extent"), "{}", diags[0]);
}

/// Every kernel that does not fit is told of, not the first alone.
#[test]
fn all_misfits_at_once() {
    let diags = try_realize(PRODUCT, "kernel a { n8 [] } kernel b { n9 [] }").expect_err("neither fits");
    assert_eq!(diags.len(), 2);
    assert!(diags[0].message.contains("kernel a") && diags[1].message.contains("kernel b"));
}
