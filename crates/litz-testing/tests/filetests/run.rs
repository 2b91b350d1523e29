//! Calls the program of a test file with its data, on each device and under each schedule.

use crate::counts;
use crate::file::TestFile;
use crate::settings::Settings;
use crate::stages::{given_schedule, parse, prepared_loops, realized, realized_for};
use litz::pipeline::{compile, compile_loops};
use litz::{Backend, Device, Options, Runner, Stage, Tensor, Text, Value, Verify};
use litz_codegen::Realized;
use litz_cpu::CpuBackend;
use litz_ir::kernel::{Act, Kernel, MemorySpace, Operand, Stmt, Sync, visit};
use litz_ir::target::{Cpu, Isa, Target};
use litz_llvm::Processor;
use litz_runtime::GuardPages;
use litz_runtime::pool::ThreadPool;
use litz_runtime::program::{Executable, RunOptions};
use litz_runtime::reference::{DistantDevice, ReferenceDevice, ReferenceOptions};
use litz_testing::filetest::{Call, data, same, slug};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Runs every call of a file.
pub fn run(file: &TestFile) -> Result<(), String> {
    let settings = Settings::of(file)?;
    let (weights, calls) = data(file)?;
    if calls.is_empty() {
        return Err("expected data: `//< in.0 f32[2] 1 2`, `//> out.0 f32[2] 3 4`".into());
    }
    let check = |what: &str, realized: &Realized, device: Device| {
        check(&settings, realized, device, &weights, &calls).map_err(|e| format!("{what}: {e}"))
    };
    let automatic = compiled(file, &settings, &*settings.backend)?;
    check("reference device", &automatic, reference(&automatic)?)?;
    // What is on reference devices has memories of their own already, which copy to each other alone.
    if !is_mixed(&automatic) {
        let distant = DistantDevice::new(&automatic.kernels).map_err(|e| e.to_string())?;
        check("distant device", &automatic, Arc::new(distant))?;
    }
    let gpu = litz::backend(&Options::for_target(settings.gpu)).map_err(|e| e.to_string())?;
    let automatic = compiled(file, &settings, &*gpu)?;
    check(&settings.gpu.to_string(), &automatic, reference(&automatic)?)?;
    seeds(&settings, &automatic, &weights, &calls, orders(1))
        .map_err(|e| format!("{}, {e}", settings.gpu))?;
    if let Some(device) = on_gpu(&automatic, &*gpu, &settings)? {
        check(&format!("{}, machine code", settings.gpu), &automatic, device)?;
    }
    let host = host(&settings)?;
    for backend in natives(&settings.info, &host)? {
        let automatic = compiled(file, &settings, &*backend)?;
        check(&backend.target().to_string(), &automatic, native(&automatic, &*backend, &settings)?)?;
    }
    if file.texts.len() > 1 {
        let loops = prepared_loops(file, &settings)?;
        let schedule = given_schedule(file, &loops)?.ok_or("expected a schedule")?;
        let given = realized(&loops, &schedule)?;
        check("given schedule, reference device", &given, reference(&given)?)?;
        if !file.claims.is_empty() {
            let options = ReferenceOptions { counts: true, ..ReferenceOptions::default() };
            let counting = reference_with(&given, &options)?;
            let calls: Vec<&Call> = calls.iter().collect();
            call_all(&settings, &given, counting.clone(), &weights, &calls, &RunOptions::default())?;
            counts::check(&file.claims, &counting.counts())?;
        }
        // Nothing else runs what is for another kind of machine.
        if schedule.target.cpu().is_none() {
            seeds(&settings, &given, &weights, &calls, orders(3))
                .map_err(|e| format!("given schedule, {e}"))?;
            let gpu = litz::backend(&Options::for_target(schedule.target)).map_err(|e| e.to_string())?;
            let spread = realized_for(&loops, &schedule, &*gpu)?;
            check("given schedule, kernel passes", &spread, reference(&spread)?)?;
            if let Some(device) = on_gpu(&spread, &*gpu, &settings)? {
                check("given schedule, machine code", &spread, device)?;
            }
            return seeds(&settings, &spread, &weights, &calls, orders(3))
                .map_err(|e| format!("given schedule, kernel passes, {e}"));
        }
        let given = realized_for(&loops, &schedule, &*host)?;
        check("given schedule, kernel passes, reference device", &given, reference(&given)?)?;
        check("given schedule, native", &given, native(&given, &*host, &settings)?)?;
    }
    Ok(())
}

/// What this machine runs code for: all that it has, and what every machine of its kind has.
fn natives(info: &Target, host: &Arc<dyn Backend>) -> Result<Vec<Arc<dyn Backend>>, String> {
    let least = info.cpu().filter(|_| cfg!(target_arch = "x86_64"));
    let least = least.map(|cpu| Target::Cpu(Cpu { isa: Isa::Sse2, ..*cpu }));
    let least = least.map(|target| litz::backend(&Options::for_target(target)).map_err(|e| e.to_string()));
    [Ok(Arc::clone(host))].into_iter().chain(least).collect()
}

/// All instructions of this machine, and the threads and caches that the file asks for.
fn host(settings: &Settings) -> Result<Arc<dyn Backend>, String> {
    let backend = litz::backend(&settings.options).map_err(|e| e.to_string())?;
    let (Some(host), Some(cpu)) = (backend.target().cpu(), settings.info.cpu()) else {
        return Err(format!("expected the target of a CPU, found {}", settings.info));
    };
    let target = Target::Cpu(Cpu { isa: host.isa, ..*cpu });
    Ok(Arc::new(CpuBackend::new(Processor::host(), target)))
}

/// Kernels and program of the first text, by all passes and the automatic schedule; every text reads back equal.
pub fn compiled(file: &TestFile, settings: &Settings, backend: &dyn Backend) -> Result<Realized, String> {
    let mut silent = |_: &str| {};
    let mut runner = Runner::new(Verify::Passes, None, &mut silent);
    let texts = match parse(&file.texts[0])? {
        Text::Graph(graph) => compile(graph, backend, &settings.options, Stage::Program, &mut runner),
        Text::Loops(loops) => compile_loops(loops, backend, &settings.options, Stage::Program, &mut runner),
        Text::Schedule(..) | Text::Kernels(_) | Text::Program(_) => {
            return Err("expected a graph or loops".into());
        }
    };
    let texts = texts.map_err(|e| e.to_string())?;
    let schedule = texts.schedule.ok_or("nothing was scheduled")?;
    let realized = texts.realized.ok_or("nothing was realized")?;
    for text in [
        schedule.to_string(),
        Text::Kernels(realized.kernels.clone()).to_string(),
        realized.program.to_string(),
    ] {
        // A program of routines alone has no kernels, and no text of them.
        if !text.is_empty() {
            parse(&text)?;
        }
    }
    Ok(realized)
}

/// Whether a program names several devices.
fn is_mixed(realized: &Realized) -> bool {
    realized.program.slots.values().any(|slot| slot.device != realized.program.device)
}

fn reference(realized: &Realized) -> Result<Device, String> {
    Ok(Arc::new(ReferenceDevice::new(&realized.kernels).map_err(|e| e.to_string())?))
}

fn reference_with(realized: &Realized, options: &ReferenceOptions) -> Result<Arc<ReferenceDevice>, String> {
    Ok(Arc::new(ReferenceDevice::with(&realized.kernels, options).map_err(|e| e.to_string())?))
}

/// A reference device that runs threads in an order of that seed.
pub fn seeded(realized: &Realized, seed: u64) -> Result<Device, String> {
    Ok(reference_with(realized, &ReferenceOptions { seed: Some(seed), ..ReferenceOptions::default() })?)
}

fn native(realized: &Realized, backend: &dyn Backend, settings: &Settings) -> Result<Device, String> {
    let objects = litz::compile_kernels(backend, &realized.kernels, &settings.options, None)
        .map_err(|e| e.to_string())?;
    let threads = || Arc::new(ThreadPool::new(settings.options.threads));
    backend.load(&realized.kernels, &objects, &threads).map_err(|e| e.to_string())
}

/// Machine code for a GPU, and where this machine has one that runs it, a device. It copies to no reference device.
fn on_gpu(realized: &Realized, backend: &dyn Backend, settings: &Settings) -> Result<Option<Device>, String> {
    let objects = litz::compile_kernels(backend, &realized.kernels, &settings.options, None);
    let objects = match objects {
        Err(error) if realized.kernels.iter().any(is_without_code) => {
            let is_refused = error.to_string().contains("unsupported");
            return if is_refused { Ok(None) } else { Err(error.to_string()) };
        }
        objects => objects.map_err(|e| format!("{}: {e}", backend.target()))?,
    };
    if !settings.on_gpus || is_mixed(realized) || backend.check_machine().is_err() {
        return Ok(None);
    }
    let threads = || Arc::new(ThreadPool::new(1));
    backend.load(&realized.kernels, &objects, &threads).map(Some).map_err(|e| e.to_string())
}

/// Whether the emitter refuses a kernel: of clusters, and of products of warpgroups whose rows lie across the sum.
fn is_without_code(kernel: &Kernel) -> bool {
    let mut found = kernel.mems.values().any(|data| data.space == MemorySpace::Cluster);
    visit(&kernel.body, &mut |stmt| {
        found |= match stmt {
            Stmt::Act(Act::Sync(Sync::Cluster)) => true,
            Stmt::Act(Act::FragmentProduct(product)) => {
                let rows = [&product.left, &product.right];
                product.by.is_of_warpgroup()
                    && rows.iter().any(|rows| matches!(rows, Operand::Rows(rows) if rows.is_transposed))
            }
            _ => false,
        };
    });
    found
}

/// With guard pages, and, for ML-2, with memory that is watched.
fn check(
    settings: &Settings,
    realized: &Realized,
    device: Device,
    weights: &HashMap<String, Tensor>,
    calls: &[Call],
) -> Result<(), String> {
    let ways = [
        (GuardPages::Off, false),
        (GuardPages::Off, true),
        (GuardPages::AtEnds, false),
        (GuardPages::AtStarts, false),
    ];
    for (guard_pages, verify_memory) in ways {
        let options = RunOptions { guard_pages, verify_memory, ..RunOptions::default() };
        // Twice: the second round finds the memory that the first one left. State would be another then.
        let program = &realized.program;
        let is_state = |slot| program.consts.iter().any(|constant| constant.slot == slot);
        let again = if program.updates.iter().any(|update| is_state(update.0)) { 1 } else { 2 };
        call_all(
            settings,
            realized,
            device.clone(),
            weights,
            &calls.iter().collect::<Vec<_>>().repeat(again),
            &options,
        )?;
    }
    Ok(())
}

/// Orders in which threads run that nothing else orders: so many, or as many as `LITZ_TEST_ORDERS` says.
pub fn orders(usual: u64) -> Range<u64> {
    let asked = std::env::var("LITZ_TEST_ORDERS").ok().and_then(|orders| orders.parse().ok());
    1..asked.unwrap_or(usual) + 1
}

/// Results are the same, bit by bit, in whichever order threads run.
fn seeds(
    settings: &Settings,
    given: &Realized,
    weights: &HashMap<String, Tensor>,
    calls: &[Call],
    seeds: Range<u64>,
) -> Result<(), String> {
    let calls: Vec<&Call> = calls.iter().collect();
    let run = |device: Device| call_all(settings, given, device, weights, &calls, &RunOptions::default());
    let in_order = run(reference(given)?)?;
    let has_order = !given.kernels.iter().any(combines_floats_in_any_order);
    for seed in seeds {
        let found = seeded(given, seed).and_then(&run).map_err(|e| format!("seed {seed}: {e}"))?;
        if has_order && found != in_order {
            return Err(format!("seed {seed}: other bits than in order"));
        }
    }
    Ok(())
}

/// Whether threads combine floats into one element, in an order that is nobody's.
fn combines_floats_in_any_order(kernel: &Kernel) -> bool {
    let mut found = false;
    visit(&kernel.body, &mut |stmt| {
        if let Stmt::Act(Act::Store { mem, atomic: true, .. }) = stmt {
            found |= kernel.mems[*mem].dtype.is_float();
        }
    });
    found
}

/// Makes calls one after the other. Returns the bits of the results.
pub fn call_all(
    settings: &Settings,
    realized: &Realized,
    device: Device,
    weights: &HashMap<String, Tensor>,
    calls: &[&Call],
    options: &RunOptions,
) -> Result<Vec<Vec<u8>>, String> {
    let show = || format!("{}{}", Text::Kernels(realized.kernels.clone()), realized.program);
    let failed = |what: String| format!("{what}\nin\n{}", show());
    let (program, kernels) = (&realized.program, &realized.kernels);
    let (device, devices) = litz::devices(program, kernels, device).map_err(|e| failed(e.to_string()))?;
    let options = RunOptions { devices, ..options.clone() };
    let executable = Executable::with_options(program, kernels, device, weights, &options);
    let executable = executable.map_err(|e| failed(e.to_string()))?;
    let mut bits = Vec::new();
    for call in calls {
        match (executable.run(&call.inputs), &settings.fails) {
            (Err(error), Some(expected)) if slug(&error) == expected => {}
            (Err(error), _) => return Err(failed(error.to_string())),
            (Ok(_), Some(expected)) => {
                return Err(failed(format!("expected failure `{expected}`, found none")));
            }
            (Ok(outputs), None) => {
                same(&outputs, &call.outputs).map_err(failed)?;
                let tensors = outputs.iter().filter_map(Value::tensor);
                bits.extend(tensors.map(|tensor| tensor.bytes().to_vec()));
            }
        }
    }
    Ok(bits)
}
