//! Keeps count of the rings of a block: how often buffers were made full and empty, and what warps learn that acquire them.

use litz_ir::kernel::{Filling, Ring, RingData};

use super::clocks::Known;
use super::code::Node;
use super::run::{Fault, Machine};
use super::threads::ThreadRange;
use super::transfers::Copy;

/// A ring of a block.
pub(super) struct RingState {
    data: RingData,
    full: Phases,
    empty: Phases,
}

/// How often buffers were released as full, or as empty: by warps one after another, each time.
#[derive(Default)]
struct Phases {
    /// How many times all warps have.
    done: usize,
    times: Vec<Phase>,
}

/// One time.
#[derive(Default)]
struct Phase {
    /// Warps that have released.
    warps: u32,
    /// What these knew.
    known: Known,
    /// Copies in the background that were under way.
    copies: Vec<Copy>,
}

/// How often a unit has acquired and released buffers of a ring, in all.
#[derive(Clone, Copy, Default)]
pub(super) struct Turns {
    acquired: usize,
    released: usize,
}

impl RingState {
    pub(super) fn new(data: RingData) -> RingState {
        RingState { data, full: Phases::default(), empty: Phases::default() }
    }

    /// Whether all that was released as full was released as empty, too.
    pub(super) fn is_emptied(&self) -> bool {
        let times = [&self.full, &self.empty].map(|phases| (phases.done, phases.times.len()));
        times[0] == times[1] && times[0].0 == times[0].1
    }

    fn phases(&mut self, filling: Filling) -> &mut Phases {
        match filling {
            Filling::Full => &mut self.full,
            Filling::Empty => &mut self.empty,
        }
    }

    /// Which release a unit waits for that comes to an acquisition. None where buffers are empty from the beginning.
    fn awaited(&self, filling: Filling, turns: Turns) -> Option<usize> {
        match filling {
            Filling::Full => Some(turns.acquired),
            Filling::Empty => turns.acquired.checked_sub(self.data.buffers as usize),
        }
    }

    /// Whether a unit that comes to an acquisition goes on.
    pub(super) fn is_ready(&self, filling: Filling, turns: Turns) -> bool {
        let done = if filling == Filling::Full { self.full.done } else { self.empty.done };
        self.awaited(filling, turns).is_none_or(|awaited| awaited < done)
    }
}

/// Whether threads of a unit are among the warps that take notice of an act.
///
/// # Errors
/// Where some of them are.
pub(super) fn takes_part(
    own: ThreadRange,
    warps: litz_ir::kernel::Warps,
    node: &Node,
) -> Result<bool, Fault> {
    let all = ThreadRange::of_warps(own.block().unwrap_or(0), warps);
    if all.contains(own) || all.meet(own).is_empty() {
        return Ok(all.contains(own));
    }
    let here = all.meet(own);
    let missing = ThreadRange { first: here.end, end: own.end };
    let missing =
        if missing.is_empty() { ThreadRange { first: own.first, end: here.first } } else { missing };
    Err(Fault::Deadlock(vec![(here, Some(std::ptr::from_ref(node).addr())), (missing, None)]))
}

impl Machine<'_, '_> {
    /// A unit acquires the next buffer, whose number `symbol` becomes: what was copied to it is there.
    pub(super) fn acquire(
        &mut self,
        state: &mut RingState,
        turns: &mut Turns,
        (filling, symbol): (Filling, usize),
    ) -> Result<(), Fault> {
        if let Some(awaited) = state.awaited(filling, *turns) {
            let phase = &mut state.phases(filling).times[awaited];
            for copy in std::mem::take(&mut phase.copies) {
                self.land(&copy)?;
            }
            self.state.clocks.learn(self.state.here.own, &phase.known);
        }
        self.state.symbols[symbol] = (turns.acquired % state.data.buffers as usize) as i64;
        turns.acquired += 1;
        Ok(())
    }

    /// A unit releases the buffer that it has acquired first.
    pub(super) fn release(
        &mut self,
        (ring, state): (Ring, &mut RingState),
        turns: &mut Turns,
        filling: Filling,
    ) -> Result<(), Fault> {
        let own = self.state.here.own;
        let block = own.block().unwrap_or(0);
        if turns.released == turns.acquired {
            return Err(Fault::Ring(ring));
        }
        let mut copies = if filling == Filling::Full { self.state.transfers.take() } else { Vec::new() };
        copies.iter_mut().try_for_each(|copy| self.fix(copy))?;
        let known = self.state.clocks.tell(own);
        let warps = state.data.making(filling).count;
        let phases = state.phases(filling);
        if phases.times.len() == turns.released {
            phases.times.push(Phase::default());
        }
        let phase = &mut phases.times[turns.released];
        turns.released += 1;
        phase.warps += own.warps_of(block).len() as u32;
        phase.known.join(&known);
        phase.copies.extend(copies);
        while phases.times.get(phases.done).is_some_and(|phase| phase.warps >= warps) {
            phases.done += 1;
        }
        Ok(())
    }
}
