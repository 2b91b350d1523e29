//! Puts off the statement that makes an input's new contents until the old ones are read.
//!
//! It goes behind the last statement that reads them. Statements between them that have to stay behind it come along, and all of these
//! become one nest, in which each point loads before it stores:
//!
//! ```text
//! nest n0 { %0 = load b[i]  store t[i] = %0 }  nest n1 { %0 = load a[i]  store b[i] = %0 }  update a = t
//! =>  nest n1 { %0 = load b[i]  %1 = load a[i]  store t[i] = %0  store b[i] = %1 }  update a = t
//! ```
//!
//! Here two inputs are exchanged: each of the nests overwrites what the other one reads, once `t` is stored to `a`.

use super::overwrites::loads_first;
use super::{cse, inline};
use litz_analysis::Uses;
use litz_analysis::access::substitute;
use litz_ir::ids::Id;
use litz_ir::loops::{Axis, Buf, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_sym::{Expr, Sym};

/// Statements in another order, of which some may have become one.
pub(super) struct PutOff {
    /// Those that leave their places, in order.
    pub(super) moved: Vec<usize>,
    /// Where what comes of them goes: behind this one.
    pub(super) behind: usize,
    /// What comes of them.
    pub(super) nest: Nest,
}

/// How the only writer of a buffer comes behind all readers of another one.
pub(super) fn put_off(loops: &Loops, uses: &Uses, (read, written): (Buf, Buf)) -> Option<PutOff> {
    let &[first] = uses.writers(written) else { return None };
    let &behind = uses.readers(read).last().filter(|&&last| last > first)?;
    let mut moved = vec![first];
    for at in first + 1..=behind {
        if moved.iter().any(|&earlier| is_bound(uses, earlier, at)) {
            moved.push(at);
        }
    }
    let nest = |at: &usize| match &loops.stmts[*at] {
        Stmt::Nest(nest) => Some(nest),
        Stmt::Extern(_) | Stmt::Recurrence(_) => None,
    };
    let nests: Vec<&Nest> = moved.iter().map(nest).collect::<Option<_>>()?;
    let nest = match *nests {
        [only] => only.clone(),
        _ => united(loops, &nests)?,
    };
    Some(PutOff { moved, behind, nest })
}

/// Whether two statements have to stay in their order.
fn is_bound(uses: &Uses, earlier: usize, later: usize) -> bool {
    let meet = |some: &[Buf], others: &[Buf]| some.iter().any(|buf| others.contains(buf));
    meet(uses.writes_of(earlier), uses.reads_of(later))
        || meet(uses.writes_of(earlier), uses.writes_of(later))
        || meet(uses.reads_of(earlier), uses.writes_of(later))
}

/// One nest that does what several do one after another: all have the same points, and what one stores no later one touches.
fn united(loops: &Loops, nests: &[&Nest]) -> Option<Nest> {
    let (last, _) = nests.split_last()?;
    let mut all = Nest { from: Vec::new(), body: Vec::new(), axes: nests[0].axes.clone(), ..(*last).clone() };
    let mut stores: Vec<Inst> = Vec::new();
    for nest in nests {
        let has_points_alone = nest
            .body
            .iter()
            .all(|inst| inst.op.is_term() || matches!(inst.op, InstOp::Store { combine: None, .. }));
        let meets = |inst: &Inst| {
            let mut stored = stores.iter().filter_map(|store| store.op.element());
            inst.op.element().is_some_and(|(buf, _)| stored.any(|(other, _)| other == buf))
        };
        let in_order = nest.reduced.is_empty()
            && nest.idle.is_none()
            && nest.writes().iter().all(|&buf| loads_first(loops, nest, buf));
        if !has_points_alone || !in_order || nest.body.iter().any(meets) {
            return None;
        }
        let points = if all.body.is_empty() { Vec::new() } else { points(loops, nest, (&all, &stores))? };
        let mut map: Vec<Val> = Vec::with_capacity(nest.body.len());
        for inst in &nest.body {
            let mut inst = inst.clone();
            inst.op.operands_mut().into_iter().for_each(|val| *val = map[val.index()]);
            inst.op.map_exprs(&mut |e| substitute(e, &points));
            map.push(Val::new(all.body.len()));
            let is_store = matches!(inst.op, InstOp::Store { .. });
            if is_store { &mut stores } else { &mut all.body }.push(inst);
        }
        for name in &nest.from {
            if !all.from.contains(name) {
                all.from.push(name.clone());
            }
        }
    }
    all.body.extend(stores);
    cse::clean(&mut all);
    all.writes().iter().all(|&buf| loads_first(loops, &all, buf)).then_some(all)
}

/// The values of a nest's axes at the points of another one, where both are at the same element of a buffer that both touch.
fn points(loops: &Loops, nest: &Nest, (all, stores): (&Nest, &[Inst])) -> Option<Vec<(Sym, Expr)>> {
    let whole = |nest: &Nest, inst: &Inst| {
        let (buf, index) = inst.op.element()?;
        Some((buf, inline::axis_of_dims(&loops.bufs[buf], index, nest, &loops.facts)?))
    };
    let theirs: Vec<_> = all.body.iter().chain(stores).filter_map(|inst| whole(all, inst)).collect();
    let mut mine = nest.body.iter().filter_map(|inst| whole(nest, inst));
    let (mine, theirs) = mine.find_map(|(buf, mine)| {
        let (_, theirs) = theirs.iter().find(|their| their.0 == buf)?;
        Some((mine, theirs))
    })?;
    let value = |axis: &Axis| match mine.iter().position(|own| *own == Some(axis.var)) {
        Some(dim) => theirs[dim].map(Expr::sym),
        None => Some(Expr::zero()),
    };
    nest.axes.iter().map(|axis| Some((axis.var, value(axis)?))).collect()
}
