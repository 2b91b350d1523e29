//! Renames buffers: every access of one becomes one of the same element of another, and statements that nothing is left of go.

use super::overwrites::changes_nothing;
use super::put_off::PutOff;
use litz_analysis::Uses;
use litz_analysis::access::substitute;
use litz_analysis::constants::Constants;
use litz_ir::graph::contiguous_strides;
use litz_ir::loops::{Buf, Callee, InstOp, Loops, Nest, Output, Stmt, View};
use litz_sym::{Expr, Sym};

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

/// Maps each element of the result to the element of the base whose memory it is to take.
pub(super) struct BaseMap {
    pub(super) base: Buf,
    /// For each dimension of the result the symbol that stands for its coordinate; none where it has one element.
    pub(super) axes: Vec<Option<Sym>>,
    /// Coordinates in the base.
    pub(super) index: Vec<Expr>,
}

/// A program of which buffers are renamed.
pub(super) struct Renaming<'a> {
    pub(super) loops: &'a mut Loops,
    pub(super) uses: Uses,
    pub(super) constants: Constants,
    /// Statements that nothing is left of.
    pub(super) gone: Vec<bool>,
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

    /// The part of the base's memory that has the elements of the result, if it has the result's strides.
    pub(super) fn whole_in_base(&self, result: Buf, place: &BaseMap) -> Option<View> {
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
    pub(super) fn of(&self, index: &[Expr], nest: &Nest, loops: &Loops) -> Vec<Expr> {
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
