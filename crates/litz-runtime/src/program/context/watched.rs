//! Runs commands while memory is watched: twice, where what they read or leave is in doubt.

use std::sync::Arc;

use super::{Context, Flow};
use crate::error::RunError;
use crate::program::function::{Function, Running};
use crate::program::plan::{Address, Base, Command, OutputPlan, Plan, Shape, Target, WatchedCommand};
use crate::program::watch::{Touched, Watch};

impl Context {
    /// Runs a command and holds what it does with memory against what was said of it.
    pub(super) fn watched(
        &mut self,
        function: &Function,
        plan: &Arc<Plan>,
        at: usize,
        watched: &WatchedCommand,
        running: Running<'_>,
    ) -> Result<Flow, RunError> {
        let mut watch = self.watch.take().expect("invariant: whoever watches has this");
        let flow = self.watched_by(&mut watch, function, plan, (at, watched), running);
        self.watch = Some(watch);
        flow
    }

    fn watched_by(
        &mut self,
        watch: &mut Watch,
        function: &Function,
        plan: &Arc<Plan>,
        (at, watched): (usize, &WatchedCommand),
        running: Running<'_>,
    ) -> Result<Flow, RunError> {
        let touched: Vec<Touched> = watched
            .uses
            .iter()
            .map(|used| Touched {
                buffer: used.buffer,
                start: self.address(used.place),
                bytes: used.bytes,
                element: used.element,
                access: used.access,
            })
            .collect();
        self.queues.wait()?;
        watch.begin(watched, &|place| self.address(place))?;
        // SAFETY: all that was enqueued is done, here and wherever the comparisons below look at memory.
        let before = unsafe { watch.before(watched, &touched) };
        if let (Command::Size { .. }, [number]) = (&plan.commands[at], &touched[..]) {
            watch.read(&watched.label, number.start, number.element, std::iter::once(0))?;
        }
        let flow = self.command(function, plan, at, running)?;
        self.queues.wait()?;
        match &plan.commands[at] {
            Command::Launch(_) | Command::Extern { .. } | Command::Copy { .. } => {
                // SAFETY: as above.
                if unsafe { watch.is_in_doubt(&before) } {
                    // SAFETY: as above.
                    let first = unsafe { watch.again(&before, &touched) };
                    self.command(function, plan, at, running)?;
                    self.queues.wait()?;
                    // SAFETY: as above.
                    unsafe { watch.compare(&watched.label, &before, &first)? };
                }
            }
            // Operators of a host have effects, and functions watch their own memory.
            Command::Call { .. } | Command::Control { .. } => watch.trust(&touched),
            Command::Size { .. }
            | Command::Record { .. }
            | Command::Wait { .. }
            | Command::Settle
            | Command::Enter { .. }
            | Command::Leave
            | Command::Capture { .. }
            | Command::Release { .. } => {}
        }
        // SAFETY: as above.
        unsafe { watch.end(watched) };
        Ok(flow)
    }

    /// Fails where results, or new contents of inputs and constants, have elements that nothing has written.
    pub(super) fn check_results(&self, plan: &Plan) -> Result<(), RunError> {
        let Some(watch) = &self.watch else { return Ok(()) };
        let label = "the end of a call";
        for (at, output) in plan.outputs.iter().enumerate() {
            match output {
                OutputPlan::Direct(shape, device) => {
                    let from = Address { base: Base::Output(at), offset: 0, device: *device };
                    watch.read(label, self.address(from), shape.dtype.size(), places(shape))?;
                }
                OutputPlan::Copied { shape, from } => {
                    watch.read(label, self.address(*from), shape.dtype.size(), places(shape))?;
                }
                OutputPlan::Number(from) => {
                    let first = std::iter::once(0);
                    watch.read(label, self.address(from.place), from.dtype.size(), first)?;
                }
                OutputPlan::Scalar(_) | OutputPlan::Text(_) => {}
            }
        }
        for update in &plan.updates {
            let from = self.address(update.from);
            match &update.to {
                Target::Const { bytes, .. } => watch.read(label, from, 1, 0..*bytes)?,
                Target::Input { shape, .. } => watch.read(label, from, shape.dtype.size(), places(shape))?,
            }
        }
        Ok(())
    }
}

/// Where the elements of a tensor are, counted in elements from its first.
fn places(shape: &Shape) -> impl Iterator<Item = usize> {
    let Shape { sizes, strides, .. } = shape;
    let count = sizes.iter().product::<usize>();
    (0..count).map(move |at| {
        let mut rest = at;
        let digits = sizes.iter().zip(strides).rev();
        digits
            .map(|(&size, &stride)| {
                let digit = rest % size;
                rest /= size;
                digit * stride
            })
            .sum()
    })
}
