//! Replaces operators whose entry is a decomposition by the operators that they are made of.

use crate::args::Args;
use crate::complex::{self, Parts};
use crate::def::{OpDef, Rule};
use crate::device::device_of;
use crate::error::OpError;
use crate::infer::{InferCx, infer};
use crate::seed::Seed;
use crate::table::Table;
use crate::traits::Op;
use litz_ir::graph::{Arg, Device, Float, Form, Graph, Node, OpName, TensorType, Type, Value, ValueData};
use litz_ir::ids::{Id, Table as IdTable};
use litz_ir::schema::{OpSchema, Schemas};
use litz_ir::{Diags, Dtype};
use litz_sym::{Expr, Facts};
use std::collections::{HashMap, HashSet};

/// Most operators that one is written with. A recurrent layer takes about ten for each step; files can ask for any number
/// of steps.
const MAX_NODES: usize = 1 << 18;

/// Replaces every node whose operator has a decomposition, in subgraphs too. Results keep their names and types.
///
/// Nodes of complex numbers are written with the parts of these, where there is a rule for it. Others stay: lowering gives them to
/// the host, or says which type it was. Their decompositions are those of real numbers, which conjugate nothing.
///
/// # Errors
/// Every node whose arguments its decomposition does not support. The graph is then left half rewritten.
pub fn decompose(graph: &mut Graph) -> Result<(), Diags> {
    let table = Table::of(graph);
    let mut diags = Diags::new();
    decompose_with(&table, graph, &mut diags);
    if diags.is_empty() { Ok(()) } else { Err(diags) }
}

fn decompose_with(table: &Table, graph: &mut Graph, diags: &mut Diags) {
    graph.subgraphs.iter_mut().for_each(|g| decompose_with(table, g, diags));
    let decomposed = |node: &Node, graph: &Graph, parts: &Parts| match table.op_of(node)? {
        op if complex::is_complex(node, &graph.values) => {
            complex::rule(op.def, node, graph, parts).map(|rewrite| (op, rewrite))
        }
        op @ Op { def: OpDef { rule: Rule::Decompose(rewrite), .. }, .. } => Some((op, *rewrite)),
        Op { .. } => None,
    };
    let mut parts = Parts::new();
    if !graph.nodes.iter().any(|n| decomposed(n, graph, &parts).is_some()) {
        return;
    }
    let mut names: HashSet<String> = graph.values.values().map(|v| v.name.clone()).collect();
    let mut replaced: HashMap<Value, Value> = HashMap::new();
    // A stack of nodes still to look at, the next on top; what a decomposition gives may decompose further.
    let mut left: Vec<Node> = std::mem::take(&mut graph.nodes).into_iter().rev().collect();
    while let Some(mut node) = left.pop() {
        node.args.iter_mut().for_each(|a| a.map_values(&mut |v| replaced.get(&v).copied().unwrap_or(v)));
        let Some((op, rewrite)) = decomposed(&node, graph, &parts) else {
            complex::learn(&mut parts, &node, &graph.values);
            graph.nodes.push(node);
            continue;
        };
        let device = match device_of(table, &op, &op.args(&node, &graph.values), graph.device) {
            Ok(device) => device,
            Err(error) => {
                diags.push(error.at(&node, &graph.values));
                continue;
            }
        };
        let of = (&mut graph.values, &mut graph.facts);
        let mut rewriter =
            Rewriter::new(table, of, (device, graph.device), &mut names, (op.schema, &node), None);
        rewriter.parts = Some(&parts);
        match rewriter.run(rewrite) {
            Ok((nodes, moved)) => {
                replaced.extend(moved);
                left.extend(nodes.into_iter().rev());
            }
            // Of complex numbers a rule may take a part of what the operator takes, whose own types are known to be right.
            Err(_) if complex::is_complex(&node, &graph.values) => graph.nodes.push(node),
            Err(mut error) => {
                // What a rule calls has errors of its own, which do not say what the user wrote.
                if !error.message.contains(node.op.as_str()) {
                    error.message = format!("{}: {}", node.op, error.message);
                }
                diags.push(error.at(&node, &graph.values));
            }
        }
    }
    let current = |v: &mut Value| *v = replaced.get(v).copied().unwrap_or(*v);
    graph.updates.iter_mut().for_each(|(_, contents)| current(contents));
    graph.outputs.iter_mut().for_each(|a| a.map_values(&mut |v| replaced.get(&v).copied().unwrap_or(v)));
}

/// The types of a decomposed operator's results: its decomposition is made and thrown away.
pub(crate) fn types(cx: &mut InferCx<'_>, args: &Args<'_>) -> Result<Vec<Type>, OpError> {
    let name = args.op();
    let (Some(schema), Some(Rule::Decompose(rewrite))) =
        (cx.table.lookup(name), cx.table.def(name).map(|d| d.rule))
    else {
        return Err(OpError::missing(name));
    };
    let (mut values, mut names) = (cx.values.clone(), HashSet::new());
    let of = (&mut values, &mut *cx.facts);
    let mut rewriter =
        Rewriter::new(cx.table, of, (cx.device, cx.device), &mut names, (schema, args.node), None);
    let results = rewrite(&mut rewriter)?;
    Ok(results.into_iter().map(|v| values[v].ty.clone()).collect())
}

/// A node being replaced: builds the nodes that replace it.
pub struct Rewriter<'a> {
    table: &'a Table,
    values: &'a mut IdTable<Value, ValueData>,
    facts: &'a mut Facts,
    /// Where the results are, and what is made without operands on the way there.
    device: Device,
    /// Where a node without operands makes a tensor that does not say where.
    default: Device,
    names: &'a mut HashSet<String>,
    schema: &'a OpSchema,
    node: &'a Node,
    nodes: Vec<Node>,
    /// The last number that was appended to the name of the node's first result.
    named: usize,
    /// What random numbers are made of, where there is a seed.
    seed: Option<&'a mut Seed>,
    /// The parts of the graph's complex values, as far as they are known.
    parts: Option<&'a Parts>,
}

impl<'a> Rewriter<'a> {
    /// A rewriter of a node with its schema, in a graph of these values and facts; with the device of the node's results, and of what nothing
    /// places.
    pub(crate) fn new(
        table: &'a Table,
        (values, facts): (&'a mut IdTable<Value, ValueData>, &'a mut Facts),
        (device, default): (Device, Device),
        names: &'a mut HashSet<String>,
        (schema, node): (&'a OpSchema, &'a Node),
        seed: Option<&'a mut Seed>,
    ) -> Rewriter<'a> {
        Rewriter {
            table,
            values,
            facts,
            device,
            default,
            names,
            schema,
            node,
            nodes: Vec::new(),
            named: 0,
            seed,
            parts: None,
        }
    }
}

impl Rewriter<'_> {
    /// Random numbers of a kind, `uniform` ones in [0, 1) or `normal` ones, of a stream that nothing else has.
    pub(crate) fn random(&mut self, kind: &str, sizes: Vec<Expr>, dtype: Dtype) -> Result<Value, OpError> {
        let [seed, stream] = self.stream()?;
        self.call(&format!("litz.{kind}.default"), [seed, stream, Arg::ints(sizes), Arg::Dtype(dtype)])
    }

    /// Random integers from `low` on and below `high`, of a stream that nothing else has.
    pub(crate) fn random_integers(
        &mut self,
        low: Expr,
        high: Expr,
        sizes: Vec<Expr>,
        dtype: Dtype,
    ) -> Result<Value, OpError> {
        let [seed, stream] = self.stream()?;
        let args = [seed, stream, Arg::Int(low), Arg::Int(high), Arg::ints(sizes), Arg::Dtype(dtype)];
        self.call("litz.integers.default", args)
    }

    fn stream(&mut self) -> Result<[Arg; 2], OpError> {
        let Some(seed) = &mut self.seed else {
            return Err(self.args().unsupported("a random number without a seed"));
        };
        seed.next += 1;
        Ok([Arg::Value(seed.value), Arg::Int(Expr::int(seed.next - 1))])
    }

    /// The node's arguments.
    pub fn args(&self) -> Args<'_> {
        Args::new(self.node, self.schema, self.values)
    }

    /// The schema of the node's operator.
    pub fn schema(&self) -> &OpSchema {
        self.schema
    }

    /// The parts that a complex value was made of.
    pub(crate) fn known_parts(&self, value: Value) -> Option<[Value; 2]> {
        self.parts?.get(&value).copied()
    }

    /// The type of a tensor.
    pub fn ty(&self, value: Value) -> Result<TensorType, OpError> {
        match &self.values[value].ty {
            Type::Tensor(ty) => Ok(ty.clone()),
            Type::Int(_) | Type::Float | Type::Bool => Err(self.args().invalid("expected a tensor")),
        }
    }

    /// What type functions take.
    pub fn infer_cx(&mut self) -> InferCx<'_> {
        InferCx { table: self.table, values: self.values, facts: self.facts, device: self.device }
    }

    /// Makes the operands agree as `rule` says.
    pub fn require(
        &mut self,
        rule: impl FnOnce(&mut InferCx<'_>, &Args<'_>) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        let args = Args::new(self.node, self.schema, self.values);
        let (table, device) = (self.table, self.device);
        rule(&mut InferCx { table, values: self.values, facts: self.facts, device }, &args)
    }

    /// Applies an operator with one result. Arguments that are left out have their defaults.
    pub fn call(&mut self, op: &str, args: impl IntoIterator<Item = Arg>) -> Result<Value, OpError> {
        let results = self.call_all(op, args)?;
        results.first().copied().flatten().ok_or_else(|| OpError::missing(op))
    }

    /// Applies an operator with one result to tensors.
    pub fn apply(&mut self, op: &str, operands: &[Value]) -> Result<Value, OpError> {
        self.call(op, operands.iter().map(|&v| Arg::Value(v)))
    }

    /// Applies an operator with one result to a tensor and a number.
    pub fn scalar(&mut self, op: &str, x: Value, number: f64) -> Result<Value, OpError> {
        self.call(op, [Arg::Value(x), Arg::Float(Float(number))])
    }

    /// Applies an operator; all of its results.
    pub fn call_all(
        &mut self,
        op: &str,
        args: impl IntoIterator<Item = Arg>,
    ) -> Result<Vec<Option<Value>>, OpError> {
        self.call_as(op, args, Vec::new())
    }

    /// Refuses what would take so many more operators than may be written out: to ask before they are prepared.
    pub fn room_for(&self, operators: usize) -> Result<(), OpError> {
        let is_few = self.nodes.len().checked_add(operators).is_some_and(|all| all <= MAX_NODES);
        is_few
            .then_some(())
            .ok_or_else(|| self.args().unsupported(&format!("what takes more than {MAX_NODES} operators")))
    }

    /// Applies an operator with one result whose size data decides: `ty` says what the sizes are called.
    pub fn stated(
        &mut self,
        op: &str,
        args: impl IntoIterator<Item = Arg>,
        ty: TensorType,
    ) -> Result<Value, OpError> {
        let results = self.call_as(op, args, vec![Type::Tensor(ty)])?;
        results.first().copied().flatten().ok_or_else(|| OpError::missing(op))
    }

    /// Applies an operator whose results have types that are known already, as far as these are given.
    fn call_as(
        &mut self,
        op: &str,
        args: impl IntoIterator<Item = Arg>,
        stated: Vec<Type>,
    ) -> Result<Vec<Option<Value>>, OpError> {
        self.room_for(1)?;
        let schema = self.table.lookup(op).ok_or_else(|| OpError::missing(op))?;
        let mut args: Vec<Arg> = args.into_iter().collect();
        let defaults = schema.args.iter().skip(args.len()).map(|a| a.default.clone().unwrap_or(Arg::None));
        args.extend(defaults);
        let mut node = Node {
            op: OpName::new(op),
            form: Form::Plain,
            args,
            outputs: Vec::new(),
            origin: self.node.origin.clone(),
        };
        // What nothing else places is on the graph's device, unless it says that it belongs to the results.
        if let Some(at) = schema.position("device").filter(|_| self.device != self.default)
            && node.args[at] == Arg::None
            && Args::new(&node, schema, self.values).all_tensors().is_empty()
        {
            node.args[at] = Arg::Device(self.device);
        }
        node.outputs = stated.into_iter().map(|ty| Some(self.fresh(ty))).collect();
        let types = infer(&mut self.infer_cx(), &node)?;
        for (i, ty) in types.into_iter().enumerate() {
            match (node.outputs.get(i).copied().flatten(), ty) {
                (Some(value), Some(ty)) => self.values[value].ty = ty,
                (Some(_), None) => {}
                (None, ty) => {
                    let value = ty.map(|ty| self.fresh(ty));
                    node.outputs.push(value);
                }
            }
        }
        let outputs = node.outputs.clone();
        self.nodes.push(node);
        Ok(outputs)
    }

    /// A value named after the node's first result.
    fn fresh(&mut self, ty: Type) -> Value {
        let first = self.node.outputs.iter().flatten().next();
        let base = first.map_or("t", |&v| self.values[v].name.as_str()).to_owned();
        loop {
            self.named += 1;
            let name = format!("{base}_{}", self.named);
            if self.names.insert(name.clone()) {
                return self.values.push(ValueData { name, ty });
            }
        }
    }

    /// The new nodes, and results that are other values from here on. A result that one of the new nodes defines is
    /// defined as the old value, and keeps its name.
    pub(crate) fn run(
        mut self,
        rewrite: impl FnOnce(&mut Self) -> Result<Vec<Value>, OpError>,
    ) -> Result<(Vec<Node>, Vec<(Value, Value)>), OpError> {
        let before = self.values.len();
        let results = rewrite(&mut self)?;
        let (mut renamed, mut moved) = (HashMap::new(), Vec::new());
        for (&old, &new) in self.node.outputs.iter().zip(&results) {
            let Some(old) = old else { continue };
            if new.index() >= before && !renamed.contains_key(&new) {
                renamed.insert(new, old);
            } else {
                moved.push((old, renamed.get(&new).copied().unwrap_or(new)));
            }
        }
        let rename = |v: Value| renamed.get(&v).copied().unwrap_or(v);
        for node in &mut self.nodes {
            node.args.iter_mut().for_each(|a| a.map_values(&mut |v| rename(v)));
            node.outputs.iter_mut().flatten().for_each(|v| *v = rename(*v));
        }
        Ok((self.nodes, moved))
    }
}
