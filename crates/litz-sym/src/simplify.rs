//! Simplifies an expression under facts.
//!
//! Bottom-up: operands first, then the rules that need to know ranges, divisors or extents. Rules that always hold are
//! in `build`. Each rule either removes an operator or lowers [`Expr::size`], and every one takes fuel.

use crate::bounds::Prover;
use crate::build::{
    Extremum, all_terms, content, divide, divide_by_term, divide_term, extremum, floor_divide, gcd_terms,
    multiply_add_exactly,
};
use crate::expr::{Expr, Kind};

impl Prover<'_> {
    pub(crate) fn simplify(&self, e: Expr) -> Expr {
        match e.kind() {
            Kind::Int(_) => return e,
            Kind::Sym(sym) => return self.facts.value_of(sym).unwrap_or(e),
            _ => {}
        }
        if let Some(&known) = self.simplified.borrow().get(&e) {
            return known;
        }
        if !self.spend(e) {
            return e;
        }
        let simple = match e.kind() {
            Kind::FloorDiv(a, b) => self.floordiv(self.simplify(a), self.simplify(b)),
            Kind::Mod(a, b) => self.modulo(self.simplify(a), self.simplify(b)),
            Kind::Min(..) => self.extremum(Extremum::Min, e),
            Kind::Max(..) => self.extremum(Extremum::Max, e),
            Kind::Int(_) | Kind::Sym(_) | Kind::Add(_) | Kind::Mul(_) => {
                self.recombine(e.map_operands(&mut |operand| self.simplify(operand)))
            }
        };
        self.simplified.borrow_mut().insert(e, simple);
        simple
    }

    /// `floordiv` of simplified operands.
    fn floordiv(&self, a: Expr, b: Expr) -> Expr {
        let whole = a.floordiv(b);
        self.each_atom(whole, |atom| {
            let Kind::FloorDiv(a, b) = atom.kind() else { return None };
            // floordiv(g*p + r, g*d) => floordiv(p + m, d) where m*g <= r < (m + 1)*g
            if let Some(split) = self.split(a, b) {
                let part = split.multiple + split.carry;
                return (part != atom).then(|| self.floordiv(part, split.divisor));
            }
            if self.bounds(b).lo < 0 {
                return None;
            }
            if let Kind::FloorDiv(x, y) = a.kind() {
                // floordiv(floordiv(x, y), b) => floordiv(x, y*b) for b > 0
                return Some(self.floordiv(x, y * b));
            }
            // floordiv(floordiv(x, y) + z, b) => floordiv(x + y*z, y*b) for b > 0
            a.terms().filter(|&(coefficient, _)| coefficient == 1).find_map(|(_, inner)| {
                let Kind::FloorDiv(x, y) = inner.kind() else { return None };
                let numerator = multiply_add_exactly(y, a - inner, x)?;
                let whole = numerator.floordiv(multiply_add_exactly(y, b, Expr::zero())?);
                (whole.size() <= atom.size()).then_some(whole)
            })
        })
    }

    /// `mod` of simplified operands.
    fn modulo(&self, a: Expr, b: Expr) -> Expr {
        self.each_atom(a.modulo(b), |atom| {
            let Kind::Mod(a, b) = atom.kind() else { return None };
            // mod(g*p + r, g*d) => g*mod(p + m, d) + r - m*g where m*g <= r < (m + 1)*g
            let Split { multiple, carry, rest, common, divisor } = self.split(a, b)?;
            Some(common * self.modulo(multiple + carry, divisor) + rest - common * carry)
        })
    }

    /// Replaces the `floordiv` and `mod` atoms that a constructor left in `e` where `rule` has an answer.
    fn each_atom(&self, e: Expr, rule: impl Fn(Expr) -> Option<Expr>) -> Expr {
        if e.is_polynomial() {
            return e;
        }
        let mut result = Expr::int(e.constant());
        let mut changed = false;
        for (coefficient, monomial) in e.terms() {
            let mut term = Expr::int(coefficient);
            for &atom in monomial.factors() {
                let replaced = if atom.is_polynomial() || !self.spend(atom) { None } else { rule(atom) };
                changed |= replaced.is_some();
                term = term * replaced.unwrap_or(atom);
            }
            result = result + term;
        }
        if changed { self.recombine(result) } else { e }
    }

    /// Parts `a` over a divisor `g` of `b` into `g*multiple + rest`, with `rest` within one multiple of `g`.
    fn split(&self, a: Expr, b: Expr) -> Option<Split> {
        self.split_by_all(a, b).or_else(|| {
            let whole = content(b)?;
            let mut tried: Vec<(i64, Expr)> = Vec::new();
            a.terms().map(|term| gcd_terms(term, whole)).find_map(|common| {
                let is_new = common != (1, Expr::one()) && !tried.contains(&common);
                tried.push(common);
                if is_new && self.spend(a) { self.split_by_part(a, b, common) } else { None }
            })
        })
    }

    /// `g` is `b`; terms known to be multiples of it count as zero for the remainder.
    fn split_by_all(&self, a: Expr, b: Expr) -> Option<Split> {
        let is_multiple = |e: &Expr| b.as_int().is_some_and(|b| self.facts.divides(b, *e));
        let terms = a.terms().map(|(coefficient, monomial)| monomial * coefficient);
        let known = if is_multiple(&a) { a } else { terms.filter(is_multiple).sum() };
        let rest = a - known;
        let carry = self.carry(rest, b)?;
        Some(Split { multiple: known.floordiv(b), carry, rest, common: b, divisor: Expr::one() })
    }

    fn split_by_part(&self, a: Expr, b: Expr, common: (i64, Expr)) -> Option<Split> {
        let divisor = divide_by_term(b, common)?;
        let (mut multiple, mut rest) = (Expr::zero(), Expr::zero());
        for term in all_terms(a) {
            match divide_term(term, common) {
                Some(quotient) => multiple = multiple + quotient,
                None => rest = rest + term.1 * term.0,
            }
        }
        let common = common.1 * common.0;
        let carry = self.carry(rest, common)?;
        (self.bounds(divisor).lo >= 0).then_some(Split { multiple, carry, rest, common, divisor })
    }

    /// The m with `m*g <= rest < (m + 1)*g`, if it is the same for all values and g is positive.
    fn carry(&self, rest: Expr, g: Expr) -> Option<i64> {
        if let Some(g) = g.as_int() {
            let range = self.bounds(rest);
            let is_bounded = g > 0 && range.lo != i64::MIN && range.hi != i64::MAX;
            let carry = is_bounded.then(|| floor_divide(range.lo, g))?;
            return (carry == floor_divide(range.hi, g)).then_some(carry);
        }
        // A divisor is not zero, so one that is not negative is positive.
        if self.bounds(g).lo < 0 {
            return None;
        }
        if self.is_at_most_zero(-rest) {
            return self.is_less(rest, g).then_some(0);
        }
        (self.is_less(rest, Expr::zero()) && self.is_at_most_zero(-rest - g)).then_some(-1)
    }

    /// Drops operands that another one is known to undercut (for `max`: to exceed).
    fn extremum(&self, which: Extremum, e: Expr) -> Expr {
        let operands: Vec<Expr> =
            which.operands(e).into_iter().map(|operand| self.simplify(operand)).collect();
        let mut kept: Vec<Expr> = Vec::with_capacity(operands.len());
        let beats = |a: Expr, b: Expr| match which {
            Extremum::Min => self.is_at_most_zero(a - b),
            Extremum::Max => self.is_at_most_zero(b - a),
        };
        for operand in operands {
            if kept.iter().any(|&other| beats(other, operand)) {
                continue;
            }
            kept.retain(|&other| !beats(operand, other));
            kept.push(operand);
        }
        extremum(which, &kept)
    }

    /// Applies identities between the terms of a sum as long as they make it smaller.
    fn recombine(&self, mut e: Expr) -> Expr {
        while !e.is_polynomial() && self.spend(e) {
            let smaller = e.terms().find_map(|(coefficient, monomial)| {
                let factors = monomial.factors().iter();
                factors
                    .filter_map(|&atom| {
                        let others = divide_term((coefficient, monomial), (1, atom))?;
                        self.rewrite_term(e, others, atom)
                    })
                    .find(|rewritten| rewritten.size() < e.size())
            });
            match smaller.or_else(|| self.recombine_shared(e)) {
                Some(smaller) => e = smaller,
                None => break,
            }
        }
        e
    }

    /// The same for a `floordiv` that several terms have, `a*s*floordiv(x, b) + c*floordiv(x, b)`: all its factors together
    /// may be a multiple of the divisor where none alone is.
    fn recombine_shared(&self, e: Expr) -> Option<Expr> {
        let mut shared: Vec<(Expr, Expr, usize)> = Vec::new();
        for (coefficient, monomial) in e.terms() {
            let quotients =
                monomial.factors().iter().filter(|atom| matches!(atom.kind(), Kind::FloorDiv(..)));
            for &atom in quotients {
                let others = divide_term((coefficient, monomial), (1, atom))?;
                match shared.iter_mut().find(|(known, ..)| *known == atom) {
                    Some((_, sum, terms)) => (*sum, *terms) = (*sum + others, *terms + 1),
                    None => shared.push((atom, others, 1)),
                }
            }
        }
        let shared = shared.into_iter().filter(|&(.., terms)| terms > 1);
        let mut rewritten = shared.filter_map(|(atom, others, _)| self.rewrite_term(e, others, atom));
        rewritten.find(|rewritten| rewritten.size() < e.size())
    }

    /// `e` with its term `others*atom` expressed by other atoms.
    fn rewrite_term(&self, e: Expr, others: Expr, atom: Expr) -> Option<Expr> {
        match atom.kind() {
            Kind::Mod(x, b) => {
                // mod(x, b) => x - b*floordiv(x, b), which cancels against b*floordiv(x, b)
                let whole = e + others * (x - b * self.floordiv(x, b) - atom);
                if whole.size() < e.size() {
                    return Some(whole);
                }
                // a*mod(floordiv(y, a), b) => mod(y, a*b) - mod(y, a), which cancels against mod(y, a)
                let Kind::FloorDiv(y, a) = x.kind() else { return None };
                let per_step = divide(others, a);
                per_step.1.is_zero().then(|| e + per_step.0 * (y.modulo(a * b) - y.modulo(a)) - others * atom)
            }
            Kind::FloorDiv(x, b) => {
                let (per_step, left) = divide(others, b);
                // b*floordiv(x, b) => x - mod(x, b), which cancels against x, or where b is known to divide x
                left.is_zero().then(|| e + per_step * (x - self.modulo(x, b)) - others * atom)
            }
            _ => None,
        }
    }
}

/// `a == common*multiple + rest`, `b == common*divisor`, `carry*common <= rest < (carry + 1)*common`, divisor positive.
struct Split {
    multiple: Expr,
    carry: i64,
    rest: Expr,
    common: Expr,
    divisor: Expr,
}
