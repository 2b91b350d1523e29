//! Turns the settings of a test file into targets and options.

use crate::file::TestFile;
use litz::{Backend, Options};
use litz_ir::target::Target;
use std::str::FromStr;
use std::sync::Arc;

/// What a file asks for.
pub struct Settings {
    /// The target.
    pub info: Target,
    /// What makes code for it.
    pub backend: Arc<dyn Backend>,
    /// Thresholds, and the target's threads; numbers do not depend on this machine.
    pub options: Options,
    /// Passes that run before what the folder is about.
    pub passes: Vec<String>,
    /// Slug of the failure that every call ends in.
    pub fails: Option<String>,
    /// Whether kernels of the given schedule have registers that cannot be spread over threads.
    pub is_held: bool,
}

/// The target of files that name none.
const TARGET: &str = "cpu(isa=avx512, threads=2)";

impl Settings {
    /// Reads the settings of a file; an unknown one is an error.
    pub fn of(file: &TestFile) -> Result<Settings, String> {
        let mut options = Options { cache: None, ..Options::default() };
        let (mut target, mut passes, mut fails, mut is_held) = (TARGET, Vec::new(), None, false);
        for (key, value) in &file.settings {
            match key.as_str() {
                "target" => target = value,
                "chunk_ops" => options.heuristics.chunk_ops = number(key, value)?,
                "block" => options.heuristics.block = number(key, value)?,
                "partial_sum" => options.heuristics.partial_sum = number(key, value)?,
                "partial_column" => options.heuristics.partial_column = number(key, value)?,
                "passes" => passes = value.split(", ").map(str::to_owned).collect(),
                "fails" => fails = Some(value.clone()),
                "held" => is_held = value == "yes",
                _ => return Err(format!("unknown setting `{key}`")),
            }
        }
        let info: Target = target.parse().map_err(|error| format!("{error}"))?;
        options.threads = info.threads() as usize;
        let backend = litz::backend(&Options::for_target(info)).map_err(|error| error.to_string())?;
        Ok(Settings { info, backend, options, passes, fails, is_held })
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("expected a number as `{key}`, found `{value}`"))
}
