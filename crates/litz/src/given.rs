//! Reads a schedule that somebody wrote, or wrote down and edited, and proves it against the loops that it is to run.

use crate::error::Error;
use litz_analysis::legality;
use litz_ir::loops::Loops;
use litz_ir::schedule::Schedule;
use litz_ir::target::Target;
use litz_ir::{Diag, Diags, text};
use std::path::Path;

/// A schedule's text, to be used in place of what the scheduler decides. It is proved before it is used: what it changes is
/// speed, never what is computed. `crates/litz/tests/schedules.rs` tries to break this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GivenSchedule {
    /// What messages call it: the name of its file.
    pub name: String,
    /// `schedule @m of @m for cpu(isa=avx2, threads=2) { .. }`
    pub text: String,
}

/// Diagnostics shown of a schedule for other loops: nearly every line of it is wrong.
const SHOWN: usize = 3;

/// What diagnostics of a schedule for other loops than these say.
const OF_OTHER_LOOPS: [&str; 6] =
    ["wrong-program", "unknown-nest", "unknown-statement", "unknown-buffer", "unknown-axis", "missing-nest"];

impl GivenSchedule {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(path: &Path) -> Result<GivenSchedule, Error> {
        let text =
            std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        Ok(GivenSchedule { name: path.display().to_string(), text })
    }

    /// The schedule, which runs `loops` on `target`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is no schedule, is for another target or for other loops, or where it cannot be proved
    /// that it computes what the loops say.
    pub(crate) fn prove(&self, loops: &Loops, target: &Target) -> Result<Schedule, Error> {
        let refuse = |diags: Diags| Error::Invalid(self.named(diags));
        let (schedule, positions) = text::schedule::parse_with_positions(&self.text).map_err(refuse)?;
        if schedule.target != *target {
            let message = format!("expected a schedule for {target}, found one for {}", schedule.target);
            let help = format!("--target '{}' compiles for what it is for", schedule.target);
            return Err(refuse(vec![Diag::new("wrong-target", message).help(help)]));
        }
        let diags = legality::verify_text(&schedule, &positions, loops);
        if diags.is_empty() { Ok(schedule) } else { Err(refuse(of_these_loops(diags))) }
    }

    /// Puts the name before what is wrong.
    pub(crate) fn named(&self, diags: Diags) -> Diags {
        let named = |diag: Diag| Diag { message: format!("{}: {}", self.name, diag.message), ..diag };
        diags.into_iter().map(named).collect()
    }
}

/// Says what to do about a schedule that knows other statements than the loops have. What else is wrong with it follows from
/// that, so that it is left out.
fn of_these_loops(diags: Diags) -> Diags {
    let is_of_others = |diag: &Diag| OF_OTHER_LOOPS.contains(&diag.slug);
    let (mut of_others, other): (Diags, Diags) = diags.into_iter().partition(is_of_others);
    let more = of_others.len().saturating_sub(SHOWN);
    of_others.truncate(SHOWN);
    let Some(last) = of_others.last_mut() else { return other };
    let more = if more > 0 { format!("there are {more} more such errors; ") } else { String::new() };
    last.help = Some(format!(
        "{more}a schedule belongs to one model, compiled with the same options: `litz compile MODEL --to schedule` writes \
         the model's own"
    ));
    of_others
}
