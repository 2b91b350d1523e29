//! Runs the example that reads handwritten digits, from nothing but a clone.

use crate::command::{cargo, run as run_command};
use crate::setup;

/// Installs what the build needs, builds the `digits` example and runs it.
///
/// The command line tool is left out: it would be a second binary to optimise across all crates, which takes longer
/// than compiling the crates.
pub fn run() -> anyhow::Result<()> {
    setup::run()?;
    run_command(cargo().args(["run", "--release", "-p", "litz-examples", "--bin", "digits"]))
}
