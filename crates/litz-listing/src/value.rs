//! Writes expressions of sizes, conditions, literals and strings in Python.
//!
//! `floordiv` and `mod` are Python's `//` and `%`: both round down, and a remainder has the sign of the divisor. Machines have `m.min` and
//! `m.max`, as those of Python ask whether one size is less than another, which a size that a graph is built for does not say.

use std::fmt::{self, Display, Formatter};

use litz_ir::scalar::Scalar;
use litz_sym::{Clause, Expr, Kind, Rel};

use crate::names::Names;

/// An expression where any may stand.
pub(crate) struct Value<'a>(pub(crate) &'a Names, pub(crate) Expr);

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Value(names, expr) = *self;
        let Kind::Add(_) = expr.kind() else { return Product(names, expr).fmt(f) };
        let constant = Some((expr.constant(), Expr::one())).filter(|&(constant, _)| constant != 0);
        expr.terms().chain(constant).enumerate().try_for_each(|(at, (coefficient, monomial))| {
            // The opposite of the smallest integer is none.
            let is_less = at > 0 && coefficient < 0 && coefficient != i64::MIN;
            let sign = if is_less {
                " - "
            } else if at > 0 {
                " + "
            } else {
                ""
            };
            let shown = if is_less { -coefficient } else { coefficient };
            write!(f, "{sign}{}", Product(names, monomial * shown))
        })
    }
}

/// An expression that is no sum.
struct Product<'a>(&'a Names, Expr);

impl Display for Product<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Product(names, expr) = *self;
        match expr.kind() {
            Kind::Mul(list) => list.iter().enumerate().try_for_each(|(at, &item)| {
                write!(f, "{}{}", if at > 0 { "*" } else { "" }, Factor(names, item))
            }),
            Kind::Int(_)
            | Kind::Sym(_)
            | Kind::Add(_)
            | Kind::FloorDiv(..)
            | Kind::Mod(..)
            | Kind::Min(..)
            | Kind::Max(..) => Factor(names, expr).fmt(f),
        }
    }
}

/// An expression as a factor: in parentheses where it needs some.
struct Factor<'a>(&'a Names, Expr);

impl Display for Factor<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Factor(names, expr) = *self;
        let (value, factor) = (|expr| Value(names, expr), |expr| Factor(names, expr));
        match expr.kind() {
            Kind::Int(value) => write!(f, "{value}"),
            Kind::Sym(sym) => f.write_str(names.symbol(sym)),
            Kind::Add(_) | Kind::Mul(_) => write!(f, "({})", value(expr)),
            Kind::FloorDiv(a, b) => write!(f, "({} // {})", factor(a), factor(b)),
            Kind::Mod(a, b) => write!(f, "({} % {})", factor(a), factor(b)),
            Kind::Min(a, b) => write!(f, "m.min({}, {})", value(a), value(b)),
            Kind::Max(a, b) => write!(f, "m.max({}, {})", value(a), value(b)),
        }
    }
}

/// Expressions in brackets.
pub(crate) struct Values<'a>(pub(crate) &'a Names, pub(crate) &'a [Expr]);

impl Display for Values<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(f, self.1, |f, &expr| write!(f, "{}", Value(self.0, expr)))
    }
}

/// The alternatives of a clause, of which one has to hold.
pub(crate) struct Condition<'a>(pub(crate) &'a Names, pub(crate) &'a Clause);

impl Display for Condition<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(f, self.1.alternatives(), |f, rel| {
            let Rel { cmp, lhs, rhs } = *rel;
            write!(f, "{} {cmp} {}", Value(self.0, lhs), Value(self.0, rhs))
        })
    }
}

/// Items in brackets.
pub(crate) fn list<T>(
    f: &mut impl fmt::Write,
    items: &[T],
    item: impl Fn(&mut dyn fmt::Write, &T) -> fmt::Result,
) -> fmt::Result {
    f.write_char('[')?;
    for (at, one) in items.iter().enumerate() {
        f.write_str(if at > 0 { ", " } else { "" })?;
        item(f, one)?;
    }
    f.write_char(']')
}

/// A literal.
pub(crate) struct Literal(pub(crate) Scalar);

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Scalar::Bool(true) => f.write_str("True"),
            Scalar::Bool(false) => f.write_str("False"),
            Scalar::Int(value) => write!(f, "{value}"),
            Scalar::Float(value) if value.is_finite() => write!(f, "{value:?}"),
            Scalar::Float(value) => write!(f, "float(\"{}\")", Scalar::Float(value)),
        }
    }
}

/// A string.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}
