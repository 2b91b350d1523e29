//! Wraps a device so that it also says how long each kernel took.

use crate::backends::Device;
use litz_runtime::RunError;
use litz_runtime::device::{self, KernelId, Launch};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Launches of one kernel with the same sizes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Launches {
    /// How many.
    pub count: u64,
    /// Wall time of all.
    pub time: Duration,
    /// Wall time of the shortest.
    pub shortest: Duration,
}

/// Runs kernels on another device and adds up their times.
pub struct Profile {
    inner: Device,
    launches: Mutex<BTreeMap<(usize, Vec<i64>), Launches>>,
}

impl Profile {
    /// Watches a device.
    pub fn new(inner: Device) -> Profile {
        Profile { inner, launches: Mutex::default() }
    }

    /// Takes what was recorded, by kernel and sizes; recording starts over.
    pub fn take(&self) -> BTreeMap<(usize, Vec<i64>), Launches> {
        std::mem::take(&mut self.lock())
    }

    /// An addition that panicked half way has lost one launch at most.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(usize, Vec<i64>), Launches>> {
        self.launches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl device::Device for Profile {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.inner.find(name)
    }

    fn concurrency(&self) -> usize {
        self.inner.concurrency()
    }

    unsafe fn launch(&self, launch: &Launch<'_>) -> Result<(), RunError> {
        let start = Instant::now();
        // SAFETY: the caller's promises are passed on unchanged.
        let result = unsafe { self.inner.launch(launch) };
        let time = start.elapsed();
        let mut launches = self.lock();
        let total = launches.entry((launch.kernel.0, launch.sizes.to_vec())).or_default();
        total.shortest = if total.count == 0 { time } else { total.shortest.min(time) };
        total.count += 1;
        total.time += time;
        result
    }
}
