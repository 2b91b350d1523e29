//! The loops passes `inline`, `fold`, `pack` and `dead`, and the cleaning of bodies: text where the shape of the result
//! matters, numbers everywhere.

mod common;

use common::{assert_text, outputs, parse, run_as, run_pass, verify};
use litz_ir::loops::{Loops, Stmt};
use litz_passes::loops::{Cx, Inlining, PASSES, Pass, cse, dead, fold, inline, pack};

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

// inline

#[test]
fn a_pointwise_producer_goes_where_it_is_read() {
    let text = "
loops @p on cpu {
  buf x: f32[3, 5] = input
  buf t: f32[3, 5]{1, 3}
  buf y: f32[5, 3]
  nest first from %t [i in 3, j in 5] {
    %0: f32 = load x[i, j]
    %1: f32 = exp %0
    store t[i, j] = %1
  }
  nest second from %y [a in 5, b in 3] {
    %0: f32 = load t[b, a]
    %1: f32 = neg %0
    store y[a, b] = %1
  }
  return y
}";
    let (loops, count) = run_checked(inline::run, text, &[]);
    assert_eq!(count, 1);
    assert_text(
        &loops.to_string(),
        "
loops @p on cpu {
  buf x: f32[3, 5] = input
  buf t: f32[3, 5]{1, 3}
  buf y: f32[5, 3]
  nest second from %t, %y [a in 5, b in 3] {
    %0: f32 = load x[b, a]
    %1: f32 = exp %0
    %2: f32 = neg %1
    store y[a, b] = %2
  }
  return y
}",
    );
}

/// `t = first(x)`, then a nest that reads `t`.
fn chain(first: &str, second: &str) -> String {
    format!(
        "
loops @p on cpu {{
  buf x: f32[7] = input
  buf z: f32[7] = input
  buf t: f32[7]
  buf y: f32[7]
  buf s: f32[]
  nest first [i in 7] {{
    %0: f32 = load x[i]
    {first}
    store t[i] = %1
  }}
  {second}
}}"
    )
}

#[test]
fn guards_of_a_read_become_guards_and_a_choice() {
    let second = "nest second [i in 7] {
    %0: f32 = load t[i - 1] if 1 <= i, i < 4 else 2.0
    store y[i] = %0
  }
  return y";
    let (loops, count) = run_checked(inline::run, &chain("%1: f32 = exp %0", second), &[]);
    assert_eq!(count, 1);
    let text = loops.to_string();
    assert!(text.contains("load x[i - 1] if 1 <= i, i < 4") && text.contains("select"), "{text}");
}

#[test]
fn windows_of_padded_images_stay_reads_of_memory() {
    let second = "nest second [i in 7 | p in 3] {
    %0: f32 = load t[i + p - 1] if 1 <= i + p, i + p < 8 else 0.0
    %1: f32 = reduce.sum %0
    store y[i] = %1
  }
  return y";
    assert_eq!(run_checked(inline::run, &chain("%1: f32 = neg %0", second), &[]).1, 0);
}

#[test]
fn what_costs_much_and_is_read_often_is_stored() {
    let reversed_and_not = "nest second [i in 7] {
    %0: f32 = load t[i]
    %1: f32 = load t[6 - i]
    %2: f32 = add %0, %1
    store y[i] = %2
  }
  return y";
    assert_eq!(run_checked(inline::run, &chain("%1: f32 = exp %0", reversed_and_not), &[]).1, 0);
    assert_eq!(run_checked(inline::run, &chain("%1: f32 = neg %0", reversed_and_not), &[]).1, 1);
}

#[test]
fn what_is_returned_or_stored_twice_stays() {
    let second = |tail: &str| {
        format!(
            "nest second [i in 7] {{
    %0: f32 = load t[i]
    store y[i] = %0
  }}
  {tail}"
        )
    };
    assert_eq!(run_checked(inline::run, &chain("%1: f32 = neg %0", &second("return y")), &[]).1, 1);
    assert_eq!(run_checked(inline::run, &chain("%1: f32 = neg %0", &second("return y, t")), &[]).1, 0);
    assert_eq!(
        run_checked(inline::run, &chain("%1: f32 = neg %0", &second("update z = t\n return y")), &[]).1,
        0
    );
}

#[test]
fn a_scatter_on_what_was_stored_keeps_it() {
    let second = "nest scatter [i in 7] {
    %0: f32 = load z[i]
    store.sum t[i] = %0
  }
  nest last [i in 7] {
    %0: f32 = load t[i]
    store y[i] = %0
  }
  return y";
    assert_eq!(run_checked(inline::run, &chain("%1: f32 = neg %0", second), &[]).1, 0);
}

#[test]
fn a_source_that_changes_in_between_keeps_the_copy() {
    let text = "
loops @p on cpu {
  buf z: f32[7] = input
  buf x: f32[7]
  buf t: f32[7]
  buf y: f32[7]
  nest base [i in 7] {
    %0: f32 = load z[i]
    store x[i] = %0
  }
  nest copy [i in 7] {
    %0: f32 = load x[i]
    store t[i] = %0
  }
  nest change [i in 7] {
    %0: f32 = load z[i]
    store.sum x[i] = %0
  }
  nest last [i in 7] {
    %0: f32 = load t[i]
    %1: f32 = load x[i]
    %2: f32 = sub %0, %1
    store y[i] = %2
  }
  return y
}";
    assert_eq!(run_checked(inline::run, text, &[]).1, 0);
}

#[test]
fn readers_of_overlapping_and_merged_coordinates_agree() {
    // The reader walks the buffer flat: coordinates come from division.
    let text = "
loops @p on cpu {
  sym s0 in [1, 9]
  buf x: f32[s0, 4, 3] = input
  buf t: f32[s0, 4, 3]
  buf y: f32[12*s0]
  nest first [a in s0, b in 4, c in 3] {
    %0: f32 = load x[a, b, c]
    %1: i64 = index a + 10*b + 100*c
    %2: f32 = cast %1
    %3: f32 = add %0, %2
    store t[a, b, c] = %3
  }
  nest second [i in 12*s0] {
    %0: f32 = load t[floordiv(i, 12), mod(floordiv(i, 3), 4), mod(i, 3)]
    store y[i] = %0
  }
  return y
}";
    for s0 in [1, 2, 5] {
        assert_eq!(run_checked(inline::run, text, &[("s0", s0)]).1, 1);
    }
}

#[test]
fn symbols_bound_by_several_copies_stay_apart() {
    let text = "
loops @p on cpu {
  buf at: i64[8] = const \"positive\"
  buf table: f32[10] = input
  buf t: f32[8]
  buf y: f32[4]
  nest gather [i in 8] {
    %0: i64 = load at[i]
    bind g = %0 in 10
    %2: f32 = load table[g]
    store t[i] = %2
  }
  nest pairs [i in 4] {
    %0: f32 = load t[2*i]
    %1: f32 = load t[2*i + 1]
    %2: f32 = sub %0, %1
    store y[i] = %2
  }
  return y
}";
    let mut loops = parse(text);
    let inlining = Inlining { cheap: 100, ..Inlining::default() };
    run_as(inline::run, &mut loops, 1 << 20, &inlining);
    verify(&loops);
    assert!(outputs(&parse(text), &[]) == outputs(&loops, &[]), "{loops}");
}

#[test]
fn a_reader_that_binds_the_same_symbol_keeps_its_own() {
    let text = "
loops @p on cpu {
  buf at: i64[8] = const \"positive\"
  buf table: f32[10] = input
  buf t: f32[8]
  buf y: f32[8]
  nest gather [i in 8] {
    %0: i64 = load at[i]
    bind g = %0 in 10
    %2: f32 = load table[g]
    store t[i] = %2
  }
  nest twice [i in 8] {
    %0: f32 = load t[i]
    %1: i64 = load at[7 - i]
    bind g = %1 in 10
    %3: f32 = load table[g]
    %4: f32 = add %0, %3
    store y[i] = %4
  }
  return y
}";
    assert_eq!(run_checked(inline::run, text, &[]).1, 1);
    // An axis of the reader may be called like a symbol of the producer, too.
    let text = text.replace("[i in 8] {\n    %0: f32", "[g in 8] {\n    %0: f32").replace(
        "t[i]\n    %1: i64 = load at[7 - i]\n    bind g = %1 in 10\n    %3: f32 = load table[g]",
        "t[g]\n    %1: i64 = load at[7 - g]\n    bind h = %1 in 10\n    %3: f32 = load table[h]",
    );
    let text = text.replace("store y[i]", "store y[g]");
    assert_eq!(run_checked(inline::run, &text, &[]).1, 1);
}

#[test]
fn reads_that_widen_still_widen() {
    let text = "
loops @p on cpu {
  buf x: bf16[4] = input
  buf t: bf16[4]
  buf y: f32[4]
  nest first [i in 4] {
    %0: bf16 = load x[i]
    %1: bf16 = neg %0
    store t[i] = %1
  }
  nest second [i in 4] {
    %0: f32 = load t[i] if i < 3 else 1.0
    %1: f32 = neg %0
    store y[i] = %1
  }
  return y
}";
    let (loops, count) = run_checked(inline::run, text, &[]);
    assert_eq!(count, 1);
    assert!(loops.to_string().contains("f32 = cast"), "{loops}");
}

#[test]
fn a_reader_that_changes_what_was_read_keeps_the_copy() {
    let text = "
loops @p on cpu {
  buf z: f32[7] = input
  buf x: f32[7]
  buf t: f32[7]
  nest base [i in 7] {
    %0: f32 = load z[i]
    store x[i] = %0
  }
  nest copy [i in 7] {
    %0: f32 = load x[i]
    store t[i] = %0
  }
  nest add_reversed [i in 7] {
    %0: f32 = load t[6 - i]
    store.sum x[i] = %0
  }
  return x
}";
    assert_eq!(run_checked(inline::run, text, &[]).1, 0);
}

#[test]
fn what_is_computed_when_the_model_is_loaded_stays_there() {
    let text = "
loops @p on cpu {
  buf x: f32[7] = input
  buf c: f32[7] = const \"c\"
  buf t: f32[7]
  buf u: f32[7]
  buf y: f32[7]
  nest first [i in 7] {
    %0: f32 = load c[i]
    %1: f32 = neg %0
    store t[i] = %1
  }
  nest second [i in 7] {
    %0: f32 = load t[i]
    %1: f32 = abs %0
    store u[i] = %1
  }
  nest third [i in 7] {
    %0: f32 = load u[i]
    %1: f32 = load x[i]
    %2: f32 = mul %0, %1
    store y[i] = %2
  }
  return y
}";
    let (loops, count) = run_checked(inline::run, text, &[]);
    assert_eq!((count, names(&loops)), (1, vec!["second", "third"]), "{loops}");
}

#[test]
fn broadcast_and_constant_producers_go_in() {
    let text = "
loops @p on cpu {
  buf x: f32[3, 1] = input
  buf t: f32[3, 1]
  buf one: f32[1]
  buf y: f32[3, 4]
  nest first [i in 3] {
    %0: f32 = load x[i, 0]
    %1: f32 = neg %0
    store t[i, 0] = %1
  }
  nest fill [] {
    %0: f32 = const 1.0
    store one[0] = %0
  }
  nest second [i in 3, j in 4] {
    %0: f32 = load t[i, 0]
    %1: f32 = load one[0]
    %2: f32 = add %0, %1
    store y[i, j] = %2
  }
  return y
}";
    let (loops, count) = run_checked(inline::run, text, &[]);
    assert_eq!((count, names(&loops)), (2, vec!["second"]), "{loops}");
}

#[test]
fn empty_buffers_are_no_trouble() {
    let text = "
loops @p on cpu {
  buf x: f32[0, 3] = input
  buf t: f32[0, 3]
  buf y: f32[0, 3]
  nest first [i in 0, j in 3] {
    %0: f32 = load x[i, j]
    store t[i, j] = %0
  }
  nest second [i in 0, j in 3] {
    %0: f32 = load t[i, j]
    store y[i, j] = %0
  }
  return y
}";
    run_checked(inline::run, text, &[]);
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

// pack

/// `y[i, j] = sum over k of x[i, k] * w[j, k]`, or of `w[k, j]`, as `index` says, twice.
fn product(rows: i64, columns: i64, reduced: i64, index: &str, weight: &str) -> String {
    let (first, second) = if index == "j, k" { (columns, reduced) } else { (reduced, columns) };
    format!(
        "
loops @p on cpu {{
  buf x: f32[{rows}, {reduced}] = input
  buf w: f32[{first}, {second}] = {weight}
  buf y: f32[{rows}, {columns}]
  buf z: f32[{rows}, {columns}]
  nest mm from %y [i in {rows}, j in {columns} | k in {reduced}] {{
    %0: f32 = load x[i, k]
    %1: f32 = load w[{index}]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[i, j] = %3
  }}
  nest again from %z [a in {rows}, b in {columns} | c in {reduced}] {{
    %0: f32 = load x[a, c]
    %1: f32 = load w[{again}]
    %2: f32 = mul %1, %0
    %3: f32 = reduce.sum %2
    store z[a, b] = %3
  }}
  return y, z
}}",
        again = index.replace('j', "b").replace('k', "c"),
    )
}

#[test]
fn constant_operands_are_packed_once() {
    let (loops, count) = run_checked(pack::run, &product(3, 40, 5, "j, k", "const \"w\""), &[]);
    assert_eq!(count, 1);
    assert_text(
        &loops.to_string(),
        "
loops @p on cpu {
  buf x: f32[3, 5] = input
  buf w: f32[40, 5] = const \"w\"
  buf y: f32[3, 40]
  buf z: f32[3, 40]
  buf w_pack: f32[2, 5, 32]
  nest w_pack from %w [jo in 2, k in 5, ji in 32] {
    %0: f32 = load w[ji + 32*jo, k] if ji + 32*jo < 40 else 0.0
    store w_pack[jo, k, ji] = %0
  }
  nest mm from %y [i in 3, j in 40 | k in 5] {
    %0: f32 = load x[i, k]
    %1: f32 = load w_pack[floordiv(j, 32), k, mod(j, 32)]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[i, j] = %3
  }
  nest again from %z [a in 3, b in 40 | c in 5] {
    %0: f32 = load x[a, c]
    %1: f32 = load w_pack[floordiv(b, 32), c, mod(b, 32)]
    %2: f32 = mul %1, %0
    %3: f32 = reduce.sum %2
    store z[a, b] = %3
  }
  return y, z
}",
    );
}

#[test]
fn operands_of_any_size_and_order_pack() {
    for (rows, columns, reduced) in [(1, 1, 4), (5, 31, 7), (17, 64, 4), (20, 33, 9)] {
        for (index, weight) in
            [("j, k", "const \"w\""), ("k, j", "const \"w\""), ("j, k", "input"), ("k, j", "input")]
        {
            let (_, count) = run_checked(pack::run, &product(rows, columns, reduced, index, weight), &[]);
            // Inputs are packed when their columns are apart and enough rows use them.
            let worth = weight != "input" || rows >= 16 && index == "j, k";
            assert_eq!(count, usize::from(worth), "{rows} {columns} {reduced} {index} {weight}");
        }
    }
}

#[test]
fn updated_constants_are_not_constant() {
    let text = product(3, 40, 5, "j, k", "const \"w\"").replace("return", "update w = n\n  return").replace(
        "  nest mm",
        "  buf n: f32[40, 5]
  nest next [i in 40, j in 5] {
    %0: f32 = load w[i, j]
    store n[i, j] = %0
  }
  nest mm",
    );
    assert_eq!(run_checked(pack::run, &text, &[]).1, 0);
}

#[test]
fn convolutions_and_batches_pack() {
    let text = "
loops @p on cpu {
  sym s0 in [1, 9]
  buf x: f32[s0, 6, 3] = input
  buf w: f32[2, 5, 3, 3] = const \"w\"
  buf y: f32[s0, 2, 4, 5]
  nest conv [n in s0, g in 2, i in 4, o in 5 | c in 3, p in 3] {
    %0: f32 = load x[n, i + p, c]
    %1: f32 = load w[g, o, c, p]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[n, g, i, o] = %3
  }
  return y
}";
    for s0 in [1, 3] {
        let (loops, count) = run_checked(pack::run, text, &[("s0", s0)]);
        assert_eq!(count, 1);
        // Taps before channels, as the image is walked; five columns are within a vector of eight lanes.
        assert!(loops.to_string().contains("w_pack: f32[2, 1, 3, 3, 8]"), "{loops}");
        assert!(loops.to_string().contains("p in 3, c in 3, ji in 8]"), "{loops}");
    }
}

#[test]
fn operands_indexed_alike_by_other_roles_have_panels_of_their_own() {
    // One product runs over the axis that the other sums over.
    let text = "
loops @p on cpu {
  buf x: f32[2, 3, 5] = input
  buf w: f32[2, 40, 5] = const \"w\"
  buf y: f32[2, 3, 40]
  buf z: f32[3, 40]
  nest batched [g in 2, i in 3, j in 40 | k in 5] {
    %0: f32 = load x[g, i, k]
    %1: f32 = load w[g, j, k]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[g, i, j] = %3
  }
  nest summed [i in 3, j in 40 | g in 2, k in 5] {
    %0: f32 = load x[g, i, k]
    %1: f32 = load w[g, j, k]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store z[i, j] = %3
  }
  return y, z
}";
    assert_eq!(run_checked(pack::run, text, &[]).1, 2);
}

#[test]
fn an_operand_that_changes_is_packed_again() {
    let text = "
loops @p on cpu {
  buf x: f32[20, 5] = input
  buf v: f32[40, 5] = input
  buf w: f32[40, 5]
  buf y: f32[20, 40]
  buf z: f32[20, 40]
  nest base [i in 200] {
    %0: f32 = load v[floordiv(i, 5), mod(i, 5)]
    store w[floordiv(i, 5), mod(i, 5)] = %0
  }
  nest before [i in 20, j in 40 | k in 5] {
    %0: f32 = load x[i, k]
    %1: f32 = load w[j, k]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[i, j] = %3
  }
  nest change [i in 200] {
    %0: f32 = load v[floordiv(i, 5), mod(i, 5)]
    store.sum w[floordiv(i, 5), mod(i, 5)] = %0
  }
  nest behind [i in 20, j in 40 | k in 5] {
    %0: f32 = load x[i, k]
    %1: f32 = load w[j, k]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store z[i, j] = %3
  }
  return y, z
}";
    assert_eq!(run_checked(pack::run, text, &[]).1, 2);
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
        for Pass { name, run } in PASSES {
            run_pass(*run, &mut loops);
            verify(&loops);
            assert!(
                outputs(&parse(text), &[("s0", s0)]) == outputs(&loops, &[("s0", s0)]),
                "{name}\n{loops}"
            );
        }
        assert!(loops.to_string().contains("h_border"), "{loops}");
    }
}
