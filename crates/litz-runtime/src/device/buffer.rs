//! Owns memory in which a device works: the host's, or the device's own.

use std::sync::Arc;

use super::{Device, DeviceMemory};
use crate::arena::{AlignedBuf, GuardPages, OutOfMemory};
use crate::error::RunError;

/// What parts of one buffer begin at multiples of: sectors and rows of a GPU's memory are not shared.
const PIECE: usize = 256;

/// Memory for launches of a device, at an address that is a multiple of [`crate::arena::ALIGNMENT`]; undefined at first.
/// Whoever drops it has waited for what uses it.
pub struct Buffer(Owner);

enum Owner {
    Host(AlignedBuf),
    Device {
        memory: Arc<dyn DeviceMemory>,
        start: *mut u8,
        bytes: usize,
    },
    /// A part of one that several have.
    Part {
        _whole: Arc<Buffer>,
        start: *mut u8,
        bytes: usize,
    },
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

    /// Memory for a device in pieces of these sizes: parts of one where it takes long to get memory ([`DeviceMemory::is_slow`]), which is given back
    /// when nobody has any of them.
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub(crate) fn pieces(device: &dyn Device, sizes: &[usize]) -> Result<Vec<Buffer>, RunError> {
        if !device.memory().is_some_and(|memory| memory.is_slow()) {
            return sizes.iter().map(|&bytes| Buffer::new(device, bytes)).collect();
        }
        let mut total = 0_usize;
        let mut starts = Vec::with_capacity(sizes.len());
        for &bytes in sizes {
            starts.push(total);
            let end = bytes.checked_next_multiple_of(PIECE).and_then(|bytes| total.checked_add(bytes));
            total = end.ok_or(OutOfMemory::of(bytes))?;
        }
        let whole = Arc::new(Buffer::new(device, total)?);
        let piece = |(start, &bytes): (usize, &usize)| {
            let start = whole.as_ptr().wrapping_add(start);
            Buffer(Owner::Part { _whole: Arc::clone(&whole), start, bytes })
        };
        Ok(starts.into_iter().zip(sizes).map(piece).collect())
    }

    /// Makes all of it zero, before it returns.
    ///
    /// # Errors
    /// When the device fails.
    pub(crate) fn clear(&mut self, device: &dyn Device) -> Result<(), RunError> {
        match (&mut self.0, device.memory()) {
            (Owner::Host(buffer), _) => buffer.as_mut_slice().fill(0),
            (Owner::Device { start, bytes, .. } | Owner::Part { start, bytes, .. }, Some(memory))
                if *bytes > 0 =>
            {
                // SAFETY: it is this buffer's, which nobody else uses.
                unsafe { memory.clear(*start, *bytes)? };
            }
            (Owner::Device { .. } | Owner::Part { .. }, _) => {}
        }
        Ok(())
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
            Owner::Device { bytes, .. } | Owner::Part { bytes, .. } => *bytes,
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
            Owner::Device { start, .. } | Owner::Part { start, .. } => *start,
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
