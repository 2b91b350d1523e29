//! Finds the pass, stage or kernel that makes the results of a case wrong.
//!
//! Each text between the graph and machine code can be run: graphs and loops by the interpreter of loops, kernels by the reference device. The first text
//! is right by definition, the last is what failed. Bisection finds two neighbours of which the first is right and the second wrong: what is between
//! them is at fault. Of kernels it then finds the one: some run as they were before that pass, the others as they are behind it.

use crate::attempt::{self, Outcome, interpret};
use crate::backends::{self, Device};
use crate::case::Case;
use crate::compare::{self, Expected};
use crate::definition::definition;
use crate::error::Error;
use crate::options::{Options, Verify};
use crate::pipeline;
use crate::provenance;
use crate::runner::{Runner, Stage};
use litz_backend::Backend;
use litz_codegen::Realized;
use litz_ir::graph::Graph;
use litz_ir::kernel::Kernel;
use litz_ir::loops::Loops;
use litz_ir::program::{Program, ProgramStep};
use litz_passes::graph::GraphSettings;
use litz_passes::loops::Cx;
use litz_runtime::mixed::MixedDevice;
use litz_runtime::program::Value;
use litz_runtime::reference::{self, ReferenceDevice};
use std::fmt;
use std::sync::Arc;

/// What is at fault.
#[derive(Clone, PartialEq, Debug)]
pub struct Culprit {
    /// The pass, or the stage: `lower`, `realize` (which applies the schedule), `machine code`.
    pub step: String,
    /// What it works on.
    pub stage: &'static str,
    /// How what comes of it differs from what went in; empty where that cannot be run.
    pub why: String,
    /// The kernel, where it is one.
    pub kernel: Option<String>,
    /// The nodes that the kernel computes, launch by launch, each with its source line.
    pub nodes: Vec<String>,
    /// Lines that the step removed, with `-` before them, and added, with `+`.
    pub changes: Vec<String>,
}

impl fmt::Display for Culprit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "wrong from {} on ({}): {}", self.step, self.stage, self.why)?;
        if let Some(kernel) = &self.kernel {
            writeln!(f, "kernel @{kernel}")?;
        }
        for node in &self.nodes {
            writeln!(f, "  {node}")?;
        }
        for change in &self.changes {
            writeln!(f, "{change}")?;
        }
        Ok(())
    }
}

/// A text that can be run.
enum State {
    Graph(Graph),
    Loops(Loops),
    Kernels(Vec<Kernel>),
    /// The code that the backend makes of the last kernels.
    Code,
}

/// What a step gave.
struct Given {
    step: &'static str,
    state: State,
}

/// A compilation that is kept step by step.
struct Compilation {
    given: Vec<Given>,
    program: Option<Program>,
    /// Where it ended with an error.
    failed: Option<(&'static str, Error)>,
}

/// Finds what makes a case wrong whose attempt has had this outcome; none where every text is right.
///
/// # Errors
/// When the case is refused, or the interpreter of loops cannot run it.
pub fn bisect(
    case: &Case,
    options: &Options,
    outcome: &Outcome,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Culprit>, Error> {
    match outcome {
        Outcome::Right => return Ok(None),
        Outcome::Refused(why) => return Err(Error::Invalid(vec![litz_ir::Diag::new("refused", why)])),
        Outcome::Failed { step, message } if step != "run" => return Ok(Some(named(step, message, options))),
        Outcome::Crashed { step, .. } | Outcome::Endless { step } if step != "run" => {
            return Ok(Some(named(step, &outcome.to_string(), options)));
        }
        Outcome::NotFinite(_)
        | Outcome::Failed { .. }
        | Outcome::Wrong { .. }
        | Outcome::Crashed { .. }
        | Outcome::Endless { .. } => {}
    }
    let options = &Options { cache: None, verify: Verify::Nothing, dump: None, ..options.clone() };
    let expected = match &case.expected {
        Some(expected) => expected.clone(),
        None => interpret(case)??,
    };
    let backend = backends::backend(options)?;
    let compilation = compile(case, &*backend, options, say);
    if let Some((step, error)) = &compilation.failed {
        return Ok(Some(named(step, &error.to_string(), options)));
    }
    let bench = Bench { case, options, backend: &*backend, compilation: &compilation, expected: &expected };
    // What crashes is not run here again: the last text is known to be wrong.
    let (mut low, mut high) = (0, compilation.given.len() - 1);
    let mut why = match &compilation.given[high].state {
        State::Code if matches!(outcome, Outcome::Crashed { .. } | Outcome::Endless { .. }) => {
            outcome.to_string()
        }
        State::Code | State::Kernels(_) | State::Loops(_) | State::Graph(_) => match bench.differs(high) {
            Some(why) => why,
            None => return Ok(None),
        },
    };
    while high - low > 1 {
        let middle = low.midpoint(high);
        say(compilation.given[middle].step);
        match bench.differs(middle) {
            Some(found) => (high, why) = (middle, found),
            None => low = middle,
        }
    }
    Ok(Some(bench.culprit(high, why, outcome)))
}

/// What is at fault where a step has ended with an error.
fn named(step: &str, message: &str, options: &Options) -> Culprit {
    let is_of_graphs = options.passes.graph.iter().any(|pass| pass.name == step);
    let is_of_loops = options.passes.loops.iter().any(|pass| pass.name == step);
    let stage = match step {
        _ if is_of_graphs => "graph",
        _ if is_of_loops || step == "lower" => "loops",
        "schedule" | "prove" => "schedule",
        _ => "kernel",
    };
    let (step, why) = (step.to_owned(), message.to_owned());
    Culprit { step, stage, why, kernel: None, nodes: Vec::new(), changes: Vec::new() }
}

/// Compiles a case and keeps every text on the way.
fn compile(case: &Case, backend: &dyn Backend, options: &Options, say: &mut dyn FnMut(&str)) -> Compilation {
    let mut compilation = Compilation { given: Vec::new(), program: None, failed: None };
    if let Err((step, error)) = steps(case, backend, options, &mut compilation, say) {
        compilation.failed = Some((step, error));
    }
    compilation
}

type Failed = (&'static str, Error);

fn steps(
    case: &Case,
    backend: &dyn Backend,
    options: &Options,
    compilation: &mut Compilation,
    say: &mut dyn FnMut(&str),
) -> Result<(), Failed> {
    let Compilation { given, program, .. } = compilation;
    let mut keep = |step, state| given.push(Given { step, state });
    let (settings, target) = (GraphSettings { freeze: options.freeze }, backend.target());
    let mut graph = case.graph.clone();
    graph.tell_subgraphs();
    keep("import", State::Graph(graph.clone()));
    for pass in options.passes.graph {
        let run = &mut |graph: &mut Graph| (pass.run)(graph, &settings).map(drop);
        graph.each(run).map_err(|diags| (pass.name, Error::of_diags(diags)))?;
        keep(pass.name, State::Graph(graph.clone()));
    }
    let lowered = litz_ops::lower_with(&graph, &|op| crate::host::provides(options, op));
    let mut loops = lowered.map_err(|diags| ("lower", Error::of_diags(diags)))?;
    keep("lower", State::Loops(loops.clone()));
    let cx = Cx { target, inlining: &options.inlining, tf32: options.tf32 };
    for pass in options.passes.loops {
        loops.each(&mut |loops| {
            pass.apply(loops, &cx);
        });
        keep(pass.name, State::Loops(loops.clone()));
    }
    let mut run = Runner::new(Verify::Nothing, None, say);
    let passes = crate::options::Passes { loops: &[], ..options.passes };
    let scheduling = Options { passes, ..options.clone() };
    let texts = pipeline::compile_loops(loops.clone(), backend, &scheduling, Stage::Schedule, &mut run);
    let schedule = texts.map_err(|error| ("schedule", error))?.schedule;
    let schedule = schedule.expect("invariant: there is one behind its stage");
    let realized = litz_codegen::realize(&loops, &schedule);
    let mut realized = realized.map_err(|diags| ("realize", Error::bug("realize", Error::Invalid(diags))))?;
    provenance::attach(&mut realized, &graph, &loops, &schedule);
    let Realized { mut kernels, program: made, .. } = realized;
    *program = Some(made);
    keep("realize", State::Kernels(kernels.clone()));
    for pass in backend.passes() {
        let mut all = kernels.iter_mut();
        let applied = all.try_for_each(|kernel| (pass.run)(kernel, target));
        applied.map_err(|diag| (pass.name, Error::of_diags(vec![diag])))?;
        keep(pass.name, State::Kernels(kernels.clone()));
    }
    if !options.reference {
        keep("machine code", State::Code);
    }
    Ok(())
}

/// What texts are run on, and held against.
struct Bench<'a> {
    case: &'a Case,
    options: &'a Options,
    backend: &'a dyn Backend,
    compilation: &'a Compilation,
    expected: &'a [Expected],
}

impl Bench<'_> {
    /// How what a text gives differs from what it has to; an error of its run is a difference, too.
    fn differs(&self, at: usize) -> Option<String> {
        let found = match &self.compilation.given[at].state {
            State::Graph(graph) => definition(graph).and_then(|loops| self.interpreted(&loops)),
            State::Loops(loops) => self.interpreted(loops),
            State::Kernels(kernels) => self.on_reference(kernels).and_then(|device| self.launched(device)),
            State::Code => self.native().and_then(|device| self.launched(device)),
        };
        self.compared(found)
    }

    fn compared(&self, found: Result<Vec<Value>, Error>) -> Option<String> {
        match found {
            Ok(found) => compare::results(&found, self.expected).err(),
            Err(error) => Some(error.to_string()),
        }
    }

    fn interpreted(&self, loops: &Loops) -> Result<Vec<Value>, Error> {
        let Case { inputs, weights, .. } = self.case;
        let results = reference::loops::run(loops, &self.case.sizes(), inputs, weights)?;
        Ok(compare::expected(loops, results).into_iter().map(|one| one.value).collect())
    }

    fn launched(&self, device: Device) -> Result<Vec<Value>, Error> {
        Ok(attempt::load(&self.realized(), device, self.options, &self.case.weights)?
            .run(&self.case.inputs)?)
    }

    /// The program with the kernels as they are in the end.
    fn realized(&self) -> Realized {
        let program = self.compilation.program.clone().expect("invariant: there is one behind its stage");
        Realized {
            kernels: self.kernels_before(self.compilation.given.len()).to_vec(),
            program,
            shared: Vec::new(),
        }
    }

    /// The kernels that the last step before `at` with kernels gave.
    fn kernels_before(&self, at: usize) -> &[Kernel] {
        let given = self.compilation.given[..at].iter().rev();
        let mut kernels = given.filter_map(|given| match &given.state {
            State::Kernels(kernels) => Some(kernels),
            State::Graph(_) | State::Loops(_) | State::Code => None,
        });
        kernels.next().map_or(&[], Vec::as_slice)
    }

    fn on_reference(&self, kernels: &[Kernel]) -> Result<Device, Error> {
        Ok(Arc::new(ReferenceDevice::with(kernels, &self.options.reference_options)?))
    }

    fn native(&self) -> Result<Device, Error> {
        let mut quiet = |_: &str| {};
        let mut run = Runner::new(Verify::Nothing, None, &mut quiet);
        attempt::device(self.backend, &self.realized(), self.options, &mut run)
    }

    /// What there is to say of a step whose text is wrong, and before which it is right.
    fn culprit(&self, at: usize, why: String, outcome: &Outcome) -> Culprit {
        let Given { step, state } = &self.compilation.given[at];
        let before = &self.compilation.given[at - 1].state;
        let (stage, changes) = match (before, state) {
            (State::Graph(before), State::Graph(graph)) => {
                ("graph", changes(&before.to_string(), &graph.to_string()))
            }
            (State::Loops(before), State::Loops(loops)) => {
                ("loops", changes(&before.to_string(), &loops.to_string()))
            }
            (State::Graph(_), _) => ("loops", Vec::new()),
            (State::Loops(_), _) => ("schedule", Vec::new()),
            (State::Kernels(_) | State::Code, _) => ("kernel", Vec::new()),
        };
        let is_safe = !matches!(outcome, Outcome::Crashed { .. } | Outcome::Endless { .. });
        let kernel = match (before, state) {
            (State::Kernels(before), State::Kernels(kernels)) => {
                self.kernel(before, self.on_reference(before), self.on_reference(kernels))
            }
            (State::Kernels(before), State::Code) if is_safe => {
                self.kernel(before, self.on_reference(before), self.native())
            }
            (State::Graph(_) | State::Loops(_) | State::Kernels(_) | State::Code, _) => None,
        };
        let changes = match (&kernel, state, before) {
            (Some(name), State::Kernels(kernels), State::Kernels(before)) => {
                let text = |kernels: &[Kernel]| {
                    kernels
                        .iter()
                        .find(|kernel| kernel.name == *name)
                        .map_or_else(String::new, ToString::to_string)
                };
                self::changes(&text(before), &text(kernels))
            }
            _ => changes,
        };
        let nodes = kernel.as_ref().map_or_else(Vec::new, |kernel| self.nodes(kernel));
        Culprit { step: (*step).to_owned(), stage, why, kernel, nodes, changes }
    }

    /// The kernel with which results become wrong, where all before it run on the second of two devices and those behind it on the first.
    fn kernel(
        &self,
        kernels: &[Kernel],
        right: Result<Device, Error>,
        wrong: Result<Device, Error>,
    ) -> Option<String> {
        let (right, wrong) = (right.ok()?, wrong.ok()?);
        let names: Vec<&str> = kernels.iter().map(|kernel| &*kernel.name).collect();
        let is_wrong = |count: usize| {
            let devices = [Arc::clone(&right), Arc::clone(&wrong)];
            let is_second = |name: &str| names[..count].contains(&name);
            let mixed: Device = Arc::new(MixedDevice::new(devices, names.iter().copied(), &is_second));
            self.compared(self.launched(mixed)).is_some()
        };
        let (mut low, mut high) = (0, names.len());
        if high == 0 || !is_wrong(high) || is_wrong(0) {
            return None;
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            if is_wrong(middle) { high = middle } else { low = middle }
        }
        Some(names[high - 1].to_owned())
    }

    /// What each launch of a kernel computes.
    fn nodes(&self, kernel: &str) -> Vec<String> {
        let program = self.compilation.program.as_ref();
        let programs = program.map_or_else(Vec::new, Program::all);
        let mut nodes = Vec::new();
        for program in programs {
            for step in program.load.iter().chain(&program.steps) {
                if let ProgramStep::Launch { kernel: launched, from, .. } = step
                    && launched == kernel
                {
                    nodes.extend(from.iter().map(|name| program.node(name)));
                }
            }
        }
        nodes
    }
}

/// Most lines of a change that are worth reading.
const MOST_CHANGES: usize = 24;

/// The lines of a text that another one does not have, and the other way around, in order.
fn changes(before: &str, after: &str) -> Vec<String> {
    let missing = |mark: char, text: &str, other: &str| {
        let mut left: Vec<&str> = other.lines().map(str::trim_end).collect();
        left.sort_unstable();
        let lines: Vec<String> = text
            .lines()
            .filter(|line| match left.binary_search(&line.trim_end()) {
                Ok(at) => {
                    left.remove(at);
                    false
                }
                Err(_) => true,
            })
            .map(|line| format!("{mark} {}", line.trim()))
            .collect();
        lines
    };
    let mut lines = missing('-', before, after);
    lines.extend(missing('+', after, before));
    if lines.len() > MOST_CHANGES {
        let more = lines.len() - MOST_CHANGES;
        lines.truncate(MOST_CHANGES);
        lines.push(format!(".. and {more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_lines_that_one_text_has_alone() {
        assert_eq!(changes("a\nb\n  c\n", "a\nb\n  c\n"), [""; 0]);
        assert_eq!(changes("a\nb\n  c\nb\n", "b\na\n  d\n"), ["- c", "- b", "+ d"]);
        let many: String = (0..100).map(|n| format!("{n}\n")).collect();
        let lines = changes("", &many);
        assert_eq!((lines.len(), &*lines[MOST_CHANGES]), (MOST_CHANGES + 1, ".. and 76 more"));
    }
}
