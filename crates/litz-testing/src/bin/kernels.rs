//! Writes kernels of models to a folder, cut short, one text each: `kernels FOLDER MODEL.pt2..`.
//!
//! Of kernels that have the same features the first is written. `target/corpus/*.pt2 target/corpus_large/*.pt2` are what
//! `crates/litz-testing/kernels` is made of.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::path::Path;

use litz::{Model, Options, Runner, Stage, Verify};
use litz_ir::loops::{BufKind, Loops, Nest, Stmt};
use litz_ir::schedule::ScheduleStep;
use litz_ir::target::Target;
use litz_ir::{text, verify};
use litz_sym::{Expr, Sym};
use litz_testing::kernels;
use litz_testing::subject::{MOST_POINTS, Subject, points};

/// Bytes of a text, at most.
const MOST_BYTES: usize = 6000;

/// Values that sizes are given: the first one in range.
const SIZES: [[i64; 4]; 5] = [[5, 3, 7, 4], [8, 8, 8, 8], [3, 5, 2, 6], [16, 4, 8, 4], [2, 2, 2, 2]];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((folder, models)) = words.split_first() else {
        return Err("expected: kernels FOLDER MODEL..".into());
    };
    std::fs::create_dir_all(folder)?;
    let mut seen: HashSet<String> = HashSet::new();
    for model in models {
        let path = Path::new(model);
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let Ok((loops, plans)) = scheduled(path) else {
            eprintln!("{name}: not compiled");
            continue;
        };
        let mut written = 0;
        for step in &plans {
            let ScheduleStep::Kernel(plan) = step else { continue };
            let Some(alone) = kernels::alone(&loops, plan) else { continue };
            let features = kernels::features(&alone);
            if seen.contains(&features) {
                continue;
            }
            let short = kernels::shortened(&alone);
            let found = SIZES.iter().find_map(|sizes| attempt(&short, sizes));
            if let Some(text) = found.filter(|text| text.len() <= MOST_BYTES) {
                seen.insert(features);
                std::fs::write(Path::new(folder).join(format!("{name}_{}.litz", plan.name)), text)?;
                written += 1;
            }
        }
        eprintln!("{name}: {written}");
    }
    Ok(())
}

/// A model's loops after all passes, and the steps of its schedule.
fn scheduled(path: &Path) -> Result<(Loops, Vec<ScheduleStep>), Box<dyn Error>> {
    let target: Target = "cpu(isa=avx2, threads=2)".parse()?;
    let options = Options { verify: Verify::Nothing, cache: None, ..Options::for_target(target) };
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Nothing, None, &mut silent);
    let texts = Model::open(path)?.texts(&options, Stage::Schedule, &mut runner)?;
    let schedule = texts.schedule.ok_or("no schedule")?;
    Ok((texts.loops.ok_or("no loops")?, schedule.steps))
}

/// The text of a program that verifies and runs with such sizes.
fn attempt(loops: &Loops, sizes: &[i64]) -> Option<String> {
    let program = loops.to_string();
    let parsed = text::loops::parse(&program).ok()?;
    if !verify::loops::verify(&parsed).is_empty() {
        return None;
    }
    // Calls find the values of symbols in the sizes of inputs.
    let inputs = parsed.bufs.values().filter(|data| data.kind == BufKind::Input);
    let given: HashSet<Sym> = inputs.flat_map(|data| &data.sizes).filter_map(|size| size.as_sym()).collect();
    let axes = parsed.stmts.iter().flat_map(Stmt::nests).flat_map(Nest::all_axes).map(|axis| axis.extent);
    let used = parsed.bufs.values().flat_map(|data| &data.sizes).copied().chain(axes);
    if !used.flat_map(Expr::syms).all(|sym| given.contains(&sym)) {
        return None;
    }
    let symbols = parsed.facts.symbols();
    let sizes: HashMap<Sym, i64> = symbols.into_iter().zip(sizes.iter().cycle().copied()).collect();
    if points(&parsed, &sizes)? > MOST_POINTS {
        return None;
    }
    let mut lines: Vec<String> =
        sizes.iter().map(|(sym, size)| format!("//! size {sym} = {size}\n")).collect();
    lines.sort();
    let text = lines.concat() + &program;
    Subject::read("kernel", &text).ok()?;
    Some(text)
}
