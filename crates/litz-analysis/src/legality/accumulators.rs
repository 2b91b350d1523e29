//! Checks that accumulators hold what reductions and scans combine, no more and no less, when it is asked for.
//!
//! The accumulators of a nest have a scope: the block that they are declared in, which has them anew each time it runs. Scopes
//! of one nest lie in each other. In a scope `init` comes first, then what combines into these accumulators
//! (`update` in the innermost scope, and in the others the `merge` of the next one in), then what reads them (`merge`, or
//! `final` in the outermost). Of two that follow each other so, both take each outer point once in their scope, which
//! `points.rs` checks; and both begin at the same point in every iteration of the loops that both share, so that these take
//! the same points there. The first is so done with a point when the second comes to it. No loop of these runs along an axis
//! that is combined: its next iteration would come to the same points again. Of the bodies of an `if` each is looked at for
//! itself, with what is around; and where conditions leave one of two an interval of a loop's iterations, they leave the other the
//! same.

use super::levels::level_of;
use super::points::is_one;
use super::{Around, Occurrence, Verifier};
use crate::together::lanes_together;
use litz_ir::loops::{InstOp, Nest, Stmt};
use litz_ir::schedule::{LoopKind, Part};
use litz_ir::target::Level;
use litz_sym::{Expr, Facts, Sym};

/// A block that accumulators are declared in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    /// How many of the loops around a place in it are around the block.
    pub(super) loops: usize,
    /// Number of the declaration.
    number: usize,
}

impl Verifier<'_> {
    /// The scopes of the accumulators of a statement around a place, outermost first.
    pub(super) fn scopes(&self, stmt: usize, place: &Occurrence) -> Vec<Scope> {
        let name = self.loops.stmts[stmt].name();
        let of_stmt = place
            .visible
            .iter()
            .filter(|declared| self.locals[declared.number].0.accumulates() == Some(name));
        of_stmt.map(|declared| Scope { loops: declared.loops, number: declared.number }).collect()
    }

    /// The innermost of [`Verifier::scopes`].
    pub(super) fn scope(&self, stmt: usize, place: &Occurrence) -> Option<Scope> {
        self.scopes(stmt, place).pop()
    }

    /// Checks the accumulators of all nests.
    pub(super) fn accumulators(&mut self) {
        for stmt in 0..self.loops.stmts.len() {
            let loops = self.loops;
            let Stmt::Nest(nest) = &loops.stmts[stmt] else { continue };
            if !nest.accumulates() {
                continue;
            }
            let users = self.placed[stmt].iter().filter(|place| place.part.is_along_reduced());
            let users: Vec<Occurrence> = users.cloned().collect();
            for user in &users {
                self.accumulators_of(stmt, nest, user);
                self.sites.note(&self.report.diags, user.site());
            }
            self.accumulators_without_user(nest, &users);
        }
    }

    /// Reports accumulators of a nest that nothing is combined into.
    fn accumulators_without_user(&mut self, nest: &Nest, users: &[Occurrence]) {
        let Some(first) = users.first() else { return };
        let declared = self.locals.iter().enumerate();
        let own = declared.filter(|(_, (local, _))| local.accumulates() == Some(&nest.name));
        let is_used = |number: usize| {
            users.iter().any(|user| user.visible.iter().any(|declared| declared.number == number))
        };
        let are_used = own.into_iter().all(|(number, _)| is_used(number));
        let message = format_args!("`{}` has accumulators in a scope that its points are not in", nest.name);
        self.report.check(are_used, "accumulator-scope", message);
        self.sites.note(&self.report.diags, first.site());
    }

    /// Checks the accumulators that the leaf at `user` combines into.
    fn accumulators_of(&mut self, stmt: usize, nest: &Nest, user: &Occurrence) {
        let name = &nest.name;
        let scopes = self.scopes(stmt, user);
        if scopes.is_empty() {
            let message = format_args!("`{name}` combines into accumulators that are not declared around it");
            return self.report.fail("missing-accumulator", message);
        }
        // A value of a scan depends on all points before it, not on those of its block.
        let has_scan = nest.body.iter().any(|inst| matches!(inst.op, InstOp::Scan { .. }));
        let is_mergeable = scopes.len() < 2 || !has_scan;
        self.report.check(is_mergeable, "merge-kind", format_args!("`{name}`: scans cannot be merged"));
        if !is_mergeable {
            return;
        }
        if has_scan || self.recomputed.contains(&stmt) {
            self.outermost(nest, user, scopes[0]);
        }
        self.lanes_of_elements(nest, user, &scopes);
        // Who combines into the accumulators of each scope, and who reads them.
        let mut expected = Vec::new();
        for (depth, &scope) in scopes.iter().enumerate() {
            let into = scopes.get(depth + 1).map_or((user.part, scope), |&inner| (Part::Merge, inner));
            expected.push((scope, [(Part::Init, scope), into]));
            let reader = match depth {
                0 if !nest.reduces() => continue,
                0 => (Part::Final, scope),
                _ => (Part::Merge, scope),
            };
            expected.push((scope, [into, reader]));
        }
        let found = self.report.diags.len();
        let places = self.accumulating[stmt].iter().chain(&self.placed[stmt]);
        let places = places.filter(|place| !place.excludes(user)).cloned();
        let places: Vec<(Occurrence, Option<Scope>)> = places
            .map(|place| (self.scope(stmt, &place), place))
            .map(|(scope, place)| (place, scope))
            .collect();
        for (place, scope) in &places {
            let is_expected = scope.is_some_and(|scope| {
                expected
                    .iter()
                    .flat_map(|pair| pair.1)
                    .any(|(part, expected)| (part, expected) == (place.part, scope))
            });
            let (part, place_of) = (Named(name, place.part), place.site());
            let message =
                format_args!("{part} is in another scope than the accumulators that it is to touch");
            self.report.check(is_expected, "accumulator-scope", message);
            self.sites.note(&self.report.diags, place_of);
        }
        // Parts that are elsewhere are missing where they should be.
        if self.report.diags.len() > found {
            return;
        }
        let mut missing = Vec::new();
        for (scope, [first, second]) in expected {
            let find = |(part, scope): (Part, Scope)| -> Vec<&Occurrence> {
                let there = places.iter().filter(|(place, in_)| place.part == part && *in_ == Some(scope));
                there.map(|(place, _)| place).collect()
            };
            let (ones, others) = (find(first), find(second));
            missing.extend(ones.is_empty().then_some(first));
            missing.extend(others.is_empty().then_some(second));
            for &other in &others {
                for &one in ones.iter().filter(|one| !one.excludes(other)) {
                    self.follows(nest, (one, other), scope, user);
                    if one.part == Part::Merge {
                        self.is_behind_loops(nest, (one, other), scope, &find((Part::Init, scope)));
                    }
                    self.sites.note(&self.report.diags, other.site());
                }
            }
        }
        missing.sort_by_key(|(part, scope)| (scope.loops, *part));
        missing.dedup();
        for (part, _) in missing {
            let message = format_args!("{} runs nowhere in its scope", Named(name, part));
            self.report.fail("missing-part", message);
            self.sites.note(&self.report.diags, user.site());
        }
    }

    /// Checks that no loop around the accumulators of a scan runs along its axis: each of its iterations would begin anew. Of a reduction it would
    /// take the points of `final` again, which one that runs anew may do.
    fn outermost(&mut self, nest: &Nest, user: &Occurrence, scope: Scope) {
        for around in user.path.get(..scope.loops).unwrap_or_default() {
            let var = around.axis.var;
            let is_along = |(axis, value): &(Sym, Expr)| nest.is_running(*axis) && value.has_sym(var);
            let is_along = user.counted.iter().any(is_along);
            let message = format_args!(
                "`{}` combines along loop {var}, inside of which its accumulators are declared",
                nest.name
            );
            let is_one = is_one(&self.loops.facts, around.axis.extent);
            self.report.check(is_one || !is_along, "accumulator-scope", message);
        }
        self.sites.note(&self.report.diags, user.site());
    }

    /// Checks that where some iterations of a loop over a level, and not all, are combined into one element of outer accumulators, these
    /// are lanes side by side.
    fn lanes_of_elements(&mut self, nest: &Nest, user: &Occurrence, scopes: &[Scope]) {
        let (Some(outer), Some(inner)) = (scopes.first(), scopes.last()) else { return };
        let values = |running: bool| -> Vec<Expr> {
            // Of what is kept lanes have other elements too where they move it.
            let of = if running { &user.counted } else { &user.bind };
            of.iter().filter(|bind| nest.is_running(bind.0) == running).map(|bind| bind.1).collect()
        };
        let (combined, kept) = (values(true), values(false));
        for (at, around) in user.path.iter().enumerate().take(inner.loops).skip(outer.loops) {
            let Some(level) = around.kind.and_then(LoopKind::level) else { continue };
            let is_in = |values: &[Expr]| values.iter().any(|value| value.has_sym(around.axis.var));
            let are_lanes = level == Level::Lane && lanes_together(around.axis, &kept, &self.loops.facts) > 1;
            let message = format_args!(
                "`{}`: some iterations of loop {} are combined: expected lanes side by side, as of rows `floordiv({}, 4)`",
                nest.name, around.axis.var, around.axis.var
            );
            self.report.check(!is_in(&combined) || !is_in(&kept) || are_lanes, "merge-level", message);
            // What threads or warps have is combined in memory of the block, of which several warps or warpgroups would use the same. Lanes
            // that have an iteration each exchange what they have.
            let is_shuffled =
                level == Level::Lane && level_of(around).is_some_and(|(team, _)| team.each == 1);
            let is_team = |other: &Around| {
                let level = other.kind.and_then(LoopKind::level);
                matches!(level, Some(Level::Warpgroup | Level::Warp))
                    && !is_one(&self.loops.facts, other.axis.extent)
            };
            let has_own = is_shuffled || !is_in(&combined) || !user.path[..at].iter().any(is_team);
            let message = format_args!(
                "`{}`: iterations of loop {} are combined: expected one block's, not those of each of several warps or warpgroups",
                nest.name, around.axis.var
            );
            self.report.check(has_own, "merge-level", message);
            // A warp combines what all of its lanes have, from the first one on.
            let is_of_threads = matches!(level, Level::Lane | Level::Thread);
            let is_from_first = level_of(around).is_none_or(|(team, _)| team.from == 0);
            let message = format_args!(
                "`{}`: iterations of loop {} are combined: expected threads from the first one on",
                nest.name, around.axis.var
            );
            let is_whole = is_from_first || !is_of_threads || !is_in(&combined);
            self.report.check(is_whole, "merge-level", message);
            self.sites.note(&self.report.diags, user.site());
        }
    }

    /// Checks that what reads accumulators is behind the loops over levels behind which a merge is done: those around it that private
    /// accumulators are not the iterations' own by, also where they have one iteration. Accumulators that others see are nobody's own.
    fn is_behind_loops(
        &mut self,
        nest: &Nest,
        (merge, reader): (&Occurrence, &Occurrence),
        scope: Scope,
        inits: &[&Occurrence],
    ) {
        let is_over_level = |around: &&Around| around.kind.and_then(LoopKind::level).is_some();
        let levels = |path: &[Around]| {
            path.get(scope.loops..).unwrap_or_default().iter().filter(is_over_level).count()
        };
        let is_private = !self.locals[scope.number].0.space.is_shared();
        let owners = inits.iter().map(|init| levels(&init.path)).min().filter(|_| is_private).unwrap_or(0);
        let shared = merge.shared_loops(reader).get(scope.loops..).unwrap_or_default();
        let facts = &self.loops.facts;
        let mut single = shared.iter().filter(is_over_level).skip(owners);
        if let Some(around) = single.find(|around| is_one(facts, around.axis.extent)) {
            let [first, second] = [merge, reader].map(|place| Named(&nest.name, place.part));
            let message =
                format_args!("{second} is inside of loop {}, behind which {first} is done", around.axis.var);
            self.report.fail("accumulator-scope", message);
        }
    }

    /// Checks that one leaf of a nest is done with a point when the other, which touches the same accumulators, comes to it.
    fn follows(
        &mut self,
        nest: &Nest,
        (one, other): (&Occurrence, &Occurrence),
        scope: Scope,
        user: &Occurrence,
    ) {
        let [first, second] = [one, other].map(|place| Named(&nest.name, place.part));
        let is_later = one.at < other.at;
        self.report.check(is_later, "statement-order", format_args!("{second} runs before {first}"));
        let facts = &self.loops.facts;
        // A loop of one point has no next iteration that could come to a point again.
        let shared: Vec<(usize, Sym)> = one
            .shared_loops(other)
            .iter()
            .enumerate()
            .filter(|(_, around)| !is_one(facts, around.axis.extent))
            .map(|(at, around)| (at, around.axis.var))
            .collect();
        for &(_, var) in shared.iter().filter(|(at, _)| *at >= scope.loops) {
            let is_along = |(axis, value): &(Sym, Expr)| nest.is_running(*axis) && value.has_sym(var);
            let message =
                format_args!("{second} is inside of loop {var}, along which `{}` combines", nest.name);
            self.report.check(!user.counted.iter().any(is_along), "accumulator-scope", message);
        }
        for around in one.shared_loops(other) {
            let [ours, theirs] = [one, other].map(|place| place.iterations(around.axis));
            let var = around.axis.var;
            let message = format_args!("{second} runs in other iterations of loop {var} than {first}");
            self.report.check(ours == theirs, "accumulator-scope", message);
        }
        for axis in nest.kept_apart() {
            // Loops that both share have one value for both, and stay symbols; a leaf's own loops begin at 0.
            let begin = |place: &Occurrence| {
                let is_own = |sym: Sym| {
                    place.path.iter().any(|around| around.axis.var == sym)
                        && shared.iter().all(|shared| shared.1 != sym)
                };
                Some(place.value(axis.var)?.subst(&|sym| is_own(sym).then(Expr::zero)))
            };
            if let (Some(ours), Some(theirs)) = (begin(one), begin(other))
                && !is_equal(facts, ours, theirs)
            {
                let message = format_args!("{second} begins at {} = {theirs}, {first} at {ours}", axis.var);
                self.report.fail("accumulator-point", message);
            }
        }
    }
}

pub(super) fn is_equal(facts: &Facts, one: Expr, other: Expr) -> bool {
    one == other || facts.simplify(one - other).is_zero()
}

/// A part of the nest of that name, as in a text.
struct Named<'a>(&'a str, Part);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.1.name() {
            Some(part) => write!(f, "`{}.{part}`", self.0),
            None => write!(f, "`{}`", self.0),
        }
    }
}
