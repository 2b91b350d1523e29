//! Tries a model: compiled for a target, as machine code and on the reference device, against the interpreter of loops.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use litz::{Device, Error, Options, Value};
use litz_codegen::Realized;
use litz_ir::graph::Graph;
use litz_ir::target::{self, Cpu, Gpu, GpuIsa, Isa};
use litz_ir::verify;
use litz_passes::loops::Inlining;
use litz_runtime::limits::Limits;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::Executable;
use litz_runtime::tensor::Argument;
use litz_runtime::{RunError, Tensor};
use litz_schedule::{Heuristics, MemoryPool, ReorderAxes};

use crate::choices::{self, Choices};
use crate::compare::{self, Compared, Expected};
use crate::devices;
use crate::models::{self, Call, Model};

/// What a model is compiled for, and how.
#[derive(Clone, Debug)]
pub struct TrialTarget {
    /// Numbers of the scheduler.
    pub info: target::Target,
    /// Instructions, threads and thresholds.
    pub options: Options,
}

/// How a trial ended.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// All results are right.
    Right(Compared),
    /// The model uses what Litz does not support, or asks for what PyTorch refuses.
    Unsupported(String),
    /// A mistake: a wrong number, an error or panic of a stage, an access outside.
    Wrong(String),
}

/// Thread pools by number of threads: starting threads takes longer than small models do.
#[derive(Default)]
pub struct Pools {
    pools: BTreeMap<usize, Arc<ThreadPool>>,
}

impl Pools {
    /// The pool of that many threads.
    pub fn of(&mut self, threads: usize) -> Arc<ThreadPool> {
        Arc::clone(self.pools.entry(threads).or_insert_with(|| Arc::new(ThreadPool::unbound(threads))))
    }
}

/// Bytes that a model is made from.
const MODEL_BYTES: usize = 400;

/// The model and target of number `at` of a seed.
pub fn numbered(seed: u64, at: u64, isas: &[Isa]) -> (Model, TrialTarget) {
    let stream = seed.wrapping_mul(0x1_0000_0001).wrapping_add(at);
    let bytes = choices::bytes(stream, MODEL_BYTES);
    let model = models::generate(&mut Choices::new(&bytes));
    let bytes = choices::bytes(stream ^ 0x7a26_e700_0000_0000, 32);
    (model, target(&mut Choices::new(&bytes), isas))
}

/// A target that this machine can run code for, or a GPU, which the reference device stands for; with no choices left, one thread of the
/// first instruction set. Where there is no instruction set, a GPU.
pub fn target(choices: &mut Choices<'_>, isas: &[Isa]) -> TrialTarget {
    if choices.once_in(6) || isas.is_empty() {
        let info = target::Target::Gpu(Gpu::new(choices.pick(&GpuIsa::ALL), choices.pick(&[132, 1, 7])));
        let mut options = Options { freeze: !choices.once_in(4), ..Options::for_target(info) };
        // Tuning takes any of the plans that families have.
        options.heuristics.choice = choices.pick(&[0, 0, 1, 2, 5, 9]);
        return TrialTarget { info, options };
    }
    let isa = choices.pick(isas);
    let mut cpu = Cpu::new(isa, 1 + choices.below(7) as u32);
    // In a cache without sets the rows of all products are apart.
    cpu.l1_bytes = choices.pick(&[32, 48, 16, 128, 2]) << 10;
    cpu.l2_bytes = choices.pick(&[1024, 2048, 256, 512, 4096]) << 10;
    let mut options = Options { bind: false, freeze: !choices.once_in(4), ..Options::default() };
    if choices.once_in(2) {
        // Thresholds under which small programs are split as large ones are.
        options.heuristics = Heuristics {
            chunk_ops: choices.pick(&[64, 1, 1024]),
            block: choices.pick(&[32, 8, 256]),
            reduction_copies: choices.pick(&[4, 1, 2]),
            function_copies: choices.pick(&[4, 1, 2]),
            column_vectors: choices.pick(&[4, 1, 2]),
            inline_epilogue: choices.pick(&[8, 0, 2]),
            partial_sum: choices.pick(&[5, 96, 2, 16]),
            partial_half: choices.pick(&[16384, 7]),
            partial_column: choices.pick(&[32, 3]),
            local_fraction: choices.pick(&[2, 64]),
            reorder_axes: choices.pick(&[ReorderAxes::KeepingNeighbours, ReorderAxes::Always]),
            launch_together: choices.pick(&[1, 8, 3]),
            ..Heuristics::default()
        };
    }
    if choices.once_in(3) {
        options.inlining = Inlining {
            cheap: choices.pick(&[4, 0, 100]),
            max_body: choices.pick(&[100, 4, 20]),
            max_loads: choices.pick(&[12, 1, 3]),
        };
        cpu.l2_bytes = choices.pick(&[1 << 20, 1 << 14]);
    }
    if choices.once_in(4) {
        options.heuristics.memory_pool = choices.pick(&[MemoryPool::None, MemoryPool::Intermediates]);
    }
    let info = target::Target::Cpu(cpu);
    let options = Options { threads: cpu.threads as usize, target: Some(info), ..options };
    TrialTarget { info, options }
}

/// Runs all calls of a model and compares. Panics of stages are mistakes.
pub fn run(model: &Model, target: &TrialTarget, pools: &mut Pools) -> Verdict {
    let caught = catch_unwind(AssertUnwindSafe(|| attempt(model, target, pools)));
    caught.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Verdict::Wrong(format!("panic: {}", text.unwrap_or_default()))
    })
}

fn attempt(model: &Model, target: &TrialTarget, pools: &mut Pools) -> Verdict {
    let loops = match devices::definition(&model.graph) {
        Ok(loops) => loops,
        Err(error) => return judge(error),
    };
    if let Some(diag) = verify::loops::verify(&loops).first() {
        return Verdict::Wrong(format!("lowering: {diag}"));
    }
    let calls: Vec<Call> = (0..model.bindings.len()).map(|at| model.call(at)).collect();
    let mut expected = Vec::new();
    for call in &calls {
        match devices::interpret(&loops, call) {
            // The bindings keep to what operators ask of sizes: nothing else may refuse them.
            Err(error @ (RunError::Bug { .. } | RunError::CheckFailed { .. })) => {
                return Verdict::Wrong(format!("interpreter: {error}"));
            }
            other => expected.push(other),
        }
    }
    let compiled = litz::backend(&target.options).and_then(|backend| {
        Ok((devices::realize(model.graph.clone(), &*backend, &target.options)?, backend))
    });
    let (realized, backend) = match compiled {
        Ok(compiled) => compiled,
        Err(error) => return judge(error),
    };
    let pool = pools.of(target.options.threads);
    // The reference device first: what it stops would be an access outside of machine code.
    let mut compared = Compared::default();
    let devices = ["reference device", "machine code"];
    for &name in &devices[..if target.info.cpu().is_some() { 2 } else { 1 }] {
        let device = match name {
            "reference device" => devices::on_reference(&realized).map_err(Error::from),
            _ => devices::on_native(&realized, &*backend, &target.options, &pool),
        };
        let result = device.map_err(|error| error.to_string());
        match result.and_then(|device| self::calls(&realized, device, &calls, &expected)) {
            Ok(found) => compared = found,
            Err(why) => return Verdict::Wrong(format!("{name}: {why}")),
        }
    }
    Verdict::Right(compared)
}

/// Compiles a model to object code, and forgets it.
///
/// # Errors
/// What a stage refuses.
pub fn compile(model: &Model, target: &TrialTarget) -> Result<(), Error> {
    let backend = litz::backend(&target.options)?;
    let realized = devices::realize(model.graph.clone(), &*backend, &target.options)?;
    match target.info.cpu() {
        Some(_) => litz::compile_kernels(&*backend, &realized.kernels, &target.options, None).map(drop),
        None => Ok(()),
    }
}

/// What an error of a stage says of a model.
pub(crate) fn judge(error: Error) -> Verdict {
    match error {
        Error::Unsupported(_) | Error::Invalid(_) => Verdict::Unsupported(error.to_string()),
        other => Verdict::Wrong(other.to_string()),
    }
}

/// Makes all calls of one compilation, each twice, and compares.
///
/// # Errors
/// The first difference, in words.
pub fn calls(
    realized: &Realized,
    device: Device,
    calls: &[Call],
    expected: &[Result<Vec<Expected>, RunError>],
) -> Result<Compared, String> {
    let mut all = Compared::default();
    let Some(first) = calls.first() else { return Ok(all) };
    let executable = match devices::executable(realized, device, &first.weights, Limits::default()) {
        Ok(executable) => executable,
        // What fails for constants alone fails when they are loaded.
        Err(found) => {
            let fails_alike = |expected: &Result<_, RunError>| {
                expected.as_ref().is_err_and(|expected| compare::fail_alike(&found, expected))
            };
            return if expected.iter().all(fails_alike) { Ok(all) } else { Err(format!("load: {found}")) };
        }
    };
    // The second round finds the memory that the first one left; state would be another then.
    let is_state = |slot| realized.program.consts.iter().any(|constant| constant.slot == slot);
    let rounds = if realized.program.updates.iter().any(|update| is_state(update.0)) { 1 } else { 2 };
    let donated = |at: usize| realized.program.params.get(at).is_some_and(|param| param.is_donated);
    for (at, (call, expected)) in calls.iter().zip(expected).enumerate() {
        for round in 0..rounds {
            let found: Result<Vec<Value>, RunError> = match round {
                0 => executable.run(&call.inputs),
                _ => run_lent(&executable, &call.inputs, &donated),
            };
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    let one =
                        compare::results(&found, expected).map_err(|why| format!("call {at}: {why}"))?;
                    all.elements += one.elements;
                    all.open += one.open;
                }
                (Err(found), Err(expected)) if compare::fail_alike(&found, expected) => {}
                // What nothing uses is not computed, and its indices are not checked.
                (Ok(_), Err(RunError::BadIndex { .. })) => {}
                (Ok(_), Err(expected)) => {
                    return Err(format!("call {at}: expected the failure `{expected}`"));
                }
                (Err(found), Ok(_)) => return Err(format!("call {at}: {found}")),
                (Err(found), Err(expected)) => {
                    return Err(format!("call {at}: {found}, expected {expected}"));
                }
            }
        }
    }
    Ok(all)
}

/// Runs a program that is lent copies of its donated inputs, in which it may leave anything.
fn run_lent(
    executable: &Executable,
    inputs: &[Tensor],
    donated: &dyn Fn(usize) -> bool,
) -> Result<Vec<Value>, RunError> {
    let mut copies = inputs.to_vec();
    let views = copies.iter_mut().enumerate().map(|(at, tensor)| match donated(at) {
        true => tensor.view_mut().map(Argument::Lent).expect("invariant: there is memory for a small tensor"),
        false => Argument::View(tensor.view()),
    });
    executable.run(&views.collect::<Vec<_>>())
}

/// What there is to say of a model: its text, sizes and target.
pub fn describe(model: &Model, target: &TrialTarget) -> String {
    let graph: &Graph = &model.graph;
    let mut text = String::new();
    for binding in &model.bindings {
        let sizes = binding.iter().map(|(sym, value)| format!("{sym} = {value}"));
        let sizes: Vec<String> = sizes.collect();
        if !sizes.is_empty() {
            text += &format!("// sizes: {}\n", sizes.join(", "));
        }
    }
    let fills = graph.inputs.iter().chain(graph.consts.iter().map(|(value, _)| value)).filter_map(|value| {
        let fill = model.fills.get(&value.0)?;
        Some(format!("{}: {fill:?}", graph.values[*value].name))
    });
    text += &format!("// elements, from seed {}: {}\n", model.seed, fills.collect::<Vec<_>>().join(", "));
    let (info, options) = (&target.info, &target.options);
    text += &format!(
        "// target: {info}, freeze {}\n// {:?}\n// {:?}\n",
        options.freeze, options.heuristics, options.inlining,
    );
    text + &graph.to_string()
}
