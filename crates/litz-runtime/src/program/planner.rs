//! Plans a call for given sizes: places every slot, and evaluates every formula.

use std::sync::Arc;

use litz_ir::scalar::Scalar;

use super::lives::WatchedStep;
use super::plan::{
    Address, Base, Begin, Buffer, CallPlan, Command, HostOperand, LaunchPlan, OutputPlan, ParamPlan, Plan,
    Shape, Span, Target, UpdatePlan, WatchedCommand, WatchedUse,
};
use super::prepared::{Layout, Origin, Output, Prepared, PreparedStep};
use crate::arena::{ALIGNMENT, GuardPages, OutOfMemory};
use crate::error::RunError;
use crate::formula::Formula;
use crate::limits::Limit;
use crate::tensor::span_bytes;

/// Plans the load steps.
pub(super) fn plan_load(prepared: &Prepared) -> Result<Plan, RunError> {
    let mut planner = Planner::new(prepared, &[], true)?;
    planner.steps(&prepared.load)?;
    planner.finish()
}

/// Plans a call; `kept` is what `load` keeps.
pub(super) fn plan_call(
    prepared: &Prepared,
    values: &[i64],
    kept: &[(usize, usize)],
) -> Result<Plan, RunError> {
    let mut planner = Planner::new(prepared, values, false)?;
    planner.load_views(kept)?;
    for (layout, &is_donated) in prepared.params.iter().zip(&prepared.donated) {
        let (shape, (_, room)) = (planner.shape(layout)?, planner.place(layout.slot)?);
        let (is_stored, device) = (prepared.slots[layout.slot].is_stored, prepared.slots[layout.slot].device);
        planner.plan.params.push(ParamPlan { shape, room, is_stored, is_donated, device });
    }
    planner.choose_direct_outputs()?;
    if planner.steps(&prepared.steps)? {
        planner.outputs()?;
        planner.updates()?;
    }
    planner.finish()
}

struct Planner<'a> {
    prepared: &'a Prepared,
    /// Values of sizes: those that are known at the current step.
    values: &'a [i64],
    /// Those, and then those of later steps.
    all: &'a [i64],
    plan: Plan,
    /// Where each slot lies while it has memory, and how many bytes may be used there.
    places: Vec<Option<(Address, usize)>>,
    /// The output that a slot is computed in.
    direct: Vec<Option<usize>>,
    /// Memory in use of the latest arena of each device, as (offset, bytes), sorted.
    live: Vec<Vec<(usize, usize)>>,
    is_load: bool,
}

impl<'a> Planner<'a> {
    fn new(prepared: &'a Prepared, values: &'a [i64], is_load: bool) -> Result<Planner<'a>, RunError> {
        let plan = Plan {
            values: values.to_vec(),
            arenas: vec![0; prepared.concurrency.len()],
            left: Vec::new(),
            own: Vec::new(),
            iterations: 0,
            scratch_bytes: vec![0; prepared.queues.len()],
            params: Vec::new(),
            commands: Vec::new(),
            watched: Vec::new(),
            places: Vec::new(),
            ints: Vec::new(),
            direct: Vec::new(),
            outputs: Vec::new(),
            updates: Vec::new(),
            changes_state: None,
            kept: Vec::new(),
        };
        let count = prepared.slots.len();
        let (places, direct) = (vec![None; count], vec![None; count]);
        let known = prepared.known.min(values.len());
        let (all, values) = (values, &values[..known]);
        let live = vec![Vec::new(); prepared.concurrency.len()];
        let mut planner = Planner { prepared, values, all, plan, places, direct, live, is_load };
        for (at, slot) in prepared.slots.iter().enumerate() {
            let base = match slot.origin {
                Origin::Const(constant) => Base::Const(constant),
                Origin::Param(param) if !is_load => Base::Param(param),
                Origin::Param(_) | Origin::Alloc | Origin::View { .. } | Origin::None => continue,
            };
            planner.places[at] = Some((planner.start(at, base), planner.slot_bytes(at)?));
        }
        Ok(planner)
    }

    /// Gives the slots that load steps placed their places.
    fn load_views(&mut self, kept: &[(usize, usize)]) -> Result<(), RunError> {
        for (at, &(slot, bytes)) in kept.iter().enumerate() {
            self.places[slot] = Some((self.start(slot, Base::Kept(at)), bytes));
        }
        for step in &self.prepared.load {
            match step {
                PreparedStep::View(slot) => {
                    if let Origin::View { base, .. } = self.prepared.slots[*slot].origin
                        && self.places[base].is_some()
                        && self.places[*slot].is_none()
                    {
                        self.view(*slot)?;
                    }
                }
                PreparedStep::Check(_)
                | PreparedStep::Alloc(_)
                | PreparedStep::Launch { .. }
                | PreparedStep::Copy { .. }
                | PreparedStep::Record { .. }
                | PreparedStep::Wait { .. }
                | PreparedStep::Extern { .. }
                | PreparedStep::Control { .. }
                | PreparedStep::Size { .. }
                | PreparedStep::Call { .. }
                | PreparedStep::Free(_) => {}
            }
        }
        Ok(())
    }

    /// Plans steps up to the end, or up to the first size whose value is missing: whether it came to the end.
    fn steps(&mut self, steps: &'a [PreparedStep]) -> Result<bool, RunError> {
        // Constants that are released behind load steps are no steps of the program.
        let is_release = |step: &PreparedStep| {
            matches!(step, PreparedStep::Free(slot)
                if matches!(self.prepared.slots[*slot].origin, Origin::Const(_)))
        };
        let releases: Vec<bool> = steps.iter().map(is_release).collect();
        let mut watched = 0;
        for (at, step) in steps.iter().enumerate() {
            self.begin_at(at);
            let next = self.plan.commands.len();
            let of_program = (!releases[at]).then_some(watched);
            watched += usize::from(!releases[at]);
            match step {
                PreparedStep::Check(guard) => guard.check(self.values)?,
                PreparedStep::Alloc(slot) => {
                    let is_freed = steps[at..]
                        .iter()
                        .any(|step| matches!(step, PreparedStep::Free(freed) if freed == slot));
                    self.alloc(*slot, is_freed)?;
                }
                PreparedStep::View(slot) => self.view(*slot)?,
                PreparedStep::Launch { kernel, number, args, sizes, queue, takes_made } => {
                    self.launch((*kernel, *number), args, sizes, (*queue, *takes_made))?;
                    self.settle_at_load();
                }
                PreparedStep::Copy { from, to, queue } => {
                    let ((from, bytes), (to, room)) = (self.place(*from)?, self.place(*to)?);
                    if bytes != room {
                        return Err(self.bug(format!("a copy of {bytes} bytes to {room}")));
                    }
                    self.notes_store(to);
                    self.plan.commands.push(Command::Copy { from, to, bytes, queue: *queue });
                    self.settle_at_load();
                }
                PreparedStep::Record { event, queue } => {
                    self.plan.commands.push(Command::Record { event: *event, queue: *queue });
                }
                PreparedStep::Wait { event, queue } => {
                    self.plan.commands.push(Command::Wait { event: *event, queue: *queue });
                }
                PreparedStep::Extern { routine, reads, writes, ints, message } => {
                    let ints = self.ints(ints)?;
                    let (reads, writes) = (self.buffers(reads)?, self.buffers(writes)?);
                    let (routine, message) = (*routine, Arc::clone(message));
                    writes.iter().for_each(|buffer| self.notes_store(buffer.place));
                    self.plan.commands.push(Command::Extern { routine, reads, writes, ints, message });
                }
                PreparedStep::Call { call, ints, operands, writes, sharing } => {
                    let ints = self.ints(ints)?;
                    let (mut buffers, mut given) =
                        (self.buffers(sharing)?, Vec::with_capacity(operands.len()));
                    for (at, (layout, offset)) in operands.iter().enumerate() {
                        let (buffer, shape) = self.operand(layout, offset)?;
                        // Results have memory of their own.
                        let is_argument = call.results.iter().all(|result| result.written() != Some(&at));
                        let shared = sharing.iter().position(|slot| is_argument && *slot == layout.slot);
                        let skip =
                            shared.map_or(0, |whole| buffer.place.offset - buffers[whole].place.offset);
                        let buffer = shared.unwrap_or_else(|| {
                            buffers.push(buffer);
                            buffers.len() - 1
                        });
                        given.push(HostOperand { buffer, skip, shape, is_shared: shared.is_some() });
                    }
                    let mut writes: Vec<usize> = writes.iter().map(|&at| given[at].buffer).collect();
                    writes.sort_unstable();
                    writes.dedup();
                    writes.iter().for_each(|&at| self.notes_store(buffers[at].place));
                    let (call, operands) = (Arc::clone(call), given);
                    self.plan.commands.push(Command::Call { call, ints, buffers, operands, writes });
                }
                PreparedStep::Free(slot) => {
                    let place = self.places[*slot].take().map(|(address, _)| address);
                    let device = self.prepared.slots[*slot].device;
                    let latest = Base::Arena(self.arena(device));
                    // What comes behind may come before in another queue.
                    let is_in_order = self.prepared.queues.len() == 1;
                    if let Some(Address { base: Base::Const(constant), .. }) = place {
                        self.plan.commands.push(Command::Release { constant });
                    } else if let Some(Address { offset, .. }) = place.filter(|place| place.base == latest)
                        && is_in_order
                    {
                        self.live[device].retain(|&(start, _)| start != offset);
                    }
                }
                PreparedStep::Control { control, calls, reads, writes } => {
                    let mut planned = Vec::with_capacity(calls.len());
                    for (function, sizes) in calls {
                        planned.push(CallPlan { function: *function, sizes: self.ints(sizes)? });
                    }
                    let (reads, writes) = (self.buffers(reads)?, self.buffers(writes)?);
                    writes.iter().for_each(|buffer| self.notes_store(buffer.place));
                    let control = control.clone();
                    self.plan.commands.push(Command::Control { control, calls: planned, reads, writes });
                }
                PreparedStep::Size { slot, who } => {
                    let late = self.values.len() - self.prepared.known;
                    let from = self.element(*slot)?;
                    self.plan.commands.push(Command::Size { from, late, who: Arc::clone(who) });
                    self.watch(of_program, next)?;
                    if self.values.len() == self.all.len() {
                        return Ok(false);
                    }
                    self.learn()?;
                }
            }
            self.watch(of_program, next)?;
            self.end_at(at + 1);
        }
        Ok(true)
    }

    /// Says what the command of a step does with buffers, if memory is watched and the step has one.
    fn watch(&mut self, step: Option<usize>, command: usize) -> Result<(), RunError> {
        let (Some(step), Some(watched)) = (step, &self.prepared.watched) else { return Ok(()) };
        if command == self.plan.commands.len() {
            return Ok(());
        }
        let steps = if self.is_load { &watched.load } else { &watched.steps };
        let WatchedStep { label, has_infinity, uses, begins, ends } = &steps[step];
        let element = |slot: usize| self.prepared.slots[slot].dtype.size();
        let uses = uses.iter().map(|&(slot, buffer, access)| {
            let (place, bytes) = self.place(slot)?;
            Ok(WatchedUse { slot, buffer, place, bytes, element: element(slot), access })
        });
        let begins = begins.iter().map(|&(buffer, is_given)| {
            let ((place, bytes), name) = (self.place(buffer)?, Arc::from(&*self.prepared.slots[buffer].name));
            Ok(Begin { buffer, name, place, bytes, element: element(buffer), is_given })
        });
        let (uses, begins) =
            (uses.collect::<Result<_, RunError>>()?, begins.collect::<Result<_, RunError>>()?);
        let (label, has_infinity, ends) = (label.clone(), *has_infinity, ends.clone());
        let watched = WatchedCommand { label, has_infinity, uses, begins, ends };
        self.plan.watched.resize_with(self.plan.commands.len(), || None);
        self.plan.watched[command] = Some(watched);
        Ok(())
    }

    /// Enters devices and begins what is captured from a step on.
    fn begin_at(&mut self, step: usize) {
        if self.is_load {
            return;
        }
        for (_, device) in self.prepared.entered.iter().filter(|(steps, _)| steps.start == step) {
            self.plan.commands.push(Command::Enter { device: *device });
        }
        let starts = self.prepared.captured.iter().enumerate().find(|(_, (steps, _))| steps.start == step);
        if let Some((number, &(_, queue))) = starts {
            let (end, args) = (self.plan.commands.len(), self.plan.places.len());
            self.plan.commands.push(Command::Capture { end, number, queue, args: args..args });
        }
    }

    /// Ends what was captured up to a step, and leaves devices.
    fn end_at(&mut self, step: usize) {
        if self.is_load {
            return;
        }
        if self.prepared.captured.iter().any(|(steps, _)| steps.end == step) {
            let (commands, places) = (self.plan.commands.len(), self.plan.places.len());
            let is_begun = |command: &&mut Command| matches!(command, Command::Capture { .. });
            if let Some(Command::Capture { end, args, .. }) =
                self.plan.commands.iter_mut().rev().find(is_begun)
            {
                (*end, args.end) = (commands, places);
            }
        }
        let left = self.prepared.entered.iter().filter(|(steps, _)| steps.end == step);
        self.plan.commands.extend(left.map(|_| Command::Leave));
    }

    /// Load steps run one after the other, on whatever queues.
    fn settle_at_load(&mut self) {
        if self.is_load && self.prepared.queues.len() > 1 {
            self.plan.commands.push(Command::Settle);
        }
    }

    /// Goes on with the value of one more size. What is placed from here on lies apart from what was placed before: its memory
    /// is made when that is in use.
    fn learn(&mut self) -> Result<(), RunError> {
        self.values = &self.all[..self.values.len() + 1];
        let first = self.plan.arenas.len() - self.live.len();
        let left = self.live.iter().enumerate().filter(|(_, live)| live.is_empty());
        self.plan.left.extend(left.map(|(device, _)| first + device));
        self.plan.arenas.resize(self.plan.arenas.len() + self.live.len(), 0);
        self.live.iter_mut().for_each(Vec::clear);
        self.choose_direct_outputs()
    }

    fn alloc(&mut self, slot: usize, is_freed: bool) -> Result<(), RunError> {
        let bytes = self.slot_bytes(slot)?;
        let place = if let Some(output) = self.direct[slot] {
            self.start(slot, Base::Output(output))
        } else if self.is_load && !is_freed {
            self.plan.kept.push((slot, bytes));
            self.start(slot, Base::Kept(self.plan.kept.len() - 1))
        } else if self.is_apart() {
            self.plan.own.push(bytes);
            self.start(slot, Base::Own(self.plan.own.len() - 1))
        } else {
            self.reserve(self.prepared.slots[slot].device, bytes)?
        };
        self.places[slot] = Some((place, bytes));
        Ok(())
    }

    /// Whether no two slots share memory: each then has a page that cannot be accessed next to it.
    fn is_apart(&self) -> bool {
        self.prepared.guard_pages != GuardPages::Off
    }

    /// Where a base begins that is a slot's.
    fn start(&self, slot: usize, base: Base) -> Address {
        Address { base, offset: 0, device: self.prepared.slots[slot].device }
    }

    /// The latest arena of a device.
    fn arena(&self, device: usize) -> usize {
        self.plan.arenas.len() - self.live.len() + device
    }

    /// Takes the first gap of a device's arena that is large enough.
    fn reserve(&mut self, device: usize, bytes: usize) -> Result<Address, RunError> {
        // Even without bytes it has an offset of its own, by which it is freed.
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT).ok_or(OutOfMemory::of(bytes))?;
        let (mut offset, mut at) = (0, 0);
        while let Some(&(start, length)) = self.live[device].get(at)
            && start - offset < bytes
        {
            (offset, at) = (start + length, at + 1);
        }
        let end = offset.checked_add(bytes).ok_or(OutOfMemory::of(bytes))?;
        self.live[device].insert(at, (offset, bytes));
        let at = self.arena(device);
        self.plan.arenas[at] = self.plan.arenas[at].max(end);
        Ok(Address { base: Base::Arena(at), offset, device })
    }

    fn view(&mut self, slot: usize) -> Result<(), RunError> {
        let Origin::View { base, offset } = &self.prepared.slots[slot].origin else { return Ok(()) };
        let (place, room) = self.place(*base)?;
        let (offset, bytes) = (self.size(offset)?, self.slot_bytes(slot)?);
        if offset.checked_add(bytes).is_none_or(|end| end > room) {
            let inner = self.prepared.slots[slot].name.to_string();
            return Err(self.no_room(inner, bytes, offset, *base, room));
        }
        // What lies in a pool has nothing to do with what else does. Views of constants show their contents.
        let is_pool = match place.base {
            Base::Arena(_) | Base::Own(_) | Base::Output(_) => true,
            Base::Kept(_) => self.is_load,
            Base::Param(param) => self.prepared.donated[param],
            Base::Const(_) => false,
        };
        if is_pool && self.is_apart() {
            return self.alloc(slot, false);
        }
        self.places[slot] = Some((Address { offset: place.offset + offset, ..place }, bytes));
        Ok(())
    }

    /// Notes that the next command stores there.
    fn notes_store(&mut self, place: Address) {
        if matches!(place.base, Base::Const(_)) {
            self.plan.changes_state.get_or_insert(self.plan.commands.len());
        }
    }

    fn launch(
        &mut self,
        (kernel, launch): (usize, usize),
        args: &[usize],
        sizes: &[Formula],
        (queue, takes_made): (usize, bool),
    ) -> Result<(), RunError> {
        let facts = &self.prepared.kernels[kernel];
        let sizes = self.ints(sizes)?;
        let values = &self.plan.ints[sizes.clone()];
        let place = || format!("launch of @{}", facts.name);
        facts
            .check(values)
            .map_err(|error| error.unwrap_or_else(|what| self.bug(format!("{}: {what}", place()))))?;
        let number =
            |formula: &Formula| formula.eval(values).map(|value| value.max(0).unsigned_abs() as usize);
        let (points, scratch_bytes) = (number(&facts.points), number(&facts.scratch));
        let needs = facts.params.iter().map(|(size, extent)| number(extent)?.checked_mul(*size));
        let needs: Vec<_> = needs.collect();
        let start = self.plan.places.len();
        let (mut stored, mut numbers) = (Vec::new(), Vec::new());
        let device = self.prepared.queues[queue];
        for (at, ((&arg, need), access)) in args.iter().zip(needs).zip(&facts.accesses).enumerate() {
            let (place, room) = self.place(arg)?;
            stored.extend(access.is_written().then_some(place));
            if need.is_none_or(|need| need > room) {
                let (kernel, slot) = (&facts.name, &self.prepared.slots[arg].name);
                let need = need.map_or("too many".to_string(), |need| need.to_string());
                return Err(
                    self.bug(format!("launch of @{kernel}: expected {need} bytes, {slot} has {room}"))
                );
            }
            self.plan.places.push(place);
            if place.device != device {
                numbers.push((at, self.element(arg)?));
            }
        }
        let overflow = || self.bug(format!("launch of @{}: its grid has no valid size", facts.name));
        let iterations = facts.iterations.eval(values).map_or(u64::MAX, |count| count.max(0).unsigned_abs());
        let points = points.and_then(|points| i64::try_from(points).ok()).ok_or_else(overflow)?;
        let scratch_bytes = scratch_bytes.ok_or_else(overflow)?;
        self.plan.iterations = self.plan.iterations.saturating_add(iterations);
        self.prepared.limits.check(Limit::Iterations, self.plan.iterations)?;
        self.plan.scratch_bytes[queue] = self.plan.scratch_bytes[queue].max(scratch_bytes);
        let unloaded = || self.bug(format!("kernel @{}: it is not loaded on the device", facts.name));
        let kernel = facts.ids[device].ok_or_else(unloaded)?;
        let args = start..self.plan.places.len();
        stored.into_iter().for_each(|place| self.notes_store(place));
        self.plan.commands.push(Command::Launch(LaunchPlan {
            kernel,
            number: launch,
            args,
            sizes,
            points,
            scratch_bytes,
            queue,
            numbers,
            takes_made,
        }));
        Ok(())
    }

    /// A slot that begins with a number.
    fn element(&self, slot: usize) -> Result<Buffer, RunError> {
        let ((place, bytes), dtype) = (self.place(slot)?, self.prepared.slots[slot].dtype);
        if bytes < dtype.size() {
            return Err(self.bug(format!("{} holds no number", self.prepared.slots[slot].name)));
        }
        Ok(Buffer { place, bytes, dtype })
    }

    fn buffers(&self, slots: &[usize]) -> Result<Vec<Buffer>, RunError> {
        let buffer = |&slot: &usize| {
            let (place, bytes) = self.place(slot)?;
            Ok(Buffer { place, bytes, dtype: self.prepared.slots[slot].dtype })
        };
        slots.iter().map(buffer).collect()
    }

    /// A tensor that the host is given, with its memory from the first element to the last.
    fn operand(&self, layout: &Layout, offset: &Formula) -> Result<(Buffer, Shape), RunError> {
        let shape = self.shape(layout)?;
        let (mut place, room) = self.place(layout.slot)?;
        let offset = self.size(offset)?.saturating_mul(shape.dtype.size());
        if shape.bytes > 0 && offset.checked_add(shape.bytes).is_none_or(|end| end > room) {
            let name = self.prepared.slots[layout.slot].name.clone();
            return Err(self.no_room(name, shape.bytes, offset, layout.slot, room));
        }
        place.offset = place.offset.saturating_add(offset);
        Ok((Buffer { place, bytes: shape.bytes, dtype: shape.dtype }, shape))
    }

    fn ints(&mut self, formulas: &[Formula]) -> Result<Span, RunError> {
        let start = self.plan.ints.len();
        for formula in formulas {
            let value = self.value(formula)?;
            self.plan.ints.push(value);
        }
        Ok(start..self.plan.ints.len())
    }

    /// Lets steps compute an output in its own memory where that memory holds the output and nothing else, of those whose
    /// sizes are known and that nothing has been computed in.
    fn choose_direct_outputs(&mut self) -> Result<(), RunError> {
        if self.is_apart() {
            return Ok(());
        }
        for (at, output) in self.prepared.outputs.iter().enumerate() {
            let Output::View { layout, offset } = output else { continue };
            let sizes = layout.sizes.iter().chain(&layout.strides).chain([offset]);
            let (mut slot, mut formulas) = (layout.slot, sizes.collect::<Vec<_>>());
            let mut offsets = vec![offset];
            while let Origin::View { base, offset } = &self.prepared.slots[slot].origin {
                offsets.push(offset);
                slot = *base;
            }
            formulas.extend(offsets.iter().copied().chain([&self.prepared.slots[slot].extent]));
            let is_chosen = self.plan.direct.iter().any(|(chosen, ..)| *chosen == at);
            if is_chosen || self.places[slot].is_some() || !formulas.into_iter().all(|f| self.is_known(f)) {
                continue;
            }
            let is_at_start = offsets.iter().all(|offset| self.value(offset).is_ok_and(|value| value == 0));
            let is_own = self
                .prepared
                .steps
                .iter()
                .any(|step| matches!(step, PreparedStep::Alloc(own) if *own == slot));
            let shape = self.shape(layout)?;
            if is_own
                && is_at_start
                && shape.bytes > 0
                && shape.bytes == self.slot_bytes(slot)?
                && self.direct[slot].is_none()
            {
                self.direct[slot] = Some(at);
                self.plan.direct.push((at, shape, self.prepared.slots[slot].device));
            }
        }
        Ok(())
    }

    /// Whether all sizes that a formula mentions have values.
    fn is_known(&self, formula: &Formula) -> bool {
        formula.reach() <= self.values.len()
    }

    fn outputs(&mut self) -> Result<(), RunError> {
        for (at, output) in self.prepared.outputs.iter().enumerate() {
            let plan = match output {
                Output::View { layout, offset } => {
                    let shape = self.shape(layout)?;
                    let (mut from, room) = self.place(layout.slot)?;
                    let offset = self.size(offset)?.saturating_mul(shape.dtype.size());
                    if shape.bytes > 0 && offset.checked_add(shape.bytes).is_none_or(|end| end > room) {
                        return Err(self.no_room(
                            format!("output {at}"),
                            shape.bytes,
                            offset,
                            layout.slot,
                            room,
                        ));
                    }
                    from.offset = from.offset.saturating_add(offset);
                    let is_direct = from.is_start_of(Base::Output(at));
                    match is_direct {
                        true => OutputPlan::Direct(shape, from.device),
                        false => OutputPlan::Copied { shape, from },
                    }
                }
                Output::Number(slot) => OutputPlan::Number(self.element(*slot)?),
                Output::Int(formula) => OutputPlan::Scalar(Some(Scalar::Int(self.value(formula)?))),
                Output::Literal(scalar) => OutputPlan::Scalar(Some(*scalar)),
                Output::Text(text) => OutputPlan::Text(Arc::clone(text)),
                Output::Nothing => OutputPlan::Scalar(None),
            };
            self.plan.outputs.push(plan);
        }
        Ok(())
    }

    /// All sources are read before any destination is written: a source that is itself updated is set aside.
    fn updates(&mut self) -> Result<(), RunError> {
        for &(dst, src) in &self.prepared.updates {
            let ((to, bytes), (mut from, room)) = (self.place(dst)?, self.place(src)?);
            if room < bytes {
                let (dst, src) = (&self.prepared.slots[dst].name, &self.prepared.slots[src].name);
                return Err(self.bug(format!("update of {dst}: expected {bytes} bytes, {src} has {room}")));
            }
            let is_updated =
                |&(other, _): &(usize, usize)| other != dst && self.base(other) == Some(from.base);
            if self.prepared.updates.iter().any(is_updated) {
                // Beyond all that steps used: outputs may still lie in memory that was freed.
                let at = self.arena(from.device);
                let aside =
                    Address { base: Base::Arena(at), offset: self.plan.arenas[at], device: from.device };
                let end = bytes
                    .checked_next_multiple_of(ALIGNMENT)
                    .and_then(|bytes| bytes.checked_add(aside.offset));
                self.plan.arenas[at] = end.ok_or(OutOfMemory::of(bytes))?;
                if self.prepared.queues.len() > 1 {
                    self.plan.commands.push(Command::Settle);
                }
                let queue = from.device;
                self.plan.commands.push(Command::Copy { from, to: aside, bytes, queue });
                from = aside;
            }
            let target = match to.base {
                Base::Param(param) => {
                    Target::Input { param, shape: self.shape(&self.prepared.params[param])? }
                }
                // Steps stored what is new where it belongs.
                Base::Const(_) if from == to => continue,
                Base::Const(_) => Target::Const { to, bytes },
                Base::Arena(_) | Base::Own(_) | Base::Kept(_) | Base::Output(_) => {
                    let name = &self.prepared.slots[dst].name;
                    return Err(self.bug(format!("update of {name}, which is no input or constant")));
                }
            };
            self.plan.updates.push(UpdatePlan { from, to: target });
        }
        Ok(())
    }

    fn finish(self) -> Result<Plan, RunError> {
        let Planner { prepared, plan, .. } = self;
        prepared.limits.check(Limit::CallBytes, plan.call_bytes(prepared))?;
        Ok(plan)
    }

    fn base(&self, slot: usize) -> Option<Base> {
        self.places[slot].map(|(place, _)| place.base)
    }

    fn shape(&self, layout: &Layout) -> Result<Shape, RunError> {
        let sizes = |formulas: &[Formula]| {
            formulas.iter().map(|formula| self.size(formula)).collect::<Result<Vec<_>, _>>()
        };
        let (sizes, strides) = (sizes(&layout.sizes)?, sizes(&layout.strides)?);
        let bytes = span_bytes(layout.dtype, &sizes, &strides).ok_or(OutOfMemory::of(usize::MAX))?;
        Ok(Shape { dtype: layout.dtype, sizes, strides, bytes })
    }

    fn place(&self, slot: usize) -> Result<(Address, usize), RunError> {
        self.places[slot].ok_or_else(|| {
            self.bug(format!("{} has no memory where it is used", self.prepared.slots[slot].name))
        })
    }

    /// The extent of a layout without elements may come out negative: it means none.
    fn slot_bytes(&self, slot: usize) -> Result<usize, RunError> {
        let slot = &self.prepared.slots[slot];
        let extent = self.value(&slot.extent)?.max(0).unsigned_abs() as usize;
        let bytes = extent.checked_mul(slot.dtype.size());
        Ok(bytes.ok_or(OutOfMemory::of(usize::MAX))?)
    }

    fn size(&self, formula: &Formula) -> Result<usize, RunError> {
        let value = self.value(formula)?;
        usize::try_from(value).map_err(|_| self.bug(format!("expected a size, found {value}")))
    }

    fn value(&self, formula: &Formula) -> Result<i64, RunError> {
        formula.eval(self.values).ok_or_else(|| self.bug("a size overflows or has no value".into()))
    }

    fn no_room(&self, inner: String, bytes: usize, offset: usize, outer: usize, room: usize) -> RunError {
        let outer = self.prepared.slots[outer].name.to_string();
        RunError::NoRoom { item: self.item(), inner, bytes, offset, outer, room }
    }

    fn bug(&self, what: String) -> RunError {
        RunError::bug(self.item(), what)
    }

    fn item(&self) -> String {
        format!("program @{}", self.prepared.name)
    }
}
