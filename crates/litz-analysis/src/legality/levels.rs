//! Checks loops over levels against the target, and proves that each thread accesses only its own elements of private memory.
//!
//! Iterations of a loop over a level run at once, each by threads of its own, and all are done when what is behind the loop begins. What
//! is outside of such loops every thread computes for itself. Registers and scratch memory are private to threads: declared
//! inside of such a loop each iteration has its own, declared outside they are spread over the threads, and an element belongs
//! to the one that touches it. So of two accesses of one element the loops over levels between the declaration and each
//! are alike, and their variables are equal. What all threads of a warp compute, each of its lanes may read; and a `merge` goes
//! over the threads of a block: all of them have its result, or lanes side by side what these combine.

use super::groups::{by_groups, has_result, lanes_of};
use super::problem::Site;
use super::proofs::Point;
use super::{Around, Declared, Occurrence, Verifier};
use crate::apart::Visit;
use crate::inside::longest;
use crate::parts::parts_of;
use litz_ir::loops::{Axis, Buf, InstOp, Nest, Stmt};
use litz_ir::schedule::{Holds, Layout, Local, LocalSpace, LoopKind, Part};
use litz_ir::target::{Gpu, Level, Target, Team};
use litz_sym::{Expr, Rel, Sym};
use std::collections::HashMap;

/// An access of memory that a kernel declares.
pub(super) struct Use<'a> {
    nest: &'a Nest,
    place: Occurrence,
    /// The element, in terms of the nest's axes.
    element: Vec<Expr>,
    how: How,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Load,
    Store,
    /// Combines what lanes have.
    Merge,
}

impl Use<'_> {
    /// Whether it changes the element.
    pub(super) fn is_store(&self) -> bool {
        self.how == How::Store
    }

    /// The nest that it is of.
    pub(super) fn nest(&self) -> &Nest {
        self.nest
    }

    /// The part of the nest.
    pub(super) fn part(&self) -> Part {
        self.place.part
    }

    /// The coordinates, in terms of the nest's axes.
    pub(super) fn element(&self) -> &[Expr] {
        &self.element
    }

    /// The number of the leaf that it is of.
    pub(super) fn leaf(&self) -> Option<usize> {
        self.place.leaf
    }

    /// The loops around, outermost first.
    pub(super) fn path(&self) -> &[Around] {
        &self.place.path
    }

    /// The loops around that are inside of the declaration of that number.
    pub(super) fn path_within(&self, number: usize) -> &[Around] {
        &self.place.path[loops_around(number, &self.place)..]
    }
}

impl<'a> Verifier<'a> {
    /// Checks that a loop over a level is one that the target has in the level around.
    pub(super) fn level(&mut self, Team { level, from, each }: Team, axis: Axis) {
        let around = self.path.iter().rev().find_map(level_of).unwrap_or((Level::Grid.into(), axis));
        let around = around.0.level;
        let (name, target) = (level.name(), self.schedule.target);
        let width = i64::from(target.width(level));
        let message = format_args!("loop {}: the target has no level `{name}`", axis.var);
        self.report.check(width > 0, "wrong-level", message);
        if width == 0 {
            return;
        }
        let message = format_args!("loop {}: `{name}` is no level within `{}`", axis.var, around.name());
        self.report.check(level.is_within(around), "level-order", message);
        if level == Level::Block {
            let message = format_args!("loop {}: the first block is number 0", axis.var);
            self.report.check(from == 0, "level-width", message);
            let message = format_args!("loop {}: one block runs each iteration", axis.var);
            self.report.check(each == 1, "level-width", message);
            return self.blocks_of_a_point(axis);
        }
        let most = match (around, level) {
            (Level::Warpgroup, Level::Warp) => i64::from(Gpu::WARPGROUP / Gpu::LANES),
            (Level::Warpgroup, Level::Thread) => i64::from(Gpu::WARPGROUP),
            _ => width,
        };
        let count = longest(axis.extent).as_int();
        // Lanes that do the same combine what they have in pairs.
        let is_group =
            level == Level::Lane && each.is_power_of_two() && each <= Gpu::LANES && from % each == 0;
        let message = format_args!(
            "loop {}: one {name} runs each iteration, or a power of two of lanes side by side",
            axis.var
        );
        self.report.check(each == 1 || is_group, "level-width", message);
        let most = (most - i64::from(from)).max(0) / i64::from(each.max(1));
        let found = count.map_or_else(|| axis.extent.to_string(), |count| count.to_string());
        let message = format_args!(
            "loop {}: expected at most {most} iterations, the level's number, found {found}",
            axis.var
        );
        self.report.check(count.is_some_and(|count| count <= most), "level-width", message);
    }

    /// Checks that the target copies in the background, as a pipelined loop asks, and that threads come to it together.
    pub(super) fn pipeline(&mut self, axis: Axis, buffers: u32) {
        let message = format_args!("loop {}: a pipeline has at least two buffers, and at most 64", axis.var);
        self.report.check((2..=64).contains(&buffers), "zero-lanes", message);
        let has_copies = matches!(self.schedule.target, Target::Gpu(_));
        let message = format_args!("loop {}: the target copies nothing in the background", axis.var);
        self.report.check(has_copies, "wrong-level", message);
        let message = format_args!("loop {}: all threads of a block come to a pipeline together", axis.var);
        self.report.check(!self.is_in_block(), "level-order", message);
    }

    /// Whether there is a loop over a part of a block around.
    fn is_in_block(&self) -> bool {
        self.path.iter().filter_map(level_of).any(|(team, _)| team.level != Level::Block)
    }

    /// Checks a loop over blocks. Those of a cluster run together and may meet as often as they like. Others need not be there at the
    /// same time: what is behind their loop the last one runs that comes there, and of those before it nobody is left for another.
    fn blocks_of_a_point(&mut self, axis: Axis) {
        let declared = self.visible.iter().map(|declared| self.locals[declared.number].0);
        let spaces: Vec<LocalSpace> = declared.map(|local| local.space).collect();
        let message = format_args!("loop {}: what the threads of a block share is declared in it", axis.var);
        self.report.check(!spaces.contains(&LocalSpace::Shared), "wrong-space", message);
        if spaces.contains(&LocalSpace::Cluster) {
            let most = i64::from(Gpu::CLUSTER);
            let count = longest(axis.extent).as_int();
            let message =
                format_args!("loop {}: expected at most {most} blocks, those of a cluster", axis.var);
            return self.report.check(count.is_some_and(|count| count <= most), "level-width", message);
        }
        let is_alone = self.path.iter().all(|around| around.kind.is_none()) && self.sides.is_empty();
        let is_alone = is_alone && !self.has_clusters;
        let message =
            format_args!("loop {}: blocks of no cluster are those of a whole point of the grid", axis.var);
        self.report.check(is_alone, "level-order", message);
        let message =
            format_args!("loop {}: nothing of a point of the grid is ahead of its blocks", axis.var);
        self.report.check(self.leaves_seen == self.leaves_ahead, "level-order", message);
    }

    /// Checks that memory is where the target has some, and that what threads share is declared for all of a block.
    pub(super) fn space(&mut self, name: &str, space: LocalSpace) {
        let is_in_blocks = self.path.iter().any(|around| level_of(around).is_some());
        match (self.schedule.target, space) {
            (_, LocalSpace::Register | LocalSpace::Scratch) => {}
            (Target::Cpu(_), LocalSpace::Shared | LocalSpace::Cluster | LocalSpace::Global) => {
                let message = format_args!("`{name}`: the target has no threads that share {}", space.name());
                self.report.fail("wrong-space", message);
            }
            (Target::Gpu(_), LocalSpace::Shared) => {
                let message =
                    format_args!("`{name}`: what all threads share is declared outside of their loops");
                self.report.check(!self.is_in_block(), "wrong-space", message);
            }
            (Target::Gpu(gpu), LocalSpace::Cluster) => {
                let message = format_args!("`{name}`: the target's blocks share no memory of their own");
                self.report.check(gpu.isa.has_clusters(), "wrong-space", message);
                let message = format_args!("`{name}`: what blocks share is declared outside of their loops");
                self.report.check(!is_in_blocks, "wrong-space", message);
            }
            (Target::Gpu(_), LocalSpace::Global) => {
                let message = format_args!("`{name}`: what blocks share is declared outside of their loops");
                self.report.check(!is_in_blocks, "wrong-space", message);
            }
        }
    }

    /// Checks that elements can lie so where they are.
    pub(super) fn layout(&mut self, name: &str, local: &Local) {
        let (is_layout, needs) = match local.layout {
            Layout::Dense => return,
            Layout::Padded(line) => (line > 0, "at least one element"),
            Layout::Swizzled { unit, .. } | Layout::Panels { unit, .. } => {
                let is_banked = matches!(local.space, LocalSpace::Shared | LocalSpace::Cluster);
                let message = format_args!("`{name}`: {} memory has no banks", local.space.name());
                self.report.check(is_banked, "wrong-layout", message);
                (matches!(unit, 4 | 8 | 16), "4, 8 or 16 bytes")
            }
        };
        self.report.check(is_layout, "wrong-layout", format_args!("`{name}`: expected {needs}"));
        let message = format_args!("`{name}`: accumulators have no layout of their own");
        self.report.check(local.accumulates().is_none(), "wrong-layout", message);
    }

    /// Reports accesses of private memory that another thread may own, and values that threads combine without a merge.
    pub(super) fn private_memories(&mut self) {
        let has_levels = |place: &Occurrence| place.path.iter().any(|around| level_of(around).is_some());
        if !self.placed.iter().flatten().any(has_levels) {
            return;
        }
        self.combined_at_once();
        let mut problems = Vec::new();
        for number in 0..self.locals.len() {
            let (local, _) = self.locals[number];
            if local.space.is_shared() {
                continue;
            }
            let uses = self.uses_of(number);
            if let Some((why, site)) = self.foreign(number, &uses) {
                let name = local.name();
                problems.push((format!("`{name}`, private to threads: {why}"), site));
            }
        }
        self.fail_all("foreign-memory", problems);
        self.stored_together();
        self.stored_at_once();
    }

    /// Reports loops over several threads an iteration in which these load what the first of them stores, in memory that others see: within
    /// an iteration they do not meet.
    fn stored_together(&mut self) {
        let mut touched: HashMap<(usize, Buf), [Option<Site>; 2]> = HashMap::new();
        for (stmt, places) in self.loops.stmts.iter().zip(&self.placed) {
            for place in places {
                let level =
                    place.path.iter().rev().find_map(|around| Some((around.number, level_of(around)?.0)));
                let Some((number, _)) = level.filter(|(_, team)| team.each > 1 && !team.level.has_threads())
                else {
                    continue;
                };
                for nest in stmt.nests() {
                    for (at, (inst, parts)) in nest.body.iter().zip(parts_of(nest)).enumerate() {
                        let Some((buf, _)) = inst.op.element().filter(|_| parts.contains(&place.part)) else {
                            continue;
                        };
                        let is_store = matches!(inst.op, InstOp::Store { .. });
                        let (buf, declared) = match is_store {
                            true => (buf, self.declared_around(place, buf)),
                            false => self.held(nest, place, (at, buf)),
                        };
                        if declared.is_some_and(|at| !self.locals[at.number].0.space.is_shared()) {
                            continue;
                        }
                        touched.entry((number, buf)).or_default()[usize::from(is_store)] = place.site();
                    }
                }
            }
        }
        let both = touched.into_iter().filter_map(|((_, buf), sites)| Some((buf, sites[0]?, sites[1]?)));
        let mut both: Vec<(Buf, Site)> = both.map(|(buf, _, site)| (buf, site)).collect();
        both.sort_by_key(|(buf, _)| *buf);
        let problem = |(buf, site): (Buf, Site)| {
            let name = &self.loops.bufs[buf].name;
            (format!("`{name}`: threads of one iteration load what the first of them stores"), Some(site))
        };
        let problems = both.into_iter().map(problem).collect();
        self.fail_all("unordered-store", problems);
    }

    /// Reports stores to shared memory of what is computed several times, of an element that another thread may touch before all meet.
    fn stored_at_once(&mut self) {
        let mut problems = Vec::new();
        for number in 0..self.locals.len() {
            let (local, _) = self.locals[number];
            let writer =
                local.buffer().and_then(|name| self.bufs.get(name)).and_then(|&buf| self.writer(buf));
            if !local.space.is_shared() || !writer.is_some_and(|at| self.recomputed.contains(&at)) {
                continue;
            }
            let uses = self.uses_of_buffer(number);
            let meets = |(at, one): (usize, &Use<'a>)| {
                let is_ordered = |other: &Use<'a>| self.is_ordered(number, one, other);
                uses[at..].iter().find(|other| !is_ordered(other)).map(|other| other.place.site())
            };
            if let Some(site) = uses.iter().enumerate().find_map(meets) {
                let name = local.buffer().unwrap_or_default();
                let problem =
                    format!("`{name}`, shared by threads: one may store an element that another touches");
                problems.push((problem, site));
            }
        }
        self.fail_all("unordered-store", problems);
    }

    /// Whether two accesses of shared memory touch one element only by the same thread, or threads meet in between: where a loop over a level
    /// ends. Blocks that loops around its declaration count have each their own.
    fn is_ordered(&self, number: usize, one: &Use<'a>, other: &Use<'a>) -> bool {
        let both = one.place.shared_loops(&other.place);
        let declared = loops_around(number, &one.place);
        let levels_of_both =
            both.iter().enumerate().skip(declared).filter(|(_, around)| level_of(around).is_some());
        let Some((outside, _)) = levels_of_both.clone().next() else { return true };
        let axes =
            owners(std::iter::once(levels_of_both.filter_map(|(_, around)| level_of(around)).collect()));
        let levels = |used: &Use| -> Vec<(Team, Axis)> {
            used.place.path[outside..].iter().filter_map(level_of).collect()
        };
        let is_store = [one, other].iter().any(|used| used.how == How::Store);
        !is_store
            || one.place.excludes_within(outside, &other.place)
            || self.is_owned(one, other, outside, &axes, [levels(one), levels(other)])
    }

    /// Reports loops over levels in which points are combined into what is declared outside of them.
    fn combined_at_once(&mut self) {
        let mut problems = Vec::new();
        for (stmt, places) in self.placed.iter().enumerate() {
            let Stmt::Nest(nest) = &self.loops.stmts[stmt] else { continue };
            for place in places.iter().filter(|place| place.part.is_along_reduced()) {
                let Some(scope) = self.scope(stmt, place) else { continue };
                for (level, axis) in place.path[scope.loops..].iter().filter_map(level_of) {
                    let is_along =
                        |(own, value): &(Sym, Expr)| nest.is_running(*own) && value.has_sym(axis.var);
                    if place.counted.iter().any(is_along) {
                        let message = format!(
                            "`{}` combines along {} {}: expected accumulators in it, and {}.merge",
                            nest.name,
                            level.level.name(),
                            axis.var,
                            nest.name
                        );
                        problems.push((message, place.site()));
                    }
                }
            }
        }
        self.fail_all("shared-reduction", problems);
    }

    /// The loops over levels between the declaration of private memory and what stores to it first: each of their iterations has
    /// elements of its own.
    pub(super) fn levels_of_owner(&self, number: usize) -> Vec<Axis> {
        let Some(Use { place, .. }) = self.uses_of(number).into_iter().find(|used| used.how == How::Store)
        else {
            return Vec::new();
        };
        place.path[loops_around(number, &place)..].iter().filter_map(level_of).map(|level| level.1).collect()
    }

    /// The accesses of the memory of that number, which holds a buffer.
    pub(super) fn uses_of_buffer(&self, number: usize) -> Vec<Use<'a>> {
        let accesses = self.accesses.get_or_init(|| self.accesses_of_memories()).get(&number);
        let of = |&[stmt, place, at]: &[usize; 3]| {
            let (Stmt::Nest(nest), place) = (&self.loops.stmts[stmt], &self.placed[stmt][place]) else {
                return None;
            };
            let inst = &nest.body[at].op;
            let how = if matches!(inst, InstOp::Store { .. }) { How::Store } else { How::Load };
            // An operand in registers is the left one, spread as sums are, with reduced points for columns.
            Some(Use { nest, place: by_threads(place, 2), element: inst.element()?.1.to_vec(), how })
        };
        accesses.into_iter().flatten().filter_map(of).collect()
    }

    /// Of each memory that holds a buffer its accesses: the statement, the place among those of the statement, the instruction.
    fn accesses_of_memories(&self) -> HashMap<usize, Vec<[usize; 3]>> {
        let mut found: HashMap<usize, Vec<[usize; 3]>> = HashMap::new();
        for (stmt, places) in self.placed.iter().enumerate() {
            let Stmt::Nest(nest) = &self.loops.stmts[stmt] else { continue };
            let parts = parts_of(nest);
            for (number, place) in places.iter().enumerate().filter(|(_, place)| !place.visible.is_empty()) {
                for (at, inst) in nest.body.iter().enumerate() {
                    let Some((buf, _)) = inst.op.element().filter(|_| parts[at].contains(&place.part)) else {
                        continue;
                    };
                    let declared = match matches!(inst.op, InstOp::Store { .. }) {
                        true => self.declared_around(place, buf),
                        false => self.held(nest, place, (at, buf)).1,
                    };
                    if let Some(declared) = declared {
                        found.entry(declared.number).or_default().push([stmt, number, at]);
                    }
                }
            }
        }
        found
    }

    /// The accesses of the memory of that number.
    pub(super) fn uses_of(&self, number: usize) -> Vec<Use<'a>> {
        match &self.locals[number].0.holds {
            Holds::Buffer(_) | Holds::Copy { .. } | Holds::Result { .. } => self.uses_of_buffer(number),
            Holds::Accumulator(nest) => self.uses_of_accumulators(number, nest),
        }
    }

    /// The innermost declaration of a buffer around a place.
    pub(super) fn declared_around(&self, place: &Occurrence, buf: Buf) -> Option<Declared> {
        let name = &self.loops.bufs[buf].name;
        let is_it = |declared: &&Declared| self.locals[declared.number].0.buffer() == Some(name);
        place.visible.iter().rev().find(is_it).copied()
    }

    fn uses_of_accumulators(&self, number: usize, name: &str) -> Vec<Use<'a>> {
        let mut uses = Vec::new();
        let Some(&stmt) = self.stmts.get(name) else { return uses };
        let Stmt::Nest(nest) = &self.loops.stmts[stmt] else { return uses };
        let element: Vec<Expr> = nest.kept_apart().map(|axis| Expr::sym(axis.var)).collect();
        for place in self.placed[stmt].iter().chain(&self.accumulating[stmt]) {
            let mut around = place.visible.iter().rev().map(|declared| declared.number);
            let mut own = around.by_ref().filter(|&at| self.locals[at].0.accumulates() == Some(name));
            let (innermost, next) = (own.next(), own.next());
            let how = match place.part {
                Part::Merge if next == Some(number) => How::Merge,
                Part::Merge | Part::Final => How::Load,
                Part::Init | Part::Update | Part::Whole => How::Store,
            };
            if how == How::Merge || innermost == Some(number) {
                uses.push(Use { nest, place: by_threads(place, 1), element: element.clone(), how });
            }
        }
        uses
    }

    /// Why an element may be touched by a thread that does not own it, and where.
    fn foreign(&self, number: usize, uses: &[Use<'a>]) -> Option<(String, Option<Site>)> {
        let loops_of = |place: &Occurrence| loops_around(number, place);
        let levels = |used: &Use| -> Vec<(Team, Axis)> {
            used.place.path[loops_of(&used.place)..].iter().filter_map(level_of).collect()
        };
        let first = uses.iter().find(|used| used.how == How::Store)?;
        let own = levels(first);
        // What a few lanes have each of these may load, and combine into.
        let each = lanes_of(&own).unwrap_or(1);
        let grouped = |used: &Use<'a>| -> Use<'a> {
            let is_of_one = used.how == How::Store || each == 1;
            let place = if is_of_one { used.place.clone() } else { by_groups(&used.place, each) };
            Use { place, element: used.element.clone(), ..*used }
        };
        let is_split = |used: &&Use| {
            let Use { place, element, .. } = used;
            used.how == How::Merge && !has_result(place, element, loops_of(place), &own, &self.loops.facts)
        };
        if let Some(used) = uses.iter().find(is_split) {
            let why = "lanes combine what they have, but others have the result as well, or not all of them";
            return Some((why.to_owned(), used.place.site()));
        }
        let uses: &[Use] = &uses.iter().map(grouped).collect::<Vec<_>>();
        for used in uses {
            let found = levels(used);
            let is_alike = |(a, b): (&(Team, Axis), &(Team, Axis))| a.0 == b.0;
            let is_owner = found.len() >= own.len() && own.iter().zip(&found).all(is_alike);
            // What the threads of a level all have, each thread of a further level within may load; but if it stored, they would
            // have different values of one element.
            let further = found.get(own.len()..).unwrap_or_default();
            if !is_owner || used.how == How::Store && !further.is_empty() {
                let names = |levels: &[(Team, Axis)]| match levels {
                    [] => "all threads".to_owned(),
                    levels => levels.iter().map(|level| named(level.0)).collect::<Vec<_>>().join(" "),
                };
                let why = format!("{} touch it here, {} elsewhere", names(&found), names(&own));
                return Some((why, used.place.site()));
            }
            if used.how == How::Merge && further.iter().any(|level| level.0.level == Level::Block) {
                let why = "only threads of a block are merged into registers; blocks share memory".to_owned();
                return Some((why, used.place.site()));
            }
        }
        let axes = owners(uses.iter().map(&levels));
        let axes = &axes[..own.len().min(axes.len())];
        if axes.is_empty() {
            return None;
        }
        for (at, one) in uses.iter().enumerate() {
            for other in &uses[at..] {
                if !self.is_owned(one, other, loops_of(&one.place), axes, [levels(one), levels(other)]) {
                    let vars: Vec<&str> = own.iter().map(|level| level.1.var.name()).collect();
                    let why = format!("two threads of {} may touch one element", vars.join(", "));
                    return Some((why, other.place.site()));
                }
            }
        }
        None
    }

    /// Whether two accesses touch one element only by the same thread: where the variables of their loops over levels are equal.
    fn is_owned(
        &self,
        one: &Use<'a>,
        other: &Use<'a>,
        outside: usize,
        axes: &[Axis],
        levels: [Vec<(Team, Axis)>; 2],
    ) -> bool {
        let around: Vec<Axis> = one.place.path[..outside].iter().map(|around| around.axis).collect();
        let side = |used: &Use<'a>, levels: &[(Team, Axis)]| {
            let Use { nest, place, element, .. } = used;
            // Both name the loops over levels alike.
            let renamed = |sym: Sym| {
                let at = levels.iter().position(|level| level.1.var == sym)?;
                axes.get(at).map(|axis| Expr::sym(axis.var))
            };
            let var = |sym: Sym| renamed(sym).and_then(|e| e.as_sym()).unwrap_or(sym);
            let put = |e: Expr| e.subst(&renamed);
            let path = place
                .path
                .iter()
                .map(|around| Axis { var: var(around.axis.var), extent: put(around.axis.extent) });
            let conds = place.sides.iter().map(|side| Rel {
                lhs: put(side.cond.lhs),
                rhs: put(side.cond.rhs),
                ..side.cond
            });
            let indices = nest.indices().map(|axis| (axis.var, axis.extent, place.value(axis.var).map(put)));
            Point {
                element: element.clone(),
                indices: indices.collect(),
                around: path.collect(),
                conds: conds.collect(),
            }
        };
        let [own, others] = levels;
        let points = [side(one, &own), side(other, &others)];
        let is_one_nest = std::ptr::eq(one.nest, other.nest);
        let question = (points, is_one_nest, [around, axes.to_vec()]);
        let known = self.proofs.borrow().owned.get(&question).copied();
        known.unwrap_or_else(|| {
            let touches = [one, other].into_iter().zip(&question.0).map(|(used, point)| {
                let bind: Vec<(Sym, Expr)> =
                    point.indices.iter().filter_map(|&(axis, _, value)| Some((axis, value?))).collect();
                let (path, conds) = (point.around.iter().copied(), point.conds.iter().copied());
                Visit::new(self.loops, used.nest, &bind, path, conds).map(|visit| visit.point(&point.element))
            });
            let touches: Vec<_> = touches.collect();
            let is_owned = match &touches[..] {
                [Some(one), Some(other)] => one.is_apart_within(&question.2[0], axes, other),
                // What never happens touches nothing.
                _ => true,
            };
            self.proofs.borrow_mut().owned.insert(question, is_owned);
            is_owned
        })
    }
}

/// How many of the loops around a place are around the declaration of that number.
pub(super) fn loops_around(number: usize, place: &Occurrence) -> usize {
    place.visible.iter().find(|declared| declared.number == number).map_or(0, |declared| declared.loops)
}

/// Loops over levels that are alike around accesses, with names of their own, since inner loops of one may be called as another's.
/// Each is as long as the longest of them.
fn owners(levels: impl Iterator<Item = Vec<(Team, Axis)>>) -> Vec<Axis> {
    let mut owners: Vec<Axis> = Vec::new();
    for levels in levels {
        for (at, (_, axis)) in levels.iter().enumerate() {
            let extent = longest(axis.extent);
            match owners.get_mut(at) {
                None => owners.push(Axis { var: Sym::new(&format!("owner {at}")), extent }),
                Some(owner) => owner.extent = owner.extent.max(extent),
            }
        }
    }
    owners
}

/// The `mma` loops around a place, outermost first.
pub(super) fn instruction_loops(path: &[Around]) -> Vec<&Around> {
    path.iter().filter(|around| around.kind == Some(LoopKind::Mma)).collect()
}

/// A place in `mma` loops as one in loops over the threads that keep what has rows and points along the loop at `across`: the sums of
/// the instruction its columns, the left operand its reduced points.
fn by_threads(place: &Occurrence, across: usize) -> Occurrence {
    let found = instruction_loops(&place.path);
    let [rows, _, _] = found[..] else { return place.clone() };
    let columns = found[across];
    let (row, column) = (rows.axis.var, columns.axis.var);
    let own = |what: &str| Sym::new(&format!("{what} of {row}, {column}"));
    let [warp, lane, block] = ["warp", "lane", "block"].map(own);
    let place_of = ["row", "column"].map(own);
    // One warp has sixteen rows; four of them, a warpgroup, have those of a larger instruction.
    let warps = longest(rows.axis.extent).ceildiv(16);
    let of_warp = if warps.is_one() { Expr::zero() } else { Expr::sym(warp) };
    let [of_row, of_column] = Gpu::sum_of_thread([of_warp, Expr::sym(lane)], place_of.map(Expr::sym));
    // A thread has two by two sums of every eight columns.
    let sum = [of_row, of_column + Expr::sym(block) * 8];
    let put = |sym: Sym| [row, column].iter().position(|own| *own == sym).map(|at| sum[at]);
    let mut changed = place.clone();
    changed.bind.iter_mut().for_each(|bind| bind.1 = bind.1.subst(&put));
    let mut path = Vec::new();
    for around in &place.path {
        let kept =
            |kind, var, extent: Expr| Around { kind: Some(kind), axis: Axis { var, extent }, ..*around };
        if around.axis.var == row {
            let level = |level: Level| LoopKind::Level(level.into());
            path.extend((!warps.is_one()).then(|| kept(level(Level::Warp), warp, warps)));
            path.push(kept(level(Level::Lane), lane, Expr::int(i64::from(Gpu::LANES))));
            // An instruction of eight rows has one of each lane.
            let halves = if rows.axis.extent == Expr::int(8) { 1 } else { 2 };
            path.push(kept(LoopKind::Unroll, place_of[0], Expr::int(halves)));
            path.push(kept(LoopKind::Unroll, place_of[1], Expr::int(2)));
            path.push(kept(LoopKind::Unroll, block, longest(columns.axis.extent).ceildiv(8)));
        } else if around.axis.var != column {
            path.push(*around);
        }
    }
    changed.path = path;
    changed
}

/// What a team is called.
fn named(team: Team) -> String {
    let (name, from) = (team.level.name(), team.from);
    let from = if from == 0 { String::new() } else { format!(" from {from}") };
    let each = if team.each == 1 { String::new() } else { format!(" by {}", team.each) };
    format!("{name}{from}{each}")
}

/// What runs the iterations of a loop, if it is over a level.
pub(super) fn level_of(around: &Around) -> Option<(Team, Axis)> {
    around.kind?.team().map(|team| (team, around.axis))
}
