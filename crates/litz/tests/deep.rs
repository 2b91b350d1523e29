//! Checks that compile time of deep models grows with the number of layers, not with its square.

use litz::pipeline;
use litz::{Options, Runner, Stage};
use litz_ir::text;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Layers of the shallow model, and how many times as many the deep one has. It should take as many times as long; where
/// four passes took time that grew with the square of the layers, it was 30 times.
const SHALLOW: usize = 24;
const TIMES: u32 = 8;
/// Halfway, for a machine that does other things as well.
const MOST: u32 = 16;

/// Attention with a residual connection and a window sum over a padded image, over and over: matmuls whose operands
/// are packed at load time and at call time, softmax, borders, chains of pointwise operators.
fn model(layers: usize) -> String {
    let mut text = String::from("graph @deep on cpu {\n  %x0: f32[32, 64] = input\n");
    text.push_str("  %i0: f32[1, 4, 16, 16] = input\n");
    for n in 0..layers {
        let next = n + 1;
        let _ = write!(
            text,
            r#"  %w{n}: f32[64, 64] = const "{n}.w"
  %b{n}: f32[64] = const "{n}.b"
  %k{n}: f32[4, 4, 3, 3] = const "{n}.k"
  %h{n}: f32[32, 64] = aten.linear.default(%x{n}, %w{n}, %b{n})
  %g{n}: f32[32, 64] = aten.gelu.default(%h{n}, "none")
  %t{n}: f32[64, 32] = aten.permute.default(%g{n}, [1, 0])
  %s{n}: f32[32, 32] = aten.mm.default(%g{n}, %t{n})
  %p{n}: f32[32, 32] = aten.softmax.int(%s{n}, -1, none)
  %y{n}: f32[32, 64] = aten.mm.default(%p{n}, %g{n})
  %x{next}: f32[32, 64] = aten.add.Tensor(%x{n}, %y{n}, 1)
  %c{n}: f32[1, 4, 16, 16] = aten.conv2d.default(%i{n}, %k{n}, none, [1, 1], [1, 1], [1, 1], 1)
  %i{next}: f32[1, 4, 16, 16] = aten.relu.default(%c{n})
"#
        );
    }
    let _ = write!(text, "  return %x{layers}, %i{layers}\n}}\n");
    text
}

/// The shortest of three times from graph to program, kernels not emitted.
fn compile(text: &str) -> Duration {
    let options = Options { threads: 2, ..Options::default() };
    let backend = litz::backend(&options).expect("there is a backend");
    let once = || {
        let graph = text::graph::parse(text).expect("the model is a graph");
        let mut quiet = |_: &str| {};
        let mut run = Runner::new(options.verify, None, &mut quiet);
        let start = Instant::now();
        let texts = pipeline::compile(graph, &*backend, &options, Stage::Program, &mut run);
        texts.unwrap_or_else(|error| panic!("{error}"));
        start.elapsed()
    };
    (0..3).map(|_| once()).min().expect("three times")
}

#[test]
fn compile_time_grows_with_the_number_of_layers() {
    let shallow = compile(&model(SHALLOW));
    let deep = compile(&model(SHALLOW * TIMES as usize));
    assert!(deep < shallow * MOST, "{SHALLOW} layers take {shallow:?}, {TIMES} times as many {deep:?}");
}
