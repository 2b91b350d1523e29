//! Turns a folder of exported models into a table of which ones Litz computes right.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::command::{build_litz, command, root, run as run_command};
use crate::{table, venv};

/// The project's own list, and where its models go.
const OWN_SCRIPT: &str = "benches/export_models.py";
pub const OWN_FOLDER: &str = "target/corpus";
/// Where another script's models go: names may be the same.
pub const OTHER_FOLDER: &str = "target/corpus_large";

/// Each model runs in a process of its own within these.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const MEMORY_LIMIT_KIB: u64 = 16 << 20;

/// Which models to check.
#[derive(clap::Args)]
pub struct Args {
    /// Python script that exports the models, called as `python SCRIPT OUT [NAME ...]`
    #[arg(long, value_name = "SCRIPT", default_value = OWN_SCRIPT)]
    export: PathBuf,
    /// Folder of the exported models [default: target/corpus, or target/corpus_large with another script]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only these models, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Models checked at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
}

/// Exports what is missing, checks every model, prints the table; exit status 1 where numbers are wrong or Litz crashes.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let script = args.export.canonicalize().or_else(|_| root().join(&args.export).canonicalize());
    let script = script.with_context(|| format!("cannot find {}", args.export.display()))?;
    let is_own = script == root().join(OWN_SCRIPT).canonicalize()?;
    let folder = match &args.out {
        Some(folder) => std::path::absolute(folder)?,
        None => root().join(if is_own { OWN_FOLDER } else { OTHER_FOLDER }),
    };
    run_command(command(venv::ensure()?).arg(&script).arg(&folder).args(&args.only))?;
    let models = models(&folder, &args.only)?;
    let checked = check_all(&build_litz()?, &folder, &models, args.jobs)?;
    print!("{}", report(&checked));
    let is_broken =
        checked.iter().any(|checked| matches!(checked.verdict, Verdict::Wrong | Verdict::Crashed));
    Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Names of the models in the folder whose data is there too, sorted.
pub fn models(folder: &Path, only: &[String]) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let file_name = entry?.file_name();
        let Some(name) = file_name.to_str().and_then(|file_name| file_name.strip_suffix(".pt2")) else {
            continue;
        };
        let is_whole = folder.join(format!("{name}.safetensors")).exists();
        if is_whole && (only.is_empty() || only.iter().any(|wanted| wanted == name)) {
            names.push(name.to_string());
        }
    }
    if names.is_empty() {
        bail!("no models in {}", folder.display());
    }
    names.sort();
    Ok(names)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Pass,
    Unsupported,
    Wrong,
    Crashed,
}

struct Checked {
    name: String,
    verdict: Verdict,
    /// How it ended, in a word or two.
    result: String,
    /// How many sets of sizes one compilation was called with.
    calls: usize,
    seconds: f64,
    /// What `litz verify` wrote, both streams.
    log: String,
}

fn check_all(litz: &Path, folder: &Path, models: &[String], jobs: usize) -> anyhow::Result<Vec<Checked>> {
    ensure!(jobs > 0, "expected at least one job");
    let logs = folder.join("logs");
    fs::create_dir_all(&logs)?;
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<Checked>> {
        let mut checked = Vec::new();
        while let Some(name) = models.get(next.fetch_add(1, Ordering::Relaxed)) {
            checked.push(check(litz, folder, name, &logs.join(format!("{name}.log")))?);
            eprintln!("{name}: {}", checked.last().map_or("", |checked| &checked.result));
        }
        Ok(checked)
    };
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("invariant: a worker does not panic"))
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut checked: Vec<Checked> = parts.into_iter().flatten().collect();
    checked.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(checked)
}

/// Runs `litz verify` on one model, with all data there is for it; its output stays in the log file.
fn check(litz: &Path, folder: &Path, name: &str, log: &Path) -> anyhow::Result<Checked> {
    let file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    // A shell sets the memory limit: the standard library cannot.
    let limited = format!("ulimit -v {MEMORY_LIMIT_KIB} && exec \"$0\" \"$@\"");
    let data = data_files(folder, name)?;
    let mut child = command("sh")
        .args(["-c", &limited])
        .arg(litz)
        .args(["verify", "--verify-ir"])
        .arg(folder.join(format!("{name}.pt2")))
        .args(data.iter().flat_map(|path| [OsStr::new("--data"), path.as_os_str()]))
        .stdin(std::process::Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .context("cannot start sh")?;
    let start = Instant::now();
    let status = wait(&mut child, TIME_LIMIT)?;
    let (verdict, result) = verdict(status);
    let log = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let (name, calls, seconds) = (name.to_string(), data.len(), start.elapsed().as_secs_f64());
    Ok(Checked { name, verdict, result, calls, seconds, log })
}

/// `NAME.safetensors`, and `NAME@SIZES.safetensors` for a model with sizes that may vary, sorted.
pub fn data_files(folder: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = vec![folder.join(format!("{name}.safetensors"))];
    for entry in fs::read_dir(folder)? {
        let file_name = entry?.file_name();
        let rest = file_name.to_str().and_then(|file_name| file_name.strip_prefix(name));
        if rest.is_some_and(|rest| rest.starts_with('@') && rest.ends_with(".safetensors")) {
            files.push(folder.join(file_name));
        }
    }
    files.sort();
    Ok(files)
}

/// The child's exit status, or nothing when it had to be killed at the limit.
pub fn wait(child: &mut Child, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn verdict(status: Option<ExitStatus>) -> (Verdict, String) {
    let Some(status) = status else { return (Verdict::Crashed, "timeout".to_string()) };
    let (verdict, result) = match status.code() {
        Some(0) => (Verdict::Pass, "pass"),
        Some(1) => (Verdict::Wrong, "wrong"),
        Some(2) => (Verdict::Unsupported, "unsupported"),
        // PyTorch wrote the file, so that refusing it is our mistake.
        Some(3) => (Verdict::Wrong, "refused"),
        Some(101) => (Verdict::Crashed, "panic"),
        // "exit status: 134", "signal: 11 (SIGSEGV)"
        _ => return (Verdict::Crashed, status.to_string()),
    };
    (verdict, result.to_string())
}

fn report(checked: &[Checked]) -> String {
    let rows: Vec<Vec<String>> = checked
        .iter()
        .map(|model| {
            let reason = if model.verdict == Verdict::Pass { "" } else { first_error(&model.log) };
            let reason = reason.chars().take(120).collect();
            let (calls, seconds) = (model.calls.to_string(), format!("{:.1}", model.seconds));
            vec![model.name.clone(), model.result.clone(), calls, seconds, reason]
        })
        .collect();
    let mut text = table::format(&["model", "result", "sizes", "seconds", "first error"], &rows);
    let ops = unsupported_ops(checked);
    if !ops.is_empty() {
        let rows: Vec<Vec<String>> =
            ops.into_iter().map(|(op, models)| vec![op, models.to_string()]).collect();
        text.push('\n');
        text.push_str(&table::format(&["unsupported op", "models"], &rows));
    }
    let count = |verdict| checked.iter().filter(|model| model.verdict == verdict).count();
    text.push_str(&format!(
        "\ncorpus: {}/{} pass, {} unsupported, {} wrong, {} crashed\n",
        count(Verdict::Pass),
        checked.len(),
        count(Verdict::Unsupported),
        count(Verdict::Wrong),
        count(Verdict::Crashed)
    ));
    text
}

/// The first line that reports an error, or else the last line that says anything.
fn first_error(log: &str) -> &str {
    let is_error = |line: &&str| line.starts_with("error") || line.contains("panicked at");
    let said = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    said().find(is_error).or_else(|| said().next_back()).unwrap_or("")
}

/// Unsupported ops with the number of models that meet them, most first.
fn unsupported_ops(checked: &[Checked]) -> Vec<(String, usize)> {
    let mut models = BTreeMap::<&str, usize>::new();
    for model in checked.iter().filter(|model| model.verdict == Verdict::Unsupported) {
        let mut ops: Vec<&str> = model.log.lines().filter_map(unsupported_op).collect();
        ops.sort_unstable();
        ops.dedup();
        for op in ops {
            *models.entry(op).or_default() += 1;
        }
    }
    let mut ops: Vec<(String, usize)> =
        models.into_iter().map(|(op, count)| (op.to_string(), count)).collect();
    // Stable: equal counts stay in alphabetical order.
    ops.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    ops
}

/// The op of a line such as "error[unsupported-op]: unsupported op `aten.cummax.default`": the first quoted word.
fn unsupported_op(line: &str) -> Option<&str> {
    line.contains("unsupported").then(|| line.split('`').nth(1)).flatten()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn every_way_to_end_is_counted_once() {
        let exit = |code: i32| verdict(Some(ExitStatus::from_raw(code << 8))).0;
        assert_eq!(
            [0, 1, 2, 3, 101, 134].map(exit),
            [
                Verdict::Pass,
                Verdict::Wrong,
                Verdict::Unsupported,
                Verdict::Wrong,
                Verdict::Crashed,
                Verdict::Crashed
            ]
        );
        assert_eq!(verdict(Some(ExitStatus::from_raw(11))).0, Verdict::Crashed);
        assert_eq!(verdict(None), (Verdict::Crashed, "timeout".to_string()));
    }

    #[test]
    fn a_child_past_its_limit_is_killed() {
        let mut child = command("sleep").arg("60").spawn().expect("sleep is everywhere");
        assert_eq!(wait(&mut child, Duration::from_millis(20)).expect("it can be killed"), None);
    }

    #[test]
    fn ops_are_counted_once_a_model_and_sorted_by_models() {
        let model = |name: &str, verdict, log: &str| Checked {
            name: name.to_string(),
            verdict,
            result: String::new(),
            calls: 1,
            seconds: 0.0,
            log: log.to_string(),
        };
        let line =
            |op: &str| format!("error[unsupported-op]: unsupported op `{op}`\n  at `forward` in model.py\n");
        let checked = [
            model("a", Verdict::Unsupported, &[line("aten.b.default"), line("aten.a.default")].concat()),
            model("b", Verdict::Unsupported, &[line("aten.b.default"), line("aten.b.default")].concat()),
            model("c", Verdict::Pass, &line("aten.a.default")),
        ];
        assert_eq!(
            unsupported_ops(&checked),
            [("aten.b.default".to_string(), 2), ("aten.a.default".to_string(), 1)]
        );
        assert!(report(&checked).ends_with("\ncorpus: 1/3 pass, 2 unsupported, 0 wrong, 0 crashed\n"));
    }

    #[test]
    fn the_first_error_is_found_among_other_lines() {
        assert_eq!(first_error("reading\nerror: no\nerror: nor this\n"), "error: no");
        assert_eq!(
            first_error("thread 'main' panicked at src/x.rs\nbacktrace\n"),
            "thread 'main' panicked at src/x.rs"
        );
        assert_eq!(first_error("out.0: too far\n\n"), "out.0: too far");
        assert_eq!(first_error(""), "");
    }
}
