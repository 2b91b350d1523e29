//! `litz inspect` shows what a model takes, returns and is made of.

use super::failure::{self, Exit, Failure};
use super::format::{self, Table};
use super::load;
use super::options::Common;
use super::output;
use litz::{Error, Model, Runner, Stage};
use litz_import::{InputKind, OutputKind};
use litz_ir::graph::{Arg, Graph, Type, Value};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Which model.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Prints what is known of the model; exits as unsupported if it is.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let model = load::open(&args.model, &args.which)?;
    let unsupported = unsupported(&model, args)?;
    if args.json {
        output::print(format_args!("{}\n", to_json(&model, unsupported.as_deref())))?;
    } else {
        print(&model)?;
        let list = unsupported.as_deref().map_or("nothing".to_owned(), |list| format!("\n{list}"));
        output::print(format_args!("unsupported: {list}\n"))?;
    }
    Ok(if unsupported.is_some() { Exit::Unsupported } else { Exit::Ok })
}

/// What stands in the way of lowering.
fn unsupported(model: &Model, args: &Args) -> Result<Option<String>, Failure> {
    let options = args.common.options();
    let mut quiet = |_: &str| {};
    let mut run = Runner::new(options.verify, options.dump.clone(), &mut quiet);
    let result = model.texts(&options, Stage::Loops, &mut run);
    args.common.print_timings(&run.timings);
    match result {
        Ok(_) => Ok(None),
        Err(Error::Unsupported(diags)) => Ok(Some(failure::unsupported(&diags))),
        Err(error) => Err(error.into()),
    }
}

/// Names and types of what a call takes.
fn inputs(model: &Model) -> Vec<(&str, String)> {
    let graph = &model.imported.graph;
    let describe = |kind: &InputKind| match kind {
        InputKind::Value(value) => type_text(&graph.values[*value].ty),
        InputKind::Fixed(arg) => format!("always {arg:?}"),
    };
    model.imported.inputs.iter().map(|input| (input.name.as_str(), describe(&input.kind))).collect()
}

/// Names and types of what a call returns.
fn outputs(model: &Model) -> Vec<(&str, String)> {
    let graph = &model.imported.graph;
    let describe = |arg: &Arg, kind: OutputKind| {
        let ty = match arg {
            Arg::Value(value) => type_text(&graph.values[*value].ty),
            other => format!("always {other:?}"),
        };
        match kind {
            OutputKind::Result => ty,
            OutputKind::Loss => format!("{ty} (loss)"),
            OutputKind::ParameterGradient | OutputKind::InputGradient => format!("{ty} (gradient)"),
        }
    };
    let outputs = model.imported.outputs.iter().zip(&graph.outputs);
    outputs.map(|(output, arg)| (output.name.as_str(), describe(arg, output.kind))).collect()
}

fn type_text(ty: &Type) -> String {
    match ty {
        Type::Tensor(tensor) => format::graph_type(tensor),
        Type::Int(expr) => format!("int {expr}"),
        Type::Float => "float".to_owned(),
        Type::Bool => "bool".to_owned(),
    }
}

/// Operators with their number of uses, most used first, those of subgraphs included.
fn operators(graph: &Graph) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    count(graph, &mut counts);
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts
}

fn count(graph: &Graph, counts: &mut BTreeMap<String, usize>) {
    graph.nodes.iter().for_each(|node| *counts.entry(node.op.to_string()).or_default() += 1);
    graph.subgraphs.iter().for_each(|subgraph| count(subgraph, counts));
}

/// Number, elements and bytes of the weights.
fn weights(model: &Model) -> (usize, f64, f64) {
    let weights = model.imported.weights.values();
    // A sum of no floats is -0.
    let total = |of: fn(&litz_import::Weight) -> f64| 0.0 + weights.clone().map(of).sum::<f64>();
    (weights.len(), total(|w| w.numel() as f64), total(|w| w.numel() as f64 * w.dtype.size() as f64))
}

fn print(model: &Model) -> Result<(), Failure> {
    let (imported, graph) = (&model.imported, &model.imported.graph);
    output::print(format_args!("model for {}, written by torch {}\n", graph.device, imported.torch_version))?;
    for (heading, rows) in [("inputs", inputs(model)), ("outputs", outputs(model))] {
        let rows: String = rows.iter().map(|(name, ty)| format!("  {name}: {ty}\n")).collect();
        output::print(format_args!("\n{heading}\n{rows}"))?;
    }
    if !graph.updates.is_empty() {
        let row = |&(target, _): &(Value, Value)| format!("  {}\n", graph.values[target].name);
        output::print(format_args!("\nupdates\n{}", graph.updates.iter().map(row).collect::<String>()))?;
    }
    if graph.facts.symbols().next().is_some() {
        output::print("\nsymbols\n")?;
    }
    for sym in graph.facts.symbols() {
        let hint = graph.facts.hint_of(sym).map_or(String::new(), |hint| format!(", exported with {hint}"));
        output::print(format_args!("  {sym} in {}{hint}\n", graph.facts.range_of(sym)))?;
    }
    for guard in graph.facts.guards() {
        output::print(format_args!("  {} ({})\n", guard.clause, guard.who))?;
    }
    let (number, elements, bytes) = weights(model);
    let (elements, bytes) = (format::count(elements), format::bytes(bytes));
    output::print(format_args!("\nweights: {number} tensors, {elements} elements, {bytes}\n"))?;
    let mut table = Table::new(&["  operator", ">uses"]);
    operators(graph).into_iter().for_each(|(op, uses)| table.row([format!("  {op}"), uses.to_string()]));
    output::print(format_args!("\n{} nodes\n{table}\n", graph.nodes.len()))
}

fn to_json(model: &Model, unsupported: Option<&str>) -> serde_json::Value {
    let graph = &model.imported.graph;
    let named = |rows: Vec<(&str, String)>| -> Vec<serde_json::Value> {
        rows.into_iter().map(|(name, ty)| json!({ "name": name, "type": ty })).collect()
    };
    let symbol = |sym: litz_sym::Sym| {
        let range = graph.facts.range_of(sym);
        json!({ "name": sym.name(), "lo": range.lo, "hi": range.hi, "hint": graph.facts.hint_of(sym) })
    };
    let (number, elements, bytes) = weights(model);
    json!({
        "device": graph.device.to_string(), "torch": model.imported.torch_version,
        "inputs": named(inputs(model)), "outputs": named(outputs(model)),
        "symbols": graph.facts.symbols().map(symbol).collect::<Vec<_>>(),
        "weights": { "tensors": number, "elements": elements, "bytes": bytes },
        "operators": operators(graph).into_iter().collect::<BTreeMap<String, usize>>(),
        "unsupported": unsupported.map(|list| list.lines().collect::<Vec<_>>()),
    })
}
