//! Tests the Python package as a user has it: the wheel, installed beside PyTorch; and its part that needs no PyTorch, built in place.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::command::{cargo, command, root, run as run_command};
use crate::{venv, wheel};

/// The package, and its tests with PyTorch and without.
const PACKAGE: &str = "crates/litz-py/python/litz";
const TESTS: &str = "crates/litz-py/python/tests";
const TESTS_WITHOUT: &str = "crates/litz-py/python/tests_without_torch";

/// Where the package is put together for tests that do not install it.
const BUILT: &str = "target/python";

/// What to test.
#[derive(clap::Args)]
pub struct Args {
    /// Only the part that needs no PyTorch, with an extension that is not optimised
    #[arg(long)]
    without_torch: bool,
    /// Arguments of pytest, such as `-k views`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pytest: Vec<String>,
}

/// Builds and installs the wheel, and runs every test.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.without_torch {
        return without_torch(Build::Debug);
    }
    let wheel = wheel::build()?;
    let python = venv::ensure()?;
    run_command(
        command(&python)
            .args(["-m", "pip", "install", "--no-input", "--no-deps", "--force-reinstall", "--quiet"])
            .arg(&wheel),
    )?;
    run_command(pytest(&python).arg(TESTS).args(&args.pytest))?;
    // In a process of its own, which never imports PyTorch.
    run_command(pytest(&python).arg(TESTS_WITHOUT))
}

/// How the extension is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// By itself, and not optimised.
    Debug,
    /// As `Debug`, with all of the workspace and its tests. By itself its dependencies have fewer features, and all crates would be
    /// compiled once more where the tests are there.
    Workspace,
    /// By itself, optimised.
    Release,
}

/// Tests what runs on NumPy's arrays.
pub fn without_torch(build: Build) -> anyhow::Result<()> {
    let package = build_in_place(build)?;
    let python = venv::ensure_arrays()?;
    run_command(pytest(&python).arg(TESTS_WITHOUT).env("PYTHONPATH", package))
}

/// Builds the package without a wheel; gives the folder to import it from.
pub fn build_in_place(build: Build) -> anyhow::Result<PathBuf> {
    let (profile, what): (_, &[&str]) = match build {
        Build::Debug => ("debug", &["--package", "litz-py"]),
        Build::Workspace => ("debug", &["--workspace", "--all-targets"]),
        Build::Release => ("release", &["--package", "litz-py", "--release"]),
    };
    run_command(cargo().arg("build").args(what))?;
    let built = root().join(BUILT).join(profile);
    let package = built.join("litz");
    fs::create_dir_all(&package).with_context(|| format!("cannot make {}", package.display()))?;
    for entry in fs::read_dir(root().join(PACKAGE))? {
        let path = entry?.path();
        // Modules, and the tables that they read.
        if let (Some(name), true) = (path.file_name(), path.is_file()) {
            fs::copy(&path, package.join(name))?;
        }
    }
    fs::copy(root().join("target").join(profile).join("lib_litz.so"), package.join("_litz.abi3.so"))
        .context("cannot copy the extension")?;
    Ok(built)
}

/// A run of pytest that leaves nothing behind, and keeps nothing of what it compiles.
fn pytest(python: &Path) -> std::process::Command {
    let mut pytest = command(python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.env("LITZ_CACHE_DIR", "").env("PYTHONDONTWRITEBYTECODE", "1");
    pytest
}
