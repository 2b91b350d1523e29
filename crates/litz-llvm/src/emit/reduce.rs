//! Prints combining stores, argument reductions, atomic updates, and the reductions of lanes.

use litz_ir::kernel::{LaneReduction, Mem, MemorySpace, Val, position};
use litz_ir::target::{Gpu, Instruction};
use litz_ir::{Dtype, ReduceOp, ScalarOp};
use litz_sym::Expr;

use super::block::{ScopeKind, Value};
use super::index::Access;
use super::ty::{Prim, Ty, register_type};
use super::{Bound, EmitError, Emitter, Form};

/// What is combined with an element.
#[derive(Clone, Debug)]
pub(super) enum Term {
    Value(Value),
    /// A product, which is not rounded.
    Product(Value, Value),
    /// Products of the elements that each lane holds groups of.
    Dot(Groups),
}

/// What the lanes of a dot product hold: the groups of both operands, and the instruction that multiplies them.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pub by: &'static Instruction,
    pub groups: Vec<[Value; 2]>,
}

impl Groups {
    pub(super) fn lanes(&self) -> u32 {
        self.groups.iter().flatten().map(|value| value.ty.lanes).max().unwrap_or(1)
    }
}

/// An element that takes in terms: where it is, how, and in which type they are combined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accumulator {
    pub mem: Mem,
    pub index: Expr,
    pub op: ReduceOp,
    pub dtype: Dtype,
    pub atomic: bool,
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
        self.combine_term(Accumulator { mem, index, op, dtype, atomic }, &term, condition)
    }

    /// Combines an element at a resolved index with a term.
    pub(super) fn combine_term(
        &mut self,
        into: Accumulator,
        term: &Term,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let Accumulator { mem, index, op, dtype, atomic } = into;
        if self.lanes.is_none() || self.is_private(mem) {
            return self.combine_one(into, term, condition);
        }
        match self.access(index) {
            // All lanes combine with one element: they are combined with each other first, and those that do not run take part
            // with the identity of the operator.
            Access::Uniform(_) if self.lanes.as_ref().is_some_and(|lanes| lanes.loaded.contains(&mem)) => {
                let name = &self.kernel.mems[mem].name;
                Err(EmitError::unsupported(format!(
                    "lanes that combine with an element of `{name}` and load it"
                )))
            }
            Access::Uniform(index) => {
                let value = self.whole(term)?;
                let identity = self.b.constant(register_type(dtype)?, op.identity(dtype));
                let count = self.lane_count();
                let (value, identity) = (self.b.splat(&value, count), self.b.splat(&identity, count));
                let value = self.keep_where(condition, &value, &identity);
                let total =
                    self.across_lanes(&value, &mut |cx, a, b| cx.apply(op.combine(), dtype, &[a, b]))?;
                self.combine_one(Accumulator { index, ..into }, &Term::Value(total), None)
            }
            // Lanes have elements of their own, so that all of them are loaded, combined and stored as one vector.
            Access::Strided(..) if !atomic => self.combine_one(into, term, condition),
            Access::Strided(..) | Access::Any(_) => {
                let value = self.whole(term)?;
                self.combine_each_lane(into, &value, condition)
            }
        }
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

    fn whole(&mut self, term: &Term) -> Result<Value, EmitError> {
        Ok(match term {
            Term::Value(value) => value.clone(),
            Term::Product(a, b) => {
                let lanes = a.ty.lanes.max(b.ty.lanes);
                let (a, b) = (self.b.splat(a, lanes), self.b.splat(b, lanes));
                self.b.binary("fmul", &a, &b)
            }
            Term::Dot(groups) => return self.whole_dot(groups),
        })
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
            Term::Product(a, b) => a.ty.lanes.max(b.ty.lanes),
            Term::Dot(groups) => groups.lanes(),
        };
        let lanes = lanes.max(old.ty.lanes);
        let old = self.b.splat(old, lanes);
        match term {
            Term::Product(a, b) => {
                let (a, b) = (self.b.splat(a, lanes), self.b.splat(b, lanes));
                Ok(self.b.intrinsic("fma", &[&a, &b, &old]))
            }
            Term::Dot(groups) => Ok(self.dot_product(&old, groups)),
            Term::Value(value) => {
                let value = self.b.splat(value, lanes);
                self.apply(op.combine(), dtype, &[old, value])
            }
        }
    }

    /// Reads, combines and writes back; lanes, if any, have elements of their own.
    fn combine_one(
        &mut self,
        into: Accumulator,
        term: &Term,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let Accumulator { mem, index, op, dtype, atomic } = into;
        if atomic && self.mems[mem].form == Form::Memory {
            let value = self.whole(term)?;
            let condition = self.storing_where(mem, condition.cloned());
            return self.when(condition, &mut |cx| cx.combine_atomic(into, &value));
        }
        let old = self.load_if(mem, index, condition)?;
        let new = self.accumulate(op, dtype, &old, term)?;
        self.store_if(mem, index, &new, condition)
    }

    /// One lane after the other, because two may mean the same element.
    fn combine_each_lane(
        &mut self,
        into: Accumulator,
        value: &Value,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let indices = self.vector(into.index)?;
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
            let into = Accumulator { index: Expr::sym(element), ..into };
            self.when(runs, &mut |cx| cx.combine_one(into, &term, None))?;
        }
        self.syms.remove(&element);
        self.lanes = Some(around);
        Ok(())
    }

    /// A loop of compare-and-swap on the element's bits.
    fn combine_atomic(&mut self, into: Accumulator, value: &Value) -> Result<(), EmitError> {
        let Accumulator { mem, index, op, dtype, .. } = into;
        let stored = self.mems[mem].dtype;
        let prim = self.mems[mem].prim;
        let bits = Ty::scalar(Prim::int(prim.bits()));
        let address = self.address(mem, index)?;
        let align = stored.size();
        let first = self.b.impure(
            bits,
            &[&address],
            &format!("load atomic {bits}, ptr {} monotonic, align {align}", address.text),
        );
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
            &[&address, &seen, &new],
            &format!(
                "cmpxchg weak ptr {}, {bits} {}, {bits} {} monotonic monotonic, align {align}",
                address.text, seen.text, new.text
            ),
        );
        let now = self.b.impure(bits, &[&pair], &format!("extractvalue {{ {bits}, i1 }} {}, 0", pair.text));
        let done =
            self.b.impure(Ty::I1, &[&pair], &format!("extractvalue {{ {bits}, i1 }} {}, 1", pair.text));
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

    /// Combines what lanes have combined: the copies, then the lanes, then the result with its element.
    pub(super) fn lanes(&mut self, reduction: &LaneReduction) -> Result<(), EmitError> {
        let LaneReduction { op, into, from, positions, index, atomic, .. } = reduction;
        let (op, dtype) = (*op, self.mems[*from].dtype);
        let index = self.resolve(position(index));
        // In a vector loop of a thread each of its elements has what several warps, one lane each, have combined.
        let is_apart = reduction.lanes == 1;
        if self.lanes.is_some() && !is_apart {
            return Err(EmitError::unsupported("lanes that are combined for each element of a vector loop"));
        }
        // What each thread has of its own, lanes exchange.
        let is_own = self.thread.is_some() && self.kernel.mems[*from].space == MemorySpace::Own;
        let copies =
            if is_own { vec![self.own_part(reduction, *from)?] } else { self.copies(reduction, *from)? };
        let Some([at, places]) = *positions else {
            let mut combine = |cx: &mut Self, a, b| cx.apply(op.combine(), dtype, &[a, b]);
            let all = self.pairwise(copies, &mut combine)?;
            let total = if is_own {
                let [total] = self.across_threads(reduction.lanes, [all], &mut |cx, [a], [b]| {
                    Ok([combine(cx, a.clone(), b.clone())?])
                })?;
                total
            } else if is_apart {
                all
            } else {
                self.across_lanes(&all, &mut combine)?
            };
            let into = Accumulator { mem: *into, index, op, dtype, atomic: *atomic };
            return self.combine_one(into, &Term::Value(total), None);
        };
        let max = op == ReduceOp::Max;
        let places =
            if is_own { vec![self.own_part(reduction, places)?] } else { self.copies(reduction, places)? };
        let candidates = copies.into_iter().zip(places);
        let candidates = candidates.map(|(value, position)| Candidate { value, position }).collect();
        let all = self.pairwise(candidates, &mut |cx, a, b| Ok(cx.better_of(max, dtype, &a, &b)))?;
        let best = if is_own {
            let own = [all.value, all.position];
            let [value, position] = self.across_threads(reduction.lanes, own, &mut |cx, a, b| {
                let [a, b] = [a, b]
                    .map(|[value, position]| Candidate { value: value.clone(), position: position.clone() });
                let Candidate { value, position } = cx.better_of(max, dtype, &a, &b);
                Ok([value, position])
            })?;
            Candidate { value, position }
        } else if is_apart {
            all
        } else {
            self.best_lane(max, dtype, all)
        };
        self.improve(max, dtype, [*into, at], index, &best, None)
    }

    /// What this thread has combined.
    fn own_part(&mut self, reduction: &LaneReduction, mem: Mem) -> Result<Value, EmitError> {
        if reduction.copies != 1 || reduction.lanes > Gpu::LANES {
            return Err(EmitError::unsupported("more lanes than a warp has"));
        }
        let first = self.resolve(position(&reduction.first));
        self.load_if(mem, first, None)
    }

    /// What the lanes of each copy have combined.
    fn copies(&mut self, reduction: &LaneReduction, mem: Mem) -> Result<Vec<Value>, EmitError> {
        let first = self.resolve(position(&reduction.first));
        let lanes = i64::from(reduction.lanes);
        let firsts = (0..i64::from(reduction.copies)).map(|copy| first + copy * lanes);
        firsts
            .map(|first| match self.thread {
                Some(_) => self.load_lanes(mem, reduction.lanes, first),
                None => self.read_lanes(mem, reduction.lanes, first),
            })
            .collect()
    }

    /// Neighbours first, so that the order does not depend on how many there are.
    fn pairwise<T>(
        &mut self,
        mut items: Vec<T>,
        combine: &mut dyn FnMut(&mut Self, T, T) -> Result<T, EmitError>,
    ) -> Result<T, EmitError> {
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
        items.pop().ok_or_else(|| EmitError::malformed("no lanes to combine"))
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
        let shared = match self.access(index) {
            Access::Uniform(index) if self.lanes.is_some() && !self.is_private(best) => index,
            Access::Uniform(_) | Access::Strided(..) | Access::Any(_) => {
                let position =
                    if self.lanes.is_some() { self.vector(position)? } else { self.scalar(position)? };
                return self.improve(max, dtype, [best, at], index, &Candidate { value, position }, None);
            }
        };
        let count = self.lane_count();
        let value = self.b.splat(&value, count);
        let position = self.vector(position)?;
        // Lanes that do not run must not win a tie.
        let op = if max { ReduceOp::Max } else { ReduceOp::Min };
        let worst = self.b.constant_of(value.ty, op.identity(dtype));
        let last = self.b.constant_of(position.ty, ReduceOp::Min.identity(Dtype::I64));
        let value = self.keep_where(None, &value, &worst);
        let position = self.keep_where(None, &position, &last);
        let found = self.best_lane(max, dtype, Candidate { value, position });
        self.improve(max, dtype, [best, at], shared, &found, None)
    }

    /// Replaces an element and its position where the candidate is better. Of threads one of which stores what others see, none else loads it, which might
    /// be while that one stores.
    fn improve(
        &mut self,
        max: bool,
        dtype: Dtype,
        mems: [Mem; 2],
        index: Expr,
        candidate: &Candidate,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let is_seen = self.mems[mems[0]].form == Form::Memory;
        let storing = if is_seen { self.is_storing(mems[0]) } else { None };
        self.when(storing, &mut |cx| cx.improve_own(max, dtype, mems, index, candidate, condition))
    }

    fn improve_own(
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

    /// The best of all lanes; of equals the first.
    fn best_lane(&mut self, max: bool, dtype: Dtype, mut best: Candidate) -> Candidate {
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
