//! Turns writes into values: in-place operators become their functional twins, writes through views become scatters
//! into what is viewed, and what remains of them is one `update` for each input or constant written to.
//!
//! Each value is a chain of views of a root (an input, a constant, or a computed value). A write to any view of a root
//! makes a new version of the root; a view that is used afterwards is taken again, of that version.

use litz_ir::Diags;
use litz_ir::graph::{Arg, Constraint, Form, Graph, MemoryFormat, Node, OpName, Part, Type, Value};
use litz_ops::build::SliceRange;
use litz_ops::layout::is_distinct;
use litz_ops::traits::Updates;
use litz_ops::view::{Along, View};
use litz_ops::{Builder, Layout, Op, OpError, ResultRule, Rule, Table};
use litz_sym::Expr;
use std::collections::{HashMap, HashSet};

const UNSUPPORTED: &str = "unsupported-operator";
const HELP: &str = "export with run_decompositions(), which removes in-place operators";

/// Functionalises the graph; returns how many in-place operators it had.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::of(graph);
    let mut build = Builder::new(&table, graph);
    let nodes = std::mem::take(&mut build.graph.nodes);
    let writes: Vec<bool> = nodes.iter().map(|node| build.infer_cx().writes(node)).collect();
    let count = writes.iter().filter(|&&writes| writes).count();
    if count == 0 {
        graph.nodes = nodes;
        return Ok(0);
    }
    let mut cx = Cx { build, views: HashMap::new(), roots: HashMap::new(), replaced: HashMap::new() };
    cx.build.name = "fn".to_owned();
    let mut diags = Diags::new();
    for node in nodes {
        cx.build.origin = node.origin.clone();
        if let Err(error) = cx.node(node.clone()) {
            let is_unsupported = error.slug == UNSUPPORTED;
            let diag = error.at(&node, &cx.build.graph.values);
            diags.push(if is_unsupported { diag.help(HELP) } else { diag });
        }
    }
    if !diags.is_empty() {
        return Err(diags);
    }
    cx.finish();
    Ok(count)
}

struct Cx<'a> {
    build: Builder<'a>,
    views: HashMap<Value, ViewOf>,
    roots: HashMap<Value, Root>,
    /// Values whose sizes and strides an operator changed, which its result has from then on, and the operator's name.
    replaced: HashMap<Value, OpName>,
}

/// How a value views its root.
#[derive(Clone)]
struct ViewOf {
    root: Value,
    /// View operators, innermost first; the first argument of each is what came before.
    chain: Vec<ViewOp>,
    /// The value that holds this view of the root's version.
    at: (usize, Value),
}

/// A view operator on the way from a root to one of its views.
#[derive(Clone)]
struct ViewOp {
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

impl<'a> Cx<'a> {
    fn node(&mut self, mut node: Node) -> Result<(), OpError> {
        if self.build.table.hosted(&node).is_some_and(|hosted| hosted.writes()) {
            return self.host_writes(node);
        }
        let original: Option<Value> = node.args.first().and_then(Arg::as_value);
        let originals = self.written(&node);
        let mut args = std::mem::take(&mut node.args);
        let mut failed = None;
        for arg in &mut args {
            arg.map_values(&mut |v| match self.current(v) {
                Ok(v) => v,
                Err(error) => {
                    failed.get_or_insert(error);
                    v
                }
            });
        }
        if let Some(error) = failed {
            return Err(error);
        }
        node.args = args;
        if let Some(view) = self.viewed_in_place(&node) {
            if let Some(base) = original {
                self.replaced.insert(base, node.op.clone());
            }
            node.op = OpName::new(view);
        } else if self.build.infer_cx().writes(&node) {
            return self.write(&node, &originals);
        }
        // What has no entry cannot be lowered either.
        if let Some(base) = original
            && self.build.infer_cx().aliases(&node).unwrap_or(false)
        {
            self.view(&node, base);
        }
        self.build.graph.nodes.push(node);
        Ok(())
    }

    /// The view that a node takes in place of its first argument.
    fn viewed_in_place(&self, node: &Node) -> Option<&'static str> {
        let table = self.build.table;
        let Rule::Inplace(twin) = table.op_of(node)?.def.rule else { return None };
        table.def(twin).filter(|twin| matches!(twin.rule, Rule::View)).map(|_| twin)
    }

    /// The tensors that a node may write to: those of its first argument, or those that its entry or its declaration names.
    fn written(&mut self, node: &Node) -> Vec<Value> {
        let mut values = Vec::new();
        let add = |arg: &Arg| arg.each_value(&mut |value| values.push(value));
        if let Some(hosted) = self.build.table.hosted(node) {
            hosted.written(node).for_each(add);
        } else if let Some(updates) = self.build.infer_cx().updates(node) {
            let schema = self.build.table.op_of(node).map(|op| op.schema);
            let positions = updates.args.iter().filter_map(|name| schema?.position(name));
            positions.filter_map(|at| node.args.get(at)).for_each(add);
        } else {
            node.args.first().into_iter().for_each(add);
        }
        values
    }

    /// Gives the host copies of what it writes to, and makes what it leaves in these the new contents. A tensor that shares memory with one that
    /// is written is a part of the same copy, as the host sees in each what it writes to the other.
    fn host_writes(&mut self, mut node: Node) -> Result<(), OpError> {
        let targets = self.written(&node);
        let memory = self.shared(&node, &targets)?;
        let returned = self.returned(&mut node, &targets)?;
        let args = node.args.iter().map(|arg| self.given(arg, &memory)).collect::<Result<_, _>>()?;
        node.args = args;
        node.form = Form::Functional;
        if !memory.is_empty() {
            let values = memory.iter().map(|&root| self.current(root).map(Arg::Value));
            node.args.push(Arg::List(values.collect::<Result<_, _>>()?));
        }
        let whole = targets.iter().copied().filter(|&target| !memory.contains(&self.root(target)));
        let changed: Vec<Value> = whole.chain(memory.iter().copied()).collect();
        let contents: Vec<Value> = changed
            .iter()
            .map(|&target| self.build.value(self.build.graph.values[target].ty.clone()))
            .collect();
        node.outputs.extend(contents.iter().copied().map(Some));
        self.build.graph.nodes.push(node);
        changed.iter().zip(contents).try_for_each(|(&target, new)| self.replace(target, new))?;
        returned.into_iter().for_each(|(result, target)| self.stands_for(result, target));
        Ok(())
    }

    /// Roots of which the host gets parts: of those that it writes to those of which it gets several tensors, or a view.
    fn shared(&mut self, node: &Node, targets: &[Value]) -> Result<Vec<Value>, OpError> {
        let mut given = Vec::new();
        node.args.iter().for_each(|arg| arg.each_value(&mut |value| given.push(value)));
        let mut roots = Vec::new();
        for &target in targets {
            let root = self.root(target);
            let views: Vec<Value> = given.iter().copied().filter(|&value| self.root(value) == root).collect();
            if roots.contains(&root) || views == [root] {
                continue;
            }
            let layout = self.build.table.hosted(node).map(|hosted| hosted.constraint);
            let facts = &self.build.graph.facts;
            let has_places = self.build.graph.tensor(root).is_some_and(|ty| is_distinct(facts, ty));
            match has_places && views.iter().all(|&view| self.place(view).is_some()) {
                // What it wants to lie row by row is a copy, which is put where it came from.
                true if views.len() > 1 || layout != Some(Constraint::Contiguous) => roots.push(root),
                _ if views.len() == 1 => {}
                _ => return Err(unsupported(node, "tensors that share memory, of which it writes one")),
            }
        }
        Ok(roots)
    }

    /// An argument as the host gets it: parts of these roots, and what others hold by now.
    fn given(&mut self, arg: &Arg, memory: &[Value]) -> Result<Arg, OpError> {
        if let Arg::List(items) = arg {
            let items = items.iter().map(|item| self.given(item, memory));
            return Ok(Arg::List(items.collect::<Result<_, _>>()?));
        }
        let Some(value) = arg.as_value() else { return Ok(arg.clone()) };
        let root = self.root(value);
        let Some(of) = memory.iter().position(|&other| other == root) else {
            return Ok(Arg::Value(self.current(value)?));
        };
        let (sizes, strides, offset) =
            self.place(value).expect("invariant: parts have places in their roots");
        Ok(Arg::Part(Part { of, sizes, strides, offset }))
    }

    /// Sizes and strides of a value, and where in the memory of its root it begins.
    fn place(&mut self, value: Value) -> Option<(Vec<Expr>, Vec<Expr>, Expr)> {
        let (root, chain) = match self.views.get(&value) {
            Some(view) => (view.root, view.chain.clone()),
            None => (value, Vec::new()),
        };
        let (mut ty, mut offset) = (self.build.graph.tensor(root)?.clone(), Expr::zero());
        for ViewOp { node, output, ty: own } in &chain {
            let Type::Tensor(own) = own else { return None };
            let op = self.build.table.op_of(node).filter(|_| own.dtype == ty.dtype)?;
            let mut cx = self.build.infer_cx();
            let args = op.args(node, cx.values);
            if op.def.traits.layout == Layout::Reads {
                // It counts from where the root begins.
                offset = args.int("storage_offset").unwrap_or(offset);
            } else if let ResultRule::View(views) = op.def.result {
                let view = views(&mut cx, &args).ok()?.into_iter().nth(*output)?;
                let along: Expr =
                    view.first().iter().zip(&ty.strides).map(|(&at, &stride)| at * stride).sum();
                offset = offset + along;
            } else if !matches!(op.def.rule, Rule::Drop) {
                return None;
            }
            ty = own.clone();
        }
        Some((ty.sizes, ty.strides, self.build.graph.facts.simplify(offset)))
    }

    /// Takes from a node of the host the results that are memory which it writes to: each with the one of `targets` that it is.
    fn returned(&self, node: &mut Node, targets: &[Value]) -> Result<Vec<(Value, Value)>, OpError> {
        let Some(hosted) = self.build.table.hosted(node).filter(|hosted| hosted.schema.is_aliasing()) else {
            return Ok(Vec::new());
        };
        let refused = unsupported(node, "its results are memory of its arguments");
        let (mut left, mut by_arg) = (targets.iter().copied(), HashMap::new());
        for at in hosted.schema.written() {
            let mut count = 0;
            node.args.get(at).into_iter().for_each(|arg| arg.each_value(&mut |_| count += 1));
            by_arg.insert(at, left.by_ref().take(count).collect::<Vec<_>>());
        }
        let (mut returned, mut results) = (Vec::new(), node.outputs.iter_mut());
        for (at, result) in hosted.schema.returns.iter().enumerate() {
            match hosted.schema.returned(at).and_then(|arg| by_arg.get(&arg)) {
                Some(targets) => returned
                    .extend(targets.iter().filter_map(|&target| Some((results.next()?.take()?, target)))),
                None if result.alias.is_none() && !result.ty.list => drop(results.next()),
                None => return Err(refused),
            }
        }
        Ok(returned)
    }

    /// Lets a result stand for a value that was written to.
    fn stands_for(&mut self, result: Value, target: Value) {
        let view = match self.views.get(&target).cloned() {
            Some(view) => view,
            None => {
                let root = self.roots.get(&target).copied();
                let root = root.unwrap_or(Root { version: 0, value: target });
                ViewOf { root: target, chain: Vec::new(), at: (root.version, root.value) }
            }
        };
        self.views.insert(result, view);
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
            let ty = self.build.graph.values[value].ty.clone();
            chain.push(ViewOp { node: node.clone(), output, ty });
            self.views.insert(value, ViewOf { root, chain, at: (version, value) });
        }
    }

    /// The value that holds what `value` stands for by now.
    fn current(&mut self, value: Value) -> Result<Value, OpError> {
        if let Some(op) = self.replaced.get(&value) {
            return Err(OpError::new(
                UNSUPPORTED,
                format!("%{} is used after {op} changed its sizes", self.build.graph.values[value].name),
            ));
        }
        let Some(view) = self.views.get(&value) else {
            return Ok(self.roots.get(&value).map_or(value, |r| r.value));
        };
        let root = self.roots.get(&view.root).copied().unwrap_or(Root { version: 0, value: view.root });
        if view.at.0 == root.version {
            return Ok(view.at.1);
        }
        let chain = view.chain.clone();
        let mut now = root.value;
        for view_op in &chain {
            now = self.again(view_op, now);
        }
        if let Some(view) = self.views.get_mut(&value) {
            view.at = (root.version, now);
        }
        Ok(now)
    }

    /// The view `view_op` of `base`.
    fn again(&mut self, view_op: &ViewOp, base: Value) -> Value {
        let mut node = view_op.node.clone();
        node.args[0] = Arg::Value(base);
        let result = self.build.value(view_op.ty.clone());
        node.outputs.iter_mut().for_each(|o| *o = None);
        node.outputs[view_op.output] = Some(result);
        self.build.graph.nodes.push(node);
        result
    }

    /// Replaces a node that writes besides giving results by its twin, whose last results are the new contents of `targets`.
    fn update(&mut self, node: &Node, updates: Updates, targets: &[Value]) -> Result<(), OpError> {
        let results = self.build.call_all(updates.twin, node.args.clone())?;
        let contents = results.len().checked_sub(targets.len()).map(|at| results[at..].to_vec());
        let contents = contents.filter(|_| targets.len() == updates.args.len());
        let contents =
            contents.ok_or_else(|| unsupported(node, "one of the arguments that it writes to is none"))?;
        self.have_own_memory(node, targets)?;
        if let Some(twin) = self.build.graph.nodes.last_mut() {
            let own = node.outputs.iter().zip(&mut twin.outputs).filter(|(own, _)| own.is_some());
            own.for_each(|(own, result)| *result = *own);
        }
        targets.iter().zip(contents).try_for_each(|(&target, new)| match new {
            Some(new) => self.replace(target, new),
            None => Err(unsupported(node, "its twin gives no new contents")),
        })
    }

    /// What a node writes to must not share memory.
    fn have_own_memory(&self, node: &Node, targets: &[Value]) -> Result<(), OpError> {
        let roots: HashSet<Value> = targets.iter().map(|&target| self.root(target)).collect();
        match roots.len() == targets.len() {
            true => Ok(()),
            false => Err(unsupported(node, "tensors that it writes to share memory")),
        }
    }

    /// Replaces the in-place `node` by its twin and makes its results the new contents of `targets`: the first argument, or the
    /// tensors of the list that it is.
    fn write(&mut self, node: &Node, targets: &[Value]) -> Result<(), OpError> {
        if let Some(updates) = self.build.infer_cx().updates(node) {
            return self.update(node, updates, targets);
        }
        match self.op(node)?.def.rule {
            Rule::Inplace(twin) => {
                let new: Vec<Value> =
                    self.build.call_all(twin, node.args.clone())?.into_iter().flatten().collect();
                if new.len() != targets.len() || new.is_empty() {
                    return Err(unsupported(node, "its first argument is no tensor"));
                }
                self.have_own_memory(node, targets)?;
                for (&target, new) in targets.iter().zip(new) {
                    self.replace(target, new)?;
                }
            }
            // It changes what autograd knows of its argument, not its elements.
            Rule::Drop => {}
            Rule::Op(_) | Rule::Pointwise(_) | Rule::Lower(_) | Rule::Decompose(_) | Rule::View => {
                return Err(unsupported(node, "it writes to its arguments"));
            }
        }
        // The operator's result is its target.
        if let (Some(result), &[target]) = (node.outputs.first().copied().flatten(), targets) {
            self.stands_for(result, target);
        }
        Ok(())
    }

    /// What a value is a view of, in the end.
    fn root(&self, value: Value) -> Value {
        self.views.get(&value).map_or(value, |view| view.root)
    }

    /// Makes `new` the contents of `target`, in the element type and layout of its memory.
    fn replace(&mut self, target: Value, new: Value) -> Result<(), OpError> {
        let ty = self.build.graph.values[target].ty.clone();
        let new = match &ty {
            Type::Tensor(ty) => self.build.convert(new, ty.dtype)?,
            Type::Int(_) | Type::Float | Type::Bool => new,
        };
        let new = self.laid_out(new, ty)?;
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
        Ok(())
    }

    /// The value in the layout of `ty`: an operator that computes elements puts them where the type of its result
    /// says, and what a view gives is copied.
    fn laid_out(&mut self, value: Value, ty: Type) -> Result<Value, OpError> {
        if self.build.graph.values[value].ty == ty {
            return Ok(value);
        }
        let defines = |node: &&Node| node.outputs.contains(&Some(value));
        let by = self.build.graph.nodes.last().filter(defines).and_then(|n| self.build.table.op_of(n));
        let computes = by.is_some_and(|op| !matches!(op.def.rule, Rule::View | Rule::Drop));
        let own = if computes { value } else { self.build.copy(value, MemoryFormat::Preserve)? };
        self.build.graph.values[own].ty = ty;
        Ok(own)
    }

    fn set_root(&mut self, root: Value, value: Value) {
        let version = self.roots.get(&root).map_or(0, |r| r.version) + 1;
        self.roots.insert(root, Root { version, value });
    }

    /// `base` with what `chain` views of it replaced by `new`.
    fn scatter(&mut self, base: Value, chain: &[ViewOp], new: Value) -> Result<Value, OpError> {
        let Some((last, before)) = chain.split_last() else { return Ok(new) };
        let inner = before.iter().fold(base, |inner, view_op| self.again(view_op, inner));
        let whole = self.written_through(last, inner, new)?;
        let whole = self.laid_out(whole, self.build.graph.values[inner].ty.clone())?;
        self.scatter(base, before, whole)
    }

    /// `inner` with its view `view_op` replaced by `new`.
    fn written_through(&mut self, view_op: &ViewOp, inner: Value, new: Value) -> Result<Value, OpError> {
        let def = self.op(&view_op.node)?.def;
        if let Some(twin) = def.traits.scatter {
            let operands = [Arg::Value(inner), Arg::Value(new)];
            return self
                .build
                .call(twin, operands.into_iter().chain(view_op.node.args[1..].to_vec()).collect());
        }
        if let ResultRule::View(views) = def.result {
            let mut node = view_op.node.clone();
            node.args[0] = Arg::Value(inner);
            let op = self.op(&node)?;
            let mut cx = self.build.infer_cx();
            let args = op.args(&node, cx.values);
            let mut views = views(&mut cx, &args)?;
            if view_op.output < views.len() {
                return self.written_along(&node, &views.swap_remove(view_op.output), inner, new);
            }
        }
        // What returns its operand and is no view returns it whole.
        if self.build.graph.values[inner].ty == view_op.ty {
            return Ok(new);
        }
        Err(unsupported(&view_op.node, "a write through this view has no functional form"))
    }

    /// `inner` with what `view` sees of it replaced by `new`. The view's index function says which elements these are.
    fn written_along(
        &mut self,
        node: &Node,
        view: &View,
        inner: Value,
        new: Value,
    ) -> Result<Value, OpError> {
        let no_form = || unsupported(node, "a write through this view has no functional form");
        let sizes = self.build.graph.tensor(inner).ok_or_else(no_form)?.sizes.clone();
        if view.is_reshape {
            return self.build.reshape(new, sizes);
        }
        let along = view.along(&self.build.graph.facts, &sizes).ok_or_else(no_form)?;
        let own = |a: &Along| match *a {
            Along::Whole(dim) => dim,
            Along::Range { dim, .. } => Some(dim),
            Along::At(_) => None,
        };
        // The view's dimensions in the order of the operand's, those of size 1 that it adds in front.
        let kept: Vec<usize> = along.iter().filter_map(own).collect();
        let added: Vec<usize> = (0..view.sizes.len()).filter(|d| !kept.contains(d)).collect();
        if added.iter().any(|&d| !view.sizes[d].is_one()) {
            return Err(no_form());
        }
        let order = [&added[..], &kept].concat();
        let mut part = new;
        if !order.iter().copied().eq(0..order.len()) {
            part = self.build.permute(part, &order)?;
        }
        if kept.len() != sizes.len() || !added.is_empty() {
            let size = |a: &Along| own(a).map_or(Expr::one(), |d| view.sizes[d]);
            part = self.build.reshape(part, along.iter().map(size).collect())?;
        }
        let range = |(dim, a): (usize, &Along)| match *a {
            Along::Whole(_) => None,
            Along::Range { dim: own, start, step } => {
                Some(SliceRange { dim, start, end: start + step * view.sizes[own], step })
            }
            Along::At(at) => Some(SliceRange { dim, start: at, end: at + 1, step: Expr::one() }),
        };
        let ranges: Vec<SliceRange> = along.iter().enumerate().filter_map(range).collect();
        self.written_at(inner, part, &ranges)
    }

    /// `inner` with the part that ranges of some of its dimensions select replaced by `part`.
    fn written_at(&mut self, inner: Value, part: Value, ranges: &[SliceRange]) -> Result<Value, OpError> {
        let Some((range, rest)) = ranges.split_first() else { return Ok(part) };
        let part = match rest {
            [] => part,
            _ => {
                let slice = self.build.slice(inner, range)?;
                self.written_at(slice, part, rest)?
            }
        };
        self.build.slice_scatter(inner, part, range)
    }

    fn op(&self, node: &Node) -> Result<Op<'a>, OpError> {
        self.build.table.op_of(node).ok_or_else(|| OpError::missing(node.op.as_str()))
    }

    /// Outputs as they are by now, and an update for each input and constant that was written to.
    fn finish(&mut self) {
        let mut outputs = std::mem::take(&mut self.build.graph.outputs);
        for output in &mut outputs {
            output.map_values(&mut |v| self.current(v).unwrap_or(v));
        }
        self.build.graph.outputs = outputs;
        let mut updates = std::mem::take(&mut self.build.graph.updates);
        for (_, contents) in &mut updates {
            *contents = self.current(*contents).unwrap_or(*contents);
        }
        self.build.graph.updates = updates;
        let given: Vec<Value> = self
            .build
            .graph
            .inputs
            .iter()
            .copied()
            .chain(self.build.graph.consts.iter().map(|c| c.0))
            .collect();
        for value in given {
            if let Some(root) = self.roots.get(&value) {
                self.build.graph.updates.push((value, root.value));
                // Who has it written sees what becomes of it.
                self.build.graph.donated.retain(|&donated| donated != value);
            }
        }
    }
}

fn unsupported(node: &Node, why: &str) -> OpError {
    OpError::new(UNSUPPORTED, format!("{}: {why}", node.op))
}
