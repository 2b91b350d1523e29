//! Merges a nest that fills a buffer with one that stores to a window of it, so that consumers can inline the result:
//!
//! ```text
//! nest n0 [i in 8] { .. store z[i] = %1 }  nest n1 [j in 3] { .. store z[j + 2] = %2 }
//! => nest n0 [i in 8] { .. %3 = select (2 <= i < 5), %2 at i - 2, %1  store z[i] = %3 }
//! ```

use super::inline;
use super::{Cx, Edits, cse};
use litz_analysis::Uses;
use litz_analysis::access::{Stride, stride};
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Nest, Stmt};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashMap;

/// Unites such nests; returns how many are gone.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let mut uses = Uses::of(loops);
    let mut edits = Edits::default();
    let mut gone = 0;
    for at in 0..loops.stmts.len() {
        let Some((filled, nest)) = united(loops, at, &uses, cx) else { continue };
        edits.remove(filled);
        uses.update(filled, None);
        loops.stmts[at] = Stmt::Nest(nest);
        uses.update(at, Some(&loops.stmts[at]));
        gone += 1;
    }
    edits.apply(loops);
    gone
}

/// What a nest stores to: for each dimension of the buffer an axis, and where the window begins and how far its elements are
/// apart along it.
pub struct Window {
    dims: Vec<Dim>,
}

/// A window along one dimension.
enum Dim {
    /// All of it, counted by an axis.
    Whole(Sym),
    /// `start + step * axis`, for so many values of the axis.
    Range { axis: Sym, start: Expr, step: i64, count: Expr },
    /// One coordinate.
    At(Expr),
}

/// The window of a buffer that the statement at a position stores to, if it is a nest that does nothing else and stores each of
/// its elements once.
pub fn of(loops: &Loops, at: usize, buf: Buf) -> Option<Window> {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return None };
    let (stored, index) = inline::single_store(nest)?;
    let has_checks = nest.body.iter().any(|inst| matches!(inst.op, InstOp::Bind { .. }));
    if stored != buf || has_checks {
        return None;
    }
    let mut left: Vec<Sym> = nest.axes.iter().map(|axis| axis.var).collect();
    let mut dims = Vec::with_capacity(index.len());
    for (&at, &size) in index.iter().zip(&loops.bufs[buf].sizes) {
        let on: Vec<_> = nest.axes.iter().filter(|axis| at.has_sym(axis.var)).collect();
        dims.push(match on[..] {
            [] => Dim::At(at),
            [axis] => {
                left.iter().position(|&var| var == axis.var).map(|found| left.remove(found))?;
                let by = match stride(at, axis.var) {
                    Stride::Unit => 1,
                    Stride::Elements(by) => by.as_int().filter(|&by| by > 0)?,
                    Stride::Zero | Stride::Irregular => return None,
                };
                let start = loops.facts.simplify(at - Expr::sym(axis.var) * by);
                let is_whole = by == 1 && start.is_zero() && loops.facts.holds(&Rel::eq(axis.extent, size));
                match is_whole {
                    true => Dim::Whole(axis.var),
                    false => Dim::Range { axis: axis.var, start, step: by, count: axis.extent },
                }
            }
            _ => return None,
        });
    }
    let is_one = |var: &Sym| nest.axes.iter().any(|axis| axis.var == *var && axis.extent.is_one());
    left.iter().all(is_one).then_some(Window { dims })
}

/// The nest that does what the one at a position, which stores to a window, and the one that filled the buffer do, and the
/// position of that one.
fn united(loops: &Loops, at: usize, uses: &Uses, cx: &Cx<'_>) -> Option<(usize, Nest)> {
    let Stmt::Nest(inner) = &loops.stmts[at] else { return None };
    let (buf, _) = inline::single_store(inner)?;
    let window = of(loops, at, buf)?;
    let before = uses.writers(buf).iter().rposition(|&writer| writer < at)?;
    let filled = uses.writers(buf)[before];
    let Stmt::Nest(outer) = &loops.stmts[filled] else { return None };
    let (_, store) = inline::single_store(outer)?;
    let data = &loops.bufs[buf];
    let axes = inline::axis_of_dims(data, store, outer, &loops.facts)?;
    let is_between = |user: &usize| (filled + 1..=at).contains(user);
    let is_read = uses.readers(buf).iter().any(is_between);
    let is_changed = uses.reads_of(filled).iter().any(|&source| uses.writers(source).iter().any(is_between));
    let has_checks = outer.body.iter().any(|inst| matches!(inst.op, InstOp::Bind { .. }));
    // Of many windows each costs a choice at every element: those that come later are stored by themselves.
    let fits = outer.body.len() + inner.body.len() + 3 * window.dims.len() <= cx.inlining.max_body
        && inline::loads(outer) + inline::loads(inner) <= cx.inlining.max_loads;
    if before > 0 || is_read || is_changed || has_checks || !fits || data.kind != BufKind::Temp {
        return None;
    }
    let facts = outer.facts(&loops.facts);
    let (mut guard, mut place) = (Vec::new(), HashMap::new());
    for (dim, axis) in window.dims.iter().zip(&axes) {
        let here = axis.map_or(Expr::zero(), Expr::sym);
        match *dim {
            Dim::Whole(var) => drop(place.insert(var, here)),
            Dim::At(at) => guard.push(Rel::eq(here, at)),
            Dim::Range { axis, start, step, count } => {
                let along = here - start;
                guard.push(Rel::le(0, along));
                // Up to the last element, not to the end of its step, which may be past the end of what is read.
                guard.push(Rel::lt(along, (count - 1) * step + 1));
                if step > 1 {
                    guard.push(Rel::eq(along.modulo(step), 0));
                }
                place.insert(axis, along.floordiv(step));
            }
        }
    }
    guard.retain(|rel| !facts.holds(rel));
    let mut body: Vec<Inst> = outer.body.clone();
    let Some(Inst { op: InstOp::Store { value: old, .. }, .. }) = body.pop() else { return None };
    let known = inline::where_holds(&facts, &guard);
    let new = inline::splice(inner, &place, &guard, &known, &mut body, &mut 0);
    let value = inline::chosen(&mut body, &guard, (new, old), data.dtype);
    let store = InstOp::Store { buf, index: store.to_vec(), value, combine: None };
    body.push(Inst { op: store, ty: data.dtype });
    let mut nest = Nest { body, ..outer.clone() };
    nest.from.extend(inner.from.iter().filter(|from| !outer.from.contains(from)).cloned());
    cse::clean(&mut nest);
    Some((filled, nest))
}
