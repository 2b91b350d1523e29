//! Tries calls that may contradict themselves the way a user would: as graph texts and as archives, compiled and, where
//! they are not refused, run on made-up operands.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use litz::{Error, Model, Options, Runner, Stage, Text, Verify, pipeline};
use litz_ir::graph::{Arg, Device, Form, Graph, Node, OpName, Origin, Type};
use litz_ops::{InferCx, Table, infer};
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::{GuardPages, Limits, RunError};

use crate::archive;
use crate::cases::{self, Case};
use crate::contradictions;
use crate::devices;
use crate::mutants::{self, Change};

/// A call to try.
#[derive(Clone, Debug)]
pub struct Call {
    /// Where it is from, and what makes it one to try.
    pub name: String,
    /// The call.
    pub case: Case,
    expected: Expected,
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    /// A message that names the operator and both of these.
    Refused([&'static str; 2]),
    /// It runs.
    Ran,
    /// It is refused or runs; a message names the operator and, of a size, two numbers, the changed one among them.
    Either(Change),
}

/// All calls: those written by hand, then those made of the recorded ones.
///
/// # Errors
/// Where the recorded calls cannot be read.
pub fn calls() -> Result<Vec<Call>, String> {
    let by_hand = |(at, (text, expected)): (usize, (&str, Expected))| {
        Ok(Call { name: format!("hand:{} {text}", at + 1), case: contradictions::parse(text)?, expected })
    };
    let refused = contradictions::REFUSED.iter().map(|(text, named)| (*text, Expected::Refused(*named)));
    let accepted = contradictions::ACCEPTED.iter().map(|text| (*text, Expected::Ran));
    let mut calls: Vec<Call> =
        refused.chain(accepted).enumerate().map(by_hand).collect::<Result<_, String>>()?;
    for family in cases::FAMILIES {
        for case in cases::read(family)? {
            calls.extend(mutants::of(&case).into_iter().map(|mutant| Call {
                name: format!("{family}:{} {}", case.line, mutant.change),
                case: mutant.case,
                expected: Expected::Either(mutant.change),
            }));
        }
    }
    Ok(calls)
}

/// The outcome, or what is wrong with it: a message that does not say enough, an outcome that is not the expected one.
pub fn judged(call: &Call, outcome: &Outcome) -> Outcome {
    let op = call.case.op.as_str();
    let problem = match (call.expected, outcome) {
        (Expected::Refused(named), Outcome::Refused(message)) => named
            .iter()
            .chain([&op])
            .find(|part| !message.contains(**part))
            .map(|part| format!("no `{part}` in: {message}")),
        (Expected::Ran, Outcome::Ran) => None,
        (Expected::Either(_), Outcome::Refused(message)) if !message.contains(op) => {
            Some(format!("no `{op}` in: {message}"))
        }
        (Expected::Either(Change::Size { to, .. }), Outcome::Refused(message)) => {
            let own = message.replace(op, "");
            let words = own.split(|c: char| !c.is_ascii_alphanumeric());
            let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            let has_both = numbers.len() > 1 && numbers.contains(&(to as u64));
            (!has_both).then(|| format!("no two sizes in: {message}"))
        }
        (Expected::Either(_), _) | (_, Outcome::Finding(_)) => None,
        (Expected::Refused(_) | Expected::Ran, other) => Some(format!("expected otherwise: {other}")),
    };
    problem.map_or(outcome.clone(), Outcome::Finding)
}

/// How a call ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Refused as invalid, status 3, with this message.
    Refused(String),
    /// Known, and not supported.
    Unsupported(String),
    /// It ran inside of its buffers.
    Ran,
    /// It compiled, and is too large to run here.
    Large,
    /// What must not happen: an internal error, an access outside, a disagreement of the ways.
    Finding(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Refused(why) => write!(f, "refused {}", one_line(why)),
            Outcome::Unsupported(why) => write!(f, "unsupported {}", one_line(why)),
            Outcome::Ran => write!(f, "ran"),
            Outcome::Large => write!(f, "large"),
            Outcome::Finding(why) => write!(f, "FINDING {}", one_line(why)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where calls that are not refused run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Where {
    /// On the reference device, which checks every access.
    Reference,
    /// There and as machine code, whose buffers lie between unmapped pages: once their ends, once their starts next to one.
    Native,
}

/// Results of more elements are not computed.
const MOST_ELEMENTS: i64 = 1 << 20;
/// Statements that a call may execute: a few seconds of the reference device.
const MOST_ITERATIONS: u64 = 1 << 24;

/// Compiles the call as a text and as an archive, and runs it.
pub fn attempt(case: &Case, place: Where) -> Outcome {
    let graph = graph_of(case);
    let text = compiled_text(&graph);
    let archive = match archive::of(&graph) {
        Ok(archive) => archive,
        // What no archive can say is tried as a text alone.
        Err(_) => return text.err().unwrap_or(Outcome::Ran),
    };
    let archive = from_archive(case, &graph, archive, place).unwrap_or_else(|outcome| outcome);
    match (text, archive) {
        (_, Outcome::Finding(why)) | (Err(Outcome::Finding(why)), _) => Outcome::Finding(why),
        (Err(Outcome::Refused(_)), Outcome::Refused(why)) => Outcome::Refused(why),
        (Err(Outcome::Unsupported(_)), Outcome::Unsupported(why)) => Outcome::Unsupported(why),
        (Ok(()), outcome @ (Outcome::Ran | Outcome::Large)) => outcome,
        (text, archive) => Outcome::Finding(format!("as a text {text:?}, as an archive {archive:?}")),
    }
}

/// The call as a graph. Its results have the types that inference gives or, where it refuses, those recorded: what a
/// hostile file would say.
fn graph_of(case: &Case) -> Graph {
    let mut graph = Graph::new("call", Device::Cpu);
    for (at, recorded) in case.tensors.iter().enumerate() {
        let value = graph.value(format!("x{at}"), Type::Tensor(recorded.ty.clone()));
        graph.inputs.push(value);
    }
    let (op, args) = (OpName::new(&case.op), case.args.clone());
    let origin = Origin { line: Some("model.py:7".into()), ..Origin::default() };
    let mut node = Node { op, form: Form::Plain, args, outputs: Vec::new(), origin: Some(Arc::new(origin)) };
    let table = Table::new();
    // Guards are found again by those who compile the graph.
    let mut facts = graph.facts.clone();
    let mut cx = InferCx { table: &table, values: &graph.values, facts: &mut facts, device: graph.device };
    let first = case.tensors.first().filter(|_| case.results.is_empty());
    let recorded =
        || case.results.iter().chain(first).map(|result| Type::Tensor(result.ty.clone())).collect();
    let types: Vec<Type> = match infer(&mut cx, &node) {
        Ok(types) => types.into_iter().flatten().collect(),
        Err(_) => recorded(),
    };
    let results = types.into_iter().enumerate();
    node.outputs = results.map(|(at, ty)| Some(graph.value(format!("y{at}"), ty))).collect();
    // Further results may have no meaning; what nothing uses is not computed.
    let used = node.outputs.iter().flatten().take(case.results.len().max(1));
    graph.outputs = used.map(|&value| Arg::Value(value)).collect();
    graph.nodes.push(node);
    graph
}

fn options() -> Options {
    Options { threads: 2, cache: None, verify: Verify::Passes, ..Options::default() }
}

fn outcome_of(error: &Error) -> Outcome {
    let message = error.to_string();
    match error {
        Error::Invalid(_) | Error::Import(_) => Outcome::Refused(message),
        Error::Unsupported(_) | Error::Limit(_) | Error::Run(RunError::Limit(_)) => {
            Outcome::Unsupported(message)
        }
        // Positions that do not exist, and memory that is not there, end a call cleanly.
        Error::Run(RunError::BadIndex { .. } | RunError::OutOfMemory(_)) => Outcome::Ran,
        Error::Run(_)
        | Error::Io { .. }
        | Error::Cache(_)
        | Error::Artifact(_)
        | Error::Stopped
        | Error::Bug { .. } => Outcome::Finding(message),
    }
}

/// As `litz compile` takes a text.
fn compiled_text(graph: &Graph) -> Result<(), Outcome> {
    let options = options();
    let parsed = Text::parse(&graph.to_string()).map_err(|error| outcome_of(&error))?;
    let Text::Graph(graph) = parsed else {
        return Err(Outcome::Finding("a graph reads as something else".into()));
    };
    let backend = litz::backend(&options).map_err(|error| outcome_of(&error))?;
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(options.verify, None, &mut quiet);
    let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut run);
    texts.map(|_| ()).map_err(|error| outcome_of(&error))
}

fn from_archive(case: &Case, graph: &Graph, archive: Vec<u8>, place: Where) -> Result<Outcome, Outcome> {
    let failed = |error: Error| outcome_of(&error);
    let model = Model::from_bytes(Arc::new(archive)).map_err(failed)?;
    let options = options();
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(options.verify, None, &mut quiet);
    let texts = model.texts(&options, Stage::Program, &mut run).map_err(failed)?;
    if is_large(graph) {
        return Ok(Outcome::Large);
    }
    let realized = texts.realized.ok_or_else(|| Outcome::Finding("there is no program".into()))?;
    let mut devices =
        vec![(devices::on_reference(&realized).map_err(|e| failed(e.into()))?, GuardPages::Off)];
    if place == Where::Native {
        let backend = litz::backend(&options).map_err(failed)?;
        let pool = Arc::new(ThreadPool::unbound(options.threads));
        let native = devices::on_native(&realized, &*backend, &options, &pool).map_err(failed)?;
        devices.extend([GuardPages::AtEnds, GuardPages::AtStarts].map(|pages| (native.clone(), pages)));
    }
    for (device, guard_pages) in devices {
        let limits = Limits { iterations: MOST_ITERATIONS, ..Limits::default() };
        let options = RunOptions { guard_pages, limits, ..RunOptions::default() };
        let (program, kernels, weights) = (&realized.program, &realized.kernels, HashMap::new());
        let ended = Executable::with_options(program, kernels, device, &weights, &options)
            .and_then(|executable| executable.run(&case.inputs()));
        if matches!(ended, Err(RunError::Limit(_))) {
            return Ok(Outcome::Large);
        }
        match ended.map_err(|error| failed(error.into())) {
            Ok(_) | Err(Outcome::Ran) => {}
            Err(outcome) => return Ok(outcome),
        }
    }
    Ok(Outcome::Ran)
}

/// Whether a value has too many elements to try, or a number of them that nobody knows.
fn is_large(graph: &Graph) -> bool {
    graph.values.values().any(|data| match &data.ty {
        Type::Tensor(ty) => ty.numel().as_int().is_none_or(|count| count > MOST_ELEMENTS),
        Type::Int(_) | Type::Float | Type::Bool => false,
    })
}
