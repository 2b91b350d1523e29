//! Loads and compiles models with a spinner beside both.

use super::failure::Failure;
use litz::case;
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

/// Reads a model, or the text of a graph, with its constants in the file of tensors beside it.
pub fn open(path: &Path, which: &Which) -> Result<Model, Failure> {
    let progress = Progress::start();
    progress.say("reading");
    if is_text(path) {
        let source = std::fs::read_to_string(path);
        let source = source.map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let graph = parse(&source).map_err(Error::Invalid)?;
        let constants = if graph.consts.is_empty() { HashMap::new() } else { case::constants(path, &graph)? };
        return Ok(Model::from_graph(graph, constants)?);
    }
    Ok(Model::open_for(path, &Options { model: which.name.clone(), ..Options::default() })?)
}

/// Whether a file is the text of a graph, by its name.
pub fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "litz" || extension == "txt")
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
