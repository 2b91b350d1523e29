//! Makes options of what Python says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use litz::settings::{SETTINGS, Setting, SettingError, names};
use litz::{BACKENDS, Fallback, HostOption, Options, PoolOption};
use litz_runtime::pool::ThreadPool;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::InvalidError;
use crate::host::PythonHost;
use crate::openmp::OpenMp;

/// One pool of threads for each number of them, which all compiled models share.
static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// Options beside the settings of the scheduler and of the rewrites.
const NAMES: [&str; 16] = [
    "gpu",
    "threads",
    "freeze",
    "dump",
    "cache",
    "cache_read_only",
    "shared_cache",
    "reference",
    "profile",
    "model",
    "verify",
    "check_nan",
    "target",
    "host",
    "fallback",
    "tune",
];

/// What a dictionary of Python's chooses.
pub struct Chosen {
    pub options: Options,
    /// The number of the GPU that runs it.
    pub gpu: Option<u32>,
    /// How long to look for a faster schedule, at most.
    pub tune: Option<Duration>,
}

impl Chosen {
    /// The options that the environment gives, changed by those of a dictionary.
    ///
    /// # Errors
    /// Where it has an option that is not known, or a value of another type.
    pub fn of(given: Option<&Bound<'_, PyDict>>) -> PyResult<Chosen> {
        // Several graphs of one process run in turns with other threads than Litz's.
        let options = Options { bind: false, ..Options::from_env() };
        let mut chosen = Chosen { options, gpu: None, tune: None };
        given.map_or(Ok(()), |given| chosen.read(given))?;
        chosen.options.pool = Some(PoolOption(pool(chosen.options.threads)));
        Ok(chosen)
    }

    fn read(&mut self, given: &Bound<'_, PyDict>) -> PyResult<()> {
        let options = &mut self.options;
        for (key, value) in given {
            let key: String = key.extract()?;
            match &*key {
                "gpu" => {
                    self.gpu = value.extract()?;
                    let name = if self.gpu.is_some() { "cuda" } else { "cpu" };
                    let backend = BACKENDS.iter().find(|backend| backend.name == name);
                    options.backend = backend.unwrap_or(&options.backend);
                    options.device_number = self.gpu.unwrap_or(0);
                }
                "threads" => options.threads = value.extract::<usize>()?.max(1),
                "freeze" => options.freeze = value.extract()?,
                "dump" => options.dump = value.extract::<Option<PathBuf>>()?,
                "cache" => options.cache = value.extract::<Option<PathBuf>>()?,
                "cache_read_only" => options.cache_read_only = value.extract()?,
                "shared_cache" => options.shared_cache = value.extract::<Option<PathBuf>>()?,
                "reference" => options.reference = value.extract()?,
                "profile" => options.profile = value.extract()?,
                "model" => options.model = value.extract()?,
                "check_nan" => options.check_nan = value.extract()?,
                "verify" => {
                    options.verify =
                        if value.extract()? { litz::Verify::Passes } else { litz::Verify::Stages };
                }
                "target" => {
                    let text: String = value.extract()?;
                    let target = text.parse().map_err(|error| InvalidError::new_err(format!("{error}")))?;
                    options.set_target(target);
                }
                "host" => options.host = Some(HostOption(Arc::new(PythonHost(value.unbind())))),
                "fallback" => {
                    options.fallback = if value.extract()? { Fallback::Warn } else { Fallback::Error };
                }
                "tune" => {
                    let seconds: Option<f64> = value.extract()?;
                    let time = seconds.map(Duration::try_from_secs_f64).transpose();
                    self.tune = time.map_err(|error| InvalidError::new_err(format!("tune: {error}")))?;
                }
                _ => set(options, &key, &value)?,
            }
        }
        Ok(())
    }
}

/// Sets a threshold of the scheduler or of the rewrites, to what `str` makes of a value.
fn set(options: &mut Options, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let value = value.str()?;
    options.set(name, value.to_str()?).map_err(|error| match error {
        SettingError::Unknown { .. } => {
            let names: Vec<&str> = NAMES.into_iter().chain(names()).collect();
            InvalidError::new_err(format!("no such option: {name}; there are {}", names.join(", ")))
        }
        SettingError::Value { .. } => InvalidError::new_err(error.to_string()),
    })
}

/// The settings of the scheduler and of the rewrites: for each its name, its default and what it may be, in words.
#[pyfunction]
pub fn settings() -> Vec<(&'static str, String, String)> {
    let defaults = Options::default();
    let row = |setting: &Setting| (setting.name, setting.value(&defaults), setting.expected());
    SETTINGS.iter().map(row).collect()
}

/// Raises `litz.InvalidError` unless the setting may be that.
#[pyfunction]
pub fn check_setting(name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    set(&mut Options::default(), name, value)
}

/// The threads that all models share which run on so many.
fn pool(threads: usize) -> Arc<ThreadPool> {
    let made = || match OpenMp::of(threads) {
        Some(runtime) => ThreadPool::lent(threads, Box::new(runtime)),
        None => ThreadPool::unbound(threads),
    };
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(pools.entry(threads).or_insert_with(|| Arc::new(made())))
}
