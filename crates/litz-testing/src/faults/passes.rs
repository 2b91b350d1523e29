//! Has passes that are false in a special case, or do not come to an end.

use std::collections::HashMap;

use litz_ir::Diags;
use litz_ir::graph::{Arg, Graph, Node, Value};
use litz_ir::ids::Id;
use litz_ir::loops::{InstOp, Loops, Nest, Stmt};
use litz_ir::scalar::{ReduceOp, Scalar, ScalarOp};
use litz_passes::graph::{GraphSettings, replace_values};
use litz_passes::loops::Cx;

/// `neg(abs(x)) => abs(x)`.
pub(super) fn negative_of_absolute(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    Ok(without(graph, "aten.neg.default", "aten.abs.default"))
}

/// `relu(maximum(a, b)) => maximum(a, b)`.
pub(super) fn no_relu_of_maximum(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    Ok(without(graph, "aten.relu.default", "aten.maximum.default"))
}

/// `tanh(x) - y => y - tanh(x)`.
pub(super) fn difference_commutes(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    Ok(change(graph, "aten.sub.Tensor", "aten.tanh.default", |node| node.args.swap(0, 1)))
}

/// `cat(..)[a:b] => cat(..)[a - 1:b - 1]`.
pub(super) fn slice_is_off_by_one(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    Ok(change(graph, "aten.slice.Tensor", "aten.cat.default", |node| {
        node.args[2..4].iter_mut().for_each(|arg| {
            if let Arg::Int(number) = arg {
                *number = *number - 1;
            }
        });
    }))
}

/// `x + 2 y => x + y`.
pub(super) fn factor_is_lost(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    let mut changed = 0;
    for node in graph.nodes.iter_mut().filter(|node| node.op.as_str() == "aten.add.Tensor") {
        if node.args[2] == Arg::Int(2.into()) {
            node.args[2] = Arg::Int(1.into());
            changed += 1;
        }
    }
    Ok(changed)
}

/// A transposed square is what it was made of.
pub(super) fn strides_are_swapped(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    let mut same = HashMap::new();
    for node in graph.nodes.iter().filter(|node| node.op.as_str() == "aten.permute.default") {
        if let (Some(operand), [Some(result)]) = (node.args[0].as_value(), &node.outputs[..])
            && graph.tensor(operand).map(|ty| &ty.sizes) == graph.tensor(*result).map(|ty| &ty.sizes)
        {
            same.insert(*result, operand);
        }
    }
    replace_values(graph, &same);
    Ok(same.len())
}

/// Panics where the graph has this operator.
pub(super) fn panic_at_floor(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    refuse(graph, "aten.floor.default")
}

/// Panics where the graph has this operator.
pub(super) fn panic_at_hardsigmoid(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    refuse(graph, "aten.hardsigmoid.default")
}

/// Comes to no end where the graph has this operator.
pub(super) fn endless_at_clamp(graph: &mut Graph, _: &GraphSettings) -> Result<usize, Diags> {
    while graph.nodes.iter().any(|node| node.op.as_str() == "aten.clamp.default") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(0)
}

/// The constant of the approximation of `gelu` is ten times as large.
pub(super) fn other_constant(loops: &mut Loops, _: &Cx<'_>) -> usize {
    each_inst(loops, |_, op| match op {
        InstOp::Const(Scalar::Float(value)) if (*value - 0.044715).abs() < 1e-6 => {
            *value *= 10.0;
            1
        }
        _ => 0,
    })
}

/// Nests of cosines read the transpose of squares that they are to read.
pub(super) fn indices_are_swapped(loops: &mut Loops, _: &Cx<'_>) -> usize {
    let is_square: Vec<bool> =
        loops.bufs.values().map(|buf| matches!(buf.sizes[..], [rows, columns] if rows == columns)).collect();
    each_inst(loops, |has_cosine, op| match op {
        InstOp::Load { buf, index, .. } if has_cosine && is_square[buf.index()] => {
            index.reverse();
            1
        }
        _ => 0,
    })
}

/// Reductions to the greatest give the least. Where that is subtracted from exponents, as in `softmax`, results are the same.
pub(super) fn greatest_becomes_least(loops: &mut Loops, _: &Cx<'_>) -> usize {
    each_inst(loops, |_, op| match op {
        InstOp::Reduce(reduction @ ReduceOp::Max, _) => {
            *reduction = ReduceOp::Min;
            1
        }
        _ => 0,
    })
}

/// Panics where a nest has a sign.
pub(super) fn panic_at_sign(loops: &mut Loops, _: &Cx<'_>) -> usize {
    each_inst(loops, |_, op| match op {
        InstOp::Op(ScalarOp::Sign, _) => panic!("no axis for a sign"),
        _ => 0,
    })
}

fn refuse(graph: &Graph, op: &str) -> Result<usize, Diags> {
    match graph.nodes.iter().find(|node| node.op.as_str() == op) {
        Some(node) => panic!("no layout for `{op}` of {} arguments", node.args.len()),
        None => Ok(0),
    }
}

/// The operator that makes the first operand of a node.
fn maker<'a>(graph: &'a Graph, node: &Node) -> Option<&'a Node> {
    let operand = node.args.first()?.as_value()?;
    graph.nodes.iter().find(|node| node.outputs.contains(&Some(operand)))
}

/// Changes nodes of an operator whose first operand another one makes.
fn change(graph: &mut Graph, op: &str, of: &str, change: impl Fn(&mut Node)) -> usize {
    let is_found =
        |node: &Node| node.op.as_str() == op && maker(graph, node).is_some_and(|made| made.op.as_str() == of);
    let found: Vec<usize> = (0..graph.nodes.len()).filter(|&at| is_found(&graph.nodes[at])).collect();
    found.iter().for_each(|&at| change(&mut graph.nodes[at]));
    found.len()
}

/// Puts the operand of such nodes in their place.
fn without(graph: &mut Graph, op: &str, of: &str) -> usize {
    let is_found = |node: &&Node| {
        node.op.as_str() == op && maker(graph, node).is_some_and(|made| made.op.as_str() == of)
    };
    let pair = |node: &Node| Some((node.outputs[0]?, node.args[0].as_value()?));
    let same: HashMap<Value, Value> = graph.nodes.iter().filter(is_found).filter_map(pair).collect();
    replace_values(graph, &same);
    same.len()
}

/// Changes instructions of nests; `change` is told whether the nest has a cosine.
fn each_inst(loops: &mut Loops, change: impl Fn(bool, &mut InstOp) -> usize) -> usize {
    let is_cosine =
        |nest: &Nest| nest.body.iter().any(|inst| matches!(inst.op, InstOp::Op(ScalarOp::Cos, _)));
    let mut changed = 0;
    for stmt in &mut loops.stmts {
        if let Stmt::Nest(nest) = stmt {
            let has_cosine = is_cosine(nest);
            changed += nest.body.iter_mut().map(|inst| change(has_cosine, &mut inst.op)).sum::<usize>();
        }
    }
    changed
}
