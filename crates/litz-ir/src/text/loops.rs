//! Prints and parses loops programs.

use std::fmt::{self, Display, Formatter};

use litz_sym::Expr;

use crate::diag::Diags;
use crate::dtype::Dtype;
use crate::graph::Device;
use crate::ids::Id;
use crate::loops::{
    Axis, BindOf, Buf, BufData, BufKind, Callee, Control, ControlCall, Extern, HostCall, Inst, InstOp, Loops,
    Nest, Output, Recurrence, Routine, Stmt, Val, View,
};
use crate::scalar::{ReduceOp, ScalarOp};
use crate::target::Rounds;
use crate::text::call;
use crate::text::control::{control, word, write_control};
use crate::text::cursor::{Cursor, Names, Result, parse_whole};
use crate::text::lexer::TokenKind;
use crate::text::print::{
    Commas, Guards, Indent, Name, OfStream, On, Optional, Quoted, Shape, Sigil, commas, write_facts,
    write_message, write_nested,
};

const LINE: Indent = Indent(1);

impl Display for Loops {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        writeln!(f, "loops {} on {} {{", Sigil('@', &self.name), self.device)?;
        write_facts(f, LINE, &self.facts)?;
        self.functions.iter().try_for_each(|function| write_nested(f, function))?;
        for (buf, data) in self.bufs.iter() {
            write_buf(f, data, self.donated.contains(&buf), self.device)?;
        }
        for stmt in &self.stmts {
            match stmt {
                Stmt::Nest(nest) => write_nest(f, self, nest, LINE)?,
                Stmt::Extern(call) => writeln!(f, "{LINE}{}", InLoops(self, call))?,
                Stmt::Recurrence(region) => writeln!(f, "{LINE}{}", InLoops(self, region))?,
            }
        }
        for (target, source) in &self.updates {
            writeln!(f, "{LINE}update {} = {}", InLoops(self, target), InLoops(self, source))?;
        }
        write!(f, "{LINE}return{}", if self.outputs.is_empty() { "" } else { " " })?;
        commas(f, &self.outputs, |f, output| InLoops(self, output).fmt(f))?;
        writeln!(f, "\n}}")
    }
}

/// In a program whose first line names the device `head`.
fn write_buf(f: &mut Formatter, buf: &BufData, is_donated: bool, head: Device) -> fmt::Result {
    let BufData { name, dtype, sizes, strides, device, stream, kind } = buf;
    let (on, of) = (On { device: *device, head }, OfStream(*stream));
    write!(f, "{LINE}buf {}: {dtype}{}{on}{of}", Name(name), Shape(sizes, strides))?;
    match kind {
        BufKind::Input if is_donated => f.write_str(" = input donated\n"),
        BufKind::Input => f.write_str(" = input\n"),
        BufKind::Const(name) => writeln!(f, " = const {}", Quoted(name)),
        BufKind::Temp => f.write_str("\n"),
    }
}

/// Something printed with the buffer names of its program.
pub(crate) struct InLoops<'a, T>(pub &'a Loops, pub &'a T);

impl Display for InLoops<'_, Buf> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        Name(&self.0.bufs[*self.1].name).fmt(f)
    }
}

impl Display for InLoops<'_, Output> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self.1 {
            Output::View { buf, sizes, strides, offset } => {
                let data = &self.0.bufs[*buf];
                write!(f, "{}", Name(&data.name))?;
                if (sizes, strides) == (&data.sizes, &data.strides) && offset.is_zero() {
                    return Ok(());
                }
                write!(f, " as {}", Shape(sizes, strides))?;
                if offset.is_zero() { Ok(()) } else { write!(f, " + {offset}") }
            }
            Output::Number(buf) => write!(f, "number({})", Name(&self.0.bufs[*buf].name)),
            Output::Int(value) => write!(f, "int({value})"),
            Output::Literal(value) => value.fmt(f),
            Output::Text(text) => write!(f, "text({})", Quoted(text)),
            Output::Nothing => f.write_str("none"),
        }
    }
}

/// ` from %h, %g` where anything is known.
pub(super) fn write_from(f: &mut Formatter, from: &[String]) -> fmt::Result {
    if from.is_empty() {
        return Ok(());
    }
    f.write_str(" from ")?;
    commas(f, from, |f, name| Sigil('%', name).fmt(f))
}

impl Display for InLoops<'_, Extern> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let InLoops(loops, call) = *self;
        let word = match &call.callee {
            Callee::Routine(_) | Callee::Host(_) => "extern",
            Callee::Size { .. } => "size",
            Callee::Copy { .. } => "copy",
            Callee::Control(call) => word(&call.control),
        };
        write!(f, "{word} {}", Name(&call.name))?;
        write_from(f, &call.from)?;
        match &call.callee {
            Callee::Routine(routine) => {
                write!(f, " = {}(", Name(&routine.name))?;
                commas(f, &routine.reads, |f, buf| InLoops(loops, buf).fmt(f))?;
                f.write_str(") -> (")?;
                commas(f, &routine.writes, |f, buf| InLoops(loops, buf).fmt(f))?;
                write!(f, "){}", Optional("ints", &routine.ints))?;
            }
            Callee::Host(call) => InLoops(loops, call).fmt(f)?,
            Callee::Size { sym: _, number } => write!(f, " = {}", InLoops(loops, number))?,
            Callee::Copy { from, to } => write!(f, " = {} -> {}", InLoops(loops, from), InLoops(loops, to))?,
            Callee::Control(ControlCall { control, reads, writes }) => {
                f.write_str(if matches!(control, Control::Call(_)) { " =" } else { "" })?;
                write_control(f, control, (reads, writes), &|buf: &Buf| Name(&loops.bufs[*buf].name))?;
            }
        }
        write_message(f, call.message.as_deref())
    }
}

impl Display for InLoops<'_, HostCall> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let InLoops(loops, HostCall { op, args, results, sharing, effect }) = *self;
        write!(f, " = host {}(", Name(op))?;
        let tensor = |f: &mut Formatter, view: &View| {
            write!(f, "{} as {}", InLoops(loops, &view.buf), Shape(&view.sizes, &view.strides))?;
            if view.offset.is_zero() { Ok(()) } else { write!(f, " + {}", view.offset) }
        };
        commas(f, args, |f, arg| call::write_arg(f, arg, &tensor))?;
        f.write_str(") -> ")?;
        let buffer = |f: &mut Formatter, buf: &Buf| InLoops(loops, buf).fmt(f);
        call::write_results(f, results, sharing, &buffer, &buffer)?;
        effect.as_ref().map_or(Ok(()), |effect| write!(f, " effect {}", Name(effect)))
    }
}

impl Display for InLoops<'_, Recurrence> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let InLoops(loops, region) = *self;
        write!(f, "region {}", Name(&region.name))?;
        write_from(f, &region.from)?;
        write!(f, " over {}", region.over)?;
        if !region.carry.is_empty() {
            f.write_str(" carry ")?;
            commas(f, &region.carry, |f, buf| InLoops(loops, buf).fmt(f))?;
        }
        f.write_str(" {\n")?;
        for nest in &region.nests {
            write_nest(f, loops, nest, Indent(LINE.0 + 1))?;
        }
        write!(f, "{LINE}}}")
    }
}

fn write_nest(f: &mut Formatter, loops: &Loops, nest: &Nest, line: Indent) -> fmt::Result {
    write!(f, "{line}nest {}", Name(&nest.name))?;
    write_from(f, &nest.from)?;
    write!(f, " {}", Axes(&nest.axes, &nest.reduced))?;
    if let Some(idle) = nest.idle {
        write!(f, " idle {idle}")?;
    }
    match nest.rounds {
        Rounds::Never => {}
        Rounds::Parts(terms) => write!(f, " rounding parts of {terms}")?,
        Rounds::Always => f.write_str(" rounding")?,
    }
    f.write_str(" {\n")?;
    for (at, inst) in nest.body.iter().enumerate() {
        write!(f, "{}", Indent(line.0 + 1))?;
        write_inst(f, loops, at, inst)?;
        f.write_str("\n")?;
    }
    writeln!(f, "{line}}}")
}

/// `[i in s0, j in 3072 | k in 768]`.
struct Axes<'a>(&'a [Axis], &'a [Axis]);

impl Display for Axes<'_> {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Axes(outer, reduced) = *self;
        write!(f, "[{}", Commas(outer))?;
        if !reduced.is_empty() {
            write!(f, "{}| {}", if outer.is_empty() { "" } else { " " }, Commas(reduced))?;
        }
        f.write_str("]")
    }
}

fn write_inst(f: &mut Formatter, loops: &Loops, at: usize, inst: &Inst) -> fmt::Result {
    let buf_name = |buf: &Buf| Name(&loops.bufs[*buf].name);
    if inst.op.has_result() {
        write!(f, "%{at}: {} = ", inst.ty)?;
    }
    match &inst.op {
        InstOp::Load { buf, index, guard, other } => {
            write!(f, "load {}[{}]{}", buf_name(buf), Commas(index), Guards(guard))?;
            if guard.is_empty() { Ok(()) } else { write!(f, " else {other}") }
        }
        InstOp::Const(value) => write!(f, "const {value}"),
        InstOp::Index(value) => write!(f, "index {value}"),
        InstOp::Cond(rel) => write!(f, "cond {rel}"),
        InstOp::Op(op, args) => write!(f, "{} {}", op.name(), Commas::<Val>(args)),
        InstOp::Cast(value) => write!(f, "cast {value}"),
        InstOp::Bitcast(value) => write!(f, "bitcast {value}"),
        InstOp::Bind { sym, value, extent, of } => {
            write!(f, "bind {sym} = {value} in {extent}")?;
            match of {
                BindOf::Index => Ok(()),
                BindOf::Divisor => f.write_str(" for divisor"),
                BindOf::Value => f.write_str(" for value"),
            }
        }
        InstOp::Reduce(op, value) => write!(f, "reduce.{} {value}", op.name()),
        InstOp::ArgReduce { max, value } => {
            write!(f, "reduce.{} {value}", if *max { "argmax" } else { "argmin" })
        }
        InstOp::Scan { op, value, axis } => write!(f, "scan.{} {value} over {axis}", op.name()),
        InstOp::Store { buf, index, value, combine: None } => {
            write!(f, "store {}[{}] = {value}", buf_name(buf), Commas(index))
        }
        InstOp::Store { buf, index, value, combine: Some(op) } => {
            write!(f, "store.{} {}[{}] = {value}", op.name(), buf_name(buf), Commas(index))
        }
    }
}

impl InstOp {
    /// Whether later instructions can use what it computes.
    pub fn has_result(&self) -> bool {
        !matches!(self, InstOp::Store { .. } | InstOp::Bind { .. })
    }
}

/// Reads one loops program.
///
/// # Errors
/// Where the text is no loops program, or names a buffer or value that no earlier line defines.
pub fn parse(text: &str) -> std::result::Result<Loops, Diags> {
    parse_whole(text, loops)
}

/// A loops program being read.
struct Reader {
    loops: Loops,
    bufs: Names<Buf>,
}

fn loops(cx: &mut Cursor) -> Result<Loops> {
    let (name, device) = cx.head("loops")?;
    let loops = Loops::new(name, device);
    let mut reader = Reader { loops, bufs: Names::new("a buffer", "undefined-buffer") };
    while !cx.eat("return") {
        reader.line(cx)?;
    }
    reader.loops.outputs = cx.last_line(|cx| reader.output(cx))?;
    Ok(reader.loops)
}

impl Reader {
    fn line(&mut self, cx: &mut Cursor) -> Result<()> {
        if cx.fact(&mut self.loops.facts)? {
            return Ok(());
        }
        if cx.eat("buf") {
            let data = buf(cx, self.loops.device)?;
            let (name, is_input) = (data.name.clone(), data.kind == BufKind::Input);
            let buf = self.loops.bufs.push(data);
            self.bufs.define(name, buf);
            if is_input && cx.eat("donated") {
                self.loops.donated.push(buf);
            }
        } else if cx.eat("nest") {
            let nest = self.nest(cx)?;
            self.loops.stmts.push(Stmt::Nest(nest));
        } else if cx.eat("extern") {
            let call = self.call(cx)?;
            self.loops.stmts.push(Stmt::Extern(call));
        } else if cx.is("loops") {
            let function = cx.nested(loops)?;
            self.loops.functions.push(function);
        } else if cx.is("call") || cx.is("branch") || cx.is("while") {
            let control = self.control(cx)?;
            self.loops.stmts.push(Stmt::Extern(control));
        } else if cx.eat("copy") {
            let copy = self.copy(cx)?;
            self.loops.stmts.push(Stmt::Extern(copy));
        } else if cx.eat("size") {
            let size = self.size(cx)?;
            self.loops.stmts.push(Stmt::Extern(size));
        } else if cx.eat("region") {
            let region = self.region(cx)?;
            self.loops.stmts.push(Stmt::Recurrence(region));
        } else if cx.eat("update") {
            let target = self.bufs.name(cx)?;
            cx.expect("=")?;
            let source = self.bufs.name(cx)?;
            self.loops.updates.push((target, source));
        } else {
            return Err(
                cx.expected("buf, nest, extern, size, call, branch, while, region, update, loops or return")
            );
        }
        Ok(())
    }

    fn region(&self, cx: &mut Cursor) -> Result<Recurrence> {
        let name = cx.name("a region name")?;
        let from = from(cx)?;
        cx.expect("over")?;
        let over = cx.axis()?;
        let carry = if cx.eat("carry") { cx.commas(|cx| self.bufs.name(cx))? } else { Vec::new() };
        cx.expect("{")?;
        let mut nests = Vec::new();
        while !cx.eat("}") {
            cx.expect("nest")?;
            nests.push(self.nest(cx)?);
        }
        Ok(Recurrence { name, from, over, carry, nests })
    }

    fn nest(&self, cx: &mut Cursor) -> Result<Nest> {
        let name = cx.name("a nest name")?;
        let from = from(cx)?;
        cx.expect("[")?;
        let axes = if cx.is("|") || cx.is("]") { Vec::new() } else { cx.commas(Cursor::axis)? };
        let reduced = if cx.eat("|") { cx.commas(Cursor::axis)? } else { Vec::new() };
        cx.expect("]")?;
        let idle = if cx.eat("idle") { Some(cx.rel()?) } else { None };
        let rounds = match cx.eat("rounding") {
            false => Rounds::Never,
            true if cx.eat("parts") => {
                cx.expect("of")?;
                Rounds::Parts(cx.integer()?)
            }
            true => Rounds::Always,
        };
        cx.expect("{")?;
        let mut vals = Names::new("a value", "undefined-value");
        let mut body = Vec::new();
        while !cx.eat("}") {
            let inst = self.inst(cx, &mut vals, &body)?;
            body.push(inst);
        }
        Ok(Nest { name, from, axes, reduced, idle, rounds, body })
    }

    fn inst(&self, cx: &mut Cursor, vals: &mut Names<Val>, body: &[Inst]) -> Result<Inst> {
        if cx.eat("bind") {
            let sym = cx.sym()?;
            cx.expect("=")?;
            let value = vals.value(cx)?;
            cx.expect("in")?;
            let extent = cx.expr()?;
            let of = match cx.eat("for") {
                true if cx.eat("value") => BindOf::Value,
                true => cx.expect("divisor").map(|()| BindOf::Divisor)?,
                false => BindOf::Index,
            };
            return Ok(Inst { op: InstOp::Bind { sym, value, extent, of }, ty: Dtype::I64 });
        }
        if cx.peek().kind == TokenKind::Value {
            let name = cx.value_name()?;
            cx.expect(":")?;
            let ty = cx.dtype()?;
            cx.expect("=")?;
            let op = self.op(cx, vals, ty)?;
            vals.define(name, Val::new(body.len()));
            return Ok(Inst { op, ty });
        }
        let combine = match cx.peek_text().strip_prefix("store.") {
            Some(name) => {
                Some(ReduceOp::from_name(name).ok_or_else(|| cx.expected("store.sum or another reduction"))?)
            }
            None if cx.is("store") => None,
            None => return Err(cx.expected("store, bind or a value such as `%3`")),
        };
        cx.take();
        let (buf, index) = self.element(cx)?;
        cx.expect("=")?;
        let value = vals.value(cx)?;
        Ok(Inst { op: InstOp::Store { buf, index, value, combine }, ty: body[value.index()].ty })
    }

    /// `x[i, k]`.
    fn element(&self, cx: &mut Cursor) -> Result<(Buf, Vec<Expr>)> {
        Ok((self.bufs.name(cx)?, cx.list("[", "]", Cursor::expr)?))
    }

    fn op(&self, cx: &mut Cursor, vals: &Names<Val>, ty: Dtype) -> Result<InstOp> {
        if cx.eat("load") {
            let (buf, index) = self.element(cx)?;
            let (guard, other) = cx.guarded(ty)?;
            return Ok(InstOp::Load { buf, index, guard, other });
        }
        if cx.eat("const") {
            return cx.scalar().map(InstOp::Const);
        }
        if cx.eat("index") {
            return cx.expr().map(InstOp::Index);
        }
        if cx.eat("cond") {
            return cx.rel().map(InstOp::Cond);
        }
        if cx.eat("cast") {
            return vals.value(cx).map(InstOp::Cast);
        }
        if cx.eat("bitcast") {
            return vals.value(cx).map(InstOp::Bitcast);
        }
        let word = cx.peek_text();
        if let Some(op) = ScalarOp::from_name(word) {
            cx.take();
            return Ok(InstOp::Op(op, cx.commas(|cx| vals.value(cx))?));
        }
        if let Some(max) = ["reduce.argmin", "reduce.argmax"].iter().position(|&name| name == word) {
            cx.take();
            return Ok(InstOp::ArgReduce { max: max == 1, value: vals.value(cx)? });
        }
        if let Some(op) = word.strip_prefix("reduce.").and_then(ReduceOp::from_name) {
            cx.take();
            return Ok(InstOp::Reduce(op, vals.value(cx)?));
        }
        if let Some(op) = word.strip_prefix("scan.").and_then(ReduceOp::from_name) {
            cx.take();
            let value = vals.value(cx)?;
            cx.expect("over")?;
            return Ok(InstOp::Scan { op, value, axis: cx.sym()? });
        }
        Err(cx.expected("an operation"))
    }

    fn call(&self, cx: &mut Cursor) -> Result<Extern> {
        let name = cx.name("a statement name")?;
        let from = from(cx)?;
        cx.expect("=")?;
        let callee = if cx.is("host") && !cx.second_is("(") {
            cx.take();
            Callee::Host(self.host_call(cx)?)
        } else {
            let name = cx.name("a routine")?;
            let reads = cx.list("(", ")", |cx| self.bufs.name(cx))?;
            cx.expect("->")?;
            let writes = cx.list("(", ")", |cx| self.bufs.name(cx))?;
            Callee::Routine(Routine { name, reads, writes, ints: cx.optional_exprs("ints")? })
        };
        Ok(Extern { name, from, callee, message: cx.optional_message()? })
    }

    /// `call c0 = @f(x) -> (y)`, `branch b0 on p then @f(x) else @g(x) -> (y)` or `while w0 on p by @f(x) do @g(x) -> (x)`.
    fn control(&self, cx: &mut Cursor) -> Result<Extern> {
        let word = cx.word("call, branch or while")?.to_owned();
        let name = cx.name("a statement name")?;
        let from = from(cx)?;
        if word == "call" {
            cx.expect("=")?;
        }
        let (control, reads, writes) = control(cx, &word, &|cx| self.bufs.name(cx))?;
        let callee = Callee::Control(ControlCall { control, reads, writes });
        Ok(Extern { name, from, callee, message: None })
    }

    /// `c0 from %y = x -> y`.
    fn copy(&self, cx: &mut Cursor) -> Result<Extern> {
        let name = cx.name("a statement name")?;
        let from = from(cx)?;
        cx.expect("=")?;
        let source = self.bufs.name(cx)?;
        cx.expect("->")?;
        let callee = Callee::Copy { from: source, to: self.bufs.name(cx)? };
        Ok(Extern { name, from, callee, message: cx.optional_message()? })
    }

    /// `u0 from %item = n for "item at model.py:12"`.
    fn size(&self, cx: &mut Cursor) -> Result<Extern> {
        let sym = cx.sym()?;
        let from = from(cx)?;
        cx.expect("=")?;
        let callee = Callee::Size { sym, number: self.bufs.name(cx)? };
        Ok(Extern { name: sym.name().to_owned(), from, callee, message: cx.optional_message()? })
    }

    fn host_call(&self, cx: &mut Cursor) -> Result<HostCall> {
        let op = cx.name("an operator")?;
        let args = cx.list("(", ")", |cx| call::arg(cx, &mut |cx| self.view(cx)))?;
        cx.expect("->")?;
        let (mut result, mut shared) =
            (|cx: &mut Cursor| self.bufs.name(cx), |cx: &mut Cursor| self.bufs.name(cx));
        let (results, sharing) = call::results(cx, &mut result, &mut shared)?;
        let effect = if cx.eat("effect") { Some(cx.name("an effect")?) } else { None };
        Ok(HostCall { op, args, results, sharing, effect })
    }

    /// `x as [3, 4]{1, 3} + 12`.
    fn view(&self, cx: &mut Cursor) -> Result<View> {
        let buf = self.bufs.name(cx)?;
        cx.expect("as")?;
        let (sizes, strides) = cx.shape()?;
        let offset = if cx.eat("+") { cx.expr()? } else { Expr::zero() };
        Ok(View { buf, sizes, strides, offset })
    }

    fn output(&self, cx: &mut Cursor) -> Result<Output> {
        if cx.eat("none") {
            return Ok(Output::Nothing);
        }
        if cx.eat("number") {
            cx.expect("(")?;
            let buf = self.bufs.name(cx)?;
            cx.expect(")")?;
            return Ok(Output::Number(buf));
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
        let buf = self.bufs.name(cx)?;
        let (sizes, strides) = if cx.eat("as") {
            cx.shape()?
        } else {
            let data = &self.loops.bufs[buf];
            (data.sizes.clone(), data.strides.clone())
        };
        let offset = if cx.eat("+") { cx.expr()? } else { Expr::zero() };
        Ok(Output::View { buf, sizes, strides, offset })
    }
}

/// `from %h, %g`, or nothing.
pub(super) fn from(cx: &mut Cursor) -> Result<Vec<String>> {
    if cx.eat("from") { cx.commas(Cursor::value_name) } else { Ok(Vec::new()) }
}

/// `x: f32[s0, 768] = input`, in a program whose first line names the device `head`.
fn buf(cx: &mut Cursor, head: Device) -> Result<BufData> {
    let name = cx.name("a buffer name")?;
    cx.expect(":")?;
    let ty = cx.tensor_type(head)?;
    let stream = cx.of_stream()?;
    let kind = if !cx.eat("=") {
        BufKind::Temp
    } else if cx.eat("input") {
        BufKind::Input
    } else {
        cx.expect("const")?;
        BufKind::Const(cx.string()?)
    };
    Ok(BufData { stream, ..BufData::new(name, ty, kind) })
}
