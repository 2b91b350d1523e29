//! Puts producers where they are read, and keeps those that have to be stored.

use super::common::{assert_text, outputs, parse, run_as, verify};
use super::{names, run_checked};
use litz_passes::loops::{Inlining, inline};

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
