//! A model compiles for a GPU without one: kernels and program are verified, the reference device runs them, and what would need
//! a GPU says so.

#![allow(missing_docs, reason = "a test")]

use litz::target::{Gpu, GpuIsa};
use litz::{Error, Model, Options, Target, Tensor, Value, Verify};
use std::collections::HashMap;

const TARGET: Target = Target::Gpu(Gpu::new(GpuIsa::Sm90, 132));

fn model() -> Model {
    let text = "graph @g on cpu {
        %x: f32[300, 7] = input
        %y: f32[300, 7] = aten.mul.Tensor(%x, %x)
        %s: f32[300] = aten.sum.dim_IntList(%y, [1], false, none)
        %c: f32[300] = aten.cumsum.default(%s, 0, none)
        return %s, %c
    }";
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    Model::from_graph(graph, HashMap::new()).expect("it is a graph")
}

fn options() -> Options {
    Options { verify: Verify::Passes, ..Options::for_target(TARGET) }
}

fn floats(value: &Value) -> Vec<f64> {
    match value {
        Value::Tensor(tensor) => tensor.to_f64(),
        other => panic!("expected a tensor, found {other:?}"),
    }
}

#[test]
fn the_reference_device_runs_kernels_of_a_gpu() {
    let compiled = model().compile(&Options { reference: true, ..options() }).expect("it compiles");
    assert!(compiled.texts.unproved.is_empty());
    let schedule = compiled.texts.schedule.as_ref().expect("it has a schedule").to_string();
    assert!(schedule.contains("for gpu(isa=sm90, units=132)"), "{schedule}");
    assert!(schedule.contains("thread"), "{schedule}");

    let x: Vec<f32> = (0..2100).map(|i| (i % 5) as f32).collect();
    let sums: Vec<f64> = x.chunks(7).map(|row| row.iter().map(|&x| f64::from(x * x)).sum()).collect();
    let mut total = 0.0;
    let running: Vec<f64> = sums
        .iter()
        .map(|sum| {
            total += sum;
            total
        })
        .collect();
    let input = Tensor::from_slice(&[300, 7], &x).expect("it has so many elements");
    let results = compiled.run(&[input]).expect("it runs");
    assert_eq!(floats(&results[0]), sums);
    assert_eq!(floats(&results[1]), running);
}

#[test]
fn machine_code_gives_what_the_reference_device_gives_where_there_is_a_gpu() {
    let x: Vec<f32> = (0..2100).map(|i| (i % 5) as f32).collect();
    let input = Tensor::from_slice(&[300, 7], &x).expect("it has so many elements");
    let options = Options { backend: litz::BACKENDS[1], target: None, ..options() };
    let compiled = match model().compile(&options) {
        Ok(compiled) => compiled,
        Err(error) => {
            let Error::Unsupported(diags) = &error else { panic!("{error}") };
            assert_eq!(diags[0].slug, "unsupported-target");
            return;
        }
    };
    let reference = model().compile(&Options { reference: true, ..self::options() }).expect("it compiles");
    let [found, expected] =
        [&compiled, &reference].map(|compiled| compiled.run(std::slice::from_ref(&input)).expect("it runs"));
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(floats(found), floats(expected));
    }
}

#[test]
fn tensors_on_two_gpus_are_refused() {
    let text = "graph @g on cuda:0 {
        %x: f32[3] = input
        %y: f32[3] on cuda:1 = input
        %s: f32[3] = aten.add.Scalar(%x, 1, 1)
        %t: f32[3] on cuda:1 = aten.add.Scalar(%y, 1, 1)
        return %s, %t
    }";
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let model = Model::from_graph(graph, HashMap::new()).expect("it is a graph");
    let reference = Options { reference: true, ..options() };
    let error = model.compile(&reference).map(|_| ()).expect_err("no target has two");
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
    assert!(error.to_string().contains("found `x` on cuda:0 and `y` on cuda:1"), "{error}");
}
