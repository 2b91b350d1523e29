//! Puts the sizes of a call in the place of size symbols.

use crate::case::Case;
use litz_ir::graph::{Graph, Type};
use litz_sym::{Expr, Sym};
use std::collections::HashMap;

/// The case with numbers instead of the symbols that its inputs give values to; none where there are none.
pub(super) fn with_numbers(case: &Case) -> Option<Case> {
    let sizes = case.sizes();
    if sizes.is_empty() {
        return None;
    }
    let mut graph = case.graph.clone();
    replace(&mut graph, &sizes);
    Some(Case { graph, ..case.clone() })
}

fn replace(graph: &mut Graph, sizes: &HashMap<Sym, i64>) {
    let replaced = |e: Expr| e.subst(&|sym| sizes.get(&sym).map(|&size| Expr::int(size)));
    for value in graph.values.values_mut() {
        match &mut value.ty {
            Type::Tensor(ty) => {
                ty.sizes.iter_mut().chain(&mut ty.strides).for_each(|size| *size = replaced(*size));
            }
            Type::Int(number) => *number = replaced(*number),
            Type::Float | Type::Bool => {}
        }
    }
    let args = graph.nodes.iter_mut().flat_map(|node| &mut node.args).chain(&mut graph.outputs);
    args.for_each(|arg| arg.map_ints(&mut |e| replaced(e)));
    graph.facts = graph.facts.only(|sym| !sizes.contains_key(&sym));
    graph.subgraphs.iter_mut().for_each(|subgraph| replace(subgraph, sizes));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Check, Outcome, attempt};
    use crate::options::Options;
    use litz_ir::text;
    use litz_runtime::Tensor;

    #[test]
    fn symbols_become_the_sizes_of_the_call() {
        let graph = text::graph::parse(
            "graph @g on cpu {\n  sym s0 in [2, 100]\n  guard s0 <= 64 for \"x\"\n  %x: f32[s0, 3] = input\n  %y: f32[3*s0] = aten.view.default(%x, [3*s0])\n  return %y, s0\n}\n",
        );
        let x = Tensor::from_slice(&[4, 3], &[1f32; 12]).expect("lengths match");
        let graph = graph.unwrap_or_else(|diags| panic!("{diags:?}"));
        let case = Case { graph, inputs: vec![x], weights: HashMap::new(), expected: None };
        let fixed = with_numbers(&case).expect("there is a symbol");
        let text = fixed.graph.to_string();
        assert!(
            text.contains("%y: f32[12] = aten.view.default(%x, [12])") && text.contains("return %y, 4"),
            "{text}"
        );
        assert!(!text.contains("s0"), "{text}");
        assert_eq!(attempt(&fixed, &Options::default(), Check::Verify, &mut |_| {}), Outcome::Right);
        assert!(with_numbers(&fixed).is_none());
    }
}
