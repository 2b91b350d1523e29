//! Parses kernels.

use litz_sym::{Expr, Sym};

use crate::diag::Diags;
use crate::dtype::Dtype;
use crate::kernel::{
    Act, BoxCopy, BoxDim, BoxPoints, Dot, Element, Filling, Fragment, FragmentLoad, FragmentProduct, Kernel,
    KernelLoopKind, LaneReduction, Loop, Matrix, MatrixProduct, Mem, MemData, MemorySpace, Op, Operand,
    Panels, PointDim, Ring, RingData, Rows, Stmt, Swizzle, Sync, Val, Warps,
};
use crate::scalar::{ReduceOp, ScalarOp};
use crate::target::{Instruction, Level, Side};
use crate::text::cursor::{Cursor, Names, Result, parse_whole};
use crate::text::lexer::TokenKind;
use crate::text::print::Commas;

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
    if cx.eat("cluster") {
        return Ok(Stmt::Act(Act::Sync(Sync::Cluster)));
    }
    if cx.is("warps") || cx.is("warp") && cx.second_is_number() {
        return Ok(Stmt::Act(Act::Sync(Sync::Warps(warps(cx)?))));
    }
    let found = Level::LOOPS.into_iter().find(|level| cx.is(level.name()));
    let level = found.ok_or_else(|| cx.expected("cluster, block, warpgroup or warp"))?;
    cx.take();
    Ok(Stmt::Act(Act::Sync(Sync::Barrier(level))))
}

/// `warp 8` or `warps 0 to 7`.
fn warps(cx: &mut Cursor) -> Result<Warps> {
    if cx.eat("warp") {
        return Ok(Warps { first: cx.integer()?, count: 1 });
    }
    cx.expect("warps")?;
    let first: u32 = cx.integer()?;
    cx.expect("to")?;
    if cx.peek_text().parse::<u32>().is_ok_and(|last| last < first) {
        return Err(cx.expected(&format!("a number from {first} on")));
    }
    let last: u32 = cx.integer()?;
    Ok(Warps { first, count: (last - first).saturating_add(1) })
}

/// `acquire full ring 0 as b`, or `release empty ring 0`.
fn ring_act(cx: &mut Cursor, keyword: &str) -> Result<Stmt> {
    cx.take();
    let found = [Filling::Full, Filling::Empty].into_iter().find(|filling| cx.is(filling.name()));
    let filling = found.ok_or_else(|| cx.expected("full or empty"))?;
    cx.take();
    cx.expect("ring")?;
    let ring = Ring(cx.integer()?);
    if keyword == "release" {
        return Ok(Stmt::Act(Act::Sync(Sync::Release { ring, filling })));
    }
    cx.expect("as")?;
    Ok(Stmt::Act(Act::Sync(Sync::Acquire { ring, filling, buffer: cx.sym()? })))
}

/// The number of what is numbered in the order of the text.
fn in_order(cx: &mut Cursor, what: &str, number: usize) -> Result<()> {
    if !cx.is(&number.to_string()) {
        return Err(cx.expected(&format!("`{number}`, since {what} are numbered in order")));
    }
    cx.take();
    Ok(())
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
            (kernel.grid, kernel.grain, kernel.persistent, kernel.registers) = cx.grid()?;
            return Ok(true);
        }
        if cx.eat("approximate") {
            kernel.approximate = true;
            return Ok(true);
        }
        if cx.is("check") {
            return self.check(cx).map(|()| true);
        }
        if cx.is("ring") && cx.second_is_number() {
            return self.ring(cx).map(|()| true);
        }
        match MemorySpace::ALL.into_iter().find(|space| cx.is(space.name())) {
            Some(space) => self.mem(cx, space).map(|()| true),
            None => Ok(false),
        }
    }

    /// `ring 0 of 3 filled by warp 8, emptied by warps 0 to 7`.
    fn ring(&mut self, cx: &mut Cursor) -> Result<()> {
        cx.take();
        in_order(cx, "rings", self.kernel.rings.len())?;
        cx.expect("of")?;
        let buffers = cx.integer()?;
        cx.expect("filled")?;
        cx.expect("by")?;
        let fills = warps(cx)?;
        cx.expect(",")?;
        cx.expect("emptied")?;
        cx.expect("by")?;
        self.kernel.rings.push(RingData { buffers, fills, empties: warps(cx)? });
        Ok(())
    }

    /// `check 0 = "message"`.
    fn check(&mut self, cx: &mut Cursor) -> Result<()> {
        cx.take();
        in_order(cx, "checks", self.kernel.checks.len())?;
        cx.expect("=")?;
        self.kernel.checks.push(cx.string()?);
        Ok(())
    }

    fn mem(&mut self, cx: &mut Cursor, space: MemorySpace) -> Result<()> {
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
            Some(Swizzle { unit, row: cx.integer()?, pairs: cx.pairs() })
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
            "for" | "unroll" | "vector" | "pipeline" | "chain" | "search" | "mma" => self.loop_(cx, keyword),
            _ if level(keyword).is_some() => self.loop_(cx, keyword),
            "barrier" => barrier(cx),
            "if" => self.if_(cx),
            "bind" => self.bind(cx),
            // A memory of that name is followed by an index.
            "copy" if cx.second_is_number() || cx.second_is("async") => self.copy(cx),
            "copy" if cx.second_is("box") => self.box_copy(cx),
            "commit" => {
                cx.take();
                if cx.eat("products") {
                    return Ok(Stmt::Act(Act::Sync(Sync::CommitProducts)));
                }
                Ok(Stmt::Act(Act::Sync(Sync::Commit)))
            }
            "wait" => {
                cx.take();
                if cx.eat("kernels") {
                    return Ok(Stmt::Act(Act::Sync(Sync::Kernels)));
                }
                let is_counted = cx.second_is_number();
                if cx.eat("products") {
                    let newest = if is_counted { cx.integer()? } else { 0 };
                    return Ok(Stmt::Act(Act::Sync(Sync::Products { newest })));
                }
                Ok(Stmt::Act(Act::Sync(Sync::Wait { newest: cx.integer()? })))
            }
            "await" | "pass" if cx.second_is("turn") => {
                cx.take();
                cx.take();
                Ok(Stmt::Act(Act::Sync(if keyword == "await" { Sync::Await } else { Sync::Pass })))
            }
            "acquire" | "release" if cx.second_is("full") || cx.second_is("empty") => ring_act(cx, keyword),
            "elect" if cx.second_is("last") => {
                cx.take();
                cx.take();
                Ok(Stmt::Act(Act::Sync(Sync::Elect)))
            }
            "prefetch" => self.prefetch(cx),
            _ => self.store(cx),
        }
    }

    fn loop_(&mut self, cx: &mut Cursor, keyword: &str) -> Result<Stmt> {
        cx.take();
        let axis = cx.axis()?;
        let kind = match (keyword, level(keyword)) {
            (_, Some(level)) => KernelLoopKind::Level(cx.team(level)?),
            ("for", None) => KernelLoopKind::For,
            ("unroll", None) => KernelLoopKind::Unroll,
            ("chain", None) => KernelLoopKind::Chain,
            ("search", None) => KernelLoopKind::Search,
            ("mma", None) => KernelLoopKind::Mma { rounds: cx.eat("rounding") },
            ("pipeline", None) => {
                cx.expect("by")?;
                KernelLoopKind::Pipeline { buffers: cx.integer()? }
            }
            (_, None) => {
                let (lanes, copies) = cx.lanes()?;
                let interleaved = cx.eat("in");
                if interleaved {
                    cx.expect("turns")?;
                }
                let lane = if cx.eat("lane") { Some(cx.sym()?) } else { None };
                KernelLoopKind::Vector { lanes, copies, interleaved, lane }
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
        Ok(Stmt::Act(Act::Bind { sym, value, extent, check: cx.integer()? }))
    }

    /// `copy 2 x[i] if i < 7 to y[j]`.
    fn copy(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        cx.take();
        let is_async = cx.eat("async");
        let count = cx.integer()?;
        let from = self.guarded(cx)?;
        let along = Reader::along(cx)?;
        cx.expect("to")?;
        Ok(Stmt::Act(Act::Copy { count, from, along, to: self.guarded(cx)?, is_async }))
    }

    /// `copy box x[64*k] to y[8192*b] of 128 step 4096 from 128*g below n, 64 step 1`.
    fn box_copy(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        cx.take();
        cx.take();
        let (from, origin) = self.flat_element(cx)?;
        cx.expect("to")?;
        let (to, first) = self.flat_element(cx)?;
        cx.expect("of")?;
        let points = if cx.second_is("points") { Some(self.box_points(cx)?) } else { None };
        let dims = cx.commas(|cx| {
            let count = cx.integer()?;
            cx.expect("step")?;
            let step = cx.expr()?;
            if !cx.eat("from") {
                return Ok(BoxDim { count, step, range: None });
            }
            let first = cx.expr()?;
            cx.expect("below")?;
            Ok(BoxDim { count, step, range: Some([first, cx.expr()?]) })
        })?;
        let rounds = cx.eat("rounding");
        Ok(Stmt::Act(Act::BoxCopy(BoxCopy { from, origin, to, first, points, dims, rounds })))
    }

    /// `128 points from 128*g over (32 step 3136 below 32, 7 by 2 step 64 from -1 offset x below 14),`.
    fn box_points(&mut self, cx: &mut Cursor) -> Result<BoxPoints> {
        let count = cx.integer()?;
        cx.expect("points")?;
        cx.expect("from")?;
        let first = cx.expr()?;
        cx.expect("over")?;
        cx.expect("(")?;
        let dims = cx.commas(|cx| {
            let count = cx.expr()?;
            let by = if cx.eat("by") { cx.integer()? } else { 1 };
            cx.expect("step")?;
            let step = cx.expr()?;
            let corner = if cx.eat("from") { cx.integer()? } else { 0 };
            let offset = if cx.eat("offset") { cx.expr()? } else { Expr::zero() };
            cx.expect("below")?;
            Ok(PointDim { count, by, step, corner, offset, end: cx.expr()? })
        })?;
        cx.expect(")")?;
        cx.expect(",")?;
        Ok(BoxPoints { count, first, dims })
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
        Ok(Stmt::Act(Act::Prefetch { mem, index, ahead, guard: cx.guards()? }))
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
        Ok(Stmt::Act(Act::Let { val, op }))
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

    /// `x[i]`, of flat memory.
    fn flat_element(&self, cx: &mut Cursor) -> Result<(Mem, Expr)> {
        let mem = self.mems.name(cx)?;
        cx.expect("[")?;
        let at = cx.expr()?;
        cx.expect("]")?;
        Ok((mem, at))
    }

    /// `x[i]`, `x[i step 32]` with the distance between the rows of a matrix, or `x[i step 4, 2, 1]` with those in a fragment.
    fn place(&self, cx: &mut Cursor) -> Result<(Mem, Vec<Expr>, Vec<Expr>)> {
        let mem = self.mems.name(cx)?;
        cx.expect("[")?;
        let mut index = Vec::new();
        if !cx.is("]") {
            index = cx.commas(Cursor::expr)?;
        }
        let is_matrix = index.len() == 1 && cx.eat("step");
        let steps = if is_matrix { cx.commas(Cursor::expr)? } else { Vec::new() };
        cx.expect("]")?;
        Ok((mem, index, steps))
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
            let (mem, index, steps) = self.place(cx)?;
            match steps[..] {
                [step] => Ok(Matrix { mem, first: index[0], step }),
                _ => Err(cx.error("syntax", "expected a matrix, as `x[i step 32]`")),
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
        Ok(Stmt::Act(Act::MatrixProduct(MatrixProduct {
            by,
            sum,
            left,
            right,
            rows,
            columns,
            depth,
            over,
            is_from_zero,
        })))
    }

    /// `a[0 step 4, 2, 1]`, or `x[32*n] rows n`.
    fn fragment_operand(&self, cx: &mut Cursor) -> Result<Operand> {
        let (mem, index, steps) = self.place(cx)?;
        match (&index[..], &steps[..]) {
            ([first], []) if cx.is("rows") || cx.is("columns") => {
                let is_transposed = cx.eat("columns") || !cx.eat("rows");
                let row = cx.sym()?;
                Ok(Operand::Rows(Rows { mem, row, first: *first, is_transposed, panels: panels(cx)? }))
            }
            ([first], &[along, down, inner]) => {
                Ok(Operand::Own(Fragment { mem, first: *first, steps: [along, down, inner] }))
            }
            _ => Err(cx.error("syntax", "expected a fragment, as `a[i step 4, 2, 1]`, or `x[32*n] rows n`")),
        }
    }

    /// The rest of `a[0 step 4, 2, 1] left of mma.m16n8k16.bf16= x[32*n] rows n` or of `acc[0 step 0, 2, 1] mma.m16n8k16.bf16= fragments
    /// a[0 step 4, 2, 1] by b[0 step 2, 0, 1]`.
    fn fragments(&self, cx: &mut Cursor, own: Fragment) -> Result<Stmt> {
        let side = Side::OPERANDS.into_iter().find(|side| cx.eat(side.name()));
        if side.is_some() {
            cx.expect("of")?;
        }
        let Some(by) = Reader::instruction(cx)? else {
            return Err(cx.expected("an instruction for products of matrices"));
        };
        let Some(side) = side else {
            cx.expect("fragments")?;
            let left = self.fragment_operand(cx)?;
            cx.expect("by")?;
            let right = self.fragment_operand(cx)?;
            let mut columns = by.columns;
            if by.is_of_warpgroup() {
                cx.expect("in")?;
                columns = cx.integer()?;
            }
            let product = FragmentProduct { by, columns, sum: own, left, right };
            return Ok(Stmt::Act(Act::FragmentProduct(product)));
        };
        let Operand::Rows(rows) = self.fragment_operand(cx)? else {
            return Err(cx.error("syntax", "expected where rows begin, as `x[32*n] rows n`"));
        };
        Ok(Stmt::Act(Act::FragmentLoad(FragmentLoad { by, side, into: own, rows })))
    }

    /// `x[index] sum= %v if guards`, a [`Act::MulAdd`], [`Act::Dot`], [`Act::MatrixProduct`], [`Act::ArgStore`] or
    /// [`Act::Lanes`].
    fn store(&mut self, cx: &mut Cursor) -> Result<Stmt> {
        let atomic = cx.eat("atomic");
        let (mem, index, steps) = self.place(cx)?;
        match steps[..] {
            [] => {}
            [step] if !atomic => return self.matrix_product(cx, mem, index[0], step),
            [along, down, inner] if !atomic => {
                return self.fragments(cx, Fragment { mem, first: index[0], steps: [along, down, inner] });
            }
            _ => return Err(cx.error("syntax", "expected an element, found a matrix")),
        }
        if !atomic && let Some(by) = Reader::instruction(cx)? {
            return Ok(Stmt::Act(Act::Dot(Dot { by, mem, index, terms: self.terms(cx)? })));
        }
        if !atomic && cx.eat(",") {
            return self.arg_store(cx, mem, index);
        }
        if !atomic && cx.eat("fma") {
            cx.expect("=")?;
            let a = self.vals.value(cx)?;
            cx.expect(",")?;
            let factors = [a, self.vals.value(cx)?];
            return Ok(Stmt::Act(Act::MulAdd { mem, index, factors, guard: cx.guards()? }));
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
            return Ok(Stmt::Act(Act::Lanes(LaneReduction {
                op,
                into,
                from,
                positions,
                index,
                first,
                lanes,
                copies,
                atomic,
            })));
        }
        let value = self.vals.value(cx)?;
        Ok(Stmt::Act(Act::Store { mem, index, value, combine, guard: cx.guards()?, atomic }))
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
            return Ok(Stmt::Act(Act::Lanes(LaneReduction {
                op,
                into,
                from,
                positions,
                index,
                first,
                lanes,
                copies,
                atomic,
            })));
        }
        let value = self.vals.value(cx)?;
        cx.expect(",")?;
        Ok(Stmt::Act(Act::ArgStore { max, best, at, index, value, position: cx.expr()? }))
    }
}

/// The rest of `x[64*n] columns n panels 64 step 4096`, of rows that are cut into panels.
fn panels(cx: &mut Cursor) -> Result<Option<Panels>> {
    if !cx.eat("panels") {
        return Ok(None);
    }
    let columns = cx.integer()?;
    cx.expect("step")?;
    Ok(Some(Panels { columns, step: cx.expr()? }))
}
