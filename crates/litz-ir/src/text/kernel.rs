//! Prints and parses kernels.

use std::fmt::{self, Display, Formatter};

use litz_sym::{Expr, Sym};

use crate::diag::Diags;
use crate::dtype::Dtype;
use crate::ids::Id;
use crate::kernel::{
    Dot, Element, Kernel, LaneReduction, Loop, LoopKind, Matrix, MatrixProduct, Mem, MemData, Op, Space,
    Stmt, Swizzle, Sync, Val, visit,
};
use crate::scalar::{ReduceOp, ScalarOp};
use crate::target::{Instruction, Level};
use crate::text::cursor::{Cursor, Names, Result, parse_whole};
use crate::text::lexer::TokenKind;
use crate::text::print::{
    Behind, Commas, Declaration, Guards, Indent, Name, Quoted, Shape, Sigil, commas, write_guards,
};

const LINE: Indent = Indent(1);

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        write!(f, "kernel {}", Sigil('@', &self.name))?;
        if !self.from.is_empty() {
            f.write_str(" from ")?;
            commas(f, &self.from, |f, nest| Name(nest).fmt(f))?;
        }
        f.write_str(" {\n")?;
        let (params, locals): (Vec<Mem>, Vec<Mem>) =
            self.mems.ids().partition(|mem| mem.index() < self.params);
        params.iter().try_for_each(|&mem| self.write_mem(f, mem))?;
        for &size in &self.sizes {
            writeln!(f, "{LINE}size {}", Declaration(&self.facts, size))?;
        }
        let is_size = |sym: &Sym| self.sizes.contains(sym);
        for sym in self.facts.symbols().filter(|sym| !is_size(sym)) {
            writeln!(f, "{LINE}sym {}", Declaration(&self.facts, sym))?;
        }
        write_guards(f, LINE, &self.facts)?;
        self.write_grid(f)?;
        locals.iter().try_for_each(|&mem| self.write_mem(f, mem))?;
        for (at, check) in self.checks.iter().enumerate() {
            writeln!(f, "{LINE}check {at} = {}", Quoted(check))?;
        }
        Printer::new(self).block(f, &self.body, 1)?;
        f.write_str("}\n")
    }
}

impl Display for Sync {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Sync::Barrier(level) => write!(f, "barrier {}", level.name()),
            Sync::Commit => f.write_str("commit"),
            Sync::Wait { newest } => write!(f, "wait {newest}"),
            Sync::Await => f.write_str("await turn"),
            Sync::Pass => f.write_str("pass turn"),
        }
    }
}

impl Space {
    /// Every space.
    pub const ALL: [Space; 8] = [
        Space::Read,
        Space::Write,
        Space::Update,
        Space::Register,
        Space::Scratch,
        Space::Shared,
        Space::Cluster,
        Space::Global,
    ];

    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Space::Read => "read",
            Space::Write => "write",
            Space::Update => "update",
            Space::Register => "register",
            Space::Scratch => "scratch",
            Space::Shared => "shared",
            Space::Cluster => "cluster",
            Space::Global => "global",
        }
    }

    /// Whether a thread sees there what another one of its grid point has stored.
    pub fn is_shared(self) -> bool {
        match self {
            Space::Write | Space::Update | Space::Shared | Space::Cluster | Space::Global => true,
            Space::Read | Space::Register | Space::Scratch => false,
        }
    }

    /// Whether memory there belongs to the kernel rather than to its caller.
    pub fn is_local(self) -> bool {
        match self {
            Space::Read | Space::Write | Space::Update => false,
            Space::Register | Space::Scratch | Space::Shared | Space::Cluster | Space::Global => true,
        }
    }
}

impl Kernel {
    fn write_mem(&self, f: &mut Formatter, mem: Mem) -> fmt::Result {
        let data = &self.mems[mem];
        let shape = Shape(&data.sizes, &data.strides);
        write!(f, "{LINE}{} {}: {}{shape}", data.space.name(), Name(&data.name), data.dtype)?;
        if let Some(Swizzle { unit, row }) = data.swizzle {
            write!(f, " swizzled {unit} of {row}")?;
        }
        f.write_str("\n")
    }

    fn write_grid(&self, f: &mut Formatter) -> fmt::Result {
        if self.grid.is_empty() && self.grain == 1 && self.persistent.is_none() {
            return Ok(());
        }
        write!(f, "{LINE}grid{}{}", if self.grid.is_empty() { "" } else { " " }, Commas(&self.grid))?;
        if self.grain != 1 {
            write!(f, " grain {}", self.grain)?;
        }
        if let Some(blocks) = self.persistent {
            write!(f, " persistent {blocks}")?;
        }
        f.write_str("\n")
    }
}

/// Prints statements; values are numbered in the order of their definitions.
struct Printer<'a> {
    kernel: &'a Kernel,
    numbers: Vec<Option<usize>>,
}

impl<'a> Printer<'a> {
    fn new(kernel: &'a Kernel) -> Printer<'a> {
        let mut numbers = vec![None; kernel.vals.len()];
        let mut next = 0;
        visit(&kernel.body, &mut |stmt| {
            if let Stmt::Let { val, .. } = stmt
                && let Some(slot @ None) = numbers.get_mut(val.index())
            {
                *slot = Some(next);
                next += 1;
            }
        });
        Printer { kernel, numbers }
    }

    fn val(&self, val: Val) -> impl Display {
        let number = self.numbers.get(val.index()).copied().flatten();
        fmt::from_fn(move |f| match number {
            Some(number) => write!(f, "%{number}"),
            None => write!(f, "%undefined{}", val.index()),
        })
    }

    fn mem(&self, mem: Mem) -> Name<'a> {
        Name(&self.kernel.mems[mem].name)
    }

    fn block(&self, f: &mut Formatter, body: &[Stmt], depth: usize) -> fmt::Result {
        body.iter().try_for_each(|stmt| self.stmt(f, stmt, depth))
    }

    fn stmt(&self, f: &mut Formatter, stmt: &Stmt, depth: usize) -> fmt::Result {
        let indent = Indent(depth);
        match stmt {
            Stmt::Loop(Loop { kind, var, extent, body }) => {
                write!(f, "{indent}{} {var} in {extent}", kind.keyword())?;
                match kind {
                    LoopKind::Level(team) => write!(f, "{}", Behind(*team))?,
                    LoopKind::For | LoopKind::Unroll | LoopKind::Chain | LoopKind::Mma => {}
                    LoopKind::Vector { lanes, copies, interleaved, lane } => {
                        write!(f, "{}", Lanes(*lanes, *copies))?;
                        f.write_str(if *interleaved { " in turns" } else { "" })?;
                        if let Some(lane) = lane {
                            write!(f, " lane {lane}")?;
                        }
                    }
                    LoopKind::Pipeline { buffers } => write!(f, " by {buffers}")?,
                }
                f.write_str(" {\n")?;
                self.block(f, body, depth + 1)?;
                writeln!(f, "{indent}}}")
            }
            Stmt::If { cond, then, other } => {
                match &cond[..] {
                    [] => writeln!(f, "{indent}if true {{")?,
                    cond => writeln!(f, "{indent}if {} {{", Commas(cond))?,
                }
                self.block(f, then, depth + 1)?;
                if !other.is_empty() {
                    writeln!(f, "{indent}}} else {{")?;
                    self.block(f, other, depth + 1)?;
                }
                writeln!(f, "{indent}}}")
            }
            Stmt::Let { val, op } => {
                write!(f, "{indent}{}: {} = ", self.val(*val), self.kernel.vals[*val])?;
                self.op(f, op)?;
                f.write_str("\n")
            }
            Stmt::Bind { sym, value, extent, check } => {
                writeln!(f, "{indent}bind {sym} = {} in {extent}, check {check}", self.val(*value))
            }
            Stmt::Store { mem, index, value, combine, guard, atomic } => {
                let (prefix, mem) = (if *atomic { "atomic " } else { "" }, self.mem(*mem));
                let combine = combine.map_or("", |op| op.name());
                let (index, value) = (Commas(index), self.val(*value));
                writeln!(f, "{indent}{prefix}{mem}[{index}] {combine}= {value}{}", Guards(guard))
            }
            Stmt::MulAdd { mem, index, factors: [a, b], guard } => {
                let (mem, index, a, b) = (self.mem(*mem), Commas(index), self.val(*a), self.val(*b));
                writeln!(f, "{indent}{mem}[{index}] fma= {a}, {b}{}", Guards(guard))
            }
            Stmt::Sync(sync) => writeln!(f, "{indent}{sync}"),
            Stmt::Dot(Dot { by, mem, index, terms }) => {
                write!(f, "{indent}{}[{}] {}= ", self.mem(*mem), Commas(index), by.name)?;
                for (at, [a, b]) in terms.iter().enumerate() {
                    let and = if at == 0 { "" } else { " and " };
                    write!(f, "{and}{} by {}", self.element(a), self.element(b))?;
                }
                f.write_str("\n")
            }
            Stmt::MatrixProduct(product) => self.matrix_product(f, product, indent),
            Stmt::Copy { count, from, along, to, is_async } => {
                let (from, to) = (self.element(from), self.element(to));
                let background = if *is_async { "async " } else { "" };
                writeln!(f, "{indent}copy {background}{count} {from}{} to {to}", Along(*along))
            }
            Stmt::Prefetch { mem, index, ahead, guard } => {
                write!(f, "{indent}prefetch {}[{}]", self.mem(*mem), Commas(index))?;
                if *ahead > 0 {
                    write!(f, " ahead {ahead}")?;
                }
                writeln!(f, "{}", Guards(guard))
            }
            Stmt::Lanes(lanes) => self.lanes(f, lanes, indent),
            Stmt::ArgStore { max, best, at, index, value, position } => {
                let (best, at, op) = (self.mem(*best), self.mem(*at), if *max { "argmax" } else { "argmin" });
                let (index, value) = (Commas(index), self.val(*value));
                writeln!(f, "{indent}{best}[{index}], {at}[{index}] {op}= {value}, {position}")
            }
        }
    }

    fn lanes(&self, f: &mut Formatter, reduction: &LaneReduction, indent: Indent) -> fmt::Result {
        let LaneReduction { op, into, from, positions, index, first, lanes, copies, atomic } = reduction;
        let (index, first, lanes) = (Commas(index), Commas(first), Lanes(*lanes, *copies));
        let (into, from, op) = (self.mem(*into), self.mem(*from), op.name());
        write!(f, "{indent}{}{into}[{index}]", if *atomic { "atomic " } else { "" })?;
        match positions {
            None => writeln!(f, " {op}= lanes of {from}[{first}]{lanes}"),
            Some(positions) => {
                let [at, places] = positions.map(|mem| self.mem(mem));
                writeln!(f, ", {at}[{index}] arg{op}= lanes of {from}[{first}], {places}[{first}]{lanes}")
            }
        }
    }

    fn element(&self, Element { mem, index, guard }: &Element) -> impl Display {
        let mem = self.mem(*mem);
        fmt::from_fn(move |f| write!(f, "{mem}[{}]{}", Commas(index), Guards(guard)))
    }

    fn matrix_product(&self, f: &mut Formatter, product: &MatrixProduct, indent: Indent) -> fmt::Result {
        let MatrixProduct { by, rows, columns, depth, over, is_from_zero, .. } = product;
        let matrix = |Matrix { mem, first, step }: &Matrix| {
            let (mem, first, step) = (self.mem(*mem), *first, *step);
            fmt::from_fn(move |f| write!(f, "{mem}[{first} step {step}]"))
        };
        let [sum, left, right] = product.matrices().map(matrix);
        write!(f, "{indent}{sum} {}= {left} by {right} in {rows}, {columns}, {depth}", by.name)?;
        if !over.is_empty() {
            write!(f, " over {}", Commas(over))?;
        }
        f.write_str(if *is_from_zero { " from zero\n" } else { "\n" })
    }

    fn op(&self, f: &mut Formatter, op: &Op) -> fmt::Result {
        match op {
            Op::Load { mem, index, guard, other } => {
                write!(f, "load {}[{}]{}", self.mem(*mem), Commas(index), Guards(guard))?;
                if guard.is_empty() { Ok(()) } else { write!(f, " else {other}") }
            }
            Op::Transposed { mem, index, along } => {
                write!(f, "load {}[{}]{}", self.mem(*mem), Commas(index), Along(Some(*along)))
            }
            Op::Lookup { mem, first, count, by } => {
                let (mem, by) = (self.mem(*mem), self.val(*by));
                write!(f, "lookup {mem}[{}] of {count} by {by}", Commas(first))
            }
            Op::Const(value) => write!(f, "const {value}"),
            Op::Index(value) => write!(f, "index {value}"),
            Op::Cond(rel) => write!(f, "cond {rel}"),
            Op::Call(op, args) => {
                write!(f, "{} ", op.name())?;
                commas(f, args, |f, &arg| self.val(arg).fmt(f))
            }
            Op::Cast(value) => write!(f, "cast {}", self.val(*value)),
            Op::Round(dtype, value) => write!(f, "round.{dtype} {}", self.val(*value)),
            Op::Bitcast(value) => write!(f, "bitcast {}", self.val(*value)),
        }
    }
}

/// The loop along whose rows something is loaded and transposed.
struct Along(Option<Sym>);

impl Display for Along {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        self.0.map_or(Ok(()), |var| write!(f, " transposed along {var}"))
    }
}

/// Lanes of a vector, and copies if there are several.
struct Lanes(u32, u32);

impl Display for Lanes {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Lanes(lanes, copies) = self;
        write!(f, " by {lanes}")?;
        if *copies == 1 { Ok(()) } else { write!(f, " copies {copies}") }
    }
}

impl LoopKind {
    /// The word its line starts with.
    pub fn keyword(self) -> &'static str {
        match self {
            LoopKind::For => "for",
            LoopKind::Unroll => "unroll",
            LoopKind::Vector { .. } => "vector",
            LoopKind::Pipeline { .. } => "pipeline",
            LoopKind::Level(team) => team.level.name(),
            LoopKind::Chain => "chain",
            LoopKind::Mma => "mma",
        }
    }
}

/// Reads one kernel.
///
/// # Errors
/// Where the text is no kernel, or names memory or a value that no earlier line defines.
pub fn parse(text: &str) -> std::result::Result<Kernel, Diags> {
    parse_whole(text, kernel)
}

/// The level whose loops start with that word.
fn level(keyword: &str) -> Option<Level> {
    Level::LOOPS.into_iter().find(|level| level.name() == keyword)
}

/// `barrier warp`.
fn barrier(cx: &mut Cursor) -> Result<Stmt> {
    cx.take();
    let levels = [Level::Grid].into_iter().chain(Level::LOOPS);
    let found = levels.into_iter().find(|level| cx.is(level.name()));
    let level = found.ok_or_else(|| cx.expected("grid, block, warpgroup or warp"))?;
    cx.take();
    Ok(Stmt::Sync(Sync::Barrier(level)))
}

/// A kernel being read.
struct Reader {
    kernel: Kernel,
    mems: Names<Mem>,
    vals: Names<Val>,
}

fn kernel(cx: &mut Cursor) -> Result<Kernel> {
    cx.expect("kernel")?;
    let mut kernel = Kernel::new(cx.item_name()?);
    if cx.eat("from") {
        kernel.from = cx.commas(|cx| cx.name("a nest name"))?;
    }
    let mems = Names::new("memory", "undefined-memory");
    let mut reader = Reader { kernel, mems, vals: Names::new("a value", "undefined-value") };
    cx.expect("{")?;
    while reader.header(cx)? {}
    reader.kernel.body = reader.rest_of_block(cx)?;
    Ok(reader.kernel)
}

impl Reader {
    /// A line ahead of the body, if one comes next.
    fn header(&mut self, cx: &mut Cursor) -> Result<bool> {
        let kernel = &mut self.kernel;
        if cx.fact(&mut kernel.facts)? {
            return Ok(true);
        }
        if cx.eat("size") {
            let sym = cx.declaration(&mut kernel.facts)?;
            kernel.sizes.push(sym);
            return Ok(true);
        }
        if cx.eat("grid") {
            (kernel.grid, kernel.grain, kernel.persistent) = cx.grid()?;
            return Ok(true);
        }
        if cx.is("check") {
            return self.check(cx).map(|()| true);
        }
        match Space::ALL.into_iter().find(|space| cx.is(space.name())) {
            Some(space) => self.mem(cx, space).map(|()| true),
            None => Ok(false),
        }
    }

    /// `check 0 = "message"`.
    fn check(&mut self, cx: &mut Cursor) -> Result<()> {
        cx.take();
        if !cx.is(&self.kernel.checks.len().to_string()) {
            return Err(
                cx.expected(&format!("`{}`, since checks are numbered in order", self.kernel.checks.len()))
            );
        }
        cx.take();
        cx.expect("=")?;
        self.kernel.checks.push(cx.string()?);
        Ok(())
    }

    fn mem(&mut self, cx: &mut Cursor, space: Space) -> Result<()> {
        if !space.is_local() && self.kernel.mems.len() > self.kernel.params {
            return Err(cx.error("syntax", "expected parameters ahead of locals"));
        }
        cx.take();
        let name = cx.name("a memory name")?;
        cx.expect(":")?;
        let dtype = cx.dtype()?;
        let (sizes, strides) = cx.shape()?;
        let swizzle = if cx.eat("swizzled") {
            let unit = cx.integer()?;
            cx.expect("of")?;
            Some(Swizzle { unit, row: cx.integer()? })
        } else {
            None
        };
        let data = MemData { name: name.clone(), dtype, sizes, strides, space, swizzle };
        let mem = self.kernel.mems.push(data);
        self.mems.define(name, mem);
        self.kernel.params += usize::from(!space.is_local());
        Ok(())
    }

    /// Statements within braces.
    fn block(&mut self, cx: &mut Cursor) -> Result<Vec<Stmt>> {
        cx.expect("{")?;
        cx.nested(|cx| self.rest_of_block(cx))
    }

    fn rest_of_block(&mut self, cx: &mut Cursor) -> Result<Vec<Stmt>> {
        let mut body = Vec::new();
        while !cx.eat("}") {
            body.push(self.stmt(cx)?);
        }
        Ok(body)
    }

    fn stmt(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        if cx.peek().kind == TokenKind::Value {
            return self.definition(cx);
        }
        let keyword = cx.peek_text();
        match keyword {
            "for" | "unroll" | "vector" | "pipeline" | "chain" | "mma" => self.loop_(cx, keyword),
            _ if level(keyword).is_some() => self.loop_(cx, keyword),
            "barrier" => barrier(cx),
            "if" => self.if_(cx),
            "bind" => self.bind(cx),
            // A memory of that name is followed by an index.
            "copy" if cx.second_is_number() || cx.second_is("async") => self.copy(cx),
            "commit" => {
                cx.take();
                Ok(Stmt::Sync(Sync::Commit))
            }
            "wait" => {
                cx.take();
                Ok(Stmt::Sync(Sync::Wait { newest: cx.integer()? }))
            }
            "await" | "pass" if cx.second_is("turn") => {
                cx.take();
                cx.take();
                Ok(Stmt::Sync(if keyword == "await" { Sync::Await } else { Sync::Pass }))
            }
            "prefetch" => self.prefetch(cx),
            _ => self.store(cx),
        }
    }

    fn loop_(&mut self, cx: &mut Cursor, keyword: &str) -> Result<Stmt> {
        cx.take();
        let axis = cx.axis()?;
        let kind = match (keyword, level(keyword)) {
            (_, Some(level)) => LoopKind::Level(cx.team(level)?),
            ("for", None) => LoopKind::For,
            ("unroll", None) => LoopKind::Unroll,
            ("chain", None) => LoopKind::Chain,
            ("mma", None) => LoopKind::Mma,
            ("pipeline", None) => {
                cx.expect("by")?;
                LoopKind::Pipeline { buffers: cx.integer()? }
            }
            (_, None) => {
                let (lanes, copies) = cx.lanes()?;
                let interleaved = cx.eat("in");
                if interleaved {
                    cx.expect("turns")?;
                }
                let lane = if cx.eat("lane") { Some(cx.sym()?) } else { None };
                LoopKind::Vector { lanes, copies, interleaved, lane }
            }
        };
        Ok(Stmt::Loop(Loop { kind, var: axis.var, extent: axis.extent, body: self.block(cx)? }))
    }

    fn if_(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        cx.take();
        let cond = if cx.eat("true") { Vec::new() } else { cx.commas(Cursor::rel)? };
        let then = self.block(cx)?;
        let other = if cx.eat("else") { self.block(cx)? } else { Vec::new() };
        Ok(Stmt::If { cond, then, other })
    }

    /// `bind t = %3 in n, check 0`.
    fn bind(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        cx.take();
        let sym = cx.sym()?;
        cx.expect("=")?;
        let value = self.vals.value(cx)?;
        cx.expect("in")?;
        let extent = cx.expr()?;
        cx.expect(",")?;
        cx.expect("check")?;
        Ok(Stmt::Bind { sym, value, extent, check: cx.integer()? })
    }

    /// `copy 2 x[i] if i < 7 to y[j]`.
    fn copy(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        cx.take();
        let is_async = cx.eat("async");
        let count = cx.integer()?;
        let from = self.guarded(cx)?;
        let along = Reader::along(cx)?;
        cx.expect("to")?;
        Ok(Stmt::Copy { count, from, along, to: self.guarded(cx)?, is_async })
    }

    /// `transposed along u`, or nothing.
    fn along(cx: &mut Cursor) -> Result<Option<Sym>> {
        if !cx.eat("transposed") {
            return Ok(None);
        }
        cx.expect("along")?;
        cx.sym().map(Some)
    }

    /// `prefetch m[index] ahead 2048 if guards`.
    fn prefetch(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        cx.take();
        let (mem, index) = self.element(cx)?;
        let ahead = if cx.eat("ahead") { cx.integer()? } else { 0 };
        Ok(Stmt::Prefetch { mem, index, ahead, guard: cx.guards()? })
    }

    /// `%3: f32 = op`.
    fn definition(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        let name = cx.value_name()?;
        cx.expect(":")?;
        let ty = cx.dtype()?;
        cx.expect("=")?;
        let op = self.op(cx, ty)?;
        let val = self.kernel.vals.push(ty);
        self.vals.define(name, val);
        Ok(Stmt::Let { val, op })
    }

    fn op(&self, cx: &mut Cursor, ty: Dtype) -> Result<Op> {
        if cx.eat("load") {
            let (mem, index) = self.element(cx)?;
            if let Some(along) = Reader::along(cx)? {
                return Ok(Op::Transposed { mem, index, along });
            }
            let (guard, other) = cx.guarded(ty)?;
            return Ok(Op::Load { mem, index, guard, other });
        }
        if cx.eat("lookup") {
            let (mem, first) = self.element(cx)?;
            cx.expect("of")?;
            let count = cx.integer()?;
            cx.expect("by")?;
            return Ok(Op::Lookup { mem, first, count, by: self.vals.value(cx)? });
        }
        if cx.eat("const") {
            return cx.scalar().map(Op::Const);
        }
        if cx.eat("index") {
            return cx.expr().map(Op::Index);
        }
        if cx.eat("cond") {
            return cx.rel().map(Op::Cond);
        }
        if cx.eat("cast") {
            return self.vals.value(cx).map(Op::Cast);
        }
        if cx.eat("bitcast") {
            return self.vals.value(cx).map(Op::Bitcast);
        }
        let word = cx.peek_text();
        if let Some(dtype) = word.strip_prefix("round.").and_then(Dtype::from_name) {
            cx.take();
            return Ok(Op::Round(dtype, self.vals.value(cx)?));
        }
        let op = ScalarOp::from_name(word).ok_or_else(|| cx.expected("an operation"))?;
        cx.take();
        Ok(Op::Call(op, cx.commas(|cx| self.vals.value(cx))?))
    }

    /// `x[i, k]`.
    fn element(&self, cx: &mut Cursor) -> Result<(Mem, Vec<Expr>)> {
        Ok((self.mems.name(cx)?, cx.list("[", "]", Cursor::expr)?))
    }

    /// `x[i]`, or `x[i step 32]` with the distance between the rows of a matrix.
    fn place(&self, cx: &mut Cursor) -> Result<(Mem, Vec<Expr>, Option<Expr>)> {
        let mem = self.mems.name(cx)?;
        cx.expect("[")?;
        let mut index = Vec::new();
        if !cx.is("]") {
            index = cx.commas(Cursor::expr)?;
        }
        let step = if index.len() == 1 && cx.eat("step") { Some(cx.expr()?) } else { None };
        cx.expect("]")?;
        Ok((mem, index, step))
    }

    /// The instruction whose name comes next, and the `=` after it.
    fn instruction(cx: &mut Cursor) -> Result<Option<&'static Instruction>> {
        let instruction = Instruction::mma(cx.peek_text());
        if instruction.is_some() {
            cx.take();
            cx.expect("=")?;
        }
        Ok(instruction)
    }

    /// The products that a dot product adds up: `x[i] by w[j] and x[i + 1] if i < 7 by w[j + 1]`.
    fn terms(&self, cx: &mut Cursor) -> Result<Vec<[Element; 2]>> {
        let mut terms = Vec::new();
        while terms.is_empty() || cx.eat("and") {
            let left = self.guarded(cx)?;
            cx.expect("by")?;
            terms.push([left, self.guarded(cx)?]);
        }
        Ok(terms)
    }

    /// `x[i + 1] if i < 7`.
    fn guarded(&self, cx: &mut Cursor) -> Result<Element> {
        let (mem, index) = self.element(cx)?;
        Ok(Element { mem, index, guard: cx.guards()? })
    }

    /// The rest of `acc[i step 32] amx.tdpbf16ps= x[j step 768] by w[k step 64] in 13, 32, 32 over k in 8 from zero`.
    fn matrix_product(&self, cx: &mut Cursor, mem: Mem, first: Expr, step: Expr) -> Result<Stmt> {
        let Some(by) = Reader::instruction(cx)? else {
            return Err(cx.expected("an instruction for products of matrices"));
        };
        let matrix = |cx: &mut Cursor| -> Result<Matrix> {
            match self.place(cx)? {
                (mem, index, Some(step)) => Ok(Matrix { mem, first: index[0], step }),
                (_, _, None) => Err(cx.error("syntax", "expected a matrix, as `x[i step 32]`")),
            }
        };
        let sum = Matrix { mem, first, step };
        let left = matrix(cx)?;
        cx.expect("by")?;
        let right = matrix(cx)?;
        cx.expect("in")?;
        let rows = cx.expr()?;
        cx.expect(",")?;
        let columns = cx.expr()?;
        cx.expect(",")?;
        let depth = cx.integer()?;
        let over = if cx.eat("over") { cx.commas(Cursor::axis)? } else { Vec::new() };
        let is_from_zero = cx.eat("from");
        if is_from_zero {
            cx.expect("zero")?;
        }
        Ok(Stmt::MatrixProduct(MatrixProduct {
            by,
            sum,
            left,
            right,
            rows,
            columns,
            depth,
            over,
            is_from_zero,
        }))
    }

    /// `x[index] sum= %v if guards`, a [`Stmt::MulAdd`], [`Stmt::Dot`], [`Stmt::MatrixProduct`], [`Stmt::ArgStore`] or
    /// [`Stmt::Lanes`].
    fn store(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        let atomic = cx.eat("atomic");
        let (mem, index, step) = self.place(cx)?;
        if !atomic && let Some(step) = step {
            return self.matrix_product(cx, mem, index[0], step);
        }
        if step.is_some() {
            return Err(cx.error("syntax", "expected an element, found a matrix"));
        }
        if !atomic && let Some(by) = Reader::instruction(cx)? {
            return Ok(Stmt::Dot(Dot { by, mem, index, terms: self.terms(cx)? }));
        }
        if !atomic && cx.eat(",") {
            return self.arg_store(cx, mem, index);
        }
        if !atomic && cx.eat("fma") {
            cx.expect("=")?;
            let a = self.vals.value(cx)?;
            cx.expect(",")?;
            let factors = [a, self.vals.value(cx)?];
            return Ok(Stmt::MulAdd { mem, index, factors, guard: cx.guards()? });
        }
        let combine = ReduceOp::from_name(cx.peek_text());
        if combine.is_some() {
            cx.take();
        }
        cx.expect("=")?;
        if let Some(op) = combine
            && cx.eat("lanes")
        {
            let (from, first) = self.lanes_of(cx)?;
            let (lanes, copies) = cx.lanes()?;
            let (into, positions) = (mem, None);
            return Ok(Stmt::Lanes(LaneReduction {
                op,
                into,
                from,
                positions,
                index,
                first,
                lanes,
                copies,
                atomic,
            }));
        }
        let value = self.vals.value(cx)?;
        Ok(Stmt::Store { mem, index, value, combine, guard: cx.guards()?, atomic })
    }

    /// `of part[0]`.
    fn lanes_of(&self, cx: &mut Cursor) -> Result<(Mem, Vec<Expr>)> {
        cx.expect("of")?;
        self.element(cx)
    }

    /// Memory that is accessed at the coordinates of another one.
    fn beside(&self, cx: &mut Cursor, index: &[Expr]) -> Result<Mem> {
        let (at, same) = self.element(cx)?;
        if same != index {
            let (index, same) = (Commas(index), Commas(&same));
            return Err(cx.error("syntax", format!("expected index [{index}] for both, found [{same}]")));
        }
        Ok(at)
    }

    /// The rest of `best[index], at[index] argmax= %v, position` or `.. argmax= lanes of parts[0], places[0] by 16`.
    fn arg_store(&mut self, cx: &mut Cursor, best: Mem, index: Vec<Expr>) -> Result<Stmt> {
        let at = self.beside(cx, &index)?;
        let max = cx.is("argmax");
        if !max && !cx.is("argmin") {
            return Err(cx.expected("`argmax=` or `argmin=`"));
        }
        cx.take();
        cx.expect("=")?;
        if cx.eat("lanes") {
            let (from, first) = self.lanes_of(cx)?;
            cx.expect(",")?;
            let positions = Some([at, self.beside(cx, &first)?]);
            let (lanes, copies) = cx.lanes()?;
            let op = if max { ReduceOp::Max } else { ReduceOp::Min };
            let (into, atomic) = (best, false);
            return Ok(Stmt::Lanes(LaneReduction {
                op,
                into,
                from,
                positions,
                index,
                first,
                lanes,
                copies,
                atomic,
            }));
        }
        let value = self.vals.value(cx)?;
        cx.expect(",")?;
        Ok(Stmt::ArgStore { max, best, at, index, value, position: cx.expr()? })
    }
}
