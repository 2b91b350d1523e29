//! Holds kernels of the families for GPUs to the bytes that `docs/gpu-kernel.md` says they load and store, and to the sectors of global memory
//! and the rounds of shared memory that these take at least.

#![allow(missing_docs, reason = "a test")]

use std::collections::HashMap;
use std::sync::Arc;

use litz::{Options, Tensor};
use litz_ir::dtype::Dtype;
use litz_ir::target::Target;
use litz_ir::text;
use litz_runtime::limits::Limits;
use litz_runtime::reference::{Counts, ReferenceDevice, ReferenceOptions};
use litz_runtime::tensor::contiguous_strides;
use litz_testing::devices;
use litz_testing::models::Call;

const TARGETS: [&str; 2] = ["gpu(isa=sm80, units=108)", "gpu(isa=sm90, units=132)"];

/// How many times its formula a family may load and store, its least the sectors of global memory, and the rounds of shared memory.
const MOST_BYTES: f64 = 1.05;
const MOST_SECTORS: f64 = 1.05;
const MOST_ROUNDS: f64 = 1.1;

/// A program, and what its kernels are to take.
struct Shape {
    /// The nodes of a graph.
    graph: &'static str,
    /// Bytes that are loaded from global memory, and stored to it.
    bytes: [u64; 2],
    /// How many times the least sectors and rounds it takes, where that is known to be more than [`MOST_SECTORS`] and [`MOST_ROUNDS`].
    sectors: f64,
    rounds: f64,
}

const fn shape(graph: &'static str, loaded: u64, stored: u64) -> Shape {
    Shape { graph, bytes: [loaded, stored], sectors: MOST_SECTORS, rounds: MOST_ROUNDS }
}

/// Runs a shape for each target.
fn check(shape: &Shape) {
    for target in TARGETS {
        let (mut loaded, mut stored) = (0, 0);
        for (kernel, counts) in counted(shape.graph, target) {
            let [sectors, rounds] = [counts.sectors().ratio(), counts.banks.ratio()];
            assert!(sectors <= shape.sectors, "{target}, {kernel}: {sectors} times the least sectors");
            assert!(rounds <= shape.rounds, "{target}, {kernel}: {rounds} times the least rounds");
            loaded += 32 * counts.loads.taken;
            stored += 32 * counts.stores.taken;
        }
        for (what, found, expected) in [("loads", loaded, shape.bytes[0]), ("stores", stored, shape.bytes[1])]
        {
            let most = expected as f64 * MOST_BYTES * shape.sectors / MOST_SECTORS;
            assert!(found as f64 <= most, "{target}: {what} {found} bytes, expected {expected}");
        }
    }
}

/// What the kernels of a graph take, on rows of zeros and indices of different rows: nothing else decides what is accessed.
fn counted(graph: &str, target: &str) -> Vec<(String, Counts)> {
    let parsed: Target = target.parse().expect("a target");
    let options = Options::for_target(parsed);
    let graph = text::graph::parse(&format!("graph @g on cpu {{ {graph} }}")).expect("a graph that reads");
    let types: Vec<_> = graph.inputs.iter().map(|&input| graph.tensor(input).cloned()).collect();
    let backend = litz::backend(&options).expect("a backend");
    let realized = devices::realize(graph, &*backend, &options).expect("kernels that are proved");
    let counting = ReferenceOptions { counts: true, ..ReferenceOptions::default() };
    let device = Arc::new(ReferenceDevice::with(&realized.kernels, &counting).expect("kernels that resolve"));
    let inputs = types.into_iter().map(|ty| {
        let ty = ty.expect("a tensor");
        let sizes: Vec<usize> =
            ty.sizes.iter().map(|size| size.as_int().expect("a number") as usize).collect();
        match ty.dtype {
            Dtype::I64 => {
                let rows: Vec<i64> =
                    (0..sizes.iter().product::<usize>() as i64).map(|at| at * 7 % 64).collect();
                Tensor::from_slice(&sizes, &rows).expect("there is memory")
            }
            _ => Tensor::zeros(ty.dtype, &sizes, &contiguous_strides(&sizes)).expect("there is memory"),
        }
    });
    let call = Call { sizes: HashMap::new(), inputs: inputs.collect(), weights: HashMap::new() };
    let executable = devices::executable(&realized, device.clone(), &call.weights, Limits::default());
    executable.and_then(|executable| executable.run(&call.inputs)).expect("a run");
    device.counts()
}

/// Elements of each operand once, or once more for each row that reads them again.
#[test]
fn pointwise() {
    let graph = "
        %x: bf16[512, 1024] = input
        %y: bf16[512, 1024] = aten.gelu.default(%x)
        return %y";
    check(&shape(graph, 512 * 1024 * 2, 512 * 1024 * 2));
    let graph = "
        %x: f32[512, 1024] = input
        %b: f32[1024] = input
        %y: f32[512, 1024] = aten.add.Tensor(%x, %b)
        return %y";
    check(&shape(graph, 2 * 512 * 1024 * 4, 512 * 1024 * 4));
}

/// A row of a warp, one of a block's registers, and one of its shared memory.
#[test]
fn softmax() {
    let graph = "
        %x: bf16[64, 1024] = input
        %y: bf16[64, 1024] = aten._softmax.default(%x, 1, false)
        return %y";
    check(&shape(graph, 64 * 1024 * 2, 64 * 1024 * 2));
    let graph = "
        %x: bf16[64, 4096] = input
        %y: bf16[64, 4096] = aten._softmax.default(%x, 1, false)
        return %y";
    check(&shape(graph, 64 * 4096 * 2, 64 * 4096 * 2));
    let graph = "
        %x: bf16[16, 32768] = input
        %y: bf16[16, 32768] = aten._softmax.default(%x, 1, false)
        return %y";
    check(&shape(graph, 16 * 32768 * 2, 16 * 32768 * 2));
}

#[test]
fn log_softmax() {
    let graph = "
        %x: bf16[64, 1024] = input
        %y: bf16[64, 1024] = aten._log_softmax.default(%x, 1, false)
        return %y";
    check(&shape(graph, 64 * 1024 * 2, 64 * 1024 * 2));
    let graph = "
        %x: f32[64, 4096] = input
        %y: f32[64, 4096] = aten._log_softmax.default(%x, 1, false)
        return %y";
    check(&shape(graph, 64 * 4096 * 4, 64 * 4096 * 4));
    // A row of 512 KiB is longer than what a block's threads share. Each of three nests reads it, the last one with two numbers of the row.
    let graph = "
        %x: f32[4, 131072] = input
        %y: f32[4, 131072] = aten._log_softmax.default(%x, 1, false)
        return %y";
    check(&shape(graph, 3 * 4 * 131072 * 4 + 2 * 4 * 131072, 4 * 131072 * 4));
}

/// Each row loads weights and biases, too.
#[test]
fn layer_norm() {
    let graph = "
        %x: bf16[64, 1024] = input
        %w: bf16[1024] = input
        %b: bf16[1024] = input
        %y: bf16[64, 1024], %m: f32[64, 1], %r: f32[64, 1] = aten.native_layer_norm.default(%x, [1024], %w, %b, 0.00001)
        return %y";
    check(&shape(graph, 3 * 64 * 1024 * 2, 64 * 1024 * 2));
    let graph = "
        %x: bf16[64, 4096] = input
        %w: bf16[4096] = input
        %b: bf16[4096] = input
        %y: bf16[64, 4096], %m: f32[64, 1], %r: f32[64, 1] = aten.native_layer_norm.default(%x, [4096], %w, %b, 0.00001)
        return %y";
    check(&shape(graph, 3 * 64 * 4096 * 2, 64 * 4096 * 2));
    // The mean and the deviation of a row, which training needs, are a sector each.
    let graph = "
        %x: f32[64, 1024] = input
        %w: f32[1024] = input
        %b: f32[1024] = input
        %y: f32[64, 1024], %m: f32[64, 1], %r: f32[64, 1] = aten.native_layer_norm.default(%x, [1024], %w, %b, 0.00001)
        return %y, %m, %r";
    check(&shape(graph, 3 * 64 * 1024 * 4, 64 * 1024 * 4 + 2 * 64 * 32));
}

#[test]
fn rms_norm() {
    let graph = "
        %x: bf16[64, 1024] = input
        %w: bf16[1024] = input
        %y: bf16[64, 1024] = aten.rms_norm.default(%x, [1024], %w, 0.00001)
        return %y";
    check(&shape(graph, 2 * 64 * 1024 * 2, 64 * 1024 * 2));
}

/// A sum that a norm is of, and that others need, is stored and not loaded again.
#[test]
fn norm_of_a_sum() {
    let graph = "
        %a: f32[64, 1024] = input
        %b: f32[64, 1024] = input
        %w: f32[1024] = input
        %x: f32[64, 1024] = aten.add.Tensor(%a, %b)
        %y: f32[64, 1024] = aten.rms_norm.default(%x, [1024], %w, 0.00001)
        return %x, %y";
    check(&shape(graph, 3 * 64 * 1024 * 4, 2 * 64 * 1024 * 4));
}

/// Rows that data chooses are looked up once, each by its number.
#[test]
fn norm_of_gathered_rows() {
    let graph = "
        %t: f32[5000, 1024] = input
        %i: i64[64] = input
        %w: f32[1024] = input
        %x: f32[64, 1024] = aten.embedding.default(%t, %i)
        %y: f32[64, 1024] = aten.rms_norm.default(%x, [1024], %w, 0.00001)
        return %y";
    check(&shape(graph, 2 * 64 * 1024 * 4 + 64 * 32, 64 * 1024 * 4));
}

/// Partial sums are stored and loaded besides.
#[test]
fn sums() {
    let graph = "
        %x: bf16[64, 1024] = input
        %y: bf16[64] = aten.sum.dim_IntList(%x, [1])
        return %y";
    check(&shape(graph, 64 * 1024 * 2, 64 * 32));
    let graph = "
        %x: bf16[1024, 256] = input
        %y: bf16[256] = aten.sum.dim_IntList(%x, [0])
        return %y";
    check(&shape(graph, 1024 * 256 * 2 + 8 * 256 * 4, 8 * 256 * 4 + 256 * 2));
    let graph = "
        %x: f32[65536] = input
        %y: f32[] = aten.sum.default(%x)
        return %y";
    check(&shape(graph, 65536 * 4, 16 * 32 + 32));
}

/// Logits once, and of each row a sector for the target's; the loss of a row needs its target, largest logit and sum.
#[test]
fn cross_entropy() {
    let graph = "
        %x: f32[64, 4096] = input
        %t: i64[64] = input
        %l: f32[64, 4096] = aten._log_softmax.default(%x, 1, false)
        %y: f32[], %w: f32[] = aten.nll_loss_forward.default(%l, %t, none, 1, -100)
        return %y";
    check(&shape(graph, 64 * 4096 * 4 + 64 * (32 + 2 * 8 + 4 + 4), 64 * 2 * 32));
    // Seven of eight rows begin within a sector, so that a warp's access of 128 bytes touches five of them, of which a cache has one already.
    let graph = "
        %x: f32[64, 4097] = input
        %t: i64[64] = input
        %l: f32[64, 4097] = aten._log_softmax.default(%x, 1, false)
        %y: f32[], %w: f32[] = aten.nll_loss_forward.default(%l, %t, none, 1, -100)
        return %y";
    let unaligned =
        Shape { sectors: 1.22, ..shape(graph, 64 * 4097 * 4 + 64 * (32 + 2 * 8 + 4 + 4), 64 * 2 * 32) };
    check(&unaligned);
    // Of long rows of bf16 threads take runs of 16 bytes, from within which rows begin: a sector has elements of two rows.
    let graph = "
        %x: bf16[8, 40001] = input
        %t: i64[8] = input
        %l: bf16[8, 40001] = aten._log_softmax.default(%x, 1, false)
        %y: bf16[], %w: bf16[] = aten.nll_loss_forward.default(%l, %t, none, 1, -100)
        return %y";
    check(&shape(graph, 8 * 40001 * 2 + 8 * (2 * 32 + 2 * 8 + 4 + 4), 8 * 2 * 32 + 32));
}

#[test]
fn transposition() {
    let graph = "
        %a: f32[256, 256] = input
        %b: f32[256, 256] = input
        %t: f32[256, 256] = aten.t.default(%a)
        %y: f32[256, 256] = aten.add.Tensor(%t, %b)
        return %y";
    check(&shape(graph, 2 * 256 * 256 * 4, 256 * 256 * 4));
    let graph = "
        %a: bf16[256, 256] = input
        %b: bf16[256, 256] = input
        %t: bf16[256, 256] = aten.t.default(%a)
        %y: bf16[256, 256] = aten.add.Tensor(%t, %b)
        return %y";
    check(&shape(graph, 2 * 256 * 256 * 2, 256 * 256 * 2));
}

/// Rows once, and their numbers for each warp that loads a piece of them.
#[test]
fn gather() {
    let graph = "
        %t: f32[5000, 1024] = input
        %i: i64[64] = input
        %x: f32[64, 1024] = aten.embedding.default(%t, %i)
        return %x";
    check(&shape(graph, 64 * 1024 * 4 + 64 * 32 * 32, 64 * 1024 * 4));
}

/// Tiles of rows and columns load both operands along the sum.
#[test]
fn products() {
    let graph = "
        %x: bf16[256, 256] = input
        %w: bf16[256, 256] = input
        %wt: bf16[256, 256] = aten.t.default(%w)
        %y: bf16[256, 256] = aten.mm.default(%x, %wt)
        return %y";
    check(&shape(graph, 2 * (256 / 32) * 256 * 256 * 2, 256 * 256 * 2));
    let graph = "
        %x: bf16[256, 256] = input
        %w: bf16[256, 256] = input
        %y: bf16[256, 256] = aten.mm.default(%x, %w)
        return %y";
    check(&shape(graph, 2 * (256 / 32) * 256 * 256 * 2, 256 * 256 * 2));
    let graph = "
        %x: f32[128, 128] = input
        %w: f32[128, 128] = input
        %y: f32[128, 128] = aten.mm.default(%x, %w)
        return %y";
    check(&shape(graph, 2 * (128 / 16) * 128 * 128 * 4, 128 * 128 * 4));
}

/// A block has 64 rows of queries and reads the keys and values that these see: with a causal mask those of the 64 rows before and its own.
#[test]
fn attention() {
    let one = 2 * 128 * 64 * 2;
    let graph = "
        %q: bf16[1, 2, 128, 64] = input
        %k: bf16[1, 2, 128, 64] = input
        %v: bf16[1, 2, 128, 64] = input
        %y: bf16[1, 2, 128, 64] = aten.scaled_dot_product_attention.default(%q, %k, %v)
        return %y";
    // Results are stored by 16 bytes of a row: halves of sectors.
    check(&Shape { sectors: 1.2, ..shape(graph, one + 2 * one * 2, 2 * one) });
    let graph = "
        %q: bf16[1, 2, 128, 64] = input
        %k: bf16[1, 2, 128, 64] = input
        %v: bf16[1, 2, 128, 64] = input
        %y: bf16[1, 2, 128, 64] = aten.scaled_dot_product_attention.default(%q, %k, %v, none, 0.0, true)
        return %y";
    check(&Shape { sectors: 1.22, ..shape(graph, one + 2 * one * 3 / 2, 2 * one) });
}
