//! Describes the values that an expression takes over loops as a strided set, where they are at regular distances.

use crate::apart::{InDigits, in_mixed_radix};
use litz_ir::loops::Axis;
use litz_sym::{Expr, Facts, Rel};

/// The numbers `base + sum(n * step)`, for each step with `n` from 0 up to its count.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct StridedSet {
    /// Flat index of the first element.
    pub(super) base: Expr,
    /// Distances, largest first, and counts.
    pub(super) steps: Vec<(Expr, Expr)>,
}

impl StridedSet {
    /// All of a buffer.
    pub(super) fn whole(span: Expr) -> StridedSet {
        StridedSet { base: Expr::zero(), steps: vec![(Expr::one(), span)] }
    }

    /// The values of `flat` over the points of `inner`. `None` when it is not a sum of multiples of the variables, or when
    /// steps overlap. A variable of which it has quotients and remainders is taken for its digits.
    pub(super) fn of(flat: Expr, inner: &[Axis], facts: &Facts) -> Option<StridedSet> {
        match in_mixed_radix(&[flat], inner, facts) {
            Some(InDigits { sums, axes, .. }) => {
                StridedSet::of_sum(sums[0], &axes, facts).map(StridedSet::merged)
            }
            None => StridedSet::of_sum(flat, inner, facts),
        }
    }

    fn of_sum(flat: Expr, inner: &[Axis], facts: &Facts) -> Option<StridedSet> {
        let is_inner = |s| inner.iter().any(|a| a.var == s);
        let mut steps: Vec<(Expr, Expr)> = Vec::new();
        for axis in inner.iter().filter(|a| flat.has_sym(a.var)) {
            let (step, _) = flat.linear(axis.var)?;
            if step.syms().into_iter().any(is_inner) {
                return None;
            }
            match steps.iter_mut().find(|s| s.0 == step) {
                Some(same) => same.1 = same.1 + axis.extent - 1,
                None => steps.push((step, axis.extent)),
            }
        }
        let size = |e: Expr| facts.hint(e).unwrap_or(i64::MAX);
        steps.sort_by_key(|s| std::cmp::Reverse(size(s.0)));
        // Symbols that nothing declares were computed from data.
        let known = flat.syms().into_iter().all(|s| is_inner(s) || facts.is_symbol_declared(s));
        let base = flat.subst(&|s| is_inner(s).then(Expr::zero));
        let set = StridedSet { base, steps };
        (known && set.is_regular(facts)).then_some(set)
    }

    /// The same elements in as few steps as can be: a step that continues the one below it makes a longer one.
    pub(super) fn merged(self) -> StridedSet {
        let mut steps: Vec<(Expr, Expr)> = Vec::new();
        for (step, count) in self.steps.into_iter().rev() {
            match steps.last_mut() {
                Some(last) if last.0 * last.1 == step => last.1 = last.1 * count,
                _ => steps.push((step, count)),
            }
        }
        steps.reverse();
        StridedSet { steps, ..self }
    }

    /// Whether steps are positive, and each is at least as long as all that the next one spans: then every number of the set is
    /// given by one choice of the `n`, so that these can index memory of their own.
    fn is_regular(&self, facts: &Facts) -> bool {
        let yes = |rel: Rel| facts.holds(&rel);
        let positive = self.steps.iter().all(|s| yes(Rel::lt(Expr::zero(), s.0)));
        positive && self.steps.windows(2).all(|w| yes(Rel::le(w[1].0 * w[1].1, w[0].0)))
    }

    /// The smallest set with the steps of both that holds both, when their bases are a known distance apart.
    pub(super) fn union(&self, other: &StridedSet, facts: &Facts) -> Option<StridedSet> {
        let distance = facts.simplify(other.base - self.base).as_int()?;
        let (low, high) = if distance < 0 { (other, self) } else { (self, other) };
        let mut steps = low.steps.clone();
        for step in &high.steps {
            if !steps.iter().any(|s| s.0 == step.0) {
                steps.push((step.0, Expr::one()));
            }
        }
        steps.sort_by_key(|s| std::cmp::Reverse(facts.hint(s.0).unwrap_or(i64::MAX)));
        let mut rest = distance.abs();
        for (step, count) in &mut steps {
            let along = high.steps.iter().find(|s| s.0 == *step).map_or(Expr::one(), |s| s.1);
            let whole = step.as_int().map_or(0, |s| rest / s.max(1));
            rest -= whole * step.as_int().unwrap_or(0);
            *count = facts.simplify((*count).max(along + whole));
        }
        let set = StridedSet { base: low.base, steps };
        (rest == 0 && set.is_regular(facts)).then_some(set)
    }
}
