//! Compiles graphs and loops for several targets, calls them on the reference device, and compares with the interpreter.
//!
//! Inputs are made up and small: a fuzzer learns more from many programs than from long ones. A program that would take
//! more than the limits is left alone.

use std::collections::HashMap;
use std::slice;

use litz::{Error, Options};
use litz_analysis::legality;
use litz_codegen::Realized;
use litz_ir::graph::Graph;
use litz_ir::loops::{BufKind, Loops, Nest, Stmt};
use litz_ir::program::{Program, ProgramStep};
use litz_ir::target::Target;
use litz_ir::{Diags, verify};
use litz_passes::loops::{Cx, Inlining, PASSES};
use litz_runtime::limits::Limits;
use litz_runtime::{RunError, Tensor};
use litz_schedule::Heuristics;
use litz_sym::{Expr, Sym};

use crate::choices::Random;
use crate::compare::Expected;
use crate::models::{Call, Fill, fill_tensor};
use crate::{devices, trial};

/// Points of all nests together, and elements of all buffers, that a program may have.
const MAX_POINTS: i64 = 25_000;
const MAX_ELEMENTS: i64 = 1 << 18;
/// Statements that kernels of a given schedule may execute: its tiles are walked whole, however few of their points exist.
const MAX_STATEMENTS: u64 = 1 << 20;

/// Slugs with which a stage after lowering may say that it does not support something. Any other word of such a stage is
/// a mistake: loops that verify can be scheduled, and what the scheduler gives can be applied.
pub const MAY_BE_UNSUPPORTED: [&str; 1] = ["unsupported"];

/// A narrow target with small caches, and one with several threads, wide vectors and matrix instructions.
const TARGETS: [&str; 2] =
    ["cpu(isa=sse2, threads=1, l1=32K, l2=256K)", "cpu(isa=avx512-amx, threads=3, l1=48K, l2=2M)"];

fn targets() -> [Target; 2] {
    TARGETS.map(|text| text.parse().expect("invariant: these are texts of targets"))
}

/// Compares a graph, compiled, with its lowering, in the calls that are made up for its loops. A graph that is refused is
/// no finding, unless a stage is at fault.
///
/// # Panics
/// When results differ, or a stage is at fault.
pub fn graph(graph: &Graph, calls: impl FnOnce(&Loops) -> Vec<Call>) {
    let Some(definition) = supported(devices::definition(graph)) else { return };
    let diags = verify::loops::verify(&definition);
    assert!(diags.is_empty(), "lowering: {}", diags[0]);
    let mut calls = calls(&definition);
    calls.retain(|call| is_small(&definition, &call.sizes));
    if calls.is_empty() {
        return;
    }
    let mut compiled = Vec::new();
    for target in targets() {
        let options = Options::for_target(target);
        let realized = litz::backend(&options)
            .and_then(|backend| devices::realize_any(graph.clone(), &*backend, &options));
        let Some((realized, _)) = supported(realized) else { return };
        compiled.push(realized);
    }
    // What is repeated as long as data says may never end.
    let is_control = |step: &ProgramStep| matches!(step, ProgramStep::Control { .. });
    if let Some(first) = compiled.first().filter(|first| first.program.steps.iter().any(is_control)) {
        calls.retain(|call| !is_long(first, call));
    }
    let expected: Vec<_> = calls.iter().map(|call| devices::interpret(&definition, call)).collect();
    for expected in &expected {
        if let Err(error @ RunError::Bug { .. }) = expected {
            panic!("interpreter: {error}");
        }
    }
    for realized in &compiled {
        compare_with(realized, &calls, &expected);
    }
}

/// What a stage gives; nothing where the graph is refused.
fn supported<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(Error::Unsupported(_) | Error::Invalid(_) | Error::Limit(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Compares loops that verify, scheduled and applied, with what they say.
///
/// # Panics
/// When results differ, or a stage is at fault.
pub fn loops(loops: &Loops, call: &Call) {
    if !is_small(loops, &call.sizes) {
        return;
    }
    let expected = devices::interpret(loops, call);
    match &expected {
        // Texts may read what nothing has written, or write one element twice: no result is wrong then.
        Err(RunError::Bug { what, .. }) if !what.contains("outside") => return,
        Err(error @ RunError::Bug { .. }) => panic!("interpreter: {error}"),
        Ok(_) | Err(_) => {}
    }
    for target in targets() {
        let mut rewritten = loops.clone();
        let cx = Cx { target: &target, inlining: &Inlining::default(), tf32: false };
        for pass in PASSES {
            pass.apply(&mut rewritten, &cx);
            expect_sound(pass.name, &verify::loops::verify(&rewritten));
        }
        let outcome = litz_schedule::schedule(&rewritten, &target, &Heuristics::default());
        expect_sound("schedule", &legality::verify(&outcome.schedule, &rewritten));
        if let Some(realized) = realize(&rewritten, &outcome.schedule) {
            compare_with(&realized, slice::from_ref(call), slice::from_ref(&expected));
        }
    }
}

/// Kernels, in the form that code for the schedule's target is printed from, and program; nothing where a stage may refuse.
///
/// # Panics
/// When a stage is at fault.
pub fn realize(loops: &Loops, schedule: &litz_ir::schedule::Schedule) -> Option<Realized> {
    match litz_codegen::realize(loops, schedule) {
        Ok(mut realized) => {
            let backend = litz::backend(&Options::for_target(schedule.target)).expect("every target has one");
            for kernel in &mut realized.kernels {
                expect_sound("kernel", &verify::kernel::verify(kernel));
                for pass in backend.passes() {
                    if let Err(diag) = (pass.run)(kernel, &schedule.target) {
                        // Schedules may hold registers together that no digits of an index spread over threads.
                        assert!(diag.slug == "no-fragments", "{}: {diag}", pass.name);
                        return None;
                    }
                    expect_sound(pass.name, &verify::kernel::verify(kernel));
                }
            }
            expect_sound("program", &verify::program::verify_with(&realized.program, &realized.kernels));
            Some(realized)
        }
        Err(diags) => {
            let first = diags.first().expect("a refusal says why");
            assert!(MAY_BE_UNSUPPORTED.contains(&first.slug), "realize: {first}");
            None
        }
    }
}

fn expect_sound(stage: &str, diags: &Diags) {
    assert!(diags.is_empty(), "{stage}: {}", diags[0]);
}

fn compare_with(realized: &Realized, calls: &[Call], expected: &[Result<Vec<Expected>, RunError>]) {
    // A program is given the device of its first line alone.
    let Program { device, slots, .. } = &realized.program;
    if slots.values().any(|slot| slot.device != *device) {
        return;
    }
    let device = devices::on_reference(realized).unwrap_or_else(|error| panic!("reference device: {error}"));
    let compared = trial::calls(realized, device, calls, expected);
    compared.unwrap_or_else(|why| panic!("{why}"));
}

/// Compares kernels and program of a schedule that somebody wrote, and that verifies, with what its loops say.
///
/// # Panics
/// When results differ.
pub fn scheduled(loops: &Loops, realized: &Realized, call: &Call) {
    if is_long(realized, call) {
        return;
    }
    let expected = devices::interpret(loops, call);
    // Texts may read what nothing has written, or write one element twice: no result is wrong then.
    if !matches!(&expected, Err(RunError::Bug { .. })) {
        compare_with(realized, slice::from_ref(call), slice::from_ref(&expected));
    }
}

/// Whether a call would execute more statements than there is time for.
fn is_long(realized: &Realized, call: &Call) -> bool {
    let limits = Limits { iterations: MAX_STATEMENTS, ..Limits::default() };
    let executable = devices::on_reference(realized)
        .and_then(|device| devices::executable(realized, device, &call.weights, limits));
    let ran = executable.and_then(|executable| executable.run(&call.inputs));
    matches!(ran, Err(RunError::Limit(_)))
}

/// Sizes, inputs and constants for loops; nothing where no sizes are found, or what they ask for is too large.
pub fn made_up(loops: &Loops, seed: &[u8]) -> Option<Call> {
    let hash = seed.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut random = Random::new(hash);
    let sizes = (0..8).map(|_| made_up_sizes(loops, &mut random)).find(|sizes| holds(loops, sizes))?;
    if !is_small(loops, &sizes) {
        return None;
    }
    let (mut inputs, mut weights) = (Vec::new(), HashMap::new());
    for data in loops.bufs.values() {
        let numbers = |exprs: &[Expr]| -> Option<Vec<usize>> {
            exprs.iter().map(|&e| usize::try_from(value(e, &sizes)?).ok()).collect()
        };
        let fill = if data.dtype.is_float() { Fill::Small } else { Fill::Index(Expr::int(3)) };
        let mut tensor = || -> Option<Tensor> {
            let (extents, strides) = (numbers(&data.sizes)?, numbers(&data.strides)?);
            Some(fill_tensor(data.dtype, &extents, &strides, fill, random.next()))
        };
        match &data.kind {
            BufKind::Temp => {}
            BufKind::Input => inputs.push(tensor()?),
            BufKind::Const(name) => {
                weights.insert(name.clone(), tensor()?);
            }
        }
    }
    Some(Call { sizes, inputs, weights })
}

/// Each symbol's hint or a number near its least value.
fn made_up_sizes(loops: &Loops, random: &mut Random) -> HashMap<Sym, i64> {
    let size = |sym: Sym| {
        let range = loops.facts.range_of(sym);
        let near = range.lo.max(0).saturating_add(random.below(5) as i64);
        let chosen = if random.below(2) == 0 { loops.facts.hint_of(sym).unwrap_or(near) } else { near };
        (sym, chosen.clamp(range.lo, range.hi))
    };
    loops.facts.symbols().map(size).collect()
}

/// Whether the sizes are multiples of what they are declared to be, and all guards hold.
fn holds(loops: &Loops, sizes: &HashMap<Sym, i64>) -> bool {
    let divides = |(&sym, &size): (&Sym, &i64)| size % loops.facts.divisor_of(sym).max(1) == 0;
    sizes.iter().all(divides)
        && loops
            .facts
            .guards()
            .iter()
            .all(|guard| guard.clause.eval(&|sym| sizes.get(&sym).copied()) == Some(true))
}

fn value(e: Expr, sizes: &HashMap<Sym, i64>) -> Option<i64> {
    e.eval(&|sym| sizes.get(&sym).copied())
}

/// Whether a call takes milliseconds.
fn is_small(loops: &Loops, sizes: &HashMap<Sym, i64>) -> bool {
    let points = |nest: &Nest| {
        let mut extents = nest.all_axes().map(|axis| value(axis.extent, sizes));
        extents.try_fold(1_i64, |product, extent| product.checked_mul(extent?.max(0)))
    };
    let points = loops.stmts.iter().flat_map(Stmt::nests).map(points);
    let elements = loops.bufs.values().map(|data| value(data.span(), sizes));
    sums_to_at_most(MAX_POINTS, points) && sums_to_at_most(MAX_ELEMENTS, elements)
}

/// Whether all numbers are known and their sum is no more than `most`, or than what a number can say.
fn sums_to_at_most(most: i64, numbers: impl Iterator<Item = Option<i64>>) -> bool {
    let sum = { numbers }.try_fold(0_i64, |sum, number| sum.checked_add(number?.max(0)));
    sum.is_some_and(|sum| sum <= most)
}
