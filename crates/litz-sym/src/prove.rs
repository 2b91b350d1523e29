//! Proves relations with more effort than `known` takes: from several guards at a time, with remainders written as
//! quotients, and with indices split into the digits that quotients and remainders of them are.
//!
//! `known` is asked thousands of times while a program is compiled, and mostly in vain; what is proved here has to
//! hold, so that trying harder is worth it.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};

use smallvec::{SmallVec, smallvec};

use crate::bounds::Prover;
use crate::build::{content, divide_by_term, divide_term, without_common_factor};
use crate::expr::{Expr, Kind, Sym};
use crate::facts::Facts;
use crate::rel::{Cmp, Rel};

/// Most steps of a proof, guards taken in and atoms removed, at the first attempt and at later ones. That an image with a
/// border on two sides is read inside takes a step for each side, and most proofs are no longer.
const STEPS: [u32; 3] = [2, 4, 6];

/// Fuel for a proof, in the units of questions.
const FUEL: u32 = 16384;

/// Guards that are taken out of an expression, at most.
const MOST_GUARDS: usize = 4;

/// Times that indices are split into digits, and these into digits again.
const MAX_SPLITS: usize = 3;

impl Facts {
    /// Whether `rel` is known to hold, or can be proved to with more effort than [`Facts::known`] takes.
    pub fn proves(&self, rel: &Rel) -> bool {
        let difference = rel.lhs - rel.rhs;
        match rel.cmp {
            Cmp::Lt => self.proves_at_most_zero(difference + 1),
            Cmp::Le => self.proves_at_most_zero(difference),
            Cmp::Eq => self.proves_at_most_zero(difference) && self.proves_at_most_zero(-difference),
            Cmp::Ne => self.holds(rel),
        }
    }

    /// `e` where it is largest for the values of `syms`: each that it is known to grow or to fall with at the end of its
    /// range. Symbols without such an end, or that it may grow and fall with, are left.
    pub fn largest(&self, e: Expr, syms: &[Sym]) -> Expr {
        let prover = Prover::with_fuel(self, FUEL);
        prover.corner(prover.simplify(e), &|sym| syms.contains(&sym))
    }

    fn proves_at_most_zero(&self, e: Expr) -> bool {
        self.state().proved(e, || self.find_proof_of_at_most_zero(e))
    }

    fn find_proof_of_at_most_zero(&self, e: Expr) -> bool {
        let mut forms: SmallVec<[(Cow<'_, Facts>, Expr); 4]> =
            smallvec![(Cow::Borrowed(self), without_common_factor(e))];
        // Bounds of all forms are cheap next to a search in one.
        for round in 0..=MAX_SPLITS {
            let (facts, e) = &mut forms[round];
            let prover = Prover::new(facts);
            *e = prover.simplify(*e);
            let is_proved = |e: Expr| prover.bounds(e).hi <= 0;
            if prover.is_at_most_zero(*e)
                || is_proved(prover.with_quotients(*e))
                || is_proved(prover.corner(*e, &|_| true))
                || e.is_polynomial() && is_proved(prover.without_guards(*e))
            {
                return true;
            }
            let (mut split, e) = (facts.clone().into_owned(), *e);
            match split.split_digits(e, round) {
                None => break,
                // No values of the symbols are left to prove anything for.
                Some(false) => return true,
                Some(true) => forms.push((Cow::Owned(split), e)),
            }
        }
        let first = Prover::new(self);
        let is_free = |sym: Sym| !self.at_most_zero().iter().any(|guard| guard.has_sym(sym));
        if first.is_at_most_zero_at_points(first.corner(forms[0].1, &is_free)) {
            return true;
        }
        STEPS.iter().any(|&steps| {
            forms.iter().any(|(facts, e)| {
                let prover = Prover::with_fuel(facts, FUEL);
                let e = prover.simplify(*e);
                let others =
                    [prover.with_quotients(e), prover.with_digits(prover.with_cancelling_quotients(e))];
                let is_proved = |e: Expr| prover.proves_at_most_zero(e, steps);
                is_proved(e) || others.into_iter().any(|other| other != e && is_proved(other))
            })
        })
    }

    /// Facts in terms of the rows that blocks are parts of: with `i in min(49 - 8*b, 8)` for each block `b` there is a row `8*b + i in 49`,
    /// whose quotients and remainders are those that indices were written with. None where `i` is no such row, or has no values.
    pub fn with_whole_row(&self, i: Sym) -> Option<Facts> {
        let (rows, row) = self.row_of(i)?;
        let mut facts = self.clone();
        let name = Sym::new(&format!("{}%row", i.name()));
        facts.declare_index(name, rows);
        let is_possible = facts.assume_value(i, Expr::sym(name) - (row - Expr::sym(i)));
        is_possible.then_some(facts)
    }

    /// For `i in min(n - 8*b, 8)`, where `b` is not negative, `n` and `8*b + i`.
    fn row_of(&self, sym: Sym) -> Option<(Expr, Expr)> {
        let Kind::Min(a, b) = self.extent_of(sym)?.kind() else { return None };
        [(a, b), (b, a)].into_iter().find_map(|(left, block)| {
            let size = block.as_int()?;
            let (_, block) = left.terms().find(|&(c, term)| c == -size && term.as_sym().is_some())?;
            let before = block * size;
            (self.bounds(before).lo >= 0).then(|| (left + before, before + Expr::sym(sym)))
        })
    }
}

impl Prover<'_> {
    /// Whether `e <= 0`, in at most `steps` steps from `e` to something that is at least `e`.
    fn proves_at_most_zero(&self, e: Expr, steps: u32) -> bool {
        let e = without_common_factor(e);
        if self.bounds(e).hi <= 0 {
            return true;
        }
        // Steps lead to the same expression in any order.
        let is_vain = self.vain.borrow().get(&e).is_some_and(|&tried| steps <= tried);
        if steps == 0 || is_vain {
            return false;
        }
        let is_proved = self.follows_without_factor(e, steps - 1)
            || self.follows_from_guards(e, steps - 1)
            || self.follows_at_corner(e, steps - 1)
            || self.follows_without_atom(e, steps - 1);
        if !is_proved {
            self.vain.borrow_mut().insert(e, steps);
        }
        is_proved
    }

    /// The step from `e == factor*rest` to `rest`, where the factor is not negative.
    fn follows_without_factor(&self, e: Expr, steps: u32) -> bool {
        content(e).is_some_and(|(_, factor)| {
            let is_factor = !factor.is_one() && factor != e && self.bounds(factor).lo >= 0;
            is_factor
                && divide_by_term(e, (1, factor)).is_some_and(|rest| self.proves_at_most_zero(rest, steps))
        })
    }

    /// The step from `e` to `e - by*guard`: as `guard <= 0` and `by >= 0`, it is at least `e`.
    fn follows_from_guards(&self, e: Expr, steps: u32) -> bool {
        let related = |guard: &&Expr| guard.mask() & e.mask() != 0;
        // An index below the smaller of two numbers is below both.
        let below = |sym: Sym| match self.facts.extent_of(sym).map(|extent| (extent.kind(), extent)) {
            Some((Kind::Min(a, b), _)) => smallvec![Expr::sym(sym) - a + 1, Expr::sym(sym) - b + 1],
            Some((_, extent)) if extent.as_int().is_none() => smallvec![Expr::sym(sym) - extent + 1],
            Some(_) | None => SmallVec::<[Expr; 2]>::new(),
        };
        let indices: SmallVec<[Expr; 4]> = e.syms().into_iter().flat_map(below).collect();
        let mut simpler: SmallVec<[Expr; 4]> = SmallVec::new();
        let guards = self.facts.at_most_zero().iter().filter(related).chain(&indices);
        // What is asked for may have quotients where a guard has remainders: `16*ceildiv(p, 16) - p` is known as a remainder.
        let atoms: SmallVec<[Expr; 8]> = e
            .terms()
            .flat_map(|(_, monomial)| SmallVec::<[Expr; 4]>::from_slice(monomial.factors()))
            .collect();
        let forms = guards.flat_map(|&guard| {
            let other = self.with_quotients_but(guard, &|remainder| atoms.contains(&remainder));
            [Some(guard), Some(other).filter(|&other| other != guard)].into_iter().flatten()
        });
        for guard in forms {
            for by in self.multipliers(e, guard) {
                let next = e - by * guard;
                if !self.spend(next) {
                    return false;
                }
                if self.bounds(next).hi <= 0 {
                    return true;
                }
                // Steps that cancel something lead on.
                if next.terms().len() <= e.terms().len() {
                    simpler.push(next);
                }
            }
        }
        simpler.sort_by_key(|next| next.terms().len());
        simpler.into_iter().any(|next| self.proves_at_most_zero(next, steps))
    }

    /// Something that is at least `e`: less multiples of guards, each that leaves the fewest terms. An element of a matrix is inside where
    /// its row and its column are.
    fn without_guards(&self, e: Expr) -> Expr {
        let mut shortest = e;
        // A guard for each dimension of a buffer is enough.
        for _ in 0..MOST_GUARDS {
            let mut found = shortest;
            for &guard in self.facts.at_most_zero().iter().filter(|guard| guard.mask() & shortest.mask() != 0)
            {
                for by in self.multipliers(shortest, guard) {
                    let next = shortest - by * guard;
                    if !self.spend(next) {
                        return shortest;
                    }
                    if next.terms().len() < found.terms().len() {
                        found = next;
                    }
                }
            }
            if found == shortest {
                break;
            }
            shortest = found;
        }
        shortest
    }

    /// What a guard may be multiplied by so that one of its terms cancels one of `e`, or all that `e` has of an atom, and 1; nothing negative.
    /// With rows `i < n` of `2*s - 1` elements, `i*(2*s - 1)` is cancelled by `2*s - 1` times the guard.
    fn multipliers(&self, e: Expr, guard: Expr) -> SmallVec<[Expr; 4]> {
        let mut found: SmallVec<[Expr; 4]> = smallvec![Expr::one()];
        for (a, b) in e.terms().flat_map(|a| guard.terms().map(move |b| (a, b))) {
            if let Some(by) = divide_term(a, b)
                && !found.contains(&by)
                && self.bounds(by).lo >= 0
            {
                found.push(by);
            }
        }
        for (c, atom) in guard.terms().filter(|(_, monomial)| monomial.factors().len() == 1) {
            let (coefficient, _) = e.linear_in(atom);
            let is_sum = coefficient.terms().len() + usize::from(coefficient.constant() != 0) > 1;
            if is_sum
                && let Some(by) = divide_by_term(coefficient, (c, Expr::one()))
                && self.bounds(by).lo >= 0
            {
                found.push(by);
            }
        }
        found
    }

    /// `mod(x, b) => x - b*floordiv(x, b)` in all terms: quotients grow with `x`, so that where all coefficients are
    /// positive the largest values of all terms are taken at once.
    fn with_quotients(&self, e: Expr) -> Expr {
        self.with_quotients_but(e, &|_| false)
    }

    /// The same, but for some remainders.
    fn with_quotients_but(&self, e: Expr, is_kept: &dyn Fn(Expr) -> bool) -> Expr {
        e.terms().fold(Expr::int(e.constant()), |sum, (c, monomial)| {
            let remainder =
                monomial.factors().iter().filter(|&&factor| !is_kept(factor)).find_map(|&factor| {
                    let Kind::Mod(x, b) = factor.kind() else { return None };
                    Some(divide_term((c, monomial), (1, factor))? * (x - b * quotient(x, b)))
                });
            sum + remainder.unwrap_or(monomial * c)
        })
    }

    /// `mod(x, b) => x - b*floordiv(x, b)` in those terms where `x` cancels another one: `i - mod(i, s)` is a multiple of `s`.
    fn with_cancelling_quotients(&self, e: Expr) -> Expr {
        e.terms().fold(e, |sum, (c, monomial)| {
            let quotient = self.with_quotients(monomial * c);
            let next = sum - monomial * c + quotient;
            if next.terms().len() < sum.terms().len() { next } else { sum }
        })
    }

    /// `mod(x, a*b) - mod(x, b) => b*mod(floordiv(x, b), a)`, a digit of `x`, where the two remainders have opposite signs
    /// and `a` is not negative.
    fn with_digits(&self, e: Expr) -> Expr {
        let remainder = |(c, monomial): (i64, Expr)| {
            let mut factors = monomial.factors().iter();
            factors.find_map(|&factor| match factor.kind() {
                Kind::Mod(x, b) => Some((divide_term((c, monomial), (1, factor))?, x, b)),
                _ => None,
            })
        };
        let remainders: SmallVec<[(Expr, Expr, Expr); 4]> = e.terms().filter_map(remainder).collect();
        let mut result = e;
        for &(by, x, small) in &remainders {
            let is_negative = self.bounds(by).hi <= 0;
            for &(other, _, large) in remainders.iter().filter(|other| other.1 == x && other.2 != small) {
                let is_opposite = self.bounds(if is_negative { -other } else { other }).hi <= 0;
                let count = divide_by_term(large, (1, small)).filter(|&count| self.bounds(count).lo >= 0);
                if let Some(count) = count.filter(|_| is_opposite) {
                    let digit = x.floordiv(small).modulo(count) * small;
                    result = result + (x.modulo(large) - digit - x.modulo(small)) * by;
                }
            }
        }
        if result.terms().len() <= e.terms().len() { result } else { e }
    }

    /// The step to the corner where `e` is largest.
    fn follows_at_corner(&self, e: Expr, steps: u32) -> bool {
        let corner = self.corner(e, &|_| true);
        corner != e && self.proves_at_most_zero(corner, steps)
    }

    /// `e` with each symbol that `is_free`, and that it is known to grow or to fall with, at the end of its range where `e`
    /// is largest.
    fn corner(&self, e: Expr, is_free: &dyn Fn(Sym) -> bool) -> Expr {
        let mut syms = e.syms();
        syms.retain(|sym| is_free(*sym));
        syms.sort_by_key(|&sym| Reverse(self.facts.level_of(sym)));
        let mut corner = e;
        for sym in syms {
            if !self.spend(corner) {
                break;
            }
            let range = self.facts.range_of(sym);
            let end = match self.growth(corner, sym) {
                Some(Ordering::Greater) => match self.facts.extent_of(sym) {
                    Some(extent) => Some(extent - 1),
                    None => Some(range.hi).filter(|&hi| hi != i64::MAX).map(Expr::int),
                },
                Some(Ordering::Less) => Some(range.lo).filter(|&lo| lo != i64::MIN).map(Expr::int),
                Some(Ordering::Equal) | None => None,
            };
            corner = end.map_or(corner, |end| self.simplify(corner.replace(sym, end)));
        }
        corner
    }

    /// Whether `e` grows (`Greater`) or falls with `sym`, or does not change; None if that is not known.
    fn growth(&self, e: Expr, sym: Sym) -> Option<Ordering> {
        if !e.has_sym(sym) {
            return Some(Ordering::Equal);
        }
        let both = |a: Ordering, b: Ordering| match (a, b) {
            (Ordering::Equal, other) | (other, Ordering::Equal) => Some(other),
            (a, b) => (a == b).then_some(a),
        };
        match e.kind() {
            Kind::Int(_) => Some(Ordering::Equal),
            Kind::Sym(_) => Some(Ordering::Greater),
            Kind::Min(a, b) | Kind::Max(a, b) => both(self.growth(a, sym)?, self.growth(b, sym)?),
            Kind::FloorDiv(a, b) => {
                (!b.has_sym(sym) && self.bounds(b).lo >= 0).then(|| self.growth(a, sym)).flatten()
            }
            Kind::Mod(..) => None,
            Kind::Add(_) | Kind::Mul(_) => {
                let mut atoms: SmallVec<[Expr; 4]> = SmallVec::new();
                for (_, monomial) in e.terms() {
                    let new = |atom: &&Expr| atom.has_sym(sym) && !atoms.contains(atom);
                    let found: SmallVec<[Expr; 4]> = monomial.factors().iter().filter(new).copied().collect();
                    atoms.extend(found);
                }
                atoms.into_iter().try_fold(Ordering::Equal, |sum, atom| {
                    let (coefficient, _) = e.linear_in(atom);
                    let range = self.bounds(coefficient);
                    let growth = self.growth(atom, sym)?;
                    match (coefficient.has_sym(sym), range.lo >= 0, range.hi <= 0) {
                        (false, true, _) => both(sum, growth),
                        (false, _, true) => both(sum, growth.reverse()),
                        (true, ..) | (false, false, false) => None,
                    }
                })
            }
        }
    }

    /// The step from `e` to an expression without one of its quotients, minima or maxima.
    fn follows_without_atom(&self, e: Expr, steps: u32) -> bool {
        if e.is_polynomial() {
            return false;
        }
        e.terms().any(|(c, monomial)| {
            monomial.factors().iter().any(|&atom| {
                let Some(by) = divide_term((c, monomial), (1, atom)) else { return false };
                !atom.is_polynomial() && self.follows_without(atom, by, e - monomial * c, steps)
            })
        })
    }

    /// The step from `by*floordiv(x, b) + rest`, for `by >= 0`, to the quotient's largest value under a guard: of
    /// `6*i + 66*o <= 122` and `x == 6*i + 2*o + j`, as `x + 64*o` is at most `122 + j`, so is the quotient by 16 at most
    /// `floordiv(122 + max j, 16) - 4*o`.
    fn follows_from_guarded_quotient(&self, (x, b): (Expr, Expr), by: Expr, rest: Expr, steps: u32) -> bool {
        let Some(divisor) = b.as_int().filter(|&divisor| divisor > 0) else { return false };
        let related = |guard: &&Expr| guard.mask() & x.mask() != 0;
        self.facts.at_most_zero().iter().filter(related).any(|&guard| {
            self.multipliers(x, guard).into_iter().any(|factor| {
                let guard = factor * guard;
                let Some(multiple) = lack(x, guard, divisor) else { return false };
                let most = self.bounds(x + multiple * divisor - guard).hi;
                let next = || rest + by * (Expr::int(most.div_euclid(divisor)) - multiple);
                most != i64::MAX && self.spend(rest) && self.proves_at_most_zero(self.simplify(next()), steps)
            })
        })
    }

    /// The step from `by*atom + rest` to an expression without the atom.
    fn follows_without(&self, atom: Expr, by: Expr, rest: Expr, steps: u32) -> bool {
        let sign = self.bounds(by);
        if !self.spend(rest) || (sign.lo < 0 && sign.hi > 0) {
            return false;
        }
        let is_positive = sign.lo >= 0;
        match atom.kind() {
            // b*floordiv(x, b) is in x - b + 1 ..= x, and e is at most 0 where b*e < b, for b > 0. This is how
            // floordiv(x, s1) < s0 follows from x < s0*s1.
            Kind::FloorDiv(x, b) => {
                let multiple = if is_positive { x } else { x - b + 1 };
                let next = self.simplify(multiple * by + rest * b - b + 1);
                // Remainders that were inside of the quotient.
                let without_remainders = self.with_quotients(next);
                let end = match (x.kind(), is_positive) {
                    (Kind::Mod(_, m), true) if self.bounds(m).lo >= 0 => self.simplify((m - 1).floordiv(b)),
                    (_, true) => self.corner(atom, &|_| true),
                    (_, false) => -self.corner(-atom, &|_| true),
                };
                self.bounds(b).lo >= 0
                    && (self.proves_at_most_zero(next, steps)
                        || without_remainders != next && self.proves_at_most_zero(without_remainders, steps)
                        || end != atom && self.proves_at_most_zero(rest + end * by, steps)
                        || is_positive && self.follows_from_guarded_quotient((x, b), by, rest, steps))
            }
            Kind::Min(x, y) | Kind::Max(x, y) => {
                let mut either = [x, y].into_iter().map(|operand| rest + operand * by);
                let is_proved = |next: Expr| self.proves_at_most_zero(next, steps);
                let is_proved = match matches!(atom.kind(), Kind::Min(..)) == is_positive {
                    true => either.any(is_proved),
                    false => either.all(is_proved),
                };
                is_proved || self.follows_in_both_cases(atom, by, rest, steps)
            }
            Kind::Int(_) | Kind::Sym(_) | Kind::Add(_) | Kind::Mul(_) | Kind::Mod(..) => false,
        }
    }

    /// The step from `by*atom + rest` to its two cases: that the first operand of a minimum or maximum is the one taken, and
    /// that the second is. This is how `13*min(s - 1, 12) <= 12*s` follows.
    fn follows_in_both_cases(&self, atom: Expr, by: Expr, rest: Expr, steps: u32) -> bool {
        let (Kind::Min(x, y) | Kind::Max(x, y)) = atom.kind() else { return false };
        [(x, y), (y, x)].into_iter().all(|(taken, other)| {
            let mut facts = self.facts.clone();
            let is_min = matches!(atom.kind(), Kind::Min(..));
            !facts.assume(if is_min { Rel::le(taken, other) } else { Rel::le(other, taken) })
                || self.passes_fuel_to(&facts, |prover| {
                    prover.proves_at_most_zero(prover.simplify(rest + taken * by), steps)
                })
        })
    }
}

/// The `multiple` of which `x + divisor*multiple` has the terms of `guard`, but for terms that the guard has not.
fn lack(x: Expr, guard: Expr, divisor: i64) -> Option<Expr> {
    guard.terms().try_fold(Expr::int(0), |sum, (coefficient, monomial)| {
        let of_x = x.terms().find_map(|(coefficient, other)| (other == monomial).then_some(coefficient));
        let lack = coefficient.checked_sub(of_x.unwrap_or(0))?;
        (lack % divisor == 0).then(|| sum + monomial * (lack / divisor))
    })
}

/// `floordiv(x, b)`; `floordiv(rest + floordiv(y, n), b) => floordiv(n*rest + y, n*b)`, so that quotients of the same index by
/// parts of a divisor are the same expression as those by all of it.
fn quotient(x: Expr, b: Expr) -> Expr {
    let nested = x.terms().find_map(|(c, monomial)| match monomial.kind() {
        Kind::FloorDiv(y, n) if c == 1 => {
            let by = n.as_int().filter(|&n| n > 0)?.checked_mul(b.as_int()?)?;
            Some((y + n * (x - monomial)).floordiv(Expr::int(by)))
        }
        _ => None,
    });
    nested.unwrap_or_else(|| x.floordiv(b))
}
