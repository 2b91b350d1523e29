//! ML-1, ML-3: what is wrong with the memory of a call is found while it runs, with the step and the buffer.
//!
//! Programs here are run as they are: the verifier, which refuses most of them, is not asked.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use litz_ir::text;
use litz_runtime::program::RunOptions;
use litz_runtime::reference::ReferenceDevice;
use litz_runtime::{Executable, RunError, Tensor};

/// `part` leaves out the last element, `each` the odd ones, `first` and `second` write a half.
const KERNELS: [&str; 6] = [
    "kernel @add { read a: f32[8] read b: f32[8] write y: f32[8] grid i in 8
       %0: f32 = load a[i] %1: f32 = load b[i] %2: f32 = add %0, %1 y[i] = %2 }",
    "kernel @part { read a: f32[8] read b: f32[8] write y: f32[8] grid i in 7
       %0: f32 = load a[i] %1: f32 = load b[i] %2: f32 = add %0, %1 y[i] = %2 }",
    "kernel @even { read x: f32[8] write y: f32[8] grid i in 4 %0: f32 = load x[2*i] y[2*i] = %0 }",
    "kernel @half { read x: f32[8] write y: f32[4] grid i in 4 %0: f32 = load x[i] y[i] = %0 }",
    "kernel @double { read x: f32[8] update y: f32[8] grid i in 8
       %0: f32 = load y[i] %1: f32 = load x[i] %2: f32 = add %0, %1 y[i] = %2 }",
    "kernel @copy { read x: f32[8] write y: f32[8] grid i in 8 %0: f32 = load x[i] y[i] = %0 }",
];

/// Runs a program on `x`, 1 to 8.
fn run(program: &str) -> Result<Vec<f32>, RunError> {
    let program = text::program::parse(program).unwrap_or_else(|diags| panic!("{program}\n{diags:?}"));
    let kernel = |text| text::kernel::parse(text).unwrap_or_else(|diags| panic!("{diags:?}"));
    let kernels = KERNELS.map(kernel);
    let device = Arc::new(ReferenceDevice::new(&kernels)?);
    let options = RunOptions { verify_memory: true, ..RunOptions::default() };
    let weights: HashMap<String, Tensor> = HashMap::new();
    let executable = Executable::with_options(&program, &kernels, device, &weights, &options)?;
    let x = Tensor::from_slice(&[8], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).expect("fits");
    // A call leaves nothing behind that another one stumbles over.
    executable.run(std::slice::from_ref(&x))?;
    let outputs = executable.run(&[x])?;
    Ok(outputs[0].tensor().and_then(|tensor| tensor.to_vec::<f32>()).expect("a tensor of f32"))
}

#[track_caller]
fn fails(steps: &str, expected_step: &str, expected: &str) {
    let program = format!(
        "program @p on cpu {{ param x: f32[8] alloc y: f32[8] alloc pool: u8[128] {steps} return y: f32[8] }}"
    );
    match run(&program) {
        Err(RunError::Memory { step, what }) => {
            assert_eq!((&*step, &*what), (expected_step, expected), "{steps}")
        }
        other => panic!("{steps}: expected an error, found {other:?}"),
    }
}

#[track_caller]
fn gives(steps: &str, expected: [f32; 8]) {
    let program = format!(
        "program @p on cpu {{ param x: f32[8] alloc y: f32[8] alloc pool: u8[128] {steps} return y: f32[8] }}"
    );
    assert_eq!(run(&program).unwrap_or_else(|error| panic!("{steps}: {error}")), expected, "{steps}");
}

#[test]
fn what_is_in_use_lies_apart() {
    let views = "view a: f32[8] = pool + 0 view b: f32[8] = pool + 32";
    gives(
        &format!("{views} launch @add(x, x, a) launch @add(a, x, b) launch @add(a, b, y)"),
        [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0],
    );
    let views = "view a: f32[8] = pool + 0 view b: f32[8] = pool + 28";
    fails(
        &format!("{views} launch @add(x, x, a) launch @add(a, x, b) launch @add(a, b, y)"),
        "step 6, launch of @add",
        "`b` has bytes of `a`, which is still in use",
    );
    // One step early: the last step that reads `a` writes `b` there.
    let views = "view a: f32[8] = pool + 0 view b: f32[8] = pool + 0";
    fails(
        &format!("{views} launch @add(x, x, a) launch @add(a, x, b) launch @add(b, b, y)"),
        "step 6, launch of @add",
        "`b` has bytes of `a`, which is still in use",
    );
    gives(
        &format!(
            "{views} launch @add(x, x, a) launch @add(a, x, y) launch @add(x, y, b) launch @add(b, b, y)"
        ),
        [8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0, 64.0],
    );
}

#[test]
fn elements_that_are_read_are_written() {
    let views = "view a: f32[8] = pool + 0 view b: f32[8] = pool + 32";
    fails(
        &format!("{views} launch @part(x, x, a) launch @add(a, x, y)"),
        "step 6, launch of @add",
        "reads elements of `a` that nothing has written",
    );
    fails("launch @part(x, x, y)", "the end of a call", "reads elements of `y` that nothing has written");
    // Nobody reads the odd ones, here or in what is made of them.
    gives(
        &format!("{views} launch @even(x, a) launch @even(a, b) launch @copy(x, y) launch @even(b, y)"),
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    );
    fails(
        &format!("{views} launch @even(x, a) launch @even(a, b) launch @add(b, x, y)"),
        "step 7, launch of @add",
        "reads elements of `b` that nothing has written",
    );
    // What is added to a gap looks like one.
    fails(
        &format!("{views} launch @even(x, a) launch @double(x, a) launch @add(a, a, y)"),
        "step 7, launch of @add",
        "reads elements of `a` that nothing has written",
    );
    gives(
        &format!("{views} launch @copy(x, a) launch @double(x, a) launch @copy(a, y)"),
        [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0],
    );
}

/// ML-3: alive when the first half is written, whole with the second.
#[test]
fn two_halves_are_one_buffer() {
    let halves = "view lower: f32[4] = y + 0 view upper: f32[4] = y + 16";
    gives(
        &format!("{halves} launch @half(x, lower) launch @half(x, upper)"),
        [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0],
    );
    fails(
        &format!("{halves} launch @half(x, lower)"),
        "the end of a call",
        "reads elements of `y` that nothing has written",
    );
}

/// A chain of sums `t1 = x + x`, `t2 = t1 + t0`, .., each of two random ones before it, in a pool where each has a place that is free.
struct Chain {
    /// What each adds.
    sums: Vec<[usize; 2]>,
    /// Where each lies, in places of 32 bytes.
    places: Vec<usize>,
}

impl Chain {
    /// By numbers from a linear congruence.
    fn new(seed: u64) -> Chain {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        let count = 4 + below(8);
        // Each one is used by the next, so that all live.
        let sums: Vec<[usize; 2]> = (0..count).map(|at| [at, below(at + 1)]).collect();
        let mut chain = Chain { sums, places: Vec::new() };
        for at in 1..=count {
            let is_free = |place: usize| {
                (1..at).all(|other| chain.places[other - 1] != place || chain.last(other) < at)
            };
            let place = (0..).find(|&place| is_free(place)).expect("there is one");
            chain.places.push(place);
        }
        chain
    }

    /// The last sum that adds a value.
    fn last(&self, value: usize) -> usize {
        let uses = self.sums.iter().enumerate().filter(|(_, sum)| sum.contains(&value));
        uses.map(|(at, _)| at + 1).max().unwrap_or(self.sums.len() + 1)
    }

    /// The text; the kernel of one sum may be another.
    fn text(&self, kernel: impl Fn(usize) -> &'static str) -> String {
        let name = |value: usize| if value == 0 { "x".to_owned() } else { format!("t{value}") };
        let mut steps = String::new();
        for (at, [a, b]) in self.sums.iter().enumerate() {
            let value = at + 1;
            let _ = writeln!(steps, "view t{value}: f32[8] = pool + {}", 32 * self.places[at]);
            let _ = writeln!(steps, "launch @{}({}, {}, t{value})", kernel(value), name(*a), name(*b));
        }
        let last = name(self.sums.len());
        format!(
            "program @p on cpu {{ param x: f32[8] alloc y: f32[8] alloc pool: u8[1024] {steps}
             launch @add({last}, x, y) return y: f32[8] }}"
        )
    }
}

/// ML-1: places one step early, places of what is used later, and stores that are left out.
#[test]
fn perturbed_plans_are_found_in_random_programs() {
    let (mut early, mut met, mut left) = (0, 0, 0);
    for seed in 0..200 {
        let chain = Chain::new(seed);
        let text = chain.text(|_| "add");
        assert!(run(&text).is_ok(), "{text}");
        let found = |chain: &Chain, what: &str| match run(&chain.text(|_| "add")) {
            Err(RunError::Memory { what: found, step }) => {
                assert!(
                    found.contains("which is still in use") && step.starts_with("step "),
                    "{what}: {step}: {found}"
                );
            }
            other => panic!("{what}: {other:?}\n{}", chain.text(|_| "add")),
        };
        let count = chain.sums.len();
        for value in 2..=count {
            // The place of a value whose last use makes this one; and of one that is used later.
            for other in 1..value {
                let moved = |places: &mut Vec<usize>| places[value - 1] = places[other - 1];
                if chain.places[value - 1] != chain.places[other - 1] && chain.last(other) >= value {
                    let mut places = chain.places.clone();
                    moved(&mut places);
                    let perturbed = Chain { sums: chain.sums.clone(), places };
                    found(&perturbed, &format!("t{value} at t{other}"));
                    if chain.last(other) == value { early += 1 } else { met += 1 }
                }
            }
        }
        for value in 1..=count {
            let text = chain.text(|at| if at == value { "part" } else { "add" });
            match run(&text) {
                Err(RunError::Memory { step, what }) => {
                    let expected = format!("reads elements of `t{value}` that nothing has written");
                    assert_eq!(what, expected, "{step}\n{text}");
                    left += 1;
                }
                other => panic!("{other:?}\n{text}"),
            }
        }
    }
    assert!(early >= 200 && met >= 200 && left >= 200, "{early} {met} {left}");
}
