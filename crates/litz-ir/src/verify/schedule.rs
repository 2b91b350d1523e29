//! A schedule and its loops program to what is wrong with the schedule.

use std::collections::{HashMap, HashSet};

use litz_sym::{Expr, Facts, Known, Rel, Sym};

use crate::diag::Diags;
use crate::ids::Id;
use crate::loops::{Axis, Buf, BufKind, InstOp, Loops, Nest, Output, Span, Stmt};
use crate::schedule::{KernelPlan, Leaf, LoopKind, Part, Pool, Schedule, Step, Tree};
use crate::verify::{Report, reuse};

/// What is wrong with a schedule of `loops`, a program that verifies.
///
/// Order is checked between whole statements: the last part of a statement that writes a buffer comes before the first
/// part of a later one that uses it. Whether parts that share loops may run interleaved is for the scheduler to prove.
///
/// Slugs: `wrong-program`, `duplicate-name`, `duplicate-symbol`, `undeclared-symbol`, `negative-size`, `zero-grain`,
/// `zero-lanes`, `symbolic-unroll`, `unknown-nest`, `unknown-statement`, `wrong-part`, `duplicate-leaf`,
/// `missing-nest`, `missing-part`, `split-nest`, `unknown-axis`, `unbound-axis`, `axis-coverage`, `repeated-leaf`,
/// `statement-order`, `tail-scope`, `tail-point`, `shared-reduction`, `tile-remainder`, `region-order`, `load-order`,
/// `unknown-buffer`, `local-escapes`, `unknown-scope`, `local-scope`, `placed-twice`, `pool-memory`, `pool-overflow`,
/// `reuse-escapes`, `reuse-type`, `reuse-life`, `reuse-points`.
pub fn verify(schedule: &Schedule, loops: &Loops) -> Diags {
    let (flat, spans) = loops.flat();
    let loops = &*flat;
    let stmts = loops.stmts.iter().enumerate().map(|(at, stmt)| (stmt.name(), at)).collect();
    let bufs = loops.bufs.iter().map(|(buf, data)| (&*data.name, buf)).collect();
    let placed = vec![Vec::new(); loops.stmts.len()];
    let mut users: HashMap<Buf, Vec<usize>> = HashMap::new();
    for (at, stmt) in loops.stmts.iter().enumerate() {
        for buf in stmt.reads().into_iter().chain(stmt.writes()) {
            users.entry(buf).or_default().push(at);
        }
    }
    let mut verifier = Verifier {
        report: Report::new(&loops.facts),
        schedule,
        loops,
        stmts,
        bufs,
        users,
        path: Vec::new(),
        loops_seen: 0,
        placed,
        count: 0,
    };
    verifier.run();
    spans.iter().for_each(|span| verifier.region(span));
    reuse::verify(schedule, loops, &spans, &mut verifier.report);
    verifier.report.diags
}

/// One place where (a part of) a statement runs.
#[derive(Clone)]
struct Place {
    /// Position among all places, in the order of the text.
    at: usize,
    /// Position of the step.
    step: usize,
    part: Part,
    /// The loops around, outermost first.
    path: Vec<Around>,
    /// The value of each axis.
    bind: Vec<(Sym, Expr)>,
}

/// A loop around a place.
#[derive(Clone, Copy)]
struct Around {
    /// Position among all loops, in the order of the text.
    number: usize,
    /// `None`: of the grid.
    kind: Option<LoopKind>,
    axis: Axis,
}

impl Place {
    fn value(&self, axis: Sym) -> Option<Expr> {
        self.bind.iter().find(|bind| bind.0 == axis).map(|bind| bind.1)
    }

    fn is_inside(&self, around: &Around) -> bool {
        self.path.iter().any(|own| own.number == around.number)
    }
}

struct Verifier<'a> {
    report: Report,
    schedule: &'a Schedule,
    loops: &'a Loops,
    stmts: HashMap<&'a str, usize>,
    bufs: HashMap<&'a str, Buf>,
    /// Statements that read or write each buffer; one that does both is there twice.
    users: HashMap<Buf, Vec<usize>>,
    /// The loops around, outermost first.
    path: Vec<Around>,
    /// How many loops there were so far.
    loops_seen: usize,
    /// Where each statement of the program runs.
    placed: Vec<Vec<Place>>,
    count: usize,
}

impl Verifier<'_> {
    fn run(&mut self) {
        let (schedule, loops) = (self.schedule, self.loops);
        let message = format_args!("expected a schedule of @{}, found one of @{}", loops.name, schedule.of);
        self.report.check(schedule.of == loops.name, "wrong-program", message);
        let names = schedule.steps.iter().filter_map(|step| match step {
            Step::Kernel(plan) => Some(&*plan.name),
            Step::Extern { .. } => None,
        });
        self.report.unique(names, "kernels");
        self.report.unique(schedule.pools.iter().map(|pool| &*pool.name), "pools");
        let mut is_loading = true;
        let mut kernels = Vec::new();
        for (at, step) in schedule.steps.iter().enumerate() {
            let (name, at_load) = match step {
                Step::Kernel(plan) => (&plan.name, plan.at_load),
                Step::Extern { name, at_load } => (name, *at_load),
            };
            let message = format_args!("`{name}` runs at load, but an earlier step does not");
            self.report.check(is_loading || !at_load, "load-order", message);
            is_loading &= at_load;
            match step {
                Step::Kernel(plan) => {
                    let loops = self.kernel(plan, at);
                    kernels.push((plan, at, loops));
                }
                Step::Extern { name, .. } => self.call(name, at),
            }
        }
        for (plan, step, loops) in kernels {
            self.locals(plan, step, &loops);
        }
        self.completeness();
        self.reductions();
        self.order();
        self.load_inputs();
        self.placements();
    }

    fn call(&mut self, name: &str, step: usize) {
        let stmt = self.stmts.get(name).copied();
        let Some(stmt) = stmt.filter(|&stmt| matches!(self.loops.stmts[stmt], Stmt::Extern(_))) else {
            let message = format_args!("`{name}` is no extern statement of @{}", self.loops.name);
            return self.report.fail("unknown-statement", message);
        };
        self.place(stmt, step, Part::Whole, &[]);
    }

    fn place(&mut self, stmt: usize, step: usize, part: Part, bind: &[(Sym, Expr)]) {
        let name = self.loops.stmts[stmt].name();
        let is_first = self.placed[stmt].iter().all(|place| place.part != part);
        self.report.check(is_first, "duplicate-leaf", format_args!("`{name}` runs twice"));
        let (path, bind) = (self.path.clone(), bind.to_vec());
        self.placed[stmt].push(Place { at: self.count, step, part, path, bind });
        self.count += 1;
    }

    /// Returns the variables of all loops.
    fn kernel(&mut self, plan: &KernelPlan, step: usize) -> HashSet<Sym> {
        let message = format_args!("`{}`: a thread takes at least one grid point at a time", plan.name);
        self.report.check(plan.grain > 0, "zero-grain", message);
        for axis in &plan.grid {
            self.report.extent(axis.extent, format_args!("`{}`, grid axis {}", plan.name, axis.var));
        }
        let mark = self.report.enter();
        for &axis in &plan.grid {
            self.report.declare(axis.var);
            self.step_into(None, axis);
        }
        let mut loops: HashSet<Sym> = plan.grid.iter().map(|axis| axis.var).collect();
        for tree in &plan.body {
            self.tree(tree, step, &mut loops);
        }
        self.path.clear();
        self.report.leave(mark);
        loops
    }

    fn step_into(&mut self, kind: Option<LoopKind>, axis: Axis) {
        self.path.push(Around { number: self.loops_seen, kind, axis });
        self.loops_seen += 1;
    }

    /// `loops` gathers the variables of all loops.
    fn tree(&mut self, tree: &Tree, step: usize, loops: &mut HashSet<Sym>) {
        let (kind, axis, body) = match tree {
            Tree::Leaf(leaf) => return self.leaf(leaf, step),
            Tree::Loop { kind, axis, body } => (kind, axis, body),
        };
        self.report.extent(axis.extent, format_args!("loop {}", axis.var));
        let is_constant = axis.extent.as_int().is_some();
        let (fits, is_wide) = match kind {
            LoopKind::For | LoopKind::Partial | LoopKind::Thread | LoopKind::Warp => (true, true),
            LoopKind::Unroll | LoopKind::Tile | LoopKind::Mma => (is_constant, true),
            LoopKind::Vector { lanes, copies } => (true, *lanes > 0 && *copies > 0),
            LoopKind::TileVector { lanes } => (is_constant, *lanes > 0),
        };
        let message = format_args!("loop {}: expected a constant extent, found {}", axis.var, axis.extent);
        self.report.check(fits, "symbolic-unroll", message);
        let message = format_args!("loop {}: expected at least one lane and one copy", axis.var);
        self.report.check(is_wide, "zero-lanes", message);
        let mark = self.report.enter();
        self.report.declare(axis.var);
        loops.insert(axis.var);
        self.step_into(Some(*kind), *axis);
        for tree in body {
            self.tree(tree, step, loops);
        }
        self.path.pop();
        self.report.leave(mark);
    }

    fn leaf(&mut self, leaf: &Leaf, step: usize) {
        let name = &leaf.nest;
        let stmt = self.stmts.get(&**name).copied();
        let Some((stmt, Stmt::Nest(nest))) = stmt.map(|stmt| (stmt, &self.loops.stmts[stmt])) else {
            let message = format_args!("`{name}` is no nest of @{}", self.loops.name);
            return self.report.fail("unknown-nest", message);
        };
        let message = match leaf.part {
            Part::Whole => format!("`{name}` reduces: expected {name}.body and {name}.tail"),
            Part::Body | Part::Tail => format!("`{name}` reduces nothing: expected it whole"),
        };
        self.report.check(reduces(nest) == (leaf.part != Part::Whole), "wrong-part", message);
        self.place(stmt, step, leaf.part, &leaf.bind);
        self.bindings(leaf, nest);
    }

    fn bindings(&mut self, leaf: &Leaf, nest: &Nest) {
        let name = &leaf.nest;
        let before = self.report.diags.len();
        let reduced: &[Axis] = if leaf.part == Part::Tail { &[] } else { &nest.reduced };
        let axes: HashMap<Sym, Expr> =
            nest.axes.iter().chain(reduced).map(|axis| (axis.var, axis.extent)).collect();
        let mut bound = HashSet::new();
        for &(axis, value) in &leaf.bind {
            self.report.expr(value, format_args!("`{name}`, axis {axis}"));
            let message = format_args!("`{name}` has no axis {axis} here");
            self.report.check(axes.contains_key(&axis), "unknown-axis", message);
            self.report.check(
                bound.insert(axis),
                "duplicate-symbol",
                format_args!("`{name}` binds {axis} twice"),
            );
        }
        for axis in nest.axes.iter().chain(reduced).filter(|axis| !bound.contains(&axis.var)) {
            self.report.fail("unbound-axis", format_args!("`{name}` does not say what axis {} is", axis.var));
        }
        for &(axis, value) in &leaf.bind {
            let covers = |&extent: &Expr| self.covers(extent, value);
            if axes.get(&axis).is_some_and(|extent| !covers(extent)) {
                let message =
                    format_args!("`{name}`: {axis} = {value} does not take each value of its axis once");
                self.report.fail("axis-coverage", message);
            }
        }
        if self.report.diags.len() > before {
            // What follows asks which loops the axes depend on; that was wrong already.
            return;
        }
        for Around { axis, .. } in &self.path {
            let users: Vec<Expr> =
                leaf.bind.iter().map(|&(_, value)| value).filter(|value| value.has_sym(axis.var)).collect();
            if users.is_empty() && !axis.extent.is_one() {
                let message = format_args!("`{name}` runs at each {axis}, but no axis depends on it");
                self.report.fail("repeated-leaf", message);
            }
            let linear = users.iter().filter(|value| value.linear(axis.var).is_some()).count();
            if linear > 1 {
                let message = format_args!("`{name}`: {linear} axes step with loop {}", axis.var);
                self.report.fail("axis-coverage", message);
            }
        }
    }

    /// Whether `value` takes each of `0 .. extent` once, and else only larger values; true where it cannot tell. Decides
    /// sums of loop variables by the rule of mixed radix: 1, then the extent of the loop before, and so on.
    fn covers(&self, extent: Expr, value: Expr) -> bool {
        let (mut rest, mut digits) = (value, Vec::new());
        for axis in self.path.iter().map(|around| around.axis).filter(|axis| value.has_sym(axis.var)) {
            let Some((factor, without)) = rest.linear(axis.var) else { return true };
            rest = without;
            if !axis.extent.is_one() {
                digits.push((factor, axis.extent));
            }
        }
        let mut radix = Expr::one();
        while let Some(at) = digits.iter().position(|&(factor, _)| factor == radix) {
            radix = radix * digits.swap_remove(at).1;
        }
        if !digits.is_empty() {
            let is_decided =
                radix.as_int().is_some() && digits.iter().all(|(factor, _)| factor.as_int().is_some());
            return !is_decided;
        }
        match rest.as_int() {
            // Loops over what nobody declared are wrong already.
            Some(0) => {
                !self.report.has_declared(radix)
                    || self.loops.facts.known(&Rel::le(extent, radix)) == Known::Yes
            }
            Some(_) => false,
            None => true,
        }
    }

    /// Every statement that something depends on runs, and wholly, within one step.
    fn completeness(&mut self) {
        let live = live_statements(self.loops);
        for ((stmt, places), is_live) in self.loops.stmts.iter().zip(&self.placed).zip(live) {
            let name = stmt.name();
            let reduces = matches!(stmt, Stmt::Nest(nest) if reduces(nest));
            let has = |part: Part| places.iter().any(|place| place.part == part);
            if places.is_empty() {
                self.report.check(!is_live, "missing-nest", format_args!("`{name}` runs nowhere"));
            } else if reduces && has(Part::Body) != has(Part::Tail) {
                let missing = if has(Part::Body) { "tail" } else { "body" };
                self.report.fail("missing-part", format_args!("`{name}.{missing}` runs nowhere"));
            }
            let is_together = places.windows(2).all(|pair| pair[0].step == pair[1].step);
            self.report.check(
                is_together,
                "split-nest",
                format_args!("the parts of `{name}` are in two kernels"),
            );
            let in_order = places.windows(2).all(|pair| pair[0].part <= pair[1].part);
            self.report.check(
                in_order,
                "statement-order",
                format_args!("`{name}.tail` runs before its body"),
            );
        }
    }

    /// The running values of a nest live from before its outermost loop along a reduced axis to the end of the loops
    /// around that one: there its tail reads them, at the same points.
    fn reductions(&mut self) {
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            let Stmt::Nest(nest) = stmt else { continue };
            let part = |part: Part| places.iter().find(|place| place.part == part);
            for place in places {
                tile_remainders(&mut self.report, &self.loops.facts, nest, place);
                shared_reductions(&mut self.report, nest, place);
            }
            if let (Some(body), Some(tail)) = (part(Part::Body), part(Part::Tail)) {
                same_points(&mut self.report, nest, body, tail);
            }
        }
    }

    /// Statements that touch one buffer, of which at least one writes, run in the order of the program.
    fn order(&mut self) {
        let mut writers: Vec<Option<usize>> = vec![None; self.loops.bufs.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.loops.bufs.len()];
        for (at, stmt) in self.loops.stmts.iter().enumerate() {
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
                let earlier = writer.replace(at).into_iter().chain(std::mem::take(readers));
                for other in earlier.filter(|&other| other != at).collect::<Vec<_>>() {
                    self.ordered(other, at, buf);
                }
            }
        }
    }

    fn ordered(&mut self, first: usize, second: usize, buf: Buf) {
        let last = self.placed[first].iter().map(|place| place.at).max();
        let next = self.placed[second].iter().map(|place| place.at).min();
        if let (Some(last), Some(next)) = (last, next)
            && last > next
        {
            let (first, second) = (self.loops.stmts[first].name(), self.loops.stmts[second].name());
            let buf = &self.loops.bufs[buf].name;
            let message =
                format_args!("`{second}` runs before `{first}`, which comes first for buffer `{buf}`");
            self.report.fail("statement-order", message);
        }
    }

    /// The nests that a region repeats run in one loop, in order, that counts its axis.
    fn region(&mut self, span: &Span) {
        let over = span.over.var;
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
                    let is_ordered = matches!(around.kind, Some(LoopKind::For | LoopKind::Unroll));
                    is_ordered && Some(around.axis.var) == value
                };
                counting.push(place.path.iter().find(counts).map(|around| around.number));
            }
        }
        let is_one = counting.windows(2).all(|pair| pair[0] == pair[1]) && !counting.contains(&None);
        let message = format_args!("the nests of `{}` do not share a loop in order along {over}", span.name);
        self.report.check(is_one, "region-order", message);
    }

    /// What runs at load reads constants and what ran at load before.
    fn load_inputs(&mut self) {
        let at_load = |step: &Step| match step {
            Step::Kernel(plan) => plan.at_load,
            Step::Extern { at_load, .. } => *at_load,
        };
        let runs_at_load =
            |places: &[Place]| places.iter().any(|place| at_load(&self.schedule.steps[place.step]));
        let mut late: HashSet<Buf> = self
            .loops
            .bufs
            .iter()
            .filter(|(_, data)| data.kind == BufKind::Input)
            .map(|(buf, _)| buf)
            .collect();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            if !runs_at_load(places) {
                late.extend(stmt.writes());
                continue;
            }
            for buf in stmt.reads().into_iter().filter(|buf| late.contains(buf)) {
                let buf = self.loops.bufs.get(buf).map_or("?", |data| &data.name);
                let message =
                    format_args!("`{}` runs at load, but `{buf}` has no contents then", stmt.name());
                self.report.fail("load-order", message);
            }
        }
    }

    fn locals(&mut self, plan: &KernelPlan, step: usize, loops: &HashSet<Sym>) {
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
        let is_seen = data.kind != BufKind::Temp || results(self.loops).any(|result| result == buf);
        self.report.check(!is_seen, "local-escapes", format_args!("`{name}` is seen outside of the program"));
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

    fn placements(&mut self) {
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
                && results(loops).any(|result| result == buf)
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

/// Threads share no running values: no axis of the grid is one that `place` reduces or scans along.
fn shared_reductions(report: &mut Report, nest: &Nest, place: &Place) {
    if place.part == Part::Tail {
        return;
    }
    let scanned = nest.body.iter().filter_map(|inst| match inst.op {
        InstOp::Scan { axis, .. } => Some(axis),
        _ => None,
    });
    for axis in nest.reduced.iter().map(|axis| axis.var).chain(scanned) {
        let is_bound_by =
            |around: &&Around| place.value(axis).is_some_and(|value| value.has_sym(around.axis.var));
        let grid = place.path.iter().take_while(|around| around.kind.is_none());
        for around in grid.filter(|around| !around.axis.extent.is_one()).filter(is_bound_by) {
            let message = format_args!("`{}`: {axis} runs along grid axis {}", nest.name, around.axis.var);
            report.fail("shared-reduction", message);
        }
    }
}

/// Points of a tile are in flight together: an inner loop along the same reduced axis ends at the same point for all of
/// them. (Outer points past the end are masked.)
fn tile_remainders(report: &mut Report, facts: &Facts, nest: &Nest, place: &Place) {
    let is_tile =
        |around: &&Around| matches!(around.kind, Some(LoopKind::Tile | LoopKind::TileVector { .. }));
    for axis in nest.reduced.iter().filter(|_| place.part == Part::Body) {
        let Some(value) = place.value(axis.var) else { continue };
        let used: Vec<&Around> = place.path.iter().filter(|around| value.has_sym(around.axis.var)).collect();
        let Some((_, outer)) = used.split_last() else { continue };
        let Some(tile) = outer.iter().copied().find(is_tile) else { continue };
        let mut facts = facts.clone();
        used.iter().for_each(|around| facts.declare_index(around.axis.var, around.axis.extent));
        let is_within = facts.known(&Rel::lt(value, axis.extent)).is_yes();
        let message = format_args!(
            "`{}`: {} = {value} may leave its axis, at different points of tile {}",
            nest.name, axis.var, tile.axis.var
        );
        report.check(is_within, "tile-remainder", message);
    }
}

/// The tail of a nest is inside all loops in which its running values begin anew, and takes the points of those loops in
/// the order of the body.
fn same_points(report: &mut Report, nest: &Nest, body: &Place, tail: &Place) {
    let reduces_along = |around: &Around| {
        nest.reduced.iter().any(|axis| body.value(axis.var).is_some_and(|v| v.has_sym(around.axis.var)))
    };
    let start = body.path.iter().position(reduces_along).unwrap_or(body.path.len());
    let around: Vec<&Around> =
        body.path[..start].iter().filter(|around| !around.axis.extent.is_one()).collect();
    let is_around = |sym: Sym| around.iter().any(|around| around.axis.var == sym);
    let name = &nest.name;
    for around in &around {
        let message = format_args!(
            "`{name}.tail` is outside of loop {}, at whose points `{name}.body` begins anew",
            around.axis.var
        );
        report.check(tail.is_inside(around), "tail-scope", message);
    }
    for axis in &nest.axes {
        let first = |place: &Place| {
            let is_within = |sym: Sym| place.path.iter().any(|around| around.axis.var == sym);
            let value = place.value(axis.var)?;
            Some(value.subst(&|sym| (is_within(sym) && !is_around(sym)).then(Expr::zero)))
        };
        let (ours, theirs) = (first(tail), first(body));
        if let (Some(ours), Some(theirs)) = (ours, theirs)
            && ours != theirs
        {
            let message = format_args!("`{name}.tail` begins at {} = {ours}, its body at {theirs}", axis.var);
            report.fail("tail-point", message);
        }
    }
}

/// Whether the nest has a part that runs once per outer point.
pub(super) fn reduces(nest: &Nest) -> bool {
    nest.body.iter().any(|inst| inst.op.is_reduction())
}

/// Buffers that are read when all statements are done.
pub(super) fn results(loops: &Loops) -> impl Iterator<Item = Buf> {
    let outputs = loops.outputs.iter().filter_map(|output| match output {
        Output::View { buf, .. } => Some(*buf),
        Output::Int(_) | Output::Literal(_) | Output::Nothing => None,
    });
    outputs.chain(loops.updates.iter().map(|&(_, source)| source))
}

/// For each statement, whether a result depends on it.
fn live_statements(loops: &Loops) -> Vec<bool> {
    let mut wanted: HashSet<Buf> = results(loops).collect();
    let mut live = vec![false; loops.stmts.len()];
    for (at, stmt) in loops.stmts.iter().enumerate().rev() {
        live[at] = stmt.writes().iter().any(|buf| wanted.contains(buf));
        if live[at] {
            wanted.extend(stmt.reads());
        }
    }
    live
}
