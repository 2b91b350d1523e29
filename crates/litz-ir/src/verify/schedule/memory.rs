//! Where buffers are, as a schedule says, to what is wrong with it: local to a kernel, or at a place in a pool.

use std::collections::HashSet;

use litz_sym::{Expr, Rel, Sym};

use super::Verifier;
use crate::loops::{Buf, BufKind};
use crate::schedule::{KernelPlan, Pool, Step};

impl Verifier<'_> {
    /// Local buffers are of the kernel, or of the loop that they belong to, alone. `loops` are all loops of the kernel.
    pub(super) fn locals(&mut self, plan: &KernelPlan, step: usize, loops: &HashSet<Sym>) {
        self.report.unique(plan.locals.iter().map(|local| &*local.buf), "locals");
        for local in &plan.locals {
            let name = &local.buf;
            let Some(&buf) = self.bufs.get(&**name) else {
                self.report
                    .fail("unknown-buffer", format_args!("`{}`: there is no buffer `{name}`", plan.name));
                continue;
            };
            if let Some(scope) = local.scope
                && !loops.contains(&scope)
            {
                let message = format_args!("`{name}`: `{}` has no loop {scope}", plan.name);
                self.report.fail("unknown-scope", message);
                continue;
            }
            self.local_uses(buf, local.scope, step);
        }
    }

    fn local_uses(&mut self, buf: Buf, scope: Option<Sym>, step: usize) {
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
            let is_elsewhere = places.iter().any(|place| place.step != step);
            let message =
                format_args!("`{name}` is local to a kernel, but `{}` runs in another", stmt.name());
            self.report.check(!is_elsewhere, "local-escapes", message);
            let Some(scope) = scope else { continue };
            let is_inside = places
                .iter()
                .all(|place| place.step != step || place.path.iter().any(|around| around.axis.var == scope));
            let message =
                format_args!("`{name}` is local to loop {scope}, but `{}` is outside of it", stmt.name());
            self.report.check(is_inside, "local-scope", message);
        }
    }

    /// Each buffer has one place, within its pool.
    pub(super) fn placements(&mut self) {
        let mut placed: HashSet<&str> = HashSet::new();
        for step in &self.schedule.steps {
            if let Step::Kernel(plan) = step {
                placed.extend(plan.locals.iter().map(|local| &*local.buf));
            }
        }
        for pool in &self.schedule.pools {
            let Some(bytes) = self.pool_bytes(pool, &placed) else { continue };
            self.report.extent(bytes, format_args!("pool `{}`", pool.name));
            for (name, offset) in &pool.places {
                let message = format_args!("`{name}` has two places");
                self.report.check(placed.insert(name), "placed-twice", message);
                self.pooled((pool, bytes), name, *offset);
            }
        }
    }

    /// The size of a pool that has one, or that of the returned buffer whose memory it is.
    fn pool_bytes(&mut self, pool: &Pool, placed: &HashSet<&str>) -> Option<Expr> {
        if pool.bytes.is_some() {
            return pool.bytes;
        }
        let loops = self.loops;
        let host = self.bufs.get(&*pool.name).map(|&buf| (buf, &loops.bufs[buf]));
        let host = host.filter(|&(buf, data)| {
            data.kind == BufKind::Temp
                && !placed.contains(&*data.name)
                && loops.results().any(|result| result == buf)
        });
        let message = format_args!("pool `{}` has no size and is no buffer that is returned", pool.name);
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
        let message = format_args!("`{name}` comes from outside and needs no place");
        self.report.check(data.kind == BufKind::Temp, "local-escapes", message);
        let end = offset + data.span() * data.dtype.size() as i64;
        let facts = &self.loops.facts;
        let overflows = facts.known(&Rel::le(end, bytes)).is_no() || facts.known(&Rel::le(0, offset)).is_no();
        let message = format_args!("`{name}` does not fit into pool `{}`", pool.name);
        self.report.check(!overflows, "pool-overflow", message);
    }
}
