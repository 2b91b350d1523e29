//! Reports what is wrong with a kernel.

mod boxes;
mod products;

use std::collections::HashMap;

use litz_sym::{Expr, Rel, Sym};

use crate::diag::Diags;
use crate::dtype::{Dtype, Kind};
use crate::ids::Id;
use crate::kernel::{
    Act, Blocks, Filling, Kernel, KernelLoopKind, LaneReduction, Loop, Mem, MemData, MemorySpace, Op, Ring,
    RingData, Stmt, Sync, Val, Warps, visit,
};
use crate::scalar::ReduceOp;
use crate::target::{Gpu, Level, Team};
use crate::verify::transpose::TransposeLoops;
use crate::verify::{Report, interleave, reach, search};

/// What is wrong with a kernel.
///
/// Slugs: those of [`verify_form`], and `launch-reach` for an access that is not known to stay inside of its memory.
pub fn verify(kernel: &Kernel) -> Diags {
    let mut report = Report { diags: verify_form(kernel), ..Report::default() };
    // What the names in indices mean is certain only where everything else is right.
    if report.diags.is_empty() {
        reach::escapes(kernel).into_iter().for_each(|escape| report.fail("launch-reach", escape));
    }
    report.diags
}

/// What is wrong with a kernel, accesses outside of its memory left out.
///
/// Slugs: `symbol-name`, `empty-range`, `duplicate-symbol`, `undeclared-symbol`, `duplicate-name`, `negative-size`,
/// `stride-rank`, `number`, `too-large`, `index-rank`, `param-space`, `symbolic-register`, `register-index`, `symbolic-unroll`, `zero-lanes`, `no-turns`, `no-search`, `no-square`, `zero-grain`,
/// `unknown-memory`, `undefined-value`, `redefined-value`, `operand-count`, `type-mismatch`, `literal-type`,
/// `store-to-read`, `atomic-store`, `level-order`, `divergent-barrier`, `wrong-election`, `wrong-turn`, `wrong-ring`, `wrong-layout`, `unknown-check`, `instruction-shape`, `wrong-fragment`, `flat-memory`, `empty-copy`, `wrong-box`.
pub fn verify_form(kernel: &Kernel) -> Diags {
    let mut report = Report::default();
    for &sym in &kernel.sizes {
        report.size_symbol(sym, &kernel.facts);
    }
    let vals = vec![State::Undefined; kernel.vals.len()];
    let (around, rows) = (Vec::new(), TransposeLoops::default());
    let top = if kernel.blocks() == Blocks::One { Level::Block } else { Level::Grid };
    let mut verifier =
        Verifier { report, kernel, vals, loops: HashMap::new(), around, top, rows, is_filling: false };
    verifier.run();
    verifier.report.diags
}

/// Where in the text order a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Undefined,
    InScope,
    OutOfScope,
}

struct Verifier<'a> {
    report: Report,
    kernel: &'a Kernel,
    vals: Vec<State>,
    /// Kinds of the loops around.
    loops: HashMap<Sym, KernelLoopKind>,
    /// The levels whose loops are around, outermost first.
    around: Vec<Level>,
    /// What runs statements that no loop over a level is around: all blocks of a grid point, or one.
    top: Level,
    /// The same loops, as loads by rows see them.
    rows: TransposeLoops,
    /// Whether the warps that fill a ring have acquired a buffer here, and not released it.
    is_filling: bool,
}

impl Verifier<'_> {
    fn run(&mut self) {
        let kernel = self.kernel;
        self.report.unique(kernel.mems.values().map(|mem| &*mem.name), "memories");
        for (mem, data) in kernel.mems.iter() {
            self.mem(mem, data);
        }
        for axis in &kernel.grid {
            self.report.extent(axis.extent, format_args!("grid axis {}", axis.var));
        }
        for axis in &kernel.grid {
            self.report.declare(axis.var);
        }
        for (ring, data) in kernel.rings.iter() {
            self.ring(ring, *data);
        }
        self.report.check(kernel.grain > 0, "zero-grain", "a thread takes at least one grid point at a time");
        self.report.check(kernel.registers != Some(0), "zero-grain", "a thread has at least one register");
        self.block(&kernel.body);
        if let Some(early) = kernel.accesses_early() {
            self.report.check(false, "early-access", format_args!("{early} ahead of `wait kernels`"));
        }
    }

    fn mem(&mut self, mem: Mem, data: &MemData) {
        let name = &data.name;
        let (rank, strides) = (data.sizes.len(), data.strides.len());
        let message = format_args!("`{name}`: {strides} strides for {rank} dimensions");
        self.report.check(rank == strides, "stride-rank", message);
        for &size in data.sizes.iter().chain(&data.strides) {
            self.report.extent(size, format_args!("memory `{name}`"));
        }
        let is_param = mem.index() < self.kernel.params;
        let message =
            format_args!("`{name}`: {} memory on the wrong side of the parameter list", data.space.name());
        self.report.check(is_param != data.space.is_local(), "param-space", message);
        if let Some(swizzle) = data.swizzle {
            let message = format_args!("`{name}`: {} of {} elements are no units", swizzle.unit, swizzle.row);
            self.report.check(swizzle.units(data.dtype.size()).is_some(), "wrong-layout", message);
            let is_banked = matches!(data.space, MemorySpace::Shared | MemorySpace::Cluster);
            let message = format_args!("`{name}`: {} memory has no banks", data.space.name());
            self.report.check(is_banked, "wrong-layout", message);
        }
        if data.space == MemorySpace::Number {
            let message = format_args!("`{name}`: expected one element of a number");
            self.report.check(data.span().is_one(), "number", message);
        }
        if matches!(data.space, MemorySpace::Register | MemorySpace::Own) {
            let message = format_args!("`{name}`: expected a constant extent, found {}", data.span());
            self.report.check(data.span().as_int().is_some(), "symbolic-register", message);
        }
    }

    /// Whether all threads of a block come to a statement.
    fn is_block(&self) -> bool {
        self.around.last().copied().unwrap_or(self.top) == Level::Block
    }

    fn warps(&mut self, warps: Warps, slug: &'static str) {
        let most = Gpu::THREADS / Gpu::LANES;
        let message = format_args!("{warps}: a block has {most} warps at most");
        self.report.check(warps.count > 0 && warps.end() <= most, slug, message);
    }

    fn ring(&mut self, ring: Ring, data: RingData) {
        let message = format_args!("{ring} has no buffers");
        self.report.check(data.buffers > 0, "wrong-ring", message);
        let message = format_args!("{ring}: {} and {} have warps in common", data.fills, data.empties);
        self.report.check(!data.fills.overlaps(data.empties), "wrong-ring", message);
        self.warps(data.fills, "wrong-ring");
        self.warps(data.empties, "wrong-ring");
    }

    /// Checks that each side of a ring releases in a block of statements what it has acquired there, one buffer after the other.
    fn ring_acts(&mut self, body: &[Stmt]) {
        for ring in self.kernel.rings.ids() {
            for waited in [Filling::Full, Filling::Empty] {
                let mut is_held = false;
                for stmt in body {
                    let Stmt::Act(Act::Sync(sync)) = stmt else { continue };
                    let expected = if let Sync::Acquire { ring: own, filling, .. } = sync
                        && (*own, *filling) == (ring, waited)
                    {
                        false
                    } else if let Sync::Release { ring: own, filling } = sync
                        && *own == ring
                        && *filling != waited
                    {
                        true
                    } else {
                        continue;
                    };
                    let message = format_args!("{sync}: buffers are acquired and released in turns");
                    self.report.check(is_held == expected, "wrong-ring", message);
                    is_held = !expected;
                }
                let message =
                    format_args!("{ring}: what is acquired to be {} is not released", waited.name());
                self.report.check(!is_held, "wrong-ring", message);
            }
        }
    }

    /// Statements whose definitions end with them.
    fn block(&mut self, body: &[Stmt]) {
        let mark = self.report.enter();
        self.ring_acts(body);
        for stmt in body {
            self.stmt(stmt);
        }
        for stmt in body {
            if let Stmt::Act(Act::Let { val, .. }) = stmt
                && let Some(state) = self.vals.get_mut(val.index())
            {
                *state = State::OutOfScope;
            }
        }
        self.report.leave(mark);
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Loop(inner) => self.loop_(inner),
            Stmt::If { cond, then, other } => {
                self.rels(cond, "if");
                let around = std::mem::take(&mut self.rows);
                for block in [then, other] {
                    self.rows = around.in_branch();
                    self.block(block);
                }
                self.rows = around;
            }
            Stmt::Act(Act::Let { val, op }) => self.define(*val, op),
            Stmt::Act(Act::Bind { sym, value, extent, check }) => {
                let ty = self.use_val(*value, "bind");
                self.report.same_type(Some(Dtype::I64), ty, format_args!("bind {sym}"));
                self.report.expr(*extent, format_args!("bind {sym}"));
                self.report.declare(*sym);
                self.rows.bind(*sym);
                let is_known = self.kernel.checks.len() > *check as usize;
                self.report.check(
                    is_known,
                    "unknown-check",
                    format_args!("bind {sym}: there is no check {check}"),
                );
            }
            Stmt::Act(Act::Store { mem, index, value, combine, guard, atomic }) => {
                let place = format!("store to `{}`", self.mem_name(*mem));
                self.stored(*mem, index, *value, &place);
                self.rels(guard, &place);
                if let (Some(op), Some(data)) = (combine, self.kernel.mems.get(*mem)) {
                    self.report.combination(*op, data.dtype, &place);
                }
                let message = format_args!("{place}: only combining stores to what others see are atomic");
                let is_seen = mem.index() < self.kernel.params || !self.around.is_empty();
                self.report.check(!atomic || (combine.is_some() && is_seen), "atomic-store", message);
                self.atomic(*atomic, *combine, *mem, &place);
            }
            Stmt::Act(Act::MulAdd { mem, index, factors, guard }) => {
                let place = format!("store to `{}`", self.mem_name(*mem));
                self.writable(*mem, index, &place);
                self.rels(guard, &place);
                let expected = self.kernel.mems.get(*mem).map(|data| data.dtype.compute());
                for factor in factors {
                    let found = self.use_val(*factor, &place);
                    self.report.same_type(expected, found, &place);
                }
                let message = format_args!("{place}: only sums of floats are rounded");
                let is_float = expected.is_none_or(|ty| ty.kind() == Kind::Float);
                self.report.check(is_float, "type-mismatch", message);
            }
            Stmt::Act(Act::Lanes(lanes)) => self.lanes(lanes),
            Stmt::Act(Act::Sync(Sync::Commit | Sync::Wait { .. })) => {}
            Stmt::Act(Act::Sync(Sync::Await | Sync::Pass)) => {
                let is_in_chain = self.loops.values().any(|kind| *kind == KernelLoopKind::Chain);
                self.report.check(is_in_chain, "wrong-turn", "turns are taken in a chain");
            }
            Stmt::Act(Act::Sync(Sync::Barrier(level))) => {
                let around = self.around.last().copied().unwrap_or(self.top);
                let message = format_args!(
                    "barrier {}: threads of a {} come here one by one",
                    level.name(),
                    around.name()
                );
                self.report.check(*level == around && level.has_threads(), "divergent-barrier", message);
            }
            Stmt::Act(Act::Sync(Sync::Kernels)) => {
                let is_own = self.loops.is_empty();
                let message =
                    format_args!("wait kernels: what comes here is not all threads of a block, once");
                self.report.check(is_own, "early-access", message);
            }
            Stmt::Act(Act::Sync(sync @ (Sync::CommitProducts | Sync::Products { .. }))) => {
                let is_group = self.around.last() == Some(&Level::Warpgroup);
                let message = format_args!("{sync}: what comes here is no warpgroup");
                self.report.check(is_group, "wrong-fragment", message);
            }
            Stmt::Act(Act::Sync(Sync::Warps(warps))) => {
                let message = format_args!("barrier {warps}: what comes here is not all threads of a block");
                self.report.check(self.is_block(), "divergent-barrier", message);
                self.warps(*warps, "divergent-barrier");
            }
            Stmt::Act(Act::Sync(sync @ (Sync::Acquire { ring, .. } | Sync::Release { ring, .. }))) => {
                let message = format_args!("{sync}: there is no such ring");
                self.report.check(self.kernel.rings.get(*ring).is_some(), "wrong-ring", message);
                let message = format_args!("{sync}: what comes here is not all threads of a block");
                self.report.check(self.is_block(), "wrong-ring", message);
                if let Sync::Acquire { buffer, filling, .. } = sync {
                    self.report.declare(*buffer);
                    self.is_filling |= *filling == Filling::Empty;
                }
                if let Sync::Release { filling: Filling::Full, .. } = sync {
                    self.is_filling = false;
                }
            }
            Stmt::Act(Act::Sync(Sync::Cluster)) => {
                let is_between = self.around.is_empty() && self.kernel.blocks() == Blocks::Cluster;
                let message = format_args!("barrier cluster: what comes here is not the blocks of a cluster");
                self.report.check(is_between, "divergent-barrier", message);
            }
            Stmt::Act(Act::Sync(Sync::Elect)) => {
                let is_between = self.top == Level::Grid && self.kernel.blocks() == Blocks::Many;
                let is_own = self.kernel.body.iter().any(|own| std::ptr::eq(own, stmt));
                let message =
                    format_args!("elect last: expected once, behind loops over blocks that are no cluster");
                self.report.check(is_between && is_own, "wrong-election", message);
                self.top = Level::Block;
            }
            Stmt::Act(Act::Dot(dot)) => self.dot(dot),
            Stmt::Act(Act::MatrixProduct(product)) => self.matrix_product(product),
            Stmt::Act(Act::FragmentLoad(load)) => self.fragment_load(load),
            Stmt::Act(Act::FragmentProduct(product)) => self.fragment_product(product),
            Stmt::Act(Act::Copy { count, from, along, to, .. }) => {
                let place = format!("copy to `{}`", self.mem_name(to.mem));
                self.report.check(*count > 0, "empty-copy", format_args!("{place}: it moves nothing"));
                self.element(from.mem, &from.index, &place);
                self.writable(to.mem, &to.index, &place);
                if let Some(along) = along {
                    self.transposed(from.mem, &from.index, *along, &place);
                    let message = format_args!("{place}: what is transposed has no guard");
                    self.report.check(from.guard.is_empty(), "no-square", message);
                }
                let [read, written] = [from.mem, to.mem].map(|mem| Some(self.kernel.mems.get(mem)?.dtype));
                self.report.same_type(read, written, &place);
                for element in [from, to] {
                    self.rels(&element.guard, &place);
                    self.flat(element.mem, &place);
                }
            }
            Stmt::Act(Act::BoxCopy(copy)) => self.box_copy(copy),
            Stmt::Act(Act::Prefetch { mem, index, ahead: _, guard }) => {
                let place = format!("prefetch of `{}`", self.mem_name(*mem));
                self.element(*mem, index, &place);
                self.rels(guard, &place);
            }
            Stmt::Act(Act::ArgStore { best, at, index, value, position, .. }) => {
                let place = format!("store to `{}`", self.mem_name(*best));
                self.stored(*best, index, *value, &place);
                self.writable(*at, index, &place);
                let at_type = self.kernel.mems.get(*at).map(|data| data.dtype);
                self.report.same_type(Some(Dtype::I64), at_type, &place);
                self.report.expr(*position, &place);
            }
        }
    }

    fn loop_(&mut self, inner: &Loop) {
        let Loop { kind, var, extent, body } = inner;
        self.report.extent(*extent, format_args!("loop {var}"));
        match kind {
            KernelLoopKind::For | KernelLoopKind::Mma { .. } => {}
            KernelLoopKind::Chain => {
                self.level(Level::Block.into(), *var);
                self.chain_turns(*var, body);
            }
            KernelLoopKind::Pipeline { buffers } => {
                let message = format_args!("loop {var}: a pipeline has at least two buffers");
                self.report.check(*buffers >= 2, "zero-lanes", message);
            }
            KernelLoopKind::Level(team) => self.level(*team, *var),
            KernelLoopKind::Search => self.search(inner),
            KernelLoopKind::Unroll => {
                let message = format_args!("loop {var}: expected a constant extent, found {extent}");
                self.report.check(extent.as_int().is_some(), "symbolic-unroll", message);
            }
            KernelLoopKind::Vector { lanes, copies, interleaved, .. } => {
                let message = format_args!("loop {var}: expected at least one lane and one copy");
                self.report.check(*lanes > 0 && *copies > 0, "zero-lanes", message);
                if *interleaved && let Some(obstacle) = interleave::obstacle(self.kernel, inner) {
                    self.report.fail("no-turns", format_args!("loop {var}: {obstacle}"));
                }
            }
        }
        let mark = self.report.enter();
        let lane = if let KernelLoopKind::Vector { lane, .. } = kind { *lane } else { None };
        let vars = [Some(*var), lane];
        for &var in vars.iter().flatten() {
            self.report.declare(var);
            self.loops.insert(var, *kind);
        }
        let depth = self.around.len();
        self.around.extend(kind.level());
        let inside = self.rows.inside(inner);
        let rows = std::mem::replace(&mut self.rows, inside);
        self.block(body);
        self.rows = rows;
        self.around.truncate(depth);
        for var in vars.iter().flatten() {
            self.loops.remove(var);
        }
        self.report.leave(mark);
    }

    /// Checks that many iterations of a search can be asked at once.
    fn search(&mut self, inner: &Loop) {
        let is_vector = |kind: &KernelLoopKind| {
            matches!(kind, KernelLoopKind::Vector { .. } | KernelLoopKind::Mma { .. })
        };
        let obstacle = match self.loops.values().any(is_vector) {
            true => Some("elements of a vector come to it one by one".to_owned()),
            false => search::obstacle(self.kernel, inner),
        };
        if let Some(obstacle) = obstacle {
            self.report.fail("no-search", format_args!("loop {}: {obstacle}", inner.var));
        }
    }

    /// Checks that a level is one that the level around has.
    fn level(&mut self, Team { level, from, each }: Team, var: Sym) {
        let around = self.around.last().copied().unwrap_or(self.top);
        let message = format_args!("loop {var}: a {} has no {} of its own", around.name(), level.name());
        self.report.check(level.is_within(around), "level-order", message);
        let is_group =
            level == Level::Lane && each.is_power_of_two() && each <= Gpu::LANES && from % each == 0;
        let message = format_args!("loop {var}: lanes that do the same are a power of two side by side");
        self.report.check(each == 1 || is_group, "level-width", message);
    }

    /// Checks that each iteration of a chain takes its turn once, whatever it runs.
    fn chain_turns(&mut self, var: Sym, body: &[Stmt]) {
        let is_turn = |stmt: &Stmt| matches!(stmt, Stmt::Act(Act::Sync(Sync::Await | Sync::Pass)));
        let mut count = 0;
        visit(body, &mut |stmt| count += usize::from(is_turn(stmt)));
        let own: Vec<&Stmt> = body.iter().filter(|stmt| is_turn(stmt)).collect();
        let is_once =
            matches!(own[..], [] | [Stmt::Act(Act::Sync(Sync::Await)), Stmt::Act(Act::Sync(Sync::Pass))]);
        let message = format_args!("loop {var}: expected one turn in each iteration, awaited and passed on");
        self.report.check(is_once && count == own.len(), "wrong-turn", message);
    }

    fn lanes(&mut self, reduction: &LaneReduction) {
        let LaneReduction { op, into, from, positions, index, first, lanes, copies, atomic } = reduction;
        let place = format!("lanes of `{}`", self.mem_name(*from));
        let message = format_args!("{place}: expected a power of two and at least one copy");
        self.report.check(lanes.is_power_of_two() && *copies > 0, "zero-lanes", message);
        self.writable(*into, index, &place);
        self.element(*from, first, &place);
        let [element, lane] = [into, from].map(|mem| Some(self.kernel.mems.get(*mem)?.dtype));
        self.report.same_type(element.map(Dtype::compute), lane, &place);
        if let Some(ty) = lane {
            self.report.combination(*op, ty, &place);
        }
        let message = format_args!("{place}: only parameters are combined with atomically");
        self.report.check(!atomic || into.index() < self.kernel.params, "atomic-store", message);
        self.atomic(*atomic, Some(*op), *into, &place);
        for (mem, index) in positions.iter().flatten().zip([index, first]) {
            self.element(*mem, index, &place);
            self.operand(*mem, Dtype::I64, &place);
        }
        if let Some([at, _]) = positions {
            self.writable(*at, index, &place);
            let message = format_args!("{place}: only the largest and the smallest value have a position");
            let is_best = matches!(op, ReduceOp::Max | ReduceOp::Min) && !atomic;
            self.report.check(is_best, "type-mismatch", message);
        }
    }

    /// Checks that an element that several combine with at once has one value, whoever comes first: sums and products of floats round.
    fn atomic(&mut self, is_atomic: bool, combine: Option<ReduceOp>, mem: Mem, place: &str) {
        let is_float = self.kernel.mems.get(mem).is_some_and(|data| data.dtype.is_float());
        let rounds = is_float && matches!(combine, Some(ReduceOp::Sum | ReduceOp::Prod));
        let message = format_args!("{place}: what floats add up to depends on who comes first");
        self.report.check(!is_atomic || !rounds, "atomic-store", message);
    }

    /// Checks that elements of a memory are adjacent and have addresses.
    fn flat(&mut self, mem: Mem, place: &str) {
        let Some(data) = self.kernel.mems.get(mem) else { return };
        let is_flat = data.is_flat() && data.space != MemorySpace::Register;
        self.report.check(is_flat, "flat-memory", format_args!("{place}: `{}` is no flat memory", data.name));
    }

    /// Checks the type of what an instruction reads or adds to.
    fn operand(&mut self, mem: Mem, expected: Dtype, place: &str) {
        let found = self.kernel.mems.get(mem).map(|data| data.dtype);
        self.report.same_type(Some(expected), found, place);
    }

    fn rels(&mut self, rels: &[Rel], place: &str) {
        for rel in rels {
            self.report.rel(rel, place);
        }
    }

    fn mem_name(&self, mem: Mem) -> &str {
        self.kernel.mems.get(mem).map_or("?", |data| &data.name)
    }

    /// The type of a value in scope.
    fn use_val(&mut self, val: Val, place: &str) -> Option<Dtype> {
        let problem = match self.vals.get(val.index()) {
            Some(State::InScope) => return self.kernel.vals.get(val).copied(),
            Some(State::OutOfScope) => "is used outside of the block that defines it",
            Some(State::Undefined) | None => "is used before its definition",
        };
        self.report.fail("undefined-value", format_args!("{place}: {val} {problem}"));
        None
    }

    /// Writes `value` to an element.
    fn stored(&mut self, mem: Mem, index: &[Expr], value: Val, place: &str) {
        let found = self.use_val(value, place);
        // Stores convert to half types; the value is of the type that arithmetic is done in.
        let expected = self.kernel.mems.get(mem).map(|data| data.dtype.compute());
        self.report.same_type(expected, found, place);
        self.writable(mem, index, place);
    }

    fn writable(&mut self, mem: Mem, index: &[Expr], place: &str) {
        self.element(mem, index, place);
        let is_read_only = self.kernel.mems.get(mem).is_some_and(|data| data.space.is_only_read());
        self.report.check(!is_read_only, "store-to-read", format_args!("{place}: it is only read"));
    }

    /// Checks that an element is in a transpose block of memory that nothing writes.
    fn transposed(&mut self, mem: Mem, index: &[Expr], along: Sym, place: &str) {
        let Some(data) = self.kernel.mems.get(mem) else { return };
        let is_block = data.space.is_only_read() && self.rows.is_transpose_block(data.place(index), along);
        let message = format_args!(
            "{place}: all iterations of loop {along} together load no square of `{}`",
            data.name
        );
        self.report.check(is_block, "no-square", message);
    }

    fn element(&mut self, mem: Mem, index: &[Expr], place: &str) {
        index.iter().for_each(|&at| self.report.expr(at, place));
        let Some(data) = self.kernel.mems.get(mem) else {
            return self
                .report
                .fail("unknown-memory", format_args!("{place}: {mem} is no memory of the kernel"));
        };
        let (found, rank) = (index.len(), data.sizes.len());
        let message = format_args!("{place}: {found} coordinates, but `{}` has {rank} dimensions", data.name);
        self.report.check(found == rank, "index-rank", message);
        if data.space != MemorySpace::Register {
            return;
        }
        let (loops, report, is_threaded) = (&self.loops, &mut self.report, !self.around.is_empty());
        let syms = index.iter().flat_map(|at| at.syms());
        syms.for_each(|sym| {
            let is_written_out = match loops.get(&sym) {
                Some(
                    KernelLoopKind::Unroll
                    | KernelLoopKind::Vector { .. }
                    | KernelLoopKind::Level(_)
                    | KernelLoopKind::Chain,
                ) => true,
                // The sums of a warp's instruction are spread over its lanes.
                Some(KernelLoopKind::Mma { .. }) => is_threaded,
                Some(KernelLoopKind::For | KernelLoopKind::Search | KernelLoopKind::Pipeline { .. })
                | None => false,
            };
            let message = format_args!("{place}: `{sym}` is the variable of no unrolled or vector loop");
            report.check(is_written_out, "register-index", message);
        });
    }

    fn define(&mut self, val: Val, op: &Op) {
        let place = format!("definition of {val}");
        self.op(val, op, &place);
        match self.vals.get_mut(val.index()) {
            None => {
                self.report.fail("undefined-value", format_args!("{place}: it is no value of the kernel"))
            }
            Some(state @ State::Undefined) => *state = State::InScope,
            Some(State::InScope | State::OutOfScope) => {
                self.report.fail("redefined-value", format_args!("{place}: it is defined twice"));
            }
        }
    }

    fn op(&mut self, val: Val, op: &Op, place: &str) {
        let Some(&ty) = self.kernel.vals.get(val) else { return };
        match op {
            Op::Load { mem, index, guard, other } => {
                self.element(*mem, index, place);
                self.rels(guard, place);
                let expected = self.kernel.mems.get(*mem).map(|data| data.dtype.compute());
                self.report.same_type(expected, Some(ty), place);
                if !guard.is_empty() {
                    self.report.literal(*other, ty, place);
                }
            }
            Op::Transposed { mem, index, along } => {
                self.element(*mem, index, place);
                self.transposed(*mem, index, *along, place);
                let expected = self.kernel.mems.get(*mem).map(|data| data.dtype.compute());
                self.report.same_type(expected, Some(ty), place);
            }
            Op::Lookup { mem, first, count, by } => {
                self.element(*mem, first, place);
                let by = self.use_val(*by, place);
                self.report.same_type(Some(Dtype::I32), by, place);
                let Some(data) = self.kernel.mems.get(*mem) else { return };
                self.report.same_type(Some(data.dtype), Some(ty), place);
                let is_table =
                    count.is_power_of_two() && data.space == MemorySpace::Register && data.is_flat();
                let message = format_args!(
                    "{place}: {count} elements of `{}`, which are no table in registers",
                    data.name
                );
                self.report.check(is_table, "no-table", message);
            }
            Op::Const(value) => self.report.literal(*value, ty, place),
            Op::Index(value) => {
                self.report.expr(*value, place);
                self.report.same_type(Some(Dtype::I64), Some(ty), place);
            }
            Op::Cond(rel) => {
                self.report.rel(rel, place);
                self.report.same_type(Some(Dtype::Bool), Some(ty), place);
            }
            Op::Call(op, args) => {
                let args: Vec<_> = args.iter().map(|&arg| self.use_val(arg, place)).collect();
                self.report.operation(*op, &args, ty, place);
            }
            Op::Cast(value) => drop(self.use_val(*value, place)),
            Op::Round(half, value) => {
                let found = self.use_val(*value, place);
                self.report.same_type(Some(Dtype::F32), found, place);
                self.report.same_type(Some(Dtype::F32), Some(ty), place);
                let message = format_args!("{place}: expected a type narrower than f32, found {half}");
                self.report.check(half.compute() != *half, "type-mismatch", message);
            }
            Op::Bitcast(value) => {
                let found = self.use_val(*value, place);
                self.report.bitcast(found, ty, place);
            }
        }
    }
}
