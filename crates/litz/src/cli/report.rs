//! `litz report` writes one page about a model: what its lines became, what that costs, and why.

use super::failure::{Exit, Failure};
use super::options::Compiling;
use super::{inputs, load};
use litz::progress::Progress;
use litz::report::{self, Report};
use std::path::PathBuf;

/// What to report on.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote, or the text of a graph without constants: `.litz`
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Write the page here
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
    /// Inputs `in.0`, `in.1`, ... in a .safetensors or .npz file [default: made up]
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// Calls to time; 0: none
    #[arg(long, value_name = "N", default_value_t = 20)]
    runs: usize,
    #[command(flatten)]
    common: Compiling,
}

/// Compiles and times the model, and writes the page.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let options = args.common.options();
    let model = load::open(&args.model, &args.which)?;
    let given = args.inputs.as_deref().map(|file| inputs::inputs(&model, Some(file))).transpose()?;
    let report = {
        let progress = Progress::start();
        let mut say = |step: &str| progress.say(step);
        Report::new(&model, &options, given.as_deref(), args.runs, &mut say)?
    };
    let title = args.model.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let page = report::page(&title, &[report], &[]);
    std::fs::write(&args.output, page).map_err(|error| Failure::io("write", &args.output, &error))?;
    Ok(Exit::Ok)
}
