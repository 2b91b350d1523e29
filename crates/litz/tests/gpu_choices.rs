//! All plans that families of kernels for GPUs have for a group are proved and right, not the first alone: tuning takes any.

#![allow(missing_docs, reason = "a test")]

mod numbers;
mod on_both;

use litz_ir::Dtype;
use on_both::{Found, for_gpu, run, run_by};
use std::collections::BTreeSet;

/// Graphs, each with the sizes of its inputs, units of the GPU, and how many different schedules there are at least.
const GRAPHS: [(&str, &str, &[&[usize]], u32, usize); 7] = [
    (
        "a linear layer with gelu by warpgroups, or by warps",
        "graph @g on cpu {
            %x: bf16[260, 320] = input
            %w: bf16[200, 320] = input
            %b: bf16[200] = input
            %l: bf16[260, 200] = aten.linear.default(%x, %w, %b)
            %y: bf16[260, 200] = aten.gelu.default(%l)
            return %y
        }",
        &[&[260, 320], &[200, 320], &[200]],
        3,
        9,
    ),
    (
        "a linear layer of few rows",
        "graph @g on cpu {
            %x: bf16[5, 576] = input
            %w: bf16[136, 576] = input
            %l: bf16[5, 136] = aten.linear.default(%x, %w)
            return %l
        }",
        &[&[5, 576], &[136, 576]],
        2,
        3,
    ),
    (
        "a product of tiles by threads",
        "graph @g on cpu {
            %x: bf16[150, 70] = input
            %w: bf16[70, 90] = input
            %a: f32[150, 70] = prims.convert_element_type.default(%x, f32)
            %b: f32[70, 90] = prims.convert_element_type.default(%w, f32)
            %l: f32[150, 90] = aten.mm.default(%a, %b)
            return %l
        }",
        &[&[150, 70], &[70, 90]],
        2,
        3,
    ),
    (
        "a norm",
        "graph @g on cpu {
            %x: bf16[37, 1024] = input
            %g: bf16[1024] = input
            %y: bf16[37, 1024] = aten.layer_norm.default(%x, [1024], %g, none, 1e-5, false)
            return %y
        }",
        &[&[37, 1024], &[1024]],
        2,
        4,
    ),
    (
        "a softmax of rows that fill no vectors",
        "graph @g on cpu {
            %x: bf16[37, 1003] = input
            %y: bf16[37, 1003] = aten.softmax.int(%x, -1)
            return %y
        }",
        &[&[37, 1003]],
        2,
        3,
    ),
    (
        "attention",
        "graph @g on cpu {
            %q: bf16[1, 2, 150, 64] = input
            %k: bf16[1, 2, 150, 64] = input
            %v: bf16[1, 2, 150, 64] = input
            %y: bf16[1, 2, 150, 64] = aten.scaled_dot_product_attention.default(%q, %k, %v)
            return %y
        }",
        &[&[1, 2, 150, 64], &[1, 2, 150, 64], &[1, 2, 150, 64]],
        2,
        4,
    ),
    (
        "points",
        "graph @g on cpu {
            %x: bf16[512, 64] = input
            %y: bf16[512, 64] = aten.sigmoid.default(%x)
            return %y
        }",
        &[&[512, 64]],
        1,
        3,
    ),
];

#[test]
fn every_choice_is_proved_and_right() {
    for (name, text, sizes, units, least) in GRAPHS {
        let seeds = 1..;
        let given: Vec<_> =
            sizes.iter().zip(seeds).map(|(sizes, seed)| numbers::tensor(Dtype::BF16, sizes, seed)).collect();
        let Found { of_gpu, of_cpu: expected, schedule } = run(name, text, units, &given);
        let mut schedules = BTreeSet::from([schedule]);
        assert_eq!(of_gpu.len(), expected.len(), "{name}");
        for choice in 1..14 {
            let mut options = for_gpu(units);
            options.heuristics.choice = choice;
            let (found, schedule) = run_by(&format!("{name}, choice {choice}"), text, &options, &given);
            if !schedules.insert(schedule) {
                continue;
            }
            for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let error = (found - expected).abs();
                assert!(
                    error <= 0.01 * expected.abs().max(1.0),
                    "{name}, choice {choice}: {found} is not {expected} at {at}"
                );
            }
        }
        assert!(schedules.len() >= least, "{name}: {} schedules", schedules.len());
    }
}
