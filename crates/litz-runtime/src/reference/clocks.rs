//! Knows what happened before what among the threads of a grid point: meetings order what was done before with what comes after.
//!
//! Time is counted in meetings. Of each other warp of its block a warp knows up to when it sees what that did, and a block of each other
//! block. What is known at a meeting, all that meet know from then on.

use litz_ir::target::Gpu;

use super::threads::{BLOCK, ThreadRange};

/// Warps of a block.
const WARPS: usize = (BLOCK / Gpu::LANES) as usize;

/// Something that threads did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Access {
    pub(super) range: ThreadRange,
    /// When: 0 is never.
    pub(super) time: u32,
    /// The act, by the address of its node.
    pub(super) act: usize,
}

/// What the threads of a point know of each other.
#[derive(Default)]
pub(super) struct Clocks {
    now: u32,
    /// Everybody sees what was done before.
    everybody: u32,
    blocks: Vec<Block>,
    /// What the block knows whose turn it is in a chain.
    turn: Vec<u32>,
}

/// Of each warp of a block: what it did before that time is known.
#[derive(Clone)]
pub(super) struct Known(Box<[u32; WARPS]>);

impl Default for Known {
    fn default() -> Known {
        Known(Box::new([0; WARPS]))
    }
}

impl Known {
    /// Adds what another one has.
    pub(super) fn join(&mut self, other: &Known) {
        self.0.iter_mut().zip(other.0.iter()).for_each(|(own, &other)| *own = other.max(*own));
    }
}

/// What the threads of a block know: everything that was done before that time.
#[derive(Default)]
struct Block {
    /// Of all threads of the block, all of them.
    own: u32,
    /// Of each warp of the block, each warp, where more than `own`.
    warps: Option<Box<[[u32; WARPS]; WARPS]>>,
    /// Of other blocks, all of them.
    others: Vec<u32>,
}

impl Clocks {
    /// Forgets all.
    pub(super) fn start(&mut self) {
        *self = Clocks { now: 1, ..Clocks::default() };
    }

    /// The time.
    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// All threads see what was done: they meet, or the next point begins.
    pub(super) fn all_meet(&mut self) {
        self.tick();
        self.everybody = self.now;
    }

    /// Time goes on.
    pub(super) fn tick(&mut self) {
        self.now = self.now.saturating_add(1);
    }

    fn block(&mut self, block: usize) -> &mut Block {
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, Block::default);
        }
        &mut self.blocks[block]
    }

    /// There is a block of that number.
    pub(super) fn begin_block(&mut self, block: usize) {
        self.block(block);
    }

    /// Threads meet.
    pub(super) fn meet(&mut self, range: ThreadRange) {
        let Some(block) = range.block() else { return self.all_meet() };
        self.tick();
        let now = self.now;
        let is_all = range == ThreadRange::of_block(block);
        let met = range.warps_of(block);
        let clock = self.block(block);
        if is_all {
            clock.own = now;
            return;
        }
        let warps = clock.warps.get_or_insert_with(|| Box::new([[0; WARPS]; WARPS]));
        let mut joined = [0; WARPS];
        for known in &warps[met.clone()] {
            joined.iter_mut().zip(known).for_each(|(joined, &known)| *joined = known.max(*joined));
        }
        joined[met.clone()].fill(now);
        warps[met].fill(joined);
    }

    /// What warps know that release a buffer, and what they have done so far.
    pub(super) fn tell(&mut self, range: ThreadRange) -> Known {
        self.tick();
        let (now, block) = (self.now, range.block().unwrap_or(0));
        let met = range.warps_of(block);
        let mut known = Known::default();
        if let Some(warps) = &self.block(block).warps {
            for own in &warps[met.clone()] {
                known.join(&Known(Box::new(*own)));
            }
        }
        known.0[met].fill(now);
        known
    }

    /// Warps learn what others have told.
    pub(super) fn learn(&mut self, range: ThreadRange, known: &Known) {
        let block = range.block().unwrap_or(0);
        let warps = self.block(block).warps.get_or_insert_with(|| Box::new([[0; WARPS]; WARPS]));
        for own in &mut warps[range.warps_of(block)] {
            own.iter_mut().zip(known.0.iter()).for_each(|(own, &known)| *own = known.max(*own));
        }
    }

    /// The threads of a block meet, and see what others did before they passed their turn on.
    pub(super) fn await_turn(&mut self, block: usize) {
        self.meet(ThreadRange::of_block(block));
        let turn = std::mem::take(&mut self.turn);
        join(&mut self.block(block).others, &turn);
        self.turn = turn;
    }

    /// The threads of a block meet, and pass their turn on.
    pub(super) fn pass_turn(&mut self, block: usize) {
        self.meet(ThreadRange::of_block(block));
        let (now, mut turn) = (self.now, std::mem::take(&mut self.turn));
        join(&mut turn, &self.block(block).others);
        turn.resize(turn.len().max(block + 1), 0);
        turn[block] = now;
        self.turn = turn;
    }

    /// Whether threads see what was done: by a meeting of both, or because one thread does both.
    pub(super) fn is_before(&self, access: &Access, by: ThreadRange) -> bool {
        access.time < self.everybody
            || access.range == by && by.single().is_some()
            || by.blocks(self.blocks.len()).all(|own| {
                access.range.blocks(self.blocks.len()).all(|other| self.knows(own, other, access, by))
            })
    }

    /// Whether those of the threads that are in block `own` see what those in block `other` did.
    fn knows(&self, own: usize, other: usize, access: &Access, by: ThreadRange) -> bool {
        let Some(clock) = self.blocks.get(own) else { return false };
        if own != other {
            return clock.others.get(other).is_some_and(|&known| access.time < known);
        }
        let is_known = |warps: &[[u32; WARPS]; WARPS]| {
            let mut by = warps[by.warps_of(own)].iter();
            by.all(|known| known[access.range.warps_of(own)].iter().all(|&known| access.time < known))
        };
        access.time < clock.own || clock.warps.as_ref().is_some_and(|warps| is_known(warps))
    }
}

/// The later of each.
fn join(times: &mut Vec<u32>, other: &[u32]) {
    times.resize(times.len().max(other.len()), 0);
    times.iter_mut().zip(other).for_each(|(time, &other)| *time = other.max(*time));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(number: u32) -> ThreadRange {
        ThreadRange { first: number, end: number + 1 }
    }

    fn warp(number: u32) -> ThreadRange {
        ThreadRange { first: 32 * number, end: 32 * number + 32 }
    }

    #[test]
    fn what_is_known_is_handed_on() {
        let mut clocks = Clocks::default();
        clocks.start();
        let access = |clocks: &Clocks| Access { range: thread(3), time: clocks.now(), act: 0 };
        let first = access(&clocks);
        assert!(clocks.is_before(&first, thread(3)) && !clocks.is_before(&first, thread(4)));
        clocks.meet(warp(0).join(warp(1)));
        assert!(clocks.is_before(&first, thread(4)) && clocks.is_before(&first, warp(1)));
        assert!(!clocks.is_before(&first, warp(2)) && !clocks.is_before(&first, warp(1).join(warp(2))));
        // Warp 2 hears of it from warp 1, and not of what warp 0 did since.
        let second = access(&clocks);
        clocks.meet(warp(1).join(warp(2)));
        assert!(clocks.is_before(&first, warp(2)) && !clocks.is_before(&second, warp(2)));
        clocks.meet(ThreadRange::of_block(0));
        assert!(clocks.is_before(&second, warp(9)));
        let third = access(&clocks);
        clocks.meet(ThreadRange::of_block(1));
        assert!(!clocks.is_before(&third, ThreadRange::of_block(1)));
        clocks.all_meet();
        assert!(clocks.is_before(&third, ThreadRange::ALL));
    }

    #[test]
    fn turns_hand_on_what_was_done_before_them() {
        let mut clocks = Clocks::default();
        clocks.start();
        let by =
            |block: u32, clocks: &Clocks| Access { range: thread(1024 * block), time: clocks.now(), act: 0 };
        clocks.await_turn(0);
        let before = by(0, &clocks);
        clocks.pass_turn(0);
        let behind = by(0, &clocks);
        clocks.await_turn(1);
        clocks.pass_turn(1);
        assert!(!clocks.is_before(&before, ThreadRange::of_block(2)));
        clocks.await_turn(2);
        assert!(clocks.is_before(&before, ThreadRange::of_block(2)), "block 1 handed it on");
        assert!(!clocks.is_before(&behind, ThreadRange::of_block(2)));
    }
}
