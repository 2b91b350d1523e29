//! Says which memory the steps of a program use, and where they run.

use std::collections::HashMap;

use litz_sym::Rel;

use super::{Program, ProgramStep, Queue, Slot};
use crate::call::CallResult;
use crate::graph::Device;
use crate::kernel::{Kernel, MemorySpace};

/// For each kernel, by name, which of its parameters it writes.
pub type KernelWrites<'a> = HashMap<&'a str, Vec<bool>>;

/// Which parameters kernels write.
pub fn writes_of(kernels: &[Kernel]) -> KernelWrites<'_> {
    kernels.iter().map(|kernel| (kernel.name.as_str(), writes(kernel))).collect()
}

/// Which of its parameters a kernel writes.
pub fn writes(kernel: &Kernel) -> Vec<bool> {
    let params = kernel.mems.values().take(kernel.params);
    params.map(|mem| matches!(mem.space, MemorySpace::Write | MemorySpace::Update)).collect()
}

/// That a step uses a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The slot.
    pub slot: Slot,
    /// Whether the step writes to it. It may read it as well.
    pub is_written: bool,
}

impl ProgramStep {
    /// The slots whose contents a step reads or writes. A kernel that is not known writes all of them.
    pub fn uses(&self, kernels: &KernelWrites<'_>) -> Vec<Use> {
        let one = |slot: &Slot, is_written: bool| Use { slot: *slot, is_written };
        match self {
            ProgramStep::Launch { kernel, args, .. } => {
                let writes = kernels.get(kernel.as_str());
                let is_written =
                    |at: usize| writes.is_none_or(|writes| writes.get(at).copied().unwrap_or(true));
                args.iter().enumerate().map(|(at, slot)| one(slot, is_written(at))).collect()
            }
            ProgramStep::Copy { from, to, queue: _ } => vec![one(from, false), one(to, true)],
            ProgramStep::Extern { reads, writes, .. } | ProgramStep::Control { reads, writes, .. } => {
                let reads = reads.iter().map(|slot| one(slot, false));
                reads.chain(writes.iter().map(|slot| one(slot, true))).collect()
            }
            ProgramStep::Size { slot, .. } => vec![one(slot, false)],
            ProgramStep::Call { args, results, .. } => {
                let written = results.iter().filter_map(CallResult::written);
                let mut uses: Vec<Use> = written.map(|view| one(&view.slot, true)).collect();
                args.iter().for_each(|arg| {
                    arg.each_tensor(&mut |view, is_written| uses.push(one(&view.slot, is_written)));
                });
                uses
            }
            ProgramStep::Check { .. }
            | ProgramStep::Alloc { .. }
            | ProgramStep::View { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Free { .. } => Vec::new(),
        }
    }

    /// Whether the host runs it, when all that is enqueued is done.
    pub fn is_of_host(&self) -> bool {
        match self {
            ProgramStep::Extern { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Call { .. } => true,
            ProgramStep::Check { .. }
            | ProgramStep::Alloc { .. }
            | ProgramStep::View { .. }
            | ProgramStep::Launch { .. }
            | ProgramStep::Copy { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Free { .. } => false,
        }
    }
}

impl Program {
    /// Where a step is enqueued; none for those that are not.
    pub fn queue(&self, step: &ProgramStep) -> Option<Queue> {
        match step {
            ProgramStep::Launch { args, stream, .. } => {
                Some(Queue { device: self.launched_on(args), stream: *stream })
            }
            ProgramStep::Copy { queue, .. }
            | ProgramStep::Record { queue, .. }
            | ProgramStep::Wait { queue, .. } => Some(*queue),
            ProgramStep::Check { .. }
            | ProgramStep::Alloc { .. }
            | ProgramStep::View { .. }
            | ProgramStep::Extern { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Call { .. }
            | ProgramStep::Free { .. } => None,
        }
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
