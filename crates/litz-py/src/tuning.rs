//! Compiles models, and tunes their schedules first where that was asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use litz::progress::Progress;
use litz::tune::{Budget, Tuned, tune_once};
use litz::{Compiled, Error, Model, Options};
use pyo3::prelude::*;

use crate::errors;
use crate::host::raised;
use crate::options::Chosen;

/// How often a compilation is interrupted to hear signals.
const TICK: Duration = Duration::from_millis(50);

/// Compiles a model, and says how, and what tuning gave or why it could not be done. Ctrl-C ends either, with what the handler raises.
///
/// # Errors
/// As of [`Model::compile`]; what the handler of a signal raises.
pub fn compile(
    py: Python<'_>,
    model: &Model,
    chosen: Chosen,
) -> PyResult<(Compiled, Options, Option<Result<Tuned, String>>)> {
    let Chosen { mut options, tune, gpu: _ } = chosen;
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
        options.schedule = Some(tuned.given());
    }
    let compiled = py.detach(|| attended(model, &options))?;
    Ok((compiled.map_err(|error| errors::raise(&error))?, options, tuned))
}

/// Compiles on another thread, while this one hears signals; shows what it does where that takes over a second.
///
/// # Errors
/// What the handler of a signal raises.
fn attended(model: &Model, options: &Options) -> PyResult<Result<Compiled, Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options { stop: Some(Arc::clone(&stop)), ..options.clone() };
    let progress = Progress::start();
    let (compiled, interrupted) = std::thread::scope(|scope| {
        let (done, ended) = mpsc::channel::<()>();
        let (options, progress) = (&options, &progress);
        let compiling = scope.spawn(move || {
            // Dropped at the end, however that comes.
            let _done = done;
            model.compile_with(options, &mut |step| progress.say(step))
        });
        let mut interrupted = None;
        while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            if interrupted.is_none() {
                interrupted = Python::attach(|py| py.check_signals()).err();
                stop.store(interrupted.is_some(), Ordering::Relaxed);
            }
        }
        (compiling.join(), interrupted)
    });
    match (interrupted, compiled) {
        (Some(error), _) => Err(error),
        (None, Ok(compiled)) => Ok(compiled),
        (None, Err(panic)) => std::panic::resume_unwind(panic),
    }
}
