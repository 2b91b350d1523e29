//! Lists a nest's loads and stores, and says how fast they move through memory along a variable.

use litz_ir::loops::{Buf, Inst, InstOp, Loops, Nest};
use litz_sym::{Expr, Facts, Sym};

/// One load or store.
#[derive(Clone, Debug)]
pub struct Access {
    /// Instruction position.
    pub at: usize,
    /// Buffer.
    pub buf: Buf,
    /// Coordinates, in the nest's axes.
    pub index: Vec<Expr>,
    /// Where that is in memory, counted in elements.
    pub place: Expr,
    /// A store.
    pub store: bool,
    /// A store that combines with what is there.
    pub combines: bool,
}

/// Loads and stores in order.
pub fn accesses(loops: &Loops, nest: &Nest) -> Vec<Access> {
    let access = |(at, inst): (usize, &Inst)| {
        let (buf, index) = inst.op.element()?;
        let (store, combines) = match inst.op {
            InstOp::Store { combine, .. } => (true, combine.is_some()),
            _ => (false, false),
        };
        Some(Access { at, buf, index: index.to_vec(), place: loops.place(nest, buf, index), store, combines })
    };
    nest.body.iter().enumerate().filter_map(access).collect()
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

/// The step of `place` along `var`.
pub fn step(place: Expr, var: Sym) -> Step {
    if !place.has_sym(var) {
        return Step::Same;
    }
    match place.linear(var) {
        Some((c, _)) if c.is_one() => Step::Unit,
        Some((c, _)) => Step::Far(c),
        None => Step::Irregular,
    }
}

/// `e` with every axis that `bind` gives a value replaced by it.
pub fn substitute(e: Expr, bind: &[(Sym, Expr)]) -> Expr {
    e.subst(&|s| bind.iter().find(|b| b.0 == s).map(|b| b.1))
}

/// The accesses with their places under a binding of the nest's axes.
pub fn bound_places(loops: &Loops, nest: &Nest, bind: &[(Sym, Expr)], facts: &Facts) -> Vec<(Access, Expr)> {
    accesses(loops, nest)
        .into_iter()
        .map(|a| {
            let place = substitute(a.place, bind);
            let place = if place == a.place { place } else { facts.simplify(place) };
            (a, place)
        })
        .collect()
}

/// Expressions of a nest other than indices: guards, conditions, index values, bounds.
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
