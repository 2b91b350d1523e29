//! Lists the canonical texts in `tests/text` and gives one type to all that they say.

use std::fmt;
use std::path::Path;

use litz_ir::graph::Graph;
use litz_ir::kernel::Kernel;
use litz_ir::loops::Loops;
use litz_ir::program::Program;
use litz_ir::schedule::Schedule;
use litz_ir::{Diags, text};

/// File name and canonical text of every file, in order of names. Lines that are comments are left out.
pub fn texts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text");
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut texts: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("readable").path();
            let name = path.file_stem().expect("a file").to_string_lossy().into_owned();
            (name, read(&path))
        })
        .collect();
    texts.sort();
    texts
}

/// The text of one file.
#[allow(dead_code)]
pub fn text(name: &str) -> String {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/text").join(name).with_extension("litz"))
}

fn read(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("readable");
    text.lines().filter(|line| !line.starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Any of the five.
pub enum Item {
    Graph(Graph),
    Loops(Loops),
    Schedule(Schedule),
    Kernel(Kernel),
    Program(Program),
}

impl Item {
    /// Reads the IR that the first word of the text names.
    pub fn parse(text: &str) -> Result<Item, Diags> {
        let word = text.split_whitespace().find(|word| !word.starts_with("//")).unwrap_or_default();
        match word {
            "graph" => text::graph::parse(text).map(Item::Graph),
            "loops" => text::loops::parse(text).map(Item::Loops),
            "schedule" => text::schedule::parse(text).map(Item::Schedule),
            "kernel" => text::kernel::parse(text).map(Item::Kernel),
            _ => text::program::parse(text).map(Item::Program),
        }
    }
}

#[allow(dead_code)]
impl Item {
    /// Whether all data is equal, but for facts and what has no equality of its own, which only text compares.
    pub fn is_same(&self, other: &Item) -> bool {
        match (self, other) {
            (Item::Graph(a), Item::Graph(b)) => is_same_graph(a, b),
            (Item::Loops(a), Item::Loops(b)) => {
                (&a.name, a.device, &a.bufs, &a.stmts, &a.updates, &a.outputs)
                    == (&b.name, b.device, &b.bufs, &b.stmts, &b.updates, &b.outputs)
            }
            (Item::Schedule(a), Item::Schedule(b)) => a == b,
            (Item::Kernel(a), Item::Kernel(b)) => {
                (&a.name, &a.from, &a.sizes, &a.mems, a.params)
                    == (&b.name, &b.from, &b.sizes, &b.mems, b.params)
                    && (
                        &a.grid,
                        (a.grain, (a.persistent, a.registers), a.approximate, &a.rings),
                        &a.vals,
                        &a.body,
                        &a.checks,
                    ) == (
                        &b.grid,
                        (b.grain, (b.persistent, b.registers), b.approximate, &b.rings),
                        &b.vals,
                        &b.body,
                        &b.checks,
                    )
            }
            (Item::Program(a), Item::Program(b)) => {
                (&a.name, a.device, &a.slots, &a.params, &a.consts)
                    == (&b.name, b.device, &b.slots, &b.params, &b.consts)
                    && (&a.load, &a.steps, &a.updates, &a.outputs)
                        == (&b.load, &b.steps, &b.updates, &b.outputs)
            }
            _ => false,
        }
    }
}

fn is_same_graph(a: &Graph, b: &Graph) -> bool {
    (&a.name, a.device, &a.values, &a.inputs, &a.consts)
        == (&b.name, b.device, &b.values, &b.inputs, &b.consts)
        && (&a.nodes, &a.updates, &a.outputs) == (&b.nodes, &b.updates, &b.outputs)
        && a.subgraphs.len() == b.subgraphs.len()
        && a.subgraphs.iter().zip(&b.subgraphs).all(|(a, b)| is_same_graph(a, b))
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Item::Graph(graph) => graph.fmt(f),
            Item::Loops(loops) => loops.fmt(f),
            Item::Schedule(schedule) => schedule.fmt(f),
            Item::Kernel(kernel) => kernel.fmt(f),
            Item::Program(program) => program.fmt(f),
        }
    }
}
