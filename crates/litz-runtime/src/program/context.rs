//! Enqueues the commands of a plan at the addresses of one call, and waits where the host needs what they give.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use litz_ir::Dtype;
use smallvec::SmallVec;

use super::function::{Function, Running};
use super::outputs::{OutputLayout, Outputs};
use super::plan::{self, Address, Base, Command, HostOperand, OutputPlan, Plan, Shape, Target};
use super::prepare::{Prepared, SizeFacts};
use crate::arena::{AlignedBuf, GuardPages, GuardedPieces, OutOfMemory};
use crate::device::{Buffer, Copy, Device, Idle, Launch, Space, Stream};
use crate::error::RunError;
use crate::host::Operand;
use crate::kept::Kept;
use crate::limits::{Limit, LimitExceeded, Limits};
use crate::number;
use crate::routines::{Read, Write};
use crate::tensor::{TensorView, copy_strided, has_layout};

/// What a call works in. One call uses it at a time; its memory grows to what the largest needed.
pub(super) struct Context {
    device: Arc<dyn Device>,
    /// Where launches find memory.
    space: Space,
    /// Where results go and what is lent lies: with the caller of the program, or of the function.
    outside: Space,
    stream: Box<dyn Stream>,
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
    arenas: Arenas,
    /// Those of functions that were called.
    children: Vec<Option<Box<Context>>>,
    /// Bytes in use by those who called.
    bytes_before: usize,
    /// Statements that kernels of this call have executed, at most.
    pub(super) iterations: u64,
    scratch: Scratch,
    pages: GuardPages,
    /// Buffers with guard pages.
    own: Vec<Buffer>,
    /// Copies of inputs that come in another layout than kernels expect, or are written.
    gathered: Vec<AlignedBuf>,
    updated: Vec<Updated>,
    begun: Begun,
    /// What holds of late sizes.
    late: Arc<[SizeFacts]>,
    /// Whether the latest call may have stored to constants.
    pub(super) has_changed_state: bool,
    /// Inputs, where the device has memory of its own.
    inputs: Vec<Buffer>,
    /// Outputs that are computed in place, where the device has memory of its own.
    results: Vec<Buffer>,
    /// Operands of the latest routine, where the device has memory of its own.
    operands: Vec<AlignedBuf>,
    /// Results of the host that the call has no memory for yet.
    kept: Kept,
}

/// Memory for intermediate results, of a program and then of the functions that it calls: those of which one runs at a time have
/// the same.
#[derive(Default)]
struct Arenas {
    own: Vec<Buffer>,
    below: Option<Box<Arenas>>,
}

impl Arenas {
    /// Makes arenas at least as large as a plan says, from number `used` on.
    fn make_room(&mut self, device: &dyn Device, bytes: &[usize], used: usize) -> Result<(), OutOfMemory> {
        self.own.resize_with(bytes.len().max(self.own.len()), Buffer::default);
        for (arena, &bytes) in self.own.iter_mut().zip(bytes).skip(used) {
            if arena.len() < bytes
                && let Some(idle) = device.idle().and_then(|idle| idle.take(bytes))
            {
                *arena = idle;
            }
            arena.grow(device, bytes)?;
        }
        Ok(())
    }

    fn give(&mut self, idle: &Idle) {
        let mut level = Some(self);
        while let Some(arenas) = level {
            arenas.own.drain(..).for_each(|buffer| idle.give(buffer));
            level = arenas.below.as_deref_mut();
        }
    }
}

/// How much of its plan a call has run, and asked for, when a size becomes known.
#[derive(Clone, Copy, Default)]
struct Begun {
    commands: usize,
    arenas: usize,
    own: usize,
    outputs: usize,
}

/// Memory of an input that its owner lets a call write to.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    pub(super) data: NonNull<u8>,
    /// Whether no other input has any of it.
    pub(super) is_apart: bool,
}

/// Where the new contents of an input go that a program updates.
enum Updated {
    /// They are a result of the call.
    Result,
    /// They are one in whose memory the steps work.
    InResult,
    /// To the memory that was lent, which has these strides and so many bytes.
    Back { data: NonNull<u8>, strides: SmallVec<[usize; 6]>, len: usize },
}

/// Scratch memory of the threads that run a launch.
enum Scratch {
    /// One piece behind another, as far apart as a launch wants.
    Shared(Buffer),
    Guarded(GuardedPieces),
}

impl Scratch {
    /// The first piece, of which a launch uses so many bytes, and the bytes from one to the next.
    fn pieces(&mut self, bytes: usize) -> (*mut u8, usize) {
        match self {
            Scratch::Shared(buffer) => (buffer.as_ptr(), bytes),
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
    /// One for a program whose constants, and what load steps keep, begin at these addresses.
    pub(super) fn new(
        device: &Arc<dyn Device>,
        (addresses, constants): (&[*mut u8], usize),
        prepared: &Prepared,
    ) -> Result<Context, RunError> {
        let (params, outputs) = (prepared.params.len(), prepared.outputs.len());
        let pages = prepared.guard_pages;
        let mut bases = vec![std::ptr::null_mut(); params];
        bases.extend_from_slice(addresses);
        let outputs_from = bases.len();
        bases.resize(outputs_from + outputs, std::ptr::null_mut());
        let space = if device.memory().is_some() { Space::Device } else { Space::Host };
        Ok(Context {
            device: Arc::clone(device),
            space,
            outside: Space::Host,
            stream: device.stream()?,
            values: Vec::new(),
            plan: None,
            bases,
            params,
            constants,
            outputs_from,
            args: Vec::new(),
            arenas: Arenas::default(),
            children: Vec::new(),
            bytes_before: 0,
            iterations: 0,
            scratch: Scratch::Shared(Buffer::default()),
            pages,
            own: Vec::new(),
            gathered: (0..params).map(|_| AlignedBuf::default()).collect(),
            updated: (0..params).map(|_| Updated::Result).collect(),
            begun: Begun::default(),
            late: Arc::clone(&prepared.late),
            has_changed_state: false,
            inputs: (0..params).map(|_| Buffer::default()).collect(),
            results: (0..outputs).map(|_| Buffer::default()).collect(),
            operands: Vec::new(),
            kept: Kept::default(),
        })
    }

    /// Whether the plan at hand is for the values at hand.
    pub(super) fn has_plan(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.values == self.values)
    }

    /// Takes a plan and makes room for it. Where one more size became known during a call, that is for what comes behind the
    /// commands that have run: what these use stays as it is.
    pub(super) fn use_plan(&mut self, plan: Arc<Plan>) -> Result<(), RunError> {
        self.arenas.make_room(&*self.device, &plan.arenas, self.begun.arenas)?;
        let (device, own_used) = (&*self.device, self.begun.own);
        let (concurrency, pages) = (device.concurrency(), self.pages);
        match (&mut self.scratch, pages) {
            (Scratch::Shared(buffer), GuardPages::Off) => {
                buffer.grow(device, plan.scratch_bytes.saturating_mul(concurrency))?;
            }
            (scratch, _) => {
                *scratch = Scratch::Guarded(GuardedPieces::new(concurrency, plan.scratch_bytes, pages)?);
            }
        }
        self.own.truncate(own_used);
        for &bytes in &plan.own[own_used..] {
            self.own.push(Buffer::with_pages(device, bytes, pages)?);
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Makes room for the plan at hand, which an earlier call has used: what that worked in may be another's now.
    pub(super) fn make_room(&mut self) -> Result<(), RunError> {
        let plan = self.plan.as_ref().expect("invariant: whoever asks for room has a plan");
        Ok(self.arenas.make_room(&*self.device, &plan.arenas, 0)?)
    }

    /// Lets other calls have the memory of intermediate results. This one is over.
    pub(super) fn give_room(&mut self) {
        if let Some(idle) = self.device.idle() {
            self.arenas.give(idle);
        }
    }

    /// Forgets what the call before has begun.
    pub(super) fn begin(&mut self) {
        self.begun = Begun::default();
        self.kept.clear();
        self.iterations = 0;
        self.has_changed_state = false;
    }

    /// Binds an input, in the layout that kernels expect. Nothing is changed in the host's memory that a stream may still
    /// read: calls wait at their ends.
    pub(super) fn set_input(
        &mut self,
        at: usize,
        view: &TensorView<'_>,
        lent: Option<Lent>,
        outputs: &mut dyn Outputs,
    ) -> Result<(), RunError> {
        self.updated[at] = match lent {
            Some(Lent { data, .. }) => Updated::Back { data, strides: view.strides.into(), len: view.len },
            None => Updated::Result,
        };
        let plan = self.plan.as_ref().expect("invariant: inputs are set after the plan");
        let param = &plan.params[at];
        let shape = &param.shape;
        let is_as_expected =
            param.room <= shape.bytes && has_layout(view.sizes, view.strides, &shape.strides);
        let is_usable = view.len > 0 && is_as_expected && self.pages == GuardPages::Off;
        let may_store = !param.is_stored || lent.is_some_and(|lent| lent.is_apart);
        match self.space {
            Space::Host if is_usable && may_store => {
                self.bases[at] = view.data.cast_mut();
                return Ok(());
            }
            Space::Device if is_usable => {
                let (data, bytes) = (view.data, shape.bytes);
                return self.upload(at, data, bytes);
            }
            // The steps make the new contents where they are to be returned.
            Space::Host if lent.is_none() && param.room <= shape.bytes && self.pages == GuardPages::Off => {
                if let Some(index) = plan.made_in_place(at) {
                    let memory = outputs.tensor(index, &layout(shape))?;
                    (self.bases[at], self.updated[at]) = (memory.as_ptr(), Updated::InResult);
                    let is_there = memory.as_ptr().cast_const() == view.data && is_as_expected;
                    if view.len > 0 && !is_there {
                        // SAFETY: a view's elements can be read while it lives; the result's memory is another, or the
                        // input's own.
                        let bytes = unsafe { std::slice::from_raw_parts(view.data, view.len) };
                        // SAFETY: outputs give as much memory as they are asked for, which nothing else overlaps.
                        let result = unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), shape.bytes) };
                        let dst = (result, &shape.strides[..]);
                        copy_strided(shape.dtype.size(), view.sizes, (bytes, view.strides), dst);
                    }
                    return Ok(());
                }
            }
            Space::Host | Space::Device => {}
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
        let (data, bytes) = (copy.as_mut_ptr(), copy.len());
        match self.space {
            Space::Host => self.bases[at] = data,
            Space::Device => self.upload(at, data, bytes)?,
        }
        Ok(())
    }

    /// Copies an input to the device's memory.
    fn upload(&mut self, at: usize, data: *const u8, bytes: usize) -> Result<(), RunError> {
        self.inputs[at].grow(&*self.device, bytes)?;
        self.bases[at] = self.inputs[at].as_ptr();
        let (from, to) = ((Space::Host, data), (Space::Device, self.bases[at]));
        // SAFETY: the caller's input, or our copy of it, is as large as this and is there until the call ends.
        unsafe { self.stream.copy(Copy { from, to, bytes }) };
        Ok(())
    }

    /// Asks for the memory of outputs that are computed in place, but for those that it has asked for in this call.
    pub(super) fn set_outputs(&mut self, outputs: &mut dyn Outputs) -> Result<(), RunError> {
        let plan = self.plan.as_ref().expect("invariant: outputs are set after the plan");
        for (at, shape) in plan.direct.iter().skip(self.begun.outputs) {
            self.bases[self.outputs_from + at] = match (self.space, self.outside) {
                (Space::Host, _) | (Space::Device, Space::Device) => {
                    outputs.tensor(*at, &layout(shape))?.as_ptr()
                }
                (Space::Device, Space::Host) => {
                    self.results[*at].grow(&*self.device, shape.bytes)?;
                    self.results[*at].as_ptr()
                }
            };
        }
        Ok(())
    }

    /// Runs the commands of the plan that have not run in this call, as long as there is time. All have ended when it returns
    /// without an error. Where they end with a size, that has become the last of `values`, and the result is false: a plan for
    /// these values goes on.
    pub(super) fn run(&mut self, function: &Function, running: Running<'_>) -> Result<bool, RunError> {
        let Running { deadline, hosted, release, .. } = running;
        let plan = Arc::clone(self.plan.as_ref().expect("invariant: a call has a plan"));
        self.iterations = self.iterations.saturating_add(plan.iterations);
        function.prepared.limits.check(Limit::Iterations, self.iterations)?;
        for (at, command) in plan.commands.iter().enumerate().skip(self.begun.commands) {
            deadline.map_or(Ok(()), Deadline::check)?;
            if plan.changes_state == Some(at) {
                // Whatever fails before this leaves the state as it was.
                self.stream.wait()?;
                self.has_changed_state = true;
            }
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
                    // this call's alone, constants are written only under the lock on state, and inputs where they are lent
                    // and no other has their memory. Whoever calls waits before any of it goes away, whatever comes of the call.
                    unsafe { self.stream.launch(&launch) };
                }
                Command::Extern { routine, reads, writes, ints, message } => {
                    let operands = self.operands(reads.iter().chain(writes))?;
                    let (read_at, write_at) = operands.split_at(reads.len());
                    let reads: SmallVec<[Read<'_>; 4]> =
                        reads.iter().zip(read_at).map(|(buffer, &at)| read(buffer, at)).collect();
                    let mut written: SmallVec<[Write<'_>; 4]> =
                        writes.iter().zip(write_at).map(|(buffer, &at)| write(buffer, at)).collect();
                    routine(&reads, &mut written, &plan.ints[ints.clone()])
                        .map_err(|error| error.with_message(message))?;
                    self.return_operands(writes.iter().zip(write_at.iter().copied()));
                }
                Command::Call { call, ints, buffers, operands, writes } => {
                    let addresses = self.operands(buffers.iter())?;
                    let operand = |HostOperand { buffer, skip, shape, is_shared }: &HostOperand| Operand {
                        data: addresses[*buffer].wrapping_add(*skip),
                        bytes: shape.bytes,
                        dtype: shape.dtype,
                        sizes: shape.sizes.clone(),
                        strides: shape.strides.clone(),
                        is_shared: *is_shared,
                    };
                    let given: Vec<Operand> = operands.iter().map(operand).collect();
                    // SAFETY: the planner found the memory as large as sizes and strides reach. All that was enqueued is done, and
                    // the verifier of programs wants what is written apart from the others, unless it is shared, in slots that lie apart
                    // from all others in use.
                    unsafe { hosted.call(call, &plan.ints[ints.clone()], &given, &mut self.kept)? };
                    self.return_operands(writes.iter().map(|&at| (&buffers[at], addresses[at])));
                }
                Command::Control { control, calls, reads, writes } => {
                    self.control(function, control, (calls, &plan.ints), (reads, writes), running)?;
                }
                Command::Size { from, late, who } => {
                    let value = self.number(from)?;
                    self.late[*late].check(value, who)?;
                    self.values.push(value);
                    self.begun = Begun {
                        commands: at + 1,
                        arenas: plan.arenas.len(),
                        own: plan.own.len(),
                        outputs: plan.direct.len(),
                    };
                    return Ok(false);
                }
                Command::Copy { from, to, bytes } => {
                    self.copy(*from, (self.space, self.address(*to)), *bytes)
                }
                Command::Release { constant } => {
                    self.stream.wait()?;
                    release(*constant);
                }
            }
        }
        self.stream.wait()?;
        deadline.map_or(Ok(()), Deadline::check)?;
        Ok(true)
    }

    /// The integer or truth value that a buffer begins with.
    pub(super) fn number(&mut self, from: &plan::Buffer) -> Result<i64, RunError> {
        let (dtype, bits) = self.element(from)?;
        Ok((number::cast(dtype, Dtype::I64, bits) as u64).cast_signed())
    }

    /// The element that a buffer begins with.
    fn element(&mut self, from: &plan::Buffer) -> Result<(Dtype, number::Bits), RunError> {
        let operands = self.operands(std::iter::once(from))?;
        let Read { bytes, dtype } = read(from, operands[0]);
        Ok((dtype, number::read(bytes, 0, dtype.size())))
    }

    /// Waits for all that is enqueued, and says where the host finds the operands of a routine: where they are, or copies of
    /// what the device's memory holds.
    fn operands<'b>(
        &mut self,
        all: impl Iterator<Item = &'b plan::Buffer> + Clone,
    ) -> Result<SmallVec<[*mut u8; 8]>, RunError> {
        let buffers = || all.clone();
        let addresses = buffers().map(|buffer| self.address(buffer.place)).collect();
        self.stream.wait()?;
        if self.space == Space::Host {
            return Ok(addresses);
        }
        let copies = buffers().map(|buffer| AlignedBuf::new(buffer.bytes));
        self.operands = copies.collect::<Result<_, _>>()?;
        for ((buffer, &from), copy) in buffers().zip(&addresses).zip(&mut self.operands) {
            let (from, to) = ((Space::Device, from.cast_const()), (Space::Host, copy.as_mut_ptr()));
            // SAFETY: the planner found the memory as large as this, and so is the copy.
            unsafe { self.stream.copy(Copy { from, to, bytes: buffer.bytes }) };
        }
        self.stream.wait()?;
        Ok(self.operands.iter_mut().map(AlignedBuf::as_mut_ptr).collect())
    }

    /// Brings what a routine wrote to where launches find it.
    fn return_operands<'b>(&mut self, writes: impl Iterator<Item = (&'b plan::Buffer, *mut u8)>) {
        if self.space == Space::Host {
            return;
        }
        for (buffer, from) in writes {
            let (from, to) = ((Space::Host, from.cast_const()), (Space::Device, self.address(buffer.place)));
            // SAFETY: as above; the copies stay until the next routine, which waits first.
            unsafe { self.stream.copy(Copy { from, to, bytes: buffer.bytes }) };
        }
    }

    /// Waits for all that is enqueued.
    pub(super) fn wait(&mut self) -> Result<(), RunError> {
        self.stream.wait()
    }

    /// The context in which a function is called.
    pub(super) fn child(&mut self, at: usize, prepared: &Prepared) -> Result<Box<Context>, RunError> {
        if self.children.len() <= at {
            self.children.resize_with(at + 1, || None);
        }
        match self.children[at].take() {
            Some(child) => Ok(child),
            None => {
                let mut child = Box::new(Context::new(&self.device, (&[], 0), prepared)?);
                child.outside = child.space;
                Ok(child)
            }
        }
    }

    /// Gives a child the memory that functions share, until [`Context::take_back`].
    pub(super) fn lend_arenas(&mut self, child: &mut Context) {
        let plan = self.plan.as_ref().expect("invariant: who calls has a plan");
        child.bytes_before = self.bytes_before.saturating_add(plan.memory_bytes());
        child.arenas = *self.arenas.below.take().unwrap_or_default();
    }

    /// Takes a child back, and the memory that it has.
    pub(super) fn take_back(&mut self, at: usize, mut child: Box<Context>) {
        self.arenas.below = Some(Box::new(std::mem::take(&mut child.arenas)));
        self.iterations = child.iterations;
        self.children[at] = Some(child);
    }

    /// Bytes in use while a child runs by a plan.
    pub(super) fn bytes_around(&self, child: &Context, plan: &Plan) -> usize {
        child.bytes_before.saturating_add(plan.memory_bytes())
    }

    /// Bytes that the steps take for granted of an input.
    pub(super) fn bytes_of_param(&self, at: usize) -> usize {
        let plan = self.plan.as_ref().expect("invariant: inputs are set after the plan");
        plan.params[at].room.max(plan.params[at].shape.bytes)
    }

    /// Binds an input that lies as the steps expect it, and that they may change.
    pub(super) fn lend_input(&mut self, at: usize, start: *mut u8) {
        let plan = self.plan.as_ref().expect("invariant: inputs are set after the plan");
        let shape = &plan.params[at].shape;
        let data = NonNull::new(start).unwrap_or(NonNull::dangling());
        self.updated[at] =
            Updated::Back { data, strides: SmallVec::from_slice(&shape.strides), len: shape.bytes };
        self.bases[at] = start;
    }

    /// Waits for what a call that failed has left, so that its memory can be used again.
    pub(super) fn settle(&mut self) {
        // The call has an error already, the first one.
        let _ = self.stream.wait();
    }

    /// Hands over outputs that are not yet where they go, then makes the updates.
    pub(super) fn finish(&mut self, outputs: &mut dyn Outputs) -> Result<(), RunError> {
        let plan = Arc::clone(self.plan.as_ref().expect("invariant: a call has a plan"));
        for (at, output) in plan.outputs.iter().enumerate() {
            match output {
                OutputPlan::Direct(shape) => {
                    if self.space != self.outside {
                        let memory = outputs.tensor(at, &layout(shape))?;
                        let from = Address { base: Base::Output(at), offset: 0 };
                        self.copy(from, (Space::Host, memory.as_ptr()), shape.bytes);
                    }
                }
                OutputPlan::Copied { shape, from } => {
                    if let Some((param, offset)) = self.donated_place(&plan, *from)
                        && outputs.in_input(at, param, offset, &layout(shape))
                    {
                        continue;
                    }
                    let memory = outputs.tensor(at, &layout(shape))?;
                    self.copy(*from, (self.outside, memory.as_ptr()), shape.bytes);
                }
                OutputPlan::Number(from) => {
                    let (dtype, bits) = self.element(from)?;
                    outputs.scalar(at, Some(number::scalar(dtype, bits)));
                }
                OutputPlan::Scalar(scalar) => outputs.scalar(at, *scalar),
                OutputPlan::Text(text) => outputs.text(at, text),
            }
        }
        let mut extra = plan.outputs.len();
        for update in &plan.updates {
            match &update.to {
                Target::Const { to, bytes } => {
                    self.copy(update.from, (self.space, self.address(*to)), *bytes);
                }
                Target::Input { param, shape } => {
                    match std::mem::replace(&mut self.updated[*param], Updated::Result) {
                        Updated::Result => {
                            let memory = outputs.tensor(extra, &layout(shape))?;
                            self.copy(update.from, (Space::Host, memory.as_ptr()), shape.bytes);
                        }
                        Updated::InResult => {}
                        Updated::Back { data, strides, len } => {
                            self.give_back(update.from, shape, (data.as_ptr(), &strides, len))?;
                            outputs.scalar(extra, None);
                        }
                    }
                    extra += 1;
                }
            }
        }
        self.stream.wait()
    }

    /// Copies new contents to the memory that was lent: the address, strides and bytes of it. What was stored there is there.
    fn give_back(
        &mut self,
        from: Address,
        shape: &Shape,
        (data, strides, len): (*mut u8, &[usize], usize),
    ) -> Result<(), RunError> {
        if len == 0 || self.space == self.outside && self.address(from) == data {
            return Ok(());
        }
        if has_layout(&shape.sizes, strides, &shape.strides) {
            self.copy(from, (self.outside, data), shape.bytes);
            return Ok(());
        }
        let mut packed = AlignedBuf::new(shape.bytes)?;
        self.copy(from, (Space::Host, packed.as_mut_ptr()), shape.bytes);
        self.stream.wait()?;
        // SAFETY: whoever lends memory lends all that sizes and strides reach.
        let bytes = unsafe { std::slice::from_raw_parts_mut(data, len) };
        copy_strided(shape.dtype.size(), &shape.sizes, (packed.as_slice(), &shape.strides), (bytes, strides));
        Ok(())
    }

    /// The donated input in whose own memory a place is, lent to the call, and how many bytes behind its first element. What an input
    /// is updated with stays the caller's: a result that is equal to it has memory of its own.
    fn donated_place(&self, plan: &Plan, place: Address) -> Option<(usize, usize)> {
        let Base::Param(param) = place.base else { return None };
        if !plan.params[param].is_donated {
            return None;
        }
        match &self.updated[param] {
            Updated::Back { data, .. } if self.bases[param] == data.as_ptr() => Some((param, place.offset)),
            Updated::Back { .. } | Updated::Result | Updated::InResult => None,
        }
    }

    pub(super) fn address(&self, place: Address) -> *mut u8 {
        let base = match place.base {
            Base::Arena(at) => self.arenas.own[at].as_ptr(),
            Base::Own(at) => self.own[at].as_ptr(),
            Base::Param(at) => self.bases[at],
            Base::Const(at) => self.bases[self.params + at],
            Base::Kept(at) => self.bases[self.params + self.constants + at],
            Base::Output(at) => self.bases[self.outputs_from + at],
        };
        base.wrapping_add(place.offset)
    }

    fn copy(&mut self, from: Address, to: (Space, *mut u8), bytes: usize) {
        let from = (self.space, self.address(from).cast_const());
        // SAFETY: the planner found both as large as this.
        unsafe { self.stream.copy(Copy { from, to, bytes }) };
    }
}

/// Buffers are given back when nothing uses them any more, also where a call ended in a panic.
impl Drop for Context {
    fn drop(&mut self) {
        self.settle();
    }
}

fn read<'a>(buffer: &plan::Buffer, start: *mut u8) -> Read<'a> {
    // SAFETY: the planner found the memory as large as this, and nobody writes it during the routine.
    let bytes = unsafe { std::slice::from_raw_parts(start, buffer.bytes) };
    Read { bytes, dtype: buffer.dtype }
}

fn write<'a>(buffer: &plan::Buffer, start: *mut u8) -> Write<'a> {
    // SAFETY: as above, and what a routine writes overlaps nothing else it is given.
    let bytes = unsafe { std::slice::from_raw_parts_mut(start, buffer.bytes) };
    Write { bytes, dtype: buffer.dtype }
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
