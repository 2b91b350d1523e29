//! Checks that accumulators hold what reductions and scans combine, no more and no less, when it is asked for.
//!
//! The accumulators of a nest have a scope: a loop, each of whose iterations has its own, or the point of the grid. Scopes
//! of one nest lie in each other. In an iteration of a scope `init` comes first, then what combines into these accumulators
//! (`update` in the innermost scope, and in the others the `merge` of the next one in), then what reads them (`merge`, or
//! `final` in the outermost). Of two that follow each other so, both take each outer point once in their scope, which
//! `points.rs` checks; and both begin at the same point in every iteration of the loops that both share, so that these take
//! the same points there. The first is so done with a point when the second comes to it. No loop of these runs along an axis
//! that is combined: its next iteration would come to the same points again.

use super::points::is_one;
use super::{Around, Place, Verifier};
use litz_ir::loops::{InstOp, Nest, Stmt};
use litz_ir::schedule::{KernelPlan, Part, Step};
use litz_sym::{Expr, Facts, Sym};

/// The loops at or outside of which iterations share accumulators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scope {
    /// How many of the loops around are.
    pub(super) loops: usize,
    /// Number of the innermost of them among all loops. `None`: accumulators of a point of the grid.
    number: Option<usize>,
}

/// The scopes of accumulators of the nest of that name in loops `path`, outermost first.
pub(super) fn scopes(plan: &KernelPlan, nest: &str, path: &[Around]) -> Vec<Scope> {
    let grid = path.iter().take_while(|around| around.kind.is_none()).count();
    let declared = plan.locals.iter().filter(|local| local.accumulates() == Some(nest));
    let scope = |var: Option<Sym>| match var {
        None => Some(Scope { loops: grid, number: None }),
        Some(var) => {
            let at = path.iter().position(|around| around.axis.var == var)?;
            // A point of the grid is a point of all its axes.
            let is_grid = at < grid;
            let number = (!is_grid).then(|| path[at].number);
            Some(Scope { loops: if is_grid { grid } else { at + 1 }, number })
        }
    };
    let mut scopes: Vec<Scope> = declared.filter_map(|local| scope(local.scope)).collect();
    scopes.sort_by_key(|scope| scope.loops);
    scopes
}

impl Verifier<'_> {
    /// Checks the accumulators of all nests.
    pub(super) fn accumulators(&mut self) {
        for stmt in 0..self.loops.stmts.len() {
            let loops = self.loops;
            let Stmt::Nest(nest) = &loops.stmts[stmt] else { continue };
            let user = self.placed[stmt].iter().find(|place| place.part.is_along_reduced());
            let Some(user) = user.filter(|_| nest.accumulates()).cloned() else { continue };
            self.accumulators_of(stmt, nest, &user);
            self.sites.note(&self.report.diags, user.site());
        }
    }

    /// Checks the accumulators that the leaf at `user` combines into.
    fn accumulators_of(&mut self, stmt: usize, nest: &Nest, user: &Place) {
        let name = &nest.name;
        let Step::Kernel(plan) = &self.schedule.steps[user.step] else { return };
        let scopes = scopes(plan, name, &user.path);
        let declared = plan.locals.iter().filter(|local| local.accumulates() == Some(name)).count();
        if scopes.is_empty() {
            let message = format_args!("`{name}` combines into accumulators that are not declared around it");
            return self.report.fail("missing-accumulator", message);
        }
        let message = format_args!("`{name}` has accumulators in a scope that its points are not in");
        self.report.check(scopes.len() == declared, "accumulator-scope", message);
        let is_apart = scopes.windows(2).all(|pair| pair[0] != pair[1]);
        self.report.check(
            is_apart,
            "accumulator-scope",
            format_args!("`{name}` has two accumulators in a scope"),
        );
        let is_mergeable = scopes.len() < 2
            || !nest
                .body
                .iter()
                .any(|inst| matches!(inst.op, InstOp::ArgReduce { .. } | InstOp::Scan { .. }));
        let message = format_args!("`{name}`: positions and scans cannot be merged");
        self.report.check(is_mergeable, "merge-kind", message);
        if !is_apart || !is_mergeable {
            return;
        }
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
        for place in self.accumulating[stmt].iter().chain(&self.placed[stmt]).cloned().collect::<Vec<_>>() {
            let is_expected = place.scope.is_some_and(|scope| {
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
            let find = |(part, scope): (Part, Scope)| {
                let mut places = self.accumulating[stmt].iter().chain(&self.placed[stmt]);
                places.find(|place| place.part == part && place.scope == Some(scope)).cloned()
            };
            match (find(first), find(second)) {
                (Some(one), Some(other)) => {
                    self.follows(nest, (&one, &other), scope, user);
                    self.sites.note(&self.report.diags, other.site());
                }
                (one, other) => {
                    missing.extend(one.is_none().then_some(first));
                    missing.extend(other.is_none().then_some(second));
                }
            }
        }
        missing.dedup();
        for (part, _) in missing {
            let message = format_args!("{} runs nowhere in its scope", Named(name, part));
            self.report.fail("missing-part", message);
            self.sites.note(&self.report.diags, user.site());
        }
    }

    /// Checks that one leaf of a nest is done with a point when the other, which touches the same accumulators, comes to it.
    fn follows(&mut self, nest: &Nest, (one, other): (&Place, &Place), scope: Scope, user: &Place) {
        let [first, second] = [one, other].map(|place| Named(&nest.name, place.part));
        let is_later = one.at < other.at;
        self.report.check(is_later, "statement-order", format_args!("{second} runs before {first}"));
        let facts = &self.loops.facts;
        let shared = one.path.iter().zip(&other.path).take_while(|(a, b)| a.number == b.number);
        let shared: Vec<(usize, Sym)> = shared
            .enumerate()
            .filter(|(_, (around, _))| !is_one(facts, around.axis.extent))
            .map(|(at, (around, _))| (at, around.axis.var))
            .collect();
        for &(_, var) in shared.iter().filter(|(at, _)| *at >= scope.loops) {
            let is_along = |(axis, value): &(Sym, Expr)| nest.is_running(*axis) && value.has_sym(var);
            let message =
                format_args!("{second} is inside of loop {var}, along which `{}` combines", nest.name);
            self.report.check(!user.bind.iter().any(is_along), "accumulator-scope", message);
        }
        for axis in nest.kept_apart() {
            let begin = |place: &Place| {
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

fn is_equal(facts: &Facts, one: Expr, other: Expr) -> bool {
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
