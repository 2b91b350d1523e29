//! Measures Litz and PyTorch in pairs, turn by turn.
//!
//! Each system is a child process that answers one line for one line:
//!
//! ```text
//! warm SYSTEM NAME        ok MS          load, compile, call once; compilation and first call, in milliseconds
//! run SYSTEM NAME COUNT   ok MS MS ...   COUNT calls of what was warmed, each in milliseconds
//! memory SYSTEM NAME      ok BYTES       most that a call takes for its results and what is between
//! anything unmet          error TEXT
//! ```
//!
//! PyTorch is `benches/peer_models.py`, one process for all models; Litz is `litz bench NAME.pt2 --serve`, one process
//! a model, its SYSTEM `litz`. Both end with their input. A machine's speed drifts over seconds, so systems take turns
//! of a fraction of a second and are compared turn by turn.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::command::{command, root};
use crate::venv;

/// The name under which `litz bench --serve` answers.
pub const LITZ: &str = "litz";

/// A turn lasts about this long, and has at most this many calls: enough for a steady median, short beside the drift.
const TURN_MS: f64 = 100.0;
const MAX_CALLS: usize = 200;

/// Between turns, so that the threads of the system before go to sleep instead of spinning into the next turn.
const PAUSE: Duration = Duration::from_millis(20);

/// How to measure, the same for models and kernels.
#[derive(clap::Args)]
pub struct Args {
    /// Only these, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// PyTorch systems to compare with: eager, inductor, frozen (inductor with freezing)
    #[arg(long, value_name = "SYSTEMS", value_delimiter = ',', default_value = "eager,inductor")]
    #[arg(value_parser = ["eager", "inductor", "frozen"])]
    pub peers: Vec<String>,
    /// Turns of each system
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub rounds: usize,
    /// Threads of each system [default: all]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// The wanted names among the given ones, in their order; all of them where none is named.
pub fn among(names: impl IntoIterator<Item = String>, wanted: &[String]) -> Vec<String> {
    names.into_iter().filter(|name| wanted.is_empty() || wanted.contains(name)).collect()
}

impl Args {
    /// Threads of each system.
    pub fn threads(&self) -> anyhow::Result<usize> {
        match self.threads {
            Some(threads) => Ok(threads),
            None => Ok(std::thread::available_parallelism()?.get()),
        }
    }

    /// The given names, in their order, less those not asked for; an error for a name that is not among them.
    pub fn select(&self, names: &[String]) -> anyhow::Result<Vec<String>> {
        for wanted in &self.only {
            ensure!(names.contains(wanted), "no such name: {wanted}");
        }
        Ok(among(names.iter().cloned(), &self.only))
    }
}

/// The medians of one model or kernel.
pub struct Timing {
    /// Litz's time a call, in milliseconds.
    pub litz_ms: f64,
    /// Most that a call takes for its results and what is between, in MiB.
    pub litz_memory_mib: f64,
    /// One for each peer asked for; nothing for one that failed.
    pub peers: Vec<Option<PeerTiming>>,
}

/// A peer's side of a comparison.
pub struct PeerTiming {
    /// Time a call, in milliseconds.
    pub ms: f64,
    /// This peer's time over Litz's, the median of the turns: above 1, Litz is faster.
    pub ratio: f64,
    /// Most that a call takes for its results and what is between, in MiB.
    pub memory_mib: f64,
    /// Compilation and first call, in milliseconds.
    pub first_ms: f64,
}

/// Measures one name after another against one PyTorch process.
pub struct Driver {
    litz: PathBuf,
    threads: usize,
    rounds: usize,
    peers: Vec<String>,
    peer: Server,
}

impl Driver {
    /// Starts PyTorch. Inductor's cache is emptied, so that its first calls compile.
    pub fn start(litz: PathBuf, args: &Args) -> anyhow::Result<Driver> {
        let threads = args.threads()?;
        ensure!(args.rounds > 0, "expected at least one round");
        let mut python = command(venv::ensure()?);
        python
            .args(["benches/peer_models.py", "--threads"])
            .arg(threads.to_string())
            .env("TORCHINDUCTOR_CACHE_DIR", empty_folder("inductor")?);
        let mut peer = Server::start(&mut python)?;
        // Otherwise the first model's compilation would pay for loading the compiler.
        for system in &args.peers {
            if let Err(error) = peer.ask(&format!("warm {system} transpose_1024x1024")) {
                eprintln!("{system}: {error:#}");
            }
        }
        Ok(Driver { litz, threads, rounds: args.rounds, peers: args.peers.clone(), peer })
    }

    /// `litz` with the environment that measurements share: the threads, and a cache of its own.
    pub fn litz(&self, cache: &Path) -> Command {
        let mut litz = command(&self.litz);
        litz.env("LITZ_NUM_THREADS", self.threads.to_string()).env("LITZ_CACHE_DIR", cache);
        litz
    }

    /// Lets Litz and the peers take turns on one exported model. A peer that fails is reported and left out.
    pub fn measure(&mut self, model: &Path, name: &str) -> anyhow::Result<Timing> {
        let mut serve = self.litz(&empty_folder("serve")?);
        let mut litz = Server::start(serve.arg("bench").arg(model).arg("--serve"))?;
        let (_, litz_calls) = warm(&mut litz, LITZ, name)?;
        let mut warmed = Vec::new();
        for system in &self.peers {
            let result = warm(&mut self.peer, system, name);
            warmed.push(result.inspect_err(|error| eprintln!("{name}: {system}: {error:#}")).ok());
        }

        let mut litz_turns = Vec::new();
        let mut peer_turns = vec![Vec::new(); self.peers.len()];
        for _ in 0..self.rounds {
            litz_turns.push(turn(&mut litz, LITZ, name, litz_calls)?);
            for (place, system) in self.peers.iter().enumerate() {
                if let Some((_, calls)) = warmed[place] {
                    peer_turns[place].push(turn(&mut self.peer, system, name, calls)?);
                }
            }
        }
        let litz_memory_mib = memory_mib(&mut litz, LITZ, name)?;
        let mut peers = Vec::new();
        for ((warmed, turns), system) in warmed.iter().zip(&peer_turns).zip(&self.peers) {
            let Some((first_ms, _)) = *warmed else {
                peers.push(None);
                continue;
            };
            let ratios: Vec<f64> = turns.iter().zip(&litz_turns).map(|(peer, litz)| peer / litz).collect();
            let memory_mib = memory_mib(&mut self.peer, system, name)?;
            peers.push(Some(PeerTiming { ms: median(turns), ratio: median(&ratios), memory_mib, first_ms }));
        }
        Ok(Timing { litz_ms: median(&litz_turns), litz_memory_mib, peers })
    }
}

/// Compilation with the first call, in milliseconds, and how many calls make a turn.
pub fn warm(server: &mut Server, system: &str, name: &str) -> anyhow::Result<(f64, usize)> {
    let first = median(&server.ask(&format!("warm {system} {name}"))?);
    let call = median(&server.ask(&format!("run {system} {name} 3"))?);
    Ok((first, ((TURN_MS / call) as usize).clamp(1, MAX_CALLS)))
}

fn memory_mib(server: &mut Server, system: &str, name: &str) -> anyhow::Result<f64> {
    Ok(median(&server.ask(&format!("memory {system} {name}"))?) / f64::from(1 << 20))
}

/// The median time of one turn's calls, in milliseconds.
pub fn turn(server: &mut Server, system: &str, name: &str, calls: usize) -> anyhow::Result<f64> {
    std::thread::sleep(PAUSE);
    let times = server.ask(&format!("run {system} {name} {calls}"))?;
    ensure!(times.len() == calls, "{system}: expected {calls} times, found {}", times.len());
    Ok(median(&times))
}

/// A child process that speaks the line protocol; it ends when dropped.
pub struct Server {
    child: Child,
    // Nothing only while it is dropped.
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the process.
    pub fn start(command: &mut Command) -> anyhow::Result<Server> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().expect("invariant: standard output is piped"));
        Ok(Server { child, requests, answers })
    }

    /// The numbers of the answer to one request.
    fn ask(&mut self, request: &str) -> anyhow::Result<Vec<f64>> {
        let requests = self.requests.as_mut().expect("invariant: open until dropped");
        writeln!(requests, "{request}").and_then(|()| requests.flush()).context("the process ended early")?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            bail!("the process ended early: {}", self.child.wait()?);
        }
        parse_answer(&line)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The end of its input is the request to stop; a child that is gone already is as good.
        drop(self.requests.take());
        let _ = self.child.wait();
    }
}

/// `ok 1.5 2` => [1.5, 2.0]; `error TEXT` => an error that says TEXT.
fn parse_answer(line: &str) -> anyhow::Result<Vec<f64>> {
    let line = line.trim();
    if let Some(text) = line.strip_prefix("error") {
        bail!("{}", text.trim());
    }
    let times = line
        .strip_prefix("ok ")
        .and_then(|times| {
            times.split_whitespace().map(|time| time.parse().ok()).collect::<Option<Vec<f64>>>()
        })
        .filter(|times| !times.is_empty() && times.iter().all(|time| time.is_finite() && *time > 0.0));
    times.with_context(|| format!("expected `ok MS ...` or `error TEXT`, found {line:?}"))
}

/// The middle value, or the mean of the two middle ones. Panics on an empty list.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0
}

/// The fair mean of ratios. Nothing for an empty list.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp())
}

/// `target/bench-cache/NAME`, emptied.
pub fn empty_folder(name: &str) -> anyhow::Result<PathBuf> {
    let folder = root().join("target/bench-cache").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// One line: the geometric mean of each peer's ratios, over the names where both sides ran.
pub fn summary<'a>(peers: &[String], timings: impl IntoIterator<Item = Option<&'a Timing>>) -> String {
    let timings: Vec<Option<&Timing>> = timings.into_iter().collect();
    let means = peers.iter().enumerate().map(|(place, system)| {
        let measured = timings.iter().flatten().filter_map(|timing| timing.peers[place].as_ref());
        let ratios: Vec<f64> = measured.map(|peer| peer.ratio).collect();
        match geometric_mean(&ratios) {
            Some(mean) => format!("{mean:.2}x {system} ({} of {})", ratios.len(), timings.len()),
            None => format!("- {system} (0 of {})", timings.len()),
        }
    });
    format!("litz, geometric mean: {}", means.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_lists() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn twice_as_fast_and_twice_as_slow_cancel() {
        assert_eq!(geometric_mean(&[2.0, 0.5]), Some(1.0));
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn answers_are_numbers_or_errors() {
        assert_eq!(parse_answer("ok 1.5 2\n").expect("two times"), [1.5, 2.0]);
        assert_eq!(parse_answer("error no such model\n").expect_err("an error").to_string(), "no such model");
        for line in ["ok\n", "ok x\n", "ok nan\n", "ok -1\n", "1.5\n", "\n"] {
            assert!(parse_answer(line).is_err(), "{line:?}");
        }
    }

    #[test]
    fn a_server_answers_line_by_line_and_may_end_early() {
        let script = "read line; echo ok 2; read line; echo error $line; read line; exit 3";
        let mut server = Server::start(command("sh").args(["-c", script])).expect("sh is everywhere");
        assert_eq!(server.ask("warm x y").expect("a time"), [2.0]);
        assert_eq!(server.ask("run x y").expect_err("an error").to_string(), "run x y");
        let error = server.ask("run x y").expect_err("it has ended").to_string();
        assert_eq!(error, "the process ended early: exit status: 3");
    }

    #[test]
    fn the_summary_counts_only_what_both_sides_ran() {
        let peer = |ratio| Some(PeerTiming { ms: 1.0, ratio, memory_mib: 1.0, first_ms: 1.0 });
        let timing = |peers| Some(Timing { litz_ms: 1.0, litz_memory_mib: 1.0, peers });
        let timings = [timing(vec![peer(2.0), None]), timing(vec![peer(8.0), None]), None];
        let peers = ["eager".to_string(), "inductor".to_string()];
        assert_eq!(
            summary(&peers, timings.iter().map(Option::as_ref)),
            "litz, geometric mean: 4.00x eager (2 of 3), - inductor (0 of 3)"
        );
    }
}
