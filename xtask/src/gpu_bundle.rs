//! Packs what a machine needs to check Litz that has a GPU, Python and PyTorch, and no Rust.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::command::{cargo, command, output, root, run as run_command};
use crate::setup;

/// Where the bundle is put together, and packed.
const FOLDER: &str = "target/carry";

/// A bundle is to be no larger than this.
const MOST_BYTES: u64 = 60 << 20;

/// Folders of the repository that a bundle has, as they are, and what of them by the end of the name.
const FOLDERS: [(&str, &[&str]); 6] = [
    ("benches", &["py", "txt"]),
    ("crates/litz-py/python/litz", &["py", "txt"]),
    ("crates/litz-py/python/tests", &["py"]),
    ("crates/litz-testing/cases", &["txt"]),
    ("filetests/issues", &["litz"]),
    ("filetests/run", &["litz"]),
];

/// Tests that run there.
const TESTS: [&str; 2] = ["filetests", "cases"];

/// How to build.
#[derive(clap::Args)]
pub struct Args {
    /// Optimise less, and not across crates: built in a third of the time
    #[arg(long)]
    fast: bool,
}

/// Builds and packs; prints how to run it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    setup::run()?;
    let folder = root().join(FOLDER).join("bundle");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    for (name, endings) in FOLDERS {
        copy_all(&root().join(name), &folder.join(name), endings)?;
    }
    let release = root().join("target/release");
    built(args, &["build", "-p", "litz", "-p", "litz-py"])?;
    copy(&release.join("litz"), &folder.join("bin/litz"))?;
    copy(&release.join("lib_litz.so"), &folder.join("crates/litz-py/python/litz/_litz.abi3.so"))?;
    for test in TESTS {
        copy(&test_binary(args, test)?, &folder.join("bin").join(test))?;
    }
    built(args, &["build", "-p", "litz-runtime", "--features", "cuda", "--example", "run_artifact"])?;
    copy(&release.join("examples/run_artifact"), &folder.join("bin/run_artifact"))?;
    copy(&root().join("examples/digits.pt2"), &folder.join("examples/digits.pt2"))?;
    let packed = root().join(FOLDER).join("bundle.tar.xz");
    // The binaries have most of their code in common, which a dictionary finds that is as long as all of them.
    run_command(
        command("tar")
            .args(["--use-compress-program", "xz -T1 --lzma2=preset=6,dict=512MiB", "-cf"])
            .arg(&packed)
            .arg("-C")
            .arg(&folder)
            .arg("."),
    )?;
    let bytes = fs::metadata(&packed)?.len();
    println!("{}: {:.1} MiB", packed.display(), bytes as f64 / f64::from(1 << 20));
    ensure!(bytes <= MOST_BYTES, "{} has {bytes} bytes, expected at most {MOST_BYTES}", packed.display());
    println!(
        "there: mkdir -p bundle && tar xJf bundle.tar.xz -C bundle && python3 bundle/benches/gpu_check.py OUT"
    );
    Ok(())
}

/// A cargo that builds as the arguments say.
fn builder(args: &Args) -> std::process::Command {
    let mut cargo = cargo();
    if args.fast {
        let settings = [("LTO", "off"), ("CODEGEN_UNITS", "16"), ("OPT_LEVEL", "2")];
        cargo.envs(settings.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)));
    }
    cargo
}

fn built(args: &Args, what: &[&str]) -> anyhow::Result<()> {
    run_command(builder(args).args(what).arg("--release"))
}

/// Builds a test of `litz-testing`, and says where it is.
fn test_binary(args: &Args, test: &str) -> anyhow::Result<PathBuf> {
    let mut cargo = builder(args);
    cargo.args(["test", "--release", "--no-run", "-p", "litz-testing", "--test", test]);
    let messages = output(cargo.args(["--message-format", "json"]))?;
    let found = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let is_it =
        |message: &serde_json::Value| message["target"]["name"] == test && message["executable"].is_string();
    let executable =
        found.filter(is_it).find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    executable.with_context(|| format!("cargo says of no binary of the test {test}"))
}

/// Copies the files of a folder and those below it that end so.
fn copy_all(from: &Path, to: &Path, endings: &[&str]) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy_all(&path, &to.join(name), endings)?;
        } else if path.extension().is_some_and(|own| endings.iter().any(|ending| own == *ending)) {
            copy(&path, &to.join(name))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let folder = to.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}
