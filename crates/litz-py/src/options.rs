//! Makes options of what Python says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use litz::{Fallback, HostOption, Options, PoolOption};
use litz_runtime::pool::ThreadPool;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::InvalidError;
use crate::host::PythonHost;

/// One pool of threads for each number of them, which all compiled models share.
static POOLS: Mutex<BTreeMap<usize, Arc<ThreadPool>>> = Mutex::new(BTreeMap::new());

/// The options that the environment gives, changed by those of a dictionary.
///
/// # Errors
/// Where it has an option that is not known, or a value of another type.
pub fn options(given: Option<&Bound<'_, PyDict>>) -> PyResult<Options> {
    // Several graphs of one process run in turns with other threads than Litz's.
    let mut options = Options { bind: false, ..Options::from_env() };
    let Some(given) = given else { return Ok(with_pool(options)) };
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
                options.verify = if value.extract()? { litz::Verify::Passes } else { litz::Verify::Stages };
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
            _ => return Err(InvalidError::new_err(format!("no such option: {key}"))),
        }
    }
    Ok(with_pool(options))
}

fn with_pool(mut options: Options) -> Options {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || Arc::new(ThreadPool::unbound(options.threads));
    let pool = Arc::clone(pools.entry(options.threads).or_insert_with(make));
    options.pool = Some(PoolOption(pool));
    options
}
