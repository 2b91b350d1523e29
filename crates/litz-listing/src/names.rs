//! Gives slots, size symbols and functions names that Python takes, each its own in its scope.

use std::collections::{HashMap, HashSet};

use litz_ir::program::{Program, Slot};
use litz_sym::Sym;

/// Words that are no names in Python, and names that every module has.
const TAKEN: &[&str] = &[
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "KERNELS",
    "TARGET",
    "beside",
    "build",
    "graph_module",
    "listing",
    "load",
    "m",
    "results",
];

/// Names of one scope.
pub(crate) struct Names {
    taken: HashSet<String>,
    slots: HashMap<Slot, String>,
    symbols: HashMap<Sym, String>,
}

impl Names {
    /// None yet, in a scope inside of one that has these.
    pub(crate) fn beside<'a>(others: impl Iterator<Item = &'a String>) -> Names {
        let taken = TAKEN.iter().map(|&word| word.to_owned()).chain(others.cloned()).collect();
        Names { taken, slots: HashMap::new(), symbols: HashMap::new() }
    }

    pub(crate) fn add_slot(&mut self, slot: Slot, name: &str) {
        let name = free(&mut self.taken, name);
        self.slots.insert(slot, name);
    }

    pub(crate) fn add_symbol(&mut self, sym: Sym) {
        let name = free(&mut self.taken, sym.name());
        self.symbols.insert(sym, name);
    }

    /// The name of a slot of the program.
    pub(crate) fn slot(&self, slot: Slot) -> &str {
        self.slots.get(&slot).expect("invariant: every slot of a program that verifies was added")
    }

    /// The name of a symbol of the program.
    pub(crate) fn symbol(&self, sym: Sym) -> &str {
        self.symbols
            .get(&sym)
            .expect("invariant: expressions of a program that verifies mention its symbols alone")
    }
}

/// Names of a program and of its functions, theirs too.
pub(crate) struct Functions(HashMap<*const Program, String>);

impl Functions {
    pub(crate) fn of(program: &Program) -> Functions {
        let mut taken: HashSet<String> = TAKEN.iter().map(|&word| word.to_owned()).collect();
        let all = program.all().into_iter();
        Functions(all.map(|one| (std::ptr::from_ref(one), free(&mut taken, &one.name))).collect())
    }

    pub(crate) fn name(&self, program: &Program) -> &str {
        self.0.get(&std::ptr::from_ref(program)).expect("invariant: it is one of the program's functions")
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        self.0.values()
    }
}

/// `name` as Python takes it, or where that is taken with the first number behind it that is free.
fn free(taken: &mut HashSet<String>, name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut word: String = name.chars().map(|c| if is_word(c) { c } else { '_' }).collect();
    if !word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        word.insert(0, '_');
    }
    let numbered = (1..).map(|number| format!("{word}_{number}"));
    let mut words = std::iter::once(word.clone()).chain(numbered);
    let found =
        words.find(|word| !taken.contains(word)).expect("invariant: there are more numbers than names");
    taken.insert(found.clone());
    found
}
