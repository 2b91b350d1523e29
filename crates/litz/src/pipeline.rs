//! Runs the whole compiler: a graph becomes loops, a schedule, kernels and a program.

use crate::error::Error;
use crate::host;
use crate::options::{Options, Verify};
use crate::proved::{self, Unproved};
use crate::provenance::{self, Provenance};
use crate::runner::{Runner, Stage};
use crate::size;
use litz_backend::Backend;
use litz_codegen::Realized;
use litz_ir::graph::Graph;
use litz_ir::kernel::Kernel;
use litz_ir::loops::Loops;
use litz_ir::target::Target;
use litz_ir::{schedule::Schedule, verify};
use litz_passes::graph::{GraphSettings, Pass, Verifier};
use litz_passes::loops::Cx;
use litz_schedule::FusionNote;

/// The texts a compilation went through, as far as it was asked to go.
#[derive(Default)]
pub struct Texts {
    /// After graph passes.
    pub graph: Option<Graph>,
    /// After loops passes.
    pub loops: Option<Loops>,
    /// The decision.
    pub schedule: Option<Schedule>,
    /// What was fused, and what not and why.
    pub notes: Vec<FusionNote>,
    /// What the scheduler wanted and could not be proved: nothing, but for a weak proof.
    pub unproved: Vec<Unproved>,
    /// Kernels and program.
    pub realized: Option<Realized>,
}

/// Rewrites `graph`, lowers it, schedules it and applies the schedule, stopping after `to`.
///
/// # Errors
/// When the graph uses something unsupported, or a stage is at fault.
pub fn compile(
    graph: Graph,
    backend: &dyn Backend,
    options: &Options,
    to: Stage,
    run: &mut Runner<'_>,
) -> Result<Texts, Error> {
    host::check(&graph, options)?;
    let mut graph = graph;
    provenance::keep(&mut graph, options.provenance);
    let graph = graph_passes(graph, options.passes.graph, options, run)?;
    if to == Stage::Graph {
        return Ok(Texts { graph: Some(graph), ..Texts::default() });
    }
    let loops = lower(&graph, options, run)?;
    let mut texts = compile_loops(loops, backend, options, to, run)?;
    if let Texts { loops: Some(loops), schedule: Some(schedule), realized: Some(realized), .. } = &mut texts
        && options.provenance != Provenance::Lines
    {
        provenance::attach(realized, &graph, loops, schedule);
    }
    Ok(Texts { graph: Some(graph), ..texts })
}

/// The loops of a graph after its passes, which are the same for every target.
///
/// # Errors
/// As [`compile`].
pub fn compile_graph(graph: Graph, options: &Options, run: &mut Runner<'_>) -> Result<Loops, Error> {
    lower(&graph_passes(graph, options.passes.graph, options, run)?, options, run)
}

fn lower(graph: &Graph, options: &Options, run: &mut Runner<'_>) -> Result<Loops, Error> {
    let loops = run
        .step("lower", || litz_ops::lower_with(graph, &|op| host::provides(options, op)))
        .map_err(Error::of_diags)?;
    size::check_loops(&loops, &options.limits)?;
    Ok(loops)
}

/// As [`compile`], from loops on.
///
/// # Errors
/// When a stage is at fault.
pub fn compile_loops(
    loops: Loops,
    backend: &dyn Backend,
    options: &Options,
    to: Stage,
    run: &mut Runner<'_>,
) -> Result<Texts, Error> {
    let loops = loops_passes(loops, backend.target(), options, run)?;
    if to == Stage::Loops {
        return Ok(Texts { loops: Some(loops), ..Texts::default() });
    }
    run.may_go_on(options)?;
    let (schedule, notes, unproved) = schedule(&loops, backend.target(), options, run)?;
    let realized = match to {
        Stage::Kernel | Stage::Program => Some(apply(&loops, &schedule, backend, options, run)?),
        Stage::Graph | Stage::Loops | Stage::Schedule => None,
    };
    if let Some(realized) = &realized {
        size::check_kernels(realized, &options.limits)?;
    }
    run.may_go_on(options)?;
    Ok(Texts { loops: Some(loops), schedule: Some(schedule), notes, unproved, realized, ..Texts::default() })
}

/// The schedule that the user gives, proved, or the scheduler's, with what was fused.
fn schedule(
    loops: &Loops,
    target: &Target,
    options: &Options,
    run: &mut Runner<'_>,
) -> Result<(Schedule, Vec<FusionNote>, Vec<Unproved>), Error> {
    let (schedule, notes, unproved) = match &options.schedule {
        Some(given) => (run.step("prove", || given.prove(loops, target))?, Vec::new(), Vec::new()),
        None => {
            let (outcome, unproved) =
                proved::schedule(loops, target, (&options.heuristics, options.threads), run)?;
            (outcome.schedule, outcome.notes, unproved)
        }
    };
    run.dump("schedule", &schedule)?;
    Ok((schedule, notes, unproved))
}

/// Applies a schedule. What cannot be applied is the user's move where the user gave it, else ours.
fn apply(
    loops: &Loops,
    schedule: &Schedule,
    backend: &dyn Backend,
    options: &Options,
    run: &mut Runner<'_>,
) -> Result<Realized, Error> {
    realize(loops, schedule, backend, run).map_err(|error| match (error, &options.schedule) {
        (Error::Invalid(diags), Some(given)) => Error::Invalid(given.named(diags)),
        (Error::Invalid(diags), None) => Error::bug("realize", Error::Invalid(diags)),
        (error, _) => error,
    })
}

/// Applies a schedule to its loops, and the backend's passes to the kernels.
///
/// # Errors
/// [`Error::Invalid`] when the schedule says what cannot be done; [`Error::Bug`] when what comes of it is wrong.
pub fn realize(
    loops: &Loops,
    schedule: &Schedule,
    backend: &dyn Backend,
    run: &mut Runner<'_>,
) -> Result<Realized, Error> {
    let realized = run.step("realize", || litz_codegen::realize(loops, schedule));
    let mut realized = realized.map_err(Error::Invalid)?;
    check_kernels(level(0, 1 + backend.passes().len()), "kernel", &realized.kernels, run)?;
    kernel_passes(&mut realized.kernels, backend, run)?;
    run.check(Verify::Stages, "program", &realized.program, |program| {
        verify::program::verify_with(program, &realized.kernels)
    })?;
    Ok(realized)
}

/// Applies the backend's passes, in order, to kernels. Those that have gone through them do not change.
///
/// # Errors
/// [`Error::Invalid`] when a kernel asks for what the target does not have; [`Error::Bug`] when what comes of it is wrong.
pub fn kernel_passes(
    kernels: &mut [Kernel],
    backend: &dyn Backend,
    run: &mut Runner<'_>,
) -> Result<(), Error> {
    let (passes, target) = (backend.passes(), backend.target());
    for (at, pass) in passes.iter().enumerate() {
        run.step(pass.name, || kernels.iter_mut().try_for_each(|kernel| (pass.run)(kernel, target)))
            .map_err(|diag| Error::of_diags(vec![diag]))?;
        check_kernels(level(at, passes.len()), pass.name, kernels, run)?;
    }
    Ok(())
}

fn check_kernels(
    level: Verify,
    name: &'static str,
    kernels: &[Kernel],
    run: &mut Runner<'_>,
) -> Result<(), Error> {
    for kernel in kernels {
        run.check(level, name, kernel, verify::kernel::verify_form)?;
        // Proofs are repeated where kernels are loaded, whatever is verified here.
        run.check(Verify::Passes, name, kernel, verify::kernel::verify)?;
    }
    Ok(())
}

/// How much must be verified for the result of pass `at` of `count` to be: the last one's is the stage's.
fn level(at: usize, count: usize) -> Verify {
    if at + 1 == count { Verify::Stages } else { Verify::Passes }
}

/// Graph passes in order.
fn graph_passes(
    mut graph: Graph,
    passes: &[Pass],
    options: &Options,
    run: &mut Runner<'_>,
) -> Result<Graph, Error> {
    let settings = GraphSettings { freeze: options.freeze };
    run.check(Verify::Stages, "import", &graph, verify::graph::verify)?;
    graph.tell_subgraphs();
    let mut verifier = Verifier::default();
    for (at, pass) in passes.iter().enumerate() {
        size::check_graph(&graph, &options.limits)?;
        run.may_go_on(options)?;
        run.step(pass.name, || graph.each(&mut |graph| (pass.run)(graph, &settings).map(drop)))
            .map_err(Error::of_diags)?;
        run.check(level(at, passes.len()), pass.name, &graph, |graph| verifier.after(pass, graph))?;
    }
    size::check_graph(&graph, &options.limits)?;
    Ok(graph)
}

/// Every loops pass in order.
fn loops_passes(
    mut loops: Loops,
    target: &Target,
    options: &Options,
    run: &mut Runner<'_>,
) -> Result<Loops, Error> {
    let cx = Cx { target, inlining: &options.inlining, tf32: options.tf32 };
    let passes = options.passes.loops;
    run.check(Verify::Stages, "lower", &loops, verify::loops::verify)?;
    for (at, pass) in passes.iter().enumerate() {
        run.may_go_on(options)?;
        run.step(pass.name, || {
            loops.each(&mut |loops| {
                pass.apply(loops, &cx);
            });
        });
        size::check_loops(&loops, &options.limits)?;
        run.check(level(at, passes.len()), pass.name, &loops, verify::loops::verify)?;
    }
    Ok(loops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::Diags;
    use litz_ir::graph::{Arg, OpName};
    use litz_passes::graph::{Form, PASSES};

    const GRAPH: &str = "graph @g on cpu {
  %x: f32[3, 4] = input
  %t: f32[4, 3]{1, 4} = aten.permute.default(%x, [1, 0])
  %y: f32[4, 3]{1, 4} = aten.relu.default(%t)
  return %y
}
";

    /// What comes of a pass behind all others.
    fn outcome(run: fn(&mut Graph, &GraphSettings) -> Result<usize, Diags>) -> Result<Graph, Error> {
        let graph = litz_ir::text::graph::parse(GRAPH).expect("parses");
        let last = PASSES.iter().map(|pass| Pass { ..*pass });
        let passes: Vec<Pass> = last.chain([Pass { name: "broken", run, form: Form::Placed }]).collect();
        let options = Options { verify: Verify::Passes, ..Options::default() };
        let mut quiet = |_: &str| {};
        graph_passes(graph, &passes, &options, &mut Runner::new(options.verify, None, &mut quiet))
    }

    #[track_caller]
    fn assert_refused(run: fn(&mut Graph, &GraphSettings) -> Result<usize, Diags>, expected: &str) {
        let error = outcome(run).map(|graph| graph.to_string()).expect_err("the pass is broken");
        let message = error.to_string();
        assert!(matches!(error, Error::Bug { .. }), "{message}");
        assert!(message.contains("broken") && message.contains(expected), "{message}");
    }

    #[test]
    fn a_pass_that_forgets_types_downstream_is_named() {
        assert!(outcome(|_, _| Ok(0)).is_ok());
        assert_refused(
            |graph, _| {
                graph.nodes[0].args[1] = Arg::ints([0.into(), 1.into()]);
                Ok(1)
            },
            "type-disagrees]: aten.permute.default: %t: expected f32[3, 4], found f32[4, 3]{1, 4}",
        );
    }

    #[test]
    fn a_pass_that_writes_out_of_turn_is_named() {
        assert_refused(
            |graph, _| {
                graph.nodes[1].op = OpName::new("aten.relu_.default");
                Ok(1)
            },
            "late-write]: aten.relu_.default",
        );
    }

    #[test]
    fn a_pass_that_changes_what_callers_see_is_named() {
        assert_refused(
            |graph, _| {
                graph.updates.push((graph.inputs[0], graph.inputs[0]));
                Ok(1)
            },
            "interface-changed]",
        );
        assert_refused(
            |graph, _| {
                graph.outputs[0] = Arg::Value(graph.inputs[0]);
                Ok(1)
            },
            "interface-changed]: result 0: expected f32[4, 3]{1, 4}, found f32[3, 4]",
        );
    }
}
