//! Builds the Python package: one wheel for every Python from 3.10 on, with LLVM inside.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use crate::command::{command, output, root, run as run_command};
use crate::{setup, venv};

const MANIFEST: &str = "crates/litz-py/Cargo.toml";
const FOLDER: &str = "target/wheels";

/// A wheel is to be no larger than this.
const MOST_BYTES: u64 = 60_000_000;

/// Builds the wheel, says what its tag is by what it needs of the system, and returns its path.
pub fn build() -> anyhow::Result<PathBuf> {
    setup::run()?;
    let python = venv::ensure_tools()?;
    let folder = root().join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    // Tags state the oldest C library that the symbols of the extension ask for.
    run_command(
        command(&python)
            .args(["-m", "maturin", "build", "--release", "--manifest-path", MANIFEST, "--out"])
            .arg(&folder),
    )?;
    let mut wheels = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "whl") {
            wheels.push(path);
        }
    }
    let [wheel] = &wheels[..] else { bail!("expected one wheel in {}", folder.display()) };
    let bytes = fs::metadata(wheel)?.len();
    ensure!(bytes <= MOST_BYTES, "{} has {bytes} bytes, expected at most {MOST_BYTES}", wheel.display());
    print!("{}", output(command(&python).args(["-m", "auditwheel", "show"]).arg(wheel))?);
    println!("{}: {:.1} MB", wheel.display(), bytes as f64 / 1e6);
    Ok(wheel.clone())
}
