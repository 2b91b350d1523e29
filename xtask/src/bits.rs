//! Turns a folder of exported models into a table of which ones give equal bits at every call.
//!
//! Models are those in which something is shared out among threads that meets again: positions that data chooses, sorting,
//! and sums whose parts different threads add up. Other threads keep the cores busy at random meanwhile, so that every call
//! divides its work in another way.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::command::{build_litz, command, output, root};
use crate::corpus::{OTHER_FOLDER, OWN_FOLDER, data_files, models};
use crate::table;
use crate::verify::wait;

/// All calls of a model with one number of threads take no longer.
const TIME_LIMIT: Duration = Duration::from_secs(1800);

/// Which models to call how often.
#[derive(clap::Args)]
pub struct Args {
    /// Folders of exported models, as `cargo xtask corpus` makes them [default: those of both corpora]
    #[arg(long, value_name = "DIR")]
    folder: Vec<PathBuf>,
    /// Only these models, separated by commas, whatever they compute
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Calls of each model, with each number of threads
    #[arg(long, value_name = "N", default_value_t = 100)]
    calls: usize,
    /// Numbers of threads, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2, 7])]
    threads: Vec<usize>,
}

/// Calls every model, prints the table; exit status 1 where two calls gave different bits or one failed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let litz = build_litz()?;
    let folders = match &args.folder[..] {
        [] => [OWN_FOLDER, OTHER_FOLDER].map(|folder| root().join(folder)).to_vec(),
        given => given.iter().map(std::path::absolute).collect::<Result<_, _>>()?,
    };
    let mut rows = Vec::new();
    let mut is_broken = false;
    for folder in &folders {
        // A folder may be missing, or lack the models asked for.
        for name in models(folder, &args.only).unwrap_or_default() {
            let path = folder.join(format!("{name}.pt2"));
            // What does not compile is for other tasks to report.
            let Ok(loops) = output(command(&litz).args(["compile", "--to", "loops"]).arg(&path)) else {
                continue;
            };
            let why = meetings(&loops);
            if why.is_empty() && args.only.is_empty() {
                continue;
            }
            let mut row = vec![name.clone(), why.join(", ")];
            for &threads in &args.threads {
                let verdict = call(&litz, folder, &name, threads, args.calls)?;
                eprintln!("{name}, {threads} threads: {verdict}");
                is_broken |= verdict != EQUAL;
                row.push(verdict.to_owned());
            }
            rows.push(row);
        }
    }
    ensure!(!rows.is_empty(), "no models; `cargo xtask corpus` exports them");
    let threads = args.threads.iter().map(|threads| format!("{threads} threads"));
    let heads: Vec<String> = ["model".to_owned(), "has".to_owned()].into_iter().chain(threads).collect();
    print!("{}", table::format(&heads.iter().map(String::as_str).collect::<Vec<_>>(), &rows));
    println!("\nbits: {} models, {} calls each", rows.len(), args.calls);
    Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

const EQUAL: &str = "equal";

/// Makes the calls while other threads take the cores away at random.
fn call(
    litz: &Path,
    folder: &Path,
    name: &str,
    threads: usize,
    calls: usize,
) -> anyhow::Result<&'static str> {
    let data = data_files(folder, name)?;
    let mut child = command(litz)
        .args(["verify", "--no-bind", "--threads", &threads.to_string(), "--calls", &calls.to_string()])
        .arg(folder.join(format!("{name}.pt2")))
        .args(data.iter().flat_map(|path| [OsStr::new("--data"), path.as_os_str()]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let is_done = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let is_done = &is_done;
        for core in 0..cores {
            scope.spawn(move || disturb(core as u64 + 1, is_done));
        }
        let status = wait(&mut child, TIME_LIMIT);
        is_done.store(true, Ordering::Relaxed);
        status
    })?;
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        std::io::Read::read_to_string(&mut stderr, &mut said)?;
    }
    Ok(match status.map(|status| status.code()) {
        None => "timeout",
        _ if said.contains("gives other bits") => "DIFFERS",
        // Status 1 without that message: the numbers are off, which `cargo xtask corpus` reports.
        Some(Some(0 | 1)) => EQUAL,
        Some(Some(2)) => "unsupported",
        Some(_) => "failed",
    })
}

/// Keeps a core busy and leaves it again, each for up to two milliseconds, until it is told to end.
fn disturb(seed: u64, is_done: &AtomicBool) {
    let mut state = seed;
    let mut pause = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros(state >> 53)
    };
    while !is_done.load(Ordering::Relaxed) {
        let end = Instant::now() + pause();
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        std::thread::sleep(pause());
    }
}

/// What a text of loops has in which the work of several threads meets.
fn meetings(loops: &str) -> Vec<&'static str> {
    let mut found = [("scatter", false), ("sort", false), ("sums over threads", false)];
    let mut bound: Vec<&str> = Vec::new();
    for line in loops.lines().map(str::trim) {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').collect();
        match words[..] {
            ["nest", name, ..] => {
                bound.clear();
                found[2].1 |= name.ends_with("_partial");
            }
            ["extern", ..] => found[1].1 |= words.iter().any(|word| ["sort", "topk"].contains(word)),
            ["bind", symbol, ..] => bound.push(symbol),
            ["store", ..] => found[0].1 |= words.iter().any(|word| bound.contains(word)),
            [store, ..] if store.starts_with("store.") => found[0].1 = true,
            _ => {}
        }
    }
    found.into_iter().filter(|(_, is_found)| *is_found).map(|(what, _)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_tell_where_threads_meet() {
        let nest = |head: &str, body: &str| format!("  nest {head} [i in 4] {{\n    {body}\n  }}\n");
        let plain = nest("n0", "bind t0 = %0 in 8\n    %1: f32 = load x[t0]\n    store y[i] = %1");
        assert!(meetings(&plain).is_empty());
        let after = nest("n1", "store y[t0] = %1");
        assert!(meetings(&[plain, after].concat()).is_empty(), "the symbol is another nest's");
        let put = nest("n0", "bind t0 = %0 in 8\n    store y[2*t0 + 1] = %1");
        assert_eq!(meetings(&put), ["scatter"]);
        assert_eq!(meetings(&nest("n0", "store.sum y[i] = %1")), ["scatter"]);
        assert_eq!(meetings("  extern e0 from %y = sort(x) -> (y, z) ints(1, 4, 1, 0)"), ["sort"]);
    }
}
