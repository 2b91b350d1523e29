//! Says when the buffers of a program are in use: from the first step that writes to one to the last that uses it.

use std::collections::{HashMap, HashSet};

use litz_ir::ids::Id;
use litz_ir::program::{self as ir, Access, KernelAccesses, Program, ProgramStep, Runs};

/// When the buffers of a program are in use.
pub(super) struct Watched {
    pub(super) watching: Watching,
    pub(super) load: Vec<WatchedStep>,
    pub(super) steps: Vec<WatchedStep>,
}

/// What is looked at while a call runs.
#[derive(Clone, Copy)]
pub(super) struct Watching {
    /// Whether buffers in use lie apart, and nothing is read that nothing has written.
    pub(super) memory: bool,
    /// Whether steps make numbers that are not finite.
    pub(super) numbers: bool,
}

impl Watching {
    pub(super) fn is_any(self) -> bool {
        self.memory || self.numbers
    }
}

/// What a step does with buffers.
#[derive(Default)]
pub(super) struct WatchedStep {
    /// What it is called in messages.
    pub(super) label: String,
    /// Whether it names an infinite constant.
    pub(super) has_infinity: bool,
    /// Slots, and the buffers that these are, or lie in.
    pub(super) uses: Vec<(usize, usize, Access)>,
    /// Buffers whose life begins with it, and whether the caller gives what they hold.
    pub(super) begins: Vec<(usize, bool)>,
    /// Buffers whose life ends with it.
    pub(super) ends: Vec<usize>,
}

impl Watched {
    /// For a program whose kernels do this with their parameters. `has_infinity` says which of them name an infinite constant.
    pub(super) fn of(
        program: &Program,
        accesses: &KernelAccesses<'_>,
        has_infinity: &dyn Fn(&str) -> bool,
        watching: Watching,
    ) -> Watched {
        let all: Vec<ir::Effects> =
            program.load.iter().chain(&program.steps).map(|step| program.effects(step, accesses)).collect();
        let buffers = Buffers::of(program, &all);
        let (load, steps) = all.split_at(program.load.len());
        // What the model gives, and load steps leave, is there as long as the executable.
        let constants = program.consts.iter().map(|constant| constant.slot);
        let mut kept: HashSet<ir::Slot> = constants.collect();
        let mut load_steps = watch(program, (&program.load, load), &buffers, &kept, &mut |_| true);
        kept.extend(load.iter().flat_map(|effects| &effects.uses).map(|used| buffers.holding(used.slot)));
        let (donated, given): (Vec<_>, Vec<_>) = program.params.iter().partition(|param| param.is_donated);
        kept.extend(given.iter().map(|param| param.slot));
        let read_at_end: HashSet<ir::Slot> =
            program.read_at_end().map(|slot| buffers.holding(slot)).collect();
        let mut steps = watch(program, (&program.steps, steps), &buffers, &kept, &mut |buffer| {
            read_at_end.contains(&buffer)
        });
        let donated: HashSet<usize> = donated.iter().map(|param| param.slot.index()).collect();
        let begins = steps.iter_mut().flat_map(|step| &mut step.begins);
        begins.for_each(|(buffer, is_given)| *is_given = donated.contains(buffer));
        if watching.numbers {
            let launches =
                program.load.iter().zip(&mut load_steps).chain(program.steps.iter().zip(&mut steps));
            launches.for_each(|(step, watched)| tell_numbers(program, has_infinity, step, watched));
        }
        Watched { watching, load: load_steps, steps }
    }
}

/// Adds to what is said of a launch which nodes it computes, and whether infinite numbers are to be expected of it.
fn tell_numbers(
    program: &Program,
    has_infinity: &dyn Fn(&str) -> bool,
    step: &ProgramStep,
    watched: &mut WatchedStep,
) {
    let ProgramStep::Launch { kernel, from, .. } = step else { return };
    watched.has_infinity = has_infinity(kernel);
    let nodes: Vec<String> = from.iter().map(|name| program.node(name)).collect();
    if !nodes.is_empty() {
        watched.label += &format!(" for {}", nodes.join(", "));
    }
}

/// Says of each step what it does with buffers that are not `kept`; `stays` says whose life ends with no step.
fn watch(
    program: &Program,
    (steps, effects): (&[ir::ProgramStep], &[ir::Effects]),
    buffers: &Buffers,
    kept: &HashSet<ir::Slot>,
    stays: &mut dyn FnMut(ir::Slot) -> bool,
) -> Vec<WatchedStep> {
    let mut watched: Vec<WatchedStep> = Vec::with_capacity(steps.len());
    let mut last: Vec<(ir::Slot, usize)> = Vec::new();
    let mut position: HashMap<ir::Slot, usize> = HashMap::new();
    for (at, (step, effects)) in steps.iter().zip(effects).enumerate() {
        let mut found = WatchedStep::default();
        if effects.runs != Runs::Nothing {
            found.label = format!("step {}, {}", at + 1, program.place(step));
        }
        for used in &effects.uses {
            let buffer = buffers.holding(used.slot);
            found.uses.push((used.slot.index(), buffer.index(), used.access));
            if kept.contains(&buffer) {
                continue;
            }
            let known = *position.entry(buffer).or_insert_with(|| {
                found.begins.push((buffer.index(), false));
                last.push((buffer, at));
                last.len() - 1
            });
            last[known].1 = at;
        }
        watched.push(found);
    }
    for (buffer, at) in last {
        if !stays(buffer) {
            watched[at].ends.push(buffer.index());
        }
    }
    watched
}

/// Which slots are buffers, and which are parts of buffers.
///
/// What lies in a slot is a part of it if that slot holds something when a step uses it for the first time, as one does whose parts other
/// steps have written. Else it is memory that buffers share, and one that is used later itself, such as a result, is one of these.
struct Buffers {
    bases: HashMap<ir::Slot, ir::Slot>,
    wholes: HashSet<ir::Slot>,
}

impl Buffers {
    fn of(program: &Program, effects: &[ir::Effects]) -> Buffers {
        // Whether each slot holds something when it is used for the first time.
        let mut first: HashMap<ir::Slot, bool> =
            program.params.iter().map(|param| (param.slot, !param.is_donated)).collect();
        first.extend(program.consts.iter().map(|constant| (constant.slot, true)));
        for used in effects.iter().flat_map(|effects| &effects.uses) {
            first.entry(used.slot).or_insert(used.access.is_read());
        }
        for slot in program.read_at_end() {
            first.entry(slot).or_insert(true);
        }
        let wholes = first.into_iter().filter(|(_, holds)| *holds).map(|(slot, _)| slot).collect();
        Buffers { bases: program.bases(), wholes }
    }

    /// The buffer that a slot is, or is a part of.
    fn holding(&self, slot: ir::Slot) -> ir::Slot {
        ir::outward(&self.bases, slot).filter(|at| self.wholes.contains(at)).last().unwrap_or(slot)
    }
}
