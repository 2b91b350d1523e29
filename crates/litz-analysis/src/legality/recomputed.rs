//! Proves that what is read of a local buffer was written before, where a nest may compute elements several times, or not at all.
//!
//! An element of a buffer has one value, whoever computes it and however often. So a nest that stores to local buffers alone
//! is free to compute what a tile needs in each tile, to leave out what nobody reads, and to run in several kernels; only what is
//! read has to be there. The same is true of copies. A reduction may run again as a whole, in each iteration of loops that are around all of
//! its memory: the statistics of a row that all blocks need.
//!
//! Of a leaf that stores, the loops that are not around the load take a box of points: along each axis so many from a first
//! one, both in terms of the loops around both. Coverage proves that they take each point of the box; the
//! load is proved to read an element of it. The leaf comes first in the text, so within one iteration of the loops around both the
//! element is there when it is read.

use super::accumulators::is_equal;
use super::coverage::{Bound, Coverage};
use super::points::is_one;
use super::proofs;
use super::{Around, Declared, Occurrence, Side, Verifier};
use crate::apart::is_inside_by_digits;
use crate::copies::{self, read_of};
use crate::inside::{enter, first_and_count};
use crate::parts::parts_of;
use litz_ir::loops::{Axis, Buf, BufKind, InstOp, Nest, Stmt};
use litz_ir::schedule::{Local, LoopKind, Part};
use litz_sym::{Expr, Facts, Rel, Sym};

/// A load of an element that a local buffer has to hold.
struct Read<'a, 'p> {
    nest: &'a Nest,
    place: &'p Occurrence,
    /// Position of the instruction.
    at: usize,
    /// The buffer, or the copy, that it reads.
    held: Buf,
    declared: Declared,
}

/// What holds where an element is read, and how many of the loops around are around what says so.
type Known = (Rel, usize);

/// Conditions that are distinguished by whether they hold, at most, to find an element written in all cases: there are two to the
/// power of these.
const MOST_CASES: usize = 4;

/// Points that loops take along one axis of a nest.
struct Extent {
    axis: Sym,
    first: Expr,
    count: Expr,
}

impl<'a> Verifier<'a> {
    /// Notes that memory is declared, which may have been declared before.
    pub(super) fn declare(&mut self, local: &Local) {
        let name = local.name();
        self.space(name, local.space);
        self.layout(name, local);
        let Some(name) = local.buffer() else { return };
        let is_same = |other: &Local| other.buffer() == Some(name);
        fn of(local: &Local) -> [Option<&str>; 2] {
            [local.copied(), local.result()]
        }
        let is_nested = self.visible.iter().any(|declared| is_same(self.locals[declared.number].0));
        let is_alike = self.locals.iter().all(|(other, _)| !is_same(other) || of(other) == of(local));
        let message = format_args!("`{name}` is declared twice");
        self.report.check(!is_nested && is_alike, "duplicate-name", message);
        if self.locals.iter().any(|(other, _)| is_same(other)) {
            let writers = self.bufs.get(name).map_or(Vec::new(), |&buf| self.writers_of(buf).to_vec());
            let is_once = writers.len() < 2 && !writers.iter().any(|at| self.repeated.contains(at));
            let message = format_args!("`{name}` is declared twice, but has several contents");
            self.report.check(is_once, "duplicate-name", message);
            self.recomputed.extend(writers);
        }
    }

    /// Whether a nest stores whole elements to local buffers alone, of which `visible` are declared around a leaf of it.
    pub(super) fn may_recompute(&self, stmt: usize, visible: &[Declared]) -> bool {
        let Stmt::Nest(nest) = &self.loops.stmts[stmt] else { return false };
        !nest.accumulates() && self.loops_around_results(stmt, visible).is_some()
    }

    /// How many loops are around the declarations of all that a nest stores to. None where it stores to anything but local buffers, of which
    /// `visible` are declared around a leaf of it, whole elements, which nobody else stores to.
    fn loops_around_results(&self, stmt: usize, visible: &[Declared]) -> Option<usize> {
        let Stmt::Nest(nest) = &self.loops.stmts[stmt] else { return None };
        let around = |buf: Buf| {
            let name = self.loops.bufs.get(buf).map(|data| &*data.name);
            let is_its = |declared: &&Declared| self.locals[declared.number].0.buffer() == name;
            visible.iter().rfind(is_its).map(|declared| declared.loops)
        };
        let is_writer = |buf: &Buf| self.writers_of(*buf).iter().all(|&writer| writer == stmt);
        if nest.idle.is_some() || self.repeated.contains(&stmt) || !nest.writes().iter().all(is_writer) {
            return None;
        }
        nest.body.iter().try_fold(usize::MAX, |least, inst| {
            let InstOp::Store { buf, combine, .. } = &inst.op else { return Some(least) };
            around(*buf).filter(|_| combine.is_none()).map(|loops| least.min(loops))
        })
    }

    /// How many of the loops around a part of a reduction are around all of its memory: its accumulators, and local buffers that it alone stores
    /// to. In each of their iterations it may run anew, as a whole.
    pub(super) fn loops_around_memory(&self, stmt: usize, place: &Occurrence) -> usize {
        let Stmt::Nest(nest) = &self.loops.stmts[stmt] else { return 0 };
        let is_of_reduction = matches!(place.part, Part::Update | Part::Final) && place.block.is_none();
        if !is_of_reduction || nest.scanned().next().is_some() {
            return 0;
        }
        let results = self.loops_around_results(stmt, &place.visible);
        let scopes = self.scopes(stmt, place);
        results.zip(scopes.first()).map_or(0, |(results, scope)| results.min(scope.loops))
    }

    /// The loops of `path`, that around a part of a nest, without those in which it runs anew.
    pub(super) fn once(&self, stmt: usize, place: &Occurrence, path: &[Axis]) -> Vec<Axis> {
        let (anew, within) = path.split_at(self.loops_around_memory(stmt, place));
        let is_used = |axis: &Axis| place.bind.iter().any(|bind| bind.1.has_sym(axis.var));
        let is_needed = |axis: &&Axis| is_used(axis) || is_one(&self.loops.facts, axis.extent);
        anew.iter().filter(is_needed).chain(within).copied().collect()
    }

    /// Checks what a copy is declared to be one of. The buffer of the copy, if it has one of its own.
    pub(super) fn copied(&mut self, name: &str, of: &str) -> Option<Buf> {
        let Some(&original) = self.bufs.get(of) else {
            self.report.fail("unknown-buffer", format_args!("there is no buffer `{of}`"));
            return None;
        };
        self.dimensions(name, original);
        let is_copy = |copy: &Buf| self.writers_of(*copy).last().is_some_and(|&at| at >= self.first_copy);
        let made = self.bufs.get(name).copied().filter(is_copy);
        self.report.check(
            made.is_some(),
            "duplicate-name",
            format_args!("`{name}` is the name of a copy and of something else"),
        );
        // Of several contents it is a copy of the last: copies run behind all that the program has, and ahead of what reads them.
        let writers = self.writers_of(original);
        let has_contents = !writers.is_empty() || self.loops.bufs[original].kind != BufKind::Temp;
        let is_once = has_contents && !writers.iter().any(|at| self.iterated.contains(at));
        let message =
            format_args!("`{of}` has another content in each iteration: `{name}` would be a copy of which?");
        self.report.check(is_once, "copied-buffer", message);
        made
    }

    /// Checks what a result is on its way to. The buffer of the memory, if it has one of its own.
    pub(super) fn result(&mut self, name: &str, of: &str) -> Option<Buf> {
        let Some(&buf) = self.bufs.get(of) else {
            self.report.fail("unknown-buffer", format_args!("there is no buffer `{of}`"));
            return None;
        };
        self.dimensions(name, buf);
        let held = self.bufs.get(name).copied();
        let stored = self.stmts.get(name).map(|&at| self.loops.stmts[at].writes());
        let made = held.filter(|held| {
            let is_written = !self.writers_of(*held).is_empty();
            is_written && stored.is_some_and(|stored| stored == [buf])
        });
        let message = format_args!(
            "`{name}` is the name of something else, or no nest outside of regions alone stores to `{of}`, once"
        );
        self.report.check(made.is_some(), "wrong-result", message);
        made
    }

    /// No dimension of a buffer like that one has the name of a size.
    fn dimensions(&mut self, name: &str, original: Buf) {
        let mut dimensions = (0..self.loops.bufs[original].sizes.len()).map(copies::dimension);
        let taken = dimensions.find(|axis| self.loops.facts.is_symbol_declared(*axis));
        let message = format_args!("`{name}` has an axis of the name of a size");
        self.report.check(taken.is_none(), "duplicate-symbol", message);
    }

    /// The buffer that the load at position `at` of a leaf of a nest loads from where the nest names `buf`, and the innermost declaration of it
    /// if it is local.
    pub(super) fn held(
        &self,
        nest: &Nest,
        place: &Occurrence,
        (at, buf): (usize, Buf),
    ) -> (Buf, Option<Declared>) {
        let around = place.visible.iter().filter_map(|&declared| {
            let local = self.locals[declared.number].0;
            let of = local.copied().and_then(|of| self.bufs.get(of).copied());
            let (buf, reader) = (*self.bufs.get(local.buffer()?)?, local.reader());
            Some(copies::Held { buf, of, reader, declared })
        });
        read_of(nest, (at, buf), around)
    }

    /// Reports values of axes that may be below 0, at leaves that are not masked. Of a nest whose loops take each point once there are none.
    fn points_below_zero(&mut self) {
        let mut problems = Vec::new();
        for &stmt in &self.recomputed {
            for place in self.placed[stmt].iter().filter(|place| !place.masked) {
                let mut facts = self.loops.facts.clone();
                place.path.iter().for_each(|around| enter(&mut facts, around.axis));
                // What never runs has no points.
                if !place.sides.iter().all(|side| facts.assume(side.cond)) {
                    continue;
                }
                let is_below = |value: &Expr| !facts.proves(&Rel::le(0, *value));
                if let Some((axis, value)) = place.bind.iter().copied().find(|bind| is_below(&bind.1)) {
                    let name = self.loops.stmts[stmt].name();
                    problems.push((format!("`{name}`: {axis} = {value} may be below 0"), place.site()));
                }
            }
        }
        problems.sort_by(|a, b| a.0.cmp(&b.0));
        self.fail_all("unmasked-point", problems);
    }

    /// Reports loads of local buffers that may find an element which nobody wrote.
    pub(super) fn unwritten_elements(&mut self) {
        if self.recomputed.is_empty() {
            return;
        }
        self.points_below_zero();
        let mut problems = Vec::new();
        let mut proofs = self.proofs.take();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            let Stmt::Nest(nest) = stmt else { continue };
            let parts = parts_of(nest);
            for place in places {
                for (at, inst) in nest.body.iter().enumerate() {
                    let InstOp::Load { buf, .. } = &inst.op else { continue };
                    let (held, Some(declared)) = self.held(nest, place, (at, *buf)) else { continue };
                    let writer = self.writer(held).filter(|writer| self.recomputed.contains(writer));
                    let Some(writer) = writer.filter(|_| parts[at].contains(&place.part)) else { continue };
                    let read = Read { nest, place, at, held, declared };
                    if let Err(why) = self.is_written(&read, writer, &mut proofs) {
                        problems.push((why, place.site()));
                    }
                }
            }
        }
        self.proofs.replace(proofs);
        self.fail_all("unwritten-element", problems);
    }

    /// Whether what is read of a buffer is proved to be written: it is local, and may be computed again or in part.
    pub(super) fn is_proved(&self, buf: Buf) -> bool {
        let name = self.loops.bufs.get(buf).map(|data| &*data.name);
        self.writers_of(buf).iter().any(|writer| self.recomputed.contains(writer))
            && self.locals.iter().any(|(local, _)| local.buffer() == name)
    }

    /// The statement that writes a buffer.
    pub(super) fn writer(&self, buf: Buf) -> Option<usize> {
        self.writers_of(buf).first().copied()
    }

    fn is_written(
        &self,
        read: &Read<'a, '_>,
        writer: usize,
        proofs: &mut proofs::Proofs<'a>,
    ) -> Result<(), String> {
        let Stmt::Nest(by) = &self.loops.stmts[writer] else { return Err(String::new()) };
        let sees = |place: &&Occurrence| {
            place.visible.iter().any(|declared| declared.number == read.declared.number)
                && place.at < read.place.at
                && matches!(place.part, Part::Whole | Part::Final)
                && !place.excludes(read.place)
        };
        let leaves: Vec<&Occurrence> = self.placed[writer].iter().filter(sees).collect();
        let mut known: Vec<Known> = read.place.sides.iter().map(|side| (side.cond, side.loops)).collect();
        if self.is_stored(read, by, &leaves, &mut known, proofs) {
            return Ok(());
        }
        let element = read.nest.body[read.at].op.element();
        let index: Vec<String> =
            element.map(|(_, index)| index.iter().map(ToString::to_string).collect()).unwrap_or_default();
        let (name, buf) = (&read.nest.name, &self.loops.bufs[read.held].name);
        Err(format!(
            "`{name}`: load {buf}[{}] may read an element that no earlier leaf of `{}` stores to",
            index.join(", "),
            by.name
        ))
    }

    /// Whether one of the leaves of a nest, or two in the bodies of an `if`, store the element that is read, where all that is
    /// `known` holds.
    fn is_stored(
        &self,
        read: &Read<'a, '_>,
        by: &'a Nest,
        leaves: &[&Occurrence],
        known: &mut Vec<Known>,
        proofs: &mut proofs::Proofs<'a>,
    ) -> bool {
        // Conditions in terms of the loops around both mean the same at both.
        let is_shared = |leaf: &Occurrence, loops: usize| loops <= leaf.shared_loops(read.place).len();
        let holds = |leaf: &Occurrence, cond: Rel| {
            known.iter().any(|&(other, loops)| other == cond && is_shared(leaf, loops))
        };
        let runs = |leaf: &Occurrence| {
            leaf.sides.iter().all(|side| is_shared(leaf, side.loops) && holds(leaf, side.cond))
        };
        let (running, others): (Vec<&Occurrence>, Vec<&Occurrence>) =
            leaves.iter().partition(|leaf| runs(leaf));
        if running.iter().any(|leaf| self.stores(read, by, leaf, known, proofs)) {
            return true;
        }
        let mut open = others.iter().flat_map(|leaf| leaf.sides.iter().map(move |side| (leaf, side)));
        let is_open = |(leaf, side): &(&&Occurrence, &Side)| {
            is_shared(leaf, side.loops) && !holds(leaf, side.cond) && !holds(leaf, side.cond.negate())
        };
        let Some((_, &Side { cond, loops, .. })) = open.find(is_open) else { return false };
        if known.len() >= read.place.sides.len() + MOST_CASES {
            return false;
        }
        [cond, cond.negate()].into_iter().all(|cond| {
            known.push((cond, loops));
            let is_stored = self.is_stored(read, by, &others, known, proofs);
            known.pop();
            is_stored
        })
    }

    /// Whether a leaf stores the element that is read, in the same iteration of the loops around both.
    fn stores(
        &self,
        read: &Read<'a, '_>,
        by: &'a Nest,
        leaf: &Occurrence,
        known: &[Known],
        proofs: &mut proofs::Proofs<'a>,
    ) -> bool {
        let shared = leaf.shared_loops(read.place).len();
        let mut stores = by.body.iter().enumerate().filter_map(|(at, inst)| {
            let InstOp::Store { buf, index, .. } = &inst.op else { return None };
            (*buf == read.held).then_some((at, index))
        });
        let Some((store, index)) = stores.next_back() else { return false };
        let access = |nest, place, at| -> proofs::Access<'a, '_> { proofs::Access { nest, place, at } };
        // Iterations that run at once store and read elements of their own.
        let at_once = |loops: &[Around]| -> Vec<Axis> {
            loops.iter().filter(|around| runs_at_once(around)).map(|around| around.axis).collect()
        };
        let (outside, inside) = leaf.path.split_at(read.declared.loops);
        let outside: Vec<Axis> = outside.iter().map(|around| around.axis).collect();
        let alone = at_once(inside);
        let both = at_once(&inside[..shared.saturating_sub(read.declared.loops)]);
        let own = access(by, leaf, store);
        if !alone.is_empty() && !proofs.are_apart_within(self.loops, [&outside, &alone], own, own) {
            return false;
        }
        // Of a copy in another layout places in memory say nothing about those of what is copied.
        let layout = |buf: Buf| {
            let data = &self.loops.bufs[buf];
            (&data.sizes, &data.strides)
        };
        let is_itself =
            read.nest.body[read.at].op.element().is_some_and(|(buf, _)| layout(buf) == layout(read.held));
        let load = access(read.nest, read.place, read.at);
        let mut is_apart = || is_itself && proofs.are_apart_within(self.loops, [&outside, &both], own, load);
        if !both.is_empty() && !is_apart() {
            return false;
        }
        let (around, inner) = leaf.path.split_at(shared);
        let mut facts = self.loops.facts.clone();
        around.iter().for_each(|around| enter(&mut facts, around.axis));
        let mut known_here = known.iter().filter(|known| known.1 <= shared);
        let mut facts_inside = facts.clone();
        // Where nothing runs nothing is read.
        if !known_here.all(|known| facts.assume(known.0)) {
            return true;
        }
        let inner: Vec<Axis> = inner.iter().map(|around| around.axis).collect();
        let Some(points) = taken(by, leaf, &inner, &facts) else { return false };
        read.place.path[shared..].iter().for_each(|around| enter(&mut facts_inside, around.axis));
        self.reads(read, index, by, &points, facts_inside, known)
    }

    /// Whether the element that is read is one that `points` of the nest `by` store to, at coordinates `stored`.
    fn reads(
        &self,
        read: &Read<'a, '_>,
        stored: &[Expr],
        by: &Nest,
        points: &[Extent],
        mut facts: Facts,
        known: &[Known],
    ) -> bool {
        // What no loop gives has a name that no loop can have.
        let named = |sym: Sym| {
            let is_own = read.nest.indices().any(|axis| axis.var == sym);
            is_own.then(|| Sym::new(&format!("{sym} of {}", read.nest.name)))
        };
        let value = |sym: Sym| read.place.value(sym).or_else(|| named(sym).map(Expr::sym));
        let here = |rel: Rel| Rel { lhs: rel.lhs.subst(&value), rhs: rel.rhs.subst(&value), ..rel };
        let InstOp::Load { index, guard, .. } = &read.nest.body[read.at].op else { return false };
        for axis in read.nest.indices() {
            match read.place.value(axis.var) {
                Some(value) if !facts.assume(Rel::lt(value, axis.extent)) => return true,
                // A masked leaf takes no point before the first.
                Some(value) if read.place.masked && !facts.assume(Rel::le(0, value)) => return true,
                Some(_) => {}
                None => named(axis.var).into_iter().for_each(|own| facts.declare_index(own, axis.extent)),
            }
        }
        let depends_on_axes = |e: Expr| by.indices().any(|index| e.has_sym(index.var));
        let conds = known.iter().map(|known| known.0).chain(guard.iter().map(|rel| here(*rel)));
        if !conds.into_iter().all(|cond| facts.assume(cond)) {
            return true;
        }
        let mut open: Vec<&Extent> = points.iter().collect();
        for (&coordinate, &stored) in index.iter().zip(stored) {
            // The value of the axis at which that coordinate is stored.
            let axis = open.iter().position(|extent| stored.has_sym(extent.axis));
            let Some(axis) = axis else {
                let is_there = !depends_on_axes(stored) && is_equal(&facts, coordinate.subst(&value), stored);
                if is_there { continue } else { return false }
            };
            let Extent { axis, first, count } = open.swap_remove(axis);
            let Some((step, offset)) = stored.linear(*axis).filter(|linear| linear.0.is_one()) else {
                return false;
            };
            if step != Expr::one() || depends_on_axes(offset) {
                return false;
            }
            let point = facts.simplify(coordinate.subst(&value) - offset);
            let end = by.axes.iter().find(|own| own.var == *axis).map(|own| own.extent);
            let is_point = end.is_some_and(|end| is_inside_by_digits(point, end, &facts));
            let from_first = facts.simplify(point - *first);
            // 0 <= x, as -x < 1: of 2*x - mod(x, 2), too.
            let is_behind = facts.holds(&Rel::le(0, from_first))
                || is_inside_by_digits(Expr::zero() - from_first, Expr::one(), &facts);
            let is_taken = is_behind && is_inside_by_digits(from_first, *count, &facts);
            if !is_point || !is_taken {
                return false;
            }
        }
        // An axis that determines no coordinate has one point.
        open.iter().all(|extent| {
            by.axes.iter().any(|own| own.var == extent.axis && own.extent.is_one()) && extent.count.is_one()
        })
    }
}

/// The points that a leaf takes in the loops `inner`, in terms of those around, of which `facts` know. None where that is no box.
fn taken(nest: &Nest, leaf: &Occurrence, inner: &[Axis], facts: &Facts) -> Option<Vec<Extent>> {
    let vars: Vec<Sym> = inner.iter().map(|axis| axis.var).collect();
    let mut inside = facts.clone();
    inner.iter().for_each(|axis| enter(&mut inside, *axis));
    let (mut extents, mut bound) = (Vec::new(), Vec::new());
    for axis in &nest.axes {
        let value = leaf.value(axis.var)?;
        let (first, count) = first_and_count(value, &vars, &inside)?;
        let offset = inside.simplify(value - first);
        // Where the loops go past the end of the axis, that is where the box ends.
        extents.push(Extent { axis: axis.var, first, count });
        bound.push(Bound { axis: axis.var, extent: count, value: offset });
    }
    // A loop that no axis depends on repeats what is taken, where it has an iteration.
    let is_run = |axis: &Axis| {
        bound.iter().any(|bound| bound.value.has_sym(axis.var)) || facts.holds(&Rel::le(1, axis.extent))
    };
    if !inner.iter().all(is_run) {
        return None;
    }
    let counts = bound.iter().map(|bound| bound.extent);
    let Some(coverage) = Coverage::new(facts, counts, inner.iter().copied()) else { return Some(extents) };
    let bound: Vec<Bound> =
        bound.iter().map(|bound| Bound { value: coverage.without_ones(bound.value), ..*bound }).collect();
    let is_once = coverage.together(&bound).iter().all(|together| coverage.is_once(together));
    is_once.then_some(extents)
}

/// Whether iterations of a loop may run at once.
fn runs_at_once(around: &Around) -> bool {
    match around.kind {
        Some(LoopKind::For | LoopKind::Unroll | LoopKind::Pipeline { .. } | LoopKind::Chain) => false,
        None | Some(LoopKind::Vector { .. } | LoopKind::Level(_) | LoopKind::Mma) => true,
    }
}
