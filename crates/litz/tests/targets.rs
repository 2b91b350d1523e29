//! The models of the repository compile for every target of `benches/targets.txt`, everything verified.

#![allow(missing_docs, reason = "a test")]

use litz::check::{Reach, check, parse_targets};
use litz::target::{Cpu, GpuIsa, Isa};
use litz::{Error, Model, Target};
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn targets() -> Vec<(Target, Reach)> {
    parse_targets(include_str!("../../../benches/targets.txt")).expect("they are targets")
}

#[test]
fn the_targets_differ_in_all_that_decisions_depend_on() {
    let targets: Vec<(Cpu, Reach)> =
        targets().into_iter().filter_map(|(target, reach)| Some((*target.cpu()?, reach))).collect();
    assert_eq!(targets.len(), 24);
    let gpu = |target| match target {
        Target::Gpu(gpu) => Some(gpu.isa),
        Target::Cpu(_) => None,
    };
    let gpus: Vec<GpuIsa> = self::targets().into_iter().filter_map(|(target, _)| gpu(target)).collect();
    assert_eq!(gpus, GpuIsa::ALL);
    let values = |of: &dyn Fn(&Cpu) -> i64| {
        let mut values: Vec<i64> = targets.iter().map(|(target, _)| of(target)).collect();
        values.sort_unstable();
        values.dedup();
        values
    };
    assert_eq!(values(&|target| i64::from(target.isa.vector_bytes())), [16, 32, 64]);
    assert_eq!(values(&|target| target.isa as i64).len(), 5);
    assert_eq!(values(&|target| i64::from(target.threads)), [1, 2, 7, 64]);
    assert_eq!(values(&|target| target.l1_bytes), [32 << 10, 48 << 10]);
    assert_eq!(values(&|target| target.l2_bytes), [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20]);
    let neon: Vec<Reach> =
        targets.iter().filter(|(target, _)| target.isa == Isa::Neon).map(|&(_, reach)| reach).collect();
    assert_eq!(neon, [Reach::Object; 4]);
}

#[test]
fn models_of_the_repository_compile_for_every_target() {
    let mut models = archives("crates/litz-import/tests/golden/2.15");
    models.extend(archives("examples"));
    let (mut compiled, mut wrong) = (0, Vec::new());
    for path in &models {
        let checked = Model::open(path).and_then(|model| check(&model, &targets()));
        match checked {
            Ok(checked) => {
                compiled += 1;
                let failed = checked.iter().filter_map(|one| Some((one.target, one.result.as_ref().err()?)));
                wrong.extend(failed.map(|(target, error)| format!("{}, {target}: {error}", path.display())));
            }
            Err(Error::Unsupported(_) | Error::Import(_)) => {}
            Err(error) => wrong.push(format!("{}: {error}", path.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compiled >= 10, "only {compiled} of {} were supported", models.len());
}

fn archives(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(ROOT).join(folder)).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pt2"));
    paths.sort();
    paths
}
