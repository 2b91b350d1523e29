//! Checks that a steady-state call allocates nothing but its outputs, and nothing at all into outputs that are there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use litz_runtime::Tensor;
use litz_runtime::program::Executable;
use litz_runtime::reference::ReferenceDevice;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting by thread.
struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> usize {
    let before = COUNT.get();
    run();
    COUNT.get() - before
}

#[test]
fn steady_state_calls_do_not_allocate() {
    let program = "program @p on cpu {
      sym s0 in [1, 100]
      param x: f32[s0, 4]
      const w: f32[4] = \"w\"
      alloc t: f32[4*s0]
      launch @add(x, w, t) sizes(s0)
      alloc y: f32[4*s0]
      launch @add(t, w, y) sizes(s0)
      free t
      update w = y
      return y: f32[s0, 4], y: f32[4]
    }";
    let kernel = "kernel @add from n {
      read x: f32[4*s0]
      read w: f32[4]
      write y: f32[4*s0]
      size s0 in [1, 100]
      grid i in s0, j in 4
      register acc: f32[1]
      %0: f32 = load x[4*i + j]
      acc[0] = %0
      %1: f32 = load w[j]
      acc[0] sum= %1
      %2: f32 = load acc[0]
      y[4*i + j] = %2
    }";
    let program = litz_ir::text::program::parse(program).expect("the program is sound");
    let kernels = [litz_ir::text::kernel::parse(kernel).expect("the kernel is sound")];
    let device = Arc::new(ReferenceDevice::new(&kernels).expect("the kernel is sound"));
    let weight = Tensor::from_slice(&[4], &[1.0f32; 4]).expect("lengths match");
    let weights = HashMap::from([("w".to_string(), weight)]);
    let executable = Executable::new(&program, &kernels, device, &weights).expect("the program is sound");

    let inputs = [Tensor::from_slice(&[8, 4], &[1.0f32; 32]).expect("lengths match")];
    // The last input is in another layout, so that it is gathered.
    let expanded: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![0u8; 128]);
    let gathered =
        [Tensor::from_shared(litz_ir::Dtype::F32, &[8, 4], &[1, 8], expanded, 0).expect("long enough")];
    let mut outputs = executable.run(&inputs).expect("the call is right");
    executable.run_into(&gathered, &mut outputs).expect("the call is right");
    let pointer = outputs[0].tensor().expect("a tensor").bytes().as_ptr();
    for inputs in [&inputs, &gathered] {
        let count = allocations(|| executable.run_into(inputs, &mut outputs).expect("the call is right"));
        assert_eq!(count, 0);
    }
    assert_eq!(outputs[0].tensor().expect("a tensor").bytes().as_ptr(), pointer);
    // Each output: its bytes, the counter that shares them, sizes and strides; besides, the list of outputs.
    let count = allocations(|| drop(executable.run(&inputs)));
    assert!(count <= 2 * 4 + 1, "{count} allocations");
}
