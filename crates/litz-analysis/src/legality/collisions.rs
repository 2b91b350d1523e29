//! Checks that points which may store to one element, and those of a scan, run in the order of the program.
//!
//! Along the colliding axes of a nest, loops run in order: `for` or `unroll`, never lanes or the grid. Those of an
//! axis stand outside of those of the next one, and of two loops along one axis the outer takes the longer steps, so
//! that points which differ along colliding axes alone run in row-major order of these.

use std::collections::HashSet;

use litz_sym::{Expr, Facts, Rel, Sym};

use super::points::is_one;
use super::{Around, Occurrence, Verifier};
use crate::collisions::colliding_axes_of;
use litz_ir::dtype::Dtype;
use litz_ir::loops::{Inst, InstOp, Nest, Span, Stmt};
use litz_ir::scalar::ReduceOp;
use litz_ir::schedule::{LoopKind, Part};
use litz_ir::verify::Report;

impl Verifier<'_> {
    /// Reports every nest whose stores may meet out of order. Along the axes of regions, given by `spans`, order is
    /// checked with the region.
    pub(super) fn collisions(&mut self, spans: &[Span]) {
        for (at, (stmt, places)) in self.loops.stmts.iter().zip(&self.placed).enumerate() {
            let Stmt::Nest(nest) = stmt else { continue };
            for scanned in scanned_axes(nest) {
                for place in places {
                    scan_in_order(&mut self.report, &self.loops.facts, nest, place, scanned);
                    self.sites.note(&self.report.diags, place.site());
                }
            }
            let mut colliding = colliding_axes_of(self.loops, nest, depends_on_order);
            let over: HashSet<Sym> =
                spans.iter().filter(|span| span.stmts.contains(&at)).map(|span| span.over.var).collect();
            colliding.retain(|axis| !over.contains(axis));
            if colliding.is_empty() {
                continue;
            }
            let after = nest.after_reduce();
            for place in places.iter().filter(|place| stores(nest, &after, place.part)) {
                in_order(&mut self.report, &self.loops.facts, nest, place, &colliding);
                self.sites.note(&self.report.diags, place.site());
            }
        }
    }
}

/// Reports loops along a scanned axis that do not count it up, point by point. (Grid axes are reported with reductions.)
fn scan_in_order(report: &mut Report, facts: &Facts, nest: &Nest, place: &Occurrence, axis: Sym) {
    let Some(value) = place.value(axis) else { return };
    let (name, along) = (&nest.name, along(value, place, facts));
    for around in along.iter().filter(|around| around.kind.is_some()) {
        if let Some(what) = without_order(around) {
            let message =
                format_args!("`{name}` scans along {axis}, but {what} {} keeps no order", around.axis.var);
            report.fail("unordered-scan", message);
        }
    }
    let message = format_args!("`{name}` scans along {axis}, but {axis} = {value} does not count up");
    report.check(counts_up(value, &along, facts), "unordered-scan", message);
}

/// The axes along which a nest scans.
fn scanned_axes(nest: &Nest) -> Vec<Sym> {
    let scanned = nest.scanned();
    scanned.collect()
}

/// Whether the order in which points store to an element shows. Numbers and truth values that are exact combine to the same
/// in any order.
fn depends_on_order(inst: &Inst) -> bool {
    let InstOp::Store { combine, .. } = inst.op else { return false };
    let is_exact = |dtype: Dtype| dtype.is_int() || dtype == Dtype::Bool;
    match combine {
        None => true,
        Some(ReduceOp::Any | ReduceOp::All | ReduceOp::Xor) => false,
        Some(ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min) => !is_exact(inst.ty),
    }
}

/// Whether a part of a nest stores anything.
fn stores(nest: &Nest, after: &[bool], part: Part) -> bool {
    let mut stores = nest.body.iter().zip(after).filter(|(inst, _)| matches!(inst.op, InstOp::Store { .. }));
    match part {
        Part::Whole => true,
        Part::Update => stores.any(|(_, after)| !after),
        Part::Final => stores.any(|(_, after)| *after),
        Part::Init | Part::Merge => false,
    }
}

fn in_order(report: &mut Report, facts: &Facts, nest: &Nest, place: &Occurrence, colliding: &[Sym]) {
    let name = &nest.name;
    let mut last = None;
    for (number, &axis) in colliding.iter().enumerate() {
        let Some(value) = place.value(axis) else { continue };
        let along = along(value, place, facts);
        for around in &along {
            let Some(what) = without_order(around) else { continue };
            let message = format_args!(
                "`{name}`: points along {axis} may store to one element, but {what} {} keeps no order",
                around.axis.var
            );
            report.fail("unordered-store", message);
        }
        let message = format_args!("`{name}`: {axis} = {value} does not count up");
        report.check(counts_up(value, &along, facts), "unordered-store", message);
        let shared = colliding[..number].iter().filter_map(|&axis| place.value(axis));
        let shared =
            shared.into_iter().any(|value| along.iter().any(|around| value.has_sym(around.axis.var)));
        let (first, end) = (along.first(), along.last());
        let is_inside = !shared && first.is_none_or(|first| last.is_none_or(|last| last < first.number));
        let message = format_args!(
            "`{name}`: points along {axis} and {} may store to one element, but run in another order",
            colliding[number.saturating_sub(1)]
        );
        report.check(is_inside, "unordered-store", message);
        last = end.map(|end| end.number).or(last);
    }
}

/// The loops around a place that a value depends on, outermost first.
fn along<'p>(value: Expr, place: &'p Occurrence, facts: &Facts) -> Vec<&'p Around> {
    let is_along = |around: &&Around| value.has_sym(around.axis.var) && !is_one(facts, around.axis.extent);
    place.path.iter().filter(is_along).collect()
}

/// What a loop is called whose iterations do not run one after another.
fn without_order(around: &Around) -> Option<&'static str> {
    match around.kind {
        Some(LoopKind::For | LoopKind::Unroll | LoopKind::Pipeline { .. } | LoopKind::Chain) => None,
        None => Some("grid axis"),
        Some(LoopKind::Vector { .. } | LoopKind::Level(_) | LoopKind::Mma) => Some("loop"),
    }
}

/// Whether `value` grows from each point of the loops `along`, outermost first, to the next.
fn counts_up(value: Expr, along: &[&Around], facts: &Facts) -> bool {
    let (mut rest, mut reach) = (value, Expr::zero());
    along.iter().rev().all(|Around { axis, .. }| {
        let Some((step, without)) = rest.linear(axis.var) else { return false };
        rest = without;
        let is_longer = facts.holds(&Rel::lt(reach, step));
        reach = reach + step * (axis.extent - 1);
        is_longer
    })
}
