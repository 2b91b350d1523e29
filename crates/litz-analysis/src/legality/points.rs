//! Checks the points that parts of nests take in their loops: each of its own once, running values by one thread, tiles
//! together.

use std::collections::{HashMap, HashSet};

use litz_sym::{Expr, Facts, Kind, Rel, Sym};

use super::coverage::{Bound, Coverage};
use super::{Around, Place, Verifier};
use litz_ir::loops::{Axis, Nest, Stmt};
use litz_ir::schedule::{Leaf, LoopKind, Part};
use litz_ir::verify::Report;

impl Verifier<'_> {
    /// Every axis of the nest has a value, which takes each of its own once.
    pub(super) fn bindings(&mut self, leaf: &Leaf, nest: &Nest) {
        let name = &leaf.nest;
        let before = self.report.diags.len();
        let taken: Vec<&Axis> = match leaf.part {
            Part::Whole | Part::Update => nest.all_axes().collect(),
            Part::Final => nest.axes.iter().collect(),
            Part::Init | Part::Merge => nest.kept_apart().collect(),
        };
        let axes: HashMap<Sym, Expr> = taken.iter().map(|axis| (axis.var, axis.extent)).collect();
        let mut bound = HashSet::new();
        for &(axis, value) in &leaf.bind {
            self.report.expr(value, format_args!("`{name}`, axis {axis}"));
            let message = format_args!("`{name}` has no axis {axis} here");
            self.report.check(axes.contains_key(&axis), "unknown-axis", message);
            self.report.check(
                bound.insert(axis),
                "duplicate-symbol",
                format_args!("`{name}` binds {axis} twice"),
            );
        }
        for axis in taken.iter().filter(|axis| !bound.contains(&axis.var)) {
            self.report.fail("unbound-axis", format_args!("`{name}` does not say what axis {} is", axis.var));
        }
        if self.report.diags.len() == before && !self.has_wrong_loops {
            self.coverage(leaf, nest, &axes);
        }
        if self.report.diags.len() > before {
            // What follows asks which loops the axes depend on; that was wrong already.
            return;
        }
        // In each iteration of their scope there are other accumulators to initialize, and to merge.
        let repeats = match leaf.part {
            Part::Whole | Part::Update | Part::Final => 0,
            Part::Init | Part::Merge => self.scope_of(name).map_or(0, |scope| scope.loops),
        };
        for Around { axis, .. } in &self.path[repeats..] {
            let users: Vec<Expr> =
                leaf.bind.iter().map(|&(_, value)| value).filter(|value| value.has_sym(axis.var)).collect();
            let counts_blocks = leaf.block.is_some_and(|block| block.number == Expr::sym(axis.var));
            // A loop of one iteration repeats nothing, and leaves out nothing; where the nest has no points it may have none.
            let count = self.loops.facts.bounds(axis.extent);
            let is_empty = count.hi <= 1 && axes.values().any(|extent| extent.is_zero());
            let is_one = count.hi == 1 && count.lo == 1;
            if users.is_empty() && !is_one && !is_empty && !counts_blocks {
                let message = format_args!("`{name}` runs at each {axis}, but no axis depends on it");
                self.report.fail("repeated-leaf", message);
            }
        }
    }

    /// A loop as long as the axis of the nest that it counts, where all that it leaves out is idle.
    ///
    /// In `for jb in min(8, ceildiv(16*io + 16, 64)) { tile ii in 16 { .. } }` iterations of a nest that is idle where
    /// `16*io + ii < 64*jb` may be missing: those of an extent of 8 do not exist, those of the other are past the end of the rows.
    fn with_idle(&self, axis: Axis, leaf: &Leaf, nest: &Nest) -> Axis {
        let Some(idle) = nest.idle else { return axis };
        let is_counted = |own: &&Axis| leaf.bind.iter().any(|bind| *bind == (own.var, Expr::sym(axis.var)));
        let Some(counted) = nest.axes.iter().find(is_counted) else { return axis };
        let mut facts = self.loops.facts.clone();
        let others = self.path.iter().filter(|around| around.axis.var != axis.var);
        others.for_each(|around| facts.declare_index(around.axis.var, around.axis.extent));
        let mut ends = vec![axis.extent];
        while let Some(at) = ends.iter().position(|end| matches!(end.kind(), Kind::Min(..))) {
            if let Kind::Min(a, b) = ends.swap_remove(at).kind() {
                ends.extend([a, b]);
            }
        }
        // Later iterations are idle where the first is, as the verifier of loops has seen.
        let is_idle = |end: Expr| {
            let value = |sym: Sym| match sym == counted.var {
                true => Some(end),
                false => leaf.bind.iter().find(|bind| bind.0 == sym).map(|bind| bind.1),
            };
            facts.proves(&idle.subst(&value))
        };
        let are_idle = ends.into_iter().all(|end| end == counted.extent || is_idle(end));
        if are_idle { Axis { extent: counted.extent, ..axis } } else { axis }
    }

    /// Reports axes whose points are not known to be each taken once, of a leaf that gives all of them a value.
    fn coverage(&mut self, leaf: &Leaf, nest: &Nest, axes: &HashMap<Sym, Expr>) {
        let values = leaf.bind.iter().filter_map(|bind| Some((bind.1, *axes.get(&bind.0)?)));
        let loops: Vec<Axis> =
            self.path.iter().map(|around| self.with_idle(around.axis, leaf, nest)).collect();
        let bindings = (values.collect(), loops.clone());
        let before = self.report.diags.len();
        if !self.proofs.get_mut().is_covered(&bindings) {
            self.coverage_of(leaf, nest, axes, loops);
            if self.report.diags.len() == before {
                self.proofs.get_mut().cover(bindings);
            }
        }
    }

    fn coverage_of(&mut self, leaf: &Leaf, nest: &Nest, axes: &HashMap<Sym, Expr>, around: Vec<Axis>) {
        // Where nothing is reduced, accumulators still belong to the points of the other axes.
        let is_empty = nest.reduces() && nest.reduced.iter().any(|axis| axis.extent.is_zero());
        let is_taken = |axis: Sym| !is_empty || nest.axes.iter().any(|own| own.var == axis);
        let taken = || leaf.bind.iter().filter(|bind| is_taken(bind.0));
        let extents = taken().filter_map(|bind| axes.get(&bind.0).copied());
        let Some(coverage) = Coverage::new(&self.loops.facts, extents, around.into_iter()) else { return };
        let bound = taken().filter_map(|&(axis, value)| Some((axis, *axes.get(&axis)?, value)));
        let bound: Vec<Bound> = bound
            .map(|(axis, extent, value)| Bound { axis, extent, value: coverage.without_ones(value) })
            .collect();
        for together in coverage.together(&bound) {
            if !coverage.is_once(&together) {
                let values: Vec<String> =
                    together.iter().map(|bound| format!("{} = {}", bound.axis, bound.value)).collect();
                let what = if values.len() == 1 {
                    "does not take each value of its axis"
                } else {
                    "do not take each point of their axes"
                };
                let message = format_args!("`{}`: {} {what} once", leaf.nest, values.join(", "));
                self.report.fail("axis-coverage", message);
            }
        }
    }

    /// Checks the points that nests reduce in their loops.
    pub(super) fn reductions(&mut self) {
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            let Stmt::Nest(nest) = stmt else { continue };
            for place in places {
                tile_remainders(&mut self.report, &self.loops.facts, nest, place);
                shared_reductions(&mut self.report, &self.loops.facts, nest, place);
                self.sites.note(&self.report.diags, place.site());
            }
        }
    }
}

/// Whether a loop has one point in every call.
pub(super) fn is_one(facts: &Facts, extent: Expr) -> bool {
    extent.is_one() || extent.as_int().is_none() && facts.simplify(extent).is_one()
}

/// Threads share no running values: no axis of the grid is one that `place` reduces or scans along.
fn shared_reductions(report: &mut Report, facts: &Facts, nest: &Nest, place: &Place) {
    if place.part == Part::Final {
        return;
    }
    for axis in nest.reduced.iter().map(|axis| axis.var).chain(nest.scanned()) {
        let is_bound_by =
            |around: &&Around| place.value(axis).is_some_and(|value| value.has_sym(around.axis.var));
        let grid = place.path.iter().take_while(|around| around.kind.is_none());
        for around in grid.filter(|around| !is_one(facts, around.axis.extent)).filter(is_bound_by) {
            let message = format_args!("`{}`: {axis} runs along grid axis {}", nest.name, around.axis.var);
            report.fail("shared-reduction", message);
        }
    }
}

/// Points of a tile are in flight together: an inner loop along the same reduced axis ends at the same point for all of
/// them. (Outer points past the end are masked.)
fn tile_remainders(report: &mut Report, facts: &Facts, nest: &Nest, place: &Place) {
    let is_tile =
        |around: &&Around| matches!(around.kind, Some(LoopKind::Tile | LoopKind::TileVector { .. }));
    for axis in nest.reduced.iter().filter(|_| place.part == Part::Update) {
        let Some(value) = place.value(axis.var) else { continue };
        let used: Vec<&Around> = place.path.iter().filter(|around| value.has_sym(around.axis.var)).collect();
        let Some((_, outer)) = used.split_last() else { continue };
        let Some(tile) = outer.iter().copied().find(is_tile) else { continue };
        let mut facts = facts.clone();
        used.iter().for_each(|around| facts.declare_index(around.axis.var, around.axis.extent));
        let is_within = facts.known(&Rel::lt(value, axis.extent)).is_yes();
        let message = format_args!(
            "`{}`: {} = {value} may leave its axis, at different points of tile {}",
            nest.name, axis.var, tile.axis.var
        );
        report.check(is_within, "tile-remainder", message);
    }
}
