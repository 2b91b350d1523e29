//! Cells of recurrent networks whose gates come in two halves, as PyTorch has them for GPUs, give what a cell with its products gives.

#![allow(missing_docs, reason = "a test")]

use litz::{Model, Options, Tensor, Value};
use std::collections::HashMap;

/// Numbers between -1 and 1.
fn numbers(sizes: &[usize], seed: u32) -> Tensor {
    let mut state = seed;
    let count = sizes.iter().product::<usize>();
    let elements: Vec<f32> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as f32 / 32768.0 - 1.0
        })
        .collect();
    Tensor::from_slice(sizes, &elements).expect("it has so many elements")
}

/// What a graph returns on the CPU.
fn results(text: &str, given: &[Tensor]) -> Vec<Vec<f64>> {
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|diags| panic!("{}: {text}", diags[0]));
    let model = Model::from_graph(graph, HashMap::new()).expect("it is a graph");
    let compiled = model.compile(&Options::default()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let found = compiled.run(given).unwrap_or_else(|error| panic!("{error}: {text}"));
    let of = |value: &Value| match value {
        Value::Tensor(tensor) => tensor.to_f64(),
        other => panic!("no tensor: {other:?}"),
    };
    found.iter().map(of).collect()
}

/// Inputs of a cell with so many gates for three rows of 4 features and a state of 5, after which come the states.
fn inputs(gates: usize) -> Vec<Tensor> {
    let sizes: [&[usize]; 8] =
        [&[3, 4], &[gates * 5, 4], &[gates * 5, 5], &[gates * 5], &[gates * 5], &[3, 5], &[3, 5], &[3, 5]];
    (1..).zip(sizes).map(|(seed, sizes)| numbers(sizes, seed)).collect()
}

fn head(gates: usize) -> String {
    let rows = gates * 5;
    format!(
        "%x: f32[3, 4] = input
         %w: f32[{rows}, 4] = input
         %v: f32[{rows}, 5] = input
         %b: f32[{rows}] = input
         %c: f32[{rows}] = input
         %h: f32[3, 5] = input
         %s: f32[3, 5] = input
         %unused: f32[3, 5] = input
         %i: f32[3, {rows}] = aten.linear.default(%x, %w)
         %o: f32[3, {rows}] = aten.linear.default(%h, %v)"
    )
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-5, "{what}: element {at}: {found}, expected {expected}");
    }
}

#[test]
fn an_lstm_of_two_halves_is_an_lstm() {
    let given = inputs(4);
    let head = head(4);
    let fused = format!(
        "graph @g on cpu {{
            {head}
            %y: f32[3, 5], %z: f32[3, 5], %k: f32[3, 20] = aten._thnn_fused_lstm_cell.default(%i, %o, %s, %b, %c)
            return %y, %z, %k
        }}"
    );
    let plain = format!(
        "graph @g on cpu {{
            {head}
            %y: f32[3, 5], %z: f32[3, 5] = aten.lstm_cell.default(%x, [%h, %s], %w, %v, %b, %c)
            return %y, %z
        }}"
    );
    let (found, expected) = (results(&fused, &given), results(&plain, &given));
    assert_close(&found[0], &expected[0], "hidden state");
    assert_close(&found[1], &expected[1], "cell's state");
    // c' = f * c + i * g of the gates that are kept for the derivative, in the order i, f, g, o.
    let state = given[6].to_f64();
    let cells: Vec<f64> = (0..15)
        .map(|at| {
            let gate = |number: usize| found[2][at / 5 * 20 + number * 5 + at % 5];
            gate(1) * state[at] + gate(0) * gate(2)
        })
        .collect();
    assert_close(&cells, &expected[1], "kept gates");
}

#[test]
fn a_gru_of_two_halves_is_a_gru() {
    let given = inputs(3);
    let head = head(3);
    let fused = format!(
        "graph @g on cpu {{
            {head}
            %y: f32[3, 5], %k: f32[3, 25] = aten._thnn_fused_gru_cell.default(%i, %o, %h, %b, %c)
            return %y, %k
        }}"
    );
    let plain = format!(
        "graph @g on cpu {{
            {head}
            %y: f32[3, 5] = aten.gru_cell.default(%x, %h, %w, %v, %b, %c)
            return %y
        }}"
    );
    let (found, expected) = (results(&fused, &given), results(&plain, &given));
    assert_close(&found[0], &expected[0], "hidden state");
    // h' = (h - n) * z + n of what is kept: r, z, n, h, and the state's half of the new gate.
    let states: Vec<f64> = (0..15)
        .map(|at| {
            let kept = |number: usize| found[1][at / 5 * 25 + number * 5 + at % 5];
            (kept(3) - kept(2)) * kept(1) + kept(2)
        })
        .collect();
    assert_close(&states, &expected[0], "kept gates");
}
