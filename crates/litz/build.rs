//! The sources of all crates to `LITZ_SOURCES`, a hash that keeps a changed compiler from taking programs out of the
//! cache that the one before it compiled.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let mut crates = fs::read_dir("..")?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    crates.sort();
    // A packaged crate lies alone; its version says which sources it was built from.
    let is_workspace = Path::new("../litz-ir").is_dir();
    let mut hasher = DefaultHasher::new();
    for sources in crates.iter().map(|folder| folder.join("src")).filter(|src| is_workspace && src.is_dir()) {
        println!("cargo::rerun-if-changed={}", sources.display());
        hasher.write_u64(hash(&sources)?);
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=LITZ_SOURCES={:016x}", hasher.finish());
    Ok(())
}

/// Hashes a file, or a folder with everything in it, in the order of names.
fn hash(path: &Path) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    path.file_name().hash(&mut hasher);
    if path.is_dir() {
        let mut entries =
            fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        entries.sort();
        for entry in entries {
            hasher.write_u64(hash(&entry)?);
        }
    } else {
        fs::read(path)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}
