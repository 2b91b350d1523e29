//! Gathers what a product multiplies into rows of a matrix, where it is no part of one as it lies, for GPUs.
//!
//! A tile of a product reads a box of each operand. What a convolution reads is none: the windows of neighbouring points overlap, and
//! those at the border have zeros. With a buffer of patches, one row for each point, the convolution is a product of two matrices:
//!
//! ```text
//! y[m, n] = sum over c, p, q of x[floordiv(m, 56), mod(m, 56) .. + p, q, c] * w[n, c, p, q]
//!   =>
//! patches[m, t] = x[floordiv(m, 56), mod(m, 56) .. + t's digits]       for t in p*q*c
//! rows[n, t]    = w[n, t's digits]
//! y[m, n]       = sum over t of patches[m, t] * rows[n, t]
//! ```
//!
//! The terms of the sum are in the order in which the image has them in memory, so that neighbours are loaded together. A kernel of the product
//! copies the part of `patches` that it needs from `x`, so that it is not in memory. The other operand is laid out once,
//! when the model is loaded, if it is a constant.

use super::{Cx, Edits, Names, merge_rows, names};
use litz_analysis::Contraction;
use litz_ir::graph::TensorType;
use litz_ir::loops::{Axis, Buf, BufData, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Sym};
use std::cmp::Reverse;

/// Rows, columns and terms of a product, by hints, below which threads do as well without tiles.
const LEAST: i64 = 16;

/// Whether a target copies boxes of operands.
pub fn wants(target: &Target) -> bool {
    target.gpu().is_some()
}

/// Gathers operands; returns of how many products.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let (mut edits, mut names) = (Edits::default(), Names::of(loops));
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some(product) = Product::of(loops, nest) else { continue };
        let mut nest = nest.clone();
        let (made, term) = product.gathered(loops, &nest, &mut names);
        product.replace(&mut nest, made.each_ref().map(|of| of.as_ref().map(|of| of.0)), term);
        made.into_iter().flatten().for_each(|(_, nest)| edits.insert(at, Stmt::Nest(nest)));
        loops.stmts[at] = Stmt::Nest(nest);
        count += 1;
    }
    edits.apply(loops);
    count
}

/// A product one operand of which is no box of its buffer.
struct Product {
    /// The loads of that operand, and of the other one.
    operands: [usize; 2],
    /// The axes of the result that only the one, only the other, and both operands have.
    rows: Axis,
    columns: Vec<Axis>,
    both: Vec<Axis>,
    /// Axes of the sum, as the operand that is gathered has them in memory.
    terms: Vec<Axis>,
}

impl Product {
    fn of(loops: &Loops, nest: &Nest) -> Option<Product> {
        if nest.idle.is_some() || nest.scanned().next().is_some() {
            return None;
        }
        Contraction::of(loops, nest)?.into_iter().filter(|of| of.is_plain).find_map(|of| {
            let several = |axes: &[Axis]| -> Vec<Axis> {
                axes.iter().filter(|axis| !axis.extent.is_one()).copied().collect()
            };
            let (rows, columns, terms) = (several(&of.m), several(&of.n), several(&nest.reduced));
            let &[row] = &rows[..] else { return None };
            let is_window = !is_box(&nest.body[of.lhs], row, &terms);
            let size = |axes: &[Axis]| {
                axes.iter().map(|axis| loops.facts.size_hint(axis.extent)).fold(1, i64::saturating_mul)
            };
            let is_large = [&rows, &columns, &terms].iter().all(|axes| size(axes) >= LEAST);
            let is_known = terms.iter().all(|axis| axis.extent.as_int().is_some_and(|extent| extent > 0));
            // Nothing else may depend on the terms one by one.
            let is_term = |sym: Sym| terms.iter().any(|axis| axis.var == sym);
            let mut others = (0..nest.body.len()).filter(|at| ![of.lhs, of.rhs].contains(at));
            let is_plain =
                others.all(|at| !nest.body[at].op.exprs().iter().flat_map(|e| e.syms()).any(is_term));
            let InstOp::Load { guard, .. } = &nest.body[of.rhs].op else { return None };
            if !(is_window && is_large && is_known && is_plain && guard.is_empty()) {
                return None;
            }
            let has = |axis: &Axis, at: usize| nest.body[at].op.exprs().iter().any(|e| e.has_sym(axis.var));
            let both =
                nest.axes.iter().filter(|axis| has(axis, of.lhs) && has(axis, of.rhs)).copied().collect();
            let (buf, index) = nest.body[of.lhs].op.element()?;
            let place = loops.place(nest, buf, index);
            let mut terms = terms;
            terms.sort_by_key(|axis| Reverse(step(place, *axis)));
            Some(Product { operands: [of.lhs, of.rhs], rows: row, columns, both, terms })
        })
    }

    /// For each operand the buffer that has it as rows of a matrix and the nest that fills it, none of one that lies so, and the axis of the terms.
    fn gathered(
        &self,
        loops: &mut Loops,
        nest: &Nest,
        names: &mut Names,
    ) -> ([Option<(Buf, Nest)>; 2], Axis) {
        let var = names::symbol("t", &loops.facts, nest.all_axes());
        let (values, extent) = merge_rows::digits(&self.terms, var);
        let term = Axis { var, extent };
        let mut facts = nest.facts(&loops.facts);
        facts.declare_index(var, extent);
        let is_single = self.terms.len() == 1;
        let made = [0, 1].map(|side| {
            if side == 1 && is_single {
                return None;
            }
            let own = if side == 0 { vec![self.rows] } else { self.columns.clone() };
            let axes: Vec<Axis> = self.both.iter().chain(&own).copied().chain([term]).collect();
            let what = if side == 0 { "patches" } else { "rows" };
            Some(copy(loops, nest, (self.operands[side], what), axes, &values, &facts, names))
        });
        (made, term)
    }

    /// Makes a nest read what was gathered.
    fn replace(&self, nest: &mut Nest, made: [Option<Buf>; 2], term: Axis) {
        let own = [vec![self.rows], self.columns.clone()];
        for ((at, made), own) in self.operands.into_iter().zip(made).zip(own) {
            let InstOp::Load { buf, index, guard, .. } = &mut nest.body[at].op else { continue };
            match made {
                Some(made) => {
                    let axes = self.both.iter().chain(&own).chain([&term]);
                    (*buf, *index) = (made, axes.map(|axis| Expr::sym(axis.var)).collect());
                    guard.clear();
                }
                None => {
                    let of = self.terms[0].var;
                    index.iter_mut().for_each(|at| *at = at.replace(of, Expr::sym(term.var)));
                }
            }
        }
        nest.reduced = vec![term];
    }
}

/// Elements that a step along an axis goes, by its number if that is known.
fn step(place: Expr, axis: Axis) -> i64 {
    let at = |n: i64| place.replace(axis.var, Expr::int(n));
    (at(1) - at(0)).as_int().unwrap_or(0)
}

/// Whether a load goes along the rows and along each term of the sum in a dimension of its own, element by element, and all its elements are there.
pub(super) fn is_box(load: &Inst, row: Axis, terms: &[Axis]) -> bool {
    let InstOp::Load { index, guard, .. } = &load.op else { return false };
    let is_of = |at: &Expr, axis: &Axis| at.has_sym(axis.var);
    let is_alone = |axis: &Axis| {
        let mut along = index.iter().filter(|at| is_of(at, axis));
        let at = along.next().filter(|_| along.next().is_none());
        let others = std::iter::once(&row).chain(terms).filter(|other| other.var != axis.var);
        at.is_some_and(|at| {
            let is_step = at.linear(axis.var).is_some_and(|(step, _)| step.is_one());
            is_step && others.into_iter().all(|other| !is_of(at, other))
        })
    };
    let is_inside = |axis: &Axis| guard.iter().all(|rel| !is_of(&rel.lhs, axis) && !is_of(&rel.rhs, axis));
    is_alone(&row) && is_inside(&row) && terms.iter().all(|axis| is_alone(axis) && is_inside(axis))
}

/// A buffer with these axes as dimensions, and a nest that fills it with what a load of another nest reads.
pub(super) fn copy(
    loops: &mut Loops,
    nest: &Nest,
    (at, what): (usize, &str),
    axes: Vec<Axis>,
    values: &[(Sym, Expr)],
    facts: &Facts,
    names: &mut Names,
) -> (Buf, Nest) {
    let mut load = nest.body[at].op.clone();
    let (source, _) = load.element().expect("invariant: operands are loads");
    let value = |sym: Sym| values.iter().find(|value| value.0 == sym).map(|value| value.1);
    load.map_exprs(&mut |e| facts.simplify(e.subst(&value)));
    let BufData { name, dtype, device, stream, .. } = loops.bufs[source].clone();
    let ty = TensorType::contiguous(dtype, axes.iter().map(|axis| axis.extent).collect()).on(device);
    let buf = names.add_buf(loops, &format!("{name}_{what}"), ty);
    loops.bufs[buf].stream = stream;
    let index = axes.iter().map(|axis| Expr::sym(axis.var)).collect();
    let body = vec![
        Inst { op: load, ty: dtype },
        Inst { op: InstOp::Store { buf, index, value: Val(0), combine: None }, ty: dtype },
    ];
    let statement = names.statement(&loops.bufs[buf].name);
    (buf, Nest::new(statement, nest.from.clone(), axes, body))
}
