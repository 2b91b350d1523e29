//! Times the full-size models of the corpus: calls, compilations and memory, beside those of PyTorch and ONNX Runtime.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;

use crate::bar::{Bar, Unit};
use crate::bench::{self, Driver, Measured, Timing, empty_folder, geometric_mean, median};
use crate::command::{build_litz, command, root, run as run_command};
use crate::{machine, table, venv};

/// Models of benches/export_models.py that are large enough for their time to mean something.
const MODELS: [&str; 18] = [
    "bert_base",
    "bert_base_8x256",
    "gpt2",
    "llama",
    "t5_encoder",
    "minilm",
    "vit_b_16",
    "resnet50",
    "mobilenet_v3_large",
    "convnext_tiny",
    "bert_bf16",
    "llama_bf16",
    "llama_token",
    "llama_token_int8",
    "llama_token_int4",
    "llama_decode",
    "llama_decode_256",
    "unet_diffusion",
];

/// Those whose products are in half precision, and those of one row, which wait for memory; the bars are for the others.
const APART: [&str; 7] = [
    "bert_bf16",
    "llama_bf16",
    "llama_token",
    "llama_token_int8",
    "llama_token_int4",
    "llama_decode",
    "llama_decode_256",
];

/// Litz is compared with the fastest of some peers, model by model.
struct Comparison {
    with: &'static str,
    peers: &'static [&'static str],
    /// The least geometric mean.
    mean: f64,
    /// The least of a single model, where there is one.
    each: Option<f64>,
}

const COMPARISONS: [Comparison; 2] = [
    Comparison {
        with: "better of eager and inductor",
        peers: &["eager", "inductor"],
        mean: 1.35,
        each: Some(0.95),
    },
    Comparison {
        with: "best of all four peers",
        peers: &["eager", "inductor", "frozen", "onnxruntime"],
        mean: 1.05,
        each: None,
    },
];

/// Processes started for each compile time, of which the median counts.
const STARTS: usize = 3;

/// Exports those of the models that are wanted (all, where none is named) and missing: names and files.
pub fn export_models(wanted: &[String]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let names = bench::among(MODELS.map(str::to_string), wanted);
    let folder = root().join("target/corpus");
    if !names.is_empty() {
        run_command(command(venv::ensure()?).arg("benches/export_models.py").arg(&folder).args(&names))?;
    }
    Ok(names.into_iter().map(|name| (name.clone(), folder.join(format!("{name}.pt2")))).collect())
}

/// Exports what is missing, measures every model, prints the table.
pub fn run(args: &bench::Args) -> anyhow::Result<()> {
    let models = export_models(&args.select(&MODELS.map(str::to_string))?)?;
    let mut driver = Driver::start(build_litz()?, args)?;

    let (mut rows, mut timings) = (Vec::new(), Measured::new());
    for (name, model) in &models {
        eprintln!("{name}");
        let measured =
            driver.measure(model, name).and_then(|timing| Ok((timing, compile_seconds(&driver, model)?)));
        rows.push(row(name, measured.as_ref().ok(), args.peers.len()));
        let timing = measured.map(|(timing, _)| timing).map_err(|error| bench::words(&error));
        timings.push((name.clone(), timing));
    }
    let mut header: Vec<String> =
        ["model", "litz ms", "MiB", "cold s", "cached s"].map(str::to_string).into();
    for system in &args.peers {
        header.extend([
            format!("{system} ms"),
            "ratio".to_string(),
            "MiB".to_string(),
            "first s".to_string(),
        ]);
    }
    print!("{}", table::format(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows));
    println!(
        "\nratio: the peer's time over Litz's; first: the peer's compilation and first call, its process warm"
    );
    println!("MiB: most that a call takes for its results and what is between, where the system tells");
    println!(
        "cold, cached: `litz run` from start to end without and with its cache, less one read of the file"
    );
    println!("{}\n", machine::describe(args.threads()?)?);
    println!("{}", bench::summary(&args.peers, &timings));
    print!("{}", bars(&args.peers, &timings).iter().map(|bar| bar.line() + "\n").collect::<String>());
    Ok(())
}

fn row(name: &str, measured: Option<&(Timing, CompileSeconds)>, peers: usize) -> Vec<String> {
    let mut row = vec![name.to_string()];
    let Some((timing, compile)) = measured else {
        row.resize(5 + 4 * peers, "-".to_string());
        return row;
    };
    row.extend([
        format!("{:.3}", timing.litz_ms),
        format!("{:.1}", timing.litz_memory_mib),
        format!("{:.2}", compile.cold),
        format!("{:.2}", compile.cached),
    ]);
    for peer in &timing.peers {
        match peer {
            Ok(peer) => row.extend([
                format!("{:.3}", peer.ms),
                format!("{:.2}", peer.ratio),
                peer.memory_mib.map_or("-".to_string(), |mib| format!("{mib:.1}")),
                format!("{:.2}", peer.first_ms / 1e3),
            ]),
            Err(_) => row.extend(["-", "-", "-", "-"].map(str::to_string)),
        }
    }
    row
}

/// The bars of those sets of peers that were all asked for.
fn bars(peers: &[String], measured: &Measured) -> Vec<Bar> {
    let mut bars = Vec::new();
    for Comparison { with, peers: systems, mean, each } in COMPARISONS {
        let places: Option<Vec<usize>> =
            systems.iter().map(|system| peers.iter().position(|peer| peer == system)).collect();
        let Some(places) = places else { continue };
        let single: Vec<&(String, Result<Timing, String>)> =
            measured.iter().filter(|(name, _)| !APART.contains(&name.as_str())).collect();
        let complete = single.iter().all(|(_, timing)| timing.is_ok());
        let mut ratios: Vec<(f64, &str)> = single
            .iter()
            .filter_map(|(name, timing)| {
                Some((against_fastest(timing.as_ref().ok()?, &places)?, name.as_str()))
            })
            .collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let values: Vec<f64> = ratios.iter().map(|(ratio, _)| *ratio).collect();
        bars.push(Bar {
            what: format!("{} f32 models, {with}", values.len()),
            // A model that Litz does not run cannot be left out of its mean.
            figure: geometric_mean(&values).filter(|_| complete),
            least: Some(mean),
            unit: Unit::Times,
        });
        let lowest = ratios.first();
        bars.push(Bar {
            what: format!("the lowest of them, {}", lowest.map_or("-", |(_, name)| name)),
            figure: lowest.map(|(ratio, _)| *ratio).filter(|_| complete),
            least: each,
            unit: Unit::Times,
        });
    }
    bars
}

/// The time of the fastest of the peers that ran, over Litz's; nothing where none ran.
fn against_fastest(timing: &Timing, places: &[usize]) -> Option<f64> {
    let ran = places.iter().filter_map(|&place| timing.peers[place].as_ref().ok());
    ran.map(|peer| peer.ratio).min_by(f64::total_cmp)
}

/// Wall time of `litz run MODEL` in seconds, less the time to read the file once.
struct CompileSeconds {
    /// With an empty cache.
    cold: f64,
    /// With what the process before left in the cache.
    cached: f64,
}

fn compile_seconds(driver: &Driver, model: &Path) -> anyhow::Result<CompileSeconds> {
    // The first read brings the file into memory, where both the second and `litz` find it.
    read_seconds(model)?;
    let read = read_seconds(model)?;
    let (mut cold, mut cached) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let cache = empty_folder("compile")?;
        cold.push(run_seconds(driver, model, &cache)?);
        cached.push(run_seconds(driver, model, &cache)?);
    }
    // What is mapped and not all used can take less than a read.
    Ok(CompileSeconds { cold: (median(&cold) - read).max(0.0), cached: (median(&cached) - read).max(0.0) })
}

fn run_seconds(driver: &Driver, model: &Path, cache: &Path) -> anyhow::Result<f64> {
    let start = Instant::now();
    crate::command::output(driver.litz(cache).arg("run").arg(model))?;
    Ok(start.elapsed().as_secs_f64())
}

fn read_seconds(path: &Path) -> anyhow::Result<f64> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut buffer = vec![0; 1 << 20];
    let start = Instant::now();
    while file.read(&mut buffer)? > 0 {}
    Ok(start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::PeerTiming;

    /// A model by its ratios; a peer that failed has none.
    fn model(name: &str, ratios: &[Option<f64>]) -> (String, Result<Timing, String>) {
        let peer = |ratio: &Option<f64>| match *ratio {
            Some(ratio) => Ok(PeerTiming { ms: ratio, ratio, memory_mib: None, first_ms: 1.0 }),
            None => Err("cannot".to_string()),
        };
        let peers = ratios.iter().map(peer).collect();
        (name.to_string(), Ok(Timing { litz_ms: 1.0, litz_memory_mib: 1.0, peers }))
    }

    fn figures(peers: &[&str], measured: &Measured) -> Vec<Option<f64>> {
        let peers: Vec<String> = peers.iter().map(|peer| peer.to_string()).collect();
        bars(&peers, measured).iter().map(|bar| bar.figure).collect()
    }

    #[test]
    fn bars_are_against_the_fastest_peer_of_each_single_precision_model() {
        let peers = ["eager", "inductor", "frozen", "onnxruntime"];
        let mut measured = vec![
            model("gpt2", &[Some(4.0), Some(2.0), Some(1.0), None]),
            model("resnet50", &[Some(8.0), Some(9.0), Some(9.0), Some(4.0)]),
            model("bert_bf16", &[Some(0.1); 4]),
        ];
        assert_eq!(figures(&peers, &measured), [Some(4.0), Some(2.0), Some(2.0), Some(1.0)]);
        measured.push(("llama".to_string(), Err("crashed".to_string())));
        assert_eq!(figures(&peers, &measured), [None; 4]);
    }

    #[test]
    fn bars_of_peers_that_were_not_asked_for_are_left_out() {
        let measured = vec![model("gpt2", &[Some(2.0), Some(3.0)])];
        assert_eq!(figures(&["inductor", "eager"], &measured), [Some(2.0), Some(2.0)]);
        assert!(figures(&["eager", "frozen"], &measured).is_empty());
    }
}
