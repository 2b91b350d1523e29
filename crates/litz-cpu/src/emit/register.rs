//! Register arrays into SSA values.
//!
//! An array whose every index is constant once unrolled is held as values, one for each group of as many elements as
//! a vector access takes, so that the tile of a matrix product lives in vector registers. Any other array is memory
//! on the stack.

use std::collections::HashMap;

use litz_ir::kernel::{Kernel, Loop, LoopKind, Mem, Space, Stmt, position, visit};
use litz_sym::{Expr, Sym};

use super::block::{Slot, Value};
use super::index::Access;
use super::ty::{Ty, register_type};
use super::{EmitError, Emitter, Form};

/// Vector loops around register accesses are written out up to this many groups.
const GROUP_LIMIT: i64 = 64;

/// How each piece of memory is held.
pub(super) fn forms(kernel: &Kernel) -> HashMap<Mem, Form> {
    let mut forms: HashMap<Mem, Form> = kernel
        .mems
        .iter()
        .map(|(mem, data)| {
            let is_register = data.space == Space::Register;
            (mem, if is_register { Form::Slots { width: 1 } } else { Form::Memory })
        })
        .collect();
    let mut scan = Scan { unrolled: Vec::new(), vector: None, forms: &mut forms };
    scan.body(&kernel.body);
    forms
}

/// The loops around a statement.
struct Scan<'a> {
    unrolled: Vec<Sym>,
    /// Variable and lanes of the vector loop, and whether it may be written out.
    vector: Option<(Sym, u32, bool)>,
    forms: &'a mut HashMap<Mem, Form>,
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
                Stmt::Let { .. }
                | Stmt::Bind { .. }
                | Stmt::Store { .. }
                | Stmt::MulAdd { .. }
                | Stmt::Barrier(_)
                | Stmt::Transfer(_)
                | Stmt::Dot(_)
                | Stmt::MatrixProduct(_)
                | Stmt::Copy { .. }
                | Stmt::Prefetch { .. }
                | Stmt::ArgStore { .. } => {
                    stmt.accesses().for_each(|(mem, index)| self.access(mem, position(index)));
                }
            }
        }
    }

    fn inner(&mut self, inner: &Loop) {
        match inner.kind {
            LoopKind::Vector { lanes, .. } if lanes > 1 && self.vector.is_none() => {
                let is_short =
                    inner.extent.as_int().is_some_and(|extent| extent <= GROUP_LIMIT * i64::from(lanes));
                self.vector = Some((inner.var, lanes, is_short));
                self.body(&inner.body);
                self.vector = None;
            }
            LoopKind::Unroll => {
                self.unrolled.push(inner.var);
                self.body(&inner.body);
                self.unrolled.pop();
            }
            LoopKind::For
            | LoopKind::Vector { .. }
            | LoopKind::Pipeline { .. }
            | LoopKind::Level(_)
            | LoopKind::Mma => self.body(&inner.body),
        }
    }

    fn access(&mut self, mem: Mem, index: Expr) {
        let Some(Form::Slots { width }) = self.forms.get(&mem).copied() else { return };
        let form = match self.vector {
            Some((var, lanes, is_short)) if index.has_sym(var) => {
                let rest = index - Expr::sym(var);
                let step = i64::from(lanes);
                let is_aligned =
                    rest.constant() % step == 0 && rest.terms().all(|(factor, _)| factor % step == 0);
                let fits = is_short && is_aligned && self.is_constant(rest) && (width == 1 || width == lanes);
                if fits { Form::Slots { width: lanes } } else { Form::Memory }
            }
            Some(_) | None if self.is_constant(index) => Form::Slots { width },
            Some(_) | None => Form::Memory,
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

    /// Registers that every iteration of a vector loop writes before it reads them, at an index that is the same in
    /// every lane: each lane has its own.
    pub(super) fn private_registers(&self, inner: &Loop) -> Result<Vec<Mem>, EmitError> {
        let mut is_private: HashMap<Mem, bool> = HashMap::new();
        visit(&inner.body, &mut |stmt| {
            let is_write = matches!(stmt, Stmt::Store { combine: None, guard, .. } if guard.is_empty());
            for (mem, index) in stmt.accesses() {
                if self.kernel.mems[mem].space == Space::Register {
                    is_private.entry(mem).or_insert(is_write && !position(index).has_sym(inner.var));
                }
            }
        });
        let mut private: Vec<Mem> =
            is_private.into_iter().filter_map(|(mem, is_private)| is_private.then_some(mem)).collect();
        private.sort_unstable();
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
        let slot = Slot::Group { mem, group: element / i64::from(width) };
        if self.is_private(mem) {
            return Ok((slot, Ty { prim, lanes: self.lane_count() }, None));
        }
        let lane = (!is_vector && width > 1).then_some((element % i64::from(width)) as u32);
        Ok((slot, Ty { prim, lanes: width }, lane))
    }

    pub(super) fn read_register(&mut self, mem: Mem, width: u32, index: Expr) -> Result<Value, EmitError> {
        let (slot, ty, lane) = self.locate(mem, width, index)?;
        let poison = self.b.poison(ty);
        let value = self.b.slot(slot, &poison);
        Ok(match lane {
            Some(lane) => self.b.extract(&value, lane),
            None => value,
        })
    }

    pub(super) fn write_register(
        &mut self,
        mem: Mem,
        width: u32,
        index: Expr,
        value: &Value,
    ) -> Result<(), EmitError> {
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
