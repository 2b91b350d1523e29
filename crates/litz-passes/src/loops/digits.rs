//! Splits an axis of a contraction whose operand is indexed by quotients and remainders of it: `k = 128*group + 2*byte + half`.
//!
//! Of a weight of packed integers with a scale for each group of them, the reduced axis `k` says which group, which byte of it
//! and which bits of that. As axes of their own, the scale is loaded once for a group, and a byte once for what it holds.
//!
//! Where heads of attention share keys and values in groups, the axis of heads `h` reads values at `floordiv(h, 3)`: of one new
//! token each head is a product of one row, and the heads of a group, split off, are the rows of one product.

use super::{Cx, cse, names};
use litz_analysis::Contraction;
use litz_analysis::access::{Stride, stride};
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, InstOp, Loops, Nest, Stmt};
use litz_ir::target::Target;
use litz_sym::{Expr, Facts, Kind, Sym};
use std::collections::BTreeSet;

/// Numbers in one byte, or in a word of a few, at most. On a GPU such digits alone are axes of their own: threads take the others of a row side by
/// side, and each asks once for the scale of a run.
const PACKED: i64 = 8;

/// Splits axes; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let most = match cx.target {
        Target::Cpu(_) => i64::MAX,
        Target::Gpu(_) => PACKED,
    };
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some(columns) = Contraction::by_result(loops, nest) else { continue };
        let split = match columns.contraction.is_plain {
            true => into_rows(loops, nest, &columns),
            false => into_terms(loops, nest, &columns, most),
        };
        if let Some((nest, axes)) = split {
            loops.stmts[at] = Stmt::Nest(nest);
            count += axes;
        }
    }
    count
}

/// Splits the reduced axes of a product into digits of at most so many numbers, and says how many axes.
fn into_terms(loops: &Loops, nest: &Nest, columns: &Columns, most: i64) -> Option<(Nest, usize)> {
    let exprs: Vec<Expr> = nest.body.iter().flat_map(|inst| inst.op.exprs()).collect();
    let (split, count) = split_axes(loops, nest, nest.reduced.iter(), &exprs, most)?;
    let is_same = Contraction::by_result(loops, &split).is_some_and(|new| new.column == columns.column);
    is_same.then_some((split, count))
}

/// Splits the outer axes of products of one row, so that those that have the right operand in common are one of several. Its
/// columns lie side by side: what is loaded of them is used for all rows.
fn into_rows(loops: &Loops, nest: &Nest, columns: &Columns) -> Option<(Nest, usize)> {
    let Columns { contraction, column, .. } = columns;
    let InstOp::Load { buf, index, .. } = &nest.body[contraction.rhs].op else { return None };
    let is_side_by_side = stride(loops.place(nest, *buf, index), column.var) == Stride::Unit;
    if !contraction.m.is_empty() || !is_side_by_side {
        return None;
    }
    let others = nest.axes.iter().filter(|axis| axis.var != column.var);
    let (split, count) = split_axes(loops, nest, others, index, i64::MAX)?;
    let new = Contraction::by_result(loops, &split)?;
    (new.column == *column && !new.contraction.m.is_empty()).then_some((split, count))
}

/// The nest with each of the axes split that expressions divide by `most` at most, and how many these are. None where there are none.
fn split_axes<'a>(
    loops: &Loops,
    nest: &Nest,
    axes: impl Iterator<Item = &'a Axis>,
    exprs: &[Expr],
    most: i64,
) -> Option<(Nest, usize)> {
    let divided: Vec<_> = axes.filter_map(|axis| Some((axis, lengths(exprs, axis, most)?))).collect();
    if divided.is_empty() {
        return None;
    }
    let mut split = nest.clone();
    divided.iter().for_each(|(axis, lengths)| split_axis(&mut split, axis, lengths, &loops.facts));
    Some((split, divided.len()))
}

/// The lengths of an axis and of its parts at which expressions divide it, the longest first: each is a multiple of the next.
fn lengths(exprs: &[Expr], axis: &Axis, most: i64) -> Option<Vec<i64>> {
    let extent = axis.extent.as_int()?;
    let mut divisors = BTreeSet::new();
    for &e in exprs {
        add_divisors(e, axis.var, &mut divisors);
    }
    let mut lengths = vec![extent];
    for divisor in divisors.into_iter().rev().filter(|&divisor| (2..=most).contains(&divisor)) {
        let length = *lengths.last().expect("invariant: the axis has a length");
        if divisor < length && length % divisor == 0 {
            lengths.push(divisor);
        }
    }
    (lengths.len() > 1).then_some(lengths)
}

/// Adds the numbers that a symbol is divided by, alone or beside what these divide.
fn add_divisors(e: Expr, sym: Sym, divisors: &mut BTreeSet<i64>) {
    if !e.has_sym(sym) {
        return;
    }
    match e.kind() {
        Kind::Int(_) | Kind::Sym(_) => {}
        Kind::Add(parts) | Kind::Mul(parts) => {
            parts.iter().for_each(|&part| add_divisors(part, sym, divisors));
        }
        Kind::Min(a, b) | Kind::Max(a, b) => {
            [a, b].into_iter().for_each(|side| add_divisors(side, sym, divisors));
        }
        Kind::FloorDiv(a, b) | Kind::Mod(a, b) => {
            let is_single = a.linear(sym).is_some_and(|(step, _)| step.is_one());
            divisors.extend(b.as_int().filter(|_| is_single));
            add_divisors(a, sym, divisors);
        }
    }
}

fn split_axis(nest: &mut Nest, axis: &Axis, lengths: &[i64], facts: &Facts) {
    let ends = lengths[1..].iter().chain([&1]);
    let (mut parts, mut value) = (Vec::new(), Expr::zero());
    for (length, end) in lengths.iter().zip(ends) {
        let name = format!("{}d", axis.var);
        let var = names::symbol(&name, facts, nest.all_axes().chain(&parts));
        parts.push(Axis { var, extent: Expr::int(length / end) });
        value = value + Expr::sym(var) * *end;
    }
    for axes in [&mut nest.axes, &mut nest.reduced] {
        if let Some(at) = axes.iter().position(|own| own.var == axis.var) {
            axes.splice(at..=at, parts.iter().copied());
        }
    }
    let facts = nest.facts(facts);
    for inst in &mut nest.body {
        inst.op.map_exprs(&mut |e| {
            if e.has_sym(axis.var) { facts.simplify(e.replace(axis.var, value)) } else { e }
        });
    }
    cse::clean(nest);
}
