//! Gives every computed value the type that its operator infers.
//!
//! A file says what types its values have. Indices are computed from types, so they must be what the operators make of
//! the inputs: element types and sizes that contradict them are an error, and strides are those that Litz infers.

use litz_ir::graph::{Arg, Graph, MemoryFormat, Node, TensorType, Type, Value};
use litz_ir::{Diag, Diags};
use litz_ops::layout::is_distinct;
use litz_ops::{Builder, InferCx, Layout, OpError, Rule, Table, infer};
use litz_sym::{Expr, Facts, Known, Rel};
use std::collections::{HashMap, HashSet};

/// Infers all types; returns how many were other than stated.
///
/// # Errors
/// Every value whose stated type contradicts its operator, and every operator that PyTorch would reject.
pub fn run(graph: &mut Graph) -> Result<usize, Diags> {
    let table = Table::of(graph);
    let mut diags = Diags::new();
    let mut changed = 0;
    let mut traced: HashMap<Value, TensorType> = HashMap::new();
    // What a program says of values that nothing uses does not matter.
    let mut used = HashSet::new();
    let args = graph.nodes.iter().flat_map(|n| &n.args).chain(&graph.outputs);
    args.for_each(|a| {
        a.each_value(&mut |v| {
            used.insert(v);
        });
    });
    for node in &graph.nodes {
        let mut cx =
            InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
        let types = match infer(&mut cx, node) {
            Ok(types) => types,
            Err(error) => {
                diags.push(error.at(node, &graph.values));
                continue;
            }
        };
        if node.outputs.len() > types.len() {
            let (expected, found) = (types.len(), node.outputs.len());
            let message = format!("{}: expected at most {expected} results, found {found}", node.op);
            diags.push(OpError::new("bad-program", message).at(node, &graph.values));
            continue;
        }
        for (value, ty) in node.outputs.iter().zip(types) {
            let (Some(value), Some(inferred)) = (*value, ty) else { continue };
            let data = &mut graph.values[value];
            match &data.ty {
                stated if !used.contains(&value) || agree(stated, &inferred, &graph.facts) => {
                    if *stated != inferred {
                        changed += 1;
                        if let (Type::Tensor(stated), Type::Tensor(inferred)) = (stated, &inferred)
                            && !lie_alike(stated, inferred, &graph.facts)
                        {
                            traced.insert(value, stated.clone());
                        }
                    }
                    data.ty = inferred;
                }
                stated => {
                    let message = format!("%{}: expected {inferred}, found {stated}", data.name);
                    let diag = Diag::new("bad-program", format!("{}: {message}", node.op));
                    diags.push(match node.source() {
                        Some(source) => diag.source(source.to_string()),
                        None => diag,
                    });
                }
            }
        }
    }
    if !diags.is_empty() {
        return Err(diags);
    }
    lay_out(graph, &table, &traced)?;
    // What inference has decided, such as an assertion about sizes, has nothing left to do.
    let is_decided = |node: &Node| {
        node.outputs.is_empty() && matches!(table.op_of(node).map(|op| op.def.rule), Some(Rule::Drop))
    };
    graph.nodes.retain(|node| !is_decided(node));
    Ok(changed)
}

/// Lets operators that see where elements lie, of the host or as `as_strided`, read copies of values that lay otherwise when they were
/// traced.
fn lay_out(graph: &mut Graph, table: &Table, traced: &HashMap<Value, TensorType>) -> Result<(), Diags> {
    let reads = |node: &Node| match (table.op_of(node), table.hosted(node)) {
        (Some(op), _) => op.layout() == Layout::Reads,
        (None, hosted) => hosted.is_some_and(|hosted| hosted.layout() == Layout::Reads),
    };
    if traced.is_empty() || !graph.nodes.iter().any(reads) {
        return Ok(());
    }
    let is_written = writes_to_results(graph, table);
    let mut build = Builder::new(table, graph);
    build.name = "traced".to_owned();
    for mut node in std::mem::take(&mut build.graph.nodes) {
        let hosted = table.hosted(&node).filter(|_| table.op_of(&node).is_none());
        for at in 0..if reads(&node) { node.args.len() } else { 0 } {
            // What is written has to stay the value that it is.
            if hosted.is_some_and(|hosted| hosted.schema.written().any(|written| written == at)) {
                continue;
            }
            build.origin = node.origin.clone();
            let mut failed = None;
            node.args[at].map_values(&mut |value| match traced.get(&value) {
                // A view of a copy would be no view of the value.
                Some(ty) if is_written && hosted.is_none() => {
                    let message = format!(
                        "%{}: written in place, but expected as {ty}",
                        build.graph.values[value].name
                    );
                    failed = Some(OpError::new("unsupported", message));
                    value
                }
                Some(ty) => laid_out(&mut build, value, ty).unwrap_or_else(|error| {
                    failed = Some(error);
                    value
                }),
                None => value,
            });
            if let Some(error) = failed {
                return Err(vec![error.at(&node, &build.graph.values)]);
            }
        }
        build.graph.nodes.push(node);
    }
    Ok(())
}

/// Whether an operator writes to what another one gives.
fn writes_to_results(graph: &Graph, table: &Table) -> bool {
    let is_result = |arg: &Arg| {
        let mut is_result = false;
        arg.each_value(&mut |value| is_result |= !graph.inputs.contains(&value));
        is_result
    };
    let writes = |node: &Node| {
        let schema = table.op_of(node).map(|op| op.schema);
        schema.is_some_and(|schema| schema.written().any(|at| node.args.get(at).is_some_and(is_result)))
    };
    graph.nodes.iter().any(writes)
}

/// A copy of a value that lies as a type says.
fn laid_out(build: &mut Builder<'_>, value: Value, ty: &TensorType) -> Result<Value, OpError> {
    if !is_distinct(&build.graph.facts, ty) {
        let message = format!("%{}: no copy of it is {ty}", build.graph.values[value].name);
        return Err(OpError::new("unsupported", message));
    }
    let copy = build.copy(value, MemoryFormat::Preserve)?;
    build.graph.values[copy].ty = Type::Tensor(ty.clone());
    Ok(copy)
}

/// Whether elements of two types are known to lie in the same places. Strides of single elements are no matter.
fn lie_alike(stated: &TensorType, inferred: &TensorType, facts: &Facts) -> bool {
    let are_equal = |a: Expr, b: Expr| facts.holds(&Rel::eq(a, b));
    (0..inferred.rank())
        .all(|d| are_equal(inferred.sizes[d], 1.into()) || are_equal(stated.strides[d], inferred.strides[d]))
}

/// Whether two types may be of one value: element types and devices are equal, and no size is known to differ.
fn agree(stated: &Type, inferred: &Type, facts: &Facts) -> bool {
    let may_be_equal = |a, b| facts.known(&Rel::eq(a, b)) != Known::No;
    match (stated, inferred) {
        (Type::Tensor(stated), Type::Tensor(inferred)) => {
            (stated.dtype, stated.device) == (inferred.dtype, inferred.device)
                && stated.rank() == inferred.rank()
                && stated.sizes.iter().zip(&inferred.sizes).all(|(&a, &b)| may_be_equal(a, b))
        }
        (Type::Int(stated), Type::Int(inferred)) => may_be_equal(*stated, *inferred),
        (Type::Float, Type::Float) | (Type::Bool, Type::Bool) => true,
        (Type::Tensor(_) | Type::Int(_) | Type::Float | Type::Bool, _) => false,
    }
}
