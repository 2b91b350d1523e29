//! Says which nests gather an operand: data chooses of what, the same for all of a tile, and what is chosen is copied as it is.
//!
//! A matrix for each tile of rows, `ws[t, k, j] = w[of[t], k, j]`, is such an operand. Each block copies its part of the matrix from where that is.

use super::problem::Problem;
use crate::context::Cx;
use litz_ir::ids::Id;
use litz_ir::loops::{InstOp, Nest};
use litz_ir::target::Gpu;
use litz_sym::{Expr, Sym};

/// Whether a nest gathers an operand of a product whose blocks copy their parts of it to shared memory. `value` says what an axis of the nest is,
/// in terms of the kernel's axes.
pub fn suits(problem: &Problem<'_>, nest: &Nest, value: impl Fn(Sym) -> Option<Expr>) -> bool {
    let Some((InstOp::Load { guard, .. }, choices)) = choices(nest) else { return false };
    let inside = [problem.sides[0].var, problem.sides[1].var, problem.depth.var];
    let is_same = |axis: Sym| value(axis).is_some_and(|at| !inside.iter().any(|&axis| at.has_sym(axis)));
    guard.is_empty() && !choices.is_empty() && choices.into_iter().all(is_same)
}

/// Elements that lie side by side where they are copied from, and begin where so many do. None of what does not copy.
pub fn vector(cx: &Cx<'_>, nest: &Nest) -> Option<i64> {
    let (load, _) = choices(nest)?;
    let (buf, index) = load.element()?;
    let facts = nest.facts(&cx.loops.facts);
    let place = facts.simplify(cx.loops.place(nest, buf, index));
    let mut steps = Vec::new();
    let mut rest = place;
    for index in nest.indices().filter(|index| place.has_sym(index.var)) {
        let (step, more) = rest.linear(index.var)?;
        steps.push(step);
        rest = more;
    }
    steps.push(rest);
    let is_unit = |step: &&Expr| step.is_one();
    if steps.iter().filter(is_unit).count() != 1 {
        return Some(1);
    }
    let fits = |vector: &i64| {
        let mut others = steps.iter().filter(|step| !step.is_one());
        others.all(|&step| facts.simplify(step.modulo(*vector)).is_zero())
    };
    let most = i64::from(Gpu::VECTOR_BYTES) / cx.loops.bufs[buf].dtype.size() as i64;
    Some(std::iter::successors(Some(most), |n| Some(n / 2)).find(|n| *n <= 1 || fits(n))?.max(1))
}

/// The load of what a nest copies, and the axes that what data chooses depends on. None of a nest that does anything but load indices, load an
/// element, and store it.
fn choices(nest: &Nest) -> Option<(&InstOp, Vec<Sym>)> {
    let [before @ .., load, store] = &nest.body[..] else { return None };
    let InstOp::Load { .. } = load.op else { return None };
    let InstOp::Store { value, combine: None, .. } = store.op else { return None };
    let is_plain = nest.reduced.is_empty()
        && value.index() + 2 == nest.body.len()
        && load.ty == store.ty
        && before.iter().all(|inst| matches!(inst.op, InstOp::Load { .. } | InstOp::Bind { .. }));
    let axes = before.iter().flat_map(|inst| inst.op.exprs()).flat_map(Expr::syms);
    let axes = axes.filter(|&sym| nest.axes.iter().any(|axis| axis.var == sym)).collect();
    is_plain.then_some((&load.op, axes))
}
