//! Speed of emitted register tiles of a matrix product, against the peak of fused multiply-adds.
//!
//! `cargo run -p litz-cpu --example gemm_tile [-- assembly]`

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/emit/harness.rs"]
mod harness;

use std::time::Instant;

use harness::{Build, Compiled, assert_close, numbers, param, printed};
use litz_ir::kernel::Kernel;
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_llvm::Processor;
use litz_llvm::llvm::{assembly, compile};
use litz_runtime::object::LoadedObject;

const LANES: u32 = 16;
const COLUMNS: usize = 768;
const DEPTH: usize = 768;

/// `y[i, j] = sum over k of x[i, k] * w[k, j]`: a grid of tiles of `rows` by 32, `w` packed in panels of 32 columns,
/// for any number `s0` of rows. The last tile is guarded if `guarded`, else there must be whole tiles.
fn product(rows: usize, guarded: bool) -> Kernel {
    let mut k = Build::new();
    let (n, depth) = (COLUMNS, DEPTH);
    k.size("s0", 1, 10_000);
    let x = k.read("x", Dtype::F32, &format!("{depth}*s0"));
    let w = k.read("w", Dtype::F32, &(n * depth).to_string());
    let y = k.write("y", Dtype::F32, &format!("{n}*s0"));
    let guard = format!("{rows}*io + ii < s0");
    let guard: &[&str] = if guarded { &[&guard] } else { &[] };
    let acc = k.register("acc", Dtype::F32, &(rows * 32).to_string());
    k.grid("jo", &(n / 32).to_string());
    k.grid("io", &format!("ceildiv(s0, {rows})"));
    let each = |k: &mut Build, body: &mut dyn FnMut(&mut Build)| {
        k.unroll("ii", &rows.to_string(), |k| k.vector("ji", "32", [LANES, 1], |k| body(k)));
    };
    each(&mut k, &mut |k| {
        let zero = k.float(0.0);
        k.store(acc, "32*ii + ji", zero);
    });
    k.each("k", &depth.to_string(), |k| {
        each(k, &mut |k| {
            let a = k.load_if(x, &format!("{depth}*({rows}*io + ii) + k"), guard, Scalar::Int(0));
            let b = k.load(w, &format!("{}*jo + 32*k + ji", 32 * depth));
            let c = k.call(ScalarOp::Mul, &[a, b]);
            k.combine(acc, "32*ii + ji", ReduceOp::Sum, c);
        });
    });
    each(&mut k, &mut |k| {
        let a = k.load(acc, "32*ii + ji");
        k.store_if(y, &format!("{n}*({rows}*io + ii) + 32*jo + ji"), a, guard);
    });
    k.finish()
}

/// Seconds of the fastest of several runs.
fn fastest(mut run: impl FnMut()) -> f64 {
    let times = (0..200).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Operations per second of 28 independent chains of fused multiply-adds.
fn peak() -> f64 {
    let ty = format!("<{LANES} x float>");
    let mut ir = format!(
        "define void @peak(ptr %p, i64 %n) {{\nentry:\n  %x = load {ty}, ptr %p\n  br label %loop\nloop:\n"
    );
    ir += "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n";
    for chain in 0..28 {
        ir += &format!("  %a{chain} = phi {ty} [ zeroinitializer, %entry ], [ %b{chain}, %loop ]\n");
    }
    for chain in 0..28 {
        ir += &format!("  %b{chain} = call {ty} @llvm.fma.v{LANES}f32({ty} %x, {ty} %x, {ty} %a{chain})\n");
    }
    ir += "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %n\n  br i1 %more, label %loop, label %done\ndone:\n";
    for chain in 0..28 {
        ir += &format!("  store volatile {ty} %b{chain}, ptr %p\n");
    }
    ir += "  ret void\n}\n";
    let object =
        LoadedObject::load(&compile(&ir, &Processor::host()).expect("compiles"), &|_| None).expect("loads");
    // SAFETY: the text above defines a function of that type.
    let run: extern "C" fn(*mut f32, i64) =
        unsafe { std::mem::transmute(object.get("peak").expect("defined")) };
    #[repr(align(64))]
    struct Aligned([f32; LANES as usize]);
    let mut x = Aligned([1.0; LANES as usize]);
    let count = 20_000;
    let flops = 2.0 * 28.0 * f64::from(LANES) * count as f64;
    flops / fastest(|| run(x.0.as_mut_ptr(), count))
}

fn main() {
    let target = Processor::host();
    let peak = peak();
    println!("peak {:.1} GF/s on {}", peak / 1e9, target.cpu);
    for (rows, tiles, guarded) in
        [(13, 8, false), (13, 8, true), (14, 8, false), (12, 8, false), (8, 16, false)]
    {
        let kernel = product(rows, guarded);
        if std::env::args().any(|arg| arg == "assembly") {
            let ir = printed(&[kernel], &target);
            return println!("{ir}\n{}", assembly(&ir, &target).expect("compiles"));
        }
        let start = Instant::now();
        let compiled = Compiled::new(kernel);
        let compile_time = start.elapsed();
        let m = rows * tiles;
        let (mut x, mut w, mut y) = (numbers(m * DEPTH), numbers(COLUMNS * DEPTH), vec![0.0; m * COLUMNS]);
        let time = fastest(|| compiled.run(&[m as i64], &[param(&mut x), param(&mut w), param(&mut y)]));
        let at = |i: usize, j: usize| {
            (0..DEPTH)
                .map(|k| f64::from(x[i * DEPTH + k]) * f64::from(w[(j / 32 * DEPTH + k) * 32 + j % 32]))
                .sum()
        };
        let expected: Vec<f64> = (0..COLUMNS).map(|j| at(m - 1, j)).collect();
        let expected: Vec<f32> = expected.iter().map(|&y| y as f32).collect();
        assert_close(&y[(m - 1) * COLUMNS..], &expected, 1e-3);
        let rate = 2.0 * (m * COLUMNS * DEPTH) as f64 / time;
        println!(
            "{rows} by 32{}, {m}x{COLUMNS}x{DEPTH}: {:.1} GF/s, {:.1} % of peak, compiled in {compile_time:.1?}",
            if guarded { " guarded" } else { "" },
            rate / 1e9,
            100.0 * rate / peak
        );
    }
}
