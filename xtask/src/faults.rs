//! Puts faults into the compiler and says whether `litz minify` and `litz bisect` find them.

use std::process::ExitCode;

use crate::command::{cargo, command, root, run as run_command};

/// What to look for.
#[derive(clap::Args)]
pub struct Args {
    /// Faults, by name [default: all; those of exported models where `cargo xtask corpus` has exported them]
    names: Vec<String>,
}

/// Tries the faults; exit status 1 where one is not cut down to a few nodes, or not named.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // As tests of the workspace are built, so that what they have built is used.
    run_command(cargo().args(["build", "--workspace", "--bin", "faults"]))?;
    let mut faults = command(root().join("target/debug/faults"));
    let status = faults.args(["try", "--corpus", "target/corpus"]).args(&args.names).status()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
