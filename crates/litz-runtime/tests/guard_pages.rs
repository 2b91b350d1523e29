//! Native code that leaves a buffer, between pages that cannot be accessed: the process ends at the first access outside.
//!
//! Each test runs itself again in a process of its own, which the fault ends.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use litz_ir::kernel::Kernel;
use litz_runtime::native::{KernelFn, NativeDevice};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::{GuardPages, Tensor};

/// Element by which the code of the child misses, and the memory it misses: `x`, `z`, `t` or `w`.
const MISS: &str = "LITZ_TEST_MISS";

/// Adds a constant, a pooled buffer between two launches and scratch memory.
const KERNEL: &str = "kernel @k {
  read x: f32[8]
  read w: f32[8]
  write z: f32[8]
  scratch t: f32[16]
  for i in 8 { %0: f32 = load x[i] %1: f32 = load w[i] %2: f32 = add %0, %1 t[i] = %2 }
  for j in 8 { %3: f32 = load t[j] z[j] = %3 }
}";

const PROGRAM: &str = "program @p on cpu {
  param x: f32[8]
  const w: f32[8] = \"w\"
  load {
    alloc q: u8[128]
    view v: f32[8] = q + 64
    launch @k(w, w, v)
  }
  alloc p: u8[128]
  view a: f32[8] = p + 0
  view b: f32[8] = p + 64
  alloc z: f32[8]
  launch @k(x, v, a)
  launch @k(a, w, b)
  launch @k(b, w, z)
  free p
  return z: f32[8]
}";

/// What [`KERNEL`] says, but for one access to the memory that the environment names.
unsafe extern "C" fn code(
    args: *const *mut u8,
    _sizes: *const i64,
    _begin: i64,
    _end: i64,
    scratch: *mut u8,
    _status: *mut i64,
) {
    // SAFETY: the device passes memories of the kernel's extents; the accesses outside of them fault.
    unsafe {
        let [x, w, z] = [0, 1, 2].map(|at| (*args.add(at)).cast::<f32>());
        let t = scratch.cast::<f32>();
        (0..8).for_each(|i| t.add(i).write(*x.add(i) + *w.add(i)));
        (0..8).for_each(|i| z.add(i).write(*t.add(i)));
        let Ok(miss) = std::env::var(MISS) else { return };
        let (memory, element) = miss.split_once(' ').expect("a memory and an element");
        let element: isize = element.parse().expect("a number");
        match memory {
            "x" => drop(std::hint::black_box(x.offset(element).read_volatile())),
            "w" => drop(std::hint::black_box(w.offset(element).read_volatile())),
            "z" => z.offset(element).write_volatile(1.0),
            "t" => t.offset(element).write_volatile(1.0),
            other => unreachable!("no memory {other}"),
        }
    }
}

fn executable(guard_pages: GuardPages) -> Executable {
    let kernel: Kernel = litz_ir::text::kernel::parse(KERNEL).expect("valid");
    let program = litz_ir::text::program::parse(PROGRAM).expect("valid");
    let function: KernelFn = code;
    let pool = Arc::new(ThreadPool::new(2));
    // SAFETY: the function does what the kernel says, unless a child is to show what happens if not.
    let device = Arc::new(unsafe { NativeDevice::from_functions(&[(&kernel, function)], pool) });
    let w = Tensor::from_slice(&[8], &[1.0f32; 8]).expect("lengths match");
    let weights = HashMap::from([("w".to_owned(), w)]);
    let options = RunOptions { guard_pages, ..RunOptions::default() };
    Executable::with_options(&program, &[kernel], device, &weights, &options).expect("sound")
}

/// 8 elements, `x + 4`, twice.
fn run(guard_pages: GuardPages) {
    let executable = executable(guard_pages);
    for start in [0.0f32, 100.0] {
        let x: Vec<f32> = (0..8).map(|at| start + at as f32).collect();
        let input = Tensor::from_slice(&[8], &x).expect("lengths match");
        let outputs = executable.run(&[input]).expect("the call is right");
        let expected: Vec<f32> = x.iter().map(|x| x + 4.0).collect();
        assert_eq!(outputs[0].tensor().expect("a tensor").to_vec::<f32>(), Some(expected));
    }
}

#[test]
fn results_are_the_same_between_guard_pages() {
    for guard_pages in [GuardPages::Off, GuardPages::AtEnds, GuardPages::AtStarts] {
        run(guard_pages);
    }
}

/// Runs the test `name` again, in a process whose native code misses.
fn child(name: &str, miss: &str) -> ExitStatus {
    let binary = std::env::current_exe().expect("this test");
    let output = Command::new(binary).args(["--exact", name]).env(MISS, miss).output();
    output.expect("it can be started").status
}

#[track_caller]
fn faults(name: &str, guard_pages: GuardPages, misses: &[&str]) {
    if std::env::var(MISS).is_ok() {
        return run(guard_pages);
    }
    for miss in misses {
        let status = child(name, miss);
        assert_eq!(status.signal(), Some(libc::SIGSEGV), "{miss}: {status}");
    }
}

#[test]
fn an_access_behind_any_buffer_faults() {
    let misses = ["x 8", "w 8", "z 8", "t 16", "z 1000"];
    faults("an_access_behind_any_buffer_faults", GuardPages::AtEnds, &misses);
}

#[test]
fn an_access_before_any_buffer_faults() {
    let misses = ["x -1", "w -1", "z -1", "t -1", "z -1000"];
    faults("an_access_before_any_buffer_faults", GuardPages::AtStarts, &misses);
}
