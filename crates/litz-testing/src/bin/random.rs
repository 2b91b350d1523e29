//! Tries random models by number, one line for each, so that whoever started it sees where it crashed.
//!
//! ```text
//! random run SEED FIRST COUNT     try models
//! random show SEED NUMBER         print a model
//! random dump SEED NUMBER FOLDER  write the texts of all its stages
//! random grow SEED FIRST COUNT    compile models and say what they leave in the process
//! random shrink SEED NUMBER       try a model and, where it is wrong, print a smaller one that is
//! random export SEED FIRST COUNT PREFIX     write models for run_models.py
//! random torch SEED FIRST COUNT PREFIX      compare with what it saved
//! ```
//!
//! Behind `random gpu`, every model is for a GPU. Before a model runs, `try N` is printed, afterwards `right N ELEMENTS OPEN`, `unsupported N WHY` or `wrong N WHY`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use litz_ir::target::Isa;
use litz_sym::Interned;
use litz_testing::devices;
use litz_testing::models::shrink;
use litz_testing::torch::{self, Returned};
use litz_testing::trial::{self, Pools, Verdict};

const USAGE: &str =
    "usage: random [gpu] ((run | grow) SEED FIRST COUNT | show SEED NUMBER | shrink SEED NUMBER |
               dump SEED NUMBER FOLDER | export SEED FIRST COUNT PREFIX | torch SEED FIRST COUNT PREFIX)";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let gpu = words.first().is_some_and(|word| word == "gpu");
    words.drain(..usize::from(gpu));
    let isas = if gpu { Vec::new() } else { devices::isas() };
    let numbers: Vec<u64> = words.iter().skip(1).map_while(|word| word.parse().ok()).collect();
    let others: Vec<&Path> = words.iter().skip(1 + numbers.len()).map(Path::new).collect();
    let done = match (words.first().map_or("", String::as_str), &numbers[..], &others[..]) {
        ("run", &[seed, first, count], []) => run((seed, first, count), &isas, None),
        ("grow", &[seed, first, count], []) => grow((seed, first, count), &isas),
        ("show", &[seed, number], []) => show(seed, number, &isas),
        ("dump", &[seed, number], [folder]) => dump((seed, number), &isas, folder),
        ("shrink", &[seed, number], []) => smaller(seed, number, &isas),
        ("export", &[seed, first, count], [prefix]) => {
            torch::export(seed, first..first + count, prefix, &isas).map_err(std::io::Error::other)
        }
        ("torch", &[seed, first, count], [prefix]) => torch::returned(prefix)
            .map_err(std::io::Error::other)
            .and_then(|returned| run((seed, first, count), &isas, Some(&returned))),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Compiles models to objects, each twice, and prints what the process has interned and has in memory, after the first, after so many
/// each time, and after the last.
fn grow((seed, first, count): (u64, u64, u64), isas: &[Isa]) -> std::io::Result<()> {
    const EACH: u64 = 50;
    std::panic::set_hook(Box::new(|_| {}));
    let mut out = std::io::stdout();
    let mut again = 0;
    for done in 0..count {
        let (model, target) = trial::numbered(seed, first + done, isas);
        // What cannot be compiled leaves something, too.
        let compile = || drop(trial::compile(&model, &target));
        compile();
        let once = litz_sym::interned();
        compile();
        let Interned { nodes, names, bytes } = litz_sym::interned();
        again += nodes + names - once.nodes - once.names;
        if done == 0 || (done + 1) % EACH == 0 || done + 1 == count {
            let resident = resident().map_or("?".to_owned(), |bytes| (bytes >> 10).to_string());
            writeln!(
                out,
                "{} models: {nodes} nodes, {names} names, {} KiB interned; {again} made by second compilations; {resident} KiB resident",
                done + 1,
                bytes >> 10
            )?;
        }
    }
    Ok(())
}

/// Bytes of memory that the process has, where the system says it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Tries models, against PyTorch's results where they are given.
fn run(
    (seed, first, count): (u64, u64, u64),
    isas: &[Isa],
    returned: Option<&Returned>,
) -> std::io::Result<()> {
    let mut pools = Pools::default();
    // What panics is reported with the model.
    std::panic::set_hook(Box::new(|_| {}));
    let mut out = std::io::stdout();
    for number in first..first + count {
        writeln!(out, "try {number}")?;
        out.flush()?;
        let (model, target) = trial::numbered(seed, number, isas);
        let verdict = match returned {
            None => trial::run(&model, &target, &mut pools),
            Some(returned) => torch::compare(number, &model, &target, &mut pools, returned),
        };
        let line = match verdict {
            Verdict::Right(compared) => format!("right {number} {} {}", compared.elements, compared.open),
            Verdict::Unsupported(why) => format!("unsupported {number} {}", one_line(&why)),
            Verdict::Wrong(why) => format!("wrong {number} {}", one_line(&why)),
        };
        writeln!(out, "{line}")?;
        out.flush()?;
    }
    Ok(())
}

fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("; ").chars().take(400).collect()
}

fn show(seed: u64, number: u64, isas: &[Isa]) -> std::io::Result<()> {
    let (model, target) = trial::numbered(seed, number, isas);
    write!(std::io::stdout(), "{}", trial::describe(&model, &target))
}

fn dump((seed, number): (u64, u64), isas: &[Isa], folder: &Path) -> std::io::Result<()> {
    let (model, mut target) = trial::numbered(seed, number, isas);
    target.options.dump = Some(folder.to_owned());
    trial::compile(&model, &target).map_err(std::io::Error::other)
}

fn smaller(seed: u64, number: u64, isas: &[Isa]) -> std::io::Result<()> {
    let mut pools = Pools::default();
    let (model, target) = trial::numbered(seed, number, isas);
    let mut why = String::new();
    let small = shrink::shrink(&model, &mut |model| match trial::run(model, &target, &mut pools) {
        Verdict::Wrong(what) => {
            why = what;
            true
        }
        Verdict::Right(_) | Verdict::Unsupported(_) => false,
    });
    let text = trial::describe(&small, &target);
    if why.is_empty()
        && let Verdict::Wrong(what) = trial::run(&small, &target, &mut pools)
    {
        why = what;
    }
    writeln!(std::io::stdout(), "{text}// {}", one_line(&why))
}
