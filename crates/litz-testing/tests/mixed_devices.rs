//! Graphs and loops with tensors on several devices and streams: where their steps run, what they wait for, and their numbers.

#![allow(missing_docs, reason = "a test")]

use std::collections::HashMap;
use std::sync::Arc;

use litz::pipeline::{compile, compile_loops};
use litz::{Options, Runner, Stage, Tensor, Text, Value, Verify};
use litz_codegen::Realized;
use litz_ir::kernel::MemorySpace;
use litz_ir::program::{ProgramStep, accesses_of, partitions};
use litz_runtime::limits::Limits;
use litz_runtime::reference::ReferenceDevice;

fn realized(text: &str) -> Realized {
    let options = Options {
        verify: Verify::Passes,
        ..Options::for_target("cpu(isa=avx2, threads=2)".parse().expect("a target"))
    };
    let backend = litz::backend(&options).unwrap_or_else(|error| panic!("{error}"));
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(options.verify, None, &mut silent);
    let texts = match Text::parse(text).unwrap_or_else(|error| panic!("{error}")) {
        Text::Graph(graph) => compile(graph, &*backend, &options, Stage::Program, &mut runner),
        Text::Loops(loops) => compile_loops(loops, &*backend, &options, Stage::Program, &mut runner),
        Text::Schedule(..) | Text::Kernels(_) | Text::Program(_) => panic!("expected a graph or loops"),
    };
    texts.unwrap_or_else(|error| panic!("{error}")).realized.expect("it was asked for")
}

fn numbers(realized: &Realized, inputs: &[Tensor]) -> Vec<Vec<f32>> {
    let device = Arc::new(ReferenceDevice::new(&realized.kernels).expect("kernels are sound"));
    let executable = litz_testing::devices::executable(realized, device, &HashMap::new(), Limits::default());
    let executable = executable.unwrap_or_else(|error| panic!("{error}\n{}", realized.program));
    let mut found = Vec::new();
    // The second call replays what the first one captured.
    for _ in 0..2 {
        let values = executable.run(inputs).unwrap_or_else(|error| panic!("{error}\n{}", realized.program));
        let tensors = values.iter().filter_map(Value::tensor);
        found = tensors.map(|tensor| tensor.to_vec::<f32>().expect("floats")).collect();
    }
    found
}

fn tensor(sizes: &[usize], values: &[f32]) -> Tensor {
    Tensor::from_slice(sizes, values).expect("as many values as elements")
}

fn launches(realized: &Realized) -> Vec<(String, u32)> {
    let launch = |step: &ProgramStep| match step {
        ProgramStep::Launch { kernel, stream, .. } => Some((kernel.clone(), *stream)),
        _ => None,
    };
    realized.program.steps.iter().filter_map(launch).collect()
}

fn count(realized: &Realized, is_wanted: impl Fn(&ProgramStep) -> bool) -> usize {
    realized.program.steps.iter().filter(|step| is_wanted(step)).count()
}

/// PT-1, from the graph on.
#[test]
fn a_block_an_operator_of_the_cpu_and_a_block_have_the_numbers_of_one_device() {
    let graph = "graph @g on ref:0 {
  %x: f32[2, 3] = input
  %a: f32[2, 3] = aten.exp.default(%x)
  %h: f32[2, 3] on cpu = aten._to_copy.default(%a, none, none, cpu, none, false, none)
  %t: f32[3, 2]{1, 3} on cpu = aten.permute.default(%h, [1, 0])
  %s: f32[3, 2]{1, 3} on cpu = aten.mul.Scalar(%t, 2.0)
  %b: f32[3, 2]{1, 3} = aten._to_copy.default(%s, none, none, ref:0, none, false, none)
  %c: f32[3, 2] on ref:1 = aten._to_copy.default(%b, none, none, ref:1, none, false, contiguous)
  %d: f32[3, 2]{1, 3} = aten.add.Tensor(%b, %b, 1)
  return %d, %c
}";
    let mixed = realized(graph);
    let captures = |device| device != litz_ir::graph::Device::Cpu;
    let cut = partitions(&mixed.program, &accesses_of(&mixed.kernels), &captures);
    let captured = cut.iter().filter(|partition| partition.is_captured());
    let devices: Vec<String> = captured.map(|partition| partition.devices[0].to_string()).collect();
    assert_eq!(devices, ["ref:0", "ref:1", "ref:0"], "{}", mixed.program);
    let alone = graph.replace(" on ref:0", " on cpu").replace(" on ref:1", "").replace("ref:0", "cpu");
    let alone = realized(&alone.replace("ref:1", "cpu"));
    let x = [tensor(&[2, 3], &[0.0, 1.0, -1.0, 2.5, f32::INFINITY, -0.0])];
    assert_eq!(numbers(&mixed, &x), numbers(&alone, &x));
}

/// Two streams on data of their own.
const STREAMS: &str = "loops @l on ref:0 {
  buf x: f32[64] = input
  buf z: f32[64] = input
  buf a: f32[64]
  buf b: f32[64] stream 1
  buf c: f32[64]
  buf d: f32[64] stream 1
  nest n0 [i in 64] { %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }
  nest n1 [i in 64] { %0: f32 = load z[i] %1: f32 = exp %0 store b[i] = %1 }
  nest n2 [i in 64] { %0: f32 = load a[-i + 63] %1: f32 = neg %0 store c[i] = %1 }
  nest n3 [i in 64] { %0: f32 = load CROSS[-i + 63] %1: f32 = neg %0 store d[i] = %1 }
  return c, d
}";

fn inputs() -> [Tensor; 2] {
    let values = |by: f32| (0..64).map(|at| at as f32 * by).collect::<Vec<f32>>();
    [tensor(&[64], &values(0.1)), tensor(&[64], &values(-0.2))]
}

fn expected(cross: usize) -> Vec<Vec<f32>> {
    let inputs = inputs().map(|tensor| tensor.to_vec::<f32>().expect("floats"));
    [0, cross].map(|of| inputs[of].iter().rev().map(|x| -x.exp()).collect()).into()
}

fn close(found: &[Vec<f32>], expected: &[Vec<f32>]) {
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    assert!(pairs.clone().count() == 128 && pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs()));
}

/// PT-6: nothing fuses across streams.
#[test]
fn streams_on_data_of_their_own_have_the_kernels_of_each_alone_and_wait_for_nothing() {
    let apart = realized(&STREAMS.replace("CROSS", "b"));
    let of = |stream: u32| launches(&apart).iter().filter(|launch| launch.1 == stream).count();
    let one = realized(&STREAMS.replace("CROSS", "b").replace(" stream 1", ""));
    assert_eq!((of(0), of(1)), (launches(&one).len() / 2, launches(&one).len() / 2), "{}", apart.program);
    assert_eq!(count(&apart, |step| matches!(step, ProgramStep::Wait { .. })), 0, "{}", apart.program);
    close(&numbers(&apart, &inputs()), &expected(1));
}

/// PT-6: a wait where a buffer crosses.
#[test]
fn a_buffer_that_crosses_streams_is_waited_for_and_its_memory_is_its_own() {
    let crossing = realized(&STREAMS.replace("CROSS", "a"));
    assert_eq!(count(&crossing, |step| matches!(step, ProgramStep::Wait { .. })), 1, "{}", crossing.program);
    let alloc = |step: &ProgramStep| match step {
        ProgramStep::Alloc { slot } => crossing.program.slots[*slot].name == "a",
        _ => false,
    };
    assert_eq!(count(&crossing, alloc), 1, "{}", crossing.program);
    close(&numbers(&crossing, &inputs()), &expected(0));
    // Pointwise all along, where one stream would have one kernel.
    let fused = STREAMS.replace("CROSS", "a").replace("-i + 63", "i");
    let kernels = |text: &str| launches(&realized(text)).len();
    assert!(kernels(&fused) > kernels(&fused.replace(" stream 1", "")));
    let streams = realized(&fused);
    for (kernel, stream) in launches(&streams) {
        let kernel = streams.kernels.iter().find(|found| found.name == kernel).expect("it is there");
        let crosses = kernel.from.iter().any(|from| from == "n3") && kernel.from.len() > 1;
        assert!(!crosses && stream <= 1, "{kernel}");
    }
}

#[test]
fn a_program_without_a_wait_between_streams_is_refused() {
    let mut crossing = realized(&STREAMS.replace("CROSS", "a"));
    crossing.program.steps.retain(|step| !matches!(step, ProgramStep::Wait { .. }));
    let diags = litz_ir::verify::program::verify_with(&crossing.program, &crossing.kernels);
    assert_eq!(diags.iter().map(|diag| diag.slug).collect::<Vec<_>>(), ["unordered"]);
}

/// PT-7: a number, one launch, no copy.
#[test]
fn a_number_of_the_cpu_is_given_to_a_kernel_by_value() {
    let graph = "graph @g on ref:0 {
  %x: f32[4] = input
  %scale: f32[] on cpu = input
  %y: f32[4] = aten.mul.Tensor(%x, %scale)
  return %y
}";
    let scaled = realized(graph);
    assert_eq!(launches(&scaled).len(), 1);
    assert_eq!(count(&scaled, |step| matches!(step, ProgramStep::Copy { .. })), 0, "{}", scaled.program);
    let [kernel] = &scaled.kernels[..] else { panic!("expected one kernel") };
    let spaces: Vec<MemorySpace> = kernel.mems.values().take(kernel.params).map(|mem| mem.space).collect();
    assert!(spaces.contains(&MemorySpace::Number), "{kernel}");
    let scale = |by: f32| numbers(&scaled, &[tensor(&[4], &[1.0, -2.0, 0.0, 3.0]), tensor(&[], &[by])]);
    assert_eq!(scale(2.0), [[2.0, -4.0, 0.0, 6.0]]);
    // One that the CPU computes in the call: the launch waits for it.
    let made = graph.replace("aten.mul.Tensor(%x, %scale)", "aten.mul.Tensor(%x, %sum)").replace(
        "  %scale: f32[] on cpu = input\n",
        "  %v: f32[3] on cpu = input\n  %sum: f32[] on cpu = aten.sum.default(%v, none)\n",
    );
    let made = realized(&made);
    assert_eq!(count(&made, |step| matches!(step, ProgramStep::Copy { .. })), 0, "{}", made.program);
    let found = numbers(&made, &[tensor(&[4], &[1.0, -2.0, 0.0, 3.0]), tensor(&[3], &[1.0, 2.0, 3.0])]);
    assert_eq!(found, [[6.0, -12.0, 0.0, 18.0]]);
}
