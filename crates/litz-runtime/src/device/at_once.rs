//! A stream for devices that have nothing to wait for: everything happens while it is enqueued.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Copy, Event, Launch, Stream};
use crate::error::RunError;

/// Something that runs a launch while the caller waits, on memory of the host.
pub trait RunsAtOnce: Send + Sync {
    /// Runs a kernel and returns when it has ended. May be called from several threads at once.
    ///
    /// # Errors
    /// As [`Stream::wait`].
    ///
    /// # Safety
    /// As [`Stream::launch`].
    unsafe fn run(&self, launch: &Launch<'_>) -> Result<(), RunError>;
}

/// A stream that does everything at once. After an error it does nothing until somebody has waited.
pub struct AtOnce<R> {
    runs: Arc<R>,
    /// What the next wait returns.
    ended: Result<(), RunError>,
}

impl<R: RunsAtOnce> AtOnce<R> {
    /// A stream on which nothing has happened.
    pub fn new(runs: Arc<R>) -> AtOnce<R> {
        AtOnce { runs, ended: Ok(()) }
    }
}

impl<R: RunsAtOnce> Stream for AtOnce<R> {
    unsafe fn launch(&mut self, launch: &Launch<'_>) {
        if self.ended.is_ok() {
            // SAFETY: by the contract.
            self.ended = unsafe { self.runs.run(launch) };
        }
    }

    unsafe fn copy(&mut self, copy: Copy) {
        if self.ended.is_ok() && copy.bytes > 0 {
            // SAFETY: by the contract; all spaces are the host's memory.
            unsafe { std::ptr::copy(copy.from.1, copy.to.1, copy.bytes) };
        }
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, RunError> {
        Ok(Arc::new(Moment(Instant::now())))
    }

    fn wait_for(&mut self, event: &Arc<dyn Event>) {
        event.wait();
    }

    fn wait(&mut self) -> Result<(), RunError> {
        std::mem::replace(&mut self.ended, Ok(()))
    }
}

/// An event that has happened when it was recorded.
struct Moment(Instant);

impl Event for Moment {
    fn wait(&self) {}

    fn since(&self, earlier: &dyn Event) -> Option<Duration> {
        let earlier: &dyn Any = earlier;
        Some(self.0.saturating_duration_since(earlier.downcast_ref::<Moment>()?.0))
    }
}
