//! The pass `pad`: text where the shape of the result matters, numbers everywhere.

mod common;

use common::{assert_text, buf, outputs, parse, run_pass, verify};
use litz_ir::loops::{InstOp, Loops, Stmt};
use litz_passes::loops::pad;

fn run(text: &str) -> (Loops, usize) {
    let mut loops = parse(text);
    let count = run_pass(pad::run, &mut loops);
    verify(&loops);
    (loops, count)
}

/// Runs the pass on a program and compares what it returns before and after.
fn run_checked(text: &str, sizes: &[(&str, i64)]) -> (Loops, usize) {
    let (loops, count) = run(text);
    assert!(outputs(&parse(text), sizes) == outputs(&loops, sizes), "{loops}");
    (loops, count)
}

fn guards(loops: &Loops) -> usize {
    let nests = loops.stmts.iter().filter_map(|s| if let Stmt::Nest(n) = s { Some(n) } else { None });
    nests
        .flat_map(|n| &n.body)
        .filter(|i| matches!(&i.op, InstOp::Load { guard, .. } if !guard.is_empty()))
        .count()
}

/// A 3x3 convolution of 2 to 16 channels after a pointwise nest, which something else reads as well.
const CONVOLUTION: &str = "
loops @c on cpu {
  buf x: f32[1, 2, 5, 4] = input
  buf w: f32[16, 2, 3, 3] = const \"w\"
  buf h: f32[1, 2, 5, 4]{40, 1, 8, 2}
  buf y: f32[1, 16, 5, 4]{320, 1, 64, 16}
  buf z: f32[1, 2, 5, 4]
  nest relu from %h [a in 2, b in 5, c in 4] {
    %0: f32 = load x[0, a, b, c]
    %1: f32 = const 0.0
    %2: f32 = max %0, %1
    store h[0, a, b, c] = %2
  }
  nest conv from %y [o in 16, i in 5, j in 4 | k in 2, p in 3, q in 3] {
    %0: f32 = load h[0, k, i + p - 1, j + q - 1] if 1 <= i + p, i + p < 6, 1 <= j + q, j + q < 5 else 0.0
    %1: f32 = load w[o, k, p, q]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[0, o, i, j] = %3
  }
  nest other from %z [a in 2, b in 5, c in 4] {
    %0: f32 = load h[0, a, b, c]
    %1: f32 = neg %0
    store z[0, a, b, c] = %1
  }
  return y, z
}";

#[test]
fn an_image_that_one_nest_computes_is_stored_inside_its_border() {
    let (loops, count) = run_checked(CONVOLUTION, &[]);
    assert_eq!((count, guards(&loops)), (1, 0));
    assert_text(
        &loops.to_string(),
        "
loops @c on cpu {
  buf x: f32[1, 2, 5, 4] = input
  buf w: f32[16, 2, 3, 3] = const \"w\"
  buf h: f32[1, 2, 7, 6]{84, 1, 12, 2}
  buf y: f32[1, 16, 5, 4]{320, 1, 64, 16}
  buf z: f32[1, 2, 5, 4]
  nest h_border from %h [p2 in 2, p3 in 6, p1 in 2] {
    %0: f32 = const 0.0
    store h[0, p1, mod(p2 + 6, 7), p3] = %0
  }
  nest h_border2 from %h [p2 in 5, p3 in 2, p1 in 2] {
    %0: f32 = const 0.0
    store h[0, p1, p2 + 1, mod(p3 + 5, 6)] = %0
  }
  nest relu from %h [a in 2, b in 5, c in 4] {
    %0: f32 = load x[0, a, b, c]
    %1: f32 = const 0.0
    %2: f32 = max %0, %1
    store h[0, a, b + 1, c + 1] = %2
  }
  nest conv from %y [o in 16, i in 5, j in 4 | k in 2, p in 3, q in 3] {
    %0: f32 = load h[0, k, i + p, j + q]
    %1: f32 = load w[o, k, p, q]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[0, o, i, j] = %3
  }
  nest other from %z [a in 2, b in 5, c in 4] {
    %0: f32 = load h[0, a, b + 1, c + 1]
    %1: f32 = neg %0
    store z[0, a, b, c] = %1
  }
  return y, z
}",
    );
}

/// A convolution of an input: rows and columns, stride, padding, taps and dilation of both dimensions.
fn convolution(h: i64, w: i64, stride: i64, pad: i64, taps: i64, dilation: i64) -> String {
    let out = |n: i64| (n + 2 * pad - dilation * (taps - 1) - 1) / stride + 1;
    let (oh, ow) = (out(h), out(w));
    format!(
        "
loops @c on cpu {{
  buf x: f32[2, 3, {h}, {w}] = input
  buf w: f32[8, 3, {taps}, {taps}] = const \"w\"
  buf y: f32[2, 8, {oh}, {ow}]
  nest conv [n in 2, o in 8, i in {oh}, j in {ow} | k in 3, p in {taps}, q in {taps}] {{
    %0: f32 = load x[n, k, {stride}*i + {dilation}*p - {pad}, {stride}*j + {dilation}*q - {pad}] if {pad} <= {stride}*i + {dilation}*p, {stride}*i + {dilation}*p < {hp}, {pad} <= {stride}*j + {dilation}*q, {stride}*j + {dilation}*q < {wp} else 0.0
    %1: f32 = load w[o, k, p, q]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[n, o, i, j] = %3
  }}
  return y
}}",
        hp = h + pad,
        wp = w + pad,
    )
}

#[test]
fn products_of_inputs_read_a_copy() {
    for (h, w) in [(7, 5), (8, 6), (5, 5)] {
        for stride in [1, 2, 3] {
            for (pad, taps, dilation) in [(1, 3, 1), (2, 5, 1), (2, 3, 2), (1, 2, 1)] {
                let (loops, count) = run_checked(&convolution(h, w, stride, pad, taps, dilation), &[]);
                assert_eq!((count, guards(&loops)), (1, 1), "the copy alone is guarded\n{loops}");
                assert!(loops.stmts[0].name().ends_with("_pad"), "{loops}");
            }
        }
    }
}

#[test]
fn a_copy_has_no_more_border_than_windows_reach() {
    // Rows -1 to 7 and columns -1 to 5 of a 8 x 6 image: nothing is read behind its end.
    let (loops, _) = run_checked(&convolution(8, 6, 2, 1, 3, 1), &[]);
    assert_eq!(
        buf(&loops, "x_pad").sizes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["2", "3", "9", "7"]
    );
}

#[test]
fn one_border_serves_windows_of_several_sizes() {
    let text = "
loops @c on cpu {
  buf x: f32[12, 1]{1, 1} = input
  buf h: f32[12, 1]
  buf a: f32[12]
  buf b: f32[6]
  buf w: f32[5] = const \"w\"
  nest produce [i in 12] {
    %0: f32 = load x[i, 0]
    store h[i, 0] = %0
  }
  nest narrow [i in 12 | p in 3] {
    %0: f32 = load h[i + p - 1, 0] if 1 <= i + p, i + p < 13 else 0.0
    %1: f32 = load w[p]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store a[i] = %3
  }
  nest wide [i in 6 | p in 5] {
    %0: f32 = load h[2*i + p - 2, 0] if 2 <= 2*i + p, 2*i + p < 14 else 0.0
    %1: f32 = load w[p]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store b[i] = %3
  }
  return a, b
}";
    let (loops, count) = run_checked(text, &[]);
    assert_eq!((count, guards(&loops)), (1, 0), "{loops}");
    // Two before; one after: the wide window's last starts two before the end and is five long.
    assert_eq!(buf(&loops, "h").sizes[0].to_string(), "15");
}

#[test]
fn borders_are_filled_before_the_chain_that_computes_the_image() {
    // The product, what follows it, and the image may share a kernel.
    let text = "
loops @c on cpu {
  buf x: f32[9, 4] = input
  buf w: f32[4] = const \"w\"
  buf t: f32[9]
  buf u: f32[9]
  buf h: f32[9]
  buf a: f32[9]
  nest unrelated [i in 9] {
    %0: f32 = load x[i, 0]
    store u[i] = %0
  }
  nest dot [i in 9 | k in 4] {
    %0: f32 = load x[i, k]
    %1: f32 = load w[k]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store t[i] = %3
  }
  nest image [i in 9] {
    %0: f32 = load t[i]
    %1: f32 = load u[i]
    %2: f32 = add %0, %1
    store h[i] = %2
  }
  nest sum [i in 9 | p in 3] {
    %0: f32 = load h[i + p - 1] if 1 <= i + p, i + p < 10 else 0.0
    %1: f32 = reduce.sum %0
    store a[i] = %1
  }
  return a
}";
    let (loops, _) = run_checked(text, &[]);
    let names: Vec<&str> = loops.stmts.iter().map(Stmt::name).collect();
    assert_eq!(names, ["unrelated", "h_border", "dot", "image", "sum"]);
}

#[test]
fn constant_images_are_copied_when_the_model_is_loaded() {
    let text = CONVOLUTION.replace("buf x: f32[1, 2, 5, 4] = input", "buf x: f32[1, 2, 5, 4] = const \"x\"");
    let (loops, count) = run_checked(&text, &[]);
    assert_eq!(count, 1);
    assert!(loops.stmts.iter().any(|s| s.name() == "h_pad"), "{loops}");
}

#[test]
fn borders_keep_to_one_fill_value() {
    let text = "
loops @c on cpu {
  buf x: f32[9] = input
  buf h: f32[9]
  buf a: f32[9]
  buf b: f32[9]
  nest produce [i in 9] {
    %0: f32 = load x[i]
    store h[i] = %0
  }
  nest largest [i in 9 | p in 3] {
    %0: f32 = load h[i + p - 1] if 1 <= i + p, i + p < 10 else -inf
    %1: f32 = reduce.max %0
    store a[i] = %1
  }
  nest sum [i in 9 | p in 3] {
    %0: f32 = load h[i + p - 1] if 1 <= i + p, i + p < 10 else 0.0
    %1: f32 = reduce.sum %0
    store b[i] = %1
  }
  return a, b
}";
    let (loops, count) = run_checked(text, &[]);
    assert_eq!((count, guards(&loops)), (1, 1), "{loops}");
    assert!(loops.to_string().contains("const -inf"), "{loops}");
}

#[test]
fn sizes_may_be_symbolic() {
    let text = "
loops @c on cpu {
  sym s0 in [1, 64]
  sym s1 in [1, 512]
  buf x: f32[s0, s1, 4] = input
  buf w: f32[16, 3, 4] = const \"w\"
  buf h: f32[s0, s1, 4]
  buf y: f32[s0, s1, 16]
  nest produce [n in s0, i in s1, k in 4] {
    %0: f32 = load x[n, i, k]
    %1: f32 = neg %0
    store h[n, i, k] = %1
  }
  nest conv [n in s0, i in s1, o in 16 | p in 3, k in 4] {
    %0: f32 = load h[n, i + p - 1, k] if 1 <= i + p, i + p < s1 + 1 else 0.0
    %1: f32 = load w[o, p, k]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store y[n, i, o] = %3
  }
  return y
}";
    for (s0, s1) in [(1, 1), (2, 7), (3, 2)] {
        let (loops, count) = run_checked(text, &[("s0", s0), ("s1", s1)]);
        assert_eq!((count, guards(&loops)), (1, 0), "{loops}");
    }
}

#[test]
fn what_is_returned_or_read_by_another_product_keeps_its_layout() {
    // Returned: the product reads a copy.
    let (loops, count) = run_checked(&CONVOLUTION.replace("return y, z", "return y, z, h"), &[]);
    assert_eq!(count, 1);
    assert_eq!(buf(&loops, "h").sizes[2].to_string(), "5");
    assert_eq!(buf(&loops, "h_pad").sizes[2].to_string(), "7");
    // A product without padding wants rows that merge.
    let pointwise = "nest other from %z [o in 2, b in 5, c in 4 | k in 2] {
    %0: f32 = load h[0, k, b, c]
    %1: f32 = load w[o, k, 0, 0]
    %2: f32 = mul %0, %1
    %3: f32 = reduce.sum %2
    store z[0, o, b, c] = %3
  }
  return y, z
}";
    let (head, _) = CONVOLUTION.split_once("nest other").expect("the nest is there");
    let head = head.replace("buf z: f32[1, 2, 5, 4]", "buf z: f32[1, 2, 5, 4]{40, 1, 8, 2}");
    let (loops, count) = run_checked(&format!("{head}{pointwise}"), &[]);
    assert_eq!((count, guards(&loops)), (1, 1), "{loops}");
    assert_eq!(buf(&loops, "h").sizes[2].to_string(), "5");
}

#[test]
fn guards_that_are_not_the_range_of_a_dimension_stay() {
    // Every second row only: the guard is stricter than the image.
    for strict in ["2 <= i + p, i + p < 6", "1 <= i + p, i + p < 5"] {
        let text = CONVOLUTION.replace("1 <= i + p, i + p < 6", strict);
        let (loops, count) = run_checked(&text, &[]);
        assert_eq!((count, guards(&loops)), (0, 1), "{loops}");
    }
    // A guard that chooses among taps, as transposed convolutions have.
    let text = CONVOLUTION.replace("1 <= i + p, i + p < 6", "mod(i + p, 2) == 0, 1 <= i + p, i + p < 6");
    let (_, count) = run_checked(&text, &[]);
    assert_eq!(count, 0);
}

#[test]
fn padding_that_is_mostly_border_stays_guarded() {
    let (_, count) = run_checked(&convolution(3, 3, 1, 6, 3, 6), &[]);
    assert_eq!(count, 0);
}

#[test]
fn pointwise_reads_of_a_padded_tensor_stay_guarded() {
    let text = "
loops @c on cpu {
  buf x: f32[5] = input
  buf h: f32[5]
  buf y: f32[7]
  nest produce [i in 5] {
    %0: f32 = load x[i]
    store h[i] = %0
  }
  nest pad [i in 7] {
    %0: f32 = load h[i - 1] if 1 <= i, i < 6 else 0.0
    store y[i] = %0
  }
  return y
}";
    let (_, count) = run_checked(text, &[]);
    assert_eq!(count, 0);
}

#[test]
fn half_types_take_fills_they_can_hold() {
    let text = |fill: &str| {
        format!(
            "
loops @c on cpu {{
  buf x: bf16[5] = input
  buf h: bf16[5]
  buf y: f32[5]
  nest produce [i in 5] {{
    %0: bf16 = load x[i]
    store h[i] = %0
  }}
  nest sum [i in 5 | p in 3] {{
    %0: f32 = load h[i + p - 1] if 1 <= i + p, i + p < 6 else {fill}
    %1: f32 = reduce.sum %0
    store y[i] = %1
  }}
  return y
}}"
        )
    };
    assert_eq!(run(&text("0.0")).1, 1);
    assert_eq!(run(&text("0.3")).1, 0);
}
