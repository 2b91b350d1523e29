//! Experts on a GPU: rows that are multiplied by the matrices of their groups stay in tiles between two products, whose tiles warpgroups sum. On the
//! reference device they have the bits that the CPU has, which takes them row by row, for groups of all sizes.

#![allow(missing_docs, reason = "a test")]

mod on_both;

use litz::Tensor;
use litz_ir::Dtype;
use on_both::Found;

/// Rows, width, width of what is between, units, and where groups end. Groups of 128 rows and more have tiles of 128, smaller ones of 64.
const EXPERTS: [([usize; 3], u32, &[i32]); 5] = [
    ([300, 64, 128], 2, &[100, 170, 300]),
    // Groups without rows, and rows without a group.
    ([300, 128, 64], 4, &[0, 129, 129]),
    ([520, 64, 128], 2, &[520, 520, 520, 520]),
    ([520, 64, 192], 1, &[1, 128, 390, 391]),
    ([512, 192, 64], 16, &[128, 256, 384, 512]),
];

/// Numbers of -1, 0 and 1: sums of their products are exact in float32.
fn numbers(sizes: &[usize], seed: u32) -> Tensor {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % 3) as f32 - 1.0
    };
    let count = sizes.iter().product::<usize>();
    let bytes: Vec<u8> =
        (0..count).flat_map(|_| (next().to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect();
    Tensor::from_bytes(Dtype::BF16, sizes, &bytes).expect("it has so many bytes")
}

#[test]
fn tiles_of_experts_are_right() {
    for ([rows, width, between], units, ends) in EXPERTS {
        let groups = ends.len();
        let text = format!(
            "graph @g on cpu {{
                %x: bf16[{rows}, {width}] = input
                %e: i32[{groups}] = input
                %g: bf16[{groups}, {width}, {between}] = input
                %u: bf16[{groups}, {width}, {between}] = input
                %d: bf16[{groups}, {between}, {width}] = input
                %a: bf16[{rows}, {between}] = aten._grouped_mm.default(%x, %g, %e, none, none)
                %b: bf16[{rows}, {between}] = aten._grouped_mm.default(%x, %u, %e, none, none)
                %r: bf16[{rows}, {between}] = aten.relu.default(%a)
                %m: bf16[{rows}, {between}] = aten.mul.Tensor(%r, %b)
                %y: bf16[{rows}, {width}] = aten._grouped_mm.default(%m, %d, %e, none, none)
                return %y
            }}"
        );
        let name = format!("{rows} x {width} x {between} on {units} units");
        let ends: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
        let given = [
            numbers(&[rows, width], 1),
            Tensor::from_bytes(Dtype::I32, &[groups], &ends).expect("it has so many bytes"),
            numbers(&[groups, width, between], 2),
            numbers(&[groups, width, between], 3),
            numbers(&[groups, between, width], 4),
        ];
        let Found { of_gpu: found, of_cpu: expected, schedule } = on_both::run(&name, &text, units, &given);
        assert_eq!(found, expected, "{name}");
        // All are of instructions of warpgroups, and rows are gathered once: what is between two products is computed in tiles.
        assert_eq!(schedule.matches("mma mi in 64, ").count(), 3, "{name}: {schedule}");
        assert_eq!(schedule.matches("_rows [").count(), 1, "{name}: {schedule}");
    }
}
