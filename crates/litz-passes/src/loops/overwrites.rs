//! Decides whether a nest may store to a buffer that it reads: whether it would give the same if all of its points loaded before any
//! stored.

use litz_analysis::access::{Access, accesses, copied};
use litz_analysis::apart::Visit;
use litz_ir::loops::{Buf, Loops, Nest, Stmt};
use litz_sym::{Expr, Sym};
use std::iter;

/// Whether no point of a nest loads an element of a buffer that another of its points stores, and each loads its own before it
/// stores it.
pub(super) fn loads_first(loops: &Loops, nest: &Nest, buf: Buf) -> bool {
    let of_buf: Vec<Access<'_>> = accesses(nest).filter(|access| access.buf == buf).collect();
    let (stores, loads): (Vec<_>, Vec<_>) = of_buf.into_iter().partition(|access| access.store);
    let is_plain = !nest.reduces() && nest.scanned().next().is_none();
    let Some(visit) = own_points(loops, nest) else { return true };
    is_plain
        && stores.iter().all(|store| {
            let stored = visit.touch(store.at);
            !store.combines
                && loads.iter().all(|load| {
                    let is_apart = match (&stored, visit.touch(load.at)) {
                        (Some(stored), Some(loaded)) => stored.is_apart(&nest.axes, &loaded),
                        // What never happens touches nothing.
                        (None, _) | (_, None) => true,
                    };
                    load.at < store.at && is_apart
                })
        })
}

/// Whether a nest that copies reads no element of the base at two of its points: a change of one of two elements that took the memory
/// of one would change the other, too.
pub(super) fn reads_once(loops: &Loops, nest: &Nest) -> bool {
    // Without points there is nothing to read.
    let Some(visit) = own_points(loops, nest) else { return true };
    visit.touch(0).is_none_or(|read| read.is_apart(&nest.axes, &read))
}

/// Whether a statement stores only what is there already.
pub(super) fn changes_nothing(loops: &Loops, stmt: &Stmt) -> bool {
    let Stmt::Nest(nest) = stmt else { return false };
    copied(loops, nest).is_some_and(|copied| copied.from == copied.to && copied.read == copied.written)
}

/// A nest at all of its points. None where it has none.
fn own_points<'a>(loops: &'a Loops, nest: &'a Nest) -> Option<Visit<'a>> {
    let points: Vec<(Sym, Expr)> = nest.indices().map(|axis| (axis.var, Expr::sym(axis.var))).collect();
    Visit::new(loops, nest, &points, nest.indices(), iter::empty())
}
