//! Says what the steps of a program do: one table, which the verifier, the planner and whoever else reads programs go by.

use std::collections::{HashMap, HashSet};

use litz_sym::{Rel, Sym};

use super::{Program, ProgramStep, Queue, Slot};
use crate::call::CallResult;
use crate::graph::Device;
use crate::ids::Id;
use crate::kernel::{self, Kernel, MemorySpace};

/// What happens to the contents of a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// They are read.
    Read,
    /// They are written, and what was there before is not read.
    Write,
    /// They are read, or may be, and written.
    Update,
}

impl Access {
    /// Whether what was there before matters.
    pub fn is_read(self) -> bool {
        matches!(self, Access::Read | Access::Update)
    }

    /// Whether something else is there afterwards.
    pub fn is_written(self) -> bool {
        matches!(self, Access::Write | Access::Update)
    }
}

/// For each kernel, by name, what it does with each of its parameters.
pub type KernelAccesses<'a> = HashMap<&'a str, Vec<Access>>;

/// What kernels do with their parameters.
pub fn accesses_of(kernels: &[Kernel]) -> KernelAccesses<'_> {
    kernels.iter().map(|kernel| (kernel.name.as_str(), accesses(kernel))).collect()
}

/// What a kernel does with each of its parameters. One that it stores to is read as well if the first thing that happens to it, in
/// the order of the text, is a load.
pub fn accesses(kernel: &Kernel) -> Vec<Access> {
    let mut begins_with_load = vec![None; kernel.params];
    kernel::visit(&kernel.body, &mut |stmt| {
        let mut note = |at: usize, is_load: bool| {
            if let Some(first) = begins_with_load.get_mut(at) {
                first.get_or_insert(is_load);
            }
        };
        stmt.loaded().for_each(|(mem, _)| note(mem.index(), true));
        stmt.accesses().for_each(|(mem, _)| note(mem.index(), false));
    });
    let of_param = |(mem, begins_with_load): (&kernel::MemData, Option<bool>)| match mem.space {
        MemorySpace::Update => Access::Update,
        MemorySpace::Write if begins_with_load == Some(true) => Access::Update,
        MemorySpace::Write => Access::Write,
        MemorySpace::Read
        | MemorySpace::Constant
        | MemorySpace::Number
        | MemorySpace::Register
        | MemorySpace::Scratch
        | MemorySpace::Own
        | MemorySpace::Shared
        | MemorySpace::Cluster
        | MemorySpace::Global => Access::Read,
    };
    kernel.mems.values().zip(begins_with_load).map(of_param).collect()
}

/// That a step touches what a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The slot.
    pub slot: Slot,
    /// How.
    pub access: Access,
}

/// A slot, what it lies in, what that lies in, and so on, by [`Program::bases`].
pub fn outward(bases: &HashMap<Slot, Slot>, slot: Slot) -> impl Iterator<Item = Slot> {
    // No chain is longer than there are views.
    std::iter::successors(Some(slot), |slot| bases.get(slot).copied()).take(bases.len() + 1)
}

/// Who runs a step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Runs {
    /// Nobody: it says where memory is, or compares sizes.
    #[default]
    Nothing,
    /// A device, when all that was enqueued there before is done.
    On(Queue),
    /// The host, when all that was enqueued anywhere is done.
    Host,
}

/// What a step does.
///
/// | step | reads | writes | defines | frees | runs |
/// |---|---|---|---|---|---|
/// | `check` | | | | | |
/// | `alloc` | | | memory of its slot | | |
/// | `view` | | | memory of its slot | | |
/// | `launch` | what the kernel reads | what the kernel writes | | | on its queue |
/// | `copy` | `from` | `to` | | | on its queue |
/// | `record`, `wait` | | | | | on its queue |
/// | extern, control | `reads` | `writes` | | | the host |
/// | `size` | its slot | | its symbol | | the host |
/// | `call` | arguments | results, arguments that are written | | | the host |
/// | `free` | | | | its slot | |
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Effects {
    /// What it touches, in the order in which it mentions that.
    pub uses: Vec<Use>,
    /// The slot that has memory from here on.
    pub memory: Option<Slot>,
    /// The symbol that has a value from here on.
    pub size: Option<Sym>,
    /// The slot that has no memory any more.
    pub frees: Option<Slot>,
    /// Who runs it.
    pub runs: Runs,
}

impl Effects {
    /// The slots whose contents it reads.
    pub fn reads(&self) -> impl Iterator<Item = Slot> {
        self.uses.iter().filter(|used| used.access.is_read()).map(|used| used.slot)
    }

    /// The slots whose contents it changes.
    pub fn writes(&self) -> impl Iterator<Item = Slot> {
        self.uses.iter().filter(|used| used.access.is_written()).map(|used| used.slot)
    }

    fn using(uses: impl IntoIterator<Item = (Slot, Access)>) -> Effects {
        let uses = uses.into_iter().map(|(slot, access)| Use { slot, access }).collect();
        Effects { uses, ..Effects::default() }
    }
}

impl ProgramStep {
    /// What it is called where steps are counted or compared.
    pub fn kind(&self) -> &'static str {
        match self {
            ProgramStep::Check { .. } => "check",
            ProgramStep::Alloc { .. } => "alloc",
            ProgramStep::View { .. } => "view",
            ProgramStep::Launch { .. } => "launch",
            ProgramStep::Copy { .. } => "copy",
            ProgramStep::Record { .. } => "record",
            ProgramStep::Wait { .. } => "wait",
            ProgramStep::Extern { .. } => "extern",
            ProgramStep::Size { .. } => "size",
            ProgramStep::Control { .. } => "control",
            ProgramStep::Call { .. } => "call",
            ProgramStep::Free { .. } => "free",
        }
    }

    /// The slot to which it gives memory, and the one in which that is; none where it is the slot's own.
    pub fn placed(&self) -> Option<(Slot, Option<Slot>)> {
        match self {
            ProgramStep::Alloc { slot } => Some((*slot, None)),
            ProgramStep::View { slot, base, offset: _ } => Some((*slot, Some(*base))),
            ProgramStep::Check { .. }
            | ProgramStep::Launch { .. }
            | ProgramStep::Copy { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Extern { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Call { .. }
            | ProgramStep::Free { .. } => None,
        }
    }

    /// The kernel that it launches.
    pub fn launched(&self) -> Option<&str> {
        if let ProgramStep::Launch { kernel, .. } = self { Some(kernel) } else { None }
    }
}

impl Program {
    /// What a step does. A kernel that is not known writes all that it is given, and reads nothing.
    pub fn effects(&self, step: &ProgramStep, kernels: &KernelAccesses<'_>) -> Effects {
        let all = |slots: &[Slot], access: Access| {
            slots.iter().map(move |&slot| (slot, access)).collect::<Vec<(Slot, Access)>>()
        };
        let effects = match step {
            ProgramStep::Check { .. } | ProgramStep::Record { .. } | ProgramStep::Wait { .. } => {
                Effects::default()
            }
            ProgramStep::Alloc { .. } | ProgramStep::View { .. } => {
                Effects { memory: step.placed().map(|(slot, _)| slot), ..Effects::default() }
            }
            ProgramStep::Launch { kernel, args, .. } => {
                let accesses = kernels.get(kernel.as_str());
                let access = |at: usize| {
                    accesses.and_then(|accesses| accesses.get(at)).copied().unwrap_or(Access::Write)
                };
                Effects::using(args.iter().enumerate().map(|(at, &slot)| (slot, access(at))))
            }
            ProgramStep::Copy { from, to, queue: _ } => {
                Effects::using([(*from, Access::Read), (*to, Access::Write)])
            }
            ProgramStep::Extern { reads, writes, .. } | ProgramStep::Control { reads, writes, .. } => {
                let uses = [all(reads, Access::Read), all(writes, Access::Write)];
                Effects::using(uses.into_iter().flatten())
            }
            ProgramStep::Size { sym, slot, .. } => {
                Effects { size: Some(*sym), ..Effects::using([(*slot, Access::Read)]) }
            }
            ProgramStep::Call { args, results, .. } => {
                let written = results.iter().filter_map(CallResult::written);
                let mut uses: Vec<_> = written.map(|view| (view.slot, Access::Write)).collect();
                let mut add = |slot: Slot, is_written: bool| {
                    uses.push((slot, if is_written { Access::Update } else { Access::Read }));
                };
                args.iter()
                    .for_each(|arg| arg.each_tensor(&mut |view, is_written| add(view.slot, is_written)));
                Effects::using(uses)
            }
            ProgramStep::Free { slot } => Effects { frees: Some(*slot), ..Effects::default() },
        };
        Effects { runs: self.runs(step), ..effects }
    }

    /// Who runs a step.
    pub fn runs(&self, step: &ProgramStep) -> Runs {
        match step {
            ProgramStep::Check { .. }
            | ProgramStep::Alloc { .. }
            | ProgramStep::View { .. }
            | ProgramStep::Free { .. } => Runs::Nothing,
            ProgramStep::Launch { args, stream, .. } => {
                Runs::On(Queue { device: self.launched_on(args), stream: *stream })
            }
            ProgramStep::Copy { queue, .. }
            | ProgramStep::Record { queue, .. }
            | ProgramStep::Wait { queue, .. } => Runs::On(*queue),
            ProgramStep::Extern { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Call { .. } => Runs::Host,
        }
    }

    /// The slots that steps of calls write.
    pub fn made(&self, kernels: &KernelAccesses<'_>) -> HashSet<Slot> {
        self.steps.iter().flat_map(|step| self.effects(step, kernels).writes().collect::<Vec<_>>()).collect()
    }

    /// What a step does, where it does not matter what launches do with their arguments.
    pub fn touches(&self, step: &ProgramStep) -> Effects {
        self.effects(step, &KernelAccesses::new())
    }

    /// Where a step is enqueued; none for those that are not.
    pub fn queue(&self, step: &ProgramStep) -> Option<Queue> {
        match self.runs(step) {
            Runs::On(queue) => Some(queue),
            Runs::Nothing | Runs::Host => None,
        }
    }

    /// For each slot that steps place in another one, that one.
    pub fn bases(&self) -> HashMap<Slot, Slot> {
        let steps = self.load.iter().chain(&self.steps);
        steps.filter_map(ProgramStep::placed).filter_map(|(slot, base)| Some((slot, base?))).collect()
    }

    /// Slots that are read behind all steps: what is returned, and what updates are made of.
    pub fn read_at_end(&self) -> impl Iterator<Item = Slot> {
        let returned = self.outputs.iter().filter_map(super::Output::slot);
        returned.chain(self.updates.iter().map(|&(_, source)| source))
    }

    /// The device of a launch with these arguments: that of all of them, but for numbers of the host.
    pub fn launched_on(&self, args: &[Slot]) -> Device {
        let mut places = args.iter().filter_map(|&slot| self.slots.get(slot)).map(|data| data.device);
        places.find(|&device| device != Device::Cpu).unwrap_or(Device::Cpu)
    }

    /// Whether an argument of a launch is a number in the host's memory, which a launch on another device is given by value.
    pub fn is_number(&self, slot: Slot, launched_on: Device) -> bool {
        self.slots.get(slot).is_some_and(|data| {
            let is_one = || self.facts.holds(&Rel::eq(data.extent, 1));
            launched_on != Device::Cpu && data.device == Device::Cpu && is_one()
        })
    }

    /// All queues that steps of calls use, in order.
    pub fn queues(&self) -> Vec<Queue> {
        let mut queues: Vec<Queue> = self.steps.iter().filter_map(|step| self.queue(step)).collect();
        queues.sort_unstable();
        queues.dedup();
        queues
    }
}
