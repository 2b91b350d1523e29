//! Reads bytes as saved programs: the result is texts that print and parse back, or an error with a message, and never a panic.
//!
//! No code of such a file runs.

use std::sync::{Arc, OnceLock};

use litz::{Model, Options};
use litz_ir::verify;
use litz_runtime::artifact::{Artifact, ArtifactError};

use crate::filetest::data;
use crate::filetest::file::TestFile;
use crate::repository;

/// Graphs whose programs are seeds, below `filetests/run`: sizes of callers and of data, state, functions, constants.
const GRAPHS: [&str; 5] =
    ["join/concat", "data/nonzero", "in_place/state", "control/while", "product/far_columns"];

/// Saved programs, by name.
pub fn programs() -> &'static [(String, Vec<u8>)] {
    static MADE: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    MADE.get_or_init(|| GRAPHS.iter().map(|name| (name.replace('/', "-"), program(name))).collect())
}

fn program(name: &str) -> Vec<u8> {
    let file = TestFile::read(&repository().join(format!("filetests/run/{name}.litz")));
    let file = file.unwrap_or_else(|error| panic!("{error}"));
    let graph = litz_ir::text::graph::parse(&file.texts[0]).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let (weights, _) = data(&file).unwrap_or_else(|error| panic!("{error}"));
    let model = Model::from_graph(graph, weights).unwrap_or_else(|error| panic!("{name}: {error}"));
    saved(&model)
}

/// The file of a model for any machine of this one's kind, with the model's constants.
pub fn saved(model: &Model) -> Vec<u8> {
    let isa = if cfg!(target_arch = "aarch64") { "neon" } else { "sse2" };
    let target = format!("cpu(isa={isa}, threads=2)").parse().expect("it is a target");
    let options = Options { bind: false, ..Options::for_target(target) };
    let path = std::env::temp_dir().join(format!("litz-fuzz-{}-{}", std::process::id(), model.name()));
    let written = model.save_for(&path, &options, &mut |_| {});
    written.unwrap_or_else(|error| panic!("{error}"));
    let bytes = std::fs::read(&path).expect("it was written");
    let _ = std::fs::remove_file(&path);
    bytes
}

/// The bytes are a file as it is, and then one whose checksums are right, so that damage reaches what is behind them.
pub fn any_bytes(bytes: &[u8]) {
    read(bytes.to_vec());
    read(sealed(bytes));
}

fn read(bytes: Vec<u8>) {
    match Artifact::from_bytes(Arc::new(bytes)) {
        Ok(artifact) => {
            let _ = verify::program::verify_with(artifact.program(), artifact.kernels());
            artifact.kernels().iter().for_each(|kernel| drop(verify::kernel::verify(kernel)));
            let program = artifact.program().to_string();
            let again =
                litz_ir::text::program::parse(&program).unwrap_or_else(|diags| panic!("{}", diags[0]));
            assert_eq!(again.to_string(), program);
            [artifact.objects().err(), artifact.architectures().err(), artifact.check().err()]
                .iter()
                .flatten()
                .for_each(says_why);
        }
        Err(error) => says_why(&error),
    }
}

fn says_why(error: &ArtifactError) {
    assert!(!error.to_string().is_empty());
}

/// Where the header has the length of the table, and its checksum; see `artifact/container.rs` of the runtime.
const TABLE_LENGTH: usize = 16;
const FILE_LENGTH: usize = 24;
const TABLE_HASH: usize = 32;
const TABLE: usize = 64;
const HASH: usize = 32;

/// The bytes with the length and the checksums that they ought to have, as far as there is a table of sections in them.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut file = bytes.to_vec();
    let Some(table) = number(&file, TABLE_LENGTH, 8).and_then(|length| TABLE.checked_add(length)) else {
        return file;
    };
    let length = (file.len() as u64).to_le_bytes();
    let mut at = TABLE;
    while let Some(name) = number(&file, at, 4).filter(|_| at < table) {
        let Some(row) = at.checked_add(4 + name).filter(|row| *row < table) else { break };
        let (Some(start), Some(bytes)) = (number(&file, row, 8), number(&file, row + 8, 8)) else { break };
        let section = start.checked_add(bytes).and_then(|end| file.get(start..end));
        let hash = blake3::hash(section.unwrap_or_default());
        let Some(place) = file.get_mut(row + 16..row + 16 + HASH) else { break };
        place.copy_from_slice(hash.as_bytes());
        at = row + 16 + HASH;
    }
    if let Some(hash) = file.get(TABLE..table).map(blake3::hash) {
        file[FILE_LENGTH..FILE_LENGTH + 8].copy_from_slice(&length);
        file[TABLE_HASH..TABLE_HASH + HASH].copy_from_slice(hash.as_bytes());
    }
    file
}

/// A little-endian number of so many bytes.
fn number(file: &[u8], at: usize, bytes: usize) -> Option<usize> {
    let found = file.get(at..at.checked_add(bytes)?)?;
    let number = found.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    usize::try_from(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_of_a_text_reaches_its_parser() {
        for (name, bytes) in programs() {
            assert_eq!(sealed(bytes), *bytes, "{name}");
            let at = bytes.windows(9).position(|text| text == b"program @").expect("it has a program");
            let mut damaged = bytes.clone();
            damaged[at] = b'q';
            let said = |bytes: Vec<u8>| match Artifact::from_bytes(Arc::new(bytes)) {
                Ok(_) => panic!("{name}: it is damaged"),
                Err(error) => error.to_string(),
            };
            let (as_it_is, sealed) = (said(damaged.clone()), said(sealed(&damaged)));
            assert!(as_it_is.contains("checksum"), "{as_it_is}");
            assert!(!sealed.contains("checksum"), "{sealed}");
        }
    }
}
