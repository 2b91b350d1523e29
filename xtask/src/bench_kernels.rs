//! Turns the kernels of `benches/kernels.py` into a table of times a call and speed-ups, and the bars they must meet.

use crate::bench::{self, Driver, Timing};
use crate::command::{build_litz, command, output, root, run as run_command};
use crate::{bars, table, venv};

/// Exports what is missing, measures every kernel, prints the table and then the bars.
pub fn run(args: &bench::Args) -> anyhow::Result<()> {
    let python = venv::ensure()?;
    let folder = root().join("target/bench-kernels");
    let export = |words: &[&str]| {
        let mut export = command(&python);
        export.args(["benches/export_models.py", "--kernels"]).arg(&folder).args(words);
        export
    };
    let all: Vec<String> = output(&mut export(&["--list"]))?.lines().map(str::to_string).collect();
    let with_network: Vec<String> = all.iter().cloned().chain([bars::NETWORK.to_string()]).collect();
    let mut names = args.select(&with_network)?;
    let network = names.iter().position(|name| name == bars::NETWORK).map(|at| names.remove(at));
    if !names.is_empty() {
        run_command(&mut export(&names.iter().map(String::as_str).collect::<Vec<_>>()))?;
    }
    let corpus = root().join("target/corpus");
    if let Some(network) = &network {
        run_command(command(&python).arg("benches/export_models.py").arg(&corpus).arg(network))?;
    }
    let network = network.map(|name| corpus.join(format!("{name}.pt2")));
    let mut driver = Driver::start(build_litz()?, args)?;

    let mut measured = Vec::new();
    for name in &names {
        eprintln!("{name}");
        let timing = driver.measure(&folder.join(format!("{name}.pt2")), name);
        let timing = timing.inspect_err(|error| eprintln!("{name}: {error:#}")).ok();
        measured.push((name.clone(), timing));
    }
    let mut header = vec!["kernel".to_string(), "litz us".to_string()];
    for system in &args.peers {
        header.extend([format!("{system} us"), "ratio".to_string()]);
    }
    let rows: Vec<_> =
        measured.iter().map(|(name, timing)| row(name, timing.as_ref(), args.peers.len())).collect();
    print!("{}", table::format(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows));
    println!("\nratio: the peer's time over Litz's, call overhead included on both sides");
    println!("{}", bench::summary(&args.peers, measured.iter().map(|(_, timing)| timing.as_ref())));
    let inductor = args.peers.iter().position(|peer| peer == "inductor");
    print!("\n{}", bars::report(&driver, &folder, network.as_deref(), inductor, &measured));
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
            Some(peer) => row.extend([format!("{:.1}", peer.ms * 1e3), format!("{:.2}", peer.ratio)]),
            None => row.extend(["-", "-"].map(str::to_string)),
        }
    }
    row
}
