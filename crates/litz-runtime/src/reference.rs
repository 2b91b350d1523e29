//! Interprets kernels: the reference device, which is the definition of correctness.
//!
//! It interprets the kernel in order, one grid point after another, one loop iteration after another. Every access
//! is checked against the extent that the kernel declares, and grid points that race are found, and threads of one point. Registers and
//! scratch memory are filled with ones before each point, which makes floats NaN, so that nothing can rest on what they held.
//!
//! Iterations of loops over levels run one after another like others, where that is one of the orders in which a GPU may run them. Given a
//! seed, threads run side by side in an order that the seed decides ([`Interpreter::seeded`]). Races are found in either case, since what
//! orders two accesses does not depend on which one came first.

mod chance;
mod clocks;
mod code;
mod counts;
mod distant;
mod elements;
mod explain;
mod fragments;
mod lanes;
pub mod loops;
mod order;
mod own;
mod prepare;
mod races;
mod rings;
mod run;
mod scalar;
mod teams;
mod threads;
mod transfers;
mod units;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use litz_ir::kernel::{Kernel, MemorySpace};
use smallvec::SmallVec;

pub use crate::device::MemView;
use crate::device::{AtOnce, Device, DeviceMemory, KernelId, Launch, RunsAtOnce, Stream};
use crate::error::RunError;
use crate::number::Bits;
use chance::Chance;
use clocks::{Access, Clocks};
use code::{Code, Memory, Seen};
use counts::Counter;
pub use counts::{Counts, Served};
pub use distant::DistantDevice;
use elements::Element;
use prepare::prepare;
use races::Traces;
use run::{Fault, Machine};
use threads::Here;
use transfers::Transfers;

/// Runs all grid points of a kernel. `args` has one memory for each parameter and `sizes` one value for each size
/// symbol.
///
/// # Errors
/// A failed `bind` is [`RunError::BadIndex`]. All else, such as an access outside of a memory, is a
/// [`RunError::Bug`].
pub fn run(kernel: &Kernel, args: &mut [MemView<'_>], sizes: &[i64]) -> Result<(), RunError> {
    Interpreter::new(kernel)?.run(args, sizes)
}

/// A kernel made ready to be interpreted many times.
pub struct Interpreter {
    name: String,
    checks: Vec<String>,
    code: Code,
    /// The kernel, where threads may race: errors name its acts.
    source: Option<Kernel>,
    /// Decides in which order threads run that nothing orders; none: in the order of the text.
    seed: Option<u64>,
    /// States that no run is using.
    idle: Mutex<Vec<State>>,
}

/// What changes during a run.
#[derive(Default)]
struct State {
    /// Size symbols first, then grid and loop variables and bound symbols.
    symbols: Vec<i64>,
    values: Vec<Bits>,
    /// Elements of each memory.
    extents: Vec<usize>,
    /// Registers and scratch.
    locals: Vec<Vec<u8>>,
    traces: Traces,
    /// The unit that runs.
    here: Here,
    clocks: Clocks,
    /// When the point of the grid began, and its block where blocks run one after another.
    since: u32,
    block_since: u32,
    /// What was done to memory that several threads see, by memory; empty for others.
    elements: Vec<Vec<Element>>,
    /// Who stored to the elements of locals that each thread has of its own; empty for others.
    owners: Vec<Vec<Access>>,
    /// Where units run side by side: which elements of such locals any of them has stored to.
    stored: Option<Vec<Vec<bool>>>,
    transfers: Transfers,
    /// Threads of a block that there is memory for, and blocks.
    threads: usize,
    blocks: usize,
    /// Where accesses and acts are counted.
    counter: Option<Counter>,
}

impl Interpreter {
    /// Resolves a kernel; an error names the rule that it breaks.
    pub fn new(kernel: &Kernel) -> Result<Interpreter, RunError> {
        let code = prepare(kernel)?;
        Ok(Interpreter {
            name: kernel.name.clone(),
            checks: kernel.checks.clone(),
            source: code.has_levels.then(|| kernel.clone()),
            code,
            seed: None,
            idle: Mutex::default(),
        })
    }

    /// Runs threads in an order that a seed decides, as far as nothing else does: units side by side that wait for each other, and copies
    /// in the background that arrive at any time.
    pub fn seeded(self, seed: u64) -> Interpreter {
        Interpreter { seed: Some(seed), ..self }
    }

    /// As [`run`].
    pub fn run(&self, args: &mut [MemView<'_>], sizes: &[i64]) -> Result<(), RunError> {
        let idle = lock(&self.idle).pop();
        let mut state = idle.unwrap_or_default();
        let result = self.run_in(&mut state, args, sizes);
        lock(&self.idle).push(state);
        result
    }

    /// As [`run`], and returns what a GPU would be slow by.
    ///
    /// # Errors
    /// As those of [`run`].
    pub fn count(&self, args: &mut [MemView<'_>], sizes: &[i64]) -> Result<Counts, RunError> {
        let mut state = State { counter: Some(Counter::default()), ..State::default() };
        self.run_in(&mut state, args, sizes)?;
        let counts = state.counter.map(|counter| counter.counts).unwrap_or_default();
        Ok(Counts { launches: 1, ..counts })
    }

    fn run_in(&self, state: &mut State, args: &mut [MemView<'_>], sizes: &[i64]) -> Result<(), RunError> {
        self.start(state, args, sizes)?;
        let chance = self.seed.map(Chance::new);
        let is_watched = self.code.has_levels || state.counter.is_some();
        let mut machine = Machine { code: &self.code, args, state, chance, is_watched, act: 0 };
        machine.run_all().map_err(|fault| self.explain(fault))
    }

    fn start(&self, state: &mut State, args: &[MemView<'_>], sizes: &[i64]) -> Result<(), RunError> {
        let code = &self.code;
        if args.len() != code.params || sizes.len() != code.sizes {
            let (params, expected) = (code.params, code.sizes);
            let found = format!("{} memories and {} sizes", args.len(), sizes.len());
            return Err(self.bug(format!("expected {params} memories and {expected} sizes, found {found}")));
        }
        state.symbols.clear();
        state.symbols.extend_from_slice(sizes);
        state.symbols.resize(code.symbols, 0);
        state.values.resize(code.values, 0);
        state.extents.clear();
        state.locals.resize_with(code.mems.len() - code.params, Vec::new);
        for (at, mem) in code.mems.iter().enumerate() {
            let (extent, bytes) = self.extent_of(mem, sizes)?;
            state.extents.push(extent);
            match args.get(at) {
                None => state.locals[at - code.params].resize(bytes, 0),
                Some(MemView::Read(_)) if !mem.is_read_only => {
                    return Err(
                        self.bug(format!("memory {} is written, but given only to be read", mem.name))
                    );
                }
                Some(MemView::Read(given)) => self.expect_bytes(&mem.name, given.len(), bytes)?,
                Some(MemView::Write(given)) => self.expect_bytes(&mem.name, given.len(), bytes)?,
            }
        }
        let has_points = !code.grid.is_empty();
        let watched = code.mems.iter().take(code.params).zip(&state.extents);
        let watched = watched.map(|(mem, extent)| if has_points && !mem.is_read_only { *extent } else { 0 });
        state.traces.start(watched);
        state.transfers = Transfers::default();
        state.stored = None;
        if code.has_levels {
            state.clocks.start();
            let mems = || code.mems.iter().zip(&state.extents);
            let count = |seen: &dyn Fn(Seen) -> bool, (mem, &extent): (&Memory, &usize)| {
                if mem.seen.is_some_and(seen) { extent } else { 0 }
            };
            let shared = mems().map(|mem| count(&|seen| seen != Seen::One, mem));
            state.elements = shared.map(|count| vec![Element::default(); count]).collect();
            let own = mems().skip(code.params).map(|mem| count(&|seen| seen == Seen::One, mem));
            state.owners = own.map(|count| vec![Access::default(); count]).collect();
        }
        Ok(())
    }

    /// Elements and bytes of a memory. An extent below 0 is that of a layout without elements.
    fn extent_of(&self, mem: &Memory, sizes: &[i64]) -> Result<(usize, usize), RunError> {
        let extent = mem.extent.eval(sizes).and_then(|extent| usize::try_from(extent.max(0)).ok());
        let bytes = extent.and_then(|extent| extent.checked_mul(mem.dtype.size()));
        let no_extent = || self.bug(format!("memory {} has no valid extent", mem.name));
        Ok((extent.ok_or_else(no_extent)?, bytes.ok_or_else(no_extent)?))
    }

    fn expect_bytes(&self, name: &str, found: usize, expected: usize) -> Result<(), RunError> {
        if found >= expected {
            return Ok(());
        }
        Err(self.bug(format!("memory {name}: expected {expected} bytes, found {found}")))
    }

    fn explain(&self, fault: Fault) -> RunError {
        match fault {
            Fault::Check(check) => {
                RunError::BadIndex { kernel: self.name.clone(), check: self.checks[check as usize].clone() }
            }
            Fault::OutOfRange { mem, index, extent } => {
                let name = &self.code.mems[mem].name;
                self.bug(format!("memory {name}: expected an index below {extent}, found {index}"))
            }
            Fault::Race { mem, index } => {
                let name = &self.code.mems[mem].name;
                self.bug(format!("memory {name}: points of the grid race for element {index}"))
            }
            Fault::Threads { mem, index, accesses } => {
                let name = &self.code.mems[mem].name;
                let accesses = accesses.into_iter().flatten().map(|access| self.access(&access));
                let accesses = accesses.collect::<Vec<_>>().join(", ");
                self.bug(format!("memory {name}: threads race for element {index}: {accesses}"))
            }
            Fault::Deadlock(waiting) => {
                let waiting = waiting.into_iter().map(|(range, act)| self.waiting(range, act));
                self.bug(format!("deadlock: {}", waiting.collect::<Vec<_>>().join(", ")))
            }
            Fault::Ring(ring) => {
                self.bug(format!("{ring} is not emptied at the end, or is released before it is acquired"))
            }
            Fault::Products(mem) => {
                let place = mem.map_or("the end".to_owned(), |mem| format!("`{}`", self.code.mems[mem].name));
                self.bug(format!("products are under way at {place}: they are not waited for"))
            }
            Fault::NoValue => self.bug("an index expression overflows or divides by zero"),
        }
    }

    fn bug(&self, what: impl Into<String>) -> RunError {
        RunError::bug(format!("kernel @{}", self.name), what)
    }
}

/// How the reference device runs kernels.
#[derive(Clone, Copy, Default, Debug)]
pub struct ReferenceOptions {
    /// Decides in which order threads run that nothing orders; none: in the order of the text.
    pub seed: Option<u64>,
    /// Count what launches take, slowly.
    pub counts: bool,
}

/// The reference device with the kernels of a program loaded.
pub struct ReferenceDevice {
    kernels: Arc<Kernels>,
}

struct Kernels {
    kernels: Vec<Interpreter>,
    /// What the launches of each took, where it is counted.
    counts: Option<Mutex<Vec<Counts>>>,
}

impl ReferenceDevice {
    /// Resolves kernels; ids are their positions.
    pub fn new(kernels: &[Kernel]) -> Result<ReferenceDevice, RunError> {
        ReferenceDevice::with(kernels, &ReferenceOptions::default())
    }

    /// As [`ReferenceDevice::new`], with options.
    pub fn with(kernels: &[Kernel], options: &ReferenceOptions) -> Result<ReferenceDevice, RunError> {
        let counts = options.counts.then(|| Mutex::new(vec![Counts::default(); kernels.len()]));
        let prepare = |kernel| Ok(Interpreter { seed: options.seed, ..Interpreter::new(kernel)? });
        let kernels = kernels.iter().map(prepare).collect::<Result<_, RunError>>()?;
        Ok(ReferenceDevice { kernels: Arc::new(Kernels { kernels, counts }) })
    }

    /// The names of the kernels and what their launches have taken, where it is counted.
    pub fn counts(&self) -> Vec<(String, Counts)> {
        let names = self.kernels.kernels.iter().map(|kernel| kernel.name.clone());
        let counts = self.kernels.counts.as_ref().map(|counts| lock(counts).clone());
        names.zip(counts.unwrap_or_default()).collect()
    }
}

impl Device for ReferenceDevice {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.kernels.find(name)
    }

    /// Scratch memory is the interpreter's own.
    fn concurrency(&self) -> usize {
        0
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        None
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        Ok(Box::new(AtOnce::new(Arc::clone(&self.kernels))))
    }
}

impl Kernels {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.kernels.iter().position(|kernel| kernel.name == name).map(KernelId)
    }

    /// Bytes of each memory that a launch is given.
    /// Positions and bytes of the parameters of a kernel that are numbers.
    fn numbers(&self, kernel: KernelId) -> impl Iterator<Item = (usize, usize)> {
        let code = &self.kernels[kernel.0].code;
        let params = code.mems.iter().take(code.params).enumerate();
        params.filter(|(_, mem)| mem.space == MemorySpace::Number).map(|(at, mem)| (at, mem.dtype.size()))
    }

    fn bytes(&self, kernel: KernelId, sizes: &[i64]) -> Result<Vec<usize>, RunError> {
        let kernel = &self.kernels[kernel.0];
        let params = kernel.code.mems.iter().take(kernel.code.params);
        params.map(|mem| Ok(kernel.extent_of(mem, sizes)?.1)).collect()
    }
}

impl RunsAtOnce for Kernels {
    unsafe fn run(&self, launch: &Launch<'_>) -> Result<(), RunError> {
        let kernel = &self.kernels[launch.kernel.0];
        let mut views = SmallVec::<[MemView<'_>; 16]>::new();
        for (&arg, mem) in launch.args.iter().zip(&kernel.code.mems) {
            let (_, bytes) = kernel.extent_of(mem, launch.sizes)?;
            views.push(if mem.is_read_only {
                // SAFETY: the caller gives memory of this extent, which nobody writes during the launch.
                MemView::Read(unsafe { std::slice::from_raw_parts(arg, bytes) })
            } else {
                // SAFETY: the caller gives memory of this extent, which no other argument overlaps.
                MemView::Write(unsafe { std::slice::from_raw_parts_mut(arg, bytes) })
            });
        }
        let Some(counts) = &self.counts else { return kernel.run(&mut views, launch.sizes) };
        let found = kernel.count(&mut views, launch.sizes)?;
        lock(counts)[launch.kernel.0].add(&found);
        Ok(())
    }
}

/// What a panic left behind is what it was before the panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "reference/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "reference/units_tests.rs"]
mod units_tests;
