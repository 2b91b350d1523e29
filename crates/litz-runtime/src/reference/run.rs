//! Runs the statements of a kernel: what each act means, on memory that is checked and traced.

use litz_ir::Dtype;
use litz_ir::kernel::{Space, Sync};
use litz_ir::target::Level;

use super::code::{Code, ElementRef, Node, Operand};
use super::counts::{By, Counter};
use super::races::Touch;
use super::teams;
use super::threads::Seen;
use super::{MemView, State};
use crate::formula::{Formula, all_hold};
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
    /// A thread of a grid point touches an element that another one stores to, with no barrier between, or that is in
    /// another's registers.
    Threads {
        mem: usize,
        index: usize,
    },
    /// An index expression overflows or divides by zero.
    NoValue,
}

/// A run of a kernel.
pub(super) struct Machine<'a, 'b> {
    pub(super) code: &'a Code,
    pub(super) args: &'a mut [MemView<'b>],
    pub(super) state: &'a mut State,
}

impl Machine<'_, '_> {
    /// Runs all points of the grid. Where one of its axes has none, the others are not counted.
    pub(super) fn run_all(&mut self) -> Result<(), Fault> {
        for (_, extent) in &self.code.grid {
            if self.index(extent)? <= 0 {
                return Ok(());
            }
        }
        self.run_grid(&self.code.grid)
    }

    fn run_grid(&mut self, grid: &[(usize, Formula)]) -> Result<(), Fault> {
        let Some(((var, extent), inner)) = grid.split_first() else {
            for local in &mut self.state.locals {
                local.fill(0xff);
            }
            self.state.traces.next_point();
            self.state.threads.next_point();
            self.state.transfers.clear();
            if let Some(counter) = &mut self.state.counter {
                counter.begin_point(teams::threads(&self.code.body, &self.state.symbols));
            }
            self.run(&self.code.body)?;
            self.end_counts();
            return Ok(());
        };
        for point in 0..self.index(extent)? {
            self.state.symbols[*var] = point;
            self.run_grid(inner)?;
        }
        Ok(())
    }

    fn run(&mut self, nodes: &[Node]) -> Result<(), Fault> {
        for node in nodes {
            self.step(node)?;
        }
        Ok(())
    }

    /// The next block begins: what it has of its own holds nothing.
    fn forget_blocks_own(&mut self) {
        let locals = self.code.mems[self.code.params..].iter().zip(&mut self.state.locals);
        locals.filter(|(mem, _)| mem.seen == Some(Seen::Block)).for_each(|(_, local)| local.fill(0xff));
    }

    fn sync(&mut self, sync: Sync) -> Result<(), Fault> {
        match sync {
            Sync::Barrier(_) | Sync::Cluster | Sync::Elect => self.state.threads.barrier(),
            Sync::Await => self.state.threads.await_turn(),
            Sync::Pass => self.state.threads.pass_turn(),
            Sync::Commit => self.state.transfers.commit(),
            Sync::Wait { newest } => {
                for copy in self.state.transfers.wait(newest) {
                    let around = self.state.threads.move_to(copy.by);
                    let stored = self.put(Touch::Write, copy.mem, copy.index, copy.bits);
                    self.state.threads.move_to(around);
                    stored?;
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, node: &Node) -> Result<(), Fault> {
        if self.state.counter.is_some() {
            self.count(node);
        }
        match node {
            Node::Loop { var, lane, width, extent, body } => {
                let extent = self.index(extent)?;
                for iteration in 0..extent {
                    self.state.symbols[*var] = iteration;
                    if let Some(lane) = lane {
                        self.state.symbols[lane.var] = lane.of(iteration, extent);
                    }
                    let counter = self.state.counter.as_mut();
                    let path = counter.map(|counter| counter.enter(*var, iteration, i64::from(*width)));
                    self.run(body)?;
                    if let (Some(path), Some(counter)) = (path, &mut self.state.counter) {
                        counter.leave(path);
                    }
                }
            }
            Node::Level { team, var, extent, body } => {
                let around = self.state.counter.as_mut().map(Counter::enter_team);
                for iteration in 0..self.index(extent)? {
                    self.state.symbols[*var] = iteration;
                    self.state.threads.enter(team.level, i64::from(team.from) + iteration);
                    if team.level == Level::Block {
                        self.state.transfers.clear();
                        self.forget_blocks_own();
                    }
                    self.run(body)?;
                    self.state.threads.leave();
                }
                if let (Some(around), Some(counter)) = (around, &mut self.state.counter) {
                    counter.leave_team(around);
                    if !team.level.has_threads() {
                        counter.complete(&self.code.mems);
                    }
                }
            }
            Node::Instruction { side, var, extent, body } => {
                for iteration in 0..self.index(extent)? {
                    self.state.symbols[*var] = iteration;
                    self.state.threads.place(*side, Some(iteration));
                    self.run(body)?;
                }
                self.state.threads.place(*side, None);
            }
            Node::Sync(sync) => self.sync(*sync)?,
            Node::If { cond, then, other } => {
                let is_taken = all_hold(cond, &self.state.symbols).ok_or(Fault::NoValue)?;
                self.run(if is_taken { then } else { other })?;
            }
            Node::Load { val, ty, place, guard, other } => {
                let is_loaded = all_hold(guard, &self.state.symbols).ok_or(Fault::NoValue)?;
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
                if all_hold(guard, &self.state.symbols).ok_or(Fault::NoValue)? {
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
                if all_hold(guard, &self.state.symbols).ok_or(Fault::NoValue)? {
                    let index = self.position(place)?;
                    let old = cast(place.dtype, *ty, self.load_as(Touch::Fetch, place.mem, index)?);
                    let sum = function(self.state.values[*a], self.state.values[*b], old);
                    self.store(place.mem, index, cast(*ty, place.dtype, sum))?;
                }
            }
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
            Node::Lanes(reduction) => self.lanes(reduction)?,
            Node::Products { sum, terms, function } => {
                let index = self.position(sum)?;
                for [a, b] in terms {
                    let (a, b) = (self.operand(a)?, self.operand(b)?);
                    let total = function(a, b, self.load_as(Touch::Fetch, sum.mem, index)?);
                    self.store(sum.mem, index, total)?;
                }
            }
            Node::Zero { place } => {
                let index = self.position(place)?;
                self.store(place.mem, index, 0)?;
            }
            Node::Move { from, to, kept, is_async } => {
                if all_hold(kept, &self.state.symbols).ok_or(Fault::NoValue)? {
                    let is_read = all_hold(&from.guard, &self.state.symbols).ok_or(Fault::NoValue)?;
                    let bits = if is_read { self.load(&from.place)? } else { 0 };
                    let index = self.position(to)?;
                    if *is_async {
                        if let Some(counter) = &mut self.state.counter {
                            counter.copies(to.dtype.size());
                        }
                        // Until it is waited for, what is there is worth nothing.
                        self.store(to.mem, index, Bits::MAX)?;
                        self.state.transfers.start(to.mem, index, bits, self.state.threads.position());
                    } else {
                        self.store(to.mem, index, bits)?;
                    }
                }
            }
            Node::Prefetch { index, guard } => {
                if all_hold(guard, &self.state.symbols).ok_or(Fault::NoValue)? {
                    self.index(index)?;
                }
            }
        }
        Ok(())
    }

    /// Who runs statements.
    fn by(&self) -> By {
        By { range: self.state.threads.current(), at: self.state.threads.at() }
    }

    /// Counts an act that is about to run.
    fn count(&mut self, node: &Node) {
        let by = self.by();
        if let Some(counter) = &mut self.state.counter {
            counter.begin(node, by);
        }
    }

    /// Counts an access of an element.
    fn note(&mut self, mem: usize, at: usize, is_store: bool) {
        let by = self.by();
        if let Some(counter) = &mut self.state.counter {
            counter.note(mem, &self.code.mems[mem], at, is_store, by);
        }
    }

    /// A point of the grid ends: what it held is known.
    fn end_counts(&mut self) {
        let Some(counter) = &mut self.state.counter else { return };
        counter.complete(&self.code.mems);
        let (mut registers, mut shared) = (0, 0);
        for (at, mem) in self.code.mems.iter().enumerate() {
            let size = mem.dtype.size();
            match mem.space {
                Space::Register if self.code.has_levels => {
                    registers += size * self.state.threads.most_owned(at)
                }
                Space::Register => registers += size * self.state.extents[at],
                Space::Shared => shared += size * self.state.extents[at],
                Space::Read
                | Space::Write
                | Space::Update
                | Space::Scratch
                | Space::Cluster
                | Space::Global => {}
            }
        }
        let counts = &mut counter.counts;
        counts.register_bytes = counts.register_bytes.max(registers as u64);
        counts.shared_bytes = counts.shared_bytes.max(shared as u64);
    }

    fn index(&self, formula: &Formula) -> Result<i64, Fault> {
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

    /// An element as f32.
    fn operand(&mut self, Operand { place, guard }: &Operand) -> Result<Bits, Fault> {
        let is_read = all_hold(guard, &self.state.symbols).ok_or(Fault::NoValue)?;
        Ok(if is_read { cast(place.dtype, Dtype::F32, self.load(place)?) } else { 0 })
    }

    fn load(&mut self, place: &ElementRef) -> Result<Bits, Fault> {
        let index = self.position(place)?;
        self.load_at(place.mem, index)
    }

    pub(super) fn load_at(&mut self, mem: usize, index: i64) -> Result<Bits, Fault> {
        self.load_as(Touch::Read, mem, index)
    }

    pub(super) fn load_as(&mut self, touch: Touch, mem: usize, index: i64) -> Result<Bits, Fault> {
        let (at, size) = self.locate(mem, index)?;
        self.trace(touch, mem, at / size)?;
        if self.state.counter.is_some() && touch != Touch::Combine {
            self.note(mem, at / size, false);
        }
        let bytes = match self.args.get(mem) {
            Some(MemView::Read(bytes)) => bytes,
            Some(MemView::Write(bytes)) => &**bytes,
            None => &self.state.locals[mem - self.code.params],
        };
        Ok(read(bytes, at, size))
    }

    pub(super) fn store(&mut self, mem: usize, index: i64, bits: Bits) -> Result<(), Fault> {
        self.store_as(Touch::Write, mem, index, bits)
    }

    fn trace(&mut self, touch: Touch, mem: usize, index: usize) -> Result<(), Fault> {
        if !self.state.traces.touch(mem, index, touch) {
            return Err(Fault::Race { mem, index });
        }
        let is_apart = !self.code.has_levels || self.state.threads.touch(mem, index, touch);
        if is_apart { Ok(()) } else { Err(Fault::Threads { mem, index }) }
    }

    pub(super) fn store_as(&mut self, touch: Touch, mem: usize, index: i64, bits: Bits) -> Result<(), Fault> {
        if let (true, Ok(at)) = (self.state.counter.is_some(), usize::try_from(index)) {
            self.note(mem, at, true);
        }
        self.put(touch, mem, index, bits)
    }

    /// As [`Machine::store_as`], of what was counted when it was begun.
    fn put(&mut self, touch: Touch, mem: usize, index: i64, bits: Bits) -> Result<(), Fault> {
        let (at, size) = self.locate(mem, index)?;
        self.trace(touch, mem, at / size)?;
        let bytes = match self.args.get_mut(mem) {
            Some(MemView::Read(_)) => {
                unreachable!("invariant: a memory that is stored to was given to be written")
            }
            Some(MemView::Write(bytes)) => bytes,
            None => &mut self.state.locals[mem - self.code.params][..],
        };
        write(bytes, at, size, bits);
        Ok(())
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
