//! Compiles and calls one case in this process, and says how that ended.

use crate::backends::{self, Device};
use crate::case::{Case, beside};
use crate::compare;
use crate::compiled::run_options;
use crate::definition::definition;
use crate::error::{Error, Whose, whose};
use crate::options::{Options, PoolOption};
use crate::pipeline;
use crate::reproducer::{self, message};
use crate::runner::{Runner, Stage};
use litz_backend::Backend;
use litz_codegen::Realized;
use litz_runtime::RunError;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{ConstantSource, Executable};
use litz_runtime::reference::{self, ReferenceDevice};
use litz_runtime::weights::Weights;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// What an attempt looks for; each goes further than the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Check {
    /// Errors of the compiler and crashes: nothing is called.
    Compile,
    /// The same of a call.
    Crash,
    /// Also a step that makes a NaN or an infinite number of others: see [`Options::check_nan`].
    Nan,
    /// Errors, crashes, and results that are not those of the interpreter of loops.
    Verify,
}

impl Check {
    /// All of them.
    pub const ALL: [Check; 4] = [Check::Compile, Check::Crash, Check::Nan, Check::Verify];

    /// What it is called on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Check::Compile => "compile",
            Check::Crash => "crash",
            Check::Nan => "nan",
            Check::Verify => "verify",
        }
    }
}

impl FromStr for Check {
    type Err = String;

    fn from_str(name: &str) -> Result<Check, String> {
        let found = Check::ALL.into_iter().find(|check| check.name() == name);
        found.ok_or_else(|| format!("expected one of {}", Check::ALL.map(Check::name).join(", ")))
    }
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Outcome {
    /// Nothing of what was looked for.
    Right,
    /// The case is none: its graph, or its call, is refused.
    Refused(String),
    /// An error of ours.
    Failed {
        /// The stage or pass, or `run`.
        step: String,
        /// What it says.
        message: String,
    },
    /// A result is not what the interpreter of loops gives.
    Wrong {
        /// Which one.
        output: usize,
        /// How it differs.
        message: String,
    },
    /// A step has made a NaN or an infinite number.
    NotFinite(String),
    /// The process was ended by a signal.
    Crashed {
        /// What it was doing.
        step: String,
        /// Its number.
        signal: i32,
    },
    /// It took longer than it was given.
    Endless {
        /// What it was doing.
        step: String,
    },
}

impl Outcome {
    /// The command that shows it, of a case in this file.
    pub fn command(&self, path: &Path, options: &Options) -> String {
        let (path, beside, flags) = (path.display(), beside(path), reproducer::flags(options));
        let beside = beside.display();
        match self {
            Outcome::Wrong { .. } | Outcome::Right | Outcome::Refused(_) => {
                format!("litz verify {path} --reference --data {beside}{flags}")
            }
            Outcome::NotFinite(_) => format!("litz run {path} --inputs {beside} --check-nan{flags}"),
            Outcome::Failed { .. } | Outcome::Crashed { .. } | Outcome::Endless { .. } => {
                format!("litz run {path} --inputs {beside}{flags}")
            }
        }
    }

    /// Whether this is a failure.
    pub fn is_failure(&self) -> bool {
        match self {
            Outcome::Right | Outcome::Refused(_) => false,
            Outcome::Failed { .. }
            | Outcome::Wrong { .. }
            | Outcome::NotFinite(_)
            | Outcome::Crashed { .. }
            | Outcome::Endless { .. } => true,
        }
    }

    /// Whether another attempt failed in the same way: messages may differ in names and numbers.
    pub fn is_like(&self, other: &Outcome) -> bool {
        match (self, other) {
            (Outcome::Wrong { .. }, Outcome::Wrong { .. })
            | (Outcome::NotFinite(_), Outcome::NotFinite(_)) => true,
            (Outcome::Failed { step, message }, Outcome::Failed { step: s, message: m }) => {
                step == s && words(message) == words(m)
            }
            (Outcome::Crashed { step, signal }, Outcome::Crashed { step: s, signal: n }) => {
                (step, signal) == (s, n)
            }
            (Outcome::Endless { step }, Outcome::Endless { step: s }) => step == s,
            (Outcome::Right | Outcome::Refused(_), _)
            | (
                Outcome::Wrong { .. }
                | Outcome::NotFinite(_)
                | Outcome::Failed { .. }
                | Outcome::Crashed { .. }
                | Outcome::Endless { .. },
                _,
            ) => false,
        }
    }
}

/// The words of a message that name nothing: no digits, and no quotation marks around them.
fn words(message: &str) -> Vec<&str> {
    let is_plain = |word: &&str| {
        let word = word.trim_matches(|c: char| ".,:;()[]".contains(c));
        word.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
    };
    message.lines().next().unwrap_or("").split_whitespace().filter(is_plain).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Right => f.write_str("nothing is wrong"),
            Outcome::Refused(why) => write!(f, "refused: {why}"),
            Outcome::Failed { step, message } => write!(f, "{step} fails: {message}"),
            Outcome::Wrong { message, .. } => write!(f, "wrong numbers: {message}"),
            Outcome::NotFinite(message) => f.write_str(message),
            Outcome::Crashed { step, signal } => write!(f, "ended by signal {signal} in {step}"),
            Outcome::Endless { step } => write!(f, "no end of {step}"),
        }
    }
}

/// The step that the interpreter of loops takes.
pub(crate) const DEFINITION: &str = "definition";

/// Compiles a case, calls it and compares, as far as `check` says. `say` is told of each step before it begins. Panics are failures; what ends
/// the process is the caller's to notice.
pub fn attempt(case: &Case, options: &Options, check: Check, say: &mut dyn FnMut(&str)) -> Outcome {
    let mut step = "start".to_owned();
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut told = |name: &str| {
            name.clone_into(&mut step);
            say(name);
        };
        outcome(case, options, check, &mut told)
    }));
    tried.unwrap_or_else(|panic| Outcome::Failed { step, message: message(panic.as_ref()).to_owned() })
}

fn outcome(case: &Case, options: &Options, check: Check, say: &mut dyn FnMut(&str)) -> Outcome {
    let options =
        Options { cache: None, check_nan: options.check_nan || check == Check::Nan, ..options.clone() };
    let mut run = Runner::new(options.verify, options.dump.clone(), say);
    let executable = match executable(case, &options, check, &mut run) {
        Ok(Some(executable)) => executable,
        Ok(None) => return Outcome::Right,
        Err(error) => return of_error(error),
    };
    let found = run.step("run", || executable.run(&case.inputs));
    let found = match found {
        Ok(_) if check != Check::Verify => return Outcome::Right,
        Err(error) if is_ours(&error) || check != Check::Verify => return of_run(error),
        found => found,
    };
    let expected = match &case.expected {
        Some(expected) => Ok(expected.clone()),
        None => match run.step(DEFINITION, || interpret(case)) {
            Ok(expected) => expected,
            Err(error) => return of_error(error),
        },
    };
    match (found, expected) {
        (Ok(found), Ok(expected)) if found.len() == expected.len() => {
            let each = found.iter().zip(&expected).enumerate();
            let mut wrong = each.filter_map(|(output, (found, expected))| {
                let why =
                    compare::results(std::slice::from_ref(found), std::slice::from_ref(expected)).err()?;
                let message = format!("out.{output}{}", why.strip_prefix("out.0").unwrap_or(&why));
                Some(Outcome::Wrong { output, message })
            });
            wrong.next().unwrap_or(Outcome::Right)
        }
        (Ok(found), Ok(expected)) => {
            let message = format!("{} results, expected {}", found.len(), expected.len());
            Outcome::Wrong { output: 0, message }
        }
        // What nothing uses is not computed, and its indices are not checked.
        (Ok(_), Err(RunError::BadIndex { .. })) => Outcome::Right,
        (Err(found), Err(expected)) if compare::fail_alike(&found, &expected) => {
            Outcome::Refused(found.to_string())
        }
        (Ok(_), Err(expected)) => {
            Outcome::Wrong { output: 0, message: format!("expected the failure `{expected}`") }
        }
        (Err(found), _) => Outcome::Wrong { output: 0, message: format!("the call fails: {found}") },
    }
}

/// What a case has to return, or what its call has to end with.
///
/// # Errors
/// When the graph uses something unsupported.
pub fn interpret(case: &Case) -> Result<Result<Vec<compare::Expected>, RunError>, Error> {
    let loops = definition(&case.graph)?;
    let results = reference::loops::run(&loops, &case.sizes(), &case.inputs, &case.weights);
    Ok(results.map(|results| compare::expected(&loops, results)))
}

/// What runs a case; none where it is only compiled.
fn executable(
    case: &Case,
    options: &Options,
    check: Check,
    run: &mut Runner<'_>,
) -> Result<Option<Executable>, Error> {
    let backend = backends::backend(options)?;
    if !options.reference {
        backend.check_machine().map_err(Error::unsupported)?;
    }
    let texts = pipeline::compile(case.graph.clone(), &*backend, options, Stage::Program, run)?;
    let realized = texts.realized.as_ref().ok_or_else(|| Error::bug("realize", "it gave nothing"))?;
    let device = device(&*backend, realized, options, run)?;
    if check == Check::Compile {
        return Ok(None);
    }
    run.step("weights", || load(realized, device, options, &case.weights)).map(Some)
}

/// The device that options ask for, with a program's kernels.
///
/// # Errors
/// When a kernel breaks the rules of kernels, or cannot be compiled or loaded.
pub(crate) fn device(
    backend: &dyn Backend,
    realized: &Realized,
    options: &Options,
    run: &mut Runner<'_>,
) -> Result<Device, Error> {
    if options.reference {
        return Ok(Arc::new(ReferenceDevice::with(&realized.kernels, &options.reference_options)?));
    }
    let objects =
        run.step("kernels", || backends::compile_kernels(backend, &realized.kernels, options, None))?;
    let threads = || match &options.pool {
        Some(PoolOption(pool)) => Arc::clone(pool),
        None => Arc::new(ThreadPool::unbound(options.threads)),
    };
    Ok(run.step("load", || backend.load(&realized.kernels, &objects, &threads))?)
}

/// A program with its constants, on a device.
///
/// # Errors
/// What loading it ends with.
pub(crate) fn load(
    realized: &Realized,
    device: Device,
    options: &Options,
    weights: &dyn Weights,
) -> Result<Executable, Error> {
    let (program, kernels) = (&realized.program, &realized.kernels);
    let (device, devices) = backends::devices(program, kernels, device)?;
    let options = run_options(options, devices, ConstantSource::Model);
    Ok(Executable::with_options(program, kernels, device, weights, &options)?)
}

fn of_error(error: Error) -> Outcome {
    match error {
        Error::Bug { stage, message, .. } => Outcome::Failed { step: stage.to_owned(), message },
        Error::Run(error) => of_run(error),
        Error::Io { .. }
        | Error::Import(_)
        | Error::Unsupported(_)
        | Error::Invalid(_)
        | Error::Limit(_)
        | Error::Cache(_)
        | Error::Stopped
        | Error::Artifact(_) => Outcome::Refused(error.to_string()),
    }
}

fn of_run(error: RunError) -> Outcome {
    let message = error.to_string();
    if let RunError::NotFinite { .. } = error {
        Outcome::NotFinite(message)
    } else if is_ours(&error) {
        Outcome::Failed { step: "run".to_owned(), message }
    } else {
        Outcome::Refused(message)
    }
}

/// Whether a call ended so through a mistake of Litz, whatever the interpreter says of it.
fn is_ours(error: &RunError) -> bool {
    whose(error) == Whose::Litz
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::text;
    use litz_runtime::Tensor;
    use std::collections::HashMap;

    fn case(values: &[f32]) -> Case {
        let graph = text::graph::parse(
            "graph @g on cpu {\n  %x: f32[4] = input\n  %y: f32[4] = aten.log.default(%x)\n  return %y\n}\n",
        );
        let inputs = vec![Tensor::from_slice(&[4], values).expect("lengths match")];
        Case { graph: graph.expect("it parses"), inputs, weights: HashMap::new(), expected: None }
    }

    #[test]
    fn a_case_is_right_wrong_or_not_finite() {
        let ends = |case: &Case, check| attempt(case, &Options::default(), check, &mut |_| {});
        let good = case(&[1.0, 2.0, 3.0, 4.0]);
        for check in Check::ALL {
            assert_eq!(ends(&good, check), Outcome::Right, "{}", check.name());
        }
        let bad = case(&[1.0, 2.0, -3.0, 4.0]);
        assert_eq!(ends(&bad, Check::Verify), Outcome::Right);
        let Outcome::NotFinite(message) = ends(&bad, Check::Nan) else { panic!("expected a NaN") };
        assert!(message.contains("[2]"), "{message}");
        let zeros = Tensor::zeros(litz_ir::Dtype::F32, &[4], &[1]).expect("it has room");
        let value = litz_runtime::program::Value::Tensor(zeros);
        let expected = Some(vec![compare::Expected { value, doubts: vec![0.0; 4] }]);
        let Outcome::Wrong { output: 0, message } = ends(&Case { expected, ..good.clone() }, Check::Verify)
        else {
            panic!("expected another number")
        };
        assert!(message.starts_with("out.0: element 1: "), "{message}");
        let none = Case { inputs: Vec::new(), ..good };
        assert!(matches!(ends(&none, Check::Crash), Outcome::Refused(_)));
    }

    #[test]
    fn failures_are_alike_but_for_names_and_numbers() {
        let failed = |step: &str, message: &str| Outcome::Failed {
            step: step.to_owned(),
            message: message.to_owned(),
        };
        let one = failed("lower", "no buffer `n12` of 3 dimensions");
        assert!(one.is_like(&failed("lower", "no buffer `add_7` of 4 dimensions")));
        assert!(!one.is_like(&failed("fold", "no buffer `n12` of 3 dimensions")));
        assert!(!one.is_like(&failed("lower", "no axis `n12` of 3 dimensions")));
        assert!(!one.is_like(&Outcome::Right) && !Outcome::Right.is_like(&Outcome::Right));
    }
}
