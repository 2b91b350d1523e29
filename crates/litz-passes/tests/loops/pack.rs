//! Packs constant operands of contractions, and leaves others as they are.

use super::common::assert_text;
use super::run_checked;
use litz_passes::loops::pack;

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
