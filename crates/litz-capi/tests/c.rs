//! Checks the library as C sees it: its header, and programs in C that call it.

#[cfg(feature = "compiler")]
#[path = "c/folder.rs"]
mod folder;
#[path = "c/header.rs"]
mod header;
#[cfg(feature = "compiler")]
#[path = "c/programs.rs"]
mod programs;

use std::path::{Path, PathBuf};
use std::process::Command;

/// The library that was built for this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().expect("it runs");
    let library = test.with_file_name("liblitz_capi.so");
    assert!(library.exists(), "{} was built with the test", library.display());
    library
}

/// Where the header is.
pub fn include() -> PathBuf {
    manifest("include")
}

fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a command to its end; what it prints.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}
