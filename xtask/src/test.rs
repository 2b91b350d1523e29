//! Checks a clean clone: the repository's own rules, every Rust test, and the Python package without PyTorch.

use crate::command::{self, cargo};
use crate::{py_test, setup, tidy};

/// Stops at the first check that fails.
pub fn run() -> anyhow::Result<()> {
    tidy::run()?;
    setup::run()?;
    // A whole check is a build from nothing: what incremental compilation would write is gigabytes that nobody reads.
    command::run(cargo().args(["test", "--workspace"]).env("CARGO_INCREMENTAL", "0"))?;
    py_test::without_torch()
}
