//! Holds what tests, fuzz targets and tasks of the repository share: programs to try, and what is right about them.

pub mod ahead;
pub mod any_host;
pub mod archive;
pub mod cases;
pub mod choices;
pub mod contradictions;
pub mod devices;
pub mod elements;
pub mod faults;
pub mod filetest;
pub mod fuzz;
pub mod hostile;
pub mod kernels;
pub mod models;
pub mod mutants;
pub mod mutation;
pub mod plans;
pub mod subject;
pub mod torch;
pub mod trial;

pub use litz::compare;
use std::path::{Path, PathBuf};

/// The folder of the repository: the one that tests were built in, or on a machine that has no more than their binaries the one that
/// `LITZ_REPOSITORY` names.
pub fn repository() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("LITZ_REPOSITORY").map_or_else(built, PathBuf::from)
}
