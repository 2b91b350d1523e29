//! Keeps bytes on disk by key: object code that need not be compiled again, and weights that need not be packed again.
//!
//! Each entry is a file named by its key, written beside its place and renamed into it, so that no
//! reader ever sees half of one, whatever is killed and however many processes share the folder. An
//! entry that is damaged all the same is a miss and is removed. When the folder outgrows its limit,
//! the entries used longest ago go first; a process that has one of them mapped keeps it.
//!
//! Entries are machine code: whoever can write to the folder decides what runs. It is made for its owner alone, and one that
//! others own, or may write to, is refused. In a folder that is read only nothing changes: neither entries nor the times of their use.
//! Another folder may stand behind one: what is not in the first is looked for there.

mod file;
mod memory;
mod owner;
mod record;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

pub use file::{CacheFile, CacheFileError, FileEntry, write_file};
pub(crate) use memory::Unfinished;
pub use memory::{FileMemory, MemoryKeys};
pub use owner::Exposed;
use owner::{is_writable, user};
pub use record::Record;

/// A folder of cached objects.
#[derive(Debug)]
pub struct ObjectCache {
    dir: PathBuf,
    access: Access,
    max_bytes: u64,
    /// Bytes in the folder when last counted, and those put since; other processes' are not in it. Counted before the
    /// first is put: who only looks things up need not wait for that.
    used: AtomicU64,
    /// Makes the names of this cache's unfinished files differ.
    unfinished: AtomicU64,
    /// Has what is not here. Nothing is put there.
    behind: Option<Box<ObjectCache>>,
}

/// What may be done with a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Entries are found, kept and removed.
    ReadWrite,
    /// Entries are found.
    Read,
}

/// What a folder has of a record.
#[derive(Debug)]
pub enum Found {
    /// No entry.
    Nothing,
    /// An entry that differs from what was written.
    Damaged,
    /// Memory that was kept in another boot of the system, of which nothing says that all of it is there.
    OtherBoot,
    /// An entry.
    Whole(Payload),
}

/// What an entry holds.
#[derive(Debug)]
pub enum Payload {
    /// Bytes that were put.
    Object(Vec<u8>),
    /// Memory that load steps computed.
    Memory(FileMemory),
}

impl Payload {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Payload::Object(bytes) => bytes,
            Payload::Memory(memory) => memory.bytes(),
        }
    }
}

/// Names an entry by a hash of everything that its content depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; HASH_LEN]);

const HASH_LEN: usize = blake3::OUT_LEN;

/// First bytes of an entry; the digit counts versions of the layout.
const MAGIC: &[u8; 8] = b"litzobj1";

/// An entry is magic, key, hash of the payload, payload.
const HEADER_LEN: usize = MAGIC.len() + 2 * HASH_LEN;

/// Before the folder is first counted.
const NOT_COUNTED: u64 = u64::MAX;

const EXTENSION: &str = "obj";
const MEMORY_EXTENSION: &str = "mem";
const UNFINISHED_EXTENSION: &str = "tmp";

/// An unfinished file this old has lost its writer.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// Why a folder is not used as a cache.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be made or looked at.
    #[error("cannot open the cache {}: {source}", .folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else may have put machine code there.
    #[error(
        "the cache {} {exposed}: whoever writes there decides what runs\n  = help: {help}, or name another folder with \
         LITZ_CACHE_DIR (empty: none)", .folder.display()
    )]
    Exposed {
        /// The folder.
        folder: PathBuf,
        /// How.
        exposed: Exposed,
        /// What to do.
        help: String,
    },
}

/// What a cache holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CacheInfo {
    /// Compilations, and memory that load steps computed.
    pub entries: usize,
    /// Bytes of their files.
    pub bytes: u64,
}

impl CacheKey {
    /// Hashes the parts, such as text, target features and compiler version, and where they end.
    pub fn new(parts: &[&[u8]]) -> CacheKey {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        CacheKey(*hasher.finalize().as_bytes())
    }
}

impl fmt::Display for CacheKey {
    /// In hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&blake3::Hash::from(self.0).to_hex())
    }
}

impl ObjectCache {
    /// Opens the cache in `dir`, which is created for this user alone if missing and to be written. Its entries, headers included, are
    /// kept below about `max_bytes`. It is read only as well where the folder's mode, or the system, does not let this user write there.
    ///
    /// # Errors
    /// Where the folder cannot be made, and where others own it or may write to it.
    pub fn open(dir: PathBuf, max_bytes: u64, access: Access) -> Result<ObjectCache, OpenError> {
        let made = match access {
            Access::ReadWrite => fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir),
            Access::Read => Ok(()),
        };
        let metadata = made.and_then(|()| fs::metadata(&dir));
        let metadata = metadata.map_err(|source| OpenError::Io { folder: dir.clone(), source })?;
        if let Some(exposed) = Exposed::find(metadata.uid(), metadata.mode(), user()) {
            let help = match exposed {
                Exposed::Foreign { .. } => "remove it".to_owned(),
                Exposed::Writable { .. } => format!("empty it and `chmod 700 {}`", dir.display()),
            };
            return Err(OpenError::Exposed { folder: dir, exposed, help });
        }
        let may_write = metadata.mode() & 0o200 != 0 && is_writable(&dir);
        let access = if may_write { access } else { Access::Read };
        let (used, unfinished) = (AtomicU64::new(NOT_COUNTED), AtomicU64::new(0));
        Ok(ObjectCache { dir, access, max_bytes, used, unfinished, behind: None })
    }

    /// This cache, with another one behind it: entries and records that are not here are those that are there. What is put goes here.
    #[must_use]
    pub fn in_front_of(self, behind: ObjectCache) -> ObjectCache {
        ObjectCache { behind: Some(Box::new(behind)), ..self }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Bytes that entries may take.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// What is in the folder itself.
    ///
    /// # Errors
    /// Where the folder cannot be read.
    pub fn info(&self) -> io::Result<CacheInfo> {
        let entries = self.entries()?.into_iter().filter(|(.., is_entry)| *is_entry);
        let count = |info: CacheInfo, (_, _, len, _)| CacheInfo {
            entries: info.entries + 1,
            bytes: info.bytes + len,
        };
        Ok(entries.fold(CacheInfo::default(), count))
    }

    /// The payload put under `key`, or `None`: not there, damaged, or not readable.
    pub fn get(&self, key: &CacheKey) -> Option<Vec<u8>> {
        self.get_here(key).or_else(|| self.behind.as_ref()?.get(key))
    }

    fn get_here(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let path = self.path_of(key);
        let mut file = File::open(&path).ok()?;
        let Some(payload) = read_entry(&mut file, key) else {
            self.remove_damaged(&path);
            return None;
        };
        self.touch(&file);
        Some(payload)
    }

    /// What is there of a record, which stays as it is.
    pub fn find(&self, record: &Record) -> Found {
        match (self.find_here(record), self.behind.as_ref().map(|behind| behind.find(record))) {
            (Found::Nothing, Some(found)) => found,
            (Found::Damaged | Found::OtherBoot, Some(whole @ Found::Whole(_))) => whole,
            (found, _) => found,
        }
    }

    fn find_here(&self, record: &Record) -> Found {
        match File::open(self.path_of(record.key())) {
            Ok(mut file) => match read_entry(&mut file, record.key()) {
                Some(payload) => Found::Whole(Payload::Object(payload)),
                None => Found::Damaged,
            },
            Err(_) => self.find_memory(record.key()),
        }
    }

    /// Bytes of the file that is there of a record, whole or not.
    pub fn entry_bytes(&self, record: &Record) -> Option<u64> {
        let bytes = |extension| fs::metadata(self.path(record.key(), extension)).ok().map(|it| it.len());
        let here = bytes(EXTENSION).or_else(|| bytes(MEMORY_EXTENSION));
        here.or_else(|| self.behind.as_ref()?.entry_bytes(record))
    }

    /// Puts a payload under `key`, in place of any there. A payload beyond the whole limit is not kept, nor is any in a folder that is read
    /// only.
    pub fn put(&self, key: &CacheKey, payload: &[u8]) -> io::Result<()> {
        if !self.make_room((HEADER_LEN + payload.len()) as u64)? {
            return Ok(());
        }
        self.write(key, &self.path_of(key), |file| write_entry(file, key, payload))
    }

    /// As [`ObjectCache::put`], under the key of a record, which is kept beside it.
    pub fn put_recorded(&self, record: &Record, payload: &[u8]) -> io::Result<()> {
        self.keep_record(record)?;
        self.put(record.key(), payload)
    }

    /// Writes a file beside its place and renames it into it.
    fn write(
        &self,
        key: &CacheKey,
        path: &Path,
        write: impl FnOnce(File) -> io::Result<()>,
    ) -> io::Result<()> {
        let (file, unfinished) = self.create_unfinished(key)?;
        let written = write(file).and_then(|()| fs::rename(&unfinished, path));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Notes that an entry is used at this moment.
    fn touch(&self, file: &File) {
        if self.access == Access::ReadWrite {
            // Where the time cannot be set the entry just looks older than it is.
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Another process may remove it, too, or put it anew in between; then it is a miss once more.
    fn remove_damaged(&self, path: &Path) {
        if self.access == Access::ReadWrite {
            let _ = fs::remove_file(path);
        }
    }

    /// Counts `len` bytes more, removing others where the limit asks for it; false: it has no room for so many, or is read only.
    fn make_room(&self, len: u64) -> io::Result<bool> {
        if len > self.max_bytes || self.access == Access::Read {
            return Ok(false);
        }
        let count = |used: u64| if used == NOT_COUNTED { None } else { used.checked_add(len) };
        let used = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        if used.is_err() || used.is_ok_and(|used| used + len > self.max_bytes) {
            self.evict(len)?;
        }
        Ok(true)
    }

    /// A file that nobody else writes. Its name may be taken by another cache of this process, or of a
    /// process with this number in another container, so names are tried until one is free.
    fn create_unfinished(&self, key: &CacheKey) -> io::Result<(File, PathBuf)> {
        let process = std::process::id();
        loop {
            let number = self.unfinished.fetch_add(1, Ordering::Relaxed);
            let path = self.dir.join(format!("{key}-{process}-{number}.{UNFINISHED_EXTENSION}"));
            match File::create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => return Ok((result?, path)),
            }
        }
    }

    fn path_of(&self, key: &CacheKey) -> PathBuf {
        self.path(key, EXTENSION)
    }

    fn path(&self, key: &CacheKey, extension: &str) -> PathBuf {
        self.dir.join(format!("{key}.{extension}"))
    }

    /// When each file of the cache was used last, its path, its length, and whether it is an entry, not unfinished.
    fn entries(&self) -> io::Result<Vec<(SystemTime, PathBuf, u64, bool)>> {
        let mut entries = Vec::new();
        for found in fs::read_dir(&self.dir)? {
            let found = found?;
            let path = found.path();
            // A file that another process removes meanwhile is no longer ours to count.
            let Ok(metadata) = found.metadata() else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let is_entry = has_extension(&path, EXTENSION) || has_extension(&path, MEMORY_EXTENSION);
            if is_entry || has_extension(&path, UNFINISHED_EXTENSION) {
                entries.push((modified, path, metadata.len(), is_entry));
            }
        }
        Ok(entries)
    }

    /// Counts the folder and `len` bytes to come. When that is over the limit, removes the entries used longest ago
    /// until a tenth of the limit is free, so that not every put has to look at the folder.
    fn evict(&self, len: u64) -> io::Result<()> {
        let (mut entries, unfinished): (Vec<_>, Vec<_>) =
            self.entries()?.into_iter().partition(|(.., is_entry)| *is_entry);
        for (modified, path, ..) in unfinished {
            if modified.elapsed().is_ok_and(|age| age > ABANDONED_AFTER) {
                let _ = fs::remove_file(&path);
            }
        }
        let mut used = len + entries.iter().map(|(_, _, len, _)| len).sum::<u64>();
        if used > self.max_bytes {
            entries.sort();
            for (_, path, len, _) in entries {
                if used <= self.max_bytes - self.max_bytes / 10 {
                    break;
                }
                let _ = fs::remove_file(&path);
                used -= len;
            }
        }
        self.used.store(used, Ordering::Relaxed);
        self.forget_records()
    }
}

fn write_entry(mut file: File, key: &CacheKey, payload: &[u8]) -> io::Result<()> {
    file.write_all(MAGIC)?;
    file.write_all(&key.0)?;
    file.write_all(blake3::hash(payload).as_bytes())?;
    file.write_all(payload)
}

/// The payload of a file that holds what was put under `key`.
fn read_entry(file: &mut File, key: &CacheKey) -> Option<Vec<u8>> {
    let mut entry = Vec::new();
    file.read_to_end(&mut entry).ok()?;
    let (header, payload) = entry.split_at_checked(HEADER_LEN)?;
    let (magic, hashes) = header.split_at(MAGIC.len());
    let (name, hash) = hashes.split_at(HASH_LEN);
    if magic != MAGIC || name != key.0 || hash != blake3::hash(payload).as_bytes() {
        return None;
    }
    entry.drain(..HEADER_LEN);
    Some(entry)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|it| it == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own for each test, removed at the end.
    pub(super) struct Folder(PathBuf);

    impl Folder {
        pub(super) fn new(test: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("litz-cache-{test}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Folder(path)
        }

        pub(super) fn open(&self, max_bytes: u64) -> ObjectCache {
            self.open_for(max_bytes, Access::ReadWrite)
        }

        pub(super) fn open_for(&self, max_bytes: u64, access: Access) -> ObjectCache {
            ObjectCache::open(self.0.join("nested"), max_bytes, access).expect("opens")
        }

        pub(super) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    pub(super) fn key(number: usize) -> CacheKey {
        CacheKey::new(&[b"test", &number.to_le_bytes()])
    }

    pub(super) fn record(number: usize) -> Record {
        Record::new([("kind", "test"), ("number", &*number.to_string())])
    }

    fn file_count(cache: &ObjectCache) -> usize {
        fs::read_dir(&cache.dir).expect("readable").count()
    }

    #[test]
    fn keys_tell_parts_apart() {
        assert_ne!(CacheKey::new(&[b"ab", b"c"]), CacheKey::new(&[b"a", b"bc"]));
        assert_ne!(CacheKey::new(&[b"a"]), CacheKey::new(&[b"a", b""]));
        assert_eq!(CacheKey::new(&[b"a", b"b"]), CacheKey::new(&[b"a", b"b"]));
    }

    #[test]
    fn what_was_put_is_got_even_after_reopening() {
        let folder = Folder::new("reopen");
        let cache = folder.open(1 << 20);
        assert_eq!(cache.get(&key(0)), None);
        for payload in [&b"first"[..], b"second, longer", b""] {
            cache.put(&key(0), payload).expect("puts");
            assert_eq!(cache.get(&key(0)).as_deref(), Some(payload));
            assert_eq!(folder.open(1 << 20).get(&key(0)).as_deref(), Some(payload));
        }
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(file_count(&cache), 1);
    }

    #[test]
    fn what_is_not_in_a_folder_is_found_in_the_one_behind() {
        let (own, shared) = (Folder::new("in-front"), Folder::new("behind"));
        let behind = shared.open(1 << 20);
        behind.put_recorded(&record(0), b"theirs").expect("puts");
        behind.put_recorded(&record(1), b"theirs").expect("puts");
        let kept = file_count(&behind);
        let front = || own.open(1 << 20).in_front_of(shared.open_for(1 << 20, Access::Read));
        let cache = front();
        let got = |number| cache.get(record(number).key());
        assert_eq!([0, 1, 2].map(got), [Some(b"theirs".to_vec()), Some(b"theirs".to_vec()), None]);
        cache.put_recorded(&record(0), b"ours").expect("puts");
        cache.put_recorded(&record(2), b"ours").expect("puts");
        assert_eq!([0, 1, 2].map(got), ["ours", "theirs", "ours"].map(|text| Some(text.into())));
        assert_eq!((file_count(&behind), cache.info().expect("readable").entries), (kept, 2));
        assert_eq!(cache.records().expect("readable").len(), 3);
        assert!((0..3).all(|number| cache.entry_bytes(&record(number)).is_some()));
        // A damaged entry goes where it may, and is found behind; there it stays.
        for (cache, number) in [(&cache, 0), (&behind, 1)] {
            fs::write(cache.path_of(record(number).key()), b"damaged").expect("writable");
        }
        let found = |number| front().find(&record(number));
        assert!(matches!(found(0), Found::Whole(payload) if payload.bytes() == b"theirs"));
        assert!(matches!(found(1), Found::Damaged) && matches!(found(3), Found::Nothing));
        assert_eq!([0, 1].map(got), [Some(b"theirs".to_vec()), None]);
        assert!(!cache.path_of(record(0).key()).exists() && behind.path_of(record(1).key()).exists());
    }

    #[test]
    fn a_folder_is_made_for_its_owner_alone_and_no_other_is_taken() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("exposed");
        let cache = folder.open(1 << 20);
        let mode = || fs::metadata(&cache.dir).expect("there").mode() & 0o777;
        assert_eq!(mode(), 0o700);
        for (wanted, is_taken) in
            [(0o755, true), (0o770, false), (0o702, false), (0o1777, false), (0o500, true)]
        {
            fs::set_permissions(&cache.dir, fs::Permissions::from_mode(wanted)).expect("it is ours");
            let opened = ObjectCache::open(cache.dir.clone(), 1 << 20, Access::ReadWrite);
            assert_eq!(opened.is_ok(), is_taken, "{wanted:o}");
            if let Err(error) = opened {
                let message = error.to_string();
                assert!(message.contains("chmod 700") && message.contains("LITZ_CACHE_DIR"), "{message}");
            }
        }
        fs::set_permissions(&cache.dir, fs::Permissions::from_mode(0o700)).expect("it is ours");
    }

    /// A folder's entries by name, with their contents and times.
    fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
        let read = |found: io::Result<fs::DirEntry>| {
            let path = found.expect("readable").path();
            let modified = fs::metadata(&path).and_then(|it| it.modified()).expect("it has one");
            (path.clone(), fs::read(path).expect("readable"), modified)
        };
        let mut all: Vec<_> = fs::read_dir(dir).expect("readable").map(read).collect();
        all.sort();
        all
    }

    #[test]
    fn nothing_changes_in_a_folder_that_is_read_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new("read-only");
        let missing = ObjectCache::open(folder.0.join("nested"), 1 << 20, Access::Read);
        assert!(matches!(missing, Err(OpenError::Io { .. })) && !folder.0.exists());
        let cache = folder.open(1 << 20);
        cache.put_recorded(&record(0), b"payload").expect("puts");
        cache.put(&key(1), b"damaged").expect("puts");
        fs::write(cache.path_of(&key(1)), b"litz").expect("writable");
        fs::write(cache.dir.join("old.tmp"), b"half of").expect("writable");
        let before = contents(&cache.dir);
        // The limit is less than what is there.
        let by_option = || folder.open_for(1, Access::Read);
        let by_mode = || {
            fs::set_permissions(&cache.dir, fs::Permissions::from_mode(0o555)).expect("it is ours");
            folder.open(1 << 20)
        };
        for open in [&by_option as &dyn Fn() -> ObjectCache, &by_mode] {
            let opened = open();
            assert_eq!(opened.access(), Access::Read);
            assert_eq!(opened.get(record(0).key()).as_deref(), Some(&b"payload"[..]));
            assert_eq!(opened.get(&key(1)), None);
            opened.put_recorded(&record(2), b"not kept").expect("that is no error");
            assert!(opened.make(&record(3), 100).is_none());
            assert_eq!(contents(&opened.dir), before);
        }
        fs::set_permissions(&cache.dir, fs::Permissions::from_mode(0o700)).expect("it is ours");
    }

    #[test]
    fn what_is_there_is_counted() {
        let folder = Folder::new("info");
        let cache = folder.open(1 << 20);
        assert_eq!(cache.info().expect("readable"), CacheInfo::default());
        cache.put(&key(0), b"payload").expect("puts");
        cache.put(&key(1), b"").expect("puts");
        fs::write(cache.dir.join("half.tmp"), b"half of").expect("writable");
        let bytes = (2 * HEADER_LEN + 7) as u64;
        assert_eq!(cache.info().expect("readable"), CacheInfo { entries: 2, bytes });
    }

    #[test]
    fn any_damage_is_a_miss_and_goes_away() {
        let folder = Folder::new("damage");
        let cache = folder.open(1 << 20);
        cache.put(&key(0), b"payload").expect("puts");
        let path = cache.path_of(&key(0));
        let sound = fs::read(&path).expect("readable");
        for at in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x10;
            for bytes in [&damaged[..], &sound[..at]] {
                fs::write(&path, bytes).expect("writable");
                assert_eq!(cache.get(&key(0)), None, "byte {at}");
                assert!(!path.exists(), "byte {at}");
            }
        }
        // A sound entry under another entry's name.
        fs::write(cache.path_of(&key(1)), &sound).expect("writable");
        assert_eq!(cache.get(&key(1)), None);
    }

    #[test]
    fn entries_used_longest_ago_are_evicted() {
        let folder = Folder::new("evict");
        let payload = vec![7; 1000];
        let entry_len = (HEADER_LEN + payload.len()) as u64;
        let cache = folder.open(4 * entry_len);
        for number in 0..4 {
            cache.put(&key(number), &payload).expect("puts");
            let age = Duration::from_secs(100 - number as u64);
            let file = File::open(cache.path_of(&key(number))).expect("there");
            file.set_modified(SystemTime::now() - age).expect("settable");
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(&key(4), &payload).expect("puts");
        let left: Vec<_> = (0..5).filter(|&number| cache.get(&key(number)).is_some()).collect();
        assert_eq!(left, [0, 3, 4]);
        cache.put(&key(9), &vec![0; 5000]).expect("a payload beyond the limit is no error");
        assert_eq!(cache.get(&key(9)), None);
        let smaller = folder.open(2 * entry_len);
        smaller.put(&key(5), &payload).expect("puts");
        assert_eq!(file_count(&smaller), 1);
    }

    #[test]
    fn abandoned_files_are_removed_and_fresh_ones_kept() {
        let folder = Folder::new("abandoned");
        let cache = folder.open(1 << 20);
        let (old, fresh) = (cache.dir.join("old.tmp"), cache.dir.join("fresh.tmp"));
        let foreign = cache.dir.join("README");
        for path in [&old, &fresh, &foreign] {
            fs::write(path, b"half of").expect("writable");
        }
        let file = File::open(&old).expect("there");
        file.set_modified(SystemTime::now() - 2 * ABANDONED_AFTER).expect("settable");
        folder.open(1 << 20).put(&key(0), b"counts the folder first").expect("puts");
        assert_eq!([&old, &fresh, &foreign].map(|path| path.exists()), [false, true, true]);
    }

    #[test]
    fn writers_at_once_leave_whole_entries() {
        let folder = Folder::new("writers");
        let caches = [folder.open(300_000), folder.open(300_000)];
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let cache = &caches[usize::from(writer % 2)];
                scope.spawn(move || {
                    for round in 0..200 {
                        let payload = vec![writer; 1000 + 7 * round];
                        cache.put(&key(round % 5), &payload).expect("puts");
                        if let Some(got) = cache.get(&key((round + 1) % 5)) {
                            assert!(got.len() >= 1000 && got.iter().all(|&byte| byte == got[0]));
                        }
                    }
                });
            }
        });
        assert_eq!(file_count(&caches[0]), 5);
    }
}
