//! What compiling and running may take, through the whole compiler: each limit is an error of its own, found in time.

use litz::{Error, Limits, Model, Options, Runner, Stage, Tensor, Verify, pipeline};
use litz_ir::text::graph::parse;
use litz_runtime::RunError;
use litz_runtime::limits::{Limit, LimitExceeded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits.pt2");

/// Compiles and runs the digits.
fn digits(limits: Limits) -> Result<(), Error> {
    let model = Model::open(DIGITS).expect("it is a model");
    let options = Options { threads: 1, bind: false, limits, verify: Verify::Stages, ..Options::default() };
    let compiled = model.compile(&options)?;
    let input = Tensor::from_slice(&[2, 1, 8, 8], &[0.5f32; 128]).expect("lengths match");
    compiled.run(&[input]).map(drop)
}

#[test]
fn every_limit_stops_what_exceeds_it() {
    for limit in Limit::ALL {
        let mut limits = Limits::default();
        limits.set(limit, 0);
        let found = match digits(limits) {
            Err(Error::Limit(found) | Error::Run(RunError::Limit(found))) => found,
            other => panic!("{}: {other:?}", limit.name()),
        };
        assert_eq!((found.limit, found.allowed), (limit, 0), "{found}");
        assert!(found.asked > 0, "{found}");
    }
}

#[test]
fn a_model_is_far_below_the_defaults() {
    let mut limits = Limits::default();
    for limit in
        [Limit::CallBytes, Limit::ConstantBytes, Limit::Iterations, Limit::Statements, Limit::WrittenOut]
    {
        limits.set(limit, limits.allowed(limit) >> 10);
    }
    limits.time = Some(Duration::from_secs(100));
    limits.compile_time = Some(Duration::from_secs(100));
    digits(limits).expect("it takes little");
}

#[test]
fn a_limit_counts_what_is_there() {
    let exceeded = |limits| match digits(limits) {
        Err(Error::Limit(LimitExceeded { asked, .. })) => asked,
        other => panic!("expected a limit of the compiler, found {other:?}"),
    };
    let asked = exceeded(Limits { statements: 9, ..Limits::default() });
    assert_eq!(asked, 10, "the graph that was exported has ten nodes");
}

/// Of steps that follow one another at once the last may run: so many, of a compilation that has some fifty.
const LATE: usize = 12;

#[test]
fn a_compilation_stops_soon_after_it_is_told_to() {
    let model = Model::open(DIGITS).expect("it is a model");
    for step in ["decompose", "lower", "inline", "schedule", "kernels"] {
        let stop = Arc::new(AtomicBool::new(false));
        let options =
            Options { threads: 1, bind: false, stop: Some(Arc::clone(&stop)), ..Options::default() };
        let mut after = Vec::new();
        let found = model.compile_with(&options, &mut |name| {
            if name == step {
                stop.store(true, Ordering::Relaxed);
            } else if stop.load(Ordering::Relaxed) {
                after.push(name.to_owned());
            }
        });
        assert!(matches!(found, Err(Error::Stopped)), "{step}: {:?}", found.map(|_| "compiled"));
        assert!(after.len() <= LATE && !after.iter().any(|name| name == "load"), "{step}: {after:?}");
    }
}

/// Sizes that no list has room for are found while types are inferred, not by running out of memory.
#[test]
fn an_operator_that_would_be_written_out_without_end_is_refused() {
    let huge = 1i64 << 40;
    for node in [
        "%y: f32[] = aten.unbind.int(%x, 0)".to_owned(),
        format!("%y: f32[0] = aten.chunk.default(%e, {huge}, 0)"),
        "%y: f32[1] = aten.split.Tensor(%x, 1, 0)".to_owned(),
        "%y: f32[1, 2] = aten.combinations.default(%x, 2, false)".to_owned(),
        format!("%y: f32[{huge}] = aten.mvlgamma.default(%x, {huge})"),
    ] {
        let graph = format!(
            "graph @g on cpu {{\n %x: f32[{huge}] = input\n %e: f32[0] = input\n {node}\n return %y\n}}\n"
        );
        let options = Options::default();
        let backend = litz::backend(&options).expect("there is a backend");
        let mut quiet = |_: &str| {};
        let mut run = Runner::new(Verify::Nothing, None, &mut quiet);
        let graph = parse(&graph).unwrap_or_else(|diags| panic!("{diags:?}"));
        let start = Instant::now();
        let outcome = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut run);
        let is_refused = matches!(outcome, Err(Error::Unsupported(_) | Error::Invalid(_)));
        assert!(is_refused, "{node}: {:?}", outcome.err());
        assert!(start.elapsed() < Duration::from_secs(60), "{node}: {:?}", start.elapsed());
    }
}
