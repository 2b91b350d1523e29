//! Notes what threads do to memory and when, and does what they have started in the background.

use super::clocks::Access;
use super::code::Seen;
use super::elements::Side;
use super::races::Touch;
use super::run::{Fault, Machine};
use super::threads::ThreadRange;
use super::transfers::Copy;
use litz_ir::target::Level;

impl Machine<'_, '_> {
    /// Whether the threads that run store to a memory: each to registers of its own, the first of a team to what others see.
    pub(super) fn stores(&self, mem: usize) -> bool {
        !self.code.has_levels || self.code.mems[mem].seen == Some(Seen::One) || self.state.here.is_first()
    }

    fn access(&self, range: ThreadRange) -> Access {
        Access { range, time: self.state.clocks.now(), act: self.act }
    }

    /// Notes what the threads around do to an element.
    ///
    /// # Errors
    /// Where that races with another thread, or the element is another's.
    pub(super) fn touch(&mut self, touch: Touch, mem: usize, index: usize) -> Result<(), Fault> {
        match self.code.mems[mem].seen {
            None => Ok(()),
            Some(Seen::One) => self.touch_own(touch, mem, index),
            Some(Seen::All | Seen::Block) => {
                // What a store combines with, the thread reads that stores.
                let here = &self.state.here;
                let reads = matches!(touch, Touch::Read | Touch::Exchange);
                let range = if reads { here.current() } else { here.team().alone() };
                self.touch_by(range, touch, mem, index)
            }
        }
    }

    fn touch_by(&mut self, range: ThreadRange, touch: Touch, mem: usize, index: usize) -> Result<(), Fault> {
        let new = self.access(range);
        let state = &mut *self.state;
        let since =
            if self.code.mems[mem].seen == Some(Seen::Block) { state.block_since } else { state.since };
        let Some(element) = state.elements[mem].get_mut(index) else { return Ok(()) };
        match element.touch(&state.clocks, new, touch, since) {
            None => Ok(()),
            Some(old) => Err(Fault::Threads { mem, index, accesses: Box::new([Some(old), Some(new)]) }),
        }
    }

    /// As [`Machine::touch`], of an element of which each thread has its own, or that one thread has.
    fn touch_own(&mut self, touch: Touch, mem: usize, index: usize) -> Result<(), Fault> {
        let range = match touch {
            // What lanes combine, all of the warp have.
            Touch::Combine => self.state.here.outer(),
            Touch::Read | Touch::Fetch | Touch::Exchange | Touch::Write => self.state.here.owner(touch),
        };
        let new = self.access(range);
        let state = &mut *self.state;
        let local = mem - self.code.params;
        let Some(owner) = state.owners[local].get_mut(index) else { return Ok(()) };
        if matches!(touch, Touch::Write | Touch::Combine) {
            *owner = new;
            if let Some(stored) = &mut state.stored {
                stored[local][index] = true;
            }
            return Ok(());
        }
        let is_stored = owner.time >= state.since;
        // Lanes of a warp may see each other's.
        let all = owner.range.join(range);
        if touch == Touch::Exchange && all.around(Level::Warp).contains(all) {
            return Ok(());
        }
        let is_others = match &state.stored {
            Some(stored) if !is_stored => stored[local][index],
            _ => is_stored && !owner.range.contains(range),
        };
        if !is_others {
            return Ok(());
        }
        let old = is_stored.then_some(*owner);
        Err(Fault::Threads { mem, index, accesses: Box::new([old, Some(new)]) })
    }

    /// The most elements of a memory that one thread has stored to at this point of the grid and that are still its own.
    pub(super) fn most_owned(&self, mem: usize) -> usize {
        let mut owned: std::collections::BTreeMap<u32, isize> = std::collections::BTreeMap::new();
        let owners = self.state.owners[mem - self.code.params].iter();
        for Access { range, .. } in owners.filter(|owner| owner.time >= self.state.since) {
            *owned.entry(range.first).or_default() += 1;
            *owned.entry(range.end).or_default() -= 1;
        }
        let counts = owned.values().scan(0_isize, |owned, change| {
            *owned += change;
            Some(*owned)
        });
        counts.max().map_or(0, isize::unsigned_abs)
    }

    /// Starts to copy an element in the background. It is read and stored at any time until it is waited for, and what is there before is
    /// worth nothing.
    pub(super) fn start_copy(&mut self, from: Option<(usize, i64)>, to: (usize, i64)) -> Result<(), Fault> {
        if let Some((mem, index)) = from {
            // A zero that is stored where there is no element comes from nowhere.
            if let Some(counter) = &mut self.state.counter {
                counter.copies(self.code.mems[to.0].dtype.size());
            }
            self.load_at(mem, index)?;
            self.mark(mem, index, |element| element.begin(Side::From));
        }
        self.store(to.0, to.1, super::Bits::MAX)?;
        self.mark(to.0, to.1, |element| element.begin(Side::To));
        let by = self.state.here.team().alone();
        self.state.transfers.start(from, to, by, self.act);
        Ok(())
    }

    pub(super) fn mark(&mut self, mem: usize, index: i64, mark: impl FnOnce(&mut super::Element)) {
        let element = usize::try_from(index).ok().and_then(|at| self.state.elements[mem].get_mut(at));
        element.map(mark);
    }

    /// The threads around wait for all copies that they have started but those of their newest groups.
    pub(super) fn wait(&mut self, newest: u32) -> Result<(), Fault> {
        for copy in self.state.transfers.wait(self.state.here.current(), newest) {
            self.end_copy(&copy)?;
        }
        Ok(())
    }

    fn end_copy(&mut self, copy: &Copy) -> Result<(), Fault> {
        let (waits, by) = (std::mem::replace(&mut self.act, copy.act), copy.by);
        let bits = match copy.arrived {
            Some(bits) => bits,
            None => copy.from.map_or(Ok(0), |(mem, index)| self.read(mem, index))?,
        };
        self.unmark(copy);
        let at = |index: i64| usize::try_from(index).unwrap_or(usize::MAX);
        if let Some((mem, index)) = copy.from {
            self.touch_by(by, Touch::Read, mem, at(index))?;
        }
        self.touch_by(by, Touch::Write, copy.to.0, at(copy.to.1))?;
        self.write(copy.to.0, copy.to.1, bits)?;
        self.act = waits;
        Ok(())
    }

    /// What a copy moves is fixed: others see it as an access of now. It still is under way.
    pub(super) fn fix(&mut self, copy: &mut Copy) -> Result<(), Fault> {
        let waits = std::mem::replace(&mut self.act, copy.act);
        let at = |index: i64| usize::try_from(index).unwrap_or(usize::MAX);
        let bits = match copy.arrived {
            Some(bits) => bits,
            None => copy.from.map_or(Ok(0), |(mem, index)| self.read(mem, index))?,
        };
        copy.arrived = Some(bits);
        self.unmark(copy);
        if let Some((mem, index)) = copy.from {
            self.touch_by(copy.by, Touch::Read, mem, at(index))?;
            self.mark(mem, index, |element| element.begin(Side::From));
        }
        self.touch_by(copy.by, Touch::Write, copy.to.0, at(copy.to.1))?;
        self.mark(copy.to.0, copy.to.1, |element| element.begin(Side::To));
        self.act = waits;
        Ok(())
    }

    /// A copy that is fixed arrives.
    pub(super) fn land(&mut self, copy: &Copy) -> Result<(), Fault> {
        self.unmark(copy);
        self.write(copy.to.0, copy.to.1, copy.arrived.unwrap_or_default())
    }

    fn unmark(&mut self, copy: &Copy) {
        if let Some((mem, index)) = copy.from {
            self.mark(mem, index, |element| element.end(Side::From));
        }
        self.mark(copy.to.0, copy.to.1, |element| element.end(Side::To));
    }

    /// Some of the copies that are under way arrive.
    pub(super) fn let_copies_arrive(&mut self) -> Result<(), Fault> {
        for at in 0..self.state.transfers.copies.len() {
            let copy = self.state.transfers.copies[at];
            let arrives = self.chance.as_mut().is_some_and(|chance| chance.below(4) == 0);
            if arrives && copy.arrived.is_none() {
                let bits = copy.from.map_or(Ok(0), |(mem, index)| self.read(mem, index))?;
                self.write(copy.to.0, copy.to.1, bits)?;
                self.state.transfers.copies[at].arrived = Some(bits);
            }
        }
        Ok(())
    }

    /// A unit is done: copies that are under way are of no use any more.
    ///
    /// # Errors
    /// Where products are under way.
    pub(super) fn drop_copies(&mut self) -> Result<(), Fault> {
        for copy in self.state.transfers.take() {
            self.unmark(&copy);
        }
        if self.state.transfers.products.is_empty() { Ok(()) } else { Err(Fault::Products(None)) }
    }
}
