//! Updates a buffer in place instead of a copy of it, where the old contents are not read any more.
//!
//! ```text
//! nest n0 { %0 = load y[i]  store z[i] = %0 }  nest n1 { .. store z[t] = %1 }  =>  nest n1 { .. store y[t] = %1 }
//! ```
//!
//! This is a renaming: every access of `z` becomes one of the same element of `y`. What is left are buffers with several writers,
//! whose order all later stages keep anyway; no stage knows that two names share memory. A base may be an input or a constant that is
//! updated: an update of a buffer by itself says that a call may store to it.
//!
//! Updates with copies come first, then copies from the last to the first. A write through a view of a view is a copy of the
//! whole in which a copy of the part is stored: once the whole is changed in place, the copy of the part is found to go back
//! where it came from. Updates with other results wait until other nests have taken in what they read ([`super::updates`]).

use super::overwrites::reads_once;
use super::ranges::are_apart;
use super::renaming::{BaseMap, InPlaceNote, NotInPlace, Renaming};
use super::{Cx, inline, positions, updates, windows};
use litz_analysis::access::{Copied, copied, substitute};
use litz_ir::loops::{
    Buf, BufData, BufKind, Callee, Extern, HostCall, Inst, InstOp, Loops, Nest, Stmt, View,
};
use litz_sym::{Expr, Sym};
use std::collections::HashSet;

/// Renames buffers; returns how many.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    let notes = rewrite(loops);
    // A GPU would be waited for in the middle of each call.
    if cx.target.gpu().is_none() {
        positions::check_first(loops);
    }
    notes.iter().filter(|note| note.verdict.is_ok()).count()
}

/// Renames buffers, and says of each that was considered what became of it.
pub fn rewrite(loops: &mut Loops) -> Vec<InPlaceNote> {
    let mut renaming = Renaming::of(loops);
    let mut notes = Vec::new();
    for update in 0..renaming.loops.updates.len() {
        let source = renaming.loops.updates[update].1;
        let first = renaming.uses.writers(source).first().map(|&first| &renaming.loops.stmts[first]);
        if matches!(first, Some(Stmt::Nest(nest)) if copy(renaming.loops, nest).is_some()) {
            notes.extend(updates::rename(&mut renaming, update));
        }
    }
    // One result may be a changed copy and the source of an update: it is counted once.
    let noted: HashSet<String> = notes.iter().map(|note: &InPlaceNote| note.result.clone()).collect();
    let copies = (0..renaming.gone.len()).rev().filter_map(|at| renaming.changed_copy(at));
    let copies: Vec<InPlaceNote> = copies.collect();
    notes.extend(copies.into_iter().rev().filter(|note| !noted.contains(&note.result)));
    renaming.finish();
    notes
}

impl Renaming<'_> {
    /// Renames the copy that the statement at a position makes, if others change it.
    fn changed_copy(&mut self, at: usize) -> Option<InPlaceNote> {
        let Stmt::Nest(nest) = &self.loops.stmts[at] else { return None };
        let (result, place) = copy(self.loops, nest)?;
        if self.gone[at] || self.uses.writers(result) == [at] {
            return None;
        }
        let verdict = self.may_take(at, nest, result, &place);
        let note = self.note(result, place.base, verdict);
        if verdict.is_ok() {
            self.rename(result, &place);
        }
        Some(note)
    }

    /// Whether all that touches the copy which `nest` at a position makes may touch the base instead.
    fn may_take(&self, at: usize, nest: &Nest, result: Buf, place: &BaseMap) -> Result<(), NotInPlace> {
        let base = place.base;
        if self.constants.is_buffer(base) {
            // A constant that is not updated is one of these.
            let is_given = self.loops.bufs[base].kind != BufKind::Temp;
            return Err(if is_given { NotInPlace::NotUpdated } else { NotInPlace::KeptForCalls });
        }
        let is_first = |users: &[usize]| users.iter().all(|&user| user >= at);
        if !is_first(self.uses.readers(result)) || !is_first(self.uses.writers(result)) {
            return Err(NotInPlace::WrittenTwice);
        }
        self.is_given_up(at, result, place)?;
        let loads = |inst: &Inst| {
            let is_read = !matches!(inst.op, InstOp::Store { combine: None, .. });
            is_read && inst.op.element().is_some_and(|(buf, _)| buf == base)
        };
        let of_host = self.whole_in_base(result, place);
        let mut later = self.uses.readers(base).iter().filter(|&&reader| reader > at);
        let is_apart =
            |user: usize| of_host.as_ref().is_some_and(|whole| self.is_apart_for_host(user, whole));
        if !later.all(|&reader| is_apart(reader) || self.is_elsewhere(reader, (nest, place), &loads)) {
            return Err(NotInPlace::StillRead);
        }
        for &writer in self.uses.writers(base).iter().filter(|&&user| user > at) {
            let stores = |inst: &Inst| matches!(inst.op, InstOp::Store { buf, .. } if buf == base);
            if self.is_used_from(result, writer)
                && !self.goes_back(writer, result, place)
                && !is_apart(writer)
                && !self.is_elsewhere(writer, (nest, place), &stores)
            {
                let is_updated = self.loops.bufs[base].kind != BufKind::Temp;
                return Err(match is_updated && self.loops.results().any(|buf| buf == result) {
                    true => NotInPlace::ResultOutlivesUpdate,
                    false => NotInPlace::WrittenTwice,
                });
            }
        }
        // Memory is taken on the stream that has it to itself.
        let stream = |buf: Buf| self.loops.bufs[buf].stream;
        let is_shared = [base, result].into_iter().any(|buf| {
            let users = [self.uses.readers(buf), self.uses.writers(buf)].concat();
            self.loops.crosses_streams(buf, &users)
        });
        if stream(base) != stream(result) || is_shared {
            return Err(NotInPlace::OtherStream);
        }
        if !self.is_same_layout(result, place) && self.needs_layout(result, of_host.is_some()) {
            return Err(NotInPlace::OtherLayout);
        }
        if !reads_once(self.loops, nest) {
            return Err(NotInPlace::RepeatedElements);
        }
        if self.fuses_better(at, result, base) { Err(NotInPlace::FusesBetter) } else { Ok(()) }
    }

    /// Whether what the base holds when all statements are done is nobody's, or does not depend on the result: a later statement
    /// stores all of it.
    fn is_given_up(&self, at: usize, result: Buf, place: &BaseMap) -> Result<(), NotInPlace> {
        let (base, loops) = (place.base, &*self.loops);
        if loops.bufs[base].kind != BufKind::Temp && !loops.updates.contains(&(base, base)) {
            let is_updated = loops.updates.iter().any(|update| update.0 == base);
            return Err(if is_updated { NotInPlace::StillRead } else { NotInPlace::NotUpdated });
        }
        let mut later = self.uses.writers(base).iter().filter(|&&writer| writer > at);
        let is_wanted = loops.results().any(|buf| buf == base);
        match is_wanted && !later.any(|&writer| self.stores_all(writer, result, place)) {
            true => Err(NotInPlace::StillRead),
            false => Ok(()),
        }
    }

    /// Whether a statement stores all elements of the base that the result could have changed: it copies the result back, which
    /// stays as it is from then on, or nobody touches the result any more.
    fn stores_all(&self, at: usize, result: Buf, place: &BaseMap) -> bool {
        let Stmt::Nest(nest) = &self.loops.stmts[at] else { return false };
        let covers = |buf: Buf, index: &[Expr]| {
            inline::axis_of_dims(&self.loops.bufs[buf], index, nest, &self.loops.facts).is_some()
        };
        if self.goes_back(at, result, place) {
            let is_whole = nest.body[0].op.element().is_some_and(|(_, index)| covers(result, index));
            return is_whole && self.uses.writers(result).iter().all(|&writer| writer < at);
        }
        let stored = inline::single_store(nest).filter(|(buf, _)| *buf == place.base);
        stored.is_some_and(|(buf, index)| covers(buf, index)) && !self.is_used_from(result, at)
    }

    /// Whether somebody touches a buffer at a statement or later.
    fn is_used_from(&self, buf: Buf, at: usize) -> bool {
        let users = self.uses.readers(buf).iter().chain(self.uses.writers(buf));
        self.loops.results().any(|result| result == buf) || { users }.any(|&user| user >= at)
    }

    /// Whether the instructions that `of` picks from a statement touch none of the elements that the copy has.
    fn is_elsewhere(&self, at: usize, (copy, place): (&Nest, &BaseMap), of: &dyn Fn(&Inst) -> bool) -> bool {
        let Stmt::Nest(other) = &self.loops.stmts[at] else { return false };
        let picked = other.body.iter().filter(|inst| of(inst)).filter_map(|inst| inst.op.element());
        { picked }.all(|(_, index)| are_apart(&self.loops.facts, (other, index), (copy, &place.index)))
    }

    /// Whether a statement copies elements of the result to where they came from.
    fn goes_back(&self, at: usize, result: Buf, place: &BaseMap) -> bool {
        let Stmt::Nest(nest) = &self.loops.stmts[at] else { return false };
        let Some(Copied { from, read, to, written }) = copied(self.loops, nest) else { return false };
        from == result && to == place.base && place.of(read, nest, self.loops) == written
    }

    /// Whether an element of the result lies as far from the first one as the base's element of its coordinates does.
    fn is_same_layout(&self, result: Buf, place: &BaseMap) -> bool {
        let [result, base] = [result, place.base].map(|buf| &self.loops.bufs[buf]);
        let own: Vec<Expr> = place.axes.iter().map(|axis| axis.map_or(Expr::zero(), Expr::sym)).collect();
        result.sizes == base.sizes && result.strides == base.strides && own == place.index
    }

    /// Whether somebody takes the result for the vector that it is in memory. To the host its whole can be given as a part of the base,
    /// if that has the same strides.
    fn needs_layout(&self, result: Buf, is_part_of_base: bool) -> bool {
        let data = &self.loops.bufs[result];
        let is_whole = |view: &View| {
            view.buf != result || view.offset.is_zero() && is_laid_out_as(&view.sizes, &view.strides, data)
        };
        let takes_memory = |&user: &usize| match &self.loops.stmts[user] {
            Stmt::Nest(_) => false,
            Stmt::Extern(Extern { callee: Callee::Host(call), .. }) if is_part_of_base => {
                let is_given = views(call).iter().any(|view| view.buf == result);
                gives(call, result) || !is_given || !views(call).iter().all(|view| is_whole(view))
            }
            Stmt::Extern(_) | Stmt::Recurrence(_) => true,
        };
        let users = self.uses.readers(result).iter().chain(self.uses.writers(result));
        self.loops.results().any(|buf| buf == result) || { users }.any(takes_memory)
    }

    /// Whether a statement is a call of the host to which all that it is given of a buffer is known to be apart from a part of it.
    fn is_apart_for_host(&self, at: usize, part: &View) -> bool {
        let Stmt::Extern(Extern { callee: Callee::Host(call), .. }) = &self.loops.stmts[at] else {
            return false;
        };
        let mut given = views(call).into_iter().filter(|view| view.buf == part.buf);
        !gives(call, part.buf) && given.all(|view| view.is_apart(part, &self.loops.facts))
    }

    /// Whether one nest can compute the base and all that changes it: then the base is stored nowhere, while in place it
    /// would have to be there before it is changed.
    fn fuses_better(&self, at: usize, result: Buf, base: Buf) -> bool {
        let &[writer] = self.uses.writers(base) else { return false };
        let Stmt::Nest(producer) = &self.loops.stmts[writer] else { return false };
        let is_window = |&user: &usize| user == at || windows::of(self.loops, user, result).is_some();
        self.loops.is_internal(base)
            && self.uses.readers(base) == [at]
            && inline::single_store(producer).is_some()
            && self.uses.writers(result).iter().all(is_window)
    }
}

/// The buffer that a nest does nothing but copy another one, or a part of one, to, and where each element comes from.
fn copy(loops: &Loops, nest: &Nest) -> Option<(Buf, BaseMap)> {
    let Copied { from: base, read: index, to: result, written } = copied(loops, nest)?;
    let target = &loops.bufs[result];
    if base == result || target.kind != BufKind::Temp {
        return None;
    }
    let axes = inline::axis_of_dims(target, written, nest, &loops.facts)?;
    // Axes of one point are left out: their only value is 0.
    let single = nest.axes.iter().filter(|axis| axis.extent.is_one());
    let single: Vec<(Sym, Expr)> = single.map(|axis| (axis.var, Expr::zero())).collect();
    let index: Vec<Expr> = index.iter().map(|&at| substitute(at, &single)).collect();
    let is_known = index
        .iter()
        .flat_map(|at| at.syms())
        .all(|sym| axes.contains(&Some(sym)) || loops.facts.is_symbol_declared(sym));
    is_known.then_some((result, BaseMap { base, axes, index }))
}

/// What a call of the host is given.
fn views(call: &HostCall) -> Vec<&View> {
    let mut views = Vec::new();
    call.args.iter().for_each(|arg| arg.each_tensor(&mut |view, _| views.push(view)));
    views
}

/// Whether a buffer is a result of a call of the host.
fn gives(call: &HostCall, buf: Buf) -> bool {
    call.results.iter().any(|result| result.written() == Some(&buf))
}

/// Whether sizes and strides are those of a buffer, where there is a second element.
fn is_laid_out_as(sizes: &[Expr], strides: &[Expr], data: &BufData) -> bool {
    let is_same = |dim: usize| data.sizes[dim].is_one() || strides.get(dim) == Some(&data.strides[dim]);
    sizes == data.sizes && (0..sizes.len()).all(is_same)
}
