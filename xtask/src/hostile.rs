//! Tries calls that contradict themselves on Litz, and compares what it refuses with what PyTorch refuses.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::command::{build_tool, command, output, root};
use crate::{table, venv};

/// Calls that one process tries, and the time that it may take. As many processes run at a time as there are cores.
const SHARD: usize = 200;
const TIME_LIMIT: Duration = Duration::from_secs(900);
/// Says what PyTorch makes of calls.
const META: &str = "crates/litz-testing/meta.py";
/// Where Litz and PyTorch differ, each with its reason.
const DIFFERENCES: &str = "crates/litz-testing/differences.txt";

/// How much to try.
#[derive(clap::Args)]
pub struct Args {
    /// Try only the first N calls; those written by hand come first
    #[arg(long, value_name = "N")]
    first: Option<usize>,
    /// Run every N-th call natively as well; 0 runs none
    #[arg(long, value_name = "N", default_value_t = 20)]
    native: usize,
    /// Compare with PyTorch's meta tensors as well
    #[arg(long)]
    torch: bool,
}

/// A call and how it ended.
#[derive(Clone)]
struct Tried {
    /// Where the call is from, and its change.
    name: String,
    /// `refused`, `unsupported`, `ran`, `large` or `FINDING`.
    outcome: String,
    /// What Litz said, if it said something.
    message: String,
}

/// Tries the calls, prints a table by outcome and then all findings; exit status 1 where there are any.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let hostile = build_tool("hostile")?;
    let calls = output(command(&hostile).arg("calls"))?;
    let names: Vec<&str> = calls.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let count = args.first.unwrap_or(names.len()).min(names.len());
    let tried = all(&hostile, &names[..count], args.native)?;
    let mut findings: Vec<String> = Vec::new();
    for call in tried.iter().filter(|call| call.outcome == "FINDING") {
        findings.push(format!("{}: {}", call.name, call.message));
    }
    print!("{}", outcomes(&tried));
    if args.torch {
        let file = root().join("target/hostile_calls.txt");
        fs::write(&file, &calls).with_context(|| format!("cannot write {}", file.display()))?;
        let answers = output(command(venv::ensure()?).arg(META).arg(&file))?;
        let operators: Vec<&str> = calls.lines().filter_map(|line| line.strip_prefix("case ")).collect();
        let answers: Vec<&str> = answers.lines().collect();
        ensure!(answers.len() == names.len(), "{} answers to {} calls", answers.len(), names.len());
        findings.extend(differences(&tried, &operators, &answers)?);
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("{} calls, {} findings", tried.len(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tries all calls, in as many processes at a time as there are cores.
fn all(hostile: &Path, names: &[&str], native: usize) -> anyhow::Result<Vec<Tried>> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut shards = Vec::new();
        loop {
            let from = next.fetch_add(SHARD, Ordering::Relaxed);
            if from >= names.len() {
                return anyhow::Ok(shards);
            }
            let tried = shard(hostile, names, from..names.len().min(from + SHARD), native)?;
            let done = done.fetch_add(tried.len(), Ordering::Relaxed) + tried.len();
            eprintln!("{done} of {} calls", names.len());
            shards.push((from, tried));
        }
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let mut shards = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let shards =
            workers.into_iter().map(|worker| worker.join().expect("invariant: workers do not panic"));
        shards.collect::<anyhow::Result<Vec<_>>>()
    })?
    .concat();
    shards.sort_by_key(|(from, _)| *from);
    Ok(shards.into_iter().flat_map(|(_, tried)| tried).collect())
}

/// Tries some calls, in a process that is started anew behind each call that ends it.
fn shard(
    hostile: &Path,
    names: &[&str],
    range: std::ops::Range<usize>,
    native: usize,
) -> anyhow::Result<Vec<Tried>> {
    let mut tried = Vec::new();
    let mut next = range.start;
    while next < range.end {
        let mut child = command(hostile)
            .args([next.to_string(), range.end.to_string()])
            .args((native > 0).then(|| native.to_string()))
            .env("LITZ_CACHE_DIR", "")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", hostile.display()))?;
        let mut stdout = child.stdout.take().expect("invariant: it is piped");
        // Whoever reads must not wait for a process that never ends.
        let reader = thread::spawn(move || {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut stdout, &mut text).map(|_| text)
        });
        let start = Instant::now();
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status.to_string(),
                None if start.elapsed() > TIME_LIMIT => {
                    child.kill()?;
                    child.wait()?;
                    break format!("no end after {} s", TIME_LIMIT.as_secs());
                }
                None => thread::sleep(Duration::from_millis(50)),
            }
        };
        let text = reader.join().expect("invariant: reading does not panic")?;
        for line in text.lines() {
            let (at, rest) = line.split_once(' ').with_context(|| format!("`{line}`"))?;
            let at: usize = at.parse().with_context(|| format!("`{line}`"))?;
            let (outcome, message) = rest.split_once(' ').unwrap_or((rest, ""));
            // A line without an outcome is that of the call that ended the process.
            let (outcome, message) =
                if outcome.is_empty() { ("FINDING", status.as_str()) } else { (outcome, message) };
            let name = names[at].to_owned();
            tried.push(Tried { name, outcome: outcome.to_owned(), message: message.to_owned() });
        }
        let reached = range.start + tried.len();
        ensure!(reached > next, "{} gave nothing: {status}", hostile.display());
        next = reached;
    }
    Ok(tried)
}

/// How many calls of each family ended how.
fn outcomes(tried: &[Tried]) -> String {
    const OUTCOMES: [&str; 5] = ["refused", "unsupported", "ran", "large", "FINDING"];
    let mut counts: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    for call in tried {
        let family = call.name.split(':').next().unwrap_or("");
        let at = OUTCOMES.iter().position(|outcome| *outcome == call.outcome).unwrap_or(4);
        for family in [family, "total"] {
            counts.entry(family).or_default()[at] += 1;
        }
    }
    let row = |(family, counts): (&&str, &[usize; 5])| {
        std::iter::once((*family).to_owned()).chain(counts.iter().map(usize::to_string)).collect()
    };
    let rows: Vec<Vec<String>> = counts.iter().map(row).collect();
    table::format(&["family", "refused", "unsupported", "ran", "large", "findings"], &rows)
}

/// Calls that one side refuses and the other takes, unless the list has a reason for the operator; and reasons that
/// nothing needs.
fn differences(tried: &[Tried], operators: &[&str], answers: &[&str]) -> anyhow::Result<Vec<String>> {
    let list =
        fs::read_to_string(root().join(DIFFERENCES)).with_context(|| format!("cannot read {DIFFERENCES}"))?;
    let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.splitn(3, ' ');
        let (operator, kind, reason) = (words.next(), words.next(), words.next());
        let (Some(operator), Some(kind @ ("takes" | "refuses")), Some(_)) = (operator, kind, reason) else {
            anyhow::bail!("{DIFFERENCES}: expected `OPERATOR takes|refuses REASON`, found `{line}`");
        };
        reasons.insert((operator, kind), 0);
    }
    let mut findings = Vec::new();
    for ((call, operator), answer) in tried.iter().zip(operators).zip(answers) {
        let (verdict, why) = answer.split_once(' ').unwrap_or((answer, ""));
        let kind = match (call.outcome.as_str(), verdict) {
            ("ran" | "large", "refuses") => "takes",
            ("refused", "accepts") => "refuses",
            _ => continue,
        };
        match reasons.get_mut(&(*operator, kind)) {
            Some(uses) => *uses += 1,
            None => findings.push(format!(
                "{} {}: Litz {kind} what PyTorch does not: {} {why}",
                call.name, operator, call.message
            )),
        }
    }
    if tried.len() == answers.len() {
        let unused = reasons.iter().filter(|(_, uses)| **uses == 0);
        findings.extend(
            unused.map(|((operator, kind), _)| format!("{DIFFERENCES}: nothing needs `{operator} {kind}`")),
        );
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_counted_by_family() {
        let tried = ["index:3 a", "index:9 b", "pool:1 c"].map(|name| Tried {
            name: name.to_owned(),
            outcome: if name.starts_with("pool") { "ran" } else { "refused" }.to_owned(),
            message: String::new(),
        });
        let text = outcomes(&tried);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["index", "2", "0", "0", "0", "0"]);
        assert_eq!(lines[3], ["total", "2", "0", "1", "0", "0"]);
    }
}
