//! Asks for the declarations of operators that a program uses and nobody here knows.

use crate::error::ImportError;
use crate::functionalized::kernel_of;
use crate::schema::{Argument, Graph, Node};
use litz_ir::graph::OpDecl;
use litz_ir::schema::{Autocast, Effect, OpSchema, Schemas, Written};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Operators that are known, and those that are declared for one program.
pub(crate) struct Chained<'a> {
    pub schemas: &'a dyn Schemas,
    pub declared: BTreeMap<String, OpDecl>,
}

impl Schemas for Chained<'_> {
    fn lookup(&self, name: &str) -> Option<&OpSchema> {
        self.schemas.lookup(name).or_else(|| self.declared.get(name).map(|decl| &decl.schema))
    }

    fn effect(&self, name: &str) -> Effect {
        self.schemas.effect(name)
    }

    fn autocast(&self, name: &str) -> Autocast {
        self.schemas.autocast(name)
    }

    fn written(&self, what: Written) -> &'static str {
        self.schemas.written(what)
    }
}

/// The declarations of a graph's operators, and those of the graphs inside of it.
pub(crate) fn declarations(
    graph: &Graph<'_>,
    schemas: &dyn Schemas,
) -> Result<BTreeMap<String, OpDecl>, ImportError> {
    let mut declared: BTreeMap<String, OpDecl> = BTreeMap::new();
    let mut left: Vec<&Node<'_>> = graph.nodes.iter().collect();
    while let Some(node) = left.pop() {
        for name in names(node) {
            if declared.contains_key(&*name) || schemas.lookup(&name).is_some() {
                continue;
            }
            let found = schemas.declaration(&name);
            let found =
                found.map_err(|why| ImportError::program(format!("the declaration of {name}: {why}")))?;
            if let Some(decl) = found {
                declared.extend(twin(&decl, schemas));
                declared.insert(name.into_owned(), decl);
            }
        }
        // What a file orders by tokens has an effect, whether its declaration says so or not.
        if &*node.target == "torch.ops.higher_order.with_effects" {
            for name in names(node) {
                if let Some(decl) = declared.get_mut(&*name) {
                    decl.effect.get_or_insert_with(|| "ordered".to_owned());
                }
            }
        }
        left.extend(node.inputs.iter().flat_map(|input| match &input.arg {
            Argument::Graph(inner) => &inner.graph.nodes[..],
            _ => &[],
        }));
    }
    Ok(declared)
}

/// The declaration of the operator that does in place what one does, if somebody has it. What is wrong with it is nobody's error: the program
/// does not name it.
fn twin(of: &OpDecl, schemas: &dyn Schemas) -> Option<(String, OpDecl)> {
    let name = of.schema.twin_name()?;
    let twin = schemas.declaration(&name).ok()??;
    of.schema.is_twin(&twin.schema).then_some((name, twin))
}

/// The operators that a node applies: its own, and those that it is given.
fn names<'a>(node: &'a Node<'_>) -> impl Iterator<Item = Cow<'a, str>> {
    let given = node.inputs.iter().filter_map(|input| match &input.arg {
        Argument::Operator(name) => Some(&**name),
        _ => None,
    });
    let named = given.chain([&*node.target]).filter_map(operator_of).map(Cow::Borrowed);
    named.chain(kernel_of(node).map(Cow::Owned))
}

/// `mylib.foo.default` of `torch.ops.mylib.foo.default`; none of higher-order operators.
pub(crate) fn operator_of(target: &str) -> Option<&str> {
    let name = target.strip_prefix("torch.ops.").unwrap_or(target);
    (!name.starts_with("higher_order.")).then_some(name)
}
