//! `litz check`: whether a model compiles for each of many targets, everything verified; each model of an archive of several.

use super::failure::{Exit, Failure};
use super::format::Table;
use super::load;
use super::output;
use litz::check::{Checked, Reach, check, parse_targets};
use litz::progress::Progress;
use litz::{Error, Target};
use serde_json::json;
use std::path::{Path, PathBuf};

/// What to compile, and for what.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// File with one target a line, each after how far to compile for it: `program`, `llvm` or `object`
    #[arg(long, value_name = "FILE")]
    targets: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compiles for each target and prints what came of it.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let targets = read_targets(&args.targets)?;
    let models = load::open_all(&args.model, &args.which)?;
    let mut checked = Vec::new();
    {
        let progress = Progress::start();
        progress.say("checking");
        for model in &models {
            checked.extend(check(model, &targets)?);
        }
    }
    if args.json {
        let rows: Vec<serde_json::Value> = checked.iter().map(json_row).collect();
        output::print(format_args!("{}\n", json!({ "targets": rows })))?;
    } else {
        output::print(table(&checked))?;
    }
    let errors: Vec<&Error> = checked.iter().filter_map(|checked| checked.result.as_ref().err()).collect();
    Ok(match errors[..] {
        [] => Exit::Ok,
        _ if errors.iter().all(|error| matches!(error, Error::Unsupported(_))) => Exit::Unsupported,
        _ => Exit::Broken,
    })
}

fn read_targets(path: &Path) -> Result<Vec<(Target, Reach)>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io("read", path, &error))?;
    Ok(parse_targets(&text).map_err(|diag| Error::Invalid(vec![diag]))?)
}

fn json_row(checked: &Checked) -> serde_json::Value {
    let error = checked.result.as_ref().err().map(ToString::to_string);
    json!({
        "target": checked.target.to_string(),
        "kernels": checked.result.as_ref().ok(),
        "error": error,
        "ms": 1e3 * checked.time.as_secs_f64(),
    })
}

fn table(checked: &[Checked]) -> Table {
    let mut table = Table::new(&["target", ">kernels", ">ms", "result"]);
    for Checked { target, result, time } in checked {
        let (kernels, result) = match result {
            Ok(kernels) => (kernels.to_string(), "ok".to_owned()),
            Err(error) => ("-".to_owned(), error.to_string()),
        };
        table.row([target.to_string(), kernels, format!("{:.1}", 1e3 * time.as_secs_f64()), result]);
    }
    table
}
