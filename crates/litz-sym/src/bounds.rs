//! Bounds the values of an expression under facts.
//!
//! Two methods, of which the better answer counts. *Intervals*: each term on its own, exact while no symbol occurs in
//! two terms. *Elimination*: for an upper bound, replace one atom after the other by its largest value where the
//! coefficient is not negative, else by its smallest; that value may be symbolic (`extent - 1` for an index), so that
//! `s1*i + j - s0*s1` with `i < s0` and `j < s1` cancels down to `-1`. Atoms whose own bounds mention others go first.

use std::cell::{Cell, RefCell};
use std::fmt;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::build::{
    content, divide, divide_by_term, floor_divide, floor_modulo, gcd, multiply_add_exactly, scales_exactly,
    without_common_factor,
};
use crate::digits;
use crate::expr::{Expr, Kind, Sym};
use crate::facts::Facts;

/// Inclusive bounds of an integer; `i64::MIN` and `i64::MAX` mean unbounded. Empty if `lo > hi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range {
    /// Smallest value.
    pub lo: i64,
    /// Largest value.
    pub hi: i64,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.lo {
            i64::MIN => f.write_str("[-inf, ")?,
            lo => write!(f, "[{lo}, ")?,
        }
        match self.hi {
            i64::MAX => f.write_str("inf]"),
            hi => write!(f, "{hi}]"),
        }
    }
}

impl Range {
    /// Any integer.
    pub const ALL: Range = Range { lo: i64::MIN, hi: i64::MAX };

    /// From `lo` to `hi`, both included.
    pub fn new(lo: i64, hi: i64) -> Range {
        Range { lo, hi }
    }

    /// `value` alone.
    pub fn exactly(value: i64) -> Range {
        Range { lo: value, hi: value }
    }

    /// `lo` and above.
    pub fn at_least(lo: i64) -> Range {
        Range { lo, hi: i64::MAX }
    }

    /// Whether `value` is inside.
    pub fn contains(self, value: i64) -> bool {
        self.lo <= value && value <= self.hi
    }

    /// Whether nothing is inside.
    pub fn is_empty(self) -> bool {
        self.lo > self.hi
    }

    /// The values in both.
    pub fn intersect(self, other: Range) -> Range {
        Range { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) }
    }

    /// The smallest range with the values of both.
    pub fn hull(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// The only value inside.
    pub fn single(self) -> Option<i64> {
        (self.lo == self.hi).then_some(self.lo)
    }

    pub(crate) fn add(self, other: Range) -> Range {
        let lo = if self.lo == i64::MIN || other.lo == i64::MIN {
            i64::MIN
        } else {
            self.lo.saturating_add(other.lo)
        };
        let hi = if self.hi == i64::MAX || other.hi == i64::MAX {
            i64::MAX
        } else {
            self.hi.saturating_add(other.hi)
        };
        Range { lo, hi }
    }

    pub(crate) fn multiply(self, other: Range) -> Range {
        self.corners(other, |a, b| {
            let infinite = |value: i64| value == i64::MIN || value == i64::MAX;
            match (a, b) {
                (0, _) | (_, 0) => 0,
                _ if infinite(a) || infinite(b) => infinity((a < 0) == (b < 0)),
                _ => a.saturating_mul(b),
            }
        })
    }

    fn floordiv(self, divisor: Range) -> Range {
        let of_positive = |value: Range, positive: Range| {
            value.corners(positive, |a, b| match (a, b) {
                (i64::MIN | i64::MAX, _) => a,
                (_, i64::MAX) => -i64::from(a < 0),
                _ => floor_divide(a, b),
            })
        };
        // floordiv(a, -b) == floordiv(-a, b)
        let (positive, negative) = divisor.split_sign();
        let up = positive.map(|positive| of_positive(self, positive));
        let down = negative.map(|negative| of_positive(self.negate(), negative.negate()));
        up.into_iter().chain(down).reduce(Range::hull).unwrap_or(Range::ALL)
    }

    fn modulo(self, divisor: Range) -> Range {
        let of_positive = |value: Range, positive: Range| {
            if let (Some(b), true) = (positive.single(), value.lo != i64::MIN && value.hi != i64::MAX)
                && floor_divide(value.lo, b) == floor_divide(value.hi, b)
            {
                return Range { lo: floor_modulo(value.lo, b), hi: floor_modulo(value.hi, b) };
            }
            let last = if positive.hi == i64::MAX { i64::MAX } else { positive.hi - 1 };
            match value.lo >= 0 {
                true if value.hi < positive.lo => value,
                true => Range { lo: 0, hi: last.min(value.hi) },
                false => Range { lo: 0, hi: last },
            }
        };
        // mod(a, -b) == -mod(-a, b)
        let (positive, negative) = divisor.split_sign();
        let up = positive.map(|positive| of_positive(self, positive));
        let down = negative.map(|negative| of_positive(self.negate(), negative.negate()).negate());
        up.into_iter().chain(down).reduce(Range::hull).unwrap_or(Range::ALL)
    }

    /// The part above zero and the part below: a divisor is not zero where there is a value.
    fn split_sign(self) -> (Option<Range>, Option<Range>) {
        let positive = Range { lo: self.lo.max(1), hi: self.hi };
        let negative = Range { lo: self.lo, hi: self.hi.min(-1) };
        ((!positive.is_empty()).then_some(positive), (!negative.is_empty()).then_some(negative))
    }

    fn min(self, other: Range) -> Range {
        Range { lo: self.lo.min(other.lo), hi: self.hi.min(other.hi) }
    }

    fn max(self, other: Range) -> Range {
        Range { lo: self.lo.max(other.lo), hi: self.hi.max(other.hi) }
    }

    fn negate(self) -> Range {
        Range { lo: negate_bound(self.hi), hi: negate_bound(self.lo) }
    }

    /// Hull of a function that is monotone in both operands, from its values at the corners.
    fn corners(self, other: Range, of: impl Fn(i64, i64) -> i64) -> Range {
        let values =
            [of(self.lo, other.lo), of(self.lo, other.hi), of(self.hi, other.lo), of(self.hi, other.hi)];
        values.into_iter().map(Range::exactly).reduce(Range::hull).unwrap_or(Range::ALL)
    }
}

impl Expr {
    /// A range that holds every value, if each symbol may have any value of its own range: interval arithmetic, exact
    /// where no symbol occurs twice, but for digits of it in a sum.
    pub fn range(self, of: &dyn Fn(Sym) -> Range) -> Range {
        match self.kind() {
            Kind::Int(value) => Range::exactly(value),
            Kind::Sym(sym) => of(sym),
            Kind::Add(list) => {
                let of_terms = list.iter().fold(Range::exactly(0), |sum, item| sum.add(item.range(of)));
                let of_digits = if self.is_polynomial() { None } else { digits::range_of(self, of) };
                of_digits.map_or(of_terms, |of_digits| of_terms.intersect(of_digits))
            }
            Kind::Mul(list) => {
                list.iter().fold(Range::exactly(1), |product, item| product.multiply(item.range(of)))
            }
            Kind::FloorDiv(a, b) => a.range(of).floordiv(b.range(of)),
            Kind::Mod(a, b) => a.range(of).modulo(b.range(of)),
            Kind::Min(a, b) => a.range(of).min(b.range(of)),
            Kind::Max(a, b) => a.range(of).max(b.range(of)),
        }
    }
}

fn infinity(positive: bool) -> i64 {
    if positive { i64::MAX } else { i64::MIN }
}

fn negate_bound(bound: i64) -> i64 {
    match bound {
        i64::MIN => i64::MAX,
        i64::MAX => i64::MIN,
        finite => -finite,
    }
}

/// Fuel for one question; a unit takes about 5 us at worst. The index expressions of common models take fewer than 100;
/// what exceeds this is answered "unbounded" or left as it is.
const FUEL: u32 = 1024;

/// A step on this many nodes takes one unit of fuel.
const STEP_SIZE: u32 = 16;

/// Expressions with more nodes than this, written as a tree, are taken as they are: one step takes time proportional to
/// the size, recursion follows the depth, and shared operands can make a tree exponentially larger than what is
/// stored. Index expressions of common models have fewer than 100 nodes.
pub(crate) const MAX_SIZE: u32 = 1024;

/// Answers one question about facts, remembering what it computed on the way.
pub(crate) struct Prover<'a> {
    pub(crate) facts: &'a Facts,
    fuel: Cell<u32>,
    ranges: RefCell<FxHashMap<Expr, Range>>,
    pub(crate) simplified: RefCell<FxHashMap<Expr, Expr>>,
    /// What could not be proved to be at most zero, and in how many steps.
    pub(crate) vain: RefCell<FxHashMap<Expr, u32>>,
}

impl<'a> Prover<'a> {
    pub(crate) fn new(facts: &'a Facts) -> Prover<'a> {
        Prover::with_fuel(facts, FUEL)
    }

    pub(crate) fn with_fuel(facts: &'a Facts, fuel: u32) -> Prover<'a> {
        Prover {
            facts,
            fuel: Cell::new(fuel),
            ranges: RefCell::default(),
            simplified: RefCell::default(),
            vain: RefCell::default(),
        }
    }

    /// Asks a prover with other facts, which has the fuel that is left of this one's.
    pub(crate) fn passes_fuel_to(&self, facts: &Facts, ask: impl FnOnce(&Prover<'_>) -> bool) -> bool {
        let other = Prover::with_fuel(facts, self.fuel.get());
        let answer = ask(&other);
        self.fuel.set(other.fuel.get());
        answer
    }

    /// Takes fuel for one step on `e`; false if there is not enough left, or `e` is too large for any step.
    pub(crate) fn spend(&self, e: Expr) -> bool {
        let cost = 1 + e.size() / STEP_SIZE;
        let has_fuel = e.size() <= MAX_SIZE && cost <= self.fuel.get();
        self.fuel.set(if has_fuel { self.fuel.get() - cost } else { self.fuel.get() });
        has_fuel
    }

    /// A range that holds every value `e` can have.
    pub(crate) fn bounds(&self, e: Expr) -> Range {
        match e.kind() {
            Kind::Int(value) => return Range::exactly(value),
            Kind::Sym(sym) => return self.facts.range_of(sym),
            _ => {}
        }
        if let Some(&known) = self.ranges.borrow().get(&e) {
            return known;
        }
        if !self.spend(e) {
            return if e.is_polynomial() { self.interval(e) } else { Range::ALL };
        }
        let range = match e.kind() {
            Kind::FloorDiv(a, b) => self.bounds(a).floordiv(self.bounds(b)),
            Kind::Mod(a, b) => self.bounds(a).modulo(self.bounds(b)),
            // The smaller of two numbers is at most half of their sum, which says that -abs(x) is not positive.
            Kind::Min(a, b) => {
                let half = (a + b).as_int().map_or(i64::MAX, |sum| floor_divide(sum, 2));
                self.bounds(a).min(self.bounds(b)).intersect(Range { lo: i64::MIN, hi: half })
            }
            Kind::Max(a, b) => {
                let half = (a + b).as_int().map_or(i64::MIN, |sum| -floor_divide(sum.saturating_neg(), 2));
                self.bounds(a).max(self.bounds(b)).intersect(Range { lo: half, hi: i64::MAX })
            }
            Kind::Int(_) | Kind::Sym(_) | Kind::Add(_) | Kind::Mul(_) => self.polynomial_bounds(e),
        };
        let range = range.intersect(self.stated(e));
        self.ranges.borrow_mut().insert(e, range);
        range
    }

    /// Whether `e <= 0` for all values: from ranges and extents, or from those and one guard.
    pub(crate) fn is_at_most_zero(&self, e: Expr) -> bool {
        let e = without_common_factor(e);
        if self.bounds(e).hi <= 0 || self.is_at_most_zero_times_divisor(e) {
            return true;
        }
        // guard <= 0 and e - n*guard <= 0, for n > 0, add up to e <= 0. Guards have no common factor: of tiles of six rows
        // 6*i + 66*o <= 122 is known as i + 11*o <= 20.
        let related = |guard: Expr| guard.mask() & e.mask() != 0;
        let follows = |guard: Expr| {
            let times = times_in(e, guard).filter(|&n| n > 1);
            let rest = times.and_then(|n| multiply_add_exactly(guard, Expr::int(-n), e));
            self.bounds(e - guard).hi <= 0 || rest.is_some_and(|rest| self.bounds(rest).hi <= 0)
        };
        self.facts.at_most_zero().iter().any(|&guard| related(guard) && follows(guard))
    }

    /// For `e == c*floordiv(x, b) + rest` with a symbolic b > 0: `e <= 0` where `b*e <= b - 1`, which no longer needs
    /// the quotient. This is how `floordiv(x, s1) < s0` follows from `x < s0*s1`.
    fn is_at_most_zero_times_divisor(&self, e: Expr) -> bool {
        !e.is_polynomial()
            && e.terms().any(|(c, monomial)| {
                let Kind::FloorDiv(x, b) = monomial.kind() else { return false };
                if b.as_int().is_some() || self.bounds(b).lo < 0 || !self.spend(e) {
                    return false;
                }
                // x - b + 1 <= b*floordiv(x, b) <= x
                let multiple = if c > 0 { x } else { x - b + 1 };
                let rest = e - monomial * c;
                self.bounds(multiple * c + rest * b - b + 1).hi <= 0
            })
    }

    /// Whether `a < b` for all values.
    pub(crate) fn is_less(&self, a: Expr, b: Expr) -> bool {
        self.is_at_most_zero(a - b + 1)
    }

    fn polynomial_bounds(&self, e: Expr) -> Range {
        let interval = self.interval(e);
        if self.is_separable(e) {
            return interval;
        }
        let range = interval.intersect(Range { lo: negate_bound(self.upper(-e)), hi: self.upper(e) });
        if range.lo >= 0 || range.hi <= 0 {
            return range;
        }
        let range = range.intersect(self.factored(e));
        if range.lo >= 0 || range.hi <= 0 { range } else { range.intersect(self.range_above_lowest(e)) }
    }

    /// Each term on its own, in terms of how far symbols are above their lowest values: where `s0 >= 2`, with
    /// `s0 == x + 2`, `s0*s0 - 3*s0 + 2` is `x*x + x`, which is not negative.
    fn range_above_lowest(&self, e: Expr) -> Range {
        // Products of so many numbers up to this stay within `i64`.
        const MOST: u64 = 1 << 15;
        let lowest = |sym: Sym| self.facts.range_of(sym).lo;
        let syms = e.syms();
        let is_moved = syms.iter().any(|&sym| lowest(sym) != 0)
            && syms.iter().all(|&sym| lowest(sym).unsigned_abs() <= MOST)
            && e.terms().all(|(c, monomial)| c.unsigned_abs() <= MOST && monomial.factors().len() <= 3);
        if !is_moved || !e.is_polynomial() || !self.spend(e) {
            return Range::ALL;
        }
        let moved = syms.into_iter().fold(e, |e, sym| e.replace(sym, Expr::sym(sym) + lowest(sym)));
        moved.range(&|sym| match self.facts.range_of(sym) {
            Range { hi: i64::MAX, .. } => Range::at_least(0),
            Range { lo, hi } => Range::new(0, hi.saturating_sub(lo)),
        })
    }

    /// The range of the factor that all terms have, times that of what is left: in `9*s0 - s0*s1 - s0*s2` a guard may
    /// bound `9 - s1 - s2`.
    fn factored(&self, e: Expr) -> Range {
        match content(e) {
            Some((_, factor)) if !factor.is_one() && factor != e => divide_by_term(e, (1, factor))
                .map_or(Range::ALL, |left| self.bounds(factor).multiply(self.bounds(left))),
            Some(_) | None => Range::ALL,
        }
    }

    /// What guards say of the very expression, up to a constant.
    fn stated(&self, e: Expr) -> Range {
        let mut stated = Range::ALL;
        for &guard in self.facts.at_most_zero().iter().filter(|guard| guard.mask() == e.mask()) {
            // e == guard + k <= k
            if let Some(k) = (e - guard).as_int() {
                stated.hi = stated.hi.min(k);
            }
            // e == k - guard >= k
            if let Some(k) = (e + guard).as_int() {
                stated.lo = stated.lo.max(k);
            }
        }
        stated
    }

    /// Each term on its own.
    fn interval(&self, e: Expr) -> Range {
        e.terms().fold(Range::exactly(e.constant()), |sum, (coefficient, monomial)| {
            let factors = monomial.factors().iter();
            let term = factors
                .fold(Range::exactly(coefficient), |product, &factor| product.multiply(self.bounds(factor)));
            sum.add(term)
        })
    }

    /// Whether no symbol matters to two terms, or twice in one, so that intervals lose nothing.
    fn is_separable(&self, e: Expr) -> bool {
        let mut seen = 0;
        e.terms().all(|(_, monomial)| {
            let factors = monomial.factors();
            let simple = factors.len() == 1 || factors.iter().all(|factor| factor.as_sym().is_some());
            let reach = self.facts.reach(monomial);
            let fresh = seen & reach == 0;
            seen |= reach;
            simple && fresh
        })
    }

    /// An upper bound by elimination.
    fn upper(&self, mut e: Expr) -> i64 {
        let mut skipped: SmallVec<[Expr; 4]> = SmallVec::new();
        loop {
            let Some(atom) = self.next_atom(e, &skipped) else { return self.interval(e).hi };
            if !self.spend(e) {
                return self.interval(e).hi;
            }
            let (coefficient, rest) = e.linear_in(atom);
            let sign = self.bounds(coefficient);
            let is_square = coefficient.terms().any(|(_, monomial)| monomial.factors().contains(&atom));
            if is_square || (sign.lo < 0 && sign.hi > 0) {
                skipped.push(atom);
                continue;
            }
            match self.eliminate(Term { coefficient, atom, rest, grows: sign.lo >= 0 }) {
                Elimination::Expr(next) => e = next,
                Elimination::Bound(bound) => return bound,
            }
        }
    }

    /// The atom of `e` whose bounds can mention the most others.
    fn next_atom(&self, e: Expr, skipped: &[Expr]) -> Option<Expr> {
        let mut best = None;
        for (_, monomial) in e.terms() {
            for &atom in monomial.factors().iter().filter(|atom| !skipped.contains(atom)) {
                best = best.max(Some((self.level(atom), atom)));
            }
        }
        best.map(|(_, atom)| atom)
    }

    /// Above the levels of all that the bounds of the atom can mention.
    pub(crate) fn level(&self, atom: Expr) -> u32 {
        match atom.kind() {
            Kind::Int(_) => 0,
            Kind::Sym(sym) => self.facts.level_of(sym),
            Kind::Add(list) | Kind::Mul(list) => list.iter().map(|&item| self.level(item)).max().unwrap_or(0),
            Kind::FloorDiv(a, b) | Kind::Mod(a, b) | Kind::Min(a, b) | Kind::Max(a, b) => {
                1 + self.level(a).max(self.level(b))
            }
        }
    }

    fn eliminate(&self, term: Term) -> Elimination {
        let Term { coefficient, atom, rest, grows } = term;
        let is_shared =
            self.facts.reach(atom) & (self.facts.reach(rest) | self.facts.reach(coefficient)) != 0;
        if is_shared && let Some(next) = self.eliminate_symbolically(&term) {
            return next;
        }
        let range = self.bounds(atom);
        let next = match if grows { range.hi } else { range.lo } {
            i64::MIN | i64::MAX => None,
            value => multiply_add_exactly(coefficient, Expr::int(value), rest),
        };
        next.map_or(Elimination::Bound(i64::MAX), Elimination::Expr)
    }

    /// Replaces the term by a bound of its atom that is an expression, where there is one that helps.
    fn eliminate_symbolically(&self, term: &Term) -> Option<Elimination> {
        let &Term { coefficient, atom, rest, grows } = term;
        match atom.kind() {
            // 0 <= i <= extent - 1
            Kind::Sym(sym) if grows => {
                let last = self.facts.extent_of(sym)? - 1;
                // A condition may bound it by less than its extent does.
                if self.facts.range_of(sym).hi <= self.bounds(last).lo {
                    return None;
                }
                multiply_add_exactly(coefficient, last, rest).map(Elimination::Expr)
            }
            // mod(x, b) <= b - 1
            Kind::Mod(_, b) if grows && b.as_int().is_none() && self.bounds(b).lo >= 0 => {
                multiply_add_exactly(coefficient, b - 1, rest).map(Elimination::Expr)
            }
            Kind::FloorDiv(x, b) if self.bounds(b).lo >= 0 => {
                // x - b + g <= b*floordiv(x, b) <= x, where g divides x and b: the remainder is a multiple of it, too.
                let common = b.as_int().map_or(1, |b| gcd(b, self.facts.greatest_divisor(x)));
                let multiple = if grows { x } else { x - b + common };
                if let (Some(c), Some(d)) = (coefficient.as_int(), b.as_int().filter(|&d| d > 0)) {
                    // Scaling the whole by d/gcd makes the coefficient divisible: max(e) == floor(max(d*e) / d).
                    let by = d / gcd(c, d);
                    let scaled = scales_exactly(rest, by).then(|| rest * by)?;
                    let scaled = multiply_add_exactly(multiple, Expr::int(c / (d / by)), scaled)?;
                    return Some(Elimination::Bound(match self.upper(scaled) {
                        i64::MAX => i64::MAX,
                        bound => floor_divide(bound, by),
                    }));
                }
                let (quotient, left) = divide(coefficient, b);
                let next = left.is_zero().then(|| multiply_add_exactly(quotient, multiple, rest))?;
                next.map(Elimination::Expr)
            }
            // Either operand bounds min from above; from below, the worse of both does. Mirrored for max.
            Kind::Min(a, b) | Kind::Max(a, b) => {
                let [x, y] = [a, b].map(|operand| multiply_add_exactly(coefficient, operand, rest));
                let (x, y) = (self.upper(x?), self.upper(y?));
                let takes_smaller = matches!(atom.kind(), Kind::Min(..)) == grows;
                Some(Elimination::Bound(if takes_smaller { x.min(y) } else { x.max(y) }))
            }
            Kind::Int(_)
            | Kind::Sym(_)
            | Kind::Add(_)
            | Kind::Mul(_)
            | Kind::FloorDiv(..)
            | Kind::Mod(..) => None,
        }
    }
}

/// `coefficient*atom + rest`, with the sign of the coefficient known.
struct Term {
    coefficient: Expr,
    atom: Expr,
    rest: Expr,
    grows: bool,
}

/// What is left to bound once a term is replaced by a bound of its atom.
enum Elimination {
    /// Bounded by whatever bounds this expression.
    Expr(Expr),
    /// Bounded by this number.
    Bound(i64),
}

/// How often the first term of a guard is in an expression, if in whole numbers.
fn times_in(e: Expr, guard: Expr) -> Option<i64> {
    let (one, first) = guard.terms().next()?;
    let (all, _) = e.terms().find(|&(_, monomial)| monomial == first)?;
    all.checked_rem(one)?.eq(&0).then(|| all.checked_div(one)).flatten()
}
