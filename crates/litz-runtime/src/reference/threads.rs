//! Finds threads of one grid point that race: of two accesses of an element, at least one a store, there is a barrier between,
//! or one thread does both.
//!
//! Threads of a point are numbered. What runs outside of a loop over a level runs on all threads of the level around: they
//! all load, each stores to registers of its own, and the first one alone stores to memory that others see.

use litz_ir::target::{Gpu, Level};

use super::races::Touch;
use crate::number::Bits;
use std::collections::{BTreeMap, VecDeque};

/// Threads of a block that run a statement, by number: from `first` up to, not including, `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ThreadRange {
    first: u32,
    end: u32,
}

const WARP: u32 = Gpu::LANES;
const GROUP: u32 = Gpu::WARPGROUP;
const BLOCK: u32 = Gpu::THREADS;
/// More than any block has.
const ALL: u32 = u32::MAX;

/// Threads of each of a level.
pub(super) fn threads_of(level: Level) -> u32 {
    match level {
        Level::Grid => ALL,
        Level::Block => BLOCK,
        Level::Warpgroup => GROUP,
        Level::Warp => WARP,
        Level::Thread | Level::Lane => 1,
    }
}

impl ThreadRange {
    fn contains(self, other: ThreadRange) -> bool {
        self.first <= other.first && other.end <= self.end
    }

    fn join(self, other: ThreadRange) -> ThreadRange {
        ThreadRange { first: self.first.min(other.first), end: self.end.max(other.end) }
    }

    /// Its number, if it is one thread.
    pub(super) fn single(self) -> Option<u32> {
        (self.end - self.first == 1).then_some(self.first)
    }

    /// The first of them.
    pub(super) fn first(self) -> u32 {
        self.first
    }

    /// How many of them a block has that has so many threads.
    pub(super) fn within(self, threads: u32) -> u32 {
        self.end.min(self.block_end(threads)).saturating_sub(self.first)
    }

    /// The warps of the first `threads` of a block that they are in.
    pub(super) fn warps(self, threads: u32) -> std::ops::Range<u32> {
        let end = self.end.min(self.block_end(threads)).max(self.first + 1);
        self.first / WARP..end.div_ceil(WARP)
    }

    fn block_end(self, threads: u32) -> u32 {
        (self.first / BLOCK * BLOCK).saturating_add(threads)
    }

    /// The part of so many threads that it is in.
    fn part(self, threads: u32) -> Option<usize> {
        let part = self.first / threads;
        (self.end <= part.saturating_add(1).saturating_mul(threads)).then_some(part as usize)
    }
}

/// When something happened: how many barriers there were before.
#[derive(Clone, Copy, Debug)]
struct Moment {
    point: u32,
    all: u32,
    block: u32,
    group: u32,
    warp: u32,
    /// Turns of a chain that were passed on before. More than ever are where its own block has passed it on.
    turn: u32,
    /// Number of the block among all that ran.
    of: u32,
}

/// Who did something last, and when.
#[derive(Clone, Copy, Debug)]
struct Trace {
    range: ThreadRange,
    moment: Moment,
}

/// What was done to an element of memory.
#[derive(Clone, Copy, Default, Debug)]
struct Element {
    read: Option<Trace>,
    written: Option<Trace>,
    combined: Option<Trace>,
}

/// Which threads see a memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    /// All.
    All,
    /// Those of a block, each block its own.
    Block,
    /// Each its own.
    One,
}

/// The threads of the grid point that runs.
#[derive(Default)]
pub(super) struct Threads {
    /// By memory; empty for those that are not watched.
    elements: Vec<Vec<Element>>,
    seen: Vec<Option<Seen>>,
    /// The loops over levels around, with the threads of the iteration.
    around: Vec<ThreadRange>,
    /// Row, column and reduced point that an instruction of the threads around comes to.
    at: [Option<i64>; 3],
    point: u32,
    barriers: u32,
    /// Barriers of each block, warpgroup and warp.
    blocks: Vec<u32>,
    groups: Vec<u32>,
    warps: Vec<u32>,
    /// Number of the block that runs, among all, and of the newest one. 0 is what is in no loop over blocks.
    block: u32,
    newest_block: u32,
    /// Turns of chains that were passed on, and how many of them the block that runs has waited for.
    turns: u32,
    awaited: u32,
    has_passed: bool,
}

impl Threads {
    /// Forgets all. Of each memory `mems` has the elements and who sees it, where it is watched.
    pub(super) fn start(&mut self, mems: impl Iterator<Item = (usize, Option<Seen>)>) {
        (self.point, self.barriers) = (0, 0);
        (self.block, self.newest_block) = (0, 0);
        (self.turns, self.awaited, self.has_passed) = (0, 0, false);
        [&mut self.blocks, &mut self.groups, &mut self.warps].into_iter().for_each(Vec::clear);
        self.around.clear();
        self.at = [None; 3];
        self.seen.clear();
        self.elements.clear();
        for (count, seen) in mems {
            self.seen.push(seen);
            self.elements.push(if seen.is_some() { vec![Element::default(); count] } else { Vec::new() });
        }
    }

    /// The next point begins.
    pub(super) fn next_point(&mut self) {
        self.point = self.point.wrapping_add(1);
    }

    /// An iteration of a loop over a level begins.
    pub(super) fn enter(&mut self, level: Level, iteration: i64) {
        let outer = self.current();
        if level == Level::Block {
            self.newest_block = self.newest_block.wrapping_add(1);
            (self.block, self.awaited, self.has_passed) = (self.newest_block, 0, false);
        }
        let count = threads_of(level);
        let at = u32::try_from(iteration).unwrap_or(ALL);
        let first = outer.first.saturating_add(at.saturating_mul(count));
        self.around.push(ThreadRange { first, end: first.saturating_add(count) });
    }

    /// The iteration ends.
    pub(super) fn leave(&mut self) {
        self.around.pop();
        // Whatever is in a block is in a loop over blocks, the outermost one.
        if self.around.is_empty() {
            (self.block, self.awaited, self.has_passed) = (0, 0, false);
        }
    }

    /// The block has its turn: it sees what others did before they passed theirs on.
    pub(super) fn await_turn(&mut self) {
        self.barrier();
        self.awaited = self.turns;
    }

    /// The turn is the next block's.
    pub(super) fn pass_turn(&mut self) {
        self.barrier();
        self.turns += 1;
        self.has_passed = true;
    }

    /// An instruction comes to a row (side 0), column (side 1) or reduced point (side 2).
    pub(super) fn place(&mut self, side: usize, at: Option<i64>) {
        if let Some(own) = self.at.get_mut(side) {
            *own = at;
        }
    }

    /// The threads around, or of those that run an instruction the one that has the sum which is added to, or the element of the left
    /// operand, which lies in registers as sums do.
    fn owner(&self, touch: Touch) -> ThreadRange {
        let [row, column, point] = self.at;
        match (self.current(), row, if touch == Touch::Read { point } else { column }) {
            (ThreadRange { first, .. }, Some(row), Some(column)) => {
                let lane = Gpu::thread_of_sum(row, column);
                let first = first.saturating_add(u32::try_from(lane).unwrap_or(ALL));
                ThreadRange { first, end: first.saturating_add(1) }
            }
            (range, _, _) => range,
        }
    }

    /// The row, column and reduced point of an instruction.
    pub(super) fn at(&self) -> [Option<i64>; 3] {
        self.at
    }

    /// The most elements of a memory that one thread has stored to at this point of the grid and that are still its own.
    pub(super) fn most_owned(&self, mem: usize) -> usize {
        let mut owned: BTreeMap<u32, isize> = BTreeMap::new();
        let is_own = |trace: &Trace| trace.moment.point == self.point;
        for Trace { range, .. } in
            self.elements[mem].iter().filter_map(|element| element.written).filter(is_own)
        {
            *owned.entry(range.first).or_default() += 1;
            *owned.entry(range.end).or_default() -= 1;
        }
        let counts = owned.values().scan(0_isize, |owned, change| {
            *owned += change;
            Some(*owned)
        });
        counts.max().map_or(0, isize::unsigned_abs)
    }

    /// The loops over levels around.
    pub(super) fn position(&self) -> Position {
        Position(self.around.clone())
    }

    /// Goes on as what is in these loops. Returns where it was.
    pub(super) fn move_to(&mut self, position: Position) -> Position {
        Position(std::mem::replace(&mut self.around, position.0))
    }

    /// All threads around meet.
    pub(super) fn barrier(&mut self) {
        let range = self.current();
        let (list, at) = match (range.part(WARP), range.part(GROUP), range.part(BLOCK)) {
            (Some(warp), _, _) => (&mut self.warps, warp),
            (None, Some(group), _) => (&mut self.groups, group),
            (None, None, Some(block)) => (&mut self.blocks, block),
            (None, None, None) => {
                self.barriers += 1;
                return;
            }
        };
        if list.len() <= at {
            list.resize(at + 1, 0);
        }
        list[at] += 1;
    }

    /// The threads around.
    pub(super) fn current(&self) -> ThreadRange {
        self.around.last().copied().unwrap_or(ThreadRange { first: 0, end: ALL })
    }

    fn now(&self, range: ThreadRange) -> Moment {
        let count =
            |list: &[u32], part: Option<usize>| part.and_then(|at| list.get(at).copied()).unwrap_or(0);
        Moment {
            point: self.point,
            all: self.barriers,
            block: count(&self.blocks, range.part(BLOCK)),
            group: count(&self.groups, range.part(GROUP)),
            warp: count(&self.warps, range.part(WARP)),
            turn: if self.block == 0 || self.has_passed { u32::MAX } else { self.turns },
            of: self.block,
        }
    }

    /// Whether a barrier that both were at is between something that was done and what `range` does now, or it was another
    /// point's, or one thread does both.
    fn is_before(&self, trace: Trace, range: ThreadRange) -> bool {
        let both = trace.range.join(range);
        let now = self.now(both);
        let is_one = both.end - both.first == 1;
        is_one
            || trace.moment.point != self.point
            || self.barriers > trace.moment.all
            || trace.moment.turn < self.awaited
            || both.part(BLOCK).is_some() && now.block > trace.moment.block
            || both.part(GROUP).is_some() && now.group > trace.moment.group
            || both.part(WARP).is_some() && now.warp > trace.moment.warp
    }

    /// Notes what the threads around do to an element. False where that races with another thread, or the element is another's.
    #[must_use]
    pub(super) fn touch(&mut self, mem: usize, at: usize, touch: Touch) -> bool {
        let Some(&Some(seen)) = self.seen.get(mem) else { return true };
        let Some(&element) = self.elements[mem].get(at) else { return true };
        let (fine, element) = match seen {
            Seen::All => self.shared(element, touch),
            Seen::Block => self.shared(self.in_block(element), touch),
            Seen::One => self.private(element, touch),
        };
        self.elements[mem][at] = element;
        fine
    }

    /// What this block did to an element that each block has of its own.
    fn in_block(&self, element: Element) -> Element {
        let own = |trace: Option<Trace>| trace.filter(|trace| trace.moment.of == self.block);
        let Element { read, written, combined } = element;
        Element { read: own(read), written: own(written), combined: own(combined) }
    }

    fn shared(&self, mut element: Element, touch: Touch) -> (bool, Element) {
        let ThreadRange { first, .. } = self.current();
        // What a store combines with, the thread reads that stores.
        let range = if touch == Touch::Read { self.current() } else { ThreadRange { first, end: first + 1 } };
        let new = Trace { range, moment: self.now(range) };
        let is_done = |trace: Option<Trace>| trace.is_none_or(|trace| self.is_before(trace, range));
        let Element { read, written, combined } = element;
        let fine = match touch {
            Touch::Read | Touch::Fetch => is_done(written) && is_done(combined),
            Touch::Write => is_done(read) && is_done(written) && is_done(combined),
            Touch::Combine => is_done(read) && is_done(written),
        };
        // Of several that nothing orders, who comes later waits for all.
        let joined = |old: Option<Trace>| match old {
            Some(old) if !self.is_before(old, range) => {
                let range = old.range.join(range);
                Trace { range, moment: self.now(range) }
            }
            _ => new,
        };
        match touch {
            Touch::Read | Touch::Fetch => element.read = Some(joined(read)),
            Touch::Write => element.written = Some(new),
            Touch::Combine => element.combined = Some(joined(combined)),
        }
        (fine, element)
    }

    fn private(&self, mut element: Element, touch: Touch) -> (bool, Element) {
        let range = self.owner(touch);
        let owner = element.written.filter(|trace| trace.moment.point == self.point).map(|trace| trace.range);
        let fine = match touch {
            Touch::Read | Touch::Fetch => owner.is_none_or(|owner| owner.contains(range)),
            Touch::Write | Touch::Combine => true,
        };
        // What lanes combine, all of the warp have.
        let range = match (touch, self.around.len().checked_sub(2)) {
            (Touch::Combine, outer) => {
                outer.map_or(ThreadRange { first: 0, end: ALL }, |outer| self.around[outer])
            }
            (Touch::Read | Touch::Fetch | Touch::Write, _) => range,
        };
        if matches!(touch, Touch::Write | Touch::Combine) {
            element.written = Some(Trace { range, moment: self.now(range) });
        }
        (fine, element)
    }
}

/// Threads, by the loops over levels that they are in.
pub(super) struct Position(Vec<ThreadRange>);

/// A copy that goes on in the background.
pub(super) struct Copy {
    pub(super) mem: usize,
    pub(super) index: i64,
    pub(super) bits: Bits,
    /// Who started it.
    pub(super) by: Position,
}

/// Copies in the background: they are done as late as may be, when they are waited for.
#[derive(Default)]
pub(super) struct Transfers {
    /// By group, the oldest first.
    groups: VecDeque<Vec<Copy>>,
    /// Those of no group yet.
    open: Vec<Copy>,
}

impl Transfers {
    pub(super) fn clear(&mut self) {
        self.groups.clear();
        self.open.clear();
    }

    pub(super) fn start(&mut self, mem: usize, index: i64, bits: Bits, by: Position) {
        self.open.push(Copy { mem, index, bits, by });
    }

    pub(super) fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Takes out all that is to be done now.
    pub(super) fn wait(&mut self, newest: u32) -> Vec<Copy> {
        let done = self.groups.len().saturating_sub(newest as usize);
        self.groups.drain(..done).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Touch::{Combine, Read, Write};

    /// Threads of one memory with one element that all see.
    fn one(seen: Seen) -> Threads {
        let mut threads = Threads::default();
        threads.start([(1, Some(seen))].into_iter());
        threads
    }

    fn by_lane(threads: &mut Threads, warp: i64, lane: i64, touch: Touch) -> bool {
        threads.enter(Level::Warp, warp);
        threads.enter(Level::Lane, lane);
        let fine = threads.touch(0, 0, touch);
        threads.leave();
        threads.leave();
        fine
    }

    #[test]
    fn a_barrier_of_both_orders_them() {
        for (barrier, expected) in [(None, false), (Some(0), true), (Some(1), false)] {
            let mut threads = one(Seen::All);
            assert!(by_lane(&mut threads, 0, 3, Write));
            if let Some(warp) = barrier {
                threads.enter(Level::Warp, warp);
                threads.barrier();
                threads.leave();
            }
            assert_eq!(by_lane(&mut threads, 0, 4, Read), expected, "barrier of warp {barrier:?}");
        }
        let mut threads = one(Seen::All);
        assert!(by_lane(&mut threads, 0, 3, Read) && by_lane(&mut threads, 5, 3, Read));
        threads.enter(Level::Warp, 5);
        threads.barrier();
        threads.leave();
        assert!(!by_lane(&mut threads, 5, 4, Write), "warp 0 may still read");
        let mut threads = one(Seen::All);
        assert!(by_lane(&mut threads, 0, 3, Read) && by_lane(&mut threads, 5, 3, Read));
        threads.barrier();
        assert!(by_lane(&mut threads, 5, 4, Write));
    }

    #[test]
    fn blocks_meet_by_turns_or_at_the_barrier_of_all() {
        let in_block = |threads: &mut Threads, block: i64, what: &mut dyn FnMut(&mut Threads)| {
            threads.enter(Level::Block, block);
            what(threads);
            threads.leave();
        };
        let mut write = |threads: &mut Threads| assert!(threads.touch(0, 0, Write));
        let mut threads = one(Seen::All);
        in_block(&mut threads, 0, &mut |threads| {
            write(threads);
            threads.barrier();
        });
        in_block(&mut threads, 1, &mut |threads| assert!(!threads.touch(0, 0, Read), "no barrier of both"));
        let mut threads = one(Seen::All);
        in_block(&mut threads, 0, &mut write);
        threads.barrier();
        assert!(threads.touch(0, 0, Read));
        // Block 2 sees what 0 did ahead of its turn's end, and not what it did behind.
        for (is_ahead, expected) in [(true, true), (false, false)] {
            let mut threads = one(Seen::All);
            for block in 0..2 {
                in_block(&mut threads, block, &mut |threads| {
                    threads.await_turn();
                    if block == 0 && is_ahead {
                        write(threads);
                    }
                    threads.pass_turn();
                    if block == 0 && !is_ahead {
                        write(threads);
                    }
                });
            }
            in_block(&mut threads, 2, &mut |threads| {
                threads.await_turn();
                assert_eq!(threads.touch(0, 0, Read), expected, "{is_ahead}");
            });
        }
        // What each block has of its own no other one touches.
        let mut threads = one(Seen::Block);
        in_block(&mut threads, 0, &mut write);
        in_block(&mut threads, 1, &mut write);
    }

    #[test]
    fn one_thread_stores_what_all_compute() {
        let mut threads = one(Seen::All);
        assert!(threads.touch(0, 0, Write));
        assert!(by_lane(&mut threads, 0, 0, Read), "the first one stored it");
        assert!(!by_lane(&mut threads, 0, 1, Read));
    }

    #[test]
    fn sums_of_an_instruction_belong_to_lanes() {
        let mut threads = one(Seen::One);
        assert!(by_lane(&mut threads, 1, 13, Write));
        threads.enter(Level::Warp, 1);
        for (row, column, expected) in [(3, 2, true), (11, 3, true), (3, 4, false), (4, 2, false)] {
            threads.place(0, Some(row));
            threads.place(1, Some(column));
            assert_eq!(threads.touch(0, 0, Touch::Fetch), expected, "sum {row}, {column}");
            // Reduced points of the left operand are where columns of sums are.
            threads.place(2, Some(column));
            threads.place(1, Some(7 - column));
            assert_eq!(threads.touch(0, 0, Read), expected, "operand {row}, {column}");
        }
    }

    #[test]
    fn registers_belong_to_who_stored_to_them() {
        let mut threads = one(Seen::One);
        assert!(by_lane(&mut threads, 1, 2, Write) && by_lane(&mut threads, 1, 2, Read));
        assert!(!by_lane(&mut threads, 1, 3, Read));
        threads.barrier();
        assert!(!by_lane(&mut threads, 1, 3, Read), "no barrier moves registers");
        assert!(
            by_lane(&mut threads, 1, 3, Combine) && by_lane(&mut threads, 1, 7, Read),
            "all lanes have the sum"
        );
        assert!(!by_lane(&mut threads, 2, 7, Read), "those of the warp");
    }
}
