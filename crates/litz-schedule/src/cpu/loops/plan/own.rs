//! Orders the loops that a member has of its own.

use super::is_short;
use crate::axes::{Merged, merge_axes, order_axes};
use crate::group::Member;
use litz_analysis::access::{Stride, bound_places, side_exprs, stride};
use litz_ir::loops::{Axis, Loops, Nest};
use litz_sym::{Expr, Facts, Sym};

/// Loops of a member's own, outermost first: the one with unit steps goes innermost, whether it is reduced or not; one that
/// is too short for vectors only where no other suits them.
/// `outer` gives the values of the axes that the shared points determine.
/// Of those along which points may store to one element, `colliding`, the order is that of the nest.
pub(super) fn own_loops(
    loops: &Loops,
    n: &Nest,
    (member, outer): (&Member, &[(Sym, Expr)]),
    colliding: &[Sym],
    lanes: u32,
    facts: &Facts,
) -> Vec<Merged> {
    let indices: Vec<Expr> = bound_places(loops, n, outer, facts).into_iter().map(|b| b.1).collect();
    let others = side_exprs(n);
    let is_scan = n.scanned().next().is_some();
    let own: Vec<Axis> = n.axes.iter().filter(|axis| member.is_own(axis)).copied().collect();
    // Points whose stores may meet keep their order.
    if own.iter().chain(&n.reduced).any(|a| colliding.contains(&a.var)) {
        let name = |i: usize| Sym::new(&format!("i{i}"));
        return own.iter().chain(&n.reduced).enumerate().map(|(i, a)| Merged::alone(*a, name(i))).collect();
    }
    let mut loops = Vec::new();
    for (class, mut axes) in [("i", own), ("r", n.reduced.clone())] {
        order_axes(&mut axes, &indices, facts);
        let name = |i: usize| Sym::new(&format!("{class}{i}"));
        if is_scan {
            loops.extend(axes.iter().enumerate().map(|(i, a)| Merged::alone(*a, name(i))));
        } else {
            loops.extend(merge_axes(&axes, &indices, &others, &name));
        }
    }
    let count = |m: &Merged, is: fn(&Stride) -> bool| {
        let innermost = m.parts.first().map(|p| p.0);
        innermost.map_or(0, |s| indices.iter().filter(|e| is(&stride(**e, s))).count())
    };
    let near = |m: &Merged| count(m, |s| *s == Stride::Unit);
    let far = |m: &Merged| count(m, |s| matches!(s, Stride::Elements(_)));
    let is_short = |m: &Merged| is_short(m.axis, lanes, facts);
    let has_long = !is_scan && loops.iter().any(|m| !is_short(m) && near(m) >= far(m));
    loops.sort_by_key(|m| (!(has_long && is_short(m)), near(m)));
    loops
}

/// Loops under the names of a run, and the values of all axes of a nest in them.
pub(super) fn named_loops(
    own: &[Merged],
    outer: &[(Sym, Expr)],
    name: impl Fn(usize) -> Sym,
) -> (Vec<Axis>, Vec<(Sym, Expr)>) {
    let mut axes = Vec::new();
    let mut bind = outer.to_vec();
    for (i, m) in own.iter().enumerate() {
        let var = name(i);
        axes.push(Axis { var, extent: m.axis.extent });
        bind.extend(m.parts.iter().map(|(s, e)| (*s, e.replace(m.axis.var, Expr::sym(var)))));
    }
    (axes, bind)
}
