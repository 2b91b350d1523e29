//! Reports steps that read memory which nothing has written.

use std::collections::{HashMap, HashSet};

use litz_sym::Rel;

use crate::program::{KernelAccesses, Program, ProgramStep, Slot, outward};
use crate::verify::Report;

/// Reports each slot that is read before anything has written to it, once: `use-before-write`.
///
/// A slot has contents when the caller or the model gives them, or when a step has written to it, to what it lies in, or to something in
/// it. Two slots that lie in one memory at different times do not write for each other:
///
/// ```text
/// alloc pool: u8[64]
/// view a = pool + 0
/// view b = pool + 0
/// launch @k(x, a)      // writes a
/// launch @k(b, y)      // error: b holds what is left of a
/// ```
///
/// Neither does an input that the caller gives up for what is placed inside of it. Kernels that are not known read nothing.
pub(super) fn read_before_written(report: &mut Report, program: &Program, kernels: &KernelAccesses<'_>) {
    let mut contents = Contents::new(program);
    let mut reported = HashSet::new();
    let mut check = |report: &mut Report, contents: &Contents<'_>, slot: Slot, place: &str| {
        if contents.is_missing(slot) && reported.insert(slot) {
            let name = program.slots.get(slot).map_or("?", |data| &data.name);
            let message = format_args!("{place}: reads `{name}`, which nothing has written");
            report.fail("use-before-write", message);
        }
    };
    for step in program.load.iter().chain(&program.steps) {
        let effects = program.effects(step, kernels);
        effects.reads().for_each(|slot| check(report, &contents, slot, &program.place(step)));
        contents.happen(step, effects.writes());
    }
    for slot in program.read_at_end() {
        check(report, &contents, slot, "the end of a call");
    }
}

/// Which slots hold something.
struct Contents<'a> {
    program: &'a Program,
    /// What each view lies in.
    around: HashMap<Slot, Slot>,
    /// What views of it are written.
    inside: HashSet<Slot>,
    written: HashSet<Slot>,
    /// Inputs whose memory is used for other things.
    donated: HashSet<Slot>,
}

impl<'a> Contents<'a> {
    /// Before the first step: what the caller and the model give.
    fn new(program: &'a Program) -> Contents<'a> {
        let params = program.params.iter().map(|param| param.slot);
        let donated = program.params.iter().filter(|param| param.is_donated).map(|param| param.slot);
        Contents {
            program,
            around: HashMap::new(),
            inside: HashSet::new(),
            written: params.chain(program.consts.iter().map(|constant| constant.slot)).collect(),
            donated: donated.collect(),
        }
    }

    /// Goes on to the next step.
    fn happen(&mut self, step: &ProgramStep, writes: impl Iterator<Item = Slot>) {
        if let ProgramStep::View { slot, base, .. } = step {
            self.around.insert(*slot, *base);
        }
        for slot in writes {
            self.written.insert(slot);
            let around: Vec<Slot> = self.all_around(slot).collect();
            self.inside.extend(around);
        }
    }

    /// Whether nothing says what a slot holds. One without elements holds all that it has.
    fn is_missing(&self, slot: Slot) -> bool {
        let gives = |around: Slot| self.written.contains(&around) && !self.donated.contains(&around);
        let has_contents =
            self.written.contains(&slot) || self.inside.contains(&slot) || self.all_around(slot).any(gives);
        let is_empty = || {
            self.program.slots.get(slot).is_none_or(|data| self.program.facts.holds(&Rel::le(data.extent, 0)))
        };
        !has_contents && !is_empty()
    }

    /// What a slot lies in, from the inside to the outside.
    fn all_around(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        outward(&self.around, slot).skip(1)
    }
}
