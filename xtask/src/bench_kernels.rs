//! Times the kernels of `benches/kernels.py` against PyTorch and ONNX Runtime and checks the figures that they must reach.

use std::path::PathBuf;
use std::process::Command;

use crate::bench::{self, Driver, Timing};
use crate::bench_models::export_models;
use crate::command::{build_litz, command, output, root, run as run_command};
use crate::{bars, machine, table, venv};

/// Where the kernels go.
pub const FOLDER: &str = "target/bench-kernels";

/// The script that exports them, called with these words.
fn export(words: &[String]) -> anyhow::Result<Command> {
    let mut export = command(venv::ensure()?);
    export.args(["benches/export_models.py", "--kernels"]).arg(root().join(FOLDER)).args(words);
    Ok(export)
}

fn all_kernels() -> anyhow::Result<Vec<String>> {
    Ok(output(&mut export(&["--list".to_string()])?)?.lines().map(str::to_string).collect())
}

/// Exports those of the kernels that are wanted (all, where none is named) and missing: names and files.
pub fn export_kernels(wanted: &[String]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let names = bench::among(all_kernels()?, wanted);
    if !names.is_empty() {
        run_command(&mut export(&names)?)?;
    }
    let file = |name: &String| root().join(FOLDER).join(format!("{name}.pt2"));
    Ok(names.iter().map(|name| (name.clone(), file(name))).collect())
}

/// Exports what is missing, measures every kernel, prints the table and then the bars.
pub fn run(args: &bench::Args) -> anyhow::Result<()> {
    let with_network: Vec<String> = all_kernels()?.into_iter().chain([bars::NETWORK.to_string()]).collect();
    let wanted = args.select(&with_network)?;
    let has_kernels = wanted.iter().any(|name| name != bars::NETWORK);
    let kernels = if has_kernels { export_kernels(&wanted)? } else { Vec::new() };
    let mut network = None;
    if wanted.iter().any(|name| name == bars::NETWORK) {
        network = export_models(&[bars::NETWORK.to_string()])?.pop().map(|(_, file)| file);
    }
    let mut driver = Driver::start(build_litz()?, args)?;

    let mut measured = Vec::new();
    for (name, file) in &kernels {
        eprintln!("{name}");
        let timing = driver.measure(file, name);
        measured.push((name.clone(), timing.map_err(|error| bench::words(&error))));
    }
    let mut header = vec!["kernel".to_string(), "litz us".to_string()];
    for system in &args.peers {
        header.extend([format!("{system} us"), "ratio".to_string()]);
    }
    let rows: Vec<_> =
        measured.iter().map(|(name, timing)| row(name, timing.as_ref().ok(), args.peers.len())).collect();
    print!("{}", table::format(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows));
    println!("\nratio: the peer's time over Litz's, call overhead included on both sides");
    println!("{}\n", machine::describe(args.threads()?)?);
    print!("{}", bench::summary(&args.peers, &measured));
    let inductor = args.peers.iter().position(|peer| peer == "inductor");
    print!("\n{}", bars::report(&driver, &root().join(FOLDER), network.as_deref(), inductor, &measured));
    Ok(())
}

fn row(name: &str, measured: Option<&Timing>, peers: usize) -> Vec<String> {
    let mut row = vec![name.to_string()];
    let Some(timing) = measured else {
        row.resize(2 + 2 * peers, "-".to_string());
        return row;
    };
    row.push(format!("{:.1}", timing.litz_ms * 1e3));
    for peer in &timing.peers {
        match peer {
            Ok(peer) => row.extend([format!("{:.1}", peer.ms * 1e3), format!("{:.2}", peer.ratio)]),
            Err(_) => row.extend(["-", "-"].map(str::to_string)),
        }
    }
    row
}
