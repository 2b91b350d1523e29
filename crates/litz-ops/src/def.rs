//! Defines the shape of a table entry: what an operator returns and how it is computed.

use crate::args::Args;
use crate::body::Point;
use crate::decompose::Rewriter;
use crate::error::OpError;
use crate::infer::InferCx;
use crate::lower::Lower;
use crate::promote::Promote;
use crate::traits::OpTraits;
use crate::view::View;
use litz_ir::graph::{Arg, Node, Type, Value, ValueData};
use litz_ir::ids::Table as IdTable;
use litz_ir::loops::Val;
use litz_ir::{Dtype, ScalarOp};

/// Everything Litz knows about one operator.
#[derive(Clone, Copy)]
pub struct OpDef {
    /// Qualified name with overload, `aten.add.Tensor`.
    pub name: &'static str,
    /// The types of its results.
    pub result: ResultRule,
    /// How it is computed.
    pub rule: Rule,
    /// What passes may do with it.
    pub traits: OpTraits,
}

/// Types of results from types of arguments: one for each result, list results flattened. They are on any device: where they
/// belong, [`infer`](crate::infer()) puts them.
pub type TypesFn = fn(&mut InferCx<'_>, &Args<'_>) -> Result<Vec<Type>, OpError>;
/// Views of the first tensor argument: one for each result.
pub type ViewFn = fn(&mut InferCx<'_>, &Args<'_>) -> Result<Vec<View>, OpError>;
/// The body of a pointwise operator from its operands, which arrive in the compute type of their common type.
pub type PointwiseFn = fn(&mut Point<'_, '_>, &[Val]) -> Result<Val, OpError>;
/// Appends statements that compute the node's results.
pub type LowerFn = fn(&mut Lower<'_>, &Args<'_>) -> Result<(), OpError>;
/// Other operators that compute the same: returns the values that replace the node's results.
pub type DecomposeFn = fn(&mut Rewriter<'_>) -> Result<Vec<Value>, OpError>;

/// The types of an operator's results.
#[derive(Clone, Copy)]
pub enum ResultRule {
    /// One tensor: operands broadcast, element types promoted, strides as TensorIterator chooses them.
    Pointwise(Promote),
    /// A function says.
    Types(TypesFn),
    /// Views of the first tensor argument.
    View(ViewFn),
    /// That of the first argument, unchanged.
    First,
    /// That of the values it decomposes into.
    Decomposed,
    /// Those of the functional twin.
    Twin,
}

/// How an operator is computed.
#[derive(Clone, Copy)]
pub enum Rule {
    /// Elementwise, one scalar operation on all operands.
    Op(ScalarOp),
    /// Elementwise, a body.
    Pointwise(PointwiseFn),
    /// Nests and extern calls.
    Lower(LowerFn),
    /// Other operators.
    Decompose(DecomposeFn),
    /// The storage of the first tensor argument through another index function; see [`ResultRule::View`].
    View,
    /// Writes to its first argument what the functional twin returns, or is from then on the view of it that the twin is;
    /// functionalisation replaces it.
    Inplace(&'static str),
    /// The result is the first argument, or known from types alone: symbolic sizes, what must be true of them.
    Drop,
}

/// One scalar operation on all operands: `op("aten.exp.default", Promote::Float, ScalarOp::Exp)`.
pub const fn op(name: &'static str, promote: Promote, op: ScalarOp) -> OpDef {
    entry(name, ResultRule::Pointwise(promote), Rule::Op(op))
}

/// A pointwise operator with a body of its own.
pub const fn pointwise(name: &'static str, promote: Promote, body: PointwiseFn) -> OpDef {
    entry(name, ResultRule::Pointwise(promote), Rule::Pointwise(body))
}

/// A pointwise operator whose elements a routine of the runtime computes.
pub const fn elementwise(name: &'static str, promote: Promote, lower: LowerFn) -> OpDef {
    entry(name, ResultRule::Pointwise(promote), Rule::Lower(lower))
}

/// A view.
pub const fn view(name: &'static str, views: ViewFn) -> OpDef {
    entry(name, ResultRule::View(views), Rule::View)
}

/// An operator with result types and a lowering of its own.
pub const fn lower(name: &'static str, types: TypesFn, lower: LowerFn) -> OpDef {
    entry(name, ResultRule::Types(types), Rule::Lower(lower))
}

/// An operator that is written with others.
pub const fn decompose(name: &'static str, rewrite: DecomposeFn) -> OpDef {
    entry(name, ResultRule::Decomposed, Rule::Decompose(rewrite))
}

/// An in-place operator: `inplace("aten.add_.Tensor", "aten.add.Tensor")`.
pub const fn inplace(name: &'static str, twin: &'static str) -> OpDef {
    entry(name, ResultRule::First, Rule::Inplace(twin))
}

/// A view that takes the place of its operand: `inplace_view("aten.t_.default", "aten.t.default")`.
pub const fn inplace_view(name: &'static str, twin: &'static str) -> OpDef {
    entry(name, ResultRule::Twin, Rule::Inplace(twin))
}

/// An operator whose result is its first argument.
pub const fn identity(name: &'static str) -> OpDef {
    entry(name, ResultRule::First, Rule::Drop)
}

/// An operator that inference does all of: its results are numbers that types give, or it has none.
pub const fn inferred(name: &'static str, types: TypesFn) -> OpDef {
    entry(name, ResultRule::Types(types), Rule::Drop)
}

/// An entry that states no traits.
const fn entry(name: &'static str, result: ResultRule, rule: Rule) -> OpDef {
    OpDef { name, result, rule, traits: OpTraits::IMPLIED }
}

/// Shorthand for a type function with one tensor result.
pub fn one(ty: litz_ir::graph::TensorType) -> Result<Vec<Type>, OpError> {
    Ok(vec![Type::Tensor(ty)])
}

/// Whether arithmetic on the type is implemented.
pub fn is_supported(dtype: Dtype) -> bool {
    !matches!(dtype, Dtype::C64 | Dtype::C128)
}

/// The first of the element types of a node's tensors, and of its complex numbers, that there is no arithmetic on.
pub(crate) fn unsupported_type(node: &Node, values: &IdTable<Value, ValueData>) -> Option<Dtype> {
    let mut used: Vec<Value> = node.outputs.iter().flatten().copied().collect();
    node.args.iter().for_each(|arg| arg.each_value(&mut |value| used.push(value)));
    let types = used.iter().filter_map(|&value| match &values[value].ty {
        Type::Tensor(ty) => Some(ty.dtype),
        Type::Int(_) | Type::Float | Type::Bool => None,
    });
    let number = node.args.iter().any(|arg| matches!(arg, Arg::Complex(..))).then_some(Dtype::C64);
    types.chain(number).find(|dtype| !is_supported(*dtype))
}
