//! Takes memory of a GPU.

use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use super::capture;
use super::driver::{CudaError, Gpu, check};

/// The memory of a GPU.
pub(super) struct Memory {
    gpu: Arc<Gpu>,
}

impl Memory {
    pub(super) fn new(gpu: Arc<Gpu>) -> Memory {
        Memory { gpu }
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<*mut u8, CudaError> {
        let _entered = self.gpu.enter()?;
        Ok(ptr::with_exposed_provenance_mut(allocated(bytes)? as usize))
    }

    /// # Safety
    /// There is so much of it, which nothing else uses.
    pub(super) unsafe fn clear(&self, start: *mut u8, bytes: usize) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: by the contract.
        unsafe { clear(start.addr() as u64, bytes) }
    }

    /// # Safety
    /// It was allocated here, and nothing that is enqueued uses it.
    pub(super) unsafe fn free(&self, start: *mut u8) {
        // What is returned nobody can act on.
        let _entered = self.gpu.enter();
        // SAFETY: by the contract.
        let _ = capture::beside(|| unsafe { sys::cuMemFree_v2(start.addr() as u64) });
    }
}

/// The address of so many bytes of the GPU that is current.
fn allocated(bytes: usize) -> Result<u64, CudaError> {
    let mut start = 0;
    // SAFETY: the address lives longer than the call.
    let result =
        check("cuMemAlloc", capture::beside(|| unsafe { sys::cuMemAlloc_v2(&raw mut start, bytes) }));
    let sized = |error: CudaError| CudaError { out_of_memory: error.out_of_memory.and(Some(bytes)), ..error };
    result.map(|()| start).map_err(sized)
}

/// Memory of a GPU that is given back when nobody has it any more.
pub(super) struct Piece {
    gpu: Arc<Gpu>,
    pub(super) start: u64,
    pub(super) bytes: usize,
}

impl Piece {
    /// So many bytes, which are zero.
    pub(super) fn zeroed(gpu: &Arc<Gpu>, bytes: usize) -> Result<Piece, CudaError> {
        let _entered = gpu.enter()?;
        let piece = Piece { gpu: Arc::clone(gpu), start: allocated(bytes)?, bytes };
        // SAFETY: it was allocated, and nobody has it yet.
        unsafe { clear(piece.start, bytes)? };
        Ok(piece)
    }
}

/// Makes memory of the GPU that is current zero, by a stream of its own, which nobody captures and which is waited for.
///
/// # Safety
/// There is so much of it, which nothing else uses.
unsafe fn clear(start: u64, bytes: usize) -> Result<(), CudaError> {
    let mut stream = ptr::null_mut();
    let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
    // SAFETY: by the contract.
    capture::beside(|| unsafe {
        check("cuStreamCreate", sys::cuStreamCreate(&raw mut stream, flags))?;
        let set = check("cuMemsetD8Async", sys::cuMemsetD8Async(start, 0, bytes, stream));
        let waited = set.and_then(|()| check("cuStreamSynchronize", sys::cuStreamSynchronize(stream)));
        let _ = sys::cuStreamDestroy_v2(stream);
        waited
    })
}

impl Drop for Piece {
    fn drop(&mut self) {
        let _entered = self.gpu.enter();
        // SAFETY: allocated above; whoever had it has waited. What is returned nobody can act on.
        let _ = capture::beside(|| unsafe { sys::cuMemFree_v2(self.start) });
    }
}

/// Words of the host that kernels write to.
pub(super) struct Words {
    gpu: Arc<Gpu>,
    start: *mut u32,
    count: usize,
}

// SAFETY: the words are plain memory, which one stream uses.
unsafe impl Send for Words {}

impl Words {
    /// So many of them, all zero.
    pub(super) fn new(gpu: &Arc<Gpu>, count: usize) -> Result<Words, CudaError> {
        let _entered = gpu.enter()?;
        let count = count.max(1);
        let mut start = ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the address lives longer than the call.
        let result = capture::beside(|| unsafe { sys::cuMemHostAlloc(&raw mut start, 4 * count, flags) });
        check("cuMemHostAlloc", result)?;
        // SAFETY: so many words are allocated.
        unsafe { ptr::write_bytes(start.cast::<u32>(), 0, count) };
        Ok(Words { gpu: Arc::clone(gpu), start: start.cast(), count })
    }

    /// The address of one, for the GPU as for the host.
    pub(super) fn address(&self, number: usize) -> u64 {
        debug_assert!(number < self.count, "invariant: a word for each kernel");
        self.start.wrapping_add(number).expose_provenance() as u64
    }

    /// The first word that is not zero, which it is then again.
    pub(super) fn take(&mut self) -> Option<(usize, u32)> {
        (0..self.count).find_map(|number| {
            // SAFETY: it is one of the words; kernels that write them have ended.
            let word = unsafe { self.start.add(number) };
            // SAFETY: as above.
            let value = unsafe { word.read_volatile() };
            (value != 0).then(|| {
                // SAFETY: as above.
                unsafe { word.write_volatile(0) };
                (number, value)
            })
        })
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        let _entered = self.gpu.enter();
        // SAFETY: allocated above. What is returned nobody can act on.
        let _ = unsafe { sys::cuMemFreeHost(self.start.cast()) };
    }
}
