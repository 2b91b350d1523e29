//! Orders axes by their strides in memory, and merges neighbours that every access walks as one axis.

use litz_analysis::access::{Stride, stride};
use litz_ir::loops::{Axis, Loops, Stmt};
use litz_sym::{Expr, Facts, Kind, Sym};
use std::borrow::Cow;
use std::cmp::Reverse;

/// A variable of that name, or of one like it that is not taken.
pub fn fresh(name: &str, is_taken: impl Fn(Sym) -> bool) -> Sym {
    let mut name = name.to_owned();
    while is_taken(Sym::new(&name)) {
        name.push('_');
    }
    Sym::new(&name)
}

/// A variable whose name is no size of the program.
pub fn variable(loops: &Loops, name: &str) -> Sym {
    fresh(name, |s| loops.facts.is_symbol_declared(s))
}

/// The program with the extents of all axes in their simplest form, so that whether one is 1, or a number, can be seen.
pub fn simplified(mut loops: Cow<'_, Loops>) -> Cow<'_, Loops> {
    let is_simple = |loops: &Loops, axis: &Axis| {
        axis.extent.as_int().is_some() || loops.facts.simplify(axis.extent) == axis.extent
    };
    let mut nests = loops.stmts.iter().flat_map(Stmt::nests);
    if nests.all(|nest| nest.all_axes().all(|axis| is_simple(&loops, axis))) {
        return loops;
    }
    let Loops { facts, stmts, .. } = loops.to_mut();
    for stmt in stmts {
        if let Stmt::Nest(nest) = stmt {
            nest.axes.iter_mut().chain(&mut nest.reduced).for_each(|axis| simplify(axis, facts));
        }
    }
    loops
}

/// The axis with its extent in its simplest form.
pub fn simplify(axis: &mut Axis, facts: &Facts) {
    if axis.extent.as_int().is_none() {
        axis.extent = facts.simplify(axis.extent);
    }
}

/// An axis that stands for several contiguous ones.
#[derive(Clone)]
pub struct Merged {
    /// The axis.
    pub axis: Axis,
    /// Value of each axis it stands for.
    pub parts: Vec<(Sym, Expr)>,
}

impl Merged {
    /// One axis under another name.
    pub fn alone(axis: Axis, var: Sym) -> Merged {
        Merged { axis: Axis { var, ..axis }, parts: vec![(axis.var, Expr::sym(var))] }
    }
}

/// Merges neighbouring axes that every index walks as one. `axes` are ordered outermost first; `indices` are flat
/// indices, `others` expressions that must not mention a merged axis.
pub fn merge_axes(
    axes: &[Axis],
    indices: &[Expr],
    others: &[Expr],
    name: &dyn Fn(usize) -> Sym,
) -> Vec<Merged> {
    let is_plain = |s: Sym| others.iter().all(|e| !e.has_sym(s));
    let is_one_walk = |outer: &Axis, inner: &Axis| {
        indices.iter().all(|e| match (e.linear(outer.var), e.linear(inner.var)) {
            (Some((far, _)), Some((near, _))) => far == near * inner.extent,
            _ => false,
        })
    };
    let mut groups: Vec<Vec<Axis>> = Vec::new();
    for &axis in axes {
        match groups.last_mut() {
            // Nothing can be said of the digits of a number that is below 0.
            Some(group)
                if group.iter().chain([&axis]).all(|a| is_plain(a.var) && !a.extent.is_zero())
                    && group.last().is_some_and(|last| is_one_walk(last, &axis)) =>
            {
                group.push(axis);
            }
            _ => groups.push(vec![axis]),
        }
    }
    groups.into_iter().enumerate().map(|(i, group)| merged(&group, name(i))).collect()
}

/// The axes, outermost first, as digits of one.
fn merged(group: &[Axis], var: Sym) -> Merged {
    let mut parts = Vec::new();
    let mut unit = Expr::one();
    for (i, a) in group.iter().enumerate().rev() {
        let digit = Expr::sym(var).floordiv(unit);
        parts.push((a.var, if i == 0 { digit } else { digit.modulo(a.extent) }));
        unit = unit * a.extent;
    }
    Merged { axis: Axis { var, extent: unit }, parts }
}

/// Orders axes so that the one with the smallest steps in memory is last. Weights count accesses; ties keep the
/// given order.
pub fn order_axes(axes: &mut [Axis], indices: &[Expr], facts: &Facts) {
    let weight = |var: Sym| -> i64 {
        indices
            .iter()
            .map(|e| match stride(*e, var) {
                Stride::Zero => 0,
                Stride::Unit => 1,
                Stride::Elements(c) => facts.hint(c).unwrap_or(1 << 20).abs(),
                Stride::Irregular => 2,
            })
            .fold(0, i64::saturating_add)
    };
    axes.sort_by_cached_key(|a| Reverse(weight(a.var)));
}

/// Whether an expression is a plain sum of products, with no division in it.
pub fn is_plain(e: Expr) -> bool {
    match e.kind() {
        Kind::Int(_) | Kind::Sym(_) => true,
        Kind::Add(items) | Kind::Mul(items) => items.iter().all(|&i| is_plain(i)),
        Kind::FloorDiv(..) | Kind::Mod(..) | Kind::Min(..) | Kind::Max(..) => false,
    }
}
