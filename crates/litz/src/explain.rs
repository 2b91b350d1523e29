//! Collects how kernels came about: what each step of a schedule runs and costs, and why statements do not share one.

use litz_ir::loops::{Buf, BufKind, Loops, Output};
use litz_ir::schedule::{KernelPlan, Schedule, ScheduleStep, Tree};
use litz_schedule::cost::{Cost, Estimator, size};
use litz_schedule::{FusionNote, NoFuse};
use std::collections::BTreeMap;

/// A step of a schedule.
pub struct Step<'a> {
    /// The kernel, or the statement that is a call.
    pub name: &'a str,
    /// Whether it runs when the model is loaded, not at every call.
    pub at_load: bool,
    /// What is known of a kernel.
    pub kernel: Option<KernelStep<'a>>,
}

/// A kernel of a schedule, and what it costs by the sizes that the model was exported with.
pub struct KernelStep<'a> {
    /// How it runs.
    pub plan: &'a KernelPlan,
    /// The nests that it runs, those apart that share its launch and nothing else.
    pub parts: Vec<Vec<&'a str>>,
    /// Bytes that it must move.
    pub bytes: i64,
    /// Operations.
    pub flops: i64,
    /// Seconds that the target needs for both at least; none where its rates are not known.
    pub least: Option<f64>,
}

/// The steps of a schedule of `loops`, in order.
pub fn steps<'a>(loops: &Loops, schedule: &'a Schedule) -> Vec<Step<'a>> {
    let of = |step: &'a ScheduleStep| match step {
        ScheduleStep::Kernel(plan) => {
            let parts = parts(&plan.body);
            let mut cost = Cost::default();
            for nests in &parts {
                let nests: Vec<String> = nests.iter().map(|&nest| nest.to_owned()).collect();
                cost.add(&Estimator::new(loops).kernel(&nests));
            }
            let kernel = KernelStep {
                plan,
                parts,
                bytes: cost.traffic.bytes(),
                flops: cost.all_flops(),
                least: Some(cost.time(&schedule.target)).filter(|&time| time > 0.0),
            };
            Step { name: &plan.name, at_load: plan.at_load, kernel: Some(kernel) }
        }
        ScheduleStep::Extern { name, at_load } => Step { name, at_load: *at_load, kernel: None },
    };
    schedule.steps.iter().map(of).collect()
}

/// Bytes that a call moves, by the sizes that the model was exported with: those of its kernels, of what routines take and give, and of
/// copies at its end, to inputs and constants that no step stores to themselves, and to results that are memory of something else. Functions
/// count as if each were called once.
pub fn call_bytes(loops: &Loops, schedule: &Schedule) -> i64 {
    let bytes_of = |buf: Buf| {
        let data = &loops.bufs[buf];
        size(&loops.facts, data.elements()).saturating_mul(data.dtype.size() as i64)
    };
    let mut bytes = 0i64;
    for step in steps(loops, schedule).iter().filter(|step| !step.at_load) {
        bytes = bytes.saturating_add(match &step.kernel {
            Some(kernel) => kernel.bytes,
            None => {
                let of_call = loops.stmts.iter().filter(|stmt| stmt.name() == step.name);
                let touched = of_call.flat_map(|stmt| [stmt.reads(), stmt.writes()].concat());
                touched.map(bytes_of).fold(0, i64::saturating_add)
            }
        });
    }
    let updated = loops.updates.iter().filter(|update| update.0 != update.1).map(|update| update.1);
    let mut seen: Vec<Buf> = Vec::new();
    let mut is_copied = |buf: &Buf| {
        let is_own = loops.bufs[*buf].kind == BufKind::Temp && !seen.contains(buf);
        seen.push(*buf);
        !is_own
    };
    let returned: Vec<Buf> = { loops.outputs.iter() }
        .filter_map(|output| match output {
            Output::View { buf, .. } => Some(*buf),
            Output::Number(_) | Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => {
                None
            }
        })
        .filter(|buf| is_copied(buf))
        .collect();
    let copies = updated.chain(returned).map(|buf| bytes_of(buf).saturating_mul(2));
    let functions = loops.functions.iter().zip(&schedule.functions);
    let of_functions = functions.map(|(function, own)| call_bytes(function, own));
    copies.chain(of_functions).fold(bytes, i64::saturating_add)
}

impl KernelStep<'_> {
    /// Extents of the axes whose points run in parallel: `2 x s31`.
    pub fn grid(&self) -> String {
        let extents: Vec<String> = self.plan.grid.iter().map(|axis| axis.extent.to_string()).collect();
        extents.join(" x ")
    }
}

/// The nests of a kernel, those apart that share its launch and no iteration of its grid: they are in different bodies of an `if`.
fn parts(trees: &[Tree]) -> Vec<Vec<&str>> {
    if let [Tree::If { then, other, .. }] = trees {
        let (first, rest) = (parts(then), parts(other));
        let is_there = |nest: &&str| rest.iter().flatten().any(|other| other == nest);
        if !other.is_empty() && !first.iter().flatten().any(is_there) {
            return [first, rest].concat();
        }
    }
    let mut nests: Vec<&str> = Vec::new();
    for tree in trees {
        tree.each_leaf(&mut |leaf| {
            if !nests.contains(&&*leaf.nest) {
                nests.push(&leaf.nest);
            }
        });
    }
    vec![nests]
}

/// Pairs of statements of which the scheduler said the same.
pub struct Verdict<'a> {
    /// Why they do not share a kernel; none: they do.
    pub reason: Option<NoFuse>,
    /// The pairs, those with most bytes first.
    pub notes: Vec<&'a FusionNote>,
}

impl Verdict<'_> {
    /// `fused`, or the name of the reason.
    pub fn name(&self) -> &'static str {
        self.reason.map_or("fused", NoFuse::slug)
    }

    /// Bytes that a call does not store and load for these pairs, or would not, if they shared a kernel. Pairs are counted one
    /// by one: a statement that several kernels refused counts for each of them, though it could have joined only one.
    pub fn bytes(&self) -> f64 {
        self.notes.iter().map(|note| note.bytes as f64).sum()
    }

    /// Bytes by which the memory in use at once would grow, if all of these were in one kernel.
    pub fn growth(&self) -> f64 {
        self.notes.iter().map(|note| note.growth as f64).sum()
    }
}

/// What was said of pairs, by what was said: what was fused first, then what costs most.
pub fn verdicts(notes: &[FusionNote]) -> Vec<Verdict<'_>> {
    let mut sorted: Vec<&FusionNote> = notes.iter().collect();
    sorted.sort_by_key(|note| std::cmp::Reverse(note.bytes));
    let mut by_reason: BTreeMap<Option<NoFuse>, Vec<&FusionNote>> = BTreeMap::new();
    for note in sorted {
        by_reason.entry(note.verdict.err()).or_default().push(note);
    }
    let mut verdicts: Vec<Verdict<'_>> =
        by_reason.into_iter().map(|(reason, notes)| Verdict { reason, notes }).collect();
    verdicts
        .sort_by(|a, b| a.reason.is_some().cmp(&b.reason.is_some()).then(b.bytes().total_cmp(&a.bytes())));
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shares_a_launch_alone_is_told_apart() {
        let text = "schedule @l of @l for cpu(isa=avx2, threads=2) {
            kernel k0 {
              parallel p in 3 {
                if p < 1 {
                  for i in 4 { a [i = i] b [i = i] }
                } else {
                  if p < 2 {
                    if 8 <= p { c [i = p] } else { c [i = p] }
                  } else {
                    for i in 4 { d [i = i] }
                  }
                }
              }
            }
          }";
        let schedule = litz_ir::text::schedule::parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
        let ScheduleStep::Kernel(plan) = &schedule.steps[0] else { panic!("expected a kernel") };
        assert_eq!(parts(&plan.body), [vec!["a", "b"], vec!["c"], vec!["d"]]);
    }
}
