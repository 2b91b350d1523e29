//! Calls that contradict themselves are refused in words that name the operator and what does not go together.

#![allow(missing_docs, reason = "a test")]

use std::sync::Arc;

use litz_ir::graph::{Arg, Device, Form, Graph, Node, OpName, Origin, Type};
use litz_ir::{Diags, text, verify};
use litz_ops::{InferCx, OpError, Table, decompose, infer, lower};
use litz_testing::contradictions::{self, ACCEPTED, REFUSED};

/// A graph of the one call, without its results.
fn read(call: &str) -> (Graph, Node) {
    let case = contradictions::parse(call).expect("a call");
    let mut graph = Graph::new("call", Device::Cpu);
    for (at, recorded) in case.tensors.iter().enumerate() {
        let value = graph.value(format!("x{at}"), Type::Tensor(recorded.ty.clone()));
        graph.inputs.push(value);
    }
    let origin = Origin { line: Some("model.py:7".into()), ..Origin::default() };
    let (op, origin) = (OpName::new(&case.op), Some(Arc::new(origin)));
    (graph, Node { op, form: Form::Plain, args: case.args, outputs: Vec::new(), origin })
}

/// Infers, decomposes and lowers the call.
fn compile((mut graph, mut node): (Graph, Node)) -> Result<(), Diags> {
    let table = Table::new();
    let mut cx =
        InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    let types = infer(&mut cx, &node).map_err(|error: OpError| vec![error.at(&node, &graph.values)])?;
    let results = types.into_iter().flatten().enumerate();
    node.outputs = results.map(|(i, ty)| Some(graph.value(format!("y{i}"), ty))).collect();
    graph.outputs = node.outputs.iter().flatten().map(|&v| Arg::Value(v)).collect();
    let is_written = node.op.as_str().contains("_.");
    graph.nodes.push(node);
    if is_written {
        // Functionalisation, which replaces them, belongs to another crate.
        return Ok(());
    }
    decompose(&mut graph)?;
    let loops = lower(&graph)?;
    let problems = verify::loops::verify(&loops);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

#[test]
fn contradictions_are_refused_by_name() {
    let mut accepted = Vec::new();
    for (call, named) in REFUSED {
        let (op, _) = call.split_once('(').expect("`op(..)`");
        let Err(diags) = compile(read(call)) else {
            accepted.push(*call);
            continue;
        };
        let [diag] = diags.as_slice() else { panic!("{call}: one error, found {diags:?}") };
        assert!(matches!(diag.slug, "invalid-operator" | "bad-argument"), "{call}: {diag}");
        let message = diag.to_string();
        let missing = named.iter().chain([&op, &"model.py:7"]).find(|part| !message.contains(**part));
        assert_eq!(missing, None, "{call}: {message}");
    }
    assert_eq!(accepted, Vec::<&str>::new());
}

#[test]
fn what_only_looks_like_a_contradiction_is_accepted() {
    for call in ACCEPTED {
        assert_eq!(compile(read(call)), Ok(()), "{call}");
    }
}

/// The guards of a graph's one node: what must hold, and who asks for it.
fn guards(call: &str) -> Vec<(String, String)> {
    let mut graph = text::graph::parse(&format!(
        "graph @g on cpu {{
  sym s0 in [2, 100]
  sym s1 in [2, 100]
  sym s2 in [2, 100]
  %x: f32[s0, 3] = input
  %i: i64[s1] = input
  %v: f32[s1, 3] = input
  %w: f32[s2, 3] = input
  %y: f32[s0, 3] = {call} at \"model.py:7\"
  return %y
}}
"
    ))
    .expect("a graph");
    let table = Table::new();
    let mut cx =
        InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    infer(&mut cx, &graph.nodes[0]).expect("it may be right");
    graph.facts.guards().iter().map(|guard| (guard.clause.to_string(), guard.who.clone())).collect()
}

#[test]
fn sizes_that_may_agree_become_guards_of_the_operator_at_its_line() {
    assert_eq!(guards("aten.index_add.default(%x, 0, %i, %v)"), []);
    let who = |op: &str| format!("{op} at model.py:7");
    let op = "aten.index_add.default";
    assert_eq!(guards(&format!("{op}(%x, 0, %i, %w)")), [("s2 == s1".to_owned(), who(op))]);
    // A decomposition asks in the name of what was written.
    let op = "aten.cross_entropy_loss.default";
    assert_eq!(guards(&format!("{op}(%x, %i)")), [("s1 == s0".to_owned(), who(op))]);
}
