//! Looks for data races in the C library by the thread sanitizer, which watches all of it, the standard library's locks too.
//!
//! The compiler's own flag for that takes a standard library built with it, from sources and by a nightly compiler. After fat link-time
//! optimisation the bitcode of a library has everything in it, though, and LLVM's tools instrument that. Machine code of kernels is not
//! watched: what it reads and writes is decided by the library around it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::command::{cargo, command, output, root, run as run_command};

/// Threads that call, and new weights meanwhile.
const CALLERS: [&str; 2] = ["8", "1000"];

/// Whether a lock that is taken sees what its last holder did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Locks {
    Sound,
    /// They do not: what the sanitizer has to find.
    Broken,
}

/// Runs `examples/c/update.c` with an updatable program: nothing may be found in the library as it is, and something has to be where its
/// locks are broken.
pub fn check(folder: &Path, updatable: &Path) -> anyhow::Result<()> {
    let target = root().join("target/races");
    let bitcode = target.join("litz.bc");
    let mut build = cargo();
    build.args(["rustc", "--release", "-p", "litz-capi", "--no-default-features", "--lib"]);
    build.args(["--crate-type", "staticlib", "--target-dir"]).arg(&target).arg("--");
    build.arg(format!("--emit=llvm-bc={}", bitcode.display()));
    run_command(build.args(["-C", "lto=fat", "-C", "codegen-units=1", "-C", "debuginfo=1"]))?;
    for locks in [Locks::Sound, Locks::Broken] {
        let program = link(folder, &target, &instrumented(folder, &bitcode, locks)?)?;
        let mut calls = command(program);
        let done = calls.arg(updatable).args(CALLERS).env("TSAN_OPTIONS", "exitcode=0").output()?;
        let (said, found) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        let count = found.matches("WARNING: ThreadSanitizer").count();
        let is_right = done.status.success() && said.ends_with("it is 0\n");
        match locks {
            Locks::Sound => ensure!(count == 0 && is_right, "{said}{found}"),
            Locks::Broken => {
                ensure!(count > 0, "the sanitizer does not see that locks are broken");
                println!("races: none found, and {count} where locks are broken");
            }
        }
    }
    Ok(())
}

/// An object file of the library whose loads and stores the sanitizer watches.
fn instrumented(folder: &Path, bitcode: &Path, locks: Locks) -> anyhow::Result<PathBuf> {
    let bin = output(command("llvm-config-22").arg("--bindir"))?;
    let tool = |name: &str| command(Path::new(bin.trim()).join(name));
    let [text, watched, object] =
        ["ll", "bc", "o"].map(|extension| folder.join(format!("{locks:?}.{extension}")));
    run_command(tool("llvm-dis").arg(bitcode).arg("-o").arg(&text))?;
    let lines = fs::read_to_string(&text)?;
    fs::write(&text, lines.lines().map(|line| ordered(line, locks) + "\n").collect::<String>())?;
    let passes = "-passes=forceattrs,function(tsan),tsan-module";
    let mut opt = tool("opt");
    run_command(opt.args([passes, "-force-attribute=sanitize_thread"]).arg(&text).arg("-o").arg(&watched))?;
    let mut llc = tool("llc");
    llc.args(["-O1", "-filetype=obj", "-relocation-model=pic"]).arg(&watched).arg("-o").arg(&object);
    run_command(&mut llc).map(|()| object)
}

/// A line of the library's text in orders that the sanitizer sees. Who drops the last reference sees what the others did by a fence, which
/// it does not; so each decrement is made to see it.
fn ordered(line: &str, locks: Locks) -> String {
    let is_decrement = line.contains(" = atomicrmw sub ptr ");
    let line = if is_decrement { line.replace(" release, ", " acq_rel, ") } else { line.to_owned() };
    let takes_lock = locks == Locks::Broken && line.contains(" = cmpxchg ");
    if takes_lock { line.replace(" acquire monotonic", " monotonic monotonic") } else { line }
}

/// The example with that object, what the library has of assembly, and the sanitizer's runtime.
fn link(folder: &Path, target: &Path, object: &Path) -> anyhow::Result<PathBuf> {
    let program = object.with_extension("program");
    let example = folder.join("update.o");
    let mut cc = command("cc");
    cc.args(["-std=c99", "-O1", "-g", "-fsanitize=thread", "-c", "examples/c/update.c"]);
    run_command(cc.args(["-Itarget/c-runtime/include", "-o"]).arg(&example))?;
    let libraries = output(command("rustc").args(["--print", "target-libdir"]))?;
    let runtime = fs::read_dir(libraries.trim())?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut runtime = runtime.filter(|path| path.to_string_lossy().ends_with("_rt.tsan.a"));
    let runtime = runtime.next().context("the compiler comes without the thread sanitizer")?;
    let mut cc = command("cc");
    cc.arg("-pie").arg(&example).arg(object).arg(target.join("release/liblitz_capi.a"));
    cc.arg("-Wl,--whole-archive").arg(runtime).args(["-Wl,--no-whole-archive", "-Wl,--export-dynamic"]);
    cc.args(["-lpthread", "-ldl", "-lm", "-lrt", "-lgcc_s", "-o"]).arg(&program);
    run_command(&mut cc).map(|()| program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_those_that_are_seen() {
        let last = "  %2 = atomicrmw sub ptr %1, i64 1 release, align 8";
        assert_eq!(ordered(last, Locks::Sound), "  %2 = atomicrmw sub ptr %1, i64 1 acq_rel, align 8");
        let lock = "  %3 = cmpxchg ptr %1, i32 0, i32 1 acquire monotonic, align 4";
        assert_eq!(ordered(lock, Locks::Sound), lock);
        assert_eq!(
            ordered(lock, Locks::Broken),
            "  %3 = cmpxchg ptr %1, i32 0, i32 1 monotonic monotonic, align 4"
        );
    }
}
