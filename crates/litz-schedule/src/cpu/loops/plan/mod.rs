//! Plans kernels without contractions: pointwise kernels, reductions along rows or columns, and fusions of both.

mod columns;
mod own;
mod pointwise;
mod rows;
mod shared;
mod transpose;
mod words;

use crate::axes::{Merged, variable};
use crate::cost::{points, size};
use crate::cpu::k_blocks::{chain, is_rounded_to_half, sum_in_k_blocks};
use crate::cpu::tiles::in_loops;
use crate::cut::{grain, nested};
use crate::group::{Group, beside_axes, shared_axes};
use crate::heuristics::Heuristics;
use crate::nest;
use litz_analysis::access::{Stride, bound_places, stride, substitute};
use litz_analysis::collisions::colliding_axes;
use litz_analysis::inside::undivided;
use litz_ir::ReduceOp;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_ir::target::Cpu;
use litz_sym::{Expr, Facts, Sym};
use own::{named_loops, own_loops};

/// Bytes of a lane: vectors count in f32.
const LANE_BYTES: i64 = 4;

/// Vectors that loops of fewer points than fill this share of one run along no more, if as many accesses are contiguous along
/// an axis of points as are far apart: most lanes would idle, and what the others hold would be combined for each point. A
/// maximum of 3x3 points of 64 planes of 112x112, two apart, took 3.31 ms on one thread of an Intel Xeon in vectors of three
/// lanes, and 0.40 in vectors of 16 results, whose operands are gathered.
const SHORT_SHARE: i64 = 2;

/// Plans the kernel of `group`.
pub fn plan(loops: &Loops, group: &Group, target: &Cpu, heuristics: &Heuristics) -> KernelPlan {
    plan_in(loops, group, &[], target, heuristics)
}

/// The trees of a group in loops `around`, those over the points that its members share among them.
pub fn phase(
    loops: &Loops,
    group: &Group,
    around: &[Axis],
    target: &Cpu,
    heuristics: &Heuristics,
) -> Vec<Tree> {
    let KernelPlan { grid, body, .. } = plan_in(loops, group, around, target, heuristics);
    nested(body, &grid)
}

fn plan_in(
    loops: &Loops,
    group: &Group,
    around: &[Axis],
    target: &Cpu,
    heuristics: &Heuristics,
) -> KernelPlan {
    let mut facts = group.facts(&loops.facts);
    around.iter().for_each(|a| facts.declare_index(a.var, a.extent));
    let mut cx = Cx { loops, group, around, target, heuristics, facts, outer: Vec::new(), runs: Vec::new() };
    cx.merge_outer();
    cx.form_runs();
    cx.build()
}

struct Cx<'a> {
    loops: &'a Loops,
    group: &'a Group,
    /// Loops around.
    around: &'a [Axis],
    target: &'a Cpu,
    heuristics: &'a Heuristics,
    facts: Facts,
    /// Shared axes, merged and ordered; and the group's variables in terms of them.
    outer: Vec<Merged>,
    runs: Vec<Run<'a>>,
}

/// Leaves that share loops, and the leaves that follow those loops.
struct Run<'a> {
    /// Own loops, outermost first.
    axes: Vec<Axis>,
    body: Vec<Placed<'a>>,
    /// Leaves of final parts, which follow the loops over reduced axes.
    finals: Vec<Placed<'a>>,
    /// Runs in order, along the axis of a scan.
    ordered: bool,
    reduces: bool,
    /// For each of the loops, whether the leaves that reduce do so along it.
    reduced: Vec<bool>,
}

/// A leaf and the nest it stands for.
struct Placed<'a> {
    nest: &'a Nest,
    leaf: Leaf,
    /// Places of its accesses in memory, in terms of the kernel's variables.
    indices: Vec<Expr>,
}

/// An element that a leaf of the last run stores or loads.
struct Touched {
    buf: Buf,
    index: Expr,
    is_store: bool,
    /// Leaves of the same loops may touch the element at that index: it is there, or read, by then, and no other is meant.
    is_shareable: bool,
}

impl<'a> Cx<'a> {
    /// Orders and merges the shared axes by what all members access.
    fn merge_outer(&mut self) {
        let name = |i: usize| self.beside_axes(&format!("g{i}"));
        self.outer = shared_axes(self.loops, self.group, &self.facts, &name);
        for m in &self.outer {
            self.facts.declare_index(m.axis.var, m.axis.extent);
        }
    }

    /// Distributes members over runs of shared inner loops.
    fn form_runs(&mut self) {
        let outer_bind: Vec<(Sym, Expr)> = self.outer.iter().flat_map(|m| m.parts.clone()).collect();
        let mut touched: Vec<Touched> = Vec::new();
        for member in &self.group.members {
            let n = nest(self.loops, member.stmt);
            let mut facts = n.facts(&self.facts);
            let outer: Vec<(Sym, Expr)> =
                member.bind.iter().map(|(a, e)| (*a, facts.simplify(substitute(*e, &outer_bind)))).collect();
            let colliding = colliding_axes(self.loops, n);
            let own = own_loops(self.loops, n, (member, &outer), &colliding, self.target.lanes(), &facts);
            let collides = own.iter().flat_map(|m| &m.parts).any(|part| colliding.contains(&part.0));
            let is_ordered = collides || n.scanned().next().is_some();
            let after = n.after_reduce();

            let is_reduced = |m: &Merged| m.parts.iter().any(|p| n.reduced.iter().any(|a| a.var == p.0));
            let reduced: Vec<bool> = own.iter().map(is_reduced).collect();

            // Loops of equal shape share variables, so that leaves can share loops. Tails follow the reduced ones: these
            // must be the same for all.
            let shares = |run: &Run<'_>| {
                let extents = run.axes.iter().map(|a| a.extent);
                let one_final = n.reduced.is_empty() || !run.reduces || run.reduced == reduced;
                let is_alike = extents.eq(own.iter().map(|m| m.axis.extent)) && one_final;
                !own.is_empty() && !run.ordered && !is_ordered && is_alike
            };
            let mut number = self.runs.len();
            let mut bound = Vec::new();
            let (mut axes, mut bind) = (Vec::new(), Vec::new());
            let candidates =
                [self.runs.last().filter(|run| shares(run)).map(|_| number.saturating_sub(1)), Some(number)];
            for candidate in candidates.into_iter().flatten() {
                number = candidate;
                (axes, bind) = named_loops(&own, &outer, |i| self.beside_axes(&format!("r{i}_{number}")));
                axes.iter().for_each(|a: &Axis| facts.declare_index(a.var, a.extent));
                bound = bound_places(self.loops, n, &bind, &facts);
                let joins = bound.iter().all(|(access, index)| {
                    let is_done = |t: &Touched| t.is_shareable && t.index == *index && !after[access.at];
                    let is_free = |t: &Touched| t.buf != access.buf || !t.is_store && !access.store;
                    touched.iter().all(|t| is_free(t) || is_done(t))
                });
                if joins {
                    break;
                }
            }
            if number == self.runs.len() {
                touched.clear();
                self.runs.push(Run {
                    axes,
                    body: Vec::new(),
                    finals: Vec::new(),
                    ordered: is_ordered,
                    reduces: false,
                    reduced: Vec::new(),
                });
            }
            let reduces = !n.reduced.is_empty();
            for (access, index) in &bound {
                // An index chosen by data equals no other, whatever their names.
                let is_chosen =
                    n.body.iter().any(|i| matches!(i.op, InstOp::Bind { sym, .. } if index.has_sym(sym)));
                let is_shareable = !(is_chosen || reduces && after[access.at]);
                let (buf, is_store) = (access.buf, access.store);
                touched.push(Touched { buf, index: *index, is_store, is_shareable });
            }
            if reduces {
                self.runs[number].reduced = reduced;
            }
            let indices = bound.into_iter().map(|b| b.1).collect();
            self.runs[number].add(n, &after, bind, indices);
        }
    }

    /// How well vectors along `var` suit the accesses of leaves, whose elements are runs of `run` of a buffer's: unit steps
    /// are good, far ones bad.
    fn score<'b>(&self, var: Sym, run: i64, leaves: impl Iterator<Item = &'b Placed<'a>>) -> i64
    where
        'a: 'b,
    {
        let gain = |index: &Expr| match stride_in_runs(*index, var, run) {
            Stride::Zero => 0,
            Stride::Unit => 4,
            Stride::Elements(_) => -4,
            Stride::Irregular => -3,
        };
        leaves
            .map(|placed| {
                let gains: i64 = placed.indices.iter().map(gain).sum();
                points(&self.loops.facts, placed.nest.all_axes()).saturating_mul(gains)
            })
            .fold(0, i64::saturating_add)
    }

    fn variable(&self, name: &str) -> Sym {
        variable(self.loops, name)
    }

    /// A variable that can be told from the members' axes, too.
    fn beside_axes(&self, name: &str) -> Sym {
        beside_axes(self.loops, self.group, name)
    }

    fn size(&self, e: Expr) -> i64 {
        size(&self.loops.facts, e)
    }

    fn build(mut self) -> KernelPlan {
        let best_outer = self
            .outer
            .iter()
            .enumerate()
            .filter(|(_, m)| !m.axis.extent.is_one())
            .map(|(i, m)| (self.score(m.axis.var, 1, self.runs.iter().flat_map(|r| &r.body)), i))
            .max();
        let has_inner = self.runs.iter().any(|r| !r.axes.is_empty());
        let best_outer = best_outer.filter(|&(_, v)| !has_inner || self.ends_leaves(self.outer[v].axis));
        let best_inner: i64 = self
            .runs
            .iter()
            .filter(|r| !r.ordered)
            .filter_map(|r| Some(self.score(r.axes.last()?.var, 1, r.body.iter())))
            .fold(0, i64::saturating_add);
        match best_outer {
            Some((_, v)) if !has_inner => self.pointwise(v),
            Some((score, v)) if score > best_inner && self.size(self.outer[v].axis.extent) >= 4 => {
                self.columns(v)
            }
            Some((0.., v)) if self.fills_vectors_better(self.outer[v].axis) => self.columns(v),
            _ => self.rows(),
        }
    }

    /// Whether each leaf ends where the axis does, so that masks of leaves end its last strip where that is as long as calls
    /// say. A leaf may count rows of other axes by it, too: its next row is no point past its end.
    fn ends_leaves(&self, axis: Axis) -> bool {
        let ends = |placed: &Placed<'_>| {
            let is_end = |&(own, value): &(Sym, Expr)| {
                let Some(end) = placed.nest.all_axes().find(|axis| axis.var == own) else { return false };
                let (value, end) = undivided(value, end.extent, &self.facts);
                let counted = value.linear(axis.var).filter(|(factor, _)| factor.is_one());
                counted.is_some_and(|(_, rest)| end - rest == axis.extent)
            };
            placed.leaf.bind.iter().any(is_end)
        };
        axis.extent.as_int().is_some()
            || self.runs.iter().flat_map(|run| run.body.iter().chain(&run.finals)).all(ends)
    }

    /// Whether the innermost loops of all runs are too short for vectors, and the axis is not.
    fn fills_vectors_better(&self, axis: Axis) -> bool {
        let lanes = self.target.lanes();
        let is_short =
            |run: &Run<'_>| run.axes.last().is_none_or(|inner| is_short(*inner, lanes, &self.loops.facts));
        self.size(axis.extent) >= i64::from(lanes) && self.runs.iter().all(is_short)
    }

    /// A run's loops with its leaves, then its finals, under the loops the finals depend on. `innermost` is how the last loop
    /// runs where order is free.
    fn run_trees(&self, run: Run<'_>, innermost: LoopKind) -> Vec<Tree> {
        let last = run.axes.last().map(|a| a.var).filter(|_| !run.ordered);
        let kind = |a: &Axis| if Some(a.var) == last { innermost } else { LoopKind::For };
        // Loops that finals need come first, so that finals sit inside them and outside the reduced ones.
        let (kept, reduced): (Vec<_>, Vec<_>) =
            run.axes.iter().map(|a| (kind(a), *a)).partition(|(_, a)| run.finals_need(a));
        let terms = run.terms(self.loops, &reduced, self.heuristics);
        let leaves = run.body.into_iter().map(Placed::tree).collect();
        let mut body = match terms {
            Some(terms) => sum_in_k_blocks(leaves, &reduced, self.loops, terms),
            None => in_loops(&reduced, leaves),
        };
        body.extend(run.finals.into_iter().map(Placed::tree));
        in_loops(&kept, body)
    }

    /// The shared axes that are left, as a grid.
    fn grid(&self) -> Vec<Axis> {
        self.outer.iter().map(|m| m.axis).filter(|a| !a.extent.is_one()).collect()
    }

    /// Vectors in flight along the innermost loop of a run.
    fn copies(&self, run: &Run<'_>) -> u32 {
        let is_function = |i: &Inst| matches!(i.op, InstOp::Op(op, _) if op.is_function());
        if run.reduces {
            self.heuristics.reduction_copies
        } else if run.body.iter().any(|placed| placed.nest.body.iter().any(is_function)) {
            self.heuristics.function_copies
        } else {
            1
        }
    }

    /// A kernel whose grid points each do `work` operations.
    fn kernel(&self, grid: Vec<Axis>, work: i64, body: Vec<Tree>) -> KernelPlan {
        let grain = grain(points(&self.loops.facts, &grid), work, self.target.threads, self.heuristics);
        KernelPlan::new(grid, grain, body)
    }
}

impl<'a> Run<'a> {
    /// Adds the leaves of `nest`.
    fn add(&mut self, nest: &'a Nest, after_reduce: &[bool], bind: Vec<(Sym, Expr)>, indices: Vec<Expr>) {
        let placed = |part, bind, indices| {
            let leaf = Leaf { nest: nest.name.clone(), part, bind, masked: false, block: None, by: None };
            Placed { nest, leaf, indices }
        };
        if nest.reduced.is_empty() {
            return self.body.push(placed(Part::Whole, bind, indices));
        }
        self.reduces = true;
        let is_reduced = |s: Sym| nest.reduced.iter().any(|a| a.var == s);
        let outer_bind = bind.iter().copied().filter(|b| !is_reduced(b.0)).collect();
        self.body.push(placed(Part::Update, bind, indices));
        let is_store = |op: &InstOp| matches!(op, InstOp::Store { .. });
        if after_reduce.iter().zip(&nest.body).any(|(after, i)| *after && is_store(&i.op)) {
            self.finals.push(placed(Part::Final, outer_bind, Vec::new()));
        }
    }

    /// Instructions of all leaves.
    fn ops(&self) -> i64 {
        self.body.iter().chain(&self.finals).map(|placed| placed.nest.body.len() as i64).sum()
    }

    /// Terms that its sums along these loops may add up one after another; nothing where no sum is rounded. Where no lanes of a
    /// vector share them, blocks are as long as there are blocks, within limits: errors grow with both numbers.
    fn terms(&self, loops: &Loops, reduced: &[(LoopKind, Axis)], heuristics: &Heuristics) -> Option<i64> {
        let is_shared = reduced.last().is_some_and(|&(kind, axis)| match kind {
            LoopKind::Vector { lanes, .. } => size(&loops.facts, axis.extent) >= i64::from(lanes),
            LoopKind::For
            | LoopKind::Unroll
            | LoopKind::Pipeline { .. }
            | LoopKind::Level(_)
            | LoopKind::Chain
            | LoopKind::Mma => false,
        });
        let &Heuristics { partial_sum, partial_half, partial_column, .. } = heuristics;
        let terms = match is_shared {
            true => partial_sum,
            false => partial_sum.min(chain(reduced, loops).isqrt().max(partial_column)),
        };
        let updates = self.body.iter().filter(|placed| placed.leaf.part == Part::Update && !self.ordered);
        let rounded = updates.filter(|placed| placed.nest.body.iter().any(is_rounded_sum));
        let of = |placed: &Placed<'_>| {
            if is_rounded_to_half(loops, placed.nest) { partial_half } else { terms }
        };
        rounded.map(of).min()
    }

    /// Whether the leaves after the loops run once for every point of this one.
    fn finals_need(&self, axis: &Axis) -> bool {
        self.finals.iter().any(|placed| placed.leaf.bind.iter().any(|b| b.1.has_sym(axis.var)))
    }
}

/// Whether an instruction adds up what is rounded after each addition.
fn is_rounded_sum(inst: &Inst) -> bool {
    matches!(inst.op, InstOp::Reduce(ReduceOp::Sum, _)) && inst.ty.is_float()
}

impl Placed<'_> {
    fn tree(self) -> Tree {
        Tree::Leaf(self.leaf)
    }
}

/// Whether vectors along an axis would have most of their lanes idle.
fn is_short(axis: Axis, lanes: u32, facts: &Facts) -> bool {
    size(facts, axis.extent).saturating_mul(SHORT_SHARE) <= i64::from(lanes)
}

/// The stride of `index` along `var` where elements are runs of `run` elements.
fn stride_in_runs(index: Expr, var: Sym, run: i64) -> Stride {
    let own = stride(index, var);
    if own == Stride::Elements(Expr::int(run)) { Stride::Unit } else { own }
}
