//! Runs commands while memory is watched: twice, where what they read or leave is in doubt; and looks at the numbers that they make.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Context, Flow};
use crate::error::RunError;
use crate::program::function::{Function, Running};
use crate::program::numbers::{Kinds, first_made};
use crate::program::plan::{Address, Base, Command, OutputPlan, Plan, Shape, Target, WatchedCommand};
use crate::program::watch::{PATTERNS, Touched, Watch, bytes};

impl Context {
    /// Runs a command, holds what it does with memory against what was said of it, and what it makes against what it reads, as far as that is
    /// watched.
    pub(super) fn watched(
        &mut self,
        function: &Function,
        plan: &Arc<Plan>,
        at: usize,
        watched: &WatchedCommand,
        running: Running<'_>,
    ) -> Result<Flow, RunError> {
        let numbers = function.prepared.watched.as_ref().is_some_and(|watched| watched.watching.numbers);
        let read = if numbers { Some(self.numbers_before(function, watched)?) } else { None };
        let flow = match self.watch.take() {
            Some(mut watch) => {
                let flow = self.watched_by(&mut watch, function, plan, (at, watched), running);
                self.watch = Some(watch);
                flow?
            }
            None => self.command(function, plan, at, running)?,
        };
        match (&plan.commands[at], read) {
            (
                Command::Launch(_) | Command::Extern { .. } | Command::Copy { .. } | Command::Call { .. },
                Some(read),
            ) => {
                self.check_numbers(function, watched, read)?;
            }
            // Functions look at their own steps.
            (
                Command::Launch(_)
                | Command::Extern { .. }
                | Command::Copy { .. }
                | Command::Call { .. }
                | Command::Control { .. }
                | Command::Size { .. }
                | Command::Record { .. }
                | Command::Wait { .. }
                | Command::Settle
                | Command::Enter { .. }
                | Command::Leave
                | Command::Capture { .. }
                | Command::Release { .. },
                _,
            ) => {}
        }
        Ok(flow)
    }

    /// What kinds of numbers there are before a command where it reads, and where it writes.
    fn numbers_before(&mut self, function: &Function, watched: &WatchedCommand) -> Result<Kinds, RunError> {
        self.queues.wait()?;
        for begin in watched.begins.iter().filter(|begin| !begin.is_given && begin.bytes > 0) {
            // Whoever watches memory puts patterns there.
            if self.watch.is_none() {
                // SAFETY: the buffer's memory is the call's, nothing that is enqueued uses it, and its life begins here.
                unsafe { self.address(begin.place).write_bytes(0, begin.bytes) };
            }
        }
        let begins = |buffer| watched.begins.iter().any(|begin| begin.buffer == buffer && !begin.is_given);
        let kinds = watched.uses.iter().filter(|used| !begins(used.buffer)).map(|used| {
            // SAFETY: nothing that is enqueued writes there.
            let bytes = unsafe { bytes(self.address(used.place), used.bytes) };
            Kinds::of(bytes, function.prepared.slots[used.slot].dtype)
        });
        let infinite = Kinds { nan: false, infinite: watched.has_infinity };
        Ok(kinds.fold(infinite, Kinds::and))
    }

    /// Fails where a command has made a number that is not finite.
    fn check_numbers(
        &mut self,
        function: &Function,
        watched: &WatchedCommand,
        read: Kinds,
    ) -> Result<(), RunError> {
        self.queues.wait()?;
        let unwritten = if self.watch.is_some() { &PATTERNS[..] } else { &[] };
        for used in watched.uses.iter().filter(|used| used.access.is_written()) {
            let slot = &function.prepared.slots[used.slot];
            // SAFETY: nothing that is enqueued writes there.
            let bytes = unsafe { bytes(self.address(used.place), used.bytes) };
            if let Some((element, kind)) = first_made(bytes, slot.dtype, read, unwritten) {
                let (step, buffer) = (watched.label.clone(), slot.name.clone());
                return Err(RunError::NotFinite { step, buffer, element, kind });
            }
        }
        Ok(())
    }

    fn watched_by(
        &mut self,
        watch: &mut Watch,
        function: &Function,
        plan: &Arc<Plan>,
        (at, watched): (usize, &WatchedCommand),
        running: Running<'_>,
    ) -> Result<Flow, RunError> {
        let touched: SmallVec<[Touched; 8]> = watched
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
                    unsafe { watch.again(&before, &touched) };
                    self.command(function, plan, at, running)?;
                    self.queues.wait()?;
                    // SAFETY: as above.
                    unsafe { watch.compare(&watched.label, &before)? };
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
