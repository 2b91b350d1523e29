//! Checks that sums of many terms are as close to f64 as their accumulation blocks allow: a longer chain of roundings fails.

#![allow(missing_docs, reason = "a test")]

use litz::pipeline::compile;
use litz::{Options, Runner, Stage, Tensor, Text};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::Executable;
use std::collections::HashMap;
use std::sync::Arc;

/// Half the distance from 1.0 to the next number: the largest relative error of a rounding.
const UNIT: f64 = f32::EPSILON as f64 / 2.0;

/// What a graph gives on the machine that the test runs on.
fn run(graph: &str, inputs: &[Tensor]) -> Vec<f64> {
    let Text::Graph(graph) = Text::parse(graph).expect("it parses") else { panic!("expected a graph") };
    let options = Options { threads: 1, ..Options::default() };
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(litz::Verify::Passes, None, &mut silent);
    let texts = compile(graph, &*backend, &options, Stage::Program, &mut runner).expect("it compiles");
    let realized = texts.realized.expect("it was asked for");
    let objects = litz::compile_kernels(&*backend, &realized.kernels, &options, None).expect("it compiles");
    let device =
        backend.load(&realized.kernels, &objects, &|| Arc::new(ThreadPool::new(1))).expect("it loads");
    let executable = Executable::new(&realized.program, &realized.kernels, device, &HashMap::new());
    let outputs = executable.expect("it is complete").run(inputs).expect("the inputs suit");
    outputs[0].tensor().expect("a tensor").to_f64()
}

/// Numbers spread evenly over -1 to 1, always the same.
fn numbers(sizes: &[usize], seed: u64) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32) / ((1 << 23) as f32) - 1.0
    };
    let values: Vec<f32> = (0..sizes.iter().product()).map(|_| next()).collect();
    Tensor::from_slice(sizes, &values).expect("they fit")
}

/// |found - expected| / |expected| in 2-norms, in units of a rounding.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let off: f64 = found.iter().zip(expected).map(|(a, b)| (a - b) * (a - b)).sum();
    (off / expected.iter().map(|b| b * b).sum::<f64>()).sqrt() / UNIT
}

/// The error expected of a sum of `terms` random ones in parts of `part`. The variance of a running sum after i terms is
/// i of a term's, and of a rounding `SHARE` of the square of what is rounded, in units: i*i/2 in each part, and likewise
/// for their totals.
fn expected_error(terms: f64, part: f64) -> f64 {
    /// Of roundings that are spread evenly within half a unit in the last place of numbers of any size.
    const SHARE: f64 = 0.18;
    (SHARE * (part / 2.0 + terms / (2.0 * part))).sqrt()
}

/// Products err as theory has it for parts of 96 terms, tiles of few rows for parts of about the root of the terms.
#[test]
fn products_are_summed_in_parts() {
    for (rows, terms, columns, part) in
        [(28, 768, 64, 96.0), (56, 3072, 64, 96.0), (4, 512, 512, 16.0), (1, 1024, 2048, 32.0)]
    {
        let graph = format!(
            "graph @g on cpu {{\n  %x: f32[{rows}, {terms}] = input\n  %w: f32[{terms}, {columns}] = input\n  \
             %y: f32[{rows}, {columns}] = aten.mm.default(%x, %w)\n  return %y\n}}"
        );
        let inputs = [numbers(&[rows, terms], 1), numbers(&[terms, columns], 2)];
        let (x, w) = (inputs[0].to_f64(), inputs[1].to_f64());
        let point = |at: usize| {
            let (i, j) = (at / columns, at % columns);
            (0..terms).map(|k| x[terms * i + k] * w[columns * k + j]).sum()
        };
        let expected: Vec<f64> = (0..rows * columns).map(point).collect();
        let found = error(&run(&graph, &inputs), &expected);
        let allowed = 1.1 * expected_error(terms as f64, part);
        assert!(found < allowed, "{rows}x{terms}x{columns}: {found:.2} units, more than {allowed:.2}");
    }
}

/// A running sum is rounded once for each element, not once for each term before it.
#[test]
fn running_sums_do_not_drift() {
    let graph = "graph @g on cpu {\n  %x: f32[8, 2048] = input\n  \
                 %y: f32[8, 2048] = aten.cumsum.default(%x, 1, none)\n  return %y\n}";
    let x = numbers(&[8, 2048], 3);
    let rows = x.to_f64();
    let running = |row: &[f64]| {
        let sums = row.iter().scan(0.0, |sum, v| {
            *sum += v;
            Some(*sum)
        });
        sums.collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = rows.chunks(2048).flat_map(running).collect();
    let found = error(&run(graph, &[x]), &expected);
    assert!(found < 0.6, "{found:.2} units");
}

/// Standardised weights are right to their last place, whatever their mean.
#[test]
fn batch_statistics_are_exact() {
    let graph = "graph @g on cpu {\n  %x: f32[1, 16, 512] = input\n  %y: f32[1, 16, 512] = \
                 aten.batch_norm.default(%x, none, none, none, none, true, 0.0, 1e-06, true)\n  return %y\n}";
    let x = numbers(&[1, 16, 512], 4);
    let standard = |row: &[f64]| {
        let mean = row.iter().sum::<f64>() / 512.0;
        let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / 512.0;
        row.iter().map(|v| (v - mean) / (variance + 1e-6).sqrt()).collect::<Vec<f64>>()
    };
    let expected: Vec<f64> = x.to_f64().chunks(512).flat_map(standard).collect();
    let found = error(&run(graph, &[x]), &expected);
    assert!(found < 0.5, "{found:.2} units");
}
