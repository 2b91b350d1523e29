//! Prepares index expressions for many evaluations: symbols become positions in a slice of values.

use litz_sym::{Cmp, Expr, Kind, Rel, Sym, checked_product};

/// An expression over values at known positions. Arithmetic is checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Formula {
    Const(i64),
    Value(usize),
    /// A constant plus values with their coefficients.
    Affine(i64, Box<[(i64, usize)]>),
    Sum(Box<[Formula]>),
    Product(Box<[Formula]>),
    FloorDiv(Box<[Formula; 2]>),
    Mod(Box<[Formula; 2]>),
    Min(Box<[Formula; 2]>),
    Max(Box<[Formula; 2]>),
}

/// A comparison of two formulas.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Relation {
    cmp: Cmp,
    lhs: Formula,
    rhs: Formula,
}

impl Formula {
    /// Resolves symbols by `position`; gives back the first symbol that has none.
    pub(crate) fn new(expr: Expr, position: &dyn Fn(Sym) -> Option<usize>) -> Result<Formula, Sym> {
        let all =
            |list: &[Expr]| list.iter().map(|&item| Formula::new(item, position)).collect::<Result<_, Sym>>();
        let both = |a, b| Ok(Box::new([Formula::new(a, position)?, Formula::new(b, position)?]));
        Ok(match expr.kind() {
            Kind::Int(value) => Formula::Const(value),
            Kind::Sym(sym) => Formula::Value(position(sym).ok_or(sym)?),
            Kind::Add(list) => match affine_terms(expr) {
                Some(terms) => {
                    let resolve = |(coefficient, sym)| Ok((coefficient, position(sym).ok_or(sym)?));
                    Formula::Affine(
                        expr.constant(),
                        terms.into_iter().map(resolve).collect::<Result<_, _>>()?,
                    )
                }
                None => Formula::Sum(all(list)?),
            },
            Kind::Mul(list) => Formula::Product(all(list)?),
            Kind::FloorDiv(a, b) => Formula::FloorDiv(both(a, b)?),
            Kind::Mod(a, b) => Formula::Mod(both(a, b)?),
            Kind::Min(a, b) => Formula::Min(both(a, b)?),
            Kind::Max(a, b) => Formula::Max(both(a, b)?),
        })
    }

    /// How many values it needs, from the first on.
    pub(crate) fn reach(&self) -> usize {
        let of_all = |list: &[Formula]| list.iter().map(Formula::reach).max().unwrap_or(0);
        match self {
            Formula::Const(_) => 0,
            Formula::Value(at) => at + 1,
            Formula::Affine(_, terms) => terms.iter().map(|&(_, at)| at + 1).max().unwrap_or(0),
            Formula::Sum(list) | Formula::Product(list) => of_all(list),
            Formula::FloorDiv(pair) | Formula::Mod(pair) | Formula::Min(pair) | Formula::Max(pair) => {
                of_all(&pair[..])
            }
        }
    }

    /// The value; None on overflow, on division by zero, or where a value is missing.
    pub(crate) fn eval(&self, values: &[i64]) -> Option<i64> {
        match self {
            Formula::Const(value) => Some(*value),
            Formula::Value(at) => values.get(*at).copied(),
            Formula::Affine(constant, terms) => {
                terms.iter().try_fold(*constant, |sum, &(coefficient, at)| {
                    sum.checked_add(coefficient.checked_mul(*values.get(at)?)?)
                })
            }
            Formula::Sum(list) => list.iter().try_fold(0i64, |sum, item| sum.checked_add(item.eval(values)?)),
            Formula::Product(list) => checked_product(list.iter().map(|item| item.eval(values))),
            Formula::FloorDiv(pair) => {
                let [a, b] = eval_both(pair, values)?;
                let is_rounded_up = a.checked_rem(b)? != 0 && (a < 0) != (b < 0);
                Some(a / b - i64::from(is_rounded_up))
            }
            Formula::Mod(pair) => {
                let [a, b] = eval_both(pair, values)?;
                let rest = if b == 0 { return None } else { a.wrapping_rem(b) };
                Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
            }
            Formula::Min(pair) => eval_both(pair, values).map(|[a, b]| a.min(b)),
            Formula::Max(pair) => eval_both(pair, values).map(|[a, b]| a.max(b)),
        }
    }
}

/// The least and the most that something can be.
pub(crate) type Bounds = [i64; 2];

impl Formula {
    /// Bounds of the value, where values have these; None where nothing is known, as on overflow.
    pub(crate) fn bounds(&self, values: &[Bounds]) -> Option<Bounds> {
        let product = |a: Bounds, b: Bounds| -> Option<Bounds> {
            let corners = a.into_iter().flat_map(|a| b.into_iter().map(move |b| a.checked_mul(b)));
            let corners = corners.collect::<Option<Vec<i64>>>()?;
            Some([*corners.iter().min()?, *corners.iter().max()?])
        };
        let sum = |a: Bounds, b: Bounds| Some([a[0].checked_add(b[0])?, a[1].checked_add(b[1])?]);
        let both = |pair: &[Formula; 2]| Some([pair[0].bounds(values)?, pair[1].bounds(values)?]);
        match self {
            Formula::Const(value) => Some([*value; 2]),
            Formula::Value(at) => values.get(*at).copied(),
            Formula::Affine(constant, terms) => {
                terms.iter().try_fold([*constant; 2], |all, &(coefficient, at)| {
                    sum(all, product([coefficient; 2], *values.get(at)?)?)
                })
            }
            Formula::Sum(list) => list.iter().try_fold([0; 2], |all, item| sum(all, item.bounds(values)?)),
            Formula::Product(list) => {
                list.iter().try_fold([1; 2], |all, item| product(all, item.bounds(values)?))
            }
            Formula::FloorDiv(pair) => {
                let [a, b] = both(pair)?;
                let corner = |a: i64, b: i64| a.checked_div_euclid(b);
                let corners =
                    [corner(a[0], b[0])?, corner(a[0], b[1])?, corner(a[1], b[0])?, corner(a[1], b[1])?];
                (b[0] > 0).then_some([*corners.iter().min()?, *corners.iter().max()?])
            }
            Formula::Mod(pair) => {
                let [a, b] = both(pair)?;
                let most = if a[0] >= 0 { a[1].min(b[1] - 1) } else { b[1] - 1 };
                (b[0] > 0).then_some([0, most])
            }
            Formula::Min(pair) => both(pair).map(|[a, b]| [a[0].min(b[0]), a[1].min(b[1])]),
            Formula::Max(pair) => both(pair).map(|[a, b]| [a[0].max(b[0]), a[1].max(b[1])]),
        }
    }
}

/// The terms of a sum, if each is a symbol times a constant.
fn affine_terms(expr: Expr) -> Option<Vec<(i64, Sym)>> {
    expr.terms().map(|(coefficient, monomial)| Some((coefficient, monomial.as_sym()?))).collect()
}

fn eval_both(pair: &[Formula; 2], values: &[i64]) -> Option<[i64; 2]> {
    Some([pair[0].eval(values)?, pair[1].eval(values)?])
}

impl Relation {
    /// As [`Formula::new`].
    pub(crate) fn new(rel: &Rel, position: &dyn Fn(Sym) -> Option<usize>) -> Result<Relation, Sym> {
        Ok(Relation {
            cmp: rel.cmp,
            lhs: Formula::new(rel.lhs, position)?,
            rhs: Formula::new(rel.rhs, position)?,
        })
    }

    /// Both sides; None where one has no value.
    pub(crate) fn sides(&self, values: &[i64]) -> Option<[i64; 2]> {
        Some([self.lhs.eval(values)?, self.rhs.eval(values)?])
    }

    /// Whether it holds; None where a side has no value.
    pub(crate) fn holds(&self, values: &[i64]) -> Option<bool> {
        let [lhs, rhs] = self.sides(values)?;
        Some(match self.cmp {
            Cmp::Eq => lhs == rhs,
            Cmp::Ne => lhs != rhs,
            Cmp::Lt => lhs < rhs,
            Cmp::Le => lhs <= rhs,
        })
    }
}

/// Whether all hold, asked in order up to the first that does not; None where one has no value.
pub(crate) fn all_hold(relations: &[Relation], values: &[i64]) -> Option<bool> {
    for relation in relations {
        if !relation.holds(values)? {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_sym::parse;

    const NAMES: [&str; 3] = ["a", "b", "c"];

    fn position(sym: Sym) -> Option<usize> {
        NAMES.iter().position(|name| *name == sym.name())
    }

    #[test]
    fn agrees_with_expressions() {
        let texts = [
            "7",
            "b",
            "3*a + b - 2",
            "a*b + 4*c",
            "a*a*b",
            "floordiv(a, 3) + mod(b, 4)",
            "floordiv(a, b)",
            "mod(a, b)",
            "ceildiv(a, 8)*8",
            "min(a, max(b, c)) - 1",
            "9223372036854775807*a",
            "9223372036854775807 + a",
        ];
        let numbers = [-7, -1, 0, 1, 2, 13, i64::MIN, i64::MAX];
        for text in texts {
            let expr = parse(text).expect("text is an expression");
            let formula = Formula::new(expr, &position).expect("symbols are known");
            for a in numbers {
                for b in numbers {
                    for c in numbers {
                        let values = [a, b, c];
                        let expected = expr.eval(&|sym| position(sym).map(|at| values[at]));
                        assert_eq!(formula.eval(&values), expected, "{text} with {values:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn values_are_within_their_bounds() {
        let texts = [
            "3*a + b - 2",
            "a*b + 4*c",
            "floordiv(a, 3) + mod(b, 4)",
            "ceildiv(a - 5*b, 8)*8",
            "min(a, max(b, c)) - 1",
        ];
        let ranges: [Bounds; 3] = [[-3, 4], [0, 5], [2, 2]];
        for text in texts {
            let formula =
                Formula::new(parse(text).expect("text is an expression"), &position).expect("known");
            let [least, most] = formula.bounds(&ranges).expect("divisors are positive");
            for a in -3..=4 {
                for b in 0..=5 {
                    let value = formula.eval(&[a, b, 2]).expect("a value");
                    assert!((least..=most).contains(&value), "{text} is {value}, not in {least}..={most}");
                }
            }
        }
        let divided =
            Formula::new(parse("floordiv(a, b)").expect("an expression"), &position).expect("known");
        assert_eq!(divided.bounds(&ranges), None);
        let exact = Formula::new(parse("min(a, 3) + 1").expect("an expression"), &position).expect("known");
        assert_eq!(exact.bounds(&[[1, 9]; 3]), Some([2, 4]));
    }

    #[test]
    fn names_the_unknown_symbol() {
        let expr = parse("2*a + floordiv(z, 2)").expect("text is an expression");
        assert_eq!(Formula::new(expr, &position), Err(Sym::new("z")));
    }

    #[test]
    fn relations_stop_at_the_first_that_fails() {
        let relation =
            |text| Relation::new(&litz_sym::parse_rel(text).expect("a relation"), &position).expect("known");
        let guards = [relation("b != 0"), relation("floordiv(a, b) < 3")];
        assert_eq!(all_hold(&guards, &[7, 0, 0]), Some(false));
        assert_eq!(all_hold(&guards, &[7, 4, 0]), Some(true));
        assert_eq!(all_hold(&guards[1..], &[7, 0, 0]), None);
        assert_eq!(all_hold(&[], &[]), Some(true));
    }
}
