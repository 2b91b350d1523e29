//! Measures Litz and its peers, PyTorch and ONNX Runtime, in turns.
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
//! PyTorch is `benches/peer_models.py` and ONNX Runtime is `benches/peer_onnxruntime.py`, each one process for all models;
//! Litz is `litz bench NAME.pt2 --serve`, one process a model, its SYSTEM `litz`. All end with their input. A machine's
//! speed drifts over seconds, so systems take turns of a fraction of a second and are compared turn by turn. What a peer
//! cannot run is part of what was measured, with the peer's own words.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::command::{command, root};
use crate::venv;

/// The name under which `litz bench --serve` answers.
pub const LITZ: &str = "litz";

/// All systems that Litz is compared with.
const PEERS: [&str; 4] = ["eager", "inductor", "frozen", "onnxruntime"];

/// The scripts of `benches` that measure them, each in a process of its own.
const SCRIPTS: [(&str, &[&str]); 2] =
    [("peer_models.py", &["eager", "inductor", "frozen"]), ("peer_onnxruntime.py", &["onnxruntime"])];

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
    /// Systems to compare with: PyTorch's eager, inductor, frozen (inductor with freezing), and onnxruntime
    #[arg(long, value_name = "SYSTEMS", value_delimiter = ',')]
    #[arg(value_parser = PEERS, default_values = PEERS)]
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
    /// One for each peer asked for, or why it failed.
    pub peers: Vec<Result<PeerTiming, String>>,
}

/// What was measured of each model or kernel, by name, or why Litz failed.
pub type Measured = Vec<(String, Result<Timing, String>)>;

/// A peer's side of a comparison.
pub struct PeerTiming {
    /// Time a call, in milliseconds.
    pub ms: f64,
    /// This peer's time over Litz's, the median of the turns: above 1, Litz is faster.
    pub ratio: f64,
    /// Most that a call takes for its results and what is between, in MiB; nothing where the system does not tell.
    pub memory_mib: Option<f64>,
    /// Compilation and first call, in milliseconds.
    pub first_ms: f64,
}

/// Measures one name after another.
pub struct Driver {
    litz: PathBuf,
    threads: usize,
    rounds: usize,
    peers: Vec<String>,
    scripts: Vec<Script>,
}

impl Driver {
    /// Starts the peers' processes. Inductor's cache is emptied, so that its first calls compile.
    pub fn start(litz: PathBuf, args: &Args) -> anyhow::Result<Driver> {
        let threads = args.threads()?;
        ensure!(args.rounds > 0, "expected at least one round");
        let cache = empty_folder("inductor")?;
        let mut scripts = Vec::new();
        for (file, systems) in SCRIPTS {
            let systems = among(systems.iter().map(|system| system.to_string()), &args.peers);
            if args.peers.iter().any(|peer| systems.contains(peer)) {
                scripts.push(Script::start(file, systems, threads, &cache)?);
            }
        }
        Ok(Driver { litz, threads, rounds: args.rounds, peers: args.peers.clone(), scripts })
    }

    /// `litz` with the environment that measurements share: the threads, and a cache of its own.
    pub fn litz(&self, cache: &Path) -> Command {
        let mut litz = command(&self.litz);
        litz.env("LITZ_NUM_THREADS", self.threads.to_string()).env("LITZ_CACHE_DIR", cache);
        litz
    }

    /// Lets Litz and the peers take turns on one exported model. A peer that fails takes no more turns.
    pub fn measure(&mut self, model: &Path, name: &str) -> anyhow::Result<Timing> {
        for script in &mut self.scripts {
            script.revive()?;
        }
        let mut serve = self.litz(&empty_folder("serve")?);
        let mut litz = Server::start(serve.arg("bench").arg(model).arg("--serve"))?;
        let (_, litz_calls) = warm(&mut litz, LITZ, name)?;
        let peers = self.peers.clone();
        let mut running: Vec<Result<Running, String>> = Vec::new();
        for system in &peers {
            let warmed = warm(self.server(system), system, name);
            let began = warmed.map(|(first_ms, calls)| Running { first_ms, calls, turns: Vec::new() });
            running.push(began.map_err(|error| words(&error)));
        }
        let mut litz_turns = Vec::new();
        for _ in 0..self.rounds {
            litz_turns.push(turn(&mut litz, LITZ, name, litz_calls)?);
            for (system, running) in peers.iter().zip(&mut running) {
                let Ok(Running { calls, turns, .. }) = running else { continue };
                match turn(self.server(system), system, name, *calls) {
                    Ok(ms) => turns.push(ms),
                    Err(error) => *running = Err(words(&error)),
                }
            }
        }
        let litz_memory_mib = memory_mib(&mut litz, LITZ, name)?;
        let finish = |(system, running): (&String, Result<Running, String>)| {
            let Running { first_ms, turns, .. } = running?;
            let ratios: Vec<f64> = turns.iter().zip(&litz_turns).map(|(peer, litz)| peer / litz).collect();
            let memory_mib = memory_mib(self.server(system), system, name).ok();
            Ok(PeerTiming { ms: median(&turns), ratio: median(&ratios), memory_mib, first_ms })
        };
        let peers = peers.iter().zip(running).map(finish).collect();
        Ok(Timing { litz_ms: median(&litz_turns), litz_memory_mib, peers })
    }

    /// The process that measures a system.
    fn server(&mut self, system: &str) -> &mut Server {
        let script = self.scripts.iter_mut().find(|script| script.systems.iter().any(|own| own == system));
        &mut script.expect("invariant: every peer has a script").server
    }
}

/// A peer that has been warmed for a model, and its turns so far, in milliseconds.
struct Running {
    first_ms: f64,
    calls: usize,
    turns: Vec<f64>,
}

/// A process that measures systems.
struct Script {
    command: Command,
    systems: Vec<String>,
    server: Server,
}

impl Script {
    fn start(file: &str, systems: Vec<String>, threads: usize, inductor: &Path) -> anyhow::Result<Script> {
        let mut command = command(venv::ensure()?);
        command.arg(Path::new("benches").join(file)).arg("--threads").arg(threads.to_string());
        command.env("TORCHINDUCTOR_CACHE_DIR", inductor);
        let server = Server::start(&mut command)?;
        let mut script = Script { command, systems, server };
        script.load();
        Ok(script)
    }

    /// Compiles something small: otherwise the first model's compilation would pay for loading the compiler.
    fn load(&mut self) {
        for system in &self.systems {
            if let Err(error) = self.server.ask(&format!("warm {system} transpose_1024x1024")) {
                eprintln!("{system}: {error:#}");
            }
        }
    }

    /// Starts the process again where a model has brought it down.
    fn revive(&mut self) -> anyhow::Result<()> {
        if self.server.child.try_wait()?.is_some() {
            self.server = Server::start(&mut self.command)?;
            self.load();
        }
        Ok(())
    }
}

/// An error with its causes, in one line.
pub fn words(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().to_string()
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

/// What was measured, in words: the geometric mean of each peer's ratios, over the names where both sides ran, and a line
/// for everything that did not run.
pub fn summary(peers: &[String], measured: &Measured) -> String {
    let means = peers.iter().enumerate().map(|(place, system)| {
        let timings = measured.iter().filter_map(|(_, timing)| timing.as_ref().ok());
        let ratios: Vec<f64> =
            timings.filter_map(|timing| Some(timing.peers[place].as_ref().ok()?.ratio)).collect();
        match geometric_mean(&ratios) {
            Some(mean) => format!("{mean:.2}x {system} ({} of {})", ratios.len(), measured.len()),
            None => format!("- {system} (0 of {})", measured.len()),
        }
    });
    let mut text = format!("litz, geometric mean: {}\n", means.collect::<Vec<_>>().join(", "));
    for (name, timing) in measured {
        match timing {
            Err(error) => text.push_str(&format!("{name}: litz failed: {error}\n")),
            Ok(timing) => {
                for (system, error) in
                    peers.iter().zip(&timing.peers).filter_map(|(s, p)| Some((s, p.as_ref().err()?)))
                {
                    text.push_str(&format!("{name}: {system} failed: {error}\n"));
                }
            }
        }
    }
    text
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
    fn every_peer_has_one_script() {
        for peer in PEERS {
            let scripts = SCRIPTS.iter().filter(|(_, systems)| systems.contains(&peer));
            assert_eq!(scripts.count(), 1, "{peer}");
        }
    }

    #[test]
    fn the_summary_counts_only_what_both_sides_ran_and_says_what_did_not() {
        let peer = |ratio| Ok(PeerTiming { ms: 1.0, ratio, memory_mib: None, first_ms: 1.0 });
        let timing = |peers| Ok(Timing { litz_ms: 1.0, litz_memory_mib: 1.0, peers });
        let failed = || Err("NotImplemented Mul".to_string());
        let measured = vec![
            ("a".to_string(), timing(vec![peer(2.0), failed()])),
            ("b".to_string(), timing(vec![peer(8.0), failed()])),
            ("c".to_string(), Err("the process ended early".to_string())),
        ];
        assert_eq!(
            summary(&["eager".to_string(), "onnxruntime".to_string()], &measured),
            "litz, geometric mean: 4.00x eager (2 of 3), - onnxruntime (0 of 3)\n\
             a: onnxruntime failed: NotImplemented Mul\n\
             b: onnxruntime failed: NotImplemented Mul\n\
             c: litz failed: the process ended early\n"
        );
    }
}
