//! Checks which results are computed in their own memory, and which stay in that of inputs.

use std::ptr::NonNull;
use std::sync::Arc;

use litz_ir::Scalar;
use litz_runtime::arena::OutOfMemory;
use litz_runtime::program::{OutputLayout, Outputs};
use litz_runtime::{RunError, Tensor};

use super::{GATHER, GATHERED, build, tensor};

/// Has no memory for anything.
struct NoMemory;

// SAFETY: it gives no memory.
unsafe impl Outputs for NoMemory {
    fn tensor(&mut self, _index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        Err(OutOfMemory::of(layout.bytes).into())
    }

    fn scalar(&mut self, _index: usize, _scalar: Option<Scalar>) {}

    fn text(&mut self, _index: usize, _text: &Arc<str>) {}
}

/// Memory of an output is asked for ahead of the kernels exactly where they compute it in place.
#[test]
fn whole_memories_are_computed_where_they_are_returned() {
    let input = Tensor::from_slice(&[1, 4], &[-1i64; 4]).expect("lengths match");
    let early =
        "out of memory: no room for a buffer of 16 bytes; of what the call computes `y` takes most, 16 bytes";
    let late = "kernel @gather: index out of range";
    let pooled = GATHERED.replace("alloc y: f32[4*s0]", "alloc p: u8[16*s0]\n view y: f32[4*s0] = p + 0");
    let part = GATHERED.replace("return y: f32[s0, 4]", "return y: f32[s0, 2]{4, 1} + 1");
    for (program, expected) in [(GATHERED, early), (&pooled, early), (&part, late)] {
        let executable = build(program, &[GATHER], &[]);
        let error =
            executable.call(&[&input], &mut NoMemory).expect_err("there is no memory, nor a valid index");
        assert_eq!(error.to_string(), expected, "{program}");
    }
}

/// Takes results where they are, and gives no memory.
#[derive(Default)]
struct InInputs(Vec<(usize, usize, usize)>);

// SAFETY: it gives no memory.
unsafe impl Outputs for InInputs {
    fn tensor(&mut self, _index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        Err(OutOfMemory::of(layout.bytes).into())
    }

    fn in_input(&mut self, index: usize, param: usize, offset: usize, _layout: &OutputLayout<'_>) -> bool {
        self.0.push((index, param, offset));
        true
    }

    fn scalar(&mut self, _index: usize, _scalar: Option<Scalar>) {}

    fn text(&mut self, _index: usize, _text: &Arc<str>) {}
}

/// A result stays in the memory of an input where that is donated and lent; what is read or updated is the caller's, and copied.
#[test]
fn results_stay_in_donated_inputs_alone() {
    let program = |input: &str, update: &str| {
        format!("program @p on cpu {{\n param x: f32[2, 4]{input}\n {update}\n return x: f32[4] + 4\n}}")
    };
    let cases = [(" donated", "", true), ("", "", false), ("", "update x = x", false)];
    for (input, update, stays) in cases {
        let executable = build(&program(input, update), &[], &[]);
        for is_lent in [false, true] {
            let mut x = tensor(&[2, 4], &[1.0; 8]);
            let mut outputs = InInputs::default();
            let result = match is_lent {
                true => executable.call(&[x.view_mut().expect("nothing shares it")], &mut outputs),
                false => executable.call(&[&x], &mut outputs),
            };
            let expected: &[_] = if stays && is_lent { &[(0, 0, 16)] } else { &[] };
            assert_eq!((result.is_ok(), &outputs.0[..]), (stays && is_lent, expected), "{input} {update}");
        }
    }
}
