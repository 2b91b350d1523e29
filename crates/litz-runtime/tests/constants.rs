//! Checks that constants are given new contents while calls go on: which calls see which, what is refused, what memory it takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use litz_ir::kernel::Kernel;
use litz_ir::program::Program;
use litz_runtime::device::Device;
use litz_runtime::error::ConstantError;
use litz_runtime::program::{ConstantInfo, ConstantSource, Executable, RunOptions, Value};
use litz_runtime::reference::{DistantDevice, ReferenceDevice};
use litz_runtime::{GuardPages, Limits, RunError, Tensor};

/// Adds two vectors.
const ADD: &str = "kernel @add from n0 {
  read x: f32[4]
  read y: f32[4]
  write z: f32[4]
  grid i in 4
  %0: f32 = load x[i]
  %1: f32 = load y[i]
  %2: f32 = add %0, %1
  z[i] = %2
}";

/// Doubles a vector.
const DOUBLE: &str = "kernel @double from n {
  read x: f32[4]
  write y: f32[4]
  grid i in 4
  %0: f32 = load x[i]
  %1: f32 = add %0, %0
  y[i] = %1
}";

/// Returns `a` as it is, `b` as load steps packed it, and `x` plus twice `a`, which they folded.
const PACKED: &str = "program @packed on cpu {
  param x: f32[4]
  const a: f32[4] = \"a\"
  const b: f32[2, 2]{1, 2} = \"b\"
  load {
    alloc twice: f32[4]
    launch @double(a, twice)
    alloc packed: f32[4]
    launch @double(b, packed)
  }
  alloc y: f32[4]
  launch @add(x, twice, y)
  return a: f32[4], packed: f32[4], y: f32[4]
}";

/// Adds a weight to a state at every call, and returns it.
const COUNTER: &str = "program @counter on cpu {
  param x: f32[4]
  const w: f32[4] = \"w\"
  const total: f32[4] = \"total\"
  load {
    alloc twice: f32[4]
    launch @double(w, twice)
  }
  alloc next: f32[4]
  launch @add(twice, total, next)
  update total = next
  return next: f32[4]
}";

fn parsed(program: &str) -> (Program, Vec<Kernel>) {
    let program = litz_ir::text::program::parse(program).unwrap_or_else(|diags| panic!("{diags:?}"));
    let kernels = [ADD, DOUBLE].map(|text| litz_ir::text::kernel::parse(text).expect("parses"));
    (program, kernels.into())
}

fn filled(value: f32) -> Tensor {
    Tensor::from_slice(&[4], &[value; 4]).expect("lengths match")
}

fn square(values: [f32; 4]) -> Tensor {
    Tensor::from_slice(&[2, 2], &values).expect("lengths match")
}

fn weights() -> HashMap<String, Tensor> {
    let all = [("a", filled(1.0)), ("b", square([1.0; 4])), ("w", filled(1.0)), ("total", filled(0.0))];
    all.map(|(name, tensor)| (name.to_owned(), tensor)).into()
}

fn executable(text: &str, device: Option<Arc<dyn Device>>, options: &RunOptions<'_>) -> Executable {
    let (program, kernels) = parsed(text);
    let device = device.unwrap_or_else(|| Arc::new(ReferenceDevice::new(&kernels).expect("sound")));
    Executable::with_options(&program, &kernels, device, &weights(), options).expect("sound")
}

fn new(text: &str) -> Executable {
    executable(text, None, &RunOptions::default())
}

fn floats(values: &[Value]) -> Vec<Vec<f32>> {
    values.iter().map(|value| value.tensor().expect("a tensor").to_vec().expect("of f32")).collect()
}

fn run(executable: &Executable) -> Vec<Vec<f32>> {
    floats(&executable.run(&[filled(10.0)]).expect("the call is right"))
}

#[track_caller]
fn refused<T>(result: Result<T, RunError>) -> ConstantError {
    match result.err().expect("it is refused") {
        RunError::Constants(error) => error,
        other => panic!("{other}"),
    }
}

/// On devices with the host's memory, with pages next to it, and with memory of their own.
fn everywhere() -> Vec<Executable> {
    let (_, kernels) = parsed(PACKED);
    let distant: Arc<dyn Device> = Arc::new(DistantDevice::new(&kernels).expect("sound"));
    let guarded = RunOptions { guard_pages: GuardPages::AtEnds, ..RunOptions::default() };
    vec![
        new(PACKED),
        executable(PACKED, None, &guarded),
        executable(PACKED, Some(distant), &RunOptions::default()),
    ]
}

#[test]
fn new_contents_are_packed_and_folded_and_seen_after_the_swap() {
    for executable in everywhere() {
        let before = [vec![1.0; 4], vec![2.0; 4], vec![12.0; 4]];
        assert_eq!(run(&executable), before);
        let (a, b) = (filled(3.0), square([1.0, 2.0, 3.0, 4.0]));
        let folded = executable.fold(&[("a", &a), ("b", &b)]).expect("these are constants");
        assert_eq!(run(&executable), before, "nobody sees what is not swapped in");
        let old = executable.swap(folded).expect("it was folded here");
        let after = [vec![3.0; 4], vec![2.0, 6.0, 4.0, 8.0], vec![16.0; 4]];
        assert_eq!(run(&executable), after);
        let new = executable.swap(old).expect("it was folded here");
        assert_eq!(run(&executable), before);
        executable.swap(new).expect("it was folded here");
        assert_eq!(run(&executable), after);
        // What is not given stays, in the latest contents.
        executable.update(&[("a", &filled(0.0)), ("a", &filled(5.0))]).expect("it is a constant");
        assert_eq!(run(&executable), [vec![5.0; 4], after[1].clone(), vec![20.0; 4]]);
        executable.update(&[]).expect("nothing is wrong");
        assert_eq!(run(&executable)[0], [5.0; 4]);
    }
}

#[test]
fn constants_are_listed_and_read() {
    for executable in everywhere() {
        let listed = |name, sizes| ConstantInfo { name, dtype: litz_ir::Dtype::F32, sizes, is_state: false };
        assert_eq!(executable.constants(), [listed("a", &[4]), listed("b", &[2, 2])]);
        let b = square([1.0, 2.0, 3.0, 4.0]);
        executable.update(&[("b", &b)]).expect("it is a constant");
        // Row by row, whatever the layout that kernels have it in.
        let read = executable.constant("b").expect("it is there");
        assert!(read.is_contiguous());
        assert_eq!(read, b);
        assert_eq!(refused(executable.constant("c")), ConstantError::Unknown { name: "c".into() });
    }
}

#[test]
fn contents_in_any_layout_are_taken_and_wrong_ones_refused() {
    let executable = new(PACKED);
    let owner = Arc::new(1f32.to_le_bytes().to_vec());
    let same = Tensor::from_shared(litz_ir::Dtype::F32, &[2, 2], &[0, 0], owner, 0).expect("long enough");
    executable.update(&[("b", &same)]).expect("it is a constant");
    assert_eq!(run(&executable)[1], [2.0; 4]);
    let error = executable.update(&[("b", &filled(1.0))]).expect_err("it has other sizes").to_string();
    assert_eq!(error, "weight \"b\": expected f32[2, 2], found f32[4]");
    let integers = Tensor::from_slice(&[4], &[1i32; 4]).expect("lengths match");
    let error = executable.update(&[("a", &integers)]).expect_err("it has another type").to_string();
    assert_eq!(error, "weight \"a\": expected f32[4], found i32[4]");
    let unknown = executable.update(&[("a", &filled(9.0)), ("packed", &filled(9.0))]);
    assert_eq!(refused(unknown), ConstantError::Unknown { name: "packed".into() });
    assert_eq!(run(&executable)[0], [1.0; 4], "nothing of it is there");
}

#[test]
fn constants_and_what_is_folded_stay_in_the_limits() {
    let (program, kernels) = parsed(PACKED);
    // Two constants, and as much of load steps.
    for (constant_bytes, is_enough) in [(64, true), (63, false)] {
        let limits = Limits { constant_bytes, ..Limits::default() };
        let options = RunOptions { limits, ..RunOptions::default() };
        let device = Arc::new(ReferenceDevice::new(&kernels).expect("sound"));
        let loaded = Executable::with_options(&program, &kernels, device, &weights(), &options);
        match loaded {
            Ok(executable) => executable.update(&[("a", &filled(2.0))]).expect("as much as before"),
            Err(error) => assert!(!is_enough && matches!(error, RunError::Limit(_)), "{error}"),
        }
    }
}

#[test]
fn state_stays_and_is_given_no_contents() {
    let executable = new(COUNTER);
    assert_eq!(run(&executable), [[2.0; 4]]);
    let total = |executable: &Executable| executable.constant("total").expect("it is there");
    assert_eq!(total(&executable), filled(2.0));
    let is_state: Vec<bool> = executable.constants().iter().map(|constant| constant.is_state).collect();
    assert_eq!(is_state, [false, true]);
    let folded = executable.fold(&[("w", &filled(5.0))]).expect("it is a constant");
    assert_eq!(run(&executable), [[4.0; 4]]);
    let old = executable.swap(folded).expect("it was folded here");
    assert_eq!(run(&executable), [[14.0; 4]], "calls between folding and the swap are not lost");
    executable.swap(old).expect("it was folded here");
    assert_eq!(run(&executable), [[16.0; 4]]);
    let error = refused(executable.update(&[("total", &filled(0.0))]));
    assert_eq!(error, ConstantError::State { name: "total".into() });
}

#[test]
fn load_steps_that_have_to_do_with_state_keep_all_constants_as_they_are() {
    let entangled = [
        ("launch @double(total, twice)", "launch @add(x, twice, next) update total = next"),
        (
            "launch @double(w, twice)",
            "launch @add(x, twice, twice) alloc unused: f32[4] update total = total",
        ),
        ("launch @double(w, total)", "launch @add(x, total, next)"),
    ];
    for (load, steps) in entangled {
        let (load, steps) = (format!("alloc twice: f32[4] {load}"), format!("alloc next: f32[4] {steps}"));
        let constants = "const w: f32[4] = \"w\" const total: f32[4] = \"total\"";
        let text =
            format!("program @p on cpu {{ param x: f32[4] {constants} load {{ {load} }} {steps} return 1 }}");
        let executable = new(&text);
        assert_eq!(refused(executable.update(&[("w", &filled(1.0))])), ConstantError::Entangled, "{load}");
        assert!(executable.constant("w").is_ok());
    }
}

#[test]
fn what_was_folded_is_not_given_new_contents() {
    let options = RunOptions { constants: ConstantSource::Folded, ..RunOptions::default() };
    let executable = executable(PACKED, None, &options);
    assert_eq!(refused(executable.update(&[("a", &filled(1.0))])), ConstantError::Folded);
    assert_eq!(executable.constant("a").expect("it is there"), filled(1.0));
}

#[test]
fn executables_share_constants_and_state() {
    let share = |text: &str, of: &Executable| {
        let (program, kernels) = parsed(text);
        let device = Arc::new(ReferenceDevice::new(&kernels).expect("sound"));
        of.sharing(&program, &kernels, device, &RunOptions::default())
    };
    let first = new(PACKED);
    let second = share(PACKED, &first).expect("it is the same program");
    first.update(&[("a", &filled(4.0))]).expect("it is a constant");
    assert_eq!(run(&second)[0], [4.0; 4]);
    second.update(&[("a", &filled(7.0))]).expect("it is a constant");
    assert_eq!(run(&first), run(&second));
    assert_eq!(run(&first)[2], [24.0; 4]);
    let other = new(PACKED);
    let folded = other.fold(&[]).expect("nothing is wrong");
    assert_eq!(refused(first.swap(folded)), ConstantError::Foreign);
    assert_eq!(refused(share(COUNTER, &first)), ConstantError::Unlike);
    let counter = new(COUNTER);
    let same = share(COUNTER, &counter).expect("it is the same program");
    assert_eq!([run(&counter), run(&same), run(&counter)], [[[2.0; 4]], [[4.0; 4]], [[6.0; 4]]]);
    drop(counter);
    assert_eq!(run(&same), [[8.0; 4]]);
    let (program, kernels) = parsed(PACKED);
    let distant = || Arc::new(DistantDevice::new(&kernels).expect("sound"));
    let first = executable(PACKED, Some(distant()), &RunOptions::default());
    let second = first.sharing(&program, &kernels, distant(), &RunOptions::default());
    assert_eq!(refused(second), ConstantError::Unlike);
}

/// Memory of another process's that a tensor is in, and that says when it is freed.
struct Watched(Vec<u8>, Arc<AtomicBool>);

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}

#[test]
fn old_contents_are_freed_when_nobody_uses_them() {
    let is_freed = Arc::new(AtomicBool::new(false));
    let mut bytes = vec![0u8; 16 + 64];
    let offset = bytes.as_ptr().align_offset(64);
    bytes[offset..][..16].copy_from_slice(&[2f32; 4].map(f32::to_le_bytes).concat());
    let owner = Arc::new(Watched(bytes, Arc::clone(&is_freed)));
    let watched = Tensor::from_shared(litz_ir::Dtype::F32, &[4], &[1], owner, offset).expect("long enough");
    let executable = new(PACKED);
    executable.update(&[("a", &watched)]).expect("it is a constant");
    drop(watched);
    assert_eq!(run(&executable)[0], [2.0; 4]);
    let folded = executable.fold(&[("a", &filled(3.0))]).expect("it is a constant");
    assert!(!is_freed.load(Ordering::SeqCst));
    let old = executable.swap(folded).expect("it was folded here");
    assert!(!is_freed.load(Ordering::SeqCst), "they can be swapped in again");
    drop(old);
    // An idle context that last ran with them does not keep them.
    assert!(is_freed.load(Ordering::SeqCst));
    assert_eq!(run(&executable)[0], [3.0; 4]);
}

#[test]
fn no_call_sees_a_mixture() {
    let executable = new(PACKED);
    let is_over = AtomicBool::new(false);
    executable.update(&[("a", &filled(1.0)), ("b", &square([1.0; 4]))]).expect("they are constants");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut last = 0.0;
                while !is_over.load(Ordering::Relaxed) {
                    let outputs = run(&executable);
                    let a = outputs[0][0];
                    assert_eq!(outputs, [vec![a; 4], vec![2.0 * a; 4], vec![10.0 + 2.0 * a; 4]]);
                    assert!(a >= last, "a call after another one saw older constants");
                    last = a;
                }
            });
        }
        let updates = scope.spawn(|| {
            for value in 1..=300u16 {
                let value = f32::from(value);
                executable
                    .update(&[("a", &filled(value)), ("b", &square([value; 4]))])
                    .expect("they are constants");
            }
        });
        let ended = updates.join();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.is_ok());
    });
    assert_eq!(run(&executable)[0], [300.0; 4]);
}

#[test]
fn updates_of_several_threads_are_all_there_in_the_end() {
    let executable = new(PACKED);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|_| executable.update(&[("a", &filled(8.0))]).expect("a constant")));
        scope.spawn(|| {
            for _ in 0..200 {
                executable.update(&[("b", &square([9.0; 4]))]).expect("a constant");
                std::thread::sleep(Duration::from_micros(20));
            }
        });
    });
    assert_eq!(run(&executable), [[8.0; 4], [18.0; 4], [26.0; 4]]);
}
