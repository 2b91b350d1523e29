//! `litz explain` shows what became one kernel, what did not and why, and where memory goes.

mod partitions;

use super::failure::{Exit, Failure};
use super::format::{self, Table};
use super::options::Compiling;
use super::{load, output};
use litz::explain::{self, Step, Verdict};
use litz::pipeline::Texts;
use litz::progress::Progress;
use litz::{Error, Runner, Stage, Unproved};
use litz_ir::loops::{BufKind, Loops};
use litz_ir::schedule::{KernelPlan, Schedule, ScheduleStep, Tree};
use litz_passes::loops::in_place;
use litz_passes::loops::renaming::{InPlaceNote, NotInPlace};
use litz_passes::loops::updates;
use litz_schedule::{FusionNote, NoFuse};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What to explain.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote, or the text of a graph without constants: `.litz`
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Print every pair that was considered
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    common: Compiling,
}

/// Compiles as far as kernels and prints how they came about.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let model = load::open(&args.model, &args.which)?;
    let options = args.common.options();
    let texts = {
        let progress = Progress::start();
        let mut say = |step: &str| progress.say(step);
        let mut run = Runner::new(options.verify, options.dump.clone(), &mut say);
        let texts = model.texts(&options, Stage::Program, &mut run)?;
        args.common.print_timings(&run.timings);
        texts
    };
    let Texts {
        graph: Some(graph),
        loops: Some(loops),
        schedule: Some(schedule),
        notes,
        unproved,
        realized: Some(realized),
    } = &texts
    else {
        return Err(Error::bug("explain", "a stage gave nothing").into());
    };
    let all_steps = explain::steps(loops, schedule);
    let (load, call): (Vec<&Step<'_>>, Vec<&Step<'_>>) = all_steps.iter().partition(|step| step.at_load);
    let counts = format!(
        "{} statements in {} kernels and calls: {} when the model is loaded, {} at every call; {} distinct kernels",
        loops.stmts.len(),
        schedule.steps.len(),
        load.len(),
        call.len(),
        realized.kernels.len()
    );
    let memory = memory(loops, schedule, args.all);
    let (steps, fusion) = (steps(call.iter().copied()), fusion(notes, args.all));
    let counts = format!("{counts}; {}{}", self::unproved(unproved), on_one_thread(schedule));
    let mut lowered = litz_ops::lower(graph).map_err(Error::Invalid)?;
    let mut copies = in_place::rewrite(&mut lowered);
    // What is left of the updates was refused by the last passes.
    copies.extend(updates::rewrite(&mut loops.clone()));
    let memory = format!("{}{memory}", in_place(&copies, args.all));
    let functions = functions(loops, schedule, "", args.all);
    let partitions = partitions::text(realized, &schedule.target);
    output::print(format_args!("{counts}\n\n{steps}\n{fusion}\n{memory}\n{functions}{partitions}"))?;
    Ok(Exit::Ok)
}

/// What functions run, those that data chooses and repeats: their steps and memory, for one call of each. One that is inside of another
/// has the names of both.
fn functions(loops: &Loops, schedule: &Schedule, around: &str, all: bool) -> String {
    let mut text = String::new();
    for (function, own) in loops.functions.iter().zip(&schedule.functions) {
        let name = format!("{around}@{}", function.name);
        let (statements, count) = (function.stmts.len(), own.steps.len());
        let table = steps(&explain::steps(function, own));
        let memory = memory(function, own, all);
        text +=
            &format!("\n{name}: {statements} statements in {count} kernels and calls\n\n{table}\n{memory}\n");
        text += &functions(function, own, &format!("{name} "), all);
    }
    text
}

/// How many kernels were given up because they are not proved, and which.
fn unproved(unproved: &[Unproved]) -> String {
    let mut text = format!("{} kernels not proved", unproved.len());
    for Unproved { nests, why } in unproved {
        text += &format!("\nnot proved, run one by one: {}: {why}", nests.join(" "));
    }
    text
}

/// Of a GPU's schedule which kernels of several points have one thread, if any do: each point waits for the one before.
fn on_one_thread(schedule: &Schedule) -> String {
    let is_one = |plan: &&KernelPlan| {
        let (mut has_threads, mut has_points) = (!plan.grid.is_empty(), false);
        plan.body.iter().for_each(|tree| {
            tree.visit(&mut |tree| {
                if let Tree::Loop { kind, axis, .. } = tree {
                    has_threads |= kind.level().is_some();
                    has_points |= !axis.extent.is_one();
                }
            });
        });
        has_points && !has_threads
    };
    let plans = schedule.steps.iter().filter_map(|step| match step {
        ScheduleStep::Kernel(plan) => Some(plan),
        ScheduleStep::Extern { .. } => None,
    });
    let plans: Vec<&KernelPlan> = plans.filter(|_| schedule.target.cpu().is_none()).filter(is_one).collect();
    if plans.is_empty() {
        return String::new();
    }
    let names: Vec<String> =
        plans.iter().map(|plan| format!("{} ({})", plan.name, plan.nests().join(" "))).collect();
    format!("; {} on one thread of the GPU: {}", plans.len(), names.join(", "))
}

/// One line for each step: its grid, the bytes that it moves and its operations, by the sizes that the model was exported with,
/// the time that the target needs for these at least, where its rates are known, and the nests it runs, with a `|` between those
/// that share a launch alone.
fn steps<'a>(steps: impl IntoIterator<Item = &'a Step<'a>>) -> Table {
    let mut table = Table::new(&["step", "parallel", ">bytes", ">flop", ">least ms", "nests"]);
    let none = || "-".to_owned();
    for Step { name, kernel, .. } in steps {
        let Some(kernel) = kernel else {
            table.row([(*name).to_owned(), "call".to_owned(), none(), none(), none(), String::new()]);
            continue;
        };
        let parts: Vec<String> = kernel.parts.iter().map(|nests| nests.join(" ")).collect();
        table.row([
            (*name).to_owned(),
            kernel.grid(),
            format::bytes(kernel.bytes as f64),
            format::count(kernel.flops as f64),
            kernel.least.map_or_else(none, |seconds| format!("{:.3}", 1e3 * seconds)),
            parts.join(" | "),
        ]);
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

/// How many pairs were fused, why the others were not, and the bytes of memory traffic that each kind saves, or would have
/// saved; those that cost most come first.
fn fusion(notes: &[FusionNote], all: bool) -> String {
    if notes.is_empty() {
        return "no fusion was considered\n".to_owned();
    }
    let verdicts = explain::verdicts(notes);
    let mut table = Table::new(&["verdict", ">pairs", ">bytes", "such as"]);
    for verdict in &verdicts {
        let pairs: Vec<String> = verdict.notes.iter().map(|note| pair(note)).collect();
        table.row([
            verdict.name().to_owned(),
            verdict.notes.len().to_string(),
            format::bytes(verdict.bytes()),
            some(&pairs, all),
        ]);
    }
    let of = |is_refused: bool| -> f64 {
        verdicts.iter().filter(|verdict| verdict.reason.is_some() == is_refused).map(Verdict::bytes).sum()
    };
    let mut text = format!(
        "{table}\nbytes that a call does not store and load for what was fused: {}; would not, for what was refused: {}\n",
        format::bytes(of(false)),
        format::bytes(of(true))
    );
    if let Some(verdict) = verdicts.iter().find(|verdict| verdict.reason == Some(NoFuse::Memory)) {
        let (saved, growth) = (format::bytes(verdict.bytes()), format::bytes(verdict.growth()));
        text += &format!("memory: {saved} would be saved by {growth} more in use at once\n");
    }
    text
}

/// `a -> b (1.5 KiB)`, and `a -> b (1.5 KiB against 4.0 MiB)` where memory would grow by so much.
fn pair(note: &FusionNote) -> String {
    let bytes = format::bytes(note.bytes as f64);
    let against = match note.growth {
        0 => String::new(),
        growth => format!(" against {}", format::bytes(growth as f64)),
    };
    format!("{} -> {} ({bytes}{against})", note.producer, note.consumer)
}

/// How many changed copies took the memory of their bases, and why the others did not, with the bytes that these copy; nothing
/// where there are none.
fn in_place(notes: &[InPlaceNote], all: bool) -> String {
    let mut verdicts: BTreeMap<Option<NotInPlace>, Vec<&InPlaceNote>> = BTreeMap::new();
    notes.iter().for_each(|note| verdicts.entry(note.verdict.err()).or_default().push(note));
    let considered = notes.len();
    let line = |(reason, notes): (Option<NotInPlace>, Vec<&InPlaceNote>)| {
        let names: Vec<String> =
            notes.iter().map(|note| format!("{} over {}", note.result, note.base)).collect();
        let bytes = format::bytes(notes.iter().map(|note| note.bytes as f64).sum());
        let what = match reason {
            None => "in place".to_owned(),
            Some(reason) => format!("not in place, {}", reason.slug()),
        };
        format!("{what}: {} of {} changed copies, {bytes}: {}\n", names.len(), considered, some(&names, all))
    };
    verdicts.into_iter().map(line).collect()
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
            format::bytes(bytes),
            pool.places.len(),
            format::bytes(held),
        );
    }
    if !schedule.reuses.is_empty() {
        let over: Vec<String> =
            schedule.reuses.iter().map(|reuse| format!("{} over {}", reuse.to, reuse.from)).collect();
        let held: f64 = schedule.reuses.iter().map(|reuse| size(&reuse.to)).sum();
        text += &format!(
            "{} buffers of {} together reuse the memory of others in place: {}\n",
            over.len(),
            format::bytes(held),
            some(&over, all)
        );
    }
    let locals: usize = schedule
        .steps
        .iter()
        .map(|s| match s {
            ScheduleStep::Kernel(plan) => {
                plan.locals().iter().filter(|local| local.buffer().is_some()).count()
            }
            ScheduleStep::Extern { .. } => 0,
        })
        .sum();
    let temps = loops.bufs.values().filter(|b| b.kind == BufKind::Temp).count();
    text += &format!("{locals} of {temps} intermediate buffers never leave their kernel");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(producer: &str, consumer: &str, verdict: Result<(), NoFuse>, bytes: i64) -> FusionNote {
        FusionNote { producer: producer.to_owned(), consumer: consumer.to_owned(), verdict, bytes, growth: 0 }
    }

    #[test]
    fn copies_are_counted_by_what_became_of_them() {
        let note = |result: &str, verdict| InPlaceNote {
            result: result.to_owned(),
            base: "x".to_owned(),
            bytes: 256,
            verdict,
        };
        let notes =
            [note("a", Err(NotInPlace::StillRead)), note("b", Ok(())), note("c", Err(NotInPlace::StillRead))];
        let expected = "in place: 1 of 3 changed copies, 256 B: b over x\n\
            not in place, still-read: 2 of 3 changed copies, 512 B: a over x, c over x\n";
        assert_eq!(in_place(&notes, false), expected);
        assert_eq!(in_place(&[], false), "");
    }

    #[test]
    fn what_costs_most_comes_first() {
        let notes = [
            note("a", "b", Ok(()), 512),
            note("b", "c", Err(NoFuse::Footprint), 1024),
            note("b", "d", Err(NoFuse::OtherPoints), 3072),
            note("e", "f", Err(NoFuse::Footprint), 4096),
            note("g", "h", Err(NoFuse::LoadTime), 0),
        ];
        // 4 KiB and 1 KiB for want of room, 3 KiB for other points, 8 KiB together.
        let expected = "\
verdict       pairs    bytes  such as
fused             1    512 B  a -> b (512 B)
footprint         2  5.0 KiB  e -> f (4.0 KiB), b -> c (1.0 KiB)
other-points      1  3.0 KiB  b -> d (3.0 KiB)
load-time         1      0 B  g -> h (0 B)

bytes that a call does not store and load for what was fused: 512 B; would not, for what was refused: 8.0 KiB
";
        assert_eq!(fusion(&notes, false), expected);
        assert_eq!(fusion(&[], false), "no fusion was considered\n");
    }
}
