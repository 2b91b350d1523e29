//! Reads handwritten digits that the model was not trained on: each image as text, the answer, and PyTorch's.
//!
//! `cargo run --release -p litz-examples --bin digits`, or `cargo xtask demo`, which also installs what the build needs.

use litz::{Model, Options, Tensor, tensors};
use std::path::Path;
use std::time::Instant;

/// Pixel values 0 to 16 as shades.
const SHADES: [char; 5] = [' ', '.', 'o', 'O', '@'];
/// Calls that the time per image is the median of.
const CALLS: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR"));
    let data = tensors::read(&examples.join("digits.safetensors"))?;
    let (images, labels, expected) = (&data["images"], &data["labels"], &data["logits"]);

    let start = Instant::now();
    let model = Model::open(examples.join("digits.pt2"))?;
    let opened = start.elapsed();
    let compiled = model.compile(&Options::default())?;
    let outputs = compiled.run(std::slice::from_ref(images))?;
    let logits = outputs[0].tensor().ok_or("expected a tensor")?;

    let pixels = images.as_slice::<f32>().ok_or("expected f32 images")?;
    let rows: Vec<f32> = logits.to_vec().ok_or("expected f32 logits")?;
    let labels: Vec<i64> = labels.to_vec().ok_or("expected i64 labels")?;
    let brightest = pixels.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let mut right = 0;
    for (i, label) in labels.iter().enumerate() {
        let (answer, confidence) = best(&rows[10 * i..][..10]);
        right += usize::from(answer as i64 == *label);
        for (y, row) in pixels[64 * i..][..64].chunks(8).enumerate() {
            let line: String = row.iter().flat_map(|&p| [shade(p / brightest); 2]).collect();
            match y {
                3 => println!("  {line}   Litz: {answer} ({:.1} %)", 100.0 * confidence),
                4 => println!("  {line}   label: {label}"),
                _ => println!("  {line}"),
            }
        }
        println!();
    }
    let reference: Vec<f32> = expected.to_vec().ok_or("expected f32 logits")?;
    let largest = rows.iter().zip(&reference).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("{right} of {} right; largest difference from PyTorch's logits: {largest:.1e}\n", labels.len());

    println!("compile time by stage:\n  {:16} {:8.3} ms", "read the file", ms(opened));
    for timing in &compiled.timings {
        println!("  {:16} {:8.3} ms", timing.name, ms(timing.time));
    }
    println!("  {:16} {:8.3} ms\n", "together", ms(opened + compiled.timings.iter().map(|t| t.time).sum()));

    let one = Tensor::from_slice(&[1, 1, 8, 8], &pixels[..64])?;
    for (what, input) in [("one image", &one), ("twelve images", images)] {
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let start = Instant::now();
            compiled.run(std::slice::from_ref(input))?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let median = 1e6 * times[CALLS / 2].as_secs_f64();
        println!("{what}: {median:.1} us a call, {:.1} us an image", median / input.sizes()[0] as f64);
    }
    Ok(())
}

fn ms(time: std::time::Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

fn shade(brightness: f32) -> char {
    let at = (brightness * (SHADES.len() - 1) as f32).round();
    SHADES[(at.max(0.0) as usize).min(SHADES.len() - 1)]
}

/// The largest logit's position and its softmax.
fn best(logits: &[f32]) -> (usize, f32) {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let at = logits.iter().position(|&l| l == top).unwrap_or(0);
    (at, 1.0 / logits.iter().map(|l| (l - top).exp()).sum::<f32>())
}
