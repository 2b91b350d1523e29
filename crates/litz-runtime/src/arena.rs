//! Allocates zeroed memory, aligned for any vector load, in huge pages where that pays.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use crate::mapping::{HUGE_PAGE, Mapping, Protection, page_size};

/// Alignment of every buffer in bytes: one cache line, one 512-bit vector.
pub const ALIGNMENT: usize = 64;

/// Buffers from this size on are mapped in huge pages. First touch of 128 MB took 46.8 ms in pages of
/// 4 KiB and 10.4 ms in huge ones (Zen 4, Linux in `madvise` mode).
const MAPPED_FROM: usize = 2 * HUGE_PAGE;

/// Which memory has unmapped pages next to it, so that native code that leaves a buffer there faults: for tests of a
/// compiler, and for finding which access is wrong. Buffers then share no memory, and a call takes more of it and of time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GuardPages {
    /// None.
    #[default]
    Off,
    /// The page behind the last byte of each buffer. Buffers are aligned to their elements only.
    AtEnds,
    /// The page before the first byte of each buffer.
    AtStarts,
}

/// Owned bytes at an address that is a multiple of [`ALIGNMENT`], zeroed at first; with [`GuardPages::AtEnds`] at one that
/// makes them end with a page.
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

/// The system, or a device, had no memory for a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Size of the buffer asked for.
    pub bytes: usize,
    /// What takes most of a call's memory, where it is one's.
    pub largest: Option<Box<Largest>>,
}

/// A result of a call, or one between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    /// What the program calls it: the model's node, as a rule.
    pub name: String,
    /// Its size.
    pub bytes: usize,
}

impl OutOfMemory {
    /// Where a buffer of so many bytes was asked for.
    pub fn of(bytes: usize) -> OutOfMemory {
        OutOfMemory { bytes, largest: None }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "out of memory: no room for a buffer of {} bytes", self.bytes)?;
        match &self.largest {
            Some(largest) => {
                let Largest { name, bytes } = &**largest;
                write!(f, "; of what the call computes `{name}` takes most, {bytes} bytes")
            }
            None => Ok(()),
        }
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
        buffer.ok_or(OutOfMemory::of(len))
    }

    /// As [`AlignedBuf::new`], with pages next to it that cannot be accessed, where asked for; those of a buffer without
    /// bytes are where it begins.
    pub(crate) fn guarded(len: usize, pages: GuardPages) -> Result<AlignedBuf, OutOfMemory> {
        if pages == GuardPages::Off {
            return AlignedBuf::new(len);
        }
        let GuardedPieces { mapping, start, .. } = GuardedPieces::new(1, len, pages)?;
        let start = mapping.start().as_ptr().wrapping_add(start);
        let start = NonNull::new(start).expect("invariant: the mapping is not at address 0");
        Ok(AlignedBuf { start, len, memory: Memory::Mapped { _mapping: mapping } })
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

/// Pieces of memory with a page that cannot be accessed before and behind each.
pub(crate) struct GuardedPieces {
    mapping: Mapping,
    /// Bytes from the start of the mapping to the first piece.
    start: usize,
    /// Bytes from one piece to the next.
    pub(crate) stride: usize,
    pages: GuardPages,
    /// Bytes of a piece.
    len: usize,
}

impl GuardedPieces {
    /// `count` pieces of `len` bytes; `pages` says on which side a piece touches the next page.
    pub(crate) fn new(count: usize, len: usize, pages: GuardPages) -> Result<GuardedPieces, OutOfMemory> {
        let page = page_size();
        let layout = || {
            let inner = len.checked_next_multiple_of(page)?;
            let stride = inner.checked_add(page)?;
            Some((inner, stride, stride.checked_mul(count)?.checked_add(page)?))
        };
        let failed = || OutOfMemory::of(len.saturating_mul(count));
        let (inner, stride, total) = layout().ok_or_else(failed)?;
        let mut mapping = Mapping::new(total).map_err(|_| failed())?;
        for at in 0..=count {
            let guard = at * stride;
            mapping.protect(guard..guard + page, Protection::None).map_err(|_| failed())?;
        }
        let start = match pages {
            GuardPages::AtEnds => page + inner - len,
            GuardPages::Off | GuardPages::AtStarts => page,
        };
        Ok(GuardedPieces { mapping, start, stride, pages, len })
    }

    /// The first piece, of which `len` bytes are used: those next to the page that cannot be accessed.
    pub(crate) fn first(&self, len: usize) -> *mut u8 {
        let unused = match self.pages {
            GuardPages::AtEnds => self.len.saturating_sub(len),
            GuardPages::Off | GuardPages::AtStarts => 0,
        };
        self.mapping.start().as_ptr().wrapping_add(self.start + unused)
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
    fn guarded_buffers_touch_a_page_on_one_side() {
        let page = page_size();
        for len in [0, 1, 4, 100, page - 1, page, page + 1, MAPPED_FROM + 12345] {
            let mut ends = AlignedBuf::guarded(len, GuardPages::AtEnds).expect("there is memory");
            let mut starts = AlignedBuf::guarded(len, GuardPages::AtStarts).expect("there is memory");
            assert!((ends.as_ptr().addr() + len).is_multiple_of(page));
            assert!(starts.as_ptr().addr().is_multiple_of(page));
            for buffer in [&mut ends, &mut starts] {
                assert!(buffer.as_slice().iter().all(|&byte| byte == 0));
                buffer.as_mut_slice().fill(0xa5);
            }
        }
    }

    #[test]
    fn guarded_pieces_lie_apart() {
        let page = page_size();
        for (pages, len) in [(GuardPages::AtEnds, 100), (GuardPages::AtStarts, page), (GuardPages::AtEnds, 0)]
        {
            let pieces = GuardedPieces::new(3, len, pages).expect("there is memory");
            assert_eq!(pieces.stride, len.next_multiple_of(page) + page);
            for piece in 0..3 {
                for used in [len, len / 2] {
                    let start = pieces.first(used).wrapping_add(piece * pieces.stride);
                    // SAFETY: the bytes are in the piece.
                    unsafe { std::slice::from_raw_parts_mut(start, used) }.fill(0xa5);
                    let side = if pages == GuardPages::AtEnds { start.addr() + used } else { start.addr() };
                    assert!(side.is_multiple_of(page));
                }
            }
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert_eq!(AlignedBuf::new(bytes).err(), Some(OutOfMemory::of(bytes)));
            assert!(AlignedBuf::guarded(bytes, GuardPages::AtEnds).is_err());
        }
    }

    #[test]
    fn buffers_move_between_threads() {
        let buffer = AlignedBuf::new(100).expect("there is memory");
        let buffer = std::thread::spawn(move || buffer).join().expect("thread ends");
        assert_eq!(buffer.as_slice(), [0; 100]);
    }
}
