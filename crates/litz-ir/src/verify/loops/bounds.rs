//! Reports accesses that are not known to be inside of their buffers.
//!
//! An access is inside if each of its coordinates is known to be in its dimension wherever the access happens: for all sizes
//! that the facts allow, at all points of the axes that its index mentions, where its guard holds. What is not known is reported, so that
//! compiled code may access memory without looking.

use std::collections::HashSet;

use litz_sym::{Expr, Facts, Range, Rel, Sym};

use super::Verifier;
use crate::ids::Table;
use crate::loops::{Axis, Buf, BufData, InstOp, Nest, Routine};

impl Verifier<'_> {
    /// Reports loads and stores that are not known to be inside of their buffers. Of symbols that are not declared
    /// nothing is known.
    pub(super) fn accesses(&mut self, nest: &Nest) {
        for (at, inst) in nest.body.iter().enumerate() {
            let Some((buf, index)) = inst.op.element() else { continue };
            let Some(data) = self.loops.bufs.get(buf) else { continue };
            if index.len() != data.sizes.len() {
                let (found, rank) = (index.len(), data.sizes.len());
                let message = format_args!(
                    "{}, instruction {at}: {found} coordinates, but `{}` has {rank} dimensions",
                    nest.name, data.name
                );
                return self.report.fail("index-rank", message);
            }
        }
        for Unproved { at, coordinates, .. } in
            self.inside.unproved(nest, &self.loops.bufs, &self.loops.facts)
        {
            let Some((buf, _)) = nest.body[at].op.element() else { continue };
            let data = &self.loops.bufs[buf];
            if data.sizes.iter().chain(&data.strides).all(|&expr| self.report.has_declared(expr)) {
                for Coordinate { dim, index, size } in coordinates {
                    let message = format_args!(
                        "{}, instruction {at}: {index} is not known to be inside of dimension {dim} of `{}`, which has \
                         size {size}",
                        nest.name, data.name
                    );
                    self.report.fail("out-of-bounds", message);
                }
            }
        }
    }

    /// Reports a view, of a buffer with sizes, strides and the place of the first element, that is not known to be inside of it.
    pub(super) fn view(&mut self, who: &str, (buf, sizes, strides, offset): (Buf, &[Expr], &[Expr], Expr)) {
        let axis = |(d, &extent): (usize, &Expr)| Axis { var: Sym::new(&format!("%{d}")), extent };
        let axes: Vec<Axis> = sizes.iter().enumerate().map(axis).collect();
        let steps = axes.iter().zip(strides).map(|(axis, &stride)| Expr::sym(axis.var) * stride);
        let place = offset + steps.sum::<Expr>();
        let is_sound = sizes.len() == strides.len();
        // All that a buffer has in the layout that it has: products of several symbolic sizes are hard to compare.
        let is_whole = |data: &BufData| {
            offset.is_zero() && data.sizes == sizes && data.strides == strides && is_packed(sizes, strides)
        };
        if let Some(data) = self.loops.bufs.get(buf)
            && is_sound
            && !is_whole(data)
            && !self.inside.is_in_span(&self.loops.facts, data, place, &axes)
        {
            let message = format_args!(
                "{who}: {place} is not known to be an element of `{}`, which has {}",
                data.name,
                data.span()
            );
            self.report.fail("out-of-bounds", message);
        }
    }

    /// Reports buffers that are not known to hold what a routine touches.
    pub(super) fn touched(&mut self, name: &str, call: &Routine) {
        let Some(touched) = call.touched() else { return };
        for (&buf, elements) in call.reads.iter().chain(&call.writes).zip(touched) {
            let Some(data) = self.loops.bufs.get(buf) else { continue };
            if !self.loops.facts.proves(&Rel::le(elements, data.span())) {
                let message =
                    format_args!("{name}: `{}` is not known to hold {elements} elements", data.name);
                self.report.fail("out-of-bounds", message);
            }
        }
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

/// A coordinate of an access.
#[derive(Clone, Copy, Debug)]
pub struct Coordinate {
    /// The dimension.
    pub dim: usize,
    /// Which of its elements.
    pub index: Expr,
    /// How many it has.
    pub size: Expr,
}

/// A load or store with coordinates that are not known to be inside of their dimensions.
pub struct Unproved {
    /// Position of the instruction.
    pub at: usize,
    /// Each of these coordinates.
    pub coordinates: Vec<Coordinate>,
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
    pub fn unproved(&mut self, nest: &Nest, bufs: &Table<Buf, BufData>, facts: &Facts) -> Vec<Unproved> {
        let mut left = Vec::new();
        for Happening { at, buf, index, guard, axes } in happenings(nest) {
            let Some(data) = bufs.get(buf) else { continue };
            let coordinates = index.iter().zip(&data.sizes).enumerate();
            let mut coordinates: Vec<Coordinate> =
                coordinates.map(|(dim, (&index, &size))| Coordinate { dim, index, size }).collect();
            coordinates.retain(|at| !self.is_inside(facts, at.index, at.size, &axes, guard));
            if !coordinates.is_empty() {
                left.push(Unproved { at, coordinates, axes });
            }
        }
        left
    }

    /// Whether a coordinate is known to be at least 0 and below `size` at all points of `axes` where `guard` holds.
    fn is_inside(
        &mut self,
        facts: &Facts,
        coordinate: Expr,
        size: Expr,
        axes: &[Axis],
        guard: &[Rel],
    ) -> bool {
        if is_inside_by_numbers(facts, size, coordinate, axes) {
            return true;
        }
        let question = (coordinate, size, axes.to_vec(), guard.to_vec());
        if self.proved.contains(&question) {
            return true;
        }
        let is_inside = is_proved_inside(facts, (size, &[]), coordinate, axes, guard);
        if is_inside {
            self.proved.insert(question);
        }
        is_inside
    }

    /// Whether a place in memory, counted in elements, is known to be one of a buffer's at all points of `axes`.
    fn is_in_span(&self, facts: &Facts, data: &BufData, place: Expr, axes: &[Axis]) -> bool {
        let span = data.span();
        // The span of a shape without elements is only 0 if it is the number of elements.
        let sizes = if data.is_dense() { &[][..] } else { &data.sizes };
        is_inside_by_numbers(facts, span, place, axes)
            || is_proved_inside(facts, (span, sizes), place, axes, &[])
    }
}

/// A load or store, and what it depends on whether it happens.
struct Happening<'a> {
    at: usize,
    buf: Buf,
    index: &'a [Expr],
    guard: &'a [Rel],
    axes: Vec<Axis>,
}

/// The loads and stores of a nest in order.
fn happenings(nest: &Nest) -> Vec<Happening<'_>> {
    if nest.axes.iter().any(|axis| axis.extent.is_zero()) {
        return Vec::new();
    }
    // Symbols that the body bound so far, and whether they vary along the reduced axes.
    let mut bound: Vec<(Axis, bool)> = Vec::new();
    let mut found = Vec::new();
    for (at, (inst, is_varying)) in nest.body.iter().zip(nest.varying()).enumerate() {
        let exprs = inst.op.exprs();
        let mentions = |sym: Sym| exprs.iter().any(|expr| expr.has_sym(sym));
        let (buf, index, guard, is_store) = match &inst.op {
            InstOp::Load { buf, index, guard, .. } => (*buf, &index[..], &guard[..], false),
            InstOp::Store { buf, index, .. } => (*buf, &index[..], &[][..], true),
            InstOp::Bind { sym, extent, .. } => {
                bound.push((Axis { var: *sym, extent: *extent }, is_varying));
                continue;
            }
            InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Scan { .. } => continue,
        };
        let symbols: Vec<&(Axis, bool)> = bound.iter().filter(|(axis, _)| mentions(axis.var)).collect();
        let is_outer = is_store || !symbols.is_empty();
        let is_reduced = is_store && is_varying || symbols.iter().any(|(_, varies)| *varies);
        let outer = nest.axes.iter().filter(|axis| is_outer || mentions(axis.var));
        let reduced = nest.reduced.iter().filter(|axis| is_reduced || mentions(axis.var));
        let axes: Vec<Axis> =
            outer.chain(reduced).chain(symbols.into_iter().map(|(axis, _)| axis)).copied().collect();
        found.push(Happening { at, buf, index, guard, axes });
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

/// As [`Inside::is_inside`], of that many elements, if all of these sizes are positive.
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
