//! Checks Litz's numbers on a folder of exported models and prints a table.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::command::{build_litz, command, root, run as run_command};
use crate::verify::{Case, Checked, Verdict, check_all, counts, first_error, unsupported_table};
use crate::{table, venv};

/// The project's own list, and where its models go.
const OWN_SCRIPT: &str = "benches/export_models.py";
pub const OWN_FOLDER: &str = "target/corpus";
/// Where another script's models go: names may be the same.
pub const OTHER_FOLDER: &str = "target/corpus_large";

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
    let cases = models(&folder, &args.only)?
        .into_iter()
        .map(|name| {
            let (model, data) = (folder.join(format!("{name}.pt2")), data_files(&folder, &name)?);
            Ok(Case { name, model, data })
        })
        .collect::<anyhow::Result<Vec<Case>>>()?;
    let checked = check_all(&build_litz()?, &cases, &folder.join("logs"), args.jobs)?;
    print!("{}", report(&checked));
    let is_broken = checked.iter().any(Checked::is_broken);
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
        let is_whole = folder.join(format!("{}.safetensors", base(name))).exists();
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

/// The model of which this is a form: `NAME.core` is `NAME` decomposed to PyTorch's core operators, with the same data.
fn base(name: &str) -> &str {
    name.strip_suffix(".core").unwrap_or(name)
}

/// `NAME.safetensors`, and `NAME@SIZES.safetensors` for a model with sizes that may vary, sorted.
pub fn data_files(folder: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let name = base(name);
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
    text.push_str(&unsupported_table(checked, "models"));
    let [pass, unsupported, wrong, crashed] = counts(checked.iter().map(|model| model.verdict));
    let total = checked.len();
    text.push_str(&format!(
        "\ncorpus: {pass}/{total} pass, {unsupported} unsupported, {wrong} wrong, {crashed} crashed\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_verdicts() {
        let model = |verdict, log: &str| Checked {
            name: "a".to_string(),
            verdict,
            result: String::new(),
            calls: 1,
            seconds: 0.0,
            log: log.to_string(),
        };
        let checked = [
            model(Verdict::Unsupported, "error[unsupported-op]: unsupported op `aten.b.default`\n"),
            model(Verdict::Pass, ""),
            model(Verdict::Unsupported, ""),
        ];
        let text = report(&checked);
        assert!(text.contains("aten.b.default"), "{text}");
        assert!(text.ends_with("\ncorpus: 1/3 pass, 2 unsupported, 0 wrong, 0 crashed\n"), "{text}");
    }
}
