//! `litz tune` looks for a faster schedule of a model by timing kernels that other settings of the scheduler give.

use super::failure::{Exit, Failure};
use super::options::Compiling;
use super::{format, inputs, load, output};
use litz::Error;
use litz::progress::Progress;
use litz::tune::{self, Budget, Event};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What to tune, and for how long.
#[derive(clap::Args)]
pub struct Args {
    /// Archive that torch.export.save wrote, or the text of a graph without constants: `.litz`
    model: PathBuf,
    #[command(flatten)]
    which: load::Which,
    /// Inputs `in.0`, `in.1`, ... in a .safetensors or .npz file [default: made up]
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// How long to look, such as 60s or 5m; Ctrl-C ends it with the best so far
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    budget: Duration,
    /// Write the schedule here, for `--schedule` [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    common: Compiling,
}

/// Tunes, writes the schedule and says what it gained.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    let options = args.common.options();
    if options.reference {
        return Err(Failure::invalid("the reference device has no speed to tune"));
    }
    let model = load::open(&args.model, &args.which)?;
    let inputs = inputs::inputs(&model, args.inputs.as_deref())?;
    let stop = Arc::new(AtomicBool::new(false));
    let interrupted = stop.clone();
    // The second time the process ends as it would have the first time.
    let handler = ctrlc::set_handler(move || {
        if interrupted.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    handler.map_err(|error| Failure::invalid(format_args!("cannot watch for Ctrl-C: {error}")))?;
    let tuned = {
        let progress = Progress::start();
        let mut tell = |event: Event<'_>| match event {
            Event::Trying { kernel, variant } => progress.say(&format!("{kernel}: {variant}")),
            Event::Refused { kernel, variant, error } => {
                if matches!(error, Error::Bug { .. }) {
                    output::note(format_args!("{kernel}, {variant}: {error}\n"));
                }
            }
            Event::Kept { kernel, steps, variant, gain } => {
                let more = if steps > 1 { format!(" and {} like it", steps - 1) } else { String::new() };
                output::note(format_args!("{kernel}{more}: {gain:.2} times as fast with {variant}\n"));
            }
        };
        tune::tune(&model, &options, &inputs, &Budget { time: args.budget, stop: &stop }, &mut tell)?
    };
    // What was cut short is not what there is to find.
    if !stop.load(Ordering::Relaxed) {
        tune::keep(&model, &tuned, &options)?;
    }
    output::note(format_args!(
        "{:.3} times as fast: kept {} of {}, {} refused\n",
        tuned.gain,
        tuned.kept,
        format::counted(tuned.tried as u64, "candidate"),
        tuned.refused
    ));
    match &args.output {
        Some(path) => {
            std::fs::write(path, &tuned.schedule).map_err(|error| Failure::io("write", path, &error))?;
        }
        None => output::print(&tuned.schedule)?,
    }
    Ok(Exit::Ok)
}

/// `90`, `90s` or `2m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = match text.strip_suffix('m') {
        Some(digits) => (digits, 60),
        None => (text.strip_suffix('s').unwrap_or(text), 1),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    let seconds = seconds.filter(|seconds| (1..=7 * 24 * 3600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| format!("expected a time from 1s to a week, found {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "0", "-1s", "1h", "1.5s", "99999999999999999999m"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
