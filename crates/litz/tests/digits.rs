//! Checks the committed digits model end to end: PyTorch's numbers, every batch size of its range, many calls.

use litz::tensors::{self, Named};
use litz::{Compiled, Model, Options, Statistics, Tensor, TensorView, contract};
use std::path::{Path, PathBuf};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

fn data() -> Named {
    tensors::read(&examples().join("digits.safetensors")).expect("the file is there")
}

fn model() -> Model {
    Model::open(examples().join("digits.pt2")).expect("the file is a model")
}

fn compile(options: &Options) -> Compiled {
    model().compile(options).expect("the model compiles")
}

fn logits(compiled: &Compiled, images: &Tensor) -> Tensor {
    let outputs = compiled.run(std::slice::from_ref(images)).expect("the images fit");
    outputs[0].tensor().expect("one tensor").clone()
}

/// Images `first..first + count` of the file.
fn batch(images: &Tensor, first: usize, count: usize) -> Tensor {
    let pixels = images.as_slice::<f32>().expect("f32");
    let all = images.sizes()[0];
    let chosen: Vec<f32> = (0..count).flat_map(|i| pixels[(first + i) % all * 64..][..64].to_vec()).collect();
    Tensor::from_slice(&[count, 1, 8, 8], &chosen).expect("64 pixels an image")
}

#[test]
fn answers_are_pytorchs() {
    let data = data();
    for options in [Options::default(), Options { reference: true, ..Options::default() }] {
        let ours = logits(&compile(&options), &data["images"]);
        let verdict = contract::compare(&ours, (&data["logits"]).into());
        assert_eq!(verdict.broken, None, "{verdict:?}");
        let answers: Vec<i64> = ours.to_vec::<f32>().expect("f32").chunks(10).map(argmax).collect();
        assert_eq!(answers, data["labels"].to_vec::<i64>().expect("i64"));
    }
}

fn argmax(row: &[f32]) -> i64 {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    best.map_or(-1, |i| i as i64)
}

#[test]
fn views_of_slices_and_arrays_are_inputs() {
    let images = &data()["images"];
    let compiled = compile(&Options::default());
    let expected = logits(&compiled, images);
    let answer = |view: TensorView<'_>| compiled.run(&[view]).expect("the images fit")[0].tensor().cloned();
    let pixels = images.to_vec::<f32>().expect("f32");
    let slice =
        TensorView::from_slice(images.sizes(), images.strides(), &pixels).expect("as many as sizes say");
    assert_eq!(answer(slice).as_ref(), Some(&expected));
    // Pixels stored column by column, seen as rows.
    let columns = images.as_array::<f32>().expect("f32").permuted_axes(vec![0, 1, 3, 2]);
    let stored = columns.as_standard_layout().into_owned();
    let rows = stored.view().permuted_axes(vec![0, 1, 3, 2]);
    assert_eq!(
        answer(TensorView::try_from(&rows).expect("no axis runs backwards")).as_ref(),
        Some(&expected)
    );
}

#[test]
fn one_compilation_serves_every_batch_size() {
    let (data, model) = (data(), model());
    let compiled = model.compile(&Options::default()).expect("the model compiles");
    let whole = logits(&compiled, &data["images"]).to_vec::<f32>().expect("f32");
    for count in 1..=64 {
        let ours = logits(&compiled, &batch(&data["images"], 3, count)).to_vec::<f32>().expect("f32");
        assert_eq!(ours.len(), 10 * count);
        for (i, row) in ours.chunks(10).enumerate() {
            let expected = &whole[(3 + i) % 12 * 10..][..10];
            let off = row.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 1e-4, "batch {count}, image {i}: off by {off}");
        }
    }
    let error = compiled.run(&[batch(&data["images"], 0, 65)]).expect_err("65 is out of range").to_string();
    assert_eq!(error, "input `input`, dimension 0: expected s31 in [1, 64], found 65");
    // Each size was planned once, the 12 of `whole` among them; what did not fit was no call.
    let Statistics { calls, plans, peak_bytes, kept_bytes, host_calls } = compiled.statistics();
    assert!(host_calls.is_empty());
    assert_eq!((model.compilations(), calls, plans), (1, 65, 64));
    assert!(kept_bytes > 0, "weights are packed");
    // All that 64 images need, and no copy of it: results, and the largest two neighbouring layers.
    assert!((64 * 10 * 4..64 * 16384).contains(&peak_bytes), "{peak_bytes}");
}

#[test]
fn threads_do_not_change_results() {
    let images = batch(&data()["images"], 0, 61);
    let bits = |threads| {
        let compiled = compile(&Options { threads, ..Options::default() });
        logits(&compiled, &images).bytes().to_vec()
    };
    let one = bits(1);
    assert!(one == bits(2) && one == bits(3));
}

#[test]
fn many_calls_need_no_more_memory() {
    let resident = || -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages")
    };
    let compiled = compile(&Options::default());
    let images = data()["images"].clone();
    let calls = |n: usize| (0..n).for_each(|_| drop(logits(&compiled, &images)));
    calls(2_000);
    let before = resident();
    calls(100_000);
    let grown = resident().saturating_sub(before);
    // Other tests run beside this one: allow them a few pages.
    assert!(grown < 2_000, "grew by {grown} pages");
}
