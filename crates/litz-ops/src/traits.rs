//! Says what passes may do with an operator's nodes: what its entry states, else what its schema and its rule imply.
//!
//! An entry states what PyTorch's schema does not say, or what Litz does otherwise:
//!
//! ```text
//! lower("aten.dropout.default", dropout_type, dropout).random(When(trains)).alias(Always).effect(Effect::None),
//! ```
//!
//! Where it says nothing, the answer is the cautious one. An operator that PyTorch tags as random, whose schema has no
//! results or writes to an argument, is never merged with its equal nor removed; nor is one without an entry.

use crate::args::Args;
use crate::def::{DecomposeFn, OpDef, ResultRule, Rule};
use crate::error::OpError;
use crate::infer::{InferCx, first_tensor};
use litz_ir::graph::{Node, Type, Value, ValueData};
use litz_ir::ids::Table as IdTable;
use litz_ir::schema::{Effect, OpSchema, Tag};
use litz_sym::Sym;

/// What an entry states beyond types and lowering.
#[derive(Clone, Copy, Debug)]
pub struct OpTraits {
    /// Its results differ between equal calls. Implied by PyTorch's tag.
    pub random: Holds,
    /// What it does besides giving results. `None`: as the schema implies.
    pub effect: Option<Effect>,
    /// Its results are memory of its first argument. Implied by the schema.
    pub alias: Holds,
    /// Its only result is its first argument, provided that their types are equal. Implied by a rule that does no
    /// work, and by a view that maps each element to itself.
    pub identity: Holds,
    /// How it treats the layout of its operands.
    pub layout: Layout,
    /// Where its operands may be, and where its results are.
    pub devices: Devices,
    /// Its part in rewrites that are about a kind of operator.
    pub role: Role,
    /// `op(self, src, ..)` that gives `self` with this view of it replaced by `src`.
    pub scatter: Option<&'static str>,
    /// What it writes to besides giving results. `None`: its first argument, if the schema says that it writes.
    pub updates: Option<Updates>,
    /// How it is written where there is a seed for its random numbers.
    pub seeded: Option<DecomposeFn>,
    /// What it does with complex numbers, besides what the rules for their parts say.
    pub complex: Complex,
    /// A host that has it runs it: its libraries are faster, or choose what is free, such as signs of vectors, as eager mode does.
    pub prefers_host: bool,
}

/// New contents of arguments, which another operator returns behind the results.
#[derive(Clone, Copy, Debug)]
pub struct Updates {
    /// The operator: it takes the first of the arguments, and returns the new contents last.
    pub twin: &'static str,
    /// The arguments written to, in the order of the new contents.
    pub args: &'static [&'static str],
    /// Which nodes write.
    pub when: Holds,
}

/// Whether something holds of an operator's nodes.
#[derive(Clone, Copy, Debug)]
pub enum Holds {
    /// As schema and rule imply.
    Implied,
    /// Of all of them.
    Always,
    /// Of none.
    Never,
    /// Of those whose arguments meet this.
    When(Condition),
}

/// A question about a node's arguments.
pub type Condition = fn(&mut InferCx<'_>, &Args<'_>) -> Result<bool, OpError>;

/// How an operator treats the layout of its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// The elements of its results do not depend on where those of its operands lie.
    Follows,
    /// As `Follows`; and it is fastest when its first operand, if that is an image, and its result have all channels
    /// of a pixel together.
    ChannelsLast,
    /// It sees where elements lie: other strides of an operand give other results.
    Reads,
}

/// Where an operator's operands may be, and where its results are unless an argument `device` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Devices {
    /// All on one device, where the results are, too; tensors without dimensions may be on the CPU nevertheless. Without
    /// operands, results are on the graph's device.
    One,
    /// On any; results are where the argument of that name is. PyTorch has few such operators: those that copy from one
    /// tensor to another, and those that take indices. Its `FakeTensor` lists them (`multi_device_op_default`).
    Of(&'static str),
}

/// How an operator on complex numbers is computed, where that is not by rules for their parts (`complex.rs`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Complex {
    /// By a rule, if there is one; a view moves them as they are.
    ByRule,
    /// It is lowered for them as it is: it puts them together, takes them apart, or calls a routine.
    Lowered,
    /// It copies, which lowering does where the element type stays; else it converts parts.
    Copied,
    /// Its decomposition holds for them as well: it makes them of real ones, moves them, or is a transform.
    Rewritten,
}

/// An operator's part in rewrites that are about a kind of operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// None.
    Other,
    /// `op(input, weight, bias, ..)`, linear in weight and bias, whose output channels are the first dimension of the
    /// weight and the second of the result; when an argument `transposed` is true, they are not.
    Layer,
    /// `op(input, weight, bias, running_mean, running_var, ..)`: `(input - mean) / sqrt(var + eps) * weight + bias` by
    /// the second dimension, with the statistics given unless `training` is true.
    BatchNorm,
}

impl OpTraits {
    /// Whether the operator is random, whatever its arguments are, and made of a seed alone.
    pub(crate) fn needs_seed(&self) -> bool {
        self.seeded.is_some() && matches!(self.random, Holds::Implied)
    }

    /// Nothing stated.
    pub const IMPLIED: OpTraits = OpTraits {
        random: Holds::Implied,
        effect: None,
        alias: Holds::Implied,
        identity: Holds::Implied,
        layout: Layout::Follows,
        devices: Devices::One,
        role: Role::Other,
        scatter: None,
        updates: None,
        seeded: None,
        complex: Complex::ByRule,
        prefers_host: false,
    };
}

/// What an entry states: `lower(..).layout(Layout::Reads)`.
impl OpDef {
    /// When its results differ between equal calls.
    pub const fn random(mut self, random: Holds) -> OpDef {
        self.traits.random = random;
        self
    }

    /// What it does besides giving results.
    pub const fn effect(mut self, effect: Effect) -> OpDef {
        self.traits.effect = Some(effect);
        self
    }

    /// When its results are memory of its first argument.
    pub const fn alias(mut self, alias: Holds) -> OpDef {
        self.traits.alias = alias;
        self
    }

    /// When its result is its first argument, provided that their types are equal.
    pub const fn identity(mut self, identity: Holds) -> OpDef {
        self.traits.identity = identity;
        self
    }

    /// How it treats the layout of its operands.
    pub const fn layout(mut self, layout: Layout) -> OpDef {
        self.traits.layout = layout;
        self
    }

    /// Where its operands may be, and where its results are.
    pub const fn devices(mut self, devices: Devices) -> OpDef {
        self.traits.devices = devices;
        self
    }

    /// Its part in rewrites.
    pub const fn role(mut self, role: Role) -> OpDef {
        self.traits.role = role;
        self
    }

    /// How it is written where there is a seed for its random numbers.
    pub const fn seeded(mut self, seeded: DecomposeFn) -> OpDef {
        self.traits.seeded = Some(seeded);
        self
    }

    /// What it does with complex numbers.
    pub const fn complex(mut self, complex: Complex) -> OpDef {
        self.traits.complex = complex;
        self
    }

    /// A host that has it runs it.
    pub const fn prefers_host(mut self) -> OpDef {
        self.traits.prefers_host = true;
        self
    }

    /// What it writes to besides giving results.
    pub const fn updates(mut self, updates: Updates) -> OpDef {
        self.traits.updates = Some(updates);
        self
    }

    /// The operator that writes through this view.
    pub const fn scatter(mut self, twin: &'static str) -> OpDef {
        self.traits.scatter = Some(twin);
        self
    }
}

/// An operator: its entry and its schema.
#[derive(Clone, Copy)]
pub struct Op<'a> {
    /// The entry.
    pub def: &'static OpDef,
    /// PyTorch's schema.
    pub schema: &'a OpSchema,
}

impl<'a> Op<'a> {
    /// The arguments of a node of this operator.
    pub fn args(&self, node: &'a Node, values: &'a IdTable<Value, ValueData>) -> Args<'a> {
        Args::new(node, self.schema, values)
    }

    /// What the operator does besides giving results.
    pub fn effect(&self) -> Effect {
        let tagged = self.schema.tags.contains(&Tag::MaybeAliasingOrMutating);
        match self.def.traits.effect {
            Some(effect) => effect,
            None if tagged || self.schema.is_mutating() || self.schema.returns.is_empty() => Effect::Other,
            None => Effect::None,
        }
    }

    /// How the operator treats the layout of its operands. One that measures them may measure strides.
    pub fn layout(&self) -> Layout {
        if self.schema.is_measure() { Layout::Reads } else { self.def.traits.layout }
    }
}

/// Questions about nodes. They are asked of types as they are, so that an operator's entry can answer by arguments.
impl InferCx<'_> {
    /// Whether the node's results follow from its arguments, and nothing else comes of it: equal nodes may become one,
    /// and unused ones none.
    pub fn is_pure(&mut self, node: &Node) -> bool {
        if let Some(hosted) = self.table.hosted(node) {
            // A size that the host decides has a value of each call.
            let is_size = |value: &Value| matches!(self.values[*value].ty, Type::Int(_));
            return hosted.is_pure() && !node.outputs.iter().flatten().any(is_size);
        }
        let Some(op) = self.table.op(node.op.as_str()) else { return false };
        op.effect() == Effect::None && !self.is_random(node)
    }

    /// Whether the node's results may differ from those of an equal one. A node whose arguments cannot be read counts as random.
    pub fn is_random(&mut self, node: &Node) -> bool {
        let Some(op) = self.table.op_of(node) else { return false };
        let tagged = op.schema.tags.contains(&Tag::NondeterministicSeeded);
        self.holds(&op, op.def.traits.random, node, |_, _| Ok(tagged)).unwrap_or(true)
    }

    /// Whether the node's results are memory of its first argument.
    ///
    /// # Errors
    /// When the operator is not known, or the arguments are not what it takes.
    pub fn aliases(&mut self, node: &Node) -> Result<bool, OpError> {
        // What the host gives has memory of its own.
        if self.table.hosted(node).is_some() {
            return Ok(false);
        }
        let name = node.op.as_str();
        let op = self.table.op(name).ok_or_else(|| OpError::missing(name))?;
        self.holds(&op, op.def.traits.alias, node, |_, _| Ok(op.schema.is_aliasing()))
    }

    /// What the node writes to besides giving results, if it does.
    pub fn updates(&mut self, node: &Node) -> Option<Updates> {
        let op = self.table.op_of(node)?;
        let updates = op.def.traits.updates?;
        let writes = self.holds(&op, updates.when, node, |_, _| Ok(op.schema.is_mutating())).unwrap_or(true);
        writes.then_some(updates)
    }

    /// Whether the node writes to an argument.
    pub fn writes(&mut self, node: &Node) -> bool {
        self.table.hosted(node).is_some_and(|hosted| hosted.writes())
            || self.table.op_of(node).is_some_and(|op| op.schema.is_mutating())
            || self.updates(node).is_some()
    }

    /// Whether the node's result is its first argument, provided that their types are equal.
    pub fn is_identity(&mut self, node: &Node) -> bool {
        let Some(op) = self.table.op_of(node) else { return false };
        self.holds(&op, op.def.traits.identity, node, |cx, args| changes_nothing(cx, op.def, args))
            .unwrap_or(false)
    }

    fn holds(
        &mut self,
        op: &Op<'_>,
        stated: Holds,
        node: &Node,
        implied: impl FnOnce(&mut InferCx<'_>, &Args<'_>) -> Result<bool, OpError>,
    ) -> Result<bool, OpError> {
        let args = op.args(node, self.values);
        match stated {
            Holds::Implied => implied(&mut self.at(op, &args)?, &args),
            Holds::Always => Ok(true),
            Holds::Never => Ok(false),
            Holds::When(condition) => condition(&mut self.at(op, &args)?, &args),
        }
    }
}

/// The symbols of sizes that a type mentions.
pub(crate) fn syms_of(ty: &Type) -> Vec<Sym> {
    match ty {
        Type::Tensor(ty) => ty.sizes.iter().flat_map(|size| size.syms()).collect(),
        Type::Int(size) => size.syms(),
        Type::Float | Type::Bool => Vec::new(),
    }
}

/// Whether a node gives size symbols values: the types of its results mention such as no operand does.
pub fn defines_sizes(values: &IdTable<Value, ValueData>, node: &Node) -> bool {
    let results = node.outputs.iter().flatten().flat_map(|&value| syms_of(&values[value].ty));
    let results: Vec<Sym> = results.collect();
    if results.is_empty() {
        return false;
    }
    let mut given: Vec<Sym> = Vec::new();
    for arg in &node.args {
        arg.each_value(&mut |value| given.extend(syms_of(&values[value].ty)));
        arg.each_int(&mut |size| given.extend(size.syms()));
    }
    results.iter().any(|sym| !given.contains(sym))
}

/// Whether an operator does no work, or is a view that maps each element to itself.
fn changes_nothing(cx: &mut InferCx<'_>, def: &OpDef, args: &Args<'_>) -> Result<bool, OpError> {
    match (def.rule, def.result) {
        (Rule::Drop, ResultRule::First) => Ok(true),
        (Rule::View, ResultRule::View(views)) => {
            let sizes = &first_tensor(args)?.sizes;
            Ok(matches!(views(cx, args)?.as_slice(), [view] if view.is_identity(cx.facts, sizes)))
        }
        _ => Ok(false),
    }
}
