//! Plans kernels without contractions: pointwise kernels, reductions along rows or columns, and fusions of both.

mod shared;
mod words;

use crate::axes::{Merged, fresh, is_plain, merge_axes, order_axes, variable};
use crate::cost::{ceil_div, points, size};
use crate::cpu::k_blocks::sum_in_k_blocks;
use crate::cpu::tiles::Tile;
use crate::cut::{cut, grain, nested, rebind};
use crate::group::{Group, Member};
use crate::heuristics::Heuristics;
use crate::nest;
use crate::nests::Nests;
use litz_analysis::access::{Stride, bound_places, side_exprs, stride, substitute};
use litz_analysis::collisions::colliding_axes;
use litz_analysis::inside::{enter, undivided};
use litz_ir::ReduceOp;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest};
use litz_ir::schedule::{KernelPlan, Leaf, LoopKind, Part, Tree};
use litz_ir::target::Cpu;
use litz_sym::{Expr, Facts, Sym};

/// Bytes of a lane: vectors count in f32.
const LANE_BYTES: i64 = 4;

/// Vectors that loops of fewer points than fill this share of one run along no more, if as many accesses are contiguous along
/// an axis of points as are far apart: most lanes would idle, and what the others hold would be combined for each point. A
/// maximum of 3x3 points of 64 planes of 112x112, two apart, took 3.31 ms on one thread of an Intel Xeon in vectors of three
/// lanes, and 0.40 in vectors of 16 results, whose operands are gathered.
const SHORT_SHARE: i64 = 2;

/// Loops over short axes inside of vectors are written out: for at most so many points, and instructions.
const SHORT_POINTS: i64 = 16;
const SHORT_OPS: i64 = 128;

/// Steps of so many bytes are far: neither do they stay in a few pages of memory, nor do prefetchers follow lines.
const FAR_BYTES: i64 = 1024;

/// Points of a far axis that go by for each of a near one: lines are read on in as many places. Copies of the weights of a
/// language model, of 187, 288 and 144 MiB, whose pieces of 64 bytes were read 3 to 12 KiB apart, took 23, 28 and 13 ms, and in
/// blocks of 16 such pieces 9, 20 and 10 ms (two cores of an AMD Zen 3; 64 pieces are too many places at a time).
const FAR_POINTS: i64 = 16;

/// Tiles, each of as many rows as a vector has lanes, that a transpose block has along each axis.
const TRANSPOSE_TILES: i64 = 4;

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
        let (mut indices, mut others) = (Vec::new(), Vec::new());
        let mut weighted = Vec::new();
        for member in &self.group.members {
            let n = nest(self.loops, member.stmt);
            let facts = n.facts(&self.facts);
            for (access, index) in bound_places(self.loops, n, &member.bind, &facts) {
                indices.push(index);
                // Stores decide ties: they count double.
                weighted.extend(std::iter::repeat_n(index, if access.store { 2 } else { 1 }));
            }
            others.extend(side_exprs(n).into_iter().map(|e| substitute(e, &member.bind)));
            // A binding that is no plain sum would become a division of a division.
            others.extend(member.bind.iter().map(|b| b.1).filter(|e| !is_plain(*e)));
        }
        let (ones, mut axes): (Vec<Axis>, Vec<Axis>) =
            self.group.outer.iter().partition(|a| a.extent.is_one());
        order_axes(&mut axes, &weighted, &self.facts);
        self.outer = merge_axes(&axes, &indices, &others, &|i| self.beside_axes(&format!("g{i}")));
        if self.outer.is_empty() {
            let axis = Axis { var: self.beside_axes("g0"), extent: Expr::one() };
            self.outer.push(Merged { axis, parts: Vec::new() });
        }
        self.outer[0].parts.extend(ones.iter().map(|a| (a.var, Expr::zero())));
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
        let is_axis = |s: Sym| {
            let mut nests = self.group.members.iter().map(|m| nest(self.loops, m.stmt));
            nests.any(|n| n.all_axes().any(|a| a.var == s))
        };
        fresh(name, |s| is_axis(s) || self.loops.facts.is_symbol_declared(s))
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

    /// The shared axes that are left, as a grid.
    fn grid(&self) -> Vec<Axis> {
        self.outer.iter().map(|m| m.axis).filter(|a| !a.extent.is_one()).collect()
    }

    /// Everything is a function of the shared point: vectors along axis `v`.
    fn pointwise(&mut self, v: usize) -> KernelPlan {
        let (inner, v) = self.copied_run(v).or_else(|| self.short_axes(v)).unwrap_or_else(|| (Vec::new(), v));
        let axis = self.outer.remove(v).axis;
        self.outer.retain(|m| inner.iter().all(|a| a.var != m.axis.var));
        let mut grid = self.grid();
        let lanes = self.target.lanes();
        let runs = std::mem::take(&mut self.runs);
        let length = points(&self.loops.facts, &inner);
        let ops = runs.iter().map(Run::ops).sum::<i64>().saturating_mul(length);
        let across = self.transposed(axis, length, &grid, &runs);
        let (axis, across) = match across {
            Some(across) if self.suits_more(across, axis, inner.is_empty(), &runs) => (across, Some(axis)),
            _ => (axis, across),
        };
        let copies = runs.iter().map(|run| self.copies(run)).max().unwrap_or(1);
        let far = self.far_axis(&grid, axis, length, &runs);
        let mut body = leaves(runs);
        for &axis in inner.iter().rev() {
            body = vec![Tree::Loop { kind: LoopKind::Unroll, axis, body }];
        }
        if let Some(across) = across {
            return self.transpose_blocks(axis, across, grid, ops, body);
        }
        let vector = LoopKind::Vector { lanes, copies };
        let n = self.size(axis.extent);
        let is_small = n.saturating_mul(ops) <= self.heuristics.chunk_ops;
        if !grid.is_empty() || is_small {
            let mut tree = vec![Tree::Loop { kind: vector, axis, body }];
            let mut points = n;
            if let Some((near, far)) = far {
                (tree, points) = self.far_block(&mut grid, near, far, tree, points);
            }
            return self.kernel(grid, ops.saturating_mul(points), tree);
        }
        // One long axis: blocks of it, in whole vectors.
        let per_thread = (n / i64::from(self.target.threads.max(1))).max(1);
        let block = self.heuristics.block.min(round_up(per_thread, i64::from(lanes)));
        let (blocks, inner, value) = cut(axis, block, self.variable("b"), self.variable("v"));
        let body = body.into_iter().map(|t| rebind(t, axis.var, value)).collect();
        let tree = vec![Tree::Loop { kind: vector, axis: inner, body }];
        self.kernel(vec![blocks], ops.saturating_mul(block), tree)
    }

    /// The shared axis `v` if all that happens is that the few elements along it are copied: as many as fill a lane. Vectors
    /// run along the other axis that is given, over these loops.
    fn copied_run(&self, v: usize) -> Option<(Vec<Axis>, usize)> {
        let axis = self.outer[v].axis;
        let length = axis.extent.as_int()?;
        let is_copy = |placed: &Placed<'_>| {
            let bytes = |buf: Buf| self.loops.bufs[buf].dtype.size() as i64 * length;
            let fills_lane = |i: &Inst| i.op.element().is_some_and(|(buf, _)| bytes(buf) == LANE_BYTES);
            let is_along = |e: &Expr| stride(*e, axis.var) == Stride::Unit;
            placed.nest.body.len() == 2
                && placed.nest.body.iter().all(fills_lane)
                && placed.indices.iter().all(is_along)
        };
        let mut placed = self.runs.iter().flat_map(|r| &r.body);
        if length < 2 || !placed.all(is_copy) {
            return None;
        }
        let is_long = |m: &Merged| self.size(m.axis.extent) >= i64::from(self.target.lanes());
        let best = self.best_axis(|i, m| (i != v && is_long(m)).then_some(length))?;
        Some((vec![axis], best))
    }

    /// Short axes along which something is contiguous, in pieces that lie next to each other along the longer axis that is
    /// given. Vectors along that go over loops of the short ones, so that elements of the same cache lines are used together.
    /// The axis is `v`, unless that is a short one and something is contiguous along a longer one.
    fn short_axes(&self, v: usize) -> Option<(Vec<Axis>, usize)> {
        let is_short = |m: &Merged| is_short(m.axis, self.target.lanes(), &self.loops.facts);
        let indices = || self.runs.iter().flat_map(|r| &r.body).flat_map(|placed| &placed.indices);
        let step = |index: &Expr, m: &Merged| match stride(*index, m.axis.var) {
            Stride::Unit => Some(1),
            Stride::Elements(n) => n.as_int(),
            Stride::Zero | Stride::Irregular => None,
        };
        let ops = self.runs.iter().map(Run::ops).sum::<i64>().max(1);
        let most = SHORT_POINTS.min(SHORT_OPS / ops);
        let pieces = |along: &Merged| {
            indices().find_map(|index| {
                let length = step(index, along).filter(|n| (2..=most).contains(n))?;
                let is_inside = |m: &&Merged| is_short(m) && step(index, m).is_some_and(|n| n < length);
                let axes = self.outer.iter().filter(is_inside).map(|m| m.axis);
                let axes: Vec<Axis> = axes.filter(|a| !a.extent.is_one()).collect();
                let extents: Option<i64> = axes.iter().map(|a| a.extent.as_int()).product();
                (extents == Some(length)).then_some(axes)
            })
        };
        if !is_short(&self.outer[v]) {
            return Some((pieces(&self.outer[v])?, v));
        }
        let is_contiguous = |m: &Merged| indices().any(|e| stride(*e, m.axis.var) == Stride::Unit);
        if !self.outer.iter().any(|m| !is_short(m) && is_contiguous(m)) {
            return None;
        }
        let length = |m: &Merged| Some(points(&self.loops.facts, &pieces(m)?));
        let along = self.best_axis(|_, m| if is_short(m) { None } else { length(m) })?;
        Some((pieces(&self.outer[along])?, along))
    }

    /// The shared axis which suits vectors best, of those for which `run` says how many elements are moved together.
    fn best_axis(&self, run: impl Fn(usize, &Merged) -> Option<i64>) -> Option<usize> {
        let scored = self.outer.iter().enumerate().filter_map(|(i, m)| {
            let leaves = self.runs.iter().flat_map(|r| &r.body);
            Some((self.score(m.axis.var, run(i, m)?, leaves), i))
        });
        scored.max().map(|(_, i)| i)
    }

    /// The axes of a grid, an outer and an inner one, of which something that is short along the vectors' axis is in the other
    /// order in memory: each point of the inner one is far away.
    fn far_axis(&self, grid: &[Axis], vector: Axis, run: i64, runs: &[Run<'_>]) -> Option<(usize, usize)> {
        let far_step = FAR_BYTES / LANE_BYTES;
        let is_piece = |index: Expr| match stride_in_runs(index, vector.var, run) {
            Stride::Unit => self.size(vector.extent).saturating_mul(run) < far_step,
            Stride::Zero | Stride::Elements(_) | Stride::Irregular => true,
        };
        let step = |index: Expr, axis: Axis| match stride(index, axis.var) {
            Stride::Unit => 1,
            Stride::Elements(elements) => self.size(elements),
            Stride::Zero | Stride::Irregular => 0,
        };
        let placed = runs.iter().flat_map(|r| &r.body);
        let pieces: Vec<Expr> =
            placed.flat_map(|placed| &placed.indices).copied().filter(|e| is_piece(*e)).collect();
        let is_crossed = |near: Axis, far: Axis| {
            pieces.iter().any(|e| step(*e, far) >= far_step && (1..step(*e, far)).contains(&step(*e, near)))
        };
        let is_long = |axis: Axis| self.size(axis.extent) >= i64::from(self.target.lanes());
        (1..grid.len()).rev().filter(|&far| is_long(grid[far])).find_map(|far| {
            let near = (0..far).find(|&near| is_crossed(grid[near], grid[far]))?;
            Some((near, far))
        })
    }

    /// Takes the axes from `far` on out of a grid, all but blocks of the first one, which go around the axis `near`: lines are
    /// read on in [`FAR_POINTS`] places through all points of that. Gives the loops around `body`, and points of all of them.
    fn far_block(
        &self,
        grid: &mut Vec<Axis>,
        near: usize,
        far: usize,
        mut body: Vec<Tree>,
        points: i64,
    ) -> (Vec<Tree>, i64) {
        let mut inner = grid.split_off(far);
        let whole = inner[0];
        let (blocks, mut inside, value) = cut(whole, FAR_POINTS, self.variable("bw"), self.variable("w"));
        let mut facts = self.facts.clone();
        facts.declare_index(blocks.var, blocks.extent);
        inside.extent =
            facts.simplify((whole.extent - Expr::sym(blocks.var) * FAR_POINTS).min(inside.extent));
        body = body.into_iter().map(|t| rebind(t, whole.var, value)).collect();
        inner[0] = inside;
        grid.insert(near, blocks);
        let points = points.saturating_mul(crate::cost::points(&facts, &inner));
        (nested(body, &inner), points)
    }

    /// The grid axis along which something is contiguous, in runs of `run` elements, that is far apart along `lane`.
    fn transposed(&self, lane: Axis, run: i64, grid: &[Axis], runs: &[Run<'_>]) -> Option<Axis> {
        let lanes = i64::from(self.target.lanes());
        // The last tile may reach beyond an axis, which leaves only notice of an axis that is theirs.
        let fits = |axis: &Axis| {
            let is_own = |value: Expr| !value.has_sym(axis.var) || value == Expr::sym(axis.var);
            let mut bound = runs.iter().flat_map(|r| &r.body).flat_map(|placed| &placed.leaf.bind);
            self.facts.divides(lanes, axis.extent) || bound.all(|&(_, value)| is_own(value))
        };
        if self.size(lane.extent) < lanes || !fits(&lane) {
            return None;
        }
        let indices = runs.iter().flat_map(|r| &r.body).flat_map(|placed| &placed.indices);
        let far: Vec<Expr> = indices
            .copied()
            .filter(|e| matches!(stride_in_runs(*e, lane.var, run), Stride::Elements(_)))
            .collect();
        let is_contiguous =
            |axis: &Axis| far.iter().any(|e| stride_in_runs(*e, axis.var, run) == Stride::Unit);
        grid.iter().copied().find(|a| self.size(a.extent) >= lanes && fits(a) && is_contiguous(a))
    }

    /// Whether vectors of a transpose block run along `across` and not along `lane`. Loads of rows `are_transposed` in registers,
    /// so that vectors run along what is stored; where runs of elements are moved, along what more is contiguous along.
    fn suits_more(&self, across: Axis, lane: Axis, are_transposed: bool, runs: &[Run<'_>]) -> bool {
        let placed = || runs.iter().flat_map(|r| &r.body);
        if !are_transposed {
            return self.score(across.var, 1, placed()) > self.score(lane.var, 1, placed());
        }
        placed().any(|placed| {
            let accesses =
                bound_places(self.loops, placed.nest, &placed.leaf.bind, &placed.nest.facts(&self.facts));
            accesses.iter().any(|(access, index)| {
                access.store
                    && matches!(stride(*index, lane.var), Stride::Elements(_))
                    && stride(*index, across.var) == Stride::Unit
            })
        })
    }

    /// Plans a kernel by transpose blocks: square blocks of two axes, so that cache lines which are read across the vectors are
    /// used whole while they are in the cache. A block is made of tiles that are transposed in registers.
    fn transpose_blocks(
        &self,
        lane: Axis,
        across: Axis,
        mut grid: Vec<Axis>,
        ops: i64,
        body: Vec<Tree>,
    ) -> KernelPlan {
        let lanes = self.target.lanes();
        let side = i64::from(lanes);
        let [row_blocks, row_tiles, row] = self.transpose_axes(across, ["bu", "su", "u"]);
        let [lane_blocks, lane_tiles, column] = self.transpose_axes(lane, ["bv", "sv", "v"]);
        let value = |[block, tile, point]: [Axis; 3]| {
            Expr::sym(block.var) * (side * TRANSPOSE_TILES)
                + Expr::sym(tile.var) * side
                + Expr::sym(point.var)
        };
        let row_value = value([row_blocks, row_tiles, row]);
        let column_value = value([lane_blocks, lane_tiles, column]);
        let body: Vec<Tree> = body
            .into_iter()
            .map(|t| rebind(rebind(t, across.var, row_value), lane.var, column_value))
            .collect();
        // Written out inside of the vectors, so that loads across them can be made of rows that are transposed in
        // registers; a long body would be too much code.
        let vector = LoopKind::Vector { lanes, copies: 1 };
        let is_short = ops <= self.heuristics.inline_epilogue as i64;
        let tile = if is_short && body.iter().all(|t| matches!(t, Tree::Leaf(_))) {
            let inner = Tree::Loop { kind: LoopKind::Unroll, axis: row, body };
            Tree::Loop { kind: vector, axis: column, body: vec![inner] }
        } else {
            let inner = Tree::Loop { kind: vector, axis: column, body };
            Tree::Loop { kind: LoopKind::For, axis: row, body: vec![inner] }
        };
        let tiles = Tree::Loop { kind: LoopKind::For, axis: lane_tiles, body: vec![tile] };
        let tree = vec![Tree::Loop { kind: LoopKind::For, axis: row_tiles, body: vec![tiles] }];
        grid.retain(|a| a.var != across.var && a.var != lane.var);
        grid.extend([row_blocks, lane_blocks]);
        let points = side * TRANSPOSE_TILES;
        self.kernel(grid, ops.saturating_mul(points * points), tree)
    }

    /// Cuts an axis into transpose blocks, the tiles of a block, of which the last may have fewer, and the points of a tile.
    fn transpose_axes(&self, axis: Axis, names: [&str; 3]) -> [Axis; 3] {
        let side = i64::from(self.target.lanes());
        let [block, tile, point] = names.map(|name| self.variable(name));
        let (blocks, inside, _) = cut(axis, side * TRANSPOSE_TILES, block, tile);
        let left = axis.extent - Expr::sym(block) * inside.extent;
        let mut facts = self.facts.clone();
        facts.declare_index(block, blocks.extent);
        let tiles = facts.simplify(left.ceildiv(side).min(Expr::int(TRANSPOSE_TILES)));
        [blocks, Axis { var: tile, extent: tiles }, Axis { var: point, extent: Expr::int(side) }]
    }

    /// Vectors along the innermost loop of each run; the shared points are the grid.
    fn rows(&mut self) -> KernelPlan {
        if let Some(plan) = self.words() {
            return plan;
        }
        let runs = std::mem::take(&mut self.runs);
        let work = runs.iter().map(|run| run.ops().saturating_mul(points(&self.loops.facts, &run.axes)));
        let work = work.fold(0, i64::saturating_add);
        let (body, count) = match self.shared_rows(&runs) {
            Some(rows) => (self.row_tiles(&rows, runs), rows.count()),
            None => (runs.into_iter().flat_map(|run| self.row_trees(run)).collect(), 1),
        };
        self.kernel(self.grid(), work.saturating_mul(count), body)
    }

    /// The loops of a run for one shared point.
    fn row_trees(&self, run: Run<'_>) -> Vec<Tree> {
        let vector = LoopKind::Vector { lanes: self.target.lanes(), copies: self.copies(&run) };
        run_trees(run, vector)
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

    /// Vectors along the shared axis `v`: a strip of it is in flight while the runs' loops go by.
    fn columns(&mut self, v: usize) -> KernelPlan {
        let axis = self.outer.remove(v).axis;
        let mut grid = self.grid();
        let lanes = self.target.lanes();
        let strip = i64::from(lanes) * i64::from(self.heuristics.column_vectors);
        let (blocks, inner, value) = cut(axis, strip, self.variable("b"), self.variable("v"));
        let is_cut = axis.extent.as_int().is_none_or(|n| n > strip);
        let (inner, value) = if !is_cut {
            (Axis { extent: axis.extent, ..inner }, Expr::sym(inner.var))
        } else {
            grid.push(blocks);
            (inner, value)
        };
        let mut body = Vec::new();
        let mut work = 0i64;
        for run in std::mem::take(&mut self.runs) {
            let points = points(&self.loops.facts, run.axes.iter().chain([&inner]));
            work = work.saturating_add(run.ops().saturating_mul(points));
            body.extend(self.column_trees(run));
        }
        let body = body.into_iter().map(|t| rebind(t, axis.var, value)).collect();
        let mut facts = self.facts.clone();
        grid.iter().for_each(|axis| enter(&mut facts, *axis));
        let around = [self.around, &grid].concat();
        let tile = Tile {
            loops: self.loops,
            nests: &Nests::of(self.loops, self.group.stmts()),
            facts: &facts,
            around: &around,
            axes: &[(LoopKind::Vector { lanes, copies: 1 }, inner)],
            // Leaves that count further axes by it would only stop at the end of all of these.
            end: is_cut.then(|| axis.extent - Expr::sym(blocks.var) * strip),
        };
        let body = tile.of(body);
        self.kernel(grid, work, body)
    }

    /// A run's loops below a strip of columns. Its sums have one accumulator for each column: long ones go in parts.
    fn column_trees(&self, run: Run<'_>) -> Vec<Tree> {
        let is_sum = |i: &InstOp| !i.is_reduction() || matches!(i, InstOp::Reduce(ReduceOp::Sum, _));
        let reducing = run.body.iter().filter(|p| p.leaf.part == Part::Update);
        let sums_only = reducing.flat_map(|p| &p.nest.body).all(|i| is_sum(&i.op));
        if run.ordered || !run.reduces || !sums_only || run.axes.iter().any(|a| run.finals_need(a)) {
            return run_trees(run, LoopKind::For);
        }
        let body = run.body.into_iter().map(Placed::tree).collect();
        let mut trees = sum_in_k_blocks(body, &run.axes, self.loops, self.heuristics.partial_column);
        trees.extend(run.finals.into_iter().map(Placed::tree));
        trees
    }

    /// A kernel whose grid points each do `work` operations.
    fn kernel(&self, grid: Vec<Axis>, work: i64, body: Vec<Tree>) -> KernelPlan {
        let grain = grain(points(&self.loops.facts, &grid), work, self.target.threads, self.heuristics);
        KernelPlan { name: String::new(), at_load: false, grid, grain, persistent: None, body }
    }
}

impl<'a> Run<'a> {
    /// Adds the leaves of `nest`.
    fn add(&mut self, nest: &'a Nest, after_reduce: &[bool], bind: Vec<(Sym, Expr)>, indices: Vec<Expr>) {
        let placed = |part, bind, indices| {
            let leaf = Leaf { nest: nest.name.clone(), part, bind, masked: false, block: None };
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

    /// Whether the leaves after the loops run once for every point of this one.
    fn finals_need(&self, axis: &Axis) -> bool {
        self.finals.iter().any(|placed| placed.leaf.bind.iter().any(|b| b.1.has_sym(axis.var)))
    }
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

/// Loops of a member's own, outermost first: the one with unit steps goes innermost, whether it is reduced or not; one that
/// is too short for vectors only where no other suits them.
/// `outer` gives the values of the axes that the shared points determine.
/// Of those along which points may store to one element, `colliding`, the order is that of the nest.
fn own_loops(
    loops: &Loops,
    n: &Nest,
    (member, outer): (&Member, &[(Sym, Expr)]),
    colliding: &[Sym],
    lanes: u32,
    facts: &Facts,
) -> Vec<Merged> {
    let indices: Vec<Expr> = bound_places(loops, n, outer, facts).into_iter().map(|b| b.1).collect();
    let others = side_exprs(n);
    let is_scan = n.scanned().next().is_some();
    let own: Vec<Axis> = n.axes.iter().filter(|axis| member.is_own(axis)).copied().collect();
    // Points whose stores may meet keep their order.
    if own.iter().chain(&n.reduced).any(|a| colliding.contains(&a.var)) {
        let name = |i: usize| Sym::new(&format!("i{i}"));
        return own.iter().chain(&n.reduced).enumerate().map(|(i, a)| Merged::alone(*a, name(i))).collect();
    }
    let mut loops = Vec::new();
    for (class, mut axes) in [("i", own), ("r", n.reduced.clone())] {
        order_axes(&mut axes, &indices, facts);
        let name = |i: usize| Sym::new(&format!("{class}{i}"));
        if is_scan {
            loops.extend(axes.iter().enumerate().map(|(i, a)| Merged::alone(*a, name(i))));
        } else {
            loops.extend(merge_axes(&axes, &indices, &others, &name));
        }
    }
    let count = |m: &Merged, is: fn(&Stride) -> bool| {
        let innermost = m.parts.first().map(|p| p.0);
        innermost.map_or(0, |s| indices.iter().filter(|e| is(&stride(**e, s))).count())
    };
    let near = |m: &Merged| count(m, |s| *s == Stride::Unit);
    let far = |m: &Merged| count(m, |s| matches!(s, Stride::Elements(_)));
    let is_short = |m: &Merged| is_short(m.axis, lanes, facts);
    let has_long = !is_scan && loops.iter().any(|m| !is_short(m) && near(m) >= far(m));
    loops.sort_by_key(|m| (!(has_long && is_short(m)), near(m)));
    loops
}

/// Loops under the names of a run, and the values of all axes of a nest in them.
fn named_loops(
    own: &[Merged],
    outer: &[(Sym, Expr)],
    name: impl Fn(usize) -> Sym,
) -> (Vec<Axis>, Vec<(Sym, Expr)>) {
    let mut axes = Vec::new();
    let mut bind = outer.to_vec();
    for (i, m) in own.iter().enumerate() {
        let var = name(i);
        axes.push(Axis { var, extent: m.axis.extent });
        bind.extend(m.parts.iter().map(|(s, e)| (*s, e.replace(m.axis.var, Expr::sym(var)))));
    }
    (axes, bind)
}

fn leaves(runs: Vec<Run<'_>>) -> Vec<Tree> {
    runs.into_iter().flat_map(|run| run.body).map(Placed::tree).collect()
}

fn round_up(n: i64, to: i64) -> i64 {
    ceil_div(n, to) * to
}

/// The stride of `index` along `var` where elements are runs of `run` elements.
fn stride_in_runs(index: Expr, var: Sym, run: i64) -> Stride {
    let own = stride(index, var);
    if own == Stride::Elements(Expr::int(run)) { Stride::Unit } else { own }
}

/// A run's loops with its leaves, then its finals, under the loops the finals depend on. `innermost` is how the last loop
/// runs where order is free.
fn run_trees(run: Run<'_>, innermost: LoopKind) -> Vec<Tree> {
    // Loops that finals need come first, so that finals sit inside them and outside the reduced ones.
    let (kept, reduced): (Vec<Axis>, Vec<Axis>) = run.axes.iter().partition(|a| run.finals_need(a));
    let last = run.axes.last().map(|a| a.var).filter(|_| !run.ordered);
    let kind = |a: &Axis| if Some(a.var) == last { innermost } else { LoopKind::For };
    let wrap = |body, axes: &[Axis]| {
        axes.iter().rev().fold(body, |body, a| vec![Tree::Loop { kind: kind(a), axis: *a, body }])
    };
    let mut body = wrap(run.body.into_iter().map(Placed::tree).collect(), &reduced);
    body.extend(run.finals.into_iter().map(Placed::tree));
    wrap(body, &kept)
}
