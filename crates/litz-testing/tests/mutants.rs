//! Calls with one thing changed are refused, or their loops run inside of their buffers.

#![allow(missing_docs, reason = "a test")]

use litz_ir::graph::{Graph, Type};
use litz_ir::verify;
use litz_ops::{decompose, lower};
use litz_passes::graph::functionalize;
use litz_runtime::{RunError, reference};
use litz_testing::cases::{self, Case};
use litz_testing::hostile::{self, Outcome, Where};
use litz_testing::mutants::{self, Change};
use std::collections::HashMap;

/// Of all changes every so many-th is lowered here, and of those every so many-th runs; `cargo xtask hostile` tries all of
/// them. Both are prime: no kind of change is always passed over.
const EVERY: usize = 7;
const EVERY_RUN: usize = 11;
/// The same for the way through archives and the whole compiler.
const EVERY_WHOLE: usize = 199;

/// What is wrong with a call that is not refused: loops that may leave their buffers or, where they run, do.
fn problem(case: &Case, runs: bool) -> Option<String> {
    let mut graph = case.graph().ok()?;
    if !verify::graph::verify(&graph).is_empty() {
        return None;
    }
    let runs = runs && !is_large(&graph);
    functionalize::run(&mut graph).ok()?;
    decompose(&mut graph).ok()?;
    let loops = lower(&graph).ok()?;
    if let Some(diag) = verify::loops::verify(&loops).first() {
        return Some(format!("{diag}\n{loops}"));
    }
    if !runs {
        return None;
    }
    match reference::loops::run(&loops, &HashMap::new(), &case.inputs(), &HashMap::new()) {
        Ok(_) | Err(RunError::BadIndex { .. } | RunError::OutOfMemory(_)) => None,
        Err(error) => Some(format!("{error}\n{loops}")),
    }
}

fn is_large(graph: &Graph) -> bool {
    graph.values.values().any(|data| match &data.ty {
        Type::Tensor(ty) => ty.numel().as_int().is_none_or(|count| count > 1 << 12),
        Type::Int(_) | Type::Float | Type::Bool => false,
    })
}

#[test]
fn changed_calls_are_refused_or_run_inside_their_buffers() {
    let (mut findings, mut tried) = (Vec::new(), 0);
    for family in cases::FAMILIES {
        for case in cases::read(family).expect("the file is as it was written") {
            for mutant in mutants::of(&case) {
                tried += 1;
                if tried % EVERY == 0
                    && let Some(why) = problem(&mutant.case, tried % (EVERY * EVERY_RUN) == 0)
                {
                    let why: String = why.chars().take(600).collect();
                    findings
                        .push(format!("{family}.txt:{}: {}: {}: {why}", case.line, case.op, mutant.change));
                }
            }
        }
    }
    assert!(tried > 10_000, "{tried} changes");
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn every_operand_and_dimension_is_changed() {
    for case in cases::read("index").expect("the file is as it was written") {
        let changes: Vec<Change> = mutants::of(&case).iter().map(|mutant| mutant.change).collect();
        for (tensor, recorded) in case.tensors.iter().enumerate() {
            for (dim, &size) in recorded.tensor.sizes().iter().enumerate() {
                for to in [size + 1, 2 * size + 1, size.saturating_sub(1), 1, 0] {
                    let expected = to != size && to != 2 * size + 1;
                    let found = changes.contains(&Change::Size { tensor, dim, to });
                    assert!(found || !expected, "{}: size {dim} of tensor {tensor} to {to}", case.op);
                }
            }
        }
    }
}

#[test]
fn calls_by_hand_and_some_changes_go_through_the_whole_compiler() {
    let calls = hostile::calls().expect("the files are as they were written");
    let by_hand = calls.iter().filter(|call| call.name.starts_with("hand:"));
    assert!(by_hand.clone().count() > 50);
    let some = calls.iter().step_by(EVERY_WHOLE);
    let findings: Vec<String> = by_hand
        .chain(some)
        .filter_map(|call| match hostile::judged(call, &hostile::attempt(&call.case, Where::Reference)) {
            Outcome::Finding(why) => Some(format!("{}: {why}", call.name)),
            Outcome::Refused(_) | Outcome::Unsupported(_) | Outcome::Ran | Outcome::Large => None,
        })
        .collect();
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}
