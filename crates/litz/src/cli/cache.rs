//! `litz cache` moves what was compiled, packed and tuned to other machines, and says what is there and why something is not.

use super::failure::{Exit, Failure};
use super::format::{Table, bytes, counted};
use super::options::{Common, Compiling};
use super::{load, output};
use litz::Model;
use litz::cache::{self, Moved, Row};
use std::path::PathBuf;

/// What to do with the cache.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Write compilations, packed weights and tuned schedules to one file, for `litz cache import`
    Export(Export),
    /// Take from such a file what is for this machine. It holds machine code: this is like installing a program
    Import(Import),
    /// Show what is in the cache, or in such a file
    Info(Info),
    /// Say whether a model is found in the cache, and why not
    Why(Why),
}

#[derive(clap::Args)]
struct Export {
    /// Models to export, with their packed weights [default: all compilations and schedules, without packed weights]
    models: Vec<PathBuf>,
    #[command(flatten)]
    which: load::Which,
    /// Write here
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(clap::Args)]
struct Import {
    /// File that `litz cache export` wrote
    file: PathBuf,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Info {
    /// File that `litz cache export` wrote [default: the cache]
    file: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Why {
    /// Archive that torch.export.save wrote
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    #[command(flatten)]
    common: Compiling,
}

/// Does it.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    match &args.action {
        Action::Export(args) => export(args)?,
        Action::Import(args) => import(args)?,
        Action::Info(args) => info(args)?,
        Action::Why(args) => why(args)?,
    }
    Ok(Exit::Ok)
}

fn export(args: &Export) -> Result<(), Failure> {
    let models = args.models.iter().map(|path| load::open_all(path, &args.which));
    let models: Vec<Model> = models.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    let moved = cache::export(&litz::Options::from_env(), &models, &args.output)?;
    said("exported", &moved);
    if moved.left > 0 {
        output::note(format_args!(
            "packed weights that stay, since their models were not named: {}\n",
            moved.left
        ));
    }
    Ok(())
}

fn import(args: &Import) -> Result<(), Failure> {
    let moved = cache::import(&args.common.options(), &args.file)?;
    said("imported", &moved);
    if moved.left > 0 {
        output::note(format_args!(
            "left out, for other targets or no faster than what is there: {}\n",
            moved.left
        ));
    }
    Ok(())
}

fn said(verb: &str, moved: &Moved) {
    let counts = [
        counted(moved.programs as u64, "compilation"),
        counted(moved.weights as u64, "set") + " of packed weights",
        counted(moved.schedules as u64, "tuned schedule"),
        bytes(moved.bytes as f64),
    ];
    output::note(format_args!("{verb} {}\n", counts.join(", ")));
}

fn info(args: &Info) -> Result<(), Failure> {
    if let Some(path) = &args.file {
        let (compiler, rows) = cache::file_info(path)?;
        return output::print(format_args!("{}, of litz {compiler}\n\n{}", path.display(), table(&rows)));
    }
    let all = cache::info(&litz::Options::from_env())?;
    let texts: Vec<String> = all.iter().map(text).collect();
    output::print(texts.join("\n"))
}

fn text(info: &cache::Info) -> String {
    let access = if info.is_read_only { ", read only" } else { "" };
    let (folder, limit) = (info.folder.display(), bytes(info.limit as f64));
    format!("{folder}{access}, at most {limit}\n\n{}", table(&info.rows))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["kind", ">entries", ">bytes", "target"]);
    for row in rows {
        let other = if row.is_of_this_compiler { "" } else { " (of another compiler)" };
        table.row([
            row.kind.clone(),
            row.entries.to_string(),
            bytes(row.bytes as f64),
            format!("{}{other}", row.target),
        ]);
    }
    table
}

fn why(args: &Why) -> Result<(), Failure> {
    let model = load::open(&args.model, &args.which)?;
    let answers = cache::why(&model, &args.common.options())?;
    let lines: String = answers.iter().map(|(what, answer)| format!("{what}: {answer}\n")).collect();
    output::print(lines)
}
