//! Runs every file of `/filetests` as one test, by the folder it is in: `filetests/README.md` says what each folder checks.
//!
//! `LITZ_BLESS=1` writes what is printed into the files where it is compared; read the diff.

#![allow(missing_docs, reason = "a test")]

#[path = "filetests/counts.rs"]
mod counts;
#[path = "filetests/removed.rs"]
mod removed;
#[path = "filetests/run.rs"]
mod run;
#[path = "filetests/stages.rs"]
mod stages;

use libtest_mimic::{Arguments, Failed, Trial};
use litz_testing::filetest::{file, settings};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use file::TestFile;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = litz_testing::repository().join("filetests");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    let trials = paths.into_iter().flat_map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(&path).with_extension("");
        let name = name.to_string_lossy().replace('\\', "/");
        let removed = name.starts_with("run/").then(|| {
            let path = path.clone();
            let run = move || removed::removed(&TestFile::read(&path)?).map_err(Failed::from);
            Trial::test(format!("{name}, acts removed"), run)
        });
        let test = Trial::test(name.clone(), move || test(&name, &path).map_err(Failed::from));
        [Some(test), removed].into_iter().flatten()
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Every `.litz` file in a folder and those below it.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "litz") {
            paths.push(path);
        }
    }
}

/// Runs the test called `folder/.../file`.
fn test(name: &str, path: &Path) -> Result<(), String> {
    let file = TestFile::read(path)?;
    let folders: Vec<&str> = name.split('/').collect();
    match folders[..] {
        ["text", _] => stages::text(&file),
        ["verify", _] => stages::verify(&file),
        ["graph", pass, _] => file.expect(&stages::graph_pass(&file, pass)?),
        ["loops", pass, _] => file.expect(&stages::loops_pass(&file, pass)?),
        ["kernel", pass, _] => file.expect(&stages::kernel_pass(&file, pass)?),
        ["lower", _] => file.expect(&stages::lower(&file)?),
        ["schedule", _] => file.expect(&stages::schedule(&file)?),
        ["realize", _] => file.expect(&stages::realize(&file)?),
        ["emit", "cpu" | "gpu", _] => stages::emit(&file),
        ["run", _, _] | ["issues", _] => run::run(&file),
        _ => Err("no kind of test is in this folder".into()),
    }
}
