//! Packs named sections into one file and finds them in its bytes.
//!
//! ```text
//! magic (8 bytes), version (u32), 0 (u32), length of the table (u64), length of the file (u64), hash of the table
//! table: for each section: name, offset in the file (u64), length (u64), hash
//! the sections, each at a multiple of 64 bytes
//! ```
//!
//! Numbers are little-endian, a name is its length (u32) and UTF-8 bytes, hashes are BLAKE3. Sections begin at
//! multiples of 64 bytes, so that weights are used where the file is mapped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::arena::ALIGNMENT;

/// What a file is, by its first bytes.
pub struct Kind {
    /// Like PNG's, they show when a transfer took the file for text.
    pub magic: &'static [u8; 8],
    /// Counts versions of the container and of what its sections say.
    pub version: u32,
}

/// Why the sections of a file cannot be read.
#[derive(Debug)]
pub enum ContainerError {
    /// It begins with other bytes.
    OtherKind,
    /// It is of another version than [`Kind::version`].
    Version {
        /// That of the file.
        found: u32,
    },
    /// It is cut off, or was changed since it was written.
    Damaged {
        /// What does not fit.
        what: String,
    },
}

const HASH_LEN: usize = blake3::OUT_LEN;
const HEADER_LEN: usize = 8 + 4 + 4 + 8 + 8 + HASH_LEN;

/// The sections of a file, by name.
#[derive(Debug)]
pub struct Sections {
    by_name: BTreeMap<String, Section>,
    /// Bytes before the first section, but for those that keep it aligned.
    front: usize,
}

#[derive(Debug)]
struct Section {
    range: Range<usize>,
    hash: [u8; HASH_LEN],
}

/// Writes a file of this mode beside its place and renames it into it, when all of it is on disk. `write` gives its bytes.
pub fn write_file(
    path: &Path,
    mode: u32,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let unfinished = path.with_file_name(name);
    let write = || {
        let options = File::options().write(true).create(true).truncate(true).mode(mode).open(&unfinished);
        let mut out = BufWriter::new(options?);
        write(&mut out)?;
        out.into_inner()?.sync_all()
    };
    let written = write().and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // It may not even have been created.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// Writes sections, whose names differ.
pub fn write(out: &mut dyn Write, kind: &Kind, sections: &[(String, &[u8])]) -> io::Result<()> {
    let rows = sections.iter().map(|(name, _)| 4 + name.len() + 8 + 8 + HASH_LEN);
    let front = HEADER_LEN + rows.sum::<usize>();
    let (table, end) = table(sections, front);
    out.write_all(kind.magic)?;
    out.write_all(&kind.version.to_le_bytes())?;
    out.write_all(&[0; 4])?;
    out.write_all(&(table.len() as u64).to_le_bytes())?;
    out.write_all(&(end as u64).to_le_bytes())?;
    out.write_all(blake3::hash(&table).as_bytes())?;
    out.write_all(&table)?;
    let mut at = front;
    for (_, bytes) in sections {
        let start = at.next_multiple_of(ALIGNMENT);
        out.write_all(&[0; ALIGNMENT][..start - at])?;
        out.write_all(bytes)?;
        at = start + bytes.len();
    }
    Ok(())
}

/// The table of sections that follow `front` bytes, and where the last one ends.
fn table(sections: &[(String, &[u8])], front: usize) -> (Vec<u8>, usize) {
    let (mut table, mut at) = (Vec::new(), front);
    for (name, bytes) in sections {
        let start = at.next_multiple_of(ALIGNMENT);
        put_string(&mut table, name);
        table.extend((start as u64).to_le_bytes());
        table.extend((bytes.len() as u64).to_le_bytes());
        table.extend(blake3::hash(bytes).as_bytes());
        at = start + bytes.len();
    }
    (table, at)
}

impl Sections {
    /// Reads the table and checks that every section is inside of `file`.
    pub fn read(file: &[u8], kind: &Kind) -> Result<Sections, ContainerError> {
        let mut header = Reader(file);
        if header.take(kind.magic.len()) != Some(kind.magic) {
            return Err(ContainerError::OtherKind);
        }
        let cut = || damaged(format!("expected a header of {HEADER_LEN} bytes, found {}", file.len()));
        let version = header.u32().ok_or_else(cut)?;
        if version != kind.version {
            return Err(ContainerError::Version { found: version });
        }
        let reserved = header.u32().ok_or_else(cut)?;
        let (table_len, file_len) = (header.u64().ok_or_else(cut)?, header.u64().ok_or_else(cut)?);
        let hash = header.take(HASH_LEN).ok_or_else(cut)?;
        if file_len != file.len() as u64 {
            return Err(damaged(format!("expected {file_len} bytes, found {}", file.len())));
        }
        let table = usize::try_from(table_len).ok().and_then(|len| header.take(len));
        let table = table.filter(|table| reserved == 0 && blake3::hash(table).as_bytes() == hash);
        let wrong = || damaged("the table of sections differs from its checksum");
        let front = file.len() - header.0.len();
        let mut table = Reader(table.ok_or_else(wrong)?);
        let mut by_name = BTreeMap::new();
        while !table.0.is_empty() {
            let (name, section) = table.section().ok_or_else(wrong)?;
            if file.get(section.range.clone()).is_none() {
                return Err(damaged(format!("section `{name}` reaches past the end of the file")));
            }
            by_name.insert(name, section);
        }
        Ok(Sections { by_name, front })
    }

    /// Compares all bytes with what was written: those of sections with their hashes, and those between them with zeros.
    pub fn check(&self, file: &[u8]) -> Result<(), ContainerError> {
        self.names().try_for_each(|name| self.checked(file, name).map(drop))?;
        let mut ranges: Vec<&Range<usize>> = self.by_name.values().map(|section| &section.range).collect();
        ranges.sort_by_key(|range| range.start);
        let between = ranges.windows(2).map(|pair| pair[0].end..pair[1].start);
        let before = ranges.first().map(|first| self.front..first.start);
        let is_zero = |gap: Range<usize>| file.get(gap).is_some_and(|gap| gap.iter().all(|&byte| byte == 0));
        let last = ranges.last().map_or(self.front, |last| last.end);
        match before.into_iter().chain(between).all(is_zero) && last == file.len() {
            true => Ok(()),
            false => Err(damaged("there are bytes between its sections".to_owned())),
        }
    }

    /// Names of all sections, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// How many there are of those that are named by their number.
    pub fn count(&self, name: fn(usize) -> String) -> usize {
        (0..).take_while(|&at| self.by_name.contains_key(&name(at))).count()
    }

    /// Where a section lies in the file.
    pub fn range(&self, name: &str) -> Option<Range<usize>> {
        self.by_name.get(name).map(|section| section.range.clone())
    }

    /// The bytes of a section, checked against their hash.
    pub fn checked<'a>(&self, file: &'a [u8], name: &str) -> Result<&'a [u8], ContainerError> {
        let missing = || damaged(format!("section `{name}` is missing"));
        let section = self.by_name.get(name).ok_or_else(missing)?;
        let bytes = file.get(section.range.clone()).ok_or_else(missing)?;
        if blake3::hash(bytes).as_bytes() != &section.hash {
            return Err(damaged(format!("section `{name}` differs from its checksum")));
        }
        Ok(bytes)
    }
}

fn damaged(what: impl Into<String>) -> ContainerError {
    ContainerError::Damaged { what: what.into() }
}

/// Appends a string's length and bytes.
pub fn put_string(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u32).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// Takes numbers and strings from the front of bytes; `None` where too few are left.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of 4 bytes.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A string as [`put_string`] wrote it.
    pub fn string(&mut self) -> Option<String> {
        let len = usize::try_from(self.u32()?).ok()?;
        String::from_utf8(self.take(len)?.to_vec()).ok()
    }

    fn section(&mut self) -> Option<(String, Section)> {
        let (name, offset, len) = (self.string()?, self.u64()?, self.u64()?);
        let range = usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(len)?).ok()?;
        Some((name, Section { range, hash: self.take(HASH_LEN)?.try_into().ok()? }))
    }
}
