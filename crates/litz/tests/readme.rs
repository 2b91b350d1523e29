//! Runs the Rust example of `README.md` and checks that the page shows it.

use std::error::Error;
use std::path::Path;

const SOURCE: &str = include_str!("readme.rs");
const PAGE: &str = include_str!("../../../README.md");

/// The labels of the twelve images, which the model reads without a mistake.
fn example() -> Result<Vec<usize>, Box<dyn Error>> {
    // The example begins.
    use litz::{Model, Options, TensorView, tensors};
    use ndarray::ArrayView1;

    let model = Model::open("examples/digits.pt2")?;
    let compiled = model.compile(&Options::default())?;

    let data = tensors::read("examples/digits.safetensors".as_ref())?;
    let images = data["images"].as_array::<f32>().ok_or("expected f32")?; // an `ndarray` view
    let outputs = compiled.run(&[TensorView::try_from(&images)?])?;

    let logits = outputs[0].tensor().and_then(|t| t.as_array::<f32>()).ok_or("expected f32")?;
    let best = |row: ArrayView1<f32>| (0..10).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0);
    let digits: Vec<usize> = logits.rows().into_iter().map(best).collect();
    println!("{digits:?}");
    // The example ends.
    let labels = data["labels"].to_vec::<i64>().ok_or("expected i64")?;
    assert_eq!(digits, labels.iter().map(|&label| label as usize).collect::<Vec<_>>());
    Ok(digits)
}

#[test]
fn the_example_reads_the_digits() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::set_current_dir(root).expect("the repository is there");
    assert_eq!(example().expect("the example runs").len(), 12);
}

#[test]
fn the_page_shows_the_example() {
    let (_, rest) = SOURCE.split_once("    // The example begins.\n").expect("the example has a beginning");
    let (code, _) = rest.split_once("    // The example ends.\n").expect("the example has an end");
    let code: Vec<&str> = code.lines().map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    let blocks: Vec<&str> =
        PAGE.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks, [format!("{}\n", code.join("\n"))]);
}
