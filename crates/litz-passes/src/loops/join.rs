//! Stores results that are only copied into a larger buffer, such as the operands of a concatenation, there from the start.
//!
//! ```text
//! store a[i, j] = %0  ..  nest copy { %0 = load a[i, j]  store b[i, j + 8] = %0 }  =>  store b[i, j + 8] = %0
//! ```
//!
//! Whoever stores `a` stores elements of `b` earlier than the copy did. So nobody may touch `b` in between, but for stores of
//! elements that are known to be others, and no size may become known in between that says where in `b` they lie.

use super::ranges::are_apart;
use super::{Cx, Edits};
use litz_analysis::Uses;
use litz_analysis::access::{Copied, Stride, accesses, copied, stride, substitute};
use litz_analysis::constants::Constants;
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Nest, Stmt};
use litz_sym::{Expr, Sym};

/// Removes such copies; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let mut uses = Uses::of(loops);
    // What is computed at load stays there, and is copied at each call.
    let constants = Constants::of(loops, &[], &uses);
    let mut edits = Edits::default();
    let mut count = 0;
    // In order: a part that is joined lies between no other part and its copy.
    for at in 0..loops.stmts.len() {
        let Some(copy) = copy_of(loops, at).filter(|copy| !constants.is_buffer(copy.from)) else { continue };
        if !is_stored(loops, &uses, copy.to) || !can_store_there(loops, &uses, &copy, at) {
            continue;
        }
        for writer in uses.writers(copy.from).to_vec() {
            if let Stmt::Nest(nest) = &mut loops.stmts[writer] {
                nest.body.iter_mut().for_each(|inst| redirect(inst, &copy));
            }
            uses.update(writer, Some(&loops.stmts[writer]));
        }
        edits.remove(at);
        uses.update(at, None);
        count += 1;
    }
    edits.apply(loops);
    count
}

/// A nest that does nothing but copy all of a buffer into another one.
struct Copy {
    from: Buf,
    to: Buf,
    /// The axis that counts each dimension of `from`; none where it has one element.
    axes: Vec<Option<Sym>>,
    /// Coordinates in `to`.
    index: Vec<Expr>,
}

/// The copy that a statement is, if neighbours stay neighbours: a store along columns is slower than a copy.
fn copy_of(loops: &Loops, at: usize) -> Option<Copy> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let Copied { from, read, to, written: index } = copied(loops, nest)?;
    let (source, target) = (&loops.bufs[from], &loops.bufs[to]);
    if from == to || !loops.is_internal(from) || target.kind != BufKind::Temp {
        return None;
    }
    let mut axes: Vec<Option<Sym>> = Vec::with_capacity(read.len());
    for (&coordinate, &size) in read.iter().zip(&source.sizes) {
        let axis = coordinate.as_sym().and_then(|sym| nest.axes.iter().find(|axis| axis.var == sym));
        match axis {
            Some(axis) if axis.extent == size && !axes.contains(&Some(axis.var)) => axes.push(Some(axis.var)),
            _ if coordinate.is_zero() && size.is_one() => axes.push(None),
            _ => return None,
        }
    }
    let (place, there) = (loops.place(nest, from, read), loops.place(nest, to, index));
    let keeps = |axis: Sym| stride(place, axis) != Stride::Unit || stride(there, axis) == Stride::Unit;
    let is_complete = nest.axes.iter().all(|axis| axes.contains(&Some(axis.var)));
    let copy = Copy { from, to, axes, index: index.to_vec() };
    (is_complete && nest.axes.iter().all(|axis| keeps(axis.var))).then_some(copy)
}

/// Whether a buffer is stored as a whole in any case. One that pointwise nests fill, copies of what others read among them, may
/// stay in the kernel of who reads it: not if part of it is stored by another.
fn is_stored(loops: &Loops, uses: &Uses, buf: Buf) -> bool {
    let is_far = |&writer: &usize| match &loops.stmts[writer] {
        Stmt::Nest(nest) => {
            nest.reduces() || copy_of(loops, writer).is_some_and(|copy| uses.readers(copy.from) == [writer])
        }
        Stmt::Extern(_) | Stmt::Recurrence(_) => true,
    };
    !loops.is_internal(buf) || uses.writers(buf).iter().all(is_far)
}

/// Whether all that store the source of the copy at `at` can store to its target.
fn can_store_there(loops: &Loops, uses: &Uses, copy: &Copy, at: usize) -> bool {
    let writers = uses.writers(copy.from);
    let Some(&first) = writers.first() else { return false };
    if uses.readers(copy.from) != [at] || writers.iter().any(|&writer| writer > at) {
        return false;
    }
    // Where data decides from which element on the copy stores, that is not known yet where the source is stored.
    let is_late = |&(sym, defined): &(Sym, usize)| defined >= first && loops.mentions(&loops.stmts[at], sym);
    if loops.late_sizes().iter().any(is_late) {
        return false;
    }
    let stores_plainly = |&writer: &usize| match &loops.stmts[writer] {
        stmt if loops.runs_on(stmt) != loops.runs_on(&loops.stmts[at]) => false,
        Stmt::Nest(nest) => {
            let is_other =
                !uses.reads_of(writer).contains(&copy.to) && !uses.writes_of(writer).contains(&copy.to);
            let combines = |inst: &Inst| matches!(inst.op, InstOp::Store { buf, combine: Some(_), .. } if buf == copy.from);
            is_other && !nest.body.iter().any(combines)
        }
        Stmt::Extern(_) | Stmt::Recurrence(_) => false,
    };
    let Stmt::Nest(nest) = &loops.stmts[at] else { return false };
    let is_between = |user: &&usize| (first..at).contains(*user);
    let mut between = uses.writers(copy.to).iter().filter(is_between);
    writers.iter().all(stores_plainly)
        && !uses.readers(copy.to).iter().any(|user| is_between(&user))
        && between.all(|&other| stores_elsewhere(loops, other, (nest, copy)))
}

/// Whether a statement stores only elements of the target that the copy does not: along some dimension it is done before
/// the copy's begin, or the other way round.
fn stores_elsewhere(loops: &Loops, at: usize, (nest, copy): (&Nest, &Copy)) -> bool {
    let Stmt::Nest(other) = &loops.stmts[at] else { return false };
    let stores = accesses(other).filter(|access| access.store && access.buf == copy.to);
    { stores }.all(|store| are_apart(&loops.facts, (other, store.index), (nest, &copy.index)))
}

/// Makes a store to the source of a copy one to its target.
fn redirect(inst: &mut Inst, copy: &Copy) {
    let InstOp::Store { buf, index, .. } = &mut inst.op else { return };
    if *buf == copy.from {
        let values = copy.axes.iter().zip(&*index).filter_map(|(axis, &at)| Some(((*axis)?, at)));
        let values: Vec<(Sym, Expr)> = values.collect();
        (*buf, *index) = (copy.to, copy.index.iter().map(|&at| substitute(at, &values)).collect());
    }
}
