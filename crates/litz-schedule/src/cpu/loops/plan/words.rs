//! Plans products of one row with words of integers: vectors run along the words, and several results use each.

use super::{Cx, Placed};
use crate::axes::Merged;
use crate::cost::points;
use crate::cut::{cut, rebind};
use litz_analysis::contraction::Words;
use litz_ir::loops::Axis;
use litz_ir::schedule::{KernelPlan, LoopKind, Tree};

/// Results that use each vector before the next is loaded: the sums of one wait for each other, and loads of the left
/// operand serve all. Of 4096 products of 4096 terms with integers of four bits, two at a time took 0.31 ms on two threads
/// of an Intel Xeon (AVX-512) and one 0.32; with four the sums need no accumulators beside.
const RESULTS: i64 = 4;

impl Cx<'_> {
    /// The plan of such a product and of what follows its results one by one.
    pub(super) fn words(&mut self) -> Option<KernelPlan> {
        let lanes = self.target.lanes();
        let (run, rest) = self.runs.split_first()?;
        if rest.iter().any(|run| !run.axes.is_empty()) {
            return None;
        }
        // Products that share the left operand run side by side, if their words are alike.
        let mut inner = run.body.iter().map(|placed| {
            let words = Words::of(self.loops, placed.nest, i64::from(lanes))?;
            let own = |axis: Axis| {
                let bound = placed.leaf.bind.iter().find(|bind| bind.0 == axis.var)?.1.as_sym()?;
                run.axes.iter().copied().find(|to| to.var == bound)
            };
            Some([own(words.place)?, own(words.lane)?])
        });
        let [place, lane] = inner.next()??;
        if inner.any(|other| other != Some([place, lane])) {
            return None;
        }
        let Merged { axis, .. } = self.outer.last()?.clone();
        let extent = axis.extent.as_int()?;
        let results = (1..=RESULTS).rfind(|results| extent % results == 0)?;
        let (blocks, result, value) = cut(axis, results, self.variable("b"), self.variable("u"));
        let looped = |kind, axis, body: Vec<Tree>| vec![Tree::Loop { kind, axis, body }];
        let (mut body, mut work) = (Vec::new(), 0i64);
        for run in std::mem::take(&mut self.runs) {
            let ops = run.ops().saturating_mul(points(&self.loops.facts, &run.axes));
            work = work.saturating_add(ops.saturating_mul(results));
            let (leaves, finals) = (run.body, run.finals);
            let mut trees = looped(LoopKind::Unroll, result, leaves.into_iter().map(Placed::tree).collect());
            if !run.axes.is_empty() {
                trees = looped(LoopKind::Unroll, place, trees);
                trees = looped(LoopKind::Vector { lanes, copies: 1 }, lane, trees);
                let plain = run.axes.iter().filter(|axis| ![place.var, lane.var].contains(&axis.var));
                trees = plain.rev().fold(trees, |trees, &axis| looped(LoopKind::For, axis, trees));
            }
            body.extend(trees);
            if !finals.is_empty() {
                body.extend(looped(LoopKind::Unroll, result, finals.into_iter().map(Placed::tree).collect()));
            }
        }
        let body = body.into_iter().map(|tree| rebind(tree, axis.var, value)).collect();
        self.outer.pop();
        let mut grid = self.grid();
        grid.push(blocks);
        Some(self.kernel(grid, work, body))
    }
}
