//! Says of a schedule whether the verifier refuses it, and else whether it gives what its loops give.

use litz::{Device, Options};
use litz_analysis::legality;
use litz_codegen::{Realized, passes};
use litz_ir::schedule::{Schedule, ScheduleStep};
use litz_ir::target::Target;
use litz_ir::verify;
use litz_runtime::limits::Limits;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::reference::{DistantDevice, ReferenceDevice, ReferenceOptions};
use litz_runtime::{RunError, Tensor, program::Value};
use litz_testing::subject::Subject;
use litz_testing::{compare, devices};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What became of a mutant.
pub enum Outcome {
    /// The verifier has something against it. `unchecked`: whether its results are right where it runs all the same.
    Refused { slug: String, unchecked: Option<bool> },
    /// The results are those of the loops.
    Right,
    /// It is legal, but realisation or the emitter say that they cannot do it.
    Unsupported(String),
    /// A wrong result, or an error that nobody should see.
    Wrong(String),
}

/// The longest that the verifier takes, built without optimisation on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Executed statements of a call, at most: what runs away is stopped.
const STATEMENTS: u64 = 1 << 26;

/// Orders of the threads of a GPU.
const SEEDS: std::ops::Range<u64> = 1..2;

pub struct Judge {
    pool: Arc<ThreadPool>,
    isas: Vec<litz_ir::target::Isa>,
}

impl Judge {
    pub fn new() -> Judge {
        Judge { pool: Arc::new(ThreadPool::unbound(2)), isas: devices::isas() }
    }

    pub fn is_wrong(&self, subject: &Subject, schedule: &Schedule) -> bool {
        matches!(self.outcome(subject, schedule), Outcome::Wrong(_))
    }

    pub fn outcome(&self, subject: &Subject, schedule: &Schedule) -> Outcome {
        let proved = || catch_unwind(AssertUnwindSafe(|| legality::verify(schedule, &subject.loops)));
        let started = Instant::now();
        let diags = match proved() {
            Ok(diags) => diags,
            Err(panic) => return Outcome::Wrong(format!("the verifier panics: {}", message(&panic))),
        };
        if started.elapsed() > PATIENCE {
            // Others use this machine too.
            let again = Instant::now();
            drop(proved());
            if again.elapsed() > PATIENCE {
                return Outcome::Wrong(format!("the verifier takes {:?}", again.elapsed()));
            }
        }
        let Some(diag) = diags.first() else { return self.accepted(subject, schedule) };
        let slug = diag.slug.to_owned();
        let unchecked = catch_unwind(AssertUnwindSafe(|| unchecked(subject, schedule))).ok().flatten();
        Outcome::Refused { slug, unchecked }
    }

    fn accepted(&self, subject: &Subject, schedule: &Schedule) -> Outcome {
        let caught = catch_unwind(AssertUnwindSafe(|| self.attempt(subject, schedule)));
        match caught {
            Ok(Ok(())) => Outcome::Right,
            Ok(Err(Failure::Unsupported(message))) => Outcome::Unsupported(general(&message)),
            Ok(Err(Failure::Wrong(message))) => Outcome::Wrong(message),
            Err(panic) => Outcome::Wrong(format!("panic: {}", message(&panic))),
        }
    }

    fn attempt(&self, subject: &Subject, schedule: &Schedule) -> Result<(), Failure> {
        let realized = realized(subject, schedule)?;
        let wrong = |what: &str, why: String| Failure::Wrong(format!("{what}: {why}"));
        let device: Device = Arc::new(
            DistantDevice::new(&realized.kernels).map_err(|e| wrong("reference device", e.to_string()))?,
        );
        run(subject, &realized, device, 2).map_err(|why| stopped(schedule, "reference device", why))?;
        if schedule.target.cpu().is_none() {
            return self.interleaved(subject, schedule, realized);
        }
        if !schedule.target.cpu().is_some_and(|cpu| self.isas.contains(&cpu.isa)) {
            return Ok(());
        }
        let device = self.native(&realized, schedule.target)?;
        run(subject, &realized, device, 2).map_err(|why| stopped(schedule, "machine code", why))
    }

    /// Runs kernels in the form that an emitter gets, in orders of their threads that seeds decide.
    fn interleaved(
        &self,
        subject: &Subject,
        schedule: &Schedule,
        mut realized: Realized,
    ) -> Result<(), Failure> {
        let unsupported = |why: String| Failure::Unsupported(why);
        let options = Options { target: Some(schedule.target), ..Options::default() };
        let backend = litz::backend(&options).map_err(|e| unsupported(e.to_string()))?;
        for kernel in &mut realized.kernels {
            passes::run(kernel, backend.passes(), backend.target())
                .map_err(|e| unsupported(e.to_string()))?;
            if let Some(diag) = verify::kernel::verify(kernel).first() {
                return Err(Failure::Wrong(format!("kernel after its passes: {diag}")));
            }
        }
        for seed in SEEDS {
            let options = ReferenceOptions { seed: Some(seed), ..ReferenceOptions::default() };
            let device = ReferenceDevice::with(&realized.kernels, &options);
            let device: Device =
                Arc::new(device.map_err(|e| Failure::Wrong(format!("seeded reference device: {e}")))?);
            run(subject, &realized, device, 1)
                .map_err(|why| stopped(schedule, &format!("reference device of seed {seed}"), why))?;
        }
        Ok(())
    }

    fn native(&self, realized: &Realized, target: Target) -> Result<Device, Failure> {
        let options = Options { threads: 1, target: Some(target), ..Options::default() };
        let fail =
            |why: String| match [": unsupported: ", "[no-instruction]"].iter().any(|slug| why.contains(slug))
            {
                true => Failure::Unsupported(why),
                false => Failure::Wrong(format!("machine code: {why}")),
            };
        let backend = litz::backend(&options).map_err(|e| fail(e.to_string()))?;
        let mut kernels = realized.kernels.clone();
        let lower = |kernel| passes::run(kernel, backend.passes(), backend.target());
        kernels.iter_mut().try_for_each(lower).map_err(|e| fail(e.to_string()))?;
        let objects =
            litz::compile_kernels(&*backend, &kernels, &options, None).map_err(|e| fail(e.to_string()))?;
        let pool = || Arc::clone(&self.pool);
        backend.load(&realized.kernels, &objects, &pool).map_err(|e| fail(e.to_string()))
    }
}

enum Failure {
    Unsupported(String),
    Wrong(String),
}

/// Why a run did not give the right results.
enum Stop {
    /// It takes more statements than a run may.
    Limit(String),
    Other(String),
}

/// What is to be said of a run that a device stopped. Where each point is taken once, nothing takes too long; what a kernel keeps for
/// itself may be computed again as often as a schedule says.
fn stopped(schedule: &Schedule, device: &str, why: Stop) -> Failure {
    let may_repeat = schedule.steps.iter().any(|step| match step {
        ScheduleStep::Kernel(plan) => plan.locals().iter().any(|local| local.buffer().is_some()),
        ScheduleStep::Extern { .. } => false,
    });
    match why {
        Stop::Limit(why) if may_repeat => Failure::Unsupported(why),
        Stop::Limit(why) | Stop::Other(why) => Failure::Wrong(format!("{device}: {why}")),
    }
}

/// Kernels and program, all verified.
fn realized(subject: &Subject, schedule: &Schedule) -> Result<Realized, Failure> {
    let realized = litz_codegen::realize(&subject.loops, schedule);
    let realized = realized.map_err(|diags| Failure::Unsupported(diags[0].to_string()))?;
    let wrong = |what: &str, diags: litz_ir::Diags| match diags.first() {
        Some(diag) => Err(Failure::Wrong(format!("{what}: {diag}"))),
        None => Ok(()),
    };
    for kernel in &realized.kernels {
        wrong("kernel", verify::kernel::verify(kernel))?;
    }
    wrong("program", verify::program::verify(&realized.program))?;
    Ok(realized)
}

/// Whether a schedule that is refused gives the right results. None where it cannot run.
fn unchecked(subject: &Subject, schedule: &Schedule) -> Option<bool> {
    let realized = realized(subject, schedule).ok()?;
    let device: Device = Arc::new(DistantDevice::new(&realized.kernels).ok()?);
    Some(run(subject, &realized, device, 1).is_ok())
}

/// Runs what a schedule became so many times, and compares: the second call finds the memory that the first one left.
fn run(subject: &Subject, realized: &Realized, device: Device, calls: usize) -> Result<(), Stop> {
    let limits = Limits { iterations: STATEMENTS, call_bytes: 1 << 26, ..Limits::default() };
    let options = RunOptions { limits, ..RunOptions::default() };
    let fail = |error: RunError| match error {
        RunError::Limit(_) => Stop::Limit(error.to_string()),
        _ => Stop::Other(error.to_string()),
    };
    let executable =
        Executable::with_options(&realized.program, &realized.kernels, device, &subject.weights, &options)
            .map_err(fail)?;
    for _ in 0..calls {
        let outputs = executable.run(&subject.inputs).map_err(fail)?;
        compare::results(&outputs, &subject.expected).map_err(Stop::Other)?;
        if subject.is_exact {
            let wanted: Vec<Value> = subject.expected.iter().map(|expected| expected.value.clone()).collect();
            let numbers = |values: &[Value]| {
                values.iter().filter_map(Value::tensor).map(Tensor::to_f64).collect::<Vec<_>>()
            };
            let (found, wanted) = (numbers(&outputs), numbers(&wanted));
            if found != wanted {
                return Err(Stop::Other(format!("expected {wanted:?}\nfound {found:?}")));
            }
        }
    }
    Ok(())
}

/// The beginning of a message, without numbers.
pub fn general(message: &str) -> String {
    message.chars().filter(|c| !c.is_ascii_digit()).take(120).collect()
}

fn message(panic: &Box<dyn std::any::Any + Send>) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
