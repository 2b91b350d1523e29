//! Builds nodes with inferred types for passes that add some.

use litz_ir::Diag;
use litz_ir::graph::{Arg, Graph, Node, OpName, Type, Value, ValueData};
use litz_ir::schema::Schemas;
use litz_ops::{InferCx, OpError, Table, infer};
use std::collections::HashSet;
use std::sync::Arc;

/// Makes nodes and values with names of their own.
pub struct Builder<'a> {
    /// Operators.
    pub table: &'a Table,
    names: HashSet<String>,
}

impl<'a> Builder<'a> {
    /// A builder of nodes of `graph`.
    pub fn new(table: &'a Table, graph: &Graph) -> Builder<'a> {
        Builder { table, names: graph.values.values().map(|v| v.name.clone()).collect() }
    }

    /// Applies an operator with one result, called `name` or a longer name; the node is not in the graph yet.
    /// Arguments left out have their defaults.
    ///
    /// # Errors
    /// When the operator is not known or does not take these arguments.
    pub fn node(
        &mut self,
        graph: &mut Graph,
        op: &str,
        mut args: Vec<Arg>,
        name: &str,
        source: Option<Arc<str>>,
    ) -> Result<(Node, Value), Diag> {
        let missing = || Diag::new("unsupported-operator", format!("{op} is not supported"));
        let schema = self.table.lookup(op).ok_or_else(missing)?;
        args.truncate(schema.args.len());
        args.extend(schema.args.iter().skip(args.len()).map(|a| a.default.clone().unwrap_or(Arg::None)));
        let mut node = Node { op: OpName::new(op), args, outputs: Vec::new(), source };
        let types = self.types(graph, &node).map_err(|e| Diag::new("unsupported-operator", e.to_string()))?;
        let ty = types.into_iter().next().flatten().ok_or_else(missing)?;
        let result = self.value(graph, name, ty);
        node.outputs = vec![Some(result)];
        Ok((node, result))
    }

    /// The types of a node's results.
    ///
    /// # Errors
    /// As [`infer`].
    pub fn types(&self, graph: &mut Graph, node: &Node) -> Result<Vec<Option<Type>>, OpError> {
        infer(&mut InferCx { table: self.table, values: &graph.values, facts: &mut graph.facts }, node)
    }

    /// A value called `name`, or that and a number.
    pub fn value(&mut self, graph: &mut Graph, name: &str, ty: Type) -> Value {
        let mut unique = name.to_owned();
        let mut n = 1;
        while !self.names.insert(unique.clone()) {
            n += 1;
            unique = format!("{name}_{n}");
        }
        graph.values.push(ValueData { name: unique, ty })
    }
}
