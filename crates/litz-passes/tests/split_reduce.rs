//! The pass `split_reduce`: text of one case, numbers of all.

mod common;

use common::{assert_text, outputs, parse, run_pass, verify};
use litz_ir::loops::Loops;
use litz_passes::loops::split_reduce;

/// Runs the pass and compares what the program returns before and after.
fn run_checked(text: &str, sizes: &[(&str, i64)]) -> (Loops, usize) {
    let mut loops = parse(text);
    let count = run_pass(split_reduce::run, &mut loops);
    verify(&loops);
    assert!(outputs(&parse(text), sizes) == outputs(&loops, sizes), "{loops}");
    (loops, count)
}

/// A full reduction of `n` elements, with work before and after it.
fn full(op: &str, n: i64) -> String {
    format!(
        "
loops @f on cpu {{
  buf x: f32[{n}] = input
  buf b: f32[] = input
  buf y: f32[]
  nest total from %y [| i in {n}] {{
    %0: f32 = load b[]
    %1: f32 = load x[i]
    %2: f32 = abs %1
    %3: f32 = reduce.{op} %2
    %4: f32 = add %3, %0
    store y[] = %4
  }}
  return y
}}"
    )
}

#[test]
fn a_total_becomes_totals_of_blocks() {
    let (loops, count) = run_checked(&full("sum", 1 << 17), &[]);
    assert_eq!(count, 1);
    assert_text(
        &loops.to_string(),
        "
loops @f on cpu {
  buf x: f32[131072] = input
  buf b: f32[] = input
  buf y: f32[]
  buf total_partial: f32[16]
  nest total_partial from %y [i_o in 16 | i_i in 8192] {
    %0: f32 = load x[i_i + 8192*i_o]
    %1: f32 = abs %0
    %2: f32 = reduce.sum %1
    store total_partial[i_o] = %2
  }
  nest total from %y [| i_o in 16] {
    %0: f32 = load total_partial[i_o]
    %1: f32 = load b[]
    %2: f32 = reduce.sum %0
    %3: f32 = add %2, %1
    store y[] = %3
  }
  return y
}",
    );
}

#[test]
fn every_combination_survives_a_short_last_block() {
    for op in ["sum", "max", "min"] {
        // A prime: no block length divides it.
        let (loops, count) = run_checked(&full(op, 70_001), &[]);
        assert_eq!(count, 1);
        assert!(loops.to_string().contains("select"), "{loops}");
    }
}

#[test]
fn truths_combine() {
    for (op, compared) in [("any", "7.5"), ("all", "-9.0"), ("any", "-8.5"), ("all", "0.0")] {
        let text = format!(
            "
loops @f on cpu {{
  buf x: f32[70001] = input
  buf y: bool[]
  nest total [| i in 70001] {{
    %0: f32 = load x[i]
    %1: f32 = const {compared}
    %2: bool = gt %0, %1
    %3: bool = reduce.{op} %2
    store y[] = %3
  }}
  return y
}}"
        );
        assert_eq!(run_checked(&text, &[]).1, 1);
    }
}

#[test]
fn short_reductions_and_many_results_stay() {
    assert_eq!(run_checked(&full("sum", 60_000), &[]).1, 0);
    let columns = |n: i64, rows: i64| {
        format!(
            "
loops @f on cpu {{
  buf x: f32[{rows}, {n}] = input
  buf y: f32[{n}]
  nest sums [j in {n} | i in {rows}] {{
    %0: f32 = load x[i, j]
    %1: f32 = reduce.sum %0
    store y[j] = %1
  }}
  return y
}}"
        )
    };
    // Sums of columns count by strips of 64.
    assert_eq!(run_checked(&columns(64, 1_000), &[]).1, 0);
    assert_eq!(run_checked(&columns(64, 1_100), &[]).1, 1);
    assert_eq!(run_checked(&columns(600, 1_100), &[]).1, 0);
    assert_eq!(run_checked(&columns(3, 70_000), &[]).1, 1);
    assert_eq!(run_checked(&columns(0, 70_000), &[]).1, 1);
}

#[test]
fn whole_axes_count_blocks_first() {
    let text = "
loops @f on cpu {
  buf x: f32[6, 2, 100, 120] = input
  buf m: f32[2]
  buf s: f32[2]
  nest moments [c in 2 | w in 120, n in 6, h in 100] {
    %0: f32 = load x[n, c, h, w]
    %1: f32 = reduce.sum %0
    %2: f32 = mul %0, %0
    %3: f32 = reduce.sum %2
    store m[c] = %1
    store s[c] = %3
  }
  return m, s
}";
    let (loops, count) = run_checked(text, &[]);
    assert_eq!(count, 1);
    assert!(loops.to_string().contains("[c in 2, n in 6, h_o in 1 | h_i in 100, w in 120]"), "{loops}");
}

#[test]
fn sizes_may_be_symbolic() {
    let text = "
loops @f on cpu {
  sym s0 in [0, 1000000] hint 100000
  buf x: f32[s0, 3] = input
  buf y: f32[3]
  nest sums [j in 3 | i in s0] {
    %0: f32 = load x[i, j]
    %1: f32 = reduce.sum %0
    store y[j] = %1
  }
  return y
}";
    for s0 in [0, 1, 8193, 30_000] {
        let (loops, count) = run_checked(text, &[("s0", s0)]);
        assert_eq!(count, 1, "{loops}");
    }
}

/// Where the largest or smallest of elements is, from a reduction of three axes.
fn position(op: &str, sizes: [i64; 3]) -> String {
    let [a, b, c] = sizes;
    format!(
        "
loops @f on cpu {{
  buf x: f32[2, {a}, {b}, {c}] = input
  buf y: i64[2]
  nest place [o in 2 | i in {a}, j in {b}, k in {c}] {{
    %0: f32 = load x[o, i, j, k]
    %1: i64 = reduce.{op} %0
    store y[o] = %1
  }}
  return y
}}"
    )
}

#[test]
fn positions_count_all_reduced_axes() {
    for op in ["argmax", "argmin"] {
        for sizes in [[70_001, 1, 1], [3, 30_011, 1], [2, 701, 50], [300, 301, 1], [5, 2, 7001]] {
            let (loops, count) = run_checked(&position(op, sizes), &[]);
            assert_eq!(count, 1, "{loops}");
        }
    }
}

#[test]
fn positions_are_those_of_the_first_of_equals_and_of_nan() {
    // Elements are 0 but for one at the end, so that ties are across blocks; then a NaN before it.
    for (chosen, other) in [("1.0", "0.0"), ("nan", "0.0"), ("-inf", "-inf")] {
        for op in ["argmax", "argmin"] {
            let text = format!(
                "
loops @f on cpu {{
  buf x: f32[70001] = input
  buf y: i64[]
  nest place [| i in 70001] {{
    %0: bool = cond i == 69000
    %1: f32 = const {chosen}
    %2: f32 = const {other}
    %3: f32 = select %0, %1, %2
    %4: i64 = reduce.{op} %3
    store y[] = %4
  }}
  return y
}}"
            );
            assert_eq!(run_checked(&text, &[]).1, 1);
        }
    }
}

#[test]
fn products_stay_whole() {
    let text = "
loops @f on cpu {
  buf a: f32[2, 70000] = input
  buf b: f32[70000, 4] = input
  buf y: f32[2, 4]
  nest mm [i in 2, j in 4 | k in 70000] {
    %0: f32 = load a[i, k]
    %1: f32 = load b[k, j]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[i, j] = %3
  }
  return y
}";
    assert_eq!(run_checked(text, &[]).1, 0);
}

#[test]
fn gathers_split_when_blocks_are_full() {
    let text = |n: i64| {
        format!(
            "
loops @f on cpu {{
  buf x: i64[{n}] = input
  buf table: f32[20] = input
  buf y: f32[]
  nest total [| i in {n}] {{
    %0: i64 = load x[i]
    %1: i64 = const 8
    %2: i64 = add %0, %1
    bind t = %2 in 20
    %4: f32 = load table[t]
    %5: f32 = reduce.sum %4
    store y[] = %5
  }}
  return y
}}"
        )
    };
    assert_eq!(run_checked(&text(1 << 17), &[]).1, 1);
    assert_eq!(run_checked(&text(70_001), &[]).1, 0);
}
