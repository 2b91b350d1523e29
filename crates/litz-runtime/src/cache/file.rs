//! Writes entries of a cache to one file that travels to other machines, and reads it.
//!
//! The file is a [container](crate::container): the compiler that made it, and for each entry its record and its bytes. Every byte of it
//! is checked before an entry is taken. Checksums find damage, not intent: entries are machine code, and a file that others own, or may
//! write to, is refused, as a folder of theirs is. The file can be read by its owner alone: packed weights are the model's.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Exposed, ObjectCache, Payload, Record, user};
use crate::container::{self, ContainerError, Kind, Sections};

/// Its version counts those of entries, too.
const KIND: Kind = Kind { magic: b"\x89litzk\r\n", version: 1 };

const COMPILER: &str = "compiler";

/// A file of entries: what it is made of is checked, what entries hold is not before [`CacheFile::check`].
#[derive(Debug)]
pub struct CacheFile {
    path: PathBuf,
    map: memmap2::Mmap,
    sections: Sections,
    compiler: String,
    entries: Vec<FileEntry>,
}

/// An entry of a file.
#[derive(Debug)]
pub struct FileEntry {
    /// What its key is made of.
    pub record: Record,
    /// Whether it is memory that load steps computed.
    pub is_memory: bool,
    section: String,
    /// Bytes that it holds.
    pub bytes: u64,
}

/// Why a file of entries is not written, or not taken.
#[derive(Debug, thiserror::Error)]
pub enum CacheFileError {
    /// The system's words.
    #[error("{}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else may have put machine code there.
    #[error("{} {exposed}: whoever writes to it decides what runs\n  = help: {help}", .file.display())]
    Exposed {
        /// The file.
        file: PathBuf,
        /// How.
        exposed: Exposed,
        /// What to do.
        help: String,
    },
    /// A file of another kind.
    #[error("{}: expected what `litz cache export` writes, found a file of another kind", .file.display())]
    OtherKind {
        /// The file.
        file: PathBuf,
    },
    /// The layout of the file, or of its entries, is that of another version.
    #[error(
        "{}: expected version {expected} of exported caches, found version {found}\n  = help: export it again with this version of Litz",
        .file.display()
    )]
    Layout {
        /// The file.
        file: PathBuf,
        /// The version that this runtime reads.
        expected: u32,
        /// That of the file.
        found: u32,
    },
    /// Cut off, or changed since it was written.
    #[error("{} is damaged: {what}\n  = help: copy it once more", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// Another compiler made it, which may make other code of the same model.
    #[error("{} is of litz {found}, and this is litz {expected}\n  = help: export it again with this one", .file.display())]
    OtherCompiler {
        /// The file.
        file: PathBuf,
        /// This compiler.
        expected: String,
        /// The one that made it.
        found: String,
    },
    /// The folder may not hold so much.
    #[error("the cache {} has room for {limit} bytes, and there are {bytes}", .folder.display())]
    NoRoom {
        /// The folder.
        folder: PathBuf,
        /// Bytes to keep.
        bytes: u64,
        /// Bytes that it may hold.
        limit: u64,
    },
    /// The folder is read only.
    #[error("the cache {} is read only", .folder.display())]
    ReadOnly {
        /// The folder.
        folder: PathBuf,
    },
}

fn record_section(at: usize) -> String {
    format!("record/{at}")
}

fn object_section(at: usize) -> String {
    format!("object/{at}")
}

fn memory_section(at: usize) -> String {
    format!("memory/{at}")
}

/// Writes entries, each with the record that it is to be found by, to a file of its owner alone. `compiler` tells this one from others.
///
/// # Errors
/// [`CacheFileError::Io`].
pub fn write_file(path: &Path, compiler: &str, entries: &[(Record, Payload)]) -> Result<(), CacheFileError> {
    let texts: Vec<String> = entries.iter().map(|(record, _)| record.to_string()).collect();
    let mut sections = vec![(COMPILER.to_owned(), compiler.as_bytes())];
    for (at, ((_, payload), text)) in entries.iter().zip(&texts).enumerate() {
        let section = match payload {
            Payload::Object(_) => object_section(at),
            Payload::Memory(_) => memory_section(at),
        };
        sections.extend([(record_section(at), text.as_bytes()), (section, payload.bytes())]);
    }
    let written = container::write_file(path, 0o600, |out| container::write(out, &KIND, &sections));
    written.map_err(|source| CacheFileError::Io { file: path.to_owned(), source })
}

impl CacheFile {
    /// Maps a file. Nobody may change it while it is open.
    ///
    /// # Errors
    /// Where it cannot be read, others may have changed it, or it is none that [`write_file`] wrote, is of another layout, or is damaged in
    /// what says where entries are.
    pub fn open(path: &Path) -> Result<CacheFile, CacheFileError> {
        let failed = |source| CacheFileError::Io { file: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if let Some(exposed) = Exposed::find(metadata.uid(), metadata.mode(), user()) {
            return Err(CacheFileError::Exposed {
                file: path.to_owned(),
                exposed,
                help: match exposed {
                    Exposed::Foreign { .. } => {
                        "a copy of it is yours: make one if you trust its owner".to_owned()
                    }
                    Exposed::Writable { .. } => {
                        format!("`chmod go-w {}`, if you trust whoever could write to it", path.display())
                    }
                },
            });
        }
        // SAFETY: the mapping is only read; nobody but its owner may change the file, who is asked not to.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
        let refused = |error| refusal(path, error);
        let sections = Sections::read(&map, &KIND).map_err(refused)?;
        let text = |name: &str| -> Result<String, CacheFileError> {
            let bytes = sections.checked(&map, name).map_err(refused)?;
            let text = std::str::from_utf8(bytes)
                .map_err(|_| damaged(path, &format!("section `{name}` is no text")))?;
            Ok(text.to_owned())
        };
        let compiler = text(COMPILER)?;
        let mut entries = Vec::new();
        for at in 0..sections.count(record_section) {
            let record = Record::of_text(text(&record_section(at))?);
            let is_memory = sections.range(&memory_section(at)).is_some();
            let section = if is_memory { memory_section(at) } else { object_section(at) };
            let range = sections
                .range(&section)
                .ok_or_else(|| damaged(path, &format!("section `{section}` is missing")))?;
            entries.push(FileEntry { record, is_memory, section, bytes: range.len() as u64 });
        }
        Ok(CacheFile { path: path.to_owned(), map, sections, compiler, entries })
    }

    /// # Errors
    /// Where another compiler made the file.
    pub fn check_compiler(&self, compiler: &str) -> Result<(), CacheFileError> {
        if self.compiler == compiler {
            return Ok(());
        }
        let (expected, found) = (compiler.to_owned(), self.compiler.clone());
        Err(CacheFileError::OtherCompiler { file: self.path.clone(), expected, found })
    }

    /// Compares every byte with what was written.
    ///
    /// # Errors
    /// Where one differs.
    pub fn check(&self) -> Result<(), CacheFileError> {
        self.sections.check(&self.map).map_err(|error| refusal(&self.path, error))
    }

    /// The compiler that made it.
    pub fn compiler(&self) -> &str {
        &self.compiler
    }

    /// What it holds.
    pub fn entries(&self) -> &[FileEntry] {
        &self.entries
    }

    /// The bytes of an entry of this file.
    pub fn payload(&self, entry: &FileEntry) -> &[u8] {
        let range = self.sections.range(&entry.section);
        &self.map[range.expect("invariant: the entry is of this file")]
    }
}

impl ObjectCache {
    /// Keeps entries of a file that was checked, each under the key of its record.
    ///
    /// # Errors
    /// Where the folder cannot hold all of them, is read only, or cannot be written to.
    pub fn import(&self, file: &CacheFile, entries: &[&FileEntry]) -> Result<(), CacheFileError> {
        let folder = || self.dir.clone();
        if self.access == super::Access::Read {
            return Err(CacheFileError::ReadOnly { folder: folder() });
        }
        let more = (super::HEADER_LEN + super::memory::TRAILER_LEN) as u64;
        let bytes: u64 = entries.iter().map(|entry| entry.bytes + more).sum();
        if bytes > self.max_bytes {
            return Err(CacheFileError::NoRoom { folder: folder(), bytes, limit: self.max_bytes });
        }
        let put = |entry: &FileEntry| match entry.is_memory {
            true => self.put_memory(&entry.record, file.payload(entry)),
            false => self.put_recorded(&entry.record, file.payload(entry)),
        };
        let put =
            entries.iter().try_for_each(|entry| put(entry)).and_then(|()| File::open(&self.dir)?.sync_all());
        put.map_err(|source| CacheFileError::Io { file: folder(), source })
    }
}

fn refusal(path: &Path, error: ContainerError) -> CacheFileError {
    let file = path.to_owned();
    match error {
        ContainerError::OtherKind => CacheFileError::OtherKind { file },
        ContainerError::Version { found } => CacheFileError::Layout { file, expected: KIND.version, found },
        ContainerError::Damaged { what } => CacheFileError::Damaged { file, what },
    }
}

fn damaged(path: &Path, what: &str) -> CacheFileError {
    CacheFileError::Damaged { file: path.to_owned(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, record};
    use super::super::{Access, Found, MemoryKeys};
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A file with an object and memory, and the cache that they came from.
    fn exported(folder: &Folder) -> (PathBuf, ObjectCache) {
        let cache = folder.open(1 << 20);
        cache.put_recorded(&record(0), b"machine code").expect("puts");
        cache.put_memory(&record(1), &[7; 100]).expect("puts");
        let entry = |record: Record| match cache.find(&record) {
            Found::Whole(payload) => (record, payload),
            other => panic!("{other:?}"),
        };
        let path = folder.path().join("exported");
        write_file(&path, "1.0", &[0, 1].map(|number| entry(record(number)))).expect("writes");
        (path, cache)
    }

    #[test]
    fn what_was_exported_is_found_in_another_folder() {
        let (from, to) = (Folder::new("export"), Folder::new("import"));
        let (path, _) = exported(&from);
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let file = CacheFile::open(&path).expect("it is sound");
        file.check().expect("it is sound");
        file.check_compiler("1.0").expect("it is of this one");
        let cache = to.open(1 << 20);
        cache.import(&file, &file.entries().iter().collect::<Vec<_>>()).expect("imports");
        assert_eq!(cache.get(record(0).key()).as_deref(), Some(&b"machine code"[..]));
        let keys = MemoryKeys { own: None, imported: Some(record(1)) };
        assert!(cache.map(&keys, 100).is_some());
        assert_eq!(cache.records().expect("readable").len(), 2);
        // The folder may be read only then.
        let cache = to.open_for(1 << 20, Access::Read);
        assert!(cache.map(&keys, 100).is_some() && cache.get(record(0).key()).is_some());
        let refused = cache.import(&file, &[]);
        assert!(matches!(refused, Err(CacheFileError::ReadOnly { .. })));
        let refused = to.open(100).import(&file, &file.entries().iter().collect::<Vec<_>>());
        assert!(matches!(refused, Err(CacheFileError::NoRoom { limit: 100, .. })));
    }

    #[test]
    fn any_byte_that_differs_and_any_length_is_refused() {
        let folder = Folder::new("damaged-file");
        let (path, _) = exported(&folder);
        let sound = fs::read(&path).expect("readable");
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("writable");
            CacheFile::open(&path).and_then(|file| file.check()).expect_err("it is damaged").to_string()
        };
        for at in 0..sound.len() {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x10;
            let (said, cut) = (refused(&damaged), refused(&sound[..at]));
            let expected = match at {
                0..8 => "another kind",
                8..12 => "expected version 1",
                _ => "is damaged",
            };
            assert!(said.contains(expected), "byte {at}: {said}");
            assert!(
                at == 0 || cut.contains("is damaged") || at < 8 && cut.contains("another kind"),
                "{at}: {cut}"
            );
        }
        assert!(refused(&[&sound[..], &[0]].concat()).contains("is damaged"));
    }

    #[test]
    fn what_others_may_have_changed_or_another_compiler_made_is_refused() {
        let folder = Folder::new("exposed-file");
        let (path, _) = exported(&folder);
        for mode in [0o620, 0o602, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let refused = CacheFile::open(&path).expect_err("others may write to it").to_string();
            assert!(
                refused.contains("can be written by others") && refused.contains("chmod go-w"),
                "{refused}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let file = CacheFile::open(&path).expect("others may read it");
        let refused = file.check_compiler("2.0").expect_err("it is of another one").to_string();
        assert!(refused.contains("is of litz 1.0, and this is litz 2.0"), "{refused}");
        // The rule about owners is that of folders; where this process may, a file is given away as well.
        if std::os::unix::fs::chown(&path, Some(user() + 1), None).is_ok() {
            let refused = CacheFile::open(&path).expect_err("it is another user's").to_string();
            assert!(
                refused.contains("belongs to user") && refused.contains("a copy of it is yours"),
                "{refused}"
            );
        }
        assert!(
            Exposed::find(user() + 1, 0o600, user()).is_some() && Exposed::find(0, 0o644, user()).is_none()
        );
    }
}
