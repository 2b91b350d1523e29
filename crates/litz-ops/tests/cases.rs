//! Every case of `tests/cases`: result types and strides against eager PyTorch's, lowered loops against its numbers.

mod interp;

use interp::Num;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Device, Float, Graph, MemoryFormat, Node, OpName, TensorType, Type, Value};
use litz_ir::loops::{BufKind, Output};
use litz_ops::{InferCx, Table, decompose, infer, lower};
use litz_sym::Expr;
use std::collections::HashMap;

/// One call as recorded.
struct Case {
    line: usize,
    op: String,
    tensors: Vec<Recorded>,
    args: Vec<Arg>,
    results: Vec<Recorded>,
}

/// A tensor: its type and its elements, row-major.
struct Recorded {
    ty: TensorType,
    elements: Vec<Num>,
}

fn read_cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some((keyword, rest)) = line.split_once(' ') else { continue };
        if keyword == "case" {
            let (tensors, args, results) = (Vec::new(), Vec::new(), Vec::new());
            cases.push(Case { line: number + 1, op: rest.to_owned(), tensors, args, results });
            continue;
        }
        let case = cases.last_mut().expect("a case comes first");
        match keyword {
            "tensor" => case.tensors.push(read_tensor(rest)),
            "result" => case.results.push(read_tensor(rest)),
            "arg" => {
                case.args.push(read_arg(&mut rest.split_inclusive(|c| "[] ".contains(c)).flat_map(tokens)))
            }
            other => panic!("line {}: {other}", number + 1),
        }
    }
    cases
}

fn read_tensor(text: &str) -> Recorded {
    let (header, elements) = text.split_once(" :").expect("`:`");
    let mut words = header.split(' ');
    let dtype = Dtype::from_name(words.next().expect("a type")).expect("a type");
    let mut list = || {
        let inner = words.next().expect("a list").trim_matches(|c| "[]{}".contains(c));
        inner.split(',').filter(|w| !w.is_empty()).map(|w| Expr::int(w.parse().expect("a number"))).collect()
    };
    let ty = TensorType { dtype, sizes: list(), strides: list() };
    let number = |w: &str| match w {
        "true" => Num::I(1),
        "false" => Num::I(0),
        _ if dtype.is_float() => Num::F(w.parse().expect("a number")),
        _ => Num::I(w.parse().expect("a number")),
    };
    Recorded { ty, elements: elements.split_whitespace().map(number).collect() }
}

/// A word and the bracket after it, apart.
fn tokens(piece: &str) -> impl Iterator<Item = &str> {
    let cut = piece.len() - usize::from(piece.ends_with(['[', ']', ' ']));
    [&piece[..cut], piece[cut..].trim()].into_iter().filter(|t| !t.is_empty())
}

fn read_arg<'a>(words: &mut impl Iterator<Item = &'a str>) -> Arg {
    let mut open: Vec<Vec<Arg>> = vec![Vec::new()];
    // Strings hold blanks and brackets of their own: they are put together again.
    let mut string: Option<String> = None;
    for word in words {
        if let Some(text) = &mut string {
            text.push(' ');
            text.push_str(word);
        } else if word.starts_with('"') {
            string = Some(word.to_owned());
        } else if word == "[" {
            open.push(Vec::new());
            continue;
        } else if word == "]" {
            let list = open.pop().expect("`[`");
            open.last_mut().expect("`[`").push(Arg::List(list));
            continue;
        } else {
            open.last_mut().expect("a list").push(read_word(word));
            continue;
        }
        if let Some(text) = string.take_if(|t| t.len() > 1 && t.ends_with('"')) {
            open.last_mut().expect("a list").push(Arg::Str(text.trim_matches('"').to_owned()));
        }
    }
    open.pop().and_then(|mut top| top.pop()).expect("an argument")
}

fn read_word(word: &str) -> Arg {
    match word {
        "none" => return Arg::None,
        "true" => return Arg::Bool(true),
        "false" => return Arg::Bool(false),
        "cpu" => return Arg::Device(Device::Cpu),
        _ => {}
    }
    if let Some(index) = word.strip_prefix('@') {
        return Arg::Value(Value(index.parse().expect("an index")));
    }
    if let Some(name) = word.strip_prefix("dtype:") {
        return Arg::Dtype(Dtype::from_name(name).expect("a type"));
    }
    if let Some(name) = word.strip_prefix("format:") {
        let all = [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d];
        let found = all.into_iter().find(|f| f.name() == name);
        return Arg::MemoryFormat(found.unwrap_or(MemoryFormat::Preserve));
    }
    match word.parse::<i64>() {
        Ok(i) => Arg::Int(Expr::int(i)),
        Err(_) => Arg::Float(Float(word.parse().expect("a number"))),
    }
}

/// A graph of the one call, with the result types that inference gives.
fn graph_of(case: &Case) -> Result<Graph, String> {
    let mut graph = Graph::new("case", Device::Cpu);
    for (i, t) in case.tensors.iter().enumerate() {
        let value = graph.value(format!("x{i}"), Type::Tensor(t.ty.clone()));
        graph.inputs.push(value);
    }
    let op = OpName::new(&case.op);
    let mut node =
        Node { op, args: case.args.clone(), outputs: vec![None; case.results.len()], source: None };
    let table = Table::new();
    let mut cx = InferCx { table: &table, values: &graph.values, facts: &mut graph.facts };
    let types = infer(&mut cx, &node).map_err(|e| e.message)?;
    // A case may record the first results only.
    if types.len() < case.results.len() {
        return Err(format!("{} results, expected {}", types.len(), case.results.len()));
    }
    let types: Vec<Type> = types.into_iter().flatten().take(case.results.len()).collect();
    node.outputs =
        types.into_iter().enumerate().map(|(i, ty)| Some(graph.value(format!("y{i}"), ty))).collect();
    graph.outputs = node.outputs.iter().flatten().map(|&v| Arg::Value(v)).collect();
    graph.nodes.push(node);
    Ok(graph)
}

/// Sizes and strides equal, strides of dimensions with at most one element aside.
fn check_type(found: &TensorType, expected: &TensorType) -> Result<(), String> {
    let show = |t: &TensorType| format!("{}{:?}{{{:?}}}", t.dtype, t.sizes, t.strides);
    let empty = expected.sizes.iter().any(|s| s.is_zero());
    let strides = (0..expected.rank().min(found.rank()))
        .all(|d| empty || expected.sizes[d].is_one() || found.strides[d] == expected.strides[d]);
    if found.dtype != expected.dtype || found.sizes != expected.sizes || !strides {
        return Err(format!("type {}, expected {}", show(found), show(expected)));
    }
    Ok(())
}

fn place(t: &Recorded) -> Vec<Num> {
    let int = |e: &Expr| e.as_int().expect("a number");
    let sizes: Vec<i64> = t.ty.sizes.iter().map(int).collect();
    let points = interp::points(&sizes);
    let at = |p: &Vec<i64>| p.iter().zip(&t.ty.strides).map(|(i, s)| i * int(s)).sum::<i64>() as usize;
    let span = points.iter().map(|p| at(p) + 1).max().unwrap_or(0);
    let mut contents = vec![Num::I(0); span];
    points.iter().zip(&t.elements).for_each(|(p, &v)| contents[at(p)] = v);
    contents
}

/// Whether two elements of the tensor are one in memory.
fn shares_memory(ty: &TensorType) -> bool {
    let int = |e: &Expr| e.as_int().expect("a number");
    let points = interp::points(&ty.sizes.iter().map(int).collect::<Vec<_>>());
    let mut places: Vec<i64> =
        points.iter().map(|p| p.iter().zip(&ty.strides).map(|(i, s)| i * int(s)).sum()).collect();
    places.sort_unstable();
    places.windows(2).any(|w| w[0] == w[1])
}

fn is_close(found: Num, expected: Num, dtype: Dtype) -> bool {
    let (Num::F(a), Num::F(b)) = (found, expected) else { return found == expected };
    let tolerance = match dtype {
        Dtype::BF16 => 1.0 / 128.0,
        Dtype::F16 => 1.0 / 1024.0,
        Dtype::F64 => 1e-12,
        _ => 3e-6,
    };
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(0.5)
}

fn check_case(case: &Case) -> Result<(), String> {
    let mut graph = graph_of(case)?;
    for (output, expected) in graph.outputs.iter().zip(&case.results) {
        let value = output.as_value().expect("a value");
        check_type(graph.tensor(value).ok_or("not a tensor")?, &expected.ty)?;
    }
    let text = |diags: litz_ir::Diags| diags.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let verified = |diags: litz_ir::Diags| if diags.is_empty() { Ok(()) } else { Err(text(diags)) };
    decompose(&mut graph).map_err(text)?;
    verified(litz_ir::verify::graph::verify(&graph))?;
    let loops = lower(&graph).map_err(text)?;
    verified(litz_ir::verify::loops::verify(&loops))?;
    let mut inputs = case.tensors.iter().map(place);
    let contents: HashMap<_, _> = loops
        .bufs
        .iter()
        .filter(|(_, data)| data.kind == BufKind::Input)
        .map(|(buf, _)| (buf.0, inputs.next().expect("an input")))
        .collect();
    let found = interp::run(&loops, &HashMap::new(), |buf| contents.get(&buf.0).cloned());
    for (i, (found, expected)) in found.iter().zip(&case.results).enumerate() {
        if found.len() != expected.elements.len() {
            return Err(format!(
                "result {i}: {} elements, expected {}",
                found.len(),
                expected.elements.len()
            ));
        }
        let pairs = found.iter().zip(&expected.elements).enumerate();
        let wrong = pairs.into_iter().find(|(_, (a, b))| !is_close(**a, **b, expected.ty.dtype));
        if let Some((at, (a, b))) = wrong {
            return Err(format!("result {i}, element {at}: {a:?}, expected {b:?}\n    {:?}", loops.stmts));
        }
        if let Output::View { strides, .. } = &loops.outputs[i]
            && !shares_memory(&expected.ty)
        {
            check_type(&TensorType { strides: strides.clone(), ..expected.ty.clone() }, &expected.ty)?;
        }
    }
    Ok(())
}

fn check_family(family: &str) {
    let path = format!("{}/tests/cases/{family}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("blessed cases");
    let mut failures = Vec::new();
    for case in read_cases(&text) {
        if let Err(why) = check_case(&case) {
            let why: String = why.chars().take(420).collect();
            failures.push(format!("{family}.txt:{}: {}: {why}", case.line, case.op));
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

macro_rules! families {
    ($($name:ident)*) => { $(#[test] fn $name() { check_family(stringify!($name)); })* };
}

families! {
    attention conv factory grid group index join layout loss matmul norm order pad patches pointwise pool quant reduce
    resize rnn roi scatter shape special view
}
