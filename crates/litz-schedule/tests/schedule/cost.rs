//! What kernels cost: figures that can be derived from the programs.

use crate::loops;
use litz_ir::Dtype;
use litz_ir::loops::Stmt;
use litz_ir::target::Target;
use litz_schedule::cost::{Cost, Estimator, Traffic};

/// What one kernel of all nests costs.
fn cost(body: &str) -> Cost {
    let loops = loops(body);
    let nests: Vec<String> = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| nest.name.clone()).collect();
    Estimator::new(&loops).kernel(&nests)
}

/// Seconds on a target of 1 TB/s and 100 TFLOP/s.
fn time(body: &str, target: &str) -> f64 {
    let target: Target = target.parse().expect("a target");
    cost(body).time(&target)
}

const FAST: &str = "cpu(isa=avx512, threads=4, bandwidth=1T, flops.f32=100T)";

/// SC-1: the input is read three times and counts once; means and variances never leave the kernel.
#[test]
fn a_layer_norm_reads_its_input_once() {
    let body = "buf x: f32[1024, 768] = input
         buf g: f32[768] = const \"g\" buf b: f32[768] = const \"b\"
         buf m: f32[1024] buf v: f32[1024] buf y: f32[1024, 768]
         nest n0 from %m [i in 1024 | r in 768] { %0: f32 = load x[i, r] %1: f32 = reduce.sum %0 %2: f32 = const 768.0 %3: f32 = div %1, %2 store m[i] = %3 }
         nest n1 from %v [i in 1024 | r in 768] { %0: f32 = load x[i, r] %1: f32 = load m[i] %2: f32 = sub %0, %1 %3: f32 = mul %2, %2 %4: f32 = reduce.sum %3 store v[i] = %4 }
         nest n2 from %y [i in 1024, j in 768] { %0: f32 = load x[i, j] %1: f32 = load m[i] %2: f32 = sub %0, %1 %3: f32 = load v[i] %4: f32 = rsqrt %3 %5: f32 = mul %2, %4 %6: f32 = load g[j] %7: f32 = mul %5, %6 %8: f32 = load b[j] %9: f32 = add %7, %8 store y[i, j] = %9 }
         return y";
    assert_eq!(cost(body).traffic, Traffic { reads: 3_145_728 + 6_144, writes: 3_145_728 });
    // A mean that somebody else wants is stored.
    let returned = body.replace("return y", "return y, m");
    assert_eq!(cost(&returned).traffic.writes, 3_145_728 + 4096);
}

/// SC-2: of a large buffer the slice counts that is read.
#[test]
fn a_slice_counts_as_long_as_it_is() {
    let body = "buf x: f32[1048576] = input
         buf y: f32[100]
         nest n0 from %y [i in 100] { %0: f32 = load x[i + 100] %1: f32 = const 2.0 %2: f32 = mul %0, %1 store y[i] = %2 }
         return y";
    assert_eq!(cost(body).traffic, Traffic { reads: 400, writes: 400 });
}

/// Of slices that overlap in whole the larger one counts, of others all.
#[test]
fn slices_within_others_count_as_part_of_them() {
    let body = |first: i64| {
        format!(
            "buf x: f32[1000] = input
             buf a: f32[100] buf b: f32[50]
             nest n0 from %a [i in 100] {{ %0: f32 = load x[i + 100] %1: f32 = neg %0 store a[i] = %1 }}
             nest n1 from %b [i in 50] {{ %0: f32 = load x[i + {first}] %1: f32 = exp %0 store b[i] = %1 }}
             return a, b"
        )
    };
    assert_eq!(cost(&body(150)).traffic.reads, 400);
    assert_eq!(cost(&body(151)).traffic.reads, 600);
    assert_eq!(cost(&body(200)).traffic.reads, 600);
}

/// What is overwritten is read before and stored after; what was stored before comes from the kernel.
#[test]
fn what_a_kernel_stored_is_not_read_again() {
    let body = "buf x: f32[64] = input
         buf a: f32[64] buf y: f32[64]
         nest n0 from %a [i in 64] { %0: f32 = load x[i] store a[i] = %0 }
         nest n1 from %a [i in 64] { %0: f32 = load a[i] %1: f32 = neg %0 store a[i] = %1 }
         nest n2 from %y [i in 64] { %0: f32 = load a[i] %1: f32 = exp %0 store y[i] = %1 }
         return y, a";
    assert_eq!(cost(body).traffic, Traffic { reads: 256, writes: 512 });
}

const PRODUCT: &str = "buf x: f32[N, N] = input
     buf w: f32[N, N] = const \"w\" buf b: f32[N] = const \"b\"
     buf h: f32[N, N]
     nest p from %h [i in N, j in N | k in N] { %0: f32 = load x[i, k] %1: f32 = load w[k, j] %2: f32 = mul %0, %1 %3: f32 = reduce.sum %2 store h[i, j] = %3 }";

/// SC-3: two operations for each term; an operation after the sum counts once for each element.
#[test]
fn a_product_counts_two_operations_for_each_term() {
    let product = format!("{} return h", PRODUCT.replace('N', "64"));
    assert_eq!(cost(&product).flops, [(Dtype::F32, 524_288)]);
    let biased =
        product.replace("store h[i, j] = %3", "%4: f32 = load b[j] %5: f32 = add %3, %4 store h[i, j] = %5");
    assert_eq!(cost(&biased).flops, [(Dtype::F32, 524_288 + 64 * 64)]);
    // As many on the type that is multiplied.
    let half = product.replace("f32[64, 64]", "bf16[64, 64]");
    let half = half.replace("store h[i, j] = %3", "%4: bf16 = cast %3 store h[i, j] = %4");
    assert_eq!(cost(&half).flops, [(Dtype::BF16, 524_288)]);
}

/// SC-4: half a gigabyte in and out takes 1 ms of 1 TB/s, 2 * 4096^3 operations 1.374 ms of 100 TFLOP/s.
#[test]
fn time_is_that_of_what_takes_longer() {
    let pointwise = "buf x: f32[125000000] = input
         buf y: f32[125000000]
         nest n0 from %y [i in 125000000] { %0: f32 = load x[i] %1: f32 = neg %0 store y[i] = %1 }
         return y";
    let ms = |body: &str, target: &str| (1e6 * time(body, target)).round() / 1e3;
    assert_eq!(ms(pointwise, FAST), 1.0);
    let product = format!("{} return h", PRODUCT.replace('N', "4096"));
    assert_eq!(ms(&product, FAST), 1.374);
    for unknown in [
        "cpu(isa=avx512, threads=4)",
        "cpu(isa=avx512, threads=4, flops.f32=100T)",
        "cpu(isa=avx512, threads=4, bandwidth=1T)",
    ] {
        assert_eq!(ms(&product, unknown), 0.0);
    }
}

/// Above the diagonal of blocks nothing is computed: of 8 x 8 blocks of 64, 36 are.
#[test]
fn idle_points_compute_nothing() {
    let body = "buf x: f32[512, 512] = input
         buf t: f32[512]
         region p over b in 8 carry t {
           nest first [i in 512] { %0: f32 = const 0.0 store t[i] = %0 }
           nest each [b in 8, i in 512 | k in 64] idle i < 64*b { %0: f32 = load x[i, 64*b + k] %1: f32 = reduce.sum %0 %2: f32 = load t[i] %3: f32 = add %1, %2 store t[i] = %3 }
         }
         return t";
    let all = 8 * 512 * 64 + 8 * 512;
    assert_eq!(cost(body).flops, [(Dtype::F32, all * 36 / 64)]);
}
