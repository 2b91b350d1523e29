//! Running values of reductions and scans: where they live, where they start, how parts are added up.

use super::local::is_tile;
use super::{Builder, Env, MAX_REGISTER_ELEMENTS, TileLoop, bound, collect_leaves, load, loop_kind};
use litz_ir::kernel::{Loop, LoopKind, Mem, Op, Space, Stmt, Val};
use litz_ir::loops::{Axis, InstOp, Nest};
use litz_ir::schedule::{self, Leaf, Part, Tree};
use litz_ir::{Diag, Dtype, ReduceOp, Scalar};
use litz_sym::{Expr, Facts, Sym};
use std::collections::HashMap;

/// The running value of a reduction: one element for each point in flight.
#[derive(Clone)]
pub(super) struct Accumulator {
    pub(super) mem: Mem,
    /// Position of the best value, for an arg-reduction.
    pub(super) at: Option<Mem>,
    /// Tiles it has an element for each point of. They keep their variables wherever they are sunk to. Extents are those
    /// of the array: whole vectors, so that each row starts with one. Where tiles begin inside the reduction so do all loops
    /// there, if the tail has loops over the same variables.
    tiles: Vec<Axis>,
    /// Outer axes that loops inside the reduction run along: axis, value at the first point, extent.
    dims: Vec<(Sym, Expr, Expr)>,
}

impl Accumulator {
    fn extents(&self) -> Vec<Expr> {
        self.tiles.iter().map(|t| t.extent).chain(self.dims.iter().map(|d| d.2)).collect()
    }

    /// The coordinates of the element for the point at which `leaf` runs.
    pub(super) fn index(&self, leaf: &Leaf, facts: &Facts) -> Vec<Expr> {
        let along = self.dims.iter().map(|(axis, first, _)| {
            let value = bound(leaf, *axis).unwrap_or(Expr::zero());
            facts.simplify(value - *first)
        });
        self.tiles.iter().map(|t| Expr::sym(t.var)).chain(along).collect()
    }

    fn has_tile(&self, var: Sym) -> bool {
        self.tiles.iter().any(|t| t.var == var)
    }
}

impl<'a> Builder<'a> {
    /// The accumulator of the reduction at position `at` of `nest`.
    pub(super) fn accumulator(&self, nest: &'a Nest, at: usize) -> Result<Accumulator, Diag> {
        self.accumulators
            .get(&(nest.name.as_str(), at))
            .cloned()
            .ok_or_else(|| self.error(format!("{}: its tail comes before its body", nest.name)))
    }

    /// Sets up the accumulators of reductions whose loops begin here: those of leaves below `trees` that bind a
    /// reduced axis by a loop directly in `trees`, or by none at all.
    pub(super) fn start_accumulators(
        &mut self,
        trees: &'a [Tree],
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        for tree in trees {
            for (leaf, below) in collect_leaves(std::slice::from_ref(tree)) {
                let nest = self.nest(leaf)?;
                let running = running_axes(nest);
                if running.is_empty() || leaf.part == Part::Tail {
                    continue;
                }
                let is_bound_by =
                    |var: Sym| leaf.bind.iter().any(|(s, e)| running.contains(s) && e.has_sym(var));
                let mut around = env.path.iter().rev().take_while(|v| !v.partial);
                let is_started = around.any(|v| is_bound_by(v.var));
                // Partial sums are added up in memory: registers are for what runs inside.
                let (starts, space) = match tree {
                    Tree::Leaf(_) => (true, Space::Register),
                    Tree::Loop { kind: schedule::LoopKind::Partial, axis, .. } => {
                        (is_bound_by(axis.var), Space::Scratch)
                    }
                    // A tile is no loop of its own: its accumulators start where the loop below it does.
                    Tree::Loop { axis, .. } => (is_bound_by(axis.var), Space::Register),
                };
                if starts && !is_started {
                    self.start_nest(nest, leaf, &below, space, env, out)?;
                }
            }
        }
        Ok(())
    }

    fn start_nest(
        &mut self,
        nest: &'a Nest,
        leaf: &'a Leaf,
        below: &[Axis],
        space: Space,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let running = running_axes(nest);
        let mut outer = Vec::new();
        for axis in nest.axes.iter().filter(|a| !running.contains(&a.var)) {
            let Some(value) = bound(leaf, axis.var) else {
                return Err(self.error(format!("{}: axis {} is not bound", nest.name, axis.var)));
            };
            outer.push((axis.var, value));
        }
        let varies = |var: Sym| outer.iter().any(|(_, value)| value.has_sym(var));
        let mut tiles: Vec<Axis> =
            env.tiles.iter().filter(|t| varies(t.axis.var)).map(TileLoop::in_whole_vectors).collect();
        let inside: Vec<Axis> = below.iter().filter(|a| varies(a.var)).copied().collect();
        let is_held_back = |a: &Axis| loop_kind(&self.plan.body, a.var).is_some_and(is_tile);
        let is_tiled = inside.iter().any(is_held_back) && self.has_same_tail(leaf, &outer);
        if is_tiled {
            tiles.extend(inside);
        }
        let mut dims = Vec::new();
        for &(axis, value) in outer.iter().filter(|_| !is_tiled) {
            let used: Vec<Axis> = below.iter().filter(|a| value.has_sym(a.var)).copied().collect();
            if used.is_empty() {
                continue;
            }
            let first = value.subst(&|s| used.iter().any(|a| a.var == s).then(Expr::zero));
            let last = value.subst(&|s| used.iter().find(|a| a.var == s).map(|a| a.extent - 1));
            dims.push((axis, first, env.facts.simplify((last - first + 1).max(0))));
        }
        let mut accumulator = Accumulator { mem: Mem(0), at: None, tiles, dims };
        let sizes = accumulator.extents();
        let extent = sizes.iter().copied().product::<Expr>();
        let space = match extent.as_int() {
            Some(n) if accumulator.dims.is_empty() && !is_tiled && n <= MAX_REGISTER_ELEMENTS => space,
            _ => Space::Scratch,
        };
        for (i, inst) in nest.body.iter().enumerate() {
            let (op, value, is_arg) = match &inst.op {
                InstOp::Reduce(op, value) | InstOp::Scan { op, value, .. } => (*op, value, false),
                InstOp::ArgReduce { max: true, value } => (ReduceOp::Max, value, true),
                InstOp::ArgReduce { max: false, value } => (ReduceOp::Min, value, true),
                _ => continue,
            };
            let ty = nest.body[value.0 as usize].ty.compute();
            accumulator.mem = self.local(&format!("{}_acc{i}", nest.name), ty, sizes.clone(), space);
            accumulator.at =
                is_arg.then(|| self.local(&format!("{}_at{i}", nest.name), Dtype::I64, sizes.clone(), space));
            self.fill(&accumulator, op.identity(ty), ty, env, below, leaf, out);
            self.accumulators.insert((nest.name.as_str(), i), accumulator.clone());
        }
        Ok(())
    }

    /// Whether the tail of a leaf's nest takes the values `outer` of the outer axes, in terms of the same variables.
    fn has_same_tail(&self, leaf: &Leaf, outer: &[(Sym, Expr)]) -> bool {
        collect_leaves(&self.plan.body).into_iter().any(|(tail, _)| {
            let is_same = |(axis, value): &(Sym, Expr)| bound(tail, *axis) == Some(*value);
            tail.nest == leaf.nest && tail.part == Part::Tail && outer.iter().all(is_same)
        })
    }

    /// Stores the first value into every element of an accumulator.
    fn fill(
        &mut self,
        acc: &Accumulator,
        first: Scalar,
        ty: Dtype,
        env: &Env<'a>,
        below: &[Axis],
        leaf: &Leaf,
        out: &mut Vec<Stmt>,
    ) {
        let index = acc.index(leaf, &env.facts);
        let mut stmts = Vec::new();
        let mut store = |b: &mut Self, mem: Mem, first: Scalar, ty: Dtype| {
            let val = b.value(ty);
            stmts.push(Stmt::Let { val, op: Op::Const(first) });
            stmts.push(store(mem, index.clone(), val, None));
        };
        store(self, acc.mem, first, ty);
        if let Some(at) = acc.at {
            store(self, at, Scalar::Int(0), Dtype::I64);
        }
        // Loops around the fill: those below that span several outer points, and the tiles.
        let spans = |var: Sym| {
            let along_dim = |(axis, e): &(Sym, Expr)| e.has_sym(var) && acc.dims.iter().any(|d| d.0 == *axis);
            acc.has_tile(var) || leaf.bind.iter().any(along_dim)
        };
        for axis in below.iter().rev().filter(|a| spans(a.var)) {
            let kind = match loop_kind(&self.plan.body, axis.var) {
                Some(schedule::LoopKind::Mma) => LoopKind::Mma,
                Some(schedule::LoopKind::TileVector { lanes }) => LoopKind::Vector { lanes, copies: 1 },
                _ => LoopKind::For,
            };
            stmts = vec![Stmt::Loop(Loop { kind, var: axis.var, extent: axis.extent, body: stmts })];
        }
        self.wrap_in_tiles(&mut stmts, env, |tile| acc.has_tile(tile));
        out.extend(stmts);
    }

    /// Adds what one iteration of the partial loop `var` reduced to `totals`, the accumulators of the whole.
    pub(super) fn add_parts(
        &mut self,
        var: Sym,
        body: &'a [Tree],
        totals: &HashMap<(&'a str, usize), Accumulator>,
        env: &Env<'a>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        for (leaf, _) in collect_leaves(body).into_iter().filter(|(leaf, _)| leaf.part == Part::Body) {
            let nest = self.nest(leaf)?;
            for (i, inst) in nest.body.iter().enumerate() {
                let op = match inst.op {
                    InstOp::Reduce(op, _) => op,
                    InstOp::ArgReduce { .. } => {
                        return Err(self.error(format!("{}: positions have no partial form", nest.name)));
                    }
                    _ => continue,
                };
                let (part, total) = match (self.accumulator(nest, i), totals.get(&(nest.name.as_str(), i))) {
                    (Ok(part), Some(total)) if part.mem != total.mem => (part, total),
                    _ => return Err(self.error(format!("{}: nothing is reduced along {var}", nest.name))),
                };
                let is_tile = |a: &Axis| env.tiles.iter().any(|t| t.axis.var == a.var);
                if !part.tiles.iter().all(is_tile) {
                    return Err(
                        self.error(format!("{}: a product of matrices has no partial form", nest.name))
                    );
                }
                let val = self.value(self.kernel.mems[part.mem].dtype);
                let mut add = vec![
                    Stmt::Let { val, op: load(part.mem, part.index(leaf, &env.facts)) },
                    store(total.mem, total.index(leaf, &env.facts), val, Some(op)),
                ];
                self.wrap_in_tiles(&mut add, env, |tile| part.has_tile(tile));
                out.extend(add);
            }
        }
        Ok(())
    }
}

/// A store into an accumulator: of this point alone, so unguarded.
pub(super) fn store(mem: Mem, index: Vec<Expr>, value: Val, combine: Option<ReduceOp>) -> Stmt {
    Stmt::Store { mem, index, value, combine, guard: Vec::new(), atomic: false }
}

/// Axes along which the nest keeps a running value: the reduced ones, and that of a scan.
fn running_axes(nest: &Nest) -> Vec<Sym> {
    let scans = nest.body.iter().filter_map(|i| match i.op {
        InstOp::Scan { axis, .. } => Some(axis),
        _ => None,
    });
    nest.reduced.iter().map(|a| a.var).chain(scans).collect()
}
