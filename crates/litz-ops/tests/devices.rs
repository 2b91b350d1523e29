//! Where results are, and what is refused because operands are on several devices.

use litz_ir::Diags;
use litz_ir::graph::{Graph, Type};
use litz_ops::{InferCx, Table, check_devices, infer, lower};

/// A graph on the CPU with tensors on three devices, of which two have no dimensions, and this node.
fn graph(node: &str) -> Graph {
    let text = format!(
        "graph @g on cpu {{ %x: f32[3] = input %s: f32[] = input %i: i64[2] = input
        %y: f32[3] on cuda:0 = input %t: f32[] on cuda:0 = input %z: f32[3] on cuda:1 = input
        %r: f32[1] = {node} at \"model.py:7\" return %r }}"
    );
    litz_ir::text::graph::parse(&text).unwrap_or_else(|diags| panic!("{}: {text}", diags[0]))
}

fn inferred(node: &str) -> Result<String, String> {
    let (table, mut graph) = (Table::new(), graph(node));
    let mut cx =
        InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    match infer(&mut cx, &graph.nodes[0]).map_err(|error| format!("{}: {error}", error.slug))?.as_slice() {
        [Some(Type::Tensor(ty)), ..] => Ok(ty.device.to_string()),
        other => panic!("{node}: {other:?}"),
    }
}

#[test]
fn results_are_where_an_argument_or_the_operands_are() {
    for (node, device) in [
        ("aten.neg.default(%z)", "cuda:1"),
        ("aten.expand.default(%z, [2, 3], false)", "cuda:1"),
        ("aten.cat.default([%y, %y], 0)", "cuda:0"),
        ("aten.lerp.Tensor(%s, %y, %t)", "cuda:0"),
        ("aten.mul.Tensor(%s, %y)", "cuda:0"),
        ("aten.mul.Tensor(%s, %t)", "cuda:0"),
        ("aten.mul.Tensor(%s, %s)", "cpu"),
        ("aten.one_hot.default(%i, 4)", "cpu"),
        ("aten.dot.default(%y, %y)", "cuda:0"),
        ("aten.zeros.default([2], f32, none, none, none)", "cpu"),
        ("aten.zeros.default([2], f32, none, cuda:1, none)", "cuda:1"),
        ("aten.zeros_like.default(%y, none, none, none, none, none)", "cuda:0"),
        ("aten.zeros_like.default(%y, none, none, cpu, none, none)", "cpu"),
        ("aten._to_copy.default(%y, f64, none, none, none, false, none)", "cuda:0"),
        ("aten._to_copy.default(%y, none, none, cpu, none, false, none)", "cpu"),
        ("aten.to.device(%y, cuda:1, f32, false, false, none)", "cuda:1"),
        ("aten.to.other(%y, %x, false, false, none)", "cpu"),
        ("aten.type_as.default(%x, %z)", "cuda:1"),
        ("aten.copy.default(%y, %x, false)", "cuda:0"),
        ("aten.copy_.default(%y, %x, false)", "cuda:0"),
        ("aten.index.Tensor(%y, [%i])", "cuda:0"),
        ("aten.slice_scatter.default(%y, %x, 0, none, none, 1)", "cuda:0"),
    ] {
        assert_eq!(inferred(node), Ok(device.to_owned()), "{node}");
        assert_eq!(check_devices(&graph(node)), Diags::new(), "{node}");
    }
}

#[test]
fn operands_on_several_devices_are_refused_with_the_node() {
    for node in [
        "aten.mul.Tensor(%x, %y)",
        "aten.mul.Tensor(%x, %t)",
        "aten.mul.Tensor(%y, %z)",
        "aten.mul_.Tensor(%y, %x)",
        "aten.cat.default([%y, %x], 0)",
        "aten.linear.default(%x, %x, %t)",
        "aten.addcmul.default(%s, %y, %z, 1)",
    ] {
        let error = inferred(node).expect_err(node);
        assert!(error.starts_with("device: aten."), "{node}: {error}");
        let [diag] = &check_devices(&graph(node))[..] else { panic!("{node}") };
        assert_eq!((diag.slug, diag.source.as_deref()), ("device", Some("model.py:7")), "{node}");
        assert!(diag.to_string().contains(" on cuda:"), "{diag}");
    }
}

/// What is on another device than a node's results is copied to theirs before the node runs, but for numbers of the host.
#[test]
fn operands_are_copied_to_where_results_are() {
    for (ty, node, copies) in [
        ("f32[3]", "aten._to_copy.default(%y, none, none, cpu, none, false, none)", 1),
        ("f64[3]", "aten._to_copy.default(%y, f64, none, cpu, none, false, none)", 1),
        ("f32[3] on cuda:1", "aten.to.device(%y, cuda:1, f32, false, false, none)", 1),
        ("f32[3] on cuda:0", "aten.mul.Tensor(%y, %s)", 0),
        ("f32[2] on cuda:0", "aten.index.Tensor(%y, [%i])", 1),
        ("f32[3]", "aten.copy.default(%x, %y, false)", 1),
    ] {
        let mut graph = graph(node);
        let text = graph.to_string().replace("%r: f32[1]", &format!("%r: {ty}"));
        graph = litz_ir::text::graph::parse(&text).expect("parses");
        let loops = lower(&graph).unwrap_or_else(|diags| panic!("{node}: {}", diags[0]));
        let diags = litz_ir::verify::loops::verify(&loops);
        assert!(diags.is_empty(), "{node}: {diags:?}");
        assert_eq!(loops.to_string().matches("  copy n").count(), copies, "{node}: {loops}");
    }
}
