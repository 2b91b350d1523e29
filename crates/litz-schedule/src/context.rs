//! Defines what all decide by: the program, its dependences, the target and the thresholds.

use std::collections::{BTreeSet, HashSet};

use litz_analysis::Dependences;
use litz_analysis::contraction::Columns;
use litz_ir::loops::{Axis, Buf, Loops, Nest, Stmt};
use litz_ir::target::Target;
use litz_sym::{Expr, Sym};

use crate::heuristics::Heuristics;

/// The context in which families decide.
pub struct Cx<'a> {
    /// The program, its regions written out.
    pub loops: &'a Loops,
    /// The dependences of its statements.
    pub deps: &'a Dependences,
    /// The target.
    pub target: &'a Target,
    /// Thresholds.
    pub heuristics: &'a Heuristics,
    /// For each statement, the contraction that it is, if a family plans it as one.
    pub contractions: Vec<Option<Columns>>,
    /// For each statement, whether it gets a kernel of its own that needs no proof.
    pub in_order: Vec<bool>,
    /// For each statement, whether its kernel shares no launch.
    pub alone: Vec<bool>,
    /// Axes of all nests: the variables of groups have other names.
    axes: HashSet<Sym>,
}

impl<'a> Cx<'a> {
    /// That of a program; the nests `in_order` are to run one by one, and kernels of those `alone` share no launch. No statement is a contraction yet.
    pub fn new(
        loops: &'a Loops,
        deps: &'a Dependences,
        target: &'a Target,
        heuristics: &'a Heuristics,
        [in_order, alone]: [&BTreeSet<String>; 2],
    ) -> Cx<'a> {
        let nests = loops.stmts.iter().flat_map(Stmt::nests);
        let axes = nests.flat_map(|n| n.all_axes().map(|a| a.var)).collect();
        let of = |names: &BTreeSet<String>| -> Vec<bool> {
            let is_named = |stmt: &Stmt| {
                names.contains(stmt.name()) || stmt.nests().iter().any(|nest| names.contains(&nest.name))
            };
            loops.stmts.iter().map(is_named).collect()
        };
        let (in_order, alone) = (of(in_order), of(alone));
        let contractions = vec![None; loops.stmts.len()];
        Cx { loops, deps, target, heuristics, contractions, in_order, alone, axes }
    }

    /// Looks for contractions among the nests.
    pub fn find_contractions(&mut self, contraction: impl Fn(&Cx<'a>, &Nest) -> Option<Columns>) {
        let found = self.loops.stmts.iter().zip(&self.deps.stmts).map(|(stmt, info)| match stmt {
            // A tile takes its points in no order of their own.
            Stmt::Nest(n) if info.ordered.is_empty() => contraction(self, n),
            Stmt::Nest(_) | Stmt::Extern(_) | Stmt::Recurrence(_) => None,
        });
        self.contractions = found.collect();
    }

    /// Whether points of statement `s` along the axis depend on each other.
    pub fn is_ordered(&self, s: usize, axis: Sym) -> bool {
        self.deps.stmts[s].ordered.contains(&axis)
    }

    /// Whether all of a buffer is there before the first kernel of a call begins.
    pub fn is_there_before(&self, buf: Buf) -> bool {
        let writes = |user: &usize| self.deps.stmts[*user].writes.contains(&buf);
        let mut writers = self.deps.users[buf].iter().filter(|user| writes(user));
        let is_updated = self.loops.updates.iter().any(|update| update.0 == buf);
        !is_updated && writers.all(|&user| self.deps.stmts[user].at_load)
    }

    /// Adds a variable to those of a group, and binds an axis of a nest to it.
    pub fn share(&self, axis: &Axis, outer: &mut Vec<Axis>) -> (Sym, Expr) {
        let is_taken = |s: Sym| {
            self.axes.contains(&s)
                || self.loops.facts.is_symbol_declared(s)
                || outer.iter().any(|o| o.var == s)
        };
        let names = (0..).map(|i| Sym::new(&format!("o{i}")));
        let var = { names }.find(|&s| !is_taken(s)).expect("invariant: finitely many names are taken");
        outer.push(Axis { var, extent: axis.extent });
        (axis.var, Expr::sym(var))
    }
}
