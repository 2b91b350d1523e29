//! Puts faults into the compiler and says whether `litz minify` and `litz bisect` find them.
//!
//! ```text
//! faults try [--corpus FOLDER] [NAME ..]      each fault, or those that are named: a line each, and what is left of its graph
//! faults attempt NAME CASE CHECK              one attempt, in a process of its own
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use litz::attempt::Check;
use litz::bisect::bisect;
use litz::case::Case;
use litz::minify::{Budget, Children, Event, answer, minify};
use litz_testing::faults::{FAULTS, Fault, Place};

const USAGE: &str = "usage: faults (try [--corpus FOLDER] [NAME ..] | attempt NAME CASE CHECK)";

/// The most nodes that may be left of a graph, and how many faults there may be of which more are.
const MOST_NODES: usize = 3;
const MOST_EXCEPTIONS: usize = 2;

/// The longest that one may take.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["attempt", name, case, check] => one(name, case.as_ref(), check),
        ["try", "--corpus", folder, ref names @ ..] => several(folder.as_ref(), names),
        ["try", ref names @ ..] => several("target/corpus".as_ref(), names),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn one(name: &str, case: &Path, check: &str) -> Result<(), String> {
    let fault = Fault::named(name).ok_or_else(|| format!("no such fault: {name}"))?;
    answer(case, &fault.options(), check.parse()?).map_err(|error| error.to_string())
}

/// What became of a fault.
struct Tried {
    nodes: usize,
    is_small: bool,
    is_named: bool,
    is_in_time: bool,
}

fn several(corpus: &Path, names: &[&str]) -> Result<(), String> {
    let mut all = Vec::new();
    for fault in FAULTS.iter().filter(|fault| names.is_empty() || names.contains(&fault.name)) {
        let Some(case) = fault.case(corpus) else {
            println!("{}: there is no such model in {}", fault.name, corpus.display());
            continue;
        };
        all.push(tried(fault, &case)?);
    }
    let count = |is: fn(&Tried) -> bool| all.iter().filter(|tried| is(tried)).count();
    let (small, named, in_time) =
        (count(|one| one.is_small), count(|one| one.is_named), count(|one| one.is_in_time));
    println!(
        "of {}: {small} to at most {MOST_NODES} nodes, {named} named by bisection, {in_time} in time",
        all.len()
    );
    let most = all.iter().map(|tried| tried.nodes).max().unwrap_or(0);
    let is_found = small + MOST_EXCEPTIONS.min(all.len() / 10) >= all.len()
        && named == all.len()
        && in_time == all.len();
    let found = is_found && !all.is_empty();
    if found {
        Ok(())
    } else {
        Err(format!("the tools do not find what they have to; {most} nodes are left at most"))
    }
}

fn tried(fault: &'static Fault, case: &Case) -> Result<Tried, String> {
    let start = Instant::now();
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let command = |path: &Path, check: Check| {
        let mut command = Command::new(&program);
        command.args(["attempt", fault.name]).arg(PathBuf::from(path)).arg(check.name());
        command
    };
    let text = |error: litz::Error| error.to_string();
    // Short, since attempts that come to no end take all of it; the interpreter is given longer where that is not looked for.
    let limit = Duration::from_secs(if fault.check == Check::Verify { 120 } else { 15 });
    let children = Children::new(&command, limit).map_err(text)?;
    let budget = Budget { time: LIMIT, stop: &AtomicBool::new(false) };
    let mut attempt = |case: &Case, check| children.attempt(case, check);
    let mut tell = |event: Event<'_>| match event {
        Event::Begins(what) if std::env::var_os("VERBOSE").is_some() => {
            eprintln!("{:5.1} {what}", start.elapsed().as_secs_f64())
        }
        Event::Begins(_) | Event::Fails(_) | Event::Smaller { .. } | Event::MadeUp(_) => {}
    };
    let found = minify(case, fault.check, &mut attempt, &budget, &mut tell).map_err(text)?;
    let (name, all) = (fault.name, case.graph.nodes.len());
    let Some(found) = found else {
        println!("{name}: {all} nodes, NOT FOUND after {:.1} s", start.elapsed().as_secs_f64());
        return Ok(Tried { nodes: all, is_small: false, is_named: false, is_in_time: true });
    };
    let minified = start.elapsed();
    let culprit = bisect(&found.case, &fault.options(), &found.outcome, &mut |_| {}).map_err(text)?;
    let step = culprit.as_ref().map_or("none", |culprit| &*culprit.step);
    // Of code and kernels the kernel is named, too.
    let needs_kernel = matches!(fault.place, Place::Code(_) | Place::KernelPass(_));
    let has_kernel =
        culprit.as_ref().is_some_and(|culprit| culprit.kernel.is_some() && !culprit.nodes.is_empty());
    let is_named = step == fault.step() && (has_kernel || !needs_kernel);
    let nodes = found.case.graph.nodes.len();
    println!(
        "{name}: {all} nodes to {nodes} in {:.1} s and {} attempts, bisected to {step}{} in {:.1} s: {}",
        minified.as_secs_f64(),
        found.attempts,
        if is_named { "" } else { " WRONGLY" },
        (start.elapsed() - minified).as_secs_f64(),
        found.outcome,
    );
    print!("{}", found.case.graph);
    let (is_small, is_in_time) = (nodes <= MOST_NODES, start.elapsed() < LIMIT);
    Ok(Tried { nodes, is_small, is_named, is_in_time })
}
