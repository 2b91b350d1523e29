//! Stores images as rows of pixels with all their channels: the layout in which convolutions read and write
//! neighbouring elements.
//!
//! Loops go by the strides of values, so the pass changes types and little else. It makes the results of convolutions,
//! and the elementwise values that they read, channels last; types downstream follow by inference. Convolutions read
//! copies of images that come in another layout. What the caller sees keeps its layout: a convolution whose result is returned, as
//! that of each is for a backward graph, stores it twice, and all that is no convolution reads the copy. Statistics of planes would
//! read all images once for each channel.

use litz_ir::Diags;
use litz_ir::graph::{Arg, Graph, MemoryFormat, Node, TensorType, Type, Value};
use litz_ops::layout::{format_strides, is_channels_last, is_distinct};
use litz_ops::{Builder, Layout, OpError, Rule, Table, infer};
use std::collections::{HashMap, HashSet};

/// Changes layouts; returns how many values changed.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::of(graph);
    if !graph.nodes.iter().any(|n| image_of(graph, &table, n).is_some()) {
        return Ok(0);
    }
    let mut returned = HashSet::new();
    graph.outputs.iter().for_each(|a| {
        a.each_value(&mut |v| {
            returned.insert(v);
        })
    });
    let preferred = preferred(graph, &table, &returned);
    let mut cx = Cx {
        build: Builder::new(&table, graph),
        returned,
        preferred,
        original: HashMap::new(),
        moved: HashSet::new(),
        copies: HashMap::new(),
    };
    for node in std::mem::take(&mut cx.build.graph.nodes) {
        let at = node.clone();
        cx.node(node).map_err(|e| vec![e.at(&at, &cx.build.graph.values)])?;
    }
    cx.finish().map_err(|e| vec![e.into()])
}

/// Results of one group of a convolution's channels up to which the layout does not matter enough to change it: they are too
/// few for the vectors of most processors, which run along points of a plane as well. A convolution of 128 planes of 56x56
/// points in 32 groups took 0.48 ms on one thread of an Intel Xeon (AVX-512) as planes, and 2.2 as rows of pixels.
const FEW_CHANNELS: i64 = 8;

/// The image that a convolution reads: 4 dimensions. Convolutions of few channels a group take images as they come.
fn image_of(graph: &Graph, table: &Table, node: &Node) -> Option<Value> {
    let image = node.args.first()?.as_value()?;
    let is_image = graph.tensor(image).is_some_and(|t| t.rank() == 4);
    let is_asked = layout_of(table, node) == Layout::ChannelsLast && is_image;
    (is_asked && !has_few_channels(graph, table, node)).then_some(image)
}

/// Whether each group of the channels of a convolution has a few results. Where it has one, vectors run along the groups.
fn has_few_channels(graph: &Graph, table: &Table, node: &Node) -> bool {
    let Some(op) = table.op_of(node) else { return false };
    let groups = op.args(node, &graph.values).literal("groups").unwrap_or(1);
    let result = node.outputs.first().copied().flatten().and_then(|value| graph.tensor(value));
    let channels = result.and_then(|ty| ty.sizes.get(1)?.as_int());
    groups > 1 && channels.is_some_and(|channels| (2..=FEW_CHANNELS).contains(&(channels / groups)))
}

/// How the node's operator treats layouts. One that is not known may see them, in a subgraph too.
fn layout_of(table: &Table, node: &Node) -> Layout {
    match (table.op_of(node), table.hosted(node)) {
        (Some(op), _) => op.layout(),
        // Parts are of memory as it lies.
        (None, Some(_)) if node.args.iter().any(has_part) => Layout::Reads,
        (None, Some(hosted)) => hosted.layout(),
        (None, None) => Layout::Reads,
    }
}

fn has_part(arg: &Arg) -> bool {
    let mut count = 0;
    arg.each_part(&mut |_| count += 1);
    count > 0
}

/// Elementwise results that convolutions read.
fn preferred(graph: &Graph, table: &Table, returned: &HashSet<Value>) -> HashSet<Value> {
    let images: HashSet<Value> = graph.nodes.iter().filter_map(|n| image_of(graph, table, n)).collect();
    let elementwise =
        |n: &&Node| matches!(table.op_of(n).map(|op| op.def.rule), Some(Rule::Op(_) | Rule::Pointwise(_)));
    let results = graph.nodes.iter().filter(elementwise).flat_map(|n| n.outputs.iter().flatten().copied());
    results.filter(|v| images.contains(v) && !returned.contains(v)).collect()
}

struct Cx<'a> {
    build: Builder<'a>,
    returned: HashSet<Value>,
    preferred: HashSet<Value>,
    /// Types before they changed.
    original: HashMap<Value, Type>,
    /// Values whose elements lie elsewhere than before: those with new types, and views of them.
    moved: HashSet<Value>,
    /// Copies of values in a given layout.
    copies: HashMap<(Value, TensorType), Value>,
}

/// Which of the values that moved a node reads as they lay before.
#[derive(Clone, Copy, PartialEq)]
enum Moved {
    All,
    Returned,
}

impl Cx<'_> {
    fn node(&mut self, mut node: Node) -> Result<(), OpError> {
        let image = image_of(self.build.graph, self.build.table, &node);
        if let Some(image) = image {
            node.args[0] = Arg::Value(self.channels_last(image)?);
        } else if layout_of(self.build.table, &node) == Layout::Reads {
            self.restore(&mut node, Moved::All)?;
        } else {
            // What is returned has a copy.
            self.restore(&mut node, Moved::Returned)?;
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
            match infer(&mut self.build.infer_cx(), &node) {
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
                    self.restore(&mut node, Moved::All)?;
                    reads_moved = false;
                }
            }
        }
        if reads_moved && self.aliases(&node) {
            self.moved.extend(node.outputs.iter().flatten());
        }
        self.build.graph.nodes.push(node);
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
        let old = std::mem::replace(&mut self.build.graph.values[value].ty, ty);
        if old != self.build.graph.values[value].ty {
            self.original.insert(value, old);
            self.moved.insert(value);
        }
    }

    /// Whether a node's results are views of its operand.
    fn aliases(&mut self, node: &Node) -> bool {
        let op = self.build.table.op_of(node);
        let is_view = op.is_some_and(|op| matches!(op.def.rule, Rule::View | Rule::Drop));
        is_view || self.build.infer_cx().aliases(node).unwrap_or(true)
    }

    /// Makes the node read values as they lay before.
    fn restore(&mut self, node: &mut Node, which: Moved) -> Result<(), OpError> {
        let mut values = Vec::new();
        node.args.iter().for_each(|a| a.each_value(&mut |v| values.push(v)));
        for value in values {
            if self.moved.contains(&value) && (which == Moved::All || self.returned.contains(&value)) {
                let copy = self.original_layout(value)?;
                node.args.iter_mut().for_each(|a| a.map_values(&mut |v| if v == value { copy } else { v }));
            }
        }
        Ok(())
    }

    /// The value as it lay before: a copy, or where elements share memory, the view of its operand as that lay before.
    fn original_layout(&mut self, value: Value) -> Result<Value, OpError> {
        let ty = self.original.get(&value).unwrap_or(&self.build.graph.values[value].ty).clone();
        let Type::Tensor(ty) = ty else { return Ok(value) };
        let defines = |node: &&Node| node.outputs.contains(&Some(value));
        let node = self.build.graph.nodes.iter().find(defines).cloned();
        match node.filter(|_| !is_distinct(&self.build.graph.facts, &ty)) {
            Some(node) if self.aliases(&node) => self.original_view(node, value, ty),
            Some(_) | None => self.copy(value, ty, MemoryFormat::Preserve),
        }
    }

    fn original_view(&mut self, mut node: Node, value: Value, ty: TensorType) -> Result<Value, OpError> {
        if let Some(&view) = self.copies.get(&(value, ty.clone())) {
            return Ok(view);
        }
        self.restore(&mut node, Moved::All)?;
        self.build.name = format!("{}_copy", self.build.graph.values[value].name);
        let view = self.build.value(Type::Tensor(ty.clone()));
        for output in &mut node.outputs {
            *output = output.filter(|&output| output == value).map(|_| view);
        }
        self.build.graph.nodes.push(node);
        self.copies.insert((value, ty), view);
        Ok(view)
    }

    fn channels_last(&mut self, image: Value) -> Result<Value, OpError> {
        match self.build.graph.tensor(image).cloned() {
            Some(ty) if !is_channels_last(&ty) => {
                self.copy(image, image_type(&ty), MemoryFormat::ChannelsLast)
            }
            _ => Ok(image),
        }
    }

    /// A copy of a value in the layout of `ty`.
    fn copy(&mut self, value: Value, ty: TensorType, format: MemoryFormat) -> Result<Value, OpError> {
        if let Some(&copy) = self.copies.get(&(value, ty.clone())) {
            return Ok(copy);
        }
        self.build.name = format!("{}_copy", self.build.graph.values[value].name);
        let copy = self.build.copy(value, format)?;
        self.build.graph.values[copy].ty = Type::Tensor(ty.clone());
        self.copies.insert((value, ty), copy);
        Ok(copy)
    }

    /// Returns copies of views whose memory moved; says how many values changed.
    fn finish(mut self) -> Result<usize, OpError> {
        let mut outputs = std::mem::take(&mut self.build.graph.outputs);
        for output in &mut outputs {
            if let Arg::Value(value) = output
                && self.moved.contains(value)
            {
                *value = self.original_layout(*value)?;
            }
        }
        self.build.graph.outputs = outputs;
        Ok(self.original.len() + self.copies.len())
    }
}

/// The type with its channels together.
fn image_type(ty: &TensorType) -> TensorType {
    let strides = format_strides(MemoryFormat::ChannelsLast, &ty.sizes);
    TensorType { strides, ..ty.clone() }
}
