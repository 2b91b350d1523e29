//! Keeps register arrays in SSA values.
//!
//! An array whose every index is constant once unrolled is held as values, one for each group of as many elements as
//! a vector access takes, so that the tile of a matrix product lives in vector registers. Any other array is memory
//! on the stack.

use std::collections::HashMap;

use litz_ir::Dtype;
use litz_ir::kernel::{
    Act, FragmentProduct, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Operand, Stmt, Val,
    position, visit,
};
use litz_ir::target::Gpu;
use litz_sym::{Expr, Sym};

use super::block::{Slot, Value};
use super::index::Access;
use super::ty::{Prim, Ty, register_type};
use super::{EmitError, Emitter, Form};

/// Vector loops around register accesses are written out up to this many groups.
const GROUP_LIMIT: i64 = 64;

/// How each piece of memory is held.
pub(super) fn forms(kernel: &Kernel) -> HashMap<Mem, Form> {
    let mut forms: HashMap<Mem, Form> = kernel
        .mems
        .iter()
        .map(|(mem, data)| {
            let is_register = data.space == MemorySpace::Register;
            (mem, if is_register { Form::Slots { width: 1 } } else { Form::Memory })
        })
        .collect();
    let mut scan = Scan { unrolled: Vec::new(), vector: None, is_wide: true, forms: &mut forms };
    scan.body(&kernel.body);
    forms
}

/// As [`forms`], for the threads of a GPU: their registers hold one element each, or as many as are operands of an instruction together, or
/// as were loaded together of what is narrower.
pub(super) fn forms_of_threads(kernel: &Kernel) -> HashMap<Mem, Form> {
    let is_own =
        |space: MemorySpace| matches!(space, MemorySpace::Register | MemorySpace::Own | MemorySpace::Scratch);
    let is_fixed =
        |data: &MemData| data.span().as_int().is_some_and(|count| count <= i64::from(Gpu::REGISTERS) * 8);
    let mut forms: HashMap<Mem, Form> = kernel
        .mems
        .iter()
        .map(|(mem, data)| {
            let is_register = is_own(data.space) && is_fixed(data);
            (mem, if is_register { Form::Slots { width: 1 } } else { Form::Memory })
        })
        .collect();
    let mut scan = Scan { unrolled: Vec::new(), vector: None, is_wide: false, forms: &mut forms };
    scan.body(&kernel.body);
    let mut pack = |mem: Mem| {
        let form = forms.get_mut(&mem).filter(|form| **form != Form::Memory);
        if let Some(form) = form.filter(|_| kernel.mems[mem].dtype.size() < 4) {
            *form = Form::Packed;
        }
    };
    copies_of_loads(kernel).into_iter().for_each(&mut pack);
    visit(&kernel.body, &mut |stmt| match stmt {
        Stmt::Act(Act::FragmentLoad(load)) => pack(load.into.mem),
        Stmt::Act(Act::FragmentProduct(FragmentProduct { left, right, .. })) => {
            for operand in [left, right] {
                if let Operand::Own(own) = operand {
                    pack(own.mem);
                }
            }
        }
        Stmt::Loop(_) | Stmt::If { .. } | Stmt::Act(_) => {}
    });
    forms
}

/// Memories that hold what is loaded of others of their type, and nothing else: elements stay as they were loaded until they are used.
fn copies_of_loads(kernel: &Kernel) -> Vec<Mem> {
    let mut loaded: HashMap<Val, Dtype> = HashMap::new();
    let mut copies: HashMap<Mem, bool> = HashMap::new();
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Let { val, op: Op::Load { mem, .. } }) = stmt {
            loaded.insert(*val, kernel.mems[*mem].dtype);
        }
        let copied = if let Stmt::Act(Act::Store { value, combine: None, .. }) = stmt {
            loaded.get(value).copied()
        } else {
            None
        };
        for (mem, _) in stmt.stored() {
            *copies.entry(mem).or_insert(true) &= copied == Some(kernel.mems[mem].dtype);
        }
    });
    copies.into_iter().filter(|(_, is_copy)| *is_copy).map(|(mem, _)| mem).collect()
}

/// The loops around a statement.
struct Scan<'a> {
    unrolled: Vec<Sym>,
    /// The vector loop around.
    vector: Option<Vector>,
    /// Whether registers hold vectors.
    is_wide: bool,
    forms: &'a mut HashMap<Mem, Form>,
}

/// What is known of a vector loop.
#[derive(Clone, Copy)]
struct Vector {
    var: Sym,
    /// Its variable for the lane in flight.
    lane: Option<Sym>,
    lanes: u32,
    /// Whether it may be written out.
    is_short: bool,
}

impl Scan<'_> {
    fn body(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(inner) => self.inner(inner),
                Stmt::If { then, other, .. } => {
                    self.body(then);
                    self.body(other);
                }
                // It moves several elements between addresses, and counts its indices in as many.
                Stmt::Act(Act::Copy { count, from, to, .. }) if *count > 1 => {
                    [from.mem, to.mem].into_iter().for_each(|mem| self.in_memory(mem));
                }
                Stmt::Act(_) => {
                    stmt.accesses().for_each(|(mem, index)| self.access(mem, position(index)));
                }
            }
        }
    }

    fn in_memory(&mut self, mem: Mem) {
        self.forms.insert(mem, Form::Memory);
    }

    fn inner(&mut self, inner: &Loop) {
        match inner.kind {
            KernelLoopKind::Vector { lanes, lane, .. } if lanes > 1 && self.vector.is_none() => {
                let is_short =
                    inner.extent.as_int().is_some_and(|extent| extent <= GROUP_LIMIT * i64::from(lanes));
                self.vector = Some(Vector { var: inner.var, lane, lanes, is_short });
                self.body(&inner.body);
                self.vector = None;
            }
            KernelLoopKind::Unroll => {
                self.unrolled.push(inner.var);
                self.body(&inner.body);
                self.unrolled.pop();
            }
            KernelLoopKind::For
            | KernelLoopKind::Vector { .. }
            | KernelLoopKind::Pipeline { .. }
            | KernelLoopKind::Level(_)
            | KernelLoopKind::Chain
            | KernelLoopKind::Search
            | KernelLoopKind::Mma { .. } => self.body(&inner.body),
        }
    }

    fn access(&mut self, mem: Mem, index: Expr) {
        let Some(Form::Slots { width }) = self.forms.get(&mem).copied() else { return };
        let by_lanes = self.vector.and_then(|vector| {
            let Vector { var, lane, is_short, .. } = vector;
            let by_lane = lane.filter(|&lane| index.has_sym(lane)).map(|lane| (lane, true));
            let (sym, fits) = by_lane.or_else(|| index.has_sym(var).then_some((var, is_short)))?;
            Some((sym, vector.lanes, fits))
        });
        let form = match by_lanes {
            Some((sym, lanes, is_short)) => {
                let rest = index - Expr::sym(sym);
                let step = i64::from(lanes);
                // A slot holds a vector: an access that straddles two slots would have to take lanes of both.
                let is_aligned =
                    rest.constant() % step == 0 && rest.terms().all(|(factor, _)| factor % step == 0);
                // A slot has one width, which the first vector access decides.
                let fits = is_aligned && (width == 1 || width == lanes);
                match is_short && self.is_constant(rest) {
                    true if !self.is_wide => Form::Slots { width: 1 },
                    true if fits => Form::Slots { width: lanes },
                    _ => Form::Memory,
                }
            }
            None if self.is_constant(index) => Form::Slots { width },
            None => Form::Memory,
        };
        self.forms.insert(mem, form);
    }

    fn is_constant(&self, index: Expr) -> bool {
        index.syms().iter().all(|sym| self.unrolled.contains(sym))
    }
}

impl Emitter<'_> {
    /// Whether a loop has to be written out because registers are indexed by its variable.
    pub(super) fn indexes_registers(&self, inner: &Loop) -> bool {
        let mut found = false;
        visit(&inner.body, &mut |stmt| {
            let is_indexed = |(mem, index): (Mem, &[Expr])| {
                position(index).has_sym(inner.var) && self.mems[mem].form != Form::Memory
            };
            found |= stmt.accesses().any(is_indexed);
        });
        found
    }

    /// Registers of which each lane of a vector loop has its own.
    pub(super) fn private_registers(&self, inner: &Loop) -> Result<Vec<Mem>, EmitError> {
        let private = self.kernel.private_registers(inner);
        for &mem in &private {
            if self.mems[mem].form != (Form::Slots { width: 1 }) {
                let name = &self.kernel.mems[mem].name;
                return Err(EmitError::unsupported(format!(
                    "register `{name}` of each lane of a vector loop, indexed at run time or as a vector"
                )));
            }
        }
        Ok(private)
    }

    pub(super) fn is_private(&self, mem: Mem) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.private.contains(&mem))
    }

    /// The slot of an element and its type; and which lane of it, unless the access takes them all.
    fn locate(&self, mem: Mem, width: u32, index: Expr) -> Result<(Slot, Ty, Option<u32>), EmitError> {
        let data = &self.kernel.mems[mem];
        let prim = register_type(data.dtype)?;
        let (first, is_vector) = match self.access(index) {
            Access::Uniform(index) => (index, false),
            Access::Strided(first, 1) if self.lane_count() == width => (first, true),
            Access::Strided(index, _) | Access::Any(index) => (index, true),
        };
        let element = first.as_int().filter(|element| {
            let len = data.span().as_int().unwrap_or(0);
            (0..len).contains(element) && (!is_vector || element % i64::from(width) == 0)
        });
        let Some(element) = element else {
            return Err(EmitError::malformed(format!("register `{}` has no element {index}", data.name)));
        };
        let slot = Slot { mem, group: element / i64::from(width) };
        if self.is_private(mem) {
            return Ok((slot, Ty { prim, lanes: self.lane_count() }, None));
        }
        let lane = (!is_vector && width > 1).then_some((element % i64::from(width)) as u32);
        Ok((slot, Ty { prim, lanes: width }, lane))
    }

    /// The first element that an access means, and how far apart those of lanes are; 0 where all mean one.
    fn elements(&self, mem: Mem, index: Expr) -> Result<(i64, i64), EmitError> {
        let (first, stride) = match self.access(index) {
            Access::Uniform(first) => (first, 0),
            Access::Strided(first, stride) => (first, stride),
            Access::Any(index) => (index, 0),
        };
        let data = &self.kernel.mems[mem];
        let len = data.span().as_int().unwrap_or(0);
        let last = |first: i64| first + stride * i64::from(self.lane_count() - 1);
        let first = first.as_int().filter(|&first| {
            let range = 0..len;
            range.contains(&first) && (stride == 0 || range.contains(&last(first)) || self.lanes_are_masked())
        });
        let element = first.ok_or_else(|| {
            EmitError::malformed(format!("register `{}` has no element {index}", data.name))
        })?;
        Ok((element, stride))
    }

    fn lanes_are_masked(&self) -> bool {
        self.lanes.as_ref().is_some_and(|lanes| lanes.mask.is_some())
    }

    /// One element of a thread's registers.
    fn read_element(&mut self, mem: Mem, element: i64) -> Result<Value, EmitError> {
        let dtype = self.kernel.mems[mem].dtype;
        let prim = register_type(dtype)?;
        if self.mems[mem].form != Form::Packed {
            let poison = self.b.poison(Ty::scalar(prim));
            return Ok(self.b.slot(Slot { mem, group: element }, &poison));
        }
        let group = 4 / dtype.size() as i64;
        let word = self.packed(mem, element.div_euclid(group));
        if dtype == Dtype::BF16 {
            return Ok(self.half_of_word(&word, element.rem_euclid(group) == 1));
        }
        let parts = Ty { prim: Prim::int(32 / group as u32), lanes: group as u32 };
        let parts = self.b.reinterpret(&word, parts);
        let part = self.b.extract(&parts, element.rem_euclid(group) as u32);
        let part = self.b.convert("bitcast", &part, self.mems[mem].prim);
        Ok(self.widen(&part, dtype))
    }

    /// One of two bf16 in a word, as f32: an instruction on the word, which stays whole. Parts of it would be registers of their own.
    fn half_of_word(&mut self, word: &Value, is_upper: bool) -> Value {
        let (op, operand) = if is_upper { ("and", -0x1_0000) } else { ("shl", 16) };
        let operand = self.b.int(Prim::I32, operand);
        let bits = self.b.binary(op, word, &operand);
        let half = self.b.convert("bitcast", &bits, Prim::F32);
        if !half.is_literal() {
            self.rounded.insert(half.text.clone(), (Dtype::BF16, None));
        }
        half
    }

    fn write_element(&mut self, mem: Mem, element: i64, value: &Value) {
        let dtype = self.kernel.mems[mem].dtype;
        if self.mems[mem].form != Form::Packed {
            let value = self.round(value, dtype);
            self.b.set_slot(Slot { mem, group: element }, value);
            return;
        }
        let group = 4 / dtype.size() as i64;
        let slot = element.div_euclid(group);
        let part = self.narrow(value, dtype);
        let part = self.b.convert("bitcast", &part, Prim::int(32 / group as u32));
        let word = self.packed(mem, slot);
        let parts = self.b.reinterpret(&word, Ty { prim: part.ty.prim, lanes: group as u32 });
        let parts = self.b.insert(&parts, element.rem_euclid(group) as u32, &part);
        let word = self.b.reinterpret(&parts, Ty::scalar(Prim::I32));
        self.b.set_slot(Slot { mem, group: slot }, word);
    }

    /// Neighbours that fill words of packed elements, which are rounded together. False where they are none.
    fn write_words(&mut self, mem: Mem, first: i64, value: &Value) -> bool {
        let dtype = self.kernel.mems[mem].dtype;
        let group = 4 / (dtype.size() as i64).min(4);
        let lanes = i64::from(value.ty.lanes);
        let is_whole = lanes == i64::from(self.lane_count()) && first % group == 0 && lanes % group == 0;
        if self.mems[mem].form != Form::Packed || !is_whole || self.lanes_are_masked() {
            return false;
        }
        let parts = self.narrow(value, dtype);
        let parts = self.b.convert("bitcast", &parts, Prim::int(32 / group as u32));
        let count = (lanes / group) as u32;
        let words = self.b.reinterpret(&parts, Ty { prim: Prim::I32, lanes: count });
        for word in 0..count {
            let own = if count == 1 { words.clone() } else { self.b.extract(&words, word) };
            self.b.set_slot(Slot { mem, group: first / group + i64::from(word) }, own);
        }
        true
    }

    pub(super) fn read_register(&mut self, mem: Mem, index: Expr) -> Result<Value, EmitError> {
        if self.thread.is_some() && !self.is_private(mem) {
            let (first, stride) = self.elements(mem, index)?;
            if stride == 0 {
                return self.read_element(mem, first);
            }
            let len = self.kernel.mems[mem].span().as_int().unwrap_or(0);
            let lanes = self.lane_count();
            let mut all: Option<Value> = None;
            for lane in 0..lanes {
                let element = (first + stride * i64::from(lane)).clamp(0, len - 1);
                let element = self.read_element(mem, element)?;
                let so_far = all.unwrap_or_else(|| self.b.poison(Ty { prim: element.ty.prim, lanes }));
                all = Some(self.b.insert(&so_far, lane, &element));
            }
            return all.ok_or_else(|| EmitError::malformed("a vector of no lanes"));
        }
        let width = self.width(mem);
        let (slot, ty, lane) = self.locate(mem, width, index)?;
        let poison = self.b.poison(ty);
        let value = self.b.slot(slot, &poison);
        Ok(match lane {
            Some(lane) => self.b.extract(&value, lane),
            None => value,
        })
    }

    /// So many lanes of a register array from `first` on, which vectors access together.
    pub(super) fn read_lanes(&mut self, mem: Mem, lanes: u32, first: Expr) -> Result<Value, EmitError> {
        let data = &self.kernel.mems[mem];
        let element = first.as_int().filter(|first| first % i64::from(lanes) == 0);
        match (self.mems[mem].form, element) {
            (Form::Slots { width }, Some(element)) if width == lanes => {
                let poison = self.b.poison(Ty { prim: register_type(data.dtype)?, lanes });
                Ok(self.b.slot(Slot { mem, group: element / i64::from(lanes) }, &poison))
            }
            (Form::Slots { .. } | Form::Packed | Form::Memory, _) => {
                Err(EmitError::unsupported(format!("lanes of `{}`, which are no vectors", data.name)))
            }
        }
    }

    /// In each lane an element of a table, which is as wide as a vector: the instruction takes the lowest bits of an index.
    pub(super) fn lookup(&mut self, mem: Mem, first: Expr, count: u32, by: Val) -> Result<Value, EmitError> {
        let first = self.resolve(first);
        let table = self.read_lanes(mem, count, first)?;
        let by = self.value(by)?;
        let by = self.b.splat(&by, self.lane_count());
        if table.ty != (Ty { prim: Prim::F32, lanes: 16 }) || by.ty.lanes != 16 {
            return Err(EmitError::unsupported(format!("a table of {} for {} lanes", table.ty, by.ty.lanes)));
        }
        Ok(self.b.call(table.ty, "llvm.x86.avx512.permvar.sf.512", &[&table, &by]))
    }

    fn width(&self, mem: Mem) -> u32 {
        match self.mems[mem].form {
            Form::Slots { width } => width,
            Form::Memory | Form::Packed => 1,
        }
    }

    pub(super) fn write_register(&mut self, mem: Mem, index: Expr, value: &Value) -> Result<(), EmitError> {
        if self.thread.is_some() && !self.is_private(mem) {
            let (first, stride) = self.elements(mem, index)?;
            if stride == 0 && value.ty.lanes > 1 {
                let name = &self.kernel.mems[mem].name;
                return Err(EmitError::unsupported(format!(
                    "one element of register `{name}` set by many lanes"
                )));
            }
            if stride == 0 {
                self.write_element(mem, first, value);
                return Ok(());
            }
            if stride == 1 && self.write_words(mem, first, value) {
                return Ok(());
            }
            let len = self.kernel.mems[mem].span().as_int().unwrap_or(0);
            // Pairs are rounded by one instruction, which is faster than that for a single value.
            let value = match self.mems[mem].form {
                Form::Packed => value.clone(),
                Form::Slots { .. } | Form::Memory => self.round(value, self.kernel.mems[mem].dtype),
            };
            for lane in 0..self.lane_count() {
                let element = first + stride * i64::from(lane);
                if (0..len).contains(&element) {
                    let value = self.lane_value(&value, lane);
                    self.write_element(mem, element, &value);
                }
            }
            return Ok(());
        }
        let width = self.width(mem);
        let (slot, ty, lane) = self.locate(mem, width, index)?;
        let value = self.round(value, self.mems[mem].dtype);
        let value = match lane {
            Some(lane) => {
                let poison = self.b.poison(ty);
                let around = self.b.slot(slot, &poison);
                self.b.insert(&around, lane, &value)
            }
            None => self.b.splat(&value, ty.lanes),
        };
        if value.ty != ty {
            let name = &self.kernel.mems[mem].name;
            return Err(EmitError::unsupported(format!(
                "one element of register `{name}` set by many lanes"
            )));
        }
        self.b.set_slot(slot, value);
        Ok(())
    }
}
