//! Reads higher-order operators: wrappers are inlined, and control flow gets subgraphs.

use crate::body::{Body, Scope};
use crate::cx::Cx;
use crate::error::ImportError;
use crate::functionalized;
use crate::schema::{self, Argument, GraphArgument};
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Device};

/// Operators that stay, with their bodies as subgraphs.
const CONTROL_FLOW: [&str; 5] = ["cond", "while_loop", "scan", "map_impl", "associative_scan"];

/// Converts a node that applies `higher_order.<hop>`.
pub(crate) fn convert<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
    hop: &str,
) -> Result<(), ImportError> {
    match hop {
        "wrap_with_set_grad_enabled" | "invoke_subgraph" => inline(body, cx, scope, node),
        "wrap_with_autocast" => under_autocast(body, cx, scope, node),
        "auto_functionalized" => functionalized::first(body, cx, scope, node),
        "auto_functionalized_v2" => functionalized::second(body, cx, scope, node),
        "triton_kernel_wrapper_functional" => functionalized::kernel(body, cx, scope, node),
        "with_effects" => functionalized::ordered(body, cx, scope, node),
        _ if CONTROL_FLOW.contains(&hop) => control_flow(body, cx, scope, node, hop),
        _ => {
            cx.report_unknown(&format!("higher_order.{hop}"), node);
            body.push_node(cx, scope, node, hop, Vec::new())
        }
    }
}

/// Converts the nodes of a graph that was traced with other settings of autocast. Arguments: device, dtype, enabled, cache.
/// Settings for other devices than the program's do nothing to it.
fn under_autocast<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
) -> Result<(), ImportError> {
    let argument = |at: usize| node.inputs.get(at).map(|input| &input.arg);
    let of = match argument(0) {
        Some(Argument::String(of)) => &**of,
        _ => return Err(ImportError::program(format!("{}: expected a device, found none", node.target))),
    };
    let around = body.autocast;
    let is_on = !matches!(argument(2), Some(Argument::Bool(false)));
    body.autocast = match (of, cx.device) {
        ("cpu", Device::Cpu) if is_on => match argument(1) {
            Some(Argument::ScalarType(of)) => match of.dtype() {
                Ok(narrow @ (Dtype::BF16 | Dtype::F16)) => Some(narrow),
                _ => {
                    let (name, feature) =
                        (node.target.to_string(), "another type than bf16 and f16".to_owned());
                    return Err(ImportError::UnsupportedType { name, feature });
                }
            },
            // What PyTorch takes for CPUs if the user chooses none.
            _ => Some(Dtype::BF16),
        },
        ("cpu", Device::Cpu) => None,
        ("cuda", Device::Cuda(_)) if is_on => {
            cx.report_unknown("higher_order.wrap_with_autocast", node);
            None
        }
        _ => around,
    };
    let converted = inline(body, cx, scope, node);
    body.autocast = around;
    converted
}

/// Converts the nodes of the wrapped graph in place. Operands follow the graph.
fn inline<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
) -> Result<(), ImportError> {
    let mut inputs = node.inputs.iter().map(|input| &input.arg);
    let graph = inputs.find_map(|arg| match arg {
        Argument::Graph(GraphArgument { graph, .. }) => Some(graph),
        _ => None,
    });
    let graph = graph
        .ok_or_else(|| ImportError::program(format!("{}: expected a graph, found none", node.target)))?;
    // `invoke_subgraph` has a name between the graph and the operands.
    let mut operands = Vec::new();
    for arg in inputs.filter(|arg| !matches!(arg, Argument::String(_))) {
        match body.argument(cx, scope, arg)? {
            Arg::List(items) => operands.extend(items),
            operand => operands.push(operand),
        }
    }
    expect_count(node, "operands", graph.inputs.len(), operands.len())?;
    let mut inner = Scope::new(graph);
    for (input, operand) in graph.inputs.iter().zip(operands) {
        if let Argument::Tensor(tensor) = input {
            inner.bind(&tensor.name, operand)?;
        }
    }
    body.nodes(cx, &mut inner)?;
    let outputs: Vec<&Argument> = node.outputs.iter().collect();
    let names = outputs.iter().flat_map(|output| tensor_names(output)).collect::<Vec<_>>();
    expect_count(node, "results", graph.outputs.len(), names.len())?;
    for (name, output) in names.into_iter().zip(&graph.outputs) {
        if let Some(name) = name {
            let result = body.argument(cx, &inner, output)?;
            scope.bind(name, result)?;
        }
    }
    Ok(())
}

/// One entry for each result: the name of a tensor, `None` for anything else. Symbolic integers need no binding.
fn tensor_names<'a>(output: &'a Argument<'a>) -> Vec<Option<&'a str>> {
    match output {
        Argument::Tensor(tensor) => vec![Some(&*tensor.name)],
        Argument::Tensors(tensors) => tensors.iter().map(|tensor| Some(&*tensor.name)).collect(),
        _ => vec![None],
    }
}

fn expect_count(node: &schema::Node, what: &str, expected: usize, found: usize) -> Result<(), ImportError> {
    if expected == found {
        return Ok(());
    }
    Err(ImportError::program(format!("{}: expected {expected} {what}, found {found}", node.target)))
}

fn control_flow<'a>(
    body: &mut Body,
    cx: &mut Cx<'a>,
    scope: &mut Scope<'a>,
    node: &'a schema::Node<'a>,
    hop: &str,
) -> Result<(), ImportError> {
    let convert = |input: &'a schema::NamedArgument<'a>| match &input.arg {
        Argument::Graph(graph) => subgraph(body, cx, graph),
        arg => body.argument(cx, scope, arg),
    };
    let args = node.inputs.iter().map(convert).collect::<Result<Vec<_>, _>>()?;
    let name = format!("higher_order.{hop}.default");
    body.push_node(cx, scope, node, &name, args)
}

/// Converts a subgraph into an item of its own; returns the reference.
fn subgraph<'a>(body: &mut Body, cx: &mut Cx<'a>, file: &'a GraphArgument<'a>) -> Result<Arg, ImportError> {
    let name = body.subgraphs.fresh(&file.name);
    let mut inner = Body::new(&name, cx.device);
    inner.autocast = body.autocast;
    let mut scope = Scope::new(&file.graph);
    for input in &file.graph.inputs {
        match inner.define(cx, &mut scope, input)?.as_slice() {
            [Some(value)] => inner.graph.inputs.push(*value),
            _ => return Err(ImportError::program(format!("graph `{name}`: expected values as inputs"))),
        }
    }
    inner.nodes(cx, &mut scope)?;
    for output in &file.graph.outputs {
        let output = inner.argument(cx, &scope, output)?;
        inner.graph.outputs.push(output);
    }
    body.graph.subgraphs.push(inner.graph);
    Ok(Arg::Graph(name))
}
