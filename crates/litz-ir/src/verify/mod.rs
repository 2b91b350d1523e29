//! Verifies each IR: reports what is wrong with it, and nothing where later stages may rely on it.
//!
//! Every rule has a stable slug. Verifiers accept any data without panicking, even ids that belong to no table.

pub mod graph;
pub mod interleave;
pub mod kernel;
pub mod loops;
pub mod program;
pub mod reach;
pub mod search;
pub mod transpose;
mod types;

use std::collections::HashSet;
use std::fmt::Display;
use std::hash::Hash;

use litz_sym::{Clause, Expr, Facts, Rel, Sym};

use crate::diag::{Diag, Diags};
use crate::graph::Device;
use crate::loops::may_be_in_memory;
use crate::text::graph::names_symbol;

/// Problems found so far, and the symbols that expressions may mention.
#[derive(Default)]
pub struct Report {
    /// The problems.
    pub diags: Diags,
    /// The symbols in the order they came in. They are few: sizes, and axes of the loops around.
    scope: Vec<Sym>,
}

impl Report {
    /// Declares the symbols of `facts`.
    pub fn new(facts: &Facts) -> Report {
        let mut report = Report::default();
        for sym in facts.symbols() {
            report.size_symbol(sym, facts);
        }
        report
    }

    /// Adds a problem.
    pub fn fail(&mut self, slug: &'static str, message: impl Display) {
        self.diags.push(Diag::new(slug, message.to_string()));
    }

    /// Fails unless `holds`.
    pub fn check(&mut self, holds: bool, slug: &'static str, message: impl Display) {
        if !holds {
            self.fail(slug, message);
        }
    }

    fn size_symbol(&mut self, sym: Sym, facts: &Facts) {
        self.check(
            names_symbol(sym.name()),
            "symbol-name",
            format_args!("`{sym}` cannot be the name of a symbol"),
        );
        let range = facts.range_of(sym);
        self.check(!range.is_empty(), "empty-range", format_args!("symbol `{sym}` in {range} has no value"));
        self.declare(sym);
    }

    /// Lets expressions mention `sym` from here on.
    pub fn declare(&mut self, sym: Sym) {
        let is_first = !self.scope.contains(&sym);
        self.check(is_first, "duplicate-symbol", format_args!("symbol `{sym}` is declared twice"));
        if is_first {
            self.scope.push(sym);
        }
    }

    /// A point to [`Report::leave`] to.
    pub fn enter(&self) -> usize {
        self.scope.len()
    }

    /// Takes back all declarations since `mark`.
    pub fn leave(&mut self, mark: usize) {
        self.scope.truncate(mark);
    }

    /// Whether all symbols of `expr` are in scope.
    pub fn has_declared(&self, expr: Expr) -> bool {
        expr.syms().iter().all(|sym| self.scope.contains(sym))
    }

    /// Fails for each symbol of `expr` that is not in scope.
    pub fn expr(&mut self, expr: Expr, place: impl Display) {
        let (scope, diags) = (&self.scope, &mut self.diags);
        expr.visit_syms(&mut |sym| {
            if !scope.contains(&sym) {
                let message = format!("{place}: `{expr}` mentions `{sym}`, which is not declared here");
                diags.push(Diag::new("undeclared-symbol", message));
            }
        });
    }

    fn rel(&mut self, rel: &Rel, place: impl Display) {
        self.expr(rel.lhs, &place);
        self.expr(rel.rhs, &place);
    }

    fn clause(&mut self, clause: &Clause, place: impl Display) {
        for rel in clause.alternatives() {
            self.rel(rel, &place);
        }
    }

    /// Sizes and strides of a tensor, buffer or view.
    fn shape(&mut self, sizes: &[Expr], strides: &[Expr], place: impl Display) {
        if sizes.len() != strides.len() {
            let (rank, found) = (sizes.len(), strides.len());
            self.fail("stride-rank", format_args!("{place}: expected {rank} strides, found {found}"));
        }
        for &size in sizes {
            self.extent(size, &place);
        }
        for &stride in strides {
            self.expr(stride, &place);
        }
        let message = format_args!("{place}: no memory holds sizes {sizes:?} with strides {strides:?}");
        self.check(may_be_in_memory(sizes, strides), "too-large", message);
    }

    /// A number of elements or iterations.
    pub fn extent(&mut self, extent: Expr, place: impl Display) {
        self.expr(extent, &place);
        let is_negative = extent.as_int().is_some_and(|extent| extent < 0);
        self.check(!is_negative, "negative-size", format_args!("{place}: {extent} is no size"));
    }

    /// Fails where things that are used together are on different devices.
    pub fn one_device<'a>(&mut self, used: impl IntoIterator<Item = (&'a str, Device)>, place: impl Display) {
        if let Some(difference) = Device::difference(used) {
            self.fail("device", format_args!("{place}: {difference}"));
        }
    }

    /// Fails for each target that an earlier update has.
    fn unique_targets<'a, T: Copy + Eq + Hash>(&mut self, updates: &[(T, T)], name: impl Fn(T) -> &'a str) {
        let mut seen = HashSet::new();
        for &(target, _) in updates {
            let message = format_args!("`{}` is updated twice", name(target));
            self.check(seen.insert(target), "duplicate-update", message);
        }
    }

    /// Fails for each name that was seen before.
    pub fn unique<'a>(&mut self, names: impl IntoIterator<Item = &'a str>, what: &str) {
        let mut seen = HashSet::new();
        for name in names {
            self.check(seen.insert(name), "duplicate-name", format_args!("two {what} are called `{name}`"));
        }
    }
}
