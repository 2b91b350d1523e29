//! Tries random models in processes of their own: a crash is a finding, and what was tried is not tried again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::command::{build_tool, command, output, root};
use crate::venv;

/// Models that one process tries before another one starts.
const SHARD: u64 = 50;

/// Which models to try.
#[derive(clap::Args)]
pub struct Args {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 1000)]
    count: u64,
    /// Number that all of them come from
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Processes at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Compare with PyTorch's results instead of the interpreter's
    #[arg(long)]
    torch: bool,
}

/// How trials ended, by number of the model.
type Results = BTreeMap<u64, String>;

/// Tries the models that no earlier run with the seed has tried; prints the findings, smaller, and a summary. Exit status 1
/// where there are findings.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.jobs > 0, "expected at least one job");
    let program = build_tool("random")?;
    let python = args.torch.then(venv::ensure).transpose()?;
    let folder = root().join(format!("target/random/{}", args.seed));
    fs::create_dir_all(&folder)?;
    let kept = folder.join(if args.torch { "torch.txt" } else { "results.txt" });
    let mut results = read(&kept)?;
    results.retain(|&number, _| number < args.count);
    let known = results.len();
    let results = Mutex::new(results);
    let file = fs::OpenOptions::new().create(true).append(true).open(&kept);
    let file = Mutex::new(file.with_context(|| format!("cannot write {}", kept.display()))?);
    let (next, start) = (AtomicU64::new(0), Instant::now());
    let work = || -> anyhow::Result<()> {
        loop {
            let first = next.fetch_add(1, Ordering::Relaxed) * SHARD;
            if first >= args.count {
                return Ok(());
            }
            let last = (first + SHARD).min(args.count);
            let is_known = |number: &u64| results.lock().is_ok_and(|results| results.contains_key(number));
            let mut at = first;
            if (first..last).all(|number| is_known(&number)) {
                continue;
            }
            let trial = match &python {
                None => Trial { program: &program, seed: args.seed, last, torch: None },
                Some(python) => {
                    let prefix = folder.join(format!("torch-{first}"));
                    let trial = Trial { program: &program, seed: args.seed, last, torch: Some(prefix) };
                    call_torch(&trial, python, first)?;
                    trial
                }
            };
            while let Some(from) = (at..last).find(|number| !is_known(number)) {
                at = shard(&trial, from, &mut |number, line| {
                    writeln!(file.lock().expect("invariant: no worker panics"), "{line}")?;
                    results.lock().expect("invariant: no worker panics").insert(number, line.to_owned());
                    Ok(())
                })?;
            }
            let done = results.lock().map_or(0, |results| results.len());
            let seconds = start.elapsed().as_secs_f64();
            eprintln!("{done} of {} ({:.1} a second)", args.count, (done - known) as f64 / seconds);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("invariant: no worker panics"))
    })?;
    let results = results.into_inner().expect("invariant: no worker panics");
    let findings = report(&results);
    for &number in &findings {
        println!("\n{}", results[&number]);
        print!("{}", smaller(&program, args, number)?);
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Lines of earlier runs.
fn read(path: &Path) -> anyhow::Result<Results> {
    if !path.exists() {
        return Ok(Results::new());
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().filter_map(|line| Some((number_of(line)?, line.to_owned()))).collect())
}

/// The number in `right 17 120 0`.
fn number_of(line: &str) -> Option<u64> {
    line.split(' ').nth(1)?.parse().ok()
}

/// A process that tries models.
struct Trial<'a> {
    program: &'a Path,
    seed: u64,
    /// Where it ends.
    last: u64,
    /// Beginning of the names of files with PyTorch's results, if these are to be compared with.
    torch: Option<PathBuf>,
}

/// Has PyTorch call the models from `first` on.
fn call_torch(trial: &Trial<'_>, python: &Path, first: u64) -> anyhow::Result<()> {
    let Some(prefix) = &trial.torch else { return Ok(()) };
    let numbers = [trial.seed, first, trial.last - first].map(|number| number.to_string());
    output(command(trial.program).arg("export").args(numbers).arg(prefix))?;
    output(command(python).arg(root().join("crates/litz-testing/run_models.py")).arg(prefix))?;
    Ok(())
}

/// Longest that one model may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Tries models from `from` up to `last` in one process, and gives where the next one begins. Of a process that ends early
/// the model it was at is a finding.
fn shard(
    trial: &Trial<'_>,
    from: u64,
    keep: &mut dyn FnMut(u64, &str) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let count = trial.last - from;
    let mut child = command("timeout")
        .arg(format!("{}", TIME_LIMIT.as_secs() * count))
        .arg(trial.program)
        .arg(if trial.torch.is_some() { "torch" } else { "run" })
        .args([trial.seed, from, count].map(|number| number.to_string()))
        .args(&trial.torch)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start timeout")?;
    let mut trying = None;
    let output = child.stdout.take().context("a child without output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        let Some(number) = number_of(&line) else { continue };
        if line.starts_with("try ") {
            trying = Some(number);
        } else {
            trying = None;
            keep(number, &line)?;
        }
    }
    let status = child.wait()?;
    match trying {
        Some(number) => {
            keep(number, &format!("crashed {number} {status}"))?;
            Ok(number + 1)
        }
        None if status.success() => Ok(trial.last),
        None => anyhow::bail!("{} ended with {status} before a model", trial.program.display()),
    }
}

/// Prints how many ended how; gives the findings.
fn report(results: &Results) -> Vec<u64> {
    let count = |word: &str| results.values().filter(|line| line.starts_with(word)).count();
    let numbers = |line: &String| -> Option<[u64; 2]> {
        let mut words = line.split(' ').skip(2).map(str::parse);
        Some([words.next()?.ok()?, words.next()?.ok()?])
    };
    let right = results.values().filter(|line| line.starts_with("right ")).filter_map(numbers);
    let [elements, open] = right.fold([0, 0], |[a, b], [elements, open]| [a + elements, b + open]);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for line in results.values().filter(|line| line.starts_with("unsupported ")) {
        let reason: Vec<&str> = line.splitn(3, ' ').skip(2).collect();
        *reasons.entry(reason.concat().chars().take(100).collect()).or_default() += 1;
    }
    let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.1));
    for (reason, count) in reasons.iter().take(20) {
        println!("{count:6} {reason}");
    }
    println!(
        "random: {} models, {} right, {} unsupported, {} wrong, {} crashed; {elements} elements, of which {open} are open",
        results.len(),
        count("right "),
        count("unsupported "),
        count("wrong "),
        count("crashed ")
    );
    let is_finding = |line: &&String| line.starts_with("wrong ") || line.starts_with("crashed ");
    results.iter().filter(|(_, line)| is_finding(line)).map(|(&number, _)| number).collect()
}

/// The model, smaller where that could be had.
fn smaller(program: &Path, args: &Args, number: u64) -> anyhow::Result<String> {
    let tried = |word: &str| {
        let words = [word.to_owned(), args.seed.to_string(), number.to_string()];
        command("timeout").arg("300").arg(program).args(words).stderr(Stdio::null()).output()
    };
    let shrunk =
        if args.torch { None } else { Some(tried("shrink")?).filter(|output| output.status.success()) };
    let output = match shrunk {
        Some(output) => output,
        None => tried("show")?,
    };
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::run as run_command;

    #[test]
    fn wrong_and_crashed_models_are_findings() {
        let lines =
            ["right 0 12 1", "unsupported 1 no", "wrong 2 out.0", "crashed 3 signal: 11", "right 4 3 0"];
        let results =
            lines.iter().map(|line| (number_of(line).expect("a number"), line.to_string())).collect();
        assert_eq!(report(&results), [2, 3]);
    }

    #[test]
    fn a_process_that_ends_early_names_the_model_it_was_at() {
        let folder = std::env::temp_dir().join(format!("litz-random-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("writable");
        let script = folder.join("crash.sh");
        fs::write(&script, "#!/bin/sh\necho try 7\necho right 7 1 0\necho try 8\nkill -SEGV $$\n")
            .expect("writable");
        run_command(command("chmod").arg("+x").arg(&script)).expect("it is there");
        let mut lines = Vec::new();
        let trial = Trial { program: &script, seed: 0, last: 20, torch: None };
        let next = shard(&trial, 7, &mut |number, line| {
            lines.push((number, line.to_owned()));
            Ok(())
        });
        fs::remove_dir_all(&folder).expect("removable");
        assert_eq!(next.expect("it ran"), 9);
        assert_eq!(lines[0], (7, "right 7 1 0".to_owned()));
        assert!(lines[1].0 == 8 && lines[1].1.starts_with("crashed 8"), "{lines:?}");
    }
}
