//! Enqueues launches and copies on a stream of the driver.

use std::any::Any;

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{
    self, CUevent, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUstream,
};

use super::driver::{CudaError, Gpu, check};
use super::kernels::Kernels;
use super::launch::Prepared;
use super::memory::{Piece, Words};
use super::recording::Graph;
use crate::device::{AddressSpace, Copy, Event, Launch, RawStream, Recording, Stream};
use crate::error::RunError;

/// Bytes that the arguments of all memories are multiples of, as code relies on.
const ALIGNMENT: usize = 16;
/// Bytes that stand for a memory without elements, which code may read from and pay no attention to.
const NOTHING: usize = 256;

/// A stream of a GPU.
pub(super) struct CudaStream {
    gpu: Arc<Gpu>,
    kernels: Arc<Kernels>,
    /// The one that is ours.
    own: CUstream,
    /// The one that things are enqueued on.
    stream: CUstream,
    /// A word for each kernel, in which a failed check is noted.
    words: Words,
    /// What launches work in besides their arguments.
    work: Work,
    /// What has been captured so far.
    captured: Option<Vec<Prepared>>,
    /// What went wrong since the last wait.
    failed: Option<RunError>,
}

// SAFETY: the driver's handles may be used from any thread, and one uses a stream at a time.
unsafe impl Send for CudaStream {}

/// Memory that launches of one stream use one after another.
#[derive(Default)]
struct Work {
    global: Option<Arc<Piece>>,
    counts: Option<Arc<Piece>>,
    nothing: Option<Arc<Piece>>,
}

/// A value in as many bytes as any takes.
fn value_of(word: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&word.to_ne_bytes());
    bytes
}

/// The address that a value is.
fn address_in(value: &[u8; 16]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&value[..8]);
    u64::from_ne_bytes(bytes)
}

impl CudaStream {
    pub(super) fn new(gpu: Arc<Gpu>, kernels: Arc<Kernels>) -> Result<CudaStream, CudaError> {
        let _entered = gpu.enter()?;
        let words = Words::new(&gpu, kernels.all.len())?;
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the handle lives longer than the call.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(CudaStream {
            gpu,
            kernels,
            own: stream,
            stream,
            words,
            work: Work::default(),
            captured: None,
            failed: None,
        })
    }

    fn note(&mut self, result: Result<(), impl Into<RunError>>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error.into());
        }
    }

    /// Memory of at least so many bytes, zero where it is new. What launches use that are under way stays until they have ended.
    fn piece(
        gpu: &Arc<Gpu>,
        stream: CUstream,
        slot: &mut Option<Arc<Piece>>,
        bytes: usize,
    ) -> Result<Arc<Piece>, CudaError> {
        if let Some(piece) = slot.as_ref().filter(|piece| piece.bytes >= bytes) {
            return Ok(Arc::clone(piece));
        }
        if slot.is_some() {
            // SAFETY: the stream is alive.
            check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) })?;
        }
        let piece = Arc::new(Piece::zeroed(gpu, bytes.next_power_of_two().max(NOTHING))?);
        *slot = Some(Arc::clone(&piece));
        Ok(piece)
    }

    /// An argument as code takes it.
    ///
    /// # Safety
    /// As [`Stream::launch`].
    unsafe fn argument(
        &mut self,
        number: usize,
        arg: *mut u8,
        by_value: usize,
    ) -> Result<[u8; 16], CudaError> {
        if by_value > 0 {
            let mut bytes = [0; 16];
            // SAFETY: by the contract it is an address of the host's with so many bytes.
            unsafe { ptr::copy_nonoverlapping(arg, bytes.as_mut_ptr(), by_value) };
            return Ok(bytes);
        }
        // Of a memory without elements it may be any.
        if arg.addr() < 4096 {
            let nothing = Self::piece(&self.gpu, self.stream, &mut self.work.nothing, NOTHING)?;
            return Ok(value_of(nothing.start));
        }
        if !arg.addr().is_multiple_of(ALIGNMENT) {
            let message = format!("argument {number} begins at {arg:p}, which is no multiple of {ALIGNMENT}");
            return Err(CudaError::new("launch", message));
        }
        Ok(value_of(arg.expose_provenance() as u64))
    }

    /// # Safety
    /// As [`Stream::launch`].
    unsafe fn prepare(&mut self, launch: &Launch<'_>) -> Result<Option<Prepared>, CudaError> {
        let kernels = Arc::clone(&self.kernels);
        let (shape, function) = &kernels.all[launch.kernel.0];
        if launch.points <= 0 {
            return Ok(None);
        }
        let wrong = |what: &str| CudaError::new(format!("kernel @{}", shape.name()), what);
        let eval = |formula: &crate::formula::Formula| {
            formula.eval(launch.sizes).filter(|&value| value >= 0).ok_or_else(|| wrong("its sizes overflow"))
        };
        let (of_point, global_bytes) = (eval(&shape.blocks)?, eval(&shape.global_bytes)?);
        if of_point == 0 {
            return Ok(None);
        }
        let most = shape.persistent.map(|stays| i64::from(stays.blocks).max(1));
        let points = most.map_or(launch.points, |most| launch.points.min(most));
        let blocks = points.checked_mul(of_point).and_then(|blocks| u32::try_from(blocks).ok());
        let blocks = blocks.filter(|&blocks| blocks <= i32::MAX as u32);
        let blocks = blocks.ok_or_else(|| wrong("it has more blocks than a launch may have"))?;
        let mut values = Vec::with_capacity(launch.args.len() + launch.sizes.len() + 4);
        for (number, (&arg, &by_value)) in launch.args.iter().zip(&shape.parameters).enumerate() {
            // SAFETY: by the contract.
            values.push(unsafe { self.argument(number, arg, by_value) }?);
        }
        let args = values.len();
        values.extend(launch.sizes.iter().map(|&size| value_of(size.cast_unsigned())));
        values.push(value_of(self.words.address(launch.kernel.0)));
        let mut work = Vec::new();
        let mut room = |slot: &mut Option<Arc<Piece>>, bytes: i64| -> Result<[u8; 16], CudaError> {
            if bytes == 0 {
                return Ok(value_of(0));
            }
            let bytes = bytes.checked_mul(launch.points).and_then(|bytes| usize::try_from(bytes).ok());
            let bytes = bytes.ok_or_else(|| wrong("its sizes overflow"))?;
            let piece = Self::piece(&self.gpu, self.stream, slot, bytes)?;
            let start = piece.start;
            work.push(piece);
            Ok(value_of(start))
        };
        values.push(room(&mut self.work.global, global_bytes)?);
        values.push(room(&mut self.work.counts, if shape.counts_blocks { 4 } else { 0 })?);
        values.push(value_of(launch.points.cast_unsigned()));
        let described =
            shape.boxes.iter().map(|boxes| boxes.describe(address_in(&values[boxes.from]), launch.sizes));
        let boxes = described.collect::<Result<_, _>>()?;
        Ok(Some(Prepared {
            kernel: launch.kernel,
            function: *function,
            blocks,
            threads: shape.threads,
            shared_bytes: shape.shared_bytes,
            values,
            args,
            sizes: launch.sizes.to_vec(),
            boxes,
            work,
        }))
    }

    /// # Safety
    /// As [`Stream::launch`].
    unsafe fn try_launch(&mut self, launch: &Launch<'_>) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: by the contract.
        let prepared = unsafe { self.prepare(launch) }?;
        if let Some(captured) = &mut self.captured {
            // What has no points is no part of a recording, but its arguments are.
            captured.push(prepared.unwrap_or_else(|| Prepared::nothing(launch)));
            return Ok(());
        }
        prepared.map_or(Ok(()), |mut prepared| {
            let is_early = prepared.function.starts_early_behind_any(prepared.blocks);
            self.enqueue(&mut prepared, is_early)
        })
    }

    /// Enqueues a launch that is ready, whose blocks may start before what is in front has ended.
    fn enqueue(&self, prepared: &mut Prepared, is_early: bool) -> Result<(), CudaError> {
        let mut pointers = prepared.pointers();
        let Prepared { function, blocks, threads, shared_bytes, .. } = *prepared;
        let mut value = CUlaunchAttributeValue { pad: [0; 64] };
        value.programmaticStreamSerializationAllowed = 1;
        let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        let mut early = CUlaunchAttribute { id, pad: [0; 4], value };
        let config = CUlaunchConfig {
            gridDimX: blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared_bytes,
            hStream: self.stream,
            attrs: &raw mut early,
            numAttrs: u32::from(is_early),
        };
        // SAFETY: all values live longer than the call, which copies them; memories are as the contract says. Code that starts before the kernel
        // in front of it has ended waits for that end itself.
        let result = unsafe {
            sys::cuLaunchKernelEx(&raw const config, function.handle, pointers.as_mut_ptr(), ptr::null_mut())
        };
        check("cuLaunchKernelEx", result)
    }

    /// Whether somebody captures what is enqueued on the stream.
    fn is_captured(&self) -> Result<bool, CudaError> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive, and the status lives longer than the call.
        check("cuStreamIsCapturing", unsafe { sys::cuStreamIsCapturing(self.stream, &raw mut status) })?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Lets what is enqueued from here on begin when what is enqueued on another stream has ended.
    fn behind(&self, before: CUstream) -> Result<(), CudaError> {
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: both streams are alive; the event is destroyed when it has happened.
        unsafe {
            check("cuEventCreate", sys::cuEventCreate(&raw mut event, flags))?;
            let recorded = check("cuEventRecord", sys::cuEventRecord(event, before));
            let waits = recorded
                .and_then(|()| check("cuStreamWaitEvent", sys::cuStreamWaitEvent(self.stream, event, 0)));
            let _ = sys::cuEventDestroy_v2(event);
            waits
        }
    }

    /// Replaces the arguments of a launch by others.
    ///
    /// # Safety
    /// As [`Stream::replay`].
    pub(super) unsafe fn exchange(
        &mut self,
        launch: &mut Prepared,
        args: &[*mut u8],
    ) -> Result<bool, CudaError> {
        let kernels = Arc::clone(&self.kernels);
        let (shape, _) = &kernels.all[launch.kernel.0];
        let mut changed = false;
        for (number, (&arg, &by_value)) in args.iter().zip(&shape.parameters).enumerate() {
            // SAFETY: by the contract.
            let value = unsafe { self.argument(number, arg, by_value) }?;
            if launch.values[number] == value {
                continue;
            }
            changed = true;
            launch.values[number] = value;
            for (boxes, map) in
                shape.boxes.iter().zip(&mut launch.boxes).filter(|(boxes, _)| boxes.from == number)
            {
                *map = boxes.describe(address_in(&value), &launch.sizes)?;
            }
        }
        Ok(changed)
    }
}

impl Stream for CudaStream {
    unsafe fn launch(&mut self, launch: &Launch<'_>) {
        if self.failed.is_none() {
            // SAFETY: by the contract.
            let result = unsafe { self.try_launch(launch) };
            self.note(result);
        }
    }

    unsafe fn copy(&mut self, copy: Copy) {
        if self.failed.is_some() || copy.bytes == 0 {
            return;
        }
        if self.captured.is_some() {
            self.note(Err(RunError::bug("the GPU", "only launches can be captured")));
            return;
        }
        let [from, to] = [copy.from.1.addr() as u64, copy.to.1.addr() as u64];
        let is_of_host = [copy.from.0, copy.to.0].contains(&AddressSpace::Host);
        // SAFETY: by the contract; an address says itself which memory it is in.
        let result = self.gpu.enter().and_then(|_entered| {
            if is_of_host && self.is_captured()? {
                // What is captured would read or write it later, when it is another's.
                return Err(CudaError::new(
                    "copy",
                    "the memory of the host cannot be part of a captured graph",
                ));
            }
            // SAFETY: as above.
            check("cuMemcpyAsync", unsafe { sys::cuMemcpyAsync(to, from, copy.bytes, self.stream) })
        });
        self.note(result);
    }

    fn begin(&mut self) {
        self.captured = Some(Vec::new());
    }

    fn end(&mut self) -> Result<Option<Box<dyn Recording>>, RunError> {
        let launches = self.captured.take().unwrap_or_default();
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let _entered = self.gpu.enter()?;
        Ok(Some(Box::new(Graph::new(&self.gpu, launches)?)))
    }

    unsafe fn replay(&mut self, recording: &mut dyn Recording, args: &[*mut u8]) {
        if self.failed.is_some() {
            return;
        }
        let recording: &mut dyn Any = recording;
        let graph: &mut Graph = recording.downcast_mut().expect("invariant: its own recordings come back");
        let result = self.gpu.enter().and_then(|_entered| {
            // SAFETY: by the contract.
            graph.update(&mut |launch, args| unsafe { self.exchange(launch, args) }, args)?;
            if !graph.is_graph() || self.is_captured()? {
                return graph.launch_each(&mut |launch, is_early| self.enqueue(launch, is_early));
            }
            graph.launch(self.stream)
        });
        self.note(result);
    }

    fn record(&mut self) -> Result<Arc<dyn Event>, RunError> {
        let _entered = self.gpu.enter()?;
        let mut event = ptr::null_mut();
        // SAFETY: the handle lives longer than the calls; the stream is alive.
        unsafe {
            check("cuEventCreate", sys::cuEventCreate(&raw mut event, 0))?;
            let moment = Moment { gpu: Arc::clone(&self.gpu), event };
            check("cuEventRecord", sys::cuEventRecord(event, self.stream))?;
            Ok(Arc::new(moment))
        }
    }

    fn wait_for(&mut self, event: &Arc<dyn Event>) {
        let any: &dyn Any = &**event;
        let Some(moment) = any.downcast_ref::<Moment>() else { return event.wait() };
        // SAFETY: event and stream are alive.
        let result = self.gpu.enter().and_then(|_entered| {
            // SAFETY: as above.
            check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(self.stream, moment.event, 0) })
        });
        self.note(result);
    }

    fn follow(&mut self, stream: Option<RawStream>) {
        let stream = stream.map_or(self.own, |stream| stream.0.cast());
        if stream == self.stream {
            return;
        }
        let before = std::mem::replace(&mut self.stream, stream);
        let result = self.gpu.enter().and_then(|_entered| match self.is_captured()? {
            // Whoever captures has waited.
            true => Ok(()),
            false => self.behind(before),
        });
        self.note(result);
    }

    fn wait(&mut self) -> Result<(), RunError> {
        let result = self.gpu.enter().and_then(|_entered| {
            // SAFETY: the stream is alive.
            check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.stream) })
        });
        self.note(result);
        self.check()
    }

    fn check(&mut self) -> Result<(), RunError> {
        if let Some((kernel, status)) = self.words.take() {
            let (shape, _) = &self.kernels.all[kernel];
            let kernel = shape.name().to_owned();
            self.failed.get_or_insert(match shape.check(status) {
                Some(check) => RunError::BadIndex { kernel, check: check.to_owned() },
                None => RunError::bug(format!("kernel @{kernel}"), format!("it ended with status {status}")),
            });
            while self.words.take().is_some() {}
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        let _entered = self.gpu.enter();
        // SAFETY: created above, and all that is enqueued has ended. What is returned nobody can act on.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            let _ = sys::cuStreamSynchronize(self.own);
            let _ = sys::cuStreamDestroy_v2(self.own);
        }
    }
}

/// A point in the work of a stream.
struct Moment {
    gpu: Arc<Gpu>,
    event: CUevent,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Moment {}
// SAFETY: as above.
unsafe impl Sync for Moment {}

impl Event for Moment {
    fn wait(&self) {
        let _entered = self.gpu.enter();
        // SAFETY: the event is alive. What went wrong the stream says.
        let _ = unsafe { sys::cuEventSynchronize(self.event) };
    }

    fn since(&self, earlier: &dyn Event) -> Option<Duration> {
        let earlier: &dyn Any = earlier;
        let earlier = earlier.downcast_ref::<Moment>()?;
        let _entered = self.gpu.enter().ok()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive.
        let result = unsafe { sys::cuEventElapsedTime(&raw mut milliseconds, earlier.event, self.event) };
        check("cuEventElapsedTime", result).ok()?;
        Some(Duration::from_secs_f64(f64::from(milliseconds).max(0.0) / 1e3))
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let _entered = self.gpu.enter();
        // SAFETY: created once. What is returned nobody can act on.
        let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
    }
}
