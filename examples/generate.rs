//! Goes on with a text in the words of Python's documentation, which the model was trained on, and says how fast.
//!
//! `cargo run --release -p litz-examples --bin generate`, or with a text of your own behind `--`.

use litz::generate::{Generator, Sampling, Vocabulary};
use litz::{Model, Options};
use std::io::Write;
use std::path::Path;
use std::time::Instant;

const TOKENS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let prompt = std::env::args().nth(1).unwrap_or_else(|| "The following function returns".to_owned());
    let model = Model::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("text.pt2"))?;
    let vocabulary = Vocabulary::of(&model)?.ok_or("expected a vocabulary in the archive")?;
    let tokens = vocabulary.encode(&prompt).map_err(|unknown| format!("no token for `{unknown}`"))?;

    let start = Instant::now();
    let compiled = model.compile(&Options::default())?;
    let compiling = start.elapsed();
    // Keys and values of earlier tokens stay in the program, which stores one row of each a call.
    let mut generator = Generator::new(&model, &compiled, &Sampling::default())?;
    let mut next = None;
    for &token in &tokens {
        next = Some(generator.next(token)?);
    }
    let mut next = next.ok_or("expected a text to go on with")?;
    print!("{prompt}");
    let start = Instant::now();
    for _ in 0..TOKENS {
        print!("{}", vocabulary.text(next));
        std::io::stdout().flush()?;
        next = generator.next(next)?;
    }
    let each = start.elapsed() / TOKENS as u32;
    println!("\n\ncompiled once, in {compiling:.1?}; {each:.1?} a token");
    Ok(())
}
