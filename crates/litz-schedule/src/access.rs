//! A nest's loads and stores, and how fast their indices move along a variable.

use litz_ir::loops::{Buf, InstOp, Nest};
use litz_sym::{Expr, Facts, Sym};

/// One load or store.
#[derive(Clone, Debug)]
pub struct Access {
    /// Instruction position.
    pub at: usize,
    /// Buffer.
    pub buf: Buf,
    /// Flat index, in the nest's axes.
    pub index: Expr,
    /// A store.
    pub store: bool,
    /// A store that combines with what is there.
    pub combines: bool,
}

/// Loads and stores in order.
pub fn accesses(nest: &Nest) -> Vec<Access> {
    let mut all = Vec::new();
    for (at, inst) in nest.body.iter().enumerate() {
        match &inst.op {
            InstOp::Load { buf, index, .. } => {
                all.push(Access { at, buf: *buf, index: *index, store: false, combines: false })
            }
            InstOp::Store { buf, index, combine, .. } => {
                all.push(Access { at, buf: *buf, index: *index, store: true, combines: combine.is_some() })
            }
            _ => {}
        }
    }
    all
}

/// How far apart two neighbouring points along `var` are in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Same element.
    Same,
    /// Next element.
    Unit,
    /// That many elements away.
    Far(Expr),
    /// Not a fixed distance.
    Irregular,
}

/// The step of `index` along `var`.
pub fn step(index: Expr, var: Sym) -> Step {
    if !index.has_sym(var) {
        return Step::Same;
    }
    match index.linear(var) {
        Some((c, _)) if c.is_one() => Step::Unit,
        Some((c, _)) => Step::Far(c),
        None => Step::Irregular,
    }
}

/// `e` with every axis that `bind` gives a value replaced by it.
pub fn substitute(e: Expr, bind: &[(Sym, Expr)]) -> Expr {
    e.subst(&|s| bind.iter().find(|b| b.0 == s).map(|b| b.1))
}

/// The accesses' flat indices under a binding of the nest's axes.
pub fn bound_indices(nest: &Nest, bind: &[(Sym, Expr)], facts: &Facts) -> Vec<(Access, Expr)> {
    accesses(nest)
        .into_iter()
        .map(|a| {
            let index = substitute(a.index, bind);
            let index = if index == a.index { index } else { facts.simplify(index) };
            (a, index)
        })
        .collect()
}

/// Expressions of a nest other than flat indices: guards, conditions, index values, bounds.
pub fn side_exprs(nest: &Nest) -> Vec<Expr> {
    let mut all = Vec::new();
    for inst in &nest.body {
        match &inst.op {
            InstOp::Load { guard, .. } => all.extend(guard.iter().flat_map(|r| [r.lhs, r.rhs])),
            InstOp::Index(e) => all.push(*e),
            InstOp::Cond(r) => all.extend([r.lhs, r.rhs]),
            InstOp::Bind { extent, .. } => all.push(*extent),
            _ => {}
        }
    }
    all
}
