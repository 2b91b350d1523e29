//! Products of a GPU whose tiles have all widths that schedules choose are right, on the reference device, with a bias and a residual that are loaded
//! ahead of the sums, and rows and columns past which the last tiles go.

#![allow(missing_docs, reason = "a test")]

use litz::target::{Gpu, GpuIsa};
use litz::{Model, Options, Target, Tensor, Value, Verify};
use litz_ir::Dtype;
use std::collections::HashMap;

/// Rows, columns and terms, units, columns of a tile, and teams of a block, each of which takes every other tile.
const PRODUCTS: [([usize; 3], u32, usize, u32); 9] = [
    ([200, 288, 512], 2, 144, 2),
    ([200, 480, 512], 2, 160, 2),
    ([100, 240, 512], 1, 240, 1),
    ([130, 280, 64], 2, 144, 1),
    ([256, 640, 512], 4, 160, 2),
    ([100, 100, 576], 1, 128, 1),
    ([300, 256, 704], 2, 128, 2),
    ([400, 192, 704], 2, 192, 2),
    ([260, 96, 640], 1, 96, 2),
];

/// A matrix of -1, 0 and 1, of which sums are exact in two bytes as long as they are below 256.
fn matrix(sizes: [usize; 2], seed: u32) -> (Tensor, Vec<i32>) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as i32 % 3 - 1
    };
    let values: Vec<i32> = (0..sizes[0] * sizes[1]).map(|_| next()).collect();
    // They are the upper halves of what floats of four bytes are.
    let bytes: Vec<u8> =
        values.iter().flat_map(|&x| ((x as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec()).collect();
    (Tensor::from_bytes(Dtype::BF16, &sizes, &bytes).expect("it has so many bytes"), values)
}

#[test]
fn tiles_of_all_widths_are_right() {
    for ([rows, columns, terms], units, width, teams) in PRODUCTS {
        let text = format!(
            "graph @g on cpu {{
                %x: bf16[{rows}, {terms}] = input
                %w: bf16[{columns}, {terms}] = input
                %b: bf16[1, {columns}] = input
                %r: bf16[{rows}, {columns}] = input
                %v: bf16[{columns}] = aten.reshape.default(%b, [{columns}])
                %l: bf16[{rows}, {columns}] = aten.linear.default(%x, %w, %v)
                %y: bf16[{rows}, {columns}] = aten.add.Tensor(%l, %r, 1)
                return %y
            }}"
        );
        let name = format!("{rows} x {columns} x {terms} on {units} units");
        let graph = litz_ir::text::graph::parse(&text).unwrap_or_else(|diags| panic!("{name}: {}", diags[0]));
        let model = Model::from_graph(graph, HashMap::new()).expect("it is a graph");
        let target = Target::Gpu(Gpu::new(GpuIsa::Sm90, units));
        let options = Options { verify: Verify::Passes, reference: true, ..Options::for_target(target) };
        let compiled = model.compile(&options).unwrap_or_else(|error| panic!("{name}: {error}"));
        let schedule = compiled.texts.schedule.as_ref().expect("it has a schedule").to_string();
        assert!(schedule.contains(&format!("mma mi in 64, mj in {width}, ")), "{name}: {schedule}");
        assert_eq!(schedule.contains("teams 2"), teams == 2, "{name}: {schedule}");
        assert!(compiled.texts.unproved.is_empty(), "{name}");

        let (x, left) = matrix([rows, terms], 1);
        let (w, right) = matrix([columns, terms], 2);
        let (b, bias) = matrix([1, columns], 3);
        let (r, residual) = matrix([rows, columns], 4);
        let found = compiled.run(&[x, w, b, r]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let Value::Tensor(found) = &found[0] else { panic!("{name}: no tensor") };
        for (at, found) in found.to_f64().into_iter().enumerate() {
            let (i, j) = (at / columns, at % columns);
            let products = left[i * terms..][..terms].iter().zip(&right[j * terms..][..terms]);
            let expected = products.map(|(x, w)| x * w).sum::<i32>() + bias[j] + residual[at];
            assert!(expected.abs() < 256, "{name}: no such number has two bytes");
            assert_eq!(found, f64::from(expected), "{name}: row {i}, column {j}");
        }
    }
}
