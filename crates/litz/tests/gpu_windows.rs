//! Convolutions of a GPU whose windows are copied as boxes: on the reference device they have the results of the CPU, which knows no boxes.

#![allow(missing_docs, reason = "a test")]

mod numbers;
mod on_both;

use litz_ir::Dtype;
use on_both::Found;

/// A convolution of channels-last images.
#[derive(Clone, Copy)]
struct Case {
    /// Images, channels that come in and go out.
    counts: [usize; 3],
    /// Sizes of an image, of a window, and what comes out.
    sizes: [&'static [usize]; 3],
    /// Steps, borders and holes, the same along each dimension.
    by: [usize; 3],
    /// Whether boxes of windows are copied.
    is_boxed: bool,
}

const CASES: [Case; 8] = [
    Case { counts: [2, 64, 128], sizes: [&[14, 14], &[3, 3], &[14, 14]], by: [1, 1, 1], is_boxed: true },
    // Points end within a tile, steps and holes, sides of other lengths.
    Case { counts: [3, 128, 128], sizes: [&[15, 13], &[3, 3], &[7, 6]], by: [2, 1, 2], is_boxed: true },
    Case { counts: [4, 64, 128], sizes: [&[16, 11], &[1, 1], &[8, 6]], by: [2, 0, 1], is_boxed: true },
    Case { counts: [2, 64, 128], sizes: [&[20, 9], &[5, 3], &[18, 11]], by: [1, 3, 2], is_boxed: true },
    // One image, whose rows are the highest digit.
    Case { counts: [1, 64, 128], sizes: [&[12, 17], &[3, 3], &[12, 17]], by: [1, 1, 1], is_boxed: true },
    Case { counts: [1, 64, 128], sizes: [&[14, 19], &[3, 3], &[12, 17]], by: [1, 0, 1], is_boxed: true },
    // All points, and all columns, end within the only tile.
    Case { counts: [1, 64, 40], sizes: [&[9, 8], &[3, 3], &[9, 8]], by: [1, 1, 1], is_boxed: true },
    // A run of 64 neighbours would be of two taps.
    Case { counts: [2, 96, 128], sizes: [&[14, 14], &[3, 3], &[14, 14]], by: [1, 1, 1], is_boxed: false },
];

#[test]
fn boxes_of_windows_are_right() {
    for (
        Case { counts: [images, channels, columns], sizes: [image, window, points], by, is_boxed },
        is_rows,
    ) in CASES.into_iter().flat_map(|case| [false, true].map(|is_rows| (case, is_rows)))
    {
        let filters = if is_rows { "rows of channels" } else { "planes" };
        let name = format!(
            "{images} images of {channels} x {image:?}, windows of {window:?} by {by:?}, in {filters}"
        );
        let dims = |first: [usize; 2], rest: &[usize]| [&first[..], rest].concat();
        let given = dims([images, channels], image);
        let filter = dims([columns, channels], window);
        // Filters that lie as rows of channels, as images do, are a view.
        let rows = [&[columns], window, &[channels]].concat();
        let (given_filter, view) = match is_rows {
            true => (rows, format!("%w: bf16{filter:?} = aten.permute.default(%v, [0, 3, 1, 2])")),
            false => (filter.clone(), format!("%w: bf16{filter:?} = aten.view.default(%v, {filter:?})")),
        };
        let of_points = dims([images, columns], points);
        let [step, border, hole] = by.map(|count| vec![count; image.len()]);
        let none = vec![0; image.len()];
        // A pointwise convolution lays images out channels-last.
        let one = dims([channels, channels], &vec![1; image.len()]);
        let ones = vec![1; image.len()];
        let text = format!(
            "graph @g on cpu {{
                %x: bf16{given:?} = input
                %one: bf16{one:?} = input
                %v: bf16{given_filter:?} = input
                %b: bf16[{columns}] = input
                %c: bf16{given:?} = aten.convolution.default(%x, %one, none, {ones:?}, {none:?}, {ones:?}, false, {none:?}, 1)
                %h: bf16{given:?} = aten.relu.default(%c)
                {view}
                %d: bf16{of_points:?} = aten.convolution.default(%h, %w, %b, {step:?}, {border:?}, {hole:?}, false, {none:?}, 1)
                %y: bf16{of_points:?} = aten.relu.default(%d)
                return %y
            }}"
        );
        let inputs = [
            numbers::tensor(Dtype::BF16, &given, 1),
            numbers::tensor(Dtype::BF16, &one, 2),
            numbers::tensor(Dtype::BF16, &given_filter, 3),
            numbers::tensor(Dtype::BF16, &[columns], 4),
        ];
        let Found { of_gpu: found, of_cpu: expected, schedule } = on_both::run(&name, &text, 2, &inputs);
        let copied = schedule.lines().any(|line| line.contains("h_patches [") && line.ends_with("by box }"));
        assert_eq!(copied, is_boxed, "{name}: {schedule}");
        let largest = expected.iter().fold(0.0_f64, |largest, number| largest.max(number.abs()));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!(
                (found - expected).abs() <= 0.01 * largest,
                "{name}: element {at}: {found}, expected {expected}"
            );
        }
    }
}
