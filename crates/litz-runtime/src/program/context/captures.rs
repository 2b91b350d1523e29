//! Captures launches of a plan on a device, and replays what was captured.

use std::sync::Arc;

use super::Context;
use crate::device::{AddressSpace, Recording};
use crate::error::RunError;
use crate::program::plan::{self, Command, LaunchPlan, Plan};

/// Commands that a device captures: by number, on a queue, with the places of their arguments.
pub(super) struct Capture {
    pub(super) number: usize,
    pub(super) commands: plan::Span,
    pub(super) queue: usize,
    pub(super) args: plan::Span,
}

impl Context {
    /// Replays what was captured of a plan, captures it first where it was not: whether it did, and the commands are not to be run.
    pub(super) fn capture(&mut self, plan: &Arc<Plan>, capture: &Capture) -> Result<bool, RunError> {
        let Capture { number, commands, queue, args } = capture;
        if plan.changes_state.is_some_and(|at| commands.contains(&at)) {
            // Whatever fails before this leaves the state as it was.
            self.queues.wait()?;
            self.has_changed_state = true;
        }
        let mut recording = match self.recordings.take(plan, *number) {
            Some(recording) => recording,
            None => {
                let Some(recording) = self.record(plan, capture)? else { return Ok(false) };
                recording
            }
        };
        self.args.clear();
        for place in &plan.places[args.clone()] {
            let address = self.address(*place);
            self.args.push(address);
        }
        // SAFETY: as for each launch that is replayed.
        unsafe { self.queues.stream(*queue).replay(&mut *recording, &self.args) };
        self.recordings.keep(plan, *number, recording);
        Ok(true)
    }

    /// Captures launches, if none of them is given a number that the host has to fetch.
    fn record(&mut self, plan: &Plan, capture: &Capture) -> Result<Option<Box<dyn Recording>>, RunError> {
        fn of(command: &Command) -> Option<&LaunchPlan> {
            if let Command::Launch(launch) = command { Some(launch) } else { None }
        }
        let launches = plan.commands[capture.commands.clone()].iter().filter_map(of);
        let launches: Vec<&LaunchPlan> = launches.collect();
        let is_out_of_reach = |(_, number): &(usize, plan::Buffer)| {
            self.queues.space(number.place.device) != AddressSpace::Host
        };
        if launches.iter().any(|launch| launch.numbers.iter().any(is_out_of_reach)) {
            return Ok(None);
        }
        let device = self.queues.device_of(capture.queue);
        let is_entered = self.queues.is_entered(device);
        if !is_entered {
            self.queues.enter(device);
        }
        self.queues.stream(capture.queue).begin();
        let captured = launches.into_iter().try_for_each(|launch| self.launch(plan, launch));
        let recording = self.queues.stream(capture.queue).end();
        if !is_entered {
            self.queues.leave();
        }
        captured?;
        recording
    }
}
