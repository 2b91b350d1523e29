//! Names that nothing else in a program has.

use litz_ir::Dtype;
use litz_ir::loops::{Axis, Buf, BufData, BufKind, Loops, Stmt};
use litz_sym::{Expr, Facts, Sym};

/// `name`, or the first of `name2`, `name3` ... that is not taken.
fn free(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|n| format!("{name}{n}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !is_taken(name)).expect("invariant: finitely many names are taken")
}

/// A symbol called like `name` that is no size and no variable of `axes`.
pub fn symbol<'a>(name: &str, facts: &Facts, axes: impl Iterator<Item = &'a Axis>) -> Sym {
    let axes: Vec<Sym> = axes.map(|axis| axis.var).collect();
    let is_taken = |name: &str| {
        let sym = Sym::new(name);
        facts.is_symbol_declared(sym) || axes.contains(&sym)
    };
    Sym::new(&free(name, is_taken))
}

/// Adds an intermediate buffer called like `name`.
pub fn add_buf(loops: &mut Loops, name: &str, dtype: Dtype, sizes: Vec<Expr>, strides: Vec<Expr>) -> Buf {
    let name = free(name, |name| loops.bufs.values().any(|buf| buf.name == name));
    loops.bufs.push(BufData { name, dtype, sizes, strides, kind: BufKind::Temp })
}

/// Names of statements, and of nests inside of them.
pub struct Statements(Vec<String>);

impl Statements {
    /// Those that the program has.
    pub fn of(loops: &Loops) -> Statements {
        let inside = loops.stmts.iter().flat_map(Stmt::nests).map(|nest| nest.name.clone());
        Statements(loops.stmts.iter().map(|stmt| stmt.name().to_owned()).chain(inside).collect())
    }

    /// A name like `name`, which is taken from here on.
    pub fn take(&mut self, name: &str) -> String {
        let name = free(name, |name| self.0.iter().any(|taken| taken == name));
        self.0.push(name.clone());
        name
    }
}
