//! Checks a clean clone: the repository's own rules, form, lints, documentation, every Rust test, and the Python package without PyTorch.

use crate::command::{self, cargo};
use crate::{py_test, setup, tidy, venv};

/// Stops at the first check that fails; what is known soonest comes first.
pub fn run() -> anyhow::Result<()> {
    tidy::run()?;
    command::run(cargo().args(["fmt", "--all", "--check"]))?;
    setup::run()?;
    venv::ensure_assembler()?;
    // Clippy and rustdoc read what `cargo check` makes of dependencies, which is made once for both.
    command::run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    command::run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    command::run(cargo().args(["test", "--workspace"]))?;
    py_test::without_torch(py_test::Build::Workspace)
}
