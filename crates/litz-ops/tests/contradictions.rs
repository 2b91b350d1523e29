//! Calls that contradict themselves are refused in words that name the operator and what does not go together.

use litz_ir::graph::{Arg, Device, Float, Graph, Node, OpName, TensorType, Type};
use litz_ir::{Diags, Dtype, text, verify};
use litz_ops::{InferCx, OpError, Table, decompose, infer, lower};
use litz_sym::Expr;

/// Calls that are refused, tensors as their types and `none` where nothing is given, and what the message names besides the
/// operator: what does not go together.
const REFUSED: &[(&str, [&str; 2])] = &[
    ("aten.select_scatter.default(f32[4,3], f32[100], 0, 1)", ["[100]", "[3]"]),
    ("aten.select_scatter.default(f32[4,3], f32[3], 0, 1000)", ["1000", "4"]),
    ("aten.slice_scatter.default(f32[8], f32[3], 0, 1, 3, 1)", ["[3]", "[2]"]),
    ("aten.slice_scatter.default(f32[8], f32[2], 0, 0, 8, 1)", ["[2]", "[8]"]),
    ("aten.diagonal_scatter.default(f32[4,4], f32[2], 0, 0, 1)", ["[2]", "[4]"]),
    ("aten.as_strided.default(f32[4], [100], [1], 0)", ["[100]", "4 elements"]),
    ("aten.as_strided.default(f32[4], [2], [1], 3)", ["[2]", "4 elements"]),
    ("aten.as_strided.default(f32[4], [2], [-1], 1)", ["[-1]", "4 elements"]),
    ("aten.as_strided_scatter.default(f32[4], f32[100], [100], [1], 0)", ["[100]", "4 elements"]),
    ("aten.gather.default(f32[4,3], 1, i64[100,3])", ["[100, 3]", "[4, 3]"]),
    ("aten.scatter.src(f32[4,3], 1, i64[100,3], f32[100,3])", ["[100, 3]", "[4, 3]"]),
    ("aten.scatter.src(f32[4,3], 1, i64[4,3], f32[2,3])", ["[4, 3]", "[2, 3]"]),
    ("aten.scatter_add.default(f32[4,3], 1, i64[100,3], f32[100,3])", ["[100, 3]", "[4, 3]"]),
    ("aten.scatter_reduce.two(f32[4,3], 1, i64[100,3], f32[100,3], \"sum\")", ["[100, 3]", "[4, 3]"]),
    ("aten.index_add.default(f32[4,3], 0, i64[2], f32[2,100])", ["[2, 100]", "[2, 3]"]),
    ("aten.index_copy.default(f32[4,3], 0, i64[2], f32[2,100])", ["[2, 100]", "[2, 3]"]),
    ("aten.index_reduce.default(f32[4,3], 0, i64[2], f32[2,100], \"prod\")", ["[2, 100]", "[2, 3]"]),
    ("aten.index_add.default(f32[4,3], 0, i64[2], f32[100,3])", ["[100, 3]", "[2, 3]"]),
    ("aten.index_put.default(f32[4,3], [i64[2]], f32[7,3])", ["[7, 3]", "[2, 3]"]),
    ("aten.index_put.default(f32[4], [bool[100]], f32[1])", ["[100]", "[4]"]),
    ("aten.index_put.default(f32[400], [bool[4]], f32[1])", ["[4]", "[400]"]),
    ("aten.layer_norm.default(f32[4,300], [300], f32[3], f32[3])", ["[3]", "[300]"]),
    ("aten.rms_norm.default(f32[4,300], [300], f32[3])", ["[3]", "[300]"]),
    ("aten.group_norm.default(f32[4,300], 3, f32[3], f32[3])", ["[3]", "[300]"]),
    (
        "aten.batch_norm.default(f32[4,300], f32[3], f32[3], f32[3], f32[3], false, 0.1, 1e-05, false)",
        ["[3]", "[300]"],
    ),
    (
        "aten.instance_norm.default(f32[4,300,2], f32[3], f32[3], none, none, true, 0.1, 1e-05, false)",
        ["[3]", "[300]"],
    ),
    ("aten.linear.default(f32[4,3], f32[50,3], f32[4])", ["[4]", "[4, 50]"]),
    ("aten.addmm.default(f32[7], f32[4,3], f32[3,50])", ["[7]", "[4, 50]"]),
    (
        "aten.scaled_dot_product_attention.default(f32[1,2,8,4], f32[1,2,9,4], f32[1,2,9,4], f32[3,3])",
        ["[3, 3]", "[1, 2, 8, 9]"],
    ),
    ("aten.copy.default(f32[8], f32[3])", ["[3]", "[8]"]),
    ("aten.fill.Tensor(f32[8], f32[3])", ["[3]", "[]"]),
    ("aten.narrow.default(f32[8], 0, 4, 7)", ["7", "8"]),
    ("aten.unfold.default(f32[8], 0, 100, 1)", ["100", "8"]),
    (
        "aten.fake_quantize_per_channel_affine.default(f32[8,300], f32[3], i32[3], 1, 0, 255)",
        ["[3]", "[300]"],
    ),
    ("aten.put.default(f32[4], i64[9], f32[3])", ["[3]", "[9]"]),
    ("aten.searchsorted.Tensor(f32[4,8], f32[9,2])", ["[4]", "[9]"]),
    ("aten.embedding_bag.default(f32[10,4], i64[6], i64[2], false, 0, false, f32[2])", ["[2]", "[6]"]),
    (
        "aten.lstm.input(f32[2,1,4], [f32[1,1,4] f32[1,1,4]], [f32[16,4] f32[16,4] f32[3] f32[3]], true, 1, 0.0, false, false, false)",
        ["[3]", "[2, 1, 16]"],
    ),
    ("aten.max_unpool2d.default(f32[1,1,4,4], i64[1,1,2,2], [8 8])", ["[1, 1, 2, 2]", "[1, 1, 4, 4]"]),
    ("aten.cross_entropy_loss.default(f32[6,40], i64[6], f32[3])", ["[3]", "[40]"]),
    // Writes that would have to grow, or to change the type of, what they write to.
    ("aten.add_.Tensor(f32[1], f32[4])", ["[1]", "[4]"]),
    ("aten.add_.Tensor(i64[4], f32[4])", ["f32", "i64"]),
    // What the operator that was written is made of.
    ("aten.tensordot.default(f32[2,3], f32[4,5], [1], [0])", ["3", "4"]),
    ("aten.pixel_shuffle.default(f32[1,6,2,2], 2)", ["[1, 1, 2, 2, 2, 2]", "[1, 6, 2, 2]"]),
];

/// Calls that are right, for all that they look like.
const ACCEPTED: &[&str] = &[
    "aten.scatter_add.default(f32[4,3], 1, i64[2,3], f32[4,3])",
    "aten.gather.default(f32[4,3], 1, i64[2,2])",
    "aten.gather.default(f32[4], 0, i64[])",
    "aten.gather.default(f32[], 0, i64[3])",
    "aten.scatter.src(f32[4], 0, i64[], f32[2])",
    "aten.index_put.default(f32[4,3], [i64[2]], f32[3])",
    "aten.index_put.default(f32[4,3], [i64[2]], f32[1,1])",
    "aten.as_strided.default(f32[4], [2 2], [1 1], 1)",
    "aten.as_strided.default(f32[4], [0 9], [1 1], 0)",
    "aten.linear.default(f32[4,3], f32[50,3], f32[4,50])",
    "aten.add_.Tensor(f32[4], f32[1])",
    "aten.add_.Tensor(f32[4], i64[4])",
    "aten.tensordot.default(f32[2,1], f32[4,5], [1], [0])",
    "aten.cross_entropy_loss.default(f32[40], i64[])",
];

/// Reads the arguments of a call; tensors become inputs of the graph.
struct Reader<'t> {
    rest: &'t str,
    graph: Graph,
}

impl Reader<'_> {
    fn skip(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start_matches([' ', ',']);
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Values up to the closing bracket.
    fn list(&mut self, close: &str) -> Vec<Arg> {
        let mut items = Vec::new();
        while !self.skip(close) {
            items.push(self.value());
        }
        items
    }

    fn value(&mut self) -> Arg {
        if self.skip("[") {
            return Arg::List(self.list("]"));
        }
        let end = self.rest.find([',', ' ', '[', ']', ')']).expect("a bracket closes every list");
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "none" => Arg::None,
            "true" => Arg::Bool(true),
            "false" => Arg::Bool(false),
            _ if word.starts_with('"') => Arg::Str(word.trim_matches('"').to_owned()),
            _ => match (Dtype::from_name(word), word.parse::<i64>()) {
                (Some(dtype), _) => self.tensor(dtype),
                (None, Ok(i)) => Arg::Int(Expr::int(i)),
                (None, Err(_)) => Arg::Float(Float(word.parse().expect("a number"))),
            },
        }
    }

    fn tensor(&mut self, dtype: Dtype) -> Arg {
        assert!(self.skip("["), "sizes follow a type");
        let sizes = self.list("]").iter().filter_map(Arg::as_int).collect();
        let name = format!("x{}", self.graph.inputs.len());
        let value = self.graph.value(name, Type::Tensor(TensorType::contiguous(dtype, sizes)));
        self.graph.inputs.push(value);
        Arg::Value(value)
    }
}

/// A graph of the one call, without its results.
fn read(call: &str) -> (Graph, Node) {
    let (op, rest) = call.split_once('(').expect("`op(..)`");
    let mut reader = Reader { rest, graph: Graph::new("call", Device::Cpu) };
    let args = reader.list(")");
    (reader.graph, Node { op: OpName::new(op), args, outputs: Vec::new(), source: Some("model.py:7".into()) })
}

/// Infers, decomposes and lowers the call.
fn compile((mut graph, mut node): (Graph, Node)) -> Result<(), Diags> {
    let table = Table::new();
    let mut cx = InferCx { table: &table, values: &graph.values, facts: &mut graph.facts };
    let types = infer(&mut cx, &node).map_err(|error: OpError| vec![error.at(&node)])?;
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
    let mut cx = InferCx { table: &table, values: &graph.values, facts: &mut graph.facts };
    infer(&mut cx, &graph.nodes[0]).expect("it may be right");
    graph.facts.guards().iter().map(|guard| (guard.rel.to_string(), guard.who.clone())).collect()
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
