//! Reports what is wrong with a program.

mod contents;

use std::collections::HashSet;
use std::fmt::Display;

use litz_sym::{Expr, Rel, Sym};

use crate::call::{CallArg, CallResult};
use crate::diag::Diags;
use crate::dtype::Dtype;
use crate::graph::Device;
use crate::ids::Id;
use crate::kernel::{Kernel, MemorySpace};
use crate::loops::{FunctionCall, is_apart, span};
use crate::program::{
    KernelAccesses, Order, Output, Param, Program, ProgramStep, Queue, Slot, View, accesses_of,
};
use crate::verify::Report;

/// What is wrong with a program, kernels aside.
///
/// Slugs: `symbol-name`, `empty-range`, `duplicate-symbol`, `undeclared-symbol`, `duplicate-name`, `stride-rank`, `too-large`,
/// `negative-size`, `slot-type`, `unknown-slot`, `use-before-alloc`, `use-after-free`, `double-alloc`, `free-of-param`,
/// `view-of-param`,
/// `view-overflow`, `shared-memory`, `written-argument`, `type-mismatch`, `update-target`, `duplicate-update`, `device`,
/// `undefined-size`, `redefined-size`, `unknown-function`, `function-type`, `queue`, `event`, `use-before-write`.
pub fn verify(program: &Program) -> Diags {
    verify_as(program, None)
}

/// What is wrong with a program that launches these kernels.
///
/// Slugs: those of [`verify()`], `unknown-kernel`, `launch-args`, `launch-sizes`, `unordered`.
pub fn verify_with(program: &Program, kernels: &[Kernel]) -> Diags {
    verify_as(program, Some(kernels))
}

fn verify_as(program: &Program, kernels: Option<&[Kernel]>) -> Diags {
    let memory = vec![Memory::None; program.slots.len()];
    let held = vec![None; program.slots.len()];
    let mut verifier = Verifier {
        report: Report::new(&program.facts),
        program,
        memory,
        held,
        ranges: Vec::new(),
        now: 0,
        events: HashSet::new(),
    };
    verifier.run();
    let mut report = verifier.report;
    let accesses = kernels.map(accesses_of).unwrap_or_default();
    let before = report.diags.len();
    if let Some(kernels) = kernels {
        launches(&mut report, program, kernels);
        order(&mut report, program, &accesses);
    }
    // What a launch that does not fit would write is not known. Where kernels are not, launches read nothing.
    if report.diags.len() == before {
        contents::read_before_written(&mut report, program, &accesses);
    }
    let mut diags = report.diags;
    diags.extend(program.functions.iter().flat_map(|function| verify_as(function, kernels)));
    diags
}

/// Launches are of kernels that there are, and fit them.
fn launches(report: &mut Report, program: &Program, kernels: &[Kernel]) {
    for step in program.load.iter().chain(&program.steps) {
        let ProgramStep::Launch { kernel, args, sizes, .. } = step else { continue };
        let place = format!("launch of @{kernel}");
        let Some(kernel) = kernels.iter().find(|candidate| candidate.name == *kernel) else {
            report.fail("unknown-kernel", format_args!("{place}: there is no such kernel"));
            continue;
        };
        let message = format_args!("{place}: expected {} arguments, found {}", kernel.params, args.len());
        report.check(kernel.params == args.len(), "launch-args", message);
        let message = format_args!("{place}: expected {} sizes, found {}", kernel.sizes.len(), sizes.len());
        report.check(kernel.sizes.len() == sizes.len(), "launch-sizes", message);
        let device = program.launched_on(args);
        for (param, &arg) in kernel.mems.values().take(kernel.params).zip(args) {
            let found = program.slots.get(arg).map(|slot| slot.dtype);
            report.same_type(Some(param.dtype), found, format_args!("{place}, `{}`", param.name));
            let is_elsewhere = program.slots.get(arg).is_some_and(|slot| slot.device != device);
            let message = format_args!("{place}, `{}`: it is on another device, and no number", param.name);
            report.check(!is_elsewhere || param.space == MemorySpace::Number, "device", message);
        }
    }
}

/// What queues do with one memory is in an order that events, or the host, give it.
fn order(report: &mut Report, program: &Program, kernels: &KernelAccesses<'_>) {
    let mut order = Order::new(program, kernels);
    if order.queues().len() < 2 {
        return;
    }
    for step in &program.steps {
        let Ok(missing) = order.missing(step) else { continue };
        for point in missing {
            let (place, earlier) = (program.place(step), program.place(&program.steps[point.step]));
            let message = format_args!("{place}: nothing makes it wait for the {earlier}");
            report.fail("unordered", message);
        }
    }
}

/// What memory a slot has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// None so far.
    None,
    /// The caller's or the model's.
    Given,
    /// Its own.
    Own,
    /// A part of that slot's.
    Within(Slot),
    /// None any more.
    Freed,
}

/// The part of a memory that one slot has.
struct SlotRange {
    slot: Slot,
    /// The slot whose memory it is, and the bytes there.
    root: Slot,
    from: Expr,
    to: Expr,
    /// When steps first and last use it.
    uses: Option<(usize, usize)>,
}

/// After all steps of all calls.
const END: usize = usize::MAX;

struct Verifier<'a> {
    report: Report,
    program: &'a Program,
    memory: Vec<Memory>,
    /// The range of each slot that has memory.
    held: Vec<Option<usize>>,
    ranges: Vec<SlotRange>,
    /// Number of the step, load steps first.
    now: usize,
    /// Events that are recorded.
    events: HashSet<u32>,
}

impl Verifier<'_> {
    fn run(&mut self) {
        let program = self.program;
        for guard in program.facts.guards() {
            self.report.clause(&guard.clause, "guard");
        }
        self.report.unique(program.slots.values().map(|slot| &*slot.name), "slots");
        for slot in program.slots.values() {
            self.report.extent(slot.extent, format_args!("slot `{}`", slot.name));
        }
        for item in &program.consts {
            self.given(item.slot, &item.ty);
        }
        program.load.iter().for_each(|step| self.step(step));
        let loaded = self.ranges.len();
        for param in &program.params {
            self.given(param.slot, &param.ty);
        }
        self.late_sizes();
        program.steps.iter().for_each(|step| self.step(step));
        self.now = END;
        // What calls use of what was there before them, the next call uses again.
        for (_, last) in self.ranges[..loaded].iter_mut().filter_map(|range| range.uses.as_mut()) {
            *last = if *last > program.load.len() { END } else { *last };
        }
        for &(target, source) in &program.updates {
            self.update(target, source);
        }
        self.report.unique_targets(&program.updates, |slot| name(program, slot));
        for output in &program.outputs {
            self.output(output);
        }
        self.shared_memory();
    }

    /// Symbols that steps give values: each has one, which comes before all steps that use it. Load steps use none of them.
    fn late_sizes(&mut self) {
        let program = self.program;
        let defined =
            |step: &ProgramStep| if let ProgramStep::Size { sym, .. } = step { Some(*sym) } else { None };
        let mut late: Vec<Sym> = Vec::new();
        for sym in program.load.iter().chain(&program.steps).filter_map(defined) {
            if !late.contains(&sym) {
                late.push(sym);
            }
        }
        for step in program.load.iter().chain(&program.steps) {
            let used = program.exprs(step);
            for sym in late.iter().filter(|&&sym| used.iter().any(|e| e.has_sym(sym))) {
                let message = format!("{}: uses {sym}, which has no value yet", program.place(step));
                self.report.fail("undefined-size", message);
            }
            if let Some(sym) = defined(step) {
                let before = late.len();
                late.retain(|&other| other != sym);
                let of_param = |param: &Param| param.ty.sizes.iter().any(|size| size.has_sym(sym));
                let is_first = late.len() + 1 == before && !program.params.iter().any(of_param);
                let message = format_args!("size {sym}: another step, or a parameter, gives it a value");
                self.report.check(is_first, "redefined-size", message);
            }
        }
    }

    /// Slots that hold something at the same time lie apart.
    fn shared_memory(&mut self) {
        let facts = &self.program.facts;
        let mut used: Vec<(&SlotRange, (usize, usize))> =
            self.ranges.iter().filter_map(|range| Some((range, range.uses?))).collect();
        used.sort_by_key(|(range, (first, _))| (range.root.index(), *first));
        let mut problems = Vec::new();
        for (at, (one, (_, last))) in used.iter().enumerate() {
            let meets =
                |(other, (first, _)): &&(&SlotRange, (usize, usize))| other.root == one.root && first <= last;
            for (other, _) in used[at + 1..].iter().take_while(meets) {
                let is_le = |a, b| facts.proves(&Rel::le(a, b));
                if !is_le(one.to, other.from) && !is_le(other.to, one.from) {
                    problems.push((one.slot, other.slot, one.root));
                }
            }
        }
        for (one, other, root) in problems {
            let [one, other, root] = [one, other, root].map(|slot| name(self.program, slot));
            let message =
                format!("`{one}` and `{other}` may share bytes of `{root}` while both hold something");
            self.report.fail("shared-memory", message);
        }
    }

    /// Notes which part of which memory a slot has from here on.
    fn hold(&mut self, slot: Slot, base: Option<(Slot, Expr)>) {
        let Some(data) = self.program.slots.get(slot) else { return };
        let base = base.and_then(|(base, offset)| Some((self.held.get(base.index()).copied()??, offset)));
        let (root, from) = base.map_or((slot, Expr::zero()), |(base, offset)| {
            (self.ranges[base].root, self.ranges[base].from + offset)
        });
        let to = from + data.extent * data.dtype.size() as i64;
        self.held[slot.index()] = Some(self.ranges.len());
        self.ranges.push(SlotRange { slot, root, from, to, uses: None });
    }

    /// A slot whose contents come from outside.
    fn given(&mut self, slot: Slot, ty: &crate::graph::TensorType) {
        let name = name(self.program, slot);
        self.report.shape(&ty.sizes, &ty.strides, format_args!("`{name}`"));
        let Some(data) = self.program.slots.get(slot) else {
            return self.report.fail("unknown-slot", format_args!("`{name}` is no slot of the program"));
        };
        let fits =
            (data.dtype, data.extent, data.device) == (ty.dtype, span(&ty.sizes, &ty.strides), ty.device);
        let message =
            format_args!("`{name}`: {}[{}] on {} does not span {ty}", data.dtype, data.extent, data.device);
        self.report.check(fits, "slot-type", message);
        self.memory[slot.index()] = Memory::Given;
        self.hold(slot, None);
    }

    fn step(&mut self, step: &ProgramStep) {
        self.now += 1;
        match step {
            ProgramStep::Check { clause, who } => {
                self.report.clause(clause, format_args!("check for {who:?}"))
            }
            ProgramStep::Alloc { slot } => {
                self.place(*slot, Memory::Own);
                self.hold(*slot, None);
            }
            ProgramStep::View { slot, base, offset } => {
                self.has_memory(*base, "view");
                let of_base = self.program.params.iter().find(|param| param.slot == *base);
                let message = format_args!(
                    "view `{}`: `{}` is the caller's, and not donated",
                    name(self.program, *slot),
                    name(self.program, *base)
                );
                self.report.check(of_base.is_none_or(|param| param.is_donated), "view-of-param", message);
                self.report.expr(*offset, format_args!("view `{}`", name(self.program, *slot)));
                self.place(*slot, Memory::Within(*base));
                self.hold(*slot, Some((*base, *offset)));
                self.one_device([slot, base], format_args!("view `{}`", name(self.program, *slot)));
                self.check_view(step);
            }
            ProgramStep::Launch { kernel, args, sizes, .. } => {
                let place = format!("launch of @{kernel}");
                args.iter().for_each(|&slot| self.use_slot(slot, &place));
                sizes.iter().for_each(|&size| self.report.expr(size, &place));
                let device = self.program.launched_on(args);
                self.one_device(args.iter().filter(|&&arg| !self.program.is_number(arg, device)), place);
            }
            ProgramStep::Copy { from, to, queue } => {
                let place = self.program.place(step);
                [from, to].into_iter().for_each(|&slot| self.use_slot(slot, &place));
                self.copy([*from, *to], *queue, &place);
            }
            ProgramStep::Record { event, .. } => {
                let is_first = self.events.insert(*event);
                self.report.check(is_first, "event", format_args!("event {event} is recorded twice"));
            }
            ProgramStep::Wait { event, .. } => {
                let message = format_args!("event {event}: nothing has recorded it");
                self.report.check(self.events.contains(event), "event", message);
            }
            ProgramStep::Extern { routine, reads, writes, ints, message: _ } => {
                reads.iter().chain(writes).for_each(|&slot| self.use_slot(slot, routine));
                ints.iter().for_each(|&value| self.report.expr(value, routine));
                self.one_device(reads.iter().chain(writes), routine);
            }
            ProgramStep::Control { control, reads, writes } => {
                let place = self.program.place(step);
                reads.iter().chain(writes).for_each(|&slot| self.use_slot(slot, &place));
                self.one_device(reads.iter().chain(writes), &place);
                for (call, args, writes) in control.operands(reads, writes) {
                    self.function_call(call, args, writes, &place);
                }
                let message = format_args!("{place}: expected as many arguments as the functions have");
                self.report.check(control.reads() == reads.len(), "function-type", message);
            }
            ProgramStep::Size { sym, slot, message: _ } => {
                let place = format!("size {sym}");
                self.report.expr(Expr::sym(*sym), &place);
                self.use_slot(*slot, &place);
                let Some(data) = self.program.slots.get(*slot) else { return };
                let is_one = (data.dtype.is_int() || data.dtype == Dtype::Bool)
                    && self.program.facts.holds(&Rel::le(1, data.extent));
                let message = format_args!("{place}: expected `{}` to hold an integer", data.name);
                self.report.check(is_one, "type-mismatch", message);
            }
            ProgramStep::Call { op, args, results, sharing, message: _ } => {
                self.call(op, args, results, sharing);
            }
            ProgramStep::Free { slot } => {
                self.has_memory(*slot, "free");
                let Some(memory) = self.memory.get_mut(slot.index()) else { return };
                let was = std::mem::replace(memory, Memory::Freed);
                let message =
                    format_args!("free of `{}`: the program did not allocate it", name(self.program, *slot));
                self.report.check(was != Memory::Given, "free-of-param", message);
            }
        }
    }

    /// A copy is of one type and length, and enqueued on a device of one of its sides.
    fn copy(&mut self, slots: [Slot; 2], queue: Queue, place: &str) {
        let [Some(from), Some(to)] = slots.map(|slot| self.program.slots.get(slot)) else { return };
        self.report.same_type(Some(to.dtype), Some(from.dtype), place);
        let is_as_long = self.program.facts.holds(&Rel::eq(from.extent, to.extent));
        let message = format_args!("{place}: expected {} elements, found {}", to.extent, from.extent);
        self.report.check(is_as_long, "type-mismatch", message);
        // The host reaches no device's memory.
        let is_of_host = queue.device == Device::Cpu;
        let is_there =
            [from.device, to.device].contains(&queue.device) && (!is_of_host || from.device == to.device);
        let message = format_args!("{place}: {} cannot copy that", queue.device);
        self.report.check(is_there, "queue", message);
    }

    /// A function is given and gives memory of the types that it says; how much is there is compared when a call is planned.
    fn function_call(&mut self, call: &FunctionCall, args: &[Slot], writes: &[Slot], place: &str) {
        call.sizes.iter().for_each(|(_, value)| self.report.expr(*value, place));
        let Some(function) = self.program.function(&call.function) else {
            let message = format_args!("{place}: there is no such function");
            return self.report.fail("unknown-function", message);
        };
        for sym in function.given_sizes() {
            let is_given = call.sizes.iter().filter(|(given, _)| *given == sym).count() == 1;
            let message = format_args!("{place}: it is given no value for {sym}, or several");
            self.report.check(is_given, "function-type", message);
        }
        let is_updated = |param: &Param| function.updates.iter().any(|(target, _)| *target == param.slot);
        let updated: Vec<bool> = function.params.iter().map(is_updated).collect();
        let changed = updated.iter().filter(|&&is_updated| is_updated).count();
        let fits = args.len() == function.params.len() && writes.len() == function.outputs.len() + changed;
        let message = format_args!("{place}: expected as many arguments and results as it has");
        self.report.check(fits, "function-type", message);
        if !fits {
            return;
        }
        let (results, changed) = writes.split_at(function.outputs.len());
        let expected = args.iter().zip(&updated).filter(|(_, is_updated)| **is_updated).map(|(arg, _)| *arg);
        let message = format_args!("{place}: expected what it updates behind its results");
        self.report.check(expected.eq(changed.iter().copied()), "function-type", message);
        let dtype = |slot: Slot| self.program.slots.get(slot).map(|data| data.dtype);
        let expected = function.params.iter().map(|param| Some(param.ty.dtype));
        let given = function.outputs.iter().map(|output| match output {
            Output::View { ty, .. } => Some(ty.dtype),
            Output::Number(_) | Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => {
                None
            }
        });
        let found: Vec<_> = args.iter().chain(results).map(|&slot| dtype(slot)).collect();
        for (expected, found) in expected.chain(given).zip(found) {
            self.report.check(
                expected.is_some(),
                "function-type",
                format_args!("{place}: no memory is given"),
            );
            self.report.same_type(expected, found, place);
        }
    }

    /// A call of the host: all that it touches has memory, and what it writes is apart from all else that it is given, but for arguments in
    /// memory that they share.
    fn call<'v>(
        &mut self,
        op: &str,
        args: &'v [CallArg<View>],
        results: &'v [CallResult<View>],
        sharing: &[Slot],
    ) {
        let mut touched: Vec<(&View, bool)> =
            results.iter().filter_map(CallResult::written).map(|view| (view, true)).collect();
        let given = touched.len();
        for arg in args {
            arg.each_tensor(&mut |view, is_written| touched.push((view, is_written)));
            arg.each_int(&mut |value| self.report.expr(value, op));
        }
        for &(view, _) in &touched {
            self.use_slot(view.slot, op);
            let View { slot, ty, offset } = view;
            let place = format!("{op}, `{}`", name(self.program, *slot));
            self.report.shape(&ty.sizes, &ty.strides, &place);
            self.report.expr(*offset, &place);
            let Some(found) = self.program.slots.get(*slot) else { continue };
            self.report.same_type(Some(found.dtype), Some(ty.dtype), &place);
            let message = format_args!("{place}: expected {}, found {}", found.device, ty.device);
            self.report.check(ty.device == found.device, "device", message);
            let end = Rel::le(*offset + span(&ty.sizes, &ty.strides), found.extent);
            let facts = &self.program.facts;
            let is_outside = ty.sizes.len() == ty.strides.len()
                && (facts.known(&end).is_no() || facts.known(&Rel::le(0, *offset)).is_no());
            self.report.check(!is_outside, "view-overflow", format_args!("{place}: {ty} does not fit"));
        }
        for (at, (view, is_written)) in touched.iter().enumerate() {
            let part = |view: &'v View| (view.offset, &view.ty.sizes[..], &view.ty.strides[..]);
            let is_alone = touched.iter().enumerate().all(|(other, (same, _))| {
                let is_apart = || is_apart(&self.program.facts, part(view), part(same));
                let is_shared = || at.min(other) >= given && sharing.contains(&view.slot);
                other == at || same.slot != view.slot || is_apart() || is_shared()
            });
            let message =
                format_args!("{op}: `{}` is written and mentioned again", name(self.program, view.slot));
            self.report.check(!is_written || is_alone, "written-argument", message);
        }
        for view in results.iter().filter_map(|result| match result {
            CallResult::Sizes(view, _) => Some(view),
            CallResult::Nothing | CallResult::Whole(_) => None,
        }) {
            let is_vector = view.ty.dtype == Dtype::I64
                && matches!((&view.ty.sizes[..], &view.ty.strides[..]), ([size], [stride])
                    if stride.is_one() && size.as_int().is_some_and(|size| size >= 1));
            let message = format_args!(
                "{op}: expected a vector of 64-bit integers for sizes, `{}` is none",
                name(self.program, view.slot)
            );
            self.report.check(is_vector, "size-operand", message);
        }
        self.one_device(touched.iter().map(|(view, _)| &view.slot), op);
    }

    /// What a step touches is on one device.
    fn one_device<'s>(&mut self, slots: impl IntoIterator<Item = &'s Slot>, place: impl Display) {
        let slots = slots.into_iter().filter_map(|&slot| self.program.slots.get(slot));
        self.report.one_device(slots.map(|slot| (&*slot.name, slot.device)), place);
    }

    fn place(&mut self, slot: Slot, memory: Memory) {
        let was = self.memory.get(slot.index()).copied();
        match was {
            None => self.report.fail("unknown-slot", format_args!("{slot} is no slot of the program")),
            Some(Memory::None | Memory::Freed) => self.memory[slot.index()] = memory,
            Some(Memory::Given | Memory::Own | Memory::Within(_)) => {
                let message = format!("`{}` has memory already", name(self.program, slot));
                self.report.fail("double-alloc", message);
            }
        }
    }

    /// Views that certainly reach past their base.
    fn check_view(&mut self, step: &ProgramStep) {
        let ProgramStep::View { slot, base, offset } = step else { return };
        let slots = (self.program.slots.get(*slot), self.program.slots.get(*base));
        let (Some(view), Some(base)) = slots else { return };
        let end = *offset + view.extent * view.dtype.size() as i64;
        let fits = Rel::le(end, base.extent * base.dtype.size() as i64);
        if self.program.facts.known(&fits).is_no() || self.program.facts.known(&Rel::le(0, *offset)).is_no() {
            let message = format_args!("view `{}` does not fit into `{}`", view.name, base.name);
            self.report.fail("view-overflow", message);
        }
    }

    fn use_slot(&mut self, slot: Slot, place: &str) {
        self.has_memory(slot, place);
        if let Some(range) = self.held.get(slot.index()).copied().flatten() {
            let first = self.ranges[range].uses.map_or(self.now, |(first, _)| first);
            self.ranges[range].uses = Some((first, self.now));
        }
    }

    fn has_memory(&mut self, slot: Slot, place: &str) {
        let mut at = slot;
        // A view lives as long as its base; bases are older, so that the chain ends.
        for _ in 0..=self.memory.len() {
            let (slug, problem) = match self.memory.get(at.index()) {
                None => ("unknown-slot", "is no slot of the program"),
                Some(Memory::None) => ("use-before-alloc", "has no memory yet"),
                Some(Memory::Freed) => ("use-after-free", "has no memory any more"),
                Some(Memory::Given | Memory::Own) => return,
                Some(Memory::Within(base)) => {
                    at = *base;
                    continue;
                }
            };
            let message = format!("{place}: `{}` {problem}", name(self.program, slot));
            return self.report.fail(slug, message);
        }
    }

    fn update(&mut self, target: Slot, source: Slot) {
        self.use_slot(target, "update");
        self.use_slot(source, "update");
        let name = name(self.program, target);
        let is_given = self.memory.get(target.index()) == Some(&Memory::Given);
        let message = format_args!("update of `{name}`: expected a parameter or a constant");
        self.report.check(is_given, "update-target", message);
        let dtype = |slot: Slot| self.program.slots.get(slot).map(|data| data.dtype);
        let (expected, found) = (dtype(target), dtype(source));
        self.report.same_type(expected, found, format_args!("update of `{name}`"));
        self.one_device(&[target, source], format_args!("update of `{name}`"));
    }

    fn output(&mut self, output: &Output) {
        match output {
            Output::View { slot, ty, offset } => {
                self.use_slot(*slot, "return");
                self.report.shape(&ty.sizes, &ty.strides, "return");
                self.report.expr(*offset, "return");
                let place = format!("return of `{}`", name(self.program, *slot));
                let Some(found) = self.program.slots.get(*slot) else { return };
                self.report.same_type(Some(ty.dtype), Some(found.dtype), &place);
                let message = format_args!("{place}: expected {}, found {}", ty.device, found.device);
                self.report.check(ty.device == found.device, "device", message);
            }
            Output::Number(slot) => {
                self.use_slot(*slot, "return");
                let Some(found) = self.program.slots.get(*slot) else { return };
                let is_one = self.program.facts.holds(&Rel::le(1, found.extent));
                let message = format_args!("return: expected `{}` to hold a number", found.name);
                self.report.check(is_one, "number-type", message);
            }
            Output::Int(value) => self.report.expr(*value, "return"),
            Output::Literal(_) | Output::Text(_) | Output::Nothing => {}
        }
    }
}

fn name(program: &Program, slot: Slot) -> &str {
    program.slots.get(slot).map_or("?", |data| &data.name)
}
