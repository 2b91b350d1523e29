//! Reports accesses that are not known to be inside of their buffers.
//!
//! An access is inside if its index is known to be an element wherever it happens: for all sizes that the facts allow,
//! at all points of the axes that its index mentions, where its guard holds. What is not known is reported, so that
//! compiled code may access memory without looking.

use std::collections::HashSet;

use litz_sym::{Expr, Facts, Range, Rel, Sym};

use super::Verifier;
use crate::ids::{Id, Table};
use crate::loops::{Axis, Buf, BufData, Extern, InstOp, Nest};

impl Verifier<'_> {
    /// Reports loads and stores that are not known to be inside of their buffers. Of symbols that are not declared
    /// nothing is known.
    pub(super) fn accesses(&mut self, nest: &Nest) {
        for Access { at, buf, index, .. } in self.inside.unproved(nest, &self.loops.bufs, &self.loops.facts) {
            let data = &self.loops.bufs[buf];
            if data.sizes.iter().chain(&data.strides).all(|&expr| self.report.has_declared(expr)) {
                self.outside(format_args!("{}, instruction {at}", nest.name), buf, index);
            }
        }
    }

    /// Reports a returned view that is not known to be inside of its buffer.
    pub(super) fn view(&mut self, buf: Buf, sizes: &[Expr], strides: &[Expr], offset: Expr) {
        let axis = |(d, &extent): (usize, &Expr)| Axis { var: Sym::new(&format!("%{d}")), extent };
        let axes: Vec<Axis> = sizes.iter().enumerate().map(axis).collect();
        let steps = axes.iter().zip(strides).map(|(axis, &stride)| Expr::sym(axis.var) * stride);
        let index = offset + steps.sum::<Expr>();
        let is_sound = sizes.len() == strides.len();
        // All that a buffer has in the layout that it has: products of several symbolic sizes are hard to compare.
        let is_whole = |data: &BufData| {
            offset.is_zero() && data.sizes == sizes && data.strides == strides && is_packed(sizes, strides)
        };
        if let Some(data) = self.loops.bufs.get(buf)
            && is_sound
            && !is_whole(data)
            && !self.inside.is_inside(&self.loops.facts, data, index, &axes, &[])
        {
            self.outside("return", buf, index);
        }
    }

    /// Reports buffers that are not known to hold what a routine touches.
    pub(super) fn touched(&mut self, call: &Extern) {
        let Some(touched) = call.touched() else { return };
        for (&buf, elements) in call.reads.iter().chain(&call.writes).zip(touched) {
            let Some(data) = self.loops.bufs.get(buf) else { continue };
            if !self.loops.facts.proves(&Rel::le(elements, data.span())) {
                let message =
                    format_args!("{}: `{}` is not known to hold {elements} elements", call.name, data.name);
                self.report.fail("out-of-bounds", message);
            }
        }
    }

    fn outside(&mut self, place: impl std::fmt::Display, buf: Buf, index: Expr) {
        let data = &self.loops.bufs[buf];
        let message = format_args!(
            "{place}: {index} is not known to be an element of `{}`, which has {}",
            data.name,
            data.span()
        );
        self.report.fail("out-of-bounds", message);
    }
}

/// Whether each stride is the product of the sizes of all dimensions with smaller strides: then the elements are those
/// from 0 up to the product of all sizes.
fn is_packed(sizes: &[Expr], strides: &[Expr]) -> bool {
    let mut left: Vec<usize> = (0..sizes.len()).collect();
    let mut step = Expr::one();
    while let Some(next) = left.iter().position(|&d| strides[d] == step) {
        step = step * sizes[left.remove(next)];
    }
    left.is_empty()
}

/// A load or store.
pub struct Access {
    /// Position of the instruction.
    pub at: usize,
    /// Buffer.
    pub buf: Buf,
    /// Flat element index.
    pub index: Expr,
    /// What the index mentions, and what else has to have points for the access to happen.
    pub axes: Vec<Axis>,
}

/// What was proved to be inside so far: the layers of a model access their buffers alike.
#[derive(Default)]
pub struct Inside {
    proved: HashSet<(Expr, Expr, Vec<Axis>, Vec<Rel>)>,
}

impl Inside {
    /// The accesses of a nest that are not known to be inside of their buffers, under the facts of the program. What is known
    /// of its symbols may grow from one call to the next.
    ///
    /// A load happens only if the axes have points that its index mentions, a store if all outer axes have: code that moves
    /// a load out of the loops that its index does not mention reads nothing else.
    pub fn unproved(&mut self, nest: &Nest, bufs: &Table<Buf, BufData>, facts: &Facts) -> Vec<Access> {
        let mut accesses = accesses(nest);
        accesses.retain(|(access, guard)| {
            let Some(data) = bufs.get(access.buf) else { return false };
            !self.is_inside(facts, data, access.index, &access.axes, guard)
        });
        accesses.into_iter().map(|(access, _)| access).collect()
    }

    /// Whether `index` is known to be an element of the buffer at all points of `axes` where `guard` holds.
    fn is_inside(
        &mut self,
        facts: &Facts,
        data: &BufData,
        index: Expr,
        axes: &[Axis],
        guard: &[Rel],
    ) -> bool {
        let span = data.span();
        if is_inside_by_numbers(facts, span, index, axes) {
            return true;
        }
        // The span of a shape without elements is only 0 if it is the number of elements.
        let is_dense = data.is_dense();
        let sizes = if is_dense { &[][..] } else { &data.sizes };
        let access = (index, span, axes.to_vec(), guard.to_vec());
        let is_known = self.proved.contains(&access) && is_dense;
        let is_inside = is_known || is_proved_inside(facts, (span, sizes), index, axes, guard);
        if is_inside && is_dense {
            self.proved.insert(access);
        }
        is_inside
    }
}

/// The accesses of a nest in order, with their guards.
fn accesses(nest: &Nest) -> Vec<(Access, &[Rel])> {
    if nest.axes.iter().any(|axis| axis.extent.is_zero()) {
        return Vec::new();
    }
    // Symbols that the body bound so far, and whether they vary along the reduced axes.
    let mut bound: Vec<(Axis, bool)> = Vec::new();
    let mut varies: Vec<bool> = Vec::with_capacity(nest.body.len());
    let mut found = Vec::new();
    for (at, inst) in nest.body.iter().enumerate() {
        let exprs = inst.op.exprs();
        let mentions = |sym: Sym| exprs.iter().any(|expr| expr.has_sym(sym));
        let is_varying = nest.reduced.iter().any(|axis| mentions(axis.var))
            || bound.iter().any(|(axis, varies)| *varies && mentions(axis.var))
            || inst.op.operands().iter().any(|val| varies.get(val.index()) == Some(&true));
        let (buf, index, guard, is_store) = match &inst.op {
            InstOp::Load { buf, index, guard, .. } => (*buf, *index, &guard[..], false),
            InstOp::Store { buf, index, .. } => (*buf, *index, &[][..], true),
            InstOp::Bind { sym, extent, .. } => {
                bound.push((Axis { var: *sym, extent: *extent }, is_varying));
                varies.push(is_varying);
                continue;
            }
            InstOp::Reduce(..) | InstOp::ArgReduce { .. } => {
                varies.push(false);
                continue;
            }
            InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Scan { .. } => {
                varies.push(is_varying);
                continue;
            }
        };
        varies.push(is_varying);
        let symbols: Vec<&(Axis, bool)> = bound.iter().filter(|(axis, _)| mentions(axis.var)).collect();
        let is_outer = is_store || !symbols.is_empty();
        let is_reduced = is_store && is_varying || symbols.iter().any(|(_, varies)| *varies);
        let outer = nest.axes.iter().filter(|axis| is_outer || mentions(axis.var));
        let reduced = nest.reduced.iter().filter(|axis| is_reduced || mentions(axis.var));
        let axes: Vec<Axis> =
            outer.chain(reduced).chain(symbols.into_iter().map(|(axis, _)| axis)).copied().collect();
        found.push((Access { at, buf, index, axes }, guard));
    }
    found
}

/// As [`Inside::is_inside`], from ranges of axes with numbers as extents. Numbers are quicker than proofs.
fn is_inside_by_numbers(facts: &Facts, span: Expr, index: Expr, axes: &[Axis]) -> bool {
    let Some(span) = span.as_int() else { return false };
    let range = |sym: Sym| match axes.iter().find(|axis| axis.var == sym) {
        Some(axis) => {
            axis.extent.as_int().map_or(Range::at_least(0), |extent| Range::new(0, extent.saturating_sub(1)))
        }
        None => facts.range_of(sym),
    };
    let reached = index.range(&range);
    0 <= reached.lo && reached.hi < span
}

/// As [`Inside::is_inside`], of a buffer of that span, if all of these sizes are positive.
fn is_proved_inside(
    facts: &Facts,
    (span, sizes): (Expr, &[Expr]),
    index: Expr,
    axes: &[Axis],
    guard: &[Rel],
) -> bool {
    let mut facts = facts.clone();
    if !axes.iter().all(|axis| facts.assume(Rel::le(1, axis.extent))) {
        return true;
    }
    axes.iter().for_each(|axis| facts.declare_index(axis.var, axis.extent));
    if !guard.iter().all(|&rel| facts.assume(rel)) {
        return true;
    }
    facts.proves(&Rel::le(0, index))
        && facts.proves(&Rel::lt(index, span))
        && sizes.iter().all(|&size| facts.proves(&Rel::le(1, size)))
}
