//! Runs the statements of a kernel: what each act means, on memory that is checked and traced.

use std::ops::Range;

use litz_ir::Dtype;
use litz_ir::kernel::{Ring, Sync};
use litz_ir::target::Level;

use super::chance::Chance;
use super::clocks::Access;
use super::code::{Code, ElementRef, Node, Operand, Seen};
use super::counts::{Counter, Place};
use super::races::Touch;
use super::teams::Teams;
use super::threads::{Here, ThreadRange};
use super::{MemView, State};
use crate::formula::{Formula, Relation, all_hold};
use crate::number::{Bits, Number, cast, read, write};

/// Why a run stops.
pub(super) enum Fault {
    /// A failed bind, by its message.
    Check(u32),
    OutOfRange {
        mem: usize,
        index: i64,
        extent: usize,
    },
    /// Two grid points touch an element that one of them writes.
    Race {
        mem: usize,
        index: usize,
    },
    /// Threads of a grid point touch an element that one of them stores to, and nothing says which one is first, or that is in another's
    /// registers. Both accesses, the later one last, where they are known.
    Threads {
        mem: usize,
        index: usize,
        accesses: Box<[Option<Access>; 2]>,
    },
    /// Threads wait at acts for threads that do not come: their ranges and where they are, none where they are done.
    Deadlock(Vec<(ThreadRange, Option<usize>)>),
    /// A ring whose buffers are not all emptied where a point of the grid ends, or that is released by who has not acquired it.
    Ring(Ring),
    /// Products of a warpgroup go on in the background where a memory of theirs is touched, or at the end.
    Products(Option<usize>),
    /// An index expression overflows or divides by zero.
    NoValue,
}

/// A run of a kernel.
pub(super) struct Machine<'a, 'b> {
    pub(super) code: &'a Code,
    pub(super) args: &'a mut [MemView<'b>],
    pub(super) state: &'a mut State,
    /// Decides what nothing else does; in order where there is none.
    pub(super) chance: Option<Chance>,
    /// Acts and accesses are noted: of kernels with threads, and where they are counted.
    pub(super) is_watched: bool,
    /// The act that runs, by the address of its node.
    pub(super) act: usize,
}

impl<'a> Machine<'a, '_> {
    /// Runs all points of the grid. Where one of its axes has none, the others are not counted.
    pub(super) fn run_all(&mut self) -> Result<(), Fault> {
        for (_, extent) in &self.code.grid {
            if self.index(extent)? <= 0 {
                return Ok(());
            }
        }
        self.run_grid(&self.code.grid)
    }

    fn run_grid(&mut self, grid: &'a [(usize, Formula)]) -> Result<(), Fault> {
        let Some(((var, extent), inner)) = grid.split_first() else { return self.run_point() };
        let extent = self.index(extent)?;
        for point in self.order(0..extent) {
            self.state.symbols[*var] = point;
            self.run_grid(inner)?;
        }
        Ok(())
    }

    /// An order of things that have none: forwards or backwards, from any of them.
    fn order(&mut self, range: Range<i64>) -> impl Iterator<Item = i64> + use<> {
        let count = range.end - range.start;
        let (from, step) = match &mut self.chance {
            Some(chance) if count > 1 => {
                (chance.below(count.unsigned_abs()) as i64, if chance.below(2) == 0 { 1 } else { count - 1 })
            }
            _ => (0, 1),
        };
        let next = move |at: &i64| Some((at + step) % count);
        std::iter::successors((count > 0).then_some(from), next)
            .take(count.max(0) as usize)
            .map(move |at| range.start + at)
    }

    fn run_point(&mut self) -> Result<(), Fault> {
        let (code, state) = (self.code, &mut *self.state);
        state.locals.iter_mut().for_each(|local| local.fill(0xff));
        state.traces.next_point();
        if code.has_levels {
            state.clocks.all_meet();
            state.since = state.clocks.now();
            state.block_since = state.since;
        }
        let is_in_units = code.has_levels && (code.needs_units || self.chance.is_some());
        if state.counter.is_some() || is_in_units || code.has_own {
            let teams = Teams::of(&code.body, &state.symbols);
            self.make_own(teams.threads, teams.blocks)?;
            let state = &mut *self.state;
            if let Some(counter) = &mut state.counter {
                counter.begin_point(teams.threads);
            }
            if is_in_units {
                self.run_units(&teams)?;
                self.end_counts();
                return Ok(());
            }
        }
        let top = if code.has_blocks { ThreadRange::ALL } else { ThreadRange::of_block(0) };
        self.state.here = Here::new(ThreadRange::ALL, top);
        self.run(&code.body)?;
        self.drop_copies()?;
        self.count_registers();
        self.end_counts();
        Ok(())
    }

    fn run(&mut self, nodes: &[Node]) -> Result<(), Fault> {
        for node in nodes {
            self.step(node)?;
        }
        Ok(())
    }

    /// The next of several blocks begins that come one after another: what it has of its own holds nothing.
    fn begin_block(&mut self, block: i64) -> Result<(), Fault> {
        self.drop_copies()?;
        let state = &mut *self.state;
        let locals = self.code.mems[self.code.params..].iter().zip(&mut state.locals);
        locals.filter(|(mem, _)| mem.seen == Some(Seen::Block)).for_each(|(_, local)| local.fill(0xff));
        state.clocks.tick();
        state.block_since = state.clocks.now();
        state.clocks.begin_block(usize::try_from(block).unwrap_or(usize::MAX));
        Ok(())
    }

    /// What threads do that have met all others, or wait for none.
    pub(super) fn sync(&mut self, sync: Sync) -> Result<(), Fault> {
        let here = self.state.here.current();
        let block = self.state.here.own.meet(here).block().unwrap_or(0);
        match sync {
            // Whoever takes part in a ring, or in a meeting of some warps, is in units.
            Sync::Warps(_) | Sync::Acquire { .. } | Sync::Release { .. } => {}
            // One kernel runs at a time.
            Sync::Kernels => {}
            Sync::Barrier(_) => self.state.clocks.meet(self.state.here.team()),
            Sync::Cluster | Sync::Elect => self.state.clocks.all_meet(),
            Sync::Await => self.state.clocks.await_turn(block),
            Sync::Pass => self.state.clocks.pass_turn(block),
            Sync::CommitProducts => self.state.transfers.products.commit(),
            Sync::Products { newest } => self.end_products(newest),
            Sync::Commit => self.state.transfers.commit(here),
            Sync::Wait { newest } => self.wait(newest)?,
        }
        Ok(())
    }

    /// An iteration of a loop begins, of so many. Returns where accesses are counted around.
    pub(super) fn begin_iteration(&mut self, node: &Node, iteration: i64, extent: i64) -> Option<Place> {
        let Node::Loop { var, lane, width, .. } = node else { return None };
        self.state.symbols[*var] = iteration;
        if let Some(lane) = lane {
            self.state.symbols[lane.var] = lane.of(iteration, extent);
        }
        let counter = self.state.counter.as_mut()?;
        Some(counter.enter(*var, iteration, i64::from(*width)))
    }

    /// Whether all of these hold.
    pub(super) fn holds(&self, relations: &[Relation]) -> Result<bool, Fault> {
        all_hold(relations, &self.state.symbols).ok_or(Fault::NoValue)
    }

    /// Runs a statement that waits for no other unit.
    pub(super) fn step(&mut self, node: &Node) -> Result<(), Fault> {
        if self.is_watched {
            self.begin_act(node);
        }
        match node {
            Node::Loop { extent, body, .. } => {
                let extent = self.index(extent)?;
                for iteration in 0..extent {
                    let around = self.begin_iteration(node, iteration, extent);
                    self.run(body)?;
                    if let (Some(around), Some(counter)) = (around, &mut self.state.counter) {
                        counter.place = around;
                    }
                }
            }
            Node::Level { team, var, extent, body, .. } => {
                let around = self.state.counter.as_mut().map(Counter::enter_team);
                let extent = self.index(extent)?;
                for iteration in self.order(self.state.here.iterations(*team, extent)) {
                    self.state.symbols[*var] = iteration;
                    self.state.here.enter(*team, iteration);
                    if team.level == Level::Block && self.state.stored.is_none() {
                        self.begin_block(i64::from(team.from) + iteration)?;
                    }
                    self.run(body)?;
                    self.state.here.leave();
                }
                if let (Some(around), Some(counter)) = (around, &mut self.state.counter) {
                    counter.place = around;
                    if !team.level.has_threads() {
                        counter.complete(&self.code.mems);
                    }
                }
            }
            Node::Instruction { side, var, extent, body } => {
                for iteration in 0..self.index(extent)? {
                    self.state.symbols[*var] = iteration;
                    self.state.here.place(*side, Some(iteration));
                    self.run(body)?;
                }
                self.state.here.place(*side, None);
            }
            Node::Sync(sync) => self.sync(*sync)?,
            // Units come to these, and to nothing that has some in it as a whole.
            Node::Acquire { .. } | Node::Release { .. } => {}
            Node::If { cond, then, other, .. } => {
                let is_taken = self.holds(cond)?;
                self.run(if is_taken { then } else { other })?;
            }
            Node::Load { val, ty, place, guard, other } => {
                let is_loaded = self.holds(guard)?;
                self.state.values[*val] =
                    if is_loaded { cast(place.dtype, *ty, self.load(place)?) } else { *other };
            }
            Node::Lookup { val, place, count, by } => {
                let entry = self.state.values[*by] as u32 & (count - 1);
                let index = self.position(place)? + i64::from(entry);
                self.state.values[*val] = self.load_as(Touch::Fetch, place.mem, index)?;
            }
            Node::Const { val, bits } => self.state.values[*val] = *bits,
            Node::Index { val, index } => self.state.values[*val] = Bits::from(self.index(index)? as u64),
            Node::Cond { val, relation } => {
                let holds = relation.holds(&self.state.symbols).ok_or(Fault::NoValue)?;
                self.state.values[*val] = Bits::from(holds);
            }
            Node::Call { val, function, args: [a, b, c] } => {
                let values = &mut self.state.values;
                values[*val] = function(values[*a], values[*b], values[*c]);
            }
            Node::Cast { val, arg, types } => {
                let bits = self.state.values[*arg];
                self.state.values[*val] =
                    types.windows(2).fold(bits, |bits, pair| cast(pair[0], pair[1], bits));
            }
            Node::Copy { val, arg } => self.state.values[*val] = self.state.values[*arg],
            Node::Bind { sym, value, extent, check } => {
                let index = self.state.values[*value] as i64;
                if index < 0 || index >= self.index(extent)? {
                    return Err(Fault::Check(*check));
                }
                self.state.symbols[*sym] = index;
            }
            Node::Store { place, value, ty, combine, guard, atomic } => {
                if self.stores(place.mem) && self.holds(guard)? {
                    let index = self.position(place)?;
                    let mut bits = self.state.values[*value];
                    let [reads, writes] = match atomic {
                        true => [Touch::Combine; 2],
                        false => [Touch::Fetch, Touch::Write],
                    };
                    if let Some(combine) = combine {
                        let old = self.load_as(reads, place.mem, index)?;
                        bits = combine(cast(place.dtype, *ty, old), bits, 0);
                    }
                    self.store_as(writes, place.mem, index, cast(*ty, place.dtype, bits))?;
                }
            }
            Node::MulAdd { place, factors: [a, b], ty, function, guard } => {
                if self.stores(place.mem) && self.holds(guard)? {
                    let index = self.position(place)?;
                    let old = cast(place.dtype, *ty, self.load_as(Touch::Fetch, place.mem, index)?);
                    let sum = function(self.state.values[*a], self.state.values[*b], old);
                    self.store(place.mem, index, cast(*ty, place.dtype, sum))?;
                }
            }
            Node::ArgStore { best, .. } if !self.stores(best.mem) => {}
            Node::ArgStore { max, best, at, value, ty, position } => {
                let index = self.position(best)?;
                let (candidate, position) = (self.state.values[*value], self.index(position)?);
                let found = cast(best.dtype, *ty, self.load_as(Touch::Fetch, best.mem, index)?);
                let found_at = self.load_as(Touch::Fetch, *at, index)? as i64;
                if is_better(*max, *ty, (candidate, position), (found, found_at)) {
                    self.store(best.mem, index, cast(*ty, best.dtype, candidate))?;
                    self.store(*at, index, Bits::from(position as u64))?;
                }
            }
            Node::Lanes(reduction) if !self.stores(reduction.into.mem) => {}
            Node::Lanes(reduction) => self.lanes(reduction)?,
            Node::Products { sum, .. } if !self.stores(sum.mem) => {}
            Node::Products { sum, terms, function } => {
                let index = self.position(sum)?;
                for [a, b] in terms {
                    let (a, b) = (self.operand(a, sum.dtype)?, self.operand(b, sum.dtype)?);
                    let total = function(a, b, self.load_as(Touch::Fetch, sum.mem, index)?);
                    self.store(sum.mem, index, total)?;
                }
            }
            Node::LoadFragment(load) => self.load_fragment(load)?,
            Node::MultiplyFragments(product) => self.multiply_fragments(product)?,
            Node::Zero { place } if !self.stores(place.mem) => {}
            Node::Zero { place } => {
                let index = self.position(place)?;
                self.store(place.mem, index, 0)?;
            }
            Node::Move { to, .. } if !self.stores(to.mem) => {}
            Node::Move { from, to, kept, is_async } => {
                if self.holds(kept)? {
                    let is_read = self.holds(&from.guard)?;
                    let from =
                        is_read.then(|| Ok((from.place.mem, self.position(&from.place)?))).transpose()?;
                    let to = (to.mem, self.position(to)?);
                    if *is_async {
                        self.start_copy(from, to)?;
                    } else {
                        let bits = from.map_or(Ok(0), |(mem, index)| self.load_at(mem, index))?;
                        self.store(to.0, to.1, bits)?;
                    }
                }
            }
            Node::Prefetch { index, guard } => {
                if self.holds(guard)? {
                    self.index(index)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn index(&self, formula: &Formula) -> Result<i64, Fault> {
        formula.eval(&self.state.symbols).ok_or(Fault::NoValue)
    }

    /// Where an element is, whose coordinates are in their dimensions.
    pub(super) fn position(&self, place: &ElementRef) -> Result<i64, Fault> {
        for (coordinate, size) in &place.coordinates {
            let (index, extent) = (self.index(coordinate)?, self.index(size)?.max(0));
            if !(0..extent).contains(&index) {
                let extent = usize::try_from(extent).map_err(|_| Fault::NoValue)?;
                return Err(Fault::OutOfRange { mem: place.mem, index, extent });
            }
        }
        self.index(&place.index)
    }

    /// An element as a value of a type.
    fn operand(&mut self, Operand { place, guard }: &Operand, ty: Dtype) -> Result<Bits, Fault> {
        let is_read = self.holds(guard)?;
        Ok(if is_read { cast(place.dtype, ty, self.load(place)?) } else { 0 })
    }

    fn load(&mut self, place: &ElementRef) -> Result<Bits, Fault> {
        let index = self.position(place)?;
        self.load_at(place.mem, index)
    }

    pub(super) fn load_at(&mut self, mem: usize, index: i64) -> Result<Bits, Fault> {
        self.load_as(Touch::Read, mem, index)
    }

    pub(super) fn load_as(&mut self, touch: Touch, mem: usize, index: i64) -> Result<Bits, Fault> {
        if self.code.mems[mem].is_own() {
            return self.load_own(mem, index);
        }
        let (at, size) = self.locate(mem, index)?;
        self.trace(touch, mem, at / size)?;
        Ok(self.read_at(mem, at, size))
    }

    pub(super) fn store(&mut self, mem: usize, index: i64, bits: Bits) -> Result<(), Fault> {
        self.store_as(Touch::Write, mem, index, bits)
    }

    pub(super) fn store_as(&mut self, touch: Touch, mem: usize, index: i64, bits: Bits) -> Result<(), Fault> {
        if self.code.mems[mem].is_own() {
            return self.store_own(mem, index, bits);
        }
        let (at, size) = self.locate(mem, index)?;
        self.trace(touch, mem, at / size)?;
        self.write_at(mem, at, size, bits);
        Ok(())
    }

    fn trace(&mut self, touch: Touch, mem: usize, index: usize) -> Result<(), Fault> {
        if !self.state.traces.touch(mem, index, touch) {
            return Err(Fault::Race { mem, index });
        }
        if self.is_watched { self.watch(touch, mem, index) } else { Ok(()) }
    }

    /// The bits of an element, of which nothing is noted.
    pub(super) fn read(&self, mem: usize, index: i64) -> Result<Bits, Fault> {
        let (at, size) = self.locate(mem, index)?;
        Ok(self.read_at(mem, at, size))
    }

    pub(super) fn read_at(&self, mem: usize, at: usize, size: usize) -> Bits {
        let bytes = match self.args.get(mem) {
            Some(MemView::Read(bytes)) => bytes,
            Some(MemView::Write(bytes)) => &**bytes,
            None => &self.state.locals[mem - self.code.params],
        };
        read(bytes, at, size)
    }

    /// Sets an element, of which nothing is noted.
    pub(super) fn write(&mut self, mem: usize, index: i64, bits: Bits) -> Result<(), Fault> {
        let (at, size) = self.locate(mem, index)?;
        self.write_at(mem, at, size, bits);
        Ok(())
    }

    pub(super) fn write_at(&mut self, mem: usize, at: usize, size: usize, bits: Bits) {
        let bytes = match self.args.get_mut(mem) {
            Some(MemView::Read(_)) => {
                unreachable!("invariant: a memory that is stored to was given to be written")
            }
            Some(MemView::Write(bytes)) => bytes,
            None => &mut self.state.locals[mem - self.code.params][..],
        };
        write(bytes, at, size, bits);
    }

    /// Byte position and size of an element that exists.
    fn locate(&self, mem: usize, index: i64) -> Result<(usize, usize), Fault> {
        let extent = self.state.extents[mem];
        match usize::try_from(index) {
            Ok(at) if at < extent => {
                let size = self.code.mems[mem].dtype.size();
                Ok((at * size, size))
            }
            _ => Err(Fault::OutOfRange { mem, index, extent }),
        }
    }
}

/// Whether a candidate replaces what an arg store found so far. NaN beats every number, and of equals the one at
/// the smaller position wins, so that the order of candidates does not matter.
pub(super) fn is_better(max: bool, ty: Dtype, candidate: (Bits, i64), found: (Bits, i64)) -> bool {
    let (a, b) = (Number::decode(ty, candidate.0), Number::decode(ty, found.0));
    let rank = |number: Number| match number {
        // Beyond every integer: only floats are NaN.
        Number::Float(value) if value.is_nan() => (true, 0.0, 0),
        Number::Float(value) | Number::Complex(value, _) => (false, value, 0),
        Number::Int(value) => (false, 0.0, value),
        Number::Bool(value) => (false, 0.0, i128::from(value)),
    };
    let ((a_nan, a, a_int), (b_nan, b, b_int)) = (rank(a), rank(b));
    if a_nan != b_nan {
        return a_nan;
    }
    let is_beyond = if max { a > b || a_int > b_int } else { a < b || a_int < b_int };
    is_beyond || (a == b && a_int == b_int && candidate.1 < found.1)
}
