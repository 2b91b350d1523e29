//! Keeps what tuning found, by target and loops, for whoever runs the same loops there.

use crate::backends::backend;
use crate::error::Error;
use crate::given::GivenSchedule;
use crate::kept::{Kept, hash, schedule_record};
use crate::model::Model;
use crate::options::Options;
use crate::runner::{Runner, Stage};
use litz_runtime::cache::{ObjectCache, Record};
use serde::{Deserialize, Serialize};

/// What tuning found.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Tuned {
    /// A schedule's text, for [`Options::schedule`].
    pub schedule: String,
    /// The time of a call by the schedule of before, over that by this one: never below 1, and 1 where they are the same.
    pub gain: f64,
    /// Candidates that were timed.
    pub tried: usize,
    /// Candidates that could not be proved or compiled.
    pub refused: usize,
    /// Candidates that the schedule is made of.
    pub kept: usize,
    /// Stands for the loops that it is a schedule of.
    pub loops: String,
    /// Stands for the schedule of before.
    pub before: String,
}

impl Tuned {
    /// For [`Options::schedule`].
    pub fn given(&self) -> GivenSchedule {
        GivenSchedule { name: "tuned".to_owned(), text: self.schedule.clone() }
    }

    /// Whether this is to stand in the place of `other`, for the same loops and target. Gains over one schedule are compared: each was
    /// measured in turns with it, so that how fast the machine was is in neither. Over different schedules they say nothing of each other,
    /// and what is there stays.
    pub(crate) fn is_faster(&self, other: &Tuned) -> bool {
        (&self.loops, &self.before) == (&other.loops, &other.before) && self.gain > other.gain
    }
}

/// What tuning found, here or on another machine, for a model's loops and these options' target, where the cache has it.
///
/// # Errors
/// As [`Model::texts`], and where others may write to the cache.
pub fn found(model: &Model, options: &Options) -> Result<Option<Tuned>, Error> {
    let Some(cache) = options.cache()? else { return Ok(None) };
    Ok(in_table(&cache, &record(model, options, &cache)?))
}

/// Where the cache keeps what tuning finds for a model's loops and these options' target.
///
/// # Errors
/// As [`Model::texts`].
pub(crate) fn record(model: &Model, options: &Options, cache: &ObjectCache) -> Result<Record, Error> {
    let (options, backend) = (&Options { tuned: false, ..options.clone() }, backend(options)?);
    let kept = Kept::new(model, &*backend, options, cache);
    let loops = match kept.as_ref().and_then(Kept::loops) {
        Some(loops) => loops,
        None => {
            let mut quiet = |_: &str| {};
            let mut run = Runner::new(options.verify, None, &mut quiet);
            let texts = model.texts(options, Stage::Loops, &mut run)?;
            let loops = hash(&texts.loops.ok_or_else(|| Error::bug("tune", "a stage gave nothing"))?);
            if let Some(kept) = kept {
                kept.put_loops(&loops);
            }
            loops
        }
    };
    Ok(schedule_record(&loops, &backend.target().to_string()))
}

/// Keeps what tuning found for a model in the cache, unless there is something faster.
///
/// # Errors
/// Where others may write to the cache.
pub fn keep(model: &Model, tuned: &Tuned, options: &Options) -> Result<(), Error> {
    let Some(cache) = options.cache()? else { return Ok(()) };
    let backend = backend(options)?;
    if let Some(kept) = Kept::new(model, &*backend, options, &cache) {
        kept.put_loops(&tuned.loops);
    }
    let record = schedule_record(&tuned.loops, &backend.target().to_string());
    if in_table(&cache, &record).is_none_or(|other| tuned.is_faster(&other)) {
        // A full or read-only disk costs the next one its time, nothing else.
        let _ = serde_json::to_vec(tuned).map(|bytes| cache.put_recorded(&record, &bytes));
    }
    Ok(())
}

/// What the cache has of a record of a schedule.
pub(crate) fn in_table(cache: &ObjectCache, record: &Record) -> Option<Tuned> {
    serde_json::from_slice(&cache.get(record.key())?).ok()
}
