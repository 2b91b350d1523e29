//! Proves that the bodies of an `if` together take each point of a nest once.
//!
//! In an iteration of the loops around, one of two bodies runs. Where both bind the axes of a nest alike, what they take is
//! what one leaf would take without the `if`, in loops whose extents are those of the one body where the condition holds, and
//! those of the other where it does not: in `if 13 <= n - 13*t { unroll i in 13 { .. } } else { for i in n - 13*t { .. } }`
//! that of a loop `i in min(13, n - 13*t)`. Of that leaf `coverage.rs` proves that it takes each point once.
//!
//! A nest may be in one body alone of an `if` that bounds a loop around it. Then that loop runs it in an interval of its
//! iterations, those of another loop, see `intervals.rs`: several nests can share a grid so, each with a part of it.

use super::intervals::Intervals;
use super::{Occurrence, Side, Verifier};
use crate::inside::enter;
use litz_ir::loops::{Axis, Nest, Stmt};
use litz_ir::schedule::Part;
use litz_sym::{Cmp, Expr, Facts, Rel, Sym};

/// What is known in a body of an `if`. None where it never runs.
type Known = Option<Facts>;

/// All that the points depend on which leaves in bodies of `if`s take, besides what the program knows of its symbols.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Divided {
    part: Part,
    axes: Vec<Axis>,
    reduced: Vec<Axis>,
    reduces: bool,
    scanned: Vec<Sym>,
    idle: Option<Rel>,
    places: Vec<Place>,
}

/// One of these leaves.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    /// Where the `if`s have numbers among their own.
    sides: Vec<Side>,
    path: Vec<Axis>,
    bind: Vec<(Sym, Expr)>,
    /// The number of its block and the width.
    block: Option<(Expr, Expr)>,
    /// Loops around that have accumulators of their own in each iteration.
    scope: usize,
    /// Loops around in each iteration of which a reduction may run anew.
    anew: usize,
}

/// The loops of a leaf that takes the points of several.
#[derive(Clone)]
pub(super) struct Together {
    path: Vec<Axis>,
    /// Those that run it in an interval of their iterations, as short as that is, with the first one.
    intervals: Vec<(Axis, Expr)>,
    /// Whether it runs anew in each iteration of some of them.
    is_anew: bool,
}

impl Verifier<'_> {
    /// Checks the points that leaves in bodies of `if`s take.
    pub(super) fn divided_points(&mut self) {
        let loops = self.loops;
        for (stmt, of) in loops.stmts.iter().enumerate() {
            let Stmt::Nest(nest) = of else { continue };
            let places = self.placed[stmt].iter().chain(&self.accumulating[stmt]);
            let mut divided: Vec<Occurrence> = places
                .filter(|place| !place.sides.is_empty() && place.leaf.is_some_and(|leaf| self.bound[leaf]))
                .cloned()
                .collect();
            while let Some(first) = divided.first() {
                let depth = |place: &Occurrence| self.scopes(stmt, place).len();
                let is_alike = |other: &Occurrence| {
                    other.part == first.part
                        && (first.part.runs_instructions() || depth(other) == depth(first))
                };
                let (group, others): (Vec<Occurrence>, Vec<Occurrence>) =
                    divided.iter().cloned().partition(|place| is_alike(place));
                let found = self.report.diags.len();
                self.divided(stmt, nest, &group);
                if self.report.diags.len() > found && self.may_recompute(stmt, &group[0].visible) {
                    self.report.diags.truncate(found);
                    self.recomputed.insert(stmt);
                }
                self.sites.note(&self.report.diags, group[0].site());
                divided = others;
            }
        }
    }

    fn divided(&mut self, stmt: usize, nest: &Nest, group: &[Occurrence]) {
        let question = self.question(stmt, nest, group);
        let known = self.proofs.get_mut().divided.get(&question).cloned();
        let Some(together) = known.or_else(|| self.prove_together(stmt, nest, group)) else { return };
        self.recomputed.extend(together.is_anew.then_some(stmt));
        // Of each of these leaves is known from here on what is known of all: one that knew more could not be compared.
        let all = self.placed[stmt].iter_mut().chain(&mut self.accumulating[stmt]);
        for place in all.filter(|place| group.iter().any(|own| own.at == place.at)) {
            place.intervals.clone_from(&together.intervals);
            for around in &mut place.path {
                let known = together.path.iter().find(|axis| axis.var == around.axis.var);
                around.axis.extent = known.map_or(around.axis.extent, |axis| axis.extent);
            }
        }
        self.proofs.get_mut().divided.insert(question, together);
    }

    fn question(&self, stmt: usize, nest: &Nest, group: &[Occurrence]) -> Divided {
        let mut numbers: Vec<usize> = Vec::new();
        let mut renumbered = |side: &Side| {
            let known = numbers.iter().position(|number| *number == side.number);
            let number = known.unwrap_or(numbers.len());
            if known.is_none() {
                numbers.push(side.number);
            }
            Side { number, ..*side }
        };
        let place = |place: &Occurrence| Place {
            sides: place.sides.iter().map(&mut renumbered).collect(),
            path: place.path.iter().map(|around| around.axis).collect(),
            bind: place.bind.clone(),
            block: place.block.map(|block| (block.number, block.width)),
            scope: self.loops_around_scope(stmt, place),
            anew: self.loops_around_memory(stmt, place),
        };
        Divided {
            part: group[0].part,
            axes: nest.axes.clone(),
            reduced: nest.reduced.clone(),
            reduces: nest.reduces(),
            scanned: nest.scanned().collect(),
            idle: nest.idle,
            places: group.iter().map(place).collect(),
        }
    }

    /// The loops of a leaf that takes the points of `group`. None where they are not known to be each taken once, which is reported.
    fn prove_together(&mut self, stmt: usize, nest: &Nest, group: &[Occurrence]) -> Option<Together> {
        let found = self.report.diags.len();
        let mut narrowed = group.to_vec();
        let intervals = Intervals::leave(&mut narrowed, &self.loops.facts);
        let mut taken = match &intervals {
            Some(intervals) => self.taken(stmt, nest, &narrowed, intervals),
            None => self.taken(stmt, nest, group, &Intervals::default()),
        };
        let mut shortened = intervals.as_ref().map_or_else(Vec::new, |found| found.loops(&narrowed[0]));
        // What is past the end of its axes in all other iterations may run in these, too.
        if taken.is_none() && intervals.is_some() {
            let diags = self.report.diags.split_off(found);
            taken = self.taken(stmt, nest, group, &Intervals::default());
            shortened.clear();
            if taken.is_none() {
                self.report.diags.truncate(found);
                self.report.diags.extend(diags);
            }
        }
        taken.map(|(path, is_anew)| Together { path, intervals: shortened, is_anew })
    }

    /// The loops of a leaf that takes each point of a part of a nest once, as `group` do together. None where that is not
    /// proved, which is reported. Of the loops that run them in `intervals` nothing is said. Also whether it runs anew in some of the loops.
    fn taken(
        &mut self,
        stmt: usize,
        nest: &Nest,
        group: &[Occurrence],
        intervals: &Intervals,
    ) -> Option<(Vec<Axis>, bool)> {
        let found = self.report.diags.len();
        match self.together(nest, &group.iter().collect::<Vec<_>>(), 0) {
            Err(why) => {
                let message = format_args!("`{}` does not take each point once: {why}", nest.name);
                self.report.fail("axis-coverage", message);
                None
            }
            Ok(path) => {
                let place = group.iter().find(|place| !place.masked).unwrap_or(&group[0]);
                let once = self.once(stmt, &group[0], &path);
                self.coverage(nest, place, &group[0].bind, &once);
                if self.report.diags.len() == found {
                    self.repeats(stmt, nest, &group[0], &once);
                }
                let is_proved = self.report.diags.len() == found;
                let is_anew = once.len() < path.len();
                let restored = || path.into_iter().filter_map(|axis| intervals.restore(axis)).collect();
                is_proved.then(|| (restored(), is_anew))
            }
        }
    }

    /// The loops of a leaf that takes the points of all `places`, which have their outermost `level` bodies of `if`s in
    /// common; or why none is known.
    fn together(&self, nest: &Nest, places: &[&Occurrence], level: usize) -> Result<Vec<Axis>, String> {
        let Some(side) = places[0].sides.get(level) else {
            return Ok(places[0].path.iter().map(|around| around.axis).collect());
        };
        let is_same =
            |place: &&&Occurrence| place.sides.get(level).is_some_and(|own| own.number == side.number);
        if !places.iter().all(|place| is_same(&place)) {
            return Err("bodies of two conditions run it".to_owned());
        }
        let condition = if side.is_other { side.cond.negate() } else { side.cond };
        let (other, then): (Vec<&Occurrence>, Vec<&Occurrence>) =
            places.iter().partition(|place| place.sides[level].is_other);
        let around = self.around(places[0], level, side);
        let within = |cond: Rel| -> Known {
            let mut facts = around.clone()?;
            facts.assume(cond).then_some(facts)
        };
        let bodies = [(then, within(condition)), (other, within(condition.negate()))];
        let [(then, mut in_then), (other, mut in_other)] = bodies;
        if then.is_empty() || other.is_empty() {
            let is_then = other.is_empty();
            let some = if is_then { then } else { other };
            let mut path = self.together(nest, &some, level + 1)?;
            // Where nothing runs a loop has no iterations.
            let is_decided = |axis: &Axis| {
                let has_both = |value: Expr| {
                    value.has_sym(axis.var)
                        && [condition.lhs, condition.rhs]
                            .iter()
                            .any(|side| side.syms().into_iter().any(|sym| value.has_sym(sym)))
                };
                some[0].bind.iter().any(|bind| has_both(bind.1))
            };
            for axis in path[side.loops..].iter_mut().filter(|axis| is_decided(axis)) {
                let extents = if is_then { [axis.extent, Expr::zero()] } else { [Expr::zero(), axis.extent] };
                if let Some(extent) = agreed(condition, (extents[0], &in_then), (extents[1], &in_other)) {
                    axis.extent = extent;
                    return Ok(path);
                }
            }
            let elsewhere = if is_then { in_other } else { in_then };
            return match elsewhere.is_none_or(|facts| is_past_end(nest, some[0], &path[side.loops..], facts))
            {
                true => Ok(path),
                false => Err(format!("it has no part in the other body of condition {condition}")),
            };
        }
        let mut path = self.together(nest, &then, level + 1)?;
        let others = self.together(nest, &other, level + 1)?;
        let binds_alike = then[0].bind.len() == other[0].bind.len()
            && then[0].bind.iter().all(|bind| other[0].bind.contains(bind));
        if !binds_alike || path.len() != others.len() {
            return Err(format!("the bodies of condition {condition} bind its axes differently"));
        }
        for axis in &mut path[side.loops..] {
            let counterpart = others[side.loops..].iter().find(|other| other.var == axis.var);
            let Some(other) = counterpart else {
                return Err(format!("one body of condition {condition} alone has a loop {}", axis.var));
            };
            let [own, other] = [*axis, *other];
            let Some(extent) = agreed(condition, (own.extent, &in_then), (other.extent, &in_other)) else {
                let (var, one, two) = (own.var, own.extent, other.extent);
                return Err(format!(
                    "loop {var} in {one} or {two} does not go on where condition {condition} ends"
                ));
            };
            axis.extent = extent;
            // Loops inside are as long as this one's iterations say.
            in_then.iter_mut().for_each(|facts| enter(facts, own));
            in_other.iter_mut().for_each(|facts| enter(facts, other));
        }
        Ok(path)
    }

    /// What is known around the `if` that has `side`, the one at `level` around a place.
    fn around(&self, place: &Occurrence, level: usize, side: &Side) -> Known {
        let mut facts = self.loops.facts.clone();
        let loops = place.path[..side.loops].iter().map(|around| around.axis);
        loops.for_each(|axis| enter(&mut facts, axis));
        place.sides[..level].iter().all(|outer| facts.assume(outer.cond)).then_some(facts)
    }
}

/// Whether all that a leaf would take in further loops, besides those that `facts` know, is past the end of an axis.
fn is_past_end(nest: &Nest, place: &Occurrence, loops: &[Axis], mut facts: Facts) -> bool {
    loops.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    nest.all_axes()
        .any(|axis| place.value(axis.var).is_some_and(|value| facts.holds(&Rel::le(axis.extent, value))))
}

/// The extent of a loop that is `then` where a condition holds and `other` where it does not.
fn agreed(cond: Rel, then: (Expr, &Known), other: (Expr, &Known)) -> Option<Expr> {
    let (Some(in_then), Some(in_other)) = (then.1, other.1) else {
        return Some(if other.1.is_none() { then.0 } else { other.0 });
    };
    // What holds in one body alone may have given the extent another form there.
    let is_same = |facts: &Facts| then.0 == other.0 || facts.holds(&Rel::eq(then.0, other.0));
    if is_same(in_other) {
        return Some(then.0);
    }
    if is_same(in_then) {
        return Some(other.0);
    }
    // The condition holds where this is not below 0.
    let slack = match cond.cmp {
        Cmp::Le => cond.rhs - cond.lhs,
        Cmp::Lt => cond.rhs - cond.lhs - 1,
        Cmp::Eq | Cmp::Ne => return None,
    };
    // Full where the condition holds, or where it does not.
    let candidates = [(then.0, then.0 + slack), (other.0, other.0 - slack - 1)];
    let is_that = |extent: Expr, facts: &Facts, (full, rest): (Expr, Expr)| {
        let is_smaller = |one: Expr, two: Expr| facts.proves(&Rel::le(one, two));
        // A loop of fewer than no iterations has none.
        let is_equal = |end: Expr| {
            extent == end
                || extent == end.max(0)
                || facts.holds(&Rel::eq(extent, end))
                || extent.is_zero() && is_smaller(end, extent)
        };
        is_equal(full) && is_smaller(full, rest) || is_equal(rest) && is_smaller(rest, full)
    };
    let is_both = |&ends: &(Expr, Expr)| is_that(then.0, in_then, ends) && is_that(other.0, in_other, ends);
    let found = candidates.into_iter().find(is_both);
    found.map(|(full, rest)| full.min(rest))
}
