//! Prints and parses programs.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use litz_sym::Expr;

use crate::diag::Diags;
use crate::graph::{OpName, TensorType};
use crate::loops::span;
use crate::program::{Const, FromNode, Output, Param, Program, ProgramStep, Queue, Slot, SlotData, View};
use crate::text::call;
use crate::text::control::{control, word, write_control};
use crate::text::cursor::{Cursor, Names, Result, parse_whole};
use crate::text::graph::{origin, write_origin};
use crate::text::lexer::TokenKind;
use crate::text::loops::{from, write_from};
use crate::text::print::{
    Indent, Name, OfStream, On, Optional, Quoted, Sigil, Under, commas, write_facts, write_message,
    write_nested,
};

const LINE: Indent = Indent(1);

impl Display for Program {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        writeln!(f, "program {} on {} {{", Sigil('@', &self.name), self.device)?;
        write_facts(f, LINE, &self.facts)?;
        self.functions.iter().try_for_each(|function| write_nested(f, function))?;
        for param in &self.params {
            let donated = if param.is_donated { " donated" } else { "" };
            writeln!(f, "{LINE}param {}: {}{donated}", self.slot(param.slot), self.under(&param.ty))?;
        }
        for item in &self.consts {
            let ty = self.under(&item.ty);
            writeln!(f, "{LINE}const {}: {ty} = {}", self.slot(item.slot), Quoted(&item.name))?;
        }
        for FromNode { name, op, origin } in &self.nodes {
            write!(f, "{LINE}node {} = {}", Sigil('%', name), Name(op.as_str()))?;
            write_origin(f, origin.as_deref(), Some(name))?;
            f.write_str("\n")?;
        }
        if !self.load.is_empty() {
            writeln!(f, "{LINE}load {{")?;
            self.load.iter().try_for_each(|step| self.write_step(f, step, Indent(2)))?;
            writeln!(f, "{LINE}}}")?;
        }
        self.steps.iter().try_for_each(|step| self.write_step(f, step, LINE))?;
        for &(target, source) in &self.updates {
            writeln!(f, "{LINE}update {} = {}", self.slot(target), self.slot(source))?;
        }
        write!(f, "{LINE}return{}", if self.outputs.is_empty() { "" } else { " " })?;
        commas(f, &self.outputs, |f, output| self.write_output(f, output))?;
        f.write_str("\n}\n")
    }
}

impl Program {
    fn slot(&self, slot: Slot) -> Name<'_> {
        Name(&self.slots[slot].name)
    }

    fn under<'a>(&self, ty: &'a TensorType) -> Under<'a, TensorType> {
        Under(self.device, ty)
    }

    /// `h: f32[3072*s0]`: a flat array.
    fn typed(&self, slot: Slot) -> impl Display {
        let SlotData { name, dtype, extent, device } = &self.slots[slot];
        let on = On { device: *device, head: self.device };
        fmt::from_fn(move |f| write!(f, "{}: {dtype}[{extent}]{on}", Name(name)))
    }

    /// ` on ref:0 stream 1`.
    fn on_queue(&self, Queue { device, stream }: Queue) -> impl Display {
        let on = On { device, head: self.device };
        fmt::from_fn(move |f| write!(f, "{on}{}", OfStream(stream)))
    }

    fn write_slots(&self, f: &mut Formatter, slots: &[Slot]) -> fmt::Result {
        commas(f, slots, |f, &slot| self.slot(slot).fmt(f))
    }

    fn write_step(&self, f: &mut Formatter, step: &ProgramStep, indent: Indent) -> fmt::Result {
        match step {
            ProgramStep::Check { clause, who } => writeln!(f, "{indent}check {clause} for {}", Quoted(who)),
            ProgramStep::Alloc { slot } => writeln!(f, "{indent}alloc {}", self.typed(*slot)),
            ProgramStep::View { slot, base, offset } => {
                writeln!(f, "{indent}view {} = {} + {offset}", self.typed(*slot), self.slot(*base))
            }
            ProgramStep::Launch { kernel, args, sizes, stream, from } => {
                write!(f, "{indent}launch {}(", Sigil('@', kernel))?;
                self.write_slots(f, args)?;
                write!(f, "){}{}", Optional("sizes", sizes), OfStream(*stream))?;
                write_from(f, from)?;
                f.write_str("\n")
            }
            ProgramStep::Copy { from, to, queue } => {
                writeln!(
                    f,
                    "{indent}copy {} -> {}{}",
                    self.slot(*from),
                    self.slot(*to),
                    self.on_queue(*queue)
                )
            }
            ProgramStep::Record { event, queue } => {
                writeln!(f, "{indent}record event {event}{}", self.on_queue(*queue))
            }
            ProgramStep::Wait { event, queue } => {
                writeln!(f, "{indent}wait event {event}{}", self.on_queue(*queue))
            }
            ProgramStep::Extern { routine, reads, writes, ints, message } => {
                write!(f, "{indent}extern {}(", Name(routine))?;
                self.write_slots(f, reads)?;
                f.write_str(") -> (")?;
                self.write_slots(f, writes)?;
                write!(f, "){}", Optional("ints", ints))?;
                write_message(f, message.as_deref())?;
                f.write_str("\n")
            }
            ProgramStep::Control { control, reads, writes } => {
                write!(f, "{indent}{}", word(control))?;
                write_control(f, control, (reads, writes), &|slot: &Slot| self.slot(*slot))?;
                f.write_str("\n")
            }
            ProgramStep::Size { sym, slot, message } => {
                write!(f, "{indent}size {sym} = {}", self.slot(*slot))?;
                write_message(f, message.as_deref())?;
                f.write_str("\n")
            }
            ProgramStep::Call { op, args, results, sharing, message } => {
                write!(f, "{indent}call {}(", Name(op))?;
                let tensor = |f: &mut Formatter, view: &View| self.write_view(f, view);
                commas(f, args, |f, arg| call::write_arg(f, arg, &tensor))?;
                f.write_str(") -> ")?;
                let shared = |f: &mut Formatter, slot: &Slot| self.slot(*slot).fmt(f);
                call::write_results(f, results, sharing, &tensor, &shared)?;
                write_message(f, message.as_deref())?;
                f.write_str("\n")
            }
            ProgramStep::Free { slot } => writeln!(f, "{indent}free {}", self.slot(*slot)),
        }
    }

    /// `x as f32[3, 4]{1, 3} + 12`.
    fn write_view(&self, f: &mut Formatter, View { slot, ty, offset }: &View) -> fmt::Result {
        write!(f, "{} as {}", self.slot(*slot), self.under(ty))?;
        if offset.is_zero() { Ok(()) } else { write!(f, " + {offset}") }
    }

    fn write_output(&self, f: &mut Formatter, output: &Output) -> fmt::Result {
        match output {
            Output::View { slot, ty, offset } => {
                write!(f, "{}: {}", self.slot(*slot), self.under(ty))?;
                if offset.is_zero() { Ok(()) } else { write!(f, " + {offset}") }
            }
            Output::Number(slot) => write!(f, "number({})", self.slot(*slot)),
            Output::Int(value) => write!(f, "int({value})"),
            Output::Literal(value) => value.fmt(f),
            Output::Text(text) => write!(f, "text({})", Quoted(text)),
            Output::Nothing => f.write_str("none"),
        }
    }
}

/// Reads one program.
///
/// # Errors
/// Where the text is no program, or names a slot that no earlier line defines.
pub fn parse(text: &str) -> std::result::Result<Program, Diags> {
    parse_whole(text, program)
}

/// A program being read.
struct Reader {
    program: Program,
    slots: Names<Slot>,
}

fn program(cx: &mut Cursor) -> Result<Program> {
    let (name, device) = cx.head("program")?;
    let program = Program::new(name, device);
    let mut reader = Reader { program, slots: Names::new("a slot", "undefined-slot") };
    while !cx.eat("return") {
        reader.line(cx)?;
    }
    reader.program.outputs = cx.last_line(|cx| reader.output(cx))?;
    Ok(reader.program)
}

impl Reader {
    fn line(&mut self, cx: &mut Cursor) -> Result<()> {
        if cx.fact(&mut self.program.facts)? {
            return Ok(());
        }
        if cx.is("program") {
            let function = cx.nested(program)?;
            self.program.functions.push(function);
        } else if cx.eat("param") {
            let (slot, ty) = self.tensor(cx)?;
            self.program.params.push(Param { slot, ty, is_donated: cx.eat("donated") });
        } else if cx.eat("const") {
            let (slot, ty) = self.tensor(cx)?;
            cx.expect("=")?;
            self.program.consts.push(Const { slot, name: cx.string()?, ty });
        } else if cx.eat("node") {
            let name = cx.value_name()?;
            cx.expect("=")?;
            let op = OpName::new(cx.name("an operator")?);
            self.program.nodes.push(FromNode { name, op, origin: origin(cx)?.map(Arc::new) });
        } else if cx.eat("load") {
            cx.expect("{")?;
            while !cx.eat("}") {
                let step = self.step(cx)?;
                self.program.load.push(step);
            }
        } else if cx.eat("update") {
            let target = self.slots.name(cx)?;
            cx.expect("=")?;
            let source = self.slots.name(cx)?;
            self.program.updates.push((target, source));
        } else {
            let step = self.step(cx)?;
            self.program.steps.push(step);
        }
        Ok(())
    }

    /// `x: f32[s0, 768]`: a slot that spans the tensor.
    fn tensor(&mut self, cx: &mut Cursor) -> Result<(Slot, TensorType)> {
        let name = cx.name("a slot name")?;
        cx.expect(":")?;
        let ty = cx.tensor_type(self.program.device)?;
        let (dtype, extent, device) = (ty.dtype, span(&ty.sizes, &ty.strides), ty.device);
        Ok((self.define(SlotData { name, dtype, extent, device }), ty))
    }

    /// `p0: u8[12288*s0]`; a slot that is given memory again keeps its identity.
    fn flat(&mut self, cx: &mut Cursor) -> Result<Slot> {
        let name = cx.name("a slot name")?;
        cx.expect(":")?;
        let (dtype, extent) = cx.flat_type()?;
        let data = SlotData { name, dtype, extent, device: cx.on(self.program.device)? };
        let same = |&slot: &Slot| self.program.slots[slot] == data;
        match self.slots.get(&data.name).filter(same) {
            Some(slot) => Ok(slot),
            None => Ok(self.define(data)),
        }
    }

    fn define(&mut self, data: SlotData) -> Slot {
        let name = data.name.clone();
        let slot = self.program.slots.push(data);
        self.slots.define(name, slot);
        slot
    }

    fn slots(&self, cx: &mut Cursor) -> Result<Vec<Slot>> {
        cx.list("(", ")", |cx| self.slots.name(cx))
    }

    fn step(&mut self, cx: &mut Cursor) -> Result<ProgramStep> {
        if cx.eat("check") {
            let clause = cx.clause()?;
            cx.expect("for")?;
            return Ok(ProgramStep::Check { clause, who: cx.string()? });
        }
        if cx.eat("alloc") {
            return Ok(ProgramStep::Alloc { slot: self.flat(cx)? });
        }
        if cx.eat("view") {
            let slot = self.flat(cx)?;
            cx.expect("=")?;
            let base = self.slots.name(cx)?;
            cx.expect("+")?;
            return Ok(ProgramStep::View { slot, base, offset: cx.expr()? });
        }
        if cx.eat("launch") {
            let kernel = cx.item_name()?;
            let args = self.slots(cx)?;
            let sizes = cx.optional_exprs("sizes")?;
            return Ok(ProgramStep::Launch { kernel, args, sizes, stream: cx.of_stream()?, from: from(cx)? });
        }
        if cx.eat("copy") {
            let from = self.slots.name(cx)?;
            cx.expect("->")?;
            return Ok(ProgramStep::Copy { from, to: self.slots.name(cx)?, queue: self.queue(cx)? });
        }
        if cx.eat("record") {
            cx.expect("event")?;
            return Ok(ProgramStep::Record { event: cx.integer()?, queue: self.queue(cx)? });
        }
        if cx.eat("wait") {
            cx.expect("event")?;
            return Ok(ProgramStep::Wait { event: cx.integer()?, queue: self.queue(cx)? });
        }
        if cx.eat("extern") {
            let routine = cx.name("a routine")?;
            let reads = self.slots(cx)?;
            cx.expect("->")?;
            let writes = self.slots(cx)?;
            let ints = cx.optional_exprs("ints")?;
            return Ok(ProgramStep::Extern { routine, reads, writes, ints, message: cx.optional_message()? });
        }
        if cx.is("branch") || cx.is("while") || cx.is("call") && cx.second_kind() == TokenKind::Item {
            let word = cx.word("call, branch or while")?.to_owned();
            let (control, reads, writes) = control(cx, &word, &|cx| self.slots.name(cx))?;
            return Ok(ProgramStep::Control { control, reads, writes });
        }
        if cx.eat("size") {
            let sym = cx.sym()?;
            cx.expect("=")?;
            let slot = self.slots.name(cx)?;
            return Ok(ProgramStep::Size { sym, slot, message: cx.optional_message()? });
        }
        if cx.eat("call") {
            let op = cx.name("an operator")?;
            let args = cx.list("(", ")", |cx| call::arg(cx, &mut |cx| self.view(cx)))?;
            cx.expect("->")?;
            let (mut result, mut shared) =
                (|cx: &mut Cursor| self.view(cx), |cx: &mut Cursor| self.slots.name(cx));
            let (results, sharing) = call::results(cx, &mut result, &mut shared)?;
            return Ok(ProgramStep::Call { op, args, results, sharing, message: cx.optional_message()? });
        }
        if cx.eat("free") {
            return Ok(ProgramStep::Free { slot: self.slots.name(cx)? });
        }
        Err(cx.expected("a step"))
    }

    /// `on ref:0 stream 1`; the device is that of the program and the stream 0 where none is named.
    fn queue(&self, cx: &mut Cursor) -> Result<Queue> {
        Ok(Queue { device: cx.on(self.program.device)?, stream: cx.of_stream()? })
    }

    fn view(&self, cx: &mut Cursor) -> Result<View> {
        let slot = self.slots.name(cx)?;
        cx.expect("as")?;
        let ty = cx.tensor_type(self.program.device)?;
        let offset = if cx.eat("+") { cx.expr()? } else { Expr::zero() };
        Ok(View { slot, ty, offset })
    }

    fn output(&self, cx: &mut Cursor) -> Result<Output> {
        if cx.eat("none") {
            return Ok(Output::Nothing);
        }
        if cx.eat("number") {
            cx.expect("(")?;
            let slot = self.slots.name(cx)?;
            cx.expect(")")?;
            return Ok(Output::Number(slot));
        }
        if cx.eat("int") {
            cx.expect("(")?;
            let value = cx.expr()?;
            cx.expect(")")?;
            return Ok(Output::Int(value));
        }
        if cx.is_literal() {
            return cx.scalar().map(Output::Literal);
        }
        if cx.eat("text") {
            cx.expect("(")?;
            let text = cx.string()?;
            cx.expect(")")?;
            return Ok(Output::Text(text));
        }
        let slot = self.slots.name(cx)?;
        cx.expect(":")?;
        let ty = cx.tensor_type(self.program.device)?;
        let offset = if cx.eat("+") { cx.expr()? } else { Expr::zero() };
        Ok(Output::View { slot, ty, offset })
    }
}
