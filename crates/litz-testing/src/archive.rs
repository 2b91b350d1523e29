//! Writes archives as `torch.export.save` does, of graphs of inputs alone or of any entries, and takes archives apart.

use std::io::{Cursor, Write as _};
use std::sync::Arc;

use litz_import::Archive;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Graph, MemoryFormat, Node, TensorType, Type, Value};
use litz_ir::schema::Schemas;
use litz_ops::Table;
use serde_json::{Value as Json, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// The archive of a graph without constants, subgraphs and symbols, whose outputs are all tensors.
///
/// # Errors
/// What of the graph such an archive cannot say.
pub fn of(graph: &Graph) -> Result<Vec<u8>, String> {
    let empty = json!({ "config": {} }).to_string();
    let model = model(graph)?.to_string();
    Ok(pack(&[
        ("archive_format", b"pt2"),
        ("archive_version", b"0"),
        ("byteorder", b"little"),
        ("data/weights/model_weights_config.json", empty.as_bytes()),
        ("data/constants/model_constants_config.json", empty.as_bytes()),
        ("models/model.json", model.as_bytes()),
    ]))
}

/// An archive with these entries below one root folder, stored as PyTorch stores them, checksums included.
pub fn pack(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (path, contents) in entries {
        writer.start_file(format!("model/{path}"), stored).expect("invariant: memory takes any entry");
        writer.write_all(contents).expect("invariant: memory takes any contents");
    }
    writer.finish().expect("invariant: memory takes a directory").into_inner()
}

/// The entries of a sound archive, without the root folder.
///
/// # Panics
/// When the archive is damaged.
pub fn parts(bytes: Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let archive = Archive::open(Arc::new(bytes.clone())).expect("a sound archive");
    let part = |path: &str| (path.to_owned(), bytes[archive.range(path).expect("it is listed")].to_vec());
    archive.paths().map(part).collect()
}

fn model(graph: &Graph) -> Result<Json, String> {
    let nodes: Vec<Json> = graph.nodes.iter().map(|node| of_node(graph, node)).collect::<Result<_, _>>()?;
    let inputs: Vec<Json> = graph.inputs.iter().map(|&v| tensor(graph, v)).collect();
    let outputs: Vec<Json> = graph.outputs.iter().map(|arg| output(graph, arg)).collect::<Result<_, _>>()?;
    let mut values = serde_json::Map::new();
    for data in graph.values.values() {
        let Type::Tensor(ty) = &data.ty else { return Err(format!("%{} is no tensor", data.name)) };
        values.insert(data.name.clone(), tensor_meta(ty)?);
    }
    let user_input = |arg: &Json| json!({ "user_input": { "arg": arg } });
    let user_output = |arg: &Json| json!({ "user_output": { "arg": arg } });
    let leaf = json!({ "type": null, "context": null, "children_spec": [] });
    let tuple = |leaves: usize| json!({ "type": "builtins.tuple", "context": "null", "children_spec": vec![leaf.clone(); leaves] });
    let keywords = json!({ "type": "builtins.dict", "context": "[]", "children_spec": [] });
    let call = json!({
        "type": "builtins.tuple", "context": "null", "children_spec": [tuple(inputs.len()), keywords]
    });
    Ok(json!({
        "graph_module": {
            "graph": {
                "inputs": inputs, "outputs": outputs, "nodes": nodes, "tensor_values": values,
                "sym_int_values": {}, "sym_bool_values": {}, "sym_float_values": {}, "custom_obj_values": {},
                "is_single_tensor_return": false,
            },
            "signature": {
                "input_specs": inputs.iter().map(user_input).collect::<Vec<_>>(),
                "output_specs": outputs.iter().map(user_output).collect::<Vec<_>>(),
            },
            "module_call_graph": [{
                "fqn": "",
                "signature": {
                    "inputs": [], "outputs": [],
                    "in_spec": json!([1, call]).to_string(),
                    "out_spec": json!([1, tuple(outputs.len())]).to_string(),
                    "forward_arg_names": null,
                },
            }],
            "metadata": {}, "treespec_namedtuple_fields": {},
        },
        "opset_version": { "aten": 10 }, "range_constraints": {}, "schema_version": { "major": 8, "minor": 20 },
        "verifiers": ["TRAINING"], "torch_version": "2.15.0", "guards_code": [],
    }))
}

fn name(graph: &Graph, value: Value) -> &str {
    &graph.values[value].name
}

fn tensor(graph: &Graph, value: Value) -> Json {
    json!({ "as_tensor": { "name": name(graph, value) } })
}

fn output(graph: &Graph, arg: &Arg) -> Result<Json, String> {
    let value = arg.as_value().ok_or_else(|| format!("an output {arg:?}"))?;
    Ok(tensor(graph, value))
}

fn of_node(graph: &Graph, node: &Node) -> Result<Json, String> {
    let table = Table::new();
    let schema = table.lookup(node.op.as_str()).ok_or_else(|| format!("unknown operator {}", node.op))?;
    let mut inputs = Vec::new();
    for (slot, arg) in schema.args.iter().zip(&node.args) {
        // Arguments that have their defaults are left out.
        if slot.default.as_ref() != Some(arg) {
            inputs.push(json!({ "name": slot.name, "arg": argument(graph, arg)?, "kind": 1 }));
        }
    }
    let results: Vec<&str> = node.outputs.iter().flatten().map(|&v| name(graph, v)).collect();
    let is_list = schema.returns.len() == 1 && schema.returns[0].ty.list;
    let outputs = if is_list {
        json!([{ "as_tensors": results.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>() }])
    } else {
        json!(results.iter().map(|name| json!({ "as_tensor": { "name": name } })).collect::<Vec<_>>())
    };
    Ok(json!({
        "target": format!("torch.ops.{}", node.op), "inputs": inputs, "outputs": outputs,
        "metadata": {}, "is_hop_single_tensor_return": null,
    }))
}

fn argument(graph: &Graph, arg: &Arg) -> Result<Json, String> {
    Ok(match arg {
        Arg::None => json!({ "as_none": true }),
        Arg::Value(value) => tensor(graph, *value),
        Arg::Int(e) => json!({ "as_int": e.as_int().ok_or("a symbol")? }),
        Arg::Float(f) => json!({ "as_float": number(f.0) }),
        Arg::Bool(b) => json!({ "as_bool": b }),
        Arg::Str(s) => json!({ "as_string": s }),
        Arg::Dtype(dtype) => json!({ "as_scalar_type": code(*dtype)? }),
        Arg::Device(_) => json!({ "as_device": { "type": "cpu", "index": null } }),
        Arg::Strided => json!({ "as_layout": 7 }),
        Arg::MemoryFormat(format) => json!({ "as_memory_format": match format {
            MemoryFormat::Contiguous => 1,
            MemoryFormat::ChannelsLast => 2,
            MemoryFormat::ChannelsLast3d => 3,
            MemoryFormat::Preserve => 4,
        } }),
        Arg::List(items) => list(graph, items)?,
        Arg::Complex(..) | Arg::Graph(_) | Arg::Part(_) => return Err(format!("an argument {arg:?}")),
    })
}

/// A list is of the kind of its first element; tensors of which some are left out are a kind of their own.
fn list(graph: &Graph, items: &[Arg]) -> Result<Json, String> {
    let optional = items.contains(&Arg::None);
    let each = items.iter().map(|arg| argument(graph, arg)).collect::<Result<Vec<_>, _>>()?;
    let inner = |tag: &str| each.iter().map(|item| item.get(tag).cloned()).collect::<Option<Vec<_>>>();
    if optional {
        return Ok(json!({ "as_optional_tensors": each }));
    }
    let kinds = [
        ("as_tensor", "as_tensors"),
        ("as_int", "as_ints"),
        ("as_float", "as_floats"),
        ("as_bool", "as_bools"),
    ];
    if each.is_empty() {
        return Ok(json!({ "as_ints": [] }));
    }
    let found = kinds.iter().find_map(|(one, many)| Some(json!({ *many: inner(one)? })));
    found.ok_or_else(|| format!("a list {items:?}"))
}

/// Numbers that JSON does not have are strings.
fn number(value: f64) -> Json {
    match value {
        _ if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        _ => json!(value),
    }
}

fn tensor_meta(ty: &TensorType) -> Result<Json, String> {
    let ints = |list: &[litz_sym::Expr]| {
        let int = |e: &litz_sym::Expr| Some(json!({ "as_int": e.as_int()? }));
        list.iter().map(int).collect::<Option<Vec<_>>>().ok_or_else(|| format!("symbols in {ty}"))
    };
    Ok(json!({
        "dtype": code(ty.dtype)?, "sizes": ints(&ty.sizes)?, "strides": ints(&ty.strides)?,
        "storage_offset": { "as_int": 0 }, "layout": 7, "requires_grad": false,
        "device": { "type": "cpu", "index": null },
    }))
}

/// The number that the format has for an element type.
fn code(dtype: Dtype) -> Result<i64, String> {
    let codes = (1..=35).find(|&code| litz_import::schema::ScalarType(code).dtype() == Ok(dtype));
    codes.ok_or_else(|| format!("element type {dtype}"))
}
