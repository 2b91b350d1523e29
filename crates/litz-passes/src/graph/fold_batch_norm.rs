//! Takes batch normalisation with known statistics into the convolution or linear layer before it.
//!
//! `(conv(x, w) + b - mean) * s + beta`, with `s = gamma / sqrt(var + eps)` for each output channel, is
//! `conv(x, w * s) + ((b - mean) * s + beta)`. The right-hand side's weights depend on constants alone, so they are
//! computed once, when the model is loaded.

use super::GraphSettings;
use litz_ir::graph::{Arg, Graph, Node, TensorType, Value};
use litz_ir::{Diags, Dtype};
use litz_ops::args::Args;
use litz_ops::{Builder, InferCx, OpError, Role, Table};
use litz_sym::Expr;
use std::collections::{HashMap, HashSet};

/// Positions of a layer's arguments.
const WEIGHT: usize = 1;
const BIAS: usize = 2;

/// Folds norms into layers, when parameters are frozen; returns how many.
pub fn run(graph: &mut Graph, settings: &GraphSettings) -> Result<usize, Diags> {
    let table = Table::of(graph);
    if !settings.freeze || !graph.nodes.iter().any(|n| role_of(&table, n) == Role::BatchNorm) {
        return Ok(0);
    }
    let folds = find(graph, &table);
    let layers: HashSet<usize> = folds.values().map(|f| f.layer).collect();
    let nodes = std::mem::take(&mut graph.nodes);
    let mut build = Builder::new(&table, graph);
    for (i, node) in nodes.iter().enumerate() {
        match folds.get(&i) {
            // The layer moves to the norm's place: all parameters are computed by then.
            Some(fold) => {
                let mut layer = nodes[fold.layer].clone();
                build.origin = layer.origin.clone();
                let made = parameters(&mut build, fold, node.outputs[0]);
                let (weight, bias) = made.map_err(|e| vec![e.at(node, &build.graph.values)])?;
                layer.args[WEIGHT] = Arg::Value(weight);
                layer.args[BIAS] = Arg::Value(bias);
                layer.outputs = vec![node.outputs[0]];
                build.graph.nodes.push(layer);
            }
            None if layers.contains(&i) => {}
            None => build.graph.nodes.push(node.clone()),
        }
    }
    Ok(folds.len())
}

fn role_of(table: &Table, node: &Node) -> Role {
    table.op_of(node).map_or(Role::Other, |op| op.def.traits.role)
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
fn find(graph: &mut Graph, table: &Table) -> HashMap<usize, Fold> {
    let constants = constants(graph, table);
    let graph = &*graph;
    let mut users: HashMap<Value, usize> = HashMap::new();
    let mut count = |v: Value| *users.entry(v).or_default() += 1;
    graph.nodes.iter().flat_map(|n| &n.args).for_each(|a| a.each_value(&mut count));
    graph.outputs.iter().for_each(|a| a.each_value(&mut count));
    graph.updates.iter().for_each(|u| count(u.1));
    let producer: HashMap<Value, usize> = graph
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, n)| role_of(table, n) == Role::Layer)
        .filter_map(|(i, n)| Some((n.outputs.first().copied()??, i)))
        .collect();
    let fold = |norm: &Node| -> Option<Fold> {
        let own = table.op(norm.op.as_str())?.args(norm, &graph.values);
        let result = norm.outputs.first().copied()??;
        let statistics_unused = norm.outputs[1..].iter().flatten().all(|v| !users.contains_key(v));
        if own.flag("training").ok()? || !statistics_unused {
            return None;
        }
        let input = own.tensor("input").ok()?;
        let layer = *producer.get(&input.value)?;
        let node = &graph.nodes[layer];
        let of_layer = table.op_of(node)?.args(node, &graph.values);
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
        // Without an epsilon a variance of zero makes the factor infinite: weights that are zero would become NaN.
        if (fold.eps as f32) < f32::MIN_POSITIVE {
            return None;
        }
        let parameters =
            [fold.bias, fold.gamma, fold.beta, Some(fold.weight), Some(fold.mean), Some(fold.var)];
        parameters.into_iter().flatten().all(|v| constants.contains(&v)).then_some(fold)
    };
    let norms = graph.nodes.iter().enumerate().filter(|(_, n)| role_of(table, n) == Role::BatchNorm);
    norms.filter_map(|(i, n)| Some((i, fold(n)?))).collect()
}

/// Values that depend on the model alone: its constants that nothing writes to, and what is computed of them.
fn constants(graph: &mut Graph, table: &Table) -> HashSet<Value> {
    let updated = |v: Value| graph.updates.iter().any(|u| u.0 == v);
    let mut constants: HashSet<Value> = graph.consts.iter().map(|c| c.0).filter(|&v| !updated(v)).collect();
    let mut cx = InferCx { table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    for node in &graph.nodes {
        let (mut any, mut all) = (false, true);
        node.args.iter().for_each(|a| {
            a.each_value(&mut |v| {
                any = true;
                all &= constants.contains(&v);
            })
        });
        if any && all && cx.is_pure(node) {
            constants.extend(node.outputs.iter().flatten());
        }
    }
    constants
}

/// Weight and bias of the layer with its norm, which gives `result`; half types are computed in f32.
fn parameters(
    build: &mut Builder<'_>,
    fold: &Fold,
    result: Option<Value>,
) -> Result<(Value, Value), OpError> {
    let name = result.map_or(String::new(), |v| build.graph.values[v].name.clone());
    let named = |role: &str| format!("{name}_{role}");
    let compute = fold.dtype.compute();
    build.name = named("var");
    let var = build.convert(fold.var, compute)?;
    let var = build.add_number(var, fold.eps)?;
    build.name = named("scale");
    let mut scale = build.rsqrt(var)?;
    if let Some(gamma) = fold.gamma {
        build.name = named("gamma");
        let gamma = build.convert(gamma, compute)?;
        build.name = named("scale");
        scale = build.mul(gamma, scale)?;
    }

    build.name = named("weight");
    let weight = build.convert(fold.weight, compute)?;
    let rank = build.graph.tensor(weight).map_or(1, TensorType::rank);
    let mut sizes = vec![Expr::one(); rank];
    sizes[0] = Expr::int(-1);
    build.name = named("scale");
    let columns = build.reshape(scale, sizes)?;
    build.name = named("weight");
    let weight = build.mul(weight, columns)?;
    let weight = build.convert(weight, fold.dtype)?;

    build.name = named("mean");
    let mean = build.convert(fold.mean, compute)?;
    build.name = named("bias");
    let bias = match fold.bias {
        Some(bias) => {
            let bias = build.convert(bias, compute)?;
            build.sub(bias, mean)?
        }
        None => build.neg(mean)?,
    };
    let mut bias = build.mul(bias, scale)?;
    if let Some(beta) = fold.beta {
        build.name = named("beta");
        let beta = build.convert(beta, compute)?;
        build.name = named("bias");
        bias = build.add(bias, beta)?;
    }
    Ok((weight, build.convert(bias, fold.dtype)?))
}
