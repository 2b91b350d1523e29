//! Tells kernels of GPUs which of their parameters are constants: all contents were there before the first kernel of a call began.

use litz_ir::kernel::MemorySpace;
use litz_ir::loops::{Buf, BufKind, Loops};
use litz_ir::schedule::{Schedule, ScheduleStep};
use std::collections::HashSet;

use crate::kernel::Built;

/// The buffers that a call stores to, or that are not known to be there when it begins.
pub struct Settled {
    late: HashSet<Buf>,
}

impl Settled {
    /// Those of a program. Of a function nobody knows who stores to its inputs, and when.
    pub fn of(loops: &Loops, schedule: &Schedule, is_function: bool) -> Settled {
        let mut at_load: HashSet<&str> = HashSet::new();
        for step in &schedule.steps {
            match step {
                ScheduleStep::Kernel(plan) if plan.at_load => at_load.extend(plan.nests()),
                ScheduleStep::Extern { name, at_load: true } => drop(at_load.insert(name)),
                ScheduleStep::Kernel(_) | ScheduleStep::Extern { .. } => {}
            }
        }
        let at_call = loops.stmts.iter().filter(|stmt| {
            let mut nests = stmt.nests().iter().map(|nest| &*nest.name);
            !at_load.contains(stmt.name()) && !nests.any(|nest| at_load.contains(nest))
        });
        let mut late: HashSet<Buf> = at_call.flat_map(|stmt| stmt.writes()).collect();
        late.extend(loops.updates.iter().map(|update| update.0));
        if is_function {
            late.extend(loops.bufs.iter().filter(|(_, data)| data.kind == BufKind::Input).map(|buf| buf.0));
        }
        Settled { late }
    }

    /// Says so in a kernel of a call.
    pub fn mark(&self, built: &mut Built) {
        for (data, buf) in built.kernel.mems.values_mut().zip(&built.params) {
            if data.space == MemorySpace::Read && !self.late.contains(buf) {
                data.space = MemorySpace::Constant;
            }
        }
    }
}
