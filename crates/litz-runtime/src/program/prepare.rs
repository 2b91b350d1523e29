//! Resolves all of a program and its kernels that does not depend on sizes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use litz_ir::Dtype;
use litz_ir::call::{CallArg, CallResult};
use litz_ir::graph::{Device, TensorType};
use litz_ir::ids::Id;
use litz_ir::kernel::{Act, Kernel, Loop, Op, Stmt, visit};
use litz_ir::loops::FunctionCall;
use litz_ir::program::{
    self as ir, KernelAccesses, Partition, Program, Queue, partitions, regions, takes_made_number,
};
use litz_ir::scalar::Scalar;
use litz_ir::verify::kernel::verify;
use litz_sym::{Clause, Expr, Sym};

use super::bind::{Guard, guard, unbound};
use super::prepared::{
    KernelFacts, Layout, Origin, Output, Prepared, PreparedStep, SizeFacts, Slot, accesses,
};
use crate::arena::GuardPages;
use crate::device;
use crate::error::RunError;
use crate::formula::Formula;
use crate::host::Call;
use crate::limits::Limits;
use crate::routines::routine;

/// Resolves a program, but for its functions. `position` says which symbols have values in a call; load steps have none.
pub(super) fn prepare(
    program: &Program,
    facts: &Arc<[KernelFacts]>,
    devices: &Named<'_>,
    position: &dyn Fn(Sym) -> Option<usize>,
) -> Result<Prepared, RunError> {
    let late = program.late_sizes().into_iter().map(|sym| SizeFacts::of(&program.facts, sym)).collect();
    let names = facts.iter().enumerate().map(|(at, kernel)| (kernel.name.as_str(), at)).collect();
    let queues = queues(program, devices)?;
    let accesses = accesses(facts);
    let made = program.made(&accesses);
    let cx = Context { program, names, kernels: facts, position, queues: &queues, made: &made };
    let loading = Context { position: &|_| None, names: cx.names.clone(), ..cx };
    let mut slots = Vec::new();
    for slot in program.slots.values() {
        let device = devices.position(slot.device).ok_or_else(|| {
            let (slot, found) = (slot.name.clone(), slot.device);
            RunError::MissingDevice { slot, found, given: program.device }
        })?;
        let (name, dtype, extent) = (slot.name.clone(), slot.dtype, cx.formula(slot.extent)?);
        let (origin, is_written, is_stored) = (Origin::None, false, false);
        slots.push(Slot { name, dtype, extent, device, origin, is_written, is_stored });
    }
    let mut prepared = Prepared {
        name: program.name.clone(),
        slots,
        params: Vec::new(),
        donated: program.params.iter().map(|param| param.is_donated).collect(),
        known: 0,
        late,
        load: program.load.iter().map(|step| loading.step(step)).collect::<Result<_, _>>()?,
        steps: program.steps.iter().map(|step| cx.step(step)).collect::<Result<_, _>>()?,
        updates: program.updates.iter().map(|(dst, src)| (dst.index(), src.index())).collect(),
        outputs: program.outputs.iter().map(|output| cx.output(output)).collect::<Result<_, _>>()?,
        kernels: Arc::clone(facts),
        limits: Limits::default(),
        guard_pages: GuardPages::default(),
        watched: None,
        concurrency: devices.all.iter().map(|(_, device)| device.concurrency()).collect(),
        queues: queues.iter().map(|queue| queue.1).collect(),
        calls_write_kept: false,
        captured: Vec::new(),
        entered: Vec::new(),
    };
    let define = |slots: &mut Vec<Slot>, slot: ir::Slot, origin: Origin| {
        let slot = &mut slots[slot.index()];
        match (&slot.origin, &origin) {
            (Origin::None, _) | (Origin::Alloc, Origin::Alloc) => slot.origin = origin,
            (Origin::Param(_) | Origin::Const(_) | Origin::Alloc | Origin::View { .. }, _) => {
                return Err(cx.bug(format!("{} is given memory of two kinds", slot.name)));
            }
        }
        Ok(())
    };
    for (at, param) in program.params.iter().enumerate() {
        define(&mut prepared.slots, param.slot, Origin::Param(at))?;
        prepared.params.push(cx.layout(param.slot, &param.ty)?);
    }
    for (at, constant) in program.consts.iter().enumerate() {
        define(&mut prepared.slots, constant.slot, Origin::Const(at))?;
    }
    for step in program.load.iter().chain(&program.steps) {
        match step {
            ir::ProgramStep::Alloc { slot } => define(&mut prepared.slots, *slot, Origin::Alloc)?,
            ir::ProgramStep::View { slot, base, offset } => {
                if matches!(prepared.slots[base.index()].origin, Origin::None) {
                    return Err(
                        cx.bug(format!("{} has no memory where it is used", program.slots[*base].name))
                    );
                }
                let origin = Origin::View { base: base.index(), offset: cx.formula(*offset)? };
                define(&mut prepared.slots, *slot, origin)?;
            }
            ir::ProgramStep::Check { .. }
            | ir::ProgramStep::Launch { .. }
            | ir::ProgramStep::Copy { .. }
            | ir::ProgramStep::Record { .. }
            | ir::ProgramStep::Wait { .. }
            | ir::ProgramStep::Extern { .. }
            | ir::ProgramStep::Control { .. }
            | ir::ProgramStep::Size { .. }
            | ir::ProgramStep::Call { .. }
            | ir::ProgramStep::Free { .. } => {}
        }
    }
    let written_at_load = written(&prepared.load, facts);
    let written_by_calls = written(&prepared.steps, facts);
    let updated: Vec<usize> = prepared.updates.iter().map(|&(dst, _)| dst).collect();
    let kept = allocated(&prepared.load);
    prepared.calls_write_kept = written_by_calls
        .iter()
        .chain(&updated)
        .any(|&slot| bases(&prepared.slots, slot).any(|base| kept.contains(&base)));
    let loaded = written_at_load.into_iter().map(|slot| (slot, false));
    let stored = written_by_calls.into_iter().map(|slot| (slot, true));
    for (slot, is_stored) in loaded.chain(stored).chain(updated.into_iter().map(|slot| (slot, false))) {
        let within: Vec<usize> = bases(&prepared.slots, slot).collect();
        for base in within {
            prepared.slots[base].is_written = true;
            prepared.slots[base].is_stored |= is_stored;
        }
    }
    capture(&cx, devices, &accesses, &mut prepared)?;
    free_constants(&mut prepared);
    Ok(prepared)
}

/// Finds what devices capture, and for which steps they are entered, where any of them captures.
fn capture(
    cx: &Context<'_>,
    devices: &Named<'_>,
    kernels: &KernelAccesses<'_>,
    prepared: &mut Prepared,
) -> Result<(), RunError> {
    let captures =
        |name: Device| devices.all.iter().any(|&(other, device)| other == name && device.captures());
    if !devices.all.iter().any(|(_, device)| device.captures()) {
        return Ok(());
    }
    let partitions = partitions(cx.program, kernels, &captures);
    for region in regions(cx.program, &partitions, &captures) {
        let device = devices.position(region.device);
        prepared.entered.push((region.steps, device.ok_or_else(|| cx.bug("a device is missing".into()))?));
    }
    for Partition { steps, .. } in partitions.into_iter().filter(Partition::is_captured) {
        let launch = cx.program.steps[steps.clone()].iter().find(|step| cx.program.queue(step).is_some());
        let launch = launch.ok_or_else(|| cx.bug("a partition runs nothing".into()))?;
        prepared.captured.push((steps, cx.queue(launch)?));
    }
    Ok(())
}

/// Frees each constant behind the last load step that reads it, if calls do not: most weights are packed, one after the
/// other, and without this a model would take its size twice until all of them are.
fn free_constants(prepared: &mut Prepared) {
    let slots = &prepared.slots;
    let constants = |step: &PreparedStep| {
        let based = step.mentioned().into_iter().flat_map(|slot| bases(slots, slot));
        based.filter(|&slot| matches!(slots[slot].origin, Origin::Const(_))).collect::<Vec<_>>()
    };
    let outputs = prepared.outputs.iter().filter_map(|output| match output {
        Output::View { layout, .. } => Some(layout.slot),
        Output::Number(slot) => Some(*slot),
        Output::Int(_) | Output::Literal(_) | Output::Text(_) | Output::Nothing => None,
    });
    let updates = prepared.updates.iter().flat_map(|&(to, from)| [to, from]);
    let mut seen: HashSet<usize> = outputs.chain(updates).flat_map(|slot| bases(slots, slot)).collect();
    seen.extend(prepared.steps.iter().flat_map(constants));
    // From the end, so that the first step that is met is the last one to read it.
    let mut load = Vec::with_capacity(prepared.load.len());
    for step in std::mem::take(&mut prepared.load).into_iter().rev() {
        let read = constants(&step);
        load.extend(read.into_iter().filter(|&slot| seen.insert(slot)).map(PreparedStep::Free));
        load.push(step);
    }
    load.reverse();
    prepared.load = load;
}

/// Numbers the launches of a program, and says which number is next.
pub(super) fn number_launches(prepared: &mut Prepared, mut next: usize) -> usize {
    for step in prepared.load.iter_mut().chain(&mut prepared.steps) {
        if let PreparedStep::Launch { number, .. } = step {
            *number = next;
            next += 1;
        }
    }
    next
}

/// The slots that steps write.
pub(super) fn written(steps: &[PreparedStep], kernels: &[KernelFacts]) -> Vec<usize> {
    let mut written = Vec::new();
    for step in steps {
        match step {
            PreparedStep::Launch { kernel, args, .. } => {
                let touched = args.iter().zip(&kernels[*kernel].accesses);
                written.extend(touched.filter(|(_, access)| access.is_written()).map(|(arg, _)| *arg));
            }
            PreparedStep::Extern { writes, .. } | PreparedStep::Control { writes, .. } => {
                written.extend(writes)
            }
            PreparedStep::Call { operands, writes, .. } => {
                written.extend(writes.iter().map(|&at| operands[at].0.slot));
            }
            PreparedStep::Copy { to, .. } => written.push(*to),
            PreparedStep::Check(_)
            | PreparedStep::Alloc(_)
            | PreparedStep::View(_)
            | PreparedStep::Record { .. }
            | PreparedStep::Wait { .. }
            | PreparedStep::Size { .. }
            | PreparedStep::Free(_) => {}
        }
    }
    written
}

/// The slots that steps give memory of their own.
fn allocated(steps: &[PreparedStep]) -> HashSet<usize> {
    let slot = |step: &PreparedStep| match step {
        PreparedStep::Alloc(slot) => Some(*slot),
        PreparedStep::Check(_)
        | PreparedStep::View(_)
        | PreparedStep::Launch { .. }
        | PreparedStep::Copy { .. }
        | PreparedStep::Record { .. }
        | PreparedStep::Wait { .. }
        | PreparedStep::Extern { .. }
        | PreparedStep::Control { .. }
        | PreparedStep::Size { .. }
        | PreparedStep::Call { .. }
        | PreparedStep::Free(_) => None,
    };
    steps.iter().filter_map(slot).collect()
}

/// A slot and those it lies in. A base has its memory before the views in it, so that this ends.
pub(super) fn bases(slots: &[Slot], slot: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(slot), |&slot| match slots[slot].origin {
        Origin::View { base, .. } => Some(base),
        Origin::Param(_) | Origin::Const(_) | Origin::Alloc | Origin::None => None,
    })
}

/// Verifies a kernel, whoever wrote it, and resolves what launches need to know of it.
pub(super) fn kernel_facts(kernel: &Kernel, devices: &Named<'_>) -> Result<KernelFacts, RunError> {
    let bug = |what: String| RunError::bug(format!("kernel @{}", kernel.name), what);
    if let Some(diag) = verify(kernel).first() {
        return Err(bug(diag.to_string()));
    }
    let position = |sym| kernel.sizes.iter().position(|&size| size == sym);
    let formula = |expr: Expr| {
        Formula::new(expr, &position)
            .map_err(|sym| bug(format!("`{expr}` uses symbol {sym}, which is no size of it")))
    };
    let params = || kernel.mems.values().take(kernel.params);
    Ok(KernelFacts {
        name: kernel.name.clone(),
        ids: devices.all.iter().map(|(_, device)| device.find(&kernel.name)).collect(),
        params: params()
            .map(|mem| Ok((mem.dtype.size(), formula(mem.span())?)))
            .collect::<Result<_, RunError>>()?,
        points: formula(kernel.points())?,
        scratch: formula(kernel.scratch_bytes())?,
        iterations: Formula::Product(Box::new([
            formula(kernel.points())?,
            iterations(&kernel.body, &|extent| formula(first_extent(kernel, extent)))?,
        ])),
        accesses: ir::accesses(kernel),
        has_infinity: has_infinity(kernel),
        sizes: kernel.sizes.iter().map(|&name| SizeFacts::of(&kernel.facts, name)).collect(),
        guards: kernel
            .facts
            .guards()
            .iter()
            .map(|guard| self::guard(&kernel.name, &guard.clause, &guard.who, &position))
            .collect::<Result<_, _>>()?,
    })
}

/// Whether a kernel names an infinite constant.
fn has_infinity(kernel: &Kernel) -> bool {
    let mut found = false;
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Let { op: Op::Const(Scalar::Float(value)), .. }) = stmt {
            found |= value.is_infinite();
        }
    });
    found
}

/// How often statements run, for one point: each by itself, and loops as often as they go around.
fn iterations(
    stmts: &[Stmt],
    formula: &dyn Fn(Expr) -> Result<Formula, RunError>,
) -> Result<Formula, RunError> {
    let (mut alone, mut loops) = (0, Vec::new());
    for stmt in stmts {
        match stmt {
            Stmt::Loop(Loop { extent, body, .. }) => {
                let extent = Formula::Max(Box::new([Formula::Const(0), formula(*extent)?]));
                loops.push(Formula::Product(Box::new([extent, iterations(body, formula)?])));
            }
            Stmt::If { then, other, .. } => {
                loops.push(iterations(then, formula)?);
                loops.push(iterations(other, formula)?);
            }
            Stmt::Act(Act::Lanes(reduction)) => {
                alone += i64::from(reduction.lanes) * i64::from(reduction.copies)
            }
            Stmt::Act(Act::Dot(dot)) => alone += 2 * dot.terms.len() as i64,
            Stmt::Act(Act::MatrixProduct(product)) => {
                let extents = [product.rows, product.columns].into_iter();
                let extents = extents.chain(product.over.iter().map(|axis| axis.extent));
                let mut points = vec![Formula::Const(2 * i64::from(product.depth))];
                for extent in extents {
                    points.push(Formula::Max(Box::new([Formula::Const(0), formula(extent)?])));
                }
                loops.push(Formula::Product(points.into()));
            }
            // Loads and stores of all lanes, and products of all points.
            Stmt::Act(Act::FragmentLoad(load)) => {
                alone += 2 * 32 * load.side.elements(load.by, load.by.columns.into())
            }
            Stmt::Act(Act::FragmentProduct(product)) => {
                alone += 2 * product.shape().into_iter().product::<i64>()
            }
            Stmt::Act(Act::BoxCopy(copy)) => alone += 2 * copy.elements(),
            Stmt::Act(Act::Sync(_) | Act::Prefetch { .. }) => {}
            // A load and a store, or a product and a sum.
            Stmt::Act(Act::Copy { .. } | Act::MulAdd { .. }) => alone += 2,
            Stmt::Act(_) => alone += 1,
        }
    }
    loops.push(Formula::Const(alone));
    Ok(Formula::Sum(loops.into()))
}

/// The extent of a loop in the first iteration of those around it, where none is clipped yet.
fn first_extent(kernel: &Kernel, extent: Expr) -> Expr {
    extent.subst(&|sym| (!kernel.sizes.contains(&sym)).then(Expr::zero))
}

/// Devices by the names that programs have for them, that of the program first.
pub(super) struct Named<'a> {
    pub(super) all: Vec<(Device, &'a dyn device::Device)>,
}

impl Named<'_> {
    fn position(&self, device: Device) -> Option<usize> {
        self.all.iter().position(|(name, _)| *name == device)
    }
}

/// The queues of a program with their devices: the first stream of each device, then others.
fn queues(program: &Program, devices: &Named<'_>) -> Result<Vec<(Queue, usize)>, RunError> {
    let first = devices.all.iter().map(|&(device, _)| Queue { device, stream: 0 });
    let others = program.queues().into_iter().filter(|queue| queue.stream > 0);
    first
        .chain(others)
        .map(|queue| match devices.position(queue.device) {
            Some(device) => Ok((queue, device)),
            None => {
                let slot = format!("a queue on {}", queue.device);
                Err(RunError::MissingDevice { slot, found: queue.device, given: program.device })
            }
        })
        .collect()
}

struct Context<'a> {
    program: &'a Program,
    names: HashMap<&'a str, usize>,
    kernels: &'a [KernelFacts],
    position: &'a dyn Fn(Sym) -> Option<usize>,
    queues: &'a [(Queue, usize)],
    /// Slots that steps of calls write.
    made: &'a HashSet<ir::Slot>,
}

impl Context<'_> {
    fn formula(&self, expr: Expr) -> Result<Formula, RunError> {
        Formula::new(expr, self.position).map_err(|sym| unbound(&self.program.name, &expr.to_string(), sym))
    }

    fn formulas(&self, exprs: &[Expr]) -> Result<Vec<Formula>, RunError> {
        exprs.iter().map(|&expr| self.formula(expr)).collect()
    }

    fn guard(&self, clause: &Clause, who: &str) -> Result<Guard, RunError> {
        guard(&self.program.name, clause, who, self.position)
    }

    fn layout(&self, slot: ir::Slot, ty: &TensorType) -> Result<Layout, RunError> {
        let (sizes, strides) = (self.formulas(&ty.sizes)?, self.formulas(&ty.strides)?);
        Ok(Layout { slot: slot.index(), dtype: ty.dtype, sizes, strides })
    }

    fn step(&self, step: &ir::ProgramStep) -> Result<PreparedStep, RunError> {
        let positions = |slots: &[ir::Slot]| slots.iter().map(|slot| slot.index()).collect();
        Ok(match step {
            ir::ProgramStep::Check { clause, who } => PreparedStep::Check(self.guard(clause, who)?),
            ir::ProgramStep::Alloc { slot } => PreparedStep::Alloc(slot.index()),
            ir::ProgramStep::View { slot, .. } => PreparedStep::View(slot.index()),
            ir::ProgramStep::Launch { kernel, args, sizes, .. } => {
                let unknown = || self.bug(format!("launch of unknown kernel @{kernel}"));
                let at = *self.names.get(kernel.as_str()).ok_or_else(unknown)?;
                let facts = &self.kernels[at];
                if (args.len(), sizes.len()) != (facts.params.len(), facts.sizes.len()) {
                    let expected = format!("{} memories and {} sizes", facts.params.len(), facts.sizes.len());
                    let found = format!("{} and {}", args.len(), sizes.len());
                    return Err(self.bug(format!("launch of @{kernel}: expected {expected}, found {found}")));
                }
                let queue = self.queue(step)?;
                if facts.ids[self.queues[queue].1].is_none() {
                    let device = self.queues[queue].0.device;
                    return Err(RunError::bug(
                        format!("kernel @{kernel}"),
                        format!("it is not loaded on {device}"),
                    ));
                }
                let takes_made = takes_made_number(self.program, step, &|slot| self.made.contains(&slot));
                let (args, sizes) = (positions(args), self.formulas(sizes)?);
                PreparedStep::Launch { kernel: at, number: 0, args, sizes, queue, takes_made }
            }
            ir::ProgramStep::Copy { from, to, .. } => {
                PreparedStep::Copy { from: from.index(), to: to.index(), queue: self.queue(step)? }
            }
            ir::ProgramStep::Record { event, .. } => {
                PreparedStep::Record { event: *event as usize, queue: self.queue(step)? }
            }
            ir::ProgramStep::Wait { event, .. } => {
                PreparedStep::Wait { event: *event as usize, queue: self.queue(step)? }
            }
            ir::ProgramStep::Extern { routine: name, reads, writes, ints, message } => {
                let routine = routine(name).ok_or_else(|| RunError::UnknownRoutine { name: name.clone() })?;
                let (reads, writes) = (positions(reads), positions(writes));
                let message = Arc::from(message.as_deref().unwrap_or_default());
                PreparedStep::Extern { routine, reads, writes, ints: self.formulas(ints)?, message }
            }
            ir::ProgramStep::Control { control, reads, writes } => {
                if control.reads() != reads.len() {
                    return Err(self.bug(format!("{}: other arguments", self.program.place(step))));
                }
                let calls = control.calls().into_iter().map(|call| self.function_call(call));
                let calls = calls.collect::<Result<_, _>>()?;
                let (reads, writes) = (positions(reads), positions(writes));
                PreparedStep::Control { control: control.clone(), calls, reads, writes }
            }
            ir::ProgramStep::Size { sym, slot, message } => {
                let dtype = self.program.slots[*slot].dtype;
                if !dtype.is_int() && dtype != Dtype::Bool {
                    return Err(self.bug(format!("size {sym}: expected an integer, found {dtype}")));
                }
                PreparedStep::Size {
                    slot: slot.index(),
                    who: Arc::from(message.as_deref().unwrap_or_default()),
                }
            }
            ir::ProgramStep::Call { op, args, results, sharing, message } => {
                let sharing = sharing.iter().map(|slot| slot.index()).collect();
                self.call(op, args, results, sharing, message.as_ref())?
            }
            ir::ProgramStep::Free { slot } => PreparedStep::Free(slot.index()),
        })
    }

    /// The position of the queue of a step that has one.
    fn queue(&self, step: &ir::ProgramStep) -> Result<usize, RunError> {
        let queue = self.program.queue(step);
        let position = self.queues.iter().position(|(known, _)| Some(*known) == queue);
        position.ok_or_else(|| self.bug(format!("{}: it has no queue", self.program.place(step))))
    }

    /// Which function a call is of, and the values of its sizes in their order.
    fn function_call(&self, call: &FunctionCall) -> Result<(usize, Vec<Formula>), RunError> {
        let name = &call.function;
        let unknown = || self.bug(format!("call of unknown function @{name}"));
        let functions = &self.program.functions;
        let at = functions.iter().position(|function| function.name == *name).ok_or_else(unknown)?;
        let value = |sym: Sym| {
            let given = call.sizes.iter().find(|(given, _)| *given == sym);
            let missing = || self.bug(format!("call of @{name}: no value is given for {sym}"));
            self.formula(given.ok_or_else(missing)?.1)
        };
        Ok((at, functions[at].given_sizes().into_iter().map(value).collect::<Result<_, _>>()?))
    }

    fn call(
        &self,
        op: &str,
        args: &[CallArg<ir::View>],
        results: &[CallResult<ir::View>],
        sharing: Vec<usize>,
        message: Option<&String>,
    ) -> Result<PreparedStep, RunError> {
        let (mut operands, mut writes, mut ints) = (Vec::new(), Vec::new(), Vec::new());
        let mut add = |view: &ir::View| -> Result<usize, RunError> {
            operands.push((self.layout(view.slot, &view.ty)?, self.formula(view.offset)?));
            Ok(operands.len() - 1)
        };
        let args = args.iter().map(|arg| arg.try_map(&mut add)).collect::<Result<Vec<_>, _>>()?;
        let results = results.iter().map(|result| result.try_map(&mut add));
        let results = results.collect::<Result<Vec<_>, _>>()?;
        for arg in &args {
            arg.each_tensor(&mut |&at, is_written| writes.extend(is_written.then_some(at)));
            arg.each_int(&mut |value| ints.push(value));
        }
        writes.extend(results.iter().filter_map(CallResult::written));
        let source = message.cloned();
        let call = Arc::new(Call { op: op.to_owned(), args, results, source });
        Ok(PreparedStep::Call { call, ints: self.formulas(&ints)?, operands, writes, sharing })
    }

    fn output(&self, output: &ir::Output) -> Result<Output, RunError> {
        Ok(match output {
            ir::Output::View { slot, ty, offset } => {
                Output::View { layout: self.layout(*slot, ty)?, offset: self.formula(*offset)? }
            }
            ir::Output::Number(slot) => Output::Number(slot.index()),
            ir::Output::Int(expr) => Output::Int(self.formula(*expr)?),
            ir::Output::Literal(scalar) => Output::Literal(*scalar),
            ir::Output::Text(text) => Output::Text(text.as_str().into()),
            ir::Output::Nothing => Output::Nothing,
        })
    }

    fn bug(&self, what: String) -> RunError {
        RunError::bug(format!("program @{}", self.program.name), what)
    }
}
