//! Turns exported models and PyTorch's results into verdicts: runs `litz verify` on each, within limits, and sums up.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::command::command;
use crate::table;

/// Each model runs in a process of its own within these.
const TIME_LIMIT: Duration = Duration::from_secs(120);
const MEMORY_LIMIT_KIB: u64 = 16 << 20;

/// A model and what it is called with.
pub struct Case {
    pub name: String,
    pub model: PathBuf,
    /// One file for each set of sizes.
    pub data: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Pass,
    Unsupported,
    Wrong,
    Crashed,
}

pub struct Checked {
    pub name: String,
    pub verdict: Verdict,
    /// How it ended, in a word or two.
    pub result: String,
    /// How many sets of sizes one compilation was called with.
    pub calls: usize,
    pub seconds: f64,
    /// What `litz verify` wrote, both streams.
    pub log: String,
}

impl Checked {
    /// Whether it is a mistake of Litz.
    pub fn is_broken(&self) -> bool {
        match self.verdict {
            Verdict::Pass | Verdict::Unsupported => false,
            Verdict::Wrong | Verdict::Crashed => true,
        }
    }
}

/// Checks the cases, some at a time, and returns them in order of their names.
pub fn check_all(litz: &Path, cases: &[Case], logs: &Path, jobs: usize) -> anyhow::Result<Vec<Checked>> {
    ensure!(jobs > 0, "expected at least one job");
    fs::create_dir_all(logs)?;
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<Checked>> {
        let mut checked = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            checked.push(check(litz, case, &log_file(logs, case))?);
            eprintln!("{}: {}", case.name, checked.last().map_or("", |checked| &checked.result));
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

fn log_file(logs: &Path, case: &Case) -> PathBuf {
    logs.join(format!("{}.log", case.name))
}

/// Runs `litz verify` on one model, with all data there is for it; its output stays in the log file.
fn check(litz: &Path, case: &Case, log: &Path) -> anyhow::Result<Checked> {
    let mut file = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    // A shell sets the memory limit: the standard library cannot.
    let limited = format!("ulimit -v {MEMORY_LIMIT_KIB} && exec \"$0\" \"$@\"");
    let mut child = command("sh")
        .args(["-c", &limited])
        .arg(litz)
        .args(["verify", "--verify-ir"])
        .arg(&case.model)
        .args(case.data.iter().flat_map(|path| [OsStr::new("--data"), path.as_os_str()]))
        .stdin(std::process::Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file.try_clone()?)
        .spawn()
        .context("cannot start sh")?;
    let start = Instant::now();
    let status = wait(&mut child, TIME_LIMIT)?;
    let seconds = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&fs::read(log)?).into_owned();
    let (verdict, result) = verdict(status, &text);
    writeln!(file, "{END}{result} {seconds:.3}")?;
    Ok(Checked { name: case.name.clone(), verdict, result, calls: case.data.len(), seconds, log: text })
}

/// What the last line of a finished log begins with; the result and the seconds follow.
const END: &str = "litz verify ended: ";

/// How an earlier check of the case ended, if nothing has changed since and it is not broken.
pub fn recall(litz: &Path, case: &Case, logs: &Path) -> Option<Checked> {
    let log = log_file(logs, case);
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let checked = changed(&log)?;
    let made_of = case.data.iter().map(PathBuf::as_path).chain([litz, &case.model]);
    if !made_of.map(changed).all(|time| time.is_some_and(|time| time < checked)) {
        return None;
    }
    let text = String::from_utf8_lossy(&fs::read(log).ok()?).into_owned();
    let (text, end) = text.rsplit_once(END)?;
    let (result, seconds) = end.trim_end().rsplit_once(' ')?;
    let verdict = match result {
        "pass" => Verdict::Pass,
        "unsupported" => Verdict::Unsupported,
        _ => return None,
    };
    let (name, result, calls) = (case.name.clone(), result.to_string(), case.data.len());
    Some(Checked { name, verdict, result, calls, seconds: seconds.parse().ok()?, log: text.to_string() })
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

fn verdict(status: Option<ExitStatus>, log: &str) -> (Verdict, String) {
    let Some(status) = status else { return (Verdict::Crashed, "timeout".to_string()) };
    let (verdict, result) = match status.code() {
        Some(0) => (Verdict::Pass, "pass"),
        // Wrong numbers and rejected texts of Litz's own end alike.
        Some(1) if log.contains("bug in ") => (Verdict::Crashed, "internal error"),
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

/// The number of each verdict: "3 pass, 2 unsupported, 0 wrong, 0 crashed" of those that `verdicts` gives.
pub fn counts(verdicts: impl IntoIterator<Item = Verdict>) -> [usize; 4] {
    let mut counts = [0; 4];
    for verdict in verdicts {
        counts[verdict as usize] += 1;
    }
    counts
}

/// The first line that reports an error, or else the last line that says anything.
pub fn first_error(log: &str) -> &str {
    let is_error = |line: &&str| line.starts_with("error") || line.contains("panicked at");
    let said = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    said().find(is_error).or_else(|| said().next_back()).unwrap_or("")
}

/// A table of unsupported ops with the number of models that meet them, most first; `models` is what they are called.
pub fn unsupported_table(checked: &[Checked], models: &str) -> String {
    let ops = unsupported_ops(checked);
    if ops.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = ops.into_iter().map(|(op, count)| vec![op, count.to_string()]).collect();
    format!("\n{}", table::format(&["unsupported op", models], &rows))
}

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
        let exit = |code: i32| verdict(Some(ExitStatus::from_raw(code << 8)), "error: out.0: too far").0;
        let ends = [0, 1, 2, 3, 101, 134].map(exit);
        assert_eq!(
            ends,
            [
                Verdict::Pass,
                Verdict::Wrong,
                Verdict::Unsupported,
                Verdict::Wrong,
                Verdict::Crashed,
                Verdict::Crashed
            ]
        );
        assert_eq!(counts(ends), [1, 1, 2, 2]);
        let bug = verdict(Some(ExitStatus::from_raw(1 << 8)), "error: bug in stage lower: no");
        assert_eq!(bug, (Verdict::Crashed, "internal error".to_string()));
        assert_eq!(verdict(Some(ExitStatus::from_raw(11)), "").0, Verdict::Crashed);
        assert_eq!(verdict(None, ""), (Verdict::Crashed, "timeout".to_string()));
    }

    #[test]
    fn a_child_past_its_limit_is_killed() {
        let mut child = command("sleep").arg("60").spawn().expect("sleep is everywhere");
        assert_eq!(wait(&mut child, Duration::from_millis(20)).expect("it can be killed"), None);
    }

    #[test]
    fn only_what_has_not_changed_is_recalled() {
        let folder = std::env::temp_dir().join(format!("xtask-recall-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let file = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("a file can be written");
            folder.join(name)
        };
        // Stands in for `litz verify`: passes, and says what it was asked.
        let litz = file("litz", "#!/bin/sh\necho \"$@\"\n");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&litz, executable).expect("it is ours");
        let case =
            Case { name: "a".to_string(), model: file("a.pt2", ""), data: vec![file("a.safetensors", "")] };
        assert!(recall(&litz, &case, &folder).is_none());
        // File systems tell times apart by a few milliseconds.
        std::thread::sleep(Duration::from_millis(20));
        let checked = check_all(&litz, std::slice::from_ref(&case), &folder, 1).expect("it runs").remove(0);
        let recalled = recall(&litz, &case, &folder).expect("nothing changed");
        assert_eq!((recalled.verdict, &recalled.log), (Verdict::Pass, &checked.log));
        assert!(checked.log.starts_with("verify --verify-ir "), "{}", checked.log);
        std::thread::sleep(Duration::from_millis(20));
        file("a.safetensors", "other");
        assert!(recall(&litz, &case, &folder).is_none());
        fs::remove_dir_all(&folder).expect("it is ours");
    }

    #[test]
    fn ops_are_counted_once_a_model_and_sorted_by_models() {
        let line =
            |op: &str| format!("error[unsupported-op]: unsupported op `{op}`\n  at `forward` in model.py\n");
        let model = |verdict, log: String| Checked {
            name: String::new(),
            verdict,
            result: String::new(),
            calls: 1,
            seconds: 0.0,
            log,
        };
        let checked = [
            model(Verdict::Unsupported, [line("aten.b.default"), line("aten.a.default")].concat()),
            model(Verdict::Unsupported, [line("aten.b.default"), line("aten.b.default")].concat()),
            model(Verdict::Pass, line("aten.c.default")),
        ];
        assert_eq!(
            unsupported_ops(&checked),
            [("aten.b.default".to_string(), 2), ("aten.a.default".to_string(), 1)]
        );
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
