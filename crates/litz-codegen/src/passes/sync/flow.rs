//! Says what happens in a block, as far as barriers are concerned.

use super::{Access, Meeting};
use litz_ir::kernel::Warps;

/// What happens in a block.
#[derive(Default)]
pub(super) struct Flow {
    /// Accesses since the last barrier.
    pub(super) pending: Vec<Access>,
    /// Accesses before the first one.
    pub(super) head: Vec<Access>,
    /// Meetings, but for those of all threads.
    pub(super) met: Vec<Meeting>,
    pub(super) has_barrier: bool,
}

impl Flow {
    /// All threads are here: what they did before, everybody sees.
    pub(super) fn meet(&mut self) {
        self.pending.clear();
        self.has_barrier = true;
    }

    /// Some warps are here: what they did before, they see.
    pub(super) fn meet_among(&mut self, warps: Warps) {
        let meeting = Meeting { from: warps, to: warps, released: None };
        self.pending.iter_mut().for_each(|access| access.met.push(meeting));
        self.met.push(meeting);
    }

    /// Adds what happens in a part that may not be all that runs.
    pub(super) fn join(&mut self, inner: Flow) {
        self.pending.extend(inner.pending);
        if !self.has_barrier {
            let met = &self.met;
            self.head.extend(inner.head.into_iter().map(|mut access| {
                access.met.extend(met);
                access
            }));
        }
    }
}
