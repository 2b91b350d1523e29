//! Schedules whose text is the point.

use crate::outcome;
use litz_analysis::legality;
use litz_ir::target::Target;
use litz_schedule::{Heuristics, Request};

/// The schedule's text below its first line, unindented by one level.
#[track_caller]
fn check(body: &str, expected: &str) {
    let text = outcome(body).schedule.to_string();
    let lines: Vec<&str> = text.lines().collect();
    let inside: Vec<&str> =
        lines[1..lines.len() - 1].iter().map(|l| l.strip_prefix("  ").unwrap_or(l)).collect();
    let found = inside.join("\n");
    let expected = expected.trim_matches('\n');
    assert_eq!(found, expected, "\nfound:\n{found}\nexpected:\n{expected}");
}

/// Rows are spread evenly over tiles of at most 14; columns are two vectors wide.
#[test]
fn product_tile() {
    check(
        r#"buf x: f32[100, 64] = input buf w: f32[64, 80] = const "w" buf y: f32[100, 80]
         nest n0 from %y [i in 100, j in 80 | k in 64] {
           %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2
           store y[i, j] = %3
         }
         return y"#,
        r#"
kernel k0 {
  parallel io in 8, jo in 3 {
    if 13 <= -13*io + 100 {
      if 32 <= -32*jo + 80 {
        register accumulator of n0
        unroll ii in 13 {
          vector ji in 32 by 16 { n0.init [i = ii + 13*io, j = ji + 32*jo] }
        }
        for k0 in 64 {
          unroll ii in 13 {
            vector ji in 32 by 16 { n0.update [i = ii + 13*io, j = ji + 32*jo, k = k0] }
          }
        }
        unroll ii in 13 {
          vector ji in 32 by 16 { n0.final [i = ii + 13*io, j = ji + 32*jo] }
        }
      } else {
        register accumulator of n0
        unroll ii in 13 {
          vector ji in 16 by 16 { n0.init [i = ii + 13*io, j = ji + 32*jo] }
        }
        for k0 in 64 {
          unroll ii in 13 {
            vector ji in 16 by 16 { n0.update [i = ii + 13*io, j = ji + 32*jo, k = k0] }
          }
        }
        unroll ii in 13 {
          vector ji in 16 by 16 { n0.final [i = ii + 13*io, j = ji + 32*jo] }
        }
      }
    } else {
      if 32 <= -32*jo + 80 {
        register accumulator of n0
        unroll ii in 9 {
          vector ji in 32 by 16 { n0.init [i = ii + 13*io, j = ji + 32*jo] }
        }
        for k0 in 64 {
          unroll ii in 9 {
            vector ji in 32 by 16 { n0.update [i = ii + 13*io, j = ji + 32*jo, k = k0] }
          }
        }
        unroll ii in 9 {
          vector ji in 32 by 16 { n0.final [i = ii + 13*io, j = ji + 32*jo] }
        }
      } else {
        register accumulator of n0
        unroll ii in 9 {
          vector ji in 16 by 16 { n0.init [i = ii + 13*io, j = ji + 32*jo] }
        }
        for k0 in 64 {
          unroll ii in 9 {
            vector ji in 16 by 16 { n0.update [i = ii + 13*io, j = ji + 32*jo, k = k0] }
          }
        }
        unroll ii in 9 {
          vector ji in 16 by 16 { n0.final [i = ii + 13*io, j = ji + 32*jo] }
        }
      }
    }
  }
}
"#,
    );
}

/// A sum of 768 terms is added up from parts of 96.
#[test]
fn long_product_in_parts() {
    check(
        r#"buf x: f32[8, 768] = input buf w: f32[768, 32] = const "w" buf y: f32[8, 32]
         nest n0 from %y [i in 8, j in 32 | k in 768] {
           %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2
           store y[i, j] = %3
         }
         return y"#,
        r#"
kernel k0 {
  scratch accumulator of n0
  for ii in 8 {
    vector ji in 32 by 16 { n0.init [i = ii, j = ji] }
  }
  for k0b in 8 {
    register accumulator of n0
    unroll ii in 8 {
      vector ji in 32 by 16 { n0.init [i = ii, j = ji] }
    }
    for k0i in 96 {
      unroll ii in 8 {
        vector ji in 32 by 16 { n0.update [i = ii, j = ji, k = 96*k0b + k0i] }
      }
    }
    unroll ii in 8 {
      vector ji in 32 by 16 { n0.merge [i = ii, j = ji] }
    }
  }
  unroll ii in 8 {
    vector ji in 32 by 16 { n0.final [i = ii, j = ji] }
  }
}
"#,
    );
}

/// A tile of few rows waits for the right operand: its parts are about the root of the terms.
#[test]
fn few_rows_in_short_parts() {
    check(
        r#"buf x: f32[2, 768] = input buf w: f32[768, 32] = const "w" buf y: f32[2, 32]
         nest n0 from %y [i in 2, j in 32 | k in 768] {
           %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2
           store y[i, j] = %3
         }
         return y"#,
        r#"
kernel k0 {
  scratch accumulator of n0
  for ii in 2 {
    vector ji in 32 by 16 { n0.init [i = ii, j = ji] }
  }
  for k0b in 32 {
    register accumulator of n0
    unroll ii in 2 {
      vector ji in 32 by 16 { n0.init [i = ii, j = ji] }
    }
    for k0i in 24 {
      unroll ii in 2 {
        vector ji in 32 by 16 { n0.update [i = ii, j = ji, k = 24*k0b + k0i] }
      }
    }
    unroll ii in 2 {
      vector ji in 32 by 16 { n0.merge [i = ii, j = ji] }
    }
  }
  unroll ii in 2 {
    vector ji in 32 by 16 { n0.final [i = ii, j = ji] }
  }
}
"#,
    );
}

/// Rows known only at run time come in tiles of 8; what remains runs row by row.
#[test]
fn symbolic_product() {
    check(
        r#"sym s0 in [1, 512] hint 64
         buf x: f32[s0, 64] = input buf w: f32[64, 32] = const "w" buf b: f32[32] = const "b"
         buf h: f32[s0, 32] buf y: f32[s0, 32]
         nest n0 from %h [i in s0, j in 32 | k in 64] {
           %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2
           store h[i, j] = %3
         }
         nest n1 from %y [i in s0, j in 32] {
           %0: f32 = load h[i, j] %1: f32 = load b[j] %2: f32 = add %0, %1 store y[i, j] = %2
         }
         return y"#,
        r#"
kernel k0 {
  parallel io in ceildiv(s0, 8) {
    scratch h padded 16
    if 8 <= -8*io + s0 {
      register accumulator of n0
      unroll ii in 8 {
        vector ji in 32 by 16 { n0.init [i = ii + 8*io, j = ji] }
      }
      for k0 in 64 {
        unroll ii in 8 {
          vector ji in 32 by 16 { n0.update [i = ii + 8*io, j = ji, k = k0] }
        }
      }
      unroll ii in 8 {
        vector ji in 32 by 16 {
          n0.final [i = ii + 8*io, j = ji]
          n1 [i = ii + 8*io, j = ji]
        }
      }
    } else {
      for ii in -8*io + s0 {
        register accumulator of n0
        vector ji in 32 by 16 { n0.init [i = ii + 8*io, j = ji] }
        for k0 in 64 {
          vector ji in 32 by 16 { n0.update [i = ii + 8*io, j = ji, k = k0] }
        }
        vector ji in 32 by 16 {
          n0.final [i = ii + 8*io, j = ji]
          n1 [i = ii + 8*io, j = ji]
        }
      }
    }
  }
}
"#,
    );
}

/// One grid point is a row; each loop is a vector loop of its own.
#[test]
fn row_softmax() {
    check(
        r#"sym s0 in [1, 512] hint 64
         buf x: f32[s0, 100] = input
         buf m: f32[s0] buf e: f32[s0, 100] buf t: f32[s0] buf y: f32[s0, 100]
         nest n0 from %m [i in s0 | r in 100] { %0: f32 = load x[i, r] %1: f32 = reduce.max %0 store m[i] = %1 }
         nest n1 from %e [i in s0, j in 100] {
           %0: f32 = load x[i, j] %1: f32 = load m[i] %2: f32 = sub %0, %1 %3: f32 = exp %2
           store e[i, j] = %3
         }
         nest n2 from %t [i in s0 | r in 100] { %0: f32 = load e[i, r] %1: f32 = reduce.sum %0 store t[i] = %1 }
         nest n3 from %y [i in s0, j in 100] {
           %0: f32 = load e[i, j] %1: f32 = load t[i] %2: f32 = div %0, %1 store y[i, j] = %2
         }
         return y"#,
        r#"
kernel k0 {
  parallel g0 in s0 grain 7 {
    register m
    scratch e padded 16
    register t
    register accumulator of n0
    n0.init [i = g0]
    vector r0_0 in 100 by 16 copies 4 { n0.update [i = g0, r = r0_0] }
    n0.final [i = g0]
    register accumulator of n2
    n2.init [i = g0]
    vector r0_1 in 100 by 16 copies 4 {
      n1 [i = g0, j = r0_1]
      n2.update [i = g0, r = r0_1]
    }
    n2.final [i = g0]
    vector r0_2 in 100 by 16 { n3 [i = g0, j = r0_2] }
  }
}
"#,
    );
}

/// Vectors run along the columns; the long sum of each goes in parts.
#[test]
fn column_sums_in_parts() {
    check(
        r#"buf x: f32[1000, 128] = input buf y: f32[128]
         nest n0 from %y [j in 128 | i in 1000] { %0: f32 = load x[i, j] %1: f32 = reduce.sum %0 store y[j] = %1 }
         return y"#,
        r#"
kernel k0 {
  parallel b in 2 {
    scratch accumulator of n0
    vector v in 64 by 16 { n0.init [j = 64*b + v] }
    for r0_0b in 40 {
      register accumulator of n0
      vector v in 64 by 16 { n0.init [j = 64*b + v] }
      for r0_0i in 25 {
        vector v in 64 by 16 { n0.update [j = 64*b + v, i = 25*r0_0b + r0_0i] }
      }
      vector v in 64 by 16 { n0.merge [j = 64*b + v] }
    }
    vector v in 64 by 16 { n0.final [j = 64*b + v] }
  }
}
"#,
    );
}

/// Channels are last: vectors run along them, the window goes by.
#[test]
fn depthwise_convolution() {
    check(
        r#"buf x: f32[1, 34, 34, 64] = input buf w: f32[3, 3, 64] = const "w" buf y: f32[1, 32, 32, 64]
         nest n0 from %y [h in 32, v in 32, c in 64 | p in 3, q in 3] {
           %0: f32 = load x[0, h + p, v + q, c] %1: f32 = load w[p, q, c]
           %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store y[0, h, v, c] = %3
         }
         return y"#,
        r#"
kernel k0 {
  parallel g0 in 32, g1 in 32 grain 8 {
    register accumulator of n0
    vector v in 64 by 16 { n0.init [h = g0, v = g1, c = v] }
    for r0_0 in 3, r1_0 in 3 {
      vector v in 64 by 16 { n0.update [h = g0, v = g1, c = v, p = r0_0, q = r1_0] }
    }
    vector v in 64 by 16 { n0.final [h = g0, v = g1, c = v] }
  }
}
"#,
    );
}

/// Three axes become one, in blocks; the guarded one stays apart.
#[test]
fn axes_that_every_access_walks_as_one_are_merged() {
    check(
        r#"buf x: f32[16, 32, 64] = input buf y: f32[16, 32, 64]
         nest n0 from %y [i in 16, j in 32, k in 64] {
           %0: f32 = load x[i, j, k] %1: f32 = exp %0 store y[i, j, k] = %1
         }
         return y"#,
        r#"
kernel k0 {
  parallel b in 8 {
    vector v in 4096 by 16 copies 4 { n0 [i = 2*b + floordiv(v, 2048), j = mod(floordiv(v, 64), 32), k = mod(v, 64)] }
  }
}
"#,
    );
}

/// A guard on an axis needs it by itself.
#[test]
fn a_guarded_axis_stays_apart() {
    check(
        r#"buf x: f32[16, 30, 64] = input buf y: f32[16, 32, 64]
         nest n0 from %y [i in 16, j in 32, k in 64] {
           %0: f32 = load x[i, j, k] if j < 30 else 0.0 store y[i, j, k] = %0
         }
         return y"#,
        r#"
kernel k0 {
  parallel g0 in 16, g1 in 32 grain 128 {
    vector g2 in 64 by 16 { n0 [i = g0, j = g1, k = g2] }
  }
}
"#,
    );
}

/// Squares in blocks: lines read across the vectors are used whole.
#[test]
fn transposed_copy() {
    check(
        r#"buf x: f32[256, 128] = input buf y: f32[128, 256]
         nest n0 from %y [i in 128, j in 256] { %0: f32 = load x[j, i] store y[i, j] = %0 }
         return y"#,
        r#"
kernel k0 {
  parallel bu in 2, bv in 4 grain 2 {
    for su in 4, sv in 4 {
      vector v in 16 by 16 {
        unroll u in 16 { n0 [i = 64*bu + 16*su + u, j = 64*bv + 16*sv + v] }
      }
    }
  }
}
"#,
    );
}

/// Vectors run along what is stored, also where more is contiguous along the other axis.
#[test]
fn transposed_copy_of_a_sum() {
    check(
        r#"buf x: f32[256, 128] = input buf z: f32[256, 128] = input buf y: f32[128, 256]
         nest n0 from %y [i in 128, j in 256] {
           %0: f32 = load x[j, i] %1: f32 = load z[j, i] %2: f32 = add %0, %1
           %3: f32 = add %2, %1 store y[i, j] = %3
         }
         return y"#,
        r#"
kernel k0 {
  parallel bu in 2, bv in 4 {
    for su in 4, sv in 4 {
      vector v in 16 by 16 {
        unroll u in 16 { n0 [i = 64*bu + 16*su + u, j = 64*bv + 16*sv + v] }
      }
    }
  }
}
"#,
    );
}

/// A scan runs in order; rows are independent.
#[test]
fn scan_of_rows() {
    check(
        r#"buf x: f32[32, 100] = input buf y: f32[32, 100]
         nest n0 from %y [i in 32, j in 100] { %0: f32 = load x[i, j] %1: f32 = scan.sum %0 over j store y[i, j] = %1 }
         return y"#,
        r#"
kernel k0 {
  parallel g0 in 32 grain 32 {
    register accumulator of n0
    n0.init [i = g0]
    for r0_0 in 100 { n0 [i = g0, j = r0_0] }
  }
}
"#,
    );
}

/// No axes at all.
#[test]
fn one_point() {
    check(
        r#"buf x: f32[] = input buf y: f32[]
         nest n0 from %y [] { %0: f32 = load x[] %1: f32 = neg %0 store y[] = %1 }
         return y"#,
        r#"
kernel k0 {
  n0
}
"#,
    );
}

/// Loop variables never take the names of sizes or of axes of the program.
#[test]
fn variables_have_names_of_their_own() {
    outcome(
        "sym b in [1, 64] sym g0 in [1, 64] sym r0_0 in [1, 64]
         buf x: f32[b, 30, g0, r0_0] = input buf y: f32[b, 30, g0] buf z: f32[g0, 30, b]
         nest n0 from %y [o1 in b, o0 in 30, k in g0 | v in r0_0] {
           %0: f32 = load x[o1, o0, k, v] %1: f32 = reduce.sum %0
           store y[o1, o0, k] = %1
         }
         nest n1 from %z [o0 in b, o1 in 30, o2 in g0] {
           %0: f32 = load y[o0, o1, o2] %1: f32 = neg %0 store z[o2, o1, o0] = %1
         }
         return z",
    );
}

/// Rows of a group of 17 come in tiles of 9: an epilogue over the rows of all groups ends with the group's, not in the next.
#[test]
fn epilogue_ends_with_its_group() {
    let steps: String = (1..10).map(|i| format!("%{i}: f32 = exp %{} ", i - 1)).collect();
    let text = outcome(&format!(
        r#"buf x: f32[2, 17, 64] = input buf w: f32[2, 4, 64, 8] = const "w" buf h: f32[34, 4, 8] buf y: f32[34, 4, 8]
         nest n0 from %h [g in 2, i in 17, k in 4, l in 8 | r in 64] {{
           %0: f32 = load x[g, i, r] %1: f32 = load w[g, k, r, l] %2: f32 = mul %0, %1
           %3: f32 = reduce.sum %2 store h[17*g + i, k, l] = %3
         }}
         nest n1 from %y [c in 34, k in 4, l in 8] {{
           %0: f32 = load h[c, k, l] {steps} store y[c, k, l] = %9
         }}
         return y"#
    ));
    let text = text.schedule.to_string();
    assert!(text.contains("for ii in min(-9*io + 17, 9) {"), "{text}");
}

/// An axis that is padded to whole units of an instruction ends between two of them, also where its sum is split into blocks: the
/// instruction has no mask for the points of one.
#[test]
fn units_of_an_instruction_stay_whole() {
    let loops = crate::loops(
        "sym s in [3, 64] hint 33
         buf x: bf16[s, s] = input buf w: bf16[ceildiv(s, 2), 32, 2] = input buf y: bf16[s, 5]
         nest n0 from %y [i in s, j in 5 | r in 2*ceildiv(s, 2)] {
           %0: bf16 = load x[i, r] if r < s else 0.0 %1: f32 = cast %0
           %2: bf16 = load w[floordiv(r, 2), j, mod(r, 2)] %3: f32 = cast %2
           %4: f32 = mul %1, %3 %5: f32 = reduce.sum %4 %6: bf16 = cast %5
           store y[i, j] = %6
         }
         return y",
    );
    let target: Target = "cpu(isa=avx512-bf16, threads=3)".parse().expect("a target");
    for partial_half in [2, 6, 7, 16, 16384] {
        let heuristics = Heuristics { partial_half, ..Heuristics::default() };
        let schedule = litz_schedule::schedule_as(&loops, &Request::new(&target, &heuristics)).schedule;
        let text = schedule.to_string();
        assert_eq!(legality::verify(&schedule, &loops), [], "{text}");
        assert!(text.contains("mma kk in 2 {") && !text.contains("masked"), "{partial_half}: {text}");
    }
}
