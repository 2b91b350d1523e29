//! Loads and compiles models with a spinner beside both.

use super::failure::Failure;
use litz::progress::Progress;
use litz::{Compiled, Error, Model, Options};
use litz_import::ImportError;
use litz_ir::text::graph::parse;
use std::collections::HashMap;
use std::path::Path;

/// Extension of saved programs.
pub const SAVED: &str = "litzc";

/// Which model of an archive.
#[derive(clap::Args)]
pub struct Which {
    /// One of several models in an archive, by its name [default: the only one]
    #[arg(id = "which", long = "model", value_name = "NAME")]
    name: Option<String>,
}

/// Reads a model, or the text of a graph without constants.
pub fn open(path: &Path, which: &Which) -> Result<Model, Failure> {
    let progress = Progress::start();
    progress.say("reading");
    if path.extension().is_some_and(|extension| extension == "litz") {
        let source = std::fs::read_to_string(path);
        let source = source.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        return Ok(Model::from_graph(parse(&source).map_err(Error::Invalid)?, HashMap::new())?);
    }
    Ok(Model::open_for(path, &Options { model: which.name.clone(), ..Options::default() })?)
}

/// Reads the model that is named, or all of an archive.
pub fn open_all(path: &Path, which: &Which) -> Result<Vec<Model>, Failure> {
    let open = |model: Option<String>| Model::open_for(path, &Options { model, ..Options::default() });
    match open(which.name.clone()) {
        Err(Error::Import(ImportError::SeveralModels { names })) => {
            Ok(names.into_iter().map(|name| open(Some(name))).collect::<Result<_, _>>()?)
        }
        model => Ok(vec![model?]),
    }
}

/// Compiles a model.
pub fn compile(model: &Model, options: &Options) -> Result<Compiled, Failure> {
    let progress = Progress::start();
    Ok(model.compile_with(options, &mut |step| progress.say(step))?)
}
