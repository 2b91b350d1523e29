//! Times other schedules of a model against its own, kernel by kernel, and keeps what is faster.
//!
//! Candidates are kernels of schedules that other settings of the scheduler give, and schedules in which a kernel of several
//! nests is cut in two; on GPUs also those by the plans that the scheduler holds to be slower. One after another takes the place of the kernel that covers the
//! same nests, those first whose launches take longest, and is proved with the schedule around it. The machine's speed drifts, so that a candidate
//! and what it would replace take turns and the median of the turns' ratios counts. In the end the result and what was
//! begun with take turns as whole models: the slower one is dropped.

mod candidates;
mod resident;

use crate::backends::{Objects, backend};
use crate::compiled::Compiled;
use crate::error::Error;
use crate::given::GivenSchedule;
use crate::kept::hash;
use crate::made_up;
use crate::model::Model;
use crate::options::{Options, Verify};
use crate::pipeline::Texts;
use crate::profile::Launches;
use crate::runner::{Runner, Stage};
pub use crate::tuned::{Tuned, found, keep};
use candidates::{Candidate, Change, Class};
use litz_ir::Diag;
use litz_ir::graph::Graph;
use litz_ir::loops::Loops;
use litz_ir::schedule::{Schedule, ScheduleStep};
use litz_runtime::Tensor;
use litz_runtime::tensor::Argument;
use resident::Resident;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// When tuning ends, if not by itself.
pub struct Budget<'a> {
    /// How long it may take, the last comparison included.
    pub time: Duration,
    /// Set by somebody who wants the best so far.
    pub stop: &'a AtomicBool,
}

/// What tuning is doing.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A candidate is about to be timed.
    Trying {
        /// The first step that it would run.
        kernel: &'a str,
        /// The setting that made it.
        variant: &'a str,
    },
    /// It cannot be proved, or not be compiled.
    Refused {
        /// The first step that it would run.
        kernel: &'a str,
        /// The setting that made it.
        variant: &'a str,
        /// Why.
        error: &'a Error,
    },
    /// It is faster, and stays.
    Kept {
        /// The first step that it runs.
        kernel: &'a str,
        /// How many steps.
        steps: usize,
        /// The setting that made it.
        variant: &'a str,
        /// The time of these steps before, over that of now.
        gain: f64,
    },
}

/// Turns of a candidate; as many again confirm it.
const TURNS: usize = 5;
/// Turns of the last comparison.
const LAST_TURNS: usize = 15;
/// How long a turn lasts, if a call is not longer.
const TURN: Duration = Duration::from_millis(20);
/// A kernel has to be so much faster: less is hard to tell from chance with so few turns.
const GAIN: f64 = 1.03;
/// A kernel that is so slow in one turn is so by no chance.
const HOPELESS: f64 = 0.85;
/// A whole call may seem so much slower where a kernel of it is faster.
const LOSS: f64 = 0.98;
/// The part of the budget that the last comparison gets at most.
const LAST_PART: u32 = 4;

/// Tunes a model for calls with these inputs, beginning with [`Options::schedule`] or the scheduler's own.
///
/// # Errors
/// As [`Model::compile`] and [`Compiled::run`], of the schedule to begin with.
pub fn tune(
    model: &Model,
    options: &Options,
    inputs: &[Tensor],
    budget: &Budget<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Tuned, Error> {
    tune_by(&clock, model, options, inputs, budget, tell)
}

/// As [`tune`], for calls with made-up inputs of the sizes that the model was exported with. What came of it is kept in the
/// folder of compiled objects, and read from there the next time, whatever the budget.
///
/// # Errors
/// As [`tune`]; where the model's inputs cannot be made up; where the host has operators in it that do something besides
/// giving results, which calls for the sake of time would do as well.
pub fn tune_once(
    model: &Model,
    options: &Options,
    budget: &Budget<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Tuned, Error> {
    if let Some(op) = with_effect(&model.imported.graph) {
        let message =
            format!("`{op}` does more than give results, and calls that are timed would do it, too");
        return Err(Error::unsupported(Diag::new("tuning-has-effects", message)));
    }
    if let Some(tuned) = found(model, options)? {
        return Ok(tuned);
    }
    let inputs = made_up::inputs(&made_up::of_model(model), &model.imported.graph.facts)?;
    let tuned = tune(model, options, &inputs, budget, tell)?;
    // What was cut short is not what there is to find.
    if !budget.stop.load(Ordering::Relaxed) {
        keep(model, &tuned, options)?;
    }
    Ok(tuned)
}

/// An operator of the host that a graph, or a subgraph of it, declares to have an effect.
fn with_effect(graph: &Graph) -> Option<&str> {
    let own = graph.ops.iter().find(|op| op.effect().is_some()).map(|op| &*op.schema.name);
    own.or_else(|| graph.subgraphs.iter().find_map(with_effect))
}

/// Calls a model so many times, and says how long it took.
type Clock<'a> = &'a dyn Fn(&Compiled, &[Argument<'_>], usize) -> Result<Turn, Error>;

/// As [`tune`], by a clock.
fn tune_by(
    clock: Clock<'_>,
    model: &Model,
    options: &Options,
    inputs: &[Tensor],
    budget: &Budget<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Tuned, Error> {
    let began = Instant::now();
    // The cache is for what ships.
    let verify = options.verify.min(Verify::Stages);
    let scheduled = model.scheduled(options)?.into_owned();
    let options = Options { profile: true, cache: None, dump: None, verify, ..scheduled };
    let mut quiet = |_: &str| {};
    let texts = model.texts(&options, Stage::Program, &mut Runner::new(verify, None, &mut quiet))?;
    let Texts { loops: Some(loops), schedule: Some(schedule), realized: Some(realized), .. } = texts else {
        return Err(Error::bug("tune", "a stage gave nothing"));
    };
    let backend = backend(&options)?;
    let objects = Objects::default();
    let start = compile(model, (&loops, &schedule), &options, &objects, None)?;
    let resident = Resident::new(model, &start, inputs)?;
    let inputs = resident.arguments()?;
    let mut tuner =
        Tuner { model, loops: &loops, options: &options, objects, inputs: &inputs, calls: 1, clock };
    let call = tuner.warm(&start)?;
    // Both sides of the last comparison, and a compilation that is under way when time is up.
    let last = call.mul_f64((2 * LAST_TURNS * tuner.calls) as f64) + began.elapsed();
    let deadline = began + budget.time - last.min(budget.time / LAST_PART);
    let is_over = || budget.stop.load(Ordering::Relaxed) || Instant::now() >= deadline;

    let mut best: Option<(Schedule, Compiled)> = None;
    let (mut tried, mut refused, mut kept) = (0, 0, 0);
    let mut trials: Vec<(Class, Candidate)> = Vec::new();
    if !is_over() {
        trials = candidates::all(&loops, &schedule, &realized, backend.target(), &options.heuristics);
        let turn = tuner.turn(&start)?;
        // The sort is stable: candidates of one class stay together.
        let time = |class: &Class| seconds(&turn, &start, class);
        trials.sort_by(|(one, _), (other, _)| time(other).total_cmp(&time(one)));
    }
    for (class, candidate) in &trials {
        if is_over() {
            break;
        }
        let (old_schedule, old) = best.as_ref().map_or((&schedule, &start), |(s, c)| (s, c));
        let (kernel, variant) = (candidate.kernel.as_str(), candidate.variant.as_str());
        let Some(new_schedule) = candidates::swapped(old_schedule, class, candidate) else { continue };
        tell(Event::Trying { kernel, variant });
        let like = Some(&start).filter(|_| matches!(candidate.change, Change::Kernels(_)));
        let new = match tuner.compile(&new_schedule, like) {
            Ok(new) => new,
            Err(error) => {
                tell(Event::Refused { kernel, variant, error: &error });
                refused += 1;
                continue;
            }
        };
        tried += 1;
        if let Some(gain) = tuner.gain(old, &new, class, &is_over)? {
            tell(Event::Kept { kernel, steps: class.steps.len(), variant, gain });
            best = Some((new_schedule, new));
            kept += 1;
        }
    }
    let (hashed, before) = (hash(&loops), hash(&schedule));
    let made = |schedule: &Schedule, gain, kept| Tuned {
        schedule: schedule.to_string(),
        gain,
        tried,
        refused,
        kept,
        loops: hashed.clone(),
        before: before.clone(),
    };
    let unchanged = made(&schedule, 1.0, 0);
    let Some((tuned, compiled)) = best else { return Ok(unchanged) };
    let gain =
        median(tuner.turns(&start, &compiled, LAST_TURNS)?.iter().map(|(old, new)| old.call / new.call));
    Ok(match gain > 1.0 {
        true => made(&tuned, gain, kept),
        false => unchanged,
    })
}

struct Tuner<'a> {
    model: &'a Model,
    loops: &'a Loops,
    options: &'a Options,
    /// Code of all kernels so far.
    objects: Objects,
    inputs: &'a [Argument<'a>],
    /// Calls of a turn.
    calls: usize,
    clock: Clock<'a>,
}

/// What was measured in one turn, in seconds for each call.
struct Turn {
    call: f64,
    /// By kernel and sizes.
    launches: BTreeMap<(usize, Vec<i64>), Launches>,
}

/// Compiles loops of a model by a schedule, with the constants of another one that has the same load steps.
fn compile(
    model: &Model,
    (loops, schedule): (&Loops, &Schedule),
    options: &Options,
    objects: &Objects,
    like: Option<&Compiled>,
) -> Result<Compiled, Error> {
    let given = GivenSchedule { name: "tuned".to_owned(), text: schedule.to_string() };
    model.compile_loops(loops, given, options, objects, like)
}

impl Tuner<'_> {
    fn compile(&self, schedule: &Schedule, like: Option<&Compiled>) -> Result<Compiled, Error> {
        compile(self.model, (self.loops, schedule), self.options, &self.objects, like)
    }

    /// Calls a model until its times mean something, and decides how many calls make a turn.
    fn warm(&mut self, compiled: &Compiled) -> Result<Duration, Error> {
        compiled.run(self.inputs)?;
        let begin = Instant::now();
        compiled.run(self.inputs)?;
        let call = begin.elapsed();
        self.calls = (TURN.as_secs_f64() / call.as_secs_f64().max(1e-9)).clamp(1.0, 1000.0) as usize;
        Ok(call)
    }

    fn turn(&self, compiled: &Compiled) -> Result<Turn, Error> {
        (self.clock)(compiled, self.inputs, self.calls)
    }

    /// Turns of both, in an order that alternates.
    fn turns(&self, old: &Compiled, new: &Compiled, count: usize) -> Result<Vec<(Turn, Turn)>, Error> {
        let pair = |at: usize| {
            if at.is_multiple_of(2) {
                let first = self.turn(old)?;
                Ok((first, self.turn(new)?))
            } else {
                let first = self.turn(new)?;
                Ok((self.turn(old)?, first))
            }
        };
        (0..count).map(pair).collect()
    }

    /// How many times as fast the steps of a class are, where it is enough to be kept. What is far slower in the first turn gets no more. What seems to be
    /// faster is measured again: of many candidates some are fast by chance.
    fn gain(
        &self,
        old: &Compiled,
        new: &Compiled,
        class: &Class,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<f64>, Error> {
        let mut gain = None;
        for (count, least) in [(1, HOPELESS), (TURNS, GAIN), (TURNS, GAIN)] {
            if is_over() {
                return Ok(None);
            }
            let turns = self.turns(old, new, count)?;
            let steps = |turn: &Turn, compiled: &Compiled| seconds(turn, compiled, class);
            let steps = median(turns.iter().map(|(a, b)| steps(a, old) / steps(b, new)));
            let call = median(turns.iter().map(|(a, b)| a.call / b.call));
            if !(steps >= least && call >= least.min(LOSS)) {
                return Ok(None);
            }
            gain = Some(steps);
        }
        Ok(gain)
    }
}

/// Times calls by the machine's clock, or where launches have memory of a device's own, to which nobody copies results but for this, by the device's: all of a
/// call's launches.
fn clock(compiled: &Compiled, inputs: &[Argument<'_>], calls: usize) -> Result<Turn, Error> {
    // The other model's data is in the caches.
    compiled.run(inputs)?;
    drop(compiled.profile.as_ref().map(|profile| profile.take()));
    let begin = Instant::now();
    for _ in 0..calls {
        compiled.run(inputs)?;
    }
    let elapsed = begin.elapsed();
    let launches = compiled.profile.as_ref().map_or(BTreeMap::new(), |profile| profile.take().kernels);
    let time = match resident::has_own_memory(compiled) {
        true => launches.values().map(|launches| launches.time).sum(),
        false => elapsed,
    };
    Ok(Turn { call: time.as_secs_f64() / calls as f64, launches })
}

/// What the statements of a class took in one call, in the kernels that run them.
fn seconds(turn: &Turn, compiled: &Compiled, class: &Class) -> f64 {
    let (Some(realized), Some(schedule)) = (&compiled.texts.realized, &compiled.texts.schedule) else {
        return f64::NAN;
    };
    let is_kernel = |step: &ScheduleStep| match step {
        ScheduleStep::Kernel(plan) => !plan.at_load,
        ScheduleStep::Extern { .. } => false,
    };
    let at_call = schedule.steps.iter().enumerate().filter(|(_, step)| is_kernel(step)).map(|(at, _)| at);
    let launched = at_call.zip(realized.launched());
    let launch = |name: &str| -> f64 {
        let kernel = realized.kernels.iter().position(|kernel| kernel.name == name);
        let launches =
            turn.launches.iter().filter(|(key, _)| Some(key.0) == kernel).map(|(_, launches)| launches);
        let (count, time) = launches.fold((0, 0.0), |(count, time), launches| {
            (count + launches.count, time + launches.time.as_secs_f64())
        });
        time / count as f64
    };
    let is_of_class = |at: &usize| match &schedule.steps[*at] {
        ScheduleStep::Kernel(plan) => plan.nests().iter().any(|name| class.runs(name)),
        ScheduleStep::Extern { .. } => false,
    };
    launched.filter(|(at, _)| is_of_class(at)).map(|(_, name)| launch(name)).sum()
}

/// The middle value, or the lower of the two middle ones; NaN where there is none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use crate::{contract, tensors};
    use std::path::PathBuf;

    fn examples(file: &str) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).join(file)
    }

    fn digits() -> (Model, tensors::Named) {
        let model = Model::open(examples("digits.pt2")).expect("it is a model");
        (model, tensors::read(&examples("digits.safetensors")).expect("readable"))
    }

    /// For a target whose code every x86-64 machine runs.
    fn options() -> Options {
        Options::for_target("cpu(isa=sse2, threads=2)".parse().expect("a target"))
    }

    fn texts(model: &Model) -> Texts {
        let mut quiet = |_: &str| {};
        let options = options();
        let mut run = Runner::new(options.verify, None, &mut quiet);
        model.texts(&options, Stage::Program, &mut run).expect("it is supported")
    }

    /// All candidates for the model's own schedule, which is the last.
    fn trials(texts: &Texts) -> (Vec<(Class, candidates::Candidate)>, &Schedule) {
        let (Some(loops), Some(schedule), Some(realized)) = (&texts.loops, &texts.schedule, &texts.realized)
        else {
            panic!("the pipeline went to the end");
        };
        let options = options();
        let target = options.target.expect("it is given");
        (candidates::all(loops, schedule, realized, &target, &options.heuristics), schedule)
    }

    fn given(schedule: impl ToString) -> Options {
        let given = GivenSchedule { name: "given".to_owned(), text: schedule.to_string() };
        Options { schedule: Some(given), ..options() }
    }

    /// Its largest kernel with a tile as loops, one point after the other: five times as slow.
    fn slow(schedule: &Schedule) -> String {
        let text = schedule.to_string();
        let (before, after) = text.split_once("  kernel k7 {").expect("there is one");
        let (own, others) = after.split_once("  kernel ").expect("it is not the last");
        let [rows, columns] = ["unroll ii in 4 {", "vector ji in 8 by 4 {"];
        assert!(own.contains(rows) && own.contains(columns), "{text}");
        let own = own.replace(rows, "for ii in 4 {").replace(columns, "for ji in 8 {");
        format!("{before}  kernel k7 {{{own}  kernel {others}")
    }

    #[test]
    fn every_candidate_computes_the_same_and_comes_in_the_same_order() {
        let (model, data) = digits();
        let (made, again) = (texts(&model), texts(&model));
        let ((trials, schedule), (others, _)) = (trials(&made), trials(&again));
        assert!(trials.len() > 20, "only {}", trials.len());
        for ((class, candidate), (_, other)) in trials.iter().zip(&others) {
            assert_eq!((&candidate.variant, &candidate.change), (&other.variant, &other.change));
            let swapped = candidates::swapped(schedule, class, candidate).expect("nothing is cut");
            let text = swapped.to_string();
            assert_ne!(text, schedule.to_string());
            let compiled = model.compile(&given(&text)).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let outputs = compiled.run(std::slice::from_ref(&data["images"])).expect("they fit");
            let logits = outputs[0].tensor().expect("one tensor");
            let verdict = contract::compare(logits, (&data["logits"]).into());
            assert_eq!(verdict.broken, None, "{}: {verdict:?}\n{text}", candidate.variant);
        }
    }

    #[test]
    fn what_was_found_is_read_from_the_cache_the_next_time() {
        let (model, _) = digits();
        let folder = std::env::temp_dir().join(format!("litz-tuned-{}", std::process::id()));
        let options = Options { cache: Some(folder.clone()), verify: Verify::Stages, ..options() };
        let stop = AtomicBool::new(false);
        let find = |time| {
            let mut trials = 0;
            let mut tell = |event: Event<'_>| trials += usize::from(matches!(event, Event::Trying { .. }));
            let tuned = tune_once(&model, &options, &Budget { time, stop: &stop }, &mut tell);
            (tuned.expect("it is supported"), trials)
        };
        let (found, tried) = find(Duration::from_secs(20));
        assert!(tried > 0);
        assert_eq!(find(Duration::from_secs(20)), (found, 0));
        std::fs::remove_dir_all(folder).expect("there");
    }

    #[test]
    fn what_is_slower_is_not_kept() {
        let (model, data) = digits();
        let made = texts(&model);
        let (trials, schedule) = trials(&made);
        let of_slow = |(_, candidate): &&(Class, candidates::Candidate)| candidate.kernel == "k7";
        let (class, _) = trials.iter().find(of_slow).expect("it has candidates");
        let inputs = [Argument::View(data["images"].view())];
        let options = Options { profile: true, ..options() };
        let loops = made.loops.as_ref().expect("made");
        let objects = Objects::default();
        let mut tuner = Tuner {
            model: &model,
            loops,
            options: &options,
            objects,
            inputs: &inputs,
            calls: 1,
            clock: &clock,
        };
        let fast = tuner.compile(schedule, None).expect("compiles");
        let slow = litz_ir::text::schedule::parse(&slow(schedule)).expect("a schedule");
        let slow = tuner.compile(&slow, Some(&fast)).expect("compiles");
        tuner.warm(&fast).expect("runs");
        let gain = |old, new| tuner.gain(old, new, class, &|| false).expect("runs");
        assert_eq!(gain(&fast, &slow), None);
        assert!(gain(&slow, &fast).is_some_and(|gain| gain > 1.5));
    }

    #[test]
    fn tuning_finds_what_is_faster_and_writes_what_is_accepted() {
        let (model, data) = digits();
        let made = texts(&model);
        let slow = slow(made.schedule.as_ref().expect("made"));
        let inputs = [data["images"].clone()];
        let mut kept = Vec::new();
        let mut tell = |event: Event<'_>| {
            if let Event::Kept { kernel, .. } = event {
                kept.push(kernel.to_owned());
            }
        };
        let stop = AtomicBool::new(false);
        let budget = Budget { time: Duration::from_secs(30), stop: &stop };
        let tuned = tune(&model, &given(&slow), &inputs, &budget, &mut tell).expect("it runs");
        assert!(tuned.gain > 1.5 && tuned.kept == kept.len() && kept.contains(&"k7".to_owned()), "{tuned:?}");
        let compiled = model.compile(&given(&tuned.schedule)).expect("it is proved again");
        let outputs = compiled.run(&inputs).expect("they fit");
        let verdict = contract::compare(outputs[0].tensor().expect("one"), (&data["logits"]).into());
        assert_eq!(verdict.broken, None, "{verdict:?}");
    }

    /// SC-18: a clock that gives two nests 3 ms in one kernel and 1 ms in each of two. Nothing else takes more or less time.
    #[test]
    fn a_slow_fusion_is_cut() {
        let (model, data) = digits();
        let pair = ["max_pool2d_border", "max_pool2d_border2"];
        let runs = |compiled: &Compiled, wanted: &[&str]| {
            let schedule = compiled.texts.schedule.as_ref().expect("made");
            let mut plans = schedule.steps.iter().filter_map(|step| match step {
                ScheduleStep::Kernel(plan) => Some(plan.nests()),
                ScheduleStep::Extern { .. } => None,
            });
            plans.any(|nests| nests == wanted)
        };
        let clock = |compiled: &Compiled, _: &[Argument<'_>], _: usize| {
            let realized = compiled.texts.realized.as_ref().expect("made");
            let ms = |from: &[String]| if from.len() > 1 && from[0] == pair[0] { 3 } else { 1 };
            let kernels = realized.kernels.iter().enumerate();
            let launches = kernels.map(|(at, kernel)| {
                let time = Duration::from_millis(ms(&kernel.from));
                ((at, Vec::new()), Launches { count: 1, time, shortest: time })
            });
            let launches: BTreeMap<(usize, Vec<i64>), Launches> = launches.collect();
            let call = if runs(compiled, &pair) { 9.0 } else { 8.0 };
            Ok(Turn { call, launches })
        };
        let inputs = [data["images"].clone()];
        let mut kept = Vec::new();
        let mut tell = |event: Event<'_>| {
            if let Event::Kept { variant, gain, .. } = event {
                kept.push((variant.to_owned(), gain));
            }
        };
        let stop = AtomicBool::new(false);
        let budget = Budget { time: Duration::from_secs(300), stop: &stop };
        let tuned = tune_by(&clock, &model, &options(), &inputs, &budget, &mut tell).expect("it runs");
        assert_eq!(kept, [("slow fusion: max_pool2d_border2 apart".to_owned(), 1.5)], "{tuned:?}");
        let compiled = model.compile(&given(&tuned.schedule)).expect("it is proved");
        assert!(!runs(&compiled, &pair) && runs(&compiled, &pair[..1]), "{}", tuned.schedule);
        let outputs = compiled.run(&inputs).expect("they fit");
        let verdict = contract::compare(outputs[0].tensor().expect("one"), (&data["logits"]).into());
        assert_eq!(verdict.broken, None, "{verdict:?}");
    }

    #[test]
    fn whoever_stops_it_gets_what_it_began_with() {
        let (model, data) = digits();
        let made = texts(&model);
        let own = made.schedule.as_ref().expect("made").to_string();
        let (stopped, running) = (AtomicBool::new(true), AtomicBool::new(false));
        for budget in [
            Budget { time: Duration::from_secs(60), stop: &stopped },
            Budget { time: Duration::ZERO, stop: &running },
        ] {
            let inputs = [data["images"].clone()];
            let tuned = tune(&model, &options(), &inputs, &budget, &mut |_| {}).expect("it runs");
            assert_eq!((tuned.schedule, tuned.gain, tuned.tried), (own.clone(), 1.0, 0));
        }
    }
}
