//! `litz bench` measures how long a model takes to compile and to run, and where the time goes.

mod serve;
mod trace;

use super::failure::{Exit, Failure};
use super::format::{self, Table};
use super::options::{Compiling, timing_table};
use super::{inputs, load, output};
use litz::measure::{self, KernelTime};
use litz::pipeline::Texts;
use litz::progress::Progress;
use litz::provenance::{self, LaunchOf};
use litz::{Compiled, Error, Options, Runner, Stage};
use serde_json::json;
use std::path::PathBuf;

/// What to time.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote, or the text of a graph without constants: `.litz`
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
    /// Write the launches of the last calls to a file that Perfetto and chrome://tracing show
    #[arg(long, value_name = "FILE", conflicts_with = "serve")]
    trace: Option<PathBuf>,
    /// Answer requests for timings on standard input, one a line, until it ends
    #[arg(long, conflicts_with = "json")]
    serve: bool,
    #[command(flatten)]
    pub common: Compiling,
}

/// Times the model and prints what it found.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    if args.serve {
        return serve::execute(args);
    }
    let options = Options { profile: true, ..args.common.options() };
    let model = load::open(&args.model, &args.which)?;
    let inputs = inputs::inputs(&model, args.inputs.as_deref())?;
    let compiled = load::compile(&model, &options)?;
    let is_gpu = litz::backend(&options)?.target().cpu().is_none() && !options.reference;
    // A GPU replays the launches of a call as one graph where nobody times them one by one.
    let plain = Options { profile: false, ..options.clone() };
    let plain = is_gpu.then(|| load::compile(&model, &plain)).transpose()?;
    let measured = {
        let progress = Progress::start();
        progress.say("timing");
        measure::measure(&compiled, plain.as_ref(), &inputs, &options, args.runs)?
    };
    let calls = measured.calls();
    // Where the cache had the compilation there are no loops.
    let texts = match compiled.texts.loops {
        Some(_) => Texts::default(),
        None => model.texts(&options, Stage::Loops, &mut Runner::new(options.verify, None, &mut |_| {}))?,
    };
    let Some(loops) = compiled.texts.loops.as_ref().or(texts.loops.as_ref()) else {
        return Err(Error::bug("bench", "a stage gave nothing").into());
    };
    let kernels = rows(&compiled, measured.kernels(&compiled, loops));
    if let Some(path) = &args.trace {
        let trace = trace::trace(&compiled, measured.spans()).to_string();
        std::fs::write(path, trace).map_err(|error| Failure::io("write", path, &error))?;
    }
    let peaks = measured.peaks();
    let ms = measure::percentiles(&calls);
    let statistics = compiled.statistics();
    if args.json {
        let row = |k: &Row| {
            json!({
                "kernel": k.name, "from": k.from, "ops": k.ops, "launches": k.time.launches, "ms": k.time.ms,
                "bytes": k.time.bytes, "flops": k.time.flops, "of_peak": k.time.of_peak,
                "of_copy": k.time.of_copy,
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
            "gap_ms": measured.gap(),
            "compilations": model.compilations(),
            "plans": statistics.plans,
            "call_bytes": statistics.peak_bytes,
            "kept_bytes": statistics.kept_bytes,
            "kernels": rows,
            "launches": trace::launches(&compiled, &measured.launches()),
        });
        output::print(format_args!("{report}\n"))?;
        return Ok(Exit::Ok);
    }
    output::print(format_args!("{}\n", timing_table(&compiled.timings)))?;
    let place = match is_gpu {
        true => format!("cuda:{}", options.device_number),
        false => format!("{} threads", options.threads),
    };
    output::print(format_args!(
        "{} calls on {place}, ms: min {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}\n",
        calls.len(),
        ms[0],
        ms[1],
        ms[2],
        ms[3]
    ))?;
    output::print(format_args!(
        "{}, {}; results and what is between take {}, what was computed at load {}\n",
        format::counted(model.compilations(), "compilation"),
        format::counted(statistics.plans, "plan"),
        format::bytes(statistics.peak_bytes as f64),
        format::bytes(statistics.kept_bytes as f64)
    ))?;
    let rate = |peak: Option<f64>, unit: &str| match peak {
        Some(peak) => format!("{}{unit}", format::count(peak)),
        None => format!("{unit} not measured"),
    };
    let copied = rate(peaks.bandwidth, "B/s");
    if is_gpu {
        // Inputs and results of the command line are the host's.
        let kernels_ms: f64 = kernels.iter().map(|kernel| kernel.time.ms).sum();
        let gap = measured
            .gap()
            .map_or_else(String::new, |gap| format!(", {:.1} us between two that are timed", 1e3 * gap));
        output::print(format_args!(
            "a call copies inputs to the GPU and results back; its kernels take {kernels_ms:.3} ms{gap}\npeak: {copied} copied\n"
        ))?;
    } else {
        output::print(format_args!("peaks: {}, {copied} copied\n", rate(peaks.flops, "FLOP/s")))?;
    }
    if peaks.flops.is_none() && !is_gpu || peaks.bandwidth.is_none() {
        output::print(
            "what is not measured changed from turn to turn: the machine is busy, or its clock moves\n",
        )?;
    }
    output::print("\n")?;
    output::print(table(&kernels, args.top))?;
    Ok(Exit::Ok)
}

/// A kernel's share of a call.
struct Row {
    name: String,
    from: Vec<String>,
    /// Operators of the graph that it computes.
    ops: Vec<String>,
    time: KernelTime,
}

/// What was measured of kernels, with their names.
fn rows(compiled: &Compiled, times: Vec<KernelTime>) -> Vec<Row> {
    let kernels = compiled.texts.realized.as_ref().map_or(&[][..], |realized| &realized.kernels);
    let program = compiled.texts.realized.as_ref().map(|realized| &realized.program);
    let launches = program.map(provenance::launches).unwrap_or_default();
    let row = |time: KernelTime| {
        let kernel = kernels.get(time.kernel)?;
        let (name, from) = (kernel.name.clone(), kernel.from.clone());
        // Launches of one kernel compute the same operators.
        let ops = launches.iter().find(|launch| launch.kernel == name).map(LaunchOf::ops);
        Some(Row { name, ops: ops.unwrap_or_default(), from, time })
    };
    times.into_iter().filter_map(row).collect()
}

fn table(kernels: &[Row], top: usize) -> Table {
    let total: f64 = kernels.iter().map(|k| k.time.ms).sum();
    let heads = ["kernel", ">launches", ">ms", ">share", ">bytes", ">flop", ">of copy", ">of peak", "from"];
    let mut table = Table::new(&heads);
    let percent =
        |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
    for k in kernels.iter().take(top) {
        table.row([
            k.name.clone(),
            format!("{:.0}", k.time.launches),
            format!("{:.3}", k.time.ms),
            percent(Some(k.time.ms / total.max(f64::MIN_POSITIVE))),
            format::bytes(k.time.bytes),
            format::count(k.time.flops),
            percent(k.time.of_copy),
            percent(k.time.of_peak),
            k.from.join(" "),
        ]);
    }
    table
}
