//! `litz bench` measures how long a model takes to compile and to run, and where the time goes.

use super::failure::{Exit, Failure};
use super::options::{Compiling, timing_table};
use super::peaks::{self, Peaks};
use super::progress::Progress;
use super::report::{self, Table};
use super::{inputs, load, output, serve};
use litz::pipeline::Texts;
use litz::profile::Launches;
use litz::{Compiled, Error, Runner, Stage, Tensor};
use litz_ir::graph::Value;
use litz_ir::kernel::{self, Kernel};
use litz_ir::loops::{Loops, Stmt};
use litz_schedule::cost::{Cost, Estimator};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// What to time.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote
    pub model: PathBuf,
    #[command(flatten)]
    pub which: load::Which,
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
    pub common: Compiling,
}

/// Calls before the first that counts.
const WARM_UP: usize = 3;

/// Turns that the calls are spread over, with the machine's peaks measured between them.
const TURNS: usize = 10;

/// Times the model and prints what it found.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    if args.serve {
        return serve::execute(args);
    }
    let options = litz::Options { profile: true, ..args.common.options() };
    let model = load::open(&args.model, &args.which)?;
    let inputs = inputs::inputs(&model, args.inputs.as_deref())?;
    let compiled = load::compile(&model, &options)?;
    let turns = {
        let progress = Progress::new();
        progress.say("timing");
        times(&compiled, &inputs, WARM_UP)?;
        let mut meters = peaks::Meters::new(&options)?;
        let runs = args.runs.max(1);
        let per_turn = runs.div_ceil(TURNS);
        let turn = |at: usize| -> Result<Turn, Failure> {
            let count = per_turn.min(runs - at * per_turn);
            // The peaks' own data is in the caches.
            times(&compiled, &inputs, 1)?;
            compiled.profile.iter().for_each(|profile| drop(profile.take()));
            let calls = times(&compiled, &inputs, count)?;
            let launches = compiled.profile.as_ref().map_or(BTreeMap::new(), |profile| profile.take());
            Ok(Turn { calls, launches })
        };
        peaks::in_turns(runs.div_ceil(per_turn), || meters.measure(), turn)?
    };
    let calls: Vec<f64> = turns.iter().flat_map(|(turn, _)| &turn.calls).copied().collect();
    // Where the cache had the compilation there are no loops.
    let texts = match compiled.texts.loops {
        Some(_) => Texts::default(),
        None => model.texts(&options, Stage::Loops, &mut Runner::new(options.verify, None, &mut |_| {}))?,
    };
    let Some(loops) = compiled.texts.loops.as_ref().or(texts.loops.as_ref()) else {
        return Err(Error::bug("bench", "a stage gave nothing").into());
    };
    let kernels = rows(&compiled, loops, &turns);
    let over = |of: fn(&Peaks) -> Option<f64>| {
        peaks::most(&turns.iter().map(|(_, peaks)| of(peaks)).collect::<Vec<_>>())
    };
    let peaks = Peaks { flops: over(|peaks| peaks.flops), bandwidth: over(|peaks| peaks.bandwidth) };
    let ms = percentiles(&calls);
    let statistics = compiled.statistics();
    if args.json {
        let row = |k: &Row| {
            json!({
                "kernel": k.name, "from": k.from, "ops": k.ops, "launches": k.launches, "ms": k.ms,
                "bytes": k.bytes, "flops": k.flops, "of_peak": k.of_peak, "of_copy": k.of_copy,
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
            "kept_bytes": statistics.kept_bytes,
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
        "{}, {}; results and what is between take {}, what was computed at load {}\n",
        report::counted(model.compilations(), "compilation"),
        report::counted(statistics.plans, "plan"),
        report::bytes(statistics.peak_bytes as f64),
        report::bytes(statistics.kept_bytes as f64)
    ))?;
    let rate = |peak: Option<f64>, unit: &str| match peak {
        Some(peak) => format!("{}{unit}", report::count(peak)),
        None => format!("{unit} not measured"),
    };
    output::print(format_args!(
        "peaks: {}, {} copied\n",
        rate(peaks.flops, "FLOP/s"),
        rate(peaks.bandwidth, "B/s")
    ))?;
    if peaks.flops.is_none() || peaks.bandwidth.is_none() {
        output::print(
            "what is not measured changed from turn to turn: the machine is busy, or its clock moves\n",
        )?;
    }
    output::print("\n")?;
    output::print(table(&kernels, args.top))?;
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
    /// Bytes moved in one call.
    bytes: f64,
    /// Operations in one call.
    flops: f64,
    /// Operations a second of the shortest launch of a turn, since what else the machine does only ever adds time, as a share
    /// of the peak of f32. `None` where that could not be measured, and for matrix instructions, which have another peak.
    of_peak: Option<f64>,
    /// Bytes a second as a share of what a copy moves; more than 1 where the caches have them.
    of_copy: Option<f64>,
}

/// What was recorded in one turn.
struct Turn {
    /// Milliseconds of each call.
    calls: Vec<f64>,
    /// By kernel and sizes.
    launches: BTreeMap<(usize, Vec<i64>), Launches>,
}

/// Kernels by time in one call, the longest first.
fn rows(compiled: &Compiled, loops: &Loops, turns: &[(Turn, Peaks)]) -> Vec<Row> {
    let Some(realized) = &compiled.texts.realized else { return Vec::new() };
    let mut keys: Vec<&(usize, Vec<i64>)> = turns.iter().flat_map(|(turn, _)| turn.launches.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut rows = Vec::new();
    for key in keys {
        let (Some(kernel), sizes) = (realized.kernels.get(key.0), &key.1) else { continue };
        let one = cost(loops, kernel, sizes);
        let (bytes, flops) = (one.traffic.bytes() as f64, one.all_flops() as f64);
        let recorded: Vec<(f64, Launches, Peaks)> = turns
            .iter()
            .filter_map(|(turn, peaks)| Some((turn.calls.len() as f64, *turn.launches.get(key)?, *peaks)))
            .collect();
        let launches = recorded.first().map_or(0.0, |(calls, total, _)| total.count as f64 / calls);
        let ms: Vec<f64> =
            recorded.iter().map(|(calls, total, _)| 1e3 * total.time.as_secs_f64() / calls).collect();
        let of_peak = peaks::share(
            recorded.iter().map(|(_, total, peaks)| (flops / total.shortest.as_secs_f64(), peaks.flops)),
        );
        let of_copy: Vec<Option<f64>> = recorded
            .iter()
            .map(|(_, total, peaks)| {
                Some(bytes * total.count as f64 / total.time.as_secs_f64() / peaks.bandwidth?)
            })
            .collect();
        rows.push(Row {
            name: kernel.name.clone(),
            from: kernel.from.clone(),
            ops: operators(compiled, &kernel.from),
            launches,
            ms: percentiles(&ms)[1],
            bytes: bytes * launches,
            flops: flops * launches,
            of_peak: of_peak.filter(|_| !has_matrix(kernel)),
            of_copy: peaks::most(&of_copy),
        });
    }
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    rows
}

/// What a launch of a kernel costs with these values of its size symbols.
fn cost(loops: &Loops, kernel: &Kernel, sizes: &[i64]) -> Cost {
    let mut facts = loops.facts.clone();
    for (&sym, &size) in kernel.sizes.iter().zip(sizes) {
        facts.declare(sym, facts.range_of(sym), Some(size));
    }
    Estimator { loops, facts: &facts }.kernel(&kernel.from)
}

/// Whether instructions for products of matrices, or dot products, do part of the work.
fn has_matrix(kernel: &Kernel) -> bool {
    let mut has_matrix = false;
    kernel::visit(&kernel.body, &mut |stmt| {
        has_matrix |= matches!(stmt, kernel::Stmt::Dot(_) | kernel::Stmt::MatrixProduct(_));
    });
    has_matrix
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

fn table(kernels: &[Row], top: usize) -> Table {
    let total: f64 = kernels.iter().map(|k| k.ms).sum();
    let heads = ["kernel", ">launches", ">ms", ">share", ">bytes", ">flop", ">of copy", ">of peak", "from"];
    let mut table = Table::new(&heads);
    let percent =
        |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
    for k in kernels.iter().take(top) {
        table.row([
            k.name.clone(),
            format!("{:.0}", k.launches),
            format!("{:.3}", k.ms),
            percent(Some(k.ms / total.max(f64::MIN_POSITIVE))),
            report::bytes(k.bytes),
            report::count(k.flops),
            percent(k.of_copy),
            percent(k.of_peak),
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
