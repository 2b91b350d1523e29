//! The pass `channels_last`: types in text, numbers by lowering before and after.

mod common;

use common::{assert_text, join, outputs};
use litz_ir::graph::Graph;
use litz_ir::loops::Output;
use litz_passes::graph::{PASSES, Verifier, channels_last};

fn parse(text: &str) -> Graph {
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|d| panic!("{}\nin\n{text}", join(&d)));
    verify(&graph);
    graph
}

fn verify(graph: &Graph) {
    let diags = litz_ir::verify::graph::verify(graph);
    assert!(diags.is_empty(), "{}\nin\n{graph}", join(&diags));
}

/// Runs the pass; what the graph computes, and the layout of what it returns, stay the same.
fn run_checked(text: &str, sizes: &[(&str, i64)]) -> (Graph, usize) {
    let before = parse(text);
    let mut after = parse(text);
    let count = channels_last::run(&mut after).unwrap_or_else(|d| panic!("{}", join(&d)));
    let pass = PASSES.iter().find(|pass| pass.name == "channels_last").expect("listed");
    let mut verifier = Verifier::default();
    for graph in [&before, &after] {
        let diags = verifier.after(pass, graph);
        assert!(diags.is_empty(), "{}\nin\n{graph}", join(&diags));
    }
    let lower = |g: &Graph| litz_ops::lower(g).unwrap_or_else(|d| panic!("{}\nin\n{g}", join(&d)));
    let (old, new) = (lower(&before), lower(&after));
    common::verify(&new);
    assert!(outputs(&old, sizes) == outputs(&new, sizes), "{after}");
    let layout = |o: &Output| match o {
        Output::View { sizes, strides, .. } => Some((sizes.clone(), strides.clone())),
        Output::Number(_) | Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => None,
    };
    let layouts = |l: &litz_ir::loops::Loops| l.outputs.iter().map(layout).collect::<Vec<_>>();
    assert_eq!(layouts(&old), layouts(&new), "{after}\n{new}");
    (after, count)
}

/// A program around `%c`, the result of a convolution of `%x`.
fn around(body: &str) -> String {
    format!(
        "
graph @g on cpu {{
  %x: f32[2, 3, 5, 6] = input
  %w: f32[4, 3, 3, 3] = const \"w\"
  %c: f32[2, 4, 5, 6] = aten.conv2d.default(%x, %w, none, [1, 1], [1, 1], [1, 1], 1)
{body}
}}"
    )
}

#[test]
fn types_follow_from_convolutions() {
    let (graph, _) = run_checked(
        &around(
            "  %r: f32[2, 4, 5, 6] = aten.relu.default(%c)
  %m: f32[2, 4, 1, 1] = aten.mean.dim(%r, [2, 3], true, none)
  %y: f32[2, 4] = aten.view.default(%m, [2, 4])
  return %y",
        ),
        &[],
    );
    let text = graph.to_string();
    let expected = "
graph @g on cpu {
  %x: f32[2, 3, 5, 6] = input
  %w: f32[4, 3, 3, 3] = const \"w\"
  %x_copy: f32[2, 3, 5, 6]{90, 1, 18, 3} = aten.clone.default(%x, channels_last)
  %c: f32[2, 4, 5, 6]{120, 1, 24, 4} = aten.conv2d.default(%x_copy, %w, none, [1, 1], [1, 1], [1, 1], 1)
  %r: f32[2, 4, 5, 6]{120, 1, 24, 4} = aten.relu.default(%c)";
    assert_text(text.split("  %m:").next().unwrap_or(""), expected);
}

#[test]
fn returned_values_keep_their_layout() {
    let (graph, _) = run_checked(&around("  %r: f32[2, 4, 5, 6] = aten.relu.default(%c)\n  return %r"), &[]);
    assert!(graph.to_string().contains("%r: f32[2, 4, 5, 6] ="), "{graph}");
    // Convolutions write faster into their own layout, a copy included.
    let (graph, _) = run_checked(&around("  return %c"), &[]);
    assert!(graph.to_string().contains("%c: f32[2, 4, 5, 6]{120, 1, 24, 4} ="), "{graph}");
    assert!(graph.to_string().contains("return %c_copy"), "{graph}");
    // Views share memory with what moved: a copy is returned.
    let (graph, _) = run_checked(
        &around(
            "  %r: f32[2, 4, 5, 6] = aten.relu.default(%c)
  %p: f32[2, 5, 4, 6]{120, 6, 30, 1} = aten.permute.default(%r, [0, 2, 1, 3])
  %s: f32[4, 5, 6] = aten.select.int(%r, 0, 1)
  return %p, %s, %p",
        ),
        &[],
    );
    assert_eq!(graph.nodes.iter().filter(|n| n.op.as_str() == "aten.clone.default").count(), 3, "{graph}");
}

#[test]
fn returned_convolutions_are_read_as_planes_but_by_convolutions() {
    let body = "  %v: f32[4, 4, 3, 3] = aten.zeros.default([4, 4, 3, 3], f32, none, none, none)
  %m: f32[1, 4, 1, 1] = aten.mean.dim(%c, [0, 2, 3], true, none)
  %s: f32[2, 4, 5, 6] = aten.sub.Tensor(%c, %m, 1)
  %d: f32[2, 4, 5, 6] = aten.conv2d.default(%c, %v, none, [1, 1], [1, 1], [1, 1], 1)
  return %c, %s, %d";
    let (graph, _) = run_checked(&around(body), &[]);
    let text = graph.to_string();
    for read in ["aten.mean.dim(%c_copy,", "aten.sub.Tensor(%c_copy,", "aten.conv2d.default(%c,"] {
        assert!(text.contains(read), "{text}");
    }
    let clones = text.matches("aten.clone.default").count();
    assert_eq!(clones, 3, "of the image, the first result and the second: {text}");
}

#[test]
fn reshapes_of_images_read_the_same_elements() {
    run_checked(
        &around(
            "  %a: f32[2, 4, 30] = aten.view.default(%c, [2, 4, 30])
  %b: f32[2, 120] = aten.flatten.using_ints(%c, 1, -1)
  %d: f32[2, 2, 2, 30] = aten.reshape.default(%a, [2, 2, 2, 30])
  %e: f32[2, 4, 5, 6] = aten.view.default(%a, [2, 4, 5, 6])
  %f: f32[60, 4] = aten.reshape.default(%c, [60, 4])
  return %a, %b, %d, %e, %f",
        ),
        &[],
    );
}

#[test]
fn elementwise_operands_of_convolutions_are_written_in_place() {
    let text = "
graph @g on cpu {
  %x: f32[2, 3, 5, 6] = input
  %w: f32[4, 3, 1, 1] = const \"w\"
  %n: f32[2, 3, 5, 6] = aten.neg.default(%x)
  %c: f32[2, 4, 5, 6] = aten.conv2d.default(%n, %w, none, [1, 1], [0, 0], [1, 1], 1)
  %k: f32[2, 3, 5, 6] = aten.abs.default(%n)
  %d: f32[2, 4, 5, 6] = aten.conv2d.default(%k, %w, none, [1, 1], [0, 0], [1, 1], 1)
  %y: f32[2, 4, 5, 6] = aten.add.Tensor(%c, %d, alpha=1)
  return %y, %k
}"
    .replace("alpha=1", "1");
    let (graph, _) = run_checked(&text, &[]);
    let text = graph.to_string();
    assert!(text.contains("%n: f32[2, 3, 5, 6]{90, 1, 18, 3}"), "{text}");
    // Returned, so copied for the second convolution.
    assert!(text.contains("%k: f32[2, 3, 5, 6] ="), "{text}");
    assert!(text.contains("%k_copy"), "{text}");
}

#[test]
fn what_depends_on_memory_order_sees_the_original_layout() {
    let (graph, _) = run_checked(
        &around(
            "  %r: f32[2, 4, 5, 6] = aten.relu.default(%c)
  %s: f32[7]{3} = aten.as_strided.default(%r, [7], [3], 2)
  %y: f32[7] = aten.neg.default(%s)
  return %y",
        ),
        &[],
    );
    assert!(graph.to_string().contains("%r_copy: f32[2, 4, 5, 6] ="), "{graph}");
}

#[test]
fn chains_of_convolutions_norms_and_pools_stay_in_one_layout() {
    let (graph, _) = run_checked(
        &around(
            "  %g: f32[4] = const \"g\"
  %b: f32[4] = const \"b\"
  %mean: f32[4] = const \"mean\"
  %var: f32[4] = const \"positive\"
  %n: f32[2, 4, 5, 6] = aten.batch_norm.default(%c, %g, %b, %mean, %var, false, 0.1, 1e-5, true)
  %p: f32[2, 4, 3, 3] = aten.max_pool2d.default(%n, [2, 2], [2, 2], [1, 0], [1, 1], false)
  %q: f32[2, 8, 3, 3] = aten.cat.default([%p, %p], 1)
  %v: f32[5, 8, 1, 1] = const \"v\"
  %d: f32[2, 5, 3, 3] = aten.conv2d.default(%q, %v, none, [1, 1], [0, 0], [1, 1], 1)
  %y: f32[2, 5, 3, 3] = aten.relu.default(%d)
  return %y",
        ),
        &[],
    );
    let clones = graph.nodes.iter().filter(|n| n.op.as_str() == "aten.clone.default").count();
    assert_eq!(clones, 1, "{graph}");
    for name in ["%n", "%p", "%q", "%d"] {
        let text = graph.to_string();
        let line = text.lines().find(|l| l.trim().starts_with(&format!("{name}:"))).unwrap_or("");
        assert!(line.contains("{"), "{line}");
    }
}

#[test]
fn graphs_without_images_stay() {
    let text = "
graph @g on cpu {
  %x: f32[2, 3, 9] = input
  %w: f32[4, 3, 3] = const \"w\"
  %c: f32[2, 4, 7] = aten.conv1d.default(%x, %w, none, [1], [0], [1], 1)
  return %c
}";
    assert_eq!(run_checked(text, &[]).1, 0);
}

#[test]
fn sizes_may_be_symbolic() {
    let text = "
graph @g on cpu {
  sym s0 in [1, 64]
  sym s1 in [3, 64]
  %x: f32[s0, 3, s1, s1] = input
  %w: f32[4, 3, 3, 3] = const \"w\"
  %c: f32[s0, 4, s1, s1] = aten.conv2d.default(%x, %w, none, [1, 1], [1, 1], [1, 1], 1)
  %r: f32[s0, 4, s1, s1] = aten.relu.default(%c)
  %y: f32[s0, 4*s1*s1] = aten.flatten.using_ints(%r, 1, -1)
  return %y
}";
    let (graph, _) = run_checked(text, &[("s0", 2), ("s1", 4)]);
    assert!(graph.to_string().contains("{4*s1*s1, 1, 4*s1, 4}"), "{graph}");
}
