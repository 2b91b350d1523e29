//! Tests matrix instructions: products of tiles, dot products, and targets that have neither.

use half::bf16;
use litz_ir::kernel::{Kernel, Op};
use litz_ir::{Dtype, ReduceOp, Scalar, ScalarOp};
use litz_llvm::Processor;
use litz_llvm::emit::emit_module;
use litz_llvm::llvm::assembly;
use litz_runtime::reference::{self, MemView};

use crate::harness::*;

const COLUMNS: usize = 70;

/// `y = x w` over tiles of 32 by 32, `w` in panels of pairs; sums of `pieces` times `steps` times `depth` terms, of which
/// each piece is added to what memory holds where there are several.
fn tiles([pieces, steps, depth]: [usize; 3]) -> Kernel {
    let mut k = Build::new();
    let sum = pieces * steps * depth;
    k.size("s0", 1, 1000);
    let x = k.read("x", Dtype::BF16, &format!("{sum}*s0"));
    let w = k.read("w", Dtype::BF16, &format!("3*32*{sum}"));
    let y = k.write("y", Dtype::F32, &format!("{COLUMNS}*s0"));
    let acc = k.scratch("acc", Dtype::F32, "1024");
    k.grid("jo", "3");
    k.grid("io", "ceildiv(s0, 32)");
    let (rows, columns) = ("min(32, s0 - 32*io)", format!("min(32, {COLUMNS} - 32*jo)"));
    k.mma("ii", "32", |k| {
        k.mma("ji", "32", |k| {
            let zero = k.float(0.0);
            k.store(acc, "32*ii + ji", zero);
        });
    });
    let step = |k: &mut Build| {
        let at = format!("{}*kp + {depth}*ko", steps * depth);
        k.mma("ii", rows, |k| {
            k.mma("ji", &columns, |k| {
                k.mma("kk", &depth.to_string(), |k| {
                    let a = k.load(x, &format!("{sum}*(32*io + ii) + {at} + kk"));
                    let pair = format!("floordiv({at} + kk, 2)");
                    let b = k.load(w, &format!("{}*jo + 64*{pair} + 2*ji + mod(kk, 2)", 32 * sum));
                    let c = k.call(ScalarOp::Mul, &[a, b]);
                    k.combine(acc, "32*ii + ji", ReduceOp::Sum, c);
                });
            });
        });
    };
    k.each("kp", &pieces.to_string(), |k| k.each("ko", &steps.to_string(), step));
    k.each("ii", rows, |k| {
        k.vector("ji", &columns, [16, 1], |k| {
            let a = k.load(acc, "32*ii + ji");
            k.store(y, &format!("{COLUMNS}*(32*io + ii) + 32*jo + ji"), a);
        });
    });
    k.finish()
}

/// `y = x w` for pairs of rows and 20 columns, `w` in groups of `terms` rounded up; a last one that is not whole is guarded.
fn dots(terms: usize, lanes: u32) -> Kernel {
    dots_of([Dtype::BF16, Dtype::F32], [2, 2], terms, lanes)
}

/// The same of bytes, so many of whose terms are taken at a time.
fn dots_of_bytes(depth: usize, terms: usize, lanes: u32) -> Kernel {
    dots_of([Dtype::I8, Dtype::I32], [depth, 4], terms, lanes)
}

fn dots_of([dtype, sums]: [Dtype; 2], [depth, group]: [usize; 2], terms: usize, lanes: u32) -> Kernel {
    let mut k = Build::new();
    k.size("s0", 1, 1000);
    let steps = terms.div_ceil(depth);
    let x = k.read("x", dtype, &format!("2*{terms}*s0"));
    let w = k.read("w", dtype, &format!("{}", 20 * depth * steps));
    let y = k.write("y", sums, "40*s0");
    let acc = k.register("acc", sums, "64");
    k.grid("io", "s0");
    let each = |k: &mut Build, body: &mut dyn FnMut(&mut Build)| {
        k.unroll("ii", "2", |k| k.vector("ji", "20", [lanes, 1], |k| body(k)));
    };
    each(&mut k, &mut |k| {
        let zero = k.define(sums, Op::Const(Scalar::Int(0).to(sums)));
        k.store(acc, "32*ii + ji", zero);
    });
    let guard = format!("{depth}*ko + kk < {terms}");
    let guards: &[&str] = if terms.is_multiple_of(depth) { &[] } else { &[&guard] };
    k.each("ko", &steps.to_string(), |k| {
        each(k, &mut |k| {
            k.mma("kk", &depth.to_string(), |k| {
                let row = format!("{terms}*(2*io + ii) + {depth}*ko + kk");
                let mut a = k.load_if(x, &row, guards, Scalar::Int(0));
                let column =
                    format!("20*{group}*floordiv({depth}*ko + kk, {group}) + {group}*ji + mod(kk, {group})");
                let mut b = k.load(w, &column);
                if dtype.compute() != sums {
                    [a, b] = [a, b].map(|byte| k.define(sums, Op::Cast(byte)));
                }
                let c = k.call(ScalarOp::Mul, &[a, b]);
                k.combine(acc, "32*ii + ji", ReduceOp::Sum, c);
            });
        });
    });
    each(&mut k, &mut |k| {
        let a = k.load(acc, "32*ii + ji");
        k.store(y, "20*(2*io + ii) + ji", a);
    });
    k.finish()
}

/// Small whole numbers: sums of their products are exact in f32.
fn whole(count: usize) -> Vec<bf16> {
    numbers(count).into_iter().map(|x| bf16::from_f32(x.round())).collect()
}

/// `x w` where `w` is `[tile, k / 2, column, 2]`.
fn product(x: &[bf16], w: &[bf16], [terms, columns, width]: [usize; 3]) -> Vec<f32> {
    let padded = terms.next_multiple_of(2);
    let element =
        |k: usize, j: usize| w[padded * width * (j / width) + k / 2 * 2 * width + 2 * (j % width) + k % 2];
    let row = |x: &[bf16]| -> Vec<f32> {
        let sum = |j| (0..terms).map(|k| x[k].to_f32() * element(k, j).to_f32()).sum();
        (0..columns).map(sum).collect()
    };
    x.chunks(terms).flat_map(row).collect()
}

/// What the reference device makes of a kernel of bf16 after the passes for a target, which this machine need not be.
fn interpreted(kernel: &Kernel, target: &Processor, size: i64, [x, w]: [&[bf16]; 2], y: &mut [f32]) {
    let bytes =
        |elements: &[bf16]| elements.iter().flat_map(|x| x.to_bits().to_ne_bytes()).collect::<Vec<u8>>();
    let found = interpreted_bytes(kernel, target, size, [&bytes(x), &bytes(w)], y.len());
    y.iter_mut().zip(found).for_each(|(y, bytes)| *y = f32::from_ne_bytes(bytes));
}

/// The same by the bytes of all elements.
fn interpreted_bytes(
    kernel: &Kernel,
    target: &Processor,
    size: i64,
    [x, w]: [&[u8]; 2],
    count: usize,
) -> Vec<[u8; 4]> {
    let kernel = passed(kernel, target).unwrap_or_else(|diag| panic!("{diag}"));
    let problems = litz_ir::verify::kernel::verify(&kernel);
    assert!(problems.is_empty(), "{problems:?}");
    let mut found = vec![0u8; 4 * count];
    let args = &mut [MemView::Read(x), MemView::Read(w), MemView::Write(&mut found)];
    reference::run(&kernel, args, &[size]).unwrap_or_else(|error| panic!("{error}"));
    found.chunks_exact(4).map(|bytes| bytes.try_into().expect("four bytes")).collect()
}

#[test]
fn products_of_tiles() {
    for shape in [[1, 1, 32], [1, 3, 32], [2, 2, 16], [1, 2, 20], [3, 1, 2]] {
        let (terms, kernel) = (shape.iter().product::<usize>(), tiles(shape));
        let compiled = Compiled::with(&kernel, "amx-bf16");
        for m in [1, 15, 16, 17, 32, 33, 48, 70] {
            let (mut x, mut w) = (whole(terms * m), whole(96 * terms));
            let expected = product(&x, &w, [terms, COLUMNS, 32]);
            let mut y = vec![0.0f32; COLUMNS * m];
            interpreted(&kernel, &Processor::amx(), m as i64, [&x, &w], &mut y);
            assert_eq!(y, expected, "{m} rows, {shape:?}");
            if let Some(compiled) = &compiled {
                compiled.run(&[m as i64], &[param(&mut x), param(&mut w), param(&mut y)]);
                assert_eq!(y, expected, "{m} rows, {shape:?}");
            }
        }
    }
}

#[test]
fn dot_products() {
    for (terms, lanes) in [(2, 16), (6, 16), (7, 16), (8, 8), (6, 4), (4, 1), (1, 16)] {
        let kernel = dots(terms, lanes);
        let (mut x, mut w) = (whole(terms * 6), whole(40 * terms.div_ceil(2)));
        // The pair that an odd row ends in goes on in the next row.
        if terms % 2 == 1 {
            x[terms] = bf16::NAN;
        }
        let mut y = vec![0.0f32; 120];
        let expected = product(&x, &w, [terms, 20, 20]);
        let check = |y: &[f32]| {
            let is_same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
            assert!(y.iter().zip(&expected).all(is_same), "{terms} terms, {lanes} lanes: {y:?} {expected:?}");
        };
        interpreted(&kernel, &Processor::avx512_bf16(), 3, [&x, &w], &mut y);
        check(&y);
        if let Some(compiled) = Compiled::with(&kernel, "avx512bf16") {
            compiled.run(&[3], &[param(&mut x), param(&mut w), param(&mut y)]);
            check(&y);
        }
    }
}

/// Bytes with both extremes often, whose products' sums have every sign.
fn bytes(count: usize) -> Vec<i8> {
    let byte = |at: usize| match at % 5 {
        0 => -128,
        1 => 127,
        _ => (at * 37 + at / 7) as i8,
    };
    (0..count).map(byte).collect()
}

#[test]
fn dot_products_of_bytes() {
    let shapes = [
        (8, 8, 16),
        (8, 24, 16),
        (8, 13, 16),
        (4, 4, 16),
        (4, 7, 16),
        (4, 3, 8),
        (8, 17, 4),
        (4, 5, 1),
        (8, 1, 16),
    ];
    for (depth, terms, lanes) in shapes {
        let kernel = dots_of_bytes(depth, terms, lanes);
        let (mut x, mut w) = (bytes(terms * 6), bytes(20 * terms.next_multiple_of(depth)));
        // All of one row and one column are the least bytes, whose products are the largest.
        x[..terms].fill(-128);
        (0..w.len()).filter(|at| at / 4 % 20 == 0).for_each(|at| w[at] = -128);
        let element = |k: usize, j: usize| i32::from(w[k / 4 * 80 + 4 * j + k % 4]);
        let sum =
            |row: &[i8], j| row.iter().enumerate().map(|(k, &a)| i32::from(a) * element(k, j)).sum::<i32>();
        let expected: Vec<i32> = x.chunks(terms).flat_map(|row| (0..20).map(move |j| sum(row, j))).collect();
        let raw = |bytes: &[i8]| bytes.iter().map(|&byte| byte as u8).collect::<Vec<u8>>();
        let y = interpreted_bytes(&kernel, &Processor::avx512_vnni(), 3, [&raw(&x), &raw(&w)], 120);
        let y: Vec<i32> = y.into_iter().map(i32::from_ne_bytes).collect();
        assert_eq!(y, expected, "{depth} of {terms} terms, {lanes} lanes");
        if let Some(compiled) = Compiled::with(&kernel, "avx512vnni") {
            let mut y = vec![0i32; 120];
            compiled.run(&[3], &[param(&mut x), param(&mut w), param(&mut y)]);
            assert_eq!(y, expected, "{depth} of {terms} terms, {lanes} lanes");
        }
    }
}

fn instructions(kernel: &Kernel, target: &Processor, name: &str) -> usize {
    let ir = printed(std::slice::from_ref(kernel), target);
    let text = assembly(&ir, target).expect("compiles");
    text.lines().filter(|line| line.contains(name)).count()
}

/// Four tiles at a time, and one where less is left; the tile registers are divided before the first point, and where
/// less is left around it.
#[test]
fn tiles_stay_in_registers() {
    let kernel = tiles([1, 3, 32]);
    let count = |name| instructions(&kernel, &Processor::amx(), name);
    assert_eq!([count("tdpbf16ps"), count("tileloadd"), count("tilestored")], [5, 6, 5]);
    assert_eq!([count("tilezero"), count("ldtilecfg"), count("tilerelease")], [5, 3, 1]);
}

/// Two rows of two vectors; a single lane takes the narrowest vector.
#[test]
fn pairs_are_one_instruction() {
    assert_eq!(instructions(&dots(6, 16), &Processor::avx512_bf16(), "vdpbf16ps"), 4);
    assert_eq!(instructions(&dots(6, 1), &Processor::avx512_bf16(), "vdpbf16ps"), 2);
}

/// Two rows of two vectors, and for both what the instruction without signs adds too much; deep ones take it off once.
#[test]
fn bytes_are_few_instructions() {
    let target = Processor::avx512_vnni();
    let count = |depth, name| instructions(&dots_of_bytes(depth, 24, 16), &target, name);
    assert_eq!([count(4, "vpdpbusd"), count(4, "vpsubd")], [4 + 2, 4]);
    assert_eq!([count(8, "vpdpbusd"), count(8, "vpsubd")], [2 * (4 + 2), 4]);
}

/// A slow loop would be found by nobody.
#[test]
fn without_the_instruction_there_is_no_code() {
    let targets =
        [Processor::avx512_bf16(), Processor::avx2(), Processor::baseline(), Processor::avx512_vnni()];
    let bytes = (Processor::avx512(), dots_of_bytes(8, 24, 16));
    let pairs = || dots(6, 16);
    let kernels = [tiles([1, 3, 32]), pairs(), pairs(), pairs()];
    for (target, kernel) in targets.iter().zip(kernels).chain([(&bytes.0, bytes.1)]) {
        assert_eq!(passed(&kernel, target).expect_err("it has none").slug, "no-instruction");
    }
    // Nor where a kernel that has the instruction is for another target.
    let kernel = passed(&dots(6, 16), &Processor::avx512_bf16()).expect("it has the instruction");
    assert!(emit_module(&[kernel], &Processor::avx2()).is_err());
    assert!(emit_module(&[dots(6, 16)], &Processor::avx512_bf16()).is_err());
}

/// Runs of two elements are moved as one, here from the rows of a matrix to pairs side by side.
#[test]
fn runs_are_copied_as_wider_elements() {
    let mut k = Build::new();
    let x = k.read("x", Dtype::BF16, "20*8");
    let y = k.write("y", Dtype::BF16, "20*8");
    k.each("p", "4", |k| {
        k.vector("j", "20", [16, 1], |k| {
            k.unroll("q", "2", |k| {
                let a = k.load(x, "8*j + 2*p + q");
                k.store(y, "40*p + 2*j + q", a);
            });
        });
    });
    let kernel = k.finish();
    assert_eq!(instructions(&kernel, &Processor::avx512_bf16(), "vcvtneps2bf16"), 0);
    for compiled in Compiled::on_all(&kernel) {
        // Every bit is kept, of values that no conversion would keep as well.
        let mut x: Vec<u16> = (0..160).map(|at| at * 409 + 1).collect();
        let mut y = vec![0u16; 160];
        compiled.run(&[], &[param(&mut x), param(&mut y)]);
        let expected: Vec<u16> = (0..160).map(|at| x[at / 2 % 20 * 8 + at / 40 * 2 + at % 2]).collect();
        let is_nan = |bits: u16| bf16::from_bits(bits).is_nan();
        assert!(y.iter().zip(&expected).all(|(&a, &b)| a == b || (is_nan(a) && is_nan(b))));
    }
}
