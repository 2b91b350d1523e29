//! Checks that statements run in the order of the text that their program has: those that share a buffer or an effect, those that a region
//! repeats, and those that run at load.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use litz_ir::ids::Id;
use litz_ir::loops::{Buf, BufKind, Span, Stmt};
use litz_ir::schedule::{LoopKind, Part, ScheduleStep};
use litz_sym::Sym;

use super::memory::touches;
use super::{Around, Occurrence, Verifier, points};
use crate::constants::mentions_sizes;

impl Verifier<'_> {
    /// Statements that touch one buffer, of which at least one writes, run in the order of the program. So do those that store
    /// to what outlives a call, and what may end the call before them, such as an assertion; and calls of the host that have one
    /// effect.
    pub(super) fn order(&mut self) {
        let mut effects: Vec<(usize, BTreeSet<&str>)> = Vec::new();
        let mut writers: Vec<Option<usize>> = vec![None; self.loops.bufs.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.loops.bufs.len()];
        let loops = self.loops;
        for (at, stmt) in loops.stmts.iter().enumerate() {
            for buf in stmt.reads() {
                if let Some(writer) = writers.get(buf.index()).copied().flatten() {
                    self.ordered(writer, at, buf);
                }
                if let Some(readers) = readers.get_mut(buf.index()) {
                    readers.push(at);
                }
            }
            for buf in stmt.writes() {
                let (Some(writer), Some(readers)) =
                    (writers.get_mut(buf.index()), readers.get_mut(buf.index()))
                else {
                    continue;
                };
                let outlives = loops.bufs[buf].kind != BufKind::Temp;
                let effects = effects.iter().map(|(at, _)| *at).filter(|_| outlives);
                let earlier = writer.replace(at).into_iter().chain(std::mem::take(readers)).chain(effects);
                for other in earlier.filter(|&other| other != at).collect::<Vec<_>>() {
                    self.ordered(other, at, buf);
                }
            }
            let own = loops.effects(stmt);
            for (other, of) in &effects {
                if let Some(effect) = own.intersection(of).next() {
                    self.in_order(*other, at, format_args!("comes first of effect `{effect}`"));
                }
            }
            effects.extend(loops.may_fail(stmt).then_some((at, own)));
        }
        for (sym, defined) in loops.late_sizes() {
            for (at, _) in loops.stmts.iter().enumerate().filter(|(_, stmt)| loops.mentions(stmt, sym)) {
                self.in_order(defined, at, format_args!("gives {sym} its value"));
            }
        }
    }

    fn ordered(&mut self, first: usize, second: usize, buf: Buf) {
        // What is read of it is proved to be written.
        if self.is_proved(buf) && self.loops.stmts[first].writes().contains(&buf) {
            return;
        }
        let why = format_args!("comes first for buffer `{}`", self.loops.bufs[buf].name);
        self.parts_in_order(first, second, &|stmt, part| touches(stmt, part, buf), why);
    }

    /// The first statement runs before the second, which has to be done; `why` says what it is or does.
    fn in_order(&mut self, first: usize, second: usize, why: fmt::Arguments<'_>) {
        self.parts_in_order(first, second, &|_, _| true, why);
    }

    /// As [`Verifier::in_order`], of the parts of both that matter.
    fn parts_in_order(
        &mut self,
        first: usize,
        second: usize,
        matters: &dyn Fn(&Stmt, Part) -> bool,
        why: fmt::Arguments<'_>,
    ) {
        let places = |stmt: usize| {
            let of = &self.loops.stmts[stmt];
            self.placed[stmt].iter().filter(move |place| matters(of, place.part))
        };
        let is_late =
            |place: &&Occurrence| places(first).any(|other| other.at > place.at && !other.excludes(place));
        if let Some(early) = places(second).find(is_late) {
            let site = early.site();
            let (first_name, second_name) = (self.loops.stmts[first].name(), self.loops.stmts[second].name());
            let message = format_args!("`{second_name}` runs before `{first_name}`, which {why}");
            self.report.fail("statement-order", message);
            self.sites.note(&self.report.diags, site);
        }
    }

    /// The nests that a region repeats run in one loop, in order, that counts its axis.
    pub(super) fn region(&mut self, span: &Span) {
        let over = span.over.var;
        // One iteration is in order in any loops.
        if points::is_one(&self.loops.facts, span.over.extent) {
            return;
        }
        let mut counting = Vec::new();
        for (stmt, places) in
            self.loops.stmts[span.stmts.clone()].iter().zip(&self.placed[span.stmts.clone()])
        {
            if !stmt.nests().iter().any(|nest| nest.axes.iter().any(|axis| axis.var == over)) {
                continue;
            }
            for place in places {
                let value = place.value(over).and_then(|value| value.as_sym());
                let counts = |around: &&Around| {
                    let is_ordered = matches!(
                        around.kind,
                        Some(LoopKind::For | LoopKind::Unroll | LoopKind::Pipeline { .. } | LoopKind::Chain)
                    );
                    is_ordered && Some(around.axis.var) == value
                };
                counting.push(place.path.iter().find(counts).map(|around| around.number));
            }
        }
        let is_one = counting.windows(2).all(|pair| pair[0] == pair[1]) && !counting.contains(&None);
        let message = format_args!("the nests of `{}` do not share a loop in order along {over}", span.name);
        self.report.check(is_one, "region-order", message);
        let first = self.placed[span.stmts.clone()].iter().flatten().next();
        self.sites.note(&self.report.diags, first.and_then(Occurrence::site));
    }

    /// What runs at load reads constants and what ran at load before, knows no sizes that calls give, and stores what no call stores to: the
    /// next call would find what the one before it left.
    pub(super) fn load_inputs(&mut self) {
        let is_size = |sym: Sym| self.loops.facts.is_symbol_declared(sym);
        for step in self.schedule.steps.iter().filter(|step| step.at_load()) {
            if let ScheduleStep::Kernel(plan) = step
                && plan.syms().into_iter().any(is_size)
            {
                let message =
                    format_args!("`{}` runs at load, but its loops ask for sizes of calls", plan.name);
                self.report.fail("load-order", message);
            }
        }
        let at_load =
            |places: &[Occurrence]| places.iter().any(|place| self.schedule.steps[place.step].at_load());
        let placed = || self.loops.stmts.iter().zip(&self.placed);
        let kept: HashSet<Buf> =
            placed().filter(|(_, places)| at_load(places)).flat_map(|(stmt, _)| stmt.writes()).collect();
        let mut late: HashSet<Buf> = self
            .loops
            .bufs
            .iter()
            .filter(|(_, data)| data.kind == BufKind::Input)
            .map(|(buf, _)| buf)
            .collect();
        for (stmt, places) in placed() {
            if !at_load(places) {
                late.extend(stmt.writes());
                for buf in stmt.writes().into_iter().filter(|buf| kept.contains(buf)) {
                    let message = format_args!(
                        "`{}` stores in every call to `{}`, which is stored to at load",
                        stmt.name(),
                        self.loops.bufs[buf].name
                    );
                    self.report.fail("load-order", message);
                }
                continue;
            }
            let message =
                format_args!("`{}` runs at load, but the host is called in every call", stmt.name());
            self.report.check(stmt.host_call().is_none(), "load-order", message);
            let is_sized = |&buf: &Buf| self.loops.bufs[buf].sizes.iter().any(|size| size.as_int().is_none());
            let is_late = mentions_sizes(self.loops, stmt) || stmt.writes().iter().any(is_sized);
            let message =
                format_args!("`{}` runs at load, but no call has given its sizes then", stmt.name());
            self.report.check(!is_late, "load-order", message);
            for buf in stmt.reads().into_iter().filter(|buf| late.contains(buf)) {
                let buf = self.loops.bufs.get(buf).map_or("?", |data| &data.name);
                let message =
                    format_args!("`{}` runs at load, but `{buf}` has no contents then", stmt.name());
                self.report.fail("load-order", message);
            }
        }
    }
}
