//! Shows a spinner on standard error beside anything that takes over a second.

use indicatif::{ProgressBar, ProgressDrawTarget};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Work shorter than this shows nothing.
const QUIET: Duration = Duration::from_secs(1);

/// A spinner, gone when dropped. It shows only on a terminal.
pub struct Progress {
    bar: ProgressBar,
    done: Option<Sender<()>>,
    waiter: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts waiting for a second to pass.
    pub fn start() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let (done, ended) = mpsc::channel::<()>();
        let shown = bar.clone();
        let waiter = std::thread::spawn(move || {
            if ended.recv_timeout(QUIET) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(Duration::from_millis(100));
            }
        });
        Progress { bar, done: Some(done), waiter: Some(waiter) }
    }

    /// Says what is being done.
    pub fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.done.take());
        // The waiter does nothing that can panic.
        let _ = self.waiter.take().map(JoinHandle::join);
        self.bar.finish_and_clear();
    }
}
