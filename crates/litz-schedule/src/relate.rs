//! A buffer that one nest stores and another touches, to axes of the one in terms of the other.

use crate::access::{accesses, substitute};
use crate::fuse::Member;
use crate::nest;
use litz_ir::loops::{Axis, Buf, Loops, Nest};
use litz_sym::{Expr, Facts, Known, Rel, Sym};

/// Values of the consumer's axes in terms of a group's variables, and variables given up.
#[derive(Clone, Default)]
pub struct Mapping {
    /// Axis of the consumer, and its value.
    pub bind: Vec<(Sym, Expr)>,
    /// Variables of the group that the consumer's points do not determine.
    pub dropped: Vec<Sym>,
}

impl Mapping {
    /// Whether `pairs` give no axis two values, and the variable `shared` to no other axes than before: a consumer that
    /// reads two rows of a buffer has no one row to share.
    fn agrees(&self, shared: Sym, pairs: &[(Sym, Expr)]) -> bool {
        let is_other = |bound: &(Sym, Expr)| pairs.iter().all(|p| p.0 != bound.0) && !bound.1.has_sym(shared);
        self.bind.iter().all(|bound| pairs.contains(bound) || is_other(bound))
    }
}

/// Equates coordinates of `buf` as `member` stores them with those of every load and store of it in `consumer`, for
/// each of the group's variables `outer`; drops those of unknown coordinates. `facts` bound the variables and the axes of
/// the consumer.
pub fn relate(
    loops: &Loops,
    outer: &[Axis],
    member: &Member,
    buf: Buf,
    consumer: &Nest,
    facts: &Facts,
    mapping: &mut Mapping,
) {
    let producer = nest(loops, member.stmt);
    let touched: Vec<Vec<Expr>> =
        accesses(loops, consumer).into_iter().filter(|a| a.buf == buf).map(|a| a.index).collect();
    for store in accesses(loops, producer).iter().filter(|a| a.store && a.buf == buf) {
        let stored: Vec<Expr> = store.index.iter().map(|&at| substitute(at, &member.bind)).collect();
        for touched in &touched {
            for axis in outer {
                let dims: Vec<usize> = (0..stored.len()).filter(|&d| stored[d].has_sym(axis.var)).collect();
                let related = match dims.as_slice() {
                    [d] => touched
                        .get(*d)
                        .and_then(|touched| equate(stored[*d], *touched, consumer, outer, facts)),
                    _ => None,
                };
                match related {
                    Some(pairs) if mapping.agrees(axis.var, &pairs) => {
                        for pair in pairs {
                            if !mapping.bind.contains(&pair) {
                                mapping.bind.push(pair);
                            }
                        }
                    }
                    _ if axis.extent.is_one() || mapping.dropped.contains(&axis.var) => {}
                    _ => mapping.dropped.push(axis.var),
                }
            }
        }
    }
}

/// Axes of `consumer` that make its coordinate `touched` equal the producer's `stored`, over all points.
fn equate(
    stored: Expr,
    touched: Expr,
    consumer: &Nest,
    outer: &[Axis],
    facts: &Facts,
) -> Option<Vec<(Sym, Expr)>> {
    let extent_of = |s: Sym| outer.iter().find(|o| o.var == s).map(|o| o.extent);
    // The producer's own axes are not shared.
    let is_size = |s: Sym| facts.extent_of(s).is_none() && facts.is_symbol_declared(s);
    if stored.syms().into_iter().any(|s| extent_of(s).is_none() && !is_size(s)) {
        return None;
    }
    // The axes below count from 0: so must what they are equal to.
    if !stored.subst(&|s| extent_of(s).map(|_| Expr::zero())).is_zero() {
        return None;
    }
    let extent = facts.simplify(stored.subst(&|s| extent_of(s).map(|n| n - 1)) + 1);
    digits(touched, &consumer.axes, stored, extent, facts)
}

/// Solves `touched == value`, where 0 <= value < `extent`, for axes that count `touched` as digits: `x`, or `n*x + y`
/// with y < n.
fn digits(
    touched: Expr,
    axes: &[Axis],
    value: Expr,
    extent: Expr,
    facts: &Facts,
) -> Option<Vec<(Sym, Expr)>> {
    let axis = |s: Sym| axes.iter().find(|a| a.var == s).copied();
    if let Some(a) = touched.as_sym().and_then(axis) {
        return (facts.known(&Rel::eq(a.extent, extent)) == Known::Yes).then(|| vec![(a.var, value)]);
    }
    let mut terms = Vec::new();
    let mut rest = touched;
    for s in touched.syms() {
        let (coefficient, others) = rest.linear(s)?;
        terms.push((coefficient, axis(s)?));
        rest = others;
    }
    if !rest.is_zero() {
        return None;
    }
    let mut pairs = Vec::new();
    let mut unit = Expr::one();
    while !terms.is_empty() {
        let at = terms.iter().position(|t| t.0 == unit)?;
        let (_, a) = terms.swap_remove(at);
        let digit = value.floordiv(unit);
        pairs.push((a.var, if terms.is_empty() { digit } else { digit.modulo(a.extent) }));
        unit = unit * a.extent;
    }
    (facts.known(&Rel::eq(unit, extent)) == Known::Yes).then_some(pairs)
}
