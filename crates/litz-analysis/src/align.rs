//! Expresses the consumer's axes in terms of the loops that its producer runs in, by equating the coordinates at which they
//! access a shared buffer.

use litz_ir::loops::{Axis, Buf, Loops, Nest};
use litz_sym::{Expr, Facts, Rel, Sym};

use crate::access::{Access, accesses, substitute};

/// Values of the consumer's axes in terms of shared loops, and loops that cannot be shared.
#[derive(Clone, Default)]
pub struct DomainMap {
    /// Axis of the consumer, and its value.
    pub bind: Vec<(Sym, Expr)>,
    /// Variables of shared loops that the consumer's points do not determine.
    pub dropped: Vec<Sym>,
}

/// Loops that statements are to share.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    /// The program.
    pub loops: &'a Loops,
    /// The loops.
    pub axes: &'a [Axis],
    /// What is known of their variables and of the axes of the consumer.
    pub facts: &'a Facts,
}

impl DomainMap {
    /// Whether `pairs` give no axis two values, and the variable `shared` to no other axes than before: a consumer that
    /// reads two rows of a buffer has no one row to share.
    fn agrees(&self, shared: Sym, pairs: &[(Sym, Expr)]) -> bool {
        let is_other = |bound: &(Sym, Expr)| pairs.iter().all(|p| p.0 != bound.0) && !bound.1.has_sym(shared);
        self.bind.iter().all(|bound| pairs.contains(bound) || is_other(bound))
    }

    /// The map without loops that cannot be shared: a loop that determines no axis of the consumer would run it
    /// several times over, and an axis is the consumer's own unless all loops in its value are shared.
    pub fn drop_unshared(self, shared: &[Axis]) -> DomainMap {
        let DomainMap { mut bind, mut dropped } = self;
        loop {
            let before = dropped.len();
            bind.retain(|(_, e)| !dropped.iter().any(|d| e.has_sym(*d)));
            for axis in shared {
                let is_used = bind.iter().any(|(_, e)| e.has_sym(axis.var));
                if !is_used && !axis.extent.is_one() && !dropped.contains(&axis.var) {
                    dropped.push(axis.var);
                }
            }
            if dropped.len() == before {
                return DomainMap { bind, dropped };
            }
        }
    }
}

/// Which accesses of the producer are equated with those of the consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Its stores, with all accesses of the consumer.
    Stores,
    /// Its loads, with stores of the consumer, which overwrites what the producer reads.
    Overwritten,
    /// Its loads, with loads of the consumer, of a buffer that neither stores.
    Loads,
}

impl By {
    /// Whether points that are not told apart by the coordinates depend on each other.
    fn orders(self) -> bool {
        match self {
            By::Stores | By::Overwritten => true,
            By::Loads => false,
        }
    }
}

/// Equates the coordinates of `buf` as the producer accesses it, its axes bound to shared loops, with those at which
/// `consumer` does. Adds to `map` the values that this gives the consumer's axes, and the loops for
/// which it gives none, but for loops that a load does not depend on.
pub fn align_domains(
    shared: Shared<'_>,
    (producer, bound): (&Nest, &[(Sym, Expr)]),
    (buf, by): (Buf, By),
    consumer: &Nest,
    map: &mut DomainMap,
) {
    let Shared { axes, .. } = shared;
    let is_touched = |a: &Access<'_>| a.buf == buf && (by != By::Overwritten || a.store);
    let touched: Vec<&[Expr]> = accesses(consumer).filter(is_touched).map(|a| a.index).collect();
    for access in accesses(producer).filter(|a| a.buf == buf && a.store == (by == By::Stores)) {
        let stored: Vec<Expr> = access.index.iter().map(|&at| substitute(at, bound)).collect();
        for touched in &touched {
            let is_meant = |axis: &&Axis| by.orders() || stored.iter().any(|at| at.has_sym(axis.var));
            for axis in axes.iter().filter(is_meant) {
                let dims: Vec<usize> = (0..stored.len()).filter(|&d| stored[d].has_sym(axis.var)).collect();
                // Points of a loop that load one element are not told apart by it: only a coordinate that is the loop's
                // own variable belongs to one point of it.
                let is_own = |d: usize| by.orders() || stored[d] == Expr::sym(axis.var);
                let aligned = match dims.as_slice() {
                    [d] if is_own(*d) => {
                        touched.get(*d).and_then(|touched| equate(stored[*d], *touched, consumer, shared))
                    }
                    _ => None,
                };
                match aligned {
                    Some(pairs) if map.agrees(axis.var, &pairs) => {
                        for pair in pairs {
                            if !map.bind.contains(&pair) {
                                map.bind.push(pair);
                            }
                        }
                    }
                    _ if axis.extent.is_one() || map.dropped.contains(&axis.var) => {}
                    _ => map.dropped.push(axis.var),
                }
            }
        }
    }
}

/// Axes of `consumer` that make its coordinate `touched` equal the producer's `stored`, over all points.
fn equate(stored: Expr, touched: Expr, consumer: &Nest, shared: Shared<'_>) -> Option<Vec<(Sym, Expr)>> {
    let Shared { axes, facts, .. } = shared;
    let extent_of = |s: Sym| axes.iter().find(|o| o.var == s).map(|o| o.extent);
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
    // As many points as numbers: in `j + k`, which windows load, several points have one number, and a consumer that shares both
    // loops would run as often.
    let points = stored.syms().into_iter().filter_map(extent_of).fold(Expr::one(), |all, n| all * n);
    if !facts.holds(&Rel::eq(points, extent)) {
        return None;
    }
    mixed_radix(touched, &consumer.axes, stored, extent, facts)
}

/// Solves `touched == value`, where 0 <= value < `extent`, for axes that count `touched` as digits: `x`, or `n*x + y`
/// with y < n.
fn mixed_radix(
    touched: Expr,
    axes: &[Axis],
    value: Expr,
    extent: Expr,
    facts: &Facts,
) -> Option<Vec<(Sym, Expr)>> {
    let axis = |s: Sym| axes.iter().find(|a| a.var == s).copied();
    if let Some(a) = touched.as_sym().and_then(axis) {
        return (facts.holds(&Rel::eq(a.extent, extent))).then(|| vec![(a.var, value)]);
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
    (facts.holds(&Rel::eq(unit, extent))).then_some(pairs)
}
