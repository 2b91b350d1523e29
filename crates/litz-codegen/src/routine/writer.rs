//! Writes kernels statement by statement.

use litz_ir::kernel::{Act, Element, Kernel, KernelLoopKind, Loop, Mem, MemData, MemorySpace, Op, Stmt, Val};
use litz_ir::loops::Axis;
use litz_ir::scalar::Signature;
use litz_ir::target::Level;
use litz_ir::{Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::HashSet;

/// A kernel in the making.
pub(super) struct Writer {
    kernel: Kernel,
    /// Names that symbols have.
    taken: HashSet<&'static str>,
}

impl Writer {
    /// An empty kernel, whose sizes are symbols of `facts`.
    pub(super) fn new(name: &str, facts: &Facts) -> Writer {
        let taken = facts.symbols().map(Sym::name).collect();
        Writer { kernel: Kernel { facts: facts.clone(), ..Kernel::new(name) }, taken }
    }

    /// Leaves threads so many registers at most.
    pub(super) fn limit_registers(&mut self, most: u32) {
        self.kernel.registers = Some(most);
    }

    /// What was written.
    pub(super) fn finish(self) -> Kernel {
        self.kernel
    }

    /// A parameter of so many elements. All of them come ahead of locals.
    pub(super) fn param(&mut self, name: &str, dtype: Dtype, extent: Expr, space: MemorySpace) -> Mem {
        self.kernel.params += 1;
        self.kernel.mems.push(MemData::flat(name, dtype, extent, space))
    }

    /// Memory of the kernel.
    pub(super) fn local(&mut self, name: &str, dtype: Dtype, extent: i64, space: MemorySpace) -> Mem {
        self.kernel.mems.push(MemData::flat(name, dtype, Expr::int(extent), space))
    }

    /// A symbol that has no other meaning.
    fn sym(&mut self, name: &str) -> Sym {
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered).map(|name| Sym::new(&name));
        let sym = names.find(|sym| !self.taken.contains(sym.name()));
        let sym = sym.expect("invariant: there are more numbers than symbols");
        self.taken.insert(sym.name());
        sym
    }

    /// An axis of the grid.
    pub(super) fn axis(&mut self, name: &str, extent: Expr) -> Expr {
        let var = self.sym(name);
        self.kernel.grid.push(Axis { var, extent });
        Expr::sym(var)
    }

    /// The statements that `body` adds.
    fn block(&mut self, body: impl FnOnce(&mut Writer)) -> Vec<Stmt> {
        let around = std::mem::take(&mut self.kernel.body);
        body(self);
        std::mem::replace(&mut self.kernel.body, around)
    }

    fn repeat(
        &mut self,
        kind: KernelLoopKind,
        name: &str,
        extent: Expr,
        body: impl FnOnce(&mut Writer, Expr),
    ) {
        let var = self.sym(name);
        let body = self.block(|w| body(w, Expr::sym(var)));
        self.kernel.body.push(Stmt::Loop(Loop { kind, var, extent, body }));
    }

    /// A loop whose iterations run one after another.
    pub(super) fn sequence(
        &mut self,
        name: &str,
        extent: impl Into<Expr>,
        body: impl FnOnce(&mut Writer, Expr),
    ) {
        self.repeat(KernelLoopKind::For, name, extent.into(), body);
    }

    /// A loop that is written out.
    pub(super) fn unroll(&mut self, name: &str, extent: i64, body: impl FnOnce(&mut Writer, Expr)) {
        self.repeat(KernelLoopKind::Unroll, name, Expr::int(extent), body);
    }

    /// A loop over units of a level.
    pub(super) fn each(&mut self, level: Level, extent: i64, body: impl FnOnce(&mut Writer, Expr)) {
        self.repeat(KernelLoopKind::Level(level.into()), level.name(), Expr::int(extent), body);
    }

    /// Runs `body` for each number below `count`, by so many threads.
    pub(super) fn spread(&mut self, count: i64, threads: i64, body: impl FnOnce(&mut Writer, Expr)) {
        let threads = threads.min(count);
        self.each(Level::Thread, threads, |w, thread| w.rounds(count, (thread, threads), body));
    }

    /// Runs `body` for the numbers below `count` that are those of one of so many units.
    pub(super) fn rounds(
        &mut self,
        count: i64,
        (unit, units): (Expr, i64),
        body: impl FnOnce(&mut Writer, Expr),
    ) {
        let inside = |w: &mut Writer, at: Expr| {
            let is_inside = if count % units == 0 { Vec::new() } else { vec![Rel::lt(at, count)] };
            w.when(is_inside, |w| body(w, at));
        };
        match Expr::int(count).ceildiv(units) {
            rounds if rounds.is_one() => inside(self, unit),
            rounds => self.sequence("round", rounds, |w, round| inside(w, round * units + unit)),
        }
    }

    /// Statements for where all of `cond` hold.
    pub(super) fn when(&mut self, cond: Vec<Rel>, body: impl FnOnce(&mut Writer)) {
        let then = self.block(body);
        match cond.is_empty() {
            true => self.kernel.body.extend(then),
            false => self.kernel.body.push(Stmt::If { cond, then, other: Vec::new() }),
        }
    }

    fn value(&mut self, dtype: Dtype, op: Op) -> Val {
        let val = self.kernel.vals.push(dtype);
        self.kernel.body.push(Stmt::Act(Act::Let { val, op }));
        val
    }

    /// The type of a value.
    pub(super) fn dtype(&self, val: Val) -> Dtype {
        self.kernel.vals[val]
    }

    /// An element where all of `guard` hold, else zero.
    pub(super) fn load(&mut self, mem: Mem, index: Expr, guard: Vec<Rel>) -> Val {
        let dtype = self.kernel.mems[mem].dtype.compute();
        let other = Scalar::zero(dtype);
        self.value(dtype, Op::Load { mem, index: vec![index], guard, other })
    }

    /// Stores a value.
    pub(super) fn store(&mut self, mem: Mem, index: Expr, value: Val, guard: Vec<Rel>) {
        let store = Act::Store { mem, index: vec![index], value, combine: None, guard, atomic: false };
        self.kernel.body.push(store.into());
    }

    /// Copies an element bit by bit.
    pub(super) fn copy(&mut self, from: (Mem, Expr), to: (Mem, Expr)) {
        let element = |(mem, index)| Element { mem, index: vec![index], guard: Vec::new() };
        let (from, to) = (element(from), element(to));
        self.kernel.body.push(Act::Copy { count: 1, from, along: None, to, is_async: false }.into());
    }

    /// An integer or a truth value.
    pub(super) fn int(&mut self, dtype: Dtype, value: i64) -> Val {
        self.value(dtype, Op::Const(Scalar::Int(value).to(dtype)))
    }

    /// An index, as a number of 64 bits.
    pub(super) fn index(&mut self, at: Expr) -> Val {
        self.value(Dtype::I64, Op::Index(at))
    }

    /// Whether a relation holds.
    pub(super) fn holds(&mut self, rel: Rel) -> Val {
        self.value(Dtype::Bool, Op::Cond(rel))
    }

    /// An operation.
    pub(super) fn op<const N: usize>(&mut self, op: ScalarOp, args: [Val; N]) -> Val {
        let dtype = match op.signature() {
            Signature::Compare => Dtype::Bool,
            Signature::Same | Signature::Float | Signature::Bits | Signature::Select => {
                self.dtype(args[N - 1])
            }
        };
        self.value(dtype, Op::Call(op, args.to_vec()))
    }

    /// A conversion.
    pub(super) fn cast(&mut self, dtype: Dtype, value: Val) -> Val {
        if self.dtype(value) == dtype { value } else { self.value(dtype, Op::Cast(value)) }
    }

    /// The same bits as another type.
    pub(super) fn bitcast(&mut self, dtype: Dtype, value: Val) -> Val {
        self.value(dtype, Op::Bitcast(value))
    }

    /// A value as an index below `extent`, which is checked.
    pub(super) fn bind(&mut self, value: Val, extent: Expr) -> Expr {
        let value = self.cast(Dtype::I64, value);
        let sym = self.sym("at");
        if self.kernel.checks.is_empty() {
            self.kernel.checks.push("a position of a sorted row is outside of it".to_owned());
        }
        self.kernel.body.push(Act::Bind { sym, value, extent, check: 0 }.into());
        Expr::sym(sym)
    }
}
