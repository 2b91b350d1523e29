//! Reductions along rows and along columns of one tensor, in one pass over memory.

#![allow(missing_docs, reason = "a test")]

use litz::pipeline::{Texts, compile};
use litz::target::Cpu;
use litz::{Options, Runner, Stage, Target, Tensor, Text, Verify};
use litz_ir::schedule::{Schedule, ScheduleStep};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;
use litz_schedule::cost::{Estimator, Traffic};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

/// Compiles the graph up to a program.
fn texts(graph: &str, options: &Options) -> Texts {
    let Text::Graph(graph) = Text::parse(graph).expect("it parses") else { panic!("expected a graph") };
    let backend = litz::backend(options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let texts = compile(graph, &*backend, options, Stage::Program, &mut runner).expect("it compiles");
    assert!(texts.unproved.is_empty(), "{}", texts.unproved[0].why);
    texts
}

fn kernels(schedule: &Schedule) -> Vec<Vec<String>> {
    let nests = |step: &ScheduleStep| match step {
        ScheduleStep::Kernel(plan) => Some(plan.nests().into_iter().map(str::to_owned).collect()),
        ScheduleStep::Extern { .. } => None,
    };
    schedule.steps.iter().filter_map(nests).collect()
}

/// The bytes that each kernel moves.
fn traffic(graph: &str, target: &str) -> Vec<Traffic> {
    let target: Target = target.parse().expect("a target");
    let texts = texts(graph, &Options::for_target(target));
    let (loops, schedule) = (texts.loops.expect("it was made"), texts.schedule.expect("it was made"));
    let estimator = Estimator::new(&loops);
    kernels(&schedule).iter().map(|nests| estimator.kernel(nests).traffic).collect()
}

/// Sums of `x * y` along rows and along columns.
fn product(rows: u32, columns: u32) -> String {
    format!(
        "graph @g on cpu {{
  %x: f32[{rows}, {columns}] = input
  %y: f32[{rows}, {columns}] = input
  %p: f32[{rows}, {columns}] = aten.mul.Tensor(%x, %y)
  %r: f32[{rows}] = aten.sum.dim_IntList(%p, [1])
  %c: f32[{columns}] = aten.sum.dim_IntList(%p, [0])
  return %r, %c
}}"
    )
}

const LARGE: &str = "cpu(isa=avx512, threads=2, l2=2M)";

/// SC-17: both operands are read once, and their product is stored nowhere; what blocks of 128 rows add up to is stored and loaded.
#[test]
fn a_large_product_is_read_once() {
    let all = 32768 * 768 * 4;
    let blocks = 256 * 768 * 4;
    let sums =
        [Traffic { reads: 2 * all, writes: 32768 * 4 + blocks }, Traffic { reads: blocks, writes: 768 * 4 }];
    assert_eq!(traffic(&product(32768, 768), LARGE), sums);
    // Whichever comes first, and whatever the threads.
    let exchanged =
        product(32768, 768).replace("[1])", "[2])").replace("[0])", "[1])").replace("[2])", "[0])");
    let exchanged =
        exchanged.replace("%r: f32[32768]", "%r: f32[768]").replace("%c: f32[768]", "%c: f32[32768]");
    assert_eq!(traffic(&exchanged, LARGE), sums);
    assert_eq!(traffic(&product(32768, 768), "cpu(isa=avx2, threads=64, l2=256K)"), sums);
}

/// SC-17: of fewer rows there are two kernels, which read what is in a cache twice.
#[test]
fn a_small_product_is_read_twice() {
    assert_eq!(traffic(&product(1024, 768), LARGE).len(), 2);
    let all = 1024 * 768 * 4;
    let reads: i64 = traffic(&product(1024, 768), LARGE).iter().map(|traffic| traffic.reads).sum();
    assert!(reads >= 3 * all, "{reads}");
}

/// Numbers that are always the same.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A tensor of small numbers, which sums of a few thousand have no rounding errors in, or of any below 1.
fn tensor(dtype: &str, sizes: &[usize], is_whole: bool, random: &mut Random) -> Tensor {
    let count = sizes.iter().product();
    let mut number = || match is_whole {
        true => random.below(5) as f64 - 2.0,
        false => random.below(1 << 20) as f64 / (1 << 19) as f64 - 1.0,
    };
    let numbers: Vec<f64> = (0..count).map(|_| number()).collect();
    macro_rules! of {
        ($convert:expr) => {
            Tensor::from_slice(sizes, &numbers.iter().copied().map($convert).collect::<Vec<_>>())
        };
    }
    let tensor = match dtype {
        "f32" => of!(|x| x as f32),
        "f64" => of!(|x| x),
        "bf16" => of!(half::bf16::from_f64),
        "i32" => of!(|x| x as i32),
        "i64" => of!(|x| x as i64),
        other => panic!("no numbers of type {other}"),
    };
    tensor.expect("lengths match")
}

/// The native target with a small cache, so that small tensors leave it.
fn options(threads: u32) -> Options {
    let backend = litz::backend(&Options::default()).expect("there is a backend");
    let native = *backend.target().cpu().expect("a CPU");
    Options::for_target(Target::Cpu(Cpu { threads, l2_bytes: 16 << 10, ..native }))
}

/// The results by so many threads; by the reference device where there are none.
fn results(graph: &str, threads: u32, inputs: &[Tensor]) -> Vec<Vec<u8>> {
    let options = options(threads.max(1));
    let texts = texts(graph, &options);
    let realized = texts.realized.expect("it was asked for");
    let (program, kernels) = (&realized.program, &realized.kernels);
    let executable = match threads {
        0 => {
            let device = Arc::new(ReferenceDevice::new(kernels).expect("it takes all kernels"));
            Executable::new(program, kernels, device, &HashMap::new())
        }
        _ => {
            let backend = litz::backend(&options).expect("there is a backend");
            let objects = litz::compile_kernels(&*backend, kernels, &options, None).expect("it compiles");
            let pool = Arc::new(ThreadPool::unbound(threads as usize));
            let device = backend.load(kernels, &objects, &|| pool.clone()).expect("it loads");
            Executable::new(program, kernels, device, &HashMap::new())
        }
    };
    let outputs = executable.expect("it is complete").run(inputs).expect("the inputs suit");
    outputs.iter().map(|output| output.tensor().expect("a tensor").bytes().to_vec()).collect()
}

/// Whether a kernel of the graph goes over rows and adds up columns of them: it has accumulators of several columns, in scratch memory, and
/// of rows, in registers.
fn is_one_pass(graph: &str) -> bool {
    let schedule = texts(graph, &options(2)).schedule.expect("it was made").to_string();
    let declares = |kernel: &str, space: &str| kernel.contains(&format!("{space} accumulator of"));
    let is_both = |kernel: &str| {
        declares(kernel, "scratch") && declares(kernel, "register") && kernel.contains("vector c0 in")
    };
    schedule.split("kernel").any(is_both)
}

fn sizes_text(sizes: &[usize]) -> String {
    let mut text = String::new();
    for (at, size) in sizes.iter().enumerate() {
        write!(text, "{}{size}", if at == 0 { "" } else { ", " }).expect("strings take all");
    }
    text
}

/// Sums of `x * y + x` along the last dimension and along `dims`, of tensors of these sizes.
fn sums(dtype: &str, sizes: &[usize], dims: &[usize]) -> String {
    let result = match dtype {
        "i32" => "i64",
        other => other,
    };
    let rows = sizes_text(&sizes[..sizes.len() - 1]);
    let kept: Vec<usize> = (0..sizes.len()).filter(|at| !dims.contains(at)).map(|at| sizes[at]).collect();
    let (all, columns, dims) = (sizes_text(sizes), sizes_text(&kept), sizes_text(dims));
    format!(
        "graph @g on cpu {{
  %x: {dtype}[{all}] = input
  %y: {dtype}[{all}] = input
  %p: {dtype}[{all}] = aten.mul.Tensor(%x, %y)
  %q: {dtype}[{all}] = aten.add.Tensor(%p, %x)
  %r: {result}[{rows}] = aten.sum.dim_IntList(%q, [-1])
  %c: {result}[{columns}] = aten.sum.dim_IntList(%q, [{dims}])
  return %r, %c
}}"
    )
}

/// Sizes that blocks divide and do not, of two dimensions and three, reduced along all rows and along some.
#[test]
fn results_are_those_of_the_reference_device() {
    let cases: [(&str, &[usize], &[usize]); 9] = [
        ("f32", &[2048, 24], &[0]),
        ("f32", &[2053, 37], &[0]),
        ("bf16", &[2310, 40], &[0]),
        ("f64", &[2051, 17], &[0]),
        ("i32", &[4096, 9], &[0]),
        ("i64", &[3001, 16], &[0]),
        ("f32", &[9, 300, 33], &[1]),
        ("f64", &[40, 60, 21], &[1]),
        ("f32", &[37, 64, 20], &[0, 1]),
    ];
    let mut random = Random(1);
    for (dtype, sizes, dims) in cases {
        let graph = sums(dtype, sizes, dims);
        assert!(is_one_pass(&graph), "two passes\n{graph}");
        for is_whole in [true, false] {
            let inputs = [(); 2].map(|()| tensor(dtype, sizes, is_whole, &mut random));
            let one = results(&graph, 1, &inputs);
            assert!(results(&graph, 7, &inputs) == one, "seven threads give other bits than one\n{graph}");
            if is_whole {
                assert!(results(&graph, 0, &inputs) == one, "the reference device gives other bits\n{graph}");
            }
        }
    }
}

/// Any number of rows, of which the last block has fewer.
#[test]
fn rows_may_be_of_any_number() {
    let graph = "graph @g on cpu {
  sym s0 in [2, 100000] hint 4096
  %x: f32[s0, 24] = input
  %r: f32[s0] = aten.sum.dim_IntList(%x, [1])
  %c: f32[24] = aten.sum.dim_IntList(%x, [0])
  return %r, %c
}";
    assert!(is_one_pass(graph));
    let mut random = Random(2);
    for rows in [2, 127, 128, 1000, 4096] {
        let inputs = [tensor("f32", &[rows, 24], true, &mut random)];
        let one = results(graph, 1, &inputs);
        assert!(results(graph, 7, &inputs) == one && results(graph, 0, &inputs) == one, "{rows} rows");
    }
}

/// The gradients of a layer norm's input, weight and bias: what columns add up is made of the sums of rows.
#[test]
fn gradients_of_a_layer_norm() {
    let graph = "graph @g on cpu {
  %dy: f32[2100, 40] = input
  %xh: f32[2100, 40] = input
  %w: f32[40] = input
  %g: f32[2100, 40] = aten.mul.Tensor(%dy, %w)
  %gx: f32[2100, 40] = aten.mul.Tensor(%g, %xh)
  %a: f32[2100, 1] = aten.sum.dim_IntList(%g, [1], true)
  %b: f32[2100, 1] = aten.sum.dim_IntList(%gx, [1], true)
  %d: f32[2100, 40] = aten.sub.Tensor(%g, %a)
  %e: f32[2100, 40] = aten.mul.Tensor(%xh, %b)
  %dx: f32[2100, 40] = aten.sub.Tensor(%d, %e)
  %f: f32[2100, 40] = aten.mul.Tensor(%dy, %xh)
  %dw: f32[40] = aten.sum.dim_IntList(%f, [0])
  %db: f32[40] = aten.sum.dim_IntList(%dy, [0])
  %s: f32[40] = aten.sum.dim_IntList(%dx, [0])
  return %dx, %dw, %db, %s
}";
    assert!(is_one_pass(graph));
    let mut random = Random(3);
    let inputs = [&[2100, 40][..], &[2100, 40], &[40]].map(|sizes| tensor("f32", sizes, true, &mut random));
    let one = results(graph, 1, &inputs);
    assert!(results(graph, 7, &inputs) == one, "seven threads give other bits than one");
    assert!(results(graph, 0, &inputs) == one, "the reference device gives other bits");
}
