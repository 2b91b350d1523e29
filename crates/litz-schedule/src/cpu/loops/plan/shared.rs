//! Takes points of the grid together that read the same elements, as rows of a register tile.
//!
//! Where heads of attention share keys in groups of three, the scores of head `h` read keys at `floordiv(h, 3)`, or those of head `i` of group `g` at `g`.
//! A point of the grid computes the three heads of a group: a key is loaded once for them, and the keys come from memory once, not
//! from a cache twice more. Of LLaMA with 12 heads, 4 of keys and 4096 positions, scores and their softmax took 2.1 instead
//! of 3.5 ms of twelve layers on two threads of an AMD EPYC (AVX2).

use super::{Cx, Run};
use crate::cost::{POINTS_PER_THREAD, points};
use crate::cpu::tiles::Tile;
use crate::cut::{cut, rebind};
use crate::nests::Nests;
use litz_analysis::access::accesses;
use litz_analysis::inside::enter;
use litz_ir::loops::{Axis, Buf};
use litz_ir::schedule::{LoopKind, Tree};
use litz_sym::{Expr, Facts};
use std::collections::BTreeSet;

/// Points of an axis that read the same elements, at most: more of them are rows of a product, with a plan of its own.
const FEW: i64 = 8;

/// An axis of the grid whose points are taken together.
pub(super) struct Rows {
    /// Its position among the shared axes.
    at: usize,
    /// The axis.
    axis: Axis,
    /// What is left of it in the grid.
    grid: Axis,
    /// The points that are taken together.
    rows: Axis,
    /// The axis in terms of these two.
    value: Expr,
}

impl Cx<'_> {
    /// The points that are taken together where sums read the same elements at several: as many as there are registers for.
    /// How each sum is added up does not change.
    pub(super) fn shared_rows(&self, runs: &[Run<'_>]) -> Option<Rows> {
        let registers = i64::from(self.target.isa.vector_registers());
        // Beside the accumulators are a vector of either operand.
        let most = (registers - 2) / i64::from(self.heuristics.reduction_copies);
        let grid = points(&self.loops.facts, self.outer.iter().map(|m| &m.axis));
        let least = POINTS_PER_THREAD * i64::from(self.target.threads);
        let room = self.target.l2_bytes / self.heuristics.local_fraction;
        self.outer.iter().enumerate().find_map(|(at, merged)| {
            let axis = merged.axis;
            let extent = axis.extent.as_int()?;
            if !runs.iter().any(|run| run.is_divided(axis) || run.is_beside(axis)) {
                return None;
            }
            let stored = self.stored_bytes(runs) / grid;
            let suits = |&count: &i64| {
                extent % count == 0 && grid / count >= least && stored.saturating_mul(count) <= room
            };
            (2..=most).rev().filter(suits).find_map(|count| {
                let (grid, rows, value) = cut(axis, count, self.variable("go"), self.variable("gi"));
                // Of an axis that is taken whole nothing is left in the grid.
                let value = if grid.extent.is_one() { Expr::sym(rows.var) } else { value };
                let rows = Rows { at, axis, grid, rows, value };
                let facts = rows.facts(&self.facts);
                runs.iter().any(|run| rows.are_shared_by(run, &facts)).then_some(rows)
            })
        })
    }

    /// The trees of all runs for rows that share what they read.
    pub(super) fn row_tiles(&mut self, rows: &Rows, runs: Vec<Run<'_>>) -> Vec<Tree> {
        self.outer[rows.at].axis = rows.grid;
        let facts = rows.facts(&self.facts);
        let mut inside = self.facts.clone();
        let around = [self.around, &self.grid()].concat();
        around.iter().for_each(|axis| enter(&mut inside, *axis));
        let nests = Nests::of(self.loops, self.group.stmts());
        let axes = [(LoopKind::Unroll, rows.rows)];
        let tile = Tile {
            loops: self.loops,
            nests: &nests,
            facts: &inside,
            around: &around,
            axes: &axes,
            end: None,
        };
        let (mut body, mut one_by_one) = (Vec::new(), Vec::new());
        let end = |one_by_one: &mut Vec<Tree>, body: &mut Vec<Tree>| {
            if !one_by_one.is_empty() {
                let trees = std::mem::take(one_by_one);
                body.push(Tree::Loop { kind: LoopKind::For, axis: rows.rows, body: trees });
            }
        };
        for run in runs {
            let is_shared = rows.are_shared_by(&run, &facts);
            let trees = self.row_trees(run).into_iter().map(|tree| rebind(tree, rows.axis.var, rows.value));
            if is_shared {
                end(&mut one_by_one, &mut body);
                body.extend(tile.of(trees.collect()));
            } else {
                one_by_one.extend(trees);
            }
        }
        end(&mut one_by_one, &mut body);
        body
    }

    /// Bytes that the nests of runs store.
    fn stored_bytes(&self, runs: &[Run<'_>]) -> i64 {
        let nests = runs.iter().flat_map(|run| &run.body).map(|placed| placed.nest);
        let stores = nests.flat_map(accesses).filter(|access| access.store);
        let bufs: BTreeSet<Buf> = stores.map(|access| access.buf).collect();
        let bytes = |buf| {
            let data = &self.loops.bufs[buf];
            self.size(data.span()).saturating_mul(data.dtype.size() as i64)
        };
        bufs.into_iter().map(bytes).fold(0, i64::saturating_add)
    }
}

impl Rows {
    /// How many points are taken together.
    pub(super) fn count(&self) -> i64 {
        self.rows.extent.as_int().expect("invariant: as many rows as were chosen")
    }

    /// What is known where both loops are around.
    fn facts(&self, facts: &Facts) -> Facts {
        let mut facts = facts.clone();
        [self.grid, self.rows].iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
        facts
    }

    /// Whether a run adds up elements along loops of its own that are the same for all rows.
    fn are_shared_by(&self, run: &Run<'_>, facts: &Facts) -> bool {
        let is_same = |place: Expr| {
            let place = place.replace(self.axis.var, self.value);
            !facts.simplify(place).has_sym(self.rows.var)
        };
        run.is_beside(self.axis) || run.is_divided(self.axis) && run.divided(self.axis).any(is_same)
    }
}

impl Run<'_> {
    /// The places that its sums read along its loops.
    fn inside(&self) -> impl Iterator<Item = Expr> {
        let is_inside = move |place: &Expr| self.axes.iter().any(|own| place.has_sym(own.var));
        self.body.iter().flat_map(|placed| placed.indices.iter().copied()).filter(is_inside)
    }

    /// Those that depend on an axis of the grid.
    fn divided(&self, axis: Axis) -> impl Iterator<Item = Expr> {
        self.inside().filter(move |place| place.has_sym(axis.var))
    }

    /// Whether its points may be taken together, which are few, and read the same at some places and not at others: heads of a group that is an axis
    /// of its own.
    fn is_beside(&self, axis: Axis) -> bool {
        let is_few = axis.extent.as_int().is_some_and(|extent| extent <= FEW);
        let mut along = self.inside();
        is_few
            && self.reduces
            && !self.ordered
            && self.divided(axis).next().is_some()
            && along.any(|place| !place.has_sym(axis.var))
    }

    /// Whether its points may be taken together, and there is a place among those that is no multiple of the axis.
    fn is_divided(&self, axis: Axis) -> bool {
        self.reduces && !self.ordered && self.divided(axis).any(|place| place.linear(axis.var).is_none())
    }
}
