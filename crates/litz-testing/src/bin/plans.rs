//! Prints what becomes of models on GPUs, one line for each model and target: `plans MODEL.pt2..`.
//!
//! Kernels, nests of more than one point and those of them that one thread runs, contractions of 16-bit operands and those of them that no
//! instruction takes, milliseconds from the graph to kernels, and the same for a CPU.

use std::error::Error;
use std::path::Path;

use litz::pipeline::Texts;
use litz::{Model, Options, Runner, Stage, Verify};
use litz_ir::target::Target;
use litz_testing::plans::Plans;

const TARGETS: [&str; 3] =
    ["gpu(isa=sm80, units=108)", "gpu(isa=sm90, units=132)", "gpu(isa=sm100, units=148)"];

const CPU: &str = "cpu(isa=avx512-amx, threads=2)";

fn main() {
    for model in std::env::args().skip(1) {
        let path = Path::new(&model);
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let result = Model::open(path).map_err(Into::into).and_then(|model| row(&name, &model));
        if let Err(error) = result {
            println!("{name}: {}", error.to_string().lines().next().unwrap_or_default());
        }
    }
}

fn row(name: &str, model: &Model) -> Result<(), Box<dyn Error>> {
    let (_, cpu) = compiled(model, CPU)?;
    for target in TARGETS {
        let (texts, time) = compiled(model, target)?;
        let (Some(loops), Some(schedule)) = (&texts.loops, &texts.schedule) else { continue };
        let Plans { kernels, nests, of_one_thread, contractions, without_instruction } =
            Plans::of(loops, schedule);
        let unproved =
            texts.unproved.iter().map(|unproved| format!("{:?}: {}", unproved.nests, unproved.why));
        println!(
            "{name} {target}: {kernels} kernels, {nests} nests, {} of one thread {of_one_thread:?}, \
             {contractions} contractions, {} without {without_instruction:?}, {time:.0} ms, cpu {cpu:.0} ms, unproved {:?}",
            of_one_thread.len(),
            without_instruction.len(),
            unproved.collect::<Vec<_>>()
        );
    }
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
