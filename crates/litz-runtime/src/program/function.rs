//! Holds a program, or a function of one, with the plans made for it, and calls functions.

use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;

use litz_ir::kernel::Kernel;
use litz_ir::loops::Control;
use litz_ir::program::Program;
use litz_ir::scalar::Scalar;
use smallvec::SmallVec;

use super::context::{Context, Deadline};
use super::outputs::{OutputLayout, Outputs};
use super::plan::{Buffer, CallPlan, Plan};
use super::planner::plan_call;
use super::prepare::{Named, kernel_facts, number_launches, prepare};
use super::prepared::{self, KernelFacts, Output, Prepared};
use super::{Counters, lock};
use crate::error::RunError;
use crate::host::Hosted;
use crate::limits::Limit;

/// Plans kept for sizes seen lately.
const MAX_PLANS: usize = 128;

/// A program, or a function of one, resolved.
pub(super) struct Function {
    pub(super) prepared: Prepared,
    pub(super) functions: Vec<Function>,
    /// The latest at the end.
    plans: Mutex<Vec<Arc<Plan>>>,
}

/// What holds for all that one call of an executable runs.
#[derive(Clone, Copy)]
pub(super) struct Running<'a> {
    pub(super) deadline: Option<Deadline>,
    pub(super) counters: &'a Counters,
    pub(super) hosted: &'a Hosted,
    /// Is told of the constants that nothing reads any more.
    pub(super) release: &'a dyn Fn(usize),
}

impl Function {
    /// Resolves the functions of a program, theirs too; `prepared` is the program itself. `launches` says how many launches there are before.
    pub(super) fn new(
        prepared: Prepared,
        program: &Program,
        kernels: &Arc<[KernelFacts]>,
        devices: &Named<'_>,
        launches: &mut usize,
    ) -> Result<Function, RunError> {
        let mut prepared = prepared;
        *launches = number_launches(&mut prepared, *launches);
        let function = |inner: &Program| {
            let bug = |what: &str| RunError::bug(format!("program @{}", inner.name), what);
            let symbols = [inner.given_sizes(), inner.late_sizes()].concat();
            let position = |sym| symbols.iter().position(|&known| known == sym);
            let mut resolved = prepare(inner, kernels, devices, &position)?;
            resolved.known = inner.given_sizes().len();
            resolved.limits = prepared.limits.clone();
            resolved.guard_pages = prepared.guard_pages;
            resolved.watched =
                prepared.watched.as_ref().map(|watched| prepared::watched(inner, kernels, watched.watching));
            if !inner.consts.is_empty() || !inner.load.is_empty() {
                return Err(bug("a function has constants"));
            }
            let is_tensor = |output: &Output| matches!(output, Output::View { .. });
            if !resolved.outputs.iter().all(is_tensor) {
                return Err(bug("a function gives what is no tensor"));
            }
            Function::new(resolved, inner, kernels, devices, launches)
        };
        let functions = program.functions.iter().map(function).collect::<Result<_, _>>()?;
        Ok(Function { prepared, functions, plans: Mutex::default() })
    }

    /// The program and its functions, theirs too.
    pub(super) fn all(&self) -> Vec<&Function> {
        std::iter::once(self).chain(self.functions.iter().flat_map(Function::all)).collect()
    }

    /// The plan for these values of the size symbols; `kept` is what load steps keep.
    pub(super) fn plan(
        &self,
        values: &[i64],
        kept: &[(usize, usize)],
        counters: &Counters,
    ) -> Result<Arc<Plan>, RunError> {
        let mut plans = lock(&self.plans);
        if let Some(at) = plans.iter().position(|plan| plan.values == values) {
            plans[at..].rotate_left(1);
        } else {
            let plan = Arc::new(plan_call(&self.prepared, values, kept)?);
            counters.plans.fetch_add(1, Ordering::Relaxed);
            if plans.len() == MAX_PLANS {
                plans.remove(0);
            }
            plans.push(plan);
        }
        Ok(Arc::clone(plans.last().expect("invariant: the plan was just put there")))
    }
}

/// Kernels from which on several threads verify them: one of a GPU that is written out takes milliseconds.
const MANY: usize = 8;

/// What the kernels of a program need to know, verified.
pub(super) fn facts_of(kernels: &[Kernel], devices: &Named<'_>) -> Result<Arc<[KernelFacts]>, RunError> {
    let threads = match kernels.len() {
        ..MANY => 1,
        count => thread::available_parallelism().map_or(1, usize::from).min(count),
    };
    // Every thread has others of them: those that take long are neighbours.
    let part = |first: usize| -> Vec<Result<KernelFacts, RunError>> {
        kernels.iter().skip(first).step_by(threads).map(|kernel| kernel_facts(kernel, devices)).collect()
    };
    let mut parts = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|first| scope.spawn(move || part(first))).collect();
        let own = part(0);
        let joined =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        std::iter::once(own).chain(joined).map(Vec::into_iter).collect::<Vec<_>>()
    });
    (0..kernels.len())
        .map(|at| parts[at % threads].next().expect("invariant: each kernel is one thread's"))
        .collect()
}

/// Results of a function, in memory of its caller.
struct Placed<'a> {
    name: &'a str,
    results: SmallVec<[(*mut u8, usize); 4]>,
}

// SAFETY: the caller's program gives each result memory that nothing else has during the call, and whoever plans or verifies it
// made that begin where buffers do.
unsafe impl Outputs for Placed<'_> {
    fn tensor(&mut self, index: usize, layout: &OutputLayout<'_>) -> Result<NonNull<u8>, RunError> {
        let bug = |what: String| RunError::bug(format!("call of @{}", self.name), what);
        let &(start, bytes) =
            self.results.get(index).ok_or_else(|| bug(format!("it has no result {index}")))?;
        if layout.bytes > bytes {
            return Err(bug(format!("expected {} bytes for result {index}, found {bytes}", layout.bytes)));
        }
        Ok(NonNull::new(start).unwrap_or(NonNull::dangling()))
    }

    /// Only what becomes of arguments that were lent: nothing.
    fn scalar(&mut self, _: usize, _: Option<Scalar>) {}
    fn text(&mut self, _: usize, _: &Arc<str>) {}
}

impl Context {
    /// Calls functions of `function`, whose context this is, in the way that `control` says.
    pub(super) fn control(
        &mut self,
        function: &Function,
        control: &Control,
        (calls, values): (&[CallPlan], &[i64]),
        (reads, writes): (&[Buffer], &[Buffer]),
        running: Running<'_>,
    ) -> Result<(), RunError> {
        let operands = control.operands(reads, writes);
        let call = |context: &mut Context, at: usize| {
            let (_, args, writes) = operands[at];
            let CallPlan { function: callee, sizes } = &calls[at];
            context.call(function, *callee, &values[sizes.clone()], (args, writes), running)
        };
        match control {
            Control::Call(_) => call(self, 0),
            Control::Branch { .. } => {
                let holds = self.number(&reads[0])? != 0;
                call(self, usize::from(!holds))
            }
            Control::While { .. } => loop {
                call(self, 0)?;
                if self.number(&writes[0])? == 0 {
                    return Ok(());
                }
                call(self, 1)?;
            },
        }
    }

    /// Calls a function: its inputs and results are in memory of this context.
    fn call(
        &mut self,
        caller: &Function,
        at: usize,
        values: &[i64],
        (args, writes): (&[Buffer], &[Buffer]),
        running: Running<'_>,
    ) -> Result<(), RunError> {
        let function = &caller.functions[at];
        // The function's stream is another one.
        self.wait()?;
        let mut child = self.child(at, &function.prepared)?;
        self.lend_arenas(&mut child);
        let result = self.call_in(&mut child, function, values, (args, writes), running);
        if result.is_err() {
            child.settle();
        }
        self.take_back(at, child);
        result
    }

    fn call_in(
        &self,
        child: &mut Context,
        function: &Function,
        values: &[i64],
        (args, writes): (&[Buffer], &[Buffer]),
        running: Running<'_>,
    ) -> Result<(), RunError> {
        let prepared = &function.prepared;
        let bug = |what: String| RunError::bug(format!("call of @{}", prepared.name), what);
        child.begin();
        child.iterations = self.iterations;
        child.values.clear();
        child.values.extend_from_slice(values);
        self.plan_below(child, function, running)?;
        if (args.len(), writes.len().min(prepared.outputs.len()))
            != (prepared.params.len(), prepared.outputs.len())
        {
            return Err(bug("it takes and gives other numbers of tensors".into()));
        }
        for (at, arg) in args.iter().enumerate() {
            let needed = child.bytes_of_param(at);
            if needed > arg.bytes {
                return Err(bug(format!("expected {needed} bytes for input {at}, found {}", arg.bytes)));
            }
            child.lend_input(at, self.address(arg.place));
        }
        let results = writes.iter().take(prepared.outputs.len());
        let results = results.map(|buffer| (self.address(buffer.place), buffer.bytes)).collect();
        let mut outputs = Placed { name: &prepared.name, results };
        child.set_outputs(&mut outputs)?;
        while !child.run(function, running)? {
            self.plan_below(child, function, running)?;
            child.set_outputs(&mut outputs)?;
        }
        child.finish(&mut outputs)
    }

    /// Gives a child the plan for its values, within the limits of the whole call.
    fn plan_below(
        &self,
        child: &mut Context,
        function: &Function,
        running: Running<'_>,
    ) -> Result<(), RunError> {
        let plan = function.plan(&child.values, &[], running.counters)?;
        let bytes = self.bytes_around(child, &plan);
        function.prepared.limits.check(Limit::CallBytes, bytes as u64)?;
        running.counters.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
        child.use_plan(plan)
    }
}
