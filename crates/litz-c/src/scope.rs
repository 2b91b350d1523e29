//! Holds what one function of C knows while it is written: what slots and sizes are called, and where slots lie.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use litz_ir::Dtype;
use litz_ir::graph::{Device, TensorType};
use litz_ir::ids::Id;
use litz_ir::program::{KernelAccesses, Output, Program, ProgramStep, Slot};
use litz_sym::{Expr, Sym};

use crate::Unsupported;
use crate::expr::Sizes;
use crate::names::Names;

/// Where the memory of a slot comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The input of that number.
    Param(usize),
    /// The constant of that number.
    Const(usize),
    /// A load step, which keeps it: the place among those that are kept.
    Kept(usize),
    /// A step.
    Alloc,
    /// Another slot, from an offset in bytes on.
    View { base: Slot, offset: Expr },
    /// No step gives it any.
    None,
}

/// Dimensions of a tensor, at most: as `LITZ_MAX_RANK` of the support code says.
const MAX_RANK: usize = 32;

/// One function of C.
pub(crate) struct Scope<'a> {
    pub(crate) program: &'a Program,
    pub(crate) sizes: Sizes<'a>,
    pub(crate) accesses: &'a KernelAccesses<'a>,
    /// Whether steps that store to constants change a state, which a failure would lose.
    pub(crate) has_state: bool,
    /// What the function does, behind what it begins with.
    pub(crate) text: String,
    names: Names,
    slots: HashMap<Slot, String>,
    origins: Vec<Origin>,
    declared: HashSet<Slot>,
    /// Symbols that have values.
    known: HashSet<Sym>,
}

impl<'a> Scope<'a> {
    /// A scope of the program's steps, or of those that run once.
    pub(crate) fn new(
        program: &'a Program,
        accesses: &'a KernelAccesses<'a>,
    ) -> Result<Scope<'a>, Unsupported> {
        let mut scope = Scope {
            program,
            sizes: Sizes::new(&program.facts, "&call->bad"),
            accesses,
            has_state: true,
            text: String::new(),
            names: Names::new(),
            slots: HashMap::new(),
            origins: origins(program),
            declared: HashSet::new(),
            known: HashSet::new(),
        };
        if let Some(slot) = program.slots.values().find(|slot| slot.device != Device::Cpu) {
            return Err(Unsupported(format!(
                "`{}` is on {}: C is for the CPU alone",
                slot.name, slot.device
            )));
        }
        let tensors = program.params.iter().map(|param| &param.ty);
        let outputs = program.outputs.iter().filter_map(|output| match output {
            Output::View { ty, .. } => Some(ty),
            Output::Number(_) | Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => {
                None
            }
        });
        if let Some(ty) = tensors.chain(outputs).find(|ty| ty.rank() > MAX_RANK) {
            return Err(Unsupported(format!(
                "a tensor of {} dimensions: C has at most {MAX_RANK}",
                ty.rank()
            )));
        }
        for sym in program.facts.symbols() {
            let name = scope.names.take(sym.name());
            scope.sizes.name(sym, name);
        }
        for (id, slot) in program.slots.iter() {
            let name = scope.names.take(&slot.name);
            scope.slots.insert(id, name);
        }
        Ok(scope)
    }

    /// A name that nothing else has in the function.
    pub(crate) fn fresh(&mut self, text: &str) -> String {
        self.names.take(text)
    }

    /// Writes a statement, on a line of its own.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        writeln!(self.text, "  {}", text.as_ref()).expect("invariant: a string takes all that is written");
    }

    /// Writes a step that may fail.
    pub(crate) fn step(&mut self, text: impl AsRef<str>) {
        self.line(format!("LITZ_TRY({});", text.as_ref()));
    }

    /// What a slot is called.
    pub(crate) fn slot(&self, slot: Slot) -> &str {
        &self.slots[&slot]
    }

    /// Memory of slots with commas between them, as an array; `NULL` of none.
    pub(crate) fn memories(&self, slots: &[Slot]) -> String {
        let names: Vec<&str> = slots.iter().map(|&slot| self.slot(slot)).collect();
        if names.is_empty() {
            "NULL".to_owned()
        } else {
            format!("(const litz_memory[]){{{}}}", names.join(", "))
        }
    }

    /// Elements and type of a slot, as arguments.
    pub(crate) fn extent(&self, slot: Slot) -> String {
        let data = &self.program.slots[slot];
        format!("{}, {}", self.sizes.write(data.extent), dtype(data.dtype))
    }

    /// Type and layout of a tensor, as arguments.
    pub(crate) fn layout(&self, ty: &TensorType) -> String {
        let (sizes, strides) = (self.sizes.array(&ty.sizes), self.sizes.array(&ty.strides));
        format!("{}, {}, {sizes}, {strides}", dtype(ty.dtype), ty.rank())
    }

    /// Declares the memory of a slot, unless it is there.
    pub(crate) fn declare(&mut self, slot: Slot) {
        if self.declared.insert(slot) {
            let name = self.slot(slot).to_owned();
            self.line(format!("litz_memory {name};"));
        }
    }

    /// Gives a slot the memory that an expression is.
    pub(crate) fn define(&mut self, slot: Slot, memory: &str) {
        let name = self.slot(slot).to_owned();
        let is_new = self.declared.insert(slot);
        self.line(format!("{}{name} = {memory};", if is_new { "litz_memory " } else { "" }));
    }

    /// Where a slot lies.
    pub(crate) fn origin(&self, slot: Slot) -> Origin {
        self.origins[slot.index()]
    }

    /// The slot whose memory a slot is part of, and whether it begins where that does.
    pub(crate) fn root(&self, mut slot: Slot) -> (Slot, bool) {
        let mut is_at_start = true;
        while let Origin::View { base, offset } = self.origin(slot) {
            is_at_start &= offset.is_zero();
            slot = base;
        }
        (slot, is_at_start)
    }

    /// Notes that a symbol has a value.
    pub(crate) fn learn(&mut self, sym: Sym) {
        self.known.insert(sym);
    }

    /// Whether a symbol has a value.
    pub(crate) fn knows(&self, sym: Sym) -> bool {
        self.known.contains(&sym)
    }

    /// Whether all symbols of expressions have values.
    pub(crate) fn knows_all<'e>(&self, exprs: impl IntoIterator<Item = &'e Expr>) -> bool {
        exprs.into_iter().all(|expr| expr.syms().into_iter().all(|sym| self.knows(sym)))
    }

    /// What is called a symbol.
    pub(crate) fn size(&self, sym: Sym) -> String {
        self.sizes.name_of(sym).map(str::to_owned).expect("invariant: every symbol of the program has a name")
    }
}

/// The slots that a step mentions, those that it is placed in among them.
pub(crate) fn mentioned(program: &Program, step: &ProgramStep) -> Vec<Slot> {
    let effects = program.touches(step);
    let around = if let ProgramStep::View { base, .. } = step { Some(*base) } else { None };
    let used = effects.uses.iter().map(|used| used.slot);
    used.chain(effects.memory).chain(effects.frees).chain(around).collect()
}

/// Load steps keep what they do not free.
pub(crate) fn is_kept(program: &Program, slot: Slot) -> bool {
    !program.load.iter().any(|step| matches!(step, ProgramStep::Free { slot: freed } if *freed == slot))
}

fn origins(program: &Program) -> Vec<Origin> {
    let mut origins = vec![Origin::None; program.slots.len()];
    for (at, param) in program.params.iter().enumerate() {
        origins[param.slot.index()] = Origin::Param(at);
    }
    for (at, constant) in program.consts.iter().enumerate() {
        origins[constant.slot.index()] = Origin::Const(at);
    }
    let mut kept = 0;
    for (at, step) in program.load.iter().chain(&program.steps).enumerate() {
        match step {
            ProgramStep::Alloc { slot } if at < program.load.len() && is_kept(program, *slot) => {
                origins[slot.index()] = Origin::Kept(kept);
                kept += 1;
            }
            ProgramStep::Alloc { slot } => origins[slot.index()] = Origin::Alloc,
            ProgramStep::View { slot, base, offset } => {
                origins[slot.index()] = Origin::View { base: *base, offset: *offset };
            }
            ProgramStep::Check { .. }
            | ProgramStep::Launch { .. }
            | ProgramStep::Copy { .. }
            | ProgramStep::Record { .. }
            | ProgramStep::Wait { .. }
            | ProgramStep::Extern { .. }
            | ProgramStep::Size { .. }
            | ProgramStep::Control { .. }
            | ProgramStep::Call { .. }
            | ProgramStep::Free { .. } => {}
        }
    }
    origins
}

/// The constant of C for an element type.
pub(crate) fn dtype(dtype: Dtype) -> String {
    format!("LITZ_{}", dtype.name().to_ascii_uppercase())
}
