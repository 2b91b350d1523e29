//! Prints what becomes of models on GPUs, one line for each model and target: `plans MODEL.pt2..`.
//!
//! Kernels, nests of more than one point and those of them that one thread runs, contractions of 16-bit operands and those of them that no
//! instruction takes, milliseconds from the graph to kernels, and the same for a CPU; each in a process of its own.

use std::error::Error;
use std::path::Path;
use std::process::Command;

use litz::pipeline::Texts;
use litz::{Model, Options, Runner, Stage, Verify};
use litz_ir::target::Target;
use litz_testing::plans::{Plans, TARGETS};

const CPU: &str = "cpu(isa=avx512-amx, threads=2)";

/// Asks for one target, in a process of its own.
const ALONE: &str = "--target";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, target, model] = &args[..]
        && flag == ALONE
    {
        return alone(model, target);
    }
    for model in &args {
        let path = Path::new(model);
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if let Err(error) = rows(&name, model) {
            println!("{name}: {}", error.to_string().lines().next().unwrap_or_default());
        }
    }
    Ok(())
}

fn rows(name: &str, model: &str) -> Result<(), Box<dyn Error>> {
    let cpu = of_process(model, CPU)?;
    for target in TARGETS {
        let Row { plans, time, unproved } = of_process(model, target)?;
        println!("{name} {target}: {plans}, {time:.0} ms, cpu {:.0} ms, unproved {unproved}", cpu.time);
    }
    Ok(())
}

/// What is printed of a model and a target.
struct Row {
    plans: String,
    time: f64,
    unproved: String,
}

/// The row of a process of its own: what an earlier compilation has asked, a later one of a process knows.
fn of_process(model: &str, target: &str) -> Result<Row, Box<dyn Error>> {
    let found = Command::new(std::env::current_exe()?).args([ALONE, target, model]).output()?;
    let text = String::from_utf8(found.stdout)?;
    match text.lines().collect::<Vec<_>>()[..] {
        [plans, time, unproved] => {
            Ok(Row { plans: plans.to_owned(), time: time.parse()?, unproved: unproved.to_owned() })
        }
        _ => Err(String::from_utf8_lossy(&found.stderr).into_owned().into()),
    }
}

/// Prints the three lines of a row.
fn alone(model: &str, target: &str) -> Result<(), Box<dyn Error>> {
    let (texts, time) = compiled(&Model::open(Path::new(model))?, target)?;
    let (Some(loops), Some(schedule)) = (&texts.loops, &texts.schedule) else { return Ok(()) };
    let Plans { kernels, nests, of_one_thread, contractions, without_instruction } =
        Plans::of(loops, schedule);
    println!(
        "{kernels} kernels, {nests} nests, {} of one thread {of_one_thread:?}, \
         {contractions} contractions, {} without {without_instruction:?}",
        of_one_thread.len(),
        without_instruction.len()
    );
    let unproved: Vec<String> =
        texts.unproved.iter().map(|unproved| format!("{:?}: {}", unproved.nests, unproved.why)).collect();
    println!("{time}\n{unproved:?}");
    Ok(())
}

/// What a model becomes for a target, and the milliseconds that it takes.
fn compiled(model: &Model, target: &str) -> Result<(Texts, f64), Box<dyn Error>> {
    let target: Target = target.parse()?;
    let options = Options { cache: None, threads: 1, ..Options::for_target(target) };
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Nothing, None, &mut silent);
    let start = milliseconds();
    let texts = model.texts(&options, Stage::Kernel, &mut runner)?;
    Ok((texts, milliseconds() - start))
}

/// Time that this thread has run, which other programs do not lengthen as much as time on the clock. 0 where the system does not say it.
fn milliseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}
