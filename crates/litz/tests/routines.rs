//! Calls runtime routines from graphs: what lowering passes is what routines take.

use litz::{Options, Runner, Stage, Tensor, Value, Verify, pipeline};
use litz_ir::text::graph::parse;
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::weights::Weights;
use std::sync::Arc;

struct NoWeights;

impl Weights for NoWeights {
    fn get(&self, _: &str) -> Option<Tensor> {
        None
    }
}

/// The two results of a graph of one `[2, 3, 2]` operand: values and positions.
fn run(call: &str, results: &str) -> (Vec<f32>, Vec<i64>) {
    let text = format!(
        "graph @g on cpu {{\n  %x: f32[2, 3, 2] = input\n  %v: f32{results}, %i: i64{results} = {call}\n  \
         return %v, %i\n}}\n"
    );
    let graph = parse(&text).expect("a graph");
    let options = Options::default();
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let texts =
        pipeline::compile(graph, &*backend, &options, Stage::Program, &mut runner).expect("it compiles");
    let realized = texts.realized.expect("a program");
    let device = Arc::new(ReferenceDevice::new(&realized.kernels).expect("kernels"));
    let executable =
        Executable::new(&realized.program, &realized.kernels, device, &NoWeights).expect("a sound program");
    let x = Tensor::from_slice(
        &[2, 3, 2],
        &[3.0f32, -1.0, 1.0, 5.0, 2.0, 0.0, 7.0, 7.0, f32::NAN, 8.0, -2.0, 7.0],
    );
    let outputs = executable.run(&[x.expect("12 elements")]).expect("it runs");
    let tensor = |i: usize| match &outputs[i] {
        Value::Tensor(t) => t.to_contiguous().expect("a copy"),
        other => panic!("expected a tensor, found {other:?}"),
    };
    (tensor(0).to_vec().expect("f32"), tensor(1).to_vec().expect("i64"))
}

#[test]
fn sorting_runs_along_any_dimension() {
    let (values, positions) = run("aten.sort.default(%x, 1)", "[2, 3, 2]");
    assert_eq!(positions, [1, 0, 2, 2, 0, 1, 2, 0, 0, 2, 1, 1]);
    assert_eq!(values[..6], [1.0, -1.0, 2.0, 0.0, 3.0, 5.0]);
    assert!(values[10].is_nan());
    let (_, positions) = run("aten.sort.default(%x, 0, true)", "[2, 3, 2]");
    assert_eq!(positions, [1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0]);
    let (values, _) = run("aten.sort.default(%x, -1)", "[2, 3, 2]");
    assert_eq!(values[..8], [-1.0, 3.0, 1.0, 5.0, 0.0, 2.0, 7.0, 7.0]);
}

#[test]
fn the_first_of_many_are_kept() {
    let (values, positions) = run("aten.topk.default(%x, 2, 1)", "[2, 2, 2]");
    assert_eq!(positions, [0, 1, 2, 2, 1, 1, 0, 0]);
    assert_eq!(values[..4], [3.0, 5.0, 2.0, 0.0]);
    let (values, _) = run("aten.topk.default(%x, 1, 0, false)", "[1, 3, 2]");
    assert_eq!(values, [3.0, -1.0, 1.0, 5.0, -2.0, 0.0]);
}
