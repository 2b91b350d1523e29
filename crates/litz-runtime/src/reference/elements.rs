//! Finds threads of one grid point that race: of two accesses of an element, at least one a store, one happens before the other.

use smallvec::SmallVec;

use super::clocks::{Access, Clocks};
use super::races::Touch;

/// What was done to an element of memory that several threads see, as far as nothing that came later has seen it all.
#[derive(Clone, Default, Debug)]
pub(super) struct Element {
    written: Access,
    read: SmallVec<[Access; 1]>,
    combined: SmallVec<[Access; 1]>,
    /// Copies in the background that write it, and that read it.
    arriving: u16,
    leaving: u16,
}

/// A side of a copy in the background.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// What is read.
    From,
    /// What is written.
    To,
}

impl Element {
    /// Notes an access; those at a time before `since` were to other memory. Gives back one that it races with.
    pub(super) fn touch(&mut self, clocks: &Clocks, new: Access, touch: Touch, since: u32) -> Option<Access> {
        let is_seen = |old: &Access| old.time < since || clocks.is_before(old, new.range);
        let race = |list: &[Access]| list.iter().find(|old| !is_seen(old)).copied();
        let (reads, writes) = match touch {
            Touch::Read | Touch::Fetch | Touch::Exchange => (false, true),
            Touch::Write => (true, true),
            Touch::Combine => (true, false),
        };
        let found = race(std::slice::from_ref(&self.written))
            .or_else(|| if reads { race(&self.read) } else { None })
            .or_else(|| if writes { race(&self.combined) } else { None })
            .or_else(|| (self.arriving > 0).then_some(self.written))
            .or_else(|| (self.leaving > 0 && reads).then(|| self.read.last().copied().unwrap_or_default()));
        match touch {
            Touch::Read | Touch::Fetch | Touch::Exchange => add(&mut self.read, new, is_seen),
            Touch::Combine => add(&mut self.combined, new, is_seen),
            Touch::Write => self.written = new,
        }
        found
    }

    /// A copy in the background begins, with the access that it makes at once.
    pub(super) fn begin(&mut self, side: Side) {
        match side {
            Side::From => self.leaving = self.leaving.saturating_add(1),
            Side::To => self.arriving = self.arriving.saturating_add(1),
        }
    }

    /// It is done.
    pub(super) fn end(&mut self, side: Side) {
        match side {
            Side::From => self.leaving = self.leaving.saturating_sub(1),
            Side::To => self.arriving = self.arriving.saturating_sub(1),
        }
    }
}

/// Adds an access to those that whoever comes later waits for. Of what lanes of a warp do at one time, the range is enough: each of two or
/// more races with any other lane. What the new one has seen, who sees the new one has seen.
fn add(list: &mut SmallVec<[Access; 1]>, new: Access, is_seen: impl Fn(&Access) -> bool) {
    let warp = new.range.around(litz_ir::target::Level::Warp);
    if let Some(last) = list.last_mut()
        && last.time == new.time
        && warp.contains(new.range)
        && warp.contains(last.range)
    {
        last.range = last.range.join(new.range);
        return;
    }
    list.retain(|old| !is_seen(old));
    list.push(new);
}
