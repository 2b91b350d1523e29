//! Stores images as rows of pixels with all their channels: the layout in which convolutions read and write
//! neighbouring elements.
//!
//! Loops go by the strides of values, so the pass changes types and little else. It makes the results of convolutions,
//! and the elementwise values that they read, channels last; types downstream follow by inference. Convolutions read
//! copies of images that come in another layout. What the caller sees keeps its layout.

use super::build::Builder;
use litz_ir::graph::{Arg, Graph, MemoryFormat, Node, TensorType, Type, Value};
use litz_ir::schema::Schemas;
use litz_ir::{Diag, Diags};
use litz_ops::layout::{format_strides, is_channels_last};
use litz_ops::{Rule, Table};
use std::collections::{HashMap, HashSet};

/// Convolutions of images `op(input, ..)`.
const CONVOLUTIONS: &[&str] = &[
    "aten.conv2d.default",
    "aten.conv2d.padding",
    "aten.convolution.default",
    "aten.conv_transpose2d.input",
];
/// Operators, by the start of their names, whose results depend on how their operands lie in memory.
const SEES_MEMORY: &[&str] = &[
    "aten.as_strided",
    "aten._reshape_alias",
    "aten.view.dtype",
    "aten.stride",
    "aten.sym_stride",
    "aten.storage_offset",
    "aten.sym_storage_offset",
    "aten.is_contiguous",
    "aten.sym_is_contiguous",
];

/// Changes layouts; returns how many values changed.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    if !graph.nodes.iter().any(|n| image_of(graph, n).is_some()) {
        return Ok(0);
    }
    let table = Table::new();
    let mut returned = HashSet::new();
    graph.outputs.iter().for_each(|a| {
        a.each_value(&mut |v| {
            returned.insert(v);
        })
    });
    let preferred = preferred(graph, &table, &returned);
    let builder = Builder::new(&table, graph);
    let mut cx = Cx {
        graph,
        builder,
        returned,
        preferred,
        original: HashMap::new(),
        moved: HashSet::new(),
        copies: HashMap::new(),
        nodes: Vec::new(),
    };
    for node in std::mem::take(&mut cx.graph.nodes) {
        cx.node(node).map_err(|d| vec![d])?;
    }
    cx.finish().map_err(|d| vec![d])
}

/// The image that a convolution reads: 4 dimensions.
fn image_of(graph: &Graph, node: &Node) -> Option<Value> {
    let image = node.args.first()?.as_value()?;
    let is_image = graph.tensor(image).is_some_and(|t| t.rank() == 4);
    (CONVOLUTIONS.contains(&node.op.as_str()) && is_image).then_some(image)
}

/// Elementwise results that convolutions read.
fn preferred(graph: &Graph, table: &Table, returned: &HashSet<Value>) -> HashSet<Value> {
    let images: HashSet<Value> = graph.nodes.iter().filter_map(|n| image_of(graph, n)).collect();
    let elementwise = |n: &&Node| {
        matches!(table.def(n.op.as_str()).map(|d| d.rule), Some(Rule::Op(_) | Rule::Pointwise(_)))
    };
    let results = graph.nodes.iter().filter(elementwise).flat_map(|n| n.outputs.iter().flatten().copied());
    results.filter(|v| images.contains(v) && !returned.contains(v)).collect()
}

struct Cx<'a> {
    graph: &'a mut Graph,
    builder: Builder<'a>,
    returned: HashSet<Value>,
    preferred: HashSet<Value>,
    /// Types before they changed.
    original: HashMap<Value, Type>,
    /// Values whose elements lie elsewhere than before: those with new types, and views of them.
    moved: HashSet<Value>,
    /// Copies of values in a given layout.
    copies: HashMap<(Value, TensorType), Value>,
    nodes: Vec<Node>,
}

impl Cx<'_> {
    fn node(&mut self, mut node: Node) -> Result<(), Diag> {
        let image = image_of(self.graph, &node);
        if let Some(image) = image {
            node.args[0] = Arg::Value(self.channels_last(image)?);
        } else if self.sees_memory(&node) {
            self.restore(&mut node)?;
        }
        let (mut affected, mut reads_moved) = (image.is_some(), false);
        node.args.iter().for_each(|a| {
            a.each_value(&mut |v| {
                affected |= self.original.contains_key(&v);
                reads_moved |= self.moved.contains(&v);
            })
        });
        affected |= node.outputs.iter().flatten().any(|v| self.preferred.contains(v));
        if affected {
            match self.builder.types(self.graph, &node) {
                Ok(types) => {
                    let aliases = self.aliases(&node);
                    for (value, ty) in node.outputs.iter().zip(types) {
                        if let (Some(value), Some(ty)) = (*value, ty) {
                            self.retype(value, ty, image.is_some(), aliases);
                        }
                    }
                }
                // What is not known to work with other layouts gets those it was traced with.
                Err(_) => {
                    self.restore(&mut node)?;
                    reads_moved = false;
                }
            }
        }
        if reads_moved && self.aliases(&node) {
            self.moved.extend(node.outputs.iter().flatten());
        }
        self.nodes.push(node);
        Ok(())
    }

    /// Gives a result the type that inference says, or the layout it should have.
    fn retype(&mut self, value: Value, ty: Type, convolved: bool, aliases: bool) {
        // What is returned would have to be copied back, which is worth it for what convolutions write.
        if self.returned.contains(&value) && !aliases && !convolved {
            return;
        }
        let ty = match ty {
            Type::Tensor(t) if t.rank() == 4 && (convolved || self.preferred.contains(&value)) => {
                Type::Tensor(image_type(&t))
            }
            Type::Tensor(_) | Type::Int(_) | Type::Float | Type::Bool => ty,
        };
        let old = std::mem::replace(&mut self.graph.values[value].ty, ty);
        if old != self.graph.values[value].ty {
            self.original.insert(value, old);
            self.moved.insert(value);
        }
    }

    /// Whether a node's results are views of its operand.
    fn aliases(&self, node: &Node) -> bool {
        let name = node.op.as_str();
        let table = self.builder.table;
        let returns_alias = table.lookup(name).is_some_and(|s| s.returns.iter().any(|r| r.alias.is_some()));
        let rule = table.def(name).map(|d| d.rule);
        matches!(rule, Some(Rule::View | Rule::Drop)) || returns_alias || name.contains("dropout")
    }

    fn sees_memory(&self, node: &Node) -> bool {
        let is_graph = |a: &Arg| matches!(a, Arg::Graph(_));
        SEES_MEMORY.iter().any(|s| node.op.as_str().starts_with(s)) || node.args.iter().any(is_graph)
    }

    /// Makes the node read values as they lay before.
    fn restore(&mut self, node: &mut Node) -> Result<(), Diag> {
        let mut values = Vec::new();
        node.args.iter().for_each(|a| a.each_value(&mut |v| values.push(v)));
        for value in values {
            if self.moved.contains(&value) {
                let copy = self.original_layout(value)?;
                node.args.iter_mut().for_each(|a| a.map_values(&mut |v| if v == value { copy } else { v }));
            }
        }
        Ok(())
    }

    fn original_layout(&mut self, value: Value) -> Result<Value, Diag> {
        let ty = self.original.get(&value).unwrap_or(&self.graph.values[value].ty).clone();
        match ty {
            Type::Tensor(ty) => self.copy(value, ty, MemoryFormat::Preserve),
            Type::Int(_) | Type::Float | Type::Bool => Ok(value),
        }
    }

    fn channels_last(&mut self, image: Value) -> Result<Value, Diag> {
        match self.graph.tensor(image).cloned() {
            Some(ty) if !is_channels_last(&ty) => {
                self.copy(image, image_type(&ty), MemoryFormat::ChannelsLast)
            }
            _ => Ok(image),
        }
    }

    /// A copy of a value in the layout of `ty`.
    fn copy(&mut self, value: Value, ty: TensorType, format: MemoryFormat) -> Result<Value, Diag> {
        if let Some(&copy) = self.copies.get(&(value, ty.clone())) {
            return Ok(copy);
        }
        let name = format!("{}_copy", self.graph.values[value].name);
        let args = vec![Arg::Value(value), Arg::MemoryFormat(format)];
        let (node, copy) = self.builder.node(self.graph, "aten.clone.default", args, &name, None)?;
        self.graph.values[copy].ty = Type::Tensor(ty.clone());
        self.nodes.push(node);
        self.copies.insert((value, ty), copy);
        Ok(copy)
    }

    /// Returns copies of views whose memory moved; says how many values changed.
    fn finish(mut self) -> Result<usize, Diag> {
        let mut outputs = std::mem::take(&mut self.graph.outputs);
        for output in &mut outputs {
            if let Arg::Value(value) = output
                && self.moved.contains(value)
            {
                *value = self.original_layout(*value)?;
            }
        }
        self.graph.outputs = outputs;
        self.graph.nodes = self.nodes;
        Ok(self.original.len() + self.copies.len())
    }
}

/// The type with its channels together.
fn image_type(ty: &TensorType) -> TensorType {
    let strides = format_strides(MemoryFormat::ChannelsLast, &ty.sizes);
    TensorType { strides, ..ty.clone() }
}
