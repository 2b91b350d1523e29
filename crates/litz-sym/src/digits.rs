//! Splits symbols into the digits that quotients and remainders of them are.
//!
//! In `6144*i - 300672*floordiv(i, 49) - 5376*mod(i, 7)` the symbol, its quotient and its remainder vary together, which
//! bounds of single terms do not see. With `i == 49*q + 7*d + r` it is a sum of symbols that vary on their own. Divisors
//! that divide each other are the places of one number; quotients of `i + 18` are of that number's digits too.
//!
//! Where ranges of digits are enough, [`range_of`] needs no such symbols: threads have what the digits of their numbers say.

use smallvec::SmallVec;

use crate::bounds::Range;
use crate::build::floor_divide;
use crate::expr::{Expr, Kind, Sym};
use crate::facts::Facts;

/// A symbol, and what it is divided by after something is added: `(divisor, added)`.
struct Divided {
    sym: Sym,
    by: Vec<(i64, i64)>,
}

impl Facts {
    /// Takes each symbol of `e` that is divided by a number as the sum of its digits, which get names of the round.
    /// None if there is nothing to split; false if no values are left that the facts allow.
    pub(crate) fn split_digits(&mut self, e: Expr, round: usize) -> Option<bool> {
        if e.is_polynomial() {
            return None;
        }
        let mut is_split = false;
        for (divisor, x) in self.multiples().to_vec() {
            let value = if x.syms().iter().any(|&sym| e.has_sym(sym)) {
                self.multiple(divisor, x, round)
            } else {
                None
            };
            is_split |= value.is_some();
            if value.is_some_and(|(sym, value)| !self.assume_value(sym, value)) {
                return Some(false);
            }
        }
        let e = if is_split { self.simplify(e) } else { e };
        let mut found: Vec<Divided> = Vec::new();
        divided(e, &mut found);
        // Guards may speak of more of their digits.
        let mut guarded: Vec<Divided> = Vec::new();
        self.at_most_zero().iter().for_each(|&guard| divided(guard, &mut guarded));
        for Divided { sym, mut by } in found {
            let more = guarded.iter().filter(|other| other.sym == sym).flat_map(|other| &other.by);
            by.extend(more);
            let value = self.digits(sym, &by, round);
            is_split |= value.is_some();
            if value.is_some_and(|value| !self.assume_value(sym, value)) {
                return Some(false);
            }
        }
        is_split.then_some(true)
    }

    /// A symbol that `x` tells, where `divisor` is known to divide `x`, and what it is in terms of the quotient, which is
    /// declared.
    fn multiple(&mut self, divisor: i64, x: Expr, round: usize) -> Option<(Sym, Expr)> {
        let symbols = x.terms().filter_map(|(c, monomial)| Some((c, monomial.as_sym()?)));
        let told =
            |&(c, sym): &(i64, Sym)| c.abs() == 1 && self.is_symbol_declared(sym) && x.linear(sym).is_some();
        let (c, sym) = symbols.filter(told).max_by_key(|&(_, sym)| (self.level_of(sym), sym))?;
        let range = self.bounds(x);
        let floor = |bound: i64| match bound {
            i64::MIN | i64::MAX => bound,
            finite => floor_divide(finite, divisor),
        };
        let quotient = Sym::new(&format!("{}%{round}", sym.name()));
        self.declare(quotient, Range::new(floor(range.lo), floor(range.hi)), None);
        // x == c*sym + rest == divisor*quotient
        let rest = x - Expr::sym(sym) * c;
        Some((sym, (Expr::sym(quotient) * divisor - rest) * c))
    }

    /// Declares the digits of a symbol; returns what it is in terms of them.
    fn digits(&mut self, sym: Sym, by: &[(i64, i64)], round: usize) -> Option<Expr> {
        if !self.is_symbol_declared(sym) {
            return None;
        }
        // The places, from the greatest, of the symbol with what is added before the greatest division.
        let &(greatest, added) = by.iter().max_by_key(|divided| divided.0)?;
        let mut places = vec![greatest];
        let mut rest: Vec<(i64, i64)> = by.to_vec();
        rest.sort_unstable_by_key(|&(divisor, _)| std::cmp::Reverse(divisor));
        for (divisor, other) in rest {
            let last = places[places.len() - 1];
            if divisor < last && last % divisor == 0 && (added - other) % divisor == 0 {
                places.push(divisor);
            }
        }
        let range = self.range_of(sym);
        let shift = |bound: i64| {
            if bound == i64::MIN || bound == i64::MAX { bound } else { bound.saturating_add(added) }
        };
        let mut range = Range::new(shift(range.lo), shift(range.hi));
        let last = self.extent_of(sym).map(|extent| extent - 1 + added);
        let mut value = Expr::int(-added);
        for (n, place) in places.into_iter().chain([1]).enumerate() {
            let floor = |bound: i64| {
                if bound == i64::MIN || bound == i64::MAX { bound } else { floor_divide(bound, place) }
            };
            let digit = Range::new(floor(range.lo), floor(range.hi));
            if let Some(only) = digit.single() {
                value = value + only * place;
                range = Range::new(range.lo - only * place, range.hi - only * place);
                continue;
            }
            let name = Sym::new(&format!("{}%{round}{n}", sym.name()));
            match last {
                Some(last) if n == 0 && digit.lo >= 0 => self.declare_index(name, last.floordiv(place) + 1),
                _ => self.declare(name, digit, None),
            }
            value = value + Expr::sym(name) * place;
            range = Range::new(0, place - 1);
        }
        Some(value)
    }
}

/// Collects symbols, with a number added or not, that `e` divides by numbers.
fn divided(e: Expr, found: &mut Vec<Divided>) {
    match e.kind() {
        Kind::Int(_) | Kind::Sym(_) => {}
        Kind::Add(list) | Kind::Mul(list) => list.iter().for_each(|&item| divided(item, found)),
        Kind::Min(a, b) | Kind::Max(a, b) => [a, b].into_iter().for_each(|operand| divided(operand, found)),
        Kind::FloorDiv(a, b) | Kind::Mod(a, b) => {
            let added = a.constant();
            let (Some(sym), Some(by)) = ((a - added).as_sym(), b.as_int().filter(|&by| by > 1)) else {
                return [a, b].into_iter().for_each(|operand| divided(operand, found));
            };
            match found.iter_mut().find(|divided| divided.sym == sym) {
                Some(known) => known.by.push((by, added)),
                None => found.push(Divided { sym, by: vec![(by, added)] }),
            }
        }
    }
}

/// Some digits of a symbol, as a term of a sum has them: `mod(floordiv(v, 4), 8)` has those from place 4 up to place 32.
#[derive(Clone, Copy)]
struct Digits {
    sym: Sym,
    /// What the term is multiplied by.
    times: i64,
    /// The lowest place, for which the term has 1.
    from: i64,
    /// The first place above. None where it has all.
    to: Option<i64>,
}

impl Digits {
    /// Those that a term has. None of what is no quotient or remainder of a symbol alone.
    fn of(times: i64, term: Expr) -> Option<Digits> {
        let divided = |e: Expr| match (e.as_sym(), e.as_floordiv()) {
            (Some(sym), _) => Some((sym, 1)),
            (None, Some((inner, by))) => Some((inner.as_sym()?, by.as_int().filter(|&by| by > 0)?)),
            (None, None) => None,
        };
        match term.kind() {
            Kind::Mod(inner, by) => {
                let (sym, from) = divided(inner)?;
                let by = by.as_int().filter(|&by| by > 0)?;
                Some(Digits { sym, times, from, to: Some(from.checked_mul(by)?) })
            }
            _ => divided(term).map(|(sym, from)| Digits { sym, times, from, to: None }),
        }
    }

    /// What a digit at a place is multiplied by.
    fn at(&self, place: i64) -> Option<i64> {
        let has = self.from <= place && self.to.is_none_or(|to| place < to);
        if has { self.times.checked_mul(place / self.from) } else { Some(0) }
    }
}

/// The range of a sum in which symbols are divided, with the digits of each bounded together: none of `48*l - 44*mod(l, 4)` with `l` in 32,
/// which is `192*floordiv(l, 4) + 4*mod(l, 4)`, is below 0 or above 1356. None where no symbol has digits in several terms.
pub(crate) fn range_of(sum: Expr, of: &dyn Fn(Sym) -> Range) -> Option<Range> {
    let (mut digits, mut rest) = (SmallVec::<[Digits; 8]>::new(), Range::exactly(sum.constant()));
    for (times, term) in sum.terms() {
        match Digits::of(times, term) {
            Some(found) => digits.push(found),
            None => rest = rest.add(term.range(of).multiply(Range::exactly(times))),
        }
    }
    digits.sort_unstable_by_key(|term| term.sym);
    let is_shared =
        |of_sym: &[Digits]| of_sym.len() > 1 && of_sym.iter().any(|term| term.from > 1 || term.to.is_some());
    if !digits.chunk_by(|a, b| a.sym == b.sym).any(is_shared) {
        return None;
    }
    let of_syms = digits.chunk_by(|a, b| a.sym == b.sym).map(|of_sym| range_of_places(of_sym, of));
    of_syms.into_iter().try_fold(rest, |all, own| Some(all.add(own?)))
}

/// The range of terms of one symbol. None where it may be below 0, or where one place does not divide the next.
fn range_of_places(terms: &[Digits], of: &dyn Fn(Sym) -> Range) -> Option<Range> {
    let range = of(terms[0].sym);
    let mut places: SmallVec<[i64; 8]> =
        terms.iter().flat_map(|term| [Some(term.from), term.to]).flatten().collect();
    places.push(1);
    places.sort_unstable();
    places.dedup();
    if range.lo < 0 || range.is_empty() || places.windows(2).any(|pair| pair[1] % pair[0] != 0) {
        return None;
    }
    let mut all = Range::exactly(0);
    for (at, &place) in places.iter().enumerate() {
        let most = if range.hi == i64::MAX { i64::MAX } else { range.hi / place };
        let most = places.get(at + 1).map_or(most, |next| most.min(next / place - 1));
        let times = terms.iter().try_fold(0_i64, |sum, term| sum.checked_add(term.at(place)?))?;
        all = all.add(Range::new(0, most).multiply(Range::exactly(times)));
    }
    Some(all)
}
