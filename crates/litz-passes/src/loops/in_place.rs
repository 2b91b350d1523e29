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

use super::overwrites::{changes_nothing, reads_once};
use super::put_off::PutOff;
use super::ranges::are_apart;
use super::{Cx, inline, positions, updates, windows};
use litz_analysis::Uses;
use litz_analysis::access::{Copied, copied, substitute};
use litz_analysis::constants::Constants;
use litz_ir::graph::contiguous_strides;
use litz_ir::loops::{
    Buf, BufData, BufKind, Callee, Extern, HostCall, Inst, InstOp, Loops, Nest, Output, Stmt, View,
};
use litz_sym::{Expr, Sym};
use std::collections::HashSet;

/// A result that could have taken the memory of another buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InPlaceNote {
    /// The result.
    pub result: String,
    /// The buffer that it is a changed copy of.
    pub base: String,
    /// Bytes of the copy, by hints of sizes.
    pub bytes: i64,
    /// Whether it took the base's memory.
    pub verdict: Result<(), NotInPlace>,
}

/// Why a result did not take the memory of its base.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NotInPlace {
    /// The base is an input or a constant that no update changes.
    NotUpdated,
    /// What the base holds is read later.
    StillRead,
    /// The base is updated with something else while the result is returned.
    ResultOutlivesUpdate,
    /// Another statement stores to the base later.
    WrittenTwice,
    /// The nest that computes the base can inline the change.
    FusesBetter,
    /// The result needs another layout in memory than the base has.
    OtherLayout,
    /// Another stream makes or reads one of them.
    OtherStream,
    /// The base is computed when the model is loaded, once for all calls.
    KeptForCalls,
    /// The nest that computes the result reads other elements of the base than the one that it stores.
    OtherElements,
    /// Several elements of the result are copies of one of the base.
    RepeatedElements,
}

impl NotInPlace {
    /// Its name.
    pub fn slug(self) -> &'static str {
        match self {
            NotInPlace::NotUpdated => "not-updated",
            NotInPlace::StillRead => "still-read",
            NotInPlace::ResultOutlivesUpdate => "result-outlives-update",
            NotInPlace::WrittenTwice => "written-twice",
            NotInPlace::FusesBetter => "fuses-better",
            NotInPlace::OtherLayout => "other-layout",
            NotInPlace::OtherStream => "other-stream",
            NotInPlace::KeptForCalls => "kept-for-calls",
            NotInPlace::OtherElements => "other-elements",
            NotInPlace::RepeatedElements => "repeated-elements",
        }
    }
}

/// Renames buffers; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    rewrite(loops).iter().filter(|note| note.verdict.is_ok()).count()
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
    positions::check_first(loops);
    notes
}

/// Maps each element of the result to the element of the base whose memory it is to take.
pub(super) struct BaseMap {
    base: Buf,
    /// For each dimension of the result the symbol that stands for its coordinate; none where it has one element.
    axes: Vec<Option<Sym>>,
    /// Coordinates in the base.
    index: Vec<Expr>,
}

/// A program of which buffers are renamed.
pub(super) struct Renaming<'a> {
    pub(super) loops: &'a mut Loops,
    pub(super) uses: Uses,
    pub(super) constants: Constants,
    /// Statements that nothing is left of.
    gone: Vec<bool>,
}

impl<'a> Renaming<'a> {
    pub(super) fn of(loops: &'a mut Loops) -> Renaming<'a> {
        let uses = Uses::of(loops);
        let constants = Constants::of(loops, &[], &uses);
        Renaming { gone: vec![false; loops.stmts.len()], loops, uses, constants }
    }

    /// Puts statements off.
    pub(super) fn reorder(&mut self, PutOff { moved, behind, nest }: PutOff) {
        self.loops.stmts.insert(behind + 1, Stmt::Nest(nest));
        self.gone.insert(behind + 1, false);
        for &at in moved.iter().rev() {
            self.loops.stmts.remove(at);
            self.gone.remove(at);
        }
        self.uses = Uses::of(self.loops);
        (0..self.gone.len()).filter(|&at| self.gone[at]).for_each(|at| self.uses.update(at, None));
    }

    /// Removes statements that nothing is left of.
    pub(super) fn finish(self) {
        let mut gone = self.gone.iter();
        self.loops.stmts.retain(|_| gone.next() == Some(&false));
    }

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

    pub(super) fn note(&self, result: Buf, base: Buf, verdict: Result<(), NotInPlace>) -> InPlaceNote {
        let data = &self.loops.bufs[result];
        let elements = self.loops.facts.hint(data.elements()).unwrap_or(0);
        InPlaceNote {
            result: data.name.clone(),
            base: self.loops.bufs[base].name.clone(),
            bytes: elements.saturating_mul(data.dtype.size() as i64),
            verdict,
        }
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

    /// The part of the base's memory that has the elements of the result, if it has the result's strides.
    fn whole_in_base(&self, result: Buf, place: &BaseMap) -> Option<View> {
        let (data, base) = (&self.loops.bufs[result], &self.loops.bufs[place.base]);
        let mut facts = self.loops.facts.clone();
        let axes = || place.axes.iter().enumerate().filter_map(|(dim, axis)| Some((dim, (*axis)?)));
        axes().for_each(|(dim, axis)| facts.declare_index(axis, data.sizes[dim]));
        let steps = place.index.iter().zip(&base.strides).map(|(&at, &stride)| facts.simplify(at) * stride);
        let element: Expr = facts.simplify(steps.sum());
        let origin: Vec<(Sym, Expr)> = axes().map(|(_, axis)| (axis, Expr::zero())).collect();
        let offset = facts.simplify(substitute(element, &origin));
        let along: Expr = axes().map(|(dim, axis)| Expr::sym(axis) * data.strides[dim]).sum();
        // Of a packed base, whose element has the digits of its place as coordinates: a sum of quotients and remainders.
        let digit = |dim: usize| {
            let digit = (offset + along).floordiv(base.strides[dim]);
            let digit = if dim > 0 { digit.modulo(base.sizes[dim]) } else { digit };
            facts.simplify(digit) == facts.simplify(place.index[dim])
        };
        let is_linear = facts.simplify(element - offset - along).is_zero()
            || base.strides == contiguous_strides(&base.sizes) && (0..base.sizes.len()).all(digit);
        let (sizes, strides) = (data.sizes.clone(), data.strides.clone());
        is_linear.then_some(View { buf: place.base, sizes, strides, offset })
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

    /// Makes every access of `result` one of the base.
    pub(super) fn rename(&mut self, result: Buf, place: &BaseMap) {
        let offset = self.whole_in_base(result, place).map_or(Expr::zero(), |whole| whole.offset);
        let mut users = [self.uses.readers(result), self.uses.writers(result)].concat();
        users.sort_unstable();
        users.dedup();
        for at in users {
            let mut stmt = self.loops.stmts[at].clone();
            match &mut stmt {
                Stmt::Nest(nest) => place.put(result, nest, self.loops),
                Stmt::Recurrence(region) => {
                    region.carry.iter_mut().filter(|buf| **buf == result).for_each(|buf| *buf = place.base);
                    region.nests.iter_mut().for_each(|nest| place.put(result, nest, self.loops));
                }
                Stmt::Extern(call) => {
                    if let Callee::Host(call) = &mut call.callee {
                        let mut shift = |view: &mut View| {
                            view.offset = if view.buf == result { view.offset + offset } else { view.offset };
                        };
                        call.args.iter_mut().for_each(|arg| arg.each_tensor_mut(&mut shift));
                    }
                    call.each_buf_mut(|buf| *buf = if *buf == result { place.base } else { *buf });
                }
            }
            self.gone[at] = changes_nothing(self.loops, &stmt);
            self.uses.update(at, (!self.gone[at]).then_some(&stmt));
            self.loops.stmts[at] = stmt;
        }
        for output in &mut self.loops.outputs {
            if let Output::View { buf, .. } | Output::Number(buf) = output
                && *buf == result
            {
                *buf = place.base;
            }
        }
        self.loops
            .updates
            .iter_mut()
            .filter(|update| update.1 == result)
            .for_each(|update| update.1 = place.base);
    }
}

impl BaseMap {
    /// The same place in a buffer of the same sizes.
    pub(super) fn same(base: Buf, sizes: &[Expr]) -> BaseMap {
        let axis = |dim: usize| (!sizes[dim].is_one()).then(|| Sym::new(&format!("d{dim}")));
        let axes: Vec<Option<Sym>> = (0..sizes.len()).map(axis).collect();
        let index = axes.iter().map(|axis| axis.map_or(Expr::zero(), Expr::sym)).collect();
        BaseMap { base, axes, index }
    }

    /// Coordinates in the base of the element of the result that has the coordinates `index` in a nest.
    fn of(&self, index: &[Expr], nest: &Nest, loops: &Loops) -> Vec<Expr> {
        let values = self.axes.iter().zip(index).filter_map(|(axis, &at)| Some(((*axis)?, at)));
        let values: Vec<(Sym, Expr)> = values.collect();
        let facts = nest.facts(&loops.facts);
        self.index.iter().map(|&at| facts.simplify(substitute(at, &values))).collect()
    }

    /// Makes the accesses of `result` in a nest accesses of the base.
    fn put(&self, result: Buf, nest: &mut Nest, loops: &Loops) {
        for at in 0..nest.body.len() {
            let place = match nest.body[at].op.element() {
                Some((buf, index)) if buf == result => self.of(index, nest, loops),
                _ => continue,
            };
            if let InstOp::Load { buf, index, .. } | InstOp::Store { buf, index, .. } = &mut nest.body[at].op
            {
                (*buf, *index) = (self.base, place);
            }
        }
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
