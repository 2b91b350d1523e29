//! Treats a leaf under a condition that selects an interval of a loop's iterations as a leaf of a loop over that interval.
//!
//! In `parallel p in 5 { if p < 2 { .. } else { a [i = 16*(p - 2) + v] } }` what the nest `a` takes is what it takes in
//! `parallel p in 3 { a [i = 16*p + v] }`. This is asked for coverage alone. To other leaves, `p` is what it counts in the
//! text: those of two bodies never run in the same iteration, which is what dependences between them have to be proved by.

use super::Occurrence;
use litz_ir::loops::Axis;
use litz_sym::{Cmp, Expr, Facts, Rel, Sym};

/// Loops that run some leaves in an interval of their iterations, each with the first of these.
#[derive(Default)]
pub(super) struct Intervals(Vec<(Sym, Expr)>);

impl Intervals {
    /// Leaves the conditions out that bound loops around `places`, and that all of these are under, and shortens the loops.
    /// None where there are no such conditions.
    pub(super) fn leave(places: &mut [Occurrence], facts: &Facts) -> Option<Intervals> {
        let mut intervals = Intervals::default();
        let mut level = 0;
        while let Some(&side) = places.first().and_then(|place| place.sides.get(level)) {
            let is_under = |place: &Occurrence| {
                let own = place.sides.get(level);
                own.is_some_and(|own| (own.number, own.is_other) == (side.number, side.is_other))
            };
            if !places.iter().all(is_under) {
                break;
            }
            let loops: Vec<Axis> = places[0].path.iter().map(|around| around.axis).collect();
            match interval(side.cond, &loops[..side.loops], &loops, facts) {
                None => level += 1,
                Some((axis, first)) => {
                    places.iter_mut().for_each(|place| {
                        place.sides.remove(level);
                        narrow(place, axis, first);
                    });
                    intervals.begin(axis.var, first);
                }
            }
        }
        (!intervals.0.is_empty()).then_some(intervals)
    }

    fn begin(&mut self, var: Sym, first: Expr) {
        match self.0.iter_mut().find(|interval| interval.0 == var) {
            Some(interval) => interval.1 = interval.1 + first,
            None => self.0.push((var, first)),
        }
    }

    /// The loops, as short as their intervals are in one of the `places` that were narrowed, each with its first iteration.
    pub(super) fn loops(&self, place: &Occurrence) -> Vec<(Axis, Expr)> {
        let first =
            |axis: Axis| self.0.iter().find(|interval| interval.0 == axis.var).map(|found| (axis, found.1));
        place.path.iter().filter_map(|around| first(around.axis)).collect()
    }

    /// The loop in terms of the loops as they are. None for one that is shortened: it is as long as it was.
    pub(super) fn restore(&self, axis: Axis) -> Option<Axis> {
        let first = |var: Sym| self.0.iter().find(|interval| interval.0 == var).map(|interval| interval.1);
        let extent = axis.extent.subst(&|var| first(var).map(|first| Expr::sym(var) - first));
        first(axis.var).is_none().then_some(Axis { extent, ..axis })
    }
}

/// Two places as they are in the iterations that the conditions around both leave: what is asked of these iterations of loops
/// that they share may be asked of the loops that have no others.
pub(super) fn narrowed(one: &Occurrence, other: &Occurrence, facts: &Facts) -> [Occurrence; 2] {
    let mut both = [one.clone(), other.clone()];
    // Without such conditions they stay as they are.
    let _intervals = Intervals::leave(&mut both, facts);
    both
}

/// The loop, as short as a condition leaves it, of whose iterations the condition holds for an interval, and the first of these.
/// The ends have to be the same in all iterations of `loops`, all that are around a leaf, and those of a part of the loop.
fn interval(cond: Rel, around: &[Axis], loops: &[Axis], facts: &Facts) -> Option<(Axis, Expr)> {
    let difference = cond.lhs - cond.rhs;
    let axis = around.iter().find(|axis| difference.has_sym(axis.var))?;
    let (step, rest) = difference.linear(axis.var)?;
    let is_fixed = |e: Expr| !loops.iter().any(|axis| e.has_sym(axis.var));
    if !is_fixed(rest) || !is_fixed(axis.extent) {
        return None;
    }
    let is_up = match step.as_int() {
        Some(1) => true,
        Some(-1) => false,
        Some(_) | None => return None,
    };
    // up: v + rest < 0 => v < -rest, down: rest - v < 0 => rest + 1 <= v
    let (first, end) = match (cond.cmp, is_up) {
        (Cmp::Lt, true) => (Expr::zero(), -rest),
        (Cmp::Le, true) => (Expr::zero(), -rest + 1),
        (Cmp::Lt, false) => (rest + 1, axis.extent),
        (Cmp::Le, false) => (rest, axis.extent),
        (Cmp::Eq, true) => (-rest, -rest + 1),
        (Cmp::Eq, false) => (rest, rest + 1),
        (Cmp::Ne, _) => return None,
    };
    let is_le = |a: Expr, b: Expr| a == b || facts.holds(&Rel::le(a, b));
    let is_part = is_le(Expr::zero(), first) && is_le(first, end) && is_le(end, axis.extent);
    is_part.then_some((Axis { var: axis.var, extent: end - first }, first))
}

/// Counts a loop around a place from 0 on that ran it from `first` on.
fn narrow(place: &mut Occurrence, axis: Axis, first: Expr) {
    let shift = |e: Expr| e.subst(&|var| (var == axis.var).then(|| Expr::sym(var) + first));
    for around in &mut place.path {
        let is_own = around.axis.var == axis.var;
        around.axis.extent = if is_own { axis.extent } else { shift(around.axis.extent) };
    }
    for side in &mut place.sides {
        side.cond = Rel { lhs: shift(side.cond.lhs), rhs: shift(side.cond.rhs), ..side.cond };
    }
    place.bind.iter_mut().for_each(|bind| bind.1 = shift(bind.1));
}
