//! Runs programs compiled as C for AArch64, under QEMU: file tests and exported models, whose numbers must be right.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use crate::command::{build_tool, command, root};
use crate::corpus::OWN_FOLDER;
use crate::setup;

/// A compiler and the C library for AArch64, and what runs its programs here.
const PACKAGES: [&str; 3] = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user"];

/// What to run.
#[derive(clap::Args)]
pub struct Args {
    /// Only one of so many file tests and models
    #[arg(long, value_name = "N", default_value_t = 1)]
    one_of: usize,
    /// Only these models, separated by commas, and no file tests
    #[arg(long, value_name = "NAMES")]
    only: Option<String>,
    /// Folder of exported models, as `cargo xtask corpus` leaves them; without it file tests alone run
    #[arg(long, value_name = "DIR", default_value = OWN_FOLDER)]
    models: PathBuf,
    /// Run the recorded calls of operators, too: of these families, or `all`
    #[arg(long, value_name = "FAMILIES")]
    cases: Option<String>,
    /// Run so many random models, too
    #[arg(long, value_name = "N", default_value_t = 0)]
    random: usize,
    /// Compare the instructions of the file tests' kernels with those for x86-64, too
    #[arg(long)]
    instructions: bool,
}

/// Installs what is missing, runs everything, prints a table; exit status 1 where numbers are wrong.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    setup::install(&PACKAGES)?;
    let mut command = command(build_tool("ahead")?);
    command.arg("aarch64").arg(root().join("target/ahead")).args(["--one-of", &args.one_of.to_string()]);
    let models = root().join(&args.models);
    if models.is_dir() {
        command.arg("--models").arg(models);
    } else {
        eprintln!(
            "{} is missing: file tests alone run; `cargo xtask corpus` exports models",
            models.display()
        );
    }
    command.args(["--random", &args.random.to_string()]);
    command.args(args.cases.iter().flat_map(|families| ["--cases", families]));
    command.args(args.only.iter().flat_map(|names| ["--only", names]));
    command.args(args.instructions.then_some("--instructions"));
    let status = command.status().context("cannot start target/debug/ahead")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
