//! Notes which acts run and what they access, where that is looked at.

use litz_ir::kernel::MemorySpace;

use super::code::{Memory, Node};
use super::counts::By;
use super::races::Touch;
use super::run::{Fault, Machine};

impl Machine<'_, '_> {
    /// An act is about to run.
    pub(super) fn begin_act(&mut self, node: &Node) {
        self.act = std::ptr::from_ref(node).addr();
        if let Some(counter) = &mut self.state.counter {
            counter.begin(node, By::of(&self.state.here));
        }
    }

    /// Notes what the threads around do to an element.
    ///
    /// # Errors
    /// As [`Machine::touch`].
    pub(super) fn watch(&mut self, touch: Touch, mem: usize, index: usize) -> Result<(), Fault> {
        if let Some(counter) = &mut self.state.counter {
            // What is combined atomically is one store.
            let is_store = matches!(touch, Touch::Write | Touch::Combine);
            counter.note(mem, &self.code.mems[mem], index, is_store, By::of(&self.state.here));
        }
        if self.code.has_levels { self.touch(touch, mem, index) } else { Ok(()) }
    }

    /// A unit is done: what its threads have in registers is known.
    pub(super) fn count_registers(&mut self) {
        if self.state.counter.is_none() {
            return;
        }
        let mut bytes = 0;
        let is_register = |mem: &Memory| matches!(mem.space, MemorySpace::Register | MemorySpace::Own);
        for (at, mem) in self.code.mems.iter().enumerate().filter(|(_, mem)| is_register(mem)) {
            let has_levels = self.code.has_levels && !mem.is_own();
            bytes += mem.dtype.size() * if has_levels { self.most_owned(at) } else { self.state.extents[at] };
        }
        if let Some(counter) = &mut self.state.counter {
            counter.counts.register_bytes = counter.counts.register_bytes.max(bytes as u64);
        }
    }

    /// A point of the grid ends: all accesses are complete.
    pub(super) fn end_counts(&mut self) {
        let Some(counter) = &mut self.state.counter else { return };
        counter.complete(&self.code.mems);
        let shared = self
            .code
            .mems
            .iter()
            .zip(&self.state.extents)
            .filter(|(mem, _)| mem.space == MemorySpace::Shared);
        let bytes: usize = shared.map(|(mem, extent)| mem.dtype.size() * extent).sum();
        counter.counts.shared_bytes = counter.counts.shared_bytes.max(bytes as u64);
    }
}
