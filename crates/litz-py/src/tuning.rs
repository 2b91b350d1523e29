//! Compiles models, and tunes their schedules first where that was asked for.

use std::sync::atomic::{AtomicBool, Ordering};

use litz::tune::{Budget, Tuned, tune_once};
use litz::{Compiled, Error, GivenSchedule, Model, Options};
use pyo3::prelude::*;

use crate::errors;
use crate::host::raised;
use crate::options::Chosen;

/// Compiles a model, and says how, and what tuning gave or why it could not be done. Ctrl-C ends tuning, with what the handler raises.
///
/// # Errors
/// As of [`Model::compile`]; what the handler of a signal raises.
pub fn compile(
    py: Python<'_>,
    model: &Model,
    chosen: Chosen,
) -> PyResult<(Compiled, Options, Option<Result<Tuned, String>>)> {
    let Chosen { mut options, tune } = chosen;
    let (stop, mut interrupted) = (AtomicBool::new(false), None);
    let mut listen = || {
        if let Err(error) = Python::attach(|py| py.check_signals()) {
            interrupted.get_or_insert(error);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let tuned = tune.filter(|time| !time.is_zero() && !options.reference).map(|time| {
        py.detach(|| tune_once(model, &options, &Budget { time, stop: &stop }, &mut |_| listen()))
    });
    if let Some(error) = interrupted {
        return Err(error);
    }
    // An operator of the host may have raised while it was timed.
    drop(raised());
    let tuned = tuned.map(|tuned| tuned.map_err(|error: Error| error.to_string()));
    if let Some(Ok(tuned)) = &tuned {
        options.schedule = Some(GivenSchedule { name: "tuned".to_owned(), text: tuned.schedule.clone() });
    }
    let compiled = py.detach(|| model.compile(&options));
    Ok((compiled.map_err(|error| errors::raise(&error))?, options, tuned))
}
