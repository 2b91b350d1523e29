//! Finds the nests that leaves name.

use litz_ir::loops::{Loops, Nest, Stmt};
use litz_ir::schedule::Leaf;
use std::collections::HashMap;

/// Nests by name.
pub struct Nests<'a>(HashMap<&'a str, &'a Nest>);

impl<'a> Nests<'a> {
    /// The nests among statements of a program.
    pub fn of(loops: &'a Loops, stmts: impl IntoIterator<Item = usize>) -> Nests<'a> {
        let nests = stmts.into_iter().filter_map(|stmt| match &loops.stmts[stmt] {
            Stmt::Nest(nest) => Some((nest.name.as_str(), nest)),
            Stmt::Extern(_) | Stmt::Recurrence(_) => None,
        });
        Nests(nests.collect())
    }

    /// The nest that a leaf runs.
    pub fn get(&self, leaf: &Leaf) -> Option<&'a Nest> {
        self.0.get(leaf.nest.as_str()).copied()
    }
}
