//! Lowers the leaves of a plan's tree to straight-line statements.

use super::accumulator::{Accumulator, store};
use super::{Builder, Env, Held, bound};
use litz_analysis::apart::may_be_below;
use litz_analysis::collisions::colliding_axes;
use litz_analysis::copies::read_of;
use litz_analysis::inside::is_inside;
use litz_analysis::parts::{needed_in, placing};
use litz_ir::kernel::{Act, Op, Stmt, Val};
use litz_ir::loops::{self, Axis, BindOf, Buf, InstOp, Nest};
use litz_ir::schedule::{Block, Leaf, Part, Tree};
use litz_ir::{Diag, Dtype, ReduceOp, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::collections::HashMap;
use std::rc::Rc;

/// A leaf on its way to statements.
pub(super) struct Run<'a, 'e> {
    pub(super) leaf: &'a Leaf,
    pub(super) nest: &'a Nest,
    /// The accumulators of the nest in the innermost scope around.
    pub(super) accumulators: Rc<[Accumulator]>,
    /// The local buffers that are declared around, outermost first.
    pub(super) locals: &'e [Held<'a>],
    pub(super) facts: &'e Facts,
    /// The loops around that are over levels of the machine.
    levels: Vec<Axis>,
    /// What counts the elements of a vector, where that is the innermost loop around.
    pub(super) of_vector: Option<Axis>,
    /// Guards for axes no loop keeps in range.
    pub(super) guard: Vec<Rel>,
    values: HashMap<loops::Val, Val>,
    /// Of values that are zero where some of the guards fail, those guards: what they load is stored so
    /// ([`Builder::zeros`]).
    zeros: HashMap<loops::Val, Vec<Rel>>,
    /// Symbols bound in the nest, renamed for the kernel.
    renamed: HashMap<Sym, Expr>,
}

impl Run<'_, '_> {
    /// An index expression of the nest in terms of loop variables.
    pub(super) fn expr(&self, e: Expr) -> Expr {
        let here = e.subst(&|s| self.renamed.get(&s).copied().or_else(|| bound(self.leaf, s)));
        if here == e { e } else { self.facts.simplify(here) }
    }

    /// Coordinates of the nest in terms of loop variables.
    pub(super) fn exprs(&self, index: &[Expr]) -> Vec<Expr> {
        index.iter().map(|&at| self.expr(at)).collect()
    }

    fn rel(&self, r: &Rel) -> Rel {
        Rel { cmp: r.cmp, lhs: self.expr(r.lhs), rhs: self.expr(r.rhs) }
    }
}

/// Statements of adjacent leaves, in one straight line.
#[derive(Default)]
struct StraightLine {
    stmts: Vec<Stmt>,
    /// Values of elements stored above and not overwritten since, by their coordinates.
    stored: HashMap<(Buf, Vec<Expr>), Val>,
}

impl<'a> Builder<'a> {
    /// The accumulator of the reduction at position `inst` of the nest that `run` is a leaf of.
    fn accumulator(&self, run: &Run<'a, '_>, inst: usize) -> Result<Accumulator, Diag> {
        let found = run.accumulators.iter().find(|accumulator| accumulator.inst == inst);
        found.cloned().ok_or_else(|| self.error(format!("{} combines before its init", run.nest.name)))
    }

    /// Translates adjacent leaves as one straight line.
    pub(super) fn leaves(
        &mut self,
        leaves: &[&'a Leaf],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let mut line = StraightLine::default();
        for &leaf in leaves {
            self.leaf(leaf, env, &mut line)?;
        }
        out.extend(line.stmts);
        Ok(())
    }

    fn leaf(&mut self, leaf: &'a Leaf, env: &Env<'a>, line: &mut StraightLine) -> Result<(), Diag> {
        let nest = self.nest(leaf)?;
        let guard = self.guards(leaf, nest, env)?;
        let accumulators = self.accumulators_around(nest, env);
        let mut run = Run {
            leaf,
            nest,
            accumulators,
            locals: &env.locals,
            facts: &env.facts,
            levels: env.levels().collect(),
            of_vector: env.of_vector(),
            guard,
            values: HashMap::new(),
            zeros: HashMap::new(),
            renamed: HashMap::new(),
        };
        let mut wanted = needed_in(nest, leaf.part);
        if let Some(block) = leaf.block {
            // The address decides whether the element is in the block, so what computes it cannot depend on that.
            let place = placing(nest);
            let guard = run.guard.clone();
            run.guard.retain(|rel| is_of_place(nest, leaf, &place, rel));
            self.instructions(&place, &mut run, line)?;
            run.guard = guard;
            wanted.iter_mut().zip(&place).for_each(|(wanted, done)| *wanted &= !done);
            let mut inside = StraightLine::default();
            self.instructions(&wanted, &mut run, &mut inside)?;
            let cond = self.in_block(block, &run)?;
            // Whether the branch overwrites what was stored before is not known behind it.
            line.stored.clear();
            line.stmts.push(Stmt::If { cond, then: inside.stmts, other: Vec::new() });
            return Ok(());
        }
        self.instructions(&wanted, &mut run, line)
    }

    /// Translates the instructions that are wanted.
    fn instructions(
        &mut self,
        wanted: &[bool],
        run: &mut Run<'a, '_>,
        line: &mut StraightLine,
    ) -> Result<(), Diag> {
        for i in (0..wanted.len()).filter(|&i| wanted[i]) {
            let value = self.instruction(i, run, line)?;
            let at = loops::Val(i as u32);
            run.values.insert(at, value);
            let zeros = self.zeros_of(i, run);
            if !zeros.is_empty() {
                run.zeros.insert(at, zeros);
            }
        }
        Ok(())
    }

    /// What holds where the element that a leaf stores to is in a block.
    fn in_block(&self, block: Block, run: &Run<'a, '_>) -> Result<Vec<Rel>, Diag> {
        let place = |inst: &loops::Inst| {
            let InstOp::Store { buf, index, .. } = &inst.op else { return None };
            Some(self.loops.place(run.nest, *buf, index))
        };
        let mut stores = run.nest.body.iter().filter_map(place);
        let (Some(place), None) = (stores.next(), stores.next()) else {
            return Err(self.error(format!("{}: a block is one of a single store", run.nest.name)));
        };
        let (place, Block { number, width }) = (run.expr(place), block);
        // Where a guard fails nothing is stored, wherever that would be.
        let mut guarded = run.facts.clone();
        let holds = run.guard.iter().all(|&rel| guarded.assume(rel));
        let facts = if holds { &guarded } else { run.facts };
        // w*x + y < w*n where x + floordiv(y, w) < n: one question for all elements of a row, of which none is past its end.
        let stride = |chosen: &Expr| place.linear(chosen.as_sym()?)?.0.as_int().filter(|&stride| stride > 0);
        let row = run.renamed.values().filter_map(stride).min().filter(|&row| facts.divides(row, width));
        let of_rows = row.map(|row| [place, width].map(|e| facts.simplify(e.floordiv(row))));
        let (value, width) = match of_rows {
            Some([row, rows]) if row.as_floordiv().is_none() => (row, rows),
            // Where sizes are symbols: floordiv(w*x + y, w*n) == floordiv(x, n) for 0 <= y < w.
            Some(_) | None => facts.simplify(place.floordiv(width)).as_floordiv().unwrap_or((place, width)),
        };
        let first = facts.simplify(number * width);
        Ok(vec![Rel::le(first, value), Rel::lt(value, first + width)])
    }

    /// What must hold for the leaf's point to be in its nest's domain, as far as nothing around sees to it.
    pub(super) fn guards(&self, leaf: &Leaf, nest: &'a Nest, env: &Env<'a>) -> Result<Vec<Rel>, Diag> {
        let mut guards = Vec::new();
        for axis in nest.all_axes() {
            let Some(value) = bound(leaf, axis.var) else {
                if !leaf.part.is_along_reduced() && nest.is_running(axis.var) {
                    continue;
                }
                return Err(self.error(format!("{}: axis {} is not bound", nest.name, axis.var)));
            };
            if !leaf.masked {
                continue;
            }
            if !is_inside(value, axis.extent, &env.facts) {
                guards.push(Rel::lt(value, axis.extent));
            }
            if may_be_below(value, &env.facts) {
                guards.push(Rel::le(0, value));
            }
        }
        Ok(guards)
    }

    /// Guards without which a value is zero: of elements of copies that hold zeros, and of products of two such.
    fn zeros_of(&self, at: usize, run: &Run<'a, '_>) -> Vec<Rel> {
        let op = &run.nest.body[at].op;
        if run.guard.is_empty() {
            return Vec::new();
        }
        let of = |value: &loops::Val| run.zeros.get(value).map_or(&[][..], Vec::as_slice);
        if let InstOp::Load { buf, index, .. } = op {
            let (buf, _) = read_of(run.nest, (at, *buf), run.locals.iter().cloned());
            return self.zeros((buf, index), &run.guard, run);
        }
        if let InstOp::Cast(value) = op {
            return of(value).to_vec();
        }
        // Of one factor alone that is zero the other one may be infinite.
        let InstOp::Op(ScalarOp::Mul, factors) = op else { return Vec::new() };
        let [a, b] = &factors[..] else { return Vec::new() };
        of(a).iter().filter(|rel| of(b).contains(rel)).copied().collect()
    }

    /// What guards a combination with an accumulator: all that says whether the point exists where reduced axes may end, else what an
    /// access of the accumulator needs.
    fn combined_where(&self, acc: &Accumulator, run: &Run<'a, '_>) -> Vec<Rel> {
        let is_reduced = |rel: &&Rel| run.nest.reduced.iter().any(|axis| is_of_axis(run.leaf, axis, rel));
        // Points past the end of an outer axis have elements of their own here, of which no store takes the results: whatever is
        // combined into them is harmless. Points past the end of a reduced axis would be added to sums that count.
        let guard = acc.guard_of(run.leaf, &run.guard, run.facts);
        match guard.is_empty() {
            true => run.guard.iter().filter(is_reduced).copied().collect(),
            false => guard,
        }
    }

    fn define(&mut self, ty: Dtype, op: Op, line: &mut StraightLine) -> Val {
        let val = self.value(ty);
        line.stmts.push(Stmt::Act(Act::Let { val, op }));
        val
    }

    /// Translates instruction `i`; the value that later ones use in its place.
    fn instruction(&mut self, i: usize, run: &mut Run<'a, '_>, line: &mut StraightLine) -> Result<Val, Diag> {
        let inst = &run.nest.body[i];
        let ty = inst.ty.compute();
        let value = match &inst.op {
            InstOp::Load { buf, index, guard, other } => {
                return self.load((i, *buf, index), guard, *other, ty, run, line);
            }
            InstOp::Const(s) => self.define(ty, Op::Const(*s), line),
            InstOp::Index(e) => self.define(ty, Op::Index(run.expr(*e)), line),
            InstOp::Cond(r) => self.define(ty, Op::Cond(run.rel(r)), line),
            InstOp::Op(op, args) => {
                let args = args.iter().map(|a| run.values[a]).collect();
                let val = self.define(ty, Op::Call(*op, args), line);
                // These give an operand, up to its sign: what was rounded before stays so.
                let exact = matches!(
                    op,
                    ScalarOp::Max | ScalarOp::Min | ScalarOp::Neg | ScalarOp::Abs | ScalarOp::Select
                );
                if ty == inst.ty || exact { val } else { self.define(ty, Op::Round(inst.ty, val), line) }
            }
            InstOp::Cast(v) => {
                let from = run.nest.body[v.0 as usize].ty;
                let val = run.values[v];
                let wide = if from.compute() == ty { val } else { self.define(ty, Op::Cast(val), line) };
                let exact = ty == inst.ty || from == inst.ty;
                if exact { wide } else { self.define(ty, Op::Round(inst.ty, wide), line) }
            }
            InstOp::Bitcast(v) => {
                let from = run.nest.body[v.0 as usize].ty;
                if from.compute() != from || ty != inst.ty {
                    return Err(
                        self.error(format!("{}: bit casts of half types have no realisation", run.nest.name))
                    );
                }
                self.define(ty, Op::Bitcast(run.values[v]), line)
            }
            InstOp::Bind { sym, value, extent, of } => {
                self.bind((*sym, *of), run.values[value], *extent, run, line)
            }
            InstOp::Reduce(op, v) => {
                let acc = self.accumulator(run, i)?;
                let index = acc.index(run.leaf, run.facts);
                if run.leaf.part == Part::Final {
                    let (guard, other) = (acc.guard_of(run.leaf, &run.guard, run.facts), op.identity(ty));
                    return Ok(self.define(ty, Op::Load { mem: acc.mem, index, guard, other }, line));
                }
                let value = run.values[v];
                let mut guard = self.combined_where(&acc, run);
                // A sum begins at +0, which a zero of either sign leaves as it is.
                if let (ReduceOp::Sum, Some(zeros)) = (op, run.zeros.get(v)) {
                    guard.retain(|rel| !zeros.contains(rel));
                }
                line.stmts.push(store(acc.mem, index, value, Some(*op), guard));
                value
            }
            InstOp::ArgReduce { max, value } => {
                let acc = self.accumulator(run, i)?;
                let at = acc.at.expect("invariant: an arg-reduction has a position");
                let index = acc.index(run.leaf, run.facts);
                if run.leaf.part == Part::Final {
                    let (guard, other) = (acc.guard_of(run.leaf, &run.guard, run.facts), Scalar::Int(0));
                    return Ok(self.define(ty, Op::Load { mem: at, index, guard, other }, line));
                }
                let coords: Vec<Expr> = run.nest.reduced.iter().map(|a| run.expr(Expr::sym(a.var))).collect();
                let extents: Vec<Expr> = run.nest.reduced.iter().map(|a| a.extent).collect();
                let value = run.values[value];
                let position = run.facts.simplify(flatten(&coords, &extents));
                let combine =
                    Stmt::Act(Act::ArgStore { max: *max, best: acc.mem, at, index, value, position });
                let cond = self.combined_where(&acc, run);
                line.stmts.push(match cond.is_empty() {
                    true => combine,
                    false => Stmt::If { cond, then: vec![combine], other: Vec::new() },
                });
                value
            }
            InstOp::Scan { op, value, .. } => {
                let acc = self.accumulator(run, i)?;
                let index = acc.index(run.leaf, run.facts);
                let (guard, other) = (acc.guard_of(run.leaf, &run.guard, run.facts), op.identity(ty));
                line.stmts.push(store(acc.mem, index.clone(), run.values[value], Some(*op), guard.clone()));
                self.define(ty, Op::Load { mem: acc.mem, index, guard, other }, line)
            }
            InstOp::Store { buf, index, value, combine } => {
                let value = run.values[value];
                self.store((*buf, index), value, *combine, run, line)?;
                value
            }
        };
        Ok(value)
    }

    /// An element that the instruction at a position loads: the value just stored to it, or what memory holds.
    fn load(
        &mut self,
        (at, buf, index): (usize, Buf, &[Expr]),
        guard: &[Rel],
        other: Scalar,
        ty: Dtype,
        run: &Run<'a, '_>,
        line: &mut StraightLine,
    ) -> Result<Val, Diag> {
        let (buf, _) = read_of(run.nest, (at, buf), run.locals.iter().cloned());
        if guard.is_empty()
            && run.guard.is_empty()
            && line.stored.keys().any(|stored| stored.0 == buf)
            && let Some(&val) = line.stored.get(&(buf, run.exprs(index)))
        {
            return Ok(val);
        }
        let own: Vec<Rel> = guard.iter().map(|r| run.rel(r)).collect();
        if let Some((mem, index, guard)) = self.surroundings((buf, index), run) {
            return Ok(self.define(ty, Op::Load { mem, index, guard, other }, line));
        }
        // Where the leaf does not run, nobody asks what it loads.
        let of_leaf = if self.has_room((buf, index), run) { run.guard.clone() } else { Vec::new() };
        let of_load = match other == Scalar::zero(ty) {
            true => self.zeros((buf, index), &own, run),
            false => Vec::new(),
        };
        let (mem, index) = self.element(buf, index, run)?;
        let remaining = |guards: &[Rel], zeros: &[Rel]| -> Vec<Rel> {
            guards.iter().filter(|rel| !zeros.contains(rel)).copied().collect()
        };
        let guard = [remaining(&own, &of_load), remaining(&run.guard, &of_leaf)].concat();
        Ok(self.define(ty, Op::Load { mem, index, guard, other }, line))
    }

    fn store(
        &mut self,
        (buf, index): (Buf, &[Expr]),
        value: Val,
        combine: Option<ReduceOp>,
        run: &Run<'a, '_>,
        line: &mut StraightLine,
    ) -> Result<(), Diag> {
        // Another index may be that of the same element, so a store to a buffer ends what is known of its elements. A value that
        // is combined, or stored under a guard that may fail, is not what the element holds then.
        line.stored.retain(|(b, _), _| *b != buf);
        if combine.is_none() && run.guard.is_empty() {
            line.stored.insert((buf, run.exprs(index)), value);
        }
        let atomic = combine.is_some() && self.meets_other_points(run);
        let needless = self.unneeded((buf, index), &run.guard, run);
        let (mem, index) = self.element(buf, index, run)?;
        let guard = run.guard.iter().filter(|rel| !needless.contains(rel)).copied().collect();
        line.stmts.push(Stmt::Act(Act::Store { mem, index, value, combine, guard, atomic }));
        Ok(())
    }

    /// Whether others that run at once may combine into the elements that a leaf combines into.
    fn meets_other_points(&self, run: &Run<'a, '_>) -> bool {
        // Each block of the buffer is that of one iteration of a loop, and no other iteration stores there.
        if run.leaf.block.is_some() {
            return false;
        }
        let colliding = colliding_axes(self.loops, run.nest);
        let is_apart = |axis: &Axis| {
            let mut bound = run.leaf.bind.iter().filter(|bind| bind.1.has_sym(axis.var)).peekable();
            axis.extent.is_one() || bound.peek().is_some() && bound.all(|bind| !colliding.contains(&bind.0))
        };
        !self.plan.grid.iter().chain(&run.levels).all(is_apart)
    }

    /// Checks an index that was computed from data, under a name that no other leaf gives.
    fn bind(
        &mut self,
        (sym, of): (Sym, BindOf),
        value: Val,
        extent: Expr,
        run: &mut Run<'a, '_>,
        line: &mut StraightLine,
    ) -> Val {
        let check = self.kernel.checks.len() as u32;
        let mut fresh = Sym::new(&format!("{sym}_{check}"));
        while self.is_loop_or_size(fresh) {
            fresh = Sym::new(&format!("{fresh}_"));
        }
        self.kernel.checks.push(of.failure(&run.nest.from));
        run.renamed.insert(sym, Expr::sym(fresh));
        let extent = run.expr(extent);
        let value = self.guarded_index(value, &run.guard, line);
        line.stmts.push(Stmt::Act(Act::Bind { sym: fresh, value, extent, check }));
        value
    }

    /// Whether a loop of the kernel, or a size, has this name.
    fn is_loop_or_size(&self, name: Sym) -> bool {
        let mut found = self.loops.facts.is_symbol_declared(name);
        found |= self.plan.grid.iter().any(|axis| axis.var == name);
        self.plan.body.iter().for_each(|tree| {
            tree.visit(&mut |tree| found |= matches!(tree, Tree::Loop { axis, .. } if axis.var == name));
        });
        found
    }

    /// `value` where the guards hold, 0 elsewhere: points outside of the domain have no index to check.
    fn guarded_index(&mut self, value: Val, guard: &[Rel], line: &mut StraightLine) -> Val {
        guard.iter().fold(value, |value, &rel| {
            let holds = self.define(Dtype::Bool, Op::Cond(rel), line);
            let zero = self.define(Dtype::I64, Op::Const(Scalar::Int(0)), line);
            self.define(Dtype::I64, Op::Call(ScalarOp::Select, vec![holds, value, zero]), line)
        })
    }
}

/// Whether a guard of a leaf is for an axis that decides where its nest stores, as far as data does: that of other axes is of no account there.
fn is_of_place(nest: &Nest, leaf: &Leaf, place: &[bool], guard: &Rel) -> bool {
    let decides = |var: Sym| {
        let insts = nest.body.iter().zip(place).filter(|inst| *inst.1);
        insts.flat_map(|inst| inst.0.op.exprs()).any(|e| e.has_sym(var))
    };
    nest.all_axes().any(|axis| is_of_axis(leaf, axis, guard) && decides(axis.var))
}

/// Whether a guard of a leaf says that it is at a point of an axis.
fn is_of_axis(leaf: &Leaf, axis: &Axis, guard: &Rel) -> bool {
    bound(leaf, axis.var)
        .is_some_and(|value| [Rel::lt(value, axis.extent), Rel::le(0, value)].contains(guard))
}

/// Row-major position of coordinates in extents.
fn flatten(coords: &[Expr], extents: &[Expr]) -> Expr {
    coords.iter().zip(extents).fold(Expr::zero(), |flat, (&c, &n)| flat * n + c)
}
