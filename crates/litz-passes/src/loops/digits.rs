//! Splits a reduced axis of a contraction whose operand is indexed by quotients and remainders of it: `k = 128*group + 2*byte + half`.
//!
//! Of a weight of packed integers with a scale for each group of them, `k` says which group, which byte of it and which
//! bits of that. As axes of their own, the scale is loaded once for a group, and a byte once for what it holds.

use super::{Cx, cse, names};
use litz_analysis::Contraction;
use litz_ir::loops::{Axis, Loops, Nest, Stmt};
use litz_sym::{Expr, Facts, Kind, Sym};
use std::collections::BTreeSet;

/// Splits axes; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let mut count = 0;
    for at in 0..loops.stmts.len() {
        let Stmt::Nest(nest) = &loops.stmts[at] else { continue };
        let Some(product) = Contraction::by_result(loops, nest).filter(|c| !c.contraction.is_plain) else {
            continue;
        };
        let (mut split, facts) = (nest.clone(), loops.facts.clone());
        for axis in nest.reduced.clone() {
            if let Some(lengths) = lengths(nest, &axis) {
                split_axis(&mut split, &axis, &lengths, &facts);
                count += 1;
            }
        }
        let columns = |nest: &Nest| Contraction::by_result(loops, nest).map(|columns| columns.column);
        if columns(&split) == Some(product.column) {
            loops.stmts[at] = Stmt::Nest(split);
        }
    }
    count
}

/// The lengths of an axis and of its parts at which expressions of the nest divide it, the longest first: each is a multiple of
/// the next.
fn lengths(nest: &Nest, axis: &Axis) -> Option<Vec<i64>> {
    let extent = axis.extent.as_int()?;
    let mut divisors = BTreeSet::new();
    for e in nest.body.iter().flat_map(|inst| inst.op.exprs()) {
        add_divisors(e, axis.var, &mut divisors);
    }
    let mut lengths = vec![extent];
    for divisor in divisors.into_iter().rev().filter(|&divisor| divisor > 1) {
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
    let at = nest.reduced.iter().position(|a| a.var == axis.var).expect("invariant: the axis is reduced");
    let ends = lengths[1..].iter().chain([&1]);
    let (mut parts, mut value) = (Vec::new(), Expr::zero());
    for (length, end) in lengths.iter().zip(ends) {
        let name = format!("{}d", axis.var);
        let var = names::symbol(&name, facts, nest.all_axes().chain(&parts));
        parts.push(Axis { var, extent: Expr::int(length / end) });
        value = value + Expr::sym(var) * *end;
    }
    nest.reduced.splice(at..=at, parts);
    let facts = nest.facts(facts);
    for inst in &mut nest.body {
        inst.op.map_exprs(&mut |e| {
            if e.has_sym(axis.var) { facts.simplify(e.replace(axis.var, value)) } else { e }
        });
    }
    cse::clean(nest);
}
