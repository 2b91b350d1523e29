//! Makes a program, its kernels and weights an executable, and calls it with inputs.
//!
//! What depends on nothing is resolved once, by `prepare`; constants are loaded and packed once, by the load steps;
//! what depends on sizes is worked out once for each set of them, by `planner`. A call then only binds addresses and
//! runs a list of commands, in memory that calls hand on to each other.

mod bind;
mod constants;
mod context;
mod function;
mod launcher;
mod lives;
mod memory;
mod numbers;
mod outputs;
mod plan;
mod planner;
mod prepare;
mod prepared;
mod queues;
mod recordings;
mod room;
mod watch;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use litz_ir::graph;
use litz_ir::kernel::Kernel;
use litz_ir::program::Program;

use crate::arena::GuardPages;
use crate::cache::{MemoryKeys, ObjectCache};
use crate::device::{Device, RawStream};
use crate::error::{ConstantError, RunError};
use crate::host::{Host, HostCalls, Hosted};
use crate::limits::Limits;
use crate::spare::Spare;
use crate::tensor::{Input, TensorView};
use crate::weights::Weights;
use bind::Binder;
pub use constants::{ConstantInfo, Generation};
use constants::{Constants, Layout};
use context::{Context, Deadline, Lent};
use function::{Function, Running, facts_of};
pub use launcher::Launcher;
use lives::Watching;
use memory::Memory;
use outputs::{Fresh, Reused};
pub use outputs::{OutputLayout, Outputs, Value};
use plan::Plan;
use planner::plan_load;
use prepare::{Named, prepare};
use prepared::watched;
use queues::Devices;

/// A program ready to be called, from several threads at once.
///
/// Programs that update constants (state, such as a key-value cache) run one call at a time; what they write is there
/// for the next call.
///
/// The new contents of inputs that the program updates are returned as extra outputs, after those of the program, in
/// the order of its updates. An input itself is written only if it is lent ([`Input::lent`]): its new contents are in its own memory
/// then, and its extra output is none.
pub struct Executable {
    code: Code,
    constants: Arc<Constants>,
    /// Contexts that no call is using.
    idle: Mutex<Vec<Context>>,
    /// What calls have worked with that somebody has captured, by the number of who did.
    captured: Mutex<Vec<(u64, Weak<Mutex<Captured>>)>>,
    /// Memory of results that callers are done with.
    spare: Arc<Spare>,
}

/// What calls have worked with that somebody has captured, who may run again what they enqueued: it is theirs as long as they can, and no other call's.
#[derive(Default)]
struct Captured {
    contexts: Vec<Context>,
    constants: Vec<Arc<Memory>>,
}

/// What is the same whatever constants hold.
struct Code {
    function: Function,
    binder: Binder,
    devices: Devices,
    /// How load steps run.
    load: Arc<Plan>,
    /// How many constants there are.
    constants: usize,
    counters: Counters,
    hosted: Hosted,
}

/// How an executable runs, besides what its program says.
#[derive(Clone, Default)]
pub struct RunOptions<'a> {
    /// What it may take.
    pub limits: Limits,
    /// Where native code that leaves a buffer faults. Without effect on a device with memory of its own.
    pub guard_pages: GuardPages,
    /// The cache, and keys that stand for program, kernels and weights: what load steps compute is kept there, and where
    /// it is there already, they do not run. Without effect with guard pages, and on a device with memory of its own.
    pub kept_as: Option<(&'a ObjectCache, &'a MemoryKeys)>,
    /// The devices that the program names, besides that of its first line, each with the kernels loaded that are launched there.
    pub devices: Vec<(graph::Device, Arc<dyn Device>)>,
    /// Whether each step of a call is watched: that buffers in use lie apart, and that nothing is read which nothing has written. Steps
    /// may run twice for that. Without effect on a device with memory of its own.
    pub verify_memory: bool,
    /// Whether a step that makes a NaN or an infinite number, where nothing that it reads is one, ends the call with
    /// [`RunError::NotFinite`]. Without effect on a device with memory of its own.
    pub check_nan: bool,
    /// Who runs operators that are none of Litz.
    pub host: Option<Arc<dyn Host>>,
    /// What the weights are.
    pub constants: ConstantSource,
}

/// What constants come from.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ConstantSource {
    /// The model, whose parameters they are.
    #[default]
    Model,
    /// What load steps made of the model's: nobody can give them new contents.
    Folded,
}

/// What an executable has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Calls that had the right inputs.
    pub calls: u64,
    /// Plans made: one for each set of sizes, and one more where it had been too long ago.
    pub plans: u64,
    /// Most bytes that a call takes for intermediate results and outputs.
    pub peak_bytes: usize,
    /// Bytes of what load steps computed, which is kept for all calls: packed weights, mostly.
    pub kept_bytes: u64,
    /// Operators that the host ran, by name.
    pub host_calls: Vec<HostCalls>,
}

#[derive(Default)]
struct Counters {
    calls: AtomicU64,
    plans: AtomicU64,
    peak_bytes: AtomicUsize,
}

impl Executable {
    /// Takes the constants from `weights` and runs the load steps. `device` has the kernels loaded; it is the one that the
    /// program's first line names.
    ///
    /// # Errors
    /// Weights that are missing or of another type or shape; out of memory; a program that does not fit its kernels, or has
    /// memory on another device; operators of the host that it does not have.
    pub fn new(
        program: &Program,
        kernels: &[Kernel],
        device: Arc<dyn Device>,
        weights: &dyn Weights,
    ) -> Result<Executable, RunError> {
        Executable::with_options(program, kernels, device, weights, &RunOptions::default())
    }

    /// As [`Executable::new`], in the way that `options` say.
    ///
    /// # Errors
    /// As [`Executable::new`], and where constants or load steps take more than the limits allow.
    pub fn with_options(
        program: &Program,
        kernels: &[Kernel],
        device: Arc<dyn Device>,
        weights: &dyn Weights,
        options: &RunOptions<'_>,
    ) -> Result<Executable, RunError> {
        let (code, layout) = Code::new(program, kernels, device, options)?;
        let (devices, prepared) = (&code.devices, &code.function.prepared);
        let constants = layout.load(weights, devices, prepared)?;
        let mut memory = layout.memory(constants, devices, prepared, options.kept_as)?;
        if memory.is_empty() {
            code.load(&memory, &|at| weights.release(&program.consts[at].name))?;
            memory.keep();
        }
        let constants = Arc::new(Constants::new(layout, memory));
        Ok(Executable::of(code, constants))
    }

    /// The same program with the constants of this executable, in the same memory, and with its state: on `device`, which has threads of
    /// its own, say, so that calls of the two do not wait for each other's. What [`Executable::swap`] gives one of them both have.
    ///
    /// # Errors
    /// As [`Executable::new`], and where the program has other constants, or devices other memory: that of reference devices is nobody else's.
    pub fn sharing(
        &self,
        program: &Program,
        kernels: &[Kernel],
        device: Arc<dyn Device>,
        options: &RunOptions<'_>,
    ) -> Result<Executable, RunError> {
        let (code, layout) = Code::new(program, kernels, device, options)?;
        if !layout.may_share(&self.constants.layout, [&code.devices, &self.code.devices]) {
            return Err(ConstantError::Unlike.into());
        }
        let constants = Arc::clone(&self.constants);
        Ok(Executable::of(code, constants))
    }

    /// One that nobody has called.
    fn of(code: Code, constants: Arc<Constants>) -> Executable {
        let (idle, captured) = (Mutex::default(), Mutex::default());
        Executable { code, constants, idle, captured, spare: Arc::default() }
    }

    /// Calls the program. Each tensor that it gives has memory of its own: one that is returned twice is there twice, and
    /// an input or a constant that is returned is a copy, whatever they share in PyTorch.
    ///
    /// # Errors
    /// Inputs of another number, type or shape than the program takes; sizes outside of the ranges and relations it
    /// was compiled for; values that are no valid indices; out of memory; state that an earlier call left half stored.
    pub fn run<T: Input>(&self, inputs: &[T]) -> Result<Vec<Value>, RunError> {
        let mut outputs = Fresh::new(&self.spare);
        self.call(inputs, &mut outputs)?;
        Ok(outputs.values)
    }

    /// As [`Executable::run`], into the memory of `outputs` where their types and layouts match and nothing else
    /// shares it. Where all do, and the sizes are those of an earlier call, nothing is allocated.
    ///
    /// After an error the outputs are in an undefined state.
    pub fn run_into<T: Input>(&self, inputs: &[T], outputs: &mut Vec<Value>) -> Result<(), RunError> {
        let mut reused = Reused::new(outputs);
        self.call(inputs, &mut reused)?;
        let count = reused.count();
        outputs.truncate(count);
        Ok(())
    }

    /// As [`Executable::run`], into memory that `outputs` provides.
    pub fn call<T: Input>(&self, inputs: &[T], outputs: &mut dyn Outputs) -> Result<(), RunError> {
        let _state = self.constants.lock_state();
        if self.constants.is_state_lost.load(Ordering::Relaxed) {
            return Err(RunError::StateLost);
        }
        let memory = self.constants.current();
        let captured = self.captured(outputs.stream())?;
        let idle = captured.as_ref().and_then(|captured| lock(captured).contexts.pop());
        let mut context = match idle.or_else(|| lock(&self.idle).pop()) {
            Some(context) => context,
            None => self.code.context()?,
        };
        let result = context.bind(&memory).and_then(|()| self.call_in(&mut context, inputs, outputs));
        if result.is_err() {
            context.settle();
        }
        if let Some(captured) = captured {
            let mut captured = lock(&captured);
            captured.contexts.push(context);
            if captured.constants.iter().all(|other| !Arc::ptr_eq(other, &memory)) {
                captured.constants.push(memory);
            }
            return result;
        }
        context.give_room();
        context.hold(memory);
        lock(&self.idle).push(context);
        result
    }

    /// What the kernels of the program run on that its first line names.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.code.devices[0]
    }

    /// What calls have that somebody captures on a stream, if anybody does.
    fn captured(&self, stream: Option<RawStream>) -> Result<Option<Arc<Mutex<Captured>>>, RunError> {
        let Some(stream) = stream else { return Ok(None) };
        let device = &self.code.devices[0];
        let Some(number) = device.captured_by(stream)? else { return Ok(None) };
        let mut all = lock(&self.captured);
        all.retain(|(_, captured)| captured.strong_count() > 0);
        let known =
            all.iter().find(|(other, _)| *other == number).and_then(|(_, captured)| captured.upgrade());
        if known.is_some() {
            return Ok(known);
        }
        let captured = Arc::new(Mutex::new(Captured::default()));
        device.keep(stream, Box::new(Arc::clone(&captured)))?;
        all.push((number, Arc::downgrade(&captured)));
        Ok(Some(captured))
    }

    /// What calls have done so far.
    pub fn statistics(&self) -> Statistics {
        let Counters { calls, plans, peak_bytes } = &self.code.counters;
        Statistics {
            calls: calls.load(Ordering::Relaxed),
            plans: plans.load(Ordering::Relaxed),
            peak_bytes: peak_bytes.load(Ordering::Relaxed),
            kept_bytes: self.constants.layout.kept.iter().map(|&(_, bytes)| bytes as u64).sum(),
            host_calls: self.code.hosted.statistics(),
        }
    }

    fn call_in<T: Input>(
        &self,
        context: &mut Context,
        inputs: &[T],
        outputs: &mut dyn Outputs,
    ) -> Result<(), RunError> {
        let result = self.try_call_in(context, inputs, outputs);
        result.map_err(|error| room::explain(error, &self.code.function.prepared, &context.values))
    }

    fn try_call_in<T: Input>(
        &self,
        context: &mut Context,
        inputs: &[T],
        outputs: &mut dyn Outputs,
    ) -> Result<(), RunError> {
        let deadline = Deadline::of(&self.code.function.prepared.limits);
        context.begin();
        // State is the next call's to read, which may be another stream's.
        context.follow(outputs.stream(), !self.constants.have_state());
        self.code.binder.bind(inputs, &mut context.values)?;
        if context.has_plan() {
            context.make_room()?;
        } else {
            let plan = self.plan(&context.values)?;
            context.use_plan(plan)?;
        }
        for (at, input) in inputs.iter().enumerate() {
            // Elements that are another input's as well are read there.
            let is_apart = |view: &TensorView<'_>| {
                let mut others = inputs.iter().enumerate().filter(|other| other.0 != at);
                others.all(|(_, other)| !view.overlaps(&other.view()))
            };
            let view = input.view();
            let lent = input.lent().map(|lent| Lent { data: lent.data(), is_apart: is_apart(&view) });
            context.set_input(at, &view, lent, outputs)?;
        }
        self.code.counters.calls.fetch_add(1, Ordering::Relaxed);
        let result = self.run_steps(context, deadline, outputs);
        if result.is_err() && context.has_changed_state {
            self.constants.is_state_lost.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Runs the steps in a context that has its inputs, with a new plan each time that a size has become known.
    fn run_steps(
        &self,
        context: &mut Context,
        deadline: Option<Deadline>,
        outputs: &mut dyn Outputs,
    ) -> Result<(), RunError> {
        context.set_outputs(outputs)?;
        let Code { function, counters, hosted, .. } = &self.code;
        let running = Running { deadline, counters, hosted, release: &|_| {} };
        while !context.run(function, running)? {
            let plan = self.plan(&context.values)?;
            context.use_plan(plan)?;
            context.set_outputs(outputs)?;
        }
        context.finish(outputs)
    }

    /// The plan for these values of the size symbols.
    fn plan(&self, values: &[i64]) -> Result<Arc<Plan>, RunError> {
        let Code { function, counters, .. } = &self.code;
        let plan = function.plan(values, &self.constants.layout.kept, counters)?;
        counters.peak_bytes.fetch_max(plan.peak_bytes(), Ordering::Relaxed);
        Ok(plan)
    }
}

impl Code {
    /// A program resolved, and the layout of its constants.
    fn new(
        program: &Program,
        kernels: &[Kernel],
        device: Arc<dyn Device>,
        options: &RunOptions<'_>,
    ) -> Result<(Code, Layout), RunError> {
        let RunOptions {
            limits,
            guard_pages,
            kept_as: _,
            devices,
            verify_memory,
            check_nan,
            host,
            constants: source,
        } = options;
        let binder = Binder::new(program)?;
        let first = (program.device, &*device);
        let others = devices.iter().map(|(name, device)| (*name, &**device));
        let named = Named { all: std::iter::once(first).chain(others).collect() };
        let facts = facts_of(kernels, &named)?;
        let mut prepared = prepare(program, &facts, &named, &|sym| binder.position(sym))?;
        let has_memory = named.all.iter().any(|(_, device)| device.memory().is_some());
        prepared.known = binder.known();
        prepared.limits = limits.clone();
        prepared.guard_pages = if has_memory { GuardPages::Off } else { *guard_pages };
        let watching = Watching { memory: *verify_memory, numbers: *check_nan };
        prepared.watched = (watching.is_any() && !has_memory).then(|| watched(program, &facts, watching));
        let function = Function::new(prepared, program, &facts, &named, &mut 0)?;
        let devices: Devices =
            std::iter::once(Arc::clone(&device)).chain(devices.iter().map(|(_, d)| Arc::clone(d))).collect();
        let hosted = Hosted::new(host.clone());
        let missing =
            hosted.missing(function.all().into_iter().flat_map(|function| function.prepared.calls()));
        if !missing.is_empty() {
            return Err(RunError::MissingHost { ops: missing });
        }
        let load = Arc::new(plan_load(&function.prepared)?);
        let layout = Layout::new(program, &function.prepared, &devices, load.kept.clone(), *source)?;
        let (constants, counters) = (program.consts.len(), Counters::default());
        Ok((Code { function, binder, devices, load, constants, counters, hosted }, layout))
    }

    /// A context without constants.
    fn context(&self) -> Result<Context, RunError> {
        Context::new(&self.devices, (self.constants, self.load.kept.len()), &self.function.prepared)
    }
}

/// What a panic left behind is as good as what a call left behind: every call writes before it reads.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
