//! Writes variables in mixed radix notation, by the numbers that expressions have quotients and remainders of them by.

use crate::inside::is_inside;
use litz_ir::loops::Axis;
use litz_sym::{Expr, Facts, Kind, Rel, Sym};

/// The numbers that a variable is divided by, or has a remainder by, in an expression.
pub(super) fn radices_of(e: Expr, found: &mut Vec<(Sym, i64)>) {
    match e.kind() {
        Kind::Int(_) | Kind::Sym(_) => {}
        Kind::Add(operands) | Kind::Mul(operands) => operands.iter().for_each(|&e| radices_of(e, found)),
        Kind::Min(a, b) | Kind::Max(a, b) => [a, b].into_iter().for_each(|e| radices_of(e, found)),
        Kind::FloorDiv(a, b) | Kind::Mod(a, b) => {
            let radix = b.as_int().filter(|radix| *radix > 1);
            let inner = a.as_floordiv().and_then(|(inner, by)| Some((inner.as_sym()?, by.as_int()?)));
            match (a.as_sym(), inner, radix) {
                (Some(var), _, Some(radix)) => found.push((var, radix)),
                (None, Some((var, by)), Some(radix)) => {
                    found.extend(by.checked_mul(radix).map(|radix| (var, radix)));
                    found.push((var, by));
                }
                _ => radices_of(a, found),
            }
        }
    }
}

/// Sums over axes, some of which are written as sums of digits.
pub struct InDigits {
    /// The sums, in terms of the digits.
    pub sums: Vec<Expr>,
    /// The axes that are written as they were, and digits.
    pub axes: Vec<Axis>,
    /// The others, by their digits.
    pub values: Vec<(Sym, Expr)>,
}

/// Sums over `axes`, with those that they have quotients and remainders of in mixed radix notation: `4*floordiv(v, 8) + mod(v, 4)` for `v`
/// in 32 is `4*v2 + v0`. None where no axis is written so.
pub fn in_mixed_radix(sums: &[Expr], axes: &[Axis], facts: &Facts) -> Option<InDigits> {
    let mut radices: Vec<(Sym, i64)> = Vec::new();
    sums.iter().for_each(|sum| radices_of(*sum, &mut radices));
    radices.sort_unstable();
    radices.dedup();
    let (mut found, mut values, mut facts) = (axes.to_vec(), Vec::new(), facts.clone());
    for of_var in radices.chunk_by(|a, b| a.0 == b.0) {
        let Some(at) = found.iter().position(|axis| axis.var == of_var[0].0) else { continue };
        let last = found[at].extent.as_int()? - 1;
        let (digits, value) = mixed_radix(found[at].var, of_var.iter().map(|radix| radix.1), last)?;
        values.push((found.remove(at).var, value));
        digits.iter().for_each(|digit| facts.declare_index(digit.var, digit.extent));
        found.extend(digits);
    }
    if values.is_empty() {
        return None;
    }
    let value = |sym: Sym| values.iter().find(|var| var.0 == sym).map(|var| var.1);
    let sums = sums.iter().map(|sum| substitute_digits(*sum, &value, &facts)).collect();
    Some(InDigits { sums, axes: found, values })
}

/// As [`is_inside`], where that does not know it, with the digits of each variable bounded together: in
/// `8*floordiv(mod(k, 8), 2) + 2*floordiv(k, 8) + mod(k, 2)` for `k` in 16 there is no number above 27, and none twice.
///
/// Schedules are held against it. What is computed by [`is_inside`] to make kernels takes less time, and knows enough for what schedulers
/// write.
pub fn is_inside_by_digits(value: Expr, extent: Expr, facts: &Facts) -> bool {
    is_inside(value, extent, facts) || {
        let axes = value.syms().into_iter().filter_map(|var| {
            let range = facts.bounds(Expr::sym(var));
            (range.lo == 0 && range.hi < i64::MAX).then(|| Axis { var, extent: Expr::int(range.hi + 1) })
        });
        let axes: Vec<Axis> = axes.collect();
        in_mixed_radix(&[value], &axes, facts).is_some_and(|digits| {
            let mut facts = facts.clone();
            digits.axes.iter().for_each(|digit| facts.declare_index(digit.var, digit.extent));
            facts.holds(&Rel::lt(digits.sums[0], extent))
        })
    }
}

/// Whether a value is not known to be 0 or more. Most are sums of numbers that are, for which nothing has to be proved.
pub fn may_be_below(value: Expr, facts: &Facts) -> bool {
    let is_sum = value.constant() >= 0 && value.terms().all(|(factor, _)| factor >= 0);
    // 0 <= x, as -x < 1: of 2*x - mod(x, 2), too.
    !is_sum
        && !facts.proves(&Rel::le(0, value))
        && !is_inside_by_digits(Expr::zero() - value, Expr::one(), facts)
}

/// A sum in which variables have values that are sums of digits, each term in its simplest form: whole sums would mix digits.
pub(super) fn substitute_digits(sum: Expr, value: &impl Fn(Sym) -> Option<Expr>, facts: &Facts) -> Expr {
    let sum = sum.subst(value);
    sum.terms().map(|(n, term)| facts.simplify(term) * n).sum::<Expr>() + sum.constant()
}

/// The digits of a variable that is at most `last` in a mixed radix system, the lowest first, and the variable as their sum. None where one radix does not
/// divide the next.
pub(super) fn mixed_radix(
    var: Sym,
    radices: impl Iterator<Item = i64>,
    last: i64,
) -> Option<(Vec<Axis>, Expr)> {
    let (mut axes, mut sum, mut unit) = (Vec::new(), Expr::zero(), 1);
    let mut push = |radix: i64, unit: i64| {
        let axis = Axis { var: Sym::new(&format!("{var} by {unit}")), extent: Expr::int(radix) };
        sum = sum + Expr::sym(axis.var) * unit;
        axes.push(axis);
    };
    for radix in radices.filter(|radix| *radix <= last) {
        if radix % unit != 0 {
            return None;
        }
        push(radix / unit, unit);
        unit = radix;
    }
    if unit == 1 || last == i64::MAX {
        return None;
    }
    push(last / unit + 1, unit);
    Some((axes, sum))
}
