//! Makes attempts in processes of their own, so that a crash, or a call without end, is an outcome like others.
//!
//! The child prints a line for each step that it begins, and last how the attempt ended:
//!
//! ```text
//! step schedule
//! step kernels
//! outcome {"Wrong":{"output":0,"message":"out.0: element 3: 1e0, expected 2e0 within 1e-6"}}
//! ```

use crate::attempt::{self, Check, Outcome};
use crate::case::Case;
use crate::error::Error;
use crate::options::Options;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Starts attempts of one model.
pub struct Children<'a> {
    /// A command that calls [`answer`] for the case in this file, with this check.
    pub command: &'a dyn Fn(&Path, Check) -> Command,
    /// How long one may take.
    pub limit: Duration,
    folder: tempfile::TempDir,
}

/// What a child does before its first step: it reads the case.
const START: &str = "start";

/// How often a parent looks whether its child has ended.
const EACH: Duration = Duration::from_millis(2);

impl<'a> Children<'a> {
    /// Children that this command starts and that take so long at most.
    ///
    /// # Errors
    /// Where there is no room for the files of cases.
    pub fn new(command: &'a dyn Fn(&Path, Check) -> Command, limit: Duration) -> Result<Children<'a>, Error> {
        let folder = tempfile::Builder::new().prefix("litz-minify-").tempdir();
        let folder = folder.map_err(|source| Error::Io { path: std::env::temp_dir(), source })?;
        Ok(Children { command, limit, folder })
    }

    /// Attempts a case in a child.
    ///
    /// # Errors
    /// Where the case cannot be written, or no process started.
    pub fn attempt(&self, case: &Case, check: Check) -> Result<Outcome, Error> {
        let path = self.folder.path().join("case.litz");
        match check {
            // Nothing is called.
            Check::Compile => case.write_graph(&path)?,
            Check::Crash | Check::Nan | Check::Verify => case.write(&path)?,
        }
        let mut command = (self.command)(&path, check);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let program = || PathBuf::from(command.get_program());
        let mut child = started.map_err(|source| Error::Io { path: program(), source })?;
        let out = child.stdout.take().expect("invariant: it is piped");
        let reader = std::thread::spawn(move || read(out));
        let status = wait(&mut child, self.limit).map_err(|source| Error::Io { path: program(), source })?;
        let (step, said) = reader.join().unwrap_or_default();
        Ok(match (status, said) {
            (None, _) if step == START => Outcome::Refused(format!(
                "reading it takes longer than {} s: give more time",
                self.limit.as_secs_f64()
            )),
            (None, _) if step == attempt::DEFINITION => {
                let limit = self.limit.as_secs_f64();
                Outcome::Refused(format!(
                    "the interpreter takes longer than {limit} s: give smaller inputs, or more time"
                ))
            }
            (None, _) => Outcome::Endless { step },
            (Some(_), Some(outcome)) => outcome,
            (Some(status), None) => match signal(status) {
                Some(signal) => Outcome::Crashed { step, signal },
                None => Outcome::Failed { step, message: format!("the process ended with {status}") },
            },
        })
    }
}

/// What a child does: attempts the case in a file, and prints how that went.
///
/// # Errors
/// When the case cannot be read, or nobody reads what is printed.
pub fn answer(path: &Path, options: &Options, check: Check) -> Result<(), Error> {
    let case = match check {
        Check::Compile => Case::read_graph(path)?,
        Check::Crash | Check::Nan | Check::Verify => Case::read(path)?,
    };
    // What panics is an outcome.
    std::panic::set_hook(Box::new(|_| {}));
    let mut out = std::io::stdout();
    let outcome = attempt::attempt(&case, options, check, &mut |step| {
        // A parent that is gone needs no answer.
        let _ = writeln!(out, "step {step}").and_then(|()| out.flush());
    });
    let text = serde_json::to_string(&outcome).expect("invariant: outcomes are strings and numbers");
    let written = writeln!(out, "outcome {text}").and_then(|()| out.flush());
    written.map_err(|source| Error::Io { path: "standard output".into(), source })
}

/// The last step that a child began, and how it says that the attempt ended.
fn read(out: impl Read) -> (String, Option<Outcome>) {
    let (mut step, mut outcome) = (START.to_owned(), None);
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        if let Some(name) = line.strip_prefix("step ") {
            name.clone_into(&mut step);
        } else if let Some(text) = line.strip_prefix("outcome ") {
            outcome = serde_json::from_str(text).ok();
        }
    }
    (step, outcome)
}

/// Waits for a child to end; none where it had to be ended.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(EACH);
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::text;
    use std::collections::HashMap;

    fn outcome(script: &str) -> Outcome {
        let graph = text::graph::parse("graph @g on cpu {\n  return 1\n}\n").expect("it parses");
        let case = Case { graph, inputs: Vec::new(), weights: HashMap::new(), expected: None };
        let command = |_: &Path, _: Check| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let children = Children::new(&command, Duration::from_millis(300)).expect("there is room");
        children.attempt(&case, Check::Verify).expect("it starts")
    }

    #[test]
    fn whatever_becomes_of_a_child_is_an_outcome() {
        let step = "lower".to_owned();
        assert_eq!(outcome("echo step lower; echo 'outcome \"Right\"'"), Outcome::Right);
        assert_eq!(
            outcome("echo step lower; kill -9 $$"),
            Outcome::Crashed { step: step.clone(), signal: 9 }
        );
        assert_eq!(outcome("echo step lower; exec sleep 60"), Outcome::Endless { step: step.clone() });
        let Outcome::Failed { step: found, message } = outcome("echo step lower; exit 7") else {
            panic!("expected a failure")
        };
        assert!(found == step && message.contains('7'), "{message}");
    }
}
