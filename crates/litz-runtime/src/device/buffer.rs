//! Owns memory in which a device works: the host's, or the device's own.

use std::sync::Arc;

use super::{Device, DeviceMemory};
use crate::arena::{AlignedBuf, GuardPages};
use crate::error::RunError;

/// Memory for launches of a device, at an address that is a multiple of [`crate::arena::ALIGNMENT`]; undefined at first.
/// Whoever drops it has waited for what uses it.
pub struct Buffer(Owner);

enum Owner {
    Host(AlignedBuf),
    Device { memory: Arc<dyn DeviceMemory>, start: *mut u8, bytes: usize },
}

// SAFETY: the buffer owns plain bytes, which are accessed under the contracts of streams.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Memory for a device.
    ///
    /// # Errors
    /// When there is no room, or the device fails.
    pub fn new(device: &dyn Device, bytes: usize) -> Result<Buffer, RunError> {
        Buffer::with_pages(device, bytes, GuardPages::Off)
    }

    /// As [`Buffer::new`]; the host's memory is next to pages that cannot be accessed, where asked for.
    pub(crate) fn with_pages(
        device: &dyn Device,
        bytes: usize,
        pages: GuardPages,
    ) -> Result<Buffer, RunError> {
        match device.memory() {
            Some(memory) if bytes > 0 => {
                let start = memory.allocate(bytes)?;
                Ok(Buffer(Owner::Device { memory, start, bytes }))
            }
            Some(_) => Ok(Buffer::default()),
            None => Ok(Buffer(Owner::Host(AlignedBuf::guarded(bytes, pages)?))),
        }
    }

    /// Makes it at least this large; its contents are lost when it grows.
    pub(crate) fn grow(&mut self, device: &dyn Device, bytes: usize) -> Result<(), RunError> {
        if self.len() < bytes {
            *self = Buffer::default();
            *self = Buffer::new(device, bytes)?;
        }
        Ok(())
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Owner::Host(buffer) => buffer.len(),
            Owner::Device { bytes, .. } => *bytes,
        }
    }

    /// Whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first byte, in the device's space, for streams to write through.
    pub fn as_ptr(&self) -> *mut u8 {
        match &self.0 {
            Owner::Host(buffer) => buffer.as_ptr().cast_mut(),
            Owner::Device { start, .. } => *start,
        }
    }
}

impl From<AlignedBuf> for Buffer {
    fn from(buffer: AlignedBuf) -> Buffer {
        Buffer(Owner::Host(buffer))
    }
}

/// A buffer of no bytes.
impl Default for Buffer {
    fn default() -> Buffer {
        Buffer(Owner::Host(AlignedBuf::default()))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Owner::Device { memory, start, .. } = &self.0 {
            // SAFETY: allocated there, once; nothing uses it by the contract.
            unsafe { memory.free(*start) }
        }
    }
}
