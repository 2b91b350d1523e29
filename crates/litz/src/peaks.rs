//! Measures what this machine can do at most, with kernels made like any others.
//!
//! A machine's speed drifts, within seconds by half where its clock is shared. A peak counts for a turn only if it is the
//! same before and after it, and a share of it is given only if that was so in most turns.

use crate::backends::{self, Device};
use crate::error::Error;
use crate::options::Options;
use litz_backend::Backend;
use litz_ir::kernel::Kernel;
use litz_ir::target::{Level, Target};
use litz_runtime::device::{self, AddressSpace, Buffer, Copy, Launch, Stream};
use litz_runtime::pool::ThreadPool;
use std::sync::Arc;
use std::time::Instant;

/// The highest rates, a second, on the threads that the options ask for.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Fused multiply-adds of f32, in operations, two each. None on GPUs, where no kernel of the compiler's makes nothing else.
    pub flops: Option<f64>,
    /// Bytes that a copy larger than the caches reads and writes.
    pub bandwidth: f64,
}

/// The same for one turn, or for several; `None` where the machine's speed changed too much for there to be one.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Peaks {
    /// As in [`Rates`].
    pub flops: Option<f64>,
    /// As in [`Rates`].
    pub bandwidth: Option<f64>,
}

/// Two measurements are of one speed if the lower one is at least this fraction of the higher one.
const STEADY: f64 = 0.93;

/// A share that is larger says that the peak is none: launches are timed to a few percent.
const MOST: f64 = 1.1;

/// Launches of each kernel at a time, of which the shortest counts: of about 1 ms for operations, 20 ms for bytes.
const TRIES: [usize; 2] = [5, 1];

/// What `turn` gives for each of `turns`, with the peaks during it: `measure` runs before the first, between two, and after
/// the last.
///
/// # Errors
/// What one of them fails with.
pub fn in_turns<T, E>(
    turns: usize,
    mut measure: impl FnMut() -> Result<Rates, E>,
    mut turn: impl FnMut(usize) -> Result<T, E>,
) -> Result<Vec<(T, Peaks)>, E> {
    let mut before = measure()?;
    let mut results = Vec::with_capacity(turns);
    for at in 0..turns {
        let result = turn(at)?;
        let after = measure()?;
        let peaks = Peaks {
            flops: before.flops.zip(after.flops).and_then(|(before, after)| steady(before, after)),
            bandwidth: steady(before.bandwidth, after.bandwidth),
        };
        results.push((result, peaks));
        before = after;
    }
    Ok(results)
}

/// The peak of a turn, from what was measured before and after.
fn steady(before: f64, after: f64) -> Option<f64> {
    let (low, high) = (before.min(after), before.max(after));
    (low >= STEADY * high).then_some(high)
}

/// The median of what turns with a peak give, if these are most of the turns.
pub fn most(turns: &[Option<f64>]) -> Option<f64> {
    let mut given: Vec<f64> = turns.iter().copied().flatten().collect();
    given.sort_by(f64::total_cmp);
    let is_most = 2 * given.len() > turns.len();
    given.get(given.len() / 2).copied().filter(|_| is_most)
}

/// A rate as a share of a peak, turn by turn; `None` where there was no peak, or where it is exceeded, so that it was none.
pub fn share(turns: impl Iterator<Item = (f64, Option<f64>)>) -> Option<f64> {
    let shares: Vec<Option<f64>> = turns.map(|(rate, peak)| Some(rate / peak?)).collect();
    most(&shares).filter(|&share| share <= MOST)
}

/// The kernels of both peaks.
pub struct Meters {
    flops: Option<Meter>,
    bandwidth: Meter,
}

impl Meters {
    /// Compiles both.
    ///
    /// # Errors
    /// When the options' target is none that this machine can run the code of.
    pub fn new(options: &Options) -> Result<Meters, Error> {
        let backend = backends::backend(options)?;
        Ok(match backend.target() {
            Target::Cpu(_) => Meters {
                flops: Some(Meter::flops(&*backend, options)?),
                bandwidth: Meter::bandwidth(&*backend, options)?,
            },
            Target::Gpu(_) => Meters { flops: None, bandwidth: Meter::copies(&*backend, options)? },
        })
    }

    /// What both reach at this moment.
    ///
    /// # Errors
    /// When a launch fails.
    pub fn measure(&mut self) -> Result<Rates, Error> {
        let [flops, bandwidth] = TRIES;
        // The copy empties the caches; operations come from the first-level cache and do not mind.
        let bandwidth = self.bandwidth.best(bandwidth)?;
        Ok(Rates { bandwidth, flops: self.flops.as_mut().map(|meter| meter.best(flops)).transpose()? })
    }
}

/// What a device does to reach a peak.
enum Work {
    Launch(Box<Kernel>),
    /// Copies so many bytes within its memory.
    Copy(usize),
}

/// Work that does nothing but reach a peak.
struct Meter {
    work: Work,
    device: Device,
    stream: Box<dyn Stream>,
    memory: Vec<Buffer>,
    /// Operations or bytes of one launch.
    amount: f64,
}

impl Meter {
    /// Fused multiply-adds of f32 on operands from the first-level cache.
    fn flops(backend: &dyn Backend, options: &Options) -> Result<Meter, Error> {
        let lanes = lanes(backend.target());
        let (rows, columns, terms, points) = (6, 2 * lanes, 256, 256 * options.threads);
        let product = format!(
            "kernel @product {{\n  read x: f32[{}]\n  read w: f32[{}]\n  write y: f32[{points}]\n  grid p in {points} grain 64\n  \
             register out: f32[1]\n  register acc: f32[{}]\n  unroll i in {rows} {{\n    vector j in {columns} by {lanes} {{\n      \
             %0: f32 = const 0.0\n      acc[{columns}*i + j] = %0\n    }}\n  }}\n  for k in {terms} {{\n    unroll i in {rows} {{\n      \
             vector j in {columns} by {lanes} {{\n        %1: f32 = load x[{terms}*i + k]\n        %2: f32 = load w[{columns}*k + j]\n        \
             %3: f32 = mul %1, %2\n        acc[{columns}*i + j] sum= %3\n      }}\n    }}\n  }}\n  %4: f32 = const 0.0\n  \
             out[0] = %4\n  unroll i in {rows} {{\n    vector j in {columns} by {lanes} {{\n      \
             %5: f32 = load acc[{columns}*i + j]\n      out[0] sum= %5\n    }}\n  }}\n  %6: f32 = load out[0]\n  y[p] = %6\n}}\n",
            rows * terms,
            columns as usize * terms,
            rows * columns as usize,
        );
        let operations = 2.0 * (rows * terms * points) as f64 * f64::from(columns);
        Meter::new(backend, options, &product, operations)
    }

    /// A copy of more than the caches hold.
    fn bandwidth(backend: &dyn Backend, options: &Options) -> Result<Meter, Error> {
        const BLOCK: usize = 1 << 12;
        let lanes = lanes(backend.target());
        let blocks = 1 << 12;
        let elements = BLOCK * blocks;
        let copy = format!(
            "kernel @copy {{\n  read x: f32[{elements}]\n  write y: f32[{elements}]\n  grid p in {blocks} grain 16\n  \
             vector i in {BLOCK} by {lanes} {{\n    %0: f32 = load x[{BLOCK}*p + i]\n    y[{BLOCK}*p + i] = %0\n  }}\n}}\n"
        );
        Meter::new(backend, options, &copy, (8 * elements) as f64)
    }

    /// A copy of a device with memory of its own, ten times as large as the caches of today's.
    fn copies(backend: &dyn Backend, options: &Options) -> Result<Meter, Error> {
        const BYTES: usize = 1 << 30;
        let device = load(backend, options, &[], &[])?;
        let memory = (0..2).map(|_| buffer(&*device, BYTES)).collect::<Result<_, _>>()?;
        let stream = device.stream().map_err(Error::Run)?;
        Ok(Meter { work: Work::Copy(BYTES), device, stream, memory, amount: 2.0 * BYTES as f64 })
    }

    fn new(backend: &dyn Backend, options: &Options, text: &str, amount: f64) -> Result<Meter, Error> {
        let kernels = [litz_ir::text::kernel::parse(text).map_err(Error::Invalid)?];
        let object = backend.emit(&kernels).and_then(|text| backend.assemble(&text)).map_err(Error::from)?;
        let device = load(backend, options, &kernels, &[object])?;
        let [kernel] = kernels;
        let mut memory = Vec::new();
        for mem in kernel.mems.values().take(kernel.params) {
            let elements = mem.span().as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            memory.push(buffer(&*device, elements * mem.dtype.size())?);
        }
        let stream = device.stream().map_err(Error::Run)?;
        Ok(Meter { work: Work::Launch(Box::new(kernel)), device, stream, memory, amount })
    }

    /// The highest rate of some launches, a second.
    fn best(&mut self, tries: usize) -> Result<f64, Error> {
        let mut shortest = f64::INFINITY;
        for _ in 0..tries {
            let start = Instant::now();
            self.run()?;
            shortest = shortest.min(start.elapsed().as_secs_f64());
        }
        Ok(self.amount / shortest)
    }

    fn run(&mut self) -> Result<(), Error> {
        let args: Vec<*mut u8> = self.memory.iter().map(Buffer::as_ptr).collect();
        match &self.work {
            Work::Launch(kernel) => {
                let Some(found) = self.device.find(&kernel.name) else {
                    return Err(Error::bug("load", "the kernel is not there"));
                };
                let launch = Launch {
                    kernel: found,
                    number: 0,
                    args: &args,
                    sizes: &[],
                    points: kernel.points().as_int().unwrap_or(0),
                    scratch: std::ptr::null_mut(),
                    scratch_bytes: 0,
                    scratch_stride: 0,
                };
                // SAFETY: one memory for each parameter, of its extent, that nothing else touches; the kernel needs no scratch.
                unsafe { self.stream.launch(&launch) };
            }
            Work::Copy(bytes) => {
                let space = AddressSpace::Device;
                let copy = Copy { from: (space, args[0].cast_const()), to: (space, args[1]), bytes: *bytes };
                // SAFETY: both memories are the device's, have so many bytes, and are nobody else's.
                unsafe { self.stream.copy(copy) };
            }
        }
        self.stream.wait().map_err(Error::Run)?;
        Ok(())
    }
}

/// A device with the code of some kernels, on threads of its own.
fn load(
    backend: &dyn Backend,
    options: &Options,
    kernels: &[Kernel],
    objects: &[Vec<u8>],
) -> Result<Device, Error> {
    let pool = if options.bind { ThreadPool::new } else { ThreadPool::unbound };
    let threads = || Arc::new(pool(options.threads));
    Ok(backend.load(kernels, objects, &threads)?)
}

fn buffer(device: &dyn device::Device, bytes: usize) -> Result<Buffer, Error> {
    Ok(Buffer::new(device, bytes)?)
}

/// Lanes of the vectors that the kernels have.
fn lanes(target: &Target) -> u32 {
    target.width(Level::Lane).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::convert::Infallible;

    /// A machine whose clock runs at `speed` of the time in seconds, in units of its usual one.
    struct Machine<F> {
        time: Cell<f64>,
        speed: F,
    }

    impl<F: Fn(f64) -> f64> Machine<F> {
        /// Lets so many seconds' worth of work pass, and returns what they took.
        fn work(&self, mut seconds: f64) -> f64 {
            const STEP: f64 = 1e-6;
            let start = self.time.get();
            while seconds > 0.0 {
                seconds -= STEP * (self.speed)(self.time.get());
                self.time.set(self.time.get() + STEP);
            }
            self.time.get() - start
        }

        fn shortest(&self, launches: usize, seconds: f64) -> f64 {
            (0..launches).map(|_| self.work(seconds)).fold(f64::INFINITY, f64::min)
        }

        /// What ten turns of `litz bench` give for a kernel that reaches nine tenths of the peak: its share of operations, and
        /// the peak itself, which is 100 at the usual speed.
        fn measured(&self) -> (Option<f64>, Option<f64>) {
            let measure = || {
                let rate = 0.1 / self.shortest(5, 1e-3);
                Ok::<_, Infallible>(Rates { flops: Some(rate), bandwidth: rate })
            };
            // Five calls with four launches of 2 ms each.
            let turn = |_| Ok(0.2 * 0.9 / self.shortest(20, 2e-3));
            let Ok(turns) = in_turns(10, measure, turn);
            let peaks: Vec<Option<f64>> = turns.iter().map(|(_, peaks)| peaks.flops).collect();
            (share(turns.iter().map(|(rate, peaks)| (*rate, peaks.flops))), most(&peaks))
        }
    }

    fn machine<F: Fn(f64) -> f64>(speed: F) -> Machine<F> {
        Machine { time: Cell::new(0.0), speed }
    }

    #[test]
    fn a_steady_machine_has_its_peak() {
        for speed in [0.5, 1.0, 1.5] {
            let (share, peak) = machine(|_| speed).measured();
            assert!(share.is_some_and(|share| (share - 0.9).abs() < 0.03), "{share:?}");
            assert!(peak.is_some_and(|peak| (peak / (100.0 * speed) - 1.0).abs() < 0.2), "{peak:?}");
        }
    }

    #[test]
    fn a_clock_that_drifts_changes_no_share() {
        // Up to half as fast again, and back, within ten seconds.
        let (share, _) = machine(|time| 1.25 + 0.25 * (time * std::f64::consts::TAU / 10.0).sin()).measured();
        assert!(share.is_some_and(|share| (share - 0.9).abs() < 0.06), "{share:?}");
    }

    #[test]
    fn a_clock_that_jumps_gives_no_share_above_one() {
        // From one speed to half as fast again, every so often: within a turn, in the middle of it, and more slowly.
        for period in [0.003, 0.011, 0.023, 0.041, 0.083, 0.17, 0.4, 1.1] {
            let jumping = machine(|time| if time % period < period / 2.0 { 1.0 } else { 1.57 });
            let (share, _) = jumping.measured();
            assert!(share.is_none_or(|share| share <= 1.0), "{period}: {share:?}");
        }
    }

    #[test]
    fn where_every_turn_has_another_speed_nothing_is_measured() {
        let slower_each_time = machine(|time| 1.0 / (1.0 + 4.0 * time));
        assert_eq!(slower_each_time.measured(), (None, None));
    }

    #[test]
    fn a_peak_that_is_exceeded_is_none() {
        let turns = |rate: f64| (0..10).map(move |_| (rate, Some(100.0)));
        assert_eq!(share(turns(157.0)), None);
        assert_eq!(share(turns(99.0)), Some(0.99));
    }

    #[test]
    fn most_turns_have_to_have_a_peak() {
        assert_eq!(most(&[Some(1.0), None, Some(3.0)]), Some(3.0));
        assert_eq!(most(&[Some(1.0), None]), None);
        assert_eq!(most(&[]), None);
    }
}
