//! `litz explain` shows what became one kernel, what did not and why, and where memory goes.

use super::failure::{Exit, Failure};
use super::options::Compiling;
use super::report::{self, Table};
use super::{load, output, progress::Progress};
use litz::pipeline::Texts;
use litz::{Error, Runner, Stage};
use litz_ir::loops::{BufKind, Loops};
use litz_ir::schedule::{Schedule, Step};
use litz_schedule::FusionNote;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What to explain.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote
    model: PathBuf,
    /// Print every pair that was considered
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    common: Compiling,
}

/// Compiles as far as kernels and prints how they came about.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let model = load::open(&args.model)?;
    let options = args.common.options();
    let texts = {
        let progress = Progress::new();
        let mut say = |step: &str| progress.say(step);
        let mut run = Runner::new(options.verify, options.dump.clone(), &mut say);
        let texts = model.texts(&options, Stage::Program, &mut run)?;
        args.common.print_timings(&run.timings);
        texts
    };
    let Texts { loops: Some(loops), schedule: Some(schedule), notes, realized: Some(realized), .. } = &texts
    else {
        return Err(Error::bug("explain", "a stage gave nothing").into());
    };
    let (load, call): (Vec<&Step>, Vec<&Step>) = schedule.steps.iter().partition(|s| s.at_load());
    let counts = format!(
        "{} statements in {} kernels and calls: {} when the model is loaded, {} at every call; {} distinct kernels",
        loops.stmts.len(),
        schedule.steps.len(),
        load.len(),
        call.len(),
        realized.kernels.len()
    );
    let memory = memory(loops, schedule, args.all);
    let (steps, fusion) = (steps(&call), fusion(notes, args.all));
    output::print(format_args!("{counts}\n\n{steps}\n{fusion}\n{memory}\n"))?;
    Ok(Exit::Ok)
}

/// One line for each step: its grid and the nests it runs.
fn steps(steps: &[&Step]) -> Table {
    let mut table = Table::new(&["step", "parallel", "nests"]);
    for step in steps {
        match step {
            Step::Kernel(plan) => {
                let mut nests: Vec<&str> = Vec::new();
                plan.body.iter().for_each(|t| {
                    t.each_leaf(&mut |leaf| {
                        if !nests.contains(&leaf.nest.as_str()) {
                            nests.push(&leaf.nest);
                        }
                    });
                });
                let grid: Vec<String> = plan.grid.iter().map(|a| a.extent.to_string()).collect();
                table.row([plan.name.clone(), grid.join(" x "), nests.join(" ")]);
            }
            Step::Extern { name, .. } => table.row([name.clone(), "call".to_owned(), String::new()]),
        }
    }
    table
}

/// Pairs shown of each kind.
const EXAMPLES: usize = 3;

/// A few pairs, or all.
fn some(pairs: &[String], all: bool) -> String {
    let shown = if all { pairs.len() } else { EXAMPLES.min(pairs.len()) };
    let more = if pairs.len() > shown { ", ..." } else { "" };
    format!("{}{more}", pairs[..shown].join(", "))
}

/// How many pairs were fused, and why the others were not.
fn fusion(notes: &[FusionNote], all: bool) -> Table {
    let mut verdicts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for note in notes {
        let verdict = note.verdict.as_ref().map_or_else(|reason| reason.slug(), |()| "fused");
        verdicts.entry(verdict).or_default().push(format!("{} -> {}", note.producer, note.consumer));
    }
    let mut table = Table::new(&["verdict", ">pairs", "such as"]);
    for (verdict, pairs) in verdicts {
        table.row([verdict.to_owned(), pairs.len().to_string(), some(&pairs, all)]);
    }
    table
}

/// Bytes of pools beside those of the buffers they hold, by the sizes that the model was exported with, and what is written
/// over what.
fn memory(loops: &Loops, schedule: &Schedule, all: bool) -> String {
    let hint = |e: litz_sym::Expr| loops.facts.hint(e).unwrap_or(0) as f64;
    let size = |name: &str| {
        let buf = loops.bufs.values().find(|b| b.name == name);
        buf.map_or(0.0, |b| hint(b.span()) * b.dtype.size() as f64)
    };
    let mut text = String::new();
    for pool in &schedule.pools {
        let held: f64 = pool.places.iter().map(|p| size(&p.0)).sum();
        let (bytes, what) = match pool.bytes {
            Some(bytes) => (hint(bytes), bytes.to_string()),
            None => (size(&pool.name), "returned".to_owned()),
        };
        text += &format!(
            "memory {}: {} for {} buffers of {} together ({what})\n",
            pool.name,
            report::bytes(bytes),
            pool.places.len(),
            report::bytes(held),
        );
    }
    if !schedule.reuses.is_empty() {
        let over: Vec<String> =
            schedule.reuses.iter().map(|reuse| format!("{} over {}", reuse.to, reuse.from)).collect();
        let held: f64 = schedule.reuses.iter().map(|reuse| size(&reuse.to)).sum();
        text += &format!(
            "{} buffers of {} together are written over others: {}\n",
            over.len(),
            report::bytes(held),
            some(&over, all)
        );
    }
    let locals: usize = schedule
        .steps
        .iter()
        .map(|s| match s {
            Step::Kernel(plan) => plan.locals.len(),
            Step::Extern { .. } => 0,
        })
        .sum();
    let temps = loops.bufs.values().filter(|b| b.kind == BufKind::Temp).count();
    text += &format!("{locals} of {temps} intermediate buffers never leave their kernel");
    text
}
