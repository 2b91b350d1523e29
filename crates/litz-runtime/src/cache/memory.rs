//! Keeps the memory of load steps beyond the process: the next start maps what this one has made of a model's weights.
//!
//! An entry is a file: the memory, then a trailer with magic, key, length, and the boot of the system it was written in.
//! Whoever makes one computes right into the mapped file, so that the memory exists once, and the file appears under
//! its name when it is complete. Later processes map it: nothing is read, copied or hashed.
//!
//! No checksum vouches for the bytes, so that an entry counts only in the boot of the system that wrote it: as long as
//! that lasts, all of what was written is there. After a loss of power a file may have its length and not its contents.
//! An imported entry was compared with its checksum and is on disk before it has its name: it counts in every boot.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use super::{CacheKey, Found, HASH_LEN, ObjectCache, Payload, Record};
use crate::mapping::{Mapping, Protection};

const MAGIC: &[u8; 8] = b"litzmem1";

/// As the system writes it: a UUID.
const BOOT_LEN: usize = 36;

/// In the place of a boot: the bytes are on disk, whatever boot this is. No UUID is like that.
const IMPORTED: [u8; BOOT_LEN] = [b'-'; BOOT_LEN];

pub(super) const TRAILER_LEN: usize = MAGIC.len() + HASH_LEN + size_of::<u64>() + BOOT_LEN;

/// Where memory of one model may be: made from its file by a process of this machine, or imported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryKeys {
    /// Stands for a file of this machine; `None` where nothing tells it from another one.
    pub own: Option<Record>,
    /// Stands for the contents of the file, wherever it is; `None`: nothing imported is taken.
    pub imported: Option<Record>,
}

/// Memory in a file of the cache.
pub struct FileMemory {
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

    /// The memory of a file that has its name.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: nobody changes files that have their name.
        let bytes = unsafe { self.mapping.bytes() };
        &bytes[..self.len]
    }
}

impl fmt::Debug for FileMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

impl ObjectCache {
    /// The memory of `len` bytes kept under one of the keys, to read only; `None`: not there, cut off, or of an earlier boot.
    pub(crate) fn map(&self, keys: &MemoryKeys, len: usize) -> Option<FileMemory> {
        let own = keys.own.as_ref().and_then(|record| self.map_as(record.key(), len, boot()?));
        let here = own.or_else(|| self.map_as(keys.imported.as_ref()?.key(), len, IMPORTED));
        here.or_else(|| self.behind.as_ref()?.map(keys, len))
    }

    fn map_as(&self, key: &CacheKey, len: usize, boot: [u8; BOOT_LEN]) -> Option<FileMemory> {
        let path = self.memory_path(key);
        let file = File::open(&path).ok()?;
        let memory =
            mapped(&file).filter(|(memory, end)| memory.len == len && *end == trailer(key, len, boot));
        let Some((memory, _)) = memory else {
            self.remove_damaged(&path);
            return None;
        };
        self.touch(&file);
        Some(memory)
    }

    /// What is there under a key, which stays as it is.
    pub(super) fn find_memory(&self, key: &CacheKey) -> Found {
        let Ok(file) = File::open(self.memory_path(key)) else { return Found::Nothing };
        let Some((memory, end)) = mapped(&file) else { return Found::Damaged };
        let is_of = |boot| trailer(key, memory.len, boot) == end;
        if is_of(IMPORTED) || boot().is_some_and(is_of) {
            return Found::Whole(Payload::Memory(memory));
        }
        let mut other = IMPORTED;
        other.copy_from_slice(&end[TRAILER_LEN - BOOT_LEN..]);
        if is_of(other) { Found::OtherBoot } else { Found::Damaged }
    }

    /// Zeroed memory of `len` bytes in a file that is to be kept under the key of a record. `None` where there is no room for it.
    pub(crate) fn make(&self, record: &Record, len: usize) -> Option<(FileMemory, Unfinished)> {
        let (key, file_len) = (record.key(), len.checked_add(TRAILER_LEN)?);
        let trailer = trailer(key, len, boot()?);
        self.make_room(file_len as u64).ok().filter(|&has_room| has_room)?;
        self.keep_record(record).ok()?;
        let (file, path) = self.create_unfinished(key).ok()?;
        let unfinished = Unfinished { path: Some(path), name: self.memory_path(key), trailer };
        reserve(&file, file_len).ok()?;
        let mapping = Mapping::of_file_to_write(&file, file_len).ok()?;
        Some((FileMemory { mapping, len }, unfinished))
    }

    /// Puts memory that was compared with its checksum, so that it counts in every boot: it is on disk before it has its name.
    pub fn put_memory(&self, record: &Record, bytes: &[u8]) -> io::Result<()> {
        let key = record.key();
        if !self.make_room((bytes.len() + TRAILER_LEN) as u64)? {
            return Ok(());
        }
        self.keep_record(record)?;
        self.write(key, &self.memory_path(key), |mut file| {
            file.write_all(bytes)?;
            file.write_all(&trailer(key, bytes.len(), IMPORTED))?;
            file.sync_all()
        })
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

/// The memory of a whole file, and its trailer.
fn mapped(file: &File) -> Option<(FileMemory, [u8; TRAILER_LEN])> {
    let file_len = usize::try_from(file.metadata().ok()?.len()).ok()?;
    let len = file_len.checked_sub(TRAILER_LEN)?;
    let mapping = Mapping::of_file(file, file_len).ok()?;
    // SAFETY: files under names of the cache are complete, and nobody changes those.
    let end = unsafe { mapping.bytes() }[len..].try_into().ok()?;
    Some((FileMemory { mapping, len }, end))
}

/// `None` where the system does not say which boot this is.
fn boot() -> Option<[u8; BOOT_LEN]> {
    let boot = fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    boot.get(..BOOT_LEN)?.try_into().ok()
}

fn trailer(key: &CacheKey, len: usize, boot: [u8; BOOT_LEN]) -> [u8; TRAILER_LEN] {
    let parts = [MAGIC, &key.0[..], &(len as u64).to_le_bytes(), &boot];
    parts.concat().try_into().expect("invariant: the parts have these lengths")
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
    use super::super::tests::{Folder, key, record};
    use super::*;
    use std::time::SystemTime;

    fn keys(number: usize) -> MemoryKeys {
        MemoryKeys { own: Some(record(number)), imported: Some(record(100 + number)) }
    }

    /// The memory under a key, from the cache or made of these bytes.
    fn kept(cache: &ObjectCache, number: usize, bytes: &[u8]) -> FileMemory {
        let (mut memory, unfinished) = cache.make(&record(number), bytes.len()).expect("there is room");
        // SAFETY: it was made to be written.
        let to = unsafe { memory.mapping.bytes_mut() };
        to[..bytes.len()].copy_from_slice(bytes);
        unfinished.finish(&mut memory).expect("renames");
        memory
    }

    #[test]
    fn what_was_made_is_mapped_under_its_key_and_length() {
        let folder = Folder::new("memory");
        let cache = folder.open(1 << 20);
        assert!(cache.map(&keys(0), 5000).is_none());
        let payload: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
        let made = kept(&cache, 0, &payload);
        let mapped = folder.open(1 << 20).map(&keys(0), 5000).expect("it is kept");
        assert_eq!((made.bytes(), mapped.bytes()), (&payload[..], &payload[..]));
        assert!(mapped.start().addr().is_multiple_of(crate::arena::ALIGNMENT));
        assert!(cache.map(&keys(1), 5000).is_none());
    }

    #[test]
    fn what_is_not_finished_is_not_there_and_leaves_no_file() {
        let folder = Folder::new("unfinished");
        let cache = folder.open(1 << 20);
        let (memory, unfinished) = cache.make(&record(0), 100).expect("there is room");
        assert!(cache.map(&keys(0), 100).is_none());
        drop((memory, unfinished));
        let left: Vec<_> = fs::read_dir(&cache.dir).expect("readable").collect();
        assert!(
            matches!(&left[..], [Ok(only)] if only.path() == cache.path(record(0).key(), "key")),
            "{left:?}"
        );
    }

    #[test]
    fn entries_of_another_boot_length_or_key_and_cut_ones_are_misses_and_go_away() {
        let folder = Folder::new("stale");
        let cache = folder.open(1 << 20);
        let path = cache.memory_path(record(0).key());
        drop(kept(&cache, 0, &[7; 100]));
        let sound = fs::read(&path).expect("readable");
        let changes = (100..sound.len()).map(|at| {
            let mut changed = sound.clone();
            changed[at] ^= 1;
            changed
        });
        for bytes in changes.chain([sound[..99].to_vec(), Vec::new(), [&sound[..], &[0]].concat()]) {
            fs::write(&path, bytes).expect("writable");
            let found = cache.find(&record(0));
            assert!(matches!(found, Found::Damaged | Found::OtherBoot), "{found:?}");
            assert!(cache.map(&keys(0), 100).is_none());
            assert!(!path.exists());
        }
    }

    #[test]
    fn imported_memory_counts_in_every_boot_and_what_was_made_in_its_own() {
        let folder = Folder::new("imported");
        let cache = folder.open(1 << 20);
        cache.put_memory(&record(100), &[3; 100]).expect("puts");
        assert_eq!(cache.map(&keys(0), 100).expect("it is imported").bytes(), [3; 100]);
        assert!(cache.map(&keys(0), 99).is_none(), "another length");
        cache.put_memory(&record(100), &[3; 100]).expect("puts");
        drop(kept(&cache, 0, &[7; 100]));
        assert_eq!(cache.map(&keys(0), 100).expect("it is kept").bytes(), [7; 100]);
        let path = cache.memory_path(record(0).key());
        let mut bytes = fs::read(&path).expect("readable");
        let boot = bytes.len() - BOOT_LEN;
        bytes[boot..].copy_from_slice(b"00000000-0000-0000-0000-000000000000");
        fs::write(&path, &bytes).expect("writable");
        assert!(matches!(cache.find(&record(0)), Found::OtherBoot));
        assert_eq!(cache.map(&keys(0), 100).expect("it is imported").bytes(), [3; 100]);
        assert!(matches!(cache.find(&record(0)), Found::Nothing), "it went away");
    }

    #[test]
    fn the_limit_holds_for_memory_too() {
        let folder = Folder::new("room");
        let cache = folder.open(10_000);
        assert!(cache.make(&record(0), 20_000).is_none());
        drop(kept(&cache, 0, &[1; 6000]));
        let path = cache.memory_path(record(0).key());
        let file = File::open(&path).expect("there");
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(10)).expect("settable");
        drop(kept(&cache, 1, &[2; 6000]));
        assert!(cache.map(&keys(0), 6000).is_none());
        assert_eq!(cache.map(&keys(1), 6000).expect("it is kept").bytes(), [2; 6000]);
        cache.put(&key(2), &[3; 9000]).expect("puts");
        assert!(cache.map(&keys(1), 6000).is_none());
    }
}
