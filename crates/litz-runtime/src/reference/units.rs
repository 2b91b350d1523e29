//! Runs the threads of a grid point side by side, in units that stop where they wait for each other.
//!
//! A unit is a warp, or what instructions keep together. It goes through the statements of a kernel as each of its threads does: those
//! outside of loops over levels, and the iterations that are its own. Where it waits it stops, and a seed decides who goes on. Nothing
//! but that seed decides: a seed gives one order. Where nobody can go on and somebody is not done, it is a deadlock.

use std::mem::swap;

use litz_ir::ids::Id;
use litz_ir::kernel::Sync;
use litz_ir::target::Level;

use super::clocks::Access;
use super::code::{Node, Seen, meeting};
use super::counts::{Counter, Place};
use super::elements::Element;
use super::rings::{RingState, Turns, takes_part};
use super::run::{Fault, Machine};
use super::teams::Teams;
use super::threads::{Here, ThreadRange};
use super::transfers::Transfers;
use crate::number::Bits;

/// Blocks that run at the same time, where they need not all do: as many as a cluster has.
const RESIDENT: usize = 8;

/// Statements that a unit is in.
struct Frame<'a> {
    nodes: &'a [Node],
    next: usize,
    /// What they are repeated by: a loop, the iteration that runs, and the end.
    repeat: Option<(&'a Node, i64, i64)>,
    /// Where accesses were counted around.
    around: Option<Place>,
}

/// What a unit is about to do.
#[derive(Clone, Copy)]
enum Next<'a> {
    Run,
    /// Meets others at an act.
    Meet(&'a Node, Sync, ThreadRange),
    /// Goes on when it is the turn of its block.
    Turn(&'a Node),
    /// Goes on when a buffer of a ring is as it awaits.
    Acquire(&'a Node),
    /// Is done with a buffer of a ring.
    Release(&'a Node),
    Nothing,
}

/// Threads that run together, and what they have of their own.
struct Unit<'a> {
    block: usize,
    next: Next<'a>,
    frames: Vec<Frame<'a>>,
    here: Here,
    symbols: Vec<i64>,
    values: Vec<Bits>,
    transfers: Transfers,
    place: Place,
    /// Registers and scratch memory, and who has stored there.
    locals: Vec<Vec<u8>>,
    owners: Vec<Vec<Access>>,
    /// How often it has come to the acts of each ring.
    turns: Vec<Turns>,
}

/// What a block has of its own.
struct Block {
    locals: Vec<Vec<u8>>,
    elements: Vec<Vec<Element>>,
    rings: Vec<RingState>,
    /// Nothing of it runs any more.
    is_done: bool,
}

impl Unit<'_> {
    fn is_done(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }
}

/// The units of a point.
struct Units<'a> {
    units: Vec<Unit<'a>>,
    blocks: Vec<Block>,
    /// Blocks whose turn is over.
    turns: usize,
    /// Blocks that are still to come to where the last one goes on.
    expected: usize,
}

impl<'a> Machine<'a, '_> {
    /// Runs a point of the grid.
    pub(super) fn run_units(&mut self, teams: &Teams) -> Result<(), Fault> {
        if teams.blocks == usize::MAX {
            return Err(Fault::NoValue);
        }
        let locals = self.state.locals.iter();
        self.state.stored = Some(locals.map(|local| vec![false; local.len()]).collect());
        let mut all = Units { units: Vec::new(), blocks: Vec::new(), turns: 0, expected: teams.blocks };
        let resident = if self.code.has_clusters { teams.blocks } else { RESIDENT };
        loop {
            while all.blocks.len() < teams.blocks && all.blocks.len() < all.blocks_done() + resident {
                self.begin(teams, &mut all);
            }
            let ready: Vec<usize> = (0..all.units.len()).filter(|&at| all.is_ready(at)).collect();
            let Some(count) = std::num::NonZeroUsize::new(ready.len()) else { break };
            let chosen = self.chance.as_mut().map_or(0, |chance| chance.below(count.get() as u64));
            self.go_on(&mut all, ready[chosen as usize])?;
        }
        self.state.stored = None;
        if !all.units.iter().all(Unit::is_done) {
            return Err(Fault::Deadlock(all.waiting()));
        }
        let mut rings = all.blocks.iter().flat_map(|block| block.rings.iter().zip(self.code.rings.ids()));
        let left = rings.find(|(ring, _)| !ring.is_emptied());
        left.map_or(Ok(()), |(_, ring)| Err(Fault::Ring(ring)))
    }

    /// The next block begins.
    fn begin(&mut self, teams: &Teams, all: &mut Units<'a>) {
        let block = all.blocks.len();
        self.state.clocks.begin_block(block);
        let (code, state) = (self.code, &*self.state);
        let mems = || code.mems[code.params..].iter().zip(&state.locals);
        let present = (state.threads * state.blocks).max(1);
        let locals = |seen: Seen, threads: usize| -> Vec<Vec<u8>> {
            let bytes = mems().map(|(mem, local)| match mem.seen == Some(seen) {
                true if mem.is_own() => local.len() / present * threads,
                true => local.len(),
                false => 0,
            });
            bytes.map(|bytes| vec![0xff; bytes]).collect()
        };
        let elements = code.mems.iter().zip(&state.elements).map(|(mem, elements)| match mem.seen {
            Some(Seen::Block) => vec![Element::default(); elements.len()],
            _ => Vec::new(),
        });
        let (locals_of_block, elements) = (locals(Seen::Block, 0), elements.collect());
        let rings = code.rings.values().map(|&ring| RingState::new(ring)).collect();
        all.blocks.push(Block { locals: locals_of_block, elements, rings, is_done: false });
        let top = if code.has_blocks { ThreadRange::ALL } else { ThreadRange::of_block(0) };
        for own in teams.units(block) {
            all.units.push(Unit {
                block,
                next: Next::Run,
                frames: vec![Frame { nodes: &code.body, next: 0, repeat: None, around: None }],
                here: Here::new(own, top),
                symbols: state.symbols.clone(),
                values: state.values.clone(),
                transfers: Transfers::default(),
                place: Place::default(),
                locals: locals(Seen::One, (own.end - own.first) as usize),
                owners: state.owners.iter().map(|owners| vec![Access::default(); owners.len()]).collect(),
                turns: vec![Turns::default(); code.rings.len()],
            });
        }
    }

    /// A unit goes on to where it waits next, or to its end.
    fn go_on(&mut self, all: &mut Units<'a>, at: usize) -> Result<(), Fault> {
        self.exchange(all, at);
        let arrived = self.run_on(all, at);
        let mut dropped = Ok(());
        if matches!(arrived, Ok(Next::Nothing)) {
            dropped = self.drop_copies();
            self.count_registers();
        }
        self.exchange(all, at);
        dropped?;
        all.units[at].next = arrived?;
        all.forget(all.units[at].block);
        if let Next::Meet(node, sync, range) = all.units[at].next {
            self.meet(all, node, sync, range);
        }
        Ok(())
    }

    /// A unit whose own things are where statements find them goes on.
    fn run_on(&mut self, all: &mut Units<'a>, at: usize) -> Result<Next<'a>, Fault> {
        let (unit, blocks) = (&mut all.units[at], &mut all.blocks);
        let rings = &mut blocks[unit.block].rings;
        if let Next::Acquire(Node::Acquire { ring, filling, symbol }) = unit.next {
            let at = ring.index();
            self.acquire(&mut rings[at], &mut unit.turns[at], (*filling, *symbol))?;
        }
        let stop = self.resume(&mut unit.frames)?;
        if let Next::Release(Node::Release { ring, filling }) = stop {
            let at = ring.index();
            self.release((*ring, &mut rings[at]), &mut unit.turns[at], *filling)?;
            return Ok(Next::Run);
        }
        self.let_copies_arrive()?;
        Ok(stop)
    }

    /// What a unit has of its own comes to where statements find it, and what was there goes to the unit.
    fn exchange(&mut self, all: &mut Units<'a>, at: usize) {
        let (unit, state) = (&mut all.units[at], &mut *self.state);
        let block = &mut all.blocks[unit.block];
        swap(&mut unit.here, &mut state.here);
        swap(&mut unit.symbols, &mut state.symbols);
        swap(&mut unit.values, &mut state.values);
        swap(&mut unit.transfers, &mut state.transfers);
        if let Some(counter) = &mut state.counter {
            swap(&mut unit.place, &mut counter.place);
        }
        for (at, mem) in self.code.mems.iter().enumerate() {
            let local = at.checked_sub(self.code.params);
            match (mem.seen, local) {
                (Some(Seen::One), Some(local)) => {
                    swap(&mut unit.locals[local], &mut state.locals[local]);
                    swap(&mut unit.owners[local], &mut state.owners[local]);
                }
                (Some(Seen::Block), Some(local)) => {
                    swap(&mut block.locals[local], &mut state.locals[local]);
                    swap(&mut block.elements[at], &mut state.elements[at]);
                }
                _ => {}
            }
        }
    }

    /// Goes on in these statements to where they wait.
    fn resume(&mut self, frames: &mut Vec<Frame<'a>>) -> Result<Next<'a>, Fault> {
        while let Some(frame) = frames.last_mut() {
            let Some(node) = frame.nodes.get(frame.next) else {
                self.leave(frame);
                match &mut frame.repeat {
                    Some((node, at, end)) if *at + 1 < *end => {
                        *at += 1;
                        let (node, at, end) = (*node, *at, *end);
                        frame.next = 0;
                        frame.around = self.enter(node, at, end);
                    }
                    Some(_) | None => {
                        frames.pop();
                    }
                }
                continue;
            };
            frame.next += 1;
            match node {
                Node::Acquire { ring, filling, symbol } => {
                    self.begin_act(node);
                    if takes_part(self.state.here.own, self.code.rings[*ring].waiting(*filling), node)? {
                        return Ok(Next::Acquire(node));
                    }
                    // A buffer that there is not.
                    self.state.symbols[*symbol] = i64::from(i32::MIN);
                }
                Node::Release { ring, filling } => {
                    self.begin_act(node);
                    if takes_part(self.state.here.own, self.code.rings[*ring].making(*filling), node)? {
                        return Ok(Next::Release(node));
                    }
                }
                Node::Sync(sync @ Sync::Warps(warps)) => {
                    let own = self.state.here.own;
                    if takes_part(own, *warps, node)? {
                        self.begin_act(node);
                        let range = ThreadRange::of_warps(own.block().unwrap_or(0), *warps);
                        return Ok(Next::Meet(node, *sync, range));
                    }
                }
                Node::Sync(sync) if node.waits() => {
                    if let Some(stop) = self.stop(node, *sync)? {
                        return Ok(stop);
                    }
                }
                Node::Loop { extent, body, waits: true, .. } => {
                    let end = self.index(extent)?;
                    self.repeat(frames, node, body, 0..end);
                }
                Node::Level { team, extent, body, waits: true, .. } => {
                    let extent = self.index(extent)?;
                    self.repeat(frames, node, body, self.state.here.iterations(*team, extent));
                }
                Node::If { cond, then, other, waits: true } => {
                    let is_taken = self.holds(cond)?;
                    let nodes = if is_taken { then } else { other };
                    frames.push(Frame { nodes, next: 0, repeat: None, around: None });
                }
                node => self.step(node)?,
            }
        }
        Ok(Next::Nothing)
    }

    fn repeat(
        &mut self,
        frames: &mut Vec<Frame<'a>>,
        node: &'a Node,
        body: &'a [Node],
        range: std::ops::Range<i64>,
    ) {
        if !range.is_empty() {
            let around = self.enter(node, range.start, range.end);
            frames.push(Frame { nodes: body, next: 0, repeat: Some((node, range.start, range.end)), around });
        }
    }

    /// An iteration of a loop begins.
    fn enter(&mut self, node: &Node, at: i64, end: i64) -> Option<Place> {
        match node {
            Node::Loop { .. } => self.begin_iteration(node, at, end),
            Node::Level { team, var, .. } => {
                self.state.symbols[*var] = at;
                self.state.here.enter(*team, at);
                self.state.counter.as_mut().map(Counter::enter_team)
            }
            _ => None,
        }
    }

    /// What was repeated once more is over.
    fn leave(&mut self, frame: &mut Frame<'a>) {
        if let (Some(around), Some(counter)) = (frame.around.take(), &mut self.state.counter) {
            counter.place = around;
        }
        if let Some((Node::Level { team, .. }, ..)) = frame.repeat {
            self.state.here.leave();
            if let (false, Some(counter)) = (team.level.has_threads(), &mut self.state.counter) {
                counter.complete(&self.code.mems);
            }
        }
    }

    /// The unit comes to an act that may wait. None where it goes on at once.
    fn stop(&mut self, node: &'a Node, sync: Sync) -> Result<Option<Next<'a>>, Fault> {
        let own = self.state.here.own;
        let Some(level) = meeting(sync) else {
            self.step(node)?;
            return Ok(Some(Next::Run));
        };
        // Parts of what instructions keep together meet without the rest of it.
        let part = self.state.here.current().around(level);
        let range = if own.contains(part) { part } else { own.around(level) };
        // Those of its threads that are not here do not come.
        if self.state.here.current() != own.meet(range) {
            let here = self.state.here.current();
            let missing = ThreadRange { first: here.end, end: own.end };
            let missing =
                if missing.is_empty() { ThreadRange { first: own.first, end: here.first } } else { missing };
            return Err(Fault::Deadlock(vec![
                (here, Some(std::ptr::from_ref(node).addr())),
                (missing, None),
            ]));
        }
        if own.contains(range) && level != Level::Block {
            self.step(node)?;
            return Ok(Some(Next::Run));
        }
        self.begin_act(node);
        Ok(Some(Next::Meet(node, sync, range)))
    }

    /// Where all units of a team are at one act, they go on.
    fn meet(&mut self, all: &mut Units<'a>, node: &'a Node, sync: Sync, range: ThreadRange) {
        let is_there = |unit: &Unit<'_>| {
            matches!(unit.next, Next::Meet(there, ..) if std::ptr::eq(there, node))
                || !range.contains(unit.here.own)
        };
        if !all.units.iter().all(is_there) {
            return;
        }
        let block = range.block().unwrap_or(0);
        let clocks = &mut self.state.clocks;
        let mut next = Next::Run;
        match sync {
            Sync::CommitProducts
            | Sync::Products { .. }
            | Sync::Kernels
            | Sync::Warps(_)
            | Sync::Acquire { .. }
            | Sync::Release { .. }
            | Sync::Barrier(_)
            | Sync::Commit
            | Sync::Wait { .. } => clocks.meet(range),
            Sync::Cluster => clocks.all_meet(),
            Sync::Await if all.turns == block => clocks.await_turn(block),
            Sync::Await => next = Next::Turn(node),
            Sync::Pass => {
                clocks.pass_turn(block);
                all.turns = block + 1;
                let awaits =
                    |unit: &&mut Unit<'_>| unit.block == block + 1 && matches!(unit.next, Next::Turn(_));
                let units = all.units.iter_mut().filter(awaits).map(|unit| unit.next = Next::Run).count();
                if units > 0 {
                    clocks.await_turn(block + 1);
                }
            }
            Sync::Elect if all.expected > 1 => {
                all.expected -= 1;
                next = Next::Nothing;
            }
            Sync::Elect => clocks.all_meet(),
        }
        for unit in all.units.iter_mut().filter(|unit| range.contains(unit.here.own)) {
            unit.next = next;
            if sync == Sync::Elect {
                unit.here.top = range;
            }
        }
        all.forget(block);
    }
}

impl Units<'_> {
    fn is_ready(&self, at: usize) -> bool {
        let unit = &self.units[at];
        match unit.next {
            Next::Run => true,
            Next::Acquire(Node::Acquire { ring, filling, .. }) => {
                let at = ring.index();
                self.blocks[unit.block].rings[at].is_ready(*filling, unit.turns[at])
            }
            Next::Acquire(_) | Next::Release(_) | Next::Meet(..) | Next::Turn(_) | Next::Nothing => false,
        }
    }

    /// Where all units of a block are done, what they have is of no use any more.
    fn forget(&mut self, block: usize) {
        let is_own = |unit: &&mut Unit<'_>| unit.block == block;
        if self.blocks[block].is_done || !self.units.iter_mut().filter(is_own).all(|unit| unit.is_done()) {
            return;
        }
        let rings = std::mem::take(&mut self.blocks[block].rings);
        self.blocks[block] = Block { locals: Vec::new(), elements: Vec::new(), rings, is_done: true };
        for unit in self.units.iter_mut().filter(is_own) {
            (unit.locals, unit.owners) = (Vec::new(), Vec::new());
        }
    }

    fn blocks_done(&self) -> usize {
        self.blocks.iter().filter(|block| block.is_done).count()
    }

    /// The threads that wait, and those that are done, with where they are.
    fn waiting(&self) -> Vec<(ThreadRange, Option<usize>)> {
        let mut waiting: Vec<(ThreadRange, Option<usize>)> = Vec::new();
        for unit in &self.units {
            let act = match unit.next {
                Next::Meet(node, ..) | Next::Turn(node) | Next::Acquire(node) => {
                    Some(std::ptr::from_ref(node).addr())
                }
                Next::Run | Next::Release(_) | Next::Nothing => None,
            };
            match waiting.last_mut() {
                Some((range, last)) if *last == act && range.end == unit.here.own.first => {
                    range.end = unit.here.own.end;
                }
                _ => waiting.push((unit.here.own, act)),
            }
        }
        waiting
    }
}
