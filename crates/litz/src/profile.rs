//! Wraps a device so that it also says how long each kernel took.

use crate::backends::Device;
use litz_runtime::RunError;
use litz_runtime::device::{self, Copy, DeviceMemory, Event, KernelId, Launch, Stream};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Launches of one kernel with the same sizes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Launches {
    /// How many.
    pub count: u64,
    /// Time of all, by the device's clock.
    pub time: Duration,
    /// Time of the shortest.
    pub shortest: Duration,
}

/// Runs kernels on another device and adds up their times.
pub struct Profile {
    inner: Device,
    times: Arc<Times>,
}

#[derive(Default)]
struct Times(Mutex<BTreeMap<(usize, Vec<i64>), Launches>>);

impl Times {
    /// An addition that panicked half way has lost one launch at most.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(usize, Vec<i64>), Launches>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Profile {
    /// Watches a device.
    pub fn new(inner: Device) -> Profile {
        Profile { inner, times: Arc::default() }
    }

    /// Takes what was recorded, by kernel and sizes; recording starts over.
    pub fn take(&self) -> BTreeMap<(usize, Vec<i64>), Launches> {
        std::mem::take(&mut self.times.lock())
    }
}

impl device::Device for Profile {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.inner.find(name)
    }

    fn concurrency(&self) -> usize {
        self.inner.concurrency()
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        self.inner.memory()
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        let (inner, times) = (self.inner.stream()?, Arc::clone(&self.times));
        Ok(Box::new(Watched { inner, times, pending: Vec::new() }))
    }
}

/// A launch that may not have ended: kernel, sizes, and the events around it.
type Pending = (usize, Vec<i64>, [Arc<dyn Event>; 2]);

struct Watched {
    inner: Box<dyn Stream>,
    times: Arc<Times>,
    pending: Vec<Pending>,
}

impl Stream for Watched {
    unsafe fn launch(&mut self, launch: &Launch<'_>) {
        let before = self.inner.record();
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { self.inner.launch(launch) };
        // A launch without events goes uncounted.
        if let (Ok(before), Ok(after)) = (before, self.inner.record()) {
            self.pending.push((launch.kernel.0, launch.sizes.to_vec(), [before, after]));
        }
    }

    unsafe fn copy(&mut self, copy: Copy) {
        // SAFETY: as above.
        unsafe { self.inner.copy(copy) };
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, RunError> {
        self.inner.record()
    }

    fn wait_for(&mut self, event: &Arc<dyn Event>) {
        self.inner.wait_for(event);
    }

    fn wait(&mut self) -> Result<(), RunError> {
        let result = self.inner.wait();
        let mut launches = self.times.lock();
        for (kernel, sizes, [before, after]) in self.pending.drain(..) {
            let Some(time) = after.since(&*before) else { continue };
            let total = launches.entry((kernel, sizes)).or_default();
            total.shortest = if total.count == 0 { time } else { total.shortest.min(time) };
            total.count += 1;
            total.time += time;
        }
        result
    }
}
