//! Which statements share a kernel: one program for every reason against it, and the fusions that matter.

use crate::{outcome, plans, target};
use litz_analysis::legality;
use litz_ir::schedule::KernelPlan;
use litz_schedule::{FusionNote, Heuristics, NoFuse, Outcome, ReorderAxes};
use std::collections::BTreeSet;

/// Names of the nests of a kernel.
fn nests(plan: &KernelPlan) -> Vec<&str> {
    let mut names = plan.nests();
    names.sort();
    names
}

/// Each program has a last statement `c` that could join an earlier one and does not.
const REFUSALS: &[(NoFuse, &str)] = &[
    (
        NoFuse::Extern,
        "buf x: f32[64] = input
         buf s: f32[64]
         buf i: i64[64]
         buf y: f32[64]
         extern p from %s = sort(x) -> (s, i) ints(1, 64, 1, 0, 1)
         nest c from %y [i in 64] { %0: f32 = load s[i] %1: f32 = neg %0 store y[i] = %1 }
         return y",
    ),
    (
        NoFuse::Recurrence,
        "buf x: f32[4, 64] = input
         buf t: f32[64]
         buf y: f32[64]
         region p over r in 4 carry t {
           nest first [i in 64] { %0: f32 = const 0.0 store t[i] = %0 }
           nest each [r in 4, i in 64] { %0: f32 = load x[r, i] %1: f32 = load t[i] %2: f32 = add %0, %1 store t[i] = %2 }
         }
         nest c from %y [i in 64] { %0: f32 = load t[i] %1: f32 = neg %0 store y[i] = %1 }
         return y",
    ),
    // Both sums read z, 4 KiB, and the first would keep 4 MiB for the second.
    (
        NoFuse::Memory,
        "buf x: f32[1024, 1024] = input
         buf v: f32[1024, 1024] = input
         buf z: f32[1024] = input
         buf s: f32[1024, 1024] buf i: i64[1024, 1024] buf t: f32[1024, 1024] buf k: i64[1024, 1024]
         buf a: f32[1024] buf y: f32[1024]
         extern e from %s = sort(x) -> (s, i) ints(1, 1024, 1024, 0, 1)
         nest p from %a [i in 1024 | j in 1024] {
           %0: f32 = load s[i, j] %1: f32 = load z[j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store a[i] = %3
         }
         extern f from %t = sort(v) -> (t, k) ints(1, 1024, 1024, 0, 1)
         nest c from %y [i in 1024 | j in 1024] {
           %0: f32 = load t[i, j] %1: f32 = load z[j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store y[i] = %3
         }
         return a, y",
    ),
    (
        NoFuse::LoadTime,
        "buf w: f32[64] = const \"w\"
         buf x: f32[64] = input
         buf h: f32[64]
         buf y: f32[64]
         nest p from %h [i in 64] { %0: f32 = load w[i] %1: f32 = neg %0 store h[i] = %1 }
         nest c from %y [i in 64] { %0: f32 = load h[i] %1: f32 = load x[i] %2: f32 = add %0, %1 store y[i] = %2 }
         return y",
    ),
    // Overwrites what the producer read, at other points.
    (
        NoFuse::OtherPoints,
        "buf x: f32[64] = input
         buf a: f32[64]
         buf h: f32[64]
         nest o from %a [i in 64] { %0: f32 = load x[i] store a[i] = %0 }
         nest p from %h [i in 64] { %0: f32 = load a[63 - i] store h[i] = %0 }
         nest c from %a [i in 64] { %0: f32 = load h[i] store a[i] = %0 }
         return a, h",
    ),
    // A scan keeps its axis to itself, which a shared point would cut up.
    (
        NoFuse::OtherPoints,
        "buf x: f32[64, 64] = input
         buf h: f32[64, 64]
         buf y: f32[64, 64]
         nest p from %h [i in 64, j in 64] { %0: f32 = load x[i, j] %1: f32 = neg %0 store h[i, j] = %1 }
         nest c from %y [i in 64, j in 64] { %0: f32 = load h[i, j] %1: f32 = scan.sum %0 over j store y[i, j] = %1 }
         return y",
    ),
    // One sum of everything: joining would leave one thread with all the work.
    (
        NoFuse::LessParallel,
        "buf x: f32[512, 512] = input
         buf h: f32[512, 512]
         buf y: f32[]
         nest p from %h [i in 512, j in 512] { %0: f32 = load x[i, j] %1: f32 = exp %0 store h[i, j] = %1 }
         nest c from %y [ | i in 512, j in 512] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store y[] = %1 }
         return y",
    ),
    // Eight rows of 4 MiB each: no row fits in the second-level cache.
    (
        NoFuse::Footprint,
        "buf x: f32[8, 1048576] = input
         buf h: f32[8, 1048576]
         buf y: f32[8]
         nest p from %h [i in 8, j in 1048576] { %0: f32 = load x[i, j] %1: f32 = exp %0 store h[i, j] = %1 }
         nest c from %y [i in 8 | j in 1048576] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store y[i] = %1 }
         return y",
    ),
    // Each row would write one of the sixteen elements in each of 1024 lines.
    (
        NoFuse::SplitLines,
        "buf x: f32[512, 1024] = input
         buf s: f32[512]
         buf y: f32[512, 1024]{1, 512}
         nest p from %s [i in 512 | j in 1024] { %0: f32 = load x[i, j] %1: f32 = reduce.sum %0 store s[i] = %1 }
         nest c from %y [i in 512, j in 1024] { %0: f32 = load x[i, j] %1: f32 = load s[i] %2: f32 = sub %0, %1 store y[i, j] = %2 }
         return y",
    ),
    (
        NoFuse::Elsewhere,
        "buf x: f32[64] = input
         buf h: f32[64]
         buf y: f32[64] stream 1
         nest p from %h [i in 64] { %0: f32 = load x[i] %1: f32 = neg %0 store h[i] = %1 }
         nest c from %y [i in 64] { %0: f32 = load h[i] %1: f32 = neg %0 store y[i] = %1 }
         return y",
    ),
    // `p` and `t` share a kernel, which needs `f` before it, whose result is returned and so stored in any case.
    (
        NoFuse::RunsEarly,
        "buf x: f32[64, 64] = input buf z: f32[64] = input
         buf w: f32[64, 64] = const \"w\"
         buf h: f32[64, 64] buf u: f32[64] buf g: f32[64] buf v: f32[64] buf y: f32[64, 64]
         nest a from %h [i in 64, j in 64 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest p from %u [j in 64 | i in 64] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store u[j] = %1 }
         nest f from %g [j in 64] { %0: f32 = load z[j] %1: f32 = neg %0 store g[j] = %1 }
         nest t from %v [j in 64] { %0: f32 = load u[j] %1: f32 = load g[j] %2: f32 = add %0, %1 store v[j] = %2 }
         nest c from %y [i in 64, j in 64 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 %4: f32 = load v[j] %5: f32 = add %3, %4 %6: f32 = load z[j] %7: f32 = add %5, %6 store y[i, j] = %7 }
         return y, g",
    ),
    // A column sum of a product needs all rows, not those of a block.
    (
        NoFuse::NotAnEpilogue,
        "buf x: f32[64, 64] = input
         buf w: f32[64, 64] = const \"w\"
         buf h: f32[64, 64]
         buf y: f32[64]
         nest p from %h [i in 64, j in 64 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest c from %y [j in 64 | i in 64] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store y[j] = %1 }
         return y",
    ),
    // Every block of rows would read 4 MiB again.
    (
        NoFuse::Footprint,
        "buf x: f32[4096, 1024] = input
         buf w: f32[1024, 1024] = const \"w\"
         buf h: f32[4096, 1024]
         buf y: f32[4096]
         nest p from %h [i in 4096, j in 1024 | k in 1024] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest c from %y [i in 4096 | j in 1024] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store y[i] = %1 }
         return y",
    ),
    // 64 KiB would be read again for each of 7 blocks, to keep 84 KiB of rows in the cache.
    (
        NoFuse::NothingGained,
        "buf x: f32[84, 64] = input
         buf w: f32[64, 256] = const \"w\"
         buf h: f32[84, 256]
         buf y: f32[84]
         nest p from %h [i in 84, j in 256 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest c from %y [i in 84 | j in 256] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store y[i] = %1 }
         return y",
    ),
    // One block of 13 rows is work for one thread.
    (
        NoFuse::LessParallel,
        "buf x: f32[13, 16] = input
         buf w: f32[16, 256] = const \"w\"
         buf h: f32[13, 256]
         buf y: f32[13]
         nest p from %h [i in 13, j in 256 | k in 16] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest c from %y [i in 13 | j in 256] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store y[i] = %1 }
         return y",
    ),
    (
        NoFuse::ProductConsumer,
        "buf x: f32[64, 64] = input
         buf w: f32[64, 64] = const \"w\"
         buf h: f32[64, 64]
         buf y: f32[64, 64]
         nest p from %h [i in 64, j in 64] { %0: f32 = load x[i, j] %1: f32 = neg %0 store h[i, j] = %1 }
         nest c from %y [i in 64, j in 64 | k in 64] { %0: f32 = load h[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store y[i, j] = %3 }
         return y",
    ),
    (
        NoFuse::Scatter,
        "buf x: f32[64] = input
         buf t: i64[64] = input
         buf y: f32[64]
         nest p from %y [i in 64] { %0: f32 = const 0.0 store y[i] = %0 }
         nest c from %y [i in 64] { %0: i64 = load t[i] bind t0 = %0 in 64 %2: f32 = load x[i] store.sum y[t0] = %2 }
         return y",
    ),
    // SC-7: what both read is 8 bytes.
    (
        NoFuse::Score,
        "buf t: f32[2] = input buf x: f32[64, 2] = input buf z: f32[64, 2] = input
         buf a: f32[64, 2] buf b: f32[64, 2]
         nest p from %a [i in 64, j in 2] { %0: f32 = load x[i, j] %1: f32 = load t[j] %2: f32 = mul %0, %1 store a[i, j] = %2 }
         nest c from %b [i in 64, j in 2] { %0: f32 = load z[i, j] %1: f32 = load t[j] %2: f32 = add %0, %1 store b[i, j] = %2 }
         return a, b",
    ),
    // SC-19: one cause each. Half of the rows:
    (
        NoFuse::OtherSize,
        "buf x: f32[64, 64] = input
         buf a: f32[64, 64]
         buf b: f32[32, 64]
         nest p from %a [i in 64, j in 64] { %0: f32 = load x[i, j] %1: f32 = neg %0 store a[i, j] = %1 }
         nest c from %b [i in 32, j in 64] { %0: f32 = load x[i, j] %1: f32 = exp %0 store b[i, j] = %1 }
         return a, b",
    ),
    // All rows for each of 32 others:
    (
        NoFuse::Broadcast,
        "buf x: f32[64] = input buf z: f32[32] = input
         buf a: f32[64]
         buf b: f32[32, 64]
         nest p from %a [i in 64] { %0: f32 = load x[i] %1: f32 = neg %0 store a[i] = %1 }
         nest c from %b [h in 32, i in 64] { %0: f32 = load x[i] %1: f32 = load z[h] %2: f32 = mul %0, %1 store b[h, i] = %2 }
         return a, b",
    ),
    // Pairs of neighbours, where the first takes each by itself and sums what is behind it:
    (
        NoFuse::SplitAxis,
        "buf x: f32[64, 64] = input
         buf a: f32[64, 64]
         buf b: f32[32, 64]
         nest p from %a [i in 64, j in 64] { %0: f32 = load x[i, j] %1: f32 = neg %0 store a[i, j] = %1 }
         nest c from %b [i in 32, j in 64 | k in 2] { %0: f32 = load x[2*i + k, j] %1: f32 = reduce.sum %0 store b[i, j] = %1 }
         return a, b",
    ),
    (
        NoFuse::OtherShape,
        "buf x: f32[128, 64] = input
         buf a: f32[63, 64]
         buf b: f32[64, 64]
         nest p from %a [i in 63, j in 64 | k in 2] { %0: f32 = load x[i + k, j] %1: f32 = reduce.sum %0 store a[i, j] = %1 }
         nest c from %b [i in 64, j in 64 | k in 2] { %0: f32 = load x[2*i + k, j] %1: f32 = reduce.max %0 store b[i, j] = %1 }
         return a, b",
    ),
];

#[test]
fn refusals() {
    for (reason, body) in REFUSALS {
        let outcome = outcome(body);
        let about: Vec<_> = outcome.notes.iter().filter(|note| note.consumer == "c").collect();
        let is_named = about.iter().any(|note| note.verdict == Err(*reason));
        assert!(is_named, "expected {reason}, found {about:?} in\n{body}");
        let found = plans(&outcome).map(nests).find(|names| names.contains(&"c"));
        assert_eq!(found, Some(vec!["c"]), "{reason}\n{}", outcome.schedule);
    }
}

/// Programs and the nests of each of their kernels.
const FUSIONS: &[(&str, &str, &[&[&str]])] = &[
    (
        "a chain of pointwise nests",
        "buf x: f32[100] = input
         buf a: f32[100] buf b: f32[100] buf y: f32[100]
         nest n0 from %a [i in 100] { %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }
         nest n1 from %b [i in 100] { %0: f32 = load a[i] %1: f32 = neg %0 store b[i] = %1 }
         nest n2 from %y [i in 100] { %0: f32 = load b[i] %1: f32 = load a[i] %2: f32 = mul %0, %1 store y[i] = %2 }
         return y",
        &[&["n0", "n1", "n2"]],
    ),
    (
        "a reshaped operand: 2 digits of one axis",
        "buf x: f32[6, 4] = input
         buf a: f32[6, 4] buf y: f32[2, 3, 4]
         nest n0 from %a [i in 6, j in 4] { %0: f32 = load x[i, j] %1: f32 = exp %0 store a[i, j] = %1 }
         nest n1 from %y [h in 2, i in 3, j in 4] { %0: f32 = load a[3*h + i, j] %1: f32 = neg %0 store y[h, i, j] = %1 }
         return y",
        &[&["n0", "n1"]],
    ),
    (
        "softmax of rows",
        "sym s0 in [1, 512]
         buf x: f32[s0, 100] = input
         buf m: f32[s0, 1] buf e: f32[s0, 100] buf t: f32[s0, 1] buf y: f32[s0, 100]
         nest n0 from %m [i in s0 | r in 100] { %0: f32 = load x[i, r] %1: f32 = reduce.max %0 store m[i, 0] = %1 }
         nest n1 from %e [i in s0, j in 100] { %0: f32 = load x[i, j] %1: f32 = load m[i, 0] %2: f32 = sub %0, %1 %3: f32 = exp %2 store e[i, j] = %3 }
         nest n2 from %t [i in s0 | r in 100] { %0: f32 = load e[i, r] %1: f32 = reduce.sum %0 store t[i, 0] = %1 }
         nest n3 from %y [i in s0, j in 100] { %0: f32 = load e[i, j] %1: f32 = load t[i, 0] %2: f32 = div %0, %1 store y[i, j] = %2 }
         return y",
        &[&["n0", "n1", "n2", "n3"]],
    ),
    (
        "layer norm, with the residual before it",
        "buf x: f32[64, 96] = input buf z: f32[64, 96] = input
         buf g: f32[96] = const \"g\" buf b: f32[96] = const \"b\"
         buf s: f32[64, 96] buf m: f32[64] buf v: f32[64] buf y: f32[64, 96]
         nest n0 from %s [i in 64, j in 96] { %0: f32 = load x[i, j] %1: f32 = load z[i, j] %2: f32 = add %0, %1 store s[i, j] = %2 }
         nest n1 from %m [i in 64 | r in 96] { %0: f32 = load s[i, r] %1: f32 = reduce.sum %0 %2: f32 = const 96.0 %3: f32 = div %1, %2 store m[i] = %3 }
         nest n2 from %v [i in 64 | r in 96] { %0: f32 = load s[i, r] %1: f32 = load m[i] %2: f32 = sub %0, %1 %3: f32 = mul %2, %2 %4: f32 = reduce.sum %3 store v[i] = %4 }
         nest n3 from %y [i in 64, j in 96] { %0: f32 = load s[i, j] %1: f32 = load m[i] %2: f32 = sub %0, %1 %3: f32 = load v[i] %4: f32 = rsqrt %3 %5: f32 = mul %2, %4 %6: f32 = load g[j] %7: f32 = mul %5, %6 %8: f32 = load b[j] %9: f32 = add %7, %8 store y[i, j] = %9 }
         return y",
        &[&["n0", "n1", "n2", "n3"]],
    ),
    (
        "a product, its bias and the residual after it",
        "buf x: f32[64, 64] = input buf z: f32[64, 64] = input
         buf w: f32[64, 64] = const \"w\" buf b: f32[64] = const \"b\"
         buf h: f32[64, 64] buf g: f32[64, 64] buf y: f32[64, 64]
         nest n0 from %h [i in 64, j in 64 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest n1 from %g [i in 64, j in 64] { %0: f32 = load h[i, j] %1: f32 = load b[j] %2: f32 = add %0, %1 store g[i, j] = %2 }
         nest n2 from %y [i in 64, j in 64] { %0: f32 = load g[i, j] %1: f32 = load z[i, j] %2: f32 = add %0, %1 store y[i, j] = %2 }
         return y",
        &[&["n0", "n1", "n2"]],
    ),
    (
        "rows of a product, and what is computed from them row by row",
        "buf x: f32[200, 64] = input
         buf w: f32[64, 64] = const \"w\"
         buf h: f32[200, 64] buf t: f32[200] buf y: f32[200, 64]
         nest n0 from %h [i in 200, j in 64 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest n1 from %t [i in 200 | j in 64] { %0: f32 = load h[i, j] %1: f32 = reduce.max %0 store t[i] = %1 }
         nest n2 from %y [i in 200, j in 64] { %0: f32 = load h[i, j] %1: f32 = load t[i] %2: f32 = sub %0, %1 store y[i, j] = %2 }
         return y",
        &[&["n0", "n1", "n2"]],
    ),
    (
        "a product of a product, both with an epilogue",
        "buf x: f32[2000, 64] = input
         buf w: f32[64, 96] = const \"w\" buf v: f32[96, 64] = const \"v\"
         buf h: f32[2000, 96] buf g: f32[2000, 96] buf z: f32[2000, 64] buf y: f32[2000, 64]
         nest n0 from %h [i in 2000, j in 96 | k in 64] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }
         nest n1 from %g [i in 2000, j in 96] { %0: f32 = load h[i, j] %1: f32 = neg %0 store g[i, j] = %1 }
         nest n2 from %z [i in 2000, j in 64 | k in 96] { %0: f32 = load g[i, k] %1: f32 = load v[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store z[i, j] = %3 }
         nest n3 from %y [i in 2000, j in 64] { %0: f32 = load z[i, j] %1: f32 = load x[i, j] %2: f32 = add %0, %1 store y[i, j] = %2 }
         return y",
        &[&["n0", "n1", "n2", "n3"]],
    ),
    (
        "what a later step of a load gives",
        "buf x: f32[2000] = input buf w: f32[2000, 2000] = const \"w\"
         buf a: f32[2000] buf t: f32[2000] buf u: f32[2000] buf y: f32[2000]
         nest n0 from %a [i in 2000] { %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }
         nest n1 from %t [i in 2000 | r in 2000] { %0: f32 = load w[i, r] %1: f32 = reduce.sum %0 store t[i] = %1 }
         nest n2 from %u [i in 2000 | r in 2000] { %0: f32 = load w[i, r] %1: f32 = load t[r] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store u[i] = %3 }
         nest n3 from %y [i in 2000] { %0: f32 = load a[i] %1: f32 = load u[i] %2: f32 = mul %0, %1 store y[i] = %2 }
         return y",
        &[&["n1"], &["n2"], &["n0", "n3"]],
    ),
    (
        "sums of columns, and what was computed from them",
        "buf x: f32[300, 128] = input
         buf a: f32[300, 128] buf t: f32[128] buf y: f32[128]
         nest n0 from %a [i in 300, j in 128] { %0: f32 = load x[i, j] %1: f32 = exp %0 store a[i, j] = %1 }
         nest n1 from %t [j in 128 | i in 300] { %0: f32 = load a[i, j] %1: f32 = reduce.sum %0 store t[j] = %1 }
         nest n2 from %y [j in 128] { %0: f32 = load t[j] %1: f32 = neg %0 store y[j] = %1 }
         return y",
        &[&["n0"], &["n1", "n2"]],
    ),
    (
        "two outputs from one input",
        "buf x: f32[8, 100] = input
         buf a: f32[8] buf b: f32[8]
         nest n0 from %a [i in 8 | r in 100] { %0: f32 = load x[i, r] %1: f32 = reduce.sum %0 store a[i] = %1 }
         nest n1 from %b [i in 8 | r in 100] { %0: f32 = load x[i, r] %1: f32 = reduce.max %0 store b[i] = %1 }
         return a, b",
        &[&["n0", "n1"]],
    ),
    (
        "both writers of a joined buffer, and its reader",
        "buf x: f32[8, 40] = input buf z: f32[8, 24] = input
         buf a: f32[8, 64] buf y: f32[8, 64]
         nest n0 from %a [i in 8, j in 40] { %0: f32 = load x[i, j] store a[i, j] = %0 }
         nest n1 from %a [i in 8, j in 24] { %0: f32 = load z[i, j] store a[i, j + 40] = %0 }
         nest n2 from %y [i in 8, j in 64] { %0: f32 = load a[i, j] %1: f32 = neg %0 store y[i, j] = %1 }
         return y",
        &[&["n0", "n1", "n2"]],
    ),
    (
        "nothing without points in common is lost: a full sum of few elements",
        "buf x: f32[64] = input
         buf a: f32[64] buf y: f32[]
         nest n0 from %a [i in 64] { %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }
         nest n1 from %y [ | i in 64] { %0: f32 = load a[i] %1: f32 = reduce.sum %0 store y[] = %1 }
         return y",
        &[&["n0", "n1"]],
    ),
];

/// The verdict on statement `c` and the kernel of `producer`, with its bytes.
fn verdict(outcome: &Outcome, producer: &str) -> Option<(Result<(), NoFuse>, i64)> {
    let about = |note: &&FusionNote| note.producer == producer && note.consumer == "c";
    outcome.notes.iter().find(about).map(|note| (note.verdict, note.bytes))
}

/// SC-5: the consumer joins the kernel that it saves 4 MiB with, not the one with 1 MiB, wherever they are. That one is merged
/// with both.
#[test]
fn a_statement_joins_the_kernel_that_it_saves_most_with() {
    let first = "nest p from %a [i in 1048576] { %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }";
    let second = "nest q from %b [i in 1048576] { %0: f32 = load y[i] %1: f32 = const 0.0 %2: bool = gt %0, %1 store b[i] = %2 }";
    for (one, other) in [(first, second), (second, first)] {
        let outcome = outcome(&format!(
            "buf x: f32[1048576] = input buf y: f32[1048576] = input
             buf a: f32[1048576] buf b: bool[1048576] buf z: f32[1048576]
             {one} {other}
             nest c from %z [i in 1048576] {{ %0: bool = load b[i] %1: f32 = load a[i] %2: f32 = const 0.0 %3: f32 = select %0, %1, %2 store z[i] = %3 }}
             return a, b, z"
        ));
        assert_eq!(verdict(&outcome, "p"), Some((Ok(()), 4 << 20)));
        assert_eq!(verdict(&outcome, "q"), Some((Err(NoFuse::Score), 1 << 20)));
        assert_eq!(plans(&outcome).map(nests).collect::<Vec<_>>(), [["c", "p", "q"]]);
    }
}

/// The same where the other one is a product, whose kernel takes the consumer, and not what the consumer is with.
#[test]
fn a_statement_leaves_a_product_for_more_bytes() {
    let first =
        "nest p from %a [i in 512, j in 512] { %0: f32 = load x[i, j] %1: f32 = exp %0 store a[i, j] = %1 }";
    let second = "nest q from %b [i in 512, j in 512 | k in 64] { %0: f32 = load y[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 %4: bf16 = cast %3 store b[i, j] = %4 }";
    for (one, other) in [(first, second), (second, first)] {
        let body = format!(
            "buf x: f32[512, 512] = input buf y: f32[512, 64] = input buf w: f32[64, 512] = const \"w\"
             buf a: f32[512, 512] buf b: bf16[512, 512] buf z: f32[512, 512]
             {one} {other}
             nest c from %z [i in 512, j in 512] {{ %0: f32 = load b[i, j] %1: f32 = load a[i, j] %2: f32 = add %0, %1 store z[i, j] = %2 }}
             return a, b, z"
        );
        let found: BTreeSet<Vec<String>> = kernels(&body);
        assert_eq!(found, BTreeSet::from([vec!["c".to_owned(), "p".to_owned()], vec!["q".to_owned()]]));
        // Where nobody else wants the product's result, 1 MiB of it is neither stored nor loaded.
        let mine = body.replace("bf16", "f32").replace("return a, b, z", "return a, z");
        let found: BTreeSet<Vec<String>> = kernels(&mine);
        assert_eq!(found, BTreeSet::from([vec!["c".to_owned(), "q".to_owned()], vec!["p".to_owned()]]));
    }
}

/// The nests of each kernel.
fn kernels(body: &str) -> BTreeSet<Vec<String>> {
    let outcome = outcome(body);
    plans(&outcome).map(|plan| nests(plan).into_iter().map(str::to_owned).collect()).collect()
}

/// SC-8: a chain of 200 nests that all read one input is cut where a kernel has 64.
#[test]
fn no_kernel_has_more_than_64_members() {
    let mut body = "buf x: f32[4096] = input ".to_owned();
    for at in 0..200 {
        let from = if at == 0 { "x".to_owned() } else { format!("a{}", at - 1) };
        body += &format!(
            "buf a{at}: f32[4096] nest n{at} from %a{at} [i in 4096] {{ %0: f32 = load {from}[i] %1: f32 = load x[i] %2: f32 = sub %0, %1 store a{at}[i] = %2 }} "
        );
    }
    let outcome = outcome(&(body + "return a199"));
    let sizes: Vec<usize> = plans(&outcome).map(|plan| nests(plan).len()).collect();
    assert_eq!(sizes, [64, 64, 64, 8]);
    assert!(outcome.notes.iter().any(|note| note.verdict == Err(NoFuse::Members)));
}

/// Two kernels read the same 64 KiB, and the second waits for a routine: the first is put off until then. Where the routine
/// needs what the first gives, they stay apart.
#[test]
fn kernels_that_share_data_are_merged_over_what_is_between() {
    let body = |sorted: &str| {
        format!(
            "buf x: f32[16384] = input buf z: f32[16384] = input
             buf a: f32[16384] buf s: f32[16384] buf k: i64[16384] buf y: f32[16384]
             nest p from %a [i in 16384] {{ %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }}
             extern r from %s = sort({sorted}) -> (s, k) ints(1, 16384, 1, 0, 1)
             nest c from %y [i in 16384] {{ %0: f32 = load x[i] %1: f32 = load s[i] %2: f32 = add %0, %1 store y[i] = %2 }}
             return a, y"
        )
    };
    let apart = outcome(&body("a"));
    let found: Vec<Vec<&str>> = plans(&apart).map(nests).collect();
    assert_eq!(found, [["p"], ["c"]], "{}", apart.schedule);
    assert!(apart.notes.iter().any(|note| note.verdict == Err(NoFuse::RunsEarly) && note.bytes == 1 << 16));
    let merged = outcome(&body("z"));
    let names: Vec<&str> = merged.schedule.steps.iter().map(|step| step.name()).collect();
    assert_eq!(names, ["r", "k0"], "{}", merged.schedule);
}

/// SC-6, SC-19: `exp(x.t())` and `sin(x)` read the same data in one kernel; without the option they stay apart, as each stores
/// neighbours along another axis, and the reason is the order of axes.
#[test]
fn axes_are_reordered_for_the_same_data() {
    let loops = crate::loops(
        "buf x: f32[512, 256] = input
         buf a: f32[256, 512] buf b: f32[512, 256]
         nest p from %a [i in 256, j in 512] { %0: f32 = load x[j, i] %1: f32 = exp %0 store a[i, j] = %1 }
         nest c from %b [i in 512, j in 256] { %0: f32 = load x[i, j] %1: f32 = sin %0 store b[i, j] = %1 }
         return a, b",
    );
    let with = |reorder_axes: ReorderAxes| {
        let heuristics = Heuristics { reorder_axes, ..Heuristics::default() };
        let outcome = litz_schedule::schedule(&loops, &target(), &heuristics);
        assert_eq!(legality::verify(&outcome.schedule, &loops), [], "{}", outcome.schedule);
        outcome
    };
    let (on, off) = (with(ReorderAxes::Always), with(ReorderAxes::KeepingNeighbours));
    assert_eq!(plans(&on).map(nests).collect::<Vec<_>>(), [["c", "p"]], "{}", on.schedule);
    assert_eq!(plans(&off).map(nests).collect::<Vec<_>>(), [["p"], ["c"]], "{}", off.schedule);
    assert_eq!(verdict(&off, "p"), Some((Err(NoFuse::OrderOfAxes), 512 * 256 * 4)));
}

/// One takes in two axes what the other takes in one, and both store neighbours along the last.
#[test]
fn axes_are_joined_where_neighbours_stay_neighbours() {
    let loops = crate::loops(
        "buf x: f32[64, 96] = input
         buf a: f32[64, 96] buf b: f32[8, 8, 96]
         nest p from %a [i in 64, j in 96] { %0: f32 = load x[i, j] %1: f32 = exp %0 store a[i, j] = %1 }
         nest c from %b [g in 8, i in 8, j in 96] { %0: f32 = load x[8*g + i, j] %1: f32 = sin %0 store b[g, i, j] = %1 }
         return a, b",
    );
    for (reorder_axes, expected) in [
        (ReorderAxes::KeepingNeighbours, vec![vec!["c", "p"]]),
        (ReorderAxes::Never, vec![vec!["p"], vec!["c"]]),
    ] {
        let heuristics = Heuristics { reorder_axes, ..Heuristics::default() };
        let outcome = litz_schedule::schedule(&loops, &target(), &heuristics);
        assert_eq!(legality::verify(&outcome.schedule, &loops), [], "{}", outcome.schedule);
        assert_eq!(plans(&outcome).map(nests).collect::<Vec<_>>(), expected, "{}", outcome.schedule);
    }
}

/// SC-16: the largest of each 128 neighbours, a scale, and what it makes of them: one kernel. So it is for 1024.
#[test]
fn groups_of_a_row_are_scaled_in_one_kernel() {
    for length in [128, 1024] {
        let groups = 4096 / length;
        let body = format!(
            "buf x: f32[64, 4096] = input
             buf m: f32[64, {groups}] buf s: f32[64, {groups}] buf y: i8[64, 4096]
             nest n0 from %m [i in 64, g in {groups} | r in {length}] {{ %0: f32 = load x[i, {length}*g + r] %1: f32 = abs %0 %2: f32 = reduce.max %1 store m[i, g] = %2 }}
             nest n1 from %s [i in 64, g in {groups}] {{ %0: f32 = load m[i, g] %1: f32 = const 127.0 %2: f32 = div %1, %0 store s[i, g] = %2 }}
             nest n2 from %y [i in 64, g in {groups}, r in {length}] {{ %0: f32 = load x[i, {length}*g + r] %1: f32 = load s[i, g] %2: f32 = mul %0, %1 %3: i8 = cast %2 store y[i, {length}*g + r] = %3 }}
             return y, s"
        );
        let outcome = outcome(&body);
        assert_eq!(
            plans(&outcome).map(nests).collect::<Vec<_>>(),
            [["n0", "n1", "n2"]],
            "{}",
            outcome.schedule
        );
    }
}

#[test]
fn fusions() {
    for (name, body, expected) in FUSIONS {
        let outcome = outcome(body);
        let found: Vec<Vec<&str>> = plans(&outcome).map(nests).collect();
        assert_eq!(found, *expected, "{name}: {:#?}\n{}", outcome.notes, outcome.schedule);
    }
}

/// What only one kernel touches needs no memory outside of it.
#[test]
fn passed_buffers_are_local() {
    for (name, body, kernels) in FUSIONS {
        let outcome = outcome(body);
        if kernels.len() == 1 {
            assert_eq!(outcome.schedule.pools, [], "{name}");
        }
    }
}

/// SC-22: schedules are equal whichever threads make them at the same time; every map of theirs has a seed of its own.
#[test]
fn schedules_do_not_depend_on_what_else_is_scheduled() {
    let all = || -> Vec<String> {
        let bodies = FUSIONS.iter().map(|fusion| fusion.1).chain(REFUSALS.iter().map(|refusal| refusal.1));
        bodies.map(|body| outcome(body).schedule.to_string()).collect()
    };
    let expected = all();
    let others: Vec<Vec<String>> = std::thread::scope(|scope| {
        let made: Vec<_> = (0..8).map(|_| scope.spawn(all)).collect();
        made.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    assert!(others.iter().all(|other| *other == expected));
}
