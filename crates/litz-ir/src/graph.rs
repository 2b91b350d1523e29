//! Defines the graph IR: ATen operators on whole tensors.
//!
//! ```text
//! graph @mlp on cpu {
//!   sym s0 in [2, 1024]
//!   %x: f32[s0, 768] = input
//!   %w: f32[3072, 768] = const "fc1.weight"
//!   %wt: f32[768, 3072]{1, 768} = aten.permute.default(%w, [1, 0])
//!   %h: f32[s0, 3072] = aten.mm.default(%x, %wt) at "mlp.py:12"
//!   update %x = %h
//!   return %h
//! }
//! ```
//!
//! After functionalisation every node is pure: the only effects are the `update`s at the end, and those that declarations of
//! the host's operators name:
//!
//! ```text
//!   op mylib.foo.default(Tensor x, Tensor(a!) out, int n) -> Tensor contiguous effect log
//!   %y: f32[4] = mylib.foo.default(%x, %z, 7)
//!   %y: f32[4], %z2: f32[4] = functional mylib.foo.default(%x, %z, 7)
//!   %s: f32[4] = host aten.add.Tensor(%y, %z2, 1)
//! ```

use crate::dtype::Dtype;
use crate::entity;
use crate::ids::Table;
use crate::schema::OpSchema;
use litz_sym::{Expr, Facts, Known, Rel};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

entity!(
    /// A value of a graph. Its text name is [`ValueData::name`].
    Value,
    "v"
);

/// A whole graph.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Name, without the `@`.
    pub name: String,
    /// Where tensors live whose text names no other device, and where operators make tensors that neither an argument nor an
    /// operand places.
    pub device: Device,
    /// Size symbols: ranges, hints and guards.
    pub facts: Facts,
    /// Operators that the host runs.
    pub ops: Vec<OpDecl>,
    /// Every value ever made; those that no input, constant or node defines are dead.
    pub values: Table<Value, ValueData>,
    /// User inputs in flattened order.
    pub inputs: Vec<Value>,
    /// Inputs that callers give up: what a call leaves in their memory is anything.
    pub donated: Vec<Value>,
    /// Parameters, buffers and constants: values whose bytes come with the model.
    pub consts: Vec<(Value, String)>,
    /// Operators in a valid order.
    pub nodes: Vec<Node>,
    /// State written back when all else is done: (input or constant, new contents).
    pub updates: Vec<(Value, Value)>,
    /// What the graph returns: values, or literals.
    pub outputs: Vec<Arg>,
    /// Bodies of control flow, referred to by [`Arg::Graph`].
    pub subgraphs: Vec<Graph>,
}

/// Name and type of a value.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueData {
    /// Text name without the `%`, unique in its graph.
    pub name: String,
    /// Type.
    pub ty: Type,
}

/// The type of a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Type {
    /// A tensor.
    Tensor(TensorType),
    /// An integer known as an expression of size symbols (a fresh symbol when data-dependent).
    Int(Expr),
    /// A float known only at run time.
    Float,
    /// A truth value known only at run time.
    Bool,
}

/// Shape, layout and place of a tensor. Sizes and strides count elements; both have one entry per dimension.
///
/// In a text, `f32[s0, 768]` is on the device that the text's first line names, `f32[s0, 768] on cuda:1` is not.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    /// Element type.
    pub dtype: Dtype,
    /// Extent of each dimension.
    pub sizes: Vec<Expr>,
    /// Elements between neighbours along each dimension.
    pub strides: Vec<Expr>,
    /// Where the elements are.
    pub device: Device,
}

/// One application of an operator.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// Qualified name with overload: `aten.add.Tensor`.
    pub op: OpName,
    /// Who runs it, and on what.
    pub form: Form,
    /// One argument for each of the schema's, in its order, defaults filled in.
    pub args: Vec<Arg>,
    /// One result for each the operator returns, and in a functional form one more for each tensor that it writes to; `None`
    /// where nothing uses it or the operator gives none.
    pub outputs: Vec<Option<Value>>,
    /// Where it comes from in the user's model.
    pub origin: Option<Arc<Origin>>,
}

impl Node {
    /// The user's source line, such as `model.py:12`.
    pub fn source(&self) -> Option<&Arc<str>> {
        self.origin.as_ref()?.line.as_ref()
    }
}

/// Where a node comes from in the user's model. What passes make of a node has the origin of that node. Text:
/// `at "model.py:12" in "layers.3.mlp.up" was "linear_3" stack ["train.py:7", "model.py:12"]`, as much as is known.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Origin {
    /// The user's source line, such as `model.py:12`.
    pub line: Option<Arc<str>>,
    /// Path of the module that calls the operator, such as `layers.3.mlp.up`.
    pub module: Option<Arc<str>>,
    /// Name of the first result in the user's graph, before passes.
    pub name: Option<Arc<str>>,
    /// Lines of the whole stack, from the outside to the inside.
    pub stack: Vec<Arc<str>>,
}

/// How a node applies its operator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Form {
    /// As it is: Litz computes it, and the host runs what the graph declares.
    #[default]
    Plain,
    /// `host aten.add.Tensor(..)`: the host runs it, although Litz has the operator.
    Host,
    /// `functional mylib.two.default(..)`: the host runs it on copies of the tensors that it writes to. What these hold then
    /// are results behind the operator's own, in the order of its arguments, one for each tensor of a list.
    ///
    /// Arguments may be parts of one memory, `functional mylib.two.default(part(0, [5], [1], 0), part(0, [5], [1], 3), [%y])`: the list
    /// behind the operator's arguments has values of whose copies they are. What these copies hold then are the last results.
    Functional,
}

/// A declaration of an operator that the host runs: what the table of operators says of our own.
///
/// `op mylib.foo.default(Tensor x, Tensor(a!) out, int n) -> Tensor contiguous effect log`
#[derive(Clone, PartialEq, Debug)]
pub struct OpDecl {
    /// Its name, arguments, results and tags.
    pub schema: OpSchema,
    /// How its operands have to lie in memory.
    pub layout: Constraint,
    /// What it does besides giving results and writing to arguments: calls with one effect keep their order, and none is left
    /// out.
    pub effect: Option<String>,
}

/// How operands of the host's operators have to lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Constraint {
    /// With the strides that their types say: those that they had when the model was traced.
    #[default]
    Exact,
    /// With dimensions in the order that strides of their types give, gaps between elements or not.
    Order,
    /// Row major.
    Contiguous,
    /// With any strides.
    Any,
}

impl Constraint {
    /// Every constraint.
    pub const ALL: [Constraint; 4] =
        [Constraint::Exact, Constraint::Order, Constraint::Contiguous, Constraint::Any];

    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            Constraint::Exact => "exact",
            Constraint::Order => "order",
            Constraint::Contiguous => "contiguous",
            Constraint::Any => "any",
        }
    }
}

impl OpDecl {
    /// What keeps calls in order and alive: the stated effect; the exchange with other processes where an operator names a group of
    /// them; or the operator itself where nothing else can come of a call.
    ///
    /// Processes wait for each other in collectives, so that two of them which call the same ones in different orders wait forever, or take
    /// the one's elements for the other's. The order of a program's steps goes by sizes, of which each process may have others: that
    /// of collectives must not.
    pub fn effect(&self) -> Option<&str> {
        let is_called_for_itself = self.schema.returns.is_empty() && !self.schema.is_mutating();
        let is_collective = self.schema.args.iter().any(|arg| arg.name == GROUP);
        let implied = is_collective.then_some(COLLECTIVE);
        self.effect.as_deref().or(implied).or(is_called_for_itself.then_some(&*self.schema.name))
    }
}

/// What an operator's argument is called that names a group of processes, in PyTorch's schemas.
const GROUP: &str = "group_name";

/// The effect of operators that exchange with other processes.
const COLLECTIVE: &str = "collective";

/// An operator's qualified name with overload, cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpName(Arc<str>);

/// An argument of a node.
#[derive(Clone, PartialEq, Debug)]
pub enum Arg {
    /// Nothing given.
    None,
    /// A value.
    Value(Value),
    /// A list, of anything.
    List(Vec<Arg>),
    /// An integer or symbolic integer.
    Int(Expr),
    /// A float.
    Float(Float),
    /// A truth value.
    Bool(bool),
    /// A complex literal.
    Complex(Float, Float),
    /// Text.
    Str(String),
    /// An element type.
    Dtype(Dtype),
    /// A device.
    Device(Device),
    /// Strided, the only layout there is.
    Strided,
    /// How the result's strides are chosen.
    MemoryFormat(MemoryFormat),
    /// A subgraph, by name.
    Graph(String),
    /// A part of memory that a functional node is given.
    Part(Part),
}

/// A tensor that shares memory with others of one call.
///
/// `part(0, [2, 4], [4, 1], 12)`
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// Whose memory: a position in the list behind the node's arguments.
    pub of: usize,
    /// Extent of each dimension.
    pub sizes: Vec<Expr>,
    /// Elements between neighbours.
    pub strides: Vec<Expr>,
    /// First element, from that of the value on.
    pub offset: Expr,
}

/// A float that compares by bits.
#[derive(Clone, Copy, Debug)]
pub struct Float(pub f64);

impl PartialEq for Float {
    fn eq(&self, other: &Float) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

/// Where tensors live.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Device {
    /// The host.
    Cpu,
    /// An NVIDIA GPU, by index.
    Cuda(u32),
    /// A reference device, by index: it interprets kernels late, in memory of its own.
    Ref(u32),
}

/// A stream of a device: what is enqueued there happens in order, what is enqueued elsewhere at any time. Steps that are not enqueued
/// run on the host, and wait for all that is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Queue {
    /// The device.
    pub device: Device,
    /// Which of its streams, from 0.
    pub stream: u32,
}

/// A choice of strides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryFormat {
    /// Row major.
    Contiguous,
    /// NHWC order of a 4-d tensor.
    ChannelsLast,
    /// NDHWC order of a 5-d tensor.
    ChannelsLast3d,
    /// As the input has it.
    Preserve,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>, device: Device) -> Graph {
        Graph {
            name: name.into(),
            device,
            facts: Facts::new(),
            ops: Vec::new(),
            values: Table::new(),
            inputs: Vec::new(),
            donated: Vec::new(),
            consts: Vec::new(),
            nodes: Vec::new(),
            updates: Vec::new(),
            outputs: Vec::new(),
            subgraphs: Vec::new(),
        }
    }

    /// Does something to each subgraph, those inside first, and then to the graph.
    pub fn each<E>(&mut self, f: &mut impl FnMut(&mut Graph) -> Result<(), E>) -> Result<(), E> {
        self.subgraphs.iter_mut().try_for_each(|subgraph| subgraph.each(f))?;
        f(self)
    }

    /// Tells subgraphs what is known of symbols around them, so that each can be rewritten by itself.
    pub fn tell_subgraphs(&mut self) {
        for subgraph in &mut self.subgraphs {
            subgraph.facts.include(&self.facts);
            let is_own = |op: &&OpDecl| subgraph.declared(&op.schema.name).is_some();
            let inherited: Vec<OpDecl> = self.ops.iter().filter(|op| !is_own(op)).cloned().collect();
            subgraph.ops.extend(inherited);
            subgraph.tell_subgraphs();
        }
    }

    /// What the graph declares of an operator.
    pub fn declared(&self, op: &str) -> Option<&OpDecl> {
        self.ops.iter().find(|decl| decl.schema.name == op)
    }

    /// Adds a value. The caller keeps names unique.
    pub fn value(&mut self, name: impl Into<String>, ty: Type) -> Value {
        self.values.push(ValueData { name: name.into(), ty })
    }

    /// The tensor type of a value, or `None` when it is a scalar.
    pub fn tensor(&self, value: Value) -> Option<&TensorType> {
        match &self.values[value].ty {
            Type::Tensor(t) => Some(t),
            Type::Int(_) | Type::Float | Type::Bool => None,
        }
    }

    /// Whether an update of a `target` may be a `source`: tensors of one element type on one device, whose sizes are equal
    /// for all that is known.
    pub fn may_hold(&self, target: &Type, source: &Type) -> bool {
        let (Type::Tensor(target), Type::Tensor(source)) = (target, source) else { return false };
        let equal = |(&a, &b)| self.facts.known(&Rel::eq(a, b)) != Known::No;
        (target.dtype, target.device) == (source.dtype, source.device)
            && target.rank() == source.rank()
            && target.sizes.iter().zip(&source.sizes).all(equal)
    }
}

impl Type {
    /// The tensor as which a value goes to a program and lies in memory: numbers are tensors without dimensions.
    pub fn stored(&self) -> Cow<'_, TensorType> {
        let number = |dtype| Cow::Owned(TensorType::contiguous(dtype, Vec::new()));
        match self {
            Type::Tensor(ty) => Cow::Borrowed(ty),
            Type::Int(_) => number(Dtype::I64),
            Type::Float => number(Dtype::F64),
            Type::Bool => number(Dtype::Bool),
        }
    }
}

impl TensorType {
    /// A tensor type on the host; [`TensorType::on`] puts it elsewhere.
    pub fn strided(dtype: Dtype, sizes: Vec<Expr>, strides: Vec<Expr>) -> TensorType {
        TensorType { dtype, sizes, strides, device: Device::Cpu }
    }
    /// A row-major tensor type on the host.
    pub fn contiguous(dtype: Dtype, sizes: Vec<Expr>) -> TensorType {
        let strides = contiguous_strides(&sizes);
        TensorType::strided(dtype, sizes, strides)
    }
    /// The type of such a tensor on another device.
    pub fn on(self, device: Device) -> TensorType {
        TensorType { device, ..self }
    }
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.sizes.len()
    }
    /// Number of elements.
    pub fn numel(&self) -> Expr {
        self.sizes.iter().fold(Expr::one(), |n, &s| n * s)
    }
    /// Row major? Decided structurally; dimensions of size 1 may have any stride.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = Expr::one();
        for (&size, &stride) in self.sizes.iter().zip(&self.strides).rev() {
            if size.is_zero() {
                return true;
            }
            if !size.is_one() {
                if stride != expected {
                    return false;
                }
                expected = expected * size;
            }
        }
        true
    }
}

/// Row-major strides of `sizes`, in elements. A dimension of size 0 counts as 1, as in PyTorch.
pub fn contiguous_strides(sizes: &[Expr]) -> Vec<Expr> {
    let mut strides = vec![Expr::one(); sizes.len()];
    for d in (1..sizes.len()).rev() {
        let size = if sizes[d].is_zero() { Expr::one() } else { sizes[d] };
        strides[d - 1] = strides[d] * size;
    }
    strides
}

impl OpName {
    /// Interns nothing: the text is shared by clones only.
    pub fn new(name: impl AsRef<str>) -> OpName {
        OpName(Arc::from(name.as_ref()))
    }
    /// `aten.add.Tensor`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Arg {
    /// The integer, when this is one.
    pub fn as_int(&self) -> Option<Expr> {
        if let Arg::Int(e) = self { Some(*e) } else { None }
    }
    /// The value, when this is one.
    pub fn as_value(&self) -> Option<Value> {
        if let Arg::Value(v) = self { Some(*v) } else { None }
    }
    /// The list, when this is one.
    pub fn as_list(&self) -> Option<&[Arg]> {
        if let Arg::List(items) = self { Some(items) } else { None }
    }
    /// A list of integers.
    pub fn ints(items: impl IntoIterator<Item = Expr>) -> Arg {
        Arg::List(items.into_iter().map(Arg::Int).collect())
    }
    /// Calls `f` on each integer in this argument, lists included.
    pub fn each_int(&self, f: &mut impl FnMut(Expr)) {
        match self {
            Arg::Int(e) => f(*e),
            Arg::List(items) => items.iter().for_each(|a| a.each_int(f)),
            Arg::Part(part) => part.exprs().for_each(f),
            Arg::None
            | Arg::Value(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_) => {}
        }
    }
    /// Replaces each integer in this argument, lists included.
    pub fn map_ints(&mut self, f: &mut impl FnMut(Expr) -> Expr) {
        match self {
            Arg::Int(e) => *e = f(*e),
            Arg::List(items) => items.iter_mut().for_each(|a| a.map_ints(f)),
            Arg::Part(part) => part.exprs_mut().for_each(|e| *e = f(*e)),
            Arg::None
            | Arg::Value(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_) => {}
        }
    }
    /// Replaces each device in this argument, lists included.
    pub fn map_devices(&mut self, f: &mut impl FnMut(Device) -> Device) {
        match self {
            Arg::Device(device) => *device = f(*device),
            Arg::List(items) => items.iter_mut().for_each(|a| a.map_devices(f)),
            Arg::None
            | Arg::Part(_)
            | Arg::Value(_)
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_) => {}
        }
    }
    /// Calls `f` on the name of each subgraph in this argument, lists included.
    pub fn each_graph<'a>(&'a self, f: &mut impl FnMut(&'a str)) {
        match self {
            Arg::Graph(name) => f(name),
            Arg::List(items) => items.iter().for_each(|a| a.each_graph(f)),
            Arg::None
            | Arg::Part(_)
            | Arg::Value(_)
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_) => {}
        }
    }
    /// Calls `f` on each value in this argument, lists included.
    pub fn each_value(&self, f: &mut impl FnMut(Value)) {
        match self {
            Arg::Value(v) => f(*v),
            Arg::List(items) => items.iter().for_each(|a| a.each_value(f)),
            Arg::None
            | Arg::Part(_)
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_) => {}
        }
    }
    /// Calls `f` on each part of memory in this argument, lists included.
    pub fn each_part<'a>(&'a self, f: &mut impl FnMut(&'a Part)) {
        match self {
            Arg::Part(part) => f(part),
            Arg::List(items) => items.iter().for_each(|a| a.each_part(f)),
            Arg::None
            | Arg::Value(_)
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_) => {}
        }
    }
    /// Replaces each value in this argument, lists included.
    pub fn map_values(&mut self, f: &mut impl FnMut(Value) -> Value) {
        match self {
            Arg::Value(v) => *v = f(*v),
            Arg::List(items) => items.iter_mut().for_each(|a| a.map_values(f)),
            Arg::None
            | Arg::Part(_)
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::Complex(..)
            | Arg::Str(_)
            | Arg::Dtype(_)
            | Arg::Device(_)
            | Arg::Strided
            | Arg::MemoryFormat(_)
            | Arg::Graph(_) => {}
        }
    }
}

impl Part {
    /// Its sizes, strides and offset.
    pub fn exprs(&self) -> impl Iterator<Item = Expr> {
        self.sizes.iter().chain(&self.strides).copied().chain([self.offset])
    }

    /// The same, to be replaced.
    pub fn exprs_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        self.sizes.iter_mut().chain(&mut self.strides).chain([&mut self.offset])
    }
}

impl Device {
    /// Says of things that are used together which two are on different devices, if any are: "`x` is on cpu, `y` on cuda:0".
    pub fn difference<'a>(used: impl IntoIterator<Item = (&'a str, Device)>) -> Option<String> {
        let mut used = used.into_iter();
        let (first, device) = used.next()?;
        let (other, elsewhere) = used.find(|&(_, other)| other != device)?;
        Some(format!("`{first}` is on {device}, `{other}` on {elsewhere}"))
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(i) => write!(f, "cuda:{i}"),
            Device::Ref(i) => write!(f, "ref:{i}"),
        }
    }
}

impl MemoryFormat {
    /// Every choice.
    pub const ALL: [MemoryFormat; 4] = [
        MemoryFormat::Contiguous,
        MemoryFormat::ChannelsLast,
        MemoryFormat::ChannelsLast3d,
        MemoryFormat::Preserve,
    ];

    /// The choice of that name.
    pub fn from_name(name: &str) -> Option<MemoryFormat> {
        MemoryFormat::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The name in text.
    pub fn name(self) -> &'static str {
        match self {
            MemoryFormat::Contiguous => "contiguous",
            MemoryFormat::ChannelsLast => "channels_last",
            MemoryFormat::ChannelsLast3d => "channels_last_3d",
            MemoryFormat::Preserve => "preserve",
        }
    }
}
