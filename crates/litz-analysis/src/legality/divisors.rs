//! Proves that no expression of a kernel divides by a number that may be 0.
//!
//! Devices disagree on what such a quotient is, and one that is computed for a masked point is computed all the same. In a loop of
//! `3*s1` iterations `s1` is positive; in one of `3*s1 + 1` it may be 0, whatever the mask says.

use std::fmt;

use super::Verifier;
use crate::defined::unknown_divisors;
use crate::inside::enter;
use litz_sym::{Expr, Facts, Kind, Known, Rel};

impl Verifier<'_> {
    /// Checks the divisors of an expression that is computed here: in the loops and the bodies of `if`s around.
    pub(super) fn divisors(&mut self, expr: Expr, what: fmt::Arguments<'_>) {
        let mut divisors = Vec::new();
        unknown_divisors(expr, &mut divisors);
        if divisors.is_empty() {
            return;
        }
        let Some(facts) = self.facts_where(None) else { return };
        if let Some(divisor) = divisors.into_iter().find(|&divisor| self.may_be_zero(divisor, &facts)) {
            let message = format_args!("{what} divides by {divisor}, which may be 0");
            self.report.fail("zero-divisor", message);
        }
    }

    /// Whether a divisor is neither proved to be positive nor to be negative.
    fn may_be_zero(&self, divisor: Expr, facts: &Facts) -> bool {
        !self.is_positive(divisor, facts) && !self.is_positive(-divisor, facts)
    }

    /// Whether each factor of a value is known to be positive, or nothing would run if it was not: in a loop of `n*n - 256*p`
    /// iterations `n` is positive, though no bound says so.
    fn is_positive(&self, value: Expr, facts: &Facts) -> bool {
        let sizes = &self.loops.facts;
        let is_size = |factor: Expr| factor.syms().into_iter().all(|sym| sizes.is_symbol_declared(sym));
        let is_known = |factor: Expr| {
            facts.holds(&Rel::le(1, factor))
                || is_size(factor) && self.facts_where(Some(Rel::le(factor, 0))).is_none()
        };
        is_known(value) || factors(value).into_iter().all(is_known)
    }

    /// What is known in the loops and the bodies of `if`s around, in a case of what sizes are. None where nothing ever runs.
    fn facts_where(&self, case: Option<Rel>) -> Option<Facts> {
        let mut facts = self.loops.facts.clone();
        if case.is_some_and(|case| !facts.assume(case)) {
            return None;
        }
        for depth in 0..=self.path.len() {
            let mut sides = self.sides.iter().filter(|side| side.loops == depth);
            if !sides.all(|side| facts.assume(side.cond)) {
                return None;
            }
            let Some(around) = self.path.get(depth) else { continue };
            if facts.known(&Rel::le(1, around.axis.extent)) == Known::No {
                return None;
            }
            enter(&mut facts, around.axis);
        }
        Some(facts)
    }
}

/// Factors of a value: those of a product, and of a sum the symbols that all of its terms have, and what is left.
/// m*n - m*max(n - 3, 0) => m, n - max(n - 3, 0)
fn factors(value: Expr) -> Vec<Expr> {
    if let Kind::Mul(list) = value.kind() {
        return list.to_vec();
    }
    let (mut found, mut left) = (Vec::new(), value);
    for sym in value.syms() {
        if let Some((factor, rest)) = left.linear(sym)
            && rest.is_zero()
        {
            found.push(Expr::sym(sym));
            left = factor;
        }
    }
    found.push(left);
    found
}
