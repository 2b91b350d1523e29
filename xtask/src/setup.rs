//! Installs the LLVM packages that a Debian machine lacks to build Litz.

use anyhow::{Context, bail};

use crate::command::{self, command, output};

/// What linking LLVM 22 statically needs: its archives (Polly's among them, which `llvm-config --libs` names) and the
/// compression and XML libraries that they refer to. And a compiler for C++, by which the C library's header is tried.
const PACKAGES: [&str; 6] =
    ["llvm-22-dev", "libpolly-22-dev", "libzstd-dev", "zlib1g-dev", "libxml2-dev", "g++"];

/// Installs what is missing of what builds need; does nothing, and needs no privileges, where all is there.
pub fn run() -> anyhow::Result<()> {
    let has_llvm = output(command("llvm-config-22").arg("--version")).is_ok();
    // Without dpkg nobody knows of archives.
    if has_llvm && !has_dpkg() {
        return Ok(());
    }
    install(&PACKAGES).context("building takes LLVM 22 with its static libraries and Polly")?;
    if output(command("llvm-config-22").arg("--version")).is_err() {
        bail!("`llvm-config-22` is not on the PATH although llvm-22-dev is installed");
    }
    Ok(())
}

/// Installs those of some Debian packages that are missing.
///
/// # Errors
/// Where there is no apt, or it does not provide them.
pub fn install(packages: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !has_dpkg() || !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if output(command("apt-get").arg("--version")).is_err() {
        bail!(
            "packages are missing and this is not a Debian system: install what Debian calls {}",
            missing.join(", ")
        );
    }
    let prefix = privileges(&missing)?;
    let apt = |words: &[&str]| {
        let words: Vec<&str> = prefix.iter().chain(&["apt-get"]).chain(words).copied().collect();
        command::run(command(words[0]).args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    apt(&[["install", "-y", "--no-install-recommends"].as_slice(), &missing].concat()).with_context(|| {
        format!(
            "cannot install {}: the release's apt sources must provide them, as Debian 12's do",
            missing.join(" ")
        )
    })
}

fn has_dpkg() -> bool {
    output(command("dpkg-query").arg("--version")).is_ok()
}

fn is_installed(package: &str) -> bool {
    output(command("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}

/// What to put before `apt-get`: nothing as root, else sudo that asks for no password.
fn privileges(missing: &[&str]) -> anyhow::Result<&'static [&'static str]> {
    if output(command("id").arg("-u"))?.trim() == "0" {
        return Ok(&[]);
    }
    if output(command("sudo").args(["--non-interactive", "true"])).is_ok() {
        return Ok(&["sudo", "--non-interactive", "--preserve-env=DEBIAN_FRONTEND"]);
    }
    bail!(
        "packages are missing and installing them takes root; run\n  \
         sudo apt-get update && sudo apt-get install -y --no-install-recommends {}",
        missing.join(" ")
    );
}
