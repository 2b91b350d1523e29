//! Says which expressions are numbers wherever facts hold: those that divide by nothing that may be 0.

use litz_sym::{Expr, Facts, Kind, Rel};

/// Whether an expression is a number wherever facts hold: it divides by nothing that may be 0.
pub(crate) fn is_defined(expr: Expr, facts: &Facts) -> bool {
    let mut divisors = Vec::new();
    unknown_divisors(expr, &mut divisors);
    divisors.into_iter().all(|divisor| facts.holds(&Rel::le(1, divisor)))
}

/// All divisors inside of an expression that are not positive constants.
pub(crate) fn unknown_divisors(expr: Expr, found: &mut Vec<Expr>) {
    if expr.is_polynomial() {
        return;
    }
    match expr.kind() {
        Kind::Int(_) | Kind::Sym(_) => {}
        Kind::Add(list) | Kind::Mul(list) => list.iter().for_each(|&item| unknown_divisors(item, found)),
        Kind::Min(a, b) | Kind::Max(a, b) => [a, b].into_iter().for_each(|e| unknown_divisors(e, found)),
        Kind::FloorDiv(value, divisor) | Kind::Mod(value, divisor) => {
            unknown_divisors(value, found);
            unknown_divisors(divisor, found);
            found.extend(divisor.as_int().is_none_or(|divisor| divisor < 1).then_some(divisor));
        }
    }
}
