//! Checks that compiling, running and dropping a model again and again leaves nothing behind: no expression, no name, no memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicIsize, Ordering};

use litz::{Model, Options, tensors};

/// Bytes that Rust code holds, in all threads.
static HELD: AtomicIsize = AtomicIsize::new(0);

/// The system's allocator, counting.
struct Counting;

fn count(size: usize, sign: isize) {
    HELD.fetch_add(size as isize * sign, Ordering::Relaxed);
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Compilations of one model behind the first ones, in which tables grow and threads get what is theirs.
const AGAIN: isize = 20;

/// Bytes that a compilation may leave: less than any text, body or list of a model takes, more than what threads that end hold for a
/// moment longer, shared among all.
const LEFT: isize = 256;

// A test beside this one would intern and allocate at the same time.
#[test]
fn compiling_the_same_model_again_leaves_nothing() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let images =
        tensors::read(&examples.join("digits.safetensors")).expect("the file is there")["images"].clone();
    let whole = || {
        let model = Model::open(examples.join("digits.pt2")).expect("the file is a model");
        let options = Options { threads: 2, bind: false, cache: None, ..Options::default() };
        let compiled = model.compile(&options).expect("the model compiles");
        compiled.run(std::slice::from_ref(&images)).expect("the images fit");
    };
    (0..3).for_each(|_| whole());
    let (interned, held) = (litz_sym::interned(), HELD.load(Ordering::Relaxed));
    (0..AGAIN).for_each(|_| whole());
    assert_eq!(litz_sym::interned(), interned);
    let left = HELD.load(Ordering::Relaxed) - held;
    assert!(left < AGAIN * LEFT, "{left} bytes are left of {AGAIN} compilations");
}
