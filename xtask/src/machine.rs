//! Describes the machine and the versions of what was measured on it, from what Linux and the packages say.

use std::fs;
use std::path::Path;

use crate::command::{command, output};
use crate::venv;

/// Packages whose versions stand beside measurements.
const PACKAGES: [&str; 5] = ["torch", "onnxruntime", "onnx", "onnxscript", "numpy"];

/// Beginnings of the names of instruction sets that decide how fast a kernel can be.
const FAMILIES: [&str; 7] = ["sse4", "avx", "fma", "f16c", "amx", "asimd", "sve"];

/// The processor's name and how many cores of it there are.
pub fn name() -> anyhow::Result<String> {
    let cores = std::thread::available_parallelism()?;
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Ok(format!("{} x {cores}", entry(&text, "model name").unwrap_or(std::env::consts::ARCH)))
}

/// The machine and the versions, a line for each.
pub fn describe(threads: usize) -> anyhow::Result<String> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let python = format!(
        "from importlib.metadata import version\nfor p in {PACKAGES:?}: print(p, version(p), end=', ')\n\
         import platform; print('python', platform.python_version())"
    );
    let versions = output(command(venv::ensure()?).args(["-c", &python]))?;
    Ok(format!(
        "machine: {}, {threads} threads\ncaches of a core: {}\ninstruction sets: {}\nmemory: {}\nversions: litz {}, {}",
        name()?,
        caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
        instruction_sets(&cpu),
        gigabytes(&memory).map_or("unknown".to_string(), |gigabytes| format!("{gigabytes:.1} GiB")),
        commit()?,
        versions.trim(),
    ))
}

/// The first value of a name in a text of lines `name : value`.
fn entry<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim())
}

fn instruction_sets(cpu: &str) -> String {
    let all = entry(cpu, "flags").or_else(|| entry(cpu, "Features")).unwrap_or_default();
    let found: Vec<&str> = all
        .split_whitespace()
        .filter(|name| FAMILIES.iter().any(|family| name.starts_with(family)))
        .collect();
    if found.is_empty() { "unknown".to_string() } else { found.join(" ") }
}

fn gigabytes(memory: &str) -> Option<f64> {
    let kilobytes: f64 = entry(memory, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / f64::from(1 << 20))
}

/// Caches as Linux lists them in a folder for each, by level; those of instructions are left out.
fn caches(folder: &Path) -> String {
    let read = |path: &Path, name: &str| Some(fs::read_to_string(path.join(name)).ok()?.trim().to_string());
    let mut found: Vec<(String, String)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let is_data = read(&path, "type")? != "Instruction";
            let (level, size) = (read(&path, "level")?, read(&path, "size")?);
            let shared = read(&path, "shared_cpu_list").filter(|list| list.contains([',', '-']));
            let shared = shared.map_or(String::new(), |list| format!(" (shared by {list})"));
            is_data.then(|| (level.clone(), format!("L{level} {size}{shared}")))
        })
        .collect();
    found.sort();
    let found: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
    if found.is_empty() { "unknown".to_string() } else { found.join(", ") }
}

/// What stands behind a commit that the working tree differs from.
pub const CHANGED: &str = "+changes";

/// The commit, marked where the working tree differs from it: such a record stands for no commit.
pub fn commit() -> anyhow::Result<String> {
    let commit = output(command("git").args(["rev-parse", "--short=10", "HEAD"]))?;
    let changes = output(command("git").args(["status", "--porcelain", "--untracked-files=no"]))?;
    Ok(format!("{}{}", commit.trim(), if changes.is_empty() { "" } else { CHANGED }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_linux_says_is_read() {
        let cpu =
            "processor\t: 0\nmodel name\t: Some CPU @ 2:1\nflags\t\t: fpu sse4_2 avx2 fma aes avx512f\n";
        assert_eq!(entry(cpu, "model name"), Some("Some CPU @ 2:1"));
        assert_eq!(instruction_sets(cpu), "sse4_2 avx2 fma avx512f");
        assert_eq!(instruction_sets("Features : fp asimd aes sve2\n"), "asimd sve2");
        assert_eq!(gigabytes("MemTotal:       2097152 kB\nMemFree: 1 kB\n"), Some(2.0));
        assert_eq!((instruction_sets(""), gigabytes("")), ("unknown".to_string(), None));
    }

    #[test]
    fn caches_are_listed_by_level_without_those_of_instructions() {
        let folder = std::env::temp_dir().join(format!("xtask-caches-{}", std::process::id()));
        let caches = [
            ["index0", "2", "Unified", "2048K", "0"],
            ["index1", "1", "Instruction", "32K", "0"],
            ["index2", "1", "Data", "48K", "0"],
            ["index3", "3", "Unified", "100M", "0-1"],
        ];
        for [index, level, kind, size, shared] in caches {
            let path = folder.join(index);
            fs::create_dir_all(&path).expect("writable");
            for (name, text) in
                [("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared)]
            {
                fs::write(path.join(name), format!("{text}\n")).expect("writable");
            }
        }
        let found = super::caches(&folder);
        fs::remove_dir_all(&folder).expect("removable");
        assert_eq!(found, "L1 48K, L2 2048K, L3 100M (shared by 0-1)");
        assert_eq!(super::caches(&folder), "unknown");
    }
}
