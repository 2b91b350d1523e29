//! Infers the types of a node's results by its operator's rule.

use crate::args::{Args, Operand, Tensor};
use crate::decompose;
use crate::def::{ResultRule, Rule};
use crate::device::device_of;
use crate::error::OpError;
use crate::layout;
use crate::promote::{Promote, promote};
use crate::table::Table;
use crate::traits::Op;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Device, Node, OpName, TensorType, Type, Value, ValueData};
use litz_ir::ids::Table as IdTable;
use litz_sym::{Expr, Facts, Rel};

/// What result types depend on besides the node.
pub struct InferCx<'a> {
    /// Operators.
    pub table: &'a Table,
    /// Types of the values that nodes mention.
    pub values: &'a IdTable<Value, ValueData>,
    /// Size symbols; operators add the guards they need.
    pub facts: &'a mut Facts,
    /// Where results are that neither an argument nor an operand places. What an entry says of a node gets this of that node:
    /// where its results are.
    pub device: Device,
}

/// The types of the node's results, `None` where it gives no value. Guards that this adds name the node's operator and
/// source line, and so do errors, also where an operator that it is written with asks for them.
///
/// # Errors
/// When the operator is not known, an argument is not what it takes, or PyTorch would reject the node.
pub fn infer(cx: &mut InferCx<'_>, node: &Node) -> Result<Vec<Option<Type>>, OpError> {
    let known = cx.facts.guards().len();
    let types = types_of(cx, node).map_err(|error| error.naming(&node.op))?;
    let who = match node.source() {
        Some(source) => format!("{} at {source}", node.op),
        None => node.op.to_string(),
    };
    cx.facts.attribute(known, &who);
    Ok(types)
}

fn types_of(cx: &mut InferCx<'_>, node: &Node) -> Result<Vec<Option<Type>>, OpError> {
    let name = node.op.as_str();
    if cx.table.hosted(node).is_some() {
        // Only the host knows more than what the file records.
        return Ok(node
            .outputs
            .iter()
            .map(|output| output.map(|value| cx.values[value].ty.clone()))
            .collect());
    }
    let op = cx.table.op(name).ok_or_else(|| OpError::missing(name))?;
    let args = op.args(node, cx.values);
    args.given()?;
    let cx = &mut cx.at(&op, &args)?;
    if let Rule::Inplace(twin) = op.def.rule {
        if let ResultRule::Twin = op.def.result {
            return types_of(cx, &Node { op: OpName::new(twin), ..node.clone() });
        }
        fits_in_place(cx, &args, twin)?;
    }
    let mut results = match op.def.result {
        ResultRule::Pointwise(rule) => vec![Type::Tensor(pointwise_type(cx, &args, rule)?)],
        ResultRule::Types(types) => types(cx, &args)?,
        ResultRule::View(views) => {
            let base = first_tensor(&args)?;
            let dtype = base.dtype;
            let views = views(cx, &args)?;
            views.into_iter().map(|v| Type::Tensor(v.result_type(dtype, &base.strides))).collect()
        }
        // Whatever else the operator takes, what it writes to stays where it is.
        ResultRule::First => match node.args.first() {
            Some(&Arg::Value(value)) => return Ok(vec![Some(cx.values[value].ty.clone())]),
            // What writes to a list returns nothing.
            Some(Arg::List(_)) => Vec::new(),
            _ => return Err(args.invalid("expected a value as first argument")),
        },
        ResultRule::Decomposed => decompose::types(cx, &args)?,
        ResultRule::Twin => return Err(OpError::missing(args.op())),
    };
    for result in &mut results {
        match result {
            Type::Tensor(ty) => ty.device = cx.device,
            Type::Int(_) | Type::Float | Type::Bool => {}
        }
    }
    Ok(results.into_iter().map(Some).collect())
}

/// What an in-place operator computes must fit in the tensors that it writes to: nothing grows them, and their element types
/// are of no lower family.
fn fits_in_place(cx: &mut InferCx<'_>, args: &Args<'_>, twin: &str) -> Result<(), OpError> {
    let Op { schema, .. } = cx.table.op(args.op()).ok_or_else(|| OpError::missing(args.op()))?;
    let (Some(first), Some(slot)) = (args.node.args.first(), schema.args.first()) else {
        return Err(args.invalid("expected a tensor to write to"));
    };
    let node = Node { op: OpName::new(twin), ..args.node.clone() };
    let results = infer(cx, &node)?;
    let mut targets = Vec::new();
    first.each_value(&mut |value| targets.push(value));
    let is_one = first.as_value().is_some();
    if results.is_empty() || if is_one { targets.len() > 1 } else { targets.len() != results.len() } {
        return Err(args.bad(&slot.name, "a tensor"));
    }
    for (target, result) in targets.into_iter().zip(results) {
        let (Some(Type::Tensor(result)), Type::Tensor(own)) = (result, &cx.values[target].ty) else {
            return Err(args.bad(&slot.name, "a tensor"));
        };
        let own = own.clone();
        layout::same_sizes(cx, args, &format!("argument `{}`", slot.name), &own.sizes, &result.sizes)?;
        if !can_hold(own.dtype, result.dtype) {
            return Err(args.invalid(format!("{} does not fit in a tensor of {}", result.dtype, own.dtype)));
        }
    }
    Ok(())
}

/// Whether PyTorch converts values of the one type to the other unasked: never to a lower family, integers among
/// themselves.
fn can_hold(own: Dtype, value: Dtype) -> bool {
    value.kind() <= own.kind()
}

/// The type of a pointwise operator's result.
fn pointwise_type(cx: &mut InferCx<'_>, args: &Args<'_>, rule: Promote) -> Result<TensorType, OpError> {
    let operands = args.operands()?;
    let promoted = promote(rule.resolve(args), &operands).ok_or_else(|| no_common_type(args, &operands))?;
    let mut tensors = layout::tensors_of(&operands);
    // A condition counts for shape and layout like any other operand, where it stands among the arguments.
    if let Some(condition) = args.condition()? {
        let at =
            if args.node.args.first().and_then(|a| a.as_value()) == Some(condition.value) { 0 } else { 1 };
        tensors.insert(at.min(tensors.len()), condition);
    }
    let shapes: Vec<&[Expr]> = tensors.iter().map(|t| t.ty.sizes.as_slice()).collect();
    let sizes = layout::broadcast(cx, &shapes, args.op())?;
    let strides = layout::pointwise_strides(cx.facts, &tensors, &sizes);
    Ok(TensorType::strided(promoted.result, sizes, strides))
}

pub(crate) fn no_common_type(args: &Args<'_>, operands: &[Operand<'_>]) -> OpError {
    let types: Vec<String> = layout::tensors_of(operands).iter().map(|t| t.ty.dtype.to_string()).collect();
    args.invalid(format!("element types {} have no common type", types.join(", ")))
}

/// The operand that a view is of. Schemas call it `self`, `input` or, in linear algebra, `A`.
pub(crate) fn first_operand<'a>(args: &Args<'a>) -> Result<Tensor<'a>, OpError> {
    ["input", "A"].iter().find_map(|name| args.tensor(name).ok()).map_or_else(|| args.tensor("self"), Ok)
}

/// The type of the first argument that is a tensor: what a view operator views.
pub(crate) fn first_tensor<'a>(args: &Args<'a>) -> Result<&'a TensorType, OpError> {
    first_operand(args).map(|t| t.ty)
}

impl InferCx<'_> {
    /// What an entry gets that is asked about a node.
    pub(crate) fn at(&mut self, op: &Op<'_>, args: &Args<'_>) -> Result<InferCx<'_>, OpError> {
        let device = device_of(self.table, op, args, self.device)?;
        Ok(InferCx { table: self.table, values: self.values, facts: self.facts, device })
    }

    /// Whether a relation holds, when known.
    pub fn known(&self, rel: Rel) -> Option<bool> {
        layout::known(self.facts, rel)
    }

    /// Whether two sizes are known to be equal.
    pub fn same(&self, a: Expr, b: Expr) -> bool {
        layout::same(self.facts, a, b)
    }

    /// Makes a relation hold: an error when it cannot, a guard when it is not known to.
    pub fn require(&mut self, rel: Rel, who: &str) -> Result<(), OpError> {
        self.facts.require(rel, who).map_err(|e| OpError::new("invalid-operator", e.to_string()))
    }

    /// The simplest form of a size.
    pub fn simplify(&self, e: Expr) -> Expr {
        if e.is_polynomial() { e } else { self.facts.simplify(e) }
    }
}
