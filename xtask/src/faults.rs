//! Puts faults into the compiler and says whether `litz minify` and `litz bisect` find them.

use std::process::ExitCode;

use crate::command::{build_tool, command};

/// What to look for.
#[derive(clap::Args)]
pub struct Args {
    /// Faults, by name [default: all; those of exported models where `cargo xtask corpus` has exported them]
    names: Vec<String>,
}

/// Tries the faults; exit status 1 where one is not cut down to a few nodes, or not named.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut faults = command(build_tool("faults")?);
    let status = faults.args(["try", "--corpus", "target/corpus"]).args(&args.names).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
