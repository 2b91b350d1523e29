//! Holds launches that are ready to be enqueued.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::CUtensorMap;

use super::kernels::Function;
use super::memory::Piece;
use crate::device::{KernelId, Launch};

/// A launch that is ready to be enqueued.
#[derive(Clone)]
pub(super) struct Prepared {
    pub(super) kernel: KernelId,
    pub(super) function: Function,
    pub(super) blocks: u32,
    pub(super) threads: u32,
    pub(super) shared_bytes: u32,
    /// Values of all parameters, each in as many bytes as it takes.
    pub(super) values: Vec<[u8; 16]>,
    /// How many of them are arguments.
    pub(super) args: usize,
    /// The values of sizes.
    pub(super) sizes: Vec<i64>,
    /// What boxes are cut out of: parameters behind all others.
    pub(super) boxes: Vec<CUtensorMap>,
    /// Memory that has to stay.
    #[expect(dead_code, reason = "it is there to be dropped last")]
    pub(super) work: Vec<Arc<Piece>>,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Prepared {}

impl Prepared {
    /// The addresses of the parameters' values, as the driver takes them.
    pub(super) fn pointers(&mut self) -> Vec<*mut c_void> {
        let values = self.values.iter_mut().map(|value| value.as_mut_ptr().cast());
        values.chain(self.boxes.iter_mut().map(|map| ptr::from_mut(map).cast())).collect()
    }

    /// A launch of no blocks.
    pub(super) fn nothing(launch: &Launch<'_>) -> Prepared {
        Prepared {
            kernel: launch.kernel,
            function: Function::NONE,
            blocks: 0,
            threads: 0,
            shared_bytes: 0,
            values: Vec::new(),
            args: launch.args.len(),
            sizes: Vec::new(),
            boxes: Vec::new(),
            work: Vec::new(),
        }
    }
}
