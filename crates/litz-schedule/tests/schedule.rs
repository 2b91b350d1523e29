//! Loops texts to schedules.

#![allow(missing_docs, reason = "a test")]

#[path = "schedule/cost.rs"]
mod cost;
#[path = "schedule/fuse.rs"]
mod fuse;
#[path = "schedule/launches.rs"]
mod launches;
#[path = "schedule/memory.rs"]
mod memory;
#[path = "schedule/saving.rs"]
mod saving;
#[path = "schedule/texts.rs"]
mod texts;

use litz_analysis::legality;
use litz_ir::loops::Loops;
use litz_ir::schedule::{KernelPlan, ScheduleStep};
use litz_ir::target::Target;
use litz_ir::{text, verify};
use litz_schedule::{Heuristics, Outcome};

fn target() -> Target {
    "cpu(isa=avx512, threads=4)".parse().expect("a target")
}

/// The loops program with that body, verified.
#[track_caller]
fn loops(body: &str) -> Loops {
    let source = format!("loops @t on cpu {{ {body} }}");
    let loops = text::loops::parse(&source).unwrap_or_else(|diags| panic!("{}\n{source}", diags[0]));
    let diags = verify::loops::verify(&loops);
    assert!(diags.is_empty(), "{}\n{source}", diags[0]);
    loops
}

/// Its schedule, verified and the same each time.
#[track_caller]
fn outcome(body: &str) -> Outcome {
    let loops = loops(body);
    let outcome = litz_schedule::schedule(&loops, &target(), &Heuristics::default());
    let diags = legality::verify(&outcome.schedule, &loops);
    assert!(diags.is_empty(), "{}\n{}", diags[0], outcome.schedule);
    let again = litz_schedule::schedule(&loops, &target(), &Heuristics::default());
    assert_eq!(outcome.schedule, again.schedule);
    assert_eq!(outcome.notes, again.notes);
    outcome
}

fn plans(outcome: &Outcome) -> impl Iterator<Item = &KernelPlan> {
    outcome.schedule.steps.iter().filter_map(|step| match step {
        ScheduleStep::Kernel(plan) => Some(plan),
        ScheduleStep::Extern { .. } => None,
    })
}
