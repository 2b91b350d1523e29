//! Cuts a part out of a graph: values that it needs and does not make become inputs that hold what was recorded of them.

use crate::case::Case;
use crate::compare::{self, Expected};
use crate::definition::definition;
use crate::error::Error;
use crate::made_up::{self, Wanted};
use litz_ir::graph::{Arg, Graph, Node, Type, Value};
use litz_ir::scalar::Scalar;
use litz_runtime::Tensor;
use litz_runtime::program;
use litz_runtime::reference;
use litz_sym::Sym;
use std::collections::{HashMap, HashSet};

/// A graph of whose values the contents are known, as far as somebody could compute them.
pub(super) struct Whole {
    pub(super) graph: Graph,
    weights: HashMap<String, Tensor>,
    contents: HashMap<Value, Tensor>,
    /// How far a right value of each element may be from what was recorded of a value, by the errors of all that was computed before it.
    doubts: HashMap<Value, Vec<f64>>,
    /// Whether nodes without results that anybody reads may be left out.
    is_pure: bool,
}

/// A part of a graph.
pub(super) struct Part {
    pub(super) case: Case,
    /// Which nodes of the whole it has.
    pub(super) kept: Vec<bool>,
}

impl Whole {
    /// A case of which nothing is recorded but what it is called with.
    pub(super) fn of(case: &Case, is_pure: bool) -> Whole {
        let graph = case.graph.clone();
        let contents = graph.inputs.iter().copied().zip(case.inputs.iter().cloned()).collect();
        Whole { graph, weights: case.weights.clone(), contents, doubts: HashMap::new(), is_pure }
    }

    /// Computes what all of its values hold, by the interpreter of loops.
    ///
    /// # Errors
    /// When the graph uses something unsupported, or the call fails.
    pub(super) fn record(&mut self, case: &Case) -> Result<(), Error> {
        let mut graph = self.graph.clone();
        let made: Vec<Value> =
            graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten().copied()).collect();
        graph.outputs = made.iter().map(|&value| Arg::Value(value)).collect();
        graph.updates.clear();
        let loops = definition(&graph)?;
        let results = reference::loops::run(&loops, &case.sizes(), &case.inputs, &case.weights)?;
        for (value, Expected { value: found, doubts }) in
            made.into_iter().zip(compare::expected(&loops, results))
        {
            let tensor = match found {
                program::Value::Tensor(tensor) => {
                    self.doubts.insert(value, doubts);
                    Some(tensor)
                }
                program::Value::Scalar(Scalar::Bool(number)) => Tensor::scalar(number).ok(),
                program::Value::Scalar(Scalar::Int(number)) => Tensor::scalar(number).ok(),
                program::Value::Scalar(Scalar::Float(number)) => Tensor::scalar(number).ok(),
                program::Value::Text(_) | program::Value::Nothing => None,
            };
            self.contents.extend(tensor.map(|tensor| (value, tensor)));
        }
        Ok(())
    }

    /// Whether values are known up to a small part of their size: then errors of rounding hide nothing that is wrong with them.
    pub(super) fn is_certain(&self, values: &[Value]) -> bool {
        const PART: f64 = 1e-2;
        values.iter().all(|value| {
            let (Some(tensor), Some(doubts)) = (self.contents.get(value), self.doubts.get(value)) else {
                return self.graph.inputs.contains(value) || self.graph.tensor(*value).is_none();
            };
            let numbers = tensor.to_f64().into_iter().map(f64::abs);
            let size = numbers.filter(|number| number.is_finite()).fold(0.0, f64::max);
            doubts.iter().all(|doubt| *doubt <= PART * size)
        })
    }

    /// The values that the first `end` nodes make, those before `start` left out, and that are read behind them or returned.
    pub(super) fn frontier(&self, start: usize, end: usize) -> Vec<Value> {
        let Graph { nodes, outputs, updates, .. } = &self.graph;
        let mut read = HashSet::new();
        let args = nodes[end..].iter().flat_map(|node| &node.args).chain(outputs);
        args.for_each(|arg| {
            arg.each_value(&mut |value| {
                read.insert(value);
            });
        });
        read.extend(updates.iter().map(|&(_, source)| source));
        let made = nodes[start..end].iter().flat_map(made_by);
        made.filter(|value| read.contains(value) && self.graph.tensor(*value).is_some()).collect()
    }

    /// The nodes before `end` that the last of them needs, the nearest first: itself, then those whose results it reads, and so on.
    pub(super) fn nearest(&self, end: usize) -> Vec<usize> {
        let nodes = &self.graph.nodes;
        let maker: HashMap<Value, usize> = nodes[..end]
            .iter()
            .enumerate()
            .flat_map(|(at, node)| made_by(node).map(move |value| (value, at)))
            .collect();
        let mut order = vec![end - 1];
        let mut known: HashSet<usize> = order.iter().copied().collect();
        let mut next = 0;
        while next < order.len() {
            let mut found: Vec<usize> = Vec::new();
            let args = &nodes[order[next]].args;
            args.iter().for_each(|arg| arg.each_value(&mut |value| found.extend(maker.get(&value))));
            found.sort_unstable_by_key(|&at| std::cmp::Reverse(at));
            order.extend(found.into_iter().filter(|&at| known.insert(at)));
            next += 1;
        }
        order
    }

    /// The part that has some of the nodes and returns these values, as far as it makes them. None where it makes none of them, or nothing is known of
    /// a value that it needs.
    pub(super) fn part(&self, kept: &[bool], outputs: &[Value]) -> Option<Part> {
        let Graph { nodes, updates, .. } = &self.graph;
        let made: HashSet<Value> = chosen(nodes, kept).flat_map(made_by).collect();
        let outputs: Vec<Value> = outputs.iter().copied().filter(|value| made.contains(value)).collect();
        let updates: Vec<(Value, Value)> =
            updates.iter().copied().filter(|(_, source)| made.contains(source)).collect();
        if outputs.is_empty()
            && updates.is_empty()
            && chosen(nodes, kept).all(|node| !node.outputs.is_empty())
        {
            return None;
        }
        let mut needed: HashSet<Value> = outputs.iter().copied().collect();
        needed.extend(updates.iter().flat_map(|&(target, source)| [target, source]));
        let mut kept = kept.to_vec();
        for (at, node) in nodes.iter().enumerate().rev() {
            kept[at] &= !self.is_pure || made_by(node).any(|value| needed.contains(&value));
            if kept[at] {
                node.args.iter().for_each(|arg| {
                    arg.each_value(&mut |value| {
                        needed.insert(value);
                    });
                });
            }
        }
        let mut graph = self.graph.clone();
        let mut at = kept.iter();
        graph.nodes.retain(|_| *at.next().expect("invariant: there is a mark for each node"));
        let made: HashSet<Value> = graph.nodes.iter().flat_map(made_by).collect();
        graph.nodes.iter_mut().flat_map(|node| &mut node.outputs).for_each(|output| {
            *output = output.filter(|value| needed.contains(value));
        });
        graph.outputs = outputs.iter().map(|&value| Arg::Value(value)).collect();
        graph.updates = updates;
        graph.consts.retain(|(value, _)| needed.contains(value));
        graph.inputs.retain(|value| needed.contains(value));
        graph.donated.retain(|value| needed.contains(value));
        let given: HashSet<Value> =
            graph.inputs.iter().copied().chain(graph.consts.iter().map(|(value, _)| *value)).collect();
        let mut others: Vec<Value> =
            needed.into_iter().filter(|value| !made.contains(value) && !given.contains(value)).collect();
        others.sort_unstable();
        graph.inputs.extend(others);
        let inputs = graph.inputs.iter().map(|&value| self.content(value)).collect::<Option<Vec<_>>>()?;
        keep_what_is_used(&mut graph);
        let constants = graph.consts.iter();
        let weights = constants.map(|(_, name)| Some((name.clone(), self.weights.get(name)?.clone())));
        let expected = self.is_begin(&kept).then(|| self.expected(&outputs, &graph)).flatten();
        Some(Part { case: Case { inputs, weights: weights.collect::<Option<_>>()?, expected, graph }, kept })
    }

    /// Whether a part computes its values of what the whole is called with: then what was recorded of them is what it has to return.
    fn is_begin(&self, kept: &[bool]) -> bool {
        let given: HashSet<Value> = self.graph.inputs.iter().copied().collect();
        let constants: HashSet<Value> = self.graph.consts.iter().map(|(value, _)| *value).collect();
        let made: HashSet<Value> = chosen(&self.graph.nodes, kept).flat_map(made_by).collect();
        let mut begins = true;
        chosen(&self.graph.nodes, kept).flat_map(|node| &node.args).for_each(|arg| {
            arg.each_value(&mut |value| {
                begins &= made.contains(&value) || given.contains(&value) || constants.contains(&value);
            });
        });
        begins
    }

    /// What was recorded of the results of a part without updates.
    fn expected(&self, outputs: &[Value], part: &Graph) -> Option<Vec<Expected>> {
        let one = |value: &Value| {
            let (tensor, doubts) = (self.contents.get(value)?.clone(), self.doubts.get(value)?.clone());
            Some(Expected { value: program::Value::Tensor(tensor), doubts })
        };
        if part.updates.is_empty() { outputs.iter().map(one).collect() } else { None }
    }

    /// What a value holds, or where that is not known something of its type.
    fn content(&self, value: Value) -> Option<Tensor> {
        if let Some(tensor) = self.contents.get(&value) {
            return Some(tensor.clone());
        }
        let data = &self.graph.values[value];
        let number = if let Type::Int(number) = data.ty { Some(number) } else { None };
        let wanted = Wanted { position: 0, name: &data.name, ty: data.ty.stored(), number };
        made_up::inputs(&[wanted], &self.graph.facts).ok()?.pop()
    }
}

/// The nodes that are marked.
fn chosen<'a>(nodes: &'a [Node], kept: &'a [bool]) -> impl Iterator<Item = &'a Node> {
    nodes.iter().zip(kept).filter(|(_, kept)| **kept).map(|(node, _)| node)
}

/// The values that a node makes.
pub(super) fn made_by(node: &Node) -> impl Iterator<Item = Value> + '_ {
    node.outputs.iter().flatten().copied()
}

/// Removes declarations, subgraphs and symbols that nothing names.
fn keep_what_is_used(graph: &mut Graph) {
    let mut names = HashSet::new();
    graph.nodes.iter().flat_map(|node| &node.args).for_each(|arg| {
        arg.each_graph(&mut |name| {
            names.insert(name.to_owned());
        });
    });
    graph.subgraphs.retain(|subgraph| names.contains(&subgraph.name));
    if !graph.subgraphs.is_empty() {
        // They may mention any symbol, and any operator.
        return;
    }
    let used: HashSet<String> = graph.nodes.iter().map(|node| node.op.to_string()).collect();
    graph.ops.retain(|decl| used.contains(&decl.schema.name));
    let mut syms: HashSet<Sym> = HashSet::new();
    let made = graph.nodes.iter().flat_map(made_by);
    let given = graph.inputs.iter().copied().chain(graph.consts.iter().map(|(value, _)| *value));
    for value in made.chain(given) {
        match &graph.values[value].ty {
            Type::Tensor(ty) => {
                syms.extend(ty.sizes.iter().chain(&ty.strides).flat_map(|size| size.syms()));
            }
            Type::Int(number) => syms.extend(number.syms()),
            Type::Float | Type::Bool => {}
        }
    }
    let args = graph.nodes.iter().flat_map(|node| &node.args);
    args.for_each(|arg| arg.each_int(&mut |number| syms.extend(number.syms())));
    graph.facts = graph.facts.only(|sym| syms.contains(&sym));
}
