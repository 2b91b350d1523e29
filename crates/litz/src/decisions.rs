//! Dumps what the scheduler decided one after another, each apart: groups, their order, memory that is reused in place, pools.

use crate::error::Error;
use crate::runner::Runner;
use litz_ir::schedule::ScheduleStep;
use litz_schedule::Outcome;
use std::collections::HashMap;
use std::fmt::{Display, Write};

/// Dumps the decisions of one program or function, where anything is dumped.
///
/// - `groups`: the statements of each kernel or call, as they were put together: `g0: n0 n1`;
/// - `order`: the steps, those at load first, and the groups of each, of which several share a launch: `k0: g2 g3`;
/// - `reuse`, `pools`: these lines of the schedule.
///
/// # Errors
/// [`Error::Io`] where they cannot be written.
pub fn dump(outcome: &Outcome, run: &mut Runner<'_>) -> Result<(), Error> {
    if run.dump.is_none() {
        return Ok(());
    }
    let Outcome { schedule, groups, .. } = outcome;
    let group = |(at, stmts): (usize, &Vec<String>)| format!("g{at}: {}", stmts.join(" "));
    run.dump_decision("groups", &lines(groups.iter().enumerate().map(group)))?;
    run.dump_decision("order", &order(&schedule.steps, groups))?;
    run.dump_decision("reuse", &lines(&schedule.reuses))?;
    run.dump_decision("pools", &lines(&schedule.pools))
}

fn lines<T: Display>(of: impl IntoIterator<Item = T>) -> String {
    let mut text = String::new();
    for line in of {
        writeln!(text, "{line}").expect("invariant: a string takes text");
    }
    text
}

/// Each step and the groups that it runs.
fn order(steps: &[ScheduleStep], groups: &[Vec<String>]) -> String {
    let mut group_of: HashMap<&str, usize> = HashMap::new();
    for (at, stmts) in groups.iter().enumerate() {
        group_of.extend(stmts.iter().map(|stmt| (stmt.as_str(), at)));
    }
    lines(steps.iter().map(|step| {
        let stmts = match step {
            ScheduleStep::Kernel(plan) => plan.nests(),
            ScheduleStep::Extern { name, .. } => vec![name.as_str()],
        };
        let mut own: Vec<usize> = Vec::new();
        for group in stmts.into_iter().filter_map(|stmt| group_of.get(stmt)) {
            if !own.contains(group) {
                own.push(*group);
            }
        }
        let own: Vec<String> = own.into_iter().map(|group| format!("g{group}")).collect();
        let when = if step.at_load() { " at load" } else { "" };
        format!("{}{when}: {}", step.name(), own.join(" "))
    }))
}
