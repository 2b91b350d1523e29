//! Keeps the memory of calls that are over for the next ones, whatever programs these are of.
//!
//! A thread calls the forward and the backward graph of a model, or the graphs between which Python runs, one after the other: with
//! memory of its own for each of them a process would hold the sum of what they need instead of the most. Calls of several threads
//! at a time have different buffers.

use std::sync::{Mutex, PoisonError};

use super::Buffer;

/// Memory for intermediate results that no call uses: that of all devices which share the threads of a pool.
#[derive(Default)]
pub struct Idle {
    buffers: Mutex<Vec<Buffer>>,
}

impl Idle {
    /// The smallest buffer of at least so many bytes. Where there is none, the largest one, which its user replaces by one that
    /// is large enough: so there are never more buffers than calls have used at a time. None where no buffer is idle.
    pub(crate) fn take(&self, bytes: usize) -> Option<Buffer> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let lens = || buffers.iter().map(Buffer::len).enumerate();
        let fitting = lens().filter(|&(_, len)| len >= bytes).min_by_key(|&(_, len)| len);
        let (at, _) = fitting.or_else(|| lens().max_by_key(|&(_, len)| len))?;
        Some(buffers.swap_remove(at))
    }

    /// Takes back what nothing uses any more.
    pub(crate) fn give(&self, buffer: Buffer) {
        if !buffer.is_empty() {
            self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::AlignedBuf;

    fn buffer(bytes: usize) -> Buffer {
        AlignedBuf::new(bytes).expect("there is memory").into()
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_else_the_largest() {
        let idle = Idle::default();
        assert!(idle.take(1).is_none());
        [256, 64, 1024, 0].into_iter().for_each(|bytes| idle.give(buffer(bytes)));
        let taken = [100, 100, 4096, 1].map(|bytes| idle.take(bytes).map(|buffer| buffer.len()));
        assert_eq!(taken, [Some(256), Some(1024), Some(64), None]);
    }

    #[test]
    fn there_are_no_more_buffers_than_were_used_at_a_time() {
        let idle = Idle::default();
        for round in 1..100 {
            // Two calls at a time, which need more from round to round, and less in between.
            let used = [64 * round, 6400 / round].map(|bytes| {
                let taken = idle.take(bytes).filter(|taken| taken.len() >= bytes);
                taken.unwrap_or_else(|| buffer(bytes))
            });
            assert_ne!(used[0].as_ptr(), used[1].as_ptr());
            used.into_iter().for_each(|buffer| idle.give(buffer));
            assert_eq!(idle.buffers.lock().expect("no panic").len(), 2);
        }
    }
}
