//! Makes one page about a model, to be looked at: what the user's lines became, what that costs, and why.
//!
//! A report is data, JSON, and the page is that data and a script that draws it ([`page`]). The model is compiled for it once more, with
//! every stage, and its calls are timed as `litz bench` times them.
//!
//! | key | what |
//! |---|---|
//! | `sources`, `nodes`, `statements`, `steps`, `kernels` | the way from lines to kernels: lists, whose items name each other by position |
//! | `measured`, `unmeasured` | times of calls and the machine's peaks, or why there are none |
//! | `stages` | seconds of each stage of the compilation |
//! | `fusion` | which statements share a kernel, which do not and why, with the bytes that this saves or costs |
//! | `memory` | what a call allocates, and what lies in it from which step to which |
//! | `hosts` | operators that the host runs |
//! | `texts` | the text of each stage, cut where it is long |

mod map;
mod memory;
mod page;

use crate::backends;
use crate::compiled::Compiled;
use crate::error::Error;
use crate::explain;
use crate::host::host_operators;
use crate::made_up;
use crate::measure::{self, KernelTime, Measured};
use crate::model::Model;
use crate::options::Options;
use crate::pipeline::Texts;
use crate::runner::{Runner, Stage, Timing};
use litz_runtime::Tensor;
use litz_runtime::program::Statistics;
use litz_schedule::FusionNote;
use serde_json::{Value, json};

pub use page::page;

/// What a page shows of one model.
pub struct Report {
    data: Value,
}

/// Bytes of a stage's text that a page holds at most.
const MOST_TEXT: usize = 2 << 20;

/// Pairs of statements that a page lists at most; all are counted.
const MOST_PAIRS: usize = 1000;

impl Report {
    /// Compiles a model by these options, but for its caches, and times so many calls of it, with inputs of the caller's or with
    /// made-up ones; none: times nothing. Tells `progress` what it is about to do.
    ///
    /// # Errors
    /// Where the model cannot be compiled, or calls with the caller's inputs fail. Where the machine cannot run the target's code, or
    /// calls with made-up inputs fail, the report says so.
    pub fn new(
        model: &Model,
        options: &Options,
        inputs: Option<&[Tensor]>,
        calls: usize,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Report, Error> {
        // Where the cache has a compilation, stages do not run and have no texts.
        let options = Options { profile: true, cache: None, ..options.clone() };
        let runs_here = options.reference || backends::backend(&options)?.check_machine().is_ok();
        if !runs_here {
            let mut run = Runner::new(options.verify, options.dump.clone(), progress);
            let texts = model.texts(&options, Stage::Program, &mut run)?;
            let timings = run.timings;
            let why = "this machine cannot run the code".to_owned();
            return Report::of(model, &options, &texts, &timings, Err(why));
        }
        let compiled = model.compile_with(&options, progress)?;
        progress("timing");
        let calls = match (calls, inputs) {
            (0, _) => Err("no calls were asked for".to_owned()),
            (_, Some(inputs)) => Ok((measure::measure(&compiled, None, inputs, &options, calls)?, "given")),
            (_, None) => made_up::inputs(&made_up::of_model(model), &model.imported.graph.facts)
                .and_then(|inputs| measure::measure(&compiled, None, &inputs, &options, calls))
                .map(|measured| (measured, "made up"))
                .map_err(|error| format!("a call with made-up inputs failed: {error}")),
        };
        let calls = calls.map(|(measured, inputs)| Calls { measured, inputs, compiled: &compiled });
        Report::of(model, &options, &compiled.texts, &compiled.timings, calls)
    }

    fn of(
        model: &Model,
        options: &Options,
        texts: &Texts,
        timings: &[Timing],
        calls: Result<Calls<'_>, String>,
    ) -> Result<Report, Error> {
        let (Some(graph), Some(loops), Some(schedule), Some(realized)) =
            (&texts.graph, &texts.loops, &texts.schedule, &texts.realized)
        else {
            return Err(Error::bug("report", "a stage gave nothing"));
        };
        let times =
            calls.as_ref().map_or_else(|_| Vec::new(), |calls| calls.measured.kernels(calls.compiled, loops));
        let stages = Stages { graph, loops, schedule, realized };
        let mut data = map::map(&model.imported.graph, &stages, &times);
        let statistics =
            calls.as_ref().map_or_else(|_| Statistics::default(), |calls| calls.compiled.statistics());
        let (measured, unmeasured) = match &calls {
            Ok(calls) => (calls.to_json(&times), Value::Null),
            Err(why) => (Value::Null, json!(why)),
        };
        let rest = [
            ("name", json!(model.name())),
            ("target", json!(schedule.target.to_string())),
            ("threads", json!(options.threads)),
            ("measured", measured),
            ("unmeasured", unmeasured),
            ("call_bytes", json!(statistics.peak_bytes)),
            ("kept_bytes", json!(statistics.kept_bytes)),
            ("stages", stage_times(timings)),
            ("fusion", fusion(&texts.notes)),
            ("memory", memory::memory(&realized.program)),
            ("hosts", hosts(texts, &statistics)),
            ("unproved", texts.unproved.iter().map(|one| json!([one.nests, one.why.to_string()])).collect()),
            ("texts", all_texts(texts)),
        ];
        data.extend(rest.map(|(key, value)| (key.to_owned(), value)));
        Ok(Report { data: Value::Object(data) })
    }

    /// The same under another name than the model's.
    pub fn titled(mut self, title: &str) -> Report {
        if let Value::Object(data) = &mut self.data {
            data.insert("title".to_owned(), json!(title));
        }
        self
    }

    /// The report as data.
    pub fn data(&self) -> &Value {
        &self.data
    }
}

/// What came of the stages.
struct Stages<'a> {
    graph: &'a litz_ir::graph::Graph,
    loops: &'a litz_ir::loops::Loops,
    schedule: &'a litz_ir::schedule::Schedule,
    realized: &'a litz_codegen::Realized,
}

/// Calls that were timed.
struct Calls<'a> {
    measured: Measured,
    /// Where their inputs are from.
    inputs: &'static str,
    compiled: &'a Compiled,
}

impl Calls<'_> {
    fn to_json(&self, times: &[KernelTime]) -> Value {
        let calls = self.measured.calls();
        let (ms, peaks) = (measure::percentiles(&calls), self.measured.peaks());
        json!({
            "calls": calls.len(), "inputs": self.inputs,
            "ms": { "min": ms[0], "p50": ms[1], "p90": ms[2], "p99": ms[3] },
            "kernels_ms": times.iter().map(|time| time.ms).sum::<f64>(),
            "peak": { "flops": peaks.flops, "bandwidth": peaks.bandwidth },
        })
    }
}

/// What each stage and pass took, with the text that it works on.
fn stage_times(timings: &[Timing]) -> Value {
    let mut of = "graph";
    let mut rows: Vec<Value> = Vec::new();
    for Timing { name, time } in timings {
        of = match name.as_str() {
            "lower" => "loops",
            "schedule" | "prove" => "schedule",
            "realize" => "kernel",
            "kernels" | "load" => "code",
            "weights" => "weights",
            _ => of,
        };
        rows.push(json!({ "name": name, "of": of, "ms": 1e3 * time.as_secs_f64() }));
    }
    Value::Array(rows)
}

/// What was said of pairs of statements.
fn fusion(notes: &[FusionNote]) -> Value {
    let verdicts = explain::verdicts(notes);
    let kinds: Vec<Value> = verdicts
        .iter()
        .map(|verdict| {
            let sentence = verdict.reason.map_or("They share a kernel.", litz_schedule::NoFuse::sentence);
            json!({
                "name": verdict.name(), "sentence": sentence, "fused": verdict.reason.is_none(),
                "pairs": verdict.notes.len(), "bytes": verdict.bytes(),
            })
        })
        .collect();
    let mut pairs: Vec<(usize, &FusionNote)> = Vec::new();
    for (at, verdict) in verdicts.iter().enumerate() {
        pairs.extend(verdict.notes.iter().map(|&note| (at, note)));
    }
    pairs.sort_by_key(|(_, note)| std::cmp::Reverse(note.bytes));
    let left_out = pairs.len().saturating_sub(MOST_PAIRS);
    pairs.truncate(MOST_PAIRS);
    let pair = |(at, note): (usize, &FusionNote)| json!([note.producer, note.consumer, at, note.bytes]);
    json!({
        "verdicts": kinds, "pairs": pairs.into_iter().map(pair).collect::<Vec<_>>(), "left_out": left_out,
    })
}

/// Operators that the host runs, with what the timed calls, and those before them, took in all.
fn hosts(texts: &Texts, statistics: &Statistics) -> Value {
    let operators =
        texts.realized.as_ref().map_or_else(Vec::new, |realized| host_operators(&realized.program));
    let row = |operator: crate::host::HostOperator| {
        let called = statistics.host_calls.iter().find(|calls| calls.op == operator.op);
        json!({
            "op": operator.op, "count": operator.count, "sources": operator.sources,
            "calls": called.map_or(0, |called| called.calls),
            "ms": called.map(|called| 1e3 * called.time.as_secs_f64() / called.calls.max(1) as f64),
        })
    };
    operators.into_iter().map(row).collect()
}

fn all_texts(texts: &Texts) -> Value {
    let kernels = |realized: &litz_codegen::Realized| {
        realized.kernels.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    let realized = texts.realized.as_ref();
    let all = [
        (Stage::Graph, texts.graph.as_ref().map(ToString::to_string)),
        (Stage::Loops, texts.loops.as_ref().map(ToString::to_string)),
        (Stage::Schedule, texts.schedule.as_ref().map(ToString::to_string)),
        (Stage::Kernel, realized.map(kernels)),
        (Stage::Program, realized.map(|realized| realized.program.to_string())),
    ];
    let one = |(stage, text): (Stage, Option<String>)| {
        let (text, left_out) = bounded(text.unwrap_or_default());
        json!({ "stage": stage.name(), "text": text, "left_out": left_out })
    };
    all.into_iter().map(one).collect()
}

/// The lines of a text that fit, and how many do not.
fn bounded(mut text: String) -> (String, usize) {
    if text.len() <= MOST_TEXT {
        return (text, 0);
    }
    let bytes = text.as_bytes();
    let end = bytes[..MOST_TEXT].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let left_out = bytes[end..].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
    text.truncate(end);
    (text, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_end_with_a_line() {
        let line = "x".repeat(1023) + "\n";
        let (text, left_out) = bounded(line.repeat(3000));
        assert_eq!((text.len(), left_out), (MOST_TEXT, 3000 - 2048));
        assert_eq!(bounded("ä".repeat(MOST_TEXT)), (String::new(), 1));
        assert_eq!(bounded(line.clone()), (line, 0));
    }
}
