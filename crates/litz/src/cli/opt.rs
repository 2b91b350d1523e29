//! `litz opt` rewrites a text by one pass.

use super::compile::{expect_valid, read_text};
use super::failure::{Exit, Failure};
use super::options::Common;
use super::output;
use litz::{Error, Text};
use litz_codegen::passes;
use litz_passes::{graph, loops};
use std::path::PathBuf;

/// What to rewrite, and how.
#[derive(clap::Args)]
pub struct Args {
    /// Text of a graph, of loops or of kernels: `.litz`
    file: PathBuf,
    /// The pass
    #[arg(long, value_name = "NAME")]
    pass: String,
    #[command(flatten)]
    common: Common,
}

/// Runs the pass, verifies what it gives and prints it.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let mut text = read_text(&args.file)?;
    expect_valid(&text, None)?;
    let options = args.common.options();
    let unknown = |stage: &str, names: Vec<&str>| {
        let expected = names.join(", ");
        Failure::invalid(format_args!("expected a pass on {stage} ({expected}), found `{}`", args.pass))
    };
    let stage = text.stage().name();
    match &mut text {
        Text::Graph(text) => {
            let pass = graph::PASSES.iter().find(|pass| pass.name == args.pass);
            let pass =
                pass.ok_or_else(|| unknown(stage, graph::PASSES.iter().map(|pass| pass.name).collect()))?;
            (pass.run)(text, &graph::GraphSettings { freeze: options.freeze }).map_err(Error::of_diags)?;
        }
        Text::Loops(text) => {
            let pass = loops::PASSES.iter().find(|pass| pass.name == args.pass);
            let pass =
                pass.ok_or_else(|| unknown(stage, loops::PASSES.iter().map(|pass| pass.name).collect()))?;
            let backend = litz::backend(&options)?;
            pass.apply(
                text,
                &loops::Cx { target: backend.target(), inlining: &options.inlining, tf32: options.tf32 },
            );
        }
        Text::Kernels(kernels) => {
            let pass = passes::PASSES.iter().find(|pass| pass.name == args.pass);
            let pass =
                pass.ok_or_else(|| unknown(stage, passes::PASSES.iter().map(|pass| pass.name).collect()))?;
            let backend = litz::backend(&options)?;
            let rewrite = |kernel| (pass.run)(kernel, backend.target());
            kernels.iter_mut().try_for_each(rewrite).map_err(|diag| Error::of_diags(vec![diag]))?;
        }
        Text::Schedule(..) | Text::Program(_) => {
            let message = format_args!("passes run on graphs, loops and kernels, not on {stage}");
            return Err(Failure::invalid(message));
        }
    }
    output::print(&text)?;
    if let Some(first) = text.verify(None).first() {
        return Err(Error::bug(text.stage().name(), format_args!("pass {}: {first}", args.pass)).into());
    }
    Ok(Exit::Ok)
}
