//! Keeps the memory of load steps beyond the process: the next start maps what this one has made of a model's weights.
//!
//! An entry is a file: the memory, then a trailer with magic, key, length, and the boot of the system it was written in.
//! Whoever makes one computes right into the mapped file, so that the memory exists once, and the file appears under
//! its name when it is complete. Later processes map it: nothing is read, copied or hashed.
//!
//! No checksum vouches for the bytes, so that an entry counts only in the boot of the system that wrote it: as long as
//! that lasts, all of what was written is there. After a loss of power a file may have its length and not its contents.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::SystemTime;

use super::{CacheKey, HASH_LEN, ObjectCache};
use crate::mapping::{Mapping, Protection};

const MAGIC: &[u8; 8] = b"litzmem1";

/// As the system writes it: a UUID.
const BOOT_LEN: usize = 36;

const TRAILER_LEN: usize = MAGIC.len() + HASH_LEN + size_of::<u64>() + BOOT_LEN;

/// Memory in a file of the cache.
pub(crate) struct FileMemory {
    mapping: Mapping,
    /// Bytes of memory, at the start of the file.
    len: usize,
}

/// A file that is still being written. It is removed unless [`Unfinished::finish`] gives it its name.
pub(crate) struct Unfinished {
    /// `None` when it has its name.
    path: Option<PathBuf>,
    name: PathBuf,
    trailer: [u8; TRAILER_LEN],
}

impl FileMemory {
    pub(crate) fn start(&self) -> *mut u8 {
        self.mapping.start().as_ptr()
    }
}

impl ObjectCache {
    /// The memory of `len` bytes kept under `key`, to read only; `None`: not there, cut off, or of an earlier boot.
    pub(crate) fn map(&self, key: &CacheKey, len: usize) -> Option<FileMemory> {
        let (path, trailer) = (self.memory_path(key), trailer(key, len)?);
        let file = File::open(&path).ok()?;
        let file_len = len.checked_add(TRAILER_LEN)?;
        let is_whole = file.metadata().is_ok_and(|metadata| metadata.len() == file_len as u64);
        let mapping = is_whole.then(|| Mapping::of_file(&file, file_len).ok()).flatten();
        // SAFETY: files under this name are complete, and nobody changes those.
        let mapping = mapping.filter(|mapping| unsafe { mapping.bytes() }[len..] == trailer);
        let Some(mapping) = mapping else {
            // Another process may put a good one in its place in between; then that is made once more.
            let _ = fs::remove_file(&path);
            return None;
        };
        // The time of last use; where it cannot be set the entry just looks older than it is.
        let _ = file.set_modified(SystemTime::now());
        Some(FileMemory { mapping, len })
    }

    /// Zeroed memory of `len` bytes in a file that is to be kept under `key`. `None` where there is no room for it.
    pub(crate) fn make(&self, key: &CacheKey, len: usize) -> Option<(FileMemory, Unfinished)> {
        let (trailer, file_len) = (trailer(key, len)?, len.checked_add(TRAILER_LEN)?);
        self.make_room(file_len as u64).ok().filter(|&has_room| has_room)?;
        let (file, path) = self.create_unfinished(key).ok()?;
        let unfinished = Unfinished { path: Some(path), name: self.memory_path(key), trailer };
        reserve(&file, file_len).ok()?;
        let mapping = Mapping::of_file_to_write(&file, file_len).ok()?;
        Some((FileMemory { mapping, len }, unfinished))
    }

    fn memory_path(&self, key: &CacheKey) -> PathBuf {
        self.path(key, super::MEMORY_EXTENSION)
    }
}

impl Unfinished {
    /// Gives the file its name. Its memory is read only from then on.
    pub(crate) fn finish(mut self, memory: &mut FileMemory) -> io::Result<()> {
        // SAFETY: mapped to be written by `make`, and not yet protected.
        let bytes = unsafe { memory.mapping.bytes_mut() };
        bytes[memory.len..].copy_from_slice(&self.trailer);
        memory.mapping.protect(0..memory.len + TRAILER_LEN, Protection::Read)?;
        let path = self.path.as_ref().expect("invariant: it is finished once");
        fs::rename(path, &self.name)?;
        self.path = None;
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

/// `None` where the system does not say which boot this is.
fn trailer(key: &CacheKey, len: usize) -> Option<[u8; TRAILER_LEN]> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let parts = [MAGIC, &key.0[..], &(len as u64).to_le_bytes(), boot.get(..BOOT_LEN)?];
    parts.concat().try_into().ok()
}

/// Gives a file its length, and the room on disk: a write to mapped pages that have none would end the process.
fn reserve(file: &File, len: usize) -> io::Result<()> {
    let len = i64::try_from(len).map_err(io::Error::other)?;
    // SAFETY: the descriptor is open as long as the borrow.
    let failed = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, key};
    use super::*;

    /// The memory under a key, from the cache or made of these bytes.
    fn kept(cache: &ObjectCache, number: usize, bytes: &[u8]) -> FileMemory {
        let (mut memory, unfinished) = cache.make(&key(number), bytes.len()).expect("there is room");
        // SAFETY: it was made to be written.
        let to = unsafe { memory.mapping.bytes_mut() };
        to[..bytes.len()].copy_from_slice(bytes);
        unfinished.finish(&mut memory).expect("renames");
        memory
    }

    fn bytes(memory: &FileMemory) -> &[u8] {
        // SAFETY: nobody writes it.
        let bytes = unsafe { memory.mapping.bytes() };
        &bytes[..memory.len]
    }

    #[test]
    fn what_was_made_is_mapped_under_its_key_and_length() {
        let folder = Folder::new("memory");
        let cache = folder.open(1 << 20);
        assert!(cache.map(&key(0), 5000).is_none());
        let payload: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
        let made = kept(&cache, 0, &payload);
        let mapped = folder.open(1 << 20).map(&key(0), 5000).expect("it is kept");
        assert_eq!((bytes(&made), bytes(&mapped)), (&payload[..], &payload[..]));
        assert!(mapped.start().addr().is_multiple_of(crate::arena::ALIGNMENT));
        assert!(cache.map(&key(1), 5000).is_none());
    }

    #[test]
    fn what_is_not_finished_is_not_there_and_leaves_no_file() {
        let folder = Folder::new("unfinished");
        let cache = folder.open(1 << 20);
        let (memory, unfinished) = cache.make(&key(0), 100).expect("there is room");
        assert!(cache.map(&key(0), 100).is_none());
        drop((memory, unfinished));
        assert_eq!(fs::read_dir(cache.dir).expect("readable").count(), 0);
    }

    #[test]
    fn entries_of_another_boot_length_or_key_and_cut_ones_are_misses_and_go_away() {
        let folder = Folder::new("stale");
        let cache = folder.open(1 << 20);
        let path = cache.memory_path(&key(0));
        drop(kept(&cache, 0, &[7; 100]));
        let sound = fs::read(&path).expect("readable");
        let changes = (100..sound.len()).map(|at| {
            let mut changed = sound.clone();
            changed[at] ^= 1;
            changed
        });
        for bytes in changes.chain([sound[..99].to_vec(), Vec::new(), [&sound[..], &[0]].concat()]) {
            fs::write(&path, bytes).expect("writable");
            assert!(cache.map(&key(0), 100).is_none());
            assert!(!path.exists());
        }
    }

    #[test]
    fn the_limit_holds_for_memory_too() {
        let folder = Folder::new("room");
        let cache = folder.open(10_000);
        assert!(cache.make(&key(0), 20_000).is_none());
        drop(kept(&cache, 0, &[1; 6000]));
        let path = cache.memory_path(&key(0));
        let file = File::open(&path).expect("there");
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(10)).expect("settable");
        drop(kept(&cache, 1, &[2; 6000]));
        assert!(cache.map(&key(0), 6000).is_none());
        assert_eq!(bytes(&cache.map(&key(1), 6000).expect("it is kept")), [2; 6000]);
        cache.put(&key(2), &[3; 9000]).expect("puts");
        assert!(cache.map(&key(1), 6000).is_none());
    }
}
