//! Checks that the loops around a part of a nest take each of its points once, and that one thread keeps each running value.

use std::collections::{HashMap, HashSet};

use litz_sym::{Expr, Facts, Kind, Rel, Sym};

use super::coverage::{Bound, Coverage};
use super::intervals::Intervals;
use super::shifted::unshifted;
use super::{Around, Occurrence, Verifier};
use crate::apart::is_inside_by_digits;
use crate::apart::{InDigits, in_mixed_radix};
use crate::inside::enter;
use litz_ir::loops::{Axis, Nest, Stmt};
use litz_ir::schedule::{Leaf, Part};
use litz_ir::verify::Report;

impl Verifier<'_> {
    /// Checks that a leaf, the last one that was placed, gives every axis of the nest a value, which takes each of its own
    /// once: in the bodies of an `if` that is for [`Verifier::divided_points`] to check, where it is true that they have values.
    pub(super) fn bindings(&mut self, leaf: &Leaf, nest: &Nest, stmt: usize) -> bool {
        let name = &leaf.nest;
        let before = self.report.diags.len();
        let taken = taken(nest, leaf.part);
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
        let is_bound = self.report.diags.len() == before && !self.has_wrong_loops;
        if is_bound {
            let path: Vec<Axis> = self.path.iter().map(|around| around.axis).collect();
            let of_part = if leaf.part.runs_instructions() { &self.placed } else { &self.accumulating };
            let place = of_part[stmt].last().expect("invariant: a leaf is placed first").clone();
            if !leaf.masked {
                self.insides(name, &place, &axes);
            }
            self.beginnings(name, &place, &axes);
            let found = self.report.diags.len();
            if self.sides.is_empty() {
                let once = self.once(stmt, &place, &path);
                self.recomputed.extend((once.len() < path.len()).then_some(stmt));
                let (bind, loops) = self.in_scope(stmt, &place, &once);
                self.coverage(nest, &place, &bind, &loops);
                if self.report.diags.len() == before {
                    self.repeats(stmt, nest, &place, &once);
                }
            }
            if self.report.diags.len() > found && self.may_recompute(stmt, &self.visible) {
                self.report.diags.truncate(found);
                self.recomputed.insert(stmt);
            }
        }
        is_bound && self.report.diags.len() == before
    }

    /// How many of the loops around a leaf have accumulators of their own in each iteration, to initialize and to merge.
    pub(super) fn loops_around_scope(&self, stmt: usize, place: &Occurrence) -> usize {
        match place.part {
            Part::Whole | Part::Update | Part::Final => 0,
            Part::Init | Part::Merge => self.scope(stmt, place).map_or(0, |scope| scope.loops),
        }
    }

    /// What the axes of a leaf are, and in which loops, without the digits of the loops around the scope of its accumulators that no
    /// axis depends on: lanes that have the same row have each their own sum of it.
    fn in_scope(&self, stmt: usize, place: &Occurrence, path: &[Axis]) -> (Vec<(Sym, Expr)>, Vec<Axis>) {
        let around = self.loops_around_scope(stmt, place);
        let values: Vec<Expr> = place.bind.iter().map(|bind| bind.1).collect();
        let Some(InDigits { sums: values, axes: loops, .. }) =
            in_mixed_radix(&values, &path[..around], &self.loops.facts)
        else {
            return (place.bind.clone(), path.to_vec());
        };
        let is_needed =
            |axis: &Axis| path.contains(axis) || values.iter().any(|value| value.has_sym(axis.var));
        let loops = loops.into_iter().filter(is_needed).chain(path[around..].iter().copied()).collect();
        (place.bind.iter().map(|bind| bind.0).zip(values).collect(), loops)
    }

    /// Reports loops of `path`, that around a leaf, that no axis depends on.
    pub(super) fn repeats(&mut self, stmt: usize, nest: &Nest, place: &Occurrence, path: &[Axis]) {
        let name = &nest.name;
        let repeats = self.loops_around_scope(stmt, place);
        for axis in &path[repeats..] {
            let is_used = place.bind.iter().any(|bind| bind.1.has_sym(axis.var));
            let counts_blocks = place.block.is_some_and(|block| block.number == Expr::sym(axis.var));
            // A loop of one iteration repeats nothing, and leaves out nothing; where the nest has no points it may have none.
            let count = self.loops.facts.bounds(axis.extent);
            let is_empty = count.hi <= 1 && taken(nest, place.part).iter().any(|axis| axis.extent.is_zero());
            let is_one = count.hi == 1 && count.lo == 1;
            if !is_used && !is_one && !is_empty && !counts_blocks {
                let message = format_args!("`{name}` runs at each {axis}, but no axis depends on it");
                self.report.fail("repeated-leaf", message);
            }
        }
    }

    /// Reports values that may be past the end of their axis, at a leaf of the nest `name` that is not masked.
    fn insides(&mut self, name: &str, place: &Occurrence, axes: &HashMap<Sym, Expr>) {
        let Some((value, extent)) = self.outside(place, axes) else { return };
        // How far a loop goes is known better than what is less than a sum.
        let mut own = [place.clone()];
        let is_inside = Intervals::leave(&mut own, &self.loops.facts)
            .is_some_and(|_| self.outside(&own[0], axes).is_none());
        let message = format_args!(
            "`{name}`: {value} may be past the end of an axis of {extent} points, but the leaf is not masked"
        );
        self.report.check(is_inside, "unmasked-point", message);
    }

    /// Reports values that may be below 0 at a leaf of a nest that may have no points. Elsewhere they are none of those that take each
    /// point once, but of nothing that is to be taken coverage says nothing, and -1 is inside of an axis without points.
    fn beginnings(&mut self, name: &str, place: &Occurrence, axes: &HashMap<Sym, Expr>) {
        if axes.values().all(|&extent| self.loops.facts.bounds(extent).lo >= 1) {
            return;
        }
        let Some((axis, value)) = self.below(place) else { return };
        // Where a loop begins is known better than what is more than a sum.
        let mut own = [place.clone()];
        let is_known =
            Intervals::leave(&mut own, &self.loops.facts).is_some_and(|_| self.below(&own[0]).is_none());
        let message = format_args!("`{name}`: {axis} = {value} may be below 0 where there are no points");
        self.report.check(is_known, "axis-coverage", message);
    }

    /// An axis whose value at a place may be below 0, and the value.
    fn below(&self, place: &Occurrence) -> Option<(Sym, Expr)> {
        let mut facts = self.loops.facts.clone();
        place.path.iter().for_each(|around| enter(&mut facts, around.axis));
        // What never runs has no values.
        let is_empty = |around: &Around| facts.bounds(around.axis.extent).hi <= 0;
        if place.path.iter().any(is_empty) || !place.sides.iter().all(|side| facts.assume(side.cond)) {
            return None;
        }
        place.bind.iter().find(|bind| !facts.proves(&Rel::le(0, bind.1))).copied()
    }

    /// A value at a place that may be past the end of its axis, and how many points that has.
    fn outside(&mut self, place: &Occurrence, axes: &HashMap<Sym, Expr>) -> Option<(Expr, Expr)> {
        let path: Vec<Axis> = place.path.iter().map(|around| around.axis).collect();
        let extent = |axis: Sym| axes.get(&axis).copied();
        let bound = place.bind.iter().filter_map(|&(axis, value)| Some((value, extent(axis)?)));
        let is_loop = |(value, extent): (Expr, Expr), around: &Axis| {
            value == Expr::sym(around.var) && extent == around.extent
        };
        let open: Vec<(Expr, Expr)> =
            bound.filter(|&bound| !path.iter().any(|around| is_loop(bound, around))).collect();
        let conds: Vec<Rel> = place.sides.iter().map(|side| side.cond).collect();
        let question = (open, path, conds);
        if question.0.is_empty() || self.proofs.get_mut().is_inside(&question) {
            return None;
        }
        let (open, path, conds) = &question;
        let mut facts = self.loops.facts.clone();
        path.iter().for_each(|axis| enter(&mut facts, *axis));
        // What never runs is past no end.
        if !conds.iter().all(|cond| facts.assume(*cond)) {
            return None;
        }
        let is_past = |&&(value, extent): &&(Expr, Expr)| !is_inside_by_digits(value, extent, &facts);
        let past = open.iter().find(is_past).copied();
        if past.is_none() {
            self.proofs.get_mut().put_inside(question);
        }
        past
    }

    /// A loop as long as the axis of the nest that it counts, where all that it leaves out is idle.
    ///
    /// In `for jb in min(8, ceildiv(16*io + 16, 64)) { tile ii in 16 { .. } }` iterations of a nest that is idle where
    /// `16*io + ii < 64*jb` may be missing: those of an extent of 8 do not exist, those of the other are past the end of the rows.
    fn with_idle(&self, axis: Axis, path: &[Axis], bind: &[(Sym, Expr)], nest: &Nest) -> Axis {
        let Some(idle) = nest.idle else { return axis };
        let is_counted = |own: &&Axis| bind.contains(&(own.var, Expr::sym(axis.var)));
        let Some(own_axis) = nest.axes.iter().find(is_counted) else { return axis };
        let mut facts = self.loops.facts.clone();
        let others = path.iter().filter(|around| around.var != axis.var);
        others.for_each(|around| facts.declare_index(around.var, around.extent));
        let mut ends = vec![axis.extent];
        while let Some(at) = ends.iter().position(|end| matches!(end.kind(), Kind::Min(..))) {
            if let Kind::Min(a, b) = ends.swap_remove(at).kind() {
                ends.extend([a, b]);
            }
        }
        // Later iterations are idle where the first is, as the verifier of loops has seen.
        let is_idle = |end: Expr| {
            let value = |sym: Sym| match sym == own_axis.var {
                true => Some(end),
                false => bind.iter().find(|bind| bind.0 == sym).map(|bind| bind.1),
            };
            facts.proves(&idle.subst(&value))
        };
        let are_idle = ends.into_iter().all(|end| end == own_axis.extent || is_idle(end));
        if are_idle { Axis { extent: own_axis.extent, ..axis } } else { axis }
    }

    /// Reports axes whose points are not known to be each taken once, of a leaf that gives all of them a value in loops `path`. One that is masked may
    /// begin before the first.
    pub(super) fn coverage(&mut self, nest: &Nest, place: &Occurrence, bind: &[(Sym, Expr)], path: &[Axis]) {
        let axes: HashMap<Sym, Expr> =
            taken(nest, place.part).iter().map(|axis| (axis.var, axis.extent)).collect();
        let values = bind.iter().filter_map(|bind| Some((bind.1, *axes.get(&bind.0)?)));
        let loops: Vec<Axis> = path.iter().map(|axis| self.with_idle(*axis, path, bind, nest)).collect();
        let bindings = (values.collect(), loops.clone(), place.masked);
        let before = self.report.diags.len();
        if !self.proofs.get_mut().is_covered(&bindings) {
            self.coverage_of((nest, place), bind, &axes, loops);
            if self.report.diags.len() == before {
                self.proofs.get_mut().cover(bindings);
            }
        }
    }

    fn coverage_of(
        &mut self,
        (nest, place): (&Nest, &Occurrence),
        bind: &[(Sym, Expr)],
        axes: &HashMap<Sym, Expr>,
        around: Vec<Axis>,
    ) {
        // Where nothing is reduced, accumulators still belong to the points of the other axes.
        let is_empty = nest.reduces() && nest.reduced.iter().any(|axis| axis.extent.is_zero());
        let is_taken = |axis: Sym| !is_empty || nest.axes.iter().any(|own| own.var == axis);
        let taken = || bind.iter().filter(|bind| is_taken(bind.0));
        let extents = taken().filter_map(|bind| axes.get(&bind.0).copied());
        let facts = &self.loops.facts;
        let Some(coverage) = Coverage::new(facts, extents, around.iter().copied()) else { return };
        let bound = taken().filter_map(|&(axis, value)| Some((axis, *axes.get(&axis)?, value)));
        let bound: Vec<Bound> = bound
            .map(|(axis, extent, value)| Bound { axis, extent, value: coverage.without_ones(value) })
            .collect();
        let bound = if place.masked { unshifted(&bound, &around, facts) } else { bound };
        for together in coverage.together(&bound) {
            if !coverage.is_once(&together) {
                let values: Vec<String> =
                    together.iter().map(|bound| format!("{} = {}", bound.axis, bound.value)).collect();
                let what = if values.len() == 1 {
                    "does not take each value of its axis"
                } else {
                    "do not take each point of their axes"
                };
                let message = format_args!("`{}`: {} {what} once", nest.name, values.join(", "));
                self.report.fail("axis-coverage", message);
            }
        }
    }

    /// Checks the points that nests reduce in their loops.
    pub(super) fn reductions(&mut self) {
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            let Stmt::Nest(nest) = stmt else { continue };
            for place in places {
                shared_reductions(&mut self.report, &self.loops.facts, nest, place);
                self.sites.note(&self.report.diags, place.site());
            }
        }
    }
}

/// The axes whose points a part of a nest takes.
fn taken(nest: &Nest, part: Part) -> Vec<&Axis> {
    match part {
        Part::Whole | Part::Update => nest.all_axes().collect(),
        Part::Final => nest.axes.iter().collect(),
        Part::Init | Part::Merge => nest.kept_apart().collect(),
    }
}

/// Whether a loop has one point in every call.
pub(super) fn is_one(facts: &Facts, extent: Expr) -> bool {
    extent.is_one() || extent.as_int().is_none() && facts.simplify(extent).is_one()
}

/// Threads share no running values: no axis of the grid is one that `place` reduces or scans along.
fn shared_reductions(report: &mut Report, facts: &Facts, nest: &Nest, place: &Occurrence) {
    if place.part == Part::Final {
        return;
    }
    for axis in nest.reduced.iter().map(|axis| axis.var).chain(nest.scanned()) {
        let is_bound_by = |around: &&Around| {
            place.counted.iter().any(|(own, value)| *own == axis && value.has_sym(around.axis.var))
        };
        let grid = place.path.iter().take_while(|around| around.kind.is_none());
        for around in grid.filter(|around| !is_one(facts, around.axis.extent)).filter(is_bound_by) {
            let message = format_args!("`{}`: {axis} runs along grid axis {}", nest.name, around.axis.var);
            report.fail("shared-reduction", message);
        }
    }
}
