//! Keeps copies in the background until they are waited for.

use super::threads::ThreadRange;
use crate::number::Bits;

/// A copy that goes on in the background.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Memory and position of the element that is read; none where zero is stored.
    pub(super) from: Option<(usize, i64)>,
    pub(super) to: (usize, i64),
    /// The thread that started it.
    pub(super) by: ThreadRange,
    /// What is stored, once it is read.
    pub(super) arrived: Option<Bits>,
    /// The act that started it.
    pub(super) act: usize,
    /// How many groups had been closed, by whichever threads.
    begun: usize,
}

/// Copies in the background, in the order in which they began.
#[derive(Default)]
pub(super) struct Transfers {
    pub(super) copies: Vec<Copy>,
    /// The threads that closed a group each time.
    closed: Vec<ThreadRange>,
    pub(super) products: Products,
}

/// Products that go on in the background.
#[derive(Default)]
pub(super) struct Products {
    /// Memories of sums and operands that threads have of their own.
    pub(super) own: Vec<usize>,
    /// Memory and position of each element that is read.
    pub(super) read: Vec<(usize, i64)>,
}

impl Transfers {
    pub(super) fn start(
        &mut self,
        from: Option<(usize, i64)>,
        to: (usize, i64),
        by: ThreadRange,
        act: usize,
    ) {
        self.copies.push(Copy { from, to, by, arrived: None, act, begun: self.closed.len() });
    }

    /// What threads have started since they did this last is a group.
    pub(super) fn commit(&mut self, by: ThreadRange) {
        self.closed.push(by);
    }

    /// Takes out all copies of these threads but those of their `newest` groups.
    pub(super) fn wait(&mut self, by: ThreadRange, newest: u32) -> Vec<Copy> {
        let closed = &self.closed;
        let is_done = |copy: &mut Copy| {
            let groups = || closed[copy.begun..].iter().filter(|range| range.contains(copy.by)).count();
            by.contains(copy.by) && groups() > newest as usize
        };
        let done = self.copies.extract_if(.., is_done).collect();
        if self.copies.is_empty() {
            self.closed.clear();
        }
        done
    }

    /// Takes out all.
    pub(super) fn take(&mut self) -> Vec<Copy> {
        self.closed.clear();
        std::mem::take(&mut self.copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_waits_for_its_own_groups() {
        let thread = |first: u32| ThreadRange { first, end: first + 1 };
        let (both, mut transfers) = (thread(0).join(thread(1)), Transfers::default());
        let start = |transfers: &mut Transfers, at: i64, by| transfers.start(None, (0, at), by, 0);
        start(&mut transfers, 0, thread(0));
        transfers.commit(thread(0));
        start(&mut transfers, 1, thread(1));
        start(&mut transfers, 2, thread(0));
        transfers.commit(both);
        start(&mut transfers, 3, thread(0));
        let mut wait =
            |by, newest| -> Vec<i64> { transfers.wait(by, newest).iter().map(|copy| copy.to.1).collect() };
        assert_eq!(wait(both, 1), [0], "thread 1 has closed one group");
        assert_eq!(wait(thread(1), 0), [1]);
        assert_eq!(wait(both, 0), [2], "what is in no group is not waited for");
    }
}
