//! Makes the sizes of a case smaller: of one extent everywhere at once.

use crate::case::Case;
use litz_ir::graph::{Arg, Graph, TensorType, Type, contiguous_strides};
use litz_ops::{InferCx, Table, infer};
use litz_runtime::Tensor;
use litz_sym::Expr;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether numbers among the arguments of operators are sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbers {
    /// They stay.
    Kept,
    /// Those that are equal to the extent become the smaller one.
    Replaced,
}

/// The extents above 1 of a case's inputs and constants, the largest first.
pub(super) fn extents(case: &Case) -> Vec<i64> {
    let mut found = BTreeSet::new();
    for value in given(&case.graph) {
        if let Type::Tensor(ty) = &case.graph.values[value].ty {
            found.extend(ty.sizes.iter().filter_map(|size| size.as_int()).filter(|size| *size > 1));
        }
    }
    found.into_iter().rev().collect()
}

/// Smaller forms of a case, with what callers choose made smaller: extents that inputs have and constants do not. The best ones come first.
pub(super) fn of_callers(case: &Case) -> Vec<Case> {
    let constants: BTreeSet<i64> =
        case.weights.values().flat_map(|weight| weight.sizes()).map(|&size| size as i64).collect();
    let is_free = |extent: &i64| *extent > 1 && !constants.contains(extent);
    let free: BTreeSet<i64> =
        case.inputs.iter().flat_map(|input| input.sizes()).map(|&size| size as i64).filter(is_free).collect();
    let form = |to: i64| {
        let mut best: Option<Case> = None;
        for &from in free.iter().rev().filter(|from| **from > to) {
            let case = best.as_ref().unwrap_or(case);
            let resized = [Numbers::Replaced, Numbers::Kept]
                .into_iter()
                .find_map(|numbers| resized(case, from, to, numbers));
            best = resized.or(best);
        }
        best
    };
    [2, 4, 8, 16, 32, 64].into_iter().filter_map(form).collect()
}

/// The case with `to` in the place of each extent `from`, and of tensors that were larger what comes first. None where operators refuse that.
pub(super) fn resized(case: &Case, from: i64, to: i64, numbers: Numbers) -> Option<Case> {
    let mut graph = case.graph.clone();
    if !graph.subgraphs.is_empty() {
        return None;
    }
    let replaced = |size: Expr| if size.as_int() == Some(from) { Expr::int(to) } else { size };
    for value in given(&graph) {
        if let Type::Tensor(ty) = &mut graph.values[value].ty {
            let sizes: Vec<Expr> = ty.sizes.iter().map(|&size| replaced(size)).collect();
            if sizes != ty.sizes {
                ty.strides = dense(ty, &sizes);
                ty.sizes = sizes;
            }
        }
    }
    if numbers == Numbers::Replaced {
        graph
            .nodes
            .iter_mut()
            .flat_map(|node| &mut node.args)
            .for_each(|arg| arg.map_ints(&mut |e| replaced(e)));
    }
    if graph.nodes.iter().any(|node| node.args.iter().any(has_part)) {
        return None;
    }
    infer_all(&mut graph)?;
    let tensor = |tensor: &Tensor| narrowed(tensor, from as usize, to as usize);
    let inputs = case.inputs.iter().map(tensor).collect::<Option<_>>()?;
    let weights = case.weights.iter().map(|(name, weight)| Some((name.clone(), tensor(weight)?)));
    Some(Case { graph, inputs, weights: weights.collect::<Option<_>>()?, expected: None })
}

/// Gives all values that nodes make the types that follow from those of inputs and constants.
fn infer_all(graph: &mut Graph) -> Option<()> {
    let table = Table::of(graph);
    for at in 0..graph.nodes.len() {
        let (values, facts, device) = (&graph.values, &mut graph.facts, graph.device);
        let mut cx = InferCx { table: &table, values, facts, device };
        let types = infer(&mut cx, &graph.nodes[at]).ok()?;
        for (value, ty) in graph.nodes[at].outputs.iter().zip(types) {
            if let (Some(value), Some(ty)) = (*value, ty) {
                graph.values[value].ty = ty;
            }
        }
    }
    Some(())
}

fn given(graph: &Graph) -> impl Iterator<Item = litz_ir::graph::Value> + use<> {
    let constants = graph.consts.iter().map(|(value, _)| *value);
    graph.inputs.iter().copied().chain(constants).collect::<Vec<_>>().into_iter()
}

/// Strides without gaps that keep the order of a type's dimensions; what is repeated stays so.
fn dense(ty: &TensorType, sizes: &[Expr]) -> Vec<Expr> {
    let strides: Option<Vec<i64>> = ty.strides.iter().map(|stride| stride.as_int()).collect();
    let Some(strides) = strides.filter(|_| !ty.is_contiguous()) else { return contiguous_strides(sizes) };
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&dim| strides[dim]);
    let mut next = Expr::one();
    let mut made = vec![Expr::zero(); sizes.len()];
    for dim in order.into_iter().filter(|&dim| strides[dim] != 0) {
        made[dim] = next;
        next = next * sizes[dim];
    }
    made
}

fn has_part(arg: &Arg) -> bool {
    let mut found = false;
    arg.each_part(&mut |_| found = true);
    found
}

/// The first `to` of each dimension of `from`.
fn narrowed(tensor: &Tensor, from: usize, to: usize) -> Option<Tensor> {
    let whole = tensor.to_contiguous().ok()?;
    let sizes: Vec<usize> = whole.sizes().iter().map(|&size| if size == from { to } else { size }).collect();
    if sizes == whole.sizes() {
        return Some(whole);
    }
    let (dtype, strides) = (whole.dtype(), whole.strides().to_vec());
    let bytes: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(whole.bytes().to_vec());
    Tensor::from_shared(dtype, &sizes, &strides, bytes, 0).ok()?.to_contiguous().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use litz_ir::text;
    use std::collections::HashMap;

    #[test]
    fn an_extent_shrinks_wherever_it_is() {
        let graph = text::graph::parse(
            "graph @g on cpu {\n  %x: f32[6, 4]{1, 6} = input\n  %w: f32[4, 3] = const \"w\"\n  %y: f32[6, 3] = aten.mm.default(%x, %w)\n  %z: f32[3, 6] = aten.view.default(%y, [3, 6])\n  return %z\n}\n",
        );
        let numbers: Vec<f32> = (0..24).map(|n| n as f32).collect();
        let x = Tensor::from_slice(&[6, 4], &numbers).expect("lengths match");
        let w = Tensor::from_slice(&[4, 3], &numbers[..12]).expect("lengths match");
        let weights = HashMap::from([("w".to_owned(), w)]);
        let case = Case { graph: graph.expect("it parses"), inputs: vec![x], weights, expected: None };
        assert_eq!(extents(&case), [6, 4, 3]);
        assert!(resized(&case, 6, 2, Numbers::Kept).is_none(), "the view has another size");
        let small = resized(&case, 6, 2, Numbers::Replaced).expect("it fits");
        let text = small.graph.to_string();
        assert!(text.contains("%x: f32[2, 4]{1, 2} = input") && text.contains("%z: f32[3, 2]"), "{text}");
        assert_eq!(small.inputs[0].to_vec::<f32>(), Some(numbers[..8].to_vec()));
        let small = resized(&small, 4, 1, Numbers::Kept).expect("it fits");
        assert_eq!(small.weights["w"].to_vec::<f32>(), Some(numbers[..3].to_vec()));
        assert_eq!(small.inputs[0].to_vec::<f32>(), Some(vec![0.0, 4.0]));
    }
}
