//! Runs native code on the threads of a pool.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use litz_ir::kernel::Kernel;

use crate::device::{AtOnce, Device, DeviceMemory, Idle, KernelId, Launch, RunsAtOnce, Stream};
use crate::error::RunError;
use crate::object::LoadedObject;
use crate::pool::ThreadPool;

/// Native code of a kernel: runs grid points `begin..end`. Where a `bind` fails, it writes the check's index plus 1
/// to `status` and goes on or stops, without touching memory outside of its arguments.
pub type KernelFn = unsafe extern "C" fn(
    args: *const *mut u8,
    sizes: *const i64,
    begin: i64,
    end: i64,
    scratch: *mut u8,
    status: *mut i64,
);

/// Native code on the threads of a pool. It works in the host's memory, and a launch has ended when it has been enqueued.
pub struct NativeDevice {
    code: Arc<NativeCode>,
}

struct NativeCode {
    kernels: Vec<NativeKernel>,
    pool: Arc<ThreadPool>,
    /// Keeps the code mapped.
    objects: Vec<Arc<LoadedObject>>,
}

struct NativeKernel {
    name: String,
    checks: Vec<String>,
    /// Points of one chunk.
    grain: i64,
    function: KernelFn,
}

impl NativeDevice {
    /// Finds the code of each kernel, a function of the kernel's name, in `objects`.
    ///
    /// # Errors
    /// [`RunError::Bug`] when no object has a function of a kernel's name.
    ///
    /// # Safety
    /// These functions are of type [`KernelFn`] and do what the kernels say.
    pub unsafe fn new(
        kernels: &[Kernel],
        objects: Vec<Arc<LoadedObject>>,
        pool: Arc<ThreadPool>,
    ) -> Result<NativeDevice, RunError> {
        let mut functions = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let code = objects.iter().find_map(|object| object.get(&kernel.name));
            let code = code
                .ok_or_else(|| RunError::bug(format!("kernel @{}", kernel.name), "it has no native code"))?;
            // SAFETY: of that type by the contract.
            functions.push((kernel, unsafe { std::mem::transmute::<*const u8, KernelFn>(code) }));
        }
        Ok(NativeDevice { code: Arc::new(NativeCode::new(&functions, pool, objects)) })
    }

    /// Takes functions that are already there.
    ///
    /// # Safety
    /// Each function does what its kernel says, and stays valid as long as the device.
    pub unsafe fn from_functions(functions: &[(&Kernel, KernelFn)], pool: Arc<ThreadPool>) -> NativeDevice {
        NativeDevice { code: Arc::new(NativeCode::new(functions, pool, Vec::new())) }
    }
}

impl NativeCode {
    fn new(
        functions: &[(&Kernel, KernelFn)],
        pool: Arc<ThreadPool>,
        objects: Vec<Arc<LoadedObject>>,
    ) -> NativeCode {
        let kernels = functions.iter().map(|&(kernel, function)| NativeKernel {
            name: kernel.name.clone(),
            checks: kernel.checks.clone(),
            grain: i64::try_from(kernel.grain).unwrap_or(i64::MAX).max(1),
            function,
        });
        NativeCode { kernels: kernels.collect(), pool, objects }
    }

    fn concurrency(&self) -> usize {
        self.pool.threads().min(MAX_PIECES)
    }
}

impl Device for NativeDevice {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.code.kernels.iter().position(|kernel| kernel.name == name).map(KernelId)
    }

    fn concurrency(&self) -> usize {
        self.code.concurrency()
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        None
    }

    fn idle(&self) -> Option<&Idle> {
        Some(self.code.pool.idle())
    }

    fn code(&self) -> Vec<(String, Range<usize>)> {
        let functions = self.code.objects.iter().flat_map(|object| object.functions());
        functions.map(|(name, range)| (name.to_owned(), range)).collect()
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        Ok(Box::new(AtOnce::new(Arc::clone(&self.code))))
    }
}

impl RunsAtOnce for NativeCode {
    unsafe fn run(&self, launch: &Launch<'_>) -> Result<(), RunError> {
        let kernel = &self.kernels[launch.kernel.0];
        let chunks = launch.points.max(0).unsigned_abs().div_ceil(kernel.grain.unsigned_abs());
        let points = launch.points;
        let shared = SharedLaunch {
            launch,
            failed: AtomicI64::new(i64::MAX),
            scratch: Pieces::new(self.concurrency()),
        };
        let run_chunk = |chunk: usize| {
            let begin = chunk as i64 * kernel.grain;
            let end = begin.saturating_add(kernel.grain).min(points);
            // SAFETY: the caller's promise covers every range of grid points.
            unsafe { shared.run(kernel.function, begin, end) };
        };
        match usize::try_from(chunks).unwrap_or(usize::MAX) {
            0 => return Ok(()),
            1 => run_chunk(0),
            chunks => self.pool.run(chunks, &run_chunk),
        }
        match shared.failed.into_inner() {
            i64::MAX => Ok(()),
            failed => Err(bad_index(kernel, failed)),
        }
    }
}

fn bad_index(kernel: &NativeKernel, status: i64) -> RunError {
    let check = usize::try_from(status - 1).ok().and_then(|check| kernel.checks.get(check));
    match check {
        Some(check) => RunError::BadIndex { kernel: kernel.name.clone(), check: check.clone() },
        None => RunError::bug(format!("kernel @{}", kernel.name), format!("its code gave status {status}")),
    }
}

/// A launch as its chunks see it.
struct SharedLaunch<'a> {
    launch: &'a Launch<'a>,
    /// Smallest status other than 0 that a chunk gave.
    failed: AtomicI64,
    scratch: Pieces,
}

// SAFETY: the launch's pointers may be used from any thread by the promise of whoever launches; chunks write
// disjoint elements, and each holds a piece of scratch memory of its own.
unsafe impl Sync for SharedLaunch<'_> {}

impl SharedLaunch<'_> {
    /// # Safety
    /// The launch is valid, and `function` belongs to its kernel.
    unsafe fn run(&self, function: KernelFn, begin: i64, end: i64) {
        let launch = self.launch;
        let mut status = 0;
        let mut call = |scratch| {
            // SAFETY: by the contract; the scratch memory is ours until we give it back.
            unsafe {
                function(launch.args.as_ptr(), launch.sizes.as_ptr(), begin, end, scratch, &mut status)
            };
        };
        if launch.scratch_bytes == 0 {
            call(launch.scratch);
        } else {
            let piece = self.scratch.take();
            call(launch.scratch.wrapping_add(piece * launch.scratch_stride));
            self.scratch.give_back(piece);
        }
        if status != 0 {
            self.failed.fetch_min(status, Ordering::Relaxed);
        }
    }
}

/// Most threads that get scratch memory at once; more wait for a piece.
const MAX_PIECES: usize = 1024;

/// Which pieces of scratch memory are taken, one bit each.
struct Pieces {
    taken: [AtomicU64; MAX_PIECES / 64],
    count: usize,
}

impl Pieces {
    fn new(count: usize) -> Pieces {
        Pieces { taken: [const { AtomicU64::new(0) }; MAX_PIECES / 64], count }
    }

    /// The number of a piece that nobody holds.
    fn take(&self) -> usize {
        loop {
            for (at, word) in self.taken.iter().enumerate().take(self.count.div_ceil(64)) {
                let free = word.load(Ordering::Relaxed).trailing_ones() as usize;
                let piece = 64 * at + free;
                // Acquires what the previous holder released: the piece is reused memory.
                if free < 64
                    && piece < self.count
                    && word.fetch_or(1 << free, Ordering::Acquire) >> free & 1 == 0
                {
                    return piece;
                }
            }
            std::hint::spin_loop();
        }
    }

    fn give_back(&self, piece: usize) {
        self.taken[piece / 64].fetch_and(!(1 << (piece % 64)), Ordering::Release);
    }
}
