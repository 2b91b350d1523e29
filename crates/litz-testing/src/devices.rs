//! Runs graphs by the interpreter of loops, on the reference device and as machine code.

use std::sync::Arc;

pub use litz::definition::definition;
use litz::pipeline;
use litz::{Backend, Device, Error, Options, Runner, Stage, Tensor, Unproved, Value, Verify};
use litz_codegen::Realized;
use litz_ir::graph::Graph;
use litz_ir::loops::Loops;
use litz_ir::target::{Cpu, Isa, Target};
use litz_runtime::RunError;
use litz_runtime::limits::Limits;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::reference::{self, DistantDevice};
use litz_runtime::weights::Weights;

use crate::any_host::AnyHost;
use crate::compare::{Expected, expected};
use crate::models::Call;

/// What a program has to return, by the interpreter.
///
/// # Errors
/// What the call ends with.
pub fn interpret(loops: &Loops, call: &Call) -> Result<Vec<Expected>, RunError> {
    let results =
        reference::loops::run_with(loops, &call.sizes, &call.inputs, &call.weights, Some(&AnyHost))?;
    Ok(expected(loops, results))
}

/// Kernels and program of a graph, everything verified on the way.
///
/// # Errors
/// When the graph uses something unsupported, a stage is at fault, or a kernel that the scheduler wants is not proved: the
/// results would be right all the same, but slow.
pub fn realize(graph: Graph, backend: &dyn Backend, options: &Options) -> Result<Realized, Error> {
    let (realized, unproved) = realize_any(graph, backend, options)?;
    match unproved.first() {
        Some(unproved) => Err(Error::bug("schedule", &unproved.why)),
        None => Ok(realized),
    }
}

/// As [`realize`], with the kernels that are not proved: of graphs that no exporter writes some are not.
///
/// # Errors
/// When the graph uses something unsupported, or a stage is at fault.
pub fn realize_any(
    graph: Graph,
    backend: &dyn Backend,
    options: &Options,
) -> Result<(Realized, Vec<Unproved>), Error> {
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Stages, options.dump.clone(), &mut silent);
    let texts = pipeline::compile(graph, backend, options, Stage::Program, &mut runner)?;
    let realized = texts.realized.ok_or_else(|| Error::bug("realize", "it gave nothing"))?;
    Ok((realized, texts.unproved))
}

/// The reference device with a program's kernels, late and with memory of its own, so that calls have to wait.
///
/// # Errors
/// When a kernel breaks the rules of kernels.
pub fn on_reference(realized: &Realized) -> Result<Device, RunError> {
    Ok(Arc::new(DistantDevice::new(&realized.kernels)?))
}

/// A backend's code of a program's kernels, to run on a pool.
///
/// # Errors
/// When a kernel cannot be emitted, compiled or loaded.
pub fn on_native(
    realized: &Realized,
    backend: &dyn Backend,
    options: &Options,
    pool: &Arc<ThreadPool>,
) -> Result<Device, Error> {
    let objects = litz::compile_kernels(backend, &realized.kernels, options, None)?;
    Ok(backend.load(&realized.kernels, &objects, &|| Arc::clone(pool))?)
}

/// Calls a program, twice: the second call finds the memory that the first one left.
///
/// # Errors
/// What a call ends with.
pub fn run(
    realized: &Realized,
    device: Device,
    inputs: &[Tensor],
    weights: &dyn Weights,
) -> Result<[Vec<Value>; 2], RunError> {
    let executable = executable(realized, device, weights, Limits::default())?;
    Ok([executable.run(inputs)?, executable.run(inputs)?])
}

/// A program ready to be called within limits, with a host that has all operators.
///
/// # Errors
/// What loading it ends with.
pub fn executable(
    realized: &Realized,
    device: Device,
    weights: &dyn Weights,
    limits: Limits,
) -> Result<Executable, RunError> {
    let (program, kernels) = (&realized.program, &realized.kernels);
    let (device, devices) = litz::devices(program, kernels, device)?;
    let options = RunOptions { host: Some(Arc::new(AnyHost)), limits, devices, ..RunOptions::default() };
    Executable::with_options(program, kernels, device, weights, &options)
}

/// Instruction sets of this kind of machine that it has; those that it lacks are named on standard error.
pub fn isas() -> Vec<Isa> {
    let is_kin = |isa: &Isa| cfg!(target_arch = "aarch64") == (*isa == Isa::Neon);
    let is_there = |isa: &Isa| {
        let is_there = litz::backend(&options(*isa, 1)).is_ok_and(|backend| backend.check_machine().is_ok());
        if !is_there {
            eprintln!("note: this machine does not have {}: nothing is run with it", isa.name());
        }
        is_there
    };
    Isa::ALL.into_iter().filter(is_kin).filter(is_there).collect()
}

/// Options for an instruction set and so many threads; caches are those of usual machines.
pub fn options(isa: Isa, threads: u32) -> Options {
    Options::for_target(Target::Cpu(Cpu::new(isa, threads)))
}
