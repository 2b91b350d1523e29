//! Finds out who captures, and gives their graphs a share of what captured launches work with.
//!
//! `torch.cuda.graph` captures calls of compiled functions, and its graph is replayed when these may be gone: code, constants and the memory that kernels
//! work in are the program's, though, of which the driver knows nothing. So the graph gets a share of them, which it lets go in the end. That
//! happens on a thread of the driver's own which must not call the driver (CUDA driver API, `cuUserObjectCreate`), and code is unloaded by such a call: what
//! graphs have let go waits for the next call of a program.

use std::any::Any;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUgraph, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};

use super::driver::{CudaError, check};

/// What a graph has a share of.
type Share = Box<dyn Any + Send>;

/// What graphs have let go, and nobody has dropped.
static LET_GO: Mutex<Vec<Share>> = Mutex::new(Vec::new());

fn let_go() -> MutexGuard<'static, Vec<Share>> {
    LET_GO.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes calls of the driver that are no part of what is captured, such as those that take and give back memory: while somebody captures, on whatever
/// thread, the driver refuses them otherwise, and what has been captured is lost.
pub(super) fn beside<T>(calls: impl FnOnce() -> T) -> T {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the mode lives longer than the call, which exchanges it for that of the thread.
    let is_exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    let result = calls();
    if is_exchanged == sys::CUresult::CUDA_SUCCESS {
        // SAFETY: as above. What is returned nobody can act on.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    }
    result
}

/// What is enqueued on a stream becomes a part of a graph.
pub(super) struct Capture {
    /// No other one of the process has it.
    pub(super) number: u64,
    graph: CUgraph,
}

/// That of a stream, if somebody captures there. Where nobody does, what graphs have let go is dropped.
pub(super) fn of(stream: CUstream) -> Result<Option<Capture>, CudaError> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let mut capture = Capture { number: 0, graph: ptr::null_mut() };
    let (number, graph) = (&raw mut capture.number, &raw mut capture.graph);
    let (none, no_count) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the stream is alive, and what is asked for lives longer than the call.
    let result =
        unsafe { sys::cuStreamGetCaptureInfo_v2(stream, &raw mut status, number, graph, none, no_count) };
    check("cuStreamGetCaptureInfo", result)?;
    if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
        return Ok(Some(capture));
    }
    let shares = std::mem::take(&mut *let_go());
    if !shares.is_empty() {
        beside(|| drop(shares));
    }
    Ok(None)
}

/// What the driver calls when no graph has a share any more.
unsafe extern "C" fn let_go_of(share: *mut c_void) {
    // SAFETY: it is what was given to the driver, which calls this once.
    let share = unsafe { Box::from_raw(share.cast::<Share>()) };
    let_go().push(*share);
}

impl Capture {
    /// Gives the graph a share, and all graphs that are made of it.
    pub(super) fn keep(&self, share: Share) -> Result<(), CudaError> {
        let share = Box::into_raw(Box::new(share));
        let mut object = ptr::null_mut();
        let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
        // SAFETY: the handle lives longer than the call; the share is the object's from here on.
        let made =
            unsafe { sys::cuUserObjectCreate(&raw mut object, share.cast(), Some(let_go_of), 1, flags) };
        if let Err(error) = check("cuUserObjectCreate", made) {
            // SAFETY: it was made above, and nobody else has it.
            drop(unsafe { Box::from_raw(share) });
            return Err(error);
        }
        let flags = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
        // SAFETY: graph and object are alive. The graph takes the only reference.
        let taken = unsafe { sys::cuGraphRetainUserObject(self.graph, object, 1, flags) };
        check("cuGraphRetainUserObject", taken)
    }
}
