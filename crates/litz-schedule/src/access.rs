//! Coordinates of a nest's loads and stores, and how fast an index moves along a variable.

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
            InstOp::Load { buf, index, .. } => all.push(Access {
                at,
                buf: *buf,
                index: *index,
                store: false,
                combines: false,
            }),
            InstOp::Store { buf, index, combine, .. } => all.push(Access {
                at,
                buf: *buf,
                index: *index,
                store: true,
                combines: combine.is_some(),
            }),
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

/// The accesses' flat indices under a binding of the nest's axes.
pub fn bound_indices(nest: &Nest, bind: &[(Sym, Expr)], facts: &Facts) -> Vec<(Access, Expr)> {
    accesses(nest)
        .into_iter()
        .map(|a| {
            let index = a.index.subst(&|s| bind.iter().find(|b| b.0 == s).map(|b| b.1));
            let index = if index == a.index { index } else { facts.simplify(index) };
            (a, index)
        })
        .collect()
}
