//! Runs every check that backs a promise of the project, records each result, and prints one table.
//!
//! A check is another task with its arguments. What it found lies in `target/gate` as one JSON file for each check and
//! size, with commit, machine and seed, so that a run that was stopped goes on where it stopped: a check that has passed
//! at this commit is not run again.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use crate::command::{command, root};
use crate::{machine, table};

/// What to check.
#[derive(clap::Args)]
pub struct Args {
    /// The sizes that show a regression within an hour on two cores, instead of those that back a claim
    #[arg(long)]
    short: bool,
    /// Only these checks, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// An older release binary, which the checks of speed need
    #[arg(long, value_name = "FILE")]
    old: Option<PathBuf>,
    /// Python script that exports further models, as `cargo xtask corpus --export` takes it
    #[arg(long, value_name = "SCRIPT")]
    models: Option<PathBuf>,
    /// Seed of what is random [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run what has passed at this commit again
    #[arg(long)]
    again: bool,
    /// Print the table of what was recorded and run nothing
    #[arg(long)]
    list: bool,
}

/// One promise: a name, and the task that checks it, in full and in short. `{old}`, `{models}` and `{seed}` stand for
/// the arguments of that name; a check that needs one that is not given is not run.
struct Check {
    name: &'static str,
    full: &'static str,
    short: &'static str,
}

const fn check(name: &'static str, full: &'static str, short: &'static str) -> Check {
    Check { name, full, short }
}

/// In the order in which they run: what is quick and finds most comes first.
const CHECKS: [Check; 22] = [
    check("test", "test", "test"),
    check("c-library", "c-library --check", "c-library --check"),
    check("corpus", "corpus", "corpus"),
    check("cold-start", "cold-start", "cold-start"),
    check("opinfo-f32", "opinfo", "opinfo --shard 0/10"),
    check("opinfo-f64", "opinfo --dtype f64", ""),
    check("opinfo-bf16", "opinfo --dtype bf16", "opinfo --dtype bf16 --shard 1/10"),
    check("opinfo-i64", "opinfo --dtype i64", ""),
    check("opinfo-bool", "opinfo --dtype bool", ""),
    check("opinfo-dynamic", "opinfo --dynamic", "opinfo --dynamic --shard 2/10"),
    check("models", "corpus --export {models}", ""),
    check("targets", "targets", "targets --sample"),
    check("hostile", "hostile --torch", "hostile --first 500"),
    check("random", "random --count 20000 --seed {seed}", "random --count 500 --seed {seed}"),
    check("random-torch", "random --count 2000 --seed {seed} --torch", ""),
    check("aarch64", "aarch64 --instructions", "aarch64 --one-of 8"),
    check("faults", "faults", "faults negative_of_absolute kernel_of_minimum pass_on_cosines panic_at_sign"),
    check("fuzz", "fuzz --seconds 600 --jobs 2", "fuzz --seconds 30 --jobs 2"),
    check("bits", "bits", "bits --folder target/corpus --calls 20"),
    check("bench-models", "bench-models", ""),
    check("bench-kernels", "bench-kernels", ""),
    check("pair", "pair {old}", "pair {old} --rounds 5 --only bert_base,resnet50,gpt2,softmax_4096x1024"),
];

/// What a check found.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
struct Record {
    name: String,
    /// The task and its arguments.
    command: String,
    commit: String,
    machine: String,
    seed: u64,
    passed: bool,
    /// The last line that the task printed.
    figure: String,
    seconds: f64,
}

impl Record {
    /// Whether it says that the check passes at this commit, and not with changes to it that nobody knows.
    fn stands_for(&self, commit: &str) -> bool {
        self.passed && self.commit == commit && !commit.ends_with(machine::CHANGED)
    }
}

/// Runs what has not passed at this commit, prints the table; exit status 1 where a check has failed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    for wanted in &args.only {
        ensure!(CHECKS.iter().any(|check| check.name == wanted), "no such check: {wanted}");
    }
    let folder = root().join("target/gate").join(if args.short { "short" } else { "full" });
    fs::create_dir_all(&folder)?;
    let (commit, machine) = (machine::commit()?, machine::name()?);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let seed = args.seed.unwrap_or_else(now);
    let (mut rows, mut has_failed) = (Vec::new(), false);
    for check in &CHECKS {
        let is_wanted = args.only.is_empty() || args.only.iter().any(|name| name == check.name);
        let words = words(if args.short { check.short } else { check.full }, args, seed);
        let (true, Some(words)) = (is_wanted, words) else { continue };
        let file = folder.join(format!("{}.json", check.name));
        let mut record = read(&file)?;
        let is_done = record.as_ref().is_some_and(|record| record.stands_for(&commit));
        if !args.list && (args.again || !is_done) {
            eprintln!("gate: {}", check.name);
            let (passed, figure, seconds) = execute(&words)?;
            let (commit, machine) = (commit.clone(), machine.clone());
            let (name, command) = (check.name.to_string(), words.join(" "));
            let found = Record { name, command, commit, machine, seed, passed, figure, seconds };
            fs::write(&file, serde_json::to_vec_pretty(&found)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            record = Some(found);
        }
        has_failed |= record.as_ref().is_some_and(|record| !record.passed);
        rows.push(row(check.name, record.as_ref()));
    }
    let header = ["check", "result", "minutes", "commit", "seed", "machine", "figure"];
    print!("{}", table::format(&header, &rows));
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A task's words with the arguments in their places; nothing for a check that is not made, or lacks an argument.
fn words(task: &str, args: &Args, seed: u64) -> Option<Vec<String>> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let word = |word: &str| match word {
        "{old}" => path(&args.old),
        "{models}" => path(&args.models),
        "{seed}" => Some(seed.to_string()),
        _ => Some(word.to_string()),
    };
    let words: Vec<String> = task.split_whitespace().map(word).collect::<Option<_>>()?;
    (!words.is_empty()).then_some(words)
}

/// Runs a task to its end, passing on what it prints: whether it passed, its last line, and seconds.
fn execute(words: &[String]) -> anyhow::Result<(bool, String, f64)> {
    let start = Instant::now();
    let mut child = command(std::env::current_exe()?).args(words).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().context("the standard output of a task is piped")?;
    let mut last = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if !line.trim().is_empty() {
            last = line.trim().to_string();
        }
    }
    Ok((child.wait()?.success(), last, start.elapsed().as_secs_f64()))
}

fn read(file: &std::path::Path) -> anyhow::Result<Option<Record>> {
    match fs::read(file) {
        // A record that this version does not understand is as good as none.
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn row(name: &str, record: Option<&Record>) -> Vec<String> {
    let Some(record) = record else {
        return [name, "not run", "-", "-", "-", "-", ""].map(str::to_string).into();
    };
    vec![
        name.to_string(),
        if record.passed { "ok" } else { "FAILED" }.to_string(),
        format!("{:.1}", record.seconds / 60.0),
        record.commit.clone(),
        record.seed.to_string(),
        record.machine.clone(),
        record.figure.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn args(old: Option<&str>) -> Args {
        let old = old.map(PathBuf::from);
        Args { short: false, only: Vec::new(), old, models: None, seed: None, again: false, list: false }
    }

    #[test]
    fn arguments_take_their_places_or_the_check_is_left_out() {
        let task = "pair {old} --seed {seed}";
        let found = words(task, &args(Some("litz-old")), 7).expect("all is given");
        assert_eq!(found, ["pair", "litz-old", "--seed", "7"]);
        assert_eq!(words(task, &args(None), 7), None);
        assert_eq!(words("", &args(None), 7), None);
    }

    #[test]
    fn every_check_is_a_task() {
        for check in &CHECKS {
            for form in [check.full, check.short].iter().filter(|form| !form.is_empty()) {
                // Arguments that have no value yet are numbers and files.
                let words =
                    form.split_whitespace().map(|word| if word.starts_with('{') { "1" } else { word });
                let parsed = crate::Task::try_parse_from(["xtask"].into_iter().chain(words));
                assert!(parsed.is_ok(), "{form}");
            }
        }
    }

    #[test]
    fn records_can_be_read_again() {
        let record = Record {
            name: "pair".into(),
            command: "pair old".into(),
            commit: "abc".into(),
            machine: "two cores".into(),
            seed: u64::MAX,
            passed: true,
            figure: "ok".into(),
            seconds: 1.5,
        };
        let text = serde_json::to_vec(&record).expect("plain data");
        assert_eq!(serde_json::from_slice::<Record>(&text).expect("as written"), record);
        assert_eq!(row("pair", Some(&record))[1], "ok");
        assert!(record.stands_for("abc") && !record.stands_for("abd"));
        let changed = Record { commit: "abc+changes".into(), ..record.clone() };
        assert!(!changed.stands_for("abc+changes"), "the changes may be others");
        assert!(!Record { passed: false, ..record }.stands_for("abc"));
    }
}
