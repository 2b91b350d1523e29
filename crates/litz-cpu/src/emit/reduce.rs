//! Combining stores: reductions over the lanes of a vector loop, argument reductions, and atomic updates.
//!
//! Where all lanes of a vector loop combine into one element, each lane of each copy keeps a partial result, which
//! starts from the identity; after the loop the copies and then the lanes are combined, always in the same order.

use std::collections::BTreeMap;

use litz_ir::kernel::{Mem, Val};
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::Expr;

use super::block::{ScopeKind, Slot, Value};
use super::index::Access;
use super::ty::{Prim, Ty, register_type};
use super::{Bound, EmitError, Emitter, Form};

/// What the partial results of an element are for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Goal {
    /// To combine with the element.
    Combine { op: ReduceOp, atomic: bool, dtype: Dtype },
    /// To compare with the element; `at` gets the position.
    Best { max: bool, at: Mem, dtype: Dtype },
}

/// What is combined with an element.
#[derive(Clone, Debug)]
pub(super) enum Term {
    Value(Value),
    /// A product, which is not rounded.
    Product(Value, Value),
    /// Two products, of the halves of each lane as bf16.
    Dot(Value, Value),
}

/// A value and its position.
#[derive(Clone, Debug)]
struct Candidate {
    value: Value,
    position: Value,
}

impl Emitter<'_> {
    /// `mem[index] op= value` at a resolved index.
    pub(super) fn combine(
        &mut self,
        mem: Mem,
        index: Expr,
        op: ReduceOp,
        value: Val,
        condition: Option<&Value>,
        atomic: bool,
    ) -> Result<(), EmitError> {
        let dtype = self.dtype_of(value).compute();
        let term = Term::Value(self.value(value)?);
        self.combine_term(mem, index, op, dtype, &term, condition, atomic)
    }

    /// `mem[index] op= term` at a resolved index.
    pub(super) fn combine_term(
        &mut self,
        mem: Mem,
        index: Expr,
        op: ReduceOp,
        dtype: Dtype,
        term: &Term,
        condition: Option<&Value>,
        atomic: bool,
    ) -> Result<(), EmitError> {
        if self.lanes.is_none() || self.is_private(mem) {
            return self.combine_one(mem, index, op, dtype, term, condition, atomic);
        }
        match self.access(index) {
            Access::Uniform(index) if self.outlives_lanes(index)? && !self.is_read_in_lanes(mem) => {
                let goal = Goal::Combine { op, atomic, dtype };
                self.goals.insert((mem, index), goal);
                let slot = Slot::Partial { mem, index, copy: self.copy() };
                let (old, initial) = self.partial(slot, dtype, op)?;
                let sum = self.accumulate(op, dtype, &old, term)?;
                let sum = self.keep_where(condition, &sum, &old);
                debug_assert_eq!(sum.ty, initial.ty);
                self.b.set_slot(slot, sum);
                Ok(())
            }
            Access::Uniform(index) => {
                let value = self.whole(term);
                let identity = self.b.constant(register_type(dtype)?, op.identity(dtype));
                let count = self.lane_count();
                let (value, identity) = (self.b.splat(&value, count), self.b.splat(&identity, count));
                let value = self.keep_where(condition, &value, &identity);
                let total =
                    self.across_lanes(&value, &mut |cx, a, b| cx.apply(op.combine(), dtype, &[a, b]))?;
                self.combine_one(mem, index, op, dtype, &Term::Value(total), None, atomic)
            }
            Access::Strided(..) if !atomic => self.combine_one(mem, index, op, dtype, term, condition, false),
            Access::Strided(..) | Access::Any(_) => {
                let value = self.whole(term);
                self.combine_each_lane(mem, index, op, dtype, &value, condition, atomic)
            }
        }
    }

    /// Whether the vector loop around loads from `mem`.
    fn is_read_in_lanes(&self, mem: Mem) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.read.contains(&mem))
    }

    fn copy(&self) -> u32 {
        self.lanes.as_ref().map_or(0, |lanes| lanes.copy)
    }

    /// Whether an index means the same element before, in and after the vector loop around.
    fn outlives_lanes(&mut self, index: Expr) -> Result<bool, EmitError> {
        let depth = self.scalar(index)?.depth;
        let lanes = self.lanes.as_ref().expect("invariant: called inside of a vector loop");
        Ok(depth <= lanes.root && !lanes.bound.iter().any(|&sym| index.has_sym(sym)))
    }

    /// The current value of a partial result, and its initial one.
    fn partial(&mut self, slot: Slot, dtype: Dtype, op: ReduceOp) -> Result<(Value, Value), EmitError> {
        let ty = Ty { prim: register_type(dtype)?, lanes: self.lane_count() };
        let identity = self.b.constant_of(ty, op.identity(dtype));
        Ok((self.b.slot(slot, &identity), identity))
    }

    /// `new` in lanes where the condition holds, else `old`.
    fn keep_where(&mut self, condition: Option<&Value>, new: &Value, old: &Value) -> Value {
        match (self.lanes.as_ref().and_then(|lanes| lanes.mask.clone()), condition) {
            (None, None) => new.clone(),
            (Some(mask), None) => self.b.select(&mask, new, old),
            (_, Some(condition)) => {
                let mask = self.masked_by(condition);
                self.b.select(&mask, new, old)
            }
        }
    }

    fn whole(&mut self, term: &Term) -> Value {
        match term {
            Term::Value(value) => value.clone(),
            Term::Product(a, b) => {
                let lanes = a.ty.lanes.max(b.ty.lanes);
                let (a, b) = (self.b.splat(a, lanes), self.b.splat(b, lanes));
                self.b.binary("fmul", &a, &b)
            }
            Term::Dot(a, b) => {
                let zero = self.zero(Ty { prim: Prim::F32, lanes: a.ty.lanes.max(b.ty.lanes) });
                self.dot_product(&zero, a, b)
            }
        }
    }

    /// `old op term`.
    fn accumulate(
        &mut self,
        op: ReduceOp,
        dtype: Dtype,
        old: &Value,
        term: &Term,
    ) -> Result<Value, EmitError> {
        let lanes = match term {
            Term::Value(value) => value.ty.lanes,
            Term::Product(a, b) | Term::Dot(a, b) => a.ty.lanes.max(b.ty.lanes),
        };
        let lanes = lanes.max(old.ty.lanes);
        let old = self.b.splat(old, lanes);
        match term {
            Term::Product(a, b) => {
                let (a, b) = (self.b.splat(a, lanes), self.b.splat(b, lanes));
                Ok(self.b.intrinsic("fma", &[&a, &b, &old]))
            }
            Term::Dot(a, b) => Ok(self.dot_product(&old, a, b)),
            Term::Value(value) => {
                let value = self.b.splat(value, lanes);
                self.apply(op.combine(), dtype, &[old, value])
            }
        }
    }

    /// Reads, combines and writes back; lanes, if any, have elements of their own.
    fn combine_one(
        &mut self,
        mem: Mem,
        index: Expr,
        op: ReduceOp,
        dtype: Dtype,
        term: &Term,
        condition: Option<&Value>,
        atomic: bool,
    ) -> Result<(), EmitError> {
        if atomic && self.mems[mem].form == Form::Memory {
            let value = self.whole(term);
            return self.when(condition.cloned(), &mut |cx| cx.combine_atomic(mem, index, op, dtype, &value));
        }
        let old = self.load_if(mem, index, condition)?;
        let new = self.accumulate(op, dtype, &old, term)?;
        self.store_if(mem, index, &new, condition)
    }

    /// One lane after the other, because two may mean the same element.
    fn combine_each_lane(
        &mut self,
        mem: Mem,
        index: Expr,
        op: ReduceOp,
        dtype: Dtype,
        value: &Value,
        condition: Option<&Value>,
        atomic: bool,
    ) -> Result<(), EmitError> {
        let indices = self.vector(index)?;
        let mask = match condition {
            Some(condition) => Some(self.masked_by(condition)),
            None => self.lanes.as_ref().and_then(|lanes| lanes.mask.clone()),
        };
        let around = self.lanes.take().expect("invariant: called inside of a vector loop");
        // The index of a lane gets a name, so that it is an index expression again.
        let element = around.lane;
        for lane in 0..around.count {
            let at = self.b.extract(&indices, lane);
            let value = self.b.extract(value, lane);
            let runs = mask.as_ref().map(|mask| self.b.extract(mask, lane));
            self.syms.insert(element, Bound::Scalar(at));
            let term = Term::Value(value);
            self.when(runs, &mut |cx| {
                cx.combine_one(mem, Expr::sym(element), op, dtype, &term, None, atomic)
            })?;
        }
        self.syms.remove(&element);
        self.lanes = Some(around);
        Ok(())
    }

    /// A loop of compare-and-swap on the element's bits.
    fn combine_atomic(
        &mut self,
        mem: Mem,
        index: Expr,
        op: ReduceOp,
        dtype: Dtype,
        value: &Value,
    ) -> Result<(), EmitError> {
        let stored = self.mems[mem].dtype;
        let prim = self.mems[mem].prim;
        let bits = Ty::scalar(Prim::int(prim.bits()));
        let address = self.address(mem, index)?;
        let align = stored.size();
        let first = self
            .b
            .impure(bits, &format!("load atomic {bits}, ptr {} monotonic, align {align}", address.text));
        let (preheader, header, exit) = (self.b.block(), self.b.new_block(), self.b.new_block());
        self.b.jump(header);
        self.b.open(ScopeKind::Loop { preheader, header }, header, Vec::new());
        let seen = self.b.later_phi(bits);
        let old = self.b.convert("bitcast", &seen, prim);
        let old = self.widen(&old, stored);
        let new = self.accumulate(op, dtype, &old, &Term::Value(value.clone()))?;
        let new = self.narrow(&new, stored);
        let new = self.b.convert("bitcast", &new, bits.prim);
        let pair = self.b.impure(
            bits,
            &format!(
                "cmpxchg weak ptr {}, {bits} {}, {bits} {} monotonic monotonic, align {align}",
                address.text, seen.text, new.text
            ),
        );
        let now = self.b.impure(bits, &format!("extractvalue {{ {bits}, i1 }} {}, 0", pair.text));
        let done = self.b.impure(Ty::I1, &format!("extractvalue {{ {bits}, i1 }} {}, 1", pair.text));
        let latch = self.b.block();
        self.b.write_phi(header, &seen, &[(&first, preheader), (&now, latch)]);
        self.b.branch(&done, exit, header);
        self.b.close_loop(exit);
        self.touch(&[mem]);
        Ok(())
    }

    /// Combines halves until one lane is left.
    fn across_lanes(
        &mut self,
        value: &Value,
        combine: &mut dyn FnMut(&mut Self, Value, Value) -> Result<Value, EmitError>,
    ) -> Result<Value, EmitError> {
        let mut value = value.clone();
        while value.ty.lanes > 1 {
            let half = value.ty.lanes / 2;
            let (low, high) = (self.b.slice(&value, 0, half), self.b.slice(&value, half, half));
            value = combine(self, low, high)?;
        }
        Ok(value)
    }

    /// After a vector loop: combines the copies and the lanes of each partial result with its element.
    pub(super) fn finish_partials(&mut self) -> Result<(), EmitError> {
        let slots = self.b.take_slots(|slot| matches!(slot, Slot::Partial { .. } | Slot::Position { .. }));
        let mut values: BTreeMap<(Mem, Expr), Vec<Value>> = BTreeMap::new();
        let mut positions: BTreeMap<(Mem, Expr), Vec<Value>> = BTreeMap::new();
        for (slot, value) in slots {
            match slot {
                Slot::Partial { mem, index, .. } => values.entry((mem, index)).or_default().push(value),
                Slot::Position { mem, index, .. } => positions.entry((mem, index)).or_default().push(value),
                Slot::Group { .. } => {}
            }
        }
        let goals = std::mem::take(&mut self.goals);
        for ((mem, index), copies) in values {
            match goals[&(mem, index)] {
                Goal::Combine { op, atomic, dtype } => {
                    let all =
                        self.pairwise(copies, &mut |cx, a, b| cx.apply(op.combine(), dtype, &[a, b]))?;
                    let total =
                        self.across_lanes(&all, &mut |cx, a, b| cx.apply(op.combine(), dtype, &[a, b]))?;
                    self.combine_one(mem, index, op, dtype, &Term::Value(total), None, atomic)?;
                }
                Goal::Best { max, at, dtype } => {
                    let candidates =
                        copies.into_iter().zip(positions.remove(&(mem, index)).unwrap_or_default());
                    let candidates =
                        candidates.map(|(value, position)| Candidate { value, position }).collect::<Vec<_>>();
                    let best = self.best_of(max, dtype, candidates);
                    self.improve(max, dtype, [mem, at], index, &best, None)?;
                }
            }
        }
        Ok(())
    }

    /// Neighbours first, so that the order does not depend on how many there are.
    fn pairwise(
        &mut self,
        mut items: Vec<Value>,
        combine: &mut dyn FnMut(&mut Self, Value, Value) -> Result<Value, EmitError>,
    ) -> Result<Value, EmitError> {
        while items.len() > 1 {
            let mut next = Vec::new();
            let mut list = items.into_iter();
            while let Some(a) = list.next() {
                next.push(match list.next() {
                    Some(b) => combine(self, a, b)?,
                    None => a,
                });
            }
            items = next;
        }
        Ok(items.pop().expect("invariant: an element has partial results"))
    }

    /// `best[index], at[index] argmax= value, position`.
    pub(super) fn arg_store(
        &mut self,
        max: bool,
        [best, at]: [Mem; 2],
        index: Expr,
        value: Val,
        position: Expr,
    ) -> Result<(), EmitError> {
        let dtype = self.dtype_of(value).compute();
        let index = self.resolve(index);
        let position = self.resolve(position);
        let value = self.value(value)?;
        let is_shared = self.lanes.is_some()
            && !self.is_private(best)
            && matches!(self.access(index), Access::Uniform(_));
        if !is_shared {
            let position = if self.lanes.is_some() { self.vector(position)? } else { self.scalar(position)? };
            return self.improve(max, dtype, [best, at], index, &Candidate { value, position }, None);
        }
        let Access::Uniform(index) = self.access(index) else { unreachable!("invariant: just seen") };
        if !self.outlives_lanes(index)? {
            return Err(EmitError::unsupported(
                "argument reduction over lanes into an element chosen inside the loop",
            ));
        }
        self.goals.insert((best, index), Goal::Best { max, at, dtype });
        let count = self.lane_count();
        let value = self.b.splat(&value, count);
        let position = self.vector(position)?;
        let op = if max { ReduceOp::Max } else { ReduceOp::Min };
        let slot = Slot::Partial { mem: best, index, copy: self.copy() };
        let place = Slot::Position { mem: best, index, copy: self.copy() };
        let (old, _) = self.partial(slot, dtype, op)?;
        // Lanes that saw nothing better than the identity must not win a tie.
        let (old_position, _) = self.partial(place, Dtype::I64, ReduceOp::Min)?;
        let (value, old) = (Candidate { value, position }, Candidate { value: old, position: old_position });
        let is_better = self.beats(max, dtype, &value, &old);
        let is_better = self.masked_by(&is_better);
        let new = self.chosen(&is_better, &value, &old);
        self.b.set_slot(slot, new.value);
        self.b.set_slot(place, new.position);
        Ok(())
    }

    /// Replaces an element and its position where the candidate is better.
    fn improve(
        &mut self,
        max: bool,
        dtype: Dtype,
        [best, at]: [Mem; 2],
        index: Expr,
        candidate: &Candidate,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let old = self.load_if(best, index, condition)?;
        let old_position = self.load_if(at, index, condition)?;
        let lanes = old.ty.lanes.max(candidate.value.ty.lanes);
        let [value, position, old, old_position] =
            [&candidate.value, &candidate.position, &old, &old_position]
                .map(|value| self.b.splat(value, lanes));
        let found = Candidate { value, position };
        let new = self.better_of(max, dtype, &Candidate { value: old, position: old_position }, &found);
        self.store_if(best, index, &new.value, condition)?;
        self.store_if(at, index, &new.position, condition)
    }

    /// Whether `a` beats `b`: greater (smaller), or the only NaN.
    fn is_better(&mut self, max: bool, dtype: Dtype, a: &Value, b: &Value) -> Value {
        if !dtype.is_float() {
            let op = if max { ScalarOp::Gt } else { ScalarOp::Lt };
            return self
                .apply(op, dtype, &[a.clone(), b.clone()])
                .expect("invariant: integers and bools compare");
        }
        // `unordered or greater` holds for a NaN on either side.
        let wins = self.b.compare(if max { "fcmp ugt" } else { "fcmp ult" }, a, b);
        let is_number = self.b.compare("fcmp ord", b, b);
        self.b.and(&wins, &is_number)
    }

    /// The best of all copies and lanes; of equals the first.
    fn best_of(&mut self, max: bool, dtype: Dtype, candidates: Vec<Candidate>) -> Candidate {
        let mut candidates = candidates.into_iter();
        let first = candidates.next().expect("invariant: an element has partial results");
        let mut best = candidates.fold(first, |best, next| self.better_of(max, dtype, &best, &next));
        while best.value.ty.lanes > 1 {
            let half = best.value.ty.lanes / 2;
            let [low, high] = [0, half].map(|start| Candidate {
                value: self.b.slice(&best.value, start, half),
                position: self.b.slice(&best.position, start, half),
            });
            best = self.better_of(max, dtype, &low, &high);
        }
        best
    }

    fn better_of(&mut self, max: bool, dtype: Dtype, a: &Candidate, b: &Candidate) -> Candidate {
        let takes = self.beats(max, dtype, b, a);
        self.chosen(&takes, b, a)
    }

    /// Whether `a` is better than `b`, or as good and earlier: loops need not go through positions in order.
    fn beats(&mut self, max: bool, dtype: Dtype, a: &Candidate, b: &Candidate) -> Value {
        let wins = self.is_better(max, dtype, &a.value, &b.value);
        let loses = self.is_better(max, dtype, &b.value, &a.value);
        let is_earlier = self.b.compare("icmp slt", &a.position, &b.position);
        let is_not_worse = self.not(&loses);
        let wins_tie = self.b.and(&is_not_worse, &is_earlier);
        self.b.binary("or", &wins, &wins_tie)
    }

    fn chosen(&mut self, is_first: &Value, a: &Candidate, b: &Candidate) -> Candidate {
        Candidate {
            value: self.b.select(is_first, &a.value, &b.value),
            position: self.b.select(is_first, &a.position, &b.position),
        }
    }
}
