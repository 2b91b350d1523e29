//! Looks up operators: every family's entries with their schemas, by name.

use crate::autocast;
use crate::def::{OpDef, Rule};
use crate::hosted::Hosted;
use crate::ops;
use crate::traits::Op;
use litz_ir::graph::{Constraint, Form, Graph, Node, OpDecl};
use litz_ir::schema::{Autocast, Effect, OpSchema, Schemas, Written};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::{LazyLock, OnceLock};

/// The schemas of all entries, one a line, as PyTorch prints them; `schemas.py` writes it.
const SCHEMAS: &str = include_str!("schemas.txt");

/// Every operator by name, and what a graph declares of the host's. Schemas are parsed when first asked for.
pub struct Table {
    entries: &'static HashMap<&'static str, Entry>,
    declared: BTreeMap<String, OpDecl>,
}

struct Entry {
    def: &'static OpDef,
    line: &'static str,
    schema: OnceLock<Option<OpSchema>>,
}

/// Made once in a process: making it takes longer than a pass over a small graph does, and every pass asks for it.
static ENTRIES: LazyLock<HashMap<&'static str, Entry>> = LazyLock::new(|| {
    let lines: HashMap<Key, &'static str> =
        SCHEMAS.lines().filter_map(|line| Some((key_of_schema(line)?, line))).collect();
    let entry = |def: &'static OpDef| {
        let line = lines.get(&key_of(def.name)).copied().unwrap_or("");
        (def.name, Entry { def, line, schema: OnceLock::new() })
    };
    ops::FAMILIES.iter().flat_map(|(_, defs)| defs.iter()).map(entry).collect()
});

impl Table {
    /// The table. Takes well under a millisecond the first time, and nothing after that.
    pub fn new() -> Table {
        Table { entries: &ENTRIES, declared: BTreeMap::new() }
    }

    /// The table, and what a graph and its subgraphs declare.
    pub fn of(graph: &Graph) -> Table {
        let mut table = Table::new();
        table.declare(graph);
        table
    }

    fn declare(&mut self, graph: &Graph) {
        self.declared.extend(graph.ops.iter().map(|op| (op.schema.name.clone(), op.clone())));
        graph.subgraphs.iter().for_each(|graph| self.declare(graph));
    }

    /// The operator of a node that Litz computes.
    pub fn op_of(&self, node: &Node) -> Option<Op<'_>> {
        if node.form == Form::Plain { self.op(node.op.as_str()) } else { None }
    }

    /// What is known of the operator of a node that the host runs.
    pub fn hosted(&self, node: &Node) -> Option<Hosted<'_>> {
        let name = node.op.as_str();
        let form = node.form;
        let decl = self.declared.get(name);
        if let Some(op) = self.op(name) {
            // A graph may say how the host takes an operator of ours.
            let (constraint, effect) =
                decl.map_or((Constraint::Exact, None), |decl| (decl.layout, decl.effect()));
            return (form != Form::Plain).then_some(Hosted { schema: op.schema, constraint, effect, form });
        }
        let decl = decl?;
        Some(Hosted { schema: &decl.schema, constraint: decl.layout, effect: decl.effect(), form })
    }

    /// The operator `aten.add.Tensor`.
    pub fn op(&self, name: &str) -> Option<Op<'_>> {
        Some(Op { def: self.def(name)?, schema: self.lookup(name)? })
    }

    /// The entry of `aten.add.Tensor`. A graph that declares an operator which needs a seed leaves it to the host.
    pub fn def(&self, name: &str) -> Option<&'static OpDef> {
        let def = self.entries.get(name)?.def;
        let is_left = self.declared.contains_key(name) && self.needs_seed(name);
        (!is_left).then_some(def)
    }

    /// Whether there is nothing to compute an operator, or what it does in place, with where it has no seed.
    pub fn needs_seed(&self, name: &str) -> bool {
        let Some(entry) = self.entries.get(name) else { return false };
        match entry.def.rule {
            Rule::Inplace(twin) => self.needs_seed(twin),
            _ => entry.def.traits.needs_seed(),
        }
    }

    /// The names of all operators, sorted.
    pub fn names(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.entries.keys().copied().collect();
        names.sort_unstable();
        names
    }
}

impl Default for Table {
    fn default() -> Self {
        Table::new()
    }
}

impl Schemas for Table {
    fn lookup(&self, name: &str) -> Option<&OpSchema> {
        let Some(entry) = self.entries.get(name) else {
            return self.declared.get(name).map(|decl| &decl.schema);
        };
        entry.schema.get_or_init(|| OpSchema::parse(entry.line).ok()).as_ref()
    }

    fn effect(&self, name: &str) -> Effect {
        self.op(name).map_or(Effect::Other, |op| op.effect())
    }

    fn autocast(&self, name: &str) -> Autocast {
        autocast::of(name)
    }

    fn written(&self, what: Written) -> &'static str {
        match what {
            Written::Copy => "aten.clone.default",
            Written::Strided => "aten.as_strided.default",
            Written::Slice => "aten.slice.Tensor",
            Written::Convert => "aten.to.dtype",
        }
    }
}

/// Namespace, base name and overload.
type Key = (&'static str, &'static str, &'static str);

/// `("aten", "add", "Tensor")` of the schema `aten::add.Tensor(...) -> Tensor`.
fn key_of_schema(line: &'static str) -> Option<Key> {
    let (qualified, _) = line.split_once('(')?;
    let (namespace, op) = qualified.split_once("::")?;
    let (base, overload) = op.split_once('.').unwrap_or((op, "default"));
    Some((namespace, base, overload))
}

/// `("aten", "add", "Tensor")` of `aten.add.Tensor`.
fn key_of(name: &'static str) -> Key {
    let (namespace, op) = name.split_once('.').unwrap_or(("", name));
    let (base, overload) = op.split_once('.').unwrap_or((op, "default"));
    (namespace, base, overload)
}

/// Every supported operator by family and how it is computed, as text: one line for each base name.
pub fn coverage() -> String {
    let mut text = String::new();
    let mut total = 0;
    for (family, defs) in ops::FAMILIES {
        let mut bases: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for def in *defs {
            total += 1;
            let (namespace, base, overload) = key_of(def.name);
            bases
                .entry(format!("{namespace}.{base}"))
                .or_default()
                .push(format!("{overload} ({})", rule_name(&def.rule)));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{family}: {} operators", defs.len());
        for (base, overloads) in bases {
            let _ = writeln!(text, "  {base}: {}", overloads.join(", "));
        }
    }
    let _ = writeln!(text, "{total} operators");
    text
}

fn rule_name(rule: &Rule) -> &'static str {
    match rule {
        Rule::Op(_) | Rule::Pointwise(_) => "pointwise",
        Rule::Lower(_) => "lowered",
        Rule::Decompose(_) => "decomposed",
        Rule::View => "view",
        Rule::Inplace(_) => "in place",
        Rule::Drop => "no work",
    }
}
