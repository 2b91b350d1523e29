//! Reads what `litz minify` and `litz bisect` are given, and attempts it in processes of their own.

use super::failure::Failure;
use super::options::Compiling;
use super::{inputs, load, tune};
use litz::attempt::Check;
use litz::case::{Case, beside};
use litz::minify::answer;
use litz::tensors;
use litz::{Error, Options};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A model that fails, and how it is attempted.
#[derive(clap::Args)]
pub struct Trying {
    /// Archive that torch.export.save wrote, the text of a graph (`.litz`), or a folder that `torch.compile` left of a failure
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Inputs `in.0`, `in.1`, ... in a .safetensors or .npz file [default: those beside a text, else made up]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// How long one attempt may take before it counts as endless, such as 60s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = tune::duration)]
    pub attempt_limit: Duration,
    /// Attempt the case in this file and say how that ends: what the command starts itself with
    #[arg(long, value_name = "FILE", hide = true)]
    attempt: Option<PathBuf>,
    /// How far to go with that
    #[arg(long, value_name = "CHECK", hide = true, default_value = "verify")]
    attempt_check: Check,
    #[command(flatten)]
    common: Compiling,
}

/// What is in a folder that a failure of `torch.compile` is kept in.
const GRAPH: &str = "graph.litz";

impl Trying {
    /// The options of attempts.
    pub fn options(&self) -> Options {
        self.common.options()
    }

    /// Whether this process is one that attempts something: then it has done so.
    pub fn is_answered(&self) -> Result<bool, Failure> {
        let Some(case) = &self.attempt else { return Ok(false) };
        answer(case, &self.options(), self.attempt_check)?;
        Ok(true)
    }

    /// What is called with what.
    pub fn case(&self) -> Result<Case, Failure> {
        let path = if self.model.is_dir() { self.model.join(GRAPH) } else { self.model.clone() };
        let model = load::open(&path, &self.which)?;
        // The compilation of a graph may have failed before anybody called it.
        let beside = Some(beside(&path))
            .filter(|beside| load::is_text(&path) && self.data.is_none() && has_inputs(beside));
        let inputs = inputs::inputs(&model, self.data.as_deref().or(beside.as_deref()))?;
        Ok(Case::of_model(&model, inputs)?)
    }
}

/// Whether a file of tensors is there and has inputs.
fn has_inputs(path: &Path) -> bool {
    tensors::read(path).is_ok_and(|named| named.keys().any(|name| name.starts_with("in.")))
}

/// This command once more, to attempt the case in a file.
pub fn command() -> Result<impl Fn(&Path, Check) -> Command, Failure> {
    let program = std::env::current_exe().map_err(|source| Error::Io { path: "litz".into(), source })?;
    Ok(move |case: &Path, check: Check| {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1)).arg("--attempt").arg(case);
        command.args(["--attempt-check", check.name()]);
        command
    })
}
