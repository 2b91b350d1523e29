//! Prints the loads and stores of a thread: of several elements at once where they are known to lie so, and of places that change.
//!
//! Every memory of a kernel begins at a multiple of 16 bytes. An access of a vector loop is one instruction where its index is a multiple
//! of as many elements, which the facts at hand have to prove; else LLVM takes it apart into elements.

use litz_ir::Scalar;
use litz_ir::kernel::{Element, Mem, MemData, MemorySpace, position};
use litz_sym::{Cmp, Expr, Rel};

use super::super::block::Value;
use super::super::index::{Access, Condition};
use super::super::ty::{Prim, Ty};
use super::super::{EmitError, Emitter};
use super::fragments::tuple;

/// Bytes of the widest access.
const WIDEST: i64 = 16;

impl Emitter<'_> {
    /// Bytes that the address of an element is a multiple of, as far as accesses of so many elements profit from it.
    fn alignment(&self, mem: Mem, index: Expr, count: i64) -> i64 {
        let size = self.mems[mem].dtype.size() as i64;
        let mut elements = count.min(WIDEST / size.min(WIDEST)).max(1);
        while elements > 1 && !self.facts.simplify(index.modulo(elements)).is_zero() {
            elements /= 2;
        }
        elements * size
    }

    /// Zero in every lane, of a type of memory.
    pub(in super::super) fn raw_zero(&mut self, ty: Ty) -> Value {
        self.b.constant_of(ty, Scalar::Int(0))
    }

    /// Whether `first + lane` compares with zero in the same way in all lanes: it is a multiple of their number.
    pub(in super::super) fn is_same_in_all(&self, rel: &Rel, first: Expr) -> bool {
        let count = i64::from(self.lane_count());
        rel.cmp == Cmp::Lt && self.facts.simplify(first.modulo(count)).is_zero()
    }

    /// Neighbouring elements, one for each lane, from `first` on.
    pub(in super::super) fn load_of_thread(
        &mut self,
        mem: Mem,
        first: Expr,
        condition: Option<&Value>,
    ) -> Result<Value, EmitError> {
        let count = self.lane_count();
        let ty = Ty { prim: self.mems[mem].prim, lanes: count };
        let is_masked = self.lanes.as_ref().is_some_and(|lanes| lanes.mask.is_some());
        let is_varying = condition.is_some_and(|condition| condition.ty.lanes > 1);
        if is_masked || is_varying {
            let lane = self.lanes.as_ref().map_or(Expr::zero(), |lanes| Expr::sym(lanes.lane));
            return self.load_each(mem, first + lane, condition);
        }
        let align = self.alignment(mem, first, count.into());
        let address = self.address(mem, first)?;
        Ok(self.load_where((mem, first, count.into()), ty, (&address, align), condition))
    }

    /// What is at the address of so many elements of a memory, from an index on, or zero where a condition, the same for all lanes, fails. No branch: what is read then does not
    /// count. That is the first element, but of memory that threads share, where others may store to that one meanwhile, the element that is asked
    /// for, if there is one.
    pub(in super::super) fn load_where(
        &mut self,
        (mem, first, count): (Mem, Expr, i64),
        ty: Ty,
        (address, align): (&Value, i64),
        condition: Option<&Value>,
    ) -> Value {
        let Some(condition) = condition else {
            let text = format!("load {ty}, ptr {}, align {align}", address.text);
            return self.read(mem, ty, &[address], text);
        };
        if let Some(value) = self.load_of_inputs(mem, ty, (address, align), condition) {
            return value;
        }
        let address = match self.is_in_shared(mem, first, count) {
            true => address.clone(),
            false => {
                let start = self.mems[mem].base.clone();
                self.b.select(condition, address, &start)
            }
        };
        let text = format!("load {ty}, ptr {}, align {align}", address.text);
        let value = self.read(mem, ty, &[&address], text);
        let zero = self.raw_zero(ty);
        self.b.select(condition, &value, &zero)
    }

    /// The same of memory that the kernel does not write, where one instruction can: it loads where the condition holds, and leaves zero where it fails.
    /// Nobody waits for what is loaded to choose between the two. Only what stays as long as the kernel runs is loaded anywhere.
    fn load_of_inputs(
        &mut self,
        mem: Mem,
        ty: Ty,
        (address, align): (&Value, i64),
        condition: &Value,
    ) -> Option<Value> {
        // A number is a parameter itself, and has no place in memory that all threads see.
        let is_input = |data: &MemData| data.space.is_only_read() && data.space != MemorySpace::Number;
        let is_input = self.kernel.mems.get(mem).is_some_and(is_input);
        let bits = i64::from(ty.prim.bits()) * i64::from(ty.lanes);
        let (count, word, letter) = match bits {
            16 => (1, Prim::I16, 'h'),
            32 => (1, Prim::I32, 'r'),
            64 => (2, Prim::I32, 'r'),
            128 => (4, Prim::I32, 'r'),
            _ => return None,
        };
        if !is_input || align * 8 < bits {
            return None;
        }
        let place = format!("addrspacecast ptr {} to ptr addrspace(1)", address.text);
        let place = self.b.pure(Ty::PTR, &[address], place);
        let holds = self.b.convert("zext", condition, Prim::I32);
        let names: Vec<String> = (0..count).map(|at| format!("${at}")).collect();
        let (width, into) = match count {
            1 => (String::new(), names[0].clone()),
            _ => (format!(".v{count}"), format!("{{{}}}", names.join(","))),
        };
        let size = word.bits();
        let zeros: Vec<String> = names.iter().map(|name| format!("mov.b{size} {name}, 0;")).collect();
        let result = if count == 1 {
            Ty::scalar(word).to_string()
        } else {
            tuple(&Ty::scalar(word).to_string(), count)
        };
        let (effect, cache, memory) =
            if self.mems[mem].stays { ("", ".nc", "") } else { ("sideeffect ", "", ",~{memory}") };
        let text = format!(
            "call {result} asm {effect}\"{{ .reg .pred p; setp.ne.b32 p, ${}, 0; {} @p ld.global{cache}{width}.b{size} {into}, [${count}]; }}\", \
             \"{}l,r{memory}\"(ptr addrspace(1) {}, i32 {}) #1",
            count + 1,
            zeros.join(" "),
            format!("=&{letter},").repeat(count as usize),
            place.text,
            holds.text,
        );
        let (operands, of) = ([&place, &holds], Ty { prim: word, lanes: count as u32 });
        let loaded = self.read(mem, Ty::scalar(word), &operands, text);
        if count == 1 {
            return Some(self.b.reinterpret(&loaded, ty));
        }
        let mut all = self.b.poison(of);
        for number in 0..count {
            let text = format!("extractvalue {result} {}, {number}", loaded.text);
            let item = self.b.pure(Ty::scalar(word), &[&loaded], text);
            all = self.b.insert(&all, number as u32, &item);
        }
        Some(self.b.reinterpret(&all, ty))
    }

    /// Whether so many elements from an index on are known to be in a memory that the threads of a block share, whatever a guard says.
    fn is_in_shared(&self, mem: Mem, first: Expr, count: i64) -> bool {
        let data = &self.kernel.mems[mem];
        let is_below = |size: Expr| {
            let rels = [Rel::le(0, first), Rel::le(first + count, size)];
            rels.iter().all(|rel| self.facts.holds(rel))
        };
        data.space == MemorySpace::Shared && data.is_flat() && is_below(data.sizes.iter().copied().product())
    }

    /// An element for each lane, at an index that is any function of the lane.
    pub(in super::super) fn load_one_by_one(
        &mut self,
        mem: Mem,
        index: Expr,
        condition: Option<&Value>,
    ) -> Result<Value, EmitError> {
        if let Access::Strided(first, stride) = self.access(index) {
            let lane = self.lanes.as_ref().map_or(Expr::zero(), |lanes| Expr::sym(lanes.lane));
            return self.load_each(mem, first + lane * stride, condition);
        }
        let indices = self.vector(index)?;
        let mask = self.mask(condition);
        let count = self.lane_count();
        let ty = Ty { prim: self.mems[mem].prim, lanes: count };
        let mut all = self.b.poison(ty);
        for lane in 0..count {
            let at = self.b.extract(&indices, lane);
            let runs = mask.as_ref().map(|mask| self.lane_of(mask, lane));
            let value = self.in_lane_alone(&at, |cx, index| cx.load_scalar(mem, index, runs.clone()))?;
            all = self.b.insert(&all, lane, &value);
        }
        Ok(all)
    }

    /// An element for each lane, at an index in which the symbol of the lane stands.
    fn load_each(&mut self, mem: Mem, index: Expr, condition: Option<&Value>) -> Result<Value, EmitError> {
        let mask = self.mask(condition);
        let count = self.lane_count();
        let Some(sym) = self.lanes.as_ref().map(|lanes| lanes.lane) else {
            return Err(EmitError::malformed("lanes of no vector loop"));
        };
        let ty = Ty { prim: self.mems[mem].prim, lanes: count };
        let mut all = self.b.poison(ty);
        for lane in 0..count {
            let runs = mask.as_ref().map(|mask| self.lane_of(mask, lane));
            let index = index.replace(sym, Expr::int(lane.into()));
            let value = match runs.as_ref().map(|runs| &*runs.text) {
                Some("false") => self.raw_zero(Ty::scalar(ty.prim)),
                Some("true") | None => self.load_scalar(mem, index, None)?,
                Some(_) => self.load_scalar(mem, index, runs)?,
            };
            all = self.b.insert(&all, lane, &value);
        }
        Ok(all)
    }

    /// A lane of a mask, which may be a literal.
    fn lane_of(&mut self, mask: &Value, lane: u32) -> Value {
        let listed = mask.text.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
        match listed.and_then(|text| text.split(", ").nth(lane as usize)) {
            Some(item) => self.b.int(Prim::I1, i64::from(item.ends_with("true"))),
            None if mask.is_literal() => self.b.int(Prim::I1, i64::from(mask.text.contains("true"))),
            None => self.b.extract(mask, lane),
        }
    }

    /// Does something at an index that is one value, outside of the vector loop.
    fn in_lane_alone<T>(
        &mut self,
        at: &Value,
        mut run: impl FnMut(&mut Self, Expr) -> Result<T, EmitError>,
    ) -> Result<T, EmitError> {
        let Some(around) = self.lanes.take() else {
            return Err(EmitError::malformed("lanes of no vector loop"));
        };
        self.syms.insert(around.lane, super::super::Bound::Scalar(at.clone()));
        let result = run(self, Expr::sym(around.lane));
        self.syms.remove(&around.lane);
        self.lanes = Some(around);
        result
    }

    /// Stores neighbouring elements, one of each lane, from `first` on.
    pub(in super::super) fn store_of_thread(
        &mut self,
        mem: Mem,
        first: Expr,
        value: &Value,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let count = self.lane_count();
        let is_masked = self.lanes.as_ref().is_some_and(|lanes| lanes.mask.is_some());
        let is_varying = condition.is_some_and(|condition| condition.ty.lanes > 1);
        if is_masked || is_varying {
            let Some(sym) = self.lanes.as_ref().map(|lanes| lanes.lane) else {
                return Err(EmitError::malformed("lanes of no vector loop"));
            };
            let mask = self.mask(condition);
            for lane in 0..count {
                let runs = mask.as_ref().map(|mask| self.lane_of(mask, lane));
                let index = (first + Expr::sym(sym)).replace(sym, Expr::int(lane.into()));
                let part = self.b.extract(value, lane);
                self.store_element(mem, index, &part, runs)?;
            }
            return Ok(());
        }
        let align = self.alignment(mem, first, count.into());
        let address = self.address(mem, first)?;
        let text = format!("store {} {}, ptr {}, align {align}", value.ty, value.text, address.text);
        self.when(condition.cloned(), &mut |cx| {
            cx.b.effect(&[value, &address], &text);
            Ok(())
        })
    }

    /// Stores an element of each lane, at an index that is any function of the lane. Where several mean one element the last one wins.
    pub(in super::super) fn store_one_by_one(
        &mut self,
        mem: Mem,
        index: Expr,
        value: &Value,
        condition: Option<&Value>,
    ) -> Result<(), EmitError> {
        let indices = self.vector(index)?;
        let mask = self.mask(condition);
        for lane in 0..self.lane_count() {
            let at = self.b.extract(&indices, lane);
            let part = self.b.extract(value, lane);
            let runs = mask.as_ref().map(|mask| self.lane_of(mask, lane));
            self.in_lane_alone(&at, |cx, index| cx.store_element(mem, index, &part, runs.clone()))?;
        }
        Ok(())
    }

    fn store_element(
        &mut self,
        mem: Mem,
        index: Expr,
        value: &Value,
        condition: Option<Value>,
    ) -> Result<(), EmitError> {
        let condition = match condition.as_ref().map(|condition| &*condition.text) {
            Some("false") => return Ok(()),
            Some("true") | None => None,
            Some(_) => condition,
        };
        let address = self.address(mem, index)?;
        let align = self.align(mem);
        let text = format!("store {} {}, ptr {}, align {align}", value.ty, value.text, address.text);
        self.when(condition, &mut |cx| {
            cx.b.effect(&[value, &address], &text);
            Ok(())
        })
    }

    /// So many elements of a memory from one on, a lane each.
    pub(in super::super) fn load_lanes(
        &mut self,
        mem: Mem,
        lanes: u32,
        first: Expr,
    ) -> Result<Value, EmitError> {
        let mut all: Option<Value> = None;
        for lane in 0..lanes {
            let value = self.load_if(mem, first + i64::from(lane), None)?;
            if lanes == 1 {
                return Ok(value);
            }
            let so_far = all.unwrap_or_else(|| self.b.poison(Ty { prim: value.ty.prim, lanes }));
            all = Some(self.b.insert(&so_far, lane, &value));
        }
        all.ok_or_else(|| EmitError::malformed("no lanes to combine"))
    }

    /// Copies so many adjacent elements as they are.
    pub(in super::super) fn copy_of_thread(
        &mut self,
        count: u32,
        from: &Element,
        to: &Element,
    ) -> Result<(), EmitError> {
        let bytes = self.mems[from.mem].dtype.size() as i64 * i64::from(count);
        let (ty, align) = match bytes {
            1 => (Ty::scalar(Prim::I8), 1),
            2 => (Ty::scalar(Prim::I16), 2),
            4 => (Ty::scalar(Prim::I32), 4),
            8 => (Ty { prim: Prim::I32, lanes: 2 }, 8),
            16 => (Ty { prim: Prim::I32, lanes: 4 }, 16),
            _ => return Err(EmitError::unsupported(format!("a copy of {bytes} bytes at once"))),
        };
        if self.lanes.is_some() {
            return Err(EmitError::unsupported("copies of several elements in a vector loop"));
        }
        let stores = match self.condition(&to.guard)? {
            Condition::Never => return Ok(()),
            Condition::Always => None,
            Condition::When(condition) => Some(condition),
        };
        let count = i64::from(count);
        let [first, target] = [from, to].map(|element| self.resolve(position(&element.index) * count));
        let source = self.address(from.mem, first)?;
        let target = self.address(to.mem, target)?;
        let value = match self.condition(&from.guard)? {
            Condition::Never => self.raw_zero(ty),
            Condition::Always => self.load_where((from.mem, first, count), ty, (&source, align), None),
            Condition::When(condition) => {
                self.load_where((from.mem, first, count), ty, (&source, align), Some(&condition))
            }
        };
        let stores = self.storing_where(to.mem, stores);
        let text = format!("store {ty} {}, ptr {}, align {align}", value.text, target.text);
        self.when(stores, &mut |cx| {
            cx.b.effect(&[&value, &target], &text);
            Ok(())
        })?;
        self.touch(&[to.mem]);
        Ok(())
    }

    /// The address of an element in memory whose units change places.
    ///
    /// Unit `u` of line `l` is where unit `u ^ (l mod m)` would be. Places repeat after `m` lines: what is added in whole periods changes no
    /// unit, so it is left for last, as what does change is the same in all iterations of a pipelined loop. So are units of which a number
    /// is added to the first one of a line: `(u + v) ^ l` is `(u ^ l) ^ v` then, and of places side by side all but that is one computation.
    pub(in super::super) fn address_in_swizzle(&mut self, mem: Mem, index: Expr) -> Result<Value, EmitError> {
        let start = self.mems[mem].base.clone();
        let data = &self.kernel.mems[mem];
        let bytes = data.dtype.size();
        let Some((swizzle, units)) = data.swizzle.and_then(|swizzle| Some((swizzle, swizzle.units(bytes)?)))
        else {
            return self.address_from(mem, &start, index);
        };
        let (unit, row) = (i64::from(swizzle.unit), i64::from(swizzle.row));
        let rows = (128 / (row * bytes as i64)).max(1);
        let lines = units * if swizzle.pairs { 4 } else { 1 };
        let period = row * rows * lines;
        let mut whole = Expr::zero();
        for (factor, term) in index.terms() {
            if factor % period == 0 {
                whole = whole + term * factor;
            }
        }
        let periods = (index - whole).constant().div_euclid(period) * period;
        if periods > 0 && self.facts.proves(&Rel::le(0, index - whole - periods)) {
            whole = whole + periods;
        }
        // Elements of a unit stay side by side.
        let inner = (index - whole).constant().rem_euclid(unit);
        if inner > 0 && self.facts.simplify((index - whole - inner).modulo(unit)).is_zero() {
            whole = whole + inner;
        }
        let line_of_units = units * unit;
        let beside = (index - whole).constant();
        let is_whole = (1..line_of_units).contains(&beside) && beside % unit == 0;
        let is_first = || {
            let rest = (index - whole - beside).modulo(line_of_units);
            self.facts.proves(&Rel::lt(rest, unit))
        };
        let units_on = if is_whole && is_first() { beside } else { 0 };
        let at = self.scalar(index - whole - units_on)?;
        let line = self.shifted("lshr", &at, row * rows);
        let line = if swizzle.pairs {
            let four = self.shifted("lshr", &line, 4);
            self.b.binary("xor", &line, &four)
        } else {
            line
        };
        let last = self.b.int(Prim::I64, units - 1);
        let line = self.b.binary("and", &line, &last);
        let by = self.b.int(Prim::I64, unit.trailing_zeros().into());
        let moved = if unit == 1 { line } else { self.b.binary("shl", &line, &by) };
        let mut place = self.b.binary("xor", &at, &moved);
        if units_on > 0 {
            let units_on = self.b.int(Prim::I64, units_on);
            place = self.b.binary("xor", &place, &units_on);
        }
        let element = Ty::scalar(self.mems[mem].prim);
        let start = self.advance(element, &start, &place);
        self.address_from(mem, &start, whole)
    }

    /// Divides by a number, which is a power of two in most cases.
    fn shifted(&mut self, op: &str, value: &Value, by: i64) -> Value {
        if by == 1 {
            return value.clone();
        }
        if by.count_ones() == 1 {
            let amount = self.b.int(Prim::I64, by.trailing_zeros().into());
            return self.b.binary(op, value, &amount);
        }
        let by = self.b.int(Prim::I64, by);
        self.b.binary("udiv", value, &by)
    }
}
