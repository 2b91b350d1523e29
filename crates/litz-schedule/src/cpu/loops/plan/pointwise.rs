//! Plans kernels in which everything is a function of the shared point: vectors along one of its axes.

use super::{Cx, LANE_BYTES, Placed, Run, is_short, stride_in_runs};
use crate::axes::Merged;
use crate::cost::{ceil_div, points};
use crate::cut::{cut, nested, rebind};
use litz_analysis::access::{Stride, stride};
use litz_ir::loops::{Axis, Buf, Inst};
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_sym::Expr;

/// Loops over short axes inside of vectors are written out: for at most so many points, and instructions.
const SHORT_POINTS: i64 = 16;
const SHORT_OPS: i64 = 128;

/// Steps of so many bytes are far: neither do they stay in a few pages of memory, nor do prefetchers follow lines.
const FAR_BYTES: i64 = 1024;

/// Points of a far axis that go by for each of a near one: lines are read on in as many places. Copies of the weights of a
/// language model, of 187, 288 and 144 MiB, whose pieces of 64 bytes were read 3 to 12 KiB apart, took 23, 28 and 13 ms, and in
/// blocks of 16 such pieces 9, 20 and 10 ms (two cores of an AMD Zen 3; 64 pieces are too many places at a time).
const FAR_POINTS: i64 = 16;

impl Cx<'_> {
    /// Everything is a function of the shared point: vectors along axis `v`.
    pub(super) fn pointwise(&mut self, v: usize) -> KernelPlan {
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
}

fn leaves(runs: Vec<Run<'_>>) -> Vec<Tree> {
    runs.into_iter().flat_map(|run| run.body).map(Placed::tree).collect()
}

fn round_up(n: i64, to: i64) -> i64 {
    ceil_div(n, to) * to
}
