//! Plans kernels that read along one axis and store along another: square blocks that are transposed in registers.

use super::{Cx, Run, stride_in_runs};
use crate::cut::{cut, rebind};
use litz_analysis::access::{Stride, bound_places, stride};
use litz_ir::loops::Axis;
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};
use litz_sym::Expr;

/// Tiles, each of as many rows as a vector has lanes, that a transpose block has along each axis.
const TRANSPOSE_TILES: i64 = 4;

impl Cx<'_> {
    /// The grid axis along which something is contiguous, in runs of `run` elements, that is far apart along `lane`.
    pub(super) fn transposed(&self, lane: Axis, run: i64, grid: &[Axis], runs: &[Run<'_>]) -> Option<Axis> {
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
    pub(super) fn suits_more(
        &self,
        across: Axis,
        lane: Axis,
        are_transposed: bool,
        runs: &[Run<'_>],
    ) -> bool {
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
    pub(super) fn transpose_blocks(
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
}
