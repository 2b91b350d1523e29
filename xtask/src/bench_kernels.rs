//! Turns the kernels of `benches/kernels.py` into a table of times a call and speed-ups.

use crate::bench::{self, Driver, Timing};
use crate::command::{build_litz, command, output, root, run as run_command};
use crate::{table, venv};

/// Exports what is missing, measures every kernel, prints the table.
pub fn run(args: &bench::Args) -> anyhow::Result<()> {
    let python = venv::ensure()?;
    let folder = root().join("target/bench-kernels");
    let export = |words: &[&str]| {
        let mut export = command(&python);
        export.args(["benches/export_models.py", "--kernels"]).arg(&folder).args(words);
        export
    };
    run_command(&mut export(&[]))?;
    let all: Vec<String> = output(&mut export(&["--list"]))?.lines().map(str::to_string).collect();
    let names = args.select(&all)?;
    let mut driver = Driver::start(build_litz()?, args)?;

    let (mut rows, mut timings) = (Vec::new(), Vec::new());
    for name in &names {
        eprintln!("{name}");
        let measured = driver.measure(&folder.join(format!("{name}.pt2")), name);
        let measured = measured.inspect_err(|error| eprintln!("{name}: {error:#}")).ok();
        rows.push(row(name, measured.as_ref(), args.peers.len()));
        timings.push(measured);
    }
    let mut header = vec!["kernel".to_string(), "litz us".to_string()];
    for system in &args.peers {
        header.extend([format!("{system} us"), "ratio".to_string()]);
    }
    print!("{}", table::format(&header.iter().map(String::as_str).collect::<Vec<_>>(), &rows));
    println!("\nratio: the peer's time over Litz's, call overhead included on both sides");
    println!("{}", bench::summary(&args.peers, &timings));
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
