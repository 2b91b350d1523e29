//! Writes a model as a Python function that calls `torch.ops` with the same arguments.

use std::fmt::Write;

use litz_ir::Dtype;
use litz_ir::graph::{Arg, MemoryFormat, Node, Type, Value};
use litz_ir::schema::{BaseType, OpSchema, Schemas};
use litz_ops::Table;

use super::Model;

/// What the functions of a file use.
pub const PREAMBLE: &str = "import torch


def floordiv(a, b):
    return a // b


def mod(a, b):
    return a % b


def ceildiv(a, b):
    return -(-a // b)


def laid_out(tensor, strides):
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


";

/// The function `NAME(inputs, sizes)`: `inputs` has a tensor for each input, then for each constant; `sizes` numbers by
/// symbol. It returns a list, of which inputs that were written are not part.
pub fn function(model: &Model, name: &str, table: &Table) -> String {
    let graph = &model.graph;
    let mut text = format!("def {name}(inputs, sizes):\n");
    let mut symbols: Vec<String> = graph.facts.symbols().map(|sym| sym.name().to_string()).collect();
    symbols.sort();
    for sym in symbols {
        line(&mut text, &format!("{sym} = sizes[\"{sym}\"]"));
    }
    let given = graph.inputs.iter().chain(graph.consts.iter().map(|(value, _)| value));
    for (at, &value) in given.enumerate() {
        let strides = graph.tensor(value).map_or(Vec::new(), |ty| ty.strides.clone());
        let strides: Vec<String> = strides.iter().map(ToString::to_string).collect();
        line(
            &mut text,
            &format!("{} = laid_out(inputs[{at}], [{}])", variable(model, value), strides.join(", ")),
        );
    }
    for node in &graph.nodes {
        let results: Vec<String> = node
            .outputs
            .iter()
            .map(|output| output.map_or("_".to_owned(), |value| variable(model, value)))
            .collect();
        let call = call(model, node, table);
        // Operators with one result return it, others a tuple or list.
        let is_list = table.lookup(node.op.as_str()).is_some_and(returns_several);
        let target = match &results[..] {
            [] => "_".to_owned(),
            [one] if !is_list => one.clone(),
            all => format!("({},)", all.join(", ")),
        };
        line(&mut text, &format!("{target} = {call}"));
    }
    let outputs: Vec<String> = graph.outputs.iter().map(|arg| argument(model, arg)).collect();
    line(&mut text, &format!("return [{}]", outputs.join(", ")));
    text
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "    {line}").expect("invariant: strings take all");
}

fn variable(model: &Model, value: Value) -> String {
    model.graph.values[value].name.clone()
}

fn returns_several(schema: &OpSchema) -> bool {
    schema.returns.len() > 1 || schema.returns.iter().any(|result| result.ty.list)
}

/// `torch.ops.aten.add.Tensor(x0, x1, alpha=2)`: arguments go by position up to the last tensor, whose names Python does
/// not take for every operator, then by name, less those that have their defaults.
fn call(model: &Model, node: &Node, table: &Table) -> String {
    let formals = table.lookup(node.op.as_str()).map_or(&[][..], |schema| &schema.args);
    let last = formals.iter().rposition(|formal| formal.ty.base == BaseType::Tensor);
    let mut parts = Vec::new();
    for (at, arg) in node.args.iter().enumerate() {
        let text = argument(model, arg);
        match formals.get(at) {
            Some(formal) if Some(at) > last && formal.default.as_ref() == Some(arg) => {}
            Some(formal) if Some(at) > last => parts.push(format!("{}={text}", formal.name)),
            Some(_) | None => parts.push(text),
        }
    }
    format!("torch.ops.{}({})", node.op, parts.join(", "))
}

fn argument(model: &Model, arg: &Arg) -> String {
    match arg {
        Arg::None => "None".to_owned(),
        Arg::Value(value) => match &model.graph.values[*value].ty {
            Type::Tensor(_) | Type::Float | Type::Bool => variable(model, *value),
            Type::Int(expr) => expr.to_string(),
        },
        Arg::List(items) => {
            let items: Vec<String> = items.iter().map(|item| argument(model, item)).collect();
            format!("[{}]", items.join(", "))
        }
        Arg::Int(expr) => expr.to_string(),
        Arg::Float(value) if value.0.is_nan() => "float(\"nan\")".to_owned(),
        Arg::Float(value) if value.0.is_infinite() => {
            format!("{}float(\"inf\")", if value.0 < 0.0 { "-" } else { "" })
        }
        Arg::Float(value) => format!("{:?}", value.0),
        Arg::Bool(value) => if *value { "True" } else { "False" }.to_owned(),
        Arg::Complex(re, im) => format!("complex({:?}, {:?})", re.0, im.0),
        Arg::Str(text) => format!("{text:?}"),
        Arg::Dtype(dtype) => torch_dtype(*dtype).to_owned(),
        Arg::Device(_) => "\"cpu\"".to_owned(),
        Arg::Strided => "torch.strided".to_owned(),
        Arg::MemoryFormat(format) => match format {
            MemoryFormat::Contiguous => "torch.contiguous_format",
            MemoryFormat::ChannelsLast => "torch.channels_last",
            MemoryFormat::ChannelsLast3d => "torch.channels_last_3d",
            MemoryFormat::Preserve => "torch.preserve_format",
        }
        .to_owned(),
        Arg::Graph(name) => name.clone(),
        Arg::Part(part) => format!("{part:?}"),
    }
}

/// `torch.bfloat16`.
pub fn torch_dtype(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::Bool => "torch.bool",
        Dtype::U8 => "torch.uint8",
        Dtype::U16 => "torch.uint16",
        Dtype::U32 => "torch.uint32",
        Dtype::U64 => "torch.uint64",
        Dtype::I8 => "torch.int8",
        Dtype::I16 => "torch.int16",
        Dtype::I32 => "torch.int32",
        Dtype::I64 => "torch.int64",
        Dtype::F16 => "torch.float16",
        Dtype::BF16 => "torch.bfloat16",
        Dtype::F32 => "torch.float32",
        Dtype::F64 => "torch.float64",
        Dtype::F8E4M3 => "torch.float8_e4m3fn",
        Dtype::F8E5M2 => "torch.float8_e5m2",
        Dtype::C64 => "torch.complex64",
        Dtype::C128 => "torch.complex128",
    }
}
