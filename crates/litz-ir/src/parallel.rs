//! Does independent pieces of a compilation on several threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `work` gives for each of `0..count`, in order, on at most so many threads, which take one number after another.
///
/// # Panics
/// Where `work` does.
pub fn parallel<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let take = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(result) = results.get(at) else { return };
            *result.lock().expect("invariant: nobody else has this number") = Some(work(at));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(count) {
            scope.spawn(take);
        }
        take();
    });
    let result = |result: Mutex<Option<T>>| result.into_inner().ok().flatten();
    results.into_iter().map(|r| result(r).expect("invariant: every number was taken")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_for_any_number_of_threads() {
        for (threads, count) in [(0, 3), (1, 3), (2, 0), (2, 1), (3, 100), (100, 3)] {
            let wanted: Vec<usize> = (0..count).map(|at| at * at).collect();
            assert_eq!(parallel(threads, count, |at| at * at), wanted, "{threads} threads");
        }
    }

    #[test]
    #[should_panic(expected = "scoped thread panicked")]
    fn a_panic_of_one_thread_is_everybodys() {
        let barrier = std::sync::Barrier::new(2);
        let caller = std::thread::current().id();
        parallel(2, 2, |_| {
            barrier.wait();
            assert_eq!(std::thread::current().id(), caller);
        });
    }
}
