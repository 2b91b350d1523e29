//! Prints loads and stores: plain, masked, gathered and scattered.

use litz_ir::kernel::{Mem, MemorySpace, Val};
use litz_ir::{ReduceOp, Scalar};
use litz_sym::{Expr, Rel};

use super::block::Value;
use super::index::{Access, Condition};
use super::reduce::{Accumulator, Term};
use super::ty::{Prim, Ty, register_type};
use super::{EmitError, Emitter, Form, Lanes};
use crate::processor::Isa;

/// Most bytes of zeros that a kernel keeps to read from where a guard fails; a longer row picks zeros one by one.
const ZEROS_LIMIT: i64 = 1 << 16;

impl Emitter<'_> {
    pub(super) fn load(
        &mut self,
        mem: Mem,
        index: Expr,
        guard: &[Rel],
        other: Scalar,
    ) -> Result<Value, EmitError> {
        let other = self.b.constant(register_type(self.mems[mem].dtype)?, other);
        let condition = match self.condition(guard)? {
            Condition::Never => return Ok(other),
            Condition::Always => None,
            Condition::When(condition) => Some(condition),
        };
        let index = self.resolve(index);
        let value = self.load_if(mem, index, condition.as_ref())?;
        let Some(condition) = condition else { return Ok(value) };
        let is_memory = self.mems[mem].form == Form::Memory;
        if is_memory && other == self.zero(other.ty) && value.ty.lanes >= condition.ty.lanes {
            return Ok(value);
        }
        let lanes = value.ty.lanes.max(condition.ty.lanes);
        let (value, other) = (self.b.splat(&value, lanes), self.b.splat(&other, lanes));
        Ok(self.b.select(&condition, &value, &other))
    }

    /// The element at a resolved index, or 0 in lanes where the condition fails. One value for all lanes where the
    /// index does not vary: the element if the condition holds in any.
    pub(super) fn load_if(
        &mut self,
        mem: Mem,
        index: Expr,
        condition: Option<&Value>,
    ) -> Result<Value, EmitError> {
        if self.mems[mem].form != Form::Memory {
            return self.read_register(mem, index);
        }
        let value = match self.access(index) {
            Access::Uniform(index) => {
                let condition = self.in_any_lane(condition);
                self.load_scalar(mem, index, condition)?
            }
            Access::Strided(first, 1) => {
                if self.thread.is_some() {
                    self.load_of_thread(mem, first, condition)?
                } else {
                    let address = self.address(mem, first)?;
                    self.load_vector(mem, &address, condition)
                }
            }
            Access::Strided(..) | Access::Any(_) if self.thread.is_some() => {
                self.load_one_by_one(mem, index, condition)?
            }
            Access::Strided(..) | Access::Any(_) => match self.load_run(mem, index, condition)? {
                Some(value) => value,
                None => {
                    let addresses = self.addresses(mem, index)?;
                    self.gather(mem, &addresses, condition)
                }
            },
        };
        Ok(self.widen(&value, self.mems[mem].dtype))
    }

    /// Elements side by side, each loaded once, that are several lanes' own. Where some lanes do not run, an element may be
    /// no one's, and outside of the memory.
    fn load_run(
        &mut self,
        mem: Mem,
        index: Expr,
        condition: Option<&Value>,
    ) -> Result<Option<Value>, EmitError> {
        if condition.is_some() || self.lanes.as_ref().is_none_or(|lanes| lanes.mask.is_some()) {
            return Ok(None);
        }
        let Some((first, run)) = self.in_run(index) else { return Ok(None) };
        let address = self.address(mem, first)?;
        let count = run.iter().max().map_or(1, |last| last + 1);
        let ty = Ty { prim: self.mems[mem].prim, lanes: count };
        let text = format!("load {ty}, ptr {}, align {}", address.text, self.align(mem));
        let elements = self.read(mem, ty, &[&address], text);
        Ok(Some(self.b.shuffle(&elements, &elements, run.into_iter())))
    }

    /// Whether an access that is the same in every lane happens; None if it always does.
    fn in_any_lane(&mut self, condition: Option<&Value>) -> Option<Value> {
        let lanes = self.lanes.as_ref();
        let mask = lanes.filter(|lanes| lanes.may_be_empty).and_then(|lanes| lanes.mask.clone());
        let both = match (mask, condition) {
            (Some(mask), Some(condition)) => self.b.and(&mask, condition),
            (Some(mask), None) => mask,
            (None, Some(condition)) if condition.ty.lanes > 1 => self.masked_by(condition),
            (None, Some(condition)) => condition.clone(),
            (None, None) => return None,
        };
        Some(self.any(&both))
    }

    /// The lanes in which an access happens; None if in all.
    pub(super) fn mask(&mut self, condition: Option<&Value>) -> Option<Value> {
        let count = self.lane_count();
        let mask = match condition {
            Some(condition) => Some(self.masked_by(condition)),
            None => self.lanes.as_ref().and_then(|lanes| lanes.mask.clone()),
        };
        mask.map(|mask| self.b.splat(&mask, count))
    }

    pub(super) fn align(&self, mem: Mem) -> usize {
        self.kernel.mems[mem].dtype.size()
    }

    /// The depth of a load: as far out as its operands and stores to the same memory allow.
    fn read_depth(&self, mem: Mem, operands: &[&Value]) -> usize {
        operands.iter().map(|value| value.depth).max().unwrap_or(0).max(self.b.read_depth(mem))
    }

    /// A load, where it belongs.
    pub(super) fn read(&mut self, mem: Mem, ty: Ty, operands: &[&Value], text: String) -> Value {
        let depth = self.read_depth(mem, operands);
        self.b.read(ty, depth, self.mems[mem].version, operands, text)
    }

    pub(super) fn load_scalar(
        &mut self,
        mem: Mem,
        index: Expr,
        condition: Option<Value>,
    ) -> Result<Value, EmitError> {
        let ty = Ty::scalar(self.mems[mem].prim);
        if self.thread.is_some() {
            let address = self.address(mem, index)?;
            let place = (&address, self.align(mem) as i64);
            return Ok(self.load_where((mem, index, 1), ty, place, condition.as_ref()));
        }
        let address = match condition {
            None => self.address(mem, index)?,
            // No branch: read a zero instead.
            Some(condition) => self.address_or_zero(mem, index, &condition)?,
        };
        let text = format!("load {ty}, ptr {}, align {}", address.text, self.align(mem));
        Ok(self.read(mem, ty, &[&address], text))
    }

    /// The address of an element where the condition holds, else that of a zero. The choice is made as far out as
    /// the condition allows: between an address in the memory and one in as many zeros as the rest of the index
    /// reaches, so that rows of a register tile that are out of bounds cost nothing in the inner loop.
    fn address_or_zero(&mut self, mem: Mem, index: Expr, condition: &Value) -> Result<Value, EmitError> {
        let mut outer = index;
        for (factor, term) in index.terms() {
            if self.scalar(term)?.depth > condition.depth {
                outer = outer - term * factor;
            }
        }
        let inner = index - outer;
        let reach = self.facts.bounds(inner);
        let bytes = reach.hi.saturating_add(1).saturating_mul(self.align(mem) as i64);
        let (outer, inner, bytes) = if reach.lo >= 0 && bytes <= ZEROS_LIMIT {
            (outer, inner, bytes)
        } else {
            (index, Expr::zero(), 8)
        };
        // A row of no bytes is never read, but its address is still chosen.
        self.zeros = self.zeros.max(bytes).max(1);
        let zeros = Value { text: format!("@{}.zeros", self.kernel.name).into(), ty: Ty::PTR, depth: 0 };
        let start = self.address(mem, outer)?;
        let start = self.b.select(condition, &start, &zeros);
        self.address_from(mem, &start, inner)
    }

    pub(super) fn load_vector(&mut self, mem: Mem, address: &Value, condition: Option<&Value>) -> Value {
        self.load_vector_of(self.mems[mem].prim, mem, address, condition)
    }

    /// One `prim` for each lane, side by side from `address` in `mem`.
    pub(super) fn load_vector_of(
        &mut self,
        prim: Prim,
        mem: Mem,
        address: &Value,
        condition: Option<&Value>,
    ) -> Value {
        let ty = Ty { prim, lanes: self.lane_count() };
        let align = self.align(mem);
        let Some(mask) = self.mask(condition) else {
            let text = format!("load {ty}, ptr {}, align {align}", address.text);
            return self.read(mem, ty, &[address], text);
        };
        let text = format!(
            "call {ty} @llvm.masked.load.{}.p0(ptr align {align} {}, {} {}, {ty} zeroinitializer)",
            ty.suffix(),
            address.text,
            mask.ty,
            mask.text
        );
        self.read(mem, ty, &[address, &mask], text)
    }

    /// Addresses of the element in each lane.
    fn addresses(&mut self, mem: Mem, index: Expr) -> Result<Value, EmitError> {
        let element = Ty::scalar(self.mems[mem].prim);
        let count = self.lane_count();
        let limit = i64::from(i32::MAX);
        if let Access::Strided(first, stride) = self.access(index) {
            let address = self.address(mem, first)?;
            let is_small = stride.saturating_abs() <= limit / i64::from(count);
            let prim = if is_small { Prim::I32 } else { Prim::I64 };
            let steps = self.b.iota(prim, count, stride);
            return Ok(self.advance(element, &address, &steps));
        }
        let (mut uniform, mut varying) = (Expr::int(index.constant()), Expr::zero());
        for (factor, term) in index.terms() {
            match self.access(term) {
                Access::Uniform(term) => uniform = uniform + term * factor,
                Access::Strided(..) | Access::Any(_) => varying = varying + term * factor,
            }
        }
        let address = self.address(mem, uniform)?;
        let mut offsets = self.vector(varying)?;
        let bounds = self.facts.bounds(varying);
        if bounds.lo >= -limit && bounds.hi <= limit {
            offsets = self.b.convert("trunc", &offsets, Prim::I32);
        }
        let offsets = self.b.splat(&offsets, count);
        Ok(self.advance(element, &address, &offsets))
    }

    fn gather(&mut self, mem: Mem, addresses: &Value, condition: Option<&Value>) -> Value {
        let ty = Ty { prim: self.mems[mem].prim, lanes: self.lane_count() };
        let mask = self.mask(condition);
        let mask = mask.unwrap_or_else(|| self.b.constant_of(ty.with(Prim::I1), Scalar::Bool(true)));
        let text = format!(
            "call {ty} @llvm.masked.gather.{}.v{}p0({} align {} {}, {} {}, {ty} zeroinitializer)",
            ty.suffix(),
            ty.lanes,
            addresses.ty,
            self.align(mem),
            addresses.text,
            mask.ty,
            mask.text
        );
        self.read(mem, ty, &[addresses, &mask], text)
    }

    pub(super) fn store(
        &mut self,
        mem: Mem,
        index: Expr,
        value: Val,
        combine: Option<ReduceOp>,
        guard: &[Rel],
        atomic: bool,
    ) -> Result<(), EmitError> {
        let condition = match self.condition(guard)? {
            Condition::Never => return Ok(()),
            Condition::Always => None,
            Condition::When(condition) => Some(condition),
        };
        let index = self.resolve(index);
        match combine {
            Some(op) => self.combine(mem, index, op, value, condition.as_ref(), atomic),
            None => {
                let value = self.value(value)?;
                self.store_if(mem, index, &value, condition.as_ref())?;
                Ok(())
            }
        }
    }

    /// Fetches the line of an element, once for all lanes, and once where a load of the element would be one instruction.
    pub(super) fn prefetch(
        &mut self,
        mem: Mem,
        index: Expr,
        ahead: u32,
        guard: &[Rel],
    ) -> Result<(), EmitError> {
        let lane = self.lanes.as_ref().map(|lanes| (lanes.var, lanes.first));
        let first = |e: Expr| lane.map_or(e, |(var, first)| e.replace(var, first));
        let guard: Vec<Rel> =
            guard.iter().map(|r| Rel { cmp: r.cmp, lhs: first(r.lhs), rhs: first(r.rhs) }).collect();
        let condition = match self.condition(&guard)? {
            Condition::Never => return Ok(()),
            Condition::Always => None,
            Condition::When(condition) => Some(condition),
        };
        let index = self.resolve(first(index));
        let mut address = self.address(mem, index)?;
        if ahead > 0 {
            let bytes = i64::from(ahead) * self.align(mem) as i64;
            let bytes = self.b.int(Prim::I64, bytes);
            address = self.advance(Ty::scalar(Prim::I8), &address, &bytes);
        }
        let depth = self.read_depth(mem, &[&address]);
        if !self.b.fetch(depth, &address) {
            return Ok(());
        }
        // It may lie past the end: nothing is read.
        let text = format!("call void @llvm.prefetch.p0(ptr {}, i32 0, i32 2, i32 1)", address.text);
        self.when(condition, &mut |cx| {
            cx.b.effect(&[&address], &text);
            Ok(())
        })
    }

    /// Adds a product to an element and rounds once.
    pub(super) fn multiply_add(
        &mut self,
        mem: Mem,
        index: Expr,
        [a, b]: [Val; 2],
        guard: &[Rel],
    ) -> Result<(), EmitError> {
        let condition = match self.condition(guard)? {
            Condition::Never => return Ok(()),
            Condition::Always => None,
            Condition::When(condition) => Some(condition),
        };
        let (index, dtype) = (self.resolve(index), self.dtype_of(a));
        let term = Term::Product(self.value(a)?, self.value(b)?);
        let into = Accumulator { mem, index, op: ReduceOp::Sum, dtype, atomic: false };
        self.combine_term(into, &term, condition.as_ref())
    }

    /// Stores at a resolved index in lanes where the condition holds.
    pub(super) fn store_if(
        &mut self,
        mem: Mem,
        index: Expr,
        value: &Value,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        if self.mems[mem].form != Form::Memory {
            let Some(mask) = self.condition_of_slots(condition, value) else {
                return self.write_register(mem, index, value);
            };
            let old = self.read_register(mem, index)?;
            let lanes = old.ty.lanes.max(mask.ty.lanes);
            let (value, old) = (self.b.splat(value, lanes), self.b.splat(&old, lanes));
            let value = self.b.select(&mask, &value, &old);
            return self.write_register(mem, index, &value);
        }
        if let Some(first) = self.is_storing(mem) {
            return self.when(Some(first), &mut |cx| cx.store_to_memory(mem, index, value, condition));
        }
        self.store_to_memory(mem, index, value, condition)
    }

    fn store_to_memory(
        &mut self,
        mem: Mem,
        index: Expr,
        value: &Value,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let value = self.narrow(value, self.mems[mem].dtype);
        let data = &self.kernel.mems[mem];
        let is_shared =
            data.space == MemorySpace::Scratch && matches!(self.access(index), Access::Uniform(_));
        let runs_lanes = |lanes: &Lanes| self.facts.bounds(Expr::sym(lanes.var)).hi > 0;
        if is_shared && self.lanes.as_ref().is_some_and(runs_lanes) {
            // Lanes run together: what one adds to an element of its own would be in the way of the next one.
            return Err(EmitError::unsupported(format!(
                "scratch `{}` of each lane of a vector loop",
                data.name
            )));
        }
        match self.access(index) {
            Access::Uniform(index) if value.ty.lanes == 1 => {
                let condition = self.in_any_lane(condition);
                let address = self.address(mem, index)?;
                let text = format!(
                    "store {} {}, ptr {}, align {}",
                    value.ty,
                    value.text,
                    address.text,
                    self.align(mem)
                );
                self.when(condition, &mut |cx| {
                    cx.b.effect(&[&value, &address], &text);
                    Ok(())
                })?;
            }
            Access::Strided(first, 1) => {
                let value = self.b.splat(&value, self.lane_count());
                if self.thread.is_some() {
                    self.store_of_thread(mem, first, &value, condition)?;
                } else {
                    let address = self.address(mem, first)?;
                    self.store_vector(mem, &address, &value, condition);
                }
            }
            Access::Uniform(_) | Access::Strided(..) | Access::Any(_) if self.thread.is_some() => {
                let value = self.b.splat(&value, self.lane_count());
                self.store_one_by_one(mem, index, &value, condition)?;
            }
            // Where several lanes write one element the last one wins, as in a loop.
            Access::Uniform(_) | Access::Strided(..) | Access::Any(_) => {
                let value = self.b.splat(&value, self.lane_count());
                let addresses = self.addresses(mem, index)?;
                self.scatter(mem, &addresses, &value, condition);
            }
        }
        self.touch(&[mem]);
        Ok(())
    }

    /// When a register changes: registers that all lanes share change if the guard says so, others lane by lane.
    fn condition_of_slots(&mut self, condition: Option<&Value>, value: &Value) -> Option<Value> {
        let lanes = self.lanes.as_ref();
        let is_masked = lanes.is_some_and(|lanes| lanes.mask.is_some());
        if !is_masked || (value.ty.lanes == 1 && lanes.is_some_and(|lanes| !lanes.may_be_empty)) {
            return condition.cloned();
        }
        self.mask(condition)
    }

    pub(super) fn store_vector(
        &mut self,
        mem: Mem,
        address: &Value,
        value: &Value,
        condition: Option<&Value>,
    ) {
        let align = self.align(mem);
        let Some(mask) = self.mask(condition) else {
            let text = format!("store {} {}, ptr {}, align {align}", value.ty, value.text, address.text);
            return self.b.effect(&[value, address], &text);
        };
        let value = self.fenced(value);
        let text = format!(
            "call void @llvm.masked.store.{}.p0({} {}, ptr align {align} {}, {} {})",
            value.ty.suffix(),
            value.ty,
            value.text,
            address.text,
            mask.ty,
            mask.text
        );
        self.b.effect(&[&value, address, &mask], &text);
    }

    /// The same integers, which LLVM does not see come from wider ones.
    ///
    /// For AVX-512 it makes one store of a truncation and a masked store, and where the mask is a constant with one lane
    /// that becomes a store of the wide integer, over what lies behind the element (LLVM 22; llvm/llvm-project#179489).
    /// Arithmetic fences are of floats: the bits are taken as such.
    fn fenced(&mut self, value: &Value) -> Value {
        let bits = value.ty.lanes * value.ty.prim.bits();
        let is_narrow = matches!(value.ty.prim, Prim::I8 | Prim::I16 | Prim::I32);
        if self.target.isa != Isa::Avx512 || !is_narrow || value.ty.lanes == 1 || value.is_literal() {
            return value.clone();
        }
        let prim = if bits.is_multiple_of(Prim::F32.bits()) { Prim::F32 } else { Prim::F16 };
        let floats = self.b.reinterpret(value, Ty { prim, lanes: bits / prim.bits() });
        let floats = self.b.intrinsic("arithmetic.fence", &[&floats]);
        self.b.reinterpret(&floats, value.ty)
    }

    fn scatter(&mut self, mem: Mem, addresses: &Value, value: &Value, condition: Option<&Value>) {
        let mask = self.mask(condition);
        let mask = mask.unwrap_or_else(|| self.b.constant_of(value.ty.with(Prim::I1), Scalar::Bool(true)));
        let addresses = self.b.splat(addresses, value.ty.lanes);
        let text = format!(
            "call void @llvm.masked.scatter.{}.v{}p0({} {}, {} align {} {}, {} {})",
            value.ty.suffix(),
            value.ty.lanes,
            value.ty,
            value.text,
            addresses.ty,
            self.align(mem),
            addresses.text,
            mask.ty,
            mask.text
        );
        self.b.effect(&[value, &addresses, &mask], &text);
    }
}
