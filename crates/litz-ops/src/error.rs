//! Defines what an operator's entry says when it cannot do what a node asks.

use litz_ir::Diag;
use litz_ir::graph::{Node, OpName};
use std::fmt;

/// Why a node has no result type or no lowering.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpError {
    /// Stable name of the kind of problem: `unsupported-operator`, `unsupported`, `bad-argument`, `invalid-operator`.
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

    /// As a diagnostic at the user's source line of `node`.
    pub fn at(self, node: &Node) -> Diag {
        let diag = Diag::from(self);
        match &node.source {
            Some(source) => diag.source(&**source),
            None => diag,
        }
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
