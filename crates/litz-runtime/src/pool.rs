//! Runs chunks of work on a pool of threads.
//!
//! Workers live as long as the pool. They spin for a while after each job, since kernels follow each
//! other within microseconds, then sleep. Each thread, the caller among them, has a share of the chunks,
//! neighbours of each other, which it claims one by one in ascending order: what the next chunk reads is
//! often close to what this one did, and the next kernel's share to this one's. A thread that is done takes
//! from the ends of others' shares. So the caller takes every chunk that nobody else has begun, and a worker
//! which the system does not run delays only the chunk it holds. A chunk's result depends on its number alone,
//! so results do not depend on how many threads there are or who runs what.
//!
//! A pool does one job at a time. A call while it is busy, be it from inside a chunk or from another
//! thread, runs its chunks in the calling thread.
//!
//! A process may have other threads for parallel loops already, which spin, too, between theirs: on the cores that workers would
//! need. A pool of a [`Team`] has no workers, and runs its jobs on those.

mod placement;

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::device::Idle;
use placement::Placement;

/// How long an idle worker looks for work before it sleeps. Waking it takes about 40 us, starting a
/// job on a spinning one 0.2 us (two Zen 4 cores).
const SPIN: Duration = Duration::from_micros(50);

/// Looks between two readings of the clock.
const LOOKS_PER_CLOCK: u32 = 64;

/// Threads that run the chunks of one job at a time.
pub struct ThreadPool {
    shared: Arc<Shared>,
    crew: Crew,
    idle: Idle,
}

/// Who runs chunks beside the caller.
enum Crew {
    Workers(Vec<Worker>),
    Team(Box<dyn Team>),
}

/// Threads of somebody else's that run parallel loops, such as those of an OpenMP runtime.
pub trait Team: Send + Sync {
    /// Calls a function at once on each of several threads, at most so many, with numbers from 0, of which 0 is the calling thread's.
    /// Returns when all of them have ended. The function does not panic.
    fn run(&self, threads: usize, f: &(dyn Fn(usize) + Sync));
}

struct Worker {
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// A counter on a cache line of its own, since every thread watches or changes it.
#[repr(align(128))]
struct Counter(AtomicUsize);

/// The chunks of a thread that nobody has claimed: the first in the low half, the end in the high one.
#[repr(align(128))]
struct Share(AtomicU64);

/// Which end of a share to claim from.
#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

struct Shared {
    /// The caller's share of the current job, then those of workers. Claiming a chunk of any gives the right to read
    /// `job` until the chunk is subtracted from `unfinished`.
    shares: Box<[Share]>,
    /// How many jobs there have been.
    jobs: Counter,
    /// Chunks of the current job whose claimants have not reported them done.
    unfinished: Counter,
    /// Written by the caller that holds `busy`, only while shares are empty and `unfinished` is 0.
    job: UnsafeCell<Option<Job<'static>>>,
    /// Held by the caller whose job is running.
    busy: AtomicBool,
    /// One flag for each worker that is asleep or about to be.
    asleep: Box<[AtomicBool]>,
    sleepers: AtomicUsize,
    closing: AtomicBool,
    placement: Option<Placement>,
    /// The first panic of the current job.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is the only field that is not already `Sync`, and its accesses are ordered by
// `shares` and `unfinished` as described there; the function it refers to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Shared {}

impl ThreadPool {
    /// A pool of `threads` threads, the caller of [`ThreadPool::run`] being one of them.
    ///
    /// Where the system refuses a thread, the pool has fewer; 0 is taken as 1.
    ///
    /// Where that is one thread for each core that the process may use, workers are bound to cores.
    pub fn new(threads: usize) -> ThreadPool {
        ThreadPool::placed(threads, Placement::new(threads.saturating_sub(1)))
    }

    /// As [`ThreadPool::new`], with threads that the system moves as it likes: for several processes that take turns
    /// on the same cores.
    pub fn unbound(threads: usize) -> ThreadPool {
        ThreadPool::placed(threads, None)
    }

    /// A pool that has no threads of its own: a team lends it so many at each job.
    pub fn lent(threads: usize, team: Box<dyn Team>) -> ThreadPool {
        let shared = Arc::new(Shared::new(threads.max(1), None));
        ThreadPool { shared, crew: Crew::Team(team), idle: Idle::default() }
    }

    fn placed(threads: usize, placement: Option<Placement>) -> ThreadPool {
        let shared = Arc::new(Shared::new(threads.max(1), placement));
        let workers = (1..threads).map_while(|thread| Worker::spawn(thread - 1, &shared).ok()).collect();
        ThreadPool { shared, crew: Crew::Workers(workers), idle: Idle::default() }
    }

    /// Memory of calls that are over, for all programs that run on these threads.
    pub(crate) fn idle(&self) -> &Idle {
        &self.idle
    }

    /// How many threads may run chunks at once, the caller included.
    pub fn threads(&self) -> usize {
        match &self.crew {
            Crew::Workers(workers) => workers.len() + 1,
            Crew::Team(_) => self.shared.shares.len(),
        }
    }

    /// Calls `f` once for each chunk in `0..chunks`, in parallel and in no particular order, and
    /// returns when all have ended. If chunks panic, the others still run and one panic goes on here.
    pub fn run(&self, chunks: usize, f: Job<'_>) {
        let most = u32::MAX as usize;
        if chunks > most {
            self.run(most, f);
            return self.run(chunks - most, &|chunk| f(most + chunk));
        }
        if chunks <= 1 || self.threads() == 1 || self.shared.busy.swap(true, Ordering::Acquire) {
            return (0..chunks).for_each(f);
        }
        if let Some(placement) = &self.shared.placement {
            placement.make_way();
        }
        self.shared.start(chunks, f);
        match &self.crew {
            Crew::Workers(workers) => {
                self.shared.wake(workers, chunks - 1);
                self.shared.run_chunks(0);
            }
            Crew::Team(team) => team.run(self.threads(), &|thread| self.shared.run_chunks(thread)),
        }
        let panic = self.shared.finish();
        self.shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Worker {
    fn spawn(index: usize, shared: &Arc<Shared>) -> std::io::Result<Worker> {
        let shared = Arc::clone(shared);
        let name = format!("litz-{}", index + 1);
        let handle = thread::Builder::new().name(name).spawn(move || shared.work(index))?;
        Ok(Worker { thread: handle.thread().clone(), handle: Some(handle) })
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        let Crew::Workers(workers) = &mut self.crew else { return };
        self.shared.closing.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.thread.unpark();
            if let Some(handle) = worker.handle.take() {
                // A worker catches the panics of chunks and has no others.
                let _ = handle.join();
            }
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadPool({} threads)", self.threads())
    }
}

impl Shared {
    fn new(threads: usize, placement: Option<Placement>) -> Shared {
        Shared {
            shares: (0..threads).map(|_| Share(AtomicU64::new(0))).collect(),
            jobs: Counter(AtomicUsize::new(0)),
            unfinished: Counter(AtomicUsize::new(0)),
            job: UnsafeCell::new(None),
            busy: AtomicBool::new(false),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            sleepers: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
            placement,
            panic: Mutex::new(None),
        }
    }

    /// Wakes up to `wanted` workers that sleep.
    fn wake(&self, workers: &[Worker], wanted: usize) {
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return;
        }
        let sleeping = self.asleep.iter().zip(workers);
        let woken = sleeping.filter(|(asleep, _)| asleep.swap(false, Ordering::SeqCst));
        woken.take(wanted).for_each(|(_, worker)| worker.thread.unpark());
    }

    /// Publishes a job. The caller holds `busy`.
    fn start(&self, chunks: usize, f: Job<'_>) {
        // SAFETY: only the lifetime changes. A chunk must be claimed to reach the function, and
        // `finish` returns to whoever lent it only when every claimed chunk is done.
        let f = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(f) };
        // SAFETY: no chunk is claimed and none can be, so nobody else looks at the job.
        unsafe { *self.job.get() = Some(f) };
        self.unfinished.0.store(chunks, Ordering::Relaxed);
        let threads = self.shares.len();
        let begin = |thread: usize| (thread as u64 * chunks as u64).div_ceil(threads as u64);
        for (thread, share) in self.shares.iter().enumerate() {
            share.0.store(begin(thread) | begin(thread + 1) << 32, Ordering::Release);
        }
        self.jobs.0.fetch_add(1, Ordering::SeqCst);
    }

    /// Runs chunks as thread `own` until all are claimed.
    fn run_chunks(&self, own: usize) {
        let (behind, from) = self.shares.split_at(own.min(self.shares.len()));
        let mut done = 0;
        for (at, share) in from.iter().chain(behind).enumerate() {
            let end = if at == 0 { End::Front } else { End::Back };
            while let Some(chunk) = share.claim(end) {
                // SAFETY: we hold a claimed chunk, so the job stays as it is.
                let job = unsafe { *self.job.get() };
                let f = job.expect("invariant: a claimed chunk has a job");
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| f(chunk))) {
                    self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
                }
                done += 1;
            }
        }
        if done > 0 {
            self.unfinished.0.fetch_sub(done, Ordering::Release);
        }
    }

    /// Waits until every chunk is done; gives the first panic.
    fn finish(&self) -> Option<Box<dyn Any + Send>> {
        let is_done = || self.unfinished.0.load(Ordering::Acquire) == 0;
        while !spin_until(is_done) {
            // The claimant may be waiting for this very core.
            thread::yield_now();
        }
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn work(&self, index: usize) {
        if let Some(placement) = &self.placement {
            placement.enter(index);
        }
        let mut seen = 0;
        while !self.closing.load(Ordering::Relaxed) {
            let has_news =
                || self.jobs.0.load(Ordering::SeqCst) != seen || self.closing.load(Ordering::SeqCst);
            if !spin_until(has_news) {
                self.sleep(index, has_news);
            }
            seen = self.jobs.0.load(Ordering::SeqCst);
            self.run_chunks(index + 1);
        }
    }

    /// Sleeps until a caller clears the flag of this worker. News published before the flag was
    /// visible are seen here, news published after it make the caller wake us.
    fn sleep(&self, index: usize, has_news: impl Fn() -> bool) {
        let asleep = &self.asleep[index];
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        asleep.store(true, Ordering::SeqCst);
        while asleep.load(Ordering::SeqCst) && !has_news() {
            thread::park();
        }
        asleep.store(false, Ordering::SeqCst);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Share {
    /// Claims a chunk.
    fn claim(&self, end: End) -> Option<usize> {
        let bounds = |share: u64| (share & u64::from(u32::MAX), share >> 32);
        let rest = |share: u64| {
            let (first, last) = bounds(share);
            (first < last).then(|| match end {
                End::Front => (first + 1) | last << 32,
                End::Back => first | (last - 1) << 32,
            })
        };
        let (first, last) = bounds(self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, rest).ok()?);
        let chunk = match end {
            End::Front => first,
            End::Back => last - 1,
        };
        usize::try_from(chunk).ok()
    }
}

/// Looks for up to [`SPIN`] whether a condition has come true.
fn spin_until(is_true: impl Fn() -> bool) -> bool {
    let mut since = None;
    loop {
        for _ in 0..LOOKS_PER_CLOCK {
            if is_true() {
                return true;
            }
            spin_loop();
        }
        if since.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// How often each chunk ran.
    fn counts(pool: &ThreadPool, chunks: usize) -> Vec<usize> {
        let counts: Vec<_> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(chunks, &|chunk| {
            counts[chunk].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    /// Threads that are made for each job, fewer than were asked for where there are `most`.
    struct Scoped {
        most: usize,
    }

    impl Team for Scoped {
        fn run(&self, threads: usize, f: &(dyn Fn(usize) + Sync)) {
            thread::scope(|scope| {
                (1..threads.min(self.most)).for_each(|at| {
                    scope.spawn(move || f(at));
                });
                f(0);
            });
        }
    }

    fn lent(threads: usize, most: usize) -> ThreadPool {
        ThreadPool::lent(threads, Box::new(Scoped { most }))
    }

    #[test]
    fn every_chunk_runs_once() {
        for threads in [0, 1, 2, 3, 8] {
            let pools =
                [ThreadPool::new(threads), ThreadPool::unbound(threads), lent(threads, 8), lent(threads, 2)];
            for pool in pools {
                assert_eq!(pool.threads(), threads.max(1));
                for chunks in [0, 1, 2, 3, 7, 64, 1000] {
                    assert_eq!(counts(&pool, chunks), vec![1; chunks], "{threads} threads, {chunks} chunks");
                }
            }
        }
    }

    #[test]
    fn one_thread_runs_in_order_in_the_caller() {
        let seen = Mutex::new(Vec::new());
        let caller = thread::current().id();
        ThreadPool::new(1).run(5, &|chunk| {
            assert_eq!(thread::current().id(), caller);
            seen.lock().expect("no panic").push(chunk);
        });
        assert_eq!(seen.into_inner().expect("no panic"), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn many_short_jobs_see_their_own_data() {
        let pool = ThreadPool::new(4);
        for job in 0..20_000u64 {
            let sum = AtomicU64::new(0);
            pool.run(5, &|chunk| {
                sum.fetch_add(job * 10 + chunk as u64, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), job * 50 + 10);
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = ThreadPool::new(3);
        for _ in 0..20 {
            thread::sleep(SPIN * 10);
            // Each chunk waits for the others, so all three threads must take part.
            let barrier = std::sync::Barrier::new(3);
            pool.run(3, &|_| {
                barrier.wait();
            });
        }
    }

    #[test]
    fn each_thread_begins_with_its_own_share() {
        for pool in [ThreadPool::new(2), lent(2, 2)] {
            let first = Mutex::new(Vec::new());
            let barrier = std::sync::Barrier::new(2);
            pool.run(10, &|chunk| {
                let mut first = first.lock().expect("no panic");
                if first.iter().all(|&(thread, _)| thread != thread::current().id()) {
                    first.push((thread::current().id(), chunk));
                    drop(first);
                    barrier.wait();
                }
            });
            let mut first: Vec<usize> =
                first.into_inner().expect("no panic").into_iter().map(|f| f.1).collect();
            first.sort_unstable();
            assert_eq!(first, [0, 5]);
        }
    }

    #[test]
    fn nested_calls_run_inline() {
        for pool in [ThreadPool::new(3), lent(3, 3)] {
            let count = AtomicUsize::new(0);
            pool.run(8, &|_| {
                let outer = thread::current().id();
                pool.run(8, &|_| {
                    assert_eq!(thread::current().id(), outer);
                    count.fetch_add(1, Ordering::Relaxed);
                });
            });
            assert_eq!(count.into_inner(), 64);
        }
    }

    #[test]
    fn concurrent_callers_do_not_disturb_each_other() {
        for (pool, jobs) in [(ThreadPool::new(3), 2000), (lent(3, 3), 100)] {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for chunks in 0..jobs {
                            assert_eq!(counts(&pool, chunks % 9), vec![1; chunks % 9]);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        for pool in [ThreadPool::new(3), lent(3, 3)] {
            a_panic_reaches_the_caller(&pool);
        }
    }

    fn a_panic_reaches_the_caller(pool: &ThreadPool) {
        for _ in 0..50 {
            let ran = AtomicUsize::new(0);
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(16, &|chunk| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    if chunk == 11 {
                        resume_unwind(Box::new("chunk 11"));
                    }
                });
            }));
            let panic = result.expect_err("chunk 11 panics");
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"chunk 11"));
            assert_eq!(ran.into_inner(), 16);
        }
        assert_eq!(counts(pool, 16), vec![1; 16]);
    }
}
