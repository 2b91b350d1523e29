//! Writes the seeds and findings of a fuzz target to a folder, one file each: `seeds TARGET FOLDER`.

use std::error::Error;
use std::path::Path;

use litz_testing::fuzz::{FuzzTarget, findings, seeds};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder] = words.as_slice() else { return Err("expected: seeds TARGET FOLDER".into()) };
    let target = FuzzTarget::from_name(name).ok_or_else(|| format!("no such target: {name}"))?;
    std::fs::create_dir_all(folder)?;
    for (name, bytes) in seeds(target).into_iter().chain(findings(target)) {
        std::fs::write(Path::new(folder).join(name), bytes)?;
    }
    Ok(())
}
