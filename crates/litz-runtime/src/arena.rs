//! A size in bytes to zeroed memory, aligned for any vector load, in huge pages where that pays.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use crate::mapping::Mapping;

/// Alignment of every buffer in bytes: one cache line, one 512-bit vector.
pub const ALIGNMENT: usize = 64;

const HUGE_PAGE: usize = 2 << 20;

/// Buffers from this size on are mapped in huge pages. First touch of 128 MB took 46.8 ms in pages of
/// 4 KiB and 10.4 ms in huge ones (Zen 4, Linux in `madvise` mode).
const MAPPED_FROM: usize = 2 * HUGE_PAGE;

/// Owned bytes at an address that is a multiple of [`ALIGNMENT`], zeroed at first.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    memory: Memory,
}

/// Where the bytes came from and go back to.
enum Memory {
    /// A buffer of no bytes.
    None,
    Heap(Layout),
    Mapped {
        _mapping: Mapping,
    },
}

/// The system had no memory for a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Size of the buffer asked for.
    pub bytes: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: no room for a buffer of {} bytes", self.bytes)
    }
}

impl std::error::Error for OutOfMemory {}

// SAFETY: the buffer owns plain bytes, and access follows the borrows of it.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len` zeroed bytes; `len` may be 0.
    pub fn new(len: usize) -> Result<AlignedBuf, OutOfMemory> {
        if len == 0 {
            return Ok(AlignedBuf::default());
        }
        let buffer = if len >= MAPPED_FROM { Self::mapped(len) } else { Self::on_heap(len) };
        buffer.ok_or(OutOfMemory { bytes: len })
    }

    fn on_heap(len: usize) -> Option<AlignedBuf> {
        let layout = Layout::from_size_align(len, ALIGNMENT).ok()?;
        // SAFETY: `len` is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(AlignedBuf { start, len, memory: Memory::Heap(layout) })
    }

    /// Maps one huge page more than needed, so that the buffer can begin at one.
    fn mapped(len: usize) -> Option<AlignedBuf> {
        let mut mapping = Mapping::new(len.checked_add(HUGE_PAGE)?).ok()?;
        mapping.advise_huge_pages();
        let skip = mapping.start().align_offset(HUGE_PAGE);
        // SAFETY: `skip < HUGE_PAGE`, so that `skip + len` bytes are inside the mapping.
        let start = unsafe { mapping.start().add(skip) };
        Some(AlignedBuf { start, len, memory: Memory::Mapped { _mapping: mapping } })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte. Dangling but aligned when the buffer is empty.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The first byte, to write through.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that this value owns.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// All bytes, to write to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// A buffer of no bytes.
impl Default for AlignedBuf {
    fn default() -> AlignedBuf {
        let alignment = std::num::NonZero::new(ALIGNMENT).expect("invariant: alignment is not 0");
        AlignedBuf { start: NonNull::without_provenance(alignment), len: 0, memory: Memory::None }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Memory::Heap(layout) = self.memory {
            // SAFETY: allocated with this layout and not freed before.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_aligned_zeroed_and_writable() {
        for len in [0, 1, 63, 64, 4096, MAPPED_FROM - 1, MAPPED_FROM, MAPPED_FROM + 12345] {
            let mut buffer = AlignedBuf::new(len).expect("there is memory");
            assert_eq!((buffer.len(), buffer.is_empty()), (len, len == 0));
            assert!(buffer.as_ptr().addr().is_multiple_of(ALIGNMENT));
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
            buffer.as_mut_slice().fill(0xa5);
            assert!(buffer.as_slice().iter().all(|&byte| byte == 0xa5));
        }
    }

    #[test]
    fn big_buffers_begin_at_a_huge_page() {
        assert!(
            AlignedBuf::new(MAPPED_FROM).expect("there is memory").as_ptr().addr().is_multiple_of(HUGE_PAGE)
        );
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert_eq!(AlignedBuf::new(bytes).err(), Some(OutOfMemory { bytes }));
        }
    }

    #[test]
    fn buffers_move_between_threads() {
        let buffer = AlignedBuf::new(100).expect("there is memory");
        let buffer = std::thread::spawn(move || buffer).join().expect("thread ends");
        assert_eq!(buffer.as_slice(), [0; 100]);
    }
}
