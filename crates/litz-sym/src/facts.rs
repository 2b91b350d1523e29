//! Records what is known of symbols: ranges, divisors, equalities and inequalities, from declarations and guards.
//!
//! Three verbs keep apart what compilers like to mix up: [`Facts::known`] answers and changes nothing,
//! [`Facts::hint`] gives a number for heuristics only, [`Facts::require`] makes something true and records who
//! asked.

mod learn;

use std::fmt;

use rustc_hash::FxHashMap;

use crate::answers::{State, Step};
use crate::bounds::{MAX_SIZE, Prover, Range};
use crate::build::{gcd, without_common_factor};
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
    state: State,
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
        self.state = self.state.after(Step::Declare(sym, range, hint));
    }

    /// Declares `sym` as an index: `0 <= sym < extent`. The extent may be symbolic and mentions declared symbols.
    pub fn declare_index(&mut self, sym: Sym, extent: Expr) {
        let after = self.state.after(Step::Index(sym, extent));
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
        self.state = after;
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
            self.state = self.state.after(Step::Divisor(sym, divisor));
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
        self.state.known(*rel, || self.find_known(rel))
    }

    fn find_known(&self, rel: &Rel) -> Known {
        let prover = Prover::new(self);
        let difference = prover.simplify(self.difference(rel));
        match rel.cmp {
            Cmp::Eq => prover.is_zero(difference),
            Cmp::Ne => match prover.is_zero(difference) {
                Known::Yes => Known::No,
                Known::No => Known::Yes,
                Known::Unknown => Known::Unknown,
            },
            Cmp::Lt | Cmp::Le => prover.is_not_positive(difference),
        }
    }

    /// Whether `rel` is known to hold: where nothing follows from its opposite, this takes half of the time of [`Facts::known`].
    pub fn holds(&self, rel: &Rel) -> bool {
        self.state.holds(*rel, || self.find_whether_holds(rel))
    }

    fn find_whether_holds(&self, rel: &Rel) -> bool {
        let prover = Prover::new(self);
        let difference = prover.simplify(self.difference(rel));
        match rel.cmp {
            Cmp::Eq => prover.is_zero(difference).is_yes(),
            Cmp::Ne => prover.is_zero(difference).is_no(),
            Cmp::Lt | Cmp::Le => prover.is_at_most_zero(difference),
        }
    }

    /// What `rel` compares with zero: what is at most zero has no factor in common before it is simplified, which would take
    /// `2*floordiv(x, 2)` to `x - mod(x, 2)`, and from both sides of `2*x + 2*floordiv(x, 2) <= 6*n` not the 2.
    fn difference(&self, rel: &Rel) -> Expr {
        let difference = rel.lhs - rel.rhs;
        self.replaced(match rel.cmp {
            Cmp::Eq | Cmp::Ne => difference,
            Cmp::Le => without_common_factor(difference),
            Cmp::Lt => without_common_factor(difference + 1),
        })
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
        match e.kind() {
            Kind::Int(_) => e,
            _ => self.state.simplest(e, || Prover::new(self).simplify(self.replaced(e))),
        }
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
        next.state = State::CHANGING;
        match possible.as_slice() {
            [] => return Err(Contradiction { clause, who: who.into() }),
            [rel] => next.learn(rel).map_err(|Impossible| Contradiction { clause, who: who.into() })?,
            [_, _, ..] => {}
        }
        next.refresh_indices();
        let clause = Clause::new(possible);
        next.state = self.state.after(Step::Guard(clause.clone()));
        next.guards.push(Guard { clause, who: who.into() });
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
            Known::Unknown => self.step(Step::Assume(rel), |facts| facts.learn(&rel)),
        }
    }

    /// Learns something. False if it can never be, after which the facts contradict each other.
    fn step(&mut self, step: Step, learn: impl FnOnce(&mut Facts) -> Result<(), Impossible>) -> bool {
        let before = std::mem::replace(&mut self.state, State::CHANGING);
        let is_possible = learn(self).is_ok();
        self.refresh_indices();
        if is_possible {
            self.state = before.after(step);
        }
        is_possible
    }

    /// Takes a declared symbol as equal to an expression without it. False if it can never be.
    #[must_use]
    pub(crate) fn assume_value(&mut self, sym: Sym, value: Expr) -> bool {
        let extent = self.extent_of(sym);
        let is_below = |facts: &mut Facts| match extent {
            Some(extent) => facts.learn_at_most_zero(value - extent + 1),
            None => Ok(()),
        };
        self.step(Step::Value(sym, value), |facts| facts.eliminate(sym, value).and_then(|()| is_below(facts)))
    }

    /// Which facts they are.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// The same, of which nothing is remembered.
    #[cfg(test)]
    pub(crate) fn forgetful(&self) -> Facts {
        Facts { state: State::CHANGING, ..self.clone() }
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
