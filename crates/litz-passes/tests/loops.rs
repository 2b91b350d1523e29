//! The loops passes `inline`, `fold`, `pack` and `dead`, and the cleaning of bodies: text where the shape of the result
//! matters, numbers everywhere.

mod common;
#[path = "loops/inline.rs"]
mod inlining;
#[path = "loops/pack.rs"]
mod packing;

use common::{assert_text, outputs, parse, run_pass, verify};
use litz_ir::loops::{Loops, Stmt};
use litz_passes::loops::{Cx, PASSES, cse, dead, fold};

/// Runs a pass and compares what the program returns before and after.
fn run_checked(pass: fn(&mut Loops, &Cx<'_>) -> usize, text: &str, sizes: &[(&str, i64)]) -> (Loops, usize) {
    let mut loops = parse(text);
    let count = run_pass(pass, &mut loops);
    verify(&loops);
    assert!(outputs(&parse(text), sizes) == outputs(&loops, sizes), "{loops}");
    (loops, count)
}

fn names(loops: &Loops) -> Vec<&str> {
    loops.stmts.iter().map(Stmt::name).collect()
}

// fold

/// A gather by what `index` makes of the axes `i` in 6 and `j` in 5; `%index` is the index.
fn gather(index: &str, value: &str, extent: i64) -> String {
    format!(
        "
loops @p on cpu {{
  buf table: f32[{extent}] = input
  buf y: f32[6, 5]
  nest n [i in 6, j in 5] {{
{index}
    bind t = {value} in {extent}
    %20: f32 = load table[t]
    store y[i, j] = %20
  }}
  return y
}}"
    )
}

#[test]
fn indices_that_wrap_become_plain_ones() {
    let wrapped = "    %0: i64 = index i + j
    %1: i64 = const 0
    %2: bool = lt %0, %1
    %3: i64 = const 10
    %4: i64 = add %0, %3
    %5: i64 = select %2, %4, %0";
    let text = gather(wrapped, "%5", 10).replace("%20", "%7");
    let (loops, count) = run_checked(fold::run, &text, &[]);
    assert!(count > 0);
    assert_text(
        &loops.to_string(),
        "
loops @p on cpu {
  buf table: f32[10] = input
  buf y: f32[6, 5]
  nest n [i in 6, j in 5] {
    %0: f32 = load table[i + j]
    store y[i, j] = %0
  }
  return y
}",
    );
}

#[test]
fn indices_that_may_be_outside_keep_their_check() {
    // The largest is 9: in range of 10 elements only when that is known.
    let index = "    %0: i64 = index i + j
    %1: i64 = const 1
    %2: i64 = sub %0, %1
    %3: i64 = const 0
    %4: i64 = max %2, %3";
    let text = gather(index, "%4", 9).replace("%20", "%6");
    let (loops, _) = run_checked(fold::run, &text, &[]);
    assert!(loops.to_string().contains("bind t"), "{loops}");
}

#[test]
fn masks_of_indices_become_conditions() {
    let text = "
loops @p on cpu {
  buf x: f32[4, 4] = input
  buf y: f32[4, 4]
  buf z: f32[4, 4]
  nest n [i in 4, j in 4] {
    %0: i64 = index i
    %1: i64 = index j
    %2: bool = le %1, %0
    %3: bool = gt %1, %0
    %4: i64 = const 7
    %5: bool = lt %0, %4
    %6: bool = and %2, %5
    %7: f32 = load x[i, j]
    %8: f32 = const -inf
    %9: f32 = select %6, %7, %8
    store y[i, j] = %9
    %11: bool = and %3, %5
    %12: f32 = select %11, %7, %8
    store z[i, j] = %12
  }
  return y, z
}";
    let (loops, _) = run_checked(fold::run, text, &[]);
    let text = loops.to_string();
    assert!(text.contains("cond j <= i") && text.contains("cond i < j"), "{text}");
    assert!(!text.contains("and ") && !text.contains("index"), "{text}");
}

#[test]
fn choices_that_are_decided_choose() {
    let text = "
loops @p on cpu {
  sym s0 in [1, 9]
  buf x: f32[s0] = input
  buf y: f32[s0]
  buf n: f32[]
  nest n [i in s0] {
    %0: bool = cond i < s0
    %1: f32 = load x[i]
    %2: f32 = const 5.0
    %3: f32 = select %0, %1, %2
    %4: f32 = neg %3
    store y[i] = %4
  }
  nest count [| i in s0] {
    %0: bool = cond 0 <= i
    %1: f32 = cast %0
    %2: f32 = reduce.sum %1
    store n[] = %2
  }
  return y, n
}";
    for s0 in [1, 4] {
        let (loops, _) = run_checked(fold::run, text, &[("s0", s0)]);
        assert!(!loops.to_string().contains("select"), "{loops}");
    }
}

// dead

#[test]
fn statements_that_nothing_reads_go() {
    let text = "
loops @p on cpu {
  buf x: f32[4] = input
  buf a: f32[4]
  buf b: f32[4]
  buf c: f32[4]
  nest keep [i in 4] {
    %0: f32 = load x[i]
    store a[i] = %0
  }
  nest chain [i in 4] {
    %0: f32 = load a[i]
    store b[i] = %0
  }
  nest end [i in 4] {
    %0: f32 = load b[i]
    store c[i] = %0
  }
  return a as [2]{2} + 1
}";
    let (loops, count) = run_checked(dead::run, text, &[]);
    assert_eq!((count, names(&loops)), (2, vec!["keep"]));
    let (_, count) = run_checked(dead::run, &text.replace("return", "update x = c\n  return"), &[]);
    assert_eq!(count, 0);
}

// cse

fn cleaned(body: &str) -> String {
    let text = format!(
        "
loops @p on cpu {{
  buf x: f32[4] = input
  buf y: f32[4]
  nest n [i in 4] {{
{body}
  }}
  return y
}}"
    );
    let mut loops = parse(&text);
    if let Some(Stmt::Nest(nest)) = loops.stmts.first_mut() {
        cse::clean(nest);
    }
    verify(&loops);
    assert!(outputs(&parse(&text), &[]) == outputs(&loops, &[]), "{loops}");
    loops.to_string()
}

#[test]
fn equal_instructions_become_one_and_unused_ones_none() {
    let text = cleaned(
        "    %0: f32 = load x[i]
    %1: f32 = load x[i]
    %2: f32 = neg %0
    %3: f32 = neg %1
    %4: f32 = exp %3
    %5: f32 = const 0.0
    %6: f32 = const -0.0
    %7: f32 = add %5, %6
    %8: f32 = add %2, %3
    %9: f32 = add %8, %7
    store y[i] = %9",
    );
    assert_eq!((text.matches("load").count(), text.matches("neg").count()), (1, 1), "{text}");
    assert!(!text.contains("exp") && text.contains("const -0.0") && text.contains("const 0.0"), "{text}");
}

#[test]
fn loads_around_a_store_stay_apart() {
    let text = "
loops @p on cpu {
  buf y: f32[4]
  nest first [i in 4] {
    %0: f32 = const 1.0
    store y[i] = %0
  }
  nest second [i in 4] {
    %0: f32 = load y[i]
    store.sum y[i] = %0
    %2: f32 = load y[i]
    store.sum y[i] = %2
  }
  return y
}";
    let clean = |loops: &mut Loops, _: &Cx<'_>| {
        if let Some(Stmt::Nest(nest)) = loops.stmts.last_mut() {
            cse::clean(nest);
        }
        0
    };
    let (loops, _) = run_checked(clean, text, &[]);
    assert_eq!(loops.to_string().matches("load y").count(), 2, "{loops}");
}

// All of them.

#[test]
fn all_passes_together_keep_results() {
    let text = "
loops @p on cpu {
  sym s0 in [1, 8]
  buf x: f32[s0, 6, 5, 3] = input
  buf w: f32[8, 3, 3, 3] = const \"w\"
  buf v: f32[2, 8] = const \"v\"
  buf h: f32[s0, 6, 5, 3]
  buf c: f32[s0, 6, 5, 8]
  buf r: f32[s0, 6, 5, 8]
  buf y: f32[s0, 6, 5, 2]
  buf t: f32[s0]
  nest act [n in s0, i in 6, j in 5, k in 3] {
    %0: f32 = load x[n, i, j, k]
    %1: f32 = abs %0
    store h[n, i, j, k] = %1
  }
  nest conv [n in s0, i in 6, j in 5, o in 8 | k in 3, p in 3, q in 3] {
    %0: f32 = load h[n, i + p - 1, j + q - 1, k] if 1 <= i + p, i + p < 7, 1 <= j + q, j + q < 6 else 0.0
    %1: f32 = load w[o, k, p, q]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store c[n, i, j, o] = %3
  }
  nest relu [n in s0, i in 6, j in 5, o in 8] {
    %0: f32 = load c[n, i, j, o]
    %1: f32 = const 0.0
    %2: f32 = max %0, %1
    store r[n, i, j, o] = %2
  }
  nest pointwise [n in s0, i in 6, j in 5, m in 2 | o in 8] {
    %0: f32 = load r[n, i, j, o]
    %1: f32 = load v[m, o]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[n, i, j, m] = %3
  }
  nest total [n in s0 | i in 30, m in 2] {
    %0: f32 = load y[n, floordiv(i, 5), mod(i, 5), m]
    %1: f32 = reduce.max %0
    store t[n] = %1
  }
  return y, t
}";
    for s0 in [1, 2] {
        let mut loops = parse(text);
        for pass in PASSES {
            run_pass(|loops, cx| pass.apply(loops, cx), &mut loops);
            verify(&loops);
            assert!(
                outputs(&parse(text), &[("s0", s0)]) == outputs(&loops, &[("s0", s0)]),
                "{}\n{loops}",
                pass.name
            );
        }
        assert!(loops.to_string().contains("h_border"), "{loops}");
    }
}
