//! Runs kernels on the threads of the OpenMP runtime that PyTorch runs its operators on.
//!
//! After an operator those threads spin for about a millisecond, waiting for the next one. A worker of Litz's own that a kernel wakes
//! meanwhile has no core to itself, and the kernel waits for it: where operators and graphs took turns, calls took up to 2.5 times
//! as long as apart (two cores of an AMD EPYC, products of 64 x 64).

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use litz_runtime::pool::Team;

/// Runs a function on a team of so many threads, with data and flags.
type Parallel = unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void, c_uint, c_uint);
type Number = unsafe extern "C" fn() -> c_int;

/// Functions of an OpenMP runtime: GNU's, or another that has its interface.
pub struct OpenMp {
    parallel: Parallel,
    thread: Number,
}

/// Whether this process is a child of one that had found the runtime. The runtime's threads stayed with the parent, and it would wait
/// for them.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

impl OpenMp {
    /// The runtime that the process has, where it runs its own loops on `threads` threads.
    pub fn of(threads: usize) -> Option<OpenMp> {
        static WATCH: Once = Once::new();
        // SAFETY: OpenMP and GNU's manual (libgomp, "The libgomp ABI") give these functions these types.
        let (parallel, thread, most) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Parallel>(symbol(c"GOMP_parallel")?),
                std::mem::transmute::<*mut c_void, Number>(symbol(c"omp_get_thread_num")?),
                std::mem::transmute::<*mut c_void, Number>(symbol(c"omp_get_max_threads")?),
            )
        };
        // SAFETY: the function only stores to a variable.
        WATCH.call_once(|| unsafe {
            libc::pthread_atfork(None, None, Some(note_child));
        });
        // SAFETY: it only asks for a number.
        let has_as_many = usize::try_from(unsafe { most() }) == Ok(threads);
        (has_as_many && !IS_CHILD.load(Ordering::Relaxed)).then_some(OpenMp { parallel, thread })
    }
}

unsafe extern "C" fn note_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// What the process has by a name, for all of its libraries.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with 0.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// What each thread of a team is given.
struct Region<'a> {
    f: &'a (dyn Fn(usize) + Sync),
    thread: Number,
}

impl Team for OpenMp {
    fn run(&self, threads: usize, f: &(dyn Fn(usize) + Sync)) {
        if IS_CHILD.load(Ordering::Relaxed) {
            return f(0);
        }
        let mut region = Region { f, thread: self.thread };
        let threads = c_uint::try_from(threads).unwrap_or(c_uint::MAX);
        // SAFETY: the region outlives the call, which returns when all threads are done with it, and they only read it.
        unsafe { (self.parallel)(enter, (&raw mut region).cast(), threads, 0) };
    }
}

/// What a thread of a team runs.
unsafe extern "C" fn enter(region: *mut c_void) {
    // SAFETY: `run` gives this pointer, and waits.
    let region = unsafe { &*region.cast::<Region<'_>>() };
    // SAFETY: it only asks for a number.
    let thread = unsafe { (region.thread)() };
    (region.f)(usize::try_from(thread).unwrap_or(0));
}
