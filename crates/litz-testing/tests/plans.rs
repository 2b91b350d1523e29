//! Automatic schedules for GPUs over recorded calls and random models: all are proved, no nest is left to one thread but what is in order by
//! nature, and instructions take every contraction of 16-bit operands that is large enough.

#![allow(missing_docs, reason = "a test")]

use litz::pipeline::compile;
use litz::{Options, Runner, Stage, Verify};
use litz_ir::graph::Graph;
use litz_ir::target::Target;
use litz_testing::plans::{Plans, TARGETS, Why};
use litz_testing::{cases, trial};

/// What is not as it has to be, of a graph. Empty where Litz does not support it.
fn faults(graph: &Graph, target: &str, all: &mut Plans) -> Vec<String> {
    let target: Target = target.parse().expect("a target");
    let options = Options { threads: 1, ..Options::for_target(target) };
    let backend = litz::backend(&options).expect("a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Nothing, None, &mut silent);
    let Ok(texts) = compile(graph.clone(), &*backend, &options, Stage::Schedule, &mut runner) else {
        return Vec::new();
    };
    let (Some(loops), Some(schedule)) = (&texts.loops, &texts.schedule) else { return Vec::new() };
    let plans = Plans::of(loops, schedule);
    let unproved = texts.unproved.iter().map(|unproved| format!("not proved: {}", unproved.why));
    let of_one_thread = plans.of_one_thread.iter().filter(|nest| nest.1 != Why::InOrder);
    let of_one_thread = of_one_thread.map(|nest| format!("one thread runs {}", nest.0));
    let without = plans.without_instruction.iter().map(|nest| format!("no instruction takes {nest}"));
    let found: Vec<String> = unproved.chain(of_one_thread).chain(without).collect();
    let text = |what: String| format!("{target}: {what}\n{loops}");
    all.kernels += plans.kernels;
    all.nests += plans.nests;
    all.of_one_thread.extend(plans.of_one_thread);
    all.contractions += plans.contractions;
    found.into_iter().map(text).collect()
}

/// Fails with the first faults, and says how many there are.
fn check(graphs: impl Iterator<Item = (String, Graph)>) {
    let (mut failures, mut all) = (Vec::new(), Plans::default());
    for (name, graph) in graphs {
        for target in TARGETS {
            failures
                .extend(faults(&graph, target, &mut all).into_iter().map(|fault| format!("{name}, {fault}")));
        }
    }
    let Plans { kernels, nests, of_one_thread, contractions, .. } = &all;
    eprintln!(
        "{kernels} kernels, {nests} nests, {} in order by nature, {contractions} contractions of 16 bits",
        of_one_thread.len()
    );
    let first: Vec<String> = failures.iter().take(5).cloned().collect();
    assert!(failures.is_empty(), "{} faults\n{}", failures.len(), first.join("\n"));
}

#[test]
fn of_recorded_calls() {
    let families = cases::FAMILIES.iter().flat_map(|family| {
        let cases = cases::read(family).expect("the file is as it was written");
        cases.into_iter().map(move |case| (format!("{family}.txt:{}", case.line), case))
    });
    check(families.filter_map(|(name, case)| Some((name, case.graph().ok()?))));
}

#[test]
fn of_random_models() {
    let graphs = (0..300).map(|at| (format!("model {at}"), trial::numbered(7, at, &[]).0.graph));
    check(graphs);
}
