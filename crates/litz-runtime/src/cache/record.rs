//! Records what keys are made of, so that who misses an entry can be told why, and an entry is found again in another cache.
//!
//! A record is a text of named parts, and a key is the hash of such a text:
//!
//! ```text
//! kind    program
//! target  cpu(isa=avx512, threads=2, l1=48K, l2=2M)
//! graph   7d5f..
//! ```
//!
//! It is a file of its own beside the entry, under the same name, and stays where the entry goes.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::{Access, CacheKey, ObjectCache};

/// What a key is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// A line for each part: its name, a tab, its value, in which `\` is `\\` and the end of a line `\n`.
    text: String,
    key: CacheKey,
}

/// The files of records end so.
pub(super) const EXTENSION: &str = "key";

/// Records without entries that a folder keeps; the oldest go first.
const MOST_WITHOUT_ENTRY: usize = 1000;

impl Record {
    /// A record of parts, by name. Names have neither tabs nor ends of lines.
    pub fn new<'a>(parts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Record {
        let line = |(name, value): (&str, &str)| {
            debug_assert!(!name.contains(['\t', '\n']), "invariant: names are words");
            format!("{name}\t{}\n", value.replace('\\', "\\\\").replace('\n', "\\n"))
        };
        Record::of_text(parts.into_iter().map(line).collect())
    }

    pub(super) fn of_text(text: String) -> Record {
        let key = CacheKey::new(&[b"record", text.as_bytes()]);
        Record { text, key }
    }

    /// The same parts, but for the value of one of them.
    pub fn with(&self, name: &str, value: &str) -> Record {
        let changed = Record::new([(name, value)]);
        let line = |line: &str| match line.split_once('\t').is_some_and(|(other, _)| other == name) {
            true => changed.text.clone(),
            false => format!("{line}\n"),
        };
        Record::of_text(self.text.lines().map(line).collect())
    }

    /// Names the entry.
    pub fn key(&self) -> &CacheKey {
        &self.key
    }

    /// The parts by name, in order. Values are one line each.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| line.split_once('\t'))
    }

    /// The part of that name.
    pub fn part(&self, name: &str) -> Option<&str> {
        self.parts().find(|(other, _)| *other == name).map(|(_, value)| value)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ObjectCache {
    /// Keeps a record beside its entry, if it is not there.
    pub(super) fn keep_record(&self, record: &Record) -> io::Result<()> {
        let path = self.path(record.key(), EXTENSION);
        if self.access == Access::Read || path.exists() {
            return Ok(());
        }
        self.write(&record.key, &path, |mut file| io::Write::write_all(&mut file, record.text.as_bytes()))
    }

    /// The records that are there, of entries and of those that are gone, in the order of their keys. Damaged ones are none.
    ///
    /// # Errors
    /// Where a folder cannot be read.
    pub fn records(&self) -> io::Result<Vec<Record>> {
        let read = |path: &Path| {
            let record = Record::of_text(fs::read_to_string(path).ok()?);
            (self.path(record.key(), EXTENSION) == *path).then_some(record)
        };
        let mut records: Vec<Record> =
            self.record_files()?.iter().filter_map(|(_, path)| read(path)).collect();
        if let Some(behind) = &self.behind {
            records.extend(behind.records()?);
        }
        records.sort_by_key(|record| record.key.0);
        records.dedup();
        Ok(records)
    }

    /// Removes the oldest records whose entries are gone, beyond those that are kept to say so.
    pub(super) fn forget_records(&self) -> io::Result<()> {
        let mut files = self.record_files()?;
        let has_entry = |path: &Path| {
            [super::EXTENSION, super::MEMORY_EXTENSION].iter().any(|it| path.with_extension(it).exists())
        };
        files.retain(|(_, path)| !has_entry(path));
        files.sort();
        let more = files.len().saturating_sub(MOST_WITHOUT_ENTRY);
        files[..more].iter().try_for_each(|(_, path)| fs::remove_file(path))
    }

    /// When each record was written, and its path.
    fn record_files(&self) -> io::Result<Vec<(SystemTime, std::path::PathBuf)>> {
        let mut files = Vec::new();
        for found in fs::read_dir(&self.dir)? {
            let found = found?;
            let Ok(metadata) = found.metadata() else { continue };
            if super::has_extension(&found.path(), EXTENSION) {
                files.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), found.path()));
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, record};
    use super::*;

    #[test]
    fn values_of_any_text_are_told_apart() {
        let of = |value: &str| Record::new([("a", value), ("b", "")]);
        let values = ["", "x", "x\n", "x\\n", "x\nb\t", "x\\"];
        for (at, value) in values.iter().enumerate() {
            assert_eq!(of(value).parts().count(), 2);
            for other in &values[at + 1..] {
                assert_ne!(of(value).key(), of(other).key(), "{value:?} {other:?}");
            }
        }
        assert_eq!(of("x").part("a"), Some("x"));
        assert_eq!(of("x\n\\").with("a", "y\\"), of("y\\"));
        assert_eq!(of("x\n\\").with("b", "y"), Record::new([("a", "x\n\\"), ("b", "y")]));
        assert_ne!(Record::new([("a", "x")]).key(), Record::new([("b", "x")]).key());
    }

    #[test]
    fn records_outlive_entries_and_damaged_ones_are_none() {
        let folder = Folder::new("records");
        let cache = folder.open(1 << 20);
        let records = [0, 1].map(record);
        for record in &records {
            cache.put_recorded(record, b"payload").expect("puts");
        }
        fs::remove_file(cache.path(records[0].key(), super::super::EXTENSION)).expect("there");
        let mut expected = records.to_vec();
        expected.sort_by_key(|record| record.key.0);
        assert_eq!(cache.records().expect("readable"), expected);
        let path = cache.path(records[0].key(), EXTENSION);
        fs::write(&path, b"number\t7\n").expect("writable");
        assert_eq!(cache.records().expect("readable"), [records[1].clone()]);
    }

    #[test]
    fn the_oldest_records_without_entries_go() {
        let folder = Folder::new("old-records");
        let cache = folder.open(1 << 20);
        cache.put_recorded(&record(0), b"payload").expect("puts");
        for number in 1..MOST_WITHOUT_ENTRY + 4 {
            cache.keep_record(&record(number)).expect("writes");
        }
        for number in 0..3 {
            let file = fs::File::open(cache.path(record(number).key(), EXTENSION)).expect("there");
            file.set_modified(SystemTime::UNIX_EPOCH).expect("settable");
        }
        cache.forget_records().expect("removes");
        let left = cache.records().expect("readable");
        assert_eq!(left.len(), MOST_WITHOUT_ENTRY + 1);
        let is_left = |number| left.contains(&record(number));
        assert_eq!([0, 1, 2].map(is_left), [true, false, false]);
    }
}
