//! The pass `fold_batch_norm`: text of one case, numbers by lowering before and after.

mod common;

use common::{assert_text, join, outputs};
use litz_ir::graph::Graph;
use litz_passes::graph::{GraphSettings, PASSES, Verifier, fold_batch_norm};

fn parse(text: &str) -> Graph {
    litz_ir::text::graph::parse(text).unwrap_or_else(|d| panic!("{}\nin\n{text}", join(&d)))
}

fn run(text: &str, freeze: bool) -> (Graph, usize) {
    let mut graph = parse(text);
    let count = fold_batch_norm::run(&mut graph, &GraphSettings { freeze })
        .unwrap_or_else(|d| panic!("{}", join(&d)));
    let pass = PASSES.iter().find(|pass| pass.name == "fold_batch_norm").expect("listed");
    let mut verifier = Verifier::default();
    let diags: Vec<_> = [&parse(text), &graph].iter().flat_map(|graph| verifier.after(pass, graph)).collect();
    assert!(diags.is_empty(), "{}\nin\n{graph}", join(&diags));
    (graph, count)
}

/// Runs the pass and compares what the graph returns, up to rounding.
fn run_checked(text: &str) -> (Graph, usize) {
    let (graph, count) = run(text, true);
    let values = |g: &Graph| {
        let loops = litz_ops::lower(g).unwrap_or_else(|d| panic!("{}\nin\n{g}", join(&d)));
        outputs(&loops, &[])
    };
    for (old, new) in values(&parse(text)).into_iter().flatten().zip(values(&graph).into_iter().flatten()) {
        assert!((old - new).abs() <= 1e-5 * old.abs().max(1.0), "{old} {new}\n{graph}");
    }
    (graph, count)
}

/// A layer that gives `%c` and its norm that gives `%y`.
fn model(layer: &str, norm: &str, tail: &str) -> String {
    format!(
        "
graph @g on cpu {{
  %x: f32[2, 4, 5] = input
  %x2: f32[2, 4] = input
  %w: f32[6, 4, 3] = const \"w\"
  %wg: f32[6, 2, 3] = const \"wg\"
  %wt: f32[4, 6, 3] = const \"wt\"
  %w2: f32[6, 4] = const \"w2\"
  %b: f32[6] = const \"b\"
  %gamma: f32[6] = const \"gamma\"
  %beta: f32[6] = const \"beta\"
  %mean: f32[6] = const \"mean\"
  %var: f32[6] = const \"positive\"
  {layer}
  {norm}
  {tail}
}}"
    )
}

const CONV: &str = "%c: f32[2, 6, 3] = aten.conv1d.default(%x, %w, %b, [1], [0], [1], 1)";
const NORM: &str =
    "%y: f32[2, 6, 3] = aten.batch_norm.default(%c, %gamma, %beta, %mean, %var, false, 0.1, 1e-5, true)";

#[test]
fn a_norm_goes_into_the_convolution_before_it() {
    let (graph, count) = run_checked(&model(CONV, NORM, "return %y"));
    assert_eq!(count, 1);
    let text = graph.to_string();
    let nodes = text.split_once("const \"positive\"\n").map_or("", |t| t.1);
    assert_text(
        nodes,
        "
  %y_var: f32[6] = aten.add.Scalar(%var, 1e-5, 1)
  %y_scale: f32[6] = aten.rsqrt.default(%y_var)
  %y_scale_2: f32[6] = aten.mul.Tensor(%gamma, %y_scale)
  %y_scale_3: f32[6, 1, 1] = aten.reshape.default(%y_scale_2, [-1, 1, 1])
  %y_weight: f32[6, 4, 3] = aten.mul.Tensor(%w, %y_scale_3)
  %y_bias: f32[6] = aten.sub.Tensor(%b, %mean, 1)
  %y_bias_2: f32[6] = aten.mul.Tensor(%y_bias, %y_scale_2)
  %y_bias_3: f32[6] = aten.add.Tensor(%y_bias_2, %beta, 1)
  %y: f32[2, 6, 3] = aten.conv1d.default(%x, %y_weight, %y_bias_3, [1], [0], [1], 1)
  return %y
}",
    );
}

#[test]
fn every_kind_of_layer_and_norm_folds() {
    let layers = [
        CONV,
        "%c: f32[2, 6, 3] = aten.conv1d.default(%x, %w, none, [1], [0], [1], 1)",
        "%c: f32[2, 6, 3] = aten.conv1d.default(%x, %wg, %b, [1], [0], [1], 2)",
        "%c: f32[2, 6, 3] = aten.conv1d.padding(%x, %w, %b, [1], \"valid\", [1], 1)",
        "%c: f32[2, 6, 3] = aten.convolution.default(%x, %w, %b, [1], [0], [1], false, [0], 1)",
    ];
    let norms = [
        NORM,
        "%y: f32[2, 6, 3] = aten.batch_norm.default(%c, none, none, %mean, %var, false, 0.1, 1e-3, true)",
        "%y: f32[2, 6, 3], _, _ = aten._native_batch_norm_legit_no_training.default(%c, %gamma, none, %mean, %var, 0.1, 0.5)",
        "%y: f32[2, 6, 3], %s: f32[0], %t: f32[0] = aten._native_batch_norm_legit_no_training.default(%c, none, %beta, %mean, %var, 0.1, 0.5)",
    ];
    for layer in layers {
        for norm in norms {
            assert_eq!(run_checked(&model(layer, norm, "return %y")).1, 1, "{layer}\n{norm}");
        }
    }
    let linear = "%c: f32[2, 6] = aten.linear.default(%x2, %w2, %b)";
    let norm = NORM.replace("f32[2, 6, 3]", "f32[2, 6]");
    assert_eq!(run_checked(&model(linear, &norm, "return %y")).1, 1);
}

#[test]
fn what_does_not_qualify_stays() {
    let transposed = "%c: f32[2, 6, 7] = aten.convolution.default(%x, %wt, %b, [1], [0], [1], true, [0], 1)";
    let wide_norm = NORM.replace("f32[2, 6, 3]", "f32[2, 6, 7]");
    let returned = "%n: f32[2, 6, 3] = aten.neg.default(%c)\n return %y, %n";
    // The statistics are written to at the end: they are no constants.
    let updated = "update %mean = %beta\n return %y";
    let cases = [
        model(CONV, NORM, "return %y, %c"),
        model(CONV, NORM, returned),
        model(CONV, NORM, updated),
        model(transposed, &wide_norm, "return %y"),
    ];
    for case in cases {
        assert_eq!(run(&case, true).1, 0, "{case}");
    }
    let training =
        "%y: f32[2, 6, 3] = aten.batch_norm.default(%c, %gamma, %beta, none, none, true, 0.1, 1e-5, true)";
    assert_eq!(run(&model(CONV, training, "return %y"), true).1, 0);
    assert_eq!(run(&model(CONV, NORM, "return %y"), false).1, 0);
}

#[test]
fn half_types_fold_in_f32() {
    let text = model(CONV, NORM, "return %y").replace("f32", "bf16");
    let (graph, count) = run(&text, true);
    assert_eq!(count, 1);
    let text = graph.to_string();
    assert!(text.contains("aten.mul.Tensor(%y_weight, %y_scale_3)"), "{text}");
    assert!(text.contains("%y_weight_2: f32[6, 4, 3]"), "{text}");
    assert!(text.contains("%y_weight_3: bf16[6, 4, 3] = aten._to_copy.default(%y_weight_2, bf16"), "{text}");
}
