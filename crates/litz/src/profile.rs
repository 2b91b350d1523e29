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

impl Launches {
    fn add(&mut self, time: Duration) {
        self.shortest = if self.count == 0 { time } else { self.shortest.min(time) };
        self.count += 1;
        self.time += time;
    }
}

/// What was recorded of launches.
#[derive(Default)]
pub struct Recorded {
    /// By kernel and sizes.
    pub kernels: BTreeMap<(usize, Vec<i64>), Launches>,
    /// By the number of the launch in the program: see [`Launch::number`].
    pub launches: BTreeMap<usize, Launches>,
    /// The latest launches one by one, in the order in which they began.
    pub spans: Vec<Span>,
}

/// One launch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span {
    /// Its number in the program.
    pub launch: usize,
    /// When it began, counted from the first launch that was recorded.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
}

/// Launches that are kept one by one.
const MOST_SPANS: usize = 1 << 16;

/// Runs kernels on another device and adds up their times.
pub struct Profile {
    inner: Device,
    times: Arc<Times>,
}

#[derive(Default)]
struct Times {
    recorded: Mutex<Recorded>,
    /// Before the first launch of all streams since recording started.
    first: Mutex<Option<Arc<dyn Event>>>,
}

/// An addition that panicked half way has lost one launch at most.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Profile {
    /// Watches a device.
    pub fn new(inner: Device) -> Profile {
        Profile { inner, times: Arc::default() }
    }

    /// Takes what was recorded; recording starts over.
    pub fn take(&self) -> Recorded {
        lock(&self.times.first).take();
        let mut recorded = std::mem::take(&mut *lock(&self.times.recorded));
        // Each stream adds its own when somebody has waited for it.
        recorded.spans.sort_by_key(|span| span.start);
        recorded
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

/// A launch that may not have ended, and the events around it.
struct Pending {
    kernel: usize,
    launch: usize,
    sizes: Vec<i64>,
    around: [Arc<dyn Event>; 2],
}

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
            lock(&self.times.first).get_or_insert_with(|| Arc::clone(&before));
            let (kernel, sizes, around) = (launch.kernel.0, launch.sizes.to_vec(), [before, after]);
            self.pending.push(Pending { kernel, launch: launch.number, sizes, around });
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
        let first = lock(&self.times.first).clone();
        let mut recorded = lock(&self.times.recorded);
        for Pending { kernel, launch, sizes, around: [before, after] } in self.pending.drain(..) {
            let Some(time) = after.since(&*before) else { continue };
            recorded.kernels.entry((kernel, sizes)).or_default().add(time);
            recorded.launches.entry(launch).or_default().add(time);
            if let Some(start) = first.as_ref().and_then(|first| before.since(&**first))
                && recorded.spans.len() < MOST_SPANS
            {
                recorded.spans.push(Span { launch, start, time });
            }
        }
        result
    }
}
