//! Refuses kernels that may leave their memory, and launches that give them too little, before anything runs.

use std::collections::HashMap;
use std::sync::Arc;

use litz_ir::kernel::Kernel;
use litz_runtime::device::Device;
use litz_runtime::native::{KernelFn, NativeDevice};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::{RunError, Tensor};

/// Stands for native code; these tests end before it runs.
unsafe extern "C" fn never(
    _args: *const *mut u8,
    _sizes: *const i64,
    _begin: i64,
    _end: i64,
    _scratch: *mut u8,
    _status: *mut i64,
) {
    unreachable!("the kernel was launched")
}

fn devices(kernel: &Kernel) -> [Arc<dyn Device>; 2] {
    let reference = ReferenceDevice::new(std::slice::from_ref(kernel)).expect("it can be interpreted");
    let function: KernelFn = never;
    // SAFETY: the function touches nothing.
    let native = unsafe { NativeDevice::from_functions(&[(kernel, function)], Arc::new(ThreadPool::new(1))) };
    [Arc::new(reference), Arc::new(native)]
}

/// What becomes of a program that launches a kernel, on each device.
fn outcomes(kernel: &str, program: &str, inputs: &[Tensor]) -> [Result<(), RunError>; 2] {
    let kernel = litz_ir::text::kernel::parse(kernel).unwrap_or_else(|diags| panic!("{diags:?}"));
    let program = litz_ir::text::program::parse(program).unwrap_or_else(|diags| panic!("{diags:?}"));
    devices(&kernel).map(|device| {
        let kernels = std::slice::from_ref(&kernel);
        let executable = Executable::new(&program, kernels, device, &HashMap::new())?;
        executable.run(inputs).map(drop)
    })
}

#[track_caller]
fn refused(kernel: &str, program: &str, inputs: &[Tensor], expected: &str) {
    for outcome in outcomes(kernel, program, inputs) {
        let message = outcome.expect_err("it may leave its memory").to_string();
        assert!(message.contains(expected), "expected `{expected}` in `{message}`");
    }
}

const FILL: &str = "program @p on cpu { alloc z: f32[8] launch @k(z) return z: f32[8] }";

#[test]
fn a_kernel_that_writes_past_what_it_declares_is_not_launched() {
    let kernel = "kernel @k { write z: f32[8] vector i in 16 by 8 { %0: f32 = const 1.0 z[i] = %0 } }";
    refused(kernel, FILL, &[], "error[launch-reach]: `z`: i is not known to stay inside of its 8 elements");
    let before = kernel.replace("z[i]", "z[7 - i]").replace("in 16", "in 9");
    refused(&before, FILL, &[], "launch-reach");
}

#[test]
fn registers_and_scratch_memory_have_ends_too() {
    for space in ["register", "scratch"] {
        let kernel = format!(
            "kernel @k {{ write z: f32[8] {space} t: f32[4]
               unroll i in 8 {{ %0: f32 = const 1.0 t[i] = %0 %1: f32 = load t[i] z[i] = %1 }} }}"
        );
        refused(&kernel, FILL, &[], "launch-reach");
    }
}

#[test]
fn what_cannot_be_proved_is_refused() {
    // No square leaves a remainder of 8, which is more than a proof sees of so many.
    let kernel = "kernel @k { read x: f32[8] write z: f32[100000]
      grid i in 100000 %0: f32 = load x[mod(i*i, 9)] z[i] = %0 }";
    let program = "program @p on cpu { param x: f32[8] alloc z: f32[100000] launch @k(x, z)
      return z: f32[100000] }";
    let x = Tensor::from_slice(&[8], &[1.0f32; 8]).expect("lengths match");
    refused(kernel, program, &[x], "launch-reach");
}

/// Takes `s0` elements, a multiple of 4 no greater than `s1`, and reads as many of `s1`.
const COPY: &str = "kernel @k {
  read x: f32[s1]
  write z: f32[s0]
  size s0 in [4, 64] multiple 4
  size s1 in [0, 100]
  guard s0 <= s1 for \"k\"
  grid b in floordiv(s0, 4)
  for i in 4 { %0: f32 = load x[4*b + i] z[4*b + i] = %0 }
}";

/// Launches [`COPY`] with other sizes than its memories have.
fn copy(sizes: &str) -> String {
    format!(
        "program @p on cpu {{
           param x: f32[100]
           alloc z: f32[100]
           launch @k(x, z) sizes({sizes})
           return z: f32[100]
         }}"
    )
}

#[test]
fn launches_have_the_sizes_that_the_proof_is_for() {
    let x = || [Tensor::from_slice(&[100], &[1.0f32; 100]).expect("lengths match")];
    refused(
        COPY,
        &copy("68, 100"),
        &x(),
        "launch of @k: expected s0 in [4, 64] and a multiple of 4, found 68",
    );
    refused(COPY, &copy("6, 100"), &x(), "a multiple of 4, found 6");
    refused(COPY, &copy("8, 4"), &x(), "expected s0 <= s1 (asked for by k), found 8 and 4");
    refused(&COPY.replace("[0, 100]", "[0, 200]"), &copy("8, 101"), &x(), "expected 404 bytes, x has 400");
    let kernel = litz_ir::text::kernel::parse(COPY).expect("valid");
    let [reference, _] = devices(&kernel);
    let program = litz_ir::text::program::parse(&copy("8, 100")).expect("valid");
    let executable = Executable::new(&program, &[kernel], reference, &HashMap::new()).expect("proved");
    executable.run(&x()).expect("these are its sizes");
}

#[test]
fn a_proof_needs_the_guard_that_it_rests_on() {
    let x = [Tensor::from_slice(&[100], &[1.0f32; 100]).expect("lengths match")];
    let guardless = COPY.replace("  guard s0 <= s1 for \"k\"\n", "");
    refused(&guardless, &copy("8, 100"), &x, "`x`: 4*b + i is not known to stay inside of its s1 elements");
    let indivisible = COPY.replace(" multiple 4", "").replace("floordiv(s0, 4)", "ceildiv(s0, 4)");
    refused(&indivisible, &copy("8, 100"), &x, "launch-reach");
}

#[test]
fn each_coordinate_stays_in_its_dimension() {
    // What leaves its row is another row of the same memory.
    let kernel = "kernel @k { write z: f32[2, 4] for i in 5 { %0: f32 = const 1.0 z[0, i] = %0 } }";
    refused(kernel, FILL, &[], "`z`: i is not known to stay inside of its 4 elements along dimension 1");
    let checked = "kernel @k { write z: f32[2, 4] for i in 8 {
      %0: f32 = const 1.0 z[floordiv(i, 4), mod(i, 4)] = %0 } }";
    let kernel = litz_ir::text::kernel::parse(checked).expect("valid");
    let [reference, _] = devices(&kernel);
    let program = litz_ir::text::program::parse(FILL).expect("valid");
    let executable = Executable::new(&program, &[kernel], reference, &HashMap::new()).expect("proved");
    let results = executable.run::<Tensor>(&[]).expect("no sizes");
    assert_eq!(results[0].tensor().and_then(Tensor::to_vec::<f32>), Some(vec![1.0; 8]));
}
