//! Builds the C library, with the compiler and without, lays out what programs are built against, and checks it.
//!
//! `target/c` has the library with the compiler, `target/c-runtime` the one that runs `.litzc` files alone. Each is a prefix such as `/usr/local`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::command::{build_litz, cargo, command, output, root, run as run_command};
use crate::{races, setup};

/// What to do.
#[derive(clap::Args)]
pub struct Args {
    /// Also build and run the examples, in a folder with nothing else among others, and check sizes, memory, races and time
    #[arg(long)]
    check: bool,
}

/// One build of the library.
struct Build {
    folder: &'static str,
    /// The profile of Cargo, and its folder in `target`.
    profile: &'static str,
    flags: &'static [&'static str],
    /// Bytes that the stripped shared library may have.
    most_bytes: u64,
}

/// The profile of what runs saved programs and has no compiler.
const RUNTIME: &str = "runtime";

/// The runtime's comes first: programs that are linked with one of them run with either.
const BUILDS: [Build; 2] = [
    Build {
        folder: "target/c-runtime",
        profile: RUNTIME,
        flags: &["--no-default-features"],
        most_bytes: 3_000_000,
    },
    Build { folder: "target/c", profile: "release", flags: &[], most_bytes: 60_000_000 },
];

const HEADERS: [&str; 2] = ["litz.h", "litz_dlpack.h"];

/// Builds both libraries and prints where they are.
pub fn run(args: &Args) -> anyhow::Result<()> {
    setup::run()?;
    for build in &BUILDS {
        install(build)?;
    }
    if args.check { check() } else { Ok(()) }
}

fn install(build: &Build) -> anyhow::Result<()> {
    let Build { folder, profile, flags, most_bytes } = build;
    run_command(cargo().args(["build", "--profile", profile, "-p", "litz-capi"]).args(*flags))?;
    let prefix = root().join(folder);
    if prefix.exists() {
        fs::remove_dir_all(&prefix).with_context(|| format!("cannot remove {}", prefix.display()))?;
    }
    let [lib, include] = ["lib", "include"].map(|name| prefix.join(name));
    let [package, cmake] = ["pkgconfig", "cmake/litz"].map(|name| lib.join(name));
    [&include, &package, &cmake].into_iter().try_for_each(fs::create_dir_all)?;
    for header in HEADERS {
        fs::copy(root().join("crates/litz-capi/include").join(header), include.join(header))?;
    }
    let version = version()?;
    let (major, minor) = (version.major, version.minor);
    let (shared, name) = (format!("liblitz.so.{version}"), format!("liblitz.so.{major}.{minor}"));
    let built = root().join("target").join(profile);
    fs::copy(built.join("liblitz_capi.so"), lib.join(&shared))?;
    fs::copy(built.join("liblitz_capi.a"), lib.join("liblitz.a"))?;
    symlink(&shared, lib.join(&name))?;
    symlink(&name, lib.join("liblitz.so"))?;
    fs::write(package.join("litz.pc"), pkg_config(&version))?;
    fs::write(cmake.join("litzConfig.cmake"), CMAKE)?;
    fs::write(cmake.join("litzConfigVersion.cmake"), cmake_version(&version))?;
    let bytes = fs::metadata(lib.join(&shared))?.len();
    println!("{folder}/lib/{shared}: {:.2} MB", bytes as f64 / 1e6);
    ensure!(bytes <= *most_bytes, "{folder}: {bytes} bytes, expected at most {most_bytes}");
    Ok(())
}

/// Numbers of the workspace's version.
struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

fn version() -> anyhow::Result<Version> {
    let manifest = fs::read_to_string(root().join("Cargo.toml"))?;
    let manifest: toml::Table = toml::from_str(&manifest)?;
    let text = manifest["workspace"]["package"]["version"].as_str().context("a version is text")?;
    let numbers = text.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let [major, minor, patch] = numbers[..] else { anyhow::bail!("expected three numbers, found {text}") };
    Ok(Version { major, minor, patch })
}

/// For `pkg-config --cflags --libs litz`; static libraries need the system's in `Libs.private`.
fn pkg_config(version: &Version) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         Name: litz\n\
         Description: Opens and runs models of PyTorch\n\
         Version: {version}\n\
         Cflags: -I${{prefix}}/include\n\
         Libs: -L${{prefix}}/lib -llitz\n\
         Libs.private: -lpthread -ldl -lm\n"
    )
}

/// For `find_package(litz)`: the targets `litz::litz`, shared, and `litz::static`.
const CMAKE: &str = r#"get_filename_component(_litz_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET litz::litz)
  add_library(litz::litz SHARED IMPORTED)
  set_target_properties(litz::litz PROPERTIES
    IMPORTED_LOCATION "${_litz_prefix}/lib/liblitz.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_litz_prefix}/include")
  add_library(litz::static STATIC IMPORTED)
  set_target_properties(litz::static PROPERTIES
    IMPORTED_LOCATION "${_litz_prefix}/lib/liblitz.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_litz_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
unset(_litz_prefix)
"#;

/// Before 1.0, versions that differ in the second number are for different programs.
fn cmake_version(version: &Version) -> String {
    let Version { major, minor, .. } = version;
    format!(
        "set(PACKAGE_VERSION \"{version}\")\n\
         if(PACKAGE_FIND_VERSION_MAJOR EQUAL {major} AND PACKAGE_FIND_VERSION_MINOR EQUAL {minor}\n   \
         AND NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_COMPATIBLE TRUE)\n\
         endif()\n\
         if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)\n  \
         set(PACKAGE_VERSION_EXACT TRUE)\n\
         endif()\n"
    )
}

/// Bytes that a program may have which runs `.litzc` files, of the runtime and nothing else.
const MOST_OF_RUNTIME: u64 = 2_000_000;

/// What every example prints in the end, and what the one prints that zeroes all weights.
const ANSWER: &str = "it is a 0";
const ZEROED: &str = "it is 0";

/// Builds and runs what `docs/c.md` shows.
fn check() -> anyhow::Result<()> {
    let folder = root().join("target/c-check");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let (litz, saved) = (build_litz()?, folder.join("digits.litzc"));
    // Valgrind knows AVX2 and nothing beyond.
    let target = "cpu(isa=avx2, threads=2)";
    let updatable = folder.join("updatable.litzc");
    for (flags, path) in [(&[][..], &saved), (&["--updatable"], &updatable)] {
        let mut compile = command(&litz);
        compile.args(["compile", "examples/digits.pt2", "--target", target]).args(flags);
        run_command(compile.arg("-o").arg(path))?;
    }
    let flags = output(
        command("pkg-config")
            .args(["--cflags", "--libs", "litz"])
            .env("PKG_CONFIG_PATH", root().join("target/c/lib/pkgconfig")),
    );
    // Where there is no pkg-config the flags are as well known.
    let flags = flags.unwrap_or_else(|_| "-Itarget/c/include -Ltarget/c/lib -llitz".to_owned());
    let build = |source: &str| {
        let program = folder.join(source);
        let mut cc = command("cc");
        cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        cc.arg(format!("examples/c/{source}.c")).arg("-lpthread");
        run_command(cc.args(flags.split_whitespace())).map(|()| program)
    };
    let (c, update) = (build("digits")?, build("update")?);
    answers(with_library(&c, "target/c").arg("examples/digits.pt2"))?;
    answers(with_library(&c, "target/c").arg(&saved))?;
    answers(with_library(&c, "target/c-runtime").arg(&saved))?;
    says(with_library(&update, "target/c-runtime").arg(&updatable), ZEROED)?;
    refuses_models(with_library(&c, "target/c-runtime").arg("examples/digits.pt2"))?;
    cpp(&folder)?;
    csharp(&folder, &saved)?;
    container(&folder, &saved)?;
    // Every load and store of library, program and kernels is looked at.
    if is_installed("valgrind") {
        says(valgrind(&c).arg(&saved), ANSWER)?;
        says(valgrind(&update).arg(&updatable), ZEROED)?;
    } else {
        println!("valgrind is not installed: memory is not looked at");
    }
    run_command(
        cargo().args(["run", "--release", "-p", "litz-capi", "--example", "overhead", "--"]).arg(&saved),
    )?;
    runtime(&saved)?;
    races::check(&folder, &updatable)
}

/// Builds the program in Rust that has the runtime alone, which is no library, and runs a file.
fn runtime(saved: &Path) -> anyhow::Result<()> {
    let build = ["build", "--profile", RUNTIME, "-p", "litz-runtime", "--example", "run_artifact"];
    run_command(cargo().args(build))?;
    let program = root().join("target").join(RUNTIME).join("examples/run_artifact");
    let bytes = fs::metadata(&program)?.len();
    println!("{}: {:.2} MB", program.display(), bytes as f64 / 1e6);
    ensure!(bytes <= MOST_OF_RUNTIME, "{bytes} bytes, expected at most {MOST_OF_RUNTIME}");
    output(command(&program).arg(saved)).map(drop)
}

/// A program that finds the library of a build.
fn with_library(program: &Path, build: &str) -> Command {
    let mut command = command(program);
    command.env("LD_LIBRARY_PATH", root().join(build).join("lib"));
    command
}

fn answers(command: &mut Command) -> anyhow::Result<()> {
    says(command, ANSWER)
}

/// Runs a program, the last line of which is to be this.
fn says(command: &mut Command, expected: &str) -> anyhow::Result<()> {
    let said = output(command)?;
    ensure!(said.lines().last() == Some(expected), "expected `{expected}`, found `{said}`");
    Ok(())
}

fn refuses_models(command: &mut Command) -> anyhow::Result<()> {
    let error = output(command).err().context("the library without the compiler opened a model")?;
    let expected = "was built without the compiler";
    ensure!(error.to_string().contains(expected), "expected `{expected}`, found `{error}`");
    Ok(())
}

/// With CMake where it is installed, else as CMake would.
fn cpp(folder: &Path) -> anyhow::Result<()> {
    let build = folder.join("cpp");
    let program = build.join("digits");
    if is_installed("cmake") {
        let mut configure = command("cmake");
        configure.args(["-S", "examples/cpp", "-B"]).arg(&build);
        run_command(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", root().join("target/c").display())))?;
        run_command(command("cmake").arg("--build").arg(&build))?;
    } else {
        println!("cmake is not installed: its package file is not tried");
        fs::create_dir_all(&build)?;
        let mut compiler = command("c++");
        compiler.args([
            "-std=c++17",
            "-Wall",
            "-Wextra",
            "-Werror",
            "examples/cpp/digits.cpp",
            "-Itarget/c/include",
        ]);
        run_command(compiler.args(["-Ltarget/c/lib", "-llitz", "-o"]).arg(&program))?;
    }
    answers(with_library(&program, "target/c").arg("examples/digits.pt2"))
}

fn csharp(folder: &Path, saved: &Path) -> anyhow::Result<()> {
    if !is_installed("mcs") || !is_installed("mono") {
        println!("mcs and mono are not installed: the example in C# is not tried");
        return Ok(());
    }
    let program = folder.join("Digits.exe");
    run_command(command("mcs").arg(format!("-out:{}", program.display())).arg("examples/csharp/Digits.cs"))?;
    answers(with_library(Path::new("mono"), "target/c-runtime").arg(&program).arg(saved))
}

/// Runs the program of `examples/container` where there are only the files that the container has.
fn container(folder: &Path, saved: &Path) -> anyhow::Result<()> {
    let inside = folder.join("container");
    fs::create_dir_all(&inside)?;
    let program = inside.join("digits");
    let mut cc = command("cc");
    cc.args([
        "-static",
        "-s",
        "-Wl,--gc-sections",
        "examples/c/digits.c",
        "-Itarget/c-runtime/include",
        "-o",
    ])
    .arg(&program);
    run_command(cc.args(["target/c-runtime/lib/liblitz.a", "-lm"]))?;
    fs::copy(saved, inside.join("digits.litzc"))?;
    let copied = dockerfile_copies(&fs::read_to_string(root().join("examples/container/Dockerfile"))?);
    let mut there: Vec<String> = Vec::new();
    for entry in fs::read_dir(&inside)? {
        there.push(entry?.file_name().to_string_lossy().into_owned());
    }
    there.sort();
    ensure!(copied == there, "the container has {copied:?}, and the folder {there:?}");
    let is_root = output(command("id").arg("-u"))?.trim() == "0";
    let mut enter = if is_root {
        command("chroot")
    } else {
        let mut unshare = command("unshare");
        unshare.args(["--map-root-user", "chroot"]);
        unshare
    };
    answers(enter.arg(&inside).args(["/digits", "/digits.litzc"]))
}

/// The files that a Dockerfile copies to `/`, sorted.
fn dockerfile_copies(text: &str) -> Vec<String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("COPY "));
    let files = lines.flat_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[..words.len().saturating_sub(1)].iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    });
    let mut files: Vec<String> = files.collect();
    files.sort();
    files
}

/// A program with the library without the compiler, run by valgrind.
fn valgrind(program: &Path) -> Command {
    let mut command = with_library(Path::new("valgrind"), "target/c-runtime");
    command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
    // What is interned stays to the end.
    command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
    command.arg(program);
    command
}

fn is_installed(program: &str) -> bool {
    output(command(program).arg("--version")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_has_is_read() {
        let text =
            "# COPY nothing\nFROM scratch\nCOPY digits digits.litzc /\nCOPY a /\nENTRYPOINT [\"/digits\"]\n";
        assert_eq!(dockerfile_copies(text), ["a", "digits", "digits.litzc"]);
    }

    #[test]
    fn the_version_is_the_workspaces() {
        assert_eq!(version().expect("it has one").to_string(), env!("CARGO_PKG_VERSION"));
    }
}
