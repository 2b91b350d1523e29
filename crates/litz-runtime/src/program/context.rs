//! Enqueues the commands of a plan at the addresses of one call, and waits where the host needs what they give.

mod captures;
mod constants;
mod memory;
mod operands;
mod results;
mod watched;

use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use litz_ir::graph;
use smallvec::SmallVec;

use super::function::{Function, Running};
use super::memory::Memory;
use super::outputs::{OutputLayout, Outputs};
use super::plan::{self, Address, Base, Command, HostOperand, LaunchPlan, Plan, Shape};
use super::prepared::{Prepared, SizeFacts};
use super::queues::{Devices, On, Queues};
use super::recordings::Recordings;
use super::watch::Watch;
use crate::arena::{AlignedBuf, GuardPages, GuardedPieces};
use crate::device::{AddressSpace, Buffer, Launch, RawStream};
use crate::error::RunError;
use crate::host::{Kept, Operand};
use crate::limits::{Limit, LimitExceeded, Limits};
use crate::routines::{Read, Write};
use crate::tensor::{TensorView, copy_strided, has_layout};
use captures::Capture;
use memory::{Arenas, Scratch};

/// Of where kernels of a device with memory of its own take arguments to begin.
const DEVICE_ALIGNMENT: usize = 16;

/// What a call works in. One call uses it at a time; its memory grows to what the largest needed.
pub(super) struct Context {
    queues: Queues,
    /// Where results go, and what is lent lies: with the host, or where the steps have them, as the caller of a function does, and one that
    /// works on a stream of the device.
    outside: AddressSpace,
    /// Whether work is enqueued on a stream of the caller's.
    follows: bool,
    /// Whether calls return when all is enqueued.
    is_ahead: bool,
    /// Values of the size symbols.
    pub(super) values: Vec<i64>,
    plan: Option<Arc<Plan>>,
    /// Addresses of inputs, then constants, then what load steps keep, then outputs.
    bases: Vec<*mut u8>,
    params: usize,
    constants: usize,
    outputs_from: usize,
    /// The generation of constants whose addresses are among the bases.
    bound: Weak<Memory>,
    /// The same, as long as work that uses it may be enqueued and nobody waits.
    held: Option<Arc<Memory>>,
    /// Arguments of the launch in progress.
    args: Vec<*mut u8>,
    arenas: Arenas,
    /// Those of functions that were called.
    children: Vec<Option<Box<Context>>>,
    /// Bytes in use by those who called.
    bytes_before: usize,
    /// Statements that kernels of this call have executed, at most.
    pub(super) iterations: u64,
    /// What devices have captured of plans.
    recordings: Recordings,
    /// Of each queue.
    scratch: Vec<Scratch>,
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
    /// Inputs, where their device has memory of its own.
    inputs: Vec<Buffer>,
    /// Outputs that are computed in place, where their device has memory of its own.
    results: Vec<Buffer>,
    /// Operands of the latest routine that were in a device's own memory.
    operands: Vec<AlignedBuf>,
    /// Results of the host that the call has no memory for yet.
    kept: Kept,
    /// What is in use, where memory is watched.
    watch: Option<Box<Watch>>,
}

/// How much of its plan a call has run, and asked for, when a size becomes known.
#[derive(Clone, Copy, Default)]
struct Begun {
    commands: usize,
    arenas: usize,
    own: usize,
    outputs: usize,
}

/// What runs behind a command.
enum Flow {
    Next,
    /// What is behind some others.
    To(usize),
    /// Nothing of this plan: a size has become known.
    IsLate,
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
    /// One for a program with so many constants, and pieces of memory that load steps keep.
    pub(super) fn new(
        devices: &Devices,
        (constants, kept): (usize, usize),
        prepared: &Prepared,
    ) -> Result<Context, RunError> {
        let (params, outputs) = (prepared.params.len(), prepared.outputs.len());
        let pages = prepared.guard_pages;
        let outputs_from = params + constants + kept;
        let bases = vec![std::ptr::null_mut(); outputs_from + outputs];
        let scratch = prepared.queues.iter().map(|_| Scratch::Shared(Buffer::default()));
        Ok(Context {
            queues: Queues::new(devices, &prepared.queues)?,
            outside: AddressSpace::Host,
            follows: false,
            is_ahead: false,
            values: Vec::new(),
            plan: None,
            bases,
            params,
            constants,
            outputs_from,
            bound: Weak::new(),
            held: None,
            args: Vec::new(),
            arenas: Arenas::default(),
            children: Vec::new(),
            bytes_before: 0,
            iterations: 0,
            recordings: Recordings::default(),
            scratch: scratch.collect(),
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
            watch: prepared
                .watched
                .as_ref()
                .filter(|watched| watched.watching.memory)
                .map(|_| Box::default()),
        })
    }

    /// Whether the plan at hand is for the values at hand.
    pub(super) fn has_plan(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.values == self.values)
    }

    /// Takes a plan and makes room for it. Where one more size became known during a call, that is for what comes behind the
    /// commands that have run: what these use stays as it is.
    pub(super) fn use_plan(&mut self, plan: Arc<Plan>) -> Result<(), RunError> {
        // Where there is no room for this one, what the last one had is gone in part.
        self.plan = None;
        self.arenas.leave(&self.queues.devices, &plan.left);
        self.arenas.make_room(&self.queues.devices, &plan.arenas, self.begun.arenas)?;
        let (pages, own_used) = (self.pages, self.begun.own);
        for (queue, (scratch, &bytes)) in self.scratch.iter_mut().zip(&plan.scratch_bytes).enumerate() {
            let device = &*self.queues.devices[self.queues.device_of(queue)];
            match (scratch, pages) {
                (Scratch::Shared(buffer), GuardPages::Off) => {
                    buffer.grow(device, bytes.saturating_mul(device.concurrency()))?;
                }
                (scratch, _) => {
                    *scratch = Scratch::Guarded(GuardedPieces::new(device.concurrency(), bytes, pages)?);
                }
            }
        }
        self.own.truncate(own_used);
        for &bytes in &plan.own[own_used..] {
            // Only the host's memory has guard pages.
            self.own.push(Buffer::with_pages(&*self.queues.devices[0], bytes, pages)?);
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// Makes room for the plan at hand, which an earlier call has used: what that worked in may be another's now.
    pub(super) fn make_room(&mut self) -> Result<(), RunError> {
        let plan = self.plan.as_ref().expect("invariant: whoever asks for room has a plan");
        self.arenas.make_room(&self.queues.devices, &plan.arenas, 0)
    }

    /// Lets other calls have the memory of intermediate results. This one is over.
    pub(super) fn give_room(&mut self) {
        self.arenas.give(&self.queues.devices);
    }

    /// Works on the stream of whoever calls, or where that is the host on its own.
    pub(super) fn follow(&mut self, stream: Option<RawStream>, is_ahead: bool) {
        self.outside = if stream.is_some() { AddressSpace::Device } else { AddressSpace::Host };
        self.follows = stream.is_some();
        self.is_ahead = is_ahead && self.follows_one_stream();
        self.queues.follow(stream);
    }

    /// Whether all that is enqueued is on one stream, which the caller gave.
    fn follows_one_stream(&self) -> bool {
        self.follows && !self.queues.are_many()
    }

    /// Returns when all that is enqueued has ended, or where the caller goes on at once says what is known to have gone wrong.
    fn end(&mut self) -> Result<(), RunError> {
        if self.is_ahead { self.queues.check() } else { self.queues.wait() }
    }

    /// Forgets what the call before has begun.
    pub(super) fn begin(&mut self) {
        self.begun = Begun::default();
        self.kept.clear();
        self.watch.iter_mut().for_each(|watch| watch.clear());
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
        if view.space != AddressSpace::Host {
            return self.set_input_of_device(at, view, lent);
        }
        let plan = self.plan.as_ref().expect("invariant: inputs are set after the plan");
        let param = &plan.params[at];
        let shape = &param.shape;
        let is_as_expected =
            param.room <= shape.bytes && has_layout(view.sizes, view.strides, &shape.strides);
        let is_usable = view.len > 0 && is_as_expected && self.pages == GuardPages::Off;
        let may_store = !param.is_stored || lent.is_some_and(|lent| lent.is_apart);
        let is_of_host = self.queues.space(param.device) == AddressSpace::Host;
        match is_of_host {
            true if is_usable && may_store => {
                self.bases[at] = view.data.cast_mut();
                return Ok(());
            }
            false if is_usable => {
                let (data, bytes, device) = (view.data, shape.bytes, param.device);
                return self.upload(at, device, data, bytes);
            }
            // The steps make the new contents where they are to be returned.
            true if lent.is_none() && param.room <= shape.bytes && self.pages == GuardPages::Off => {
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
            true | false => {}
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
        let device = param.device;
        match is_of_host {
            true => self.bases[at] = data,
            false => self.upload(at, device, data, bytes)?,
        }
        Ok(())
    }

    /// Binds an input that is in the memory of its device, or a copy of it where steps would store to what the caller keeps, or where kernels
    /// do not take it as it begins.
    fn set_input_of_device(
        &mut self,
        at: usize,
        view: &TensorView<'_>,
        lent: Option<Lent>,
    ) -> Result<(), RunError> {
        let plan = self.plan.as_ref().expect("invariant: inputs are set after the plan");
        let (param, device) = (&plan.params[at], plan.params[at].device);
        let shape = &param.shape;
        if self.queues.space(device) == AddressSpace::Host {
            return Err(RunError::bug(
                format!("input {at}"),
                "it is in the memory of a device that does not run the program",
            ));
        }
        if !has_layout(view.sizes, view.strides, &shape.strides) {
            let message =
                format!("expected strides {:?}, found {:?}: copy it first", shape.strides, view.strides);
            return Err(RunError::bug(format!("input {at}"), message));
        }
        let is_aligned = view.data.addr().is_multiple_of(DEVICE_ALIGNMENT);
        let may_store = !param.is_stored || lent.is_some_and(|lent| lent.is_apart);
        if param.room <= shape.bytes && is_aligned && may_store {
            self.bases[at] = view.data.cast_mut();
            return Ok(());
        }
        let (room, bytes) = (param.room.max(shape.bytes), shape.bytes);
        self.inputs[at].grow(&*self.queues.devices[device], room)?;
        self.bases[at] = self.inputs[at].as_ptr();
        let (from, to) = ((On::Device(device), view.data), (On::Device(device), self.bases[at]));
        // SAFETY: the caller's input is as large as this, and so is our memory for it.
        unsafe { self.queues.copy(device, from, to, bytes) };
        Ok(())
    }

    /// Copies an input to the memory of a device.
    fn upload(&mut self, at: usize, device: usize, data: *const u8, bytes: usize) -> Result<(), RunError> {
        self.inputs[at].grow(&*self.queues.devices[device], bytes)?;
        self.bases[at] = self.inputs[at].as_ptr();
        let (from, to) = ((On::Host, data), (On::Device(device), self.bases[at]));
        // SAFETY: the caller's input, or our copy of it, is as large as this and is there until the call ends.
        unsafe { self.queues.copy(device, from, to, bytes) };
        Ok(())
    }

    /// Runs the commands of the plan that have not run in this call, as long as there is time. All have ended when it returns
    /// without an error. Where they end with a size, that has become the last of `values`, and the result is false: a plan for
    /// these values goes on.
    pub(super) fn run(&mut self, function: &Function, running: Running<'_>) -> Result<bool, RunError> {
        let Running { deadline, .. } = running;
        let plan = Arc::clone(self.plan.as_ref().expect("invariant: a call has a plan"));
        if self.begun.commands == 0 {
            self.queues.begin()?;
        }
        self.iterations = self.iterations.saturating_add(plan.iterations);
        function.prepared.limits.check(Limit::Iterations, self.iterations)?;
        let mut next = self.begun.commands;
        while next < plan.commands.len() {
            let at = next;
            next += 1;
            deadline.map_or(Ok(()), Deadline::check)?;
            if plan.changes_state == Some(at) {
                // Whatever fails before this leaves the state as it was.
                self.queues.wait()?;
                self.has_changed_state = true;
            }
            let flow = match plan.watched.get(at).and_then(Option::as_ref) {
                Some(watched) => self.watched(function, &plan, at, watched, running)?,
                None => self.command(function, &plan, at, running)?,
            };
            match flow {
                Flow::Next => {}
                Flow::To(command) => next = command,
                Flow::IsLate => return Ok(false),
            }
        }
        self.end()?;
        deadline.map_or(Ok(()), Deadline::check)?;
        Ok(true)
    }

    /// Runs one command of the plan.
    fn command(
        &mut self,
        function: &Function,
        plan: &Arc<Plan>,
        at: usize,
        running: Running<'_>,
    ) -> Result<Flow, RunError> {
        let Running { hosted, release, .. } = running;
        match &plan.commands[at] {
            Command::Launch(launch) => self.launch(plan, launch)?,
            Command::Extern { routine, reads, writes, ints, message } => {
                let operands = self.operands(reads.iter().chain(writes))?;
                let (read_at, write_at) = operands.split_at(reads.len());
                let reads: SmallVec<[Read<'_>; 4]> =
                    reads.iter().zip(read_at).map(|(buffer, &at)| read(buffer, at)).collect();
                let mut written: SmallVec<[Write<'_>; 4]> =
                    writes.iter().zip(write_at).map(|(buffer, &at)| write(buffer, at)).collect();
                routine(&reads, &mut written, &plan.ints[ints.clone()])
                    .map_err(|error| error.with_message(message))?;
                self.return_operands(writes.iter().zip(write_at.iter().copied()))?;
            }
            Command::Call { call, ints, buffers, operands, writes } => {
                // Where the host can go on with what the only device has, on the caller's stream.
                let there = self.queues.devices[0].name();
                let is_there = buffers.is_empty()
                    || there != graph::Device::Cpu
                        && self.follows_one_stream()
                        && hosted.takes_device_memory(call);
                let device = if is_there { there } else { graph::Device::Cpu };
                let addresses = match is_there {
                    true => buffers.iter().map(|buffer| self.address(buffer.place)).collect(),
                    false => self.operands(buffers.iter())?,
                };
                let operand = |HostOperand { buffer, skip, shape, is_shared }: &HostOperand| Operand {
                    data: addresses[*buffer].wrapping_add(*skip),
                    bytes: shape.bytes,
                    dtype: shape.dtype,
                    sizes: shape.sizes.clone(),
                    strides: shape.strides.clone(),
                    is_shared: *is_shared,
                    device,
                };
                let given: Vec<Operand> = operands.iter().map(operand).collect();
                // SAFETY: the planner found the memory as large as sizes and strides reach. All that was enqueued is done, or what the
                // host does comes behind it on the same stream, and the verifier of programs wants what is written apart from the others,
                // unless it is shared, in slots that lie apart from all others in use.
                unsafe { hosted.call(call, &plan.ints[ints.clone()], &given, &mut self.kept)? };
                if !is_there {
                    self.return_operands(writes.iter().map(|&at| (&buffers[at], addresses[at])))?;
                }
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
                return Ok(Flow::IsLate);
            }
            Command::Copy { from, to, bytes, queue } => {
                self.copy(*queue, *from, (On::Device(to.device), self.address(*to)), *bytes);
            }
            Command::Record { event, queue } => self.queues.record(*event, *queue)?,
            Command::Wait { event, queue } => self.queues.wait_for(*event, *queue)?,
            Command::Settle => self.queues.wait()?,
            Command::Enter { device } => self.queues.enter(*device),
            Command::Leave => self.queues.leave(),
            Command::Capture { end, number, queue, args } => {
                let capture =
                    Capture { number: *number, commands: at + 1..*end, queue: *queue, args: args.clone() };
                if self.capture(plan, &capture)? {
                    return Ok(Flow::To(*end));
                }
            }
            Command::Release { constant } => {
                self.queues.wait()?;
                release(*constant);
            }
        }
        Ok(Flow::Next)
    }

    /// Enqueues a launch. The host reads the numbers that it is given before: those that steps make, when these are done.
    fn launch(&mut self, plan: &Plan, launch: &LaunchPlan) -> Result<(), RunError> {
        let LaunchPlan { kernel, number, args, sizes, points, scratch_bytes, queue, numbers, takes_made } =
            launch;
        self.args.clear();
        for place in &plan.places[args.clone()] {
            let address = self.address(*place);
            self.args.push(address);
        }
        let is_out_of_reach = |(_, number): &(usize, plan::Buffer)| {
            self.queues.space(number.place.device) != AddressSpace::Host
        };
        if numbers.iter().any(is_out_of_reach) {
            let found = self.operands(numbers.iter().map(|(_, number)| number))?;
            numbers.iter().zip(found).for_each(|((at, _), number)| self.args[*at] = number);
        } else if *takes_made {
            self.queues.wait()?;
        }
        let (scratch, scratch_stride) = self.scratch[*queue].pieces(*scratch_bytes);
        let launch = Launch {
            kernel: *kernel,
            number: *number,
            args: &self.args,
            sizes: &plan.ints[sizes.clone()],
            points: *points,
            scratch,
            scratch_bytes: *scratch_bytes,
            scratch_stride,
        };
        // SAFETY: the planner found every memory as large as the kernel's extent; intermediate memory is this call's alone, constants
        // are written only under the lock on state, and inputs where they are lent and no other has their memory. Programs are verified to
        // order what their queues do. Whoever calls waits before any of it goes away, whatever comes of the call.
        unsafe { self.queues.stream(*queue).launch(&launch) };
        Ok(())
    }

    /// Waits for all that is enqueued.
    pub(super) fn wait(&mut self) -> Result<(), RunError> {
        self.queues.wait()
    }

    /// The context in which a function is called.
    pub(super) fn child(&mut self, at: usize, prepared: &Prepared) -> Result<Box<Context>, RunError> {
        if self.children.len() <= at {
            self.children.resize_with(at + 1, || None);
        }
        match self.children[at].take() {
            Some(child) => Ok(child),
            None => {
                let mut child = Box::new(Context::new(&self.queues.devices, (0, 0), prepared)?);
                child.outside = AddressSpace::Device;
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
        let _ = self.queues.wait();
        self.queues.leave_all();
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

    /// Copies on the first queue of the device that has it.
    fn bring(&mut self, from: Address, to: (On, *mut u8), bytes: usize) {
        self.copy(from.device, from, to, bytes);
    }

    fn copy(&mut self, queue: usize, from: Address, to: (On, *mut u8), bytes: usize) {
        let from = (On::Device(from.device), self.address(from).cast_const());
        // SAFETY: the planner found both as large as this.
        unsafe { self.queues.copy(queue, from, to, bytes) };
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
