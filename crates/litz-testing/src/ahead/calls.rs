//! Compiles recorded calls of operators and random models ahead of time, and compares what they give with the interpreter of loops.

use std::collections::HashMap;
use std::path::Path;

use litz::ahead::Names;
use litz::{Error, Options};
use litz_ir::Dtype;
use litz_ir::dtype::Kind;
use litz_ir::graph::Graph;
use litz_ir::loops::{LINEAR, Loops};
use litz_ir::parallel::parallel;
use litz_ir::program::{Program, ProgramStep};
use litz_runtime::RunError;

use super::{Failed, Machine, Outcome, Subject, write};
use crate::cases::Case;
use crate::compare::{self, Expected};
use crate::devices;
use crate::filetest::slug;
use crate::models::Call;
use crate::trial::{self, TrialTarget};

/// Calls of a program that was compiled: what was written, and what they have to give.
pub struct CallTest {
    subject: Subject,
    check: CallCheck,
}

/// What calls have to give.
pub struct CallCheck {
    /// Where they are from.
    pub name: String,
    expected: Vec<Result<Vec<Expected>, RunError>>,
}

impl CallTest {
    /// What was written, and what the calls have to give.
    pub fn split(self) -> (Subject, CallCheck) {
        (self.subject, self.check)
    }
}

/// A test, or its name and why it is refused.
pub type Prepared = Result<CallTest, (String, String)>;

/// Compiles recorded calls of a family, several at a time.
///
/// # Errors
/// Calls that do not compile, and are not refused.
pub fn case_tests(
    folder: &Path,
    machine: Machine,
    family: &str,
    cases: &[Case],
) -> Result<Vec<Prepared>, String> {
    all(cases.len(), |at| {
        let case = &cases[at];
        let name = format!("{family}:{} {}", case.line, case.op);
        let failed = |why: String| format!("{name}: {why}");
        let graph = case.graph().map_err(failed)?;
        let call = Call { sizes: HashMap::new(), inputs: case.inputs(), weights: HashMap::new() };
        // Numbers of threads alternate.
        let options = devices::options(machine.isa(), if at % 2 == 0 { 1 } else { 3 });
        prepare(folder, name.clone(), &format!("c{at}"), &graph, &[call], &options)
    })
}

/// Compiles random models from number `first` on, several at a time. Those that are for GPUs are left out.
///
/// # Errors
/// Models that do not compile, and are not refused.
pub fn random_tests(
    folder: &Path,
    machine: Machine,
    seed: u64,
    (first, count): (u64, usize),
) -> Result<Vec<Prepared>, String> {
    let all = all(count, |at| {
        let number = first + at as u64;
        let (model, TrialTarget { info, options }) = trial::numbered(seed, number, &[machine.isa()]);
        if info.cpu().is_none() {
            return Ok(None);
        }
        let calls: Vec<Call> = (0..model.bindings.len()).map(|at| model.call(at)).collect();
        let (name, id) = (format!("random {number}"), format!("r{at}"));
        prepare(folder, name, &id, &model.graph, &calls, &options).map(Some)
    })?;
    Ok(all.into_iter().flatten().collect())
}

fn all<T: Send>(count: usize, one: impl Fn(usize) -> Result<T, String> + Sync) -> Result<Vec<T>, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    parallel(threads, count, one).into_iter().collect()
}

fn prepare(
    folder: &Path,
    name: String,
    id: &str,
    graph: &Graph,
    calls: &[Call],
    options: &Options,
) -> Result<Prepared, String> {
    let written = devices::definition(graph).and_then(|loops: Loops| {
        let mut expected: Vec<_> = calls.iter().map(|call| devices::interpret(&loops, call)).collect();
        let backend = litz::backend(options)?;
        let (realized, _) = devices::realize_any(graph.clone(), &*backend, options)?;
        if calls_linear_algebra(&realized.program) {
            expected.iter_mut().flatten().flatten().for_each(doubt);
        }
        // The second round finds the memory that the first one left; state would be another then.
        let program = &realized.program;
        let is_state = |slot| program.consts.iter().any(|constant| constant.slot == slot);
        let rounds = if program.updates.iter().any(|update| is_state(update.0)) { 1 } else { 2 };
        let inputs = (0..rounds).flat_map(|_| calls).map(|call| call.inputs.clone()).collect();
        let none = HashMap::new();
        let weights = calls.first().map_or(&none, |call| &call.weights);
        let parts = (&realized, &Names::default(), weights as &dyn litz_runtime::weights::Weights);
        Ok((write(folder, id, parts, &*backend, options, inputs)?, expected))
    });
    match written {
        Ok((subject, expected)) => Ok(Ok(CallTest { subject, check: CallCheck { name, expected } })),
        Err(error @ (Error::Unsupported(_) | Error::Invalid(_))) => Ok(Err((name, error.to_string()))),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Whether a program calls routines of linear algebra: the interpreter takes the results of the runtime's, whose order of additions is another.
fn calls_linear_algebra(program: &Program) -> bool {
    let all = program.all();
    let mut steps = all.iter().flat_map(|program| &program.steps);
    steps
        .any(|step| matches!(step, ProgramStep::Extern { routine, .. } if LINEAR.contains(&routine.as_str())))
}

/// Adds to the doubts of a result what sums of a few products in double precision may be apart.
fn doubt(expected: &mut Expected) {
    let Some(tensor) = expected.value.tensor().filter(|tensor| tensor.dtype().kind() >= Kind::Float) else {
        return;
    };
    let largest =
        tensor.to_f64().into_iter().filter(|x| x.is_finite()).fold(0f64, |most, x| most.max(x.abs()));
    let unit = if tensor.dtype() == Dtype::F64 { 1e-13 } else { 1e-6 };
    expected.doubts.iter_mut().for_each(|doubt| *doubt += unit * largest);
}

impl CallCheck {
    /// Compares what the calls gave.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let found = outcome.as_ref().map_err(Clone::clone)?;
        for (at, (found, expected)) in found.iter().zip(self.expected.iter().cycle()).enumerate() {
            let said = |why: &str| Err(format!("call {at}: {why}"));
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    compare::results(found, expected).map_err(|why| format!("call {at}: {why}"))?;
                }
                (Err(found), Err(expected)) if fail_alike(found, expected) => {}
                // What nothing uses is not computed, and its indices are not checked.
                (Ok(_), Err(RunError::BadIndex { .. })) => {}
                (Ok(_), Err(expected)) => return said(&format!("expected the failure `{expected}`")),
                (Err(Failed { status, text }), _) => return said(&format!("{status}: {text}")),
            }
        }
        Ok(())
    }
}

/// As [`compare::fail_alike`]: failures of sizes are one kind.
fn fail_alike(found: &Failed, expected: &RunError) -> bool {
    let of_sizes = ["wrong-size", "size-out-of-range", "check-failed"];
    let expected = slug(expected);
    found.status == expected || of_sizes.contains(&found.status) && of_sizes.contains(&expected)
}
