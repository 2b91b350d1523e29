//! Finds the iterations of a region that change nothing, since every term is the identity of its reduction.
//!
//! A mask that removes columns past a row's own makes scores `-inf` there. In a block of which it removes all columns, the
//! maximum stays what it was, exponentials are 0, and so is what they weight, where that is finite. Which condition it is, and
//! what follows from it, is found in the bodies alone: constants are followed from where it fails.

use super::blocks::{Blocks, Missing, missing};
use litz_analysis::access::accesses;
use litz_analysis::online::point_of;
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
        let idle = follow(nests, &repeated, (at, idle))?;
        changes_nothing(nests, &repeated, (at, rel), is_finite).then_some(idle)
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

/// Where the other nests are idle, by what they read of those before them.
fn follow(nests: &[Nest], repeated: &[usize], first: (usize, Rel)) -> Option<BTreeMap<usize, Rel>> {
    let mut all = BTreeMap::from([first]);
    for &at in repeated.iter().filter(|&&at| at != first.0) {
        let loads = accesses(&nests[at]).filter(|access| !access.store);
        let idle = { loads }.find_map(|load| {
            let (from, store) =
                all.keys().find_map(|&from| Some((from, store_of(&nests[from], load.buf)?)))?;
            let matters = |axis: &&Axis| all[&from].lhs.has_sym(axis.var) || all[&from].rhs.has_sym(axis.var);
            let own = nests[from].axes.iter().filter(|axis| store.contains(&Expr::sym(axis.var)));
            let like = Nest { axes: own.filter(matters).copied().collect(), ..nests[from].clone() };
            let point = point_of(&like, store, load.index)?;
            let moved =
                all[&from].subst(&|sym| point.iter().find(|value| value.0 == sym).map(|value| value.1));
            let is_outer = [moved.lhs, moved.rhs].iter().all(|e| {
                e.syms().into_iter().all(|sym| nests[at].reduced.iter().all(|axis| axis.var != sym))
            });
            is_outer.then_some(moved)
        })?;
        all.insert(at, idle);
    }
    Some(all)
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
