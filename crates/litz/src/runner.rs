//! Watches every stage: timing, verification, dumps, progress.

use crate::error::Error;
use crate::options::{Options, Verify};
use litz_ir::Diags;
use litz_runtime::limits::Limit;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A stage's name and how long it took.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Name: of the stage, or of a pass within it.
    pub name: String,
    /// Wall time.
    pub time: Duration,
}

/// The five texts, by the names that `--to` and `--from` take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// ATen operators on whole tensors.
    Graph,
    /// Nests over index expressions.
    Loops,
    /// How nests run.
    Schedule,
    /// Kernels with the schedule applied.
    Kernel,
    /// The wrapper.
    Program,
}

impl Stage {
    /// Every stage in order.
    pub const ALL: [Stage; 5] = [Stage::Graph, Stage::Loops, Stage::Schedule, Stage::Kernel, Stage::Program];

    /// The noun.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Graph => "graph",
            Stage::Loops => "loops",
            Stage::Schedule => "schedule",
            Stage::Kernel => "kernel",
            Stage::Program => "program",
        }
    }

    /// The stage of that name.
    pub fn from_name(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// Runs stages and watches them.
pub struct Runner<'a> {
    /// What is verified.
    pub verify: Verify,
    /// Where texts are written to.
    pub dump: Option<PathBuf>,
    /// Told before each step what is about to run.
    pub progress: &'a mut dyn FnMut(&str),
    /// What each step took, in order.
    pub timings: Vec<Timing>,
    files: usize,
}

impl<'a> Runner<'a> {
    /// A runner that tells `progress` what runs.
    pub fn new(verify: Verify, dump: Option<PathBuf>, progress: &'a mut dyn FnMut(&str)) -> Runner<'a> {
        Runner { verify, dump, progress, timings: Vec::new(), files: 0 }
    }

    /// Runs one step under its name.
    pub fn step<T>(&mut self, name: &str, step: impl FnOnce() -> T) -> T {
        (self.progress)(name);
        let start = Instant::now();
        let result = step();
        self.timings.push(Timing { name: name.to_owned(), time: start.elapsed() });
        result
    }

    /// Fails where all steps together have taken longer than allowed, and where compiling is to stop.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Stopped`].
    pub fn may_go_on(&self, options: &Options) -> Result<(), Error> {
        options.check_stop()?;
        let taken: Duration = self.timings.iter().map(|timing| timing.time).sum();
        // A limit in whole milliseconds is exceeded by what is longer, however little.
        let milliseconds = u64::try_from(taken.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Ok(options.limits.check(Limit::CompileTime, milliseconds)?)
    }

    /// Notes what it took to verify what a step gave, all that it gave together.
    fn verified(&mut self, name: &str, time: Duration) {
        let name = format!("verify {name}");
        match self.timings.last_mut() {
            Some(last) if last.name == name => last.time += time,
            Some(_) | None => self.timings.push(Timing { name, time }),
        }
    }

    /// Dumps what a step gave.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be written.
    pub fn dump<T: Display>(&mut self, name: &'static str, what: &T) -> Result<(), Error> {
        self.write(format_args!("{name}.litz"), what)
    }

    /// Dumps what a stage decided on its way, which is no text of a stage.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be written.
    pub fn dump_decision<T: Display>(&mut self, name: &'static str, what: &T) -> Result<(), Error> {
        self.write(format_args!("{name}.txt"), what)
    }

    fn write<T: Display>(&mut self, name: fmt::Arguments<'_>, what: &T) -> Result<(), Error> {
        let Some(dir) = &self.dump else { return Ok(()) };
        let path = dir.join(format!("{:02}.{name}", self.files));
        self.files += 1;
        let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, what.to_string()));
        written.map_err(|source| Error::Io { path, source })
    }

    /// Dumps what a step gave, and verifies it where as much as `level` is to be verified.
    ///
    /// # Errors
    /// [`Error::Bug`] when the verifier rejects it.
    pub fn check<T: Display>(
        &mut self,
        level: Verify,
        name: &'static str,
        what: &T,
        verify: impl FnOnce(&T) -> Diags,
    ) -> Result<(), Error> {
        self.dump(name, what)?;
        if self.verify < level {
            return Ok(());
        }
        let start = Instant::now();
        let diags = verify(what);
        self.verified(name, start.elapsed());
        diags.first().map_or(Ok(()), |first| Err(Error::bug(name, first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::Diag;

    #[test]
    fn what_is_verified_is_chosen() {
        let is_found = |chosen: Verify, level: Verify| {
            let mut quiet = |_: &str| {};
            let mut run = Runner::new(chosen, None, &mut quiet);
            run.check(level, "stage", &"text", |_| vec![Diag::new("wrong", "it is wrong")]).is_err()
        };
        let [nothing, stages, passes] = [Verify::Nothing, Verify::Stages, Verify::Passes];
        assert_eq!([nothing, stages, passes].map(|chosen| is_found(chosen, stages)), [false, true, true]);
        assert_eq!([nothing, stages, passes].map(|chosen| is_found(chosen, passes)), [false, false, true]);
    }

    #[test]
    fn what_verifying_takes_is_one_timing_for_each_step() {
        let mut quiet = |_: &str| {};
        let mut run = Runner::new(Verify::Stages, None, &mut quiet);
        for name in ["kernel", "kernel", "program"] {
            run.check(Verify::Stages, name, &"text", |_| Vec::new()).expect("nothing is wrong");
        }
        let names: Vec<&str> = run.timings.iter().map(|timing| &*timing.name).collect();
        assert_eq!(names, ["verify kernel", "verify program"]);
    }
}
