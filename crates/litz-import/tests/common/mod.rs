//! Provides the golden archives, their operator schemas, and a writer of archives for damaged ones.

#![allow(dead_code, reason = "each test binary uses a part")]

use litz_import::{Archive, ImportError, Imported, import};
use litz_ir::graph::{Graph, Origin};
use litz_ir::schema::{Autocast, Effect, OpSchema, Schemas, Written};
use litz_ops::Table;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The operators of the golden archives.
pub struct Golden(HashMap<String, OpSchema>);

impl Golden {
    pub fn read() -> Golden {
        let parse = |line: &str| OpSchema::parse(line).expect("a schema");
        let schemas = include_str!("../golden/schemas.txt").lines().map(parse);
        Golden(schemas.map(|schema| (schema.name.clone(), schema)).collect())
    }
    pub fn without(mut self, names: &[&str]) -> Golden {
        self.0.retain(|name, _| !names.contains(&name.as_str()));
        self
    }
}

impl Schemas for Golden {
    fn lookup(&self, name: &str) -> Option<&OpSchema> {
        self.0.get(name)
    }
    fn effect(&self, name: &str) -> Effect {
        Table::new().effect(name)
    }
    fn autocast(&self, name: &str) -> Autocast {
        Table::new().autocast(name)
    }
    fn written(&self, what: Written) -> &'static str {
        Table::new().written(what)
    }
}

/// The torch versions that wrote the golden archives.
pub const VERSIONS: [&str; 3] = ["2.9", "2.11", "2.15"];

pub fn path(version: &str, name: &str) -> PathBuf {
    // Tests of the crates above read the same archives.
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("litz-import").join("tests/golden");
    golden.join(version).join(name).with_extension("pt2")
}

pub fn bytes(version: &str, name: &str) -> Vec<u8> {
    std::fs::read(path(version, name)).expect("a golden archive")
}

pub fn import_bytes(bytes: Vec<u8>) -> Result<Imported, ImportError> {
    let archive = Archive::open(Arc::new(bytes))?;
    import(&archive, archive.only_model()?, &Golden::read())
}

/// Without stacks: these have lines of PyTorch, which differ from version to version.
pub fn import_golden(version: &str, name: &str) -> Imported {
    let mut imported =
        import_bytes(bytes(version, name)).unwrap_or_else(|error| panic!("{version}/{name}: {error}"));
    drop_stacks(&mut imported.graph);
    imported
}

pub fn drop_stacks(graph: &mut Graph) {
    for origin in graph.nodes.iter_mut().filter_map(|node| node.origin.as_mut()) {
        *origin = Arc::new(Origin { stack: Vec::new(), ..Origin::clone(origin) });
    }
    graph.subgraphs.iter_mut().for_each(drop_stacks);
}

/// Entries of an archive, to be changed and written again.
pub struct Parts(pub Vec<(String, Vec<u8>)>);

impl Parts {
    pub fn of(version: &str, name: &str) -> Parts {
        let bytes = bytes(version, name);
        let archive = Archive::open(Arc::new(bytes.clone())).expect("opens");
        let part = |path: &str| (path.to_owned(), bytes[archive.range(path).expect("listed")].to_vec());
        Parts(archive.paths().map(part).collect())
    }
    pub fn get(&mut self, path: &str) -> &mut Vec<u8> {
        &mut self.0.iter_mut().find(|(name, _)| name == path).expect("an entry").1
    }
    pub fn remove(mut self, path: &str) -> Parts {
        self.0.retain(|(name, _)| name != path);
        self
    }
    /// Replaces text that occurs in an entry.
    pub fn replace(mut self, path: &str, from: &str, to: &str) -> Parts {
        let entry = self.get(path);
        let text = std::str::from_utf8(entry).expect("a text entry");
        assert!(text.contains(from), "{path} has no {from}");
        *entry = text.replacen(from, to, 1).into_bytes();
        self
    }
    pub fn replace_in_model(self, from: &str, to: &str) -> Parts {
        self.replace("models/model.json", from, to)
    }
    pub fn zip(&self) -> Vec<u8> {
        let mut zip = Zip::default();
        for (name, contents) in &self.0 {
            zip.add(format!("root/{name}").as_bytes(), contents);
        }
        zip.finish()
    }
    pub fn import(&self) -> Result<Imported, ImportError> {
        import_bytes(self.zip())
    }
}

/// A zip of stored entries, without zip64 records.
#[derive(Default)]
pub struct Zip {
    bytes: Vec<u8>,
    directory: Vec<u8>,
    count: u16,
}

impl Zip {
    /// Adds an entry.
    pub fn add(&mut self, name: &[u8], contents: &[u8]) {
        let (size, offset) = (contents.len() as u32, self.bytes.len() as u32);
        self.add_with(name, contents, [size, size, offset], [&[], &[]]);
    }
    /// Adds an entry with its sizes and offset in a zip64 field, as if they did not fit 32 bits; another field comes
    /// first.
    pub fn add_wide(&mut self, name: &[u8], contents: &[u8]) {
        let (size, offset) = (contents.len() as u64, self.bytes.len() as u64);
        let extra = |numbers: &[u64]| {
            let mut extra = vec![0x42, 0x46, 1, 0, b'Z', 1, 0, 8 * numbers.len() as u8, 0];
            extra.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
            extra
        };
        // A local header has no offset.
        let [local, central] = [extra(&[size, size]), extra(&[size, size, offset])];
        self.add_with(name, contents, [u32::MAX; 3], [&local, &central]);
    }
    fn add_with(
        &mut self,
        name: &[u8],
        contents: &[u8],
        [size, packed, offset]: [u32; 3],
        [local, central]: [&[u8]; 2],
    ) {
        let crc = crc32fast::hash(contents);
        // Version 1.0, flag "names are utf-8", method 0, no time; then checksum, sizes and lengths.
        let common = |extra_len: usize| {
            let mut common = vec![10, 0, 0, 8, 0, 0, 0, 0, 0, 0];
            common.extend([crc, packed, size].into_iter().flat_map(u32::to_le_bytes));
            common.extend([name.len() as u16, extra_len as u16].into_iter().flat_map(u16::to_le_bytes));
            common
        };
        self.bytes.extend(0x0403_4b50u32.to_le_bytes());
        self.bytes.extend(common(local.len()));
        self.bytes.extend(name);
        self.bytes.extend(local);
        self.bytes.extend(contents);
        self.directory.extend(0x0201_4b50u32.to_le_bytes());
        self.directory.extend([10, 0]);
        self.directory.extend(common(central.len()));
        self.directory.extend([0; 10]);
        self.directory.extend(offset.to_le_bytes());
        self.directory.extend(name);
        self.directory.extend(central);
        self.count += 1;
    }
    /// As [`Zip::finish`], with zip64 records that give other numbers of entries and bytes of the directory.
    pub fn finish_wide(mut self, count: u64, size: u64) -> Vec<u8> {
        let offset = self.bytes.len() as u64;
        self.bytes.extend(&self.directory);
        let end64 = self.bytes.len() as u64;
        self.bytes.extend(0x0606_4b50u32.to_le_bytes());
        self.bytes.extend(44u64.to_le_bytes());
        self.bytes.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.bytes.extend([count, count, size, offset].into_iter().flat_map(u64::to_le_bytes));
        self.bytes.extend(0x0706_4b50u32.to_le_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(end64.to_le_bytes());
        self.bytes.extend([1, 0, 0, 0]);
        self.bytes.extend(0x0605_4b50u32.to_le_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([0xff; 12]);
        self.bytes.extend([0; 2]);
        self.bytes
    }
    pub fn finish(mut self) -> Vec<u8> {
        let offset = self.bytes.len() as u32;
        self.bytes.extend(&self.directory);
        self.bytes.extend(0x0605_4b50u32.to_le_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend(self.count.to_le_bytes());
        self.bytes.extend((self.directory.len() as u32).to_le_bytes());
        self.bytes.extend(offset.to_le_bytes());
        self.bytes.extend([0; 2]);
        self.bytes
    }
}
