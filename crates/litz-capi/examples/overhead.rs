//! Times calls of a saved program through C and through Rust, turn by turn, and fails where C takes a microsecond more.
//!
//! `cargo run --release -p litz-capi --example overhead -- digits.litzc`

use std::error::Error;
use std::ffi::{CStr, CString};
use std::process::ExitCode;
use std::ptr;
use std::time::Instant;

use litz_capi::{
    CTensor, CType, Model, Outputs, Status, litz_last_error, litz_model_close, litz_model_input,
    litz_model_open, litz_model_run, litz_outputs_free,
};
use litz_ir::Dtype;
use litz_runtime::artifact::Artifact;
use litz_runtime::tensor::contiguous_strides;
use litz_runtime::{Tensor, TensorView};

/// Calls between two readings of the clock, and turns, of which the medians count: what else the machine does falls on both sides.
const CALLS: u32 = 20;
const TURNS: usize = 5000;
/// What a call may take more through C.
const MOST_NANOSECONDS: f64 = 1000.0;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("expected the path of a .litzc file with one f32 input")?;
    let executable = Artifact::open(&path)?.executable(1)?;
    let mut model: *mut Model = ptr::null_mut();
    let (path, options) = (CString::new(path)?, c"threads=1");
    // SAFETY: both are texts, and the model is written.
    expect(unsafe { litz_model_open(path.as_ptr(), options.as_ptr(), ptr::null(), &mut model) })?;
    let sizes = input_sizes(model)?;
    let strides = contiguous_strides(&sizes);
    let input = Tensor::zeros(Dtype::F32, &sizes, &strides)?;
    let c_sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
    let c_input = CTensor {
        data: input.bytes().as_ptr().cast_mut().cast(),
        dtype: 6,
        rank: sizes.len() as i32,
        sizes: c_sizes.as_ptr(),
        strides: ptr::null(),
    };
    let mut reused = Vec::new();
    let mut handle: *mut Outputs = ptr::null_mut();
    let mut by_rust = || -> Result<(), Box<dyn Error>> {
        // As a caller does that has memory of its own.
        // SAFETY: the tensor is there.
        let view = unsafe { TensorView::from_raw(Dtype::F32, &sizes, &strides, input.bytes().as_ptr()) }?;
        Ok(executable.run_into(&[view], &mut reused)?)
    };
    // SAFETY: model and input are there, and the results are those of earlier calls.
    let mut by_c = || expect(unsafe { litz_model_run(model, &c_input, 1, &mut handle) });
    let (mut rust, mut c) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        // Neither side is always the one that comes after the other.
        if turn % 2 == 0 {
            rust.push(time(&mut by_rust)?);
            c.push(time(&mut by_c)?);
        } else {
            c.push(time(&mut by_c)?);
            rust.push(time(&mut by_rust)?);
        }
    }
    let more = median(c.iter().zip(&rust).map(|(c, rust)| c - rust).collect());
    // SAFETY: nobody uses them any more.
    unsafe {
        litz_outputs_free(handle);
        litz_model_close(model);
    }
    println!(
        "a call: {:.0} ns through Rust, {:.0} ns through C, {more:.0} ns more in a pair",
        median(rust),
        median(c)
    );
    Ok(if more <= MOST_NANOSECONDS { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Sizes of the only input, 1 where calls decide.
fn input_sizes(model: *const Model) -> Result<Vec<usize>, Box<dyn Error>> {
    let mut ty = std::mem::MaybeUninit::<CType>::uninit();
    // SAFETY: the model is one, and the type is written where that is said to be right.
    let ty = unsafe {
        expect(litz_model_input(model, 0, ty.as_mut_ptr()))?;
        ty.assume_init()
    };
    // SAFETY: there are as many as it says.
    let sizes = unsafe { std::slice::from_raw_parts(ty.sizes, ty.rank) };
    Ok(sizes.iter().map(|&size| usize::try_from(size).unwrap_or(1)).collect())
}

/// Nanoseconds of a call.
fn time(call: &mut dyn FnMut() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    for _ in 0..CALLS {
        call()?;
    }
    Ok(1e9 * start.elapsed().as_secs_f64() / f64::from(CALLS))
}

fn expect(status: Status) -> Result<(), Box<dyn Error>> {
    if status == Status::Ok {
        return Ok(());
    }
    // SAFETY: the message stays until this thread's next error.
    let message = unsafe { CStr::from_ptr(litz_last_error()) };
    Err(message.to_string_lossy().into())
}
