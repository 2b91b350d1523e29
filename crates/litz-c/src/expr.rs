//! Writes expressions of sizes in C, with its operators where nothing can overflow and as checked calls elsewhere.
//!
//! Values are those of `litz_sym`: quotients are rounded down, remainders have the divisor's sign, a product with a zero is zero.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use litz_sym::{Clause, Cmp, Expr, Facts, Kind, Rel, Sym};

/// The least and the most that something can be.
type Bounds = (i128, i128);

const ANY: Bounds = (i64::MIN as i128, i64::MAX as i128);

/// How tightly an expression binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Sum,
    Product,
    Atom,
}

/// Sizes that have values in some part of the code.
pub(crate) struct Sizes<'a> {
    facts: &'a Facts,
    names: HashMap<Sym, String>,
    /// Where it is noted that a size overflows: an expression of type `bool *`.
    flag: &'static str,
    used: RefCell<HashSet<Sym>>,
}

impl<'a> Sizes<'a> {
    pub(crate) fn new(facts: &'a Facts, flag: &'static str) -> Sizes<'a> {
        Sizes { facts, names: HashMap::new(), flag, used: RefCell::default() }
    }

    /// Says what a symbol is called.
    pub(crate) fn name(&mut self, sym: Sym, name: String) {
        self.names.insert(sym, name);
    }

    /// What a symbol is called, where it has a value.
    pub(crate) fn name_of(&self, sym: Sym) -> Option<&str> {
        self.names.get(&sym).map(String::as_str)
    }

    /// Whether an expression that was written mentions a symbol.
    pub(crate) fn is_used(&self, sym: Sym) -> bool {
        self.used.borrow().contains(&sym)
    }

    /// An expression of C.
    pub(crate) fn write(&self, expr: Expr) -> String {
        self.text(expr).0
    }

    /// Expressions with commas between them.
    pub(crate) fn list(&self, exprs: &[Expr]) -> String {
        exprs.iter().map(|&expr| self.write(expr)).collect::<Vec<_>>().join(", ")
    }

    /// An array of expressions, or `NULL` of none.
    pub(crate) fn array(&self, exprs: &[Expr]) -> String {
        if exprs.is_empty() {
            "NULL".to_owned()
        } else {
            format!("(const int64_t[]){{{}}}", self.list(exprs))
        }
    }

    /// A condition of C: whether one of the relations holds. One whose sides have no values does not.
    pub(crate) fn holds(&self, clause: &Clause) -> String {
        clause.alternatives().iter().map(|rel| self.relation(rel)).collect::<Vec<_>>().join(" || ")
    }

    fn relation(&self, rel: &Rel) -> String {
        let cmp = match rel.cmp {
            Cmp::Eq => "==",
            Cmp::Ne => "!=",
            Cmp::Lt => "<",
            Cmp::Le => "<=",
        };
        let text = format!("{} {cmp} {}", self.write(rel.lhs), self.write(rel.rhs));
        if self.plain(rel.lhs).is_some() && self.plain(rel.rhs).is_some() {
            text
        } else {
            format!("litz_holds({}, {text})", self.flag)
        }
    }

    fn text(&self, expr: Expr) -> (String, Binding) {
        match expr.kind() {
            Kind::Int(value) => (literal(value), if value < 0 { Binding::Sum } else { Binding::Atom }),
            Kind::Sym(sym) => {
                self.used.borrow_mut().insert(sym);
                // Verified programs name no symbol without a value; a compiler of C says which if one does.
                let name = self.names.get(&sym).cloned();
                (name.unwrap_or_else(|| format!("unknown_{}", super::identifier(sym.name()))), Binding::Atom)
            }
            Kind::Min(a, b) => (format!("litz_min({}, {})", self.write(a), self.write(b)), Binding::Atom),
            Kind::Max(a, b) => (format!("litz_max({}, {})", self.write(a), self.write(b)), Binding::Atom),
            Kind::FloorDiv(a, b) if self.is_positive_quotient(a, b) => {
                let [a, b] = [self.inside(a, Binding::Product), self.inside(b, Binding::Atom)];
                (format!("{a} / {b}"), Binding::Product)
            }
            Kind::Mod(a, b) if self.is_positive_quotient(a, b) => {
                let [a, b] = [self.inside(a, Binding::Product), self.inside(b, Binding::Atom)];
                (format!("{a} % {b}"), Binding::Product)
            }
            Kind::FloorDiv(a, b) => (self.checked("litz_floordiv", a, b), Binding::Atom),
            Kind::Mod(a, b) => (self.checked("litz_mod", a, b), Binding::Atom),
            Kind::Add(_) if self.plain(expr).is_some() => (self.sum(expr), Binding::Sum),
            Kind::Add(list) => {
                let (first, rest) = list.split_first().expect("invariant: a sum has summands");
                let add = |sum: String, &item: &Expr| {
                    format!("litz_add({}, {sum}, {})", self.flag, self.write(item))
                };
                (rest.iter().fold(self.write(*first), add), Binding::Atom)
            }
            Kind::Mul(list) if self.plain(expr).is_some() => {
                let factors = list.iter().map(|&factor| match factor.as_int() {
                    // Before the first factor a sign needs no parentheses.
                    Some(value) => literal(value),
                    None => self.inside(factor, Binding::Atom),
                });
                (factors.collect::<Vec<_>>().join(" * "), Binding::Product)
            }
            Kind::Mul(&[a, b]) => (self.checked("litz_mul", a, b), Binding::Atom),
            Kind::Mul(list) => {
                let array = self.array(list);
                (format!("litz_product({}, {}, {array})", self.flag, list.len()), Binding::Atom)
            }
        }
    }

    fn checked(&self, function: &str, a: Expr, b: Expr) -> String {
        format!("{function}({}, {}, {})", self.flag, self.write(a), self.write(b))
    }

    /// A sum that cannot overflow: `2 * a - b + 7`.
    fn sum(&self, expr: Expr) -> String {
        let mut text = String::new();
        let constant = Some(expr.constant()).filter(|&constant| constant != 0);
        let summands = expr.terms().map(|(coefficient, monomial)| (coefficient, Some(monomial)));
        for (coefficient, monomial) in summands.chain(constant.map(|constant| (constant, None))) {
            text.push_str(match (text.is_empty(), coefficient < 0) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            });
            let magnitude = coefficient.unsigned_abs();
            text.push_str(&match monomial {
                Some(monomial) if magnitude == 1 => self.inside(monomial, Binding::Product),
                Some(monomial) => {
                    format!("{} * {}", unsigned(magnitude), self.inside(monomial, Binding::Product))
                }
                None => unsigned(magnitude),
            });
        }
        text
    }

    /// An expression as an operand of an operator, in parentheses where it binds less tightly. A quotient is in parentheses, too, wherever
    /// it is an operand.
    fn inside(&self, expr: Expr, at_least: Binding) -> String {
        let (text, binding) = self.text(expr);
        let is_quotient =
            matches!(expr.kind(), Kind::FloorDiv(..) | Kind::Mod(..)) && binding == Binding::Product;
        if binding < at_least || is_quotient { format!("({text})") } else { text }
    }

    /// Whether C's division of two sizes is the one that is meant.
    fn is_positive_quotient(&self, a: Expr, b: Expr) -> bool {
        self.bounds(a).0 >= 0 && self.bounds(b).0 > 0
    }

    /// Bounds of the value; what is not known is any.
    fn bounds(&self, expr: Expr) -> Bounds {
        self.plain(expr).unwrap_or(ANY)
    }

    /// Bounds of the value, where no step of its computation can overflow; none where one might.
    fn plain(&self, expr: Expr) -> Option<Bounds> {
        match expr.kind() {
            Kind::Int(value) => Some((value.into(), value.into())),
            Kind::Sym(sym) => {
                let range = self.facts.range_of(sym);
                Some((range.lo.into(), range.hi.into()))
            }
            Kind::Add(list) => list.iter().try_fold((0, 0), |sum: Bounds, &item| {
                let item = self.plain(item)?;
                fitting((sum.0 + item.0, sum.1 + item.1))
            }),
            Kind::Mul(list) => list.iter().try_fold((1, 1), |bounds, &factor| {
                let (a, b) = (bounds, self.plain(factor)?);
                let corners = [a.0 * b.0, a.0 * b.1, a.1 * b.0, a.1 * b.1];
                fitting(extent(corners))
            }),
            Kind::FloorDiv(a, b) => {
                let (a, b) = (self.plain(a)?, self.plain(b)?);
                let corners = [(a.0, b.0), (a.0, b.1), (a.1, b.0), (a.1, b.1)];
                // A divisor above 0 divides floors as it divides numbers.
                (b.0 > 0).then(|| extent(corners.map(|(a, b)| a.div_euclid(b))))
            }
            Kind::Mod(a, b) => {
                let (a, b) = (self.plain(a)?, self.plain(b)?);
                (b.0 > 0).then(|| if a.0 >= 0 { (0, (b.1 - 1).min(a.1)) } else { (0, b.1 - 1) })
            }
            Kind::Min(a, b) => {
                let (a, b) = (self.plain(a)?, self.plain(b)?);
                Some((a.0.min(b.0), a.1.min(b.1)))
            }
            Kind::Max(a, b) => {
                let (a, b) = (self.plain(a)?, self.plain(b)?);
                Some((a.0.max(b.0), a.1.max(b.1)))
            }
        }
    }
}

fn extent(corners: [i128; 4]) -> Bounds {
    let least = corners.into_iter().min().expect("invariant: there are four corners");
    let most = corners.into_iter().max().expect("invariant: there are four corners");
    (least, most)
}

/// Bounds that a size can have.
fn fitting(bounds: Bounds) -> Option<Bounds> {
    (ANY.0 < bounds.0 && bounds.1 <= ANY.1).then_some(bounds)
}

/// An integer as a literal of C.
pub(crate) fn literal(value: i64) -> String {
    match i32::try_from(value) {
        // The literal of the least number would be that of a larger one with a sign.
        Ok(value) if value != i32::MIN => value.to_string(),
        _ if value == i64::MIN => "INT64_MIN".to_owned(),
        _ => format!("INT64_C({value})"),
    }
}

/// A magnitude as a literal of C. That of the least number has no literal, and no sum of plain operators has it.
fn unsigned(magnitude: u64) -> String {
    literal(i64::try_from(magnitude).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_sym::{Range, parse, parse_rel};

    fn facts() -> Facts {
        let mut facts = Facts::new();
        facts.declare(Sym::new("s0"), Range::new(1, 1024), None);
        facts.declare(Sym::new("s1"), Range::new(0, i64::MAX), None);
        facts.declare(Sym::new("u0"), Range::ALL, None);
        facts
    }

    fn in_c(text: &str) -> String {
        let facts = facts();
        let mut sizes = Sizes::new(&facts, "bad");
        facts.symbols().for_each(|sym| sizes.name(sym, sym.name().to_owned()));
        sizes.write(parse(text).expect("test text parses"))
    }

    #[test]
    fn what_cannot_overflow_has_operators() {
        assert_eq!(in_c("512*s0 + 64*ceildiv(5*s0, 8) - 3"), "512 * s0 + 64 * ((5 * s0 + 7) / 8) - 3");
        assert_eq!(in_c("-s0"), "-1 * s0");
        assert_eq!(in_c("mod(s0, 7)*s0"), "s0 * (s0 % 7)");
        assert_eq!(in_c("min(s0, 5) - 2*max(s0, 7)*s0"), "-2 * s0 * litz_max(s0, 7) + litz_min(s0, 5)");
        assert_eq!(in_c("floordiv(s0, 4)*3000000000"), "INT64_C(3000000000) * (s0 / 4)");
    }

    #[test]
    fn what_may_overflow_is_checked() {
        assert_eq!(in_c("4*s1"), "litz_mul(bad, 4, s1)");
        assert_eq!(in_c("s1 + 1"), "litz_add(bad, s1, 1)");
        assert_eq!(in_c("s0*s1*u0"), "litz_product(bad, 3, (const int64_t[]){s0, s1, u0})");
        assert_eq!(in_c("floordiv(u0, 4) + s0"), "s0 + litz_floordiv(bad, u0, 4)");
        assert_eq!(in_c("floordiv(u0, s1) + s0"), "litz_add(bad, s0, litz_floordiv(bad, u0, s1))");
        assert_eq!(in_c("mod(s1, s0)"), "s1 % s0");
        assert_eq!(in_c("-9223372036854775807 - 1"), "INT64_MIN");
    }

    #[test]
    fn relations_of_what_overflows_do_not_hold() {
        let facts = facts();
        let mut sizes = Sizes::new(&facts, "&call->bad");
        facts.symbols().for_each(|sym| sizes.name(sym, sym.name().to_owned()));
        let rel = |text| parse_rel(text).expect("test text parses");
        assert_eq!(sizes.holds(&rel("s0 <= 12").into()), "s0 <= 12");
        let clause = Clause::new([rel("s0 == 3"), rel("2*s1 < s0")]);
        assert_eq!(
            sizes.holds(&clause),
            "s0 == 3 || litz_holds(&call->bad, litz_mul(&call->bad, 2, s1) < s0)"
        );
    }
}
