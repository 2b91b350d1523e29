//! Locates diagnostics in a schedule.

use litz_ir::diag::{Diag, Diags};
use litz_ir::text::schedule::Positions;

/// Something wrong with a schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct Problem {
    /// What it is.
    pub diag: Diag,
    /// Where it is, if it is anywhere in particular.
    pub site: Option<Site>,
}

/// A place in a schedule, counted in the order of its text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// Position of the step.
    pub step: usize,
    /// The place within the step, if it is not all of it.
    pub within: Option<Within>,
}

/// A place within a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    /// A loop, of the grid or below, by its number among all of the schedule.
    Loop(usize),
    /// A leaf, by its number among all of the schedule.
    Leaf(usize),
    /// A declaration of memory, by its number among all of the schedule.
    Local(usize),
}

impl Problem {
    /// The problem as one of a text.
    pub fn at(self, positions: &Positions) -> Diag {
        let position = self.site.and_then(|site| match site.within {
            None => positions.steps.get(site.step),
            Some(Within::Loop(number)) => positions.loops.get(number),
            Some(Within::Leaf(number)) => positions.leaves.get(number),
            Some(Within::Local(number)) => positions.locals.get(number),
        });
        match position {
            Some(&(line, column)) => self.diag.at(line, column),
            None => self.diag,
        }
    }
}

/// Where the problems are that a report has.
#[derive(Default)]
pub(super) struct Sites(Vec<Option<Site>>);

impl Sites {
    /// Notes that all problems which came since the last note are there.
    pub(super) fn note(&mut self, problems: &Diags, site: Option<Site>) {
        self.0.resize(problems.len().max(self.0.len()), site);
    }

    /// Each problem with its place.
    pub(super) fn of(mut self, problems: Diags) -> Vec<Problem> {
        self.note(&problems, None);
        problems.into_iter().zip(self.0).map(|(diag, site)| Problem { diag, site }).collect()
    }
}
