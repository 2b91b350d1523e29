//! Turns the settings of a test file into targets and options.

use super::file::TestFile;
use litz::{Backend, Options};
use litz_ir::target::Target;
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
    /// The GPU whose automatic schedules the reference device runs.
    pub gpu: Target,
    /// Whether machine code of GPUs has these results, too.
    pub on_gpus: bool,
    /// Slug of the failure that every call ends in.
    pub fails: Option<String>,
}

/// The target of files that name none.
const TARGET: &str = "cpu(isa=avx512, threads=2)";
/// The GPU for automatic schedules of files that name none.
const GPU: &str = "gpu(isa=sm90, units=132)";

impl Settings {
    /// Reads the settings of a file; an unknown one is an error.
    pub fn of(file: &TestFile) -> Result<Settings, String> {
        let mut options = Options { cache: None, ..Options::default() };
        let (mut target, mut gpu, mut passes, mut fails) = (TARGET, GPU, Vec::new(), None);
        let mut on_gpus = true;
        for (key, value) in &file.settings {
            match key.as_str() {
                "target" => target = value,
                "gpu" => gpu = value,
                "passes" => passes = value.split(", ").map(str::to_owned).collect(),
                "machine_code" if value == "cpu" => on_gpus = false,
                "fails" => fails = Some(value.clone()),
                _ => options.set(key, value).map_err(|error| error.to_string())?,
            }
        }
        let [info, gpu] = [target, gpu].map(|text| text.parse::<Target>().map_err(|error| error.to_string()));
        let (info, gpu) = (info?, gpu?);
        options.threads = info.threads() as usize;
        let backend = litz::backend(&Options::for_target(info)).map_err(|error| error.to_string())?;
        Ok(Settings { info, backend, options, passes, gpu, on_gpus, fails })
    }
}
