//! Binds a generation of constants to a call, and keeps it as long as the call's work may read it.

use std::sync::Arc;

use super::Context;
use crate::error::RunError;
use crate::program::memory::Memory;

impl Context {
    /// Binds the constants of a call. Whoever calls keeps them until the call is over, and this context after that, where work may
    /// still be enqueued.
    ///
    /// # Errors
    /// What went wrong in a call before that returned when all was enqueued, if that used other constants.
    pub(in crate::program) fn bind(&mut self, memory: &Arc<Memory>) -> Result<(), RunError> {
        if std::ptr::eq(self.bound.as_ptr(), Arc::as_ptr(memory)) {
            return Ok(());
        }
        if let Some(held) = self.held.take() {
            let waited = self.queues.wait();
            drop(held);
            waited?;
        }
        self.bind_addresses(memory);
        self.bound = Arc::downgrade(memory);
        Ok(())
    }

    /// As [`Context::bind`], for as long as the context lives.
    pub(in crate::program) fn bind_addresses(&mut self, memory: &Memory) {
        self.bases[self.params..self.outputs_from].copy_from_slice(memory.addresses());
    }

    /// Keeps the constants of a call that is over, where work with them may still be enqueued.
    pub(in crate::program) fn hold(&mut self, memory: Arc<Memory>) {
        self.held = self.is_ahead.then_some(memory);
    }
}
