//! Times the full-size models of the corpus: calls, compilations and memory, beside PyTorch's.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;

use crate::bench::{self, Driver, Timing, empty_folder, median};
use crate::command::{build_litz, command, root, run as run_command};
use crate::{table, venv};

/// Models of benches/export_models.py that are large enough for their time to mean something.
const MODELS: [&str; 13] = [
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
    "unet_diffusion",
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

    let (mut rows, mut timings) = (Vec::new(), Vec::new());
    for (name, model) in &models {
        eprintln!("{name}");
        let measured =
            driver.measure(model, name).and_then(|timing| Ok((timing, compile_seconds(&driver, model)?)));
        let measured = measured.inspect_err(|error| eprintln!("{name}: {error:#}")).ok();
        rows.push(row(name, measured.as_ref(), args.peers.len()));
        timings.push(measured.map(|(timing, _)| timing));
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
    println!("MiB: most that a call takes for its results and what is between");
    println!(
        "cold, cached: `litz run` from start to end without and with its cache, less one read of the file"
    );
    println!("{}", bench::summary(&args.peers, timings.iter().map(Option::as_ref)));
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
            Some(peer) => row.extend([
                format!("{:.3}", peer.ms),
                format!("{:.2}", peer.ratio),
                format!("{:.1}", peer.memory_mib),
                format!("{:.2}", peer.first_ms / 1e3),
            ]),
            None => row.extend(["-", "-", "-", "-"].map(str::to_string)),
        }
    }
    row
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
