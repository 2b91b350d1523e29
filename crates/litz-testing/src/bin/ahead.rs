//! Tries programs that were compiled as C ahead of time on a machine: `ahead MACHINE FOLDER [--one-of N] [--cases FAMILY,..] [--random N] [--models DIR]
//! [--only NAME,..]`.
//!
//! MACHINE is `x86-64` or `aarch64`, which QEMU emulates where this machine is another. File tests are one executable, of which `--one-of` leaves
//! parts out; `--cases` adds the recorded calls of operators, of these families or `all`, `--random` so many random models; each exported model of DIR is one for itself. Prints a table of each, and at the end counts; status 1 where anything is wrong. `--instructions`
//! compares the instructions of kernels with those of x86-64.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use litz_testing::ahead::{
    Counted, Machine, Prepared, call, case_tests, count, file_tests, model_test, random_tests,
};
use litz_testing::cases::{self, Case, FAMILIES};

/// Programs of one executable, at most.
const BATCH: usize = 300;
/// Of random models.
const SEED: u64 = 1;
const THREADS: usize = 2;

struct Args {
    machine: Machine,
    folder: PathBuf,
    one_of: usize,
    cases: Vec<String>,
    random: usize,
    models: Option<PathBuf>,
    only: Vec<String>,
    instructions: bool,
}

fn parse() -> Result<Args, String> {
    let usage = "expected MACHINE FOLDER [--one-of N] [--cases FAMILY,..] [--random N] [--models DIR] [--only NAME,..] [--instructions]";
    let mut words = std::env::args().skip(1);
    let mut word = || words.next();
    let machine = match word().as_deref() {
        Some("x86-64") => Machine::X86,
        Some("aarch64") => Machine::Aarch64,
        _ => return Err(usage.into()),
    };
    let folder = PathBuf::from(word().ok_or(usage)?);
    let mut args = Args {
        machine,
        folder,
        one_of: 1,
        cases: Vec::new(),
        random: 0,
        models: None,
        only: Vec::new(),
        instructions: false,
    };
    while let Some(flag) = word() {
        match flag.as_str() {
            "--one-of" => args.one_of = word().and_then(|n| n.parse().ok()).ok_or(usage)?,
            "--cases" => args.cases = word().ok_or(usage)?.split(',').map(str::to_owned).collect(),
            "--random" => args.random = word().and_then(|n| n.parse().ok()).ok_or(usage)?,
            "--models" => args.models = Some(word().ok_or(usage)?.into()),
            "--only" => args.only = word().ok_or(usage)?.split(',').map(str::to_owned).collect(),
            "--instructions" => args.instructions = true,
            _ => return Err(usage.into()),
        }
    }
    Ok(args)
}

/// How many passed, were refused, and are wrong.
#[derive(Default)]
struct Tally {
    passed: usize,
    refused: usize,
    wrong: usize,
}

impl Tally {
    fn row(&mut self, name: &str, result: &Result<(), String>, note: &str) {
        let said = match result {
            Ok(()) => {
                self.passed += 1;
                return println!("{name:<40} pass{note}");
            }
            Err(why) => why.lines().take(2).collect::<Vec<_>>().join(" "),
        };
        self.wrong += 1;
        println!("{name:<40} WRONG {said}");
    }

    fn refused(&mut self, name: &str, why: &str) {
        self.refused += 1;
        println!("{name:<40} unsupported: {}", why.lines().next().unwrap_or_default());
    }

    fn end(&self, what: &str) {
        println!("{what}: {} pass, {} unsupported, {} wrong\n", self.passed, self.refused, self.wrong);
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args = parse()?;
    let mut wrong = 0;
    if args.only.is_empty() {
        let folder = args.folder.join("files");
        fresh(&folder)?;
        wrong += files(&args, &folder)?;
    }
    if !args.cases.is_empty() {
        let mut tally = Tally::default();
        let is_wanted = |name: &&str| args.cases.iter().any(|wanted| wanted == "all" || wanted == name);
        for family in FAMILIES.into_iter().filter(is_wanted) {
            let cases: Vec<Case> = cases::read(family)?.into_iter().step_by(args.one_of).collect();
            for batch in cases.chunks(BATCH) {
                recorded(&args, &mut tally, &|folder| case_tests(folder, args.machine, family, batch))?;
            }
        }
        tally.end("recorded calls");
        wrong += tally.wrong;
    }
    if args.random > 0 {
        let mut tally = Tally::default();
        for first in (0..args.random).step_by(BATCH) {
            let count = BATCH.min(args.random - first);
            let range = (first as u64, count);
            recorded(&args, &mut tally, &|folder| random_tests(folder, args.machine, SEED, range))?;
        }
        tally.end("random models");
        wrong += tally.wrong;
    }
    if let Some(models) = &args.models {
        wrong += exported(&args, models)?;
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a batch of calls as one executable. Those that are right are counted and not printed.
fn recorded(
    args: &Args,
    tally: &mut Tally,
    prepare: &dyn Fn(&Path) -> Result<Vec<Prepared>, String>,
) -> Result<(), Box<dyn Error>> {
    let folder = args.folder.join("calls");
    fresh(&folder)?;
    let (mut subjects, mut checks) = (Vec::new(), Vec::new());
    for prepared in prepare(&folder)? {
        match prepared {
            Ok(test) => {
                let (subject, check) = test.split();
                subjects.push(subject);
                checks.push(check);
            }
            Err((name, why)) => tally.refused(&name, &why),
        }
    }
    let outcomes = call(&folder, args.machine, &subjects, THREADS)?;
    for (check, outcome) in checks.iter().zip(&outcomes) {
        match check.check(outcome) {
            Ok(()) => tally.passed += 1,
            wrong => tally.row(&check.name, &wrong, ""),
        }
    }
    Ok(())
}

fn fresh(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir_all(folder)
}

fn files(args: &Args, folder: &Path) -> Result<usize, Box<dyn Error>> {
    let start = Instant::now();
    let (tests, refused) = file_tests(folder, args.machine, args.one_of)?;
    let (subjects, checks): (Vec<_>, Vec<_>) = tests.into_iter().map(|test| test.split()).unzip();
    eprintln!("{} file tests compiled in {:.0} s", subjects.len(), start.elapsed().as_secs_f64());
    let outcomes = call(folder, args.machine, &subjects, THREADS)?;
    let mut tally = Tally::default();
    for (check, outcome) in checks.iter().zip(&outcomes) {
        tally.row(&check.name, &check.check(outcome), "");
    }
    refused.iter().for_each(|(name, why)| tally.refused(name, why));
    tally.end("file tests");
    if args.instructions {
        let mut own = Vec::new();
        for subject in &subjects {
            own.extend(count(folder, args.machine, subject)?);
        }
        let other = args.folder.join("files-x86-64");
        fresh(&other)?;
        let (tests, _) = file_tests(&other, Machine::X86, args.one_of)?;
        let mut theirs = Vec::new();
        for test in tests {
            theirs.extend(count(&other, Machine::X86, &test.split().0)?);
        }
        let names: BTreeMap<String, String> = subjects
            .iter()
            .zip(&checks)
            .map(|(subject, check)| (subject.id.clone(), check.name.clone()))
            .collect();
        instructions(&own, &theirs, &names);
    }
    Ok(tally.wrong)
}

/// Prints the instructions of kernels that both machines have, and the ratio of all together.
fn instructions(own: &[Counted], theirs: &[Counted], names: &BTreeMap<String, String>) {
    let theirs: BTreeMap<&str, usize> =
        theirs.iter().map(|one| (one.kernel.as_str(), one.instructions)).collect();
    println!("{:<48} {:>10} {:>10} {:>6}", "kernel", "aarch64", "x86-64", "ratio");
    let (mut sums, mut logarithms, mut count) = ((0, 0), 0.0, 0);
    for one in own {
        let Some(&other) = theirs.get(one.kernel.as_str()) else { continue };
        let (id, kernel) = one.kernel.split_once('_').unwrap_or((&one.kernel, ""));
        let name = format!("{} {kernel}", names.get(id).map_or(id, String::as_str));
        let ratio = one.instructions as f64 / other.max(1) as f64;
        println!("{name:<48} {:>10} {other:>10} {ratio:>6.2}", one.instructions);
        sums = (sums.0 + one.instructions, sums.1 + other);
        logarithms += ratio.max(f64::MIN_POSITIVE).ln();
        count += 1;
    }
    let mean = (logarithms / f64::from(count.max(1))).exp();
    let all = sums.0 as f64 / sums.1.max(1) as f64;
    println!(
        "{count} kernels: {} and {} instructions, {all:.3} in all, {mean:.3} on average\n",
        sums.0, sums.1
    );
}

fn exported(args: &Args, models: &Path) -> Result<usize, Box<dyn Error>> {
    let mut names: Vec<String> = std::fs::read_dir(models)?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".pt2")?.to_owned()))
        .filter(|name| args.only.is_empty() || args.only.contains(name))
        .collect();
    names.sort();
    let mut tally = Tally::default();
    for name in names.into_iter().step_by(args.one_of.max(1)) {
        let data = data_files(models, &name)?;
        if data.is_empty() {
            continue;
        }
        let start = Instant::now();
        let folder = args.folder.join("model");
        fresh(&folder)?;
        let path = models.join(format!("{name}.pt2"));
        let test = match model_test(&folder, args.machine, &path, &data, THREADS as u32) {
            Ok(test) => test,
            Err(error @ litz::Error::Unsupported(_)) => {
                tally.refused(&name, &error.to_string());
                continue;
            }
            Err(error) => {
                tally.row(&name, &Err(error.to_string()), "");
                continue;
            }
        };
        let (subject, check) = test.split();
        let result = call(&folder, args.machine, std::slice::from_ref(&subject), THREADS)
            .and_then(|outcomes| outcomes.iter().try_for_each(|outcome| check.check(outcome)));
        tally.row(&name, &result, &format!(" {:.1} s", start.elapsed().as_secs_f64()));
    }
    tally.end("models");
    Ok(tally.wrong)
}

/// `NAME.safetensors`, and `NAME@SIZES.safetensors`, as `cargo xtask corpus` writes them; `NAME.core` has those of `NAME`.
fn data_files(folder: &Path, name: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let base = name.strip_suffix(".core").unwrap_or(name);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        let rest = file.strip_prefix(base).and_then(|rest| rest.strip_suffix(".safetensors"));
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@')) {
            files.push(folder.join(file));
        }
    }
    files.sort();
    Ok(files)
}
