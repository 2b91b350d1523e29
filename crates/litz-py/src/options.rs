//! Makes options of what Python says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use litz::{Fallback, HostOption, Options, PoolOption};
use litz_runtime::pool::ThreadPool;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::InvalidError;
use crate::host::PythonHost;
use crate::openmp::OpenMp;

/// One pool of threads for each number of them, which all compiled models share.
static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// What a dictionary of Python's chooses.
pub struct Chosen {
    pub options: Options,
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
        let mut chosen = Chosen { options, tune: None };
        given.map_or(Ok(()), |given| chosen.read(given))?;
        chosen.options.pool = Some(PoolOption(pool(chosen.options.threads)));
        Ok(chosen)
    }

    fn read(&mut self, given: &Bound<'_, PyDict>) -> PyResult<()> {
        let options = &mut self.options;
        for (key, value) in given {
            let key: String = key.extract()?;
            match &*key {
                "threads" => options.threads = value.extract::<usize>()?.max(1),
                "freeze" => options.freeze = value.extract()?,
                "dump" => options.dump = value.extract::<Option<PathBuf>>()?,
                "cache" => options.cache = value.extract::<Option<PathBuf>>()?,
                "reference" => options.reference = value.extract()?,
                "profile" => options.profile = value.extract()?,
                "model" => options.model = value.extract()?,
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
                _ => return Err(InvalidError::new_err(format!("no such option: {key}"))),
            }
        }
        Ok(())
    }
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
