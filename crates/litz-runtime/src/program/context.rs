//! Runs the commands of a plan at the addresses of one call.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::outputs::{OutputLayout, Outputs};
use super::plan::{Base, Buffer, Command, OutputPlan, Place, Plan, Shape, Target};
use crate::arena::{ALIGNMENT, AlignedBuf, GuardPages, GuardedPieces, OutOfMemory};
use crate::cache::{CacheKey, FileMemory, ObjectCache, Unfinished};
use crate::device::{Device, Launch};
use crate::error::RunError;
use crate::limits::{Limit, LimitExceeded, Limits};
use crate::routines::{Read, Write};
use crate::tensor::{TensorView, copy_strided, has_layout};
use crate::weights::ConstMemory;

/// Memory that lives as long as the executable.
pub(super) struct Memory {
    /// Where constants begin, then what load steps keep. Written by load steps, later only by calls that hold the
    /// lock on state.
    addresses: Vec<*mut u8>,
    constants: usize,
    /// Slot and bytes of what load steps keep.
    kept_slots: Vec<(usize, usize)>,
    /// Owns what the addresses point to.
    owned: UnsafeCell<(Vec<ConstMemory>, Kept)>,
}

/// The memory that load steps keep: one piece, so that all of it lies in huge pages.
enum Kept {
    Own(AlignedBuf),
    /// A file of the cache, to be kept when load steps have run.
    Unfinished(FileMemory, Unfinished),
    /// A file of the cache with what an earlier process, or this one, has computed.
    File(FileMemory),
    /// One piece for each slot, with pages next to it that cannot be accessed.
    Apart(Vec<AlignedBuf>),
}

impl Kept {
    fn new(bytes: usize, kept_as: Option<(&ObjectCache, &CacheKey)>) -> Result<Kept, OutOfMemory> {
        if let Some((cache, key)) = kept_as.filter(|_| bytes > 0) {
            if let Some(memory) = cache.map(key, bytes) {
                return Ok(Kept::File(memory));
            }
            if let Some((memory, unfinished)) = cache.make(key, bytes) {
                return Ok(Kept::Unfinished(memory, unfinished));
            }
        }
        AlignedBuf::new(bytes).map(Kept::Own)
    }

    fn apart(slots: &[(usize, usize)], pages: GuardPages) -> Result<Kept, OutOfMemory> {
        let buffers = slots.iter().map(|&(_, bytes)| AlignedBuf::guarded(bytes, pages));
        buffers.collect::<Result<_, _>>().map(Kept::Apart)
    }

    /// Where the slots at these offsets begin.
    fn addresses(&mut self, offsets: &[usize]) -> Vec<*mut u8> {
        let start = match self {
            Kept::Own(buffer) => buffer.as_mut_ptr(),
            Kept::Unfinished(memory, _) | Kept::File(memory) => memory.start(),
            Kept::Apart(buffers) => return buffers.iter_mut().map(AlignedBuf::as_mut_ptr).collect(),
        };
        offsets.iter().map(|&offset| start.wrapping_add(offset)).collect()
    }
}

// SAFETY: the owned buffers are only kept alive; access goes through the addresses, under the rule given there.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes room for what load steps keep, given as slots and bytes, or finds it in the cache.
    pub(super) fn new(
        mut constants: Vec<ConstMemory>,
        kept_slots: Vec<(usize, usize)>,
        kept_as: Option<(&ObjectCache, &CacheKey)>,
        pages: GuardPages,
    ) -> Result<Memory, OutOfMemory> {
        let mut total = 0usize;
        let mut offsets = Vec::with_capacity(kept_slots.len());
        for &(_, bytes) in &kept_slots {
            offsets.push(total);
            let end = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| total.checked_add(bytes));
            total = end.ok_or(OutOfMemory { bytes })?;
        }
        let mut kept = match pages {
            GuardPages::Off => Kept::new(total, kept_as)?,
            GuardPages::AtEnds | GuardPages::AtStarts => Kept::apart(&kept_slots, pages)?,
        };
        let first = constants.iter_mut().map(ConstMemory::as_mut_ptr);
        let addresses = first.chain(kept.addresses(&offsets)).collect();
        let count = constants.len();
        Ok(Memory { addresses, constants: count, kept_slots, owned: UnsafeCell::new((constants, kept)) })
    }

    /// Whether load steps have to run.
    pub(super) fn is_empty(&mut self) -> bool {
        !matches!(self.owned.get_mut().1, Kept::File(_))
    }

    /// Keeps what load steps have computed for the next process, where that was asked for. Where it fails, nothing but
    /// the next start's time is lost.
    pub(super) fn keep(&mut self) {
        let kept = &mut self.owned.get_mut().1;
        *kept = match std::mem::replace(kept, Kept::Own(AlignedBuf::default())) {
            Kept::Unfinished(mut memory, unfinished) => {
                let _ = unfinished.finish(&mut memory);
                Kept::File(memory)
            }
            kept @ (Kept::Own(_) | Kept::File(_) | Kept::Apart(_)) => kept,
        };
    }

    /// Slot and bytes of what load steps keep.
    pub(super) fn kept_slots(&self) -> &[(usize, usize)] {
        &self.kept_slots
    }

    /// What constants hold, then what load steps keep.
    ///
    /// # Safety
    /// Nobody writes any of it as long as the slices live.
    pub(super) unsafe fn contents(&self) -> Vec<&[u8]> {
        // SAFETY: after `new` nobody changes the list itself.
        let (constants, _) = unsafe { &*self.owned.get() };
        let lengths =
            constants.iter().map(ConstMemory::len).chain(self.kept_slots.iter().map(|&(_, bytes)| bytes));
        // SAFETY: owned memory begins there and is as long as this; not written by the contract.
        let slice = |(&start, len): (&*mut u8, usize)| unsafe { std::slice::from_raw_parts(start, len) };
        self.addresses.iter().zip(lengths).map(slice).collect()
    }
}

/// What a call works in. One call uses it at a time; its memory grows to what the largest needed.
pub(super) struct Context {
    /// Values of the size symbols.
    pub(super) values: Vec<i64>,
    plan: Option<Arc<Plan>>,
    /// Addresses of inputs, then constants, then what load steps keep, then outputs.
    bases: Vec<*mut u8>,
    params: usize,
    constants: usize,
    outputs_from: usize,
    /// Arguments of the launch in progress.
    args: Vec<*mut u8>,
    arena: AlignedBuf,
    scratch: Scratch,
    pages: GuardPages,
    /// Buffers with guard pages.
    own: Vec<AlignedBuf>,
    /// Copies of inputs that come in another layout than kernels expect, or are written.
    gathered: Vec<AlignedBuf>,
}

/// Scratch memory of the threads that run a launch.
enum Scratch {
    /// One piece behind another, as far apart as a launch wants.
    Shared(AlignedBuf),
    Guarded(GuardedPieces),
}

impl Scratch {
    /// The first piece, of which a launch uses so many bytes, and the bytes from one to the next.
    fn pieces(&mut self, bytes: usize) -> (*mut u8, usize) {
        match self {
            Scratch::Shared(buffer) => (buffer.as_mut_ptr(), bytes),
            Scratch::Guarded(pieces) => (pieces.first(bytes), pieces.stride),
        }
    }
}

/// When a call has to be done.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    start: Instant,
    time: Duration,
}

impl Deadline {
    /// That of a call which begins at this moment, if its time is limited.
    pub(super) fn of(limits: &Limits) -> Option<Deadline> {
        limits.time.map(|time| Deadline { start: Instant::now(), time })
    }

    fn check(self) -> Result<(), LimitExceeded> {
        let taken = self.start.elapsed();
        if taken <= self.time {
            return Ok(());
        }
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (limit, allowed) = (Limit::Time, milliseconds(self.time));
        Err(LimitExceeded { limit, allowed, asked: milliseconds(taken).max(allowed.saturating_add(1)) })
    }
}

// SAFETY: the addresses are used during a call only, by the thread that makes it.
unsafe impl Send for Context {}

impl Context {
    pub(super) fn new(memory: &Memory, params: usize, outputs: usize, pages: GuardPages) -> Context {
        let mut bases = vec![std::ptr::null_mut(); params];
        bases.extend_from_slice(&memory.addresses);
        let outputs_from = bases.len();
        bases.resize(outputs_from + outputs, std::ptr::null_mut());
        Context {
            values: Vec::new(),
            plan: None,
            bases,
            params,
            constants: memory.constants,
            outputs_from,
            args: Vec::new(),
            arena: AlignedBuf::default(),
            scratch: Scratch::Shared(AlignedBuf::default()),
            pages,
            own: Vec::new(),
            gathered: (0..params).map(|_| AlignedBuf::default()).collect(),
        }
    }

    /// Whether the plan at hand is for the values at hand.
    pub(super) fn has_plan(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.values == self.values)
    }

    /// Takes a plan and makes room for it.
    pub(super) fn use_plan(&mut self, plan: Arc<Plan>, device: &dyn Device) -> Result<(), RunError> {
        grow(&mut self.arena, plan.arena_bytes)?;
        let (concurrency, pages) = (device.concurrency(), self.pages);
        match (&mut self.scratch, pages) {
            (Scratch::Shared(buffer), GuardPages::Off) => {
                grow(buffer, plan.scratch_bytes.saturating_mul(concurrency))?;
            }
            (scratch, _) => {
                *scratch = Scratch::Guarded(GuardedPieces::new(concurrency, plan.scratch_bytes, pages)?);
            }
        }
        let own = plan.own.iter().map(|&bytes| AlignedBuf::guarded(bytes, pages));
        self.own = own.collect::<Result<_, _>>()?;
        self.plan = Some(plan);
        Ok(())
    }

    /// Binds an input, in the layout that kernels expect.
    pub(super) fn set_input(
        &mut self,
        at: usize,
        view: &TensorView<'_>,
        is_written: bool,
    ) -> Result<(), RunError> {
        let plan = self.plan.as_ref().expect("invariant: inputs are set after the plan");
        let param = &plan.params[at];
        let shape = &param.shape;
        let is_as_expected =
            param.room <= shape.bytes && has_layout(view.sizes, view.strides, &shape.strides);
        if view.len > 0 && is_as_expected && !is_written && self.pages == GuardPages::Off {
            self.bases[at] = view.data.cast_mut();
            return Ok(());
        }
        let copy = &mut self.gathered[at];
        match self.pages {
            GuardPages::Off => grow(copy, param.room.max(shape.bytes))?,
            pages @ (GuardPages::AtEnds | GuardPages::AtStarts) => {
                *copy = AlignedBuf::guarded(param.room.max(shape.bytes), pages)?;
            }
        }
        // A view without elements may have no address.
        if view.len > 0 {
            // SAFETY: a view's elements can be read while it lives.
            let bytes = unsafe { std::slice::from_raw_parts(view.data, view.len) };
            let dst = (copy.as_mut_slice(), &shape.strides[..]);
            copy_strided(shape.dtype.size(), view.sizes, (bytes, view.strides), dst);
        }
        self.bases[at] = copy.as_mut_ptr();
        Ok(())
    }

    /// Asks for the memory of outputs that are computed in place.
    pub(super) fn set_outputs(&mut self, outputs: &mut dyn Outputs) -> Result<(), RunError> {
        let plan = self.plan.as_ref().expect("invariant: outputs are set after the plan");
        for (at, output) in plan.outputs.iter().enumerate() {
            if let OutputPlan::Direct(shape) = output {
                self.bases[self.outputs_from + at] = outputs.tensor(at, &layout(shape))?.as_ptr();
            }
        }
        Ok(())
    }

    /// Runs the commands of the plan, as long as there is time.
    pub(super) fn run(&mut self, device: &dyn Device, deadline: Option<Deadline>) -> Result<(), RunError> {
        let plan = Arc::clone(self.plan.as_ref().expect("invariant: a call has a plan"));
        for command in &plan.commands {
            deadline.map_or(Ok(()), Deadline::check)?;
            match command {
                Command::Launch { kernel, args, sizes, points, scratch_bytes } => {
                    self.args.clear();
                    for place in &plan.places[args.clone()] {
                        let address = self.address(*place);
                        self.args.push(address);
                    }
                    let (scratch, scratch_stride) = self.scratch.pieces(*scratch_bytes);
                    let launch = Launch {
                        kernel: *kernel,
                        args: &self.args,
                        sizes: &plan.ints[sizes.clone()],
                        points: *points,
                        scratch,
                        scratch_bytes: *scratch_bytes,
                        scratch_stride,
                    };
                    // SAFETY: the planner found every memory as large as the kernel's extent; intermediate memory is
                    // this call's alone, constants are written only under the lock on state, and inputs never.
                    unsafe { device.launch(&launch)? };
                }
                Command::Extern { routine, reads, writes, ints, message } => {
                    let reads: SmallVec<[Read<'_>; 4]> =
                        reads.iter().map(|buffer| self.read(buffer)).collect();
                    let mut writes: SmallVec<[Write<'_>; 4]> =
                        writes.iter().map(|buffer| self.write(buffer)).collect();
                    routine(&reads, &mut writes, &plan.ints[ints.clone()])
                        .map_err(|error| error.with_message(message))?;
                }
                Command::Copy { from, to, bytes } => self.copy(*from, self.address(*to), *bytes),
            }
        }
        Ok(())
    }

    /// Hands over outputs that are not yet where they go, then makes the updates.
    pub(super) fn finish(&mut self, outputs: &mut dyn Outputs) -> Result<(), RunError> {
        let plan = Arc::clone(self.plan.as_ref().expect("invariant: a call has a plan"));
        for (at, output) in plan.outputs.iter().enumerate() {
            match output {
                OutputPlan::Direct(_) => {}
                OutputPlan::Copied { shape, from } => {
                    let memory = outputs.tensor(at, &layout(shape))?;
                    self.copy(*from, memory.as_ptr(), shape.bytes);
                }
                OutputPlan::Scalar(scalar) => outputs.scalar(at, *scalar),
            }
        }
        let mut extra = plan.outputs.len();
        for update in &plan.updates {
            match &update.to {
                Target::Const { to, bytes } => self.copy(update.from, self.address(*to), *bytes),
                Target::Extra(shape) => {
                    let memory = outputs.tensor(extra, &layout(shape))?;
                    self.copy(update.from, memory.as_ptr(), shape.bytes);
                    extra += 1;
                }
            }
        }
        Ok(())
    }

    fn address(&self, place: Place) -> *mut u8 {
        let base = match place.base {
            Base::Arena => self.arena.as_ptr().cast_mut(),
            Base::Own(at) => self.own[at].as_ptr().cast_mut(),
            Base::Param(at) => self.bases[at],
            Base::Const(at) => self.bases[self.params + at],
            Base::Kept(at) => self.bases[self.params + self.constants + at],
            Base::Output(at) => self.bases[self.outputs_from + at],
        };
        base.wrapping_add(place.offset)
    }

    fn copy(&self, from: Place, to: *mut u8, bytes: usize) {
        if bytes > 0 {
            // SAFETY: the planner found both as large as this; they may overlap.
            unsafe { std::ptr::copy(self.address(from), to, bytes) };
        }
    }

    fn read(&self, buffer: &Buffer) -> Read<'_> {
        // SAFETY: the planner found the memory as large as this, and nobody writes it during the routine.
        let bytes = unsafe { std::slice::from_raw_parts(self.address(buffer.place), buffer.bytes) };
        Read { bytes, dtype: buffer.dtype }
    }

    fn write(&self, buffer: &Buffer) -> Write<'_> {
        // SAFETY: as above, and what a routine writes overlaps nothing else it is given.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.address(buffer.place), buffer.bytes) };
        Write { bytes, dtype: buffer.dtype }
    }
}

fn layout(shape: &Shape) -> OutputLayout<'_> {
    OutputLayout { dtype: shape.dtype, sizes: &shape.sizes, strides: &shape.strides, bytes: shape.bytes }
}

/// Makes a buffer at least this large; its contents are lost when it grows.
fn grow(buffer: &mut AlignedBuf, bytes: usize) -> Result<(), RunError> {
    if buffer.len() < bytes {
        *buffer = AlignedBuf::default();
        *buffer = AlignedBuf::new(bytes)?;
    }
    Ok(())
}
