//! Checks convolutions, pools, resizing and recurrent networks: sizes known at run time, shapes of nests, errors.

use litz_ir::graph::{Arg, Graph};
use litz_ir::loops::{BufKind, Loops};
use litz_ir::{Diags, text, verify};
use litz_ops::{InferCx, Table, decompose, infer, lower};
use litz_runtime::{Tensor, program::Value, reference};
use litz_sym::{Expr, Sym};
use std::collections::HashMap;

/// One call on `%x` and `%w` as a graph; result types as inferred.
fn graph(x: &str, w: &str, call: &str) -> Result<Graph, String> {
    let source = format!(
        "graph @g on cpu {{\n  sym s in [3, 40]\n  %x: {x} = input\n  %w: {w} = input\n  _ = {call}\n  return %x\n}}"
    );
    let mut graph = text::graph::parse(&source).expect("a graph");
    let table = Table::new();
    let node = graph.nodes[0].clone();
    let mut cx =
        InferCx { table: &table, values: &graph.values, facts: &mut graph.facts, device: graph.device };
    let types = infer(&mut cx, &node).map_err(|e| e.message)?;
    let outputs = types.into_iter().flatten().enumerate();
    let outputs: Vec<_> = outputs.map(|(i, ty)| graph.value(format!("y{i}"), ty)).collect();
    graph.outputs = outputs.iter().map(|&v| Arg::Value(v)).collect();
    graph.nodes[0].outputs = outputs.into_iter().map(Some).collect();
    Ok(graph)
}

fn lowered(mut graph: Graph) -> Result<Loops, String> {
    let message = |diags: Diags| diags[0].message.clone();
    decompose(&mut graph).map_err(message)?;
    let loops = lower(&graph).map_err(message)?;
    assert_eq!(verify::loops::verify(&loops), Diags::new());
    Ok(loops)
}

/// Outputs when `s` is `size`; inputs hold different numbers at each place.
fn run(loops: &Loops, size: i64) -> Vec<Vec<f64>> {
    let mut sizes = HashMap::from([(Sym::new("s"), size)]);
    sizes.retain(|sym, _| loops.facts.is_symbol_declared(*sym));
    let number = |i: i64| ((i * 37 + i * i % 11) % 29 - 14) as f32 / 8.0;
    let tensor = |exprs: &[Expr]| {
        let extents = exprs.iter().map(|e| e.eval(&|sym| sizes.get(&sym).copied()).expect("a size") as usize);
        let extents: Vec<usize> = extents.collect();
        let values: Vec<f32> = (0..extents.iter().product::<usize>() as i64).map(number).collect();
        Tensor::from_slice(&extents, &values).expect("lengths match")
    };
    let inputs = loops.bufs.values().filter(|data| data.kind == BufKind::Input);
    let inputs: Vec<Tensor> = inputs.map(|data| tensor(&data.sizes)).collect();
    let results = reference::loops::run(loops, &sizes, &inputs, &HashMap::new());
    let outputs = results.unwrap_or_else(|error| panic!("{error}\nin\n{loops}")).outputs;
    outputs.iter().filter_map(Value::tensor).map(Tensor::to_f64).collect()
}

#[test]
fn sizes_known_at_run_time_give_what_known_sizes_give() {
    let (image, weight) = ("f32[s, 2, s, 6]", "f32[4, 2, 3, 2]");
    let calls = [
        "aten.conv2d.default(%x, %w, none, [2, 1], [1, 1], [1, 2], 1)",
        "aten.conv2d.padding(%x, %w, none, [1, 1], \"same\", [1, 1], 1)",
        "aten.max_pool2d_with_indices.default(%x, [3, 2], [2, 2], [1, 1], [1, 1], true)",
        "aten.avg_pool2d.default(%x, [3, 2], [2, 3], [1, 0], true, false, none)",
        "aten.adaptive_avg_pool2d.default(%x, [2, 3])",
        "aten.adaptive_max_pool2d.default(%x, [2, s])",
        "aten.upsample_nearest2d.vec(%x, none, [2.0, 3.0])",
        "aten._upsample_nearest_exact2d.vec(%x, [7, 4], none)",
        "aten.upsample_nearest2d.vec(%x, [7, s], none)",
        "aten.upsample_bilinear2d.vec(%x, none, false, [2.5, 0.5])",
        "aten.upsample_bilinear2d.vec(%x, [s, 9], true, none)",
        "aten.upsample_bicubic2d.vec(%x, [7, s], false, none)",
        "aten._upsample_bilinear2d_aa.vec(%x, none, false, [0.5, 2.0])",
        "aten.im2col.default(%x, [2, 2], [1, 1], [1, 0], [2, 1])",
        "aten.channel_shuffle.default(%x, 2)",
    ];
    for call in calls {
        let symbolic = lowered(graph(image, weight, call).expect(call)).expect(call);
        for size in [3, 4, 7] {
            let fixed = |text: &str| {
                text.replace("[s,", &format!("[{size},"))
                    .replace(", s,", &format!(", {size},"))
                    .replace(", s]", &format!(", {size}]"))
            };
            let known = lowered(graph(&fixed(image), weight, &fixed(call)).expect(call)).expect(call);
            let (found, expected) = (run(&symbolic, size), run(&known, size));
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((found - expected).abs() <= 1e-5, "{call} with {size}: {found}, expected {expected}");
            }
            assert!(found.iter().zip(&expected).all(|(a, b)| a.len() == b.len()), "{call} with {size}");
        }
    }
}

#[test]
fn a_transposed_convolution_of_unknown_size() {
    let (call, weight) =
        ("aten.conv_transpose2d.input(%x, %w, none, [2, 3], [1, 0], [1, 0], 2, [1, 1])", "f32[4, 2, 3, 2]");
    let symbolic = lowered(graph("f32[1, 4, s, 3]", weight, call).expect("a type")).expect("lowers");
    let known = lowered(graph("f32[1, 4, 5, 3]", weight, call).expect("a type")).expect("lowers");
    assert_eq!(run(&symbolic, 5), run(&known, 5));
}

/// Each element of the operand spread to the results that its taps reach.
#[test]
fn a_transposed_convolution_spreads_elements() {
    let (inputs, outputs, size) = (2i64, 3i64, 5i64);
    let number = |i: i64| ((i * 37 + i * i % 11) % 29 - 14) as f64 / 8.0;
    let cases = [
        (4, 3, 1, 0),
        (4, 3, 0, 2),
        (2, 3, 0, 0),
        (1, 4, 0, 3),
        (3, 2, 1, 1),
        (3, 2, 2, 0),
        (4, 2, 1, 0),
        (7, 3, 3, 1),
    ];
    for (kernel, stride, padding, extra) in cases {
        let call = format!(
            "aten.conv_transpose1d.default(%x, %w, none, [{stride}], [{padding}], [{extra}], 1, [1])"
        );
        let image = graph(
            &format!("f32[1, {inputs}, {size}]"),
            &format!("f32[{inputs}, {outputs}, {kernel}]"),
            &call,
        );
        let found = run(&lowered(image.expect(&call)).expect(&call), 5);
        let count = (size - 1) * stride - 2 * padding + kernel + extra;
        let mut expected = vec![0.0; (outputs * count) as usize];
        for (input, output, at, tap) in points(inputs, outputs, size, kernel) {
            let result = at * stride + tap - padding;
            if (0..count).contains(&result) {
                let term = number(input * size + at) * number((input * outputs + output) * kernel + tap);
                expected[(output * count + result) as usize] += term;
            }
        }
        assert_eq!(found, [expected], "{call}");
    }
}

/// All points of four axes.
fn points(a: i64, b: i64, c: i64, d: i64) -> impl Iterator<Item = (i64, i64, i64, i64)> {
    (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
}

#[test]
fn the_bias_has_a_nest_of_its_own_in_the_layout_of_the_result() {
    let call = "aten.conv2d.default(%x, %w, %b, [1, 1], [0, 0], [1, 1], 2)";
    let source = format!(
        "graph @g on cpu {{
  sym s in [1, 64]
  %x: bf16[s, 8, 5, 5]{{200, 1, 40, 8}} = input
  %w: bf16[6, 4, 1, 2] = const \"w\"
  %b: bf16[6] = const \"b\"
  %y: bf16[s, 6, 5, 4]{{120, 1, 24, 6}} = {call}
  return %y
}}"
    );
    let loops = lowered(text::graph::parse(&source).expect("a graph")).expect("lowers").to_string();
    let start = loops.find("  buf y:").expect("the result");
    assert_eq!(
        &loops[start..],
        "  buf y: bf16[s, 6, 5, 4]{120, 1, 24, 6}
  buf y_sum: f32[s, 5, 4, 6]
  nest n0 from %y [i in s, j in 2, k in 3, l in 5, m in 4 | r0 in 4, r1 in 2] {
    %0: bf16 = load x[i, 4*j + r0, l, m + r1]
    %1: f32 = cast %0
    %2: bf16 = load w[3*j + k, r0, 0, r1]
    %3: f32 = cast %2
    %4: f32 = mul %1, %3
    %5: f32 = reduce.sum %4
    store y_sum[i, l, m, 3*j + k] = %5
  }
  nest n1 from %y [i in s, j in 6, k in 5, l in 4] {
    %0: f32 = load y_sum[i, k, l, j]
    %1: bf16 = load b[j]
    %2: f32 = cast %1
    %3: f32 = add %0, %2
    %4: bf16 = cast %3
    store y[i, j, k, l] = %4
  }
  return y
}
"
    );
}

#[test]
fn whole_factors_need_no_look_up() {
    for call in [
        "aten.upsample_nearest2d.vec(%x, none, [2.0, 3.0])",
        "aten.upsample_bilinear2d.vec(%x, none, false, [2.0, 1.5])",
    ] {
        let loops = lowered(graph("f32[1, 2, s, 6]", "f32[1]", call).expect(call)).expect(call);
        assert!(!loops.to_string().contains("bind"), "{loops}");
    }
}

#[test]
fn what_eager_rejects_is_rejected() {
    let (image, weight) = ("f32[1, 4, 5, 6]", "f32[4, 2, 3, 3]");
    let cases = [
        (
            "aten.conv2d.default(%x, %w, none, [1, 1], [0, 0], [1, 1], 1)",
            "[1, 4, 5, 6] and a weight of [4, 2, 3, 3]",
        ),
        ("aten.conv2d.default(%x, %w, none, [0, 1], [0, 0], [1, 1], 2)", "`stride`"),
        ("aten.conv2d.default(%x, %w, none, [1, 1], [0, 0], [3, 1], 2)", "3 taps 3 apart does not fit in 5"),
        ("aten.conv2d.default(%x, %w, %x, [1, 1], [0, 0], [1, 1], 2)", "`bias`"),
        ("aten.conv2d.padding(%x, %w, none, [2, 1], \"same\", [1, 1], 2)", "`padding`"),
        ("aten.conv2d.padding(%x, %w, none, [1, 1], \"full\", [1, 1], 2)", "`padding`"),
        ("aten.max_pool2d.default(%x, [2, 2], [2, 2], [2, 1], [1, 1], false)", "`padding`"),
        (
            "aten.max_pool2d.default(%x, [6, 2], [2, 2], [0, 0], [1, 1], false)",
            "6 elements does not fit in 5",
        ),
        ("aten.avg_pool2d.default(%x, [2, 2], [], [0, 0], false, true, 0)", "`divisor_override`"),
        ("aten.upsample_nearest2d.vec(%x, none, none)", "sizes or scale factors"),
        ("aten.upsample_nearest2d.vec(%x, [0, 4], none)", "[5, 6] to be made [0, 4]"),
        ("aten.pad.default(%x, [6, 0, 0, 0], \"reflect\", none)", "6 by 6 and 0"),
        ("aten.pad.default(%x, [0, 7, 0, 0], \"circular\", none)", "6 by 0 and 7"),
        ("aten.pad.default(%x, [1, 1], \"replicate\", none)", "2 or 3 dimensions"),
        ("aten.pad.default(%x, [-6, 0, 0, 0], \"reflect\", none)", "[1, 4, 5, 0]"),
        ("aten.pixel_unshuffle.default(%x, 2)", "multiple of 2"),
        ("aten.channel_shuffle.default(%x, 3)", "3 groups"),
        ("aten.grid_sampler_2d.default(%x, %x, 3, 0, true)", "`interpolation_mode`"),
        ("aten.col2im.default(%w, [5, 6], [3, 3], [1, 1], [0, 0], [1, 1])", "dimensions"),
    ];
    for (call, expected) in cases {
        let error = graph(image, weight, call).and_then(lowered).expect_err(call);
        assert!(error.contains(expected), "{call}: {error}");
    }
}

#[test]
fn networks_need_a_known_number_of_steps() {
    let call = "aten.rnn_tanh.input(%x, %w, [%w, %w], false, 1, 0.0, false, false, false)";
    let error = graph("f32[s, 1, 4]", "f32[1, 1, 4]", call).expect_err("unrolling needs a length");
    assert!(error.contains("length is known only at run time"), "{error}");
    let none = graph("f32[0, 1, 4]", "f32[1, 1, 4]", call).expect_err("no steps");
    assert!(none.contains("has no steps"), "{none}");
}
