//! Makes a call that fails a call of a few nodes that fails in the same way.
//!
//! Values of the whole graph are recorded once, by the interpreter of loops. A *part* of the graph has some of its nodes; what these read and no node of
//! the part makes is an input that holds what was recorded, so that any part can be called, and any part is right or wrong by itself:
//!
//! ```text
//! %a = exp(%x)                                   %b: f32[8] = input
//! %b = mm(%a, %w)     nodes 3 and 4 of these     %c = softmax(%b)
//! %c = softmax(%b)    ---------------------->    %d = mul(%c, 3)
//! %d = mul(%c, 3)                                return %d
//! return %d
//! ```
//!
//! Bisection finds the shortest beginning that fails, then how many of the nodes that its last node hangs on are needed, the nearest first. Both
//! take attempts by the logarithm of the graph's length. What is left is a handful of nodes, of which delta debugging leaves out what it can; then
//! sizes shrink. Each attempt compiles its part alone.

mod child;
mod part;
mod smaller;
mod statics;

use crate::attempt::{Check, Outcome};
use crate::case::Case;
use crate::definition::{NEEDED, definition};
use crate::error::Error;
pub use child::{Children, answer};
use litz_ir::graph::{Arg, Graph, Value};
use litz_ir::loops::Stmt;
use litz_passes::graph::{GraphSettings, PASSES};
use part::{Part, Whole, made_by};
use smaller::Numbers;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long to go on.
pub struct Budget<'a> {
    /// For all attempts together.
    pub time: Duration,
    /// Ends it where it is.
    pub stop: &'a AtomicBool,
}

/// What happens on the way.
pub enum Event<'a> {
    /// What the whole does.
    Fails(&'a Outcome),
    /// What is about to be done.
    Begins(&'a str),
    /// A smaller case that fails was found.
    Smaller {
        /// Nodes that it has.
        nodes: usize,
        /// Attempts so far.
        attempts: usize,
    },
    /// Contents of values cannot be recorded, for this reason, and are made up.
    MadeUp(&'a str),
}

/// What was found.
pub struct Minified {
    /// The smallest case that fails.
    pub case: Case,
    /// How it fails.
    pub outcome: Outcome,
    /// What shows it.
    pub check: Check,
    /// Attempts that were made.
    pub attempts: usize,
    /// Whether there was no time to look for a smaller one.
    pub is_cut_short: bool,
}

/// Makes attempts, here or in other processes.
pub type Attempt<'a> = dyn FnMut(&Case, Check) -> Result<Outcome, Error> + 'a;

/// Looks for the smallest case that fails as `case` does; none where nothing of what `check` looks for is wrong with it.
///
/// # Errors
/// [`Error::Invalid`] where the case itself is refused; those of `attempt`.
pub fn minify(
    case: &Case,
    check: Check,
    attempt: &mut Attempt<'_>,
    budget: &Budget<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Option<Minified>, Error> {
    let (case, check, outcome) = first(case, check, attempt, tell)?;
    if let Outcome::Refused(why) = &outcome {
        return Err(Error::Invalid(vec![litz_ir::Diag::new("refused", why)]));
    }
    let deadline = Instant::now() + budget.time;
    let is_found = outcome.is_failure();
    let mut search = Search { best: case, outcome, check, attempt, budget, deadline, tell, attempts: 1 };
    let ended = if is_found {
        (search.tell)(Event::Fails(&search.outcome));
        search.reduce()
    } else if check == Check::Verify {
        search.look_at_parts()
    } else {
        return Ok(None);
    };
    let is_cut_short = match ended {
        Ok(()) => false,
        Err(Stop::Over) => true,
        Err(Stop::Error(error)) => return Err(error),
    };
    let Search { best, outcome, check, attempts, .. } = search;
    Ok(outcome.is_failure().then_some(Minified { case: best, outcome, check, attempts, is_cut_short }))
}

/// Instructions that the interpreter of loops runs in about ten seconds.
const MOST_INSTRUCTIONS: u128 = 500_000_000;

/// Smaller forms of a case that are tried, at most.
const MOST_FORMS: usize = 3;

/// How the first attempts end, of which case, and which check shows it: the least does, so that nothing is called where compiling is what fails. Where the
/// interpreter would take long, smaller sizes are tried first, which may fail as well.
fn first(
    case: &Case,
    check: Check,
    attempt: &mut Attempt<'_>,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<(Case, Check, Outcome), Error> {
    for less in [Check::Compile, Check::Crash].into_iter().filter(|less| *less <= check) {
        let outcome = attempt(case, less)?;
        if outcome != Outcome::Right || less == check {
            return Ok((case.clone(), less, outcome));
        }
    }
    if check == Check::Verify && instructions(case).is_none_or(|count| count > MOST_INSTRUCTIONS) {
        tell(Event::Begins("the interpreter would take long: trying smaller inputs"));
        let case = statics::with_numbers(case).unwrap_or_else(|| case.clone());
        let smaller = catch_unwind(AssertUnwindSafe(|| smaller::of_callers(&case))).unwrap_or_default();
        // Where none fails, errors of rounding may hide what is wrong, and the least is the one to look at in parts.
        let mut least = None;
        for smaller in smaller.into_iter().take(MOST_FORMS) {
            let outcome = attempt(&smaller, check)?;
            if outcome.is_failure() {
                return Ok((smaller, check, outcome));
            }
            if outcome == Outcome::Right {
                least.get_or_insert(smaller);
            }
        }
        if let Some(least) = least {
            return Ok((least, check, Outcome::Right));
        }
    }
    let outcome = attempt(case, check)?;
    Ok((case.clone(), check, outcome))
}

/// How many instructions define the results of a case; none where that is not known.
fn instructions(case: &Case) -> Option<u128> {
    let loops = catch_unwind(AssertUnwindSafe(|| definition(&case.graph).ok())).ok()??;
    let sizes = case.sizes();
    let nests = loops.stmts.iter().filter_map(|stmt| match stmt {
        Stmt::Nest(nest) => Some(nest),
        Stmt::Extern(_) | Stmt::Recurrence(_) => None,
    });
    nests
        .map(|nest| {
            let extents = nest.all_axes().map(|axis| axis.extent.eval(&|sym| sizes.get(&sym).copied()));
            let points = extents.map(|extent| Some(extent?.max(0) as u128)).product::<Option<u128>>()?;
            points.checked_mul(nest.body.len() as u128)
        })
        .sum()
}

/// Why a search ends before its end.
enum Stop {
    /// There is no time left, or somebody wants it to end.
    Over,
    /// An attempt cannot be made.
    Error(Error),
}

struct Search<'a> {
    /// The smallest that fails.
    best: Case,
    /// How it fails; of the whole, as long as it does not.
    outcome: Outcome,
    check: Check,
    attempt: &'a mut Attempt<'a>,
    budget: &'a Budget<'a>,
    deadline: Instant,
    tell: &'a mut dyn FnMut(Event<'_>),
    attempts: usize,
}

impl Search<'_> {
    /// Whether a case fails like the whole. Then it is the best.
    fn take(&mut self, case: Case) -> Result<bool, Stop> {
        if Instant::now() > self.deadline || self.budget.stop.load(Ordering::Relaxed) {
            return Err(Stop::Over);
        }
        self.attempts += 1;
        let outcome = (self.attempt)(&case, self.check).map_err(Stop::Error)?;
        // A child that dies of the signal which ends the search has shown nothing.
        if self.budget.stop.load(Ordering::Relaxed) {
            return Err(Stop::Over);
        }
        let is_like = match self.outcome.is_failure() {
            true => outcome.is_like(&self.outcome),
            false => outcome.is_failure(),
        };
        if is_like {
            (self.best, self.outcome) = (case, outcome);
            let (nodes, attempts) = (self.best.graph.nodes.len(), self.attempts);
            (self.tell)(Event::Smaller { nodes, attempts });
        }
        Ok(is_like)
    }

    fn take_part(&mut self, part: &Option<Part>) -> Result<bool, Stop> {
        match part {
            Some(part) => self.take(part.case.clone()),
            None => Ok(false),
        }
    }

    /// All of it, for a whole that fails.
    fn reduce(&mut self) -> Result<(), Stop> {
        let whole = self.whole()?;
        let nodes = whole.graph.nodes.len();
        self.cut(&whole, 0, nodes)?;
        self.shrink()
    }

    /// Errors of rounding that a long graph allows may hide what is wrong in it: looks at halves, quarters, and so on, each called with what
    /// was recorded.
    fn look_at_parts(&mut self) -> Result<(), Stop> {
        let mut whole = Whole::of(&self.functional(), true);
        self.record(&mut whole);
        if whole.is_certain(&returned(&whole.graph)) {
            return Ok(());
        }
        (self.tell)(Event::Begins(
            "the whole agrees with the interpreter, within its rounding errors: looking at parts",
        ));
        let nodes = whole.graph.nodes.len();
        let mut length = nodes.div_ceil(2);
        while length > 0 {
            for start in (0..nodes).step_by(length) {
                let end = (start + length).min(nodes);
                let kept = marked(nodes, start..end);
                if self.take_part(&whole.part(&kept, &whole.frontier(start, end)))? {
                    self.cut(&whole, start, end)?;
                    return self.shrink();
                }
            }
            length = if length == 1 { 0 } else { length.div_ceil(2) };
        }
        Ok(())
    }

    /// The whole in its simplest form that fails, with what its values hold.
    fn whole(&mut self) -> Result<Whole, Stop> {
        (self.tell)(Event::Begins("without writes in place, with one result, with sizes that are numbers"));
        let functional = self.functional();
        let is_pure = functional.graph.to_string() == self.best.graph.to_string() || self.take(functional)?;
        if let Outcome::Wrong { output, .. } = self.outcome {
            let case = with_result(&self.best, Some(output));
            if let Some(case) = case {
                self.take(case)?;
            }
        }
        if !self.best.graph.updates.is_empty()
            && let Some(case) = with_result(&self.best, None)
        {
            self.take(case)?;
        }
        if let Some(case) = statics::with_numbers(&self.best) {
            self.take(case)?;
        }
        let mut whole = Whole::of(&self.best, is_pure);
        if self.check != Check::Compile {
            self.record(&mut whole);
        }
        Ok(whole)
    }

    /// Records what values hold, if that can be computed.
    fn record(&mut self, whole: &mut Whole) {
        (self.tell)(Event::Begins("recording values by the interpreter"));
        let case = &self.best;
        let recorded = catch_unwind(AssertUnwindSafe(|| whole.record(case)));
        let why = match recorded {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => crate::reproducer::message(panic.as_ref()).to_owned(),
        };
        (self.tell)(Event::MadeUp(&why));
    }

    /// The best with what it writes in place as results.
    fn functional(&self) -> Case {
        let mut graph = self.best.graph.clone();
        let rewritten = catch_unwind(AssertUnwindSafe(|| {
            graph.tell_subgraphs();
            let needed = PASSES.iter().filter(|pass| NEEDED.contains(&pass.name) && pass.name != "decompose");
            for pass in needed {
                let run =
                    &mut |graph: &mut Graph| (pass.run)(graph, &GraphSettings { freeze: false }).map(drop);
                graph.each(run).ok()?;
            }
            Some(graph)
        }));
        match rewritten {
            Ok(Some(graph)) => Case { graph, ..self.best.clone() },
            Ok(None) | Err(_) => self.best.clone(),
        }
    }

    /// Finds few of the nodes from `start` to `end` that fail; all of them together do.
    fn cut(&mut self, whole: &Whole, start: usize, end: usize) -> Result<(), Stop> {
        let nodes = whole.graph.nodes.len();
        (self.tell)(Event::Begins("looking for the shortest beginning that fails"));
        let (mut low, mut high) = (start, end);
        while high - low > 1 {
            let middle = low.midpoint(high);
            let part = whole.part(&marked(nodes, start..middle), &whole.frontier(start, middle));
            if self.take_part(&part)? { high = middle } else { low = middle }
        }
        if high == start {
            return Ok(());
        }
        (self.tell)(Event::Begins("looking for what its last node needs"));
        let last: Vec<Value> = made_by(&whole.graph.nodes[high - 1]).collect();
        let all = if high == nodes { returned(&whole.graph) } else { whole.frontier(start, high) };
        let near: Vec<usize> = whole.nearest(high).into_iter().filter(|&at| at >= start).collect();
        let of_near = |count: usize| {
            let mut kept = vec![false; nodes];
            near[..count].iter().for_each(|&at| kept[at] = true);
            kept
        };
        let (mut outputs, mut kept) = (last, None);
        if let Some(found) = self.fewest(near.len(), &mut |count| whole.part(&of_near(count), &outputs))? {
            kept = Some(found);
        }
        if kept.is_none() {
            outputs = all;
            let behind = |count: usize| whole.part(&marked(nodes, high - count..high), &outputs);
            kept = self.fewest(high - start, &mut |count| behind(count))?;
        }
        let mut kept = kept.unwrap_or_else(|| marked(nodes, start..high));
        (self.tell)(Event::Begins("leaving out nodes"));
        self.leave_out(whole, &mut kept, &outputs)?;
        let mut at = 0;
        while outputs.len() > 1 && at < outputs.len() {
            let mut fewer = outputs.clone();
            fewer.remove(at);
            let part = whole.part(&kept, &fewer);
            if self.take_part(&part)? {
                outputs = fewer;
                kept = part.map_or(kept, |part| part.kept);
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// The fewest of `most` things whose part fails, where with more of them it does as well: the nodes of that part. None where no part fails.
    fn fewest(
        &mut self,
        most: usize,
        part: &mut dyn FnMut(usize) -> Option<Part>,
    ) -> Result<Option<Vec<bool>>, Stop> {
        let (mut low, mut high, mut kept) = (0, 1.min(most), None);
        while kept.is_none() && high > low {
            let tried = part(high);
            match self.take_part(&tried)? {
                true => kept = tried,
                false => (low, high) = (high, (2 * high).min(most)),
            }
        }
        while kept.is_some() && high - low > 1 {
            let middle = low.midpoint(high);
            let tried = part(middle);
            match self.take_part(&tried)? {
                true => (high, kept) = (middle, tried),
                false => low = middle,
            }
        }
        Ok(kept.map(|part| part.kept))
    }

    /// Delta debugging: leaves out halves, quarters, and so on of the nodes, down to single ones, as long as that fails.
    fn leave_out(&mut self, whole: &Whole, kept: &mut Vec<bool>, outputs: &[Value]) -> Result<(), Stop> {
        let count = |kept: &[bool]| kept.iter().filter(|kept| **kept).count();
        let mut length = count(kept).div_ceil(2);
        while length > 0 && count(kept) > 1 {
            let mut has_found = false;
            let positions: Vec<usize> = (0..kept.len()).filter(|&at| kept[at]).collect();
            for chunk in positions.chunks(length) {
                let mut fewer = kept.clone();
                chunk.iter().for_each(|&at| fewer[at] = false);
                if fewer == *kept || count(&fewer) == 0 {
                    continue;
                }
                let part = whole.part(&fewer, outputs);
                if self.take_part(&part)? {
                    *kept = part.map_or(fewer, |part| part.kept);
                    has_found = true;
                }
            }
            length = if length > 1 { length.div_ceil(2) } else { usize::from(has_found) };
        }
        Ok(())
    }

    /// Makes sizes smaller, as long as that fails.
    fn shrink(&mut self) -> Result<(), Stop> {
        (self.tell)(Event::Begins("with smaller sizes"));
        let mut done: Vec<i64> = Vec::new();
        while let Some(from) = smaller::extents(&self.best).into_iter().find(|extent| !done.contains(extent))
        {
            done.push(from);
            // 1, 2, 4, .. and half of it.
            let tries = (0..62).map(|power| 1 << power).take_while(|to| *to < from);
            'smaller: for to in tries {
                for numbers in [Numbers::Replaced, Numbers::Kept] {
                    let best = &self.best;
                    let resized =
                        catch_unwind(AssertUnwindSafe(|| smaller::resized(best, from, to, numbers)));
                    if let Ok(Some(case)) = resized
                        && self.take(case)?
                    {
                        break 'smaller;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The values that a graph returns, and those that it stores at its end.
fn returned(graph: &Graph) -> Vec<Value> {
    let mut values = Vec::new();
    graph.outputs.iter().for_each(|output| output.each_value(&mut |value| values.push(value)));
    values.extend(graph.updates.iter().map(|&(_, source)| source));
    values
}

/// The case with one of its results alone, or with all of them, and without updates: their contents are results.
fn with_result(case: &Case, output: Option<usize>) -> Option<Case> {
    let mut graph = case.graph.clone();
    let is_input = |target: &Value| graph.inputs.contains(target);
    let contents =
        graph.updates.iter().filter(|(target, _)| is_input(target)).map(|&(_, source)| Arg::Value(source));
    let mut outputs: Vec<Arg> = graph.outputs.iter().cloned().chain(contents).collect();
    if let Some(output) = output {
        outputs = vec![outputs.get(output)?.clone()];
    }
    graph.outputs = outputs;
    graph.updates.clear();
    Some(Case { graph, expected: None, ..case.clone() })
}

/// A mark for each of so many nodes, set for those in a range.
fn marked(nodes: usize, range: std::ops::Range<usize>) -> Vec<bool> {
    (0..nodes).map(|at| range.contains(&at)).collect()
}
