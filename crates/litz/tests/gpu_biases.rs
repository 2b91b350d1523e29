//! Attention of a GPU whose scores have a bias or a mask for each query and key, which blocks copy as boxes: on the reference device it has the results
//! of the CPU, which loads them where they are.

#![allow(missing_docs, reason = "a test")]

mod numbers;
mod on_both;

use litz_ir::Dtype;
use on_both::Found;

/// Heads, queries, keys and features, the sizes and the type of what is added to scores or removes some, and whether it is copied as boxes.
const BIASES: [([usize; 4], [usize; 4], Dtype, bool); 7] = [
    ([2, 128, 512, 64], [1, 2, 128, 512], Dtype::BF16, true),
    ([2, 256, 512, 64], [1, 1, 256, 512], Dtype::BF16, true),
    ([2, 128, 640, 64], [1, 1, 128, 640], Dtype::Bool, true),
    ([1, 128, 512, 128], [1, 1, 128, 512], Dtype::BF16, true),
    // Rows past the last query, a bias of all queries, and keys that fill no block.
    ([2, 100, 512, 64], [1, 2, 100, 512], Dtype::BF16, true),
    ([2, 128, 512, 64], [1, 1, 1, 512], Dtype::BF16, false),
    ([2, 128, 520, 64], [1, 2, 128, 520], Dtype::BF16, false),
];

#[test]
fn boxes_of_biases_are_right() {
    for ([heads, queries, keys, features], sizes, dtype, is_boxed) in BIASES {
        let name = format!("{heads} x {queries} x {keys} x {features} with {sizes:?} of {dtype}");
        let text = format!(
            "graph @g on cpu {{
                %q: bf16[1, {heads}, {queries}, {features}] = input
                %k: bf16[1, {heads}, {keys}, {features}] = input
                %v: bf16[1, {heads}, {keys}, {features}] = input
                %b: {dtype}{sizes:?} = input
                %y: bf16[1, {heads}, {queries}, {features}] =
                    aten.scaled_dot_product_attention.default(%q, %k, %v, %b, 0.0, false, none, false)
                return %y
            }}"
        );
        let given = [
            numbers::tensor(Dtype::BF16, &[1, heads, queries, features], 1),
            numbers::tensor(Dtype::BF16, &[1, heads, keys, features], 2),
            numbers::tensor(Dtype::BF16, &[1, heads, keys, features], 3),
            numbers::tensor(dtype, &sizes, 4),
        ];
        let Found { of_gpu: found, of_cpu: expected, schedule } = on_both::run(&name, &text, 2, &given);
        assert_eq!(schedule.contains("b_tile ["), is_boxed, "{name}: {schedule}");
        assert!(schedule.contains("warpgroup"), "{name}: {schedule}");
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() <= 1e-2, "{name}: element {at}: {found}, expected {expected}");
        }
    }
}
