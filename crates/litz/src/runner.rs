//! What happens around every stage: timing, verification, dumps, progress.

use crate::error::Error;
use litz_ir::Diags;
use std::fmt::Display;
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
    /// Verify what stages give.
    pub verify: bool,
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
    pub fn new(verify: bool, dump: Option<PathBuf>, progress: &'a mut dyn FnMut(&str)) -> Runner<'a> {
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

    /// Verifies and dumps what a step gave.
    ///
    /// # Errors
    /// [`Error::Bug`] when the verifier rejects it.
    pub fn check<T: Display>(
        &mut self,
        name: &'static str,
        what: &T,
        verify: impl FnOnce(&T) -> Diags,
    ) -> Result<(), Error> {
        if let Some(dir) = &self.dump {
            let path = dir.join(format!("{:02}.{name}.litz", self.files));
            self.files += 1;
            let written = std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&path, what.to_string()));
            written.map_err(|source| Error::Io { path, source })?;
        }
        if self.verify
            && let Some(first) = verify(what).first()
        {
            return Err(Error::bug(name, first));
        }
        Ok(())
    }
}
