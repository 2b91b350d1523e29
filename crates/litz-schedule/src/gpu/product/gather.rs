//! Says which nests gather an operand: they copy elements as they are, of what data chooses, the same for all of a tile, or of what lies elsewhere
//! in another order.
//!
//! A matrix for each tile of rows, `ws[t, k, j] = w[of[t], k, j]`, is such an operand, and so are the windows of a convolution,
//! `patches[m, t]`. Each block copies its part of the matrix from where that is.

use crate::axes::fresh;
use crate::context::Cx;
use crate::gpu::stage::is_guarded_at_end;
use litz_analysis::windows::Windows;
use litz_ir::Scalar;
use litz_ir::ids::Id;
use litz_ir::loops::{InstOp, Loops, Nest};
use litz_ir::target::Gpu;
use litz_sym::{Expr, Sym};

/// Whether a nest gathers an operand of a product whose blocks copy their parts of it to shared memory. `value` says what an axis of the nest is,
/// in terms of the kernel's axes, of which these are `inside` of a tile.
pub fn suits(inside: [Sym; 3], nest: &Nest, value: impl Fn(Sym) -> Option<Expr>) -> bool {
    let Some((InstOp::Load { guard, .. }, choices)) = choices(nest) else { return false };
    let is_same = |axis: Sym| value(axis).is_some_and(|at| !inside.iter().any(|&axis| at.has_sym(axis)));
    (guard.is_empty() || !is_chosen(nest)) && choices.into_iter().all(is_same)
}

/// Whether data chooses what is copied.
pub fn is_chosen(nest: &Nest) -> bool {
    nest.body.iter().any(|inst| matches!(inst.op, InstOp::Bind { .. }))
}

/// Whether what a nest copies to a box is one where it lies: each dimension goes along one of its own there, or is chosen by data.
pub fn is_of_boxes(nest: &Nest) -> bool {
    let Some((InstOp::Load { index, guard, .. }, _)) = choices(nest) else { return false };
    guard.is_empty() && index.iter().all(|at| at.as_sym().is_some())
}

/// Whether a nest copies elements that are no box of where they are.
pub fn is_of_windows(loops: &Loops, nest: &Nest) -> bool {
    let Some((InstOp::Load { index, guard, .. }, _)) = choices(nest) else { return false };
    let is_box = guard.is_empty() && index.iter().all(|at| at.is_polynomial());
    !is_chosen(nest) && !is_box && !is_of_rows(loops, nest)
}

/// Whether a nest copies rows that lie in memory as they are, whatever the dimensions of that.
pub fn is_matrix(loops: &Loops, nest: &Nest) -> bool {
    Windows::of(loops, nest).is_some_and(|windows| windows.is_matrix)
}

/// Whether a nest copies a buffer as it is, with zeros past its ends: to rows that blocks copy faster than those, which they would have as
/// their own parts.
pub fn is_of_rows(loops: &Loops, nest: &Nest) -> bool {
    let Some((load @ InstOp::Load { index, guard, .. }, _)) = choices(nest) else { return false };
    let Some(InstOp::Store { index: stored, .. }) = nest.body.last().map(|inst| &inst.op) else {
        return false;
    };
    !guard.is_empty()
        && is_guarded_at_end(loops, load)
        && index == stored
        && index.iter().all(|at| at.as_sym().is_some())
}

/// Elements that lie side by side where they are copied from along the axis `unit` of the nest, and begin where so many do, all of which are there or
/// none. None of what does not copy.
pub fn vector(cx: &Cx<'_>, nest: &Nest, unit: Sym) -> Option<i64> {
    let (InstOp::Load { buf, index, guard, .. }, _) = choices(nest)? else { return None };
    let place = cx.loops.place(nest, *buf, index);
    let [run, element] = ["run", "element"].map(|name| beside(cx, nest, name));
    let extent = nest.axes.iter().find(|axis| axis.var == unit)?.extent;
    let fits = |vector: &i64| {
        let mut facts = nest.facts(&cx.loops.facts);
        facts.declare_index(run, extent.ceildiv(*vector));
        facts.declare_index(element, Expr::int(*vector));
        let at = |e: Expr| facts.simplify(e.replace(unit, Expr::sym(run) * *vector + Expr::sym(element)));
        let is_same = |e: Expr| !at(e).has_sym(element);
        let is_run = at(place)
            .linear(element)
            .is_some_and(|(step, first)| step.is_one() && facts.simplify(first.modulo(*vector)).is_zero());
        is_run && guard.iter().all(|rel| is_same(rel.lhs) && is_same(rel.rhs))
    };
    let most = i64::from(Gpu::VECTOR_BYTES) / cx.loops.bufs[*buf].dtype.size() as i64;
    Some(std::iter::successors(Some(most), |n| Some(n / 2)).find(|n| *n <= 1 || fits(n))?.max(1))
}

fn beside(cx: &Cx<'_>, nest: &Nest, name: &str) -> Sym {
    fresh(name, |sym| nest.all_axes().any(|axis| axis.var == sym) || cx.loops.facts.is_symbol_declared(sym))
}

/// The load of what a nest copies, and the axes that what data chooses depends on. None of a nest that does anything but load indices, load an
/// element, and store it. What it stores where nothing is to be loaded is zero: copies in the background know no other value.
fn choices(nest: &Nest) -> Option<(&InstOp, Vec<Sym>)> {
    let [before @ .., load, store] = &nest.body[..] else { return None };
    let InstOp::Load { guard, other, .. } = &load.op else { return None };
    let InstOp::Store { value, combine: None, .. } = store.op else { return None };
    let is_plain = nest.reduced.is_empty()
        && value.index() + 2 == nest.body.len()
        && load.ty == store.ty
        && (guard.is_empty() || *other == Scalar::zero(load.ty))
        && before.iter().all(|inst| matches!(inst.op, InstOp::Load { .. } | InstOp::Bind { .. }));
    let axes = before.iter().flat_map(|inst| inst.op.exprs()).flat_map(Expr::syms);
    let axes = axes.filter(|&sym| nest.axes.iter().any(|axis| axis.var == sym)).collect();
    is_plain.then_some((&load.op, axes))
}
