//! Checks that every schedule which the scheduler makes is proved: of random models, for random targets.

#![allow(missing_docs, reason = "a test")]

use litz::{Error, Runner, Stage, Verify, pipeline};
use litz_analysis::legality;
use litz_ir::graph::Graph;
use litz_ir::loops::Loops;
use litz_ir::target::Isa;
use litz_schedule::Heuristics;
use litz_testing::trial::{self, TrialTarget};
use std::hash::{BuildHasher, RandomState};

/// Models of a run; `LITZ_TEST_SAMPLE` says another number. A thousand take a second and a half where tests are optimised.
const SAMPLE: u64 = 1000;

#[test]
fn automatic_schedules_are_proved() {
    let given = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = given("LITZ_TEST_SEED").unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let sample = given("LITZ_TEST_SAMPLE").unwrap_or(SAMPLE);
    let (mut tried, mut unproved, mut first) = (0, Vec::new(), String::new());
    for number in 0..sample {
        let (model, target) = trial::numbered(seed, number, &Isa::ALL);
        let Ok(loops) = rewritten(&model.graph, &target) else { continue };
        tried += 1;
        // What is launched together is in the way of no proof either.
        for launch_together in [target.options.heuristics.launch_together, 8] {
            let heuristics = Heuristics { launch_together, ..target.options.heuristics.clone() };
            let outcome = litz_schedule::schedule(&loops, &target.info, &heuristics);
            if let Some(diag) = legality::verify(&outcome.schedule, &loops).first() {
                if unproved.is_empty() {
                    first = format!("{loops}{}", outcome.schedule);
                }
                unproved.push(format!("model {number}: {diag}"));
            }
        }
    }
    assert!(tried > sample / 2, "{tried} models compile");
    let (count, all) = (unproved.len(), unproved.join("\n"));
    assert!(unproved.is_empty(), "{count} of LITZ_TEST_SEED={seed} are not proved\n{all}\n{first}");
}

/// The loops of a model after all passes.
fn rewritten(graph: &Graph, target: &TrialTarget) -> Result<Loops, Error> {
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Nothing, None, &mut silent);
    let backend = litz::backend(&target.options)?;
    let texts = pipeline::compile(graph.clone(), &*backend, &target.options, Stage::Loops, &mut runner)?;
    texts.loops.ok_or_else(|| Error::bug("loops", "they are none"))
}
