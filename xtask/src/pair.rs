//! Times two builds of `litz` against each other, turn by turn, and holds what changed against limits.
//!
//! Both binaries run on the same models and kernels as the comparisons with PyTorch. A machine's speed drifts over
//! seconds, so the two take turns of a fraction of a second, in an order that alternates, and what counts is the median
//! of the turns' ratios. Compile times are those of `litz compile --to object` with no cache, in turns as well.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::bench::{LITZ, Server, geometric_mean, median, turn, warm};
use crate::bench_kernels::export_kernels;
use crate::bench_models::export_models;
use crate::command::{build_litz, command};
use crate::table;

/// Calls of the newer build may take this much longer, all together and each.
const MEAN_SPEED: f64 = 0.98;
const LEAST_SPEED: f64 = 0.95;
/// Its compilations may take this much longer, all together and each.
const MEAN_COMPILE: f64 = 1.05;
const MOST_COMPILE: f64 = 1.15;

/// Turns of each binary, unless the command line says otherwise.
const ROUNDS: usize = 15;

/// What to compare.
#[derive(clap::Args)]
pub struct Args {
    /// The older binary
    old: PathBuf,
    /// The newer one [default: a release build of this checkout]
    new: Option<PathBuf>,
    /// Only these models and kernels, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Turns of each binary
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
    /// Threads of both [default: all]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

/// One model or kernel, older over newer.
struct Compared {
    name: String,
    old_ms: f64,
    new_ms: f64,
    /// The older build's time over the newer one's: above 1, the newer is faster.
    speed: f64,
    /// The newer build's compile time over the older one's.
    compile: f64,
}

/// Compares two binaries as the task does with nothing else said.
pub fn compare(old: PathBuf, new: PathBuf, only: &[String]) -> anyhow::Result<ExitCode> {
    run(&Args { old, new: Some(new), only: only.to_vec(), rounds: ROUNDS, threads: None })
}

/// Exports what is missing, compares, prints the table; exit status 1 where a limit is passed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.rounds > 0, "expected at least one round");
    let old = args.old.canonicalize().with_context(|| format!("cannot find {}", args.old.display()))?;
    let new = match &args.new {
        Some(new) => new.canonicalize().with_context(|| format!("cannot find {}", new.display()))?,
        None => build_litz()?,
    };
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism()?.get(),
    };
    let pair = Pair { old, new, threads, rounds: args.rounds };
    let mut files = export_models(&args.only)?;
    files.extend(export_kernels(&args.only)?);
    ensure!(!files.is_empty(), "no such model or kernel");
    let mut compared = Vec::new();
    for (name, model) in &files {
        eprintln!("{name}");
        compared.push(pair.compare(name, model).with_context(|| name.clone())?);
    }
    let (text, holds) = report(&compared);
    print!("{text}");
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Pair {
    old: PathBuf,
    new: PathBuf,
    threads: usize,
    rounds: usize,
}

impl Pair {
    fn compare(&self, name: &str, model: &Path) -> anyhow::Result<Compared> {
        let mut old = Server::start(self.litz(&self.old).arg("bench").arg(model).arg("--serve"))?;
        let mut new = Server::start(self.litz(&self.new).arg("bench").arg(model).arg("--serve"))?;
        // Both make turns of as many calls, or their medians would not be of the same statistics.
        let calls = warm(&mut old, LITZ, name)?.1.min(warm(&mut new, LITZ, name)?.1);
        let (mut old_ms, mut new_ms) = (Vec::new(), Vec::new());
        for round in 0..self.rounds {
            if round % 2 == 0 {
                old_ms.push(turn(&mut old, LITZ, name, calls)?);
                new_ms.push(turn(&mut new, LITZ, name, calls)?);
            } else {
                new_ms.push(turn(&mut new, LITZ, name, calls)?);
                old_ms.push(turn(&mut old, LITZ, name, calls)?);
            }
        }
        drop((old, new));
        let (mut old_compile, mut new_compile) = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            old_compile.push(self.compile_seconds(&self.old, model)?);
            new_compile.push(self.compile_seconds(&self.new, model)?);
        }
        Ok(Compared {
            name: name.to_string(),
            old_ms: median(&old_ms),
            new_ms: median(&new_ms),
            speed: median_ratio(&old_ms, &new_ms),
            compile: median_ratio(&new_compile, &old_compile),
        })
    }

    fn compile_seconds(&self, litz: &Path, model: &Path) -> anyhow::Result<f64> {
        let start = Instant::now();
        let mut compile = self.litz(litz);
        crate::command::output(compile.arg("compile").arg(model).args([
            "--to",
            "object",
            "-o",
            "/dev/null",
        ]))?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// A binary with the environment that both share; an empty folder is no cache.
    fn litz(&self, binary: &Path) -> std::process::Command {
        let mut litz = command(binary);
        litz.env("LITZ_NUM_THREADS", self.threads.to_string()).env("LITZ_CACHE_DIR", "");
        litz
    }
}

fn median_ratio(above: &[f64], below: &[f64]) -> f64 {
    median(&above.iter().zip(below).map(|(above, below)| above / below).collect::<Vec<_>>())
}

/// The table with its last lines, and whether all limits hold.
fn report(compared: &[Compared]) -> (String, bool) {
    let rows: Vec<Vec<String>> = compared
        .iter()
        .map(|one| {
            vec![
                one.name.clone(),
                format!("{:.3}", one.old_ms),
                format!("{:.3}", one.new_ms),
                format!("{:.3}", one.speed),
                format!("{:.3}", one.compile),
            ]
        })
        .collect();
    let mut text = table::format(&["name", "old ms", "new ms", "speed", "compile"], &rows);
    let speeds: Vec<f64> = compared.iter().map(|one| one.speed).collect();
    let compiles: Vec<f64> = compared.iter().map(|one| one.compile).collect();
    let (speed, compile) = (geometric_mean(&speeds).unwrap_or(1.0), geometric_mean(&compiles).unwrap_or(1.0));
    let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = compiles.iter().copied().fold(0.0, f64::max);
    let holds =
        speed >= MEAN_SPEED && least >= LEAST_SPEED && compile <= MEAN_COMPILE && most <= MOST_COMPILE;
    text.push_str(&format!(
        "\npair: speed {speed:.3} (at least {MEAN_SPEED}), lowest {least:.3} (at least {LEAST_SPEED}); compile time \
         {compile:.3} (at most {MEAN_COMPILE}), highest {most:.3} (at most {MOST_COMPILE}): {}\n",
        if holds { "ok" } else { "MISSED" }
    ));
    (text, holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(speed: f64, compile: f64) -> Compared {
        Compared { name: "x".to_string(), old_ms: 1.0, new_ms: 1.0, speed, compile }
    }

    #[test]
    fn limits_hold_for_all_together_and_for_each() {
        let holds = |compared: &[Compared]| report(compared).1;
        assert!(holds(&[compared(0.96, 1.1), compared(1.05, 1.0)]));
        assert!(!holds(&[compared(0.94, 1.0), compared(1.2, 1.0)]), "one is too slow");
        assert!(!holds(&[compared(0.97, 1.0), compared(0.97, 1.0)]), "all together are too slow");
        assert!(!holds(&[compared(1.0, 1.2), compared(1.0, 0.8)]), "one compiles too long");
        assert!(!holds(&[compared(1.0, 1.06)]), "all together compile too long");
    }

    #[test]
    fn a_ratio_is_the_median_of_the_turns() {
        assert_eq!(median_ratio(&[2.0, 9.0, 3.0], &[1.0, 3.0, 3.0]), 2.0);
    }
}
