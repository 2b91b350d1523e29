//! Defines what runs kernels: memory, streams of launches and copies, events.
//!
//! Everything is enqueued on a [`Stream`] and happens in the order of that stream, at any time up to [`Stream::wait`], which
//! is also where errors are. A device either works in the host's memory or has memory of its own, which the host reaches
//! by copies alone. A CPU needs none of this and pays nothing for it: its streams do everything at once.

mod at_once;
mod buffer;
mod idle;

use std::any::Any;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use litz_ir::graph;

use crate::error::RunError;
pub use at_once::{AtOnce, RunsAtOnce};
pub use buffer::Buffer;
pub use idle::Idle;

/// A stream as a device's driver knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawStream(pub *mut c_void);

// SAFETY: it is a name, which the driver takes from any thread.
unsafe impl Send for RawStream {}

/// A kernel of a device, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelId(pub usize);

/// The bytes of one parameter of a kernel.
#[derive(Debug)]
pub enum MemView<'a> {
    /// For parameters that are only read; several may share bytes.
    Read(&'a [u8]),
    /// For any parameter.
    Write(&'a mut [u8]),
}

/// One run of a kernel over its whole grid. The lists are the caller's and may change as soon as the launch is enqueued; the
/// memories that they name are in use until it has ended.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Which kernel.
    pub kernel: KernelId,
    /// Which of the program's launches, by position: those of its load steps, then of its steps, then of its functions in the order of
    /// [`litz_ir::program::Program::all`]. For whoever watches; what is computed does not depend on it.
    pub number: usize,
    /// One memory for each parameter, of the parameter's extent, in the device's space. Of a number ([`litz_ir::kernel::MemorySpace::Number`]) it is
    /// an address of the host's, which is read while the launch is enqueued.
    pub args: &'a [*mut u8],
    /// One value for each size symbol.
    pub sizes: &'a [i64],
    /// Number of grid points.
    pub points: i64,
    /// Scratch memory: the first of [`Device::concurrency`] pieces of `scratch_bytes`, aligned to 64.
    pub scratch: *mut u8,
    /// Bytes of scratch memory that one point needs, a multiple of 64.
    pub scratch_bytes: usize,
    /// Bytes from one piece to the next.
    pub scratch_stride: usize,
}

/// Where a memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSpace {
    /// The host's memory.
    Host,
    /// The memory of the device, if it has its own.
    Device,
    /// The memory of another device of the same kind, if these have their own.
    Peer,
}

/// Bytes to be copied from one memory to another, or within one; they may overlap.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// What is read.
    pub from: (AddressSpace, *const u8),
    /// What is written.
    pub to: (AddressSpace, *mut u8),
    /// How many bytes.
    pub bytes: usize,
}

/// Something that runs kernels, with the kernels of a program loaded.
pub trait Device: Send + Sync {
    /// The kernel of that name.
    fn find(&self, name: &str) -> Option<KernelId>;

    /// How many pieces of scratch memory a launch needs; 0 where the device has its own.
    fn concurrency(&self) -> usize;

    /// Its own memory, in which arguments and scratch memory of launches have to lie. `None` where the host's will do.
    fn memory(&self) -> Option<Arc<dyn DeviceMemory>>;

    /// What others call it: PyTorch by its kind and number, that of the host's memory where its memory is the host's or nobody else knows it.
    fn name(&self) -> graph::Device {
        graph::Device::Cpu
    }

    /// Where memory for intermediate results goes when a call is over, for the next call of any device that shares it. None where
    /// programs keep it.
    fn idle(&self) -> Option<&Idle> {
        None
    }

    /// Addresses of the machine code of kernels that the host runs, by name, for profilers; nothing where there is none.
    fn code(&self) -> Vec<(String, Range<usize>)> {
        Vec::new()
    }

    /// Whether its streams capture launches to replay them; see [`Stream::begin`]. Such a device has scratch memory of its own.
    fn captures(&self) -> bool {
        false
    }

    /// The number of whoever captures what is enqueued on a stream of the device's own kind, to run it again. None where nobody does.
    ///
    /// # Errors
    /// When the device does not know.
    fn captured_by(&self, stream: RawStream) -> Result<Option<u64>, RunError> {
        let _ = stream;
        Ok(None)
    }

    /// Gives whoever captures on a stream a share of what is captured there works with: it is dropped when nobody can run that any more.
    ///
    /// # Errors
    /// When the device does not take it.
    fn keep(&self, stream: RawStream, share: Box<dyn Any + Send>) -> Result<(), RunError> {
        let _ = (stream, share);
        Ok(())
    }

    /// Makes it the one that the calling thread works with, until [`Device::leave`]. What is enqueued in between finds it so; what is enqueued
    /// at other times has to see to it by itself, each time.
    fn enter(&self) {}

    /// Ends what [`Device::enter`] began.
    fn leave(&self) {}

    /// A stream on which nothing is enqueued. What different streams do may happen at the same time.
    ///
    /// # Errors
    /// When the device has no more.
    fn stream(&self) -> Result<Box<dyn Stream>, RunError>;
}

/// Memory that the host cannot access: addresses in it mean something to the device alone.
pub trait DeviceMemory: Send + Sync {
    /// Takes `bytes` of it, at an address that is a multiple of 64. `bytes` is not 0.
    ///
    /// # Errors
    /// When there is no room, or the device fails.
    fn allocate(&self, bytes: usize) -> Result<*mut u8, RunError>;

    /// Makes memory zero, before it returns.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Safety
    /// There is so much of it, which nothing else uses.
    unsafe fn clear(&self, start: *mut u8, bytes: usize) -> Result<(), RunError>;

    /// Gives back what begins there.
    ///
    /// # Safety
    /// It was allocated here, and nothing that is enqueued uses it.
    unsafe fn free(&self, start: *mut u8);

    /// Whether it takes long to get memory, so that buffers that come together had better be parts of one.
    fn is_slow(&self) -> bool {
        false
    }
}

/// Work for a device, in order. After an error nothing more of it has to happen, and memories that it was to write have
/// undefined contents, until [`Stream::wait`] has returned the error. Dropping a stream waits for it.
pub trait Stream: Send {
    /// Enqueues a launch.
    ///
    /// # Safety
    /// Arguments and scratch memory are as [`Launch`] says, valid for the extents that the kernel declares under `sizes`, in
    /// the order of the stream. Until the launch has ended, nobody outside of the stream touches what the kernel writes, or
    /// writes what it reads.
    unsafe fn launch(&mut self, launch: &Launch<'_>);

    /// Enqueues a copy.
    ///
    /// # Safety
    /// Both memories are as large as the copy says and stay valid until it has ended; as for launches, nobody else touches
    /// what it writes or writes what it reads.
    unsafe fn copy(&mut self, copy: Copy);

    /// Lets launches be captured instead of enqueued, until [`Stream::end`]. Only for devices that capture.
    fn begin(&mut self) {}

    /// What has been captured; none where the device does not capture.
    ///
    /// # Errors
    /// When it cannot be replayed.
    fn end(&mut self) -> Result<Option<Box<dyn Recording>>, RunError> {
        Ok(None)
    }

    /// Enqueues all launches of a recording that a stream of the same device has made, in their order. `args` are their arguments, of
    /// one launch after the other, which may be others than those that were captured. Numbers that launches are given by value are read
    /// there again.
    ///
    /// # Safety
    /// As [`Stream::launch`], for each of the launches.
    unsafe fn replay(&mut self, recording: &mut dyn Recording, args: &[*mut u8]) {
        let _ = (recording, args);
    }

    /// An event that happens when all that is enqueued so far has ended.
    ///
    /// # Errors
    /// When the device has no more.
    fn record(&mut self) -> Result<Arc<dyn Event>, RunError>;

    /// What is enqueued from here on begins after the event has happened, which may be one of another stream or device.
    fn wait_for(&mut self, event: &Arc<dyn Event>);

    /// Enqueues what comes from here on where others enqueue things: on a stream of the device's own kind, as its driver knows it, or where there
    /// is none on its own. It begins when what is enqueued so far has ended. Only for devices with memory of their own.
    fn follow(&mut self, stream: Option<RawStream>) {
        let _ = stream;
    }

    /// What has gone wrong so far, without waiting for what is enqueued.
    ///
    /// # Errors
    /// As [`Stream::wait`], of what has ended.
    fn check(&mut self) -> Result<(), RunError> {
        self.wait()
    }

    /// Returns when all that is enqueued has ended.
    ///
    /// # Errors
    /// The first error since the last wait, such as [`RunError::BadIndex`] when a value that a kernel computed is no valid
    /// index.
    fn wait(&mut self) -> Result<(), RunError>;
}

/// Launches that a stream has captured.
pub trait Recording: Any + Send {}

/// A point in the work of a stream.
pub trait Event: Any + Send + Sync {
    /// Returns when it has happened.
    fn wait(&self);

    /// The time between two events of one device that have happened, by the clock of the device.
    fn since(&self, earlier: &dyn Event) -> Option<Duration>;
}
