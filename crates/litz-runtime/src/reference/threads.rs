//! Numbers the threads of a grid point, and says which of them run a statement.
//!
//! What runs outside of a loop over a level runs on all threads of the level around: they all load, each stores to registers of its own,
//! and the first one alone stores to memory that others see. A point is run by one unit, which goes through the iterations of loops over
//! levels in order, or by several that each go through those of their threads.

use std::ops::Range;

use litz_ir::kernel::Warps;
use litz_ir::target::{Gpu, Level, Team};

use super::races::Touch;

/// Threads that run a statement, by number: from `first` up to, not including, `end`. Those of a block follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ThreadRange {
    pub(super) first: u32,
    pub(super) end: u32,
}

const WARP: u32 = Gpu::LANES;
const GROUP: u32 = Gpu::WARPGROUP;
pub(super) const BLOCK: u32 = Gpu::THREADS;
/// More than any point has.
const MOST: u32 = u32::MAX;

/// Threads of each of a level.
pub(super) fn threads_of(level: Level) -> u32 {
    match level {
        Level::Grid => MOST,
        Level::Block => BLOCK,
        Level::Warpgroup => GROUP,
        Level::Warp => WARP,
        Level::Thread | Level::Lane => 1,
    }
}

impl ThreadRange {
    /// All threads of a point.
    pub(super) const ALL: ThreadRange = ThreadRange { first: 0, end: MOST };

    /// Those of a block.
    pub(super) fn of_block(block: usize) -> ThreadRange {
        let first = u32::try_from(block).unwrap_or(MOST).saturating_mul(BLOCK);
        ThreadRange { first, end: first.saturating_add(BLOCK) }
    }

    /// Warps of a block.
    pub(super) fn of_warps(block: usize, warps: Warps) -> ThreadRange {
        let base = ThreadRange::of_block(block).first;
        let [first, end] =
            [warps.first, warps.end()].map(|warp| base.saturating_add(warp.saturating_mul(WARP)));
        ThreadRange { first, end }
    }

    /// The first of them.
    pub(super) fn alone(self) -> ThreadRange {
        ThreadRange { first: self.first, end: self.first.saturating_add(1) }
    }

    pub(super) fn contains(self, other: ThreadRange) -> bool {
        self.first <= other.first && other.end <= self.end
    }

    /// Those that are in both.
    pub(super) fn meet(self, other: ThreadRange) -> ThreadRange {
        let first = self.first.max(other.first);
        ThreadRange { first, end: self.end.min(other.end).max(first) }
    }

    pub(super) fn join(self, other: ThreadRange) -> ThreadRange {
        ThreadRange { first: self.first.min(other.first), end: self.end.max(other.end) }
    }

    pub(super) fn is_empty(self) -> bool {
        self.first >= self.end
    }

    /// Its number, if it is one thread.
    pub(super) fn single(self) -> Option<u32> {
        (self.end - self.first == 1).then_some(self.first)
    }

    /// How many of them a block has that has so many threads.
    pub(super) fn within(self, threads: u32) -> u32 {
        self.end.min(self.block_end(threads)).saturating_sub(self.first)
    }

    /// The warps of the first `threads` of a block that they are in.
    pub(super) fn warps_within(self, threads: u32) -> Range<u32> {
        let end = self.end.min(self.block_end(threads)).max(self.first + 1);
        self.first / WARP..end.div_ceil(WARP)
    }

    fn block_end(self, threads: u32) -> u32 {
        (self.first / BLOCK * BLOCK).saturating_add(threads)
    }

    /// The one of a level that has the first of them.
    pub(super) fn around(self, level: Level) -> ThreadRange {
        let threads = threads_of(level);
        let first = self.first / threads * threads;
        ThreadRange { first, end: first.saturating_add(threads) }
    }

    /// The block that they are in, if it is one.
    pub(super) fn block(self) -> Option<usize> {
        ThreadRange::of_block(self.first_block()).contains(self).then(|| self.first_block())
    }

    /// The blocks that they are in, of the first `count` and that of the first of them.
    pub(super) fn blocks(self, count: usize) -> Range<usize> {
        let end = self.end.div_ceil(BLOCK) as usize;
        self.first_block()..end.min(count).max(self.first_block() + 1)
    }

    fn first_block(self) -> usize {
        (self.first / BLOCK) as usize
    }

    /// The warps of a block that they are in, by number in that block.
    pub(super) fn warps_of(self, block: usize) -> Range<usize> {
        let own = self.meet(ThreadRange::of_block(block));
        let base = block * (BLOCK / WARP) as usize;
        (own.first / WARP) as usize - base..own.end.div_ceil(WARP) as usize - base
    }
}

/// Where the threads of a unit are.
#[derive(Clone, Default, Debug)]
pub(super) struct Here {
    /// The threads of the unit.
    pub(super) own: ThreadRange,
    /// Those that run what is outside of all loops over levels.
    pub(super) top: ThreadRange,
    /// The loops over levels around, with the threads of the iteration.
    around: Vec<ThreadRange>,
    /// Row, column and reduced point that an instruction of the threads around comes to.
    at: [Option<i64>; 3],
}

impl Here {
    /// A unit of these threads, at the beginning of a point.
    pub(super) fn new(own: ThreadRange, top: ThreadRange) -> Here {
        Here { own, top, around: Vec::new(), at: [None; 3] }
    }

    /// An iteration of a loop over a level begins.
    pub(super) fn enter(&mut self, team: Team, iteration: i64) {
        let unit = threads_of(team.level);
        let at = i64::from(team.from).saturating_add(iteration.saturating_mul(team.each.into()));
        let at = u32::try_from(at).unwrap_or(MOST);
        let first = self.team().first.saturating_add(at.saturating_mul(unit));
        let end = first.saturating_add(unit.saturating_mul(team.each));
        self.around.push(ThreadRange { first, end });
    }

    /// The iteration ends.
    pub(super) fn leave(&mut self) {
        self.around.pop();
    }

    /// The iterations of a loop over a level that threads of the unit run, of so many.
    pub(super) fn iterations(&self, team: Team, extent: i64) -> Range<i64> {
        let unit = i64::from(threads_of(team.level));
        let threads = unit.saturating_mul(team.each.into());
        let base = i64::from(self.team().first).saturating_add(i64::from(team.from).saturating_mul(unit));
        let (first, end) = (i64::from(self.own.first) - base, i64::from(self.own.end) - base);
        let first = first.max(0) / threads;
        // Numbers past the last thread are not told apart.
        let end = if self.own.end == MOST { extent } else { (end.max(0) + threads - 1) / threads };
        first..end.min(extent).max(first)
    }

    /// All threads that are to run what is next, of this unit and of others.
    pub(super) fn team(&self) -> ThreadRange {
        self.around.last().copied().unwrap_or(self.top)
    }

    /// Those of them that the unit has.
    pub(super) fn current(&self) -> ThreadRange {
        self.team().meet(self.own)
    }

    /// Whether the unit has the first of them, which stores what others see.
    pub(super) fn is_first(&self) -> bool {
        self.own.contains(self.team().alone())
    }

    /// The threads of the unit that run the loop around the innermost one.
    pub(super) fn outer(&self) -> ThreadRange {
        let outer = self.around.len().checked_sub(2).map_or(self.top, |outer| self.around[outer]);
        outer.meet(self.own)
    }

    /// An instruction comes to a row (side 0), column (side 1) or reduced point (side 2).
    pub(super) fn place(&mut self, side: usize, at: Option<i64>) {
        if let Some(own) = self.at.get_mut(side) {
            *own = at;
        }
    }

    /// The row, column and reduced point of an instruction.
    pub(super) fn at(&self) -> [Option<i64>; 3] {
        self.at
    }

    /// The threads around, or of those that run an instruction the one that has the sum which is added to, or the element of the left
    /// operand, which lies in registers as sums do.
    pub(super) fn owner(&self, touch: Touch) -> ThreadRange {
        let [row, column, point] = self.at;
        match (row, if touch == Touch::Read { point } else { column }) {
            (Some(row), Some(column)) => {
                let lane = u32::try_from(Gpu::thread_of_sum(row, column)).unwrap_or(MOST);
                let first = self.team().first.saturating_add(lane);
                ThreadRange { first, end: first.saturating_add(1) }
            }
            _ => self.current(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of a block: each runs its own iterations of finer levels, and the one of a coarser level that it is in.
    #[test]
    fn a_unit_runs_the_iterations_of_its_threads() {
        let warp = |number: u32| ThreadRange { first: 32 * number, end: 32 * number + 32 };
        let here = Here::new(warp(5), ThreadRange::of_block(0));
        let team = |level, from| Team { level, from, each: 1 };
        assert_eq!(here.iterations(team(Level::Warp, 0), 8), 5..6);
        assert_eq!(here.iterations(team(Level::Warp, 4), 8), 1..2);
        assert!(here.iterations(team(Level::Warp, 6), 2).is_empty());
        assert!(here.iterations(team(Level::Warp, 0), 5).is_empty());
        assert_eq!(here.iterations(team(Level::Warpgroup, 0), 2), 1..2);
        assert_eq!(here.iterations(team(Level::Thread, 0), 170), 160..170);
        assert_eq!(here.iterations(team(Level::Thread, 37), 512), 123..155);
        let of_four = Team { level: Level::Thread, from: 4, each: 4 };
        assert_eq!(here.iterations(of_four, 100), 39..47);
        let all = Here::new(ThreadRange::ALL, ThreadRange::ALL);
        assert_eq!(all.iterations(team(Level::Block, 0), 1 << 40), 0..1 << 40);
    }

    #[test]
    fn one_of_a_team_stores() {
        let warp = |number: u32| ThreadRange { first: 32 * number, end: 32 * number + 32 };
        let mut here = Here::new(warp(5), ThreadRange::of_block(0));
        assert!(!here.is_first());
        here.enter(Team { level: Level::Warpgroup, from: 1, each: 1 }, 0);
        assert_eq!((here.is_first(), here.current()), (false, warp(5)));
        here.leave();
        here.enter(Team { level: Level::Warp, from: 5, each: 1 }, 0);
        assert!(here.is_first());
        here.enter(Team { level: Level::Lane, from: 0, each: 4 }, 3);
        assert_eq!((here.is_first(), here.current()), (true, ThreadRange { first: 172, end: 176 }));
    }
}
