//! `litz bisect` finds the pass, stage or kernel that makes the results of a model wrong.

use super::failure::{Exit, Failure};
use super::output;
use super::trying::{Trying, command};
use litz::attempt::Check;
use litz::bisect::{Culprit, bisect};
use litz::minify::Children;
use litz::progress::Progress;
use serde_json::json;

/// What fails.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    trying: Trying,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Bisects, and says what is at fault.
pub fn execute(args: &Args) -> Result<Exit, Failure> {
    if args.trying.is_answered()? {
        return Ok(Exit::Ok);
    }
    let (case, options) = (args.trying.case()?, args.trying.options());
    let command = command()?;
    let children = Children::new(&command, args.trying.attempt_limit)?;
    let progress = Progress::start();
    progress.say("the whole");
    let outcome = children.attempt(&case, Check::Verify)?;
    let culprit = bisect(&case, &options, &outcome, &mut |step| progress.say(step))?;
    drop(progress);
    let Some(culprit) = culprit else {
        return Err(Failure::invalid(
            "nothing is wrong: all texts of this model give the interpreter's results",
        ));
    };
    if args.json {
        let Culprit { step, stage, why, kernel, nodes, changes } = &culprit;
        let row = json!({
            "step": step, "stage": stage, "why": why, "kernel": kernel, "nodes": nodes, "changes": changes,
        });
        output::print(format_args!("{row}\n"))?;
    } else {
        output::print(&culprit)?;
    }
    Ok(Exit::Ok)
}
