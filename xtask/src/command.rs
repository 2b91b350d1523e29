//! Runs child processes in the repository root and turns their failure into errors.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// The repository root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("invariant: xtask/ lies in the root").to_path_buf()
}

/// A command that starts in the repository root.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The cargo that runs this task.
pub fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Builds the release binary and returns its path.
pub fn build_litz() -> anyhow::Result<PathBuf> {
    run(cargo().args(["build", "--release", "-p", "litz"]))?;
    Ok(root().join("target/release/litz"))
}

/// Builds a program of the workspace that checks it, and returns its path. Its build is that of the workspace's tests, so that neither compiles
/// again what the other has.
pub fn build_tool(name: &str) -> anyhow::Result<PathBuf> {
    // With a test beside it, the smallest: features that only tests ask for are left out of a build that has none.
    run(cargo().args(["build", "--workspace", "--bin", name, "--test", "construct"]))?;
    Ok(root().join("target/debug").join(name))
}

/// Runs to the end, the output going where ours goes; an error unless the exit status is 0.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    eprintln!("$ {}", display(command));
    let status = command.status().with_context(|| format!("cannot start `{}`", display(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", display(command));
    }
    Ok(())
}

/// Runs to the end and returns what was written to standard output; an error unless the exit status is 0.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start `{}`", display(command)))?;
    if !output.status.success() {
        bail!("`{}` failed: {}", display(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` wrote something else than text", display(command)))
}

/// The command as one would type it, arguments with blanks apart.
fn display(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
