//! Compiles every model of the corpora for every target of `benches/targets.txt`, everything verified, and sums up.
//!
//! One process handles a model for all targets, within limits. What it found is kept under `target/targets`, so that a run
//! that was cut short, or divided into shards, goes on where it ended, until compiler, targets or model change.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::command::{build_litz, command, root};
use crate::table;

/// The targets, one a line.
const TARGETS: &str = "benches/targets.txt";
/// The folders that `cargo xtask corpus` exports to.
const CORPORA: [&str; 2] = ["target/corpus", "target/corpus_large"];
/// Models that are part of the repository.
const SAMPLE: [&str; 2] = ["examples", "crates/litz-import/tests/golden/2.15"];

/// A model's process runs within these; `timeout` ends with status 124.
const TIME_LIMIT_SECONDS: u32 = 1800;
const MEMORY_LIMIT_KIB: u64 = 16 << 20;

/// Which models to compile.
#[derive(clap::Args)]
pub struct Args {
    /// Only the models that are part of the repository
    #[arg(long, conflicts_with = "only")]
    sample: bool,
    /// Only these models, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Only every N-th model, from the I-th on, counted from 0
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
}

#[derive(Clone, Copy)]
struct Shard {
    at: usize,
    count: usize,
}

impl FromStr for Shard {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Shard> {
        let (at, count) = text.split_once('/').context("expected I/N")?;
        let shard = Shard { at: at.parse()?, count: count.parse()? };
        ensure!(shard.at < shard.count, "expected I below N");
        Ok(shard)
    }
}

/// What came of one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Outcome {
    /// Of compiler, targets and model: what it was found with.
    key: u64,
    name: String,
    seconds: f64,
    end: End,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum End {
    /// It was compiled for every target, or for some: a row each.
    Compiled(Vec<Row>),
    /// No target supports what it uses.
    Unsupported(String),
    /// The process did not end as it should.
    Crashed(String),
}

/// What `litz check --json` says of one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Row {
    target: String,
    kernels: Option<usize>,
    error: Option<String>,
    ms: f64,
}

#[derive(Deserialize)]
struct Report {
    targets: Vec<Row>,
}

/// Compiles what no earlier run has, prints the tables; exit status 1 where something fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let litz = build_litz()?;
    let models = models(args)?;
    let shared = hash(&[&fs::read(&litz)?, &fs::read(root().join(TARGETS))?]);
    let (mut outcomes, mut missing) = (Vec::new(), 0);
    for (number, model) in models.iter().enumerate() {
        let kept = kept(model);
        // Hundreds of megabytes of weights change nothing here: when the file was written tells it from others.
        let metadata = fs::metadata(model)?;
        let written = format!("{} {:?}", metadata.len(), metadata.modified()?);
        let key = hash(&[&shared.to_le_bytes(), written.as_bytes()]);
        let earlier = fs::read(&kept).ok().and_then(|bytes| serde_json::from_slice::<Outcome>(&bytes).ok());
        if let Some(outcome) = earlier.filter(|outcome| outcome.key == key) {
            outcomes.push(outcome);
        } else if number % args.shard.count == args.shard.at {
            let outcome = check(&litz, model, key)?;
            eprintln!("{}: {}, {:.1} s", outcome.name, outcome.end.word(), outcome.seconds);
            fs::create_dir_all(kept.parent().context("expected a folder")?)?;
            fs::write(&kept, serde_json::to_vec(&outcome)?)?;
            outcomes.push(outcome);
        } else {
            missing += 1;
        }
    }
    print!("{}", report(&outcomes));
    if missing > 0 {
        println!("{missing} models are left to other shards");
    }
    let is_broken = outcomes.iter().any(|outcome| outcome.end.failures() > 0);
    Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Archives in the folders, by name within each.
fn models(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    let folders: &[&str] = if args.sample { &SAMPLE } else { &CORPORA };
    let mut models = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(root().join(folder))
            .with_context(|| format!("cannot read {folder}: `cargo xtask corpus` exports models to it"))?;
        let mut own = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
        own.retain(|path| path.extension().is_some_and(|extension| extension == "pt2"));
        // A model whose export failed half way has no data beside it.
        own.retain(|path| args.sample || path.with_extension("safetensors").exists());
        own.retain(|path| args.only.is_empty() || args.only.contains(&name(path)));
        own.sort();
        models.extend(own);
    }
    if models.is_empty() {
        bail!("no models in {}", folders.join(", "));
    }
    Ok(models)
}

fn name(model: &Path) -> String {
    model.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

/// Where the outcome of a model is kept: names of different folders may be the same.
fn kept(model: &Path) -> PathBuf {
    let folder = model.parent().and_then(Path::file_name).unwrap_or_default();
    root().join("target/targets").join(folder).join(format!("{}.json", name(model)))
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Runs `litz check` on one model.
fn check(litz: &Path, model: &Path, key: u64) -> anyhow::Result<Outcome> {
    // A shell sets the memory limit: the standard library cannot.
    let limited = format!("ulimit -v {MEMORY_LIMIT_KIB} && exec timeout {TIME_LIMIT_SECONDS} \"$0\" \"$@\"");
    let start = Instant::now();
    let mut child = command("sh");
    child.args(["-c", &limited]).arg(litz).arg("check").arg(model).args(["--json", "--targets", TARGETS]);
    let output = child.stdin(std::process::Stdio::null()).output().context("cannot start sh")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or("").to_string();
    let report = serde_json::from_slice::<Report>(&output.stdout);
    let end = match (output.status.code(), report) {
        (Some(0..=2), Ok(report)) => End::Compiled(report.targets),
        (Some(2), Err(_)) => End::Unsupported(first),
        (Some(124), _) => End::Crashed("timeout".to_string()),
        _ => End::Crashed(format!("{}: {first}", output.status)),
    };
    Ok(Outcome { key, name: name(model), seconds: start.elapsed().as_secs_f64(), end })
}

impl End {
    /// How many targets failed: a crash is one failure.
    fn failures(&self) -> usize {
        match self {
            End::Compiled(rows) => rows.iter().filter(|row| row.error.is_some()).count(),
            End::Unsupported(_) => 0,
            End::Crashed(_) => 1,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            End::Compiled(_) if self.failures() == 0 => "pass",
            End::Compiled(_) => "FAIL",
            End::Unsupported(_) => "unsupported",
            End::Crashed(_) => "CRASH",
        }
    }
}

#[derive(Default)]
struct Total {
    pass: usize,
    fail: usize,
    kernels: usize,
    seconds: f64,
}

/// One row for each target, one for each failure, one for each model that nothing supports, and their numbers.
fn report(outcomes: &[Outcome]) -> String {
    let mut totals: BTreeMap<&str, Total> = BTreeMap::new();
    let (mut order, mut failures, mut unsupported) = (Vec::new(), Vec::new(), Vec::new());
    for Outcome { name, end, .. } in outcomes {
        match end {
            End::Compiled(rows) => {
                for Row { target, kernels, error, ms } in rows {
                    if !totals.contains_key(&**target) {
                        order.push(&**target);
                    }
                    let total = totals.entry(target).or_default();
                    total.kernels += kernels.unwrap_or(0);
                    total.seconds += ms / 1e3;
                    match error {
                        None => total.pass += 1,
                        Some(error) => {
                            total.fail += 1;
                            failures.push(vec![name.clone(), target.clone(), brief(error)]);
                        }
                    }
                }
            }
            End::Unsupported(reason) => unsupported.push(vec![name.clone(), brief(reason)]),
            End::Crashed(reason) => failures.push(vec![name.clone(), "-".to_string(), brief(reason)]),
        }
    }
    let rows: Vec<Vec<String>> = order
        .iter()
        .map(|&target| {
            let Total { pass, fail, kernels, seconds } = &totals[target];
            let seconds = format!("{seconds:.1}");
            vec![target.to_string(), pass.to_string(), fail.to_string(), kernels.to_string(), seconds]
        })
        .collect();
    let mut text = table::format(&["target", "pass", "fail", "kernels", "seconds"], &rows);
    for (head, rows) in
        [(["model", "target", "failure"].as_slice(), &failures), (&["model", "unsupported"], &unsupported)]
    {
        if !rows.is_empty() {
            text.push('\n');
            text.push_str(&table::format(head, rows));
        }
    }
    let pass: usize = totals.values().map(|total| total.pass).sum();
    text.push_str(&format!(
        "\ntargets: {} models, {} targets: {pass} pass, {} fail, {} models unsupported\n",
        outcomes.len(),
        order.len(),
        failures.len(),
        unsupported.len()
    ));
    text
}

/// The first line, if that is not too long.
fn brief(text: &str) -> String {
    text.lines().next().unwrap_or("").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, end: End) -> Outcome {
        Outcome { key: 1, name: name.to_string(), seconds: 1.0, end }
    }

    fn row(target: &str, error: Option<&str>) -> Row {
        let kernels = error.is_none().then_some(3);
        Row { target: target.to_string(), kernels, error: error.map(str::to_string), ms: 500.0 }
    }

    #[test]
    fn every_end_is_counted_once() {
        let outcomes = [
            outcome("a", End::Compiled(vec![row("t1", None), row("t2", Some("bug in stage x\nmore"))])),
            outcome("b", End::Compiled(vec![row("t1", None), row("t2", None)])),
            outcome("c", End::Unsupported("error[unknown-op]: `aten.x`".to_string())),
            outcome("d", End::Crashed("timeout".to_string())),
        ];
        let failures: Vec<usize> = outcomes.iter().map(|outcome| outcome.end.failures()).collect();
        assert_eq!(failures, [1, 0, 0, 1]);
        let text = report(&outcomes);
        for line in [
            "t1         2     0        6      1.0",
            "a      t2      bug in stage x",
            "d      -       timeout",
            "c      error[unknown-op]: `aten.x`",
            "targets: 4 models, 2 targets: 3 pass, 2 fail, 1 models unsupported",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn outcomes_are_kept_as_they_were() {
        let outcome = outcome("a", End::Compiled(vec![row("t1", Some("bug"))]));
        let bytes = serde_json::to_vec(&outcome).expect("it is data");
        assert_eq!(serde_json::from_slice::<Outcome>(&bytes).expect("it reads back"), outcome);
    }

    #[test]
    fn shards_are_numbers_below_their_count() {
        assert!("1/2".parse::<Shard>().is_ok());
        for wrong in ["2/2", "0/0", "1", "x/2", ""] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
