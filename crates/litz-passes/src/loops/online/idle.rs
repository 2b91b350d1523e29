//! Finds the iterations of a region that change nothing, since every term is the identity of its reduction.
//!
//! A mask that removes columns past a row's own makes scores `-inf` there. In a block of which it removes all columns, the
//! maximum stays what it was, exponentials are 0, and so is what they weight, where that is finite. Which condition it is, and
//! what follows from it, is found in the bodies alone: constants are followed from where it fails.

use super::blocks::{Blocks, Missing, missing};
use litz_analysis::access::accesses;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, InstOp, Loops, Nest};
use litz_sym::{Cmp, Expr, Facts, Rel, Sym};
use std::collections::BTreeMap;

/// Says of the nests that a region repeats where they are idle, if an iteration can be. `is_finite` tells buffers that hold
/// numbers which are not infinite.
pub fn mark(nests: &mut [Nest], loops: &Loops, blocks: &Blocks, is_finite: &dyn Fn(Buf) -> bool) {
    let repeated: Vec<usize> = (0..nests.len()).filter(|&at| nests[at].axes.contains(&blocks.over)).collect();
    let conditions = repeated.iter().flat_map(|&at| {
        nests[at].body.iter().filter_map(move |inst| {
            let InstOp::Cond(rel) = inst.op else { return None };
            Some((at, rel))
        })
    });
    // Columns that are not there are no reason: no block is without one that is.
    let found = conditions.filter(|(_, rel)| is_mask(*rel, blocks)).find_map(|(at, rel)| {
        let idle = never(&nests[at], rel, blocks, &loops.facts)?;
        let before = before(nests, &repeated, at);
        let others: Vec<usize> = repeated.iter().copied().filter(|at| !before.contains(at)).collect();
        changes_nothing(nests, &others, (at, rel), is_finite).then_some(())?;
        let mut all = BTreeMap::from([(at, idle)]);
        lead(nests, &before, blocks.over.var, &mut all)?;
        follow(nests, &others, blocks.over.var, &mut all)?;
        Some(all)
    });
    for (at, idle) in found.into_iter().flatten() {
        nests[at].idle = Some(idle);
    }
}

fn is_mask(rel: Rel, blocks: &Blocks) -> bool {
    let has = |sym: Sym| rel.lhs.has_sym(sym) || rel.rhs.has_sym(sym);
    let is_end = rel.rhs == blocks.columns;
    has(blocks.over.var) && !is_end
}

/// Where a condition of a nest fails for all columns of a block, if it then does for later blocks, too.
fn never(nest: &Nest, holds: Rel, blocks: &Blocks, facts: &Facts) -> Option<Rel> {
    let Rel { cmp, lhs, rhs } = holds.negate();
    if !matches!(cmp, Cmp::Lt | Cmp::Le) {
        return None;
    }
    let slope = |axis: &Axis| (rhs - lhs).linear(axis.var)?.0.as_int();
    if slope(&blocks.over)? <= 0 {
        return None;
    }
    // Columns of the block: where the sides are closest.
    let columns = nest.axes.iter().filter(|axis| axis.extent == Expr::int(blocks.width));
    let mut ends: Vec<(Sym, Expr)> = Vec::new();
    for column in columns.filter(|axis| lhs.has_sym(axis.var) || rhs.has_sym(axis.var)) {
        let end = if slope(column)? > 0 { Expr::zero() } else { column.extent - 1 };
        ends.push((column.var, end));
    }
    let at = |e: Expr| facts.simplify(e.subst(&|sym| ends.iter().find(|end| end.0 == sym).map(|end| end.1)));
    (!ends.is_empty()).then(|| Rel { cmp, lhs: at(lhs), rhs: at(rhs) })
}

/// The nests whose results are read by one that masks them, or by each other, and by nobody else, such as a product of scores; the
/// last one first.
fn before(nests: &[Nest], repeated: &[usize], masks: usize) -> Vec<usize> {
    let mut before: Vec<usize> = Vec::new();
    for &at in repeated.iter().filter(|&&at| at < masks).rev() {
        let reads = |nest: &Nest| nest.reads().iter().any(|buf| nests[at].writes().contains(buf));
        let mut readers = (0..nests.len()).filter(|&reader| reads(&nests[reader]));
        if readers.all(|reader| reader == masks || before.contains(&reader)) {
            before.push(at);
        }
    }
    before
}

/// Where the nests `before` are idle, the last one first: where all that read what they store are.
fn lead(nests: &[Nest], before: &[usize], over: Sym, all: &mut BTreeMap<usize, Rel>) -> Option<()> {
    for &at in before {
        let mut found: Option<Rel> = None;
        for (&reader, &idle) in all.iter() {
            for load in accesses(&nests[reader]).filter(|access| !access.store) {
                let Some(store) = store_of(&nests[at], load.buf) else { continue };
                let idle = moved(&nests[reader], idle, over, load.index, store)?;
                if found.is_some_and(|found| found != idle) {
                    return None;
                }
                found = Some(idle);
            }
        }
        all.insert(at, found?);
    }
    Some(())
}

/// Where the other nests are idle, by what they read of those before them.
fn follow(nests: &[Nest], others: &[usize], over: Sym, all: &mut BTreeMap<usize, Rel>) -> Option<()> {
    for &at in others {
        if all.contains_key(&at) {
            continue;
        }
        let loads = accesses(&nests[at]).filter(|access| !access.store);
        let idle = { loads }.find_map(|load| {
            let (from, store) =
                all.keys().find_map(|&from| Some((from, store_of(&nests[from], load.buf)?)))?;
            let idle = moved(&nests[from], all[&from], over, store, load.index)?;
            let is_outer = |e: &Expr| nests[at].reduced.iter().all(|axis| !e.has_sym(axis.var));
            [idle.lhs, idle.rhs].iter().all(is_outer).then_some(idle)
        })?;
        all.insert(at, idle);
    }
    Some(())
}

/// Where a nest is idle, said of another one's axes: the elements at coordinates `from` of the one are those at `to` of the other.
fn moved(nest: &Nest, idle: Rel, over: Sym, from: &[Expr], to: &[Expr]) -> Option<Rel> {
    let value = |sym: Sym| Some(to[from.iter().position(|&at| at == Expr::sym(sym))?]);
    let matters = |axis: &&Axis| idle.lhs.has_sym(axis.var) || idle.rhs.has_sym(axis.var);
    let mut axes = nest.all_axes().filter(matters).filter(|axis| axis.var != over);
    axes.all(|axis| value(axis.var).is_some()).then(|| idle.subst(&value))
}

fn store_of(nest: &Nest, wanted: Buf) -> Option<&[Expr]> {
    let store = accesses(nest).find(|access| access.store && access.buf == wanted);
    store.map(|store| store.index)
}

/// Whether everything that is reduced is what its reduction begins with where a condition of a nest fails. That nest's own
/// reductions, such as those of scores, may be of anything: it is what it stores that matters.
fn changes_nothing(
    nests: &[Nest],
    repeated: &[usize],
    (first, fails): (usize, Rel),
    is_finite: &dyn Fn(Buf) -> bool,
) -> bool {
    let mut known: BTreeMap<Buf, Missing> = BTreeMap::new();
    for &at in repeated {
        let fails = (at == first).then_some(fails);
        // What is weighted by 0 is taken for finite.
        let is_finite = |buf: Buf| is_finite(buf) || !nests.iter().any(|nest| nest.writes().contains(&buf));
        let values = missing(&nests[at].body, &known, &is_finite, fails);
        for inst in &nests[at].body {
            match &inst.op {
                InstOp::Reduce(op, value) if at != first => {
                    let identity = Missing::Number(op.identity(inst.ty).as_f64());
                    if values[value.index()] != identity {
                        return false;
                    }
                }
                InstOp::Store { buf, value, .. } => {
                    known.insert(*buf, values[value.index()]);
                }
                InstOp::Load { .. }
                | InstOp::Const(_)
                | InstOp::Index(_)
                | InstOp::Cond(_)
                | InstOp::Op(..)
                | InstOp::Cast(_)
                | InstOp::Bitcast(_)
                | InstOp::Bind { .. }
                | InstOp::Reduce(..)
                | InstOp::ArgReduce { .. }
                | InstOp::Scan { .. } => {}
            }
        }
    }
    true
}
