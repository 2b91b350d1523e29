//! Turns a fresh clone into a compiled model that reads handwritten digits.

use crate::command::{build_litz, cargo, run as run_command};
use crate::setup;

/// Sets up, builds the release binary and runs the `digits` example.
pub fn run() -> anyhow::Result<()> {
    setup::run()?;
    build_litz()?;
    run_command(cargo().args(["run", "--release", "-p", "litz", "--example", "digits"]))
}
