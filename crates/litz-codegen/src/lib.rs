//! Applies a schedule to a loops program, giving kernels and the program around them.
//!
//! This crate does, it never decides: everything that could be one way or another is in the schedule.

#![forbid(unsafe_code)]
// What a new variant needs, the compiler lists.
#![warn(clippy::wildcard_enum_match_arm)]

mod alike;
mod dedupe;
mod kernel;
pub mod passes;
mod program;
mod queues;
mod routine;
mod settled;

use litz_analysis::copies::with_copies;
use litz_analysis::results::with_results;
use litz_analysis::rounded::Rounded;
use litz_ir::kernel::Kernel;
use litz_ir::loops::{Buf, Loops, Nest, Stmt};
use litz_ir::program::{Program, ProgramStep};
use litz_ir::schedule::{Reuse, Schedule, ScheduleStep};
use litz_ir::target::Target;
use litz_ir::{Diag, Diags};
use settled::Settled;
use std::collections::{HashMap, HashSet};

pub use dedupe::dedupe;

/// What a schedule and its loops become.
#[derive(Clone, Debug)]
pub struct Realized {
    /// Kernels, in order of first launch; equal ones only once.
    pub kernels: Vec<Kernel>,
    /// The wrapper.
    pub program: Program,
    /// For each kernel, how many of the schedule's kernels, and of those of its routines, it serves.
    pub shared: Vec<usize>,
}

impl Realized {
    /// Whether a kernel is one of a routine: it realizes no nest of the schedule's.
    pub fn is_of_routine(&self, name: &str) -> bool {
        self.kernels.iter().any(|kernel| kernel.name == name && kernel.from.is_empty())
    }

    /// The kernels that a call launches, one for each step of the schedule that is a kernel, in order.
    pub fn launched(&self) -> impl Iterator<Item = &str> {
        let launched = self.program.steps.iter().filter_map(|step| match step {
            ProgramStep::Launch { kernel, .. } => Some(kernel.as_str()),
            ProgramStep::Check { .. }
            | ProgramStep::Alloc { .. }
            | ProgramStep::View { .. }
            | ProgramStep::Copy { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Extern { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Call { .. }
            | ProgramStep::Free { .. } => None,
        });
        launched.filter(|kernel| !self.is_of_routine(kernel))
    }
}

/// Applies `schedule` to `loops`.
///
/// # Errors
/// When the schedule does not fit the loops: a leaf names no nest, an access does not match its local buffer, a
/// tile has no constant extent. Verified input gives no error.
pub fn realize(loops: &Loops, schedule: &Schedule) -> Result<Realized, Diags> {
    realize_one(loops, schedule, false)
}

/// Applies a schedule to a program, or to a function that one calls.
fn realize_one(loops: &Loops, schedule: &Schedule, is_function: bool) -> Result<Realized, Diags> {
    // CPUs have no approximations.
    let rounded = matches!(schedule.target, Target::Gpu(_)).then(|| Rounded::of(loops));
    let loops = &*with_copies(with_results(loops, schedule), schedule);
    let names = Names::new(loops, schedule);
    // Kernels of a CPU begin when those in front have ended.
    let settled =
        matches!(schedule.target, Target::Gpu(_)).then(|| Settled::of(loops, schedule, is_function));
    let (mut kernels, mut built) = (alike::Kernels::default(), Vec::new());
    let mut errors = Diags::new();
    for step in &schedule.steps {
        if let ScheduleStep::Kernel(plan) = step {
            match kernels.build(loops, &names, plan, &schedule.target) {
                Ok(mut k) => {
                    k.kernel.approximate =
                        rounded.as_ref().is_some_and(|rounded| rounded.are_all(&plan.nests()));
                    if let Some(settled) = settled.as_ref().filter(|_| !plan.at_load) {
                        settled.mark(&mut k);
                        passes::run(&mut k.kernel, &[passes::late::PASS], &schedule.target)
                            .map_err(|e| vec![e])?;
                    }
                    built.push(k);
                }
                Err(e) => errors.push(e),
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let routines = routine::Routines::of(loops, &names, schedule)?;
    let all = built.iter().map(|built| &built.kernel).chain(routines.kernels());
    let (mut kernels, mut serving, mut shared) = dedupe::dedupe(all.cloned().collect());
    kernels.iter_mut().for_each(|kernel| passes::checked::check(kernel, &loops.facts));
    let of_routines = serving.split_off(built.len());
    let mut program = program::build(loops, &names, schedule, (&built, &serving), (&routines, &of_routines))?;
    for (function, schedule) in loops.functions.iter().zip(&schedule.functions) {
        let mut inner = realize_one(function, schedule, true)?;
        apart(&mut inner, &kernels);
        program.functions.push(inner.program);
        kernels.extend(inner.kernels);
        shared.extend(inner.shared);
    }
    Ok(Realized { kernels, program, shared })
}

/// Gives the kernels of a function names that no others have.
fn apart(inner: &mut Realized, others: &[Kernel]) {
    let mut taken: HashSet<String> = others.iter().map(|kernel| kernel.name.clone()).collect();
    let mut renamed = HashMap::new();
    for kernel in &mut inner.kernels {
        let mut name = format!("{}_{}", inner.program.name, kernel.name);
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        renamed.insert(std::mem::replace(&mut kernel.name, name.clone()), name);
    }
    rename(&mut inner.program, &renamed);
}

fn rename(program: &mut Program, renamed: &HashMap<String, String>) {
    for step in program.load.iter_mut().chain(&mut program.steps) {
        if let ProgramStep::Launch { kernel, .. } = step
            && let Some(name) = renamed.get(kernel)
        {
            kernel.clone_from(name);
        }
    }
    program.functions.iter_mut().for_each(|function| rename(function, renamed));
}

/// What a schedule refers to, by name.
struct Names<'a> {
    stmts: HashMap<&'a str, &'a Stmt>,
    nests: HashMap<&'a str, &'a Nest>,
    bufs: HashMap<&'a str, Buf>,
    /// For a buffer that reuses the memory of another in place, that one.
    over: HashMap<Buf, Buf>,
}

impl<'a> Names<'a> {
    fn new(loops: &'a Loops, schedule: &Schedule) -> Names<'a> {
        let bufs: HashMap<&str, Buf> =
            loops.bufs.iter().map(|(buf, data)| (data.name.as_str(), buf)).collect();
        let pair = |reuse: &Reuse| Some((*bufs.get(&*reuse.to)?, *bufs.get(&*reuse.from)?));
        Names {
            over: schedule.reuses.iter().filter_map(pair).collect(),
            stmts: loops.stmts.iter().map(|s| (s.name(), s)).collect(),
            nests: loops.stmts.iter().flat_map(Stmt::nests).map(|n| (n.name.as_str(), n)).collect(),
            bufs,
        }
    }

    /// The buffer whose memory it has.
    fn owner(&self, buf: Buf) -> Buf {
        // No chain is longer than there are links.
        let chain = std::iter::successors(Some(buf), |buf| self.over.get(buf).copied());
        chain.take(self.over.len() + 1).last().unwrap_or(buf)
    }
}

/// An error of the schedule, naming the kernel.
fn misfit(kernel: &str, message: impl std::fmt::Display) -> Diag {
    Diag::new("schedule-misfit", format!("kernel {kernel}: {message}"))
}
