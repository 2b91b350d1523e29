//! Checks that a buffer which is reused in place is not read after it has been overwritten.
//!
//! All that reads the buffer that ends, in the kernel where the other begins, has to be done with an element before that is
//! written. The nest that writes sees to it where its points read the elements that they write and no others. Of another
//! nest, parts that come before in the iterations of the loops around both do, if two iterations never touch the same
//! place in memory.

use std::collections::HashSet;

use litz_sym::{Expr, Sym};

use super::intervals::narrowed;
use super::{Occurrence, Verifier, proofs};
use crate::access::{Access, accesses};
use crate::collisions::colliding_axes;
use litz_ir::loops::{Axis, Buf, BufKind, Nest, Span, Stmt};
use litz_ir::schedule::{Part, Reuse, ScheduleStep};

/// A slug and what is wrong.
type Problem = (&'static str, String);

/// A nest, or part of one, where it runs.
#[derive(Clone, Copy)]
struct Visit<'a, 'p> {
    stmt: usize,
    nest: &'a Nest,
    place: &'p Occurrence,
}

impl<'a> Verifier<'a> {
    /// Reports every reuse that may change results. `spans` are the statements of regions.
    pub(super) fn reuses(&mut self, spans: &[Span]) {
        let repeated: HashSet<usize> = spans.iter().flat_map(|span| span.stmts.clone()).collect();
        let pooled = self.schedule.pools.iter().flat_map(|pool| &pool.places).map(|place| &*place.0);
        let mut placed: HashSet<&str> = pooled.collect();
        let mut ended = HashSet::new();
        for Reuse { from, to } in &self.schedule.reuses {
            let is_first = placed.insert(to);
            self.report.check(is_first, "placed-twice", format_args!("`{to}` has two places"));
            let is_first = ended.insert(from);
            self.report.check(
                is_first,
                "placed-twice",
                format_args!("two buffers take the memory of `{from}`"),
            );
            let problem = match (self.bufs.get(&**from), self.bufs.get(&**to)) {
                (Some(&from), Some(&to)) => self.reuse(from, to, &repeated).err(),
                (None, _) => Some(("unknown-buffer", format!("there is no buffer `{from}`"))),
                (_, None) => Some(("unknown-buffer", format!("there is no buffer `{to}`"))),
            };
            if let Some((slug, problem)) = problem {
                self.report.fail(slug, format_args!("reuse of `{from}` as `{to}`: {problem}"));
            }
        }
    }

    fn reuse(&self, from: Buf, to: Buf, repeated: &HashSet<usize>) -> Result<(), Problem> {
        let (old, new) = (&self.loops.bufs[from], &self.loops.bufs[to]);
        for (buf, data) in [(from, old), (to, new)] {
            let is_local = self.locals.iter().any(|(local, _)| local.buffer() == Some(&data.name));
            // What is returned may lie where an input was that the caller gave up.
            let is_ours = match self.loops.is_given_up(from) {
                true => buf == from || data.kind == BufKind::Temp,
                false => self.loops.is_internal(buf),
            };
            if !is_ours || is_local {
                let problem = format!("`{}` has no memory among those of a call", data.name);
                return Err(("reuse-escapes", problem));
            }
        }
        if (old.dtype, old.span()) != (new.dtype, new.span()) {
            let (old_span, new_span) = (old.span(), new.span());
            let problem = format!("{}[{old_span}] is not {}[{new_span}]", old.dtype, new.dtype);
            return Err(("reuse-type", problem));
        }
        self.points(self.handed_on(from, to)?, (from, to), repeated)
    }

    /// Position of the kernel that uses `from` last and `to` first.
    fn handed_on(&self, from: Buf, to: Buf) -> Result<usize, Problem> {
        let steps = |buf: Buf| {
            let users = self.users.get(&buf).into_iter().flatten();
            users.flat_map(|&stmt| &self.placed[stmt]).map(|place| place.step)
        };
        if steps(from).chain(steps(to)).any(|step| self.schedule.steps[step].at_load()) {
            return Err(("reuse-life", "one of them outlives the call".to_owned()));
        }
        let is_kernel = |step: &usize| matches!(self.schedule.steps[*step], ScheduleStep::Kernel(_));
        let last = steps(from).max().filter(is_kernel);
        let handed_on = last.filter(|last| steps(to).min() == Some(*last));
        handed_on.ok_or_else(|| ("reuse-life", "no kernel uses the one last and the other first".to_owned()))
    }

    /// Whether all of the kernel that loads an element of `from` is done with it when that of `to` is stored.
    fn points(&self, step: usize, (from, to): (Buf, Buf), repeated: &HashSet<usize>) -> Result<(), Problem> {
        let problem = |text: String| Err(("reuse-points", text));
        let visits: Vec<Visit> = self.visits(step, &[from, to]);
        let writers = visits.iter().filter(|visit| {
            // The part of a nest that stores: the last one.
            visit.place.part != Part::Update && visit.nest.writes().contains(&to)
        });
        let writers: Vec<Visit> = writers.copied().collect();
        let is_one = writers.iter().enumerate().all(|(at, writer)| {
            writers[at + 1..]
                .iter()
                .all(|other| other.stmt == writer.stmt && other.place.excludes(writer.place))
        });
        let Some(&writer) = writers.first().filter(|_| is_one) else {
            return problem("the kernel does not write all of it in one place".to_owned());
        };
        if writer.place.block.is_some() {
            return problem(format!("`{}` stores to one block after the other", writer.nest.name));
        }
        if repeated.contains(&writer.stmt) {
            return problem(format!("`{}` is repeated by a region", writer.nest.name));
        }
        let (at, index) = self.only_store(writer.nest, to)?;
        let place = self.loops.place(writer.nest, to, index);
        for &visit in &visits {
            let name = &visit.nest.name;
            if visit.nest.writes().contains(&from) {
                return problem(format!("`{name}` writes what should end"));
            }
            if visit.stmt == writer.stmt {
                continue;
            }
            // In the other body of an `if` nothing is written in an iteration in which this one runs.
            let excludes = |writer: &Visit| visit.place.excludes(writer.place);
            let is_before = |writer: &Visit| visit.place.at < writer.place.at;
            let is_early = |writer: &Visit| is_before(writer) && !excludes(writer);
            if visit.nest.reads().contains(&to) && writers.iter().any(is_early) {
                return problem(format!("`{name}` reads what is not written yet"));
            }
            let is_done = writers.iter().all(|writer| is_before(writer) || excludes(writer));
            for (load, _) in loads(visit.nest, from) {
                let is_once = is_done && !repeated.contains(&visit.stmt);
                let mut is_apart = is_once;
                for &writer in &writers {
                    is_apart &= self.are_apart((visit, load), (writer, at));
                }
                if !is_apart {
                    return problem(format!(
                        "`{name}` may read elements that have been overwritten in place"
                    ));
                }
            }
        }
        let mut own = loads(writer.nest, from);
        match own.find(|&(load, index)| load > at || self.loops.place(writer.nest, from, index) != place) {
            Some(_) => problem(format!("`{}` reads other elements than it writes", writer.nest.name)),
            None => Ok(()),
        }
    }

    /// Where nests that use one of `bufs` run in a step.
    fn visits(&self, step: usize, bufs: &[Buf]) -> Vec<Visit<'a, '_>> {
        let loops = self.loops;
        let mut users: Vec<usize> =
            bufs.iter().filter_map(|buf| self.users.get(buf)).flatten().copied().collect();
        users.sort_unstable();
        users.dedup();
        let visits = |stmt: usize| {
            let nest = match &loops.stmts[stmt] {
                Stmt::Nest(nest) => Some(nest),
                Stmt::Recurrence(_) | Stmt::Extern(_) => None,
            };
            let places = self.placed[stmt].iter().filter(move |place| place.step == step);
            places.filter_map(move |place| nest.map(|nest| Visit { stmt, nest, place }))
        };
        users.into_iter().flat_map(visits).collect()
    }

    /// Position and index of the only store to `to`, which each outer point of the nest makes once, to an element of its
    /// own, after all that it reduces.
    fn only_store<'n>(&self, nest: &'n Nest, to: Buf) -> Result<(usize, &'n [Expr]), Problem> {
        let problem = |text: &str| Err(("reuse-points", format!("`{}` {text}", nest.name)));
        let mut stores = accesses(nest).filter(|access| access.store && access.buf == to);
        let (Some(Access { at, index, combines: false, .. }), None) = (stores.next(), stores.next()) else {
            return problem("combines elements or stores several");
        };
        if loads(nest, to).next().is_some() {
            return problem("reads what it writes");
        }
        let is_once = nest.reduced.is_empty() || nest.reduces() && nest.after_reduce()[at];
        if !is_once {
            return problem("stores while it reduces");
        }
        let is_axis = |sym: Sym| nest.axes.iter().any(|axis| axis.var == sym);
        let is_known = |sym: &Sym| is_axis(*sym) || self.loops.facts.is_symbol_declared(*sym);
        let is_own = colliding_axes(self.loops, nest).is_empty();
        if !is_own || !index.iter().all(|at| at.syms().iter().all(is_known)) {
            return problem("stores to elements that are not told by its axes");
        }
        Ok((at, index))
    }

    /// Whether different iterations of the loops around both never touch the same memory, of which the buffers of both take all.
    fn are_apart(&self, one: (Visit<'a, '_>, usize), other: (Visit<'a, '_>, usize)) -> bool {
        let [mine, theirs] = narrowed(one.0.place, other.0.place, &self.loops.facts);
        let shared: Vec<Axis> = mine.shared_loops(&theirs).iter().map(|around| around.axis).collect();
        let [one, other] = [(one, &mine), (other, &theirs)]
            .map(|((Visit { nest, .. }, at), place)| proofs::Access { nest, place, at });
        self.proofs.borrow_mut().are_apart(self.loops, &shared, one, other)
    }
}

/// Positions and indices of the loads of `buf`.
fn loads(nest: &Nest, buf: Buf) -> impl Iterator<Item = (usize, &[Expr])> {
    let loads = accesses(nest).filter(move |access| !access.store && access.buf == buf);
    loads.map(|load| (load.at, load.index))
}
