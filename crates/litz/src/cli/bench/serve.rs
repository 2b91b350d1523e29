//! `litz bench --serve` answers requests for timings, one line each.
//!
//! ```text
//! warm litz NAME         ok MS           compiles and calls once; what both took together
//! run litz NAME COUNT    ok MS MS ...    COUNT calls
//! memory litz NAME       ok BYTES        most that results and what is between took in a call
//! anything else          error TEXT
//! ```

use super::Args;
use crate::cli::failure::{Exit, Failure};
use crate::cli::{inputs, load};
use litz::measure::times;
use litz::{Compiled, Tensor};
use std::io::{BufRead, Write};
use std::time::Instant;

/// Answers until the input ends.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let mut warmed: Option<(Compiled, Vec<Tensor>)> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let answer = match answer(args, &line, &mut warmed) {
            Ok(times) => times.iter().fold("ok".to_owned(), |text, ms| format!("{text} {ms:.6}")),
            Err(failure) => format!("error {}", failure.to_string().replace('\n', " ")),
        };
        let mut out = std::io::stdout().lock();
        // Whoever asked may be gone.
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    Ok(Exit::Ok)
}

fn answer(
    args: &Args,
    line: &str,
    warmed: &mut Option<(Compiled, Vec<Tensor>)>,
) -> Result<Vec<f64>, Failure> {
    match line.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["warm", "litz", _] => {
            let start = Instant::now();
            let model = load::open(&args.model, &args.which)?;
            let tensors = inputs::inputs(&model, args.inputs.as_deref())?;
            let compiled = load::compile(&model, &args.common.options())?;
            compiled.run(&tensors)?;
            *warmed = Some((compiled, tensors));
            Ok(vec![1e3 * start.elapsed().as_secs_f64()])
        }
        ["run", "litz", _, count] => {
            let (Some((compiled, tensors)), Ok(count)) = (warmed, count.parse()) else {
                return Err(Failure::invalid("expected `warm litz NAME` before `run litz NAME COUNT`"));
            };
            Ok(times(compiled, tensors, &mut Vec::new(), count)?)
        }
        ["memory", "litz", _] => {
            let (compiled, _) = warmed
                .as_ref()
                .ok_or_else(|| Failure::invalid("expected `warm litz NAME` before `memory litz NAME`"))?;
            Ok(vec![compiled.statistics().peak_bytes as f64])
        }
        _ => Err(Failure::invalid("expected `warm`, `run` or `memory`, then `litz NAME`")),
    }
}
