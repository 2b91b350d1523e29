//! Finds what a pass left wrong in a graph: types that inference does not confirm, writes after functionalisation, and
//! other results or updates than the graph had.

use super::Pass;
use litz_ir::graph::{Arg, Graph, Node, TensorType, Type, Value};
use litz_ir::{Diag, Diags};
use litz_ops::layout::{is_overlapping, same};
use litz_ops::{InferCx, Rule, Table, check_devices, infer};
use litz_sym::Facts;

/// What is known of a graph, each more than the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Form {
    /// Types are what a file states.
    Stated,
    /// Types are what operators infer.
    Typed,
    /// No operator writes to its arguments; `update`s at the end do.
    Functional,
    /// Tensors are where kernels run, and results are what callers see.
    Placed,
}

/// Verifies a graph after each pass.
#[derive(Default)]
pub struct Verifier {
    interface: Option<Interface>,
}

/// What callers see of a graph, from where it is placed.
struct Interface {
    outputs: Vec<Option<Type>>,
    updates: Vec<Value>,
}

impl Verifier {
    /// What is wrong with the graph after `pass`.
    ///
    /// Slugs: those of [`litz_ir::verify::graph`], `device`, `type-disagrees`, `late-write`, `interface-changed`.
    pub fn after(&mut self, pass: &Pass, graph: &Graph) -> Diags {
        let mut diags = litz_ir::verify::graph::verify(graph);
        diags.extend(check_devices(graph));
        if !diags.is_empty() {
            return diags;
        }
        if pass.form >= Form::Typed {
            types(graph, &mut diags);
        }
        if pass.form >= Form::Functional {
            late_writes(graph, &mut diags);
        }
        if pass.form >= Form::Placed {
            let found = Interface::of(graph);
            match &self.interface {
                Some(expected) => expected.check(&found, graph, &mut diags),
                None => self.interface = Some(found),
            }
        }
        diags
    }
}

/// Inference gives each result the type that it has.
fn types(graph: &Graph, diags: &mut Diags) {
    let table = Table::of(graph);
    let mut facts = graph.facts.clone();
    let mut cx = InferCx { table: &table, values: &graph.values, facts: &mut facts, device: graph.device };
    for node in &graph.nodes {
        match infer(&mut cx, node) {
            Ok(types) => {
                let shares = shares_memory(&mut cx, node);
                for (i, value) in node.outputs.iter().enumerate() {
                    let Some(value) = *value else { continue };
                    let (stored, inferred) = (&graph.values[value].ty, types.get(i).and_then(Option::as_ref));
                    if inferred.is_none_or(|inferred| !agree(cx.facts, stored, inferred, shares)) {
                        let inferred = inferred.map_or("no result".to_owned(), Type::to_string);
                        let name = &graph.values[value].name;
                        let message = format!("{}: %{name}: expected {inferred}, found {stored}", node.op);
                        diags.push(at(node, "type-disagrees", message));
                    }
                }
            }
            Err(error) => diags.push(at(node, "type-disagrees", error.message)),
        }
    }
}

/// Whether a node's results are read from its operand's memory.
fn shares_memory(cx: &mut InferCx<'_>, node: &Node) -> bool {
    if cx.table.hosted(node).is_some() {
        return false;
    }
    let rule = cx.table.op_of(node).map(|op| op.def.rule);
    matches!(rule, Some(Rule::View | Rule::Drop)) || cx.aliases(node).unwrap_or(true)
}

/// Whether a value of type `stored` is what a node gives that infers `inferred`. Strides follow from the operand's
/// where the memory is the operand's; a result with memory of its own may lie there in any order, with gaps as well.
fn agree(facts: &Facts, stored: &Type, inferred: &Type, shares_memory: bool) -> bool {
    let equal = |a: &[_], b: &[_]| a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| same(facts, a, b));
    match (stored, inferred) {
        (Type::Tensor(stored), Type::Tensor(inferred)) => {
            let lies_right =
                lies_equally(facts, stored, inferred) || !shares_memory && !is_overlapping(facts, stored);
            (stored.dtype, stored.device) == (inferred.dtype, inferred.device)
                && equal(&stored.sizes, &inferred.sizes)
                && lies_right
        }
        (Type::Int(stored), Type::Int(inferred)) => same(facts, *stored, *inferred),
        (Type::Float, Type::Float) | (Type::Bool, Type::Bool) => true,
        (Type::Tensor(_) | Type::Int(_) | Type::Float | Type::Bool, _) => false,
    }
}

/// Whether strides are equal where there is a second element.
fn lies_equally(facts: &Facts, a: &TensorType, b: &TensorType) -> bool {
    let is_empty = a.sizes.iter().any(|size| size.is_zero());
    let stride = |d: usize| a.sizes[d].is_one() || same(facts, a.strides[d], b.strides[d]);
    a.rank() == b.rank() && (is_empty || (0..a.rank()).all(stride))
}

/// No operator writes to its arguments.
fn late_writes(graph: &Graph, diags: &mut Diags) {
    let (table, mut facts) = (Table::of(graph), graph.facts.clone());
    let mut cx = InferCx { table: &table, values: &graph.values, facts: &mut facts, device: graph.device };
    for node in &graph.nodes {
        if cx.writes(node) {
            let message = format!("{} writes to its argument after functionalisation", node.op);
            diags.push(at(node, "late-write", message));
        }
    }
}

impl Interface {
    fn of(graph: &Graph) -> Interface {
        let ty = |output: &Arg| output.as_value().map(|value| graph.values[value].ty.clone());
        Interface {
            outputs: graph.outputs.iter().map(ty).collect(),
            updates: graph.updates.iter().map(|update| update.0).collect(),
        }
    }

    /// Outputs have the types that they had, and the same inputs and constants get new contents.
    fn check(&self, found: &Interface, graph: &Graph, diags: &mut Diags) {
        let mut fail = |message: String| diags.push(Diag::new("interface-changed", message));
        if found.updates != self.updates {
            fail(format!("expected {} updates as they were, found others", self.updates.len()));
        }
        if found.outputs.len() != self.outputs.len() {
            fail(format!("expected {} results, found {}", self.outputs.len(), found.outputs.len()));
        }
        for (i, (old, new)) in self.outputs.iter().zip(&found.outputs).enumerate() {
            let is_same = match (old, new) {
                (Some(old), Some(new)) => agree(&graph.facts, old, new, true),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !is_same {
                let show = |ty: &Option<Type>| ty.as_ref().map_or("a literal".to_owned(), Type::to_string);
                fail(format!("result {i}: expected {}, found {}", show(old), show(new)));
            }
        }
    }
}

fn at(node: &Node, slug: &'static str, message: String) -> Diag {
    let diag = Diag::new(slug, message);
    match node.source() {
        Some(source) => diag.source(source.to_string()),
        None => diag,
    }
}
