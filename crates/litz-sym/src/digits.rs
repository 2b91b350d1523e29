//! Splits symbols into the digits that quotients and remainders of them are.
//!
//! In `6144*i - 300672*floordiv(i, 49) - 5376*mod(i, 7)` the symbol, its quotient and its remainder vary together, which
//! bounds of single terms do not see. With `i == 49*q + 7*d + r` it is a sum of symbols that vary on their own. Divisors
//! that divide each other are the places of one number; quotients of `i + 18` are of that number's digits too.

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
        for Divided { sym, by } in found {
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
