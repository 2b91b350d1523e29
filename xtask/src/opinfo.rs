//! Turns samples of PyTorch's own operator tests into a table of which operators Litz computes right.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};

use crate::command::{build_litz, command, root};
use crate::py_test::{Build, build_in_place};
use crate::verify::{Case, Checked, Verdict, check_all, counts, first_error, recall, unsupported_table};
use crate::{table, venv};

const SCRIPT: &str = "benches/export_opinfo.py";
const FOLDER: &str = "target/opinfo";

const COMPILE_SCRIPT: &str = "benches/compile_opinfo.py";
const COMPILED: &str = "target/opinfo-compile";

/// Which operators to check.
#[derive(clap::Args)]
pub struct Args {
    /// Element type of the samples
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: Dtype,
    /// All sizes are symbolic
    #[arg(long)]
    dynamic: bool,
    /// Run the operators through torch.compile instead of exported files
    #[arg(long)]
    compile: bool,
    /// Gradients, too
    #[arg(long, requires = "compile")]
    grad: bool,
    /// Only these operators, separated by commas
    #[arg(long, value_name = "OPS", value_delimiter = ',')]
    only: Vec<String>,
    /// Every N-th operator, from the I-th on, counted from 0
    #[arg(long, value_name = "I/N", default_value = "0/1")]
    shard: Shard,
    /// Operators exported, and samples checked, at a time
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Dtype {
    Bool,
    U8,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
    C64,
}

impl Dtype {
    /// As Litz and as PyTorch call it.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Dtype::Bool => ("bool", "bool"),
            Dtype::U8 => ("u8", "uint8"),
            Dtype::I8 => ("i8", "int8"),
            Dtype::I16 => ("i16", "int16"),
            Dtype::I32 => ("i32", "int32"),
            Dtype::I64 => ("i64", "int64"),
            Dtype::F16 => ("f16", "float16"),
            Dtype::Bf16 => ("bf16", "bfloat16"),
            Dtype::F32 => ("f32", "float32"),
            Dtype::F64 => ("f64", "float64"),
            Dtype::C64 => ("c64", "complex64"),
        }
    }
}

/// Every `step`-th from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Shard {
    first: usize,
    step: usize,
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let shard = || {
            let (first, step) = text.split_once('/')?;
            Some(Shard { first: first.parse().ok()?, step: step.parse().ok()? })
        };
        shard().filter(|shard| shard.first < shard.step).ok_or_else(|| "expected I/N with I < N".to_string())
    }
}

impl Shard {
    /// Cuts the shard into as many.
    fn split(self, count: usize) -> impl Iterator<Item = Shard> {
        (0..count).map(move |at| Shard { first: self.first + at * self.step, step: self.step * count })
    }
}

/// Exports what is missing, checks what has not been, prints the table; exit status 1 where numbers are wrong or Litz
/// crashes.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.jobs > 0, "expected at least one job");
    if args.compile {
        return compile(args);
    }
    let (name, python_name) = args.dtype.names();
    let kind = format!("{name}{}", if args.dynamic { "-dynamic" } else { "" });
    let folder = root().join(FOLDER).join(&kind);
    let mut export = vec!["--dtype".to_string(), python_name.to_string()];
    export.extend(args.dynamic.then(|| "--dynamic".to_string()));
    export.extend(args.only.iter().cloned());
    let names = export_all(&folder, &export, args.shard, args.jobs)?;

    let (cases, refusals) = cases(&folder, &names)?;
    let (litz, logs) = (build_litz()?, folder.join("logs"));
    let mut checked = Vec::new();
    let mut rest = Vec::new();
    for case in cases {
        match recall(&litz, &case, &logs) {
            Some(earlier) => checked.push(earlier),
            None => rest.push(case),
        }
    }
    checked.extend(check_all(&litz, &rest, &logs, args.jobs)?);
    print!("{}", report(&kind, &checked, &refusals));
    let is_broken = checked.iter().any(Checked::is_broken);
    Ok(if is_broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs what has not been run yet through torch.compile, and prints the table; exit status 1 where numbers are wrong.
fn compile(args: &Args) -> anyhow::Result<ExitCode> {
    let (name, python_name) = args.dtype.names();
    let kind = [(args.grad, "-grad"), (args.dynamic, "-dynamic")];
    let kind = kind.iter().filter(|kind| kind.0).fold(name.to_string(), |name, kind| name + kind.1);
    let folder = root().join(COMPILED).join(kind);
    let (package, python) = (build_in_place(Build::Release)?, venv::ensure()?);
    let path = std::env::join_paths([package, root().join("benches")])?;
    let script = |more: &[String]| {
        let mut script = command(&python);
        script.arg(COMPILE_SCRIPT).arg(&folder).args(["--dtype", python_name]).args(more);
        script.env("PYTHONPATH", &path).env("LITZ_CACHE_DIR", "");
        script
    };
    let mut flags = args.only.clone();
    flags.extend(args.grad.then(|| "--grad".to_string()));
    flags.extend(args.dynamic.then(|| "--dynamic".to_string()));
    run_parts(COMPILE_SCRIPT, args.shard, args.jobs, &|| {
        let mut part = script(&flags);
        part.stdout(Stdio::inherit());
        part
    })?;
    let status = script(&["--report".to_string()]).status().context("cannot start python")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the script for each part of the shard at once; returns the names of all its operators.
fn export_all(folder: &Path, args: &[String], shard: Shard, jobs: usize) -> anyhow::Result<Vec<String>> {
    let python = venv::ensure()?;
    eprintln!("$ {} {SCRIPT} {} {}", python.display(), folder.display(), args.join(" "));
    run_parts(SCRIPT, shard, jobs, &|| {
        let mut script = command(&python);
        script.arg(SCRIPT).arg(folder).args(args).stdout(Stdio::piped());
        script
    })
}

/// Runs a script for each part of a shard at once, and again where PyTorch crashed: the script has noted where, and goes on
/// behind it. Returns the lines that it printed, where these are not shown.
fn run_parts(
    name: &str,
    shard: Shard,
    jobs: usize,
    script: &(dyn Fn() -> Command + Sync),
) -> anyhow::Result<Vec<String>> {
    let run_part = |part: Shard| -> anyhow::Result<Vec<String>> {
        loop {
            let shard = format!("--shard={}/{}", part.first, part.step);
            let child =
                script().arg(shard).stderr(Stdio::inherit()).spawn().context("cannot start python")?;
            let output = child.wait_with_output().context("cannot wait for python")?;
            match output.status.code() {
                Some(0) => {
                    let text = String::from_utf8_lossy(&output.stdout);
                    return Ok(text.lines().map(str::to_string).collect());
                }
                Some(_) => bail!("{name} failed: {}", output.status),
                None => {}
            }
        }
    };
    let parts = std::thread::scope(|scope| {
        let run_part = &run_part;
        let parts: Vec<_> = shard.split(jobs).map(|part| scope.spawn(move || run_part(part))).collect();
        let joined = parts.into_iter().map(|part| part.join().expect("invariant: a run does not panic"));
        joined.collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(parts.into_iter().flatten().collect())
}

/// The samples that were exported, and for each operator without any why it has none.
fn cases(folder: &Path, names: &[String]) -> anyhow::Result<(Vec<Case>, BTreeMap<String, String>)> {
    let (mut cases, mut refusals) = (Vec::new(), BTreeMap::new());
    for name in names {
        let path = folder.join(format!("{name}.txt"));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut why = None;
        let before = cases.len();
        for (number, result) in text.lines().filter_map(|line| line.split_once(": ")) {
            if result.starts_with("ok") {
                let file = |extension| -> PathBuf { folder.join(format!("{name}.{number}.{extension}")) };
                let (model, data) = (file("pt2"), vec![file("safetensors")]);
                cases.push(Case { name: format!("{name}.{number}"), model, data });
            } else {
                why.get_or_insert(result);
            }
        }
        if cases.len() == before {
            refusals.insert(name.clone(), why.unwrap_or("it has no samples").to_string());
        }
    }
    Ok((cases, refusals))
}

/// The operator of `NAME.K`.
fn operator(sample: &Checked) -> &str {
    sample.name.rsplit_once('.').map_or(&*sample.name, |(operator, _)| operator)
}

fn report(kind: &str, checked: &[Checked], refusals: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    if !refusals.is_empty() {
        let rows: Vec<Vec<String>> =
            refusals.iter().map(|(name, why)| vec![name.clone(), shorten(why)]).collect();
        text.push_str(&table::format(&["not exported", "why"], &rows));
        text.push('\n');
    }
    let broken = checked.iter().filter(|sample| sample.is_broken());
    let rows: Vec<Vec<String>> = broken
        .map(|sample| vec![sample.name.clone(), sample.result.clone(), shorten(first_error(&sample.log))])
        .collect();
    if !rows.is_empty() {
        text.push_str(&table::format(&["sample", "result", "first error"], &rows));
    }
    text.push_str(&unsupported_table(checked, "samples"));
    // An operator is as good as the worst of its samples.
    let mut worst = BTreeMap::<&str, Verdict>::new();
    for sample in checked {
        let verdict = worst.entry(operator(sample)).or_insert(sample.verdict);
        if sample.verdict as usize > *verdict as usize {
            *verdict = sample.verdict;
        }
    }
    let total = worst.len();
    for (what, total, counts) in [
        ("samples", checked.len(), counts(checked.iter().map(|sample| sample.verdict))),
        ("operators", total, counts(worst.into_values())),
    ] {
        let [pass, unsupported, wrong, crashed] = counts;
        text.push_str(&format!(
            "\nopinfo {kind}: {pass}/{total} {what} pass, {unsupported} unsupported, {wrong} wrong, {crashed} crashed"
        ));
    }
    text.push('\n');
    text
}

fn shorten(text: &str) -> String {
    text.chars().take(140).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_shard_are_the_shard() {
        let shard: Shard = "1/3".parse().expect("a shard");
        let parts: Vec<Shard> = shard.split(2).collect();
        assert_eq!(parts, [Shard { first: 1, step: 6 }, Shard { first: 4, step: 6 }]);
        for text in ["", "1", "3/3", "-1/2", "0/0", "a/b"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_operator_is_as_good_as_its_worst_sample() {
        let sample = |name: &str, verdict| Checked {
            name: name.to_string(),
            verdict,
            result: String::new(),
            calls: 1,
            seconds: 0.0,
            log: "error: no\n".to_string(),
        };
        let checked = [
            sample("a.b.0", Verdict::Pass),
            sample("a.b.1", Verdict::Unsupported),
            sample("c.0", Verdict::Pass),
            sample("d.0", Verdict::Wrong),
        ];
        let refusals = BTreeMap::from([("rand".to_string(), "its results are random".to_string())]);
        let text = report("f32", &checked, &refusals);
        assert!(text.contains("rand") && text.contains("its results are random"), "{text}");
        let end = "\nopinfo f32: 2/4 samples pass, 1 unsupported, 1 wrong, 0 crashed\
                   \nopinfo f32: 1/3 operators pass, 1 unsupported, 1 wrong, 0 crashed\n";
        assert!(text.ends_with(end), "{text}");
    }
}
