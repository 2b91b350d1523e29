//! Prints statements: loops, branches, definitions and binds.

use litz_ir::Dtype;
use litz_ir::kernel::{Act, KernelLoopKind, Loop, Mem, Op, Stmt, Sync, Val, position, visit};
use litz_sym::{Expr, Rel, Sym};

use super::block::{ScopeKind, Value};
use super::index::{Access, Condition};
use super::ty::{Prim, Ty, register_type};
use super::{Bound, EmitError, Emitter};

/// Most instructions of a kernel. Those of models have a few thousand; LLVM's time and memory grow faster than they do.
const MAX_INSTRUCTIONS: u32 = 1 << 16;

/// All memory that statements write.
pub(super) fn written(stmts: &[Stmt]) -> Vec<Mem> {
    let mut mems = Vec::new();
    visit(stmts, &mut |stmt| mems.extend(stmt.stored().map(|(mem, _)| mem)));
    mems.sort_unstable();
    mems.dedup();
    mems
}

/// Whether a loop copies.
fn has_copies(inner: &Loop) -> bool {
    let mut found = false;
    visit(&inner.body, &mut |stmt| found |= matches!(stmt, Stmt::Act(Act::Copy { .. })));
    found
}

impl Emitter<'_> {
    pub(super) fn statement(&mut self, stmt: &Stmt) -> Result<(), EmitError> {
        match stmt {
            Stmt::Loop(inner) => self.run_loop(inner),
            Stmt::If { cond, then, other } => self.branch(cond, then, other),
            Stmt::Act(Act::Let { val, op }) => {
                let value = self.define(*val, op)?;
                self.vals[val.0 as usize] = Some(value);
                Ok(())
            }
            Stmt::Act(Act::Bind { sym, value, extent, check }) => self.bind(*sym, *value, *extent, *check),
            Stmt::Act(Act::Store { mem, index, value, combine, guard, atomic }) => {
                self.store(*mem, position(index), *value, *combine, guard, *atomic)
            }
            Stmt::Act(Act::MulAdd { mem, index, factors, guard }) => {
                self.multiply_add(*mem, position(index), *factors, guard)
            }
            Stmt::Act(Act::Sync(sync)) => self.sync(*sync),
            Stmt::Act(Act::FragmentLoad(load)) => self.load_fragment(load),
            Stmt::Act(Act::FragmentProduct(product)) => self.multiply_fragments(product),
            Stmt::Act(Act::Lanes(reduction)) => self.lanes(reduction),
            Stmt::Act(Act::Dot(dot)) => self.dot(dot),
            Stmt::Act(Act::MatrixProduct(product)) => self.matrix_product(product),
            Stmt::Act(Act::Copy { count, from, along, to, is_async: false }) => {
                self.copy_run(*count, from, *along, to)
            }
            Stmt::Act(Act::Copy { count, from, to, is_async: true, .. }) => {
                self.copy_in_background(*count, from, to)
            }
            Stmt::Act(Act::BoxCopy(copy)) => self.copy_box(copy),
            Stmt::Act(Act::Prefetch { mem, index, ahead, guard }) => {
                self.prefetch(*mem, position(index), *ahead, guard)
            }
            Stmt::Act(Act::ArgStore { max, best, at, index, value, position: at_point }) => {
                self.arg_store(*max, [*best, *at], position(index), *value, *at_point)
            }
        }
    }

    fn run_loop(&mut self, inner: &Loop) -> Result<(), EmitError> {
        let extent = self.resolve(inner.extent);
        let kind = match (inner.kind, extent.as_int()) {
            // Copies of several lanes are no one instruction.
            (KernelLoopKind::Vector { .. }, Some(_)) if self.thread.is_some() && has_copies(inner) => {
                KernelLoopKind::Unroll
            }
            (kind, _) => kind,
        };
        match kind {
            KernelLoopKind::Unroll => {
                let Some(count) = extent.as_int() else {
                    return Err(EmitError::malformed(format!("unrolled loop over {extent}")));
                };
                if self.store_words(inner, count)? || self.load_pairs(inner, count)? {
                    return Ok(());
                }
                for value in 0..count {
                    if count > i64::from(MAX_INSTRUCTIONS) || self.b.size() > MAX_INSTRUCTIONS {
                        return Err(EmitError::unsupported(format!(
                            "more than {MAX_INSTRUCTIONS} instructions, because loop {} is written out {count} times",
                            inner.var
                        )));
                    }
                    self.syms.insert(inner.var, Bound::Constant(value));
                    self.body(&inner.body)?;
                }
                self.syms.remove(&inner.var);
                Ok(())
            }
            KernelLoopKind::Vector { lanes, copies, interleaved, .. }
                if lanes > 1 && self.lanes.is_none() =>
            {
                if !lanes.is_power_of_two() {
                    return Err(EmitError::unsupported(format!("{lanes} lanes: not a power of two")));
                }
                self.vector_loop(inner, extent, [lanes, copies.max(1)], interleaved)
            }
            KernelLoopKind::Level(_) | KernelLoopKind::Chain => match inner.kind.team() {
                Some(team) if self.thread.is_some() => self.level_loop(inner, team, extent),
                Some(_) | None => Err(EmitError::unsupported(format!(
                    "loop {} over level `{}`",
                    inner.var,
                    inner.kind.keyword()
                ))),
            },
            KernelLoopKind::Pipeline { .. } => {
                Err(EmitError::malformed(format!("no pass started the copies of loop {}", inner.var)))
            }
            KernelLoopKind::Mma { .. } => {
                Err(EmitError::malformed(format!("no pass made loop {} an instruction", inner.var)))
            }
            KernelLoopKind::Vector { lane: Some(lane), .. } => {
                Err(EmitError::unsupported(format!("loop {} has no lanes that `{lane}` counts", inner.var)))
            }
            KernelLoopKind::Search if self.thread.is_some() => self.search(inner, extent),
            KernelLoopKind::For | KernelLoopKind::Search | KernelLoopKind::Vector { .. } => {
                if self.lanes.is_some() && !matches!(self.access(extent), Access::Uniform(_)) {
                    return Err(EmitError::unsupported(format!(
                        "loop {} ends elsewhere in each lane of a vector loop",
                        inner.var
                    )));
                }
                self.facts.declare_index(inner.var, extent);
                let written = self.changed(&inner.body);
                let is_parted = self.part_lanes(&[extent]);
                let result = self.count(inner.var, extent, 1, &written, &mut |cx| cx.body(&inner.body));
                self.join_lanes(is_parted);
                result
            }
        }
    }

    /// Memory that changes while statements run: what they store to, and where threads wait for each other what others store to.
    pub(super) fn changed(&self, stmts: &[Stmt]) -> Vec<Mem> {
        let mut mems = written(stmts);
        mems.extend(self.counted(stmts));
        let (mut waits, mut waits_for_kernels) = (false, false);
        visit(stmts, &mut |stmt| {
            waits |= matches!(stmt, Stmt::Act(Act::Sync(_)));
            waits_for_kernels |= matches!(stmt, Stmt::Act(Act::Sync(Sync::Kernels)));
        });
        if waits {
            mems.extend(self.seen_by_others().iter());
        }
        if waits_for_kernels {
            mems.extend(self.made_by_kernels());
        }
        mems.sort_unstable();
        mems.dedup();
        mems
    }

    /// Runs `body` with `var` = 0, step, 2*step, ... below `end`, a multiple of `step`.
    pub(super) fn count(
        &mut self,
        var: Sym,
        end: Expr,
        step: i64,
        written: &[Mem],
        body: &mut dyn FnMut(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        if end.as_int() == Some(step) {
            self.syms.insert(var, Bound::Constant(0));
            body(self)?;
            self.syms.remove(&var);
            return Ok(());
        }
        let bounds = self.facts.bounds(end);
        if bounds.hi <= 0 {
            return Ok(());
        }
        let end = self.scalar(end)?;
        let zero = self.b.int(Prim::I64, 0);
        let some = if bounds.lo >= 1 { None } else { Some(self.b.compare("icmp sgt", &end, &zero)) };
        self.when(some, &mut |cx| {
            let (preheader, header, exit) = (cx.b.block(), cx.b.new_block(), cx.b.new_block());
            cx.b.jump(header);
            cx.touch(written);
            cx.b.open(ScopeKind::Loop { preheader, header }, header, written.to_vec());
            let counter = cx.b.later_phi(Ty::I64);
            cx.syms.insert(var, Bound::Scalar(counter.clone()));
            body(cx)?;
            let step = cx.b.int(Prim::I64, step);
            let next = cx.b.binary("add", &counter, &step);
            let more = cx.b.compare("icmp slt", &next, &end);
            let latch = cx.b.block();
            cx.b.write_phi(header, &counter, &[(&zero, preheader), (&next, latch)]);
            cx.b.branch(&more, header, exit);
            cx.b.close_loop(exit);
            cx.syms.remove(&var);
            Ok(())
        })
    }

    /// Runs `then` if the condition, the same in every lane, holds or is absent.
    pub(super) fn when(
        &mut self,
        condition: Option<Value>,
        then: &mut dyn FnMut(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let Some(condition) = condition else { return then(self) };
        self.choose(&condition, then, &mut |_| Ok(()))
    }

    /// Runs one of two arms.
    pub(super) fn choose(
        &mut self,
        condition: &Value,
        then: &mut dyn FnMut(&mut Self) -> Result<(), EmitError>,
        other: &mut dyn FnMut(&mut Self) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let [first, second, exit] = [0; 3].map(|_| self.b.new_block());
        self.b.branch(condition, first, second);
        self.b.open(ScopeKind::Arm, first, Vec::new());
        then(self)?;
        self.b.jump(exit);
        let then = self.b.close_arm();
        self.b.open(ScopeKind::Arm, second, Vec::new());
        other(self)?;
        self.b.jump(exit);
        let other = self.b.close_arm();
        self.b.continue_in(exit);
        self.b.join([then, other]);
        Ok(())
    }

    fn branch(&mut self, cond: &[Rel], then: &[Stmt], other: &[Stmt]) -> Result<(), EmitError> {
        match self.condition(cond)? {
            Condition::Always => self.body(then),
            Condition::Never => self.body(other),
            Condition::When(condition) if condition.ty.lanes == 1 => {
                let sides: Vec<Expr> = cond.iter().flat_map(|rel| [rel.lhs, rel.rhs]).collect();
                let is_parted = self.part_lanes(&sides);
                let result = self.choose(&condition, &mut |cx| cx.body(then), &mut |cx| cx.body(other));
                self.join_lanes(is_parted);
                result
            }
            Condition::When(condition) => {
                let not = self.not(&condition);
                for (mask, arm) in [(condition, then), (not, other)] {
                    if arm.is_empty() {
                        continue;
                    }
                    let around = self.lanes.clone();
                    let mask = self.masked_by(&mask);
                    let lanes = self.lanes.as_mut().expect("invariant: conditions vary in vector loops only");
                    (lanes.mask, lanes.may_be_empty) = (Some(mask), true);
                    self.body(arm)?;
                    self.lanes = around;
                }
                Ok(())
            }
        }
    }

    /// A condition, and that the lane runs at all.
    pub(super) fn masked_by(&mut self, condition: &Value) -> Value {
        match self.lanes.as_ref().and_then(|lanes| lanes.mask.clone()) {
            Some(mask) => self.b.and(&mask, condition),
            None => condition.clone(),
        }
    }

    fn define(&mut self, val: Val, op: &Op) -> Result<Value, EmitError> {
        let dtype = self.dtype_of(val);
        match op {
            Op::Load { mem, index, guard, other } => self.load(*mem, position(index), guard, *other),
            Op::Transposed { mem, index, along } => self.load_transposed(*mem, position(index), *along),
            Op::Lookup { mem, first, count, by } => self.lookup(*mem, position(first), *count, *by),
            Op::Const(literal) => Ok(self.b.constant(register_type(dtype)?, *literal)),
            Op::Index(e) => {
                let e = self.resolve(*e);
                let value = match self.access(e) {
                    Access::Uniform(e) => self.scalar(e)?,
                    Access::Strided(..) | Access::Any(_) => self.vector(e)?,
                };
                self.keep_near(e, &value);
                self.cast(&value, Dtype::I64, dtype)
            }
            Op::Cond(rel) => self.relation(rel),
            Op::Call(op, args) => {
                let values = args.iter().map(|&arg| self.value(arg)).collect::<Result<Vec<_>, _>>()?;
                let Some(&last) = args.last() else {
                    return Err(EmitError::malformed(format!("{} without operands", op.name())));
                };
                if values.len() != op.arity() {
                    return Err(EmitError::malformed(format!("{} of {} operands", op.name(), values.len())));
                }
                let lanes = values.iter().map(|value| value.ty.lanes).max().unwrap_or(1);
                let values: Vec<Value> = values.iter().map(|value| self.b.splat(value, lanes)).collect();
                let result = self.apply(*op, self.dtype_of(last), &values)?;
                self.keep_rounded(*op, &values, &result);
                self.keep_small(*op, self.dtype_of(last), &values, &result);
                Ok(result)
            }
            Op::Cast(from) => {
                let value = self.value(*from)?;
                self.cast(&value, self.dtype_of(*from), dtype)
            }
            Op::Round(to, from) => {
                let value = self.value(*from)?;
                Ok(self.round(&value, *to))
            }
            Op::Bitcast(from) => {
                let value = self.value(*from)?;
                self.bitcast(&value, self.dtype_of(*from), dtype)
            }
        }
    }

    fn bind(&mut self, sym: Sym, value: Val, extent: Expr, check: u32) -> Result<(), EmitError> {
        let mut value = self.value(value)?;
        let extent = self.resolve(extent);
        let limit = self.scalar(extent)?;
        let limit = self.b.splat(&limit, value.ty.lanes);
        let mut fails = self.b.compare("icmp uge", &value, &limit);
        // A uniform value in a vector loop is of no account where no lane runs.
        let runs = self.lanes.as_ref().filter(|lanes| lanes.may_be_empty || value.ty.lanes > 1);
        if let Some(mask) = runs.and_then(|lanes| lanes.mask.clone()) {
            fails = self.b.and(&mask, &fails);
        }
        let fails = self.any(&fails);
        let [failed, passed] = [0; 2].map(|_| self.b.new_block());
        self.b.branch(&fails, failed, passed);
        self.b.continue_in(failed);
        let status = self.status.text.clone();
        let (word, align) = if self.thread.is_some() { ("i32", 4) } else { ("i64", 8) };
        self.b.effect(
            &[],
            &format!("store atomic {word} {}, ptr {status} monotonic, align {align}", i64::from(check) + 1),
        );
        if self.thread.is_none() || !self.waits_for_others() {
            self.b.end("ret void");
            self.b.continue_in(passed);
        } else {
            // Others would wait for it forever. It goes on with an index that there is.
            if let Some(slot) = self.thread.as_ref().and_then(|thread| thread.failed.clone()) {
                self.b.effect(&[&slot], &format!("store i1 true, ptr {}", slot.text));
            }
            self.b.jump(passed);
            self.b.continue_in(passed);
            value = self.b.select(&fails, &self.b.int(Prim::I64, 0), &value);
        }
        // What uses the symbol has to stay behind the check.
        let value = self.b.pin(value);
        self.facts.declare_index(sym, extent);
        let bound = if value.ty.lanes > 1 { Bound::Vector(value) } else { Bound::Scalar(value) };
        self.syms.insert(sym, bound);
        Ok(())
    }

    /// Whether the kernel checks indices.
    pub(super) fn may_fail(&self) -> bool {
        let mut fails = false;
        visit(&self.kernel.body, &mut |stmt| fails |= matches!(stmt, Stmt::Act(Act::Bind { .. })));
        fails
    }

    /// Whether threads of the kernel wait for others, or lanes of a warp ask each other.
    pub(super) fn waits_for_others(&self) -> bool {
        let is_search = |inner: &Loop| inner.kind == KernelLoopKind::Search;
        let mut waits = false;
        visit(&self.kernel.body, &mut |stmt| {
            waits |= matches!(stmt, Stmt::Act(Act::Sync(_)))
                || matches!(stmt, Stmt::Loop(inner) if is_search(inner));
        });
        waits
    }

    /// Whether any lane holds.
    pub(super) fn any(&mut self, value: &Value) -> Value {
        if value.ty.lanes == 1 {
            return value.clone();
        }
        self.b.call(Ty::I1, &format!("llvm.vector.reduce.or.{}", value.ty.suffix()), &[value])
    }
}
