//! Puts the body of a pointwise nest where its result is read, so that the result need not be stored.
//!
//! A producer is taken in when doing so computes nothing twice, or when computing it twice is cheaper than reading it
//! back. A reader that stores to what the producer loads takes it in where each point loads its own element alone: an update of an
//! input is computed right there. Products read their operands once for every tile, and take in what makes their operands of fewer bytes
//! alone (`prologue`). Nor is a producer taken in whose loads are not known to be inside of their buffers at the places
//! where they would happen then.

use super::cost::cost;
use super::{Cx, Edits, cse, overwrites, prologue};
use litz_analysis::access::{Stride, stride};
use litz_analysis::constants::Constants;
use litz_analysis::{Contraction, Uses};
use litz_ir::ScalarOp;
use litz_ir::loops::{Axis, Buf, BufData, Inst, InstOp, Loops, Nest, Stmt, Val};
use litz_ir::target::Target;
use litz_ir::verify::loops::Inside;
use litz_ir::{Dtype, Scalar};
use litz_sym::{Expr, Facts, Rel, Sym};
use std::borrow::Cow;
use std::collections::HashMap;

/// Takes producers in; returns how many nests disappeared.
pub fn run(loops: &mut Loops, cx: &Cx<'_>) -> usize {
    run_on(loops, cx, &|_| true)
}

/// The same for some statements.
pub(super) fn run_on(loops: &mut Loops, cx: &Cx<'_>, is_producer: &dyn Fn(&Stmt) -> bool) -> usize {
    let (mut uses, mut edits) = (Uses::of(loops), Edits::default());
    let constants = Constants::of(loops, &[], &uses);
    let mut inside = Inside::default();
    let mut gone = 0;
    for at in 0..loops.stmts.len() {
        if is_producer(&loops.stmts[at]) && take_in(loops, at, &mut uses, &mut inside, &constants, cx) {
            edits.remove(at);
            gone += 1;
        }
        // All readers of a producer have taken it in: one that stores only what is there already is done by then.
        if overwrites::changes_nothing(loops, &loops.stmts[at]) {
            edits.remove(at);
            uses.update(at, None);
            gone += 1;
        }
    }
    edits.apply(loops);
    gone
}

/// Puts the nest at position `at` into all its readers, if that is right and worth it. `constants` says which buffers
/// depend on the model alone.
fn take_in(
    loops: &mut Loops,
    at: usize,
    uses: &mut Uses,
    inside: &mut Inside,
    constants: &Constants,
    cx: &Cx<'_>,
) -> bool {
    let Stmt::Nest(producer) = &loops.stmts[at] else { return false };
    let Some((buf, store)) = single_store(producer) else { return false };
    let readers = uses.readers(buf).to_vec();
    let Some(&last) = readers.last() else { return false };
    if !loops.is_internal(buf) || uses.writers(buf) != [at] || readers[0] <= at {
        return false;
    }
    let is_overwritten = |source: &Buf| uses.writers(*source).iter().any(|s| (at + 1..last).contains(s));
    if uses.reads_of(at).iter().any(is_overwritten) {
        return false;
    }
    let overwrites = |source: &&Buf| uses.writes_of(last).contains(source);
    let overwritten: Vec<Buf> = uses.reads_of(at).iter().filter(overwrites).copied().collect();
    let Some(axes) = axis_of_dims(&loops.bufs[buf], store, producer, &loops.facts) else { return false };
    let hint = |n: &Nest| -> i64 {
        n.all_axes().map(|a| loops.facts.size_hint(a.extent).max(1)).fold(1, i64::saturating_mul)
    };
    let cheap = cost(producer) <= cx.inlining.cheap && full_loads(producer) <= 1;
    let mut reads = 0;
    for &r in &readers {
        let Stmt::Nest(reader) = &loops.stmts[r] else { return false };
        if loops.runs_on(&loops.stmts[r]) != loops.runs_on(&loops.stmts[at]) {
            return false;
        }
        if prologue::is_wanted(loops, producer, buf, reader, cx) {
            continue;
        }
        // What is computed when the model is loaded would be computed at every call.
        let at_load = |b: &Buf| constants.is_buffer(*b);
        if at_load(&buf) && cost(producer) > 0 && !uses.writes_of(r).iter().all(at_load) {
            return false;
        }
        let here =
            reader.body.iter().filter(|i| matches!(&i.op, InstOp::Load { buf: b, .. } if *b == buf)).count();
        reads += here;
        let fits = reader.body.len() + here * producer.body.len() <= cx.inlining.max_body
            && loads(reader) + here * loads(producer) <= cx.inlining.max_loads.max(loads(reader));
        let is_little =
            cheap && cost(producer) <= 2 || reads_once(reader, buf) && cost(producer) <= cx.inlining.cheap;
        let repeats = hint(reader) > hint(producer) && !is_little;
        let scanned = reader.body.iter().any(|i| matches!(i.op, InstOp::Scan { .. })) && cost(producer) > 2;
        let is_guarded = reader
            .body
            .iter()
            .any(|i| matches!(&i.op, InstOp::Load { buf: b, guard, .. } if *b == buf && !guard.is_empty()));
        // A window over a padded image reads each element many times, and the image may get a border instead.
        let windowed = !reader.reduced.is_empty() && is_guarded;
        // Behind a guard data chooses the first element in the place of none, and there has to be one.
        let chooses_of_none = producer
            .body
            .iter()
            .any(|i| matches!(i.op, InstOp::Bind { extent, .. } if !loops.facts.proves(&Rel::le(1, extent))));
        if !fits
            || windowed
            || is_guarded && chooses_of_none
            || Contraction::by_result(loops, reader).is_some()
            || repeats && loads(producer) > 0
            || scanned
        {
            return false;
        }
    }
    if reads > 1 && (!cheap && loads(producer) > 0 || is_kept(loops, producer, &readers, cx.target)) {
        return false;
    }
    let mut changed = Vec::new();
    for &r in &readers {
        let Stmt::Nest(reader) = &loops.stmts[r] else { return false };
        let mut reader = reader.clone();
        let product = Contraction::by_result(loops, &reader);
        substitute(&mut reader, producer, buf, &loops.bufs[buf], &axes, &loops.facts);
        if product.is_some_and(|product| !prologue::is_same_product(loops, &product, &reader)) {
            return false;
        }
        if !inside.unproved(&reader, &loops.bufs, &loops.facts).is_empty() {
            return false;
        }
        if r == last && !overwritten.iter().all(|&buf| overwrites::loads_first(loops, &reader, buf)) {
            return false;
        }
        changed.push(reader);
    }
    uses.update(at, None);
    for (r, reader) in readers.into_iter().zip(changed) {
        loops.stmts[r] = Stmt::Nest(reader);
        uses.update(r, Some(&loops.stmts[r]));
    }
    true
}

/// Whether threads of a GPU keep what a nest makes for its readers, of which one reduces it: they would have to look up again and again where
/// it comes from, as data says.
fn is_kept(loops: &Loops, producer: &Nest, readers: &[usize], target: &Target) -> bool {
    let reduces = |reader: &usize| loops.stmts[*reader].nests().iter().any(|nest| nest.reduces());
    let is_chosen = producer.body.iter().any(|inst| matches!(inst.op, InstOp::Bind { .. }));
    matches!(target, Target::Gpu(_)) && is_chosen && readers.iter().any(reduces)
}

/// The one store of a nest without reductions or scans. A nest without points stores nothing, and reads what has no
/// elements.
pub(super) fn single_store(nest: &Nest) -> Option<(Buf, &[Expr])> {
    if !nest.reduced.is_empty() || nest.axes.iter().any(|axis| axis.extent.is_zero()) {
        return None;
    }
    let mut found = None;
    for inst in &nest.body {
        match &inst.op {
            InstOp::Store { combine: Some(_), .. } | InstOp::Scan { .. } => return None,
            InstOp::Store { buf, index, .. } => {
                if found.replace((*buf, &index[..])).is_some() {
                    return None;
                }
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
            | InstOp::ArgReduce { .. } => {}
        }
    }
    found
}

/// Whether a nest reads each element of a buffer at one of its points at most, and none at the others: what is loaded to compute the
/// element is loaded no more often than before then.
fn reads_once(reader: &Nest, buf: Buf) -> bool {
    let counts = |index: &[Expr], axis: &Axis| index.iter().any(|&at| stride(at, axis.var) == Stride::Unit);
    reader.body.iter().all(|inst| {
        let InstOp::Load { buf: read, index, guard, .. } = &inst.op else { return true };
        *read != buf || !guard.is_empty() && reader.all_axes().all(|axis| counts(index, axis))
    })
}

pub(super) fn loads(nest: &Nest) -> usize {
    nest.body.iter().filter(|i| matches!(i.op, InstOp::Load { .. })).count()
}

/// Loads of as many elements as a nest has points. Of other operands, as the mean of each channel, few elements are read, and
/// again and again.
fn full_loads(nest: &Nest) -> usize {
    let depends_on_all = |index: &[Expr]| {
        nest.axes.iter().all(|axis| axis.extent.is_one() || index.iter().any(|e| e.has_sym(axis.var)))
    };
    let is_full = |i: &&Inst| matches!(&i.op, InstOp::Load { index, .. } if depends_on_all(index));
    nest.body.iter().filter(is_full).count()
}

/// For each dimension of the buffer the axis that is its coordinate, or `None` for dimensions of one element.
pub(super) fn axis_of_dims(
    buf: &BufData,
    store: &[Expr],
    nest: &Nest,
    facts: &Facts,
) -> Option<Vec<Option<Sym>>> {
    let mut axes: Vec<Option<Sym>> = Vec::with_capacity(store.len());
    for (&size, at) in buf.sizes.iter().zip(store) {
        if size.is_one() {
            axes.push(None);
            continue;
        }
        let axis = nest.axes.iter().find(|axis| Some(axis.var) == at.as_sym())?;
        let counts_all = facts.holds(&Rel::eq(axis.extent, size));
        if !counts_all || axes.contains(&Some(axis.var)) {
            return None;
        }
        axes.push(Some(axis.var));
    }
    // Axes of one point may be left over; any other means that several points store one element.
    let is_told = |axis: &Axis| axes.contains(&Some(axis.var)) || axis.extent.is_one();
    nest.axes.iter().all(is_told).then_some(axes)
}

/// Replaces every load of `buf` in `reader` by the body of `producer`.
fn substitute(
    reader: &mut Nest,
    producer: &Nest,
    buf: Buf,
    data: &BufData,
    axes: &[Option<Sym>],
    facts: &Facts,
) {
    let facts = reader.facts(facts);
    let mut body: Vec<Inst> = Vec::new();
    let mut map: Vec<Val> = Vec::new();
    let mut binds = 0;
    for mut inst in std::mem::take(&mut reader.body) {
        inst.op.operands_mut().into_iter().for_each(|v| *v = map[v.0 as usize]);
        if let InstOp::Load { buf: b, index, guard, other } = &inst.op
            && *b == buf
        {
            // Where the guard fails nothing of this is used.
            let facts = where_holds(&facts, guard);
            let place: HashMap<Sym, Expr> =
                axes.iter().zip(index).filter_map(|(a, &at)| a.map(|a| (a, at))).collect();
            let mut value = splice(producer, &place, guard, &facts, &mut body, &mut binds);
            if inst.ty != data.dtype {
                body.push(Inst { op: InstOp::Cast(value), ty: inst.ty });
                value = Val(body.len() as u32 - 1);
            }
            map.push(guarded(&mut body, value, guard, *other, inst.ty));
        } else {
            map.push(Val(body.len() as u32));
            body.push(inst);
        }
    }
    reader.body = body;
    for from in &producer.from {
        if !reader.from.contains(from) {
            reader.from.insert(0, from.clone());
        }
    }
    cse::clean(reader);
}

/// What is known where the guard holds; if it never does, what is known anywhere.
pub(super) fn where_holds<'a>(facts: &'a Facts, guard: &[Rel]) -> Cow<'a, Facts> {
    let mut known = Cow::Borrowed(facts);
    if guard.iter().all(|&rel| known.to_mut().assume(rel)) { known } else { Cow::Borrowed(facts) }
}

/// Appends the producer's body at that place; returns the value it would have stored.
pub(super) fn splice(
    producer: &Nest,
    place: &HashMap<Sym, Expr>,
    guard: &[Rel],
    facts: &Facts,
    body: &mut Vec<Inst>,
    binds: &mut usize,
) -> Val {
    let mut renamed: HashMap<Sym, Expr> = HashMap::new();
    let mut map: Vec<Val> = Vec::new();
    let mut result = Val(0);
    let point: Vec<Sym> = producer.axes.iter().map(|a| a.var).collect();
    for inst in &producer.body {
        let mut inst = inst.clone();
        if let InstOp::Store { value, .. } = inst.op {
            result = map[value.0 as usize];
            map.push(result);
            continue;
        }
        inst.op.operands_mut().into_iter().for_each(|v| *v = map[v.0 as usize]);
        inst.op.map_exprs(&mut |e| {
            let moved = e.subst(&|s| {
                let known = renamed.get(&s).or_else(|| place.get(&s)).copied();
                known.or_else(|| point.contains(&s).then(Expr::zero))
            });
            facts.simplify(moved)
        });
        // Where the guards fail there may be no such element to check for.
        if let InstOp::Bind { value, .. } = &mut inst.op {
            *value = guarded(body, *value, guard, Scalar::Int(0), inst.ty);
        }
        match &mut inst.op {
            InstOp::Load { guard: own, .. } => own.extend(guard.iter().cloned()),
            InstOp::Bind { sym, .. } => {
                // Known to the reader, or to another copy of this producer.
                let taken = |s: Sym, body: &[Inst]| {
                    facts.is_symbol_declared(s)
                        || body.iter().any(|i| matches!(i.op, InstOp::Bind { sym, .. } if sym == s))
                };
                let original = *sym;
                while taken(*sym, body) {
                    *binds += 1;
                    *sym = Sym::new(&format!("{original}_{binds}"));
                }
                renamed.insert(original, Expr::sym(*sym));
            }
            InstOp::Const(_)
            | InstOp::Index(_)
            | InstOp::Cond(_)
            | InstOp::Op(..)
            | InstOp::Cast(_)
            | InstOp::Bitcast(_)
            | InstOp::Reduce(..)
            | InstOp::ArgReduce { .. }
            | InstOp::Scan { .. }
            | InstOp::Store { .. } => {}
        }
        map.push(Val(body.len() as u32));
        body.push(inst);
    }
    result
}

/// `value` where the guards hold, `other` elsewhere.
fn guarded(body: &mut Vec<Inst>, value: Val, guard: &[Rel], other: Scalar, ty: Dtype) -> Val {
    let Some(cond) = all_hold(body, guard) else { return value };
    let other = push(body, InstOp::Const(other), ty);
    push(body, InstOp::Op(ScalarOp::Select, vec![cond, value, other]), ty)
}

/// The first of two values where all relations hold, else the second.
pub(super) fn chosen(body: &mut Vec<Inst>, guard: &[Rel], (value, other): (Val, Val), ty: Dtype) -> Val {
    let Some(cond) = all_hold(body, guard) else { return value };
    push(body, InstOp::Op(ScalarOp::Select, vec![cond, value, other]), ty)
}

/// Whether all relations hold; none if there are no relations.
fn all_hold(body: &mut Vec<Inst>, guard: &[Rel]) -> Option<Val> {
    guard.iter().fold(None, |all, rel| {
        let holds = push(body, InstOp::Cond(*rel), Dtype::Bool);
        Some(match all {
            Some(before) => push(body, InstOp::Op(ScalarOp::And, vec![before, holds]), Dtype::Bool),
            None => holds,
        })
    })
}

fn push(body: &mut Vec<Inst>, op: InstOp, ty: Dtype) -> Val {
    body.push(Inst { op, ty });
    Val(body.len() as u32 - 1)
}
