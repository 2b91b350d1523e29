//! Writes the steps of programs and functions, one line each.

use std::collections::HashSet;
use std::fmt::{self, Write};

use litz_ir::call::{CallArg, CallResult};
use litz_ir::dtype::Dtype;
use litz_ir::graph::{MemoryFormat, TensorType, contiguous_strides};
use litz_ir::loops::{Control, FunctionCall, span};
use litz_ir::program::{KernelAccesses, Output, Program, ProgramStep, SizeSource, Slot, View};
use litz_ir::scalar::Scalar;
use litz_sym::{Clause, Expr, Sym};

use crate::memory::{is_updated, own_results, written_inputs};
use crate::names::{Functions, Names};
use crate::value::{Condition, Literal, Quoted, Value, Values, list};

/// What results are that are no numbers.
#[derive(Clone, Copy)]
enum Results {
    /// Tensors, as calls of a program return them.
    Tensors,
    /// Memory, from the first element to the last, which a function's caller copies.
    Memory,
}

/// The body of a program or a function, being written.
pub(crate) struct Body<'a> {
    program: &'a Program,
    accesses: &'a KernelAccesses<'a>,
    functions: &'a Functions,
    names: Names,
}

impl<'a> Body<'a> {
    pub(crate) fn new(
        program: &'a Program,
        accesses: &'a KernelAccesses<'a>,
        functions: &'a Functions,
    ) -> Body<'a> {
        Body { program, accesses, functions, names: crate::scope(program, functions) }
    }

    /// What is done once: it gives the memory that calls use.
    pub(crate) fn write_load(&self, f: &mut impl Write) -> fmt::Result {
        writeln!(f, "\n\ndef load(m):")?;
        let kept = self.kept();
        for constant in &self.program.consts {
            let of = self.slot(constant.slot);
            // Calls leave new contents in memory of the module's own, not in that of whoever gave the constant.
            let method = if self.is_stored(constant.slot) { "state" } else { "constant" };
            write!(f, "    {of} = m.{method}({}, ", Quoted(&constant.name))?;
            self.write_type(f, constant.slot, &constant.ty)?;
        }
        self.program.load.iter().try_for_each(|step| self.write_step(f, step))?;
        let item = |&slot: &Slot| format!("{}: {}", Quoted(self.slot(slot)), self.slot(slot));
        writeln!(f, "    return {{{}}}", kept.iter().map(item).collect::<Vec<_>>().join(", "))
    }

    /// What each call does.
    pub(crate) fn write_main(&self, f: &mut impl Write) -> fmt::Result {
        let program = self.program;
        self.write_head(f, program.params.iter().map(|param| self.slot(param.slot)))?;
        for slot in self.kept() {
            writeln!(f, "    {} = m.kept({})", self.slot(slot), Quoted(self.slot(slot)))?;
        }
        for (sym, value) in program.fixed_sizes() {
            writeln!(f, "    {} = {value}", self.names.symbol(sym))?;
        }
        program.size_sources().iter().try_for_each(|source| self.write_source(f, source))?;
        for param in &program.params {
            let name = Quoted(&program.slots[param.slot].name);
            write!(f, "    {0} = m.input({name}, {0}, ", self.slot(param.slot))?;
            self.write_type(f, param.slot, &param.ty)?;
        }
        let late = program.late_sizes();
        // Steps check those on sizes that come later.
        let is_late = |clause: &Clause| {
            let sides = clause.alternatives().iter().flat_map(|rel| [rel.lhs, rel.rhs]);
            sides.into_iter().any(|side| late.iter().any(|&sym| side.has_sym(sym)))
        };
        for guard in program.facts.guards().iter().filter(|guard| !is_late(&guard.clause)) {
            self.write_check(f, &guard.clause, &guard.who)?;
        }
        let stored = written_inputs(program, &|slot| self.is_stored(slot));
        for &slot in stored.iter().filter(|&&slot| !is_updated(program, slot)) {
            // It was given up, which nobody but Litz's own callers know.
            writeln!(f, "    {} = m.own({0})", self.slot(slot))?;
        }
        program.steps.iter().try_for_each(|step| self.write_step(f, step))?;
        self.write_results(f, Results::Tensors)?;
        for &(target, source) in &program.updates {
            if target != source {
                writeln!(f, "    m.copy({}, {})", self.slot(source), self.slot(target))?;
            }
            if program.params.iter().any(|param| param.slot == target) {
                writeln!(f, "    m.give({})", self.slot(target))?;
            }
        }
        writeln!(f, "    return results")
    }

    /// A function: it is given memory, then sizes, and gives memory, that of its results and of the arguments that it updates.
    pub(crate) fn write_function(&self, f: &mut impl Write) -> fmt::Result {
        let program = self.program;
        let sizes = program.given_sizes();
        let params = program.params.iter().map(|param| self.slot(param.slot));
        self.write_head(f, params.chain(sizes.iter().map(|&sym| self.names.symbol(sym))))?;
        for slot in written_inputs(program, &|slot| self.is_stored(slot)) {
            writeln!(f, "    {} = m.own({0})", self.slot(slot))?;
        }
        program.steps.iter().try_for_each(|step| self.write_step(f, step))?;
        self.write_results(f, Results::Memory)?;
        let updated = program.params.iter().filter(|param| is_updated(program, param.slot));
        for &(target, source) in program.updates.iter().filter(|(target, source)| target != source) {
            writeln!(f, "    m.copy({}, {})", self.slot(source), self.slot(target))?;
        }
        let updated: Vec<&str> = updated.map(|param| self.slot(param.slot)).collect();
        match updated.is_empty() {
            true => writeln!(f, "    return results"),
            false => writeln!(f, "    return results + [{}]", updated.join(", ")),
        }
    }

    fn write_head<'n>(&self, f: &mut impl Write, params: impl Iterator<Item = &'n str>) -> fmt::Result {
        let params: Vec<&str> = std::iter::once("m").chain(params).collect();
        writeln!(f, "\n\ndef {}({}):", self.functions.name(self.program), params.join(", "))
    }

    /// Type, length, sizes and strides of what comes from outside.
    fn write_type(&self, f: &mut impl Write, slot: Slot, ty: &TensorType) -> fmt::Result {
        let (_, dtype, extent) = self.memory(slot);
        write!(f, "\"{dtype}\", {extent}, ")?;
        self.write_layout(f, &ty.sizes, &ty.strides)?;
        writeln!(f, ")")
    }

    /// Sizes, and strides where they are not those of a row-major tensor.
    fn write_layout(&self, f: &mut dyn Write, sizes: &[Expr], strides: &[Expr]) -> fmt::Result {
        write!(f, "{}", self.values(sizes))?;
        match contiguous_strides(sizes) == strides {
            true => Ok(()),
            false => write!(f, ", {}", self.values(strides)),
        }
    }

    /// What is there before the steps of a call and used by them: constants, and what load steps make.
    fn kept(&self) -> Vec<Slot> {
        let program = self.program;
        let loaded = program.load.iter().filter_map(|step| step.placed().map(|(slot, _)| slot));
        let there = program.consts.iter().map(|constant| constant.slot).chain(loaded);
        let mut used: HashSet<Slot> = program.updates.iter().flat_map(|&(to, from)| [to, from]).collect();
        used.extend(program.steps.iter().flat_map(|step| program.touches(step).uses).map(|one| one.slot));
        used.extend(program.steps.iter().filter_map(|step| step.placed()?.1));
        used.extend(program.read_at_end());
        let mut kept: Vec<Slot> = Vec::new();
        for slot in there {
            if used.contains(&slot) && !kept.contains(&slot) {
                kept.push(slot);
            }
        }
        kept
    }

    /// Whether a step of calls, or an update, writes to a slot.
    fn is_stored(&self, slot: Slot) -> bool {
        let mut steps = self.program.steps.iter();
        let writes = |step| self.program.effects(step, self.accesses).writes().any(|written| written == slot);
        is_updated(self.program, slot) || steps.any(writes)
    }

    fn write_source(&self, f: &mut impl Write, source: &SizeSource) -> fmt::Result {
        let SizeSource { sym, param, dim, coefficient, rest } = source;
        let of = self.slot(self.program.params[*param].slot);
        write!(f, "    {} = m.size({of}, {dim}", self.names.symbol(*sym))?;
        if !rest.is_zero() {
            write!(f, ", rest={}", self.value(*rest))?;
        }
        if !coefficient.is_one() {
            write!(f, ", coefficient={}", self.value(*coefficient))?;
        }
        self.write_range(f, *sym)?;
        writeln!(f, ")")
    }

    /// `, within=(2, 1024), multiple=8`: what the values of a symbol have to be.
    fn write_range(&self, f: &mut impl Write, sym: Sym) -> fmt::Result {
        let range = self.program.facts.range_of(sym);
        let bound = |value: i64| match value {
            i64::MIN | i64::MAX => "None".to_owned(),
            value => value.to_string(),
        };
        write!(f, ", within=({}, {})", bound(range.lo), bound(range.hi))?;
        match self.program.facts.divisor_of(sym) {
            1 => Ok(()),
            divisor => write!(f, ", multiple={divisor}"),
        }
    }

    fn write_check(&self, f: &mut impl Write, clause: &Clause, who: &str) -> fmt::Result {
        let text = format!("expected {clause} (asked for by {who})");
        writeln!(f, "    m.check({}, {})", Condition(&self.names, clause), Quoted(&text))
    }

    fn write_step(&self, f: &mut impl Write, step: &ProgramStep) -> fmt::Result {
        match step {
            ProgramStep::Check { clause, who } => self.write_check(f, clause, who),
            ProgramStep::Alloc { slot } => {
                let (name, dtype, extent) = self.memory(*slot);
                writeln!(f, "    {name} = m.empty(\"{dtype}\", {extent})")
            }
            ProgramStep::View { slot, base, offset } => {
                let (name, dtype, extent) = self.memory(*slot);
                let (base, offset) = (self.slot(*base), self.value(*offset));
                writeln!(f, "    {name} = m.part({base}, \"{dtype}\", {extent}, {offset})")
            }
            ProgramStep::Launch { kernel, args, sizes, .. } => {
                let uses = self.program.effects(step, self.accesses).uses;
                let side = |is_written| uses.iter().filter(move |one| one.access.is_written() == is_written);
                let names = |is_written| self.slots(side(is_written).map(|one| one.slot));
                debug_assert_eq!(uses.len(), args.len());
                let (reads, writes) = (names(false), names(true));
                writeln!(f, "    m.launch({}, {reads}, {writes}, {})", Quoted(kernel), self.values(sizes))
            }
            ProgramStep::Copy { from, to, queue: _ } => {
                writeln!(f, "    m.copy({}, {})", self.slot(*from), self.slot(*to))
            }
            // One queue does all in order.
            ProgramStep::Record { .. } | ProgramStep::Wait { .. } => Ok(()),
            ProgramStep::Extern { routine, reads, writes, ints, message } => {
                let (routine, ints) = (Quoted(routine), self.values(ints));
                let (reads, writes) = (self.slots(reads.iter().copied()), self.slots(writes.iter().copied()));
                write!(f, "    m.routine({routine}, {reads}, {writes}, {ints}")?;
                self.write_message(f, message.as_deref())?;
                writeln!(f, ")")
            }
            ProgramStep::Size { sym, slot, message } => {
                write!(f, "    {} = m.integer({}", self.names.symbol(*sym), self.slot(*slot))?;
                self.write_range(f, *sym)?;
                self.write_message(f, message.as_deref())?;
                writeln!(f, ")")
            }
            ProgramStep::Control { control, reads, writes } => self.write_control(f, control, reads, writes),
            ProgramStep::Call { op, args, results, sharing: _, message } => {
                write!(f, "    m.call({}, ", Quoted(op))?;
                list(f, args, |f, arg| self.write_arg(f, arg))?;
                f.write_str(", ")?;
                list(f, results, |f, result| match result {
                    CallResult::Nothing => f.write_str("None"),
                    CallResult::Whole(view) => self.write_view(f, view),
                    CallResult::Sizes(view, dtype) => {
                        write!(f, "m.sizes({}, \"{}\")", self.slot(view.slot), dtype.name())
                    }
                })?;
                self.write_message(f, message.as_deref())?;
                writeln!(f, ")")
            }
            ProgramStep::Free { slot } => writeln!(f, "    del {}", self.slot(*slot)),
        }
    }

    fn write_message(&self, f: &mut impl Write, message: Option<&str>) -> fmt::Result {
        message.map_or(Ok(()), |message| write!(f, ", message={}", Quoted(message)))
    }

    fn write_control(
        &self,
        f: &mut impl Write,
        control: &Control,
        reads: &[Slot],
        writes: &[Slot],
    ) -> fmt::Result {
        let method = match control {
            Control::Call(_) => "invoke",
            Control::Branch { .. } => "branch",
            Control::While { .. } => "loop",
        };
        write!(f, "    m.{method}(")?;
        let (before, behind) = control.own();
        for &slot in reads.iter().take(before).chain(writes.iter().take(behind)) {
            write!(f, "{}, ", self.slot(slot))?;
        }
        for (call, args, _) in control.operands(reads, writes) {
            let FunctionCall { function, args: _, sizes } = call;
            let function =
                self.program.function(function).expect("invariant: a program that verifies has it");
            let given = function.given_sizes();
            let value = |sym: &Sym| sizes.iter().find(|(name, _)| name == sym).map(|(_, value)| *value);
            let given: Vec<Expr> = given.iter().filter_map(value).collect();
            let (name, args) = (self.functions.name(function), self.slots(args.iter().copied()));
            write!(f, "({name}, {args}, {}), ", self.values(&given))?;
        }
        writeln!(f, "{})", self.slots(writes.iter().skip(behind).copied()))
    }

    /// An argument of the host's operator; what Python has an object of its own for is a pair, as hosts get it.
    fn write_arg(&self, f: &mut dyn Write, arg: &CallArg<View>) -> fmt::Result {
        match arg {
            CallArg::None => f.write_str("None"),
            CallArg::Tensor(view) | CallArg::Update(view) => self.write_view(f, view),
            CallArg::List(items) => {
                f.write_char('[')?;
                for (at, item) in items.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    self.write_arg(f, item)?;
                }
                f.write_char(']')
            }
            CallArg::Int(value) => write!(f, "{}", self.value(*value)),
            CallArg::Float(value) => write!(f, "{}", Literal(Scalar::Float(value.0))),
            CallArg::Bool(value) => write!(f, "{}", Literal(Scalar::Bool(*value))),
            CallArg::Complex(re, im) => {
                write!(f, "complex({}, {})", Literal(Scalar::Float(re.0)), Literal(Scalar::Float(im.0)))
            }
            CallArg::Str(text) => write!(f, "{}", Quoted(text)),
            CallArg::Dtype(dtype) => write!(f, "(\"dtype\", \"{}\")", dtype.name()),
            CallArg::Device(_) => f.write_str("(\"device\", \"cpu\")"),
            CallArg::Strided => f.write_str("(\"layout\", \"strided\")"),
            CallArg::MemoryFormat(format) => {
                let name = match format {
                    MemoryFormat::Contiguous => "contiguous",
                    MemoryFormat::ChannelsLast => "channels_last",
                    MemoryFormat::ChannelsLast3d => "channels_last_3d",
                    MemoryFormat::Preserve => "preserve",
                };
                write!(f, "(\"memory_format\", \"{name}\")")
            }
        }
    }

    fn write_view(&self, f: &mut dyn Write, View { slot, ty, offset }: &View) -> fmt::Result {
        self.write_strided(f, "strided", *slot, (&ty.sizes, &ty.strides), *offset)
    }

    fn write_strided(
        &self,
        f: &mut dyn Write,
        method: &str,
        slot: Slot,
        (sizes, strides): (&[Expr], &[Expr]),
        offset: Expr,
    ) -> fmt::Result {
        let is_whole = || span(sizes, strides) == self.program.slots[slot].extent;
        if method == "strided" && offset.is_zero() && contiguous_strides(sizes) == strides && is_whole() {
            return write!(f, "m.shaped({}, {})", self.slot(slot), self.values(sizes));
        }
        write!(f, "m.{method}({}, ", self.slot(slot))?;
        self.write_layout(f, sizes, strides)?;
        if !offset.is_zero() {
            write!(f, ", offset={}", self.value(offset))?;
        }
        f.write_char(')')
    }

    /// The line with the results.
    fn write_results(&self, f: &mut impl Write, form: Results) -> fmt::Result {
        let is_own = own_results(self.program);
        let results: Vec<(&Output, bool)> = self.program.outputs.iter().zip(is_own).collect();
        f.write_str("    results = ")?;
        list(f, &results, |f, (output, is_own)| match output {
            Output::View { slot, ty, offset } => {
                let method = if *is_own { "strided" } else { "clone" };
                let memory = ([span(&ty.sizes, &ty.strides)], [Expr::one()]);
                let layout: (&[Expr], &[Expr]) = match form {
                    Results::Tensors => (&ty.sizes, &ty.strides),
                    Results::Memory => (&memory.0, &memory.1),
                };
                self.write_strided(f, method, *slot, layout, *offset)
            }
            Output::Number(slot) => write!(f, "m.number({})", self.slot(*slot)),
            Output::Int(value) => write!(f, "{}", self.value(*value)),
            Output::Literal(value) => write!(f, "{}", Literal(*value)),
            Output::Text(text) => write!(f, "{}", Quoted(text)),
            Output::Nothing => f.write_str("None"),
        })?;
        f.write_str("\n")
    }

    fn slot(&self, slot: Slot) -> &str {
        self.names.slot(slot)
    }

    fn slots(&self, slots: impl Iterator<Item = Slot>) -> String {
        format!("[{}]", slots.map(|slot| self.slot(slot)).collect::<Vec<_>>().join(", "))
    }

    /// Name, type and length of a slot.
    fn memory(&self, slot: Slot) -> (&str, &'static str, Value<'_>) {
        let data = &self.program.slots[slot];
        let dtype: Dtype = data.dtype;
        (self.slot(slot), dtype.name(), self.value(data.extent))
    }

    fn value(&self, expr: Expr) -> Value<'_> {
        Value(&self.names, expr)
    }

    fn values<'e>(&'e self, exprs: &'e [Expr]) -> Values<'e> {
        Values(&self.names, exprs)
    }
}
