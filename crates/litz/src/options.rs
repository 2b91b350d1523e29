//! Holds everything that a user can choose, built once. This is the only place that reads environment variables.

use crate::factories::BACKENDS;
use crate::given::GivenSchedule;
use crate::provenance::Provenance;
use litz_backend::Factory;
use litz_ir::target::Target;
use litz_passes::graph;
use litz_passes::loops::{self, Inlining};
use litz_runtime::cache::{Access, CacheInfo, ObjectCache, OpenError};
use litz_runtime::images::Architecture;
use litz_runtime::pool::ThreadPool;
use litz_runtime::reference::ReferenceOptions;
use litz_runtime::{GuardPages, Host, Limits};
use litz_schedule::Heuristics;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How to compile and run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which model of an archive is read; `None`: the only one.
    pub model: Option<String>,
    /// Threads that run kernels; the caller's is one of them. At least 1.
    pub threads: usize,
    /// Bind threads to cores where there is one for each core that the process may use; see
    /// [`litz_runtime::pool::ThreadPool`]. Not for several processes that take turns on the same cores.
    pub bind: bool,
    /// Threads that several models share, in the place of `threads` of their own; `None`: each has its own.
    pub pool: Option<PoolOption>,
    /// What makes code of kernels, of [`crate::BACKENDS`] or of your own.
    pub backend: &'static Factory,
    /// Which of this machine's devices runs the model, from 0 on, where the backend's are numbered: GPUs.
    pub device_number: u32,
    /// GPUs that machine code is made for, beside the PTX that later ones take; none: that of this machine, else the target's.
    pub architectures: Vec<Architecture>,
    /// What is compiled for; `None`: this machine, with so many threads.
    pub target: Option<Target>,
    /// Run on the reference device: slow, obvious, the definition of right.
    pub reference: bool,
    /// How the reference device runs kernels. See [`crate::Compiled::counts`] for what it counts.
    pub reference_options: ReferenceOptions,
    /// Treat parameters as constants: fold and pack them when the model is loaded.
    pub freeze: bool,
    /// What of the texts between stages is verified.
    pub verify: Verify,
    /// Record how long every launch takes; see [`crate::profile`].
    pub profile: bool,
    /// Folder of compiled objects; `None`: nothing is kept.
    pub cache: Option<PathBuf>,
    /// Most bytes that folder holds.
    pub cache_bytes: u64,
    /// Nothing in that folder changes: what it has is used, and nothing is kept. A folder that this user may not write to is used like
    /// that anyway.
    pub cache_read_only: bool,
    /// Another folder behind that one, in which nothing changes: what is not in the first is looked for there. `None`: nowhere else.
    pub shared_cache: Option<PathBuf>,
    /// Folder that every stage's text is written to.
    pub dump: Option<PathBuf>,
    /// What a compilation, its constants and a call may take; more is an error that names the limit.
    pub limits: Limits,
    /// Unmapped pages next to every buffer that native code gets, so that an access outside of it faults: for tests.
    /// Buffers share no memory then, and what load steps compute is not kept in the cache.
    pub guard_pages: GuardPages,
    /// Watches the memory of calls on the CPU: that buffers in use lie apart, and that nothing is read which no step has written. Steps may
    /// run twice for that.
    pub verify_memory: bool,
    /// Ends a call with an error where a step makes a NaN or an infinite number and nothing that it reads is one. The error names the
    /// step, the nodes that it computes, and the element.
    pub check_nan: bool,
    /// Tells `perf` the names of kernels and what they compute, by the file that it looks for: `/tmp/perf-PID.map`.
    pub perf: bool,
    /// How much of the user's model is kept in what is compiled.
    pub provenance: Provenance,
    /// The rewrites of graphs and of loops that run, in their order.
    pub passes: Passes,
    /// What rewrites take in.
    pub inlining: Inlining,
    /// Whether instructions of GPUs may take operands of float32 products and convolutions as tf32, with 10 bits behind the point.
    pub tf32: bool,
    /// Thresholds of the scheduler.
    pub heuristics: Heuristics,
    /// How the model runs; `None`: as the scheduler decides.
    pub schedule: Option<GivenSchedule>,
    /// Where there is no schedule: run by the one that tuning found for the same loops and target, where the cache has one
    /// ([`crate::tune::found`]).
    pub tuned: bool,
    /// Who is asked for operators that Litz does not have; `None`: nobody.
    pub host: Option<HostOption>,
    /// What becomes of operators that the host has and Litz has not.
    pub fallback: Fallback,
    /// Ends a compilation where it is once this is set, with [`Error::Stopped`](crate::Error::Stopped); `None`: nothing does.
    pub stop: Option<Arc<AtomicBool>>,
}

/// Rewrites of graphs and of loops. Whoever tests how a wrong one is found puts it into the list.
#[derive(Clone, Copy)]
pub struct Passes {
    /// Those of graphs.
    pub graph: &'static [graph::Pass],
    /// Those of loops.
    pub loops: &'static [loops::Pass],
}

impl Default for Passes {
    fn default() -> Self {
        Passes { graph: graph::PASSES, loops: loops::PASSES }
    }
}

impl fmt::Debug for Passes {
    /// Their names: part of what the keys of caches are made of.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.graph.iter().map(|pass| pass.name).chain(self.loops.iter().map(|pass| pass.name));
        f.debug_list().entries(names).finish()
    }
}

/// Threads, to be given to [`Options::pool`].
#[derive(Clone)]
pub struct PoolOption(pub Arc<ThreadPool>);

impl fmt::Debug for PoolOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads", self.0.threads())
    }
}

/// A host, to be given to [`Options::host`].
#[derive(Clone)]
pub struct HostOption(pub Arc<dyn Host>);

impl fmt::Debug for HostOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a host")
    }
}

/// What becomes of operators that the host has and Litz has not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Fallback {
    /// They are an error, as without a host.
    Error,
    /// The host runs them, and whoever compiles is told, once for each operator.
    #[default]
    Warn,
    /// The host runs them.
    Quiet,
}

/// What of the texts between stages is verified.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verify {
    /// Nothing.
    Nothing,
    /// What each stage hands to the next: about 2 % of the time that compiling takes.
    Stages,
    /// What each pass of a stage gives as well; every stage runs, whatever the cache has.
    Passes,
}

/// The device that interprets kernels, for any backend's target.
const REFERENCE: &str = "reference";

impl Default for Options {
    fn default() -> Self {
        Options {
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            bind: true,
            pool: None,
            backend: BACKENDS[0],
            device_number: 0,
            architectures: Vec::new(),
            target: None,
            reference: false,
            reference_options: ReferenceOptions::default(),
            freeze: true,
            verify: if cfg!(debug_assertions) { Verify::Passes } else { Verify::Stages },
            profile: false,
            cache: None,
            cache_bytes: 4 << 30,
            cache_read_only: false,
            shared_cache: None,
            dump: None,
            limits: Limits::default(),
            guard_pages: GuardPages::Off,
            verify_memory: false,
            check_nan: false,
            perf: false,
            provenance: Provenance::default(),
            passes: Passes::default(),
            inlining: Inlining::default(),
            tf32: false,
            heuristics: Heuristics::default(),
            schedule: None,
            tuned: false,
            model: None,
            host: None,
            fallback: Fallback::default(),
            stop: None,
        }
    }
}

impl Options {
    /// # Errors
    /// [`Error::Stopped`](crate::Error::Stopped), where somebody has set [`Options::stop`].
    pub(crate) fn check_stop(&self) -> Result<(), crate::Error> {
        match self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(crate::Error::Stopped),
            false => Ok(()),
        }
    }

    /// The defaults, for a target, its backend and as many threads as it has.
    pub fn for_target(target: Target) -> Options {
        let mut options = Options::default();
        options.set_target(target);
        options
    }

    /// Compiles for a target, by the backend for its kind, with as many threads as it has.
    pub fn set_target(&mut self, target: Target) {
        self.threads = target.threads() as usize;
        self.target = Some(target);
        if let Some(backend) = BACKENDS.iter().find(|backend| backend.kind == target.kind()) {
            self.backend = backend;
        }
    }

    /// Has kernels run by what a name such as `cpu`, `cuda:1` or `reference` says: `DEVICE` of `--device`.
    ///
    /// # Errors
    /// Where there is no such name; the message lists those that there are.
    pub fn set_device(&mut self, name: &str) -> Result<(), String> {
        let unknown = || {
            let of = |backend: &&Factory| match backend.is_numbered {
                true => format!("{0}, {0}:N", backend.name),
                false => backend.name.to_owned(),
            };
            let names: Vec<String> = BACKENDS.iter().map(of).chain([REFERENCE.to_owned()]).collect();
            format!("expected one of {}, found `{name}`", names.join(", "))
        };
        self.reference = name == REFERENCE;
        if self.reference {
            return Ok(());
        }
        let (kind, number) = match name.split_once(':') {
            Some((kind, number)) => (kind, Some(number.parse::<u32>().map_err(|_| unknown())?)),
            None => (name, None),
        };
        let is_meant =
            |backend: &&&Factory| backend.name == kind && (number.is_none() || backend.is_numbered);
        self.backend = BACKENDS.iter().find(is_meant).ok_or_else(unknown)?;
        self.device_number = number.unwrap_or(0);
        Ok(())
    }

    /// The cache that these options name; none where they name none, and where no folder of it can be opened.
    ///
    /// # Errors
    /// Where others may write to it.
    pub(crate) fn cache(&self) -> Result<Option<ObjectCache>, OpenError> {
        match self.open_cache(Access::ReadWrite) {
            Ok(cache) => Ok(cache),
            Err(OpenError::Io { .. }) => Ok(None),
            Err(exposed @ OpenError::Exposed { .. }) => Err(exposed),
        }
    }

    /// As [`Options::cache`], for no more than `most`. A folder that cannot be opened is left out where there is another one.
    ///
    /// # Errors
    /// Where others may write to a folder, and where none can be opened.
    pub(crate) fn open_cache(&self, most: Access) -> Result<Option<ObjectCache>, OpenError> {
        let (mut found, mut missing) = (None::<ObjectCache>, None);
        for (folder, access) in self.cache_folders() {
            let access = if most == Access::Read { most } else { access };
            match ObjectCache::open(folder.to_owned(), self.cache_bytes, access) {
                Ok(cache) => {
                    found = Some(match found {
                        Some(first) => first.in_front_of(cache),
                        None => cache,
                    });
                }
                Err(error @ OpenError::Io { .. }) => missing = missing.or(Some(error)),
                Err(exposed @ OpenError::Exposed { .. }) => return Err(exposed),
            }
        }
        match (found, missing) {
            (None, Some(error)) => Err(error),
            (found, _) => Ok(found),
        }
    }

    /// The folders of the cache that these options name, the first one in front, and what may be done with each.
    pub(crate) fn cache_folders(&self) -> impl Iterator<Item = (&Path, Access)> {
        let access = if self.cache_read_only { Access::Read } else { Access::ReadWrite };
        let own = self.cache.as_deref();
        let shared = own.and(self.shared_cache.as_deref());
        own.map(|folder| (folder, access)).into_iter().chain(shared.map(|folder| (folder, Access::Read)))
    }

    /// What is in the first folder of the cache that these options name; none where there is none.
    ///
    /// # Errors
    /// Where others may write to it.
    pub fn cache_info(&self) -> Result<Option<CacheInfo>, OpenError> {
        Ok(self.cache()?.and_then(|cache| cache.info().ok()))
    }

    /// The defaults, as changed by the environment: `LITZ_NUM_THREADS` (else `OMP_NUM_THREADS`), `LITZ_CACHE_DIR`
    /// (else the user's cache folder; empty: none), `LITZ_SHARED_CACHE_DIR`, `LITZ_DUMP`, `LITZ_CACHE_READ_ONLY`,
    /// `LITZ_CHECK_NAN` and `LITZ_PERF` (anything but 0).
    pub fn from_env() -> Options {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
        let number = |name: &str| var(name).and_then(|v| v.parse().ok()).filter(|&n: &usize| n > 0);
        let mut options = Options::default();
        if let Some(threads) = number("LITZ_NUM_THREADS").or_else(|| number("OMP_NUM_THREADS")) {
            options.threads = threads;
        }
        options.cache = match std::env::var_os("LITZ_CACHE_DIR") {
            Some(dir) if dir.is_empty() => None,
            Some(dir) => Some(PathBuf::from(dir)),
            None => var("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| var("HOME").map(|home| PathBuf::from(home).join(".cache")))
                .map(|dir| dir.join("litz")),
        };
        let is_set = |name: &str| var(name).is_some_and(|value| value != "0");
        options.cache_read_only = is_set("LITZ_CACHE_READ_ONLY");
        options.shared_cache = var("LITZ_SHARED_CACHE_DIR").map(PathBuf::from);
        options.check_nan = is_set("LITZ_CHECK_NAN");
        options.perf = is_set("LITZ_PERF");
        options.dump = var("LITZ_DUMP").map(PathBuf::from);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_with_their_numbers() {
        let chosen = |name: &str| {
            let mut options = Options::default();
            options
                .set_device(name)
                .map(|()| (options.backend.name, options.device_number, options.reference))
        };
        assert_eq!(chosen("cpu"), Ok(("cpu", 0, false)));
        assert_eq!(chosen("cuda"), Ok(("cuda", 0, false)));
        assert_eq!(chosen("cuda:1"), Ok(("cuda", 1, false)));
        assert_eq!(chosen("reference"), Ok(("cpu", 0, true)));
        for name in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "reference:0", "cuda:4294967296"] {
            let expected = format!("expected one of cpu, cuda, cuda:N, reference, found `{name}`");
            assert_eq!(chosen(name), Err(expected));
        }
    }
}
