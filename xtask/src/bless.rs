//! Rewrites the expected blocks of the file tests with their present output.

use crate::command::{cargo, run as run_command};

/// What to bless.
#[derive(clap::Args)]
pub struct Args {
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// Reruns the file tests in the mode that rewrites; read the diff before committing it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    run_command(
        cargo()
            .args(["test", "--workspace", "--test", "filetests", "--"])
            .args(&args.filter)
            .env("LITZ_BLESS", "1"),
    )
}
