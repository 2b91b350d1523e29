//! `litz bench`: how long a model takes to compile and to run, and where the time goes.

use super::cost::{Cost, cost};
use super::failure::{Exit, Failure};
use super::options::{Common, timing_table};
use super::progress::Progress;
use super::report::{self, Table};
use super::{inputs, load, output, peaks, serve};
use litz::{Compiled, Tensor};
use litz_ir::graph::Value;
use litz_ir::loops::Stmt;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// What to time.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote
    pub model: PathBuf,
    /// Inputs `in.0`, `in.1`, ... in a .safetensors or .npz file [default: made up]
    #[arg(long, value_name = "FILE")]
    pub inputs: Option<PathBuf>,
    /// Calls to time
    #[arg(long, value_name = "N", default_value_t = 50)]
    runs: usize,
    /// Kernels to list
    #[arg(long, value_name = "N", default_value_t = 12)]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Answer requests for timings on standard input, one a line, until it ends
    #[arg(long, conflicts_with = "json")]
    serve: bool,
    #[command(flatten)]
    pub common: Common,
}

/// Calls before the first that counts.
const WARM_UP: usize = 3;

/// Turns that the calls are spread over. A machine's speed drifts over seconds, so the peak that kernels are set
/// against is measured again before each.
const TURNS: usize = 10;

/// Launches of the peak's kernel in a turn, of about 1 ms each.
const PEAK_TRIES: usize = 5;

/// Times the model and prints what it found.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    if args.serve {
        return serve::execute(args);
    }
    let options = litz::Options { profile: true, ..args.common.options() };
    let model = load::open(&args.model)?;
    let inputs = inputs::inputs(&model, args.inputs.as_deref())?;
    let compiled = load::compile(&model, &options)?;
    let (mut calls, mut kernels) = (Vec::new(), Kernels::default());
    {
        let progress = Progress::new();
        progress.say("timing");
        times(&compiled, &inputs, WARM_UP)?;
        let mut peak = peaks::Meter::flops(&options)?;
        let runs = args.runs.max(1);
        let per_turn = runs.div_ceil(TURNS);
        while calls.len() < runs {
            let flops = peak.best(PEAK_TRIES)?;
            if let Some(profile) = &compiled.profile {
                profile.take();
            }
            let count = per_turn.min(runs - calls.len());
            calls.extend(times(&compiled, &inputs, count)?);
            kernels.add_turn(&compiled, count, flops);
        }
    }
    let kernels = kernels.rows(&compiled);
    let peaks = peaks::measure(&options)?;
    let ms = percentiles(&calls);
    let statistics = compiled.statistics();
    if args.json {
        let row = |k: &Row| {
            json!({
                "kernel": k.name, "from": k.from, "ops": k.ops, "launches": k.launches, "ms": k.ms,
                "bytes": k.cost.bytes, "flops": k.cost.flops, "of_peak": k.of_peak,
            })
        };
        let rows: Vec<serde_json::Value> = kernels.iter().map(row).collect();
        let stage = |t: &litz::Timing| json!({ "stage": t.name, "ms": 1e3 * t.time.as_secs_f64() });
        let stages: Vec<serde_json::Value> = compiled.timings.iter().map(stage).collect();
        let report = json!({
            "ms": { "min": ms[0], "p50": ms[1], "p90": ms[2], "p99": ms[3] },
            "compile_ms": stages,
            "peak": { "flops": peaks.flops, "bandwidth": peaks.bandwidth },
            "threads": options.threads,
            "compilations": model.compilations(),
            "plans": statistics.plans,
            "call_bytes": statistics.peak_bytes,
            "kernels": rows,
        });
        output::print(format_args!("{report}\n"))?;
        return Ok(Exit::Ok);
    }
    output::print(format_args!("{}\n", timing_table(&compiled.timings)))?;
    output::print(format_args!(
        "{} calls on {} threads, ms: min {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}\n",
        calls.len(),
        options.threads,
        ms[0],
        ms[1],
        ms[2],
        ms[3]
    ))?;
    output::print(format_args!(
        "{}, {}; results and what is between take {}\n",
        report::counted(model.compilations(), "compilation"),
        report::counted(statistics.plans, "plan"),
        report::bytes(statistics.peak_bytes as f64)
    ))?;
    let (flops, bandwidth) = (report::count(peaks.flops), report::count(peaks.bandwidth));
    output::print(format_args!("peaks: {flops}FLOP/s, {bandwidth}B/s copied\n\n"))?;
    output::print(table(&kernels, &peaks, args.top))?;
    Ok(Exit::Ok)
}

/// Milliseconds of each of `runs` calls.
pub fn times(compiled: &Compiled, inputs: &[Tensor], runs: usize) -> Result<Vec<f64>, Failure> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        compiled.run(inputs)?;
        times.push(1e3 * start.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// Smallest, median, and those that 90 and 99 of 100 do not exceed.
fn percentiles(times: &[f64]) -> [f64; 4] {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |percent: usize| sorted.get((last * percent).div_ceil(100)).copied().unwrap_or(f64::NAN);
    [0, 50, 90, 99].map(at)
}

/// A kernel's share of a call.
struct Row {
    name: String,
    from: Vec<String>,
    /// Operators of the graph that it computes; none where the cache had the compilation.
    ops: Vec<String>,
    /// In one call.
    launches: f64,
    /// In one call: the median of the turns.
    ms: f64,
    /// In one call.
    cost: Cost,
    /// Operations a second as a fraction of the peak, both of the shortest launch of a turn, since what else the machine
    /// does only ever adds time: the median of the turns.
    of_peak: f64,
}

/// What was recorded of each kernel and sizes, turn by turn.
#[derive(Default)]
struct Kernels(BTreeMap<(usize, Vec<i64>), Recorded>);

#[derive(Default)]
struct Recorded {
    /// In one call.
    launches: f64,
    /// In one launch.
    cost: Cost,
    /// Milliseconds in one call, and operations a second over the peak's.
    turns: Vec<(f64, f64)>,
}

impl Kernels {
    /// Takes what `runs` calls left in the profile.
    fn add_turn(&mut self, compiled: &Compiled, runs: usize, peak: f64) {
        let (Some(profile), Some(realized)) = (&compiled.profile, &compiled.texts.realized) else { return };
        for ((at, sizes), total) in profile.take() {
            let Some(kernel) = realized.kernels.get(at) else { continue };
            let one = || cost(kernel, &sizes);
            let recorded = self
                .0
                .entry((at, sizes.clone()))
                .or_insert_with(|| Recorded { cost: one(), ..Recorded::default() });
            recorded.launches = total.count as f64 / runs as f64;
            let seconds = total.time.as_secs_f64() / runs as f64;
            let rate = recorded.cost.flops / total.shortest.as_secs_f64();
            recorded.turns.push((1e3 * seconds, rate / peak));
        }
    }

    /// By time in one call, the longest first.
    fn rows(self, compiled: &Compiled) -> Vec<Row> {
        let Some(realized) = &compiled.texts.realized else { return Vec::new() };
        let mut rows = Vec::new();
        for ((at, _), recorded) in self.0 {
            let Some(kernel) = realized.kernels.get(at) else { continue };
            let Recorded { launches, cost, turns } = recorded;
            rows.push(Row {
                name: kernel.name.clone(),
                from: kernel.from.clone(),
                ops: operators(compiled, &kernel.from),
                launches,
                ms: percentiles(&turns.iter().map(|t| t.0).collect::<Vec<_>>())[1],
                cost: Cost { bytes: cost.bytes * launches, flops: cost.flops * launches },
                of_peak: percentiles(&turns.iter().map(|t| t.1).collect::<Vec<_>>())[1],
            });
        }
        rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        rows
    }
}

/// Operators that nests compute, each once.
fn operators(compiled: &Compiled, nests: &[String]) -> Vec<String> {
    let (Some(graph), Some(loops)) = (&compiled.texts.graph, &compiled.texts.loops) else {
        return Vec::new();
    };
    let nests = loops.stmts.iter().flat_map(Stmt::nests).filter(|nest| nests.contains(&nest.name));
    let from: Vec<&String> = nests.flat_map(|nest| &nest.from).collect();
    let is_meant = |v: &Option<Value>| v.is_some_and(|v| from.contains(&&graph.values[v].name));
    let nodes = graph.nodes.iter().filter(|node| node.outputs.iter().any(is_meant));
    let mut names: Vec<String> = Vec::new();
    for name in nodes.map(|node| node.op.to_string()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn table(kernels: &[Row], peaks: &peaks::Peaks, top: usize) -> Table {
    let total: f64 = kernels.iter().map(|k| k.ms).sum();
    let heads = ["kernel", ">launches", ">ms", ">share", ">bytes", ">flop", ">of copy", ">of peak", "from"];
    let mut table = Table::new(&heads);
    for k in kernels.iter().take(top) {
        let seconds = k.ms / 1e3;
        let percent = |part: f64, whole: f64| format!("{:.0} %", 100.0 * part / whole.max(f64::MIN_POSITIVE));
        table.row([
            k.name.clone(),
            format!("{:.0}", k.launches),
            format!("{:.3}", k.ms),
            percent(k.ms, total),
            report::bytes(k.cost.bytes),
            report::count(k.cost.flops),
            percent(k.cost.bytes / seconds, peaks.bandwidth),
            percent(k.of_peak, 1.0),
            k.from.join(" "),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert_eq!(percentiles(&times), [1.0, 51.0, 91.0, 100.0]);
        assert_eq!(percentiles(&[2.0]), [2.0; 4]);
    }
}
