//! Turns writes into values: in-place operators become their functional twins, writes through views become scatters
//! into what is viewed, and what remains of them is one `update` for each input or constant written to.
//!
//! Each value is a chain of views of a root (an input, a constant, or a computed value). A write to any view of a root
//! makes a new version of the root; a view that is used afterwards is taken again, of that version.

use super::build::Builder;
use litz_ir::graph::{Arg, Graph, Node, Type, Value};
use litz_ir::schema::Schemas;
use litz_ir::{Diag, Diags};
use litz_ops::{Rule, Table};
use litz_sym::Expr;
use std::collections::HashMap;
use std::sync::Arc;

/// Functionalises the graph; returns how many in-place operators it had.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::new();
    if !graph.nodes.iter().any(|n| writes(&table, n)) {
        return Ok(0);
    }
    let builder = Builder::new(&table, graph);
    let mut cx =
        Cx { graph, table: &table, builder, views: HashMap::new(), roots: HashMap::new(), source: None };
    let mut diags = Diags::new();
    let mut count = 0;
    for node in std::mem::take(&mut cx.graph.nodes) {
        cx.source = node.source.clone();
        count += usize::from(writes(&table, &node));
        if let Err(diag) = cx.node(node) {
            diags.push(match &cx.source {
                Some(s) => diag.source(s.to_string()),
                None => diag,
            });
        }
    }
    if !diags.is_empty() {
        return Err(diags);
    }
    cx.finish();
    Ok(count)
}

fn writes(table: &Table, node: &Node) -> bool {
    matches!(table.def(node.op.as_str()).map(|d| d.rule), Some(Rule::Inplace(_)))
        || table.lookup(node.op.as_str()).is_some_and(|s| s.is_mutating())
}

struct Cx<'a> {
    graph: &'a mut Graph,
    table: &'a Table,
    builder: Builder<'a>,
    views: HashMap<Value, ViewOf>,
    roots: HashMap<Value, Root>,
    source: Option<Arc<str>>,
}

/// How a value views its root.
#[derive(Clone)]
struct ViewOf {
    root: Value,
    /// View operators, innermost first; the first argument of each is what came before.
    chain: Vec<Step>,
    /// The value that holds this view of the root's version.
    at: (usize, Value),
}

#[derive(Clone)]
struct Step {
    node: Node,
    /// Which of the operator's results.
    output: usize,
    /// Type of the result.
    ty: Type,
}

/// A root's latest version.
#[derive(Clone, Copy)]
struct Root {
    version: usize,
    value: Value,
}

impl Cx<'_> {
    fn node(&mut self, mut node: Node) -> Result<(), Diag> {
        let original: Option<Value> = node.args.first().and_then(Arg::as_value);
        let mut args = std::mem::take(&mut node.args);
        let mut failed = None;
        for arg in &mut args {
            arg.map_values(&mut |v| match self.current(v) {
                Ok(v) => v,
                Err(diag) => {
                    failed.get_or_insert(diag);
                    v
                }
            });
        }
        if let Some(diag) = failed {
            return Err(diag);
        }
        node.args = args;
        let rule = self.table.def(node.op.as_str()).map(|d| d.rule);
        match rule {
            Some(Rule::Inplace(twin)) => {
                let target = original.ok_or_else(|| unsupported(&node, "its first argument is no tensor"))?;
                self.write(&node, twin, target)
            }
            // `detach_` changes its argument's gradient, not its contents.
            Some(Rule::View | Rule::Drop) => {
                if let Some(base) = original
                    && self.aliases(&node, base)
                {
                    self.view(&node, base);
                }
                self.graph.nodes.push(node);
                Ok(())
            }
            _ if writes(self.table, &node) => Err(unsupported(&node, "it writes to its arguments")),
            Some(Rule::Op(_) | Rule::Pointwise(_) | Rule::Lower(_) | Rule::Decompose(_)) | None => {
                // Decomposed views, such as those that split, are views all the same.
                let schema = self.table.lookup(node.op.as_str());
                let is_view = schema.is_some_and(|s| s.returns.iter().any(|r| r.alias.is_some()));
                if let Some(base) = original
                    && is_view
                    && self.aliases(&node, base)
                {
                    self.view(&node, base);
                }
                self.graph.nodes.push(node);
                Ok(())
            }
        }
    }

    /// Whether a view operator's results share memory with its operand: a reshape of scattered elements copies.
    fn aliases(&self, node: &Node, base: Value) -> bool {
        let copies_if_scattered = matches!(
            node.op.as_str(),
            "aten.reshape.default" | "aten.flatten.using_ints" | "aten.contiguous.default"
        );
        let converts =
            node.op.as_str().starts_with("aten.to.") || node.op.as_str().starts_with("aten._to_copy");
        let ty = &self.graph.values[base].ty;
        let same = node.outputs.first().copied().flatten().is_some_and(|o| self.graph.values[o].ty == *ty);
        if converts {
            return same;
        }
        !copies_if_scattered || matches!(ty, Type::Tensor(t) if t.is_contiguous())
    }

    fn view(&mut self, node: &Node, base: Value) {
        let (root, chain) = match self.views.get(&base) {
            Some(v) => (v.root, v.chain.clone()),
            None => (base, Vec::new()),
        };
        let version = self.roots.get(&root).map_or(0, |r| r.version);
        for (output, value) in node.outputs.iter().enumerate() {
            let Some(value) = *value else { continue };
            let mut chain = chain.clone();
            chain.push(Step { node: node.clone(), output, ty: self.graph.values[value].ty.clone() });
            self.views.insert(value, ViewOf { root, chain, at: (version, value) });
        }
    }

    /// The value that holds what `value` stands for by now.
    fn current(&mut self, value: Value) -> Result<Value, Diag> {
        let Some(view) = self.views.get(&value) else {
            return Ok(self.roots.get(&value).map_or(value, |r| r.value));
        };
        let root = self.roots.get(&view.root).copied().unwrap_or(Root { version: 0, value: view.root });
        if view.at.0 == root.version {
            return Ok(view.at.1);
        }
        let chain = view.chain.clone();
        let mut now = root.value;
        for step in &chain {
            now = self.again(step, now)?;
        }
        if let Some(view) = self.views.get_mut(&value) {
            view.at = (root.version, now);
        }
        Ok(now)
    }

    /// The view `step` of `base`.
    fn again(&mut self, step: &Step, base: Value) -> Result<Value, Diag> {
        let mut node = step.node.clone();
        node.args[0] = Arg::Value(base);
        let result = self.builder.value(self.graph, "fn", step.ty.clone());
        node.outputs.iter_mut().for_each(|o| *o = None);
        node.outputs[step.output] = Some(result);
        self.graph.nodes.push(node);
        Ok(result)
    }

    /// Replaces the in-place `node` by its twin and makes the result the new contents of `target`.
    fn write(&mut self, node: &Node, twin: &str, target: Value) -> Result<(), Diag> {
        let ty = self.graph.values[target].ty.clone();
        let mut new = self.call(twin, node.args.clone())?;
        let dtype = |ty: &Type| match ty {
            Type::Tensor(t) => Some(t.dtype),
            Type::Int(_) | Type::Float | Type::Bool => None,
        };
        if let (Some(want), found) = (dtype(&ty), dtype(&self.graph.values[new].ty))
            && found != Some(want)
        {
            new = self.call("aten._to_copy.default", vec![Arg::Value(new), Arg::Dtype(want)])?;
        }
        // The memory written to keeps its layout.
        self.graph.values[new].ty = ty;
        match self.views.get(&target).cloned() {
            None => self.set_root(target, new),
            Some(view) => {
                let base = self.roots.get(&view.root).map_or(view.root, |r| r.value);
                let contents = self.scatter(base, &view.chain, new)?;
                self.set_root(view.root, contents);
                let version = self.roots[&view.root].version;
                if let Some(v) = self.views.get_mut(&target) {
                    v.at = (version, new);
                }
            }
        }
        // The operator's result is its target.
        if let Some(result) = node.outputs.first().copied().flatten() {
            let view = match self.views.get(&target).cloned() {
                Some(view) => view,
                None => ViewOf { root: target, chain: Vec::new(), at: (self.roots[&target].version, new) },
            };
            self.views.insert(result, view);
        }
        Ok(())
    }

    fn set_root(&mut self, root: Value, value: Value) {
        let version = self.roots.get(&root).map_or(0, |r| r.version) + 1;
        self.roots.insert(root, Root { version, value });
    }

    /// `base` with what `chain` views of it replaced by `new`.
    fn scatter(&mut self, base: Value, chain: &[Step], new: Value) -> Result<Value, Diag> {
        let Some((last, before)) = chain.split_last() else { return Ok(new) };
        let mut inner = base;
        for step in before {
            inner = self.again(step, inner)?;
        }
        let whole = self.invert(last, inner, new)?;
        self.graph.values[whole].ty = self.graph.values[inner].ty.clone();
        self.scatter(base, before, whole)
    }

    /// `inner` with its view `step` replaced by `new`.
    fn invert(&mut self, step: &Step, inner: Value, new: Value) -> Result<Value, Diag> {
        let node = &step.node;
        let args = node.args[1..].to_vec();
        let with = |first: &[Arg], rest: Vec<Arg>| first.iter().cloned().chain(rest).collect::<Vec<_>>();
        let both = [Arg::Value(inner), Arg::Value(new)];
        let sizes = match &self.graph.values[inner].ty {
            Type::Tensor(t) => t.sizes.clone(),
            Type::Int(_) | Type::Float | Type::Bool => {
                return Err(unsupported(node, "its operand is no tensor"));
            }
        };
        match node.op.as_str() {
            "aten.select.int" => self.call("aten.select_scatter.default", with(&both, args)),
            "aten.slice.Tensor" => self.call("aten.slice_scatter.default", with(&both, args)),
            "aten.diagonal.default" => self.call("aten.diagonal_scatter.default", with(&both, args)),
            "aten.as_strided.default" => self.call("aten.as_strided_scatter.default", with(&both, args)),
            "aten.unbind.int" => {
                let dim = args.first().cloned().unwrap_or(Arg::Int(Expr::zero()));
                let index = Arg::Int(Expr::int(step.output as i64));
                self.call("aten.select_scatter.default", with(&both, vec![dim, index]))
            }
            "aten.split.Tensor"
            | "aten.split_with_sizes.default"
            | "aten.split.sizes"
            | "aten.chunk.default"
            | "aten.narrow.default" => {
                let (dim, start, length) =
                    piece(step, &args, &sizes).ok_or_else(|| unsupported(node, "odd arguments"))?;
                let range = [Expr::int(dim as i64), start, start + length, Expr::one()];
                self.call("aten.slice_scatter.default", with(&both, range.map(Arg::Int).to_vec()))
            }
            "aten.permute.default" => {
                let dims: Vec<i64> = args
                    .first()
                    .and_then(Arg::as_list)
                    .into_iter()
                    .flatten()
                    .filter_map(|d| d.as_int()?.as_int())
                    .collect();
                let rank = dims.len() as i64;
                let mut inverse = vec![Expr::zero(); dims.len()];
                for (to, from) in dims.iter().enumerate() {
                    inverse[from.rem_euclid(rank.max(1)) as usize] = Expr::int(to as i64);
                }
                self.call("aten.permute.default", vec![Arg::Value(new), Arg::ints(inverse)])
            }
            "aten.transpose.int" | "aten.t.default" | "aten.swapaxes.default" => {
                let op = node.op.as_str().to_owned();
                self.call(&op, with(&[Arg::Value(new)], args))
            }
            "aten.view.default"
            | "aten.reshape.default"
            | "aten.flatten.using_ints"
            | "aten.unflatten.int"
            | "aten.unsqueeze.default"
            | "aten.squeeze.default"
            | "aten.squeeze.dim"
            | "aten.squeeze.dims"
            | "aten._unsafe_view.default" => {
                self.call("aten.reshape.default", vec![Arg::Value(new), Arg::ints(sizes)])
            }
            "aten.alias.default"
            | "aten.detach.default"
            | "aten.detach_.default"
            | "aten.contiguous.default"
            | "aten.lift_fresh.default" => Ok(new),
            op if op.starts_with("aten.to.") || op.contains("dropout") => Ok(new),
            _ => Err(unsupported(node, "a write through this view has no functional form")),
        }
    }

    /// Applies an operator with one result; arguments left out have their defaults.
    fn call(&mut self, op: &str, args: Vec<Arg>) -> Result<Value, Diag> {
        let (node, result) = self.builder.node(self.graph, op, args, "fn", self.source.clone())?;
        self.graph.nodes.push(node);
        Ok(result)
    }

    /// Outputs as they are by now, and an update for each input and constant that was written to.
    fn finish(&mut self) {
        let mut outputs = std::mem::take(&mut self.graph.outputs);
        for output in &mut outputs {
            output.map_values(&mut |v| self.current(v).unwrap_or(v));
        }
        self.graph.outputs = outputs;
        let given: Vec<Value> =
            self.graph.inputs.iter().copied().chain(self.graph.consts.iter().map(|c| c.0)).collect();
        for value in given {
            if let Some(root) = self.roots.get(&value) {
                self.graph.updates.push((value, root.value));
            }
        }
    }
}

/// Dimension, first coordinate and length of a piece that a view operator cuts out. `args` are the operator's without
/// the operand, whose sizes are `sizes`.
fn piece(step: &Step, args: &[Arg], sizes: &[Expr]) -> Option<(usize, Expr, Expr)> {
    let narrows = step.node.op.as_str() == "aten.narrow.default";
    let dim = args.get(usize::from(!narrows)).and_then(Arg::as_int).map_or(Some(0), Expr::as_int)?;
    let dim = usize::try_from(if dim < 0 { dim + sizes.len() as i64 } else { dim }).ok()?;
    let size = *sizes.get(dim)?;
    let output = step.output as i64;
    let start = match (step.node.op.as_str(), args.first()?) {
        ("aten.narrow.default", _) => args.get(1)?.as_int()?,
        ("aten.chunk.default", Arg::Int(count)) => size.ceildiv(*count) * output,
        (_, Arg::Int(length)) => *length * output,
        (_, Arg::List(lengths)) => lengths.iter().take(step.output).filter_map(Arg::as_int).sum(),
        _ => return None,
    };
    match &step.ty {
        Type::Tensor(t) => Some((dim, start, *t.sizes.get(dim)?)),
        Type::Int(_) | Type::Float | Type::Bool => None,
    }
}

fn unsupported(node: &Node, why: &str) -> Diag {
    Diag::new("unsupported-operator", format!("{}: {why}", node.op))
        .help("export with run_decompositions(), which removes in-place operators")
}
