//! The graph passes `functionalize`, `decompose`, `noop`, `cse` and `dce`: text where the shape of the result matters,
//! numbers by lowering.

mod common;

use common::{assert_text, join, outputs};
use litz_ir::graph::Graph;
use litz_passes::graph::{GraphSettings, PASSES, Verifier};

fn parse(text: &str) -> Graph {
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|d| panic!("{}\nin\n{text}", join(&d)));
    verify(&graph);
    graph
}

fn verify(graph: &Graph) {
    let diags = litz_ir::verify::graph::verify(graph);
    assert!(diags.is_empty(), "{}\nin\n{graph}", join(&diags));
}

fn apply(graph: &mut Graph, name: &str) -> usize {
    let pass = PASSES.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no pass {name}"));
    let count = (pass.run)(graph, &GraphSettings::default()).unwrap_or_else(|d| panic!("{}", join(&d)));
    let diags = Verifier::default().after(pass, graph);
    assert!(diags.is_empty(), "{}\nin\n{graph}", join(&diags));
    count
}

fn values(graph: &Graph, sizes: &[(&str, i64)]) -> Vec<Vec<f64>> {
    let loops = litz_ops::lower(graph).unwrap_or_else(|d| panic!("{}\nin\n{graph}", join(&d)));
    common::verify(&loops);
    outputs(&loops, sizes)
}

/// Applies one pass to a graph with this body and compares the text of what follows the inputs.
fn check(name: &str, inputs: &str, body: &str, expected: &str) {
    let text = |body: &str| format!("graph @g on cpu {{\n{inputs}\n{body}\n}}\n");
    let mut graph = parse(&text(body));
    apply(&mut graph, name);
    assert_text(&graph.to_string(), &text(expected));
}

const INPUTS: &str = "  %x: f32[3, 4] = input
  %y: f32[3, 4] = input";

// functionalize

/// Functionalises a graph with this body; it then computes what the functional body does.
fn check_functional(body: &str, functional: &str) -> Graph {
    let text = |body: &str| format!("graph @g on cpu {{\n{INPUTS}\n{body}\n}}\n");
    let mut graph = parse(&text(body));
    apply(&mut graph, "functionalize");
    apply(&mut graph, "decompose");
    assert!(values(&graph, &[]) == values(&parse(&text(functional)), &[]), "{graph}");
    graph
}

#[test]
fn writes_become_values_and_updates() {
    check(
        "functionalize",
        INPUTS,
        "  %a: f32[3, 4] = aten.add_.Tensor(%x, %y, 1)
  %b: f32[3, 4] = aten.neg.default(%x)
  return %a, %b",
        "  %fn: f32[3, 4] = aten.add.Tensor(%x, %y, 1)
  %b: f32[3, 4] = aten.neg.default(%fn)
  update %x = %fn
  return %fn, %b",
    );
}

#[test]
fn computed_values_are_written_without_updates() {
    let graph = check_functional(
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %b: f32[3, 4] = aten.mul_.Tensor(%a, %y)
  %c: f32[3, 4] = aten.add.Tensor(%a, %b, 1)
  return %c",
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %b: f32[3, 4] = aten.mul.Tensor(%a, %y)
  %c: f32[3, 4] = aten.add.Tensor(%b, %b, 1)
  return %c",
    );
    assert!(graph.updates.is_empty());
}

#[test]
fn views_see_writes_to_their_base() {
    check_functional(
        "  %v: f32[4] = aten.select.int(%x, 0, 1)
  %a: f32[3, 4] = aten.neg_.default(%x)
  %b: f32[4] = aten.abs.default(%v)
  return %b, %v",
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %v: f32[4] = aten.select.int(%a, 0, 1)
  %b: f32[4] = aten.abs.default(%v)
  update %x = %a
  return %b, %v",
    );
}

#[test]
fn bases_see_writes_through_views_of_views() {
    let graph = check_functional(
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %t: f32[4, 3]{1, 4} = aten.t.default(%a)
  %v: f32[2, 3]{1, 4} = aten.slice.Tensor(%t, 0, 1, 3, 1)
  %w: f32[2]{1} = aten.select.int(%v, 1, 2)
  %r: f32[2] = aten.neg_.default(%w)
  %b: f32[3, 4] = aten.add.Tensor(%a, %y, 1)
  return %b, %r, %t",
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %row: f32[1, 4] = aten.slice.Tensor(%a, 0, 2, 3, 1)
  %other: f32[2, 4] = aten.slice.Tensor(%a, 0, 0, 2, 1)
  %p: f32[1, 1] = aten.slice.Tensor(%row, 1, 0, 1, 1)
  %q: f32[1, 2] = aten.slice.Tensor(%row, 1, 1, 3, 1)
  %s: f32[1, 1] = aten.slice.Tensor(%row, 1, 3, 4, 1)
  %n: f32[1, 2] = aten.neg.default(%q)
  %changed: f32[1, 4] = aten.cat.default([%p, %n, %s], 1)
  %all: f32[3, 4] = aten.cat.default([%other, %changed], 0)
  %b: f32[3, 4] = aten.add.Tensor(%all, %y, 1)
  %m: f32[2] = aten.view.default(%n, [2])
  %t: f32[4, 3]{1, 4} = aten.t.default(%all)
  return %b, %m, %t",
    );
    assert!(graph.updates.is_empty());
}

#[test]
fn writes_through_reshapes_and_pieces_reach_the_base() {
    check_functional(
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %v: f32[12] = aten.view.default(%a, [12])
  %p: f32[6], %q: f32[6] = aten.split.Tensor(%v, 6, 0)
  %n: f32[6] = aten.neg_.default(%q)
  %b: f32[3, 4] = aten.add.Tensor(%a, %y, 1)
  return %b, %p",
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %v: f32[12] = aten.view.default(%a, [12])
  %p: f32[6], %q: f32[6] = aten.split.Tensor(%v, 6, 0)
  %n: f32[6] = aten.neg.default(%q)
  %c: f32[12] = aten.cat.default([%p, %n], 0)
  %d: f32[3, 4] = aten.view.default(%c, [3, 4])
  %b: f32[3, 4] = aten.add.Tensor(%d, %y, 1)
  return %b, %p",
    );
}

#[test]
fn every_cut_can_be_written_through() {
    for cut in [
        "%q: f32[3, 2]{4, 1} = aten.narrow.default(%a, 1, 2, 2)",
        "_, %q: f32[3, 2]{4, 1} = aten.chunk.default(%a, 2, -1)",
        "_, %q: f32[3, 2]{4, 1} = aten.split.Tensor(%a, 2, 1)",
        "_, %q: f32[3, 2]{4, 1} = aten.split_with_sizes.default(%a, [2, 2], 1)",
        "%q: f32[3, 2]{4, 1} = aten.slice.Tensor(%a, 1, 2, 9223372036854775807, 1)",
    ] {
        check_functional(
            &format!(
                "  %a: f32[3, 4] = aten.neg.default(%x)
  {cut}
  %n: f32[3, 2] = aten.neg_.default(%q)
  return %a"
            ),
            "  %a: f32[3, 4] = aten.neg.default(%x)
  %p: f32[3, 2]{4, 1} = aten.slice.Tensor(%a, 1, 0, 2, 1)
  %q: f32[3, 2]{4, 1} = aten.slice.Tensor(%a, 1, 2, 4, 1)
  %n: f32[3, 2] = aten.neg.default(%q)
  %c: f32[3, 4] = aten.cat.default([%p, %n], 1)
  return %c",
        );
    }
}

/// A write through a view is a write to the elements that its index function names, whatever the view is called.
#[test]
fn every_arrangement_can_be_written_through() {
    for view in [
        "aten.movedim.int(%a, 0, 1)",
        "aten.mT.default(%a)",
        "aten.numpy_T.default(%a)",
        "aten.swapdims.default(%a, -1, 0)",
    ] {
        check_functional(
            &format!(
                "  %a: f32[3, 4] = aten.neg.default(%x)\n  %v: f32[4, 3]{{1, 4}} = {view}\n  %n: f32[4, 3]{{1, 4}} = aten.exp_.default(%v)\n  return %a, %v"
            ),
            "  %a: f32[3, 4] = aten.neg.default(%x)
  %e: f32[3, 4] = aten.exp.default(%a)
  %v: f32[4, 3]{1, 4} = aten.t.default(%e)
  return %e, %v",
        );
    }
    for view in [
        "f32[3, 1, 4]{4, 4, 1} = aten.unsqueeze.default(%a, 1)",
        "f32[12] = aten.ravel.default(%a)",
        "f32[3, 2, 2] = aten.unflatten.int(%a, 1, [2, 2])",
        "f32[3, 4] = aten.expand.default(%a, [3, -1], false)",
        "f32[3, 4] = aten.dropout.default(%a, 0.5, false)",
        "f32[3, 4] = aten.type_as.default(%a, %y)",
        "f32[3, 4] = aten.to.dtype(%a, f32, false, false, none)",
        "f32[3, 4] = aten.contiguous.default(%a, contiguous)",
    ] {
        let ty = view.split(" = ").next().unwrap_or_default();
        check_functional(
            &format!(
                "  %a: f32[3, 4] = aten.neg.default(%x)\n  %v: {view}\n  %n: {ty} = aten.exp_.default(%v)\n  return %a"
            ),
            "  %a: f32[3, 4] = aten.neg.default(%x)\n  %e: f32[3, 4] = aten.exp.default(%a)\n  return %e",
        );
    }
    // Both dimensions are cut, one by a step.
    check_functional(
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %r: f32[2, 4]{8, 1} = aten.slice.Tensor(%a, 0, 0, 3, 2)
  _, %c: f32[2]{8}, _, _ = aten.unbind.int(%r, 1)
  %n: f32[2]{8} = aten.exp_.default(%c)
  return %a",
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %r: f32[2, 4]{8, 1} = aten.slice.Tensor(%a, 0, 0, 3, 2)
  %c: f32[2]{8} = aten.select.int(%r, 1, 1)
  %e: f32[2] = aten.exp.default(%c)
  %s: f32[2, 4]{8, 1} = aten.select_scatter.default(%r, %e, 1, 1)
  %b: f32[3, 4] = aten.slice_scatter.default(%a, %s, 0, 0, 3, 2)
  return %b",
    );
}

#[test]
fn overlapping_views_cannot_be_written_through() {
    for view in [
        "f32[2, 3, 4]{0, 4, 1} = aten.expand.default(%a, [2, 3, 4], false)",
        "f32[3, 3, 2]{4, 1, 1} = aten.unfold.default(%a, 1, 2, 1)",
    ] {
        let ty = view.split(" = ").next().unwrap_or_default();
        let mut graph = parse(&format!(
            "graph @g on cpu {{\n{INPUTS}\n  %a: f32[3, 4] = aten.neg.default(%x)\n  %v: {view}\n  %n: {ty} = aten.exp_.default(%v)\n  return %a\n}}\n"
        ));
        let diags = litz_passes::graph::functionalize::run(&mut graph).expect_err("elements overlap");
        assert_eq!(diags[0].slug, "unsupported-operator");
        assert!(diags[0].help.is_some(), "{}", diags[0]);
    }
}

/// What an operator gave other sizes has those of its result from then on.
#[test]
fn what_changed_its_sizes_is_used_no_more() {
    let body = "  %copy: f32[3, 4] = aten.clone.default(%x, none)
  %turned: f32[4, 3]{1, 4} = aten.t_.default(%copy)
  %a: f32[3, 4] = aten.neg.default(%copy)
  return %a, %turned";
    let mut graph = parse(&format!("graph @g on cpu {{\n{INPUTS}\n{body}\n}}\n"));
    let pass = PASSES.iter().find(|p| p.name == "functionalize").expect("listed");
    let diags = (pass.run)(&mut graph, &GraphSettings::default()).expect_err("%copy is used");
    assert!(diags[0].to_string().contains("%copy is used after aten.t_.default"), "{}", diags[0]);
}

/// A statistic that is written twice at once has no new contents that would be right.
#[test]
fn statistics_have_memory_of_their_own() {
    let body = "  %s: f32[4] = aten.select.int(%x, 0, 0)
  %a: f32[3, 4] = aten.batch_norm.default(%y, none, none, %s, %s, true, 0.1, 0.001, false)
  return %a";
    let mut graph = parse(&format!("graph @g on cpu {{\n{INPUTS}\n{body}\n}}\n"));
    let pass = PASSES.iter().find(|p| p.name == "functionalize").expect("listed");
    let diags = (pass.run)(&mut graph, &GraphSettings::default()).expect_err("both are %s");
    assert!(diags[0].to_string().contains("share memory"), "{}", diags[0]);
}

/// What is copied is apart: writes to it leave the original, and the original's leave it.
#[test]
fn copies_are_no_views() {
    for copy in [
        "aten.to.dtype(%x, f32, false, true, none)",
        "aten.lift_fresh_copy.default(%x)",
        "aten.clone.default(%x, none)",
    ] {
        let graph = check_functional(
            &format!("  %c: f32[3, 4] = {copy}\n  %n: f32[3, 4] = aten.exp_.default(%c)\n  return %x, %c"),
            "  %n: f32[3, 4] = aten.exp.default(%x)\n  return %x, %n",
        );
        assert!(graph.updates.is_empty(), "{graph}");
    }
    // A transpose cannot be seen as one dimension.
    check_functional(
        "  %t: f32[4, 3]{1, 4} = aten.t.default(%x)
  %f: f32[12] = aten.flatten.using_ints(%t, 0, -1)
  %n: f32[12] = aten.exp_.default(%f)
  return %x, %f",
        "  %t: f32[4, 3]{1, 4} = aten.t.default(%x)
  %f: f32[12] = aten.flatten.using_ints(%t, 0, -1)
  %n: f32[12] = aten.exp.default(%f)
  return %x, %n",
    );
}

/// `detach_` writes to no element.
#[test]
fn what_only_autograd_sees_disappears() {
    check(
        "functionalize",
        INPUTS,
        "  %d: f32[3, 4] = aten.detach_.default(%x)
  %a: f32[3, 4] = aten.neg.default(%d)
  %e: f32[3, 4] = aten.exp_.default(%a)
  %f: f32[3, 4] = aten.detach_.default(%e)
  return %f",
        "  %a: f32[3, 4] = aten.neg.default(%x)
  %fn: f32[3, 4] = aten.exp.default(%a)
  return %fn",
    );
}

#[test]
fn results_convert_to_the_type_of_what_is_written() {
    let mut graph = parse(
        "graph @g on cpu {
  %x: bf16[3] = input
  %y: f32[3] = input
  %a: bf16[3] = aten.add_.Tensor(%x, %y, 1)
  return %a
}",
    );
    apply(&mut graph, "functionalize");
    let text = graph.to_string();
    assert!(text.contains("bf16[3] = aten._to_copy.default"), "{text}");
}

#[test]
fn functional_graphs_stay() {
    let body = "  %a: f32[3, 4] = aten.neg.default(%x)
  return %a";
    check("functionalize", INPUTS, body, body);
}

// decompose

#[test]
fn operators_become_what_they_are_made_of() {
    let text = |body: &str| format!("graph @g on cpu {{\n{INPUTS}\n{body}\n}}\n");
    let mut graph = parse(&text(
        "  %d: f32[3, 3] = aten.diff.default(%x, 1, -1, none, none)
  return %d",
    ));
    assert!(apply(&mut graph, "decompose") > 0);
    let expected = parse(&text(
        "  %a: f32[3, 3]{4, 1} = aten.slice.Tensor(%x, 1, 1, 4, 1)
  %b: f32[3, 3]{4, 1} = aten.slice.Tensor(%x, 1, 0, 3, 1)
  %d: f32[3, 3] = aten.sub.Tensor(%a, %b, 1)
  return %d",
    ));
    assert!(values(&graph, &[]) == values(&expected, &[]), "{graph}");
}

// noop

#[test]
fn identities_disappear() {
    check(
        "noop",
        INPUTS,
        "  %a: f32[3, 4] = aten.clone.default(%x, none)
  %b: f32[3, 4] = aten.view.default(%a, [3, 4])
  %c: f32[3, 4] = aten.expand.default(%b, [-1, -1], false)
  %d: f32[3, 4] = aten.detach.default(%c)
  %e: f32[3, 4] = aten.neg.default(%d)
  return %e",
        "  %e: f32[3, 4] = aten.neg.default(%x)
  return %e",
    );
    check(
        "noop",
        INPUTS,
        "  %a: f32[3, 4] = aten.permute.default(%x, [0, -1])
  %b: f32[3, 4] = aten.movedim.int(%a, 1, 1)
  %c: f32[3, 4] = aten.slice.Tensor(%b, 1, 0, 9, 1)
  %d: f32[3, 4] = aten.reshape_as.default(%c, %y)
  %e: f32[3, 4] = aten.neg.default(%d)
  return %e",
        "  %e: f32[3, 4] = aten.neg.default(%x)
  return %e",
    );
}

#[test]
fn what_only_looks_like_an_identity_stays() {
    let square = "  %x: f32[3, 3] = input";
    for body in [
        "  %a: f32[3, 3] = aten.constant_pad_nd.default(%x, [1, -1], 0.0)\n  return %a",
        "  %a: f32[3, 3]{1, 3} = aten.t.default(%x)\n  return %a",
        "  %a: f32[3, 3] = aten.flip.default(%x, [0])\n  return %a",
        "  %a: f64[3, 3] = aten._to_copy.default(%x, f64, none, none, none, false, none)\n  return %a",
    ] {
        check("noop", square, body, body);
    }
    check(
        "noop",
        square,
        "  %a: f32[3, 3] = aten.constant_pad_nd.default(%x, [0, 0], 0.0)\n  %b: f32[3, 3] = aten.neg.default(%a)\n  return %b",
        "  %b: f32[3, 3] = aten.neg.default(%x)\n  return %b",
    );
}

// cse

#[test]
fn equal_nodes_become_one() {
    check(
        "cse",
        INPUTS,
        "  %a: f32[3, 4] = aten.add.Tensor(%x, %y, 1)
  %b: f32[3, 4] = aten.add.Tensor(%x, %y, 1)
  %c: f32[3, 4] = aten.add.Tensor(%x, %y, 2)
  %d: f32[3, 4] = aten.mul.Tensor(%a, %c)
  %e: f32[3, 4] = aten.mul.Tensor(%b, %c)
  %f: f32[3, 4] = aten.sub.Tensor(%d, %e, 1)
  return %f, %b",
        "  %a: f32[3, 4] = aten.add.Tensor(%x, %y, 1)
  %c: f32[3, 4] = aten.add.Tensor(%x, %y, 2)
  %d: f32[3, 4] = aten.mul.Tensor(%a, %c)
  %f: f32[3, 4] = aten.sub.Tensor(%d, %d, 1)
  return %f, %a",
    );
}

#[test]
fn results_that_only_one_of_equal_nodes_names_are_kept() {
    check(
        "cse",
        INPUTS,
        "  %a: f32[3], _ = aten.max.dim(%x, 1, false)
  _, %i: i64[3] = aten.max.dim(%x, 1, false)
  return %a, %i",
        "  %a: f32[3], %i: i64[3] = aten.max.dim(%x, 1, false)
  return %a, %i",
    );
}

#[test]
fn literals_that_differ_in_sign_or_kind_differ() {
    let body = "  %a: f32[3, 4] = aten.add.Scalar(%x, 0.0, 1)
  %b: f32[3, 4] = aten.add.Scalar(%x, -0.0, 1)
  %c: f32[3, 4] = aten.add.Scalar(%x, 0, 1)
  return %a, %b, %c";
    check("cse", INPUTS, body, body);
}

#[test]
fn what_differs_from_call_to_call_stays_apart() {
    let body = "  %a: f32[3, 4] = aten.dropout.default(%x, 0.5, true)
  %b: f32[3, 4] = aten.dropout.default(%x, 0.5, true)
  return %a, %b";
    check_refused_later("cse", body);
    check(
        "cse",
        INPUTS,
        "  %a: f32[3, 4] = aten.dropout.default(%x, 0.5, false)
  %b: f32[3, 4] = aten.dropout.default(%x, 0.5, false)
  return %a, %b",
        "  %a: f32[3, 4] = aten.dropout.default(%x, 0.5, false)
  return %a, %a",
    );
    // Nobody knows what an operator without an entry does.
    let body = "  %a: f32[3, 4] = custom.noise.default(%x)
  %b: f32[3, 4] = custom.noise.default(%x)
  return %a, %b";
    check_refused_later("cse", body);
}

/// A pass leaves alone what lowering refuses.
fn check_refused_later(name: &str, body: &str) {
    let text = format!("graph @g on cpu {{\n{INPUTS}\n{body}\n}}\n");
    let mut graph = parse(&text);
    let pass = PASSES.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no pass {name}"));
    assert_eq!((pass.run)(&mut graph, &GraphSettings::default()), Ok(0));
    assert_text(&graph.to_string(), &text);
    assert!(litz_ops::lower(&graph).is_err());
}

// dce

#[test]
fn assertions_stay() {
    check(
        "dce",
        INPUTS,
        "  %c: bool[] = aten.all.default(%x)
  aten._assert_async.msg(%c, \"all of x\")
  aten._assert_tensor_metadata.default(%x, none, none, none, none, none)
  return %y",
        "  %c: bool[] = aten.all.default(%x)
  aten._assert_async.msg(%c, \"all of x\")
  aten._assert_tensor_metadata.default(%x, none, none, none, none, none)
  return %y",
    );
}

#[test]
fn what_nothing_uses_disappears() {
    check(
        "dce",
        INPUTS,
        "  %a: f32[3], %i: i64[3] = aten.max.dim(%x, 1, false)
  %b: f32[3, 4] = aten.neg.default(%y)
  %c: f32[3, 4] = aten.abs.default(%b)
  %d: f32[3, 4] = aten.exp.default(%y)
  update %y = %d
  return %a",
        "  %a: f32[3], _ = aten.max.dim(%x, 1, false)
  %d: f32[3, 4] = aten.exp.default(%y)
  update %y = %d
  return %a",
    );
}

// All of them.

#[test]
fn all_passes_together_keep_results() {
    let text = "graph @g on cpu {
  sym s0 in [1, 8]
  %x: f32[s0, 3, 6, 5] = input
  %w: f32[4, 3, 3, 3] = const \"w\"
  %b: f32[4] = const \"b\"
  %v: f32[7, 24] = const \"v\"
  %c: f32[s0, 4, 6, 5] = aten.conv2d.default(%x, %w, %b, [1, 1], [1, 1], [1, 1], 1)
  %d: f32[s0, 4, 6, 5] = aten.clone.default(%c, none)
  %r: f32[s0, 4, 6, 5] = aten.relu.default(%d)
  %m: f32[s0, 4, 3, 2] = aten.max_pool2d.default(%r, [2, 2], [2, 2], [0, 0], [1, 1], false)
  %f: f32[s0, 24] = aten.flatten.using_ints(%m, 1, -1)
  %y: f32[s0, 7] = aten.linear.default(%f, %v, none)
  return %y, %r
}";
    for s0 in [1, 3] {
        let before = values(&parse(text), &[("s0", s0)]);
        let mut graph = parse(text);
        for pass in PASSES {
            apply(&mut graph, pass.name);
            assert!(values(&graph, &[("s0", s0)]) == before, "{}\n{graph}", pass.name);
        }
        let mut loops = litz_ops::lower(&graph).unwrap_or_else(|d| panic!("{}", join(&d)));
        for pass in litz_passes::loops::PASSES {
            common::run_pass(|loops, cx| pass.apply(loops, cx), &mut loops);
            common::verify(&loops);
            assert!(outputs(&loops, &[("s0", s0)]) == before, "{}\n{loops}", pass.name);
        }
        // The image has a border, its windows no guards.
        let text = loops.to_string();
        assert!(text.contains("x_copy_border"), "{text}");
        assert!(!text.contains("else 0.0\n    %1: f32 = load w"), "{text}");
    }
}

#[test]
fn integers_are_what_operators_give() {
    let run = |ty: &str| {
        let text = format!(
            "graph @g on cpu {{\n  %x: f32[64] = input\n  %s: {ty} = aten.sym_size.int(%x, 0)\n  return %s\n}}\n"
        );
        let mut graph = litz_ir::text::graph::parse(&text).expect("parses");
        litz_passes::graph::types::run(&mut graph)
    };
    assert_eq!(run("int(64)"), Ok(0));
    for wrong in ["int(28)", "float", "bool", "i64[]"] {
        let diags = run(wrong).expect_err("it contradicts the operator");
        assert_eq!(diags[0].slug, "bad-program", "{wrong}");
    }
}

/// No memory of their own holds elements that share it.
#[test]
fn results_of_branches_have_an_element_each() {
    let run = |strides: &str| {
        let text = format!(
            "graph @g on cpu {{
              graph @yes on cpu {{ %x: f32[4, 4] = input %y: f32[4, 4] = aten.neg.default(%x) return %y }}
              graph @no on cpu {{ %x: f32[4, 4] = input %y: f32[4, 4] = aten.exp.default(%x) return %y }}
              %p: bool[] = input
              %x: f32[4, 4] = input
              %y: f32[4, 4]{strides} = higher_order.cond.default(%p, @yes, @no, [%x])
              return %y
            }}"
        );
        let mut graph = litz_ir::text::graph::parse(&text).expect("parses");
        litz_passes::graph::types::run(&mut graph)
    };
    for right in ["{4, 1}", "{1, 4}", "{8, 1}"] {
        assert!(run(right).is_ok(), "{right}");
    }
    for wrong in ["{2, 1}", "{0, 1}", "{4, 0}"] {
        let diags = run(wrong).expect_err("elements share memory");
        assert!(diags[0].message.contains("share memory"), "{}", diags[0]);
    }
}

/// Of what is written to one place twice, nobody says which stays.
#[test]
fn what_is_written_through_strides_has_an_element_each() {
    let run = |strides: &str| {
        let text = format!(
            "graph @g on cpu {{
              %x: f32[4, 4] = input
              %y: f32[2, 4] = input
              %z: f32[4, 4] = aten.as_strided_scatter.default(%x, %y, [2, 4], {strides}, none)
              return %z
            }}"
        );
        let mut graph = litz_ir::text::graph::parse(&text).expect("parses");
        litz_passes::graph::types::run(&mut graph)
    };
    for right in ["[4, 1]", "[8, 1]", "[1, 2]"] {
        assert!(run(right).is_ok(), "{right}");
    }
    for wrong in ["[0, 1]", "[4, 0]", "[2, 1]", "[1]"] {
        let diags = run(wrong).expect_err("elements share memory, or have no stride");
        assert_eq!(diags[0].slug, "invalid-operator", "{wrong}: {}", diags[0]);
    }
}

/// A file may say anything of its values; indices are computed from what operators give.
#[test]
fn types_come_from_operators() {
    let text = |ty: &str| {
        format!(
            "graph @g on cpu {{\n  %x: f32[3, 4] = input\n  %y: {ty} = aten.permute.default(%x, [1, 0])\n  return %y\n}}\n"
        )
    };
    let run = |ty: &str| {
        let mut graph = litz_ir::text::graph::parse(&text(ty)).expect("parses");
        litz_passes::graph::types::run(&mut graph).map(|changed| (changed, graph.to_string()))
    };
    let right = text("f32[4, 3]{1, 4}");
    assert_eq!(run("f32[4, 3]{1, 4}"), Ok((0, right.clone())));
    // Strides are Litz's own, wherever the file says that elements are.
    assert_eq!(run("f32[4, 3]{-3, 100}"), Ok((1, right)));
    for wrong in
        ["f32[4, 4]", "f64[4, 3]{1, 4}", "f32[12]", "f32[4000000000000, 3]", "f32[4, 3]{1, 4} on cuda:0"]
    {
        let diags = run(wrong).expect_err("it contradicts the operator");
        assert_eq!(diags[0].slug, "bad-program", "{wrong}");
        assert!(diags[0].message.contains("%y: expected f32[4, 3]{1, 4}, found"), "{}", diags[0]);
    }
}

#[test]
fn a_pass_that_puts_operands_on_several_devices_is_found() {
    let text = "graph @g on cpu { %x: f32[3] = input %y: f32[3] on cuda:0 = input
        %z: f32[3] = aten.mul.Tensor(%x, %y) at \"model.py:3\" return %z }";
    for pass in PASSES {
        let diags = Verifier::default().after(pass, &parse(text));
        let [diag] = &diags[..] else { panic!("{}: {diags:?}", pass.name) };
        assert_eq!((diag.slug, diag.source.as_deref()), ("device", Some("model.py:3")), "{diag}");
    }
}
