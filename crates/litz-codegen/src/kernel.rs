//! A kernel plan and the nests it names, to a kernel.
//!
//! The tree of the plan is walked once. Tile loops are held back and wrapped around the leaves below them, so
//! that everything between a tile and its leaves runs for all points of the tile together. Loops that may run
//! past the end of an axis are clipped; written-out loops split into a full and a last version.

use crate::access::{Region, flatten};
use crate::misfit;
use litz_ir::ids::Id;
use litz_ir::kernel::{Kernel, Loop, LoopKind, Mem, MemData, Op, Space, Stmt, Val};
use litz_ir::loops::{self, Axis, Buf, InstOp, Loops, Nest};
use litz_ir::schedule::{self, KernelPlan, Leaf, LocalSpace, Part, Tree};
use litz_ir::{Diag, Dtype, Scalar, ScalarOp};
use litz_sym::{Expr, Facts, Known, Rel, Sym};
use std::collections::{HashMap, HashSet};

/// A kernel and the buffers its parameters stand for.
pub struct Built {
    /// The kernel.
    pub kernel: Kernel,
    /// One buffer for each parameter.
    pub params: Vec<Buf>,
}

/// Register arrays larger than this many elements live in scratch memory instead: 32 vectors of 16 lanes, with room
/// for element types narrower than 32 bits.
const MAX_REGISTER_ELEMENTS: i64 = 1024;

/// Builds the kernel of `plan`.
pub fn build(loops: &Loops, nests: &HashMap<&str, &Nest>, plan: &KernelPlan) -> Result<Built, Diag> {
    let mut facts = loops.facts.clone();
    for axis in &plan.grid {
        facts.declare_index(axis.var, axis.extent);
    }
    let mut b = Builder {
        loops,
        plan,
        nests,
        kernel: Kernel::new(&plan.name),
        params: Vec::new(),
        mem_of: HashMap::new(),
        locals: HashMap::new(),
        accumulators: HashMap::new(),
    };
    b.kernel.grid = plan.grid.clone();
    b.kernel.grain = plan.grain;
    let mut leaves = Vec::new();
    plan.body.iter().for_each(|t| t.each_leaf(&mut |l| leaves.push(l)));
    for leaf in &leaves {
        if !b.kernel.from.contains(&leaf.nest) {
            b.kernel.from.push(leaf.nest.clone());
        }
    }
    b.declare_params(&leaves)?;
    b.declare_locals(&leaves, &facts)?;
    let env = Env { path: Vec::new(), tiles: Vec::new(), clipped: HashSet::new(), facts };
    let mut body = Vec::new();
    let top: Vec<LoopVar> =
        plan.grid.iter().map(|a| LoopVar { var: a.var, extent: a.extent, partial: false }).collect();
    let env = Env { path: top, ..env };
    b.start_accumulators(&plan.body, &env, &mut body)?;
    b.block(&plan.body, &env, &mut body)?;
    b.kernel.body = body;
    crate::clean::clean(&mut b.kernel);
    crate::registers::demote(&mut b.kernel);
    b.finish_facts();
    Ok(Built { kernel: b.kernel, params: b.params })
}

struct Builder<'a> {
    loops: &'a Loops,
    plan: &'a KernelPlan,
    nests: &'a HashMap<&'a str, &'a Nest>,
    kernel: Kernel,
    params: Vec<Buf>,
    mem_of: HashMap<Buf, Mem>,
    locals: HashMap<Buf, LocalMem>,
    /// Accumulators of the reduction (or scan) at that position of that nest.
    accumulators: HashMap<(&'a str, usize), Accumulator>,
}

/// Where in the tree we are.
#[derive(Clone)]
struct Env {
    /// Loops around, outermost first, tiles included.
    path: Vec<LoopVar>,
    /// Tiles held back, outermost first.
    tiles: Vec<TileLoop>,
    /// (nest, axis) pairs that an enclosing loop's clipped extent keeps in range.
    clipped: HashSet<(String, Sym)>,
    facts: Facts,
}

#[derive(Clone, Copy)]
struct LoopVar {
    var: Sym,
    extent: Expr,
    /// Its iterations have accumulators of their own.
    partial: bool,
}

#[derive(Clone, Copy)]
struct TileLoop {
    kind: LoopKind,
    axis: Axis,
}

impl TileLoop {
    /// The axis, as long as its last vector.
    fn in_whole_vectors(&self) -> Axis {
        let extent = match self.kind {
            LoopKind::Vector { lanes, .. } => self.axis.extent.ceildiv(i64::from(lanes)) * i64::from(lanes),
            LoopKind::For | LoopKind::Unroll => self.axis.extent,
        };
        Axis { extent, ..self.axis }
    }
}

/// A buffer local to this kernel.
struct LocalMem {
    mem: Mem,
    /// Flat index of its first element in the buffer.
    base: Expr,
    /// Distances in the buffer, largest first, between elements kept, and how many are kept at each distance.
    steps: Vec<(Expr, Expr)>,
}

/// The running value of a reduction: one element for each point in flight.
#[derive(Clone)]
struct Accumulator {
    mem: Mem,
    /// Position of the best value, for an arg-reduction.
    at: Option<Mem>,
    /// Tiles it has an element for each point of. They keep their variables wherever they are sunk to. Extents are those of
    /// the array: whole vectors, so that each row starts with one.
    tiles: Vec<Axis>,
    /// Outer axes that loops inside the reduction run along: axis, value at the first point, extent.
    dims: Vec<(Sym, Expr, Expr)>,
}

impl Accumulator {
    fn extent(&self) -> Expr {
        let tiles = self.tiles.iter().map(|t| t.extent);
        tiles.chain(self.dims.iter().map(|d| d.2)).fold(Expr::one(), |n, e| n * e)
    }
}

/// Values of one straight-line run of leaves.
struct Run<'a, 'e> {
    leaf: &'a Leaf,
    nest: &'a Nest,
    facts: &'e Facts,
    /// Guards for axes no loop keeps in range.
    guard: Vec<Rel>,
    values: HashMap<loops::Val, Val>,
    /// Symbols bound in the nest, renamed for the kernel.
    renamed: HashMap<Sym, Expr>,
}

impl<'a> Builder<'a> {
    fn error(&self, message: impl std::fmt::Display) -> Diag {
        misfit(&self.plan.name, message)
    }

    fn nest(&self, leaf: &Leaf) -> Result<&'a Nest, Diag> {
        self.nests.get(leaf.nest.as_str()).copied().ok_or_else(|| self.error(format!("no nest {}", leaf.nest)))
    }

    /// Parameters in order of first mention. Writing wins over reading.
    fn declare_params(&mut self, leaves: &[&Leaf]) -> Result<(), Diag> {
        let local: HashSet<&str> = self.plan.locals.iter().map(|l| l.buf.as_str()).collect();
        for leaf in leaves {
            for inst in &self.nest(leaf)?.body {
                let (buf, space) = match &inst.op {
                    InstOp::Load { buf, .. } => (*buf, Space::Read),
                    InstOp::Store { buf, .. } => (*buf, Space::Write),
                    _ => continue,
                };
                let data = &self.loops.bufs[buf];
                if local.contains(data.name.as_str()) {
                    continue;
                }
                if let Some(&mem) = self.mem_of.get(&buf) {
                    if space == Space::Write {
                        self.kernel.mems[mem].space = Space::Write;
                    }
                    continue;
                }
                let mem = self.kernel.mems.push(MemData {
                    name: data.name.clone(),
                    dtype: data.dtype,
                    extent: data.span(),
                    space,
                });
                self.mem_of.insert(buf, mem);
                self.params.push(buf);
            }
        }
        self.kernel.params = self.params.len();
        Ok(())
    }

    /// Translates trees in order, appending to `out`. Adjacent leaves share one run of loops.
    fn block(&mut self, trees: &'a [Tree], env: &Env, out: &mut Vec<Stmt>) -> Result<(), Diag> {
        let mut rest = trees;
        while let Some(first) = rest.first() {
            match first {
                Tree::Leaf(_) => {
                    let n = rest.iter().take_while(|t| matches!(t, Tree::Leaf(_))).count();
                    let leaves: Vec<&'a Leaf> = rest[..n]
                        .iter()
                        .filter_map(|t| match t {
                            Tree::Leaf(leaf) => Some(leaf),
                            Tree::Loop { .. } => None,
                        })
                        .collect();
                    self.leaves(&leaves, env, out)?;
                    rest = &rest[n..];
                }
                Tree::Loop { kind, axis, body } => {
                    self.tree_loop(*kind, *axis, body, env, out)?;
                    rest = &rest[1..];
                }
            }
        }
        Ok(())
    }

    fn tree_loop(
        &mut self,
        kind: schedule::LoopKind,
        axis: Axis,
        body: &'a [Tree],
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        use schedule::LoopKind as K;
        let clip = self.clip(axis, body, env)?;
        let mut inner = env.clone();
        if let Some((_, pairs)) = &clip {
            inner.clipped.extend(pairs.iter().cloned());
        }
        let written_out = match kind {
            K::Partial => return self.partial_loop(axis, clip.map(|c| c.0), body, inner, out),
            K::For => return self.plain_loop(LoopKind::For, axis, clip.map(|c| c.0), body, inner, out),
            K::Vector { lanes, copies } => {
                let kind = LoopKind::Vector { lanes, copies };
                return self.plain_loop(kind, axis, clip.map(|c| c.0), body, inner, out);
            }
            K::Unroll => None,
            K::Tile => Some(LoopKind::Unroll),
            K::TileVector { lanes } => Some(LoopKind::Vector { lanes, copies: 1 }),
            K::Thread | K::Warp | K::Mma => {
                return Err(self.error(format!("loop {}: this kind has no realisation on this target", axis.var)));
            }
        };
        let Some(extent) = axis.extent.as_int() else {
            return Err(self.error(format!("loop {}: a written-out loop needs a constant extent", axis.var)));
        };
        let Some((remaining, _)) = clip else {
            return self.written_out(written_out, axis, body, inner, out);
        };
        // Full version, then the last one with what remains.
        let remaining = env.facts.simplify(remaining);
        let mut then = Vec::new();
        self.written_out(written_out, axis, body, inner.clone(), &mut then)?;
        let mut other = Vec::new();
        match self.constant_rest(remaining, extent, &env.facts) {
            Some(0) => {}
            Some(rest) => {
                let axis = Axis { var: axis.var, extent: Expr::int(rest) };
                self.written_out(written_out, axis, body, inner, &mut other)?;
            }
            None if matches!(written_out, Some(LoopKind::Vector { .. })) => {
                // Masked by guards: the axis is not in range by the loop's extent.
                self.written_out(written_out, axis, body, env.clone(), &mut other)?;
            }
            None => self.row_by_row(axis, remaining, body, &inner, &mut other)?,
        }
        out.push(Stmt::If { cond: vec![Rel::le(Expr::int(extent), remaining)], then, other });
        Ok(())
    }

    /// The number of points the last tile has when that is the same constant wherever the tile is not full.
    fn constant_rest(&self, remaining: Expr, extent: i64, facts: &Facts) -> Option<i64> {
        let rest = facts.simplify(remaining.modulo(extent));
        // remaining = n - extent*tile: equal to n modulo the extent.
        rest.as_int()
    }

    /// The last points of a tile whose number is known only at run time, one at a time.
    fn row_by_row(
        &mut self,
        axis: Axis,
        remaining: Expr,
        body: &'a [Tree],
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let mut inner = env.clone();
        inner.facts.declare_index(axis.var, remaining.max(Expr::zero()));
        inner.path.push(LoopVar { var: axis.var, extent: remaining, partial: false });
        let mut stmts = Vec::new();
        // Tiles held back from outside stay outside of their leaves; this loop runs around them.
        self.start_accumulators(body, &inner, &mut stmts)?;
        self.block(body, &inner, &mut stmts)?;
        out.push(Stmt::Loop(Loop { kind: LoopKind::For, var: axis.var, extent: remaining, body: stmts }));
        Ok(())
    }

    fn plain_loop(
        &mut self,
        kind: LoopKind,
        axis: Axis,
        clip: Option<Expr>,
        body: &'a [Tree],
        mut inner: Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let extent = match clip {
            Some(limit) => inner.facts.simplify(axis.extent.min(limit)),
            None => axis.extent,
        };
        inner.facts.declare_index(axis.var, extent);
        inner.path.push(LoopVar { var: axis.var, extent: axis.extent, partial: false });
        let mut stmts = Vec::new();
        self.start_accumulators(body, &inner, &mut stmts)?;
        self.block(body, &inner, &mut stmts)?;
        out.push(Stmt::Loop(Loop { kind, var: axis.var, extent, body: stmts }));
        Ok(())
    }

    /// A loop whose iterations reduce into accumulators of their own.
    fn partial_loop(
        &mut self,
        axis: Axis,
        clip: Option<Expr>,
        body: &'a [Tree],
        mut inner: Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let extent = match clip {
            Some(limit) => inner.facts.simplify(axis.extent.min(limit)),
            None => axis.extent,
        };
        inner.facts.declare_index(axis.var, extent);
        inner.path.push(LoopVar { var: axis.var, extent: axis.extent, partial: true });
        let totals = self.accumulators.clone();
        let mut stmts = Vec::new();
        self.start_accumulators(body, &inner, &mut stmts)?;
        self.block(body, &inner, &mut stmts)?;
        let mut leaves = Vec::new();
        collect_leaves(body, &mut Vec::new(), &mut leaves);
        for (leaf, _) in leaves.iter().filter(|(leaf, _)| leaf.part == Part::Body) {
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
                    (Ok(part), Some(total)) if part.mem != total.mem => (part, total.clone()),
                    _ => return Err(self.error(format!("{}: no reduced loop inside {}", nest.name, axis.var))),
                };
                let value = self.value(self.kernel.mems[part.mem].dtype);
                let index = self.accumulator_index(&part, leaf, &inner.facts);
                let mut add = vec![Stmt::Let { val: value, op: load(part.mem, index) }];
                let index = self.accumulator_index(&total, leaf, &inner.facts);
                let combine = Some(op);
                add.push(Stmt::Store { mem: total.mem, index, value, combine, guard: Vec::new(), atomic: false });
                self.wrap_in_tiles(&mut add, &inner, &|tile| part.tiles.iter().any(|t| t.var == tile.var));
                stmts.extend(add);
            }
        }
        self.accumulators = totals;
        out.push(Stmt::Loop(Loop { kind: LoopKind::For, var: axis.var, extent, body: stmts }));
        Ok(())
    }

    /// Wraps statements in those of the tiles held back that `which` picks.
    fn wrap_in_tiles(&self, stmts: &mut Vec<Stmt>, env: &Env, which: &dyn Fn(&Axis) -> bool) {
        for tile in env.tiles.iter().rev().filter(|t| which(&t.axis)) {
            let body = std::mem::take(stmts);
            let Axis { var, extent } = tile.axis;
            stmts.push(Stmt::Loop(Loop { kind: tile.kind, var, extent, body }));
        }
    }

    /// An unrolled loop in place, or a tile held back for the leaves below.
    fn written_out(
        &mut self,
        tile: Option<LoopKind>,
        axis: Axis,
        body: &'a [Tree],
        mut inner: Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let Some(kind) = tile else {
            return self.plain_loop(LoopKind::Unroll, axis, None, body, inner, out);
        };
        inner.facts.declare_index(axis.var, axis.extent);
        inner.path.push(LoopVar { var: axis.var, extent: axis.extent, partial: false });
        inner.tiles.push(TileLoop { kind, axis });
        self.start_accumulators(body, &inner, out)?;
        self.block(body, &inner, out)
    }

    /// How far `axis` may run before a leaf below leaves its nest's domain: the limit, and the (nest, axis) pairs it
    /// keeps in range. `None` when every leaf stays in range anyway.
    fn clip(&self, axis: Axis, body: &'a [Tree], env: &Env) -> Result<Option<(Expr, Vec<(String, Sym)>)>, Diag> {
        let mut limit: Option<Expr> = None;
        let mut pairs = Vec::new();
        let mut leaves: Vec<(&Leaf, Vec<Axis>)> = Vec::new();
        collect_leaves(body, &mut Vec::new(), &mut leaves);
        for (leaf, below) in leaves {
            let nest = self.nest(leaf)?;
            for &(nest_axis, value) in &leaf.bind {
                let Some(extent) = nest.all_axes().find(|a| a.var == nest_axis).map(|a| a.extent) else {
                    return Err(self.error(format!("{} has no axis {nest_axis}", nest.name)));
                };
                // Only the innermost variable of a binding is clipped.
                if !value.has_sym(axis.var) || below.iter().any(|a| value.has_sym(a.var)) {
                    continue;
                }
                if env.clipped.contains(&(nest.name.clone(), nest_axis)) {
                    continue;
                }
                let mut facts = env.facts.clone();
                facts.declare_index(axis.var, axis.extent);
                if facts.known(&Rel::lt(value, extent)) == Known::Yes {
                    continue;
                }
                let Some((coefficient, rest)) = value.linear(axis.var) else { continue };
                if !coefficient.is_one() {
                    continue;
                }
                let here = extent - rest;
                match limit {
                    None => limit = Some(here),
                    Some(other) if other == here => {}
                    Some(_) => continue,
                }
                pairs.push((nest.name.clone(), nest_axis));
            }
        }
        Ok(limit.map(|l| (l, pairs)))
    }

    /// Sets up the accumulators of reductions whose loops begin here: those of leaves below `trees` that bind a
    /// reduced axis by a loop directly in `trees`, or by none at all.
    fn start_accumulators(
        &mut self,
        trees: &'a [Tree],
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        for tree in trees {
            let mut leaves = Vec::new();
            collect_leaves(std::slice::from_ref(tree), &mut Vec::new(), &mut leaves);
            for (leaf, below) in leaves {
                let nest = self.nest(leaf)?;
                let running = running_axes(nest);
                if running.is_empty() || leaf.part == Part::Tail {
                    continue;
                }
                let bound_by = |a: &Axis| leaf.bind.iter().any(|(s, e)| running.contains(s) && e.has_sym(a.var));
                let around = env.path.iter().rev().take_while(|v| !v.partial);
                let started = around.into_iter().any(|v| bound_by(&Axis { var: v.var, extent: v.extent }));
                // Partial sums are added up in memory: registers are for what runs inside.
                let (starts, space) = match tree {
                    Tree::Leaf(_) => (true, Space::Register),
                    Tree::Loop { kind: schedule::LoopKind::Partial, axis, .. } => (bound_by(axis), Space::Scratch),
                    // A tile is no loop of its own: its accumulators start where the loop below it does.
                    Tree::Loop { axis, .. } => (bound_by(axis), Space::Register),
                };
                if starts && !started {
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
        env: &Env,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let running = running_axes(nest);
        let mut outer = Vec::new();
        for axis in nest.axes.iter().filter(|a| !running.contains(&a.var)) {
            let Some(&(_, value)) = leaf.bind.iter().find(|(s, _)| *s == axis.var) else {
                return Err(self.error(format!("{}: axis {} is not bound", nest.name, axis.var)));
            };
            outer.push((axis.var, value));
        }
        let varies = |a: &Axis| outer.iter().any(|(_, value)| value.has_sym(a.var));
        let tiles: Vec<Axis> = env.tiles.iter().filter(|t| varies(&t.axis)).map(TileLoop::in_whole_vectors).collect();
        let mut dims = Vec::new();
        for &(axis, value) in &outer {
            let used: Vec<Axis> = below.iter().filter(|a| value.has_sym(a.var)).copied().collect();
            if used.is_empty() {
                continue;
            }
            let base = value.subst(&|s| used.iter().any(|a| a.var == s).then(Expr::zero));
            let last = value.subst(&|s| used.iter().find(|a| a.var == s).map(|a| a.extent - 1));
            dims.push((axis, base, env.facts.simplify(last - base + 1)));
        }
        let mut accumulator = Accumulator { mem: Mem(0), at: None, tiles, dims };
        let extent = accumulator.extent();
        let space = match extent.as_int() {
            Some(n) if accumulator.dims.is_empty() && n <= MAX_REGISTER_ELEMENTS => space,
            _ => Space::Scratch,
        };
        for (i, inst) in nest.body.iter().enumerate() {
            let (first, value_type, is_arg) = match &inst.op {
                InstOp::Reduce(op, v) => {
                    let ty = nest.body[v.index()].ty.compute();
                    (op.identity(ty), ty, false)
                }
                InstOp::Scan { op, value, .. } => {
                    let ty = nest.body[value.index()].ty.compute();
                    (op.identity(ty), ty, false)
                }
                InstOp::ArgReduce { max, value } => {
                    let ty = nest.body[value.index()].ty.compute();
                    let op = if *max { litz_ir::ReduceOp::Max } else { litz_ir::ReduceOp::Min };
                    (op.identity(ty), ty, true)
                }
                _ => continue,
            };
            accumulator.mem = self.local(&format!("{}_acc{i}", nest.name), value_type, extent, space);
            accumulator.at =
                is_arg.then(|| self.local(&format!("{}_at{i}", nest.name), Dtype::I64, extent, space));
            self.fill(&accumulator, first, value_type, env, below, leaf, out);
            self.accumulators.insert((nest.name.as_str(), i), accumulator.clone());
        }
        Ok(())
    }

    /// Stores the first value into every element of an accumulator.
    fn fill(
        &mut self,
        acc: &Accumulator,
        first: Scalar,
        ty: Dtype,
        env: &Env,
        below: &[Axis],
        leaf: &Leaf,
        out: &mut Vec<Stmt>,
    ) {
        let val = self.value(ty);
        let mut stmts = vec![Stmt::Let { val, op: Op::Const(first) }];
        // Loops around the fill: those below that span several outer points, and the tiles.
        let spans = |var: Sym| leaf.bind.iter().any(|(axis, e)| e.has_sym(var) && acc.dims.iter().any(|d| d.0 == *axis));
        let index = self.accumulator_index(acc, leaf, &env.facts);
        let store = |mem: Mem, value: Val| Stmt::Store {
            mem,
            index,
            value,
            combine: None,
            guard: Vec::new(),
            atomic: false,
        };
        stmts.push(store(acc.mem, val));
        if let Some(at) = acc.at {
            let zero = self.value(Dtype::I64);
            stmts.push(Stmt::Let { val: zero, op: Op::Const(Scalar::Int(0)) });
            stmts.push(store(at, zero));
        }
        for axis in below.iter().rev().filter(|a| spans(a.var)) {
            stmts = vec![Stmt::Loop(Loop { kind: LoopKind::For, var: axis.var, extent: axis.extent, body: stmts })];
        }
        self.wrap_in_tiles(&mut stmts, env, &|tile| acc.tiles.iter().any(|t| t.var == tile.var));
        out.extend(stmts);
    }

    fn accumulator_index(&self, acc: &Accumulator, leaf: &Leaf, facts: &Facts) -> Expr {
        let along = acc.dims.iter().map(|(axis, base, _)| {
            let value = leaf.bind.iter().find(|(s, _)| s == axis).map_or(Expr::zero(), |b| b.1);
            facts.simplify(value - *base)
        });
        let coords: Vec<Expr> = acc.tiles.iter().map(|t| Expr::sym(t.var)).chain(along).collect();
        let extents: Vec<Expr> = acc.tiles.iter().map(|t| t.extent).chain(acc.dims.iter().map(|d| d.2)).collect();
        flatten(&coords, &extents)
    }

    /// Translates adjacent leaves as one straight-line run, wrapped in the tiles held back.
    fn leaves(&mut self, leaves: &[&'a Leaf], env: &Env, out: &mut Vec<Stmt>) -> Result<(), Diag> {
        let mut stmts = Vec::new();
        let mut forward: HashMap<(Buf, Expr), Val> = HashMap::new();
        for &leaf in leaves {
            self.leaf(leaf, env, &mut forward, &mut stmts)?;
        }
        self.wrap_in_tiles(&mut stmts, env, &|_| true);
        out.extend(stmts);
        Ok(())
    }

    fn leaf(
        &mut self,
        leaf: &'a Leaf,
        env: &Env,
        forward: &mut HashMap<(Buf, Expr), Val>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let nest = self.nest(leaf)?;
        let mut guard = Vec::new();
        for axis in nest.all_axes() {
            let Some(&(_, value)) = leaf.bind.iter().find(|(s, _)| *s == axis.var) else {
                if leaf.part == Part::Tail && nest.reduced.contains(axis) {
                    continue;
                }
                return Err(self.error(format!("{}: axis {} is not bound", nest.name, axis.var)));
            };
            let in_range = env.clipped.contains(&(nest.name.clone(), axis.var))
                || env.facts.known(&Rel::lt(value, axis.extent)) == Known::Yes;
            if in_range {
                continue;
            }
            if nest.reduced.contains(axis) && leaf.part == Part::Body {
                return Err(self.error(format!("{}: reduced axis {} may leave its range", nest.name, axis.var)));
            }
            guard.push(Rel::lt(value, axis.extent));
        }
        let mut run =
            Run { leaf, nest, facts: &env.facts, guard, values: HashMap::new(), renamed: HashMap::new() };
        for (i, wanted) in wanted(nest, leaf.part).into_iter().enumerate() {
            if wanted {
                self.instruction(i, &mut run, forward, out)?;
            }
        }
        Ok(())
    }

    fn instruction(
        &mut self,
        i: usize,
        run: &mut Run<'a, '_>,
        forward: &mut HashMap<(Buf, Expr), Val>,
        out: &mut Vec<Stmt>,
    ) -> Result<(), Diag> {
        let inst = &run.nest.body[i];
        let ty = inst.ty.compute();
        let define = |b: &mut Self, op: Op, out: &mut Vec<Stmt>| {
            let val = b.value(ty);
            out.push(Stmt::Let { val, op });
            val
        };
        let result = match &inst.op {
            InstOp::Load { buf, index, guard, other } => {
                let at = run.expr(*index);
                if guard.is_empty()
                    && run.guard.is_empty()
                    && let Some(&val) = forward.get(&(*buf, at))
                {
                    run.values.insert(loops::Val(i as u32), val);
                    return Ok(());
                }
                let (mem, index) = self.place(*buf, *index, run)?;
                let mut guard: Vec<Rel> = guard.iter().map(|r| run.rel(r)).collect();
                guard.extend(run.guard.iter().cloned());
                define(self, Op::Load { mem, index, guard, other: *other }, out)
            }
            InstOp::Const(s) => define(self, Op::Const(*s), out),
            InstOp::Index(e) => define(self, Op::Index(run.expr(*e)), out),
            InstOp::Cond(r) => define(self, Op::Cond(run.rel(r)), out),
            InstOp::Op(op, args) => {
                let args = args.iter().map(|a| run.values[a]).collect();
                let val = define(self, Op::Call(*op, args), out);
                let exact = matches!(
                    op,
                    ScalarOp::Max | ScalarOp::Min | ScalarOp::Neg | ScalarOp::Abs | ScalarOp::Select
                );
                if ty != inst.ty && !exact { define(self, Op::Round(inst.ty, val), out) } else { val }
            }
            InstOp::Cast(v) => {
                let from = run.nest.body[v.index()].ty;
                let val = run.values[v];
                let wide = if from.compute() == ty { val } else { define(self, Op::Cast(val), out) };
                let exact = ty == inst.ty || from == inst.ty;
                if exact { wide } else { define(self, Op::Round(inst.ty, wide), out) }
            }
            InstOp::Bitcast(v) => {
                let from = run.nest.body[v.index()].ty;
                if from.compute() != from || ty != inst.ty {
                    return Err(self.error(format!("{}: bit casts of half types have no realisation", run.nest.name)));
                }
                let val = run.values[v];
                define(self, Op::Bitcast(val), out)
            }
            InstOp::Bind { sym, value, extent } => {
                let fresh = Sym::new(&format!("{sym}_{}", self.kernel.checks.len()));
                let check = self.kernel.checks.len() as u32;
                let from = run.nest.from.join(", ");
                self.kernel.checks.push(format!("index of {from} is out of range"));
                run.renamed.insert(*sym, Expr::sym(fresh));
                let extent = run.expr(*extent);
                let value = self.guarded_index(run.values[value], &run.guard, out);
                out.push(Stmt::Bind { sym: fresh, value, extent, check });
                value
            }
            InstOp::Reduce(op, v) => {
                let acc = self.accumulator(run.nest, i)?;
                let index = self.accumulator_index(&acc, run.leaf, run.facts);
                if run.leaf.part == Part::Tail {
                    define(self, load(acc.mem, index), out)
                } else {
                    let value = run.values[v];
                    let combine = Some(*op);
                    out.push(Stmt::Store { mem: acc.mem, index, value, combine, guard: Vec::new(), atomic: false });
                    value
                }
            }
            InstOp::ArgReduce { max, value } => {
                let acc = self.accumulator(run.nest, i)?;
                let at = acc.at.expect("invariant: an arg-reduction has a position");
                let index = self.accumulator_index(&acc, run.leaf, run.facts);
                if run.leaf.part == Part::Tail {
                    define(self, load(at, index), out)
                } else {
                    let coords: Vec<Expr> = run.nest.reduced.iter().map(|a| run.expr(Expr::sym(a.var))).collect();
                    let extents: Vec<Expr> = run.nest.reduced.iter().map(|a| a.extent).collect();
                    let value = run.values[value];
                    let position = run.facts.simplify(flatten(&coords, &extents));
                    out.push(Stmt::ArgStore { max: *max, best: acc.mem, at, index, value, position });
                    value
                }
            }
            InstOp::Scan { op, value, .. } => {
                let acc = self.accumulator(run.nest, i)?;
                let index = self.accumulator_index(&acc, run.leaf, run.facts);
                let value = run.values[value];
                let combine = Some(*op);
                out.push(Stmt::Store { mem: acc.mem, index, value, combine, guard: Vec::new(), atomic: false });
                define(self, load(acc.mem, index), out)
            }
            InstOp::Store { buf, index, value, combine } => {
                let at = run.expr(*index);
                let value = run.values[value];
                if combine.is_none() && run.guard.is_empty() {
                    forward.retain(|(b, _), _| b != buf);
                    forward.insert((*buf, at), value);
                } else {
                    forward.retain(|(b, _), _| b != buf);
                }
                let atomic = combine.is_some() && !self.plan.grid.is_empty();
                let (mem, index) = self.place(*buf, *index, run)?;
                out.push(Stmt::Store { mem, index, value, combine: *combine, guard: run.guard.clone(), atomic });
                value
            }
        };
        run.values.insert(loops::Val(i as u32), result);
        Ok(())
    }

    /// `value` where the guards hold, 0 elsewhere: points outside of the domain have no index to check.
    fn guarded_index(&mut self, value: Val, guard: &[Rel], out: &mut Vec<Stmt>) -> Val {
        let mut define = |b: &mut Self, op: Op, ty: Dtype| {
            let val = b.value(ty);
            out.push(Stmt::Let { val, op });
            val
        };
        let mut value = value;
        for &rel in guard {
            let holds = define(self, Op::Cond(rel), Dtype::Bool);
            let zero = define(self, Op::Const(Scalar::Int(0)), Dtype::I64);
            value = define(self, Op::Call(ScalarOp::Select, vec![holds, value, zero]), Dtype::I64);
        }
        value
    }

    fn accumulator(&self, nest: &'a Nest, i: usize) -> Result<Accumulator, Diag> {
        self.accumulators
            .get(&(nest.name.as_str(), i))
            .cloned()
            .ok_or_else(|| self.error(format!("{}: its tail comes before its body", nest.name)))
    }

    /// Memory and element for element `index` of `buf`.
    fn place(&mut self, buf: Buf, index: Expr, run: &Run<'a, '_>) -> Result<(Mem, Expr), Diag> {
        if let Some(&mem) = self.mem_of.get(&buf) {
            return Ok((mem, run.expr(index)));
        }
        let flat = run.expr(index);
        let Some(local) = self.locals.get(&buf) else {
            let name = &self.loops.bufs[buf].name;
            return Err(self.error(format!("{name} is neither a parameter nor local")));
        };
        let mut rest = run.facts.simplify(flat - local.base);
        let mut index = Expr::zero();
        for (i, &(step, extent)) in local.steps.iter().enumerate() {
            index = index * extent + run.facts.simplify(rest.floordiv(step));
            if i + 1 < local.steps.len() {
                rest = run.facts.simplify(rest.modulo(step));
            }
        }
        Ok((local.mem, index))
    }

    /// Sizes every local buffer: it keeps what the stores of one iteration of its scope touch.
    fn declare_locals(&mut self, leaves: &[&'a Leaf], facts: &Facts) -> Result<(), Diag> {
        let mut inside = facts.clone();
        let mut loops = Vec::new();
        scope_axes(&self.plan.body, None, true, &mut loops);
        loops.iter().for_each(|a| inside.declare_index(a.var, a.extent));
        for plan in &self.plan.locals {
            let Some((buf, data)) = self.loops.bufs.iter().find(|(_, d)| d.name == plan.buf) else {
                return Err(self.error(format!("no buffer {}", plan.buf)));
            };
            // Loops inside the scope, with the extents that the tree states.
            let mut inner = Vec::new();
            let in_grid = plan.scope.is_none_or(|s| self.plan.grid.iter().any(|a| a.var == s));
            scope_axes(&self.plan.body, plan.scope, in_grid, &mut inner);
            let mut region: Option<Region> = None;
            for leaf in leaves {
                for inst in &self.nest(leaf)?.body {
                    let InstOp::Store { buf: stored, index, .. } = inst.op else { continue };
                    if stored != buf {
                        continue;
                    }
                    let flat = index.subst(&|s| leaf.bind.iter().find(|b| b.0 == s).map(|b| b.1));
                    let here = Region::of(inside.simplify(flat), &inner, &inside);
                    region = Some(match (region, here) {
                        (None, Some(here)) => here,
                        (Some(region), Some(here)) => {
                            region.union(&here, &inside).unwrap_or_else(|| Region::whole(data.span()))
                        }
                        (_, None) => Region::whole(data.span()),
                    });
                }
            }
            // A buffer that no leaf stores to holds nothing to read.
            let Some(Region { base, steps }) = region else { continue };
            let extent = steps.iter().fold(Expr::one(), |n, s| n * s.1);
            let space = match plan.space {
                LocalSpace::Register if extent.as_int().is_some_and(|n| n <= MAX_REGISTER_ELEMENTS) => {
                    Space::Register
                }
                // A single element is best kept in a register whatever was asked.
                LocalSpace::Register | LocalSpace::Scratch if extent.is_one() => Space::Register,
                LocalSpace::Register | LocalSpace::Scratch => Space::Scratch,
                LocalSpace::Shared => {
                    return Err(self.error(format!("{}: this target has no shared memory", data.name)));
                }
            };
            let mem = self.local(&data.name, data.dtype, extent, space);
            self.locals.insert(buf, LocalMem { mem, base, steps });
        }
        Ok(())
    }

    fn local(&mut self, name: &str, dtype: Dtype, extent: Expr, space: Space) -> Mem {
        let taken = |n: &str| self.kernel.mems.values().any(|m| m.name == n);
        let mut unique = name.to_owned();
        let mut n = 1;
        while taken(&unique) {
            unique = format!("{name}_{n}");
            n += 1;
        }
        self.kernel.mems.push(MemData { name: unique, dtype, extent, space })
    }

    fn value(&mut self, ty: Dtype) -> Val {
        self.kernel.vals.push(ty)
    }

    /// Keeps the ranges of the size symbols the kernel mentions, in name order.
    fn finish_facts(&mut self) {
        let mut sizes = Vec::new();
        crate::clean::each_expr(&self.kernel, &mut |e| {
            e.visit_syms(&mut |s| {
                if self.loops.facts.is_symbol_declared(s) {
                    sizes.push(s);
                }
            });
        });
        sizes.sort_unstable();
        sizes.dedup();
        for &s in &sizes {
            self.kernel.facts.declare(s, self.loops.facts.range_of(s), self.loops.facts.hint(Expr::sym(s)));
        }
        self.kernel.sizes = sizes;
    }
}

impl Run<'_, '_> {
    /// An index expression of the nest in terms of loop variables.
    fn expr(&self, e: Expr) -> Expr {
        let bound = e.subst(&|s| {
            self.renamed.get(&s).copied().or_else(|| self.leaf.bind.iter().find(|b| b.0 == s).map(|b| b.1))
        });
        if bound == e { e } else { self.facts.simplify(bound) }
    }

    fn rel(&self, r: &Rel) -> Rel {
        Rel { cmp: r.cmp, lhs: self.expr(r.lhs), rhs: self.expr(r.rhs) }
    }
}

fn load(mem: Mem, index: Expr) -> Op {
    Op::Load { mem, index, guard: Vec::new(), other: Scalar::Int(0) }
}

/// Axes along which the nest keeps a running value: the reduced ones, and that of a scan.
fn running_axes(nest: &Nest) -> Vec<Sym> {
    let scans = nest.body.iter().filter_map(|i| match i.op {
        InstOp::Scan { axis, .. } => Some(axis),
        _ => None,
    });
    nest.reduced.iter().map(|a| a.var).chain(scans).collect()
}

/// Which instructions a part of a nest needs: those its effects depend on.
fn wanted(nest: &Nest, part: Part) -> Vec<bool> {
    let after = nest.after_reduce();
    let is_reduce = |op: &InstOp| matches!(op, InstOp::Reduce(..) | InstOp::ArgReduce { .. });
    let reduces = nest.body.iter().any(|i| is_reduce(&i.op));
    let mut wanted = vec![false; nest.body.len()];
    for (i, inst) in nest.body.iter().enumerate().rev() {
        let root = match &inst.op {
            InstOp::Reduce(..) | InstOp::ArgReduce { .. } => part != Part::Tail,
            InstOp::Store { .. } => match part {
                Part::Whole => true,
                Part::Body => !after[i],
                Part::Tail => reduces && after[i],
            },
            // A check happens where the values it guards do.
            InstOp::Bind { .. } => part != Part::Tail,
            _ => false,
        };
        if !(wanted[i] || root) {
            continue;
        }
        wanted[i] = true;
        // A tail reads the accumulator: what was reduced is done with.
        if part == Part::Tail && is_reduce(&inst.op) {
            continue;
        }
        for v in inst.op.operands() {
            wanted[v.index()] = true;
        }
        // Index expressions may mention bound symbols.
        let mentioned: Vec<Sym> = inst.op.exprs().iter().flat_map(|e| e.syms()).collect();
        for (j, other) in nest.body[..i].iter().enumerate() {
            if let InstOp::Bind { sym, .. } = other.op
                && mentioned.contains(&sym)
            {
                wanted[j] = true;
            }
        }
    }
    wanted
}

/// Leaves below, each with the loops between, outermost first.
fn collect_leaves<'a>(trees: &'a [Tree], path: &mut Vec<Axis>, out: &mut Vec<(&'a Leaf, Vec<Axis>)>) {
    for tree in trees {
        match tree {
            Tree::Leaf(leaf) => out.push((leaf, path.clone())),
            Tree::Loop { axis, body, .. } => {
                path.push(*axis);
                collect_leaves(body, path, out);
                path.pop();
            }
        }
    }
}

/// Axes of the loops inside the loop `scope` (of every loop, once `inside`).
fn scope_axes(trees: &[Tree], scope: Option<Sym>, inside: bool, out: &mut Vec<Axis>) {
    for tree in trees {
        if let Tree::Loop { axis, body, .. } = tree {
            if inside {
                out.push(*axis);
            }
            scope_axes(body, scope, inside || scope == Some(axis.var), out);
        }
    }
}
