//! Keeps the memory of a call for intermediate results and for scratch, and makes it as large as plans say.

use std::sync::Arc;

use crate::arena::GuardedPieces;
use crate::device::{Buffer, Device};
use crate::error::RunError;

/// Memory for intermediate results, of a program and then of the functions that it calls: those of which one runs at a time have
/// the same.
#[derive(Default)]
pub(super) struct Arenas {
    pub(super) own: Vec<Buffer>,
    pub(super) below: Option<Box<Arenas>>,
}

impl Arenas {
    /// Makes arenas at least as large as a plan says, from number `used` on.
    pub(super) fn make_room(
        &mut self,
        devices: &[Arc<dyn Device>],
        bytes: &[usize],
        used: usize,
    ) -> Result<(), RunError> {
        self.own.resize_with(bytes.len().max(self.own.len()), Buffer::default);
        for (at, (arena, &bytes)) in self.own.iter_mut().zip(bytes).enumerate().skip(used) {
            let device = &*devices[at % devices.len()];
            if arena.len() < bytes
                && let Some(idle) = device.idle().and_then(|idle| idle.take(bytes))
            {
                *arena = idle;
            }
            arena.grow(device, bytes)?;
        }
        Ok(())
    }

    /// Lets others have arenas in which nothing is in use any more: what is made behind them takes their memory where it fits.
    pub(super) fn leave(&mut self, devices: &[Arc<dyn Device>], left: &[usize]) {
        for &at in left {
            if let Some(arena) = self.own.get_mut(at).map(std::mem::take)
                && let Some(idle) = devices[at % devices.len()].idle()
            {
                idle.give(arena);
            }
        }
    }

    pub(super) fn give(&mut self, devices: &[Arc<dyn Device>]) {
        let mut level = Some(self);
        while let Some(arenas) = level {
            for (at, arena) in arenas.own.iter_mut().enumerate() {
                if let Some(idle) = devices[at % devices.len()].idle() {
                    idle.give(std::mem::take(arena));
                }
            }
            level = arenas.below.as_deref_mut();
        }
    }
}

/// Scratch memory of the threads that run a launch.
pub(super) enum Scratch {
    /// One piece behind another, as far apart as a launch wants.
    Shared(Buffer),
    Guarded(GuardedPieces),
}

impl Scratch {
    /// The first piece, of which a launch uses so many bytes, and the bytes from one to the next.
    pub(super) fn pieces(&mut self, bytes: usize) -> (*mut u8, usize) {
        match self {
            Scratch::Shared(buffer) => (buffer.as_ptr(), bytes),
            Scratch::Guarded(pieces) => (pieces.first(bytes), pieces.stride),
        }
    }
}
