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

/// Products that go on in the background: groups, oldest first, the last of which is still begun.
#[derive(Default)]
pub(super) struct Products(Vec<Group>);

/// A group of products.
#[derive(Default)]
struct Group {
    is_closed: bool,
    /// Memories of sums and operands that threads have of their own.
    own: Vec<usize>,
    /// Memory and position of each element that is read.
    read: Vec<(usize, i64)>,
}

impl Products {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|group| group.own.is_empty())
    }

    /// Whether one is under way that touches memory which threads have of their own.
    pub(super) fn touch(&self, mem: usize) -> bool {
        self.0.iter().any(|group| group.own.contains(&mem))
    }

    /// One begins that touches such memory.
    pub(super) fn begin(&mut self, own: usize) {
        self.newest().own.push(own);
    }

    /// The one that began last reads an element.
    pub(super) fn read(&mut self, element: (usize, i64)) {
        self.newest().read.push(element);
    }

    fn newest(&mut self) -> &mut Group {
        if self.0.last().is_none_or(|group| group.is_closed) {
            self.0.push(Group::default());
        }
        self.0.last_mut().expect("invariant: a group was added")
    }

    /// Those that began since this was done last are a group.
    pub(super) fn commit(&mut self) {
        self.newest().is_closed = true;
    }

    /// All but so many of the newest groups are done, and without such all products: the elements that they have read.
    pub(super) fn wait(&mut self, newest: u32) -> Vec<(usize, i64)> {
        let is_open = self.0.last().is_some_and(|group| !group.is_closed);
        let kept = if newest == 0 { 0 } else { newest as usize + usize::from(is_open) };
        let done = self.0.len().saturating_sub(kept);
        self.0.drain(..done).flat_map(|group| group.read).collect()
    }
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
