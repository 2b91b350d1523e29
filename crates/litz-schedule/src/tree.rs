//! Loop trees of kernels that are no products: pointwise, reductions along rows or columns, and mixtures.

use crate::access::{Step, bound_indices, step};
use crate::fuse::{Group, is_plain};
use crate::{Heuristics, TargetInfo, nest};
use litz_ir::loops::{Axis, InstOp, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_sym::{Expr, Facts, Sym};

/// Plans the kernel of `group`.
pub fn plan(loops: &Loops, group: &Group, target: &TargetInfo, heuristics: &Heuristics) -> KernelPlan {
    let facts = group.facts(&loops.facts);
    let mut cx = Cx { loops, group, target, heuristics, facts, outer: Vec::new(), runs: Vec::new() };
    cx.merge_outer();
    cx.form_runs();
    cx.build()
}

struct Cx<'a> {
    loops: &'a Loops,
    group: &'a Group,
    target: &'a TargetInfo,
    heuristics: &'a Heuristics,
    facts: Facts,
    /// Shared axes, merged and ordered; and the group's variables in terms of them.
    outer: Vec<Merged>,
    runs: Vec<Run>,
}

/// An axis that stands for several contiguous ones.
#[derive(Clone)]
pub struct Merged {
    /// The axis.
    pub axis: Axis,
    /// Value of each axis it stands for.
    pub parts: Vec<(Sym, Expr)>,
}

/// Leaves that share loops, and the leaves that follow those loops.
struct Run {
    /// Own loops, outermost first.
    axes: Vec<Axis>,
    body: Vec<Leaf>,
    tails: Vec<Leaf>,
    /// Runs in order, along the axis of a scan.
    ordered: bool,
    reduces: bool,
}

/// Merges neighbouring axes that every index walks as one. `axes` are ordered outermost first; `indices` are flat
/// indices, `others` expressions that must not mention a merged axis.
pub fn merge_axes(axes: &[Axis], indices: &[Expr], others: &[Expr], name: &dyn Fn(usize) -> Sym) -> Vec<Merged> {
    let mut groups: Vec<Vec<Axis>> = Vec::new();
    for &axis in axes {
        let joins = groups.last().is_some_and(|g: &Vec<Axis>| {
            let last = *g.last().expect("invariant: groups are not empty");
            let plain = |s: Sym| others.iter().all(|e| !e.has_sym(s));
            plain(axis.var)
                && g.iter().all(|a| plain(a.var))
                && indices.iter().all(|e| match (e.linear(last.var), e.linear(axis.var)) {
                    (Some((outer, _)), Some((inner, _))) => outer == inner * axis.extent,
                    _ => false,
                })
        });
        match groups.last_mut() {
            Some(g) if joins => g.push(axis),
            _ => groups.push(vec![axis]),
        }
    }
    groups
        .into_iter()
        .enumerate()
        .map(|(i, g)| {
            let var = name(i);
            let extent = g.iter().fold(Expr::one(), |n, a| n * a.extent);
            let mut parts = Vec::new();
            let mut unit = Expr::one();
            for (n, a) in g.iter().enumerate().rev() {
                let digit = Expr::sym(var).floordiv(unit);
                parts.push((a.var, if n == 0 { digit } else { digit.modulo(a.extent) }));
                unit = unit * a.extent;
            }
            Merged { axis: Axis { var, extent }, parts }
        })
        .collect()
}

/// Orders axes so that the one with the smallest steps in memory is last. Weights count accesses; ties keep the
/// given order.
pub fn order_axes(axes: &mut [Axis], indices: &[Expr], facts: &Facts) {
    let weight = |var: Sym| -> i64 {
        indices
            .iter()
            .map(|e| match step(*e, var) {
                Step::Same => 0,
                Step::Unit => 1,
                Step::Far(c) => facts.hint(c).unwrap_or(1 << 20).abs(),
                Step::Irregular => 2,
            })
            .fold(0, i64::saturating_add)
    };
    axes.sort_by_key(|a| std::cmp::Reverse(weight(a.var)));
}

/// Expressions of a nest other than flat indices: guards, conditions, index values, bounds.
pub fn side_exprs(nest: &Nest) -> Vec<Expr> {
    let mut all = Vec::new();
    for inst in &nest.body {
        match &inst.op {
            InstOp::Load { guard, .. } => all.extend(guard.iter().flat_map(|r| [r.lhs, r.rhs])),
            InstOp::Index(e) => all.push(*e),
            InstOp::Cond(r) => all.extend([r.lhs, r.rhs]),
            InstOp::Bind { extent, .. } => all.push(*extent),
            _ => {}
        }
    }
    all
}

fn substitute(e: Expr, bind: &[(Sym, Expr)]) -> Expr {
    e.subst(&|s| bind.iter().find(|b| b.0 == s).map(|b| b.1))
}

impl Cx<'_> {
    /// Orders and merges the shared axes by what all members access.
    fn merge_outer(&mut self) {
        let (mut indices, mut others) = (Vec::new(), Vec::new());
        let mut primary = Vec::new();
        for member in &self.group.members {
            let n = nest(self.loops, member.stmt);
            let facts = n.facts(&self.facts);
            for (access, index) in bound_indices(n, &member.bind, &facts) {
                indices.push(index);
                if access.store {
                    // Stores decide ties: they count double.
                    primary.push(index);
                }
                primary.push(index);
            }
            others.extend(side_exprs(n).into_iter().map(|e| substitute(e, &member.bind)));
            // A binding that is no plain sum would become a division of a division.
            others.extend(member.bind.iter().map(|b| b.1).filter(|e| !is_plain(*e)));
        }
        let mut axes = self.group.outer.clone();
        axes.retain(|a| !a.extent.is_one());
        order_axes(&mut axes, &primary, &self.facts);
        self.outer = merge_axes(&axes, &indices, &others, &|i| Sym::new(&format!("g{i}")));
        for axis in self.group.outer.iter().filter(|a| a.extent.is_one()) {
            let part = vec![(axis.var, Expr::zero())];
            match self.outer.first_mut() {
                Some(first) => first.parts.extend(part),
                None => self.outer.push(Merged { axis: Axis { var: Sym::new("g0"), extent: Expr::one() }, parts: part }),
            }
        }
        for m in &self.outer {
            self.facts.declare_index(m.axis.var, m.axis.extent);
        }
    }

    /// Distributes members over runs of shared inner loops.
    fn form_runs(&mut self) {
        let outer_bind: Vec<(Sym, Expr)> = self.outer.iter().flat_map(|m| m.parts.clone()).collect();
        // Where each buffer was stored, under this kernel's variables: run, after its loops, index.
        let mut stored: Vec<(litz_ir::loops::Buf, usize, bool, Expr)> = Vec::new();
        for member in &self.group.members {
            let n = nest(self.loops, member.stmt);
            let facts = n.facts(&self.facts);
            let mut bind: Vec<(Sym, Expr)> =
                member.bind.iter().map(|(a, e)| (*a, facts.simplify(substitute(*e, &outer_bind)))).collect();
            let indices: Vec<Expr> = bound_indices(n, &bind, &facts).into_iter().map(|b| b.1).collect();
            let others: Vec<Expr> = side_exprs(n);
            let own: Vec<Axis> = n.axes.iter().filter(|a| !bind.iter().any(|b| b.0 == a.var)).copied().collect();
            let scanned = n.body.iter().any(|i| matches!(i.op, InstOp::Scan { .. }));
            let mut loops_of = Vec::new();
            for (class, mut axes) in [own, n.reduced.clone()].into_iter().enumerate() {
                order_axes(&mut axes, &indices, &facts);
                let name = |i: usize| Sym::new(&format!("{}{i}", ["i", "r"][class]));
                if scanned {
                    let keep = |(i, a): (usize, &Axis)| Merged {
                        axis: Axis { var: name(i), extent: a.extent },
                        parts: vec![(a.var, Expr::sym(name(i)))],
                    };
                    loops_of.extend(axes.iter().enumerate().map(keep));
                } else {
                    loops_of.extend(merge_axes(&axes, &indices, &others, &name));
                }
            }
            // The loop with unit steps goes innermost, whether it is reduced or not.
            let unit = |m: &Merged| {
                let last = m.parts.first().map(|p| p.0);
                last.map_or(0, |s| indices.iter().filter(|e| step(**e, s) == Step::Unit).count())
            };
            loops_of.sort_by_key(unit);
            // Variables by position, so that equal shapes share loops.
            let axes: Vec<Axis> = loops_of
                .iter()
                .enumerate()
                .map(|(i, m)| Axis { var: Sym::new(&format!("r{i}")), extent: m.axis.extent })
                .collect();
            for (m, axis) in loops_of.iter().zip(&axes) {
                for (s, e) in &m.parts {
                    bind.push((*s, e.replace(m.axis.var, Expr::sym(axis.var))));
                }
            }
            let mut point_facts = facts.clone();
            for a in &axes {
                point_facts.declare_index(a.var, a.extent);
            }
            let bound = bound_indices(n, &bind, &point_facts);
            let after = n.after_reduce();
            let reduces = !n.reduced.is_empty();
            let joins = self.runs.last().is_some_and(|run| {
                let at = self.runs.len() - 1;
                run.axes == axes
                    && !axes.is_empty()
                    && !run.ordered
                    && !scanned
                    && bound.iter().all(|(a, index)| {
                        stored.iter().all(|(buf, run, tail, place)| {
                            *buf != a.buf || *run != at || (!*tail && place == index && !after[a.at])
                        })
                    })
            });
            if !joins {
                self.runs.push(Run { axes, body: Vec::new(), tails: Vec::new(), ordered: scanned, reduces: false });
            }
            let at = self.runs.len() - 1;
            for (a, index) in bound.iter().filter(|(a, _)| a.store) {
                // An index chosen by data equals no other, whatever their names.
                let chosen = n.body.iter().any(|i| matches!(i.op, InstOp::Bind { sym, .. } if index.has_sym(sym)));
                stored.push((a.buf, at, chosen || reduces && after[a.at], *index));
            }
            let run = &mut self.runs[at];
            run.reduces |= reduces;
            let leaf = |part, bind| Leaf { nest: n.name.clone(), part, bind };
            if reduces {
                let outer_only = bind.iter().filter(|b| !n.reduced.iter().any(|a| a.var == b.0)).cloned().collect();
                run.body.push(leaf(Part::Body, bind));
                if after.iter().zip(&n.body).any(|(after, i)| *after && matches!(i.op, InstOp::Store { .. })) {
                    run.tails.push(leaf(Part::Tail, outer_only));
                }
            } else {
                run.body.push(leaf(Part::Whole, bind));
            }
        }
    }

    /// How well vectors along `var` suit the accesses of all leaves: unit steps are good, far ones bad.
    fn score(&self, var: Sym, leaves: &[&Leaf], facts: &Facts) -> i64 {
        let mut score = 0i64;
        for leaf in leaves {
            let Some(stmt) = self.loops.stmts.iter().position(|s| s.name() == leaf.nest) else { continue };
            let n = nest(self.loops, stmt);
            let points: i64 = n.all_axes().map(|a| self.hint(a.extent)).fold(1, i64::saturating_mul);
            for (_, index) in bound_indices(n, &leaf.bind, facts) {
                let gain = match step(index, var) {
                    Step::Same => 0,
                    Step::Unit => 4,
                    Step::Far(_) => -4,
                    Step::Irregular => -3,
                };
                score = score.saturating_add(points.saturating_mul(gain));
            }
        }
        score
    }

    fn hint(&self, e: Expr) -> i64 {
        self.loops.facts.hint(e).unwrap_or(64).max(1)
    }

    fn build(mut self) -> KernelPlan {
        let leaves: Vec<Leaf> = self.runs.iter().flat_map(|r| r.body.clone()).collect();
        let leaves: Vec<&Leaf> = leaves.iter().collect();
        let mut facts = self.facts.clone();
        for a in self.runs.iter().flat_map(|r| &r.axes) {
            facts.declare_index(a.var, a.extent);
        }
        let best_outer = self
            .outer
            .iter()
            .enumerate()
            .filter(|(_, m)| !m.axis.extent.is_one())
            .map(|(i, m)| (self.score(m.axis.var, &leaves, &facts), i))
            .max();
        let inner = self.runs.iter().any(|r| !r.axes.is_empty());
        let best_inner: i64 = self
            .runs
            .iter()
            .filter_map(|r| {
                let last = r.axes.last()?;
                let body: Vec<&Leaf> = r.body.iter().collect();
                (!r.ordered).then(|| self.score(last.var, &body, &facts))
            })
            .fold(0, i64::saturating_add);
        match best_outer {
            Some((_, v)) if !inner => self.pointwise(v),
            Some((score, v)) if score > best_inner && self.hint(self.outer[v].axis.extent) >= 4 => self.columns(v),
            _ => self.rows(),
        }
    }

    /// Everything is a function of the shared point: vectors along axis `v`.
    fn pointwise(&mut self, v: usize) -> KernelPlan {
        let axis = self.outer.remove(v).axis;
        let grid: Vec<Axis> = self.outer.iter().map(|m| m.axis).filter(|a| !a.extent.is_one()).collect();
        let lanes = self.target.lanes();
        let mut ops_per_point: i64 = 0;
        let mut body: Vec<Tree> = Vec::new();
        for run in std::mem::take(&mut self.runs) {
            for leaf in run.body {
                ops_per_point += self.body_len(&leaf.nest);
                body.push(Tree::Leaf(leaf));
            }
        }
        let vector = LoopKind::Vector { lanes, copies: 1 };
        let n = self.hint(axis.extent);
        let small = n.saturating_mul(ops_per_point) <= self.heuristics.chunk_ops;
        if let Some(across) = self.transposed(axis, &grid, &body) {
            return self.transposing(axis, across, grid, ops_per_point, body);
        }
        if !grid.is_empty() || small {
            let tree = vec![Tree::Loop { kind: vector, axis, body }];
            let work = ops_per_point.saturating_mul(n);
            return self.kernel(grid, work, tree);
        }
        // One long axis: blocks of it.
        let per_thread = (n / i64::from(self.target.threads.max(1))).max(1);
        let block = self.heuristics.block.min((per_thread + i64::from(lanes) - 1) / i64::from(lanes) * i64::from(lanes));
        let (outer, inner) = (Sym::new("b"), Sym::new("v"));
        let blocks = Axis { var: outer, extent: axis.extent.ceildiv(block) };
        let value = Expr::sym(outer) * block + Expr::sym(inner);
        let body = body.into_iter().map(|t| rebind(t, axis.var, value)).collect();
        let inner = Axis { var: inner, extent: Expr::int(block) };
        let tree = vec![Tree::Loop { kind: vector, axis: inner, body }];
        self.kernel(vec![blocks], ops_per_point.saturating_mul(block), tree)
    }

    /// The grid axis along which something is contiguous that is far apart along `lane`.
    fn transposed(&self, lane: Axis, grid: &[Axis], body: &[Tree]) -> Option<Axis> {
        let lanes = i64::from(self.target.lanes());
        let mut leaves = Vec::new();
        body.iter().for_each(|t| t.each_leaf(&mut |l| leaves.push(l)));
        let indices: Vec<Expr> = leaves
            .iter()
            .filter_map(|l| self.loops.stmts.iter().position(|s| s.name() == l.nest).map(|s| (s, l)))
            .flat_map(|(s, l)| bound_indices(nest(self.loops, s), &l.bind, &self.facts))
            .map(|b| b.1)
            .collect();
        let crosses = |u: &&Axis| {
            let far = |e: &&Expr| matches!(step(**e, lane.var), Step::Far(_));
            self.hint(u.extent) >= lanes && indices.iter().filter(far).any(|e| step(*e, u.var) == Step::Unit)
        };
        grid.iter().find(crosses).copied().filter(|_| self.hint(lane.extent) >= lanes)
    }

    /// Square blocks of two axes, so that cache lines read across the vectors are used whole while they are there.
    fn transposing(&self, lane: Axis, across: Axis, grid: Vec<Axis>, ops: i64, body: Vec<Tree>) -> KernelPlan {
        let lanes = self.target.lanes();
        let side = i64::from(lanes);
        let blocks = |a: Axis, name: &str| Axis { var: Sym::new(name), extent: a.extent.ceildiv(side) };
        let (row_blocks, lane_blocks) = (blocks(across, "bu"), blocks(lane, "bv"));
        let (row, column) = (Sym::new("u"), Sym::new("v"));
        let place = |block: Axis, inner: Sym| Expr::sym(block.var) * side + Expr::sym(inner);
        let (row_value, column_value) = (place(row_blocks, row), place(lane_blocks, column));
        let body = body
            .into_iter()
            .map(|t| rebind(rebind(t, across.var, row_value), lane.var, column_value))
            .collect();
        let side_axis = |var| Axis { var, extent: Expr::int(side) };
        let vector = LoopKind::Vector { lanes, copies: 1 };
        let inner = Tree::Loop { kind: vector, axis: side_axis(column), body };
        let tree = vec![Tree::Loop { kind: LoopKind::For, axis: side_axis(row), body: vec![inner] }];
        let mut grid: Vec<Axis> = grid.into_iter().filter(|a| a.var != across.var).collect();
        grid.extend([row_blocks, lane_blocks]);
        self.kernel(grid, ops.saturating_mul(side * side), tree)
    }

    /// Vectors along the innermost loop of each run; the shared points are the grid.
    fn rows(&mut self) -> KernelPlan {
        let grid: Vec<Axis> = self.outer.iter().map(|m| m.axis).filter(|a| !a.extent.is_one()).collect();
        let mut body = Vec::new();
        let mut work = 0i64;
        for (i, run) in std::mem::take(&mut self.runs).into_iter().enumerate() {
            let points: i64 = run.axes.iter().map(|a| self.hint(a.extent)).fold(1, i64::saturating_mul);
            let ops: i64 = run.body.iter().chain(&run.tails).map(|l| self.body_len(&l.nest)).sum();
            work = work.saturating_add(points.saturating_mul(ops));
            let copies = if run.reduces { self.heuristics.reduction_copies } else { 1 };
            let innermost = if run.ordered {
                LoopKind::For
            } else {
                LoopKind::Vector { lanes: self.target.lanes(), copies }
            };
            let run = rename_run(run, i);
            body.extend(run_trees(run, innermost));
        }
        self.kernel(grid, work, body)
    }

    /// Vectors along the shared axis `v`: a strip of it is in flight while the runs' loops go by.
    fn columns(&mut self, v: usize) -> KernelPlan {
        let axis = self.outer.remove(v).axis;
        let mut grid: Vec<Axis> = self.outer.iter().map(|m| m.axis).filter(|a| !a.extent.is_one()).collect();
        let lanes = i64::from(self.target.lanes());
        let strip = lanes * i64::from(self.heuristics.column_vectors);
        let (outer, inner) = (Sym::new("b"), Sym::new("v"));
        let whole = axis.extent.as_int().filter(|&n| n <= strip);
        let (extent, value) = match whole {
            Some(n) => (n, Expr::sym(inner)),
            None => {
                grid.push(Axis { var: outer, extent: axis.extent.ceildiv(strip) });
                (strip, Expr::sym(outer) * strip + Expr::sym(inner))
            }
        };
        let mut body = Vec::new();
        let mut work = 0i64;
        for (i, run) in std::mem::take(&mut self.runs).into_iter().enumerate() {
            let points: i64 = run.axes.iter().map(|a| self.hint(a.extent)).fold(extent, i64::saturating_mul);
            let ops: i64 = run.body.iter().chain(&run.tails).map(|l| self.body_len(&l.nest)).sum();
            work = work.saturating_add(points.saturating_mul(ops));
            let run = rename_run(run, i);
            body.extend(self.column_trees(run));
        }
        let body = body.into_iter().map(|t| rebind(t, axis.var, value)).collect();
        let kind = LoopKind::TileVector { lanes: self.target.lanes() };
        let tree = vec![Tree::Loop { kind, axis: Axis { var: inner, extent: Expr::int(extent) }, body }];
        self.kernel(grid, work, tree)
    }

    /// A run's loops below a strip of columns. Its sums have one accumulator for each column: long ones go in parts.
    fn column_trees(&self, run: Run) -> Vec<Tree> {
        let sums_only = run.body.iter().filter(|l| l.part == Part::Body).all(|leaf| {
            let stmt = self.loops.stmts.iter().position(|s| s.name() == leaf.nest);
            let body = stmt.map(|s| nest(self.loops, s).body.as_slice()).unwrap_or_default();
            body.iter().all(|i| match i.op {
                InstOp::Reduce(op, _) => op == litz_ir::ReduceOp::Sum,
                InstOp::ArgReduce { .. } => false,
                _ => true,
            })
        });
        let needed = |a: &Axis| run.tails.iter().any(|l| l.bind.iter().any(|b| b.1.has_sym(a.var)));
        if !run.reduces || !sums_only || run.axes.iter().any(needed) {
            return run_trees(run, LoopKind::For);
        }
        let body = run.body.into_iter().map(Tree::Leaf).collect();
        let mut trees = sum_in_parts(body, &run.axes, self.heuristics, &|e| self.hint(e));
        trees.extend(run.tails.into_iter().map(Tree::Leaf));
        trees
    }

    fn body_len(&self, name: &str) -> i64 {
        self.loops.stmts.iter().position(|s| s.name() == name).map_or(1, |s| nest(self.loops, s).body.len() as i64)
    }

    /// A kernel whose grid points each do `work` operations.
    fn kernel(&self, grid: Vec<Axis>, work: i64, body: Vec<Tree>) -> KernelPlan {
        let points: i64 = grid.iter().map(|a| self.hint(a.extent)).fold(1, i64::saturating_mul);
        KernelPlan {
            name: String::new(),
            at_load: false,
            grain: grain(points, work, self.target, self.heuristics),
            grid,
            body,
            locals: Vec::new(),
        }
    }
}

/// Grid points one thread takes at a time: enough to be worth waking for, few enough to share out evenly.
pub fn grain(points: i64, work: i64, target: &TargetInfo, heuristics: &Heuristics) -> u64 {
    let worth = (heuristics.chunk_ops / work.max(1)).max(1);
    let fair = (points / (4 * i64::from(target.threads.max(1)))).max(1);
    worth.max(fair.min(worth * 4)).min(points.max(1)) as u64
}

/// Gives a run's loop variables names of their own.
fn rename_run(run: Run, number: usize) -> Run {
    let renames: Vec<(Sym, Expr)> =
        run.axes.iter().map(|a| (a.var, Expr::named(&format!("{}_{number}", a.var)))).collect();
    let rename = |leaf: Leaf| Leaf {
        bind: leaf.bind.into_iter().map(|(s, e)| (s, substitute(e, &renames))).collect(),
        ..leaf
    };
    let axes = run
        .axes
        .iter()
        .zip(&renames)
        .map(|(a, r)| Axis { var: r.1.as_sym().unwrap_or(a.var), extent: a.extent })
        .collect();
    Run {
        axes,
        body: run.body.into_iter().map(rename).collect(),
        tails: run.tails.into_iter().map(rename).collect(),
        ..run
    }
}

/// A run's loops with its leaves, then its tails, under the loops the tails depend on.
fn run_trees(run: Run, innermost: LoopKind) -> Vec<Tree> {
    // Loops that tails need come first, so that tails sit inside them and outside the reduced ones.
    let needed = |a: &Axis| run.tails.iter().any(|l| l.bind.iter().any(|b| b.1.has_sym(a.var)));
    let last = run.axes.last().map(|a| a.var);
    let (kept, reduced): (Vec<Axis>, Vec<Axis>) = run.axes.iter().partition(|a| needed(a));
    let kind = |a: &Axis| if Some(a.var) == last { innermost } else { LoopKind::For };
    let mut body: Vec<Tree> = run.body.into_iter().map(Tree::Leaf).collect();
    for a in reduced.iter().rev() {
        body = vec![Tree::Loop { kind: kind(a), axis: *a, body }];
    }
    body.extend(run.tails.into_iter().map(Tree::Leaf));
    for a in kept.iter().rev() {
        body = vec![Tree::Loop { kind: kind(a), axis: *a, body }];
    }
    body
}

/// The reduced loops around `body`. Long sums are added up from parts: a single loop is cut into pieces, of several the
/// innermost that are long enough together make a part.
pub fn sum_in_parts(
    body: Vec<Tree>,
    loops: &[Axis],
    heuristics: &Heuristics,
    hint: &dyn Fn(Expr) -> i64,
) -> Vec<Tree> {
    let part = heuristics.partial_sum;
    let mut trees = body;
    let mut length = 1;
    let mut is_cut = false;
    for a in loops.iter().rev() {
        let n = hint(a.extent);
        if is_cut || length * n <= 2 * part {
            let kind = if !is_cut && length >= part && n > 1 { LoopKind::Partial } else { LoopKind::For };
            is_cut |= kind == LoopKind::Partial;
            length *= n;
            trees = vec![Tree::Loop { kind, axis: *a, body: trees }];
        } else if length >= part {
            is_cut = true;
            trees = vec![Tree::Loop { kind: LoopKind::Partial, axis: *a, body: trees }];
        } else if let Some(piece) = piece_of(&trees, a, part / length) {
            // Pieces of this loop make the parts.
            is_cut = true;
            let (outer, inner) = (Sym::new(&format!("{}b", a.var)), Sym::new(&format!("{}i", a.var)));
            let value = Expr::sym(outer) * piece + Expr::sym(inner);
            let body = trees.into_iter().map(|t| rebind(t, a.var, value)).collect();
            let inside = Axis { var: inner, extent: Expr::int(piece) };
            let inside = Tree::Loop { kind: LoopKind::For, axis: inside, body };
            let outside = Axis { var: outer, extent: a.extent.ceildiv(piece) };
            trees = vec![Tree::Loop { kind: LoopKind::Partial, axis: outside, body: vec![inside] }];
        } else {
            length *= n;
            trees = vec![Tree::Loop { kind: LoopKind::For, axis: *a, body: trees }];
        }
    }
    trees
}

/// How long to cut the pieces of a loop. Where a leaf binds an axis to more than a multiple of the variable, as it does
/// to the digits of merged axes, no piece may be cut short.
fn piece_of(body: &[Tree], axis: &Axis, wanted: i64) -> Option<i64> {
    let mut linear = true;
    for tree in body {
        tree.each_leaf(&mut |leaf| linear &= leaf.bind.iter().all(|b| b.1.linear(axis.var).is_some()));
    }
    let even = axis.extent.as_int().and_then(|n| (wanted / 4 + 1..=wanted).rev().find(|d| n % d == 0));
    even.or(linear.then_some(wanted))
}

/// Replaces variable `var` by `value` in every leaf below.
pub fn rebind(tree: Tree, var: Sym, value: Expr) -> Tree {
    match tree {
        Tree::Leaf(leaf) => {
            let bind = leaf.bind.into_iter().map(|(s, e)| (s, e.replace(var, value))).collect();
            Tree::Leaf(Leaf { bind, ..leaf })
        }
        Tree::Loop { kind, axis, body } => {
            Tree::Loop { kind, axis, body: body.into_iter().map(|t| rebind(t, var, value)).collect() }
        }
    }
}
