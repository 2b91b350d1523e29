//! Compiles every exported model with two builds of `litz`, and says whose kernels and LLVM IR differ, and how.
//!
//! A change that is meant to keep the compiled code keeps it byte for byte: what differs is written to
//! `target/replay/diffs`, one file for each model, target and stage.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, bail};

use crate::command::{build_litz, cargo, command, output, root, run as run_command};
use crate::corpus::{OTHER_FOLDER, OWN_FOLDER};
use crate::{bench_kernels, pair, table};

/// What models are compiled for, unless the command line says otherwise.
const TARGETS: [&str; 3] = [
    "cpu(isa=avx512-amx, threads=2, l1=48K, l2=2M)",
    "cpu(isa=avx2, threads=7, l2=512K)",
    "cpu(isa=sse2, threads=1, l2=256K)",
];

/// What to compare.
#[derive(clap::Args)]
pub struct Args {
    /// The older build: a binary, or a commit, which is built
    old: String,
    /// The newer one [default: a release build of this checkout]
    new: Option<String>,
    /// Only these models, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Stages whose texts are compared, separated by commas
    #[arg(long, value_name = "STAGES", value_delimiter = ',', default_values = ["kernel", "llvm"])]
    to: Vec<String>,
    /// A target to compile for; several are given one by one [default: three processors]
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Models compiled at a time
    #[arg(long, value_name = "N", default_value_t = 2)]
    jobs: usize,
    /// Time the two builds as `cargo xtask pair` does as well
    #[arg(long)]
    time: bool,
}

/// What two builds made of one model, for one target, at one stage.
enum Outcome {
    /// The same text.
    Same,
    /// Neither supports it.
    Neither,
    /// Texts with so many lines of their own.
    Differ { removed: usize, added: usize },
    /// Only one of the two compiles it; what the other says.
    Only { which: &'static str, error: String },
}

/// One comparison.
struct Compared {
    model: String,
    target: String,
    stage: String,
    outcome: Outcome,
}

/// Compares every model, prints what differs; exit status 1 where anything does.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let old = binary(&args.old)?;
    let new = args.new.as_deref().map_or_else(build_litz, binary)?;
    let models = models(&args.only)?;
    let targets: Vec<String> =
        if args.target.is_empty() { TARGETS.map(str::to_string).into() } else { args.target.clone() };
    let diffs = root().join("target/replay/diffs");
    let _ = fs::remove_dir_all(&diffs);
    fs::create_dir_all(&diffs)?;
    let replay = Replay { old: &old, new: &new, diffs };
    let mut work = Vec::new();
    for model in &models {
        for target in &targets {
            work.extend(args.to.iter().map(|stage| (model.as_path(), &**target, &**stage)));
        }
    }
    let compared = replay.compare_all(&work, args.jobs)?;
    print!("{}", report(&compared));
    let is_same = compared.iter().all(|one| matches!(one.outcome, Outcome::Same | Outcome::Neither));
    let timed = if args.time { pair::compare(old, new, &args.only)? } else { ExitCode::SUCCESS };
    Ok(if is_same { timed } else { ExitCode::FAILURE })
}

/// The binary that an argument names, which may be a commit.
fn binary(named: &str) -> anyhow::Result<PathBuf> {
    if let Ok(path) = Path::new(named).canonicalize() {
        return Ok(path);
    }
    let revision = format!("{named}^{{commit}}");
    let commit = output(command("git").args(["rev-parse", "--verify", "--quiet", &revision]))
        .with_context(|| format!("{named} is neither a file nor a commit"))?;
    let commit = commit.trim();
    let folder = root().join("target/replay");
    let built = folder.join(format!("litz-{commit}"));
    if built.exists() {
        return Ok(built);
    }
    let source = folder.join("source");
    let _ = fs::remove_dir_all(&source);
    fs::create_dir_all(&folder)?;
    run_command(command("git").args(["clone", "--quiet", "--shared", "."]).arg(&source))?;
    run_command(command("git").arg("-C").arg(&source).args(["checkout", "--quiet", commit]))?;
    let mut build = cargo();
    build.current_dir(&source).args(["build", "--release", "-p", "litz"]);
    run_command(build.env("CARGO_TARGET_DIR", folder.join("build")))?;
    fs::copy(folder.join("build/release/litz"), &built)?;
    Ok(built)
}

/// The models that `cargo xtask corpus` and `cargo xtask bench-kernels` exported.
fn models(only: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    let mut models = Vec::new();
    for folder in [OWN_FOLDER, OTHER_FOLDER, bench_kernels::FOLDER] {
        // Nobody need have exported all.
        let Ok(entries) = fs::read_dir(root().join(folder)) else { continue };
        for entry in entries {
            let path = entry?.path();
            let is_model = path.extension().is_some_and(|extension| extension == "pt2");
            if is_model && (only.is_empty() || only.contains(&name(&path))) {
                models.push(path);
            }
        }
    }
    models.sort();
    if models.is_empty() {
        bail!("no models: `cargo xtask corpus` exports them");
    }
    Ok(models)
}

fn name(model: &Path) -> String {
    model.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

struct Replay<'a> {
    old: &'a Path,
    new: &'a Path,
    diffs: PathBuf,
}

impl Replay<'_> {
    fn compare_all(&self, work: &[(&Path, &str, &str)], jobs: usize) -> anyhow::Result<Vec<Compared>> {
        let next = AtomicUsize::new(0);
        let worker = || -> anyhow::Result<Vec<(usize, Compared)>> {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(&(model, target, stage)) = work.get(at) else { return Ok(done) };
                let outcome = self.compare(model, target, stage)?;
                if matches!(outcome, Outcome::Differ { .. } | Outcome::Only { .. }) {
                    eprintln!("{} {target} {stage}: differs", name(model));
                }
                let [target, stage] = [target, stage].map(str::to_string);
                done.push((at, Compared { model: name(model), target, stage, outcome }));
            }
        };
        let mut done = Vec::new();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| {
                done.extend(worker.join().expect("invariant: no worker panics")?);
                anyhow::Ok(())
            })
        })?;
        done.sort_by_key(|(at, _)| *at);
        Ok(done.into_iter().map(|(_, compared)| compared).collect())
    }

    fn compare(&self, model: &Path, target: &str, stage: &str) -> anyhow::Result<Outcome> {
        let text = |litz: &Path| compile(litz, model, target, stage);
        Ok(match (text(self.old)?, text(self.new)?) {
            (Ok(old), Ok(new)) if old == new => Outcome::Same,
            (Ok(old), Ok(new)) => {
                let file: String =
                    target.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
                let diff = diff(&old, &new, &self.diffs.join(format!("{}.{file}.{stage}", name(model))))?;
                let own = |sign: char, header: &str| {
                    diff.lines().filter(|line| line.starts_with(sign) && !line.starts_with(header)).count()
                };
                Outcome::Differ { removed: own('-', "---"), added: own('+', "+++") }
            }
            (Err(_), Err(_)) => Outcome::Neither,
            (Ok(_), Err(error)) => Outcome::Only { which: "old", error },
            (Err(error), Ok(_)) => Outcome::Only { which: "new", error },
        })
    }
}

/// The text of a model at a stage, or the first line of what `litz` says instead.
fn compile(litz: &Path, model: &Path, target: &str, stage: &str) -> anyhow::Result<Result<String, String>> {
    let mut compile = command(litz);
    compile.arg("compile").arg(model).args(["--to", stage, "--target", target, "--no-cache"]);
    let done = compile.output().with_context(|| format!("cannot start {}", litz.display()))?;
    if done.status.success() {
        return Ok(Ok(String::from_utf8_lossy(&done.stdout).into_owned()));
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Ok(Err(said.lines().next().unwrap_or("no message").to_string()))
}

/// The differences of two texts, left at `path` with the texts beside them.
fn diff(old: &str, new: &str, path: &Path) -> anyhow::Result<String> {
    let with = |extension: &str| PathBuf::from(format!("{}.{extension}", path.display()));
    let [old_path, new_path] = [with("old"), with("new")];
    fs::write(&old_path, old)?;
    fs::write(&new_path, new)?;
    let diff = command("diff").arg("-u").arg(&old_path).arg(&new_path).output()?;
    fs::write(with("diff"), &diff.stdout)?;
    Ok(String::from_utf8_lossy(&diff.stdout).into_owned())
}

/// A row for each comparison that is not of equal texts, and their numbers.
fn report(compared: &[Compared]) -> String {
    let mut rows = Vec::new();
    let (mut same, mut neither, mut differ, mut only) = (0, 0, 0, 0);
    for Compared { model, target, stage, outcome } in compared {
        let found = match outcome {
            Outcome::Same => {
                same += 1;
                continue;
            }
            Outcome::Neither => {
                neither += 1;
                continue;
            }
            Outcome::Differ { removed, added } => {
                differ += 1;
                format!("-{removed} +{added} lines")
            }
            Outcome::Only { which, error } => {
                only += 1;
                format!("only the {which} build: {error}")
            }
        };
        rows.push(vec![model.clone(), target.clone(), stage.clone(), found]);
    }
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str(&table::format(&["model", "target", "stage", "difference"], &rows));
        text.push('\n');
    }
    text.push_str(&format!(
        "replay: {same} texts are the same, {differ} differ, {only} are there from one build only, {neither} from none\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_has_a_row() {
        let compared = |model: &str, outcome| Compared {
            model: model.to_string(),
            target: "t".to_string(),
            stage: "llvm".to_string(),
            outcome,
        };
        let text = report(&[
            compared("a", Outcome::Same),
            compared("b", Outcome::Neither),
            compared("c", Outcome::Differ { removed: 2, added: 3 }),
            compared("d", Outcome::Only { which: "old", error: "error: x".to_string() }),
        ]);
        assert!(text.contains("-2 +3 lines") && text.contains("only the old build: error: x"), "{text}");
        let last = "replay: 1 texts are the same, 1 differ, 1 are there from one build only, 1 from none\n";
        assert!(text.ends_with(last), "{text}");
    }
}
