//! Asks the host for the operators that Litz does not have, and says which ones it runs.

use crate::error::Error;
use crate::options::{Fallback, Options};
use litz_ir::graph::{Constraint, Graph, Node, OpDecl};
use litz_ir::program::{Program, ProgramStep};
use litz_ir::schema::{Autocast, Effect, OpSchema, Schemas, Written};
use litz_ir::text::graph::parse_declaration;
use litz_ir::{Diag, Diags};
use litz_ops::Table;
use litz_runtime::host::BuiltIn;
use litz_runtime::host::Host;
use std::collections::BTreeMap;
use std::fmt;

/// Operators of the table, and those that the host of some options declares.
pub(crate) struct HostSchemas<'a> {
    pub table: Table,
    pub options: &'a Options,
}

impl Schemas for HostSchemas<'_> {
    fn lookup(&self, name: &str) -> Option<&OpSchema> {
        self.table.lookup(name)
    }

    fn effect(&self, name: &str) -> Effect {
        self.table.effect(name)
    }

    fn autocast(&self, name: &str) -> Autocast {
        self.table.autocast(name)
    }

    fn written(&self, what: Written) -> &'static str {
        self.table.written(what)
    }

    fn declaration(&self, name: &str) -> Result<Option<OpDecl>, String> {
        declaration(self.options, name).map(|text| read(name, &text)).transpose()
    }
}

/// What the runtime says of an operator, or the host, where it may be asked.
fn declaration(options: &Options, op: &str) -> Option<String> {
    let host = || options.host.as_ref().filter(|_| options.fallback != Fallback::Error);
    BuiltIn.declaration(op).or_else(|| host()?.0.declaration(op))
}

/// Whether the host may run an operator.
pub(crate) fn provides(options: &Options, op: &str) -> bool {
    declaration(options, op).is_some()
}

/// A declaration as in the text of graphs, or a schema of PyTorch's with tags.
fn read(op: &str, text: &str) -> Result<OpDecl, String> {
    let is_schema = text.split('(').next().is_some_and(|name| name.contains("::"));
    let decl = if is_schema {
        let schema = OpSchema::parse(text).map_err(|error| error.to_string())?;
        OpDecl { schema, layout: Constraint::default(), effect: None }
    } else {
        parse_declaration(text)
            .map_err(|diags| diags.first().map_or(String::new(), |diag| diag.message.clone()))?
    };
    if decl.schema.name == op {
        return Ok(decl);
    }
    Err(format!("it is of {}", decl.schema.name))
}

/// Refuses nodes that the host would run, where it is not to.
///
/// # Errors
/// Each of them, with its source line.
pub(crate) fn check(graph: &Graph, options: &Options) -> Result<(), Error> {
    if options.fallback != Fallback::Error {
        return Ok(());
    }
    let mut diags = Diags::new();
    refused(&Table::of(graph), graph, &mut diags);
    if diags.is_empty() { Ok(()) } else { Err(Error::Unsupported(diags)) }
}

fn refused(table: &Table, graph: &Graph, diags: &mut Diags) {
    let diag = |node: &Node| {
        let diag = Diag::new("unsupported-operator", format!("operator {} is run by a host alone", node.op));
        match node.source() {
            Some(source) => diag.source(source.to_string()),
            None => diag,
        }
    };
    let is_others = |node: &&Node| table.hosted(node).is_some() && !BuiltIn::has(node.op.as_str());
    diags.extend(graph.nodes.iter().filter(is_others).map(diag));
    graph.subgraphs.iter().for_each(|graph| refused(table, graph, diags));
}

/// A warning: the host runs an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostWarning {
    /// The operator.
    pub op: String,
    /// Its calls in one call of the program.
    pub count: usize,
    /// The user's line of the first of them, where it is known.
    pub source: Option<String>,
}

impl fmt::Display for HostWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostWarning { op, count, source } = self;
        let times = if *count == 1 { "once".to_owned() } else { format!("{count} times") };
        write!(f, "warning[host-operator]: operator {op} is run by the host ({times}")?;
        source.as_ref().map_or(Ok(()), |source| write!(f, ", first at {source}"))?;
        f.write_str(")")
    }
}

/// An operator that the host runs for a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostOperator {
    /// Its name.
    pub op: String,
    /// Its calls in one call of the program.
    pub count: usize,
    /// The user's lines of these calls, each once, in order, as far as they are known.
    pub sources: Vec<String>,
}

/// Operators that a program calls the host for, in the order of their names.
pub fn host_operators(program: &Program) -> Vec<HostOperator> {
    let mut operators: BTreeMap<&str, HostOperator> = BTreeMap::new();
    for step in program.all().into_iter().flat_map(|program| program.load.iter().chain(&program.steps)) {
        if let ProgramStep::Call { op, message, .. } = step
            && !BuiltIn::has(op)
        {
            let none = || HostOperator { op: op.clone(), count: 0, sources: Vec::new() };
            let operator = operators.entry(op).or_insert_with(none);
            operator.count += 1;
            operator.sources.extend(message.clone().filter(|source| !operator.sources.contains(source)));
        }
    }
    operators.into_values().collect()
}

/// One warning for each operator that a program calls the host for.
pub(crate) fn warnings(program: &Program, options: &Options) -> Vec<HostWarning> {
    if options.fallback == Fallback::Quiet {
        return Vec::new();
    }
    let warning = |HostOperator { op, count, sources }: HostOperator| HostWarning {
        op,
        count,
        source: sources.into_iter().next(),
    };
    host_operators(program).into_iter().map(warning).collect()
}
