//! Limits of memory, work and time: each met where it is, exceeded one beyond, and found before anything runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use litz_runtime::limits::{Limit, LimitExceeded};
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::{Limits, RunError, Tensor};

/// Per row 4 points of 4 statements.
const ADD_ROW: &str = "kernel @add_row {
  read x: f32[4*s0]
  read w: f32[4]
  write y: f32[4*s0]
  size s0 in [0, 1000000000]
  grid i in s0
  for j in 4 { %0: f32 = load x[4*i + j] %1: f32 = load w[j] %2: f32 = add %0, %1 y[4*i + j] = %2 }
}";

const ROWS: &str = "program @rows on cpu {
  sym s0 in [0, 1000000000]
  param x: f32[s0, 4]
  const w: f32[4] = \"w\"
  load {
    alloc v: f32[4]
    launch @add_row(w, w, v) sizes(1)
  }
  alloc t: f32[4*s0]
  alloc y: f32[4*s0]
  launch @add_row(x, v, t) sizes(s0)
  launch @add_row(t, v, y) sizes(s0)
  free t
  return y: f32[s0, 4]
}";

fn build(limits: Limits) -> Result<Executable, RunError> {
    let kernels = [litz_ir::text::kernel::parse(ADD_ROW).expect("valid")];
    let program = litz_ir::text::program::parse(ROWS).expect("valid");
    let device = Arc::new(ReferenceDevice::new(&kernels).expect("sound"));
    let w = Tensor::from_slice(&[4], &[1.0f32; 4]).expect("lengths match");
    let weights = HashMap::from([("w".to_owned(), w)]);
    let options = RunOptions { limits, ..RunOptions::default() };
    Executable::with_options(&program, &kernels, device, &weights, &options)
}

fn call(limits: Limits, rows: usize) -> Result<(), RunError> {
    let input = Tensor::from_slice(&[rows, 4], &vec![0.0f32; 4 * rows]).expect("lengths match");
    build(limits)?.run(&[input]).map(drop)
}

/// Allows exactly `asked`; one less is refused with these numbers.
#[track_caller]
fn meets(limit: Limit, rows: usize, asked: u64) {
    let limits = |allowed| {
        let mut limits = Limits::default();
        limits.set(limit, allowed);
        limits
    };
    call(limits(asked), rows).expect("it is allowed");
    match call(limits(asked - 1), rows) {
        Err(RunError::Limit(error)) => assert_eq!(error, LimitExceeded { limit, allowed: asked - 1, asked }),
        other => panic!("expected the limit {}, found {other:?}", limit.name()),
    }
}

#[test]
fn bytes_of_a_call_are_known_before_it_runs() {
    // One intermediate buffer and the result, 5 rows of 16 bytes, of which the first takes whole cache lines.
    meets(Limit::CallBytes, 5, 128 + 80);
}

#[test]
fn bytes_of_constants_count_those_computed_at_load() {
    meets(Limit::ConstantBytes, 1, 16 + 16);
}

#[test]
fn executed_statements_are_known_before_a_call_runs() {
    meets(Limit::Iterations, 7, 2 * 7 * 4 * 4);
}

#[test]
fn work_that_no_machine_can_do_is_refused_at_once() {
    // The memory of such an input is never touched.
    let rows = 1_000_000_000;
    let executable = build(Limits { iterations: 1 << 30, ..Limits::default() }).expect("sound");
    let zeros = Tensor::zeros(litz_ir::Dtype::F32, &[rows, 4], &[0, 0]).expect("one element");
    let error = executable.run(&[zeros]).expect_err("it is too much").to_string();
    assert!(
        error.starts_with("expected at most 1073741824 executed statements, found 16000000000"),
        "{error}"
    );
}

#[test]
fn a_call_ends_when_its_time_is_over() {
    let limits = Limits { time: Some(Duration::ZERO), ..Limits::default() };
    match call(limits, 1) {
        Err(RunError::Limit(LimitExceeded { limit: Limit::Time, allowed: 0, .. })) => {}
        other => panic!("expected the limit of time, found {other:?}"),
    }
    let limits = Limits { time: Some(Duration::from_secs(3600)), ..Limits::default() };
    call(limits, 1).expect("an hour is enough");
}

/// Beyond any machine's memory, for each element that comes in.
const SPREAD: &str = "kernel @spread {
  read x: f32[s0]
  write y: f32[288230376151711744*s0]
  size s0 in [0, 8]
  grid i in s0
  %0: f32 = load x[i] y[i] = %0
}";

const FIRST: &str = "kernel @first {
  read x: f32[288230376151711744*s0]
  write y: f32[s0]
  size s0 in [0, 8]
  grid i in s0
  %0: f32 = load x[i] y[i] = %0
}";

const LARGE: &str = "program @large on cpu {
  sym s0 in [0, 8]
  param x: f32[s0]
  alloc product: f32[288230376151711744*s0]
  launch @spread(x, product) sizes(s0)
  alloc y: f32[s0]
  launch @first(product, y) sizes(s0)
  free product
  return y: f32[s0]
}";

#[test]
fn where_there_is_no_memory_the_largest_result_is_named_and_the_next_call_is_right() {
    let kernels = [SPREAD, FIRST].map(|text| litz_ir::text::kernel::parse(text).expect("valid"));
    let program = litz_ir::text::program::parse(LARGE).expect("valid");
    let device = Arc::new(ReferenceDevice::new(&kernels).expect("sound"));
    let options =
        RunOptions { limits: Limits { call_bytes: u64::MAX, ..Limits::default() }, ..RunOptions::default() };
    let executable = Executable::with_options(&program, &kernels, device, &HashMap::new(), &options);
    let executable = executable.expect("sound");
    let call = |values: &[f32]| {
        let input = Tensor::from_slice(&[values.len()], values).expect("lengths match");
        executable.run(&[input])
    };
    for _ in 0..2 {
        let error = call(&[1.0]).expect_err("no machine has so much");
        assert!(matches!(error, RunError::OutOfMemory(_)), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("of what the call computes `product` takes most, 1152921504606846976 bytes"),
            "{text}"
        );
        assert_eq!(call(&[]).expect("it takes nothing").len(), 1);
    }
}
