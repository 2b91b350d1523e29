//! The step that makes the first NaN, or infinite number, is named, and no step that only hands one on.

use std::collections::HashMap;
use std::sync::Arc;

use litz_ir::text;
use litz_runtime::program::RunOptions;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::{Executable, RunError, Tensor};

/// `mask` names an infinite constant, as masks of attention do; `half` leaves half of what it writes to as it is.
const KERNELS: [&str; 5] = [
    "kernel @log { read x: f32[4] write y: f32[4] grid i in 4 %0: f32 = load x[i] %1: f32 = log %0 y[i] = %1 }",
    "kernel @add { read x: f32[4] read z: f32[4] write y: f32[4] grid i in 4
       %0: f32 = load x[i] %1: f32 = load z[i] %2: f32 = add %0, %1 y[i] = %2 }",
    "kernel @sub { read x: f32[4] read z: f32[4] write y: f32[4] grid i in 4
       %0: f32 = load x[i] %1: f32 = load z[i] %2: f32 = sub %0, %1 y[i] = %2 }",
    "kernel @mask { read x: f32[4] write y: f32[4] grid i in 4
       %0: f32 = load x[i] %1: f32 = const -inf %2: f32 = min %0, %1 y[i] = %2 }",
    "kernel @half { read x: f32[4] write y: f32[4] grid i in 2 %0: f32 = load x[i] y[i] = %0 }",
];

fn run(steps: &str, values: [f32; 4], verify_memory: bool) -> Result<(), RunError> {
    let program = format!(
        "program @p on cpu {{
           node %l = aten.log.default at \"model.py:7\" in \"layers.3\"
           param x: f32[4] alloc y: f32[4] alloc pool: u8[128] {steps} return y: f32[4] }}"
    );
    let program = text::program::parse(&program).unwrap_or_else(|diags| panic!("{program}\n{diags:?}"));
    let kernels = KERNELS.map(|text| text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}")));
    let device = Arc::new(ReferenceDevice::new(&kernels)?);
    let options = RunOptions { check_nan: true, verify_memory, ..RunOptions::default() };
    let weights: HashMap<String, Tensor> = HashMap::new();
    let executable = Executable::with_options(&program, &kernels, device, &weights, &options)?;
    let x = Tensor::from_slice(&[4], &values).expect("fits");
    // The second call finds the memory that the first one left.
    executable.run(std::slice::from_ref(&x)).and(executable.run(&[x])).map(drop)
}

#[track_caller]
fn fails(steps: &str, values: [f32; 4], expected: &str) {
    for verify_memory in [false, true] {
        match run(steps, values, verify_memory) {
            Err(error @ RunError::NotFinite { .. }) => {
                assert_eq!(error.to_string(), format!("{expected}, and nothing that the step reads is"));
            }
            other => panic!("{steps}: expected an error, found {other:?}"),
        }
    }
}

#[track_caller]
fn passes(steps: &str, values: [f32; 4]) {
    for verify_memory in [false, true] {
        let ended = run(steps, values, verify_memory);
        assert!(ended.is_ok(), "{steps}: {ended:?}");
    }
}

const LOG_THEN_ADD: &str = "view t: f32[4] = pool + 0 launch @log(x, t) from %l launch @add(t, x, y)";

#[test]
fn the_step_that_makes_it_is_named_with_its_node_and_element() {
    let named = "launch of @log for %l = aten.log.default at model.py:7 in layers.3";
    fails(LOG_THEN_ADD, [1.0, 2.0, -1.0, -2.0], &format!("step 4, {named}: `t`[2] is NaN"));
    fails(LOG_THEN_ADD, [1.0, 0.0, 3.0, -2.0], &format!("step 4, {named}: `t`[1] is infinite"));
    passes(LOG_THEN_ADD, [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn what_is_handed_on_is_not_made() {
    passes(LOG_THEN_ADD, [f32::NAN, 2.0, 3.0, 4.0]);
    passes(LOG_THEN_ADD, [f32::INFINITY, 2.0, 3.0, 4.0]);
    // Of an infinite number a step makes a NaN nevertheless.
    let steps = "launch @sub(x, x, y)";
    fails(steps, [1.0, 2.0, f32::INFINITY, 4.0], "step 3, launch of @sub: `y`[2] is NaN");
}

#[test]
fn infinite_constants_are_expected_and_memory_that_is_not_written_is_no_number() {
    passes("launch @mask(x, y)", [1.0, 2.0, 3.0, 4.0]);
    // The other half of `t` has what the call before left there.
    let steps = "view t: f32[4] = pool + 0 launch @half(x, t) view b: f32[4] = pool + 64 launch @mask(x, b) launch @half(t, y) launch @add(x, x, y)";
    passes(steps, [1.0, 2.0, 3.0, 4.0]);
}
