//! Plans kernels with vectors along the innermost loops that members have of their own.

use super::{Cx, Run};
use crate::cost::points;
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};

impl Cx<'_> {
    /// Vectors along the innermost loop of each run; the shared points are the grid.
    pub(super) fn rows(&mut self) -> KernelPlan {
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
    pub(super) fn row_trees(&self, run: Run<'_>) -> Vec<Tree> {
        let vector = LoopKind::Vector { lanes: self.target.lanes(), copies: self.copies(&run) };
        self.run_trees(run, vector)
    }
}
