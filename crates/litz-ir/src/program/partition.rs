//! Cuts the steps of a program into runs that a device can capture, to replay them as one, and what is between.
//!
//! A device captures launches on one of its streams. It cannot capture what the host does, what it has to wait for, or what touches
//! another device. Steps that run nothing, such as those that give memory, belong to whatever is around them.

use std::collections::HashSet;
use std::ops::Range;

use litz_sym::Sym;

use super::{KernelAccesses, Program, ProgramStep, Queue, Slot, Use, takes_made_number};
use crate::graph::Device;

/// Why a device does not capture a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Uncaptured {
    /// Its device captures nothing.
    Device,
    /// The host runs it: a routine, or an operator of the host.
    Host,
    /// It gives a size its value, on which later steps depend.
    Size,
    /// Data decides which functions run.
    Control,
    /// It copies.
    Copy,
    /// It waits for another queue, or is waited for.
    Event,
    /// It is given a number that earlier steps compute.
    Number,
}

impl Uncaptured {
    /// Stable name, for tests and reports.
    pub fn slug(self) -> &'static str {
        match self {
            Uncaptured::Device => "device",
            Uncaptured::Host => "host",
            Uncaptured::Size => "size",
            Uncaptured::Control => "control",
            Uncaptured::Copy => "copy",
            Uncaptured::Event => "event",
            Uncaptured::Number => "number",
        }
    }
}

/// A run of steps.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Partition {
    /// Positions among the steps of a call.
    pub steps: Range<usize>,
    /// The devices of its steps, in the order of their first.
    pub devices: Vec<Device>,
    /// Why it is not captured; where nothing is against it, it is.
    pub reasons: Vec<Uncaptured>,
    /// What it uses of what callers give and earlier partitions make.
    pub inputs: Vec<Slot>,
    /// What it uses of what the model or load steps give.
    pub constants: Vec<Slot>,
    /// What it writes that is used behind it, returned, or what an input or a constant becomes.
    pub outputs: Vec<Slot>,
    /// Inputs that an earlier partition has made and nothing uses behind this one.
    pub freed: Vec<Slot>,
    /// Size symbols that its steps mention.
    pub sizes: Vec<Sym>,
}

impl Partition {
    /// Whether its device captures it.
    pub fn is_captured(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// That a device is entered for some steps: made the one that the calling thread works with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The device.
    pub device: Device,
    /// Positions among the steps of a call.
    pub steps: Range<usize>,
}

/// The partitions of a program's calls, in order. `captures` says which devices capture.
pub fn partitions(
    program: &Program,
    kernels: &KernelAccesses<'_>,
    captures: &dyn Fn(Device) -> bool,
) -> Vec<Partition> {
    let made = program.made(kernels);
    let constants: HashSet<Slot> = program.consts.iter().map(|constant| constant.slot).collect();
    let mut partitions: Vec<Partition> = Vec::new();
    // The queue of the last step that ran something, if that is captured.
    let mut last: Option<Option<Queue>> = None;
    let mut has_changed_state = false;
    for (at, step) in program.steps.iter().enumerate() {
        let Some((device, reason)) = of_step(program, step, captures, &|slot| made.contains(&slot)) else {
            if let Some(partition) = partitions.last_mut() {
                partition.steps.end = at + 1;
            }
            continue;
        };
        let queue = program.queue(step).filter(|_| reason.is_none());
        // What comes before is to have ended when a call begins to change state.
        let changes_state = !has_changed_state
            && program.effects(step, kernels).writes().any(|slot| constants.contains(&slot));
        has_changed_state |= changes_state;
        if last != Some(queue) || changes_state {
            let start = partitions.last().map_or(0, |partition| partition.steps.end);
            partitions.push(Partition { steps: start..at + 1, ..Partition::default() });
        }
        last = Some(queue);
        let partition = partitions.last_mut().expect("invariant: there is one");
        partition.steps.end = at + 1;
        add(&mut partition.devices, device);
        reason.into_iter().for_each(|reason| add(&mut partition.reasons, reason));
    }
    sign(program, kernels, &mut partitions);
    partitions
}

/// Where a step runs that runs something, and why it is not captured, if it is not.
fn of_step(
    program: &Program,
    step: &ProgramStep,
    captures: &dyn Fn(Device) -> bool,
    is_made: &dyn Fn(Slot) -> bool,
) -> Option<(Device, Option<Uncaptured>)> {
    let uses = program.touches(step).uses;
    let touched = uses.iter().filter_map(|used| program.slots.get(used.slot)).map(|data| data.device);
    let of_memory = || touched.clone().find(|device| *device != Device::Cpu).unwrap_or(Device::Cpu);
    let device = program.queue(step).map_or_else(of_memory, |queue| queue.device);
    let reason = match step {
        ProgramStep::Check { .. }
        | ProgramStep::Alloc { .. }
        | ProgramStep::View { .. }
        | ProgramStep::Free { .. } => return None,
        ProgramStep::Launch { .. } if !captures(device) => Some(Uncaptured::Device),
        ProgramStep::Launch { .. } if takes_made_number(program, step, is_made) => Some(Uncaptured::Number),
        ProgramStep::Launch { .. } => None,
        ProgramStep::Copy { .. } => Some(Uncaptured::Copy),
        ProgramStep::Record { .. } | ProgramStep::Wait { .. } => Some(Uncaptured::Event),
        ProgramStep::Extern { .. } | ProgramStep::Call { .. } => Some(Uncaptured::Host),
        ProgramStep::Size { .. } => Some(Uncaptured::Size),
        ProgramStep::Control { .. } => Some(Uncaptured::Control),
    };
    Some((device, reason))
}

/// Finds what each partition is given, gives and frees.
fn sign(program: &Program, kernels: &KernelAccesses<'_>, partitions: &mut [Partition]) {
    let given: HashSet<Slot> = program.params.iter().map(|param| param.slot).collect();
    let mut constants: HashSet<Slot> = program.consts.iter().map(|constant| constant.slot).collect();
    let uses = |steps: &[ProgramStep]| -> Vec<Use> {
        steps.iter().flat_map(|step| program.effects(step, kernels).uses).collect()
    };
    constants.extend(uses(&program.load).iter().map(|used| used.slot));
    let updated = program.updates.iter().map(|&(target, _)| target);
    let kept: HashSet<Slot> = program.read_at_end().chain(updated).collect();
    // From the end: what is used behind.
    let mut behind = kept;
    for partition in partitions.iter_mut().rev() {
        let steps = &program.steps[partition.steps.clone()];
        let uses = uses(steps);
        let written = uses.iter().filter(|used| used.access.is_written() && behind.contains(&used.slot));
        written.for_each(|used| add(&mut partition.outputs, used.slot));
        // Made here or before: told apart below.
        uses.iter().filter(|used| !behind.contains(&used.slot)).for_each(|used| {
            add(&mut partition.freed, used.slot);
        });
        behind.extend(uses.iter().map(|used| used.slot));
        for sym in steps.iter().flat_map(|step| program.exprs(step)).flat_map(|expr| expr.syms()) {
            add(&mut partition.sizes, sym);
        }
    }
    let mut made: HashSet<Slot> = HashSet::new();
    for partition in partitions {
        let steps = &program.steps[partition.steps.clone()];
        let uses = uses(steps);
        for used in &uses {
            if constants.contains(&used.slot) {
                add(&mut partition.constants, used.slot);
            } else if given.contains(&used.slot) || made.contains(&used.slot) {
                add(&mut partition.inputs, used.slot);
            }
        }
        partition
            .freed
            .retain(|slot| made.contains(slot) && !given.contains(slot) && !constants.contains(slot));
        made.extend(uses.iter().filter(|used| used.access.is_written()).map(|used| used.slot));
    }
}

/// For which steps devices are entered. One device is, once for all of a call, where each step that is not captured is on the device of the
/// first partition that is; a partition that is alone is entered when it is captured, and not again. Else each run of steps that are
/// enqueued on one device has it entered.
pub fn regions(
    program: &Program,
    partitions: &[Partition],
    captures: &dyn Fn(Device) -> bool,
) -> Vec<Region> {
    if let [only] = partitions
        && only.is_captured()
    {
        return Vec::new();
    }
    let first = partitions.iter().find(|partition| partition.is_captured());
    let others = || partitions.iter().filter(|partition| !partition.is_captured());
    if let (Some(Partition { devices, .. }), Some(last)) = (first, partitions.last())
        && others().all(|partition| partition.devices == *devices)
    {
        return vec![Region { device: devices[0], steps: 0..last.steps.end }];
    }
    let mut regions: Vec<Region> = Vec::new();
    let mut is_open = false;
    for partition in partitions {
        // What is captured is entered as a whole, or not at all where it is replayed.
        let units = match partition.is_captured() {
            true => vec![(partition.devices[0], partition.steps.clone())],
            false => {
                let of_step = |at: usize| {
                    let (device, _) = of_step(program, &program.steps[at], captures, &|_| false)?;
                    Some((device, at..at + 1))
                };
                partition.steps.clone().filter_map(of_step).collect()
            }
        };
        for (device, steps) in units {
            match regions.last_mut() {
                Some(region) if is_open && region.device == device => region.steps.end = steps.end,
                _ => {
                    is_open = captures(device);
                    regions.extend(is_open.then_some(Region { device, steps }));
                }
            }
        }
    }
    regions
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}
