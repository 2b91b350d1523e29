//! `litz minify` makes of a model that fails a few nodes that fail alike, with their inputs and the command that shows it.

use super::failure::{Exit, Failure};
use super::trying::{Trying, command};
use super::{format, output, tune};
use litz::attempt::{Check, Outcome};
use litz::case::{Case, beside};
use litz::minify::{Budget, Children, Event, minify};
use litz::progress::Progress;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What fails, and how.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trying: Trying,
    /// What counts as a failure: `crash`, errors of Litz, crashes and calls without end; `nan`, also a step that makes a NaN or an infinite
    /// number; `verify`, errors, crashes, and other numbers than the interpreter's
    #[arg(long, value_name = "CHECK", default_value = "verify")]
    check: Check,
    /// How long to look, such as 60s or 5m; Ctrl-C ends it with the smallest so far
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = tune::duration)]
    budget: Duration,
    /// Write the graph here, and its tensors beside it with the extension .safetensors
    #[arg(short, long, value_name = "FILE", default_value = "small.litz")]
    output: PathBuf,
}

/// Minifies, and writes what is left.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    if args.trying.is_answered()? {
        return Ok(Exit::Ok);
    }
    let (case, options) = (args.trying.case()?, args.trying.options());
    let stop = Arc::new(AtomicBool::new(false));
    let interrupted = Arc::clone(&stop);
    // The second time the process ends as it would have the first time.
    let handler = ctrlc::set_handler(move || {
        if interrupted.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    handler.map_err(|error| Failure::invalid(format_args!("cannot watch for Ctrl-C: {error}")))?;
    let command = command()?;
    let children = Children::new(&command, args.trying.attempt_limit)?;
    let progress = Progress::start();
    let mut tell = |event: Event<'_>| match event {
        Event::Fails(outcome) => output::note(format_args!("the whole: {outcome}\n")),
        Event::Begins(what) => output::note(format_args!("{what}\n")),
        Event::Smaller { nodes, attempts } => {
            progress.say(&format!("{}, {attempts} attempts", format::counted(nodes as u64, "node")));
        }
        Event::MadeUp(why) => {
            output::note(format_args!("note: values are made up, since they cannot be recorded: {why}\n"));
        }
    };
    let budget = Budget { time: args.budget, stop: &stop };
    let mut attempt = |case: &Case, check| children.attempt(case, check);
    let found = minify(&case, args.check, &mut attempt, &budget, &mut tell)?;
    drop(progress);
    let Some(found) = found else {
        return Err(Failure::invalid(format_args!(
            "nothing is wrong: {} finds no failure of this model with these inputs; give others with --data",
            args.check.name()
        )));
    };
    // Whoever replays it computes what is right anew.
    let small = Case { expected: None, ..found.case };
    small.write(&args.output)?;
    let (left, all) = (small.graph.nodes.len(), case.graph.nodes.len());
    let early = if found.is_cut_short { ", cut short" } else { "" };
    let more = match &found.outcome {
        // It is the model's, and no pass makes it.
        Outcome::NotFinite(_) => String::new(),
        Outcome::Right
        | Outcome::Refused(_)
        | Outcome::Failed { .. }
        | Outcome::Wrong { .. }
        | Outcome::Crashed { .. }
        | Outcome::Endless { .. } => format!("to find the pass: litz bisect {}\n", args.output.display()),
    };
    output::print(format_args!(
        "{}\n{left} of {} left after {}{early}: {}\nin {} and {}; to see it: {}\n{more}",
        small.graph,
        format::counted(all as u64, "node"),
        format::counted(found.attempts as u64, "attempt"),
        found.outcome,
        args.output.display(),
        beside(&args.output).display(),
        found.outcome.command(&args.output, &options),
    ))?;
    Ok(Exit::Ok)
}
