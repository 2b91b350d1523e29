//! Reports what is wrong with a graph.

use std::collections::HashSet;

use crate::diag::Diags;
use crate::graph::{Arg, Form, Graph, Node, OpDecl, Type, Value};
use crate::ids::Id;
use crate::text::graph::parse_declaration;
use crate::verify::Report;

/// What is wrong with a graph and its subgraphs.
///
/// Slugs: `symbol-name`, `empty-range`, `duplicate-symbol`, `undeclared-symbol`, `duplicate-name`, `stride-rank`, `too-large`,
/// `negative-size`, `undefined-value`, `redefined-value`, `unknown-graph`, `update-target`, `update-type`,
/// `duplicate-update`, `declaration`, `node-form`.
pub fn verify(graph: &Graph) -> Diags {
    verify_within(graph, &mut Vec::new())
}

/// `outer` are the graphs around this one: their symbols and subgraphs are in scope.
fn verify_within<'a>(graph: &'a Graph, outer: &mut Vec<&'a Graph>) -> Diags {
    let mut verifier = Verifier {
        report: Report::new(&graph.facts),
        graph,
        outer,
        defined: vec![false; graph.values.len()],
    };
    verifier.run();
    let mut diags = verifier.report.diags;
    outer.push(graph);
    for subgraph in &graph.subgraphs {
        diags.extend(verify_within(subgraph, outer));
    }
    outer.pop();
    diags
}

struct Verifier<'a, 'b> {
    report: Report,
    graph: &'a Graph,
    outer: &'b [&'a Graph],
    defined: Vec<bool>,
}

impl Verifier<'_, '_> {
    fn run(&mut self) {
        let graph = self.graph;
        for sym in self.outer.iter().flat_map(|outer| outer.facts.symbols()) {
            if !self.report.scope.contains(&sym) {
                self.report.declare(sym);
            }
        }
        for guard in graph.facts.guards() {
            self.report.clause(&guard.clause, "guard");
        }
        self.report.unique(graph.ops.iter().map(|op| &*op.schema.name), "operators");
        graph.ops.iter().for_each(|op| self.declaration(op));
        self.report.unique(graph.subgraphs.iter().map(|subgraph| &*subgraph.name), "subgraphs");
        for &value in graph.inputs.iter().chain(graph.consts.iter().map(|(value, _)| value)) {
            self.define(value);
        }
        for node in &graph.nodes {
            self.node(node);
        }
        let state = graph.inputs.iter().chain(graph.consts.iter().map(|(value, _)| value)).copied().collect();
        for &(target, source) in &graph.updates {
            self.update(target, source, &state);
        }
        self.report.unique_targets(&graph.updates, |value| name(graph, value));
        for &value in &graph.donated {
            let is_tensor = graph.inputs.contains(&value) && graph.tensor(value).is_some();
            let is_state = graph.updates.iter().any(|update| update.0 == value);
            let message = format_args!(
                "`%{}` is donated: expected a tensor, an input that is not updated",
                name(graph, value)
            );
            self.report.check(is_tensor && !is_state, "donated", message);
        }
        for output in &graph.outputs {
            self.arg(output, "return");
        }
        let live = graph.values.iter().filter(|(value, _)| self.defined[value.index()]);
        self.report.unique(live.map(|(_, data)| &*data.name), "values");
    }

    fn define(&mut self, value: Value) {
        let Some(data) = self.graph.values.get(value) else {
            return self.report.fail("undefined-value", format_args!("{value} is no value of the graph"));
        };
        let name = &data.name;
        let is_first = !std::mem::replace(&mut self.defined[value.index()], true);
        self.report.check(is_first, "redefined-value", format_args!("%{name} is defined twice"));
        match &data.ty {
            Type::Tensor(ty) => self.report.shape(&ty.sizes, &ty.strides, format_args!("%{name}")),
            Type::Int(value) => self.report.expr(*value, format_args!("%{name}")),
            Type::Float | Type::Bool => {}
        }
    }

    /// A declaration that would not be read back as it is says what no schema does.
    fn declaration(&mut self, op: &OpDecl) {
        let text = op.to_string();
        let read = text.strip_prefix("op ").and_then(|text| parse_declaration(text).ok());
        let message = format_args!("`{text}` is no declaration of an operator");
        self.report.check(read.as_ref() == Some(op), "declaration", message);
    }

    /// What is declared takes and gives as many values as it says.
    fn form(&mut self, node: &Node) {
        let mut scopes = self.outer.iter().copied().chain([self.graph]);
        let declared = scopes.find_map(|graph| graph.declared(node.op.as_str()));
        let Some(OpDecl { schema, .. }) = declared else {
            let message = format_args!("{}: a functional form of what no graph declares", node.op);
            return self.report.check(node.form != Form::Functional, "node-form", message);
        };
        // Behind the operator's arguments may be what parts are parts of.
        let memory = node.args.get(schema.args.len()).filter(|_| node.form == Form::Functional);
        let (expected, found) = (schema.args.len(), node.args.len() - usize::from(memory.is_some()));
        let message = format_args!("{}: expected {expected} arguments, found {found}", node.op);
        self.report.check(expected == found, "node-form", message);
        self.parts(node, memory);
        let written: usize =
            schema.written().filter_map(|at| node.args.get(at)).chain(memory).map(tensors).sum();
        // A list has as many results as the file says.
        if schema.returns.iter().all(|result| !result.ty.list) {
            let own = schema.returns.len();
            let expected = if node.form == Form::Functional { own + written } else { own };
            let message =
                format_args!("{}: expected {expected} results, found {}", node.op, node.outputs.len());
            self.report.check(expected == node.outputs.len(), "node-form", message);
        }
    }

    /// Parts are of what the node has memory of, which are tensors.
    fn parts(&mut self, node: &Node, memory: Option<&Arg>) {
        let given: &[Arg] = if let Some(Arg::List(given)) = memory { given } else { &[] };
        let is_tensor = |arg: &Arg| arg.as_value().is_some_and(|value| self.graph.tensor(value).is_some());
        let mut fits = memory.is_none_or(|arg| matches!(arg, Arg::List(_))) && given.iter().all(is_tensor);
        let mut parts = Vec::new();
        node.args.iter().for_each(|arg| arg.each_part(&mut |part| parts.push(part)));
        for part in parts {
            fits &= part.of < given.len();
            self.report.shape(&part.sizes, &part.strides, node.op.as_str());
            self.report.expr(part.offset, node.op.as_str());
        }
        let message = format_args!("{}: expected parts of the tensors listed behind its arguments", node.op);
        self.report.check(fits, "node-form", message);
    }

    fn node(&mut self, node: &Node) {
        let before = self.report.diags.len();
        self.form(node);
        for arg in &node.args {
            self.arg(arg, node.op.as_str());
        }
        for value in node.outputs.iter().flatten() {
            self.define(*value);
        }
        for diag in &mut self.report.diags[before..] {
            diag.source = node.source().map(|line| &**line).map(str::to_owned);
        }
    }

    fn arg(&mut self, arg: &Arg, place: &str) {
        match arg {
            Arg::Value(value) => self.use_value(*value, place),
            Arg::List(items) => items.iter().for_each(|item| self.arg(item, place)),
            Arg::Int(value) => self.report.expr(*value, place),
            Arg::Graph(name) => {
                let mut scopes = self.outer.iter().copied().chain([self.graph]);
                let is_known =
                    scopes.any(|graph| graph.subgraphs.iter().any(|subgraph| subgraph.name == *name));
                self.report.check(
                    is_known,
                    "unknown-graph",
                    format_args!("{place}: no subgraph is called @{name}"),
                );
            }
            Arg::None
            | Arg::Part(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_) => {}
        }
    }

    fn use_value(&mut self, value: Value, place: &str) {
        if self.defined.get(value.index()) != Some(&true) {
            let message = format!("{place}: %{} is used before its definition", name(self.graph, value));
            self.report.fail("undefined-value", message);
        }
    }

    /// `state` are the values that may be updated.
    fn update(&mut self, target: Value, source: Value, state: &HashSet<Value>) {
        self.use_value(target, "update");
        self.use_value(source, "update");
        let name = name(self.graph, target);
        let message = format_args!("update of %{name}: expected an input or a constant");
        self.report.check(state.contains(&target), "update-target", message);
        let types = (self.graph.values.get(target), self.graph.values.get(source));
        let (Some(target), Some(source)) = types else { return };
        let fits = self.graph.may_hold(&target.ty, &source.ty);
        let message = format_args!("update of %{name}: expected {}, found {}", target.ty, source.ty);
        self.report.check(fits, "update-type", message);
    }
}

/// How many tensors there are in an argument.
fn tensors(arg: &Arg) -> usize {
    let mut count = 0;
    arg.each_value(&mut |_| count += 1);
    count
}

fn name(graph: &Graph, value: Value) -> &str {
    graph.values.get(value).map_or("?", |data| &data.name)
}
