//! Kernels of a GPU are proved whatever the sizes are: what is not runs point by point on one thread, thousands of times slower, and nothing else tells.

#![allow(missing_docs, reason = "a test")]

mod numbers;
mod on_both;

use litz::target::{Gpu, GpuIsa};
use litz::{Model, Options, Target, Tensor, Verify};
use litz_ir::Dtype;
use on_both::Found;
use std::collections::HashMap;

/// Kernels of a graph's text that are not proved, for a GPU of 132 units.
fn unproved(text: &str, isa: GpuIsa) -> Vec<String> {
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|diags| panic!("{}: {text}", diags[0]));
    let model = Model::from_graph(graph, HashMap::new()).expect("it is a graph");
    let target = Target::Gpu(Gpu::new(isa, 132));
    let options =
        Options { verify: Verify::Nothing, reference: true, tf32: true, ..Options::for_target(target) };
    let compiled = model.compile(&options).unwrap_or_else(|error| panic!("{error}: {text}"));
    compiled.texts.unproved.iter().map(|found| found.why.to_string()).collect()
}

/// A linear layer of few or many rows, and what follows it.
fn linear(rows: usize, terms: usize, columns: usize) -> String {
    format!(
        "graph @g on cpu {{
            %x: bf16[{rows}, {terms}] = input
            %w: bf16[{columns}, {terms}] = input
            %b: bf16[{columns}] = input
            %d: bf16[{rows}, {columns}] = aten.linear.default(%x, %w, %b)
            %y: bf16[{rows}, {columns}] = aten.sigmoid.default(%d)
            return %y
        }}"
    )
}

/// A product of float32 numbers that instructions may round, of an operand that lies along the sum and of one that does not, and what follows.
fn of_floats(rows: usize, terms: usize, columns: usize) -> String {
    format!(
        "graph @g on cpu {{
            %x: f32[{rows}, {terms}] = input
            %w: f32[{columns}, {terms}] = input
            %v: f32[{terms}, {columns}] = input
            %b: f32[{columns}] = input
            %d: f32[{rows}, {columns}] = aten.linear.default(%x, %w, %b)
            %e: f32[{rows}, {columns}] = aten.mm.default(%x, %v)
            %y: f32[{rows}, {columns}] = aten.gelu.default(%d)
            %z: f32[{rows}, {columns}] = aten.relu.default(%e)
            return %y, %z
        }}"
    )
}

/// A product of which both operands lie along the sum, of a type that threads multiply.
fn by_threads(dtype: &str, rows: usize, terms: usize, columns: usize) -> String {
    format!(
        "graph @g on cpu {{
            %x: {dtype}[{rows}, {terms}] = input
            %w: {dtype}[{columns}, {terms}] = input
            %t: {dtype}[{terms}, {columns}]{{1, {terms}}} = aten.permute.default(%w, [1, 0])
            %y: {dtype}[{rows}, {columns}] = aten.mm.default(%x, %t)
            return %y
        }}"
    )
}

/// Products of 8-bit floats with scales of rows and columns that are summed in fewer bits, all products or parts.
fn of_bytes(rows: usize, terms: usize, columns: usize) -> String {
    format!(
        "graph @g on cpu {{
            %x: f8e4m3[{rows}, {terms}] = input
            %w: f8e4m3[{terms}, {columns}]{{1, {terms}}} = input
            %s: f32[{rows}, 1] = input
            %t: f32[1, {columns}] = input
            %b: bf16[{columns}] = input
            %y: bf16[{rows}, {columns}] = aten._scaled_mm.default(%x, %w, %s, %t, %b, none, bf16, true)
            %z: f32[{rows}, {columns}] = aten._scaled_mm.default(%x, %w, %s, %t, none, none, f32, false)
            return %y, %z
        }}"
    )
}

/// Heads of attention that are mixed: each score is a sum of those of all heads at its place.
fn mixed(heads: usize, rows: usize, columns: usize) -> String {
    format!(
        "graph @g on cpu {{
            %x: bf16[{heads}, {rows}, {columns}] = input
            %w: bf16[{heads}, {heads}] = input
            %b: bf16[{heads}] = input
            %p: bf16[{rows}, {columns}, {heads}] = aten.permute.default(%x, [1, 2, 0])
            %c: bf16[{rows}, {columns}, {heads}] = aten.linear.default(%p, %w, %b)
            return %c
        }}"
    )
}

/// The last layer of a classifier: a norm of the mean's row, and a linear layer.
fn classified(features: usize, classes: usize) -> String {
    format!(
        "graph @g on cpu {{
            %x: bf16[1, {features}] = input
            %g: bf16[{features}] = input
            %w: bf16[{classes}, {features}] = input
            %b: bf16[{classes}] = input
            %n: bf16[1, {features}] = aten.layer_norm.default(%x, [{features}], %g, none, 1e-5, false)
            %y: bf16[1, {classes}] = aten.linear.default(%n, %w, %b)
            return %y
        }}"
    )
}

/// A product of as many rows as a call has, of which few columns are left to add up behind the slabs of its sum.
fn in_slabs(rows: usize, columns: usize) -> String {
    format!(
        "graph @g on cpu {{
            sym n in [1, 64] hint 4
            %x: f16[{rows}*n, 2304] = input
            %w: f16[2304, {columns}] = input
            %d: f16[{rows}*n, {columns}] = aten.mm.default(%x, %w)
            %y: f16[{rows}*n, {columns}] = aten.relu.default(%d)
            return %y
        }}"
    )
}

#[test]
fn kernels_of_all_sizes_are_proved() {
    let mut texts = Vec::new();
    for rows in [1, 3, 84] {
        texts.extend([32, 64, 96, 128, 240].map(|columns| in_slabs(rows, columns)));
    }
    for rows in [1, 2, 5, 17, 64] {
        // All remainders of the bytes that are copied at once, for one step of the sum and more.
        texts.extend((62..80).chain(110..128).map(|terms| linear(rows, terms, 440)));
    }
    for (heads, side) in
        [2, 4, 6, 8].into_iter().flat_map(|heads| [49, 50, 196, 197, 200].map(|side| (heads, side)))
    {
        texts.extend([mixed(heads, side, side), mixed(heads, side, 64)]);
    }
    for rows in [1, 2, 5, 17, 64, 200] {
        texts.extend([62, 63, 64, 72, 100, 127, 512].map(|terms| of_floats(rows, terms, 440)));
        texts.extend([62, 63, 64, 72, 100, 127, 512].map(|terms| of_bytes(rows, terms, 440)));
    }
    texts.extend([of_floats(1000, 1000, 1000), of_floats(2048, 768, 3072), of_bytes(1000, 1008, 1000)]);
    texts.extend([of_floats(1001, 1003, 1006), of_bytes(1001, 1003, 1006), of_bytes(2048, 768, 3072)]);
    for dtype in ["f32", "f64", "i32", "i64"] {
        for rows in [2, 7, 8, 12, 15, 16, 17, 33, 127] {
            texts.extend([65, 512, 577].map(|terms| by_threads(dtype, rows, terms, 128)));
        }
    }
    for features in [192, 384, 512, 768] {
        texts.extend([10, 1000, 1003, 4096].map(|classes| classified(features, classes)));
    }
    for isa in [GpuIsa::Sm80, GpuIsa::Sm90] {
        for text in &texts {
            assert_eq!(unproved(text, isa), Vec::<String>::new(), "{isa:?}: {text}");
        }
    }
}

/// The schedule of a graph's text for a GPU of 132 units, where float32 products may be of tf32 or not.
fn schedule(text: &str, tf32: bool) -> String {
    let graph = litz_ir::text::graph::parse(text).unwrap_or_else(|diags| panic!("{}: {text}", diags[0]));
    let model = Model::from_graph(graph, HashMap::new()).expect("it is a graph");
    let target = Target::Gpu(Gpu::new(GpuIsa::Sm90, 132));
    let options = Options { reference: true, tf32, ..Options::for_target(target) };
    let compiled = model.compile(&options).unwrap_or_else(|error| panic!("{error}: {text}"));
    compiled.texts.schedule.expect("it is scheduled").to_string()
}

#[test]
fn instructions_that_round_are_taken_where_that_is_allowed() {
    let rounding = |schedule: &str, name: &str| schedule.matches(&format!(" by {name}")).count();
    for (rows, terms, columns) in [(5, 64, 440), (1000, 1000, 1000), (2048, 768, 3072)] {
        let floats = of_floats(rows, terms, columns);
        let [exact, rounded] = [false, true].map(|tf32| schedule(&floats, tf32));
        for instruction in ["mma.", "wgmma."] {
            assert_eq!(rounding(&exact, instruction), 0, "{exact}");
        }
        assert_eq!(
            rounding(&rounded, "mma.m16n8k8.tf32") + rounding(&rounded, "wgmma.m64k8.tf32"),
            2,
            "{rounded}"
        );
        // One product sums all in few bits, the other one parts, which it merges.
        let bytes = schedule(&of_bytes(rows, terms, columns), false);
        let found = rounding(&bytes, "mma.m16n8k32.e4m3") + rounding(&bytes, "wgmma.m64k32.e4m3");
        assert_eq!(found, 2, "{bytes}");
        assert_eq!(bytes.matches(".merge ").count(), 1, "{bytes}");
    }
    let halves = linear(1000, 1000, 1000);
    assert_eq!(schedule(&halves, true), schedule(&halves, false), "tf32 is for float32 alone");
}

#[test]
fn kernels_of_odd_sizes_are_right() {
    let cases: [(&str, String, Vec<Vec<usize>>); 3] = [
        ("a sum of 110 terms", linear(2, 110, 440), vec![vec![2, 110], vec![440, 110], vec![440]]),
        ("heads that are mixed", mixed(4, 50, 50), vec![vec![4, 50, 50], vec![4, 4], vec![4]]),
        ("a classifier", classified(512, 1000), vec![vec![1, 512], vec![512], vec![1000, 512], vec![1000]]),
    ];
    for (name, text, sizes) in cases {
        let given: Vec<Tensor> =
            (1..).zip(&sizes).map(|(seed, sizes)| numbers::tensor(Dtype::BF16, sizes, seed)).collect();
        let Found { of_gpu: found, of_cpu: expected, schedule } = on_both::run(name, &text, 132, &given);
        let largest = expected.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(
                (found - expected).abs() <= 0.01 * largest,
                "{name}: element {at}: {found}, expected {expected}: {schedule}"
            );
        }
    }
}
