//! Binds workers to processor cores: each to one of its own, and none to the caller's.
//!
//! Left to itself, the system may wake a worker on the core where the caller runs and leave it waiting there for
//! milliseconds, in which the caller does all the work alone: of 12 processes on two cores, 9 took 61 us for a softmax that
//! all of them do in 35 us when bound. So workers are bound to cores, all but one of those that
//! the process may use. That one is the callers': they are not ours to bind, and when one turns up on a worker's
//! core, the two cores change roles.
//!
//! This is done only where the pool has as many threads as there are cores. With more, cores are shared whatever one does;
//! with fewer, the system has room, and other processes that were given the rest might bind to the same cores.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Which core is whose.
pub(super) struct Placement {
    /// For each worker its core, and its thread once that runs.
    homes: Box<[(AtomicUsize, AtomicI32)]>,
    /// The core left to callers.
    left: AtomicUsize,
}

impl Placement {
    /// Cores for `workers` threads beside the caller's; `None` unless the process has exactly one core for each.
    pub(super) fn new(workers: usize) -> Option<Placement> {
        let mut cores = allowed();
        if cores.len() != workers + 1 || workers == 0 {
            return None;
        }
        let own = current();
        let left = cores.remove(cores.iter().position(|&core| core == own).unwrap_or(0));
        let homes = cores.into_iter().map(|core| (AtomicUsize::new(core), AtomicI32::new(0))).collect();
        Some(Placement { homes, left: AtomicUsize::new(left) })
    }

    /// Binds the calling thread, a worker.
    pub(super) fn enter(&self, worker: usize) {
        let (core, thread) = &self.homes[worker];
        // SAFETY: it only asks for a number.
        thread.store(unsafe { libc::gettid() }, Ordering::SeqCst);
        // Whoever makes way from here on binds us, but may have done so before us.
        let mut home = None;
        while home != Some(core.load(Ordering::SeqCst)) {
            home = Some(core.load(Ordering::SeqCst));
            home.into_iter().for_each(|home| bind(0, home));
        }
    }

    /// Makes way for the calling thread where it is on a worker's core. One caller at a time.
    pub(super) fn make_way(&self) {
        let (own, left) = (current(), self.left.load(Ordering::Relaxed));
        if own == left {
            return;
        }
        let home = self.homes.iter().find(|(core, _)| core.load(Ordering::Relaxed) == own);
        if let Some((core, thread)) = home {
            core.store(left, Ordering::SeqCst);
            self.left.store(own, Ordering::Relaxed);
            // A worker that is not there yet finds its core when it is; 0 would be ourselves.
            match thread.load(Ordering::SeqCst) {
                0 => {}
                thread => bind(thread, left),
            }
        }
    }
}

/// The core that the calling thread is on at this moment.
fn current() -> usize {
    // SAFETY: it only asks for a number.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// The cores that the calling thread may use, in order; none where the system does not say.
fn allowed() -> Vec<usize> {
    // SAFETY: a set of no cores is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours, and as large as is said.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: numbers below its size are in the set or not.
    (0..8 * size_of_val(&set)).filter(|&core| unsafe { libc::CPU_ISSET(core, &set) }).collect()
}

/// Binds a thread of ours, 0 being the calling one, to a core. Where the system refuses, it stays where it likes.
fn bind(thread: libc::pid_t, core: usize) {
    // SAFETY: a set of no cores is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the core is one that `allowed` found in such a set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the set is ours, and as large as is said.
    unsafe { libc::sched_setaffinity(thread, size_of_val(&set), &set) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thread_for_each_core_is_placed() {
        let cores = allowed().len();
        assert!(cores > 0);
        assert_eq!(Placement::new(cores - 1).is_some(), cores > 1);
        assert!(Placement::new(cores).is_none());
        assert!(Placement::new(0).is_none());
    }

    /// Moves a thread over all cores: whichever it is on, no worker is.
    #[test]
    fn workers_make_way_for_callers() {
        let cores = allowed();
        let Some(placement) = Placement::new(cores.len() - 1) else { return };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for &core in cores.iter().chain(cores.iter().rev()) {
                    bind(0, core);
                    placement.make_way();
                    let mut taken: Vec<usize> =
                        placement.homes.iter().map(|(core, _)| core.load(Ordering::Relaxed)).collect();
                    assert_eq!(placement.left.load(Ordering::Relaxed), core);
                    taken.push(core);
                    taken.sort_unstable();
                    assert_eq!(taken, cores);
                }
            });
        });
    }
}
