//! Learns from what is required or assumed: ranges narrow, symbols get values, and what is left is kept as it was said.

use smallvec::SmallVec;

use super::{Derived, Facts, Impossible};
use crate::bounds::Range;
use crate::build::{floor_divide, without_common_factor};
use crate::expr::{Expr, Kind, Sym};
use crate::rel::{Cmp, Rel};

impl Facts {
    pub(super) fn learn(&mut self, rel: &Rel) -> Result<(), Impossible> {
        let difference = self.simplify(rel.lhs - rel.rhs);
        match rel.cmp {
            Cmp::Eq => self.learn_zero(difference),
            Cmp::Ne => self.learn_not_zero(difference),
            Cmp::Lt => self.learn_at_most_zero(difference + 1),
            Cmp::Le => self.learn_at_most_zero(difference),
        }
    }

    fn learn_zero(&mut self, e: Expr) -> Result<(), Impossible> {
        if let Some((sym, value)) = self.solve_for_symbol(e) {
            return self.eliminate(sym, value);
        }
        // c*mod(x, d) == 0 says that d divides x.
        if let (1, 0, Some((_, Kind::Mod(x, d)))) =
            (e.terms().len(), e.constant(), e.terms().next().map(|(c, monomial)| (c, monomial.kind())))
            && let Some(divisor) = d.as_int()
        {
            return self.learn_multiple(divisor.saturating_abs(), x);
        }
        self.learn_at_most_zero(e)?;
        self.learn_at_most_zero(-e)
    }

    /// A symbol that `e == 0` determines, and its value. The one declared last goes first, so that the names that
    /// came first survive.
    fn solve_for_symbol(&self, e: Expr) -> Option<(Sym, Expr)> {
        let mut candidates: Vec<Sym> = e.terms().filter_map(|(_, monomial)| monomial.as_sym()).collect();
        candidates.retain(|&sym| self.extent_of(sym).is_none());
        candidates.sort_by_key(|sym| (self.index.get(sym).copied().unwrap_or(usize::MAX), *sym));
        candidates.into_iter().rev().find_map(|sym| {
            let (coefficient, rest) = e.linear(sym)?;
            // An index has meaning only inside its loop: nothing outside is replaced by it.
            if rest.syms().into_iter().any(|other| self.extent_of(other).is_some()) {
                return None;
            }
            match (coefficient.as_int()?, rest.as_int()) {
                (1, _) => Some((sym, -rest)),
                (-1, _) => Some((sym, rest)),
                (by, Some(rest)) if rest % by == 0 => Some((sym, Expr::int(-(rest / by)))),
                _ => None,
            }
        })
    }

    pub(super) fn eliminate(&mut self, sym: Sym, value: Expr) -> Result<(), Impossible> {
        let replace = |e: &mut Expr| *e = e.replace(sym, value);
        self.known.values.values_mut().for_each(replace);
        self.known.values.insert(sym, value);
        // What was known of the symbol holds for its value.
        let Range { lo, hi } = self.range_of(sym);
        let divisor = self.divisor_of(sym);
        if hi != i64::MAX {
            self.learn_at_most_zero(value - hi)?;
        }
        if lo != i64::MIN {
            self.learn_at_most_zero(lo - value)?;
        }
        self.learn_multiple(divisor, value)?;
        let Derived { at_most_zero, not_zero, multiples, values } = std::mem::take(&mut self.known);
        self.known.values = values;
        let replaced = |facts: &Facts, e: Expr| facts.simplify(e.replace(sym, value));
        at_most_zero.into_iter().try_for_each(|e| self.learn_at_most_zero(replaced(self, e)))?;
        not_zero.into_iter().try_for_each(|e| self.learn_not_zero(replaced(self, e)))?;
        multiples.into_iter().try_for_each(|(divisor, e)| self.learn_multiple(divisor, replaced(self, e)))
    }

    /// Brings the extents of indices up to date with what a guard taught.
    pub(super) fn refresh_indices(&mut self) {
        for at in 0..self.symbols.len() {
            let Some(extent) = self.symbols[at].extent else { continue };
            let extent = self.simplify(extent);
            let (hi, reach) = (self.bounds(extent).hi, self.reach(extent));
            let declared = &mut self.symbols[at];
            declared.reach |= reach;
            declared.extent = extent.as_int().is_none().then_some(extent);
            if hi != i64::MAX {
                declared.range.hi = declared.range.hi.min(hi.saturating_sub(1));
            }
        }
    }

    pub(super) fn learn_at_most_zero(&mut self, e: Expr) -> Result<(), Impossible> {
        let bounds = self.bounds(e);
        if bounds.lo > 0 {
            return Err(Impossible);
        }
        if bounds.hi <= 0 {
            return Ok(());
        }
        let Some((coefficient, sym)) = lone_symbol(e) else {
            return self.learn_compound_at_most_zero(self.tightened(e));
        };
        // c*s + k <= 0 bounds s by -k/c, from above for positive c, from below for negative c.
        let limit = |c: i64| floor_divide(e.constant().saturating_neg(), c);
        self.narrow(
            sym,
            match coefficient > 0 {
                true => Range { lo: i64::MIN, hi: limit(coefficient) },
                false => Range { lo: limit(coefficient.saturating_neg()).saturating_neg(), hi: i64::MAX },
            },
        )
    }

    /// `e` with the greatest constant with which `e <= 0` says the same: where `e - k` is known to be a multiple of `d`,
    /// the multiple above `k`.
    fn tightened(&self, e: Expr) -> Expr {
        let constant = |&(divisor, x): &(i64, Expr)| {
            let is_multiple = |rest: &Expr| rest.terms().all(|(c, _)| c.checked_rem(divisor) == Some(0));
            let rest = [e - x, e + x].into_iter().find(is_multiple)?;
            Some((divisor, rest.constant()))
        };
        let stated = self.known.multiples.iter().find_map(constant);
        let structural = (self.greatest_divisor(e - e.constant()), e.constant());
        let tightened = stated.or(Some(structural).filter(|found| found.0 > 1));
        tightened.map_or(e, |(d, k)| e - k - floor_divide(k.saturating_neg(), d).saturating_mul(d))
    }

    /// What `e <= 0` says of the parts of `e`, where it has several symbols or an operator.
    fn learn_compound_at_most_zero(&mut self, e: Expr) -> Result<(), Impossible> {
        let mut terms = e.terms();
        let (Some((c, monomial)), true) = (terms.next(), terms.next().is_none()) else {
            return self.learn_extremum_at_most_zero(e);
        };
        let k = e.constant();
        match monomial.kind() {
            // floordiv(x, b) >= q says that x >= b*q, floordiv(x, b) <= q that x < b*(q + 1).
            Kind::FloorDiv(x, b) if self.bounds(b).lo >= 0 && k != i64::MIN && c != i64::MIN => match c > 0 {
                true => self.learn_at_most_zero(x - b * (floor_divide(-k, c) + 1) + 1),
                false => self.learn_at_most_zero(b * -floor_divide(-k, -c) - x),
            },
            // A product of what is not negative is positive where all factors are.
            Kind::Mul(_) if c < 0 && k > 0 && monomial.factors().iter().all(|&f| self.bounds(f).lo >= 0) => {
                self.known.at_most_zero.push(e);
                let factors: Vec<Expr> = monomial.factors().to_vec();
                factors.into_iter().try_for_each(|factor| self.learn_at_most_zero(1 - factor))
            }
            _ => self.learn_extremum_at_most_zero(e),
        }
    }

    /// `min(x, y) >= 1` says that both are, `max(x, y) >= 1` that one is, where the other cannot be; and so on. Of several
    /// of them, whose cases would multiply, the first is replaced that can be but one of its operands.
    fn learn_extremum_at_most_zero(&mut self, e: Expr) -> Result<(), Impossible> {
        // In the form in which it is asked for: what it says of parts does not say it of the extremum.
        let e = without_common_factor(e);
        self.known.at_most_zero.push(e);
        let found = e.terms().filter_map(|(c, monomial)| {
            let (operands, is_both) = match monomial.kind() {
                Kind::Min(x, y) => ([x, y], c < 0),
                Kind::Max(x, y) => ([x, y], c > 0),
                _ => return None,
            };
            Some((operands.map(|operand| e + (operand - monomial) * c), is_both))
        });
        let found: SmallVec<[([Expr; 2], bool); 2]> = found.collect();
        if let [([x, y], true)] = found[..] {
            self.learn_at_most_zero(x)?;
            return self.learn_at_most_zero(y);
        }
        for &([x, y], _) in found.iter().filter(|(_, is_both)| !is_both) {
            if self.bounds(x).lo > 0 {
                return self.learn_at_most_zero(y);
            }
            if self.bounds(y).lo > 0 {
                return self.learn_at_most_zero(x);
            }
        }
        let mut divisors: Vec<i64> = e.terms().map(|(c, _)| c.saturating_abs()).filter(|&c| c > 1).collect();
        divisors.sort_unstable();
        divisors.dedup();
        let cuts: Vec<Expr> = divisors.into_iter().filter_map(|m| self.cut(e, m)).collect();
        cuts.into_iter().try_for_each(|cut| self.learn_at_most_zero(cut))
    }

    /// What `e == m*a + b <= 0` says of `a` alone: that it is at most the greatest number for which some value of `b` leaves
    /// room. None if that says nothing more, or is not known.
    fn cut(&self, e: Expr, m: i64) -> Option<Expr> {
        let a: Expr = e.terms().filter(|(c, _)| c % m == 0).map(|(c, monomial)| monomial * (c / m)).sum();
        let b = e - a * m;
        let lowest = Some(self.bounds(b).lo).filter(|&lo| lo != i64::MIN)?;
        Some(a - floor_divide(lowest.saturating_neg(), m)).filter(|_| !b.is_zero())
    }

    fn learn_not_zero(&mut self, e: Expr) -> Result<(), Impossible> {
        match e.as_int() {
            Some(0) => return Err(Impossible),
            Some(_) => return Ok(()),
            None => {}
        }
        self.known.not_zero.push(e);
        let Some((coefficient @ (1 | -1), sym)) = lone_symbol(e) else { return Ok(()) };
        // An excluded end of the range moves it inwards.
        let excluded = e.constant().saturating_mul(-coefficient);
        let range = self.range_of(sym);
        self.narrow(
            sym,
            Range {
                lo: if range.lo == excluded { excluded.saturating_add(1) } else { range.lo },
                hi: if range.hi == excluded { excluded.saturating_sub(1) } else { range.hi },
            },
        )
    }

    fn learn_multiple(&mut self, divisor: i64, e: Expr) -> Result<(), Impossible> {
        match e.kind() {
            _ if divisor <= 1 => {}
            Kind::Int(value) if value % divisor != 0 => return Err(Impossible),
            Kind::Sym(sym) if self.is_symbol_declared(sym) => self.declare_divisor(sym, divisor),
            _ => {
                self.known.multiples.push((divisor, e));
                let stated = std::mem::take(&mut self.known.at_most_zero);
                return stated.into_iter().try_for_each(|e| self.learn_at_most_zero(e));
            }
        }
        Ok(())
    }

    fn narrow(&mut self, sym: Sym, by: Range) -> Result<(), Impossible> {
        if !self.is_symbol_declared(sym) {
            self.declare(sym, Range::ALL, None);
        }
        let declared = &mut self.symbols[self.index[&sym]];
        let (before, range) = (declared.range, declared.range.intersect(by));
        declared.range = range;
        if range.is_empty() {
            return Err(Impossible);
        }
        let (Some(value), None) = (range.single(), before.single()) else { return Ok(()) };
        // What was known of the symbol and others is known of the others alone: `8*i + 8 <= n` bounds `n` where `i` is 0.
        let stated = std::mem::take(&mut self.known.at_most_zero);
        let (of_symbol, others) = stated.into_iter().partition(|e| e.has_sym(sym));
        self.known.at_most_zero = others;
        of_symbol
            .into_iter()
            .try_for_each(|e| self.learn_at_most_zero(self.simplify(e.replace(sym, Expr::int(value)))))
    }
}

/// `(c, s)` for `c*s + k`.
fn lone_symbol(e: Expr) -> Option<(i64, Sym)> {
    let mut terms = e.terms();
    let (coefficient, monomial) = terms.next()?;
    let sym = monomial.as_sym()?;
    terms.next().is_none().then_some((coefficient, sym))
}
