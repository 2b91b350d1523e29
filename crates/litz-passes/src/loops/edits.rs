//! Collects the statements that a pass adds and removes. They come into the program when the pass is done: until then every
//! statement stays where it is.

use litz_ir::loops::{Loops, Stmt};

/// Changes to the list of statements, at positions of the list as it was.
#[derive(Default)]
pub struct Edits {
    /// New statements, each before the statement at a position.
    added: Vec<(usize, Stmt)>,
    removed: Vec<usize>,
}

impl Edits {
    /// Adds a statement before the one at a position, behind those that were added there earlier.
    pub fn insert(&mut self, before: usize, stmt: Stmt) {
        self.added.push((before, stmt));
    }

    /// Removes the statement at a position.
    pub fn remove(&mut self, at: usize) {
        self.removed.push(at);
    }

    /// Makes the changes.
    pub fn apply(mut self, loops: &mut Loops) {
        if self.added.is_empty() && self.removed.is_empty() {
            return;
        }
        let mut keep = vec![true; loops.stmts.len()];
        self.removed.iter().for_each(|&at| keep[at] = false);
        // Stable: those of one position stay in order.
        self.added.sort_by_key(|added| added.0);
        let mut added = self.added.into_iter().peekable();
        let mut stmts = Vec::with_capacity(loops.stmts.len() + added.len());
        for (at, stmt) in std::mem::take(&mut loops.stmts).into_iter().enumerate() {
            stmts.extend(std::iter::from_fn(|| added.next_if(|next| next.0 <= at)).map(|next| next.1));
            stmts.extend(keep[at].then_some(stmt));
        }
        stmts.extend(added.map(|next| next.1));
        loops.stmts = stmts;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::loops::{Callee, Extern, Routine};

    fn stmt(name: &str) -> Stmt {
        let (reads, writes, ints) = (Vec::new(), Vec::new(), Vec::new());
        let callee = Callee::Routine(Routine { name: "r".into(), reads, writes, ints });
        Stmt::Extern(Extern { name: name.into(), from: Vec::new(), callee, message: None })
    }

    #[test]
    fn positions_are_those_before_any_change() {
        let mut loops = Loops::new("f", litz_ir::graph::Device::Cpu);
        loops.stmts = ["a", "b", "c"].map(stmt).into();
        let mut edits = Edits::default();
        edits.insert(3, stmt("last"));
        edits.insert(1, stmt("first"));
        edits.remove(0);
        edits.insert(1, stmt("second"));
        edits.remove(1);
        edits.apply(&mut loops);
        let names: Vec<&str> = loops.stmts.iter().map(Stmt::name).collect();
        assert_eq!(names, ["first", "second", "c", "last"]);
    }
}
