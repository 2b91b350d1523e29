//! Checks a sample of random models, and what generator and comparison promise.

#![allow(missing_docs, reason = "a test")]

use litz::Text;
use litz_ir::loops::{InstOp, Loops, Stmt};
use litz_ir::target::Isa;
use litz_runtime::reference;
use litz_sym::Expr;
use litz_testing::choices::{self, Choices};
use litz_testing::models::{self, Call, Fill, Model, shrink};
use litz_testing::trial::{self, Pools, Verdict};
use litz_testing::{compare, devices};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Models of the sample: about ten seconds of one core.
const SAMPLE: u64 = 60;

#[test]
fn a_sample_is_right() {
    let given = std::env::var("LITZ_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let (isas, mut pools) = (devices::isas(), Pools::default());
    for number in 0..SAMPLE {
        let (model, target) = trial::numbered(seed, number, &isas);
        if let Verdict::Wrong(why) = trial::run(&model, &target, &mut pools) {
            let text = trial::describe(&model, &target);
            panic!("random model {number} of LITZ_TEST_SEED={seed}: {why}\n{text}");
        }
    }
}

#[test]
fn models_read_back_and_bytes_decide_all() {
    for number in 0..200 {
        let bytes = choices::bytes(number, 200);
        let make = || models::generate(&mut Choices::new(&bytes));
        let (model, again) = (make(), make());
        let text = model.graph.to_string();
        assert_eq!(text, again.graph.to_string());
        let read = litz_ir::text::graph::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]));
        assert_eq!(Text::Graph(read).to_string(), Text::Graph(model.graph.clone()).to_string());
        for at in 0..model.bindings.len() {
            assert!(model.call(at).inputs.iter().zip(&again.call(at).inputs).all(|(a, b)| a == b));
        }
    }
}

#[test]
fn python_takes_arguments_by_position_up_to_the_last_tensor() {
    let text = "graph @g on cpu {
        %x: f32[3, 2] = input
        %i: i64[4] = input
        %y: f32[4, 2] = aten.index_select.default(%x, 0, %i)
        %z: f32[4, 1] = aten.sum.dim_IntList(%y, [1], true, none)
        return %z
    }";
    let graph = litz_ir::text::graph::parse(text).expect("a graph");
    let model = Model { graph, fills: Default::default(), bindings: vec![Vec::new()], seed: 0 };
    let python = models::python::function(&model, "f", &litz_ops::Table::new());
    for line in ["aten.index_select.default(x, 0, i)", "aten.sum.dim_IntList(y, dim=[1], keepdim=True)"] {
        assert!(python.contains(line), "{python}");
    }
}

#[test]
fn inputs_have_all_sizes() {
    for number in 0..200 {
        let (model, _) = trial::numbered(2, number, &[Isa::Sse2]);
        let sizes = |value| model.graph.tensor(value).map_or(&[][..], |ty| &ty.sizes);
        let made = model.graph.nodes.iter().flat_map(|node| node.outputs.iter().flatten());
        for sym in made.flat_map(|&value| sizes(value)).flat_map(|size| size.syms()) {
            let is_given = model.graph.inputs.iter().any(|&input| sizes(input).contains(&Expr::sym(sym)));
            assert!(is_given, "model {number}: nothing gives {sym}\n{}", model.graph);
        }
    }
}

#[test]
fn no_bytes_give_a_model_and_any_bytes_one_that_is_small() {
    let simplest = models::generate(&mut Choices::new(&[]));
    assert!(simplest.graph.nodes.len() <= 2, "{}", simplest.graph);
    let largest = (0..200).map(|seed| {
        let bytes = choices::bytes(seed, 400);
        let call = models::generate(&mut Choices::new(&bytes)).call(0);
        call.inputs.iter().map(litz::Tensor::numel).max().unwrap_or(0)
    });
    assert!(largest.max().is_some_and(|largest| largest <= 2048));
}

#[test]
fn most_models_are_supported_and_few_elements_open() {
    let isas = [Isa::Sse2];
    let (mut supported, mut elements, mut open) = (0, 0, 0);
    for number in 0..200 {
        let (model, _) = trial::numbered(1, number, &isas);
        let Ok(loops) = devices::definition(&model.graph) else { continue };
        supported += 1;
        let Ok(expected) = devices::interpret(&loops, &model.call(0)) else { continue };
        let doubts = expected.iter().flat_map(|expected| &expected.doubts);
        elements += expected.iter().map(|expected| expected.doubts.len()).sum::<usize>();
        open += doubts.filter(|doubt| **doubt == f64::INFINITY).count();
    }
    assert!(supported >= 150, "{supported} of 200");
    assert!(elements > 5000 && open * 5 < elements, "{open} of {elements}");
}

/// A graph of products, with an input of quarters.
fn product(dtype: &str, terms: usize) -> Model {
    let text = format!(
        "graph @g on cpu {{
  %a: {dtype}[4, {terms}] = input
  %b: {dtype}[{terms}, 4] = input
  %y: {dtype}[4, 4] = aten.mm.default(%a, %b)
  return %y
}}"
    );
    let graph = litz_ir::text::graph::parse(&text).expect("a graph");
    let fills = graph.inputs.iter().map(|value| (value.0, Fill::Small)).collect();
    Model { graph, fills, bindings: vec![Vec::new()], seed: 7 }
}

/// Whether the comparison tells what `plant` made of the definition from the definition.
fn is_caught(model: &Model, plant: impl Fn(&mut Loops)) -> bool {
    let loops = devices::definition(&model.graph).expect("it is supported");
    let call: Call = model.call(0);
    let expected = devices::interpret(&loops, &call).expect("it runs");
    let mut planted = loops.clone();
    plant(&mut planted);
    assert_ne!(planted.to_string(), loops.to_string(), "nothing was planted in\n{loops}");
    let found = reference::loops::run(&planted, &HashMap::new(), &call.inputs, &call.weights);
    compare::results(&found.expect("it runs").outputs, &expected).is_err()
}

fn each_nest(loops: &mut Loops, change: impl Fn(&mut litz_ir::loops::Nest)) {
    for stmt in &mut loops.stmts {
        if let Stmt::Nest(nest) = stmt {
            change(nest);
        }
    }
}

#[test]
fn planted_errors_are_caught() {
    for (dtype, terms) in [("f32", 3), ("f32", 64), ("f64", 400), ("bf16", 16), ("f16", 33)] {
        let model = product(dtype, terms);
        let drop_a_term = |loops: &mut Loops| {
            each_nest(loops, |nest| {
                nest.reduced.iter_mut().for_each(|axis| axis.extent = axis.extent - 1);
            });
        };
        assert!(is_caught(&model, drop_a_term), "{dtype}, {terms} terms: one dropped");
        let shift = |loops: &mut Loops| {
            each_nest(loops, |nest| {
                nest.reduced.iter_mut().for_each(|axis| axis.extent = axis.extent - 1);
                let reduced = nest.reduced.first().map(|axis| axis.var);
                for inst in &mut nest.body {
                    if let (InstOp::Load { index, .. }, Some(var)) = (&mut inst.op, reduced) {
                        index.iter_mut().for_each(|at| *at = at.replace(var, Expr::sym(var) + 1));
                    }
                }
            });
        };
        assert!(is_caught(&model, shift), "{dtype}, {terms} terms: all read one further");
    }
}

#[test]
fn a_failure_shrinks_to_what_fails() {
    // "Fails" where there is a sum: what is left computes one and little else.
    let has_sum = |model: &Model| model.graph.nodes.iter().any(|node| node.op.as_str().contains("sum"));
    let mut tried = 0;
    for number in 0..300 {
        let (model, _) = trial::numbered(3, number, &[Isa::Sse2]);
        if model.graph.nodes.len() < 4 || !has_sum(&model) {
            continue;
        }
        let small = shrink::shrink(&model, &mut |model| has_sum(model));
        let text = small.graph.to_string();
        litz_ir::text::graph::parse(&text).unwrap_or_else(|diags| panic!("{}\n{text}", diags[0]));
        assert!(has_sum(&small) && small.graph.nodes.len() <= 2, "{text}");
        tried += 1;
    }
    assert!(tried > 3, "{tried} models with sums");
}
