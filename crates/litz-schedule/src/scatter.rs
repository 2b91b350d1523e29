//! Finds what a scatter is made of: a nest of which several points may store to one element, so that these run in order.

use crate::axes::{Merged, merge_axes, order_axes};
use crate::context::Cx;
use crate::cost::size;
use crate::nest;
use litz_analysis::access::{Access, Stride, accesses, side_exprs, stride};
use litz_ir::loops::{Axis, Buf, Loops, Nest};
use litz_sym::{Expr, Sym};

/// Whether a statement is a scatter of the kind that is planned as one: without reductions and scans.
pub fn is_scatter(cx: &Cx<'_>, s: usize) -> bool {
    let info = &cx.deps.stmts[s];
    let is_plain = |nest: &Nest| nest.reduced.is_empty() && !nest.accumulates();
    info.is_scatter && !info.ordered.is_empty() && is_plain(nest(cx.loops, s))
}

/// The axes of a scatter, merged, and from the longest strides to the shortest but for the second.
pub struct Axes {
    /// Those with longer strides than what data chooses.
    pub batches: Vec<Merged>,
    /// Those that run in order, in order.
    pub in_order: Vec<Merged>,
    /// Those with shorter strides.
    pub rows: Vec<Merged>,
    /// Elements from one position that data chooses to the next.
    pub step: Expr,
}

impl Axes {
    /// What the axes of the nest are in terms of these.
    pub fn bind(&self) -> Vec<(Sym, Expr)> {
        let all = self.batches.iter().chain(&self.in_order).chain(&self.rows);
        all.flat_map(|merged| merged.parts.clone()).collect()
    }
}

/// The axes of a scatter, of which those that are `ordered` must run in order. `name` makes names of variables.
pub fn axes(loops: &Loops, nest: &Nest, ordered: &[Sym], name: &dyn Fn(&str) -> Sym) -> Axes {
    let facts = nest.facts(&loops.facts);
    let place = |access: Access| access.place(loops, nest);
    let indices: Vec<Expr> = accesses(nest).map(place).collect();
    let stored: Vec<Expr> = accesses(nest).filter(|access| access.store).map(place).collect();
    let is_free = |sym: Sym| nest.axes.iter().any(|axis| axis.var == sym && !ordered.contains(&sym));
    // What chooses the position: symbols that are neither free axes nor sizes.
    let choosing = |e: &Expr| {
        let chooses = |sym: &Sym| !is_free(*sym) && !loops.facts.is_symbol_declared(*sym);
        let steps =
            e.syms().into_iter().filter(chooses).map(|sym| e.linear(sym).map_or(Expr::one(), |l| l.0));
        steps.collect::<Vec<_>>()
    };
    let length = |e: Expr| size(&loops.facts, e.max(Expr::zero() - e));
    let step_of_positions = stored.iter().flat_map(choosing).min_by_key(|&e| length(e));
    let is_row = |axis: &Axis| {
        let Some(positions) = step_of_positions else { return true };
        stored.iter().all(|index| match stride(*index, axis.var) {
            Stride::Zero | Stride::Irregular => false,
            Stride::Unit => length(positions) > 1,
            Stride::Elements(far) => length(far) < length(positions),
        })
    };
    let (in_order, free): (Vec<Axis>, Vec<Axis>) =
        nest.axes.iter().partition(|axis| ordered.contains(&axis.var));
    let (rows, batches): (Vec<Axis>, Vec<Axis>) = free.into_iter().partition(is_row);
    // Stores decide ties: they count double.
    let weighted = [&indices[..], &stored].concat();
    let merged = |mut axes: Vec<Axis>, class: &str| {
        order_axes(&mut axes, &weighted, &facts);
        merge_axes(&axes, &indices, &side_exprs(nest), &|i| name(&format!("{class}{i}")))
    };
    let alone = |(i, axis): (usize, &Axis)| Merged::alone(*axis, name(&format!("o{i}")));
    Axes {
        batches: merged(batches, "g"),
        in_order: in_order.iter().enumerate().map(alone).collect(),
        rows: merged(rows, "r"),
        step: step_of_positions.filter(|step| !step.is_zero()).unwrap_or(Expr::one()),
    }
}

/// The buffer that the nest stores to, if it has one store.
pub fn only_store(nest: &Nest) -> Option<Buf> {
    let mut stores = accesses(nest).filter(|access| access.store);
    match (stores.next(), stores.next()) {
        (Some(store), None) => Some(store.buf),
        _ => None,
    }
}
