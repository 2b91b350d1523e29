//! Compares the ranges of a buffer that two nests access, by the first and last value of each coordinate.

use litz_analysis::access::{Stride, stride, substitute};
use litz_ir::loops::Nest;
use litz_sym::{Expr, Facts, Range, Rel};

/// Whether two accesses of a buffer never touch one element: along some dimension all coordinates of one are known to be
/// smaller than those of the other.
pub fn are_apart(facts: &Facts, one: (&Nest, &[Expr]), other: (&Nest, &[Expr])) -> bool {
    let is_before = |a: Option<(Expr, Expr)>, b: Option<(Expr, Expr)>| match (a, b) {
        (Some((_, last)), Some((first, _))) => facts.holds(&Rel::lt(last, first)),
        _ => false,
    };
    one.1.iter().zip(other.1).any(|(&here, &there)| {
        let (here, there) = (ends(facts, one.0, here), ends(facts, other.0, there));
        is_before(here, there) || is_before(there, here)
    })
}

/// The least and the greatest value of a coordinate: one that is a constant, or an axis and a constant. Of others bounds that are numbers.
fn ends(facts: &Facts, nest: &Nest, at: Expr) -> Option<(Expr, Expr)> {
    let axes: Vec<_> = nest.indices().filter(|index| at.has_sym(index.var)).collect();
    match axes.as_slice() {
        [] => Some((at, at)),
        [axis] if stride(at, axis.var) == Stride::Unit => {
            let first = facts.simplify(substitute(at, &[(axis.var, Expr::zero())]));
            Some((first, facts.simplify(first + axis.extent - 1)))
        }
        _ => {
            let Range { lo, hi } = nest.facts(facts).bounds(at);
            (lo > i64::MIN && hi < i64::MAX).then(|| (Expr::int(lo), Expr::int(hi)))
        }
    }
}
