//! Checks a clean clone: the repository's own rules, then every Rust test.

use crate::command::{self, cargo};
use crate::{setup, tidy};

/// Stops at the first check that fails.
pub fn run() -> anyhow::Result<()> {
    tidy::run()?;
    setup::run()?;
    command::run(cargo().args(["test", "--workspace"]))
}
