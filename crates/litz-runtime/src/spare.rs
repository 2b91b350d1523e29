//! Keeps the memory of results that callers have dropped for the results of later calls.
//!
//! A large result would otherwise be mapped, and its pages zeroed by the system, at every call: 16 MB took twice the time
//! of the layer norm that fills them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::arena::{AlignedBuf, OutOfMemory};

/// Buffers kept at most; the one given back first goes first.
const MAX_KEPT: usize = 16;

/// Buffers that nobody uses.
pub(crate) struct Spare {
    buffers: Mutex<VecDeque<AlignedBuf>>,
}

impl Default for Spare {
    fn default() -> Spare {
        Spare { buffers: Mutex::new(VecDeque::with_capacity(MAX_KEPT + 1)) }
    }
}

/// A buffer that goes back to where it came from when nobody uses it any more.
pub(crate) struct Lent {
    buffer: AlignedBuf,
    home: Weak<Spare>,
}

impl Spare {
    /// A buffer of exactly `bytes`, whatever is in it.
    pub(crate) fn lend(self: &Arc<Spare>, bytes: usize) -> Result<Lent, OutOfMemory> {
        let kept = {
            let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            buffers.iter().position(|b| b.as_slice().len() == bytes).and_then(|at| buffers.remove(at))
        };
        let buffer = kept.map_or_else(|| AlignedBuf::new(bytes), Ok)?;
        Ok(Lent { buffer, home: Arc::downgrade(self) })
    }

    fn give_back(&self, buffer: AlignedBuf) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.push_back(buffer);
        if buffers.len() > MAX_KEPT {
            buffers.pop_front();
        }
    }
}

impl From<AlignedBuf> for Lent {
    /// A buffer that goes nowhere.
    fn from(buffer: AlignedBuf) -> Lent {
        Lent { buffer, home: Weak::new() }
    }
}

impl Lent {
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.buffer.as_slice()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.buffer.as_mut_slice()
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.buffer.as_mut_ptr()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if let Some(home) = self.home.upgrade()
            && !buffer.as_slice().is_empty()
        {
            home.give_back(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_and_is_lent_again() {
        let spare = Arc::new(Spare::default());
        let mut first = spare.lend(256).expect("there is memory");
        let address = first.as_mut_ptr();
        let mut second = spare.lend(256).expect("there is memory");
        assert_ne!(address, second.as_mut_ptr());
        drop(first);
        assert_ne!(address, spare.lend(128).expect("there is memory").as_mut_ptr());
        assert_eq!(address, spare.lend(256).expect("there is memory").as_mut_ptr());
    }

    #[test]
    fn no_more_than_a_few_are_kept_and_none_outlives_its_home() {
        let spare = Arc::new(Spare::default());
        let lent: Vec<Lent> =
            (1..=2 * MAX_KEPT).map(|n| spare.lend(64 * n).expect("there is memory")).collect();
        let last = spare.lend(64).expect("there is memory");
        drop(lent);
        assert_eq!(spare.buffers.lock().expect("no panic").len(), MAX_KEPT);
        drop(spare);
        drop(last);
    }
}
