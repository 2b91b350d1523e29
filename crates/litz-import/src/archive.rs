//! Finds the entries of a `.pt2` file in memory: their names without the root folder, and the byte range of each.
//!
//! The container is what PyTorch writes: a zip whose entries are all stored, sizes in the central directory, zip64
//! records always present. Entries are ranges into the caller's bytes (usually a memory map), so opening an archive
//! costs one pass over the directory and the headers of entries, and allocates little more than the names.

use crate::error::ImportError;
use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::ops::Range;
use std::sync::Arc;
use zip::read::{ArchiveOffset, Config, ZipFile};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

/// The bytes of a file, shared with whoever reads weights from it. A memory map is one such type.
pub type Bytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An opened archive, its format checked.
#[derive(Clone)]
pub struct Archive {
    bytes: Bytes,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone)]
struct Entry {
    range: Range<usize>,
    crc: u32,
}

impl Archive {
    /// Reads the directory and checks that this is a pt2 archive with raw weights of this machine's byte order.
    ///
    /// # Errors
    /// When the zip is damaged, compressed, of another kind, or of a version that cannot be read.
    pub fn open(bytes: Bytes) -> Result<Archive, ImportError> {
        let found = read_directory((*bytes).as_ref())?;
        reject_old_formats(&found)?;
        let archive = Archive { bytes, entries: strip_root(found)? };
        archive.expect_text("archive_format", "pt2")?;
        archive.expect_text("archive_version", "0")?;
        let native = if cfg!(target_endian = "little") { "little" } else { "big" };
        archive.expect_text("byteorder", native)?;
        if archive.range("data/weights/model.pt").is_some() {
            return Err(ImportError::OldFormat { found: "pickled weights of torch 2.8" });
        }
        Ok(archive)
    }

    /// Names of the models inside, in alphabetical order. `torch.export.save` writes one, called `model`.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().filter_map(|path| path.strip_prefix("models/")?.strip_suffix(".json"))
    }

    /// The model that is called `wanted`; where nothing is wanted, the only one.
    ///
    /// # Errors
    /// When there is none of that name; when there is none or more than one and nothing is wanted.
    pub fn model(&self, wanted: Option<&str>) -> Result<&str, ImportError> {
        let Some(wanted) = wanted else { return self.only_model() };
        self.models().find(|name| *name == wanted).ok_or_else(|| ImportError::UnknownModel {
            name: wanted.to_owned(),
            names: self.models().map(str::to_owned).collect(),
        })
    }

    /// The name of the only model.
    ///
    /// # Errors
    /// When there is none or more than one.
    pub fn only_model(&self) -> Result<&str, ImportError> {
        let mut models = self.models();
        let first = models.next().ok_or(ImportError::NoModel)?;
        if models.next().is_some() {
            return Err(ImportError::SeveralModels { names: self.models().map(str::to_owned).collect() });
        }
        Ok(first)
    }

    /// Paths of all entries, without the root folder, in alphabetical order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Where the bytes of an entry lie in the file.
    pub fn range(&self, path: &str) -> Option<Range<usize>> {
        self.entries.get(path).map(|entry| entry.range.clone())
    }

    /// The checksum that the directory gives for the bytes of an entry, which are not looked at.
    pub fn checksum(&self, path: &str) -> Option<u32> {
        self.entries.get(path).map(|entry| entry.crc)
    }

    /// The whole file.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The contents of a text entry, checked against its checksum.
    ///
    /// # Errors
    /// When the entry is missing, damaged, or not UTF-8.
    pub fn text(&self, path: &str) -> Result<&str, ImportError> {
        let entry = self.entries.get(path).ok_or_else(|| ImportError::MissingEntry {
            path: path.to_owned(),
            wanted_by: "the archive".to_owned(),
        })?;
        let bytes = &(*self.bytes).as_ref()[entry.range.clone()];
        if crc32fast::hash(bytes) != entry.crc {
            return Err(ImportError::Checksum { path: path.to_owned() });
        }
        std::str::from_utf8(bytes).map_err(|_| ImportError::NotUtf8 { path: path.to_owned() })
    }

    /// Compares the bytes of an entry with its checksum; reads all of them.
    ///
    /// # Errors
    /// When they differ, or there is no such entry.
    pub fn check(&self, path: &str) -> Result<(), ImportError> {
        match self.entries.get(path) {
            Some(entry) if crc32fast::hash(&(*self.bytes).as_ref()[entry.range.clone()]) == entry.crc => {
                Ok(())
            }
            Some(_) => Err(ImportError::Checksum { path: path.to_owned() }),
            None => {
                Err(ImportError::MissingEntry { path: path.to_owned(), wanted_by: "the archive".to_owned() })
            }
        }
    }

    fn expect_text(&self, path: &'static str, expected: &'static str) -> Result<(), ImportError> {
        let found = self.text(path)?.trim_end();
        if found == expected {
            return Ok(());
        }
        let found = found.chars().take(40).collect();
        Err(ImportError::Format { path, expected, found })
    }
}

/// Names archives of earlier torch versions by the entries that only they have.
fn reject_old_formats(entries: &BTreeMap<String, Entry>) -> Result<(), ImportError> {
    let has = |name: &str| entries.keys().any(|path| path == name || path.ends_with(&format!("/{name}")));
    if has("serialized_exported_program.json") {
        return Err(ImportError::OldFormat { found: "the layout of torch 2.7 and before" });
    }
    if has("data.pkl") && !has("archive_format") {
        return Err(ImportError::OldFormat { found: "a pickle written by torch.save" });
    }
    Ok(())
}

/// Removes the first path component, which all entries share.
fn strip_root(entries: BTreeMap<String, Entry>) -> Result<BTreeMap<String, Entry>, ImportError> {
    let root = entries.keys().next().and_then(|path| path.split_once('/')).map(|(root, _)| root.to_owned());
    let root =
        root.ok_or_else(|| ImportError::Zip { why: "expected one root folder, found none".to_owned() })?;
    let strip = |(path, entry): (String, Entry)| match path
        .strip_prefix(&root)
        .and_then(|p| p.strip_prefix('/'))
    {
        Some(inner) => Ok((inner.to_owned(), entry)),
        None => Err(ImportError::Zip { why: format!("expected entries in folder `{root}`, found `{path}`") }),
    };
    entries.into_iter().map(strip).collect()
}

/// The entries of a zip. Each is a range of the file that no other entry and no header reaches into; what the central
/// directory says of an entry, its local header says too.
fn read_directory(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, ImportError> {
    let bad =
        |error: ZipError| ImportError::Zip { why: format!("expected a zip as PyTorch writes it: {error}") };
    // The file is the archive: nothing stands before it.
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let mut zip = ZipArchive::with_config(config, Cursor::new(bytes)).map_err(bad)?;
    if zip.has_duplicate_names() {
        return Err(ImportError::DuplicateEntry);
    }
    let mut entries = BTreeMap::new();
    for at in 0..zip.len() {
        let file = zip.by_index_raw(at).map_err(bad)?;
        let path = std::str::from_utf8(file.name_raw())
            .map_err(|_| ImportError::Zip { why: "an entry's name is not utf-8".to_owned() })?;
        let entry = read_entry(bytes, path, &file)?;
        entries.insert(path.to_owned(), entry);
    }
    // Behind what has errors of its own, such as compression.
    zip.validate_header_consistency().map_err(bad)?;
    Ok(entries)
}

fn read_entry<R: Read>(bytes: &[u8], path: &str, file: &ZipFile<'_, R>) -> Result<Entry, ImportError> {
    let fail = |why: &str| ImportError::Zip { why: format!("entry `{path}`: {why}") };
    if file.compression() != CompressionMethod::Stored {
        return Err(ImportError::Compressed {
            path: path.to_owned(),
            method: file.compression().to_string(),
        });
    }
    if file.encrypted() {
        return Err(fail("expected plain bytes, found encryption"));
    }
    if file.size() != file.compressed_size() {
        return Err(fail("stored and packed size differ"));
    }
    let start = file.data_start().and_then(|start| usize::try_from(start).ok());
    let size = usize::try_from(file.size()).ok();
    let range = start.zip(size).and_then(|(start, size)| Some(start..start.checked_add(size)?));
    match range {
        Some(range) if range.end <= bytes.len() => Ok(Entry { range, crc: file.crc32() }),
        Some(_) | None => Err(fail(&format!("its {} bytes reach past the end of the file", file.size()))),
    }
}
