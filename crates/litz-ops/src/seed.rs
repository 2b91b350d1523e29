//! Gives a graph whose operators make random numbers a seed: one more input, which all of them share.

use crate::decompose::Rewriter;
use crate::def::{DecomposeFn, Rule};
use crate::device::device_of;
use crate::error::OpError;
use crate::infer::InferCx;
use crate::table::Table;
use litz_ir::graph::{Arg, Graph, Node, OpName, TensorType, Type, Value, ValueData};
use litz_ir::{Diags, Dtype};
use std::collections::{HashMap, HashSet};

/// What the input is called: no name that a program can give to an argument.
pub const NAME: &str = "litz.seed";

/// Numbers of a seed: the value, and the stream that the next operator takes.
pub(crate) struct Seed {
    pub(crate) value: Value,
    pub(crate) next: i64,
}

/// Writes every node that makes random numbers with operators that make them of a seed, each of a stream of its own, in the order of
/// the nodes. Returns the input that is the seed, if any node needed it. Nodes of subgraphs stay as they are: what has no seed is
/// refused where it is lowered.
///
/// # Errors
/// Every node whose arguments are not supported.
pub fn seeded(graph: &mut Graph) -> Result<Option<Value>, Diags> {
    let table = Table::of(graph);
    let nodes = std::mem::take(&mut graph.nodes);
    let rewrites: Vec<Option<Rewrite>> = nodes.iter().map(|node| rewrite_of(&table, graph, node)).collect();
    if rewrites.iter().all(Option::is_none) {
        graph.nodes = nodes;
        return Ok(None);
    }
    let ty = TensorType { device: graph.device, ..TensorType::contiguous(Dtype::I64, Vec::new()) };
    let value = graph.values.push(ValueData { name: NAME.to_owned(), ty: Type::Tensor(ty) });
    graph.inputs.push(value);
    let mut names: HashSet<String> = graph.values.values().map(|v| v.name.clone()).collect();
    let (mut seed, mut replaced, mut diags) = (Seed { value, next: 0 }, HashMap::new(), Diags::new());
    for (mut node, rewrite) in nodes.into_iter().zip(rewrites) {
        let current = |v: Value| replaced.get(&v).copied().unwrap_or(v);
        node.args.iter_mut().for_each(|arg| arg.map_values(&mut |v| current(v)));
        let Some(rewrite) = rewrite else {
            graph.nodes.push(node);
            continue;
        };
        match rewritten(&table, graph, &mut names, &mut seed, &node, rewrite) {
            Ok((nodes, moved)) => {
                graph.nodes.extend(nodes);
                replaced.extend(moved);
            }
            Err(error) => diags.push(error.naming(&node.op).at(&node, &graph.values)),
        }
    }
    let current = |v: &mut Value| *v = replaced.get(v).copied().unwrap_or(*v);
    graph.updates.iter_mut().for_each(|(_, contents)| current(contents));
    graph.outputs.iter_mut().for_each(|a| a.map_values(&mut |v| replaced.get(&v).copied().unwrap_or(v)));
    if diags.is_empty() { Ok(Some(value)) } else { Err(diags) }
}

/// How a node is written with a seed: as the operator of this name, whose result takes the place of the first argument where the
/// node works in place.
#[derive(Clone, Copy)]
struct Rewrite {
    op: &'static str,
    with: DecomposeFn,
    is_in_place: bool,
}

/// None for what makes no random numbers, be it by its arguments.
fn rewrite_of(table: &Table, graph: &mut Graph, node: &Node) -> Option<Rewrite> {
    let def = table.op_of(node)?.def;
    let (op, is_in_place) = match def.rule {
        Rule::Inplace(twin) => (twin, true),
        _ => (def.name, false),
    };
    let with = table.def(op)?.traits.seeded?;
    let node = Node { op: OpName::new(op), ..node.clone() };
    let mut cx = InferCx { table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    cx.is_random(&node).then_some(Rewrite { op, with, is_in_place })
}

type Rewritten = (Vec<Node>, Vec<(Value, Value)>);

fn rewritten(
    table: &Table,
    graph: &mut Graph,
    names: &mut HashSet<String>,
    seed: &mut Seed,
    node: &Node,
    rewrite: Rewrite,
) -> Result<Rewritten, OpError> {
    let op = table.op(rewrite.op).ok_or_else(|| OpError::missing(rewrite.op))?;
    let node = Node { op: OpName::new(rewrite.op), ..node.clone() };
    let device = device_of(table, &op, &op.args(&node, &graph.values), graph.device)?;
    let Graph { values, facts, device: default, .. } = graph;
    let rewriter =
        Rewriter::new(table, (values, facts), (device, *default), names, (op.schema, &node), Some(seed));
    rewriter.run(|r| {
        let results = (rewrite.with)(r)?;
        if !rewrite.is_in_place {
            return Ok(results);
        }
        let (Some(target), [new]) = (node.args.first().and_then(Arg::as_value), results.as_slice()) else {
            return Err(r.args().invalid("expected a tensor to write to"));
        };
        Ok(vec![r.apply("aten.copy_.default", &[target, *new])?])
    })
}
