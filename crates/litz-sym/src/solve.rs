//! Evaluates expressions and solves linear equations of them in integers.

use crate::build::{List, divide_term, floor_divide, floor_modulo, sum_of};
use crate::expr::{Expr, Kind, Sym};

impl Expr {
    /// The value under `value`, in checked `i64` arithmetic. None if a symbol has no value, a divisor is zero or an
    /// intermediate result overflows; a product with a factor of zero does not.
    pub fn eval(self, value: &dyn Fn(Sym) -> Option<i64>) -> Option<i64> {
        match self.kind() {
            Kind::Int(constant) => Some(constant),
            Kind::Sym(sym) => value(sym),
            Kind::Add(list) => list.iter().try_fold(0i64, |sum, item| sum.checked_add(item.eval(value)?)),
            Kind::Mul(list) => checked_product(list.iter().map(|item| item.eval(value))),
            Kind::FloorDiv(a, b) => {
                let (a, b) = (a.eval(value)?, b.eval(value)?);
                a.checked_div(b).map(|_| floor_divide(a, b))
            }
            Kind::Mod(a, b) => {
                let (a, b) = (a.eval(value)?, b.eval(value)?);
                (b != 0).then(|| floor_modulo(a, b))
            }
            Kind::Min(a, b) => Some(a.eval(value)?.min(b.eval(value)?)),
            Kind::Max(a, b) => Some(a.eval(value)?.max(b.eval(value)?)),
        }
    }

    /// `(coefficient, rest)` with `self == coefficient*sym + rest` and `sym` in neither; None if `self` is not linear
    /// in `sym`. The coefficient is zero if `sym` does not occur.
    pub fn linear(self, sym: Sym) -> Option<(Expr, Expr)> {
        if !self.has_sym(sym) {
            return Some((Expr::zero(), self));
        }
        let (coefficient, rest) = self.linear_in(Expr::sym(sym));
        (!coefficient.has_sym(sym) && !rest.has_sym(sym)).then_some((coefficient, rest))
    }

    /// `(coefficient, rest)` with `self == coefficient*atom + rest` and `atom` no factor of a term of `rest`. Either
    /// may still hold the atom, the coefficient as a factor for a square, both inside of other atoms.
    pub(crate) fn linear_in(self, atom: Expr) -> (Expr, Expr) {
        let (summands, constant) = self.parts();
        let has_atom = |summand: &Expr| summand.split_coefficient().1.factors().contains(&atom);
        if !summands.iter().any(has_atom) {
            return (Expr::zero(), self);
        }
        let (with, without): (List, List) = summands.iter().copied().partition(has_atom);
        let quotients = with.iter().filter_map(|with| divide_term(with.split_coefficient(), (1, atom)));
        let (coefficient, rest) = (quotients.sum(), sum_of(without, constant));
        (coefficient, rest)
    }
}

/// The product of the factors: zero where one of them is, however large the others are. None if a factor has no value, or
/// if the product overflows.
pub fn checked_product(factors: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    let (mut product, mut is_zero) = (Some(1i64), false);
    for factor in factors {
        let factor = factor?;
        is_zero |= factor == 0;
        product = product.and_then(|product| product.checked_mul(factor));
    }
    if is_zero { Some(0) } else { product }
}

/// The integer `x` for which `expr` with `sym = x` equals `value`, if `expr` is linear in `sym` alone:
/// `2*s39 + 1 == 13` gives 6. None if there is no such integer, or no single one.
pub fn solve_linear(expr: Expr, sym: Sym, value: i64) -> Option<i64> {
    let (coefficient, rest) = expr.linear(sym)?;
    let difference = value.checked_sub(rest.as_int()?)?;
    let coefficient = coefficient.as_int()?;
    (difference.checked_rem(coefficient)? == 0).then(|| difference / coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn read(text: &str) -> Expr {
        parse(text).expect("test text parses")
    }

    #[test]
    fn solves_integers_only() {
        let s = Sym::new("s39");
        assert_eq!(solve_linear(read("2*s39 + 1"), s, 13), Some(6));
        assert_eq!(solve_linear(read("2*s39 + 1"), s, 12), None);
        assert_eq!(solve_linear(read("5 - 3*s39"), s, -1), Some(2));
        assert_eq!(solve_linear(read("s39*s39"), s, 4), None);
        assert_eq!(solve_linear(read("s39 + t"), s, 4), None);
        assert_eq!(solve_linear(read("7"), s, 7), None);
        assert_eq!(solve_linear(read("-s39"), s, i64::MIN), None);
    }

    #[test]
    fn linear_splits_or_refuses() {
        let i = Sym::new("i");
        assert_eq!(
            read("i*s0 + 2*i + floordiv(j, 2)").linear(i),
            Some((read("s0 + 2"), read("floordiv(j, 2)")))
        );
        assert_eq!(read("j").linear(i), Some((Expr::zero(), read("j"))));
        assert_eq!(read("i*i").linear(i), None);
        assert_eq!(read("i + floordiv(i, 2)").linear(i), None);
        assert_eq!(read("i*floordiv(i, 2)").linear(i), None);
    }

    #[test]
    fn eval_follows_python_and_checks() {
        let value = |e: &str, x: i64, y: i64| {
            let name = |sym: Sym| match sym.name() {
                "x" => Some(x),
                "y" => Some(y),
                _ => None,
            };
            read(e).eval(&name)
        };
        for (x, y, quotient, rest) in
            [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (-6, 2, -3, 0)]
        {
            assert_eq!(value("floordiv(x, y)", x, y), Some(quotient));
            assert_eq!(value("mod(x, y)", x, y), Some(rest));
        }
        assert_eq!(value("floordiv(x, y)", 1, 0), None);
        assert_eq!(value("mod(x, y)", 1, 0), None);
        assert_eq!(value("floordiv(x, y)", i64::MIN, -1), None);
        assert_eq!(value("mod(x, y)", i64::MIN, -1), Some(0));
        assert_eq!(value("x + y", i64::MAX, 1), None);
        assert_eq!(value("x*y", i64::MAX, 2), None);
        assert_eq!(value("4611686018427387904*x*y", 3, 0), Some(0));
        assert_eq!(value("x + z", 1, 1), None);
        assert_eq!(value("min(x, y) - max(x, y)", 3, 8), Some(-5));
    }
}
