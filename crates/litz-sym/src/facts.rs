//! Records what is known of symbols: ranges, divisors, equalities and inequalities, from declarations and guards.
//!
//! Three verbs keep apart what compilers like to mix up: [`Facts::known`] answers and changes nothing,
//! [`Facts::hint`] gives a number for heuristics only, [`Facts::require`] makes something true and records who
//! asked.

use std::fmt;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::bounds::{MAX_SIZE, Prover, Range};
use crate::build::{floor_divide, gcd, without_common_factor};
use crate::expr::{Expr, Kind, Sym};
use crate::rel::{Clause, Cmp, Known, Rel};

/// What a size counts as of which nothing is known.
const UNKNOWN_SIZE: i64 = 64;

/// What is known about symbols. Symbols that were never declared may have any value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    symbols: Vec<Declared>,
    index: FxHashMap<Sym, usize>,
    guards: Vec<Guard>,
    /// What the guards say, with eliminated symbols replaced.
    known: Derived,
    has_extents: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Derived {
    /// Eliminated symbols; no value mentions an eliminated symbol.
    values: FxHashMap<Sym, Expr>,
    at_most_zero: Vec<Expr>,
    not_zero: Vec<Expr>,
    /// `(d, e)`: d divides e.
    multiples: Vec<(i64, Expr)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Declared {
    sym: Sym,
    range: Range,
    hint: Option<i64>,
    /// Positive; 1 if nothing is known.
    divisor: i64,
    /// Exclusive upper bound, if it is not a constant.
    extent: Option<Expr>,
    /// Bits of this symbol and of all that its extent mentions; see [`Facts::reach`].
    reach: u64,
    /// One more than the level of its extent.
    level: u32,
}

/// A condition that later results rest on, to be checked at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// What must hold, as it was asked for, less the alternatives that never do.
    pub clause: Clause,
    /// Who asked: an operator, pass or user source line.
    pub who: String,
}

/// A requirement that no binding of the symbols can meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The requirement.
    pub clause: Clause,
    /// Who asked for it.
    pub who: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} requires {}, which can never hold", self.who, self.clause)
    }
}

impl std::error::Error for Contradiction {}

/// A range or an equality turned out empty.
struct Impossible;

impl Facts {
    /// No symbols, no guards.
    pub fn new() -> Facts {
        Facts::default()
    }

    /// Declares `sym` with its range and, for heuristics, an example value. A second declaration replaces the first.
    pub fn declare(&mut self, sym: Sym, range: Range, hint: Option<i64>) {
        self.insert(Declared { sym, range, hint, divisor: 1, extent: None, reach: sym.mask(), level: 1 });
    }

    /// Declares `sym` as an index: `0 <= sym < extent`. The extent may be symbolic and mentions declared symbols.
    pub fn declare_index(&mut self, sym: Sym, extent: Expr) {
        let extent = self.simplify(extent);
        let hi = match self.bounds(extent).hi {
            i64::MAX => i64::MAX,
            hi => hi.saturating_sub(1),
        };
        let mut declared = Declared {
            sym,
            range: Range::new(0, hi),
            hint: None,
            divisor: 1,
            extent: None,
            reach: sym.mask(),
            level: 1,
        };
        if extent.as_int().is_none() {
            declared.reach |= self.reach(extent);
            declared.level = 1 + Prover::new(self).level(extent);
            declared.extent = Some(extent);
            self.has_extents = true;
        }
        self.insert(declared);
    }

    fn insert(&mut self, declared: Declared) {
        match self.index.get(&declared.sym) {
            Some(&at) => self.symbols[at] = declared,
            None => {
                self.index.insert(declared.sym, self.symbols.len());
                self.symbols.push(declared);
            }
        }
    }

    /// States that `divisor` divides `sym`, besides what was known to. Does nothing if `sym` is not declared or
    /// `divisor` is not positive.
    pub fn declare_divisor(&mut self, sym: Sym, divisor: i64) {
        let Some(&at) = self.index.get(&sym) else { return };
        if divisor > 0 {
            // The least common multiple; on overflow the greater of the two alone stays true.
            let known = self.symbols[at].divisor;
            let both = (known / gcd(known, divisor)).checked_mul(divisor);
            self.symbols[at].divisor = both.unwrap_or(known.max(divisor));
        }
    }

    /// What is known of some symbols alone: guards that mention others are left out, though not what follows for ranges.
    pub fn only(&self, is_wanted: impl Fn(Sym) -> bool) -> Facts {
        let mut facts = Facts::new();
        for sym in self.symbols().filter(|&sym| is_wanted(sym)) {
            facts.declare(sym, self.range_of(sym), self.hint_of(sym));
            facts.declare_divisor(sym, self.divisor_of(sym));
        }
        for Guard { clause, who } in &self.guards {
            let mut sides = clause.alternatives().iter().flat_map(|rel| [rel.lhs, rel.rhs]);
            if sides.all(|side| side.syms().into_iter().all(&is_wanted)) {
                // What does not contradict more facts does not contradict fewer.
                let _ = facts.restore(clause.clone(), who);
            }
        }
        facts
    }

    /// Adds the symbols and guards of others. A symbol that is declared stays as it is.
    pub fn include(&mut self, others: &Facts) {
        for sym in others.symbols() {
            if !self.is_symbol_declared(sym) {
                self.declare(sym, others.range_of(sym), others.hint_of(sym));
                self.declare_divisor(sym, others.divisor_of(sym));
            }
        }
        for Guard { clause, who } in &others.guards {
            if !self.guards.iter().any(|own| own.clause == *clause) {
                // A contradiction is found by whoever asks for the guard.
                let _ = self.restore(clause.clone(), who);
            }
        }
    }

    /// The declared symbols, in order of first declaration.
    pub fn symbols(&self) -> impl Iterator<Item = Sym> {
        self.symbols.iter().map(|declared| declared.sym)
    }

    /// Whether `sym` was declared.
    pub fn is_symbol_declared(&self, sym: Sym) -> bool {
        self.index.contains_key(&sym)
    }

    /// The range of `sym`, narrowed by guards; everything if it was not declared.
    pub fn range_of(&self, sym: Sym) -> Range {
        self.get(sym).map_or(Range::ALL, |declared| declared.range)
    }

    /// The example value that `sym` was declared with.
    pub fn hint_of(&self, sym: Sym) -> Option<i64> {
        self.get(sym).and_then(|declared| declared.hint)
    }

    /// A positive number known to divide `sym`; 1 if none is known.
    pub fn divisor_of(&self, sym: Sym) -> i64 {
        self.get(sym).map_or(1, |declared| declared.divisor)
    }

    /// The exclusive upper bound that `sym` was declared with by [`Facts::declare_index`], if it is not a constant.
    pub fn extent_of(&self, sym: Sym) -> Option<Expr> {
        self.get(sym).and_then(|declared| declared.extent)
    }

    /// The conditions added by [`Facts::require`], in order.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// A range that holds every value `e` can have; unbounded where it cannot tell.
    pub fn bounds(&self, e: Expr) -> Range {
        Prover::new(self).bounds(e)
    }

    /// Whether `divisor` is known to divide `e` for all values.
    pub fn divides(&self, divisor: i64, e: Expr) -> bool {
        divisor != 0 && self.greatest_divisor(e).checked_rem(divisor) == Some(0)
    }

    /// What is known about `rel`. Answers from ranges, extents, divisors and guards; changes nothing.
    pub fn known(&self, rel: &Rel) -> Known {
        let prover = Prover::new(self);
        let difference = prover.simplify(self.replaced(rel.lhs - rel.rhs));
        match rel.cmp {
            Cmp::Eq => prover.is_zero(difference),
            Cmp::Ne => match prover.is_zero(difference) {
                Known::Yes => Known::No,
                Known::No => Known::Yes,
                Known::Unknown => Known::Unknown,
            },
            Cmp::Lt => prover.is_not_positive(difference + 1),
            Cmp::Le => prover.is_not_positive(difference),
        }
    }

    /// Whether `rel` is known to hold: where nothing follows from its opposite, this takes half of the time of [`Facts::known`].
    pub fn holds(&self, rel: &Rel) -> bool {
        let prover = Prover::new(self);
        let difference = prover.simplify(self.replaced(rel.lhs - rel.rhs));
        match rel.cmp {
            Cmp::Eq => prover.is_zero(difference).is_yes(),
            Cmp::Ne => prover.is_zero(difference).is_no(),
            Cmp::Lt => prover.is_at_most_zero(difference + 1),
            Cmp::Le => prover.is_at_most_zero(difference),
        }
    }

    /// What is known about `clause`: that an alternative always holds, or that none ever does.
    pub fn known_clause(&self, clause: &Clause) -> Known {
        let mut known = Known::No;
        for rel in clause.alternatives() {
            match self.known(rel) {
                Known::Yes => return Known::Yes,
                Known::No => {}
                Known::Unknown => known = Known::Unknown,
            }
        }
        known
    }

    /// The value of `e` for the example values; None if a symbol has none. For heuristics only: results must not
    /// depend on it.
    pub fn hint(&self, e: Expr) -> Option<i64> {
        e.eval(&|sym| {
            let value = || self.known.values.get(&sym).and_then(|value| self.hint(*value));
            self.hint_of(sym).or_else(|| self.range_of(sym).single()).or_else(value)
        })
    }

    /// The same for a size: 64 where a symbol has no example value.
    pub fn size_hint(&self, e: Expr) -> i64 {
        self.hint(e).unwrap_or(UNKNOWN_SIZE)
    }

    /// The simplest form of `e` that is equal to it under these facts, within a bound on effort.
    pub fn simplify(&self, e: Expr) -> Expr {
        Prover::new(self).simplify(self.replaced(e))
    }

    /// Makes `clause` a guard, unless it is already known to hold. Ranges narrow, and a symbol that the guard determines
    /// (`s1 == s0`, `s0 == 4`) is replaced by [`Facts::simplify`] from then on. Symbols of a guard that narrows them
    /// become declared. A guard with several alternatives that may hold teaches nothing: it is only checked. On error
    /// nothing changes.
    pub fn require(&mut self, clause: impl Into<Clause>, who: &str) -> Result<(), Contradiction> {
        let clause = clause.into();
        let mut possible = Vec::new();
        for rel in clause.alternatives() {
            match self.known(rel) {
                Known::Yes => return Ok(()),
                Known::No => {}
                Known::Unknown => possible.push(*rel),
            }
        }
        let mut next = self.clone();
        match possible.as_slice() {
            [] => return Err(Contradiction { clause, who: who.into() }),
            [rel] => next.learn(rel).map_err(|Impossible| Contradiction { clause, who: who.into() })?,
            [_, _, ..] => {}
        }
        next.refresh_indices();
        next.guards.push(Guard { clause: Clause::new(possible), who: who.into() });
        *self = next;
        Ok(())
    }

    /// Says that all guards but the first `known` were asked for by `who`: what stands for several that asked.
    pub fn attribute(&mut self, known: usize, who: &str) {
        self.guards.iter_mut().skip(known).for_each(|guard| guard.who = who.into());
    }

    /// As [`Facts::require`], but keeps the guard even if it is known to hold. For facts read back from text, whose
    /// ranges were narrowed by their guards before they were written.
    pub fn restore(&mut self, clause: Clause, who: &str) -> Result<(), Contradiction> {
        let count = self.guards.len();
        self.require(clause.clone(), who)?;
        if self.guards.len() == count {
            self.guards.push(Guard { clause, who: who.into() });
        }
        Ok(())
    }

    /// Takes `rel` as true without a guard: what is asked next is asked for the case that it holds. False if it never
    /// does, after which the facts contradict each other.
    #[must_use]
    pub fn assume(&mut self, rel: Rel) -> bool {
        match self.known(&rel) {
            Known::Yes => true,
            Known::No => false,
            Known::Unknown => {
                let is_possible = self.learn(&rel).is_ok();
                self.refresh_indices();
                is_possible
            }
        }
    }

    /// Takes a declared symbol as equal to an expression without it. False if it can never be.
    #[must_use]
    pub(crate) fn assume_value(&mut self, sym: Sym, value: Expr) -> bool {
        let extent = self.extent_of(sym);
        let is_below = |facts: &mut Facts| match extent {
            Some(extent) => facts.learn_at_most_zero(value - extent + 1),
            None => Ok(()),
        };
        let is_possible = self.eliminate(sym, value).and_then(|()| is_below(self)).is_ok();
        self.refresh_indices();
        is_possible
    }

    fn get(&self, sym: Sym) -> Option<&Declared> {
        self.index.get(&sym).map(|&at| &self.symbols[at])
    }

    /// One bit for each symbol that `e` or an extent of its symbols mentions. Expressions without a common bit vary
    /// independently.
    pub(crate) fn reach(&self, e: Expr) -> u64 {
        if !self.has_extents {
            return e.mask();
        }
        let mut reach = 0;
        e.visit_syms(&mut |sym| reach |= self.get(sym).map_or(sym.mask(), |declared| declared.reach));
        reach
    }

    pub(crate) fn level_of(&self, sym: Sym) -> u32 {
        self.get(sym).map_or(1, |declared| declared.level)
    }

    pub(crate) fn at_most_zero(&self) -> &[Expr] {
        &self.known.at_most_zero
    }

    pub(crate) fn multiples(&self) -> &[(i64, Expr)] {
        &self.known.multiples
    }

    pub(crate) fn is_known_not_zero(&self, e: Expr) -> bool {
        !self.known.not_zero.is_empty()
            && (self.known.not_zero.contains(&e) || self.known.not_zero.contains(&-e))
    }

    /// `e` without eliminated symbols. That takes no fuel: what is equal but for them is known to be equal, however many
    /// guards there are to try before.
    fn replaced(&self, e: Expr) -> Expr {
        let values = &self.known.values;
        let is_kept = values.is_empty() || e.size() > MAX_SIZE;
        if is_kept { e } else { e.subst(&|sym| values.get(&sym).copied()) }
    }

    /// What `sym` is always equal to, if it needs no name of its own. An index that may have no value keeps its name: what
    /// mentions it says with that that there is one.
    pub(crate) fn value_of(&self, sym: Sym) -> Option<Expr> {
        let value = self.known.values.get(&sym).copied();
        value.or_else(|| {
            let declared = self.get(sym)?;
            let has_values = declared.extent.is_none_or(|extent| self.bounds(extent).lo >= 1);
            declared.range.single().filter(|_| has_values).map(Expr::int)
        })
    }

    /// The greatest known divisor of `e`; 0 for 0.
    pub(crate) fn greatest_divisor(&self, e: Expr) -> i64 {
        let structural = match e.kind() {
            // The absolute value of i64::MIN is no i64; half of it still divides.
            Kind::Int(value) => return value.checked_abs().unwrap_or(1 << 62),
            Kind::Sym(sym) => self.divisor_of(sym),
            Kind::Add(list) => list.iter().fold(0, |common, &item| gcd(common, self.greatest_divisor(item))),
            // On overflow the divisor of the factors so far stays true.
            Kind::Mul(list) => list.iter().fold(1i64, |product, &item| {
                product.checked_mul(self.greatest_divisor(item)).unwrap_or(product)
            }),
            Kind::Mod(a, b) | Kind::Min(a, b) | Kind::Max(a, b) => {
                gcd(self.greatest_divisor(a), self.greatest_divisor(b))
            }
            Kind::FloorDiv(a, b) => match b.as_int().map(|b| (self.greatest_divisor(a), b)) {
                Some((divisor, b)) if b != 0 && divisor % b == 0 => divisor / b,
                _ => 1,
            },
        };
        let stated = self.known.multiples.iter().filter(|(_, multiple)| *multiple == e);
        stated.map(|(divisor, _)| *divisor).max().unwrap_or(1).max(structural)
    }

    // Learning from guards.

    fn learn(&mut self, rel: &Rel) -> Result<(), Impossible> {
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

    fn eliminate(&mut self, sym: Sym, value: Expr) -> Result<(), Impossible> {
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
    fn refresh_indices(&mut self) {
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

    fn learn_at_most_zero(&mut self, e: Expr) -> Result<(), Impossible> {
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

impl Prover<'_> {
    fn is_not_positive(&self, e: Expr) -> Known {
        if self.is_at_most_zero(e) {
            return Known::Yes;
        }
        if self.is_at_most_zero(1 - e) { Known::No } else { Known::Unknown }
    }

    fn is_zero(&self, e: Expr) -> Known {
        if let Some(value) = e.as_int() {
            return if value == 0 { Known::Yes } else { Known::No };
        }
        if self.is_at_most_zero(1 - e) || self.is_at_most_zero(e + 1) || self.facts.is_known_not_zero(e) {
            return Known::No;
        }
        // 4*x + 2 is never zero.
        let constant = e.constant();
        if constant.checked_rem(self.facts.greatest_divisor(e - constant)) != Some(0) {
            return Known::No;
        }
        if self.is_at_most_zero(e) && self.is_at_most_zero(-e) { Known::Yes } else { Known::Unknown }
    }
}
