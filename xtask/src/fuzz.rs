//! Builds the fuzz targets, runs each for a while, and prints how fast they were and what they found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail, ensure};

use crate::command::{build_tool, cargo, command, output, root, run as run_command};
use crate::table;

/// One target.
struct Target {
    name: &'static str,
    /// Executions a second below which a run says too little.
    least: f64,
    /// What its bytes are.
    bytes: Bytes,
    /// Whether the address sanitizer watches it: where it runs native code, and frees what C is given.
    is_sanitized: bool,
}

/// What the bytes of an input are, which decides what the fuzzer can learn from them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bytes {
    /// A text or a file that the code under test reads: what it compares with them is worth trying in their place.
    Read,
    /// Choices of a generator. The code under test is given what the generator made of them, and compares other numbers.
    Choices,
}

impl Target {
    const fn new(name: &'static str, least: f64, bytes: Bytes) -> Target {
        Target { name, least, bytes, is_sanitized: false }
    }

    /// Where it is built: one folder for each way of building targets, so that none undoes another's work.
    fn folder(&self) -> PathBuf {
        root().join(match (self.is_sanitized, self.bytes) {
            (false, Bytes::Read) => "fuzz/target",
            (false, Bytes::Choices) => "fuzz/target/choices",
            (true, Bytes::Read | Bytes::Choices) => "fuzz/target/sanitized",
        })
    }
}

const TARGETS: [Target; 8] = [
    Target::new("archive", 500.0, Bytes::Read),
    Target::new("program", 500.0, Bytes::Read),
    Target::new("simplify", 500.0, Bytes::Read),
    Target::new("saved", 200.0, Bytes::Read),
    Target::new("text", 20.0, Bytes::Read),
    Target::new("run", 20.0, Bytes::Read),
    Target::new("models", 20.0, Bytes::Choices),
    Target { is_sanitized: true, ..Target::new("c_library", 20.0, Bytes::Choices) },
];

/// Seconds after which one input counts as a hang.
const INPUT_SECONDS: u32 = 10;

/// Memory that one process may take: expressions and names stay interned for the life of a process.
const MEMORY_MIB: u32 = 6144;

/// What to fuzz.
#[derive(clap::Args)]
pub struct Args {
    /// Targets, separated by commas [default: all]
    #[arg(value_delimiter = ',')]
    targets: Vec<String>,
    /// How long each target runs
    #[arg(long, value_name = "N", default_value_t = 600)]
    seconds: u64,
    /// Targets that run at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Build and write the seeds, and run nothing
    #[arg(long)]
    build: bool,
}

/// What came of one target.
struct Outcome {
    name: &'static str,
    executions: f64,
    a_second: f64,
    least: f64,
    /// Inputs that were kept because they show something.
    findings: Vec<String>,
}

/// Runs the targets, as many at a time as asked for; exit status 1 where there is a finding, or a target was too slow.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    for name in &args.targets {
        ensure!(TARGETS.iter().any(|target| target.name == name), "no such target: {name}");
    }
    ensure_cargo_fuzz()?;
    let is_wanted =
        |target: &&Target| args.targets.is_empty() || args.targets.iter().any(|name| name == target.name);
    let wanted: Vec<&'static Target> = TARGETS.iter().filter(is_wanted).collect();
    for target in &wanted {
        build(target)?;
        write_seeds(target.name)?;
    }
    let outcomes = if args.build { Vec::new() } else { run_all(&wanted, args)? };
    let mut rows = Vec::new();
    for outcome in &outcomes {
        let findings =
            if outcome.findings.is_empty() { "none".to_string() } else { outcome.findings.join(" ") };
        rows.push(vec![
            outcome.name.to_string(),
            format!("{:.0}", outcome.executions),
            format!("{:.0}", outcome.a_second),
            format!("{:.0}", outcome.least),
            findings,
        ]);
    }
    print!("{}", table::format(&["target", "inputs", "a second", "at least", "findings"], &rows));
    let found: usize = outcomes.iter().map(|outcome| outcome.findings.len()).sum();
    let slow = outcomes.iter().filter(|outcome| outcome.a_second < outcome.least).count();
    println!("\nfuzz: {} targets, {found} findings, {slow} too slow", outcomes.len());
    Ok(if found + slow == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn ensure_cargo_fuzz() -> anyhow::Result<()> {
    if output(cargo().args(["fuzz", "--version"])).is_ok() {
        return Ok(());
    }
    run_command(cargo().args(["install", "--locked", "cargo-fuzz"]))
}

/// What comes of the targets, in their order.
fn run_all(wanted: &[&'static Target], args: &Args) -> anyhow::Result<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<(usize, Outcome)>> {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(target) = wanted.get(at) else { return Ok(done) };
            done.push((at, fuzz(target, args.seconds)?));
        }
    };
    let mut done = Vec::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            done.extend(worker.join().expect("invariant: no worker panics")?);
            anyhow::Ok(())
        })
    })?;
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Builds one target with coverage and assertions, and without a sanitizer where native code does not run: nothing else below the runtime is
/// unsafe.
fn build(target: &Target) -> anyhow::Result<()> {
    let mut build = cargo();
    let sanitizer = if target.is_sanitized { "address" } else { "none" };
    // The flags that libFuzzer needs are those of a nightly compiler.
    build.args(["fuzz", "build", "--sanitizer", sanitizer, target.name]).env("RUSTC_BOOTSTRAP", "1");
    if target.bytes == Bytes::Choices {
        // A third of the time went into comparisons of which none was with a byte of the input.
        build.arg("--no-trace-compares");
    }
    run_command(build.arg("--target-dir").arg(target.folder()))
}

fn write_seeds(name: &str) -> anyhow::Result<()> {
    let folder = corpus(name);
    run_command(command(build_tool("seeds")?).arg(name).arg(folder))
}

fn corpus(name: &str) -> PathBuf {
    root().join("fuzz/corpus").join(name)
}

fn fuzz(target: &'static Target, seconds: u64) -> anyhow::Result<Outcome> {
    let &Target { name, least, bytes, is_sanitized: _ } = target;
    let artifacts = root().join("fuzz/artifacts").join(name);
    fs::create_dir_all(&artifacts)?;
    let before = files(&artifacts)?;
    let mut child = command(binary(target)?)
        .arg(corpus(name))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        // Weights of inputs by how rare their edges are cost more than running them where they pass most of the code.
        .arg(format!("-entropic={}", u8::from(bytes == Bytes::Read)))
        .arg("-print_final_stats=1")
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = child.stderr.take().context("standard error is piped")?;
    let log = std::io::read_to_string(stderr)?;
    child.wait()?;
    fs::write(artifacts.with_extension("log"), &log)?;
    let statistic = |name: &str| {
        let line = log.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name));
        line.and_then(|rest| rest.trim_start_matches(':').trim().parse::<f64>().ok())
    };
    let executions = statistic("number_of_executed_units").unwrap_or(0.0);
    let findings = files(&artifacts)?.into_iter().filter(|file| !before.contains(file)).collect();
    Ok(Outcome { name, executions, a_second: executions / seconds.max(1) as f64, least, findings })
}

fn files(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path().display().to_string()))
        .collect::<std::io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Where cargo-fuzz leaves the binary of this machine's triple.
fn binary(target: &Target) -> anyhow::Result<PathBuf> {
    let version = output(command("rustc").arg("-vV"))?;
    let Some(host) = version.lines().find_map(|line| line.strip_prefix("host: ")) else {
        bail!("`rustc -vV` does not name its host");
    };
    Ok(target.folder().join(host).join("release").join(target.name))
}
