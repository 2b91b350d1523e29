//! Plans kernels with vectors along an axis that all members share, over the loops that they have of their own.

use super::Cx;
use crate::cost::points;
use crate::cpu::tiles::Tile;
use crate::cut::{cut, rebind};
use crate::nests::Nests;
use litz_analysis::inside::enter;
use litz_ir::loops::Axis;
use litz_ir::schedule::{KernelPlan, LoopKind};
use litz_sym::Expr;

impl Cx<'_> {
    /// Vectors along the shared axis `v`: a strip of it is in flight while the runs' loops go by.
    pub(super) fn columns(&mut self, v: usize) -> KernelPlan {
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
            body.extend(self.run_trees(run, LoopKind::For));
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
}
