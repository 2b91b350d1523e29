//! Compiles graphs that come without a file, with constants in memory.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use litz::{Error, Model, Options, PoolOption, Tensor, Text};
use litz_ir::graph::Graph;
use litz_runtime::pool::ThreadPool;

const SCALE: &str = "graph @scale on cpu {
  sym s0 in [1, 64] hint 3
  %x: f32[s0] = input
  %w: f32[] = const \"w\"
  %y: f32[s0] = aten.mul.Tensor(%x, %w)
  update %x = %y
  return %y
}
";

fn graph(text: &str) -> Graph {
    match Text::parse(text).expect("it is a text") {
        Text::Graph(graph) => graph,
        other => panic!("expected a graph, found {other}"),
    }
}

fn model(factor: f32) -> Model {
    let weights = HashMap::from([("w".to_owned(), Tensor::scalar(factor).expect("there is memory"))]);
    Model::from_graph(graph(SCALE), weights).expect("the graph verifies")
}

fn run(model: &Model, options: &Options) -> (Vec<f32>, bool) {
    let compiled = model.compile(options).expect("compiles");
    let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, -3.0]).expect("lengths match");
    let outputs = compiled.run(&[x]).expect("the call is right");
    // The result, and the new contents of the input.
    let values: Vec<Vec<f32>> = outputs
        .iter()
        .map(|output| output.tensor().and_then(|tensor| tensor.to_vec()).expect("numbers"))
        .collect();
    assert_eq!(values[0], values[1]);
    (values[0].clone(), compiled.timings.iter().any(|timing| timing.name == "schedule"))
}

#[test]
fn constants_are_tensors_in_memory() {
    let options = Options { threads: 1, ..Options::default() };
    assert_eq!(run(&model(2.0), &options).0, [2.0, 4.0, -6.0]);
    let inputs = model(2.0);
    assert_eq!(inputs.inputs().iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["x"]);
    assert_eq!(inputs.name(), "scale");
}

#[test]
fn the_text_is_the_key_of_the_cache_and_contents_are_not() {
    let folder = std::env::temp_dir().join(format!("litz-graphs-{}", std::process::id()));
    let options = Options {
        threads: 1,
        verify: litz::Verify::Nothing,
        cache: Some(folder.clone()),
        ..Options::default()
    };
    assert_eq!(run(&model(2.0), &options), (vec![2.0, 4.0, -6.0], true));
    assert_eq!(run(&model(5.0), &options), (vec![5.0, 10.0, -15.0], false));
    let other = SCALE.replace("aten.mul", "aten.div");
    let weights = HashMap::from([("w".to_owned(), Tensor::scalar(2.0f32).expect("there is memory"))]);
    let other = Model::from_graph(graph(&other), weights).expect("the graph verifies");
    assert_eq!(run(&other, &options), (vec![0.5, 1.0, -1.5], true));
    fs::remove_dir_all(folder).expect("it is ours");
}

#[test]
fn models_share_threads() {
    let pool = PoolOption(Arc::new(ThreadPool::unbound(2)));
    let options = Options { threads: 2, pool: Some(pool.clone()), ..Options::default() };
    for factor in [2.0, 3.0] {
        assert_eq!(run(&model(factor), &options).0, [factor, 2.0 * factor, -3.0 * factor]);
    }
    // What compiled models held is gone with them.
    assert_eq!(Arc::strong_count(&pool.0), 2);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let broken = SCALE.replace("update %x = %y", "update %x = %w");
    assert!(matches!(Model::from_graph(graph(&broken), HashMap::new()), Err(Error::Invalid(_))));
    let without = Model::from_graph(graph(SCALE), HashMap::new()).expect("the graph verifies");
    let error = without.compile(&Options { threads: 1, ..Options::default() }).err().expect("a weight lacks");
    assert!(error.to_string().contains("missing weight \"w\""), "{error}");
    let is_unknown = |name: &str| !litz::has_operator(name);
    assert!(is_unknown("aten.nothing.default") && !is_unknown("aten.mul.Tensor"));
}
