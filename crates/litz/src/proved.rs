//! Schedules loops so that every kernel is proved: what is in one that is not gets kernels of its own.

use crate::decisions;
use crate::error::Error;
use crate::runner::Runner;
use litz_analysis::legality::{self, Problem};
use litz_ir::Diag;
use litz_ir::loops::Loops;
use litz_ir::schedule::{KernelPlan, Schedule, ScheduleStep};
use litz_ir::target::Target;
use litz_schedule::{Heuristics, Outcome, Request};
use std::collections::BTreeSet;

/// Nests of a kernel that the scheduler wanted and that is not proved: each runs in a kernel of its own, in order.
#[derive(Clone, Debug)]
pub struct Unproved {
    /// Their names.
    pub nests: Vec<String>,
    /// What is not proved.
    pub why: Diag,
}

/// Schedules by these heuristics on so many threads, proves what comes of it, and schedules again without the kernels that are not
/// proved: first so that they share no launch, as it may be the parts together of which too little is known.
///
/// # Errors
/// [`Error::Bug`] where nests that run one by one and in order are not proved either.
pub fn schedule(
    loops: &Loops,
    target: &Target,
    (heuristics, threads): (&Heuristics, usize),
    run: &mut Runner<'_>,
) -> Result<(Outcome, Vec<Unproved>), Error> {
    let plan = |alone: &BTreeSet<String>, in_order: &BTreeSet<String>| {
        let request = Request { alone, in_order, threads, ..Request::new(target, heuristics) };
        litz_schedule::schedule_as(loops, &request)
    };
    let (mut outcome, mut unproved) = settle(plan, &|schedule| legality::problems(schedule, loops), run)?;
    decisions::dump(&outcome, run)?;
    for function in &loops.functions {
        let (inner, inner_unproved) = schedule(function, target, (heuristics, threads), run)?;
        outcome.schedule.functions.push(inner.schedule);
        outcome.notes.extend(inner.notes);
        unproved.extend(inner_unproved);
    }
    Ok((outcome, unproved))
}

/// As [`schedule`], given how to plan, with nests alone and in order, and how to prove.
fn settle(
    plan: impl Fn(&BTreeSet<String>, &BTreeSet<String>) -> Outcome,
    problems: &dyn Fn(&Schedule) -> Vec<Problem>,
    run: &mut Runner<'_>,
) -> Result<(Outcome, Vec<Unproved>), Error> {
    let (mut alone, mut in_order, mut unproved) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    loop {
        let outcome = run.step("schedule", || plan(&alone, &in_order));
        let problems = run.step("prove", || problems(&outcome.schedule));
        let Some(first) = problems.first() else { return Ok((outcome, unproved)) };
        run.dump("unproved", &outcome.schedule)?;
        let before = (alone.len(), in_order.len());
        for problem in &problems {
            let nests = nests_of(&outcome.schedule, problem);
            if nests.iter().any(|nest| !alone.contains(nest)) {
                alone.extend(nests);
            } else if nests.iter().any(|nest| !in_order.contains(nest)) {
                in_order.extend(nests.iter().cloned());
                unproved.push(Unproved { nests, why: problem.diag.clone() });
            }
        }
        if (alone.len(), in_order.len()) == before {
            return Err(Error::bug("schedule", &first.diag));
        }
    }
}

/// The nests of the kernel where a problem is, or of all kernels, where it is in none in particular.
fn nests_of(schedule: &Schedule, problem: &Problem) -> Vec<String> {
    let steps =
        schedule.steps.iter().enumerate().filter(|(at, _)| problem.site.is_none_or(|site| site.step == *at));
    let kernels = steps.filter_map(|(_, step)| match step {
        ScheduleStep::Kernel(plan) => Some(plan),
        ScheduleStep::Extern { .. } => None,
    });
    kernels.flat_map(KernelPlan::nests).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Verify;
    use litz_analysis::legality::Site;

    const LOOPS: &str = "loops @l on cpu {
        buf x: f32[40, 6] = input
        buf h: f32[40, 6]
        buf m: f32[40]
        buf y: f32[40, 6]
        nest n0 [i in 40, j in 6] { %0: f32 = load x[i, j] %1: f32 = exp %0 store h[i, j] = %1 }
        nest n1 [i in 40 | j in 6] { %0: f32 = load h[i, j] %1: f32 = reduce.sum %0 store m[i] = %1 }
        nest n2 [i in 40, j in 6] {
          %0: f32 = load h[i, j] %1: f32 = load m[i] %2: f32 = div %0, %1 store y[i, j] = %2
        }
        return y }";

    /// What comes of schedules that are said to be wrong as `accuse` says.
    fn settled(accuse: impl Fn(&Schedule) -> Vec<Problem>) -> Result<(Outcome, Vec<Unproved>), Error> {
        settled_of(LOOPS, accuse)
    }

    fn settled_of(
        loops: &str,
        accuse: impl Fn(&Schedule) -> Vec<Problem>,
    ) -> Result<(Outcome, Vec<Unproved>), Error> {
        let loops = litz_ir::text::loops::parse(loops).unwrap_or_else(|diags| panic!("{}", diags[0]));
        let target: Target = "cpu(isa=avx2, threads=2)".parse().expect("a target");
        let heuristics = Heuristics { launch_together: 8, ..Heuristics::default() };
        let plan = |alone: &BTreeSet<String>, in_order: &BTreeSet<String>| {
            let request = Request { alone, in_order, ..Request::new(&target, &heuristics) };
            let outcome = litz_schedule::schedule_as(&loops, &request);
            assert_eq!(legality::verify(&outcome.schedule, &loops), [], "{}", outcome.schedule);
            outcome
        };
        let mut quiet = |_: &str| {};
        settle(plan, &accuse, &mut Runner::new(Verify::Nothing, None, &mut quiet))
    }

    fn accused(site: Option<Site>) -> Vec<Problem> {
        vec![Problem { diag: Diag::new("dependence", "nobody knows"), site }]
    }

    #[test]
    fn the_nests_of_a_kernel_that_is_not_proved_run_one_by_one() {
        let (outcome, unproved) = settled(|_| Vec::new()).expect("it is proved");
        assert!(unproved.is_empty());
        assert_eq!(outcome.schedule.steps.len(), 1, "{}", outcome.schedule);
        for site in [None, Some(Site { step: 0, within: None })] {
            let is_fused = |schedule: &Schedule| schedule.steps.len() == 1;
            let accuse = |schedule: &Schedule| if is_fused(schedule) { accused(site) } else { Vec::new() };
            let (outcome, unproved) = settled(accuse).expect("nests in order are proved");
            assert_eq!(outcome.schedule.steps.len(), 3, "{}", outcome.schedule);
            assert_eq!(unproved.len(), 1);
            assert_eq!(unproved[0].nests, ["n0", "n1", "n2"]);
            assert!(outcome.notes.iter().any(|note| note.verdict.is_err_and(|why| why.slug() == "unproved")));
        }
    }

    #[test]
    fn parts_of_a_launch_that_is_not_proved_are_launched_alone() {
        let loops = "loops @l on cpu {
            buf x: f32[40] = input buf y: f32[70] = input buf a: f32[40] buf b: f32[70]
            nest na [i in 40] { %0: f32 = load x[i] %1: f32 = exp %0 store a[i] = %1 }
            nest nb [i in 70] { %0: f32 = load y[i] %1: f32 = exp %0 store b[i] = %1 }
            return a, b }";
        let is_shared = |schedule: &Schedule| schedule.steps.len() == 1;
        let site = Some(Site { step: 0, within: None });
        let accuse = |schedule: &Schedule| if is_shared(schedule) { accused(site) } else { Vec::new() };
        let (outcome, unproved) = settled_of(loops, accuse).expect("each alone is proved");
        assert!(unproved.is_empty() && outcome.schedule.steps.len() == 2, "{}", outcome.schedule);
        // In order each would be one loop on one thread.
        assert!(outcome.schedule.to_string().contains("vector"), "{}", outcome.schedule);
    }

    #[test]
    fn what_is_not_proved_in_order_is_a_mistake_of_the_compiler() {
        let error = settled(|_| accused(None)).map(|_| ()).expect_err("nothing is proved");
        assert!(error.to_string().contains("nobody knows"), "{error}");
    }
}
