//! Checks the repository's own rules: crate directions, circles of modules, file sizes, file headers, names of operators, links of pages, titles.

mod circles;
mod links;
mod operators;
mod titles;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;

use crate::command::{command, output, root};

/// What each crate may use of ours, outside its tests. The crates stand in dependency order.
const MAY_USE: &[(&str, &[&str])] = &[
    ("litz-sym", &[]),
    ("litz-ir", &["litz-sym"]),
    ("litz-analysis", &["litz-ir", "litz-sym"]),
    ("litz-schedule", &["litz-analysis", "litz-ir", "litz-sym"]),
    ("litz-codegen", &["litz-analysis", "litz-ir", "litz-sym"]),
    ("litz-c", &["litz-ir", "litz-sym"]),
    ("litz-runtime", &["litz-ir", "litz-sym"]),
    ("litz-listing", &["litz-ir", "litz-sym"]),
    ("litz-backend", &["litz-codegen", "litz-runtime", "litz-ir", "litz-sym"]),
    ("litz-ops", &["litz-ir", "litz-sym"]),
    ("litz-import", &["litz-ir", "litz-sym"]),
    ("litz-passes", &["litz-analysis", "litz-ir", "litz-ops", "litz-sym"]),
    ("litz-llvm", &["litz-runtime", "litz-ir", "litz-sym"]),
    ("litz-cpu", &["litz-llvm", "litz-backend", "litz-codegen", "litz-runtime", "litz-ir", "litz-sym"]),
    ("litz-cuda", &["litz-llvm", "litz-backend", "litz-codegen", "litz-runtime", "litz-ir", "litz-sym"]),
    (
        "litz",
        &[
            "litz-sym",
            "litz-ir",
            "litz-analysis",
            "litz-ops",
            "litz-import",
            "litz-passes",
            "litz-schedule",
            "litz-codegen",
            "litz-c",
            "litz-runtime",
            "litz-listing",
            "litz-backend",
            "litz-llvm",
            "litz-cpu",
            "litz-cuda",
        ],
    ),
    ("litz-capi", &["litz-ir", "litz-runtime", "litz"]),
    (
        "litz-testing",
        &[
            "litz-sym",
            "litz-ir",
            "litz-analysis",
            "litz-ops",
            "litz-import",
            "litz-passes",
            "litz-schedule",
            "litz-codegen",
            "litz-c",
            "litz-runtime",
            "litz-backend",
            "litz-llvm",
            "litz-cpu",
            "litz-cuda",
            "litz",
            "litz-capi",
        ],
    ),
    ("litz-py", &["litz-sym", "litz-ir", "litz-import", "litz-runtime", "litz"]),
    ("litz-examples", &["litz"]),
    ("xtask", &[]),
];

const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_RUST_LINES: usize = 700;

/// Prints every broken rule; an error when there is one.
pub fn run() -> anyhow::Result<()> {
    let mut problems = workspace_problems(&root())?;
    let listed =
        output(command("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let (mut files, mut pages, mut sources) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    for name in listed.split_terminator('\0') {
        let path = root().join(name);
        // What is deleted and not yet committed is still listed.
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        problems.extend(size_problem(name, metadata.len()));
        files.insert(name.to_string());
        let read = || fs::read_to_string(&path).with_context(|| format!("cannot read {name}"));
        if metadata.is_file() && name.ends_with(".rs") {
            let text = read()?;
            problems.extend(rust_file_problems(name, &text));
            problems.extend(operators::problems(name, &text));
            sources.insert(name.to_string(), text);
        } else if metadata.is_file() && name.ends_with(".md") {
            pages.insert(name.to_string(), read()?);
        }
    }
    problems.extend(circles::problems(&sources));
    problems.extend(links::problems(&files, &pages));
    problems.extend(titles::records(&pages));
    problems.extend(titles::commits()?);
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        eprintln!("tidy: {problem}");
    }
    bail!("{} broken rules", problems.len());
}

#[derive(Deserialize)]
struct RootManifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    members: Vec<String>,
}

/// The parts of a manifest that name other crates; what a dependency says beside its name does not matter here.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Manifest {
    package: Package,
    #[serde(flatten)]
    dependencies: Dependencies,
    #[serde(default)]
    target: BTreeMap<String, Dependencies>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Dependencies {
    #[serde(default)]
    dependencies: toml::Table,
    #[serde(default)]
    build_dependencies: toml::Table,
    #[serde(default)]
    dev_dependencies: toml::Table,
}

fn workspace_problems(root: &Path) -> anyhow::Result<Vec<String>> {
    let read =
        |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    let manifest: RootManifest = toml::from_str(&read(&root.join("Cargo.toml"))?).context("Cargo.toml")?;
    let members = manifest.workspace.members.iter().map(|member| {
        toml::from_str(&read(&root.join(member).join("Cargo.toml"))?)
            .with_context(|| format!("{member}/Cargo.toml"))
    });
    Ok(direction_problems(&members.collect::<anyhow::Result<Vec<Manifest>>>()?))
}

/// Where the members, in the order of the root manifest, depend on what is not above them or not theirs to use.
/// Tests may use whatever is above.
fn direction_problems(members: &[Manifest]) -> Vec<String> {
    let position: BTreeMap<&str, usize> =
        members.iter().enumerate().map(|(place, member)| (member.package.name.as_str(), place)).collect();
    let mut problems = Vec::new();
    for (place, member) in members.iter().enumerate() {
        let name = member.package.name.as_str();
        let Some((_, may_use)) = MAY_USE.iter().find(|(listed, _)| *listed == name) else {
            problems.push(format!("{name}: not in the table of what each crate may use (xtask/src/tidy.rs)"));
            continue;
        };
        for section in std::iter::once(&member.dependencies).chain(member.target.values()) {
            let built = section.dependencies.keys().chain(section.build_dependencies.keys());
            let used = built
                .map(|used| (used, true))
                .chain(section.dev_dependencies.keys().map(|used| (used, false)));
            for (used, is_built) in used {
                let Some(&used_place) = position.get(used.as_str()) else { continue };
                if used_place >= place {
                    problems.push(format!(
                        "{name}: depends on {used}, which is not above it in the root Cargo.toml"
                    ));
                } else if is_built && !may_use.contains(&used.as_str()) {
                    problems.push(format!("{name}: may not use {used}; it may use {}", list(may_use)));
                }
            }
        }
    }
    problems
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none of ours".to_string() } else { names.join(", ") }
}

fn size_problem(name: &str, bytes: u64) -> Option<String> {
    (bytes > MAX_FILE_BYTES).then(|| format!("{name}: {bytes} bytes, expected at most {MAX_FILE_BYTES}"))
}

fn rust_file_problems(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !text.starts_with("//!") {
        problems
            .push(format!("{name}: expected `//!` on the first line, saying what the file turns into what"));
    }
    let lines = text.lines().count();
    if lines > MAX_RUST_LINES {
        problems.push(format!("{name}: {lines} lines, expected at most {MAX_RUST_LINES}; split it by noun"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(manifests: &[&str]) -> Vec<String> {
        let members: Vec<Manifest> =
            manifests.iter().map(|text| toml::from_str(text).expect("a small manifest")).collect();
        direction_problems(&members)
    }

    const SYM: &str = "[package]\nname = 'litz-sym'\n[dependencies]\nsmallvec = '1'\n";
    const IR: &str = "[package]\nname = 'litz-ir'\n[dependencies]\nlitz-sym.workspace = true\n";
    const OPS: &str = "[package]\nname = 'litz-ops'\n";

    #[test]
    fn crates_in_order_pass() {
        assert_eq!(problems(&[SYM, IR, OPS]), [""; 0]);
    }

    #[test]
    fn a_crate_below_is_refused() {
        assert_eq!(
            problems(&[IR, SYM]),
            ["litz-ir: depends on litz-sym, which is not above it in the root Cargo.toml"]
        );
    }

    #[test]
    fn a_crate_above_that_is_not_listed_is_refused() {
        let import = "[package]\nname = 'litz-import'\n[dependencies]\nlitz-ops = { path = '../litz-ops' }\n";
        assert_eq!(
            problems(&[SYM, IR, OPS, import]),
            ["litz-import: may not use litz-ops; it may use litz-ir, litz-sym"]
        );
    }

    #[test]
    fn build_and_target_dependencies_count() {
        let build = "[package]\nname = 'litz-import'\n[build-dependencies]\nlitz-ops.workspace = true\n";
        assert_eq!(problems(&[OPS, build]).len(), 1);
        let target =
            "[package]\nname = 'litz-import'\n[target.'cfg(unix)'.dependencies]\nlitz-ops.workspace = true\n";
        assert_eq!(problems(&[OPS, target]).len(), 1);
    }

    #[test]
    fn tests_may_use_what_is_above_and_nothing_below() {
        let import = "[package]\nname = 'litz-import'\n[dev-dependencies]\nlitz-ops.workspace = true\n";
        assert_eq!(problems(&[OPS, import]), [""; 0]);
        assert_eq!(problems(&[import, OPS]).len(), 1);
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        assert_eq!(
            problems(&["[package]\nname = 'litz-utils'\n"]),
            ["litz-utils: not in the table of what each crate may use (xtask/src/tidy.rs)"]
        );
    }

    #[test]
    fn the_table_itself_is_in_dependency_order() {
        for (place, (name, may_use)) in MAY_USE.iter().enumerate() {
            let above: Vec<&str> = MAY_USE[..place].iter().map(|(above, _)| *above).collect();
            assert!(may_use.iter().all(|used| above.contains(used)), "{name}");
        }
    }

    #[test]
    fn rust_files_start_with_their_purpose_and_stay_short() {
        assert_eq!(rust_file_problems("a.rs", "//! Turns a into b.\n"), [""; 0]);
        assert_eq!(rust_file_problems("a.rs", "\n//! Turns a into b.\n").len(), 1);
        assert_eq!(rust_file_problems("a.rs", "").len(), 1);
        let lines = |count: usize| "//! Turns a into b.\n".repeat(count);
        assert_eq!(rust_file_problems("a.rs", &lines(MAX_RUST_LINES)), [""; 0]);
        assert_eq!(rust_file_problems("a.rs", &lines(MAX_RUST_LINES + 1)).len(), 1);
    }

    #[test]
    fn files_stay_small() {
        assert_eq!(size_problem("a.pt2", MAX_FILE_BYTES), None);
        assert!(size_problem("a.pt2", MAX_FILE_BYTES + 1).is_some());
    }
}
