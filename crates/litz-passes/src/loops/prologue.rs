//! Decides which producers are inlined into the operands of a contraction: those that read fewer bytes than they store.
//!
//! A dequantised weight is the case that matters. Its integers stay as they are in memory, and are widened and scaled where
//! the product loads them, with the roundings that the producer would have made. A product of one row waits for memory,
//! and runs faster by what it does not read; what depends on the model alone is kept in fewer bytes.

use super::Cx;
use super::cost::cost;
use litz_analysis::Contraction;
use litz_analysis::access::accesses;
use litz_analysis::contraction::Columns;
use litz_ir::Dtype;
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest};

/// Cost of a body (see [`cost`]) that a product runs for each vector that it loads of its right operand: unpacking an integer
/// of four bits, converting it, and taking off a zero point before scaling it cost 9.
const MOST_RIGHT: u32 = 16;

/// The same for each element that it loads of the left operand, which is no vector: a conversion.
const MOST_LEFT: u32 = 1;

/// Rows from which on a product has matrix instructions for operands that are stored in their type: rounding the operand to it
/// once saves more than reading less of it does.
const MATRIX_ROWS: i64 = 4;

/// Whether `reader` is a product that reads the result of `producer` as an operand, and better reads what that is made of.
pub(super) fn is_wanted(loops: &Loops, producer: &Nest, buf: Buf, reader: &Nest, cx: &Cx<'_>) -> bool {
    let Some(Columns { contraction, .. }) = Contraction::by_result(loops, reader) else { return false };
    let mut loads = (0..reader.body.len())
        .filter(|&at| matches!(&reader.body[at].op, InstOp::Load { buf: source, .. } if *source == buf));
    let (Some(load), None) = (loads.next(), loads.next()) else { return false };
    let is_guarded = matches!(&reader.body[load].op, InstOp::Load { guard, .. } if !guard.is_empty());
    let most = match load {
        _ if is_guarded => return false,
        load if load == contraction.rhs => MOST_RIGHT,
        load if load == contraction.lhs => MOST_LEFT,
        _ => return false,
    };
    let dtype = loops.bufs[buf].dtype;
    let has_matrices = cx.target.group(dtype).is_some() && points(loops, contraction.m.iter()) >= MATRIX_ROWS;
    let written = points(loops, producer.all_axes()).saturating_mul(dtype.size() as i64);
    // Of the left operand each element is converted by itself, for every tile of columns again.
    let least = if load == contraction.lhs { 4 } else { 1 };
    cost(producer) <= most
        && widens(loops, producer, dtype)
        && !has_matrices
        && bytes_read(loops, producer).saturating_mul(least) <= written
}

/// Whether a pointwise nest makes numbers of that type of narrower ones, or of integers, and of nothing where it pads.
fn widens(loops: &Loops, nest: &Nest, dtype: Dtype) -> bool {
    let loads = nest.body.iter().filter_map(|inst| {
        let InstOp::Load { buf, guard, .. } = &inst.op else { return None };
        Some((loops.bufs[*buf].dtype, guard.is_empty()))
    });
    let all: Vec<(Dtype, bool)> = loads.collect();
    let is_narrow = |of: Dtype| of.size() < dtype.size() || of.is_int();
    all.iter().all(|load| load.1) && all.iter().any(|load| is_narrow(load.0))
}

/// Whether `reader` is still a product, with the same operands to its left and right, and the same columns.
pub(super) fn is_same_product(loops: &Loops, before: &Columns, reader: &Nest) -> bool {
    Contraction::by_result(loops, reader).is_some_and(|after| {
        let [before, after] = [before, &after].map(|c| (&c.column, &c.contraction.m, &c.contraction.n));
        before == after
    })
}

/// Bytes that a pointwise nest loads, each once.
pub(super) fn bytes_read(loops: &Loops, nest: &Nest) -> i64 {
    let loaded = accesses(nest).filter(|access| !access.store).map(|load| {
        let along = nest.all_axes().filter(|axis| load.index.iter().any(|at| at.has_sym(axis.var)));
        let elements = loops.facts.hint(loops.bufs[load.buf].elements()).unwrap_or(i64::MAX);
        let size = loops.bufs[load.buf].dtype.size() as i64;
        points(loops, along).min(elements).saturating_mul(size)
    });
    loaded.fold(0, i64::saturating_add)
}

fn points<'a>(loops: &Loops, axes: impl Iterator<Item = &'a Axis>) -> i64 {
    axes.map(|axis| loops.facts.size_hint(axis.extent)).fold(1, i64::saturating_mul)
}
