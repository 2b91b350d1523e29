//! Takes batch normalisation with known statistics into the convolution or linear layer before it.
//!
//! `(conv(x, w) + b - mean) * s + beta`, with `s = gamma / sqrt(var + eps)` for each output channel, is
//! `conv(x, w * s) + ((b - mean) * s + beta)`. The right-hand side's weights depend on constants alone, so they are
//! computed once, when the model is loaded.

use super::GraphSettings;
use super::build::Builder;
use litz_ir::graph::{Arg, Float, Graph, Node, TensorType, Value};
use litz_ir::schema::Schemas;
use litz_ir::{Diag, Diags, Dtype};
use litz_ops::Table;
use litz_ops::args::Args;
use litz_sym::Expr;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Layers `op(input, weight, bias, ..)` whose weight has the output channels as its first dimension and whose result
/// has them as its second.
const LAYERS: &[&str] = &[
    "aten.conv1d.default",
    "aten.conv2d.default",
    "aten.conv3d.default",
    "aten.conv1d.padding",
    "aten.conv2d.padding",
    "aten.conv3d.padding",
    "aten.convolution.default",
    "aten.linear.default",
];
/// Batch normalisation; trains when the argument `training` says so.
const NORMS: &[&str] = &["aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default"];
/// Positions of a layer's arguments.
const WEIGHT: usize = 1;
const BIAS: usize = 2;

/// Folds norms into layers, when parameters are frozen; returns how many.
pub fn run(graph: &mut Graph, settings: &GraphSettings) -> Result<usize, Diags> {
    if !settings.freeze || !graph.nodes.iter().any(|n| NORMS.contains(&n.op.as_str())) {
        return Ok(0);
    }
    let table = Table::new();
    let folds = find(graph, &table);
    let mut builder = Builder::new(&table, graph);
    let layers: HashSet<usize> = folds.values().map(|f| f.layer).collect();
    let nodes = std::mem::take(&mut graph.nodes);
    let mut kept = Vec::with_capacity(nodes.len());
    for (i, node) in nodes.iter().enumerate() {
        match folds.get(&i) {
            // The layer moves to the norm's place: all parameters are computed by then.
            Some(fold) => {
                let mut layer = nodes[fold.layer].clone();
                let name = node.outputs[0].map_or(String::new(), |v| graph.values[v].name.clone());
                let source = layer.source.clone();
                let mut parameters =
                    Parameters { graph, builder: &mut builder, nodes: &mut kept, name, source };
                let (weight, bias) = parameters.of(fold).map_err(|d| vec![d])?;
                layer.args[WEIGHT] = Arg::Value(weight);
                layer.args[BIAS] = Arg::Value(bias);
                layer.outputs = vec![node.outputs[0]];
                kept.push(layer);
            }
            None if layers.contains(&i) => {}
            None => kept.push(node.clone()),
        }
    }
    graph.nodes = kept;
    Ok(folds.len())
}

/// A norm and the layer that it follows.
struct Fold {
    layer: usize,
    dtype: Dtype,
    weight: Value,
    bias: Option<Value>,
    gamma: Option<Value>,
    beta: Option<Value>,
    mean: Value,
    var: Value,
    eps: f64,
}

/// Folds by position of the norm.
fn find(graph: &Graph, table: &Table) -> HashMap<usize, Fold> {
    let constants = constants(graph);
    let mut users: HashMap<Value, usize> = HashMap::new();
    let mut count = |v: Value| *users.entry(v).or_default() += 1;
    graph.nodes.iter().flat_map(|n| &n.args).for_each(|a| a.each_value(&mut count));
    graph.outputs.iter().for_each(|a| a.each_value(&mut count));
    graph.updates.iter().for_each(|u| count(u.1));
    let producer: HashMap<Value, usize> = graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, n)| LAYERS.contains(&n.op.as_str()))
        .filter_map(|(i, n)| Some((n.outputs.first().copied()??, i)))
        .collect();
    let fold = |norm: &Node| -> Option<Fold> {
        let own = Args::new(norm, table.lookup(norm.op.as_str())?, &graph.values);
        let result = norm.outputs.first().copied()??;
        let statistics_unused = norm.outputs[1..].iter().flatten().all(|v| !users.contains_key(v));
        if own.flag("training").ok()? || !statistics_unused {
            return None;
        }
        let input = own.tensor("input").ok()?;
        let layer = *producer.get(&input.value)?;
        let node = &graph.nodes[layer];
        let of_layer = Args::new(node, table.lookup(node.op.as_str())?, &graph.values);
        let weight = of_layer.tensor("weight").ok()?;
        let out = graph.tensor(result)?;
        // Channels are the second dimension of batches only.
        let is_batch = input.ty.rank() == weight.ty.rank() && out.dtype == input.ty.dtype;
        if users[&input.value] > 1 || of_layer.flag("transposed").ok()? || !is_batch {
            return None;
        }
        let optional = |args: &Args<'_>, name| Some(args.opt_tensor(name).ok()?.map(|t| t.value));
        let fold = Fold {
            layer,
            dtype: out.dtype,
            weight: weight.value,
            bias: optional(&of_layer, "bias")?,
            gamma: optional(&own, "weight")?,
            beta: optional(&own, "bias")?,
            mean: own.tensor("running_mean").ok()?.value,
            var: own.tensor("running_var").ok()?.value,
            eps: own.float("eps").ok()?,
        };
        let parameters =
            [fold.bias, fold.gamma, fold.beta, Some(fold.weight), Some(fold.mean), Some(fold.var)];
        parameters.into_iter().flatten().all(|v| constants.contains(&v)).then_some(fold)
    };
    let norms = graph.nodes.iter().enumerate().filter(|(_, n)| NORMS.contains(&n.op.as_str()));
    norms.filter_map(|(i, n)| Some((i, fold(n)?))).collect()
}

/// Values that depend on the model alone: its constants that nothing writes to, and what is computed of them.
fn constants(graph: &Graph) -> HashSet<Value> {
    let updated = |v: Value| graph.updates.iter().any(|u| u.0 == v);
    let mut constants: HashSet<Value> = graph.consts.iter().map(|c| c.0).filter(|&v| !updated(v)).collect();
    for node in &graph.nodes {
        let (mut any, mut all) = (false, true);
        node.args.iter().for_each(|a| {
            a.each_value(&mut |v| {
                any = true;
                all &= constants.contains(&v);
            })
        });
        if any && all && !super::cse::is_random(node) {
            constants.extend(node.outputs.iter().flatten());
        }
    }
    constants
}

/// Appends the nodes that compute a layer's parameters.
struct Parameters<'a, 'b> {
    graph: &'a mut Graph,
    builder: &'a mut Builder<'b>,
    nodes: &'a mut Vec<Node>,
    /// The norm's result, which the parameters are named after.
    name: String,
    source: Option<Arc<str>>,
}

impl Parameters<'_, '_> {
    fn call(&mut self, op: &str, args: Vec<Arg>, role: &str) -> Result<Value, Diag> {
        let name = format!("{}_{role}", self.name);
        let (node, value) = self.builder.node(self.graph, op, args, &name, self.source.clone())?;
        self.nodes.push(node);
        Ok(value)
    }

    fn convert(&mut self, value: Value, dtype: Dtype, role: &str) -> Result<Value, Diag> {
        if self.graph.tensor(value).is_some_and(|t| t.dtype == dtype) {
            return Ok(value);
        }
        self.call("aten._to_copy.default", vec![Arg::Value(value), Arg::Dtype(dtype)], role)
    }

    fn binary(&mut self, op: &str, a: Value, b: Value, role: &str) -> Result<Value, Diag> {
        self.call(op, vec![Arg::Value(a), Arg::Value(b)], role)
    }

    /// Weight and bias of the layer with its norm; half types are computed in f32.
    fn of(&mut self, fold: &Fold) -> Result<(Value, Value), Diag> {
        let compute = fold.dtype.compute();
        let var = self.convert(fold.var, compute, "var")?;
        let var = self.call("aten.add.Scalar", vec![Arg::Value(var), Arg::Float(Float(fold.eps))], "var")?;
        let mut scale = self.call("aten.rsqrt.default", vec![Arg::Value(var)], "scale")?;
        if let Some(gamma) = fold.gamma {
            let gamma = self.convert(gamma, compute, "gamma")?;
            scale = self.binary("aten.mul.Tensor", gamma, scale, "scale")?;
        }

        let weight = self.convert(fold.weight, compute, "weight")?;
        let rank = self.graph.tensor(weight).map_or(1, TensorType::rank);
        let mut sizes = vec![Expr::one(); rank];
        sizes[0] = Expr::int(-1);
        let columns =
            self.call("aten.reshape.default", vec![Arg::Value(scale), Arg::ints(sizes)], "scale")?;
        let weight = self.binary("aten.mul.Tensor", weight, columns, "weight")?;
        let weight = self.convert(weight, fold.dtype, "weight")?;

        let mean = self.convert(fold.mean, compute, "mean")?;
        let mut bias = match fold.bias {
            Some(bias) => {
                let bias = self.convert(bias, compute, "bias")?;
                self.binary("aten.sub.Tensor", bias, mean, "bias")?
            }
            None => self.call("aten.neg.default", vec![Arg::Value(mean)], "bias")?,
        };
        bias = self.binary("aten.mul.Tensor", bias, scale, "bias")?;
        if let Some(beta) = fold.beta {
            let beta = self.convert(beta, compute, "beta")?;
            bias = self.binary("aten.add.Tensor", bias, beta, "bias")?;
        }
        Ok((weight, self.convert(bias, fold.dtype, "bias")?))
    }
}
