//! Loads and compiles models with a spinner beside both.

use super::failure::Failure;
use super::progress::Progress;
use litz::{Compiled, Model, Options};
use std::path::Path;

/// Extension of saved programs.
pub const SAVED: &str = "litzc";

/// Reads a model.
pub fn open(path: &Path) -> Result<Model, Failure> {
    let progress = Progress::new();
    progress.say("reading");
    Ok(Model::open(path)?)
}

/// Compiles a model.
pub fn compile(model: &Model, options: &Options) -> Result<Compiled, Failure> {
    let progress = Progress::new();
    Ok(model.compile_with(options, &mut |step| progress.say(step))?)
}
