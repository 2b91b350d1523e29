//! Finds the largest value of an expression by trying all points: exact where quotients and remainders of the same
//! indices depend on each other, which bounds of each by itself do not see.

use smallvec::{SmallVec, smallvec};

use crate::bounds::Prover;
use crate::expr::{Expr, Sym};

/// Most points that a proof tries, of all groups of terms together.
const MAX_POINTS: i64 = 1 << 14;

/// Terms of an expression, and guards, whose symbols no other group has.
struct Group {
    syms: SmallVec<[Sym; 4]>,
    terms: Expr,
    guards: SmallVec<[Expr; 2]>,
}

impl Prover<'_> {
    /// Whether `e <= 0` at all points of its symbols that the guards between them leave; false where they are too many
    /// to try. The other guards are not looked at.
    pub(crate) fn is_at_most_zero_at_points(&self, e: Expr) -> bool {
        let syms = e.syms();
        let mut groups: SmallVec<[Group; 4]> = smallvec![];
        let parts = e.terms().map(|(c, monomial)| (monomial.syms(), monomial * c, None));
        let guards = self.facts.at_most_zero().iter().filter(|guard| {
            guard.mask() & e.mask() != 0 && guard.syms().iter().all(|sym| syms.contains(sym))
        });
        for (syms, terms, guard) in
            parts.chain(guards.map(|&guard| (guard.syms(), Expr::int(0), Some(guard))))
        {
            let mut group =
                Group { syms: syms.into_iter().collect(), terms, guards: guard.into_iter().collect() };
            let is_apart = |other: &Group| !other.syms.iter().any(|sym| group.syms.contains(sym));
            let (apart, joined): (SmallVec<[Group; 4]>, SmallVec<[Group; 4]>) =
                groups.into_iter().partition(is_apart);
            groups = apart;
            for other in joined {
                let new = other.syms.into_iter().filter(|sym| !group.syms.contains(sym));
                let new: SmallVec<[Sym; 4]> = new.collect();
                group.syms.extend(new);
                group.terms = group.terms + other.terms;
                group.guards.extend(other.guards);
            }
            groups.push(group);
        }
        let mut left = MAX_POINTS;
        let mut sum = e.constant();
        for group in &groups {
            match self.largest_at_points(group, &mut left) {
                Most::Unknown => return false,
                Most::NoPoints => return true,
                Most::Is(most) => sum = sum.saturating_add(most),
            }
        }
        sum <= 0
    }

    fn largest_at_points(&self, group: &Group, left: &mut i64) -> Most {
        let ranges = group.syms.iter().map(|&sym| self.facts.range_of(sym));
        let ranges: SmallVec<[_; 4]> = ranges.collect();
        let count = ranges.iter().try_fold(1i64, |count, range| {
            let length = range.hi.checked_sub(range.lo)?.checked_add(1)?;
            count.checked_mul(length).filter(|count| count <= left)
        });
        let Some(count) = count else { return Most::Unknown };
        *left -= count;
        let mut point: SmallVec<[i64; 4]> = ranges.iter().map(|range| range.lo).collect();
        let mut most = Most::NoPoints;
        for _ in 0..count {
            let value = |sym: Sym| Some(point[group.syms.iter().position(|&other| other == sym)?]);
            // A guard without a value excludes nothing.
            let is_excluded = |guard: &Expr| guard.eval(&value).is_some_and(|guard| guard > 0);
            if !group.guards.iter().any(is_excluded) {
                let Some(value) = group.terms.eval(&value) else { return Most::Unknown };
                most = match most {
                    Most::Is(most) => Most::Is(most.max(value)),
                    Most::NoPoints | Most::Unknown => Most::Is(value),
                };
            }
            for (at, range) in point.iter_mut().zip(&ranges) {
                if *at < range.hi {
                    *at += 1;
                    break;
                }
                *at = range.lo;
            }
        }
        most
    }
}

/// The largest value of some terms.
enum Most {
    Is(i64),
    /// No point is left by the guards.
    NoPoints,
    /// There are too many points, or a point has no value.
    Unknown,
}
