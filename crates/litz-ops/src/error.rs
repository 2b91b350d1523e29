//! Defines what an operator's entry says when it cannot do what a node asks.

use litz_ir::Diag;
use litz_ir::graph::{Node, OpName, Value, ValueData};
use litz_ir::ids::Table as IdTable;
use std::fmt;

/// Why a node has no result type or no lowering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpError {
    /// Stable name of the kind of problem: `unsupported-operator`, `unsupported`, `bad-argument`, `invalid-operator`, `device`.
    pub slug: &'static str,
    /// What is wrong, naming operator and argument.
    pub message: String,
}

impl OpError {
    /// An error.
    pub fn new(slug: &'static str, message: impl Into<String>) -> OpError {
        OpError { slug, message: message.into() }
    }

    /// The operator has no entry.
    pub fn missing(op: &str) -> OpError {
        OpError::new("unsupported-operator", format!("operator {op} is not supported"))
    }

    /// The same error of a use of `op`: it names that operator, where it came from another that `op` is written with.
    pub fn naming(mut self, op: &OpName) -> OpError {
        if !self.message.contains(op.as_str()) {
            self.message = format!("{op}: {}", self.message);
        }
        self
    }

    /// As a diagnostic at the user's source line of `node`. Where PyTorch rejects the node too, it has the operands' types: they
    /// are what contradicts the rest.
    pub fn at(self, node: &Node, values: &IdTable<Value, ValueData>) -> Diag {
        let is_contradiction = matches!(self.slug, "invalid-operator" | "bad-argument" | "device");
        let mut diag = Diag::from(self);
        if let Some(source) = node.source() {
            diag = diag.source(&**source);
        }
        let mut operands = Vec::new();
        let mut add =
            |value: Value| operands.extend(values.get(value).map(|v| format!("%{}: {}", v.name, v.ty)));
        node.args.iter().for_each(|arg| arg.each_value(&mut add));
        if is_contradiction && !operands.is_empty() { diag.operands(operands.join(", ")) } else { diag }
    }
}

impl From<OpError> for Diag {
    fn from(error: OpError) -> Diag {
        Diag::new(error.slug, error.message)
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)
    }
}

impl std::error::Error for OpError {}
