//! Interprets kernels as a GPU runs them: late, in memory that the host cannot reach.
//!
//! Nothing happens before somebody waits, and then in order. An address in the memory of the device is none of the host's:
//! whoever uses one faults. New memory is filled with ones. So a caller that reads results before it has waited, or mixes up
//! spaces, does not get by.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use litz_ir::graph;
use litz_ir::kernel::Kernel;

use super::{Kernels, ReferenceDevice, lock};
use crate::arena::AlignedBuf;
use crate::device::{
    AddressSpace, Copy, Device, DeviceMemory, Event, KernelId, Launch, Recording, RunsAtOnce, Stream,
};
use crate::error::RunError;

/// A reference device with memory of its own, whose streams do nothing before somebody waits.
pub struct DistantDevice {
    kernels: Arc<Kernels>,
    memory: Arc<Memory>,
    /// The memories of all devices that it can copy from and to, its own among them.
    peers: Peers,
    /// Which of these it is.
    number: u32,
}

type Peers = Arc<[Arc<Memory>]>;

impl DistantDevice {
    /// Resolves kernels; ids are their positions.
    pub fn new(kernels: &[Kernel]) -> Result<DistantDevice, RunError> {
        let mut one = DistantDevice::several(kernels, 1)?;
        Ok(one.remove(0))
    }

    /// So many devices with the same kernels that can copy from one to another; kernels of one reach its own memory alone.
    pub fn several(kernels: &[Kernel], count: usize) -> Result<Vec<DistantDevice>, RunError> {
        let ReferenceDevice { kernels } = ReferenceDevice::new(kernels)?;
        let peers: Peers = (0..count).map(|_| Arc::default()).collect();
        let device = |(number, memory): (u32, &Arc<Memory>)| DistantDevice {
            kernels: Arc::clone(&kernels),
            memory: Arc::clone(memory),
            peers: Arc::clone(&peers),
            number,
        };
        Ok((0..).zip(peers.iter()).map(device).collect())
    }

    /// Bytes of its memory that are in use.
    pub fn bytes_in_use(&self) -> usize {
        lock(&self.memory.blocks).values().map(AlignedBuf::len).sum()
    }
}

impl Device for DistantDevice {
    fn find(&self, name: &str) -> Option<KernelId> {
        self.kernels.find(name)
    }

    fn concurrency(&self) -> usize {
        0
    }

    fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        Some(Arc::clone(&self.memory) as Arc<dyn DeviceMemory>)
    }

    fn name(&self) -> graph::Device {
        graph::Device::Ref(self.number)
    }

    fn captures(&self) -> bool {
        true
    }

    fn stream(&self) -> Result<Box<dyn Stream>, RunError> {
        let (kernels, memory) = (Arc::clone(&self.kernels), Arc::clone(&self.memory));
        let (peers, pending) = (Arc::clone(&self.peers), Mutex::default());
        let queue = Arc::new(Queue { kernels, memory, peers, pending });
        Ok(Box::new(Late { queue, captured: None }))
    }
}

/// Blocks of memory, by the addresses that others know them by.
#[derive(Default)]
struct Memory {
    blocks: Mutex<BTreeMap<usize, AlignedBuf>>,
}

/// The bit in which an address of the device differs from the one of the host: no process has memory there.
const MARK: usize = 1 << (usize::BITS - 1);

impl DeviceMemory for Memory {
    fn allocate(&self, bytes: usize) -> Result<*mut u8, RunError> {
        let mut block = AlignedBuf::new(bytes)?;
        block.as_mut_slice().fill(0xff);
        let start = block.as_mut_ptr().map_addr(|address| address | MARK);
        lock(&self.blocks).insert(start.addr(), block);
        Ok(start)
    }

    unsafe fn clear(&self, start: *mut u8, bytes: usize) -> Result<(), RunError> {
        let start = self.on_host(start, bytes)?;
        // SAFETY: by the contract, and the memory is there.
        unsafe { start.write_bytes(0, bytes) };
        Ok(())
    }

    unsafe fn free(&self, start: *mut u8) {
        let block = lock(&self.blocks).remove(&start.addr());
        assert!(block.is_some(), "what is freed was allocated");
    }
}

impl Memory {
    /// Where the host finds bytes that lie in one block.
    /// Nothing else has an address of another device: blocks of all of them lie apart on the host.
    fn on_host(&self, start: *mut u8, bytes: usize) -> Result<*mut u8, RunError> {
        let blocks = lock(&self.blocks);
        let block = blocks.range(..=start.addr()).next_back();
        let is_inside = block.is_some_and(|(first, block)| {
            let end = (start.addr() - first).checked_add(bytes);
            end.is_some_and(|end| end <= block.len())
        });
        if bytes > 0 && !is_inside {
            return Err(RunError::bug("the device", format!("{bytes} bytes at {start:p} are not its own")));
        }
        Ok(start.map_addr(|address| address & !MARK))
    }
}

/// What a stream has to do.
enum Work {
    Launch(Enqueued),
    /// Launches, with other arguments.
    Replay {
        launches: Arc<[Enqueued]>,
        args: Vec<*mut u8>,
        numbers: Vec<Numbers>,
    },
    Copy(Copy),
    Record(Arc<OnceLock<Instant>>),
    WaitFor(Arc<dyn Event>),
}

/// A launch, with the numbers that it is given by value.
struct Enqueued {
    kernel: KernelId,
    args: Vec<*mut u8>,
    numbers: Numbers,
    sizes: Vec<i64>,
    points: i64,
}

/// Bytes of the arguments at these positions.
type Numbers = Vec<(usize, Bits)>;

struct Queue {
    kernels: Arc<Kernels>,
    memory: Arc<Memory>,
    peers: Peers,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    work: VecDeque<Work>,
    failed: Option<RunError>,
}

// SAFETY: the addresses are used under the contracts of streams, by one thread at a time.
unsafe impl Send for Enqueued {}
// SAFETY: as above.
unsafe impl Sync for Enqueued {}
// SAFETY: as above.
unsafe impl Send for Work {}

impl Queue {
    fn push(&self, work: Work) {
        lock(&self.pending).work.push_back(work);
    }

    /// Does what is to be done, until `is_enough`.
    fn drive(&self, is_enough: impl Fn() -> bool) {
        let mut pending = lock(&self.pending);
        while !is_enough() {
            let Some(work) = pending.work.pop_front() else { return };
            let result = match work {
                Work::Record(happened) => {
                    // Recorded once: whoever else has it only reads.
                    let _ = happened.set(Instant::now());
                    Ok(())
                }
                Work::WaitFor(event) => {
                    event.wait();
                    Ok(())
                }
                Work::Launch(_) | Work::Replay { .. } | Work::Copy(_) if pending.failed.is_some() => Ok(()),
                Work::Launch(launch) => self.launch(&launch, &launch.args, &launch.numbers),
                Work::Replay { launches, args, numbers } => self.replay(&launches, &args, &numbers),
                Work::Copy(copy) => self.copy(copy),
            };
            if let Err(error) = result {
                pending.failed.get_or_insert(error);
            }
        }
    }

    fn replay(&self, launches: &[Enqueued], args: &[*mut u8], numbers: &[Numbers]) -> Result<(), RunError> {
        let mut rest = args;
        for (launch, numbers) in launches.iter().zip(numbers) {
            let own;
            (own, rest) = rest.split_at(launch.args.len());
            self.launch(launch, own, numbers)?;
        }
        Ok(())
    }

    /// The numbers among arguments, as the host has them.
    ///
    /// # Safety
    /// By the contract of launches the host can read them.
    unsafe fn numbers(&self, kernel: KernelId, args: &[*mut u8]) -> Numbers {
        let sizes = self.kernels.numbers(kernel);
        // SAFETY: as above.
        sizes.map(|(at, size)| (at, unsafe { read_number(args[at], size) })).collect()
    }

    fn launch(&self, launch: &Enqueued, args: &[*mut u8], numbers: &Numbers) -> Result<(), RunError> {
        let Enqueued { kernel, sizes, points, .. } = launch;
        let (kernel, points) = (*kernel, *points);
        let bytes = self.kernels.bytes(kernel, sizes)?;
        let mut numbers: Vec<(usize, [u8; 16])> =
            numbers.iter().map(|(at, bits)| (*at, bits.to_le_bytes())).collect();
        let on_device = |(at, (&start, bytes)): (usize, (&*mut u8, usize))| match numbers
            .iter_mut()
            .find(|(number, _)| *number == at)
        {
            Some((_, number)) => Ok(number.as_mut_ptr()),
            None => self.memory.on_host(start, bytes),
        };
        let args: Vec<*mut u8> =
            args.iter().zip(bytes).enumerate().map(on_device).collect::<Result<_, _>>()?;
        let launch = Launch {
            kernel,
            // Nobody behind the queue watches.
            number: 0,
            args: &args,
            sizes,
            points,
            scratch: std::ptr::null_mut(),
            scratch_bytes: 0,
            scratch_stride: 0,
        };
        // SAFETY: by the contract of whoever enqueued it; the memories are as large as the kernel declares.
        unsafe { self.kernels.run(&launch) }
    }

    fn copy(&self, Copy { from, to, bytes }: Copy) -> Result<(), RunError> {
        let on_host = |(space, start): (AddressSpace, *mut u8)| match space {
            AddressSpace::Host if start.addr() & MARK == 0 => Ok(start),
            AddressSpace::Host => {
                Err(RunError::bug("the host", format!("{start:p} is an address of the device")))
            }
            AddressSpace::Device => self.memory.on_host(start, bytes),
            AddressSpace::Peer => {
                let mut others = self.peers.iter().filter(|other| !Arc::ptr_eq(other, &self.memory));
                let found = others.find_map(|other| other.on_host(start, bytes).ok());
                found.ok_or_else(|| RunError::bug("the device", format!("{start:p} is in no peer's memory")))
            }
        };
        let (from, to) = (on_host((from.0, from.1.cast_mut()))?, on_host(to)?);
        if bytes > 0 {
            // SAFETY: by the contract of whoever enqueued it.
            unsafe { std::ptr::copy(from, to, bytes) };
        }
        Ok(())
    }
}

/// The bits of a number of so many bytes.
///
/// # Safety
/// It can be read.
unsafe fn read_number(start: *mut u8, size: usize) -> Bits {
    let mut bytes = [0; 16];
    // SAFETY: by the contract.
    bytes[..size].copy_from_slice(unsafe { std::slice::from_raw_parts(start, size) });
    Bits::from_le_bytes(bytes)
}

/// The bytes of a number.
type Bits = u128;

struct Late {
    queue: Arc<Queue>,
    /// What has been captured so far, and whether all of it can be replayed.
    captured: Option<(Vec<Enqueued>, bool)>,
}

struct Launches(Arc<[Enqueued]>);

impl Recording for Launches {}

impl Stream for Late {
    unsafe fn launch(&mut self, launch: &Launch<'_>) {
        let Launch { kernel, args, sizes, points, .. } = *launch;
        // SAFETY: by the contract.
        let numbers = unsafe { self.queue.numbers(kernel, args) };
        let launch = Enqueued { kernel, args: args.to_vec(), numbers, sizes: sizes.to_vec(), points };
        match &mut self.captured {
            Some((launches, _)) => launches.push(launch),
            None => self.queue.push(Work::Launch(launch)),
        }
    }

    unsafe fn copy(&mut self, copy: Copy) {
        match &mut self.captured {
            Some((_, can_replay)) => *can_replay = false,
            None => self.queue.push(Work::Copy(copy)),
        }
    }

    fn begin(&mut self) {
        self.captured = Some((Vec::new(), true));
    }

    fn end(&mut self) -> Result<Option<Box<dyn Recording>>, RunError> {
        match self.captured.take() {
            Some((launches, true)) => Ok(Some(Box::new(Launches(launches.into())))),
            Some((_, false)) | None => Err(RunError::bug("the device", "only launches can be captured")),
        }
    }

    unsafe fn replay(&mut self, recording: &mut dyn Recording, args: &[*mut u8]) {
        let recording: &mut dyn Any = recording;
        let Launches(launches) = recording.downcast_ref().expect("invariant: its own recordings come back");
        let mut rest = args;
        let mut numbers = Vec::with_capacity(launches.len());
        for launch in launches.iter() {
            let own;
            (own, rest) = rest.split_at(launch.args.len());
            // SAFETY: by the contract.
            numbers.push(unsafe { self.queue.numbers(launch.kernel, own) });
        }
        let (launches, args) = (Arc::clone(launches), args.to_vec());
        self.queue.push(Work::Replay { launches, args, numbers });
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, RunError> {
        let happened = Arc::new(OnceLock::new());
        self.queue.push(Work::Record(Arc::clone(&happened)));
        Ok(Arc::new(Point { queue: Arc::clone(&self.queue), happened }))
    }

    fn wait_for(&mut self, event: &Arc<dyn Event>) {
        self.queue.push(Work::WaitFor(Arc::clone(event)));
    }

    fn wait(&mut self) -> Result<(), RunError> {
        self.queue.drive(|| false);
        lock(&self.queue.pending).failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.queue.drive(|| false);
    }
}

/// An event of a stream, and when it happened.
struct Point {
    queue: Arc<Queue>,
    happened: Arc<OnceLock<Instant>>,
}

impl Event for Point {
    fn wait(&self) {
        if self.happened.get().is_none() {
            self.queue.drive(|| self.happened.get().is_some());
        }
    }

    fn since(&self, earlier: &dyn Event) -> Option<Duration> {
        let earlier: &dyn Any = earlier;
        let earlier = earlier.downcast_ref::<Point>()?.happened.get()?;
        Some(self.happened.get()?.saturating_duration_since(*earlier))
    }
}
