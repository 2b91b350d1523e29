//! Checks where a schedule puts buffers: in memory of a kernel, or at an offset of a pool.

use std::collections::HashSet;

use litz_sym::{Expr, Rel};

use super::problem::{Site, Within};
use super::{Occurrence, Verifier};
use crate::parts::parts_of;
use litz_ir::loops::{Buf, BufKind, InstOp, Stmt};
use litz_ir::schedule::{Holds, LoadOf, Part, Pool, ScheduleStep};

/// A part of a pool.
struct PoolRange<'a> {
    /// The buffer whose place it is.
    name: &'a str,
    /// First byte, and the one behind the last.
    from: Expr,
    to: Expr,
    /// The first step and the last that use it.
    life: (usize, usize),
}

impl Verifier<'_> {
    /// Local buffers are of the block that they are declared in alone.
    pub(super) fn locals(&mut self) {
        for (number, &(local, step)) in self.locals.clone().iter().enumerate() {
            let name = local.name();
            match local.holds {
                Holds::Buffer(_) => match self.bufs.get(name) {
                    Some(&buf) => self.local_uses(buf),
                    None => self.report.fail("unknown-buffer", format_args!("there is no buffer `{name}`")),
                },
                Holds::Copy { ref of, ref reader, .. } => {
                    if let Some(load) = reader {
                        self.reader(load, of);
                    }
                    if let Some(copy) = self.copied(name, of) {
                        self.local_uses(copy);
                    }
                }
                Holds::Result { ref of, .. } => {
                    if let Some(result) = self.result(name, of) {
                        self.local_uses(result);
                    }
                }
                Holds::Accumulator(_) => {
                    let nest = self.stmts.get(name).map(|&stmt| (stmt, &self.loops.stmts[stmt]));
                    let is_user = nest.is_some_and(|(stmt, nest)| {
                        nest.nests().iter().any(|nest| nest.accumulates())
                            && self.placed[stmt].iter().any(|place| place.step == step)
                    });
                    let message = format_args!("the kernel runs no nest `{name}` that has accumulators");
                    self.report.check(is_user, "unknown-nest", message);
                }
            }
            self.note(Some(Site { step, within: Some(Within::Local(number)) }));
        }
    }

    /// What is to read a copy alone is a load of what is copied.
    fn reader(&mut self, load: &LoadOf, of: &str) {
        let body = self.stmts.get(&*load.nest).map(|&stmt| &self.loops.stmts[stmt]);
        let is_load = body.into_iter().flat_map(Stmt::nests).any(|nest| {
            let inst = nest.body.get(load.at as usize).map(|inst| &inst.op);
            matches!(inst, Some(InstOp::Load { buf, .. }) if self.loops.bufs[*buf].name == of)
        });
        let message = format_args!("`{}` does not load `{of}` as %{}", load.nest, load.at);
        self.report.check(is_load, "unknown-load", message);
    }

    /// Whatever touches a local buffer runs where a declaration of it is visible.
    fn local_uses(&mut self, buf: Buf) {
        let data = &self.loops.bufs[buf];
        let name = &data.name;
        let is_internal = self.loops.is_internal(buf);
        self.report.check(
            is_internal,
            "local-escapes",
            format_args!("`{name}` is seen outside of the program"),
        );
        for &user in self.users.get(&buf).into_iter().flatten() {
            let (stmt, places) = (&self.loops.stmts[user], &self.placed[user]);
            let is_declared = |place: &&Occurrence| {
                self.locals.iter().any(|(local, step)| *step == place.step && local.buffer() == Some(name))
            };
            let message =
                format_args!("`{name}` is local to a kernel, but `{}` runs in another", stmt.name());
            self.report.check(places.iter().all(|place| is_declared(&place)), "local-escapes", message);
            let touches = |place: &&Occurrence| is_declared(place) && touches(stmt, place.part, buf);
            let is_visible = |place: &Occurrence| {
                let mut visible = place.visible.iter().map(|declared| self.locals[declared.number].0);
                visible.any(|local| local.buffer() == Some(name))
            };
            let message = format_args!(
                "`{name}` is local to the block that declares it, but `{}` is outside of it",
                stmt.name()
            );
            self.report.check(places.iter().filter(touches).all(is_visible), "local-scope", message);
        }
    }

    /// Each buffer has one place, within its pool.
    pub(super) fn placements(&mut self) {
        let mut placed: HashSet<&str> = HashSet::new();
        for step in &self.schedule.steps {
            if let ScheduleStep::Kernel(plan) = step {
                placed.extend(plan.locals().into_iter().filter_map(|local| local.buffer()));
            }
        }
        for pool in &self.schedule.pools {
            let Some(bytes) = self.pool_bytes(pool, &placed) else { continue };
            let host = pool.bytes.is_none().then_some(&pool.name);
            let names = host.into_iter().chain(pool.places.iter().map(|(name, _)| name));
            let bufs = names.filter_map(|name| self.bufs.get(&**name)).map(|&buf| &self.loops.bufs[buf]);
            let devices = bufs.map(|data| (&*data.name, data.device));
            self.report.one_device(devices, format_args!("pool `{}`", pool.name));
            self.report.extent(bytes, format_args!("pool `{}`", pool.name));
            let message = format_args!("pool `{}` is at load, but its size is known for one call", pool.name);
            self.report.check(!pool.at_load || bytes.syms().is_empty(), "pool-life", message);
            for (name, offset) in &pool.places {
                let message = format_args!("`{name}` has two places");
                let is_first = placed.insert(name);
                self.report.check(is_first, "placed-twice", message);
                if is_first {
                    self.pooled((pool, bytes), name, *offset);
                }
            }
        }
    }

    /// The size of a pool that has one, or that of the buffer whose memory it is: one that is returned, or an input that is donated.
    fn pool_bytes(&mut self, pool: &Pool, placed: &HashSet<&str>) -> Option<Expr> {
        if pool.bytes.is_some() {
            return pool.bytes;
        }
        let loops = self.loops;
        let host = self.bufs.get(&*pool.name).map(|&buf| (buf, &loops.bufs[buf]));
        let host = host.filter(|&(buf, data)| {
            let is_returned = || {
                data.kind == BufKind::Temp
                    && !placed.contains(&*data.name)
                    && loops.results().any(|result| result == buf)
            };
            is_returned() || loops.is_given_up(buf) && !pool.at_load
        });
        let message = format_args!(
            "pool `{}` has no size and is neither a buffer that is returned nor an input that is donated",
            pool.name
        );
        self.report.check(host.is_some(), "pool-memory", message);
        host.map(|(_, data)| data.span() * data.dtype.size() as i64)
    }

    fn pooled(&mut self, (pool, bytes): (&Pool, Expr), name: &str, offset: Expr) {
        self.report.expr(offset, format_args!("`{name}` in pool `{}`", pool.name));
        let Some(&buf) = self.bufs.get(name) else {
            return self
                .report
                .fail("unknown-buffer", format_args!("pool `{}`: there is no buffer `{name}`", pool.name));
        };
        let data = &self.loops.bufs[buf];
        let message = format_args!("`{name}` is seen outside of the program and has no place in a pool");
        self.report.check(self.loops.is_internal(buf), "local-escapes", message);
        let at_load = self.is_written_at_load(buf);
        let (life, other) = if pool.at_load { ("is not", "at load") } else { ("is", "for one call") };
        let message = format_args!("`{name}` {life} written at load, but pool `{}` is {other}", pool.name);
        self.report.check(at_load.is_none_or(|at_load| at_load == pool.at_load), "pool-life", message);
        let end = offset + data.span() * data.dtype.size() as i64;
        let facts = &self.loops.facts;
        let fits = facts.proves(&Rel::le(end, bytes)) && facts.proves(&Rel::le(0, offset));
        let message = format_args!("`{name}` may not fit into pool `{}`", pool.name);
        self.report.check(fits, "pool-overflow", message);
    }

    /// Whether the steps that write a buffer run when the model is loaded. None where nothing writes it.
    fn is_written_at_load(&self, buf: Buf) -> Option<bool> {
        let users = self.users.get(&buf)?.iter();
        let writers = users.filter(|&&user| self.loops.stmts[user].writes().contains(&buf));
        let mut steps = writers.flat_map(|&user| &self.placed[user]).map(|place| place.step);
        steps.next().map(|step| self.schedule.steps[step].at_load())
    }

    /// Reports buffers of a pool that may share bytes in a step that both are alive in.
    pub(super) fn shared_memory(&mut self) {
        for pool in &self.schedule.pools {
            let host = pool.bytes.is_none().then(|| (&*pool.name, Expr::zero()));
            let places = pool.places.iter().map(|(name, offset)| (&**name, *offset)).chain(host);
            // One that takes another's memory as well is reported with its reuse.
            let is_own = |name: &str| self.schedule.reuses.iter().all(|reuse| reuse.to != name);
            let places = places.filter(|(name, _)| is_own(name));
            let mut ranges: Vec<PoolRange> = places.filter_map(|place| self.pool_range(place)).collect();
            ranges.sort_by_key(|pool_range| pool_range.life.0);
            for (at, one) in ranges.iter().enumerate() {
                let meets = |other: &&PoolRange| other.life.0 <= one.life.1;
                for other in ranges[at + 1..].iter().take_while(meets) {
                    let is_le = |a, b| self.loops.facts.proves(&Rel::le(a, b));
                    let is_apart = is_le(one.to, other.from) || is_le(other.to, one.from);
                    let message = format_args!(
                        "`{}` and `{}` may share bytes of pool `{}` while both hold something",
                        one.name, other.name, pool.name
                    );
                    self.report.check(is_apart, "shared-memory", message);
                }
            }
        }
    }

    /// The bytes that a buffer has in its pool, and from which step to which it, or one that takes its memory, is used.
    fn pool_range<'n>(&self, (name, from): (&'n str, Expr)) -> Option<PoolRange<'n>> {
        let &buf = self.bufs.get(name)?;
        let data = &self.loops.bufs[buf];
        let to = from + data.span() * data.dtype.size() as i64;
        let mut life: Option<(usize, usize)> = None;
        // A chain that comes back to its start is none, and is reported where reuses are.
        let next = |name: &&str| {
            let reuse = self.schedule.reuses.iter().find(|reuse| reuse.from == *name);
            reuse.map(|reuse| &*reuse.to)
        };
        let chain = std::iter::successors(Some(name), next).take(self.schedule.reuses.len() + 1);
        for &buf in chain.filter_map(|name| self.bufs.get(name)) {
            let users = self.users.get(&buf).into_iter().flatten();
            let steps: Vec<usize> =
                users.flat_map(|&user| &self.placed[user]).map(|place| place.step).collect();
            // What loading leaves for calls, every call finds.
            let at_load = |step: &usize| self.schedule.steps[*step].at_load();
            let is_kept = steps.iter().any(at_load) && !steps.iter().all(at_load);
            let is_result = self.loops.results().any(|result| result == buf);
            for step in steps {
                let last = if is_kept || is_result { usize::MAX } else { step };
                life = Some(life.map_or((step, last), |(a, b)| (a.min(step), b.max(last))));
            }
        }
        // An input holds something before any step.
        let life = life.map(|(first, last)| (if data.kind == BufKind::Input { 0 } else { first }, last));
        Some(PoolRange { name, from, to, life: life? })
    }
}

/// Whether a part of a statement that uses a buffer loads or stores an element of it. A call touches all that it uses.
pub(super) fn touches(stmt: &Stmt, part: Part, buf: Buf) -> bool {
    matches!(stmt, Stmt::Extern(_))
        || stmt.nests().iter().any(|nest| {
            let mut insts = nest.body.iter().zip(parts_of(nest));
            insts.any(|(inst, parts)| {
                parts.contains(&part) && inst.op.element().is_some_and(|(touched, _)| touched == buf)
            })
        })
}
