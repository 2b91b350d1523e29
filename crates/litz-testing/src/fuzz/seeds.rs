//! Lists the inputs that fuzzing starts from, and those in which it found something.

use std::fs;
use std::path::{Path, PathBuf};

use crate::archive;
use crate::fuzz::{FuzzTarget, saved};

/// Bytes that models and expressions begin with.
const RANDOM_SEEDS: u64 = 16;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("")
}

/// Inputs of the repository that a target starts from, by name, in the order of their names.
pub fn seeds(target: FuzzTarget) -> Vec<(String, Vec<u8>)> {
    let golden = crates().join("litz-import/tests/golden");
    let texts = crates().join("litz-ir/tests/text");
    match target {
        FuzzTarget::Archive => archives(&golden),
        FuzzTarget::Program | FuzzTarget::Run => {
            archives(&golden).into_iter().map(|(name, bytes)| (name, program(bytes))).collect()
        }
        FuzzTarget::Text => {
            let file_tests = crates().with_file_name("filetests");
            let mut all = files(&texts, "litz");
            all.extend(
                files(&file_tests, "litz").into_iter().map(|(name, bytes)| (name, first_texts(&bytes))),
            );
            all
        }
        FuzzTarget::Saved => saved::programs().to_vec(),
        FuzzTarget::Models | FuzzTarget::Simplify | FuzzTarget::CLibrary => {
            let bytes = |seed| crate::choices::bytes(seed, 256);
            (0..RANDOM_SEEDS).map(|seed| (format!("random-{seed}"), bytes(seed))).collect()
        }
    }
}

/// Inputs in which a target once found something.
pub fn findings(target: FuzzTarget) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("findings").join(target.name());
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (label(&path), fs::read(&path).expect("a finding can be read"))).collect()
}

/// Files below a folder with this extension, sorted.
fn files(folder: &Path, extension: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push((label(&path), fs::read(&path).expect("a seed can be read")));
        }
    }
    found
}

/// Folder and name without extension.
fn label(path: &Path) -> String {
    let part = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
    format!("{}-{}", part(path.parent().and_then(Path::file_name)), part(path.file_stem()))
}

/// The program of an archive as the targets take it: `model.json`, a zero byte, `model_weights_config.json`.
fn program(archive: Vec<u8>) -> Vec<u8> {
    let parts = archive::parts(archive);
    let entry = |path: &str| {
        let found = parts.iter().find(|(name, _)| name == path);
        found.map_or(&[][..], |(_, contents)| contents)
    };
    [entry("models/model.json"), &[0], entry("data/weights/model_weights_config.json")].concat()
}

/// The texts of a file test, without settings, data and expected output.
fn first_texts(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let is_text = |line: &&str| !["//!", "//<", "//>", "//|"].iter().any(|mark| line.starts_with(mark));
    text.lines().filter(is_text).map(|line| format!("{line}\n")).collect::<String>().into_bytes()
}

/// Archives of every trait of the format, and of operators that a host has.
fn archives(golden: &Path) -> Vec<(String, Vec<u8>)> {
    let foreign = files(&crates().join("litz/tests/foreign"), "pt2");
    files(golden, "pt2").into_iter().chain(foreign).collect()
}
