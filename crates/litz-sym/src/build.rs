//! Constructs canonical expressions, with every rule that holds whatever the symbols are.
//!
//! Rules that need facts about symbols are in `simplify`. Each constructor ends in a form that it maps to itself,
//! which is what makes `parse(print(e)) == e`.

use std::iter;
use std::ops::{Add, Mul, Neg, Sub};

use smallvec::SmallVec;

use crate::expr::{Expr, Kind, Sym, intern_fixed, intern_product, intern_sum};

/// Operands being collected; most sums and products have few.
pub(crate) type List = SmallVec<[Expr; 8]>;

/// Monomials, each with a coefficient.
type Terms = SmallVec<[(Expr, i64); 8]>;

impl From<i64> for Expr {
    fn from(value: i64) -> Expr {
        Expr::int(value)
    }
}

impl From<Sym> for Expr {
    fn from(sym: Sym) -> Expr {
        Expr::sym(sym)
    }
}

impl Default for Expr {
    fn default() -> Expr {
        Expr::zero()
    }
}

macro_rules! binary_operator {
    ($trait:ident, $method:ident, $function:ident) => {
        impl $trait for Expr {
            type Output = Expr;
            fn $method(self, rhs: Expr) -> Expr {
                $function(self, rhs)
            }
        }
        impl $trait<i64> for Expr {
            type Output = Expr;
            fn $method(self, rhs: i64) -> Expr {
                $function(self, Expr::int(rhs))
            }
        }
        impl $trait<Expr> for i64 {
            type Output = Expr;
            fn $method(self, rhs: Expr) -> Expr {
                $function(Expr::int(self), rhs)
            }
        }
    };
}

binary_operator!(Add, add, add);
binary_operator!(Sub, sub, subtract);
binary_operator!(Mul, mul, multiply);

impl Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        scale(self, -1)
    }
}

impl iter::Sum for Expr {
    /// Interns the sum alone, none of those on the way to it.
    fn sum<I: Iterator<Item = Expr>>(items: I) -> Expr {
        let (mut summands, mut constant) = (List::new(), 0i64);
        for item in items {
            let (terms, own) = item.parts();
            summands.extend_from_slice(terms);
            constant = constant.saturating_add(own);
        }
        let split = summands.iter().map(|summand| summand.split_coefficient());
        sum_of_terms(split.map(|(coefficient, monomial)| (monomial, coefficient)).collect(), constant)
    }
}

impl<'a> iter::Sum<&'a Expr> for Expr {
    fn sum<I: Iterator<Item = &'a Expr>>(items: I) -> Expr {
        items.copied().sum()
    }
}

impl iter::Product for Expr {
    fn product<I: Iterator<Item = Expr>>(items: I) -> Expr {
        items.fold(Expr::one(), Mul::mul)
    }
}

impl<'a> iter::Product<&'a Expr> for Expr {
    fn product<I: Iterator<Item = &'a Expr>>(items: I) -> Expr {
        items.copied().product()
    }
}

impl Expr {
    /// `self / rhs` rounded to minus infinity.
    pub fn floordiv(self, rhs: impl Into<Expr>) -> Expr {
        floordiv(self, rhs.into())
    }

    /// `self / rhs` rounded to plus infinity for a positive `rhs`: `floordiv(self + rhs - 1, rhs)`.
    pub fn ceildiv(self, rhs: impl Into<Expr>) -> Expr {
        let rhs = rhs.into();
        floordiv(self + rhs - 1, rhs)
    }

    /// `self - rhs * floordiv(self, rhs)`: the remainder with the sign of `rhs`.
    pub fn modulo(self, rhs: impl Into<Expr>) -> Expr {
        modulo(self, rhs.into())
    }

    /// The smaller of two.
    pub fn min(self, rhs: impl Into<Expr>) -> Expr {
        extremum(Extremum::Min, &[self, rhs.into()])
    }

    /// The larger of two.
    pub fn max(self, rhs: impl Into<Expr>) -> Expr {
        extremum(Extremum::Max, &[self, rhs.into()])
    }

    /// `self` multiplied `exponent` times; 1 for exponent 0.
    pub fn pow(self, exponent: u32) -> Expr {
        (0..exponent).fold(Expr::one(), |power, _| power * self)
    }

    /// Replaces every symbol for which `value` has an answer, and rebuilds. Answers are not substituted again.
    pub fn subst(self, value: &dyn Fn(Sym) -> Option<Expr>) -> Expr {
        match self.kind() {
            Kind::Int(_) => self,
            Kind::Sym(sym) => value(sym).unwrap_or(self),
            _ => self.map_operands(&mut |operand| operand.subst(value)),
        }
    }

    /// Replaces `sym` by `value`.
    pub fn replace(self, sym: Sym, value: Expr) -> Expr {
        if self.mask() & sym.mask() == 0 {
            return self;
        }
        match self.kind() {
            Kind::Sym(found) if found == sym => value,
            Kind::Int(_) | Kind::Sym(_) => self,
            _ => self.map_operands(&mut |operand| operand.replace(sym, value)),
        }
    }

    /// Rebuilds from mapped operands; `self` if none changes.
    pub(crate) fn map_operands(self, map: &mut dyn FnMut(Expr) -> Expr) -> Expr {
        let mut pair = |a: Expr, b: Expr, build: fn(Expr, Expr) -> Expr| {
            let (x, y) = (map(a), map(b));
            if (x, y) == (a, b) { self } else { build(x, y) }
        };
        match self.kind() {
            Kind::Int(_) | Kind::Sym(_) => self,
            Kind::FloorDiv(a, b) => pair(a, b, floordiv),
            Kind::Mod(a, b) => pair(a, b, modulo),
            Kind::Min(a, b) => pair(a, b, |a, b| a.min(b)),
            Kind::Max(a, b) => pair(a, b, |a, b| a.max(b)),
            Kind::Add(list) | Kind::Mul(list) => {
                let mapped: List = list.iter().map(|&item| map(item)).collect();
                match self.kind() {
                    _ if mapped[..] == *list => self,
                    Kind::Add(_) => mapped.iter().sum(),
                    _ => mapped.iter().product(),
                }
            }
        }
    }
}

// Sums and products.

/// A sum from summands in canonical order and a constant.
pub(crate) fn sum_of(mut terms: List, constant: i64) -> Expr {
    if constant != 0 || terms.is_empty() {
        terms.push(Expr::int(constant));
    }
    match terms[..] {
        [only] => only,
        _ => intern_sum(&terms),
    }
}

/// A sum from terms in any order, several of one monomial among them, and a constant.
fn sum_of_terms(mut terms: Terms, constant: i64) -> Expr {
    terms.sort_by_key(|&(monomial, _)| monomial);
    let mut summands = List::new();
    for same in terms.chunk_by(|s, t| s.0 == t.0) {
        let sum = same.iter().fold(0i64, |sum, &(_, coefficient)| sum.saturating_add(coefficient));
        summands.extend((sum != 0).then(|| term_of(sum, same[0].0)));
    }
    sum_of(summands, constant)
}

/// `coefficient * monomial` as one summand; the coefficient is not zero.
fn term_of(coefficient: i64, monomial: Expr) -> Expr {
    if coefficient == 1 {
        return monomial;
    }
    let mut list = List::new();
    list.push(Expr::int(coefficient));
    list.extend_from_slice(monomial.factors());
    intern_product(&list, Some((coefficient, monomial)))
}

fn add(a: Expr, b: Expr) -> Expr {
    if a.is_zero() {
        return b;
    }
    add_multiple(a, b, 1)
}

fn subtract(a: Expr, b: Expr) -> Expr {
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return Expr::int(x.saturating_sub(y));
    }
    add_multiple(a, b, -1)
}

/// `a + by*b`, where `by` is 1 or -1.
fn add_multiple(a: Expr, b: Expr, by: i64) -> Expr {
    if b.is_zero() {
        return a;
    }
    let ((mut x, p), (mut y, q)) = (a.parts(), b.parts());
    let multiple = |(coefficient, monomial): (i64, Expr)| term_of(coefficient.saturating_mul(by), monomial);
    let of_b = |summand: Expr| if by == 1 { summand } else { multiple(summand.split_coefficient()) };
    let mut terms = List::new();
    // A merge of two sorted lists; equal monomials add their coefficients, x - x => 0.
    while let (Some(&s), Some(&t)) = (x.first(), y.first()) {
        let ((m, u), (n, v)) = (s.split_coefficient(), t.split_coefficient());
        if u == v {
            let sum = m.saturating_add(n.saturating_mul(by));
            terms.extend((sum != 0).then(|| term_of(sum, u)));
            (x, y) = (&x[1..], &y[1..]);
        } else if u < v {
            terms.push(s);
            x = &x[1..];
        } else {
            terms.push(of_b(t));
            y = &y[1..];
        }
    }
    terms.extend_from_slice(x);
    terms.extend(y.iter().map(|&t| of_b(t)));
    sum_of(terms, p.saturating_add(q.saturating_mul(by)))
}

fn scale(a: Expr, by: i64) -> Expr {
    map_coefficients(a, |coefficient| coefficient.saturating_mul(by))
}

/// Replaces every coefficient, the constant included; terms whose coefficient becomes zero vanish.
fn map_coefficients(a: Expr, map: impl Fn(i64) -> i64) -> Expr {
    let (terms, constant) = a.parts();
    let mapped = terms.iter().filter_map(|term| {
        let (coefficient, monomial) = term.split_coefficient();
        let coefficient = map(coefficient);
        (coefficient != 0).then(|| term_of(coefficient, monomial))
    });
    sum_of(mapped.collect(), map(constant))
}

fn multiply(a: Expr, b: Expr) -> Expr {
    if let Some(by) = a.as_int() {
        return if by == 1 { b } else { scale(b, by) };
    }
    if let Some(by) = b.as_int() {
        return if by == 1 { a } else { scale(a, by) };
    }
    // (p + q) * (r + s) => p*r + p*s + q*r + q*s
    let mut products = Terms::new();
    let ((x, p), (y, q)) = (a.parts(), b.parts());
    for (m, u) in x.iter().map(|term| term.split_coefficient()) {
        for (n, v) in y.iter().map(|term| term.split_coefficient()) {
            products.push((multiply_monomials(u, v), m.saturating_mul(n)));
        }
        products.push((u, m.saturating_mul(q)));
    }
    products.extend(y.iter().map(|term| term.split_coefficient()).map(|(n, v)| (v, n.saturating_mul(p))));
    sum_of_terms(products, p.saturating_mul(q))
}

fn multiply_monomials(a: Expr, b: Expr) -> Expr {
    let mut list = List::from_slice(a.factors());
    list.extend_from_slice(b.factors());
    list.sort_unstable();
    monomial_of(&list)
}

fn monomial_of(factors: &[Expr]) -> Expr {
    match factors {
        [] => Expr::one(),
        [only] => *only,
        _ => intern_product(factors, None),
    }
}

// Exact division, for the rules of floordiv and mod.

/// All summands as (coefficient, monomial), the constant last with monomial 1.
pub(crate) fn all_terms(e: Expr) -> impl Iterator<Item = (i64, Expr)> {
    let constant = e.constant();
    e.terms().chain((constant != 0).then(|| (constant, Expr::one())))
}

fn count_terms(e: Expr) -> usize {
    e.terms().len() + usize::from(e.constant() != 0)
}

/// `a / b` for single terms, if exact.
pub(crate) fn divide_term((m, u): (i64, Expr), (n, v): (i64, Expr)) -> Option<Expr> {
    if m.checked_rem(n) != Some(0) {
        return None;
    }
    let mut left = List::from_slice(u.factors());
    for factor in v.factors() {
        let at = left.iter().position(|candidate| candidate == factor)?;
        left.remove(at);
    }
    Some(scale(monomial_of(&left), m / n))
}

/// `a / b` if the term `b` divides every term of `a`.
pub(crate) fn divide_by_term(a: Expr, b: (i64, Expr)) -> Option<Expr> {
    all_terms(a).map(|term| divide_term(term, b)).sum()
}

/// Quotient and remainder with `a == quotient*b + rest`: takes a multiple of `b` out of `a` as long as that leaves
/// fewer terms.
pub(crate) fn divide(a: Expr, b: Expr) -> (Expr, Expr) {
    let (mut quotient, mut rest) = (Expr::zero(), a);
    // The term of highest degree is the one that terms of a multiple are recognised by.
    let higher = |best: (i64, Expr), term: (i64, Expr)| {
        if term.1.factors().len() > best.1.factors().len() { term } else { best }
    };
    let Some(pivot) = all_terms(b).reduce(higher) else { return (quotient, rest) };
    loop {
        let step = all_terms(rest).find_map(|term| {
            let part = divide_term(term, pivot)?;
            let left = subtract(rest, multiply(part, b));
            (count_terms(left) < count_terms(rest)).then_some((part, left))
        });
        let Some((part, left)) = step else { return (quotient, rest) };
        (quotient, rest) = (add(quotient, part), left);
    }
}

/// Greatest common divisor, not negative; `gcd(0, b) == |b|`. Saturates for `i64::MIN`.
pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.saturating_abs(), b.saturating_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Greatest common divisor of two terms, with a positive coefficient.
pub(crate) fn gcd_terms((m, u): (i64, Expr), (n, v): (i64, Expr)) -> (i64, Expr) {
    let mut left = List::from_slice(v.factors());
    let common: List = u
        .factors()
        .iter()
        .copied()
        .filter(|factor| {
            let at = left.iter().position(|candidate| candidate == factor);
            at.is_some_and(|at| left.remove(at) == *factor)
        })
        .collect();
    (gcd(m, n), monomial_of(&common))
}

/// The greatest term that divides every term of `e`; None for zero.
pub(crate) fn content(e: Expr) -> Option<(i64, Expr)> {
    all_terms(e).reduce(gcd_terms)
}

/// What `e <= 0` says of the terms of `e` without their common factor: `g*x + k <= 0` says that `x + ceil(k/g) <= 0`.
pub(crate) fn without_common_factor(e: Expr) -> Expr {
    let factor = e.terms().fold(0, |common, (coefficient, _)| gcd(common, coefficient));
    let is_exact = e.constant() != i64::MIN && e.terms().all(|(coefficient, _)| coefficient != i64::MIN);
    if factor <= 1 || !is_exact {
        return e;
    }
    let terms: Expr = e.terms().map(|(coefficient, monomial)| monomial * (coefficient / factor)).sum();
    terms - floor_divide(-e.constant(), factor)
}

fn is_negative(e: Expr) -> bool {
    all_terms(e).next().is_some_and(|(coefficient, _)| coefficient < 0)
}

/// Whether every coefficient times `by` stays within `i64`.
pub(crate) fn scales_exactly(e: Expr, by: i64) -> bool {
    all_terms(e).all(|(coefficient, _)| coefficient.checked_mul(by).is_some())
}

/// `a*b + c`, where no coefficient saturates on the way: a sum of a saturated number and another is no longer told from
/// an exact one.
pub(crate) fn multiply_add_exactly(a: Expr, b: Expr, c: Expr) -> Option<Expr> {
    let magnitude =
        |e: Expr| all_terms(e).map(|(coefficient, _)| u128::from(coefficient.unsigned_abs())).sum::<u128>();
    let magnitude = magnitude(a).checked_mul(magnitude(b))?.checked_add(magnitude(c))?;
    (magnitude <= i64::MAX as u128).then(|| a * b + c)
}

// floordiv and mod. Saturated negation of i64::MIN would change the value, so such operands are left as they are.

fn floordiv(a: Expr, b: Expr) -> Expr {
    if b.is_zero() {
        return intern_fixed(Kind::FloorDiv(a, b));
    }
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return Expr::int(floor_divide(x, y));
    }
    // floordiv(a, -b) => floordiv(-a, b)
    if is_negative(b) && scales_exactly(a, -1) && scales_exactly(b, -1) {
        return floordiv(-a, -b);
    }
    match b.as_int() {
        Some(divisor) if divisor > 0 => floordiv_constant(a, divisor),
        Some(_) => intern_fixed(Kind::FloorDiv(a, b)),
        None => floordiv_symbolic(a, b),
    }
}

/// `floordiv` of a positive constant.
fn floordiv_constant(a: Expr, divisor: i64) -> Expr {
    // floordiv(b*q + r, b) => q + floordiv(r, b)
    let (quotient, rest) = split_by_constant(a, divisor);
    if rest.as_int().is_some() {
        return quotient;
    }
    // floordiv(g*x + c, g*d) => floordiv(x + floordiv(c, g), d)
    let common = rest.terms().fold(divisor, |common, (coefficient, _)| gcd(common, coefficient));
    if common > 1 {
        let reduced = map_coefficients(rest, |coefficient| coefficient.div_euclid(common));
        return quotient + floordiv(reduced, Expr::int(divisor / common));
    }
    let single = (rest.terms().len() == 1).then(|| rest.terms().next()).flatten();
    match single.map(|(coefficient, atom)| (coefficient, atom.kind())) {
        // floordiv(floordiv(x, y) + c, b) => floordiv(x + c*y, y*b) for positive b
        Some((1, Kind::FloorDiv(x, y)))
            if scales_exactly(y, divisor) && scales_exactly(y, rest.constant()) =>
        {
            quotient + floordiv(x + y * rest.constant(), y * divisor)
        }
        // floordiv(mod(x, b*d), b) => mod(floordiv(x, b), d)
        Some((1, Kind::Mod(x, y)))
            if rest.constant() == 0 && y.as_int().is_some_and(|y| y > 0 && y % divisor == 0) =>
        {
            quotient + modulo(floordiv_constant(x, divisor), floordiv_constant(y, divisor))
        }
        _ => quotient + intern_fixed(Kind::FloorDiv(rest, Expr::int(divisor))),
    }
}

fn floordiv_symbolic(a: Expr, b: Expr) -> Expr {
    // floordiv(b*q + r, b) => q + floordiv(r, b)
    let (quotient, rest) = divide(a, b);
    if rest.is_zero() {
        return quotient;
    }
    // floordiv(g*x, g*y) => floordiv(x, y)
    if let Some((x, _, y)) = cancel_common(rest, b) {
        return quotient + floordiv(x, y);
    }
    quotient + intern_fixed(Kind::FloorDiv(rest, b))
}

fn modulo(a: Expr, b: Expr) -> Expr {
    if b.is_zero() {
        return intern_fixed(Kind::Mod(a, b));
    }
    if let (Some(x), Some(y)) = (a.as_int(), b.as_int()) {
        return Expr::int(floor_modulo(x, y));
    }
    // mod(a, -b) => -mod(-a, b)
    if is_negative(b) && scales_exactly(a, -1) && scales_exactly(b, -1) {
        return -modulo(-a, -b);
    }
    if let Some(inner) = drop_inner_mod(a, b) {
        return modulo(inner, b);
    }
    match b.as_int() {
        Some(divisor) if divisor > 0 => modulo_constant(a, divisor),
        Some(_) => intern_fixed(Kind::Mod(a, b)),
        None => modulo_symbolic(a, b),
    }
}

/// `mod` of a positive constant.
fn modulo_constant(a: Expr, divisor: i64) -> Expr {
    // mod(b*q + r, b) => mod(r, b)
    let (_, rest) = split_by_constant(a, divisor);
    if rest.as_int().is_some() {
        return rest;
    }
    // What is smaller may have products that fit now.
    if rest != a {
        return modulo(rest, Expr::int(divisor));
    }
    // mod(g*x + c, g*d) => g*mod(x + floordiv(c, g), d) + mod(c, g)
    let common = rest.terms().fold(divisor, |common, (coefficient, _)| gcd(common, coefficient));
    if common > 1 {
        let reduced = map_coefficients(rest, |coefficient| coefficient.div_euclid(common));
        let constant = rest.constant().rem_euclid(common);
        return modulo(reduced, Expr::int(divisor / common)) * common + constant;
    }
    match rest.kind() {
        // mod(mod(x, c), b) => mod(x, c) for 0 < c <= b
        Kind::Mod(_, inner) if inner.as_int().is_some_and(|inner| 0 < inner && inner <= divisor) => rest,
        _ => intern_fixed(Kind::Mod(rest, Expr::int(divisor))),
    }
}

fn modulo_symbolic(a: Expr, b: Expr) -> Expr {
    // mod(b*q + r, b) => mod(r, b)
    let (_, rest) = divide(a, b);
    if rest.is_zero() {
        return rest;
    }
    // mod(g*x, g*y) => g*mod(x, y)
    if let Some((x, common, y)) = cancel_common(rest, b) {
        return common * modulo(x, y);
    }
    match rest.kind() {
        // mod(mod(x, b), b) => mod(x, b)
        Kind::Mod(_, inner) if inner == b => rest,
        _ => intern_fixed(Kind::Mod(rest, b)),
    }
}

/// mod(p*mod(x, c) + r, b) => mod(p*x + r, b) where b divides p*c, because mod(x, c) differs from x by a multiple of c.
fn drop_inner_mod(a: Expr, b: Expr) -> Option<Expr> {
    if a.is_polynomial() {
        return None;
    }
    let is_multiple = |e: Expr| match b.as_int() {
        Some(divisor) => all_terms(e).all(|(coefficient, _)| coefficient.wrapping_rem(divisor) == 0),
        None => divide(e, b).1.is_zero(),
    };
    a.terms().find_map(|(coefficient, monomial)| {
        monomial.factors().iter().find_map(|&factor| {
            let Kind::Mod(x, c) = factor.kind() else { return None };
            let others = divide_term((coefficient, monomial), (1, factor))?;
            is_multiple(others * c).then(|| a + others * (x - factor))
        })
    })
}

/// Quotient and rest of every coefficient: terms truncate, so that `-i` stays `-i`; the constant's rest is in
/// `0..divisor`.
fn split_by_constant(a: Expr, divisor: i64) -> (Expr, Expr) {
    let constant = a.constant();
    let quotient = map_coefficients(a, |coefficient| coefficient / divisor);
    let rest = map_coefficients(a, |coefficient| coefficient % divisor);
    let fix = i64::from(constant % divisor < 0);
    (quotient - fix, rest + fix * divisor)
}

/// `a` and `b` divided by the greatest term that divides both, with that term in the middle; None if it is 1.
fn cancel_common(a: Expr, b: Expr) -> Option<(Expr, Expr, Expr)> {
    let common = gcd_terms(content(a)?, content(b)?);
    if common == (1, Expr::one()) {
        return None;
    }
    Some((divide_by_term(a, common)?, scale(common.1, common.0), divide_by_term(b, common)?))
}

/// Quotient rounded to minus infinity, saturating; `divisor` is not zero.
pub(crate) fn floor_divide(value: i64, divisor: i64) -> i64 {
    let quotient = value.saturating_div(divisor);
    quotient - i64::from(floor_modulo(value, divisor) != 0 && (value < 0) != (divisor < 0))
}

/// Remainder with the sign of the divisor; `divisor` is not zero.
pub(crate) fn floor_modulo(value: i64, divisor: i64) -> i64 {
    let rest = value.wrapping_rem(divisor);
    if rest != 0 && (rest < 0) != (divisor < 0) { rest + divisor } else { rest }
}

// min and max.

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extremum {
    Min,
    Max,
}

impl Extremum {
    fn node(self, a: Expr, b: Expr) -> Expr {
        intern_fixed(match self {
            Extremum::Min => Kind::Min(a, b),
            Extremum::Max => Kind::Max(a, b),
        })
    }

    fn other(self) -> Extremum {
        match self {
            Extremum::Min => Extremum::Max,
            Extremum::Max => Extremum::Min,
        }
    }

    /// The constant that never is the answer unless all operands are equal to it.
    fn identity(self) -> i64 {
        match self {
            Extremum::Min => i64::MAX,
            Extremum::Max => i64::MIN,
        }
    }

    fn of(self, a: i64, b: i64) -> i64 {
        match self {
            Extremum::Min => a.min(b),
            Extremum::Max => a.max(b),
        }
    }

    /// The operands of nested minima (maxima): `min(a, min(b, c))` has a, b and c.
    pub(crate) fn operands(self, e: Expr) -> Vec<Expr> {
        let mut found = Vec::new();
        self.collect(e, &mut found);
        found
    }

    fn collect(self, e: Expr, found: &mut Vec<Expr>) {
        match (self, e.kind()) {
            (Extremum::Min, Kind::Min(a, b)) | (Extremum::Max, Kind::Max(a, b)) => {
                self.collect(a, found);
                self.collect(b, found);
            }
            _ => found.push(e),
        }
    }
}

/// The minimum (maximum) of one or more expressions.
pub(crate) fn extremum(which: Extremum, of: &[Expr]) -> Expr {
    // min(min(a, b), c) => min(a, min(b, c))
    let mut operands = Vec::with_capacity(of.len());
    of.iter().for_each(|&e| which.collect(e, &mut operands));
    // min(x, i64::MAX) => x: slices write "to the end" this way
    if operands.iter().any(|e| e.as_int().is_none()) {
        operands.retain(|e| e.as_int() != Some(which.identity()));
    }
    // min(x + 1, x + 3) => x + 1, which includes min(x, x) => x and min(1, 3) => 1
    let mut kept: Vec<(Expr, i64)> = Vec::with_capacity(operands.len());
    for operand in operands {
        let constant = operand.constant();
        let base = operand - constant;
        match kept.iter_mut().find(|(known, _)| *known == base) {
            Some((_, known)) => *known = which.of(*known, constant),
            None => kept.push((base, constant)),
        }
    }
    let mut operands: Vec<Expr> = kept.into_iter().map(|(base, constant)| base + constant).collect();
    // min(x, max(x, y)) => x
    let all = operands.clone();
    operands.retain(|&e| !which.other().operands(e).iter().any(|inner| *inner != e && all.contains(inner)));
    operands.sort_by_key(|e| (e.as_int().is_some(), *e));
    let last = operands.pop().expect("invariant: the absorbed operand leaves the operand that absorbs it");
    operands.into_iter().rev().fold(last, |rest, e| which.node(e, rest))
}
