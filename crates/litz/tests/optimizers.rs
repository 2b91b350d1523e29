//! Steps of optimizers over all parameters of a model, as `_foreach_` operators write them: launches, memory and bytes.

use litz::{Options, Runner, Stage, Verify, pipeline};
use litz_ir::program::ProgramStep;
use litz_ir::text::graph::parse;
use litz_schedule::cost::Estimator;
use std::fmt::Write;

/// Sizes of the 199 parameters of BERT-base.
fn parameters() -> Vec<Vec<u64>> {
    let mut all = vec![vec![30522, 768], vec![512, 768], vec![2, 768], vec![768], vec![768]];
    for _ in 0..12 {
        for _ in 0..4 {
            all.extend([vec![768, 768], vec![768]]);
        }
        all.extend([
            vec![768],
            vec![768],
            vec![3072, 768],
            vec![3072],
            vec![768, 3072],
            vec![768],
            vec![768],
            vec![768],
        ]);
    }
    all.extend([vec![768, 768], vec![768]]);
    all
}

/// A graph over lists of inputs, one list for each letter of `lists`, with these lines: `[p]` stands for the list of that letter.
fn graph(lists: &str, lines: &[&str]) -> String {
    let sizes = parameters();
    let mut text = "graph @step on cpu {\n".to_owned();
    for list in lists.chars() {
        for (at, sizes) in sizes.iter().enumerate() {
            writeln!(text, "  %{list}{at}: f32{sizes:?} = input").expect("a string takes text");
        }
    }
    for line in lines {
        let mut line = (*line).to_owned();
        for list in lists.chars().chain(['t']) {
            let names: Vec<String> = (0..sizes.len()).map(|at| format!("%{list}{at}")).collect();
            let types: Vec<String> =
                sizes.iter().enumerate().map(|(at, sizes)| format!("%{list}{at}: f32{sizes:?}")).collect();
            line = line.replace(&format!("[{list}]"), &format!("[{}]", names.join(", ")));
            line = line.replace(&format!("{list} ="), &format!("{} =", types.join(", ")));
        }
        writeln!(text, "  {line}").expect("a string takes text");
    }
    text + "  return\n}\n"
}

/// What a step takes of a machine with two threads: launches, bytes of memory of its own, and bytes read and written.
struct Cost {
    launches: usize,
    allocated: i64,
    bytes: i64,
}

fn cost(text: &str) -> Cost {
    let graph = parse(text).unwrap_or_else(|diags| panic!("{}", diags[0]));
    let target = Some("cpu(isa=avx2, threads=2)".parse().expect("a target"));
    let options = Options { target, ..Options::default() };
    let backend = litz::backend(&options).expect("there is a backend");
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Stages, None, &mut silent);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut runner);
    let texts = texts.unwrap_or_else(|error| panic!("{error}"));
    assert!(texts.unproved.is_empty(), "not proved");
    let (loops, schedule) = (texts.loops.expect("loops"), texts.schedule.expect("a schedule"));
    let program = texts.realized.expect("a program").program;
    let bytes = schedule.steps.iter().map(|step| match step {
        litz_ir::schedule::ScheduleStep::Kernel(plan) => {
            let nests: Vec<String> = plan.nests().into_iter().map(str::to_owned).collect();
            Estimator::new(&loops).kernel(&nests).traffic.bytes()
        }
        litz_ir::schedule::ScheduleStep::Extern { name, .. } => panic!("a call of {name}"),
    });
    let allocated = |step: &ProgramStep| match step {
        ProgramStep::Alloc { slot } => {
            let slot = &program.slots[*slot];
            slot.extent.as_int().expect("a number") * slot.dtype.size() as i64
        }
        _ => 0,
    };
    Cost {
        launches: program.steps.iter().filter(|step| matches!(step, ProgramStep::Launch { .. })).count(),
        allocated: program.steps.iter().map(allocated).sum(),
        bytes: bytes.sum(),
    }
}

/// Bytes of all parameters.
fn model() -> i64 {
    let elements: u64 = parameters().iter().map(|sizes| sizes.iter().product::<u64>()).sum();
    4 * i64::try_from(elements).expect("fewer than there are numbers")
}

fn check(cost: &Cost, times: i64) {
    let formula = times * model();
    assert!(cost.launches <= 8, "{} launches", cost.launches);
    assert_eq!(cost.allocated, 0);
    assert!(cost.bytes * 100 <= formula * 105, "{} bytes of {formula}", cost.bytes);
}

#[test]
fn gradient_descent_reads_and_writes_each_parameter_once() {
    assert_eq!(parameters().len(), 199);
    check(&cost(&graph("pg", &["aten._foreach_add_.List([p], [g], -0.1)"])), 3);
}

#[test]
fn adam_reads_and_writes_each_parameter_and_its_two_averages_once() {
    let lines = [
        "aten._foreach_lerp_.Scalar([m], [g], 0.1)",
        "aten._foreach_mul_.Scalar([v], 0.999)",
        "aten._foreach_addcmul_.Scalar([v], [g], [g], 0.001)",
        "t = aten._foreach_sqrt.default([v])",
        "aten._foreach_add_.Scalar([t], 1e-08)",
        "aten._foreach_addcdiv_.Scalar([p], [m], [t], -0.001)",
    ];
    check(&cost(&graph("pgmv", &lines)), 7);
}
