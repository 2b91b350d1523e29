//! Appends nodes to a graph, with the types that their operators infer: one method for each operator that passes write.

use crate::error::OpError;
use crate::infer::{InferCx, infer};
use crate::table::Table;
use crate::traits::Op;
use litz_ir::Dtype;
use litz_ir::graph::{Arg, Float, Form, Graph, MemoryFormat, Node, OpName, Origin, Type, Value, ValueData};
use litz_sym::Expr;
use std::collections::HashSet;
use std::sync::Arc;

/// A graph that nodes are appended to. Results have names of their own.
pub struct Builder<'a> {
    /// Operators.
    pub table: &'a Table,
    /// The graph.
    pub graph: &'a mut Graph,
    /// What the next values are called, or that and a number.
    pub name: String,
    /// Where the next nodes come from.
    pub origin: Option<Arc<Origin>>,
    names: HashSet<String>,
}

/// The operators that passes write.
impl Builder<'_> {
    /// `x + y`
    pub fn add(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.call("aten.add.Tensor", vec![Arg::Value(x), Arg::Value(y)])
    }

    /// `x + y` of a number `y`.
    pub fn add_number(&mut self, x: Value, y: f64) -> Result<Value, OpError> {
        self.call("aten.add.Scalar", vec![Arg::Value(x), Arg::Float(Float(y))])
    }

    /// `x - y`
    pub fn sub(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.call("aten.sub.Tensor", vec![Arg::Value(x), Arg::Value(y)])
    }

    /// `x * y`
    pub fn mul(&mut self, x: Value, y: Value) -> Result<Value, OpError> {
        self.call("aten.mul.Tensor", vec![Arg::Value(x), Arg::Value(y)])
    }

    /// `-x`
    pub fn neg(&mut self, x: Value) -> Result<Value, OpError> {
        self.call("aten.neg.default", vec![Arg::Value(x)])
    }

    /// `1 / sqrt(x)`
    pub fn rsqrt(&mut self, x: Value) -> Result<Value, OpError> {
        self.call("aten.rsqrt.default", vec![Arg::Value(x)])
    }

    /// `x` in another element type; itself where it has that type.
    pub fn convert(&mut self, x: Value, dtype: Dtype) -> Result<Value, OpError> {
        if self.graph.tensor(x).is_some_and(|ty| ty.dtype == dtype) {
            return Ok(x);
        }
        self.call("aten._to_copy.default", vec![Arg::Value(x), Arg::Dtype(dtype)])
    }

    /// A copy of `x` in memory of its own.
    pub fn copy(&mut self, x: Value, format: MemoryFormat) -> Result<Value, OpError> {
        self.call("aten.clone.default", vec![Arg::Value(x), Arg::MemoryFormat(format)])
    }

    /// The elements of `x` in row-major order with other sizes; one of them may be -1.
    pub fn reshape(&mut self, x: Value, sizes: Vec<Expr>) -> Result<Value, OpError> {
        self.call("aten.reshape.default", vec![Arg::Value(x), Arg::ints(sizes)])
    }

    /// The dimensions of `x` in another order: that of the result's dimensions in `x`.
    pub fn permute(&mut self, x: Value, order: &[usize]) -> Result<Value, OpError> {
        let order = order.iter().map(|&d| Expr::int(d as i64));
        self.call("aten.permute.default", vec![Arg::Value(x), Arg::ints(order)])
    }

    /// The part of `x` that a range of one dimension selects.
    pub fn slice(&mut self, x: Value, range: &SliceRange) -> Result<Value, OpError> {
        self.call("aten.slice.Tensor", [Arg::Value(x)].into_iter().chain(range.args()).collect())
    }

    /// `x` with that part replaced by `part`.
    pub fn slice_scatter(&mut self, x: Value, part: Value, range: &SliceRange) -> Result<Value, OpError> {
        let operands = [Arg::Value(x), Arg::Value(part)];
        self.call("aten.slice_scatter.default", operands.into_iter().chain(range.args()).collect())
    }
}

/// Every `step`-th coordinate of a dimension from `start` up to `end`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SliceRange {
    /// The dimension.
    pub dim: usize,
    /// The first coordinate.
    pub start: Expr,
    /// What follows the last.
    pub end: Expr,
    /// The distance between two.
    pub step: Expr,
}

impl SliceRange {
    fn args(&self) -> [Arg; 4] {
        [Expr::int(self.dim as i64), self.start, self.end, self.step].map(Arg::Int)
    }
}

impl<'a> Builder<'a> {
    /// A builder of nodes of `graph`.
    pub fn new(table: &'a Table, graph: &'a mut Graph) -> Builder<'a> {
        let names = graph.values.values().map(|v| v.name.clone()).collect();
        Builder { table, graph, name: "v".to_owned(), origin: None, names }
    }

    /// Applies an operator that another entry names, such as an in-place operator's twin; its first result. Arguments
    /// left out have their defaults, those that it does not take are dropped.
    ///
    /// # Errors
    /// When the operator is not known or does not take these arguments.
    pub fn call(&mut self, op: &str, args: Vec<Arg>) -> Result<Value, OpError> {
        self.call_all(op, args)?.first().copied().flatten().ok_or_else(|| OpError::missing(op))
    }

    /// As [`Builder::call`], with all of its results; a list is as many results as it has elements.
    ///
    /// # Errors
    /// As [`Builder::call`].
    pub fn call_all(&mut self, op: &str, mut args: Vec<Arg>) -> Result<Vec<Option<Value>>, OpError> {
        let Op { schema, .. } = self.table.op(op).ok_or_else(|| OpError::missing(op))?;
        args.truncate(schema.args.len());
        args.extend(schema.args.iter().skip(args.len()).map(|a| a.default.clone().unwrap_or(Arg::None)));
        let mut node = Node {
            op: OpName::new(op),
            form: Form::Plain,
            args,
            outputs: Vec::new(),
            origin: self.origin.clone(),
        };
        let types = infer(&mut self.infer_cx(), &node)?;
        node.outputs = types.into_iter().map(|ty| ty.map(|ty| self.value(ty))).collect();
        let results = node.outputs.clone();
        self.graph.nodes.push(node);
        Ok(results)
    }

    /// A value that no node defines yet.
    pub fn value(&mut self, ty: Type) -> Value {
        let mut unique = self.name.clone();
        let mut n = 1;
        while !self.names.insert(unique.clone()) {
            n += 1;
            unique = format!("{}_{n}", self.name);
        }
        self.graph.values.push(ValueData { name: unique, ty })
    }

    /// What type functions take.
    pub fn infer_cx(&mut self) -> InferCx<'_> {
        let Graph { values, facts, device, .. } = &mut *self.graph;
        InferCx { table: self.table, values, facts, device: *device }
    }
}
