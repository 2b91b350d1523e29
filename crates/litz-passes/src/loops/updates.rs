//! Stores the new contents of an input or constant directly to it, where its old contents are not needed any more.
//!
//! ```text
//! nest n0 { %0 = load p[i] .. store q[i] = %2 }  update p = q  =>  nest n0 { %0 = load p[i] .. store p[i] = %2 }  update p = p
//! ```
//!
//! A step of an optimizer reads and writes each parameter once so. The pass comes late: what the nest takes in of others may
//! read the old contents, too. Where statements behind the nest do, it is put off until they are done (`put_off.rs`).

use super::renaming::{BaseMap, InPlaceNote, NotInPlace, Renaming};
use super::{Cx, inline, put_off};
use litz_analysis::access::{Copied, copied};
use litz_ir::loops::{Buf, BufKind, Inst, InstOp, Loops, Nest, Stmt};

/// Makes updates in place; returns how many.
pub fn run(loops: &mut Loops, _: &Cx<'_>) -> usize {
    rewrite(loops).iter().filter(|note| note.verdict.is_ok()).count()
}

/// Makes updates in place, and says of each that was not what became of it.
pub fn rewrite(loops: &mut Loops) -> Vec<InPlaceNote> {
    let mut renaming = Renaming::of(loops);
    let mut notes = Vec::new();
    for update in 0..renaming.loops.updates.len() {
        put_off(&mut renaming, update);
        notes.extend(rename(&mut renaming, update));
    }
    renaming.finish();
    notes
}

/// Puts off the nest that makes the source of an update, if it could store to the target but for those that read that later.
fn put_off(renaming: &mut Renaming<'_>, update: usize) {
    let (target, source) = renaming.loops.updates[update];
    let is_open = target != source && renaming.loops.bufs[source].kind == BufKind::Temp;
    if !is_open || may_store(renaming, target, source) != Err(NotInPlace::StillRead) {
        return;
    }
    let Renaming { loops, uses, constants, .. } = &*renaming;
    let put_off = put_off::put_off(loops, uses, (target, source)).filter(|put_off| {
        stores_what_it_reads(loops, &put_off.nest, (target, source))
            && put_off.nest.writes().iter().all(|&buf| !constants.is_buffer(buf))
            && loops.results().all(|result| result != target)
    });
    if let Some(put_off) = put_off {
        renaming.reorder(put_off);
    }
}

/// Makes one update in place, if it can be and is not.
pub(super) fn rename(renaming: &mut Renaming<'_>, update: usize) -> Option<InPlaceNote> {
    let (target, source) = renaming.loops.updates[update];
    if target == source || renaming.loops.bufs[source].kind != BufKind::Temp {
        return None;
    }
    let verdict = may_store(renaming, target, source);
    let note = renaming.note(source, target, verdict);
    if verdict.is_ok() {
        let place = BaseMap::same(target, &renaming.loops.bufs[source].sizes);
        renaming.rename(source, &place);
    }
    Some(note)
}

/// Whether those that store the source of an update may store to its target. The old contents are read before that, or
/// by the first of them, which stores each element when it is done with it.
fn may_store(renaming: &Renaming<'_>, target: Buf, source: Buf) -> Result<(), NotInPlace> {
    let Renaming { loops, uses, constants, .. } = renaming;
    let Some(&first) = uses.writers(source).first() else { return Err(NotInPlace::KeptForCalls) };
    if constants.is_buffer(source) {
        return Err(NotInPlace::KeptForCalls);
    }
    if loops.updates.iter().filter(|update| update.1 == source).count() > 1 {
        return Err(NotInPlace::WrittenTwice);
    }
    if is_kept(renaming, first, (target, source)) {
        return Ok(());
    }
    if uses.readers(source).iter().any(|&reader| reader < first) {
        return Err(NotInPlace::OtherElements);
    }
    if uses.readers(target).iter().any(|&reader| reader > first)
        || loops.results().any(|result| result == target)
    {
        return Err(NotInPlace::StillRead);
    }
    let is_ours = match &loops.stmts[first] {
        Stmt::Nest(nest) => stores_what_it_reads(loops, nest, (target, source)),
        Stmt::Extern(_) | Stmt::Recurrence(_) => !uses.readers(target).contains(&first),
    };
    if is_ours { Ok(()) } else { Err(NotInPlace::OtherElements) }
}

/// Whether the source of an update is a copy of its target, made by the statement at a position, and neither is stored to otherwise.
fn is_kept(Renaming { loops, uses, .. }: &Renaming<'_>, at: usize, (target, source): (Buf, Buf)) -> bool {
    let Stmt::Nest(nest) = &loops.stmts[at] else { return false };
    let Some(Copied { from, read, written, .. }) = copied(loops, nest) else { return false };
    from == target
        && read == written
        && inline::axis_of_dims(&loops.bufs[source], written, nest, &loops.facts).is_some()
        && uses.writers(source) == [at]
        && uses.writers(target).is_empty()
}

/// Whether a nest stores each element of `source` once and, of `target`, reads before that, at that point, the element of the same place
/// alone.
fn stores_what_it_reads(loops: &Loops, nest: &Nest, (target, source): (Buf, Buf)) -> bool {
    let is_store = |inst: &Inst| matches!(inst.op, InstOp::Store { buf, .. } if buf == source);
    let Some(at) = nest.body.iter().position(is_store) else { return false };
    let InstOp::Store { index: written, combine: None, .. } = &nest.body[at].op else { return false };
    let is_plain = nest.reduced.is_empty()
        && nest.scanned().next().is_none()
        && nest.axes.iter().all(|axis| !axis.extent.is_zero());
    let is_same = |(other, inst): (usize, &Inst)| match inst.op.element() {
        Some((buf, _)) if buf == source => other == at,
        Some((buf, index)) if buf == target => index == written && other < at,
        Some(_) | None => true,
    };
    is_plain
        && inline::axis_of_dims(&loops.bufs[source], written, nest, &loops.facts).is_some()
        && nest.body.iter().enumerate().all(is_same)
}
