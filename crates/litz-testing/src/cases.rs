//! Reads calls of operators that were recorded in eager PyTorch: arguments, results with their strides and elements.
//!
//! The folder `cases` has a file of calls for each family of operators; `bless.py` there writes them.

use std::fmt;
use std::path::PathBuf;

use litz_ir::Dtype;
use litz_ir::graph::{Arg, Device, Float, Form, Graph, MemoryFormat, Node, OpName, TensorType, Type, Value};
use litz_ops::{InferCx, Table, infer};
use litz_runtime::Tensor;
use litz_sym::Expr;

use crate::elements;

/// Every family, by the name of its file.
pub const FAMILIES: [&str; 37] = [
    "affine",
    "attention",
    "compose",
    "conv",
    "deform",
    "factory",
    "foreach",
    "gradient",
    "gradient_attention",
    "gradient_conv",
    "gradient_norm",
    "gradient_pool",
    "grid",
    "group",
    "index",
    "join",
    "layout",
    "linear",
    "loss",
    "matmul",
    "norm",
    "order",
    "pad",
    "patches",
    "pointwise",
    "pool",
    "quant",
    "quantised",
    "reduce",
    "resize",
    "rnn",
    "roi",
    "scatter",
    "shape",
    "special",
    "statistic",
    "view",
];

/// One call as recorded.
#[derive(Clone, Debug)]
pub struct Case {
    /// Where it begins in its file, from 1.
    pub line: usize,
    /// The operator, such as `aten.add.Tensor`.
    pub op: String,
    /// Tensors among the arguments, in order.
    pub tensors: Vec<Recorded>,
    /// Arguments by position; `Arg::Value(n)` is the tensor at `n`.
    pub args: Vec<Arg>,
    /// What it returns; the first results only, where the others have no meaning.
    pub results: Vec<Recorded>,
}

/// A tensor as eager PyTorch had it.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Type, sizes and strides.
    pub ty: TensorType,
    /// Elements in that layout.
    pub tensor: Tensor,
}

/// Folder of the recorded calls.
pub fn folder() -> PathBuf {
    crate::repository().join("crates/litz-testing/cases")
}

/// The calls of a family.
///
/// # Errors
/// Where the file cannot be read, or is not as `bless.py` writes it; with the line.
pub fn read(family: &str) -> Result<Vec<Case>, String> {
    let path = folder().join(format!("{family}.txt"));
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The calls that `text` spells.
///
/// # Errors
/// The first line that is not as `bless.py` writes it.
pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some((keyword, rest)) = line.split_once(' ') else { continue };
        let malformed = || format!("line {}: `{line}`", at + 1);
        if keyword == "case" {
            let (tensors, args, results) = (Vec::new(), Vec::new(), Vec::new());
            cases.push(Case { line: at + 1, op: rest.to_owned(), tensors, args, results });
            continue;
        }
        let case = cases.last_mut().ok_or_else(malformed)?;
        match keyword {
            "tensor" => case.tensors.push(parse_tensor(rest).ok_or_else(malformed)?),
            "result" => case.results.push(parse_tensor(rest).ok_or_else(malformed)?),
            "arg" => case.args.push(parse_arg(rest).ok_or_else(malformed)?),
            _ => return Err(malformed()),
        }
    }
    Ok(cases)
}

impl Case {
    /// A graph of the one call, with the result types that inference gives.
    ///
    /// # Errors
    /// What the operator does not accept, in its words.
    pub fn graph(&self) -> Result<Graph, String> {
        let mut graph = Graph::new("case", Device::Cpu);
        for (at, recorded) in self.tensors.iter().enumerate() {
            let value = graph.value(format!("x{at}"), Type::Tensor(recorded.ty.clone()));
            graph.inputs.push(value);
        }
        let (op, outputs) = (OpName::new(&self.op), vec![None; self.results.len()]);
        let mut node = Node { op, form: Form::Plain, args: self.args.clone(), outputs, origin: None };
        let table = Table::new();
        let mut cx =
            InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
        let types = infer(&mut cx, &node).map_err(|error| error.message)?;
        if types.len() < self.results.len() {
            return Err(format!("{} results, expected {}", types.len(), self.results.len()));
        }
        let types: Vec<Type> = types.into_iter().flatten().take(self.results.len()).collect();
        node.outputs =
            types.into_iter().enumerate().map(|(at, ty)| Some(graph.value(format!("y{at}"), ty))).collect();
        graph.outputs = node.outputs.iter().flatten().map(|&value| Arg::Value(value)).collect();
        graph.nodes.push(node);
        Ok(graph)
    }

    /// The tensors that it is called with.
    pub fn inputs(&self) -> Vec<Tensor> {
        self.tensors.iter().map(|recorded| recorded.tensor.clone()).collect()
    }
}

/// The call as its file spells it, without elements and results.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "case {}", self.op)?;
        for Recorded { ty, .. } in &self.tensors {
            let list = |items: &[Expr]| items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            writeln!(f, "tensor {} [{}] {{{}}} :", ty.dtype, list(&ty.sizes), list(&ty.strides))?;
        }
        self.args.iter().try_for_each(|arg| writeln!(f, "arg {}", spelt(arg)))
    }
}

fn spelt(arg: &Arg) -> String {
    match arg {
        Arg::None | Arg::Strided => "none".to_owned(),
        Arg::Value(value) => format!("@{}", value.0),
        Arg::Int(e) => e.to_string(),
        Arg::Float(f) => format!("{:?}", f.0),
        Arg::Complex(re, im) => format!("{:?}+{:?}j", re.0, im.0),
        Arg::Bool(b) => b.to_string(),
        Arg::Str(s) => format!("\"{s}\""),
        Arg::List(items) => format!("[{}]", items.iter().map(spelt).collect::<Vec<_>>().join(" ")),
        Arg::Dtype(dtype) => format!("dtype:{dtype}"),
        Arg::Device(device) => device.to_string(),
        Arg::MemoryFormat(format) => format!("format:{}", format.name()),
        Arg::Graph(graph) => format!("graph:{graph:?}"),
        Arg::Part(part) => format!("{part:?}"),
    }
}

/// `f32 [2,3] {3,1} : 0.5 -1.0 ..`.
fn parse_tensor(text: &str) -> Option<Recorded> {
    let (header, words) = text.split_once(" :")?;
    let mut header = header.split(' ');
    let dtype = Dtype::from_name(header.next()?)?;
    let mut list = || {
        let inner = header.next()?.trim_matches(|c| "[]{}".contains(c));
        let numbers = inner.split(',').filter(|word| !word.is_empty()).map(|word| word.parse::<usize>().ok());
        numbers.collect::<Option<Vec<usize>>>()
    };
    let (sizes, strides) = (list()?, list()?);
    let elements: Option<Vec<Vec<u8>>> =
        words.split_whitespace().map(|word| elements::parse(dtype, word)).collect();
    let tensor = elements::tensor(dtype, &sizes, &strides, &elements?)?;
    let exprs = |numbers: &[usize]| numbers.iter().map(|&n| Expr::int(n as i64)).collect();
    Some(Recorded { ty: TensorType::strided(dtype, exprs(&sizes), exprs(&strides)), tensor })
}

/// A word and the bracket after it, apart.
fn tokens(piece: &str) -> impl Iterator<Item = &str> {
    let cut = piece.len() - usize::from(piece.ends_with(['[', ']', ' ']));
    [&piece[..cut], piece[cut..].trim()].into_iter().filter(|token| !token.is_empty())
}

fn parse_arg(text: &str) -> Option<Arg> {
    let mut open: Vec<Vec<Arg>> = vec![Vec::new()];
    // Strings hold blanks and brackets of their own: they are put together again.
    let mut string: Option<String> = None;
    for word in text.split_inclusive(|c| "[] ".contains(c)).flat_map(tokens) {
        if let Some(text) = &mut string {
            text.push(' ');
            text.push_str(word);
        } else if word.starts_with('"') {
            string = Some(word.to_owned());
        } else if word == "[" {
            open.push(Vec::new());
            continue;
        } else if word == "]" {
            let list = open.pop()?;
            open.last_mut()?.push(Arg::List(list));
            continue;
        } else {
            open.last_mut()?.push(parse_word(word)?);
            continue;
        }
        if let Some(text) = string.take_if(|text| text.len() > 1 && text.ends_with('"')) {
            open.last_mut()?.push(Arg::Str(text.trim_matches('"').to_owned()));
        }
    }
    open.pop()?.pop()
}

fn parse_word(word: &str) -> Option<Arg> {
    match word {
        "none" => return Some(Arg::None),
        "true" => return Some(Arg::Bool(true)),
        "false" => return Some(Arg::Bool(false)),
        "cpu" => return Some(Arg::Device(Device::Cpu)),
        _ => {}
    }
    if let Some(index) = word.strip_prefix('@') {
        return Some(Arg::Value(Value(index.parse().ok()?)));
    }
    if let Some(name) = word.strip_prefix("dtype:") {
        return Some(Arg::Dtype(Dtype::from_name(name)?));
    }
    if let Some(name) = word.strip_prefix("format:") {
        let all = [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d];
        let found = all.into_iter().find(|format| format.name() == name);
        return Some(Arg::MemoryFormat(found.unwrap_or(MemoryFormat::Preserve)));
    }
    match word.parse::<i64>() {
        Ok(number) => Some(Arg::Int(Expr::int(number))),
        Err(_) => Some(Arg::Float(Float(word.parse().ok()?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_family_and_every_family_a_file() {
        let files = std::fs::read_dir(folder()).expect("the folder is there").filter_map(|entry| {
            let path = entry.expect("it can be read").path();
            let is_text = path.extension().is_some_and(|extension| extension == "txt");
            is_text.then(|| path.file_stem().expect("a name").to_string_lossy().into_owned())
        });
        let mut files: Vec<String> = files.collect();
        files.sort();
        let mut families = FAMILIES.map(str::to_owned);
        families.sort();
        assert_eq!(files, families);
    }

    #[test]
    fn a_call_is_read_whole() {
        let text = "case aten.pad.default\n\
            tensor f32 [2,2] {1,2} : 1.0 2.0 -inf nan\n\
            arg @0\n\
            arg [ 1 0 ]\n\
            arg \"a b\"\n\
            arg 0.5\n\
            result i64 [0] {1} :\n";
        let cases = parse(text).expect("it is well-formed");
        let [case] = &cases[..] else { panic!("one case, found {}", cases.len()) };
        assert_eq!((case.line, &*case.op), (1, "aten.pad.default"));
        assert_eq!(case.tensors[0].tensor.strides(), [1, 2]);
        assert_eq!(case.tensors[0].tensor.to_f64()[..3], [1.0, 2.0, f64::NEG_INFINITY]);
        let list = Arg::List(vec![Arg::Int(Expr::int(1)), Arg::Int(Expr::zero())]);
        assert_eq!(case.args, [Arg::Value(Value(0)), list, Arg::Str("a b".into()), Arg::Float(Float(0.5))]);
        assert_eq!(case.results[0].tensor.numel(), 0);
        assert!(parse("case a\nresult f32 [1] {1} : one").is_err_and(|error| error.starts_with("line 2")));
    }
}
