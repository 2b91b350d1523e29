//! Maps pages of memory, anonymous or from a file, whose protection can be changed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Anonymous private pages, zeroed, or the shared pages of a file.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

/// What may be done with pages. There is no writable and executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    None,
    Read,
    ReadExecute,
}

// SAFETY: a mapping is plain memory owned by this value; access goes through borrows of it.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives no way to write.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes, `len > 0`, readable and writable until [`Mapping::protect`] says otherwise; fails when the
    /// system has no memory to give.
    pub(crate) fn new(len: usize) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    /// Maps the first `len` bytes of a file, `len > 0`, to read.
    pub(crate) fn of_file(file: &File, len: usize) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd())
    }

    /// Maps the first `len` bytes of a file, `len > 0`; what is written to them is written to the file.
    pub(crate) fn of_file_to_write(file: &File, len: usize) -> io::Result<Mapping> {
        Mapping::map(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(len: usize, protection: i32, flags: i32, file: RawFd) -> io::Result<Mapping> {
        // SAFETY: a fresh mapping at an address that the system chooses overlaps nothing of ours.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("invariant: the kernel maps nothing at address 0");
        Ok(Mapping { start, len })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The memory.
    ///
    /// # Safety
    /// Nobody writes to it as long as the slice lives, nor shortens the file that it is of.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the pages are ours and readable; not written by the contract.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The memory; to be written only before [`Mapping::protect`].
    ///
    /// # Safety
    /// It was mapped to be written, and no page has been protected yet.
    pub(crate) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the pages are ours and initialised, and writable by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Changes what may be done with a range of whole pages; the last one need not be full.
    pub(crate) fn protect(&mut self, range: Range<usize>, protection: Protection) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.len, "invariant: range is inside the mapping");
        let flags = match protection {
            Protection::None => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
        };
        // SAFETY: the range is inside our mapping.
        let failed =
            unsafe { libc::mprotect(self.start.as_ptr().add(range.start).cast(), range.len(), flags) };
        if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Asks for huge pages. Only a hint: where the system has none, nothing changes.
    pub(crate) fn advise_huge_pages(&mut self) {
        advise(self.start, self.len);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and borrows of it have ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Asks for huge pages where `len` bytes from `start` hold whole ones, so that memory that is written for the first time costs
/// a fault for each of those and not one for each 4 KiB. Only a hint: what is stored there stays as it is.
///
/// # Safety
/// The bytes are memory of this process that stays mapped during the call.
pub unsafe fn advise_huge_pages(start: NonNull<u8>, len: usize) {
    let skip = start.align_offset(HUGE_PAGE);
    let whole = len.saturating_sub(skip) / HUGE_PAGE * HUGE_PAGE;
    if whole > 0 {
        // SAFETY: `skip + whole` bytes are inside the memory that the caller vouches for.
        advise(unsafe { start.add(skip) }, whole);
    }
}

/// Gives the system back the pages that the heap keeps although nothing on them is in use. Where the C library is not GNU's, which
/// alone keeps as many, nothing happens.
pub fn return_freed_pages() {
    // SAFETY: the C library synchronises it with allocations of all threads, and what is allocated stays.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Advice for whole pages changes neither what they hold nor who may use them.
fn advise(start: NonNull<u8>, len: usize) {
    // SAFETY: the system refuses addresses that are not mapped, and changes no content.
    unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
}

/// Size of a memory page in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}
