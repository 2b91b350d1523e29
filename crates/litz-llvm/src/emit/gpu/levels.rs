//! Prints loops over levels as conditions on the number of a thread.
//!
//! ```text
//! warp w in 4 from 2 {        number >= 64, w = (number - 64) / 32, w < 4
//!   lane l in 16 each 2 {     own = (number - 64) % 32, l = own / 2, and of the two the first one stores: own % 2 = 0
//! ```
//!
//! A condition is left out where it holds for all threads around, as their number says.

use std::rc::Rc;

use litz_ir::kernel::{KernelLoopKind, Loop, Mem, MemorySpace, Shape, Stmt, threads_of, visit};
use litz_ir::target::{Gpu, Level, Team};
use litz_sym::{Expr, Sym};

use super::super::block::Value;
use super::super::ty::{Prim, Ty};
use super::super::{Bound, EmitError, Emitter, body};
use super::rings;

/// What is known of the thread that runs the code.
#[derive(Clone, Debug)]
pub(in super::super) struct Thread {
    /// Its number among those of the team around, an i32.
    number: Value,
    /// Threads of that team.
    count: u32,
    /// Its number in its block: of the team that it is of, behind which those stand that copy.
    of_block: Value,
    /// The team of a block of several.
    pub(super) team: Option<super::teams::Team>,
    /// The number of its block among those of a point, where several run one.
    pub(super) block: Option<Value>,
    /// Whether all blocks of the point run the code.
    is_of_point: bool,
    /// The number of its warpgroup, inside of a loop over those.
    pub(super) warpgroup: Option<Value>,
    /// The point.
    pub(super) point: Option<Value>,
    /// How many blocks run a point.
    pub(super) blocks_of_point: Expr,
    /// Memories to which threads store what others load.
    pub(in super::super) seen: Rc<[Mem]>,
    /// The rings of the kernel.
    pub(super) rings: Rc<[rings::Place]>,
    /// The barrier that counts what comes to the buffer that is filled, an address in shared memory.
    pub(super) filling: Option<Value>,
    /// Where the thread notes that an index was out of range, in a kernel whose threads wait for others.
    pub(in super::super) failed: Option<Value>,
    /// Variables that the lanes of a warp have different values of.
    varying: Rc<[Sym]>,
    /// Whether lanes of a warp may be elsewhere.
    is_parted: bool,
}

impl Thread {
    /// Whether the threads that run the code are whole warps.
    pub(super) fn is_of_warps(&self) -> bool {
        self.count.is_multiple_of(Gpu::LANES)
    }

    /// Whether the lanes of a warp come here together.
    pub(super) fn has_all_lanes(&self) -> bool {
        !self.is_parted
    }
}

/// Variables of loops over the threads of a warp, and of those in which each of them may be elsewhere, and indices from data.
fn varying(body: &[Stmt]) -> Rc<[Sym]> {
    let mut found = Vec::new();
    visit(body, &mut |stmt| match stmt {
        Stmt::Loop(inner) => {
            let is_of_thread = inner.kind.level().is_some_and(|level| !level.has_threads());
            if is_of_thread || inner.kind == KernelLoopKind::Search {
                found.push(inner.var);
            }
        }
        Stmt::Act(_) => found.extend(stmt.defined()),
        Stmt::If { .. } => {}
    });
    found.into()
}

impl Emitter<'_> {
    /// Numbers the threads of a block.
    pub(super) fn begin_thread(&mut self, shape: &Shape) -> Result<(), EmitError> {
        let number = self.special("tid.x");
        let stored = body::written(&self.kernel.body).into_iter();
        let seen = stored.filter(|&mem| self.kernel.mems[mem].space.is_shared()).collect();
        self.thread = Some(Thread {
            of_block: number.clone(),
            number,
            count: shape.threads,
            team: None,
            block: None,
            is_of_point: true,
            warpgroup: None,
            point: None,
            blocks_of_point: shape.blocks_of_point,
            rings: Rc::default(),
            filling: None,
            seen,
            varying: varying(&self.kernel.body),
            is_parted: false,
            failed: None,
        });
        if self.waits_for_others() && self.may_fail() {
            let slot = self.b.alloca("i1");
            self.b.effect_at(0, &[], &format!("store i1 false, ptr {}", slot.text));
            if let Some(thread) = &mut self.thread {
                thread.failed = Some(slot);
            }
        }
        Ok(())
    }

    /// Numbers the threads of a block anew, where they have parts.
    pub(super) fn count_threads(&mut self, number: Value, count: u32) {
        if let Some(thread) = &mut self.thread {
            (thread.number, thread.of_block, thread.count) = (number.clone(), number, count);
        }
    }

    /// The number of the thread in its block, an i32.
    pub(super) fn of_block(&mut self) -> Value {
        match &self.thread {
            Some(thread) => thread.of_block.clone(),
            None => self.special("tid.x"),
        }
    }

    /// Notes that lanes of a warp may be elsewhere from here on, if some expressions differ between them. Whether that was so.
    pub(in super::super) fn part_lanes(&mut self, by: &[Expr]) -> bool {
        let Some(thread) = &mut self.thread else { return false };
        let before = thread.is_parted;
        let varies = |sym: &Sym| thread.varying.contains(sym);
        thread.is_parted |= by.iter().any(|e| e.syms().iter().any(varies));
        before
    }

    /// Lanes have come together again as they were.
    pub(in super::super) fn join_lanes(&mut self, is_parted: bool) {
        if let Some(thread) = &mut self.thread {
            thread.is_parted = is_parted;
        }
    }

    /// The thread.
    pub(super) fn here(&self) -> Result<&Thread, EmitError> {
        self.thread.as_ref().ok_or_else(|| EmitError::unsupported("threads of a grid point"))
    }

    /// Whether the approximations of the chip are enough.
    pub(in super::super) fn is_rough(&self) -> bool {
        self.thread.is_some() && self.kernel.approximate
    }

    /// The number of the lane in its warp, an i32.
    pub(super) fn lane(&mut self) -> Value {
        let number = self.special("tid.x");
        let last = self.b.int(Prim::I32, 31);
        self.b.binary("and", &number, &last)
    }

    /// A loop over a level: each thread runs the iteration that is its own, if there is one.
    pub(in super::super) fn level_loop(
        &mut self,
        inner: &Loop,
        team: Team,
        extent: Expr,
    ) -> Result<(), EmitError> {
        let around = self.here()?.clone();
        self.facts.declare_index(inner.var, extent);
        let (var, runs, within) = match team.level {
            Level::Grid => return Err(EmitError::malformed("a loop over grids")),
            Level::Block => self.block_of(team, extent, &around)?,
            Level::Warpgroup | Level::Warp | Level::Thread | Level::Lane => {
                self.thread_of(team, extent, &around)?
            }
        };
        self.thread = Some(within);
        let result = self.when(runs, &mut |cx| {
            // What follows from the number holds where the thread has an iteration.
            let var = cx.b.pin(var.clone());
            cx.syms.insert(inner.var, Bound::Scalar(var));
            cx.body(&inner.body)
        });
        self.syms.remove(&inner.var);
        self.thread = Some(around);
        result
    }

    /// The iteration of a block.
    fn block_of(
        &mut self,
        team: Team,
        extent: Expr,
        around: &Thread,
    ) -> Result<(Value, Option<Value>, Thread), EmitError> {
        let Some(block) = around.block.clone() else {
            return Err(EmitError::malformed("a loop over blocks inside of one"));
        };
        if team.each != 1 || team.from != 0 {
            return Err(EmitError::unsupported("several blocks that do the same"));
        }
        let end = self.scalar(extent)?;
        let runs = self.b.compare("icmp slt", &block, &end);
        Ok((block, Some(runs), Thread { is_of_point: false, ..around.clone() }))
    }

    /// The iteration of a thread.
    fn thread_of(
        &mut self,
        team: Team,
        extent: Expr,
        around: &Thread,
    ) -> Result<(Value, Option<Value>, Thread), EmitError> {
        let unit = threads_of(team.level);
        let (from, each) = (team.from * unit, team.each * unit);
        let mut number = around.number.clone();
        let mut conditions = Vec::new();
        if from > 0 {
            let first = self.b.int(Prim::I32, i64::from(from));
            conditions.push(self.b.compare("icmp uge", &number, &first));
            number = self.b.binary("sub", &number, &first);
        }
        let (iteration, own) = match each {
            1 => (number, self.b.int(Prim::I32, 0)),
            // Of a warpgroup, the only one there is has all threads.
            _ if from == 0 && around.count <= each => (self.b.int(Prim::I32, 0), number),
            _ => {
                let each = self.b.int(Prim::I32, i64::from(each));
                (self.b.binary("udiv", &number, &each), self.b.binary("urem", &number, &each))
            }
        };
        let mut warpgroup = around.warpgroup.clone();
        if team.level == Level::Warpgroup {
            let first = self.b.int(Prim::I32, i64::from(team.from));
            warpgroup = Some(self.b.binary("add", &iteration, &first));
        }
        let var = self.b.convert("zext", &iteration, Prim::I64);
        let room = i64::from(around.count.saturating_sub(from)).div_euclid(i64::from(each));
        if self.facts.bounds(extent).lo < room
            || i64::from(around.count) != i64::from(from) + room * i64::from(each)
        {
            let end = self.scalar(extent)?;
            conditions.push(self.b.compare("icmp slt", &var, &end));
        }
        let is_parted = around.is_parted || !conditions.is_empty() && !team.level.has_threads();
        let runs = conditions.into_iter().reduce(|a, b| self.b.and(&a, &b));
        let within =
            Thread { number: own, count: each, is_of_point: false, warpgroup, is_parted, ..around.clone() };
        Ok((var, runs, within))
    }

    /// Whether this is the thread, of those around, that stores to a memory. None where each does. One that has failed stores nothing that outlives
    /// the kernel: it goes on with an index that there is, for the sake of others, and what it computes is nobody's.
    pub(in super::super) fn is_storing(&mut self, mem: Mem) -> Option<Value> {
        let outlives = matches!(self.kernel.mems[mem].space, MemorySpace::Write | MemorySpace::Update);
        let failed = self.thread.as_ref().and_then(|thread| thread.failed.clone()).filter(|_| outlives);
        let is_sound = failed.map(|slot| self.is_sound(&slot));
        match (self.is_first_of(mem), is_sound) {
            (Some(first), Some(sound)) => Some(self.b.and(&first, &sound)),
            (first, sound) => first.or(sound),
        }
    }

    /// Whether the thread, which notes in a variable that it has failed, has not.
    pub(super) fn is_sound(&mut self, slot: &Value) -> Value {
        let failed = self.b.impure(Ty::I1, &[slot], &format!("load i1, ptr {}", slot.text));
        let one = self.b.int(Prim::I1, 1);
        self.b.binary("xor", &failed, &one)
    }

    /// Whether this is the first of the threads around, one of which stores to a memory. None where each does.
    fn is_first_of(&mut self, mem: Mem) -> Option<Value> {
        let space = self.kernel.mems[mem].space;
        let thread = self.thread.clone()?;
        if !space.is_shared() {
            return None;
        }
        let zero = self.b.int(Prim::I32, 0);
        let first = (thread.count > 1).then(|| self.b.compare("icmp eq", &thread.number, &zero));
        let block = thread.block.filter(|_| thread.is_of_point && space != MemorySpace::Shared);
        let Some(block) = block else { return first };
        let zero = self.b.int(Prim::I64, 0);
        let is_first = self.b.compare("icmp eq", &block, &zero);
        Some(match first {
            Some(first) => self.b.and(&first, &is_first),
            None => is_first,
        })
    }

    /// When a store happens that is to happen under a condition: this thread has to be the one that stores, too. None where it always does.
    pub(in super::super) fn storing_where(&mut self, mem: Mem, condition: Option<Value>) -> Option<Value> {
        match (condition, self.is_storing(mem)) {
            (Some(condition), Some(first)) => Some(self.b.and(&condition, &first)),
            (condition, first) => condition.or(first),
        }
    }

    /// From here on one block of the point is left.
    pub(super) fn goes_on_alone(&mut self) {
        if let Some(thread) = &mut self.thread {
            thread.is_of_point = false;
        }
    }
}
