//! Makes names that nothing else in a program has.

use litz_ir::graph::TensorType;
use litz_ir::loops::{Axis, Buf, BufData, BufKind, Loops, Stmt};
use litz_sym::{Facts, Sym};
use std::collections::{HashMap, HashSet};

/// A symbol called like `name` that is no size and no variable of `axes`.
pub fn symbol<'a>(name: &str, facts: &Facts, axes: impl Iterator<Item = &'a Axis>) -> Sym {
    let axes: Vec<Sym> = axes.map(|axis| axis.var).collect();
    let numbered = (2..).map(|n| Sym::new(&format!("{name}{n}")));
    let mut symbols = std::iter::once(Sym::new(name)).chain(numbered);
    let is_free = |sym: &Sym| !facts.is_symbol_declared(*sym) && !axes.contains(sym);
    symbols.find(is_free).expect("invariant: finitely many names are taken")
}

/// Names of a program's buffers and statements, nests inside of statements included.
pub struct Names {
    bufs: Taken,
    stmts: Taken,
}

impl Names {
    /// Those that the program has.
    pub fn of(loops: &Loops) -> Names {
        let inside = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| nest.name.clone());
        let stmts = loops.stmts.iter().map(|stmt| stmt.name().to_owned()).chain(inside);
        Names { bufs: Taken::new(loops.bufs.values().map(|buf| buf.name.clone())), stmts: Taken::new(stmts) }
    }

    /// A name like `name` for a statement, taken from here on.
    pub fn statement(&mut self, name: &str) -> String {
        self.stmts.take(name)
    }

    /// Adds an intermediate buffer called like `name`.
    pub fn add_buf(&mut self, loops: &mut Loops, name: &str, ty: TensorType) -> Buf {
        loops.bufs.push(BufData::new(self.bufs.take(name), ty, BufKind::Temp))
    }
}

/// Names that are taken, and for each that was asked for a number that all before it are taken with.
struct Taken {
    names: HashSet<String>,
    next: HashMap<String, usize>,
}

impl Taken {
    fn new(names: impl Iterator<Item = String>) -> Taken {
        Taken { names: names.collect(), next: HashMap::new() }
    }

    /// `name`, or the first of `name2`, `name3` ... that is not taken.
    fn take(&mut self, name: &str) -> String {
        if self.names.insert(name.to_owned()) {
            return name.to_owned();
        }
        let next = self.next.entry(name.to_owned()).or_insert(2);
        loop {
            let numbered = format!("{name}{next}");
            *next += 1;
            if self.names.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_names_get_the_first_free_number() {
        let mut taken = Taken::new(["a", "a3", "b"].map(String::from).into_iter());
        let asked = ["a", "a", "b", "c", "a", "c"].map(|name| taken.take(name));
        assert_eq!(asked, ["a2", "a4", "b2", "c", "a5", "c2"]);
    }
}
