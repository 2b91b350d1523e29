//! Finds the entries of a `.pt2` file in memory: their names without the root folder, and the byte range of each.
//!
//! The container is what PyTorch writes: a zip whose entries are all stored, sizes in the central directory, zip64
//! records always present. Entries are ranges into the caller's bytes (usually a memory map), so opening an archive
//! costs one pass over the directory and allocates little more than the names.

use crate::error::ImportError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

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

// The zip container. Numbers in parentheses are section numbers of PKWARE's APPNOTE.TXT.

/// End of central directory record (4.3.16): signature, and size without the comment.
const END: (u32, usize) = (0x0605_4b50, 22);
/// Zip64 end of central directory locator (4.3.15), directly before [`END`].
const LOCATOR: (u32, usize) = (0x0706_4b50, 20);
/// Zip64 end of central directory record (4.3.14).
const END64: (u32, usize) = (0x0606_4b50, 56);
/// Central directory header (4.3.12), without name, extra field and comment.
const CENTRAL: (u32, usize) = (0x0201_4b50, 46);
/// Local file header (4.3.7), without name and extra field.
const LOCAL: (u32, usize) = (0x0403_4b50, 30);
/// Longest comment that may follow [`END`].
const MAX_COMMENT: usize = u16::MAX as usize;

/// A record of fixed size inside the file; reads are relative to its start.
struct Record<'a>(&'a [u8]);

impl<'a> Record<'a> {
    fn at(
        bytes: &'a [u8],
        offset: u64,
        (signature, size): (u32, usize),
        what: &str,
    ) -> Result<Self, ImportError> {
        let record = slice(bytes, offset, size as u64).map(Record);
        let record =
            record.ok_or_else(|| ImportError::Zip { why: format!("the {what} lies past the end") })?;
        if record.u32(0) != signature {
            return Err(ImportError::Zip {
                why: format!("expected the {what} at byte {offset}, found other bytes"),
            });
        }
        Ok(record)
    }
    fn array<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.0[offset..offset + N].try_into().expect("invariant: the slice has N bytes")
    }
    fn u16(&self, offset: usize) -> u64 {
        u64::from(u16::from_le_bytes(self.array(offset)))
    }
    fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array(offset))
    }
    fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array(offset))
    }
}

fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = usize::try_from(offset.checked_add(len)?).ok()?;
    bytes.get(start..end)
}

fn read_directory(bytes: &[u8]) -> Result<BTreeMap<String, Entry>, ImportError> {
    let (offset, size, count) = find_directory(bytes)?;
    let directory = slice(bytes, offset, size)
        .ok_or_else(|| ImportError::Zip { why: "the central directory lies past the end".to_owned() })?;
    let mut entries = BTreeMap::new();
    let mut at = 0;
    while at < directory.len() as u64 {
        let header = Record::at(directory, at, CENTRAL, "directory header")?;
        let (name_len, extra_len, comment_len) = (header.u16(28), header.u16(30), header.u16(32));
        let cut = || ImportError::Zip { why: "a directory header is cut off".to_owned() };
        let name = slice(directory, at + CENTRAL.1 as u64, name_len).ok_or_else(cut)?;
        let extra = slice(directory, at + CENTRAL.1 as u64 + name_len, extra_len).ok_or_else(cut)?;
        at += CENTRAL.1 as u64 + name_len + extra_len + comment_len;
        let name = std::str::from_utf8(name)
            .map_err(|_| ImportError::Zip { why: "an entry's name is not utf-8".to_owned() })?
            .to_owned();
        let entry = read_entry(bytes, &header, &name, extra)?;
        if entries.insert(name.clone(), entry).is_some() {
            return Err(ImportError::DuplicateEntry { path: name });
        }
    }
    if entries.len() as u64 != count {
        let why = format!("expected {count} entries, found {}", entries.len());
        return Err(ImportError::Zip { why });
    }
    Ok(entries)
}

/// Offset, size and number of entries of the central directory.
fn find_directory(bytes: &[u8]) -> Result<(u64, u64, u64), ImportError> {
    let not_zip = || ImportError::Zip { why: "expected a zip archive, found no end record".to_owned() };
    let last = bytes.len().checked_sub(END.1).ok_or_else(not_zip)?;
    let first = last.saturating_sub(MAX_COMMENT);
    // The comment may hold the signature, so the record's own comment length has to reach the end of the file.
    let ends_file = |&at: &usize| {
        let record = Record(&bytes[at..]);
        record.u32(0) == END.0 && at as u64 + END.1 as u64 + record.u16(20) == bytes.len() as u64
    };
    let end_at = (first..=last).rev().find(ends_file).ok_or_else(not_zip)?;
    let end = Record(&bytes[end_at..end_at + END.1]);
    let has_locator = end_at.checked_sub(LOCATOR.1).filter(|&at| Record(&bytes[at..]).u32(0) == LOCATOR.0);
    let Some(locator_at) = has_locator else {
        return Ok((u64::from(end.u32(16)), u64::from(end.u32(12)), end.u16(10)));
    };
    let end64_at = Record(&bytes[locator_at..]).u64(8);
    let end64 = Record::at(bytes, end64_at, END64, "zip64 end record")?;
    Ok((end64.u64(48), end64.u64(40), end64.u64(32)))
}

fn read_entry(bytes: &[u8], header: &Record, name: &str, extra: &[u8]) -> Result<Entry, ImportError> {
    let fail = |why: &str| ImportError::Zip { why: format!("entry `{name}`: {why}") };
    if header.u16(10) != 0 {
        return Err(ImportError::Compressed { path: name.to_owned(), method: header.u16(10) });
    }
    if header.u16(8) & 1 != 0 {
        return Err(fail("expected plain bytes, found encryption"));
    }
    // A 32-bit field of all ones says that the value is in the zip64 extra field; those present are in this order.
    let mut wide = zip64_fields(extra);
    let mut field = |offset| match header.u32(offset) {
        u32::MAX => wide.next().ok_or_else(|| fail("expected a zip64 field, found none")),
        value => Ok(u64::from(value)),
    };
    let (size, packed, offset) = (field(24)?, field(20)?, field(42)?);
    if size != packed {
        return Err(fail("stored and packed size differ"));
    }
    let local = Record::at(bytes, offset, LOCAL, "local header").map_err(|_| fail("has no local header"))?;
    let start = offset + LOCAL.1 as u64 + local.u16(26) + local.u16(28);
    if slice(bytes, offset + LOCAL.1 as u64, local.u16(26)) != Some(name.as_bytes()) {
        return Err(fail("its local header names another entry"));
    }
    if slice(bytes, start, size).is_none() {
        return Err(fail(&format!("its {size} bytes reach past the end of the file")));
    }
    Ok(Entry { range: start as usize..(start + size) as usize, crc: header.u32(16) })
}

/// The 64-bit values of the zip64 extra field (4.5.3), none when there is no such field.
fn zip64_fields(mut extra: &[u8]) -> impl Iterator<Item = u64> {
    let mut found: &[u8] = &[];
    while extra.len() >= 4 {
        let (id, len) = (Record(extra).u16(0), Record(extra).u16(2) as usize);
        let Some(body) = extra.get(4..4 + len) else { break };
        if id == 1 {
            found = body;
        }
        extra = &extra[4 + len..];
    }
    found.chunks_exact(8).map(|chunk| Record(chunk).u64(0))
}
