//! Checks a clean clone: the repository's own rules, every Rust test, and the Python package without PyTorch.

use crate::command::{self, cargo};
use crate::{py_test, setup, tidy};

/// Stops at the first check that fails.
pub fn run() -> anyhow::Result<()> {
    tidy::run()?;
    setup::run()?;
    command::run(cargo().args(["test", "--workspace"]))?;
    py_test::without_torch()
}
